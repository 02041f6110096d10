// What the tests of the weight types share: exact comparison of floats, and the golden files of tests/golden/quant.
// Every decoder is compared bit for bit: all products of all types are exact in f32 (see the headers of lib/quant), so
// at most one rounding is left and only one result is correct.
#pragma once

#include <bit>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "quant/weight_type.h"
#include "tests/cmocka_cpp.h"

namespace weir_test {

// Equal bits; so 0 and -0 differ, and NaN equals itself.
inline void assert_same_bits(const float* got, const float* want, size_t n, const char* what) {
  for (size_t i = 0; i < n; ++i) {
    if (std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want[i])) continue;
    fail_msg("%s: weight %zu is %.9g, not %.9g", what, i, static_cast<double>(got[i]), static_cast<double>(want[i]));
  }
}

template <class Block>
std::vector<float> decoded(const Block& block) {
  std::vector<float> out(Block::kWeights);
  decode(block, out.data());
  return out;
}

// Compares the table's decoder of `type` with tests/golden/quant/<type>.bin: magic WQNT, u32 version 1, u32 n_blocks,
// u32 block_bytes, u32 block_weights, the blocks, then their values as f32.
inline void assert_golden(weir::WeightType type) {
  const weir::WeightTypeInfo& info = weir::weight_type_info(type);
  const std::string path = std::string(WEIR_SOURCE_DIR "/tests/golden/quant/") + info.name + ".bin";
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  assert_true(bytes.size() > 20 && std::memcmp(bytes.data(), "WQNT", 4) == 0);
  uint32_t head[4];
  std::memcpy(head, bytes.data() + 4, sizeof(head));
  const auto [version, n_blocks, block_bytes, block_weights] = head;
  assert_int_equal(version, 1);
  assert_int_equal(block_bytes, info.block_bytes);
  assert_int_equal(block_weights, info.block_weights);
  const size_t n = size_t{n_blocks} * block_weights;
  assert_int_equal(bytes.size(), 20 + size_t{n_blocks} * block_bytes + n * sizeof(float));
  std::vector<float> want(n), got(n);
  std::memcpy(want.data(), bytes.data() + 20 + size_t{n_blocks} * block_bytes, n * sizeof(float));
  info.decode(bytes.data() + 20, got.data(), n);
  assert_same_bits(got.data(), want.data(), n, info.name);
}

}  // namespace weir_test
