// Attention over the pages of a table, defined: one query row of one head at a time.
// The listed pages are taken in units of kSplitPages. Each unit gives a partial result, normalised within the unit, and
// its lse; the partial results are merged in ascending order (docs/algorithms.md, "Merging partial attention"). A sink
// is one more partial result, the last, whose o is 0. Tokens that are not seen do not contribute, and a row that sees
// nothing gives 0.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/memory.h"
#include "ops/attn_paged.h"
#include "ops/soft_cap.h"

namespace weir::ref {
namespace {

constexpr uint32_t kUnitTokens = kSplitPages * kPageTokens;

// One query row of one head, and the pages that it attends.
struct Query {
  const AttnPagedArgs& a;
  uint32_t tok, head;
  uint32_t kv_head;
  const bool* chosen = nullptr;  // of the listed tokens; null: all

  uint32_t list() const { return a.list_per_head ? head : kv_head; }
  size_t table() const { return size_t{kv_head} * a.kv.capacity; }
  uint32_t n_listed() const { return a.select != nullptr ? a.n_select[list()] : a.kv.n_pages[kv_head]; }
  uint32_t n_units() const { return (n_listed() + kSplitPages - 1) / kSplitPages; }
  uint32_t row(uint32_t listed) const {
    return a.select != nullptr ? a.select[size_t{list()} * a.kv.capacity + listed] : listed;
  }
  bool sees(uint32_t token_pos) const {
    const uint64_t t = uint64_t{a.pos} + tok;
    if (token_pos > t) return false;
    return a.window == 0 || token_pos < a.n_sink || uint64_t{token_pos} + a.window > t;
  }
};

// weight[p * kPageTokens + j]: softmax within the unit of token j of its p-th page, 0 for tokens that are not seen.
// Returns the unit's lse.
float unit_weights(const Query& q, uint32_t unit, float* weight) {
  const AttnPagedArgs& a = q.a;
  const size_t d = a.kv.head_dim;
  const size_t q_at = (size_t{q.tok} * a.n_heads + q.head) * d;
  const uint32_t first = unit * kSplitPages;
  const uint32_t n = std::min(kSplitPages, q.n_listed() - first);
  constexpr float kUnseen = -std::numeric_limits<float>::infinity();
  std::fill(weight, weight + kUnitTokens, kUnseen);
  float high = kUnseen;
  for (uint32_t p = 0; p < n; ++p) {
    const uint32_t row = q.row(first + p);
    const auto keys = a.kv.keys_of(q.kv_head, row);
    for (uint32_t j = 0; j < a.kv.len[q.table() + row]; ++j) {
      if (!q.sees(a.kv.first_pos[q.table() + row] + j)) continue;
      if (q.chosen != nullptr && !q.chosen[size_t{first + p} * kPageTokens + j]) continue;
      const bool is_sink = row < a.n_sink_pages && (a.window == 0 || a.kv.first_pos[q.table() + row] + j < a.n_sink);
      const float* query = (is_sink && a.q_sink != nullptr ? a.q_sink : a.q) + q_at;
      const float* own = own_row(a, a.k_rows, q.kv_head, a.kv.first_pos[q.table() + row] + j);
      float dot = 0.0f;
      for (size_t i = 0; i < d; ++i) dot += query[i] * (own != nullptr ? own[i] : load_element(keys, j, i));
      const float logit = soft_capped(a.scale * dot, a.soft_cap);
      weight[p * kPageTokens + j] = logit;
      high = std::max(high, logit);
    }
  }
  if (high == kUnseen) {
    std::fill(weight, weight + kUnitTokens, 0.0f);
    return kUnseen;
  }
  float sum = 0.0f;
  for (uint32_t j = 0; j < kUnitTokens; ++j) {
    weight[j] = weight[j] == kUnseen ? 0.0f : std::exp(weight[j] - high);
    sum += weight[j];
  }
  for (uint32_t j = 0; j < kUnitTokens; ++j) weight[j] /= sum;
  return high + std::log(sum);
}

// Element `i` of the unit's partial result.
float unit_value(const Query& q, uint32_t unit, const float* weight, size_t i) {
  const uint32_t first = unit * kSplitPages;
  const uint32_t n = std::min(kSplitPages, q.n_listed() - first);
  float value = 0.0f;
  for (uint32_t p = 0; p < n; ++p) {
    const uint32_t row = q.row(first + p);
    const auto values = q.a.kv.values_of(q.kv_head, row);
    for (uint32_t j = 0; j < kPageTokens; ++j) {
      const float w = weight[p * kPageTokens + j];
      if (w == 0.0f) continue;
      const float* own = own_row(q.a, q.a.v_rows, q.kv_head, q.a.kv.first_pos[q.table() + row] + j);
      value += w * (own != nullptr ? own[i] : load_element(values, j, i));
    }
  }
  return value;
}

void attend_row(const Query& q) {
  const AttnPagedArgs& a = q.a;
  const size_t d = a.kv.head_dim;
  float* out = a.out + (size_t{q.tok} * a.n_heads + q.head) * d;
  float* mass = a.page_mass != nullptr && q.tok + 1 == a.n_tok ? a.page_mass + size_t{q.head} * a.kv.capacity : nullptr;
  float weight[kUnitTokens];
  const bool begins = a.carry == nullptr || a.carry->first, ends = a.carry == nullptr || a.carry->last;
  const size_t at = size_t{q.tok} * a.n_heads + q.head;
  if (begins) std::fill(out, out + d, 0.0f);
  if (mass != nullptr) std::fill(mass, mass + q.n_listed(), 0.0f);

  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  const float before = begins ? kNothing : a.carry->high[at];
  float high = a.sinks != nullptr && ends ? std::max(before, a.sinks[q.head]) : before;
  for (uint32_t unit = 0; unit < q.n_units(); ++unit) high = std::max(high, unit_weights(q, unit, weight));
  float* lse = a.lse != nullptr ? a.lse + at : nullptr;
  if (lse != nullptr) *lse = high;
  float total = 0.0f;
  if (before != kNothing) {
    const float shrink = std::exp(before - high);
    total = a.carry->sum[at] * shrink;
    for (size_t i = 0; i < d; ++i) out[i] *= shrink;
  }
  if (!ends) {
    a.carry->high[at] = high;
    a.carry->sum[at] = total;
  }
  if (high == kNothing) return;

  for (uint32_t unit = 0; unit < q.n_units(); ++unit) {
    const float share = std::exp(unit_weights(q, unit, weight) - high);
    total += share;
    for (size_t i = 0; i < d; ++i) out[i] += share * unit_value(q, unit, weight, i);
    const uint32_t first = unit * kSplitPages;
    for (uint32_t p = 0; mass != nullptr && p < std::min(kSplitPages, q.n_listed() - first); ++p) {
      for (uint32_t j = 0; j < kPageTokens; ++j) mass[first + p] += share * weight[p * kPageTokens + j];
    }
  }
  if (!ends) {
    a.carry->sum[at] = total;
    return;
  }
  if (a.sinks != nullptr) total += std::exp(a.sinks[q.head] - high);
  if (lse != nullptr) *lse = high + std::log(total);
  for (size_t i = 0; i < d; ++i) out[i] /= total;
  for (uint32_t p = 0; mass != nullptr && p < q.n_listed(); ++p) mass[p] /= total;
}

// Room for a list of `pages`: scores of its tokens, their order, and which are attended.
struct ChoiceScratch {
  double* score;
  uint32_t* order;
  bool* chosen;
};
ChoiceScratch lay_out_choice(Arena& arena, uint64_t pages) {
  return {arena.take<double>(pages * kPageTokens), arena.take<uint32_t>(pages * kPageTokens),
          arena.take<bool>(pages * kPageTokens)};
}

// The weight of each listed token among all of them, added up over the group's heads.
void score_tokens(const AttnPagedArgs& a, uint32_t kv_head, uint32_t n_tokens, double* score) {
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  float weight[kUnitTokens];
  std::fill_n(score, n_tokens, 0.0);
  for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const Query q = {args_of_head(a, kv_head), 0, head, kv_head};
    double high = -INFINITY, total = 0.0;
    for (uint32_t unit = 0; unit < q.n_units(); ++unit) high = std::max(high, double{unit_weights(q, unit, weight)});
    for (uint32_t unit = 0; unit < q.n_units(); ++unit) total += std::exp(unit_weights(q, unit, weight) - high);
    for (uint32_t unit = 0; unit < q.n_units(); ++unit) {
      const double share = std::exp(unit_weights(q, unit, weight) - high) / total;
      const uint32_t first = unit * kUnitTokens;
      for (uint32_t i = 0; i < kUnitTokens && first + i < n_tokens; ++i) score[first + i] += share * double{weight[i]};
    }
  }
}

// Fills s.chosen with the tokens of a KV head's list that the group attends (TokenChoice).
void choose_tokens(const AttnPagedArgs& a, uint32_t kv_head, const ChoiceScratch& s) {
  const AttnPagedArgs own = args_of_head(a, kv_head);
  const Query any = {own, 0, kv_head * (a.n_heads / a.kv.n_kv_heads), kv_head};
  const uint32_t n_tokens = any.n_listed() * kPageTokens;
  score_tokens(a, kv_head, n_tokens, s.score);
  uint32_t n_left = has_own_window(a, kv_head) ? UINT32_MAX : a.tokens.n, n_others = 0;
  bool has_scores = true;
  for (uint32_t i = 0; i < n_tokens; ++i) {
    const uint32_t row = any.row(i / kPageTokens);
    const bool is_there = i % kPageTokens < a.kv.len[any.table() + row];
    has_scores = has_scores && (!is_there || std::isfinite(s.score[i]));
    s.chosen[i] = is_there && takes_all_tokens(a, kv_head, row);
    if (is_there && !s.chosen[i]) s.order[n_others++] = i;
    if (s.chosen[i] && n_left != 0) --n_left;
  }
  std::sort(s.order, s.order + n_others,
            [&](uint32_t x, uint32_t y) { return s.score[x] != s.score[y] ? s.score[x] > s.score[y] : x < y; });
  for (uint32_t i = 0; i < n_others; ++i) s.chosen[s.order[i]] = i < n_left || !has_scores;
}

Status attend_tokens(OpContext& cx, const AttnPagedArgs& a) {
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  Arena measure, arena(cx.scratch, cx.scratch_bytes);
  lay_out_choice(measure, a.kv.capacity);
  if (measure.used() > cx.scratch_bytes) return fail(WEIR_ERR_INTERNAL, "attn_paged: too little scratch for tokens");
  const ChoiceScratch s = lay_out_choice(arena, a.kv.capacity);
  for (uint32_t kv_head = 0; kv_head < a.kv.n_kv_heads; ++kv_head) {
    choose_tokens(a, kv_head, s);
    for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      attend_row({args_of_head(a, kv_head), 0, head, kv_head, s.chosen});
  }
  return {};
}

}  // namespace

uint64_t token_choice_bytes(uint64_t pages) {
  Arena arena;
  lay_out_choice(arena, pages);
  return arena.used();
}

Status attn_paged(OpContext& cx, const AttnPagedArgs& a) {
  if (a.tokens.n != 0) return attend_tokens(cx, a);
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  for (uint32_t tok = 0; tok < a.n_tok; ++tok) {
    for (uint32_t head = 0; head < a.n_heads; ++head)
      attend_row({args_of_head(a, head / group), tok, head, head / group});
  }
  return {};
}

}  // namespace weir::ref
