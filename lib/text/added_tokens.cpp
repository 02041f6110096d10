// Matching whole tokens: a sorted list, narrowed byte by byte. Most positions end at the table of first bytes.
#include "text/added_tokens.h"

#include <algorithm>

namespace weir {
namespace {

bool is_added(const Vocab& vocab, weir_token token) {
  const TokenType type = vocab.type(token);
  return type == TokenType::kControl || type == TokenType::kUnknown || type == TokenType::kUserDefined;
}

}  // namespace

Status AddedTokens::build(const Vocab& vocab, OpenProgress& progress) {
  vocab_ = &vocab;
  for (uint32_t i = 0; i < vocab.size(); ++i) {
    const auto token = static_cast<weir_token>(i);
    if (!is_added(vocab, token) || vocab.text(token).empty()) continue;
    const bool user = vocab.type(token) == TokenType::kUserDefined;
    sorted_.push_back({token, !user ? Which::kAll : vocab.is_mark(token) ? Which::kUserDefined : Which::kPlain});
  }
  WEIR_TRY(progress.sort(sorted_.begin(), sorted_.end(), [&](const Entry& a, const Entry& b) {
    const int order = vocab.text(a.token).compare(vocab.text(b.token));
    return order != 0 ? order < 0 : a.token < b.token;
  }));
  // When texts are equal, the first token counts, and the first of the user-defined ones. More would only cost
  // time: a file could give thousands of tokens one text.
  weir_token first = -1;
  bool has_user = false;
  std::erase_if(sorted_, [&](const Entry& entry) {
    const bool user = entry.kind != Which::kAll;
    const bool same_text = first >= 0 && vocab.text(entry.token) == vocab.text(first);
    const bool drop = same_text && (!user || has_user);
    if (!same_text) first = entry.token;
    has_user = same_text ? has_user || user : user;
    return drop;
  });
  std::array<uint32_t, 256> n{};
  for (const Entry& entry : sorted_) {
    const auto byte = static_cast<uint8_t>(vocab.text(entry.token)[0]);
    ++n[byte];
    for (size_t which = 0; which <= static_cast<size_t>(entry.kind); ++which) starts_[which][byte] = true;
  }
  for (size_t byte = 0; byte < 256; ++byte) begin_[byte + 1] = begin_[byte] + n[byte];
  return {};
}

weir_token AddedTokens::longest_at(std::string_view text, Which which, std::span<const weir_token> except) const {
  const auto counts = [&](const Entry& entry) {
    return entry.kind >= which && !std::binary_search(except.begin(), except.end(), entry.token);
  };
  const auto first = static_cast<uint8_t>(text[0]);
  auto lo = sorted_.begin() + begin_[first], hi = sorted_.begin() + begin_[first + 1u];
  weir_token best = -1;
  for (size_t depth = 1; lo != hi; ++depth) {  // all of [lo, hi) begin with text[0, depth)
    bool found = false;
    for (; lo != hi && vocab_->text(lo->token).size() == depth; ++lo) {
      if (found || !counts(*lo)) continue;
      best = lo->token;
      found = true;
    }
    if (depth == text.size()) break;
    const auto wanted = static_cast<uint8_t>(text[depth]);
    const auto byte_of = [&](const Entry& entry) { return static_cast<uint8_t>(vocab_->text(entry.token)[depth]); };
    lo = std::partition_point(lo, hi, [&](const Entry& entry) { return byte_of(entry) < wanted; });
    hi = std::partition_point(lo, hi, [&](const Entry& entry) { return byte_of(entry) == wanted; });
  }
  return best;
}

bool AddedTokens::next(std::string_view text, size_t from, Which which, Match& out,
                       std::span<const weir_token> except) const {
  const auto& starts = starts_[static_cast<size_t>(which)];
  for (size_t at = from; at < text.size(); ++at) {
    if (!starts[static_cast<uint8_t>(text[at])]) continue;
    const weir_token token = longest_at(text.substr(at), which, except);
    if (token < 0) continue;
    out = {token, at, at + vocab_->text(token).size()};
    return true;
  }
  return false;
}

weir_token AddedTokens::find(std::string_view text) const {
  const auto at =
      std::lower_bound(sorted_.begin(), sorted_.end(), text,
                       [&](const Entry& entry, std::string_view wanted) { return vocab_->text(entry.token) < wanted; });
  return at != sorted_.end() && vocab_->text(at->token) == text ? at->token : -1;
}

}  // namespace weir
