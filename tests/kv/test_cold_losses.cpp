// kv: what happens to spilled pages when the store is full, its file fails or its memory is damaged, with a strict
// store and with one that drops pages; and what a step leaves behind that was taken back.
#include <errno.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "tests/kv/recall_case.h"

namespace {

using namespace recall_case;

// A page in the pool whose copy was dropped, or never made, gets one as soon as there is room.
void cold_losses__dropped_copies_are_made_again(void**) {
  SpillOptions o = store_for(one_layer(4));
  o.max_pages = 6;
  Recall r(one_layer(4), o);
  r.append(64);  // eight pages, all in the pool: two have no copy
  assert_int_equal(r.held(), 6);
  assert_true(r.cold.cut(48, true));
  for (uint32_t s = 0; s < 2; ++s) {
    for (uint32_t row = 0; row < 3; ++row) assert_true(r.has_copy(s, row));
  }
  r.check_copies();
  r.append(12);  // fills nothing
  for (uint32_t row = 0; row < 3; ++row) r.evict_all(row);
  assert_int_equal(r.kv.pages_lost(), 0);
  for (uint32_t s = 0; s < 2; ++s) {
    for (uint32_t row = 0; row < 3; ++row) {
      assert_true(r.cold.bring_back(s, row));
      assert_memory_equal(r.kv.page_keys(r.kv.stream(s).slots[row]), r.page(s, row).data(), kElements * 2);
    }
  }
}

// --- a strict store ------------------------------------------------------------------------------------------------

struct Strict : Recall {
  Strict(const KvShape& shape, const SpillOptions& o) : Recall(shape, o) { cold.start(kv, store.get(), true); }
};

// Room is asked for before the tokens that fill a page, for all that they fill, and refused without a change.
void cold_losses__strict_needs_room_first(void**) {
  SpillOptions o = store_for(one_layer(4));
  o.max_pages = 5;
  Strict r(one_layer(4), o);
  assert_true(r.cold.prepare(32).ok());
  r.append(32);
  assert_true(r.cold.prepare(15).ok());
  assert_int_equal(r.cold.prepare(16).code(), WEIR_ERR_BUDGET);
  assert_int_equal(r.cold.prepare(33).code(), WEIR_ERR_BUDGET);
  assert_true(r.cold.failure().ok());
  r.append(15);
  assert_int_equal(r.cold.prepare(1).code(), WEIR_ERR_BUDGET);
  assert_int_equal(r.held(), 4);
  assert_int_equal(r.store->stats().pages_dropped, 0);
  assert_int_equal(r.kv.pages_lost(), 0);
  assert_true(r.cold.cut(20, true));
  assert_true(r.cold.prepare(4).ok());
  assert_true(r.cold.prepare(12).ok());
  r.append(12);
  assert_int_equal(r.held(), 4);
}

// A store that is not strict never refuses.
void cold_losses__others_need_no_room(void**) {
  SpillOptions o = store_for(one_layer(4));
  o.max_pages = 1;
  Recall r(one_layer(4), o);
  for (uint32_t i = 0; i < 4; ++i) {
    assert_true(r.cold.prepare(16).ok());
    r.append(16);
  }
  r.evict_all(0);
  assert_true(r.kv.pages_lost() > 0);
  assert_true(r.cold.failure().ok());
}

// A damaged page ends the conversation, up to a rewind to before it.
void cold_losses__strict_stops_at_a_loss(void**) {
  Strict r(one_layer(4), store_for(one_layer(4)));
  r.append(64);
  r.store->drain();
  r.evict_all(1);
  r.evict_all(2);
  for (std::byte& b : r.store->cells_memory()) b ^= std::byte{0x10};
  assert_true(r.cold.failure().ok());
  assert_false(r.cold.bring_back(0, 2));
  assert_int_equal(r.cold.failure().code(), WEIR_ERR_FORMAT);
  assert_non_null(std::strstr(last_error_text(), "from position 32 on"));
  assert_int_equal(r.cold.prepare(1).code(), WEIR_ERR_FORMAT);
  std::vector<uint16_t> got(kElements);
  assert_false(r.cold.read(1, 1, got.data()));
  assert_int_equal(r.cold.failure().code(), WEIR_ERR_FORMAT);
  assert_non_null(std::strstr(last_error_text(), "from position 16 on"));
  assert_int_equal(r.kv.pages_lost(), 2);
  assert_true(r.cold.cut(32, true));
  assert_false(r.cold.failure().ok());
  assert_true(r.cold.cut(16, true));
  assert_true(r.cold.failure().ok());
  assert_true(r.cold.prepare(16).ok());
  r.append(16);
  r.cold.reset();
  assert_true(r.cold.failure().ok());
}

// ---------------------------------------------------------------------------------------------------------------------

bool file_fails = false;
ssize_t failing_read(int fd, void* data, size_t bytes, off_t offset) {
  errno = EIO;
  return file_fails ? -1 : kSystemFile.read(fd, data, bytes, offset);
}
ssize_t failing_write(int fd, const void* data, size_t bytes, off_t offset) {
  errno = ENOSPC;
  return file_fails ? -1 : kSystemFile.write(fd, data, bytes, offset);
}

// When the file is given up, its cold pages are lost at once, and its copies of resident pages are made again.
void cold_losses__a_lost_file_is_noticed_at_once(void**) {
  const std::string path = "cold_pages_test_" + std::to_string(getpid()) + ".tmp";
  const FileCalls calls = {kSystemFile.open, kSystemFile.unlink, kSystemFile.allocate, failing_read, failing_write};
  for (bool strict : {false, true}) {
    for (bool by_write : {false, true}) {
      SpillOptions o = store_for(one_layer(6));
      o.budget_bytes = spill_worst_bytes(o.page_bytes, 4);
      o.file_path = path.c_str();
      o.file_bytes = 1 << 16;
      o.file_calls = &calls;
      file_fails = false;
      Recall r(one_layer(6), o);
      r.cold.start(r.kv, r.store.get(), strict);
      while (r.store->stats().pages_in_file < 4) {
        assert_true(r.kv.n_tokens() < 96);
        assert_true(r.cold.prepare(16).ok());
        r.append(16);
      }
      r.kv.evict(0, 0);
      r.kv.evict(1, 1);
      const uint64_t n_in_file = r.store->stats().pages_in_file, held = r.held();
      uint32_t n_cold = 0;
      for (uint32_t s = 0; s < 2; ++s) {
        for (uint32_t row = 0; row < 2; ++row) n_cold += !r.has_slot(s, row);
      }
      assert_int_equal(n_cold, 2);
      file_fails = true;
      if (by_write) {
        while (!r.store->file_given_up()) {
          const Status room = r.cold.prepare(16);
          if (strict && !room.ok()) {
            assert_int_equal(room.code(), WEIR_ERR_IO);
            break;
          }
          for (uint32_t s = 0; s < 2; ++s) {
            if (r.kv.stream(s).n_resident == 6) r.kv.evict(s, 2 + s);
          }
          r.append(16);
        }
      } else {
        assert_false(r.cold.bring_back(0, 0));
      }
      assert_true(r.store->file_given_up());
      assert_true(r.kv.stream(0).is_lost(0) && r.kv.stream(1).is_lost(1));
      assert_true(r.kv.pages_lost() >= 2);
      assert_int_equal(r.store->stats().pages_in_file, 0);
      if (!by_write) assert_int_equal(r.kv.pages_lost(), 2);
      if (!by_write) assert_int_equal(r.held(), held - n_in_file);
      assert_int_equal(r.cold.failure().code(), strict ? WEIR_ERR_IO : WEIR_OK);
      r.check_copies();
      if (strict) continue;
      // Resident pages have their copies again where there is room.
      assert_true(r.cold.cut(32, true));
      assert_true(r.has_slot(0, 1) && r.has_slot(1, 0));
      assert_true(r.has_copy(0, 1) && r.has_copy(1, 0));
      r.check_copies();
    }
  }
}

// A step that is taken back was no step: the stamps of the pages that it wanted are not those of the next one.
void cold_losses__stamps_of_a_step_that_was_taken_back(void**) {
  Recall r(small_shape());
  r.append(50);
  const StreamView v = r.kv.stream(2);
  v.stamp[0] = 20;
  {
    KvReservation reservation(r.kv);
    assert_true(r.kv.reserve(1, 0, 51).ok());
    v.stamp[1] = 51;
  }
  assert_int_equal(v.stamp[0], 20);
  assert_int_equal(v.stamp[1], 50);
  assert_true(r.cold.cut(35, true));
  assert_int_equal(v.stamp[0], 20);
  assert_int_equal(v.stamp[1], 35);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(cold_losses__dropped_copies_are_made_again),
      cmocka_unit_test(cold_losses__strict_needs_room_first),
      cmocka_unit_test(cold_losses__others_need_no_room),
      cmocka_unit_test(cold_losses__strict_stops_at_a_loss),
      cmocka_unit_test(cold_losses__a_lost_file_is_noticed_at_once),
      cmocka_unit_test(cold_losses__stamps_of_a_step_that_was_taken_back),
  };
  return cmocka_run_group_tests_name("cold_losses", tests, nullptr, nullptr);
}
