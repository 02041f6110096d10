// vulkan: pages that move between the pool and host memory, against the definitions in tests/runtime/host_kernels.cpp.
#include <algorithm>
#include <cmath>
#include <vector>

#include "device/kernels/copies.h"
#include "device/kernels/fill.h"
#include "ops/page_digest.h"
#include "quant/half.h"
#include "tests/cmocka_cpp.h"
#include "tests/runtime/host_kernels.h"
#include "tests/runtime/host_queue.h"
#include "tests/vulkan/device_arrays.h"
#include "vulkan/steps.h"

namespace weir::vulkan {
namespace {

using host_module::seen;
using test::DeviceArrays;
using Words = std::vector<uint32_t>;

uint64_t random_state = 1;
uint32_t below(uint32_t n) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(random_state >> 33) % n;
}
bool one_in(uint32_t n) { return below(n) == 0; }

Words noise(size_t n) {
  Words words(n);
  for (uint32_t& word : words) word = below(UINT32_MAX);
  return words;
}

void expect_ok(const Status& status) {
  if (!status.ok()) fail_msg("%s", last_error_text());
}

constexpr uint32_t kHeadDims[] = {8, 24, 64, 128};
constexpr uint32_t page_bytes_of(uint32_t head_dim) { return 2 * kPageTokens * head_dim * 2; }

// Tables of streams with and without windows, in which pages have slots or not.
struct Streams {
  Streams(uint32_t n_layers, uint32_t n_kv_heads, uint32_t max_rows, bool has_cold)
      : n_layers(n_layers), n_kv_heads(n_kv_heads) {
    const uint32_t n = n_layers * n_kv_heads;
    begin.push_back(0);
    for (uint32_t s = 0; s < n; ++s) {
      const uint32_t capacity = 1 + below(max_rows), used = one_in(5) ? 0 : below(capacity + 1);
      capacities = std::max(capacities, capacity);
      window.push_back(one_in(2) ? 0 : 16 * capacity);
      n_pages.push_back(used);
      const uint32_t skipped = window.back() == 0 ? 0 : below(5);
      for (uint32_t row = 0; row < capacity; ++row) {
        slots.push_back(has_cold && one_in(3) ? kNoSlot : begin.back() + row);
        first_pos.push_back((skipped + row) * kPageTokens);
      }
      begin.push_back(begin.back() + capacity);
    }
    std::reverse(slots.begin(), slots.end());
  }
  uint32_t n_rows() const { return begin.back(); }
  uint32_t n_streams() const { return n_layers * n_kv_heads; }

  KvTables on_host() { return tables(slots.data(), first_pos.data(), n_pages.data(), begin.data(), window.data()); }
  KvTables on_device(DeviceArrays& device) {
    return tables(device.in(slots), device.in(first_pos), device.in(n_pages), device.in(begin), device.in(window));
  }
  KvTables tables(uint32_t* slots_at, uint32_t* pos_at, uint32_t* n_at, uint32_t* begin_at, uint32_t* window_at) const {
    KvTables t = {};
    t.slots = slots_at, t.first_pos = pos_at, t.n_pages = n_at;
    t.row_begin = t.slot_begin = begin_at, t.window = window_at;
    t.n_layers = n_layers, t.n_kv_heads = n_kv_heads, t.has_windows = true;
    return t;
  }

