// kv: what a spill store and its copies share. Bytes are copied when their owner would free them and not before, to one
// of those that share them; whatever fails meanwhile costs pages and never shows a wrong one; everything happens on
// any threads at once. That nothing else differs from stores of their own is in test_spill_copy.cpp.
#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "tests/kv/spill_case.h"

namespace {

using namespace weir;
using namespace spill_case;

std::string file_path() { return "spill_family_test_" + std::to_string(getpid()) + ".tmp"; }

// Faults of the files of all stores. A hook runs once, before a read or after a write.
struct Faults {
  std::atomic<int> reads_left{-1}, writes_left{-1};
  std::function<void()> before_read, after_write;
} g;

void reset_faults() {
  g.reads_left = g.writes_left = -1;
  g.before_read = g.after_write = nullptr;
}

void run_once(std::function<void()>& hook) {
  if (!hook) return;
  const std::function<void()> run = std::move(hook);
  hook = nullptr;
  run();
}

ssize_t fault_read(int fd, void* data, size_t bytes, off_t offset) {
  if (g.reads_left == 0) return errno = EIO, -1;
  if (g.reads_left > 0) --g.reads_left;
  run_once(g.before_read);
  return kSystemFile.read(fd, data, bytes, offset);
}

ssize_t fault_write(int fd, const void* data, size_t bytes, off_t offset) {
  if (g.writes_left == 0) return errno = ENOSPC, -1;
  if (g.writes_left > 0) --g.writes_left;
  const ssize_t n = kSystemFile.write(fd, data, bytes, offset);
  run_once(g.after_write);
  return n;
}

const FileCalls kFaults = {kSystemFile.open, kSystemFile.unlink, kSystemFile.allocate, fault_read, fault_write};

SpillOptions with_file(const std::string& path, uint32_t n_raw, uint32_t n_cells, uint32_t n_workers = 0) {
  SpillOptions o = options_for(n_raw, n_cells, n_workers);
  o.file_path = path.c_str();
  o.file_bytes = 60 * 3 * SpillFile::kCellBytes;
  o.file_calls = &kFaults;
  return o;
}

// Stores in common memory. The pages 0, 1, ... have the handles `handles` in all of them.
struct Family {
  explicit Family(const SpillOptions& o, uint32_t n_pages) {
    stores.push_back(std::make_unique<SpillStore>(&memory, &memory, &memory));
    assert_true(stores[0]->create(o).ok());
    for (uint32_t i = 0; i < n_pages; ++i) handles.push_back(put(0, i));
    stores[0]->drain();
  }
  ~Family() {
    stores.clear();
    assert_int_equal(memory.bytes, 0);
  }
  void copy(size_t from) {
    stores.push_back(std::make_unique<SpillStore>(&memory, &memory, &memory));
    assert_true(stores.back()->create_copy(*stores[from]).ok());
  }
  SpillHandle put(size_t store, uint32_t number) {
    SpillHandle handle = kNoSpill;
    const Bytes bytes = page(number);
    assert_true(stores[store]->put(stream_of(number), position_of(number), bytes.data(), handle).ok());
    return handle;
  }
  weir_status get(size_t store, SpillHandle handle, uint32_t number) {
    Bytes out(kPageBytes);
    const weir_status code = stores[store]->get(handle, stream_of(number), position_of(number), out.data()).code();
    if (code == WEIR_OK) assert_true(out == page(number));
    return code;
  }
  weir_status get(size_t store, uint32_t number) { return get(store, handles[number], number); }
  void assert_all_there(size_t store) {
    for (uint32_t i = 0; i < handles.size(); ++i) assert_int_equal(get(store, i), WEIR_OK);
    assert_int_equal(stores[store]->stats().errors, 0);
  }
  // Every page is right or lost; what is lost is counted. Returns how many are.
  uint64_t count_lost(size_t store) {
    uint64_t n_lost = 0;
    for (uint32_t i = 0; i < handles.size(); ++i) {
      const weir_status code = get(store, i);
      assert_true(code == WEIR_OK || code == WEIR_ERR_NOT_FOUND);
      assert_int_equal(stores[store]->is_lost(handles[i]), code == WEIR_ERR_NOT_FOUND);
      n_lost += code != WEIR_OK;
    }
    const SpillStats stats = stores[store]->stats();
    assert_int_equal(stats.pages_dropped, n_lost);
    assert_true((stats.errors != 0) == (n_lost != 0));
    return n_lost;
  }
  void release_all(size_t store) {
    for (SpillHandle h : handles) stores[store]->release(h);
    const SpillStats stats = stores[store]->stats();
    assert_int_equal(stats.pages_held, 0);
    assert_int_equal(stats.pages_in_file, 0);
    assert_int_equal(stats.stored_bytes, 0);
    assert_int_equal(stores[store]->n_cells_taken(), 0);
  }
  // An empty store holds as many pages as a new one.
  void assert_all_room(size_t store, const SpillOptions& o) {
    SpillStore fresh(&memory, &memory, &memory);
    assert_true(fresh.create(o).ok());
    assert_int_equal(fill(*stores[store]), fill(fresh));
  }
  // Puts pages until there is no room; returns how many had some, and releases them.
  static uint32_t fill(SpillStore& store) {
    std::vector<SpillHandle> held;
    for (SpillHandle handle = kNoSpill;;) {
      const auto number = static_cast<uint32_t>(held.size());
      if (!store.put(stream_of(number), position_of(number), page(number).data(), handle).ok()) break;
      held.push_back(handle);
    }
    for (SpillHandle handle : held) store.release(handle);
    return static_cast<uint32_t>(held.size());
  }

