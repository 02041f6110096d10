// What machines have in common: their memory on the host, and what needs no device.
#include "runtime/machine.h"

#include <algorithm>
#include <new>

#include "runtime/machine_device.h"
#include "runtime/machine_host.h"
#include "runtime/machine_split.h"
#include "runtime/session_pools.h"
#include "runtime/staging.h"

namespace weir {

static_assert(std::max({sizeof(HostMachine), sizeof(SplitMachine), sizeof(DeviceMachine)}) <= Machine::kBytes);
static_assert(std::max({alignof(HostMachine), alignof(SplitMachine), alignof(DeviceMachine)}) <= Machine::kAlignment);

Machine* Machine::make(void* place, const MachineWork& work) {
  if (work.setup.module != nullptr) return new (place) DeviceMachine(work);
  if (work.setup.rows != nullptr) return new (place) SplitMachine(work);
  return new (place) HostMachine(work);
}

Machine::~Machine() {
  if (staging_block_ != nullptr) give_staging_back(*module_, w_.memory, staging_block_, w_.plan.staging_bytes);
  if (device_block_ != nullptr) w_.devices.release(*module_, device_block_, device_bytes_);
  if (block_ != nullptr) w_.memory.deallocate(block_, block_bytes_, kCacheLine);
}

Status Machine::take_block(uint64_t bytes) {
  try {
    block_ = w_.memory.allocate(bytes, kCacheLine);
  } catch (const std::bad_alloc&) {
    return Status(WEIR_ERR_OUT_OF_MEMORY);
  }
  block_bytes_ = bytes;
  return {};
}

Status Machine::take_staging() {
  Status status;
  try {
    status = weir::take_staging(*module_, w_.memory, w_.plan.staging_bytes, &staging_block_);
  } catch (const std::bad_alloc&) {
    return fail(WEIR_ERR_OUT_OF_MEMORY,
                "the session's %llu bytes of host memory for staging could not be allocated%s%s",
                static_cast<unsigned long long>(w_.plan.staging_bytes), HostMemory::thread_refusal().why, kNeedLess);
  }
  if (status.ok()) return {};
  return fail(status.code(), "the session's %llu bytes of staging memory could not be mapped: %s",
              static_cast<unsigned long long>(w_.plan.staging_bytes), module_->last_error());
}

Status Machine::create_store(SpillStore* other) {
  try {
    return other != nullptr ? w_.store.create_copy(*other) : w_.store.create(w_.setup.spill);
  } catch (const std::bad_alloc&) {
    const Status failed = w_.slot_memory.failed;
    if (!failed.ok()) {
      return fail(failed.code(), "the spill store's latest pages could not be mapped: %s", module_->last_error());
    }
    return fail(WEIR_ERR_OUT_OF_MEMORY,
                "the spill store's %llu bytes could not be allocated%s; a smaller spill_budget_bytes needs less",
                static_cast<unsigned long long>(w_.plan.spill_bytes), HostMemory::thread_refusal().why);
  }
}

Status Machine::prepare_copies(uint32_t n_tok) { return w_.copies.prepare(n_tok); }

Status Machine::draw(const DrawRequest& request, weir_token& token) {
  WEIR_TRY(fetch_logits());
  return request.sampler.sample(w_.step.b.logits, token, request.mask != nullptr ? request.mask->words() : nullptr);
}

Status Machine::find_probs(weir_token token, uint32_t n_top, LogProbs& probs) {
  probs.compute(w_.step.b.logits, w_.setup.model->config().vocab_size, token, n_top);
  return {};
}

Status Machine::profile(weir_token, double*) {
  return fail(WEIR_ERR_UNSUPPORTED, "the parts of a step are measured on devices only");
}

}  // namespace weir
