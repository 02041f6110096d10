// Computes: what page_score, page_select and attn_decode compute, for kMinMax and kCuboidMean digests, or kSketch with
// kSumProb; lists shared by the group, heads of 64 or 128 elements, no soft cap, and no observation.
// Launch: one cluster of 8 to 16 blocks per KV head, one block per SM. The phases exchange results through distributed
// shared memory instead of through the end of a kernel: one layer of the 8B model at 32,768 tokens takes 15.5 us on an
// H200, where three launches take 29 us.
//
// The blocks share the table's rows in tiles of 16. Each block estimates its own rows, and sends the sums for mean and
// variance, or of the softmax, and then the rows' keys, to all blocks. Each block finds the threshold by itself and
// attends its part of the list, in ascending order. For the merge the output elements are divided among the blocks,
// which add up the blocks' partial results in ascending order.
// With recall the pages that are selected and cold come back between selection and attention
// (sparse_layer_recall.cuh), in place of the two launches of page_recall.
// Numerics: as those three, but sums are taken in another order. Mean and variance are f32: estimates whose standard
// deviation is above 1e18 or below 1e-18 count as all equal for max_z. Sums of probabilities are f32, too, with powers
// and logarithms to base 2.
// Traffic: the digests of all pages, the keys and values of the selected pages, once.
// Papers: Tang et al., "Quest", arXiv:2406.10774, sec. 3.3; as lib/ops/page_select_ref.cpp and
// lib/ops/attn_paged_ref.cpp.
#include "cuda/attn/sparse_layer.cuh"

#include "cuda/attn/sparse_layer_boxes.cuh"
#include "cuda/attn/sparse_layer_recall.cuh"
#include "cuda/attn/sparse_layer_sketches.cuh"
#include "cuda/attn/sparse_layer_stop.cuh"
#include "cuda/common/device.cuh"
#include "device/kernels/sparse_layer.h"
#include "ops/attn_paged.h"

