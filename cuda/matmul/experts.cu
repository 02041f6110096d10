// Mixture of experts in decode steps: GEMVs over the weights of the chosen experts, whose indices the device reads.
//
// A stack is laid out as one matrix with the rows of all experts, so an expert is an offset. Gates and ups: the rows of
// the chosen experts follow one another, n_used * d_ff of them, each a dot product with the same input. Downs: a row of
// the result is one dot product over the chosen experts' rows, one behind the other; its input, n_used * d_ff long, is
// what the gates gave, times the expert's weight. So the weighted sum over experts needs no kernel and no atomics.
//
// No weights can be loaded before the router has ended, but gates and ups take their input while it chooses. Downs load
// their first tile before the block reads the input.
#include "cuda/matmul/experts.cuh"

#include <algorithm>
#include <cstring>

#include "core/memory.h"
#include "cuda/common/device.cuh"
#include "cuda/matmul/gemv.cuh"
#include "cuda/matmul/gemv_input.cuh"
#include "cuda/ops.h"
#include "cuda/quant/formats.cuh"
#include "device/kernels/experts_step.h"
#include "device/kernels/gemv.h"
#include "ops/experts.h"
#include "ops/table.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kThreads = 512, kWarps = kThreads / kWarp;
template <class F>
constexpr uint32_t kBlocks = F::kInteger ? 1 : 2;    // per SM, as in gemv.cu
constexpr uint32_t kGluUnroll = 2, kDownUnroll = 4;  // units per lane and row of a tile

struct ExpertGemvArgs {
  const uint32_t* ids;   // [n_used]
  const float* weights;  // [n_used]
  const float* x;        // kGlu: [n_units * kUnit]; else [n_used, n_units * kUnit]
  const float* norm;     // kGlu: or null
  float eps;
  float* y;                          // kGlu: [n_used, n_rows]; else in/out [n_rows]
  const float* bias[2];              // [n_experts, n_rows] of the gate and the up, or of the down; or null
  uint32_t n_used, n_rows, n_units;  // of one expert's matrix
  uint32_t n_in;                     // inputs
  uint32_t entry_bytes;              // of the format's table in shared memory, before the input
  uint32_t zero;                     // always 0, see gemv.cu
  Gate activation;
};

template <class F>
struct Stacks {
  typename F::Planes planes[2];  // gate and up, or down
};

template <class F, bool kGlu>
struct Tile {
  static constexpr uint32_t kMatrices = kGlu ? 2 : 1, kUnroll = kGlu ? kGluUnroll : kDownUnroll;
  typename F::Regs regs[kMatrices][kUnroll];
};

// Walks through the tiles of a warp's rows.
template <class F, bool kGlu>
struct Cursor {
  static constexpr uint32_t kUnroll = Tile<F, kGlu>::kUnroll;
  const ExpertGemvArgs& a;
  const uint32_t* ids;  // shared memory
  uint32_t row, stride, n_rows, n_units, unit;

  __device__ Cursor(const ExpertGemvArgs& args, const uint32_t* chosen)
      : a(args),
        ids(chosen),
        row(threadIdx.x / kWarp * gridDim.x + blockIdx.x),
        stride(gridDim.x * kWarps),
        n_rows(kGlu ? args.n_used * args.n_rows : args.n_rows),
        n_units(kGlu ? args.n_units : args.n_used * args.n_units),
        unit(threadIdx.x % kWarp) {}
  // Index in the stack of unit u of the row.
  __device__ uint32_t index(uint32_t u) const {
    const uint32_t place = kGlu ? row / a.n_rows : u / a.n_units;
    const uint32_t local = kGlu ? row - place * a.n_rows : row, at = kGlu ? u : u - place * a.n_units;
    return (ids[place] * a.n_rows + local) * a.n_units + at;
  }
  __device__ void load(const Stacks<F>& stacks, uint32_t nothing, Tile<F, kGlu>& out) const {
    if (row >= n_rows) return;
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) {
      if (unit + u * kWarp >= n_units) continue;
      const uint32_t i = index(unit + u * kWarp) + nothing;
#pragma unroll
      for (uint32_t m = 0; m < Tile<F, kGlu>::kMatrices; ++m) out.regs[m][u] = F::load(F::at(stacks.planes[m], i));
    }
  }
  // Moves on; returns whether the row has ended.
  __device__ bool next() {
    unit += kUnroll * kWarp;
    if (unit - threadIdx.x % kWarp < n_units) return false;
    unit = threadIdx.x % kWarp;
    row += stride;
    return true;
  }
};

