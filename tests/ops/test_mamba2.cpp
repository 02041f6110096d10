// ops: mamba2. Mirrors lib/ops/mamba2_ref.cpp, lib/cpu/mamba2.cpp, cuda/recurrent/mamba2.cu.
#include "tests/ops/mamba2_case.h"

namespace weir::test {
namespace {

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  for (const MambaSpec& s : kMambaSpecs) {
    list.push_back({std::string("mamba2__") + s.name, [&s](const Backend& b) { return run_at_once(b, MambaCase(s)); },
                    kRecurrentNmse, kRecurrentReason, kDeviceNmse, kDeviceReason, kDeviceNmse});
  }
  return list;
}

// One tap with weight 1, so the convolution's output is its input where that is 40 or more, or 0.
// softplus(0) = log 2 = d. Head 0: a = -1, S is halved; head 1: a = -2, S is quartered. B = (50, 0, 0, 0) adds
// 50 d v to the first row. C = (0, 100, 0, 0): o = 100 * row 1 + skip v.
//   head 0: row 1 = (4, 2, 0, 0) / 2: o = (200, 100, 0, 0) + 2 (40, 0, 0, 0) = (280, 100, 0, 0), gates 40: x 40
//   head 1: row 1 = (4, 2, 0, 0) / 4: o = (100, 50, 0, 0) + 1 (0, 60, 0, 0)  = (100, 110, 0, 0), gates 50: x 50
// (11200, 4000, 0, 0, 5000, 5500, 0, 0): mean of squares 24586250, root 4958.452...
void golden(const Backend& backend) {
  MambaCase c({.name = "", .n_tok = 1, .n_groups = 1, .n_heads = 2, .key_dim = 4, .value_dim = 4, .n_taps = 1});
  c.conv.weight.assign(16, 1.0f);
  c.conv.bias.assign(16, 0.0f);
  c.x = {40, 40, 40, 40, 50, 50, 50, 50, /*v*/ 40, 0, 0, 0, 0, 60, 0, 0, /*B*/ 50, 0, 0, 0, /*C*/ 0, 100, 0, 0, 0, 0};
  c.a = {-1, -2};
  c.dt_bias = {0, 0};
  c.skips = {2, 1};
  c.norm = {1, 1, 1, 1, 2, 1, 1, 1};
  c.state.sums() = {1, 0, 0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  c.run(backend, 0, 1);
  const float root = 4958.45238f;
  const float want_y[] = {11200 / root, 4000 / root, 0, 0, 10000 / root, 5500 / root, 0, 0};
  for (size_t i = 0; i < 8; ++i) assert_float_equal(c.y[i], want_y[i], 1e-5f);
  const float added = 2000 * 0.693147181f;
  const float want[] = {0.5f + added, 0, 0, 0, 2,    1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.25f,
                        1.5f * added, 0, 0, 1, 0.5f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  for (size_t i = 0; i < 32; ++i) assert_float_equal(c.state.sums()[i], want[i], 2e-6f * (1.0f + std::fabs(want[i])));
}

void passes(const Backend& backend) {
  for (const char* name :
       {"prompt", "chunk_and_one", "one_group", "narrow_keys", "any_size", "one_tap", "eight_taps_prompt", "most_taps"})
    passes_do_not_matter(backend, MambaCase(mamba_spec(name)));
}

void copies(const Backend& backend) {
  for (const char* name : {"other_copy", "other_copy_token"}) {
    MambaSpec s = mamba_spec(name);
    const MambaCase second(s);
    s.current = 0;
    copies_are_alike(backend, MambaCase(s), second);
  }
}

// A head that is not finite: its sums alone, and the outputs of the group that its norm is taken over.
void nan_stays_in_its_group(const Backend& backend) {
  for (const char* name : {"one_token", "three_tokens", "prompt", "narrow_values"}) {
    const MambaSpec& s = mamba_spec(name);
    const MambaCase whole(s);
    const std::vector<Output> want = run_at_once(backend, whole);
    const size_t bad = s.n_heads - 2, n_sums = size_t{s.key_dim} * s.value_dim, group = s.n_heads / s.n_groups;
    for (int where = 0; where < 4; ++where) {
      MambaCase c(s);
      if (where == 0) c.x[c.inner() + bad * s.value_dim + s.value_dim - 1] = NAN;
      if (where == 1) c.x[c.width() - s.n_heads + bad] = NAN;
      if (where == 2) c.a[bad] = NAN;
      if (where == 3) c.state.sums()[bad * n_sums] = INFINITY;
      const std::vector<Output> got = run_at_once(backend, c);
      for (size_t h = 0; h < s.n_heads; ++h) {
        assert_true(same_part(got[2].values, want[2].values, s.n_heads * n_sums, h * n_sums, n_sums) == (h != bad));
        assert_true(same_part(got[0].values, want[0].values, c.inner(), h * s.value_dim, s.value_dim) ==
                    (h / group != bad / group));
      }
    }
  }
}

// NaN in B of a group reaches the heads of that group alone: heads lie in blocks.
void groups_serve_their_heads(const Backend& backend) {
  for (const char* name : {"one_token", "three_tokens", "prompt"}) {
    const MambaSpec& s = mamba_spec(name);
    for (uint32_t group = 0; group < s.n_groups; ++group) {
      MambaCase c(s);
      c.x[2 * c.inner() + group * s.key_dim] = NAN;
      const std::vector<Output> got = run_at_once(backend, c);
      for (uint32_t h = 0; h < s.n_heads; ++h)
        assert_true(std::isnan(got[0].values[h * s.value_dim]) == (h / (s.n_heads / s.n_groups) == group));
    }
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/mamba2", cases(),
                   {{"mamba2__golden", golden},
                    {"mamba2__passes_do_not_matter", passes},
                    {"mamba2__copies_are_alike", copies},
                    {"mamba2__nan_stays_in_its_group", nan_stays_in_its_group},
                    {"mamba2__groups_serve_their_heads", groups_serve_their_heads}});
}
