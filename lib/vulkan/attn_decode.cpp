// Attention of one query row: arguments and launch of shaders/attn_decode.comp, attn_stop.comp and attn_stop_list.comp.
#include "vulkan/attn_decode.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "device/kernels/attn_decode.h"
#include "device/kernels/attn_stop.h"
#include "ops/attn_paged.h"
#include "ops/attn_stop.h"
#include "ops/page_stamp.h"
#include "ops/rope_append.h"
#include "ops/table.h"
#include "shaders/decode.h"
#include "vulkan/context.h"
#include "vulkan/kv_ranges.h"

namespace weir::vulkan {
namespace {

// As many workgroups as the largest device that was measured runs at once, one on each of its 132 processors: a second
// wave would begin from the start. So many invocations also keep the compiler from taking more registers than let them
// all run.
constexpr uint32_t kWantedGroups = 132, kDecodeInvocations = 512;

// How the kernel takes heads: so many of one KV head together, each by so many lanes with so many times 4 channels.
struct Shape {
  uint32_t heads, lanes, chunks;
};

// Query heads that are as many as a whole group, if their sums fit into registers, otherwise its largest divisor.
Shape shape_of(const AttnPagedArgs& a, uint32_t max_lanes) {
  const uint32_t group = a.list_per_head ? 1 : a.n_heads / a.kv.n_kv_heads, vectors = a.kv.head_dim / 4;
  Shape s;
  s.lanes = std::clamp(std::bit_ceil(vectors), 8u, max_lanes);
  s.chunks = std::bit_ceil((vectors + s.lanes - 1) / s.lanes);
  s.heads = std::min({group, kMaxTeamHeads, kMaxTeamVectors / s.chunks, kMaxQueryVectors / (s.chunks * s.lanes)});
  while (group % s.heads != 0) --s.heads;
  // With one head 32 lanes would have more tokens than a page.
  return s.heads == 1 && s.lanes == 32 ? shape_of(a, 16) : s;
}

Shape shape_of(const AttnPagedArgs& a) {
  return shape_of(a, std::clamp(std::bit_floor(context().device.traits.min_lanes), 8u, 32u));
}

uint64_t partial_bytes(uint32_t n_heads, uint32_t head_dim, uint32_t n_splits) {
  return uint64_t{n_heads} * n_splits * (head_dim + 2) * sizeof(float);
}

}  // namespace

uint64_t attn_decode_scratch_bytes(const OpShapes& shapes) {
  return partial_bytes(shapes.n_heads, shapes.head_dim, kMaxSplits);
}

bool attn_decode_can_stamp(const AttnPagedArgs& a, const PageStampArgs& stamp) {
  return stamp.rule == StampRule::kAlpha && stamp.gap == nullptr && a.select == nullptr && a.page_mass != nullptr &&
         shape_of(a).heads == a.n_heads / a.kv.n_kv_heads;
}

namespace {

// What the kernels take, but the number of splits.
DecodeArgs arguments_of(const AttnDecodeArgs& d, const Shape& shape, Touches& t) {
  const AttnPagedArgs& a = d.attn;
  const RopeAppendArgs& r = d.rope;
  const KvView& kv = a.kv;
  const uint32_t heads = shape.heads, n_lists = a.n_heads / heads;
  const uint64_t rows = row_bytes(kv);
  const uint64_t q_bytes = uint64_t{a.n_heads} * kv.head_dim * sizeof(float);
  const uint64_t kv_bytes = uint64_t{kv.n_kv_heads} * kv.head_dim * sizeof(float);
  const uint64_t per_head = uint64_t{a.n_heads} * sizeof(float);
  const uint64_t n_selected = a.list_per_head ? a.n_heads : kv.n_kv_heads;
  const uint64_t turn_bytes = uint64_t{r.rope_dim} * sizeof(float);
  const bool appends = d.append, keeps = appends && kv.digest == DigestKind::kMinMax;
  DecodeArgs s = {};
  s.result = t.writes(a.out, q_bytes);
  s.q = t.reads(appends ? r.q : a.q, q_bytes);
  if (!appends) s.q_sink = t.reads(a.q_sink, q_bytes);
  s.pool = appends ? t.writes(kv.pool, bytes_from(kv.pool)) : t.reads(kv.pool, bytes_from(kv.pool));
  s.slots = t.reads(kv.slots, rows);
  s.first_pos = t.reads(kv.first_pos, rows);
  s.len = t.reads(kv.len, rows);
  s.n_pages = t.reads(kv.n_pages, stream_bytes(kv));
  s.select = t.reads(a.select, n_selected * kv.capacity * sizeof(uint32_t));
  s.n_select = t.reads(a.n_select, n_selected * sizeof(uint32_t));
  s.page_mass = t.writes(a.page_mass, uint64_t{a.n_heads} * kv.capacity * sizeof(float));
  s.lse = t.writes(a.lse, per_head);
  s.sinks = t.reads(a.sinks, per_head);
  s.head_windows = t.reads(a.head_windows, stream_bytes(kv));
  if (appends) {
    s.k = t.reads(r.k, kv_bytes);
    s.v = t.reads(r.v, kv_bytes);
    s.q_norm = t.reads(r.q_norm, kv.head_dim * sizeof(float));
    s.k_norm = t.reads(r.k_norm, kv.head_dim * sizeof(float));
    if (r.rope_dim != 0) s.cos_sin = t.reads(r.cos_sin, turn_bytes);
    if (r.rope_dim != 0) s.cos_sin_sink = t.reads(r.cos_sin_sink, turn_bytes);
    s.append_row = t.reads(r.append_row, stream_bytes(kv));
  }
  if (keeps) s.digests = t.writes(kv.digests, digest_bytes(kv));
  s.n_tokens = t.reads(d.n_tokens, sizeof(uint32_t));
  s.counters = t.writes(d.counters, n_lists * sizeof(uint32_t));
  s.attended = t.writes(d.pages_attended, sizeof(uint64_t));
  if (d.stamps) {
    s.stamp = t.writes(d.stamp.stamp, rows);
    s.last_score = t.writes(d.stamp.last_score, rows);
    s.alpha = d.stamp.alpha;
  }
  s.capacity = kv.capacity;
  s.n_heads = a.n_heads;
  s.n_kv_heads = kv.n_kv_heads;
  s.head_dim = kv.head_dim;
  s.pos = a.pos;
  s.n_sink_pages = a.n_sink_pages;
  s.n_sink = a.n_sink;
  s.window = a.window;
  s.head_sinks = a.head_sinks;
  s.list_per_head = a.list_per_head ? 1 : 0;
  s.heads_per_list = heads;
  s.lists_per_merge = a.list_per_head ? 1 : a.n_heads / kv.n_kv_heads / heads;
  s.rope_dim = r.rope_dim;
  s.is_adjacent = r.layout == RopeLayout::kAdjacent ? 1 : 0;
  s.digest_by_row = kv.digest_by_row ? 1 : 0;
  s.stamps = d.stamps ? 1 : 0;
  s.scale = a.scale;
  s.soft_cap = a.soft_cap;
  s.norm_eps = r.norm_eps;
  return s;
}

void set_splits(const AttnDecodeArgs& d, uint32_t n_splits, DecodeArgs& s, Touches& t) {
  s.n_splits = n_splits;
  s.partial = t.writes(d.scratch, partial_bytes(d.attn.n_heads, d.attn.kv.head_dim, n_splits));
}

uint32_t decode_invocations() {
  return std::min(kDecodeInvocations, std::bit_floor(context().device.traits.invocations));
}

Variant variant_of(const AttnDecodeArgs& d, const Shape& shape) {
  const AttnPagedArgs& a = d.attn;
  const RopeAppendArgs& r = d.rope;
  const bool appends = d.append, has_norms = appends && (r.q_norm != nullptr || r.k_norm != nullptr);
  const bool has_sink_query = appends ? r.rope_dim != 0 && r.cos_sin_sink != nullptr : a.q_sink != nullptr;
  return {.columns = shape.heads,
          .lanes = shape.lanes,
          .chunks = shape.chunks,
          .invocations = decode_invocations(),
          .mode = (appends ? kDecodeAppends : 0) | (has_norms ? kDecodeNorms : 0) |
                  (has_sink_query ? kDecodeSinkQuery : 0) | (a.page_mass != nullptr ? kDecodeMasses : 0)};
}

}  // namespace

namespace {

// Attends all streams, or only those with windows of their own.
Status decode(const AttnDecodeArgs& d, bool only_windows) {
  WEIR_TRY(check_pages(d.attn.kv, d.attn.n_heads));
  const Shape shape = shape_of(d.attn);
  const uint32_t n_lists = d.attn.n_heads / shape.heads;
  Touches t;
  DecodeArgs s = arguments_of(d, shape, t);
  s.only_windows = only_windows ? 1 : 0;
  set_splits(d, std::clamp(std::min(kWantedGroups, context().device.max_groups) / n_lists, 1u, kMaxSplits), s, t);
  return context().dispatch(Kernel::kAttnDecode, WeightType::kF32, variant_of(d, shape), s, t, {n_lists, s.n_splits});
}

}  // namespace

Status attn_decode(const AttnDecodeArgs& d) { return decode(d, false); }

bool attn_stop_has_shape(uint32_t n_heads, uint32_t n_kv_heads) { return n_heads / n_kv_heads <= kMaxStopHeads; }

bool attn_stop_appends(const AttnPagedArgs& a) {
  return a.page_mass == nullptr && shape_of(a).heads == a.n_heads / a.kv.n_kv_heads;
}

namespace {

void set_stop(const AttnStopArgs& stop, DecodeArgs& s, Touches& t) {
  const AttnPagedArgs& a = stop.attn.attn;
  const AttnStop& rule = stop.stop;
  s.rank = t.reads(rule.rank, row_bytes(a.kv));
  s.flags = t.reads(rule.flags, row_bytes(a.kv));
  s.bound = t.reads(rule.bound, uint64_t{a.n_heads} * a.kv.capacity * sizeof(float));
  s.first_pages = rule.n_sink_pages;
  s.microbatch = rule.microbatch;
  s.quiet_pages = rule.quiet_pages;
  s.max_pages = stop.max_pages;
  s.odds = rule.eps < 1.0f ? rule.eps / (1.0f - rule.eps) : std::numeric_limits<float>::infinity();
  s.quiet_share = rule.quiet_share;
}

// Attention of all pages that are taken, in one launch. A group of lanes is a split.
Status attend_until_enough(const AttnStopArgs& stop) {
  const AttnDecodeArgs& d = stop.attn;
  const AttnPagedArgs& a = d.attn;
  const Shape shape = shape_of(a);
  Touches t;
  StopArgs s = {arguments_of(d, shape, t)};
  set_splits(d, decode_invocations() / shape.lanes, s, t);
  set_stop(stop, s, t);
  WEIR_TRY(context().dispatch(Kernel::kAttnStop, WeightType::kF32, variant_of(d, shape), s, t, {a.kv.n_kv_heads}));
  return a.head_windows != nullptr ? decode(d, true) : Status();
}

// The list of the pages that are taken, then attention over it.
Status attend_listed(const AttnStopArgs& stop) {
  AttnDecodeArgs d = stop.attn;
  const AttnPagedArgs& a = d.attn;
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  const Shape shape = shape_of(a);
  Touches t;
  AttnDecodeArgs keys = d;  // it attends nothing
  keys.attn.out = keys.attn.lse = keys.attn.page_mass = nullptr;
  keys.counters = nullptr;
  keys.pages_attended = nullptr;
  StopListArgs s = {arguments_of(keys, shape, t)};
  s.n_splits = 1;
  s.heads_per_list = group;
  s.lists_per_merge = group / shape.heads;
  s.listed = t.writes(stop.select, row_bytes(a.kv));
  s.n_listed = t.writes(stop.n_select, stream_bytes(a.kv));
  set_stop(stop, s, t);
  WEIR_TRY(
      context().dispatch(Kernel::kAttnStopList, WeightType::kF32, variant_of(keys, shape), s, t, {a.kv.n_kv_heads}));
  d.attn.select = stop.select;
  d.attn.n_select = stop.n_select;
  return decode(d, false);
}

}  // namespace

Status attn_stop(const AttnStopArgs& stop) {
  const AttnDecodeArgs& d = stop.attn;
  const AttnPagedArgs& a = d.attn;
  WEIR_TRY(check_pages(a.kv, a.n_heads));
  const bool listed = !attn_stop_appends(a);
  if (!attn_stop_has_shape(a.n_heads, a.kv.n_kv_heads) || a.select != nullptr || a.list_per_head ||
      (listed && d.append) || a.q_sink != nullptr || a.window != 0)
    return fail(WEIR_ERR_INTERNAL, "Vulkan: attn_stop of %u heads of %u KV heads", a.n_heads, a.kv.n_kv_heads);
  return listed ? attend_listed(stop) : attend_until_enough(stop);
}

}  // namespace weir::vulkan
