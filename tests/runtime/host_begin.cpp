// The kernel of the test module that begins a decode step, in plain C++ from StepBeginArgs: pages leave, by
// choose_victim, there is room for the token, and its rotation. The host's half of the same is make_room
// (lib/policy/room.h).
#include <algorithm>
#include <cmath>

#include "device/kernels/step_begin.h"
#include "kv/left_sums.h"
#include "tests/runtime/host_kernels.h"
#include "tests/runtime/host_queue.h"

namespace weir::host_module {
namespace {

void remove_row(const KvTables& t, uint32_t index, uint32_t row) {
  const uint32_t first = t.row_begin[index], n = t.n_pages[index];
  t.free_slots[t.slot_begin[index + 1] - (t.n_resident != nullptr ? t.n_resident[index] : n)] = t.slots[first + row];
  for (uint32_t at = first + row; at + 1 < first + n; ++at) t.set(at, t.get(at + 1));
  --t.n_pages[index];
  if (t.n_resident != nullptr) --t.n_resident[index];
}

// With recall a page keeps its row.
void make_cold(const StepBeginArgs& a, uint32_t index, uint32_t row) {
  const KvTables& t = a.tables;
  const uint32_t at = t.row_begin[index] + row;
  t.free_slots[t.slot_begin[index + 1] - t.n_resident[index]] = t.slots[at];
  t.slots[at] = kNoSlot;
  mark_row(a.resident, a.max_capacity, index, row, false);
  --t.n_resident[index];
  const bool is_lost = a.raw_index[at] == kNoCopy;
  ++(is_lost ? a.state->pages_lost : a.state->pages_cold);
  if (is_lost && a.digests != nullptr) spoil_digest(a.digests + size_t{at} * a.digest_elements, a.digest_elements);
}

void record_event(const StepBeginArgs& a, uint32_t stream, const StreamView& s, uint32_t row, uint32_t pos) {
  const uint64_t index = a.state->pages_evicted++;
  if (index - a.state->pages_evicted_before >= a.events.capacity) return;
  const uint32_t n = a.tables.n_kv_heads;
  seen(a.events.events)[index % a.events.capacity] = {index,      stream / n,   stream % n, s.first_pos[row],
                                                      s.len[row], s.flags[row], pos};
}

void make_room(const StepBeginArgs& a, uint32_t stream, RoomArgs room) {
  room.stream = stream;
  for (;;) {
    const StreamView s = stream_of(a.tables, stream, a.raw_index);
    room.is_full = s.n_resident + room.opens > s.n_slots;
    const uint32_t row = s.n_pages == 0 ? kNoRow : choose_victim(a.rules, s, room);
    if (row == kNoRow || is_filling(s, row)) return;
    record_event(a, stream, s, row, room.pos);
    if ((s.flags[row] & kPagePrompt) != 0) ++a.state->prompt_pages_evicted;
    --a.state->pages_resident;
    a.rules.victim == VictimRule::kCold ? make_cold(a, stream, row) : remove_row(a.tables, stream, row);
    room.opens = std::max(room.opens, a.rules.leave_at_once);
  }
}

// Whether a stream's window has passed a page when position `pos` is next.
bool is_passed(const KvTables& t, uint32_t stream, const StreamView& s, uint32_t row, uint32_t pos) {
  return row < s.n_pages && !is_filling(s, row) &&
         uint64_t{s.first_pos[row]} + s.len[row] + t.window[stream] <= uint64_t{pos} + 1;
}

// Adds a page of a stream with a window of its own to its sums.
void add_left_page(const KvTables& t, const LeftAt& left, uint32_t stream, uint32_t row) {
  uint32_t rank = 0;
  for (uint32_t s = 0; s < stream; ++s) rank += t.window[s] != 0 && !t.is_local(s) ? 1 : 0;
  const uint32_t at = t.row_begin[stream] + row;
  const uint16_t* page = left.pool + t.slots[at] * kv_page_bytes(left.format, left.head_dim) / sizeof(uint16_t);
  for (uint32_t i = 0; i < t.len[at]; ++i)
    add_token(left.format, page, i, left.head_dim, left.values + size_t{rank} * 2 * left.head_dim);
  left.sums[rank].n_tokens += t.len[at];
  left.sums[rank].end = t.first_pos[at] + t.len[at];
}

void slide(const StepBeginArgs& a, uint32_t stream, uint32_t pos) {
  const uint32_t front = a.tables.front_of(stream);
  while (is_passed(a.tables, stream, stream_of(a.tables, stream), front, pos)) {
    if (a.left.sums != nullptr && !a.tables.is_local(stream)) add_left_page(a.tables, a.left, stream, front);
    --a.state->pages_resident;
    remove_row(a.tables, stream, front);
  }
}

void reserve(const StepBeginArgs& a, uint32_t index, const RoomArgs& room) {
  const KvTables& t = a.tables;
  const StreamView s = stream_of(t, index);
  if (room.opens == 0) {
    ++s.len[s.n_pages - 1];
    t.append_row[index] = s.n_pages - 1;
    return;
  }
  const uint32_t row = s.n_pages;
  if (row == s.capacity || s.n_free == 0) {
    ++a.state->n_without_room;
    return;
  }
  const uint32_t slot = t.free_slots[t.slot_begin[index + 1] - 1 - s.n_resident];
  s.set(row, {.slots = slot, .first_pos = room.pos, .len = 1, .stamp = room.pos + 1});
  t.append_row[index] = row;
  t.n_pages[index] = row + 1;
  if (t.n_resident != nullptr) ++t.n_resident[index];
  if (a.resident != nullptr) mark_row(a.resident, a.max_capacity, index, row, true);
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

}  // namespace

Status add_left(OpContext&, const AddLeftArgs& a) {
  const KvTables& t = a.tables;
  for (uint32_t stream = 0; stream < n_streams(t); ++stream) {
    if (t.window[stream] == 0 || t.is_local(stream)) continue;
    const StreamView s = stream_of(t, stream);
    for (uint32_t row = t.front_of(stream); is_passed(t, stream, s, row, a.n_tokens); ++row)
      add_left_page(t, a.left, stream, row);
  }
  return {};
}

Status step_begin(OpContext&, const StepBeginArgs& a) {
  WEIR_TRY(expect_zero(a.counter, 1, "step_begin"));
  StepState& state = *a.state;
  const uint32_t pos = state.n_tokens;
  const RoomArgs room = {Phase::kDecode, pos, pos % kPageTokens == 0 ? 1u : 0u};
  state.pages_attended = 0;
  for (uint32_t s = 0; s < n_streams(a.tables); ++s) {
    const uint32_t window = a.tables.has_windows ? a.tables.window[s] : 0;
    window != 0 ? slide(a, s, pos) : make_room(a, s, room);
    reserve(a, s, room);
  }
  state.pages_resident_max = std::max(state.pages_resident_max, state.pages_resident);
  state.pages_evicted_before = state.pages_evicted;
  fill_rotation(a, pos, a.cos_sin);
  if (a.rules.in_cache_pos && a.cos_sin_sink != nullptr)
    fill_rotation(a, in_cache_pos(a.rules, stream_of(a.tables, a.tables.ruled_stream), pos), a.cos_sin_sink);
  return {};
}

}  // namespace weir::host_module
