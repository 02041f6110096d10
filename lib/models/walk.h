// The walk through the layers of a model, stage by stage (layer.h). It is the same for the decoder on the CPU, for a
// device's prompt chunks and for its recorded decode step; what a stage becomes is the walker's: ops over the rows of a
// pass (compute_rows), or kernels that a queue records (lib/device/session_step.cpp).
#pragma once

#include <cstdint>
#include <span>

#include "core/status.h"
#include "models/buffers.h"
#include "models/layer.h"

namespace weir {

struct LayerState;
struct MatmulPart;
struct OpContext;
struct OpTable;
struct RmsNormArgs;

// A stage with its place.
struct StageAt {
  uint32_t number;  // of the layer
  const Layer& layer;
  const Stage& stage;
  const Stage* before;  // the stage before it, which may be the layer's before; null: there is none
};

class LayerWalk {
 public:
  Status run(std::span<const Layer> layers);

 protected:
  ~LayerWalk() = default;
  // Before each stage, and behind each layer.
  virtual Status check(uint32_t) { return {}; }
  virtual Status end_layer(uint32_t) { return {}; }
  // Attention, whose layers are counted by themselves; a recurrent layer's op; and any other stage.
  virtual Status attend(uint32_t kv_layer) = 0;
  virtual Status mix(const Layer& layer) = 0;
  virtual Status compute(const StageAt& at) = 0;
};

// Rows of activations, and the ops that compute them.
struct RowPass {
  const OpTable& ops;
  OpContext& cx;
  const StepBuffers& b;
  const ModelConfig& config;
  uint32_t n_tok;
  bool forked = false;  // LayerState::forked
};

// A stage that is not attention, over all rows.
Status compute_rows(const RowPass& pass, const StageAt& at);

// The op of a recurrent layer over n_tok rows from `row` on, which are those of one session.
Status mix_rows(const RowPass& pass, const Layer& layer, uint32_t row, uint32_t n_tok, const LayerState& state);

float* row_of(const StepBuffers& b, Row row);

// For a stage with a norm after it: sends the part's result to `r`, and returns the norm that brings it from there to
// the row that the part names.
RmsNormArgs take_to_norm(const StepBuffers& b, const ModelConfig& config, const Stage& stage, MatmulPart& part,
                         uint32_t n_tok);

}  // namespace weir
