// kv: copies of pages that leave for good. They are what left, bit for bit; going back brings them into the tables
// again, newest first; a full store drops the oldest positions; and nothing of it changes the tables while tokens come.
#include <errno.h>
#include <unistd.h>

#include <memory>
#include <set>

#include "kv/page_copies.h"
#include "kv/spill_store.h"
#include "tests/kv/cache_case.h"
#include "tests/kv/spill_case.h"

namespace {

using namespace weir;
using weir::test::Cache;
using weir::test::check;

constexpr uint32_t kHeadDim = 16;
constexpr uint32_t kElements = 2 * kPageTokens * kHeadDim;  // of a page
constexpr uint32_t kContext = 12;                           // pages

// Two layers of two KV heads with tables of 4 pages.
KvShape small_shape() {
  KvShape shape = {2, 2, kHeadDim, 4, DigestKind::kMinMax};
  shape.archive_pages = kContext;
  return shape;
}

extern const FileCalls kFailingReads;

struct Archive {
  explicit Archive(const KvShape& shape, uint32_t store_pages = 0, uint32_t file_pages = 0) : c(shape), kv(c.kv) {
    SpillOptions o;
    o.page_bytes = static_cast<uint32_t>(shape.page_bytes());
    o.max_pages = static_cast<uint32_t>(shape.n_archived_streams() * kContext);
    o.budget_bytes = spill_worst_bytes(o.page_bytes, store_pages != 0 ? store_pages : o.max_pages);
    o.queue_pages = 4;
    o.file_path = "page_archive_test.tmp";
    o.file_bytes = file_pages * 4 * SpillFile::kCellBytes;
    o.file_calls = &kFailingReads;
    store = std::make_unique<SpillStore>(&memory, &memory, &memory);
    if (!store->create(o).ok()) fail_msg("%s", last_error_text());
    archive.start(kv, store.get());
  }
  // Appends tokens and seals what they filled; a full table lets its page `leaves` go first.
  void append(uint32_t n_tok, uint32_t flags = 0, uint32_t leaves = 0) {
    for (uint32_t done = 0; done < n_tok;) {
      const uint32_t n = std::min(n_tok - done, kPageTokens - kv.n_tokens() % kPageTokens), first = kv.n_tokens();
      for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) {
        if (kv.pages_to_open(n) != 0 && kv.stream(s).n_pages == kv.stream(s).capacity) kv.evict(s, leaves);
      }
      assert_true(kv.reserve(n, flags, first + n).ok());
      for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) write(s, first, n);
      kv.commit();
      archive.seal(first);
      check(kv);
      done += n;
    }
  }
  static uint16_t element(uint32_t s, uint32_t pos, uint32_t row, uint32_t i, uint32_t version) {
    return f32_to_bf16(static_cast<float>((s * 7919 + (pos + row) * 131 + i * 17 + version * 977) % 4099) / 512.0f);
  }
  void write(uint32_t s, uint32_t first, uint32_t n_tok) {
    const StreamView v = kv.stream(s);
    const uint32_t row = v.n_pages - 1;
    for (uint32_t t = first - v.first_pos[row]; t < first - v.first_pos[row] + n_tok; ++t) {
      for (uint32_t part : {0u, kPageTokens}) {
        for (uint32_t i = 0; i < kHeadDim; ++i)
          kv.page_data(v.slots[row])[(part + t) * kHeadDim + i] = element(s, v.first_pos[row], part + t, i, version);
      }
    }
    kv.rebuild_digest(s, row);
  }
  // Whether the page in `got` is what was written, as far as its first n tokens.
  bool is_page(const uint16_t* got, uint32_t s, uint32_t page, uint32_t n = kPageTokens) const {
    for (uint32_t t = 0; t < n; ++t) {
      for (uint32_t row : {t, kPageTokens + t}) {
        for (uint32_t i = 0; i < kHeadDim; ++i)
          if (got[row * kHeadDim + i] != element(s, page * kPageTokens, row, i, version)) return false;
      }
    }
    return true;
  }
  std::vector<uint32_t> pages(uint32_t s) const {
    const StreamView v = kv.stream(s);
    std::vector<uint32_t> out;
    for (uint32_t row = 0; row < v.n_pages; ++row) out.push_back(v.first_pos[row] / kPageTokens);
    return out;
  }

  Cache c;
  KvCache& kv;
  spill_case::CountingMemory memory;
  std::unique_ptr<SpillStore> store;
  PageCopies archive;
  uint32_t version = 0;
};

