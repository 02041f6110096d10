// kv: the memory of attention's history. Tables of a layer are its own; tokens that are taken back are forgotten and no
// others, with what depends on them; a copy goes on like the original; a reset forgets all.
#include "tests/kv/cache_case.h"

#include <algorithm>
#include <cmath>

namespace {

using namespace weir;
using weir::test::Cache;

constexpr uint32_t kGroup = 3, kSinks = 4, kTokens = 96, kRoom = 20, kDim = 8, kKvHeads = 2, kLayers = 5;
constexpr uint32_t kHeads = kGroup * kKvHeads;

KvShape shape_of() {
  KvShape shape = {kLayers, kKvHeads, kDim, 8, DigestKind::kNone};
  shape.history = {kGroup, kSinks, kTokens, kRoom, 3};
  shape.history_from_layer = 2;
  return shape;
}

// Entry i of a table.
float entry_at(uint32_t layer, uint32_t head, uint32_t kind, uint32_t i) {
  return static_cast<float>((layer * 131 + head * 31 + kind * 17 + i * 7) % 64) / 8.0f;
}

// What steps up to position `end` could have left: entries, sums of them, lists of some, sums of keys.
void learn(const HistoryView& v, uint32_t layer, uint32_t end) {
  const uint32_t n = end - kSinks;
  for (uint32_t stream = 0; stream < kKvHeads; ++stream) {
    v.n_summed[stream] = end;
    v.n_known[stream] = n;
    for (uint32_t i = 0; i < 2 * kDim; ++i) v.sums[stream * 2 * kDim + i] = layer * 100 + stream * 50 + i;
  }
  for (uint32_t head = 0; head < kHeads; ++head) {
    v.heads[head].scale = 0.25;
    v.heads[head].spread = 1.5f;
    for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
      HistoryTable& t = v.heads[head].table[kind];
      for (uint32_t i = 0; i < n; ++i) v.entries_of(head, kind)[i] = entry_at(layer, head, kind, i);
      sum_table(t, v.entries_of(head, kind), n);
      t.floor = 7.0f;
      t.n_list = 0;
      for (uint32_t i = n; i > 0; --i) {  // in no order
        if (v.entries_of(head, kind)[i - 1] > t.floor) v.list_of(head, kind)[t.n_list++] = i - 1;
      }
      assert_true(t.n_list > 2 && t.n_list <= kRoom);
    }
  }
}

void learn_all(const KvCache& kv) {
  for (uint32_t layer = 2; layer < kLayers; ++layer) learn(kv.history(layer), layer, kv.n_tokens());
}

void check_tables(const KvCache& kv, uint32_t n) {
  for (uint32_t layer = 2; layer < kLayers; ++layer) {
    const HistoryView v = kv.history(layer);
    for (uint32_t head = 0; head < kHeads; ++head) {
      for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
        const HistoryTable& t = v.heads[head].table[kind];
        HistoryTable want;
        uint32_t n_above = 0;
        for (uint32_t i = 0; i < n; ++i) {
          assert_true(v.entries_of(head, kind)[i] == entry_at(layer, head, kind, i));
          n_above += v.entries_of(head, kind)[i] > 7.0f ? 1 : 0;
        }
        sum_table(want, v.entries_of(head, kind), n);
        assert_true(t.sum == want.sum && t.sum2 == want.sum2 && t.sum4 == want.sum4);
        assert_int_equal(t.n_list, n_above);
        for (uint32_t i = 0; i < t.n_list; ++i) {
          const uint32_t index = v.list_of(head, kind)[i];
          assert_true(index < n && v.entries_of(head, kind)[index] > 7.0f);
        }
      }
    }
  }
}

// Writing the tables of a layer changes nothing of another's, and all lie in the memory that was asked for.
void history__layers_have_their_own(void**) {
  Cache cache(shape_of());
  cache.append(100);
  learn_all(cache.kv);
  check_tables(cache.kv, 96);
  const HistoryView first = cache.kv.history(2), last = cache.kv.history(4);
  assert_int_equal(first.capacity, kTokens);
  assert_int_equal(first.list_capacity, kRoom);
  assert_ptr_equal(cache.kv.history(3).heads, first.heads + kHeads);
  assert_ptr_equal(last.sums, first.sums + 2 * kKvHeads * 2 * kDim);
  const auto inside = [&](const void* end) {
    return end <= static_cast<const void*>(cache.digests.data() + cache.digests.size());
  };
  assert_true(inside(last.entries_of(kHeads, 0)) && inside(last.list_of(kHeads, 0)) && inside(last.n_known + kKvHeads));
}

