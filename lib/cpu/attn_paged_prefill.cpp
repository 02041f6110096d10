// Attention of many query rows. A work item is (KV head, block of query rows). It walks the pages that any of its rows
// sees, unit by unit: logits of all rows and tokens of the unit, softmax, weighted sum of values. Both matrix products
// run on one register-blocked kernel, over keys and values that are widened to f32 once per tile. Earlier sums are
// rescaled when a unit raises a row's maximum.
//
// Numerics: f32. A row's sums run over elements and tokens in order, whatever rows share its block. A token that a row
// does not see has weight 0, and a token that no row of the block sees is not read at all.
// Paper: Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", arXiv:2307.08691,
// sec. 3.1.
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/attn_paged_parts.h"
#include "cpu/simd_targets.h"
#include "ops/attn_paged.h"
#include "quant/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attn_paged_prefill.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/kv_rows-inl.h"
#include "cpu/simd-inl.h"
#include "cpu/soft_cap-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

#if WEIR_CPU_HAS_VECTORS

constexpr size_t kStrip = 2 * kLanes;
// Rows of the register block, which has 2 * kBlockRows accumulators: enough to hide the latency of a multiply-add, and
// few enough to leave registers for operands.
constexpr size_t kBlockRows = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON ? 8 : 4;
constexpr float kUnseen = -std::numeric_limits<float>::infinity();
constexpr size_t kTileTokens = kTilePages * kPageTokens;

// c[m * c_row + n] (+)= sum over i < depth of a[m * a_row + i * a_step] * b[i * kStrip + n], for m < kBlockRows, n <
// kStrip. Not inlined: next to its callers' variables the compiler has too few registers for the accumulators.
template <bool kAdd>
HWY_NOINLINE void multiply_block(const float* HWY_RESTRICT a, size_t a_row, size_t a_step, const float* HWY_RESTRICT b,
                                 size_t depth, float* HWY_RESTRICT c, size_t c_row) {
  const DF df;
  V sum0[kBlockRows], sum1[kBlockRows];
  HWY_UNROLL(8)
  for (size_t m = 0; m < kBlockRows; ++m) {
    sum0[m] = kAdd ? hn::Load(df, c + m * c_row) : hn::Zero(df);
    sum1[m] = kAdd ? hn::Load(df, c + m * c_row + kLanes) : hn::Zero(df);
  }
  for (size_t i = 0; i < depth; ++i) {
    const V b0 = hn::Load(df, b + i * kStrip), b1 = hn::Load(df, b + i * kStrip + kLanes);
    HWY_UNROLL(8)
    for (size_t m = 0; m < kBlockRows; ++m) {
      const V x = hn::Set(df, a[m * a_row + i * a_step]);
      sum0[m] = hn::MulAdd(x, b0, sum0[m]);
      sum1[m] = hn::MulAdd(x, b1, sum1[m]);
    }
  }
  HWY_UNROLL(8)
  for (size_t m = 0; m < kBlockRows; ++m) {
    hn::Store(sum0[m], df, c + m * c_row);
    hn::Store(sum1[m], df, c + m * c_row + kLanes);
  }
}

// A page that some row of the block sees.
struct BlockPage {
  ListedPage page;
  uint32_t listed;    // index in the list
  uint32_t sink_end;  // tokens that some row sees: [0, sink_end) and [begin, end)
  uint32_t begin, end;
  bool masked;  // some row does not see all of it
  bool reads(uint32_t token) const { return token < sink_end || (token >= begin && token < end); }
};

// A work item.
struct Block {
  const AttnPagedArgs& a;
  const PrefillScratch& s;
  uint32_t kv_head;
  uint32_t begin, end;  // tokens of the call
  uint32_t group;
  uint32_t n_rows;    // (end - begin) * group
  uint32_t n_strips;  // of rows
  BlockPage pages[kSplitPages];
  uint32_t n_pages;  // of the current unit
};

const float* query_row(const Block& b, const float* q, uint32_t row) {
  const size_t tok = b.begin + row / b.group, head = b.kv_head * b.group + row % b.group;
  return q + (tok * b.a.n_heads + head) * b.a.kv.head_dim;
}

// Index of a row's (token, head).
size_t state_index(const Block& b, uint32_t row) {
  return (size_t{b.begin} + row / b.group) * b.a.n_heads + size_t{b.kv_head} * b.group + row % b.group;
}