// Loads the input into shared memory, multiplied with the norm's weights or with the experts'. Returns the norm's
// scale.
template <class F, bool kGlu>
__device__ float take_input(const ExpertGemvArgs& a, const float* weights, std::byte* input, float* sums) {
  float square = 0.0f;
  const uint32_t per_expert = a.n_in / a.n_used;
  // A warp stays in the loop while one of its lanes has inputs: the shuffles of quantize() need all lanes.
#pragma unroll 1
  for (uint32_t at = threadIdx.x * 8; at - threadIdx.x % kWarp * 8 < a.n_in; at += kThreads * 8) {
    Eight v;
    if (at < a.n_in) {
      v.read(a.x + at);
      if (kGlu && a.norm != nullptr) {
        Eight norm;
        norm.read_constant(a.norm + at);
        apply_norm(v, norm, square);
      }
      if constexpr (!kGlu) {
        const float w = weights[at / per_expert];
#pragma unroll
        for (float4& f : v.v) f.x *= w, f.y *= w, f.z *= w, f.w *= w;
      }
    }
    if constexpr (F::kInteger) {
      quantize<F>(v, at, a.n_in, input);
    } else {
      store_floats<F>(v, at, a.n_in, input);
    }
  }
  if (kGlu && a.norm != nullptr) {
    square = warp_sum(square);
    if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = square;
  }
  __syncthreads();
  if (!kGlu || a.norm == nullptr) return 1.0f;
  float sum = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < kWarps; ++i) sum += sums[i];
  return rsqrtf(sum / static_cast<float>(a.n_in) + a.eps);
}

