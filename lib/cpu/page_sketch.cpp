// Estimates of pages from sketches, vectorised over the 16 tokens of a page: each has a lane, in which the products of
// its 2-bit codes with the 8-bit query add up as whole numbers. What is read of a sketch is shared by up to four heads.
// Per page and head that is head_dim / 4 products of four channels (with AVX-512 a vector is all tokens), and one
// exponential; logarithms are taken for 16 pages at once.
#include "cpu/page_sketch.h"

#include <cstring>

#include "core/memory.h"
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/page_sketch.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/matmul_simd-inl.h"
#include "cpu/simd-inl.h"
#include "hwy/cache_control.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

#if WEIR_CPU_HAS_VECTORS

using DF = hn::CappedTag<float, kPageTokens>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;

constexpr size_t kLanes = hn::MaxLanes(DF());
constexpr size_t kVectors = kPageTokens / kLanes;  // of a page's tokens
constexpr uint32_t kPagesAhead = 6;
constexpr uint32_t kBlockPages = 16;  // rows whose logarithms are taken together
constexpr size_t kLineElements = 64 / sizeof(uint16_t);
// Where products of four channels are added up in 16 bits, pair by pair: at most 2 * 3 * 127 each, so 32 of them fit.
constexpr uint32_t kChunkWords = 8;

// sum + the products of four codes in each lane of `codes` with the four bytes of q.
HWY_INLINE VI add_products(VI sum, hn::Vec<DU> codes, int32_t q) {
#if HWY_TARGET == HWY_AVX3_DL
  return VI{_mm512_dpbusd_epi32(sum.raw, codes.raw, _mm512_set1_epi32(q))};
#else
  const hn::Repartition<int16_t, DI> d16;
  const auto total = hn::BitCast(d16, sum);
#if HWY_TARGET == HWY_AVX3
  const decltype(total) products{_mm512_maddubs_epi16(codes.raw, _mm512_set1_epi32(q))};
#elif HWY_TARGET == HWY_AVX2
  const decltype(total) products{_mm256_maddubs_epi16(codes.raw, _mm256_set1_epi32(q))};
#elif HWY_TARGET == HWY_SSE4
  const decltype(total) products{_mm_maddubs_epi16(codes.raw, _mm_set1_epi32(q))};
#else
  const auto both = hn::BitCast(d16, hn::Set(DI(), q)), four = hn::BitCast(d16, codes);
  const auto even = hn::Mul(hn::And(four, hn::Set(d16, 0xFF)), hn::ShiftRight<8>(hn::ShiftLeft<8>(both)));
  const auto products = hn::Add(even, hn::Mul(hn::ShiftRight<8>(four), hn::ShiftRight<8>(both)));
#endif
  return hn::BitCast(DI(), hn::Add(total, products));
#endif
}

// What add_products added up, from 0 over a chunk at most, one number a lane.
HWY_INLINE VI joined(VI sum) {
#if HWY_TARGET == HWY_AVX3_DL
  return sum;
#else
  return hn::Add(hn::ShiftRight<16>(sum), hn::ShiftRight<16>(hn::ShiftLeft<16>(sum)));
#endif
}

// The bits of all lanes of words, from a sketch's elements.
HWY_INLINE hn::Vec<DU> load_words(const uint16_t* from) {
  const hn::Repartition<uint16_t, DU> d16;
  return hn::BitCast(DU(), hn::LoadU(d16, from));
}

// The products of kHeads queries with one vector of tokens.
template <size_t kHeads>
HWY_INLINE void add_tokens(const SketchQuery* HWY_RESTRICT q, const uint16_t* HWY_RESTRICT words, uint32_t n_words,
                           VI (&sum)[kHeads]) {
  const auto mask = hn::Set(DU(), kSketchMask);
  HWY_UNROLL(4)
  for (size_t h = 0; h < kHeads; ++h) sum[h] = hn::Zero(DI());
  for (uint32_t first = 0; first < n_words; first += kChunkWords) {
    const uint32_t end = HWY_MIN(n_words, first + kChunkWords);
    VI part[kHeads];
    HWY_UNROLL(4)
    for (size_t h = 0; h < kHeads; ++h) part[h] = hn::Zero(DI());
    for (uint32_t w = first; w < end; ++w) {
      const auto bits = load_words(words + size_t{w} * kPageTokens * 2);
      const hn::Vec<DU> codes[4] = {hn::And(bits, mask), hn::And(hn::ShiftRight<2>(bits), mask),
                                    hn::And(hn::ShiftRight<4>(bits), mask), hn::And(hn::ShiftRight<6>(bits), mask)};
      HWY_UNROLL(4)
      for (size_t h = 0; h < kHeads; ++h) {
        int32_t four[4];
        std::memcpy(four, q[h].codes + size_t{w} * kSketchChannels, sizeof(four));
        HWY_UNROLL(4)
        for (size_t j = 0; j < 4; ++j) part[h] = add_products(part[h], codes[j], four[j]);
      }
    }
    HWY_UNROLL(4)
    for (size_t h = 0; h < kHeads; ++h) sum[h] = hn::Add(sum[h], joined(part[h]));
  }
}

