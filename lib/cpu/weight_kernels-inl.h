// The GEMV and the tile decoders of one weight type, as templates over its decoder; the weight_<type>.cpp files supply decoders and instantiate.
//
// A GEMV runs four rows at once. They lie a quarter of the task's rows apart, so that the memory system sees four long sequential streams; one
// stream leaves a third of the bandwidth unused on server cores. Sums of a row are formed in one order whatever the neighbours, so a row's
// result does not depend on the task it fell in, nor a token's result on the other tokens.
//
// A decoder of blocks of 32 weights with an f16 scale in front has kLayout = kBlocks and
//   D16, kBlockBytes; block(p, f): f(i16 vector, index of its first weight) for all 32 weights.
// One of super-blocks of 256 weights has kLayout = kSuperBlocks and
//   D16, kBlockBytes, kMinima, kKind; Header, filled by header(p, h): scale, and sub (and with kMinima low[8], the f32 minima);
//   unit<u>(p, h, f): f as above for weights 64u .. 64u+63 times their integer sub-scales. |q| * 16 * 32767 must be below 2^31.
// One of plain numbers has kLayout = kFloats and kBytes; load(d, p): f32 vector; one(p): f32.
#include "cpu/matmul_kernels.h"
#include "cpu/plain_kernels.h"
#include "cpu/matmul_simd-inl.h"
#include "hwy/cache_control.h"

#if defined(WEIR_CPU_WEIGHT_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_CPU_WEIGHT_KERNELS_INL_H_
#undef WEIR_CPU_WEIGHT_KERNELS_INL_H_
#else
#define WEIR_CPU_WEIGHT_KERNELS_INL_H_
#endif

WEIR_BEFORE_NAMESPACE();
#if WEIR_VECTOR_KERNELS
namespace weir::cpu::HWY_NAMESPACE {

enum class Layout { kBlocks, kSuperBlocks, kFloats };

inline constexpr size_t kStreams = 4;
// Bytes ahead of the reads that each stream is prefetched: about the latency of memory at a core's share of its bandwidth.
inline constexpr size_t kPrefetchBytes = 1536;

// i16 vector of a pair that lies in memory twice in 32 bits: 32-bit broadcasts from memory need no shuffle.
template <class D16>
HWY_INLINE Vec<D16> broadcast_pair(D16 d16, uint32_t pair) {
  const hn::Repartition<uint32_t, D16> d32;
  return hn::BitCast(d16, hn::Set(d32, pair));
}

// i32 vector of small numbers as such pairs.
template <class V>
HWY_INLINE void store_pairs(V v, uint32_t* out) {
  const hn::DFromV<V> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  hn::Store(hn::BitCast(du, hn::Or(hn::And(v, hn::Set(d, 0xFFFF)), hn::ShiftLeft<16>(v))), du, out);
}

// What the K types with minima begin with: two f16 scales, then eight sub-scales and sub-minima in 12 bytes (quant/k_scales.h).
struct KHeader {
  float scale;
  HWY_ALIGN uint32_t sub[kSubs];  // sub-scales, as pairs of equal i16
  HWY_ALIGN float low[kSubs];     // minima
};

HWY_INLINE void load_k_header(const uint8_t* p, KHeader& h) {
  const hn::CappedTag<float, 4> d4;
  h.scale = load_f16(p);
  const float min_scale = load_f16(p + 2);
  uint32_t a, b, c;
  std::memcpy(&a, p + 4, sizeof a);
  std::memcpy(&b, p + 8, sizeof b);
  std::memcpy(&c, p + 12, sizeof c);
  // Four 6-bit numbers a word, in bytes: scales 0..3 and 4..7, minima 0..3 and 4..7.
  const uint32_t scales[2] = {a & 0x3F3F3F3Fu, (c & 0x0F0F0F0Fu) | (a >> 2 & 0x30303030u)};
  const uint32_t minima[2] = {b & 0x3F3F3F3Fu, (c >> 4 & 0x0F0F0F0Fu) | (b >> 2 & 0x30303030u)};
  const hn::CappedTag<int32_t, 4> d32;
  const hn::Rebind<uint8_t, decltype(d32)> d8;
  const hn::CappedTag<uint32_t, 1> d1;
  HWY_UNROLL(2)
  for (size_t half = 0; half < 2; ++half) {
    store_pairs(hn::PromoteTo(d32, hn::BitCast(d8, hn::Set(d1, scales[half]))), h.sub + 4 * half);
    const auto m = hn::ConvertTo(d4, hn::PromoteTo(d32, hn::BitCast(d8, hn::Set(d1, minima[half]))));
    hn::Store(hn::Mul(m, hn::Set(d4, min_scale)), d4, h.low + 4 * half);
  }
}

// Where one token's group of activations lies.
struct ActGroup {
  const float* x;
  const int16_t* q;
  const float* sum;  // [kSubs]
  float scale;
};

template <class Dec>
constexpr size_t group_bytes() {
  if constexpr (Dec::kLayout == Layout::kBlocks) return kSubs * Dec::kBlockBytes;
  if constexpr (Dec::kLayout == Layout::kSuperBlocks) return Dec::kBlockBytes;
  if constexpr (Dec::kLayout == Layout::kFloats) return kGroup * Dec::kBytes;
}

template <class Dec>
struct RowSum {
  using D = hn::RepartitionToWide<typename Dec::D16>;  // i32
  using DF = hn::Rebind<float, D>;
};
template <class Dec>
  requires(Dec::kLayout == Layout::kFloats)
struct RowSum<Dec> {
  using DF = hn::ScalableTag<float>;
};
template <class Dec>
using SumTag = typename RowSum<Dec>::DF;
template <class Dec, size_t kTok>
using RowSums = Vec<SumTag<Dec>>[kStreams][kTok];

// scales[t][0..7] = the f16 scales of eight consecutive blocks, each block's first two bytes, times token t's scale.
template <class Dec, size_t kTok>
HWY_INLINE void load_scales(const uint8_t* p, const ActGroup* act, float (*HWY_RESTRICT scales)[kSubs]) {
  const hn::CappedTag<float, 4> d4;
  const hn::Rebind<hwy::float16_t, decltype(d4)> dh;
  const hn::CappedTag<uint64_t, 1> d64;
  HWY_UNROLL(2)
  for (size_t half = 0; half < kSubs; half += 4) {
    uint64_t bits = 0;  // four numbers gathered in a register: cheaper than in memory, which would be read before it is written back
    HWY_UNROLL(4)
    for (size_t i = 0; i < 4; ++i) {
      uint16_t h;
      std::memcpy(&h, p + (half + i) * Dec::kBlockBytes, sizeof h);
      bits |= uint64_t{h} << (16 * i);
    }
    const auto four = hn::PromoteTo(d4, hn::BitCast(dh, hn::Set(d64, bits)));
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTok; ++t) hn::Store(hn::Mul(four, hn::Set(d4, act[t].scale)), d4, scales[t] + half);
  }
}

