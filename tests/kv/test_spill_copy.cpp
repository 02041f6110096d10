// kv: a copy of a spill store holds the same pages under the same handles, and the same calls have the same results in
// both from then on: what is refused, what is read, what moves to the file. Nothing of one can be seen in the other.
#include <errno.h>
#include <unistd.h>

#include <string>

#include "tests/kv/spill_case.h"

namespace {

using namespace weir;
using namespace spill_case;

std::string file_path() { return "spill_copy_test_" + std::to_string(getpid()) + ".tmp"; }

// What a test does to stores, and what they should have. Which handle a new page has in which store may depend on how
// far the workers are: the entry of a page that a worker had when it was released is free when that worker comes back.
struct History {
  struct Held {
    std::vector<SpillHandle> handles;  // one for each store
    uint32_t number;
  };
  std::vector<Held> held;
  uint32_t next = 0, random = 1;
  bool has_same_handles = true;

  uint32_t draw(uint32_t n) {
    random = random * 1664525u + 1013904223u;
    return (random >> 8) % n;
  }
};

// One call of a random kind to each of the stores, which must agree.
void step(History& h, const std::vector<SpillStore*>& stores) {
  const uint32_t kind = h.draw(8);
  if (kind < 4 || h.held.empty()) {
    const Bytes bytes = page(h.next);
    std::vector<SpillHandle> handles(stores.size(), kNoSpill);
    weir_status first = WEIR_OK;
    for (size_t s = 0; s < stores.size(); ++s) {
      const weir_status status =
          stores[s]->put(stream_of(h.next), position_of(h.next), bytes.data(), handles[s]).code();
      if (s == 0) first = status;
      assert_int_equal(status, first);
      if (h.has_same_handles) assert_int_equal(handles[s], handles[0]);
    }
    if (first == WEIR_OK) h.held.push_back({handles, h.next});
    ++h.next;
    return;
  }
  const uint32_t i = h.draw(static_cast<uint32_t>(h.held.size()));
  const History::Held page_of = h.held[i];
  Bytes out(kPageBytes);
  for (size_t s = 0; s < stores.size(); ++s) {
    const SpillHandle handle = page_of.handles[s];
    if (kind == 4) stores[s]->release(handle);
    if (kind == 5) stores[s]->drop(handle);
    if (kind < 6) continue;
    const Status status = stores[s]->get(handle, stream_of(page_of.number), position_of(page_of.number), out.data());
    assert_int_equal(status.code(), WEIR_OK);
    assert_true(out == page(page_of.number));
  }
  if (kind < 6) h.held.erase(h.held.begin() + i);
}

void assert_same_stats(SpillStore& a, SpillStore& b) {
  a.drain();
  b.drain();
  const SpillStats x = a.stats(), y = b.stats();
  assert_int_equal(x.pages_spilled, y.pages_spilled);
  assert_int_equal(x.pages_dropped, y.pages_dropped);
  assert_int_equal(x.pages_held, y.pages_held);
  assert_int_equal(x.pages_raw, y.pages_raw);
  assert_int_equal(x.pages_in_file, y.pages_in_file);
  assert_int_equal(x.stored_bytes, y.stored_bytes);
  assert_int_equal(x.errors, y.errors);
}

void run(uint32_t n_raw, uint32_t n_cells, uint32_t n_workers, uint32_t n_in_file) {
  const std::string path = file_path();
  SpillOptions o = options_for(n_raw, n_cells, n_workers);
  o.max_pages = 60;
  if (n_in_file != 0) o.file_path = path.c_str();
  o.file_bytes = uint64_t{n_in_file} * 3 * SpillFile::kCellBytes;
  for (const uint32_t n_before : {0u, 3u, 40u, 200u}) {
    Store a(o);
    assert_int_equal(a.status, WEIR_OK);
    History h;
    h.random = 1 + n_before + n_raw;
    h.has_same_handles = n_workers == 0;
    for (uint32_t i = 0; i < n_before; ++i) step(h, {a.store.get()});
    CountingMemory memory, slots;
    {
      SpillStore copy(&memory, &slots);
      assert_true(copy.create_copy(*a.store).ok());
      assert_int_equal(memory.bytes, a.memory.bytes);
      assert_int_equal(slots.bytes, a.slot_memory.bytes);
      assert_same_stats(*a.store, copy);
      for (History::Held& held : h.held) held.handles.push_back(held.handles[0]);
      for (uint32_t i = 0; i < 300; ++i) step(h, {a.store.get(), &copy});
      assert_same_stats(*a.store, copy);
      // The copy's copy goes on alone.
      for (History::Held& held : h.held) {
        a.store->release(held.handles[0]);
        held.handles = {held.handles[1]};
      }
      SpillStore second(&memory, &slots);
      assert_true(second.create_copy(copy).ok());
      for (uint32_t i = 0; i < 100; ++i) step(h, {&second});
    }
    assert_int_equal(memory.bytes, 0);
    assert_int_equal(slots.bytes, 0);
    assert_int_equal(a.store->stats().pages_held, 0);
  }
}

void spill_copy__goes_on_as_the_store(void**) {
  run(0, 12, 0, 0);
  run(5, 12, 0, 0);
  run(5, 12, 2, 0);
  run(0, 30, 3, 0);
}

void spill_copy__has_a_file_of_its_own(void**) {
  run(4, 8, 0, 30);
  run(4, 8, 2, 30);
  run(0, 6, 1, 12);
}

void spill_copy__keeps_references(void**) {
  Store a(options_for(2, 10));
  const SpillHandle handle = a.must_put(1);
  a.store->share(handle);
  CountingMemory memory;
  SpillStore copy(&memory, &memory);
  assert_true(copy.create_copy(*a.store).ok());
  copy.release(handle);
  Bytes out(kPageBytes);
  assert_true(copy.get(handle, stream_of(1), position_of(1), out.data()).ok());
  copy.release(handle);
  assert_false(copy.get(handle, stream_of(1), position_of(1), out.data()).ok());
  assert_int_equal(a.get(handle, 1), WEIR_OK);
}

int g_reads_left = -1, g_writes_left = -1;
ssize_t failing_read(int fd, void* data, size_t bytes, off_t offset) {
  if (g_reads_left == 0) return errno = EIO, -1;
  --g_reads_left;
  return kSystemFile.read(fd, data, bytes, offset);
}
ssize_t failing_write(int fd, const void* data, size_t bytes, off_t offset) {
  if (g_writes_left == 0) return errno = ENOSPC, -1;
  --g_writes_left;
  return kSystemFile.write(fd, data, bytes, offset);
}

// A file that fails while it is copied costs the copy; the store goes on.
void spill_copy__of_a_file_that_fails(void**) {
  const FileCalls calls = {kSystemFile.open, kSystemFile.unlink, kSystemFile.allocate, failing_read, failing_write};
  const std::string path = file_path();
  SpillOptions o = options_for(0, 4);
  o.file_path = path.c_str();
  o.file_bytes = 100 * SpillFile::kCellBytes;
  o.file_calls = &calls;
  Store a(o);
  std::vector<SpillHandle> handles;
  for (uint32_t i = 0; i < 20; ++i) handles.push_back(a.must_put(i));
  assert_true(a.store->stats().pages_in_file > 3);
  for (int* left : {&g_reads_left, &g_writes_left}) {
    *left = 2;
    CountingMemory memory;
    {
      SpillStore copy(&memory, &memory);
      assert_int_equal(copy.create_copy(*a.store).code(), WEIR_ERR_IO);
    }
    assert_int_equal(memory.bytes, 0);
    *left = -1;
  }
  for (uint32_t i = 0; i < 20; ++i) assert_int_equal(a.get(handles[i], i), WEIR_OK);
  assert_int_equal(a.store->stats().errors, 0);
}

void spill_copy__without_memory(void**) {
  Store a(options_for(2, 10, 2));
  for (uint32_t i = 0; i < 8; ++i) a.must_put(i);
  CountingMemory memory;
  for (memory.refused_from = 0; memory.refused_from < 2; ++memory.refused_from) {
    memory.n_allocs = 0;
    SpillStore copy(&memory, &memory);
    bool threw = false;
    try {
      (void)copy.create_copy(*a.store);
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    assert_true(threw);
  }
  assert_int_equal(memory.bytes, 0);
  assert_int_equal(a.store->stats().pages_held, 8);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(spill_copy__goes_on_as_the_store), cmocka_unit_test(spill_copy__has_a_file_of_its_own),
      cmocka_unit_test(spill_copy__keeps_references),     cmocka_unit_test(spill_copy__of_a_file_that_fails),
      cmocka_unit_test(spill_copy__without_memory),
  };
  return cmocka_run_group_tests_name("spill_copy", tests, nullptr, nullptr);
}
