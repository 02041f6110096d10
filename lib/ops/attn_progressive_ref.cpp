// Attention that stops when it has seen enough, defined: which pages are taken, in plain f64, and attention over them.
// Paper: Zhou et al., "Progressive Sparse Attention: Algorithm and System Co-design for Efficient Attention in LLM
// Serving", arXiv:2503.00392, algorithm 1.
// Differs from it: sums are kept as logarithms; pages that are not full, and forced ones, do not count as the least;
// a group's heads stop together (docs/algorithms.md, "PSA").
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ops/attn_paged.h"
#include "ops/attn_progressive.h"
#include "ops/attn_stop.h"
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

double logit_of(const Stream& s, uint32_t head, const PagePart<const uint16_t>& keys, uint32_t token) {
  const size_t d = s.kv().head_dim;
  double dot = 0.0;
  for (size_t i = 0; i < d; ++i) dot += double{s.a.attn.q[head * d + i]} * double{load_element(keys, token, i)};
  return logit(s, dot);
}

// Log of the sum of exp(logit) over a page.
double page_lse(const Stream& s, uint32_t head, uint32_t row) {
  const auto keys = s.kv().keys_of(s.kv_head, row);
  double lse = kNothing;
  for (uint32_t j = 0; j < s.kv().len[s.at(row)]; ++j) lse = log_sum(lse, logit_of(s, head, keys, j));
  return lse;
}

// Log of the bound on the sum over the listed rows that are left: the first n of `rows`.
double bound_of(const Stream& s, uint32_t head, const uint32_t* rows, uint32_t n) {
  double rest = kNothing;
  for (uint32_t i = 0; i < n; ++i) {
    const double most = logit(s, double{s.a.stop.bound[size_t{head} * s.kv().capacity + rows[i]]});
    rest = log_sum(rest, most + std::log(static_cast<double>(s.kv().len[s.at(rows[i])])));
  }
  return rest;
}

// What a query head has seen.
struct Seen {
  double lse = kNothing, least = INFINITY;
  uint32_t n_quiet = 0;  // last pages with little of the sum each
  bool done = false;
};
constexpr uint32_t kMaxGroup = 256;

// Adds a page to a head's mean, [head_dim], and to its masses by row.
void add_page(const Stream& s, uint32_t head, uint32_t row, double lse, Seen& seen) {
  const size_t d = s.kv().head_dim;
  const double before = seen.lse;
  seen.lse = log_sum(before, lse);
  const double shrink = before == kNothing ? 0.0 : std::exp(before - seen.lse);
  float* out = s.a.attn.out + head * d;
  for (size_t i = 0; i < d; ++i) out[i] = before == kNothing ? 0.0f : static_cast<float>(double{out[i]} * shrink);
  const auto keys = s.kv().keys_of(s.kv_head, row), values = s.kv().values_of(s.kv_head, row);
  for (uint32_t j = 0; j < s.kv().len[s.at(row)]; ++j) {
    const double weight = std::exp(logit_of(s, head, keys, j) - seen.lse);
    for (size_t i = 0; i < d; ++i) out[i] += static_cast<float>(weight * double{load_element(values, j, i)});
  }
  if (s.a.attn.page_mass == nullptr) return;
  float* mass = s.a.attn.page_mass + size_t{head} * s.kv().capacity;
  for (const uint32_t* other = s.list(); *other != row; ++other) mass[*other] *= static_cast<float>(shrink);
  mass[row] = static_cast<float>(std::exp(lse - seen.lse));
}

// Page `listed` of the list, in the order in which pages are taken. `left`: listed rows behind it.
void see_page(const Stream& s, uint32_t head, uint32_t listed, const uint32_t* left, uint32_t n_left, Seen& seen) {
  const double eps = s.a.stop.eps;
  const uint32_t row = s.list()[listed], n_rows_left = s.n_pages() - (listed + 1);
  const double lse = page_lse(s, head, row);
  add_page(s, head, row, lse, seen);
  if (s.a.stop.quiet_pages > 0) {
    const double share = lse == kNothing ? 0.0 : std::exp(lse - seen.lse);
    seen.n_quiet = share <= double{s.a.stop.quiet_share} ? seen.n_quiet + 1 : 0;
    seen.done = seen.done || seen.n_quiet >= s.a.stop.quiet_pages;
    return;
  }
  if (s.kv().len[s.at(row)] == kPageTokens && !s.forced(row)) seen.least = std::min(seen.least, lse);
  const double rest = s.a.stop.bound != nullptr ? bound_of(s, head, left, n_left)
                                                : seen.least + std::log(static_cast<double>(n_rows_left));
  if (eps < 1.0 && (n_rows_left == 0 || 1.0 / (1.0 + std::exp(rest - seen.lse)) > eps)) seen.done = true;
}

