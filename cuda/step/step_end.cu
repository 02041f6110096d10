// The end of a step: the argmax of the logits, and the step is counted. Also noise for benchmarks.
#include "cuda/common/base.cuh"
#include "cuda/ops.h"
#include "cuda/pages/kv_rows.cuh"
#include "cuda/step/step.cuh"
#include "device/kernels/fill.h"
#include "device/kernels/step_end.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kBlocks = 64;

// A logit and its index as one number, larger for the better: ordered by logit, then by the lower index. NaN never
// wins.
__device__ unsigned long long key_of(float logit, uint32_t index) {
  const uint32_t bits = __float_as_uint(logit == 0.0f ? 0.0f : logit);  // both zeros are equal
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return isnan(logit) ? 0 : static_cast<unsigned long long>(ordered) << 32 | (0xFFFFFFFFu - index);
}

__device__ unsigned long long warp_most(unsigned long long key) {
  for (uint32_t i = kWarp / 2; i > 0; i /= 2) {
    const unsigned long long other = __shfl_xor_sync(kAllLanes, key, i);
    key = other > key ? other : key;
  }
  return key;
}

__global__ void step_end_kernel(const StepEndArgs a) {
  start_next();
  wait_for_previous();
  __shared__ unsigned long long keys[kThreads / kWarp];
  unsigned long long best = 0;
  for (uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < a.vocab_size; i += kBlocks * kThreads) {
    const unsigned long long key = key_of(a.logits[i], i);
    best = key > best ? key : best;
  }
  best = warp_most(best);
  if (threadIdx.x % kWarp == 0) keys[threadIdx.x / kWarp] = best;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (uint32_t i = 0; i < kThreads / kWarp; ++i) best = keys[i] > best ? keys[i] : best;
  atomicMax(a.best, best);
  __threadfence();
  if (atomicAdd(a.counter, 1u) + 1 != kBlocks) return;
  __threadfence();
  best = atomicExch(a.best, 0ull);
  *a.counter = 0;
  a.state->next_token = best == 0 ? -1 : static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(best));
  if (a.commit && a.state->is_late == 0) {
    ++a.state->n_tokens;
    a.state->recurrent ^= 1;
  }
  a.state->pages_evicted_before = a.state->pages_evicted;
  // The host reads this when the step is over.
  *a.mailbox = *a.state;
}

// `raw`: any bits, instead of two values.
__global__ void noise_kernel(uint16_t* pool, uint64_t n_words, uint64_t seed, bool raw) {
  auto* words = reinterpret_cast<uint32_t*>(pool);
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < n_words; i += uint64_t{gridDim.x} * kThreads) {
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    // Two values in [-1, 1), the magnitude of normalised keys.
    const float x = static_cast<float>(static_cast<int32_t>(z)) * 0x1p-31f,
                y = static_cast<float>(static_cast<int32_t>(z >> 32)) * 0x1p-31f;
    words[i] = raw ? static_cast<uint32_t>(z) : float_to_bf16(x) | static_cast<uint32_t>(float_to_bf16(y)) << 16;
  }
}

// Scales with which codes are values in [-1, 1).
template <KvFormat kFormat>
__global__ void noise_scales_kernel(uint16_t* pool, uint64_t n_pages, uint32_t d) {
  const uint32_t n_scales = d / kScaleElements * kPageTokens;
  for (uint64_t page = blockIdx.x; page < n_pages; page += gridDim.x) {
    uint16_t* const at = pool + page * page_units<kFormat>(d);
    uint16_t* const keys = keys_at<kFormat>(at, d).scales(0);
    uint16_t* const values = values_at<kFormat>(at, d).scales(0);
    for (uint32_t i = threadIdx.x; i < n_scales; i += kThreads) {
      keys[i] = float_to_bf16(1.0f / 128.0f);
      values[i] = float_to_bf16(value_format(kFormat) == RowFormat::kQ4 ? 1.0f / 8.0f : 1.0f / 128.0f);
    }
  }
}

}  // namespace

Status step_end(OpContext& cx, const StepEndArgs& a) {
  return launch("step_end", step_end_kernel, dim3(kBlocks), dim3(kThreads), 0, stream_of(cx), a.overlap, a);
}

Status fill_noise(OpContext& cx, const FillNoiseArgs& a) {
  const bool is_bf16 = a.format == KvFormat::kBf16;
  WEIR_TRY(launch("fill_noise", noise_kernel, dim3(4096), dim3(kThreads), 0, stream_of(cx), false, a.pool,
                  a.n_elements / 2, a.seed, !is_bf16));
  if (is_bf16) return {};
  return with_kv_format(a.format, [&](auto format) {
    return launch("fill_noise", noise_scales_kernel<format()>, dim3(4096), dim3(kThreads), 0, stream_of(cx), false,
                  a.pool, a.n_elements / page_units<format()>(a.head_dim), a.head_dim);
  });
}

}  // namespace weir::cuda
