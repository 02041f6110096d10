// The staged backend; see staged_backend.h. The arrays of a call lie in one block of device memory, with a guard after
// each, and are copied together. Afterwards guards and inputs must be unchanged. With the environment variable
// WEIR_STAGE_SEPARATE every array is an allocation of its own and of exactly its size, for memory checkers.
// Longer than 600 lines because it lists the arrays of every op.
#include "tests/ops/staged_backend.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "device/module.h"
#include "quant/planes.h"
#include "runtime/device_module.h"

namespace weir::test {
namespace {

constexpr size_t kAlignment = 256;           // of device allocations, which kernels may rely on
constexpr size_t kGuardBytes = 256;          // after each array
constexpr size_t kScratchGuardBytes = 4096;  // after scratch memory, which is written in long strides
constexpr uint8_t kFill = 0xFF;              // NaN as a float, an invalid row or slot as an index

enum : size_t {
#define WEIR_OP(name, Args) kOp_##name,
#include "ops/ops.inc"
#undef WEIR_OP
  kOpCount
};

constexpr const char* kOpNames[] = {
#define WEIR_OP(name, Args) #name,
#include "ops/ops.inc"
#undef WEIR_OP
};

// Device memory that grows and is kept for the next call.
struct Block {
  void* data = nullptr;
  uint64_t bytes = 0;
};

struct State {
  const DeviceModule* module = nullptr;
  bool separate = false;
  Backend backend = {};
  Block arrays, scratch;
  StagedCalls calls[kOpCount];
};

constexpr size_t kModules = std::size(kStagedModules);

State& state_of(size_t module) {
  static State states[kModules];
  return states[module];
}

// The number of the module whose op runs.
size_t running = 0;
State& state() { return state_of(running); }

Status complain(const char* what) {
  std::fprintf(stderr, "%s: %s\n", kStagedModules[running], what);
  return fail(WEIR_ERR_INTERNAL, "%s", what);
}

// Prints the module's error message: the tests see only the status.
Status checked(Status status, const char* what) {
  if (!status.ok()) std::fprintf(stderr, "%s: %s: %s\n", kStagedModules[running], what, state().module->last_error());
  return status;
}

Status grow(Block& block, uint64_t bytes) {
  if (block.bytes >= bytes) return {};
  if (block.data != nullptr) WEIR_TRY(checked(state().module->release(block.data), "release"));
  block = {};
  const uint64_t rounded = (bytes * 2 + kAlignment) / kAlignment * kAlignment;
  WEIR_TRY(checked(state().module->allocate(rounded, &block.data), "allocate"));
  block.bytes = rounded;
  return {};
}

// The arrays of one call.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    if (!state().separate) return;
    for (const Item& item : items_) {
      if (item.device != nullptr) (void)state().module->release(item.device);
    }
  }

  template <class T>
  void in(const char* name, T*& field, size_t n) {
    add(name, field, n, false);
  }
  // Arrays that are only written are copied in too: with the host's contents, so that elements that are not written are
  // detected.
  template <class T>
  void out(const char* name, T*& field, size_t n) {
    add(name, field, n, true);
  }

  void needs_format(KvFormat format) {
    if (status_.ok() && (state().module->backend->kv_formats & format_bit(format)) == 0)
      status_ = fail(WEIR_ERR_UNSUPPORTED, "pages of %s", kv_format_name(format));
  }

  // A matrix in the device's layout.
  void weight(const char* name, Weight& w) {
    if (w.data == nullptr) return;
    const Status status = state().module->check_weight(w);
    if (!status.ok()) {
      if (status_.ok()) status_ = status;
      return;
    }
    Item item = {name, nullptr, w.n_rows * w.row_bytes, false, 0, nullptr, {}};
    item.packed.assign(item.bytes, kFill);
    repack(w, 0, w.n_rows, item.packed.data());
    fields_.push_back({&w.data, items_.size()});
    items_.push_back(std::move(item));
  }

