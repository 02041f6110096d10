// models: the tables of rotations that files describe: LongRoPE's two sets of divisors, and layers that do not rotate.
#include "tests/cmocka_cpp.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/rope.h"

namespace weir {
namespace {

std::string golden(const char* name) { return std::string(WEIR_SOURCE_DIR "/tests/golden/models/") + name + ".gguf"; }

float divisor(const Model& model, const char* name, uint32_t i) {
  const GgufTensor* tensor = model.file().find_tensor(name);
  assert_non_null(tensor);
  float value = 0;
  std::memcpy(&value, tensor->data + i * sizeof(float), sizeof(value));
  return value;
}

// Rotation 0 has the short divisors, rotation 1 the long ones; a session takes those of its context.
void rope__long_and_short_contexts(void**) {
  Model model(std::pmr::new_delete_resource());
  assert_true(model.open(golden("phi3_long").c_str(), 0, nullptr, nullptr).ok());
  const RopeTable& rope = model.rope();
  assert_int_equal(rope.n_rotations(), 2);
  assert_int_equal(rope.first_rotation(1), 0);
  assert_int_equal(rope.first_rotation(32), 0);  // the original context
  assert_int_equal(rope.first_rotation(33), 1);
  const uint32_t half = rope.rope_dim() / 2;
  for (uint32_t i = 0; i < half; ++i) {
    const double plain = std::pow(10000.0, -2.0 * i / rope.rope_dim());
    assert_true(std::fabs(rope.angles()[i] * divisor(model, "rope_factors_short.weight", i) / plain - 1.0) < 1e-6);
    assert_true(std::fabs(rope.angles()[half + i] * divisor(model, "rope_factors_long.weight", i) / plain - 1.0) <
                1e-6);
  }
  for (uint32_t rotation : {0u, 1u}) assert_true(std::fabs(rope.magnitude(rotation) - 1.19) < 1e-6);
  Model other(std::pmr::new_delete_resource());
  assert_true(other.open(golden("phi3_f32").c_str(), 0, nullptr, nullptr).ok());
  assert_int_equal(other.rope().n_rotations(), 1);
  assert_int_equal(other.rope().first_rotation(UINT32_MAX), 0);
}

// Every fourth layer leaves queries and keys as they are.
void rope__layers_that_do_not_rotate(void**) {
  Model model(std::pmr::new_delete_resource());
  assert_true(model.open(golden("smollm3_q8_0").c_str(), 0, nullptr, nullptr).ok());
  for (uint32_t i = 0; i < model.config().n_layers; ++i)
    assert_int_equal(model.weights().layers[i].attention.rotation, i == 3 ? 1 : 0);
  std::vector<float> cos_sin(model.rope().rope_dim());
  model.rope().fill(1, 12345, cos_sin.data());
  for (uint32_t i = 0; i < cos_sin.size(); i += 2) {
    assert_true(cos_sin[i] == 1.0f);
    assert_true(cos_sin[i + 1] == 0.0f);
  }
}

}  // namespace
}  // namespace weir

int main() {
  using namespace weir;
  const CMUnitTest tests[] = {
      cmocka_unit_test(rope__long_and_short_contexts),
      cmocka_unit_test(rope__layers_that_do_not_rotate),
  };
  return cmocka_run_group_tests_name("models/rope", tests, nullptr, nullptr);
}
