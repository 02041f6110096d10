// Decode attention over pages. Method: Dao et al., "Flash-Decoding" (splits and their merge);
// docs/algorithms.md, "Merging partial attention".
//
// A block takes a run of a stream's listed pages for all query heads of the group; its warps take the pages in turn.
// The heads are the rows of a tensor-core MMA: rows 0..7 hold the leading bf16 part of the query and rows 8..15 the
// remainder of its rounding. One MMA thus multiplies both parts, and the sum has 16 bits of the query. The weights that
// multiply the values are split in the same way. Keys and values go from memory straight to the registers of the MMA:
// which channel stands in which column does not matter as long as both operands agree.
//
// Partial results are merged in ascending order: those of a block's warps in shared memory, those of a stream's blocks
// by the last block to finish (docs/decisions/005-cuda-backend.md: why not by a cluster). How n pages are split depends
// on n alone, so that a budget that holds everything gives the bits of dense attention.
// Longer than 600 lines because it is one kernel, whose steps share what is prefetched.
#include "cuda/attn/attn_decode.cuh"

#include "cuda/attn/online_softmax.cuh"
#include "cuda/attn/rotate_append.cuh"
#include "cuda/common/device.cuh"
#include "cuda/ops.h"
#include "device/kernels/attn_decode.h"
#include "ops/attn_paged.h"
#include "ops/page_stamp.h"
#include "ops/rope_append.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kWarps = kThreads / kWarp;
// Blocks per SM: as many as its registers hold. Quantised pages take half as many registers, or fewer, on their way.
constexpr uint32_t blocks_per_processor(KvFormat format, uint32_t dim) {
  return format == KvFormat::kBf16 || dim > 128 ? 2 : 3;
}

struct KernelArgs {
  AttnDecodeArgs op;
  uint32_t n_lists;  // blockIdx.x; heads_per_list query heads each
  uint32_t heads_per_list;
  uint32_t lists_per_merge;  // lists that share one counter and one merge
  uint32_t n_splits;
  float* partial;     // [n_lists, n_splits, heads_per_list, padded head_dim]
  float* partial_ml;  // [n_lists, n_splits, heads_per_list, 2] maximum and sum of the softmax, exponents to base 2
};

// What a block works on.
struct Job {
  uint32_t list, first_head, kv_head, select_list;
  size_t table;  // of the stream
  uint32_t n;    // pages listed
  uint32_t per_split, n_active;
  uint32_t pos;             // of the query
  uint32_t window, n_sink;  // of the KV head
};

__device__ Job find_job(const KernelArgs& k) {
  const AttnPagedArgs& a = k.op.attn;
  Job job;
  job.list = blockIdx.x;
  job.first_head = job.list * k.heads_per_list;
  job.kv_head = job.first_head / (a.n_heads / a.kv.n_kv_heads);
  job.select_list = a.list_per_head ? job.first_head : job.kv_head;
  job.table = size_t{job.kv_head} * a.kv.capacity;
  job.n = a.select != nullptr ? a.n_select[job.select_list] : a.kv.n_pages[job.kv_head];
  const uint32_t even = (job.n + k.n_splits - 1) / k.n_splits;
  // A multiple of kWarps, so that all warps have the same number of pages.
  job.per_split = max(kWarps, (even + kWarps - 1) / kWarps * kWarps);
  job.n_active = max(1u, (job.n + job.per_split - 1) / job.per_split);
  job.pos = k.op.n_tokens != nullptr ? *k.op.n_tokens : a.pos;
  const bool has_own = has_own_window(a, job.kv_head);
  job.window = has_own ? a.head_windows[job.kv_head] : a.window;
  job.n_sink = has_own ? a.head_sinks : a.n_sink;
  return job;
}

// Queries beside the warps' partial results. Heads of 256 elements have no room for both: there the results take the
// queries' place, once no warp needs them any more.
template <uint32_t kDim>
struct QueriesAndSums {
  float q[2 * kHeads + 1][kDim];
  float o[kWarps][kHeads][kDim];
};
template <>
struct QueriesAndSums<256> {
  union {
    float q[2 * kHeads + 1][256];
    float o[kWarps][kHeads][256];
  };
};