  // Copies everything to the device; afterwards the fields point to device memory.
  Status upload() {
    WEIR_TRY(status_);
    WEIR_TRY(state().separate ? upload_separate() : upload_block());
    for (const Field& f : fields_) std::memcpy(f.address, &items_[f.item].device, sizeof(void*));
    return {};
  }

  Status download() {
    if (!state().separate)
      WEIR_TRY(checked(state().module->copy_out(image_.data(), state().arrays.data, image_.size()), "copy back"));
    for (Item& item : items_) {
      if (state().separate && item.bytes > 0) {
        item.packed.resize(item.bytes);
        WEIR_TRY(checked(state().module->copy_out(item.packed.data(), item.device, item.bytes), item.name));
      }
      const uint8_t* got = state().separate ? item.packed.data() : image_.data() + item.offset;
      WEIR_TRY(take(item, got));
    }
    return {};
  }

 private:
  struct Item {
    const char* name;
    void* host;  // null: packed
    size_t bytes;
    bool written;
    size_t offset;
    void* device;
    std::vector<uint8_t> packed;
    const void* content() const { return host != nullptr ? host : packed.data(); }
  };
  struct Field {
    void* address;  // of a pointer in the arguments
    size_t item;
  };

  template <class T>
  void add(const char* name, T*& field, size_t n, bool written) {
    if (field == nullptr) return;
    void* host = const_cast<void*>(static_cast<const void*>(field));
    const size_t bytes = n * sizeof(T);
    // In-place ops name an array twice.
    size_t i = 0;
    while (i < items_.size() && items_[i].host != host) ++i;
    if (i == items_.size()) items_.push_back({name, host, bytes, written, 0, nullptr, {}});
    items_[i].bytes = std::max(items_[i].bytes, bytes);
    items_[i].written = items_[i].written || written;
    fields_.push_back({&field, i});
  }

  Status upload_block() {
    size_t end = 0;
    for (Item& item : items_) {
      item.offset = end;
      end = (end + item.bytes + kGuardBytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    image_.assign(end, kFill);
    for (const Item& item : items_) {
      if (item.bytes > 0) std::memcpy(image_.data() + item.offset, item.content(), item.bytes);
    }
    WEIR_TRY(grow(state().arrays, end));
    for (Item& item : items_) item.device = static_cast<uint8_t*>(state().arrays.data) + item.offset;
    return checked(state().module->copy_in(state().arrays.data, image_.data(), end), "copy to the device");
  }

  Status upload_separate() {
    for (Item& item : items_) {
      WEIR_TRY(checked(state().module->allocate(std::max<uint64_t>(item.bytes, 1), &item.device), item.name));
      if (item.bytes > 0)
        WEIR_TRY(checked(state().module->copy_in(item.device, item.content(), item.bytes), item.name));
    }
    return {};
  }

  // Checks and takes one array that was copied back. Inputs must be unchanged. Packed matrices are compared only in the
  // block, where their original still is.
  Status take(const Item& item, const uint8_t* got) {
    if (item.written) {
      if (item.bytes > 0) std::memcpy(item.host, got, item.bytes);
    } else if (item.bytes > 0 && (item.host != nullptr || !state().separate) &&
               std::memcmp(item.content(), got, item.bytes) != 0) {
      return complain((std::string("an op wrote its input ") + item.name).c_str());
    }
    if (state().separate) return {};
    for (size_t i = 0; i < kGuardBytes; ++i) {
      if (got[item.bytes + i] != kFill)
        return complain((std::string("an op wrote behind the end of ") + item.name).c_str());
    }
    return {};
  }

  std::vector<Item> items_;
  std::vector<Field> fields_;
  std::vector<uint8_t> image_;
  Status status_;  // of the weights
};

// Scratch memory of exactly the size that the caller has, filled with NaN.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (own_ != nullptr) (void)state().module->release(own_);
  }
  Status prepare(uint64_t bytes) {
    bytes_ = bytes;
    guard_ = state().separate ? 0 : kScratchGuardBytes;
    if (state().separate) {
      WEIR_TRY(checked(state().module->allocate(std::max<uint64_t>(bytes, 1), &own_), "scratch"));
    } else {
      WEIR_TRY(grow(state().scratch, bytes + guard_));
    }
    return bytes + guard_ == 0 ? Status() : checked(state().module->fill(data(), kFill, bytes + guard_), "scratch");
  }
  std::byte* data() const { return static_cast<std::byte*>(own_ != nullptr ? own_ : state().scratch.data); }
  Status check() const {
    std::vector<uint8_t> guard(guard_);
    if (guard_ > 0) WEIR_TRY(checked(state().module->copy_out(guard.data(), data() + bytes_, guard_), "scratch"));
    const bool whole = std::all_of(guard.begin(), guard.end(), [](uint8_t x) { return x == kFill; });
    return whole ? Status() : complain("an op wrote behind the end of its scratch memory");
  }

