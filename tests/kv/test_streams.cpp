// kv: how much a stream holds follows from its kind, and sums over the streams are what sessions take.
#include "tests/cmocka_cpp.h"

#include <vector>

#include "kv/streams.h"

namespace {

using namespace weir;

struct Row {
  StreamKind kind;
  uint32_t rows, slots, window, front_pages;
  bool is_archived;
  uint32_t number;
};

void expect(const KvShape& shape, const std::vector<Row>& want) {
  assert_int_equal(shape.n_streams(), want.size());
  uint64_t rows = 0, slots = 0, local = 0, archived = 0;
  for (uint32_t s = 0; s < shape.n_streams(); ++s) {
    const StreamSpec spec = shape.spec(s);
    const Row& w = want[s];
    assert_true(spec.kind == w.kind);
    assert_int_equal(spec.rows, w.rows);
    assert_int_equal(spec.slots, w.slots);
    assert_int_equal(spec.window, w.window);
    assert_int_equal(spec.front_pages, w.front_pages);
    assert_true(spec.is_archived == w.is_archived);
    if (w.is_archived || w.kind == StreamKind::kLocal) assert_int_equal(spec.number, w.number);
    if (shape.first_stream(shape.layer_of(s)) == s) assert_int_equal(shape.rows_before(shape.layer_of(s)), rows);
    rows += w.rows, slots += w.slots;
    local += w.kind == StreamKind::kLocal ? 1 : 0, archived += w.is_archived ? 1 : 0;
  }
  assert_int_equal(shape.n_rows(), rows);
  assert_int_equal(shape.n_slots(), slots);
  assert_int_equal(shape.n_local_streams(), local);
  assert_int_equal(shape.n_archived_streams(), archived);
}

constexpr StreamKind kRuled = StreamKind::kRuled, kWide = StreamKind::kWide, kLocal = StreamKind::kLocal,
                     kWindowed = StreamKind::kWindowed;

// Every second of six layers sees all positions; the first of these is wide.
void streams__layers_of_three_kinds(void**) {
  KvShape shape = {.n_layers = 6, .n_kv_heads = 1, .head_dim = 8, .pages_per_stream = 10};
  shape.n_wide_layers = 2;
  shape.wide_pages = 30;
  shape.window = 20;
  shape.global_every = 2;
  shape.window_pages = 4;
  shape.archive_pages = 30;
  const Row local = {kLocal, 4, 4, 20, 0, false, 0};
  std::vector<Row> want(6, local);
  want[1] = {kWide, 30, 30, 0, 0, false, 0};
  want[3] = {kRuled, 10, 10, 0, 0, true, 0};
  want[5] = {kRuled, 10, 10, 0, 0, true, 1};
  want[2].number = 1, want[4].number = 2;
  expect(shape, want);
  assert_int_equal(shape.max_capacity(), 30);
  assert_int_equal(shape.last_ruled_stream(), 5);

  shape.archive_pages = 31;  // not all pages of the context are in the wide layers' tables
  want[1].is_archived = true;
  want[3].number = 1, want[5].number = 2;
  expect(shape, want);

  shape.archive_pages = 0;
  shape.recall_slots = 5;  // rows never leave, local ones do
  for (Row& row : want) row.is_archived = false, row.slots = row.kind == kLocal ? 4 : 5;
  expect(shape, want);
  assert_false(shape.slots_are_rows());
}

// A head with a window holds sinks and that; the table of its layer has room for the other heads as well.
void streams__heads_with_windows(void**) {
  KvShape shape = {.n_layers = 2, .n_kv_heads = 2, .head_dim = 8, .pages_per_stream = 3};
  shape.windows.sinks = 20, shape.windows.window = 50;
  shape.windows.add(0);
  shape.windows.add(3);
  shape.own_pages = 6;
  expect(shape, {{kWindowed, 6, 6, 50, 2, false, 0},
                 {kRuled, 6, 3, 0, 0, false, 0},
                 {kRuled, 6, 3, 0, 0, false, 0},
                 {kWindowed, 6, 6, 50, 2, false, 0}});
  assert_int_equal(shape.last_ruled_stream(), 2);
  shape.windows.add(1);
  shape.windows.add(2);
  assert_int_equal(shape.last_ruled_stream(), 3);
}

// Where all streams of layers that see all positions have windows of their own, one of them stands for the others.
void streams__no_ruled_stream(void**) {
  KvShape shape = {.n_layers = 3, .n_kv_heads = 1, .head_dim = 8, .pages_per_stream = 3};
  shape.window = 20;
  shape.global_every = 2;
  shape.window_pages = 4;
  assert_int_equal(shape.last_ruled_stream(), 1);
  shape.windows.window = 50;
  shape.windows.add(1);
  shape.own_pages = 6;
  assert_int_equal(shape.last_ruled_stream(), 1);
  shape.global_every = 4;
  assert_int_equal(shape.last_ruled_stream(), 2);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(streams__layers_of_three_kinds),
      cmocka_unit_test(streams__heads_with_windows),
      cmocka_unit_test(streams__no_ruled_stream),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
