// vulkan: where a prompt's layers are submitted, and how many rows its chunks have.
#include "tests/cmocka_cpp.h"
#include "vulkan/pace.h"

namespace weir::vulkan {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;

// The number of layers of `n` that one submission has at most, if each takes `ns`.
uint32_t max_together(uint64_t ns, uint32_t n, Pace& pace) {
  uint32_t most = 0, together = 0;
  pace.begin();
  for (uint32_t layer = 0; layer < n; ++layer) {
    ++together;
    const bool due = pace.is_due();
    if (due) pace.took(together * ns, 512);
    most = std::max(most, together);
    if (due) together = 0;
  }
  return most;
}

void submissions_take_some_50_ms(void**) {
  Pace fast, slow, unknown;
  assert_true(unknown.is_due());
  assert_int_equal(max_together(2 * kMillisecond, 32, fast), 25);
  assert_int_equal(max_together(2 * kMillisecond, 32, fast), 25);
  assert_int_equal(max_together(kMillisecond / 10, 400, fast), 375);  // all that come after the first 25
  assert_int_equal(max_together(100 * kMillisecond, 32, slow), 1);
  assert_true(fast.max_rows() == UINT32_MAX && slow.max_rows() == UINT32_MAX);
}

// A chunk's layers do not count in the next one.
void chunks_begin_anew(void**) {
  Pace pace;
  assert_true(pace.is_due());
  pace.took(10 * kMillisecond, 512);
  assert_false(pace.is_due());
  assert_false(pace.is_due());
  pace.begin();
  for (int i = 0; i < 5; ++i) assert_int_equal(pace.is_due(), i == 4);
}

void slow_layers_halve_the_rows(void**) {
  Pace pace;
  const auto layer = [&](uint64_t ns, uint32_t n_rows) {
    pace.begin();
    assert_true(pace.is_due());
    pace.took(ns, n_rows);
  };
  layer(500 * kMillisecond, 512);
  assert_true(pace.max_rows() == UINT32_MAX);
  layer(501 * kMillisecond, 512);
  assert_int_equal(pace.max_rows(), 256);
  layer(600 * kMillisecond, 200);
  assert_int_equal(pace.max_rows(), 100);
  layer(600 * kMillisecond, 512);  // was enqueued before
  assert_int_equal(pace.max_rows(), 100);
  for (int i = 0; i < 5; ++i) layer(2000 * kMillisecond, pace.max_rows());
  assert_int_equal(pace.max_rows(), Pace::kMinRows);
  layer(kMillisecond, 64);
  assert_int_equal(pace.max_rows(), Pace::kMinRows);
}

}  // namespace
}  // namespace weir::vulkan

int main() {
  using namespace weir::vulkan;
  const CMUnitTest tests[] = {
      cmocka_unit_test(submissions_take_some_50_ms),
      cmocka_unit_test(chunks_begin_anew),
      cmocka_unit_test(slow_layers_halve_the_rows),
  };
  return cmocka_run_group_tests_name("vulkan/pace", tests, nullptr, nullptr);
}
