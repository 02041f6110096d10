// The GEMV and the tile decoders of one weight type, as templates over its decoder. The weight_<type>.cpp files supply
// the decoders and instantiate the templates.
//
// A GEMV runs four rows at once. They lie a quarter of the task's rows apart, so that the memory system sees four long
// sequential streams; one stream leaves a third of the bandwidth of server cores unused. The sums of a row are formed
// in one order whatever its neighbours are, so a row's result does not depend on its task, nor a token's result on the
// other tokens. Longer than 600 lines because every type's loops are compiled together, once per instruction set.
//
// A decoder of blocks of 32 weights with an f16 scale in front has kLayout = kBlocks and
//   D16, kBlockBytes, kOffset; kMinima, kSubs if an f16 that is added to every weight follows the scale, else 0;
//   kAtOnce, 1 or 2 blocks; scales(p, n_blocks, out) where scales are not f16: what load_block_scales says of `scale`;
//   blocks<centred>(p, next, f): calls f(i16 vector, key) for all weights of a block, or of two, at p and next;
//   numbers(q, key): the vector of activations for a key, and store(v, q, key): the inverse, from and to an array in
//   the order of the weights.
// Weights that are not centred are too large by kOffset; the GEMV corrects that with the sums of the activations. With
// kAtOnce = 2 the lower half of a sum's lanes belongs to the first block.
//
// A decoder of super-blocks of 256 weights has kLayout = kSuperBlocks and
//   D16, kBlockBytes, kKind; kMinima, the number of minima: 0, kSubs or kHalves; Header, filled by header(p, h): scale,
//   sub; with minima also minima and min_scale, as KHeader has them;
//   unit<u>(p, h, f): calls f as above for weights 64u .. 64u+63 times their integer sub-scales;
//   |q| * 16 * 32767 must be below 2^31.
//
// A decoder of plain numbers has kLayout = kFloats and kBytes; load(d, p): f32 vector; one(p): f32. Blocks whose scales
// are too far apart for integers are decoded as floats, too: such a decoder has kGroupBytes and kBlockWeights instead,
// and load(d, p, k), the weights of a group from k on.
#include "cpu/matmul_kernels.h"
#include "cpu/matmul_simd-inl.h"
#include "cpu/plain_kernels.h"
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
// Tokens that a GEMV multiplies at once. On SSE4 (processors before 2013) 4 are a fifth faster than twice 2, but their
// code would be 7 % of the library.
inline constexpr size_t kMaxTokensAtOnce = HWY_TARGET == HWY_SSE4 ? 2 : 4;
// Prefetch distance of each stream in bytes: about the memory latency times a core's share of the bandwidth.
inline constexpr size_t kPrefetchBytes = 1536;

// An i16 vector of a pair of equal numbers that memory holds as 32 bits: 32-bit broadcasts from memory need no shuffle.
template <class D16>
HWY_INLINE Vec<D16> broadcast_pair(D16 d16, uint32_t pair) {
  const hn::Repartition<uint32_t, D16> d32;
  return hn::BitCast(d16, hn::Set(d32, pair));
}

// Stores an i32 vector of small numbers as such pairs.
template <class V>
HWY_INLINE void store_pairs(V v, uint32_t* out) {
  const hn::DFromV<V> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  hn::Store(hn::BitCast(du, hn::Or(hn::And(v, hn::Set(d, 0xFFFF)), hn::ShiftLeft<16>(v))), du, out);
}

// The header of the K types with minima: two f16 scales, then eight sub-scales and sub-minima in 12 bytes
// (quant/k_scales.h).
struct KHeader {
  HWY_ALIGN uint32_t sub[kSubs];  // sub-scales, as pairs of equal i16
  float scale, min_scale;
  uint8_t minima[kSubs];  // times min_scale
};

