// The pools of a session's block, in the order in which they lie in it.
#pragma once

#include "core/memory.h"
#include "runtime/device_module.h"
#include "runtime/module_rows.h"
#include "runtime/session_parts.h"
#include "runtime/session_setup.h"

namespace weir {

// The end of a message that a session's memory is not there: what makes it smaller.
inline constexpr char kNeedLess[] =
    "; fewer context_tokens (--context), or a policy with fewer budget_tokens (--budget), need less";

struct SessionPools {
  Arena pages, digests, tables, recurrent, workspace;  // device memory in sessions on a device
  Arena sampler, snapshots;                            // on the host
  Arena staging;                                       // host memory that a device copies from and to
  Arena rows;  // device memory of a session whose attention is computed on the host
};

// Takes everything from the pools that steps and prompts compute with; over measuring arenas it only adds up sizes.
void lay_out_session(const SessionSetup& setup, const PolicyNeeds& needs, SessionPools& pools, Step& step);
// What the parts of a session remember whose pages are in host memory.
void lay_out_host_parts(SessionPools& pools, const PartList& parts);
// How many tokens of the conversation are kept; `setup` has all but this and the store.
TokenRecord::Shape plan_record(const PolicyNeeds& needs, const KvShape& kv, uint32_t vocab_size);
// The store for the pages outside the pool, from the options; `setup` has all but the store (plan_store.cpp).
Status plan_store(const weir_session_options& options, const PolicyNeeds& needs, SessionSetup& setup);
Status plan_store_within(weir_session_options options, uint64_t room, const PolicyNeeds& needs, SessionSetup& setup);
// The positions whose pages it holds in any case, in every stream whose pages go there.
uint32_t stored_tokens(const SessionSetup& setup);
// What a session on a device needs besides: its parts, the tables that mirror theirs, its staging memory and the
// module's buffers.
void lay_out_staging(const SessionSetup& setup, const PolicyNeeds& needs, SessionPools& pools, const PartList& parts,
                     DeviceTables& tables, DeviceBuffers& device, DeviceStaging& staging);
// What a session has instead whose attention the host computes and the rest a device.
void lay_out_device_rows(const SessionSetup& setup, const PolicyNeeds& needs, SessionPools& pools, StepBuffers& host,
                         ModuleRows& rows);
void fill_plan(const SessionSetup& setup, const PolicyNeeds& needs, const SessionPools& pools, weir_plan_info& plan);

}  // namespace weir
