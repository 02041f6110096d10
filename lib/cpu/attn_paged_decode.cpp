// Attention of one query row. A work item is (list, unit of kSplitPages pages). All query heads of a list, normally the
// group of a KV head, share what is read. Memory bandwidth is the limit: each key and value is read once, widened from
// bf16 by a shift or a mask, and multiplied in f32. The inner loops are in attn_paged_units-inl.h.
//
// Numerics: f32. The sum of q.k runs over the vectors of a row and then pairwise over lanes; sums over tokens run in
// list order. So the bits of a result depend on the listed pages and on the vector length, but not on threads or on
// where the pages lie.
// Paper: Dao et al., "Flash-Decoding for long-context inference" (2023): partial softmax per split, merged by
// log-sum-exp.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/attn_paged_parts.h"
#include "cpu/simd_targets.h"
#include "ops/attn_paged.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attn_paged_decode.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/attn_paged_units-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

#if WEIR_CPU_HAS_VECTORS

void decode_unit(const AttnPagedArgs& a, const DecodeScratch& s, uint32_t list, uint32_t unit, size_t worker) {
  const uint32_t group = heads_of_list(a);
  const uint32_t first = unit * kSplitPages;
  const uint32_t n = HWY_MIN(kSplitPages, n_listed(a, list) - first);
  float* weight = s.weight + worker * group * kUnitTokens;
  unit_logits(a, s.q, s.d_pad, list, first, n, weight);
  for (uint32_t g = 0; g < group; ++g) {
    const size_t head = size_t{list} * group + g, at = head * s.max_units + unit;
    HWY_ALIGN float page_sum[kSplitPages];
    float high, sum;
    softmax_unit(weight + g * kUnitTokens, n, page_sum, high, sum);
    if (a.page_mass != nullptr) std::memcpy(a.page_mass + head * a.kv.capacity + first, page_sum, n * sizeof(float));
    s.sum[at] = sum;
    s.lse[at] = sum > 0.0f ? high + std::log(sum) : kUnseen;
  }
  const size_t stride = s.max_units * s.d_pad;
  float* part = s.part + (size_t{list} * group * s.max_units + unit) * s.d_pad;
  for (uint32_t g = 0; g < group; ++g) std::fill(part + g * stride, part + g * stride + s.d_pad, 0.0f);
  unit_values(a, list, first, n, weight, part, stride);
  const DF df;
  for (uint32_t g = 0; g < group; ++g) {
    const size_t at = (size_t{list} * group + g) * s.max_units + unit;
    if (s.sum[at] == 0.0f) continue;
    const V inverse = hn::Set(df, 1.0f / s.sum[at]);
    for (size_t i = 0; i < s.d_pad; i += kLanes)
      hn::Store(hn::Mul(hn::Load(df, s.part + at * s.d_pad + i), inverse), df, s.part + at * s.d_pad + i);
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
    store_block(d, i, hn::Mul(even, inverse), hn::Mul(odd, inverse), a.out + head * d);
  }
  if (a.page_mass == nullptr) return;
  float* mass = a.page_mass + size_t{head} * a.kv.capacity;
  for (uint32_t p = 0; p < listed; ++p) {
    const size_t u = p / kSplitPages;
    mass[p] = share[u] > 0.0f ? mass[p] * (share[u] / (sum[u] * total)) : 0.0f;
  }
}

void permute(const AttnPagedArgs& a, const DecodeScratch& s) { permute_queries(a, s.d_pad, s.q); }
bool has_kernels() { return true; }

#else

void decode_unit(const AttnPagedArgs&, const DecodeScratch&, uint32_t, uint32_t, size_t) {}
void permute(const AttnPagedArgs&, const DecodeScratch&) {}
void merge_units(const AttnPagedArgs&, const DecodeScratch&, uint32_t) {}
bool has_kernels() { return false; }

#endif

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(decode_unit);
HWY_EXPORT(permute);
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
  HWY_DYNAMIC_DISPATCH(permute)(a, s);
  cx.pool->parallel_for(s.max_units * lists, [&](size_t task, size_t worker) {
    const auto list = static_cast<uint32_t>(task % lists);
    const auto u = static_cast<uint32_t>(task / lists);
    if (u * kSplitPages < n_listed(a, list)) unit(args_of_head(a, kv_head_of_list(a, list)), s, list, u, worker);
  });
  if (a.n_heads * s.max_units * s.d_pad <= kSerialMerge) {
    for (uint32_t head = 0; head < a.n_heads; ++head) merge(a, s, head);
  } else {
    cx.pool->parallel_for(a.n_heads, [&](size_t head, size_t) { merge(a, s, static_cast<uint32_t>(head)); });
  }
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
