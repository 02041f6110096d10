// cuda: rounds of attention that stops when it has seen enough (cuda/attn/stop_rounds.cuh), compiled for the host and
// run by a block whose threads take turns (on_host/cuda/common/base.cuh), against the definition in f64: which pages
// are attended, in which order they are taken, and that none enters the result that turns out to be too many. No GPU is
// needed. Sums of pages are given instead of keys.
#include "cuda/attn/stop_rounds.cuh"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/cmocka_cpp.h"
#include "tests/cuda/on_host/random.h"

namespace {

using namespace weir::cuda;
using namespace weir::cuda::sparse;
using namespace weir::test;

constexpr uint32_t kThreads = 512, kWarps = kThreads / kWarp, kFull = 1u << 28;  // kFull: in the word of a full page

// Logarithms of pages' sums. `place`: in the order.
struct Kind {
  const char* name;
  float (*sum)(uint32_t place);
};
const Kind kKinds[] = {
    {"as they are ordered",
     [](uint32_t place) { return normal() - 1.5f * std::log2(1.0f + static_cast<float>(place)); }},
    {"any order", [](uint32_t) { return 3.0f * normal(); }},
    {"all nearly equal", [](uint32_t) { return 100.0f + 0.01f * normal(); }},
    {"falling", [](uint32_t place) { return -0.4f * static_cast<float>(place) + normal(); }},
    {"rising", [](uint32_t place) { return 1.7f * static_cast<float>(place) + normal(); }},
    {"any scale", [](uint32_t) { return 400.0f * normal(); }},
    {"some without sum", [](uint32_t) { return below(3) == 0 ? -INFINITY : 2.0f * normal(); }},
    {"nothing at first", [](uint32_t place) { return place < 40 ? -INFINITY : normal(); }},
    {"one not a number", [](uint32_t place) { return place == 50 ? NAN : normal(); }},
};

struct Case {
  const Kind* kind;
  uint32_t n, n_listed, n_blocks, rank, group;
  weir::AttnStop stop;
  std::vector<uint32_t> keys, words;          // by row
  std::vector<uint32_t> order;                // rows
  std::vector<std::vector<float>> sums = {};  // [group][n] by row
  std::vector<std::vector<float>> most = {};  // the same: what bounds say; empty: there are none

