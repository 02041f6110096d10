// kv: a copy of a spill store holds the same pages under the same handles, and the same calls have the same results in
// both from then on: what is refused, what is read, what moves to the file. Nothing of one can be seen in the other,
// though they share bytes: families of stores are compared with stores that were never copied. test_spill_family.cpp
// looks at what is shared, at faults and at threads.
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string>

#include "tests/kv/spill_case.h"

namespace {

using namespace weir;
using namespace spill_case;

#ifdef WEIR_INTERNAL_SANITIZED
constexpr uint32_t kFamilies = 2;
#else
constexpr uint32_t kFamilies = 12;
#endif

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
      SpillStore copy(&memory, &slots, &a.family_memory);
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
      SpillStore second(&memory, &slots, &a.family_memory);
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

// A relative path means the folder that was current when the first store was created.
void spill_copy__has_its_file_where_the_first_has(void**) {
  char folder[] = "/tmp/weir-copy-XXXXXX", before[PATH_MAX];
  assert_non_null(mkdtemp(folder));
  assert_non_null(getcwd(before, sizeof(before)));
  assert_int_equal(chdir(folder), 0);
  SpillOptions o = options_for(4, 8);
  o.file_path = "spill";
  o.file_bytes = uint64_t{30} * 3 * SpillFile::kCellBytes;
  static std::string opened;
  FileCalls calls = kSystemFile;
  calls.open = [](const char* path, int flags, mode_t mode) {
    opened = path;
    return kSystemFile.open(path, flags, mode);
  };
  o.file_calls = &calls;
  {
    Store a(o);
    assert_int_equal(a.status, WEIR_OK);
    assert_int_equal(chdir(before), 0);
    CountingMemory memory;
    SpillStore copy(&memory, &memory, &a.family_memory), second(&memory, &memory, &a.family_memory);
    assert_true(copy.create_copy(*a.store).ok());
    assert_true(opened == std::string(folder) + "/spill");
    opened.clear();
    assert_true(second.create_copy(copy).ok());
    assert_true(opened == std::string(folder) + "/spill");
  }
  assert_int_equal(rmdir(folder), 0);
}

void spill_copy__keeps_references(void**) {
  Store a(options_for(2, 10));
  const SpillHandle handle = a.must_put(1);
  a.store->share(handle);
  CountingMemory memory;
  SpillStore copy(&memory, &memory, &a.family_memory);
  assert_true(copy.create_copy(*a.store).ok());
  copy.release(handle);
  Bytes out(kPageBytes);
  assert_true(copy.get(handle, stream_of(1), position_of(1), out.data()).ok());
  copy.release(handle);
  assert_false(copy.get(handle, stream_of(1), position_of(1), out.data()).ok());
  assert_int_equal(a.get(handle, 1), WEIR_OK);
}

// --- families ------------------------------------------------------------------------------------------------------

struct Call {
  enum Kind : uint32_t { kPut, kRelease, kDrop, kGet, kBlock, kShare, kMakeRoom } kind;
  uint32_t number;  // of the page
};

// A store of the family and one with the same history that was never copied.
struct Member {
  struct Held {
    SpillHandle handles[2];
    uint32_t n_refs;
  };
  std::unique_ptr<SpillStore> store;
  std::unique_ptr<Store> alone;
  std::map<uint32_t, Held> held;  // by page
  std::vector<Call> history;
};

weir_status call(SpillStore& store, const Call& c, SpillHandle& handle, Bytes& seen) {
  const Bytes bytes = page(c.number);
  const uint32_t stream = stream_of(c.number), position = position_of(c.number);
  seen.clear();
  switch (c.kind) {
    case Call::kPut:
      return store.put(stream, position, bytes.data(), handle).code();
    case Call::kRelease:
      store.release(handle);
      break;
    case Call::kDrop:
      store.drop(handle);
      break;
    case Call::kGet: {
      seen.resize(kPageBytes);
      const weir_status status = store.get(handle, stream, position, seen.data()).code();
      if (status == WEIR_OK) assert_true(seen == bytes);
      return status;
    }
    case Call::kBlock: {
      seen.resize(max_block_bytes(kPageBytes));
      uint32_t n_bytes = 0;
      SpillPlace place = SpillPlace::kRaw;
      store.drain();  // what is compressed does not depend on the workers then
      const weir_status status = store.get_block(handle, stream, position, seen.data(), n_bytes, place).code();
      seen.resize(n_bytes);
      seen.push_back(static_cast<std::byte>(place));
      return status;
    }
    case Call::kShare:
      store.share(handle);
      break;
    case Call::kMakeRoom:
      return store.make_room(c.number % 5).code();
  }
  return WEIR_OK;
}

// `alone` without `member.store`: to give it the history that the store has.
void do_call(Member& member, const Call& c, bool only_alone) {
  Bytes seen[2];
  weir_status status[2] = {};
  Member::Held& held = member.held.try_emplace(c.number, Member::Held{{kNoSpill, kNoSpill}, 0}).first->second;
  for (size_t i = only_alone ? 1 : 0; i < 2; ++i)
    status[i] = call(i == 0 ? *member.store : *member.alone->store, c, held.handles[i], seen[i]);
  if (!only_alone) {
    assert_int_equal(status[0], status[1]);
    assert_true(seen[0] == seen[1]);
    member.history.push_back(c);
    if ((c.kind == Call::kPut && status[0] == WEIR_OK) || c.kind == Call::kShare) ++held.n_refs;
    if (c.kind == Call::kRelease || c.kind == Call::kDrop) --held.n_refs;
    if (held.n_refs == 0) member.held.erase(c.number);
  }
}

struct Family {
  explicit Family(const SpillOptions& o, uint32_t seed) : options(o), random(seed) {
    members.push_back(std::make_unique<Member>());
    members[0]->store = std::make_unique<SpillStore>(&memory, &memory, &memory);
    assert_true(members[0]->store->create(o).ok());
    members[0]->alone = std::make_unique<Store>(o);
  }
  ~Family() {
    while (!members.empty()) end(draw(static_cast<uint32_t>(members.size())));
    assert_int_equal(memory.bytes, 0);
  }
  uint32_t draw(uint32_t n) {
    random = random * 1664525u + 1013904223u;
    return (random >> 8) % n;
  }
  void copy(const Member& from) {
    auto member = std::make_unique<Member>();
    member->store = std::make_unique<SpillStore>(&memory, &memory, &memory);
    assert_true(member->store->create_copy(*from.store).ok());
    member->alone = std::make_unique<Store>(options);
    for (const Call& c : from.history) do_call(*member, c, true);
    for (const auto& [number, held] : from.held) {
      Member::Held& own = member->held.at(number);
      own.handles[0] = held.handles[0];
      own.n_refs = held.n_refs;
    }
    std::erase_if(member->held, [](const auto& held) { return held.second.n_refs == 0; });
    member->history = from.history;
    members.push_back(std::move(member));
  }
  void end(size_t i) {
    assert_same_stats(*members[i]->store, *members[i]->alone->store);
    members.erase(members.begin() + static_cast<std::ptrdiff_t>(i));
  }
  void step() {
    Member& member = *members[draw(static_cast<uint32_t>(members.size()))];
    const uint32_t kind = draw(20), n_held = static_cast<uint32_t>(member.held.size());
    const auto any = [&] { return std::next(member.held.begin(), draw(n_held))->first; };
    if (kind < 8 || n_held == 0) return do_call(member, {Call::kPut, next++}, false);
    if (kind < 12) return do_call(member, {kind < 11 ? Call::kRelease : Call::kDrop, any()}, false);
    if (kind < 17) return do_call(member, {kind < 15 ? Call::kGet : Call::kBlock, any()}, false);
    if (kind == 17) return do_call(member, {Call::kShare, any()}, false);
    if (kind == 18) {  // its number is no page's
      do_call(member, {Call::kMakeRoom, kNoSpill - draw(5)}, false);
    } else {
      drawn_member(member);
    }
  }
  void drawn_member(const Member& member) {
    if (members.size() < 5 && draw(3) != 0) {
      copy(member);
    } else if (members.size() > 1) {
      end(draw(static_cast<uint32_t>(members.size())));
    }
  }