void load_queries(const Block& b, const float* q, float* to) {
  const size_t d = b.a.kv.head_dim;
  for (uint32_t strip = 0; strip < b.n_strips; ++strip) {
    float* strip_to = to + strip * d * kStrip;
    for (uint32_t lane = 0; lane < kStrip; ++lane) {
      const auto row = static_cast<uint32_t>(strip * kStrip + lane);
      if (row < b.n_rows) {
        const float* from = query_row(b, q, row);
        for (size_t i = 0; i < d; ++i) strip_to[i * kStrip + lane] = from[i] * b.a.scale;
      } else {
        for (size_t i = 0; i < d; ++i) strip_to[i * kStrip + lane] = 0.0f;
      }
    }
  }
}

void start_rows(const Block& b) {
  const size_t n = b.n_strips * kStrip;
  std::fill(b.s.out, b.s.out + n * b.s.d_pad, 0.0f);
  std::fill(b.s.high, b.s.high + n, kUnseen);
  std::fill(b.s.sum, b.s.sum + n, 0.0f);
  for (uint32_t row = 0; row < n; ++row)
    b.s.token[row] = static_cast<int32_t>(HWY_MIN(b.begin + row / b.group, b.end - 1));
  if (b.a.carry == nullptr || b.a.carry->first) return;
  for (uint32_t row = 0; row < b.n_rows; ++row) {
    const size_t at = state_index(b, row), d = b.a.kv.head_dim;
    b.s.high[row] = b.a.carry->high[at];
    b.s.sum[row] = b.a.carry->sum[at];
    std::copy(b.a.out + at * d, b.a.out + (at + 1) * d, b.s.out + row * b.s.d_pad);
  }
}

// What the next part of the pages goes on from.
void keep_rows(const Block& b) {
  for (uint32_t row = 0; row < b.n_rows; ++row) {
    const size_t at = state_index(b, row), d = b.a.kv.head_dim;
    b.a.carry->high[at] = b.s.high[row];
    b.a.carry->sum[at] = b.s.sum[row];
    std::copy(b.s.out + row * b.s.d_pad, b.s.out + row * b.s.d_pad + d, b.a.out + at * d);
  }
}

// Lists the pages of a unit that some row sees.
void list_pages(Block& b, uint32_t first, uint32_t n) {
  b.n_pages = 0;
  for (uint32_t p = 0; p < n; ++p) {
    BlockPage& out = b.pages[b.n_pages];
    out.page = listed_page(b.a, b.kv_head, first + p);
    out.listed = first + p;
    // What a row sees moves up with its position, so the first and the last row together see everything that any row
    // sees.
    const Seen low = seen_by(b.a, out.page, uint64_t{b.a.pos} + b.begin),
               high = seen_by(b.a, out.page, uint64_t{b.a.pos} + b.end - 1);
    out.sink_end = HWY_MAX(low.sink_end, high.sink_end);
    out.begin = HWY_MIN(low.begin, high.begin);
    out.end = high.end;
    out.masked = low.end != kPageTokens || high.sink_end != high.begin;
    if (out.sink_end > 0 || out.begin < out.end) ++b.n_pages;
  }
}

void widen_row(const PagePart<const uint16_t>& part, uint32_t token, float* to) {
  const DF df;
  const size_t d = part.head_dim;
  if (part.format != RowFormat::kBf16) {
    return for_blocks(part, token,
                      [&](size_t b, V even, V odd) HWY_ATTR { hn::StoreInterleaved2(even, odd, df, to + b * kBlock); });
  }
  const uint16_t* from = part.codes(token);
  size_t i = 0;
  for (; i + kLanes <= d; i += kLanes) hn::StoreU(load_bf16(df, from + i), df, to + i);
  for (; i < d; ++i) to[i] = bf16_to_f32(from[i]);
}

// Writes a row of values as row `at` of the strips; columns beyond its end are 0, and with `reads` false all are.
void widen_to_strips(const PagePart<const uint16_t>& part, uint32_t token, bool reads, size_t d_pad, float* tile,
                     size_t at) {
  const DF df;
  const size_t d = reads ? part.head_dim : 0;
  float* to = tile + at * kStrip;
  if (part.format != RowFormat::kBf16 && reads) {
    static_assert(kBlock == kStrip && kRowPad == kScaleElements);
    for_blocks(part, token, [&](size_t b, V even, V odd) HWY_ATTR {
      hn::StoreInterleaved2(even, odd, df, to + b * kTileTokens * kStrip);
    });
    return;  // quantised rows have no rest
  }
  const uint16_t* from = part.codes(token);
  for (size_t i = 0; i < d_pad; i += kLanes) {
    uint16_t rest[kLanes] = {};
    const bool whole = i + kLanes <= d;
    if (!whole && i < d) std::memcpy(rest, from + i, (d - i) * sizeof(uint16_t));
    hn::Store(load_bf16(df, whole ? from + i : rest), df, to + i / kStrip * kTileTokens * kStrip + i % kStrip);
  }
}

