// Recordings of traces; see eval_trace.h.
#include "eval_trace.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <stdexcept>

namespace weir_cli {
namespace {

constexpr char kMagic[8] = {'W', 'E', 'I', 'R', 'T', 'R', 'C', '\0'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kAllRows = 0xffffffffu;  // as the length of a list: every resident page
constexpr uint32_t kMaxHeads = 65536;       // limits of what a reader believes
constexpr uint32_t kMaxBlockBytes = 1u << 30;
constexpr uint32_t kMaxTextBytes = 1u << 20;

weir_session_trace_fn trace_function() {
  return reinterpret_cast<weir_session_trace_fn>(weir_get_experimental("weir_session_trace"));
}

// Little-endian bytes, whatever the machine's order.
class Bytes {
 public:
  void u32(uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) text_ += static_cast<char>(value >> shift);
  }
  void f32(float value) { u32(std::bit_cast<uint32_t>(value)); }
  void u32s(const uint32_t* values, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) u32(values != nullptr ? values[i] : 0);
  }
  void f32s(const float* values, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) f32(values != nullptr ? values[i] : 0);
  }
  void text(const std::string& value) {
    u32(static_cast<uint32_t>(value.size()));
    text_ += value;
  }
  const std::string& all() const { return text_; }

 private:
  std::string text_;
};

// Reads values out of one block and never beyond it.
class Cursor {
 public:
  Cursor(const std::string& bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  uint32_t u32() {
    need(4);
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes_[at_++])) << (8 * i);
    return value;
  }
  std::vector<uint32_t> u32s(uint32_t n) {
    need(uint64_t{n} * 4);
    std::vector<uint32_t> values(n);
    for (uint32_t& value : values) value = u32();
    return values;
  }
  std::vector<float> f32s(uint32_t n) {
    need(uint64_t{n} * 4);
    std::vector<float> values(n);
    for (float& value : values) value = std::bit_cast<float>(u32());
    return values;
  }
  bool at_end() const { return at_ == bytes_.size(); }
  [[noreturn]] void refuse(const std::string& why) const { throw std::runtime_error(where_ + ": " + why); }

 private:
  void need(uint64_t n) const {
    if (n > bytes_.size() - at_) refuse("the block ends inside a value");
  }

  const std::string& bytes_;
  const std::string& where_;
  size_t at_ = 0;
};

TraceBlock parse_block(const TraceHeader& header, Cursor& in) {
  TraceBlock block;
  block.step = in.u32();
  block.layer = in.u32();
  block.n_tokens = in.u32();
  const uint32_t n_lists = in.u32();
  if (block.layer >= header.n_layers) in.refuse("layer " + std::to_string(block.layer) + " is out of range");
  if (n_lists != header.n_kv_heads && n_lists != header.n_heads) in.refuse("a wrong number of page lists");
  for (uint32_t i = 0; i < header.n_kv_heads; ++i) {
    TraceBlock::Stream& stream = block.streams.emplace_back();
    const uint32_t n_pages = in.u32();
    stream.first_pos = in.u32s(n_pages);
    stream.flags = in.u32s(n_pages);
    stream.stamp = in.u32s(n_pages);
    stream.score = in.f32s(n_pages);
    const uint32_t n_victims = in.u32();
    stream.victims = in.u32s(n_victims);
  }
  for (uint32_t i = 0; i < n_lists; ++i) {
    TraceBlock::List& list = block.lists.emplace_back();
    const uint32_t n_rows = in.u32();
    const size_t n_pages = block.streams[uint64_t{i} * header.n_kv_heads / n_lists].first_pos.size();
    list.is_all = n_rows == kAllRows;
    if (!list.is_all) list.rows = in.u32s(n_rows);
    for (uint32_t row : list.rows) {
      if (row >= n_pages) in.refuse("a page list names row " + std::to_string(row) + " of " + std::to_string(n_pages));
    }
  }
  block.mass.resize(header.n_heads);
  for (uint32_t head = 0; head < header.n_heads; ++head) {
    const TraceBlock::List& list = block.list_of(head);
    const size_t n = list.is_all ? block.streams[block.stream_of(head)].first_pos.size() : list.rows.size();
    block.mass[head] = in.f32s(static_cast<uint32_t>(n));
  }
  if (!in.at_end()) in.refuse("the block is longer than its content");
  return block;
}

// False at the end of the file, also inside the value.
bool read_bytes(std::FILE* file, size_t n, std::string& bytes) {
  bytes.resize(n);
  return std::fread(bytes.data(), 1, n, file) == n;
}

TraceHeader parse_header(std::FILE* file, const std::string& path) {
  std::string bytes;
  if (!read_bytes(file, sizeof(kMagic), bytes) || std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    throw std::runtime_error(path + ": not a recording of weir eval --trace");
  }
  if (!read_bytes(file, 7 * 4, bytes)) throw std::runtime_error(path + ": ends inside its header");
  Cursor in(bytes, path);
  const uint32_t version = in.u32();
  if (version != kVersion) {
    throw std::runtime_error(path + ": format version " + std::to_string(version) + ", this program reads " +
                             std::to_string(kVersion));
  }
  TraceHeader header;
  header.n_layers = in.u32();
  header.n_heads = in.u32();
  header.n_kv_heads = in.u32();
  header.page_tokens = in.u32();
  header.n_prompt = in.u32();
  const uint32_t n_text = in.u32();
  const bool is_sound = header.n_layers > 0 && header.n_kv_heads > 0 && header.n_heads <= kMaxHeads &&
                        header.n_heads > 0 && header.n_heads % header.n_kv_heads == 0 && header.page_tokens > 0;
  if (!is_sound) in.refuse("impossible numbers of layers, heads or tokens of a page");
  if (n_text > kMaxTextBytes || !read_bytes(file, n_text, header.description)) in.refuse("ends inside its header");
  return header;
}

}  // namespace

