// Sessions whose keys, values and attention stay on the host, while a device has the weights and computes everything
// else. To the rest of the library they are sessions on the CPU. In each layer the rows of q, k and v come from the
// device and those of the output go there (run_attention in models/decoder.cpp); they lie in staging memory. Prompts of
// some length are attended by the device, over pages that pass through it (models/attend_device.cpp).
#include <algorithm>

#include "runtime/session.h"
#include "runtime/session_pools.h"

namespace weir {

void lay_out_device_rows(const SessionSetup& setup, const PolicyNeeds& needs, SessionPools& p, StepBuffers& host,
                         ModuleRows& rows) {
  const ModelConfig& c = setup.model->config();
  lay_out_shared_rows(c, setup.max_tok, p.staging, host);
  if (needs.history.group != 0) {
    HistoryAhead& ahead = host.ahead;
    ahead.capacity = needs.history.list_room;
    ahead.tokens = p.workspace.take<uint32_t>(c.n_kv_heads * (uint64_t{ahead.capacity} + kVectorPad));
    ahead.n = p.workspace.take<uint32_t>(c.n_kv_heads);
    ahead.fill = p.workspace.take<float>(c.n_kv_heads);
  }
  lay_out_rows(c, setup.max_tok, p.rows, rows.b);
  rows.tokens = p.rows.take<int32_t>(setup.max_tok);
  OpShapes shapes = setup.shapes;
  shapes.max_pages = 1;  // no attention
  shapes.history_tokens = 0;
  rows.cx.scratch_bytes = setup.rows->backend->scratch_bytes(shapes);
  rows.cx.scratch = p.rows.take<std::byte>(rows.cx.scratch_bytes);
  // The device attends prompts if it can: with one query per row, and one window for all heads.
  if (setup.rows->backend->ops.attn_paged == nullptr || needs.sink_query || setup.kv.windows.any()) return;
  KvView kv;
  kv.n_kv_heads = c.n_kv_heads;
  kv.head_dim = c.head_dim;
  rows.window.lay_out(kv, setup.kv.max_capacity(), c.n_heads, setup.max_tok, p.rows, p.staging);
}

// The weights and the memory on the device, and the host's memory that it copies from and to.
Status Session::take_device_rows(const SessionPools& measured) {
  const DeviceModule& module = *setup_.rows;
  module_ = rows_.module = &module;
  WEIR_TRY(device_weights_.ensure(devices_, module, *setup_.model, pool_));
  WEIR_TRY(devices_.allocate(module, measured.rows.used(), "the session's activations", &device_block_, kNeedLess));
  device_bytes_ = measured.rows.used();
  rows_.backend = module.backend;
  rows_.weights = &device_weights_.weights();
  rows_.cx.stream = module.stream();
  rows_.cx.pool = &pool_;
  step_.device = &rows_;
  return allocate_staging();
}

// Attention by the host's clock, and all the rest, waiting and copying included.
Status Session::profile_split_step(weir_token token, double* seconds) {
  std::fill_n(seconds, kParts, 0.0);
  if (kv_.n_tokens() == policy_->needs().context_tokens)
    return fail(WEIR_ERR_CONTEXT_FULL, "measuring takes one of the %u positions, none is free", kv_.n_tokens());
  const uint64_t started = now_ns();
  WEIR_TRY(run_step(token));
  seconds[kPartAttention] = static_cast<double>(step_.attention_ns) * 1e-9;
  seconds[kPartGemv] = static_cast<double>(now_ns() - started) * 1e-9 - seconds[kPartAttention];
  return {};
}

}  // namespace weir