// Local layers have none, and are not counted.
void history__of_layers_that_are_not_local(void**) {
  KvShape shape = shape_of();
  shape.n_layers = 9;
  shape.window = 20;
  shape.global_every = 3;
  shape.window_pages = 4;
  shape.history.n_layers = shape.n_global(9) - shape.n_global(2);
  assert_int_equal(shape.history.n_layers, 3);
  Cache cache(shape);
  assert_ptr_equal(cache.kv.history(5).heads, cache.kv.history(2).heads + kHeads);
  assert_ptr_equal(cache.kv.history(8).heads, cache.kv.history(2).heads + 2 * kHeads);
  shape.history_from_layer = 3;
  shape.history.n_layers = 2;
  Cache later(shape);
  assert_ptr_equal(later.kv.history(8).heads, later.kv.history(5).heads + kHeads);
}

// Tables and lists lose what is gone; scale, floor and all else stay. Keys are summed anew.
void history__truncate(void**) {
  for (uint32_t n_tokens : {100u, 99u, 65u, 64u, 17u, 5u}) {
    Cache cache(shape_of());
    cache.append(100);
    learn_all(cache.kv);
    cache.parts.cut(n_tokens);
    const uint32_t n = n_tokens - kSinks;
    check_tables(cache.kv, n);
    for (uint32_t layer = 2; layer < kLayers; ++layer) {
      const HistoryView v = cache.kv.history(layer);
      for (uint32_t stream = 0; stream < kKvHeads; ++stream) {
        assert_int_equal(v.n_known[stream], n);
        assert_int_equal(v.n_summed[stream], n_tokens == 100 ? 100 : 0);
        for (uint32_t i = 0; i < 2 * kDim; ++i)
          assert_true(v.sums[stream * 2 * kDim + i] == (n_tokens == 100 ? layer * 100 + stream * 50 + i : 0));
      }
      for (uint32_t head = 0; head < kHeads; ++head) {
        assert_true(v.heads[head].scale == 0.25 && v.heads[head].spread == 1.5f);
        assert_true(v.heads[head].table[0].floor == 7.0f);
      }
    }
  }
}

// Truncating again, before a step has summed the keys anew, forgets as much as doing it at once.
void history__truncate_twice(void**) {
  for (uint32_t n_tokens : {49u, 17u, 4u}) {
    Cache once(shape_of()), twice(shape_of());
    for (Cache* cache : {&once, &twice}) {
      cache->append(100);
      learn_all(cache->kv);
    }
    twice.parts.cut(64);
    for (Cache* cache : {&once, &twice}) cache->parts.cut(n_tokens);
    const uint32_t n = n_tokens - kSinks;
    if (n > 0) check_tables(twice.kv, n);
    for (uint32_t layer = 2; layer < kLayers; ++layer) {
      const HistoryView a = once.kv.history(layer), b = twice.kv.history(layer);
      assert_memory_equal(a.heads, b.heads, kHeads * sizeof(HeadHistory));
      for (uint32_t stream = 0; stream < kKvHeads; ++stream) assert_int_equal(b.n_known[stream], n);
    }
  }
}

// Without a token behind the sinks nothing is known: as after a reset.
void history__truncate_to_the_sinks(void**) {
  for (uint32_t n_tokens : {4u, 3u, 0u}) {
    Cache cache(shape_of());
    cache.append(100);
    learn_all(cache.kv);
    cache.parts.cut(n_tokens);
    for (uint32_t layer = 2; layer < kLayers; ++layer) {
      const HistoryView v = cache.kv.history(layer);
      const HeadHistory fresh;
      for (uint32_t head = 0; head < kHeads; ++head) assert_memory_equal(&v.heads[head], &fresh, sizeof(fresh));
      assert_int_equal(v.n_known[0], 0);
    }
  }
}

