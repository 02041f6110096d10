// The kernel of the test module that recalls pages in a decode step, in plain C++ from PageRecallArgs: by the rules
// (lib/policy/rules.h) wanted pages come back over others, and what is attended is listed.
#include <algorithm>
#include <cstring>
#include <vector>

#include "device/kernels/page_recall.h"
#include "tests/runtime/host_kernels.h"
#include "tests/runtime/host_queue.h"

namespace weir::host_module {
namespace {

// A stream of the layer, and what the step wants of it.
struct Stream {
  Stream(const PageRecallArgs& args, uint32_t head)
      : a(args),
        t(a.tables),
        head(head),
        index(a.layer * t.n_kv_heads + head),
        first(t.row_begin[index]),
        wanted(a.select + size_t{head} * a.capacity, a.select + size_t{head} * a.capacity + a.n_select[head]) {}

  // As the tables are now.
  StreamView view() const { return stream_of(t, index, a.raw_index); }
  bool has_copy(uint32_t row) const { return a.raw_index[first + row] != kNoCopy; }
  void want_by_parts();
  void leave(uint32_t row, uint32_t now) const;
  void list_attended();

  const PageRecallArgs& a;
  const KvTables& t;
  uint32_t head, index, first;
  std::vector<uint32_t> wanted;
};

void Stream::want_by_parts() {
  const StreamView s = view();
  uint32_t n = 0;
  wanted.resize(s.n_pages);
  weir::want_by_parts(a.rules, s, wanted.data(), n);
  wanted.resize(n);
}

void Stream::leave(uint32_t row, uint32_t now) const {
  StepState& state = *a.state;
  const uint64_t event = state.pages_evicted++;
  if (a.events.events != nullptr && event - state.pages_evicted_before < a.events.capacity) {
    seen(a.events.events)[event % a.events.capacity] = {
        event, a.layer, head, t.first_pos[first + row], t.len[first + row], t.flags[first + row], now - 1};
  }
  if ((t.flags[first + row] & kPagePrompt) != 0) ++state.prompt_pages_evicted;
  --state.pages_resident;
  --t.n_resident[index];
  t.slots[first + row] = kNoSlot;
  mark_row(a.resident, a.max_capacity, index, row, false);
  ++(has_copy(row) ? state.pages_cold : state.pages_lost);
  if (has_copy(row)) return;
  const uint32_t of_layer = first - t.row_begin[a.layer * t.n_kv_heads] + row;
  spoil_digest(a.digests + size_t{of_layer} * a.digest_elements, a.digest_elements);
}

void Stream::list_attended() {
  auto n = static_cast<uint32_t>(wanted.size());
  wanted.resize(view().n_pages);
  weir::list_attended(a.rules, view(), wanted.data(), n);
  std::copy_n(wanted.begin(), n, a.select + size_t{head} * a.capacity);
  a.n_select[head] = n;
}

// A number that no other layer and no neighbouring step has, and never 0.
uint32_t ticket_of(const PageRecallArgs& a, uint32_t now) {
  const uint32_t ticket = now * a.tables.n_layers + a.layer;
  return ticket == 0 ? UINT32_MAX : ticket;
}

// Which pages come back, best first.
std::vector<RecallEntry> exchange(const Stream& s, uint32_t now) {
  const PageRecallArgs& a = s.a;
  std::vector<RecallEntry> entries;
  while (entries.size() < a.host.most) {
    const StreamView v = s.view();
    const uint32_t row = next_to_return(a.rules, v, s.wanted);
    if (row == kNoRow) break;
    RecallEntry entry = {row, 0, a.raw_index[s.first + row], kNoRow};
    if (v.n_free > 0) {
      entry.slot = s.t.free_slots[s.t.slot_begin[s.index + 1] - 1 - s.t.n_resident[s.index]];
    } else {
      entry.left = gives_slot_to(a.rules, v, row, s.wanted);
      if (entry.left == kNoRow) break;
      entry.slot = v.slots[entry.left];
      s.leave(entry.left, now);
    }
    v.slots[row] = entry.slot;
    mark_row(a.resident, a.max_capacity, s.index, row, true);
    ++s.t.n_resident[s.index];
    ++a.state->pages_resident;
    --a.state->pages_cold;
    ++a.state->pages_recalled;
    entries.push_back(entry);
  }
  return entries;
}

void ask_host(const Stream& s, const std::vector<RecallEntry>& entries, uint32_t now) {
  const PageRecallArgs& a = s.a;
  uint32_t n = 0;
  for (const RecallEntry& e : entries)
    seen(a.host.rows)[size_t{s.head} * a.host.most + n++] = e.copy == kCopyElsewhere ? e.row : kNoAskedRow;
  RecallPost& post = seen(a.host.posts)[s.head];
  post.ticket = ticket_of(a, now);
  post.layer = a.layer;
  post.n = n;
}

// Whatever is asked for comes too late: nobody answers while the test module computes. Tests of kernels answer before.
void fetch(const Stream& s, const std::vector<RecallEntry>& entries, uint32_t now) {
  const PageRecallArgs& a = s.a;
  const RecallAnswer& answer = seen(a.host.answers)[s.head];
  const bool came = answer.ticket == ticket_of(a, now) && answer.is_refused == 0;
  const std::byte* sent = seen(a.host.pages) + size_t{s.head} * a.host.most * a.page_bytes;
  for (const RecallEntry& e : entries) {
    const bool is_raw = e.copy != kCopyElsewhere;
    const std::byte* from = is_raw ? seen(a.host.raw_pages) + size_t{e.copy} * a.page_bytes : sent;
    if (is_raw || came) {
      std::memcpy(reinterpret_cast<std::byte*>(a.pool) + size_t{e.slot} * a.page_bytes, from, a.page_bytes);
    } else {
      a.state->is_late = 1;
    }
    sent += a.page_bytes;
  }
}

}  // namespace

Status page_recall(OpContext&, const PageRecallArgs& a) {
  const uint32_t now = a.state->n_tokens + 1;
  const bool exchanges = !a.only_lists && a.state->is_late == 0;
  for (uint32_t head = 0; head < a.tables.n_kv_heads; ++head) {
    Stream s(a, head);
    if (s.view().n_pages == 0) continue;
    if (a.rules.prompt_slots != 0) s.want_by_parts();
    for (const uint32_t row : s.wanted) {
      if (exchanges && a.rules.stamps_wanted) a.tables.stamp[s.first + row] = now;
    }
    RecallHead& journal = a.heads[s.index];
    const bool brings = exchanges && journal.now != now;
    const std::vector<RecallEntry> entries = brings ? exchange(s, now) : std::vector<RecallEntry>();
    std::copy(entries.begin(), entries.end(), a.entries + size_t{s.index} * a.host.most);
    journal = {exchanges ? now : journal.now, static_cast<uint32_t>(entries.size())};
    if (std::any_of(entries.begin(), entries.end(), [](const RecallEntry& e) { return e.copy == kCopyElsewhere; }))
      ask_host(s, entries, now);
    s.list_attended();
  }
  a.state->pages_resident_max = std::max(a.state->pages_resident_max, a.state->pages_resident);
  for (uint32_t head = 0; head < a.tables.n_kv_heads && !a.only_lists; ++head) {
    const Stream s(a, head);
    const RecallEntry* const entries = a.entries + size_t{s.index} * a.host.most;
    fetch(s, {entries, entries + a.heads[s.index].n}, now);
  }
  return {};
}

}  // namespace weir::host_module