 private:
  void* own_ = nullptr;
  uint64_t bytes_ = 0;
  size_t guard_ = 0;
};

// --- the arrays of each op, as ops.h states their shapes -------------------------------------------------------------

void stage_kv(Staging& s, KvView& kv, bool writes_pages, bool writes_digests) {
  const size_t n_rows = size_t{kv.n_kv_heads} * kv.capacity;
  size_t n_slots = 0;  // slots in use; a table's other rows may hold anything
  for (size_t head = 0; head < kv.n_kv_heads; ++head) {
    for (size_t row = 0; row < std::min(kv.n_pages[head], kv.capacity); ++row)
      n_slots = std::max<size_t>(n_slots, kv.slots[head * kv.capacity + row] + size_t{1});
  }
  const size_t n_digests = n_slots * digest_elements(kv.digest, kv.head_dim);
  writes_pages ? s.out("kv.pool", kv.pool, n_slots * kv.page_elements())
               : s.in("kv.pool", kv.pool, n_slots * kv.page_elements());
  writes_digests ? s.out("kv.digests", kv.digests, n_digests) : s.in("kv.digests", kv.digests, n_digests);
  s.needs_format(kv.format);
  const size_t n_open = kv.open_half + kv.n_kv_heads * kv_page_bytes(KvFormat::kBf16, kv.head_dim) / sizeof(uint16_t);
  writes_pages ? s.out("kv.open", kv.open, n_open) : s.in("kv.open", kv.open, n_open);
  s.in("kv.slots", kv.slots, n_rows);
  s.in("kv.first_pos", kv.first_pos, n_rows);
  s.in("kv.len", kv.len, n_rows);
  s.in("kv.n_pages", kv.n_pages, kv.n_kv_heads);
}

void stage(Staging& s, EmbedArgs& a) {
  s.out("x", a.x, size_t{a.n_tok} * a.table.n_cols);
  s.weight("table", a.table);
  s.in("tokens", a.tokens, a.n_tok);
}

void stage(Staging& s, RmsNormArgs& a) {
  s.out("y", a.y, size_t{a.n_tok} * a.n);
  s.in("x", a.x, size_t{a.n_tok} * a.n);
  s.in("weight", a.weight, a.n);
}

void stage(Staging& s, MatmulArgs& a) {
  const size_t n_cols = a.part[0].w.n_cols;
  for (uint32_t i = 0; i < a.n_parts; ++i) {
    const uint32_t n_rows = a.part[i].w.n_rows;
    s.weight("w", a.part[i].w);
    s.in("bias", a.part[i].bias, n_rows);
    s.out("y", a.part[i].y, size_t{a.n_tok} * n_rows);
  }
  s.in("x", a.x, a.n_tok * n_cols);
}

void stage(Staging& s, GluMatmulArgs& a) {
  s.out("y", a.y, size_t{a.n_tok} * a.gate.n_rows);
  s.in("x", a.x, size_t{a.n_tok} * a.gate.n_cols);
  s.weight("gate", a.gate);
  s.weight("up", a.up);
  s.in("gate_bias", a.gate_bias, a.gate.n_rows);
  s.in("up_bias", a.up_bias, a.up.n_rows);
}