// The query as the MMA's A operand, for each lane. Beside quantised pages there are no registers left for it: decoding
// needs some, and with fewer for a thread an SM has more warps, whose loads are in flight together.
template <KvFormat kFormat, uint32_t kDim>
struct Fragments {
  uint4 of_step[kDim / 16][kWarp];
};
template <uint32_t kDim>
struct Fragments<KvFormat::kBf16, kDim> {};

template <uint32_t kDim>
struct alignas(16) Shared : QueriesAndSums<kDim> {
  // Rotated queries; row kHeads is the new key if one is appended, the rows behind it are the queries for sinks.
  static constexpr uint32_t kKeyRow = kHeads, kSinkRow = kHeads + 1;
  float m[kWarps][kHeads], l[kWarps][kHeads];
  float weight[kMaxSplits][kHeads];
  float lse2[kHeads];  // log2 of the sum of exp2
  bool last;
};

__device__ Place append_place(const KernelArgs& k, const Job& job) {
  const KvView& kv = k.op.attn.kv;
  if (!k.op.append) return {};
  const uint32_t append_row = k.op.rope.append_row[job.kv_head];
  const size_t row = job.table + append_row;
  return {kv.slots[row], job.pos - kv.first_pos[row], static_cast<uint32_t>(kv.digest_index(job.kv_head, append_row)),
          kv.is_open(job.kv_head, append_row) ? kv.open_page(job.kv_head, append_row) : nullptr};
}

// What rotates a step's heads, prefetched, and the heads of this warp.
template <class Head>
struct Rotation {
  static constexpr uint32_t kPairs = LanePairs<Head>::kPairs, kEach = kHeads / kWarps;  // heads of a warp
  Turns<Head> turns;
  float2 norm[kPairs];

  __device__ Rotation(const Head& size, const RopeAppendArgs& r) : turns(r), norm{} {
    if (r.q_norm != nullptr) turns.load(size, r, r.q_norm, norm);
  }
};

// Loads the queries of the block's heads into shared memory, and zeros beyond their last element.
template <class Head>
__device__ void read_query(const Head& size, const KernelArgs& k, const Job& job, Shared<Head::kDim>& s) {
  constexpr uint32_t kDim = Head::kDim;
  const AttnPagedArgs& a = k.op.attn;
  const uint32_t d = size.dim();
  for (uint32_t i = threadIdx.x; i < k.heads_per_list * kDim; i += kThreads) {
    const bool there = size.has(i % kDim);
    const size_t from = size_t{job.first_head + i / kDim} * d + i % kDim;
    s.q[i / kDim][i % kDim] = there ? a.q[from] : 0.0f;
    if (a.q_sink != nullptr) s.q[s.kSinkRow + i / kDim][i % kDim] = there ? a.q_sink[from] : 0.0f;
  }
}

// The same from the projection's output, which is rotated on the way. If the block owns the open page, its last warp
// also stores the step's key and value there.
template <class Head, KvFormat kFormat>
__device__ void rotate_query(const Head& size, const KernelArgs& k, const Job& job, const Rotation<Head>& rotation,
                             bool owns_last_page, const Place& place, Shared<Head::kDim>& s) {
  const AttnPagedArgs& a = k.op.attn;
  const RopeAppendArgs& r = k.op.rope;
  const uint32_t warp = threadIdx.x / kWarp, d = size.dim();
  const bool sink = r.cos_sin_sink != nullptr, appends = owns_last_page && warp == kWarps - 1;
  HeadInRegisters<Head> head[rotation.kEach];
  NewToken<Head, kFormat> token;
#pragma unroll
  for (uint32_t i = 0; i < rotation.kEach; ++i) {
    const uint32_t h = warp + i * kWarps;
    if (h < k.heads_per_list) head[i].load(size, r, r.q + size_t{job.first_head + h} * d, head[i].x);
  }
  if (appends) token.load(size, r, a.kv, job.kv_head, place);
#pragma unroll
  for (uint32_t i = 0; i < rotation.kEach; ++i) {
    const uint32_t h = warp + i * kWarps;
    if (h >= k.heads_per_list) continue;
    float* sink_query = sink ? s.q[s.kSinkRow + h] : nullptr;
    head[i].store(size, r, rotation.turns, r.q_norm != nullptr, rotation.norm, s.q[h], sink_query);
    for (uint32_t c = d + threadIdx.x % kWarp; c < Head::kDim; c += kWarp) {
      s.q[h][c] = 0.0f;
      if (sink) sink_query[c] = 0.0f;
    }
  }
  if (appends) token.store(size, r, rotation.turns, a.kv, place, s.q[s.kKeyRow]);
}