HWY_INLINE void load_k_header(const uint8_t* p, KHeader& h) {
  const hn::CappedTag<float, 2> d2;
  const hn::Rebind<hwy::float16_t, decltype(d2)> dh;
  const hn::Repartition<uint8_t, decltype(dh)> dh8;
  hn::StoreU(hn::PromoteTo(d2, hn::BitCast(dh, hn::LoadU(dh8, p))), d2, &h.scale);
  uint32_t a, b, c;
  std::memcpy(&a, p + 4, sizeof a);
  std::memcpy(&b, p + 8, sizeof b);
  std::memcpy(&c, p + 12, sizeof c);
  // Each word is four 6-bit numbers in bytes: scales 0..3 and 4..7, minima 0..3 and 4..7. They are combined in
  // registers: narrow stores would stall the wide load that reads them.
  const uint64_t scales = (a & 0x3F3F3F3Fu) | uint64_t{(c & 0x0F0F0F0Fu) | (a >> 2 & 0x30303030u)} << 32;
  const uint64_t minima = (b & 0x3F3F3F3Fu) | uint64_t{(c >> 4 & 0x0F0F0F0Fu) | (b >> 2 & 0x30303030u)} << 32;
  std::memcpy(h.minima, &minima, sizeof minima);
  uint8_t sub[kSubs];
  std::memcpy(sub, &scales, sizeof scales);
  const hn::CappedTag<int32_t, kSubs> d32;
  const hn::Rebind<uint8_t, decltype(d32)> d8;
  for (size_t i = 0; i < kSubs; i += hn::MaxLanes(d32)) {
    const auto v = hn::PromoteTo(d32, hn::LoadU(d8, sub + i));
    hn::StoreU(hn::BitCast(hn::RebindToUnsigned<decltype(d32)>(), hn::Or(v, hn::ShiftLeft<16>(v))),
               hn::RebindToUnsigned<decltype(d32)>(), h.sub + i);
  }
}

// Broadcasts the sub-scales of 16 weights each to the lanes of weights k .. k + lanes of a quarter of 32 weights, whose
// sub-scales begin at `sub`.
template <class D16>
HWY_INLINE Vec<D16> broadcast_halves(D16 d16, const uint32_t* sub, size_t k) {
  if constexpr (hn::MaxLanes(d16) == 32) {  // two pairs in every 64 bits; half of the 128-bit lanes take the first one
    const hn::Repartition<uint8_t, D16> d8;
    const hn::Repartition<uint64_t, D16> d64;
    alignas(64) static constexpr uint8_t kPairs[64] = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1,
                                                       0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5,
                                                       4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5};
    uint64_t both;
    std::memcpy(&both, sub, sizeof both);
    return hn::BitCast(d16, hn::TableLookupBytes(hn::BitCast(d8, hn::Set(d64, both)), hn::Load(d8, kPairs)));
  } else {
    return broadcast_pair(d16, sub[k / 16]);
  }
}

// Calls f(i16 vector, key) for a vector of i8 weights from `key` on, once or twice.
template <class D16, class V8, class F>
HWY_INLINE void widen_to(D16 d16, V8 weights, size_t key, F&& f) {
  const hn::DFromV<V8> d8;
  if constexpr (hn::MaxLanes(d16) == hn::MaxLanes(d8)) {
    f(hn::PromoteTo(d16, weights), key);
  } else {
    const hn::Half<decltype(d8)> d_half;
    f(hn::PromoteTo(d16, hn::LowerHalf(d_half, weights)), key);
    f(hn::PromoteTo(d16, hn::UpperHalf(d_half, weights)), key + hn::MaxLanes(d_half));
  }
}

// minima[i .. i + lanes) * min_scale.
template <class D, class Header>
HWY_INLINE Vec<D> load_minima(D d, const Header& h, size_t i) {
  const hn::Rebind<int32_t, D> d32;
  const hn::Rebind<uint8_t, D> d8;
  return hn::Mul(hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, h.minima + i))), hn::Set(d, h.min_scale));
}

