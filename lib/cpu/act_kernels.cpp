// The kernels that do not depend on the weight type: quantisation and packing of activations, multiplication of decoded
// tiles with packed panels, and the epilogue (bias, residual, gate).
//
// In the GEMM the lanes of a vector are tokens. A panel holds, for each pair of columns, the pairs of all its tokens.
// Weights are broadcast from the tile, which therefore keeps the row order that the decoders produce. The integer GEMM
// forms i32 sums of kChunk columns (16 to 64: as many as cannot overflow), converts them, and adds them in f32.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/act_kernels.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/matmul_kernels.h"
#include "cpu/matmul_simd-inl.h"
#include "hwy/cache_control.h"
#include "hwy/contrib/math/math-inl.h"
#include "ops/gate.h"
#include "ops/types.h"

#include <cmath>
#include <limits>

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

using DF = hn::ScalableTag<float>;
using DI = hn::ScalableTag<int32_t>;
inline constexpr size_t kLanes = hn::MaxLanes(DF());
inline constexpr size_t kPanelVectors = 2;
// Integer tiles pay where one instruction multiplies and adds pairs of i16. Where that takes two, f32 is about as fast,
// and the integer kernels are not compiled: they would be a tenth of the library.
#undef WEIR_INTEGER_GEMM
#define WEIR_INTEGER_GEMM (HWY_TARGET == HWY_AVX3_DL)
// Rows of a register block for panels of one and two vectors of tokens: as many accumulators as leave registers for the
// operands.
inline constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON;
inline constexpr size_t kFloatRows[kPanelVectors] = {kManyRegisters ? 12 : 8, kManyRegisters ? 12 : 6};
inline constexpr size_t kIntegerRows[kPanelVectors] = {kManyRegisters ? 12 : 8, kManyRegisters ? 8 : 4};

// --------------------------------------------------------------------------------------------------------- activations

// q = round(x / scale) for n columns, then zeros up to kGroup; scale = largest |x| / 32767. An infinity or a NaN makes
// the scale NaN.
HWY_INLINE float quantize_group(const float* x, size_t n, int16_t* HWY_RESTRICT q) {
  const DF df;
  const DI di;
  const hn::Rebind<int16_t, DF> d16;
  auto bits = hn::Zero(di);  // Bits of |x|. As integers they have the order of the values, NaN above all.
  for (size_t k = 0; k < n; k += kLanes) bits = hn::Max(bits, hn::BitCast(di, hn::Abs(hn::LoadU(df, x + k))));
  const float m = hn::GetLane(hn::BitCast(df, hn::MaxOfLanes(di, bits)));
  const bool finite = m <= std::numeric_limits<float>::max();
  const auto inverse = hn::Set(df, finite && m > 0 ? 32767.0f / m : 0.0f);
  size_t k = 0;
  for (; k < n; k += kLanes)
    hn::StoreU(hn::DemoteTo(d16, hn::NearestInt(hn::Mul(hn::LoadU(df, x + k), inverse))), d16, q + k);
  for (; k < kGroup; k += kLanes) hn::StoreU(hn::Zero(d16), d16, q + k);
  return finite ? m / 32767.0f : std::numeric_limits<float>::quiet_NaN();
}

// sum[i] = scale * (q[n * i] + ... + q[n * i + n - 1]) with n = kWidth.
template <size_t kWidth>
HWY_INLINE void sum_group(const int16_t* q, float scale, float* sum) {
  const hn::CappedTag<int16_t, kWidth> d16;
  const hn::RepartitionToWide<decltype(d16)> d32;
  for (size_t i = 0; i < kGroup / kWidth; ++i) {
    auto s = hn::Zero(d32), other = hn::Zero(d32);
    for (size_t k = 0; k < kWidth; k += hn::MaxLanes(d16))
      s = dot_pairs(d32, hn::LoadU(d16, q + i * kWidth + k), hn::Set(d16, 1), s, other);
    sum[i] = scale * static_cast<float>(hn::GetLane(hn::SumOfLanes(d32, hn::Add(s, other))));
  }
}

