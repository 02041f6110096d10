// Attention that stops when it has seen enough, defined: which pages are taken, in plain f64, and attention over them.
// Paper: Zhou et al., "Progressive Sparse Attention: Algorithm and System Co-design for Efficient Attention in LLM
// Serving", arXiv:2503.00392, algorithm 1.
// Differs from it: sums are kept as logarithms; pages that are not full, and forced ones, do not count as the least;
// a group's heads stop together (docs/algorithms.md, "PSA").
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ops/ops.h"
#include "quant/half.h"

namespace weir::ref {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// log(exp(x) + exp(y))
double log_sum(double x, double y) {
  const double more = std::max(x, y);
  return more == kNothing ? more : more + std::log(std::exp(x - more) + std::exp(y - more));
}

// One KV head. Its list holds the pages taken, in the order in which they were, and then those that are left.
struct Stream {
  const AttnProgressiveArgs& a;
  uint32_t kv_head;

  const KvView& kv() const { return a.attn.kv; }
  size_t at(uint32_t row) const { return size_t{kv_head} * kv().capacity + row; }
  uint32_t n_pages() const { return kv().n_pages[kv_head]; }
  uint32_t group() const { return a.attn.n_heads / kv().n_kv_heads; }
  uint32_t* list() const { return a.select + at(0); }
  bool forced(uint32_t row) const {
    return row + 1 == n_pages() || row < a.stop.n_sink_pages || (a.stop.flags[at(row)] & kPageKept) != 0;
  }
  float rank(uint32_t row) const { return std::isnan(a.stop.rank[at(row)]) ? -INFINITY : a.stop.rank[at(row)]; }

  bool comes_before(uint32_t x, uint32_t y) const {
    if (forced(x) != forced(y)) return forced(x);
    if (!forced(x) && rank(x) != rank(y)) return rank(x) > rank(y);
    return x < y;
  }
};

double logit(const Stream& s, double dot) {
  const double x = double{s.a.attn.scale} * dot, cap = s.a.attn.soft_cap;
  return cap == 0.0 ? x : cap * std::tanh(x / cap);
}

// Log of the sum of exp(logit) over a page.
double page_lse(const Stream& s, uint32_t head, uint32_t row) {
  const size_t d = s.kv().head_dim;
  const uint16_t* keys = s.kv().keys_of(s.kv_head, row);
  double lse = kNothing;
  for (uint32_t j = 0; j < s.kv().len[s.at(row)]; ++j) {
    double dot = 0.0;
    for (size_t i = 0; i < d; ++i) dot += double{s.a.attn.q[head * d + i]} * double{bf16_to_f32(keys[j * d + i])};
    lse = log_sum(lse, logit(s, dot));
  }
  return lse;
}

// Log of the bound on the sum over the rows that are left after the first `n_taken` of the list.
double bound_of_rest(const Stream& s, uint32_t head, uint32_t n_taken) {
  double rest = kNothing;
  for (uint32_t i = n_taken; i < s.n_pages(); ++i) {
    const uint32_t row = s.list()[i];
    const double most = logit(s, double{s.a.stop.bound[size_t{head} * s.kv().capacity + row]});
    rest = log_sum(rest, most + std::log(static_cast<double>(s.kv().len[s.at(row)])));
  }
  return rest;
}

// Whether the head was done after one of the first `n_taken` pages.
bool is_done(const Stream& s, uint32_t head, uint32_t n_taken) {
  const double eps = s.a.stop.eps;
  if (eps >= 1.0) return false;
  double seen = kNothing, least = INFINITY;
  for (uint32_t i = 0; i < n_taken; ++i) {
    const uint32_t row = s.list()[i];
    const double lse = page_lse(s, head, row);
    seen = log_sum(seen, lse);
    if (s.kv().len[s.at(row)] == kPageTokens && !s.forced(row)) least = std::min(least, lse);
    const uint32_t left = s.n_pages() - (i + 1);
    const double rest =
        s.a.stop.bound != nullptr ? bound_of_rest(s, head, i + 1) : least + std::log(static_cast<double>(left));
    if (left == 0 || 1.0 / (1.0 + std::exp(rest - seen)) > eps) return true;
  }
  return false;
}

void take_pages(const Stream& s) {
  uint32_t* list = s.list();
  const uint32_t n = s.a.n_select[s.kv_head];
  uint32_t taken = 0;
  for (bool done = false; !done && taken < n;) {
    const uint32_t end = std::min(n, taken + s.a.stop.microbatch);
    for (; taken < end; ++taken) {
      uint32_t* next =
          std::min_element(list + taken, list + n, [&](uint32_t x, uint32_t y) { return s.comes_before(x, y); });
      std::swap(list[taken], *next);
    }
    done = true;
    for (uint32_t g = 0; g < s.group(); ++g) done = done && is_done(s, s.kv_head * s.group() + g, taken);
  }
  std::sort(list, list + taken);
  s.a.n_select[s.kv_head] = taken;
}

}  // namespace

Status attn_progressive(OpContext& cx, const AttnProgressiveArgs& a) {
  for (uint32_t kv_head = 0; kv_head < a.attn.kv.n_kv_heads; ++kv_head) take_pages({a, kv_head});
  AttnPagedArgs attn = a.attn;
  attn.select = a.select;
  attn.n_select = a.n_select;
  return attn_paged(cx, attn);
}

}  // namespace weir::ref
