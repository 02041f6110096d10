// The tree of token texts.
#include "text/constraint/token_trie.h"

#include <algorithm>

namespace weir::constraint {

namespace {

bool is_letter_or_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         (c >= 'A' && c <= 'Z') || static_cast<uint8_t>(c) >= 0x80;
}

}  // namespace

bool is_plain_token(const Tokenizer& tokenizer, weir_token token) {
  weir_token_info info = WEIR_TOKEN_INFO_INIT;
  tokenizer.token_info(token, info);
  constexpr uint32_t kOther = uint32_t{WEIR_TOKEN_CONTROL} | uint32_t{WEIR_TOKEN_UNKNOWN};
  if ((info.flags & kOther) != 0 || tokenizer.is_end_of_generation(token)) return false;
  const std::string_view text = tokenizer.decode(token, false, false);
  // A mark such as <think> means more than its letters, which other tokens can spell.
  const bool is_user = (info.flags & WEIR_TOKEN_USER_DEFINED) != 0;
  return !text.empty() && (!is_user || std::all_of(text.begin(), text.end(), is_letter_or_space));
}

void TokenTrie::build(const Tokenizer& tokenizer) {
  vocab_size_ = tokenizer.vocab_size();
  nodes_.clear();  // of an attempt for which memory ran out
  tokens_.clear();
  ends_.clear();
  const auto text = [&](weir_token token) { return tokenizer.decode(token, false, false); };
  for (uint32_t i = 0; i < vocab_size_; ++i) {
    const auto token = static_cast<weir_token>(i);
    if (tokenizer.is_end_of_generation(token)) {
      ends_.push_back(token);
    } else if (is_plain_token(tokenizer, token)) {
      tokens_.push_back(token);
    }
  }
  std::sort(tokens_.begin(), tokens_.end(), [&](weir_token a, weir_token b) { return text(a) < text(b); });
  PodVector<uint32_t> open(nodes_.memory());  // nodes on the way to the latest token, by depth
  nodes_.push_back({0, 0, 0, 0});
  open.push_back(0);
  std::string_view before;
  const auto close = [&](uint32_t depth) {
    while (open.size() > depth) {
      nodes_[open.back()].end = nodes_.size();
      open.pop_back();
    }
  };
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view now = text(tokens_[i]);
    const auto common = static_cast<uint32_t>(
        std::mismatch(before.begin(), before.end(), now.begin(), now.end()).first - before.begin());
    close(common + 1);
    for (uint32_t d = common; d < now.size(); ++d) {
      open.push_back(nodes_.size());
      // A node on the way has the same first token as the one where the token ends, and none of its own.
      nodes_.push_back({0, i, static_cast<uint16_t>(d + 1), static_cast<uint8_t>(now[d])});
    }
    longest_ = std::max(longest_, static_cast<uint32_t>(now.size()));
    before = now;
  }
  close(0);
  nodes_.push_back({0, tokens_.size(), 0, 0});
}

}  // namespace weir::constraint
