// Prompt chunks of a session on a device: runs the stages of each layer (lib/models/layer.h) as ops over the chunk's
// rows.
#include "device/base_session.h"
#include "device/kernels/gemv.h"
#include "device/kernels/step_end.h"
#include "kv/kv_cache.h"
#include "ops/attn_paged.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/glu_matmul.h"
#include "ops/matmul.h"
#include "ops/page_digest.h"
#include "ops/rms_norm.h"
#include "ops/rope_append.h"
#include "ops/soft_cap.h"
#include "ops/token_mass.h"

namespace weir::device {

Status BaseSession::copy_chunk_in(const DeviceChunk& chunk) {
  const auto copy = [&](void* to, const void* from, size_t bytes) {
    return queue_.copy_in(to, from, bytes, "copying a prompt chunk");
  };
  WEIR_TRY(copy(a_.device.tokens, a_.host.tokens, chunk.n_tok * sizeof(int32_t)));
  const size_t bytes = size_t{chunk.n_tok} * a_.rope->rope_dim() * sizeof(float);
  for (uint32_t rotation = 0; rotation < a_.rope->n_rotations(); ++rotation) {
    const size_t at = a_.b.rotation(rotation, a_.rope->rope_dim());
    WEIR_TRY(copy(a_.b.cos_sin + at, a_.host.cos_sin + at, bytes));
    if (a_.b.cos_sin_sink != nullptr) WEIR_TRY(copy(a_.b.cos_sin_sink + at, a_.host.cos_sin_sink + at, bytes));
  }
  return {};
}

Status BaseSession::token_mass(uint32_t layer, const TokenMassArgs& host) {
  TokenMassArgs a = host;
  a.kv = a_.kv->view(layer);
  a.mass = a_.b.token_mass;
  WEIR_TRY(ops_.token_mass(a_.cx, a));
  const size_t bytes = size_t{a.kv.n_kv_heads} * a.kv.capacity * kPageTokens * sizeof(float);
  WEIR_TRY(queue_.copy_out(host.mass, a.mass, bytes, "copying token masses"));
  return wait("a prompt chunk");
}

Status BaseSession::chunk_attention(const DeviceChunk& chunk, uint32_t layer) {
  const Attention& attention = layers()[layer].attention;
  const AttendPass pass = pass_of(chunk.n_tok, chunk.pos);
  const RopeAppendArgs append = rope_append_args(pass, attention, layer);
  WEIR_TRY(ops_.rope_append(a_.cx, append));
  if (digests_are_due(append.kv.digest, pass.pos, pass.n_tok))
    WEIR_TRY(ops_.page_digest(a_.cx, {append.kv, append.append_row, pass.n_tok / kPageTokens + 2}));
  AttnPagedArgs attn = attn_paged_args(pass, attention, layer);
  attn.lse = is_ruled(attention) ? a_.b.lse : nullptr;
  if (!chunk.sink_moved) attn.q_sink = nullptr;  // both queries are equal: one pass, with the bits of dense attention
  uint32_t n_rows = 0;
  if (chunk.pages != nullptr && is_ruled(attention) && chunk.pages->in_units(layer, n_rows))
    return attend_units(chunk, attn, layer, n_rows);
  WEIR_TRY(queue_.attn_prefill(attn));
  if (compensates(layer)) WEIR_TRY(enqueue_compensation(layer, attn, nullptr));
  return chunk.observer == nullptr || !is_ruled(attention) ? Status() : chunk.observer->observe(layer);
}

Status BaseSession::chunk_stage(const DeviceChunk& chunk, uint32_t layer, const Stage& stage) {
  const ModelConfig& c = *a_.config;
  float* const row = row_of(a_.b, stage.x);
  const float* x = row;
  if (stage.kind == Stage::Kind::kNorm)
    return ops_.rms_norm(a_.cx, {row, row, stage.norm, chunk.n_tok, row_width(c, stage.x), c.norm_eps});
  if (stage.norm != nullptr) {
    WEIR_TRY(ops_.rms_norm(a_.cx, {a_.b.h, x, stage.norm, chunk.n_tok, row_width(c, stage.x), c.norm_eps}));
    x = a_.b.h;
  }
  switch (stage.kind) {
    case Stage::Kind::kProject: {
      MatmulArgs m = {{}, stage.n_parts, x, chunk.n_tok};
      for (uint32_t i = 0; i < stage.n_parts; ++i) {
        const StagePart& part = stage.part[i];
        m.part[i] = {part.w, part.bias, row_of(a_.b, part.y), part.accumulate};
      }
      if (stage.post_norm == nullptr) return ops_.matmul(a_.cx, m);
      const RmsNormArgs norm = take_to_norm(a_.b, c, stage, m.part[0], chunk.n_tok);
      WEIR_TRY(ops_.matmul(a_.cx, m));
      return ops_.rms_norm(a_.cx, norm);
    }
    case Stage::Kind::kGlu:
      return ops_.glu_matmul(a_.cx, {row_of(a_.b, stage.part[0].y), stage.part[0].w, stage.part[1].w, x, chunk.n_tok,
                                     stage.gate, stage.part[0].bias, stage.part[1].bias});
    case Stage::Kind::kExperts:
      return ops_.experts(a_.cx, experts_args(layers()[layer], stage, x, chunk.n_tok, a_.b.x));
    case Stage::Kind::kAttend:
      return chunk_attention(chunk, layer);
    case Stage::Kind::kNorm:
      break;
  }
  return {};
}

StepEndArgs BaseSession::end_args(bool commit) const {
  StepEndArgs e = {};
  e.logits = a_.b.logits;
  e.vocab_size = a_.config->vocab_size;
  e.commit = commit;
  e.state = a_.device.state;
  e.mailbox = mailbox_;
  e.best = reinterpret_cast<unsigned long long*>(a_.device.counters + kBestKey);
  e.counter = a_.device.counters + kEndCounter;
  return e;
}

Status BaseSession::enqueue_chunk(const DeviceChunk& chunk) {
  const ModelConfig& c = *a_.config;
  queue_.begin_chunk();
  WEIR_TRY(copy_chunk_in(chunk));
  WEIR_TRY(ops_.embed(a_.cx, {a_.b.x, a_.weights->token_embd, a_.device.tokens, chunk.n_tok, c.embedding_scale}));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    if (chunk.cancel != nullptr && chunk.cancel->is_set())
      return fail(WEIR_ERR_CANCELLED, "cancelled in layer %u", layer);
    for (const Stage& stage : layers()[layer].stages()) WEIR_TRY(chunk_stage(chunk, layer, stage));
    WEIR_TRY(queue_.end_layer(chunk.n_tok));
  }
  if (!chunk.want_logits) return {};
  GemvArgs logits;
  logits.part[0] = {a_.weights->output, nullptr, a_.b.logits, false};
  logits.n_parts = 1;
  logits.x = a_.b.x + size_t{chunk.n_tok - 1} * c.d_model;
  logits.norm = a_.weights->output_norm;
  logits.eps = c.norm_eps;
  WEIR_TRY(queue_.gemv(logits));
  if (c.logit_soft_cap != 0.0f) WEIR_TRY(ops_.soft_cap(a_.cx, {a_.b.logits, c.vocab_size, c.logit_soft_cap}));
  return queue_.step_end(end_args(false));
}

Status BaseSession::run_chunk(const DeviceChunk& chunk) {
  WEIR_REQUIRE_DEVICE();
  const Status status = enqueue_chunk(chunk);
  const Status waited =
      note(wait("a prompt chunk"));  // whatever was enqueued before a failure finishes before this returns
  return status.ok() ? waited : note(status);
}

}  // namespace weir::device
