// Sessions on a device: where their memory lies, and when page tables and logits are copied.
#include "runtime/machine_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/token_mass.h"
#include "policy/room.h"
#include "runtime/session_pools.h"

namespace weir {
namespace {

// For the op table that policies see around a prompt chunk: token_mass runs on the device, and no other op is needed.
struct TokenMassBridge {
  OpContext cx;  // its stream is this bridge
  const DeviceModule* module;
  DeviceSession* device;
  uint32_t layer;
};

Status token_mass_on_device(OpContext& cx, const TokenMassArgs& a) {
  const auto& bridge = *static_cast<TokenMassBridge*>(cx.stream);
  return from_module(*bridge.module, bridge.device->token_mass(bridge.layer, a));
}

}  // namespace

// Lets the policy observe a layer's attention over a chunk.
class DeviceMachine::Observer final : public ChunkObserver {
 public:
  Observer(DeviceMachine& machine, uint32_t n_tok, uint32_t n_left) : m_(machine), n_tok_(n_tok), n_left_(n_left) {}

  Status observe(uint32_t layer) override {
    const ModelConfig& c = m_.w_.setup.model->config();
    const Attention& attention = m_.w_.setup.model->weights().attention(layer);
    const uint32_t n_rows = std::min(n_tok_, m_.w_.policy.needs().prompt_rows), first = n_tok_ - n_rows;
    TokenMassBridge bridge = {{}, m_.module_, m_.device_, layer};
    bridge.cx.stream = &bridge;
    OpTable ops = {};
    ops.token_mass = token_mass_on_device;
    failed_ = m_.w_.policy.observe_prompt(bridge.cx, ops, *m_.w_.tables.change(),
                                          {.layer = layer,
                                           .n_heads = c.n_heads,
                                           .q = m_.w_.step.b.q + size_t{first} * c.n_heads * c.head_dim,
                                           .lse = m_.w_.step.b.lse + size_t{first} * c.n_heads,
                                           .n_rows = n_rows,
                                           .pos = m_.kv().n_tokens() + first,
                                           .n_left = n_left_,
                                           .token_mass = m_.staging_.token_mass,
                                           .window = attention.window,
                                           .soft_cap = attention.soft_cap});
    return failed_;
  }
  // Not ok when the chunk failed because of the policy; the message is then the library's own.
  Status failed() const { return failed_; }

