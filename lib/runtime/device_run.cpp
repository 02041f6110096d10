// Sessions on a device: where their memory lies, and when page tables are copied. Around prompts policies work on the
// host's tables. Decode steps change only the device's tables; the host fetches them when they are needed there.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "policy/room.h"
#include "runtime/session.h"
#include "runtime/session_pools.h"
#include "runtime/staging.h"

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
class Session::Observer final : public ChunkObserver {
 public:
  Observer(Session& session, uint32_t n_tok, uint32_t n_left) : s_(session), n_tok_(n_tok), n_left_(n_left) {}

  Status observe(uint32_t layer) override {
    const ModelConfig& c = s_.model_->config();
    const Attention& attention = s_.model_->weights().layers[layer].attention;
    const uint32_t n_rows = std::min(n_tok_, s_.policy_->needs().prompt_rows), first = n_tok_ - n_rows;
    TokenMassBridge bridge = {{}, s_.module_, s_.device_, layer};
    bridge.cx.stream = &bridge;
    OpTable ops = {};
    ops.token_mass = token_mass_on_device;
    failed_ = s_.policy_->observe_prompt(bridge.cx, ops, *s_.tables_.change(),
                                         {layer, c.n_heads, s_.step_.b.q + size_t{first} * c.n_heads * c.head_dim,
                                          s_.step_.b.lse + size_t{first} * c.n_heads, n_rows, s_.kv_.n_tokens() + first,
                                          n_left_, s_.staging_.token_mass, attention.window, attention.soft_cap});
    return failed_;
  }
  // Not ok when the chunk failed because of the policy; the message is then the library's own.
  Status failed() const { return failed_; }

 private:
  Session& s_;
  uint32_t n_tok_, n_left_;
  Status failed_;
};

Status Session::allocate_staging() {
  Status status;
  try {
    status = take_staging(*module_, memory_, plan_.staging_bytes, &staging_block_);
  } catch (const std::bad_alloc&) {
    return fail(WEIR_ERR_OUT_OF_MEMORY,
                "the session's %llu bytes of host memory for staging could not be allocated%s%s",
                static_cast<unsigned long long>(plan_.staging_bytes), HostMemory::thread_refusal().why, kNeedLess);
  }
  if (status.ok()) return {};
  return fail(status.code(), "the session's %llu bytes of staging memory could not be mapped: %s",
              static_cast<unsigned long long>(plan_.staging_bytes), module_->last_error());
}

