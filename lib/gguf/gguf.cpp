// The container: header, metadata, tensor table, and where each tensor's bytes lie.
#include "gguf/gguf.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "gguf/foreign.h"
#include "gguf/reader.h"
#include "gguf/tensor_types.h"

namespace weir {
namespace {

using std::string_view;

constexpr uint32_t kOldestVersion = 2, kNewestVersion = 3;
constexpr uint32_t kDefaultAlignment = 32;
constexpr uint32_t kMaxAlignment = 1u << 20;  // far above any real file's; keeps padding sums small
constexpr uint32_t kMaxDims = 4;
// The smallest possible entries: with them the size of the file bounds the counts in the header.
constexpr uint64_t kMinValueBytes = 8 + 1 + 4 + 1;           // key length, key, type, u8
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name length, name, n_dims, one dim, type, offset
// Entries reserved at once; beyond, memory grows only as entries are really there.
constexpr uint64_t kMaxReserve = 1u << 14;

unsigned long long ull(uint64_t n) { return n; }

struct Header {
  uint32_t version = 0;
  uint64_t n_tensors = 0, n_values = 0;
};

Status check_count(const char* what, uint64_t n, uint64_t min_bytes, uint64_t left) {
  if (n > left / min_bytes || n > std::numeric_limits<uint32_t>::max()) {
    return fail(WEIR_ERR_FORMAT, "the header announces %llu %s, more than the remaining %llu bytes can hold", ull(n),
                what, ull(left));
  }
  return {};
}

Status read_header(ByteReader& in, Header& out) {
  const uint8_t* magic = nullptr;
  WEIR_TRY(in.take("the magic bytes", 4, magic));
  if (string_view(reinterpret_cast<const char*>(magic), 4) != "GGUF") {
    const char* what = foreign_file({magic, static_cast<size_t>(in.left()) + 4});
    return fail(WEIR_ERR_FORMAT, "not a GGUF file: it starts with the bytes %02x %02x %02x %02x%s%s", magic[0],
                magic[1], magic[2], magic[3], what == nullptr ? "" : "; it is ", what == nullptr ? "" : what);
  }
  WEIR_TRY(in.number("the version", out.version));
  if (out.version < kOldestVersion || out.version > kNewestVersion) {
    const uint32_t swapped = __builtin_bswap32(out.version);
    if (swapped >= 1 && swapped <= kNewestVersion) {
      return fail(WEIR_ERR_UNSUPPORTED, "a big-endian GGUF file (version %u); only little-endian files can be read",
                  swapped);
    }
    return fail(WEIR_ERR_UNSUPPORTED, "GGUF version %u; versions %u and %u can be read", out.version, kOldestVersion,
                kNewestVersion);
  }
  WEIR_TRY(in.number("the number of tensors", out.n_tensors));
  WEIR_TRY(in.number("the number of metadata keys", out.n_values));
  WEIR_TRY(check_count("metadata keys", out.n_values, kMinValueBytes, in.left()));
  return check_count("tensors", out.n_tensors, kMinTensorBytes, in.left() - out.n_values * kMinValueBytes);
}

// ---- metadata ----

Status read_type(ByteReader& in, const char* what, GgufType& out) {
  uint32_t number = 0;
  WEIR_TRY(in.number(what, number));
  if (number > static_cast<uint32_t>(GgufType::kF64))
    return fail(WEIR_ERR_FORMAT, "%s is %u, which no version knows", what, number);
  out = static_cast<GgufType>(number);
  return {};
}

template <class T>
Status read_scalar(ByteReader& in, uint64_t& out) {
  T value = 0;
  WEIR_TRY(in.number("its value", value));
  out = static_cast<uint64_t>(value);  // sign extended for signed T
  return {};
}

Status check_bools(const uint8_t* data, uint64_t n, OpenProgress& progress) {
  constexpr uint64_t kBoolsPerStep = 64;  // they take about as long as one string
  for (uint64_t i = 0; i < n; ++i) {
    if (data[i] > 1) return fail(WEIR_ERR_FORMAT, "boolean %llu is %u; only 0 and 1 are valid", ull(i), data[i]);
    if (i % kBoolsPerStep == kBoolsPerStep - 1) WEIR_TRY(progress.step());
  }
  return {};
}

Status read_strings(ByteReader& in, uint64_t count, OpenProgress& progress) {
  if (count > in.left() / sizeof(uint64_t)) {
    return fail(WEIR_ERR_FORMAT, "an array of %llu strings does not fit in the remaining %llu bytes", ull(count),
                ull(in.left()));
  }
  for (uint64_t i = 0; i < count; ++i) {
    string_view text;
    const uint64_t at = in.at();
    const Status status = in.string("a string of the array", text);
    if (!status.ok())
      return fail(status.code(), "string %llu of %llu at byte %llu: %s", ull(i), ull(count), ull(at),
                  last_error_text());
    WEIR_TRY(progress.step());
  }
  return {};
}

Status read_array(ByteReader& in, OpenProgress& progress, GgufValue& out) {
  WEIR_TRY(read_type(in, "its element type", out.element_type));
  if (out.element_type == GgufType::kArray) return fail(WEIR_ERR_UNSUPPORTED, "arrays of arrays cannot be read");
  WEIR_TRY(in.number("its number of elements", out.count));
  const uint64_t start = in.at();
  if (out.element_type == GgufType::kString) {
    WEIR_TRY(in.take("its elements", 0, out.data));
    WEIR_TRY(read_strings(in, out.count, progress));
    out.data_bytes = in.at() - start;
    return {};
  }
  if (__builtin_mul_overflow(out.count, uint64_t{gguf_type_bytes(out.element_type)}, &out.data_bytes)) {
    return fail(WEIR_ERR_FORMAT, "an array of %llu elements does not fit in the remaining %llu bytes", ull(out.count),
                ull(in.left()));
  }
  WEIR_TRY(in.take("its elements", out.data_bytes, out.data));
  return out.element_type == GgufType::kBool ? check_bools(out.data, out.count, progress) : Status();
}

Status read_value(ByteReader& in, OpenProgress& progress, GgufValue& out) {
  string_view key;
  WEIR_TRY(in.string("the key", key));
  WEIR_TRY(check_name("the key", key, kGgufMaxKeyBytes));
  out.key = key;
  WEIR_TRY(read_type(in, "its value type", out.type));
  switch (out.type) {
    case GgufType::kU8:
      return read_scalar<uint8_t>(in, out.raw);
    case GgufType::kI8:
      return read_scalar<int8_t>(in, out.raw);
    case GgufType::kU16:
      return read_scalar<uint16_t>(in, out.raw);
    case GgufType::kI16:
      return read_scalar<int16_t>(in, out.raw);
    case GgufType::kU32:
    case GgufType::kF32:
      return read_scalar<uint32_t>(in, out.raw);
    case GgufType::kI32:
      return read_scalar<int32_t>(in, out.raw);
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return read_scalar<uint64_t>(in, out.raw);
    case GgufType::kString:
      return in.string("its value", out.text);
    case GgufType::kArray:
      return read_array(in, progress, out);
    case GgufType::kBool:
      break;
  }
  const uint8_t* data = nullptr;
  WEIR_TRY(in.take("its value", 1, data));
  out.raw = *data;
  return check_bools(data, 1, progress);
}

// ---- tensors ----

Status unknown_type(uint32_t type_id) {
  const GivenUpType* type = find_given_up_type(type_id);
  if (type == nullptr) {
    return fail(WEIR_ERR_UNSUPPORTED, "unknown tensor type %u; the file is newer than this version, or damaged",
                type_id);
  }
  TensorType instead = {};
  (void)find_tensor_type(type->instead_id, instead);
  return fail(WEIR_ERR_UNSUPPORTED, "unknown tensor type %u: %s, which the format has given up; get the model as %s",
              type_id, type->name, instead.name);
}

// Reads one entry of the table; file_offset is still relative to the data section. With `any_type` a type that is not
// known has no bytes.
Status read_tensor(ByteReader& in, bool any_type, GgufTensor& out) {
  string_view name;
  WEIR_TRY(in.string("the name", name));
  WEIR_TRY(check_name("the name", name, kGgufMaxTensorNameBytes));
  out.name = name;
  WEIR_TRY(in.number("its number of dimensions", out.n_dims));
  if (out.n_dims < 1 || out.n_dims > kMaxDims)
    return fail(WEIR_ERR_FORMAT, "%u dimensions; 1 to %u are possible", out.n_dims, kMaxDims);
  out.n_weights = 1;
  for (uint32_t i = out.n_dims; i-- > 0;) {  // the file stores the fastest axis first
    WEIR_TRY(in.number("its dimensions", out.dims[i]));
    if (out.dims[i] == 0) return fail(WEIR_ERR_FORMAT, "dimension %u is 0", i);
    if (__builtin_mul_overflow(out.n_weights, out.dims[i], &out.n_weights)) {
      return fail(WEIR_ERR_FORMAT, "the product of its dimensions exceeds 64 bits");
    }
  }
  WEIR_TRY(in.number("its type", out.type_id));
  TensorType type;
  if (!find_tensor_type(out.type_id, type)) {
    if (!any_type) return unknown_type(out.type_id);
    const GivenUpType* given_up = find_given_up_type(out.type_id);
    type = {given_up == nullptr ? "unknown" : given_up->name, 1, 0};
  }
  out.type_name = type.name;
  const uint64_t row = out.dims[out.n_dims - 1];
  if (row % type.block_weights != 0) {
    return fail(WEIR_ERR_FORMAT, "rows of %llu weights are not whole blocks of %u (%s)", ull(row), type.block_weights,
                type.name);
  }
  if (__builtin_mul_overflow(out.n_weights / type.block_weights, uint64_t{type.block_bytes}, &out.bytes)) {
    return fail(WEIR_ERR_FORMAT, "its size in bytes exceeds 64 bits");
  }
  return in.number("its offset", out.file_offset);
}

Status read_alignment(const GgufFile& file, uint32_t& out) {
  constexpr string_view kKey = "general.alignment";
  WEIR_TRY(file.get_u32(kKey, out, kDefaultAlignment));
  if (out < 8 || out > kMaxAlignment || (out & (out - 1)) != 0) {
    return fail(WEIR_ERR_FORMAT, "%s: %u is not a power of two from 8 to %u", kKey.data(), out, kMaxAlignment);
  }
  return {};
}

// Turns the offset inside the data section, which begins at `section`, into an offset in the file.
Status place_tensor(std::span<const uint8_t> bytes, uint64_t section, uint32_t alignment, GgufTensor& out) {
  const uint64_t offset = out.file_offset;
  if (offset % alignment != 0) {
    return fail(WEIR_ERR_FORMAT, "%.*s: offset %llu is not a multiple of the alignment %u", shown_bytes(out.name),
                out.name.data(), ull(offset), alignment);
  }
  uint64_t end = 0;
  if (__builtin_add_overflow(section, offset, &out.file_offset) ||
      __builtin_add_overflow(out.file_offset, out.bytes, &end) || end > bytes.size()) {
    return fail(
        WEIR_ERR_FORMAT,
        "%.*s: %llu bytes at offset %llu of the data section (byte %llu) lie beyond the end of the file, %zu bytes",
        shown_bytes(out.name), out.name.data(), ull(out.bytes), ull(offset), ull(section), bytes.size());
  }
  out.data = bytes.data() + out.file_offset;
  return {};
}

// Fills `index` with the numbers of `items` in the order of their names; two equal names are an error.
template <class Item>
Status build_index(const char* what, std::span<const uint8_t> bytes, const std::pmr::vector<Item>& items,
                   string_view Item::*name, OpenProgress& progress, std::pmr::vector<uint32_t>& index) {
  index.resize(items.size());
  for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<uint32_t>(i);
  WEIR_TRY(progress.sort(index.begin(), index.end(),
                         [&](uint32_t a, uint32_t b) { return items[a].*name < items[b].*name; }));
  const auto place = [&](uint32_t i) {
    return ull(static_cast<uint64_t>(reinterpret_cast<const uint8_t*>((items[i].*name).data()) - bytes.data()));
  };
  for (size_t i = 1; i < index.size(); ++i) {
    const string_view text = items[index[i]].*name;
    if (text != items[index[i - 1]].*name) continue;
    const auto [first, second] = std::minmax(index[i - 1], index[i]);
    return fail(WEIR_ERR_FORMAT, "%.*s: there are two %s of this name, at bytes %llu and %llu", shown_bytes(text),
                text.data(), what, place(first), place(second));
  }
  return {};
}

}  // namespace

const char* gguf_type_name(GgufType type) {
  static constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
  const auto number = static_cast<uint32_t>(type);
  return number < std::size(kNames) ? kNames[number] : "unknown";
}

uint32_t gguf_type_bytes(GgufType type) {
  static constexpr uint8_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  const auto number = static_cast<uint32_t>(type);
  return number < std::size(kBytes) ? kBytes[number] : 0;
}

std::string_view GgufStrings::next() {
  uint64_t n = 0;
  std::memcpy(&n, at_, sizeof(n));
  const std::string_view text(reinterpret_cast<const char*>(at_) + sizeof(n), static_cast<size_t>(n));
  at_ += sizeof(n) + n;
  --left_;
  return text;
}

Status GgufFile::read_all(std::span<const uint8_t> bytes, OpenProgress& progress, bool any_type) {
  bytes_ = bytes;
  progress.set_total(bytes.size());
  WEIR_TRY(progress.repeat());
  ByteReader in(bytes);
  Header header;
  WEIR_TRY(read_header(in, header));
  version_ = header.version;
  values_.reserve(static_cast<size_t>(std::min(header.n_values, kMaxReserve)));
  for (uint64_t i = 0; i < header.n_values; ++i) {
    const uint64_t at = in.at();
    GgufValue value;
    const Status status = read_value(in, progress, value);
    if (status.code() == WEIR_ERR_CANCELLED) return status;
    if (!status.ok()) return in_context(status, value.key, "metadata key", at);
    values_.push_back(value);
    WEIR_TRY(progress.step());
  }
  WEIR_TRY(build_index("metadata keys", bytes, values_, &GgufValue::key, progress, by_key_));
  uint32_t alignment = 0;
  WEIR_TRY(read_alignment(*this, alignment));
  tensors_.reserve(static_cast<size_t>(std::min(header.n_tensors, kMaxReserve)));
  for (uint64_t i = 0; i < header.n_tensors; ++i) {
    const uint64_t at = in.at();
    GgufTensor tensor;
    const Status status = read_tensor(in, any_type, tensor);
    if (!status.ok()) return in_context(status, tensor.name, "tensor", at);
    tensors_.push_back(tensor);
    WEIR_TRY(progress.step());
  }
  WEIR_TRY(build_index("tensors", bytes, tensors_, &GgufTensor::name, progress, by_name_));
  const uint64_t section = (in.at() + alignment - 1) / alignment * alignment;  // no overflow: at() <= the file's size
  for (GgufTensor& tensor : tensors_) WEIR_TRY(place_tensor(bytes, section, alignment, tensor));
  return {};
}

Status GgufFile::parse(std::span<const uint8_t> bytes) {
  GgufFile(values_.get_allocator().resource()).swap(*this);
  GgufFile next(values_.get_allocator().resource());
  OpenProgress nobody;
  WEIR_TRY(next.read_all(bytes, nobody, false));
  swap(next);
  return {};
}

Status GgufFile::open(const char* path) {
  OpenProgress nobody;
  return open(path, nobody);
}

// One file, whatever its keys say about others.
Status GgufFile::open_one(const char* path, OpenProgress& progress, const How& how) {
  GgufFile next(values_.get_allocator().resource());
  WEIR_TRY(how.copy ? next.file_.read(path, values_.get_allocator().resource(), progress) : next.file_.map(path));
  const Status status = next.read_all(next.file_.bytes(), progress, how.any_type);
  if (!status.ok()) return in_file(status, path);
  swap(next);
  return {};
}

void GgufFile::swap(GgufFile& other) noexcept {
  std::swap(file_, other.file_);
  parts_.swap(other.parts_);
  std::swap(bytes_, other.bytes_);
  std::swap(version_, other.version_);
  values_.swap(other.values_);
  tensors_.swap(other.tensors_);
  by_key_.swap(other.by_key_);
  by_name_.swap(other.by_name_);
}

}  // namespace weir
