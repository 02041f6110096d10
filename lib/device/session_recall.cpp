// Recall in a session on a device, the host's part: it sends the pages that a step asks for while it waits for the
// step, and runs a prompt's attention over cold pages unit by unit.
#include <algorithm>
#include <atomic>

#include "device/base_session.h"
#include "device/kernels/copies.h"
#include "device/kernels/fill.h"
#include "device/kernels/page_recall.h"
#include "kv/kv_cache.h"
#include "ops/attn_paged.h"

namespace weir::device {
namespace {

// The queue is asked whether it is done after this many looks at what steps ask for: asking takes the driver longer.
constexpr uint32_t kLooks = 256;

}  // namespace

Status BaseSession::map_recall() {
  const DeviceRecall& host = a_.host.recall;
  recall_ = host;
  WEIR_TRY(queue_.map(host.raw_index, recall_.raw_index));
  WEIR_TRY(queue_.map(host.raw_pages, recall_.raw_pages));
  WEIR_TRY(queue_.map(host.posts, recall_.posts));
  WEIR_TRY(queue_.map(host.answers, recall_.answers));
  WEIR_TRY(queue_.map(host.rows, recall_.rows));
  WEIR_TRY(queue_.map(host.pages, recall_.pages));
  WEIR_TRY(queue_.map(host.page_slots, recall_.page_slots));
  WEIR_TRY(queue_.map(host.unit_pos, recall_.unit_pos));
  WEIR_TRY(queue_.map(host.unit_len, recall_.unit_len));
  entries_ = reinterpret_cast<RecallEntry*>(a_.device.journal);
  heads_ = reinterpret_cast<RecallHead*>(entries_ + a_.kv->shape().n_streams() * recall_.most);
  return {};
}

PageRecallArgs BaseSession::recall_args(uint32_t layer) const {
  const KvShape& shape = a_.kv->shape();
  const KvView kv = a_.kv->view(layer);
  PageRecallArgs a = {};
  a.tables = a_.kv->tables();
  a.layer = layer;
  a.rules = a_.rules;
  a.state = a_.device.state;
  a.select = select(layer);
  a.n_select = n_select(layer);
  a.capacity = kv.capacity;
  a.n_slots = shape.recall_slots;
  a.digests = kv.digests;
  a.digest_elements = static_cast<uint32_t>(digest_elements(kv.digest, kv.head_dim));
  a.pool = kv.pool;
  a.page_bytes = static_cast<uint32_t>(shape.page_bytes());
  a.events = {events_, a_.host.events.capacity};
  a.host = recall_;
  a.raw_index = a_.device.raw_index;
  a.resident = a_.device.resident;
  a.max_capacity = shape.max_capacity();
  a.heads = heads_;
  a.entries = entries_;
  return a;
}

void BaseSession::open_posts() {
  if (!recalls()) return;
  for (uint32_t head = 0; head < a_.config->n_kv_heads; ++head) {
    a_.host.recall.posts[head] = {};
    a_.host.recall.answers[head] = {};
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// The device's copy of the index, which the host changes when it copies pages out and when it has the tables. In the
// queue of what reads it next: with sessions that step together that of their leader.
Status BaseSession::put_raw_index(Queue& queue) {
  if (!raw_index_is_behind_) return {};
  raw_index_is_behind_ = false;
  const DeviceRecall& r = a_.host.recall;
  may_ask_ = std::find(r.raw_index, r.raw_index + r.n_rows, kCopyElsewhere) != r.raw_index + r.n_rows;
  return queue.copy_in(a_.device.raw_index, r.raw_index, r.n_rows * sizeof(uint32_t), "copying where pages are");
}

// Reads the pages that streams ask for, in the order of their heads.
void BaseSession::answer_posts() {
  const DeviceRecall& r = a_.host.recall;
  const KvShape& shape = a_.kv->shape();
  for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
    const std::atomic_ref posted(r.posts[head].ticket);
    const std::atomic_ref answered(r.answers[head].ticket);
    const uint32_t ticket = posted.load(std::memory_order_acquire);
    if (ticket == answered.load(std::memory_order_relaxed)) continue;
    const RecallPost post = r.posts[head];
    for (uint32_t i = 0; i < post.n && i < r.most; ++i) {
      const size_t at = size_t{head} * r.most + i;
      if (r.rows[at] == kNoAskedRow) continue;
      std::byte* const page = r.pages + at * shape.page_bytes();
      if (!a_.recall->read(post.layer * shape.n_kv_heads + head, r.rows[at], page)) r.answers[head].is_refused = 1;
    }
    answered.store(ticket, std::memory_order_release);
  }
}

Status BaseSession::wait_and_answer(const SessionGroup& group) {
  BaseSession& leader = *group.session[0];
  bool any = false;
  for (uint32_t i = 0; i < group.n; ++i) any = any || (group.session[i]->recalls() && group.selects[i]);
  while (any) {
    for (uint32_t look = 0; look < kLooks; ++look) {
      for (uint32_t i = 0; i < group.n; ++i) {
        if (group.session[i]->recalls() && group.selects[i]) group.session[i]->answer_posts();
      }
    }
    if (!leader.queue_.is_busy()) break;
  }
  return leader.wait("a decode step");
}

Status BaseSession::copy_row_out(uint32_t row) {
  WEIR_REQUIRE_DEVICE();
  const KvView kv = a_.kv->view(0);
  const auto page_bytes = static_cast<uint32_t>(a_.kv->shape().page_bytes());
  raw_index_is_behind_ = true;  // the caller gives copies to the store
  WEIR_TRY(note(queue_.copy_row_out({a_.kv->tables(), row, kv.pool, page_bytes, recall_.pages})));
  return note(wait("copying sealed pages"));
}

Status BaseSession::copy_pages(uint32_t n, bool in) {
  WEIR_REQUIRE_DEVICE();
  const KvView kv = a_.kv->view(0);
  const auto page_bytes = static_cast<uint32_t>(a_.kv->shape().page_bytes());
  WEIR_TRY(note(queue_.copy_pages({kv.pool, page_bytes, recall_.pages, recall_.page_slots, n, in})));
  return note(wait("copying pages"));
}

Status BaseSession::fill_row(uint32_t row, uint64_t seed) {
  WEIR_REQUIRE_DEVICE();
  const KvView kv = a_.kv->view(0);
  FillRowArgs fill = {};
  fill.slots = recall_.page_slots;
  fill.row = row;
  fill.tables = a_.kv->tables();
  fill.pool = kv.pool;
  fill.head_dim = kv.head_dim;
  fill.digest = kv.digest;
  fill.digests = kv.digests;
  fill.digest_elements = static_cast<uint32_t>(digest_elements(kv.digest, kv.head_dim));
  fill.seed = seed;
  fill.format = kv.format;
  fill.pages = reinterpret_cast<uint16_t*>(recall_.pages);
  WEIR_TRY(note(queue_.fill_row(fill)));
  return note(wait("filling pages"));
}

Status BaseSession::attend_units(const DeviceChunk& chunk, const AttnPagedArgs& whole, uint32_t layer,
                                 uint32_t n_rows) {
  const StagingWindow& w = a_.b.staging;
  const auto page_bytes = static_cast<uint32_t>(a_.kv->shape().page_bytes());
  AttnPagedArgs attn = whole;
  attn.kv.pool = w.pages;
  attn.kv.slots = w.slots;
  attn.kv.first_pos = w.first_pos;
  attn.kv.len = w.len;
  attn.kv.n_pages = w.n_pages;
  attn.kv.capacity = kSplitPages;
  AttnCarry carry = {w.high, w.sum, true, false, a_.device.unit_out};
  attn.carry = &carry;
  for (uint32_t first = 0; first < n_rows; first += kSplitPages) {
    WEIR_TRY(wait("a prompt chunk"));  // the unit before has been loaded
    chunk.pages->load_unit(layer, first);
    WEIR_TRY(queue_.load_unit({.host = recall_,
                               .pool = whole.kv.pool,
                               .window = w.pages,
                               .slots = w.slots,
                               .first_pos = w.first_pos,
                               .len = w.len,
                               .n_pages = w.n_pages,
                               .n_kv_heads = whole.kv.n_kv_heads,
                               .page_bytes = page_bytes}));
    carry.first = first == 0;
    carry.last = first + kSplitPages >= n_rows;
    WEIR_TRY(ops_.attn_paged(a_.cx, attn));
  }
  return {};
}

}  // namespace weir::device
