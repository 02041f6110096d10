// kv: with stamps, the raw page that was wanted the longest ago is the one that is compressed, whatever came first, and
// pages that were read from the compressed ones become raw again over those that were wanted longer ago. A copy of a
// store does the same as the store.
#include <unistd.h>

#include <cstdio>
#include <map>
#include <random>

#include "tests/kv/recall_case.h"

namespace {

using namespace weir;
using namespace spill_case;

constexpr uint32_t kTags = 64, kRaw = 8;

// A store whose page `i` has tag i, and which pages are raw as a plain search would have it.
struct Ordered : Store {
  explicit Ordered(uint32_t n_workers) : Store(options_for(kRaw, kTags, n_workers)) { store->set_stamps(stamps); }
  void put(uint32_t tag, bool is_spare = false) {
    const Bytes bytes = page(tag);
    assert_true(store->put(stream_of(tag), position_of(tag), bytes.data(), handles[tag], tag, is_spare).ok());
    spare[tag] = is_spare;
    raw.push_back(tag);
    if (raw.size() > kRaw) raw.erase(next_to_leave());
  }
  std::vector<uint32_t>::iterator next_to_leave() {
    const auto key = [this](uint32_t tag) {
      return std::tuple(spare[tag] ? 0u : 1u, spare[tag] ? 0 : stamps[tag], tag);
    };
    return std::min_element(raw.begin(), raw.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  }
  void check() {
    assert_int_equal(store->stats().pages_raw, raw.size());
    for (const auto& [tag, handle] : handles) {
      const bool is_raw = std::find(raw.begin(), raw.end(), tag) != raw.end();
      assert_int_equal(store->raw_page(handle) != nullptr, is_raw);
      assert_int_equal(get(handle, tag), WEIR_OK);
    }
  }

  uint32_t stamps[kTags] = {};
  std::map<uint32_t, SpillHandle> handles;
  std::map<uint32_t, bool> spare;
  std::vector<uint32_t> raw;
};

void spill_order__what_was_wanted_the_longest_ago_leaves(void**) {
  for (uint32_t n_workers : {0u, 2u}) {
    Ordered s(n_workers);
    std::mt19937 random(7);
    for (uint32_t tag = 0; tag < kTags; ++tag) {
      s.stamps[tag] = position_of(tag);
      for (int i = 0; i < 3; ++i) {  // a few are wanted, some of them that have left
        const uint32_t wanted = static_cast<uint32_t>(random() % (tag + 1));
        s.stamps[wanted] = std::max(s.stamps[wanted], position_of(tag) + 1 + static_cast<uint32_t>(random() % 3));
      }
      s.put(tag);
      s.check();
    }
    // The latest are not the ones that stay.
    assert_true(*std::min_element(s.raw.begin(), s.raw.end()) < kTags - kRaw);
  }
}

// A rewind lowers stamps; what was wanted last before it is then no better than others.
void spill_order__stamps_that_fell(void**) {
  Ordered s(0);
  for (uint32_t tag = 0; tag < 20; ++tag) {
    s.stamps[tag] = 1000 + (tag * 7 % 20);
    s.put(tag);
  }
  for (uint32_t tag = 0; tag < 20; ++tag) s.stamps[tag] = tag % 2 == 0 ? 500 : 501;
  s.store->stamps_fell();
  for (uint32_t tag = 20; tag < 26; ++tag) {
    s.stamps[tag] = 510;
    s.put(tag);
    s.check();
  }
}

// Pages that no step wants leave first, in the order of put.
void spill_order__spare_pages_leave_first(void**) {
  Ordered s(0);
  for (uint32_t tag = 0; tag < 12; ++tag) {
    s.stamps[tag] = 100 - tag;
    s.put(tag, tag % 2 == 1);
    s.check();
  }
}

void spill_order__pages_that_are_read_become_raw_again(void**) {
  for (uint32_t n_workers : {0u, 2u}) {
    Ordered s(n_workers);
    for (uint32_t tag = 0; tag < 20; ++tag) {
      s.stamps[tag] = position_of(tag);
      s.put(tag);
    }
    s.store->drain();
    const uint64_t restored = s.store->stats().restored;
    assert_int_equal(s.get(s.handles[5], 5), WEIR_OK);
    assert_int_equal(s.get(s.handles[19], 19), WEIR_OK);  // raw
    assert_int_equal(s.store->stats().restored, restored + 1);
    s.stamps[5] = 900;
    const SpillStats before = s.store->stats();
    SpillHandle handles[21];
    for (uint32_t tag = 0; tag < 20; ++tag) handles[tag] = s.handles[tag];
    handles[20] = kNoSpill;
    assert_true(s.store->has_compressed());
    assert_int_equal(s.store->find_compressed(handles, s.stamps, 0, 21, 900), 5);
    assert_int_equal(s.store->find_compressed(handles, s.stamps, 6, 21, 900), 21);
    assert_int_equal(s.store->find_compressed(handles, s.stamps, 0, 21, 0), 0);
    assert_int_equal(s.store->find_compressed(handles, s.stamps, 12, 21, 0), 21);  // these are raw
    // Page 2 was wanted longer ago than any that is raw.
    bool is_raw = true;
    assert_true(s.store->make_raw(handles[2], stream_of(2), position_of(2), is_raw).ok());
    assert_false(is_raw);
    assert_true(s.store->make_raw(handles[5], stream_of(5), position_of(5), is_raw).ok());
    assert_true(is_raw);
    s.raw.push_back(5);
    s.raw.erase(s.next_to_leave());
    s.check();
    s.store->drain();
    const SpillStats after = s.store->stats();
    assert_true(after.pages_held == before.pages_held && after.pages_spilled == before.pages_spilled);
    assert_true(after.pages_dropped == 0 && after.errors == 0);
    for (auto& [t, handle] : s.handles) s.store->release(handle);
    assert_int_equal(s.store->stats().stored_bytes, 0);
    assert_int_equal(s.store->n_cells_taken(), 0);
  }
}

// A damaged block is told, and stays what it is.
void spill_order__damaged_pages_do_not_become_raw(void**) {
  Ordered s(0);
  for (uint32_t tag = 0; tag < 12; ++tag) {
    s.stamps[tag] = tag;
    s.put(tag);
  }
  s.stamps[1] = 900;
  for (std::byte& b : s.store->cells_memory()) b ^= std::byte{0x10};
  bool is_raw = false;
  assert_int_equal(s.store->make_raw(s.handles[1], stream_of(1), position_of(1), is_raw).code(), WEIR_ERR_FORMAT);
  assert_false(is_raw);
  assert_null(s.store->raw_page(s.handles[1]));
  assert_int_equal(s.store->stats().pages_raw, kRaw);
}

// Without room for the page that would leave, and where there are no raw slots, nothing moves.
void spill_order__without_room_nothing_becomes_raw(void**) {
  uint32_t stamps[8] = {};
  for (uint32_t n_raw : {0u, 2u}) {
    Store s(options_for(n_raw, 2));
    s.store->set_stamps(stamps);
    std::vector<SpillHandle> handles;
    const auto noise = [](uint32_t i) { return page_makers::random_page(kPageBytes, 100 + i); };
    for (uint32_t i = 0; i < n_raw + 2; ++i) {
      handles.push_back(kNoSpill);
      stamps[i] = i;
      assert_true(s.store->put(i, 0, noise(i).data(), handles[i], i).ok());
    }
    Bytes out(kPageBytes);
    stamps[0] = 900;
    bool is_raw = true;
    assert_true(s.store->make_raw(handles[0], 0, 0, is_raw).ok());
    assert_false(is_raw);
    assert_null(s.store->raw_page(handles[0]));
    assert_true(s.store->get(handles[0], 0, 0, out.data()).ok());
    assert_true(out == noise(0));
  }
}

// From a file, and with a copy of the store that shares the page.
void spill_order__copies_do_the_same(void**) {
  char path[64];
  std::snprintf(path, sizeof path, "spill_order_test_%d.tmp", static_cast<int>(getpid()));
  uint32_t stamps[kTags] = {};
  SpillOptions o = options_for(kRaw, 6);
  o.file_path = path;
  o.file_bytes = 100 * 3 * SpillFile::kCellBytes;
  Store a(o);
  a.store->set_stamps(stamps);
  std::vector<SpillHandle> handles;
  for (uint32_t i = 0; i < 40; ++i) {
    const Bytes bytes = page(i);
    handles.push_back(kNoSpill);
    stamps[i] = position_of(i);
    assert_true(a.store->put(stream_of(i), position_of(i), bytes.data(), handles[i], i).ok());
  }
  assert_true(a.store->stats().pages_in_file > 0);
  for (uint32_t i : {1u, 20u, 30u, 31u}) stamps[i] = 500 + i;
  SpillStore copy(&a.memory, &a.slot_memory, &a.family_memory);
  assert_true(copy.create_copy(*a.store).ok());
  copy.set_stamps(stamps);
  for (SpillStore* s : {a.store.get(), &copy}) {
    for (uint32_t i : {1u, 20u, 30u, 31u}) {
      bool is_raw = false;
      assert_true(s->make_raw(handles[i], stream_of(i), position_of(i), is_raw).ok());
      assert_true(is_raw);
    }
  }
  for (uint32_t i = 40; i < 50; ++i) {
    const Bytes bytes = page(i);
    handles.push_back(kNoSpill);
    stamps[i] = position_of(i);
    for (SpillStore* s : {&copy, a.store.get()}) {
      SpillHandle handle = kNoSpill;
      assert_true(s->put(stream_of(i), position_of(i), bytes.data(), handle, i).ok());
      handles[i] = handle;
    }
  }
  assert_non_null(a.store->raw_page(handles[1]));
  for (uint32_t i = 0; i < 50; ++i) {
    assert_int_equal(a.store->raw_page(handles[i]) != nullptr, copy.raw_page(handles[i]) != nullptr);
    Bytes out(kPageBytes);
    assert_true(copy.get(handles[i], stream_of(i), position_of(i), out.data()).ok());
    assert_true(out == page(i));
    assert_int_equal(a.get(handles[i], i), WEIR_OK);
  }
  const SpillStats x = a.store->stats(), y = copy.stats();
  assert_true(x.stored_bytes == y.stored_bytes && x.pages_in_file == y.pages_in_file && x.pages_raw == y.pages_raw);
}

// The tables of a session: the page that was wanted stays raw, though it is the oldest, and one that came back from the
// compressed ones is raw again when the next pages are sealed.
void spill_order__by_the_stamps_of_a_session(void**) {
  using namespace recall_case;
  SpillOptions o = store_for(one_layer(3));
  o.raw_bytes = 4 * o.page_bytes;
  o.budget_bytes += o.raw_bytes;
  Recall r(one_layer(3), o);
  const auto is_raw = [&](uint32_t row) { return r.store->raw_page(r.kv.stream(0).copies[row]) != nullptr; };
  const auto want = [&](uint32_t row) {
    for (uint32_t s = 0; s < 2; ++s) r.kv.stream(s).stamp[row] = r.kv.n_tokens() + 1;
  };
  r.append(32);
  assert_true(is_raw(0) && is_raw(1));
  r.evict_all(1);
  want(0);
  r.append(16);
  assert_true(is_raw(0) && !is_raw(1) && is_raw(2));
  r.evict_all(2);
  for (uint32_t s = 0; s < 2; ++s) assert_true(r.cold.bring_back(s, 1));
  want(1);
  r.evict_all(0);
  r.append(16);
  assert_true(is_raw(1) && is_raw(3) && !is_raw(0) && !is_raw(2));
  std::vector<uint16_t> got(kElements);
  for (uint32_t s = 0; s < 2; ++s) {
    for (uint32_t row = 0; row < 4; ++row) {
      assert_true(r.cold.read(s, row, got.data()));
      assert_true(got == r.page(s, row));
    }
  }
  r.check_copies();
  assert_int_equal(r.store->stats().pages_raw, 4);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(spill_order__what_was_wanted_the_longest_ago_leaves),
      cmocka_unit_test(spill_order__stamps_that_fell),
      cmocka_unit_test(spill_order__spare_pages_leave_first),
      cmocka_unit_test(spill_order__pages_that_are_read_become_raw_again),
      cmocka_unit_test(spill_order__damaged_pages_do_not_become_raw),
      cmocka_unit_test(spill_order__without_room_nothing_becomes_raw),
      cmocka_unit_test(spill_order__copies_do_the_same),
      cmocka_unit_test(spill_order__by_the_stamps_of_a_session),
  };
  return cmocka_run_group_tests_name("kv/test_spill_order", tests, nullptr, nullptr);
}
