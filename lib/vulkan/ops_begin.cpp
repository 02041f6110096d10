// The beginning of a decode step.
#include <bit>

#include "device/kernels/add_left.h"
#include "device/kernels/step_begin.h"
#include "vulkan/kv_ranges.h"
#include "vulkan/ops_sizes.h"
#include "vulkan/ops_tables.h"
#include "vulkan/steps.h"

namespace weir::vulkan {
namespace {

VictimRules victim_rules(const StepRules& r) {
  return {.victim = static_cast<uint>(r.victim),
          .front_rows = r.front_rows,
          .window_tokens = r.window_tokens,
          .protect_pages = r.protect.pages,
          .protect_share = r.protect.share,
          .decode_pages = r.decode_pages,
          .all_pages = r.all_pages,
          .whole_prompt_pages = r.whole_prompt_pages,
          .recent_tokens = r.recent_tokens,
          .per_step = r.per_step ? 1u : 0u,
          .seed = r.seed,
          .prompt_slots = r.prompt_slots,
          .by_gap = r.by_gap ? 1u : 0u,
          .leave_at_once = r.leave_at_once};
}

// The number of values follows from that of the streams.
weir::vulkan::LeftAt left_of(const device::LeftAt& left, Touches& t) {
  weir::vulkan::LeftAt at = {};
  if (left.sums == nullptr) return at;
  at.sums = t.writes(left.sums, bytes_from(left.sums));
  at.values = t.writes(left.values, bytes_from(left.values));
  at.pool = t.reads(left.pool, bytes_from(left.pool));
  at.head_dim = left.head_dim;
  return at;
}

}  // namespace

Status add_left(const AddLeftArgs& a) {
  const uint32_t streams = n_streams(a.tables);
  Touches t;
  AddLeftPush push = {};
  push.tables = touch_tables(t, a.tables, false);
  push.left = left_of(a.left, t);
  push.n_streams = streams;
  push.n_kv_heads = a.tables.n_kv_heads;
  push.front_pages = a.tables.front_pages;
  push.global_every = a.tables.global_every;
  push.n_tokens = a.n_tokens;
  return context().dispatch(Kernel::kAddLeft, WeightType::kF32, {1}, push, t, {groups_for(streams)});
}

Status step_begin(const StepBeginArgs& a) {
  if (a.digest_elements % 2 != 0) return fail(WEIR_ERR_INTERNAL, "Vulkan: digests of %u elements", a.digest_elements);
  const uint32_t capacity = a.events.events != nullptr ? a.events.capacity : 0;
  if (capacity != 0 && !std::has_single_bit(capacity))
    return fail(WEIR_ERR_INTERNAL, "Vulkan: a ring of %u events", capacity);
  const uint32_t streams = n_streams(a.tables);
  const uint64_t n_angles = uint64_t{a.n_rotations} * (a.rope_dim / 2);
  // The rotations are a stride apart, and the last one has rope_dim floats.
  const uint64_t rotation_bytes = float_bytes((a.n_rotations - 1) * uint64_t{a.stride} + a.rope_dim);
  Touches t;
  StepBeginPush push = {};
  push.tables = touch_tables(t, a.tables, true);
  push.state = t.writes(a.state, sizeof(StepState));
  push.angles = t.reads(a.angles, n_angles * sizeof(uint64_t));
  push.cos_sin = t.writes(a.cos_sin, rotation_bytes);
  push.cos_sin_sink = a.rules.in_cache_pos ? t.writes(a.cos_sin_sink, rotation_bytes) : uvec2{0, 0};
  push.counter = t.writes(a.counter, sizeof(uint32_t));
  push.events = capacity != 0 ? t.writes(a.events.events, capacity * sizeof(PageEvent)) : uvec2{0, 0};
  if (a.tables.n_resident != nullptr) {
    push.raw_index = t.reads(a.raw_index, bytes_from(a.raw_index));
    push.resident = t.writes(a.resident, uint64_t{streams} * resident_words(a.max_capacity) * sizeof(uint32_t));
    if (a.digest_elements != 0) push.digests = t.writes(a.digests, bytes_from(a.digests));
    push.resident_words = resident_words(a.max_capacity);
    push.digest_words = a.digests == nullptr ? 0 : a.digest_elements / 2;
  }
  push.left = left_of(a.left, t);
  push.rules = victim_rules(a.rules);
  push.n_streams = streams;
  push.n_kv_heads = a.tables.n_kv_heads;
  push.ruled_stream = a.tables.ruled_stream;
  push.has_windows = a.tables.has_windows ? 1 : 0;
  push.front_pages = a.tables.front_pages;
  push.global_every = a.tables.global_every;
  push.event_capacity = capacity;
  push.in_cache_limit = a.rules.in_cache_limit;
  push.rope_dim = a.rope_dim;
  push.n_rotations = a.n_rotations;
  push.stride = a.stride;
  for (uint32_t i = 0; i < kStepRotations; ++i) push.magnitude[i] = static_cast<float>(a.magnitude[i]);
  return context().dispatch(Kernel::kStepBegin, WeightType::kF32, {1}, push, t, {groups_for(streams)});
}

}  // namespace weir::vulkan
