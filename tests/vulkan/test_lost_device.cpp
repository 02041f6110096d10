// vulkan: a device that is lost, at each submission and each wait in turn. The call that needed it fails at once, and
// from then on every call of every session; all of them can be destroyed, nothing of Vulkan is left over, and the
// processor still works.
#include <algorithm>

#include "tests/variants.h"
#include "tests/vulkan/shim/shim_test.h"

namespace {

using namespace weir::test;

struct Fault {
  Call call;
  VkResult result;
  uint32_t every;  // of so many calls one is tried, and where only some variants are, at least of five
};

constexpr Fault kFaults[] = {
    {Call::vkQueueSubmit, VK_ERROR_DEVICE_LOST, 1},
    {Call::vkQueueSubmit, VK_ERROR_OUT_OF_DEVICE_MEMORY, 19},
    {Call::vkEndCommandBuffer, VK_ERROR_OUT_OF_HOST_MEMORY, 9},
    {Call::vkWaitForFences, VK_ERROR_DEVICE_LOST, 7},
    // The work is still running.
    {Call::vkWaitForFences, VK_ERROR_OUT_OF_HOST_MEMORY, 11},
};

using Bytes = std::vector<char>;

weir_status write_bytes(void* user, const weir_write_info* info) {
  const char* data = static_cast<const char*>(info->data);
  static_cast<Bytes*>(user)->insert(static_cast<Bytes*>(user)->end(), data, data + info->n_bytes);
  return WEIR_OK;
}

weir_status read_bytes(void* user, const weir_read_info* info, uint64_t* n_read) {
  const auto& bytes = *static_cast<const Bytes*>(user);
  *n_read = std::min<uint64_t>(info->n_bytes, bytes.size() - info->offset);
  std::memcpy(info->data, bytes.data() + info->offset, *n_read);
  return WEIR_OK;
}

// What an application does with a session; each line is a call that may need the device.
weir_status use_all(const Opened& o, weir_session* other, weir_session** session, weir_session** copy) {
  const float* logits = nullptr;
  uint32_t n = 0;
  weir_token token = 0;
  Bytes bytes;
#define STEP(call)                                  \
  do {                                              \
    const weir_status step_status = (call);         \
    if (step_status != WEIR_OK) return step_status; \
  } while (0)
  STEP(o.create(session));
  STEP(weir_session_prefill(*session, kPrompt, std::size(kPrompt), nullptr, nullptr));
  STEP(weir_session_step(*session, 9));
  STEP(weir_session_step(*session, 10));
  STEP(weir_session_logits(*session, &logits, &n));
  STEP(weir_session_sample(*session, &token));
  STEP(weir_session_save(*session, write_bytes, &bytes));
  STEP(weir_session_restore(*session, read_bytes, &bytes));
  STEP(weir_session_fork(*session, copy));
  STEP(weir_session_prefill(other, kPrompt, std::size(kPrompt), nullptr, nullptr));
  weir_session* const both[] = {*session, other};
  const weir_token tokens[] = {11, 12};
  STEP(weir_step_many(both, tokens, 2));
#undef STEP
  return WEIR_OK;
}

void expect_lost(weir_status status, const char* call) {
  if (status != WEIR_ERR_DEVICE_LOST)
    fail_msg("%s: got %s: %s", call, weir_status_name(status), status == WEIR_OK ? "" : weir_last_error());
  if (weir_last_error()[0] == '\0') fail_msg("%s: no message", call);
}
#define EXPECT_LOST(call) expect_lost(call, #call)

void expect_all_lost(weir_session* session) {
  const float* logits = nullptr;
  for (int round = 0; round < 2; ++round) {
    EXPECT_LOST(weir_session_step(session, 3));
    EXPECT_LOST(weir_session_prefill(session, kPrompt, std::size(kPrompt), nullptr, nullptr));
    // They may have been fetched before, or the prompt whose logits they would be failed.
    const weir_status status = weir_session_logits(session, &logits, nullptr);
    if (status != WEIR_OK && status != WEIR_ERR_STATE) expect_lost(status, "weir_session_logits");
    // An empty conversation needs no device.
    Bytes bytes;
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    if (stats.n_tokens != 0) EXPECT_LOST(weir_session_save(session, write_bytes, &bytes));
  }
}

// n: a fault, and the number of the call that fails.
void losing(Shim& shim, uint32_t n) {
  const Fault& fault = kFaults[n % std::size(kFaults)];
  shim.devices[0].name = "Card";
  // A GPU is asked again and again by the host, the processor is not.
  if ((n / std::size(kFaults) + n) % 2 == 0) shim.devices[0].type = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  {
    const Opened o;
    weir_session *other = nullptr, *session = nullptr, *copy = nullptr;
    assert_ok(o.create(&other));
    assert_ok(weir_session_prefill(other, kPrompt, 7, nullptr, nullptr));
    assert_ok(weir_session_step(other, 8));
    const Taken before(shim);
    shim.fail_at(fault.call, n / std::size(kFaults) + 1, fault.result);
    const weir_status status = use_all(o, other, &session, &copy);
    shim.fail_at(fault.call, 0, VK_SUCCESS);
    if (shim.n_failed == 0) {
      assert_ok(status);
      no_more();
    }
    if (fault.call == Call::vkEndCommandBuffer && status == WEIR_ERR_OUT_OF_MEMORY) {
      // It was a session's step that could not be recorded, or that of two: nothing else is affected.
      weir_session_destroy(copy);
      weir_session_destroy(session);
      session = copy = nullptr;
      expect_same(Taken(shim), before);
      assert_ok(weir_session_reset(other));
      assert_ok(use_all(o, other, &session, &copy));
      return;
    }
    expect_lost(status, "the call");
    expect_text("VK_ERROR_");
    expect_all_lost(other);
    if (session != nullptr) expect_all_lost(session);
    if (copy != nullptr) expect_all_lost(copy);
    weir_session* late = nullptr;
    EXPECT_LOST(o.create(&late));
    assert_null(late);
    weir_session_destroy(copy);
    weir_session_destroy(session);
    expect_same(Taken(shim), before);
    weir_session_destroy(other);
    assert_ok(o.create(&late, WEIR_DEVICE_CPU));
    std::vector<float> logits;
    use(late, logits);
    weir_session_destroy(late);
  }
  // One buffer remains, for copies.
  assert_int_equal(shim.n_buffers, 1);
  assert_int_equal(shim.n_memories, 1);
  assert_int_equal(shim.n_command_buffers, 1);
  assert_int_equal(shim.n_released_busy, 0);
  const Opened again;
  weir_session* session = nullptr;
  EXPECT_LOST(again.create(&session));
}

// While the weights go to the device, before any session is there.
void losing_weights(Shim& shim, uint32_t n) {
  const Fault& fault = kFaults[n % std::size(kFaults)];
  {
    const Opened first, second;
    weir_session* session = nullptr;
    assert_ok(first.create(&session));
    const Taken before(shim);
    shim.fail_at(fault.call, n / std::size(kFaults) + 1, fault.result);
    EXPECT_LOST(second.create(&session));
    expect_same(Taken(shim), before);
    EXPECT_LOST(second.create(&session));
    assert_null(session);
  }
  assert_int_equal(shim.n_released_busy, 0);
}

void lost_device__at_every_call(void**) {
  NEED_SHIM();
  uint32_t n_calls = 0;
  for (uint32_t fault = 0; fault < std::size(kFaults); ++fault) {
    uint32_t call = 0;
    const uint32_t every = std::max(kFaults[fault].every, every_variant() ? 1u : 5u);
    while (IN_CHILD(losing, call * std::size(kFaults) + fault) != kNoMore) call += every;
    assert_true(call > 20);
    n_calls = std::max(n_calls, call);
  }
  print_message("%u calls\n", n_calls);
}

void lost_device__while_weights_are_uploaded(void**) {
  NEED_SHIM();
  for (const uint32_t submission : {0u, 5u})
    for (uint32_t i = 0; i < std::size(kFaults); ++i) IN_CHILD(losing_weights, submission * std::size(kFaults) + i);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(lost_device__at_every_call),
      cmocka_unit_test(lost_device__while_weights_are_uploaded),
  };
  return cmocka_run_group_tests_name("vulkan_lost_device", tests, nullptr, nullptr);
}