// acc[r][t] += block b of row r * activations of token t.
template <class Dec, size_t kTok>
HWY_INLINE void dot_block(const uint8_t* const* p, size_t b, const ActGroup* act, const float (*scales)[kTok][kSubs], RowSums<Dec, kTok>& acc) {
  const typename RowSum<Dec>::D d32;
  const SumTag<Dec> df;
  HWY_UNROLL(4)
  for (size_t r = 0; r < kStreams; ++r) {
    Vec<decltype(d32)> sum[kTok], other[kTok];
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTok; ++t) sum[t] = other[t] = hn::Zero(d32);
    Dec::block(p[r] + b * Dec::kBlockBytes, [&](auto w, size_t k) WEIR_ATTR {
      const typename Dec::D16 d16;
      HWY_UNROLL(8)
      for (size_t t = 0; t < kTok; ++t) sum[t] = dot_pairs(d32, w, hn::Load(d16, act[t].q + b * kSub + k), sum[t], other[t]);
    });
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTok; ++t) {
      acc[r][t] = hn::MulAdd(hn::ConvertTo(df, hn::Add(sum[t], other[t])), hn::Set(df, scales[r][t][b]), acc[r][t]);
    }
  }
}

// Rows are interleaved block by block: a row alone is a chain of dependent additions.
template <class Dec, size_t kTok>
HWY_INLINE void dot_group_blocks(const uint8_t* const* p, size_t n_cols, const ActGroup* act, RowSums<Dec, kTok>& acc) {
  HWY_ALIGN float scales[kStreams][kTok][kSubs];
  if (HWY_LIKELY(n_cols == kGroup)) {
    HWY_UNROLL(4)
    for (size_t r = 0; r < kStreams; ++r) load_scales<Dec, kTok>(p[r], act, scales[r]);
    keep_in_memory(scales);
    HWY_UNROLL(8)
    for (size_t b = 0; b < kSubs; ++b) dot_block<Dec, kTok>(p, b, act, scales, acc);
  } else {
    for (size_t b = 0; b < n_cols / kSub; ++b) {
      for (size_t r = 0; r < kStreams; ++r) {
        const float scale = load_f16(p[r] + b * Dec::kBlockBytes);
        for (size_t t = 0; t < kTok; ++t) scales[r][t][b] = scale * act[t].scale;
      }
      dot_block<Dec, kTok>(p, b, act, scales, acc);
    }
  }
}

