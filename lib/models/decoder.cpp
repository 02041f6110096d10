// The forward pass of Llama-like decoders, one screen a layer.
// Papers: Touvron et al., "Llama 2", arXiv:2307.09288, sec. 2.2; biases and head norms as in the Qwen 2 and 3 reports.
#include "models/decoder.h"

namespace weir {
namespace {

RopeAppendArgs rope_append_args(const Step& s, const LayerWeights& w, uint32_t layer) {
  const ModelConfig& c = s.model->config();
  RopeAppendArgs a = {};
  a.q = s.b.q;
  a.q_sink = s.b.q_sink;
  a.k = s.b.k;
  a.v = s.b.v;
  a.q_norm = w.q_norm;
  a.k_norm = w.k_norm;
  a.norm_eps = c.norm_eps;
  a.cos_sin = s.b.cos_sin;
  a.cos_sin_sink = s.b.cos_sin_sink;
  a.rope_dim = s.model->rope().rope_dim();
  a.layout = c.arch->rope_layout;
  a.n_tok = s.n_tok;
  a.n_heads = c.n_heads;
  a.pos = s.kv->n_tokens();
  a.kv = s.kv->view(layer);
  a.append_row = s.kv->append_rows(layer);
  return a;
}

AttnPagedArgs attn_args(const Step& s, uint32_t layer) {
  const ModelConfig& c = s.model->config();
  const AttnScope scope = s.policy->attn_scope();
  AttnPagedArgs a = {};
  a.out = s.b.o;
  a.q = s.b.q;
  a.q_sink = s.b.q_sink;
  a.kv = s.kv->view(layer);
  a.n_tok = s.n_tok;
  a.n_heads = c.n_heads;
  a.pos = s.kv->n_tokens();
  a.scale = c.attn_scale;
  a.n_sink_pages = scope.n_sink_pages;
  a.n_sink = scope.n_sink;
  a.window = scope.window;
  a.page_mass = s.is_decode ? s.b.page_mass : nullptr;
  return a;
}

// One decoder layer; x [n_tok, d_model] is updated in place.
Status run_layer(Step& s, uint32_t layer) {
  const OpTable& ops = s.backend->ops;
  const ModelConfig& c = s.model->config();
  const LayerWeights& w = s.model->weights().layers[layer];
  const StepBuffers& b = s.b;
  WEIR_TRY(ops.rms_norm(s.cx, {b.h, b.x, w.attn_norm, s.n_tok, c.d_model, c.norm_eps}));
  WEIR_TRY(ops.matmul(s.cx, {{{w.wq, w.bq, b.q, false}, {w.wk, w.bk, b.k, false}, {w.wv, w.bv, b.v, false}}, 3, b.h, s.n_tok}));
  WEIR_TRY(ops.rope_append(s.cx, rope_append_args(s, w, layer)));
  WEIR_TRY(ops.attn_paged(s.cx, attn_args(s, layer)));
  if (s.is_decode) {
    WEIR_TRY(s.policy->observe(s.cx, ops, *s.kv, {layer, c.n_heads, b.q, b.page_mass, b.page_score, s.kv->n_tokens() + s.n_tok}));
  }
  WEIR_TRY(ops.matmul(s.cx, {{{w.wo, nullptr, b.x, true}, {}, {}}, 1, b.o, s.n_tok}));
  WEIR_TRY(ops.rms_norm(s.cx, {b.h, b.x, w.ffn_norm, s.n_tok, c.d_model, c.norm_eps}));
  WEIR_TRY(ops.glu_matmul(s.cx, {b.g, w.gate, w.up, b.h, s.n_tok}));
  return ops.matmul(s.cx, {{{w.down, nullptr, b.x, true}, {}, {}}, 1, b.g, s.n_tok});
}

void fill_rope(Step& s) {
  const RopeTable& rope = s.model->rope();
  const uint32_t pos = s.kv->n_tokens();
  for (uint32_t i = 0; i < s.n_tok; ++i) {
    const size_t row = size_t{i} * rope.rope_dim();
    rope.fill(pos + i, s.b.cos_sin + row);
    if (s.b.q_sink != nullptr) rope.fill(s.policy->in_cache_pos(*s.kv, pos + i), s.b.cos_sin_sink + row);
  }
}

}  // namespace

void lay_out_buffers(const ModelConfig& c, const RopeTable& rope, const PolicyNeeds& needs, uint32_t max_tok, Arena& arena, StepBuffers& b) {
  const uint64_t n = max_tok;
  const uint64_t masses = uint64_t{c.n_heads} * needs.pages_per_stream;
  b.x = arena.take<float>(n * c.d_model);
  b.h = arena.take<float>(n * c.d_model);
  b.q = arena.take<float>(n * c.n_heads * c.head_dim);
  b.q_sink = needs.sink_query ? arena.take<float>(n * c.n_heads * c.head_dim) : nullptr;
  b.k = arena.take<float>(n * c.n_kv_heads * c.head_dim);
  b.v = arena.take<float>(n * c.n_kv_heads * c.head_dim);
  b.o = arena.take<float>(n * c.n_heads * c.head_dim);
  b.g = arena.take<float>(n * c.d_ff);
  b.cos_sin = arena.take<float>(n * rope.rope_dim());
  b.cos_sin_sink = needs.sink_query ? arena.take<float>(n * rope.rope_dim()) : nullptr;
  b.page_mass = needs.page_mass ? arena.take<float>(masses) : nullptr;
  b.page_score = needs.digests ? arena.take<float>(masses) : nullptr;
  b.logits = arena.take<float>(c.vocab_size);
}

Status run_decoder(Step& s) {
  const OpTable& ops = s.backend->ops;
  const ModelConfig& c = s.model->config();
  const ModelWeights& w = s.model->weights();
  fill_rope(s);
  WEIR_TRY(ops.embed(s.cx, {s.b.x, w.token_embd, s.tokens, s.n_tok}));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    if (s.cancel != nullptr && s.cancel->load(std::memory_order_relaxed)) return fail(WEIR_ERR_CANCELLED, "cancelled in layer %u", layer);
    WEIR_TRY(run_layer(s, layer));
  }
  if (!s.want_logits) return {};
  const float* last = s.b.x + size_t{s.n_tok - 1} * c.d_model;
  WEIR_TRY(ops.rms_norm(s.cx, {s.b.h, last, w.output_norm, 1, c.d_model, c.norm_eps}));
  return ops.matmul(s.cx, {{{w.output, nullptr, s.b.logits, false}, {}, {}}, 1, s.b.h, 1});
}

}  // namespace weir
