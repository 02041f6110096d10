// kv: tables whose pages come back. Rows stay when pages leave the pool, what comes back is what left, bit for bit, the
// store holds the full pages of the streams that the budget rules and no others, and it drops the page first that was
// wanted the longest ago. A page that is lost is never given out.
#include <cmath>

#include "ops/page_digest.h"
#include "tests/kv/recall_case.h"

namespace {

using namespace recall_case;

void cold_pages__rows_do_not_leave(void**) {
  Recall r(small_shape());
  assert_int_equal(r.kv.shape().n_rows(), 4 * 12);
  assert_int_equal(r.kv.shape().n_slots(), 4 * 4);
  r.append(60);
  r.kv.evict(2, 1);
  check(r.kv);
  const StreamView v = r.kv.stream(2);
  assert_int_equal(v.n_pages, 4);
  assert_int_equal(v.n_resident, 3);
  assert_int_equal(v.capacity, 12);
  assert_int_equal(v.n_slots, 4);
  assert_true(!r.has_slot(2, 1) && r.has_copy(2, 1) && !v.is_lost(1));
  assert_true(r.kv.has_cold(2) && !r.kv.has_cold(1));
  assert_int_equal(v.first_pos[1], 16);
  assert_int_equal(v.len[1], 16);
  assert_int_equal(r.kv.pages_evicted(), 1);
  assert_int_equal(r.kv.pages_lost(), 0);
  // The other streams have no free slot for a fifth page, and then none has one opened.
  assert_int_equal(r.kv.reserve(5, 0, 65).code(), WEIR_ERR_INTERNAL);
  check(r.kv);
  for (uint32_t s : {0u, 1u, 3u}) r.kv.evict(s, 0);
  r.append(20);
  assert_int_equal(r.kv.stream(3).n_pages, 5);
  assert_int_equal(r.kv.pages_resident_max(), 16);
}

void cold_pages__digests_are_by_row(void**) {
  Recall r(small_shape());
  r.append(64);
  const auto check_digests = [&] {
    for (uint32_t s = 0; s < 4; ++s) {
      for (uint32_t row = 0; row + 1 < r.kv.stream(s).n_pages; ++row) {
        std::vector<uint16_t> want(digest_elements(DigestKind::kCuboidMean, kHeadDim));
        digest_page(DigestKind::kCuboidMean, r.page(s, row).data(), kPageTokens, kHeadDim, want.data());
        assert_memory_equal(r.digest(s, row), want.data(), want.size() * sizeof(uint16_t));
      }
    }
  };
  for (uint32_t page = 0; page < 7; ++page) {
    r.evict_all(page);
    r.append(16);  // into the slot of the page that left
    check_digests();
  }
  for (uint32_t s = 0; s < 4; ++s) {
    r.kv.evict(s, 8);
    assert_true(r.cold.bring_back(s, s));
  }
  check_digests();
}

// Pages leave, come back and are read where they are, with every kind of store.
void cold_pages__what_comes_back_is_what_left(void**) {
  for (uint32_t n_workers : {0u, 2u}) {
    for (uint64_t raw_pages : {0u, 5u, 100u}) {
      SpillOptions o = store_for(small_shape(), n_workers);
      o.raw_bytes = raw_pages * o.page_bytes;
      o.budget_bytes += o.raw_bytes;
      Recall r(small_shape(), o);
      uint64_t random = 7 + n_workers, n_recalled = 0;
      const auto draw = [&](uint32_t below) { return static_cast<uint32_t>(page_makers::next_random(random) % below); };
      std::vector<uint16_t> got(kElements);
      for (uint32_t turn = 0; turn < 400; ++turn) {
        const uint32_t s = draw(4);
        if (turn % 5 == 0 && r.kv.n_tokens() < 180) {
          for (uint32_t i = 0; i < 4; ++i) {
            const StreamView v = r.kv.stream(i);
            if (v.n_resident < 4) continue;
            uint32_t row = draw(v.n_pages - 1);
            while (v.slots[row] == kNoSlot) row = draw(v.n_pages - 1);
            r.kv.evict(i, row);
          }
          r.append(1 + draw(8));
        }
        const StreamView v = r.kv.stream(s);
        const uint32_t n_whole = r.kv.n_tokens() / kPageTokens;
        if (n_whole == 0) continue;
        const uint32_t row = draw(n_whole);
        assert_true(r.cold.read(s, row, got.data()));
        assert_true(got == r.page(s, row));
        if (v.slots[row] != kNoSlot) {
          if (row + 1 < v.n_pages && draw(3) == 0) r.kv.evict(s, row);
        } else if (v.n_resident < 4) {
          assert_true(r.cold.bring_back(s, row));
          assert_memory_equal(r.kv.page_keys(v.slots[row]), r.page(s, row).data(), kElements * sizeof(uint16_t));
          assert_int_equal(r.cold.pages_recalled(), ++n_recalled);
        }
        check(r.kv);
      }
      r.check_copies();
      assert_true(n_recalled > 30 && r.kv.pages_evicted() > 30);
      assert_int_equal(r.kv.pages_lost(), 0);
    }
  }
}

void cold_pages__only_full_pages_are_copied(void**) {
  Recall r(small_shape());
  r.append(15);
  assert_int_equal(r.held(), 0);
  r.append(1);
  assert_int_equal(r.held(), 4);
  assert_true(r.has_copy(3, 0));
  r.append(33);  // two whole pages and one token
  assert_int_equal(r.held(), 12);
  assert_true(r.has_copy(0, 2) && !r.has_copy(0, 3));
  r.append(14);
  assert_int_equal(r.held(), 12);
  r.append(1);
  r.check_copies();
  assert_int_equal(r.held(), 16);
  assert_int_equal(r.store->stats().pages_spilled, 16);  // each once
  // Leaving and coming back copies nothing.
  r.kv.evict(0, 1);
  assert_true(r.cold.bring_back(0, 1));
  r.kv.evict(0, 1);
  assert_int_equal(r.store->stats().pages_spilled, 16);
}

// With room for six copies: cold pages go before resident ones, of these the one wanted the longest ago, then by stream
// and row. What goes while it is cold is lost; what goes while it is resident is lost when it leaves.
void cold_pages__order_of_dropping(void**) {
  SpillOptions o = store_for(one_layer(4));
  o.max_pages = 6;
  Recall r(one_layer(4), o);
  r.append(48);  // three pages a stream, all copied
  assert_int_equal(r.held(), 6);
  const uint32_t stamps[2][3] = {{9, 4, 4}, {2, 4, 7}};
  for (uint32_t s = 0; s < 2; ++s) std::copy_n(stamps[s], 3, r.kv.stream(s).stamp);
  for (uint32_t row : {0u, 1u}) r.kv.evict(0, row);
  r.kv.evict(1, 1);
  // Two copies come: dropped are (stamp 4, stream 0, row 1) and (4, stream 1, row 1), which are cold. Row 0 of stream 1
  // is older, and row 2 of stream 0 comes first among the stamps of 4, but both are resident.
  r.append(16);
  assert_true(!r.has_copy(0, 1) && !r.has_copy(1, 1));
  assert_true(r.kv.stream(0).is_lost(1) && r.kv.stream(1).is_lost(1));
  assert_true(r.has_copy(0, 0) && r.has_copy(0, 2) && r.has_copy(1, 0) && r.has_copy(1, 2));
  assert_int_equal(r.kv.pages_lost(), 2);
  // Then the last cold page, though it was wanted last; then of the resident ones the stalest.
  r.append(16);
  assert_true(r.kv.stream(0).is_lost(0));
  assert_true(!r.has_copy(1, 0) && r.has_slot(1, 0) && r.has_copy(0, 2));
  assert_int_equal(r.kv.pages_lost(), 3);
  r.check_copies();
  assert_int_equal(r.held(), 6);
  assert_int_equal(r.store->stats().pages_dropped, 4);
  r.kv.evict(1, 0);
  assert_true(r.kv.stream(1).is_lost(0));
  assert_int_equal(r.kv.pages_lost(), 4);
}

void cold_pages__equal_stamps_go_by_stream_and_row(void**) {
  SpillOptions o = store_for(one_layer(4));
  o.max_pages = 6;
  Recall r(one_layer(4), o);
  r.append(48);
  for (uint32_t s = 0; s < 2; ++s) std::fill_n(r.kv.stream(s).stamp, 3, 5u);
  for (uint32_t row : {1u, 2u}) r.evict_all(row);
  r.append(16);
  // Two are needed: both of stream 0.
  assert_true(r.kv.stream(0).is_lost(1) && r.kv.stream(0).is_lost(2));
  assert_true(r.has_copy(1, 1) && r.has_copy(1, 2));
}

// A page without a copy stays where it is; when it leaves it is lost. It keeps its row, and its digest is NaN.
void cold_pages__lost_pages(void**) {
  SpillOptions o = store_for(one_layer(3));
  o.max_pages = 1;
  Recall r(one_layer(3), o);
  r.append(16);  // the copy of stream 0 is dropped for that of stream 1
  assert_true(!r.has_copy(0, 0) && r.has_copy(1, 0) && r.has_slot(0, 0));
  assert_int_equal(r.kv.pages_lost(), 0);
  r.append(16);
  assert_int_equal(r.kv.set_flags(0, 16, kPageKept, 0), 2);
  r.kv.evict(0, 0);
  assert_true(r.kv.stream(0).is_lost(0));
  assert_int_equal(r.kv.pages_lost(), 1);
  // No step wants it for being pinned, and it cannot be pinned again.
  assert_int_equal(r.kv.stream(0).flags[0], 0);
  assert_int_equal(r.kv.set_flags(0, 16, kPageKept, 0), 1);
  assert_int_equal(r.kv.stream(0).flags[0], 0);
  assert_int_equal(r.kv.stream(0).n_pages, 2);
  for (uint32_t i = 0; i < digest_elements(DigestKind::kMinMax, kHeadDim); ++i)
    assert_true(std::isnan(bf16_to_f32(r.digest(0, 0)[i])));
  assert_false(std::isnan(bf16_to_f32(r.digest(0, 1)[0])));
  std::vector<uint16_t> got(kElements);
  assert_false(r.cold.read(0, 0, got.data()));
  assert_false(r.cold.bring_back(0, 0));
  check(r.kv);
  assert_int_equal(r.cold.pages_recalled(), 0);
  assert_int_equal(r.kv.pages_lost(), 1);  // counted once
}

// A damaged copy is no page: the slot is free again, and the store has forgotten it.
void cold_pages__damaged_copies_are_lost(void**) {
  Recall r(one_layer(3));
  r.append(48);
  r.store->drain();
  r.evict_all(0);
  r.evict_all(1);
  for (std::byte& b : r.store->cells_memory()) b ^= std::byte{0x10};
  std::vector<uint16_t> got(kElements);
  const uint64_t held = r.held();
  assert_false(r.cold.bring_back(0, 0));
  check(r.kv);
  assert_true(r.kv.stream(0).is_lost(0));
  assert_int_equal(r.kv.stream(0).n_resident, 1);
  assert_false(r.cold.read(1, 1, got.data()));
  assert_true(r.kv.stream(1).is_lost(1));
  assert_int_equal(r.held(), held - 2);
  assert_int_equal(r.kv.pages_lost(), 2);
  assert_int_equal(r.cold.pages_recalled(), 0);
}

// Back into a page that is cold: it comes back, shorter, and loses its copy, as the pages after it do.
void cold_pages__truncate_into_a_cold_page(void**) {
  for (bool full : {false, true}) {
    Recall r(one_layer(4));
    r.append(64);
    r.evict_all(1);
    if (full) {
      r.append(16);
      for (uint32_t s = 0; s < 2; ++s) r.kv.stream(s).stamp[0] = 1;  // the page that would leave
    }
    assert_true(r.cold.cut(23, true));
    check(r.kv);
    r.check_copies();
    assert_int_equal(r.kv.n_tokens(), 23);
    assert_int_equal(r.held(), 2);  // the first page of both
    for (uint32_t s = 0; s < 2; ++s) {
      const StreamView v = r.kv.stream(s);
      assert_int_equal(v.n_pages, 2);
      assert_int_equal(v.len[1], 7);
      assert_true(r.has_slot(s, 1));
      assert_memory_equal(r.kv.page_keys(v.slots[1]), r.page(s, 1).data(), 7 * kHeadDim * sizeof(uint16_t));
      uint16_t want[2 * kHeadDim];
      digest_page(DigestKind::kMinMax, r.page(s, 1).data(), 7, kHeadDim, want);
      assert_memory_equal(r.digest(s, 1), want, sizeof(want));
    }
    // The pages that are gone made room for it; no older one had to leave.
    assert_int_equal(r.kv.pages_evicted(), 2);
    assert_true(r.has_slot(0, 0) && r.has_slot(1, 0));
    // Other tokens follow, and their pages are those that count.
    r.version = 1;
    r.write(0, 16, 7), r.write(1, 16, 7);
    r.append(9);
    assert_int_equal(r.held(), 4);
    r.evict_all(1);
    std::vector<uint16_t> got(kElements);
    for (uint32_t s = 0; s < 2; ++s) {
      assert_true(r.cold.bring_back(s, 1) && r.cold.read(s, 1, got.data()));
      assert_true(got == r.page(s, 1));
    }
  }
}

void cold_pages__truncate_between_pages(void**) {
  Recall r(one_layer(4));
  r.append(64);
  r.evict_all(0);
  r.evict_all(1);
  assert_true(r.cold.cut(32, true));  // nothing has to come back
  check(r.kv);
  r.check_copies();
  assert_int_equal(r.kv.stream(1).n_resident, 0);
  assert_int_equal(r.held(), 4);
  r.append(20);
  assert_true(r.cold.bring_back(0, 0) && r.cold.bring_back(0, 1));
  assert_true(r.cold.cut(0, true));
  check(r.kv);
  assert_int_equal(r.kv.n_tokens(), 0);
  assert_int_equal(r.held(), 0);
  r.append(40);
}

// Back into a page that is lost, or that has no slot even when the pages after it are gone: no token is gone.
void cold_pages__truncate_that_cannot_be(void**) {
  SpillOptions o = store_for(one_layer(4));
  o.max_pages = 7;
  Recall lost(one_layer(4), o);
  lost.append(48);
  lost.kv.stream(1).stamp[1] = 1;
  lost.evict_all(1);
  lost.append(16);
  assert_true(lost.kv.stream(1).is_lost(1));
  const uint64_t held = lost.held();
  assert_true(!lost.has_slot(0, 1) && lost.has_copy(0, 1));
  assert_false(lost.cold.cut(20, true));
  assert_false(lost.has_slot(0, 1));  // nor has it come back in the stream that has it
  check(lost.kv);
  lost.check_copies();
  assert_int_equal(lost.kv.n_tokens(), 64);
  assert_int_equal(lost.held(), held);
  assert_true(lost.cold.cut(16, true));  // behind the page

  Recall full(one_layer(2));
  full.append(32);
  full.evict_all(0);
  full.append(16);
  full.evict_all(2);
  assert_true(full.cold.bring_back(0, 0) && full.cold.bring_back(1, 0));
  assert_false(full.cold.cut(40, true));
  check(full.kv);
  full.check_copies();
  assert_int_equal(full.kv.n_tokens(), 48);
}

// A copy that is damaged is found before anything changes, also if other streams have theirs.
void cold_pages__truncate_into_a_damaged_page(void**) {
  Recall r(one_layer(4));
  r.append(64);
  r.evict_all(1);
  r.append(10);
  for (std::byte& b : r.store->cells_memory()) b ^= std::byte{0x40};
  const uint64_t held = r.held();
  assert_false(r.cold.cut(23, true));
  check(r.kv);
  r.check_copies();
  assert_int_equal(r.kv.n_tokens(), 74);
  assert_int_equal(r.held(), held - 1);
  assert_true(r.kv.stream(0).is_lost(1) && r.has_copy(1, 1));
  assert_int_equal(r.kv.pages_evicted(), 2);
  assert_true(r.cold.cut(16, true));
  assert_int_equal(r.kv.n_tokens(), 16);
}

void cold_pages__reset_releases_every_copy(void**) {
  for (uint32_t n_workers : {0u, 2u}) {
    Recall r(small_shape(), store_for(small_shape(), n_workers));
    for (int turn = 0; turn < 3; ++turn) {
      r.append(64);
      r.evict_all(0);
      r.evict_all(2);
      r.append(25);
      assert_int_equal(r.held(), 4 * 5);
      r.cold.reset();
      r.kv.reset();
      check(r.kv);
      assert_int_equal(r.held(), 0);
      assert_int_equal(r.store->stats().stored_bytes, 0);
      assert_int_equal(r.store->stats().pages_dropped, 0);
      ++r.version;
    }
  }
}

// A layer with a window of its own keeps its pages as ever, with a slot for each row. Their copies are not in the
// table. They are the first to go when the store is full, and come back when the conversation goes back.
KvShape with_windows() {
  KvShape shape = {4, 2, kHeadDim, 12, DigestKind::kCuboidMean};
  shape.window = 20;
  shape.global_every = 2;
  shape.window_pages = 4;
  shape.recall_slots = 5;
  return shape;
}

void append_pages(Recall& r, uint32_t first, uint32_t end) {
  for (uint32_t page = first; page < end; ++page) {
    for (uint32_t s = 0; s < 8; ++s) {
      if (r.kv.window(s) != 0) r.kv.slide(s, r.kv.n_tokens());
      if (r.kv.window(s) == 0 && page >= 5 && r.has_slot(s, page - 5)) r.kv.evict(s, page - 5);
    }
    r.append(16);
    r.check_copies();
  }
}

bool has_window_copy(const Recall& r, uint32_t s, uint32_t page) { return r.kv.copy_of(s, page) != kNoCopy; }

void cold_pages__of_local_layers_are_copied_beside_the_table(void**) {
  const KvShape shape = with_windows();
  Recall r(shape);
  assert_int_equal(shape.n_rows(), 4 * 4 + 4 * 12);
  assert_int_equal(shape.n_slots(), 4 * 4 + 4 * 5);
  append_pages(r, 0, 11);
  assert_int_equal(r.held(), 8 * 11);
  assert_int_equal(r.kv.stream(0).n_pages, 3);
  assert_int_equal(r.kv.stream(0).capacity, 4);
  assert_int_equal(r.kv.stream(3).n_pages, 11);
  std::vector<uint16_t> got(kElements);
  for (uint32_t s : {2u, 3u, 6u, 7u}) {
    assert_true(r.cold.read(s, 0, got.data()));
    assert_true(got == r.page(s, 0));
  }
  r.cold.reset();
  r.kv.reset();
  assert_int_equal(r.held(), 0);
}

void cold_pages__of_local_layers_come_back(void**) {
  for (const uint32_t n : {1u, 15u, 16u, 33u, 35u, 36u, 40u, 51u, 52u, 96u, 100u}) {
    Recall r(with_windows());
    append_pages(r, 0, 11);
    assert_true(r.cold.has_windows(n));
    assert_true(r.cold.cut(n, true));
    check(r.kv);
    r.check_copies();
    // The pages that a token at position n sees: from the one with position n - 19 on.
    const uint32_t first = n < 19 ? 0 : (n - 19) / 16, end = (n + 15) / 16;
    for (uint32_t s : {0u, 1u, 4u, 5u}) {
      const StreamView v = r.kv.stream(s);
      assert_int_equal(v.n_pages, end - first);
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        assert_int_equal(v.first_pos[row], (first + row) * 16);
        assert_int_equal(v.len[row], std::min(16u, n - v.first_pos[row]));
        const std::vector<uint16_t> want = r.page(s, first + row);
        assert_memory_equal(r.kv.page_keys(v.slots[row]), want.data(), v.len[row] * kHeadDim * sizeof(uint16_t));
      }
    }
    assert_int_equal(r.held(), 8 * (n / 16));
    if (n % 16 == 0) append_pages(r, n / 16, 11);
  }
}

