// Head norms, rotary embedding and appending to the KV pages, vectorised. Every multiplication and addition is rounded
// by itself (no fma), as in the reference, so that the stored keys and values have the same bits.
// Paper: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", arXiv:2104.09864, sec. 3.2.
#include "cpu/rope_append.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/simd_targets.h"
#include "quant/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/rope_append.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/kv_rows-inl.h"
#include "cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

void norm_head(float* x, const float* weight, float eps, size_t d) {
  const auto inverse = static_cast<float>(1.0 / std::sqrt(sum_squares(x, d) / static_cast<double>(d) + double{eps}));
  scale_by(x, inverse, weight, x, d);
}

// Pairs (2i, 2i+1).
void rotate_adjacent(const float* x, float* y, const float* cos_sin, size_t rope_dim) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + 2 * lanes <= rope_dim; i += 2 * lanes) {
    hn::Vec<decltype(df)> x0, x1, cos, sin;
    hn::LoadInterleaved2(df, x + i, x0, x1);
    hn::LoadInterleaved2(df, cos_sin + i, cos, sin);
    const auto y0 = hn::Sub(hn::Mul(x0, cos), hn::Mul(x1, sin));
    const auto y1 = hn::Add(hn::Mul(x0, sin), hn::Mul(x1, cos));
    hn::StoreInterleaved2(y0, y1, df, y + i);
  }
  for (; i < rope_dim; i += 2) {
    const float x0 = x[i], x1 = x[i + 1];
    y[i] = x0 * cos_sin[i] - x1 * cos_sin[i + 1];
    y[i + 1] = x0 * cos_sin[i + 1] + x1 * cos_sin[i];
  }
}

// Pairs (i, i + rope_dim/2).
void rotate_half_split(const float* x, float* y, const float* cos_sin, size_t rope_dim) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df), half = rope_dim / 2;
  size_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const auto x0 = hn::LoadU(df, x + i), x1 = hn::LoadU(df, x + half + i);
    hn::Vec<decltype(df)> cos, sin;
    hn::LoadInterleaved2(df, cos_sin + 2 * i, cos, sin);
    hn::StoreU(hn::Sub(hn::Mul(x0, cos), hn::Mul(x1, sin)), df, y + i);
    hn::StoreU(hn::Add(hn::Mul(x0, sin), hn::Mul(x1, cos)), df, y + half + i);
  }
  for (; i < half; ++i) {
    const float x0 = x[i], x1 = x[half + i], cos = cos_sin[2 * i], sin = cos_sin[2 * i + 1];
    y[i] = x0 * cos - x1 * sin;
    y[half + i] = x0 * sin + x1 * cos;
  }
}

void rotate_head(const RopeAppendArgs& a, const float* x, float* y, const float* cos_sin) {
  if (a.layout == RopeLayout::kAdjacent) {
    rotate_adjacent(x, y, cos_sin, a.rope_dim);
  } else {
    rotate_half_split(x, y, cos_sin, a.rope_dim);
  }
  if (y != x) std::memcpy(y + a.rope_dim, x + a.rope_dim, (a.kv.head_dim - a.rope_dim) * sizeof(float));
}

// Other formats are rounded as they are defined: that is little beside the matrices that make a key.
void store(const PagePart<uint16_t>& part, uint32_t token, const float* from) {
  if (part.format != RowFormat::kBf16) return weir::store_row(part, token, from);
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df), d = part.head_dim;
  uint16_t* to = part.codes(token);
  size_t i = 0;
  for (; i + lanes <= d; i += lanes) store_bf16(df, hn::LoadU(df, from + i), to + i);
  for (; i < d; ++i) to[i] = f32_to_bf16(from[i]);
}

