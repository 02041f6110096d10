// kv: streams of layers with a window have rows of their own number, and pages leave them by position alone.
#include "tests/kv/cache_case.h"

namespace {

using namespace weir;
using weir::test::Cache;
using weir::test::check;

// Five layers of two KV heads. Layer 2, the third, sees all positions and has 10 pages, or 30 if it is among the wide
// layers; the others see 20 positions and have 4 pages.
KvShape shape_of(uint32_t n_wide_layers) {
  KvShape shape = {5, 2, 8, 10, DigestKind::kMinMax, n_wide_layers, 30};
  shape.window = 20;
  shape.global_every = 3;
  shape.window_pages = 4;
  return shape;
}

void windows__capacities(void**) {
  const uint32_t local = 4, ruled = 10, wide = 30;
  const struct {
    uint32_t n_wide_layers, capacity[5];
  } cases[] = {
      {0, {local, local, ruled, local, local}},
      {2, {local, local, ruled, local, local}},
      {3, {local, local, wide, local, local}},
  };
  for (const auto& c : cases) {
    Cache cache(shape_of(c.n_wide_layers));
    uint64_t rows = 0;
    for (uint32_t layer = 0; layer < 5; ++layer) {
      assert_int_equal(cache.kv.shape().rows_before(layer), rows);
      for (uint32_t head = 0; head < 2; ++head)
        assert_int_equal(cache.kv.stream(2 * layer + head).capacity, c.capacity[layer]);
      assert_int_equal(cache.kv.window(2 * layer), layer == 2 ? 0 : 20);
      rows += 2 * c.capacity[layer];
    }
    assert_int_equal(cache.kv.shape().n_slots(), rows);
    assert_int_equal(cache.kv.shape().n_local_streams(), 8);
    assert_int_equal(cache.kv.shape().last_ruled_stream(), 5);
    const KvTables t = cache.kv.tables();
    assert_true(t.has_windows);
    assert_int_equal(t.ruled_stream, 5);
    for (uint32_t s = 0; s < 10; ++s) {
      assert_int_equal(t.row_begin[s + 1] - t.row_begin[s], c.capacity[s / 2]);
      assert_int_equal(t.window[s], cache.kv.window(s));
    }
  }
  KvShape none = shape_of(0);
  none.global_every = 6;  // no layer sees all
  assert_int_equal(none.n_slots(), 5 * 2 * 4);
  assert_int_equal(none.last_ruled_stream(), 9);
  none.window = 0;
  assert_int_equal(none.n_slots(), 5 * 2 * 10);
  assert_int_equal(none.last_ruled_stream(), 9);
}

// A page leaves when its last token is as far behind as the window is wide, not a token earlier.
void windows__slide_by_position(void**) {
  Cache c(shape_of(0));
  c.append(40);  // pages at 0, 16 and 32, of which the last is open
  c.kv.slide(0, 34);
  assert_int_equal(c.kv.stream(0).n_pages, 3);
  c.kv.slide(0, 35);  // position 35 sees 16..35
  assert_int_equal(c.kv.stream(0).n_pages, 2);
  assert_int_equal(c.kv.stream(0).first_pos[0], 16);
  assert_int_equal(c.kv.pages_slid(), 1);
  assert_int_equal(c.kv.pages_evicted(), 0);
  check(c.kv);
  c.kv.slide(0, 1000);  // the open page stays
  assert_int_equal(c.kv.stream(0).n_pages, 1);
  assert_int_equal(c.kv.stream(0).first_pos[0], 32);
  check(c.kv);
  for (uint32_t s = 1; s < 10; ++s) c.kv.slide(s, c.kv.window(s) != 0 ? 40 : 0);
  c.append(24);  // 64 tokens: every page is full
  c.kv.slide(0, 83);
  assert_int_equal(c.kv.stream(0).n_pages, 0);
  assert_int_equal(c.kv.stream(2).n_pages, 3);
  check(c.kv);
  c.append(3);
  assert_int_equal(c.kv.stream(0).first_pos[0], 64);
  check(c.kv);
}

void windows__flags_are_those_of_the_other_streams(void**) {
  Cache c(shape_of(0));
  c.append(40);
  assert_int_equal(c.kv.set_flags(0, 16, kPageKept, 0), 2);
  for (uint32_t s = 0; s < 10; ++s)
    assert_int_equal(c.kv.stream(s).flags[0] & kPageKept, c.kv.window(s) == 0 ? uint32_t{kPageKept} : 0u);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(windows__capacities),
      cmocka_unit_test(windows__slide_by_position),
      cmocka_unit_test(windows__flags_are_those_of_the_other_streams),
  };
  return cmocka_run_group_tests_name("kv/kv_cache_windows", tests, nullptr, nullptr);
}
