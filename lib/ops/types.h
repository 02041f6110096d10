// What the operations share: pages and the view of their tables, the digests of pages, and the choices that models and
// policies make of what an op computes. Shapes are slowest axis first, row-major; activations are f32. Callers check
// arguments before a step begins; ops only compute. <op>.h has the arguments of an op, <op>_ref.cpp its definition,
// table.h the table that every backend fills.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"
#include "core/thread_pool.h"
#include "ops/kv_format.h"
#include "ops/rules.h"

namespace weir {

// Pages that attention handles as one unit of work. Partial results are merged in ascending order of these units, so
// neither the number of threads nor the policy changes the result.
inline constexpr uint32_t kSplitPages = 32;

// Elements of the largest head.
inline constexpr uint32_t kMaxHeadDim = 1024;

// Channels of a key that share a word of a sketch (ops/sketch.h).
inline constexpr uint32_t kSketchChannels = 16;

// Elements of one page's digest.
constexpr size_t digest_elements(DigestKind kind, size_t head_dim) {
  switch (kind) {
    case DigestKind::kNone:
      return 0;
    case DigestKind::kSphereMean:
      return head_dim + 2;
    case DigestKind::kCentroid:
      return head_dim;
    case DigestKind::kMinMax:
    case DigestKind::kCuboidMean:
    case DigestKind::kMeanStd:
      return 2 * head_dim;
    case DigestKind::kSketch:
      return (head_dim + kSketchChannels - 1) / kSketchChannels * 2 * kPageTokens + kPageTokens;
  }
  return 0;
}

// The slot of a page that is not in the pool.
inline constexpr uint32_t kNoSlot = UINT32_MAX;

// The KV streams of one layer of a session. A stream's table has `capacity` rows, of which n_pages are in use, in
// ascending order of position.
struct KvView {
  uint16_t* pool = nullptr;           // [n_slots, page_elements()] pages: keys, then values
  KvFormat format = KvFormat::kBf16;  // what they are stored in
  // [2, n_streams, 2, kPageTokens, head_dim] from the layer's first stream on: the pages that take tokens in bf16, in
  // the half of the page's parity, which are open_half apart. Null where all pages are in bf16.
  uint16_t* open = nullptr;
  size_t open_half = 0;
  // [n_slots, digest_elements] bf16, or with digest_by_row [n_kv_heads, capacity, digest_elements]; null when the
  // policy needs none
  uint16_t* digests = nullptr;
  DigestKind digest = DigestKind::kNone;
  bool digest_by_row = false;           // rows may have no slot
  const uint32_t* slots = nullptr;      // [n_kv_heads, capacity] slot of each table row, or kNoSlot
  const uint32_t* first_pos = nullptr;  // [n_kv_heads, capacity] position of the row's first token
  const uint32_t* len = nullptr;  // [n_kv_heads, capacity] tokens in the page, including tokens that are being appended
  const uint32_t* n_pages = nullptr;  // [n_kv_heads] rows in use
  uint32_t capacity = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  // What a page takes in units of 16 bits. In bf16 these are its elements.
  constexpr size_t page_elements() const { return kv_page_bytes(format, head_dim) / sizeof(uint16_t); }
  // Index of a table row's digest, in digests of digest_elements.
  constexpr size_t digest_index(uint32_t kv_head, uint32_t row) const {
    const size_t at = size_t{kv_head} * capacity + row;
    return digest_by_row ? at : slots[at];
  }
  // Digest of a table row, its page in the pool, and the keys and values that attention sees of it.
  constexpr uint16_t* digest_of(uint32_t kv_head, uint32_t row) const {
    return digests + digest_index(kv_head, row) * digest_elements(digest, head_dim);
  }
  constexpr const uint16_t* page_of(uint32_t kv_head, uint32_t row) const {
    return pool + slots[size_t{kv_head} * capacity + row] * page_elements();
  }
  constexpr PagePart<const uint16_t> keys_of(uint32_t kv_head, uint32_t row) const {
    if (is_open(kv_head, row)) return keys_in<const uint16_t>(KvFormat::kBf16, open_page(kv_head, row), head_dim);
    return stored_keys_of(kv_head, row);
  }
  constexpr PagePart<const uint16_t> values_of(uint32_t kv_head, uint32_t row) const {
    if (is_open(kv_head, row)) return values_in<const uint16_t>(KvFormat::kBf16, open_page(kv_head, row), head_dim);
    return stored_values_of(kv_head, row);
  }
  // The same of the page in the pool alone, whole also while it takes tokens.
  constexpr PagePart<const uint16_t> stored_keys_of(uint32_t kv_head, uint32_t row) const {
    return keys_in(format, page_of(kv_head, row), head_dim);
  }
  constexpr PagePart<const uint16_t> stored_values_of(uint32_t kv_head, uint32_t row) const {
    return values_in(format, page_of(kv_head, row), head_dim);
  }
  // Whether the page of a row takes tokens, and has an open page. Of a page that is lost nothing is read (len 0).
  constexpr bool is_open(uint32_t kv_head, uint32_t row) const {
    return open != nullptr && len[size_t{kv_head} * capacity + row] < kPageTokens;
  }
  constexpr uint16_t* open_page(uint32_t kv_head, uint32_t row) const {
    const uint32_t page = first_pos[size_t{kv_head} * capacity + row] / kPageTokens;
    return open + page % 2 * open_half + kv_head * (kv_page_bytes(KvFormat::kBf16, head_dim) / sizeof(uint16_t));
  }
};

struct OpContext {
  ThreadPool* pool = nullptr;
  std::byte* scratch = nullptr;  // the backend's, at least scratch_bytes(shapes) bytes, 64-byte aligned
  uint64_t scratch_bytes = 0;
  void* stream = nullptr;  // of a device backend: the stream that its ops are enqueued in
};

// Flags of a page in its stream's table.
enum : uint32_t {
  kPagePinned = 1,  // must not be evicted
  kPagePrompt = 2,  // holds at least one prompt token
  kPageKept = 4,    // pinned by the application: must not be evicted, is always attended
};
inline constexpr uint32_t kPageStays = kPagePinned | kPageKept;

// The activation of a gated product.
enum class Gate : uint8_t {
  kSilu,  // g * sigmoid(g)
  kGelu,  // tanh approximation: g / 2 * (1 + tanh u) = g * sigmoid(2 u), u = sqrt(2 / pi) * (g + 0.044715 g^3)
  // SwiGLU of clamped inputs: g' * sigmoid(kClampedSteepness * g') * (u' + 1) with g' = min(g, kClampedMax) and u' = u
  // clamped to [-kClampedMax, kClampedMax]
  kClamped,
  kRelu,  // max(g, 0) * u. A network without a gate takes one matrix as both, which makes it the squared ReLU
};

// Which elements of a head rotate together: (2i, 2i+1), or (i, i + rope_dim/2).
enum class RopeLayout : uint8_t { kAdjacent, kHalfSplit };

// Rotations of one model, at most: layers may have one of their own.
inline constexpr uint32_t kMaxRotations = 2;

}  // namespace weir
