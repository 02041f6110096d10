// The masks of states: what the terminals of a state know of themselves, and what goes on behind their ends.
#include <algorithm>

#include "text/constraint/matcher.h"

namespace weir::constraint {

void Matcher::mask(const TokenTrie& trie, MaskCache& cache, uint32_t* words) {
  if (!is_full_ && !has_room()) collect();
  if (mask_once(trie, cache, words) || at_ == kDead) return;
  // Full: what this state alone needs may fit.
  is_full_ = false;
  collect();
  if (!mask_once(trie, cache, words)) is_full_ = true;
}

bool Matcher::mask_once(const TokenTrie& trie, MaskCache& cache, uint32_t* words) {
  std::fill_n(words, trie.n_words(), 0u);
  if (is_full_) return false;
  const uint32_t config = at_;
  if (configs_[config][0] != 0) {
    for (const weir_token token : trie.ends_of_generation()) set(words, token);
  }
  const uint32_t n = static_cast<uint32_t>(configs_[config].size());
  for (uint32_t i = 1; i < n && !is_full_; i += 3) {
    const std::span<const uint32_t> list = configs_[config];
    const Item item = {list[i], list[i + 1], list[i + 2]};
    const Edge& edge = g_.edge(item.edge);
    const Terminal& terminal = g_.terminal(edge.what);
    if (terminal.kind == Terminal::kLiteral) {
      mask_literal(trie, cache.safe(), item, words);
      continue;
    }
    const MaskCache::Exits exits = cache.add(terminal, item.state, words);
    if (exits.size() != 0) mask_exits(trie, cache.safe(), exits, behind(item), words);
  }
  return !is_full_;
}

Matcher::Behind Matcher::behind(const Item& item) {
  Behind out = {follow(g_.edge(item.edge).to, item.frame), 0};
  const std::span<const uint32_t> items = configs_[out.config];
  for (size_t i = 1; i < items.size(); i += 3) {
    const Terminal& terminal = g_.terminal(g_.edge(items[i]).what);
    if (terminal.kind == Terminal::kLiteral) {
      out.kinds |= kind_of(static_cast<uint8_t>(g_.literal(terminal)[items[i + 1]]));
      continue;
    }
    for (uint32_t byte = 0; byte < 256; ++byte) {
      if (g_.step(terminal, items[i + 1], static_cast<uint8_t>(byte)) != Terminal::kDead)
        out.kinds |= kind_of(static_cast<uint8_t>(byte));
    }
  }
  out.kinds |= kStray | kInside;  // a guard: no terminal of today ends inside of a character
  return out;
}

// From each node where the terminal can end. What is below a node is left out where no byte of it can be next.
void Matcher::mask_exits(const TokenTrie& trie, const SafeKinds& safe, const MaskCache::Exits& exits,
                         const Behind& behind, uint32_t* words) {
  for (size_t k = 0; k < exits.size() && !is_full_; ++k) {
    const uint32_t first = exits.node(k), end = exits.is_all(k) ? trie.node(first).end : first + 1;
    for (uint32_t i = first; i < end && !is_full_;) {
      const TokenTrie::Node& node = trie.node(i);
      if ((node.kinds & behind.kinds) == 0) {
        i = node.end;
        continue;
      }
      const bool is_exit = !exits.is_all(k) || ((node.kinds & kInside) == 0 && node.end != i + 1);
      if (is_exit && exits.counts(k, node.depth)) mask_below(trie, safe, i, behind, words);
      ++i;
    }
  }
}

void Matcher::mask_literal(const TokenTrie& trie, const SafeKinds& safe, const Item& item, uint32_t* words) {
  const Edge& edge = g_.edge(item.edge);
  const std::string_view left = g_.literal(g_.terminal(edge.what)).substr(item.state);
  uint32_t node = 0;
  for (const char c : left) {
    node = trie.find_below(node, static_cast<uint8_t>(c));
    if (node == 0) return;
    for (const weir_token token : trie.tokens(node)) set(words, token);
  }
  if (trie.node(node).end != node + 1) mask_below(trie, safe, node, behind(item), words);
}

// Whether all that is in the tree from the node on can follow the state: one of its terminals can read it.
bool Matcher::is_safe(const SafeKinds& safe, uint32_t config, const TokenTrie::Node& node) const {
  constexpr size_t kMaxLooked = 4;  // items; more would take longer than what it saves
  const std::span<const uint32_t> items = configs_[config];
  for (size_t i = 1; i < items.size() && i < 3 * kMaxLooked; i += 3) {
    if (safe.holds(g_.terminal(g_.edge(items[i]).what), items[i + 1], node)) return true;
  }
  return false;
}

// Tokens that go on behind the node, from the state there.
void Matcher::mask_below(const TokenTrie& trie, const SafeKinds& safe, uint32_t node, const Behind& behind,
                         uint32_t* words) {
  const uint32_t end = trie.node(node).end, depth = trie.node(node).depth + 1;
  way_[depth - 1] = behind.config;
  for (uint32_t i = node + 1; i < end && !is_full_;) {
    const TokenTrie::Node& below = trie.node(i);
    const uint32_t from = way_[below.depth - 1];
    if (below.end != i + 1 && is_safe(safe, from, below)) {
      for (const weir_token token : trie.tokens_from(i)) set(words, token);
      i = below.end;
      continue;
    }
    const bool is_hopeless = below.depth == depth && (below.kinds & behind.kinds) == 0;
    const uint32_t to = is_hopeless ? kDead : step(from, below.byte);
    if (to == kDead) {
      i = below.end;
      continue;
    }
    for (const weir_token token : trie.tokens(i)) set(words, token);
    way_[below.depth] = to;
    ++i;
  }
}

}  // namespace weir::constraint