  uint32_t n_forced() const { return static_cast<uint32_t>(std::count(keys.begin(), keys.end(), kKeyAlways)); }
};

weir::AttnStop random_stop() {
  weir::AttnStop stop;
  const uint32_t batches[] = {1, 1, 2, 3, 8, 8, 16, 32};
  const float eps[] = {0.0f, 0.3f, 0.5f, 0.8f, 0.9f, 0.95f, 0.98f, 0.999f, 1.0f};
  const uint32_t quiet[] = {1, 2, 8, 16, 17, 40, 63, 64, 100, 128, 200, 256, 300, 700};
  const float share[] = {0.0f, 0.001f, 0.01f, 0.03f, 0.2f, 0.999f, 1.0f, 1.0f, 2.0f};
  static const float some_bound = 0.0f;
  stop.microbatch = batches[below(8)];
  if (below(2) == 0) {
    stop.quiet_pages = quiet[below(14)];
    stop.quiet_share = share[below(9)];
  } else {
    stop.eps = eps[below(9)];
    if (below(3) == 0) stop.bound = &some_bound;
  }
  return stop;
}

Case random_case() {
  const uint32_t sizes[] = {1, 2, 40, 90, 300, 700, 1500, 2500}, blocks[] = {8, 8, 8, 10, 12, 16};
  Case c = {&kKinds[below(std::size(kKinds))],
            1 + below(sizes[below(8)]),
            0,
            blocks[below(6)],
            0,
            1 + below(8),
            random_stop(),
            {},
            {},
            {}};
  c.rank = below(c.n_blocks);
  const uint32_t n_sinks = below(4) == 0 ? below(100) : below(3);
  const bool ties = below(3) == 0;
  for (uint32_t row = 0; row < c.n; ++row) {
    const bool forced = row + 1 == c.n || row < n_sinks || below(300) == 0;
    c.keys.push_back(forced ? kKeyAlways : key_of_score(ties ? static_cast<float>(below(6)) : normal()));
    c.words.push_back(row | (row + 1 == c.n || below(20) == 0 ? 0 : kFull));
  }
  // Bounds are about all rows.
  const uint32_t budget = below(4) == 0 && c.stop.bound == nullptr ? 1 + below(c.n) : c.n;
  c.n_listed = c.n_forced() + std::min(c.n - c.n_forced(), budget - std::min(budget, c.n_forced()));
  c.order.resize(c.n);
  std::iota(c.order.begin(), c.order.end(), 0u);
  std::stable_sort(c.order.begin(), c.order.end(), [&](uint32_t x, uint32_t y) { return c.keys[x] > c.keys[y]; });
  c.sums.assign(c.group, std::vector<float>(c.n));
  for (auto& head : c.sums) {
    for (uint32_t place = 0; place < c.n; ++place) head[c.order[place]] = c.kind->sum(place);
  }
  if (c.stop.bound == nullptr) return c;
  // From exact ones to far too large ones.
  const float slack = std::exp2(static_cast<float>(below(8)) - 6.0f);
  c.most = c.sums;
  for (auto& head : c.most) {
    for (float& most : head) most += slack * std::fabs(normal());
  }
  return c;
}

// By the definition: after how many pages a head is done, at the earliest and at the latest, if comparisons within
// `slack` may come out either way. f32 differs from f64 by less.
struct Range {
  uint32_t least, most;
};

double log_sum(double x, double y) {
  if (std::isnan(x) || std::isnan(y)) return NAN;
  const double more = std::max(x, y);
  return more == -INFINITY ? more : more + std::log2(std::exp2(x - more) + std::exp2(y - more));
}

Range done_at(const Case& c, uint32_t head) {
  const std::vector<float>& sums = c.sums[head];
  // Behind each page of the order.
  std::vector<double> rest(c.n, -INFINITY);
  for (uint32_t i = c.n - 1; i > 0 && !c.most.empty(); --i)
    rest[i - 1] = log_sum(rest[i], double{c.most[head][c.order[i]]});
  double all = -INFINITY, least = INFINITY;
  uint32_t quiet[2] = {0, 0};
  Range r = {kNotDone, kNotDone};
  for (uint32_t i = 0; i < c.n_listed; ++i) {
    const uint32_t row = c.order[i];
    const double of_page = double{sums[row]};
    all = log_sum(all, of_page);
    const double slack = 1e-5 * (1.0 + std::fabs(all));
    bool may, must;
    if (c.stop.quiet_pages > 0) {
      const double over = of_page - all - std::log2(double{c.stop.quiet_share});
      quiet[0] = of_page == -INFINITY || over <= slack ? quiet[0] + 1 : 0;
      quiet[1] = of_page == -INFINITY || over <= (c.stop.quiet_share >= 1.0f ? 0.0 : -slack) ? quiet[1] + 1 : 0;
      may = quiet[0] >= c.stop.quiet_pages, must = quiet[1] >= c.stop.quiet_pages;
    } else {
      if (c.words[row] >= kFull && c.keys[row] != kKeyAlways) least = std::fmin(least, of_page);
      const double odds = std::log2(double{c.stop.eps}) - std::log2(1.0 - double{c.stop.eps});
      if (!c.most.empty()) {
        const double over = all - (odds + rest[i]), of_rest = slack + 1e-5 * std::fabs(odds + rest[i]);
        may = all > -INFINITY && over > -of_rest, must = all > -INFINITY && over > of_rest;
      } else {
        const double over = all - (odds + least + std::log2(static_cast<double>(c.n - (i + 1))));
        may = least < INFINITY && over > -slack, must = least < INFINITY && over > slack;
      }
    }
    if (may && r.least == kNotDone) r.least = i + 1;
    if (must && r.most == kNotDone) r.most = i + 1;
    if (r.most != kNotDone) break;
  }
  return r;
}

Range pages_enough(const Case& c) {
  Range all = {0, 0};
  for (uint32_t head = 0; head < c.group; ++head) {
    const Range r = done_at(c, head);
    all = {std::max(all.least, r.least), std::max(all.most, r.most)};
  }
  const uint32_t each = c.stop.microbatch;
  const auto up = [&](uint32_t x) {
    return x == kNotDone ? c.n_listed : std::min(c.n_listed, (x + each - 1) / each * each);
  };
  return {up(all.least), up(all.most)};
}

// One block of a cluster. What the others would send is there for all of a round's pages when the block has come to the
// cluster's barrier; before, there is nothing of what it will be.
class Block {
 public:
  // Runs the rounds as sparse_layer_stop.cuh does, with bounds as attn_stop.cu does. Returns why it failed.
  std::string run(const Case& c) {
    c_ = &c;
    rule_ = stop_rule(c.stop, c.group);
    keys_.assign((c.n + 3) / 4, make_uint4(0, 0, 0, 0));
    std::memcpy(keys_.data(), c.keys.data(), c.n * sizeof(uint32_t));
    taken.assign(c.n_listed, kNotDone);
    kept.assign(c.n_listed, 0);
    attended = n_rounds = 0;
    return block_.run([&] { attend(); });
  }

