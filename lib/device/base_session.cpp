// A session's page tables, its single steps and logits, and what benchmarks fill.
//
// A decode step is recorded when the session is created. It updates the page tables (evictions, new pages), runs the
// layers, and ends with the greedy token. The host writes the input token to memory that the device can read, launches
// the recording and waits. Positions, page counts and budgets are read on the device.
#include "device/base_session.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "device/kernels/add_left.h"
#include "device/kernels/compensate.h"
#include "device/kernels/copies.h"
#include "device/kernels/fill.h"
#include "device/kernels/logits.h"
#include "device/kernels/move_open_page.h"
#include "device/kernels/page_recall.h"
#include "device/kernels/rotate_heads.h"
#include "kv/kv_cache.h"
#include "ops/page_digest.h"
#include "ops/table.h"

namespace weir::device {

static uint64_t new_serial() {
  static std::atomic<uint64_t> n_sessions{0};
  return ++n_sessions;
}

BaseSession::BaseSession(const DeviceSessionArgs& args, Queue& queue, const OpTable& ops)
    : a_(args), queue_(queue), ops_(ops), serial_(new_serial()) {}

SessionGroup BaseSession::together(DeviceSession* const* sessions, uint32_t n) {
  SessionGroup group;
  group.n = n;
  for (uint32_t i = 0; i < n; ++i) {
    auto* session = static_cast<BaseSession*>(sessions[i]);  // modules create no others
    group.session[i] = session;
    group.selects[i] = session->selects_now();
  }
  return group;
}

Status BaseSession::prepare() {
  WEIR_TRY(queue_.map(a_.host.state, mailbox_));
  WEIR_TRY(queue_.map(a_.host.tokens, token_));
  WEIR_TRY(queue_.map(a_.host.events.events, events_));
  WEIR_TRY(queue_.map(a_.host.top_ids, top_ids_));
  WEIR_TRY(queue_.map(a_.host.top_logits, top_logits_));
  WEIR_TRY(queue_.map(a_.host.asked, asked_));
  WEIR_TRY(queue_.map(a_.host.asked_logits, asked_logits_));
  WEIR_TRY(queue_.map(a_.host.parts, parts_));

  if (recalls()) WEIR_TRY(map_recall());

  const RopeTable& rope = *a_.rope;
  const size_t angle_bytes = rope.angles().size() * sizeof(double);
  std::memcpy(a_.host.angles, rope.angles().data(), angle_bytes);
  WEIR_TRY(queue_.copy_in(a_.device.angles, a_.host.angles, angle_bytes, "copying rotations"));
  WEIR_TRY(queue_.clear(a_.device.counters, DeviceBuffers::kCounters * sizeof(uint32_t), "clearing counters"));
  return wait("preparing the session");
}

Status BaseSession::note(Status status) {
  if (status.code() == WEIR_ERR_DEVICE_LOST) lost_ = true;
  return status;
}

Status BaseSession::note_all(const SessionGroup& group, Status status) {
  for (uint32_t i = 0; i < group.n; ++i) status = group.session[i]->note(status);
  return status;
}

Status BaseSession::refuse_lost() const {
  return lost_ ? fail(WEIR_ERR_DEVICE_LOST, "the device failed earlier in this session; destroy it") : Status();
}

// -------------------------------------------------------------------------------------------------------------- tables

Status BaseSession::copy_tables(bool in) {
  std::byte* host = a_.host.tables;
  std::byte* device = a_.device.tables;
  const uint64_t bytes = a_.device.table_bytes;
  if (in) {
    WEIR_TRY(queue_.copy_in(device, host, bytes, "copying page tables to the device"));
    WEIR_TRY(queue_.copy_in(a_.device.state, a_.host.state, sizeof(StepState), "copying the state"));
  } else {
    WEIR_TRY(queue_.copy_out(host, device, bytes, "copying page tables from the device"));
    WEIR_TRY(queue_.copy_out(a_.host.state, a_.device.state, sizeof(StepState), "copying the state"));
  }
  return wait("copying page tables");
}

Status BaseSession::put_tables(bool repeats) {
  WEIR_REQUIRE_DEVICE();
  // The host's tables have the same layout as the device's.
  const KvTables tables = a_.kv->tables();
  const auto host = [&](const uint32_t* device) {
    return reinterpret_cast<const uint32_t*>(a_.host.tables +
                                             (reinterpret_cast<const std::byte*>(device) - a_.device.tables));
  };
  n_pages_ = n_prompt_pages_ = 0;
  n_filled_ = (a_.host.state->n_tokens + kPageTokens - 1) / kPageTokens;
  for (uint32_t stream = 0; stream < tables.n_layers * tables.n_kv_heads; ++stream) {
    if (a_.kv->shape().spec(stream).window != 0) continue;
    const uint32_t* flags = host(tables.flags) + host(tables.row_begin)[stream];
    const uint32_t n = host(tables.n_pages)[stream];
    uint32_t n_prompt = 0;
    for (uint32_t row = 0; row < n; ++row) n_prompt += (flags[row] & kPagePrompt) != 0 ? 1u : 0u;
    n_prompt_pages_ = std::max(n_prompt_pages_, n_prompt);
    n_pages_ = std::max(n_pages_, n);
  }
  WEIR_TRY(note(copy_tables(true)));
  if (!recalls()) return {};
  const KvView kv = a_.kv->view(0);
  raw_index_is_behind_ = true;
  WEIR_TRY(note(put_raw_index(queue_)));
  WEIR_TRY(note(queue_.mark_resident({tables, a_.device.resident, a_.kv->shape().max_capacity()})));
  if (a_.host.state->pages_lost != 0)
    WEIR_TRY(note(queue_.spoil_lost(
        {tables, a_.device.raw_index, kv.digests, static_cast<uint32_t>(digest_elements(kv.digest, kv.head_dim))})));
  if (!repeats) {
    WEIR_TRY(note(queue_.clear(heads_, a_.kv->shape().n_streams() * sizeof(RecallHead), "clearing the journal")));
  }
  return note(wait("copying page tables"));
}

Status BaseSession::get_tables() {
  WEIR_REQUIRE_DEVICE();
  return note(copy_tables(false));
}

// ------------------------------------------------------------------------------------------ what has left the windows

bool BaseSession::compensates(uint32_t layer) const {
  return a_.kv->left().is_on() && a_.kv->head_windows(layer) != nullptr;
}

Status BaseSession::move_open_page(const OpenMove& move) {
  WEIR_REQUIRE_DEVICE();
  const KvView kv = a_.kv->view(0);
  WEIR_TRY(
      note(queue_.move_open_page({a_.kv->tables(), kv.pool, kv.open, kv.open_half, kv.format, kv.head_dim, move})));
  return note(wait("moving open pages"));
}

LeftAt BaseSession::left_at() const {
  const LeftSums& left = a_.kv->left();
  if (!left.is_on()) return {};
  const KvView kv = a_.kv->view(0);
  return {left.sums(), left.all_values(), kv.pool, kv.head_dim, kv.format};
}

Status BaseSession::add_left(uint32_t n_tokens) {
  WEIR_REQUIRE_DEVICE();
  const LeftSums& left = a_.kv->left();
  WEIR_TRY(note(queue_.add_left({a_.kv->tables(), left_at(), n_tokens})));
  const auto copy = [&](const void* device, size_t bytes) {
    const std::ptrdiff_t at = static_cast<const std::byte*>(device) - a_.device.tables;
    return note(queue_.copy_out(a_.host.tables + at, device, bytes, "copying sums of what has left"));
  };
  WEIR_TRY(copy(left.sums(), left.n_streams() * sizeof(LeftSum)));
  WEIR_TRY(copy(left.all_values(), size_t{left.n_streams()} * left.n_values() * sizeof(float)));
  return note(wait("adding up what has left"));
}

Status BaseSession::enqueue_compensation(uint32_t layer, const AttnPagedArgs& attn, const uint32_t* n_tokens) {
  const LeftSums& left = a_.kv->left();
  uint32_t stream = layer * attn.kv.n_kv_heads;
  const uint32_t end = stream + attn.kv.n_kv_heads;
  while (stream < end && !left.has(stream)) ++stream;
  if (stream != end) WEIR_TRY(queue_.compensate({attn, n_tokens, &left.of(stream), left.values(stream)}));
  return rotate_output(attn.n_tok);
}

Status BaseSession::rotate_new_values(uint32_t n_tok, bool overlap) {
  const KvView kv = a_.kv->view(0);
  if (!rotates_values(kv.format)) return {};
  return queue_.rotate_heads({a_.b.v, size_t{n_tok} * kv.n_kv_heads, kv.head_dim, overlap});
}

Status BaseSession::rotate_output(uint32_t n_tok) {
  const KvView kv = a_.kv->view(0);
  if (!rotates_values(kv.format)) return {};
  return queue_.rotate_heads({a_.b.o, size_t{n_tok} * a_.config->n_heads, kv.head_dim, true});
}

// -------------------------------------------------------------------------------------------------------- decode steps

Status BaseSession::open_step(const SessionGroup& group, const int32_t* tokens) {
  for (uint32_t i = 0; i < group.n; ++i) {
    BaseSession& session = *group.session[i];
    session.a_.host.tokens[0] = tokens[i];
    session.fills_pages_ = session.digests_behind_steps() &&
                           digests_are_due(session.a_.kv->shape().digest, session.a_.host.state->n_tokens, 1);
    session.open_posts();
    if (session.recalls()) WEIR_TRY(note_all(group, session.put_raw_index(group.session[0]->queue_)));
  }
  return {};
}

// A session without room is lost, and so are the others: their steps are done, but the caller is told of a failure.
Status BaseSession::close_step(const SessionGroup& group, Status launched) {
  WEIR_TRY(note_all(group, launched.ok() ? wait_and_answer(group) : launched));
  Status status;
  for (uint32_t i = 0; i < group.n && status.ok(); ++i) {
    if (group.session[i]->fills_pages_) status = group.session[i]->digest_filled_pages();
  }
  for (uint32_t i = 0; i < group.n; ++i) {
    const Status room = group.session[i]->check_room();
    if (status.ok()) status = room;
  }
  for (uint32_t i = 0; i < group.n; ++i) group.session[i]->lost_ = group.session[i]->lost_ || !status.ok();
  return status;
}

bool BaseSession::digests_behind_steps() const {
  const DigestKind digest = a_.kv->shape().digest;
  return digest != DigestKind::kNone && digest != DigestKind::kMinMax && !queue_.append_keeps_digest(digest) &&
         a_.rules.observe != StepRules::Observe::kStampDigest;
}

Status BaseSession::enqueue_digests() {
  for (uint32_t layer = 0; layer < a_.config->n_kv_layers; ++layer)
    WEIR_TRY(ops_.page_digest(a_.cx, {a_.kv->view(layer), a_.kv->append_rows(layer), 1}));
  return {};
}

// When the step is over. A session whose pages have no digests would go on with others': it is lost.
Status BaseSession::digest_filled_pages() {
  const Status enqueued = enqueue_digests(), waited = wait("making digests");
  if (enqueued.ok() && waited.ok()) return {};
  lost_ = true;
  if (!waited.ok()) return waited;
  return fail(WEIR_ERR_DEVICE_LOST, "digests of the pages that a step filled could not be made");
}

Status BaseSession::step(int32_t token) {
  WEIR_REQUIRE_DEVICE();
  const SessionGroup group = alone(selects_now(), kAllParts);
  selected_ = group.selects[0];
  WEIR_TRY(open_step(group, &token));
  WEIR_TRY(note(launch_step(group.selects[0])));
  return close_step(group, {});
}

Status BaseSession::check_room() {
  if (a_.host.state->n_without_room == 0) return {};
  lost_ = true;
  return fail(WEIR_ERR_INTERNAL, "%u streams had no room for the step's token: the policy's rules let no page leave",
              a_.host.state->n_without_room);
}

bool BaseSession::has_ruled_stream(uint32_t layer) const {
  const uint32_t first = layer * a_.config->n_kv_heads, end = first + a_.config->n_kv_heads;
  uint32_t stream = first;
  while (stream < end && a_.kv->shape().spec(stream).window != 0) ++stream;
  return stream < end;
}

size_t BaseSession::trace_at(uint32_t layer) const {
  return size_t{layer} * a_.config->n_heads * a_.kv->shape().max_capacity();
}

Status BaseSession::get_trace() {
  WEIR_REQUIRE_DEVICE();
  const TraceBuffers &from = a_.device.trace, &to = a_.host.trace;
  const size_t n = size_t{a_.config->n_kv_layers} * a_.config->n_heads, rows = n * a_.kv->shape().max_capacity();
  WEIR_TRY(note(queue_.copy_out(to.page_mass, from.page_mass, rows * sizeof(float), "copying masses")));
  WEIR_TRY(note(queue_.copy_out(to.select, from.select, rows * sizeof(uint32_t), "copying lists")));
  WEIR_TRY(note(queue_.copy_out(to.n_select, from.n_select, n * sizeof(uint32_t), "copying lists")));
  for (uint32_t layer = 0; layer < a_.config->n_kv_layers; ++layer) to.is_listed[layer] = is_selected(layer, selected_);
  return note(wait("copying a trace"));
}

Status BaseSession::get_logits() {
  WEIR_REQUIRE_DEVICE();
  const size_t bytes = a_.config->vocab_size * sizeof(float);
  WEIR_TRY(note(queue_.copy_out(a_.host.logits, a_.b.logits, bytes, "copying logits")));
  return note(wait("copying logits"));
}

Status BaseSession::top_logits(const LogitRequest& r) {
  WEIR_REQUIRE_DEVICE();
  const uint32_t vocab_size = a_.config->vocab_size;
  if (r.new_mask) {
    const size_t bytes = mask_words(vocab_size) * sizeof(uint32_t);
    WEIR_TRY(note(queue_.copy_in(a_.device.mask, a_.host.mask, bytes, "copying a mask of tokens")));
  }
  if (r.n_best != 0) {
    WEIR_TRY(note(queue_.top_logits({a_.b.logits, vocab_size, r.n_best, top_ids_, top_logits_, a_.device.module,
                                     a_.device.counters + kTopCounter, r.masked ? a_.device.mask : nullptr})));
  }
  if (r.sums || r.n_asked != 0) {
    WEIR_TRY(note(
        queue_.read_logits({a_.b.logits, vocab_size, r.sums ? parts_ : nullptr, asked_, asked_logits_, r.n_asked})));
  }
  return note(wait("choosing the best logits"));
}

// ---------------------------------------------------------------------------------------------------------- benchmarks

Status BaseSession::rebuild_last_digests() {
  WEIR_REQUIRE_DEVICE();
  for (uint32_t layer = 0; layer < a_.config->n_kv_layers; ++layer) {
    const KvView kv = a_.kv->view(layer);
    if (kv.digest == DigestKind::kMinMax) WEIR_TRY(note(queue_.rebuild_last_minmax(kv)));
  }
  return note(wait("making digests"));
}

Status BaseSession::fill_noise(uint64_t seed) {
  WEIR_REQUIRE_DEVICE();
  const KvShape& shape = a_.kv->shape();
  const KvView first = a_.kv->view(0);
  WEIR_TRY(note(
      queue_.fill_noise({first.pool, shape.n_slots() * first.page_elements(), seed, first.format, first.head_dim})));
  if (first.open != nullptr)
    WEIR_TRY(note(queue_.fill_noise({first.open, KvShape::kOpenPages * uint64_t{first.open_half}, seed})));
  return rebuild_digests();
}

Status BaseSession::rebuild_digests() {
  WEIR_REQUIRE_DEVICE();
  const KvView first = a_.kv->view(0);
  for (uint32_t layer = 0; layer < a_.config->n_kv_layers && first.digest != DigestKind::kNone; ++layer) {
    const KvView kv = a_.kv->view(layer);
    // Counters are zero between kernels, so they serve as first_row = 0 of every stream.
    WEIR_TRY(note(ops_.page_digest(a_.cx, {kv, a_.device.counters, kv.capacity})));
  }
  WEIR_TRY(note(wait("making digests")));
  return first.digest == DigestKind::kMinMax ? rebuild_last_digests() : Status();
}

}  // namespace weir::device
