// vulkan: which sessions run on the device, what is refused and why, and how the device is listed, through the public
// interface.
#include <cstring>
#include <string>
#include <vector>

#include "tests/device/device_test.h"

namespace {

// Creating a session with these options fails with this code and text.
void expect_refusal(const weir_runtime_options& runtime_options, const weir_session_options& options, weir_status code,
                    const char* text) {
  fixture f = {nullptr, nullptr};
  assert_ok(weir_runtime_create(&runtime_options, &f.runtime));
  assert_ok(weir_model_open(f.runtime, TINY_MODEL, nullptr, &f.model));
  weir_session* session = nullptr;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  assert_int_equal(weir_plan(f.model, &options, &plan), code);
  assert_int_equal(weir_session_create(f.model, &options, &session), code);
  assert_null(session);
  const char* const got = weir_last_error();
  if (std::strncmp(got, "device vulkan: ", 15) != 0 || std::strstr(got, text) == nullptr)
    fail_msg("no \"%s\" in: %s", text, got);
  close_gpu_fixture(&f);
}

const variant kDense = {"dense", {}, 0};

weir_session_options options_on(int32_t device, const variant& v = kDense) {
  const uint32_t budget = std::strcmp(v.policy, "dense") == 0 ? 0 : 256;
  return options_of(&v, device, budget, 1024);
}

// The device that sessions of the tests run on, as it is listed.
weir_device_info listed_device(const fixture& f) {
  weir_session_options options = options_on(WEIR_DEVICE_VULKAN);
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  assert_ok(weir_plan(f.model, &options, &plan));  // opens it
  uint32_t n = 0, n_usable = 0;
  assert_int_equal(weir_runtime_devices(f.runtime, nullptr, 0, &n), WEIR_ERR_BUFFER_TOO_SMALL);
  std::vector<weir_device_info> devices(n);
  devices[0].struct_size = sizeof(weir_device_info);
  assert_ok(weir_runtime_devices(f.runtime, devices.data(), n, &n));
  weir_device_info found = {};
  for (const weir_device_info& d : devices) {
    if (d.backend != WEIR_DEVICE_VULKAN) continue;
    if (d.is_usable == 0) assert_non_null(std::strstr(d.why_not, "this process uses"));
    n_usable += d.is_usable;
    if (d.is_usable != 0) found = d;
  }
  assert_int_equal(n_usable, 1);
  return found;
}

void sessions__attend_on_the_device(void**) {
  NEED_GPU();
  fixture f = {nullptr, nullptr};
  open_gpu_fixture(&f);
  weir_session_options options = options_on(WEIR_DEVICE_VULKAN);
  weir_plan_info on_device = WEIR_PLAN_INFO_INIT, on_host = WEIR_PLAN_INFO_INIT;
  assert_ok(weir_plan(f.model, &options, &on_device));
  assert_int_equal(on_device.device, WEIR_DEVICE_VULKAN);
  assert_true(on_device.device_bytes > on_device.kv_bytes);
  options.flags = WEIR_SESSION_HOST_ATTENTION;
  assert_ok(weir_plan(f.model, &options, &on_host));
  assert_int_equal(on_host.device, WEIR_DEVICE_VULKAN);
  assert_true(on_host.device_bytes < on_device.device_bytes);
  // These attend on the host by themselves.
  const variant alone[] = {{"lfps", {}, 0}, {"psa", {{"recall", "on"}}, 1}};
  for (const variant& v : alone) {
    options = options_on(WEIR_DEVICE_VULKAN, v);
    options.spill_budget_bytes = v.n_options != 0 ? 1 << 20 : 0;
    assert_ok(weir_plan(f.model, &options, &on_host));
    assert_int_equal(on_host.device, WEIR_DEVICE_VULKAN);
    assert_true(on_host.device_bytes < on_device.device_bytes);
  }
  close_gpu_fixture(&f);
}

void sessions__refuse_what_the_device_lacks(void**) {
  NEED_GPU();
  weir_session_options options = options_on(WEIR_DEVICE_VULKAN, {"sink", {}, 0});
  options.spill_budget_bytes = 1 << 20;
  expect_refusal(gpu_runtime_options(), options, WEIR_ERR_UNSUPPORTED, "can be stored on the processor only");
}

void sessions__devices_that_do_not_exist(void**) {
  NEED_GPU();
  weir_runtime_options options = gpu_runtime_options();
  options.vulkan_device = "no such device";
  expect_refusal(options, options_on(WEIR_DEVICE_VULKAN), WEIR_ERR_NOT_FOUND, "there are 0: ");
  options.vulkan_device = "1000";
  expect_refusal(options, options_on(WEIR_DEVICE_VULKAN), WEIR_ERR_NOT_FOUND, "there is no device 1000; there are 0: ");
  const std::string too_long(256, 'x');
  options.vulkan_device = too_long.c_str();
  weir_runtime* runtime = nullptr;
  assert_int_equal(weir_runtime_create(&options, &runtime), WEIR_ERR_INVALID_ARG);
  assert_non_null(std::strstr(weir_last_error(), "vulkan_device"));
}

weir_status no_memory(void*, const weir_alloc_info*, void**) { return WEIR_ERR_OUT_OF_MEMORY; }
weir_status no_free(void*, const weir_alloc_info*) { return WEIR_OK; }

void sessions__no_memory_from_hooks(void**) {
  NEED_GPU();
  weir_runtime_options options = gpu_runtime_options();
  options.device_alloc = no_memory;
  options.device_free = no_free;
  expect_refusal(options, options_on(WEIR_DEVICE_VULKAN), WEIR_ERR_UNSUPPORTED, "device_alloc");
}

void sessions__the_device_is_listed(void**) {
  NEED_GPU();
  fixture f = {nullptr, nullptr};
  open_gpu_fixture(&f);
  const weir_device_info d = listed_device(f);
  assert_true(d.name[0] != '\0');
  assert_true(d.driver[0] != '\0');
  assert_string_equal(d.why_not, "");
  assert_true(d.memory_bytes > 1 << 20);
  assert_true(d.kind >= WEIR_DEVICE_KIND_DISCRETE && d.kind <= WEIR_DEVICE_KIND_CPU);
  if (std::strstr(d.name, "llvmpipe") != nullptr) assert_int_equal(d.kind, WEIR_DEVICE_KIND_CPU);
  close_gpu_fixture(&f);
  // Its index names it.
  const std::string index = std::to_string(d.index);
  weir_runtime_options options = gpu_runtime_options();
  options.vulkan_device = index.c_str();
  assert_ok(weir_runtime_create(&options, &f.runtime));
  assert_ok(weir_model_open(f.runtime, TINY_MODEL, nullptr, &f.model));
  assert_string_equal(listed_device(f).name, d.name);
  close_gpu_fixture(&f);
}

// CUDA comes first, and a driver that computes on the processor is never taken.
void sessions__auto_takes_gpus(void**) {
  NEED_GPU();
  fixture f = {nullptr, nullptr};
  open_gpu_fixture(&f);
  const bool is_gpu = listed_device(f).kind != WEIR_DEVICE_KIND_CPU;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  weir_session_options options = options_on(WEIR_DEVICE_CUDA);
  const bool has_cuda = weir_plan(f.model, &options, &plan) == WEIR_OK;
  for (const uint32_t flags : {0u, uint32_t{WEIR_SESSION_HOST_ATTENTION}}) {
    options = options_on(WEIR_DEVICE_AUTO);
    options.flags = flags;
    assert_ok(weir_plan(f.model, &options, &plan));
    assert_int_equal(plan.device, has_cuda ? WEIR_DEVICE_CUDA : is_gpu ? WEIR_DEVICE_VULKAN : WEIR_DEVICE_CPU);
  }
  // No device runs this; AUTO takes the CPU.
  options = options_on(WEIR_DEVICE_AUTO, {"sink", {}, 0});
  options.spill_budget_bytes = 1 << 20;
  assert_ok(weir_plan(f.model, &options, &plan));
  assert_int_equal(plan.device, WEIR_DEVICE_CPU);
  close_gpu_fixture(&f);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sessions__attend_on_the_device),      cmocka_unit_test(sessions__refuse_what_the_device_lacks),
      cmocka_unit_test(sessions__devices_that_do_not_exist), cmocka_unit_test(sessions__no_memory_from_hooks),
      cmocka_unit_test(sessions__the_device_is_listed),      cmocka_unit_test(sessions__auto_takes_gpus),
  };
  return cmocka_run_group_tests_name("vulkan_sessions", tests, nullptr, nullptr);
}
