// Attention over KV pages, and the attention that tokens got. Many rows pass over all pages at once; a single row is
// attended in units of pages, which are merged afterwards.
#include "core/memory.h"
#include "device/kernels/compensate.h"
#include "ops/attn_paged.h"
#include "ops/table.h"
#include "ops/token_mass.h"
#include "shaders/attn.h"
#include "shaders/pages.h"
#include "vulkan/kv_ranges.h"
#include "vulkan/ops.h"
#include "vulkan/ops_sizes.h"
#include "vulkan/steps.h"

namespace weir::vulkan {
namespace {

constexpr uint64_t kPairs = 64;  // rows of one head that a workgroup takes: shaders/attn_paged.comp

// Vectors of 4 channels for each of a team's lanes.
uint32_t vectors_of(uint32_t head_dim) { return std::bit_ceil((head_dim + 31) / 32); }

// What the units of a row leave, in scratch memory.
struct Units {
  float* result;     // [n_units, n_heads, head_dim]
  float* high;       // [n_units, n_heads]
  float* sum;        // the same
  float* page_high;  // [n_heads, capacity]
  uint64_t n;        // the most units
  uint64_t bytes;
};

Units lay_out(std::byte* base, uint64_t n_heads, uint64_t head_dim, uint64_t capacity) {
  Units u = {};
  uint64_t at = 0;
  const auto take = [&](uint64_t n) {
    std::byte* const p = base + at;
    at = align_up(at + float_bytes(n), Memory::kAlignment);
    return reinterpret_cast<float*>(p);
  };
  u.n = (capacity + kSplitPages - 1) / kSplitPages;
  u.result = take(u.n * n_heads * head_dim);
  u.high = take(u.n * n_heads);
  u.sum = take(u.n * n_heads);
  u.page_high = take(n_heads * capacity);
  u.bytes = at;
  return u;
}

uint32_t lists_of(const AttnPagedArgs& a) {
  return a.select != nullptr && a.list_per_head ? a.n_heads : a.kv.n_kv_heads;
}

// What both ways share: all but the results.
AttnArgs arguments_of(const AttnPagedArgs& a, Touches& t) {
  const uint64_t n_lists = lists_of(a), rows = float_bytes(uint64_t{a.n_tok} * a.n_heads * a.kv.head_dim);
  AttnArgs push = {};
  push.q = t.reads(a.q, rows);
  push.q_sink = t.reads(a.q_sink, rows);
  push.pool = t.reads(a.kv.pool, bytes_from(a.kv.pool));
  push.slots = t.reads(a.kv.slots, row_bytes(a.kv));
  push.first_pos = t.reads(a.kv.first_pos, row_bytes(a.kv));
  push.len = t.reads(a.kv.len, row_bytes(a.kv));
  push.n_pages = t.reads(a.kv.n_pages, stream_bytes(a.kv));
  push.select = t.reads(a.select, n_lists * a.kv.capacity * sizeof(uint32_t));
  push.n_select = t.reads(a.n_select, n_lists * sizeof(uint32_t));
  push.head_windows = t.reads(a.head_windows, stream_bytes(a.kv));
  push.n_tok = a.n_tok;
  push.n_heads = a.n_heads;
  push.n_kv_heads = a.kv.n_kv_heads;
  push.n_lists = lists_of(a);
  push.head_dim = a.kv.head_dim;
  push.capacity = a.kv.capacity;
  push.pos = a.pos;
  push.n_sink_pages = a.n_sink_pages;
  push.n_sink = a.n_sink;
  push.window = a.window;
  push.head_sinks = a.head_sinks;
  push.scale = a.scale;
  push.soft_cap = a.soft_cap;
  return push;
}

Status dispatch_tiles(const AttnPagedArgs& a, const AttnArgs& push, const Touches& t, uint64_t n_units) {
  const uint64_t pairs = uint64_t{a.n_tok} * (a.n_heads / push.n_lists),
                 tiles = (pairs + kPairs - 1) / kPairs * n_units;
  if (tiles > kMaxGroups || push.n_lists > kMaxGroups)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: attention of %u rows of %u heads over %u pages", a.n_tok, a.n_heads,
                a.kv.capacity);
  return context().dispatch(Kernel::kAttnPaged, WeightType::kF32, {vectors_of(a.kv.head_dim)}, push, t,
                            {static_cast<uint32_t>(tiles), push.n_lists});
}

// Whether attn_prompt_coop.comp can do it: it has matrices of one shape, little more shared memory than all devices
// have, and few restrictions.
bool has_matrices(const AttnPagedArgs& a) {
  constexpr uint32_t kSharedBytes = 38 * 1024;  // of heads of kMaxPromptChannels
  const Matrices& m = context().device.matrices;
  const bool fits =
      m.m == 16 && m.n == 16 && m.k == 16 && m.lanes == 32 && context().device.traits.shared_bytes >= kSharedBytes;
  // All pages in one part come the same way as without parts: sessions with recall have the same bits in any pool.
  const bool is_whole = a.carry == nullptr || (a.carry->first && a.carry->last);
  const bool is_plain = a.select == nullptr && a.q_sink == nullptr && is_whole && a.page_mass == nullptr;
  return fits && is_plain && a.n_tok * (a.n_heads / a.kv.n_kv_heads) >= kPromptPairs / 2 &&
         a.kv.head_dim % kMatrixChannels == 0 && a.kv.head_dim <= kMaxPromptChannels;
}

Status dispatch_matrices(const AttnPagedArgs& a, const AttnArgs& push, const Touches& t) {
  const uint64_t pairs = uint64_t{a.n_tok} * (a.n_heads / a.kv.n_kv_heads);
  const Variant variant = {.chunks = a.kv.head_dim / kMatrixChannels, .invocations = kPromptInvocations};
  return context().dispatch(Kernel::kAttnPrompt, WeightType::kF32, variant, push, t,
                            {static_cast<uint32_t>((pairs + kPromptPairs - 1) / kPromptPairs), a.kv.n_kv_heads});
}

// All pages, or those of one part.
Status attend_rows(const AttnPagedArgs& a, bool by_matrices) {
  const uint64_t n = uint64_t{a.n_tok} * a.n_heads;
  const bool ends = a.carry == nullptr || a.carry->last;
  Touches t;
  AttnArgs push = arguments_of(a, t);
  push.result = t.writes(a.out, float_bytes(n * a.kv.head_dim));
  if (ends) push.lse = t.writes(a.lse, float_bytes(n));
  if (ends) push.sinks = t.reads(a.sinks, float_bytes(a.n_heads));
  if (a.carry != nullptr) {
    push.high = t.writes(a.carry->high, float_bytes(n));
    push.sum = t.writes(a.carry->sum, float_bytes(n));
    push.continues = a.carry->first ? 0 : 1;
    push.stays = ends ? 0 : 1;
  }
  return by_matrices ? dispatch_matrices(a, push, t) : dispatch_tiles(a, push, t, 1);
}

// Rows [first, first + n).
AttnPagedArgs rows_of(const AttnPagedArgs& a, uint32_t first, uint32_t n) {
  AttnPagedArgs rows = a;
  const uint64_t heads = uint64_t{first} * a.n_heads, elements = heads * a.kv.head_dim;
  rows.n_tok = n;
  rows.pos += first;
  rows.out += elements;
  rows.q += elements;
  if (a.q_sink != nullptr) rows.q_sink += elements;
  if (a.lse != nullptr) rows.lse += heads;
  return rows;
}

// As many rows at a time as a dispatch may take.
Status attend_whole(const AttnPagedArgs& a) {
  const uint64_t tokens = std::min(a.pos + uint64_t{a.n_tok}, uint64_t{a.kv.capacity} * kPageTokens);
  const uint32_t group = a.n_heads / lists_of(a), tile = std::max(static_cast<uint32_t>(kPairs) / group, 1u);
  const uint32_t most = rows_at_once(4 * tokens * a.n_heads * a.kv.head_dim, tile);
  const bool by_matrices = has_matrices(a);
  for (uint32_t first = 0, n = 0; first < a.n_tok; first += n) {
    n = std::min(most, a.n_tok - first);
    AttnPagedArgs rows = rows_of(a, first, n);
    AttnCarry carry = {};
    if (a.carry != nullptr) {
      carry = *a.carry;
      carry.high += uint64_t{first} * a.n_heads;
      carry.sum += uint64_t{first} * a.n_heads;
      rows.carry = &carry;
    }
    WEIR_TRY(attend_rows(rows, by_matrices));
  }
  return {};
}

// One row.
Status attend_units(OpContext& cx, const AttnPagedArgs& a) {
  const uint32_t n_heads = a.n_heads, d = a.kv.head_dim;
  const Units u = lay_out(cx.scratch, n_heads, d, a.kv.capacity);
  if (u.bytes > cx.scratch_bytes) return fail(WEIR_ERR_INTERNAL, "Vulkan: attention: too little scratch memory");
  const uint64_t results = float_bytes(u.n * n_heads * d), sums = float_bytes(u.n * n_heads),
                 masses = float_bytes(uint64_t{n_heads} * a.kv.capacity);
  Touches units;
  AttnArgs push = arguments_of(a, units);
  push.result = units.writes(u.result, results);
  push.high = units.writes(u.high, sums);
  push.sum = units.writes(u.sum, sums);
  push.page_mass = units.writes(a.page_mass, masses);
  if (a.page_mass != nullptr) push.page_high = units.writes(u.page_high, masses);
  push.in_units = 1;
  WEIR_TRY(dispatch_tiles(a, push, units, u.n));
  Touches t;
  AttnMergePush merge = {};
  merge.result = t.writes(a.out, float_bytes(uint64_t{n_heads} * d));
  merge.lse = t.writes(a.lse, float_bytes(n_heads));
  merge.page_mass = t.writes(a.page_mass, masses);
  merge.sinks = t.reads(a.sinks, float_bytes(n_heads));
  merge.n_listed = t.reads(a.select != nullptr ? a.n_select : a.kv.n_pages, lists_of(a) * sizeof(uint32_t));
  merge.unit_results = t.reads(u.result, results);
  merge.high = t.reads(u.high, sums);
  merge.sum = t.reads(u.sum, sums);
  merge.page_high = t.reads(u.page_high, masses);
  merge.n_heads = n_heads;
  merge.n_lists = lists_of(a);
  merge.head_dim = d;
  merge.capacity = a.kv.capacity;
  return context().dispatch(Kernel::kAttnMerge, WeightType::kF32, {1}, merge, t, {n_heads});
}

Status check_attention(const AttnPagedArgs& a) {
  WEIR_TRY(check_pages(a.kv, a.n_heads));
  if (a.carry == nullptr || (a.select == nullptr && a.page_mass == nullptr)) return {};
  return fail(WEIR_ERR_INTERNAL, "Vulkan: attention in parts with lists or masses");
}

}  // namespace