void stage(Staging& s, ExpertsArgs& a) {
  const size_t d = a.d_model();
  s.out("y", a.y, a.n_tok * d);
  s.in("x", a.x, a.n_tok * d);
  s.in("router", a.router.w, a.router.n_experts * d);
  s.in("router_bias", a.router.bias, a.router.n_experts);
  s.in("choice_bias", a.router.choice_bias, a.router.n_experts);
  s.in("shared_router", a.shared_router, d);
  for (ExpertStack* stack : {&a.gate, &a.up, &a.down}) {
    s.weight("experts", stack->w);
    s.in("experts' bias", stack->bias, stack->w.n_rows);
  }
  for (Weight* w : {&a.shared_gate, &a.shared_up, &a.shared_down}) s.weight("shared expert", *w);
}

void stage(Staging& s, RopeAppendArgs& a) {
  const size_t d = a.kv.head_dim, n_q = size_t{a.n_tok} * a.n_heads * d, n_k = size_t{a.n_tok} * a.kv.n_kv_heads * d;
  s.out("q", a.q, n_q);
  s.out("q_sink", a.q_sink, n_q);
  s.out("k", a.k, n_k);
  s.in("v", a.v, n_k);
  s.in("q_norm", a.q_norm, d);
  s.in("k_norm", a.k_norm, d);
  s.in("cos_sin", a.cos_sin, size_t{a.n_tok} * a.rope_dim);
  s.in("cos_sin_sink", a.cos_sin_sink, size_t{a.n_tok} * a.rope_dim);
  s.in("append_row", a.append_row, a.kv.n_kv_heads);
  stage_kv(s, a.kv, true, a.kv.digest == DigestKind::kMinMax);
}

void stage(Staging& s, AttnPagedArgs& a) {
  const size_t n = size_t{a.n_tok} * a.n_heads * a.kv.head_dim;
  const size_t n_lists = a.list_per_head ? a.n_heads : a.kv.n_kv_heads;
  s.out("out", a.out, n);
  s.in("q", a.q, n);
  s.in("q_sink", a.q_sink, n);
  s.in("select", a.select, n_lists * a.kv.capacity);
  s.in("n_select", a.n_select, n_lists);
  s.out("page_mass", a.page_mass, size_t{a.n_heads} * a.kv.capacity);
  s.out("lse", a.lse, size_t{a.n_tok} * a.n_heads);
  s.in("sinks", a.sinks, a.n_heads);
  s.in("head_windows", a.head_windows, a.kv.n_kv_heads);
  s.in("k_rows", a.k_rows, size_t{a.n_tok} * a.kv.n_kv_heads * a.kv.head_dim);
  s.in("v_rows", a.v_rows, size_t{a.n_tok} * a.kv.n_kv_heads * a.kv.head_dim);
  stage_kv(s, a.kv, false, false);
}

void stage(Staging& s, PageDigestArgs& a) {
  s.in("first_row", a.first_row, a.kv.n_kv_heads);
  stage_kv(s, a.kv, false, true);
}

void stage(Staging& s, PageScoreArgs& a) {
  s.out("score", a.score, size_t{a.n_heads} * a.kv.capacity);
  s.in("q", a.q, size_t{a.n_heads} * a.kv.head_dim);
  stage_kv(s, a.kv, false, false);
}

void stage(Staging& s, PageSelectArgs& a) {
  const size_t n_rows = size_t{a.n_kv_heads} * a.capacity;
  const size_t n_lists = a.agg == AggMode::kQHead ? a.n_heads : a.n_kv_heads;
  s.in("score", a.score, size_t{a.n_heads} * a.capacity);
  s.out("group_score", a.group_score, n_rows);
  s.out("select", a.select, n_lists * a.capacity);
  s.out("n_select", a.n_select, n_lists);
  s.in("flags", a.flags, n_rows);
  s.in("n_pages", a.n_pages, a.n_kv_heads);
}

