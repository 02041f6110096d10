// Matrix products with many tokens. A pass takes up to kPassTokens tokens: their activations are packed in panels by all workers, then tasks
// (runs of rows) decode their weights group by group of 256 columns into a tile in the core's cache and multiply it by every panel. Sums stay in
// the worker's scratch until the last group.
#include <cstring>

#include "cpu/matmul_plan.h"

namespace weir::cpu {
namespace {

struct GemmRun {
  const Product* product;
  const ActKernels* act;
  bool floats;          // this pass does the parts whose tiles are f32
  bool mine[3];         // parts of this pass
  size_t first_tok, n_tok;
  size_t n_panels;
  size_t pack_pieces;   // tasks that one panel is packed by
  size_t tile_rows;     // rows of a task; of each of the two matrices for a GLU
  size_t tasks_before[4];
  std::byte* packed;    // [n_panels][groups] of panel_bytes; the last panel may be narrower, its groups closer
  std::byte* workers;
  size_t worker_bytes;
};

size_t panel_tokens(const GemmRun& run) { return run.act->vector_tokens * run.act->panel_vectors; }

// Vectors of panel i: the last one takes what it needs.
size_t panel_vectors(const GemmRun& run, size_t panel) {
  const size_t left = run.n_tok - panel * panel_tokens(run);
  return std::min(run.act->panel_vectors, (left + run.act->vector_tokens - 1) / run.act->vector_tokens);
}

// Bytes of one group of a panel.
size_t group_bytes(const GemmRun& run, size_t n_vectors) {
  return (run.floats ? packed_float_bytes : packed_bytes)(n_vectors * run.act->vector_tokens);
}

std::byte* packed_panel(const GemmRun& run, size_t panel) {
  return run.packed + panel * n_groups(run.product->n_cols) * group_bytes(run, run.act->panel_vectors);
}

void pack_task(const GemmRun& run, size_t task) {
  const size_t n_cols = run.product->n_cols, groups = n_groups(n_cols);
  const size_t panel = task / run.pack_pieces, piece = task % run.pack_pieces;
  const size_t tok = panel * panel_tokens(run);
  const PackCall call = {run.product->x + (run.first_tok + tok) * n_cols, std::min(panel_tokens(run), run.n_tok - tok), panel_vectors(run, panel),
                         n_cols, groups * piece / run.pack_pieces, groups * (piece + 1) / run.pack_pieces, packed_panel(run, panel)};
  run.floats ? run.act->pack_float(call) : run.act->pack(call);
}

// c [n_panels][padded rows][tokens of the panel] = rows [first, first + n_rows) of w times all tokens of the pass.
void multiply_rows(const GemmRun& run, const Weight& w, size_t first, size_t n_rows, size_t padded, Tile& tile, float* c) {
  const WeightKernels& kernels = weight_kernels(w.type);
  const size_t groups = n_groups(w.n_cols), panel_stride = padded * panel_tokens(run);
  const MultiplyFn multiply = run.act->multiply[static_cast<size_t>(run.floats ? TileKind::kFloat : kernels.kind)];
  std::memset(c, 0, run.n_panels * panel_stride * sizeof(float));
  const size_t encoded = w.row_bytes * std::min<size_t>(kGroup, w.n_cols) / std::max<size_t>(w.n_cols, 1);  // bytes of a group of a row
  for (size_t g = 0; g < groups; ++g) {
    const DecodeCall decode = {w.data + first * w.row_bytes, w.row_bytes, n_rows, g, std::min(kGroup, w.n_cols - g * kGroup)};
    run.floats ? kernels.decode_float(decode, tile) : kernels.decode(decode, tile);
    for (size_t i = 0; i < run.n_panels; ++i) {
      const size_t n_vectors = panel_vectors(run, i);
      const bool fetch = i == 0 && g + 1 < groups;
      multiply({&tile, padded, packed_panel(run, i) + g * group_bytes(run, n_vectors), decode.n_cols, n_vectors, c + i * panel_stride,
                decode.rows + (g + 1) * encoded, w.row_bytes, n_rows, fetch ? encoded : 0});
    }
  }
}

void tile_task(const GemmRun& run, size_t task, size_t worker) {
  const Product& p = *run.product;
  size_t i = 0;
  while (task >= run.tasks_before[i + 1]) ++i;
  const ProductPart& part = p.part[i];
  const size_t first = (task - run.tasks_before[i]) * run.tile_rows;
  const size_t n_rows = std::min(run.tile_rows, part.w.n_rows - first);
  const size_t padded = round_up(n_rows, kTileRowStep);

  Carver carver(run.workers + worker * run.worker_bytes);
  Tile tile;
  tile.scale = carver.take<float>(kTileRows * kSubs);
  tile.min = carver.take<float>(kTileRows * kSubs);
  tile.q = carver.take<int16_t>(kTileRows * kGroup);
  tile.f = carver.take<float>(kTileRows * kGroup);
  auto* c = carver.take<float>(0);
  std::memset(tile.q + n_rows * kGroup, 0, (padded - n_rows) * kGroup * sizeof(int16_t));  // rows that only fill up a register block
  std::memset(tile.f + n_rows * kGroup, 0, (padded - n_rows) * kGroup * sizeof(float));
  std::memset(tile.scale + n_rows * kSubs, 0, (padded - n_rows) * kSubs * sizeof(float));
  std::memset(tile.min + n_rows * kSubs, 0, (padded - n_rows) * kSubs * sizeof(float));
  const size_t panel_stride = padded * panel_tokens(run);
  multiply_rows(run, part.w, first, n_rows, padded, tile, c);
  if (p.glu) {
    float* up = c + run.n_panels * panel_stride;
    multiply_rows(run, p.part[1].w, first, n_rows, padded, tile, up);
    run.act->glu(c, up, run.n_panels * panel_stride);
  }
  for (size_t panel = 0; panel < run.n_panels; ++panel) {
    const size_t tok = panel * panel_tokens(run);
    run.act->store(c + panel * panel_stride, panel_vectors(run, panel) * run.act->vector_tokens, n_rows,
                   std::min(panel_tokens(run), run.n_tok - tok), part.bias == nullptr ? nullptr : part.bias + first, part.accumulate,
                   part.y + (run.first_tok + tok) * part.w.n_rows + first, part.w.n_rows);
  }
}

// Rows of a task: a full tile, or less when there would be too few tasks for the threads. Does not change the results.
void cut(GemmRun& run, size_t n_threads) {
  const Product& p = *run.product;
  const size_t n_lists = p.glu ? 1 : p.n_parts;
  for (run.tile_rows = p.glu ? kTileRows / 2 : kTileRows;; run.tile_rows /= 2) {
    for (size_t i = 0; i < n_lists; ++i) {
      run.tasks_before[i + 1] = run.tasks_before[i] + (run.mine[i] ? (p.part[i].w.n_rows + run.tile_rows - 1) / run.tile_rows : 0);
    }
    if (run.tile_rows == kTileRowStep || run.tasks_before[n_lists] >= 4 * n_threads) return;
  }
}

void run_pass(OpContext& cx, GemmRun& run) {
  const Product& p = *run.product;
  run.n_panels = (run.n_tok + panel_tokens(run) - 1) / panel_tokens(run);
  run.packed = cx.scratch;
  run.workers = cx.scratch + gemm_shared_bytes(n_groups(p.n_cols), p.n_tok);
  run.worker_bytes = gemm_worker_bytes(p.n_tok);
  cut(run, cx.pool->n_threads());
  run.pack_pieces = std::clamp(2 * cx.pool->n_threads() / run.n_panels, size_t{1}, n_groups(p.n_cols));
  cx.pool->parallel_for(run.n_panels * run.pack_pieces, [&](size_t task, size_t) { pack_task(run, task); });
  cx.pool->parallel_for(run.tasks_before[p.glu ? 1 : p.n_parts], [&](size_t task, size_t worker) { tile_task(run, task, worker); });
}

// A GLU with one matrix of each kind is done in f32 as a whole.
bool needs_floats(const ActKernels& act, const Product& p, size_t i) {
  const auto is_float = [&](size_t part) { return !act.integer_gemm || weight_kernels(p.part[part].w.type).kind == TileKind::kFloat; };
  return p.glu ? is_float(0) || is_float(1) : is_float(i);
}

}  // namespace

void run_gemm(OpContext& cx, const Product& p) {
  GemmRun run = {};
  run.product = &p;
  run.act = &act_kernels();
  for (const bool floats : {false, true}) {
    bool any = false;
    for (size_t i = 0; i < p.n_parts; ++i) {
      run.mine[i] = needs_floats(*run.act, p, i) == floats;
      any |= run.mine[i];
    }
    if (!any) continue;
    run.floats = floats;
    const size_t pass = floats ? kPassTokensFloat : kPassTokens;
    for (run.first_tok = 0; run.first_tok < p.n_tok; run.first_tok += pass) {
      run.n_tok = std::min(pass, p.n_tok - run.first_tok);
      run_pass(cx, run);
    }
  }
}

}  // namespace weir::cpu
