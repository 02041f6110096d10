// Sessions whose attention alone is on the host: what a device has of them.
#include "runtime/machine_split.h"

#include <algorithm>

#include "core/clock.h"
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
  // The device attends prompts if it can: with one query per row, one window for all heads, and pages in bf16.
  if (setup.rows->backend->ops.attn_paged == nullptr || needs.sink_query || setup.kv.windows.any()) return;
  if (setup.kv.format != KvFormat::kBf16) return;
  KvView kv;
  kv.n_kv_heads = c.n_kv_heads;
  kv.head_dim = c.head_dim;
  rows.window.lay_out(kv, setup.kv.max_capacity(), c.n_heads, setup.max_tok, p.rows, p.staging);
}

void SplitMachine::lay_out(SessionPools& pools) {
  HostMachine::lay_out(pools);
  lay_out_device_rows(w_.setup, w_.policy.needs(), pools, w_.step.b, rows_);
}

// The weights and the memory on the device, and the host's memory that it copies from and to.
Status SplitMachine::take_rows(const SessionPools& measured) {
  const DeviceModule& module = *w_.setup.rows;
  module_ = rows_.module = &module;
  WEIR_TRY(w_.weights.ensure(w_.devices, module, *w_.setup.model, w_.pool));
  WEIR_TRY(w_.devices.allocate(module, measured.rows.used(), "the session's activations", &device_block_, kNeedLess));
  device_bytes_ = measured.rows.used();
  rows_.backend = module.backend;
  rows_.weights = &w_.weights.weights();
  rows_.cx.stream = module.stream();
  rows_.cx.pool = &w_.pool;
  w_.step.device = &rows_;
  return take_staging();
}

void SplitMachine::wipe_all() {
  HostMachine::wipe_all();
  wipe(staging_block_, w_.plan.staging_bytes);
}

uint32_t SplitMachine::max_together() const { return std::min(w_.step.b.max_tok, kMaxTogether); }

// Attention by the host's clock, and all the rest, waiting and copying included.
Status SplitMachine::profile(weir_token token, double* seconds) {
  std::fill_n(seconds, kParts, 0.0);
  const uint32_t n_tokens = w_.tables.kv().n_tokens();
  if (n_tokens == w_.policy.needs().context_tokens)
    return fail(WEIR_ERR_CONTEXT_FULL, "measuring takes one of the %u positions, none is free", n_tokens);
  const uint64_t started = now_ns();
  WEIR_TRY(step(token));
  seconds[kPartAttention] = static_cast<double>(w_.step.attention_ns) * 1e-9;
  seconds[kPartGemv] = static_cast<double>(now_ns() - started) * 1e-9 - seconds[kPartAttention];
  return {};
}

}  // namespace weir
