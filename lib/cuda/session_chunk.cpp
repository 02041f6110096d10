// Prompt chunks of a session on the GPU: op after op over the rows of the chunk.
#include "cuda/attn/attn_prefill.h"
#include "cuda/cuda_session.h"
#include "cuda/matmul/gemv.cuh"
#include "cuda/ops.h"

namespace weir::cuda {

RopeAppendArgs CudaSession::rope_args(uint32_t layer, uint32_t n_tok, uint32_t pos) const {
  const ModelConfig& c = *a_.config;
  const LayerWeights& w = weights(layer);
  RopeAppendArgs r = {};
  r.q = a_.b.q;
  r.q_sink = a_.b.q_sink;
  r.k = a_.b.k;
  r.v = a_.b.v;
  r.q_norm = w.q_norm;
  r.k_norm = w.k_norm;
  r.norm_eps = c.norm_eps;
  r.cos_sin = a_.b.cos_sin;
  r.cos_sin_sink = a_.b.cos_sin_sink;
  r.rope_dim = a_.rope->rope_dim();
  r.layout = c.arch->rope_layout;
  r.n_tok = n_tok;
  r.n_heads = c.n_heads;
  r.pos = pos;
  r.kv = a_.kv->view(layer);
  r.append_row = a_.kv->append_rows(layer);
  return r;
}

AttnPagedArgs CudaSession::attn_args(uint32_t layer, uint32_t n_tok, uint32_t pos) const {
  const ModelConfig& c = *a_.config;
  AttnPagedArgs t = {};
  t.out = a_.b.o;
  t.q = a_.b.q;
  t.q_sink = a_.b.q_sink;
  t.kv = a_.kv->view(layer);
  t.n_tok = n_tok;
  t.n_heads = c.n_heads;
  t.pos = pos;
  t.scale = c.attn_scale;
  t.n_sink_pages = a_.rules.n_sink_pages;
  t.n_sink = a_.rules.n_sink;
  t.window = a_.rules.window;
  return t;
}

Status CudaSession::copy_chunk_in(const DeviceChunk& chunk) {
  const auto copy = [&](void* to, const void* from, size_t bytes) {
    WEIR_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "copying a prompt chunk");
    return Status();
  };
  const size_t rotations = size_t{chunk.n_tok} * a_.rope->rope_dim() * sizeof(float);
  WEIR_TRY(copy(a_.device.tokens, a_.host.tokens, chunk.n_tok * sizeof(int32_t)));
  WEIR_TRY(copy(a_.b.cos_sin, a_.host.cos_sin, rotations));
  return a_.b.cos_sin_sink == nullptr ? Status() : copy(a_.b.cos_sin_sink, a_.host.cos_sin_sink, rotations);
}

Status CudaSession::token_mass(uint32_t layer, const TokenMassArgs& host) {
  TokenMassArgs a = host;
  a.kv = a_.kv->view(layer);
  a.mass = a_.b.token_mass;
  WEIR_TRY(cuda::token_mass(a_.cx, a));
  const size_t bytes = size_t{a.kv.n_kv_heads} * a.kv.capacity * kPageTokens * sizeof(float);
  WEIR_CUDA_TRY(cudaMemcpyAsync(host.mass, a.mass, bytes, cudaMemcpyDeviceToHost, stream_), "copying token masses");
  return wait("a prompt chunk");
}

Status CudaSession::chunk_layer(const DeviceChunk& chunk, uint32_t layer) {
  const ModelConfig& c = *a_.config;
  const LayerWeights& w = weights(layer);
  const StepBuffers& b = a_.b;
  const uint32_t n = chunk.n_tok;
  WEIR_TRY(rms_norm(a_.cx, {b.h, b.x, w.attn_norm, n, c.d_model, c.norm_eps}));
  WEIR_TRY(matmul(a_.cx, {{{w.wq, w.bq, b.q, false}, {w.wk, w.bk, b.k, false}, {w.wv, w.bv, b.v, false}}, 3, b.h, n}));
  WEIR_TRY(rope_append(a_.cx, rope_args(layer, n, chunk.pos)));
  const KvView kv = a_.kv->view(layer);
  if (kv.digest != DigestKind::kNone && kv.digest != DigestKind::kMinMax)
    WEIR_TRY(page_digest(a_.cx, {kv, a_.kv->append_rows(layer), n / kPageTokens + 2}));
  AttnPagedArgs attn = attn_args(layer, n, chunk.pos);
  attn.lse = b.lse;
  if (!chunk.sink_moved) attn.q_sink = nullptr;  // the same query: one pass, and dense attention's bits
  WEIR_TRY(attn_prefill(a_.cx, attn));
  if (chunk.observer != nullptr) WEIR_TRY(chunk.observer->observe(layer));
  WEIR_TRY(matmul(a_.cx, {{{w.wo, nullptr, b.x, true}, {}, {}}, 1, b.o, n}));
  WEIR_TRY(rms_norm(a_.cx, {b.h, b.x, w.ffn_norm, n, c.d_model, c.norm_eps}));
  WEIR_TRY(glu_matmul(a_.cx, {b.g, w.gate, w.up, b.h, n}));
  return matmul(a_.cx, {{{w.down, nullptr, b.x, true}, {}, {}}, 1, b.g, n});
}

StepEndArgs CudaSession::end_args(bool commit) const {
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

Status CudaSession::enqueue_chunk(const DeviceChunk& chunk) {
  const ModelConfig& c = *a_.config;
  WEIR_TRY(copy_chunk_in(chunk));
  WEIR_TRY(embed(a_.cx, {a_.b.x, a_.weights->token_embd, a_.device.tokens, chunk.n_tok}));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    if (chunk.cancel != nullptr && chunk.cancel->load(std::memory_order_relaxed))
      return fail(WEIR_ERR_CANCELLED, "cancelled in layer %u", layer);
    WEIR_TRY(chunk_layer(chunk, layer));
  }
  if (!chunk.want_logits) return {};
  GemvArgs logits;
  logits.part[0] = {a_.weights->output, nullptr, a_.b.logits, false};
  logits.n_parts = 1;
  logits.x = a_.b.x + size_t{chunk.n_tok - 1} * c.d_model;
  logits.norm = a_.weights->output_norm;
  logits.eps = c.norm_eps;
  WEIR_TRY(gemv(a_.cx, logits));
  return step_end(a_.cx, end_args(false));
}

Status CudaSession::run_chunk(const DeviceChunk& chunk) {
  WEIR_REQUIRE_DEVICE();
  const Status status = enqueue_chunk(chunk);
  const Status waited =
      note(wait("a prompt chunk"));  // whatever was enqueued before a failure ends before the caller goes on
  return status.ok() ? waited : note(status);
}

}  // namespace weir::cuda
