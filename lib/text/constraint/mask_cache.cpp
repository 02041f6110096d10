// Masks of terminals.
#include "text/constraint/mask_cache.h"

#include <algorithm>
#include <bit>

namespace weir::constraint {

namespace {

constexpr uint32_t kSlots = 4096;
constexpr uint32_t kWideEntries = 128;  // that there is room for, beside the largest possible
constexpr uint32_t kFree = UINT32_MAX;
constexpr uint32_t kMaxWarm = 8;
constexpr int kManyKinds = 20;  // of 29

void set(uint32_t* words, uint32_t token) { words[token / 32] |= 1u << (token % 32); }

}  // namespace

void MaskCache::start(const Grammar& grammar, const TokenTrie& trie) {
  g_ = &grammar;
  trie_ = &trie;
  safe_.start(grammar);
  entries_.resize(kSlots, {0, 0, kFree, 0, 0, 0, 0});
  states_.resize(trie.longest() + 1);
  bool counts = false;
  for (uint32_t i = 0; i < grammar.n_terminals(); ++i) counts |= grammar.terminal(i).kind == Terminal::kCounted;
  if (counts) {
    units_.resize(trie.longest() + 1);
    characters_.resize(trie.longest() + 1);
    counts_.reserve(trie.vocab_size());
    closed_.reserve(2 * trie.vocab_size());
  }
  open_.reserve(trie.vocab_size());
  exits_.resize(2 * trie.n_inner());
  data_.reserve(2 * room() + kWideEntries * trie.n_words());
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
  const uint32_t* closed = tokens + slot.n_open + (counts ? trie_->longest() + 1 : 0);
  Exits exits;
  exits.pairs = {closed + 2 * slot.n_closed, 2 * slot.n_exits};
  if (counts) {
    // A text that has begun counts already.
    const uint32_t n = state / terminal.n + (place != 0 ? 1 : 0);
    exits.least = terminal.min - std::min(terminal.min, n);
    exits.most = terminal.max == kNoLimit ? kNoLimit : terminal.max - n;
    for (uint32_t i = 0; i < slot.n_closed; ++i) {
      if (closed[2 * i + 1] >= exits.least && closed[2 * i + 1] <= exits.most) set(words, closed[2 * i]);
    }
    if (exits.most < trie_->longest()) {
      const uint32_t n_tokens = tokens[slot.n_open + exits.most];
      if (n_tokens < slot.n_open / 2) {
        for (uint32_t i = 0; i < n_tokens; ++i) set(words, tokens[i]);
        return exits;
      }
      // All but those that are too long, unless something else has set them.
      open_.clear();
      for (uint32_t i = n_tokens; i < slot.n_open; ++i) {
        if ((words[tokens[i] / 32] >> (tokens[i] % 32) & 1) == 0) open_.push_back(tokens[i]);
      }
      for (uint32_t w = 0; w < slot.n_words; ++w) words[w] |= data[w];
      for (const uint32_t token : open_) words[token / 32] &= ~(1u << (token % 32));
      return exits;
    }
  } else if (slot.n_words == 0) {
    for (uint32_t i = 0; i < slot.n_open; ++i) set(words, tokens[i]);
  }
  for (uint32_t w = 0; w < slot.n_words; ++w) words[w] |= data[w];
  return exits;
}

// The loop that takes the time of it all.
void MaskCache::walk(const Terminal& terminal, uint32_t state, Slot& slot) {
  const uint16_t* const table = g_->table(terminal);
  const char *const classes = g_->classes(terminal), *const flags = g_->state_flags(terminal);
  const uint32_t n_classes = terminal.n_classes, n = trie_->n_nodes();
  const uint32_t* const safe = safe_.rows(terminal);
  uint32_t *const states = states_.data(), *const exits = exits_.data();
  slot.n_words = trie_->n_words();
  data_.resize(slot.at + slot.n_words, 0);
  uint32_t* const words = data_.data() + slot.at;
  uint32_t n_open = 0, n_exits = 0, n_seen = 0;
  states[0] = state == 0 ? Dfa::kStart : state;
  for (uint32_t i = 1; i < n; ++n_seen) {
    const TokenTrie::Node& node = trie_->node(i);
    const uint32_t from = states[node.depth - 1];
    const bool is_leaf = node.end == i + 1;
    if (safe != nullptr && !is_leaf) {
      // What goes on behind an end in there is in there, too.
      if ((node.kinds & ~safe[from * SafeKinds::kLevels + node.level]) == 0) {
        const std::span<const weir_token> tokens = trie_->tokens_from(i);
        for (const weir_token token : tokens) set(words, static_cast<uint32_t>(token));
        n_open += static_cast<uint32_t>(tokens.size());
        i = node.end;
        continue;
      }
    }
    const uint32_t to = table[from * n_classes + static_cast<uint8_t>(classes[node.byte])];
    if (to == 0) {
      i = node.end;
      continue;
    }
    for (const weir_token token : trie_->tokens(i)) {
      set(words, static_cast<uint32_t>(token));
      ++n_open;
    }
    states[node.depth] = to;
    if (is_leaf) {
      ++i;
      continue;
    }
    if ((flags[to] & Dfa::kAccepts) != 0) {
      exits[n_exits++] = i;
      exits[n_exits++] = 0;
    }
    i = (flags[to] & Dfa::kGoesOn) != 0 ? i + 1 : node.end;
  }
  n_seen_ += n_seen;
  if (n_open <= slot.n_words) put_list(slot);
  put_exits(slot, n_exits);
}

// Puts a list of tokens in the place of their bits.
void MaskCache::put_list(Slot& slot) {
  const uint32_t* const words = data_.data() + slot.at;
  open_.clear();
  for (uint32_t w = 0; w < slot.n_words; ++w) {
    for (uint32_t left = words[w]; left != 0; left &= left - 1)
      open_.push_back(32 * w + static_cast<uint32_t>(std::countr_zero(left)));
  }
  slot.n_words = 0;
  slot.n_open = open_.size();
  data_.resize(slot.at);
  data_.append(open_.data(), open_.size());
}

// Whether more than half of all bytes lead on, so that a walk sees most of the tree.
bool MaskCache::is_wide(const Terminal& t, uint32_t state) const {
  uint32_t n_alive = 0;
  for (uint32_t byte = 0; byte < 256; ++byte)
    n_alive += g_->table(t)[state * t.n_classes + static_cast<uint8_t>(g_->classes(t)[byte])] != 0 ? 1 : 0;
  return n_alive > 128;
}

// First what counts, then what no kinds of bytes make quick.
void MaskCache::warm() {
  PodVector<uint32_t> words(data_.memory());
  words.resize(trie_->n_words(), 0);
  uint32_t n_left = kMaxWarm;
  for (int turn = 0; turn < 3; ++turn) {
    for (uint32_t i = 0; i < g_->n_terminals() && n_left != 0; ++i) {
      const Terminal& t = g_->terminal(i);
      if (t.kind == Terminal::kLiteral || (t.kind == Terminal::kCounted) != (turn == 0)) continue;
      const uint32_t* const safe = turn == 0 ? nullptr : safe_.rows(t);
      for (uint32_t state = Dfa::kStart; state < t.n && n_left != 0; ++state) {
        const bool is_quick = safe != nullptr && std::popcount(safe[state * SafeKinds::kLevels]) > kManyKinds;
        if ((turn != 0 && is_quick != (turn == 2)) || !is_wide(t, state)) continue;
        const uint64_t before = n_walks_;
        add(t, state == Dfa::kStart ? 0 : state, words.data());
        n_left -= n_walks_ != before ? 1 : 0;
      }
    }
  }
}

void MaskCache::put_exits(Slot& slot, uint32_t n) {
  slot.n_exits = n / 2;
  data_.append(exits_.data(), n);
}

// Without the limits of the count, which the user of the entry looks at.
void MaskCache::walk_counted(const Terminal& terminal, uint32_t state, Slot& slot) {
  states_[0] = state;
  units_[0] = 0;
  characters_[0] = 0;
  open_.clear();
  closed_.clear();
  counts_.clear();
  const uint32_t n = trie_->n_nodes();
  uint32_t n_exits = 0, n_seen = 0;
  const bool has_tail = terminal.tail != Terminal::kNoTail;
  // Where each node below is an exit, its texts are counted by its depth.
  const uint32_t safe = safe_.of_unit(terminal) & (has_tail ? UINT32_MAX : kAsciiKinds);
  for (uint32_t i = 1; i < n; ++n_seen) {
    const TokenTrie::Node& node = trie_->node(i);
    const uint32_t from = states_[node.depth - 1], before = units_[node.depth - 1];
    if (from == 0 && node.end != i + 1 && (node.kinds & ~safe) == 0) {
      const uint32_t n_behind = before - characters_[node.depth - 1];
      const uint8_t* n_characters = trie_->n_characters_from(i);
      for (const weir_token token : trie_->tokens_from(i)) {
        open_.push_back(static_cast<uint32_t>(token));
        counts_.push_back(n_behind + *n_characters++);
      }
      if (!has_tail) {
        exits_[n_exits++] = i | Exits::kAll;
        exits_[n_exits++] = before - (node.depth - 1);
      }
      i = node.end;
      continue;
    }
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
    characters_[node.depth] = characters_[node.depth - 1] + ((node.byte & 0xC0) != 0x80 ? 1 : 0);
    if (node.end != i + 1 && (has_tail ? is_tail : to == 0)) {
      exits_[n_exits++] = i;
      exits_[n_exits++] = units;
    }
    i = is_tail ? node.end : i + 1;
  }
  n_seen_ += n_seen;
  slot.n_words = trie_->n_words();
  data_.resize(slot.at + slot.n_words, 0);
  uint32_t* const words = data_.data() + slot.at;
  for (const uint32_t token : open_) set(words, token);
  slot.n_open = open_.size();
  slot.n_closed = closed_.size() / 2;
  // Sorted by counts: where those of a count begin becomes where they end.
  const uint32_t first = data_.size(), n_counts = trie_->longest() + 1;
  data_.resize(first + slot.n_open + n_counts, 0);
  uint32_t *const tokens = data_.data() + first, *const ends = tokens + slot.n_open;
  for (const uint32_t units : counts_) {
    if (units + 1 < n_counts) ++ends[units + 1];
  }
  for (uint32_t u = 1; u < n_counts; ++u) ends[u] += ends[u - 1];
  for (uint32_t i = 0; i < slot.n_open; ++i) tokens[ends[counts_[i]]++] = open_[i];
  data_.append(closed_.data(), closed_.size());
  put_exits(slot, n_exits);
}

}  // namespace weir::constraint
