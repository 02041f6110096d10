// Attention of one query row. A work item is (list, unit of kSplitPages pages). All query heads of a list, normally the
// group of a KV head, share what is read. Memory bandwidth is the limit: each key and value is read once, widened from
// bf16 by a shift or a mask, and multiplied in f32. The inner loops are in attn_paged_rows-inl.h.
//
// Numerics: f32. The sum of q.k runs over the vectors of a row and then pairwise over lanes; sums over tokens run in
// list order. So the bits of a result depend on the listed pages and on the vector length, but not on threads or on
// where the pages lie.
// Paper: Dao et al., "Flash-Decoding for long-context inference" (2023): partial softmax per split, merged by
// log-sum-exp.
#include <cmath>
#include <cstring>
#include <type_traits>

#include "cpu/attn_paged_parts.h"
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attn_paged_decode.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/attn_paged_rows-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

#if WEIR_CPU_HAS_VECTORS

// Calls f<kHeads>(first head) for the heads of a group, up to four at a time.
template <class F>
HWY_INLINE void for_heads(uint32_t group, const F& f) {
  uint32_t g = 0;
  for (; g + 4 <= group; g += 4) f(std::integral_constant<size_t, 4>(), g);
  if (group - g == 3) f(std::integral_constant<size_t, 3>(), g);
  if (group - g == 2) f(std::integral_constant<size_t, 2>(), g);
  if (group - g == 1) f(std::integral_constant<size_t, 1>(), g);
}

void unit_logits(const AttnPagedArgs& a, const DecodeScratch& s, uint32_t list, uint32_t first, uint32_t n,
                 float* weight) {
  const uint32_t group = heads_of_list(a);
  const RowShape shape(a.kv.head_dim);
  const float* q = s.q + size_t{list} * group * s.d_pad;
  for (uint32_t p = 0; p < n; ++p) {
    const ListedPage page = listed_page(a, list, first + p);
    // The first page's values are read after the last page's keys.
    const uint16_t* next =
        p + 1 < n ? listed_page(a, list, first + p + 1).keys : listed_page(a, list, first).keys + kPageTokens * shape.d;
    const Seen seen = seen_by(a, page, a.pos);
    const float* sink_q = q + a.n_heads * s.d_pad;
    // [begin, edge) use the sink query, [edge, end) the other one.
    const uint32_t edge = std::clamp(page.sink_tokens, seen.begin, seen.end);
    float* to = weight + p * kPageTokens;
    if (!seen.all()) {
      for (uint32_t g = 0; g < group; ++g) std::fill(to + g * kUnitTokens, to + g * kUnitTokens + kPageTokens, kUnseen);
    }
    for_heads(group, [&](auto heads, uint32_t g) HWY_ATTR {
      constexpr size_t kHeads = decltype(heads)::value;
      const size_t at = g * s.d_pad;
      const ptrdiff_t ahead = g == 0 ? next - page.keys : 0;
      if (seen.sink_end > 0) {
        page_logits<kHeads>(shape, (page.sink_tokens > 0 ? sink_q : q) + at, s.d_pad, page.keys, ahead, 0,
                            seen.sink_end, to + g * kUnitTokens);
      }
      if (edge > seen.begin)
        page_logits<kHeads>(shape, sink_q + at, s.d_pad, page.keys, ahead, seen.begin, edge, to + g * kUnitTokens);
      if (edge < seen.end)
        page_logits<kHeads>(shape, q + at, s.d_pad, page.keys, ahead, edge, seen.end, to + g * kUnitTokens);
    });
  }
}

void cap_unit(const AttnPagedArgs& a, uint32_t group, uint32_t n, float* weight) {
  for (uint32_t g = 0; g < group; ++g) cap_logits(a.soft_cap, weight + g * kUnitTokens, size_t{n} * kPageTokens);
}