using Pages = std::vector<uint32_t>;

void page_archive__has_what_left(void**) {
  Archive a(small_shape());
  a.append(10 * kPageTokens + 5);
  uint16_t page[kElements];
  for (uint32_t s = 0; s < 4; ++s) {
    assert_true(a.pages(s) == (Pages{7, 8, 9, 10}));
    for (uint32_t p = 0; p < 10; ++p) {
      assert_true(a.archive.has(s, p) && a.archive.read(s, p, page) && a.is_page(page, s, p));
    }
    assert_true(a.archive.has(s, 10) && !a.archive.has(s, 11));
  }
  assert_int_equal(a.kv.pages_evicted(), 28);
  assert_int_equal(a.kv.pages_cold(), 28);
  assert_int_equal(a.kv.pages_lost(), 0);
  assert_int_equal(a.store->stats().pages_held, 40);
  a.archive.reset();
  a.kv.reset();
  assert_int_equal(a.store->stats().pages_held, 0);
  a.append(3 * kPageTokens);
  assert_int_equal(a.store->stats().pages_held, 12);
}

// Going back cuts a page that left, and refills the tables with the newest before it.
void page_archive__going_back_refills_the_tables(void**) {
  for (uint32_t n : {7u * kPageTokens + 3, 6u * kPageTokens, 2u * kPageTokens + 15, 9u * kPageTokens + 1, 0u}) {
    Archive a(small_shape());
    a.append(5 * kPageTokens, kPagePrompt, 1);
    a.append(5 * kPageTokens + 5, 0, 1);
    for (uint32_t s = 0; s < 4; ++s) assert_true(a.pages(s) == (Pages{0, 8, 9, 10}));
    assert_true(a.archive.cut(n, true));
    check(a.kv);
    const uint32_t n_pages = (n + kPageTokens - 1) / kPageTokens;
    assert_int_equal(a.kv.n_tokens(), n);
    for (uint32_t s = 0; s < 4; ++s) {
      const StreamView v = a.kv.stream(s);
      assert_int_equal(v.n_pages, std::min(4u, n_pages));
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        const uint32_t p = v.first_pos[row] / kPageTokens;
        assert_true(p == 0 || p + v.n_pages - row == n_pages);  // the first page never left
        assert_int_equal(v.len[row], std::min(kPageTokens, n - v.first_pos[row]));
        assert_int_equal(v.flags[row], p < 5 ? uint32_t{kPagePrompt} : 0u);
        assert_true(a.is_page(a.kv.page_keys(v.slots[row]), s, p, v.len[row]));
      }
      for (uint32_t p = 0; p < n / kPageTokens; ++p) assert_true(a.archive.has(s, p));
    }
    assert_int_equal(a.store->stats().pages_held, 4 * (n / kPageTokens));
    assert_int_equal(a.kv.pages_cold(), n_pages > 4 ? 4 * (n_pages - 4) : 0);
    a.version = 1;  // what is written now differs
    a.append(12 * kPageTokens - n);
    uint16_t page[kElements];
    for (uint32_t p = n_pages; p < 12; ++p) assert_true(a.archive.read(1, p, page) && a.is_page(page, 1, p));
  }
}

// Without refilling, only the copies go.
void page_archive__taking_back_leaves_the_rows(void**) {
  Archive a(small_shape());
  a.append(8 * kPageTokens);
  assert_true(a.archive.cut(7 * kPageTokens + 4, false));
  for (uint32_t s = 0; s < 4; ++s) assert_true(a.pages(s) == (Pages{4, 5, 6, 7}));
  assert_int_equal(a.store->stats().pages_held, 28);
  assert_int_equal(a.kv.pages_cold(), 16);
}

