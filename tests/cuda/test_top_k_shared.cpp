// cuda: top-k page selection in shared memory (cuda/common/top_k_shared.cuh), compiled for the host and run by a block
// whose threads take turns (on_host/cuda/common/base.cuh), against a sort. No GPU is needed.
#include "cuda/common/top_k_shared.cuh"

#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/cmocka_cpp.h"
#include "tests/cuda/on_host/random.h"

namespace {

using namespace weir::cuda;
using namespace weir::test;

// Kinds of scores: those that policies have, and degenerate ones. `a` is a random parameter of the case, the same for
// all rows.
struct Kind {
  const char* name;
  float (*score)(float a);
};
const Kind kKinds[] = {
    {"normal", [](float) { return normal(); }},
    {"all equal", [](float a) { return a; }},
    {"far from zero", [](float a) { return 1000.0f * a + normal(); }},
    {"some hidden", [](float) { return below(4) == 0 ? -INFINITY : normal(); }},
    {"some not numbers", [](float) { return below(4) == 0 ? NAN : normal(); }},
    {"infinite ones", [](float) { return below(50) == 0 ? INFINITY : normal(); }},
    {"any bits", [](float) { return __uint_as_float(random_bits()); }},
    {"subnormal", [](float) { return __uint_as_float(random_bits() & 0x807FFFFFu); }},
    {"few values", [](float) { return static_cast<float>(below(5)) - 2.0f; }},
    {"all negative", [](float) { return -0.01f - std::fabs(normal()); }},
    {"outliers", [](float) { return below(50) == 0 ? 1e6f * normal() : 1e-3f * normal(); }},
    {"one above", [](float) { return below(200) == 0 ? 1e-3f : normal() - 5.0f; }},
    {"any scale", [](float) { return std::ldexp(normal(), static_cast<int>(below(200)) - 100); }},
    {"neighbours", [](float) { return __uint_as_float(0x3F800000u + below(300)); }},
    {"ends of bins", [](float) { return __uint_as_float(0x3F800000u + below(4) * 0x40000u - below(2)); }},
    {"zeros", [](float) { return below(2) == 0 ? 0.0f : -0.0f; }},
    {"largest", [](float) { return below(2) == 0 ? 0x1.fffffep127f : -0x1.fffffcp127f; }},
};

struct Case {
  const Kind* kind;
  uint32_t n, n_forced, budget;
};

template <uint32_t kThreads>
class Chooser {
 public:
  // The selected rows in list order, or why there are none.
  std::string choose(const std::vector<uint32_t>& keys, uint32_t budget, std::vector<uint32_t>& chosen) {
    const auto n = static_cast<uint32_t>(keys.size());
    uint32_t n_forced = 0, high = 0;
    for (const uint32_t key : keys) {
      n_forced += key == kKeyAlways ? 1 : 0;
      if (key != kKeyAlways) high = std::max(high, key);
    }
    std::vector<uint4> storage((n + 3) / 4, make_uint4(0, 0, 0, 0));
    std::memcpy(storage.data(), keys.data(), n * sizeof(uint32_t));
    const auto* shared = reinterpret_cast<const uint32_t*>(storage.data());
    const uint32_t n_others = n - n_forced, n_best = std::min(n_others, budget - std::min(budget, n_forced));
    std::vector<uint32_t> n_taken(n, 0);
    chosen.assign(n_forced + n_best, 0xFFFFFFFFu);
    bool outside = false;
    const std::string error = block_.run([&] {
      scratch_.clear();
      __syncthreads();
      Threshold threshold = {kKeyNever, 0};
      if (n_best == 0) {
        threshold = {kKeyAlways - 1, 0};
      } else if (n_best < n_others) {
        threshold = find_shared_threshold(shared, n, n_best, n_forced, high, scratch_);
      }
      take_shared_rows(shared, n, threshold, scratch_, [&](uint32_t row, uint32_t place) {
        outside = outside || row >= n || place >= chosen.size();
        if (!outside) chosen[place] = row, ++n_taken[row];
      });
    });
    if (!error.empty()) return error;
    if (outside) return "a row or list index out of range";
    if (std::any_of(n_taken.begin(), n_taken.end(), [](uint32_t n_times) { return n_times > 1; })) return "a row twice";
    return "";
  }

