// device: a device that fails. The test overwrites page tables in device memory, so that the next step reads unmapped
// memory and the process loses its CUDA context for good. Every call must then report it, everything can be destroyed,
// and the process lives. A program with one test, because nothing works on the device afterwards. Without hooks it does
// not know where the tables are: vulkan/test_lost_device loses Vulkan's device at every submission.
#include <cstdio>

#include "tests/device/device_module_test.h"

namespace {

using namespace weir::test;

const variant kDense = {"dense", {}, 0};

void device_lost__every_call_says_so(void**) {
  NEED_GPU();
  NEED_DEVICE_HOOKS();
  fixture f;
  DeviceHooks hooks;
  weir_session *session = nullptr, *other = nullptr;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  weir_session_stats stats = WEIR_SESSION_STATS_INIT;
  weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
  weir_token token = 3, tokens[40] = {0};
  const float* logits = nullptr;
  const weir_session_options options = options_of(&kDense, test_device(), 0, 1024);
  open_with_hooks(f, nullptr, &hooks);
  assert_ok(weir_plan(f.model, &options, &plan));
  assert_ok(weir_session_create(f.model, &options, &other));
  assert_ok(weir_session_create(f.model, &options, &session));
  prefill_text(f.model, session, RULE_PROMPT);
  prefill_text(f.model, other, RULE_PROMPT);
  assert_ok(weir_session_step(session, 100));

  // The tables begin with the slots of all pages, and they follow pages and digests in the allocation.
  auto* slots = static_cast<unsigned char*>(hooks.last) + plan.kv_bytes + plan.digest_bytes;
  const uint64_t slot_bytes = plan.kv_bytes / plan.page_bytes * sizeof(uint32_t);
  assert_true(device_module().fill(slots, 0x3F, slot_bytes).ok());
  assert_int_equal(weir_session_step(session, 101), WEIR_ERR_DEVICE_LOST);
  std::printf("the step: %s\n", weir_last_error());
  assert_non_null(strstr(weir_last_error(), "CUDA"));

  for (int round = 0; round < 2; ++round) {
    assert_error(weir_session_step(session, 102), WEIR_ERR_DEVICE_LOST, "");
    std::printf("the next step: %s\n", weir_last_error());
    assert_true(weir_last_error()[0] != '\0');
    assert_int_equal(weir_session_prefill(session, tokens, 40, nullptr, nullptr), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(weir_session_logits(session, &logits, nullptr), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(weir_session_generate(session, nullptr, nullptr), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(weir_session_pin(session, 0, 10), WEIR_ERR_DEVICE_LOST);
  }
  // Counters need no device.
  assert_ok(weir_session_get_stats(session, &stats));
  assert_ok(weir_session_memory(session, &memory));
  assert_int_equal(memory.bytes, plan.total_bytes);
  assert_ok(weir_session_reset(session));
  assert_int_equal(weir_session_prefill(session, tokens, 40, nullptr, nullptr), WEIR_ERR_DEVICE_LOST);
  weir_session_destroy(session);

  // The other session used the same device.
  const weir_status status = weir_session_step(other, 100);
  std::printf("another session: %s: %s\n", weir_status_name(status), weir_last_error());
  assert_int_equal(status, WEIR_ERR_DEVICE_LOST);
  assert_int_equal(weir_session_sample(other, &token) == WEIR_OK ||
                       weir_session_logits(other, &logits, nullptr) == WEIR_ERR_DEVICE_LOST,
                   1);
  weir_session_destroy(other);
  close_gpu_fixture(&f);
  assert_int_equal(hooks.n_live, 0);

  // The process continues on the CPU; the error names the device.
  const weir_runtime_options plain = gpu_runtime_options();
  assert_ok(weir_runtime_create(&plain, &f.runtime));
  assert_ok(weir_model_open(f.runtime, TINY_MODEL, nullptr, &f.model));
  const weir_status again = weir_session_create(f.model, &options, &session);
  std::printf("a new runtime: %s: %s\n", weir_status_name(again), again == WEIR_OK ? "it works" : weir_last_error());
  if (again != WEIR_OK) assert_int_equal(again, WEIR_ERR_DEVICE_LOST);
  weir_session_destroy(session);
  const weir_session_options on_cpu = options_of(&kDense, WEIR_DEVICE_CPU, 0, 1024);
  assert_ok(weir_session_create(f.model, &on_cpu, &session));
  prefill_text(f.model, session, RULE_PROMPT);
  assert_ok(weir_session_sample(session, &token));
  weir_session_destroy(session);
  close_gpu_fixture(&f);
  std::fflush(stdout);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(device_lost__every_call_says_so)};
  return cmocka_run_group_tests_name("device/device_lost", tests, nullptr, nullptr);
}
