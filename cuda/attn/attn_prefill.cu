// Attention of many query rows over KV pages on tensor cores. A block takes 64 query rows of one stream (tokens times
// the heads of the group, so that the group shares its pages) and walks the pages that any of them sees, four at a
// time, with an online softmax. K and V are multiplied in bf16; pages in other formats are copied to shared memory as
// they are and decoded there. q and the weights are split into two bf16 each, so that results are close to f32. Not for
// decoding: the pages are not split among blocks.
#include "cuda/attn/attn_prefill.h"

#include "cuda/attn/head_size.cuh"
#include "cuda/attn/kv_decode.cuh"
#include "cuda/attn/visible_tokens.cuh"
#include "cuda/common/tensor_core.cuh"
#include "cuda/pages/kv_rows.cuh"
#include "ops/attn_paged.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kWarps = 4;
constexpr uint32_t kThreads = kWarps * kWarp;
constexpr uint32_t kRows = kWarps * 16;  // query rows of a block

// Wide heads leave no registers for the queries, which are then in shared memory, and fewer for a step's weights.
constexpr bool is_wide(uint32_t dim) { return dim > 128; }
// Pages of a step: with 64 tokens a warp's weights take 32 registers per lane.
constexpr uint32_t step_pages(uint32_t dim) { return is_wide(dim) ? 2 : 4; }
// Bytes of dynamic shared memory: the pages of two steps, and the queries of wide heads in two bf16 parts. Of quantised
// pages those of one step are in bf16, and those of two as they are stored, which takes about as much.
constexpr uint32_t decoded_bytes(uint32_t dim) { return step_pages(dim) * 2 * kPageTokens * dim * 2; }
constexpr uint32_t stage_bytes(KvFormat format, uint32_t dim) {
  if (format == KvFormat::kBf16) return 2 * decoded_bytes(dim);
  return decoded_bytes(dim) + 2 * step_pages(dim) * static_cast<uint32_t>(kv_page_bytes(format, dim));
}
constexpr uint32_t shared_bytes(KvFormat format, uint32_t dim) {
  return stage_bytes(format, dim) + (is_wide(dim) ? 2 * kRows * dim * 2 : 0);
}

#if __CUDA_ARCH__ >= 800

constexpr uint32_t kBatchPages = 256;  // pages found at a time; the copy pipeline drains between batches
constexpr float kUnseen = -__builtin_huge_valf();
constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;

// A page that some row of the block sees. Its tokens [begin, end) use the query of the current phase.
struct __align__(16) PageEntry {
  uint32_t slot;
  uint32_t first_pos;
  uint32_t begin, end;  // begin has the flag kAllSeen when every row sees the whole page
};
constexpr uint32_t kAllSeen = 0x100;
constexpr uint32_t kIsOpen = 0x200;  // also in begin: the page takes tokens, and its rows are in bf16 as well

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Splits two floats into bf16 pairs whose sums they are: high + low.
__device__ inline void split_bf16(float x, float y, uint32_t& high, uint32_t& low) {
  high = pack_bf16(x, y);
  low = pack_bf16(x - bf16_low(high), y - bf16_high(high));
}

// Positions of a block's rows.
struct BlockSpan {
  uint32_t first, last;              // positions
  uint32_t first_begin, last_begin;  // first positions of their windows
  Sight sight;                       // of the block's KV head
};