// One row of the page table. The lanes of a warp prefetch one row each.
struct PageInfo {
  uint32_t row, slot, first_pos, len;
};

__device__ PageInfo read_info(const AttnPagedArgs& a, const Job& job, uint32_t listed) {
  PageInfo info = {};
  info.row = a.select != nullptr ? a.select[size_t{job.select_list} * a.kv.capacity + listed] : listed;
  const size_t at = job.table + info.row;
  info.slot = a.kv.slots[at];
  info.first_pos = a.kv.first_pos[at];
  info.len = a.kv.len[at];
  if (info.first_pos + info.len > job.pos + 1)
    info.len = job.pos + 1 > info.first_pos ? job.pos + 1 - info.first_pos : 0;
  return info;
}

__device__ PageInfo shuffle_info(const PageInfo& info, uint32_t lane) {
  return {__shfl_sync(kAllLanes, info.row, lane), __shfl_sync(kAllLanes, info.slot, lane),
          __shfl_sync(kAllLanes, info.first_pos, lane), __shfl_sync(kAllLanes, info.len, lane)};
}

template <KvFormat kFormat, class Head>
__device__ PageRows<key_format(kFormat), const uint16_t> keys_of(const Head& size, const AttnPagedArgs& a,
                                                                 const PageInfo& page) {
  return keys_at<kFormat, const uint16_t>(a.kv.pool + size_t{page.slot} * page_units<kFormat>(size.dim()), size.dim());
}
template <KvFormat kFormat, class Head>
__device__ PageRows<value_format(kFormat), const uint16_t> values_of(const Head& size, const AttnPagedArgs& a,
                                                                     const PageInfo& page) {
  return values_at<kFormat, const uint16_t>(a.kv.pool + size_t{page.slot} * page_units<kFormat>(size.dim()),
                                            size.dim());
}

// Logits of a page to base 2, kUnseen for tokens that the query does not see.
template <KvFormat kFormat, class Head, class F>
__device__ void page_logits(const Head& size, const KernelArgs& k, const Job& job, const PageInfo& page,
                            const PageKeys<key_format(kFormat), Head::kDim>& keys, const uint16_t* open,
                            const F& fragment, const Shared<Head::kDim>& s, float (&logit)[2][2]) {
  constexpr uint32_t kDim = Head::kDim;
  const AttnPagedArgs& a = k.op.attn;
  const float scale = a.scale * kLog2E;
  const uint32_t c = threadIdx.x % 4;
  const bool sink =
      page.row < a.n_sink_pages && (a.q_sink != nullptr || (k.op.append && k.op.rope.cos_sin_sink != nullptr));
  if (kFormat != KvFormat::kBf16 && open != nullptr) {
    open_page_dots(size, open, page.len, fragment, logit);
  } else {
    page_dots(size, keys, fragment, logit);
  }
  float sink_logit[2][2] = {};
  if (sink) {
    const auto sink_fragment = [&](uint32_t i, uint32_t(&out)[4]) {
      query_fragment<key_format(kFormat), kDim>(s.q + s.kSinkRow, k.heads_per_list, i, out);
    };
    if constexpr (kFormat == KvFormat::kBf16) {
      page_dots(size, keys, sink_fragment, sink_logit);
    } else if (open != nullptr) {
      open_page_dots(size, open, page.len, sink_fragment, sink_logit);
    } else {
      // Keys that were decoded for the other query would otherwise stay in registers for this rare case.
      PageKeys<key_format(kFormat), kDim> again;
      load_keys(size, keys_of<kFormat>(size, a, page), page.len, again);
      page_dots(size, again, sink_fragment, sink_logit);
    }
  }
#pragma unroll
  for (uint32_t t = 0; t < 2; ++t) {
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      const uint32_t token = t * 8 + c * 2 + e, pos = page.first_pos + token;
      if (sink && (job.window == 0 || pos < job.n_sink)) logit[t][e] = sink_logit[t][e];
      const bool seen =
          token < page.len && (job.window == 0 || pos < job.n_sink || uint64_t{pos} + job.window > job.pos);
      float scaled = logit[t][e] * scale;
      if constexpr (Head::kAny) {
        if (a.soft_cap != 0.0f) scaled = a.soft_cap * kLog2E * tanhf(logit[t][e] * (a.scale / a.soft_cap));
      }
      logit[t][e] = seen ? scaled : kUnseen;
    }
  }
}

