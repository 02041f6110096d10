// The forward pass of Llama-like decoders, one screen a layer.
// Papers: Touvron et al., "Llama 2", arXiv:2307.09288, sec. 2.2; biases and head norms as in the Qwen 2 and 3 reports.
#include "models/decoder.h"

#include <algorithm>

namespace weir {
namespace {

// A step and where its rows of the activations begin.
struct StepRows {
  Step& step;
  float* q;
  float* k;
  float* v;
  float* o;
};

StepRows rows_of(const StepGroup& group, uint32_t i) {
  const ModelConfig& c = group.steps[0]->model->config();
  const StepBuffers& b = group.steps[0]->b;
  const size_t q = size_t{i} * c.n_heads * c.head_dim, kv = size_t{i} * c.n_kv_heads * c.head_dim;
  return {*group.steps[i], b.q + q, b.k + kv, b.v + kv, b.o + q};
}

// Tokens of the whole pass.
uint32_t n_tokens_of(const StepGroup& group) { return group.n == 1 ? group.steps[0]->n_tok : group.n; }

RopeAppendArgs rope_append_args(const StepRows& r, const LayerWeights& w, uint32_t layer) {
  const Step& s = r.step;
  const ModelConfig& c = s.model->config();
  RopeAppendArgs a = {};
  a.q = r.q;
  a.q_sink = s.b.q_sink;
  a.k = r.k;
  a.v = r.v;
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

AttnPagedArgs attn_args(const StepRows& r, uint32_t layer, const PageLists& lists) {
  const Step& s = r.step;
  const ModelConfig& c = s.model->config();
  const AttnScope scope = s.policy->attn_scope();
  AttnPagedArgs a = {};
  a.out = r.o;
  a.q = r.q;
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
Status attend_step(const StepRows& r, uint32_t layer) {
  Step& s = r.step;
  const OpTable& ops = s.backend->ops;
  const uint32_t n_heads = s.model->config().n_heads;
  PageLists lists;
  if (s.b.select != nullptr)
    WEIR_TRY(
        s.policy->select(s.cx, ops, *s.kv, {layer, n_heads, r.q, s.b.page_score, s.b.select, s.b.n_select}, lists));
  const AttnPagedArgs attn = attn_args(r, layer, lists);
  WEIR_TRY(ops.attn_paged(s.cx, attn));
  const uint32_t* n_listed = lists.select != nullptr ? lists.n_select : attn.kv.n_pages;
  for (uint32_t i = 0; i < (attn.list_per_head ? n_heads : attn.kv.n_kv_heads); ++i) s.pages_attended += n_listed[i];
  WEIR_TRY(s.policy->observe(s.cx, ops, *s.kv,
                             {layer, n_heads, r.q, s.b.page_mass, s.b.page_score, lists, s.kv->n_tokens() + s.n_tok}));
  if (s.trace == nullptr) return {};
  return s.trace->layer(*s.kv, layer, n_heads, s.policy->needs().list_per_head, lists, s.b.page_mass);
}

// Attention of a prompt chunk: dense over what is resident; the policy looks at the last rows.
Status attend_chunk(const StepRows& r, uint32_t layer) {
  Step& s = r.step;
  const ModelConfig& c = s.model->config();
  WEIR_TRY(s.backend->ops.attn_paged(s.cx, attn_args(r, layer, {})));
  if (s.b.lse == nullptr) return {};
  const uint32_t n_rows = std::min(s.n_tok, s.policy->needs().prompt_rows), first = s.n_tok - n_rows;
  return s.policy->observe_prompt(
      s.cx, s.backend->ops, *s.kv,
      {layer, c.n_heads, r.q + size_t{first} * c.n_heads * c.head_dim, s.b.lse + size_t{first} * c.n_heads, n_rows,
       s.kv->n_tokens() + first, s.n_left, s.b.token_mass});
}

// What each session does with its own pages.
Status attend(const StepRows& r, const LayerWeights& w, uint32_t layer) {
  Step& s = r.step;
  WEIR_TRY(s.backend->ops.rope_append(s.cx, rope_append_args(r, w, layer)));
  WEIR_TRY(digest_pages(s, layer));
  return s.is_decode ? attend_step(r, layer) : attend_chunk(r, layer);
}

// One decoder layer; x [n_tok, d_model] is updated in place.
Status run_layer(const StepGroup& group, uint32_t layer) {
  Step& s = *group.steps[0];
  const OpTable& ops = s.backend->ops;
  const ModelConfig& c = s.model->config();
  const LayerWeights& w = s.model->weights().layers[layer];
  const StepBuffers& b = s.b;
  const uint32_t n_tok = n_tokens_of(group);
  WEIR_TRY(ops.rms_norm(s.cx, {b.h, b.x, w.attn_norm, n_tok, c.d_model, c.norm_eps}));
  WEIR_TRY(ops.matmul(s.cx,
                      {{{w.wq, w.bq, b.q, false}, {w.wk, w.bk, b.k, false}, {w.wv, w.bv, b.v, false}}, 3, b.h, n_tok}));
  for (uint32_t i = 0; i < group.n; ++i) WEIR_TRY(attend(rows_of(group, i), w, layer));
  WEIR_TRY(ops.matmul(s.cx, {{{w.wo, nullptr, b.x, true}, {}, {}}, 1, b.o, n_tok}));
  WEIR_TRY(ops.rms_norm(s.cx, {b.h, b.x, w.ffn_norm, n_tok, c.d_model, c.norm_eps}));
  WEIR_TRY(ops.glu_matmul(s.cx, {b.g, w.gate, w.up, b.h, n_tok}));
  return ops.matmul(s.cx, {{{w.down, nullptr, b.x, true}, {}, {}}, 1, b.g, n_tok});
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
  b.max_tok = max_tok;
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

Status run_layers(const StepGroup& group) {
  Step& s = *group.steps[0];
  for (uint32_t i = 0; i < group.n; ++i) {
    fill_rope(*group.steps[i]);
    group.steps[i]->pages_attended = 0;
  }
  WEIR_TRY(s.backend->ops.embed(s.cx, {s.b.x, s.model->weights().token_embd, s.tokens, n_tokens_of(group)}));
  for (uint32_t layer = 0; layer < s.model->config().n_layers; ++layer) {
    for (uint32_t i = 0; i < group.n; ++i) {
      const std::atomic<bool>* cancel = group.steps[i]->cancel;
      if (cancel != nullptr && cancel->load(std::memory_order_relaxed))
        return fail(WEIR_ERR_CANCELLED, "cancelled in layer %u", layer);
    }
    WEIR_TRY(run_layer(group, layer));
  }
  return {};
}

Status run_logits(const StepGroup& group) {
  Step& s = *group.steps[0];
  const OpTable& ops = s.backend->ops;
  const ModelConfig& c = s.model->config();
  const ModelWeights& w = s.model->weights();
  const StepBuffers& b = s.b;
  const float* last = b.x + size_t{n_tokens_of(group) - group.n} * c.d_model;
  WEIR_TRY(ops.rms_norm(s.cx, {b.h, last, w.output_norm, group.n, c.d_model, c.norm_eps}));
  // A product's rows lie one after another, the sessions' logits do not: g, which is free now, takes as many as it has room for.
  const auto room =
      static_cast<uint32_t>(std::clamp<uint64_t>(uint64_t{b.max_tok} * c.d_ff / c.vocab_size, 1, group.n));
  for (uint32_t done = 0; done < group.n; done += room) {
    const uint32_t n = std::min(room, group.n - done);
    float* y = n == 1 ? group.steps[done]->b.logits : b.g;
    WEIR_TRY(ops.matmul(s.cx, {{{w.output, nullptr, y, false}, {}, {}}, 1, b.h + size_t{done} * c.d_model, n}));
    for (uint32_t i = 0; n > 1 && i < n; ++i)
      std::copy_n(y + size_t{i} * c.vocab_size, c.vocab_size, group.steps[done + i]->b.logits);
  }
  return {};
}

Status run_decoder(Step& s) {
  Step* step = &s;
  WEIR_TRY(run_layers({&step, 1}));
  return s.want_logits ? run_logits({&step, 1}) : Status();
}

}  // namespace weir