void stage(Staging& s, PageAccumulateArgs& a) {
  const size_t n_rows = size_t{a.n_kv_heads} * a.capacity;
  s.in("weight", a.weight, size_t{a.n_heads} * a.capacity);
  s.out("score", a.score, n_rows);
  s.in("len", a.len, n_rows);
  s.in("n_pages", a.n_pages, a.n_kv_heads);
  s.in("flags", a.flags, n_rows);
  s.out("mark", a.mark, n_rows);
  s.in("n_tokens", a.n_tokens, 1);
  s.in("first_pos", a.first_pos, n_rows);
}

void stage(Staging& s, TokenMassArgs& a) {
  s.out("mass", a.mass, size_t{a.kv.n_kv_heads} * a.kv.capacity * kPageTokens);
  s.in("q", a.q, size_t{a.n_rows} * a.n_heads * a.kv.head_dim);
  s.in("lse", a.lse, size_t{a.n_rows} * a.n_heads);
  stage_kv(s, a.kv, false, false);
}

void stage(Staging& s, PageStampArgs& a) {
  const size_t n_rows = size_t{a.n_kv_heads} * a.capacity;
  s.in("weight", a.weight, size_t{a.n_heads} * a.capacity);
  s.in("select", a.select, n_rows);
  s.in("n_select", a.n_select, a.n_kv_heads);
  s.out("stamp", a.stamp, n_rows);
  s.out("last_score", a.last_score, n_rows);
  if (a.gap != nullptr) s.out("gap", a.gap, n_rows);
  s.in("flags", a.flags, n_rows);
  s.in("n_pages", a.n_pages, a.n_kv_heads);
}

void stage(Staging& s, AttnStampArgs& a) {
  stage(s, a.attn);
  stage(s, a.stamp);
}

void stage(Staging& s, AttnProgressiveArgs& a) {
  const size_t n_rows = size_t{a.attn.kv.n_kv_heads} * a.attn.kv.capacity;
  stage(s, a.attn);
  s.out("select", a.select, n_rows);
  s.out("n_select", a.n_select, a.attn.kv.n_kv_heads);
  s.in("stop.rank", a.stop.rank, n_rows);
  s.in("stop.flags", a.stop.flags, n_rows);
  s.in("stop.bound", a.stop.bound, size_t{a.attn.n_heads} * a.attn.kv.capacity);
}

void stage_history(Staging& s, HistoryView& v, uint32_t n_heads, const KvView& kv) {
  const size_t n_tables = size_t{n_heads} * kHistoryKinds;
  s.out("history.entries", v.entries, n_tables * v.capacity);
  s.out("history.lists", v.lists, n_tables * v.list_capacity);
  s.out("history.heads", v.heads, n_heads);
  s.out("history.sums", v.sums, size_t{kv.n_kv_heads} * 2 * kv.head_dim);
  s.out("history.n_summed", v.n_summed, kv.n_kv_heads);
  s.out("history.n_known", v.n_known, kv.n_kv_heads);
  s.out("history.fill", v.fill, kv.n_kv_heads);
}

void stage(Staging& s, AttnHistoryArgs& a) {
  stage(s, a.attn);
  stage_history(s, a.history, a.attn.n_heads, a.attn.kv);
  s.in("flags", a.flags, size_t{a.attn.kv.n_kv_heads} * a.attn.kv.capacity);
  s.out("n_read", a.n_read, a.attn.kv.n_kv_heads);
  s.out("chosen", a.chosen, size_t{a.attn.n_heads} * a.history.capacity);
  s.out("n_chosen", a.n_chosen, a.attn.n_heads);
}

void stage(Staging& s, HistoryBeginArgs& a) {
  s.in("q", a.q, size_t{a.n_rows} * a.n_heads * a.kv.head_dim);
  stage_history(s, a.history, a.n_heads, a.kv);
  stage_kv(s, a.kv, false, false);
}

void stage(Staging& s, SoftCapArgs& a) { s.out("x", a.x, a.n); }

void stage(Staging& s, TemperArgs& a) {
  s.out("q", a.q, size_t{a.n_tok} * a.width);
  s.in("pos_at", a.pos_at, 1);
}

void stage(Staging& s, HeadGateArgs& a) {
  const size_t n = size_t{a.n_tok} * a.n_heads * a.head_dim;
  s.out("y", a.y, n);
  s.in("qg", a.qg, 2 * n);
}

