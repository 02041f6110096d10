// Matrix ops with many tokens (GEMM). A pass takes up to kPassTokens tokens. All workers pack their activations into
// panels. Then tasks (ranges of rows) decode their weights, one group of 256 columns at a time, into a tile in the
// core's cache and multiply the tile with every panel. Sums stay in the worker's scratch until the last group.
#include <cstring>

#include "cpu/matmul_plan.h"

namespace weir::cpu {
namespace {

struct GemmRun {
  const Product* product;
  const ActKernels* act;
  bool floats;     // this pass does the parts whose tiles are f32
  bool half_sums;  // a part of this pass needs the sums per 16 columns
  bool mine[3];    // parts of this pass
  size_t first_tok, n_tok;
  size_t n_panels;
  size_t pack_pieces;  // tasks that pack one panel
  size_t tile_rows;    // rows of a task; for a GLU, of each of the two matrices
  size_t tasks_before[4];
  std::byte* packed;  // [n_panels][groups] of group_bytes; the last panel may be narrower and its groups shorter
  std::byte* workers;
  size_t worker_bytes;
};

size_t panel_tokens(const GemmRun& run) { return run.act->vector_tokens * run.act->panel_vectors; }

// Vectors of a panel; the last panel has only as many as it needs.
size_t panel_vectors(const GemmRun& run, size_t panel) {
  const size_t left = run.n_tok - panel * panel_tokens(run);
  return std::min(run.act->panel_vectors, (left + run.act->vector_tokens - 1) / run.act->vector_tokens);
}

// Bytes of one group of a panel.
size_t group_bytes(const GemmRun& run, size_t n_vectors) {
  const size_t tokens = n_vectors * run.act->vector_tokens;
  return run.floats ? packed_float_bytes(tokens) : packed_bytes(tokens, run.half_sums);
}

std::byte* packed_panel(const GemmRun& run, size_t panel) {
  return run.packed + panel * n_groups(run.product->n_cols) * group_bytes(run, run.act->panel_vectors);
}

void pack_task(const GemmRun& run, size_t task) {
  const size_t n_cols = run.product->n_cols, groups = n_groups(n_cols);
  const size_t panel = task / run.pack_pieces, piece = task % run.pack_pieces;
  const size_t tok = panel * panel_tokens(run);
  const PackCall call = {run.product->x + (run.first_tok + tok) * n_cols,
                         std::min(panel_tokens(run), run.n_tok - tok),
                         panel_vectors(run, panel),
                         n_cols,
                         groups * piece / run.pack_pieces,
                         groups * (piece + 1) / run.pack_pieces,
                         run.half_sums,
                         packed_panel(run, panel)};
  run.floats ? run.act->pack_float(call) : run.act->pack(call);
}

// The rows of a task: a range of rows of one matrix, or the same range of gate and up, one after the other in tile and
// sums.
struct TaskRows {
  const Weight* w[2];
  size_t n_weights;
  size_t first, n_rows;
  size_t padded;  // n_rows rounded up to whole register blocks
  size_t total() const { return n_weights * padded; }
};

Tile rows_from(const Tile& tile, size_t row) {
  return {tile.q + row * kGroup, tile.scale + row * kSubs, tile.min + row * kHalves, tile.f + row * kGroup};
}

// Multiplies the decoded group g of weight i with every panel. The panels share the prefetch of the next group's
// encoded weights.
void multiply_group(const GemmRun& run, const TaskRows& rows, size_t i, size_t n_rows, size_t g, const Tile& tile,
                    float* c) {
  const Weight& w = *rows.w[i];
  const TileKind kind = run.floats ? TileKind::kFloat : weight_kernels(w.type).kind;
  const size_t groups = n_groups(w.n_cols), n_cols = std::min(kGroup, w.n_cols - g * kGroup);
  const size_t encoded = w.row_bytes * kGroup / w.n_cols;  // of one group of a row
  for (size_t panel = 0; panel < run.n_panels; ++panel) {
    const size_t n_vectors = panel_vectors(run, panel), tokens = n_vectors * run.act->vector_tokens;
    run.act->multiply[static_cast<size_t>(kind)](
        {.tile = &tile,
         .n_rows = n_rows,
         .x = packed_panel(run, panel) + g * group_bytes(run, n_vectors),
         .n_cols = n_cols,
         .n_vectors = n_vectors,
         .c = c + panel * rows.total() * panel_tokens(run) + i * rows.padded * tokens,
         .next = w.data + rows.first * w.row_bytes + (g + 1) * encoded,
         .next_stride = w.row_bytes,
         .next_rows = rows.n_rows,
         .next_bytes = g + 1 < groups ? encoded : 0,
         .next_first = panel,
         .next_every = run.n_panels});
  }
}

// c [n_panels][rows.total()][tokens of the panel] = the task's rows times all tokens of the pass.
void multiply_rows(const GemmRun& run, const TaskRows& rows, const Tile& tile, float* c) {
  std::memset(c, 0, run.n_panels * rows.total() * panel_tokens(run) * sizeof(float));
  const auto kind = [&](size_t i) { return weight_kernels(rows.w[i]->type).kind; };
  const bool together = rows.n_weights == 1 || run.floats || kind(0) == kind(1);
  for (size_t g = 0; g < n_groups(run.product->n_cols); ++g) {
    for (size_t i = 0; i < rows.n_weights; ++i) {
      const Weight& w = *rows.w[i];
      Tile part = rows_from(tile, i * rows.padded);
      const DecodeCall decode = {w.data + rows.first * w.row_bytes, w.row_bytes, rows.n_rows, g,
                                 std::min(kGroup, w.n_cols - g * kGroup)};
      run.floats ? weight_kernels(w.type).decode_float(decode, part) : weight_kernels(w.type).decode(decode, part);
      if (!together) multiply_group(run, rows, i, rows.padded, g, part, c);
    }
    if (together) multiply_group(run, rows, 0, rows.total(), g, tile, c);
  }
}

// Sets the padding rows of the last register block to zero.
void clear_padding(const Tile& tile, const TaskRows& rows) {
  for (size_t i = 0; i < rows.n_weights; ++i) {
    const Tile rest = rows_from(tile, i * rows.padded + rows.n_rows);
    const size_t n = rows.padded - rows.n_rows;
    std::memset(rest.q, 0, n * kGroup * sizeof(int16_t));
    std::memset(rest.f, 0, n * kGroup * sizeof(float));
    std::memset(rest.scale, 0, n * kSubs * sizeof(float));
    std::memset(rest.min, 0, n * kHalves * sizeof(float));
  }
}

// c [n_rows, tokens] += bias, if there is one, before a gate.
void add_bias(float* c, const ProductPart& part, size_t first, size_t n_rows, size_t tokens) {
  if (part.bias == nullptr) return;
  for (size_t r = 0; r < n_rows; ++r) {
    for (size_t t = 0; t < tokens; ++t) c[r * tokens + t] += part.bias[first + r];
  }
}

void tile_task(const GemmRun& run, size_t task, size_t worker) {
  const Product& p = *run.product;
  size_t i = 0;
  while (task >= run.tasks_before[i + 1]) ++i;
  const ProductPart& part = p.part[i];
  TaskRows rows = {
      {&part.w, &p.part[1].w}, p.glu ? size_t{2} : size_t{1}, (task - run.tasks_before[i]) * run.tile_rows, 0, 0};
  rows.n_rows = std::min(run.tile_rows, part.w.n_rows - rows.first);
  rows.padded = round_up(rows.n_rows, kTileRowStep);

  Carver carver(run.workers + worker * run.worker_bytes);
  Tile tile;
  tile.scale = carver.take<float>(kTileRows * kSubs);
  tile.min = carver.take<float>(kTileRows * kHalves);
  tile.q = carver.take<int16_t>(kTileRows * kGroup);
  tile.f = carver.take<float>(kTileRows * kGroup);
  auto* c = carver.take<float>(0);
  clear_padding(tile, rows);
  multiply_rows(run, rows, tile, c);
  for (size_t panel = 0; panel < run.n_panels; ++panel) {
    const size_t tok = panel * panel_tokens(run), tokens = panel_vectors(run, panel) * run.act->vector_tokens;
    float* sums = c + panel * rows.total() * panel_tokens(run);
    if (p.glu) {
      add_bias(sums, part, rows.first, rows.n_rows, tokens);
      add_bias(sums + rows.padded * tokens, p.part[1], rows.first, rows.n_rows, tokens);
      p.activate(sums, sums + rows.padded * tokens, rows.padded * tokens);
    }
    run.act->store(sums, tokens, rows.n_rows, std::min(panel_tokens(run), run.n_tok - tok),
                   part.bias == nullptr || p.glu ? nullptr : part.bias + rows.first, part.accumulate,
                   part.y + (run.first_tok + tok) * part.w.n_rows + rows.first, part.w.n_rows);
  }
}

// Chooses the rows of a task: a full tile, or less if there would be too few tasks for the threads. The results do not
// depend on it.
void cut(GemmRun& run, size_t n_threads) {
  const Product& p = *run.product;
  const size_t n_lists = p.glu ? 1 : p.n_parts;
  for (run.tile_rows = p.glu ? kTileRows / 2 : kTileRows;; run.tile_rows /= 2) {
    for (size_t i = 0; i < n_lists; ++i) {
      run.tasks_before[i + 1] =
          run.tasks_before[i] + (run.mine[i] ? (p.part[i].w.n_rows + run.tile_rows - 1) / run.tile_rows : 0);
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
  cx.pool->parallel_for(run.tasks_before[p.glu ? 1 : p.n_parts],
                        [&](size_t task, size_t worker) { tile_task(run, task, worker); });
}

// A GLU with one matrix of each kind is computed in f32 as a whole.
bool needs_floats(const ActKernels& act, const Product& p, size_t i) {
  const auto is_float = [&](size_t part) {
    return !act.integer_gemm || weight_kernels(p.part[part].w.type).kind == TileKind::kFloat;
  };
  return p.glu ? is_float(0) || is_float(1) : is_float(i);
}

}  // namespace

void run_gemm(OpContext& cx, const Product& p) {
  GemmRun run = {};
  run.product = &p;
  run.act = &act_kernels();
  for (const bool floats : {false, true}) {
    bool any = false;
    run.half_sums = false;
    for (size_t i = 0; i < p.n_parts; ++i) {
      run.mine[i] = needs_floats(*run.act, p, i) == floats;
      any |= run.mine[i];
      run.half_sums |= run.mine[i] && !floats && weight_kernels(p.part[i].w.type).uses_half_sums;
    }
    if (!any) continue;
    run.floats = floats;
    const size_t pass = floats ? kPassTokensFloat : run.half_sums ? kPassTokensHalfSums : kPassTokens;
    for (run.first_tok = 0; run.first_tok < p.n_tok; run.first_tok += pass) {
      run.n_tok = std::min(pass, p.n_tok - run.first_tok);
      run_pass(cx, run);
    }
  }
}

}  // namespace weir::cpu
