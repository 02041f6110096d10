// Computes: recall of a decode step in one layer, as lib/policy/rules.cpp does it on the host, ties included; and the
// copies between the pool and the host's memory that recall needs elsewhere.
// Launch: page_recall is two kernels, for layers that sparse_layer.cu does not take. The choice has a block for each
// stream of the layer. The copies have a block for each page that can come back; a block without a page ends at once.
// Traffic: the pages that come back cross the bus once, 16 bytes a thread.
// Paper: Chen et al., "ArkVale", NeurIPS 2024, sec. 4; docs/algorithms.md, "ArkVale".
#include "cuda/pages/page_recall.cuh"

#include <algorithm>

#include "cuda/common/device.cuh"
#include "cuda/pages/page_digest.cuh"
#include "cuda/pages/page_sketch.cuh"
#include "cuda/pages/recall_parts.cuh"
#include "device/kernels/copies.h"
#include "device/kernels/fill.h"
#include "device/kernels/page_recall.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kChoose = kExchangeThreads;
constexpr uint32_t kCopy = 256;        // threads of a block
constexpr uint32_t kVector = 16;       // bytes
constexpr size_t kFixedShared = 2048;  // at least what the choice takes besides its lists

struct Warps {
  uint32_t n[kChoose / kWarp];
};

// The number of `n`s of the threads before this one, and of all. Executed by the block; it may be called again after a
// barrier.
__device__ uint32_t sum_before(uint32_t n, Warps& warps, uint32_t& all) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  uint32_t sum = n;
#pragma unroll
  for (uint32_t i = 1; i < kWarp; i *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, sum, i);
    sum += lane >= i ? other : 0u;
  }
  if (lane == kWarp - 1) warps.n[warp] = sum;
  __syncthreads();
  uint32_t before = sum - n;
  all = 0;
#pragma unroll
  for (uint32_t w = 0; w < kChoose / kWarp; ++w) {
    before += w < warp ? warps.n[w] : 0u;
    all += warps.n[w];
  }
  return before;
}

// Leaves in a list of n rows, ascending, those whose pages are in the pool.
__device__ void keep_resident(const DeviceStream& s, uint32_t n, uint32_t* list, uint32_t* n_list, Warps& warps) {
  uint32_t done = 0;
  for (uint32_t first = 0; first < n; first += kChoose) {
    const uint32_t i = first + threadIdx.x, row = i < n ? list[i] : 0;
    const bool is_there = i < n && s.slots[row] != kNoSlot;
    uint32_t all = 0;
    const uint32_t before = sum_before(is_there ? 1 : 0, warps, all);
    if (is_there) list[done + before] = row;
    done += all;
    __syncthreads();
  }
  if (threadIdx.x == 0) *n_list = done;
}

// Lists the rows with a bit set, ascending.
__device__ void list_rows(const uint32_t* rows, uint32_t n_rows, uint32_t* list, uint32_t* n_list, Warps& warps) {
  uint32_t done = 0;
  for (uint32_t first = 0; first < resident_words(n_rows); first += kChoose) {
    const uint32_t word = first + threadIdx.x;
    uint32_t bits = word < resident_words(n_rows) ? rows[word] : 0, all = 0;
    uint32_t at = done + sum_before(__popc(bits), warps, all);
    for (; bits != 0; bits &= bits - 1) list[at++] = word * 32 + __ffs(static_cast<int>(bits)) - 1;
    done += all;
    __syncthreads();
  }
  if (threadIdx.x == 0) *n_list = done;
}