namespace weir::cuda {
namespace {

using namespace sparse;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Sums for mean and variance over a part of the block's estimates for one head, by one warp, sent to all blocks. They
// are taken of the differences from one of the estimates, which loses no precision when estimates are far from zero and
// close to each other.
template <uint32_t kDim>
__device__ void push_moments(const Work<kDim>& w, uint32_t head, uint32_t part, uint32_t n_parts) {
  const uint32_t lane = threadIdx.x % kWarp;
  const float* score = w.score + head * w.own_stride;
  const auto counts = [&](uint32_t i) { return i < w.n_own && w.row(i) + 1 < w.n && score[i] > -INFINITY; };
  // The middle row is seldom far from the mean.
  uint32_t at = w.n_own / 2;
  for (uint32_t first = 0; !(counts(at) && isfinite(score[at])) && first < w.n_own; first += kWarp) {
    const uint32_t usable = __ballot_sync(kAllLanes, counts(first + lane) && isfinite(score[first + lane]));
    if (usable != 0) at = first + __ffs(static_cast<int>(usable)) - 1;
  }
  Moments m = {counts(at) ? score[at] : 0.0f, 0.0f, 0.0f, 0};
#pragma unroll 2
  for (uint32_t i = part * kWarp + lane; i < w.n_own; i += n_parts * kWarp) {
    const bool is_counted = counts(i);
    const float x = is_counted ? score[i] - m.about : 0.0f;
    m.sum += x;
    m.square += x * x;
    m.count += is_counted ? 1u : 0u;
  }
  m.sum = warp_sum(m.sum);
  m.square = warp_sum(m.square);
  m.count = sum_of_lanes(m.count);
  if (lane < w.n_blocks) *shared_of(&w.s.moments[head][w.rank * n_parts + part], lane) = m;
}

// Combines the `n` partial sums of all blocks into the head's mean and standard deviation, by one warp. Differences are
// taken from the first part's reference estimate, so that f32 loses no precision when estimates are far from zero.
template <uint32_t kDim>
__device__ void join_moments(const Work<kDim>& w, uint32_t head, uint32_t n) {
  const uint32_t lane = threadIdx.x % kWarp;
  Moments m = w.s.moments[head][lane < n ? lane : 0];
  if (lane >= n) m.count = 0;
  const auto count = static_cast<float>(m.count);
  const float about = __shfl_sync(kAllLanes, m.about, 0), off = m.about - about;
  const float per_row = __fdividef(1.0f, static_cast<float>(sum_of_lanes(m.count)));
  const float rest = warp_sum(m.count != 0 ? m.sum + count * off : 0.0f) * per_row, to_mean = off - rest;
  const float square = m.count != 0 ? m.square + to_mean * (2.0f * m.sum + count * to_mean) : 0.0f;
  const float variance = warp_sum(square) * per_row;
  if (lane == 0) w.s.deviation[head] = {about, rest, variance > 0.0f ? rsqrtf(variance) : 0.0f};
}

// The factor of estimates for powers of 2.
template <uint32_t kDim>
__device__ float log2_scale(const Work<kDim>& w) {
  return w.k.select.scale * kLog2E;
}

// The softmax over a part of the block's estimates for one head, by one warp, sent to all blocks: the largest one, and
// the sum.
template <uint32_t kDim>
__device__ void push_softmax(const Work<kDim>& w, uint32_t head, uint32_t part, uint32_t n_parts) {
  const uint32_t lane = threadIdx.x % kWarp, first = part * kWarp + lane, step = n_parts * kWarp;
  const float scale = log2_scale(w);
  const float* score = w.score + head * w.own_stride;
  const auto counts = [&](uint32_t i) { return w.row(i) + 1 < w.n && score[i] > -INFINITY; };
  Moments m = {-INFINITY, 0.0f, 0.0f, 0};
  for (uint32_t i = first; i < w.n_own; i += step) m.about = counts(i) ? fmaxf(m.about, score[i]) : m.about;
  m.about = warp_max(m.about);
  for (uint32_t i = first; i < w.n_own; i += step) m.sum += counts(i) ? exp2f((score[i] - m.about) * scale) : 0.0f;
  m.sum = warp_sum(m.sum);
  if (lane < w.n_blocks) *shared_of(&w.s.moments[head][w.rank * n_parts + part], lane) = m;
}

// Combines the `n` partial sums of all blocks into the head's softmax, by one warp: its largest estimate, and log2 of
// the sum.
template <uint32_t kDim>
__device__ void join_softmax(const Work<kDim>& w, uint32_t head, uint32_t n) {
  const uint32_t lane = threadIdx.x % kWarp;
  const Moments m = w.s.moments[head][lane < n ? lane : 0];
  const float high = warp_max(m.about);
  const bool is_counted = lane < n && m.about > -INFINITY;
  const float sum = warp_sum(is_counted ? m.sum * exp2f((m.about - high) * log2_scale(w)) : 0.0f);
  if (lane == 0) w.s.deviation[head] = {high, log2f(sum), 0.0f};
}

// What aggregation needs to know of all estimates of a head.
template <uint32_t kDim, AggMode kAgg>
__device__ void push_statistics(const Work<kDim>& w, uint32_t head, uint32_t part, uint32_t n_parts) {
  if constexpr (kAgg == AggMode::kMaxZ) push_moments(w, head, part, n_parts);
  if constexpr (kAgg == AggMode::kSumProb) push_softmax(w, head, part, n_parts);
}
template <uint32_t kDim, AggMode kAgg>
__device__ void join_statistics(const Work<kDim>& w, uint32_t head, uint32_t n) {
  if constexpr (kAgg == AggMode::kMaxZ) join_moments(w, head, n);
  if constexpr (kAgg == AggMode::kSumProb) join_softmax(w, head, n);
}

// log2 of a head's probability of the block's own row i.
template <uint32_t kDim>
__device__ float log2_probability(const Work<kDim>& w, uint32_t head, uint32_t i) {
  const float x = w.score[head * w.own_stride + i];
  const Deviation d = w.s.deviation[head];
  return x > -INFINITY ? (x - d.about) * log2_scale(w) - d.rest : -INFINITY;  // also of a NaN
}

// The logarithm of the sum of the heads' probabilities of the block's own row i.
template <uint32_t kDim>
__device__ float join_probabilities(const Work<kDim>& w, uint32_t i) {
  float high = -INFINITY, sum = 0.0f;
#pragma unroll 1
  for (uint32_t head = 0; head < w.group; ++head) high = fmaxf(high, log2_probability(w, head, i));
  if (high == -INFINITY) return high;
#pragma unroll 1
  for (uint32_t head = 0; head < w.group; ++head) sum += exp2f(log2_probability(w, head, i) - high);
  return (high + log2f(sum)) * kLn2;
}

// Aggregates the estimates of the group's heads for the block's own row i.
template <uint32_t kDim, AggMode kAgg>
__device__ float join_heads(const Work<kDim>& w, uint32_t i) {
  if constexpr (kAgg == AggMode::kSumProb) return join_probabilities(w, i);
  float total = kAgg == AggMode::kMeanRaw ? 0.0f : -INFINITY;
#pragma unroll 1
  for (uint32_t first = 0; first < w.group; first += kSplitHeads) {
#pragma unroll
    for (uint32_t head = first; head < first + kSplitHeads; ++head) {
      if (head >= w.group) continue;
      float x = w.score[head * w.own_stride + i];
      if (isnan(x)) x = -INFINITY;
      if (kAgg == AggMode::kMaxZ && x != -INFINITY) {
        const Deviation d = w.s.deviation[head];
        x = d.inverse > 0.0f ? (x - d.about - d.rest) * d.inverse : 0.0f;
      }
      total = kAgg == AggMode::kMeanRaw ? total + x : total < x ? x : total;
    }
  }
  return kAgg == AggMode::kMeanRaw ? total / static_cast<float>(w.group) : total;
}

// A page as one word: its slot, and the number of its tokens that the query sees, minus 1.
template <uint32_t kDim>
__device__ uint32_t page_of(const Work<kDim>& w, const RowEntry& e) {
  const uint32_t seen = min(e.len, w.pos + 1 - min(w.pos, e.first_pos));
  return e.slot | (seen - 1) << kLengthShift;
}

// Sends keys and pages of the block's rows to all blocks.
template <uint32_t kDim, AggMode kAgg, bool kRecalls>
__device__ void push_keys(const Work<kDim>& w, const RowEntry& first) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  uint32_t high = 0, n_forced = 0;
#pragma unroll 1
  for (uint32_t begin = warp * kWarp; begin < w.n_own; begin += kThreads) {
    const uint32_t i = begin + lane;
    if (i < w.n_own) {
      const uint32_t row = w.row(i);
      const RowEntry entry = i == threadIdx.x ? first : read_row<kRecalls>(w, row);
      uint32_t key = kKeyNever;
      if (row < w.n) {
        const bool is_last = row + 1 == w.n;
        const float total = is_last ? 0.0f : join_heads<kDim, kAgg>(w, i);
        w.k.select.group_score[w.table + row] = total;
        const bool forced = is_last || row < w.k.select.n_sink_pages || (entry.flags & kPageKept) != 0;
        key = forced ? kKeyAlways : key_of_score(total);
        n_forced += forced ? 1u : 0u;
        high = forced ? high : max(high, key);
      }
      w.keys[row] = key;
      w.pages[row] = page_of(w, entry);
    }
    __syncwarp();
    // A store takes four rows, and eight lanes store to one block at once. The block has whole tiles.
    const uint32_t four = begin + lane % 8 * 4;
    if (four >= w.n_own) continue;
    auto* keys = reinterpret_cast<uint4*>(w.keys + w.row(four));
    auto* pages = reinterpret_cast<uint4*>(w.pages + w.row(four));
    const uint4 four_keys = *keys, four_pages = *pages;
#pragma unroll 1
    for (uint32_t to = lane / 8; to < w.n_blocks; to += 4) {
      if (to == w.rank) continue;
      *shared_of(keys, to) = four_keys;
      *shared_of(pages, to) = four_pages;
    }
  }
  high = max_of_lanes(high);
  n_forced = sum_of_lanes(n_forced);
  if (lane < w.n_blocks) *shared_of(&w.s.range[w.rank * kWarps + warp], lane) = make_uint2(high, n_forced);
}

// The threshold of the selected pages, and their number.
struct Selected {
  Threshold threshold;
  uint32_t n;
};

// Selects pages by the keys of all rows.
template <uint32_t kDim>
__device__ Selected select_by_keys(const Work<kDim>& w) {
  const PagesLeft all = pages_left(w);
  const uint32_t n_best = all.n_listed - all.n_forced;
  Threshold threshold = {kKeyNever, 0};  // all rows
  if (n_best == 0) {
    threshold = {kKeyAlways - 1, 0};
  } else if (n_best < all.n_others) {
    threshold = find_shared_threshold(w.keys, w.n, n_best, all.n_forced, all.high, w.s.top);
  }
  return {threshold, all.n_listed};
}

template <uint32_t kDim>
__device__ void count_attended(const Work<kDim>& w, uint32_t n) {
  if (w.rank == 0 && threadIdx.x == 0 && w.k.pages_attended != nullptr)
    atomicAdd(w.k.pages_attended, static_cast<unsigned long long>(n));
}

// Lists this block's part of the pages to attend. Returns the length of that part.
template <uint32_t kDim, bool kRecalls>
__device__ uint32_t list_pages(const Work<kDim>& w) {
  const Selected selected = select_by_keys(w);
  uint32_t n_listed = selected.n, n_own;
  if constexpr (kRecalls) {
    n_own = list_with_recall(w, selected.threshold, n_listed);
  } else {
    const uint32_t each = (n_listed + w.n_blocks - 1) / w.n_blocks;
    const uint32_t begin = min(n_listed, w.rank * each), end = min(n_listed, begin + each);
    take_shared_rows(w.keys, w.n, selected.threshold, w.s.top, [&](uint32_t row, uint32_t place) {
      if (begin <= place && place < end) w.list[place - begin] = w.pages[row];
    });
    n_own = end - begin;
  }
  count_attended(w, n_listed);
  __syncthreads();
  return n_own;
}

#endif

// What a kernel does beyond selecting pages and attending them.
enum class Extra : uint8_t { kNone, kRecalls, kStops };

template <template <uint32_t> class Estimates, uint32_t kDim, AggMode kAgg, Extra kExtra, KvFormat kFormat>
__global__ void __launch_bounds__(kThreads, 1) sparse_layer_kernel(const __grid_constant__ KernelArgs k) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr bool kRecalls = kExtra == Extra::kRecalls;
  extern __shared__ uint4 memory[];
  Shared<kDim>& s = *reinterpret_cast<Shared<kDim>*>(memory);
  cluster_begin();
  const Work<kDim> w(k, s);
  const uint32_t warp = threadIdx.x / kWarp;
  const bool appends = w.rank + 1 == w.n_blocks && warp + 1 == kWarps;
  Estimates<kDim> estimates(w);
  const RowEntry entry = read_row<kRecalls>(w, w.row(threadIdx.x)),
                 open = read_row<false>(w, k.rope.append_row[w.kv_head]);
  const Rotation<kDim> rotation(w);
  estimates.load(w);
  const KvView& kv = k.attn.kv;
  const uint32_t append_row = k.rope.append_row[w.kv_head];
  const Place place = {
      open.slot, w.pos - open.first_pos, w.digest_index(append_row),
      kFormat != KvFormat::kBf16 && kv.is_open(w.kv_head, append_row) ? kv.open_page(w.kv_head, append_row) : nullptr};
  s.top.clear();
  PoolPage page;
  if constexpr (kRecalls) page = begin_recall(w);
  wait_for_previous();
  start_next();
  read_queries<Estimates>(w, rotation);
  Estimates<kDim>::prepare_queries(w);
  if (appends) {
    const FixedHead<kDim> size(kDim);
    const Turns<FixedHead<kDim>> turns(k.rope);
    NewToken<FixedHead<kDim>, kFormat> token;
    token.load(size, k.rope, k.attn.kv, w.kv_head, place);
    token.store(size, k.rope, turns, k.attn.kv, place, s.key);
  }
  __syncthreads();
  estimates.score_rows(w);
  if constexpr (kRecalls) keep_candidate(w, page);
  cluster_wait();  // all blocks have begun, so their shared memory can be written
  __syncthreads();
  if constexpr (kAgg == AggMode::kMaxZ || kAgg == AggMode::kSumProb) {
    // Warps per head: limited by the warps of a block, and by the lanes of the one warp that joins the parts of all
    // blocks. With few rows one warp per head is faster.
    const uint32_t max_parts = w.group <= kWarps / 4 && w.n_blocks <= kWarp / 4 ? 4 : 2;
    const uint32_t n_parts = w.n <= 2 * kWarp * w.n_blocks ? 1 : max_parts;
    if (warp < w.group * n_parts) push_statistics<kDim, kAgg>(w, warp / n_parts, warp % n_parts, n_parts);
    cluster_sync();
    if (warp < w.group) join_statistics<kDim, kAgg>(w, warp, w.n_blocks * n_parts);
    __syncthreads();
  }
  if constexpr (kRecalls) {
    if (w.rank == 0) push_turn(w);
  }
  push_keys<kDim, kAgg, kRecalls>(w, entry);
  cluster_sync();
  if constexpr (kExtra == Extra::kStops) {
    count_attended(w, attend_until_enough<kDim, kFormat>(w));
  } else {
    const uint32_t n_listed = list_pages<kDim, kRecalls>(w);
    if constexpr (kRecalls) {
      if (w.rank == 0 && warp + 1 == kWarps) note_recall(w);
      bring_pages<kDim, kFormat>(w, n_listed);
    }
    attend<kDim, kFormat>(w, n_listed);
  }
  __syncthreads();
  push_parts(w);
  cluster_sync();
  merge_parts(w);
#endif
}