void unit_values(const AttnPagedArgs& a, const DecodeScratch& s, uint32_t list, uint32_t unit, uint32_t n,
                 const float* weight) {
  const uint32_t group = heads_of_list(a);
  const RowShape shape(a.kv.head_dim);
  const size_t stride = s.max_units * s.d_pad;
  float* part = s.part + (size_t{list} * group * s.max_units + unit) * s.d_pad;
  for (uint32_t g = 0; g < group; ++g) std::fill(part + g * stride, part + g * stride + s.d_pad, 0.0f);
  for (uint32_t p = 0; p < n; ++p) {
    const ListedPage page = listed_page(a, list, unit * kSplitPages + p);
    const uint16_t* values = page.keys + kPageTokens * shape.d;
    const uint16_t* next = p + 1 < n ? listed_page(a, list, unit * kSplitPages + p + 1).keys : page.keys;
    const Seen seen = seen_by(a, page, a.pos);
    const float* from = weight + p * kPageTokens;
    for_heads(group, [&](auto heads, uint32_t g) HWY_ATTR {
      constexpr size_t kHeads = decltype(heads)::value;
      const ptrdiff_t ahead = g == 0 ? next - page.keys : 0;
      if (seen.sink_end > 0)
        page_values<kHeads>(shape, from + g * kUnitTokens, values, ahead, 0, seen.sink_end, part + g * stride, stride);
      page_values<kHeads>(shape, from + g * kUnitTokens, values, ahead, seen.begin, seen.end, part + g * stride,
                          stride);
    });
  }
}

void decode_unit(const AttnPagedArgs& a, const DecodeScratch& s, uint32_t list, uint32_t unit, size_t worker) {
  const uint32_t group = heads_of_list(a);
  const uint32_t first = unit * kSplitPages;
  const uint32_t n = HWY_MIN(kSplitPages, n_listed(a, list) - first);
  float* weight = s.weight + worker * group * kUnitTokens;
  unit_logits(a, s, list, first, n, weight);
  if (a.soft_cap != 0.0f) cap_unit(a, group, n, weight);
  for (uint32_t g = 0; g < group; ++g) {
    const size_t head = size_t{list} * group + g, at = head * s.max_units + unit;
    HWY_ALIGN float page_sum[kSplitPages];
    float high, sum;
    softmax_unit(weight + g * kUnitTokens, n, page_sum, high, sum);
    if (a.page_mass != nullptr) std::memcpy(a.page_mass + head * a.kv.capacity + first, page_sum, n * sizeof(float));
    s.sum[at] = sum;
    s.lse[at] = sum > 0.0f ? high + std::log(sum) : kUnseen;
  }
  unit_values(a, s, list, unit, n, weight);
  const DF df;
  for (uint32_t g = 0; g < group; ++g) {
    const size_t at = (size_t{list} * group + g) * s.max_units + unit;
    if (s.sum[at] == 0.0f) continue;
    const V inverse = hn::Set(df, 1.0f / s.sum[at]);
    for (size_t i = 0; i < s.d_pad; i += kLanes)
      hn::Store(hn::Mul(hn::Load(df, s.part + at * s.d_pad + i), inverse), df, s.part + at * s.d_pad + i);
  }
}

void permute_queries(const AttnPagedArgs& a, const DecodeScratch& s) {
  const DF df;
  const size_t d = a.kv.head_dim;
  const V scale = hn::Set(df, a.scale);
  for (size_t head = 0; head < (a.q_sink != nullptr ? 2 : 1) * size_t{a.n_heads}; ++head) {
    const float* from = head < a.n_heads ? a.q + head * d : a.q_sink + (head - a.n_heads) * d;
    float* to = s.q + head * s.d_pad;
    size_t i = 0;
    for (; i + kBlock <= d; i += kBlock) {
      V even, odd;
      hn::LoadInterleaved2(df, from + i, even, odd);
      hn::Store(hn::Mul(even, scale), df, to + i);
      hn::Store(hn::Mul(odd, scale), df, to + i + kLanes);
    }
    if (i == d) continue;
    std::fill(to + i, to + i + kBlock, 0.0f);
    for (size_t j = i; j < d; ++j) to[i + (j - i) / 2 + (j % 2) * kLanes] = from[j] * a.scale;
  }
}

