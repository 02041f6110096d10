// Follows a text through a grammar, byte by byte, all ways at once. A state is a set of places in terminals, each with
// the rules that are open around it; rules that are opened by several callers at the same byte are open once, so
// that no ambiguity multiplies. States and lists of callers are kept once and known by number, what follows a state is
// remembered, and all of it is in memory that is taken once: when it is full, all but the present state is dropped.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>

#include "core/pod_vector.h"
#include "text/constraint/grammar.h"
#include "text/constraint/mask_cache.h"
#include "text/constraint/token_trie.h"
#include "text/constraint/word_sets.h"

namespace weir::constraint {

class Matcher {
 public:
  static constexpr uint32_t kDead = 0;

  // Takes its memory, about 2.6 MB; the grammar stays where it is.
  Matcher(const Grammar& grammar, std::pmr::memory_resource* memory);

  void reset();                          // to the beginning of a text
  void copy_from(const Matcher& other);  // of the same grammar
  // The next bytes of the text.
  void advance(std::string_view bytes);
  bool is_dead() const { return at_ == kDead; }
  bool is_complete() const { return !is_full_ && configs_[at_][0] != 0; }
  bool goes_on() const { return configs_[at_].size() > 1; }  // more bytes are possible
  // The text needed more states than there is room for: nothing is known of it any more.
  bool is_full() const { return is_full_; }
  // Sets the bits of the tokens that may come next, the ends of generation where the text is complete; clears others.
  void mask(const TokenTrie& trie, MaskCache& cache, uint32_t* words);

 private:
  struct Item {
    uint32_t edge, state, frame;
  };
  struct Parent {
    uint32_t node, frame, next;
  };
  struct Place {
    uint32_t node, frame;
  };

  uint32_t step(uint32_t config, uint8_t byte);
  uint32_t compute_step(uint32_t config, uint8_t byte);
  uint32_t follow(uint32_t node, uint32_t frame);  // the state there, as if a terminal had ended
  void begin_items();
  void put_place(uint32_t node, uint32_t frame);
  void close();
  void visit(const Place& place);
  void open_rule(uint32_t rule, const Place& caller);
  void finish_frames();
  uint32_t finish_items();
  void finish_frame(uint32_t opened);
  uint32_t final_frame(uint32_t frame) const { return (frame & kOpen) != 0 ? finals_[frame & ~kOpen] : frame; }
  bool has_room() const;
  void collect();
  void clear();
  void forget_steps();
  static void set(uint32_t* words, weir_token token) {
    words[static_cast<uint32_t>(token) / 32] |= 1u << (static_cast<uint32_t>(token) % 32);
  }
  bool mask_once(const TokenTrie& trie, MaskCache& cache, uint32_t* words);
  // A state that follows, and the kinds of bytes with which it can go on.
  struct Behind {
    uint32_t config, kinds;
  };
  Behind behind(const Item& item);
  bool is_safe(const SafeKinds& safe, uint32_t config, const TokenTrie::Node& node) const;
  void mask_literal(const TokenTrie& trie, const SafeKinds& safe, const Item& item, uint32_t* words);
  void mask_exits(const TokenTrie& trie, const SafeKinds& safe, const MaskCache::Exits& exits, const Behind& behind,
                  uint32_t* words);
  void mask_below(const TokenTrie& trie, const SafeKinds& safe, uint32_t node, const Behind& behind, uint32_t* words);

  static constexpr uint32_t kOpen = 0x80000000u;  // of a frame: opened at this byte, not final
  static constexpr uint32_t kTail = UINT32_MAX;   // of a caller: its own callers are meant

  const Grammar& g_;
  uint32_t at_ = kDead, start_ = kDead;
  bool is_full_ = false;
  WordSets frames_;   // pairs: node to go on at, frame around it; 0: of the root
  WordSets configs_;  // whether it is complete, then edge, state, frame of each item; 0: dead
  PodVector<uint32_t> step_keys_, step_values_;
  uint32_t n_steps_ = 0;
  // While a state is built:
  bool complete_ = false;
  PodVector<Item> items_;
  PodVector<Place> work_;
  PodVector<Place> seen_;
  PodVector<uint32_t> seen_stamps_;
  uint32_t stamp_ = 0, n_seen_ = 0;
  PodVector<uint32_t> opened_;     // rules
  PodVector<uint32_t> opened_at_;  // [rules]: number in opened_, where the stamp is right
  PodVector<uint32_t> rule_stamps_;
  PodVector<uint32_t> callers_;  // of each of opened_: the latest of parents_
  PodVector<Parent> parents_;
  PodVector<uint32_t> finals_, order_, list_;
  PodVector<uint64_t> items_of_frame_;
  PodVector<uint32_t> marks_;  // of frames
  PodVector<uint32_t> way_;    // states on the way down the tree of tokens
};

}  // namespace weir::constraint
