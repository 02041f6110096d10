// cuda: weight types on the GPU. Mirrors cuda/quant, compiled for the host. Every type of quants.inc is repacked into
// planes (quant/planes.h), decoded from them, with the bits that lib/quant gives, and multiplied with inputs as a lane
// of a GEMV does. No GPU is needed. A type without cuda/quant/<name>.cuh does not compile.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "cuda/matmul/store_units.cuh"
#include "cuda/quant/formats.cuh"
#include "quant/blocks.h"
#include "quant/planes.h"
#include "quant/random_blocks.h"
#include "tests/cmocka_cpp.h"

namespace {

using namespace weir;

// Several super-blocks, and numbers of blocks that are no multiple of 8 where the type allows it.
constexpr uint32_t kRows = 3;
uint32_t columns_of(WeightType type) {
  const uint32_t weights = weight_type_info(type).block_weights;
  return weights == 256 ? 512 : weights == 64 ? 320 : 352;
}

// A matrix of random blocks as a file holds it.
struct Matrix {
  std::vector<uint8_t> bytes;
  Weight w;

  explicit Matrix(WeightType type) {
    w.type = type;
    w.n_rows = kRows;
    w.n_cols = columns_of(type);
    w.row_bytes = weight_row_bytes(type, w.n_cols);
    bytes.resize(kRows * w.row_bytes);
    fill_random_blocks(type, bytes.data(), size_t{kRows} * w.n_cols, 7, 1.0f);
    w.data = bytes.data();
  }
  std::vector<float> decoded() const {
    std::vector<float> out(size_t{kRows} * w.n_cols);
    weight_type_info(w.type).decode(bytes.data(), out.data(), out.size());
    return out;
  }
};

// Memory as aligned as a device's allocations.
struct alignas(256) Line {
  uint8_t bytes[256];
};
struct DeviceMemory {
  std::vector<Line> lines;
  explicit DeviceMemory(size_t n, uint8_t fill) : lines(n / sizeof(Line) + 1) {
    std::memset(lines.data(), fill, lines.size() * sizeof(Line));
  }
  uint8_t* data() { return lines.data()->bytes; }
};

// Inputs of one group of units as a GEMV's block has them in shared memory (Act, FloatFormat), and as numbers.
template <class F>
struct Group {
  alignas(16) std::byte bytes[F::kPieces * cuda::kPieceStride] = {};
  float x[cuda::kGroupUnits * F::kUnit];

  template <class T>
  void put(size_t at, T value) {
    std::memcpy(bytes + at, &value, sizeof(T));
  }
  static size_t piece(uint32_t unit, uint32_t i) { return i * cuda::kPieceStride + unit * cuda::kPieceBytes; }

  explicit Group(uint32_t seed) {
    for (uint32_t unit = 0; unit < cuda::kGroupUnits; ++unit) {
      if constexpr (F::kInteger) {
        put_integers(unit, seed);
      } else {
        for (uint32_t i = 0; i < F::kUnit; ++i) {
          x[unit * F::kUnit + i] = static_cast<float>(number(unit * F::kUnit + i + seed)) / 32512.0f;
          put(piece(unit, i / 4) + i % 4 * sizeof(float), x[unit * F::kUnit + i]);
        }
      }
    }
  }
  // -32512..32512, of which the first is the largest.
  static int number(uint32_t i) { return i % 97 == 0 ? 32512 : static_cast<int>(i * 2654435761u >> 8) % 32512; }

  void put_integers(uint32_t unit, uint32_t seed) {
    const float scale = 0.25f / static_cast<float>(1 + unit % 3) / 32512.0f;
    int sum[2] = {};
    for (uint32_t i = 0; i < 32; ++i) {
      const int sign = (i + seed) % 2 == 0 ? 1 : -1, q = sign * number(32 * unit + i + seed);
      const int hi = (q + 128) >> 8, lo = q - 256 * hi;
      put(piece(unit, i / 16) + i % 16, static_cast<int8_t>(hi));
      put(piece(unit, 2 + i / 16) + i % 16, static_cast<int8_t>(lo));
      sum[i / 16] += q;
      x[32 * unit + i] = scale * static_cast<float>(q);
    }
    const size_t words = 4 * size_t{cuda::kPieceStride} + unit * sizeof(uint32_t);
    put(words, scale);
    put(words + cuda::Act::kWordStride, sum[0] + sum[1]);
    put(words + 2 * cuda::Act::kWordStride, sum[0]);
    put(words + 3 * cuda::Act::kWordStride, sum[1]);
  }
};

// Decodes and multiplies unit `u` of the matrix, as lane u % 32 of a warp does. Returns what is wrong, "" if nothing: a
// lane has a stack of its own, from which a test cannot fail.
template <class F>
std::string check_unit(const typename F::Planes& planes, const cuda::Entries<F>& entries,
                       const std::vector<float>& want, const Group<F>& group, uint32_t u) {
  char text[128];
  const auto regs = F::load(F::at(planes, u));
  const float* w = want.data() + size_t{u} * F::kUnit;
  float got[F::kUnit];
  F::decode(regs, u % 8, got);
  for (uint32_t i = 0; i < F::kUnit; ++i) {
    if (std::memcmp(&got[i], &w[i], sizeof(float)) == 0) continue;
    std::snprintf(text, sizeof(text), "weight %u is %.9g, not %.9g", u * F::kUnit + i, double{got[i]}, double{w[i]});
    return text;
  }
  const uint32_t lane = u % cuda::kGroupUnits;
  double sum = 1.0, size = 1.0;
  for (uint32_t i = 0; i < F::kUnit; ++i) {
    const double term = double{w[i]} * double{group.x[lane * F::kUnit + i]};
    sum += term;
    size += std::fabs(term);
  }
  const float dot = F::dot(entries.unpack(regs, u % 8), group.bytes + lane * cuda::kPieceBytes, 1.0f);
  // Integers are exact within a unit; a handful of f32 operations follow, on terms of minima up to some times as large.
  if (std::fabs(double{dot} - sum) <= 4e-6 * size) return "";
  std::snprintf(text, sizeof(text), "unit %u gives %.9g, not %.9g", u, double{dot}, sum);
  return text;
}

// A matrix in planes, and what its weights are.
template <WeightType T>
struct Repacked {
  using F = cuda::Format<T>;
  const Matrix m{T};
  const std::vector<float> want = m.decoded();
  const uint32_t n_units = kRows * m.w.n_cols / F::kUnit;
  DeviceMemory memory{m.bytes.size(), 0xFF};
  typename F::Planes planes = F::planes(memory.data(), n_units);

