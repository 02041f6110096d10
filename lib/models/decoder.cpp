// The forward pass of Llama-like decoders, one screen a layer.
// Papers: Touvron et al., "Llama 2", arXiv:2307.09288, sec. 2.2; biases and head norms as in the Qwen 2 and 3 reports.
#include "models/decoder.h"

#include <algorithm>

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

AttnPagedArgs attn_args(const Step& s, uint32_t layer, const PageLists& lists) {
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
  a.select = lists.select;
  a.n_select = lists.n_select;
  a.list_per_head = lists.select != nullptr && s.policy->needs().list_per_head;
  a.page_mass = s.is_decode ? s.b.page_mass : nullptr;
  a.lse = s.is_decode ? nullptr : s.b.lse;
  return a;
}

// Digests of the pages that this step's tokens filled, of kinds that rope_append does not keep current.
Status digest_pages(Step& s, uint32_t layer) {
  const KvView kv = s.kv->view(layer);
  const uint32_t before = s.kv->n_tokens(), after = before + s.n_tok;
  if (kv.digest == DigestKind::kNone || kv.digest == DigestKind::kMinMax || before / kPageTokens == after / kPageTokens)
    return {};
  return s.backend->ops.page_digest(s.cx, {kv, s.kv->append_rows(layer), whole_pages(after) - before / kPageTokens});
}

// Attention of one decode step: the policy chooses before and observes after.
Status attend_step(Step& s, uint32_t layer) {
  const OpTable& ops = s.backend->ops;
  const uint32_t n_heads = s.model->config().n_heads;
  PageLists lists;
  if (s.b.select != nullptr)
    WEIR_TRY(
        s.policy->select(s.cx, ops, *s.kv, {layer, n_heads, s.b.q, s.b.page_score, s.b.select, s.b.n_select}, lists));
  const AttnPagedArgs attn = attn_args(s, layer, lists);
  WEIR_TRY(ops.attn_paged(s.cx, attn));
  const uint32_t* n_listed = lists.select != nullptr ? lists.n_select : attn.kv.n_pages;
  for (uint32_t i = 0; i < (attn.list_per_head ? n_heads : attn.kv.n_kv_heads); ++i) s.pages_attended += n_listed[i];
  WEIR_TRY(s.policy->observe(
      s.cx, ops, *s.kv, {layer, n_heads, s.b.q, s.b.page_mass, s.b.page_score, lists, s.kv->n_tokens() + s.n_tok}));
  if (s.trace == nullptr) return {};
  return s.trace->layer(*s.kv, layer, n_heads, s.policy->needs().list_per_head, lists, s.b.page_mass);
}

// Attention of a prompt chunk: dense over what is resident; the policy looks at the last rows.
Status attend_chunk(Step& s, uint32_t layer) {
  const ModelConfig& c = s.model->config();
  WEIR_TRY(s.backend->ops.attn_paged(s.cx, attn_args(s, layer, {})));
  if (s.b.lse == nullptr) return {};
  const uint32_t n_rows = std::min(s.n_tok, s.policy->needs().prompt_rows), first = s.n_tok - n_rows;
  return s.policy->observe_prompt(
      s.cx, s.backend->ops, *s.kv,
      {layer, c.n_heads, s.b.q + size_t{first} * c.n_heads * c.head_dim, s.b.lse + size_t{first} * c.n_heads, n_rows,
       s.kv->n_tokens() + first, s.n_left, s.b.token_mass});
}

// One decoder layer; x [n_tok, d_model] is updated in place.
Status run_layer(Step& s, uint32_t layer) {
  const OpTable& ops = s.backend->ops;
  const ModelConfig& c = s.model->config();
  const LayerWeights& w = s.model->weights().layers[layer];
  const StepBuffers& b = s.b;
  WEIR_TRY(ops.rms_norm(s.cx, {b.h, b.x, w.attn_norm, s.n_tok, c.d_model, c.norm_eps}));
  WEIR_TRY(ops.matmul(
      s.cx, {{{w.wq, w.bq, b.q, false}, {w.wk, w.bk, b.k, false}, {w.wv, w.bv, b.v, false}}, 3, b.h, s.n_tok}));
  WEIR_TRY(ops.rope_append(s.cx, rope_append_args(s, w, layer)));
  WEIR_TRY(digest_pages(s, layer));
  WEIR_TRY(s.is_decode ? attend_step(s, layer) : attend_chunk(s, layer));
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

void lay_out_buffers(const ModelConfig& c, const RopeTable& rope, const PolicyNeeds& needs, uint32_t max_tok,
                     uint32_t max_pages, Arena& arena, StepBuffers& b) {
  const uint64_t n = max_tok;
  const uint64_t masses = uint64_t{c.n_heads} * max_pages;
  const uint32_t n_lists = !needs.page_lists ? 0 : needs.list_per_head ? c.n_heads : c.n_kv_heads;
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
  b.page_score = needs.digest != DigestKind::kNone ? arena.take<float>(masses) : nullptr;
  b.select = n_lists != 0 ? arena.take<uint32_t>(uint64_t{n_lists} * max_pages) : nullptr;
  b.n_select = n_lists != 0 ? arena.take<uint32_t>(n_lists) : nullptr;
  b.lse = needs.prompt_rows != 0 ? arena.take<float>(n * c.n_heads) : nullptr;
  b.token_mass = needs.prompt_rows != 0 ? arena.take<float>(uint64_t{c.n_kv_heads} * max_pages * kPageTokens) : nullptr;
  b.logits = arena.take<float>(c.vocab_size);
}

Status run_decoder(Step& s) {
  const OpTable& ops = s.backend->ops;
  const ModelConfig& c = s.model->config();
  const ModelWeights& w = s.model->weights();
  fill_rope(s);
  s.pages_attended = 0;
  WEIR_TRY(ops.embed(s.cx, {s.b.x, w.token_embd, s.tokens, s.n_tok}));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    if (s.cancel != nullptr && s.cancel->load(std::memory_order_relaxed))
      return fail(WEIR_ERR_CANCELLED, "cancelled in layer %u", layer);
    WEIR_TRY(run_layer(s, layer));
  }
  if (!s.want_logits) return {};
  const float* last = s.b.x + size_t{s.n_tok - 1} * c.d_model;
  WEIR_TRY(ops.rms_norm(s.cx, {s.b.h, last, w.output_norm, 1, c.d_model, c.norm_eps}));
  return ops.matmul(s.cx, {{{w.output, nullptr, s.b.logits, false}, {}, {}}, 1, s.b.h, 1});
}

}  // namespace weir
