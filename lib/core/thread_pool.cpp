// The thread pool: pthreads, one gate word, and a ticket lock for leases.
#include "core/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <chrono>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#include "core/call.h"

namespace weir {
namespace {

constexpr uint32_t kOpen = 1u << 8;  // below it: workers inside, at most 255
constexpr uint32_t kInsideMask = kOpen - 1;
constexpr uint32_t kRegionStep = kOpen << 1;

// Long enough to bridge sampling and a token callback between two steps, short enough not to burn a core that the host
// needs.
constexpr auto kSpinTime = std::chrono::microseconds(100);
// A pause takes 10 to 140 cycles; asking the clock every 32 of them costs little.
constexpr int kPausesPerClock = 32;
// The last tasks of a region differ by microseconds at most; after that, something else runs on the worker's core.
constexpr int kSpinsBeforeYield = 2000;

void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

}  // namespace

struct ThreadPool::Worker {
  ThreadPool* pool;
  size_t index;
  pthread_t thread;
};

Status ThreadPool::start(uint32_t n_threads) {
  n_threads_ = n_threads;
  if (n_threads <= 1) return {};
  workers_ = static_cast<Worker*>(memory_->allocate((n_threads - 1) * sizeof(Worker), alignof(Worker)));
  // Signals are for the host's own threads: workers start with all of them blocked.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  for (uint32_t i = 0; i + 1 < n_threads && error == 0; ++i) {
    workers_[i] = {this, size_t{i} + 1, {}};
    error = pthread_create(&workers_[i].thread, nullptr, worker_main, &workers_[i]);
    if (error == 0) ++n_started_;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    return fail(WEIR_ERR_OUT_OF_MEMORY, "thread %u of %u could not be started: error %d", n_started_ + 1, n_threads,
                error);
  }
  return {};
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  gate_.fetch_add(kRegionStep);
  gate_.notify_all();
  for (uint32_t i = 0; i < n_started_; ++i) pthread_join(workers_[i].thread, nullptr);
  if (workers_ != nullptr) memory_->deallocate(workers_, (n_threads_ - 1) * sizeof(Worker), alignof(Worker));
}

void ThreadPool::take_tasks(size_t worker) {
  for (;;) {
    const size_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= n_tasks_) return;
    fn_(context_, task, worker);
  }
}

// Returns a gate value that differs from `seen`: spins for a while, then sleeps.
uint32_t ThreadPool::wait_for_change(uint32_t seen) {
  const auto until = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kPausesPerClock; ++i) {
      const uint32_t now = gate_.load(std::memory_order_acquire);
      if (now != seen) return now;
      cpu_pause();
    }
  } while (std::chrono::steady_clock::now() < until);
  n_sleeping_.fetch_add(1);
  gate_.wait(seen);
  n_sleeping_.fetch_sub(1);
  return gate_.load(std::memory_order_acquire);
}

void* ThreadPool::worker_main(void* argument) {
  auto* self = static_cast<Worker*>(argument);
  ThreadPool& pool = *self->pool;
  FloatEnvironment::set_default();  // instead of the one inherited from the creating thread
  uint32_t gate = pool.gate_.load(std::memory_order_acquire);
  while (!pool.stop_.load()) {
    if ((gate & kOpen) != 0) {
      if (!pool.gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) continue;
      pool.take_tasks(self->index);
      gate = pool.gate_.fetch_sub(1, std::memory_order_acq_rel) - 1;
      // The tasks of this region are all handed out: nothing to do here until the next one.
      const uint32_t region = gate & ~(kOpen | kInsideMask);
      while ((gate & ~(kOpen | kInsideMask)) == region && !pool.stop_.load()) gate = pool.wait_for_change(gate);
    } else {
      gate = pool.wait_for_change(gate);
    }
  }
  return nullptr;
}

void ThreadPool::run(size_t n_tasks, TaskFn fn, void* context) {
  if (n_started_ == 0 || n_tasks <= 1) {
    for (size_t task = 0; task < n_tasks; ++task) fn(context, task, 0);
    return;
  }
  fn_ = fn;
  context_ = context;
  n_tasks_ = n_tasks;
  next_task_.store(0, std::memory_order_relaxed);
  const uint32_t closed = gate_.load(std::memory_order_relaxed);
  gate_.store((closed + kRegionStep) | kOpen, std::memory_order_seq_cst);
  if (n_sleeping_.load() != 0) gate_.notify_all();
  take_tasks(0);
  uint32_t gate = gate_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  for (int spins = 0; (gate & kInsideMask) != 0; ++spins) {
    // A worker that was descheduled inside the region may need this core to finish.
    spins < kSpinsBeforeYield ? cpu_pause() : static_cast<void>(sched_yield());
    gate = gate_.load(std::memory_order_acquire);
  }
}

void ThreadPool::enter() {
  const uint32_t ticket = ticket_next_.fetch_add(1);
  for (uint32_t serving = ticket_serving_.load(); serving != ticket; serving = ticket_serving_.load()) {
    ticket_serving_.wait(serving);
  }
}

void ThreadPool::leave() {
  ticket_serving_.fetch_add(1);
  ticket_serving_.notify_all();
}

}  // namespace weir