void quantize(const float* x, size_t n_cols, int16_t* q, float* scale, float* sum, float* half_sum) {
  for (size_t g = 0; g < n_groups(n_cols); ++g) {
    scale[g] = quantize_group(x + g * kGroup, HWY_MIN(kGroup, n_cols - g * kGroup), q + g * kGroup);
    if (sum != nullptr) sum_group<kSub>(q + g * kGroup, scale[g], sum + g * kSubs);
    if (half_sum != nullptr) sum_group<kHalf>(q + g * kGroup, scale[g], half_sum + g * kHalves);
  }
}

// out[i * out_stride + j] = in[j * in_stride + i] for a 4 x 4 block.
template <class T>
HWY_INLINE void transpose4(const T* in, size_t in_stride, T* out, size_t out_stride) {
  const hn::CappedTag<T, 4> d;
  const hn::Repartition<uint64_t, decltype(d)> d64;
  const auto a = hn::LoadU(d, in), b = hn::LoadU(d, in + in_stride);
  const auto e = hn::LoadU(d, in + 2 * in_stride), f = hn::LoadU(d, in + 3 * in_stride);
  const auto ab0 = hn::BitCast(d64, hn::InterleaveLower(d, a, b)), ef0 = hn::BitCast(d64, hn::InterleaveLower(d, e, f));
  const auto ab1 = hn::BitCast(d64, hn::InterleaveUpper(d, a, b)), ef1 = hn::BitCast(d64, hn::InterleaveUpper(d, e, f));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab0, ef0)), d, out);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab0, ef0)), d, out + out_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab1, ef1)), d, out + 2 * out_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab1, ef1)), d, out + 3 * out_stride);
}

// Calls f(t, g) for every four tokens from t on and every group g: first `at_once` groups for all tokens, then the next
// groups. Few groups at a time stay in L1 while they are filled; more than one gives longer sequential reads of x.
template <class F>
HWY_INLINE void for_packed_groups(const PackCall& c, size_t at_once, size_t tokens, const F& f) {
  for (size_t first = c.first_group; first < c.end_group; first += at_once) {
    for (size_t t = 0; t < tokens; t += 4) {
      for (size_t g = first; g < HWY_MIN(first + at_once, c.end_group); ++g) f(t, g);
    }
  }
}

#if WEIR_INTEGER_GEMM
// Sums of kWidth columns of a packed group, with the tokens side by side as in the panel.
template <size_t kWidth>
HWY_INLINE void sum_packed(const uint32_t* pairs, const float* scale, size_t tokens, float* sum) {
  const DF df;
  const DI di;
  const hn::RebindToUnsigned<DI> du;
  const hn::Repartition<int16_t, DI> d16;
  for (size_t i = 0; i < kGroup / kWidth; ++i) {
    for (size_t t = 0; t < tokens; t += kLanes) {
      auto s = hn::Zero(di), other = s;
      for (size_t k = i * kWidth / 2; k < (i + 1) * kWidth / 2; ++k) {
        s = dot_pairs(di, hn::BitCast(d16, hn::Load(du, pairs + k * tokens + t)), hn::Set(d16, 1), s, other);
      }
      hn::Store(hn::Mul(hn::ConvertTo(df, s), hn::Load(df, scale + t)), df, sum + i * tokens + t);
    }
  }
}