// The largest logit of the page for each head, and the sum of exp(logit - the largest), at stride kBlockPages.
template <size_t kHeads>
HWY_INLINE void score_page(const SketchQuery* HWY_RESTRICT q, const uint16_t* HWY_RESTRICT sketch, uint32_t n_words,
                           float scale, float* high, float* sum) {
  const DF df;
  VF logit[kHeads][kVectors];
  const uint16_t* scales = sketch + size_t{n_words} * kPageTokens * 2;
  HWY_UNROLL(4)
  for (size_t v = 0; v < kVectors; ++v) {
    VI product[kHeads];
    add_tokens<kHeads>(q, sketch + v * kLanes * 2, n_words, product);
    const VF of_token = load_bf16(df, scales + v * kLanes);
    HWY_UNROLL(4)
    for (size_t h = 0; h < kHeads; ++h) {
      const auto whole = hn::Sub(hn::Add(product[h], product[h]), hn::Set(DI(), 3 * q[h].sum));
      logit[h][v] = hn::Mul(hn::Mul(hn::ConvertTo(df, whole), hn::Set(df, q[h].factor * scale)), of_token);
    }
  }
  HWY_UNROLL(4)
  for (size_t h = 0; h < kHeads; ++h) {
    VF most = logit[h][0], total = hn::Zero(df);
    for (size_t v = 1; v < kVectors; ++v) most = hn::Max(most, logit[h][v]);
    most = hn::MaxOfLanes(df, most);
    for (size_t v = 0; v < kVectors; ++v) total = hn::Add(total, hn::Exp(df, hn::Sub(logit[h][v], most)));
    high[h * kBlockPages] = hn::GetLane(most);
    sum[h * kBlockPages] = hn::GetLane(hn::SumOfLanes(df, total));
  }
}

// Whether a scale is not a number but kSketchInfinite or kSketchLost; then the largest of them, as a number.
HWY_INLINE bool is_special(const uint16_t* scales, float& value) {
  const DF df;
  const auto limit = hn::Set(DI(), 0x7F800000);
  bool any = false;
  for (size_t v = 0; v < kVectors; ++v)
    any = any || !hn::AllTrue(DI(), hn::Lt(hn::BitCast(DI(), load_bf16(df, scales + v * kLanes)), limit));
  if (HWY_LIKELY(!any)) return false;
  value = INFINITY;
  for (size_t t = 0; t < kPageTokens; ++t) value = scales[t] == kSketchLost ? NAN : value;
  return true;
}

// score[h * stride + i] = (high + log(sum)) / scale, at most kSketchMost.
HWY_INLINE void store_estimates(const float* high, const float* sum, float scale, uint32_t n, float* score) {
  const DF df;
  const VF most = hn::Set(df, kSketchMost), inverse = hn::Set(df, 1.0f / scale);
  alignas(64) float out[kBlockPages];
  for (size_t i = 0; i < kBlockPages; i += kLanes) {
    const VF x = hn::Mul(hn::Add(hn::LoadU(df, high + i), hn::Log(df, hn::LoadU(df, sum + i))), inverse);
    hn::StoreU(hn::IfThenElse(hn::Gt(x, most), most, x), df, out + i);
  }
  std::memcpy(score, out, n * sizeof(float));
}

