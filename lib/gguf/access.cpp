// Look-ups by name, typed getters, and reading a mapped file ahead of its use.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>

#include "gguf/gguf.h"
#include "gguf/reader.h"

namespace weir {
namespace {

using std::string_view;

constexpr size_t kTouchBytes = 4096;  // the smallest page of the systems in use

// Finds the item called `name` by bisection of the sorted index.
template <class Item>
const Item* find_in(const std::pmr::vector<Item>& items, string_view Item::*field,
                    const std::pmr::vector<uint32_t>& index, string_view name) {
  const auto it = std::lower_bound(index.begin(), index.end(), name,
                                   [&](uint32_t i, string_view wanted) { return items[i].*field < wanted; });
  return it != index.end() && items[*it].*field == name ? &items[*it] : nullptr;
}

Status missing(string_view key) {
  return fail(WEIR_ERR_FORMAT, "%.*s: the file has no such key", shown_bytes(key), key.data());
}

Status wrong_type(const GgufValue& value, const char* expected) {
  return fail(WEIR_ERR_FORMAT, "%.*s: expected %s, file has %s", shown_bytes(value.key), value.key.data(), expected,
              gguf_type_name(value.type));
}

bool is_integer(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kU16:
    case GgufType::kI16:
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kU64:
    case GgufType::kI64:
      return true;
    default:
      return false;
  }
}

bool is_float(GgufType type) { return type == GgufType::kF32 || type == GgufType::kF64; }

template <class T>
T element(const GgufValue& array, uint64_t i) {
  T value;
  __builtin_memcpy(&value, array.data + i * sizeof(T), sizeof(T));
  return value;
}

// One number for each of the layers, as some writers have it, is one number if all are equal, or all that are not 0.
Status one_of(const GgufValue& array, bool zeros_aside, int64_t& out) {
  if (!is_integer(array.element_type)) return wrong_type(array, "an integer");
  constexpr uint64_t kMaxLayers = 4096;
  if (array.count == 0 || array.count > kMaxLayers) {
    return fail(WEIR_ERR_FORMAT, "%.*s: an array of %llu elements", shown_bytes(array.key), array.key.data(),
                static_cast<unsigned long long>(array.count));
  }
  out = gguf_integer(array, 0);
  for (uint64_t i = 1; i < array.count; ++i) {
    const int64_t other = gguf_integer(array, i);
    if (other == out || (zeros_aside && other == 0)) continue;
    if (zeros_aside && out == 0) {
      out = other;
      continue;
    }
    return fail(WEIR_ERR_UNSUPPORTED, "%.*s: %lld and %lld; layers that differ in it cannot be computed",
                shown_bytes(array.key), array.key.data(), static_cast<long long>(out), static_cast<long long>(other));
  }
  return {};
}

Status to_i64(const GgufValue& value, int64_t& out) {
  if (!is_integer(value.type)) return wrong_type(value, "an integer");
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  out = value.type == GgufType::kU64 ? static_cast<int64_t>(std::min(value.raw, kMax))
                                     : std::bit_cast<int64_t>(value.raw);
  return {};
}

Status to_u32(const GgufValue& value, uint32_t& out) {
  int64_t number = 0;
  WEIR_TRY(to_i64(value, number));
  if (number < 0) {
    return fail(WEIR_ERR_FORMAT, "%.*s: %lld is negative", shown_bytes(value.key), value.key.data(),
                static_cast<long long>(number));
  }
  if (number > std::numeric_limits<uint32_t>::max()) {
    return fail(WEIR_ERR_FORMAT, "%.*s: %lld exceeds 32 bits", shown_bytes(value.key), value.key.data(),
                static_cast<long long>(number));
  }
  out = static_cast<uint32_t>(number);
  return {};
}

Status to_f32(const GgufValue& value, float& out) {
  if (value.type == GgufType::kF32) {
    out = std::bit_cast<float>(static_cast<uint32_t>(value.raw));
    return {};
  }
  if (is_integer(value.type)) {
    int64_t number = 0;
    WEIR_TRY(to_i64(value, number));
    out = static_cast<float>(number);
    return {};
  }
  if (value.type != GgufType::kF64) return wrong_type(value, "a number");
  const double wide = std::bit_cast<double>(value.raw);
  if (std::isfinite(wide) && std::fabs(wide) > static_cast<double>(FLT_MAX)) {
    return fail(WEIR_ERR_FORMAT, "%.*s: %g exceeds the range of f32", shown_bytes(value.key), value.key.data(), wide);
  }
  out = static_cast<float>(wide);
  return {};
}

bool is_of(GgufType element, GgufArray kind) {
  switch (kind) {
    case GgufArray::kStrings:
      return element == GgufType::kString;
    case GgufArray::kIntegers:
      return is_integer(element);
    case GgufArray::kFlags:
      return is_integer(element) || element == GgufType::kBool;
    case GgufArray::kFloats:
      return is_float(element);
  }
  return false;
}

constexpr const char* kArrayNames[] = {"string", "integers", "booleans", "floats"};

}  // namespace

int64_t gguf_integer(const GgufValue& array, uint64_t i) {
  switch (array.element_type) {
    case GgufType::kU8:
    case GgufType::kBool:
      return element<uint8_t>(array, i);
    case GgufType::kI8:
      return element<int8_t>(array, i);
    case GgufType::kU16:
      return element<uint16_t>(array, i);
    case GgufType::kI16:
      return element<int16_t>(array, i);
    case GgufType::kU32:
      return element<uint32_t>(array, i);
    case GgufType::kI32:
      return element<int32_t>(array, i);
    case GgufType::kU64:
      return static_cast<int64_t>(std::min(element<uint64_t>(array, i), uint64_t{std::numeric_limits<int64_t>::max()}));
    case GgufType::kI64:
      return element<int64_t>(array, i);
    default:
      return 0;
  }
}