// Lists the next pages of `list` that the block sees, until `entries` is nearly full or the list ends. Returns their
// number, and fills up the last step with empty pages. `next` is the list index to continue at. All threads of the
// block take part.
template <uint32_t kStepPages, KvFormat kFormat>
__device__ uint32_t find_pages(const AttnPagedArgs& a, const PageList& list, const BlockSpan& span, bool for_sinks,
                               uint32_t& next, PageEntry* entries, uint32_t* warp_counts) {
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  uint32_t n = 0;
  while (next < list.n && n + kThreads <= kBatchPages) {
    PageEntry entry = {};
    bool is_seen = false, is_behind = false;
    if (next + threadIdx.x < list.n) {
      const uint32_t row = list.row(next + threadIdx.x);
      const uint32_t len = min(a.kv.len[list.table + row], kPageTokens);
      entry.slot = a.kv.slots[list.table + row];
      entry.first_pos = a.kv.first_pos[list.table + row];
      const uint32_t n_sink = sink_tokens(a, row, entry.first_pos, len);
      entry.begin = for_sinks ? 0 : n_sink;
      entry.end = for_sinks ? n_sink : len;
      is_behind = entry.first_pos > span.last || (for_sinks && row >= a.n_sink_pages);
      is_seen = !is_behind && entry.begin < entry.end && entry.first_pos + entry.begin <= span.last &&
                (entry.first_pos + entry.end > span.first_begin || entry.first_pos + entry.begin < span.sight.n_sink);
      const bool is_whole = entry.begin == 0 && entry.end == kPageTokens &&
                            entry.first_pos + kPageTokens - 1 <= span.first &&
                            (entry.first_pos >= span.last_begin || entry.first_pos + kPageTokens <= span.sight.n_sink);
      if (is_whole) entry.begin |= kAllSeen;
      if (kFormat != KvFormat::kBf16 && len < kPageTokens && a.kv.open != nullptr) entry.begin |= kIsOpen;
    }
    const uint32_t seen = __ballot_sync(kAllLanes, is_seen);
    if (lane == 0) warp_counts[warp] = __popc(seen);
    const bool ends = __syncthreads_or(is_behind);
    uint32_t at = n + __popc(seen & ((1u << lane) - 1));
    for (uint32_t w = 0; w < kWarps; ++w) {
      if (w < warp) at += warp_counts[w];
      n += warp_counts[w];
    }
    if (is_seen) entries[at] = entry;
    next = ends ? list.n : next + kThreads;
    __syncthreads();  // all threads have read the counts
  }
  const uint32_t n_full = (n + kStepPages - 1) / kStepPages * kStepPages;
  if (threadIdx.x < n_full - n) entries[n + threadIdx.x] = {};
  __syncthreads();
  return n;
}

// Byte offset of a 16-byte chunk in a row of a page. A fragment load reads the same chunk of eight rows at once; the
// XOR swizzle places them in different banks.
template <uint32_t kDim>
__device__ inline uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * kDim * 2 + ((chunk ^ (row & 7)) << 4);
}

// State of a warp's 16 query rows: split queries, weighted sums of values, softmax maxima and sums. A lane has rows
// lane / 4 and lane / 4 + 8.
template <class Head>
struct WarpRows {
  static constexpr uint32_t kDim = Head::kDim, kStepPages = step_pages(kDim);
  static constexpr uint32_t kTiles = kDim / 16;
  static constexpr uint32_t kPageBytes = 2 * kPageTokens * kDim * 2;
  static constexpr bool kWide = is_wide(kDim);

  Head size;
  uint32_t q_high[kWide ? 1 : kTiles][4], q_low[kWide ? 1 : kTiles][4];
  uint4* q_shared;  // of wide heads: the same [kTiles, 2, kWarp], each lane's own
  float out[2 * kTiles][4];
  float high[2], sum[2];  // `sum` covers this lane's tokens only; both are in units of log2
  uint32_t pos[2];        // of the rows

  __device__ explicit WarpRows(const AttnPagedArgs& a) : size(a.kv.head_dim) {}

