// Speed of the spill store on one machine: pages a second and bytes a second of put and get, with the time that put
// takes of the thread that decodes, and the ratio that the whole store reaches, its table included. Pages have the
// exponents of a model's keys and values, but are drawn at random.
//
//   bench_spill_store [-b PAGE_BYTES] [-n PAGES] [-j WORKERS] [-r RAW_PERCENT] [-q QUEUE_PAGES] [-f FILE]
#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kv/spill_store.h"
#include "tests/kv/page_makers.h"

namespace {

using namespace weir;

constexpr uint32_t kDistinct = 512;

// Seconds on the clock, and those that the calling thread worked.
struct Times {
  double wall, thread;
  static Times now() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return {std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
            static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9};
  }
};

struct Settings {
  uint32_t page_bytes = 4096, n_pages = 20000, n_workers = 1, raw_percent = 25, queue_pages = 0;
  const char* file = nullptr;
};

Settings read_settings(int argc, char** argv) {
  Settings s;
  for (int i = 1; i + 1 < argc; i += 2) {
    const auto number = static_cast<uint32_t>(std::strtoul(argv[i + 1], nullptr, 10));
    switch (argv[i][1]) {
      case 'b':
        s.page_bytes = number;
        break;
      case 'n':
        s.n_pages = number;
        break;
      case 'j':
        s.n_workers = number;
        break;
      case 'r':
        s.raw_percent = number;
        break;
      case 'q':
        s.queue_pages = number;
        break;
      case 'f':
        s.file = argv[i + 1];
        break;
      default:
        std::fprintf(stderr, "unknown option %s\n", argv[i]);
        std::exit(2);
    }
  }
  return s;
}

void check(Status status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, last_error_text());
  std::exit(1);
}

void report(const char* what, const Times& start, const Settings& s) {
  const Times end = Times::now();
  const double n = s.n_pages, wall = end.wall - start.wall;
  std::printf("%-30s %6.2f us a page, %5.2f GB/s; %6.2f us of this thread's work\n", what, wall / n * 1e6,
              n * s.page_bytes / wall * 1e-9, (end.thread - start.thread) / n * 1e6);
}

void run(const Settings& s) {
  std::vector<page_makers::Bytes> pages;
  for (uint32_t i = 0; i < kDistinct; ++i) pages.push_back(page_makers::model_page(s.page_bytes, i));
  SpillOptions o;
  o.page_bytes = s.page_bytes;
  o.max_pages = s.n_pages;
  const uint64_t all = spill_worst_bytes(s.page_bytes, s.n_pages);
  o.budget_bytes = s.file == nullptr ? all : all / 4;
  o.raw_bytes = o.budget_bytes / 100 * s.raw_percent;
  o.file_path = s.file;
  o.file_bytes = s.file == nullptr ? 0 : all + all / 4;
  o.n_workers = s.n_workers;
  if (s.queue_pages != 0) o.queue_pages = s.queue_pages;
  std::pmr::memory_resource* const memory = std::pmr::new_delete_resource();
  SpillStore store(memory, memory, memory);
  check(store.create(o), "create");
  std::vector<SpillHandle> handles(s.n_pages);
  // A first round, so that the system has given the memory.
  for (uint32_t i = 0; i < s.n_pages; ++i) check(store.put(i, 0, pages[i % kDistinct].data(), handles[i]), "put");
  for (const SpillHandle h : handles) store.release(h);
  Times start = Times::now();
  for (uint32_t i = 0; i < s.n_pages; ++i) check(store.put(i, 0, pages[i % kDistinct].data(), handles[i]), "put");
  report("put", start, s);
  store.drain();
  report("put, until the queue is empty", start, s);
  const SpillStats stats = store.stats();
  std::vector<std::byte> out(s.page_bytes);
  start = Times::now();
  for (uint32_t i = 0; i < s.n_pages; ++i) check(store.get(handles[i], i, 0, out.data()), "get");
  report("get", start, s);
  const uint64_t n_packed = stats.pages_held - stats.pages_raw;
  const uint64_t packed = stats.stored_bytes - stats.pages_raw * s.page_bytes;
  const double table = static_cast<double>(store.plan().host_bytes - uint64_t{store.plan().n_cells} * 256) / s.n_pages;
  std::printf(
      "%llu raw, %llu in the file, %llu waits; the others %.1f bytes a page, ratio %.3f; all but cells and slots "
      "%.1f bytes a page\n",
      static_cast<unsigned long long>(stats.pages_raw), static_cast<unsigned long long>(stats.pages_in_file),
      static_cast<unsigned long long>(stats.waits), static_cast<double>(packed) / static_cast<double>(n_packed),
      static_cast<double>(n_packed * s.page_bytes) / static_cast<double>(packed), table);
}

}  // namespace

int main(int argc, char** argv) {
  run(read_settings(argc, argv));
  return 0;
}
