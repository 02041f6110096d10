// Tokens that are matched in the text as a whole, before any splitting: user-defined ones always, control and unknown
// ones on request. The leftmost match counts, and among those that begin there the longest.
#pragma once

#include <array>
#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace weir {

class AddedTokens {
 public:
  explicit AddedTokens(std::pmr::memory_resource* memory) : sorted_(memory) {}

  // `vocab` must outlive this object.
  Status build(const Vocab& vocab, OpenProgress& progress);

  // Which tokens are matched; each set is a part of the one before.
  enum class Which : uint8_t {
    kAll,          // control, unknown and user-defined tokens
    kUserDefined,  // user-defined tokens
    kPlain,        // user-defined tokens that are not marks, see Vocab::is_mark
  };
  static constexpr size_t kKinds = 3;

  struct Match {
    weir_token token;
    size_t begin, end;  // in the text
  };
  // The first match at or after `from`; false when there is none. Tokens of `except` (ascending) do not count.
  bool next(std::string_view text, size_t from, Which which, Match& out, std::span<const weir_token> except = {}) const;

  // The added token of exactly this text, -1 when there is none.
  weir_token find(std::string_view text) const;

 private:
  struct Entry {
    weir_token token;
    Which kind;  // the last set that it belongs to
  };

  weir_token longest_at(std::string_view text, Which which, std::span<const weir_token> except) const;

  const Vocab* vocab_ = nullptr;
  std::pmr::vector<Entry> sorted_;                      // by text, then by id
  std::array<uint32_t, 257> begin_{};                   // [first byte] where its tokens begin in sorted_
  std::array<std::array<bool, 256>, kKinds> starts_{};  // [which][first byte]: some matched token begins with it
};

}  // namespace weir
