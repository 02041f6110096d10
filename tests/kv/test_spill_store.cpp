// kv: the spill store gives back every page from every tier, holds what its plan says and no less, answers the same
// however many workers it has and however slow they are, and never gives a wrong page for a damaged one.
// Longer than 600 lines because every way in which a page can move through the store is followed with the same helpers.
#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/kv/spill_case.h"

namespace {

using namespace weir;
using namespace spill_case;

constexpr uint32_t kWorkerCounts[] = {0, 1, 2, 4};

// A file of its own for each test that needs one; the store removes its name.
const char* file_path() {
  static char path[64];
  std::snprintf(path, sizeof path, "spill_store_test_%d.tmp", static_cast<int>(getpid()));
  return path;
}

struct Late {
  void* (*run)(void*);
  void* argument;
};
// Starts a worker that sleeps first, so that the queue fills.
int start_late(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  const auto body = [](void* late) -> void* {
    const Late l = *static_cast<Late*>(late);
    delete static_cast<Late*>(late);
    usleep(20000);
    return l.run(l.argument);
  };
  return pthread_create(thread, attributes, body, new Late{run, argument});
}

int g_threads_left = 0;
int start_some(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  if (g_threads_left-- <= 0) return EAGAIN;
  return pthread_create(thread, attributes, run, argument);
}

void spill_store__every_page_returns_from_every_tier(void**) {
  for (uint32_t n_workers : kWorkerCounts) {
    for (uint32_t n_raw : {0u, 1u, 5u}) {
      SpillOptions o = options_for(n_raw, 30, n_workers);
      o.file_path = file_path();
      o.file_bytes = 100 * 3 * SpillFile::kCellBytes;
      Store s(o);
      assert_int_equal(s.status, WEIR_OK);
      std::vector<SpillHandle> handles;
      for (uint32_t i = 0; i < 100; ++i) {
        handles.push_back(s.must_put(i));
        assert_int_equal(s.get(handles[i / 2], i / 2), WEIR_OK);
      }
      s.store->drain();
      const SpillStats stats = s.store->stats();
      assert_true(stats.pages_in_file > 20 && stats.pages_raw == n_raw && stats.pages_held == 100);
      assert_true(stats.pages_spilled == 100 && stats.pages_dropped == 0 && stats.errors == 0);
      for (uint32_t i = 0; i < 100; ++i) assert_int_equal(s.get(handles[i], i), WEIR_OK);
      for (SpillHandle h : handles) s.store->release(h);
      assert_int_equal(s.store->stats().pages_held, 0);
      assert_int_equal(s.store->stats().stored_bytes, 0);
    }
  }
}

void spill_store__other_page_sizes(void**) {
  for (uint32_t page_bytes : {256u, 4096u, 32768u}) {
    SpillOptions o = options_for(0, 0);
    o.page_bytes = page_bytes;
    o.budget_bytes = spill_worst_bytes(page_bytes, 3);
    o.raw_bytes = 0;
    Store s(o);
    std::vector<SpillHandle> handles(3);
    for (uint32_t i = 0; i < 3; ++i) {
      assert_true(s.store->put(i, 16, page_makers::random_page(page_bytes, i).data(), handles[i]).ok());
    }
    SpillHandle none = kNoSpill;
    assert_int_equal(s.store->put(3, 16, Bytes(page_bytes).data(), none).code(), WEIR_ERR_BUDGET);
    Bytes out(page_bytes);
    for (uint32_t i = 0; i < 3; ++i) {
      assert_true(s.store->get(handles[i], i, 16, out.data()).ok());
      assert_true(out == page_makers::random_page(page_bytes, i));
    }
  }
}

// Noise needs the worst case: exactly what the budget names fits, and no page more.
void spill_store__holds_exactly_the_worst_case(void**) {
  for (uint32_t n_workers : kWorkerCounts) {
    Store s(options_for(3, 8, n_workers));
    std::vector<SpillHandle> handles(11);
    const auto noise = [](uint32_t i) { return page_makers::random_page(kPageBytes, 100 + i); };
    for (uint32_t round = 0; round < 3; ++round) {
      for (uint32_t i = 0; i < 11; ++i) assert_true(s.store->put(i, 0, noise(i).data(), handles[i]).ok());
      const SpillStats full = s.store->stats();
      SpillHandle none = kNoSpill;
      for (int again = 0; again < 2; ++again)
        assert_int_equal(s.store->put(99, 0, noise(99).data(), none).code(), WEIR_ERR_BUDGET);
      assert_int_equal(none, kNoSpill);
      s.store->drain();
      assert_int_equal(s.store->stats().stored_bytes, s.options.budget_bytes);
      assert_int_equal(s.store->stats().pages_spilled, full.pages_spilled);
      // The room of one page, wherever it was, is room for one page.
      for (uint32_t i : {10u, 0u, 5u}) {
        s.store->drop(handles[i]);
        assert_true(s.store->put(i, 0, noise(i).data(), handles[i]).ok());
        assert_int_equal(s.store->put(99, 0, noise(99).data(), none).code(), WEIR_ERR_BUDGET);
      }
      Bytes out(kPageBytes);
      for (uint32_t i = 0; i < 11; ++i) {
        assert_true(s.store->get(handles[i], i, 0, out.data()).ok());
        assert_true(out == noise(i));
      }
      for (SpillHandle h : handles) s.store->release(h);
      assert_int_equal(s.store->stats().pages_dropped, 3 * (round + 1));
    }
  }
}

// One page in cells costs at most itself and one cell.
void spill_store__worst_case_of_a_page(void**) {
  assert_int_equal(spill_worst_bytes(4096, 1), 4096 + 256);
  assert_int_equal(spill_worst_bytes(8192, 10), 10 * (8192 + 256));
  assert_int_equal(SpillCells::cells_for(252), 1);
  assert_int_equal(SpillCells::cells_for(253), 2);
}

// Answers and counters of a fixed course of events.
struct Course {
  std::vector<uint64_t> seen;