  uint32_t n_layers, n_kv_heads, capacities = 0;
  Words slots, first_pos, n_pages, begin, window;
};

uint16_t* halves(Words& words) { return reinterpret_cast<uint16_t*>(words.data()); }
uint16_t* halves(uint32_t* words) { return reinterpret_cast<uint16_t*>(words); }
std::byte* bytes(Words& words) { return reinterpret_cast<std::byte*>(words.data()); }
std::byte* bytes(uint32_t* words) { return reinterpret_cast<std::byte*>(words); }

void moves__a_row_out(void**) {
  random_state = 11;
  OpContext cx;
  for (const uint32_t head_dim : kHeadDims) {
    Streams streams(4, 3, 9, false);
    const uint32_t page = page_bytes_of(head_dim), page_words = page / 4;
    Words pool = noise(size_t{streams.n_rows()} * page_words), got = noise(streams.n_streams() * page_words);
    for (uint32_t row = 0; row < 10; ++row) {
      Words want = got;
      expect_ok(host_module::copy_row_out(cx, {streams.on_host(), row, halves(pool), page, seen(bytes(want))}));
      DeviceArrays device;
      const KvTables tables = streams.on_device(device);
      expect_ok(copy_row_out({tables, row, halves(device.in(pool)), page, bytes(device.both(got))}));
      device.finish();
      assert_true(got == want);
    }
  }
}

void moves__pages_in_and_out(void**) {
  random_state = 12;
  OpContext cx;
  for (const uint32_t head_dim : kHeadDims) {
    for (const uint32_t n : {0u, 1u, 13u}) {
      for (const bool in : {false, true}) {
        const uint32_t page = page_bytes_of(head_dim), page_words = page / 4;
        Words pool = noise(size_t{40} * page_words), pages = noise(size_t{20} * page_words), slots;
        for (uint32_t i = 0; i < 20; ++i) slots.push_back((i * 7 + 3) % 40);
        Words want_pool = pool, want_pages = pages;
        expect_ok(
            host_module::copy_pages(cx, {halves(want_pool), page, seen(bytes(want_pages)), seen(slots.data()), n, in}));
        DeviceArrays device;
        expect_ok(copy_pages({halves(device.both(pool)), page, bytes(device.both(pages)), device.in(slots), n, in}));
        device.finish();
        assert_true(pool == want_pool && pages == want_pages);
        assert_true(n == 0 || want_pool != want_pages);
      }
    }
  }
  assert_int_equal(copy_pages({nullptr, 24, nullptr, nullptr, 1, true}).code(), WEIR_ERR_INTERNAL);
}

void moves__units(void**) {
  random_state = 13;
  OpContext cx;
  constexpr uint32_t kHeads = 3, kUnit = kHeads * kSplitPages;
  for (const uint32_t head_dim : kHeadDims) {
    const uint32_t page = page_bytes_of(head_dim), page_words = page / 4;
    Words pool = noise(size_t{50} * page_words), raw = noise(size_t{30} * page_words),
          staged = noise(size_t{20} * page_words);
    Words window = noise(size_t{kUnit} * page_words), tables = noise(3 * kUnit), n_pages = noise(kHeads), places;
    constexpr uint32_t kMax[] = {50, 30, 20, 1000};
    for (uint32_t i = 0; i < kUnit; ++i) {
      const uint32_t where = below(4);
      places.push_back(UnitPage::at(static_cast<UnitPage::Where>(where), below(kMax[where])));
    }
    Words pos = noise(kUnit), len = noise(kUnit);
    const auto args = [&](LoadUnitArgs a, uint32_t* table) {
      a.host.n_pages = 20;
      a.slots = table, a.first_pos = table + kUnit, a.len = table + 2 * kUnit;
      a.n_kv_heads = kHeads;
      a.page_bytes = page;
      return a;
    };
    Words want_window = window, want_tables = tables, want_n = n_pages;
    LoadUnitArgs host = {};
    host.host.page_slots = seen(places.data()), host.host.unit_pos = seen(pos.data());
    host.host.unit_len = seen(len.data()), host.host.raw_pages = seen(bytes(raw)),
    host.host.pages = seen(bytes(staged));
    host.pool = halves(pool), host.window = halves(want_window), host.n_pages = want_n.data();
    expect_ok(host_module::load_unit(cx, args(host, want_tables.data())));
    DeviceArrays device;
    LoadUnitArgs there = {};
    there.host.page_slots = device.in(places), there.host.unit_pos = device.in(pos);
    there.host.unit_len = device.in(len), there.host.raw_pages = bytes(device.in(raw));
    there.host.pages = bytes(device.in(staged));
    there.pool = halves(device.in(pool)), there.window = halves(device.both(window));
    there.n_pages = device.both(n_pages);
    expect_ok(load_unit(args(there, device.both(tables))));
    device.finish();
    assert_true(window == want_window && tables == want_tables && n_pages == want_n);
  }
}

void moves__resident_rows(void**) {
  random_state = 14;
  OpContext cx;
  for (const uint32_t most : {1u, 31u, 32u, 33u, 700u}) {
    Streams streams(5, 4, most, true);
    Words got = noise(size_t{streams.n_streams()} * host_module::resident_words(streams.capacities)), want = got;
    expect_ok(host_module::mark_resident(cx, {streams.on_host(), want.data(), streams.capacities}));
    DeviceArrays device;
    const KvTables tables = streams.on_device(device);
    expect_ok(mark_resident({tables, device.both(got), streams.capacities}));
    device.finish();
    assert_true(got == want);
  }
}

void moves__lost_digests(void**) {
  random_state = 15;
  OpContext cx;
  for (const uint32_t elements : {8u, 66u, 256u}) {
    Streams streams(3, 4, 300, true);
    Words raw_index, got = noise(size_t{streams.n_rows()} * elements / 2), before = got, want = got;
    for (uint32_t row = 0; row < streams.n_rows(); ++row) {
      const uint32_t other[] = {below(100), kCopyElsewhere};
      raw_index.push_back(one_in(2) ? kNoCopy : other[below(2)]);
    }
    expect_ok(host_module::spoil_lost(cx, {streams.on_host(), raw_index.data(), halves(want), elements}));
    assert_true(want != before);
    DeviceArrays device;
    const KvTables tables = streams.on_device(device);
    expect_ok(spoil_lost({tables, device.in(raw_index), halves(device.both(got)), elements}));
    device.finish();
    assert_true(got == want);
  }
}

// Noise of some size, other noise in each page, with a seed of its own; and the digests of these pages.
void moves__a_row_filled(void**) {
  random_state = 16;
  std::vector<Words> seen_pages;
  for (const uint32_t head_dim : kHeadDims) {
    for (const DigestKind kind : {DigestKind::kNone, DigestKind::kMinMax, DigestKind::kSphereMean}) {
      Streams streams(3, 2, 1, false);
      const uint32_t page_words = page_bytes_of(head_dim) / 4, elements = 2 * page_words;
      const auto digest_words = static_cast<uint32_t>(digest_elements(kind, head_dim) / 2);
      Words pool = noise(size_t{20} * page_words), pages = noise(6 * page_words), slots = {3, 0, 19, 7, 8, 11};
      Words digests = noise(streams.n_rows() * std::max(digest_words, 1u)), want_digests = digests, want_pool = pool;
      DeviceArrays device;
      FillRowArgs a = {};
      a.slots = device.in(slots);
      a.tables = streams.on_device(device);
      a.pool = halves(device.both(pool));
      a.pages = halves(device.both(pages));
      a.head_dim = head_dim;
      a.digest = kind;
      a.digests = halves(device.both(digests));
      a.digest_elements = 2 * digest_words;
      a.seed = uint64_t{head_dim} << 40 | static_cast<uint32_t>(kind);
      expect_ok(fill_row(a));
      device.finish();
      double squares[3] = {};
      for (uint32_t s = 0; s < 6; ++s) {
        const Words page(pages.begin() + s * page_words, pages.begin() + (s + 1) * page_words);
        std::copy(page.begin(), page.end(), want_pool.begin() + slots[s] * page_words);
        for (uint32_t i = 0; i < elements; ++i) {
          const double x = bf16_to_f32(halves(pages)[s * elements + i]);
          assert_true(std::fabs(x) <= (i % 3 == 0 ? 1.0 : i % 3 == 1 ? 2.0 : 4.0));
          squares[i % 3] += x * x / (2.0 * elements);
        }
        assert_true(std::find(seen_pages.begin(), seen_pages.end(), page) == seen_pages.end());
        seen_pages.push_back(page);
        if (kind != DigestKind::kNone && streams.window[s] == 0)
          digest_page(kind, halves(pages) + s * elements, kPageTokens, head_dim,
                      halves(want_digests) + size_t{streams.begin[s]} * 2 * digest_words);
      }
      assert_true(pool == want_pool && digests == want_digests);
      constexpr double kSquares[3] = {1 / 12.0, 4 / 12.0, 16 / 12.0};
      for (uint32_t i = 0; i < 3; ++i) assert_true(std::fabs(squares[i] / kSquares[i] - 1.0) < 0.3);
    }
  }
}

}  // namespace
}  // namespace weir::vulkan

int main() {
  using namespace weir::vulkan;
  const CMUnitTest tests[] = {
      cmocka_unit_test(moves__a_row_out),    cmocka_unit_test(moves__pages_in_and_out),
      cmocka_unit_test(moves__units),        cmocka_unit_test(moves__resident_rows),
      cmocka_unit_test(moves__lost_digests), cmocka_unit_test(moves__a_row_filled),
  };
  return cmocka_run_group_tests_name("vulkan_moves", tests, nullptr, nullptr);
}
