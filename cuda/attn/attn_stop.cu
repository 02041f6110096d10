// Computes: which pages a decode step attends until it has seen enough (lib/ops/attn_progressive_ref.cpp), as lists,
// and attention over them by attn_decode.
// Method: a block has a KV head and takes pages in rounds (stop_rounds.cuh). Each of its warps takes the sums of one
// page at a time, from its keys alone; values are read for pages of the list only, by attn_decode, which reads the keys
// once more. So this kernel has one SM's share of the memory's bandwidth for each KV head: it is for what sparse_layer
// does not have, not for speed.
// Launch: a block per KV head; then attn_decode.
// Numerics: keys in bf16 (or as kv_decode.cuh makes them), queries as sums of two bf16, sums in f32. Logarithms are to
// base 2.
// Assumes: groups of at most kMaxGroup; the table's keys in shared memory.
// Paper: as stop_rounds.cuh.
#include "cuda/attn/attn_stop.cuh"

#include "cuda/attn/attn_decode.cuh"
#include "cuda/attn/online_softmax.cuh"
#include "cuda/attn/stop_rounds.cuh"
#include "device/kernels/attn_decode.h"
#include "device/kernels/attn_stop.h"
#include "ops/attn_paged.h"
#include "ops/attn_stop.h"

namespace weir::cuda {
namespace {

using namespace sparse;

constexpr uint32_t kThreads = 512, kWarps = kThreads / kWarp;
constexpr uint32_t kFullRow = 1u << 31;  // in the word of a full page, beside its row
constexpr uint32_t kMaxGroup = 32;       // progress_of has a lane for each head

struct KernelArgs {
  AttnStopArgs op;
  StopRule rule;
  uint32_t group;
};

template <uint32_t kDim>
struct alignas(16) Shared {
  SharedKeysScratch<kThreads> top;
  StopWork t;  // of its two arrays of sums the second has what is left behind each page
  HeadSeen seen[kMaxGroup];
  uint32_t high[kWarps], n_forced[kWarps];
};

extern __shared__ uint4 shared_memory[];  // Shared, then the keys of all rows, then the queries

// Query heads, as rows of MMAs.
constexpr uint32_t query_rows(uint32_t group) { return (group + kHeads - 1) / kHeads * kHeads; }
constexpr size_t key_words(uint32_t capacity) { return (size_t{capacity} + 3) / 4 * 4; }

// Words of a stream's pages, by row.
struct RowWords {
  const uint32_t* len;
  __device__ uint32_t operator[](uint32_t row) const { return row | (len[row] == kPageTokens ? kFullRow : 0); }
};

template <class Head, KvFormat kFormat>
struct Stream {
  static constexpr uint32_t kDim = Head::kDim;
  const KernelArgs& k;
  const AttnPagedArgs& a;
  const Head size;
  Shared<kDim>& s;
  uint32_t* keys;
  float (*q)[kDim];     // [query_rows(group)]
  uint32_t kv_head, n;  // n: rows in use
  size_t table;         // of the stream

  __device__ explicit Stream(const KernelArgs& args)
      : k(args),
        a(args.op.attn.attn),
        size(a.kv.head_dim),
        s(*reinterpret_cast<Shared<kDim>*>(shared_memory)),
        keys(reinterpret_cast<uint32_t*>(&s + 1)),
        q(reinterpret_cast<float (*)[kDim]>(keys + key_words(a.kv.capacity))),
        kv_head(blockIdx.x),
        n(a.kv.n_pages[kv_head]),
        table(size_t{kv_head} * a.kv.capacity) {}

  __device__ bool is_forced(uint32_t row) const {
    const AttnStop& stop = k.op.stop;
    return row + 1 == n || row < stop.n_sink_pages || (stop.flags[table + row] & kPageKept) != 0;
  }

  __device__ float logit(float dot) const {
    if (a.soft_cap != 0.0f) return a.soft_cap * kLog2E * tanhf(dot * (a.scale / a.soft_cap));
    return dot * (a.scale * kLog2E);
  }

  // A stream with a window of its own is attended whole, by attn_decode.
  __device__ void list_all() const {
    for (uint32_t row = threadIdx.x; row < n; row += kThreads) k.op.select[table + row] = row;
    if (threadIdx.x == 0) k.op.n_select[kv_head] = n;
  }

