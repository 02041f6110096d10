// Kernels of the test module for the layers of a decode step: what lib/device/kernels.h says of each, with the
// processor's ops and memory of its own for what a kernel keeps to itself.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "cpu/backend.h"
#include "device/kernels/attn_decode.h"
#include "device/kernels/attn_stop.h"
#include "device/kernels/compensate.h"
#include "device/kernels/list_windows.h"
#include "device/kernels/page_score_step.h"
#include "device/kernels/page_softmax.h"
#include "device/kernels/page_stamp_at.h"
#include "device/kernels/rope_append_at.h"
#include "device/kernels/rotate_heads.h"
#include "device/kernels/sparse_layer.h"
#include "models/compensate.h"
#include "ops/attn_progressive.h"
#include "ops/hadamard.h"
#include "tests/runtime/host_kernels.h"
#include "tests/runtime/host_queue.h"
#include "tests/runtime/host_session.h"

namespace weir::host_module {
namespace {

const OpTable& ops() { return cpu_backend().ops; }

// What rope_append leaves in q, q_sink and k, and the rotated v, which stay as they are in the session's buffers.
struct Rotated {
  std::vector<float> q, q_sink, k, v;

  // Appends to the pages of rope.kv.
  Status append(OpContext& cx, RopeAppendArgs rope, uint32_t pos) {
    const size_t n = size_t{rope.n_heads} * rope.kv.head_dim;
    q.assign(rope.q, rope.q + n);
    k.assign(rope.k, rope.k + size_t{rope.kv.n_kv_heads} * rope.kv.head_dim);
    q_sink.resize(rope.cos_sin_sink != nullptr ? n : 0);
    v.assign(rope.v, rope.v + k.size());
    if (rotates_values(rope.kv.format)) rotate_rows(*cx.pool, v.data(), rope.kv.n_kv_heads, rope.kv.head_dim);
    rope.q = q.data();
    rope.k = k.data();
    rope.v = v.data();
    rope.q_sink = sink();
    rope.pos = pos;
    return ops().rope_append(cx, rope);
  }
  // The query alone: the key goes to a page that is dropped.
  Status rotate(OpContext& cx, RopeAppendArgs rope, uint32_t pos) {
    const uint32_t n = rope.kv.n_kv_heads;
    std::vector<uint16_t> pages(n * rope.kv.page_elements());
    std::vector<uint32_t> slots(n), zeros(n), first(n, pos), ones(n, 1);
    std::iota(slots.begin(), slots.end(), 0u);
    rope.kv.pool = pages.data();
    rope.kv.open = nullptr;
    rope.kv.digests = nullptr;
    rope.kv.digest = DigestKind::kNone;
    rope.kv.slots = slots.data();
    rope.kv.first_pos = first.data();
    rope.kv.len = rope.kv.n_pages = ones.data();
    rope.kv.capacity = 1;
    rope.append_row = zeros.data();
    return append(cx, rope, pos);
  }
  float* sink() { return q_sink.empty() ? nullptr : q_sink.data(); }
};

uint32_t n_lists(const AttnPagedArgs& a) { return a.list_per_head ? a.n_heads : a.kv.n_kv_heads; }

// Attention of a decode step, after the key has been appended.
Status attend(OpContext& cx, const AttnDecodeArgs& a, const AttnPagedArgs& attn, const AttnProgressiveArgs* stops) {
  WEIR_TRY(expect_zero(a.counters, attn.kv.n_kv_heads, "attn_decode"));
  std::memset(a.scratch, 0xAB, kModuleBytes);
  if (stops != nullptr && stops->stop.microbatch != 0) {
    const PageLists lists = {stops->select, stops->n_select, stops->stop};
    WEIR_TRY(attend_until_enough(cx, ops(), attn, lists, stops->select, stops->n_select));
  } else {
    AttnPagedArgs listed = attn;
    if (stops != nullptr) listed.select = stops->select, listed.n_select = stops->n_select;
    WEIR_TRY(ops().attn_paged(cx, listed));
  }
  const uint32_t* const n = stops != nullptr         ? stops->n_select
                            : attn.select != nullptr ? attn.n_select
                                                     : attn.kv.n_pages;
  if (a.rotates_back) rotate_rows(*cx.pool, attn.out, attn.n_heads, attn.kv.head_dim);
  for (uint32_t i = 0; i < n_lists(attn) && a.pages_attended != nullptr; ++i) *a.pages_attended += n[i];
  return {};
}

}  // namespace

Status rope_append_at(OpContext& cx, const RopeAppendAtArgs& a) {
  RopeAppendArgs op = a.op;
  op.pos = *a.n_tokens;
  return ops().rope_append(cx, op);
}

Status rotate_heads(OpContext& cx, const RotateHeadsArgs& a) {
  rotate_rows(*cx.pool, a.x, a.n_rows, a.head_dim);
  return {};
}

Status page_stamp_at(OpContext& cx, const PageStampAtArgs& a) {
  if (a.state->is_late != 0) return {};
  PageStampArgs op = a.op;
  op.now = a.state->n_tokens + 1;
  return ops().page_stamp(cx, op);
}

Status page_softmax(OpContext&, const PageSoftmaxArgs& a) {
  for (uint32_t head = 0; head < a.n_heads; ++head) {
    float* const w = a.score + size_t{head} * a.capacity;
    const uint32_t n = a.n_pages[head / (a.n_heads / a.n_kv_heads)];
    float high = -INFINITY, sum = 0.0f;
    for (uint32_t p = 0; p < n; ++p) high = std::max(high, a.scale * w[p]);
    for (uint32_t p = 0; p < n; ++p) sum += w[p] = std::exp(a.scale * w[p] - high);
    for (uint32_t p = 0; p < n; ++p) w[p] /= sum;
  }
  return {};
}

Status list_windows(OpContext&, const ListWindowsArgs& a) {
  for (uint32_t list = 0; list < a.n_lists; ++list) {
    const uint32_t kv_head = list / (a.n_lists / a.n_kv_heads);
    if (a.windows[kv_head] == 0) continue;
    a.n_select[list] = a.n_pages[kv_head];
    std::iota(a.select + size_t{list} * a.capacity, a.select + size_t{list} * a.capacity + a.n_select[list], 0u);
  }
  return {};
}

Status compensate(OpContext&, const CompensateArgs& a) {
  AttnPagedArgs attn = a.attn;
  if (a.n_tokens != nullptr) attn.pos = *a.n_tokens;
  std::vector<float> sums(2 * attn.kv.head_dim);
  for (uint32_t head = 0, rank = 0; head < attn.kv.n_kv_heads; ++head) {
    if (!has_own_window(attn, head)) continue;
    compensate_head(args_of_head(attn, head), head, a.sums[rank], a.values + size_t{rank} * sums.size(), sums.data());
    ++rank;
  }
  return {};
}

Status page_score_step(OpContext& cx, const PageScoreStepArgs& a) {
  Rotated rotated;
  WEIR_TRY(rotated.rotate(cx, a.rope, 0));  // the position only says where the key goes; cos_sin has the rotation
  PageScoreArgs op = a.op;
  op.q = rotated.q.data();
  WEIR_TRY(ops().page_score(cx, op));
  for (uint32_t head = 0; head < op.n_heads; ++head) {
    const uint32_t n = op.kv.n_pages[head / (op.n_heads / op.kv.n_kv_heads)];
    op.score[size_t{head} * op.kv.capacity + n - 1] = -INFINITY;
  }
  return {};
}

Status attn_decode(OpContext& cx, const AttnDecodeArgs& a) {
  AttnPagedArgs attn = a.attn;
  attn.pos = *a.n_tokens;
  Rotated rotated;
  if (a.append) {
    WEIR_TRY(rotated.append(cx, a.rope, attn.pos));
    attn.q = rotated.q.data();
    attn.q_sink = rotated.sink();
  }
  WEIR_TRY(attend(cx, a, attn, nullptr));
  if (!a.stamps) return {};
  PageStampArgs stamp = a.stamp;
  stamp.weight = attn.page_mass;
  stamp.now = attn.pos + 1;
  return ops().page_stamp(cx, stamp);
}

// The lists have the best max_pages of all rows, in ascending order, as page_select makes them.
Status attn_stop(OpContext& cx, const AttnStopArgs& a) {
  AttnPagedArgs attn = a.attn.attn;
  attn.pos = *a.attn.n_tokens;
  Rotated rotated;
  if (a.attn.append) {
    WEIR_TRY(rotated.append(cx, a.attn.rope, attn.pos));
    attn.q = rotated.q.data();
  }
  const KvView& kv = attn.kv;
  std::vector<uint32_t> lists(size_t{kv.n_kv_heads} * kv.capacity), n(kv.n_kv_heads);
  for (uint32_t head = 0; head < kv.n_kv_heads; ++head) {
    const size_t table = size_t{head} * kv.capacity;
    const auto order = [&](uint32_t row) {
      const bool forced =
          row + 1 == kv.n_pages[head] || row < a.stop.n_sink_pages || (a.stop.flags[table + row] & kPageKept) != 0;
      return std::pair(forced ? 0 : 1, forced ? 0.0f : -a.stop.rank[table + row]);
    };
    uint32_t* const list = lists.data() + table;
    std::iota(list, list + kv.n_pages[head], 0u);
    std::stable_sort(list, list + kv.n_pages[head], [&](uint32_t x, uint32_t y) { return order(x) < order(y); });
    const auto n_forced = static_cast<uint32_t>(
        std::count_if(list, list + kv.n_pages[head], [&](uint32_t row) { return order(row).first == 0; }));
    n[head] = std::min(kv.n_pages[head], std::max(a.max_pages, n_forced));
    std::sort(list, list + n[head]);
  }
  const AttnProgressiveArgs stops = {attn, lists.data(), n.data(), a.stop};
  WEIR_TRY(attend(cx, a.attn, attn, &stops));
  if (attn.page_mass == nullptr) return {};
  std::copy(lists.begin(), lists.end(), a.select);
  std::copy(n.begin(), n.end(), a.n_select);
  return {};
}

Status sparse_layer(OpContext& cx, const SparseLayerArgs& a) {
  AttnPagedArgs attn = a.attn.attn;
  attn.pos = *a.attn.n_tokens;
  Rotated rotated;
  WEIR_TRY(rotated.append(cx, a.attn.rope, attn.pos));
  attn.q = rotated.q.data();
  attn.q_sink = rotated.sink();
  const size_t capacity = attn.kv.capacity;
  std::vector<float> score(attn.n_heads * capacity);
  std::vector<uint32_t> lists(n_lists(attn) * capacity), n(n_lists(attn));
  WEIR_TRY(ops().page_score(cx, {score.data(), attn.q, attn.kv, attn.n_heads, 0.0f, attn.scale}));
  PageSelectArgs select = a.select;
  select.score = score.data();
  select.select = lists.data();
  select.n_select = n.data();
  WEIR_TRY(ops().page_select(cx, select));
  if (a.stop.microbatch == 0) {
    attn.select = lists.data();
    attn.n_select = n.data();
    return attend(cx, a.attn, attn, nullptr);
  }
  AttnProgressiveArgs stops = {attn, lists.data(), n.data(), a.stop};
  stops.stop.rank = select.group_score;
  stops.stop.flags = select.flags;
  return attend(cx, a.attn, attn, &stops);
}

}  // namespace weir::host_module
