// Copies of what trace callbacks see (weir/experimental.h), to compare the steps of sessions on different devices.
#pragma once

#include <numeric>
#include <vector>

#include "weir/experimental.h"

namespace weir::test {

// One layer of a step. Of each list the pages, and the masses of each query head, in its order.
struct TracedLayer {
  uint32_t layer = 0, n_tokens = 0, capacity = 0;
  std::vector<uint32_t> n_pages;                                        // [n_kv_heads]
  std::vector<std::vector<uint32_t>> first_pos, flags, stamps, listed;  // by stream; the last one by list
  std::vector<std::vector<float>> scores, masses;                       // by stream; by query head
};

inline TracedLayer copy_of(const weir_trace_layer& t) {
  TracedLayer out;
  out.layer = t.layer;
  out.n_tokens = t.n_tokens;
  out.capacity = t.capacity;
  out.n_pages.assign(t.n_pages, t.n_pages + t.n_kv_heads);
  const auto rows = [&](const auto* table, uint32_t i, uint32_t n) {
    const auto* first = table + size_t{i} * t.capacity;
    return std::vector(first, first + n);
  };
  for (uint32_t i = 0; i < t.n_kv_heads; ++i) {
    out.first_pos.push_back(rows(t.first_pos, i, t.n_pages[i]));
    out.flags.push_back(rows(t.flags, i, t.n_pages[i]));
    out.stamps.push_back(rows(t.stamp, i, t.n_pages[i]));
    out.scores.push_back(rows(t.score, i, t.n_pages[i]));
  }
  for (uint32_t i = 0; i < t.n_lists; ++i) {
    std::vector<uint32_t> all(t.n_listed[i]);
    std::iota(all.begin(), all.end(), 0u);
    out.listed.push_back(t.listed != nullptr ? rows(t.listed, i, t.n_listed[i]) : all);
  }
  for (uint32_t head = 0; head < t.n_heads; ++head)
    out.masses.push_back(rows(t.mass, head, t.n_listed[head / (t.n_heads / t.n_lists)]));
  return out;
}

// The layers of the latest step; from layer `refused` on the callback refuses.
struct TraceCopies {
  std::vector<TracedLayer> layers;
  uint32_t refused = UINT32_MAX;

  static weir_status see(void* user, const weir_trace_layer* layer) {
    auto& copies = *static_cast<TraceCopies*>(user);
    if (layer->layer == 0) copies.layers.clear();
    if (layer->layer >= copies.refused) return WEIR_ERR_CANCELLED;
    copies.layers.push_back(copy_of(*layer));
    return WEIR_OK;
  }
};

}  // namespace weir::test
