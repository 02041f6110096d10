// Prompt chunks of a session on a device: the walk through the layers (lib/models/walk.h), whose stages are ops over
// the chunk's rows.
#include "core/cancel.h"
#include "device/base_session.h"
#include "device/kernels/gemv.h"
#include "device/kernels/step_end.h"
#include "kv/kv_cache.h"
#include "models/walk.h"
#include "ops/attn_paged.h"
#include "ops/embed.h"
#include "ops/page_digest.h"
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
  const Attention& attention = a_.weights->attention(layer);
  const AttendPass pass = pass_of(chunk.n_tok, chunk.pos);
  const RopeAppendArgs append = rope_append_args(pass, attention, layer);
  WEIR_TRY(temper_queries(a_.cx, ops_, pass, append.q));
  WEIR_TRY(rotate_new_values(chunk.n_tok, true));
  WEIR_TRY(ops_.rope_append(a_.cx, append));
  if (digests_are_due(append.kv.digest, pass.pos, pass.n_tok))
    WEIR_TRY(ops_.page_digest(a_.cx, {append.kv, append.append_row, pass.n_tok / kPageTokens + 2}));
  AttnPagedArgs attn = attn_paged_args(pass, attention, layer);
  attn.lse = is_ruled(attention) ? a_.b.lse : nullptr;
  if (append.kv.format != KvFormat::kBf16 && chunk.n_tok > 1) {
    attn.k_rows = append.k;
    attn.v_rows = append.v;
  }
  if (!chunk.sink_moved) attn.q_sink = nullptr;  // both queries are equal: one pass, with the bits of dense attention
  uint32_t n_rows = 0;
  if (chunk.pages != nullptr && is_ruled(attention) && chunk.pages->in_units(layer, n_rows)) {
    WEIR_TRY(attend_units(chunk, attn, layer, n_rows));
    return rotate_output(chunk.n_tok);
  }
  WEIR_TRY(queue_.attn_prefill(attn));
  WEIR_TRY(compensates(layer) ? enqueue_compensation(layer, attn, nullptr) : rotate_output(chunk.n_tok));
  return chunk.observer == nullptr || !is_ruled(attention) ? Status() : chunk.observer->observe(layer);
}

class BaseSession::ChunkWalk final : public LayerWalk {
 public:
  ChunkWalk(BaseSession& session, const DeviceChunk& chunk) : s_(session), chunk_(chunk) {}

 private:
  Status check(uint32_t layer) override {
    if (chunk_.cancel == nullptr || !chunk_.cancel->is_set()) return {};
    return fail(WEIR_ERR_CANCELLED, "cancelled in layer %u", layer);
  }
  Status attend(uint32_t layer) override { return s_.chunk_attention(chunk_, layer); }
  Status mix(const Layer& layer) override { return s_.enqueue_mix(layer, chunk_.n_tok, false); }
  Status compute(const StageAt& at) override {
    return compute_rows({s_.ops_, s_.a_.cx, s_.a_.b, *s_.a_.config, chunk_.n_tok}, at);
  }
  Status end_layer(uint32_t) override { return s_.queue_.end_layer(chunk_.n_tok); }

  BaseSession& s_;
  const DeviceChunk& chunk_;
};

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
  WEIR_TRY(ChunkWalk(*this, chunk).run(layers()));
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