void pack(const PackCall& c) {
  const size_t tokens = c.n_vectors * kLanes, bytes = packed_bytes(tokens, c.half_sums);
  for_packed_groups(c, 2, tokens, [&](size_t t, size_t g) WEIR_ATTR {
    auto* pairs = reinterpret_cast<uint32_t*>(c.out + g * bytes);  // [kGroup / 2, tokens]
    auto* scale = reinterpret_cast<float*>(c.out + g * bytes + kGroup * sizeof(int16_t) * tokens);
    const size_t n = HWY_MIN(kGroup, c.n_cols - g * kGroup);
    HWY_ALIGN int16_t q[4][kGroup];
    for (size_t i = 0; i < 4; ++i) {
      const bool is_token = t + i < c.n_tok;
      if (!is_token) std::memset(q[i], 0, sizeof q[i]);
      scale[t + i] = is_token ? quantize_group(c.x + (t + i) * c.n_cols + g * kGroup, n, q[i]) : 0.0f;
    }
    const auto* in = reinterpret_cast<const uint32_t*>(q);
    for (size_t k = 0; k < kGroup / 2; k += 4) transpose4(in + k, kGroup / 2, pairs + k * tokens + t, tokens);
    if (t + 4 < tokens) return;
    sum_packed<kSub>(pairs, scale, tokens, scale + tokens);
    if (c.half_sums) sum_packed<kHalf>(pairs, scale, tokens, scale + (1 + kSubs) * tokens);
  });
}
#endif

void pack_float(const PackCall& c) {
  const size_t tokens = c.n_vectors * kLanes, bytes = packed_float_bytes(tokens);
  for_packed_groups(c, 1, tokens, [&](size_t t, size_t g) WEIR_ATTR {
    auto* packed = reinterpret_cast<float*>(c.out + g * bytes);  // [kGroup, tokens]
    const size_t n = HWY_MIN(kGroup, c.n_cols - g * kGroup);
    const float* x = c.x + g * kGroup;
    size_t k = 0;
    if (t + 4 <= c.n_tok) {
      for (; k + 4 <= n; k += 4) transpose4(x + t * c.n_cols + k, c.n_cols, packed + k * tokens + t, tokens);
    }
    for (; k < n; ++k) {
      for (size_t i = t; i < t + 4; ++i) packed[k * tokens + i] = i < c.n_tok ? x[i * c.n_cols + k] : 0.0f;
    }
  });
}

// --------------------------------------------------------------------------------------------- multiplication of tiles

// Prefetches the encoded weights that are decoded next, a few rows at a time: all at once would stall on memory.
HWY_INLINE void prefetch_next(const MultiplyCall& c, size_t row, size_t n_rows) {
  if (c.next_bytes == 0) return;
  for (size_t r = row + (c.next_first + c.next_every - row % c.next_every) % c.next_every;
       r < HWY_MIN(row + n_rows, c.next_rows); r += c.next_every) {
    for (size_t i = 0; i < c.next_bytes; i += 64) hwy::Prefetch(c.next + r * c.next_stride + i);
  }
}

template <size_t kRows, size_t kVectors>
HWY_INLINE void block_float(const MultiplyCall& c, size_t row) {
  const DF df;
  const auto* x = reinterpret_cast<const float*>(c.x);
  const float* w = c.tile->f + row * kGroup;
  float* out = c.c + row * kVectors * kLanes;
  Vec<DF> acc[kRows][kVectors];
  HWY_UNROLL(16)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (size_t v = 0; v < kVectors; ++v) acc[r][v] = hn::Load(df, out + (r * kVectors + v) * kLanes);
  }
  HWY_UNROLL(4)
  for (size_t k = 0; k < c.n_cols; ++k) {
    Vec<DF> xs[kVectors];
    HWY_UNROLL(2)
    for (size_t v = 0; v < kVectors; ++v) xs[v] = hn::Load(df, x + (k * kVectors + v) * kLanes);
    HWY_UNROLL(16)
    for (size_t r = 0; r < kRows; ++r) {
      const auto weight = hn::Set(df, w[r * kGroup + k]);
      HWY_UNROLL(2)
      for (size_t v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(weight, xs[v], acc[r][v]);
    }
  }
  HWY_UNROLL(16)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (size_t v = 0; v < kVectors; ++v) hn::Store(acc[r][v], df, out + (r * kVectors + v) * kLanes);
  }
}

