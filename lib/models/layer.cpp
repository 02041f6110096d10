// Makes the stages of a layer from an architecture's row, and from the stages the traits that a backend must have.
#include "models/layer.h"

#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <iterator>

#include "models/model.h"
#include "models/tensor_reader.h"
#include "ops/experts.h"
#include "ops/matmul.h"

namespace weir {
namespace {

// Appends stages to a layer and reads their tensors.
class LayerBuilder {
 public:
  LayerBuilder(TensorReader& in, const ModelConfig& config, Layer& layer) : in_(in), c_(config), layer_(layer) {
    layer_ = {};
  }

  // A stage whose parts follow; `norm` names the weights of its input's norm, null for none.
  Status begin(Stage::Kind kind, Row x, const char* norm) {
    if (layer_.n_stages == Layer::kMaxStages)
      return fail(WEIR_ERR_INTERNAL, "a layer has at most %u stages", Layer::kMaxStages);
    stage_ = &layer_.stage[layer_.n_stages++];
    stage_->kind = kind;
    stage_->x = x;
    return norm == nullptr ? Status() : in_.vector(norm, row_width(c_, x), stage_->norm);
  }
  enum class Bias : uint8_t { kNone, kIfThere, kRequired };
  Status part(const char* name, Row y, bool accumulate, Bias bias = Bias::kNone) {
    if (stage_->n_parts == kMaxProducts)
      return fail(WEIR_ERR_INTERNAL, "a stage has at most %u matrices, %s is one more", kMaxProducts, name);
    if (accumulate && stage_->kind == Stage::Kind::kGlu)
      return fail(WEIR_ERR_INTERNAL, "%s: what a gate makes is not added to anything", name);
    StagePart& part = next_part(name);
    part.y = y;
    part.accumulate = accumulate;
    char text[64];
    std::snprintf(text, sizeof(text), "%s.weight", name);
    WEIR_TRY(in_.matrix(text, row_width(c_, y), row_width(c_, stage_->x), part.w));
    if (bias == Bias::kNone) return {};
    std::snprintf(text, sizeof(text), "%s.bias", name);
    return in_.vector(text, part.w.n_rows, part.bias, bias == Bias::kRequired);
  }
  // Parts whose matrices, and biases if the file has any, are one tensor: the rows of the first output, then those of
  // the next.
  Status fused_parts(const char* name, std::initializer_list<Row> outputs) {
    uint32_t n_rows = 0;
    for (const Row y : outputs) n_rows += row_width(c_, y);
    char text[64];
    std::snprintf(text, sizeof(text), "%s.weight", name);
    Weight all;
    const float* bias = nullptr;
    WEIR_TRY(in_.matrix(text, n_rows, row_width(c_, stage_->x), all));
    std::snprintf(text, sizeof(text), "%s.bias", name);
    WEIR_TRY(in_.vector(text, n_rows, bias, false));
    uint32_t first = 0;
    for (const Row y : outputs) {
      if (stage_->n_parts == kMaxProducts)
        return fail(WEIR_ERR_INTERNAL, "a stage has at most %u matrices, %s has more", kMaxProducts, name);
      StagePart& part = next_part(name);
      part.y = y;
      part.w = all;
      part.w.data = all.data + first * all.row_bytes;
      part.w.n_rows = row_width(c_, y);
      if (bias != nullptr) part.bias = bias + first;
      first += part.w.n_rows;
    }
    return {};
  }
  // The parts of kExperts: one matrix per expert, or one of the shared expert.
  Status expert_part(const char* name, uint32_t n_rows, uint32_t n_cols, bool bias) {
    StagePart& part = next_part(name);
    char text[64];
    std::snprintf(text, sizeof(text), "%s.weight", name);
    WEIR_TRY(in_.stack(text, c_.n_experts, n_rows, n_cols, part.w));
    if (!bias) return {};
    std::snprintf(text, sizeof(text), "%s.bias", name);
    return in_.table(text, c_.n_experts, n_rows, part.bias);
  }
  // Gates and ups of all experts in one tensor: of each expert the gate, then the up.
  Status fused_expert_parts(const char* name, uint32_t n_rows, uint32_t n_cols) {
    char text[64];
    std::snprintf(text, sizeof(text), "%s.weight", name);
    Weight all;
    WEIR_TRY(in_.stack(text, c_.n_experts, 2 * n_rows, n_cols, all));
    for (const uint32_t first : {0u, n_rows}) {
      StagePart& part = next_part(name);
      part.w = all;
      part.w.data = all.data + size_t{first} * all.row_bytes;
      part.w.n_rows = c_.n_experts * n_rows;
      part.n_between = n_rows;
    }
    return {};
  }
  Status shared_part(const char* name, uint32_t n_rows, uint32_t n_cols) {
    StagePart& part = next_part(name);
    char text[64];
    std::snprintf(text, sizeof(text), "%s.weight", name);
    return in_.matrix(text, n_rows, n_cols, part.w);
  }
  void gate(Gate gate) { stage_->gate = gate; }
  Status post_norm(const char* name) { return in_.vector(name, row_width(c_, stage_->part[0].y), stage_->post_norm); }