// State of a layer, both copies: an op writes the one that is not current.
void stage(Staging& s, LayerState& state, const ConvArgs& conv, size_t n_sums) {
  for (int i = 0; i < 2; ++i) {
    s.out("rows", state.rows[i], size_t{conv.n_taps - 1} * conv.n_channels);
    s.out("sums", state.sums[i], n_sums);
  }
  s.in("current", state.current, 1);
}

void stage(Staging& s, ConvArgs& conv) {
  s.in("weight", conv.weight, size_t{conv.n_channels} * conv.n_taps);
  s.in("bias", conv.bias, conv.n_channels);
}

void stage(Staging& s, DeltaNetArgs& a) {
  const size_t n = size_t{a.n_tok} * a.n_heads * a.value_dim, last = a.n_heads - 1;
  const size_t n_gates =
      (a.n_tok - size_t{1}) * a.gate_stride + last / a.gate_group * a.group_stride + last % a.gate_group + 1;
  s.out("y", a.y, n);
  s.out("m", a.m, size_t{a.n_tok} * a.conv.n_channels);
  s.in("z", a.z, n);
  s.in("beta", a.beta, n_gates);
  s.in("alpha", a.alpha, n_gates);
  stage(s, a.conv);
  s.in("a", a.a, a.n_heads);
  s.in("dt_bias", a.dt_bias, a.n_heads);
  s.in("norm", a.norm, a.value_dim);
  stage(s, a.state, a.conv, size_t{a.n_heads} * a.key_dim * a.value_dim);
}

void stage(Staging& s, Mamba2Args& a) {
  const size_t inner = size_t{a.n_heads} * a.value_dim;
  s.out("y", a.y, a.n_tok * inner);
  s.out("x", a.x, a.n_tok * (inner + a.conv.n_channels + a.n_heads));
  stage(s, a.conv);
  s.in("a", a.a, a.n_heads);
  s.in("dt_bias", a.dt_bias, a.n_heads);
  s.in("skip", a.skip, a.n_heads);
  s.in("norm", a.norm, inner);
  stage(s, a.state, a.conv, inner * a.key_dim);
}

void stage(Staging& s, ShortConvArgs& a) {
  s.out("y", a.y, size_t{a.n_tok} * a.conv.n_channels);
  s.out("x", a.x, size_t{a.n_tok} * 3 * a.conv.n_channels);
  stage(s, a.conv);
  stage(s, a.state, a.conv, 0);
}

// --- the table -------------------------------------------------------------------------------------------------------

template <class Args>
Status run_on_device(const char* name, Status (*op)(OpContext&, const Args&), const OpContext& host_cx, Args a) {
  if (op == nullptr) return fail(WEIR_ERR_UNSUPPORTED, "%s is not in the table", name);
  Staging staging;
  stage(staging, a);
  WEIR_TRY(staging.upload());
  Scratch scratch;
  WEIR_TRY(scratch.prepare(host_cx.scratch_bytes));
  OpContext cx = host_cx;
  cx.scratch = scratch.data();
  cx.stream = state().module->stream();
  const Status status = op(cx, a);
  if (status.code() == WEIR_ERR_UNSUPPORTED) return status;
  WEIR_TRY(checked(status, name));
  WEIR_TRY(staging.download());
  return scratch.check();
}

template <class Args>
Status run_staged(size_t op, Status (*device_op)(OpContext&, const Args&), Status (*reference)(OpContext&, const Args&),
                  OpContext& cx, const Args& a) {
  const Status status =
      device_op == nullptr ? Status(WEIR_ERR_UNSUPPORTED) : run_on_device(kOpNames[op], device_op, cx, a);
  StagedCalls& calls = state().calls[op];
  if (status.code() != WEIR_ERR_UNSUPPORTED) {
    ++calls.on_device;
    return status;
  }
  ++calls.unsupported;
  // The reference may need scratch memory where the device's ops do not.
  static std::vector<double> scratch(size_t{1} << 17);
  OpContext own = cx;
  if (cx.scratch_bytes < scratch.size() * sizeof(double)) {
    own.scratch = reinterpret_cast<std::byte*>(scratch.data());
    own.scratch_bytes = scratch.size() * sizeof(double);
  }
  return reference(own, a);
}

