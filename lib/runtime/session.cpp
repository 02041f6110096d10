// Life of a session, its logits and its counters. Prompts are in prefill.cpp, decode steps in generate.cpp. Whatever
// uses the conversation takes the busy flag first, so two threads in one session are an error and not a race.
#include "runtime/session.h"

#include <algorithm>
#include <new>
#include <utility>

#include "policy/page_fetcher.h"
#include "runtime/session_entry.h"
#include "runtime/session_pools.h"
#include "runtime/staging.h"

namespace weir {

Session::~Session() {
  if (model_ != nullptr) {
    wipe_conversation();
    tables_.change()->wipe_pages();
    if (was_used_) wipe(private_, private_bytes_);
    if (was_used_ && staging_block_ != nullptr) wipe(staging_block_, plan_.staging_bytes);
  }
  if (device_ != nullptr) device_->~DeviceSession();
  if (staging_block_ != nullptr) give_staging_back(*module_, memory_, staging_block_, plan_.staging_bytes);
  if (device_block_ != nullptr) devices_.release(*module_, device_block_, device_bytes_);
  if (policy_ != nullptr) policy_->~Policy();
  if (block_ != nullptr) memory_.deallocate(block_, block_bytes_, kCacheLine);
}

Status Session::create(const Model& model, const weir_session_options& options) {
  WEIR_TRY(check(model, options, pool_.n_threads(), devices_, device_weights_, policy_storage_, policy_, setup_));
  WEIR_TRY(build(nullptr));
  setup_.spill.file_path = nullptr;  // the caller's
  return {};
}

Status Session::build(SpillStore* other) {
  const SessionSetup& setup = setup_;
  if (setup.module != nullptr) {
    WEIR_TRY(create_on_device(setup, other));
    return begin();
  }
  SessionPools measured;
  lay_out_session(setup, policy_->needs(), measured, *tables_.change(), step_, sampler_, record_);
  if (setup.rows != nullptr) lay_out_device_rows(setup, policy_->needs(), measured, step_.b, rows_);
  fill_plan(setup, policy_->needs(), measured, plan_);
  if (setup.rows != nullptr) WEIR_TRY(take_device_rows(measured));
  block_bytes_ = plan_.total_bytes - plan_.session_bytes - plan_.spill_bytes - plan_.device_bytes - plan_.staging_bytes;
  try {
    block_ = memory_.allocate(block_bytes_, kCacheLine);
  } catch (const std::bad_alloc&) {
    return fail(WEIR_ERR_OUT_OF_MEMORY, "the session's %llu bytes (%llu of them KV pages) could not be allocated%s%s",
                static_cast<unsigned long long>(plan_.total_bytes), static_cast<unsigned long long>(plan_.kv_bytes),
                HostMemory::thread_refusal().why, kNeedLess);
  }
  auto* at = static_cast<std::byte*>(block_);
  SessionPools pools;
  pools.rows = Arena(static_cast<std::byte*>(device_block_), measured.rows.used());
  pools.staging = Arena(staging_block_, plan_.staging_bytes);
  for (auto [pool, size] : {std::pair{&pools.pages, measured.pages.used()},
                            {&pools.digests, measured.digests.used()},
                            {&pools.tables, measured.tables.used()},
                            {&pools.workspace, measured.workspace.used()},
                            {&pools.sampler, measured.sampler.used()}}) {
    *pool = Arena(at, size);
    at += size;
  }
  private_bytes_ = measured.workspace.used() + measured.sampler.used();
  private_ = at - private_bytes_;
  lay_out_session(setup, policy_->needs(), pools, *tables_.change(), step_, sampler_, record_);
  if (setup.rows != nullptr) lay_out_device_rows(setup, policy_->needs(), pools, step_.b, rows_);
  if (setup.has_store()) WEIR_TRY(create_store(other));
  return begin();
}

Status Session::create_store(SpillStore* other) {
  try {
    return other != nullptr ? store_.create_copy(*other) : store_.create(setup_.spill);
  } catch (const std::bad_alloc&) {
    if (!slot_memory_.failed.ok()) {
      return fail(slot_memory_.failed.code(), "the spill store's latest pages could not be mapped: %s",
                  module_->last_error());
    }
    return fail(WEIR_ERR_OUT_OF_MEMORY,
                "the spill store's %llu bytes could not be allocated%s; a smaller spill_budget_bytes needs less",
                static_cast<unsigned long long>(plan_.spill_bytes), HostMemory::thread_refusal().why);
  }
}

// What is the same on all devices, once the memory is there.
Status Session::begin() {
  const SessionSetup& setup = setup_;
  const Model& model = *setup.model;
  model_ = &model;
  step_.model = &model;
  step_.backend = setup.backend;
  step_.policy = policy_;
  KvCache& kv = *tables_.change();
  step_.kv = &kv;
  step_.scope = setup.rules.scope;
  step_.cx.pool = &pool_;
  trace_.possible = setup.trace;
  detokenizer_.reset(&model.tokenizer(), false, true);
  kv.reset();
  if (setup.kv.recalls()) {
    cold_.start(kv, store_, setup.spill_strict, device_ == nullptr ? nullptr : &device_pages_);
    step_.cold = &cold_;
  } else if (setup.has_store()) {
    archive_.start(kv, store_);
  }
  weir_sampling_options greedy = WEIR_SAMPLING_OPTIONS_INIT;
  WEIR_TRY(check_sampling(greedy, model.config().vocab_size));
  sampler_.set(greedy);
  return {};
}

void Session::seal(uint32_t first) {
  if (cold_.is_on()) cold_.seal(first);
  if (archive_.is_on()) archive_.seal(first);
}

Status Session::reset() {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  forget();
  cancel_.clear();
  return {};
}

// Wipes the conversation in host memory, but for pages and their copies, which KvCache and SpillStore wipe. Memory that
// nothing has touched stays untouched.
void Session::wipe_conversation() {
  wipe(&detokenizer_, sizeof(detokenizer_));
  detokenizer_.reset(&model_->tokenizer(), false, true);
  wipe(&stops_, sizeof(stops_));
  wipe(&parts_, sizeof(parts_));
  wipe(&answer_, sizeof(answer_));
  wipe(forced_, sizeof(forced_));
  drop_message();
  has_stops_ = false;
  answer_ = {};
  wipe(&probs_, sizeof(probs_));
  probs_ = {};
  if (!is_used_ && kv_.n_tokens() == 0) return;
  wipe(private_, device_ == nullptr ? step_.b.plain_bytes : 0);
  if (step_.b.fetcher != nullptr) step_.b.fetcher->wipe_pages();
  wipe(step_.b.logits, model_->config().vocab_size * sizeof(float));  // may be in staging memory
  if (device_ != nullptr) wipe_answers_of_device();
  wipe(static_cast<std::byte*>(private_) + (private_bytes_ - plan_.sampler_bytes), plan_.sampler_bytes);
  was_used_ = true;
  is_used_ = false;
}

void Session::forget() {
  wipe_conversation();
  if (cold_.is_on()) cold_.reset();
  if (archive_.is_on()) archive_.reset();
  tables_.replace()->reset();
  record_.reset();
  events_read_ = kv_.pages_evicted();
  sampler_.restart();
  mask_.restart();
  answer_from_ = rules_from_ = 0;
  detokenizer_.reset(&model_->tokenizer(), false, true);
  has_logits_ = logits_on_device_ = greedy_from_device_ = false;
  drawn_for_ = pulled_until_ = UINT32_MAX;
}

Status Session::check_token(weir_token token) const {
  const uint32_t n = model_->config().vocab_size;
  if (token < 0 || static_cast<uint32_t>(token) >= n)
    return fail(WEIR_ERR_INVALID_ARG, "token %d is not in 0..%u", token, n - 1);
  return {};
}

Status Session::check_logits() const {
  if (has_logits_) return {};
  const uint32_t n = kv_.n_tokens();
  if (n == 0) return fail(WEIR_ERR_STATE, "there are no logits before the first prefill or step");
  return fail(WEIR_ERR_STATE,
              "there are no logits of the last token, as after a rewind or a prefill that failed: prefill or step what "
              "comes next, or rewind to %u tokens and step the last one again",
              n - 1);
}

Status Session::logits(const float*& out, uint32_t& n) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(check_logits());
  WEIR_TRY(current_logits());
  out = step_.b.logits;
  n = model_->config().vocab_size;
  return {};
}

