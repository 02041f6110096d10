// device: refuses every allocation of a device session in turn, on the device and on the host. The message says what
// was refused and how much, nothing stays allocated, and a later session works.
#include <cstdio>
#include <string>
#include <vector>

#include "api/handles.h"
#include "tests/device/device_module_test.h"

namespace {

using namespace weir::test;

const variant kVariants[] = {{"dense", {}, 0}, {"raas", {}, 0}, {"quest", {}, 0}, {"h2o", {{"skip_layers", "0"}}, 1}};

weir_status create(const fixture& f, const variant& v, weir_session** session, uint32_t context = 1024) {
  const weir_session_options options = options_of(&v, test_device(), 256, context);
  return weir_session_create(f.model, &options, session);
}

// Forty greedy tokens.
std::vector<weir_token> answer(const fixture& f, weir_session* session) {
  std::vector<weir_token> tokens(40);
  prefill_text(f.model, session, RULE_PROMPT);
  for (weir_token& token : tokens) {
    assert_ok(weir_session_sample(session, &token));
    assert_ok(weir_session_step(session, token));
  }
  return tokens;
}

std::vector<weir_token> plain_answer(const variant& v) {
  fixture f;
  weir_session* session = nullptr;
  open_gpu_fixture(&f);
  assert_ok(create(f, v, &session));
  std::vector<weir_token> tokens = answer(f, session);
  weir_session_destroy(session);
  close_gpu_fixture(&f);
  return tokens;
}

void faults__device_hooks_are_used(void**) {
  NEED_GPU();
  NEED_DEVICE_HOOKS();
  for (const variant& v : kVariants) {
    fixture f;
    DeviceHooks hooks;
    weir_session* session = nullptr;
    weir_memory_counters counters = WEIR_MEMORY_COUNTERS_INIT;
    open_with_hooks(f, nullptr, &hooks);
    assert_int_equal(hooks.n_allocs, 0);
    assert_ok(create(f, v, &session));
    assert_int_equal(hooks.n_live, 2);  // weights, session
    assert_ok(weir_runtime_memory(f.runtime, &counters));
    assert_int_equal(counters.device_bytes, hooks.bytes_live);
    assert_true(answer(f, session) == plain_answer(v));
    assert_int_equal(hooks.n_allocs, 2);
    weir_session_destroy(session);
    assert_int_equal(hooks.n_live, 1);
    close_gpu_fixture(&f);
    assert_int_equal(hooks.n_live, 0);
    assert_int_equal(hooks.bytes_live, 0);
  }
}

void faults__each_device_allocation_refused(void**) {
  NEED_GPU();
  NEED_DEVICE_HOOKS();
  static const char* const kPools[] = {"the model's weights", "the session's KV pages, tables and workspace"};
  for (const variant& v : kVariants) {
    for (uint64_t n = 1; n <= 2; ++n) {
      fixture f;
      DeviceHooks hooks;
      HostHooks host;
      weir_session* session = nullptr;
      weir_memory_counters before = WEIR_MEMORY_COUNTERS_INIT, after = WEIR_MEMORY_COUNTERS_INIT;
      hooks.fail_at = n;
      open_with_hooks(f, &host, &hooks);
      assert_ok(weir_runtime_memory(f.runtime, &before));
      assert_error(create(f, v, &session), WEIR_ERR_OUT_OF_MEMORY, kPools[n - 1]);
      assert_non_null(
          strstr(weir_last_error(), (std::to_string(hooks.refused_bytes) + " bytes of device memory").c_str()));
      assert_null(session);
      assert_ok(weir_runtime_memory(f.runtime, &after));
      assert_int_equal(hooks.n_live, n - 1);  // the weights belong to the model and stay
      assert_int_equal(after.device_bytes, hooks.bytes_live);
      if (n == 1) assert_int_equal(after.bytes, before.bytes);
      assert_ok(create(f, v, &session));
      assert_true(answer(f, session) == plain_answer(v));
      weir_session_destroy(session);
      close_gpu_fixture(&f);
      assert_int_equal(hooks.n_live, 0);
      assert_int_equal(hooks.bytes_live, 0);
      assert_int_equal(host.n_live, 0);
      assert_int_equal(host.bytes_live, 0);
    }
  }
}

void faults__each_host_allocation_refused(void**) {
  NEED_GPU();
  const std::vector<weir_token> want = plain_answer(kVariants[1]);
  uint64_t n_refused = 0;
  for (uint64_t n = 1;; ++n) {
    fixture f;
    DeviceHooks hooks;
    HostHooks host;
    weir_session* session = nullptr;
    open_with_hooks(f, &host, test_device() == WEIR_DEVICE_VULKAN ? nullptr : &hooks);
    const uint64_t live = host.n_live;
    host.fail_at = host.n_allocs + n;
    const weir_status status = create(f, kVariants[1], &session);
    const bool done = host.n_allocs < host.fail_at;
    if (!done) {
      ++n_refused;
      assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
      assert_non_null(strstr(weir_last_error(), "bytes"));
      assert_null(session);
      // The weights may be there; besides them and their table nothing is.
      assert_true(hooks.n_live <= 1 && host.n_live <= live + 1);
      assert_ok(create(f, kVariants[1], &session));
    } else {
      assert_ok(status);
    }
    host.fail_at = 0;
    assert_true(answer(f, session) == want);
    weir_session_destroy(session);
    close_gpu_fixture(&f);
    assert_int_equal(hooks.n_live, 0);
    assert_int_equal(hooks.bytes_live, 0);
    assert_int_equal(host.n_live, 0);
    assert_int_equal(host.bytes_live, 0);
    if (done) break;
  }
  std::printf("%llu allocations refused\n", static_cast<unsigned long long>(n_refused));
  assert_true(n_refused > 3);
}

// Asks for more than any device has.
void faults__more_than_the_device_has(void**) {
  NEED_GPU();
  fixture f;
  weir_session* session = nullptr;
  weir_memory_counters before = WEIR_MEMORY_COUNTERS_INIT, after = WEIR_MEMORY_COUNTERS_INIT;
  open_gpu_fixture(&f);
  assert_ok(create(f, kVariants[1], &session));
  assert_ok(weir_runtime_memory(f.runtime, &before));
  const weir_session_options huge = options_of(&kVariants[0], test_device(), 0, 1u << 28);
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  weir_session* none = nullptr;
  assert_ok(weir_plan(f.model, &huge, &plan));
  assert_true(plan.device_bytes > uint64_t{1} << 40);
  // Or more than its driver gives at once.
  const weir_status status = weir_session_create(f.model, &huge, &none);
  if (status == WEIR_ERR_UNSUPPORTED && test_device() == WEIR_DEVICE_VULKAN) {
    assert_non_null(strstr(weir_last_error(), "gives at most"));
  } else {
    assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_last_error(), "the session's KV pages, tables and workspace"));
  }
  assert_non_null(strstr(weir_last_error(), std::to_string(plan.device_bytes).c_str()));
  assert_null(none);
  assert_ok(weir_runtime_memory(f.runtime, &after));
  assert_int_equal(after.device_bytes, before.device_bytes);
  assert_int_equal(after.bytes, before.bytes);
  assert_true(answer(f, session) == plain_answer(kVariants[1]));
  weir_session_destroy(session);
  close_gpu_fixture(&f);
}

