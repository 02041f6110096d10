// The data of sparse_layer.cu's blocks, and the first thing that they compute: rotated queries. Estimates of pages are
// elsewhere: sparse_layer_boxes.cuh and sparse_layer_sketches.cuh.
#pragma once

#include "cuda/attn/online_softmax.cuh"
#include "cuda/attn/rotate_append.cuh"
#include "cuda/attn/stop_rounds.cuh"
#include "cuda/common/cluster.cuh"
#include "cuda/common/tensor_core.cuh"
#include "cuda/common/top_k_shared.cuh"
#include "cuda/pages/page_exchange.cuh"
#include "device/kernels/sparse_layer.h"
#include "ops/sketch.h"

namespace weir::cuda::sparse {

inline constexpr uint32_t kThreads = 512;
inline constexpr uint32_t kWarps = kThreads / kWarp;
// Per cluster; not every device has room for clusters of more than 8.
inline constexpr uint32_t kMaxBlocks = 16, kMinBlocks = 8;
inline constexpr uint32_t kTileRows = 16;     // table rows that a block gets at a time
inline constexpr uint32_t kTilePad = 32;      // elements; the padding puts the rows of the query into different banks
inline constexpr uint32_t kSplitHeads = 4;    // the three bf16 parts of 4 heads fill the rows of an MMA
inline constexpr uint32_t kMaxRows = 16384;   // of a table: two counts of rows share a word
inline constexpr uint32_t kLengthShift = 28;  // of the length in a word with a page's slot and length
// With recall, in a word of a page that is not in the pool, in place of the slot: this bit and, in the bits below,
// where its copy is (raw slot, kCopyElsewhere or kNoCopy), or the page's number among those that come back.
inline constexpr uint32_t kAbsent = 1u << 27;

struct KernelArgs {
  AttnPagedArgs attn;
  RopeAppendArgs rope;
  const uint32_t* n_tokens;
  unsigned long long* pages_attended;
  PageSelectArgs select;
  StopRule stop;  // kernels that stop
  // Kernels with recall.
  PageRecallArgs recall;
  const uint32_t* raw_index;  // [n_kv_heads, capacity] of recall.raw_index, this layer's
};

// Sums for mean and variance over a part of a block's estimates for one head: `sum` and `square` are taken of the
// differences from `about`. Or those of the softmax: `sum` relative to the largest estimate, `about`.
struct alignas(16) Moments {
  float about, sum, square;
  uint32_t count;
};

// Mean and standard deviation of all estimates of a head. The mean is about + rest; `inverse` is 1 / standard
// deviation, 0 if all estimates are equal. Or the softmax: the largest estimate, and in `rest` log2 of the sum.
struct alignas(16) Deviation {
  float about, rest, inverse;
};

// The queries as estimates by boxes need them: in bf16 parts, positive and negative channels apart.
template <uint32_t kDim>
struct BoxQueries {
  static constexpr uint32_t kStride = 2 * kDim + kTilePad;
  uint16_t parts[kHeads / kSplitHeads][kTileRows][kStride];
};

// The queries as estimates by sketches need them.
template <uint32_t kDim>
struct SketchQueries {
  float rows[kHeads][kDim];
  uint4 codes[kHeads][kDim / sizeof(uint4)];
  float factor[kHeads], offset[kHeads];  // of a logit to base 2, before its token's scale
};

template <uint32_t kDim>
struct alignas(16) Shared {
  static constexpr uint32_t kQueryStride = kDim + kTilePad;
  float key[kDim];  // the step's key, rotated
  union Estimates {
    BoxQueries<kDim> boxes;
    SketchQueries<kDim> sketches;
  } estimates;
  // The rotated queries as two bf16 parts; zeros for heads beyond the group.
  uint16_t query[2][kHeads][kQueryStride];
  union {
    // The values of a warp's page while it is attended, in 16-byte pieces (value_piece); afterwards the warp's sums.
    uint4 values[kWarps][kPageTokens * kDim / 8];
    float o[kWarps][kDim][kHeads];
  };
  float m[kHeads][kWarps], l[kHeads][kWarps], high[kHeads];
  // Written by all blocks of the cluster, each at its rank; `moments` has several entries per block.
  Moments moments[kHeads][kWarp];
  // The highest key of each warp's rows, and how many of the rows are always selected.
  uint2 range[kMaxBlocks * kWarps];
  float part[kMaxBlocks][kHeads * kDim / kMinBlocks];
  float2 part_ml[kHeads][kMaxBlocks];