// A window's pages make room for others, the oldest first; where one is missing, nobody claims to have it.
void cold_pages__of_local_layers_are_dropped_first(void**) {
  SpillOptions o = store_for(with_windows());
  o.max_pages = 50;  // 44 are those of the other layers
  Recall r(with_windows(), o);
  append_pages(r, 0, 11);
  assert_int_equal(r.held(), 50);
  assert_int_equal(r.kv.pages_lost(), 0);
  for (uint32_t s : {2u, 3u, 6u, 7u}) {
    for (uint32_t page = 0; page < 11; ++page) assert_true(r.has_copy(s, page));
  }
  assert_true(has_window_copy(r, 0, 10) && has_window_copy(r, 5, 10) && !has_window_copy(r, 0, 9));
  assert_true(has_window_copy(r, 4, 9) && has_window_copy(r, 5, 9));
  assert_true(r.cold.has_windows(r.kv.n_tokens()));
  assert_false(r.cold.has_windows(60));
  assert_false(r.cold.cut(60, true));  // the next token would go into a page that is missing
  check(r.kv);
  assert_int_equal(r.kv.n_tokens(), 11 * 16);
  assert_true(r.cold.cut(48, true));  // what is missing stays missing
  check(r.kv);
  r.check_copies();
  assert_int_equal(r.kv.stream(0).n_pages, 0);
}

