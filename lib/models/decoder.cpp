// The forward pass of a decoder on the CPU: embedding, the stages of each layer (layer.h), logits.
// Papers: Touvron et al., "Llama 2", arXiv:2307.09288, sec. 2.2; biases and head norms as in the Qwen 2 and 3 reports.
#include "models/decoder.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "kv/recurrent_state.h"
#include "models/attend.h"
#include "models/walk.h"
#include "ops/attn_paged.h"
#include "ops/embed.h"
#include "ops/matmul.h"
#include "ops/rms_norm.h"
#include "ops/soft_cap.h"
#include "policy/page_fetcher.h"
#include "policy/policy.h"

namespace weir {
namespace {

// Tokens of the whole pass.
uint32_t n_tokens_of(const StepGroup& group) { return group.n == 1 ? group.steps[0]->n_tok : group.n; }

// What a pass over rows computes with, besides attention.
struct Rows {
  RowPass pass;
  const ModelWeights& weights;
  const DeviceRows* device;

  Status named(Status status) const { return device == nullptr ? status : device->named(status); }
};

Rows rows_of(const StepGroup& group) {
  Step& s = *group.steps[0];
  const ModelConfig& c = s.model->config();
  const uint32_t n = n_tokens_of(group);
  DeviceRows* const device = s.device;
  if (device != nullptr) return {{device->backend->ops, device->cx, device->b, c, n}, *device->weights, device};
  return {{s.backend->ops, s.cx, s.b, c, n}, s.model->weights(), nullptr};
}

// Matrices take the rows of all sessions together; each session attends for itself.
class DecoderWalk final : public LayerWalk {
 public:
  DecoderWalk(const StepGroup& group, const Rows& rows) : group_(group), rows_(rows) {}

 private:
  Status check(uint32_t layer) override {
    for (uint32_t i = 0; i < group_.n; ++i) WEIR_TRY(check_cancel(*group_.steps[i], layer));
    return {};
  }

  Status compute(const StageAt& at) override { return rows_.named(compute_rows(rows_.pass, at)); }

  // With a device, q, k and v come from it before and o goes to it after; while it computes, the host looks for what it
  // will attend.
  Status attend(uint32_t layer) override {
    Step& s = *group_.steps[0];
    const ModelConfig& c = rows_.pass.config;
    const size_t n_tok = rows_.pass.n_tok, q_elements = n_tok * c.n_heads * c.head_dim;
    if (s.device != nullptr) {
      const size_t kv_elements = n_tok * c.n_kv_heads * c.head_dim;
      WEIR_TRY(s.device->copy_out(s.b.q, s.device->b.q, (q_elements + 2 * kv_elements) * sizeof(float)));
      for (uint32_t i = 0; i < group_.n; ++i) WEIR_TRY(look_ahead(*group_.steps[i], layer));
      WEIR_TRY(s.device->wait());
    }
    const uint64_t started = s.device != nullptr ? now_ns() : 0;
    for (uint32_t i = 0; i < group_.n; ++i) {
      Step& own = *group_.steps[i];
      AttnPagedArgs attn;
      WEIR_TRY(append_rows(own, s.b, i, layer, attn));
      WEIR_TRY(attend_rows(own, attn, layer));
    }
    if (s.device == nullptr) return {};
    s.attention_ns += now_ns() - started;
    if (std::exchange(s.device->has_output, false)) return {};
    return s.device->copy_in(s.device->b.o, s.b.o, q_elements * sizeof(float));
  }

  // Each session has a state of its own.
  Status mix(const Layer& layer) override {
    for (uint32_t i = 0; i < group_.n; ++i) {
      const Step& own = *group_.steps[i];
      WEIR_TRY(mix_rows(rows_.pass, layer, i, own.n_tok, own.recurrent->layer(layer.kind.number)));
    }
    return {};
  }

