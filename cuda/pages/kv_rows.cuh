// Rows of KV pages in their formats (ops/kv_format.h), with code that is compiled for one format: storing by a warp,
// and reading single elements. Attention reads rows as operands of MMAs instead (cuda/attn/kv_operands.cuh).
#pragma once

#include <type_traits>

#include "cuda/common/base.cuh"
#include "ops/kv_format.h"

namespace weir::cuda {

// Calls run(std::integral_constant) for a session's format.
template <class Run>
constexpr decltype(auto) with_kv_format(KvFormat format, const Run& run) {
  switch (format) {
    case KvFormat::kQ8:
      return run(std::integral_constant<KvFormat, KvFormat::kQ8>());
    case KvFormat::kK8V4:
      return run(std::integral_constant<KvFormat, KvFormat::kK8V4>());
    case KvFormat::kBf16:
    case KvFormat::kK4V4:  // sessions with it are refused (Backend::kv_formats)
      break;
  }
  return run(std::integral_constant<KvFormat, KvFormat::kBf16>());
}
// The same for code that reads keys alone, of which there are fewer formats.
template <class Run>
constexpr decltype(auto) with_key_format(KvFormat format, const Run& run) {
  if (key_format(format) == RowFormat::kQ8) return run(std::integral_constant<KvFormat, KvFormat::kQ8>());
  return run(std::integral_constant<KvFormat, KvFormat::kBf16>());
}

// Units of 16 bits.
template <KvFormat kFormat>
__host__ __device__ constexpr uint32_t page_units(uint32_t d) {
  return static_cast<uint32_t>(kv_page_bytes(kFormat, d) / sizeof(uint16_t));
}

#ifdef __CUDACC__

// Keys or values of a page; PagePart with its format known to the compiler.
template <RowFormat kRow, class Unit>
struct PageRows {
  Unit* units;
  uint32_t d;

  __device__ Unit* codes(uint32_t token) const {
    return units + token * static_cast<uint32_t>(row_code_bytes(kRow, d) / sizeof(uint16_t));
  }
  __device__ Unit* scales(uint32_t token) const {
    return codes(kPageTokens) + token * static_cast<uint32_t>(row_scales(kRow, d));
  }
  __device__ float at(uint32_t token, uint32_t i) const {
    if constexpr (kRow == RowFormat::kBf16) {
      return bf16_to_float(units[token * d + i]);
    } else {
      const float scale = bf16_to_float(scales(token)[i / kScaleElements]);
      if constexpr (kRow == RowFormat::kQ8)
        return static_cast<float>(reinterpret_cast<const int8_t*>(codes(token))[i]) * scale;
      const int pair = reinterpret_cast<const uint8_t*>(codes(token))[i / 2];
      return static_cast<float>((i % 2 == 0 ? pair & 15 : pair >> 4) - 8) * scale;
    }
  }
};

template <KvFormat kFormat, class Unit>
__device__ PageRows<key_format(kFormat), Unit> keys_at(Unit* page, uint32_t d) {
  return {page, d};
}
template <KvFormat kFormat, class Unit>
__device__ PageRows<value_format(kFormat), Unit> values_at(Unit* page, uint32_t d) {
  return {page + part_bytes(key_format(kFormat), d) / sizeof(uint16_t), d};
}

// Adds a channel of the tokens [first, end) to `sum`, in order: of the keys, or from `d` on of the values.
template <KvFormat kFormat>
__device__ float add_column(const uint16_t* page, uint32_t d, uint32_t i, uint32_t first, uint32_t end, float sum) {
  if constexpr (kFormat == KvFormat::kBf16) {
    const uint16_t* column = i < d ? page + i : page + kPageTokens * d + (i - d);
    for (uint32_t token = first; token < end; ++token) sum += bf16_to_float(column[token * d]);
  } else {
    const auto keys = keys_at<kFormat>(page, d);
    const auto values = values_at<kFormat>(page, d);
    for (uint32_t token = first; token < end; ++token)
      sum = __fadd_rn(sum, i < d ? keys.at(token, i) : values.at(token, i - d));
  }
  return sum;
}

// A block's scale, and its inverse, 0 where all codes are those of 0.
struct BlockScale {
  uint16_t scale;
  float inverse;
};

__device__ inline BlockScale scale_of_step(float step, bool is_finite) {
  if (!is_finite) return {0x7FC0, 0.0f};
  const uint16_t scale = fabsf(step) < 0x1p-126f ? 0 : float_to_bf16(step);
  return {scale, scale == 0 ? 0.0f : __frcp_rn(bf16_to_float(scale))};
}

// The largest of the lanes' numbers.
__device__ inline uint32_t largest_bits(uint32_t x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kAllLanes, x);
#else
#pragma unroll
  for (uint32_t i = kWarp / 2; i > 0; i /= 2) x = max(x, __shfl_xor_sync(kAllLanes, x, i));
  return x;
#endif
}