void cold_pages__of_local_layers_that_are_damaged(void**) {
  SpillOptions o = store_for(with_windows());
  o.raw_bytes = 0;
  Recall r(with_windows(), o);
  append_pages(r, 0, 11);
  r.store->drain();
  for (std::byte& b : r.store->cells_memory()) b ^= std::byte{0x40};
  assert_false(r.cold.cut(32, true));
  check(r.kv);
  r.check_copies();
  assert_int_equal(r.kv.n_tokens(), 11 * 16);
  // All that were needed are known to be gone, others were not looked at; without them it works.
  for (uint32_t s : {0u, 1u, 4u, 5u}) assert_false(has_window_copy(r, s, 0) || has_window_copy(r, s, 1));
  assert_true(has_window_copy(r, 0, 2));
  assert_true(r.cold.cut(32, true));
  check(r.kv);
  assert_int_equal(r.kv.stream(0).n_pages, 0);
}

// An older page does not come back where a newer one of the window is missing: they follow each other.
void cold_pages__of_local_layers_have_no_holes(void**) {
  Recall r(with_windows());
  append_pages(r, 0, 11);
  uint32_t& copy = *r.kv.copy_entry(0, 2);
  r.store->release(copy);
  copy = kNoCopy;  // as a store leaves it that has lost the page
  assert_true(has_window_copy(r, 0, 1));
  assert_true(r.cold.cut(48, true));  // the next token sees pages 1 and 2
  check(r.kv);
  assert_int_equal(r.kv.stream(0).n_pages, 0);
  assert_int_equal(r.kv.stream(1).n_pages, 2);
}

