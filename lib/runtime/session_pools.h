// The pools of a session's block, in the order in which they lie in it.
#pragma once

#include "core/memory.h"
#include "runtime/session.h"

namespace weir {

struct SessionPools {
  Arena pages, digests, tables, workspace, sampler;
};

// Takes everything from the pools; over measuring arenas only the sizes result.
void lay_out_session(const SessionSetup& setup, const PolicyNeeds& needs, SessionPools& pools, KvCache& kv, Step& step,
                     Sampler& sampler);
void fill_plan(const SessionSetup& setup, const PolicyNeeds& needs, const SessionPools& pools, weir_plan_info& plan);

}  // namespace weir
