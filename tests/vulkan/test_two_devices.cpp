// vulkan: several devices, and one of them for a process: two copies of the manifest of Mesa's driver for the processor
// are two devices of one name.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/device/device_test.h"

namespace {

std::filesystem::path g_folder;

// The manifest of the driver; empty: not installed.
std::filesystem::path manifest() {
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator("/usr/share/vulkan/icd.d", error)) {
    if (file.path().filename().string().starts_with("lvp_icd.")) return file.path();
  }
  return {};
}

weir_status plan_on(const char* vulkan_device) {
  fixture f = {nullptr, nullptr};
  weir_runtime_options runtime_options = gpu_runtime_options();
  runtime_options.vulkan_device = vulkan_device;
  assert_ok(weir_runtime_create(&runtime_options, &f.runtime));
  assert_ok(weir_model_open(f.runtime, TINY_MODEL, nullptr, &f.model));
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = WEIR_DEVICE_VULKAN;
  options.context_tokens = 64;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  const weir_status planned = weir_plan(f.model, &options, &plan);
  weir_session* session = nullptr;
  assert_int_equal(weir_session_create(f.model, &options, &session), planned);
  assert_int_equal(session == nullptr, planned != WEIR_OK);
  weir_session_destroy(session);
  close_gpu_fixture(&f);
  return planned;
}

void expect_error(const char* vulkan_device, weir_status code, const std::vector<const char*>& parts) {
  assert_int_equal(plan_on(vulkan_device), code);
  for (const char* part : parts) {
    if (std::strstr(weir_last_error(), part) == nullptr) fail_msg("no \"%s\" in: %s", part, weir_last_error());
  }
}

std::vector<weir_device_info> vulkan_devices() {
  const weir_runtime_options options = gpu_runtime_options();
  weir_runtime* runtime = nullptr;
  assert_ok(weir_runtime_create(&options, &runtime));
  std::vector<weir_device_info> devices(40);
  devices[0].struct_size = sizeof(weir_device_info);
  uint32_t n = 0;
  assert_ok(weir_runtime_devices(runtime, devices.data(), static_cast<uint32_t>(devices.size()), &n));
  devices.resize(n);
  std::erase_if(devices, [](const weir_device_info& d) { return d.backend != WEIR_DEVICE_VULKAN; });
  weir_runtime_destroy(runtime);
  return devices;
}

// In this order: the second device cannot be opened after the first one.
void two_devices__are_told_apart_by_their_indices(void**) {
  if (g_folder.empty()) skip();
  const auto before = vulkan_devices();
  assert_int_equal(before.size(), 2);
  for (const weir_device_info& d : before) {
    assert_non_null(std::strstr(d.name, "llvmpipe"));
    assert_int_equal(d.is_usable, 1);
  }
  expect_error("llvmpipe", WEIR_ERR_INVALID_ARG,
               {"device vulkan: Vulkan: more than one device has \"llvmpipe\" in its name; there are 0: llvmpipe",
                ", 1: llvmpipe"});
  expect_error("2", WEIR_ERR_NOT_FOUND, {"there is no device 2; there are 0: llvmpipe", ", 1: llvmpipe"});
  expect_error("radeon", WEIR_ERR_NOT_FOUND, {"no device has \"radeon\"", "0: llvmpipe", ", 1: llvmpipe"});
  assert_int_equal(vulkan_devices()[0].is_usable, 1);  // none of this has opened one

  assert_int_equal(plan_on("1"), WEIR_OK);
  expect_error("0", WEIR_ERR_UNSUPPORTED, {"device 0 (llvmpipe", "this process uses 1 (llvmpipe"});
  assert_int_equal(plan_on("1"), WEIR_OK);
  assert_int_equal(plan_on(nullptr), WEIR_OK);  // the open one
  const auto after = vulkan_devices();
  assert_int_equal(after.size(), 2);
  assert_int_equal(after[0].is_usable, 0);
  assert_non_null(std::strstr(after[0].why_not, "this process uses 1 (llvmpipe"));
  assert_int_equal(after[1].is_usable, 1);
}

int make_drivers(void**) {
  const auto from = manifest();
  if (from.empty()) return 0;
  g_folder = std::filesystem::temp_directory_path() / ("weir-drivers-" + std::to_string(getpid()));
  std::filesystem::create_directories(g_folder);
  std::string list;
  for (const char* name : {"one.json", "two.json"}) {
    std::filesystem::copy_file(from, g_folder / name);
    list += (list.empty() ? "" : ":") + (g_folder / name).string();
  }
  return setenv("VK_DRIVER_FILES", list.c_str(), 1) + setenv("WEIR_TEST_DEVICE", "vulkan", 1);
}

int remove_drivers(void**) {
  if (!g_folder.empty()) std::filesystem::remove_all(g_folder);
  return 0;
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(two_devices__are_told_apart_by_their_indices)};
  return cmocka_run_group_tests_name("vulkan_two_devices", tests, make_drivers, remove_drivers);
}
