// Push constants and arguments of the kernels that append to KV pages and attend them; the same technique as shared.h.
#ifndef WEIR_SHADERS_ATTN_H
#define WEIR_SHADERS_ATTN_H

#ifdef __cplusplus
#include "shaders/rules.h"
#include "shaders/shared.h"
namespace weir::vulkan {
#else
#include "rules.h"
#include "shared.h"
#endif

// Tokens of a page, and pages of a unit of attention: lib/ops/ops.h.
WEIR_SHARED uint kPageRows = 16;
WEIR_SHARED uint kUnitPages = 32;
WEIR_SHARED uint kNoSlotWord = 0xFFFFFFFFu;  // the slot of a row whose page is not in the pool
WEIR_SHARED uint kNoRow = 0xFFFFFFFFu;
// Lanes that share a head, and the longest head.
WEIR_SHARED uint kTeamLanes = 8;
WEIR_SHARED uint kMaxChannels = 256;

// For attn_prompt_coop.comp: pairs of a row and a head that a workgroup takes, its invocations, channels of a matrix,
// and of the longest head.
WEIR_SHARED uint kPromptPairs = 64;
WEIR_SHARED uint kPromptInvocations = 128;
WEIR_SHARED uint kMatrixChannels = 16;
WEIR_SHARED uint kMaxPromptChannels = 128;

// RopeAppendArgs. Digests are null unless appending changes them; with n_tokens the position is *n_tokens.
struct RopeArgs {
  uvec2 q, q_sink, k, v, q_norm, k_norm, cos_sin, cos_sin_sink;
  uvec2 pool, digests, slots, first_pos, append_row, n_tokens;
  uint n_tok, n_heads, n_kv_heads, head_dim, rope_dim, is_adjacent, pos, capacity, digest_by_row;
  float norm_eps;
};

// AttnPagedArgs, whole or in units. Whole: a running softmax over all pages, which ends in `result`, and between the
// parts of AttnCarry is in `result`, `high` and `sum`. In units, for one row: result [n_units, n_heads, head_dim], high
// and sum [n_units, n_heads] are those of each unit, and page_mass [n_heads, capacity] is each listed page's sum of
// exp(logit - page_high).
struct AttnArgs {
  uvec2 result, q, q_sink, pool, slots, first_pos, len, n_pages, select, n_select, head_windows;
  uvec2 lse, sinks, high, sum, page_mass, page_high;
  uint n_tok, n_heads, n_kv_heads, n_lists, head_dim, capacity, pos, n_sink_pages, n_sink, window, head_sinks;
  uint in_units, continues, stays;  // stays: another part follows
  float scale, soft_cap;
};

// What the units of a row give: result [n_heads, head_dim], lse [n_heads] and the masses of the listed pages.
struct AttnMergePush {
  uvec2 result, lse, page_mass, sinks, n_listed, unit_results, high, sum, page_high;
  uint n_heads, n_lists, head_dim, capacity;
};

// Digests of n_rows table rows of each stream from first_row on; without first_row that of the last row, however full.
struct PageDigestPush {
  uvec2 digests, pool, slots, len, n_pages, first_row;
  uint n_rows, capacity, head_dim, kind, digest_by_row;
};

// TokenMassArgs.
struct TokenMassPush {
  uvec2 mass, q, lse, pool, slots, first_pos, len, n_pages;
  uint n_rows, n_heads, n_kv_heads, head_dim, capacity, pos, window;
  float scale, soft_cap;
};

#ifdef __cplusplus
static_assert(sizeof(RopeArgs) == 152 && offsetof(RopeArgs, norm_eps) == 148);
static_assert(sizeof(AttnArgs) == 200 && offsetof(AttnArgs, soft_cap) == 196);
static_assert(sizeof(AttnMergePush) == 88 && offsetof(AttnMergePush, capacity) == 84);
static_assert(sizeof(PageDigestPush) == 68 && offsetof(PageDigestPush, digest_by_row) == 64);
static_assert(sizeof(TokenMassPush) == 100 && offsetof(TokenMassPush, soft_cap) == 96);
}  // namespace weir::vulkan
#endif
#endif