// The same of a row in f32, which has no rest.
void copy_to_strips(const float* from, size_t d_pad, float* tile, size_t at) {
  for (size_t i = 0; i < d_pad; i += kStrip) std::copy_n(from + i, kStrip, tile + i * kTileTokens + at * kStrip);
}

// Sets the logits of tokens that a row does not see to -inf.
void mask_page(const Block& b, const BlockPage& page, float* logit) {
  const DF df;
  const hn::RebindToSigned<DF> di;
  const auto& a = b.a;
  const V unseen = hn::Set(df, kUnseen);
  constexpr int64_t kFar = int64_t{1} << 30;  // more than any distance that occurs
  const auto window = hn::Set(di, static_cast<int32_t>(HWY_MIN(int64_t{a.window}, kFar)));
  for (uint32_t t = 0; t < kPageTokens; ++t) {
    const int64_t distance = int64_t{page.page.first_pos} + t - int64_t{a.pos};
    const auto at = hn::Set(di, static_cast<int32_t>(HWY_MAX(HWY_MIN(distance, kFar), -kFar)));
    const bool anchored = a.window == 0 || page.page.first_pos + t < a.n_sink;
    for (size_t lane = 0; lane < kStrip; lane += kLanes) {
      for (uint32_t strip = 0; strip < b.n_strips; ++strip) {
        float* x = logit + (strip * kUnitTokens + t) * kStrip + lane;
        const auto token = hn::Load(di, b.s.token + strip * kStrip + lane);
        auto seen = hn::Gt(hn::Add(token, hn::Set(di, 1)), at);
        if (!anchored) seen = hn::And(seen, hn::Gt(at, hn::Sub(token, window)));
        const V logit_or_none = page.reads(t) ? hn::Load(df, x) : unseen;
        hn::Store(hn::IfThenElse(hn::RebindMask(df, seen), logit_or_none, unseen), df, x);
      }
    }
  }
}

void unit_logits(const Block& b) {
  const size_t d = b.a.kv.head_dim;
  for (uint32_t first = 0; first < b.n_pages; first += kTilePages) {
    const uint32_t n = HWY_MIN(kTilePages, b.n_pages - first);
    for (uint32_t i = 0; i < n * kPageTokens; ++i) {
      const BlockPage& page = b.pages[first + i / kPageTokens];
      const uint32_t t = i % kPageTokens;
      if (page.reads(t)) {
        float* to = b.s.tile + i * d;
        const float* own = own_row(b.a, b.a.k_rows, b.kv_head, page.page.first_pos + t);
        own != nullptr ? (void)std::copy_n(own, d, to) : widen_row(page.page.keys, t, to);
      } else {
        std::fill(b.s.tile + i * d, b.s.tile + (i + 1) * d, 0.0f);
      }
    }
    for (uint32_t strip = 0; strip < b.n_strips; ++strip) {
      for (uint32_t i = 0; i < n * kPageTokens; i += kBlockRows) {
        const uint32_t sink_tokens = b.pages[first + i / kPageTokens].page.sink_tokens, t = i % kPageTokens;
        const float* q = b.s.q + strip * d * kStrip;
        const float* sink_q = q + b.n_strips * d * kStrip;
        float* to = b.s.weight + (size_t{strip} * kUnitTokens + first * kPageTokens + i) * kStrip;
        multiply_block<false>(b.s.tile + i * d, d, 1, sink_tokens >= t + kBlockRows ? sink_q : q, d, to, kStrip);
        if (sink_tokens > t && sink_tokens < t + kBlockRows) {  // the sinks end inside this block of tokens
          alignas(64) float sinks[kBlockRows * kStrip];
          multiply_block<false>(b.s.tile + i * d, d, 1, sink_q, d, sinks, kStrip);
          std::copy(sinks, sinks + (sink_tokens - t) * kStrip, to);
        }
      }
    }
  }
  for (uint32_t strip = 0; b.a.soft_cap != 0.0f && strip < b.n_strips; ++strip) {
    cap_logits(b.a.soft_cap, b.s.weight + size_t{strip} * kUnitTokens * kStrip,
               size_t{b.n_pages} * kPageTokens * kStrip);
  }
  for (uint32_t p = 0; p < b.n_pages; ++p) {
    if (b.pages[p].masked) mask_page(b, b.pages[p], b.s.weight + p * kPageTokens * kStrip);
  }
}

