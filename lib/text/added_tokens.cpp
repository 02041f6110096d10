// Matching whole tokens: a sorted list, narrowed byte by byte. Most positions end at the table of first bytes.
#include "text/added_tokens.h"

#include <algorithm>

namespace weir {
namespace {

bool is_user_defined(const Vocab& vocab, weir_token token) { return vocab.type(token) == TokenType::kUserDefined; }

bool is_added(const Vocab& vocab, weir_token token) {
  const TokenType type = vocab.type(token);
  return type == TokenType::kControl || type == TokenType::kUnknown || type == TokenType::kUserDefined;
}

}  // namespace

void AddedTokens::build(const Vocab& vocab) {
  vocab_ = &vocab;
  for (uint32_t i = 0; i < vocab.size(); ++i) {
    const auto token = static_cast<weir_token>(i);
    if (is_added(vocab, token) && !vocab.text(token).empty()) sorted_.push_back(token);
  }
  std::sort(sorted_.begin(), sorted_.end(), [&](weir_token a, weir_token b) {
    const int order = vocab.text(a).compare(vocab.text(b));
    return order != 0 ? order < 0 : a < b;
  });
  // Of equal texts the first token counts, and without `special` the first user-defined one. More would only cost time:
  // a file could give thousands of tokens one text.
  weir_token first_of_text = -1;
  bool has_user = false;
  std::erase_if(sorted_, [&](weir_token token) {
    const bool user = is_user_defined(vocab, token);
    if (first_of_text < 0 || vocab.text(token) != vocab.text(first_of_text)) {
      first_of_text = token;
      has_user = user;
      return false;
    }
    const bool drop = !user || has_user;
    has_user = has_user || user;
    return drop;
  });
  std::array<uint32_t, 256> n{};
  for (const weir_token token : sorted_) {
    const auto first = static_cast<uint8_t>(vocab.text(token)[0]);
    ++n[first];
    starts_[1][first] = true;
    if (is_user_defined(vocab, token)) starts_[0][first] = true;
  }
  for (size_t byte = 0; byte < 256; ++byte) begin_[byte + 1] = begin_[byte] + n[byte];
}

weir_token AddedTokens::longest_at(std::string_view text, bool special) const {
  const auto first = static_cast<uint8_t>(text[0]);
  auto lo = sorted_.begin() + begin_[first], hi = sorted_.begin() + begin_[first + 1u];
  weir_token best = -1;
  for (size_t depth = 1; lo != hi; ++depth) {  // all of [lo, hi) begin with text[0, depth)
    bool found = false;
    for (; lo != hi && vocab_->text(*lo).size() == depth; ++lo) {
      if (found || !(special || is_user_defined(*vocab_, *lo))) continue;
      best = *lo;
      found = true;
    }
    if (depth == text.size()) break;
    const auto wanted = static_cast<uint8_t>(text[depth]);
    const auto byte_of = [&](weir_token token) { return static_cast<uint8_t>(vocab_->text(token)[depth]); };
    lo = std::partition_point(lo, hi, [&](weir_token token) { return byte_of(token) < wanted; });
    hi = std::partition_point(lo, hi, [&](weir_token token) { return byte_of(token) == wanted; });
  }
  return best;
}

bool AddedTokens::next(std::string_view text, size_t from, bool special, Match& out) const {
  const auto& starts = starts_[special ? 1 : 0];
  for (size_t at = from; at < text.size(); ++at) {
    if (!starts[static_cast<uint8_t>(text[at])]) continue;
    const weir_token token = longest_at(text.substr(at), special);
    if (token < 0) continue;
    out = {token, at, at + vocab_->text(token).size()};
    return true;
  }
  return false;
}

weir_token AddedTokens::find(std::string_view text) const {
  const auto at =
      std::lower_bound(sorted_.begin(), sorted_.end(), text,
                       [&](weir_token token, std::string_view wanted) { return vocab_->text(token) < wanted; });
  return at != sorted_.end() && vocab_->text(*at) == text ? *at : -1;
}

}  // namespace weir
