// Shared code of the policy tests: a table that is not part of a cache, policies built from options, and a small
// simulator of one stream.
#pragma once

#include "tests/cmocka_cpp.h"

#include <initializer_list>
#include <vector>

#include "core/memory.h"
#include "core/thread_pool.h"
#include "ops/ops.h"
#include "policy/policy.h"

namespace weir::test {

struct Made {
  PolicyStorage storage;
  Policy* policy = nullptr;
  Status status;
  Made(const char* name, uint32_t budget, uint32_t context, std::initializer_list<weir_key_value> options) {
    const std::vector<weir_key_value> list(options);
    PolicyConfig config;
    config.n_layers = 1;
    config.n_heads = 1;
    config.n_kv_heads = 1;
    config.head_dim = 8;
    config.context_tokens = context;
    config.trained_tokens = 1024;
    config.budget_tokens = budget;
    config.options = list;
    status = make_policy(name, config, storage, policy);
  }
  ~Made() {
    if (policy != nullptr) policy->~Policy();
  }
};

inline RoomArgs room(uint32_t pos, bool is_full, uint32_t stream = 0) {
  return {Phase::kDecode, pos, 1, is_full, stream};
}

// One stream's table with room for `capacity` rows.
struct Table {
  std::vector<uint32_t> slots, first_pos, len, flags, stamp, copies;
  std::vector<float> score;
  uint32_t n = 0;
  explicit Table(uint32_t capacity)
      : slots(capacity), first_pos(capacity), len(capacity), flags(capacity), stamp(capacity), score(capacity) {}
  StreamView view() {
    StreamView s = {};
    s.slots = slots.data(), s.first_pos = first_pos.data(), s.len = len.data(), s.flags = flags.data();
    s.stamp = stamp.data(), s.last_score = score.data();
    s.copies = copies.empty() ? nullptr : copies.data();
    s.n_pages = s.n_resident = n;
    s.capacity = s.n_slots = static_cast<uint32_t>(slots.size());
    return s;
  }
  void append(uint32_t pos, uint32_t now, uint32_t page_flags = 0) {
    first_pos[n] = pos;
    len[n] = kPageTokens;
    flags[n] = page_flags;
    stamp[n] = now;
    score[n] = 0.0f;
    ++n;
  }
  void remove(uint32_t row) {
    for (auto* column : {&slots, &first_pos, &len, &flags, &stamp})
      column->erase(column->begin() + row), column->push_back(0);
    score.erase(score.begin() + row);
    score.push_back(0.0f);
    --n;
  }
};

}  // namespace weir::test
