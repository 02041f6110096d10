// The pools of a session's block, in the order in which they lie in it.
#pragma once

#include "core/memory.h"
#include "runtime/session.h"

namespace weir {

// The end of a message that a session's memory is not there: what makes it smaller.
inline constexpr char kNeedLess[] =
    "; fewer context_tokens (--context), or a policy with fewer budget_tokens (--budget), need less";

struct SessionPools {
  Arena pages, digests, tables, workspace, sampler;  // all but the sampler are device memory in sessions on a device
  Arena staging;                                     // host memory that a device copies from and to
  Arena rows;  // device memory of a session whose attention is computed on the host
};

// Takes everything from the pools; over measuring arenas it only adds up sizes. `tokens`: [context_tokens].
void lay_out_session(const SessionSetup& setup, const PolicyNeeds& needs, SessionPools& pools, KvCache& kv, Step& step,
                     Sampler& sampler, weir_token*& tokens);
// What a session on a device needs besides: its staging memory and the module's buffers.
void lay_out_staging(const SessionSetup& setup, const PolicyNeeds& needs, uint64_t table_bytes, SessionPools& pools,
                     DeviceBuffers& device, DeviceStaging& staging);
// What a session has instead whose attention the host computes and the rest a device.
void lay_out_device_rows(const SessionSetup& setup, const PolicyNeeds& needs, SessionPools& pools, StepBuffers& host,
                         ModuleRows& rows);
void fill_plan(const SessionSetup& setup, const PolicyNeeds& needs, const SessionPools& pools, weir_plan_info& plan);

}  // namespace weir