  // Multiplies the logits' factor and log2(e) into the queries, so that weights are powers of 2. Logits with a soft cap
  // get their powers of 2 from the cap.
  __device__ void load_queries(const AttnPagedArgs& a, const float* const (&rows)[2]) {
    float factor = a.scale * kLog2E;
    if constexpr (Head::kAny) factor = a.soft_cap != 0.0f ? a.scale / a.soft_cap : factor;
    const uint32_t column = threadIdx.x % 4 * 2;
#pragma unroll
    for (uint32_t k = 0; k < kTiles; ++k) {
      uint32_t high_part[4], low_part[4];
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t channel = k * 16 + i / 2 * 8;
        const float2 x = size.has(channel) ? *reinterpret_cast<const float2*>(rows[i % 2] + channel + column)
                                           : make_float2(0.0f, 0.0f);
        split_bf16(factor * x.x, factor * x.y, high_part[i], low_part[i]);
      }
      if constexpr (kWide) {
        q_shared[2 * k * kWarp] = make_uint4(high_part[0], high_part[1], high_part[2], high_part[3]);
        q_shared[(2 * k + 1) * kWarp] = make_uint4(low_part[0], low_part[1], low_part[2], low_part[3]);
      } else {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) q_high[k][i] = high_part[i], q_low[k][i] = low_part[i];
      }
    }
  }

  // Tile k of the queries' leading parts (part 0) or remainders.
  __device__ void query_tile(uint32_t k, uint32_t part, uint32_t (&out)[4]) const {
    if constexpr (kWide) {
      const uint4 q = q_shared[(2 * k + part) * kWarp];
      out[0] = q.x, out[1] = q.y, out[2] = q.z, out[3] = q.w;
    } else {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) out[i] = part == 0 ? q_high[k][i] : q_low[k][i];
    }
  }

  // One step: attends the kStepPages pages at `stage` in shared memory.
  __device__ void attend(const AttnPagedArgs& a, const Sight& sight, uint32_t stage, const PageEntry* entries) {
    const uint32_t lane = threadIdx.x % kWarp;
    float s[2 * kStepPages][4] = {};
    // Chunk 2 * k + i differs from chunk i only in address bits that the swizzle leaves alone.
    const uint32_t keys_at = stage + chunk_offset<kDim>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (uint32_t k = 0; k < kTiles; ++k) {
      if (!size.has(k * 16)) continue;
      uint32_t leading[4], remainder[4];
      query_tile(k, 0, leading);
      query_tile(k, 1, remainder);
#pragma unroll
      for (uint32_t p = 0; p < kStepPages; p += 2) {  // two pages give four independent MMAs
        uint32_t keys[2][4];
        load_matrices(keys[0], (keys_at ^ (k << 5)) + p * kPageBytes);
        load_matrices(keys[1], (keys_at ^ (k << 5)) + (p + 1) * kPageBytes);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
          multiply_bf16(s[2 * p + i], leading, keys[i / 2][i % 2 * 2], keys[i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
          multiply_bf16(s[2 * p + i], remainder, keys[i / 2][i % 2 * 2], keys[i / 2][i % 2 * 2 + 1]);
      }
    }
    if constexpr (Head::kAny) cap(a, s);
    mask(sight, s, entries);
    soften(s);
    const uint32_t values_at = stage + chunk_offset<kDim>(kPageTokens + lane % 16, lane / 16);
#pragma unroll
    for (uint32_t p = 0; p < kStepPages; ++p) {
      uint32_t w_high[4], w_low[4];
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        split_bf16(s[2 * p + i / 2][i % 2 * 2], s[2 * p + i / 2][i % 2 * 2 + 1], w_high[i], w_low[i]);
      }
#pragma unroll
      for (uint32_t k = 0; k < kTiles; k += 2) {
        if (!size.has(k * 16)) continue;
        uint32_t values[2][4];
        load_matrices_transposed(values[0], (values_at ^ (k << 5)) + p * kPageBytes);
        load_matrices_transposed(values[1], (values_at ^ ((k + 1) << 5)) + p * kPageBytes);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
          multiply_bf16(out[2 * k + i], w_high, values[i / 2][i % 2 * 2], values[i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
          multiply_bf16(out[2 * k + i], w_low, values[i / 2][i % 2 * 2], values[i / 2][i % 2 * 2 + 1]);
      }
    }
  }

  __device__ void cap(const AttnPagedArgs& a, float (&s)[2 * kStepPages][4]) const {
    if (a.soft_cap == 0.0f) return;
#pragma unroll
    for (uint32_t j = 0; j < 2 * kStepPages; ++j) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) s[j][i] = a.soft_cap * kLog2E * tanhf(s[j][i]);
    }
  }

  // Sets the logits of tokens that a row does not see to -inf.
  __device__ void mask(const Sight& sight, float (&s)[2 * kStepPages][4], const PageEntry* entries) const {
    uint32_t seen = kAllSeen;
#pragma unroll
    for (uint32_t p = 0; p < kStepPages; ++p) seen &= entries[p].begin;
    if (seen != 0) return;
    const uint32_t begin[2] = {sight.begin(pos[0]), sight.begin(pos[1])};
#pragma unroll
    for (uint32_t p = 0; p < kStepPages; ++p) {
      const PageEntry entry = entries[p];
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) {  // two halves of the page, two rows, two tokens
        const uint32_t token = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
        const uint32_t at = entry.first_pos + token, row = i / 2 % 2;
        const bool is_seen = token >= (entry.begin & (kAllSeen - 1)) && token < entry.end && at <= pos[row] &&
                             (at >= begin[row] || at < sight.n_sink);
        if (!is_seen) s[2 * p + i / 4][i % 4] = kUnseen;
      }
    }
  }

  // Turns logits into weights relative to the highest logit so far, and rescales the earlier sums to it.
  __device__ void soften(float (&s)[2 * kStepPages][4]) {
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      float top = high[row];
#pragma unroll
      for (uint32_t j = 0; j < 2 * kStepPages; ++j) top = fmaxf(top, fmaxf(s[j][2 * row], s[j][2 * row + 1]));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
      const float base = top == kUnseen ? 0.0f : top;  // nothing seen yet: weights are exp2(-inf - 0) = 0
      const float keep = exp2_fast(high[row] - base);
      high[row] = top;
      float added = 0.0f;
#pragma unroll
      for (uint32_t j = 0; j < 2 * kStepPages; ++j) {
        s[j][2 * row] = exp2_fast(s[j][2 * row] - base);
        s[j][2 * row + 1] = exp2_fast(s[j][2 * row + 1] - base);
        added += s[j][2 * row] + s[j][2 * row + 1];
      }
      sum[row] = sum[row] * keep + added;
#pragma unroll
      for (uint32_t k = 0; k < 2 * kTiles; ++k) {
        out[k][2 * row] *= keep;
        out[k][2 * row + 1] *= keep;
      }
    }
  }
};