  explicit Course(const SpillOptions& options) {
    Store s(options);
    assert_int_equal(s.status, WEIR_OK);
    struct Held {
      SpillHandle handle;
      uint32_t number;
    };
    std::vector<Held> held;
    uint64_t state = 7;
    for (uint32_t i = 0; i < 1500; ++i) {
      const uint64_t what = page_makers::next_random(state) % 16;
      const size_t some = held.empty() ? 0 : page_makers::next_random(state) % held.size();
      if (what < 9 || held.empty()) {
        SpillHandle handle = kNoSpill;
        weir_status code = WEIR_OK;
        while ((code = s.put(i, handle)) == WEIR_ERR_BUDGET) {
          seen.push_back(1000 + held.size());
          s.store->drop(held.front().handle);
          held.erase(held.begin());
        }
        assert_int_equal(code, WEIR_OK);
        held.push_back({handle, i});
      } else if (what < 13) {
        seen.push_back(static_cast<uint64_t>(s.get(held[some].handle, held[some].number)));
      } else if (what == 13) {
        s.store->share(held[some].handle);
        held.push_back(held[some]);
      } else if (what == 14) {
        s.store->release(held[some].handle);
        held.erase(held.begin() + static_cast<ptrdiff_t>(some));
      } else {
        seen.push_back(s.store->make_room(static_cast<uint32_t>(page_makers::next_random(state) % 8)).ok());
      }
    }
    for (const Held& h : held) assert_int_equal(s.get(h.handle, h.number), WEIR_OK);
    s.store->drain();
    const SpillStats stats = s.store->stats();
    seen.insert(seen.end(), {stats.pages_spilled, stats.pages_dropped, stats.pages_held, stats.pages_raw,
                             stats.pages_in_file, stats.stored_bytes, stats.errors});
    for (const Held& h : held) s.store->release(h.handle);
    assert_int_equal(s.store->stats().stored_bytes, 0);
  }
};

void spill_store__answers_do_not_depend_on_workers(void**) {
  for (bool with_file : {false, true}) {
    for (uint32_t n_raw : {0u, 6u}) {
      SpillOptions o = options_for(n_raw, 20);
      if (with_file) {
        o.file_path = file_path();
        o.file_bytes = 40 * 1024;
      }
      const Course alone(o);
      assert_true(std::count_if(alone.seen.begin(), alone.seen.end(), [](uint64_t v) { return v >= 1000; }) > 20);
      for (uint32_t n_workers : {1u, 2u, 4u}) {
        for (uint32_t queue_pages : {1u, 3u, 64u}) {
          o.n_workers = n_workers;
          o.queue_pages = queue_pages;
          o.create_thread = queue_pages == 3 ? start_late : pthread_create;
          assert_true(Course(o).seen == alone.seen);
        }
      }
    }
  }
}

// A worker that begins when the gate opens.
std::atomic<bool> g_gate_is_open{false};
int start_behind_gate(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  const auto body = [](void* late) -> void* {
    const Late l = *static_cast<Late*>(late);
    delete static_cast<Late*>(late);
    g_gate_is_open.wait(false);
    return l.run(l.argument);
  };
  return pthread_create(thread, attributes, body, new Late{run, argument});
}

// A put that finds the queue full does the work itself.
void spill_store__put_works_only_when_the_queue_is_full(void**) {
  SpillOptions o = options_for(2, 20, 1);
  o.create_thread = start_behind_gate;
  g_gate_is_open = false;
  Store s(o);
  std::vector<SpillHandle> handles;
  const auto check_all = [&] {
    for (uint32_t i = 0; i < handles.size(); ++i) assert_int_equal(s.get(handles[i], i), WEIR_OK);
  };
  for (uint32_t i = 0; i < 6; ++i) handles.push_back(s.must_put(i));  // two raw, four in the queue
  check_all();
  assert_int_equal(s.store->stats().waits, 0);
  assert_int_equal(s.store->stats().stored_bytes, 6 * kPageBytes);
  handles.push_back(s.must_put(6));
  handles.push_back(s.must_put(7));
  check_all();
  assert_int_equal(s.store->stats().waits, 2);
  s.store->drop(handles[4]);  // the next that a worker would take
  handles.erase(handles.begin() + 4, handles.end());
  g_gate_is_open = true;
  g_gate_is_open.notify_all();
  s.store->drain();
  check_all();
  assert_int_equal(s.store->stats().pages_raw, 2);
}

void spill_store__room_made_is_room_for_all(void**) {
  for (uint32_t n_workers : {0u, 2u}) {
    for (uint32_t n_raw : {0u, 4u}) {
      Store s(options_for(n_raw, 9, n_workers));
      std::vector<SpillHandle> handles;
      for (uint32_t i = 0; i < 400; i += 7) {
        while (!s.store->make_room(7).ok()) {
          assert_true(!handles.empty());
          s.store->drop(handles.front());
          handles.erase(handles.begin());
        }
        for (uint32_t k = 0; k < 7; ++k) handles.push_back(s.must_put(i + k));
      }
      assert_int_equal(s.store->make_room(n_raw + 10).code(), WEIR_ERR_BUDGET);
    }
  }
}

void spill_store__no_more_pages_than_the_table_has(void**) {
  SpillOptions o = options_for(2, 10, 1);
  o.max_pages = 4;
  Store s(o);
  SpillHandle last = kNoSpill, none = kNoSpill;
  for (uint32_t i = 0; i < 4; ++i) last = s.must_put(i);
  assert_int_equal(s.put(4, none), WEIR_ERR_BUDGET);
  for (uint32_t i = 3; i < 50; ++i) {
    s.store->release(last);
    last = s.must_put(i);
    assert_int_equal(s.put(4, none), WEIR_ERR_BUDGET);
  }
}

void spill_store__raw_pages_are_the_latest(void**) {
  Store s(options_for(3, 20, 2));
  std::vector<SpillHandle> handles;
  for (uint32_t i = 0; i < 12; ++i) {
    handles.push_back(s.must_put(i));
    for (uint32_t k = 0; k <= i; ++k) {
      const std::byte* raw = s.store->raw_page(handles[k]);
      assert_true((raw != nullptr) == (k + 3 > i));
      if (raw != nullptr) assert_memory_equal(raw, page(k).data(), kPageBytes);
    }
  }
  s.store->release(handles[10]);
  handles.push_back(s.must_put(12));
  assert_true(s.store->raw_page(handles[9]) != nullptr);  // the room of the one that went
}

void spill_store__references_end_at_zero(void**) {
  for (uint32_t n_workers : {0u, 2u}) {
    Store s(options_for(2, 10, n_workers));
    std::vector<SpillHandle> handles;
    for (uint32_t i = 0; i < 8; ++i) handles.push_back(s.must_put(i));
    for (SpillHandle h : handles) s.store->share(h);
    for (SpillHandle h : handles) s.store->drop(h);
    assert_int_equal(s.store->stats().pages_held, 8);
    for (uint32_t i = 0; i < 8; ++i) assert_int_equal(s.get(handles[i], i), WEIR_OK);
    for (SpillHandle h : handles) s.store->release(h);
    assert_int_equal(s.store->stats().pages_held, 0);
    for (uint32_t i = 0; i < 8; ++i) assert_int_equal(s.get(handles[i], i), WEIR_ERR_INTERNAL);
    s.store->release(handles[0]);  // nothing to end
    assert_int_equal(s.store->stats().pages_held, 0);
    assert_int_equal(s.get(kNoSpill, 0), WEIR_ERR_INTERNAL);
  }
}

void spill_store__a_page_is_not_taken_for_another(void**) {
  Store s(options_for(1, 10));
  const SpillHandle in_cells = s.must_put(8), raw = s.must_put(9);
  assert_true(s.store->raw_page(in_cells) == nullptr && s.store->raw_page(raw) != nullptr);
  Bytes out(kPageBytes);
  for (uint32_t number : {8u, 9u}) {
    const SpillHandle h = number == 8 ? in_cells : raw;
    assert_int_equal(s.store->get(h, stream_of(number) + 1, position_of(number), out.data()).code(), WEIR_ERR_FORMAT);
    assert_int_equal(s.store->get(h, stream_of(number), position_of(number) + 16, out.data()).code(), WEIR_ERR_FORMAT);
    assert_int_equal(s.get(h, number), WEIR_OK);
  }
  assert_int_equal(s.store->stats().errors, 4);
}

// Every byte of the cells, links included, in turn: the right page or FORMAT.
void spill_store__damaged_memory_gives_no_wrong_page(void**) {
  Store s(options_for(1, 4));
  std::vector<SpillHandle> handles;
  for (uint32_t i = 0; i < 5; ++i) handles.push_back(s.must_put(i));
  uint32_t n_refused = 0;
  size_t at = 0;
  for (std::byte& b : s.store->cells_memory()) {
    const std::byte before = b;
    b ^= static_cast<std::byte>(1 << at++ % 8);
    for (uint32_t i = 0; i < 5; ++i) {
      const weir_status code = s.get(handles[i], i);
      assert_true(code == WEIR_OK || code == WEIR_ERR_FORMAT);
      n_refused += code != WEIR_OK;
    }
    b = before;
  }
  assert_true(n_refused > 2500);
  const_cast<std::byte*>(s.store->raw_page(handles[4]))[17] ^= std::byte{4};
  assert_int_equal(s.get(handles[4], 4), WEIR_ERR_FORMAT);
  assert_int_equal(s.store->stats().errors, n_refused + 1);
  for (uint32_t i = 0; i < 4; ++i) assert_int_equal(s.get(handles[i], i), WEIR_OK);
}

// Links of free cells that lead nowhere: pages are lost, counted, and nothing else happens.
void spill_store__damaged_links_lose_pages_only(void**) {
  for (uint32_t n_workers : {0u, 2u}) {
    Store s(options_for(1, 6, n_workers));
    std::vector<SpillHandle> handles;
    for (uint32_t i = 0; i < 6; ++i) {
      handles.push_back(s.must_put(i));
      s.store->drain();  // which block gets which cells must not depend on the workers
    }
    for (; !handles.empty(); handles.pop_back()) s.store->release(handles.back());  // all cells have had a link now
    const SpillHandle good = s.must_put(4), last = s.must_put(1);                   // 4 is noise: the largest block
    s.store->drain();
    for (size_t cell = 5; cell * 256 < s.store->cells_memory().size(); ++cell)
      std::fill_n(&s.store->cells_memory()[cell * 256], 4, std::byte{0xFF});
    // The page that finds the damage is lost, and the cells behind it are no room any more.
    std::vector<uint32_t> numbers = {1};
    handles.push_back(last);
    uint32_t n_refused = 0, n_lost = 0;
    for (uint32_t i : {2u, 3u, 5u, 6u}) {
      SpillHandle handle = kNoSpill;
      const weir_status code = s.put(i, handle);
      s.store->drain();
      assert_true(code == WEIR_OK || code == WEIR_ERR_BUDGET);
      n_refused += code != WEIR_OK;
      if (code != WEIR_OK) continue;
      handles.push_back(handle);
      numbers.push_back(i);
    }
    assert_true(n_refused > 0);
    assert_int_equal(s.get(good, 4), WEIR_OK);
    for (size_t i = 0; i < handles.size(); ++i) {
      const weir_status code = s.get(handles[i], numbers[i]);
      assert_true(code == WEIR_OK || code == WEIR_ERR_NOT_FOUND);
      assert_int_equal(s.store->is_lost(handles[i]), code == WEIR_ERR_NOT_FOUND);
      n_lost += code != WEIR_OK;
    }
    assert_true(n_lost <= 1);
    assert_int_equal(s.store->stats().pages_dropped, n_lost);
    assert_int_equal(s.store->stats().errors, n_lost);
    // What is freed is room.
    for (SpillHandle h : handles) s.store->release(h);
    s.store->release(good);
    handles = {s.must_put(2)};
    for (uint32_t turn = 0; turn < 3; ++turn) {
      const SpillHandle again = s.must_put(9);  // noise, too
      s.store->release(handles[0]);
      s.store->drain();
      handles[0] = again;
      assert_int_equal(s.get(again, 9), WEIR_OK);
    }
    s.store->release(handles[0]);
    assert_int_equal(s.store->stats().pages_held, 0);
    assert_int_equal(s.store->stats().stored_bytes, 0);
    assert_int_equal(s.store->stats().errors, n_lost);
  }
}

// The links of a page that is there are damaged: with it go its cells, and no others.
void spill_store__damaged_pages_take_their_cells_along(void**) {
  Store s(options_for(0, 3));
  SpillHandle handles[3];
  for (uint32_t i = 0; i < 3; ++i) handles[i] = s.must_put(i * 5 + 4);  // noise: the largest blocks
  const size_t n_cells = s.store->cells_memory().size() / 256 / 3;
  std::fill_n(&s.store->cells_memory()[(n_cells + 1) * 256], 4, std::byte{0xFF});  // of the second page
  assert_int_equal(s.get(handles[1], 9), WEIR_ERR_FORMAT);
  for (SpillHandle h : handles) s.store->release(h);
  assert_int_equal(s.store->stats().stored_bytes, 0);
  SpillHandle full = kNoSpill;
  handles[0] = s.must_put(14);
  handles[1] = s.must_put(19);
  assert_int_equal(s.put(24, full), WEIR_ERR_BUDGET);
  assert_int_equal(s.get(handles[0], 14), WEIR_OK);
  assert_int_equal(s.get(handles[1], 19), WEIR_OK);
}

void spill_store__all_memory_is_planned(void**) {
  for (uint32_t n_workers : kWorkerCounts) {
    SpillOptions o = options_for(4, 50, n_workers);
    o.file_path = file_path();
    o.file_bytes = 1 << 20;
    o.n_readers = 3;
    SpillPlan plan;
    assert_true(plan_spill(o, plan).ok());
    Store s(o);
    assert_int_equal(s.status, WEIR_OK);
    assert_int_equal(s.memory.bytes, plan.host_bytes);
    assert_int_equal(s.slot_memory.bytes, plan.slot_bytes);
    assert_int_equal(plan.n_cells * 256 + plan.n_raw * kPageBytes, o.budget_bytes);
    for (uint32_t i = 0; i < 600; ++i) {
      SpillHandle h = kNoSpill;
      if (s.put(i, h) != WEIR_OK) break;
      assert_int_equal(s.get(h, i), WEIR_OK);
    }
    assert_int_equal(s.memory.n_allocs, 1);
    assert_int_equal(s.family_memory.bytes, plan.family_bytes);
    assert_int_equal(s.slot_memory.n_allocs, 1);
  }
}

void spill_store__refuses_what_cannot_be(void**) {
  const auto code = [](auto change) {
    SpillOptions o = options_for(2, 10);
    change(o);
    SpillPlan plan;
    const weir_status planned = plan_spill(o, plan).code();
    assert_int_equal(Store(o).status, planned);
    return planned;
  };
  assert_int_equal(code([](SpillOptions&) {}), WEIR_OK);
  assert_int_equal(code([](SpillOptions& o) { o.page_bytes = 128; }), WEIR_ERR_UNSUPPORTED);
  assert_int_equal(code([](SpillOptions& o) { o.page_bytes = 1000; }), WEIR_ERR_UNSUPPORTED);
  assert_int_equal(code([](SpillOptions& o) { o.page_bytes = 65536; }), WEIR_ERR_UNSUPPORTED);
  assert_int_equal(code([](SpillOptions& o) { o.max_pages = 0; }), WEIR_ERR_INVALID_ARG);
  assert_int_equal(code([](SpillOptions& o) { o.n_readers = 0; }), WEIR_ERR_INVALID_ARG);
  assert_int_equal(code([](SpillOptions& o) { o.n_workers = 100000; }), WEIR_ERR_INVALID_ARG);
  assert_int_equal(code([](SpillOptions& o) { o.n_workers = 1, o.queue_pages = 0; }), WEIR_ERR_INVALID_ARG);
  assert_int_equal(code([](SpillOptions& o) { o.raw_bytes = o.budget_bytes + 1; }), WEIR_ERR_INVALID_ARG);
  assert_int_equal(code([](SpillOptions& o) { o.file_bytes = 1 << 20; }), WEIR_ERR_INVALID_ARG);
  assert_int_equal(code([](SpillOptions& o) { o.budget_bytes = o.raw_bytes = 1023; }), WEIR_ERR_BUDGET);
  assert_non_null(std::strstr(last_error_text(), "1280"));  // what one page may need
  assert_int_equal(code([](SpillOptions& o) { o.raw_bytes = 0, o.budget_bytes = 1279; }), WEIR_ERR_BUDGET);
  assert_int_equal(code([](SpillOptions& o) { o.raw_bytes = 0, o.budget_bytes = 1280; }), WEIR_OK);
  assert_int_equal(code([](SpillOptions& o) { o.file_path = "unused", o.file_bytes = 1535; }), WEIR_ERR_BUDGET);
}

void spill_store__memory_and_threads_that_are_refused(void**) {
  SpillOptions o = options_for(2, 10, 3);
  for (int refused : {0, 1, 2}) {
    CountingMemory memories[3];
    memories[refused].refused_from = 0;
    bool has_thrown = false;
    try {
      SpillStore store(&memories[0], &memories[1], &memories[2]);
      (void)store.create(o);
    } catch (const std::bad_alloc&) {
      has_thrown = true;
    }
    assert_true(has_thrown);
    for (const CountingMemory& memory : memories) assert_int_equal(memory.bytes, 0);
  }
  o.create_thread = start_some;
  for (int n : {0, 1, 2}) {
    g_threads_left = n;
    assert_int_equal(Store(o).status, WEIR_ERR_OUT_OF_MEMORY);
    char expected[64];
    std::snprintf(expected, sizeof expected, "worker %d of 3", n + 1);
    assert_non_null(std::strstr(last_error_text(), expected));
  }
  g_threads_left = 3;
  assert_int_equal(Store(o).status, WEIR_OK);
}

// Pages that are dropped while a worker compresses them leave nothing behind, whenever that is: the pause before they
// are dropped grows until a worker is done with all of them.
void spill_store__pages_dropped_while_a_worker_has_them(void**) {
  SpillOptions o = options_for(1, 60, 1);
  o.queue_pages = 32;
  Store s(o);
  for (uint32_t round = 0; round < 300; ++round) {
    SpillHandle handles[8];
    for (uint32_t i = 0; i < 8; ++i) handles[i] = s.must_put(i);
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(round);
         std::chrono::steady_clock::now() < end;) {
    }
    for (const SpillHandle h : handles) s.store->drop(h);
    s.store->drain();
    assert_int_equal(s.store->stats().stored_bytes, 0);
  }
}

