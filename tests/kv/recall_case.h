// What the tests of recall's tables share: small shapes, a store for them, a cache whose pages have their own bytes.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "kv/page_copies.h"
#include "kv/spill_store.h"
#include "tests/kv/cache_case.h"
#include "tests/kv/spill_case.h"

namespace recall_case {

using namespace weir;
using weir::test::Cache;
using weir::test::check;

inline constexpr uint32_t kHeadDim = 16;
inline constexpr uint32_t kElements = 2 * kPageTokens * kHeadDim;  // of a page

// Two layers of two KV heads, 12 pages of context in a pool of 4 a stream.
inline KvShape small_shape() {
  KvShape shape = {2, 2, kHeadDim, 12, DigestKind::kCuboidMean};
  shape.recall_slots = 4;
  return shape;
}

// One layer of two KV heads, for tests that count copies.
inline KvShape one_layer(uint32_t slots) {
  KvShape shape = {1, 2, kHeadDim, 12, DigestKind::kMinMax};
  shape.recall_slots = slots;
  return shape;
}

inline SpillOptions store_for(const KvShape& shape, uint32_t n_workers = 0) {
  SpillOptions o;
  o.page_bytes = static_cast<uint32_t>(shape.page_bytes());
  o.max_pages = shape.n_streams() * shape.pages_per_stream;
  o.budget_bytes = spill_worst_bytes(o.page_bytes, o.max_pages);
  o.n_workers = n_workers;
  o.queue_pages = 4;
  return o;
}

// Row t of a page's keys, and row kPageTokens + t of it, the values.
inline uint16_t element(uint32_t stream, uint32_t pos, uint32_t row, uint32_t i, uint32_t version) {
  const uint32_t mixed = (stream * 7919 + (pos + row) * 131 + i * 17 + version * 977) % 4099;
  return f32_to_bf16(static_cast<float>(mixed) / 512.0f - 4.0f);
}

// A cache with the copies of its pages. Every page has its own bytes, which depend on stream, position and version.
struct Recall {
  explicit Recall(const KvShape& shape) : Recall(shape, store_for(shape)) {}
  Recall(const KvShape& shape, const SpillOptions& o) : c(shape), kv(c.kv) {
    store = std::make_unique<SpillStore>(&memory, &memory, &memory);
    if (!store->create(o).ok()) fail_msg("%s", last_error_text());
    cold.start(kv, store.get());
  }
  // Appends tokens and seals what they filled. Every stream must have room.
  void append(uint32_t n_tok) {
    const uint32_t first = kv.n_tokens();
    assert_true(kv.reserve(n_tok, 0, first + n_tok).ok());
    for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) write(s, first, n_tok);
    kv.commit();
    cold.seal(first);
    check(kv);
  }
  void write(uint32_t s, uint32_t first, uint32_t n_tok) {
    const StreamView v = kv.stream(s);
    for (uint32_t row = 0; row < v.n_pages; ++row) {
      if (v.first_pos[row] + v.len[row] <= first) continue;
      uint16_t* page = kv.page_data(v.slots[row]);
      for (uint32_t t = 0; t < v.len[row]; ++t) {
        if (v.first_pos[row] + t < first || v.first_pos[row] + t >= first + n_tok) continue;
        for (uint32_t part : {0u, kPageTokens}) {
          for (uint32_t i = 0; i < kHeadDim; ++i)
            page[(part + t) * kHeadDim + i] = element(s, v.first_pos[row], part + t, i, version);
        }
      }
      if (kv.window(s) == 0) kv.rebuild_digest(s, row);
    }
  }
  std::vector<uint16_t> page(uint32_t s, uint32_t row) const {
    std::vector<uint16_t> out(kElements);
    for (uint32_t i = 0; i < kElements; ++i)
      out[i] = element(s, row * kPageTokens, i / kHeadDim, i % kHeadDim, version);
    return out;
  }
  void evict_all(uint32_t row) {
    for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) kv.evict(s, row);
    check(kv);
  }
  bool has_slot(uint32_t s, uint32_t row) const { return kv.stream(s).slots[row] != kNoSlot; }
  bool has_copy(uint32_t s, uint32_t row) const { return kv.stream(s).copies[row] != kNoCopy; }
  const uint16_t* digest(uint32_t s, uint32_t row) const {
    return kv.view(s / kv.shape().n_kv_heads).digest_of(s % kv.shape().n_kv_heads, row);
  }
  uint64_t held() const { return store->stats().pages_held; }
  // The store holds what the tables name, and no handle is named twice.
  void check_copies() const {
    std::set<uint32_t> handles;
    for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) {
      const StreamView v = kv.stream(s);
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        if (v.copies[row] == kNoCopy) continue;
        assert_true(v.len[row] == kPageTokens && kv.window(s) == 0);
        assert_true(handles.insert(v.copies[row]).second);
      }
      for (uint32_t page = 0; kv.window(s) != 0 && page < kv.shape().pages_per_stream; ++page) {
        const uint32_t copy = kv.copy_of(s, page);
        assert_true(copy == kNoCopy || (page < kv.n_tokens() / kPageTokens && handles.insert(copy).second));
      }
    }
    assert_int_equal(held(), handles.size());
  }

  Cache c;
  KvCache& kv;
  spill_case::CountingMemory memory;
  std::unique_ptr<SpillStore> store;
  PageCopies cold;
  uint32_t version = 0;
};

}  // namespace recall_case
