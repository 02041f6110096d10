// quant: the planes into which a matrix is separated for devices. Mirrors planes.h and planes.cpp of lib/quant. That
// kernels read the weights from them that the file holds is tested with the kernels' code.
#include "quant/planes.h"

#include <cstring>
#include <vector>

#include "quant/random_blocks.h"
#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

constexpr uint32_t kRows = 3;

// A matrix of random blocks as a file holds it. Several super-blocks, and numbers of blocks that are no multiple of 8
// where the type allows it.
struct Matrix {
  std::vector<uint8_t> bytes;
  Weight w;

  explicit Matrix(WeightType type) {
    w.type = type;
    w.n_rows = kRows;
    const uint32_t weights = weight_type_info(type).block_weights;
    w.n_cols = weights == 256 ? 512 : weights == 64 ? 320 : 352;
    w.row_bytes = weight_row_bytes(type, w.n_cols);
    bytes.resize(kRows * w.row_bytes);
    fill_random_blocks(type, bytes.data(), size_t{kRows} * w.n_cols, 7, 1.0f);
    w.data = bytes.data();
  }
};

template <class Check>
void for_each_type(Check check) {
  for (size_t i = 0; i < kWeightTypeCount; ++i) check(static_cast<WeightType>(i));
}

// Each byte of the planes is written, none beyond them, and rows can be repacked in parts.
void planes__hold_the_file(void**) {
  for_each_type([](WeightType type) {
    const char* name = weight_type_info(type).name;
    uint32_t plane[kMaxPlanes] = {}, sum = 0;
    const uint32_t n = planes_of(type, plane);
    assert_true(n >= 1 && n <= kMaxPlanes);
    for (uint32_t i = 0; i < n; ++i) sum += plane[i];
    if (sum != weight_row_bytes(type, 256)) fail_msg("%s: planes of %u bytes for 256 weights", name, sum);

    const Matrix m(type);
    const size_t bytes = m.bytes.size();
    std::vector<uint8_t> zeros(bytes, 0x00), ones(bytes + 64, 0xFF);
    repack(m.w, 0, kRows, zeros.data());
    repack(m.w, 1, kRows, ones.data());
    repack(m.w, 0, 1, ones.data());
    if (std::memcmp(zeros.data(), ones.data(), bytes) != 0) fail_msg("%s: bytes that are not written", name);
    for (size_t i = bytes; i < ones.size(); ++i) assert_int_equal(ones[i], 0xFF);
  });
}

// Four bits of two weights lie in a byte of the first plane, the scales follow all of them.
void planes__by_hand(void**) {
  uint8_t file[2 * 18], out[2 * 18] = {};  // two rows of one block
  for (uint32_t i = 0; i < sizeof(file); ++i) file[i] = static_cast<uint8_t>(i);
  Weight w;
  w.data = file;
  w.type = WeightType::kQ4_0;
  w.n_rows = 2;
  w.n_cols = 32;
  w.row_bytes = 18;
  repack(w, 0, 2, out);
  for (uint32_t row = 0; row < 2; ++row) {
    assert_memory_equal(out + 16 * row, file + 18 * row + 2, 16);
    assert_memory_equal(out + 32 + 2 * row, file + 18 * row, 2);
  }
}

void planes__need_columns_in_blocks_of_32(void**) {
  Weight w;
  w.n_rows = 2;
  w.n_cols = 64;
  assert_int_equal(check_planes(w).code(), WEIR_OK);
  w.n_cols = 48;
  assert_int_equal(check_planes(w).code(), WEIR_ERR_UNSUPPORTED);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(planes__hold_the_file), cmocka_unit_test(planes__by_hand),
                              cmocka_unit_test(planes__need_columns_in_blocks_of_32)};
  return cmocka_run_group_tests_name("quant/planes", tests, nullptr, nullptr);
}
