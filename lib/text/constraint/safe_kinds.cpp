// Kinds of bytes that are safe: the largest sets that the steps of an automaton keep, by length.
#include "text/constraint/safe_kinds.h"

#include <algorithm>
#include <bit>

namespace weir::constraint {

namespace {

constexpr uint32_t kMaxCells = 1u << 19;  // states by classes, of all automata
constexpr uint32_t kEscape = kind_of('\\');

// Well-formed characters of several bytes: of which of kWideKinds, how many bytes, ranges of them. The Unicode
// Standard, table 3-7.
constexpr uint8_t kForms[][10] = {{0, 2, 0xC2, 0xDF, 0x80, 0xBF},
                                  {2, 3, 0xE0, 0xE0, 0xA0, 0xBF, 0x80, 0xBF},
                                  {2, 3, 0xE1, 0xE1, 0x80, 0xBF, 0x80, 0xBF},
                                  {1, 3, 0xE2, 0xE2, 0x80, 0xBF, 0x80, 0xBF},
                                  {2, 3, 0xE3, 0xEC, 0x80, 0xBF, 0x80, 0xBF},
                                  {2, 3, 0xED, 0xED, 0x80, 0x9F, 0x80, 0xBF},
                                  {2, 3, 0xEE, 0xEF, 0x80, 0xBF, 0x80, 0xBF},
                                  {3, 4, 0xF0, 0xF0, 0x90, 0xBF, 0x80, 0xBF, 0x80, 0xBF},
                                  {3, 4, 0xF1, 0xF3, 0x80, 0xBF, 0x80, 0xBF, 0x80, 0xBF},
                                  {3, 4, 0xF4, 0xF4, 0x80, 0x8F, 0x80, 0xBF, 0x80, 0xBF}};

}  // namespace

// Whether every text of n ranges leads from the state to the same one, `to` where that is set.
bool SafeKinds::reads(const Terminal& t, uint32_t state, uint32_t n, const uint8_t* ranges, uint32_t& to) const {
  const char* classes = g_->classes(t);
  for (uint32_t byte = ranges[0]; byte <= ranges[1]; ++byte) {
    if (byte != ranges[0] && classes[byte] == classes[byte - 1]) continue;
    const uint32_t next = step(t, state, byte);
    if (next == 0 || (n > 1 && !reads(t, next, n - 1, ranges + 2, to))) return false;
    if (n > 1) continue;
    if (to != 0 && to != next) return false;
    to = next;
  }
  return true;
}

// Kinds of which one character can be read from the state, and the states behind the wide ones. A character that can
// only be the last one is left out: nothing would be left with which it can be mixed. `loops`: those that lead back to
// the state itself.
uint32_t SafeKinds::kinds_of(const Terminal& t, uint32_t state, uint32_t* behind, uint32_t& loops) const {
  const uint8_t wanted = t.kind == Terminal::kCounted ? Dfa::kAccepts : Dfa::kGoesOn;
  const auto is_good = [&](uint32_t to) { return (g_->state_flags(t)[to] & wanted) != 0; };  // 0 has no flags
  uint32_t bad = kEscape, leave = kEscape;
  for (uint32_t byte = 0; byte < 128; ++byte) {
    const uint32_t to = step(t, state, byte);
    if (!is_good(to)) bad |= kKindOfByte[byte];
    if (to != state) leave |= kKindOfByte[byte];
  }
  std::fill_n(behind, kWide, 0u);
  for (const auto& form : kForms) {
    uint32_t& to = behind[form[0]];
    const bool reads_it = reads(t, state, form[1], form + 2, to);
    if (!reads_it || !is_good(to)) bad |= kWideKinds[form[0]];
    if (!reads_it || to != state) leave |= kWideKinds[form[0]];
  }
  loops = (kAsciiKinds | kAllWideKinds) & ~(bad | leave);
  return (kAsciiKinds | kAllWideKinds) & ~bad;
}

// One byte more: leaves out, for each state, what another state does not have to which its kinds lead; or all that does
// not lead back to the state, where that leaves more. Whether anything changed. The latest level of the rows is the
// present one.
bool SafeKinds::narrow(const Terminal& t) {
  uint32_t* const rows = rows_.data() + rows_.size() - t.n * kLevels + kLevels - 1;
  uint32_t kinds[256] = {};  // of a class
  for (uint32_t byte = 0; byte < 128; ++byte) kinds[static_cast<uint8_t>(g_->classes(t)[byte])] |= kKindOfByte[byte];
  bool is_changed = false;
  for (uint32_t state = Dfa::kStart; state < t.n; ++state) {
    uint32_t& row = rows[state * kLevels];
    const uint32_t before = row;
    if (before == 0) continue;
    uint32_t left = before;
    for (uint32_t c = 0; c < t.n_classes; ++c) {
      if ((kinds[c] & before) != 0) left &= rows[g_->table(t)[state * t.n_classes + c] * kLevels];
    }
    for (uint32_t i = 0; i < kWide; ++i) {
      if ((kWideKinds[i] & before) != 0) left &= rows[ends_[state * kWide + i] * kLevels];
    }
    if (std::popcount(left) < std::popcount(loops_[state])) left = loops_[state];
    row = left;
    is_changed = is_changed || left != before;
  }
  return is_changed;
}

// A level holds for texts of up to 4, 8, 16 and 32 bytes, the last one for all.
void SafeKinds::add(const Terminal& t) {
  const uint32_t first = rows_.size();
  rows_.resize(first + t.n * kLevels, 0);
  ends_.clear();
  ends_.resize(t.n * kWide, 0);
  loops_.resize(t.n, 0);
  uint32_t* const rows = rows_.data() + first;
  for (uint32_t state = Dfa::kStart; state < t.n; ++state)
    rows[state * kLevels + kLevels - 1] = kinds_of(t, state, &ends_[state * kWide], loops_[state]);
  uint32_t level = 0;
  bool is_changed = true;
  for (uint32_t n_bytes = 1; level < kLevels - 1; ++n_bytes) {
    if (n_bytes == 4u << level || !is_changed) {
      for (uint32_t state = 0; state < t.n; ++state)
        rows[state * kLevels + level] = rows[state * kLevels + kLevels - 1];
      ++level;
    }
    is_changed = is_changed && narrow(t);
  }
  if (is_changed) {
    for (uint32_t state = 0; state < t.n; ++state) rows[state * kLevels + kLevels - 1] = loops_[state];
  }
}

void SafeKinds::start(const Grammar& grammar) {
  g_ = &grammar;
  firsts_.resize(grammar.n_terminals(), kNone);
  uint32_t n_cells = 0;
  for (uint32_t i = 0; i < grammar.n_terminals(); ++i) {
    const Terminal& t = grammar.terminal(i);
    if (t.kind == Terminal::kLiteral) continue;
    if (t.kind == Terminal::kCounted) {
      uint32_t behind[kWide], loops = 0;
      firsts_[i] = kinds_of(t, Dfa::kStart, behind, loops);
    } else if (t.n * t.n_classes <= kMaxCells - n_cells) {
      n_cells += t.n * t.n_classes;
      firsts_[i] = rows_.size();
      add(t);
    }
  }
}

bool SafeKinds::holds(const Terminal& t, uint32_t state, const TokenTrie::Node& node) const {
  if (t.kind == Terminal::kLiteral) return false;
  if (t.kind == Terminal::kDfa) {
    const uint32_t* const all = rows(t);
    return all != nullptr && (node.kinds & ~all[(state == 0 ? Dfa::kStart : state) * kLevels + node.level]) == 0;
  }
  if (state % t.n != 0 || (node.kinds & ~of_unit(t)) != 0 || node.level == kLevels - 1) return false;
  return t.max == kNoLimit || t.max - state / t.n >= 4u << node.level;
}

}  // namespace weir::constraint
