#include "kv/streams.h"

namespace weir {

StreamSpec KvShape::spec(uint32_t stream) const {
  const uint32_t layer = layer_of(stream), head = stream - first_stream(layer), before = n_global(layer);
  if (is_local(layer)) {
    return {.kind = StreamKind::kLocal,
            .rows = window_pages,
            .slots = window_pages,
            .window = window,
            .number = (layer - before) * n_kv_heads + head};
  }
  const bool is_wide = layer < n_wide_layers;
  const uint32_t wide_before = n_global(std::min(layer, n_wide_layers));
  uint32_t pages = is_wide ? wide_pages : pages_per_stream;
  if (!is_wide && by_layer.differ()) pages = by_layer.pages(before - wide_before);
  StreamSpec s = {.kind = is_wide ? StreamKind::kWide : StreamKind::kRuled,
                  .rows = std::max(pages, own_pages),
                  .slots = windows.any() || !recalls() ? pages : recall_slots};
  if (windows.has(stream)) {
    s.kind = StreamKind::kWindowed;
    s.slots = own_pages;
    s.window = windows.window;
    s.front_pages = windows.sink_pages();
  }
  const bool wide_let_go = wide_pages < archive_pages;  // else they hold the whole context
  s.is_archived = archive_pages != 0 && (!is_wide || wide_let_go);
  s.number = (before - (wide_let_go ? 0 : wide_before)) * n_kv_heads + head;
  return s;
}

uint32_t KvShape::last_ruled_stream() const {
  uint32_t last = n_streams() - 1;
  for (uint32_t s = n_streams(); s-- > 0;) {
    const StreamSpec of = spec(s);
    if (of.window == 0) return s;
    if (of.kind == StreamKind::kWindowed && spec(last).kind == StreamKind::kLocal) last = s;
  }
  return last;
}

}  // namespace weir