// Stores end while their workers are busy, and with pages in the queue.
void spill_store__ends_at_any_time(void**) {
  for (uint32_t n_pages = 0; n_pages < 40; ++n_pages) {
    SpillOptions o = options_for(1, 60, 1 + n_pages % 3);
    o.queue_pages = 32;
    Store s(o);
    SpillHandle last = kNoSpill;
    for (uint32_t i = 0; i < n_pages; ++i) last = s.must_put(i);
    if (n_pages % 2 == 1) s.store->release(last);
  }
}

// Several sessions with pages of their own and one that all read.
// Whether a store holds nothing and its memory says nothing.
void assert_cleared(const Store& s) {
  const SpillStats stats = s.store->stats();
  assert_int_equal(stats.pages_held, 0);
  assert_int_equal(stats.pages_raw, 0);
  assert_int_equal(stats.pages_in_file, 0);
  assert_int_equal(stats.stored_bytes, 0);
  assert_int_equal(s.store->n_cells_taken(), 0);
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  const std::byte* slots = s.store->raw_slots();
  assert_true(std::all_of(slots, slots + s.store->plan().slot_bytes, is_zero));
  const std::span<std::byte> cells = s.store->cells_memory();
  // Links are made anew as cells are used.
  assert_true(std::all_of(cells.begin(), cells.end(), is_zero));
}

