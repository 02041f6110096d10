// kv: reading the ring of page events, after a host that keeps the newest events, and after a device whose steps keep
// their first events.
#include <algorithm>
#include <vector>

#include "kv/page_events.h"
#include "tests/cmocka_cpp.h"

namespace {

using weir::PageEvent;
using weir::PageEventRing;

// A ring, its writer, and what an event must contain.
struct Writer {
  explicit Writer(uint32_t capacity) : places(capacity), ring{places.data(), capacity} {}

  void record(uint64_t index) {
    const auto mark = static_cast<uint32_t>(index * 7 + 1);
    places[index % ring.capacity] = {index, mark, mark + 1, mark + 2, mark + 3, mark + 4, mark + 5};
  }
  void on_host(uint32_t n) {
    for (; n > 0; --n) record(end++);
  }
  // As in cuda/pages/step_begin.cu.
  void on_device(uint32_t n) {
    for (uint32_t i = 0; i < std::min(n, ring.capacity); ++i) record(end + i);
    end += n;
  }
  bool has(uint64_t index) const { return places[index % ring.capacity].index == index; }

  std::vector<PageEvent> places;
  PageEventRing ring;
  uint64_t end = 0;
};

// Reads at most n events. Every event between the old and the new position must be returned or counted as lost, and no
// event that is in the ring may be skipped.
void read(const Writer& w, uint64_t& at, uint32_t n) {
  const uint64_t before = at;
  std::vector<PageEvent> out(n);
  uint64_t n_lost = 0;
  const uint32_t n_read = w.ring.read(at, w.end, out.data(), n, n_lost);
  std::vector<uint64_t> want;
  for (uint64_t i = before; i < at; ++i) {
    if (w.has(i)) want.push_back(i);
  }
  assert_true(at <= w.end && n_read <= n);
  assert_true(at == w.end || n_read == n);
  assert_int_equal(n_read, want.size());
  assert_int_equal(n_read + n_lost, at - before);
  for (uint32_t i = 0; i < n_read; ++i) {
    assert_int_equal(out[i].index, want[i]);
    assert_int_equal(out[i].left_at, static_cast<uint32_t>(want[i] * 7 + 6));
  }
}

void page_events__first_of_a_large_step(void**) {
  Writer w(8);
  std::vector<PageEvent> out(16);
  uint64_t at = 0, n_lost = 0;
  w.on_device(13);
  assert_int_equal(w.ring.read(at, w.end, out.data(), 16, n_lost), 8);
  assert_int_equal(out[0].index, 0);
  assert_int_equal(n_lost, 5);
  w.on_device(100);
  w.on_device(3);  // overwrites events 17 to 19
  n_lost = 0;
  assert_int_equal(w.ring.read(at, w.end, out.data(), 16, n_lost), 8);
  assert_int_equal(n_lost, 95);
  assert_int_equal(out[7].index, 115);
  assert_int_equal(at, 116);
}

void page_events__newest_of_a_host(void**) {
  Writer w(8);
  std::vector<PageEvent> out(16);
  uint64_t at = 0, n_lost = 0;
  w.on_host(13);
  assert_int_equal(w.ring.read(at, w.end, out.data(), 16, n_lost), 8);
  assert_int_equal(out[0].index, 5);
  assert_int_equal(n_lost, 5);
}

// Nothing in the ring is new enough: everything is lost, and counted once.
void page_events__read_up_to_the_gap(void**) {
  Writer w(8);
  std::vector<PageEvent> out(8);
  uint64_t at = 0, n_lost = 0;
  w.on_device(40);
  assert_int_equal(w.ring.read(at, w.end, out.data(), 8, n_lost), 8);
  assert_int_equal(at, 8);
  assert_int_equal(n_lost, 0);
  assert_int_equal(w.ring.read(at, w.end, out.data(), 8, n_lost), 0);
  assert_int_equal(at, 40);
  assert_int_equal(n_lost, 32);
}

void page_events__any_order_of_writers_and_readers(void**) {
  uint32_t seed = 1;
  const auto draw = [&seed](uint32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
  };
  for (uint32_t round = 0; round < 200; ++round) {
    Writer w(1u << (1 + draw(5)));
    uint64_t at = 0;
    for (uint32_t i = 0; i < 200; ++i) {
      const uint32_t n = draw(4) == 0 ? draw(4 * w.ring.capacity) : draw(w.ring.capacity);
      if (draw(2) == 0) {
        w.on_host(n);
      } else {
        w.on_device(n);
      }
      if (draw(3) == 0) read(w, at, draw(2 * w.ring.capacity));
    }
    read(w, at, 10 * w.ring.capacity);
    assert_int_equal(at, w.end);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(page_events__first_of_a_large_step),
      cmocka_unit_test(page_events__newest_of_a_host),
      cmocka_unit_test(page_events__read_up_to_the_gap),
      cmocka_unit_test(page_events__any_order_of_writers_and_readers),
  };
  return cmocka_run_group_tests_name("kv_page_events", tests, nullptr, nullptr);
}