// Stores block `block` of a token's row, of which each lane has the element of its number; bit for bit as store_row.
// Executed by one whole warp. Returns what was stored of the lane's element.
template <RowFormat kRow>
__device__ float store_block(const PageRows<kRow, uint16_t>& rows, uint32_t token, uint32_t block, float x) {
  static_assert(kRow != RowFormat::kBf16 && kScaleElements == kWarp);
  const uint32_t lane = threadIdx.x % kWarp, i = block * kScaleElements + lane;
  const uint32_t most = largest_bits(__float_as_uint(x) & 0x7FFFFFFFu);
  const bool is_finite = most < 0x7F800000u;
  if constexpr (kRow == RowFormat::kQ8) {
    const BlockScale s = scale_of_step(__fmul_rn(__uint_as_float(most), 1.0f / 127.0f), is_finite);
    const float steps = s.inverse == 0.0f ? 0.0f : rintf(__fmul_rn(x, s.inverse));
    const auto code = static_cast<int8_t>(fminf(fmaxf(steps, -127.0f), 127.0f));
    reinterpret_cast<int8_t*>(rows.codes(token))[i] = code;
    if (lane == 0) rows.scales(token)[block] = s.scale;
    return static_cast<float>(code) * bf16_to_float(s.scale);
  } else {
    const bool has_lowest = __any_sync(kAllLanes, x == -__uint_as_float(most)) != 0;
    const float extreme = has_lowest ? -__uint_as_float(most) : __uint_as_float(most);
    const BlockScale s = scale_of_step(__fmul_rn(extreme, -0.125f), is_finite);
    const float steps = s.inverse == 0.0f ? 0.0f : rintf(__fmul_rn(x, s.inverse));
    const auto code = static_cast<uint32_t>(fminf(fmaxf(steps, -8.0f), 7.0f) + 8.0f);
    const uint32_t next = __shfl_down_sync(kAllLanes, code, 1);
    if (lane % 2 == 0) reinterpret_cast<uint8_t*>(rows.codes(token))[i / 2] = static_cast<uint8_t>(code | next << 4);
    if (lane == 0) rows.scales(token)[block] = s.scale;
    return (static_cast<float>(code) - 8.0f) * bf16_to_float(s.scale);
  }
}

// Adds up a row of `d` elements as add_by_hadamard does (ops/hadamard.h), with the same sums: lane l has elements
// l + 32 j. Executed by one whole warp.
template <uint32_t kEach>
__device__ void add_row_by_hadamard(float (&x)[kEach], uint32_t d) {
  const uint32_t lane = threadIdx.x % kWarp, block = d & (~d + 1);
#pragma unroll
  for (uint32_t half = 1; half < kWarp; half *= 2) {
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) {
      const float other = __shfl_xor_sync(kAllLanes, x[j], half);
      x[j] = (lane & half) == 0 ? x[j] + other : other - x[j];
    }
  }
#pragma unroll
  for (uint32_t half = 1; half < kEach; half *= 2) {
    if (half * kWarp >= block) break;
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) {
      if ((j & half) != 0) continue;
      const float a = x[j], b = x[j + half];
      x[j] = a + b;
      x[j + half] = a - b;
    }
  }
}

// The same, divided so that lengths stay as they are: rotate_rows of ops/hadamard.h.
template <uint32_t kEach>
__device__ void rotate_row(float (&x)[kEach], uint32_t d) {
  add_row_by_hadamard(x, d);
  const uint32_t block = d & (~d + 1);
  const float factor = __frcp_rn(__fsqrt_rn(static_cast<float>(block)));
#pragma unroll
  for (uint32_t j = 0; j < kEach; ++j) x[j] = __fmul_rn(x[j], factor);
}

#endif  // __CUDACC__

}  // namespace weir::cuda
