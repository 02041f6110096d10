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
  LeftSums left;
  AttnHistory history;
  PartList parts;
  explicit Cache(const KvShape& shape) {
    for (Part* part : {static_cast<Part*>(&kv), static_cast<Part*>(&left), static_cast<Part*>(&history)})
      parts.add(*part);
    kv.set_shape(shape, &left, &history);
    Arena m[3];
    Arenas measured = {m[0], m[1], m[2], m[2], m[2], m[2], m[2]};
    parts.lay_out(measured);
    pages.resize(m[0].used());
    digests.resize(m[1].used());
    tables.resize(m[2].used());
    Arena a(pages.data(), pages.size()), b(digests.data(), digests.size()), c(tables.data(), tables.size());
    Arenas arenas = {a, b, c, c, c, c, c};
    parts.lay_out(arenas);
    parts.reset();
  }
  // The parts point to each other.
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  void append(uint32_t n_tok, uint32_t flags = 0) {
    assert_true(kv.reserve(n_tok, flags, kv.n_tokens() + n_tok).ok());
    kv.commit();
  }
};

// The slots of one stream: each is in one row or free, and with recall a row may have none.
inline void check_slots(const KvCache& kv, uint32_t stream, std::set<uint32_t>& used) {
  const StreamView v = kv.stream(stream);
  const KvShape& shape = kv.shape();
  assert_int_equal(v.n_slots, shape.spec(stream).slots);
  uint32_t n_resident = 0;
  for (uint32_t row = 0; row < v.n_pages; ++row) {
    if (v.copies != nullptr && v.slots[row] == kNoSlot) continue;
    assert_true(v.slots[row] < shape.n_slots());
    assert_true(used.insert(v.slots[row]).second);
    ++n_resident;
  }
  assert_int_equal(v.n_resident, n_resident);
  assert_true(n_resident <= v.n_slots);
  const uint32_t* free_slots = kv.tables().free_slots + kv.tables().slot_begin[stream];
  for (uint32_t i = 0; i < v.n_slots - n_resident; ++i) assert_true(used.insert(free_slots[i]).second);
}

// No slot is in two tables, rows ascend in position, and pages are as full as they must be; with recall a row is a
// position. A layer's view and its streams are the same tables.
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
    assert_int_equal(v.copies != nullptr, kv.shape().recalls());
    for (uint32_t row = 0; row < v.n_pages; ++row) {
      assert_int_equal(v.first_pos[row] % kPageTokens, 0);
      assert_true(v.len[row] >= 1 && v.len[row] <= kPageTokens);
      if (row > 0) assert_true(v.first_pos[row] > v.first_pos[row - 1] && v.len[row - 1] == kPageTokens);
      if (kv.shape().recalls() && kv.window(s) == 0) assert_int_equal(v.first_pos[row], row * kPageTokens);
    }
    check_slots(kv, s, used);
    resident += v.n_resident;
  }
  assert_int_equal(used.size(), kv.shape().n_slots());
  assert_int_equal(resident, kv.pages_resident());
}

}  // namespace weir::test
