// Matching of tokens by their text; see token_match.h.
#include "text/token_match.h"

#include <algorithm>

namespace weir {
namespace {

// The text of tokens from a position on, in pieces of one token.
class TextOf {
 public:
  TextOf(const Tokenizer& tokenizer, std::span<const weir_token> tokens, uint32_t at)
      : tokenizer_(tokenizer), tokens_(tokens), at_(at) {}
  uint32_t at() const { return at_; }  // the token after those that were taken
  std::string_view& rest() { return rest_; }
  // Takes the next token where nothing is left of the one before. False: there is none, or it is no text: control
  // tokens, and what the model's makers added, which often marks turns and stands for other bytes than its own.
  bool fill() {
    if (!rest_.empty()) return true;
    if (at_ == tokens_.size()) return false;
    weir_token_info info = WEIR_TOKEN_INFO_INIT;
    tokenizer_.token_info(tokens_[at_], info);
    if ((info.flags & ~uint32_t{WEIR_TOKEN_BYTE}) != 0) return false;
    const bool first = at_ == 0 || tokenizer_.starts_text_after(tokens_[at_ - 1]);
    rest_ = tokenizer_.decode(tokens_[at_], false, first);
    if (rest_.empty()) return false;
    ++at_;
    return true;
  }

 private:
  const Tokenizer& tokenizer_;
  std::span<const weir_token> tokens_;
  uint32_t at_;
  std::string_view rest_;
};

// Whether tokens from here on have the same text up to a place where both have a border; `at` moves there.
bool match_text(const Tokenizer& tokenizer, std::span<const weir_token> held, std::span<const weir_token> wanted,
                TokenMatch& at) {
  TextOf a(tokenizer, held, at.n_held), b(tokenizer, wanted, at.n_wanted);
  do {
    if (!a.fill() || !b.fill()) return false;
    const size_t n = std::min(a.rest().size(), b.rest().size());
    if (a.rest().substr(0, n) != b.rest().substr(0, n)) return false;
    a.rest().remove_prefix(n);
    b.rest().remove_prefix(n);
  } while (!a.rest().empty() || !b.rest().empty());
  at = {a.at(), b.at()};
  return true;
}

}  // namespace

TokenMatch match_tokens(const Tokenizer& tokenizer, std::span<const weir_token> held,
                        std::span<const weir_token> wanted) {
  TokenMatch at;
  while (at.n_held < held.size() && at.n_wanted < wanted.size()) {
    if (held[at.n_held] == wanted[at.n_wanted]) {
      ++at.n_held;
      ++at.n_wanted;
    } else if (!match_text(tokenizer, held, wanted, at)) {
      break;
    }
  }
  return at;
}

}  // namespace weir
