// Speed of the CPU's GEMV and GEMM on the shapes of an 8B model's layer, per weight type and number of threads: bytes
// of weights per second with one token, multiply-adds per second with many. The machine's read bandwidth is measured in
// the same run. Best of several repetitions.
//
//   bench_matmul [-t TYPE]... [-n TOKENS]... [-j THREADS]... [-s 8b|tiny] [-r REPETITIONS]
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/matmul.h"
#include "quant/random_blocks.h"

namespace {

using namespace weir;

struct Shape {
  uint32_t d_model, d_ff, kv_rows;
  size_t min_bytes;  // of all weights, so that they are read from memory like those of a whole model
};
constexpr Shape k8b = {4096, 14336, 1024, size_t{1} << 30};
constexpr Shape kTiny = {384, 1024, 384, size_t{14} << 20};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Layer {
  Weight q, k, v, o, gate, up, down;
};

struct Model {
  Shape shape;
  std::vector<Layer> layers;
  uint8_t* memory = nullptr;
  size_t bytes = 0;
  double weights_per_token = 0;
};

Model make_model(const Shape& shape, WeightType type) {
  Model m{shape, {}, nullptr, 0, 0};
  const uint32_t d = shape.d_model, f = shape.d_ff, kv = shape.kv_rows;
  const uint32_t rows[7] = {d, kv, kv, d, f, f, d}, cols[7] = {d, d, d, d, d, d, f};
  size_t layer_bytes = 0;
  for (int i = 0; i < 7; ++i) layer_bytes += rows[i] * weight_row_bytes(type, cols[i]);
  const size_t n_layers = std::max<size_t>(1, (shape.min_bytes + layer_bytes - 1) / layer_bytes);
  m.bytes = n_layers * layer_bytes;
  m.memory = static_cast<uint8_t*>(mmap(nullptr, m.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (m.memory == MAP_FAILED) std::abort();
  for (size_t l = 0; l < n_layers; ++l) {
    Weight w[7];
    uint8_t* at = m.memory + l * layer_bytes;
    for (int i = 0; i < 7; ++i) {
      const size_t row_bytes = weight_row_bytes(type, cols[i]);
      w[i] = {at, type, rows[i], cols[i], row_bytes};
      const size_t distinct = std::min<size_t>(rows[i], 64);
      for (size_t r = 0; r < distinct; ++r)
        fill_random_blocks(type, at + r * row_bytes, cols[i], r + 100 * static_cast<size_t>(i), 0.02f);
      for (size_t r = distinct; r < rows[i]; ++r)
        std::memcpy(at + r * row_bytes, at + r % distinct * row_bytes, row_bytes);
      at += rows[i] * row_bytes;
      m.weights_per_token += double{1} * rows[i] * cols[i];
    }
    m.layers.push_back({w[0], w[1], w[2], w[3], w[4], w[5], w[6]});
  }
  return m;
}

struct Bench {
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
  ThreadPool pool{memory};
  std::vector<float> x, y, g, kv[2];
  std::vector<std::byte> scratch;
  OpContext cx;

  Bench(const Shape& s, uint32_t n_tok, uint32_t n_threads)
      : x(size_t{n_tok} * s.d_model), y(x.size()), g(size_t{n_tok} * s.d_ff) {
    if (!pool.start(n_threads).ok()) std::abort();
    kv[0].resize(size_t{n_tok} * s.kv_rows), kv[1].resize(kv[0].size());
    uint32_t seed = 1;
    for (float& f : x)
      seed = seed * 1664525u + 1013904223u, f = static_cast<float>(static_cast<int32_t>(seed)) * 4e-10f;
    OpShapes shapes;
    shapes.n_threads = n_threads, shapes.max_tok = n_tok, shapes.max_cols = std::max(s.d_ff, s.d_model);
    scratch.resize(cpu::matmul_scratch_bytes(shapes) + 64);
    auto at = reinterpret_cast<uintptr_t>(scratch.data());
    cx = {&pool, reinterpret_cast<std::byte*>((at + 63) / 64 * 64), scratch.size() - 64};
  }

  void step(const Model& m, uint32_t n_tok) {
    for (const Layer& l : m.layers) {
      MatmulArgs qkv = {
          {{l.q, nullptr, y.data(), false}, {l.k, nullptr, kv[0].data(), false}, {l.v, nullptr, kv[1].data(), false}},
          3,
          x.data(),
          n_tok};
      MatmulArgs o = {{{l.o, nullptr, y.data(), true}}, 1, x.data(), n_tok};
      GluMatmulArgs glu = {g.data(), l.gate, l.up, x.data(), n_tok};
      MatmulArgs down = {{{l.down, nullptr, y.data(), false}}, 1, g.data(), n_tok};
      if (!cpu::matmul(cx, qkv).ok() || !cpu::matmul(cx, o).ok() || !cpu::glu_matmul(cx, glu).ok() ||
          !cpu::matmul(cx, down).ok()) {
        std::fprintf(stderr, "%s\n", last_error_text());
        std::exit(1);
      }
    }
  }
};

// Sums 64-bit words in four streams, in parts of 1 MB per task.
double read_gbps(const Model& m, uint32_t n_threads, int reps) {
  ThreadPool pool(std::pmr::get_default_resource());
  if (!pool.start(n_threads).ok()) std::abort();
  constexpr size_t kPart = 1 << 20;
  std::vector<uint64_t> sums(m.bytes / kPart);
  double best = 1e30;
  for (int i = 0; i < reps; ++i) {
    const double start = now();
    pool.parallel_for(sums.size(), [&](size_t task, size_t) {
      constexpr size_t kStream = kPart / 4 / 64;
      const uint8_t* p = m.memory + task * kPart;
      uint64_t s[4] = {};
      for (size_t line = 0; line < kStream; ++line) {
        for (size_t j = 0; j < 4; ++j) {
          uint64_t w;
          std::memcpy(&w, p + (j * kStream + line) * 64, 8);  // one word of each cache line
          s[j] += w;
        }
      }
      sums[task] = s[0] + s[1] + s[2] + s[3];
    });
    best = std::min(best, now() - start);
  }
  return static_cast<double>(sums.size() * kPart) / best * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> types;
  std::vector<uint32_t> tokens, threads;
  Shape shape = k8b;
  int reps = 5;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i], value = argv[i + 1];
    if (option == "-t") types.push_back(value);
    if (option == "-n") tokens.push_back(static_cast<uint32_t>(std::stoul(value)));
    if (option == "-j") threads.push_back(static_cast<uint32_t>(std::stoul(value)));
    if (option == "-s") shape = value == "tiny" ? kTiny : k8b;
    if (option == "-r") reps = std::stoi(value);
  }
  if (tokens.empty()) tokens = {1, 512};
  if (threads.empty()) threads = {1, 2};
  std::printf("instruction set %s\n", cpu::matmul_target());
  for (size_t t = 0; t < kWeightTypeCount; ++t) {
    const auto type = static_cast<WeightType>(t);
    const char* name = weight_type_info(type).name;
    if (!types.empty() && std::find(types.begin(), types.end(), name) == types.end()) continue;
    const Model m = make_model(shape, type);
    for (const uint32_t n_threads : threads) {
      const double read = read_gbps(m, n_threads, reps);
      for (const uint32_t n_tok : tokens) {
        Bench bench(shape, n_tok, n_threads);
        double best = 1e30;
        bench.step(m, n_tok);
        for (int i = 0; i < reps; ++i) {
          const double start = now();
          bench.step(m, n_tok);
          best = std::min(best, now() - start);
        }
        std::printf("%-5s threads %u tokens %4u: %7.2f GB/s (read %.1f) %7.1f GMAC/s %9.1f us/token/layer\n", name,
                    n_threads, n_tok, static_cast<double>(m.bytes) / best * 1e-9, read,
                    m.weights_per_token * n_tok / best * 1e-9,
                    best * 1e6 / n_tok / static_cast<double>(m.layers.size()));
        std::fflush(stdout);
      }
    }
    munmap(m.memory, m.bytes);
  }
  return 0;
}
