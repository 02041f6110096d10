// Matrix ops with few tokens (GEMV): tasks are ranges of rows, and all parts share one parallel region. The calling
// thread quantises the activations first: a microsecond of work, less than another parallel region would cost.
#include "cpu/matmul_plan.h"

namespace weir::cpu {
namespace {

// Bytes of weights of one task: enough to amortise starting its four memory streams, and few enough that the last tasks
// of a call end together. Small matrices are divided into smaller tasks, as long as handing out a task does not
// dominate.
constexpr size_t kTaskBytes = 256 * 1024;
constexpr size_t kTaskBytesMin = 8 * 1024;
constexpr size_t kTasksPerThread = 4;

struct GemvRun {
  const Product* product;
  const ActKernels* act;
  Activations activations;
  size_t rows_per_task[3];
  size_t tasks_before[4];  // of part i; tasks of a GLU have rows of both matrices and are counted in part 0
  float* results;          // [worker][2, kGemvTokens, kGemvRows]
};

void quantize(GemvRun& run, size_t n_cols, size_t n_tok) {
  const Product& p = *run.product;
  bool integers = false, sums = false, half_sums = false;
  for (size_t i = 0; i < p.n_parts; ++i) {
    const WeightKernels& kernels = weight_kernels(p.part[i].w.type);
    integers |= kernels.kind != TileKind::kFloat;
    sums |= kernels.uses_sums;
    half_sums |= kernels.uses_half_sums;
  }
  if (!integers) return;
  const size_t groups = n_groups(n_cols);
  const Activations& a = run.activations;
  for (size_t t = 0; t < n_tok; ++t) {
    run.act->quantize(a.x + t * n_cols, n_cols, a.q + t * groups * kGroup, a.scale + t * groups,
                      sums ? a.sum + t * groups * kSubs : nullptr,
                      half_sums ? a.half_sum + t * groups * kHalves : nullptr);
  }
}

void cut(GemvRun& run, size_t n_threads) {
  const Product& p = *run.product;
  const size_t n_lists = p.glu ? 1 : p.n_parts;
  size_t total = 0;
  for (size_t i = 0; i < p.n_parts; ++i) total += p.part[i].w.row_bytes * p.part[i].w.n_rows;
  const size_t bytes = std::clamp(total / (n_threads * kTasksPerThread), kTaskBytesMin, kTaskBytes);
  for (size_t i = 0; i < n_lists; ++i) {
    const size_t row_bytes = p.part[i].w.row_bytes + (p.glu ? p.part[1].w.row_bytes : 0);
    run.rows_per_task[i] =
        std::min(round_up(std::max<size_t>(bytes / std::max<size_t>(row_bytes, 1), 1), 4), kGemvRows);
    run.tasks_before[i + 1] =
        run.tasks_before[i] + (p.part[i].w.n_rows + run.rows_per_task[i] - 1) / run.rows_per_task[i];
  }
}

void multiply(const GemvRun& run, const Weight& w, size_t first, size_t n_rows, size_t n_tok, float* out) {
  const GemvCall call = {
      w.data + first * w.row_bytes, w.row_bytes, n_rows, w.n_cols, n_tok, run.activations, out, n_rows};
  weight_kernels(w.type).gemv(call);
}

// out [n_tok, n_rows] += bias, if there is one.
void add_bias(float* out, const float* bias, size_t n_rows, size_t n_tok) {
  if (bias == nullptr) return;
  for (size_t t = 0; t < n_tok; ++t) {
    for (size_t r = 0; r < n_rows; ++r) out[t * n_rows + r] += bias[r];
  }
}

const float* bias_from(const ProductPart& part, size_t first) {
  return part.bias == nullptr ? nullptr : part.bias + first;
}

void run_task(const GemvRun& run, size_t n_tok, size_t first_tok, size_t task, size_t worker) {
  const Product& p = *run.product;
  size_t i = 0;
  while (task >= run.tasks_before[i + 1]) ++i;
  const ProductPart& part = p.part[i];
  const size_t first = (task - run.tasks_before[i]) * run.rows_per_task[i];
  const size_t n_rows = std::min(run.rows_per_task[i], part.w.n_rows - first);
  float* out = run.results + worker * 2 * kGemvTokens * kGemvRows;
  multiply(run, part.w, first, n_rows, n_tok, out);
  if (p.glu) {
    float* up = out + kGemvTokens * kGemvRows;
    multiply(run, p.part[1].w, first, n_rows, n_tok, up);
    add_bias(out, bias_from(part, first), n_rows, n_tok);
    add_bias(up, bias_from(p.part[1], first), n_rows, n_tok);
    p.activate(out, up, n_tok * n_rows);
  }
  for (size_t t = 0; t < n_tok; ++t) {
    float* y = part.y + (first_tok + t) * part.w.n_rows + first;
    const float* from = out + t * n_rows;
    if (part.accumulate) {
      for (size_t r = 0; r < n_rows; ++r) y[r] += from[r];
    } else {
      for (size_t r = 0; r < n_rows; ++r) y[r] = from[r];
    }
    if (part.bias == nullptr || p.glu) continue;
    for (size_t r = 0; r < n_rows; ++r) y[r] += part.bias[first + r];
  }
}

}  // namespace

void run_gemv(OpContext& cx, const Product& p) {
  const size_t groups = n_groups(p.n_cols);
  GemvRun run = {&p, &act_kernels(), {}, {}, {}, nullptr};
  Carver carver(cx.scratch);
  run.activations.q = carver.take<int16_t>(std::min(p.n_tok, kGemvTokens) * groups * kGroup);
  run.activations.scale = carver.take<float>(std::min(p.n_tok, kGemvTokens) * groups);
  run.activations.sum = carver.take<float>(std::min(p.n_tok, kGemvTokens) * groups * kSubs);
  run.activations.half_sum = carver.take<float>(std::min(p.n_tok, kGemvTokens) * groups * kHalves);
  run.results = carver.take<float>(0);
  cut(run, cx.pool->n_threads());
  for (size_t tok = 0; tok < p.n_tok; tok += kGemvTokens) {  // several rounds only without a GEMM
    const size_t n_tok = std::min(kGemvTokens, p.n_tok - tok);
    run.activations.x = p.x + tok * p.n_cols;
    quantize(run, p.n_cols, n_tok);
    cx.pool->parallel_for(run.tasks_before[p.glu ? 1 : p.n_parts],
                          [&](size_t task, size_t worker) { run_task(run, n_tok, tok, task, worker); });
  }
}

}  // namespace weir::cpu
