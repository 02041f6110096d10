// vulkan: which device is chosen, what it must have, and what the self-test sees; no driver is needed.
#include "vulkan/choice.h"

#include <vulkan/vulkan_core.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <vector>

#include "models/layer.h"
#include "shaders/shared.h"
#include "tests/cmocka_cpp.h"
#include "vulkan/self_test.h"

namespace weir::vulkan {
namespace {

DeviceTraits device(const char* name, DeviceKind kind, uint64_t memory_bytes) {
  DeviceTraits t;
  std::snprintf(t.name, sizeof(t.name), "%s", name);
  t.kind = kind;
  t.memory_bytes = memory_bytes;
  t.version = VK_API_VERSION_1_3;
  t.min_lanes = 8;
  t.shuffle = t.arithmetic = t.in_compute = t.addresses = t.full_subgroups = t.compute_queue = true;
  t.invocations = 256;
  t.shared_bytes = 32768;
  t.push_bytes = 128;
  return t;
}

std::vector<DeviceTraits> some_devices() {
  return {device("llvmpipe (LLVM 15.0.6, 256 bits)", DeviceKind::kCpu, 64), device("Iris", DeviceKind::kIntegrated, 32),
          device("Radeon 9", DeviceKind::kDiscrete, 8), device("Radeon 10", DeviceKind::kDiscrete, 16),
          device("virtual", DeviceKind::kVirtual, 128)};
}

void expect(const std::vector<DeviceTraits>& devices, const char* wanted, weir_status code, uint32_t index,
            const char* text = "") {
  uint32_t which = 99;
  const Status status = choose_device(devices.data(), static_cast<uint32_t>(devices.size()), wanted, which);
  assert_int_equal(status.code(), code);
  if (status.ok()) assert_int_equal(which, index);
  if (!status.ok() && std::strstr(last_error_text(), text) == nullptr)
    fail_msg("no \"%s\" in: %s", text, last_error_text());
}

void choice__by_name_and_index(void**) {
  const auto devices = some_devices();
  expect(devices, "LLVM", WEIR_OK, 0);
  expect(devices, "n 10", WEIR_OK, 3);
  expect(devices, "iris", WEIR_OK, 1);
  expect(devices, "4", WEIR_OK, 4);
  expect(devices, "5", WEIR_ERR_NOT_FOUND, 0, "0: llvmpipe (LLVM 15.0.6, 256 bits), 1: Iris, 2: Radeon 9");
  expect(devices, "4294967296", WEIR_ERR_NOT_FOUND, 0, "4: virtual");
  expect(devices, "nvidia", WEIR_ERR_NOT_FOUND, 0, "4: virtual");
  expect(devices, "radeon", WEIR_ERR_INVALID_ARG, 0, "3: Radeon 10");
  expect({}, nullptr, WEIR_ERR_UNSUPPORTED, 0, "there is no device");
  expect({}, "radeon", WEIR_ERR_UNSUPPORTED, 0, "there is no device");
}

void choice__the_best_that_can_be_used(void**) {
  auto devices = some_devices();
  for (const uint32_t want : {3u, 2u, 1u, 4u, 0u}) {
    expect(devices, nullptr, WEIR_OK, want);
    expect(devices, "", WEIR_OK, want);
    devices[want].addresses = false;
  }
  expect(devices, nullptr, WEIR_ERR_UNSUPPORTED, 0, "bufferDeviceAddress");
}

void choice__says_what_a_device_lacks(void**) {
  const DeviceTraits good = device("Card", DeviceKind::kDiscrete, 1);
  assert_true(check_traits(good).ok());
  const auto lacks = [&](const char* text, auto change) {
    DeviceTraits t = good;
    change(t);
    assert_int_equal(check_traits(t).code(), WEIR_ERR_UNSUPPORTED);
    assert_non_null(std::strstr(last_error_text(), "Card"));
    if (std::strstr(last_error_text(), text) == nullptr) fail_msg("no \"%s\" in: %s", text, last_error_text());
  };
  lacks("has Vulkan 1.2, 1.3 is needed", [](DeviceTraits& t) { t.version = VK_API_VERSION_1_2; });
  lacks("subgroups of 7 lanes, at least 8", [](DeviceTraits& t) { t.min_lanes = 7; });
  lacks("no subgroup shuffles", [](DeviceTraits& t) { t.shuffle = false; });
  lacks("no subgroup arithmetic", [](DeviceTraits& t) { t.arithmetic = false; });
  lacks("in compute shaders", [](DeviceTraits& t) { t.in_compute = false; });
  lacks("255 invocations, 256 are", [](DeviceTraits& t) { t.invocations = 255; });
  lacks("32767 bytes of shared memory", [](DeviceTraits& t) { t.shared_bytes = 32767; });
  lacks("127 bytes of push", [](DeviceTraits& t) { t.push_bytes = 127; });
  lacks("no bufferDeviceAddress", [](DeviceTraits& t) { t.addresses = false; });
  lacks("no computeFullSubgroups", [](DeviceTraits& t) { t.full_subgroups = false; });
  lacks("no queue", [](DeviceTraits& t) { t.compute_queue = false; });
}

// What a right driver with subgroups of n lanes writes.
std::vector<uint32_t> right_answers(uint32_t n) {
  std::vector<uint32_t> words(kSelfTestWords * kInvocations);
  const auto value = [](uint32_t i) { return 3 * i + 1; };
  for (uint32_t i = 0; i < kInvocations; ++i) {
    const uint32_t first = i / n * n;
    uint32_t sum = 0;
    for (uint32_t k = 0; k < n; ++k) sum += value(first + k);
    const uint32_t answers[kSelfTestWords] = {i % n,
                                              n,
                                              i / n,
                                              value(first + ((i % n) ^ 5)),
                                              sum,
                                              value(first + n - 1),
                                              std::bit_cast<uint32_t>(static_cast<float>(n * n) * 0.5f),
                                              value((i + 37) % kInvocations)};
    for (uint32_t k = 0; k < kSelfTestWords; ++k) words[k * kInvocations + i] = answers[k];
  }
  return words;
}

void self_test__knows_the_answers(void**) {
  for (const uint32_t n : {8u, 16u, 32u, 64u, 128u}) assert_true(check_self_test(right_answers(n).data(), "Card").ok());
  assert_int_equal(check_self_test(right_answers(4).data(), "Card").code(), WEIR_ERR_UNSUPPORTED);
  // Any word that is wrong, in the first lane or in the last one.
  for (uint32_t word = 0; word < kSelfTestWords; ++word) {
    for (const uint32_t i : {0u, kInvocations - 1}) {
      if (word == kSelfTestLanes && i != 0) continue;  // the first one says it for all
      std::vector<uint32_t> words = right_answers(32);
      words[word * kInvocations + i] ^= 1;
      assert_int_equal(check_self_test(words.data(), "Card").code(), WEIR_ERR_UNSUPPORTED);
      assert_non_null(std::strstr(last_error_text(), "Card failed the self-test"));
    }
  }
}

}  // namespace
}  // namespace weir::vulkan

int main() {
  using namespace weir::vulkan;
  const CMUnitTest tests[] = {
      cmocka_unit_test(choice__by_name_and_index), cmocka_unit_test(choice__the_best_that_can_be_used),
      cmocka_unit_test(choice__says_what_a_device_lacks), cmocka_unit_test(self_test__knows_the_answers)};
  return cmocka_run_group_tests_name("vulkan_choice", tests, nullptr, nullptr);
}
