// vulkan: what sessions are refused and why, through the public interface.
#include <cstring>
#include <string>

#include "tests/device/device_test.h"

namespace {

// Creating a session with these options fails with this code and text.
void expect_refusal(const weir_runtime_options& runtime_options, uint32_t flags, weir_status code, const char* text) {
  fixture f = {nullptr, nullptr};
  assert_ok(weir_runtime_create(&runtime_options, &f.runtime));
  assert_ok(weir_model_open(f.runtime, TINY_MODEL, nullptr, &f.model));
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = WEIR_DEVICE_VULKAN;
  options.flags = flags;
  weir_session* session = nullptr;
  assert_int_equal(weir_session_create(f.model, &options, &session), code);
  assert_null(session);
  const char* const got = weir_last_error();
  if (std::strncmp(got, "device vulkan: ", 15) != 0 || std::strstr(got, text) == nullptr)
    fail_msg("no \"%s\" in: %s", text, got);
  close_gpu_fixture(&f);
}

void sessions__need_attention_on_the_host(void**) {
  NEED_GPU();
  expect_refusal(gpu_runtime_options(), 0, WEIR_ERR_UNSUPPORTED, "WEIR_SESSION_HOST_ATTENTION");
}

void sessions__devices_that_do_not_exist(void**) {
  NEED_GPU();
  weir_runtime_options options = gpu_runtime_options();
  options.vulkan_device = "no such device";
  expect_refusal(options, WEIR_SESSION_HOST_ATTENTION, WEIR_ERR_NOT_FOUND, "there are 0: ");
  options.vulkan_device = "1000";
  expect_refusal(options, WEIR_SESSION_HOST_ATTENTION, WEIR_ERR_NOT_FOUND, "there is no device 1000; there are 0: ");
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
  expect_refusal(options, WEIR_SESSION_HOST_ATTENTION, WEIR_ERR_UNSUPPORTED, "device_alloc");
}

void sessions__auto_does_not_take_it(void**) {
  NEED_GPU();
  fixture f = {nullptr, nullptr};
  open_gpu_fixture(&f);
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.flags = WEIR_SESSION_HOST_ATTENTION;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  assert_ok(weir_plan(f.model, &options, &plan));
  assert_int_not_equal(plan.device, WEIR_DEVICE_VULKAN);
  options.device = WEIR_DEVICE_VULKAN;
  assert_ok(weir_plan(f.model, &options, &plan));
  assert_int_equal(plan.device, WEIR_DEVICE_VULKAN);
  close_gpu_fixture(&f);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sessions__need_attention_on_the_host),
      cmocka_unit_test(sessions__devices_that_do_not_exist),
      cmocka_unit_test(sessions__no_memory_from_hooks),
      cmocka_unit_test(sessions__auto_does_not_take_it),
  };
  return cmocka_run_group_tests_name("vulkan_sessions", tests, nullptr, nullptr);
}
