// A KvCache in memory of exactly the size that it asks for, and the invariants of its tables.
#pragma once

#include "tests/cmocka_cpp.h"

#include <set>
#include <vector>

#include "kv/kv_cache.h"
#include "quant/half.h"

namespace weir::test {

struct Cache {
  std::vector<std::byte> pages, digests, tables;
  KvCache kv;
  explicit Cache(const KvShape& shape) {
    Arena m[3];
    kv.lay_out(shape, m[0], m[1], m[2]);
    pages.resize(m[0].used());
    digests.resize(m[1].used());
    tables.resize(m[2].used());
    Arena a(pages.data(), pages.size()), b(digests.data(), digests.size()), c(tables.data(), tables.size());
    kv.lay_out(shape, a, b, c);
    kv.reset();
  }
  void append(uint32_t n_tok, uint32_t flags = 0) {
    assert_true(kv.reserve(n_tok, flags, kv.n_tokens() + n_tok).ok());
    kv.commit();
  }
};

// No slot is in two tables, rows ascend in position, and pages are as full as they must be. A layer's view and its
// streams are the same tables.
inline void check(const KvCache& kv) {
  std::set<uint32_t> used;
  uint64_t resident = 0;
  const uint32_t n_kv_heads = kv.shape().n_kv_heads;
  for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) {
    const StreamView v = kv.stream(s);
    const KvView layer = kv.view(s / n_kv_heads);
    assert_int_equal(v.capacity, kv.shape().capacity(s / n_kv_heads));
    assert_int_equal(layer.capacity, v.capacity);
    assert_ptr_equal(layer.slots + size_t{s % n_kv_heads} * layer.capacity, v.slots);
    assert_int_equal(layer.n_pages[s % n_kv_heads], v.n_pages);
    assert_true(v.n_pages <= v.capacity);
    for (uint32_t row = 0; row < v.n_pages; ++row) {
      assert_true(used.insert(v.slots[row]).second);
      assert_true(v.slots[row] < kv.shape().n_slots());
      assert_int_equal(v.first_pos[row] % kPageTokens, 0);
      assert_true(v.len[row] >= 1 && v.len[row] <= kPageTokens);
      if (row > 0) assert_true(v.first_pos[row] > v.first_pos[row - 1] && v.len[row - 1] == kPageTokens);
      ++resident;
    }
  }
  assert_int_equal(resident, kv.pages_resident());
}

}  // namespace weir::test