  std::vector<uint32_t> taken;  // rows in order
  std::vector<uint8_t> kept;    // by place: whether some block of the cluster has added it to the result
  uint32_t attended = 0, n_rounds = 0;

 private:
  void attend() {
    const Case& c = *c_;
    scratch_.clear();
    uint32_t high = 0;
    for (const uint32_t key : c.keys) high = key == kKeyAlways ? high : std::max(high, key);
    const PagesLeft left = {high, c.n_forced(), c.n - c.n_forced(), c.n_listed};
    if (threadIdx.x < kStopHeads) t_.seen[threadIdx.x] = HeadSeen();
    if (threadIdx.x == 0) t_.left = left;
    __syncthreads();
    Progress p = progress_before(rule_, left);
    uint32_t round = 0;
    for (; t_.left.n_taken < p.enough && t_.left.n_listed != 0; ++round) {
      const uint32_t n = round_length(rule_, p, t_.left, round, c.n_blocks * (kWarps / 2));
      take_round(reinterpret_cast<uint32_t*>(keys_.data()), c.words.data(), c.n, n, scratch_, t_,
                 [](uint32_t page) { return page >= kFull; });
      attend_round(round, n, p);
    }
    if (threadIdx.x != 0) return;
    attended = min(t_.left.n_taken, p.enough);
    n_rounds = round;
  }

  void attend_round(uint32_t round, uint32_t n, Progress& p) {
    const Case& c = *c_;
    const uint32_t warp = threadIdx.x / kWarp, before = t_.left.n_taken - n, step = c.n_blocks * kWarps;
    const bool looks = p.enough == kNotDone;
    float* lse = t_.lse[round % 2];
    for (uint32_t first = 0; first < n; first += step) {
      // This thread stands for the warps that attend pages at its places, of all blocks.
      for (uint32_t own = first + threadIdx.x; own < std::min(n, first + step); own += kThreads) {
        const uint32_t row = t_.page[own] % kFull;
        taken[before + own] = row;
        for (uint32_t head = 0; looks && head < c.group; ++head) lse[head * rule_.most + own] = c.sums[head][row];
      }
      if (looks && first + step >= n) {
        __syncthreads();
        if (warp < c.group) {
          float* rest = nullptr;
          if (rule_.by_bounds) {
            rest = rest_ + warp * rule_.most;
            const std::vector<float>& most = c.most[warp];
            bound_rest(
                reinterpret_cast<uint32_t*>(keys_.data()), c.n, n, [&](uint32_t row) { return most[row]; },
                [&](uint32_t place) { return most[t_.page[place] % kFull]; }, rest);
          }
          look(rule_, t_, t_.seen[warp], lse + warp * rule_.most, rest, n, c.n);
        }
        __syncthreads();
        p = progress_of(rule_, t_.seen, c.group);
      }
      for (uint32_t own = first + threadIdx.x; own < std::min(n, first + step); own += kThreads) {
        if (before + own < p.enough) ++kept[before + own];
      }
    }
  }