// Eight codes of a row of a page in shared memory, decoded.
template <RowFormat kRow>
__device__ uint4 decode_chunk(const PageRows<kRow, const uint16_t>& rows, uint32_t token, uint32_t chunk) {
  using Codes = std::conditional_t<kRow == RowFormat::kQ8, uint2, uint32_t>;
  return decode_eight(reinterpret_cast<const Codes*>(rows.codes(token))[chunk],
                      rows.scales(token)[chunk / (kScaleElements / 8)]);
}

// Eight elements of a row of keys or values that is attended before it is rounded to the format of the pages. `part`: 0
// for keys, 1 for values. False: it is in its page alone.
__device__ inline bool read_exact(const AttnPagedArgs& a, uint32_t kv_head, const PageEntry& entry, uint32_t token,
                                  uint32_t part, uint32_t channel, uint4& out) {
  const uint32_t pos = entry.first_pos + token, d = a.kv.head_dim;
  if (a.k_rows != nullptr && pos >= a.pos) {
    const float* row = (part == 0 ? a.k_rows : a.v_rows) + (size_t{pos - a.pos} * a.kv.n_kv_heads + kv_head) * d;
    const float4 x = *reinterpret_cast<const float4*>(row + channel),
                 y = *reinterpret_cast<const float4*>(row + channel + 4);
    out = make_uint4(pack_bf16(x.x, x.y), pack_bf16(x.z, x.w), pack_bf16(y.x, y.y), pack_bf16(y.z, y.w));
    return true;
  }
  if ((entry.begin & kIsOpen) == 0) return false;
  const uint16_t* page =
      a.kv.open + entry.first_pos / kPageTokens % 2 * a.kv.open_half + size_t{kv_head} * (2 * kPageTokens * d);
  out = *reinterpret_cast<const uint4*>(page + (part * kPageTokens + token) * d + channel);
  return true;
}