// The group of activations of one token.
struct ActGroup {
  const float* x;
  const int16_t* q;
  const float* sum;       // [kSubs]
  const float* half_sum;  // [kHalves]
  const float* scale;     // a pointer, so that it is broadcast from memory
};

// One group of each of kStreams rows, as fixed pointers and one offset. Four moving pointers would do as well, but
// compilers gather them in a vector and then spend time on extracting them again.
struct RowGroups {
  const uint8_t* first[kStreams];
  size_t offset;
  HWY_INLINE const uint8_t* operator[](size_t r) const { return first[r] + offset; }
};

// Whether a decoder of floats has blocks.
template <class Dec>
concept HasGroups = requires {
  Dec::kGroupBytes;
};

template <class Dec>
constexpr size_t group_bytes() {
  if constexpr (Dec::kLayout == Layout::kBlocks) return kSubs * Dec::kBlockBytes;
  if constexpr (Dec::kLayout == Layout::kSuperBlocks) return Dec::kBlockBytes;
  if constexpr (Dec::kLayout == Layout::kFloats) {
    if constexpr (HasGroups<Dec>) return Dec::kGroupBytes;
    if constexpr (!HasGroups<Dec>) return kGroup * Dec::kBytes;
  }
}

// Weights k .. k + lanes of a group of floats at p.
template <class Dec, class D>
HWY_INLINE Vec<D> load_floats(D d, const uint8_t* p, size_t k) {
  if constexpr (HasGroups<Dec>) return Dec::load(d, p, k);
  if constexpr (!HasGroups<Dec>) return Dec::load(d, p + k * Dec::kBytes);
}

template <class Dec>
struct RowSum {
  using D = hn::RepartitionToWide<typename Dec::D16>;  // i32
  using DF = hn::Rebind<float, D>;
};
template <class Dec>
requires(Dec::kLayout == Layout::kFloats) struct RowSum<Dec> {
  using DF = hn::ScalableTag<float>;
};
template <class Dec>
using SumTag = typename RowSum<Dec>::DF;
template <class Dec, size_t kTok>
using RowSums = Vec<SumTag<Dec>>[kStreams][kTok];

// acc[t] -= sum over the kN (kSubs or kHalves) sub-blocks of (what each of its weights is too large by) * (sum of its
// activations). excess(d, i) returns the first factor for sub-blocks i, i + 1, ...
template <class Dec, size_t kTok, size_t kN = kSubs, class Excess>
HWY_INLINE void subtract_excess(const Excess& excess, const ActGroup* act, Vec<SumTag<Dec>>* acc) {
  const SumTag<Dec> df;
  const hn::CappedTag<float, HWY_MIN(hn::MaxLanes(df), kN)> d;
  for (size_t i = 0; i < kN; i += hn::MaxLanes(d)) {
    const auto e = excess(d, i);
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTok; ++t) {
      const auto s = hn::LoadU(d, (kN == kHalves ? act[t].half_sum : act[t].sum) + i);
      if constexpr (hn::MaxLanes(df) > kN) {
        acc[t] = hn::NegMulAdd(hn::ZeroExtendVector(df, e), hn::ZeroExtendVector(df, s), acc[t]);
      } else {
        acc[t] = hn::NegMulAdd(e, s, acc[t]);
      }
    }
  }
}

// out[0..7] = the f16 numbers at p in eight consecutive blocks.
template <class Dec>
HWY_INLINE void load_f16_of_blocks(const uint8_t* p, float* HWY_RESTRICT out) {
  const hn::CappedTag<float, 4> d4;
  const hn::Rebind<hwy::float16_t, decltype(d4)> dh;
  const hn::CappedTag<uint64_t, 1> d64;
  HWY_UNROLL(2)
  for (size_t half = 0; half < kSubs; half += 4) {
    // Four numbers are gathered in a register. Memory would be slower: a wide read right after narrow writes has to
    // wait.
    uint64_t bits = 0;
    HWY_UNROLL(4)
    for (size_t i = 0; i < 4; ++i) {
      uint16_t h;
      std::memcpy(&h, p + (half + i) * Dec::kBlockBytes, sizeof h);
      bits |= uint64_t{h} << (16 * i);
    }
    hn::Store(hn::PromoteTo(d4, hn::BitCast(dh, hn::Set(d64, bits))), d4, out + half);
  }
}