double gguf_number(const GgufValue& array, uint64_t i) {
  if (array.element_type == GgufType::kF32) return static_cast<double>(element<float>(array, i));
  if (array.element_type == GgufType::kF64) return element<double>(array, i);
  return static_cast<double>(gguf_integer(array, i));
}

const GgufValue* GgufFile::find(string_view key) const { return find_in(values_, &GgufValue::key, by_key_, key); }

const GgufTensor* GgufFile::find_tensor(string_view name) const {
  return find_in(tensors_, &GgufTensor::name, by_name_, name);
}

Status GgufFile::get_u32(string_view key, uint32_t& out) const {
  const GgufValue* value = find(key);
  return value == nullptr ? missing(key) : to_u32(*value, out);
}

Status GgufFile::get_u32(string_view key, uint32_t& out, uint32_t fallback) const {
  const GgufValue* value = find(key);
  if (value != nullptr) return to_u32(*value, out);
  out = fallback;
  return {};
}

Status GgufFile::get_of_layers(string_view key, uint32_t& out) const { return one_of_layers(key, false, out); }

Status GgufFile::get_of_some_layers(string_view key, uint32_t& out) const { return one_of_layers(key, true, out); }

Status GgufFile::one_of_layers(string_view key, bool zeros_aside, uint32_t& out) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key);
  if (value->type != GgufType::kArray) return to_u32(*value, out);
  GgufValue number = {};
  number.key = key;
  number.type = GgufType::kI64;
  int64_t all = 0;
  WEIR_TRY(one_of(*value, zeros_aside, all));
  number.raw = std::bit_cast<uint64_t>(all);
  return to_u32(number, out);
}

Status GgufFile::get_i64(string_view key, int64_t& out) const {
  const GgufValue* value = find(key);
  return value == nullptr ? missing(key) : to_i64(*value, out);
}

Status GgufFile::get_f32(string_view key, float& out) const {
  const GgufValue* value = find(key);
  return value == nullptr ? missing(key) : to_f32(*value, out);
}

Status GgufFile::get_f32(string_view key, float& out, float fallback) const {
  const GgufValue* value = find(key);
  if (value != nullptr) return to_f32(*value, out);
  out = fallback;
  return {};
}

Status GgufFile::get_bool(string_view key, bool& out, bool fallback) const {
  const GgufValue* value = find(key);
  const bool is_byte = value != nullptr && (value->type == GgufType::kU8 || value->type == GgufType::kI8);
  if (value != nullptr && value->type != GgufType::kBool && !(is_byte && value->raw <= 1))
    return wrong_type(*value, "a bool");
  out = value != nullptr ? value->raw != 0 : fallback;
  return {};
}

Status GgufFile::get_string(string_view key, string_view& out) const {
  return find(key) == nullptr ? missing(key) : get_string(key, out, {});
}

Status GgufFile::get_string(string_view key, string_view& out, string_view fallback) const {
  const GgufValue* value = find(key);
  if (value != nullptr && value->type != GgufType::kString) return wrong_type(*value, "a string");
  out = value != nullptr ? value->text : fallback;
  return {};
}

Status GgufFile::get_array(string_view key, GgufArray kind, bool required, const GgufValue*& out) const {
  const GgufValue* value = find(key);
  if (value == nullptr && required) return missing(key);
  if (value != nullptr && value->type != GgufType::kArray) return wrong_type(*value, "an array");
  if (value != nullptr && !is_of(value->element_type, kind)) {
    return fail(WEIR_ERR_FORMAT, "%.*s: expected an array of %s, file has one of %s", shown_bytes(key), key.data(),
                kArrayNames[static_cast<size_t>(kind)], gguf_type_name(value->element_type));
  }
  out = value;
  return {};
}

Status GgufFile::prefetch(OpenProgress& progress) const {
  const auto files = [this](uint32_t i) -> const FileBytes& { return i == 0 ? file_ : parts_[i - 1]; };
  const uint64_t all = file_bytes();
  progress.set_part(0, all);
  progress.set_total(all);
  WEIR_TRY(progress.tell(0));
  uint64_t before = 0;
  for (uint32_t i = 0; i < n_parts(); ++i) {
    const std::span<const uint8_t> bytes = i == 0 ? bytes_ : files(i).bytes();
    files(i).will_need();
    progress.set_part(before, all);
    for (size_t begin = 0; begin < bytes.size(); begin += kProgressBytes) {
      const size_t end = std::min(bytes.size(), begin + kProgressBytes);
      for (size_t at = begin; at < end; at += kTouchBytes) {
        [[maybe_unused]] const uint8_t touched = *static_cast<const volatile uint8_t*>(bytes.data() + at);
      }
      WEIR_TRY(progress.tell(end));
    }
    before += bytes.size();
  }
  return {};
}

uint64_t GgufFile::file_bytes() const {
  uint64_t n = bytes_.size();
  for (const FileBytes& part : parts_) n += part.bytes().size();
  return n;
}

uint64_t GgufFile::copied_bytes() const { return file_.is_copy() ? file_bytes() : 0; }

}  // namespace weir
