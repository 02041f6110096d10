// device: a device that fails while sessions step together. All of them are lost, including those whose memory was
// intact. As in test_device_lost.cpp the test overwrites page tables in device memory. A program with one test, because
// nothing works on the device afterwards.
#include <cstdio>

#include "tests/device/device_module_test.h"

namespace {

using namespace weir::test;

const variant kVariants[] = {{"dense", {}, 0}, {"raas", {}, 0}, {"quest", {{"skip_layers", "0"}}, 1}};
constexpr uint32_t kCount = sizeof(kVariants) / sizeof(kVariants[0]);

void step_many_lost__all_sessions_are(void**) {
  NEED_GPU();
  NEED_DEVICE_HOOKS();
  fixture f;
  DeviceHooks hooks;
  weir_session* sessions[kCount] = {};
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  const weir_token tokens[kCount] = {100, 101, 102};
  const float* logits = nullptr;
  open_with_hooks(f, nullptr, &hooks);
  for (uint32_t i = 0; i < kCount; ++i) {
    const weir_session_options options = options_of(&kVariants[i], test_device(), i == 0 ? 0 : 256, 1024);
    assert_ok(weir_plan(f.model, &options, &plan));
    assert_ok(weir_session_create(f.model, &options, &sessions[i]));
    prefill_text(f.model, sessions[i], RULE_PROMPT);
  }
  assert_ok(weir_step_many(sessions, tokens, kCount));

  // The last session's tables begin with the slots of all pages, and they follow pages and digests in the
  // allocation.
  auto* slots = static_cast<unsigned char*>(hooks.last) + plan.kv_bytes + plan.digest_bytes;
  const uint64_t slot_bytes = plan.kv_bytes / plan.page_bytes * sizeof(uint32_t);
  assert_true(device_module().fill(slots, 0x3F, slot_bytes).ok());
  const weir_status status = weir_step_many(sessions, tokens, kCount);
  std::printf("the step: %s: %s\n", weir_status_name(status), weir_last_error());
  assert_int_equal(status, WEIR_ERR_DEVICE_LOST);
  assert_non_null(std::strstr(weir_last_error(), "sessions[0] to sessions[2]: CUDA, "));

  for (weir_session* session : sessions) {
    assert_error(weir_session_step(session, 100), WEIR_ERR_DEVICE_LOST, "failed earlier in this session");
    assert_int_equal(weir_session_logits(session, &logits, nullptr), WEIR_ERR_DEVICE_LOST);
  }
  // A set with one lost session does nothing.
  assert_error(weir_step_many(sessions, tokens, kCount), WEIR_ERR_DEVICE_LOST, "failed earlier in sessions[0]");
  assert_error(weir_step_many(sessions + 1, tokens, kCount - 1), WEIR_ERR_DEVICE_LOST, "failed earlier in sessions[0]");
  assert_error(weir_step_many(sessions + 1, tokens, 1), WEIR_ERR_DEVICE_LOST, "failed earlier in sessions[0]");
  for (weir_session* session : sessions) weir_session_destroy(session);
  close_gpu_fixture(&f);
  assert_int_equal(hooks.n_live, 0);
  std::fflush(stdout);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(step_many_lost__all_sessions_are)};
  return cmocka_run_group_tests_name("device/step_many_lost", tests, nullptr, nullptr);
}