template <uint32_t kDim>
size_t shared_bytes(const SparseLayerArgs& a, uint32_t n_blocks) {
  const AttnPagedArgs& t = a.attn.attn;
  const size_t recall = a.recall.tables.slots != nullptr ? Layout::recall_bytes(a.recall.host.most) : 0;
  const size_t stop = a.stop.microbatch != 0 && !kStopInParts<kDim> ? sizeof(StopWork) : 0;
  return sizeof(Shared<kDim>) + Layout(t.kv.capacity, n_blocks).bytes(t.n_heads / t.kv.n_kv_heads) + recall + stop;
}

size_t shared_bytes(const SparseLayerArgs& a, uint32_t n_blocks) {
  return a.attn.attn.kv.head_dim == 64 ? shared_bytes<64>(a, n_blocks) : shared_bytes<128>(a, n_blocks);
}

using Kernel = void (*)(KernelArgs);

template <template <uint32_t> class Estimates, uint32_t kDim, AggMode kAgg, Extra kExtra>
Kernel kernel_of(KvFormat format) {
  return with_kv_format(format,
                        [](auto f) -> Kernel { return sparse_layer_kernel<Estimates, kDim, kAgg, kExtra, f()>; });
}

// Sketches have kernels for kSumProb alone, boxes around quantised keys for kMaxZ: their defaults.
template <uint32_t kDim, Extra kExtra>
Kernel kernel_of(DigestKind digest, KvFormat format, AggMode agg) {
  if (digest == DigestKind::kSketch)
    return agg == AggMode::kSumProb ? kernel_of<Sketches, kDim, AggMode::kSumProb, kExtra>(format) : nullptr;
  if (format != KvFormat::kBf16 && agg != AggMode::kMaxZ) return nullptr;
  switch (agg) {
    case AggMode::kMaxZ:
      return kernel_of<Boxes, kDim, AggMode::kMaxZ, kExtra>(format);
    case AggMode::kMeanRaw:
      return sparse_layer_kernel<Boxes, kDim, AggMode::kMeanRaw, kExtra, KvFormat::kBf16>;
    case AggMode::kMaxRaw:
      return sparse_layer_kernel<Boxes, kDim, AggMode::kMaxRaw, kExtra, KvFormat::kBf16>;
    case AggMode::kSumProb:
    case AggMode::kMaxProb:
    case AggMode::kQHead:
      return nullptr;
  }
  return nullptr;
}

