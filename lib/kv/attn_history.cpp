#include "kv/attn_history.h"

#include <algorithm>
#include <cmath>

namespace weir {

void AttnHistory::lay_out(Arenas& arenas) {
  if (!is_on()) return;
  Arena& arena = arenas.digests;
  all_.capacity = shape_.tokens;
  all_.list_capacity = shape_.list_room;
  all_.entries = arena.take<float>(n_heads() * kHistoryKinds * shape_.tokens);
  all_.lists = arena.take<uint32_t>(n_heads() * kHistoryKinds * shape_.list_room);
  all_.heads = arena.take<HeadHistory>(n_heads());
  all_.sums = arena.take<double>(n_streams() * 2 * head_dim_);
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

void AttnHistory::copy_from(const Part& part, uint32_t /*n_tokens*/) {
  if (!is_on()) return;
  const auto& other = static_cast<const AttnHistory&>(part);
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

void AttnHistory::cut_head(uint32_t head, uint32_t n) const {
  if (n == 0) all_.heads[head] = {};  // nothing is left that something was learned about
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    HistoryTable& t = all_.heads[head].table[kind];
    uint32_t* list = all_.list_of(head, kind);
    sum_table(t, all_.entries_of(head, kind), n);
    t.n_list = static_cast<uint32_t>(std::remove_if(list, list + t.n_list, [&](uint32_t i) { return i >= n; }) - list);
  }
}

void AttnHistory::cut(uint32_t n_tokens) {
  const uint32_t n = n_tokens - std::min(n_tokens, shape_.n_sink);
  for (uint32_t stream = 0; is_on() && stream < n_streams(); ++stream) {
    // After a truncation nothing is summed, but entries are known.
    if (all_.n_summed[stream] <= n_tokens && all_.n_known[stream] <= n) continue;
    // What is left is summed anew with the next token: subtracting would leave other bits.
    all_.n_summed[stream] = 0;
    std::fill_n(all_.sums + size_t{stream} * 2 * head_dim_, 2 * head_dim_, 0.0);
    all_.n_known[stream] = std::min(all_.n_known[stream], n);
    if (n == 0) all_.fill[stream] = min_fill();
    for (uint32_t head = stream * shape_.group; head < (stream + 1) * shape_.group; ++head) cut_head(head, n);
  }
}

Status AttnHistory::io(Io& io) {
  if (!is_on()) return {};
  WEIR_TRY(io.section("HIST"));
  const uint32_t max_known = io.n_tokens - std::min(io.n_tokens, shape_.n_sink), group = shape_.group;
  for (uint32_t number = 0; number < shape_.n_layers; ++number) {
    const HistoryView v = view(number);
    for (uint32_t kv_head = 0; kv_head < n_kv_heads_; ++kv_head) {
      uint32_t& n_known = v.n_known[kv_head];
      uint32_t& n_summed = v.n_summed[kv_head];
      float& fill = v.fill[kv_head];
      WEIR_TRY(io.value(n_known));
      WEIR_TRY(io.value(n_summed));
      WEIR_TRY(io.value(fill));
      if (io.restores() && (n_known > max_known || n_summed > io.n_tokens))
        return io.damaged("KV head %u knows %u and %u tokens of %u", kv_head, n_known, n_summed, io.n_tokens);
      if (io.restores() && !(fill >= min_fill() && fill <= max_fill(group)))
        return io.damaged("KV head %u has lists of another length", kv_head);
      WEIR_TRY(io.array(std::span(v.sums + size_t{kv_head} * 2 * head_dim_, 2 * head_dim_)));
      for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
        WEIR_TRY(head_io(io, v, head, n_known));
    }
  }
  return {};
}

// Weights are sorted by their bits, and their lists have room for what steps leave in them.
Status AttnHistory::head_io(Io& io, const HistoryView& v, uint32_t head, uint32_t n_known) const {
  const auto is_weight = [](double x) { return std::isfinite(x) && !std::signbit(x); };
  HeadHistory& h = v.heads[head];
  double spread = h.spread;
  WEIR_TRY(io.value(h.scale));
  WEIR_TRY(io.value(spread));
  h.spread = static_cast<float>(spread);
  if (io.restores() && (!(h.scale >= kMinHistoryScale && h.scale <= 1.0) || !is_weight(h.spread)))
    return io.damaged("head %u has no scale", head);
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    HistoryTable& t = h.table[kind];
    const std::span<float> entries(v.entries_of(head, kind), v.capacity);
    WEIR_TRY(io.value(t.sum));
    WEIR_TRY(io.value(t.sum2));
    WEIR_TRY(io.value(t.sum4));
    WEIR_TRY(io.value(t.floor));
    WEIR_TRY(io.array(entries, n_known, "weights"));
    if (io.saves()) continue;
    const bool sound = t.floor >= 0.0f && std::all_of(entries.begin(), entries.begin() + n_known, is_weight) &&
                       std::isfinite(t.sum) && std::isfinite(t.sum2) && std::isfinite(t.sum4);
    if (!sound) return io.damaged("head %u has weights that are none", head);
    if (!v.list_above(head, kind, n_known)) return io.damaged("head %u has more weights than a list takes", head);
  }
  return {};
}

}  // namespace weir
