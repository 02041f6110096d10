// The GEMV and the tile decoders of the weight types with grids: signs and sub-scales of unpacked blocks, and the dot
// product. As in weight_kernels-inl.h four rows are read at once, a quarter of the task's rows apart, and a row's sums
// are formed in one order whatever its neighbours are.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/grid_rows.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/grid_rows-inl.h"
#include "hwy/cache_control.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

using D16 = hn::CappedTag<int16_t, 32>;
using D32 = hn::RepartitionToWide<D16>;
using DF = hn::Rebind<float, D32>;

inline constexpr size_t kAhead = 1;
inline constexpr size_t kRowsAtOnce = 4, kPrefetchAhead = 1536;  // as in weight_kernels-inl.h

// Weights k .. k + lanes, times their sub-scales.
template <bool kHalfScales>
HWY_INLINE Vec<D16> grid_weights(const GridBlock& b, size_t k) {
  const D16 d16;
  const hn::Repartition<uint32_t, D16> du;
  auto sub = hn::Set(du, b.sub[kHalfScales ? k / kHalf : k / kSub]);
  if constexpr (kHalfScales && hn::MaxLanes(d16) == 32)
    sub = hn::IfThenElse(hn::FirstN(du, hn::MaxLanes(du) / 2), sub, hn::Set(du, b.sub[k / kHalf + 1]));
  return hn::Mul(hn::PromoteTo(d16, hn::Load(hn::Rebind<int8_t, D16>(), b.weight + k)), hn::BitCast(d16, sub));
}

HWY_INLINE void unpack(const GridType& type, const uint8_t* p, GridBlock& b) {
  type.unpack(p, b);
  b.scale = type.part * load_f16(p);
}

// acc[t] += block * (group g of token tok + t).
template <size_t kTok, bool kHalfScales>
HWY_INLINE void dot_block(const GemvCall& c, const GridBlock& b, size_t g, size_t tok, Vec<DF>* acc) {
  const D32 d32;
  const DF df;
  constexpr size_t kFlush = HWY_MIN(kGroup, 32 * hn::MaxLanes(d32));  // weights: 32 products in a lane
  const size_t groups = n_groups(c.n_cols);
  HWY_UNROLL(1)
  for (size_t first = 0; first < kGroup; first += kFlush) {
    Vec<D32> sum[kTok], other[kTok];
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTok; ++t) sum[t] = other[t] = hn::Zero(d32);
    HWY_UNROLL(8)
    for (size_t k = first; k < first + kFlush; k += hn::MaxLanes(D16())) {
      const auto w = grid_weights<kHalfScales>(b, k);
      HWY_UNROLL(8)
      for (size_t t = 0; t < kTok; ++t) {
        const int16_t* q = c.act.q + ((tok + t) * groups + g) * kGroup;
        sum[t] = dot_pairs(d32, w, hn::Load(D16(), q + k), sum[t], other[t]);
      }
    }
    HWY_UNROLL(8)
    for (size_t t = 0; t < kTok; ++t) {
      const auto scale = hn::Mul(hn::Set(df, b.scale), hn::Set(df, c.act.scale[(tok + t) * groups + g]));
      acc[t] = hn::MulAdd(hn::ConvertTo(df, hn::Add(sum[t], other[t])), scale, acc[t]);
    }
  }
}

// Multiplies kRowsAtOnce rows of the matrix with kTok tokens from `tok` on. While a block is multiplied the next ones
// are looked up and prepared: these need different parts of a processor, and what was stored has time to arrive.
template <size_t kTok, bool kHalfScales>
HWY_NOINLINE void grid_gemv_rows(const GemvCall& c, const GridType& type, const size_t* rows, size_t tok) {
  const DF df;
  Vec<DF> acc[kRowsAtOnce][kTok];
  for (size_t r = 0; r < kRowsAtOnce; ++r) {
    for (size_t t = 0; t < kTok; ++t) acc[r][t] = hn::Zero(df);
  }
  GridBlock ring[kAhead + 1];
  const size_t n = n_groups(c.n_cols) * kRowsAtOnce;
  HWY_UNROLL(1)
  for (size_t i = 0; i < n + kAhead; ++i) {
    if (i < n) {
      const uint8_t* p = c.rows + rows[i % kRowsAtOnce] * c.row_bytes + i / kRowsAtOnce * type.block_bytes;
      for (size_t line = 0; line < type.block_bytes; line += 64) hwy::Prefetch(p + kPrefetchAhead + line);
      unpack(type, p, ring[i % (kAhead + 1)]);
    }
    if (i >= kAhead) {
      const size_t now = i - kAhead;
      dot_block<kTok, kHalfScales>(c, ring[now % (kAhead + 1)], now / kRowsAtOnce, tok, acc[now % kRowsAtOnce]);
    }
  }
  for (size_t r = 0; r < kRowsAtOnce; ++r) {
    for (size_t t = 0; t < kTok; ++t)
      c.out[(tok + t) * c.out_stride + rows[r]] = hn::GetLane(hn::SumOfLanes(df, acc[r][t]));
  }
}

template <bool kHalfScales>
void grid_gemv(const GemvCall& c, const GridType& type) {
  const size_t apart = (c.n_rows + kRowsAtOnce - 1) / kRowsAtOnce;
  for (size_t i = 0; i < apart; ++i) {
    size_t rows[kRowsAtOnce];
    for (size_t r = 0; r < kRowsAtOnce; ++r)
      rows[r] = HWY_MIN(i + r * apart, c.n_rows - 1);  // the last rows may be computed twice
    size_t tok = 0;
    for (; tok + 4 <= c.n_tok; tok += 4) grid_gemv_rows<4, kHalfScales>(c, type, rows, tok);
    for (; tok < c.n_tok; ++tok) grid_gemv_rows<1, kHalfScales>(c, type, rows, tok);
  }
}
void grid_gemv(const GemvCall& c, const GridType& type) {
  type.halves ? grid_gemv<true>(c, type) : grid_gemv<false>(c, type);
}

template <bool kHalfScales>
HWY_NOINLINE void store_weights(const GridBlock& b, int16_t* HWY_RESTRICT q) {
  HWY_UNROLL(8)
  for (size_t k = 0; k < kGroup; k += hn::MaxLanes(D16())) hn::Store(grid_weights<kHalfScales>(b, k), D16(), q + k);
}
HWY_INLINE float decode_block(const GridType& type, const uint8_t* p, int16_t* q) {
  GridBlock b;
  unpack(type, p, b);
  type.halves ? store_weights<true>(b, q) : store_weights<false>(b, q);
  return b.scale;
}

void grid_decode(const DecodeCall& c, const GridType& type, Tile& tile) {
  for (size_t r = 0; r < c.n_rows; ++r)
    tile.scale[r * kSubs] =
        decode_block(type, c.rows + r * c.row_bytes + c.group * type.block_bytes, tile.q + r * kGroup);
}

void grid_decode_float(const DecodeCall& c, const GridType& type, Tile& tile) {
  const DF df;
  HWY_ALIGN int16_t q[kGroup];
  for (size_t r = 0; r < c.n_rows; ++r) {
    const float scale = decode_block(type, c.rows + r * c.row_bytes + c.group * type.block_bytes, q);
    HWY_UNROLL(8)
    for (size_t k = 0; k < kGroup; k += hn::MaxLanes(df)) {
      const auto i32 = hn::PromoteTo(D32(), hn::Load(hn::Rebind<int16_t, DF>(), q + k));
      hn::Store(hn::Mul(hn::ConvertTo(df, i32), hn::Set(df, scale)), df, tile.f + r * kGroup + k);
    }
  }
}

#endif
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