// Starts the copies of a step's pages to `to` in shared memory, as they are stored.
template <KvFormat kFormat, class Head>
__device__ void copy_pages_raw(const AttnPagedArgs& a, const Head& size, const PageEntry* entries, uint32_t to) {
  constexpr uint32_t kStepPages = step_pages(Head::kDim), kPageBytes = kv_page_bytes(kFormat, Head::kDim);
  const uint32_t n_chunks = static_cast<uint32_t>(kv_page_bytes(kFormat, size.dim())) / 16;
  for (uint32_t p = 0; p < kStepPages; ++p) {
    if (entries[p].end == 0) continue;
    const uint16_t* page = a.kv.pool + size_t{entries[p].slot} * page_units<kFormat>(size.dim());
    for (uint32_t i = threadIdx.x; i < n_chunks; i += kThreads)
      copy_16_async(to + p * kPageBytes + i * 16, page + i * 8, true);
  }
  commit_copies();
}

// Decodes the pages `from` of a step to the stage `to`, with zeros for what they do not hold.
template <KvFormat kFormat, class Head>
__device__ void decode_pages(const AttnPagedArgs& a, uint32_t kv_head, const Head& size, const PageEntry* entries,
                             const unsigned char* from, unsigned char* to) {
  constexpr uint32_t kDim = Head::kDim, kRowChunks = kDim / 8;
  const uint32_t chunk = threadIdx.x % kRowChunks, first_row = threadIdx.x / kRowChunks;
  for (uint32_t p = 0; p < step_pages(kDim); ++p) {
    const auto* page = reinterpret_cast<const uint16_t*>(from + p * kv_page_bytes(kFormat, kDim));
    unsigned char* decoded = to + p * WarpRows<Head>::kPageBytes;
    const auto keys = keys_at<kFormat>(page, size.dim());
    const auto values = values_at<kFormat>(page, size.dim());
    const PageEntry entry = entries[p];
    const uint32_t end = size.has(chunk * 8) ? entry.end : 0;
    for (uint32_t row = first_row; row < kPageTokens; row += kThreads / kRowChunks) {
      uint4 key = make_uint4(0, 0, 0, 0), value = key;
      if (row < end && !read_exact(a, kv_head, entry, row, 0, chunk * 8, key)) key = decode_chunk(keys, row, chunk);
      if (row < end && !read_exact(a, kv_head, entry, row, 1, chunk * 8, value))
        value = decode_chunk(values, row, chunk);
      *reinterpret_cast<uint4*>(decoded + chunk_offset<kDim>(row, chunk)) = key;
      *reinterpret_cast<uint4*>(decoded + chunk_offset<kDim>(kPageTokens + row, chunk)) = value;
    }
  }
}

#endif