  Deviation deviation[kHeads];
  SharedKeysScratch<kThreads> top;
};

// Index of piece `piece` of a token's values. The swizzle puts neighbouring tokens into different banks.
template <uint32_t kDim>
__device__ constexpr uint32_t value_piece(uint32_t token, uint32_t piece) {
  return token * (kDim / 8) + (piece ^ token % 8);
}

// Sizes of the arrays behind Shared for tables of `capacity` rows: keys and pages of all rows; of the block's own rows
// the estimates of each head, and the block's part of the list.
struct Layout {
  uint32_t n_rows, n_own;
  __host__ __device__ Layout(uint32_t capacity, uint32_t n_blocks) {
    const uint32_t n_tiles = (capacity + kTileRows - 1) / kTileRows;
    n_rows = n_tiles * kTileRows;
    n_own = (n_tiles + n_blocks - 1) / n_blocks * kTileRows;
  }
  __host__ __device__ size_t bytes(uint32_t n_heads) const {
    return (2 * size_t{n_rows} + size_t{n_heads} * n_own + n_own) * sizeof(uint32_t);
  }
  // With recall: behind the other arrays.
  static constexpr size_t recall_bytes(uint32_t most) { return sizeof(RecallWork) + sizeof(RecallEntry) * most; }
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// What a block works on.
template <uint32_t kDim>
struct Work {
  const KernelArgs& k;
  Shared<kDim>& s;
  uint32_t rank, n_blocks, kv_head, group;
  uint32_t group_shift;  // the group has at most 2^group_shift heads
  uint32_t n, pos;       // pages of the stream; position of the step's token
  size_t table;          // of the stream
  uint32_t n_own;        // rows of this block, whole tiles
  uint32_t* keys;        // [n_rows]
  uint32_t* pages;       // [n_rows] slot and length of each page
  float* score;          // [group, own_stride]
  uint32_t* list;        // [own_stride] pages
  uint32_t own_stride;
  // With recall: and [recall.host.most] which pages come back.
  RecallWork* recall;
  RecallEntry* back;

  __device__ Work(const KernelArgs& args, Shared<kDim>& shared)
      : k(args), s(shared), rank(cluster_rank()), n_blocks(cluster_blocks()) {
    const AttnPagedArgs& a = k.attn;
    kv_head = blockIdx.x / n_blocks;
    n = a.kv.n_pages[kv_head];
    pos = *k.n_tokens;
    group = a.n_heads / a.kv.n_kv_heads;
    group_shift = group > 1 ? kWarp - __clz(static_cast<int>(group - 1)) : 0;
    table = size_t{kv_head} * a.kv.capacity;
    const Layout layout(a.kv.capacity, n_blocks);
    own_stride = layout.n_own;
    keys = reinterpret_cast<uint32_t*>(&shared + 1);
    pages = keys + layout.n_rows;
    score = reinterpret_cast<float*>(pages + layout.n_rows);
    list = pages + layout.n_rows + group * own_stride;
    recall = reinterpret_cast<RecallWork*>(list + own_stride);
    back = reinterpret_cast<RecallEntry*>(recall + 1);
    const uint32_t n_tiles = (n + kTileRows - 1) / kTileRows;
    n_own = n_tiles > rank ? (n_tiles - rank + n_blocks - 1) / n_blocks * kTileRows : 0;
  }
  // Output elements that a block merges; elements are ordered by channel, then by head.
  __device__ uint32_t share() const { return ((kDim << group_shift) + n_blocks - 1) / n_blocks; }
  __device__ uint32_t digest_index(uint32_t row) const {
    const KvView& kv = k.attn.kv;
    return kv.digest_by_row ? static_cast<uint32_t>(table) + row : kv.slots[table + row];
  }
  // Table row of the block's own row i: tiles are dealt to the blocks in turn.
  __device__ uint32_t row(uint32_t i) const { return (i / kTileRows * n_blocks + rank) * kTileRows + i % kTileRows; }
};

// A row of the page table. Rows are read without a condition, so that many reads are in flight at once.
struct RowEntry {
  uint32_t slot;  // or what kAbsent says
  uint32_t len, first_pos, flags;
};

template <bool kRecalls, uint32_t kDim>
__device__ RowEntry read_row(const Work<kDim>& w, uint32_t row) {
  const KvView& kv = w.k.attn.kv;
  const size_t at = w.table + min(row, w.n - 1);
  uint32_t slot = kv.slots[at];
  if constexpr (kRecalls) {
    const uint32_t copy = w.k.raw_index[at];
    if (slot == kNoSlot) slot = kAbsent | (copy & (kAbsent - 1));
  }
  return {slot, kv.len[at], kv.first_pos[at], w.k.select.flags[at]};
}

// What a lane needs to rotate its pair of channels of its warp's head, prefetched. One or two warps share a head.
template <uint32_t kDim>
struct Rotation {
  static constexpr uint32_t kSharing = kDim / 2 / kWarp;
  static_assert(kHeads * kSharing <= kWarps);
  uint32_t head;  // not below the group: nothing to do
  uint2 channel;
  float2 turn, norm;

