// Tokens that are matched in the text as a whole, before any splitting: user-defined ones always, control and unknown
// ones on request. The leftmost match counts, and among those that begin there the longest.
#pragma once

#include <array>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace weir {

class AddedTokens {
 public:
  explicit AddedTokens(std::pmr::memory_resource* memory) : sorted_(memory) {}

  // `vocab` must outlive this object.
  void build(const Vocab& vocab);

  struct Match {
    weir_token token;
    size_t begin, end;  // in the text
  };
  // The first match at or after `from`; false when there is none. `special`: control and unknown tokens count too.
  bool next(std::string_view text, size_t from, bool special, Match& out) const;

  // The added token of exactly this text, -1 when there is none.
  weir_token find(std::string_view text) const;

 private:
  weir_token longest_at(std::string_view text, bool special) const;

  const Vocab* vocab_ = nullptr;
  std::pmr::vector<weir_token> sorted_;            // by text, then by id
  std::array<uint32_t, 257> begin_{};              // of the tokens with a first byte, in sorted_
  std::array<std::array<bool, 256>, 2> starts_{};  // [special][first byte]: some token that counts begins so
};

}  // namespace weir
