// Kernels of the test module that move pages, and those that prompts and logits need. What an op of the processor
// computes is computed by that op, so that the bits are those of a session on the processor.
#include "tests/runtime/host_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/backend.h"
#include "device/kernels/copies.h"
#include "device/kernels/experts_step.h"
#include "device/kernels/fill.h"
#include "device/kernels/gemv.h"
#include "device/kernels/logits.h"
#include "device/kernels/move_open_page.h"
#include "device/kernels/step_end.h"
#include "ops/attn_paged.h"
#include "ops/page_digest.h"
#include "ops/table.h"
#include "quant/half.h"
#include "runtime/logprobs.h"
#include "tests/runtime/host_queue.h"

namespace weir::host_module {
namespace {

const OpTable& ops() { return cpu_backend().ops; }

// One column of a GEMV.
Status product(OpContext& cx, const GemvArgs& a, const GemvColumn& column) {
  const uint32_t n = a.part[0].w.n_cols;
  std::vector<float> x(column.x, column.x + n);
  if (a.norm != nullptr) WEIR_TRY(ops().rms_norm(cx, {x.data(), column.x, a.norm, 1, n, a.eps}));
  if (a.glu) {
    return ops().glu_matmul(
        cx, {column.y[0], a.part[0].w, a.part[1].w, x.data(), 1, a.activation, a.part[0].bias, a.part[1].bias});
  }
  MatmulArgs m = {{}, a.n_parts, x.data(), 1};
  for (uint32_t i = 0; i < a.n_parts; ++i) {
    m.part[i] = a.part[i];
    m.part[i].y = column.y[i];
  }
  return ops().matmul(cx, m);
}

std::byte* slot_of(uint16_t* pool, uint32_t slot, uint32_t page_bytes) {
  return reinterpret_cast<std::byte*>(pool) + size_t{slot} * page_bytes;
}
const std::byte* slot_of(const uint16_t* pool, uint32_t slot, uint32_t page_bytes) {
  return slot_of(const_cast<uint16_t*>(pool), slot, page_bytes);
}

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
// A number in [-1, 1).
float noise(uint64_t seed, uint64_t i) {
  return static_cast<float>(static_cast<int32_t>(mix(seed + (i + 1) * 0x9E3779B97F4A7C15u))) * 0x1p-31f;
}

// The same in all elements of a page.
void fill_page(KvFormat format, uint16_t* page, uint32_t head_dim, uint64_t seed, uint64_t first) {
  std::vector<float> row(head_dim);
  for (uint32_t i = 0; i < 2 * kPageTokens; ++i) {
    for (uint32_t j = 0; j < head_dim; ++j) row[j] = noise(seed, first + size_t{i} * head_dim + j);
    const auto part = i < kPageTokens ? keys_in(format, page, head_dim) : values_in(format, page, head_dim);
    store_row(part, i % kPageTokens, row.data());
  }
}

}  // namespace

Status gemv(OpContext& cx, const GemvArgs& a) {
  if (a.n_more >= kMaxColumns) return fail(WEIR_ERR_INTERNAL, "gemv: %u columns", a.n_more + 1);
  WEIR_TRY(product(cx, a, {a.x, {a.part[0].y, a.part[1].y, a.part[2].y}}));
  for (uint32_t i = 0; i < a.n_more; ++i) WEIR_TRY(product(cx, a, a.more[i]));
  return {};
}

Status experts_step(OpContext& cx, const ExpertsStepArgs& a) {
  WEIR_TRY(expect_zero(a.counter, 1, "experts_step"));
  const uint32_t n = a.op.gate.w.n_cols;
  std::vector<float> x(a.op.x, a.op.x + n);
  if (a.norm != nullptr) WEIR_TRY(ops().rms_norm(cx, {x.data(), a.op.x, a.norm, 1, n, a.eps}));
  ExpertsArgs op = a.op;
  op.x = x.data();
  return ops().experts(cx, op);
}

Status attn_prefill(OpContext& cx, const AttnPagedArgs& a) { return ops().attn_paged(cx, a); }

Status step_end(OpContext&, const StepEndArgs& a) {
  WEIR_TRY(expect_zero(reinterpret_cast<const uint32_t*>(a.best), 2, "step_end, best"));
  WEIR_TRY(expect_zero(a.counter, 1, "step_end"));
  int32_t best = -1;
  for (uint32_t i = 0; i < a.vocab_size; ++i) {
    if (!std::isnan(a.logits[i]) && (best < 0 || a.logits[i] > a.logits[best])) best = static_cast<int32_t>(i);
  }
  a.state->next_token = best;
  if (a.commit && a.state->is_late == 0) {
    ++a.state->n_tokens;
    a.state->recurrent ^= 1;
  }
  a.state->pages_evicted_before = a.state->pages_evicted;
  *seen(a.mailbox) = *a.state;
  return {};
}

Status top_logits(OpContext&, const TopLogitsArgs& a) {
  WEIR_TRY(expect_zero(a.counter, 1, "top_logits"));
  const auto value = [&](int32_t id) { return std::isnan(a.logits[id]) ? -INFINITY : a.logits[id]; };
  std::vector<int32_t> ids;
  for (uint32_t id = 0; id < a.vocab_size; ++id) {
    if (a.mask == nullptr || (a.mask[id / 32] >> (id % 32) & 1) != 0) ids.push_back(static_cast<int32_t>(id));
  }
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t x, int32_t y) { return value(x) > value(y); });
  const size_t n = std::min<size_t>(a.n, ids.size());
  std::fill_n(seen(a.ids), a.n, -1);
  std::fill_n(seen(a.values), a.n, -INFINITY);
  std::copy_n(ids.begin(), n, seen(a.ids));
  std::transform(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n), seen(a.values), value);
  count_bytes(a.n * (sizeof(int32_t) + sizeof(float)));
  return {};
}