// A full store gives up the oldest positions, which cannot be gone back into.
void page_archive__a_full_store_drops_the_oldest(void**) {
  Archive a(small_shape(), 14);
  a.append(12 * kPageTokens, 0, 1);  // the first page stays, and its copy goes first
  uint64_t n_held = 0, n_gone = 0;
  for (uint32_t s = 0; s < 4; ++s) {
    bool had = false;
    for (uint32_t p = 0; p < 12; ++p) {
      const bool has = a.kv.copy_of(s, p) != kNoCopy;
      assert_true(has || !had);  // oldest first
      had |= has;
      n_held += has ? 1 : 0;
      n_gone += a.archive.has(s, p) ? 0 : 1;
    }
  }
  assert_int_equal(a.kv.pages_lost(), n_gone);
  assert_true(n_held >= 14 && n_held < 48);
  assert_int_equal(a.store->stats().pages_held, n_held);
  assert_int_equal(a.kv.pages_cold() + a.kv.pages_lost(), 32);
  assert_true(a.kv.pages_lost() >= 12 && a.archive.has(0, 0));
  assert_false(a.archive.has(0, 1));
  assert_false(a.archive.cut(kPageTokens + 4, true));
  assert_int_equal(a.kv.n_tokens(), 12 * kPageTokens);
  assert_int_equal(a.store->stats().pages_held, n_held);
}

// A cut page whose table has no row for it cannot come back. No policy makes such a table, but a saved session may have
// one.
void page_archive__a_full_table_without_the_cut_page(void**) {
  Archive a(small_shape());
  a.append(10 * kPageTokens);
  a.kv.evict(2, 3);  // page 9
  a.kv.put_back(2, 5);
  assert_true(a.pages(2) == (Pages{5, 6, 7, 8}));
  const uint64_t n_held = a.store->stats().pages_held;
  assert_false(a.archive.cut(9 * kPageTokens + 7, true));
  assert_int_equal(a.kv.n_tokens(), 10 * kPageTokens);
  assert_int_equal(a.store->stats().pages_held, n_held);
  check(a.kv);
  assert_true(a.archive.cut(8 * kPageTokens + 7, true));  // page 8 is there
  assert_true(a.pages(2) == (Pages{5, 6, 7, 8}));
  check(a.kv);
}

// Copies go out as blocks and come back in other archives, as far as those have room.
void page_archive__copies_are_restored(void**) {
  for (uint32_t room : {0u, 14u}) {
    Archive a(small_shape()), b(small_shape(), room);
    a.append(10 * kPageTokens, 0, 1);  // pages 0, 7, 8 and 9 stay
    b.append(kPageTokens);             // page 0
    b.archive.reset();
    assert_int_equal(b.store->stats().pages_held, 0);
    b.kv.reset();
    b.append(kPageTokens);
    std::vector<std::byte> block(max_block_bytes(kElements * 2));
    for (uint32_t p = 0; p < 9; ++p) {
      for (uint32_t s = 0; s < 4; ++s) {
        SpillPlace place = SpillPlace::kRaw;
        uint32_t n = 0;
        if (a.kv.holds(s, p)) {
          assert_true(a.archive.find_place(s, p, place));
          if (p == 0) continue;  // b has it
          assert_true(a.archive.get_block(s, p, block.data(), n, place));
        } else {
          assert_true(a.archive.get_block(s, p, block.data(), n, place));
          if (p == 1) {
            std::vector<std::byte> bad = block;
            bad[20] ^= std::byte{1};
            assert_int_equal(b.archive.put_block(s, p, bad.data(), n, place).code(), WEIR_ERR_FORMAT);
            assert_int_equal(b.archive.put_block(s, p + 1, block.data(), n, place).code(), WEIR_ERR_FORMAT);
            b.kv.count_forgotten(2);
          }
        }
        assert_true(b.archive.put_block(s, p, block.data(), n, place).ok());
      }
    }
    b.archive.restore_without(0, 9);
    uint64_t n_lost = 1, n_cold = 0;
    uint16_t page[kElements];
    for (uint32_t s = 0; s < 4; ++s) {
      bool had = false;
      for (uint32_t p = 0; p < 9; ++p) {
        const bool has = b.kv.copy_of(s, p) != kNoCopy;
        assert_true(has || !had);  // oldest first
        had |= has;
        if (has) assert_true(b.archive.read(s, p, page) && b.is_page(page, s, p));
        if (p != 0) ++(has ? n_cold : n_lost);
      }
    }
    assert_int_equal(room == 0 ? n_lost : 1, 1);
    assert_true(room == 0 || n_lost > 1);
    assert_int_equal(b.kv.pages_cold(), n_cold);
    assert_int_equal(b.kv.pages_lost(), n_lost);
    b.archive.reset();  // of a conversation that has fewer tokens
    assert_int_equal(b.store->stats().pages_held, 0);
  }
}

