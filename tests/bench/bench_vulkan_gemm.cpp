// Speed of the Vulkan backend's products of prompts on the shapes of an 8B model, of q8_0: the f32 kernel, the packing
// of x, the decoding of weights, and the kernel with cooperative matrices for several tiles, which is compared with the
// f32 kernel. The device is WEIR_TEST_VULKAN_DEVICE.
//
//   bench_vulkan_gemm [TOKENS] [REPETITIONS]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "core/clock.h"
#include "ops/matmul.h"
#include "quant/half.h"
#include "vulkan/gemm.h"
#include "vulkan/ops_sizes.h"

namespace {

using namespace weir;
using namespace weir::vulkan;

void check(Status status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", last_error_text());
  std::exit(1);
}

Context& open_context() {
  Context& c = context();
  DeviceTraits devices[kMaxDevices];
  uint32_t n = 0, which = 0;
  check(open_instance(kLoader, c.device));
  check(list_devices(c.device, devices, n));
  check(choose_device(devices, n, std::getenv("WEIR_TEST_VULKAN_DEVICE"), which));
  check(c.open(which));
  return c;
}

void* room(uint64_t bytes) {
  void* out = nullptr;
  check(context().memory.allocate(context().device, bytes, &out));
  return out;
}

constexpr uint64_t kHalf = 2;

struct Shape {
  uint32_t n_rows, n_cols;
};
constexpr Shape kShapes[] = {{4096, 4096}, {1024, 4096}, {14336, 4096}, {4096, 14336}};
constexpr uint32_t kMaxCols = 14336, kMaxRows = 14336;

// Besides the module's own. Those that the device cannot hold are left out.
constexpr MatrixTile kVariants[] = {
    {128, 128, 32, 256}, {128, 128, 64, 256}, {128, 128, 32, 128}, {128, 128, 64, 128}, {128, 256, 32, 256},
    {256, 128, 32, 256}, {128, 256, 32, 512}, {64, 128, 32, 256},  {64, 128, 64, 256},  {64, 64, 64, 128},
};

struct Data {
  float *x, *y, *scales;
  std::byte *x16, *w16;
  uint8_t* w;
};

// Seconds of one of `n` runs.
template <class Run>
double seconds_of(uint32_t n, const Run& run) {
  Context& c = context();
  check(run());  // makes the pipeline
  check(c.recorder.wait(c.device));
  const uint64_t start = now_ns();
  for (uint32_t i = 0; i < n; ++i) check(run());
  check(c.recorder.wait(c.device));
  return static_cast<double>(now_ns() - start) * 1e-9 / n;
}

Weight weight_of(const Data& d, const Shape& s) {
  return {d.w, WeightType::kQ8_0, s.n_rows, s.n_cols, uint64_t{s.n_cols} / 32 * 34};
}

Status pack(const Data& d, uint32_t n_tok, uint32_t n_cols) {
  Touches t;
  const GemmPackPush push = {t.writes(d.x16, n_tok * n_cols * kHalf), t.writes(d.scales, float_bytes(n_tok)),
                             t.reads(d.x, float_bytes(uint64_t{n_tok} * n_cols)), n_tok, n_cols / 8};
  return context().dispatch(Kernel::kGemmPack, WeightType::kF32, {}, push, t, {n_tok});
}

Status decode(const Data& d, const Weight& w) {
  Touches t;
  const GemmDecodePush push = {t.writes(d.w16, w.n_rows * w.n_cols * kHalf), t.reads(w.data, weight_bytes(w)),
                               blocks_of(w), 0, blocks_of(w)};
  return context().dispatch(Kernel::kGemmDecode, w.type, {}, push, t,
                            {std::min(blocks_of(w) * 4 / kInvocations, kMaxGroups)});
}

// By the last tile.
Status multiply(const Data& d, const Shape& s, uint32_t n_tok) {
  const MatrixTile& tile = context().device.tiles.back();
  const Variant variant = {.invocations = tile.invocations,
                           .tile = static_cast<uint32_t>(std::tuple_size_v<MatrixTiles>) - 1};
  Touches t;
  GemmPush push = {};
  push.y = t.writes(d.y, float_bytes(uint64_t{n_tok} * s.n_rows));
  push.x = t.reads(d.x16, n_tok * s.n_cols * kHalf);
  push.w = t.reads(d.w16, s.n_rows * s.n_cols * kHalf);
  push.scales = t.reads(d.scales, float_bytes(n_tok));
  push.n_cols = s.n_cols;
  push.n_rows = push.stride = s.n_rows;
  push.n_tok = n_tok;
  return context().dispatch(Kernel::kGemmCoop, WeightType::kF32, variant, push, t,
                            {(n_tok + tile.tokens - 1) / tile.tokens, (s.n_rows + tile.rows - 1) / tile.rows});
}

std::vector<float> results(const Data& d, size_t n) {
  std::vector<float> y(n);
  Context& c = context();
  check(c.copy_out(y.data(), d.y, n * sizeof(float)));
  check(c.recorder.wait(c.device));
  return y;
}

double nmse(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, all = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    all += double{want[i]} * want[i];
  }
  return error / all;
}

