// A small thread pool of our own, so that the host process does not get an OpenMP runtime. Workers spin for a short
// while between the parallel regions of one step and sleep otherwise. Regions of different callers are serialised by a
// fair lock. Tasks write disjoint outputs, so results do not depend on the number of threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <type_traits>

#include "core/status.h"

namespace weir {

class ThreadPool {
 public:
  // Runs one task; `worker` is 0 (the caller) .. n_threads - 1 and tells which per-thread scratch is free to use.
  using TaskFn = void (*)(void* context, size_t task, size_t worker);

  explicit ThreadPool(std::pmr::memory_resource* memory) : memory_(memory) {}
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Starts n_threads - 1 workers; the thread that calls run() works, too.
  Status start(uint32_t n_threads);
  uint32_t n_threads() const { return n_threads_; }

  // Runs tasks 0 .. n_tasks - 1 and returns when all are done. Threads take tasks in ascending order. No exceptions may
  // leave `fn`.
  void run(size_t n_tasks, TaskFn fn, void* context);

  // The same for a callable f(task, worker).
  template <class F>
  void parallel_for(size_t n_tasks, F&& f) {
    using Body = std::remove_reference_t<F>;
    run(
        n_tasks, [](void* body, size_t task, size_t worker) { (*static_cast<Body*>(body))(task, worker); },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

  // Holds the pool for one caller during a whole step, so that two sessions do not alternate region by region. run()
  // must be called under a lease.
  class Lease {
   public:
    explicit Lease(ThreadPool& pool) : pool_(pool) { pool_.enter(); }
    ~Lease() { pool_.leave(); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

   private:
    ThreadPool& pool_;
  };

  // Releases the lease that the thread holds, for a callback of the application that may use the pool for another
  // session. Waits for the lease afterwards.
  class LeaseBreak {
   public:
    explicit LeaseBreak(ThreadPool& pool) : pool_(pool) { pool_.leave(); }
    ~LeaseBreak() { pool_.enter(); }
    LeaseBreak(const LeaseBreak&) = delete;
    LeaseBreak& operator=(const LeaseBreak&) = delete;

   private:
    ThreadPool& pool_;
  };

 private:
  struct Worker;
  void enter();  // waits for a turn; leave() ends it
  void leave();
  static void* worker_main(void* worker);
  void take_tasks(size_t worker);
  uint32_t wait_for_change(uint32_t seen);

  std::pmr::memory_resource* memory_;
  uint32_t n_threads_ = 1;
  uint32_t n_started_ = 0;
  Worker* workers_ = nullptr;

  // The gate: region number, an open bit, and the number of workers inside. Workers enter an open gate by raising the
  // count; the caller closes it when the tasks are handed out and waits only for those inside, so that a worker that
  // sleeps or was descheduled holds nobody up.
  alignas(64) std::atomic<uint32_t> gate_{0};
  std::atomic<uint32_t> n_sleeping_{0};
  std::atomic<bool> stop_{false};
  TaskFn fn_ = nullptr;  // these three are written only while the gate is closed and nobody is inside
  void* context_ = nullptr;
  size_t n_tasks_ = 0;
  alignas(64) std::atomic<size_t> next_task_{0};
  alignas(64) std::atomic<uint32_t> ticket_next_{0};
  std::atomic<uint32_t> ticket_serving_{0};
};

}  // namespace weir