Status Session::tokens(const weir_token*& out, uint32_t& n) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  const std::span<const weir_token> held = record_.view(kv_.n_tokens());
  out = held.data();
  n = static_cast<uint32_t>(held.size());
  return {};
}

Status Session::set_cancel(SharedCancel* cancel) {
  const Lock lock(*this);
  WEIR_TRY(lock.status());
  cancel_.share(cancel);
  return {};
}

Status Session::set_sampling(const weir_sampling_options& options) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  weir_sampling_options checked = options;
  WEIR_TRY(check_sampling(checked, model_->config().vocab_size));
  sampler_.set(checked);
  return {};
}

Status Session::sample(weir_token& token) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(check_logits());
  // In a loop of sample and step, where every token that was drawn has been appended.
  if (pulled_until_ == kv_.n_tokens() && take_cancel())
    return fail(WEIR_ERR_CANCELLED, "sampling was cancelled; what was drawn before is in the conversation");
  weir_token found = -1;
  WEIR_TRY(sample_logits(false, found));
  if (found < 0) return fail(WEIR_ERR_STATE, "the constraint, or the function that masks tokens, lets none follow");
  token = found;
  drawn_ = token;
  drawn_for_ = kv_.n_tokens();
  return {};
}

Status Session::sample_logits(bool in_answer, weir_token& token) {
  const uint32_t* allowed = nullptr;
  bool is_over = false;
  n_listed_ = 0;
  WEIR_TRY(find_mask(in_answer, allowed, is_over));
  if (is_over) return token = -1, Status();
  // The best token of all is the best of those that are allowed if it is one of them.
  if (greedy_from_device_ && sampler_.is_greedy() && staging_.state->next_token >= 0 &&
      is_allowed(allowed, static_cast<uint32_t>(staging_.state->next_token))) {
    token = staging_.state->next_token;
    return {};
  }
  if (logits_on_device_) {
    weir_token found = -1;
    WEIR_TRY(sample_top_logits(allowed, in_answer ? answer_.n_top : 0, found));
    if (found >= 0) return token = found, Status();
  }
  WEIR_TRY(current_logits());
  return sampler_.sample(step_.b.logits, token, allowed);
}