// Turns the logits of the unit into weights relative to the maximum so far; lanes are rows.
void unit_softmax(const Block& b) {
  const DF df;
  const size_t n = size_t{b.n_pages} * kPageTokens * kStrip;
  for (size_t row = 0; row < b.n_strips * kStrip; row += kLanes) {
    float* weight = b.s.weight + row / kStrip * kUnitTokens * kStrip + row % kStrip;
    const V before = hn::Load(df, b.s.high + row);
    V high = before;
    for (size_t i = 0; i < n; i += kStrip) high = hn::Max(high, hn::Load(df, weight + i));
    const V base = hn::IfThenElseZero(hn::Gt(high, hn::Set(df, kUnseen)), high);
    const V shrink = hn::Exp(df, hn::Sub(before, base));
    V sum = hn::Zero(df);
    for (size_t i = 0; i < n; i += kStrip) {
      const V w = hn::Exp(df, hn::Sub(hn::Load(df, weight + i), base));
      hn::Store(w, df, weight + i);
      sum = hn::Add(sum, w);
    }
    hn::Store(high, df, b.s.high + row);
    hn::Store(shrink, df, b.s.shrink + row);
    hn::Store(hn::MulAdd(hn::Load(df, b.s.sum + row), shrink, sum), df, b.s.sum + row);
  }
}

void shrink_out(const Block& b) {
  const DF df;
  for (uint32_t row = 0; row < b.n_rows; ++row) {
    if (b.s.shrink[row] == 1.0f) continue;
    const V shrink = hn::Set(df, b.s.shrink[row]);
    float* out = b.s.out + row * b.s.d_pad;
    for (size_t i = 0; i < b.s.d_pad; i += kLanes) hn::Store(hn::Mul(hn::Load(df, out + i), shrink), df, out + i);
  }
}

void unit_values(const Block& b) {
  const size_t d_pad = b.s.d_pad;
  for (uint32_t first = 0; first < b.n_pages; first += kTilePages) {
    const uint32_t n_tokens = HWY_MIN(kTilePages, b.n_pages - first) * kPageTokens;
    for (uint32_t i = 0; i < n_tokens; ++i) {
      const BlockPage& page = b.pages[first + i / kPageTokens];
      const uint32_t t = i % kPageTokens;
      const float* own = page.reads(t) ? own_row(b.a, b.a.v_rows, b.kv_head, page.page.first_pos + t) : nullptr;
      own != nullptr ? copy_to_strips(own, d_pad, b.s.tile, i)
                     : widen_to_strips(page.page.values, t, page.reads(t), d_pad, b.s.tile, i);
    }
    for (size_t column = 0; column < d_pad; column += kStrip) {
      const float* values = b.s.tile + column * kTileTokens;
      for (uint32_t row = 0; row < b.n_rows; row += kBlockRows) {
        const float* weight = b.s.weight + (row / kStrip * kUnitTokens + first * kPageTokens) * kStrip + row % kStrip;
        multiply_block<true>(weight, 1, kStrip, values, n_tokens, b.s.out + row * d_pad + column, d_pad);
      }
    }
  }
}

// Sums the last token's weights over each page of the unit, relative to its maximum so far.
void unit_masses(const Block& b) {
  for (uint32_t g = 0; g < b.group; ++g) {
    const size_t row = b.n_rows - b.group + g;
    float* mass = b.a.page_mass + (size_t{b.kv_head} * b.group + g) * b.a.kv.capacity;
    const float* weight = b.s.weight + row / kStrip * kUnitTokens * kStrip + row % kStrip;
    for (uint32_t i = 0; b.n_pages > 0 && i < b.pages[0].listed; ++i) mass[i] *= b.s.shrink[row];
    for (uint32_t p = 0; p < b.n_pages; ++p) {
      float sum = 0.0f;
      for (size_t t = 0; t < kPageTokens; ++t) sum += weight[(p * kPageTokens + t) * kStrip];
      mass[b.pages[p].listed] = sum;
    }
  }
}

