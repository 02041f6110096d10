// The ranges of memory of KV tables and pages, for the ops that touch them.
#pragma once

#include "shaders/attn.h"
#include "vulkan/context.h"

namespace weir::vulkan {

// To the end of the allocation: nobody tells ops how many pages a pool has.
inline uint64_t bytes_from(const void* device) {
  const auto address = reinterpret_cast<uint64_t>(device);
  const Allocation* const a = context().memory.find(address, 1);
  return a == nullptr ? 0 : a->address + a->bytes - address;
}

// Bytes of an array with an element for each stream, or for each row of each stream.
inline uint64_t stream_bytes(const KvView& kv) { return kv.n_kv_heads * sizeof(uint32_t); }
inline uint64_t row_bytes(const KvView& kv) { return stream_bytes(kv) * kv.capacity; }

inline uint64_t digest_bytes(const KvView& kv) {
  if (!kv.digest_by_row) return bytes_from(kv.digests);
  return uint64_t{kv.n_kv_heads} * kv.capacity * digest_elements(kv.digest, kv.head_dim) * sizeof(uint16_t);
}

// Rows of heads must begin at 16 bytes.
inline Status check_head_dim(uint32_t head_dim) {
  if (head_dim != 0 && head_dim % 8 == 0 && head_dim <= kMaxChannels) return {};
  return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: heads of %u elements; multiples of 8 up to %u are needed", head_dim,
              kMaxChannels);
}

// Whether the kernels can read these pages; the message says why not.
inline Status check_pages(const KvView& kv, uint32_t n_heads) {
  WEIR_TRY(check_head_dim(kv.head_dim));
  if (n_heads % kv.n_kv_heads == 0) return {};
  return fail(WEIR_ERR_INTERNAL, "Vulkan: %u query heads of %u KV heads", n_heads, kv.n_kv_heads);
}

}  // namespace weir::vulkan
