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

Status to_u32(const GgufValue& value, uint32_t& out) {
  bool is_signed = false;
  switch (value.type) {
    case GgufType::kI8:
    case GgufType::kI16:
    case GgufType::kI32:
    case GgufType::kI64:
      is_signed = true;
      break;
    case GgufType::kU8:
    case GgufType::kU16:
    case GgufType::kU32:
    case GgufType::kU64:
      break;
    default:
      return wrong_type(value, "an integer");
  }
  if (is_signed && std::bit_cast<int64_t>(value.raw) < 0) {
    return fail(WEIR_ERR_FORMAT, "%.*s: %lld is negative", shown_bytes(value.key), value.key.data(),
                static_cast<long long>(std::bit_cast<int64_t>(value.raw)));
  }
  if (value.raw > std::numeric_limits<uint32_t>::max()) {
    return fail(WEIR_ERR_FORMAT, "%.*s: %llu exceeds 32 bits", shown_bytes(value.key), value.key.data(),
                static_cast<unsigned long long>(value.raw));
  }
  out = static_cast<uint32_t>(value.raw);
  return {};
}

Status to_f32(const GgufValue& value, float& out) {
  if (value.type == GgufType::kF32) {
    out = std::bit_cast<float>(static_cast<uint32_t>(value.raw));
    return {};
  }
  if (value.type != GgufType::kF64) return wrong_type(value, "a float");
  const double wide = std::bit_cast<double>(value.raw);
  if (std::isfinite(wide) && std::fabs(wide) > static_cast<double>(FLT_MAX)) {
    return fail(WEIR_ERR_FORMAT, "%.*s: %g exceeds the range of f32", shown_bytes(value.key), value.key.data(), wide);
  }
  out = static_cast<float>(wide);
  return {};
}

}  // namespace

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
  if (value != nullptr && value->type != GgufType::kBool) return wrong_type(*value, "a bool");
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

Status GgufFile::get_array(string_view key, GgufType element_type, bool required, const GgufValue*& out) const {
  const GgufValue* value = find(key);
  if (value == nullptr && required) return missing(key);
  if (value != nullptr && value->type != GgufType::kArray) return wrong_type(*value, "an array");
  if (value != nullptr && value->element_type != element_type) {
    return fail(WEIR_ERR_FORMAT, "%.*s: expected an array of %s, file has one of %s", shown_bytes(key), key.data(),
                gguf_type_name(element_type), gguf_type_name(value->element_type));
  }
  out = value;
  return {};
}

Status GgufFile::prefetch(OpenProgress& progress) const {
  file_.will_need();
  const size_t total = bytes_.size();
  progress.set_total(total);
  WEIR_TRY(progress.tell(0));
  for (size_t begin = 0; begin < total; begin += kProgressBytes) {
    const size_t end = std::min(total, begin + kProgressBytes);
    for (size_t at = begin; at < end; at += kTouchBytes) {
      [[maybe_unused]] const uint8_t touched = *static_cast<const volatile uint8_t*>(bytes_.data() + at);
    }
    WEIR_TRY(progress.tell(end));
  }
  return {};
}

}  // namespace weir