Status read_logits(OpContext&, const ReadLogitsArgs& a) {
  const uint32_t part_rows = logit_part_rows(a.vocab_size);
  for (uint32_t part = 0, first = 0; a.parts != nullptr && part < kLogitParts; ++part) {
    const uint32_t n = std::min(part_rows, a.vocab_size - first);
    seen(a.parts)[part] = logit_part(a.logits + first, n);
    first += n;
    count_bytes(sizeof(LogitPart));
  }
  for (uint32_t i = 0; i < a.n_tokens; ++i) seen(a.values)[i] = a.logits[seen(a.tokens)[i]];
  count_bytes(a.n_tokens * (sizeof(int32_t) + sizeof(float)));
  return {};
}

// --- pages -----------------------------------------------------------------------------------------------------------

Status mark_resident(OpContext&, const MarkResidentArgs& a) {
  for (uint32_t s = 0; s < n_streams(a.tables); ++s) {
    for (uint32_t row = 0; row < resident_words(a.max_capacity) * 32; ++row) {
      const bool is_there = row < a.tables.n_pages[s] && a.tables.slots[a.tables.row_begin[s] + row] != kNoSlot;
      mark_row(a.resident, a.max_capacity, s, row, is_there);
    }
  }
  return {};
}

Status spoil_lost(OpContext&, const SpoilLostArgs& a) {
  for (uint32_t s = 0; s < n_streams(a.tables); ++s) {
    const uint32_t first = a.tables.row_begin[s];
    for (uint32_t row = first; row < first + a.tables.n_pages[s] && a.tables.window[s] == 0; ++row) {
      if (a.tables.slots[row] == kNoSlot && a.raw_index[row] == kNoCopy)
        spoil_digest(a.digests + size_t{row} * a.digest_elements, a.digest_elements);
    }
  }
  return {};
}

Status copy_pages(OpContext&, const CopyPagesArgs& a) {
  for (uint32_t i = 0; i < a.n; ++i) {
    std::byte* const slot = slot_of(a.pool, seen(a.slots)[i], a.page_bytes);
    std::byte* const page = seen(a.pages) + size_t{i} * a.page_bytes;
    a.in ? std::memcpy(slot, page, a.page_bytes) : std::memcpy(page, slot, a.page_bytes);
  }
  return {};
}

Status copy_row_out(OpContext&, const CopyRowOutArgs& a) {
  const KvTables& t = a.tables;
  for (uint32_t s = 0; s < n_streams(t); ++s) {
    const uint32_t first = t.row_begin[s];
    const uint32_t at = t.window[s] == 0 ? a.row : a.row - t.first_pos[first] / kPageTokens;
    if (at >= t.n_pages[s]) continue;
    std::memcpy(seen(a.pages) + size_t{s} * a.page_bytes, slot_of(a.pool, t.slots[first + at], a.page_bytes),
                a.page_bytes);
  }
  return {};
}