__global__ void __launch_bounds__(kChoose) choose_kernel(const PageRecallArgs a) {
  extern __shared__ Candidate candidates[];
  __shared__ RecallCounts counts;
  __shared__ Warps warps;
  __shared__ PartsScratch parts;
  const uint32_t kv_head = blockIdx.x, stream = a.layer * a.tables.n_kv_heads + kv_head;
  const size_t most = max_wanted(a.rules, a.n_slots);
  Candidate* const sorted = candidates + most + a.n_slots;
  RecallLists lists = {candidates, candidates + most, sorted, sorted + a.host.most,
                       reinterpret_cast<uint32_t*>(sorted + 2 * a.host.most)};
  if (threadIdx.x == 0) counts = {};
  for (uint32_t i = threadIdx.x; i < resident_words(a.capacity); i += kChoose) lists.is_wanted[i] = 0;
  __syncthreads();
  wait_for_previous();
  start_next();
  const DeviceStream s = stream_at(a, stream);
  uint32_t* const list = a.select + size_t{kv_head} * a.capacity;
  PromptPages prompt = {0, 0};
  if (a.rules.prompt_slots != 0) {
    prompt = want_by_parts(a, s, lists, parts);
    list_rows(lists.is_wanted, s.n_pages, list, a.n_select + kv_head, warps);
    __syncthreads();
  }
  const uint32_t n = a.n_select[kv_head], now = a.state->n_tokens + 1;
  const bool is_late = *static_cast<volatile uint32_t*>(&a.state->is_late) != 0;
  const bool exchanges = !a.only_lists && !is_late, repeats = exchanges && a.heads[stream].now == now;
  if (exchanges) {
    for (uint32_t i = threadIdx.x; i < n; i += kChoose) {
      const uint32_t row = list[i];
      collect_wanted(a, s, row, s.slots[row] == kNoSlot, now, !repeats, lists, counts);
    }
  }
  __syncthreads();
  if (counts.n_wanted != 0) {
    RecallEntry* const entries = a.entries + size_t{stream} * a.host.most;
    if (a.rules.prompt_slots != 0) {
      choose_by_parts(a, s, prompt, lists, counts, entries);
    } else {
      choose_exchange(a, s, lists, counts);
      for (uint32_t i = threadIdx.x; i < counts.n_back; i += kChoose) entries[i] = entry_of(a, s, lists, i);
    }
    __syncthreads();
    if (threadIdx.x < kWarp && counts.n_back != 0) note_exchange(a, s, now, entries, counts);
  }
  // Nothing is to be copied for a step that is repeated: its pages are in the pool.
  if (threadIdx.x == 0) a.heads[stream] = {exchanges ? now : a.heads[stream].now, counts.n_back};
  __syncthreads();
  if (a.rules.attend_wanted) {
    keep_resident(s, n, list, a.n_select + kv_head, warps);
  } else {
    list_rows(s.resident, s.n_pages, list, a.n_select + kv_head, warps);
  }
}

__global__ void __launch_bounds__(kCopy) fetch_kernel(const PageRecallArgs a) {
  __shared__ bool came;
  wait_for_previous();
  start_next();
  const uint32_t i = blockIdx.x, kv_head = blockIdx.y, stream = a.layer * a.tables.n_kv_heads + kv_head;
  if (i >= a.heads[stream].n) return;
  const RecallEntry entry = a.entries[size_t{stream} * a.host.most + i];
  const bool is_raw = entry.copy != kCopyElsewhere;
  if (threadIdx.x == 0) came = is_raw || wait_for_host(a, kv_head, a.state->n_tokens + 1);
  __syncthreads();
  if (!came) return;
  const std::byte* bytes = is_raw ? a.host.raw_pages + size_t{entry.copy} * a.page_bytes : sent_page(a, kv_head, i);
  copy_page(bytes, a.pool + size_t{entry.slot} * (a.page_bytes / sizeof(uint16_t)), a.page_bytes, threadIdx.x, kCopy);
}

__global__ void __launch_bounds__(kCopy) spoil_kernel(const SpoilLostArgs a) {
  const uint32_t stream = blockIdx.x;
  if (a.tables.window[stream] != 0) return;
  const size_t first = a.tables.row_begin[stream];
  for (uint32_t row = threadIdx.x; row < a.tables.n_pages[stream]; row += kCopy) {
    if (a.tables.slots[first + row] == kNoSlot && a.raw_index[first + row] == kNoCopy)
      spoil_digest(a.digests + (first + row) * a.digest_elements, a.digest_elements, 0, 1);
  }
}

// The bits of the rows in the pool, after the host has changed the tables.
__global__ void __launch_bounds__(kCopy) resident_kernel(const KvTables t, uint32_t* resident, uint32_t words) {
  const uint32_t stream = blockIdx.x;
  const size_t first = t.row_begin[stream];
  for (uint32_t word = threadIdx.x; word < words; word += kCopy) {
    uint32_t bits = 0;
    for (uint32_t row = word * 32; row < min(word * 32 + 32, t.n_pages[stream]); ++row)
      bits |= t.slots[first + row] != kNoSlot ? 1u << row % 32 : 0u;
    resident[size_t{stream} * words + word] = bits;
  }
}

__global__ void __launch_bounds__(kCopy)
    row_out_kernel(const KvTables t, uint32_t row, const uint16_t* pool, uint32_t page_bytes, std::byte* pages) {
  const uint32_t stream = blockIdx.x;
  const size_t first = t.row_begin[stream];
  // The pages of a window follow each other.
  const uint32_t at = t.window[stream] == 0 ? row : row - t.first_pos[first] / kPageTokens;
  if (at >= t.n_pages[stream]) return;
  const uint32_t slot = t.slots[first + at];
  const auto* in = reinterpret_cast<const uint4*>(pool) + size_t{slot} * (page_bytes / kVector);
  auto* out = reinterpret_cast<uint4*>(pages + size_t{stream} * page_bytes);
  for (uint32_t i = threadIdx.x; i < page_bytes / kVector; i += kCopy) out[i] = in[i];
}

