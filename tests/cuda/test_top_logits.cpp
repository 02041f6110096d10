// cuda: the best logits under a mask and the sums of parts (cuda/step/top_logits_parts.cuh), compiled for the host and
// run by blocks whose threads take turns (on_host/cuda/common/base.cuh), against a sort and lib/runtime/logprobs.h. No
// GPU is needed.
#include "cuda/step/top_logits_parts.cuh"

#include <numeric>
#include <string>
#include <vector>

#include "runtime/logprobs.h"
#include "tests/cmocka_cpp.h"
#include "tests/cuda/on_host/random.h"

namespace {

using namespace weir;
using namespace weir::cuda;
using namespace weir::test;

constexpr uint32_t kThreads = 64;

void run(const std::function<void()>& body) {
  static HostBlock block(kThreads);
  const std::string error = block.run(body);
  if (!error.empty()) fail_msg("%s", error.c_str());
}

// The launch of top_logits, block after block.
struct TopLogits {
  std::vector<int32_t> ids;
  std::vector<float> values;

  TopLogits(const std::vector<float>& logits, const uint32_t* mask, uint32_t n, uint32_t part_rows)
      : ids(n + 1, -7), values(n + 1, -7.0f) {
    static TopLogitsScratch scratch;
    const auto vocab_size = static_cast<uint32_t>(logits.size());
    const uint32_t n_parts = (vocab_size + part_rows - 1) / part_rows, each = std::min(n, part_rows);
    std::vector<uint2> candidates(size_t{n_parts} * each, make_uint2(0xABCDEF01u, 0x12345678u));
    for (uint32_t part = 0; part < n_parts; ++part) {
      const uint32_t first = part * part_rows, rows = std::min(part_rows, vocab_size - first);
      run([&] { list_part(logits.data(), mask, first, rows, each, &candidates[size_t{part} * each], scratch); });
    }
    const uint32_t n_candidates = (n_parts - 1) * each + std::min(n, vocab_size - (n_parts - 1) * part_rows);
    run([&] { merge_lists(candidates.data(), n_candidates, n, mask == nullptr, ids.data(), values.data(), scratch); });
  }
};

float logit_of(uint32_t kind) {
  const uint32_t odd = below(100);
  if (kind == 1) return static_cast<float>(below(7)) - 3.0f;
  if (kind == 2 && odd < 40) return odd % 2 == 0 ? NAN : -INFINITY;
  if (kind == 3 && odd < 5) return INFINITY;
  if (kind == 3) return odd < 50 ? 0.0f : -0.0f;
  return 10.0f * normal();
}

void check_top(uint32_t kind, uint32_t vocab_size, uint32_t n, uint32_t part_rows, uint32_t percent) {
  std::vector<float> logits(vocab_size);
  for (float& logit : logits) logit = logit_of(kind);
  std::vector<uint32_t> mask(mask_words(vocab_size), 0xFFFFFFFFu);
  std::vector<int32_t> order;
  const uint32_t hole = below(vocab_size);  // from here on some parts may have nothing
  for (uint32_t id = 0; id < vocab_size; ++id) {
    if (percent < 100 && (below(100) >= percent || (id >= hole && id < hole + part_rows)))
      mask[id / 32] &= ~(1u << id % 32);
    else
      order.push_back(static_cast<int32_t>(id));
  }
  const auto value = [&](int32_t id) {
    const float x = logits[static_cast<size_t>(id)];
    return std::isnan(x) ? -INFINITY : x;
  };
  std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) { return value(x) > value(y); });
  const TopLogits got(logits, percent > 100 ? nullptr : mask.data(), n, part_rows);
  for (uint32_t i = 0; i < n; ++i) {
    const int32_t id = i < order.size() ? order[i] : -1;
    const float want = id < 0 ? -INFINITY : value(id);
    if (got.ids[i] != id || got.values[i] != want)
      fail_msg("kind %u, the best %u of %u in parts of %u, %u %% allowed: number %u is %d (%g), not %d (%g)", kind, n,
               vocab_size, part_rows, percent, i, got.ids[i], double{got.values[i]}, id, double{want});
  }
  assert_true(got.ids[n] == -7 && got.values[n] == -7.0f);
}

// 101 %: without a mask.
void top_logits__the_best_that_the_mask_has(void**) {
  for (uint32_t kind = 0; kind < 4; ++kind) {
    for (const uint32_t vocab_size : {1u, 2u, 31u, 300u, 1000u}) {
      for (const uint32_t part_rows : {vocab_size, vocab_size / 3 + 1, vocab_size / 17 + 1}) {
        for (const uint32_t percent : {101u, 100u, 60u, 3u, 0u}) {
          for (const uint32_t n : {1u, 40u, 700u}) {
            if (n <= vocab_size) check_top(kind, vocab_size, n, part_rows, percent);
          }
        }
      }
    }
  }
}

// Parts with more rows than shared memory has keys for.
void top_logits__of_long_parts(void**) {
  for (const uint32_t percent : {101u, 70u, 1u}) {
    for (const uint32_t n : {1u, 500u}) check_top(percent == 70 ? 1 : 0, 2 * kTopSharedRows + 900, n, 7000, percent);
  }
}

void top_logits__sums_of_parts(void**) {
  for (const uint32_t n : {0u, 1u, 5u, 64u, 700u, 2374u}) {
    for (uint32_t kind = 0; kind < 5; ++kind) {
      std::vector<float> logits(n);
      for (float& logit : logits) logit = kind == 4 ? -INFINITY : logit_of(kind);
      const LogitPart want = logit_part(logits.data(), n);
      LogitPart got = {7.0f, 7.0f};
      float warps[2 * kMaxBlockWarps];
      run([&] {
        LogitPart part;
        if (sum_part(logits.data(), n, warps, part)) got = part;
      });
      if (got.best != want.best || !(std::fabs(got.sum - want.sum) <= 1e-6f * want.sum))
        fail_msg("kind %u, %u logits: %g, sum %.9g, not %g, %.9g", kind, n, double{got.best}, double{got.sum},
                 double{want.best}, double{want.sum});
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(top_logits__the_best_that_the_mask_has),
      cmocka_unit_test(top_logits__of_long_parts),
      cmocka_unit_test(top_logits__sums_of_parts),
  };
  return cmocka_run_group_tests_name("cuda/top_logits", tests, nullptr, nullptr);
}
