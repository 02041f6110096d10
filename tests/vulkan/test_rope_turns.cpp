// vulkan: angles in parts of 2^64 of a turn.
#include "vulkan/rope_turns.h"

#include <cstdlib>
#include <numbers>

#include "tests/cmocka_cpp.h"

namespace weir::vulkan {
namespace {

void turns__are_exact(void**) {
  // In 2^64 parts, computed with 70 digits.
  constexpr struct {
    double radians;
    uint64_t turns;
  } kKnown[] = {{0.0, 0},
                {1.0, 2935890503282001226u},
                {-1.0, 15510853570427550390u},
                {7.0, 2104489449264456969u},
                {-100.0, 1558854851152703206u},
                {1e-8, 29358905033u},
                {0x1p-60, 3},
                {0.5, 1467945251641000613u},
                {std::numbers::pi, 9223372036854775448u},
                {1e4, 10135211548115643906u}};
  for (const auto& known : kKnown) {
    uint64_t both[2];
    const double signs[] = {known.radians, -known.radians};
    turns_of(signs, both);
    const auto off = static_cast<int64_t>(both[0] - known.turns);
    if (std::abs(off) > 1) fail_msg("%.17g radians: off by %lld", known.radians, static_cast<long long>(off));
    assert_int_equal(both[1], uint64_t{0} - both[0]);
  }
}

}  // namespace
}  // namespace weir::vulkan

int main() {
  using namespace weir::vulkan;
  const CMUnitTest tests[] = {
      cmocka_unit_test(turns__are_exact),
  };
  return cmocka_run_group_tests_name("vulkan_rope_turns", tests, nullptr, nullptr);
}
