// Reads one JSON text (RFC 8259, UTF-8) into a list of values that know where they are. Numbers stay as they are
// written, so that nothing is rounded.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string_view>

#include "core/pod_vector.h"
#include "core/status.h"

namespace weir {

class JsonText {
 public:
  using Id = uint32_t;
  static constexpr Id kNone = UINT32_MAX;
  static constexpr uint32_t kMaxDepth = 200;
  static constexpr uint32_t kMaxBytes = 16u << 20, kMaxValues = 1u << 20;
  enum Kind : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };

  explicit JsonText(std::pmr::memory_resource* memory) : values_(memory), texts_(memory) {}
  // `what` begins the message of a failure, WEIR_ERR_INVALID_ARG with line and byte. The root is value 0.
  Status read(std::string_view text, const char* what);

  Kind kind(Id id) const { return values_[id].kind; }
  bool is_bool(Id id) const { return kind(id) == kFalse || kind(id) == kTrue; }
  uint32_t size(Id id) const { return values_[id].n; }  // of an array or object
  // Members and items in the order of the text.
  Id first(Id id) const { return values_[id].n == 0 ? kNone : id + 1; }
  Id next(Id id) const { return values_[id].next; }
  Id parent(Id id) const { return values_[id].parent; }
  std::string_view key(Id id) const { return text_at(values_[id].key, values_[id].key_bytes); }
  // The text of a string without escapes, or a number as it is written.
  std::string_view text(Id id) const { return text_at(values_[id].text, values_[id].text_bytes); }
  Id find(Id object, std::string_view key) const;  // kNone: there is none; of several the last one
  bool equal(Id a, Id b) const;                    // as JSON: numbers by value, objects in any order
  // "#/properties/a" of a value, cut in front where it is long.
  const char* path(Id id, char* out, uint32_t capacity) const;

 private:
  struct Value {
    Kind kind;
    uint32_t n, next, parent;
    uint32_t key, key_bytes, text, text_bytes;
  };
  class Reader;
  std::string_view text_at(uint32_t at, uint32_t n) const { return {texts_.data() + at, n}; }

  PodVector<Value> values_;  // each before its members
  PodVector<char> texts_;
};

// A number's value, exact: sign, digits without zeros at either end, and the power of ten of the first digit, so that
// it is +-0.digits * 10^exponent. False: it has more digits, or a larger exponent, than there is room for.
struct Decimal {
  static constexpr uint32_t kMaxDigits = 400;
  bool negative = false;  // never of 0
  uint32_t n_digits = 0;  // 0: the number 0
  int32_t exponent = 0;
  char digits[kMaxDigits] = {};

  bool read(std::string_view number);  // as JSON writes it
  bool is_integer() const { return n_digits == 0 || exponent >= static_cast<int32_t>(n_digits); }
};
int compare(const Decimal& a, const Decimal& b);  // below, at or above 0

}  // namespace weir
