// Memory read bandwidth; see bench_bandwidth.h.
#include "bench_bandwidth.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

namespace weir_cli {
namespace {

constexpr uint64_t kMinBytes = 256ull << 20;
constexpr uint64_t kMaxBytes = 2048ull << 20;
constexpr uint64_t kBlockWords = 512;  // one page; the unit that slices are rounded to

// Four times the last-level cache, within the limits above and within a quarter of the free memory.
uint64_t pick_bytes() {
  uint64_t bytes = kMinBytes;
#ifdef _SC_LEVEL3_CACHE_SIZE
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (cache > 0) bytes = std::max(bytes, 4 * static_cast<uint64_t>(cache));
#endif
  bytes = std::min(bytes, kMaxBytes);
  if (const uint64_t available = available_memory_bytes(); available > 0) bytes = std::min(bytes, available / 4);
  return std::max<uint64_t>(bytes, 16ull << 20);
}

// 64 bytes at a time in four independent sums, so that no add waits for another. Narrow loads do not reach what the
// memory gives, so the loop is compiled for the wide ones too and chosen when the program starts; it asks for lines
// ahead as the kernels that it is compared with do.
#if defined(__x86_64__) && defined(__GNUC__)
#define WEIR_INTERNAL_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WEIR_INTERNAL_WIDEST
#endif
constexpr uint64_t kAheadWords = 256;  // 2 KiB: beyond the latency of memory, within the page

using Wide = uint64_t __attribute__((vector_size(64), aligned(8), may_alias));
constexpr uint64_t kWideWords = sizeof(Wide) / sizeof(uint64_t);

WEIR_INTERNAL_WIDEST uint64_t sum(const uint64_t* words, uint64_t n_words) {
  const Wide* wide = reinterpret_cast<const Wide*>(words);
  Wide a{}, b{}, c{}, d{};
  for (uint64_t i = 0; i + 4 <= n_words / kWideWords; i += 4) {
    for (uint64_t line = 0; line < 4; ++line)
      __builtin_prefetch(words + i * kWideWords + kAheadWords + line * kWideWords);
    a += wide[i];
    b += wide[i + 1];
    c += wide[i + 2];
    d += wide[i + 3];
  }
  a += b + c + d;
  uint64_t total = 0;
  for (uint64_t k = 0; k < kWideWords; ++k) total += a[k];
  return total;
}

}  // namespace

uint64_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  for (std::string rest; file >> key >> kib; std::getline(file, rest)) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

BandwidthMeter::BandwidthMeter(uint32_t n_threads)
    : n_threads_(std::max(n_threads, 1u)),
      n_words_(pick_bytes() / sizeof(uint64_t) / kBlockWords * kBlockWords),
      buffer_(new uint64_t[n_words_]),  // not zeroed here: each thread touches its own slice first
      sums_(n_threads_ * 8ull),         // a cache line each
      gate_(static_cast<std::ptrdiff_t>(n_threads_) + 1) {
  for (uint32_t i = 0; i < n_threads_; ++i) threads_.emplace_back([this, i] { work(i); });
  gate_.arrive_and_wait();  // the buffer is written
}

BandwidthMeter::~BandwidthMeter() {
  stop_ = true;
  gate_.arrive_and_wait();
  for (std::thread& thread : threads_) thread.join();
}

void BandwidthMeter::work(uint32_t index) {
  const uint64_t n_blocks = n_words_ / kBlockWords;
  const uint64_t first = n_blocks * index / n_threads_ * kBlockWords;
  const uint64_t last = n_blocks * (index + 1ull) / n_threads_ * kBlockWords;
  for (uint64_t i = first; i < last; ++i) buffer_[i] = i;
  gate_.arrive_and_wait();
  for (;;) {
    gate_.arrive_and_wait();
    if (stop_) return;
    sums_[index * 8ull] += sum(buffer_.get() + first, last - first);
    gate_.arrive_and_wait();
  }
}

double BandwidthMeter::pass_gbps() {
  const auto start = std::chrono::steady_clock::now();
  gate_.arrive_and_wait();
  gate_.arrive_and_wait();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return static_cast<double>(buffer_bytes()) / elapsed.count() / 1e9;
}

double BandwidthMeter::best_gbps(int n) {
  double best = 0;
  for (int i = 0; i < n; ++i) best = std::max(best, pass_gbps());
  return best;
}

}  // namespace weir_cli
