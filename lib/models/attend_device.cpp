// A prompt chunk's attention on the device of a session that keeps keys and values on the host. The layer's pages pass
// through a window there, a part of every stream's at a time, in ascending order, and attention carries its sums from
// one part to the next (AttnCarry). While the device attends one part, the host gathers the next.
#include <algorithm>
#include <cstring>

#include "core/memory.h"
#include "core/thread_pool.h"
#include "kv/page_copies.h"
#include "models/attend.h"
#include "ops/attn_paged.h"

namespace weir {
namespace {

// With fewer rows, reading the keys here is faster than taking them to the device: they cross a bus that is several
// times slower than this memory.
constexpr uint32_t kMinRows = 32;
// Pages of a stream that a part has at most. With 8B shapes a part is 16 MiB, which copies and computes for much longer
// than a launch takes.
constexpr uint32_t kMaxPartRows = 256;
constexpr uint32_t kRowsAtOnce = 16;  // of a stream, that one thread gathers

// A part begins with its tables: slots, positions and lengths of its rows by stream, and the number of its rows.
uint64_t table_bytes(uint32_t n_kv_heads, uint32_t n_rows) {
  return align_up(uint64_t{n_kv_heads} * (3 * uint64_t{n_rows} + 1) * sizeof(uint32_t), kCacheLine);
}
uint64_t part_bytes(const KvView& kv, uint32_t n_rows) {
  return table_bytes(kv.n_kv_heads, n_rows) + uint64_t{kv.n_kv_heads} * n_rows * kv.page_elements() * sizeof(uint16_t);
}

// The part's tables and pages where `base` is its beginning.
struct TablePart {
  uint32_t *slots, *first_pos, *len, *n_pages;
  uint16_t* pages;
  TablePart(std::byte* base, uint32_t n_kv_heads, uint32_t n_rows)
      : slots(reinterpret_cast<uint32_t*>(base)),
        first_pos(slots + size_t{n_kv_heads} * n_rows),
        len(first_pos + size_t{n_kv_heads} * n_rows),
        n_pages(len + size_t{n_kv_heads} * n_rows),
        pages(reinterpret_cast<uint16_t*>(base + table_bytes(n_kv_heads, n_rows))) {}
};

// Reads the part's pages that are not in the pool from their copies. A page that is lost has no tokens there.
Status read_cold(const Step& s, const KvView& kv, uint32_t layer, uint32_t first, uint32_t n_rows,
                 const TablePart& part) {
  for (uint32_t head = 0; head < kv.n_kv_heads; ++head) {
    for (uint32_t i = 0; i < part.n_pages[head]; ++i) {
      if (kv.slots[size_t{head} * kv.capacity + first + i] != kNoSlot) continue;
      const size_t to = size_t{head} * n_rows + i;
      if (!s.copies->read(layer * kv.n_kv_heads + head, first + i, part.pages + to * kv.page_elements()))
        part.len[to] = 0;
    }
  }
  return s.copies->failure();
}

// Rows [first, first + n_rows) of every stream, as far as there are any.
Status gather(const Step& s, const KvView& kv, uint32_t layer, uint32_t first, uint32_t n_rows, const TablePart& part) {
  const size_t page = kv.page_elements();
  const uint32_t pieces = (n_rows + kRowsAtOnce - 1) / kRowsAtOnce;
  for (uint32_t head = 0; head < kv.n_kv_heads; ++head)
    part.n_pages[head] = std::min(n_rows, kv.n_pages[head] - std::min(kv.n_pages[head], first));
  s.cx.pool->parallel_for(size_t{kv.n_kv_heads} * pieces, [&](size_t task, size_t) {
    const auto head = static_cast<uint32_t>(task / pieces), begin = static_cast<uint32_t>(task % pieces) * kRowsAtOnce;
    for (uint32_t i = begin; i < std::min(begin + kRowsAtOnce, part.n_pages[head]); ++i) {
      const size_t to = size_t{head} * n_rows + i, from = size_t{head} * kv.capacity + first + i;
      part.slots[to] = static_cast<uint32_t>(to);
      part.first_pos[to] = kv.first_pos[from];
      part.len[to] = kv.len[from];
      if (kv.slots[from] != kNoSlot)
        std::memcpy(part.pages + to * page, kv.pool + kv.slots[from] * page, page * sizeof(uint16_t));
    }
  });
  return read_cold(s, kv, layer, first, n_rows, part);
}

}  // namespace

void DeviceWindow::lay_out(const KvView& kv, uint32_t max_rows, uint32_t n_heads, uint32_t max_tok, Arena& device,
                           Arena& host) {
  if (max_tok < kMinRows) return;
  n_rows = std::min(kMaxPartRows, static_cast<uint32_t>(align_up(max_rows, kSplitPages)));
  part = device.take<std::byte>(part_bytes(kv, n_rows));
  for (std::byte*& half : gathered) half = host.take<std::byte>(part_bytes(kv, n_rows));
  const uint64_t n = uint64_t{max_tok} * n_heads;
  high = device.take<float>(n);
  sum = device.take<float>(n);
  lse = device.take<float>(n);
  part_out = device.take<float>(n * kv.head_dim);
}

bool attends_on_device(const Step& s, const AttnPagedArgs& attn) {
  return s.device != nullptr && s.device->window.n_rows != 0 && attn.n_tok >= kMinRows &&
         attn.kv.format == KvFormat::kBf16;
}

Status attend_chunk_on_device(Step& s, AttnPagedArgs attn, uint32_t layer) {
  DeviceRows& d = *s.device;
  const DeviceWindow& w = d.window;
  const KvView kv = attn.kv;
  const size_t n = size_t{attn.n_tok} * attn.n_heads;
  float* const lse = attn.lse;
  AttnCarry carry = {w.high, w.sum, true, false, w.part_out};
  WEIR_TRY(d.copy_in(d.b.q, attn.q, n * kv.head_dim * sizeof(float)));
  attn.q = d.b.q;
  attn.out = d.b.o;
  attn.sinks = d.weights->attention(layer).sinks;
  attn.carry = &carry;
  const uint32_t all_rows = *std::max_element(kv.n_pages, kv.n_pages + kv.n_kv_heads);
  for (uint32_t first = 0, half = 0; first < all_rows; first += w.n_rows, half ^= 1) {
    const uint32_t n_rows = std::min(w.n_rows, all_rows - first);
    WEIR_TRY(gather(s, kv, layer, first, n_rows, TablePart(w.gathered[half], kv.n_kv_heads, n_rows)));
    WEIR_TRY(d.wait());  // for the part before: this one takes its place
    WEIR_TRY(d.copy_in(w.part, w.gathered[half], part_bytes(kv, n_rows)));
    const TablePart part(w.part, kv.n_kv_heads, n_rows);
    attn.kv.pool = part.pages;
    attn.kv.slots = part.slots;
    attn.kv.first_pos = part.first_pos;
    attn.kv.len = part.len;
    attn.kv.n_pages = part.n_pages;
    attn.kv.capacity = n_rows;
    carry.first = first == 0;
    carry.last = first + n_rows == all_rows;
    attn.lse = lse != nullptr ? w.lse : nullptr;
    WEIR_TRY(d.named(d.backend->ops.attn_paged(d.cx, attn)));
  }
  d.has_output = true;
  if (lse == nullptr) return {};
  WEIR_TRY(d.copy_out(lse, w.lse, n * sizeof(float)));
  return d.wait();
}

}  // namespace weir
