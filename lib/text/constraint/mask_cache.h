// For places in terminals: the tokens that stay inside of the terminal, and the nodes of the tree where it can end.
// That takes a walk through the whole tree for the inside of a text, and is the same whatever is around it. Where a
// terminal counts, it is found once for all counts. Bounded: emptied when it is full. One for each constraint; the
// caller holds its lock.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <mutex>
#include <span>

#include "core/pod_vector.h"
#include "text/constraint/grammar.h"
#include "text/constraint/safe_kinds.h"
#include "text/constraint/token_trie.h"

namespace weir::constraint {

class MaskCache {
 public:
  // Nodes behind which something else than the terminal goes on, ascending; or each with all below it.
  struct Exits {
    static constexpr uint32_t kAll = 0x80000000u;
    std::span<const uint32_t> pairs;  // node; texts of a counting terminal on the way to it, with kAll less its depth
    uint32_t least = 0, most = 0;     // bounds of the number of those texts, for an exit that counts
    size_t size() const { return pairs.size() / 2; }
    uint32_t node(size_t i) const { return pairs[2 * i] & ~kAll; }
    bool is_all(size_t i) const { return (pairs[2 * i] & kAll) != 0; }
    bool counts(size_t i, uint32_t depth) const {
      const uint32_t n = pairs[2 * i + 1] + (is_all(i) ? depth : 0);
      return n >= least && n <= most;
    }
  };

  explicit MaskCache(std::pmr::memory_resource* memory)
      : entries_(memory),
        data_(memory),
        safe_(memory),
        states_(memory),
        units_(memory),
        characters_(memory),
        open_(memory),
        counts_(memory),
        closed_(memory),
        exits_(memory) {}
  void start(const Grammar& grammar, const TokenTrie& trie);  // takes the memory
  // Sets the bits of the tokens that stay inside. The terminal is no literal. The exits are valid until the next call.
  Exits add(const Terminal& terminal, uint32_t state, uint32_t* words);
  // Finds the masks of some states that take long, so that no draw has to wait for them.
  void warm();
  const SafeKinds& safe() const { return safe_; }
  std::mutex& lock() { return lock_; }
  // For tests and benchmarks: places that were walked from, and nodes that were looked at.
  uint64_t n_walks() const { return n_walks_; }
  uint64_t n_seen() const { return n_seen_; }

 private:
  // In data_, from `at` on: bits of all tokens that stay inside, where there are many; the tokens, in the order of the
  // texts they have, where there are few or they are counted, n_open of them, with, where they are counted, how many
  // have at most so many texts, [longest + 1]; pairs of tokens that end with the tail and their counts; pairs of exits.
  struct Slot {
    uint64_t terminal;
    uint32_t state, at;
    uint32_t n_words, n_open, n_closed, n_exits;
  };
  void walk(const Terminal& terminal, uint32_t state, Slot& slot);
  void walk_counted(const Terminal& terminal, uint32_t state, Slot& slot);
  bool is_wide(const Terminal& terminal, uint32_t state) const;
  uint32_t room() const {
    const uint32_t n = counts_.capacity();  // tokens, where something counts
    return 2 * trie_->n_words() + 3 * n + trie_->longest() + 1 + 2 * trie_->n_inner();
  }
  void put_list(Slot& slot);
  void put_exits(Slot& slot, uint32_t n);

  const Grammar* g_ = nullptr;
  const TokenTrie* trie_ = nullptr;
  PodVector<Slot> entries_;  // a table; at == kFree: none
  PodVector<uint32_t> data_;
  SafeKinds safe_;
  PodVector<uint32_t> states_, units_, characters_, open_, counts_, closed_, exits_;  // of a walk
  uint32_t n_entries_ = 0;
  uint64_t n_walks_ = 0, n_seen_ = 0;
  std::mutex lock_;
};

}  // namespace weir::constraint
