// The ops over the tables of pages: scores, selection and stamps.
#include <algorithm>

#include "device/kernels/list_windows.h"
#include "device/kernels/page_score_step.h"
#include "device/kernels/page_softmax.h"
#include "device/kernels/page_stamp_at.h"
#include "ops/page_accumulate.h"
#include "ops/page_score.h"
#include "ops/page_select.h"
#include "ops/page_stamp.h"
#include "ops/rope_append.h"
#include "vulkan/kv_ranges.h"
#include "vulkan/ops.h"
#include "vulkan/ops_sizes.h"
#include "vulkan/steps.h"

namespace weir::vulkan {
namespace {

static_assert(kPageKept == kFlagKept && kPageStays == kFlagStays);
static_assert(WEIR_AGG_MODES == 6, "select_invocations: other aggregations");

// Invocations of page_select for tables of more than kTopInvocations rows: two rows each of 2,048 take 10 us on an
// H200, four each of half as many invocations 12. Aggregations with statistics keep kTopInvocations, because with 1,024
// an invocation has too few registers for them.
constexpr uint32_t kSelectInvocations = 1024;

uint32_t select_invocations(const PageSelectArgs& a) {
  const bool has_statistics = a.agg == AggMode::kSumProb || a.agg == AggMode::kMaxProb || a.agg == AggMode::kMaxZ;
  return !has_statistics && a.capacity > kTopInvocations ? kSelectInvocations : kTopInvocations;
}

constexpr uint64_t word_bytes(uint64_t n) { return n * sizeof(uint32_t); }

Status dispatch(Kernel kernel, const auto& push, const Touches& t, Grid grid, const Variant& variant = {}) {
  return context().dispatch(kernel, WeightType::kF32, variant, push, t, grid);
}

Status stamp_pages(const PageStampArgs& a, const StepState* state) {
  const uint64_t rows = uint64_t{a.n_kv_heads} * a.capacity;
  Touches t;
  const PageStampPush push = {.weight = t.reads(a.weight, float_bytes(uint64_t{a.n_heads} * a.capacity)),
                              .select = t.reads(a.select, word_bytes(rows)),
                              .n_select = t.reads(a.n_select, word_bytes(a.n_kv_heads)),
                              .stamp = t.writes(a.stamp, word_bytes(rows)),
                              .last_score = t.writes(a.last_score, float_bytes(rows)),
                              .flags = t.reads(a.flags, word_bytes(rows)),
                              .n_pages = t.reads(a.n_pages, word_bytes(a.n_kv_heads)),
                              .state = t.reads(state, sizeof(StepState)),
                              .gap = t.writes(a.gap, word_bytes(rows)),
                              .capacity = a.capacity,
                              .n_heads = a.n_heads,
                              .n_kv_heads = a.n_kv_heads,
                              .now = a.now,
                              .by_threshold = stamps_by_threshold(a.rule) ? 1u : 0u,
                              .rank_all = a.rank_all ? 1u : 0u,
                              .r = a.r,
                              .alpha = a.alpha};
  return dispatch(Kernel::kPageStamp, push, t, {a.n_kv_heads}, top_rows_variant(a.capacity));
}

}  // namespace

Status page_accumulate(OpContext&, const PageAccumulateArgs& a) {
  const uint64_t rows = uint64_t{a.n_kv_heads} * a.capacity;
  Touches t;
  const PageAccumulatePush push = {.weight = t.reads(a.weight, float_bytes(uint64_t{a.n_heads} * a.capacity)),
                                   .score = t.writes(a.score, float_bytes(rows)),
                                   .len = t.reads(a.len, word_bytes(rows)),
                                   .n_pages = t.reads(a.n_pages, word_bytes(a.n_kv_heads)),
                                   .flags = t.reads(a.flags, word_bytes(rows)),
                                   .mark = t.writes(a.mark, word_bytes(rows)),
                                   .n_tokens = t.reads(a.n_tokens, word_bytes(1)),
                                   .first_pos = t.reads(a.first_pos, word_bytes(rows)),
                                   .capacity = a.capacity,
                                   .n_heads = a.n_heads,
                                   .n_kv_heads = a.n_kv_heads,
                                   .rule = static_cast<uint>(a.rule),
                                   .first_stream = a.first_stream,
                                   .seed = a.options.seed,
                                   .tau_tokens = a.options.tau_tokens,
                                   .tau = a.options.tau,
                                   .tau_end = a.options.tau_end,
                                   .keep = a.options.keep};
  return dispatch(Kernel::kPageAccumulate, push, t, {a.n_kv_heads});
}

Status list_windows(const ListWindowsArgs& a) {
  Touches t;
  const ListWindowsPush push = {t.writes(a.select, word_bytes(uint64_t{a.n_lists} * a.capacity)),
                                t.writes(a.n_select, word_bytes(a.n_lists)),
                                t.reads(a.windows, word_bytes(a.n_kv_heads)),
                                t.reads(a.n_pages, word_bytes(a.n_kv_heads)),
                                a.capacity,
                                a.n_lists,
                                a.n_kv_heads};
  return dispatch(Kernel::kListWindows, push, t, {a.n_lists});
}

Status page_softmax(const PageSoftmaxArgs& a) {
  Touches t;
  const PageSoftmaxPush push = {t.writes(a.score, float_bytes(uint64_t{a.n_heads} * a.capacity)),
                                t.reads(a.n_pages, word_bytes(a.n_kv_heads)),
                                a.capacity,
                                a.n_heads,
                                a.n_kv_heads,
                                a.scale};
  return dispatch(Kernel::kPageSoftmax, push, t, {a.n_heads});
}

static Status sketch_score(const PageScoreArgs& a) {
  const KvView& kv = a.kv;
  if (kv.head_dim % 2 != 0 || kv.head_dim > kMaxChannels)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: page_score of sketches with heads of %u", kv.head_dim);
  const uint32_t columns = columns_for(a.n_heads / kv.n_kv_heads);
  const uint32_t n_parts = (a.n_heads / kv.n_kv_heads + columns - 1) / columns;
  Touches t;
  const PageSketchPush push = {.score = t.writes(a.score, float_bytes(uint64_t{a.n_heads} * kv.capacity)),
                               .q = t.reads(a.q, float_bytes(uint64_t{a.n_heads} * kv.head_dim)),
                               .digests = t.reads(kv.digests, digest_bytes(kv)),
                               .slots = t.reads(kv.digest_by_row ? nullptr : kv.slots, row_bytes(kv)),
                               .len = t.reads(kv.len, row_bytes(kv)),
                               .n_pages = t.reads(kv.n_pages, stream_bytes(kv)),
                               .capacity = kv.capacity,
                               .n_heads = a.n_heads,
                               .n_kv_heads = kv.n_kv_heads,
                               .head_dim = kv.head_dim,
                               .scale = a.scale};
  return dispatch(Kernel::kSketchScore, push, t,
                  {std::min((kv.capacity + kScorePages - 1) / kScorePages, kMaxGroups), kv.n_kv_heads * n_parts},
                  {columns});
}

Status page_score(OpContext&, const PageScoreArgs& a) {
  const KvView& kv = a.kv;
  const size_t elements = digest_elements(kv.digest, kv.head_dim);
  if (elements == 0) return fail(WEIR_ERR_INTERNAL, "Vulkan: page_score without digests");
  if (kv.digest == DigestKind::kSketch) return sketch_score(a);
  if (kv.head_dim % 4 != 0) return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: page_score with heads of %u", kv.head_dim);
  const uint32_t columns = columns_for(a.n_heads / kv.n_kv_heads);
  const uint32_t n_parts = (a.n_heads / kv.n_kv_heads + columns - 1) / columns;
  Touches t;
  const PageScorePush push = {.score = t.writes(a.score, float_bytes(uint64_t{a.n_heads} * kv.capacity)),
                              .q = t.reads(a.q, float_bytes(uint64_t{a.n_heads} * kv.head_dim)),
                              .digests = t.reads(kv.digests, digest_bytes(kv)),
                              .slots = t.reads(kv.digest_by_row ? nullptr : kv.slots, row_bytes(kv)),
                              .len = t.reads(kv.len, row_bytes(kv)),
                              .n_pages = t.reads(kv.n_pages, stream_bytes(kv)),
                              .capacity = kv.capacity,
                              .n_heads = a.n_heads,
                              .n_kv_heads = kv.n_kv_heads,
                              .head_dim = kv.head_dim,
                              .digest = static_cast<uint>(kv.digest),
                              .digest_words = static_cast<uint>(elements / 2),
                              .spread = a.spread};
  return dispatch(Kernel::kPageScore, push, t,
                  {std::min((kv.capacity + kScorePages - 1) / kScorePages, kMaxGroups), kv.n_kv_heads * n_parts},
                  {columns});
}

Status page_score_step(const PageScoreStepArgs& a) {
  const KvView& kv = a.op.kv;
  const RopeAppendArgs& rope = a.rope;
  const uint32_t n_heads = a.op.n_heads, group = n_heads / kv.n_kv_heads, columns = columns_for(group);
  const uint32_t n_parts = (group + columns - 1) / columns, team_channels = 4 * kTeamLanes;
  const uint32_t n_groups = (kv.capacity + kScorePages - 1) / kScorePages;
  if (n_groups > kMaxGroups)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: page_score_step of streams of %u pages", kv.capacity);
  Touches t;
  PageScoreStepPush push = {};
  push.score = t.writes(a.op.score, float_bytes(uint64_t{n_heads} * kv.capacity));
  push.q = t.reads(a.op.q, float_bytes(uint64_t{n_heads} * kv.head_dim));
  push.digests = t.reads(kv.digests, digest_bytes(kv));
  push.slots = t.reads(kv.digest_by_row ? nullptr : kv.slots, row_bytes(kv));
  push.n_pages = t.reads(kv.n_pages, stream_bytes(kv));
  push.q_norm = t.reads(rope.q_norm, float_bytes(kv.head_dim));
  if (rope.rope_dim != 0) push.cos_sin = t.reads(rope.cos_sin, float_bytes(rope.rope_dim));
  push.capacity = kv.capacity;
  push.n_heads = n_heads;
  push.n_kv_heads = kv.n_kv_heads;
  push.head_dim = kv.head_dim;
  push.rope_dim = rope.rope_dim;
  push.is_adjacent = rope.layout == RopeLayout::kAdjacent ? 1 : 0;
  push.norm_eps = rope.norm_eps;
  return dispatch(Kernel::kPageScoreStep, push, t, {n_groups, kv.n_kv_heads * n_parts},
                  {columns, (kv.head_dim + team_channels - 1) / team_channels});
}

Status page_select(OpContext&, const PageSelectArgs& a) {
  const uint64_t rows = uint64_t{a.n_kv_heads} * a.capacity;
  const uint32_t n_lists = a.agg == AggMode::kQHead ? a.n_heads : a.n_kv_heads;
  Touches t;
  const PageSelectPush push = {.score = t.reads(a.score, float_bytes(uint64_t{a.n_heads} * a.capacity)),
                               .group_score = t.writes(a.group_score, float_bytes(rows)),
                               .select = t.writes(a.select, word_bytes(uint64_t{n_lists} * a.capacity)),
                               .n_select = t.writes(a.n_select, word_bytes(n_lists)),
                               .flags = t.reads(a.flags, word_bytes(rows)),
                               .n_pages = t.reads(a.n_pages, word_bytes(a.n_kv_heads)),
                               .capacity = a.capacity,
                               .n_heads = a.n_heads,
                               .n_kv_heads = a.n_kv_heads,
                               .scale = a.scale,
                               .budget = a.budget,
                               .candidate_flags = a.candidate_flags,
                               .n_sink_pages = a.n_sink_pages};
  Variant variant = top_rows_variant(a.capacity, select_invocations(a));
  variant.mode = static_cast<uint32_t>(a.agg);
  return dispatch(Kernel::kPageSelect, push, t, {n_lists}, variant);
}

Status page_stamp(OpContext&, const PageStampArgs& a) { return stamp_pages(a, nullptr); }

Status page_stamp_at(const PageStampAtArgs& a) { return stamp_pages(a.op, a.state); }

}  // namespace weir::vulkan