// After a conversation nothing of it is left, whatever tier it was in, and the store does what a new one does.
void spill_store__clear_is_a_new_beginning(void**) {
  for (uint32_t n_workers : kWorkerCounts) {
    for (uint32_t n_raw : {0u, 5u}) {
      SpillOptions o = options_for(n_raw, 30, n_workers);
      o.file_path = file_path();
      o.file_bytes = 100 * 3 * SpillFile::kCellBytes;
      Store s(o), fresh(o);
      std::fill_n(const_cast<std::byte*>(s.store->raw_slots()), s.store->plan().slot_bytes, std::byte{0});
      std::fill(s.store->cells_memory().begin(), s.store->cells_memory().end(), std::byte{0});
      std::vector<uint32_t> index(100, kNoCopy);
      s.store->set_raw_index(index.data());
      std::vector<SpillHandle> old;
      for (uint32_t i = 0; i < 100; ++i) {
        const Bytes bytes = page(i);
        SpillHandle handle = kNoSpill;
        assert_true(s.store->put(stream_of(i), position_of(i), bytes.data(), handle, i).ok());
        old.push_back(handle);
      }
      s.store->share(old[7]);
      s.store->release(old[8]);
      assert_true(s.store->stats().pages_in_file > 0);
      s.store->clear();
      assert_cleared(s);
      for (uint32_t where : index) assert_int_equal(where, kNoCopy);
      for (SpillHandle handle : old) assert_int_equal(s.get(handle, 0), WEIR_ERR_INTERNAL);
      for (uint32_t i = 0; i < 100; ++i) {
        SpillHandle here = kNoSpill, there = kNoSpill;
        const Bytes bytes = page(i + 50);
        const uint32_t n = i + 50;
        const weir_status status = fresh.put(n, there);
        assert_int_equal(s.store->put(stream_of(n), position_of(n), bytes.data(), here, i).code(), status);
        assert_int_equal(here, there);
        if (status == WEIR_OK) assert_int_equal(s.get(here, n), WEIR_OK);
        if (status == WEIR_OK) assert_int_equal(fresh.get(there, n), WEIR_OK);
      }
      s.store->drain();
      fresh.store->drain();
      assert_int_equal(s.store->stats().stored_bytes, fresh.store->stats().stored_bytes);
      assert_int_equal(s.store->stats().errors, 0);
      s.store->clear();
      assert_cleared(s);
    }
  }
}