// Updates a page's digest with rows [begin, end) of its keys. On a tie the stored value stays, which matters for zeros
// of either sign.
void update_digest(const uint16_t* keys, size_t begin, size_t end, uint16_t* high, uint16_t* low, size_t d) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const uint16_t* first_high = begin == 0 ? keys : high;
  const uint16_t* first_low = begin == 0 ? keys : low;
  size_t i = 0;
  for (; i + lanes <= d; i += lanes) {
    auto max = load_bf16(df, first_high + i), min = load_bf16(df, first_low + i);
    for (size_t row = begin; row < end; ++row) {
      const auto key = load_bf16(df, keys + row * d + i);
      max = hn::IfThenElse(hn::Gt(key, max), key, max);
      min = hn::IfThenElse(hn::Lt(key, min), key, min);
    }
    store_bf16(df, max, high + i);
    store_bf16(df, min, low + i);
  }
  for (; i < d; ++i) {
    uint16_t max = first_high[i], min = first_low[i];
    for (size_t row = begin; row < end; ++row) {
      const uint16_t key = keys[row * d + i];
      if (bf16_to_f32(key) > bf16_to_f32(max)) max = key;
      if (bf16_to_f32(key) < bf16_to_f32(min)) min = key;
    }
    high[i] = max;
    low[i] = min;
  }
}

// The same with keys in another format.
void update_digest(const PagePart<const uint16_t>& keys, uint32_t begin, uint32_t end, uint16_t* high, uint16_t* low) {
  for (uint32_t row = begin; row < end; ++row) {
    for (size_t i = 0; i < keys.head_dim; ++i) {
      const uint16_t key = f32_to_bf16(load_element(keys, row, i));
      if (row == 0 || bf16_to_f32(key) > bf16_to_f32(high[i])) high[i] = key;
      if (row == 0 || bf16_to_f32(key) < bf16_to_f32(low[i])) low[i] = key;
    }
  }
}

#if WEIR_CPU_HAS_VECTORS
// What the even and the odd channels of a block have for the rows of a page.
struct ChannelRanges {
  V low[2], step[2], inverse[2];
  hn::Mask<DF> finite[2];
};

ChannelRanges ranges_of(const uint16_t* rows, uint32_t n) {
  const DF df;
  ChannelRanges r;
  V high[2];
  load_pairs(rows, r.low[0], r.low[1]);
  load_pairs(rows, high[0], high[1]);
  r.finite[0] = r.finite[1] = hn::Eq(hn::Zero(df), hn::Zero(df));
  for (uint32_t t = 0; t < n; ++t) {
    V x[2];
    load_pairs(rows + t * kChannelsAtOnce, x[0], x[1]);
    for (size_t side = 0; side < 2; ++side) {
      r.finite[side] = hn::And(r.finite[side], hn::IsFinite(x[side]));
      r.low[side] = hn::IfThenElse(hn::Lt(x[side], r.low[side]), x[side], r.low[side]);
      high[side] = hn::IfThenElse(hn::Gt(x[side], high[side]), x[side], high[side]);
    }
  }
  for (size_t side = 0; side < 2; ++side) {
    const V range = hn::Sub(high[side], r.low[side]);
    r.finite[side] = hn::And(r.finite[side], hn::IsFinite(range));
    const V wanted = hn::Mul(range, hn::Set(df, 1.0f / 15.0f));
    const auto is_step = hn::And(r.finite[side], hn::Ge(wanted, hn::Set(df, 0x1p-126f)));
    r.step[side] = hn::IfThenElseZero(is_step, hn::BitCast(df, hn::ShiftLeft<16>(round_bf16(df, wanted))));
    r.inverse[side] = hn::IfThenElseZero(is_step, hn::Div(hn::Set(df, 1.0f), r.step[side]));
  }
  return r;
}

// Interleaves what is in the lower halves of lanes.
HWY_INLINE void store_pairs(hn::Vec<hn::RebindToUnsigned<DF>> even, hn::Vec<hn::RebindToUnsigned<DF>> odd,
                            uint16_t* to) {
  const hn::Repartition<uint16_t, DF> d16;
  hn::StoreU(hn::BitCast(d16, hn::Or(even, hn::ShiftLeft<16>(odd))), d16, to);
}

