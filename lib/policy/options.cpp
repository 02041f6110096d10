// Reads the text options of policies; see options.h.
#include "policy/options.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>

namespace weir {
namespace {

// Whether an option is `kind` or begins with it and "_".
bool is_of(const char* kind, const char* key) {
  const size_t n = std::strlen(kind);
  return std::strncmp(key, kind, n) == 0 && (key[n] == '\0' || key[n] == '_');
}

// Whether the whole text is a number.
template <class T>
bool read_number(const char* text, T& number) {
  const char* end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, number);
  return result.ec == std::errc() && result.ptr == end;
}

OptionReader::Scope scope_of(const char* key) {
  return is_of(kPromptOption, key)  ? OptionReader::kPromptPolicy
         : is_of(kHeadsOption, key) ? OptionReader::kHeadPolicy
                                    : OptionReader::kPolicy;
}

}  // namespace

Status refuse_options_without(const char* kind, std::span<const weir_key_value> options) {
  for (const weir_key_value& option : options) {
    if (is_of(kind, option.key))
      return fail(WEIR_ERR_INVALID_ARG, "option %.64s belongs to a %s policy, and none was chosen with %s=NAME",
                  option.key, kind[0] == kPromptOption[0] ? "prompt" : "head", kind);
  }
  return {};
}

Status OptionReader::contradicts(const char* name, const char* because) const {
  if (!has(name)) return {};
  return fail(WEIR_ERR_INVALID_ARG, "policy %s: option %s contradicts %s, with which it has no effect", policy_, name,
              because);
}

const char* OptionReader::find(const char* name) const {
  for (const weir_key_value& option : options_) {
    if (std::strcmp(option.key, name) == 0) return option.value;
  }
  return nullptr;
}

void OptionReader::know(const char* name) {
  for (uint32_t i = 0; i < n_known_; ++i) {
    if (std::strcmp(known_[i], name) == 0) return;
  }
  if (n_known_ < kMaxKnown) known_[n_known_++] = name;
}

Status OptionReader::find_u32(const char* name, uint32_t& value, uint32_t low, uint32_t high) {
  know(name);
  const char* text = find(name);
  if (text == nullptr) return {};
  uint32_t number = 0;
  if (!read_number(text, number) || number < low || number > high) {
    return fail(WEIR_ERR_INVALID_ARG, "policy %s: option %s=%.64s is not a whole number from %u to %u", policy_, name,
                text, low, high);
  }
  value = number;
  return {};
}

Status OptionReader::find_f32(const char* name, float& value, float low, float high) {
  know(name);
  const char* text = find(name);
  if (text == nullptr) return {};
  float number = 0;
  if (!read_number(text, number) || !(number >= low && number <= high)) {
    return fail(WEIR_ERR_INVALID_ARG, "policy %s: option %s=%.64s is not a number from %g to %g", policy_, name, text,
                static_cast<double>(low), static_cast<double>(high));
  }
  value = number;
  return {};
}

// By turns false and true.
static constexpr const char* kBoolWords[] = {"false", "true", "0", "1", "off", "on"};

Status OptionReader::get_bool(const char* name, bool& value) {
  uint32_t index = value ? 1 : 0;
  WEIR_TRY(find_word(name, index, kBoolWords));
  value = index % 2 == 1;
  if (effective_ != nullptr) effective_->add(name, "%s", value ? "true" : "false");
  return {};
}

Status OptionReader::find_word(const char* name, uint32_t& value, std::span<const char* const> words) {
  know(name);
  const char* text = find(name);
  if (text == nullptr) return {};
  char list[256] = "";
  size_t used = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    if (std::strcmp(words[i], text) == 0) {
      value = static_cast<uint32_t>(i);
      return {};
    }
    const int n = std::snprintf(list + used, sizeof(list) - used, " %s", words[i]);
    if (n > 0 && static_cast<size_t>(n) < sizeof(list) - used) used += static_cast<size_t>(n);
  }
  return fail(WEIR_ERR_INVALID_ARG, "policy %s: option %s=%.64s is none of:%s", policy_, name, text, list);
}

Status OptionReader::get_u32(const char* name, uint32_t& value, uint32_t low, uint32_t high) {
  WEIR_TRY(find_u32(name, value, low, high));
  if (effective_ != nullptr) effective_->add(name, "%u", value);
  return {};
}

Status OptionReader::get_later_u32(const char* name, uint32_t& value, uint32_t low, uint32_t high, uint32_t before) {
  WEIR_TRY(find_u32(name, value, low, high));
  if (effective_ != nullptr && value != before) effective_->add(name, "%u", value);
  return {};
}

Status OptionReader::get_later_word(const char* name, uint32_t& value, std::span<const char* const> words,
                                    uint32_t before) {
  WEIR_TRY(find_word(name, value, words));
  if (effective_ != nullptr && value != before) effective_->add(name, "%s", words[value]);
  return {};
}

bool OptionReader::peek_bool(const char* name, bool otherwise) const {
  const char* text = find(name);
  for (uint32_t i = 0; text != nullptr && i < std::size(kBoolWords); ++i) {
    if (std::strcmp(kBoolWords[i], text) == 0) return i % 2 == 1;
  }
  return otherwise;
}

uint32_t OptionReader::peek_u32(const char* name, uint32_t otherwise) const {
  const char* text = find(name);
  uint32_t number = otherwise;
  return text != nullptr && read_number(text, number) ? number : otherwise;
}

float OptionReader::peek_f32(const char* name, float otherwise) const {
  const char* text = find(name);
  float number = otherwise;
  return text != nullptr && read_number(text, number) ? number : otherwise;
}

Status OptionReader::get_f32(const char* name, float& value, float low, float high) {
  WEIR_TRY(find_f32(name, value, low, high));
  if (effective_ != nullptr) effective_->add(name, "%.9g", static_cast<double>(value));
  return {};
}

Status OptionReader::get_word(const char* name, uint32_t& value, std::span<const char* const> words) {
  WEIR_TRY(find_word(name, value, words));
  if (effective_ != nullptr) effective_->add(name, "%s", value < words.size() ? words[value] : "");
  return {};
}

Status OptionReader::finish() {
  char list[512] = "";
  size_t used = 0;
  for (uint32_t i = 0; i < n_known_; ++i) {
    const int n = std::snprintf(list + used, sizeof(list) - used, " %s", known_[i]);
    if (n > 0 && static_cast<size_t>(n) < sizeof(list) - used) used += static_cast<size_t>(n);
  }
  for (size_t i = 0; i < options_.size(); ++i) {
    if (scope_of(options_[i].key) != scope_) continue;  // another reader checks it
    bool known = false;
    for (uint32_t k = 0; k < n_known_; ++k) known = known || std::strcmp(known_[k], options_[i].key) == 0;
    if (!known) {
      return fail(WEIR_ERR_NOT_FOUND, "policy %s has no option \"%.64s\"; %s%s", policy_, options_[i].key,
                  n_known_ == 0 ? "it has none" : "it has:", list);
    }
    for (size_t j = 0; j < i; ++j) {
      if (std::strcmp(options_[i].key, options_[j].key) == 0) {
        return fail(WEIR_ERR_INVALID_ARG, "policy %s: option %s is given twice", policy_, options_[i].key);
      }
    }
  }
  return {};
}

}  // namespace weir