Status Session::create_on_device(const SessionSetup& setup, SpillStore* other) {
  const PolicyNeeds& needs = policy_->needs();
  SessionPools measured;
  DeviceBuffers buffers;
  lay_out_session(setup, needs, measured, device_kv_, step_, sampler_, record_);
  const uint64_t table_bytes = measured.tables.used();
  lay_out_staging(setup, needs, table_bytes, measured, buffers, staging_);
  fill_plan(setup, needs, measured, plan_);
  module_ = setup.module;

  WEIR_TRY(device_weights_.ensure(devices_, *module_, *setup.model, pool_));
  WEIR_TRY(devices_.allocate(*module_, plan_.device_bytes, "the session's KV pages, tables and workspace",
                             &device_block_, kNeedLess));
  device_bytes_ = plan_.device_bytes;
  WEIR_TRY(allocate_staging());
  block_bytes_ = plan_.sampler_bytes + module_->session_bytes;
  try {
    block_ = memory_.allocate(block_bytes_, kCacheLine);
  } catch (const std::bad_alloc&) {
    return fail(WEIR_ERR_OUT_OF_MEMORY, "the session's %llu bytes of host memory could not be allocated%s%s",
                static_cast<unsigned long long>(block_bytes_), HostMemory::thread_refusal().why, kNeedLess);
  }

  auto* at = static_cast<std::byte*>(device_block_);
  SessionPools pools;
  for (auto [pool, size] : {std::pair{&pools.pages, measured.pages.used()},
                            {&pools.digests, measured.digests.used()},
                            {&pools.tables, table_bytes},
                            {&pools.workspace, measured.workspace.used()}}) {
    *pool = Arena(at, size);
    if (pool == &pools.tables) buffers.tables = at;
    at += size;
  }
  auto* host = static_cast<std::byte*>(block_);
  pools.staging = Arena(staging_block_, plan_.staging_bytes);
  pools.sampler = Arena(host, plan_.sampler_bytes);
  private_ = host;
  private_bytes_ = plan_.sampler_bytes;
  lay_out_session(setup, needs, pools, device_kv_, step_, sampler_, record_);
  std::byte* tables = buffers.tables;
  lay_out_staging(setup, needs, table_bytes, pools, buffers, staging_);
  buffers.tables = tables;
  Arena elsewhere, host_tables(staging_.tables, table_bytes), host_rows(staging_.host_rows, UINT64_MAX);
  const PageTables::Change kv = tables_.change();
  kv->lay_out(setup.kv, elsewhere, elsewhere, host_tables, host_rows);
  kv->set_pages_elsewhere();
  kv->set_events(staging_.events);
  std::memset(staging_.state, 0, sizeof(StepState));

  DeviceSessionArgs args;
  args.config = &setup.model->config();
  args.weights = &device_weights_.weights();
  args.rope = &setup.model->rope();
  args.needs = &needs;
  args.rules = setup.rules;
  args.kv = &device_kv_;
  args.b = step_.b;
  args.cx = step_.cx;
  args.device = buffers;
  if (setup.kv.recalls()) {
    std::fill_n(staging_.recall.raw_index, staging_.recall.n_rows, kNoCopy);
    slot_memory_.module = module_;
    staging_.recall.late_ns = devices_.recall_late_ns();
    WEIR_TRY(create_store(other));
    store_.set_raw_index(staging_.recall.raw_index);
    staging_.recall.raw_pages = store_.raw_slots();
    args.recall = &device_pages_;
  }
  args.host = staging_;
  WEIR_TRY(from_module(*module_, module_->create_session(host + plan_.sampler_bytes, args, device_)));
  step_.b.logits = staging_.logits;
  return {};
}

Status Session::device_tables() { return device_ == nullptr ? Status() : from_module(*module_, put_device_tables()); }

Status Session::put_device_tables(bool repeats) {
  return tables_.send([&] { return put_tables(repeats); });
}

Status Session::put_tables(bool repeats) {
  const KvCounters c = kv_.counters();
  StepState& state = *staging_.state;
  state.n_tokens = c.n_tokens;
  state.pages_resident = c.pages_resident;
  state.pages_resident_max = c.pages_resident_max;
  state.pages_evicted = state.pages_evicted_before = c.pages_evicted;
  state.prompt_pages_evicted = c.prompt_pages_evicted;
  state.pages_cold = c.pages_cold;
  state.pages_lost = c.pages_lost;
  state.pages_recalled = cold_.pages_recalled();
  state.is_late = 0;
  return device_->put_tables(repeats);
}

// The device's counters belong to its tables.
void Session::read_counters() {
  const StepState& s = *staging_.state;
  tables_.count({s.n_tokens, s.pages_resident, s.pages_resident_max, s.pages_evicted, s.prompt_pages_evicted,
                 s.pages_cold, s.pages_lost});
  cold_.set_recalled(s.pages_recalled);
}

Status Session::host_tables() {
  return tables_.fetch([&] {
    WEIR_TRY(from_module(*module_, device_->get_tables()));
    read_counters();
    return Status();
  });
}