void store_block(const PagePart<uint16_t>& part, size_t i, const uint16_t* rows, uint32_t n, uint16_t* digest) {
  const DF df;
  const hn::RebindToSigned<DF> di;
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint8_t, DF> d8;
  const ChannelRanges r = ranges_of(rows, n);
  hn::Vec<decltype(di)> most[2] = {hn::Zero(di), hn::Zero(di)};
  for (uint32_t t = 0; t < n; ++t) {
    V x[2];
    hn::Vec<decltype(di)> code[2];
    load_pairs(rows + t * kChannelsAtOnce, x[0], x[1]);
    for (size_t side = 0; side < 2; ++side) {
      const V steps = hn::IfThenElseZero(r.finite[side], hn::Mul(hn::Sub(x[side], r.low[side]), r.inverse[side]));
      code[side] = hn::Min(hn::Max(hn::NearestInt(steps), hn::Zero(di)), hn::Set(di, 15));
      most[side] = hn::Max(most[side], code[side]);
    }
    const auto both = hn::BitCast(du, hn::Or(code[0], hn::ShiftLeft<4>(code[1])));
    hn::StoreU(hn::TruncateTo(d8, both), d8, reinterpret_cast<uint8_t*>(part.codes(t)) + i / 2);
  }
  const auto upper = [&](V v) HWY_ATTR { return hn::ShiftRight<16>(hn::BitCast(du, v)); };
  const auto or_nan = [&](size_t side)
                          HWY_ATTR { return upper(hn::IfThenElse(r.finite[side], r.low[side], hn::Set(df, NAN))); };
  store_pairs(or_nan(0), or_nan(1), part.scales(0) + i);
  store_pairs(upper(r.step[0]), upper(r.step[1]), part.scales(0) + part.head_dim + i);
  if (digest == nullptr) return;
  // The highest and the lowest that is stored, decoded; the product is exact.
  const auto decoded = [&](size_t side, V codes, float if_none) HWY_ATTR {
    const V number = hn::Add(hn::Mul(codes, r.step[side]), r.low[side]);
    return round_bf16(df, hn::IfThenElse(r.finite[side], number, hn::Set(df, if_none)));
  };
  const auto highest = [&](size_t side) HWY_ATTR { return decoded(side, hn::ConvertTo(df, most[side]), INFINITY); };
  const auto lowest = [&](size_t side) HWY_ATTR { return decoded(side, hn::Zero(df), -INFINITY); };
  store_pairs(highest(0), highest(1), digest + i);
  store_pairs(lowest(0), lowest(1), digest + part.head_dim + i);
}
#endif

// weir::store_channels of kChannelsAtOnce, and where there is a digest digest_channels of them.
void store_channels(const PagePart<uint16_t>& part, size_t first, const uint16_t* rows, uint32_t n, uint16_t* digest) {
#if WEIR_CPU_HAS_VECTORS
  for (size_t i = 0; i < kChannelsAtOnce; i += kBlock) store_block(part, first + i, rows + i, n, digest);
#else
  const size_t d = part.head_dim;
  weir::store_channels(part, first, first + kChannelsAtOnce, rows, n);
  if (digest != nullptr && first + kChannelsAtOnce == d)
    digest_channels({part.units, part.format, d}, n, digest, digest + d);
#endif
}

// The keys of a page up to token `tok`, which are rounded together.
void store_keys_by_channel(const RopeAppendArgs& a, uint32_t kv_head, uint32_t tok, const PagePart<uint16_t>& keys,
                           uint16_t* digest) {
  for (size_t first = 0; first < a.kv.head_dim; first += kChannelsAtOnce) {
    uint16_t rows[kPageTokens * kChannelsAtOnce];
    const uint32_t n = page_keys_until(a, kv_head, tok, first, rows);
    store_channels(keys, first, rows, n, digest);
  }
}

