// Reads a policy's text options by name, and finds options that the policy does not have. A getter leaves its value
// unchanged when the option is absent.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>

#include "core/named_values.h"
#include "core/status.h"
#include "weir/base.h"

namespace weir {

// "prompt" names a prompt policy, and options that begin with "prompt_" belong to it, and so with "heads" and head
// policies; a policy's reader skips them.
inline constexpr const char* kPromptOption = "prompt";
inline constexpr const char* kHeadsOption = "heads";

// The options that were given, and where readers note what each came to be, given or not; null: nowhere.
struct OptionList {
  OptionList() = default;
  template <class Range>
  requires std::convertible_to<Range, std::span<const weir_key_value>> OptionList(Range&& options) : given(options) {}
  OptionList(const weir_key_value* options, size_t n) : given(options, n) {}

  std::span<const weir_key_value> given;
  NamedValues* effective = nullptr;
};

// Fails when there are options of a prompt policy or a head policy, but no such policy: `kind` is the option that names
// one.
Status refuse_options_without(const char* kind, std::span<const weir_key_value> options);

class OptionReader {
 public:
  enum Scope { kPolicy, kPromptPolicy, kHeadPolicy };
  OptionReader(const char* policy, const OptionList& options, Scope scope = kPolicy)
      : policy_(policy), options_(options.given), effective_(options.effective), scope_(scope) {}

  Status get_u32(const char* name, uint32_t& value, uint32_t low, uint32_t high);
  // For an option that is younger than saved sessions: its value `before`, with which the policy decides as it did
  // without the option, is not noted.
  Status get_later_u32(const char* name, uint32_t& value, uint32_t low, uint32_t high, uint32_t before);
  // The same of a word.
  Status get_later_word(const char* name, uint32_t& value, std::span<const char* const> words, uint32_t before);
  // What get_u32, get_f32 and get_bool will find; `otherwise` without the option, or if they will refuse the value.
  uint32_t peek_u32(const char* name, uint32_t otherwise) const;
  bool peek_bool(const char* name, bool otherwise) const;
  float peek_f32(const char* name, float otherwise) const;
  Status get_f32(const char* name, float& value, float low, float high);
  Status get_bool(const char* name, bool& value);  // true/false, 1/0, on/off
  // `value` becomes the index in `words` of the option's text.
  Status get_word(const char* name, uint32_t& value, std::span<const char* const> words);
  bool has(const char* name) const { return find(name) != nullptr; }
  // The option exists; somebody else reads it.
  void allow(const char* name) { know(name); }
  // Fails when `name` was given although it has no effect, because of `because`: "stamp_rule=top_r", for example.
  Status contradicts(const char* name, const char* because) const;

  // Fails with WEIR_ERR_NOT_FOUND when an option was given that no getter has asked for; the error lists those that
  // exist. Duplicates are refused, too.
  Status finish();

 private:
  Status find_u32(const char* name, uint32_t& value, uint32_t low, uint32_t high);
  Status find_f32(const char* name, float& value, float low, float high);
  Status find_word(const char* name, uint32_t& value, std::span<const char* const> words);
  const char* find(const char* name) const;
  void know(const char* name);

  static constexpr uint32_t kMaxKnown = 24;
  const char* policy_;
  std::span<const weir_key_value> options_;
  NamedValues* effective_;
  Scope scope_;
  const char* known_[kMaxKnown] = {};
  uint32_t n_known_ = 0;
};

}  // namespace weir