bool can_trace() { return trace_function() != nullptr; }

void set_trace(weir_session* session, weir_trace_fn fn, void* user) {
  const weir_session_trace_fn trace = trace_function();
  if (trace == nullptr) throw std::runtime_error("this library has no weir_session_trace");
  check(trace(session, fn, user), "cannot trace the session");
}

HeadPages head_pages(const weir_trace_layer& layer, uint32_t head) {
  const uint32_t group = layer.n_heads / layer.n_kv_heads;
  HeadPages pages;
  pages.stream = head / group;
  const uint32_t list = layer.n_lists == layer.n_heads ? head : pages.stream;
  pages.mass = layer.mass + size_t{head} * layer.capacity;
  if (layer.listed == nullptr) {
    pages.n_attended = layer.n_pages[pages.stream];
  } else {
    pages.n_attended = layer.n_listed[list];
    pages.rows = layer.listed + size_t{list} * layer.capacity;
  }
  return pages;
}

TraceRecorder::TraceRecorder(const std::string& path) : file_(path) {}

void TraceRecorder::begin(weir_session* session, const TraceHeader& header) {
  Bytes out;
  for (uint32_t value :
       {kVersion, header.n_layers, header.n_heads, header.n_kv_heads, header.page_tokens, header.n_prompt}) {
    out.u32(value);
  }
  out.text(header.description);
  write(std::string(kMagic, sizeof(kMagic)) + out.all());
  before_.assign(header.n_layers, std::vector<std::vector<uint32_t>>(header.n_kv_heads));
  set_trace(session, on_layer, this);
}

void TraceRecorder::check() const {
  if (thrown_) std::rethrow_exception(thrown_);
}

void TraceRecorder::finish() {
  check();
  file_.write(waiting_);
  file_.commit();
}

weir_status TraceRecorder::on_layer(void* user, const weir_trace_layer* layer) noexcept {
  auto* self = static_cast<TraceRecorder*>(user);
  try {
    self->record(*layer);
    return WEIR_OK;
  } catch (...) {
    self->thrown_ = std::current_exception();
    return WEIR_ERR_CANCELLED;
  }
}

void TraceRecorder::record(const weir_trace_layer& layer) {
  if (layer.layer == 0) ++n_steps_;
  Bytes out;
  for (uint32_t value : {n_steps_ - 1, layer.layer, layer.n_tokens, layer.n_lists}) out.u32(value);
  for (uint32_t s = 0; s < layer.n_kv_heads; ++s) {
    const size_t at = size_t{s} * layer.capacity;
    const uint32_t n = layer.n_pages[s];
    const std::vector<uint32_t> now(layer.first_pos + at, layer.first_pos + at + n);
    std::vector<uint32_t>& before = before_.at(layer.layer).at(s);
    std::vector<uint32_t> victims;
    std::set_difference(before.begin(), before.end(), now.begin(), now.end(), std::back_inserter(victims));
    out.u32(n);
    out.u32s(now.data(), n);
    out.u32s(layer.flags != nullptr ? layer.flags + at : nullptr, n);
    out.u32s(layer.stamp != nullptr ? layer.stamp + at : nullptr, n);
    out.f32s(layer.score != nullptr ? layer.score + at : nullptr, n);
    out.u32(static_cast<uint32_t>(victims.size()));
    out.u32s(victims.data(), static_cast<uint32_t>(victims.size()));
    before = now;
  }
  for (uint32_t i = 0; i < layer.n_lists; ++i) {
    out.u32(layer.listed == nullptr ? kAllRows : layer.n_listed[i]);
    if (layer.listed != nullptr) out.u32s(layer.listed + size_t{i} * layer.capacity, layer.n_listed[i]);
  }
  for (uint32_t head = 0; head < layer.n_heads; ++head) {
    const HeadPages pages = head_pages(layer, head);
    out.f32s(pages.mass, pages.n_attended);
  }
  Bytes length;
  length.u32(static_cast<uint32_t>(out.all().size()));
  write(length.all() + out.all());
}

void TraceRecorder::write(const std::string& bytes) {
  constexpr size_t kWaitingBytes = 1 << 20;
  waiting_ += bytes;
  if (waiting_.size() < kWaitingBytes) return;
  file_.write(waiting_);
  waiting_.clear();
}

TraceHeader read_trace(const std::string& path,
                       const std::function<void(const TraceHeader&, const TraceBlock&)>& on_block) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw std::runtime_error(path + ": cannot open: " + std::strerror(errno));
  const TraceHeader header = parse_header(file.get(), path);
  std::string bytes;
  for (uint64_t number = 0; read_bytes(file.get(), 4, bytes); ++number) {
    const std::string where = path + ": block " + std::to_string(number);
    const uint32_t n = Cursor(bytes, where).u32();
    if (n > kMaxBlockBytes) throw std::runtime_error(where + ": impossible size " + std::to_string(n));
    if (!read_bytes(file.get(), n, bytes)) break;
    Cursor in(bytes, where);
    on_block(header, parse_block(header, in));
  }
  return header;
}

}  // namespace weir_cli