// Stores the output of a row from the lanes' sums.
template <bool kGlu>
__device__ void finish_row(const ExpertGemvArgs& a, const uint32_t* ids, const float* weights, uint32_t row,
                           float* total, float scale) {
  const uint32_t lane = threadIdx.x % kWarp;
  if constexpr (kGlu) {
    const uint32_t place = row / a.n_rows, local = row - place * a.n_rows;
    float gate = __fmul_rn(warp_sum(total[0]), scale), up = __fmul_rn(warp_sum(total[1]), scale);
    if (lane != 0) return;
    const size_t at = size_t{ids[place]} * a.n_rows + local;
    if (a.bias[0] != nullptr) gate += __ldg(a.bias[0] + at);
    if (a.bias[1] != nullptr) up += __ldg(a.bias[1] + at);
    a.y[row] = gated(a.activation, gate, up);
  } else {
    float sum = total[0];
    if (a.bias[0] != nullptr) {
      for (uint32_t i = lane; i < a.n_used; i += kWarp)
        sum = fmaf(weights[i], __ldg(a.bias[0] + size_t{ids[i]} * a.n_rows + row), sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) a.y[row] += sum;
  }
}

template <class Regs>
__device__ uint32_t first_word(const Regs& regs) {
  uint32_t word;
  memcpy(&word, &regs, sizeof word);
  return word;
}

// Computes: with kGlu y = activation(Wg x) * (Wu x) of every chosen expert, else y += sum of weight * Wd x over them.
// Shapes: see ExpertGemvArgs.
// Launch: at most kBlocks blocks per SM; block b's warp w begins at row w * gridDim.x + b.
// Numerics: as gemv_kernel; a row's sum is taken by one warp in a fixed order.
// Traffic: the chosen experts' weights once; each block reads the input from L2.
template <class F, bool kGlu>
__global__ void __launch_bounds__(kThreads, kBlocks<F>)
    expert_gemv_kernel(const __grid_constant__ ExpertGemvArgs a, const __grid_constant__ Stacks<F> stacks) {
  extern __shared__ __align__(16) std::byte shared[];
  std::byte* const input = shared + a.entry_bytes;
  __shared__ float sums[kWarps], weights[kMaxExpertsUsed];
  __shared__ uint32_t ids[kMaxExpertsUsed];
  using T = Tile<F, kGlu>;
  const uint32_t lane = threadIdx.x % kWarp;
  const Entries<F> entries(shared, a.entry_bytes, kThreads);  // complete after any barrier
  // The router reads x, too, and let this kernel start when x was there: only the choice is waited for.
  float scale = 1.0f;
  if constexpr (kGlu) scale = take_input<F, kGlu>(a, weights, input, sums);
  wait_for_previous();
  start_next();
  if (threadIdx.x < a.n_used) {
    ids[threadIdx.x] = __ldcg(a.ids + threadIdx.x);
    weights[threadIdx.x] = __ldcg(a.weights + threadIdx.x);
  }
  __syncthreads();
  Cursor<F, kGlu> ahead(a, ids);
  uint32_t row = ahead.row, unit = lane;
  T even = {}, odd = {};
  ahead.load(stacks, 0, even);
  ahead.next();
  if constexpr (!kGlu) take_input<F, kGlu>(a, weights, input, sums);
  if (row >= ahead.n_rows) return;

  float total[T::kMatrices] = {};
  // Multiplies a tile. Returns whether there is another one.
  const auto take = [&](const T& now) {
#pragma unroll
    for (uint32_t u = 0; u < T::kUnroll; ++u) {
      const uint32_t i = unit + u * kWarp;
      const std::byte* at = unit_at<F>(input, i);
      const bool has_unit = i < ahead.n_units;
#pragma unroll
      for (uint32_t m = 0; m < T::kMatrices; ++m) {
        const float more = F::dot(entries.unpack(now.regs[m][u], lane % 8), at, total[m]);
        total[m] = has_unit ? more : total[m];
      }
    }
    unit += T::kUnroll * kWarp;
    if (unit - lane < ahead.n_units) return true;
    finish_row<kGlu>(a, ids, weights, row, total, scale);
#pragma unroll
    for (float& sum : total) sum = 0.0f;
    unit = lane;
    row += ahead.stride;
    return row < ahead.n_rows;
  };
  // As soon as a tile has arrived the next one is loaded: its addresses depend on the tile's data.
  const auto load_after = [&](const T& last, T& out) {
    ahead.load(stacks, first_word(last.regs[0][0]) & a.zero, out);
    ahead.next();
  };
  do {
    load_after(even, odd);
    if (!take(even)) return;
    load_after(odd, even);
  } while (take(odd));
}

template <class F, bool kGlu>
Status launch_gemv(OpContext& cx, const ExpertGemvArgs& args, const Weight& first, const Weight& second) {
  ExpertGemvArgs a = args;
  a.n_units = first.n_cols / F::kUnit;
  constexpr uint32_t kUnroll = Tile<F, kGlu>::kUnroll;
  const size_t room = device().shared_bytes - 2048;  // less what the static arrays take
  const size_t inputs = column_bytes(input_shape<F>(), a.n_in, kUnroll);
  a.entry_bytes = Entries<F>::bytes(inputs < room ? room - inputs : 0);
  const size_t bytes = a.entry_bytes + inputs;
  const auto kernel = expert_gemv_kernel<F, kGlu>;
  if (bytes > 47 * 1024) {
    const auto most = static_cast<int>(room);
    if (bytes > room) {
      return fail(WEIR_ERR_UNSUPPORTED, "experts: %u inputs do not fit into the device's shared memory", a.n_in);
    }
    WEIR_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
                  "shared memory of experts");
  }
  const uint32_t n_rows = kGlu ? a.n_used * a.n_rows : a.n_rows, needed = (n_rows + kWarps - 1) / kWarps;
  const uint32_t blocks = std::min(needed, device().n_processors * kBlocks<F>);
  const auto planes = [](const Weight& w) { return F::planes(w.data, size_t{w.n_rows} * (w.n_cols / F::kUnit)); };
  return launch(kGlu ? "expert_glu" : "expert_down", kernel, dim3(blocks), dim3(kThreads), bytes, stream_of(cx), true,
                a, Stacks<F>{{planes(first), planes(second)}});
}

