// What the host and the shaders of pages that move between the pool and host memory both know; shared.h says how.
#ifndef WEIR_SHADERS_MOVES_H
#define WEIR_SHADERS_MOVES_H
#include "step.h"

#ifdef __cplusplus
#include "kv/device_recall.h"
namespace weir::vulkan {
#endif

// The page with position row * 16 of each stream that has it, to pages [n_streams, page_quads] of 16 bytes.
struct CopyRowOutPush {
  uvec2 pages, pool, slots, first_pos, n_pages, row_begin, window;
  uint n_streams, row, page_quads;
};

// pages [n, page_quads] to the pool's slots [n], or from there.
struct CopyPagesPush {
  uvec2 pool, pages, slots;
  uint n, page_quads, is_in;
};

// A unit of a prompt's earlier pages to window [n, page_quads] and its tables [n]: UnitPage says where each page is.
WEIR_SHARED uint kUnitPageBits = 30;
WEIR_SHARED uint kUnitInPool = 0;
WEIR_SHARED uint kUnitRaw = 1;
WEIR_SHARED uint kUnitStaged = 2;
struct LoadUnitPush {
  uvec2 window, slots, first_pos, len, n_pages, page_slots, unit_pos, unit_len, raw_pages, pages, pool;
  uint n, page_quads;
};

// Noise in pages of one row of every stream, in the pool's slots [n_streams] and in pages; or, with digests, those.
struct FillRowPush {
  uvec2 pool, pages, slots, digests, row_begin, window;
  uint n_streams, row, head_dim, kind, seed_low, seed_high;
};

// resident [n_streams, n_words]: a bit for each row whose page is in the pool.
struct MarkResidentPush {
  uvec2 resident, slots, n_pages, row_begin;
  uint n_streams, n_words;
};

// NaN in the digests of pages that have neither a slot nor a copy.
struct SpoilLostPush {
  uvec2 digests, raw_index, slots, n_pages, row_begin, window;
  uint n_streams, digest_words;
};

#ifdef __cplusplus
static_assert(kUnitPageBits == UnitPage::kBits);
static_assert(kUnitInPool == UnitPage::kInPool && kUnitRaw == UnitPage::kRaw && kUnitStaged == UnitPage::kStaged);
static_assert(sizeof(CopyRowOutPush) == 68 && offsetof(CopyRowOutPush, page_quads) == 64);
static_assert(sizeof(CopyPagesPush) == 36 && offsetof(CopyPagesPush, is_in) == 32);
static_assert(sizeof(LoadUnitPush) == 96 && offsetof(LoadUnitPush, page_quads) == 92);
static_assert(sizeof(FillRowPush) == 72 && offsetof(FillRowPush, seed_high) == 68);
static_assert(sizeof(MarkResidentPush) == 40 && offsetof(MarkResidentPush, n_words) == 36);
static_assert(sizeof(SpoilLostPush) == 56 && offsetof(SpoilLostPush, digest_words) == 52);
}  // namespace weir::vulkan
#endif
#endif
