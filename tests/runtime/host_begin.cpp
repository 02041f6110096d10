// The kernel of the test module that begins a decode step, in plain C++ from StepBeginArgs and StepRules: which pages
// leave, room for the token, its rotation. The host's half of the same is make_room (lib/policy/room.h).
#include <algorithm>
#include <cmath>
#include <tuple>

#include "tests/runtime/host_kernels.h"
#include "tests/runtime/host_queue.h"

namespace weir::host_module {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

// A stream's part of the tables.
struct Stream {
  Stream(const KvTables& tables, uint32_t index)
      : t(tables),
        index(index),
        first(t.row_begin[index]),
        capacity(t.row_begin[index + 1] - t.row_begin[index]),
        n(t.n_pages[index]) {}
  uint32_t flags(uint32_t row) const { return t.flags[first + row]; }
  uint32_t pos(uint32_t row) const { return t.first_pos[first + row]; }
  uint32_t stamp(uint32_t row) const { return t.stamp[first + row]; }
  bool is_there(uint32_t row) const { return t.slots[first + row] != kNoSlot; }
  uint32_t n_slots() const { return t.slot_begin[index + 1] - t.slot_begin[index]; }
  // Pages that have slots.
  uint32_t n_there() const { return t.n_resident != nullptr ? t.n_resident[index] : n; }
  uint64_t end(uint32_t row) const { return uint64_t{pos(row)} + t.len[first + row]; }
  float score(uint32_t row) const {
    const float score = t.last_score[first + row];
    return std::isnan(score) ? -INFINITY : score;
  }
  bool is_filling(uint32_t row) const { return row + 1 == n && t.len[first + row] < kPageTokens; }
  bool stays(uint32_t row) const { return (flags(row) & kPageStays) != 0; }