// acc[t] -= sum over the eight sub-blocks of their minimum times the sum of the activations.
template <class Dec, size_t kTok>
HWY_INLINE void subtract_minima(const float* low, const ActGroup* act, Vec<SumTag<Dec>>* acc) {
  const SumTag<Dec> df;
  const hn::CappedTag<float, HWY_MIN(hn::MaxLanes(df), kSubs)> d;
  for (size_t i = 0; i < kSubs; i += hn::MaxLanes(d)) {
    const auto m = hn::Load(d, low + i);
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTok; ++t) {
      const auto s = hn::LoadU(d, act[t].sum + i);
      if constexpr (hn::MaxLanes(df) > kSubs) {
        acc[t] = hn::NegMulAdd(hn::ZeroExtendVector(df, m), hn::ZeroExtendVector(df, s), acc[t]);
      } else {
        acc[t] = hn::NegMulAdd(m, s, acc[t]);
      }
    }
  }
}

// The integer sums of a super-block stay within 32 bits for 16 products a lane, then go to f32.
template <class Dec, size_t kTok>
HWY_INLINE void dot_group_super(const uint8_t* p, const ActGroup* act, Vec<SumTag<Dec>>* acc) {
  const typename RowSum<Dec>::D d32;
  const SumTag<Dec> df;
  constexpr size_t kUnitsPerFlush = HWY_MIN(size_t{4}, hn::MaxLanes(d32) * 16 / 64);
  static_assert(kUnitsPerFlush >= 1);
  typename Dec::Header h;
  Dec::header(p, h);
  keep_in_memory(h.sub);
  Vec<decltype(d32)> sum[kTok], other[kTok];
  const auto dot = [&](auto w, size_t k) WEIR_ATTR {
    const typename Dec::D16 d16;
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTok; ++t) {
      auto& half = HWY_ARCH_X86 && k / kSub % 2 != 0 ? other[t] : sum[t];  // two shorter chains of dependent additions
      half = dot_pairs(d32, w, hn::Load(d16, act[t].q + k), half, other[t]);
    }
  };
  const auto open = [&](size_t unit) WEIR_ATTR {
    if (unit % kUnitsPerFlush != 0) return;
    for (size_t t = 0; t < kTok; ++t) sum[t] = other[t] = hn::Zero(d32);
  };
  const auto close = [&](size_t unit) WEIR_ATTR {
    if ((unit + 1) % kUnitsPerFlush != 0) return;
    for (size_t t = 0; t < kTok; ++t) {
      acc[t] = hn::MulAdd(hn::ConvertTo(df, hn::Add(sum[t], other[t])), hn::Set(df, h.scale * act[t].scale), acc[t]);
    }
  };
  open(0), Dec::template unit<0>(p, h, dot), close(0);
  open(1), Dec::template unit<1>(p, h, dot), close(1);
  open(2), Dec::template unit<2>(p, h, dot), close(2);
  open(3), Dec::template unit<3>(p, h, dot), close(3);
  if constexpr (Dec::kMinima) subtract_minima<Dec, kTok>(h.low, act, acc);
}

template <class Dec, size_t kTok>
HWY_INLINE void dot_group_floats(const uint8_t* p, size_t n_cols, const ActGroup* act, Vec<SumTag<Dec>>* acc) {
  const SumTag<Dec> df;
  constexpr size_t kLanes = hn::MaxLanes(df);
  size_t k = 0;
  for (; k + kLanes <= n_cols; k += kLanes) {
    const auto w = Dec::load(df, p + k * Dec::kBytes);
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTok; ++t) acc[t] = hn::MulAdd(w, hn::LoadU(df, act[t].x + k), acc[t]);
  }
  for (; k < n_cols; ++k) {  // the last few columns: in lane 0
    const float w = Dec::one(p + k * Dec::kBytes);
    for (size_t t = 0; t < kTok; ++t) {
      acc[t] = hn::Add(acc[t], hn::IfThenElseZero(hn::FirstN(df, 1), hn::Set(df, w * act[t].x[k])));
    }
  }
}

