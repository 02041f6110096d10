// ops: attn_progressive. Mirrors lib/ops/attn_progressive_ref.cpp, lib/cpu/attn_progressive.cpp; on devices it is a
// step's kernel attn_stop (tests/vulkan/test_attn_stop.cpp, tests/device/test_stop.cpp). Which pages are taken equals
// the reference, by hand-made sums, and does not depend on the microbatch but for its rounding up; the result is
// attention over these pages; with bounds the captured share is never below eps.
#include "tests/ops/progressive_case.h"

#include <string>
#include <tuple>

namespace weir::test {
namespace {

constexpr double kMaxNmse = 1e-11;  // f32 sums in another order and another exp

void check_against_reference(const ProgressiveSpec& s, uint64_t seed, const std::string& name) {
  ProgressiveCase want(s, seed);
  want.run(reference_backend());
  for (int64_t target : targets()) {
    const TargetScope scope(target);
    ProgressiveCase got(s, seed);
    got.run(cpu_backend());
    for (uint32_t head = 0; head < 2; ++head) {
      if (got.list(head) != want.list(head)) {
        fail_msg("%s: %zu pages of KV head %u, the reference has %zu", name.c_str(), got.list(head).size(), head,
                 want.list(head).size());
      }
      for (uint32_t i = 0; i < s.attn.n_heads / 2; ++i) {
        const size_t at = (head * (s.attn.n_heads / 2) + i) * size_t{got.capacity};
        assert_true(
            close_enough(name.c_str(), &got.attn.mass[at], &want.attn.mass[at], got.list(head).size(), kMaxNmse));
      }
    }
    assert_true(close_enough(name.c_str(), got.attn.out.data(), want.attn.out.data(), want.attn.out.size(), kMaxNmse));
  }
}

void equals_the_reference(void**) {
  for (uint32_t d : kHeadDims) {
    for (uint32_t group : kGroups) {
      if (!is_tested_together(d, group)) continue;
      check_against_reference(progressive_spec(d, group, 19), 7,
                              "d" + std::to_string(d) + "_g" + std::to_string(group));
    }
  }
  for (uint32_t microbatch : {1u, 3u, 8u, 32u}) {
    for (float eps : {0.0f, 0.5f, 0.9f, 0.98f, 1.0f}) {
      ProgressiveSpec s = progressive_spec(64, 3, 41);
      s.eps = eps;
      s.microbatch = microbatch;
      const std::string name = "mb" + std::to_string(microbatch) + "_eps" + std::to_string(eps);
      check_against_reference(s, 8, name);
      s.kept = true;
      s.n_sink_pages = 2;
      s.attn.sinks = true;
      s.attn.soft_cap = 2.0f;
      check_against_reference(s, 9, name + "_bent");
      s.bound = true;
      check_against_reference(s, 10, name + "_bound");
      s.bound = false;
      s.quiet_pages = 1 + static_cast<uint32_t>(10.0f * eps);
      s.quiet_share = 0.05f;
      check_against_reference(s, 15, name + "_quiet");
      s.quiet_pages = 0;
      s.every = 4;
      check_against_reference(s, 11, name + "_capped");
    }
  }
  check_against_reference(progressive_spec(20, 3, 9), 12, "d20");
  check_against_reference(progressive_spec(64, 1, 1), 13, "one_page");
  ProgressiveSpec large = progressive_spec(64, 4, 30);
  large.attn.kv.key_scale = 60.0f;
  check_against_reference(large, 14, "large_logits");
}

// Pages whose sums of exponentials are powers of two, in shuffled rows; the last row has the most.
constexpr uint32_t kPowers = 5;
void set_powers(ProgressiveCase& c, const std::vector<int>& power) {
  for (uint32_t row = 0; row < power.size(); ++row) {
    for (uint32_t j = 0; j < c.attn.kv.len(0, row); ++j) {
      for (uint32_t e = 0; e < c.spec.attn.kv.head_dim; ++e)
        c.attn.kv.key(0, row, j)[e] = f32_to_bf16(e == 0 ? static_cast<float>(power[row]) : 0.0f);
    }
    c.rank[row] = static_cast<float>(power[row]);
  }
  std::fill(c.attn.q.begin(), c.attn.q.end(), 0.0f);
  c.attn.q[0] = std::log(2.0f) / c.attn.scale;
}

ProgressiveSpec one_head(uint32_t n_pages, uint32_t last_len, float eps, uint32_t microbatch) {
  ProgressiveSpec s;
  s.attn.kv = {.n_kv_heads = 1, .head_dim = 8, .n_pages = n_pages, .last_len = last_len};
  s.eps = eps;
  s.microbatch = microbatch;
  return s;
}

uint32_t n_taken(const Backend& backend, const ProgressiveSpec& s, const std::vector<int>& power) {
  ProgressiveCase c(s, 3);
  set_powers(c, power);
  c.run(backend);
  return c.n_select[0];
}

// Sums 8, 4, 2, 1, 1: the shares are 0.5, 7/9, 15/16 and 1 after 2, 3, 4 and 5 pages.
void stops_by_hand(void**) {
  const std::vector<int> power = {0, 2, 1, 0, 3};
  for (const Backend* backend : {&reference_backend(), &cpu_backend()}) {
    const std::pair<float, uint32_t> rows[] = {{0.0f, 2}, {0.49f, 2}, {0.51f, 3}, {0.77f, 3}, {0.78f, 4},
                                               {0.8f, 4}, {0.93f, 4}, {0.94f, 5}, {0.95f, 5}, {1.0f, 5}};
    for (const auto& [eps, pages] : rows) {
      assert_int_equal(n_taken(*backend, one_head(kPowers, 16, eps, 1), power), pages);
      for (uint32_t mb : {2u, 3u, 4u, 32u})
        assert_int_equal(n_taken(*backend, one_head(kPowers, 16, eps, mb), power),
                         std::min(kPowers, (pages + mb - 1) / mb * mb));
    }
    // 20 pages alike, of which the open one has two tokens: its small sum is no estimate of the others.
    const std::vector<int> alike(20, 0);
    assert_int_equal(n_taken(*backend, one_head(20, 2, 0.91f, 1), alike), 19);
    assert_int_equal(n_taken(*backend, one_head(20, 16, 0.91f, 1), alike), 19);
    // A page that is always taken is none either: 2^10, 2^4, then 17 alike.
    std::vector<int> forced(20, 0);
    forced[0] = 4;
    ProgressiveSpec s = one_head(20, 16, 0.91f, 1);
    s.n_sink_pages = 1;
    assert_int_equal(n_taken(*backend, s, forced), 17);
  }
}

// Sums 32, 16, 4, 2, 1, 1 and 8, seen from the last row on: the shares of what has been seen are 1, 32/40, 16/56, 4/60,
// 2/62, 1/63, 1/64.
void quiet_pages_by_hand(void**) {
  const std::vector<int> power = {0, 5, 2, 0, 4, 1, 3};
  for (const Backend* backend : {&reference_backend(), &cpu_backend()}) {
    const std::tuple<uint32_t, float, uint32_t> rows[] = {{1, 0.5f, 3}, {1, 0.2f, 4}, {2, 0.5f, 4},    {2, 0.2f, 5},
                                                          {3, 0.1f, 6}, {4, 0.1f, 7}, {1, 0.0f, 7},    {1, 1.0f, 1},
                                                          {7, 1.0f, 7}, {8, 1.0f, 7}, {1, 0.0159f, 6}, {1, 0.0158f, 7}};
    for (const auto& [quiet, share, pages] : rows) {
      ProgressiveSpec s = one_head(7, 16, 0.0f, 1);
      s.quiet_pages = quiet;
      s.quiet_share = share;
      assert_int_equal(n_taken(*backend, s, power), pages);
      s.microbatch = 4;
      assert_int_equal(n_taken(*backend, s, power), std::min(7u, (pages + 3) / 4 * 4));
    }
  }
}

// What is not listed is left all the same, and the cap ends it.
void unlisted_pages_are_left(void**) {
  for (const Backend* backend : {&reference_backend(), &cpu_backend()}) {
    ProgressiveSpec s = one_head(20, 16, 0.5f, 1);
    s.every = 4;  // rows 0, 4, 8, 12, 16, 19
    assert_int_equal(n_taken(*backend, s, std::vector<int>(20, 0)), 6);
    s.every = 1;
    assert_int_equal(n_taken(*backend, s, std::vector<int>(20, 0)), 11);
  }
}

// The pages taken with microbatches of m are those taken one by one, rounded up; more eps takes more.
void microbatches_and_eps(void**) {
  bool stopped = false;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    std::vector<uint32_t> before[2];
    for (float eps : {0.0f, 0.3f, 0.7f, 0.9f, 0.99f}) {
      for (bool bound : {false, true}) {
        ProgressiveSpec s = progressive_spec(64, 1 + static_cast<uint32_t>(seed % 4), 45);
        s.eps = eps;
        s.microbatch = 1;
        s.bound = bound;
        s.kept = seed % 2 == 0;
        ProgressiveCase one(s, seed);
        one.run(cpu_backend());
        stopped |= one.n_select[0] < 45;
        for (uint32_t mb : {2u, 5u, 8u, 32u}) {
          s.microbatch = mb;
          ProgressiveCase many(s, seed);
          many.run(cpu_backend());
          for (uint32_t head = 0; head < 2; ++head) {
            const std::vector<uint32_t> small = one.list(head), large = many.list(head);
            assert_int_equal(large.size(), std::min<size_t>(45, (small.size() + mb - 1) / mb * mb));
            assert_true(std::includes(large.begin(), large.end(), small.begin(), small.end()));
          }
        }
        if (bound) continue;
        for (uint32_t head = 0; head < 2; ++head) {
          const std::vector<uint32_t> now = one.list(head);
          assert_true(std::includes(now.begin(), now.end(), before[head].begin(), before[head].end()));
          before[head] = now;
        }
      }
    }
  }
  assert_true(stopped);
}

void threads_change_no_bit(void**) {
  for (uint32_t n_threads : {2u, 3u, 8u}) {
    ProgressiveSpec s = progressive_spec(64, 3, 120);
    s.attn.n_threads = 1;
    ProgressiveCase one(s, 5);
    one.run(cpu_backend());
    s.attn.n_threads = n_threads;
    ProgressiveCase many(s, 5);
    many.run(cpu_backend());
    assert_true(one.n_select == many.n_select);
    assert_memory_equal(one.attn.out.data(), many.attn.out.data(), one.attn.out.size() * sizeof(float));
  }
}

// Keys of a page are near each other, so that digests say something. By bounds no head captures less than eps, and it
// stops before the end; by the estimate some heads do.
void bounds_guarantee_the_share(void**) {
  uint32_t n_early = 0, n_below = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    for (float eps : {0.5f, 0.9f, 0.98f}) {
      for (bool bound : {true, false}) {
        ProgressiveSpec s = progressive_spec(64, 2, 40);
        s.eps = eps;
        s.microbatch = 1 + static_cast<uint32_t>(seed % 5);
        s.bound = bound;
        s.attn.soft_cap = seed % 3 == 0 ? 20.0f : 0.0f;
        ProgressiveCase c(s, seed);
        for (uint32_t head = 0; head < 2; ++head) {
          for (uint32_t row = 0; row < 40; ++row) {
            for (uint32_t j = 1; j < c.attn.kv.len(head, row); ++j) {
              for (uint32_t e = 0; e < 64; ++e) {
                const float middle = bf16_to_f32(c.attn.kv.key(head, row, 0)[e]);
                uint16_t& key = c.attn.kv.key(head, row, j)[e];
                key = f32_to_bf16(middle + 0.05f * bf16_to_f32(key));
              }
            }
          }
        }
        for (float& x : c.attn.q) x *= 4.0f;
        c.run(cpu_backend());
        for (uint32_t head = 0; head < 4; ++head) {
          const double share = c.captured(head);
          if (bound) {
            if (share < double{eps} - 1e-5) fail_msg("seed %d: %g of %g", static_cast<int>(seed), share, double{eps});
            n_early += c.n_select[head / 2] < 40 ? 1 : 0;
          } else {
            n_below += share < double{eps} ? 1 : 0;
          }
        }
      }
    }
  }
  assert_true(n_early > 100);
  assert_true(n_below > 0);
}

