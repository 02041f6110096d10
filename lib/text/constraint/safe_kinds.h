// For the states of automata: kinds of bytes of which every mixture, up to some length, can be read from there. The
// walks through the tree of tokens take what is below a node in one step where it has no other bytes: most of the tree,
// inside of a text. A node says which kinds it has (token_trie.h), so that is one comparison.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory_resource>

#include "core/pod_vector.h"
#include "text/constraint/byte_kinds.h"
#include "text/constraint/grammar.h"
#include "text/constraint/token_trie.h"

namespace weir::constraint {

class SafeKinds {
 public:
  static constexpr uint32_t kLevels = TokenTrie::kLevels;

  explicit SafeKinds(std::pmr::memory_resource* memory)
      : firsts_(memory), rows_(memory), ends_(memory), loops_(memory) {}
  void start(const Grammar& grammar);

  // The rows of a kDfa: [n_states, kLevels], or null where none was made: the automaton is large.
  const uint32_t* rows(const Terminal& terminal) const {
    const uint32_t first = firsts_[static_cast<size_t>(&terminal - &g_->terminal(0))];
    return first == kNone ? nullptr : rows_.data() + first;
  }
  // The kinds that may stand between the texts of a kCounted: kinds of which each character is a text.
  uint32_t of_unit(const Terminal& terminal) const {
    return firsts_[static_cast<size_t>(&terminal - &g_->terminal(0))];
  }
  // Whether all that is in the tree from the node on can be read from a place in a terminal.
  bool holds(const Terminal& terminal, uint32_t state, const TokenTrie::Node& node) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  void add(const Terminal& terminal);
  static constexpr uint32_t kWide = std::size(kWideKinds);
  uint32_t kinds_of(const Terminal& terminal, uint32_t state, uint32_t* behind, uint32_t& loops) const;
  bool narrow(const Terminal& terminal);
  uint32_t step(const Terminal& t, uint32_t state, uint32_t byte) const {
    return g_->table(t)[state * t.n_classes + static_cast<uint8_t>(g_->classes(t)[byte])];
  }
  bool reads(const Terminal& t, uint32_t state, uint32_t n, const uint8_t* ranges, uint32_t& to) const;

  const Grammar* g_ = nullptr;
  PodVector<uint32_t> firsts_;  // [n_terminals] in rows_; kCounted: the kinds
  PodVector<uint32_t> rows_;
  // While rows are made: the states behind characters of several bytes, [n_states, kWide], and kinds that loop.
  PodVector<uint32_t> ends_, loops_;
};

}  // namespace weir::constraint