  __device__ explicit Rotation(const Work<kDim>& w) {
    const RopeAppendArgs& r = w.k.rope;
    const uint32_t pair = threadIdx.x % (kDim / 2);
    head = threadIdx.x / (kDim / 2);
    channel = channels_of(r, pair);
    turn = pair < r.rope_dim / 2 ? reinterpret_cast<const float2*>(r.cos_sin)[pair] : make_float2(1.0f, 0.0f);
    norm = r.q_norm != nullptr ? make_float2(r.q_norm[channel.x], r.q_norm[channel.y]) : make_float2(1.0f, 1.0f);
  }
};

// Stores a rotated channel for attention, as two bf16.
template <uint32_t kDim>
__device__ void store_query(Shared<kDim>& s, uint32_t head, uint32_t channel, float x) {
  const uint16_t first = float_to_bf16(x);
  s.query[0][head][channel] = first;
  s.query[1][head][channel] = float_to_bf16(x - bf16_to_float(first));
}

// Rotates the queries, and stores them for attention and for the estimates.
template <template <uint32_t> class Estimates, uint32_t kDim>
__device__ void read_queries(const Work<kDim>& w, const Rotation<kDim>& rotation) {
  const RopeAppendArgs& r = w.k.rope;
  if (rotation.head >= kHeads) return;
  if (rotation.head >= w.group) {
#pragma unroll
    for (uint32_t part = 0; part < 2; ++part) {
      w.s.query[part][rotation.head][rotation.channel.x] = 0;
      w.s.query[part][rotation.head][rotation.channel.y] = 0;
    }
    return;
  }
  const float* from = r.q + (size_t{w.kv_head} * w.group + rotation.head) * kDim;
  float inverse = 1.0f;
  if (r.q_norm != nullptr) {
    float square = 0.0f;
    for (uint32_t c = threadIdx.x % kWarp; c < kDim; c += kWarp) square += from[c] * from[c];
    inverse = rsqrtf(warp_sum(square) / static_cast<float>(kDim) + r.norm_eps);
  }
  const float x = from[rotation.channel.x] * inverse * rotation.norm.x,
              y = from[rotation.channel.y] * inverse * rotation.norm.y;
  const auto store = [&](uint32_t channel, float rotated) {
    store_query(w.s, rotation.head, channel, rotated);
    Estimates<kDim>::store_query(w.s, rotation.head, channel, rotated);
  };
  store(rotation.channel.x, x * rotation.turn.x - y * rotation.turn.y);
  store(rotation.channel.y, x * rotation.turn.y + y * rotation.turn.x);
}

#endif

}  // namespace weir::cuda::sparse
