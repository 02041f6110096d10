// What the host and the shaders of pages, of a step's end and of its logits both know; shared.h says how.
#ifndef WEIR_SHADERS_PAGES_H
#define WEIR_SHADERS_PAGES_H

#ifdef __cplusplus
#include "shaders/attn.h"
#include "shaders/rules.h"
#include "shaders/step_state.h"
namespace weir::vulkan {
#else
#include "attn.h"
#include "rules.h"
#include "step_state.h"
#endif

// Flags of a page, kPage* of lib/ops/types.h.
WEIR_SHARED uint kFlagKept = 4;
WEIR_SHARED uint kFlagStays = 5;

// score [n_kv_heads, capacity] from weight [n_heads, capacity]; with mark one more at the least score of a full table.
struct PageAccumulatePush {
  uvec2 weight, score, len, n_pages, flags, mark, n_tokens, first_pos;
  uint capacity, n_heads, n_kv_heads, rule, first_stream, seed, tau_tokens;
  float tau, tau_end, keep;
};

// score [n_heads, capacity] = softmax(scale * score) over the rows in use.
struct PageSoftmaxPush {
  uvec2 score, n_pages;
  uint capacity, n_heads, n_kv_heads;
  float scale;
};

// select [n_lists, capacity] of the streams with windows becomes all their rows.
struct ListWindowsPush {
  uvec2 select, n_select, windows, n_pages;
  uint capacity, n_lists, n_kv_heads;
};

// Compensation tokens (device::CompensateArgs): sums of two words a stream, and values [2, head_dim] of the streams
// with windows. page_mass and n_tokens may be none.
WEIR_SHARED uint kCompensateRows = 8;  // of a workgroup
struct CompensatePush {
  uvec2 result, q, pool, slots, first_pos, len, n_pages, page_mass, lse, head_windows, n_tokens, sums, values;
  uint n_tok, n_heads, n_kv_heads, head_dim, capacity, pos, head_sinks;
  float scale, soft_cap;
};

// The most rows whose keys an invocation keeps while the best are sought (common/top_rows.glsl): with 1,024 invocations
// more do not fit into their registers.
WEIR_SHARED uint kMaxOwnRows = 4;

// Pages that a workgroup scores, each with a team.
WEIR_SHARED uint kScorePages = kInvocations / kTeamLanes;

// score [n_heads, capacity] from q [n_heads, head_dim] and digests of digest_words each, by slot or, without slots, by
// row.
struct PageScorePush {
  uvec2 score, q, digests, slots, len, n_pages;
  uint capacity, n_heads, n_kv_heads, head_dim, digest, digest_words;
  float spread;
};

// The same of sketches; scale is attention's.
struct PageSketchPush {
  uvec2 score, q, digests, slots, len, n_pages;
  uint capacity, n_heads, n_kv_heads, head_dim;
  float scale;
};

// PageScoreStepArgs; digests [2, head_dim] by slot or, without slots, by row.
struct PageScoreStepPush {
  uvec2 score, q, digests, slots, n_pages, q_norm, cos_sin;
  uint capacity, n_heads, n_kv_heads, head_dim, rope_dim, is_adjacent;
  float norm_eps;
};

// PageSelectArgs without `agg`, which is a constant of the pipeline.
struct PageSelectPush {
  uvec2 score, group_score, select, n_select, flags, n_pages;
  uint capacity, n_heads, n_kv_heads;
  float scale;
  uint budget, candidate_flags, n_sink_pages;
};

// PageStampArgs. With a state `now` is the step's.
struct PageStampPush {
  uvec2 weight, select, n_select, stamp, last_score, flags, n_pages, state, gap;
  uint capacity, n_heads, n_kv_heads, now, by_threshold, rank_all;
  float r, alpha;
};

// best [2]: the largest key of a logit in the first word, and in the second the complement of the lowest id with it.
struct BestLogitPush {
  uvec2 best, logits;
  uint vocab_size;
};

// The end of a step after the largest key is known.
struct StepEndPush {
  uvec2 best, counter, state, mailbox, logits;
  uint vocab_size, commit;
};

// The most logits that are listed.
WEIR_SHARED uint kMaxTop = 1024;

// candidates [n_parts, n, 2]: key and id of the n best logits of each part_rows, ascending by id. The last part may
// have fewer rows. With a mask, a bit for each token, only those take part whose bit is set, and lists that are then
// shorter end with kKeyNever.
struct TopPartsPush {
  uvec2 candidates, logits, mask;
  uint vocab_size, part_rows, n;
};

// ids and values [n]: the best of n_candidates, in descending order; -1 and -inf where there are fewer.
struct TopLogitsPush {
  uvec2 ids, values, candidates;
  uint n_candidates, n;
};

// parts [kLogitParts, 2]: the largest logit of each part_rows, and the sum of exp(logit - largest); values [n_tokens]:
// the logits of `tokens`.
struct ReadLogitsPush {
  uvec2 parts, logits, tokens, values;
  uint vocab_size, part_rows, n_tokens;
};

// to [n_quads] = from, 16 bytes each.
struct CopyMemoryPush {
  uvec2 to, from;
  uint n_quads;
};

// pool [n_words] of two bf16 each.
struct FillNoisePush {
  uvec2 pool;
  uint n_words, seed_low, seed_high, part;
};

#ifdef __cplusplus
static_assert(sizeof(PageAccumulatePush) == 104 && offsetof(PageAccumulatePush, keep) == 100);
static_assert(sizeof(PageSoftmaxPush) == 32 && offsetof(PageSoftmaxPush, scale) == 28);
static_assert(sizeof(PageScorePush) == 76 && offsetof(PageScorePush, spread) == 72);
static_assert(sizeof(PageScoreStepPush) == 84 && offsetof(PageScoreStepPush, norm_eps) == 80);
static_assert(sizeof(PageSelectPush) == 76 && offsetof(PageSelectPush, n_sink_pages) == 72);
static_assert(sizeof(PageStampPush) == 104 && offsetof(PageStampPush, alpha) == 100);
static_assert(sizeof(BestLogitPush) == 20 && offsetof(BestLogitPush, vocab_size) == 16);
static_assert(sizeof(StepEndPush) == 48 && offsetof(StepEndPush, commit) == 44);
static_assert(sizeof(TopPartsPush) == 36 && offsetof(TopPartsPush, n) == 32);
static_assert(sizeof(TopLogitsPush) == 32 && offsetof(TopLogitsPush, n) == 28);
static_assert(sizeof(ReadLogitsPush) == 44 && offsetof(ReadLogitsPush, n_tokens) == 40);
static_assert(sizeof(CopyMemoryPush) == 20 && offsetof(CopyMemoryPush, n_quads) == 16);
static_assert(sizeof(FillNoisePush) == 24 && offsetof(FillNoisePush, part) == 20);
}  // namespace weir::vulkan
#endif
#endif