template <size_t kHeads>
void score_heads(const PageScoreArgs& a, const SketchQuery* q, uint32_t kv_head, uint32_t begin, uint32_t end,
                 float* score) {
  const uint32_t n_words = sketch_words(a.kv.head_dim);
  const size_t n_elements = digest_elements(DigestKind::kSketch, a.kv.head_dim);
  float high[kHeads * kBlockPages] = {}, sum[kHeads * kBlockPages];
  for (float& x : sum) x = 1.0f;
  for (uint32_t first = begin; first < end; first += kBlockPages) {
    const uint32_t n = HWY_MIN(kBlockPages, end - first);
    for (uint32_t i = 0; i < n; ++i) {
      const uint16_t* sketch = a.kv.digest_of(kv_head, first + i);
      // Slots are in any order, and a sketch is too short for the hardware to see it coming.
      const uint16_t* ahead = a.kv.digest_of(kv_head, HWY_MIN(first + i + kPagesAhead, end - 1));
      for (size_t e = 0; e < n_elements; e += kLineElements) hwy::Prefetch(ahead + e);
      float special = 0.0f;
      if (!is_special(sketch + size_t{n_words} * kPageTokens * 2, special)) {
        score_page<kHeads>(q, sketch, n_words, a.scale, high + i, sum + i);
        continue;
      }
      for (size_t h = 0; h < kHeads; ++h) high[h * kBlockPages + i] = special, sum[h * kBlockPages + i] = 1.0f;
    }
    for (size_t h = 0; h < kHeads; ++h)
      store_estimates(high + h * kBlockPages, sum + h * kBlockPages, a.scale, n, score + h * a.kv.capacity + first);
  }
}

#endif  // WEIR_CPU_HAS_VECTORS

void sketch_rows(const PageScoreArgs& a, const SketchQuery* queries, uint32_t kv_head, uint32_t begin, uint32_t end) {
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  const SketchQuery* q = queries + size_t{kv_head} * group;
  float* score = a.score + size_t{kv_head} * group * a.kv.capacity;
#if WEIR_CPU_HAS_VECTORS
  uint32_t head = 0;
  for (; head + 4 <= group; head += 4)
    score_heads<4>(a, q + head, kv_head, begin, end, score + size_t{head} * a.kv.capacity);
  score += size_t{head} * a.kv.capacity;
  if (group - head == 3) score_heads<3>(a, q + head, kv_head, begin, end, score);
  if (group - head == 2) score_heads<2>(a, q + head, kv_head, begin, end, score);
  if (group - head == 1) score_heads<1>(a, q + head, kv_head, begin, end, score);
#else
  for (uint32_t head = 0; head < group; ++head) {
    for (uint32_t row = begin; row < end; ++row)
      score[size_t{head} * a.kv.capacity + row] =
          sketch_estimate(q[head], a.kv.digest_of(kv_head, row), a.kv.head_dim, a.scale);
  }
#endif
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(sketch_rows);

struct Scratch {
  SketchQuery* queries;
  int8_t* codes;  // [heads, padded channels]
  float* rotated;

  Scratch(Arena& arena, uint64_t n_heads, uint64_t head_dim) {
    queries = arena.take<SketchQuery>(n_heads);
    codes = arena.take<int8_t>(n_heads * sketch_words(head_dim) * kSketchChannels);
    rotated = arena.take<float>(head_dim);
  }
};

}  // namespace

uint64_t page_sketch_scratch_bytes(const OpShapes& shapes) {
  Arena measure;
  Scratch(measure, shapes.n_heads, shapes.head_dim);
  return measure.used();
}

const SketchQuery* sketch_queries(OpContext& cx, const PageScoreArgs& a) {
  const size_t d = a.kv.head_dim;
  Arena arena(cx.scratch, cx.scratch_bytes);
  const Scratch scratch(arena, a.n_heads, d);
  if (arena.used() > cx.scratch_bytes) return nullptr;
  for (uint32_t head = 0; head < a.n_heads; ++head) {
    SketchQuery& q = scratch.queries[head];
    q.codes = scratch.codes + size_t{head} * sketch_words(d) * kSketchChannels;
    std::memcpy(scratch.rotated, a.q + head * d, d * sizeof(float));
    sketch_query(scratch.rotated, d, q);
  }
  return scratch.queries;
}

void score_sketches(const PageScoreArgs& a, const SketchQuery* queries, uint32_t kv_head, uint32_t begin,
                    uint32_t end) {
  HWY_DYNAMIC_DISPATCH(sketch_rows)(a, queries, kv_head, begin, end);
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
