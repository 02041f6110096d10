// The tree of token texts.
#include "text/constraint/token_trie.h"

#include <algorithm>

#include "core/utf8.h"

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

// Marks each node with what is below it, from the last one to the first.
void TokenTrie::add_kinds() {
  // How far a character is at each depth: how many bytes are to come, and the range of the next one; kNowhere behind
  // bytes that are in no character.
  struct Place {
    uint8_t n_left, first, last;
  };
  constexpr uint8_t kNowhere = 255;
  PodVector<Place> places(nodes_.memory());
  places.resize(longest_ + 1);
  places[0] = {0, 0, 0};
  for (uint32_t i = 1; i < n_nodes(); ++i) {
    Node& node = nodes_[i];
    const Place before = places[node.depth - 1];
    Place& place = places[node.depth];
    const uint8_t byte = node.byte;
    place = {kNowhere, 0, 0};
    node.kinds = kStray;
    if (before.n_left == kNowhere || node.depth > 255) continue;
    if (before.n_left != 0) {
      if (byte < before.first || byte > before.last) continue;
      place = {static_cast<uint8_t>(before.n_left - 1), 0x80, 0xBF};
      node.kinds = kInside;
    } else if (const Utf8Lead lead = utf8_lead(byte); lead.n_bytes != 0) {
      node.kinds = kind_of(byte);
      place = {static_cast<uint8_t>(lead.n_bytes - 1), lead.second_min, lead.second_max};
    }
  }
  PodVector<uint32_t> lengths(nodes_.memory());  // of the longest text from the byte of a node on
  lengths.resize(n_nodes(), 1);
  n_inner_ = 0;
  for (uint32_t i = n_nodes(); i-- > 0;) {
    Node& node = nodes_[i];
    for (uint32_t below = i + 1; below < node.end; below = nodes_[below].end) {
      node.kinds |= nodes_[below].kinds & ~kInside;
      lengths[i] = std::max(lengths[i], lengths[below] + 1);
    }
    n_inner_ += node.end != i + 1 ? 1 : 0;
    while (node.level < kLevels - 1 && lengths[i] > 4u << node.level) ++node.level;
  }
  for (uint32_t i = 1; i < n_nodes(); i = nodes_[i].end) below_root_[nodes_[i].byte] = i;
}

uint32_t TokenTrie::find_below(uint32_t node, uint8_t byte) const {
  if (node == 0) return below_root_[byte];
  const uint32_t end = nodes_[node].end;
  uint32_t below = node + 1;
  while (below < end && nodes_[below].byte != byte) below = nodes_[below].end;
  return below < end ? below : 0;
}

namespace {

struct TokenText {
  std::string_view text;
  weir_token token;
};

// The tokens that are text, by their texts, and those that end it.
void sort_texts(const Tokenizer& tokenizer, PodVector<TokenText>& texts, PodVector<weir_token>& ends) {
  const uint32_t n = tokenizer.vocab_size();
  texts.reserve(n);
  for (uint32_t i = 0; i < n; ++i) {
    const auto token = static_cast<weir_token>(i);
    if (tokenizer.is_end_of_generation(token)) {
      ends.push_back(token);
    } else if (is_plain_token(tokenizer, token)) {
      texts.push_back({tokenizer.decode(token, false, false), token});
    }
  }
  std::sort(texts.begin(), texts.end(), [](const TokenText& a, const TokenText& b) { return a.text < b.text; });
}

}  // namespace

void TokenTrie::build(const Tokenizer& tokenizer) {
  vocab_size_ = tokenizer.vocab_size();
  nodes_.clear();  // of an attempt for which memory ran out
  tokens_.clear();
  ends_.clear();
  n_characters_.clear();
  PodVector<TokenText> texts(nodes_.memory());
  sort_texts(tokenizer, texts, ends_);
  PodVector<uint32_t> open(nodes_.memory());  // nodes on the way to the latest token, by depth
  nodes_.push_back({0, 0, 0, 0, 0, 0});
  open.push_back(0);
  std::string_view before;
  const auto close = [&](uint32_t depth) {
    while (open.size() > depth) {
      nodes_[open.back()].end = nodes_.size();
      open.pop_back();
    }
  };
  tokens_.reserve(texts.size());
  n_characters_.reserve(texts.size());
  for (uint32_t i = 0; i < texts.size(); ++i) {
    const std::string_view now = texts[i].text;
    const auto common = static_cast<uint32_t>(
        std::mismatch(before.begin(), before.end(), now.begin(), now.end()).first - before.begin());
    close(common + 1);
    for (uint32_t d = common; d < now.size(); ++d) {
      open.push_back(nodes_.size());
      // A node on the way has the same first token as the one where the token ends, and none of its own.
      nodes_.push_back({0, i, 0, static_cast<uint16_t>(d + 1), static_cast<uint8_t>(now[d]), 0});
    }
    tokens_.push_back(texts[i].token);
    const auto begins = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; };
    n_characters_.push_back(static_cast<uint8_t>(std::count_if(now.begin(), now.end(), begins)));
    longest_ = std::max(longest_, static_cast<uint32_t>(now.size()));
    before = now;
  }
  close(0);
  nodes_.push_back({0, tokens_.size(), 0, 0, 0, 0});
  add_kinds();
}

}  // namespace weir::constraint