// Takes up to a microbatch of the list's rows from `next` on, best first, behind the `taken` ones. Returns how many
// there are when the source has dropped those that are lost.
uint32_t take_microbatch(const Stream& s, uint32_t taken, uint32_t& next, uint32_t n) {
  uint32_t* list = s.list();
  const uint32_t first = next, end = std::min(n, next + s.a.stop.microbatch);
  for (; next < end; ++next) {
    uint32_t* best =
        std::min_element(list + next, list + n, [&](uint32_t x, uint32_t y) { return s.comes_before(x, y); });
    std::swap(list[next], *best);
  }
  std::copy(list + first, list + end, list + taken);
  PageSource* source = s.a.source;
  if (source == nullptr) return end - first;
  uint32_t n_rows = source->want(s.kv_head, list + taken, end - first, nullptr, 0);
  n_rows = source->load(s.kv_head, list + taken, n_rows);
  source->settle(s.kv_head);
  return n_rows;
}

// Pages in the order of importance until all heads are done.
uint32_t take_pages(const Stream& s, Seen* seen) {
  const uint32_t n = s.a.n_select[s.kv_head];
  uint32_t taken = 0;
  for (uint32_t next = 0; next < n;) {
    const uint32_t n_rows = take_microbatch(s, taken, next, n);
    bool done = n_rows != 0;
    for (uint32_t g = 0; g < s.group(); ++g) {
      for (uint32_t i = 0; i < n_rows; ++i) {
        // The rows left are those behind this one in the microbatch, and then those from `next` on.
        see_page(s, s.kv_head * s.group() + g, taken + i, s.list() + next, n - next, seen[g]);
      }
      done = done && seen[g].done;
    }
    taken += n_rows;
    if (done) break;
  }
  return taken;
}

// The sink, which has no value, joins; the list becomes ascending, and the masses get its order.
void finish(const Stream& s, uint32_t taken, const Seen* seen) {
  const AttnPagedArgs& a = s.a.attn;
  std::sort(s.list(), s.list() + taken);
  s.a.n_select[s.kv_head] = taken;
  for (uint32_t g = 0; g < s.group(); ++g) {
    const uint32_t head = s.kv_head * s.group() + g;
    float* out = a.out + size_t{head} * a.kv.head_dim;
    if (taken == 0) std::fill(out, out + a.kv.head_dim, 0.0f);
    const double sink = a.sinks == nullptr ? kNothing : double{a.sinks[head]};
    const auto share = static_cast<float>(sink == kNothing ? 1.0 : 1.0 / (1.0 + std::exp(sink - seen[g].lse)));
    for (uint32_t i = 0; i < a.kv.head_dim; ++i) out[i] *= share;
    if (a.page_mass == nullptr) continue;
    float* mass = a.page_mass + size_t{head} * a.kv.capacity;
    for (uint32_t i = 0; i < taken; ++i) mass[i] = mass[s.list()[i]] * share;  // a row is not before its place in it
  }
}

}  // namespace

Status attn_progressive(OpContext&, const AttnProgressiveArgs& a) {
  const uint32_t group = a.attn.n_heads / a.attn.kv.n_kv_heads;
  if (group > kMaxGroup) return fail(WEIR_ERR_UNSUPPORTED, "attn_progressive: %u query heads per KV head", group);
  for (uint32_t kv_head = 0; kv_head < a.attn.kv.n_kv_heads; ++kv_head) {
    Seen seen[kMaxGroup];
    const Stream stream = {a, kv_head};
    finish(stream, take_pages(stream, seen), seen);
  }
  return {};
}

}  // namespace weir::ref
