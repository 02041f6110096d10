// vulkan: attention of a decode step that stops by itself, against its definition: the same number of pages and the
// same result, for all rules, head sizes and groups, in one launch and by lists, with the masses of the pages in these.
// What it appends is attn_decode's, and device/test_stop has it in steps.
#include <cmath>
#include <cstdio>
#include <vector>

#include "device/kernels/attn_stop.h"
#include "shaders/decode.h"
#include "tests/cmocka_cpp.h"
#include "tests/ops/metrics.h"
#include "tests/ops/progressive_case.h"
#include "tests/variants.h"
#include "tests/vulkan/attn_arrays.h"
#include "vulkan/attn_decode.h"

namespace weir::vulkan {
namespace {

using test::DeviceArrays;
using test::on_device;
using test::progressive_spec;
using test::ProgressiveCase;
using test::ProgressiveSpec;

constexpr double kMaxNmse = 1e-10;

AttnStopArgs on_device(DeviceArrays& m, ProgressiveCase& c, const std::vector<float>& bound) {
  AttnStopArgs a = {};
  a.attn.attn = on_device(m, c.attn);
  const std::vector<uint32_t> pos = {c.attn.kv.end_pos() - 1};
  a.attn.n_tokens = m.in(pos);
  a.attn.scratch = reinterpret_cast<std::byte*>(m.room(attn_decode_scratch_bytes(c.attn.shapes())));
  a.attn.counters = m.in(std::vector<uint32_t>(c.attn.spec.n_heads, 0));
  a.stop = c.stop(c.spec.bound ? m.in(bound) : nullptr);
  a.stop.rank = m.in(c.rank);
  a.stop.flags = m.in(c.flags);
  a.max_pages = c.spec.max_pages;
  a.select = m.both(c.select);
  a.n_select = m.both(c.n_select);
  return a;
}

// What a list is made in has no rows of its own.
void forget_lists(ProgressiveCase& c) {
  std::fill(c.select.begin(), c.select.end(), UINT32_MAX);
  std::fill(c.n_select.begin(), c.n_select.end(), 0);
}

// The same lists, and masses in their order.
void check_lists(const ProgressiveCase& got, const ProgressiveCase& want, const char* what) {
  const uint32_t n_kv_heads = want.spec.attn.kv.n_kv_heads, group = want.spec.attn.n_heads / n_kv_heads;
  for (uint32_t head = 0; head < n_kv_heads; ++head) {
    if (got.list(head) != want.list(head)) fail_msg("%s: other pages of KV head %u", what, head);
    for (uint32_t i = head * group; i < (head + 1) * group && want.spec.attn.page_mass; ++i) {
      const size_t at = i * size_t{want.capacity};
      assert_true(test::close_enough(what, &got.attn.mass[at], &want.attn.mass[at], want.list(head).size(), kMaxNmse));
    }
  }
}

// Returns the pages attended, of all KV heads.
uint64_t check_once(const ProgressiveSpec& s, uint64_t seed, const char* what) {
  ProgressiveCase want(s, seed), got(s, seed);
  want.run(reference_backend());
  const std::vector<float> bound = got.bounds();
  forget_lists(got);
  DeviceArrays m;
  AttnStopArgs a = on_device(m, got, bound);
  std::vector<uint32_t> attended = {0xFFFFFFF0u, 0};
  a.attn.pages_attended = reinterpret_cast<unsigned long long*>(m.both(attended));
  if (!attn_stop(a).ok()) fail_msg("%s", last_error_text());
  m.finish();
  uint64_t n = 0;
  for (uint32_t of_head : want.n_select) n += of_head;
  const uint64_t n_got = attended[0] + (uint64_t{attended[1]} << 32) - 0xFFFFFFF0u;
  if (n_got != n)
    fail_msg("%s, seed %llu: %llu pages, not %llu", what, static_cast<unsigned long long>(seed),
             static_cast<unsigned long long>(n_got), static_cast<unsigned long long>(n));
  assert_true(test::close_enough(what, got.attn.out.data(), want.attn.out.data(), want.attn.out.size(), kMaxNmse));
  if (s.attn.page_mass || !attn_stop_appends(want.attn.args())) check_lists(got, want, what);
  return n;
}

uint64_t check(ProgressiveSpec s, uint64_t seed, const char* what) {
  s.attn.page_mass = false;
  const uint64_t n = check_once(s, seed, what);
  s.attn.page_mass = true;
  if (!test::few_variants() || seed % 2 == 0) assert_int_equal(check_once(s, seed, what), n);
  return n;
}

bool is_one_launch(uint32_t head_dim, uint32_t group) {
  AttnPagedArgs a = {};
  a.n_heads = 2 * group;
  a.kv.n_kv_heads = 2;
  a.kv.head_dim = head_dim;
  return attn_stop_appends(a);
}

void attn_stop__head_sizes_and_groups(void**) {
  test::open_context();
  uint32_t n_shapes[2] = {0, 0};
  for (const uint32_t d : test::kHeadDims) {
    for (const uint32_t group : test::kGroups) {
      if (d % 8 != 0 || d > 256 || !test::is_tested_together(d, group)) continue;
      if (!test::is_variant_of_heads(d, group)) continue;
      ++n_shapes[is_one_launch(d, group) ? 1 : 0];
      for (const uint32_t n_pages : {1u, 9u, 40u}) check(progressive_spec(d, group, n_pages), d + n_pages, "shapes");
    }
  }
  check(progressive_spec(64, kMaxStopHeads, 40), 3, "the largest group");
  // Some heads at a time: with bounds, quiet pages, and more pages than are put into order at once.
  ProgressiveSpec s = progressive_spec(64, 12, 60);
  s.bound = true;
  s.eps = 0.3f;
  check(s, 4, "bounds of a large group");
  s.bound = false;
  s.quiet_pages = 3;
  check(s, 5, "quiet pages of a large group");
  s = progressive_spec(32, 12, 600);
  s.eps = 0.95f;
  check(s, 6, "many pages of a large group");
  assert_true(n_shapes[1] >= 8);
  assert_true(n_shapes[0] >= 2);
}

void attn_stop__every_rule(void**) {
  struct Pages {
    uint64_t least = UINT64_MAX, most = 0;  // of two streams of at least 90
  };
  uint64_t seed = 100;
  Pages of_rule[3];
  for (uint32_t mask = 0; mask < 48; ++mask) {
    ProgressiveSpec s = progressive_spec(mask % 2 == 0 ? 64 : 40, 1 + mask % 4, 90 + mask % 7);
    s.eps = mask % 3 == 0 ? 0.5f : mask % 3 == 1 ? 0.9f : 0.99f;
    s.microbatch = 1 + mask % 5;
    s.n_sink_pages = mask % 4;
    s.kept = (mask & 4) != 0;
    s.attn.sinks = (mask & 8) != 0;
    s.attn.soft_cap = mask % 7 == 0 ? 2.5f : 0.0f;
    if (mask >= 16) s.quiet_pages = 1 + mask % 6, s.quiet_share = mask % 2 == 0 ? 0.02f : 0.2f;
    if (mask >= 32) s.quiet_pages = 0, s.bound = true, s.eps = mask % 2 == 0 ? 0.01f : 0.6f;
    if (mask % 6 == 5 && !s.bound) s.max_pages = 30;
    const uint64_t n = check(s, ++seed, "rules");
    Pages& pages = of_rule[mask / 16];
    pages.least = std::min(pages.least, n);
    pages.most = std::max(pages.most, n);
  }
  for (const Pages& pages : of_rule)
    std::printf("%llu to %llu pages\n", static_cast<unsigned long long>(pages.least),
                static_cast<unsigned long long>(pages.most));
  for (const Pages& pages : of_rule) assert_true(pages.least < 90);
  assert_true(of_rule[0].most > 150);
  for (const float eps : {0.0f, 1.0f}) {
    ProgressiveSpec s = progressive_spec(64, 4, 50);
    s.eps = eps;
    s.microbatch = 3;
    assert_int_equal(check(s, 77, "borders"), eps == 0.0f ? 6 : 100);
  }
}

// More pages than are put into order at a time, and more forced ones than that.
void attn_stop__many_pages(void**) {
  for (const float eps : {0.9f, 1.0f}) {
    for (const uint32_t n_sink_pages : {0u, 256u, 300u, 530u}) {
      for (const bool bound : {false, true}) {
        if (bound && n_sink_pages > 256) continue;  // slow in the definition, and no other case than 256
        ProgressiveSpec s = progressive_spec(32, 2, 600);
        s.eps = eps;
        s.bound = bound;
        s.n_sink_pages = n_sink_pages;
        s.kept = n_sink_pages == 300;
        s.max_pages = bound || n_sink_pages != 530 ? UINT32_MAX : 540;
        check(s, n_sink_pages + 1, "many pages");
      }
    }
    ProgressiveSpec s = progressive_spec(32, 2, 600);  // more forced ones than are wanted
    s.eps = eps;
    s.n_sink_pages = 530;
    s.max_pages = 100;
    check(s, 7, "forced pages");
  }
  ProgressiveSpec s = progressive_spec(32, 2, 600);
  s.quiet_pages = 301;
  s.quiet_share = 1.0f;
  s.microbatch = 7;
  assert_int_equal(check(s, 5, "quiet"), 2 * 301);
}

// Ranks count as -inf, and a head whose sum is not a number is never done.
void check_nan(bool page_mass) {
  for (const bool in_query : {false, true}) {
    ProgressiveSpec s = progressive_spec(64, 4, 60);
    s.attn.page_mass = page_mass;
    ProgressiveCase c(s, 9);
    if (in_query) c.attn.q[3 * 64 + 5] = NAN;  // of the first stream
    if (!in_query) std::fill(c.rank.begin(), c.rank.end(), NAN);
    ProgressiveCase want = c;
    want.run(reference_backend());
    DeviceArrays m;
    AttnStopArgs a = on_device(m, c, {});
    std::vector<uint32_t> attended(2);
    a.attn.pages_attended = reinterpret_cast<unsigned long long*>(m.both(attended));
    assert_true(attn_stop(a).ok());
    m.finish();
    assert_int_equal(attended[0], want.n_select[0] + want.n_select[1]);
    if (in_query) assert_int_equal(want.n_select[0], 60);
    for (uint32_t h = 0; h < c.attn.spec.n_heads; ++h) {
      const float *got = c.attn.out.data() + size_t{h} * 64, *of_head = want.attn.out.data() + size_t{h} * 64;
      if (in_query && h == 3) {
        assert_true(std::isnan(got[0]) && std::isnan(of_head[0]));
      } else {
        assert_true(test::close_enough("head", got, of_head, 64, kMaxNmse));
      }
    }
  }
}

void attn_stop__nan(void**) {
  for (const bool page_mass : {false, true}) check_nan(page_mass);
}

// Streams with windows of their own are attended whole, the others until they have seen enough.
void attn_stop__windows(void**) {
  for (const bool page_mass : {false, true}) {
    ProgressiveSpec s = progressive_spec(64, 4, 60);
    s.eps = 0.5f;
    s.attn.page_mass = page_mass;
    ProgressiveCase stops(s, 11);
    stops.run(reference_backend());
    assert_true(stops.n_select[1] < 60);
    s.attn.head_window = 200;  // of the first KV head
    ProgressiveCase got(s, 11);
    const std::vector<float> whole = got.attn.dense();
    forget_lists(got);
    DeviceArrays m;
    AttnStopArgs a = on_device(m, got, {});
    std::vector<uint32_t> attended(2);
    a.attn.pages_attended = reinterpret_cast<unsigned long long*>(m.both(attended));
    if (!attn_stop(a).ok()) fail_msg("%s", last_error_text());
    m.finish();
    assert_int_equal(attended[0], 60 + stops.n_select[1]);
    constexpr size_t kHalf = 4 * 64;
    assert_true(test::close_enough("window", got.attn.out.data(), whole.data(), kHalf, kMaxNmse));
    assert_true(
        test::close_enough("none", got.attn.out.data() + kHalf, stops.attn.out.data() + kHalf, kHalf, kMaxNmse));
    if (!page_mass) continue;
    assert_int_equal(got.n_select[0], 60);
    for (uint32_t row = 0; row < 60; ++row) assert_int_equal(got.select[row], row);
    assert_true(got.list(1) == stops.list(1));
  }
}

void attn_stop__refuses_what_it_cannot(void**) {
  ProgressiveCase c(progressive_spec(64, 4, 9), 3);
  DeviceArrays m;
  AttnStopArgs a = on_device(m, c, {});
  a.attn.append = true;
  assert_int_equal(attn_stop(a).code(), WEIR_ERR_INTERNAL);  // and masses
  a.attn.append = false;
  assert_true(attn_stop(a).ok());
  a.attn.attn.page_mass = nullptr;
  assert_true(attn_stop(a).ok());
  a.attn.attn.window = 100;
  assert_int_equal(attn_stop(a).code(), WEIR_ERR_INTERNAL);
  a.attn.attn.window = 0;
  a.attn.attn.kv.head_dim = 20;
  assert_int_equal(attn_stop(a).code(), WEIR_ERR_UNSUPPORTED);
  m.finish();
  assert_true(attn_stop_has_shape(2 * kMaxStopHeads, 2));
  assert_false(attn_stop_has_shape(kMaxStopHeads + 1, 1));
}

}  // namespace
}  // namespace weir::vulkan

int main() {
  using namespace weir::vulkan;
  const CMUnitTest tests[] = {
      cmocka_unit_test(attn_stop__head_sizes_and_groups),
      cmocka_unit_test(attn_stop__every_rule),
      cmocka_unit_test(attn_stop__many_pages),
      cmocka_unit_test(attn_stop__nan),
      cmocka_unit_test(attn_stop__windows),
      cmocka_unit_test(attn_stop__refuses_what_it_cannot),
  };
  return cmocka_run_group_tests_name("vulkan_attn_stop", tests, nullptr, nullptr);
}
