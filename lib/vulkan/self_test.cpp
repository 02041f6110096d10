#include "vulkan/self_test.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "quant/half.h"

namespace weir::vulkan {
namespace {

constexpr uint32_t kXor = 5;  // of the shuffle

// Small whole numbers.
int32_t x_of(uint32_t tok, uint32_t col) { return static_cast<int32_t>((5 * tok + 3 * col) % 17) - 8; }
int32_t w_of(uint32_t row, uint32_t col) { return static_cast<int32_t>((7 * row + col) % 19) - 9; }

uint32_t value_of(uint32_t invocation) { return 3 * invocation + 1; }

struct Lane {
  uint32_t invocation;
  const uint32_t* words;
  uint32_t get(uint32_t word) const { return words[word * kInvocations + invocation]; }
};

// The invocations of a subgroup by their lanes; false: not each lane has one.
bool lanes_of(const uint32_t* words, uint32_t subgroup, uint32_t n_lanes, uint32_t* invocations) {
  uint32_t n = 0;
  std::fill_n(invocations, n_lanes, kInvocations);
  for (uint32_t i = 0; i < kInvocations; ++i) {
    const Lane lane = {i, words};
    if (lane.get(kSelfTestSubgroup) != subgroup) continue;
    const uint32_t at = lane.get(kSelfTestLane);
    if (at >= n_lanes || invocations[at] != kInvocations) return false;
    invocations[at] = i;
    ++n;
  }
  return n == n_lanes;
}

const char* check_subgroup(const uint32_t* words, const uint32_t* invocations, uint32_t n_lanes) {
  uint32_t sum = 0, most = 0;
  for (uint32_t lane = 0; lane < n_lanes; ++lane) {
    sum += value_of(invocations[lane]);
    most = std::max(most, value_of(invocations[lane]));
  }
  const auto floats = std::bit_cast<uint32_t>(static_cast<float>(n_lanes) * static_cast<float>(n_lanes) * 0.5f);
  for (uint32_t i = 0; i < n_lanes; ++i) {
    const Lane lane = {invocations[i], words};
    if (lane.get(kSelfTestShuffle) != value_of(invocations[i ^ kXor])) return "shuffles";
    if (lane.get(kSelfTestSum) != sum) return "integer sums";
    if (lane.get(kSelfTestMax) != most) return "maxima";
    if (lane.get(kSelfTestFloats) != floats) return "f32 sums";
    if (lane.get(kSelfTestShared) != value_of((invocations[i] + 37) % kInvocations)) return "shared memory";
  }
  return nullptr;
}

}  // namespace

Status check_self_test(const uint32_t* words, const char* name) {
  const uint32_t n_lanes = words[kSelfTestLanes * kInvocations];
  uint32_t invocations[kInvocations];
  if (n_lanes < kMinLanes || !std::has_single_bit(n_lanes) || n_lanes > kInvocations)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %s failed the self-test: subgroups of %u lanes", name, n_lanes);
  for (uint32_t subgroup = 0; subgroup < kInvocations / n_lanes; ++subgroup) {
    const char* const wrong = !lanes_of(words, subgroup, n_lanes, invocations)
                                  ? "the numbers of lanes and subgroups"
                                  : check_subgroup(words, invocations, n_lanes);
    if (wrong != nullptr) return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %s failed the self-test: wrong %s", name, wrong);
  }
  return {};
}

bool check_self_test_dot(const uint32_t* words) {
  for (uint32_t i = 0; i < kInvocations; ++i) {
    int32_t sum = 0;
    for (uint32_t shift = 0; shift < 32; shift += 8)
      sum += int32_t{static_cast<int8_t>(i * kDotFactor >> shift)} * static_cast<int8_t>((kDotOther - i) >> shift);
    if (words[i] != static_cast<uint32_t>(sum)) return false;
  }
  return true;
}

void fill_matrix_test(MatrixTest& test) {
  constexpr uint32_t kCols = kMatrixTestCols;
  for (uint32_t i = 0; i < kMatrixTestTokens * kCols; ++i)
    test.x[i] = f32_to_f16(static_cast<float>(x_of(i / kCols, i % kCols)));
  for (uint32_t i = 0; i < kMatrixTestRows * kCols; ++i)
    test.w[i] = f32_to_f16(static_cast<float>(w_of(i / kCols, i % kCols)));
  for (uint32_t t = 0; t < kMatrixTestTokens; ++t) test.scales[t] = static_cast<float>(t + 1);
  std::fill(std::begin(test.y), std::end(test.y), 0.0f);
}

bool check_matrix_test(const MatrixTest& test) {
  for (uint32_t t = 0; t < kMatrixTestTokens; ++t) {
    for (uint32_t r = 0; r < kMatrixTestRows; ++r) {
      int32_t sum = 0;
      for (uint32_t c = 0; c < kMatrixTestCols; ++c) sum += x_of(t, c) * w_of(r, c);
      if (test.y[t * kMatrixTestRows + r] != static_cast<float>(sum * static_cast<int32_t>(t + 1))) return false;
    }
  }
  return true;
}

}  // namespace weir::vulkan