template <uint32_t kDim>
Kernel kernel_of(const SparseLayerArgs& a) {
  const DigestKind digest = a.attn.attn.kv.digest;
  const KvFormat format = a.attn.attn.kv.format;
  if (a.recall.tables.slots != nullptr) return kernel_of<kDim, Extra::kRecalls>(digest, format, a.select.agg);
  return a.stop.microbatch != 0 ? kernel_of<kDim, Extra::kStops>(digest, format, a.select.agg)
                                : kernel_of<kDim, Extra::kNone>(digest, format, a.select.agg);
}

// A block's scratch memory lies where the values of pages come later. The word of a page that is not in the pool says
// where its copy is in place of a slot; that there are so many rows means that a store has fewer slots than it can say.
bool has_recall(const SparseLayerArgs& a) {
  const KvView& kv = a.attn.attn.kv;
  const size_t room = kv.head_dim == 64 ? sizeof(Shared<64>::values) : sizeof(Shared<128>::values);
  const uint64_t n_slots = uint64_t{a.recall.tables.n_layers} * kv.n_kv_heads * a.recall.n_slots;
  return a.recall.rules.prompt_slots == 0 && a.recall.n_slots <= kMaxExchanged && n_slots < kAbsent &&
         a.recall.host.n_rows < kAbsent / 2 && RecallScratch(kv.capacity, a.recall).bytes <= room;
}