// Rules by which no page can leave, as a defective policy would have them: here every page of a full session is pinned
// without the policy's knowledge. h2o never takes the last page, so none is left to it. The step fails, nothing is
// written into another stream's table, and other sessions continue.
void faults__a_stream_without_room_is_an_error(void**) {
  NEED_GPU();
  const std::vector<weir_token> want = plain_answer(kVariants[3]);
  fixture f;
  weir_session *session = nullptr, *other = nullptr;
  open_gpu_fixture(&f);
  assert_ok(create(f, kVariants[3], &session));
  assert_ok(create(f, kVariants[3], &other));
  (void)answer(f, session);
  weir_session_stats stats = WEIR_SESSION_STATS_INIT;
  do {
    assert_ok(weir_session_step(session, 1));
    assert_ok(weir_session_get_stats(session, &stats));
  } while (stats.pages_evicted == 0 || stats.n_tokens % 16 != 8);
  assert_true(session->host_tables().ok());
  const_cast<weir::KvCache&>(session->kv()).set_flags(0, static_cast<uint32_t>(stats.n_tokens), weir::kPageKept, 0);
  assert_ok(
      weir_session_unpin(session, static_cast<uint32_t>(stats.n_tokens) - 1, static_cast<uint32_t>(stats.n_tokens)));
  weir_status status = WEIR_OK;
  for (int i = 0; i < 40 && status == WEIR_OK; ++i) status = weir_session_step(session, 1);
  assert_error(status, WEIR_ERR_INTERNAL, "no room");
  assert_error(weir_session_step(session, 1), WEIR_ERR_DEVICE_LOST, "destroy");
  assert_true(answer(f, other) == want);
  weir_session_destroy(session);
  weir_session_destroy(other);
  close_gpu_fixture(&f);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(faults__a_stream_without_room_is_an_error),

      cmocka_unit_test(faults__device_hooks_are_used),
      cmocka_unit_test(faults__each_device_allocation_refused),
      cmocka_unit_test(faults__each_host_allocation_refused),
      cmocka_unit_test(faults__more_than_the_device_has),
  };
  return cmocka_run_group_tests_name("device/faults", tests, nullptr, nullptr);
}
