// kv: the spill file has no name and no other reader, finishes reads and writes that the system cuts short, and is
// given up on the first error: its pages are lost and counted, everything else goes on.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <future>
#include <string>

#include "tests/kv/spill_case.h"

namespace {

using namespace weir;
using namespace spill_case;

// The system as the tests want it. Counts are of calls since reset().
struct Faults {
  int open_error = 0, unlink_error = 0, allocate_error = 0;
  int n_reads = 0, n_writes = 0;
  int read_fails_at = -1, write_fails_at = -1;  // number of the call, from 0
  int error = EIO;                              // 0: the call returns 0
  bool is_slow = false;                         // a few bytes a call, interrupted in between
  int fd = -1;
  int n_interrupted = 0;
  std::function<void()> during_write;
} g;

std::string file_path() { return "spill_file_test_" + std::to_string(getpid()) + ".tmp"; }

int fault_open(const char* path, int flags, mode_t mode) {
  if (g.n_interrupted++ == 0) {
    errno = EINTR;
    return -1;
  }
  if (g.open_error != 0) {
    errno = g.open_error;
    return -1;
  }
  return g.fd = kSystemFile.open(path, flags, mode);
}

int fault_unlink(const char* path) {
  if (g.unlink_error == 0) return kSystemFile.unlink(path);
  kSystemFile.unlink(path);  // the test leaves nothing behind
  errno = g.unlink_error;
  return -1;
}

int fault_allocate(int fd, off_t offset, off_t bytes) {
  if (g.n_interrupted++ == 1) return EINTR;
  return g.allocate_error != 0 ? g.allocate_error : kSystemFile.allocate(fd, offset, bytes);
}

// 1: go on with up to `bytes`; otherwise the call's result.
ssize_t fault(int n, int fails_at, size_t& bytes) {
  if (n == fails_at) {
    errno = g.error;
    return g.error == 0 ? 0 : -1;
  }
  if (!g.is_slow) return 1;
  if (n % 3 == 1) {
    errno = EINTR;
    return -1;
  }
  bytes = std::min<size_t>(bytes, static_cast<size_t>(n) % 200 + 1);
  return 1;
}

ssize_t fault_read(int fd, void* data, size_t bytes, off_t offset) {
  const ssize_t result = fault(g.n_reads++, g.read_fails_at, bytes);
  return result == 1 ? kSystemFile.read(fd, data, bytes, offset) : result;
}

ssize_t fault_write(int fd, const void* data, size_t bytes, off_t offset) {
  const ssize_t result = fault(g.n_writes++, g.write_fails_at, bytes);
  if (g.during_write) std::function<void()>(g.during_write)();
  return result == 1 ? kSystemFile.write(fd, data, bytes, offset) : result;
}

constexpr FileCalls kFaults = {fault_open, fault_unlink, fault_allocate, fault_read, fault_write};

bool is_closed(int fd) { return fcntl(fd, F_GETFD) < 0 && errno == EBADF; }

// Two raw pages, cells for eight at worst, a file for 40 at worst.
SpillOptions with_file(const std::string& path, uint32_t n_workers = 0) {
  SpillOptions o = options_for(2, 8, n_workers);
  o.file_path = path.c_str();
  o.file_bytes = 40 * 3 * SpillFile::kCellBytes;
  o.file_calls = &kFaults;
  return o;
}

void spill_file__has_no_name_and_one_owner(void**) {
  g = {};
  const std::string path = file_path();
  Store s(with_file(path));
  assert_int_equal(s.status, WEIR_OK);
  struct stat info;
  assert_int_equal(stat(path.c_str(), &info), -1);
  assert_int_equal(fstat(g.fd, &info), 0);
  assert_int_equal(info.st_nlink, 0);
  assert_int_equal(info.st_mode & 0177, 0);
  assert_int_equal(info.st_size, s.options.file_bytes);
  assert_true(info.st_blocks * 512 >= info.st_size);  // reserved, not a hole
  assert_true((fcntl(g.fd, F_GETFD) & FD_CLOEXEC) != 0);
  s.store.reset();
  assert_true(is_closed(g.fd));
}

void spill_file__what_is_there_stays(void**) {
  g = {};
  const std::string path = file_path();
  std::FILE* file = std::fopen(path.c_str(), "w");
  std::fputs("mine", file);
  std::fclose(file);
  assert_int_equal(Store(with_file(path)).status, WEIR_ERR_IO);
  assert_non_null(std::strstr(last_error_text(), path.c_str()));
  assert_non_null(std::strstr(last_error_text(), "there already"));
  char text[8] = {};
  file = std::fopen(path.c_str(), "r");
  assert_int_equal(std::fread(text, 1, sizeof text, file), 4);
  std::fclose(file);
  assert_string_equal(text, "mine");
  unlink(path.c_str());
  // Nor is a link followed.
  const std::string target = path + ".target";
  assert_int_equal(symlink(target.c_str(), path.c_str()), 0);
  assert_int_equal(Store(with_file(path)).status, WEIR_ERR_IO);
  assert_int_equal(access(target.c_str(), F_OK), -1);
  unlink(path.c_str());
}

void spill_file__cannot_be_created(void**) {
  const std::string path = file_path();
  const auto expect = [&](const char* text) {
    assert_int_equal(Store(with_file(path)).status, WEIR_ERR_IO);
    assert_non_null(std::strstr(last_error_text(), text));
    assert_non_null(std::strstr(last_error_text(), path.c_str()));
    assert_non_null(std::strstr(last_error_text(), std::to_string(40 * 3 * 512).c_str()));
    assert_int_equal(access(path.c_str(), F_OK), -1);
    if (g.fd >= 0) assert_true(is_closed(g.fd));
  };
  g = {};
  g.allocate_error = ENOSPC;
  expect("disk is full");
  g = {};
  g.allocate_error = EFBIG;
  expect("of this size");
  g = {};
  g.open_error = EACCES;
  expect("must not be written");
  g = {};
  g.unlink_error = EPERM;
  expect("name cannot be removed");
  g = {};
  SpillOptions o = with_file(path);
  o.file_path = "no_such_folder/file";
  assert_int_equal(Store(o).status, WEIR_ERR_IO);
  assert_non_null(std::strstr(last_error_text(), "no such folder"));
}

// The chains of cells: whatever was taken and given back, blocks keep their bytes.
void spill_file__blocks_keep_their_bytes(void**) {
  g = {};
  g.is_slow = true;
  std::vector<uint32_t> links(64);
  SpillFile file;
  assert_true(file.open(file_path().c_str(), 64, links.data(), kFaults).ok());
  struct Block {
    uint32_t n, first, last, bytes;
    Bytes data;
  };
  std::vector<Block> blocks;
  uint64_t state = 5;
  SpillFile::Run runs[16];
  for (int i = 0; i < 600; ++i) {
    const auto bytes = static_cast<uint32_t>(page_makers::next_random(state) % 5000 + 1);
    const auto n = static_cast<uint32_t>(SpillFile::cells_for(bytes));
    if (n <= file.n_free()) {
      Block b = {n, 0, 0, bytes, page_makers::random_page(bytes, static_cast<uint64_t>(i))};
      file.take(n, b.first, b.last);
      assert_int_equal(file.write(runs, file.runs(b.first, bytes, runs), b.data.data()), 0);
      blocks.push_back(std::move(b));
      continue;
    }
    for (const Block& b : blocks) {
      Bytes back(b.bytes);
      assert_int_equal(file.read(runs, file.runs(b.first, b.bytes, runs), back.data()), 0);
      assert_true(back == b.data);
    }
    const auto some = static_cast<ptrdiff_t>(page_makers::next_random(state) % blocks.size());
    file.give_back(blocks[static_cast<size_t>(some)].n, blocks[static_cast<size_t>(some)].first,
                   blocks[static_cast<size_t>(some)].last);
    blocks.erase(blocks.begin() + some);
  }
  for (const Block& b : blocks) file.give_back(b.n, b.first, b.last);
  assert_int_equal(file.n_free(), 64);
}

void spill_file__neighbouring_cells_are_one_run(void**) {
  g = {};
  std::vector<uint32_t> links(8);
  SpillFile file;
  assert_true(file.open(file_path().c_str(), 8, links.data(), kFaults).ok());
  uint32_t first = 0, last = 0;
  file.take(5, first, last);
  SpillFile::Run runs[8];
  assert_int_equal(file.runs(first, 4 * 512 + 1, runs), 1);
  assert_true(runs[0].offset == 0 && runs[0].bytes == 4 * 512 + 1);
}

void spill_file__short_counts_and_interruptions(void**) {
  for (uint32_t n_workers : {0u, 2u}) {
    g = {};
    g.is_slow = true;
    const std::string path = file_path();
    Store s(with_file(path, n_workers));
    std::vector<SpillHandle> handles;
    for (uint32_t i = 0; i < 45; ++i) handles.push_back(s.must_put(i));
    assert_true(s.store->stats().pages_in_file > 20);
    for (uint32_t i = 0; i < 45; ++i) assert_int_equal(s.get(handles[i], i), WEIR_OK);
    assert_int_equal(s.store->stats().errors, 0);
  }
}

// The oldest blocks move; one that is read gets another round.
void spill_file__what_is_read_stays_in_memory(void**) {
  g = {};
  const std::string path = file_path();
  Store s(with_file(path));
  std::vector<SpillHandle> handles;
  for (uint32_t i = 0; i < 40; ++i) {
    handles.push_back(s.must_put(i));
    if (i >= 1) assert_int_equal(s.get(handles[1], 1), WEIR_OK);
  }
  assert_int_equal(g.n_reads, 0);
  assert_true(s.store->stats().pages_in_file > 15);
  assert_int_equal(s.get(handles[0], 0), WEIR_OK);
  assert_true(g.n_reads > 0);
}

void spill_file__full_file_and_memory(void**) {
  g = {};
  const std::string path = file_path();
  SpillOptions o = with_file(path);
  Store s(o);
  std::vector<SpillHandle> handles(50);
  const auto noise = [](uint32_t i) { return page_makers::random_page(kPageBytes, 100 + i); };
  for (uint32_t i = 0; i < 50; ++i) assert_true(s.store->put(i, 0, noise(i).data(), handles[i]).ok());
  SpillHandle none = kNoSpill;
  assert_int_equal(s.store->put(50, 0, noise(50).data(), none).code(), WEIR_ERR_BUDGET);
  for (uint32_t i : {0u, 49u, 45u}) {  // in the file, raw, in cells
    s.store->drop(handles[i]);
    assert_true(s.store->put(i, 0, noise(i).data(), handles[i]).ok());
    assert_int_equal(s.store->put(50, 0, noise(50).data(), none).code(), WEIR_ERR_BUDGET);
  }
  Bytes out(kPageBytes);
  for (uint32_t i = 0; i < 50; ++i) {
    assert_true(s.store->get(handles[i], i, 0, out.data()).ok());
    assert_true(out == noise(i));
  }
  for (SpillHandle h : handles) s.store->release(h);
  assert_int_equal(s.store->stats().stored_bytes, 0);
}

// While a block is written, others read pages, this one too, and may end the last reference to it.
void spill_file__nobody_waits_for_a_write(void**) {
  for (bool release : {false, true}) {
    g = {};
    const std::string path = file_path();
    Store s(with_file(path));
    std::vector<SpillHandle> handles;
    const auto meanwhile = [&] {
      for (uint32_t i = 0; i < handles.size(); ++i) assert_int_equal(s.get(handles[i], i), WEIR_OK);
      if (!release) return;
      s.store->release(handles[0]);  // which is being written
      assert_int_equal(s.store->stats().pages_held, handles.size() - 1);
    };
    g.during_write = [&] {
      g.during_write = nullptr;
      const std::future<void> done = std::async(std::launch::async, meanwhile);
      if (done.wait_for(std::chrono::seconds(10)) != std::future_status::ready) {
        print_error("a reader waits for the disk\n");
        _exit(1);  // neither thread would end
      }
    };
    for (uint32_t i = 0; i < 40; ++i) handles.push_back(s.must_put(i));
    assert_true(g.n_writes > 0 && g.during_write == nullptr);
    for (uint32_t i = release ? 1 : 0; i < 40; ++i) assert_int_equal(s.get(handles[i], i), WEIR_OK);
    for (uint32_t i = release ? 1 : 0; i < 40; ++i) s.store->release(handles[i]);
    const SpillStats stats = s.store->stats();
    assert_int_equal(stats.pages_held, 0);
    assert_int_equal(stats.pages_in_file, 0);
    assert_int_equal(stats.stored_bytes, 0);
    // All room is there again.
    const auto noise = [](uint32_t i) { return page_makers::random_page(kPageBytes, 100 + i); };
    handles.assign(50, kNoSpill);
    for (uint32_t i = 0; i < 50; ++i) assert_true(s.store->put(i, 0, noise(i).data(), handles[i]).ok());
  }
}

// Pages that are lost with the file are counted once, and nothing but them is lost.
void check_after_fault(Store& s, const std::vector<SpillHandle>& handles) {
  assert_true(s.store->file_given_up());
  assert_int_equal(s.store->stats().errors, 1);
  assert_int_equal(s.store->stats().pages_in_file, 0);
  uint64_t n_lost = 0;
  for (uint32_t i = 0; i < handles.size(); ++i) {
    const weir_status code = s.get(handles[i], i);
    assert_true(code == WEIR_OK || code == WEIR_ERR_NOT_FOUND);
    assert_int_equal(s.store->is_lost(handles[i]), code == WEIR_ERR_NOT_FOUND);
    n_lost += code != WEIR_OK;
  }
  assert_int_equal(s.store->stats().pages_dropped, n_lost);
  for (SpillHandle h : handles) s.store->drop(h);
  assert_int_equal(s.store->stats().pages_held, 0);
  assert_int_equal(s.store->stats().stored_bytes, 0);
  assert_int_equal(s.store->stats().pages_dropped, handles.size());
  for (uint32_t i = 0; i < 10; ++i) assert_int_equal(s.get(s.must_put(i), i), WEIR_OK);
}

// A reader finds the file broken while a block is written: the block stays in memory.
void spill_file__read_error_during_a_write(void**) {
  g = {};
  const std::string path = file_path();
  Store s(with_file(path));
  std::vector<SpillHandle> handles;
  while (s.store->stats().pages_in_file == 0) handles.push_back(s.must_put(static_cast<uint32_t>(handles.size())));
  g.during_write = [&] {
    g.during_write = nullptr;
    g.read_fails_at = g.n_reads;
    const weir_status code = std::async(std::launch::async, [&] { return s.get(handles[0], 0); }).get();
    assert_int_equal(code, WEIR_ERR_IO);
  };
  while (!s.store->file_given_up()) {
    SpillHandle handle = kNoSpill;
    if (s.put(static_cast<uint32_t>(handles.size()), handle) == WEIR_OK) handles.push_back(handle);
  }
  g.read_fails_at = -1;
  check_after_fault(s, handles);
}

void spill_file__write_errors(void**) {
  for (int error : {EIO, ENOSPC, 0}) {
    for (int at = 0; at < 12; ++at) {
      g = {};
      g.error = error;
      g.write_fails_at = at;
      const std::string path = file_path();
      Store s(with_file(path, at % 3 == 0 ? 2 : 0));
      std::vector<SpillHandle> handles;
      SpillHandle h = kNoSpill;
      for (uint32_t i = 0; i < 45 && s.put(i, h) == WEIR_OK; ++i) handles.push_back(h);
      assert_true(handles.size() < 45);  // memory alone does not hold them
      assert_int_equal(g.n_writes, at + 1);
      check_after_fault(s, handles);
      assert_int_equal(g.n_writes, at + 1);  // nobody tries again
    }
  }
}

void spill_file__read_errors(void**) {
  for (int error : {EIO, 0}) {
    for (int at = 0; at < 12; ++at) {
      g = {};
      g.error = error;
      g.read_fails_at = at;
      const std::string path = file_path();
      Store s(with_file(path));
      std::vector<SpillHandle> handles;
      for (uint32_t i = 0; i < 40; ++i) handles.push_back(s.must_put(i));
      uint32_t n_failed = 0;
      for (uint32_t i = 0; i < 40 && n_failed == 0; ++i) {
        const weir_status code = s.get(handles[i], i);
        assert_true(code == WEIR_OK || code == WEIR_ERR_IO);
        n_failed += code == WEIR_ERR_IO;
      }
      assert_int_equal(n_failed, 1);
      check_after_fault(s, handles);
      assert_int_equal(g.n_reads, at + 1);
    }
  }
}

// A store of a conversation without end takes memory for the pages that it can hold, not for all that may come.
void spill_file__bookkeeping_is_bounded_by_the_room(void**) {
  SpillOptions o = options_for(20, 60);
  SpillPlan small, endless;
  o.max_pages = 1000;
  assert_true(plan_spill(o, small).ok());
  o.max_pages = 1u << 31;
  assert_true(plan_spill(o, endless).ok());
  assert_true(endless.host_bytes < o.budget_bytes + (256 << 10));
  assert_true(endless.n_entries < 20 + o.budget_bytes / SpillCells::kCellBytes + 1);
  const std::string path = file_path();
  g = {};
  o = with_file(path);
  o.max_pages = 1u << 31;
  Store s(o);
  assert_int_equal(s.status, WEIR_OK);
  std::vector<SpillHandle> handles;
  SpillHandle h = kNoSpill;
  for (uint32_t i = 0; s.put(i, h) == WEIR_OK; ++i) handles.push_back(h);
  assert_true(handles.size() >= 40);
  for (uint32_t i = 0; i < handles.size(); ++i) assert_int_equal(s.get(handles[i], i), WEIR_OK);
  for (SpillHandle held : handles) s.store->release(held);
}

// The process's limit of file sizes (ulimit -f) while this lives, and what the thread did with SIGXFSZ before.
struct SizeLimit {
  explicit SizeLimit(rlim_t bytes) {
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit limit = {bytes, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~SizeLimit() { setrlimit(RLIMIT_FSIZE, &before); }
  SizeLimit(const SizeLimit&) = delete;
  SizeLimit& operator=(const SizeLimit&) = delete;
  rlimit before = {};
};

bool is_waiting(int signal) {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, signal) == 1;
}

bool is_blocked(int signal) {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  return sigismember(&blocked, signal) == 1;
}

// The system answers a file above the limit with SIGXFSZ, which ends a process without a handler for it: this one.
void spill_file__limit_of_file_sizes(void**) {
  for (uint32_t n_workers : {0, 2}) {
    g = {};
    const std::string path = file_path();
    {
      const SizeLimit limit(20 * SpillFile::kCellBytes);
      assert_int_equal(Store(with_file(path, n_workers)).status, WEIR_ERR_IO);
    }
    assert_non_null(std::strstr(last_error_text(), path.c_str()));
    assert_non_null(std::strstr(last_error_text(), "ulimit -f"));
    assert_true(is_closed(g.fd));
    assert_int_equal(access(path.c_str(), F_OK), -1);
    assert_false(is_waiting(SIGXFSZ));
    assert_false(is_blocked(SIGXFSZ));
    // The limit comes later: the file is given up at the first write above it, on whatever thread.
    Store s(with_file(path, n_workers));
    std::vector<SpillHandle> handles;
    SpillHandle h = kNoSpill;
    {
      const SizeLimit limit(20 * SpillFile::kCellBytes);
      for (uint32_t i = 0; i < 45 && s.put(i, h) == WEIR_OK; ++i) handles.push_back(h);
      check_after_fault(s, handles);
    }
    assert_false(is_waiting(SIGXFSZ));
    assert_false(is_blocked(SIGXFSZ));
  }
}

// A signal that the application blocks and has waiting is still its own afterwards.
void spill_file__a_waiting_signal_stays(void**) {
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  for (bool waits : {false, true}) {
    if (waits) raise(SIGXFSZ);
    g = {};
    {
      const SizeLimit limit(20 * SpillFile::kCellBytes);
      assert_int_equal(Store(with_file(file_path())).status, WEIR_ERR_IO);
    }
    assert_true(is_waiting(SIGXFSZ) == waits);
    assert_true(is_blocked(SIGXFSZ));
  }
  int got = 0;
  assert_int_equal(sigwait(&set, &got), 0);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Somebody changes or cuts the file behind the store's back.
void spill_file__changed_from_outside(void**) {
  g = {};
  const std::string path = file_path();
  Store s(with_file(path));
  std::vector<SpillHandle> handles;
  for (uint32_t i = 0; i < 40; ++i) handles.push_back(s.must_put(i));
  uint32_t n_refused = 0;
  for (off_t at = 5; at < static_cast<off_t>(s.options.file_bytes); at += 511) {
    char before = 0, changed = 0;
    assert_int_equal(pread(g.fd, &before, 1, at), 1);
    changed = static_cast<char>(before ^ 0x10);
    assert_int_equal(pwrite(g.fd, &changed, 1, at), 1);
    for (uint32_t i = 0; i < 40; ++i) {
      const weir_status code = s.get(handles[i], i);
      assert_true(code == WEIR_OK || code == WEIR_ERR_FORMAT);
      n_refused += code != WEIR_OK;
    }
    assert_int_equal(pwrite(g.fd, &before, 1, at), 1);
  }
  assert_true(n_refused > 20);
  assert_int_equal(s.store->stats().errors, n_refused);
  assert_false(s.store->file_given_up());
  assert_int_equal(ftruncate(g.fd, 0), 0);
  assert_int_equal(s.get(handles[0], 0), WEIR_ERR_IO);
  assert_int_equal(s.get(handles[0], 0), WEIR_ERR_NOT_FOUND);
  assert_int_equal(s.get(handles[39], 39), WEIR_OK);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(spill_file__has_no_name_and_one_owner),
      cmocka_unit_test(spill_file__what_is_there_stays),
      cmocka_unit_test(spill_file__cannot_be_created),
      cmocka_unit_test(spill_file__blocks_keep_their_bytes),
      cmocka_unit_test(spill_file__neighbouring_cells_are_one_run),
      cmocka_unit_test(spill_file__short_counts_and_interruptions),
      cmocka_unit_test(spill_file__what_is_read_stays_in_memory),
      cmocka_unit_test(spill_file__full_file_and_memory),
      cmocka_unit_test(spill_file__nobody_waits_for_a_write),
      cmocka_unit_test(spill_file__read_error_during_a_write),
      cmocka_unit_test(spill_file__write_errors),
      cmocka_unit_test(spill_file__read_errors),
      cmocka_unit_test(spill_file__bookkeeping_is_bounded_by_the_room),
      cmocka_unit_test(spill_file__limit_of_file_sizes),
      cmocka_unit_test(spill_file__a_waiting_signal_stays),
      cmocka_unit_test(spill_file__changed_from_outside),
  };
  return cmocka_run_group_tests_name("kv/test_spill_file", tests, nullptr, nullptr);
}