struct Launch {
  Kernel kernel = nullptr;
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attributes[2] = {};
};

// Prepares a launch with clusters of n_blocks. False: there is no kernel for the rule, or the device has too little
// shared memory, or it cannot run all clusters at once (a second wave would double the time).
bool prepare(const SparseLayerArgs& a, uint32_t n_blocks, Launch& out) {
  const AttnPagedArgs& t = a.attn.attn;
  out.kernel = t.kv.head_dim == 64 ? kernel_of<64>(a) : kernel_of<128>(a);
  const size_t bytes = shared_bytes(a, n_blocks);
  if (out.kernel == nullptr || bytes > device().shared_bytes) return false;
  out.config.gridDim = dim3(n_blocks * t.kv.n_kv_heads);
  out.config.blockDim = dim3(kThreads);
  out.config.dynamicSmemBytes = bytes;
  out.attributes[0].id = cudaLaunchAttributeClusterDimension;
  out.attributes[0].val.clusterDim = {n_blocks, 1, 1};
  out.attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  out.attributes[1].val.programmaticStreamSerializationAllowed = 1;
  out.config.attrs = out.attributes;
  out.config.numAttrs = a.attn.overlap ? 2 : 1;
  const auto* kernel = reinterpret_cast<const void*>(out.kernel);
  const auto max_bytes = static_cast<int>(device().shared_bytes);  // the same setting for tables of any size
  int n_clusters = 0;
  const bool asked =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, max_bytes) == cudaSuccess &&
      cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess &&
      cudaOccupancyMaxActiveClusters(&n_clusters, kernel, &out.config) == cudaSuccess;
  if (!asked) (void)cudaGetLastError();
  return asked && n_clusters >= static_cast<int>(t.kv.n_kv_heads);
}

