// The number of a head's elements as the attention kernels see it: one that the compiler knows, or one that the launch
// tells. The common sizes have kernels of their own, which pay for nothing that others need; all other multiples of 8
// run in a kernel for a larger size, whose registers hold zeros beyond the head's end.
#pragma once

#include "cuda/common/base.cuh"

namespace weir::cuda {

inline constexpr uint32_t kMaxHeadDim = 256;

// Every multiple of 8, because 16-byte vectors hold 8 keys or values.
constexpr bool is_head_dim(uint32_t head_dim) { return head_dim % 8 == 0 && head_dim > 0 && head_dim <= kMaxHeadDim; }

// What pages of quantised rows have, besides: whole blocks (ops/kv_format.h).
inline Status check_heads(const KvView& kv) {
  if (is_head_dim(kv.head_dim) && (kv.format == KvFormat::kBf16 || kv.head_dim % kScaleElements == 0)) return {};
  return fail(WEIR_ERR_UNSUPPORTED,
              "attention on this device: heads of %u elements, not a multiple of 8 (%s: %u) up to %u", kv.head_dim,
              kv_format_name(kv.format), kv.format == KvFormat::kBf16 ? 8 : kScaleElements, kMaxHeadDim);
}

// Elements that the kernels have room for.
constexpr uint32_t padded_head_dim(uint32_t head_dim) { return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256; }

// Heads of exactly kSize elements, in whose logits nothing is bent.
template <uint32_t kSize>
struct FixedHead {
  static constexpr uint32_t kDim = kSize;
  static constexpr bool kAny = false;
  __host__ __device__ explicit constexpr FixedHead(uint32_t) {}
  __host__ __device__ constexpr uint32_t dim() const { return kSize; }
  __host__ __device__ constexpr bool has(uint32_t) const { return true; }
};

// Heads of up to kSize elements, a multiple of 8, whose logits may have a soft cap.
template <uint32_t kSize>
struct AnyHead {
  static constexpr uint32_t kDim = kSize;
  static constexpr bool kAny = true;
  uint32_t d;
  __host__ __device__ explicit constexpr AnyHead(uint32_t head_dim) : d(head_dim) {}
  __host__ __device__ constexpr uint32_t dim() const { return d; }
  // Whether the head has the eight elements of which `element` is one.
  __host__ __device__ constexpr bool has(uint32_t element) const { return element < d; }
};

// Calls run(head size) with the type for `head_dim`, which is_head_dim. `plain`: no soft cap.
template <class Run>
Status with_head_size(uint32_t head_dim, bool plain, const Run& run) {
  if (plain && head_dim == 64) return run(FixedHead<64>(head_dim));
  if (plain && head_dim == 128) return run(FixedHead<128>(head_dim));
  if (head_dim <= 64) return run(AnyHead<64>(head_dim));
  if (head_dim <= 128) return run(AnyHead<128>(head_dim));
  return run(AnyHead<256>(head_dim));
}

}  // namespace weir::cuda
