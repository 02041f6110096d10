// What an application may do with pages: pin ranges of the conversation, trace steps, and read which pages left.
#include <algorithm>

#include "core/call.h"
#include "policy/prompts.h"
#include "runtime/session_entry.h"

namespace weir {
namespace {

// Whether a stream without a window still has a page that holds any of the positions [first, end).
bool has_page_of(const KvCache& kv, uint32_t first, uint32_t end) {
  for (uint32_t stream = 0; stream < kv.shape().n_streams(); ++stream) {
    const StreamView s = kv.stream(stream);
    for (uint32_t row = 0; kv.window(stream) == 0 && row < s.n_pages; ++row) {
      const bool is_lost = s.copies != nullptr && s.is_lost(row);
      if (s.first_pos[row] < end && s.first_pos[row] + s.len[row] > first && !is_lost) return true;
    }
  }
  return false;
}

}  // namespace

Status SessionTrace::layer(const KvCache& kv, uint32_t n_tokens, uint32_t layer, uint32_t n_heads, bool list_per_head,
                           const PageLists& lists, const float* page_mass) {
  const KvView view = kv.view(layer);
  weir_trace_layer info = {};
  info.struct_size = sizeof(info);
  info.layer = layer;
  info.n_tokens = n_tokens;
  info.n_heads = n_heads;
  info.n_kv_heads = view.n_kv_heads;
  info.n_lists = list_per_head && lists.select != nullptr ? n_heads : view.n_kv_heads;
  info.capacity = view.capacity;
  info.n_pages = view.n_pages;
  info.first_pos = view.first_pos;
  info.flags = kv.flags(layer);
  info.stamp = kv.stamps(layer);
  info.score = kv.last_scores(layer);
  info.n_listed = lists.select != nullptr ? lists.n_select : view.n_pages;
  info.listed = lists.select;
  info.mass = page_mass;
  Answer answer;
  {
    const ThreadPool::LeaseBreak others(pool_);  // it may step other sessions
    answer = calls_.call([&] { return fn(user, &info); });
  }
  if (!answer.agreed)
    return fail(WEIR_ERR_CANCELLED, "the trace callback stopped the step in layer %u%s", layer, answer.why());
  return {};
}

// Pins are flags of pages.
struct Session::Pins {
  static Status check(const Session& s, uint32_t first, uint32_t end) {
    const uint32_t n = s.kv_.n_tokens();
    if (first < end && end <= n) return {};
    return fail(WEIR_ERR_INVALID_ARG, "positions %u..%u are not a range of the conversation's %u", first, end, n);
  }
  static Status change(Session& s, uint32_t first, uint32_t end, uint32_t set, uint32_t clear) {
    if (!has_page_of(s.kv_, first, end))  // nothing changes, so that no tables are sent
      return fail(WEIR_ERR_NOT_FOUND, "every page of the positions %u..%u has left", first, end - 1);
    (void)s.tables_.change()->set_flags(first, end, set, clear);
    return {};
  }
};

Status Session::pin(uint32_t first, uint32_t end) {
  const Lock lock(*this);
  WEIR_TRY(lock.status());
  WEIR_TRY(Pins::check(*this, first, end));
  WEIR_TRY(host_tables());
  WEIR_TRY(policy_->admit_pin(kv_, first, end));
  return Pins::change(*this, first, end, kPageKept, 0);
}

Status Session::unpin(uint32_t first, uint32_t end) {
  const Lock lock(*this);
  WEIR_TRY(lock.status());
  WEIR_TRY(Pins::check(*this, first, end));
  WEIR_TRY(host_tables());
  return Pins::change(*this, first, end, 0, kPageStays | kPageFirstPrompt);
}

Status Session::page_states(weir_page_state* out, uint32_t capacity, uint32_t& n_pages) {
  const Lock lock(*this);
  WEIR_TRY(lock.status());
  const uint32_t n = whole_pages(kv_.n_tokens());
  n_pages = n;
  if (n > capacity)
    return fail(WEIR_ERR_BUFFER_TOO_SMALL, "the conversation has %u pages, and there is room for %u", n, capacity);
  WEIR_TRY(host_tables());
  const auto n_streams = static_cast<uint16_t>(kv_.shape().n_streams());
  std::fill_n(out, n, weir_page_state{0, 0, n_streams, 0});
  for (uint32_t stream = 0; stream < n_streams; ++stream) {
    const StreamView s = kv_.stream(stream);
    for (uint32_t row = 0; row < s.n_pages; ++row) {
      weir_page_state& page = out[s.first_pos[row] / kPageTokens];
      const bool resident = s.slots[row] != kNoSlot;
      if (!resident && s.is_lost(row)) continue;
      --page.lost;
      ++(resident ? page.resident : page.cold);
      if ((s.flags[row] & kPageStays) != 0) ++page.pinned;
    }
    // What left a window, and without recall what the policy let go.
    for (uint32_t i = 0; i < n; ++i) {
      if (!copies_.has_left(stream, i)) continue;
      --out[i].lost;
      ++out[i].cold;
    }
  }
  return {};
}

Status Session::page_events(PageEvent* out, uint32_t capacity, uint32_t& n_events, uint64_t& n_lost) {
  const auto read = [&] {
    n_lost = 0;
    // pages_evicted() is up to date after every step, whether the host or the device has the current tables.
    n_events = remembered_.events.read(out, capacity, n_lost);
    return Status();
  };
  // In on_token the thread has the session already, and no step is running.
  if (token_thread_.load() == this_thread()) return read();
  const Lock lock(*this);
  WEIR_TRY(lock.status());
  return read();
}

Status Session::set_trace(weir_trace_fn fn, void* user) {
  const Lock lock(*this);
  WEIR_TRY(lock.status());
  if (!trace_.possible) return fail(WEIR_ERR_STATE, "the session was created without WEIR_SESSION_TRACE");
  trace_.fn = fn;
  trace_.user = user;
  step_.trace = fn != nullptr ? &trace_ : nullptr;
  return {};
}

}  // namespace weir
