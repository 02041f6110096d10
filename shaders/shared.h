// What the host and the shaders both know: enum values and push constants. Compiled as C++ and as GLSL, so that neither
// side has numbers of its own. A uvec2 is the address of device memory, the low word first; (0, 0) is none.
//
// In every struct the addresses come first, and there are as many as kAddresses<...> says (lib/vulkan/kernels.h): the
// recorder compares them with the ranges that an op declares. Drivers guarantee 128 bytes.
#ifndef WEIR_SHADERS_SHARED_H
#define WEIR_SHADERS_SHARED_H

#ifdef __cplusplus
#include <cstddef>
#include <cstdint>
namespace weir::vulkan {
using uint = uint32_t;
struct uvec2 {
  uint x, y;
};
#define WEIR_SHARED inline constexpr
#else
#define WEIR_SHARED const
#endif

// Invocations of a workgroup: all shaders have as many, every driver has to allow 256.
WEIR_SHARED uint kInvocations = 256;
// The most subgroups of a workgroup, of at least 8 lanes each.
WEIR_SHARED uint kMinLanes = 8;
WEIR_SHARED uint kMaxSubgroups = kInvocations / kMinLanes;
// Rows of x that one pass over the weights multiplies.
WEIR_SHARED uint kMaxColumns = 8;
// Columns that the integer GEMVs of decode steps take: as many as 32 KiB of shared memory hold.
WEIR_SHARED uint kMaxStepColumns = 14336;

// Activations of gates, the values of Gate.
WEIR_SHARED uint kGateSilu = 0;
WEIR_SHARED uint kGateGelu = 1;
WEIR_SHARED uint kGateClamped = 2;
WEIR_SHARED uint kGateRelu = 3;

// x [n_tok, 32 * n_blocks]: rows of a table of n blocks of 32 weights, decoded and scaled.
struct EmbedPush {
  uvec2 x, table, tokens;
  uint n, n_blocks, n_tok;
  float scale;
};

// y [n_tok, width] (+)= x / rms(x) * weight.
struct RmsNormPush {
  uvec2 y, x, weight;
  uint width;
  float eps;
  uint accumulate;
};

// y [n_tok, n_rows] (+)= W x (+ bias); W has n blocks of 32 weights, a row n_blocks. With gates [n_tok] it is
// sigmoid(gate) times that.
struct GemvPush {
  uvec2 y, x, w, bias, gates;
  uint n, n_blocks, n_rows, n_tok, accumulate;
};

// y [n_tok, n_rows] = activation(Wg x (+ gate_bias)) * (Wu x (+ up_bias)).
struct GluPush {
  uvec2 y, x, gate, up, gate_bias, up_bias;
  uint n, n_blocks, n_rows, n_tok, activation;
};

// What becomes of products of matrices of rows: y = p, y += p, or y = activation(p) * y.
WEIR_SHARED uint kGemmStore = 0;
WEIR_SHARED uint kGemmAdd = 1;
WEIR_SHARED uint kGemmGate = 2;
// Rows of W and, for every two of kColumns, rows of x in a tile of gemm.comp.
WEIR_SHARED uint kGemmRows = 128;
WEIR_SHARED uint kGemmTokens = 16;

// p = W x (+ bias) for many rows of x, with gates [n_tok] sigmoid(gate) times that; y [n_tok, stride]. W has n blocks
// of 32 weights. Where W and x are f16, rows of x have scales [n_tok].
struct GemmPush {
  uvec2 y, x, w, bias, gates, scales;
  uint n, n_cols, n_rows, n_tok, stride, result, activation;
};

// out [n_tok, 8 * n_eights]: x in f16, and the rows' scales.
struct GemmPackPush {
  uvec2 out_rows, scales, x;
  uint n_tok, n_eights;
};

// out: blocks [first, first + n_blocks) of the n of a matrix, in f16.
struct GemmDecodePush {
  uvec2 out_weights, w;
  uint n, first, n_blocks;
};

// Up to three matrices of one type and one row of x; absent ones have no rows. Bit i of accumulate is that of matrix i.
// The norm [32 * n_blocks] may be null.
struct StepGemvPush {
  uvec2 y[3], w[3], bias[3], x, norm;
  uint n_rows[3];
  uint n_blocks, accumulate;
  float eps;
};

// y [n_rows] = activation(Wg norm(x) (+ gate_bias)) * (Wu norm(x) (+ up_bias)).
struct StepGluPush {
  uvec2 y, x, norm, gate, up, gate_bias, up_bias;
  uint n_rows, n_blocks, activation;
  float eps;
};

// x: one input of 32 * n_blocks for each workgroup, packed in `stride` vectors of 16 bytes of `inputs`. The norm may be
// null.
struct StepPackPush {
  uvec2 inputs, norm, x[kMaxColumns];
  uint n_blocks, stride;
  float eps;
};

// One matrix, or a gate and an up matrix, and several packed inputs; y [n_rows] of each of them.
struct StepGemvManyPush {
  uvec2 y[kMaxColumns], inputs, w, bias;
  uint n_rows, n_blocks, stride, accumulate;
};
struct StepGluManyPush {
  uvec2 y[kMaxColumns], inputs, gate, up, gate_bias, up_bias;
  uint n_rows, n_blocks, stride, activation;
};

// How experts follow from logits, as RouteRule and Router say.
WEIR_SHARED uint kRouteSoftmax = 1;    // scores are a softmax; otherwise sigmoids
WEIR_SHARED uint kRouteNormalise = 2;  // weights are divided by their sum
WEIR_SHARED uint kRouteByLogits = 4;   // logits choose; otherwise scores and the bias
WEIR_SHARED uint kMaxRouted = 1024;    // experts
WEIR_SHARED uint kMaxRoutedGroups = 64;

// From logits [n_tok, n_experts] the n_used experts of each token, ascending, and their weights: [n_tok, n_used] both.
struct RoutePush {
  uvec2 ids, weights, logits, choice_bias;
  uint n_experts, n_used, n_groups, n_groups_used, flags;
  float scale, least;
};

// inner [n_tok, n_used, n_rows]: what the gates of each token's experts make of its row of x. Matrix `ids[t, i]` of the
// stacks has n_rows rows.
struct ExpertGluPush {
  uvec2 inner, x, gate, up, gate_bias, up_bias, ids;
  uint n, n_blocks, n_rows, n_tok, n_used, activation;
};

// y [n_tok, n_rows] += the sum over each token's experts of weight * (W inner (+ bias)).
struct ExpertDownPush {
  uvec2 y, inner, w, bias, ids, weights;
  uint n, n_blocks, n_rows, n_tok, n_used;
};

// x [n] = cap * tanh(x / cap).
struct SoftCapPush {
  uvec2 x;
  uint n;
  float cap;
};

// q [n_tok, width] *= 1 + beta * log(1 + pos / n_tokens), the quotient rounded down; pos is that of the first token, or
// at pos_at.
struct TemperPush {
  uvec2 q, pos_at;
  uint n_tok, width, pos, n_tokens;
  float beta;
};

// One workgroup: out [kSelfTestWords, kInvocations], what each invocation got from its subgroup.
struct SelfTestPush {
  uvec2 out_words;
};
WEIR_SHARED uint kSelfTestLane = 0;      // gl_SubgroupInvocationID
WEIR_SHARED uint kSelfTestLanes = 1;     // gl_SubgroupSize
WEIR_SHARED uint kSelfTestSubgroup = 2;  // gl_SubgroupID
WEIR_SHARED uint kSelfTestShuffle = 3;   // of the lane's xor with 5: its invocation * 3 + 1
WEIR_SHARED uint kSelfTestSum = 4;       // of the lanes' invocation * 3 + 1
WEIR_SHARED uint kSelfTestMax = 5;      // the largest of them
WEIR_SHARED uint kSelfTestFloats = 6;    // bits of the f32 sum of lane + 0.5
WEIR_SHARED uint kSelfTestShared = 7;    // what invocation (i + 37) % kInvocations put into shared memory
WEIR_SHARED uint kSelfTestWords = 8;

// One workgroup: out [kInvocations], dot products of four signed bytes each: of i * kDotFactor and kDotOther - i.
struct SelfTestDotPush {
  uvec2 out_words;
};
WEIR_SHARED uint kDotFactor = 0x9E3779B9;
WEIR_SHARED uint kDotOther = 0x7F80FF01;

#ifdef __cplusplus
static_assert(sizeof(EmbedPush) == 40 && offsetof(EmbedPush, scale) == 36);
static_assert(sizeof(RmsNormPush) == 36 && offsetof(RmsNormPush, eps) == 28);
static_assert(sizeof(GemvPush) == 60 && offsetof(GemvPush, accumulate) == 56);
static_assert(sizeof(GemmPush) == 76 && offsetof(GemmPush, n) == 48 && offsetof(GemmPush, activation) == 72);
static_assert(sizeof(GemmPackPush) == 32 && offsetof(GemmPackPush, n_eights) == 28);
static_assert(sizeof(GemmDecodePush) == 28 && offsetof(GemmDecodePush, n_blocks) == 24);
static_assert(sizeof(GluPush) == 68 && offsetof(GluPush, n) == 48 && offsetof(GluPush, activation) == 64);
static_assert(sizeof(StepGemvPush) == 112 && offsetof(StepGemvPush, n_rows) == 88);
static_assert(offsetof(StepGemvPush, eps) == 108);
static_assert(sizeof(StepGluPush) == 72 && offsetof(StepGluPush, eps) == 68);
static_assert(sizeof(StepPackPush) == 92 && offsetof(StepPackPush, eps) == 88);
static_assert(sizeof(StepGemvManyPush) == 104 && offsetof(StepGemvManyPush, accumulate) == 100);
static_assert(sizeof(StepGluManyPush) == 120 && offsetof(StepGluManyPush, activation) == 116);
static_assert(sizeof(RoutePush) == 60 && offsetof(RoutePush, scale) == 52);
static_assert(sizeof(ExpertGluPush) == 80 && offsetof(ExpertGluPush, activation) == 76);
static_assert(sizeof(ExpertDownPush) == 68 && offsetof(ExpertDownPush, n_used) == 64);
static_assert(sizeof(TemperPush) == 36 && offsetof(TemperPush, beta) == 32);
static_assert(sizeof(SoftCapPush) == 16 && offsetof(SoftCapPush, cap) == 12);
}  // namespace weir::vulkan
#endif
#endif