// The scales of Dec::kAtOnce blocks from b on, in the lanes that hold the blocks' sums.
template <class Dec>
HWY_INLINE Vec<SumTag<Dec>> block_scales(const float* scales, size_t b) {
  const SumTag<Dec> df;
  if constexpr (Dec::kAtOnce == 1) return hn::Set(df, scales[b]);
  return hn::IfThenElse(hn::FirstN(df, hn::MaxLanes(df) / 2), hn::Set(df, scales[b]), hn::Set(df, scales[b + 1]));
}

// Whether a decoder of blocks reads their scales itself.
template <class Dec>
concept HasScales = requires(const uint8_t* p, float* out) {
  Dec::scales(p, kSubs, out);
};

// Loads the pairs of f16 numbers at p in eight consecutive blocks: first[0..7] and second[0..7].
template <class Dec>
HWY_INLINE void load_pairs_of_blocks(const uint8_t* p, float* HWY_RESTRICT first, float* HWY_RESTRICT second) {
  const hn::CappedTag<float, 4> d4;
  const hn::Rebind<hwy::float16_t, decltype(d4)> dh;
  const hn::CappedTag<uint64_t, 1> d64;
  const auto two_pairs = [&](size_t b) WEIR_ATTR {
    uint32_t a, c;
    std::memcpy(&a, p + b * Dec::kBlockBytes, sizeof a);
    std::memcpy(&c, p + (b + 1) * Dec::kBlockBytes, sizeof c);
    return hn::PromoteTo(d4, hn::BitCast(dh, hn::Set(d64, a | uint64_t{c} << 32)));
  };
  HWY_UNROLL(2)
  for (size_t b = 0; b < kSubs; b += 4) {
    const auto low = two_pairs(b), high = two_pairs(b + 2);
    hn::Store(hn::ConcatEven(d4, high, low), d4, first + b);
    hn::Store(hn::ConcatOdd(d4, high, low), d4, second + b);
  }
}

// Loads n_blocks (1 to kSubs) blocks' scale[0..7] and, with minima, minimum[0..7], 0 where there is no block.
template <class Dec>
HWY_INLINE void load_block_scales(const uint8_t* p, size_t n_blocks, float* HWY_RESTRICT scale,
                                  float* HWY_RESTRICT minimum) {
  if constexpr (HasScales<Dec>) {
    Dec::scales(p, n_blocks, scale);
  } else if (HWY_LIKELY(n_blocks == kSubs)) {
    if constexpr (Dec::kMinima == 0) load_f16_of_blocks<Dec>(p, scale);
    if constexpr (Dec::kMinima != 0) load_pairs_of_blocks<Dec>(p, scale, minimum);
  } else {
    for (size_t b = 0; b < kSubs; ++b) {
      const uint8_t* at = p + b * Dec::kBlockBytes;
      scale[b] = b < n_blocks ? load_f16(at) : 0.0f;
      if constexpr (Dec::kMinima != 0) minimum[b] = b < n_blocks ? load_f16(at + sizeof(uint16_t)) : 0.0f;
    }
  }
}