template <bool kGlu>
Status expert_gemv(OpContext& cx, const ExpertGemvArgs& a, const Weight& first, const Weight& second) {
  if (first.type != second.type) return fail(WEIR_ERR_UNSUPPORTED, "experts: gate and up matrices of two types");
  switch (first.type) {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  case WeightType::k##Name:                                         \
    return launch_gemv<Format<WeightType::k##Name>, kGlu>(cx, a, first, second);
#include "quant/quants.inc"
#undef WEIR_QUANT
  }
  return fail(WEIR_ERR_INTERNAL, "experts: weight type %d", static_cast<int>(first.type));
}

// Scratch memory of one token.
struct Scratch {
  Routing routing;
  float* inner;         // [n_used, d_ff]
  float* shared_inner;  // [shared_ff]
  uint32_t* counter;
  uint64_t bytes;
};

Scratch lay_out(std::byte* base, const OpShapes& shapes) {
  Scratch s = {};
  uint64_t at = 0;
  const auto take = [&](uint64_t n) {
    std::byte* p = base + at;
    at = align_up(at + n * sizeof(float), 256);
    return p;
  };
  s.routing.n_logits = shapes.n_experts + (shapes.shared_ff != 0 ? 1 : 0);  // at most
  s.routing.logits = reinterpret_cast<float*>(take(s.routing.n_logits));
  s.routing.ids = reinterpret_cast<uint32_t*>(take(shapes.n_experts_used));
  s.routing.weights = reinterpret_cast<float*>(take(shapes.n_experts_used));
  s.inner = reinterpret_cast<float*>(take(uint64_t{shapes.n_experts_used} * shapes.expert_ff));
  s.shared_inner = reinterpret_cast<float*>(take(shapes.shared_ff));
  s.counter = reinterpret_cast<uint32_t*>(take(1));
  s.bytes = at;
  return s;
}

// The shared expert's gate and up; they read x, which the downs may overwrite, so they come first.
Status shared_glu(OpContext& cx, const ExpertsStepArgs& a, const Scratch& s) {
  GemvArgs g;
  g.part[0] = {a.op.shared_gate, nullptr, s.shared_inner, false};
  g.part[1] = {a.op.shared_up, nullptr, nullptr, false};
  g.n_parts = 2;
  g.x = a.op.x;
  g.norm = a.norm;
  g.eps = a.eps;
  g.glu = true;
  g.activation = a.op.activation;
  g.overlap = true;
  if (a.op.shared_gate.type != a.op.shared_up.type)
    return fail(WEIR_ERR_UNSUPPORTED, "experts: gate and up matrices of two types");
  WEIR_TRY(gemv(cx, g));
  if (a.op.shared_router == nullptr) return {};
  return scale_by_gate(cx, s.shared_inner, s.routing, a.op.router.n_experts, 1, a.op.shared_ff(), true);
}

Status shared_down(OpContext& cx, const ExpertsStepArgs& a, const Scratch& s) {
  GemvArgs g;
  g.part[0] = {a.op.shared_down, nullptr, a.op.y, true};
  g.n_parts = 1;
  g.x = s.shared_inner;
  g.overlap = true;
  return gemv(cx, g);
}

OpShapes shapes_of(const ExpertsArgs& a) {
  OpShapes s;
  s.max_tok = a.n_tok;
  s.d_model = a.d_model();
  s.n_experts = a.router.n_experts;
  s.n_experts_used = a.router.n_used;
  s.expert_ff = a.d_ff();
  s.shared_ff = a.shared_ff();
  s.max_cols = std::max({s.d_model, s.expert_ff, s.shared_ff});
  return s;
}

