// Counting memory_resource over the allocator hooks.
#include "core/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "core/callback.h"
#include "core/machine_limits.h"

namespace weir {
namespace {

// Blocks from this size on are asked for in pages of 2 MiB: attention reads rows that lie far apart, and with pages of
// 4 KiB it waits for address translation (docs/results/lfps). Smaller blocks would be rounded up by too much, and up to
// 32 MiB malloc may put them into memory that is the application's later.
constexpr uint64_t kLargeBlock = 64 << 20, kLargePage = 2 << 20;

// Whether the system has such pages, and gives them, is its affair.
void ask_for_large_pages([[maybe_unused]] void* block, [[maybe_unused]] uint64_t bytes) {
#ifdef MADV_HUGEPAGE
  const auto first = reinterpret_cast<uintptr_t>(block);
  const uint64_t begin = align_up(first, kLargePage), end = (first + bytes) / kLargePage * kLargePage;
  if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

// A block larger than the memory and swap that the machine has, or the container may use, is refused: a Linux that is
// set to promise memory without limit (vm.overcommit_memory = 1, as on many hosts of containers) would give it, and
// kill the process once it is used.
bool fits_the_machine(uint64_t bytes) { return bytes < kLargeBlock || bytes <= machine_memory_swap_bytes(); }

thread_local uint64_t g_thread_allocs = 0;
thread_local Refusal g_thread_refusal;

}  // namespace

uint64_t HostMemory::thread_allocs() { return g_thread_allocs; }
void HostMemory::note_thread_alloc() { ++g_thread_allocs; }
Refusal HostMemory::thread_refusal() { return g_thread_refusal; }

void* ask_hook(const AllocatorHooks& hooks, int32_t kind, uint64_t bytes, uint64_t alignment, const char*& why) {
  const weir_alloc_info info = {sizeof(weir_alloc_info), kind, bytes, alignment, nullptr};
  void* ptr = nullptr;
  const Answer answer = call_back([&] { return hooks.alloc(hooks.user, &info, &ptr); });
  why = answer.why();
  if (!answer.agreed || ptr == nullptr) return nullptr;
  if (reinterpret_cast<uintptr_t>(ptr) % alignment == 0) return ptr;
  return_to_hook(hooks, kind, bytes, alignment, ptr);
  why = ": the hook gave memory that is not aligned as asked";
  return nullptr;
}

void return_to_hook(const AllocatorHooks& hooks, int32_t kind, uint64_t bytes, uint64_t alignment, void* ptr) {
  const weir_alloc_info info = {sizeof(weir_alloc_info), kind, bytes, alignment, ptr};
  (void)call_back([&] { return hooks.free(hooks.user, &info); });
}

void wipe(void* bytes, uint64_t n) {
  if (n == 0) return;
  std::memset(bytes, 0, n);
  __asm__ __volatile__("" : : "r"(bytes) : "memory");  // somebody might: the compiler must not leave it out
}

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
  const char* why = "";
  if (hooks_.alloc != nullptr) {
    ptr = ask_hook(hooks_, WEIR_MEMORY_HOST, bytes, alignment, why);
  } else if (!fits_the_machine(bytes)) {
    why = ": this machine has less memory, swap included, or its container may use no more";
  } else if (alignment <= alignof(std::max_align_t)) {
    ptr = std::malloc(bytes);
  } else {
    const uint64_t padded = align_up(bytes, alignment);
    if (padded >= bytes) ptr = std::aligned_alloc(alignment, padded);
  }
  if (ptr == nullptr) {
    g_thread_refusal = {bytes, why};
    throw std::bad_alloc();
  }
  if (hooks_.alloc == nullptr && bytes >= kLargeBlock) ask_for_large_pages(ptr, bytes);
  count_alloc(bytes);
  ++g_thread_allocs;
  return ptr;
}

void HostMemory::do_deallocate(void* ptr, size_t bytes, size_t alignment) {
  if (bytes == 0) bytes = 1;
  if (hooks_.free != nullptr) {
    return_to_hook(hooks_, WEIR_MEMORY_HOST, bytes, alignment, ptr);
  } else {
    std::free(ptr);
  }
  count_free(bytes);
}

}  // namespace weir