Data make_data(uint32_t n_tok) {
  Data d = {};
  const uint64_t n_x = uint64_t{n_tok} * kMaxCols, n_blocks = uint64_t{kMaxRows} * 4096 / 32;
  d.x = static_cast<float*>(room(n_x * 4));
  d.y = static_cast<float*>(room(uint64_t{n_tok} * kMaxRows * 4));
  d.scales = static_cast<float*>(room(n_tok * sizeof(float)));
  d.x16 = static_cast<std::byte*>(room(n_x * kHalf));
  d.w16 = static_cast<std::byte*>(room(n_blocks * 32 * kHalf));
  d.w = static_cast<uint8_t*>(room(n_blocks * 34));
  std::mt19937 random(1);
  std::vector<float> x(n_x);
  for (float& v : x) v = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-30f;
  check(context().copy_in(d.x, x.data(), n_x * 4));
  // Any bytes are quants; what a shape has after its quants are scales, and elsewhere the bytes are quants again.
  std::vector<uint32_t> quants(n_blocks * 8);
  for (uint32_t& q : quants) q = random();
  check(context().copy_in(d.w, quants.data(), n_blocks * 32));
  check(context().recorder.wait(context().device));
  return d;
}

void make_scales(const Data& d, const Shape& s) {
  const uint64_t n_blocks = uint64_t{s.n_rows} * s.n_cols / 32;
  const std::vector<uint16_t> scales(n_blocks, f32_to_f16(0.01f));
  check(context().copy_in(d.w + n_blocks * 32, scales.data(), n_blocks * 2));
  check(context().recorder.wait(context().device));
}

void bench(const Data& d, const Shape& s, uint32_t n_tok, uint32_t n) {
  Context& c = context();
  make_scales(d, s);
  const Weight w = weight_of(d, s);
  const double flop = 2.0 * n_tok * s.n_rows * s.n_cols;
  const MatmulPart part = {w, nullptr, d.y, false};
  const size_t n_y = size_t{n_tok} * s.n_rows;
  const double plain = seconds_of(2, [&] { return gemm_f32(part, d.x, n_tok); });
  const std::vector<float> want = results(d, n_y);
  std::printf("%u x %u, %u tokens: f32 %.3f ms, %.2f TFLOP/s\n", s.n_rows, s.n_cols, n_tok, plain * 1e3,
              flop / plain * 1e-12);
  if (!c.device.matrices.are_there()) return;
  const double packing = seconds_of(n, [&] { return pack(d, n_tok, s.n_cols); });
  const double decoding = seconds_of(n, [&] { return decode(d, w); });
  std::printf("  packing x %.3f ms, decoding %.3f ms\n", packing * 1e3, decoding * 1e3);
  const MatrixTiles own_tiles = c.device.tiles;
  for (const MatrixTile& tile : kVariants) {
    MatrixTiles tiles = c.device.tiles;
    tiles.back() = tile;
    if (!can_tile(c.device.matrices, tile, c.device.traits.shared_bytes)) {
      std::printf("  tile %3u x %3u, %u columns, %u invocations: does not fit\n", tile.tokens, tile.rows, tile.step,
                  tile.invocations);
      continue;
    }
    c.pipelines.close(c.device);
    check(c.pipelines.open(c.device));
    c.device.tiles = tiles;
    const double took = seconds_of(n, [&] { return multiply(d, s, n_tok); });
    std::printf("  tile %3u x %3u, %u columns, %u invocations: %.3f ms, %.1f TFLOP/s, nmse %.2g\n", tile.tokens,
                tile.rows, tile.step, tile.invocations, took * 1e3, flop / took * 1e-12, nmse(results(d, n_y), want));
    std::fflush(stdout);
  }
  c.device.tiles = own_tiles;
  c.pipelines.close(c.device);
  check(c.pipelines.open(c.device));
}

}  // namespace

int main(int argc, char** argv) {
  const uint32_t n_tok = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 2048,
                 n = argc > 2 ? static_cast<uint32_t>(std::atoi(argv[2])) : 20;
  if (n_tok == 0 || n == 0) return 2;
  Context& c = open_context();
  const Matrices& m = c.device.matrices;
  std::printf("%s; matrices of %u x %u x %u, %u lanes; %u bytes of shared memory\n", c.target, m.m, m.n, m.k, m.lanes,
              c.device.traits.shared_bytes);
  const Data d = make_data(n_tok);
  for (const Shape& s : kShapes) bench(d, s, n_tok, n);
  return 0;
}
