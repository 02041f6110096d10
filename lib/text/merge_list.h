// Merging neighbours of a piece of text, best pair first: a linked list of symbols and a heap of pairs, O(n log n).
// Byte-level BPE and SentencePiece differ only in which pairs may merge and how good they are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory_resource>
#include <vector>

#include "weir/base.h"
#include "weir/model.h"

namespace weir {

inline constexpr uint32_t kNoSymbol = UINT32_MAX;

struct Symbol {
  uint32_t begin, n_bytes;  // in the piece; 0 bytes: merged into another
  uint32_t previous, next;  // neighbours, kNoSymbol at the ends
  weir_token token;         // -1 when the vocabulary has none for this text
  uint32_t priority;        // of merging with `next`, lower is sooner
  weir_token merged;        // the token that this gives; -1 when the two cannot merge
};

class MergeList {
 public:
  explicit MergeList(std::pmr::memory_resource* memory) : symbols_(memory), heap_(memory) {}

  void clear() { symbols_.clear(); }
  void add(uint32_t begin, uint32_t n_bytes, weir_token token) {
    const auto at = static_cast<uint32_t>(symbols_.size());
    if (at > 0) symbols_.back().next = at;
    symbols_.push_back({begin, n_bytes, at > 0 ? at - 1 : kNoSymbol, kNoSymbol, token, 0, -1});
  }

  // Merges until no pair is left. pair(left, right, priority) gives the token that two symbols become, or -1. Of equal
  // priorities the leftmost pair goes first.
  template <class Pair>
  void run(const Pair& pair) {
    heap_.clear();
    for (uint32_t at = 0; at + 1 < symbols_.size(); ++at) weigh(pair, at, false);
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const uint64_t entry = heap_.back();
      heap_.pop_back();
      Symbol& left = symbols_[static_cast<uint32_t>(entry)];
      // An entry is stale when its left symbol is gone or has meanwhile got another pair.
      if (left.n_bytes == 0 || left.merged < 0 || left.priority != static_cast<uint32_t>(entry >> 32)) continue;
      join(left);
      if (left.previous != kNoSymbol) weigh(pair, left.previous, true);
      weigh(pair, static_cast<uint32_t>(entry), true);
    }
  }

  const Symbol& first() const { return symbols_.front(); }  // precondition: something was added
  // The symbols that are left, in order; f(symbol).
  template <class F>
  void for_each(const F& f) const {
    if (symbols_.empty()) return;
    for (uint32_t at = 0; at != kNoSymbol; at = symbols_[at].next) f(symbols_[at]);
  }
  // The token of the whole piece when everything has become one symbol, else -1.
  weir_token single() const { return !symbols_.empty() && symbols_[0].next == kNoSymbol ? symbols_[0].token : -1; }

 private:
  template <class Pair>
  void weigh(const Pair& pair, uint32_t at, bool sift) {
    Symbol& left = symbols_[at];
    left.merged = left.next == kNoSymbol ? -1 : pair(left, symbols_[left.next], left.priority);
    if (left.merged < 0) return;
    heap_.push_back(uint64_t{left.priority} << 32 | at);
    if (sift) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  void join(Symbol& left) {
    Symbol& right = symbols_[left.next];
    left.n_bytes += right.n_bytes;
    left.token = left.merged;
    left.next = right.next;
    right.n_bytes = 0;
    if (left.next != kNoSymbol) symbols_[left.next].previous = static_cast<uint32_t>(&left - symbols_.data());
  }

  std::pmr::vector<Symbol> symbols_;
  std::pmr::vector<uint64_t> heap_;  // priority, then index of the left symbol
};

}  // namespace weir