 private:
  static constexpr uint32_t kMaxProducts = std::size(MatmulArgs{}.part);  // of a stage that is a matmul
  StagePart& next_part(const char* name) {
    StagePart& part = stage_->part[stage_->n_parts++];
    part.name = name;
    return part;
  }

  TensorReader& in_;
  const ModelConfig& c_;
  Layer& layer_;
  Stage* stage_ = nullptr;
};

}  // namespace

uint32_t row_width(const ModelConfig& c, Row row) {
  switch (row) {
    case Row::kX:
      return c.d_model;
    case Row::kQ:
    case Row::kO:
      return c.n_heads * c.head_dim;
    case Row::kK:
    case Row::kV:
      return c.n_kv_heads * c.head_dim;
    case Row::kG:
      return c.d_ff;
    case Row::kQGate:
      return 2 * c.n_heads * c.head_dim;
    case Row::kMixIn:
      return c.recurrent.in_width;
    case Row::kMixGate:
    case Row::kMixOut:
      return c.recurrent.width;
    case Row::kBeta:
    case Row::kAlpha:
      return c.recurrent.gate_width;
  }
  return 0;
}

ExpertsArgs experts_args(const Layer& layer, const Stage& stage, const float* x, uint32_t n_tok, float* y) {
  const Experts& e = layer.experts;
  const auto stack = [&](uint32_t i) {
    return ExpertStack{stage.part[i].w, stage.part[i].bias, stage.part[i].n_between};
  };
  ExpertsArgs a = {.y = y,
                   .x = x,
                   .n_tok = n_tok,
                   .router = e.router,
                   .activation = stage.gate,
                   .gate = stack(0),
                   .up = stack(1),
                   .down = stack(2)};
  if (stage.n_parts < 6) return a;
  a.shared_router = e.shared_router;
  a.shared_gate = stage.part[3].w;
  a.shared_up = stage.part[4].w;
  a.shared_down = stage.part[5].w;
  return a;
}

namespace {

// Without a gate the matrix stands for gate and up alike: max(u, 0) * u.
Gate gate_of(const Architecture& arch) { return arch.no_gate ? Gate::kRelu : arch.gate; }

// One of them that is not a number would make all that follows none.
Status check_finite(const TensorReader& in, const char* name, const float* values, uint32_t n) {
  for (uint32_t i = 0; values != nullptr && i < n; ++i) {
    if (!std::isfinite(values[i]))
      return fail(WEIR_ERR_FORMAT, "%s%s: element %u is %g", in.prefix(), name, i, static_cast<double>(values[i]));
  }
  return {};
}

Status read_choice_bias(TensorReader& in, const ModelConfig& c, Router& router) {
  constexpr char kName[] = "exp_probs_b.bias";
  WEIR_TRY(in.vector(kName, c.n_experts, router.choice_bias, c.arch->choice_bias));
  return check_finite(in, kName, router.choice_bias, c.n_experts);
}

// How fast the heads of a state forget. It stays from token to token, so here such a value would spoil all of them.
Status check_rates(const TensorReader& in, const RecurrentShape& r, const Recurrent& mixer) {
  WEIR_TRY(check_finite(in, "ssm_a", mixer.a, r.n_heads));
  WEIR_TRY(check_finite(in, "ssm_dt.bias", mixer.dt_bias, r.n_heads));
  return check_finite(in, "ssm_d", mixer.skip, r.n_heads);
}

Status add_experts(LayerBuilder& b, TensorReader& in, const ModelConfig& c, Layer& layer) {
  const Architecture& arch = *c.arch;
  WEIR_TRY(b.begin(Stage::Kind::kExperts, Row::kX, arch.ffn_norm));
  b.gate(gate_of(arch));
  Router& router = layer.experts.router;
  router.n_experts = c.n_experts;
  router.n_used = c.n_experts_used;
  router.rule = c.route;
  WEIR_TRY(in.table("ffn_gate_inp.weight", c.n_experts, c.d_model, router.w));
  if (arch.ffn_bias) WEIR_TRY(in.vector("ffn_gate_inp.bias", c.n_experts, router.bias));
  WEIR_TRY(read_choice_bias(in, c, router));
  if (in.has("ffn_gate_up_exps.weight") && !arch.ffn_bias) {
    WEIR_TRY(b.fused_expert_parts("ffn_gate_up_exps", c.expert_ff, c.d_model));
  } else {
    WEIR_TRY(b.expert_part(arch.no_gate ? "ffn_up_exps" : "ffn_gate_exps", c.expert_ff, c.d_model, arch.ffn_bias));
    WEIR_TRY(b.expert_part("ffn_up_exps", c.expert_ff, c.d_model, arch.ffn_bias));
  }
  WEIR_TRY(b.expert_part("ffn_down_exps", c.d_model, c.expert_ff, arch.ffn_bias));
  if (c.shared_ff == 0) return {};
  if (arch.shared_expert == Architecture::SharedExpert::kGated)
    WEIR_TRY(in.vector("ffn_gate_inp_shexp.weight", c.d_model, layer.experts.shared_router));
  WEIR_TRY(b.shared_part(arch.no_gate ? "ffn_up_shexp" : "ffn_gate_shexp", c.shared_ff, c.d_model));
  WEIR_TRY(b.shared_part("ffn_up_shexp", c.shared_ff, c.d_model));
  return b.shared_part("ffn_down_shexp", c.d_model, c.shared_ff);
}

Status describe_attention(TensorReader& in, LayerBuilder& b, const ModelConfig& c, uint32_t number, Layer& layer) {
  using Kind = Stage::Kind;
  const Architecture& arch = *c.arch;
  const auto qkv_bias = arch.qkv_bias ? LayerBuilder::Bias::kRequired : LayerBuilder::Bias::kIfThere;
  WEIR_TRY(b.begin(Kind::kProject, Row::kX, arch.pre_norms ? "attn_norm.weight" : nullptr));
  if (arch.fused) {
    WEIR_TRY(b.fused_parts("attn_qkv", {Row::kQ, Row::kK, Row::kV}));
  } else {
    WEIR_TRY(b.part("attn_q", arch.head_gate ? Row::kQGate : Row::kQ, false, qkv_bias));
    WEIR_TRY(b.part("attn_k", Row::kK, false, qkv_bias));
    WEIR_TRY(b.part("attn_v", Row::kV, false, qkv_bias));
  }
  if (arch.head_gate) WEIR_TRY(b.begin(Kind::kHeadGate, Row::kQ, nullptr));
  Attention& attention = layer.attention;
  switch (arch.qk_norm) {
    case Architecture::QkNorm::kNone:
      break;
    case Architecture::QkNorm::kHeads:
    case Architecture::QkNorm::kHeadsIfThere: {
      const bool required = arch.qk_norm == Architecture::QkNorm::kHeads;
      WEIR_TRY(in.vector("attn_q_norm.weight", c.head_dim, attention.q_norm, required));
      WEIR_TRY(in.vector("attn_k_norm.weight", c.head_dim, attention.k_norm, required || attention.q_norm != nullptr));
      break;
    }
    case Architecture::QkNorm::kRows:
      WEIR_TRY(b.begin(Kind::kNorm, Row::kQ, "attn_q_norm.weight"));
      WEIR_TRY(b.begin(Kind::kNorm, Row::kK, "attn_k_norm.weight"));
      break;
  }
  WEIR_TRY(b.begin(Kind::kAttend, Row::kQ, nullptr));
  attention.soft_cap = c.attn_soft_cap;
  if (c.is_local(number)) attention.window = c.window;
  if (c.is_local(number) && arch.local_rope_base != 0.0f) attention.rotation = 1;
  if (arch.no_rope_every != 0 && (number + 1) % arch.no_rope_every == 0) attention.rotation = 1;
  if (c.no_rope) attention.rotation = 1;
  if (arch.attn_sinks) WEIR_TRY(in.vector("attn_sinks.weight", c.n_heads, attention.sinks));
  if (arch.head_gate) WEIR_TRY(b.begin(Kind::kHeadGate, Row::kO, nullptr));
  WEIR_TRY(b.begin(Kind::kProject, Row::kO, nullptr));
  WEIR_TRY(b.part("attn_output", Row::kX, true,
                  arch.attn_output_bias ? LayerBuilder::Bias::kRequired : LayerBuilder::Bias::kIfThere));
  return arch.post_norms ? b.post_norm("post_attention_norm.weight") : Status();
}

Status describe_delta_net(TensorReader& in, LayerBuilder& b, const ModelConfig& c, Recurrent& mixer) {
  using Kind = Stage::Kind;
  const RecurrentShape& r = c.recurrent;
  if (in.has("ssm_in.weight")) {
    return fail(
        WEIR_ERR_UNSUPPORTED,
        "%sssm_in.weight: an early conversion, with q, k, v and the gate in one matrix; later ones have attn_qkv "
        "and attn_gate, which can be computed",
        in.prefix());
  }
  WEIR_TRY(b.begin(Kind::kProject, Row::kX, "attn_norm.weight"));
  WEIR_TRY(b.part("attn_qkv", Row::kMixIn, false));
  WEIR_TRY(b.part("attn_gate", Row::kMixGate, false));
  WEIR_TRY(b.begin(Kind::kProject, Row::kX, "attn_norm.weight"));
  if (c.arch->fused_gates) {
    WEIR_TRY(b.part("ssm_ba", Row::kBeta, false));
  } else {
    WEIR_TRY(b.part("ssm_beta", Row::kBeta, false));
    WEIR_TRY(b.part("ssm_alpha", Row::kAlpha, false));
  }
  WEIR_TRY(b.begin(Kind::kMix, Row::kMixIn, nullptr));
  WEIR_TRY(in.table("ssm_conv1d.weight", r.n_channels, r.n_taps, mixer.conv));
  WEIR_TRY(in.vector("ssm_a", r.n_heads, mixer.a));
  WEIR_TRY(in.vector("ssm_dt.bias", r.n_heads, mixer.dt_bias));
  WEIR_TRY(check_rates(in, r, mixer));
  WEIR_TRY(in.vector("ssm_norm.weight", r.value_dim, mixer.norm));
  WEIR_TRY(b.begin(Kind::kProject, Row::kMixOut, nullptr));
  return b.part("ssm_out", Row::kX, true);
}

Status describe_mamba2(TensorReader& in, LayerBuilder& b, const ModelConfig& c, Recurrent& mixer) {
  using Kind = Stage::Kind;
  const RecurrentShape& r = c.recurrent;
  WEIR_TRY(b.begin(Kind::kProject, Row::kX, "attn_norm.weight"));
  WEIR_TRY(b.part("ssm_in", Row::kMixIn, false));
  WEIR_TRY(b.begin(Kind::kMix, Row::kMixIn, nullptr));
  WEIR_TRY(in.table("ssm_conv1d.weight", r.n_channels, r.n_taps, mixer.conv));
  WEIR_TRY(in.vector("ssm_conv1d.bias", r.n_channels, mixer.conv_bias, false));
  WEIR_TRY(in.column("ssm_a", r.n_heads, mixer.a));
  WEIR_TRY(in.vector("ssm_dt.bias", r.n_heads, mixer.dt_bias));
  WEIR_TRY(in.column("ssm_d", r.n_heads, mixer.skip));
  WEIR_TRY(check_rates(in, r, mixer));
  WEIR_TRY(in.table("ssm_norm.weight", r.n_key_heads, r.width / r.n_key_heads, mixer.norm));
  WEIR_TRY(b.begin(Kind::kProject, Row::kMixOut, nullptr));
  return b.part("ssm_out", Row::kX, true);
}

Status describe_short_conv(TensorReader& in, LayerBuilder& b, const ModelConfig& c, Recurrent& mixer) {
  using Kind = Stage::Kind;
  WEIR_TRY(b.begin(Kind::kProject, Row::kX, "attn_norm.weight"));
  WEIR_TRY(b.part("shortconv.in_proj", Row::kMixIn, false));
  WEIR_TRY(b.begin(Kind::kMix, Row::kMixIn, nullptr));
  WEIR_TRY(in.table("shortconv.conv.weight", c.recurrent.n_channels, c.recurrent.n_taps, mixer.conv));
  WEIR_TRY(b.begin(Kind::kProject, Row::kMixOut, nullptr));
  return b.part("shortconv.out_proj", Row::kX, true);
}

Status describe_mixer(TensorReader& in, LayerBuilder& b, const ModelConfig& c, uint32_t number, Layer& layer) {
  layer.recurrent.number = layer.kind.number;
  switch (layer.kind.mixer) {
    case Mixer::kNone:
      return {};
    case Mixer::kAttention:
      return describe_attention(in, b, c, number, layer);
    case Mixer::kDeltaNet:
      return describe_delta_net(in, b, c, layer.recurrent);
    case Mixer::kMamba2:
      return describe_mamba2(in, b, c, layer.recurrent);
    case Mixer::kShortConv:
      return describe_short_conv(in, b, c, layer.recurrent);
  }
  return {};
}

Status describe_feed_forward(LayerBuilder& b, const Architecture& arch) {
  using Kind = Stage::Kind;
  WEIR_TRY(b.begin(Kind::kGlu, Row::kX, arch.pre_norms ? arch.ffn_norm : nullptr));
  b.gate(gate_of(arch));
  if (arch.fused || arch.fused_glu) {
    WEIR_TRY(b.fused_parts("ffn_up", {Row::kG, Row::kG}));
  } else {
    WEIR_TRY(b.part(arch.no_gate ? "ffn_up" : "ffn_gate", Row::kG, false, LayerBuilder::Bias::kIfThere));
    WEIR_TRY(b.part("ffn_up", Row::kG, false, LayerBuilder::Bias::kIfThere));
  }
  WEIR_TRY(b.begin(Kind::kProject, Row::kG, nullptr));
  WEIR_TRY(b.part("ffn_down", Row::kX, true, LayerBuilder::Bias::kIfThere));
  return arch.post_norms ? b.post_norm("post_ffw_norm.weight") : Status();
}

}  // namespace

Status describe_layer(TensorReader& in, const ModelConfig& c, const LayerKind& kind, uint32_t number, Layer& layer) {
  LayerBuilder b(in, c, layer);
  layer.kind = kind;
  WEIR_TRY(describe_mixer(in, b, c, number, layer));
  if (!kind.feed_forward) return {};
  return c.n_experts != 0 && number >= c.n_dense_layers ? add_experts(b, in, c, layer)
                                                        : describe_feed_forward(b, *c.arch);
}

namespace {

// The fields are taken apart by name, so that one more does not compile until it has its line here.
void add_traits(const Attention& attention, TraitSet& traits) {
  const auto& [q_norm, k_norm, window, rotation, soft_cap, sinks] = attention;
  traits.add(Trait::kQkNorm, q_norm != nullptr || k_norm != nullptr);
  traits.add(Trait::kWindow, window != 0);
  traits.add(Trait::kLayerRope, rotation != 0);
  traits.add(Trait::kAttnSoftCap, soft_cap != 0.0f);
  traits.add(Trait::kAttnSinks, sinks != nullptr);
}

// What computes experts computes all of their fields.
void add_traits(const Experts& experts, TraitSet& traits) {
  const auto& [router, shared_router] = experts;
  traits.add(Trait::kExperts, router.n_experts != 0);
}

void add_traits(const StagePart& of_stage, bool of_glu, TraitSet& traits) {
  const auto& [name, w, bias, y, accumulate, n_between] = of_stage;
  const bool is_qkv = y == Row::kQ || y == Row::kK || y == Row::kV;
  traits.add(of_glu ? Trait::kGluBias : is_qkv ? Trait::kQkvBias : Trait::kOutBias, bias != nullptr);
}

void add_traits(const Stage& stage, TraitSet& traits) {
  const auto& [kind, x, norm, gate, post_norm, n_parts, part] = stage;
  const bool gated = kind == Stage::Kind::kGlu || kind == Stage::Kind::kExperts;
  traits.add(Trait::kNoNorm, kind != Stage::Kind::kAttend && x == Row::kX && norm == nullptr);
  traits.add(Trait::kInnerNorm, kind != Stage::Kind::kNorm && x != Row::kX && norm != nullptr);
  traits.add(Trait::kQkRowNorm, kind == Stage::Kind::kNorm);
  traits.add(Trait::kHeadGate, kind == Stage::Kind::kHeadGate);
  traits.add(Trait::kGeluGate, gate == Gate::kGelu);
  traits.add(Trait::kClampedGate, gate == Gate::kClamped);
  traits.add(Trait::kReluGate, gate == Gate::kRelu);
  traits.add(Trait::kPostNorm, post_norm != nullptr);
  for (uint32_t i = 0; i < n_parts; ++i) add_traits(part[i], gated, traits);
}

}  // namespace

TraitSet traits_of(const ModelConfig& c, std::span<const Layer> layers) {
  // Taken apart by name as above. What is not used here is in every model: sizes, and numbers that all backends read.
  const auto& [arch, n_layers, n_heads, n_kv_heads, head_dim, d_model, d_ff, vocab_size, context_tokens, norm_eps,
               attn_scale, embedding_scale, logit_scale, attn_soft_cap, logit_soft_cap, temperature, window,
               global_every, n_experts, n_experts_used, expert_ff, shared_ff, n_dense_layers, route, inner_norm_eps,
               no_rope, n_next_blocks, n_kv_layers, recurrent, filled_in_later] = c;
  TraitSet traits;
  traits.add(Trait::kEmbeddingScale, embedding_scale != 1.0f);
  traits.add(Trait::kLogitSoftCap, logit_soft_cap != 0.0f);
  traits.add(Trait::kTemperature, temperature.beta != 0.0f);
  for (const Layer& layer : layers) {
    traits.add(Trait::kDeltaNet, layer.kind.mixer == Mixer::kDeltaNet);
    traits.add(Trait::kMamba2, layer.kind.mixer == Mixer::kMamba2);
    traits.add(Trait::kShortConv, layer.kind.mixer == Mixer::kShortConv);
    add_traits(layer.attention, traits);
    add_traits(layer.experts, traits);
    for (const Stage& stage : layer.stages()) add_traits(stage, traits);
  }
  return traits;
}

Status check_traits(TraitSet wanted, TraitSet have, const char* backend) {
  for (uint32_t i = 0; i < kTraitCount; ++i) {
    const auto trait = static_cast<Trait>(i);
    if (wanted.has(trait) && !have.has(trait))
      return fail(WEIR_ERR_UNSUPPORTED, "the model has %s, which backend %s cannot compute", kTraitNames[i], backend);
  }
  return {};
}

}  // namespace weir