// Tables, digests and pages take what the shape says.
void cold_pages__arena_measures_what_it_takes(void**) {
  const KvShape shape = small_shape();
  Arena m[3];
  KvCache kv;
  kv.lay_out(shape, m[0], m[1], m[2]);
  assert_int_equal(m[0].used(), 4 * 4 * kElements * 2);
  assert_int_equal(m[1].used(), 4 * 12 * digest_elements(DigestKind::kCuboidMean, kHeadDim) * 2);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(cold_pages__rows_do_not_leave),
      cmocka_unit_test(cold_pages__digests_are_by_row),
      cmocka_unit_test(cold_pages__what_comes_back_is_what_left),
      cmocka_unit_test(cold_pages__only_full_pages_are_copied),
      cmocka_unit_test(cold_pages__order_of_dropping),
      cmocka_unit_test(cold_pages__equal_stamps_go_by_stream_and_row),
      cmocka_unit_test(cold_pages__lost_pages),
      cmocka_unit_test(cold_pages__damaged_copies_are_lost),
      cmocka_unit_test(cold_pages__truncate_into_a_cold_page),
      cmocka_unit_test(cold_pages__truncate_between_pages),
      cmocka_unit_test(cold_pages__truncate_that_cannot_be),
      cmocka_unit_test(cold_pages__truncate_into_a_damaged_page),
      cmocka_unit_test(cold_pages__reset_releases_every_copy),
      cmocka_unit_test(cold_pages__of_local_layers_are_copied_beside_the_table),
      cmocka_unit_test(cold_pages__of_local_layers_come_back),
      cmocka_unit_test(cold_pages__of_local_layers_are_dropped_first),
      cmocka_unit_test(cold_pages__of_local_layers_that_are_damaged),
      cmocka_unit_test(cold_pages__of_local_layers_have_no_holes),
      cmocka_unit_test(cold_pages__arena_measures_what_it_takes),
  };
  return cmocka_run_group_tests_name("cold_pages", tests, nullptr, nullptr);
}
