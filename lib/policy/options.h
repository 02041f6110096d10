// Reads a policy's text options by name and finds the ones that nobody asked for. Every getter leaves its value alone when the option is absent.
#pragma once

#include <cstdint>
#include <span>

#include "core/status.h"
#include "weir/base.h"

namespace weir {

class OptionReader {
 public:
  OptionReader(const char* policy, std::span<const weir_key_value> options) : policy_(policy), options_(options) {}

  Status get_u32(const char* name, uint32_t& value, uint32_t low, uint32_t high);
  Status get_f32(const char* name, float& value, float low, float high);
  Status get_bool(const char* name, bool& value);  // true/false, 1/0, on/off
  // `value` becomes the index in `words` of the option's text.
  Status get_word(const char* name, uint32_t& value, std::span<const char* const> words);
  bool has(const char* name) const { return find(name) != nullptr; }

  // Fails with WEIR_ERR_NOT_FOUND when an option was given that no getter knows, listing those that exist; duplicates are refused too.
  Status finish();

 private:
  const char* find(const char* name) const;
  void know(const char* name);

  static constexpr uint32_t kMaxKnown = 24;
  const char* policy_;
  std::span<const weir_key_value> options_;
  const char* known_[kMaxKnown] = {};
  uint32_t n_known_ = 0;
};

}  // namespace weir