// Does tokens [begin, end) of one KV head: its query heads, its key and its value.
void append_tokens(const RopeAppendArgs& a, uint32_t kv_head, uint32_t begin, uint32_t end) {
  const size_t d = a.kv.head_dim;
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  const size_t table = size_t{kv_head} * a.kv.capacity + a.append_row[kv_head];
  const uint32_t offset = a.pos - a.kv.first_pos[table];  // of token 0 in its page
  const bool by_channel = is_by_channel(key_format(a.kv.format));
  for (uint32_t tok = begin; tok < end; ++tok) {
    const float* cos_sin = a.cos_sin + size_t{tok} * a.rope_dim;
    for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const size_t at = (size_t{tok} * a.n_heads + head) * d;
      if (a.q_norm != nullptr) norm_head(a.q + at, a.q_norm, a.norm_eps, d);
      if (a.q_sink != nullptr) rotate_head(a, a.q + at, a.q_sink + at, a.cos_sin_sink + size_t{tok} * a.rope_dim);
      rotate_head(a, a.q + at, a.q + at, cos_sin);
    }
    const size_t at = (size_t{tok} * a.kv.n_kv_heads + kv_head) * d;
    if (a.k_norm != nullptr) norm_head(a.k + at, a.k_norm, a.norm_eps, d);
    rotate_head(a, a.k + at, a.k + at, cos_sin);

    const uint32_t row = a.append_row[kv_head] + (offset + tok) / kPageTokens;
    const size_t slot = a.kv.slots[size_t{kv_head} * a.kv.capacity + row];
    const uint32_t in_page = (offset + tok) % kPageTokens;
    uint16_t* page = a.kv.pool + slot * a.kv.page_elements();
    const auto store_in = [&](KvFormat format, uint16_t* to) {
      const auto keys = keys_in(format, to, d);
      if (!is_by_channel(keys.format)) store(keys, in_page, a.k + at);
      store(values_in(format, to, d), in_page, a.v + at);
    };
    store_in(a.kv.format, page);
    if (a.kv.is_open(kv_head, row)) store_in(KvFormat::kBf16, a.kv.open_page(kv_head, row));
    const bool page_ends = in_page + 1 == kPageTokens || tok + 1 == end;
    const bool has_digest = a.kv.digest == DigestKind::kMinMax;
    if (!page_ends || (!by_channel && !has_digest)) continue;
    uint16_t* digest = has_digest ? a.kv.digest_of(kv_head, row) : nullptr;
    if (by_channel) {
      store_keys_by_channel(a, kv_head, tok, keys_in(a.kv.format, page, d), digest);
      continue;
    }
    const uint32_t page_begin = in_page - std::min(in_page, tok - begin);
    if (a.kv.format == KvFormat::kBf16) {
      update_digest(page, page_begin, in_page + 1, digest, digest + d, d);
    } else {
      update_digest(a.kv.stored_keys_of(kv_head, row), page_begin, in_page + 1, digest, digest + d);
    }
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(append_tokens);

// Tokens of one task: a multiple of the page size, and tasks begin at a page, so that no two tasks touch one digest.
constexpr uint32_t kTaskTokens = 4 * kPageTokens;
// Elements below which dividing the work among threads costs more than it gains.
constexpr size_t kSerialElements = 16384;

}  // namespace

Status rope_append(OpContext& cx, const RopeAppendArgs& a) {
  const auto append = HWY_DYNAMIC_DISPATCH(append_tokens);
  const uint32_t n_kv_heads = a.kv.n_kv_heads;
  const auto offset_of = [&](uint32_t kv_head) {
    return a.pos - a.kv.first_pos[size_t{kv_head} * a.kv.capacity + a.append_row[kv_head]];
  };
  const size_t elements = size_t{a.n_tok} * (a.n_heads + 2 * n_kv_heads) * a.kv.head_dim;
  if (elements <= kSerialElements) {
    for (uint32_t kv_head = 0; kv_head < n_kv_heads; ++kv_head) append(a, kv_head, 0, a.n_tok);
    return {};
  }
  // Keys that are rounded by channels need those before from the open page, whose place a later page may take: what
  // goes into that page comes first.
  const bool by_channel = is_by_channel(key_format(a.kv.format));
  const auto n_first = [&](uint32_t kv_head) {
    return by_channel ? std::min(a.n_tok, kPageTokens - offset_of(kv_head)) : 0;
  };
  for (uint32_t kv_head = 0; by_channel && kv_head < n_kv_heads; ++kv_head) append(a, kv_head, 0, n_first(kv_head));
  const size_t n_blocks =
      (size_t{a.n_tok} + kPageTokens - 1 + kTaskTokens - 1) / kTaskTokens;  // enough for any offset in the first page
  cx.pool->parallel_for(n_blocks * n_kv_heads, [&](size_t task, size_t) {
    const auto kv_head = static_cast<uint32_t>(task % n_kv_heads);
    const auto block = static_cast<uint32_t>(task / n_kv_heads);
    const uint32_t offset = offset_of(kv_head);
    const uint32_t begin = block == 0 ? n_first(kv_head) : block * kTaskTokens - offset;
    const uint32_t end = std::min(a.n_tok, (block + 1) * kTaskTokens - offset);
    if (begin < end) append(a, kv_head, begin, end);
  });
  return {};
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