// Writes the query's fragments, by all warps of the block. All have written their queries.
template <KvFormat kFormat, uint32_t kDim>
__device__ void write_fragments(uint32_t n_heads, const Shared<kDim>& s, Fragments<kFormat, kDim>& fragments) {
  for (uint32_t i = threadIdx.x / kWarp; i < kDim / 16; i += kWarps) {
    uint32_t a[4];
    query_fragment<key_format(kFormat), kDim>(s.q, n_heads, i, a);
    fragments.of_step[i][threadIdx.x % kWarp] = make_uint4(a[0], a[1], a[2], a[3]);
  }
  __syncthreads();
}

// What a warp prefetches of its pages.
template <KvFormat kFormat, uint32_t kDim>
struct Ahead {
  PageInfo infos;  // of the warp's next 32 pages, one per lane
  PageInfo page;   // the first of them
  PageKeys<key_format(kFormat), kDim> keys;
  PageValues<value_format(kFormat), kDim> values;
};

// The pages of this warp: `first` and every kWarps-th after it.
struct Run {
  uint32_t first, count;
};
__device__ Run pages_of_warp(const Job& job) {
  const uint32_t begin = blockIdx.y * job.per_split + threadIdx.x / kWarp,
                 end = min(job.n, (blockIdx.y + 1) * job.per_split);
  return {begin, begin < end ? (end - begin + kWarps - 1) / kWarps : 0};
}

// The page in bf16 if it takes tokens and others are quantised, or null.
template <KvFormat kFormat>
__device__ const uint16_t* open_page_of(const AttnPagedArgs& a, const Job& job, const PageInfo& page) {
  if (kFormat == KvFormat::kBf16 || page.len == kPageTokens) return nullptr;
  return a.kv.is_open(job.kv_head, page.row) ? a.kv.open_page(job.kv_head, page.row) : nullptr;
}

// Whether queries and values, besides keys and sums, fit in a thread's registers. Wider heads read the query from
// shared memory and each page's values when they are needed.
template <class Head>
constexpr bool kFitsRegisters = Head::kDim <= 128;

// Loads the table rows from page `i` of the warp on, and the first page's keys.
template <class Head, KvFormat kFormat>
__device__ void read_ahead(const Head& size, const AttnPagedArgs& a, const Job& job, const Run& run, uint32_t i,
                           Ahead<kFormat, Head::kDim>& ahead) {
  const uint32_t lane = threadIdx.x % kWarp;
  if (i + lane < run.count) ahead.infos = read_info(a, job, run.first + (i + lane) * kWarps);
  ahead.page = shuffle_info(ahead.infos, 0);
  load_keys(size, keys_of<kFormat>(size, a, ahead.page), ahead.page.len, ahead.keys);
}

