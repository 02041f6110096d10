// What a policy does in a decode step, as data. Kernels of a device follow these rules where the CPU asks the Policy object, so that a step needs
// nothing from the host. A policy and its rules must agree: tests compare the pages that both keep (algorithms 5.1).
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace weir {

// Which page leaves a stream. Candidates are sealed pages without kPageStays; the open page never leaves while it takes tokens.
enum class VictimRule : uint8_t {
  kNever,     // dense, quest
  kWindow,    // sink: the first page behind the front rows, for room or because the window has passed it
  kStalest,   // raas, hybrid: least (stamp, last_score, row) among the pages that are not protected as recent
  kLightest,  // h2o, tova: least (last_score, row), outside the recent window as long as there are any there
};

// How attention is restricted; see AttnPagedArgs.
struct AttnScope {
  uint32_t n_sink_pages = 0;
  uint32_t n_sink = 0;
  uint32_t window = 0;
};

struct StepRules {
  VictimRule victim = VictimRule::kNever;
  // kWindow
  uint32_t front_rows = 0;      // rows that never leave
  uint32_t window_tokens = 0;   // a page whose last token is this far back leaves without need; 0: never
  bool in_cache_pos = false;    // the query for the front rows is rotated to its position in the cache
  uint32_t in_cache_limit = 0;  // > 0: that position is min(pos, limit); 0: pos less the gap behind the front rows
  // kStalest
  uint32_t protect_recent = 0;  // pages
  uint32_t decode_pages = 0;    // > 0: pages without kPagePrompt leave beyond so many, and prompt pages only for room
  uint32_t all_pages =
      0;  // > 0: with at most keep_prompt_pages prompt pages, decode pages may fill up to this less those
  uint32_t keep_prompt_pages = 0;  // a prompt of at most so many pages is kept and attended whole
  // kLightest
  uint32_t recent_tokens = 0;
  bool per_step = false;  // scores are divided by the steps since `stamp`

  // Selection before attention; with selects false every resident page is attended.
  bool selects = false;
  AggMode agg = AggMode::kMaxZ;
  float spread = 1.0f;
  uint32_t select_budget = 0;    // pages
  uint32_t candidate_flags = 0;  // as in PageSelectArgs
  uint32_t sink_pages = 0;
  uint32_t select_from_layer = 0;
  uint32_t select_above_pages = 0;  // while no stream has more pages than this, selection changes nothing

  // Observation after attention, from observe_from_layer on.
  enum class Observe : uint8_t { kNone, kStampMass, kStampDigest, kAccumulate };
  Observe observe = Observe::kNone;
  uint32_t observe_from_layer = 0;
  StampRule stamp_rule = StampRule::kAlpha;
  bool rank_all = false;
  float r = 0.0f, alpha = 0.0f;
  float stamp_spread = 1.0f;  // kStampDigest: as `spread`, of the estimates that are stamped by
  AccumulateRule accumulate = AccumulateRule::kSum;

  AttnScope scope;  // of attention, in every pass
};

}  // namespace weir