// Computes: out (and lse) of AttnPagedArgs for kRows query rows of a list. Row r is token r / group and, of the heads
// that share the list, head r % group.
// Shapes: see AttnPagedArgs.
// Launch: grid (lists, blocks of rows). Late rows, which see most, come first. `group` is the number of query heads of
// a list.
// Assumes: the pages of a list ascend in position.
// Numerics: q and the weights are split into two bf16, keys and values are bf16 (or become bf16, kv_decode.cuh), sums
// are f32, in a fixed order.
// Traffic: every block reads all pages that it sees, mostly from L2.
// Paper: Dao, FlashAttention-2, arXiv:2307.08691.
template <class Head, KvFormat kFormat>
__global__ void __launch_bounds__(kThreads, is_wide(Head::kDim) ? 1 : 2)
    attn_prefill_kernel(AttnPagedArgs a, uint32_t group) {
#if __CUDA_ARCH__ >= 800
  constexpr uint32_t kDim = Head::kDim, kStepPages = step_pages(kDim);
  constexpr uint32_t kPageBytes = WarpRows<Head>::kPageBytes;
  constexpr uint32_t kRowChunks = kDim / 8;
  constexpr uint32_t kCopyRows = kThreads / kRowChunks;     // rows that the block copies at once
  extern __shared__ __align__(512) unsigned char stages[];  // [2, kStepPages, 2 * kPageTokens, kDim]; a row's alignment
  __shared__ PageEntry entries[kBatchPages + kStepPages];
  __shared__ uint32_t warp_counts[kWarps];
  const uint32_t base = shared_address(stages);
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;

  const uint32_t first_head = blockIdx.x * group;
  const uint32_t kv_head = first_head / (a.n_heads / a.kv.n_kv_heads);
  const PageList list(a, kv_head, blockIdx.x);
  const uint32_t n_rows = a.n_tok * group;
  const uint32_t first_row = (gridDim.y - 1 - blockIdx.y) * kRows;
  const uint32_t last_row = min(first_row + kRows, n_rows) - 1;

  WarpRows<Head> rows(a);
  rows.q_shared = reinterpret_cast<uint4*>(stages + stage_bytes(kFormat, kDim)) + warp * (2 * kDim / 16 * kWarp) + lane;
  uint32_t my_row[2];
  uint32_t at[2];  // of the rows, in heads
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    my_row[i] = first_row + warp * 16 + i * 8 + lane / 4;
    const uint32_t row = min(my_row[i], last_row);  // rows beyond the last repeat it and are not stored
    at[i] = row / group * a.n_heads + first_head + row % group;
    rows.pos[i] = a.pos + row / group;
    rows.high[i] = kUnseen;
    rows.sum[i] = 0.0f;
  }
#pragma unroll
  for (uint32_t k = 0; k < kDim / 8; ++k) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) rows.out[k][i] = 0.0f;
  }
  __shared__ BlockSpan span;  // in shared memory, because registers are short
  if (threadIdx.x == 0) {
    span.first = a.pos + first_row / group;
    span.last = a.pos + last_row / group;
    span.sight = sight_of(a, kv_head);
    span.first_begin = span.sight.begin(span.first);
    span.last_begin = span.sight.begin(span.last);
  }
  __syncthreads();

  const uint32_t copy_row = threadIdx.x / kRowChunks, copy_chunk = threadIdx.x % kRowChunks;
  const auto raw_at = [](uint32_t step) {
    return decoded_bytes(kDim) + step % 2 * kStepPages * static_cast<uint32_t>(kv_page_bytes(kFormat, kDim));
  };
  const auto copy_step = [&](uint32_t step) {
    if constexpr (kFormat == KvFormat::kBf16) {
#pragma unroll
      for (uint32_t p = 0; p < kStepPages; ++p) {
        const PageEntry entry = entries[step * kStepPages + p];
        const uint16_t* const page =
            a.kv.pool + size_t{entry.slot} * (2 * kPageTokens * rows.size.dim()) + copy_chunk * 8;
        const uint32_t to = base + (step % 2 * kStepPages + p) * kPageBytes;
#pragma unroll
        for (uint32_t i = 0; i < 2 * kPageTokens / kCopyRows; ++i) {
          const uint32_t row = copy_row + i * kCopyRows;
          // Memory beyond the page's tokens can hold anything, even NaN, which a weight of 0 would not hide.
          copy_16_async(to + chunk_offset<kDim>(row, copy_chunk), page + row * rows.size.dim(),
                        row % kPageTokens < entry.end && rows.size.has(copy_chunk * 8));
        }
      }
      commit_copies();
    } else {
      copy_pages_raw<kFormat>(a, rows.size, entries + step * kStepPages, base + raw_at(step));
    }
  };

  // First the tokens that use q_sink, then the others.
  for (uint32_t phase = a.q_sink != nullptr && a.n_sink_pages > 0 ? 0 : 1; phase < 2; ++phase) {
    const float* const q = phase == 0 ? a.q_sink : a.q;
    const float* const queries[2] = {q + size_t{at[0]} * rows.size.dim(), q + size_t{at[1]} * rows.size.dim()};
    rows.load_queries(a, queries);
    uint32_t next = 0;
    while (next < list.n) {
      const uint32_t n_steps =
          (find_pages<kStepPages, kFormat>(a, list, span, phase == 0, next, entries, warp_counts) + kStepPages - 1) /
          kStepPages;
      if (n_steps > 0) copy_step(0);
      for (uint32_t step = 0; step < n_steps; ++step) {
        wait_copies<0>();
        __syncthreads();  // the step's pages are visible to all warps, and the other stage is free
        if (step + 1 < n_steps) copy_step(step + 1);
        const PageEntry* const of_step = entries + step * kStepPages;
        if constexpr (kFormat == KvFormat::kBf16) {
          rows.attend(a, span.sight, base + step % 2 * kStepPages * kPageBytes, of_step);
        } else {
          decode_pages<kFormat>(a, kv_head, rows.size, of_step, stages + raw_at(step), stages);
          __syncthreads();
          rows.attend(a, span.sight, base, of_step);
        }
      }
      __syncthreads();  // all warps have read the entries and stages
    }
  }