  // Writes the keys of all rows, the queries, and what has been seen of no page.
  __device__ void begin() const {
    const uint32_t warp = threadIdx.x / kWarp;
    uint32_t high = 0, n_forced = 0;
    for (uint32_t row = threadIdx.x; row < (n + 3) / 4 * 4; row += kThreads) {
      const bool is_row = row < n, forced = is_row && is_forced(row);
      const uint32_t key = !is_row ? kKeyNever : forced ? kKeyAlways : key_of_score(k.op.stop.rank[table + row]);
      keys[row] = key;
      high = forced ? high : max(high, key);
      n_forced += forced ? 1 : 0;
    }
    // All lanes of the warp have come together again.
    __syncwarp();
    high = max_of_lanes(high);
    n_forced = sum_of_lanes(n_forced);
    if (threadIdx.x % kWarp == 0) s.high[warp] = high, s.n_forced[warp] = n_forced;
    const uint32_t d = size.dim(), first_head = kv_head * k.group;
    for (uint32_t i = threadIdx.x; i < k.group * kDim; i += kThreads) {
      const uint32_t c = i % kDim;
      q[i / kDim][c] = c < d ? a.q[size_t{first_head + i / kDim} * d + c] : 0.0f;
    }
    if (threadIdx.x < k.group) s.seen[threadIdx.x] = HeadSeen();
    s.top.clear();
    __syncthreads();
  }

  __device__ PagesLeft pages_left() const {
    uint32_t high = 0, n_forced = 0;
    for (uint32_t w = 0; w < kWarps; ++w) high = max(high, s.high[w]), n_forced += s.n_forced[w];
    const uint32_t n_others = n - n_forced, budget = k.op.max_pages;
    return {high, n_forced, n_others, n_forced + min(n_others, budget - min(budget, n_forced))};
  }

  // Writes a page's sum for each head, by one warp.
  __device__ void sum_page(uint32_t place) const {
    const uint32_t row = s.t.page[place] & ~kFullRow, lane = threadIdx.x % kWarp;
    const uint16_t* page = a.kv.pool + size_t{a.kv.slots[table + row]} * page_units<kFormat>(size.dim());
    const uint32_t len = a.kv.len[table + row];
    PageKeys<key_format(kFormat), kDim> in;
    load_keys(size, keys_at<kFormat>(page, size.dim()), len, in);
#pragma unroll 1
    for (uint32_t first = 0; first < k.group; first += kHeads) {
      const uint32_t heads = min(kHeads, k.group - first);
      float weight[2][2];
      const auto fragment = [&](uint32_t i, uint32_t(&out)[4]) {
        query_fragment<key_format(kFormat), kDim>(q + first, heads, i, out);
      };
      if (kFormat != KvFormat::kBf16 && a.kv.is_open(kv_head, row)) {
        open_page_dots(size, a.kv.open_page(kv_head, row), len, fragment, weight);
      } else {
        page_dots(size, in, fragment, weight);
      }
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t token = i / 2 * 8 + lane % 4 * 2 + i % 2;
        weight[i / 2][i % 2] = token < len ? logit(weight[i / 2][i % 2]) : kUnseen;
      }
      Running of_page;
      const float sum = fold_page(weight, of_page, [](float) {});
      if (lane % 4 == 0 && lane / 4 < heads) s.t.lse[0][(first + lane / 4) * k.rule.most + place] = sum;
    }
  }

  // What a page has of a head's sum at most.
  __device__ float most_of(uint32_t head, uint32_t row) const {
    const float dot = k.op.stop.bound[size_t{kv_head * k.group + head} * a.kv.capacity + row];
    return logit(dot) + log2f(static_cast<float>(a.kv.len[table + row]));
  }

  // Takes the sums of a round's `n_round` pages, the last that were taken, and looks.
  __device__ Progress see_round(uint32_t n_round) const {
    const uint32_t warp = threadIdx.x / kWarp;
    for (uint32_t place = warp; place < n_round; place += kWarps) sum_page(place);
    __syncthreads();
#pragma unroll 1
    for (uint32_t head = warp; head < k.group; head += kWarps) {
      const float* lse = s.t.lse[0] + head * k.rule.most;
      float* rest = s.t.lse[1] + head * k.rule.most;
      if (k.rule.by_bounds && s.seen[head].done_at == kNotDone) {
        bound_rest(
            keys, n, n_round, [&](uint32_t row) { return most_of(head, row); },
            [&](uint32_t place) { return most_of(head, s.t.page[place] & ~kFullRow); }, rest);
        __syncwarp();
      }
      look(k.rule, s.t, s.seen[head], lse, k.rule.by_bounds ? rest : nullptr, n_round, n);
    }
    __syncthreads();
    return progress_of(k.rule, s.seen, k.group);
  }

