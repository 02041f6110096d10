// The forward pass of a decoder on the CPU: embedding, the stages of each layer (layer.h), logits.
// Papers: Touvron et al., "Llama 2", arXiv:2307.09288, sec. 2.2; biases and head norms as in the Qwen 2 and 3 reports.
#include "models/decoder.h"

#include <algorithm>

#include "models/attend.h"
#include "policy/page_fetcher.h"

namespace weir {
namespace {

// Tokens of the whole pass.
uint32_t n_tokens_of(const StepGroup& group) { return group.n == 1 ? group.steps[0]->n_tok : group.n; }

// A stage over all rows of the pass. Matrices take the rows of all sessions together; attention is each session's own.
Status run_stage(const StepGroup& group, uint32_t layer, const Stage& stage) {
  Step& s = *group.steps[0];
  const OpTable& ops = s.backend->ops;
  const ModelConfig& c = s.model->config();
  const uint32_t n_tok = n_tokens_of(group);
  float* const row = row_of(s.b, stage.x);
  const float* x = row;
  if (stage.kind == Stage::Kind::kNorm)
    return ops.rms_norm(s.cx, {row, row, stage.norm, n_tok, row_width(c, stage.x), c.norm_eps});
  if (stage.norm != nullptr) {
    WEIR_TRY(ops.rms_norm(s.cx, {s.b.h, x, stage.norm, n_tok, row_width(c, stage.x), c.norm_eps}));
    x = s.b.h;
  }
  switch (stage.kind) {
    case Stage::Kind::kProject: {
      MatmulArgs a = {{}, stage.n_parts, x, n_tok};
      for (uint32_t i = 0; i < stage.n_parts; ++i) {
        const StagePart& part = stage.part[i];
        a.part[i] = {part.w, part.bias, row_of(s.b, part.y), part.accumulate};
      }
      if (stage.post_norm == nullptr) return ops.matmul(s.cx, a);
      const RmsNormArgs norm = take_to_norm(s.b, c, stage, a.part[0], n_tok);
      WEIR_TRY(ops.matmul(s.cx, a));
      return ops.rms_norm(s.cx, norm);
    }
    case Stage::Kind::kGlu:
      return ops.glu_matmul(s.cx, {row_of(s.b, stage.part[0].y), stage.part[0].w, stage.part[1].w, x, n_tok, stage.gate,
                                   stage.part[0].bias, stage.part[1].bias});
    case Stage::Kind::kExperts:
      return ops.experts(s.cx, experts_args(s.model->weights().layers[layer], stage, x, n_tok, s.b.x));
    case Stage::Kind::kAttend:
      for (uint32_t i = 0; i < group.n; ++i) WEIR_TRY(attend(*group.steps[i], s.b, i, layer));
      return {};
    case Stage::Kind::kNorm:
      break;
  }
  return {};
}

void fill_rope(Step& s) {
  const RopeTable& rope = s.model->rope();
  const uint32_t pos = s.kv->n_tokens();
  for (uint32_t rotation = 0; rotation < rope.n_rotations(); ++rotation) {
    for (uint32_t i = 0; i < s.n_tok; ++i) {
      const size_t row = s.b.rotation(rotation, rope.rope_dim()) + size_t{i} * rope.rope_dim();
      rope.fill(rotation, pos + i, s.b.cos_sin + row);
      if (s.b.q_sink != nullptr) rope.fill(rotation, s.policy->in_cache_pos(*s.kv, pos + i), s.b.cos_sin_sink + row);
    }
  }
}

}  // namespace

float* row_of(const StepBuffers& b, Row row) {
  switch (row) {
    case Row::kX:
      return b.x;
    case Row::kQ:
      return b.q;
    case Row::kK:
      return b.k;
    case Row::kV:
      return b.v;
    case Row::kO:
      return b.o;
    case Row::kG:
      return b.g;
  }
  return nullptr;
}

RmsNormArgs take_to_norm(const StepBuffers& b, const ModelConfig& c, const Stage& stage, MatmulPart& part,
                         uint32_t n_tok) {
  const RmsNormArgs norm = {part.y, b.r, stage.post_norm, n_tok, c.d_model, c.norm_eps, part.accumulate};
  part.y = b.r;
  part.accumulate = false;
  return norm;
}

void lay_out_buffers(const ModelConfig& c, const RopeTable& rope, const PolicyNeeds& needs, uint32_t max_tok,
                     uint32_t max_pages, Arena& arena, StepBuffers& b) {
  const uint64_t n = max_tok;
  const uint64_t masses = uint64_t{c.n_heads} * max_pages;
  const uint32_t n_lists = !needs.page_lists ? 0 : needs.list_per_head ? c.n_heads : c.n_kv_heads;
  b.max_tok = max_tok;
  b.first_rotation = rope.first_rotation(needs.context_tokens);
  b.x = arena.take<float>(n * c.d_model);
  b.h = arena.take<float>(n * c.d_model);
  b.q = arena.take<float>(n * c.n_heads * c.head_dim);
  b.q_sink = needs.sink_query ? arena.take<float>(n * c.n_heads * c.head_dim) : nullptr;
  b.k = arena.take<float>(n * c.n_kv_heads * c.head_dim);
  b.v = arena.take<float>(n * c.n_kv_heads * c.head_dim);
  b.o = arena.take<float>(n * c.n_heads * c.head_dim);
  b.g = arena.take<float>(n * c.d_ff);
  b.r = c.traits.has(Trait::kPostNorm) ? arena.take<float>(n * c.d_model) : nullptr;
  const uint64_t rotations = rope.n_rotations() * n * rope.rope_dim();
  b.cos_sin = arena.take<float>(rotations);
  b.cos_sin_sink = needs.sink_query ? arena.take<float>(rotations) : nullptr;
  b.page_mass = needs.page_mass ? arena.take<float>(masses) : nullptr;
  b.page_score = needs.digest != DigestKind::kNone ? arena.take<float>(masses) : nullptr;
  b.select = n_lists != 0 ? arena.take<uint32_t>(uint64_t{n_lists} * max_pages) : nullptr;
  b.n_select = n_lists != 0               ? arena.take<uint32_t>(n_lists)
               : needs.history.group != 0 ? arena.take<uint32_t>(c.n_kv_heads)
                                          : nullptr;
  b.lse = needs.prompt_rows != 0 || needs.row_lse ? arena.take<float>(n * c.n_heads) : nullptr;
  b.token_mass = needs.prompt_rows != 0 && needs.history.group == 0
                     ? arena.take<float>(uint64_t{c.n_kv_heads} * max_pages * kPageTokens)
                     : nullptr;
  b.logits = arena.take<float>(c.vocab_size);
  if (needs.recall_slots != 0) b.staging.lay_out(c.n_kv_heads, c.head_dim, c.n_heads, max_tok, arena);
  if (needs.fetch_pages != 0) b.fetcher = PageFetcher::lay_out(c.n_kv_heads, c.head_dim, needs.fetch_pages, arena);
}

Status run_layers(const StepGroup& group) {
  Step& s = *group.steps[0];
  for (uint32_t i = 0; i < group.n; ++i) {
    fill_rope(*group.steps[i]);
    group.steps[i]->pages_attended = 0;
  }
  const ModelConfig& c = s.model->config();
  WEIR_TRY(s.backend->ops.embed(
      s.cx, {s.b.x, s.model->weights().token_embd, s.tokens, n_tokens_of(group), c.embedding_scale}));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    for (uint32_t i = 0; i < group.n; ++i) {
      const std::atomic<bool>* cancel = group.steps[i]->cancel;
      if (cancel != nullptr && cancel->load(std::memory_order_relaxed))
        return fail(WEIR_ERR_CANCELLED, "cancelled in layer %u", layer);
    }
    for (const Stage& stage : s.model->weights().layers[layer].stages()) WEIR_TRY(run_stage(group, layer, stage));
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
  // A matrix multiplication writes its rows one after another, but each session has its own logits. So the rows go to
  // g, which is free now and takes as many as it has room for, and from there to the sessions.
  const auto room =
      static_cast<uint32_t>(std::clamp<uint64_t>(uint64_t{b.max_tok} * c.d_ff / c.vocab_size, 1, group.n));
  for (uint32_t done = 0; done < group.n; done += room) {
    const uint32_t n = std::min(room, group.n - done);
    float* y = n == 1 ? group.steps[done]->b.logits : b.g;
    WEIR_TRY(ops.matmul(s.cx, {{{w.output, nullptr, y, false}, {}, {}}, 1, b.h + size_t{done} * c.d_model, n}));
    for (uint32_t i = 0; n > 1 && i < n; ++i)
      std::copy_n(y + size_t{i} * c.vocab_size, c.vocab_size, group.steps[done + i]->b.logits);
  }
  for (uint32_t i = 0; c.logit_soft_cap != 0.0f && i < group.n; ++i)
    WEIR_TRY(ops.soft_cap(s.cx, {group.steps[i]->b.logits, c.vocab_size, c.logit_soft_cap}));
  return {};
}

}  // namespace weir