template <size_t kVectors>
HWY_INLINE void rows_float(const MultiplyCall& c) {
  constexpr size_t kRows = kFloatRows[kVectors - 1];
  for (size_t r = 0; r < c.n_rows; r += kRows) {
    prefetch_next(c, r, kRows);
    block_float<kRows, kVectors>(c, r);
  }
}

void multiply_float(const MultiplyCall& c) { c.n_vectors == 2 ? rows_float<2>(c) : rows_float<1>(c); }

#if WEIR_INTEGER_GEMM
// i32 sums of kChunk columns for a block of rows and tokens.
template <size_t kRows, size_t kVectors, size_t kChunk>
HWY_INLINE void chunk_sums(const uint32_t* x, const int16_t* w, Vec<DI> (&sum)[kRows][kVectors]) {
  const DI d32;
  const hn::Repartition<int16_t, DI> d16;
  Vec<DI> other;
  HWY_UNROLL(16)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (size_t v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d32);
  }
  HWY_UNROLL(32)  // fully unrolled: at the end of a loop compilers would copy all the sums
  for (size_t k = 0; k < kChunk / 2; ++k) {
    Vec<decltype(d16)> xs[kVectors];
    HWY_UNROLL(2)
    for (size_t v = 0; v < kVectors; ++v) {
      xs[v] = hn::BitCast(d16, hn::Load(hn::RebindToUnsigned<DI>(), x + (k * kVectors + v) * kLanes));
    }
    HWY_UNROLL(16)
    for (size_t r = 0; r < kRows; ++r) {
      int32_t pair;
      std::memcpy(&pair, w + r * kGroup + 2 * k, sizeof pair);
      const auto weights = hn::BitCast(d16, hn::Set(d32, pair));
      HWY_UNROLL(2)
      for (size_t v = 0; v < kVectors; ++v) sum[r][v] = dot_pairs(d32, weights, xs[v], sum[r][v], other);
    }
  }
}

template <size_t kRows, size_t kVectors, TileKind kKind>
HWY_INLINE void block_integer(const MultiplyCall& c, size_t row) {
  constexpr bool kSubScales = kKind == TileKind::kSubScales || kKind == TileKind::kSubMinima;
  constexpr bool kNoMinima =
      kKind == TileKind::kSubScales || kKind == TileKind::kGroupScale16 || kKind == TileKind::kGroupScale64;
  constexpr bool kHalfMinima = kKind == TileKind::kGroupHalfMinima64;
  constexpr size_t kMinima = kNoMinima ? 0 : kHalfMinima ? kHalves : kSubs;
  constexpr size_t kChunk = kKind == TileKind::kGroupScale16                  ? 16
                            : kSubScales || kKind == TileKind::kGroupMinima32 ? 32
                                                                              : 64;
  constexpr size_t kTokens = kVectors * kLanes;
  const DF df;
  const auto* x = reinterpret_cast<const uint32_t*>(c.x);
  const auto* x_scale = reinterpret_cast<const float*>(c.x + kGroup * sizeof(int16_t) * kTokens);
  const float* x_sum = x_scale + (kHalfMinima ? 1 + kSubs : 1) * kTokens;
  const int16_t* w = c.tile->q + row * kGroup;
  const float* scale = c.tile->scale + row * kSubs;
  const float* low = c.tile->min + row * kHalves;
  float* out = c.c + row * kTokens;

  Vec<DF> acc[kRows][kVectors];
  HWY_UNROLL(16)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (size_t v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(df);
  }
  for (size_t k = 0; k < c.n_cols; k += kChunk) {
    Vec<DI> sum[kRows][kVectors];
    chunk_sums<kRows, kVectors, kChunk>(x + k / 2 * kTokens, w + k, sum);
    HWY_UNROLL(16)
    for (size_t r = 0; r < kRows; ++r) {
      HWY_UNROLL(2)
      for (size_t v = 0; v < kVectors; ++v) {
        const auto f = hn::ConvertTo(df, sum[r][v]);
        acc[r][v] =
            kSubScales ? hn::MulAdd(f, hn::Set(df, scale[r * kSubs + k / kSub]), acc[r][v]) : hn::Add(acc[r][v], f);
      }
    }
  }
  HWY_UNROLL(16)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (size_t v = 0; v < kVectors; ++v) {
      auto xs = hn::Load(df, x_scale + v * kLanes);
      if constexpr (!kSubScales) xs = hn::Mul(xs, hn::Set(df, scale[r * kSubs]));
      auto total = hn::MulAdd(acc[r][v], xs, hn::Load(df, out + (r * kVectors + v) * kLanes));
      HWY_UNROLL(16)
      for (size_t i = 0; i < kMinima; ++i) {
        total =
            hn::NegMulAdd(hn::Set(df, low[r * kHalves + i]), hn::Load(df, x_sum + (i * kVectors + v) * kLanes), total);
      }
      hn::Store(total, df, out + (r * kVectors + v) * kLanes);
    }
  }
}