// A head whose sum is not a number is never done.
void nan_is_not_enough(void**) {
  ProgressiveSpec s = progressive_spec(64, 2, 12);
  s.eps = 0.1f;
  s.microbatch = 1;
  ProgressiveCase c(s, 4);
  c.attn.q[3] = NAN;
  c.run(cpu_backend());
  assert_int_equal(c.n_select[0], 12);
  assert_true(std::isnan(c.attn.out[0]));
  assert_true(c.n_select[1] < 12);
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  const CMUnitTest tests[] = {
      {"attn_progressive__equals_the_reference", equals_the_reference, nullptr, nullptr, nullptr},
      {"attn_progressive__stops_by_hand", stops_by_hand, nullptr, nullptr, nullptr},
      {"attn_progressive__quiet_pages_by_hand", quiet_pages_by_hand, nullptr, nullptr, nullptr},
      {"attn_progressive__unlisted_pages_are_left", unlisted_pages_are_left, nullptr, nullptr, nullptr},
      {"attn_progressive__microbatches_and_eps", microbatches_and_eps, nullptr, nullptr, nullptr},
      {"attn_progressive__threads_change_no_bit", threads_change_no_bit, nullptr, nullptr, nullptr},
      {"attn_progressive__bounds_guarantee_the_share", bounds_guarantee_the_share, nullptr, nullptr, nullptr},
      {"attn_progressive__nan_is_not_enough", nan_is_not_enough, nullptr, nullptr, nullptr},
  };
  return cmocka_run_group_tests_name("ops/attn_progressive", tests, nullptr, nullptr);
}
