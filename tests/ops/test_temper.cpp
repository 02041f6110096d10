// ops: temper. Mirrors lib/ops/temper_ref.cpp, lib/cpu/temper.cpp, cuda/step/temper.cu.
#include "ops/temper.h"

#include "tests/ops/harness.h"

namespace weir::test {
namespace {

struct Spec {
  const char* name;
  uint32_t n_tok, width, pos;
  Temperature temperature;
};

constexpr Spec kSpecs[] = {
    {"one_token", 1, 4096, 100000, {0.1f, 8192}},  {"across_a_step", 9, 96, 12, {0.3f, 16}},
    {"odd_width", 5, 37, 1000, {0.5f, 7}},         {"many_tokens", 130, 128, 16300, {0.1f, 16384}},
    {"far", 3, 64, (1u << 30) - 2, {0.25f, 4096}}, {"every_token", 20, 40, 0, {1.0f, 1}},
};

std::vector<float> run(const Backend& backend, std::vector<float> q, const Spec& s, const uint32_t* pos_at = nullptr) {
  OpShapes shapes;
  shapes.n_threads = 3;
  shapes.max_tok = s.n_tok;
  Machine machine(backend, shapes);
  const uint32_t pos = pos_at != nullptr ? 0 : s.pos;
  machine.check(backend.ops.temper(machine.cx(), {q.data(), s.n_tok, s.width, s.temperature, pos, pos_at}));
  return q;
}

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  for (const Spec& s : kSpecs) {
    list.push_back({std::string("temper__") + s.name,
                    [&s](const Backend& b) {
                      const std::vector<float> q = Random(3).normals(size_t{s.n_tok} * s.width);
                      return std::vector<Output>{{"q", run(b, q, s)}, {"q of a place", run(b, q, s, &s.pos)}};
                    },
                    1e-13, "another logarithm: a few units in the last digit"});
  }
  return list;
}

// 1 + log(1 + n) / log 2 is 1, 2, then 2.585 for n of 0, 1, 2; positions before the first step stay as they are, to the
// bit.
void golden(const Backend& backend) {
  const float per_doubling = 1.44269504f;
  const Spec s = {"", 6, 2, 2, {per_doubling, 3}};
  const std::vector<float> q = run(backend, std::vector<float>(12, 10.0f), s);
  const float want[] = {10.0f, 20.0f, 20.0f, 20.0f, 25.8496250f, 25.8496250f};
  for (size_t i = 0; i < 12; ++i) assert_float_equal(q[i], want[i / 2], i < 2 ? 0.0f : 1e-5f);
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/temper", cases(), {{"temper__golden", golden}});
}