// Attends the pages of this block's split, warp by warp. With `loaded` the first page is already in registers.
template <class Head, KvFormat kFormat>
__device__ void attend_split(const Head& size, const KernelArgs& k, const Job& job, const Run& run, bool loaded,
                             Ahead<kFormat, Head::kDim>& ahead, const Fragments<kFormat, Head::kDim>& fragments,
                             Shared<Head::kDim>& s) {
  constexpr uint32_t kDim = Head::kDim;
  constexpr RowFormat kKeys = key_format(kFormat), kValues = value_format(kFormat);
  constexpr bool kFits = kFitsRegisters<Head>;
  const AttnPagedArgs& a = k.op.attn;
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, head = lane / 4;
  constexpr bool kInRegisters = kFits && kFormat == KvFormat::kBf16;
  uint32_t q[kInRegisters ? kDim / 16 : 1][4];
#pragma unroll
  for (uint32_t i = 0; kInRegisters && i < kDim / 16; ++i) query_fragment<kKeys, kDim>(s.q, k.heads_per_list, i, q[i]);
  const auto fragment = [&](uint32_t i, uint32_t(&out)[4]) {
    if constexpr (kInRegisters) {
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) out[j] = q[i][j];
    } else if constexpr (kFormat != KvFormat::kBf16) {
      const uint4 a = fragments.of_step[i][lane];
      out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
    } else {
      query_fragment<kKeys, kDim>(s.q, k.heads_per_list, i, out);
    }
  };
  Running sum;
  ValueSums<kValues, kDim> acc;
  for (uint32_t i = 0; i < run.count; ++i) {
    const bool here = loaded && i == 0;
    if (i % kWarp == 0 && !here) read_ahead(size, a, job, run, i, ahead);
    if (kFits && !here) load_values(size, values_of<kFormat>(size, a, ahead.page), ahead.page.len, ahead.values);
    const uint16_t* open = open_page_of<kFormat>(a, job, ahead.page);
    float weight[2][2];
    page_logits<kFormat>(size, k, job, ahead.page, ahead.keys, open, fragment, s, weight);
    const bool more = i + 1 < run.count && (i + 1) % kWarp != 0;
    const PageInfo next = shuffle_info(ahead.infos, (i + 1) % kWarp);
    if (more) load_keys(size, keys_of<kFormat>(size, a, next), next.len, ahead.keys);
    const float mass = fold_page(weight, sum, [&](float shrink) { acc.scale(shrink); });
    if (a.page_mass != nullptr && lane % 4 == 0 && head < k.heads_per_list)
      a.page_mass[size_t{job.first_head + head} * a.kv.capacity + run.first + i * kWarps] = mass;
    const auto add_page = [&] {
      if constexpr (kFits) {
        acc.add(size, ahead.values, weight);
      } else {
        acc.load_and_add(size, values_of<kFormat>(size, a, ahead.page), ahead.page.len, weight);
      }
    };
    if constexpr (kFormat == KvFormat::kBf16) {
      add_page();
    } else if (open == nullptr) {
      add_page();
    } else {
      acc.add_open_page(size, open + kPageTokens * size.dim(), ahead.page.len, weight);
    }
    if (more) ahead.page = next;
  }
  if constexpr (!kFits) __syncthreads();  // all warps have used the queries, whose place the sums take
  if (lane % 4 == 0) {
    s.m[warp][head] = sum.m;
    s.l[warp][head] = sum.l;
  }
  acc.for_each([&](uint32_t of, uint32_t channel, float x) {
    if (of < k.heads_per_list) s.o[warp][of][channel] = x;
  });
}

// Weights that rescale the partial results of one head to a common maximum and sum, from `ml` [n, stride] and the
// head's sink (its logit to base 2, kUnseen if it has none). Executed by one warp. Returns log2 of the whole sum.
__device__ float merge_weights(uint32_t n, const float* ml, uint32_t stride, float sink, float (*weight)[kHeads],
                               uint32_t head) {
  const uint32_t lane = threadIdx.x % kWarp;
  constexpr uint32_t kEach = kMaxSplits / kWarp;
  float m[kEach], l[kEach];
  float high = sink;
#pragma unroll
  for (uint32_t j = 0; j < kEach; ++j) {
    const uint32_t i = j * kWarp + lane;
    m[j] = i < n ? __ldcg(ml + i * stride) : kUnseen;
    l[j] = i < n ? __ldcg(ml + i * stride + 1) : 0.0f;
    high = fmaxf(high, m[j]);
  }
  high = warp_max(high);
  float sum = 0.0f;
#pragma unroll
  for (uint32_t j = 0; j < kEach; ++j) {
    m[j] = m[j] == kUnseen ? 0.0f : exp2f(m[j] - high);
    sum += l[j] * m[j];
  }
  sum = warp_sum(sum);
  if (sink != kUnseen) sum += exp2f(sink - high);
#pragma unroll
  for (uint32_t j = 0; j < kEach; ++j) {
    if (j * kWarp + lane < n) weight[j * kWarp + lane][head] = sum == 0.0f ? 0.0f : m[j] / sum;
  }
  return sum == 0.0f ? kUnseen : high + log2f(sum);
}