Status Session::run_device_chunk(const weir_token* tokens, uint32_t n_tok, uint32_t n_left) {
  const PageTables::Change kv = tables_.change();
  make_room(*policy_, *kv, n_tok, Phase::kPrompt);
  WEIR_TRY(kv->reserve(n_tok, policy_->prompt_flags(), kv_.n_tokens() + n_tok));
  const RopeTable& rope = model_->rope();
  const uint32_t pos = kv_.n_tokens();
  DeviceChunk chunk;
  for (uint32_t i = 0; i < n_tok; ++i) {
    staging_.tokens[i] = tokens[i];
    const uint32_t in_cache = staging_.cos_sin_sink != nullptr ? policy_->in_cache_pos(kv_, pos + i) : pos + i;
    for (uint32_t rotation = 0; rotation < rope.n_rotations(); ++rotation) {
      const size_t row = step_.b.rotation(rotation, rope.rope_dim()) + size_t{i} * rope.rope_dim();
      rope.fill(rotation, pos + i, staging_.cos_sin + row);
      if (staging_.cos_sin_sink != nullptr) rope.fill(rotation, in_cache, staging_.cos_sin_sink + row);
    }
    chunk.sink_moved = chunk.sink_moved || in_cache != pos + i;
  }
  Observer observer(*this, n_tok, n_left);
  chunk.pos = pos;
  chunk.n_tok = n_tok;
  chunk.want_logits = n_left == 0;
  chunk.observer = step_.b.lse != nullptr ? &observer : nullptr;
  chunk.cancel = &cancel_;
  chunk.pages = cold_.is_on() ? &device_pages_ : nullptr;
  KvReservation reservation(*kv);
  Status status = device_tables();
  if (status.ok()) {
    status = device_->run_chunk(chunk);
    if (observer.failed().ok()) status = from_module(*module_, status);
  }
  WEIR_TRY(status);
  WEIR_TRY(cold_.failure());  // a strict store: a page that the chunk attends is lost
  reservation.commit();
  if (chunk.want_logits) logits_on_device_ = greedy_from_device_ = true;
  return cold_.is_on() ? seal_on_device(pos) : Status();
}

// Between these two calls the device's tables change; from then on the host's are out of date.
Status Session::open_device_step() {
  WEIR_TRY(device_tables());
  tables_.leave_to_device();
  return {};
}

void Session::close_device_step() {
  read_counters();
  step_.pages_attended = staging_.state->pages_attended;
  logits_on_device_ = greedy_from_device_ = true;
}

Status Session::run_device_step(weir_token token) {
  WEIR_TRY(prepare_copies(1));
  WEIR_TRY(open_device_step());
  const Status status = cold_.is_on() ? step_on_device(token) : from_module(*module_, device_->step(token));
  if (!status.ok()) {
    greedy_from_device_ = false;
    return status;
  }
  close_device_step();
  return cold_.is_on() ? seal_on_device(kv_.n_tokens() - 1) : Status();
}

Status Session::current_logits() {
  if (!logits_on_device_) return {};
  WEIR_TRY(from_module(*module_, device_->get_logits()));
  logits_on_device_ = false;
  return {};
}

// Draws from the best logits, if they decide what is drawn: -1 if not. With them come those whose probabilities the
// answer's event tells, unless a mask may have left these out.
Status Session::sample_top_logits(const uint32_t* allowed, uint32_t n_top, weir_token& token) {
  const uint32_t vocab_size = model_->config().vocab_size,
                 n_allowed = allowed == nullptr ? vocab_size : mask_.n_allowed();
  LogitRequest request;
  request.n_best = sampler_.candidates_needed(n_allowed);
  token = -1;
  if (request.n_best == 0) return {};
  request.n_asked = sampler_.asked_tokens(staging_.asked);
  if (allowed != nullptr) {
    const size_t bytes = mask_words(vocab_size) * sizeof(uint32_t);
    request.masked = true;
    request.new_mask = !has_device_mask_ || std::memcmp(staging_.mask, allowed, bytes) != 0;
    if (request.new_mask) std::memcpy(staging_.mask, allowed, bytes);
  } else if (n_top != 0) {
    request.n_best = std::max(request.n_best, std::min(n_top, vocab_size));
    request.sums = true;
  }
  WEIR_TRY(from_module(*module_, device_->top_logits(request)));
  has_device_mask_ = has_device_mask_ || request.masked;
  if (request.sums) n_listed_ = request.n_best;
  token =
      sampler_.sample_candidates({staging_.top_ids, staging_.top_logits, request.n_best}, request.n_best == n_allowed,
                                 {staging_.asked, staging_.asked_logits, request.n_asked}, allowed);
  return {};
}

