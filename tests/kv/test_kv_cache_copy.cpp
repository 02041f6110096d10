// kv: a copy of a cache has the same tables, pages, digests, counters and events, and goes on by itself.
#include <algorithm>

#include "tests/kv/cache_case.h"

namespace {

using namespace weir;
using weir::test::Cache;
using weir::test::check;

constexpr uint32_t kHeadDim = 8;

KvShape shape_with(bool recalls, bool windows) {
  KvShape shape = {3, 2, kHeadDim, 10, DigestKind::kMinMax, 1, 12, true};
  if (recalls) {
    shape.n_wide_layers = shape.wide_pages = 0;
    shape.recall_slots = 6;
  }
  if (windows) {
    shape.n_wide_layers = shape.wide_pages = 0;
    shape.window = 20;
    shape.global_every = 3;
    shape.window_pages = 4;
  }
  return shape;
}

// Numbers that tell every element from the others.
void fill(Cache& c) {
  uint32_t number = 1;
  for (uint32_t s = 0; s < c.kv.shape().n_streams(); ++s) {
    const StreamView v = c.kv.stream(s);
    for (uint32_t row = 0; row < v.n_pages; ++row) {
      v.stamp[row] = ++number;
      v.flags[row] = number % 7 == 0 ? kPageKept : kPagePrompt;
      v.last_score[row] = static_cast<float>(++number);
      v.prompt_score[row] = static_cast<float>(++number);
      if (v.copies != nullptr) v.copies[row] = ++number;
      if (v.slots[row] == kNoSlot) continue;
      uint16_t* page = c.kv.page_data(v.slots[row]);
      for (uint32_t i = 0; i < 2 * kPageTokens * kHeadDim; ++i)
        page[i] = f32_to_bf16(static_cast<float>(++number % 999));
      c.kv.rebuild_digest(s, row);
    }
  }
}

template <class T>
void assert_same(const T* a, const T* b, uint32_t n) {
  assert_int_equal(a == nullptr, b == nullptr);
  if (a != nullptr) assert_true(std::equal(a, a + n, b));
}

void assert_same_caches(const KvCache& a, const KvCache& b) {
  for (uint32_t s = 0; s < a.shape().n_streams(); ++s) {
    const StreamView x = a.stream(s), y = b.stream(s);
    assert_int_equal(x.n_pages, y.n_pages);
    assert_int_equal(x.n_resident, y.n_resident);
    const uint32_t n = x.n_pages;
#define WEIR_ROW(name, type, saved) assert_same(x.name, y.name, n);
#define WEIR_HOST_ROW(name, type, is_there, none) assert_same(x.name, y.name, n);
#include "kv/columns.inc"
    const uint32_t layer = s / a.shape().n_kv_heads, head = s % a.shape().n_kv_heads;
    for (uint32_t row = 0; row < n; ++row) {
      assert_same(a.view(layer).digest_of(head, row), b.view(layer).digest_of(head, row), 2 * kHeadDim);
      if (x.slots[row] != kNoSlot)
        assert_same(a.page_keys(x.slots[row]), b.page_keys(y.slots[row]), 2 * kPageTokens * kHeadDim);
    }
  }
  assert_int_equal(a.n_tokens(), b.n_tokens());
  assert_int_equal(a.n_tokens_any_thread(), b.n_tokens_any_thread());
  assert_int_equal(a.pages_resident(), b.pages_resident());
  assert_int_equal(a.pages_resident_max(), b.pages_resident_max());
  assert_int_equal(a.pages_evicted(), b.pages_evicted());
  assert_int_equal(a.prompt_pages_evicted(), b.prompt_pages_evicted());
  assert_int_equal(a.pages_slid(), b.pages_slid());
  assert_int_equal(a.pages_lost(), b.pages_lost());
  assert_int_equal(a.pages_cold(), b.pages_cold());
}

void kv_copy__is_the_same_and_goes_on(void**) {
  for (int i = 0; i < 4; ++i) {
    const KvShape shape = shape_with((i & 1) != 0, (i & 2) != 0);
    std::vector<PageEvent> events(8), others(8);
    Cache a(shape), b(shape);
    a.kv.set_events({events.data(), 8});
    b.kv.set_events({others.data(), 8});
    a.append(40);
    fill(a);
    const uint32_t last = shape.n_streams() - 1;  // of a layer that the budget rules
    a.kv.evict(last, 1);
    a.kv.evict(last - 1, 0);
    for (uint32_t s = 0; s < last; ++s) {
      if (a.kv.window(s) != 0) a.kv.slide(s, 40);
    }
    b.kv.copy_from(a.kv, a.kv.n_tokens());
    check(b.kv);
    assert_same_caches(a.kv, b.kv);
    assert_true(
        std::equal(others.begin(), others.begin() + 2, events.begin(), [](const PageEvent& x, const PageEvent& y) {
          return x.index == y.index && x.first_pos == y.first_pos && x.kv_head == y.kv_head;
        }));
    // New pages take the slots that the pages which left had.
    a.append(30);
    b.append(30);
    check(b.kv);
    for (Cache* c : {&a, &b}) fill(*c);
    assert_same_caches(a.kv, b.kv);
    b.kv.evict(last, 0);
    assert_int_equal(a.kv.pages_evicted(), 2);
    assert_int_equal(b.kv.pages_evicted(), 3);
  }
}

void kv_copy__of_events_of_a_full_ring(void**) {
  Cache a(shape_with(false, false)), b(shape_with(false, false));
  std::vector<PageEvent> events(4), others(4);
  a.kv.set_events({events.data(), 4});
  b.kv.set_events({others.data(), 4});
  a.append(100);
  for (uint32_t s = 0; s < 6; ++s) a.kv.evict(s, s % 3);
  b.kv.copy_from(a.kv, a.kv.n_tokens());
  for (uint32_t i = 0; i < 4; ++i) {
    assert_int_equal(others[i].index, events[i].index);
    assert_int_equal(others[i].first_pos, events[i].first_pos);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(kv_copy__is_the_same_and_goes_on),
      cmocka_unit_test(kv_copy__of_events_of_a_full_ring),
  };
  return cmocka_run_group_tests_name("kv_cache_copy", tests, nullptr, nullptr);
}