__global__ void __launch_bounds__(kCopy)
    pages_kernel(uint16_t* pool, uint32_t page_bytes, std::byte* pages, const uint32_t* slots, bool in) {
  const uint32_t slot = read_host(slots + blockIdx.x);
  uint16_t* const page = pool + size_t{slot} * (page_bytes / sizeof(uint16_t));
  std::byte* const other = pages + size_t{blockIdx.x} * page_bytes;
  if (in) {
    copy_page(other, page, page_bytes, threadIdx.x, kCopy);
  } else {
    copy_page(reinterpret_cast<const std::byte*>(page), reinterpret_cast<uint16_t*>(other), page_bytes, threadIdx.x,
              kCopy);
  }
}

__global__ void __launch_bounds__(kCopy) unit_kernel(const LoadUnitArgs a) {
  const uint32_t at = blockIdx.y * kSplitPages + blockIdx.x;
  const uint32_t page = read_host(a.host.page_slots + at), index = page & ((1u << UnitPage::kBits) - 1);
  uint16_t* const to = a.window + size_t{at} * (a.page_bytes / sizeof(uint16_t));
  if (threadIdx.x == 0) {
    a.slots[at] = at;
    a.first_pos[at] = read_host(a.host.unit_pos + at);
    a.len[at] = read_host(a.host.unit_len + at);
    if (blockIdx.x == 0) a.n_pages[blockIdx.y] = kSplitPages;
  }
  switch (static_cast<UnitPage::Where>(page >> UnitPage::kBits)) {
    case UnitPage::kInPool: {
      const auto* in = reinterpret_cast<const uint4*>(a.pool) + size_t{index} * (a.page_bytes / kVector);
      auto* out = reinterpret_cast<uint4*>(to);
      for (uint32_t i = threadIdx.x; i < a.page_bytes / kVector; i += kCopy) out[i] = in[i];
      break;
    }
    case UnitPage::kRaw:
      copy_page(a.host.raw_pages + size_t{index} * a.page_bytes, to, a.page_bytes, threadIdx.x, kCopy);
      break;
    case UnitPage::kStaged:
      copy_page(a.host.pages + size_t{index} * a.page_bytes, to, a.page_bytes, threadIdx.x, kCopy);
      break;
    case UnitPage::kLostPage:
      break;
  }
}

__global__ void merge_kernel(const MergeUnitArgs a) {
  const uint32_t row = blockIdx.x;
  const float before = a.lse[row], more = a.unit_lse[row], high = fmaxf(before, more);
  const float share = before == -INFINITY ? 0.0f : expf(before - high);
  const float unit_share = more == -INFINITY ? 0.0f : expf(more - high), sum = share + unit_share;
  __syncthreads();
  if (sum == 0.0f) return;
  const float weight = share / sum, unit_weight = unit_share / sum;
  for (uint32_t i = threadIdx.x; i < a.head_dim; i += blockDim.x) {
    const size_t at = size_t{row} * a.head_dim + i;
    // What saw nothing may hold anything.
    const float x = weight == 0.0f ? 0.0f : weight * a.out[at];
    a.out[at] = unit_weight == 0.0f ? x : x + unit_weight * a.unit_out[at];
  }
  if (threadIdx.x == 0) a.lse[row] = high + logf(sum);
}

__device__ uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Sums of four uniform numbers, so that about 2.7 bits of each exponent are news, as in models' keys and values.
__device__ float noise_element(const FillRowArgs& a, uint32_t stream, uint32_t i) {
  const uint64_t z = mix(a.seed + (uint64_t{stream} * 2 * kPageTokens * a.head_dim + i + 1) * 0x9E3779B97F4A7C15u);
  const float sum = static_cast<float>((z & 0xFFFFu) + (z >> 16 & 0xFFFFu) + (z >> 32 & 0xFFFFu) + (z >> 48));
  const float scale = i % 3 == 0 ? 0.5f : i % 3 == 1 ? 1.0f : 2.0f;
  return (sum * 0x1p-16f - 2.0f) * scale;
}