// Bytes of an earlier conversation that lie where a page of this one should are none of its pages, though stream,
// position and size fit. Saved blocks do not know in which conversation of which store they were.
void spill_store__pages_of_another_conversation(void**) {
  Store s(options_for(0, 30)), other(options_for(0, 30));
  SpillHandle handle = s.must_put(3);
  s.store->drain();
  const std::span<std::byte> cells = s.store->cells_memory();
  const Bytes before(cells.begin(), cells.end());
  s.store->clear();
  handle = s.must_put(3);  // the same page, so that all but the checksum is equal
  s.store->drain();
  assert_int_equal(s.get(handle, 3), WEIR_OK);
  Bytes block(max_block_bytes(kPageBytes)), made(max_block_bytes(kPageBytes));
  uint32_t n = 0;
  SpillPlace place = SpillPlace::kRaw;
  assert_true(s.store->get_block(handle, stream_of(3), position_of(3), block.data(), n, place).ok());
  const Bytes bytes = page(3);
  assert_int_equal(other.store->make_block(stream_of(3), position_of(3), bytes.data(), made.data()), n);
  assert_memory_equal(block.data(), made.data(), n);
  SpillHandle there = kNoSpill;
  assert_true(other.store->put_block(stream_of(3), position_of(3), block.data(), n, place, nullptr, there).ok());
  assert_int_equal(other.get(there, 3), WEIR_OK);
  std::copy(before.begin(), before.end(), cells.begin());
  assert_int_equal(s.get(handle, 3), WEIR_ERR_FORMAT);
}