// acc[r][t] += (Dec::kAtOnce blocks of row r from b on) . (q of token t). If block b + 1 does not exist, its scale is
// 0.
template <class Dec, size_t kTok>
HWY_INLINE void dot_blocks(const RowGroups& p, size_t b, size_t last, const ActGroup* act, const float (*scales)[kSubs],
                           RowSums<Dec, kTok>& acc) {
  const typename RowSum<Dec>::D d32;
  const SumTag<Dec> df;
  const size_t next = HWY_MIN(b + Dec::kAtOnce - 1, last);
  HWY_UNROLL(4)
  for (size_t r = 0; r < kStreams; ++r) {
    Vec<decltype(d32)> sum[kTok], other[kTok];
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTok; ++t) sum[t] = other[t] = hn::Zero(d32);
    Dec::template blocks<false>(
        p[r] + b * Dec::kBlockBytes, p[r] + next * Dec::kBlockBytes, [&](auto w, size_t key) WEIR_ATTR {
          HWY_UNROLL(8)
          for (size_t t = 0; t < kTok; ++t)
            sum[t] = dot_pairs(d32, w, Dec::numbers(act[t].q + b * kSub, key), sum[t], other[t]);
        });
    const auto scale = block_scales<Dec>(scales[r], b);
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTok; ++t)
      acc[r][t] = hn::MulAdd(hn::ConvertTo(df, hn::Add(sum[t], other[t])), scale, acc[r][t]);
  }
}

// Rows are interleaved block by block, because one row alone is a chain of dependent additions.
template <class Dec, size_t kTok>
HWY_INLINE void dot_group_blocks(const RowGroups& p, size_t n_cols, const ActGroup* act, RowSums<Dec, kTok>& acc) {
  const SumTag<Dec> df;
  RowSums<Dec, kTok> group;  // in units of the activations' scale
  HWY_UNROLL(4)
  for (size_t r = 0; r < kStreams; ++r) {
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTok; ++t) group[r][t] = hn::Zero(df);
  }
  HWY_ALIGN float scales[kStreams][kSubs];
  HWY_ALIGN float minima[Dec::kMinima != 0 ? kStreams : 1][kSubs];
  const size_t n_blocks = n_cols / kSub;
  HWY_UNROLL(4)
  for (size_t r = 0; r < kStreams; ++r)
    load_block_scales<Dec>(p[r], n_blocks, scales[r], minima[Dec::kMinima != 0 ? r : 0]);
  if (HWY_LIKELY(n_blocks == kSubs)) {
    keep_in_memory(scales);
    HWY_UNROLL(8)
    for (size_t b = 0; b < kSubs; b += Dec::kAtOnce) dot_blocks<Dec, kTok>(p, b, kSubs - 1, act, scales, group);
  } else {
    for (size_t b = 0; b < n_blocks; b += Dec::kAtOnce) dot_blocks<Dec, kTok>(p, b, n_blocks - 1, act, scales, group);
  }
  HWY_UNROLL(4)
  for (size_t r = 0; r < kStreams; ++r) {
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTok; ++t) acc[r][t] = hn::MulAdd(group[r][t], hn::Set(df, *act[t].scale), acc[r][t]);
    const auto excess = [&](auto d, size_t i) WEIR_ATTR {
      if constexpr (Dec::kMinima != 0) return hn::Neg(hn::Load(d, minima[r] + i));
      return hn::Mul(hn::Load(d, scales[r] + i), hn::Set(d, float{Dec::kOffset}));
    };
    if constexpr (Dec::kMinima != 0 || Dec::kOffset != 0) subtract_excess<Dec, kTok>(excess, act, acc[r]);
  }
}

// An i32 lane can sum 16 products of a super-block; then the sums are converted and added in f32.
template <class Dec, size_t kTok>
HWY_INLINE void dot_group_super(const uint8_t* p, const ActGroup* act, Vec<SumTag<Dec>>* acc) {
  const typename RowSum<Dec>::D d32;
  const SumTag<Dec> df;
  constexpr size_t kUnitsPerFlush = HWY_MIN(size_t{4}, hn::MaxLanes(d32) * 16 / 64);
  static_assert(kUnitsPerFlush >= 1);
  typename Dec::Header h;
  Dec::header(p, h);
  keep_in_memory(h);
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
      acc[t] = hn::MulAdd(hn::ConvertTo(df, hn::Add(sum[t], other[t])),
                          hn::Mul(hn::Set(df, h.scale), hn::Set(df, *act[t].scale)), acc[t]);
    }
  };
  open(0), Dec::template unit<0>(p, h, dot), close(0);
  open(1), Dec::template unit<1>(p, h, dot), close(1);
  open(2), Dec::template unit<2>(p, h, dot), close(2);
  open(3), Dec::template unit<3>(p, h, dot), close(3);
  if constexpr (Dec::kMinima != 0)
    subtract_excess<Dec, kTok, Dec::kMinima>([&](auto d, size_t i) WEIR_ATTR { return load_minima(d, h, i); }, act,
                                             acc);
}

