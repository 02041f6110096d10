// Host memory: a counting memory_resource over the allocator hooks, and a bump arena that can also only measure.
// Every heap byte of the library comes from here. Counters are atomic, so any thread may read them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <type_traits>

#include "weir/runtime.h"

namespace weir {

inline constexpr size_t kCacheLine = 64;  // alignment of arrays that vector code reads

constexpr uint64_t align_up(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

// Allocator hooks, or the system's allocator when both are null.
struct AllocatorHooks {
  weir_alloc_fn alloc = nullptr;
  weir_free_fn free = nullptr;
  void* user = nullptr;
};

// For messages: how much was asked for, and why it was refused, where that is known.
struct Refusal {
  uint64_t bytes = 0;
  const char* why = "";  // static; for the end of a message
};

// Asks an allocator hook, which is set. Null and a reason when it refuses, throws, or gives memory that is not aligned
// as asked (that goes back to it).
void* ask_hook(const AllocatorHooks& hooks, int32_t kind, uint64_t bytes, uint64_t alignment, const char*& why);
// Gives memory back to the hook; its answer is ignored.
void return_to_hook(const AllocatorHooks& hooks, int32_t kind, uint64_t bytes, uint64_t alignment, void* ptr);

// Throws std::bad_alloc when the hook refuses; without one, when the system does or the machine has less. `parent` (may
// be null) counts the same allocations a second time: a session counts for itself and for its runtime.
class HostMemory final : public std::pmr::memory_resource {
 public:
  explicit HostMemory(const AllocatorHooks& hooks, HostMemory* parent = nullptr) : hooks_(hooks), parent_(parent) {}
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t peak_bytes() const { return peak_bytes_.load(std::memory_order_relaxed); }
  uint64_t n_allocs() const { return n_allocs_.load(std::memory_order_relaxed); }
  uint64_t n_frees() const { return n_frees_.load(std::memory_order_relaxed); }
  const AllocatorHooks& hooks() const { return hooks_; }
  // Allocations from any HostMemory by the calling thread; a difference shows whether a stretch of code allocated.
  static uint64_t thread_allocs();
  // Counts an allocation of another kind (device memory).
  static void note_thread_alloc();
  // The allocation that was refused last on the calling thread.
  static Refusal thread_refusal();
  // Counts memory that somebody else gives, as if it came from here.
  void count_alloc(uint64_t bytes);
  void count_free(uint64_t bytes);

 private:
  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* ptr, size_t bytes, size_t alignment) override;
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  AllocatorHooks hooks_;
  HostMemory* parent_;
  std::atomic<uint64_t> bytes_{0}, peak_bytes_{0}, n_allocs_{0}, n_frees_{0};
};

// Sets memory to zero, also where nobody reads it any more. Null is allowed with 0 bytes.
void wipe(void* bytes, uint64_t n);

// Hands out aligned pieces of one block. Built over a null block it only measures: the same layout function run twice
// gives first the size and then the pointers, which is what makes the plan exact.
class Arena {
 public:
  Arena() = default;
  Arena(void* block, uint64_t capacity) : base_(static_cast<std::byte*>(block)), capacity_(capacity) {}

  // Room for `n` objects, at least 64-byte aligned; null while measuring. The bytes are not initialised.
  template <class T>
  T* take(uint64_t n) {
    static_assert(std::is_trivially_destructible_v<T>);
    const uint64_t at = align_up(used_, kCacheLine);
    used_ = at + n * sizeof(T);
    if (base_ == nullptr || used_ > capacity_) return nullptr;
    return reinterpret_cast<T*>(base_ + at);
  }
  uint64_t used() const { return align_up(used_, kCacheLine); }

 private:
  std::byte* base_ = nullptr;
  uint64_t capacity_ = 0;
  uint64_t used_ = 0;
};

// Builds a T in memory of `memory`; frees the memory again when the constructor throws.
template <class T, class... Args>
T* make_in(std::pmr::memory_resource& memory, Args&&... args) {
  void* place = memory.allocate(sizeof(T), alignof(T));
  try {
    return new (place) T(static_cast<Args&&>(args)...);
  } catch (...) {
    memory.deallocate(place, sizeof(T), alignof(T));
    throw;
  }
}

// Counterpart of make_in; null is allowed.
template <class T>
void destroy_in(std::pmr::memory_resource& memory, T* object) {
  if (object == nullptr) return;
  object->~T();
  memory.deallocate(object, sizeof(T), alignof(T));
}

}  // namespace weir
