// The GEMV and the tile decoders of the weight types with grids: signs and sub-scales of unpacked blocks, and the dot
// product. As in weight_kernels-inl.h four rows are read at once, a quarter of the task's rows apart, and a row's sums
// are formed in one order whatever its neighbours are.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/grid_rows.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/grid_rows.h"
#include "cpu/weight_kernels-inl.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

using D16 = hn::CappedTag<int16_t, 32>;
using D32 = hn::RepartitionToWide<D16>;
using DF = hn::Rebind<float, D32>;

// Weights k .. k + lanes, times their sub-scales.
HWY_INLINE Vec<D16> grid_weights(const GridBlock& b, size_t k) {
  const D16 d16;
  const auto magnitude = hn::PromoteTo(d16, hn::Load(hn::Rebind<uint8_t, D16>(), b.magnitude + k));
  const auto negative = hn::LoadMaskBits(d16, b.signs + k / 8);
  const auto weight = hn::IfThenElse(negative, hn::Neg(magnitude), magnitude);
  return hn::Mul(weight, broadcast_halves(d16, b.sub + k / kSub * 2, k % kSub));
}

HWY_INLINE void unpack(const GridType& type, const uint8_t* p, GridBlock& b) {
  type.unpack(p, b);
  b.scale = type.part * load_f16(p);
}

// Multiplies kStreams rows of the matrix with kTok tokens from `tok` on.
template <size_t kTok>
HWY_NOINLINE void grid_gemv_rows(const GemvCall& c, const GridType& type, const size_t* rows, size_t tok) {
  const D32 d32;
  const DF df;
  constexpr size_t kFlush = HWY_MIN(kGroup, 32 * hn::MaxLanes(d32));  // weights: 32 products in a lane
  const size_t groups = n_groups(c.n_cols);
  Vec<DF> acc[kStreams][kTok];
  for (size_t r = 0; r < kStreams; ++r) {
    for (size_t t = 0; t < kTok; ++t) acc[r][t] = hn::Zero(df);
  }
  GridBlock blocks[kStreams];
  for (size_t g = 0; g < groups; ++g) {
    HWY_UNROLL(1)
    for (size_t r = 0; r < kStreams; ++r) {
      const uint8_t* p = c.rows + rows[r] * c.row_bytes + g * type.block_bytes;
      for (size_t i = 0; i < type.block_bytes; i += 64) hwy::Prefetch(p + kPrefetchBytes + i);
      unpack(type, p, blocks[r]);
    }
    HWY_UNROLL(1)
    for (size_t r = 0; r < kStreams; ++r) {
      HWY_UNROLL(1)
      for (size_t first = 0; first < kGroup; first += kFlush) {
        Vec<D32> sum[kTok], other[kTok];
        HWY_UNROLL(8)
        for (size_t t = 0; t < kTok; ++t) sum[t] = other[t] = hn::Zero(d32);
        HWY_UNROLL(8)
        for (size_t k = first; k < first + kFlush; k += hn::MaxLanes(D16())) {
          const auto w = grid_weights(blocks[r], k);
          HWY_UNROLL(8)
          for (size_t t = 0; t < kTok; ++t) {
            const int16_t* q = c.act.q + ((tok + t) * groups + g) * kGroup;
            sum[t] = dot_pairs(d32, w, hn::Load(D16(), q + k), sum[t], other[t]);
          }
        }
        HWY_UNROLL(8)
        for (size_t t = 0; t < kTok; ++t) {
          const auto scale = hn::Mul(hn::Set(df, blocks[r].scale), hn::Set(df, c.act.scale[(tok + t) * groups + g]));
          acc[r][t] = hn::MulAdd(hn::ConvertTo(df, hn::Add(sum[t], other[t])), scale, acc[r][t]);
        }
      }
    }
  }
  for (size_t r = 0; r < kStreams; ++r) {
    for (size_t t = 0; t < kTok; ++t)
      c.out[(tok + t) * c.out_stride + rows[r]] = hn::GetLane(hn::SumOfLanes(df, acc[r][t]));
  }
}

void grid_gemv(const GemvCall& c, const GridType& type) {
  const size_t apart = (c.n_rows + kStreams - 1) / kStreams;
  for (size_t i = 0; i < apart; ++i) {
    size_t rows[kStreams];
    for (size_t r = 0; r < kStreams; ++r)
      rows[r] = HWY_MIN(i + r * apart, c.n_rows - 1);  // the last rows may be computed twice
    size_t tok = 0;
    for (; tok + 4 <= c.n_tok; tok += 4) grid_gemv_rows<4>(c, type, rows, tok);
    for (; tok < c.n_tok; ++tok) grid_gemv_rows<1>(c, type, rows, tok);
  }
}

void grid_decode(const DecodeCall& c, const GridType& type, Tile& tile) {
  GridBlock b;
  for (size_t r = 0; r < c.n_rows; ++r) {
    unpack(type, c.rows + r * c.row_bytes + c.group * type.block_bytes, b);
    HWY_UNROLL(8)
    for (size_t k = 0; k < kGroup; k += hn::MaxLanes(D16()))
      hn::Store(grid_weights(b, k), D16(), tile.q + r * kGroup + k);
    tile.scale[r * kSubs] = b.scale;
  }
}

void grid_decode_float(const DecodeCall& c, const GridType& type, Tile& tile) {
  const DF df;
  GridBlock b;
  HWY_ALIGN int16_t q[kGroup];
  for (size_t r = 0; r < c.n_rows; ++r) {
    unpack(type, c.rows + r * c.row_bytes + c.group * type.block_bytes, b);
    HWY_UNROLL(8)
    for (size_t k = 0; k < kGroup; k += hn::MaxLanes(D16())) hn::Store(grid_weights(b, k), D16(), q + k);
    HWY_UNROLL(8)
    for (size_t k = 0; k < kGroup; k += hn::MaxLanes(df)) {
      const auto i32 = hn::PromoteTo(D32(), hn::Load(hn::Rebind<int16_t, DF>(), q + k));
      hn::Store(hn::Mul(hn::ConvertTo(df, i32), hn::Set(df, b.scale)), df, tile.f + r * kGroup + k);
    }
  }
}

const GridKernels* grid_kernels() {
  static constexpr GridKernels kKernels = {grid_gemv, grid_decode, grid_decode_float};
  return &kKernels;
}

#else
const GridKernels* grid_kernels() { return nullptr; }
#endif
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
HWY_EXPORT(grid_kernels);
const GridKernels* grid_kernels() { return HWY_DYNAMIC_DISPATCH(grid_kernels)(); }
}  // namespace weir::cpu
#endif