  const Case* c_ = nullptr;
  StopRule rule_ = {};
  std::vector<uint4> keys_;
  StopWork t_;
  float rest_[kRoundSums];
  SharedKeysScratch<kThreads> scratch_;
  HostBlock block_{kThreads};
};

std::string name_of(const Case& c) {
  char text[300];
  std::snprintf(text, sizeof(text),
                "sums %s, %u pages, %u listed, %u forced, %u blocks, %u heads, eps %g%s, quiet %u share %g, mb %u",
                c.kind->name, c.n, c.n_listed, c.n_forced(), c.n_blocks, c.group, double{c.stop.eps},
                c.most.empty() ? "" : " with bounds", c.stop.quiet_pages, double{c.stop.quiet_share},
                c.stop.microbatch);
  return text;
}

void check(Block& block, const Case& c, Range want) {
  const std::string error = block.run(c);
  if (!error.empty()) fail_msg("%s: %s", name_of(c).c_str(), error.c_str());
  const uint32_t got = block.attended;
  if (got < want.least || want.most < got)
    fail_msg("%s: %u pages, not %u to %u", name_of(c).c_str(), got, want.least, want.most);
  for (uint32_t i = 0; i < c.n_listed; ++i) {
    if (block.kept[i] != (i < got ? 1 : 0))
      fail_msg("%s: place %u of %u was kept %u times", name_of(c).c_str(), i, got, block.kept[i]);
    if (i < got && block.taken[i] != c.order[i])
      fail_msg("%s: at place %u is row %u, not %u", name_of(c).c_str(), i, block.taken[i], c.order[i]);
  }
}

void rounds__attend_what_the_definition_says(void**) {
  Block block;
  uint32_t n_exact = 0, n_stopped = 0;
  const uint32_t n_cases = 300;
  for (uint32_t i = 0; i < n_cases; ++i) {
    const Case c = random_case();
    const Range want = pages_enough(c);
    check(block, c, want);
    n_exact += want.least == want.most ? 1 : 0;
    n_stopped += want.most < c.n_listed ? 1 : 0;
  }
  std::printf("%u cases, %u with one right answer, %u stop early\n", n_cases, n_exact, n_stopped);
  assert_true(n_exact > n_cases * 9 / 10);
  assert_true(n_stopped > n_cases / 4);
}

// What every page is quiet for is known before: there is one round as long as pages fit into it.
void rounds__are_few_where_it_is_known_how_many_pages_are_needed(void**) {
  Block block;
  for (const uint32_t quiet : {1u, 16u, 64u, 65u, 128u, 200u, 240u, 241u, 256u, 300u, 512u, 600u}) {
    for (const uint32_t group : {1u, 4u, 7u, 8u}) {
      Case c = {&kKinds[1], 1000, 1000, 8, 3, group, {}, {}, {}, {}};
      for (uint32_t row = 0; row < c.n; ++row) {
        c.keys.push_back(row + 1 == c.n ? kKeyAlways : key_of_score(-static_cast<float>(row)));
        c.words.push_back(row | kFull);
        c.order.push_back((row + c.n - 1) % c.n);
      }
      c.sums.assign(group, std::vector<float>(c.n, 0.0f));
      c.stop.quiet_pages = quiet;
      c.stop.quiet_share = 1.0f;
      c.stop.microbatch = 1;
      check(block, c, {quiet, quiet});
      const uint32_t most = group == 8 ? 240 : 256, want = (quiet + most - 1) / most;
      if (block.n_rounds != want)
        fail_msg("%u quiet pages, %u heads: %u rounds, not %u", quiet, group, block.n_rounds, want);
    }
  }
}

// The least is that of the pages up to where a lane looks, not of all that the lane has of the round. Only a page that
// is not full comes before the first one that counts.
void rounds__know_the_least_when_they_come_to_it(void**) {
  Block block;
  Case c = {&kKinds[1], 200, 200, 8, 0, 1, {}, {}, {}, {}};
  for (uint32_t row = 0; row < c.n; ++row) {
    c.keys.push_back(key_of_score(-static_cast<float>(row)));
    c.words.push_back(row | (row == 0 ? 0 : kFull));
    c.order.push_back(row);
  }
  c.sums.assign(1, std::vector<float>(c.n, -30.0f));
  c.sums[0][0] = 0.0f;
  c.stop.eps = 0.5f;
  c.stop.microbatch = 1;
  check(block, c, {2, 2});
  const Range want = pages_enough(c);
  assert_int_equal(want.least, 2);
  assert_int_equal(want.most, 2);
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(rounds__attend_what_the_definition_says),
      cmocka_unit_test(rounds__are_few_where_it_is_known_how_many_pages_are_needed),
      cmocka_unit_test(rounds__know_the_least_when_they_come_to_it),
  };
  return cmocka_run_group_tests_name("cuda/stop_rounds", tests, nullptr, nullptr);
}
