// Masks of terminals.
#include "text/constraint/mask_cache.h"

#include <algorithm>

namespace weir::constraint {

namespace {

constexpr uint32_t kSlots = 4096;
constexpr uint32_t kWideEntries = 128;  // that there is room for, beside the largest possible
constexpr uint32_t kFree = UINT32_MAX;
constexpr uint32_t kMostWarm = 8;

void set(uint32_t* words, uint32_t token) { words[token / 32] |= 1u << (token % 32); }

}  // namespace

void MaskCache::start(const Grammar& grammar, const TokenTrie& trie) {
  g_ = &grammar;
  trie_ = &trie;
  entries_.resize(kSlots, {0, 0, kFree, 0, 0, 0, 0});
  data_.reserve(2 * room() + kWideEntries * trie.n_words());
  states_.resize(trie.longest() + 1);
  units_.resize(trie.longest() + 1);
  firsts_.resize(trie.longest() + 2);
  open_.reserve(trie.vocab_size());
  counts_.reserve(trie.vocab_size());
  closed_.reserve(2 * trie.vocab_size());
  exits_.reserve(2 * trie.n_nodes());
}

MaskCache::Exits MaskCache::add(const Terminal& terminal, uint32_t state, uint32_t* words) {
  const bool counts = terminal.kind == Terminal::kCounted;
  const uint64_t table = uint64_t{terminal.next} << 10 | static_cast<uint32_t>(counts ? terminal.tail + 2 : 0);
  const uint32_t place = counts ? state % terminal.n : state;
  const auto home = static_cast<uint32_t>(((table * 0x9e3779b97f4a7c15u) ^ place) * 0x9e3779b97f4a7c15u >> 52);
  const auto slot_of = [&] {
    uint32_t at = home;
    while (entries_[at].at != kFree && (entries_[at].terminal != table || entries_[at].state != place))
      at = (at + 1) % kSlots;
    return at;
  };
  uint32_t at = slot_of();
  if (entries_[at].at == kFree) {
    if (n_entries_ >= kSlots / 2 || data_.size() + room() > data_.capacity()) {
      for (Slot& slot : entries_) slot.at = kFree;
      data_.clear();
      n_entries_ = 0;
      at = home;
    }
    entries_[at] = {table, place, data_.size(), 0, 0, 0, 0};
    ++n_entries_;
    ++n_walks_;
    if (counts) {
      walk_counted(terminal, place, entries_[at]);
    } else {
      walk(terminal, place, entries_[at]);
    }
  }
  const Slot& slot = entries_[at];
  const uint32_t* data = data_.data() + slot.at;
  const uint32_t* tokens = data + slot.n_words;
  const uint32_t* closed = tokens + (counts ? 2 : 1) * slot.n_open;
  Exits exits;
  exits.pairs = {closed + 2 * slot.n_closed, 2 * slot.n_exits};
  if (counts) {
    // A text that has begun counts already.
    const uint32_t n = state / terminal.n + (place != 0 ? 1 : 0);
    exits.least = terminal.min - std::min(terminal.min, n);
    exits.most = terminal.max == kNoLimit ? kNoLimit : terminal.max - n;
    const uint32_t* units = tokens + slot.n_open;
    for (uint32_t i = 0; i < slot.n_closed; ++i) {
      if (closed[2 * i + 1] >= exits.least && closed[2 * i + 1] <= exits.most) set(words, closed[2 * i]);
    }
    if (exits.most < trie_->longest()) {
      for (uint32_t i = 0; i < slot.n_open && units[i] <= exits.most; ++i) set(words, tokens[i]);
      return exits;
    }
  } else if (slot.n_words == 0) {
    for (uint32_t i = 0; i < slot.n_open; ++i) set(words, tokens[i]);
  }
  for (uint32_t w = 0; w < slot.n_words; ++w) words[w] |= data[w];
  return exits;
}

// Bits of the tokens in open_.
void MaskCache::put_words(Slot& slot) {
  slot.n_words = trie_->n_words();
  data_.resize(slot.at + slot.n_words, 0);
  for (const uint32_t token : open_) set(data_.data() + slot.at, token);
}

// The loop that takes the time of it all.
void MaskCache::walk(const Terminal& terminal, uint32_t state, Slot& slot) {
  const uint16_t* const table = g_->table(terminal);
  const char *const classes = g_->classes(terminal), *const flags = g_->state_flags(terminal);
  const uint32_t n_classes = terminal.n_classes, n = trie_->n_nodes();
  uint32_t* const states = states_.data();
  states[0] = state == 0 ? Dfa::kStart : state;
  open_.clear();
  for (uint32_t i = 1; i < n;) {
    const TokenTrie::Node& node = trie_->node(i);
    const uint32_t to = table[states[node.depth - 1] * n_classes + static_cast<uint8_t>(classes[node.byte])];
    if (to == 0) {
      i = node.end;
      continue;
    }
    for (const weir_token token : trie_->tokens(i)) open_.push_back(static_cast<uint32_t>(token));
    states[node.depth] = to;
    if (node.end == i + 1) {
      ++i;
      continue;
    }
    if ((flags[to] & Dfa::kAccepts) != 0) {
      exits_.push_back(i);
      exits_.push_back(0);
    }
    i = (flags[to] & Dfa::kGoesOn) != 0 ? i + 1 : node.end;
  }
  if (open_.size() > trie_->n_words()) {
    put_words(slot);
  } else {
    slot.n_open = open_.size();
    data_.append(open_.data(), open_.size());
  }
  put_exits(slot);
}

// Whether more than half of all bytes lead on, so that a walk sees most of the tree.
bool MaskCache::is_wide(const Terminal& t, uint32_t state) const {
  uint32_t n_alive = 0;
  for (uint32_t byte = 0; byte < 256; ++byte)
    n_alive += g_->table(t)[state * t.n_classes + static_cast<uint8_t>(g_->classes(t)[byte])] != 0 ? 1 : 0;
  return n_alive > 128;
}

void MaskCache::warm() {
  PodVector<uint32_t> words(data_.memory());
  words.resize(trie_->n_words(), 0);
  uint32_t n_left = kMostWarm;
  for (uint32_t i = 0; i < g_->n_terminals() && n_left != 0; ++i) {
    const Terminal& t = g_->terminal(i);
    if (t.kind == Terminal::kLiteral) continue;
    for (uint32_t state = Dfa::kStart; state < t.n && n_left != 0; ++state) {
      if (!is_wide(t, state)) continue;
      const uint64_t before = n_walks_;
      add(t, state == Dfa::kStart ? 0 : state, words.data());
      n_left -= n_walks_ != before ? 1 : 0;
    }
  }
}

void MaskCache::put_exits(Slot& slot) {
  slot.n_exits = exits_.size() / 2;
  data_.append(exits_.data(), exits_.size());
  exits_.clear();
}

// Without the limits of the count, which the user of the entry looks at.
void MaskCache::walk_counted(const Terminal& terminal, uint32_t state, Slot& slot) {
  states_[0] = state;
  units_[0] = 0;
  open_.clear();
  closed_.clear();
  counts_.clear();
  const uint32_t n = trie_->n_nodes();
  const bool has_tail = terminal.tail != Terminal::kNoTail;
  for (uint32_t i = 1; i < n;) {
    const TokenTrie::Node& node = trie_->node(i);
    const uint32_t from = states_[node.depth - 1], before = units_[node.depth - 1];
    const bool is_tail = from == 0 && has_tail && node.byte == terminal.tail;
    const uint32_t to = is_tail ? 0 : g_->step_unit(terminal, from, node.byte);
    if (to == Terminal::kDead) {
      i = node.end;
      continue;
    }
    const uint32_t units = before + (from == 0 && !is_tail ? 1 : 0);
    for (const weir_token token : trie_->tokens(i)) {
      PodVector<uint32_t>& list = is_tail ? closed_ : open_;
      list.push_back(static_cast<uint32_t>(token));
      (is_tail ? closed_ : counts_).push_back(units);
    }
    states_[node.depth] = to;
    units_[node.depth] = units;
    if (node.end != i + 1 && (has_tail ? is_tail : to == 0)) {
      exits_.push_back(i);
      exits_.push_back(units);
    }
    i = is_tail ? node.end : i + 1;
  }
  put_words(slot);
  slot.n_open = open_.size();
  slot.n_closed = closed_.size() / 2;
  // Sorted by counts.
  const uint32_t first = data_.size();
  data_.resize(first + 2 * slot.n_open);
  std::fill(firsts_.begin(), firsts_.end(), 0u);
  for (const uint32_t units : counts_) ++firsts_[units + 1];
  for (uint32_t u = 1; u < firsts_.size(); ++u) firsts_[u] += firsts_[u - 1];
  for (uint32_t i = 0; i < slot.n_open; ++i) {
    const uint32_t to = firsts_[counts_[i]]++;
    data_[first + to] = open_[i];
    data_[first + slot.n_open + to] = counts_[i];
  }
  data_.append(closed_.data(), closed_.size());
  put_exits(slot);
}

}  // namespace weir::constraint
