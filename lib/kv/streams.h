// How much every stream of a session holds, and why. A stream is the history of one (layer, KV head); KvShape is what
// was planned for all of them, and StreamSpec what follows for one, by its kind. Tables, pool and copies have room for
// the sum over the streams' specs. A spec is a value: what a step looks up are the bounds that the tables have in
// memory (columns.inc), which KvCache::reset() writes from the specs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kv/attn_history.h"
#include "kv/stream_pages.h"
#include "ops/types.h"

namespace weir {

enum class StreamKind : uint8_t {
  kRuled,     // the budget and the policy rule it
  kWide,      // they do, but it is of one of the first layers, whose tables have a size of their own
  kLocal,     // its layer has a window: it holds the pages of that
  kWindowed,  // only it has a window, in a layer of the first two kinds: it holds sinks and the pages of that
};

struct StreamSpec {
  StreamKind kind = StreamKind::kRuled;
  uint32_t rows = 0;         // of its table; in a layer all streams have as many: a row takes a hundredth of a page
  uint32_t slots = 0;        // pages in the pool, at most; in one pool its part
  uint32_t window = 0;       // positions that it sees because of a window; 0: all
  uint32_t front_pages = 0;  // the pages before the window that stay
  bool is_archived = false;  // what leaves it may have a copy (KvShape::archive_pages)
  // Its number among the streams that are like it in the last respect: local ones, and archived ones.
  uint32_t number = 0;
};

struct KvShape {
  uint32_t n_layers = 0, n_kv_heads = 0, head_dim = 0;
  uint32_t pages_per_stream = 0;  // capacity of a stream's table
  DigestKind digest = DigestKind::kNone;
  uint32_t n_wide_layers = 0;  // the first layers may have tables of another size
  uint32_t wide_pages = 0;     // table capacity of those layers
  bool prompt_scores = false;  // a second score per page, for a prompt policy
  // Local layers: all but every global_every-th see `window` positions, their own included, and hold window_pages per
  // stream. window 0: there are none.
  uint32_t window = 0, global_every = 0;
  uint32_t window_pages = 0;
  // With recall: slots of a stream that the budget rules, whose table then has a row for each page of the context. 0:
  // as many as rows.
  uint32_t recall_slots = 0;
  uint32_t leave_at_once = 0;  // pages that a stream may lose at once in a decode step; 0: one
  // With recall: the slots of these streams are one pool, and a stream may have more of them than others.
  bool one_pool = false;
  // Without recall, > 0: pages of the context, of which the streams that let pages go have copies in a store: all but
  // those of local layers and of first layers that hold the context.
  uint32_t archive_pages = 0;
  // The latest of the archive_pages, so many may have copies: a stream's table of copies is a ring. 0: all may.
  uint32_t archive_ring = 0;
  LayerPages by_layer = {};  // pages of a stream by its layer, of the layers that are neither wide nor local

  // What attention learns from its past, in the layers that are not local from this one on.
  HistoryShape history = {};
  uint32_t history_from_layer = 0;

  // Streams of other layers that hold sinks and a window of their own in own_pages.
  StreamWindows windows = {};
  uint32_t own_pages = 0;
  bool last_gaps = false;  // pages have the longest gap between their hits
  KvFormat format = KvFormat::kBf16;

  uint32_t n_streams() const { return n_layers * n_kv_heads; }
  uint32_t n_streams_of(uint32_t /*layer*/) const { return n_kv_heads; }
  uint32_t first_stream(uint32_t layer) const { return layer * n_kv_heads; }
  uint32_t layer_of(uint32_t stream) const { return stream / n_kv_heads; }
  uint64_t page_bytes() const { return kv_page_bytes(format, head_dim); }
  // Where not all is in bf16: a page of each stream that takes tokens, the one before it, and one that a pass which
  // may be taken back would write over.
  static constexpr uint32_t kOpenPages = 3;
  uint64_t open_page_bytes() const { return format == KvFormat::kBf16 ? 0 : kv_page_bytes(KvFormat::kBf16, head_dim); }
  uint64_t open_bytes() const { return kOpenPages * n_streams() * open_page_bytes(); }
  bool is_local(uint32_t layer) const { return window != 0 && (layer + 1) % global_every != 0; }
  // Number of layers that are not local among the first `layers`.
  uint32_t n_global(uint32_t layers) const { return window == 0 ? layers : layers / global_every; }
  bool recalls() const { return recall_slots != 0; }
  bool slots_are_rows() const { return !recalls() && !windows.any(); }
  uint32_t archive_entries() const { return archive_ring != 0 ? std::min(archive_ring, archive_pages) : archive_pages; }

  StreamSpec spec(uint32_t stream) const;
  template <class Value>
  uint64_t sum(uint32_t n, const Value& value) const {  // over the first n streams
    uint64_t all = 0;
    for (uint32_t s = 0; s < n; ++s) all += value(spec(s));
    return all;
  }
  uint32_t capacity(uint32_t layer) const { return spec(first_stream(layer)).rows; }
  // What no table has more rows than. Rooms are planned with it, also where no stream is of the kind with the most.
  uint32_t max_capacity() const {
    return std::max({by_layer.differ() ? by_layer.pages(0) : pages_per_stream, n_wide_layers != 0 ? wide_pages : 0u,
                     window != 0 ? window_pages : 0u, own_pages});
  }
  uint64_t rows_before(uint32_t layer) const {
    return sum(first_stream(layer), [](const StreamSpec& s) { return s.rows; });
  }
  uint64_t n_rows() const { return rows_before(n_layers); }
  uint64_t n_slots() const {
    return sum(n_streams(), [](const StreamSpec& s) { return s.slots; });
  }
  uint64_t n_archived_streams() const {
    return sum(n_streams(), [](const StreamSpec& s) { return s.is_archived ? 1 : 0; });
  }
  uint64_t n_local_streams() const {
    return sum(n_streams(), [](const StreamSpec& s) { return s.kind == StreamKind::kLocal ? 1 : 0; });
  }
  // The last stream without a window; if all have windows, the last one in a layer that sees all, or the last of all.
  // No policy leaves that layer dense, so the stream stands for all that the budget and the policy rule.
  uint32_t last_ruled_stream() const;
};

}  // namespace weir
