// One loop over layers and stages, and what a stage is as ops over rows.
#include "models/walk.h"

#include "models/model.h"
#include "ops/delta_net.h"
#include "ops/experts.h"
#include "ops/glu_matmul.h"
#include "ops/head_gate.h"
#include "ops/mamba2.h"
#include "ops/matmul.h"
#include "ops/rms_norm.h"
#include "ops/short_conv.h"
#include "ops/table.h"

namespace weir {

Status LayerWalk::run(std::span<const Layer> layers) {
  const Stage* before = nullptr;
  for (uint32_t number = 0; number < layers.size(); ++number) {
    const Layer& layer = layers[number];
    for (const Stage& stage : layer.stages()) {
      WEIR_TRY(check(number));
      if (stage.kind == Stage::Kind::kAttend) {
        WEIR_TRY(attend(layer.kind.number));
      } else {
        WEIR_TRY(stage.kind == Stage::Kind::kMix ? mix(layer) : compute({number, layer, stage, before}));
      }
      before = &stage;
    }
    WEIR_TRY(end_layer(number));
  }
  return {};
}

namespace {

Status project_rows(const RowPass& pass, const Stage& stage, const float* x) {
  MatmulArgs a = {{}, stage.n_parts, x, pass.n_tok};
  for (uint32_t i = 0; i < stage.n_parts; ++i) {
    const StagePart& part = stage.part[i];
    a.part[i] = {part.w, part.bias, row_of(pass.b, part.y), part.accumulate};
  }
  if (stage.post_norm == nullptr) return pass.ops.matmul(pass.cx, a);
  const RmsNormArgs norm = take_to_norm(pass.b, pass.config, stage, a.part[0], pass.n_tok);
  WEIR_TRY(pass.ops.matmul(pass.cx, a));
  return pass.ops.rms_norm(pass.cx, norm);
}

}  // namespace

Status compute_rows(const RowPass& pass, const StageAt& at) {
  const Stage& stage = at.stage;
  float* const row = row_of(pass.b, stage.x);
  const float* x = row;
  if (stage.norm != nullptr) {
    float* const y = stage.kind == Stage::Kind::kNorm ? row : pass.b.h;
    WEIR_TRY(pass.ops.rms_norm(
        pass.cx, {y, row, stage.norm, pass.n_tok, row_width(pass.config, stage.x), pass.config.norm_eps}));
    x = y;
  }
  switch (stage.kind) {
    case Stage::Kind::kProject:
      return project_rows(pass, stage, x);
    case Stage::Kind::kGlu:
      return pass.ops.glu_matmul(pass.cx, {row_of(pass.b, stage.part[0].y), stage.part[0].w, stage.part[1].w, x,
                                           pass.n_tok, stage.gate, stage.part[0].bias, stage.part[1].bias});
    case Stage::Kind::kExperts:
      return pass.ops.experts(pass.cx, experts_args(at.layer, stage, x, pass.n_tok, pass.b.x));
    case Stage::Kind::kHeadGate:
      return pass.ops.head_gate(pass.cx, {row, pass.b.q_gate, pass.n_tok, pass.config.n_heads, pass.config.head_dim,
                                          stage.x == Row::kO, pass.forked});
    case Stage::Kind::kAttend:
    case Stage::Kind::kMix:
    case Stage::Kind::kNorm:
      break;
  }
  return {};
}

namespace {

Status mix_delta_net(const RowPass& pass, const Recurrent& mixer, uint32_t row, uint32_t n_tok, const ConvArgs& conv,
                     const LayerState& state) {
  const StepBuffers& b = pass.b;
  const RecurrentShape& r = pass.config.recurrent;
  const Architecture& arch = *pass.config.arch;
  // Gates that are one matrix: of each key head the betas of its heads, then their alphas.
  const uint32_t group = arch.fused_gates ? r.n_heads / r.n_key_heads : r.n_heads;
  const float* beta = b.beta + size_t{row} * r.gate_width;
  return pass.ops.delta_net(pass.cx, {.y = b.mix_out + size_t{row} * r.width,
                                      .m = b.mix_in + size_t{row} * r.in_width,
                                      .z = b.mix_gate + size_t{row} * r.width,
                                      .beta = beta,
                                      .alpha = arch.fused_gates ? beta + group : b.alpha + size_t{row} * r.gate_width,
                                      .gate_stride = r.gate_width,
                                      .gate_group = group,
                                      .group_stride = 2 * group,
                                      .n_tok = n_tok,
                                      .n_key_heads = r.n_key_heads,
                                      .n_heads = r.n_heads,
                                      .key_dim = r.key_dim,
                                      .value_dim = r.value_dim,
                                      .grouped = arch.grouped_heads,
                                      .conv = conv,
                                      .a = mixer.a,
                                      .dt_bias = mixer.dt_bias,
                                      .norm = mixer.norm,
                                      .eps = pass.config.inner_norm_eps,
                                      .state = state});
}

Status mix_mamba2(const RowPass& pass, const Recurrent& mixer, uint32_t row, uint32_t n_tok, const ConvArgs& conv,
                  const LayerState& state) {
  const RecurrentShape& r = pass.config.recurrent;
  return pass.ops.mamba2(pass.cx, {.y = pass.b.mix_out + size_t{row} * r.width,
                                   .x = pass.b.mix_in + size_t{row} * r.in_width,
                                   .n_tok = n_tok,
                                   .n_groups = r.n_key_heads,
                                   .n_heads = r.n_heads,
                                   .key_dim = r.key_dim,
                                   .value_dim = r.value_dim,
                                   .conv = conv,
                                   .a = mixer.a,
                                   .dt_bias = mixer.dt_bias,
                                   .skip = mixer.skip,
                                   .norm = mixer.norm,
                                   .eps = pass.config.inner_norm_eps,
                                   .state = state});
}

}  // namespace

Status mix_rows(const RowPass& pass, const Layer& layer, uint32_t row, uint32_t n_tok, const LayerState& state) {
  const RecurrentShape& r = pass.config.recurrent;
  const Recurrent& mixer = layer.recurrent;
  const ConvArgs conv = {mixer.conv, mixer.conv_bias, r.n_channels, r.n_taps};
  switch (layer.kind.mixer) {
    case Mixer::kDeltaNet:
      return mix_delta_net(pass, mixer, row, n_tok, conv, state);
    case Mixer::kMamba2:
      return mix_mamba2(pass, mixer, row, n_tok, conv, state);
    case Mixer::kShortConv:
      return pass.ops.short_conv(pass.cx, {pass.b.mix_out + size_t{row} * r.width,
                                           pass.b.mix_in + size_t{row} * r.in_width, n_tok, conv, state});
    case Mixer::kNone:
    case Mixer::kAttention:
      break;
  }
  return {};
}

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
    case Row::kQGate:
      return b.q_gate;
    case Row::kMixIn:
      return b.mix_in;
    case Row::kMixGate:
      return b.mix_gate;
    case Row::kBeta:
      return b.beta;
    case Row::kAlpha:
      return b.alpha;
    case Row::kMixOut:
      return b.mix_out;
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

}  // namespace weir
