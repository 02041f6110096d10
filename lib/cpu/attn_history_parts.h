// What steps and beginnings of attention's history share: the layout of scratch memory.
#pragma once

#include <algorithm>

#include "core/memory.h"
#include "cpu/attn_paged_parts.h"
#include "cpu/history_lists.h"
#include "ops/attn_history.h"

namespace weir::cpu {

inline constexpr uint32_t kMaxGroup = 64;    // heads of a KV head, at most
inline constexpr size_t kTileTokens = 64;    // tokens whose values are read together: 16 KiB at 128 channels, in L1
inline constexpr uint32_t kBeginRows = 32;   // query rows of a prompt's end, at most
inline constexpr size_t kBeginTokens = 256;  // tokens of a prompt whose logits are held at a time

// Where a token is.
struct TokenRow {
  const uint16_t* page;
  uint32_t token;
};

// Scratch of one thread.
struct HistoryScratch {
  CandidateScratch sets;
  uint32_t* token;  // [tokens] of the rows behind the sinks
  TokenRow* rows;   // [tokens] those of the sinks, then those of `token`
  uint32_t* used;   // [tokens] rows with a weight
  uint32_t* key;    // [stride] order of the logits
  uint32_t* index;  // [group, stride] of what each head chose: tokens, then where they are in a table
  float* share;     // [group, stride] the weights of these
  float* weight;    // [max(group, kBeginRows), stride] logits, then weights
  float* q;         // [max(group, kBeginRows), d_pad] permuted and scaled
  float* out;       // [group, d_pad] permuted
  size_t stride, d_pad;
};

inline HistoryScratch lay_out_history(Arena& arena, uint64_t group, uint64_t head_dim, uint64_t tokens) {
  HistoryScratch s;
  s.stride = align_up(std::max<uint64_t>(tokens, kBeginTokens) + kVectorPad, kRowPad);
  s.d_pad = align_up(head_dim, kRowPad);
  s.sets = lay_out_candidates(arena, group, tokens);
  s.token = arena.take<uint32_t>(s.stride);
  s.rows = arena.take<TokenRow>(std::max<uint64_t>(tokens, kBeginTokens));
  s.used = arena.take<uint32_t>(s.stride);
  s.key = arena.take<uint32_t>(s.stride);
  s.index = arena.take<uint32_t>(group * s.stride);
  s.share = arena.take<float>(group * s.stride);
  s.weight = arena.take<float>(std::max(group * s.stride, kBeginRows * kBeginTokens));
  s.q = arena.take<float>(std::max<uint64_t>(group, kBeginRows) * s.d_pad);
  s.out = arena.take<float>(group * s.d_pad);
  return s;
}

// Bytes of one thread's scratch.
inline uint64_t history_scratch_stride(uint64_t group, uint64_t head_dim, uint64_t tokens) {
  Arena arena;
  lay_out_history(arena, group, head_dim, tokens);
  return align_up(arena.used(), kCacheLine);
}

}  // namespace weir::cpu