// With entries for no more pages than the store can hold, everything is as with entries for all: what is there, what is
// read, what comes back after going back, and what is counted.
void page_archive__a_ring_of_what_the_store_holds(void**) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const uint32_t store_pages = 1 + seed % 17;
    KvShape small = small_shape();
    small.archive_ring = (2 * store_pages + 3) / 4 + 2;  // compressed, a page takes half of its bytes, at least
    Archive whole(small_shape(), store_pages), ring(small, store_pages);
    assert_true(small.archive_entries() < kContext);
    uint32_t state = seed * 2654435761u + 1;
    const auto pick = [&state](uint32_t n) { return (state = state * 1664525u + 1013904223u) / 65536 % n; };
    for (uint32_t i = 0; i < 40; ++i) {
      const uint32_t n = whole.kv.n_tokens();
      if (pick(3) != 0 && n < (kContext - 1) * kPageTokens) {
        const uint32_t more = 1 + pick(std::min(40u, (kContext - 1) * kPageTokens - n)), flags = pick(2) * kPagePrompt;
        for (Archive* a : {&whole, &ring}) a->append(more, flags, 1);
      } else if (n > 0) {
        const uint32_t to = n - 1 - pick(std::min(n, 60u));
        assert_int_equal(whole.archive.cut(to, true), ring.archive.cut(to, true));
        check(ring.kv);
      }
      assert_int_equal(whole.kv.n_tokens(), ring.kv.n_tokens());
      assert_int_equal(whole.kv.pages_cold(), ring.kv.pages_cold());
      assert_int_equal(whole.kv.pages_lost(), ring.kv.pages_lost());
      assert_int_equal(whole.store->stats().pages_held, ring.store->stats().pages_held);
      const uint32_t n_pages = whole.kv.n_tokens() / kPageTokens;
      for (uint32_t s = 0; s < 4; ++s) {
        assert_true(whole.pages(s) == ring.pages(s));
        for (uint32_t row = 0; row < whole.kv.stream(s).n_pages; ++row)
          assert_int_equal(whole.kv.stream(s).flags[row], ring.kv.stream(s).flags[row]);
        for (uint32_t p = 0; p < n_pages; ++p) {
          uint16_t page[kElements];
          assert_int_equal(whole.archive.has(s, p), ring.archive.has(s, p));
          if (ring.archive.has(s, p)) assert_true(ring.archive.read(s, p, page) && ring.is_page(page, s, p));
        }
      }
    }
  }
}

// A ring that is smaller than the store gives up what is older, and what is taken back leaves its entries clean.
void page_archive__a_ring_gives_up_what_is_older(void**) {
  constexpr uint32_t kRing = 5;
  KvShape small = small_shape();
  small.archive_ring = kRing;
  Archive a(small);
  uint16_t page[kElements];
  for (uint32_t n = 1; n < kContext; ++n) {
    a.append(kPageTokens, kPagePrompt, 1);  // the first page stays, and its copy goes
    assert_int_equal(a.store->stats().pages_held, 4 * std::min(n, kRing));
    for (uint32_t s = 0; s < 4; ++s) {
      for (uint32_t p = 0; p < n; ++p) {
        const bool has = p + kRing >= n;
        assert_int_equal(a.kv.copy_of(s, p) != kNoCopy, has);
        assert_int_equal(a.kv.rings().flag(p), has ? kPagePrompt : 0u);
        if (has) assert_true(a.archive.read(s, p, page) && a.is_page(page, s, p));
      }
    }
  }
  assert_int_equal(a.kv.pages_cold() + a.kv.pages_lost(), a.kv.pages_evicted());
  assert_int_equal(a.kv.pages_lost(), 4 * (kContext - 1 - kRing - 1));  // all before the ring but the first page
  // Pages 6 .. 10 were there; of 2 .. 6 only 6 is.
  assert_true(a.archive.cut(7 * kPageTokens, false));
  assert_int_equal(a.store->stats().pages_held, 4);
  for (uint32_t p = 0; p < 7; ++p) {
    assert_int_equal(a.kv.rings().flag(p), p == 6 ? kPagePrompt : 0u);
    for (uint32_t s = 0; s < 4; ++s) assert_int_equal(a.kv.copy_of(s, p) != kNoCopy, p == 6);
  }
  a.version = 1;
  a.append(2 * kPageTokens, 0, 1);
  for (uint32_t p = 0; p < 9; ++p) {
    assert_int_equal(a.kv.rings().flag(p), p == 6 ? kPagePrompt : 0u);
    for (uint32_t s = 0; s < 4; ++s) assert_int_equal(a.kv.copy_of(s, p) != kNoCopy, p >= 6);
  }
  assert_true(a.archive.read(3, 8, page) && a.is_page(page, 3, 8));
  a.archive.reset();
  a.kv.reset();
  assert_int_equal(a.store->stats().pages_held, 0);
}