Status compensate(const CompensateArgs& c) {
  const AttnPagedArgs& a = c.attn;
  WEIR_TRY(check_pages(a.kv, a.n_heads));
  const uint64_t n = uint64_t{a.n_tok} * a.n_heads;
  Touches t;
  CompensatePush push = {};
  push.result = t.writes(a.out, float_bytes(n * a.kv.head_dim));
  push.q = t.reads(a.q, float_bytes(n * a.kv.head_dim));
  push.pool = t.reads(a.kv.pool, bytes_from(a.kv.pool));
  push.slots = t.reads(a.kv.slots, row_bytes(a.kv));
  push.first_pos = t.reads(a.kv.first_pos, row_bytes(a.kv));
  push.len = t.reads(a.kv.len, row_bytes(a.kv));
  push.n_pages = t.reads(a.kv.n_pages, stream_bytes(a.kv));
  push.page_mass = t.writes(a.page_mass, float_bytes(uint64_t{a.n_heads} * a.kv.capacity));
  push.lse = t.writes(a.lse, float_bytes(n));
  push.head_windows = t.reads(a.head_windows, stream_bytes(a.kv));
  push.n_tokens = t.reads(c.n_tokens, sizeof(uint32_t));
  push.sums = t.reads(c.sums, bytes_from(c.sums));
  push.values = t.reads(c.values, bytes_from(c.values));
  push.n_tok = a.n_tok;
  push.n_heads = a.n_heads;
  push.n_kv_heads = a.kv.n_kv_heads;
  push.head_dim = a.kv.head_dim;
  push.capacity = a.kv.capacity;
  push.pos = a.pos;
  push.head_sinks = a.head_sinks;
  push.scale = a.scale;
  push.soft_cap = a.soft_cap;
  return context().dispatch(Kernel::kCompensate, WeightType::kF32, {1}, push, t,
                            {a.kv.n_kv_heads, (a.n_tok + kCompensateRows - 1) / kCompensateRows});
}