// Turns the masses of the listed pages [begin, end) from logarithms into masses, and stamps the pages by them.
__device__ void finish_pages(const KernelArgs& k, const Job& job, uint32_t list, uint32_t begin, uint32_t end,
                             const float* lse2) {
  const AttnPagedArgs& a = k.op.attn;
  if (a.page_mass == nullptr) return;
  float* mass = a.page_mass + size_t{list * k.heads_per_list} * a.kv.capacity;
  for (uint32_t i = begin + threadIdx.x; i < end; i += kThreads) {
    float most = 0.0f;
    for (uint32_t h = 0; h < k.heads_per_list; ++h) {
      float* place = mass + size_t{h} * a.kv.capacity + i;
      const float m = __ldcg(place), value = m == kUnseen ? 0.0f : exp2f(m - lse2[h]);
      *place = value;
      most = h == 0 || most < value ? value : most;  // as page_stamp
    }
    if (!k.op.stamps) continue;
    k.op.stamp.last_score[job.table + i] = most;
    if (most > k.op.stamp.alpha || i + 1 == job.n) k.op.stamp.hit(job.table + i, job.pos + 1);
  }
}

// Rotates the outputs of a list's heads back, from s.o[0] to their place, by a warp each.
template <class Head>
__device__ void rotate_back(const Head& size, uint32_t n_heads, const Shared<Head::kDim>& s, float* out) {
  constexpr uint32_t kEach = Head::kDim / kWarp;
  for (uint32_t h = threadIdx.x / kWarp; h < n_heads; h += kWarps) {
    float x[kEach];
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) x[j] = s.o[0][h][j * kWarp + threadIdx.x % kWarp];
    rotate_row(x, size.dim());
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) {
      if (size.has(j * kWarp)) out[size_t{h} * size.dim() + j * kWarp + threadIdx.x % kWarp] = x[j];
    }
  }
}

// Output, lse and page masses of one list from its `n_parts` partial results in memory.
template <KvFormat kFormat, class Head>
__device__ void finish_list(const Head& size, const KernelArgs& k, const Job& job, uint32_t list, uint32_t n_parts,
                            Shared<Head::kDim>& s) {
  constexpr uint32_t kDim = Head::kDim;
  const AttnPagedArgs& a = k.op.attn;
  const uint32_t heads = k.heads_per_list, first_head = list * heads;
  const float* ml = k.partial_ml + size_t{list} * k.n_splits * heads * 2;
  const float* partial = k.partial + size_t{list} * k.n_splits * heads * kDim;
  // The first partial results load while their weights are computed.
  constexpr uint32_t kFirst = 16;
  const uint32_t mine = threadIdx.x * 4;
  float4 first[kFirst];
#pragma unroll
  for (uint32_t part = 0; part < kFirst; ++part) {
    if (part < n_parts && mine < heads * kDim)
      first[part] = __ldcg(reinterpret_cast<const float4*>(partial + size_t{part} * heads * kDim + mine));
  }
  __syncthreads();
  for (uint32_t h = threadIdx.x / kWarp; h < heads; h += kWarps) {
    const float sink = a.sinks != nullptr ? a.sinks[first_head + h] * kLog2E : kUnseen;
    const float lse2 = merge_weights(n_parts, ml + h * 2, heads * 2, sink, s.weight, h);
    if (threadIdx.x % kWarp != 0) continue;
    s.lse2[h] = lse2;
    if (a.lse != nullptr) a.lse[first_head + h] = lse2 * kLn2;
  }
  __syncthreads();
  for (uint32_t i = mine; i < heads * kDim; i += kThreads * 4) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    // A partial result without tokens is zeros.
    const auto add = [&](uint32_t part, const float4& v) {
      const float w = s.weight[part][i / kDim];
      sum.x += w * v.x, sum.y += w * v.y, sum.z += w * v.z, sum.w += w * v.w;
    };
    const auto load = [&](uint32_t part) {
      return __ldcg(reinterpret_cast<const float4*>(partial + size_t{part} * heads * kDim + i));
    };
#pragma unroll
    for (uint32_t part = 0; part < kFirst; ++part) {
      if (part < n_parts) add(part, i == mine ? first[part] : load(part));
    }
#pragma unroll 8
    for (uint32_t part = kFirst; part < n_parts; ++part) add(part, load(part));
    if (rotates_values(kFormat) && k.op.rotates_back) {
      *reinterpret_cast<float4*>(&s.o[0][i / kDim][i % kDim]) = sum;
    } else if (size.has(i % kDim)) {
      *reinterpret_cast<float4*>(a.out + size_t{first_head + i / kDim} * size.dim() + i % kDim) = sum;
    }
  }
  if (rotates_values(kFormat) && k.op.rotates_back) {
    __syncthreads();
    rotate_back(size, heads, s, a.out + size_t{first_head} * size.dim());
  }
  finish_pages(k, job, list, 0, job.n, s.lse2);
}