  CountingMemory memory;
  SpillOptions options;
  std::vector<std::unique_ptr<Member>> members;
  uint32_t next = 0, random;
};

void run_families(uint32_t n_raw, uint32_t n_cells, uint32_t n_workers, uint32_t n_in_file) {
  const std::string path = file_path();
  SpillOptions o = options_for(n_raw, n_cells, n_workers);
  o.max_pages = 60;
  if (n_in_file != 0) o.file_path = path.c_str();
  o.file_bytes = uint64_t{n_in_file} * 3 * SpillFile::kCellBytes;
  for (uint32_t seed = 1; seed <= kFamilies; ++seed) {
    Family family(o, seed * 97 + n_raw);
    for (uint32_t i = 0; i < 500; ++i) family.step();
  }
}

void spill_copy__families_go_on_as_stores_that_share_nothing(void**) {
  run_families(0, 12, 0, 0);
  run_families(5, 12, 0, 0);
  run_families(5, 12, 2, 0);
  run_families(8, 30, 3, 0);
}

void spill_copy__families_with_files(void**) {
  run_families(0, 8, 0, 30);
  run_families(4, 8, 0, 30);
  run_families(4, 8, 2, 30);
  run_families(0, 6, 1, 12);
}

void spill_copy__without_memory(void**) {
  Store a(options_for(2, 10, 2));
  for (uint32_t i = 0; i < 8; ++i) a.must_put(i);
  CountingMemory memory;
  for (memory.refused_from = 0; memory.refused_from < 2; ++memory.refused_from) {
    memory.n_allocs = 0;
    SpillStore copy(&memory, &memory, &a.family_memory);
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
      cmocka_unit_test(spill_copy__goes_on_as_the_store),
      cmocka_unit_test(spill_copy__has_a_file_of_its_own),
      cmocka_unit_test(spill_copy__has_its_file_where_the_first_has),
      cmocka_unit_test(spill_copy__keeps_references),
      cmocka_unit_test(spill_copy__families_go_on_as_stores_that_share_nothing),
      cmocka_unit_test(spill_copy__families_with_files),
      cmocka_unit_test(spill_copy__without_memory),
  };
  return cmocka_run_group_tests_name("spill_copy", tests, nullptr, nullptr);
}
