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
    if (was_used_) remembered_.recurrent.reset();
    if (was_used_) machine_->wipe_all();
  }
  if (machine_ != nullptr) machine_->~Machine();
  if (policy_ != nullptr) policy_->~Policy();
}

Status Session::create(const Model& model, const weir_session_options& options) {
  WEIR_TRY(
      check_options(model, options, pool_.n_threads(), devices_, device_weights_, policy_storage_, policy_, setup_));
  WEIR_TRY(build(nullptr));
  setup_.spill.file_path = nullptr;  // the caller's
  return {};
}

Status Session::build(SpillStore* other) {
  KvCache& kv = *tables_.change();
  copies_part_.set_tables(kv);
  remembered_.set_up(setup_, kv, {&logits_part_, &text_part_, &copies_part_}, more_parts_);
  machine_ = Machine::make(machine_place_, {.setup = setup_,
                                            .policy = *policy_,
                                            .memory = memory_,
                                            .pool = pool_,
                                            .devices = devices_,
                                            .weights = device_weights_,
                                            .plan = plan_,
                                            .tables = tables_,
                                            .slot_memory = slot_memory_,
                                            .store = store_,
                                            .copies = copies_,
                                            .step = step_,
                                            .parts = remembered_,
                                            .cancel = cancel_,
                                            .has_logits = has_logits_});
  WEIR_TRY(machine_->create(other));
  const SessionSetup& setup = setup_;
  const Model& model = *setup.model;
  model_ = &model;
  answering_.set_model(model);
  step_.model = &model;
  step_.backend = setup.backend;
  step_.policy = policy_;
  step_.kv = &kv;
  step_.scope = setup.rules.scope;
  step_.cx.pool = &pool_;
  trace_.possible = setup.trace;
  remembered_.list.reset();
  copies_.start(kv, setup.has_store() ? &store_ : nullptr, setup.spill_strict, machine_->pool_access());
  step_.copies = &copies_;
  step_.recurrent = &remembered_.recurrent;
  weir_sampling_options greedy = WEIR_SAMPLING_OPTIONS_INIT;
  WEIR_TRY(check_sampling(greedy, model.config().vocab_size));
  sampler_.set(greedy);
  return {};
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
  answering_.wipe_all();
  if (!is_used_ && kv_.n_tokens() == 0) return;
  machine_->wipe_conversation();
  was_used_ = true;
  is_used_ = false;
}

void Session::forget() {
  wipe_conversation();
  const PageTables::Change anew = tables_.replace();
  remembered_.list.reset();
}

Status check_token(const Model& model, weir_token token) {
  const uint32_t n = model.config().vocab_size;
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
  WEIR_TRY(machine_->fetch_logits());
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
  if (pulled_until_ == kv_.n_tokens() && cancel_.take())
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
  TokenMask* mask = nullptr;
  bool is_over = false;
  WEIR_TRY(
      mask_.find({*model_, record_, kv_.n_tokens(), in_answer ? &answering_ : nullptr, call_outs_}, mask, is_over));
  if (is_over) return token = -1, Status();
  return machine_->draw({sampler_, mask, in_answer ? answering_.state().n_top : 0}, token);
}

void Session::get_stats(weir_session_stats& s) const {
  s.n_tokens = kv_.n_tokens_any_thread();
  s.n_prompt = counters_.n_prompt.get();
  s.n_decode = counters_.n_decode.get();
  s.pages_resident = kv_.pages_resident();
  s.pages_resident_max = kv_.pages_resident_max();
  s.pages_evicted = kv_.pages_evicted();
  s.pages_recalled = copies_.pages_recalled();
  const bool has_store = setup_.has_store();
  s.pages_dropped = has_store ? kv_.pages_lost() : s.pages_evicted;
  s.pages_spilled = s.pages_evicted - std::min(s.pages_evicted, s.pages_dropped);
  if (has_store) {
    const SpillStats store = store_.stats();
    s.pages_cold = kv_.pages_cold();
    s.spill_stored_bytes = store.stored_bytes;
    s.recall_ns = copies_.recall_ns();
    s.spill_waits = store.waits;
    s.spill_errors = store.errors;
    s.spill_pages_raw = store.pages_raw;
    s.spill_restored = store.restored;
  }
  s.prefill_ns = counters_.prefill_ns.get();
  s.decode_ns = counters_.decode_ns.get();
  s.pages_attended = counters_.pages_attended.get();
}

void Session::get_memory(weir_memory_info& m) const {
  m.plan_bytes = plan_.total_bytes;
  m.device_bytes = machine_->device_bytes();
  const uint64_t shared = setup_.spill_plan.family_bytes;  // of the runtime's memory
  m.bytes = sizeof(Session) + shared + memory_.bytes() + machine_->device_bytes();
  m.peak_bytes = sizeof(Session) + shared + memory_.peak_bytes() + machine_->device_bytes();
  m.kv_budget_bytes = plan_.kv_bytes;
  m.kv_bytes = kv_.pages_resident() * plan_.page_bytes;
  m.kv_peak_bytes = kv_.pages_resident_max() * plan_.page_bytes;
  m.n_allocs = 1 + (shared != 0 ? 1 : 0) + memory_.n_allocs() + (machine_->device_bytes() != 0 ? 1 : 0);
  m.allocs_while_decoding = counters_.late_allocs.get();
}

}  // namespace weir