template <KvFormat kFormat>
__global__ void __launch_bounds__(kCopy) fill_row_kernel(const FillRowArgs a) {
  const uint32_t stream = blockIdx.x, d = a.head_dim, slot = read_host(a.slots + stream);
  constexpr bool kIsBf16 = kFormat == KvFormat::kBf16;
  uint16_t* const page = a.pool + size_t{slot} * page_units<kFormat>(d);
  for (uint32_t i = threadIdx.x; i < 2 * kPageTokens * d; i += kCopy) {
    const float x = noise_element(a, stream, i);
    if constexpr (kIsBf16) {
      page[i] = float_to_bf16(x);
    } else {  // each warp has a block of a row
      static_assert(kScaleElements == kWarp);
      const uint32_t row = i / d, block = i % d / kScaleElements;
      if (row < kPageTokens) store_block(keys_at<kFormat>(page, d), row, block, x);
      if (row >= kPageTokens) store_block(values_at<kFormat>(page, d), row - kPageTokens, block, x);
    }
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < page_units<kFormat>(d); i += kCopy)
    a.pages[size_t{stream} * page_units<kFormat>(d) + i] = page[i];
  if (a.digest == DigestKind::kNone || a.digest == DigestKind::kSphereMean || a.tables.window[stream] != 0) return;
  uint16_t* const digest = a.digests + (size_t{a.tables.row_begin[stream]} + a.row) * a.digest_elements;
  const uint16_t* const filled = page;
  const auto keys = keys_at<kFormat>(filled, d);
  if (a.digest == DigestKind::kSketch) return sketch_page_by_block<kCopy>(keys, d, digest);
  for (uint32_t i = threadIdx.x; i < d; i += kCopy) digest_channel(a.digest, PageChannel(keys, i), d, i, digest);
}

}  // namespace

size_t page_recall_shared_bytes(const StepRules& rules, uint32_t n_slots, uint32_t capacity) {
  const size_t n_candidates = max_wanted(rules, n_slots) + n_slots + 2 * size_t{rules.recall_pages};
  return kFixedShared + n_candidates * sizeof(Candidate) + resident_words(capacity) * sizeof(uint32_t);
}

Status page_recall(OpContext& cx, const PageRecallArgs& a) {
  const size_t shared = page_recall_shared_bytes(a.rules, a.n_slots, a.capacity) - kFixedShared;
  if (shared > 40 * 1024) {
    const auto most = static_cast<int>(device().shared_bytes - kFixedShared);  // one setting for tables of any size
    WEIR_CUDA_TRY(cudaFuncSetAttribute(choose_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
                  "page_recall");
  }
  WEIR_TRY(
      launch("page_recall", choose_kernel, dim3(a.tables.n_kv_heads), dim3(kChoose), shared, stream_of(cx), true, a));
  if (a.only_lists) return {};
  return launch("page_fetch", fetch_kernel, dim3(a.host.most, a.tables.n_kv_heads), dim3(kCopy), 0, stream_of(cx), true,
                a);
}

Status spoil_lost(OpContext& cx, const SpoilLostArgs& a) {
  const uint32_t n_streams = a.tables.n_layers * a.tables.n_kv_heads;
  return launch("spoil_lost", spoil_kernel, dim3(n_streams), dim3(kCopy), 0, stream_of(cx), false, a);
}

Status mark_resident(OpContext& cx, const KvTables& t, uint32_t* resident, uint32_t max_capacity) {
  return launch("mark_resident", resident_kernel, dim3(t.n_layers * t.n_kv_heads), dim3(kCopy), 0, stream_of(cx), false,
                t, resident, resident_words(max_capacity));
}

Status copy_row_out(OpContext& cx, const KvTables& t, uint32_t row, const uint16_t* pool, uint32_t page_bytes,
                    std::byte* pages) {
  return launch("copy_row_out", row_out_kernel, dim3(t.n_layers * t.n_kv_heads), dim3(kCopy), 0, stream_of(cx), false,
                t, row, pool, page_bytes, pages);
}

Status copy_pages(OpContext& cx, uint16_t* pool, uint32_t page_bytes, std::byte* pages, const uint32_t* slots,
                  uint32_t n, bool in) {
  if (n == 0) return {};
  return launch("copy_pages", pages_kernel, dim3(n), dim3(kCopy), 0, stream_of(cx), false, pool, page_bytes, pages,
                slots, in);
}

Status load_unit(OpContext& cx, const LoadUnitArgs& a) {
  return launch("load_unit", unit_kernel, dim3(kSplitPages, a.n_kv_heads), dim3(kCopy), 0, stream_of(cx), false, a);
}

Status merge_unit(OpContext& cx, const MergeUnitArgs& a) {
  return launch("merge_unit", merge_kernel, dim3(a.n_rows), dim3(128), 0, stream_of(cx), false, a);
}

Status fill_row(OpContext& cx, const FillRowArgs& a) {
  const uint32_t n_streams = a.tables.n_layers * a.tables.n_kv_heads;
  return with_kv_format(a.format, [&](auto format) {
    return launch("fill_row", fill_row_kernel<format()>, dim3(n_streams), dim3(kCopy), 0, stream_of(cx), false, a);
  });
}

}  // namespace weir::cuda