#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    float sum = rows.sum[i];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    if (my_row[i] > last_row) continue;
    const bool is_blind = rows.high[i] == kUnseen;
    float share = is_blind ? 0.0f : 1.0f / sum;
    if (a.sinks != nullptr) {
      const float sink = a.sinks[at[i] % a.n_heads] * kLog2E, high = fmaxf(rows.high[i], sink);
      const float keep = is_blind ? 0.0f : exp2f(rows.high[i] - high);
      sum = high == kUnseen ? 0.0f : sum * keep + exp2f(sink - high);
      share = is_blind ? 0.0f : keep / sum;
      rows.high[i] = high;
    }
    float* const out = a.out + size_t{at[i]} * rows.size.dim() + lane % 4 * 2;
#pragma unroll
    for (uint32_t k = 0; k < kDim / 8; ++k) {
      if (!rows.size.has(k * 8)) continue;
      const float2 y = make_float2(rows.out[k][2 * i] * share, rows.out[k][2 * i + 1] * share);
      *reinterpret_cast<float2*>(out + k * 8) = is_blind ? make_float2(0.0f, 0.0f) : y;
    }
    if (a.lse != nullptr && lane % 4 == 0)
      a.lse[at[i]] = rows.high[i] == kUnseen ? kUnseen : (rows.high[i] + log2f(sum)) * kLn2;
  }
#endif
}

template <class Head, KvFormat kFormat>
Status launch_prefill(OpContext& cx, const AttnPagedArgs& a) {
  constexpr auto kernel = attn_prefill_kernel<Head, kFormat>;
  constexpr size_t kSharedBytes = shared_bytes(kFormat, Head::kDim);
  // The device may run code of an older architecture, in which the kernel has no body, or have too little memory.
  cudaFuncAttributes code = {};
  WEIR_CUDA_TRY(cudaFuncGetAttributes(&code, kernel), "attn_prefill: code");
  if (code.ptxVersion < 80 || code.sharedSizeBytes + kSharedBytes > device().shared_bytes)
    return attn_prefill_plain(cx, a);
  WEIR_CUDA_TRY(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSharedBytes)),
      "attn_prefill: shared memory");
  const uint32_t group = a.list_per_head ? 1 : a.n_heads / a.kv.n_kv_heads;
  const dim3 grid(a.n_heads / group, (a.n_tok * group + kRows - 1) / kRows);
  return launch("attn_prefill", kernel, grid, kThreads, kSharedBytes, stream_of(cx), false, a, group);
}

}  // namespace

Status attn_prefill(OpContext& cx, const AttnPagedArgs& a) {
  WEIR_TRY(check_heads(a.kv));
  WEIR_TRY(with_kv_format(a.kv.format, [&](auto format) {
    return with_head_size(a.kv.head_dim, a.soft_cap == 0.0f,
                          [&](auto size) { return launch_prefill<decltype(size), format()>(cx, a); });
  }));
  return a.page_mass != nullptr ? attn_page_mass(cx, a) : Status();
}

}  // namespace weir::cuda