uint64_t attn_scratch_bytes(const OpShapes& s) { return lay_out(nullptr, s.n_heads, s.head_dim, s.max_pages).bytes; }

Status attn_prefill(const AttnPagedArgs& a) {
  WEIR_TRY(check_attention(a));
  if (a.page_mass != nullptr) return fail(WEIR_ERR_INTERNAL, "Vulkan: a prompt's attention with masses");
  return a.n_tok == 0 ? Status() : attend_whole(a);
}

Status attn_paged(OpContext& cx, const AttnPagedArgs& a) {
  WEIR_TRY(check_attention(a));
  if (a.n_tok == 0) return {};
  if (a.n_tok == 1 && a.carry == nullptr) return attend_units(cx, a);
  WEIR_TRY(attend_whole(a));
  return a.page_mass == nullptr ? Status() : attend_units(cx, rows_of(a, a.n_tok - 1, 1));  // which has the masses
}

Status token_mass(OpContext&, const TokenMassArgs& a) {
  WEIR_TRY(check_pages(a.kv, a.n_heads));
  const uint64_t n = uint64_t{a.n_rows} * a.n_heads;
  Touches t;
  const TokenMassPush push = {.mass = t.writes(a.mass, row_bytes(a.kv) * kPageTokens),
                              .q = t.reads(a.q, float_bytes(n * a.kv.head_dim)),
                              .lse = t.reads(a.lse, float_bytes(n)),
                              .pool = t.reads(a.kv.pool, bytes_from(a.kv.pool)),
                              .slots = t.reads(a.kv.slots, row_bytes(a.kv)),
                              .first_pos = t.reads(a.kv.first_pos, row_bytes(a.kv)),
                              .len = t.reads(a.kv.len, row_bytes(a.kv)),
                              .n_pages = t.reads(a.kv.n_pages, stream_bytes(a.kv)),
                              .n_rows = a.n_rows,
                              .n_heads = a.n_heads,
                              .n_kv_heads = a.kv.n_kv_heads,
                              .head_dim = a.kv.head_dim,
                              .capacity = a.kv.capacity,
                              .pos = a.pos,
                              .window = a.window,
                              .scale = a.scale,
                              .soft_cap = a.soft_cap};
  return context().dispatch(Kernel::kTokenMass, WeightType::kF32, {vectors_of(a.kv.head_dim)}, push, t,
                            {std::min(a.kv.capacity, kMaxGroups), a.kv.n_kv_heads});
}

}  // namespace weir::vulkan
