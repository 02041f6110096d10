// The read bandwidth of this machine's memory: threads that add up a buffer far larger than the caches. It is the floor
// that a decode step is held against, so it is measured between the steps, with as many threads as they use.
#pragma once

#include <atomic>
#include <barrier>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace weir_cli {

class BandwidthMeter {
 public:
  // Allocates the buffer and starts the threads; they sleep between passes. Throws std::bad_alloc.
  explicit BandwidthMeter(uint32_t n_threads);
  ~BandwidthMeter();
  BandwidthMeter(const BandwidthMeter&) = delete;
  BandwidthMeter& operator=(const BandwidthMeter&) = delete;

  // Bytes a second of one pass over the whole buffer, in units of 10^9.
  double pass_gbps();
  // The best of `n` passes.
  double best_gbps(int n);
  uint64_t buffer_bytes() const { return n_words_ * sizeof(uint64_t); }

 private:
  void work(uint32_t index);

  uint32_t n_threads_;
  uint64_t n_words_;
  std::unique_ptr<uint64_t[]> buffer_;
  std::vector<uint64_t> sums_;  // keeps the reads from being optimised away
  std::atomic<bool> stop_{false};
  std::barrier<> gate_;  // the caller and all threads meet at the start and at the end of a pass
  std::vector<std::thread> threads_;
};

// Bytes that can be allocated without swapping; 0 when the system does not tell.
uint64_t available_memory_bytes();

}  // namespace weir_cli