 private:
  HostBlock block_{kThreads};
  SharedKeysScratch<kThreads> scratch_ = {};
};

std::vector<uint32_t> keys_of(const Case& c) {
  const float a = normal();
  std::vector<uint32_t> keys(c.n);
  for (uint32_t& key : keys) key = key_of_score(c.kind->score(a));
  for (uint32_t i = 0; i < c.n_forced; ++i) keys[below(c.n)] = kKeyAlways;
  return keys;
}

std::vector<uint32_t> sorted_choice(const std::vector<uint32_t>& keys, uint32_t budget) {
  std::vector<uint32_t> rows(keys.size());
  std::iota(rows.begin(), rows.end(), 0u);
  std::stable_sort(rows.begin(), rows.end(), [&](uint32_t x, uint32_t y) { return keys[x] > keys[y]; });
  const auto n_forced = static_cast<size_t>(std::count(keys.begin(), keys.end(), kKeyAlways));
  rows.resize(std::min(keys.size(), std::max<size_t>(n_forced, budget)));
  std::sort(rows.begin(), rows.end());
  return rows;
}

template <uint32_t kThreads>
void check(Chooser<kThreads>& chooser, const Case& c) {
  const std::vector<uint32_t> keys = keys_of(c);
  std::vector<uint32_t> got;
  const std::string error = chooser.choose(keys, c.budget, got);
  if (!error.empty() || got != sorted_choice(keys, c.budget))
    fail_msg("%u threads, scores %s, %u of %u rows, %u forced: %s", kThreads, c.kind->name, c.budget, c.n, c.n_forced,
             error.empty() ? "other rows than a sort" : error.c_str());
}

template <uint32_t kThreads>
void check_all(const std::vector<uint32_t>& lengths) {
  static Chooser<kThreads> chooser;
  for (const Kind& kind : kKinds) {
    for (const uint32_t n : lengths) {
      for (const uint32_t budget : {1u, n / 16 + 1, n / 2 + 1, n - 1, n + 5})
        check(chooser, {&kind, n, below(2) == 0 ? 0 : below(n / 8 + 2), budget});
    }
  }
}

void top_k_shared__as_a_sort(void**) { check_all<64>({1, 2, 5, 64, 127, 256, 257, 700}); }

// With as many threads as the kernel has, and one or several reads of keys per thread.
void top_k_shared__by_a_whole_block(void**) { check_all<512>({258, 2200}); }

// The host block that the tests above rely on detects what would hang a GPU.
void top_k_shared__blocks_on_the_host_see_mistakes(void**) {
  HostBlock block(64);
  std::string error = block.run([] {
    if (threadIdx.x % kWarp < 7) (void)__shfl_sync(kAllLanes, 1, 0);
    (void)__all_sync(kAllLanes, true);
  });
  assert_non_null(strstr(error.c_str(), "lanes of a warp are in"));
  error = block.run([] {
    if (threadIdx.x != 3) (void)__reduce_add_sync(kAllLanes, 1);
  });
  assert_non_null(strstr(error.c_str(), "nobody can go on"));
  error = block.run([] {
    if (threadIdx.x < kWarp) __syncthreads();
  });
  assert_non_null(strstr(error.c_str(), "nobody can go on"));
  uint32_t sum = 0;
  error = block.run([&] {
    const uint32_t of_warp = __reduce_add_sync(kAllLanes, threadIdx.x);
    __syncthreads();
    if (threadIdx.x % kWarp == 0) sum += of_warp;
  });
  assert_string_equal(error.c_str(), "");
  assert_int_equal(sum, 64 * 63 / 2);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(top_k_shared__blocks_on_the_host_see_mistakes),
      cmocka_unit_test(top_k_shared__as_a_sort),
      cmocka_unit_test(top_k_shared__by_a_whole_block),
  };
  return cmocka_run_group_tests_name("cuda_top_k_shared", tests, nullptr, nullptr);
}