  Repacked() { repack(m.w, 0, kRows, memory.data()); }
};

template <WeightType T>
void check_type(size_t room) {
  using F = cuda::Format<T>;
  const Repacked<T> repacked;
  cuda::HostBlock warp(cuda::kWarp);
  const uint32_t table_bytes = cuda::Entries<F>::bytes(room);
  DeviceMemory table(table_bytes, 0xFF);
  cuda::misaligned_loads = 0;
  for (uint32_t first = 0; first < repacked.n_units; first += cuda::kGroupUnits) {
    const Group<F> group(first);
    std::string wrong;
    const std::string error = warp.run([&] {
      const uint32_t u = first + cuda::threadIdx.x;
      const cuda::Entries<F> entries(reinterpret_cast<std::byte*>(table.data()), table_bytes, cuda::kWarp);
      cuda::__syncthreads();
      if (u < repacked.n_units && wrong.empty())
        wrong = check_unit<F>(repacked.planes, entries, repacked.want, group, u);
    });
    if (!wrong.empty() || !error.empty()) fail_msg("%s: %s%s", weight_type_info(T).name, wrong.c_str(), error.c_str());
  }
  if (cuda::misaligned_loads != 0) fail_msg("%s: a plane is not aligned", weight_type_info(T).name);
}

void weight_formats__units_equal_the_reference(void**) {
  for (size_t room : {0, 2047, 5000, 9000, 17000, 100000}) {  // from one copy of the entries of a table to the most
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) check_type<WeightType::k##Name>(room);
#include "quant/quants.inc"
#undef WEIR_QUANT
  }
}

// What a block of two warps decodes for prompts and stores as f16, and nothing behind it.
template <WeightType T>
void check_stores() {
  using F = cuda::Format<T>;
  constexpr uint32_t kThreads = 2 * cuda::kWarp;
  const Repacked<T> repacked;
  cuda::HostBlock block(kThreads);
  static cuda::UnitStore<F::kUnit, kThreads> shared;
  for (uint32_t n_units : {1u, 31u, 32u, 33u}) {
    n_units = std::min(n_units, repacked.n_units);
    std::vector<uint4> out((n_units * F::kUnit + 8) / 8 + 1, uint4{~0u, ~0u, ~0u, ~0u});
    auto* const halves = reinterpret_cast<cuda::__half*>(out.data());
    const std::string error = block.run([&] {
      const uint32_t i = cuda::threadIdx.x, of_warp = i - i % cuda::kWarp;
      if (of_warp >= n_units) return;
      float v[F::kUnit] = {};
      if (i < n_units) F::decode(F::load(F::at(repacked.planes, i)), i % 8, v);
      shared.store(v, std::min(n_units - of_warp, cuda::kWarp), halves + of_warp * F::kUnit);
    });
    assert_string_equal(error.c_str(), "");
    for (size_t i = 0; i < n_units * F::kUnit; ++i) {
      if (halves[i].bits != f32_to_f16(repacked.want[i]))
        fail_msg("%s, %u units: weight %zu is %04x", weight_type_info(T).name, n_units, i, halves[i].bits);
    }
    for (size_t i = n_units * F::kUnit; i < out.size() * 8; ++i) assert_int_equal(halves[i].bits, 0xFFFF);
  }
}

void weight_formats__decoded_units_are_stored_one_behind_the_other(void**) {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) check_stores<WeightType::k##Name>();
#include "quant/quants.inc"
#undef WEIR_QUANT
}

// The table takes what the inputs leave, and no input is refused for it that fits beside one copy of the entries.
void weight_formats__tables_give_way_to_inputs(void**) {
  using Small = cuda::Entries<cuda::Format<WeightType::kIQ2_XXS>>;
  using Large = cuda::Entries<cuda::Format<WeightType::kIQ2_S>>;
  assert_int_equal(Small::kMinBytes, 1024);
  assert_int_equal(Large::kMinBytes, 4096);
  for (size_t room : {size_t{0}, size_t{4096}, size_t{8191}}) assert_int_equal(Large::bytes(room), 4096);
  assert_int_equal(Large::bytes(8192), 8192);
  assert_int_equal(Small::bytes(8192), 8192);
  assert_int_equal(Small::bytes(1 << 20), 32768);
  assert_int_equal(cuda::Entries<cuda::Format<WeightType::kQ4_K>>::bytes(1 << 20), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(weight_formats__units_equal_the_reference),
                              cmocka_unit_test(weight_formats__decoded_units_are_stored_one_behind_the_other),
                              cmocka_unit_test(weight_formats__tables_give_way_to_inputs)};
  return cmocka_run_group_tests_name("cuda/weight_formats", tests, nullptr, nullptr);
}