// Takes the sinks into the sums and maxima of the rows, and leaves in `shrink` the factor of the weighted sums.
void add_sinks(const Block& b) {
  for (uint32_t row = 0; row < b.n_rows; ++row) {
    const float sink = b.a.sinks[size_t{b.kv_head} * b.group + row % b.group], high = HWY_MAX(b.s.high[row], sink);
    const float shrink = std::exp(b.s.high[row] - high);
    b.s.shrink[row] = shrink;
    b.s.sum[row] = b.s.sum[row] * shrink + std::exp(sink - high);
    b.s.high[row] = high;
  }
}

void finish_rows(const Block& b, bool masses) {
  const size_t d = b.a.kv.head_dim;
  if (b.a.sinks != nullptr) add_sinks(b);
  for (uint32_t row = 0; row < b.n_rows; ++row) {
    const float factor = b.a.sinks != nullptr ? b.s.shrink[row] : 1.0f;
    const float inverse = b.s.sum[row] > 0.0f ? factor / b.s.sum[row] : 0.0f;
    float* out = b.a.out + (query_row(b, b.a.q, row) - b.a.q);
    for (size_t i = 0; i < d; ++i) out[i] = b.s.out[row * b.s.d_pad + i] * inverse;
    if (b.a.lse != nullptr)
      b.a.lse[state_index(b, row)] = b.s.sum[row] > 0.0f ? b.s.high[row] + std::log(b.s.sum[row]) : kUnseen;
    if (!masses || row < b.n_rows - b.group) continue;
    float* mass = b.a.page_mass + (size_t{b.kv_head} * b.group + row % b.group) * b.a.kv.capacity;
    for (uint32_t p = 0; p < n_listed(b.a, b.kv_head); ++p) mass[p] *= inverse;
  }
}

void prefill_block(const AttnPagedArgs& a, const PrefillScratch& s, uint32_t kv_head, uint32_t begin, uint32_t end) {
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  const uint32_t n_rows = (end - begin) * group;
  Block b = {.a = a,
             .s = s,
             .kv_head = kv_head,
             .begin = begin,
             .end = end,
             .group = group,
             .n_rows = n_rows,
             .n_strips = static_cast<uint32_t>((n_rows + kStrip - 1) / kStrip),
             .pages = {},
             .n_pages = 0};
  const bool masses = a.page_mass != nullptr && end == a.n_tok;
  const uint32_t n_pages = n_listed(a, kv_head);
  for (uint32_t g = 0; masses && g < group; ++g) {
    float* mass = a.page_mass + (size_t{kv_head} * group + g) * a.kv.capacity;
    std::fill(mass, mass + n_pages, 0.0f);
  }
  load_queries(b, a.q, s.q);
  if (a.q_sink != nullptr) load_queries(b, a.q_sink, s.q + b.n_strips * kStrip * a.kv.head_dim);
  start_rows(b);
  for (uint32_t first = 0; first < n_pages; first += kSplitPages) {
    list_pages(b, first, HWY_MIN(kSplitPages, n_pages - first));
    if (b.n_pages == 0) continue;
    unit_logits(b);
    unit_softmax(b);
    shrink_out(b);
    unit_values(b);
    if (masses) unit_masses(b);
  }
  if (a.carry != nullptr && !a.carry->last) {
    keep_rows(b);
  } else {
    finish_rows(b, masses);
  }
}

#else

void prefill_block(const AttnPagedArgs&, const PrefillScratch&, uint32_t, uint32_t, uint32_t) {}

#endif

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(prefill_block);

}  // namespace

void attn_prefill(OpContext& cx, const AttnPagedArgs& a) {
  const auto attend = HWY_DYNAMIC_DISPATCH(prefill_block);
  const uint32_t n_kv_heads = a.kv.n_kv_heads, group = a.n_heads / n_kv_heads;
  const uint32_t block_tokens = prefill_block_tokens(group);
  const uint32_t n_blocks = (a.n_tok - 1) / block_tokens + 1;
  Arena measure;
  lay_out_prefill(measure, a.n_tok, group, a.kv.head_dim);
  cx.pool->parallel_for(size_t{n_blocks} * n_kv_heads, [&](size_t task, size_t worker) {
    Arena arena(cx.scratch + worker * measure.used(), measure.used());
    const PrefillScratch s = lay_out_prefill(arena, a.n_tok, group, a.kv.head_dim);
    const uint32_t block =
        n_blocks - 1 - static_cast<uint32_t>(task / n_kv_heads);  // the last blocks see most and start first
    const auto kv_head = static_cast<uint32_t>(task % n_kv_heads);
    attend(args_of_head(a, kv_head), s, kv_head, block * block_tokens, std::min(a.n_tok, (block + 1) * block_tokens));
  });
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