// A step that did not end may have added its token already.
void history__rollback(void**) {
  Cache cache(shape_of());
  cache.append(70);
  {
    assert_true(cache.kv.reserve(1, 0, 71).ok());
    KvReservation reservation(cache.kv, cache.parts);
    for (uint32_t layer = 2; layer < 4; ++layer) learn(cache.kv.history(layer), layer, 71);
    learn(cache.kv.history(4), 4, 70);
  }
  check_tables(cache.kv, 66);
  assert_int_equal(cache.kv.history(2).n_summed[0], 0);
  assert_int_equal(cache.kv.history(2).n_known[0], 66);
  assert_int_equal(cache.kv.history(4).n_summed[0], 70);
}

void history__copies(void**) {
  Cache from(shape_of()), to(shape_of());
  from.append(90);
  learn_all(from.kv);
  to.append(100);
  for (uint32_t layer = 2; layer < kLayers; ++layer) learn(to.kv.history(layer), layer + 7, 100);
  to.parts.copy_from(from.parts, from.kv.n_tokens());
  check_tables(to.kv, 86);
  for (uint32_t layer = 2; layer < kLayers; ++layer) {
    const HistoryView a = from.kv.history(layer), b = to.kv.history(layer);
    assert_memory_equal(a.heads, b.heads, kHeads * sizeof(HeadHistory));
    assert_memory_equal(a.sums, b.sums, kKvHeads * 2 * kDim * sizeof(double));
    assert_memory_equal(a.n_summed, b.n_summed, kKvHeads * sizeof(uint32_t));
    assert_memory_equal(a.n_known, b.n_known, kKvHeads * sizeof(uint32_t));
    for (uint32_t head = 0; head < kHeads; ++head) {
      for (uint32_t kind = 0; kind < kHistoryKinds; ++kind)
        assert_memory_equal(a.list_of(head, kind), b.list_of(head, kind), a.heads[head].table[kind].n_list * 4);
    }
    b.entries_of(1, 1)[3] = -1.0f;
  }
  check_tables(from.kv, 86);
}

void history__reset(void**) {
  Cache cache(shape_of());
  cache.append(100);
  learn_all(cache.kv);
  cache.parts.reset();
  for (uint32_t layer = 2; layer < kLayers; ++layer) {
    const HistoryView v = cache.kv.history(layer);
    const HeadHistory fresh;
    for (uint32_t head = 0; head < kHeads; ++head) assert_memory_equal(&v.heads[head], &fresh, sizeof(fresh));
    for (uint32_t stream = 0; stream < kKvHeads; ++stream) {
      assert_int_equal(v.n_known[stream], 0);
      assert_int_equal(v.n_summed[stream], 0);
      for (uint32_t i = 0; i < 2 * kDim; ++i) assert_true(v.sums[stream * 2 * kDim + i] == 0.0);
    }
  }
}

// The room of a list holds what one that is about to be cut has; with thresholds that can be all.
void history__room_of_a_list(void**) {
  HistoryRules rules;
  for (uint32_t candidates : {1u, 7u, 100u, 4000u}) {
    for (uint32_t group : {1u, 4u}) {
      for (double peak : {0.0, 1e6}) {  // no table stands out, or this one
        HeadHistory head;
        head.table[0] = {100.0, 100.0, 100.0 + peak, 0.0f, 0};
        head.table[1] = {100.0, 100.0, 100.0, 0.0f, 0};
        const double by_head = listed_by_head(max_fill(group), candidates, group);
        const uint32_t target = list_target(rules, head, 0, 5000, by_head);
        assert_true(target >= 1 && (candidates == 1 || target <= candidates));
        assert_true(longest_list(target) + 50 < list_room(rules, {candidates, 50}, 1u << 20));
      }
    }
  }
  constexpr uint32_t kVector = 16;  // whole vectors are stored
  assert_int_equal(list_room(rules, {100, 50}, 30), 30 + kVector);
  rules.by_threshold = true;
  assert_int_equal(list_room(rules, {100, 50}, 1u << 20), (1u << 20) + kVector);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(history__layers_have_their_own),
      cmocka_unit_test(history__of_layers_that_are_not_local),
      cmocka_unit_test(history__truncate),
      cmocka_unit_test(history__truncate_to_the_sinks),
      cmocka_unit_test(history__truncate_twice),
      cmocka_unit_test(history__rollback),
      cmocka_unit_test(history__copies),
      cmocka_unit_test(history__reset),
      cmocka_unit_test(history__room_of_a_list),
  };
  return cmocka_run_group_tests_name("kv_attn_history", tests, nullptr, nullptr);
}