// Merges the units of one head and undoes the permutation of its elements.
void merge_units(const AttnPagedArgs& a, const DecodeScratch& s, uint32_t head) {
  const DF df;
  const size_t d = a.kv.head_dim;
  const uint32_t listed = n_listed(a, head / heads_of_list(a));
  const size_t n_units = (size_t{listed} + kSplitPages - 1) / kSplitPages;
  const float* part = s.part + head * s.max_units * s.d_pad;
  float* share = s.lse + head * s.max_units;
  const float* sum = s.sum + head * s.max_units;
  const float sink = a.sinks != nullptr ? a.sinks[head] : kUnseen;
  float high = sink, total = 0.0f;
  for (size_t u = 0; u < n_units; ++u) high = HWY_MAX(high, share[u]);
  for (size_t u = 0; u < n_units; ++u) total += share[u] = high == kUnseen ? 0.0f : std::exp(share[u] - high);
  if (a.sinks != nullptr) total += std::exp(sink - high);
  if (a.lse != nullptr) a.lse[head] = total > 0.0f ? high + std::log(total) : kUnseen;
  const V inverse = hn::Set(df, total > 0.0f ? 1.0f / total : 0.0f);
  for (size_t i = 0; i < d; i += kBlock) {
    V even = hn::Zero(df), odd = hn::Zero(df);
    for (size_t u = 0; u < n_units; ++u) {
      const V w = hn::Set(df, share[u]);
      even = hn::MulAdd(w, hn::Load(df, part + u * s.d_pad + i), even);
      odd = hn::MulAdd(w, hn::Load(df, part + u * s.d_pad + i + kLanes), odd);
    }
    HWY_ALIGN float block[kBlock];
    hn::StoreInterleaved2(hn::Mul(even, inverse), hn::Mul(odd, inverse), df, block);
    std::memcpy(a.out + head * d + i, block, HWY_MIN(kBlock, d - i) * sizeof(float));
  }
  if (a.page_mass == nullptr) return;
  float* mass = a.page_mass + size_t{head} * a.kv.capacity;
  for (uint32_t p = 0; p < listed; ++p) {
    const size_t u = p / kSplitPages;
    mass[p] = share[u] > 0.0f ? mass[p] * (share[u] / (sum[u] * total)) : 0.0f;
  }
}

bool has_kernels() { return true; }

#else

void decode_unit(const AttnPagedArgs&, const DecodeScratch&, uint32_t, uint32_t, size_t) {}
void permute_queries(const AttnPagedArgs&, const DecodeScratch&) {}
void merge_units(const AttnPagedArgs&, const DecodeScratch&, uint32_t) {}
bool has_kernels() { return false; }

#endif

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(decode_unit);
HWY_EXPORT(permute_queries);
HWY_EXPORT(merge_units);
HWY_EXPORT(has_kernels);

// Floats of partial results up to which the calling thread merges alone: waking another thread costs more.
constexpr size_t kSerialMerge = 16384;

}  // namespace

bool attn_has_kernels() { return HWY_DYNAMIC_DISPATCH(has_kernels)(); }

void attn_decode(OpContext& cx, const AttnPagedArgs& a) {
  const auto unit = HWY_DYNAMIC_DISPATCH(decode_unit);
  const auto merge = HWY_DYNAMIC_DISPATCH(merge_units);
  const uint32_t lists = n_lists(a);
  uint32_t most = 0;
  for (uint32_t list = 0; list < lists; ++list) most = std::max(most, n_listed(a, list));
  Arena arena(cx.scratch, cx.scratch_bytes);
  const DecodeScratch s = lay_out_decode(arena, cx.pool->n_threads(), a.n_heads, a.kv.n_kv_heads, a.kv.head_dim, most);
  HWY_DYNAMIC_DISPATCH(permute_queries)(a, s);
  cx.pool->parallel_for(s.max_units * lists, [&](size_t task, size_t worker) {
    const auto list = static_cast<uint32_t>(task % lists);
    const auto u = static_cast<uint32_t>(task / lists);
    if (u * kSplitPages < n_listed(a, list)) unit(a, s, list, u, worker);
  });
  if (a.n_heads * s.max_units * s.d_pad <= kSerialMerge) {
    for (uint32_t head = 0; head < a.n_heads; ++head) merge(a, s, head);
  } else {
    cx.pool->parallel_for(a.n_heads, [&](size_t head, size_t) { merge(a, s, static_cast<uint32_t>(head)); });
  }
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
