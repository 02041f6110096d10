// What a policy does in a decode step, as data: the host follows it in lib/policy/rules.cpp, kernels of devices by
// themselves, so that a step needs nothing from the host. Tests compare the pages that they keep (docs/algorithms.md,
// "What must equal what").
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/types.h"

namespace weir {

// Restrictions of attention; see AttnPagedArgs.
struct AttnScope {
  uint32_t n_sink_pages = 0;
  uint32_t n_sink = 0;
  uint32_t window = 0;
};

// The newest of the pages that can leave are protected: this number of them, or this share. One of the two is 0.
struct RecentPages {
  uint32_t pages = 0;
  float share = 0.0f;
};

// Number of protected pages among n_free: at least max(1, n_free / 4) can leave, so that stamps still decide. The page
// that was sealed last is always protected, unless it is the only one.
constexpr uint32_t protected_pages(const RecentPages& recent, uint32_t n_free) {
  if (n_free == 0) return 0;
  const uint32_t wanted = std::max(recent.pages, static_cast<uint32_t>(recent.share * static_cast<float>(n_free)));
  return std::max(std::min(wanted, n_free - std::max(1u, n_free / 4)), n_free > 1 ? 1u : 0u);
}

// The order in which pages leave at random: a number per page that depends only on the seed, the stream's index (layer
// * n_kv_heads + KV head), the position of the next token and the page's first position. Each step is the finaliser of
// splitmix64 (Steele, Lea, Flood, 2014).
constexpr uint64_t random_order(uint64_t seed, uint32_t stream, uint32_t pos, uint32_t page_pos) {
  const uint64_t parts[] = {stream, pos, page_pos};
  uint64_t z = seed;
  for (const uint64_t part : parts) {
    z += (part + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
  }
  return z;
}

// A factor e^noise for each page, of standard Gumbel noise that depends only on the seed, the stream's index and the
// page's first position (AccumulateRule::kNoisy). Of 23 random bits, so that the uniform number and what it lacks to 1
// are exact.
inline float noise_factor(uint32_t seed, uint32_t stream, uint32_t page_pos) {
  const float u = (static_cast<float>(random_order(seed, stream, 0, page_pos) >> 41) + 0.5f) * 0x1p-23f;
  return -1.0f / (u < 0.5f ? std::log(u) : std::log1p(u - 1.0f));
}
// What a page of this mass has of a softmax of (log(mass) + noise) / tau, before it is divided by the sum.
inline float noisy_weight(float mass, float factor, float tau) {
  const float x = mass * factor;
  return x >= 0x1p-126f ? std::exp(std::log(x) / tau) : 0.0f;
}

struct StepRules {
  VictimRule victim = VictimRule::kNever;
  // What selection, or observation from digests, estimates pages by; tables have it if one of them does.
  DigestKind digest = DigestKind::kNone;
  // kWindow, kCold
  uint32_t front_rows = 0;  // rows that never leave; with kCold they are also always wanted
  // kWindow
  uint32_t window_tokens = 0;  // a page whose last token is this far back leaves even if there is room; 0: never
  bool in_cache_pos = false;   // the query for the front rows is rotated to its position in the cache
  // > 0: that position is min(pos, limit); 0: it is pos minus the gap behind the front rows.
  uint32_t in_cache_limit = 0;
  // kStalest
  RecentPages protect = {};
  // > 0: pages without kPagePrompt leave beyond this number, and prompt pages only when the stream is full.
  uint32_t decode_pages = 0;
  // With decode_pages: if the prompt has at most whole_prompt_pages pages, the decode pages may fill the rest of this
  // number.
  uint32_t all_pages = 0;
  uint32_t whole_prompt_pages = 0;
  bool by_gap = false;  // instead of `stamp` decides stamp + last_gap; observation keeps the gaps
  // kLightest
  uint32_t recent_tokens = 0;
  bool per_step = false;  // scores are divided by the steps since `stamp`
  // Decode steps: when a page leaves, others leave until so many can be opened. 0: as many as must be.
  uint32_t leave_at_once = 0;
  // kRandom
  uint32_t seed = 0;

  // Selection before attention; with selects false every resident page is attended.
  bool selects = false;
  AggMode agg = AggMode::kMaxZ;
  float spread = 1.0f;
  uint32_t select_budget = 0;    // pages
  uint32_t candidate_flags = 0;  // as in PageSelectArgs
  uint32_t sink_pages = 0;
  uint32_t select_from_layer = 0;
  // While no stream has more pages than this, selection cannot change anything. 0 with recall.
  uint32_t select_above_pages = 0;
  // > 0: of the selected pages attention takes so many tokens; see TokenChoice.
  uint32_t attend_tokens = 0;
  // Attention takes what is selected in the order of its scores and stops; see AttnStop.
  uint32_t stop_microbatch = 0;  // 0: it does not stop
  float stop_eps = 1.0f;
  bool stop_by_bounds = false;
  uint32_t stop_quiet_pages = 0;
  float stop_quiet_share = 0.0f;

  // Observation after attention, from observe_from_layer on.
  using Observe = ObserveRule;
  Observe observe = Observe::kNone;
  uint32_t observe_from_layer = 0;
  StampRule stamp_rule = StampRule::kAlpha;
  bool rank_all = false;
  float r = 0.0f, alpha = 0.0f;
  float stamp_spread = 1.0f;  // kStampDigest: as `spread`, for the estimates that stamps are based on
  AccumulateRule accumulate = AccumulateRule::kSum;
  AccumulateOptions accumulate_options = {};
  bool marks = false;  // kAccumulate: in `stamp`

  // With kCold: wanted is what selection lists. The best wanted pages that are cold come back before attention,
  // each over the page in the pool with the least (stamp, last_score, row) that is neither wanted nor protected.
  bool recalls = false;
  bool stamps_wanted = false;  // what is wanted is stamped
  uint32_t recall_pages = 0;   // most that come back in a step and stream
  // > 0: prompt pages and those of the answer have slots of their own; lib/policy/rules.cpp has the rules.
  uint32_t prompt_slots = 0;
  bool attend_wanted = false;  // attended are the wanted pages in the pool, not all that are there

  AttnScope scope = {};  // of attention, in every pass
};

}  // namespace weir
