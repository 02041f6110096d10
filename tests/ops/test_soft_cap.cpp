// ops: soft_cap. Mirrors lib/ops/soft_cap_ref.cpp, lib/cpu/soft_cap.cpp.
#include "tests/ops/harness.h"

namespace weir::test {
namespace {

struct Spec {
  const char* name;
  uint32_t n;
  float scale;  // of x
  float cap;
};

constexpr Spec kSpecs[] = {
    {"one", 1, 1.0f, 30.0f},
    {"odd_length", 1037, 10.0f, 30.0f},
    {"vocabulary", 50257, 20.0f, 30.0f},
    {"below_the_cap", 384, 1e-3f, 30.0f},
    {"far_above_the_cap", 384, 1e6f, 30.0f},
    {"small_cap", 384, 1.0f, 0.125f},
};

std::vector<float> run(const Backend& backend, std::vector<float> x, float cap) {
  OpShapes shapes;
  shapes.n_threads = 3;
  Machine machine(backend, shapes);
  machine.check(backend.ops.soft_cap(machine.cx(), {x.data(), static_cast<uint32_t>(x.size()), cap}));
  return x;
}

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  for (const Spec& s : kSpecs) {
    list.push_back({std::string("soft_cap__") + s.name,
                    [&s](const Backend& b) -> std::vector<Output> {
                      return {{"x", run(b, Random(3).normals(s.n, s.scale), s.cap)}};
                    },
                    1e-13, "another tanh: a few units in the last digit"});
  }
  return list;
}

// tanh(0.5) = 0.4621172, tanh(-2) = -0.9640276.
void golden(const Backend& backend) {
  const std::vector<float> x = run(backend, {0.0f, 15.0f, -60.0f, 1e9f, INFINITY}, 30.0f);
  const float want[] = {0.0f, 13.8635147f, -28.9208274f, 30.0f, 30.0f};
  for (size_t i = 0; i < x.size(); ++i) assert_float_equal(x[i], want[i], 3e-6f);
}

// Greedy choices need it: larger stays larger, or becomes equal.
void keeps_the_order(const Backend& backend) {
  std::vector<float> x(4001);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) * 0.05f - 100.0f;
  const std::vector<float> y = run(backend, x, 30.0f);
  for (size_t i = 1; i < y.size(); ++i) assert_true(y[i] >= y[i - 1] && y[i] <= 30.0f && y[i - 1] >= -30.0f);
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/soft_cap", cases(),
                   {{"soft_cap__golden", golden}, {"soft_cap__keeps_the_order", keeps_the_order}});
}