// One chain of dependent additions would take longer than all the rest. Not inlined, for size.
template <class Dec, size_t kTok>
HWY_NOINLINE void dot_group_scaled_floats(const uint8_t* p, size_t n_cols, const ActGroup* act, Vec<SumTag<Dec>>* acc) {
  const SumTag<Dec> df;
  constexpr size_t kLanes = hn::MaxLanes(df), kWeights = Dec::kBlockWeights;
  Vec<decltype(df)> sum[kTok][2];
  HWY_UNROLL(8)
  for (size_t t = 0; t < kTok; ++t) sum[t][0] = sum[t][1] = hn::Zero(df);
  for (size_t k = 0; k < n_cols; k += kWeights, p += Dec::kGroupBytes / (kGroup / kWeights)) {
    HWY_UNROLL(16)
    for (size_t i = 0; i < kWeights; i += kLanes) {
      const auto w = Dec::load(df, p, i);
      HWY_UNROLL(8)
      for (size_t t = 0; t < kTok; ++t) {
        auto& half = sum[t][i / kLanes % 2];
        half = hn::MulAdd(w, hn::LoadU(df, act[t].x + k + i), half);
      }
    }
  }
  HWY_UNROLL(8)
  for (size_t t = 0; t < kTok; ++t) acc[t] = hn::Add(acc[t], hn::Add(sum[t][0], sum[t][1]));
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
  for (; k < n_cols; ++k) {  // the last columns go to lane 0
    const float w = Dec::one(p + k * Dec::kBytes);
    for (size_t t = 0; t < kTok; ++t) {
      acc[t] = hn::Add(acc[t], hn::IfThenElseZero(hn::FirstN(df, 1), hn::Set(df, w * act[t].x[k])));
    }
  }
}

template <class Dec, size_t kTok>
HWY_INLINE void dot_group(const RowGroups& p, size_t n_cols, const ActGroup* act, RowSums<Dec, kTok>& acc) {
  if constexpr (Dec::kLayout == Layout::kBlocks) {
    dot_group_blocks<Dec, kTok>(p, n_cols, act, acc);
  } else {
    HWY_UNROLL(4)
    for (size_t r = 0; r < kStreams; ++r) {
      if constexpr (Dec::kLayout == Layout::kSuperBlocks) dot_group_super<Dec, kTok>(p[r], act, acc[r]);
      if constexpr (HasGroups<Dec>) {
        dot_group_scaled_floats<Dec, kTok>(p[r], n_cols, act, acc[r]);
      } else if constexpr (Dec::kLayout == Layout::kFloats) {
        dot_group_floats<Dec, kTok>(p[r], n_cols, act, acc[r]);
      }
    }
  }
}

