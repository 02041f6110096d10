#include "kv/attn_history.h"

#include <algorithm>

namespace weir {

void AttnHistory::lay_out(const HistoryShape& shape, uint32_t n_kv_heads, uint32_t head_dim, Arena& arena) {
  shape_ = shape;
  n_kv_heads_ = n_kv_heads;
  head_dim_ = head_dim;
  if (!is_on()) return;
  all_.capacity = shape.tokens;
  all_.list_capacity = shape.list_room;
  all_.entries = arena.take<float>(n_heads() * kHistoryKinds * shape.tokens);
  all_.lists = arena.take<uint32_t>(n_heads() * kHistoryKinds * shape.list_room);
  all_.heads = arena.take<HeadHistory>(n_heads());
  all_.sums = arena.take<double>(n_streams() * 2 * head_dim);
  all_.n_summed = arena.take<uint32_t>(n_streams());
  all_.n_known = arena.take<uint32_t>(n_streams());
  all_.fill = arena.take<float>(n_streams());
}

void AttnHistory::reset() {
  if (!is_on()) return;
  std::fill_n(all_.heads, n_heads(), HeadHistory());
  std::fill_n(all_.sums, n_streams() * 2 * head_dim_, 0.0);
  std::fill_n(all_.n_summed, n_streams(), 0u);
  std::fill_n(all_.n_known, n_streams(), 0u);
  std::fill_n(all_.fill, n_streams(), min_fill());
}

bool AttnHistory::is_empty() const {
  for (uint64_t i = 0; is_on() && i < n_streams(); ++i) {
    if (all_.n_known[i] != 0 || all_.n_summed[i] != 0) return false;
  }
  return true;
}

HistoryView AttnHistory::view(uint32_t number) const {
  HistoryView v = all_;
  const size_t heads = size_t{number} * n_kv_heads_ * shape_.group, streams = size_t{number} * n_kv_heads_;
  v.entries += heads * kHistoryKinds * shape_.tokens;
  v.lists += heads * kHistoryKinds * shape_.list_room;
  v.heads += heads;
  v.sums += streams * 2 * head_dim_;
  v.n_summed += streams;
  v.n_known += streams;
  v.fill += streams;
  return v;
}

void AttnHistory::copy_from(const AttnHistory& other) {
  if (!is_on()) return;
  std::copy_n(other.all_.heads, n_heads(), all_.heads);
  std::copy_n(other.all_.sums, n_streams() * 2 * head_dim_, all_.sums);
  std::copy_n(other.all_.n_summed, n_streams(), all_.n_summed);
  std::copy_n(other.all_.n_known, n_streams(), all_.n_known);
  std::copy_n(other.all_.fill, n_streams(), all_.fill);
  for (uint32_t head = 0; head < n_heads(); ++head) {
    for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
      std::copy_n(other.all_.entries_of(head, kind), all_.n_known[head / shape_.group], all_.entries_of(head, kind));
      std::copy_n(other.all_.list_of(head, kind), all_.heads[head].table[kind].n_list, all_.list_of(head, kind));
    }
  }
}

void AttnHistory::truncate_head(uint32_t head, uint32_t n) const {
  if (n == 0) all_.heads[head] = {};  // nothing is left that something was learned about
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    HistoryTable& t = all_.heads[head].table[kind];
    uint32_t* list = all_.list_of(head, kind);
    sum_table(t, all_.entries_of(head, kind), n);
    t.n_list = static_cast<uint32_t>(std::remove_if(list, list + t.n_list, [&](uint32_t i) { return i >= n; }) - list);
  }
}

void AttnHistory::truncate(uint32_t n_tokens) {
  const uint32_t n = n_tokens - std::min(n_tokens, shape_.n_sink);
  for (uint32_t stream = 0; is_on() && stream < n_streams(); ++stream) {
    // After a truncation nothing is summed, but entries are known.
    if (all_.n_summed[stream] <= n_tokens && all_.n_known[stream] <= n) continue;
    // What is left is summed anew with the next token: subtracting would leave other bits.
    all_.n_summed[stream] = 0;
    std::fill_n(all_.sums + size_t{stream} * 2 * head_dim_, 2 * head_dim_, 0.0);
    all_.n_known[stream] = std::min(all_.n_known[stream], n);
    if (n == 0) all_.fill[stream] = min_fill();
    for (uint32_t head = stream * shape_.group; head < (stream + 1) * shape_.group; ++head) truncate_head(head, n);
  }
}

}  // namespace weir