Status load_unit(OpContext&, const LoadUnitArgs& a) {
  for (uint32_t at = 0; at < a.n_kv_heads * kSplitPages; ++at) {
    const uint32_t page = seen(a.host.page_slots)[at], index = page & ((1u << UnitPage::kBits) - 1);
    a.slots[at] = at;
    a.first_pos[at] = seen(a.host.unit_pos)[at];
    a.len[at] = seen(a.host.unit_len)[at];
    a.n_pages[at / kSplitPages] = kSplitPages;
    const std::byte* from = nullptr;
    switch (static_cast<UnitPage::Where>(page >> UnitPage::kBits)) {
      case UnitPage::kInPool:
        from = slot_of(a.pool, index, a.page_bytes);
        break;
      case UnitPage::kRaw:
        from = seen(a.host.raw_pages) + size_t{index} * a.page_bytes;
        break;
      case UnitPage::kStaged:
        from = seen(a.host.pages) + size_t{index} * a.page_bytes;
        break;
      case UnitPage::kLostPage:
        continue;
    }
    std::memcpy(slot_of(a.window, at, a.page_bytes), from, a.page_bytes);
  }
  return {};
}

Status rebuild_last_minmax(OpContext&, const KvView& kv) {
  for (uint32_t head = 0; head < kv.n_kv_heads; ++head) {
    if (kv.n_pages[head] == 0) continue;
    const uint32_t row = kv.n_pages[head] - 1;
    const size_t at = size_t{head} * kv.capacity + row;
    if (kv.slots[at] == kNoSlot) continue;
    digest_page(kv.digest, kv.stored_keys_of(head, row), kv.len[at], kv.digest_of(head, row));
  }
  return {};
}

Status move_open_page(OpContext&, const MoveOpenPageArgs& a) {
  const size_t d = a.head_dim, n = 2 * kPageTokens * d;
  for (uint32_t s = 0; s < n_streams(a.tables); ++s) {
    uint16_t* const to = a.open + a.move.to * a.open_half + s * n;
    if (a.move.is_copy()) {
      std::copy_n(a.open + a.move.from * a.open_half + s * n, n, to);
      continue;
    }
    const uint32_t first = a.tables.row_begin[s];
    uint32_t row = first;
    while (row < first + a.tables.n_pages[s] && a.tables.first_pos[row] / kPageTokens != a.move.page) ++row;
    if (row == first + a.tables.n_pages[s] || a.tables.slots[row] == kNoSlot) continue;
    const uint16_t* page = a.pool + a.tables.slots[row] * kv_page_bytes(a.format, d) / sizeof(uint16_t);
    std::vector<float> x(d);
    for (uint32_t token = 0; token < a.move.n_rows; ++token) {
      load_row(keys_in(a.format, page, d), token, x.data());
      store_row(keys_in(KvFormat::kBf16, to, d), token, x.data());
      load_row(values_in(a.format, page, d), token, x.data());
      store_row(values_in(KvFormat::kBf16, to, d), token, x.data());
    }
  }
  return {};
}

// --- benchmarks ------------------------------------------------------------------------------------------------------

Status fill_noise(OpContext&, const FillNoiseArgs& a) {
  if (a.format == KvFormat::kBf16) {
    for (uint64_t i = 0; i < a.n_elements; ++i) a.pool[i] = f32_to_bf16(noise(a.seed, i));
    return {};
  }
  const size_t page = kv_page_bytes(a.format, a.head_dim) / sizeof(uint16_t);
  for (uint64_t i = 0; i < a.n_elements; i += page) fill_page(a.format, a.pool + i, a.head_dim, a.seed, i);
  return {};
}

Status fill_row(OpContext&, const FillRowArgs& a) {
  const size_t n = kv_page_bytes(a.format, a.head_dim) / sizeof(uint16_t);
  for (uint32_t s = 0; s < n_streams(a.tables); ++s) {
    uint16_t* const page = a.pool + seen(a.slots)[s] * n;
    fill_page(a.format, page, a.head_dim, a.seed, size_t{s} * 2 * kPageTokens * a.head_dim);
    std::copy_n(page, n, seen(a.pages) + s * n);
    if (a.digest == DigestKind::kNone || a.tables.window[s] != 0) continue;
    digest_page(a.digest, keys_in<const uint16_t>(a.format, page, a.head_dim), kPageTokens,
                a.digests + (size_t{a.tables.row_begin[s]} + a.row) * a.digest_elements);
  }
  return {};
}

}  // namespace weir::host_module
