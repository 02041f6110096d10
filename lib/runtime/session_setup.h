// From the options of a session to what they mean, and to the bytes that it takes.
#pragma once

#include <cstdint>
#include <span>

#include "kv/kv_cache.h"
#include "kv/recurrent_state.h"
#include "kv/spill_store.h"
#include "models/decoder.h"
#include "models/model.h"
#include "policy/policy.h"
#include "runtime/device_host.h"
#include "runtime/token_record.h"
#include "weir/session.h"

namespace weir {

// What the options mean for a model, after every check. Plan and session are both made from it.
struct SessionSetup {
  const Model* model = nullptr;
  const Backend* backend = nullptr;
  const DeviceModule* module = nullptr;  // of a device backend; null: the CPU
  const DeviceModule* rows = nullptr;    // of a device that computes all but attention; then `module` is null
  StepRules rules;                       // what its kernels do for the policy
  uint32_t n_threads = 1;
  uint32_t max_tok = 0;  // rows of a prefill chunk
  bool trace = false;    // page masses of every step are kept for weir_session_trace
  KvShape kv;
  RecurrentState::Shape recurrent;
  uint32_t max_archive_pages = 0;  // KvShape::archive_pages that a session with these options and a store has
  bool has_store() const { return kv.recalls() || kv.archive_pages != 0; }
  TokenRecord::Shape record;
  SpillOptions spill;  // this and the next with a store
  SpillPlan spill_plan;
  bool spill_strict = false;  // WEIR_SPILL_STRICT
  OpShapes shapes;
};

// Checks `options` (complete, of this build's size) and builds the policy in `storage`.
Status check_options(const Model& model, const weir_session_options& options, uint32_t n_threads,
                     const DeviceHost& devices, const DeviceWeights& weights, PolicyStorage& storage, Policy*& policy,
                     SessionSetup& setup);
// The exact bytes of every pool. `more`: parts besides the session's own, which are only measured.
Status plan_session(const Model& model, const weir_session_options& options, uint32_t n_threads,
                    const DeviceHost& devices, const DeviceWeights& weights, weir_plan_info& plan,
                    std::span<Part* const> more = {});
// Chooses what is 0 of context, budget and store, so that the plan takes at most `bytes` (plan_fit.cpp).
// WEIR_ERR_BUDGET names what is the least.
Status fit_options(const Model& model, uint32_t n_threads, const DeviceHost& devices, const DeviceWeights& weights,
                   uint64_t bytes, weir_session_options& options);

}  // namespace weir
