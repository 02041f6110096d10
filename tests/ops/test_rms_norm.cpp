// ops: rms_norm. Mirrors lib/ops/rms_norm_ref.cpp, lib/cpu/rms_norm.cpp.
#include "tests/ops/harness.h"

namespace weir::test {
namespace {

struct Spec {
  const char* name;
  uint32_t n_tok, n;
  float scale;  // of x
  bool in_place;
  bool accumulate = false;
  bool gpu = true;  // false: the GPU sums squares in f32, whose range these exceed
};

constexpr Spec kSpecs[] = {
    {"one_row", 1, 384, 1.0f, false},
    {"in_place", 3, 384, 1.0f, true},
    {"one_element", 2, 1, 1.0f, false},
    {"odd_width", 5, 1037, 1.0f, false},
    {"many_rows", 100, 512, 1.0f, true},
    {"added", 3, 384, 1.0f, false, true},
    {"added_odd_width", 40, 1037, 1.0f, false, true},
    {"tiny_values", 2, 256, 1e-20f, false},               // eps dominates
    {"huge_values", 2, 256, 1e19f, false, false, false},  // squares exceed the range of f32
};

std::vector<Output> run_spec(const Backend& backend, const Spec& s) {
  Random random(11);
  std::vector<float> x = random.normals(size_t{s.n_tok} * s.n, s.scale), y(x.size(), NAN);
  if (s.accumulate) y = Random(12).normals(x.size());
  const std::vector<float> weight = random.normals(s.n);
  OpShapes shapes;
  shapes.n_threads = 3;
  shapes.max_tok = s.n_tok;
  shapes.max_cols = s.n;
  Machine machine(backend, shapes);
  machine.check(backend.ops.rms_norm(
      machine.cx(), {s.in_place ? x.data() : y.data(), x.data(), weight.data(), s.n_tok, s.n, 1e-6f, s.accumulate}));
  return {{"y", s.in_place ? x : y}};
}

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  for (const Spec& s : kSpecs) {
    list.push_back({std::string("rms_norm__") + s.name, [&s](const Backend& b) { return run_spec(b, s); }, 0.0,
                    "squares are summed in f64, so the f32 result has no room to differ", s.gpu ? kContracted : 1.0,
                    s.gpu ? kContractedReason : "squares beyond the range of f32 give 0"});
  }
  return list;
}

// Mean of squares 12.5, so 3 and 4 become 3 / sqrt(12.5) and 4 / sqrt(12.5); the weights double the second.
void golden(const Backend& backend) {
  const float x[2] = {3.0f, 4.0f}, weight[2] = {1.0f, 2.0f};
  float y[2] = {};
  OpShapes shapes;
  Machine machine(backend, shapes);
  machine.check(backend.ops.rms_norm(machine.cx(), {y, x, weight, 1, 2, 0.0f}));
  assert_float_equal(y[0], 0.848528137f, 1e-6f);
  assert_float_equal(y[1], 2.262741700f, 1e-6f);
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/rms_norm", cases(), {{"rms_norm__three_and_four_golden", golden}});
}