template <size_t kVectors, TileKind kKind>
HWY_INLINE void rows_integer(const MultiplyCall& c) {
  constexpr size_t kRows = kIntegerRows[kVectors - 1];
  for (size_t r = 0; r < c.n_rows; r += kRows) {
    prefetch_next(c, r, kRows);
    block_integer<kRows, kVectors, kKind>(c, r);
  }
}

template <TileKind kKind>
void multiply_integer(const MultiplyCall& c) {
  c.n_vectors == 2 ? rows_integer<2, kKind>(c) : rows_integer<1, kKind>(c);
}
#endif  // WEIR_INTEGER_GEMM

// ------------------------------------------------------------------------------------------------------------- results

void store(const float* c, size_t stride, size_t n_rows, size_t n_tok, const float* bias, bool accumulate, float* y,
           size_t ld) {
  const hn::CappedTag<float, 4> d;
  size_t r = 0;
  for (; r + 4 <= n_rows; r += 4) {
    size_t t = 0;
    for (; t + 4 <= n_tok; t += 4) {
      HWY_ALIGN float block[16];
      transpose4(c + r * stride + t, stride, block, 4);
      for (size_t i = 0; i < 4; ++i) {
        float* out = y + (t + i) * ld + r;
        auto v = hn::Load(d, block + 4 * i);
        if (accumulate) v = hn::Add(v, hn::LoadU(d, out));
        if (bias != nullptr) v = hn::Add(v, hn::LoadU(d, bias + r));
        hn::StoreU(v, d, out);
      }
    }
    for (; t < n_tok; ++t) {
      for (size_t i = r; i < r + 4; ++i)
        y[t * ld + i] = (c[i * stride + t] + (accumulate ? y[t * ld + i] : 0.0f)) + (bias != nullptr ? bias[i] : 0.0f);
    }
  }
  for (; r < n_rows; ++r) {
    for (size_t t = 0; t < n_tok; ++t)
      y[t * ld + r] = (c[r * stride + t] + (accumulate ? y[t * ld + r] : 0.0f)) + (bias != nullptr ? bias[r] : 0.0f);
  }
}

template <Gate kGate, class V>
HWY_INLINE V glu_one(V gate, V up) {
  const hn::DFromV<V> d;
  if constexpr (kGate == Gate::kRelu)  // by a comparison, which lets a NaN pass
    return hn::Mul(hn::IfThenElse(hn::Lt(gate, hn::Zero(d)), hn::Zero(d), gate), up);
  V logit = gate;  // whose sigmoid the gate is multiplied by
  if constexpr (kGate == Gate::kGelu)
    logit = hn::Mul(gate, hn::MulAdd(hn::Mul(gate, gate), hn::Set(d, kGelu3), hn::Set(d, kGelu1)));
  if constexpr (kGate == Gate::kClamped) {  // by comparisons, which let a NaN pass
    const auto most = hn::Set(d, kClampedMax), least = hn::Set(d, -kClampedMax);
    gate = hn::IfThenElse(hn::Gt(gate, most), most, gate);
    up = hn::IfThenElse(hn::Gt(up, most), most, hn::IfThenElse(hn::Lt(up, least), least, up));
    up = hn::Add(up, hn::Set(d, 1.0f));
    logit = hn::Mul(gate, hn::Set(d, kClampedSteepness));
  }
  // exp would overflow beyond 88; there the result is below 1e-36 in magnitude either way.
  const auto e = hn::Exp(d, hn::Min(hn::Neg(logit), hn::Set(d, 88.0f)));
  return hn::Mul(hn::Div(gate, hn::Add(hn::Set(d, 1.0f), e)), up);
}