// Counts this block in. What its threads wrote before their barrier is visible to the block that counts last, after
// that block's next barrier.
__device__ uint32_t arrive(uint32_t* counter) {
  uint32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

// Merges the warps' partial results into the block's: s.o[0], s.m[0], s.l[0].
template <uint32_t kDim>
__device__ void merge_warps(uint32_t heads, Shared<kDim>& s) {
  if (threadIdx.x < heads) {
    const uint32_t h = threadIdx.x;
    float high = kUnseen, sum = 0.0f;
    for (uint32_t w = 0; w < kWarps; ++w) high = fmaxf(high, s.m[w][h]);
    for (uint32_t w = 0; w < kWarps; ++w) {
      const float share = high == kUnseen ? 0.0f : exp2f(s.m[w][h] - high);
      sum += share * s.l[w][h];
      s.weight[w][h] = share;
    }
    s.m[0][h] = high;
    s.l[0][h] = sum;
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < heads * kDim; i += kThreads) {
    float sum = 0.0f;
#pragma unroll
    for (uint32_t w = 0; w < kWarps; ++w) sum += s.weight[w][i / kDim] * s.o[w][i / kDim][i % kDim];
    s.o[0][i / kDim][i % kDim] = sum;
  }
}

template <class Head, KvFormat kFormat>
__global__ void __launch_bounds__(kThreads, blocks_per_processor(kFormat, Head::kDim))
    attn_decode_kernel(const __grid_constant__ KernelArgs k) {
  constexpr uint32_t kDim = Head::kDim;
  const Head size(k.op.attn.kv.head_dim);
  __shared__ Shared<kDim> s;
  __shared__ Fragments<kFormat, kDim> fragments;
  // With append and without a selection the previous kernel is the QKV GEMV, which lets this kernel start only after
  // its own wait: the page tables and all pages but the open one are complete then, and can be read before this
  // kernel's wait. The lists of a selection are not complete, and without append the previous kernel may be any.
  const bool early = k.op.append && k.op.attn.select == nullptr;
  if (!early) wait_for_previous();
  const Job job = find_job(k);
  if (blockIdx.y >= job.n_active) return;
  const Run run = pages_of_warp(job);
  Ahead<kFormat, kDim> ahead = {};
  const bool loaded = early && run.count > 0 && run.first + 1 != job.n;  // not the page that is appended to
  if (loaded) {
    read_ahead(size, k.op.attn, job, run, 0, ahead);
    if constexpr (kFitsRegisters<Head>)
      load_values(size, values_of<kFormat>(size, k.op.attn, ahead.page), ahead.page.len, ahead.values);
  }
  const Place place = append_place(k, job);
  if (k.op.append) {
    const Rotation<Head> rotation(size, k.op.rope);
    if (early) wait_for_previous();
    start_next();
    rotate_query<Head, kFormat>(size, k, job, rotation, blockIdx.y + 1 == job.n_active, place, s);
  } else {
    start_next();
    read_query(size, k, job, s);
  }
  __syncthreads();
  if constexpr (kFormat != KvFormat::kBf16) write_fragments<kFormat, kDim>(k.heads_per_list, s, fragments);
  attend_split(size, k, job, run, loaded, ahead, fragments, s);
  __syncthreads();
  const uint32_t heads = k.heads_per_list, merge = job.list / k.lists_per_merge;
  merge_warps<kDim>(heads, s);
  __syncthreads();
  float* partial = k.partial + (size_t{job.list} * k.n_splits + blockIdx.y) * heads * kDim;
  for (uint32_t i = threadIdx.x; i < heads * kDim; i += kThreads) __stcg(partial + i, s.o[0][i / kDim][i % kDim]);
  if (threadIdx.x < heads) {
    float* ml = k.partial_ml + (size_t{job.list} * k.n_splits + blockIdx.y) * heads * 2 + threadIdx.x * 2;
    __stcg(ml, s.m[0][threadIdx.x]);
    __stcg(ml + 1, s.l[0][threadIdx.x]);
  }
  __syncthreads();
  if (threadIdx.x == 0) s.last = arrive(k.op.counters + merge) + 1 == job.n_active * k.lists_per_merge;
  __syncthreads();
  if (!s.last) return;
  for (uint32_t i = 0; i < k.lists_per_merge; ++i)
    finish_list<kFormat>(size, k, job, merge * k.lists_per_merge + i, job.n_active, s);
  if (threadIdx.x == 0) {
    k.op.counters[merge] = 0;
    if (k.op.pages_attended != nullptr) atomicAdd(k.op.pages_attended, static_cast<unsigned long long>(job.n));
  }
}

// Query heads of a list: the whole group if it fits, otherwise its largest divisor that does.
uint32_t heads_per_list(const AttnPagedArgs& a) {
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  if (a.list_per_head) return 1;
  uint32_t heads = group < kHeads ? group : kHeads;
  while (group % heads != 0) --heads;
  return heads;
}

// As many splits as give blocks for all SMs at once. All blocks take equally long when every split has work, so a
// second wave of blocks would leave most of the device idle.
uint32_t splits_of(const KvView& kv, uint32_t n_lists) {
  const uint32_t splits =
      blocks_per_processor(kv.format, padded_head_dim(kv.head_dim)) * device().n_processors / n_lists;
  return splits < 1 ? 1 : splits > kMaxSplits ? kMaxSplits : splits;
}

}  // namespace