 private:
  DeviceMachine& m_;
  uint32_t n_tok_, n_left_;
  Status failed_;
};

DeviceMachine::~DeviceMachine() {
  if (device_ != nullptr) device_->~DeviceSession();
}

Status DeviceMachine::create(SpillStore* other) {
  const SessionSetup& setup = w_.setup;
  const PolicyNeeds& needs = w_.policy.needs();
  SessionPools measured;
  DeviceBuffers buffers;
  lay_out_session(setup, needs, measured, w_.step);
  lay_out_staging(setup, needs, measured, w_.parts.list, device_tables_, buffers, staging_);
  fill_plan(setup, needs, measured, w_.plan);
  module_ = setup.module;

  WEIR_TRY(w_.weights.ensure(w_.devices, *module_, *setup.model, w_.pool));
  WEIR_TRY(w_.devices.allocate(*module_, w_.plan.device_bytes, "the session's KV pages, tables and workspace",
                               &device_block_, kNeedLess));
  device_bytes_ = w_.plan.device_bytes;
  WEIR_TRY(take_staging());
  const uint64_t block_bytes = w_.plan.sampler_bytes + w_.plan.snapshot_bytes + module_->session_bytes;
  const Status taken = take_block(block_bytes);
  if (!taken.ok()) {
    return fail(taken.code(), "the session's %llu bytes of host memory could not be allocated%s%s",
                static_cast<unsigned long long>(block_bytes), HostMemory::thread_refusal().why, kNeedLess);
  }
  SessionPools pools;
  place_pools(measured, pools, buffers);
  lay_out_session(setup, needs, pools, w_.step);
  lay_out_staging(setup, needs, pools, w_.parts.list, device_tables_, buffers, staging_);
  w_.tables.change()->set_pages_elsewhere();
  w_.parts.recurrent.set_memory(*this, device_tables_.recurrent.memory());
  staging_.events = w_.parts.events.ring();
  std::memset(staging_.state, 0, sizeof(StepState));

  DeviceSessionArgs args;
  args.config = &setup.model->config();
  args.weights = &w_.weights.weights();
  args.rope = &setup.model->rope();
  args.needs = &needs;
  args.rules = setup.rules;
  args.kv = &device_tables_.kv;
  args.recurrent = &device_tables_.recurrent;
  args.b = w_.step.b;
  args.cx = w_.step.cx;
  args.device = buffers;
  if (setup.kv.recalls()) WEIR_TRY(start_recall(other, args));
  args.host = staging_;
  std::byte* const at = static_cast<std::byte*>(block_) + w_.plan.sampler_bytes + w_.plan.snapshot_bytes;
  WEIR_TRY(told(module_->create_session(at, args, device_)));
  w_.step.b.logits = staging_.logits;
  return {};
}

void DeviceMachine::place_pools(const SessionPools& measured, SessionPools& pools, DeviceBuffers& buffers) {
  auto* at = static_cast<std::byte*>(device_block_);
  for (auto [pool, size] : {std::pair{&pools.pages, measured.pages.used()},
                            {&pools.digests, measured.digests.used()},
                            {&pools.tables, measured.tables.used()},
                            {&pools.recurrent, measured.recurrent.used()},
                            {&pools.workspace, measured.workspace.used()}}) {
    *pool = Arena(at, size);
    if (pool == &pools.tables) buffers.tables = at;
    at += size;
  }
  pools.staging = Arena(staging_block_, w_.plan.staging_bytes);
  pools.sampler = Arena(block_, w_.plan.sampler_bytes);
  pools.snapshots = Arena(static_cast<std::byte*>(block_) + w_.plan.sampler_bytes, w_.plan.snapshot_bytes);
  private_ = block_;
  private_bytes_ = w_.plan.sampler_bytes;
}

Status DeviceMachine::copy_from(Machine& other) {
  auto& from = static_cast<DeviceMachine&>(other);
  on_device_ = from.on_device_;
  greedy_is_known_ = from.greedy_is_known_;
  std::copy_n(from.staging_.recall.raw_index, staging_.recall.n_rows, staging_.recall.raw_index);
  std::memcpy(staging_.state, from.staging_.state, sizeof(StepState));
  return told(module_->copy(device_block_, from.device_block_, device_bytes_));
}

Status DeviceMachine::put_tables(bool repeats) {
  return w_.tables.send([&] {
    fill_state();
    WEIR_TRY(device_->put_tables(repeats));
    return w_.tables.change()->move_open_pages([&](const OpenMove& move) { return device_->move_open_page(move); });
  });
}

Status DeviceMachine::open_next() {
  return w_.tables.open_next([&](const OpenMove& move) { return device_->move_open_page(move); });
}

void DeviceMachine::fill_state() {
  const KvCounters c = kv().counters();
  StepState& state = *staging_.state;
  state.n_tokens = c.n_tokens;
  state.pages_resident = c.pages_resident;
  state.pages_resident_max = c.pages_resident_max;
  state.pages_evicted = state.pages_evicted_before = c.pages_evicted;
  state.prompt_pages_evicted = c.prompt_pages_evicted;
  state.pages_cold = c.pages_cold;
  state.pages_lost = c.pages_lost;
  state.pages_recalled = w_.copies.pages_recalled();
  state.is_late = 0;
  state.recurrent = w_.parts.recurrent.current();
}

// The device's counters belong to its tables.
void DeviceMachine::read_counters() {
  const StepState& s = *staging_.state;
  w_.tables.count({s.n_tokens, s.pages_resident, s.pages_resident_max, s.pages_evicted, s.prompt_pages_evicted,
                   s.pages_cold, s.pages_lost});
  w_.copies.set_recalled(s.pages_recalled);
}

Status DeviceMachine::fetch_tables() {
  return w_.tables.fetch([&] {
    WEIR_TRY(told(device_->get_tables()));
    read_counters();
    return Status();
  });
}

// Digests of streams with windows of their own are not saved.
Status DeviceMachine::end_restore() {
  if (!kv().shape().windows.any() || kv().shape().digest == DigestKind::kNone) return {};
  WEIR_TRY(send_current_tables());
  return told(device_->rebuild_digests());
}

Status DeviceMachine::end_cut() {
  WEIR_TRY(send_current_tables());
  return told(device_->rebuild_last_digests());
}

// When this fails the device is lost and the next call says so; the caller's message stays that of the failed prompt.
void DeviceMachine::end_failed_prompt() {
  if (put_tables(false).ok()) (void)device_->rebuild_last_digests();
}

// The tokens of a chunk and their rotations, to the staging memory. Whether some token's position for the sink pages is
// not its own.
bool DeviceMachine::put_rotations(const weir_token* tokens, uint32_t n_tok) {
  const RopeTable& rope = w_.setup.model->rope();
  const uint32_t pos = kv().n_tokens();
  bool sink_moved = false;
  for (uint32_t i = 0; i < n_tok; ++i) {
    staging_.tokens[i] = tokens[i];
    const uint32_t in_cache = staging_.cos_sin_sink != nullptr ? w_.policy.in_cache_pos(kv(), pos + i) : pos + i;
    for (uint32_t rotation = 0; rotation < rope.n_rotations(); ++rotation) {
      const size_t row = w_.step.b.rotation(rotation, rope.rope_dim()) + size_t{i} * rope.rope_dim();
      rope.fill(rotation, pos + i, staging_.cos_sin + row);
      if (staging_.cos_sin_sink != nullptr) rope.fill(rotation, in_cache, staging_.cos_sin_sink + row);
    }
    sink_moved = sink_moved || in_cache != pos + i;
  }
  return sink_moved;
}

Status DeviceMachine::sum_what_leaves() {
  if (!kv().left().is_on()) return {};
  WEIR_TRY(send_current_tables());
  WEIR_TRY(told(device_->add_left(kv().n_tokens())));
  (void)w_.tables.change();  // the caller's change goes on
  return {};
}

Status DeviceMachine::run_chunk(const weir_token* tokens, uint32_t n_tok, uint32_t n_left) {
  WEIR_TRY(sum_what_leaves());
  const PageTables::Change tables = w_.tables.change();
  make_room(w_.policy, *tables, n_tok, Phase::kPrompt);
  WEIR_TRY(tables->reserve(n_tok, w_.policy.prompt_flags(), kv().n_tokens() + n_tok));
  Observer observer(*this, n_tok, n_left);
  DeviceChunk chunk;
  chunk.pos = kv().n_tokens();
  chunk.n_tok = n_tok;
  chunk.want_logits = n_left == 0;
  chunk.sink_moved = put_rotations(tokens, n_tok);
  chunk.observer = w_.step.b.lse != nullptr ? &observer : nullptr;
  chunk.cancel = &w_.cancel;
  chunk.pages = kv().shape().recalls() ? &pages_ : nullptr;
  KvReservation reservation(*tables, w_.parts.list);
  Status status = send_current_tables();
  if (status.ok()) {
    status = device_->run_chunk(chunk);
    if (observer.failed().ok()) status = told(status);
  }
  WEIR_TRY(status);
  WEIR_TRY(w_.copies.failure());  // a strict store: a page that the chunk attends is lost
  reservation.commit();
  seal(chunk.pos);
  if (chunk.want_logits) on_device_ = greedy_is_known_ = true;
  return seal_on_device(chunk.pos);
}

void DeviceMachine::close_step() {
  read_counters();
  w_.step.pages_attended = staging_.state->pages_attended;
  on_device_ = greedy_is_known_ = true;
}

Status DeviceMachine::step(weir_token token) {
  WEIR_TRY(prepare_copies(1));
  WEIR_TRY(send_current_tables());
  WEIR_TRY(told(open_next()));
  w_.tables.leave_to_device();
  const Status status = step_until_in_time(token);
  if (!status.ok()) {
    lose_step();
    return status;
  }
  close_step();
  if (w_.step.trace != nullptr) WEIR_TRY(trace_step());
  return seal_step();
}

// Shows what a step did, layer by layer, when all of it is done. A step that is refused then is taken back, as far as
// one is that a layer stops: pages that left and what the policy observed stay. There are no logits afterwards.
Status DeviceMachine::trace_step() {
  WEIR_TRY(fetch_tables());
  WEIR_TRY(told(device_->get_trace()));
  const ModelConfig& c = w_.setup.model->config();
  const TraceBuffers& t = staging_.trace;
  const uint32_t n_tokens = kv().n_tokens();
  const size_t rows = size_t{c.n_heads} * kv().shape().max_capacity();
  Status status;
  {
    const ThreadPool::Lease lease(w_.pool);  // which the callback of a trace gives away
    for (uint32_t layer = 0; layer < c.n_kv_layers && status.ok(); ++layer) {
      PageLists lists;
      if (t.is_listed[layer]) lists = {t.select + layer * rows, t.n_select + size_t{layer} * c.n_heads};
      status = w_.step.trace->layer(kv(), n_tokens, layer, c.n_heads, w_.policy.needs().list_per_head, lists,
                                    t.page_mass + layer * rows);
    }
  }
  if (status.ok()) return {};
  {
    const PageTables::Change taken_back = w_.tables.change();
    (void)w_.copies.cut(n_tokens - 1, false);
    end_at_snapshot(w_.parts, w_.copies, *taken_back);
    w_.parts.list.roll_back(kv().n_tokens());
  }
  end_failed_prompt();
  forget_logits();
  w_.has_logits = false;
  return status;
}

Status DeviceMachine::seal_step() {
  const uint32_t last = kv().n_tokens() - 1;
  seal(last);
  return seal_on_device(last);
}

Status DeviceMachine::end_step(weir_token token) {
  if (staging_.state->is_late != 0) {
    Status status = repair_late_step();
    if (status.ok()) status = step_until_in_time(token);
    if (!status.ok()) {
      lose_step();
      return status;
    }
  }
  close_step();
  return {};
}

Status DeviceMachine::fetch_logits() {
  if (!on_device_) return {};
  WEIR_TRY(told(device_->get_logits()));
  on_device_ = false;
  return {};
}

Status DeviceMachine::draw(const DrawRequest& request, weir_token& token) {
  n_listed_ = 0;
  const uint32_t* const allowed = request.mask != nullptr ? request.mask->words() : nullptr;
  // The best token of all is the best of those that are allowed if it is one of them.
  if (greedy_is_known_ && request.sampler.is_greedy() && staging_.state->next_token >= 0 &&
      is_allowed(allowed, static_cast<uint32_t>(staging_.state->next_token))) {
    token = staging_.state->next_token;
    return {};
  }
  if (on_device_) {
    weir_token found = -1;
    WEIR_TRY(draw_from_best(request, found));
    if (found >= 0) return token = found, Status();
  }
  return Machine::draw(request, token);
}

// Draws from the best logits, if they decide what is drawn: -1 if not. With them come those whose probabilities the
// answer's event tells, unless a mask may have left these out.
Status DeviceMachine::draw_from_best(const DrawRequest& r, weir_token& token) {
  const uint32_t vocab_size = w_.setup.model->config().vocab_size,
                 n_allowed = r.mask == nullptr ? vocab_size : r.mask->n_allowed();
  const uint32_t* const allowed = r.mask != nullptr ? r.mask->words() : nullptr;
  LogitRequest request;
  request.n_best = r.sampler.candidates_needed(n_allowed);
  token = -1;
  if (request.n_best == 0) return {};
  request.n_asked = r.sampler.asked_tokens(staging_.asked);
  if (allowed != nullptr) {
    const size_t bytes = mask_words(vocab_size) * sizeof(uint32_t);
    request.masked = true;
    request.new_mask = !has_mask_ || std::memcmp(staging_.mask, allowed, bytes) != 0;
    if (request.new_mask) std::memcpy(staging_.mask, allowed, bytes);
  } else if (r.n_top != 0) {
    request.n_best = std::max(request.n_best, std::min(r.n_top, vocab_size));
    request.sums = true;
  }
  WEIR_TRY(told(device_->top_logits(request)));
  has_mask_ = has_mask_ || request.masked;
  if (request.sums) n_listed_ = request.n_best;
  token =
      r.sampler.sample_candidates({staging_.top_ids, staging_.top_logits, request.n_best}, request.n_best == n_allowed,
                                  {staging_.asked, staging_.asked_logits, request.n_asked}, allowed);
  return {};
}

Status DeviceMachine::find_probs(weir_token token, uint32_t n_top, LogProbs& probs) {
  if (!on_device_) return Machine::find_probs(token, n_top, probs);
  const std::span<const int32_t> listed(staging_.top_ids, n_listed_);
  const auto at = static_cast<size_t>(std::find(listed.begin(), listed.end(), token) - listed.begin());
  float logit = 0.0f;
  if (at != listed.size()) {
    logit = staging_.top_logits[at];
  } else {
    LogitRequest request;
    request.n_best = n_top;
    request.sums = true;
    request.n_asked = 1;
    staging_.asked[0] = token;
    WEIR_TRY(told(device_->top_logits(request)));
    logit = staging_.asked_logits[0];
  }
  probs.compute(staging_.top_ids, staging_.top_logits, n_top, staging_.parts, logit);
  return {};
}

void DeviceMachine::wipe_conversation() {
  const uint32_t vocab_size = w_.setup.model->config().vocab_size;
  wipe(staging_.logits, vocab_size * sizeof(*staging_.logits));
  wipe(staging_.top_ids, kMaxTopLogits * sizeof(*staging_.top_ids));
  wipe(staging_.top_logits, kMaxTopLogits * sizeof(*staging_.top_logits));
  wipe(staging_.asked, kMaxTopLogits * sizeof(*staging_.asked));
  wipe(staging_.asked_logits, kMaxTopLogits * sizeof(*staging_.asked_logits));
  wipe(staging_.mask, mask_words(vocab_size) * sizeof(*staging_.mask));
  has_mask_ = false;
  n_listed_ = 0;
  wipe(private_, private_bytes_);
}

void DeviceMachine::wipe_all() {
  wipe(private_, private_bytes_);
  wipe(staging_block_, w_.plan.staging_bytes);
}

// Pieces pass through staging memory that is otherwise used while prompts are read.
std::span<uint16_t> DeviceMachine::piece_room() const {
  const uint64_t n = uint64_t{w_.step.b.max_tok} * 2 * w_.setup.model->rope().angles().size();
  return {reinterpret_cast<uint16_t*>(staging_.cos_sin), 2 * n};
}

Status DeviceMachine::copy_out(void* host, const void* device, uint64_t bytes) const {
  return told(module_->copy_out(host, device, bytes));
}

Status DeviceMachine::copy_state_out(float* host, const float* state, uint64_t n) {
  return copy_out(host, state, n * sizeof(float));
}

Status DeviceMachine::copy_state_in(float* state, const float* host, uint64_t n) {
  return copy_in(state, host, n * sizeof(float));
}

Status DeviceMachine::copy_in(void* device, const void* host, uint64_t bytes) const {
  return told(module_->copy_in(device, host, bytes));
}

// With recall the pages are copied to the store row by row, and rows change on the host alone.
Status DeviceMachine::begin_noise() { return kv().shape().recalls() ? send_current_tables() : Status(); }

// Fills the last page of every stream, and leaves the pages in the staging memory.
Status DeviceMachine::add_noise(uint32_t, uint64_t&) {
  if (!kv().shape().recalls()) return {};
  const uint32_t n_streams = kv().shape().n_streams();
  for (uint32_t s = 0; s < n_streams; ++s) {
    const StreamView v = kv().stream(s);
    staging_.recall.page_slots[s] = v.slots[v.n_pages - 1];
  }
  const uint32_t row = kv().n_tokens() / kPageTokens;
  return told(device_->fill_row(row, uint64_t{row + 1} << 40));
}

void DeviceMachine::seal_noise(uint32_t n_tok) {
  seal(kv().n_tokens() - n_tok);
  if (!kv().shape().recalls() || kv().n_tokens() % kPageTokens != 0) return;
  w_.copies.seal_row(kv().n_tokens() / kPageTokens - 1, reinterpret_cast<const uint16_t*>(staging_.recall.pages));
}

Status DeviceMachine::end_noise() {
  WEIR_TRY(send_current_tables());
  WEIR_TRY(told(kv().shape().recalls() ? device_->rebuild_last_digests() : device_->fill_noise(1)));
  if (w_.has_logits) return {};
  std::fill_n(w_.step.b.logits, w_.setup.model->config().vocab_size, 0.0f);
  forget_logits();
  return {};
}

Status DeviceMachine::profile(weir_token token, double* seconds) {
  if (kv().n_tokens() + kPageTokens > w_.policy.needs().context_tokens)
    return fail(WEIR_ERR_CONTEXT_FULL, "measuring takes a few of the %u positions, none is free",
                w_.policy.needs().context_tokens);
  WEIR_TRY(send_current_tables());
  w_.tables.leave_to_device();
  const Status status = told(device_->profile_step(token, seconds));
  forget_logits();  // the timed parts overwrote them
  w_.has_logits = false;
  WEIR_TRY(status);
  WEIR_TRY(fetch_tables());
  w_.parts.recurrent.take(kv().n_tokens(), staging_.state->recurrent);
  return {};
}

}  // namespace weir
