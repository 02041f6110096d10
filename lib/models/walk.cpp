// One loop over layers and stages, and what a stage is as ops over rows.
#include "models/walk.h"

#include "models/model.h"
#include "ops/experts.h"
#include "ops/glu_matmul.h"
#include "ops/matmul.h"
#include "ops/rms_norm.h"
#include "ops/table.h"

namespace weir {

Status LayerWalk::run(std::span<const Layer> layers) {
  const Stage* before = nullptr;
  for (uint32_t number = 0; number < layers.size(); ++number) {
    const Layer& layer = layers[number];
    for (const Stage& stage : layer.stages()) {
      WEIR_TRY(check(number));
      WEIR_TRY(stage.kind == Stage::Kind::kAttend ? attend(number) : compute({number, layer, stage, before}));
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
    case Stage::Kind::kAttend:
    case Stage::Kind::kNorm:
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