uint64_t attn_decode_scratch_bytes(const OpShapes& shapes) {
  // Lists times heads per list is n_heads, and there are at most kMaxSplits splits.
  return uint64_t{shapes.n_heads} * kMaxSplits * (padded_head_dim(shapes.head_dim) + 2) * sizeof(float);
}

bool attn_decode_can_stamp(const AttnPagedArgs& a, const PageStampArgs& stamp) {
  return stamp.rule == StampRule::kAlpha && a.select == nullptr && a.page_mass != nullptr &&
         heads_per_list(a) == a.n_heads / a.kv.n_kv_heads;
}

Status attn_decode(OpContext& cx, const AttnDecodeArgs& a) {
  WEIR_TRY(check_heads(a.attn.kv));
  KernelArgs k = {};
  k.op = a;
  k.heads_per_list = heads_per_list(a.attn);
  k.n_lists = a.attn.n_heads / k.heads_per_list;
  k.lists_per_merge = a.attn.list_per_head ? 1 : a.attn.n_heads / a.attn.kv.n_kv_heads / k.heads_per_list;
  k.n_splits = splits_of(a.attn.kv, k.n_lists);
  k.partial = reinterpret_cast<float*>(a.scratch);
  k.partial_ml = k.partial + size_t{a.attn.n_heads} * k.n_splits * padded_head_dim(a.attn.kv.head_dim);
  return with_kv_format(a.attn.kv.format, [&](auto format) {
    return with_head_size(a.attn.kv.head_dim, a.attn.soft_cap == 0.0f, [&](auto size) {
      return launch("attn_decode", attn_decode_kernel<decltype(size), format()>, dim3(k.n_lists, k.n_splits),
                    dim3(kThreads), 0, stream_of(cx), a.overlap, k);
    });
  });
}

}  // namespace weir::cuda