// Whether no entry has a copy or a flag, also of those that pages would get later.
bool has_clean_rings(KvCache& kv) {
  kv.rings().add(kContext - 1);
  bool is_clean = true;
  for (uint32_t p = 0; p < kContext; ++p) {
    is_clean = is_clean && kv.rings().flag(p) == 0;
    for (uint32_t s = 0; s < 4; ++s)
      is_clean = is_clean && kv.copy_entry(s, p) != nullptr && kv.copy_of(s, p) == kNoCopy;
  }
  kv.rings().cut(0);
  return is_clean;
}

// A conversation leaves nothing to the next one: no copies, however many pages were sealed together or had room, and
// not what is known of its pages.
void page_archive__reset_forgets_everything(void**) {
  for (uint32_t room : {0u, 1u, 2u, 3u, 14u}) {
    Archive a(small_shape(), room);
    assert_true(has_clean_rings(a.kv));
    a.append(9 * kPageTokens + 5, kPagePrompt);
    assert_true(a.store->stats().pages_held > 0);
    a.archive.reset();
    a.kv.reset();
    assert_int_equal(a.store->stats().stored_bytes, 0);
    assert_int_equal(a.store->stats().pages_held, 0);
    assert_true(has_clean_rings(a.kv));
    for (uint32_t s = 0; s < 4; ++s) {
      for (uint32_t p = 0; p < kContext; ++p) assert_false(a.archive.has(s, p));
    }
    a.version = 1;
    a.append(6 * kPageTokens);
    assert_true(a.kv.pages_cold() <= 8);
    uint16_t page[kElements];
    for (uint32_t s = 0; s < 4; ++s) {
      for (uint32_t p = 0; p < 6; ++p)
        if (a.archive.has(s, p)) assert_true(a.archive.read(s, p, page) && a.is_page(page, s, p));
    }
  }
}

int g_read_error = 0;
ssize_t read_or_fail(int fd, void* data, size_t bytes, off_t offset) {
  errno = g_read_error;
  return g_read_error != 0 ? -1 : ::pread(fd, data, bytes, offset);
}
const FileCalls kFailingReads = {kSystemFile.open, kSystemFile.unlink, kSystemFile.allocate, read_or_fail,
                                 kSystemFile.write};

// With one page all that were in the file are lost: nobody claims to have them, and they are counted.
void page_archive__a_file_that_fails(void**) {
  for (bool saves : {false, true}) {
    Archive a(small_shape(), 6, 200);
    a.append(11 * kPageTokens);
    assert_int_equal(a.kv.pages_lost(), 0);
    const uint64_t n_cold = a.kv.pages_cold(), n_in_file = a.store->stats().pages_in_file;
    assert_true(n_in_file > 8);
    g_read_error = EIO;
    uint16_t page[kElements];
    std::vector<std::byte> block(max_block_bytes(kElements * 2));
    uint32_t n = 0;
    SpillPlace place = SpillPlace::kRaw;
    assert_false(saves ? a.archive.get_block(0, 0, block.data(), n, place) : a.archive.read(0, 0, page));
    g_read_error = 0;
    uint64_t n_lost = 0;
    for (uint32_t s = 0; s < 4; ++s) {
      for (uint32_t p = 0; p < 11; ++p) {
        const bool has = a.archive.has(s, p);
        n_lost += has ? 0 : 1;
        if (has) assert_true(a.archive.read(s, p, page) && a.is_page(page, s, p));
      }
    }
    assert_true(n_lost > 1 && n_lost <= n_in_file);
    assert_int_equal(a.kv.pages_lost(), n_lost);
    assert_int_equal(a.kv.pages_cold(), n_cold - n_lost);
    assert_false(a.archive.cut(5, true));  // it is known, so nothing changes
    assert_int_equal(a.kv.n_tokens(), 11 * kPageTokens);
    check(a.kv);
  }
}