template <Gate kGate>
void glu(float* gate, const float* up, size_t n) {
  const DF df;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(glu_one<kGate>(hn::LoadU(df, gate + i), hn::LoadU(df, up + i)), df, gate + i);
  if (i == n) return;
  HWY_ALIGN float rest[2][kLanes] = {};
  std::memcpy(rest[0], gate + i, (n - i) * sizeof(float));
  std::memcpy(rest[1], up + i, (n - i) * sizeof(float));
  hn::Store(glu_one<kGate>(hn::Load(df, rest[0]), hn::Load(df, rest[1])), df, rest[0]);
  std::memcpy(gate + i, rest[0], (n - i) * sizeof(float));
}

const ActKernels& kernels() {
  static constexpr ActKernels table = {
    .target = HWY_TARGET,
    .has_gemm = true,
    .integer_gemm = WEIR_INTEGER_GEMM,
    .vector_tokens = kLanes,
    .panel_vectors = kPanelVectors,
    .quantize = quantize,
#if WEIR_INTEGER_GEMM
    .pack = pack,
    .pack_float = pack_float,
    .multiply = {multiply_float, multiply_integer<TileKind::kSubScales>, multiply_integer<TileKind::kSubMinima>,
                 multiply_integer<TileKind::kGroupScale16>, multiply_integer<TileKind::kGroupScale64>,
                 multiply_integer<TileKind::kGroupMinima32>, multiply_integer<TileKind::kGroupMinima64>,
                 multiply_integer<TileKind::kGroupHalfMinima64>},
#else
    .pack = nullptr,
    .pack_float = pack_float,
    .multiply = {multiply_float},
#endif
    .store = store,
    .glu = {glu<Gate::kSilu>, glu<Gate::kGelu>, glu<Gate::kClamped>, glu<Gate::kRelu>}
  };
  return table;
}

#else  // no vectors

void quantize(const float*, size_t, int16_t*, float*, float*, float*) {}

template <Gate kGate>
void glu(float* gate, const float* up, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    float g = gate[i], u = up[i];
    float logit = kGate == Gate::kGelu ? g * (g * g * kGelu3 + kGelu1) : g;
    if constexpr (kGate == Gate::kClamped) {
      g = g > kClampedMax ? kClampedMax : g;
      u = (u > kClampedMax ? kClampedMax : u < -kClampedMax ? -kClampedMax : u) + 1.0f;
      logit = kClampedSteepness * g;
    }
    gate[i] = kGate == Gate::kRelu ? (g < 0.0f ? 0.0f : g) * u : g / (1.0f + std::exp(-logit)) * u;
  }
}

const ActKernels& kernels() {
  static constexpr ActKernels table = {
      .target = HWY_TARGET,
      .has_gemm = false,
      .integer_gemm = false,
      .vector_tokens = 1,
      .panel_vectors = 1,
      .quantize = quantize,
      .pack = nullptr,
      .pack_float = nullptr,
      .multiply = {},
      .store = nullptr,
      .glu = {glu<Gate::kSilu>, glu<Gate::kGelu>, glu<Gate::kClamped>, glu<Gate::kRelu>}};
  return table;
}

#endif
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
HWY_EXPORT(kernels);
const ActKernels& act_kernels() { return HWY_DYNAMIC_DISPATCH(kernels)(); }
}  // namespace weir::cpu
#endif