  // Writes the list of the rows that were taken, but not of those of the last round, of `n_round` pages, that turned
  // out to be too many.
  __device__ void write_list(uint32_t n_round, uint32_t n_attended) const {
    const uint32_t before = s.t.left.n_taken - n_round;
    for (uint32_t i = threadIdx.x; i < n_round; i += kThreads) {
      if (before + i >= n_attended) keys[s.t.page[i] & ~kFullRow] = kKeyAlways;  // not taken
    }
    __syncthreads();
    for (uint32_t row = threadIdx.x; row < n; row += kThreads)
      keys[row] = keys[row] == kKeyNever ? kKeyAlways : kKeyNever;
    __syncthreads();
    uint32_t* list = k.op.select + table;
    take_shared_rows(keys, n, {kKeyAlways, n_attended}, s.top,
                     [&](uint32_t row, uint32_t place) { list[place] = row; });
    if (threadIdx.x == 0) k.op.n_select[kv_head] = n_attended;
  }
};

template <class Head, KvFormat kFormat>
__global__ void __launch_bounds__(kThreads) attn_stop_kernel(const __grid_constant__ KernelArgs k) {
  wait_for_previous();
  start_next();
  const Stream<Head, kFormat> stream(k);
  if (has_own_window(stream.a, stream.kv_head)) {
    stream.list_all();
    return;
  }
  StopWork& t = stream.s.t;
  stream.begin();
  const PagesLeft left = stream.pages_left();
  if (threadIdx.x == 0) t.left = left;
  __syncthreads();
  Progress p = progress_before(k.rule, left);
  uint32_t n_round = 0;
#pragma unroll 1
  for (uint32_t round = 0; t.left.n_taken < p.enough && t.left.n_listed != 0; ++round) {
    n_round = round_length(k.rule, p, t.left, round, kWarps / 2);
    take_round(stream.keys, RowWords{stream.a.kv.len + stream.table}, stream.n, n_round, stream.s.top, t,
               [](uint32_t word) { return (word & kFullRow) != 0; });
    if (p.enough == kNotDone) p = stream.see_round(n_round);
  }
  stream.write_list(n_round, min(t.left.n_taken, p.enough));
}

template <class Head, KvFormat kFormat>
Status launch_for(const KernelArgs& k, cudaStream_t stream, bool overlap) {
  const auto kernel = attn_stop_kernel<Head, kFormat>;
  const KvView& kv = k.op.attn.attn.kv;
  // The same setting for tables of any size.
  WEIR_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(device().shared_bytes)),
                "attn_stop");
  return launch("attn_stop", kernel, kv.n_kv_heads, kThreads, attn_stop_shared_bytes(k.group, kv.head_dim, kv.capacity),
                stream, overlap, k);
}

size_t fixed_shared_bytes(uint32_t head_dim) {
  switch (padded_head_dim(head_dim)) {
    case 64:
      return sizeof(Shared<64>);
    case 128:
      return sizeof(Shared<128>);
    default:
      return sizeof(Shared<kMaxHeadDim>);
  }
}

}  // namespace

size_t attn_stop_shared_bytes(uint32_t group, uint32_t head_dim, uint32_t capacity) {
  const size_t queries = size_t{query_rows(group)} * padded_head_dim(head_dim);
  return fixed_shared_bytes(head_dim) + key_words(capacity) * sizeof(uint32_t) + queries * sizeof(float);
}

bool has_attn_stop(uint32_t group, uint32_t head_dim, uint32_t capacity) {
  return group <= kMaxGroup && is_head_dim(head_dim) &&
         attn_stop_shared_bytes(group, head_dim, capacity) <= device().shared_bytes;
}

Status attn_stop(OpContext& cx, const AttnStopArgs& a) {
  const AttnPagedArgs& attn = a.attn.attn;
  const uint32_t group = attn.n_heads / attn.kv.n_kv_heads, d = attn.kv.head_dim;
  if (a.attn.append || attn.select != nullptr || attn.q_sink != nullptr || attn.window != 0 ||
      !has_attn_stop(group, d, attn.kv.capacity))
    return fail(WEIR_ERR_INTERNAL, "CUDA: attn_stop of %u heads of %u elements, %u rows", group, d, attn.kv.capacity);
  const KernelArgs k = {a, stop_rule(a.stop, group), group};
  const cudaStream_t stream = stream_of(cx);
  WEIR_TRY(with_kv_format(attn.kv.format, [&](auto format) {
    if (d <= 64) return launch_for<AnyHead<64>, format()>(k, stream, a.attn.overlap);
    if (d <= 128) return launch_for<AnyHead<128>, format()>(k, stream, a.attn.overlap);
    return launch_for<AnyHead<kMaxHeadDim>, format()>(k, stream, a.attn.overlap);
  }));
  AttnDecodeArgs listed = a.attn;
  listed.attn.select = a.select;
  listed.attn.n_select = a.n_select;
  listed.overlap = true;
  return attn_decode(cx, listed);
}

}  // namespace weir::cuda