// A page that should come back and cannot be read is missing, and that is told.
void page_archive__a_refill_that_fails(void**) {
  Archive a(small_shape(), 6, 200);
  a.append(11 * kPageTokens);
  g_read_error = EIO;
  assert_false(a.archive.cut(4 * kPageTokens, true));
  g_read_error = 0;
  check(a.kv);
  assert_int_equal(a.kv.n_tokens(), 4 * kPageTokens);
}

// Streams whose tables hold the context, and those of local layers, have no copies.
void page_archive__only_of_what_can_leave(void**) {
  KvShape shape = small_shape();
  shape.n_wide_layers = 1;
  shape.wide_pages = kContext;
  assert_int_equal(shape.n_archived_streams(), 2);
  Cache c(shape);
  c.kv.rings().add(kContext - 1);
  for (uint32_t s = 0; s < 4; ++s) assert_int_equal(c.kv.copy_entry(s, 0) != nullptr, s >= 2);
  assert_true(c.kv.copy_entry(3, 0) == c.kv.copy_entry(2, 0) + kContext);
}

// A session without a store has copies of nothing. Going back is what the tables allow, and nothing else happens.
void page_archive__without_a_store(void**) {
  KvShape shape = small_shape();
  shape.archive_pages = 0;
  Cache c(shape);
  PageCopies copies;
  copies.start(c.kv, nullptr, true);
  assert_true(c.kv.reserve(3 * kPageTokens + 4, 0, 52).ok());
  c.kv.commit();
  copies.seal(0);
  copies.look_at_losses();
  assert_true(copies.prepare(100).ok() && copies.failure().ok() && !copies.is_strict());
  assert_true(!copies.needs_tables() && !copies.needs_stamps(3) && !copies.make_raw_again());
  std::vector<std::byte> block(max_block_bytes(kElements * 2));
  uint16_t page[kElements];
  uint32_t n = 0;
  SpillPlace place = SpillPlace::kRaw;
  for (uint32_t s = 0; s < 4; ++s) {
    assert_true(copies.has(s, 3) && !copies.has(s, 4) && !copies.has_left(s, 0));
    assert_true(copies.read(s, 0, page) && !copies.read(s, 4, page) && !copies.bring_back(s, 4));
    assert_true(!copies.get_block(s, 0, block.data(), n, place) && !copies.find_place(s, 0, place));
  }
  copies.begin_page(0);
  copies.restore_without(0, 0);
  c.kv.evict(1, 0);
  assert_false(copies.has(1, 0));
  assert_true(copies.can_cut(20) && copies.cut(20, true));
  assert_int_equal(c.kv.n_tokens(), 20);
  assert_int_equal(c.kv.pages_cold() + c.kv.pages_lost(), 0);
  assert_int_equal(c.kv.stream(0).len[1], 4);
  check(c.kv);
  copies.reset();
  c.kv.reset();
  assert_false(copies.has(0, 0));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(page_archive__has_what_left),
      cmocka_unit_test(page_archive__going_back_refills_the_tables),
      cmocka_unit_test(page_archive__taking_back_leaves_the_rows),
      cmocka_unit_test(page_archive__a_full_store_drops_the_oldest),
      cmocka_unit_test(page_archive__a_full_table_without_the_cut_page),
      cmocka_unit_test(page_archive__copies_are_restored),
      cmocka_unit_test(page_archive__a_ring_of_what_the_store_holds),
      cmocka_unit_test(page_archive__a_ring_gives_up_what_is_older),
      cmocka_unit_test(page_archive__reset_forgets_everything),
      cmocka_unit_test(page_archive__a_file_that_fails),
      cmocka_unit_test(page_archive__a_refill_that_fails),
      cmocka_unit_test(page_archive__only_of_what_can_leave),
      cmocka_unit_test(page_archive__without_a_store),
  };
  return cmocka_run_group_tests_name("kv_page_archive", tests, nullptr, nullptr);
}
