// Hands what a step did, layer by layer, to a function of the application.
#pragma once

#include "core/thread_pool.h"
#include "models/decoder.h"
#include "runtime/call_outs.h"
#include "weir/experimental.h"

namespace weir {

class SessionTrace final : public StepTrace {
 public:
  SessionTrace(ThreadPool& pool, CallOuts& calls) : pool_(pool), calls_(calls) {}
  Status layer(const KvCache& kv, uint32_t n_tokens, uint32_t layer, uint32_t n_heads, bool list_per_head,
               const PageLists& lists, const float* page_mass) override;

  weir_trace_fn fn = nullptr;
  void* user = nullptr;
  bool possible = false;  // the session was created for it

 private:
  ThreadPool& pool_;
  CallOuts& calls_;
};

}  // namespace weir
