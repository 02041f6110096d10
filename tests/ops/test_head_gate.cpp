// ops: head_gate. Mirrors lib/ops/head_gate_ref.cpp, lib/cpu/head_gate.cpp, cuda/recurrent/head_gate.cu.
#include "tests/ops/harness.h"

namespace weir::test {
namespace {

struct Spec {
  const char* name;
  uint32_t n_tok, n_heads, head_dim;
  float scale = 1.0f;  // of the gates
};

constexpr Spec kSpecs[] = {
    {"one_token", 1, 16, 256},     {"one_head", 3, 1, 64},         {"narrow_heads", 5, 3, 24},
    {"odd_heads", 7, 5, 37},       {"one_element", 2, 3, 1},       {"many_tokens", 100, 14, 128},
    {"large_gates", 3, 4, 64, 60}, {"huge_gates", 3, 4, 64, 1e6f},
};

std::vector<float> run(const Backend& backend, const std::vector<float>& qg, std::vector<float> y, const Spec& s,
                       bool apply) {
  OpShapes shapes;
  shapes.n_threads = 3;
  shapes.max_tok = s.n_tok;
  Machine machine(backend, shapes);
  machine.check(backend.ops.head_gate(machine.cx(), {y.data(), qg.data(), s.n_tok, s.n_heads, s.head_dim, apply}));
  return y;
}

std::vector<Output> run_spec(const Backend& backend, const Spec& s, bool apply) {
  Random random(3);
  const size_t n = size_t{s.n_tok} * s.n_heads * s.head_dim;
  const std::vector<float> qg = random.normals(2 * n, s.scale);
  return {{"y", run(backend, qg, apply ? random.normals(n) : std::vector<float>(n, NAN), s, apply)}};
}

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  for (const Spec& s : kSpecs) {
    list.push_back({std::string("head_gate__split_") + s.name, [&s](const Backend& b) { return run_spec(b, s, false); },
                    0.0, "a copy", 0.0, "a copy"});
    list.push_back({std::string("head_gate__apply_") + s.name, [&s](const Backend& b) { return run_spec(b, s, true); },
                    1e-13, "another exp: a few units in the last digit"});
  }
  return list;
}

// sigmoid(0) = 1/2; a gate of log 3 is 3/4.
void golden(const Backend& backend) {
  const float log3 = 1.09861229f;
  const Spec s = {"", 1, 2, 4};
  const std::vector<float> qg = {1, 2, 3, 4, 0, log3, -log3, -200, 5, 6, 7, 8, 200, 0, INFINITY, -INFINITY};
  const std::vector<float> q = run(backend, qg, std::vector<float>(8, NAN), s, false);
  for (size_t i = 0; i < 8; ++i) assert_float_equal(q[i], static_cast<float>(i + 1), 0.0f);
  const std::vector<float> y = run(backend, qg, std::vector<float>(8, 8.0f), s, true);
  const float want[] = {4, 6, 2, 0, 8, 4, 8, 0};
  for (size_t i = 0; i < 8; ++i) assert_float_equal(y[i], want[i], 2e-6f);
}

// An output or a gate that is not a number stays one, and stays alone.
void nan_stays_alone(const Backend& backend) {
  const Spec s = {"", 2, 3, 64};
  const size_t n = 2 * 3 * 64;
  std::vector<float> qg = Random(4).normals(2 * n), in = Random(5).normals(n);
  const std::vector<float> want = run(backend, qg, in, s, true);
  in[70] = NAN;
  qg[5 * 128 + 64 + 9] = NAN;
  const std::vector<float> got = run(backend, qg, in, s, true);
  for (size_t i = 0; i < n; ++i) assert_true(i == 70 || i == 5 * 64 + 9 ? std::isnan(got[i]) : got[i] == want[i]);
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/head_gate", cases(),
                   {{"head_gate__golden", golden}, {"head_gate__nan_stays_alone", nan_stays_alone}});
}
