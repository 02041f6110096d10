// Counting memory_resource over the allocator hooks.
#include "core/memory.h"

#include <cstdlib>
#include <new>

namespace weir {
namespace {

thread_local uint64_t g_thread_allocs = 0;
thread_local uint64_t g_thread_refused_bytes = 0;

}  // namespace

uint64_t HostMemory::thread_allocs() { return g_thread_allocs; }
void HostMemory::note_thread_alloc() { ++g_thread_allocs; }
uint64_t HostMemory::thread_refused_bytes() { return g_thread_refused_bytes; }

void HostMemory::count_alloc(uint64_t bytes) {
  const uint64_t now = bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  uint64_t peak = peak_bytes_.load(std::memory_order_relaxed);
  while (now > peak && !peak_bytes_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
  n_allocs_.fetch_add(1, std::memory_order_relaxed);
  if (parent_ != nullptr) parent_->count_alloc(bytes);
}

void HostMemory::count_free(uint64_t bytes) {
  bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  n_frees_.fetch_add(1, std::memory_order_relaxed);
  if (parent_ != nullptr) parent_->count_free(bytes);
}

void* HostMemory::do_allocate(size_t bytes, size_t alignment) {
  if (bytes == 0) bytes = 1;
  void* ptr = nullptr;
  if (hooks_.alloc != nullptr) {
    const weir_alloc_info info = {sizeof(weir_alloc_info), WEIR_MEMORY_HOST, bytes, alignment, nullptr};
    if (hooks_.alloc(hooks_.user, &info, &ptr) != WEIR_OK) ptr = nullptr;
  } else if (alignment <= alignof(std::max_align_t)) {
    ptr = std::malloc(bytes);
  } else {
    const uint64_t padded = align_up(bytes, alignment);
    if (padded >= bytes) ptr = std::aligned_alloc(alignment, padded);
  }
  if (ptr == nullptr) {
    g_thread_refused_bytes = bytes;
    throw std::bad_alloc();
  }
  count_alloc(bytes);
  ++g_thread_allocs;
  return ptr;
}

void HostMemory::do_deallocate(void* ptr, size_t bytes, size_t alignment) {
  if (bytes == 0) bytes = 1;
  if (hooks_.free != nullptr) {
    const weir_alloc_info info = {sizeof(weir_alloc_info), WEIR_MEMORY_HOST, bytes, alignment, ptr};
    (void)hooks_.free(hooks_.user, &info);
  } else {
    std::free(ptr);
  }
  count_free(bytes);
}

}  // namespace weir