// Multiplies kStreams rows of the matrix with kTok tokens from `tok` on.
template <class Dec, size_t kTok>
HWY_NOINLINE void gemv_rows(const GemvCall& c, const size_t* rows, size_t tok) {
  const SumTag<Dec> df;
  const size_t groups = n_groups(c.n_cols);
  RowSums<Dec, kTok> acc;
  const uint8_t* first[kStreams];
  HWY_UNROLL(4)
  for (size_t r = 0; r < kStreams; ++r) {
    first[r] = c.rows + rows[r] * c.row_bytes;
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
        act[t] = {c.act.x + (tok + t) * c.n_cols + g * kGroup, nullptr, nullptr, nullptr, nullptr};
      } else {
        act[t] = {nullptr, c.act.q + at * kGroup, c.act.sum + at * kSubs, c.act.half_sum + at * kHalves,
                  c.act.scale + at};
      }
    }
    const RowGroups p = {{first[0], first[1], first[2], first[3]}, g * group_bytes<Dec>()};
    HWY_UNROLL(4)
    for (size_t r = 0; r < kStreams; ++r) {
      for (size_t i = 0; i < group_bytes<Dec>(); i += 64) hwy::Prefetch(p[r] + kPrefetchBytes + i);
    }
    dot_group<Dec, kTok>(p, n_cols, act, acc);
  }
  HWY_UNROLL(4)
  for (size_t r = 0; r < kStreams; ++r) {
    for (size_t t = 0; t < kTok; ++t)
      c.out[(tok + t) * c.out_stride + rows[r]] = hn::GetLane(hn::SumOfLanes(df, acc[r][t]));
  }
}

template <class Dec>
void gemv(const GemvCall& c) {
  const size_t apart = (c.n_rows + kStreams - 1) / kStreams;
  for (size_t i = 0; i < apart; ++i) {
    size_t rows[kStreams];
    for (size_t r = 0; r < kStreams; ++r)
      rows[r] = HWY_MIN(i + r * apart, c.n_rows - 1);  // the last rows may be computed twice
    size_t tok = 0;
    if constexpr (kMaxTokensAtOnce == 4) {
      for (; tok + 4 <= c.n_tok; tok += 4) gemv_rows<Dec, 4>(c, rows, tok);
    }
    for (; tok + 2 <= c.n_tok; tok += 2) gemv_rows<Dec, 2>(c, rows, tok);
    if (tok < c.n_tok) gemv_rows<Dec, 1>(c, rows, tok);
  }
}

// Decodes one group of a row into q[kGroup], scale[kSubs] and low[kHalves] of a tile.
template <class Dec>
HWY_INLINE void decode_group(const uint8_t* p, size_t n_cols, int16_t* HWY_RESTRICT q, float* HWY_RESTRICT scale,
                             float* HWY_RESTRICT low) {
  if constexpr (Dec::kLayout == Layout::kBlocks) {
    const size_t n_blocks = n_cols / kSub;
    load_block_scales<Dec>(p, n_blocks, scale, low);
    if constexpr (Dec::kMinima != 0) {  // minima are added, `low` is subtracted
      const hn::CappedTag<float, 4> d;
      for (size_t b = 0; b < kSubs; b += hn::MaxLanes(d)) hn::Store(hn::Neg(hn::Load(d, low + b)), d, low + b);
    }
    for (size_t b = 0; b < n_blocks; b += Dec::kAtOnce) {
      const size_t next = HWY_MIN(b + Dec::kAtOnce - 1, n_blocks - 1);
      Dec::template blocks<true>(p + b * Dec::kBlockBytes, p + next * Dec::kBlockBytes,
                                 [&](auto w, size_t key) WEIR_ATTR { Dec::store(w, q + b * kSub, key); });
    }
  } else {
    const typename Dec::D16 d16;
    typename Dec::Header h;
    Dec::header(p, h);
    const auto store = [&](auto w, size_t k) WEIR_ATTR { hn::Store(w, d16, q + k); };
    Dec::template unit<0>(p, h, store);
    Dec::template unit<1>(p, h, store);
    Dec::template unit<2>(p, h, store);
    Dec::template unit<3>(p, h, store);
    scale[0] = h.scale;
    if constexpr (Dec::kMinima != 0) {
      const hn::CappedTag<float, kSubs> d;
      for (size_t i = 0; i < Dec::kMinima; i += hn::MaxLanes(d)) hn::Store(load_minima(d, h, i), d, low + i);
    }
  }
}

template <class Dec>
void decode(const DecodeCall& c, Tile& tile) {
  for (size_t r = 0; r < c.n_rows; ++r) {
    const uint8_t* p = c.rows + r * c.row_bytes + c.group * group_bytes<Dec>();
    decode_group<Dec>(p, c.n_cols, tile.q + r * kGroup, tile.scale + r * kSubs, tile.min + r * kHalves);
  }
}