#define WEIR_OP(name, Args)                                                                   \
  template <size_t kModule>                                                                   \
  Status staged_##name(OpContext& cx, const Args& a) {                                        \
    running = kModule;                                                                        \
    return run_staged<Args>(kOp_##name, state().module->backend->ops.name, ref::name, cx, a); \
  }
#include "ops/ops.inc"
#undef WEIR_OP

// The folder lib/ with the module, beside one of the folders above the program: for build/tests/<area>/ and bin/<area>/
// it is two levels up.
std::string folder_of(const std::string& file) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (int level = 0; level < 3 && folder.has_relative_path(); ++level, folder = folder.parent_path()) {
    if (fs::exists(folder / "lib" / file, error)) return (folder / "lib").string();
  }
  return {};
}

template <size_t kModule>
const Backend* open_staged_backend() {
  const std::string name = std::string("weir_") + kStagedModules[kModule], folder = folder_of("lib" + name + ".so");
  if (folder.empty()) return nullptr;
  State& s = state_of(kModule);
  // If a module has a choice, it takes the device that WEIR_TEST_VULKAN_DEVICE names.
  if (!load_device_module(folder.c_str(), name.c_str(), std::getenv("WEIR_TEST_VULKAN_DEVICE"), s.module).ok()) {
    std::printf("no tests on a GPU: %s\n", last_error_text());
    s.module = nullptr;
    return nullptr;
  }
  s.separate = std::getenv("WEIR_STAGE_SEPARATE") != nullptr;
  s.backend = *s.module->backend;
  s.backend.name = kStagedModules[kModule];
#define WEIR_OP(name, Args) s.backend.ops.name = staged_##name<kModule>;
#include "ops/ops.inc"
#undef WEIR_OP
  std::printf("tests on a GPU: %s\n", s.backend.target());
  return &s.backend;
}

template <size_t... kModule>
const Backend* find_staged_backend(const char* module, std::index_sequence<kModule...>) {
  static const Backend* const backends[] = {open_staged_backend<kModule>()...};
  const Backend* found = nullptr;
  ((std::strcmp(kStagedModules[kModule], module) == 0 ? void(found = backends[kModule]) : void()), ...);
  return found;
}

// Calls of an op on a module, for its report. False if the op is the subject and the device ran none.
bool report_calls(size_t module, size_t op, bool is_subject) {
  const StagedCalls& calls = state_of(module).calls[op];
  if (calls.on_device + calls.unsupported == 0) return true;
  std::printf("on %s: %s: %llu calls, %llu unsupported\n", kStagedModules[module], kOpNames[op],
              static_cast<unsigned long long>(calls.on_device + calls.unsupported),
              static_cast<unsigned long long>(calls.unsupported));
  if (!is_subject || calls.on_device > 0) return true;
  std::fprintf(stderr, "%s: %s never ran on the device\n", kStagedModules[module], kOpNames[op]);
  return false;
}

}  // namespace

const Backend* staged_backend(const char* module) {
  return find_staged_backend(module, std::make_index_sequence<kModules>());
}

StagedCalls staged_calls() {
  StagedCalls sum;
  for (size_t module = 0; module < kModules; ++module) {
    for (const StagedCalls& calls : state_of(module).calls) {
      sum.on_device += calls.on_device;
      sum.unsupported += calls.unsupported;
    }
  }
  return sum;
}

bool report_staged_calls(const char* group) {
  bool covered = true;
  for (size_t op = 0; op < kOpCount; ++op) {
    const bool is_subject = std::string(group).rfind(std::string("ops/") + kOpNames[op], 0) == 0;
    for (size_t module = 0; module < kModules; ++module) covered = report_calls(module, op, is_subject) && covered;
  }
  return covered;
}

}  // namespace weir::test
