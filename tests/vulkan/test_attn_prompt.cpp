// vulkan: attention of prompts, attn_prefill, against a dense computation in f64: by cooperative matrices where the
// device has them, otherwise in f32.
#include <cstring>
#include <vector>

#include "tests/cmocka_cpp.h"
#include "tests/ops/metrics.h"
#include "tests/vulkan/attn_arrays.h"
#include "vulkan/steps.h"

namespace weir::vulkan {
namespace {

using test::AttnCase;
using test::AttnSpec;
using test::close_enough;
using test::DeviceArrays;

void attend(AttnCase& c, const AttnPagedArgs& a) {
  DeviceArrays m;
  if (!attn_prefill(test::on_device(m, c, a)).ok()) fail_msg("%s", last_error_text());
  m.finish();
}

AttnSpec spec_of(uint32_t head_dim, uint32_t group, uint32_t n_tok) {
  AttnSpec s;
  s.kv = {.n_kv_heads = 2, .head_dim = head_dim, .n_pages = 40, .last_len = 5};
  s.n_heads = 2 * group;
  s.n_tok = n_tok;
  s.lse = true;
  return s;
}

// With matrices queries, keys, values and weights have the 11 bits of f16: 1.1e-7 in a simulation, and 2.3e-6 for
// logits in the hundreds. A log-sum-exp averages the errors of its logits: 4.4e-10 over 17 tokens or more, but 4.4e-8
// where each row sees one.
void check(const char* what, const AttnSpec& s, uint64_t seed) {
  const bool in_f16 = test::open_context().device.matrices.are_there(), is_large = s.kv.key_scale > 1.0f;
  const double bound = in_f16     ? (is_large ? 2e-5 : 3e-7)
                       : is_large ? 1e-10
                                  : 1e-11,
               lse_bound = in_f16 && s.window == 1 ? bound / 2 : bound / 10;
  AttnCase c(s, seed);
  attend(c, c.args());
  std::vector<float> lse;
  const std::vector<float> want = c.dense(&lse);
  if (!close_enough(what, c.out.data(), want.data(), want.size(), bound) ||
      !close_enough(what, c.lse.data(), lse.data(), lse.size(), lse_bound))
    fail_msg("%s: head_dim %u, %u heads, %u rows", what, s.kv.head_dim, s.n_heads, s.n_tok);
}

void attn_prefill__of_every_shape(void**) {
  uint64_t seed = 1;
  for (const uint32_t d : {16u, 48u, 64u, 80u, 96u, 128u, 192u}) {
    for (const uint32_t group : {1u, 3u, 4u, 8u}) {
      for (const uint32_t n_tok : {33u, 65u}) check("plain", spec_of(d, group, n_tok), seed++);
    }
  }
}

void attn_prefill__of_every_kind(void**) {
  for (const uint32_t n_tok : {20u, 130u}) {
    AttnSpec s = spec_of(64, 3, n_tok);
    s.sinks = true;
    check("sinks", s, 2);
    s.soft_cap = 1.5f;
    check("soft cap", s, 3);
    s = spec_of(128, 4, n_tok);
    s.kv.gaps = true;
    check("evicted pages", s, 4);
    for (const uint32_t window : {1u, 17u, 300u, 5000u}) {
      s.window = window;
      s.n_sink = window == 17 ? 20 : 0;
      check("window", s, 5);
    }
    s = spec_of(64, 3, n_tok);
    s.kv.key_scale = 60.0f;  // logits in the hundreds
    check("large logits", s, 6);
  }
  AttnSpec whole = spec_of(64, 4, 200);  // from the first token on, rows that see one token among them
  whole.kv.n_pages = 13;
  whole.kv.last_len = 8;
  check("a whole prompt", whole, 7);
}

// One stream's window is the layer's, the other has its own.
void attn_prefill__windows_of_single_heads(void**) {
  const std::vector<uint32_t> windows = {0, 90};
  AttnSpec s = spec_of(64, 3, 37);
  s.window = 500;
  s.n_sink = 2;
  AttnSpec own = s;
  own.window = 90;
  own.n_sink = 20;
  AttnCase got(s, 8), first(s, 8), second(own, 8);
  AttnPagedArgs a = got.args();
  a.head_windows = windows.data();
  a.head_sinks = 20;
  attend(got, a);
  attend(first, first.args());
  attend(second, second.args());
  const size_t half_row = size_t{3} * 64;
  for (size_t i = 0; i < got.out.size(); ++i)
    assert_true(got.out[i] == (i / half_row % 2 == 0 ? first : second).out[i]);
}

void attn_prefill__rows_do_not_depend_on_others(void**) {
  const AttnSpec s = spec_of(128, 4, 70);
  AttnCase all(s, 9), some(s, 9);
  attend(all, all.args());
  AttnPagedArgs a = some.args();
  a.n_tok = 50;
  attend(some, a);
  assert_memory_equal(some.out.data(), all.out.data(), size_t{50} * s.n_heads * 128 * sizeof(float));
  assert_memory_equal(some.lse.data(), all.lse.data(), size_t{50} * s.n_heads * sizeof(float));
}

// A token that takes nearly all, and a thousand whose weights would be subnormal numbers of f16: 0 on some devices.
void attn_prefill__small_weights_add_up(void**) {
  AttnSpec s = spec_of(64, 4, 33);
  s.kv.n_pages = 70;
  AttnCase c(s, 10);
  for (uint32_t head = 0; head < 2; ++head) {
    for (uint32_t row = 0; row < 70; ++row) {
      for (uint32_t t = 0; t < kPageTokens; ++t) {
        for (uint32_t i = 0; i < 64; ++i) {
          const bool is_first = row == 0 && t == 0;
          c.kv.key(head, row, t)[i] = f32_to_bf16(is_first ? 1.0f : 0.0f);
          c.kv.value(head, row, t)[i] = f32_to_bf16(is_first ? 0.0f : 1.0f);
        }
      }
    }
  }
  std::fill(c.q.begin(), c.q.end(), 1.375f);  // exact in f16 too; logits of 11 and 0: weights of 1 and 1.7e-5
  attend(c, c.args());
  const std::vector<float> want = c.dense();
  assert_true(want.back() > 0.01f);
  assert_true(close_enough("small weights", c.out.data(), want.data(), want.size(), 1e-6));
}

}  // namespace
}  // namespace weir::vulkan

int main() {
  using namespace weir::vulkan;
  const CMUnitTest tests[] = {
      cmocka_unit_test(attn_prefill__of_every_shape),
      cmocka_unit_test(attn_prefill__of_every_kind),
      cmocka_unit_test(attn_prefill__windows_of_single_heads),
      cmocka_unit_test(attn_prefill__rows_do_not_depend_on_others),
      cmocka_unit_test(attn_prefill__small_weights_add_up),
  };
  return cmocka_run_group_tests_name("vulkan/attn_prompt", tests, nullptr, nullptr);
}