void Session::wipe_answers_of_device() {
  wipe(staging_.top_ids, kMaxTopLogits * sizeof(*staging_.top_ids));
  wipe(staging_.top_logits, kMaxTopLogits * sizeof(*staging_.top_logits));
  wipe(staging_.asked, kMaxTopLogits * sizeof(*staging_.asked));
  wipe(staging_.asked_logits, kMaxTopLogits * sizeof(*staging_.asked_logits));
  wipe(staging_.mask, mask_words(model_->config().vocab_size) * sizeof(*staging_.mask));
  has_device_mask_ = false;
  n_listed_ = 0;
}

// Computes the log probabilities of the token that was drawn for an answer, and of the best ones.
Status Session::find_probs(weir_token token) {
  const uint32_t vocab_size = model_->config().vocab_size, n = std::min(answer_.n_top, vocab_size);
  if (!logits_on_device_) {
    probs_.compute(step_.b.logits, vocab_size, token, n);
    return {};
  }
  const std::span<const int32_t> listed(staging_.top_ids, n_listed_);
  const auto at = static_cast<size_t>(std::find(listed.begin(), listed.end(), token) - listed.begin());
  float logit = 0.0f;
  if (at != listed.size()) {
    logit = staging_.top_logits[at];
  } else {
    LogitRequest request;
    request.n_best = n;
    request.sums = true;
    request.n_asked = 1;
    staging_.asked[0] = token;
    WEIR_TRY(from_module(*module_, device_->top_logits(request)));
    logit = staging_.asked_logits[0];
  }
  probs_.compute(staging_.top_ids, staging_.top_logits, n, staging_.parts, logit);
  return {};
}

void Session::redo_digests() {
  if (device_ == nullptr) return;
  // When this fails the device is lost and the next call says so; the caller's message stays that of the failed prompt.
  if (put_device_tables().ok()) (void)device_->rebuild_last_digests();
}

Status Session::fill_on_device() {
  WEIR_TRY(device_tables());
  WEIR_TRY(from_module(*module_, cold_.is_on() ? device_->rebuild_last_digests() : device_->fill_noise(1)));
  if (!has_logits_) {
    std::fill_n(step_.b.logits, model_->config().vocab_size, 0.0f);
    logits_on_device_ = greedy_from_device_ = false;
  }
  has_logits_ = true;
  return {};
}

Status Session::profile_step(weir_token token, double* seconds) {
  const Lock lock(*this);
  WEIR_TRY(lock.status());
  WEIR_TRY(check_token(token));
  if (step_.device != nullptr) return profile_split_step(token, seconds);
  if (device_ == nullptr) return fail(WEIR_ERR_UNSUPPORTED, "the parts of a step are measured on devices only");
  if (kv_.n_tokens() + kPageTokens > policy_->needs().context_tokens)
    return fail(WEIR_ERR_CONTEXT_FULL, "measuring takes a few of the %u positions, none is free",
                policy_->needs().context_tokens);
  WEIR_TRY(device_tables());
  tables_.leave_to_device();
  const Status status = from_module(*module_, device_->profile_step(token, seconds));
  // The timed parts overwrote the logits.
  logits_on_device_ = greedy_from_device_ = has_logits_ = false;
  WEIR_TRY(status);
  const uint32_t before = kv_.n_tokens();
  WEIR_TRY(host_tables());
  for (uint32_t pos = before; pos < kv_.n_tokens(); ++pos) record_.put(pos, &token, 1);
  return {};
}

}  // namespace weir