  CountingMemory memory;
  std::vector<std::unique_ptr<SpillStore>> stores;
  std::vector<SpillHandle> handles;
};

// --- sharing -------------------------------------------------------------------------------------------------------

void spill_family__bytes_are_copied_when_their_owner_frees_them(void**) {
  reset_faults();
  Family f(options_for(0, 20), 10);
  const uint32_t n_cells = f.stores[0]->n_cells_taken();
  assert_true(n_cells > 0);
  f.copy(0);
  f.copy(1);
  f.copy(0);
  for (size_t s = 1; s < 4; ++s) {
    assert_int_equal(f.stores[s]->n_cells_taken(), 0);
    assert_int_equal(f.stores[s]->stats().stored_bytes, f.stores[0]->stats().stored_bytes);
    f.assert_all_there(s);
  }
  f.stores[1]->release(f.handles[3]);  // not the owner: nothing is copied
  assert_int_equal(f.stores[0]->n_cells_taken(), n_cells);
  uint32_t n_left = n_cells;
  for (const uint32_t i : {3u, 5u}) {
    f.stores[0]->drop(f.handles[i]);
    const uint32_t n_now = f.stores[0]->n_cells_taken(), n_others = n_cells - n_now;
    assert_true(n_now < n_left);
    uint32_t n = 0;
    for (size_t s = 1; s < 4; ++s) n += f.stores[s]->n_cells_taken();
    assert_int_equal(n, n_others);  // once, in one of them
    for (size_t s = 1; s < 4; ++s) assert_int_equal(f.get(s, i), i == 3 && s == 1 ? WEIR_ERR_INTERNAL : WEIR_OK);
    n_left = n_now;
  }
  assert_int_equal(f.stores[1]->stats().pages_dropped, 0);
  f.stores[1]->release(f.handles[5]);
  f.stores[2]->drop(f.handles[5]);
  assert_int_equal(f.get(3, 5), WEIR_OK);
}

// Raw pages stay where they are until they are compressed, or somebody wants to see them where they lie.
void spill_family__raw_pages_are_shared_too(void**) {
  Family f(options_for(6, 20), 6);
  f.copy(0);
  f.copy(0);
  f.assert_all_there(1);
  std::array<uint32_t, 16> index{};
  index.fill(kNoCopy);
  f.stores[2]->set_raw_index(index.data());
  for (uint32_t i = 0; i < 6; ++i) {
    const std::byte* raw = f.stores[1]->raw_page(f.handles[i]);
    assert_non_null(raw);
    assert_memory_equal(raw, page(i).data(), kPageBytes);
    const std::byte* slot = f.stores[2]->raw_slots() + (raw - f.stores[1]->raw_slots());
    assert_memory_equal(slot, page(i).data(), kPageBytes);
  }
  f.copy(0);
  for (uint32_t i = 0; i < 6; ++i) (void)f.put(0, 100 + i);  // compresses all that are shared
  f.assert_all_there(3);
  for (uint32_t i = 0; i < 6; ++i) (void)f.put(3, 200 + i);
  for (size_t s = 0; s < 4; ++s) f.assert_all_there(s);
}

// Four stores, which end in every order; each time the others have all pages, and at the end nothing is left.
void spill_family__ends_in_every_order(void**) {
  reset_faults();
  const std::string path = file_path();
  std::array<size_t, 4> order = {0, 1, 2, 3};
  do {
    for (uint32_t n_workers : {0u, 2u}) {
      Family f(with_file(path, 3, 6, n_workers), 30);
      assert_true(f.stores[0]->stats().pages_in_file > 0);
      f.copy(0);
      f.copy(1);
      f.copy(0);
      for (size_t i = 0; i < 4; ++i) {
        for (size_t s = 0; s < 4; ++s) {
          if (f.stores[s] != nullptr) f.assert_all_there(s);
        }
        if (i == 3) f.release_all(order[i]);
        f.stores[order[i]].reset();
      }
      assert_int_equal(f.memory.bytes, 0);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

void spill_family__references_end_at_zero(void**) {
  reset_faults();
  const std::string path = file_path();
  Family f(with_file(path, 3, 6, 2), 30);
  f.copy(0);
  f.copy(1);
  f.copy(2);
  for (const size_t s : {1u, 3u, 0u, 2u}) f.release_all(s);
  for (size_t s = 0; s < 4; ++s) {  // all room is there again
    f.handles.clear();
    for (uint32_t i = 0; i < 30; ++i) f.handles.push_back(f.put(s, i));
    f.assert_all_there(s);
  }
}

// --- faults --------------------------------------------------------------------------------------------------------

// The first store goes and a read or write fails on the way: at most what was being copied is lost, or with the file of
// the one that got it what was there; the third store gets what the second could not keep.
void spill_family__files_that_fail_while_pages_are_handed_over(void**) {
  const std::string path = file_path();
  for (std::atomic<int>* left : {&g.reads_left, &g.writes_left}) {
    for (int at = 0; at < 8; ++at) {
      for (const bool all : {false, true}) {
        reset_faults();
        Family f(with_file(path, 2, 4), 30);
        const uint64_t n_in_file = f.stores[0]->stats().pages_in_file;
        assert_true(n_in_file > 10);
        f.copy(0);
        f.copy(0);
        *left = at;
        if (all) {
          f.stores[0].reset();
        } else {
          for (uint32_t i = 0; i < 5; ++i) f.stores[0]->release(f.handles[i]);
          assert_int_equal(f.stores[0]->stats().errors, 0);
        }
        *left = -1;
        const uint64_t lost[] = {f.count_lost(1), f.count_lost(2)};
        if (!all && at >= 5) {
          assert_true(lost[0] == 0 && lost[1] == 0);
          assert_true(f.stores[1]->n_losses() == 0 && f.stores[2]->n_losses() == 0);
        } else if (left == &g.reads_left) {  // for all of those that shared it
          assert_true(lost[0] > 0 && lost[1] > 0 && lost[0] <= n_in_file);
          assert_true(f.stores[1]->n_losses() > 0 && f.stores[2]->n_losses() > 0);  // the sessions must look
          assert_false(f.stores[1]->file_given_up());
        } else {
          assert_true(f.stores[1]->file_given_up() || f.stores[2]->file_given_up());
          assert_true(lost[0] > 0 || lost[1] > 0);
        }
        f.release_all(1);
        f.release_all(2);
      }
    }
  }
}

// A write fails once: the file of one store is given up, and the next one takes what it could not.
void spill_family__another_store_takes_what_one_cannot(void**) {
  reset_faults();
  const std::string path = file_path();
  Family f(with_file(path, 2, 4), 30);
  f.copy(0);
  f.copy(0);
  g.writes_left = 0;
  f.stores[0]->release(f.handles[0]);
  assert_true(f.stores[1]->file_given_up() && f.stores[2]->file_given_up());
  assert_int_equal(f.stores[1]->stats().errors, 1);
  g.writes_left = -1;
  assert_false(f.stores[0]->file_given_up());
  for (uint32_t i = 1; i < 30; ++i) assert_int_equal(f.get(0, i), WEIR_OK);
  assert_int_equal(f.stores[0]->stats().pages_dropped, 0);
  // What memory had is there.
  assert_true(f.count_lost(1) < 30 && f.count_lost(2) == f.count_lost(1));
}

// A store whose own file was given up still has there what others share.
void spill_family__a_file_that_is_given_up_keeps_shared_blocks(void**) {
  reset_faults();
  const std::string path = file_path();
  Family f(with_file(path, 2, 4), 30);
  f.copy(0);
  f.copy(0);
  g.writes_left = 0;
  const Bytes more = page(50);
  for (SpillHandle h = kNoSpill; !f.stores[0]->file_given_up();)
    (void)f.stores[0]->put(stream_of(50), position_of(50), more.data(), h);
  g.writes_left = -1;
  assert_true(f.count_lost(0) > 0);
  f.assert_all_there(1);
  f.assert_all_there(2);
  for (SpillHandle h : f.handles) f.stores[0]->release(h);
  f.assert_all_there(1);
  f.stores[0].reset();
  f.stores[1].reset();
  f.assert_all_there(2);
}

// A shared block that cannot be read costs this page, and nothing of the store that has it.
void spill_family__shared_blocks_that_cannot_be_read(void**) {
  reset_faults();
  const std::string path = file_path();
  Family f(with_file(path, 2, 4), 30);
  f.copy(0);
  f.copy(0);
  g.reads_left = 0;
  assert_int_equal(f.get(1, 0), WEIR_ERR_IO);
  g.reads_left = -1;
  assert_int_equal(f.count_lost(1), 1);
  assert_int_equal(f.stores[1]->stats().errors, 1);
  assert_false(f.stores[1]->file_given_up());
  f.assert_all_there(0);
  f.assert_all_there(2);
  f.release_all(1);
}

// What is lost takes no room: afterwards the stores that shared it hold as many pages as any.
void spill_family__damaged_cells(void**) {
  const SpillOptions o = options_for(0, 20);
  Family f(o, 10);
  f.copy(0);
  f.copy(0);
  f.stores[1]->release(f.handles[9]);
  const std::span<std::byte> cells = f.stores[0]->cells_memory();
  cells[4 + kBlockHeaderBytes + 100] ^= std::byte{1};  // in the block of page 0
  for (size_t s = 0; s < 3; ++s) assert_int_equal(f.get(s, 0), WEIR_ERR_FORMAT);
  f.stores[0]->release(f.handles[0]);
  for (size_t s = 1; s < 3; ++s) assert_int_equal(f.get(s, 0), WEIR_ERR_FORMAT);
  assert_int_equal(f.stores[2]->stats().pages_dropped, 0);
  for (size_t cell = 0; cell * SpillCells::kCellBytes < cells.size(); ++cell)  // links lead nowhere
    std::memset(&cells[cell * SpillCells::kCellBytes], 0xFF, SpillCells::kLinkBytes);
  f.stores[0].reset();
  for (size_t s = 1; s < 3; ++s) {
    for (uint32_t i = 1; i < 9; ++i) assert_int_equal(f.get(s, i), WEIR_ERR_NOT_FOUND);
    assert_int_equal(f.stores[s]->stats().pages_dropped, s == 1 ? 8 : 9);
    f.release_all(s);
    f.assert_all_room(s, o);
  }
}

// While a store writes a block that it shares to its file, the owner's cells turn out to be damaged.
void spill_family__blocks_lost_while_they_move(void**) {
  const std::string path = file_path();
  for (const int references : {0, 1, 2}) {  // ended after the loss, before it, later
    reset_faults();
    const SpillOptions o = with_file(path, 0, 8);
    Family f(o, 8);
    f.copy(0);
    const std::span<std::byte> cells = f.stores[0]->cells_memory();
    g.after_write = [&] {
      if (references == 1) f.stores[1]->release(f.handles[0]);
      for (size_t cell = 0; cell * SpillCells::kCellBytes < cells.size(); ++cell)
        std::memset(&cells[cell * SpillCells::kCellBytes], 0xFF, SpillCells::kLinkBytes);
      f.stores[0].reset();
      if (references == 0) f.stores[1]->release(f.handles[0]);
    };
    std::vector<SpillHandle> more;
    while (g.after_write) more.push_back(f.put(1, 40 + static_cast<uint32_t>(more.size())));
    for (uint32_t i = 0; i < more.size(); ++i) assert_int_equal(f.get(1, more[i], 40 + i), WEIR_OK);
    if (references == 2) assert_int_equal(f.get(1, 0), WEIR_ERR_NOT_FOUND);
    for (SpillHandle h : more) f.stores[1]->release(h);
    f.release_all(1);
    f.assert_all_room(1, o);
  }
}

// The cells of the owner are found to be damaged when another store would move the blocks that it shares to its file:
// they are lost there, and take no room. In the owner the cells are lost with them: what it still takes is there.
void spill_family__damaged_cells_that_would_move(void**) {
  reset_faults();
  const std::string path = file_path();
  const SpillOptions o = with_file(path, 0, 8);
  Family f(o, 8);
  assert_int_equal(f.stores[0]->stats().pages_in_file, 0);
  f.copy(0);
  const std::span<std::byte> cells = f.stores[0]->cells_memory();
  for (size_t cell = 0; cell * SpillCells::kCellBytes < cells.size(); ++cell)
    std::memset(&cells[cell * SpillCells::kCellBytes], 0xFF, SpillCells::kLinkBytes);
  std::vector<SpillHandle> more;
  for (uint32_t i = 0; i < 30; ++i) more.push_back(f.put(1, 40 + i));
  for (uint32_t i = 0; i < more.size(); ++i) assert_int_equal(f.get(1, more[i], 40 + i), WEIR_OK);
  for (uint32_t i = 0; i < 8; ++i) assert_int_equal(f.get(1, i), WEIR_ERR_NOT_FOUND);
  for (SpillHandle h : more) f.stores[1]->release(h);
  f.release_all(1);
  f.assert_all_room(1, o);
  more.clear();
  const Bytes bytes = page(40);
  for (SpillHandle h = kNoSpill; f.stores[0]->put(stream_of(40), position_of(40), bytes.data(), h).ok();)
    more.push_back(h);
  assert_true(more.size() > 8);
  for (SpillHandle h : more) assert_int_equal(f.get(0, h, 40), WEIR_OK);
}

// --- threads -------------------------------------------------------------------------------------------------------

// While one store reads a block in another one's file, that one frees the block and uses its place again.
void spill_family__reading_a_place_that_is_used_again(void**) {
  reset_faults();
  const std::string path = file_path();
  Family f(with_file(path, 0, 4), 64);  // memory and file are nearly full
  f.copy(0);
  g.before_read = [&] {
    const auto use_again = [&] {
      for (uint32_t i = 0; i < 40; ++i) {
        f.stores[0]->release(f.handles[i]);
        (void)f.put(0, 100 + i);
      }
    };
    const std::future<void> done = std::async(std::launch::async, use_again);
    if (done.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
      print_error("freeing a block waits for a reader\n");
      _exit(1);  // neither thread would end
    }
  };
  assert_int_equal(f.get(1, 0), WEIR_OK);
  assert_false(static_cast<bool>(g.before_read));
  f.assert_all_there(1);
}

// A store ends while another one reads its file: the end waits for the read.
void spill_family__ending_under_a_reader(void**) {
  reset_faults();
  const std::string path = file_path();
  Family f(with_file(path, 0, 4), 30);
  f.copy(0);
  std::future<void> end;
  g.before_read = [&] {
    end = std::async(std::launch::async, [&] { f.stores[0].reset(); });
    assert_true(end.wait_for(std::chrono::milliseconds(500)) == std::future_status::timeout);
  };
  assert_int_equal(f.get(1, 0), WEIR_OK);
  end.get();
  f.assert_all_there(1);
}

// Threads that each use a store, copy it, go on with the copy, and end the old one, again and again.
void spill_family__several_threads(void**) {
  reset_faults();
  const std::string path = file_path();
  for (const bool has_file : {false, true}) {
    SpillOptions o = has_file ? with_file(path, 3, 8, 1) : options_for(3, 40, 1);
    Family f(o, 24);
    constexpr size_t kThreads = 4;
    for (size_t t = 1; t < kThreads; ++t) f.copy(t - 1);
    uint32_t n_wrong[kThreads] = {};
    const auto use = [&](size_t t) {
      std::vector<std::pair<SpillHandle, uint32_t>> held;
      for (uint32_t i = 0; i < f.handles.size(); ++i) held.emplace_back(f.handles[i], i);
      for (uint32_t i = 0; i < 120; ++i) {
        const uint32_t number = 1000 * static_cast<uint32_t>(t + 1) + i;
        const Bytes bytes = page(number);
        Bytes out(kPageBytes);
        std::unique_ptr<SpillStore>& store = f.stores[t];
        if (i % 12 == 11) {
          auto copy =
              std::make_unique<SpillStore>(std::pmr::new_delete_resource(), std::pmr::new_delete_resource(), nullptr);
          n_wrong[t] += !copy->create_copy(*store).ok();
          store = std::move(copy);
        }
        const auto [some, which] = held[i * 7 % held.size()];
        n_wrong[t] += !store->get(some, stream_of(which), position_of(which), out.data()).ok() || out != page(which);
        const size_t old = i * 5 % held.size();
        store->release(held[old].first);
        SpillHandle h = kNoSpill;
        n_wrong[t] += !store->put(stream_of(number), position_of(number), bytes.data(), h).ok();
        held[old] = {h, number};
      }
      SpillStore* store = f.stores[t].get();
      for (const auto& h : held) store->release(h.first);
      store->drain();
      n_wrong[t] += store->stats().pages_held != 0 || store->stats().errors != 0 || store->n_cells_taken() != 0;
    };
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; ++t) threads.emplace_back(use, t);
    for (std::thread& t : threads) t.join();
    for (uint32_t n : n_wrong) assert_int_equal(n, 0);
  }
}

// A store whose conversation is over leaves the others what they share with it, and begins anew.
void spill_family__clear_hands_over(void**) {
  for (uint32_t n_raw : {0u, 5u}) {
    for (size_t first : {0u, 1u, 2u}) {
      const std::string path = "spill_family_clear.tmp";
      SpillOptions o = options_for(n_raw, 60);
      o.file_path = path.c_str();
      o.file_bytes = 60 * 3 * SpillFile::kCellBytes;
      Family f(o, 80);
      f.copy(0);
      f.copy(1);
      for (size_t i = 0; i < 3; ++i) {
        const size_t cleared = (first + i) % 3;
        f.stores[cleared]->clear();
        assert_int_equal(f.stores[cleared]->stats().stored_bytes, 0);
        assert_int_equal(f.stores[cleared]->n_cells_taken(), 0);
        for (size_t other = i + 1; other < 3; ++other) f.assert_all_there((first + other) % 3);
        f.assert_all_room(cleared, o);
        const SpillHandle handle = f.put(cleared, 7);
        assert_int_equal(f.get(cleared, handle, 7), WEIR_OK);
      }
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(spill_family__bytes_are_copied_when_their_owner_frees_them),
      cmocka_unit_test(spill_family__raw_pages_are_shared_too),
      cmocka_unit_test(spill_family__ends_in_every_order),
      cmocka_unit_test(spill_family__references_end_at_zero),
      cmocka_unit_test(spill_family__files_that_fail_while_pages_are_handed_over),
      cmocka_unit_test(spill_family__another_store_takes_what_one_cannot),
      cmocka_unit_test(spill_family__a_file_that_is_given_up_keeps_shared_blocks),
      cmocka_unit_test(spill_family__shared_blocks_that_cannot_be_read),
      cmocka_unit_test(spill_family__damaged_cells),
      cmocka_unit_test(spill_family__damaged_cells_that_would_move),
      cmocka_unit_test(spill_family__blocks_lost_while_they_move),
      cmocka_unit_test(spill_family__reading_a_place_that_is_used_again),
      cmocka_unit_test(spill_family__ending_under_a_reader),
      cmocka_unit_test(spill_family__clear_hands_over),
      cmocka_unit_test(spill_family__several_threads),
  };
  return cmocka_run_group_tests_name("kv/test_spill_family", tests, nullptr, nullptr);
}
