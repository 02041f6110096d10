// Attention of one query row: what lib/vulkan/attn_decode.cpp, shaders/attn_decode.comp, attn_stop.comp and
// attn_stop_list.comp all know.
#ifndef WEIR_SHADERS_DECODE_H
#define WEIR_SHADERS_DECODE_H
#include "shared.h"
#ifdef __cplusplus
namespace weir::vulkan {
#endif

// Query heads that a workgroup attends for, a power of two, and vectors of 4 channels of them that a lane has in
// registers.
WEIR_SHARED uint kMaxTeamHeads = 8;
WEIR_SHARED uint kMaxTeamVectors = 16;
// Vectors of queries that are in shared memory, twice where sinks have queries of their own.
WEIR_SHARED uint kMaxQueryVectors = 256;
// The most parts of a stream's pages, each a workgroup's.
WEIR_SHARED uint kMaxSplits = 64;
// The parts take pages in turn, so many neighbours at a time.
WEIR_SHARED uint kUnitPagesOfSplit = 4;
// Vectors of shared memory in which a workgroup adds up its values: kMaxTeamHeads * kMaxSplits or more.
WEIR_SHARED uint kGathered = 1024;
// Pages that attn_stop.comp and attn_stop_list.comp put into order at a time. More are seldom attended.
WEIR_SHARED uint kStopBatch = 256;
// Query heads of a group that attn_stop_list.comp takes at most, as CUDA's attn_stop.cu. What it keeps of each is in
// shared memory: with 64 groups of lanes 512 bytes a head, 16 KiB of the 32 that all devices have, beside 13 KiB
// for the order of the pages.
WEIR_SHARED uint kMaxStopHeads = 32;

// What a launch does besides attending is a constant of its pipeline, whose code has no more than that.
WEIR_SHARED uint kDecodeAppends = 1;    // the new token
WEIR_SHARED uint kDecodeNorms = 2;      // the query's heads or the new key
WEIR_SHARED uint kDecodeSinkQuery = 4;  // a query of its own for sinks
WEIR_SHARED uint kDecodeMasses = 8;     // of pages

// The arguments of AttnDecodeArgs, in its words. partial: values [lists, n_splits, heads_per_list, head_dim], and
// maxima and sums of the softmax [lists, n_splits, heads_per_list, 2]. rank to n_listed, and what comes from
// first_pages on, are those of AttnStopArgs; odds: eps / (1 - eps).
struct DecodeArgs {
  uvec2 result, q, q_sink, pool, slots, first_pos, len, n_pages, select, n_select, page_mass, lse, sinks, head_windows;
  uvec2 k, v, q_norm, k_norm, cos_sin, cos_sin_sink, append_row, digests, n_tokens, partial, counters, attended;
  uvec2 stamp, last_score;
  uvec2 rank, flags, bound, listed, n_listed;
  uint capacity, n_heads, n_kv_heads, head_dim, pos, n_sink_pages, n_sink, window, head_sinks, list_per_head;
  uint only_windows;  // only streams with windows of their own are attended
  uint heads_per_list, lists_per_merge, n_splits;
  uint rope_dim, is_adjacent, digest_by_row, stamps;
  float scale, soft_cap, norm_eps, alpha;
  uint first_pages, microbatch, quiet_pages, max_pages;
  float odds, quiet_share;
};

#ifdef __cplusplus
struct StopArgs : DecodeArgs {};      // of attn_stop.comp
struct StopListArgs : DecodeArgs {};  // of attn_stop_list.comp
static_assert(sizeof(DecodeArgs) == 33 * 8 + 28 * 4 && offsetof(DecodeArgs, quiet_share) == 33 * 8 + 27 * 4);
}  // namespace weir::vulkan
#endif
#endif
