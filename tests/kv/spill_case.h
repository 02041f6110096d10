// What the tests of the spill store share: memory that counts and can refuse, a store over it, and pages by number.
#pragma once

#include <atomic>
#include <memory>
#include <memory_resource>
#include <new>
#include <vector>

#include "kv/spill_store.h"
#include "tests/cmocka_cpp.h"
#include "tests/kv/page_makers.h"

namespace spill_case {

using page_makers::Bytes;

class CountingMemory final : public std::pmr::memory_resource {
 public:
  std::atomic<uint64_t> n_allocs{0}, bytes{0};
  uint64_t refused_from = UINT64_MAX;  // number of the first allocation that is refused

 private:
  void* do_allocate(size_t n, size_t alignment) override {
    if (n_allocs >= refused_from) throw std::bad_alloc();
    ++n_allocs;
    bytes += n;
    return ::operator new(n, std::align_val_t(alignment));
  }
  void do_deallocate(void* ptr, size_t n, size_t alignment) override {
    bytes -= n;
    ::operator delete(ptr, std::align_val_t(alignment));
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

inline constexpr uint32_t kPageBytes = 1024;

// Page `number`: every fifth is noise, the others are like a model's.
inline Bytes page(uint32_t number) {
  return number % 5 == 4 ? page_makers::random_page(kPageBytes, number) : page_makers::model_page(kPageBytes, number);
}
inline uint32_t stream_of(uint32_t number) { return number % 7; }
inline uint32_t position_of(uint32_t number) { return number / 7 * 16; }

struct Store {
  explicit Store(const weir::SpillOptions& options) : options(options) {
    store = std::make_unique<weir::SpillStore>(&memory, &slot_memory, &family_memory);
    status = store->create(options).code();
  }
  ~Store() {
    store.reset();
    assert_int_equal(memory.bytes, 0);
    assert_int_equal(slot_memory.bytes, 0);
    assert_int_equal(family_memory.bytes, 0);
  }
  weir_status put(uint32_t number, weir::SpillHandle& handle) {
    const Bytes bytes = page(number);
    return store->put(stream_of(number), position_of(number), bytes.data(), handle).code();
  }
  weir::SpillHandle must_put(uint32_t number) {
    weir::SpillHandle handle = weir::kNoSpill;
    assert_int_equal(put(number, handle), WEIR_OK);
    return handle;
  }
  // What get says; a page that it gives is the right one.
  weir_status get(weir::SpillHandle handle, uint32_t number) {
    Bytes out(kPageBytes);
    const weir_status code = store->get(handle, stream_of(number), position_of(number), out.data()).code();
    if (code == WEIR_OK) assert_true(out == page(number));
    return code;
  }

  weir::SpillOptions options;
  CountingMemory memory, slot_memory, family_memory;
  std::unique_ptr<weir::SpillStore> store;
  weir_status status = WEIR_OK;
};

// Room for n_raw raw pages and, whatever is in them, for n_cells more.
inline weir::SpillOptions options_for(uint32_t n_raw, uint32_t n_cells, uint32_t n_workers = 0) {
  weir::SpillOptions o;
  o.page_bytes = kPageBytes;
  o.max_pages = 1000;
  o.raw_bytes = uint64_t{n_raw} * kPageBytes;
  o.budget_bytes = o.raw_bytes + weir::spill_worst_bytes(kPageBytes, n_cells);
  o.n_workers = n_workers;
  o.queue_pages = 4;
  return o;
}

}  // namespace spill_case