template <class Dec>
void decode_float(const DecodeCall& c, Tile& tile) {
  const hn::ScalableTag<float> df;
  constexpr size_t kLanes = hn::MaxLanes(df);
  for (size_t r = 0; r < c.n_rows; ++r) {
    const uint8_t* p = c.rows + r * c.row_bytes + c.group * group_bytes<Dec>();
    float* f = tile.f + r * kGroup;
    if constexpr (Dec::kLayout == Layout::kFloats) {
      size_t k = 0;
      for (; k + kLanes <= c.n_cols; k += kLanes) hn::Store(load_floats<Dec>(df, p, k), df, f + k);
      if constexpr (!HasGroups<Dec>) {
        for (; k < c.n_cols; ++k) f[k] = Dec::one(p + k * Dec::kBytes);
      }
    } else {
      HWY_ALIGN int16_t q[kGroup];
      HWY_ALIGN float scale[kSubs], low[kHalves] = {};
      constexpr size_t kPerMinimum = Dec::kMinima == kHalves ? kHalf : kSub;
      static_assert(kLanes <= kPerMinimum);
      decode_group<Dec>(p, c.n_cols, q, scale, low);
      for (size_t k = 0; k < c.n_cols; k += kLanes) {
        const float s = Dec::kLayout == Layout::kBlocks ? scale[k / kSub] : scale[0];
        const auto i32 =
            hn::PromoteTo(hn::Rebind<int32_t, decltype(df)>(), hn::Load(hn::Rebind<int16_t, decltype(df)>(), q + k));
        hn::Store(hn::MulSub(hn::ConvertTo(df, i32), hn::Set(df, s), hn::Set(df, low[k / kPerMinimum])), df, f + k);
      }
    }
  }
}

template <class Dec>
constexpr WeightKernels make_weight_kernels() {
  if constexpr (Dec::kLayout == Layout::kFloats) {
    return {TileKind::kFloat, false, false, gemv<Dec>, nullptr, decode_float<Dec>};
  } else if constexpr (Dec::kLayout == Layout::kBlocks) {
    constexpr bool kMinima = Dec::kMinima != 0;
    return {kMinima ? TileKind::kSubMinima : TileKind::kSubScales,
            kMinima || Dec::kOffset != 0,
            false,
            gemv<Dec>,
            decode<Dec>,
            decode_float<Dec>};
  } else {
    return {Dec::kKind, Dec::kMinima == kSubs, Dec::kMinima == kHalves, gemv<Dec>, decode<Dec>, decode_float<Dec>};
  }
}
template <class Dec>
inline constexpr WeightKernels kWeightKernels = make_weight_kernels<Dec>();

}  // namespace weir::cpu::HWY_NAMESPACE
#endif
HWY_AFTER_NAMESPACE();

// Defines kernels_<Name>() for one instruction set from Decoder<Name>; used inside the target's namespace.
#undef WEIR_WEIGHT_KERNELS
#if WEIR_VECTOR_KERNELS
#define WEIR_WEIGHT_KERNELS(Name) \
  const WeightKernels& kernels_##Name() { return kWeightKernels<Decoder##Name>; }
#else
#define WEIR_WEIGHT_KERNELS(Name) \
  const WeightKernels& kernels_##Name() { return kPlainWeightKernels<WeightType::k##Name>; }
#endif
// Defines weight_kernels_<Name>(), the best of them for the machine; used once, in namespace weir::cpu.
#undef WEIR_EXPORT_WEIGHT_KERNELS
#define WEIR_EXPORT_WEIGHT_KERNELS(Name) \
  HWY_EXPORT(kernels_##Name);            \
  const WeightKernels& weight_kernels_##Name() { return HWY_DYNAMIC_DISPATCH(kernels_##Name)(); }

#endif  // include guard per target