void Session::get_stats(weir_session_stats& s) const {
  s.n_tokens = kv_.n_tokens_any_thread();
  s.n_prompt = n_prompt_.load(std::memory_order_relaxed);
  s.n_decode = n_decode_.load(std::memory_order_relaxed);
  s.pages_resident = kv_.pages_resident();
  s.pages_resident_max = kv_.pages_resident_max();
  s.pages_evicted = kv_.pages_evicted();
  s.pages_recalled = cold_.pages_recalled();
  const bool has_store = cold_.is_on() || archive_.is_on();
  s.pages_dropped = has_store ? kv_.pages_lost() : s.pages_evicted;
  s.pages_spilled = s.pages_evicted - std::min(s.pages_evicted, s.pages_dropped);
  if (has_store) {
    const SpillStats store = store_.stats();
    s.pages_cold = kv_.pages_cold();
    s.spill_stored_bytes = store.stored_bytes;
    s.recall_ns = cold_.recall_ns();
    s.spill_waits = store.waits;
    s.spill_errors = store.errors;
    s.spill_pages_raw = store.pages_raw;
    s.spill_restored = store.restored;
  }
  s.prefill_ns = prefill_ns_.load(std::memory_order_relaxed);
  s.decode_ns = decode_ns_.load(std::memory_order_relaxed);
  s.pages_attended = pages_attended_.load(std::memory_order_relaxed);
}

void Session::get_memory(weir_memory_info& m) const {
  m.plan_bytes = plan_.total_bytes;
  m.device_bytes = device_bytes_;
  const uint64_t shared = setup_.spill_plan.family_bytes;  // of the runtime's memory
  m.bytes = sizeof(Session) + shared + memory_.bytes() + device_bytes_;
  m.peak_bytes = sizeof(Session) + shared + memory_.peak_bytes() + device_bytes_;
  m.kv_budget_bytes = plan_.kv_bytes;
  m.kv_bytes = kv_.pages_resident() * plan_.page_bytes;
  m.kv_peak_bytes = kv_.pages_resident_max() * plan_.page_bytes;
  m.n_allocs = 1 + (shared != 0 ? 1 : 0) + memory_.n_allocs() + (device_bytes_ != 0 ? 1 : 0);
  m.allocs_while_decoding = late_allocs_.load(std::memory_order_relaxed);
}

}  // namespace weir