void spill_store__several_threads(void**) {
  SpillOptions o = options_for(4, 60, 2);
  o.n_readers = 2;
  o.file_path = file_path();
  o.file_bytes = 200 * 3 * SpillFile::kCellBytes;
  Store s(o);
  const SpillHandle common = s.must_put(0);
  uint32_t n_wrong[4] = {};
  const auto session = [&](uint32_t t) {
    std::vector<std::pair<SpillHandle, uint32_t>> held;
    s.store->share(common);
    for (uint32_t i = 0; i < 150; ++i) {
      const uint32_t number = 1 + t * 1000 + i;
      const Bytes bytes = page(number);
      Bytes out(kPageBytes);
      SpillHandle h = kNoSpill;
      n_wrong[t] += !s.store->put(stream_of(number), position_of(number), bytes.data(), h).ok();
      held.emplace_back(h, number);
      const auto [some, which] = held[i % 17 * held.size() / 17];
      n_wrong[t] += !s.store->get(some, stream_of(which), position_of(which), out.data()).ok() || out != page(which);
      n_wrong[t] += !s.store->get(common, 0, 0, out.data()).ok() || out != page(0);
      if (held.size() > 40) {
        s.store->release(held.front().first);
        held.erase(held.begin());
      }
      if (i % 20 == 0) s.store->drain();
    }
    for (const auto& h : held) s.store->release(h.first);
    s.store->release(common);
  };
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) threads.emplace_back(session, t);
  for (std::thread& t : threads) t.join();
  for (uint32_t n : n_wrong) assert_int_equal(n, 0);
  s.store->release(common);
  assert_int_equal(s.store->stats().pages_held, 0);
  assert_int_equal(s.store->stats().stored_bytes, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(spill_store__every_page_returns_from_every_tier),
      cmocka_unit_test(spill_store__other_page_sizes),
      cmocka_unit_test(spill_store__holds_exactly_the_worst_case),
      cmocka_unit_test(spill_store__worst_case_of_a_page),
      cmocka_unit_test(spill_store__answers_do_not_depend_on_workers),
      cmocka_unit_test(spill_store__put_works_only_when_the_queue_is_full),
      cmocka_unit_test(spill_store__room_made_is_room_for_all),
      cmocka_unit_test(spill_store__no_more_pages_than_the_table_has),
      cmocka_unit_test(spill_store__raw_pages_are_the_latest),
      cmocka_unit_test(spill_store__references_end_at_zero),
      cmocka_unit_test(spill_store__a_page_is_not_taken_for_another),
      cmocka_unit_test(spill_store__damaged_memory_gives_no_wrong_page),
      cmocka_unit_test(spill_store__damaged_links_lose_pages_only),
      cmocka_unit_test(spill_store__damaged_pages_take_their_cells_along),
      cmocka_unit_test(spill_store__all_memory_is_planned),
      cmocka_unit_test(spill_store__refuses_what_cannot_be),
      cmocka_unit_test(spill_store__memory_and_threads_that_are_refused),
      cmocka_unit_test(spill_store__pages_dropped_while_a_worker_has_them),
      cmocka_unit_test(spill_store__ends_at_any_time),
      cmocka_unit_test(spill_store__clear_is_a_new_beginning),
      cmocka_unit_test(spill_store__pages_of_another_conversation),
      cmocka_unit_test(spill_store__several_threads),
  };
  return cmocka_run_group_tests_name("kv/test_spill_store", tests, nullptr, nullptr);
}