Status check(const OpContext& cx, const ExpertsArgs& a) {
  const OpShapes shapes = shapes_of(a);
  if (shapes.d_model % 32 != 0 || shapes.expert_ff % 32 != 0 || shapes.shared_ff % 32 != 0) {
    return fail(WEIR_ERR_UNSUPPORTED, "experts: sizes %u, %u and %u; multiples of 32 are needed", shapes.d_model,
                shapes.expert_ff, shapes.shared_ff);
  }
  if (experts_scratch_bytes(shapes) > cx.scratch_bytes)
    return fail(WEIR_ERR_INTERNAL, "experts: %u tokens are more than the scratch memory was made for", a.n_tok);
  return {};
}

}  // namespace

RouteArgs route_args(const ExpertsArgs& a, const Routing& out) {
  RouteArgs r = {.x = a.x,
                 .norm = nullptr,
                 .eps = 0.0f,
                 .router = a.router,
                 .shared_router = a.shared_router,
                 .n_tok = a.n_tok,
                 .d_model = a.d_model(),
                 .out = out,
                 .counter = nullptr};
  r.out.n_logits = a.router.n_experts + (a.shared_router != nullptr ? 1 : 0);
  return r;
}

uint64_t experts_scratch_bytes(const OpShapes& shapes) {
  if (shapes.n_experts == 0) return 0;
  return std::max(lay_out(nullptr, shapes).bytes, experts_prompt_bytes(shapes));
}

Status experts_step(OpContext& cx, const ExpertsStepArgs& a) {
  const ExpertsArgs& op = a.op;
  const Scratch s = lay_out(cx.scratch, shapes_of(op));
  RouteArgs route = route_args(op, s.routing);
  route.norm = a.norm;
  route.eps = a.eps;
  route.counter = a.counter;
  WEIR_TRY(route_one(cx, route, a.overlap));
  if (op.shared_ff() != 0) WEIR_TRY(shared_glu(cx, a, s));

  ExpertGemvArgs g = {};
  g.ids = s.routing.ids;
  g.weights = s.routing.weights;
  g.n_used = op.router.n_used;
  g.x = op.x;
  g.norm = a.norm;
  g.eps = a.eps;
  g.y = s.inner;
  g.bias[0] = op.gate.bias;
  g.bias[1] = op.up.bias;
  g.n_rows = op.gate.w.n_rows / op.router.n_experts;
  g.n_in = op.gate.w.n_cols;
  g.activation = op.activation;
  WEIR_TRY(expert_gemv<true>(cx, g, op.gate.w, op.up.w));
  g.x = s.inner;
  g.norm = nullptr;
  g.y = op.y;
  g.bias[0] = op.down.bias;
  g.bias[1] = nullptr;
  g.n_rows = op.down.w.n_rows / op.router.n_experts;
  g.n_in = op.router.n_used * op.down.w.n_cols;
  WEIR_TRY(expert_gemv<false>(cx, g, op.down.w, op.down.w));
  return op.shared_ff() != 0 ? shared_down(cx, a, s) : Status();
}

// Up to as many tokens as a GEMV takes go one by one, each with the bits that it has in a decode step.
Status experts(OpContext& cx, const ExpertsArgs& a) {
  if (a.n_tok == 0) return {};
  WEIR_TRY(check(cx, a));
  if (a.n_tok > kMaxColumns) return experts_prompt(cx, a);
  ExpertsStepArgs step;
  step.op = a;
  step.op.n_tok = 1;
  step.counter = lay_out(cx.scratch, shapes_of(step.op)).counter;
  WEIR_CUDA_TRY(cudaMemsetAsync(step.counter, 0, sizeof(uint32_t), stream_of(cx)), "clearing a counter");
  for (uint32_t t = 0; t < a.n_tok; ++t) {
    WEIR_TRY(experts_step(cx, step));
    step.op.x += a.d_model();
    step.op.y += a.d_model();
    step.overlap = true;
  }
  return {};
}

}  // namespace weir::cuda
