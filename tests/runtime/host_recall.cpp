// The kernel of the test module that recalls pages in a decode step, in plain C++ from PageRecallArgs and StepRules:
// which of the wanted pages come back, over which pages, and what is attended. The host's half of the same is
// lib/policy/recall.cpp.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "tests/runtime/host_kernels.h"
#include "tests/runtime/host_queue.h"

namespace weir::host_module {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

enum Part : uint32_t { kAnswer, kPrompt };

// A stream of the layer: its part of the tables, and what the step wants of it.
struct Stream {
  Stream(const PageRecallArgs& args, uint32_t head)
      : a(args),
        t(a.tables),
        head(head),
        index(a.layer * t.n_kv_heads + head),
        first(t.row_begin[index]),
        n(t.n_pages[index]),
        n_slots(t.slot_begin[index + 1] - t.slot_begin[index]),
        wanted(n, false) {}

  uint32_t& slot(uint32_t row) const { return t.slots[first + row]; }
  uint32_t& flags(uint32_t row) const { return t.flags[first + row]; }
  float score(uint32_t row) const {
    const float score = t.last_score[first + row];
    return std::isnan(score) ? -INFINITY : score;
  }
  bool is_there(uint32_t row) const { return slot(row) != kNoSlot; }
  bool stays(uint32_t row) const { return row < a.rules.front_rows || (flags(row) & kPageStays) != 0; }
  bool has_copy(uint32_t row) const { return a.raw_index[first + row] != kNoCopy; }
  // Without slots for prompts there is one part.
  Part part(uint32_t row) const {
    return a.rules.prompt_slots != 0 && (flags(row) & kPagePrompt) != 0 ? kPrompt : kAnswer;
  }
  // What comes back first is least.
  auto order(uint32_t row) const { return std::tuple(stays(row) ? 0 : 1, -score(row), row); }

  void want_listed() {
    for (uint32_t i = 0; i < a.n_select[head]; ++i) wanted[a.select[size_t{head} * a.capacity + i]] = true;
  }
  void want_by_parts();
  uint32_t best_cold() const;
  uint32_t stalest(Part part) const;
  Part victim_part(uint32_t n_coming) const;
  void leave(uint32_t row, uint32_t now) const;
  void list_attended() const;

  const PageRecallArgs& a;
  const KvTables& t;
  uint32_t head, index, first, n, n_slots;
  std::vector<bool> wanted;
};

// The best sealed pages of each part, those of it that stay always, and the open page.
void Stream::want_by_parts() {
  std::vector<uint32_t> rows[2];
  for (uint32_t row = 0; row + 1 < n; ++row) rows[part(row)].push_back(row);
  const auto n_prompt = static_cast<uint32_t>(rows[kPrompt].size()), n_answer = n - 1 - n_prompt;
  const uint32_t from = a.rules.select_budget - 1, reserved = a.rules.protect.pages + 1;
  const uint32_t answer_slots = n_slots - std::min(n_prompt, a.rules.prompt_slots);
  const uint32_t from_answer = std::min({n_answer, from, answer_slots - std::min(answer_slots, reserved)});
  const uint32_t most[2] = {from_answer, std::min(n_prompt, from - from_answer)};
  for (const Part part : {kAnswer, kPrompt}) {
    std::sort(rows[part].begin(), rows[part].end(), [&](uint32_t x, uint32_t y) { return order(x) < order(y); });
    for (uint32_t i = 0; i < rows[part].size(); ++i) {
      if (i < most[part] || stays(rows[part][i])) wanted[rows[part][i]] = true;
    }
  }
  wanted[n - 1] = true;
}

uint32_t Stream::best_cold() const {
  uint32_t best = kNone;
  for (uint32_t row = 0; row < n; ++row) {
    if (!wanted[row] || is_there(row) || !has_copy(row)) continue;
    if (best == kNone || order(row) < order(best)) best = row;
  }
  return best;
}

// The first page to leave, among those of the part that may.
uint32_t Stream::stalest(Part of) const {
  uint32_t best = kNone;
  const auto key = [&](uint32_t row) { return std::tuple(t.stamp[first + row], score(row)); };
  for (uint32_t row = 0; uint64_t{row} + 1 + a.rules.protect.pages < n; ++row) {
    if (!is_there(row) || wanted[row] || stays(row) || part(row) != of) continue;
    if (best == kNone || key(row) < key(best)) best = row;
  }
  return best;
}

// Prompts give if they would have more than their slots with n_coming pages of theirs.
Part Stream::victim_part(uint32_t n_coming) const {
  uint32_t n_sealed = n_coming, n_there = n_coming;
  for (uint32_t row = 0; row + 1 < n; ++row) {
    n_sealed += part(row) == kPrompt ? 1 : 0;
    n_there += part(row) == kPrompt && is_there(row) ? 1 : 0;
  }
  return n_there > std::min(n_sealed, a.rules.prompt_slots) ? kPrompt : kAnswer;
}

void Stream::leave(uint32_t row, uint32_t now) const {
  StepState& state = *a.state;
  const uint64_t event = state.pages_evicted++;
  if (a.events.events != nullptr && event - state.pages_evicted_before < a.events.capacity) {
    seen(a.events.events)[event % a.events.capacity] = {
        event, a.layer, head, t.first_pos[first + row], t.len[first + row], flags(row), now - 1};
  }
  if ((flags(row) & kPagePrompt) != 0) ++state.prompt_pages_evicted;
  --state.pages_resident;
  --t.n_resident[index];
  slot(row) = kNoSlot;
  mark_row(a.resident, a.max_capacity, index, row, false);
  ++(has_copy(row) ? state.pages_cold : state.pages_lost);
  if (has_copy(row)) return;
  const uint32_t of_layer = first - t.row_begin[a.layer * t.n_kv_heads] + row;
  spoil_digest(a.digests + size_t{of_layer} * a.digest_elements, a.digest_elements);
}

void Stream::list_attended() const {
  uint32_t n_listed = 0;
  for (uint32_t row = 0; row < n; ++row) {
    if (is_there(row) && (wanted[row] || !a.rules.attend_wanted))
      a.select[size_t{head} * a.capacity + n_listed++] = row;
  }
  a.n_select[head] = n_listed;
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
    const uint32_t row = s.best_cold();
    if (row == kNone) break;
    RecallEntry entry = {row, 0, a.raw_index[s.first + row], kNone};
    if (s.t.n_resident[s.index] < s.n_slots) {
      entry.slot = s.t.free_slots[s.t.slot_begin[s.index + 1] - 1 - s.t.n_resident[s.index]];
    } else {
      const Part first = s.victim_part(s.part(row) == kPrompt ? 1 : 0);
      entry.left = s.stalest(first);
      if (entry.left == kNone) entry.left = s.stalest(first == kPrompt ? kAnswer : kPrompt);
      if (entry.left == kNone) break;
      entry.slot = s.slot(entry.left);
      s.leave(entry.left, now);
    }
    s.slot(row) = entry.slot;
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
    if (s.n == 0) continue;
    a.rules.prompt_slots != 0 ? s.want_by_parts() : s.want_listed();
    for (uint32_t row = 0; exchanges && a.rules.stamps_wanted && row < s.n; ++row) {
      if (s.wanted[row]) a.tables.stamp[s.first + row] = now;
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