  const StepGroup& group_;
  const Rows& rows_;
};

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

// Where k and v lie in a pass of n_tok rows.
void set_key_rows(const ModelConfig& c, uint32_t n_tok, StepBuffers& b) {
  b.k = b.q + size_t{n_tok} * c.n_heads * c.head_dim;
  b.v = b.k + size_t{n_tok} * c.n_kv_heads * c.head_dim;
}

}  // namespace

void lay_out_rows(const ModelConfig& c, uint32_t max_tok, Arena& arena, StepBuffers& b) {
  const uint64_t n = max_tok;
  b.x = arena.take<float>(n * c.d_model);
  b.h = arena.take<float>(n * c.d_model);
  lay_out_shared_rows(c, max_tok, arena, b);
  b.g = arena.take<float>(n * c.d_ff);
  b.r = c.traits.has(Trait::kPostNorm) ? arena.take<float>(n * c.d_model) : nullptr;
  if (c.traits.has(Trait::kHeadGate)) b.q_gate = arena.take<float>(n * 2 * c.n_heads * c.head_dim);
  const RecurrentShape& r = c.recurrent;
  if (r.n_layers == 0) return;
  b.mix_in = arena.take<float>(n * r.in_width);
  b.mix_out = arena.take<float>(n * r.width);
  if (r.gate_width == 0) return;
  b.mix_gate = arena.take<float>(n * r.width);
  b.beta = arena.take<float>(n * r.gate_width);
  b.alpha = arena.take<float>(n * r.gate_width);
}

void lay_out_shared_rows(const ModelConfig& c, uint32_t max_tok, Arena& arena, StepBuffers& b) {
  const uint64_t q_elements = uint64_t{c.n_heads} * c.head_dim, kv_elements = uint64_t{c.n_kv_heads} * c.head_dim;
  b.max_tok = max_tok;
  b.q = arena.take<float>(max_tok * (q_elements + 2 * kv_elements));
  if (b.q != nullptr) set_key_rows(c, max_tok, b);  // null while the arena measures
  b.o = arena.take<float>(max_tok * q_elements);
  b.logits = arena.take<float>(c.vocab_size);
}

void lay_out_attention(const ModelConfig& c, const RopeTable& rope, const PolicyNeeds& needs, uint32_t max_tok,
                       uint32_t max_pages, uint64_t page_bytes, Arena& arena, StepBuffers& b) {
  const uint64_t n = max_tok;
  const uint64_t masses = uint64_t{c.n_heads} * max_pages;
  const uint32_t n_lists = !needs.page_lists ? 0 : needs.list_per_head ? c.n_heads : c.n_kv_heads;
  b.first_rotation = rope.first_rotation(needs.context_tokens);
  b.q_sink = needs.sink_query ? arena.take<float>(n * c.n_heads * c.head_dim) : nullptr;
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
  const uint64_t learned = uint64_t{needs.history.n_layers} * needs.prompt_rows;
  b.learn_q = needs.history.group != 0 ? arena.take<float>(learned * c.n_heads * c.head_dim) : nullptr;
  if (needs.recall_slots != 0) b.staging.lay_out(c.n_kv_heads, page_bytes, c.n_heads, max_tok, arena);
  b.plain_bytes = arena.used();
  if (needs.fetch_pages != 0) b.fetcher = PageFetcher::lay_out(c.n_kv_heads, page_bytes, needs.fetch_pages, arena);
}

namespace {

// Prepares the device for a pass; `tokens` becomes where it finds them.
Status open_device(const StepGroup& group, const int32_t*& tokens) {
  Step& s = *group.steps[0];
  const uint32_t n_tok = n_tokens_of(group);
  set_key_rows(s.model->config(), n_tok, s.b);
  set_key_rows(s.model->config(), n_tok, s.device->b);
  s.device->has_output = false;  // a pass that failed may have left one
  WEIR_TRY(s.device->copy_in(s.device->tokens, tokens, n_tok * sizeof(int32_t)));
  tokens = s.device->tokens;
  return {};
}

// The embeddings of a pass.
Status embed(const StepGroup& group, const Rows& rows) {
  const RowPass& p = rows.pass;
  const int32_t* tokens = group.steps[0]->tokens;
  if (rows.device != nullptr) WEIR_TRY(open_device(group, tokens));
  return rows.named(p.ops.embed(p.cx, {p.b.x, rows.weights.token_embd, tokens, p.n_tok, p.config.embedding_scale}));
}

// Logits that were computed become those of a session.
Status take_logits(const StepGroup& group, uint32_t i, const float* from) {
  Step& s = *group.steps[0];
  const uint32_t n = s.model->config().vocab_size;
  float* const to = group.steps[i]->b.logits;
  if (s.device != nullptr) return s.device->copy_out(to, from, n * sizeof(float));
  if (to != from) std::copy_n(from, n, to);
  return {};
}

Status run_all_logits(const StepGroup& group) {
  Step& s = *group.steps[0];
  const Rows rows = rows_of(group);
  const RowPass& p = rows.pass;
  const ModelConfig& c = p.config;
  const StepBuffers& b = p.b;
  const float* last = b.x + size_t{p.n_tok - group.n} * c.d_model;
  WEIR_TRY(rows.named(p.ops.rms_norm(p.cx, {b.h, last, rows.weights.output_norm, group.n, c.d_model, c.norm_eps})));
  // A matrix multiplication writes its rows one after another, but each session has its own logits. So the rows go to
  // g, which is free now and takes as many as it has room for, and from there to the sessions.
  const auto room =
      static_cast<uint32_t>(std::clamp<uint64_t>(uint64_t{b.max_tok} * c.d_ff / c.vocab_size, 1, group.n));
  for (uint32_t done = 0; done < group.n; done += room) {
    const uint32_t n = std::min(room, group.n - done);
    float* y = n > 1 ? b.g : s.device != nullptr ? b.logits : group.steps[done]->b.logits;
    const MatmulArgs product = {
        {{rows.weights.output, nullptr, y, false}, {}, {}}, 1, b.h + size_t{done} * c.d_model, n};
    WEIR_TRY(rows.named(p.ops.matmul(p.cx, product)));
    for (uint32_t i = 0; i < n; ++i) {
      float* const logits = y + size_t{i} * c.vocab_size;
      if (c.logit_soft_cap != 0.0f)
        WEIR_TRY(rows.named(p.ops.soft_cap(p.cx, {logits, c.vocab_size, c.logit_soft_cap})));
      WEIR_TRY(take_logits(group, done + i, logits));
    }
  }
  return {};
}

// Nothing of a pass is left on its way when it ends, however it ends.
Status finish(const StepGroup& group, Status status) {
  DeviceRows* const device = group.steps[0]->device;
  if (device == nullptr) return status;
  const Status waited = device->wait();
  return waited.ok() ? status : waited;
}

}  // namespace

Status run_layers(const StepGroup& group) {
  for (uint32_t i = 0; i < group.n; ++i) {
    fill_rope(*group.steps[i]);
    group.steps[i]->pages_attended = group.steps[i]->attention_ns = 0;
  }
  const Rows rows = rows_of(group);
  Status status = embed(group, rows);
  if (status.ok()) status = DecoderWalk(group, rows).run(rows.weights.layers);
  if (status.ok()) status = learn(*group.steps[0]);
  return finish(group, status);
}

Status run_logits(const StepGroup& group) { return finish(group, run_all_logits(group)); }

}  // namespace weir