  const KvTables& t;
  uint32_t index, first, capacity, n;
};

struct Room {
  uint32_t pos, opens;
  bool is_full(const Stream& s) const { return s.n + opens > s.capacity; }
};

// The row before `end` that may leave and has the least key, the lower one of equals.
template <class May, class Key>
uint32_t min_row(uint32_t end, const May& may, const Key& key) {
  uint32_t best = kNone;
  for (uint32_t row = 0; row < end; ++row) {
    if (may(row) && (best == kNone || key(row) < key(best))) best = row;
  }
  return best;
}

uint32_t window_victim(const StepRules& rules, const Stream& s, const Room& room) {
  uint32_t row = rules.front_rows;
  while (row < s.n && s.stays(row)) ++row;
  if (row >= s.n) return kNone;
  const bool is_past = rules.window_tokens != 0 && row + 1 < s.n && s.end(row) + rules.window_tokens <= room.pos + 1;
  return room.is_full(s) || is_past ? row : kNone;
}

// The pages of the answer may have a budget of their own (decode_pages); then pages of the prompt leave only when the
// stream is full.
uint32_t stalest_victim(const StepRules& rules, const Stream& s, const Room& room) {
  const bool is_full = room.is_full(s);
  if (!is_full && rules.decode_pages == 0) return kNone;
  uint32_t n_prompt = 0, n_free = 0;
  const uint32_t stays = is_full ? kPageStays : kPageStays | kPagePrompt;
  for (uint32_t row = 0; row < s.n; ++row) {
    n_prompt += (s.flags(row) & kPagePrompt) != 0 ? 1 : 0;
    n_free += (s.flags(row) & stays) == 0 ? 1 : 0;
  }
  const uint32_t n_answer = s.n + room.opens - n_prompt;
  const uint32_t most = n_prompt <= rules.whole_prompt_pages ? rules.all_pages - n_prompt : rules.decode_pages;
  if (!is_full && (s.n + room.opens <= rules.decode_pages || n_answer <= most)) return kNone;
  if (n_free == 0) return kNone;
  uint32_t left = n_free - protected_pages(rules.protect, n_free);
  const auto is_candidate = [&](uint32_t row) {
    if ((s.flags(row) & stays) != 0 || left == 0) return false;
    --left;
    return !s.is_filling(row);
  };
  return min_row(s.n, is_candidate, [&](uint32_t row) { return std::tuple(s.stamp(row), s.score(row)); });
}

uint32_t lightest_victim(const StepRules& rules, const Stream& s, const Room& room) {
  const auto weight = [&](uint32_t row) {
    const uint32_t steps = room.pos + 1 > s.stamp(row) ? room.pos + 1 - s.stamp(row) : 1;
    return rules.per_step ? s.score(row) / static_cast<float>(steps) : s.score(row);
  };
  const auto is_old = [&](uint32_t row) { return !s.stays(row) && s.end(row) + rules.recent_tokens <= room.pos; };
  const uint32_t row = min_row(s.n - 1, is_old, weight);
  return row != kNone ? row
                      : min_row(
                            s.n - 1, [&](uint32_t r) { return !s.stays(r); }, weight);
}

// With recall, of the pages in the pool. Prompts may have slots of their own: the part that has more than its slots
// gives, as long as it can.
uint32_t cold_victim(const StepRules& rules, const Stream& s) {
  const auto is_prompt = [&](uint32_t row) { return rules.prompt_slots != 0 && (s.flags(row) & kPagePrompt) != 0; };
  uint32_t n_sealed = 0, n_there = 0;
  for (uint32_t row = 0; row + 1 < s.n; ++row) {
    n_sealed += is_prompt(row) ? 1 : 0;
    n_there += is_prompt(row) && s.is_there(row) ? 1 : 0;
  }
  const bool prompt_gives = n_there > std::min(n_sealed, rules.prompt_slots);
  for (const uint32_t n_protected : {rules.protect.pages, 0u}) {
    const uint32_t end = s.n - std::min(s.n, 1 + n_protected);
    for (const bool of_prompt : {prompt_gives, !prompt_gives}) {
      const auto may = [&](uint32_t row) {
        return row >= rules.front_rows && s.is_there(row) && !s.stays(row) && is_prompt(row) == of_prompt;
      };
      const uint32_t row = min_row(end, may, [&](uint32_t r) { return std::tuple(s.stamp(r), s.score(r)); });
      if (row != kNone) return row;
    }
  }
  return kNone;
}

uint32_t victim(const StepRules& rules, const Stream& s, const Room& room) {
  const auto may = [&](uint32_t row) { return !s.stays(row); };
  if (s.n == 0) return kNone;
  switch (rules.victim) {
    case VictimRule::kNever:
      return kNone;
    case VictimRule::kCold:
      return s.n_there() + room.opens > s.n_slots() ? cold_victim(rules, s) : kNone;
    case VictimRule::kWindow:
      return window_victim(rules, s, room);
    case VictimRule::kStalest:
      return stalest_victim(rules, s, room);
    case VictimRule::kLightest:
      return room.is_full(s) ? lightest_victim(rules, s, room) : kNone;
    case VictimRule::kMarked:
      if (!room.is_full(s)) return kNone;
      return min_row(s.n - 1, may,
                     [&](uint32_t row) { return std::tuple(-int64_t{s.stamp(row) - s.pos(row) - 1}, s.score(row)); });
    case VictimRule::kRandom:
      if (!room.is_full(s)) return kNone;
      return min_row(s.n - 1, may,
                     [&](uint32_t row) { return random_order(rules.seed, s.index, room.pos, s.pos(row)); });
  }
  return kNone;
}

void remove_row(const Stream& s, uint32_t row) {
  const KvTables& t = s.t;
  t.free_slots[t.slot_begin[s.index + 1] - s.n_there()] = t.slots[s.first + row];
  for (uint32_t at = s.first + row; at + 1 < s.first + s.n; ++at) {
    t.slots[at] = t.slots[at + 1];
    t.first_pos[at] = t.first_pos[at + 1];
    t.len[at] = t.len[at + 1];
    t.flags[at] = t.flags[at + 1];
    t.stamp[at] = t.stamp[at + 1];
    t.last_score[at] = t.last_score[at + 1];
    if (t.prompt_score != nullptr) t.prompt_score[at] = t.prompt_score[at + 1];
  }
  --t.n_pages[s.index];
  if (t.n_resident != nullptr) --t.n_resident[s.index];
}

// With recall a page keeps its row.
void make_cold(const StepBeginArgs& a, const Stream& s, uint32_t row) {
  const KvTables& t = s.t;
  t.free_slots[t.slot_begin[s.index + 1] - s.n_there()] = t.slots[s.first + row];
  t.slots[s.first + row] = kNoSlot;
  mark_row(a.resident, a.max_capacity, s.index, row, false);
  --t.n_resident[s.index];
  const bool is_lost = a.raw_index[s.first + row] == kNoCopy;
  ++(is_lost ? a.state->pages_lost : a.state->pages_cold);
  if (is_lost && a.digests != nullptr)
    spoil_digest(a.digests + size_t{s.first + row} * a.digest_elements, a.digest_elements);
}

void record_event(const StepBeginArgs& a, const Stream& s, uint32_t row, uint32_t pos) {
  const uint64_t index = a.state->pages_evicted++;
  if (index - a.state->pages_evicted_before >= a.events.capacity) return;
  const uint32_t n = a.tables.n_kv_heads;
  seen(a.events.events)[index % a.events.capacity] = {
      index, s.index / n, s.index % n, s.pos(row), a.tables.len[s.first + row], s.flags(row), pos};
}

void make_room(const StepBeginArgs& a, uint32_t index, const Room& room) {
  for (;;) {
    const Stream s(a.tables, index);
    const uint32_t row = victim(a.rules, s, room);
    if (row == kNone || s.is_filling(row)) return;
    record_event(a, s, row, room.pos);
    if ((s.flags(row) & kPagePrompt) != 0) ++a.state->prompt_pages_evicted;
    --a.state->pages_resident;
    a.rules.victim == VictimRule::kCold ? make_cold(a, s, row) : remove_row(s, row);
  }
}

void slide(const StepBeginArgs& a, uint32_t index, uint32_t pos) {
  for (;;) {
    const Stream s(a.tables, index);
    if (s.n == 0 || s.is_filling(0) || s.end(0) + a.tables.window[index] > uint64_t{pos} + 1) return;
    --a.state->pages_resident;
    remove_row(s, 0);
  }
}

void reserve(const StepBeginArgs& a, uint32_t index, const Room& room) {
  const KvTables& t = a.tables;
  const Stream s(t, index);
  if (room.opens == 0) {
    ++t.len[s.first + s.n - 1];
    t.append_row[index] = s.n - 1;
    return;
  }
  if (s.n == s.capacity || s.n_there() == s.n_slots()) {
    ++a.state->n_without_room;
    return;
  }
  const uint32_t row = s.first + s.n;
  t.slots[row] = t.free_slots[t.slot_begin[index + 1] - 1 - s.n_there()];
  t.first_pos[row] = room.pos;
  t.len[row] = 1;
  t.flags[row] = 0;
  t.stamp[row] = room.pos + 1;
  t.last_score[row] = 0.0f;
  if (t.prompt_score != nullptr) t.prompt_score[row] = 0.0f;
  t.append_row[index] = s.n;
  t.n_pages[index] = s.n + 1;
  if (t.n_resident != nullptr) ++t.n_resident[index];
  if (a.resident != nullptr) mark_row(a.resident, a.max_capacity, index, s.n, true);
  ++a.state->pages_resident;
}

void fill_rotation(const StepBeginArgs& a, uint32_t pos, float* cos_sin) {
  const uint32_t half = a.rope_dim / 2;
  for (uint32_t i = 0; i < a.n_rotations * half; ++i) {
    float* const pair = cos_sin + size_t{i / half} * a.stride + 2 * (i % half);
    const double angle = static_cast<double>(pos) * a.angles[i];
    pair[0] = static_cast<float>(std::cos(angle) * a.magnitude[i / half]);
    pair[1] = static_cast<float>(std::sin(angle) * a.magnitude[i / half]);
  }
}

// Where the front rows see the query.
uint32_t in_cache_pos(const StepBeginArgs& a, uint32_t pos) {
  if (a.rules.in_cache_limit != 0) return std::min(pos, a.rules.in_cache_limit);
  const Stream s(a.tables, a.tables.ruled_stream);
  const uint32_t front = a.rules.front_rows;
  return s.n <= front ? pos : pos - (s.pos(front) - front * kPageTokens);
}

}  // namespace

Status step_begin(OpContext&, const StepBeginArgs& a) {
  WEIR_TRY(expect_zero(a.counter, 1, "step_begin"));
  StepState& state = *a.state;
  const uint32_t pos = state.n_tokens;
  const Room room = {pos, pos % kPageTokens == 0 ? 1u : 0u};
  state.pages_attended = 0;
  for (uint32_t s = 0; s < n_streams(a.tables); ++s) {
    const uint32_t window = a.tables.has_windows ? a.tables.window[s] : 0;
    window != 0 ? slide(a, s, pos) : make_room(a, s, room);
    reserve(a, s, room);
  }
  state.pages_resident_max = std::max(state.pages_resident_max, state.pages_resident);
  state.pages_evicted_before = state.pages_evicted;
  fill_rotation(a, pos, a.cos_sin);
  if (a.rules.in_cache_pos && a.cos_sin_sink != nullptr) fill_rotation(a, in_cache_pos(a, pos), a.cos_sin_sink);
  return {};
}

}  // namespace weir::host_module
