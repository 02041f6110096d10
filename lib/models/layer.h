// What a decoder layer does, as data: a short list of stages over the rows of the activations. It is built once, when a
// model is opened, from the architecture's row (struct Architecture, one in each <name>.cpp). The CPU's decoder
// (decoder.cpp), the GPU's prompt chunks (lib/device/session_chunk.cpp) and its recorded decode step
// (lib/device/session_step.cpp) walk the stages in one walk (walk.h); none of them knows an architecture.
#pragma once

#include <cstdint>
#include <span>

#include "core/status.h"
#include "ops/router.h"
#include "ops/traits.h"
#include "ops/types.h"
#include "quant/weight_type.h"

namespace weir {

struct ExpertsArgs;
struct ModelConfig;
struct ModelWeights;
class TensorReader;

// Rows of activations that stages read and write; StepBuffers has the buffers.
enum class Row : uint8_t {
  kX,        // [d_model] residual stream
  kQ,        // [n_heads, head_dim]
  kK,        // [n_kv_heads, head_dim]
  kV,        // [n_kv_heads, head_dim]
  kO,        // [n_heads, head_dim] attention output
  kG,        // [d_ff]
  kQGate,    // [n_heads, 2, head_dim] queries and gates of the output
  kMixIn,    // [recurrent.in_width] what a recurrent layer's op reads, of that its convolution
  kMixGate,  // [recurrent.width] gate of its output
  kBeta,     // [recurrent.gate_width], and of the next: gates of its state
  kAlpha,
  kMixOut,  // [recurrent.width] its output
};

// One matrix of a stage: y = W x (+ bias), or y += W x (+ bias).
struct StagePart {
  const char* name = "";  // of the tensor in the file, without layer and ".weight"
  Weight w;
  const float* bias = nullptr;  // [n_rows] or null
  Row y = Row::kX;
  bool accumulate = false;
  uint32_t n_between = 0;  // of kExperts: ExpertStack::n_between; 0 on devices
};

struct Stage {
  enum class Kind : uint8_t {
    kProject,   // every part is a matrix over the same input
    kGlu,       // part 0 is the gate and part 1 what it gates; the result goes to part 0's y
    kAttend,    // Layer::attention over the pages: q, k, v to o
    kNorm,      // RMS norm of the row x, in place
    kHeadGate,  // takes the queries out of kQGate (x is kQ), or applies the gates there (x is kO)
    kMix,       // Layer::recurrent: from kMixIn and the gates to kMixOut
    // Layer::experts: parts 0 to 2 are the experts' gates, ups and downs, one matrix below the other; 3 to 5 those of
    // the shared expert, if there is one. The result is added to x.
    kExperts,
  };
  static constexpr uint32_t kMaxParts = 6;
  Kind kind = Kind::kProject;
  Row x = Row::kX;              // input of kProject and kGlu, and the row of kNorm
  const float* norm = nullptr;  // [width of x] weights of an RMS norm of the input; null: none, but for kNorm
  Gate gate = Gate::kSilu;      // kGlu and kExperts
  // kProject with one part: [d_model] weights of an RMS norm of the result, before it is added; null: none
  const float* post_norm = nullptr;
  uint32_t n_parts = 0;
  StagePart part[kMaxParts];
};

// What Stage::Kind::kAttend does.
struct Attention {
  const float* q_norm = nullptr;  // [head_dim] RMS norm of each head; null: none
  const float* k_norm = nullptr;
  uint32_t window = 0;    // positions that a query sees, its own included; 0: all
  uint32_t rotation = 0;  // which of the model's tables of rotations
  float soft_cap = 0.0f;  // logits become cap * tanh(logit / cap); 0: as they are
  const float* sinks =
      nullptr;  // [n_heads] a logit for each head that takes part in the softmax and has no value; null: none
};

// What Stage::Kind::kExperts has besides its matrices; ExpertsArgs says what the fields are.
struct Experts {
  Router router;                         // of no experts: the stage is not there
  const float* shared_router = nullptr;  // [d_model] of the shared expert's gate, or null
};

// The kinds of layers by what mixes a token with those before it.
enum class Mixer : uint8_t { kNone, kAttention, kDeltaNet, kMamba2, kShortConv };

// What Stage::Kind::kMix does; DeltaNetArgs, Mamba2Args and ShortConvArgs say what the fields are.
struct Recurrent {
  uint32_t number = 0;               // among the recurrent layers
  const float* conv = nullptr;       // [n_channels, n_taps]
  const float* conv_bias = nullptr;  // [n_channels] or null
  const float* a = nullptr;          // [n_heads]
  const float* dt_bias = nullptr;    // [n_heads]
  const float* skip = nullptr;       // [n_heads]; Mamba-2
  const float* norm = nullptr;       // [value_dim], or of Mamba-2 [n_heads, value_dim]
};

// What a layer consists of.
struct LayerKind {
  Mixer mixer = Mixer::kAttention;
  bool feed_forward = true;
  uint32_t number = 0;  // among the layers with attention, or with a recurrent mixer
};

struct Layer {
  static constexpr uint32_t kMaxStages = 7;
  LayerKind kind;
  Attention attention;
  Recurrent recurrent;
  Experts experts;
  uint32_t n_stages = 0;
  Stage stage[kMaxStages];

  std::span<const Stage> stages() const { return {stage, n_stages}; }
  std::span<Stage> stages() { return {stage, n_stages}; }
};

// Elements of a row.
uint32_t row_width(const ModelConfig& config, Row row);

// The op of a layer's kExperts stage, over the rows x [n_tok, d_model].
ExpertsArgs experts_args(const Layer& layer, const Stage& stage, const float* x, uint32_t n_tok, float* y);

// Reads the tensors of layer `number` into the stages that the architecture's row asks for.
Status describe_layer(TensorReader& in, const ModelConfig& config, const LayerKind& kind, uint32_t number, Layer& out);

// What the description has beyond a plain layer.
TraitSet traits_of(const ModelConfig& config, std::span<const Layer> layers);

// WEIR_ERR_UNSUPPORTED naming the first trait of `wanted` that is not in `have`, the traits of the backend `backend`.
Status check_traits(TraitSet wanted, TraitSet have, const char* backend);

}  // namespace weir
