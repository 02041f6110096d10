// runtime: the number by which the library and a device module know that they were built from the same lists. Mirrors
// lib/runtime/device_module.h; that a module with another number is refused is in tests/device/test_absence.c.
#include "runtime/device_module.h"

#include <cstring>
#include <set>
#include <string>

#include "tests/cmocka_cpp.h"

using namespace weir;

namespace {

void device_interface__lists_every_weight_type_and_op(void**) {
  const std::string lists = kDeviceLists;
  for (size_t i = 0; i < kWeightTypeCount; ++i) {
    const WeightTypeInfo& info = weight_type_info(static_cast<WeightType>(i));
    const std::string line = std::string(info.name) + " " + std::to_string(info.gguf_id) + "\n";
    if (lists.find(line) == std::string::npos) fail_msg("no line \"%s\"", info.name);
  }
  for (const char* op : {"embed\n", "matmul\n", "attn_paged\n", "page_stamp\n"})
    assert_true(lists.find(op) != std::string::npos);
}

void device_interface__differs_when_a_list_or_the_version_does(void**) {
  const std::string lists = kDeviceLists;
  std::set<uint32_t> numbers = {device_interface(5, lists), device_interface(4, lists), device_interface(6, lists)};
  // Another type at the end, at the beginning, one less, and two that changed places.
  numbers.insert(device_interface(5, lists + "q5_0 6\n"));
  numbers.insert(device_interface(5, "q5_0 6\n" + lists));
  const size_t end = lists.find('\n') + 1;
  numbers.insert(device_interface(5, lists.substr(end)));
  numbers.insert(device_interface(5, lists.substr(end) + lists.substr(0, end)));
  assert_int_equal(numbers.size(), 7);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(device_interface__lists_every_weight_type_and_op),
                              cmocka_unit_test(device_interface__differs_when_a_list_or_the_version_does)};
  return cmocka_run_group_tests_name("runtime/device_interface", tests, nullptr, nullptr);
}