// With the largest clusters that all fit at once. An H200 can run 7 clusters of 10 to 16 blocks, or 15 of 8.
bool prepare_largest(const SparseLayerArgs& a, Launch& out) {
  for (uint32_t n_blocks = kMaxBlocks; n_blocks >= kMinBlocks; n_blocks -= 2) {
    if (prepare(a, n_blocks, out)) return true;
  }
  return false;
}

}  // namespace

bool has_sparse_layer(const SparseLayerArgs& a) {
  const AttnPagedArgs& t = a.attn.attn;
  static_assert(WEIR_DIGEST_KINDS == 7);
  const bool has_estimates = t.kv.digest == DigestKind::kMinMax || t.kv.digest == DigestKind::kCuboidMean ||
                             t.kv.digest == DigestKind::kSketch;
  const bool plain = a.attn.append && has_estimates && (t.kv.head_dim == 64 || t.kv.head_dim == 128) &&
                     t.n_heads / t.kv.n_kv_heads <= kHeads && !t.list_per_head && t.window == 0 &&
                     t.head_windows == nullptr && t.soft_cap == 0.0f && t.page_mass == nullptr &&
                     a.attn.rope.cos_sin_sink == nullptr && a.select.candidate_flags == 0 &&
                     t.kv.capacity <= kMaxRows && (a.recall.tables.slots == nullptr || has_recall(a)) &&
                     (a.stop.microbatch == 0 || (a.stop.bound == nullptr && a.recall.tables.slots == nullptr));
  Launch launch;
  return plain && device().arch >= 90 && prepare_largest(a, launch);
}

Status sparse_layer(OpContext& cx, const SparseLayerArgs& a) {
  Launch launch;
  if (!prepare_largest(a, launch))
    return fail(WEIR_ERR_INTERNAL, "sparse_layer: no clusters of blocks for tables of %u pages",
                a.attn.attn.kv.capacity);
  launch.config.stream = stream_of(cx);
  const uint32_t* raw_index = nullptr;
  if (a.recall.tables.slots != nullptr)
    raw_index = a.recall.raw_index + (a.attn.attn.kv.slots - a.recall.tables.slots);  // they have the same rows
  const AttnPagedArgs& t = a.attn.attn;
  const StopRule stop = stop_rule(a.stop, t.n_heads / t.kv.n_kv_heads);
  const KernelArgs k = {t, a.attn.rope, a.attn.n_tokens, a.attn.pages_attended, a.select, stop, a.recall, raw_index};
  WEIR_CUDA_TRY(cudaLaunchKernelEx(&launch.config, launch.kernel, k), "sparse_layer");
  return {};
}

}  // namespace weir::cuda