template <class Dec, size_t kTok>
HWY_INLINE void dot_group(const uint8_t* const* p, size_t n_cols, const ActGroup* act, RowSums<Dec, kTok>& acc) {
  if constexpr (Dec::kLayout == Layout::kBlocks) {
    dot_group_blocks<Dec, kTok>(p, n_cols, act, acc);
  } else {
    HWY_UNROLL(4)
    for (size_t r = 0; r < kStreams; ++r) {
      if constexpr (Dec::kLayout == Layout::kSuperBlocks) dot_group_super<Dec, kTok>(p[r], act, acc[r]);
      if constexpr (Dec::kLayout == Layout::kFloats) dot_group_floats<Dec, kTok>(p[r], n_cols, act, acc[r]);
    }
  }
}

// kStreams rows of the matrix times kTok tokens from `tok` on.
template <class Dec, size_t kTok>
HWY_NOINLINE void gemv_rows(const GemvCall& c, const size_t* rows, size_t tok) {
  const SumTag<Dec> df;
  const size_t groups = n_groups(c.n_cols);
  RowSums<Dec, kTok> acc;
  const uint8_t* p[kStreams];
  HWY_UNROLL(4)
  for (size_t r = 0; r < kStreams; ++r) {
    p[r] = c.rows + rows[r] * c.row_bytes;
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTok; ++t) acc[r][t] = hn::Zero(df);
  }
  for (size_t g = 0; g < groups; ++g) {
    const size_t n_cols = HWY_MIN(kGroup, c.n_cols - g * kGroup);
    ActGroup act[kTok];
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTok; ++t) {
      const size_t at = (tok + t) * groups + g;
      if constexpr (Dec::kLayout == Layout::kFloats) {
        act[t] = {c.act.x + (tok + t) * c.n_cols + g * kGroup, nullptr, nullptr, 0};
      } else {
        act[t] = {nullptr, c.act.q + at * kGroup, c.act.sum + at * kSubs, c.act.scale[at]};
      }
    }
    HWY_UNROLL(4)
    for (size_t r = 0; r < kStreams; ++r) {
      for (size_t i = 0; i < group_bytes<Dec>(); i += 64) hwy::Prefetch(p[r] + kPrefetchBytes + i);
    }
    dot_group<Dec, kTok>(p, n_cols, act, acc);
    HWY_UNROLL(4)
    for (size_t r = 0; r < kStreams; ++r) p[r] += group_bytes<Dec>();
  }
  HWY_UNROLL(4)
  for (size_t r = 0; r < kStreams; ++r) {
    for (size_t t = 0; t < kTok; ++t) c.out[(tok + t) * c.out_stride + rows[r]] = hn::GetLane(hn::SumOfLanes(df, acc[r][t]));
  }
}

template <class Dec>
void gemv(const GemvCall& c) {
  const size_t apart = (c.n_rows + kStreams - 1) / kStreams;
  for (size_t i = 0; i < apart; ++i) {
    size_t rows[kStreams];
    for (size_t r = 0; r < kStreams; ++r) rows[r] = HWY_MIN(i + r * apart, c.n_rows - 1);  // at the end some rows are computed twice
    size_t tok = 0;
    for (; tok + 4 <= c.n_tok; tok += 4) gemv_rows<Dec, 4>(c, rows, tok);
    if (tok + 2 <= c.n_tok) gemv_rows<Dec, 2>(c, rows, tok), tok += 2;
    if (tok < c.n_tok) gemv_rows<Dec, 1>(c, rows, tok);
  }
}

// One row's group into q[kGroup], scale[kSubs] and low[kSubs] of a tile.
template <class Dec>
HWY_INLINE void decode_group(const uint8_t* p, size_t n_cols, int16_t* HWY_RESTRICT q, float* HWY_RESTRICT scale, float* HWY_RESTRICT low) {
  const typename Dec::D16 d16;
  if constexpr (Dec::kLayout == Layout::kBlocks) {
    for (size_t b = 0; b < n_cols / kSub; ++b) {
      scale[b] = load_f16(p + b * Dec::kBlockBytes);
      Dec::block(p + b * Dec::kBlockBytes, [&](auto w, size_t k) WEIR_ATTR { hn::Store(w, d16, q + b * kSub + k); });
    }
  } else {
    typename Dec::Header h;
    Dec::header(p, h);
    const auto store = [&](auto w, size_t k) WEIR_ATTR { hn::Store(w, d16, q + k); };
    Dec::template unit<0>(p, h, store);
    Dec::template unit<1>(p, h, store);
    Dec::template unit<2>(p, h, store);
    Dec::template unit<3>(p, h, store);
    scale[0] = h.scale;
    if constexpr (Dec::kMinima) std::memcpy(low, h.low, sizeof h.low);
  }
}

template <class Dec>
void decode(const DecodeCall& c, Tile& tile) {
  for (size_t r = 0; r < c.n_rows; ++r) {
    const uint8_t* p = c.rows + r * c.row_bytes + c.group * group_bytes<Dec>();
    for (size_t i = 0; i < group_bytes<Dec>(); i += 64) hwy::Prefetch(p + group_bytes<Dec>() + i);  // the next group's tile
    decode_group<Dec>(p, c.n_cols, tile.q + r * kGroup, tile.scale + r * kSubs, tile.min + r * kSubs);
  }
}

template <class Dec>
void decode_float(const DecodeCall& c, Tile& tile) {
  const hn::ScalableTag<float> df;
  constexpr size_t kLanes = hn::MaxLanes(df);
  for (size_t r = 0; r < c.n_rows; ++r) {
    const uint8_t* p = c.rows + r * c.row_bytes + c.group * group_bytes<Dec>();
    float* f = tile.f + r * kGroup;
    for (size_t i = 0; i < group_bytes<Dec>(); i += 64) hwy::Prefetch(p + group_bytes<Dec>() + i);
    if constexpr (Dec::kLayout == Layout::kFloats) {
      size_t k = 0;
      for (; k + kLanes <= c.n_cols; k += kLanes) hn::Store(Dec::load(df, p + k * Dec::kBytes), df, f + k);
      for (; k < c.n_cols; ++k) f[k] = Dec::one(p + k * Dec::kBytes);
    } else {
      HWY_ALIGN int16_t q[kGroup];
      HWY_ALIGN float scale[kSubs], low[kSubs] = {};
      decode_group<Dec>(p, c.n_cols, q, scale, low);
      for (size_t k = 0; k < c.n_cols; k += kLanes) {
        const float s = Dec::kLayout == Layout::kBlocks ? scale[k / kSub] : scale[0];
        const auto i32 = hn::PromoteTo(hn::Rebind<int32_t, decltype(df)>(), hn::Load(hn::Rebind<int16_t, decltype(df)>(), q + k));
        hn::Store(hn::MulSub(hn::ConvertTo(df, i32), hn::Set(df, s), hn::Set(df, low[k / kSub])), df, f + k);
      }
    }
  }
}

template <class Dec>
constexpr WeightKernels make_weight_kernels() {
  if constexpr (Dec::kLayout == Layout::kFloats) {
    return {TileKind::kFloat, false, gemv<Dec>, nullptr, decode_float<Dec>};
  } else if constexpr (Dec::kLayout == Layout::kBlocks) {
    return {TileKind::kSubScales, false, gemv<Dec>, decode<Dec>, decode_float<Dec>};
  } else {
    return {Dec::kKind, Dec::kMinima, gemv<Dec>, decode<Dec>, decode_float<Dec>};
  }
}
template <class Dec>
inline constexpr WeightKernels kWeightKernels = make_weight_kernels<Dec>();

}  // namespace weir::cpu::HWY_NAMESPACE
#endif
HWY_AFTER_NAMESPACE();

// kernels_<Name>(), for one instruction set, from Decoder<Name>; inside the target's namespace.
#undef WEIR_WEIGHT_KERNELS
#if WEIR_VECTOR_KERNELS
#define WEIR_WEIGHT_KERNELS(Name) \
  const WeightKernels& kernels_##Name() { return kWeightKernels<Decoder##Name>; }
#else
#define WEIR_WEIGHT_KERNELS(Name) \
  const WeightKernels& kernels_##Name() { return kPlainWeightKernels<WeightType::k##Name>; }
#endif
// weight_kernels_<Name>(), the machine's best of them; once, in namespace weir::cpu.
#undef WEIR_EXPORT_WEIGHT_KERNELS
#define WEIR_EXPORT_WEIGHT_KERNELS(Name) \
  HWY_EXPORT(kernels_##Name);            \
  const WeightKernels& weight_kernels_##Name() { return HWY_DYNAMIC_DISPATCH(kernels_##Name)(); }

#endif  // include guard per target
