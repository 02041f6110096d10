// vulkan: calls of Vulkan that fail, each of them in turn: for lack of memory, or pipelines that cannot be made.
// Nothing stays taken then, and later everything works.
#include "tests/vulkan/shim/shim_test.h"

namespace {

using namespace weir::test;

struct Case {
  Call call;
  VkResult result;
  weir_status status;
  const char* text;
};

constexpr Case kCases[] = {
    {Call::vkCreateDevice, VK_ERROR_OUT_OF_HOST_MEMORY, WEIR_ERR_OUT_OF_MEMORY, "opening the device"},
    {Call::vkCreateDevice, VK_ERROR_TOO_MANY_OBJECTS, WEIR_ERR_OUT_OF_MEMORY, "opening the device"},
    {Call::vkCreateBuffer, VK_ERROR_OUT_OF_DEVICE_MEMORY, WEIR_ERR_OUT_OF_MEMORY, " bytes"},
    {Call::vkAllocateMemory, VK_ERROR_OUT_OF_DEVICE_MEMORY, WEIR_ERR_OUT_OF_MEMORY, " bytes"},
    {Call::vkAllocateMemory, VK_ERROR_OUT_OF_HOST_MEMORY, WEIR_ERR_OUT_OF_MEMORY, " bytes"},
    {Call::vkBindBufferMemory, VK_ERROR_OUT_OF_DEVICE_MEMORY, WEIR_ERR_OUT_OF_MEMORY, " bytes"},
    {Call::vkMapMemory, VK_ERROR_MEMORY_MAP_FAILED, WEIR_ERR_INTERNAL, " bytes"},
    {Call::vkCreateShaderModule, VK_ERROR_OUT_OF_HOST_MEMORY, WEIR_ERR_OUT_OF_MEMORY, "Vulkan, "},
    {Call::vkCreateComputePipelines, VK_ERROR_OUT_OF_DEVICE_MEMORY, WEIR_ERR_OUT_OF_MEMORY, "Vulkan, "},
    {Call::vkCreateComputePipelines, VK_ERROR_UNKNOWN, WEIR_ERR_INTERNAL, "VK_ERROR_UNKNOWN"},
    {Call::vkCreatePipelineLayout, VK_ERROR_OUT_OF_DEVICE_MEMORY, WEIR_ERR_OUT_OF_MEMORY, "pipeline layout"},
    {Call::vkCreateCommandPool, VK_ERROR_OUT_OF_DEVICE_MEMORY, WEIR_ERR_OUT_OF_MEMORY, "command pool"},
    {Call::vkCreateFence, VK_ERROR_OUT_OF_DEVICE_MEMORY, WEIR_ERR_OUT_OF_MEMORY, "fence"},
    {Call::vkAllocateCommandBuffers, VK_ERROR_OUT_OF_DEVICE_MEMORY, WEIR_ERR_OUT_OF_MEMORY, "command buffer"},
    {Call::vkBeginCommandBuffer, VK_ERROR_OUT_OF_DEVICE_MEMORY, WEIR_ERR_OUT_OF_MEMORY, "command buffer"},
};

void expect_failure(weir_status got, const Case& c) {
  if (got != c.status)
    fail_msg("got %s: %s", weir_status_name(got), got == WEIR_OK ? "the fault was ignored" : weir_last_error());
  expect_text(c.text);
}

// Creates sessions with the n-th call from here failing, for n from 1 on, until nothing fails; that session is `out`.
// True: some failed.
bool create_with_faults(Shim& shim, const Opened& o, const Case& c, weir_session*& out) {
  const Taken before(shim);
  for (uint64_t n = 1;; ++n) {
    const uint64_t failed = shim.n_failed;
    shim.fail_at(c.call, n, c.result);
    const weir_status status = o.create(&out);
    shim.fail_at(c.call, 0, VK_SUCCESS);
    if (shim.n_failed == failed) {
      assert_ok(status);
      return n > 1;
    }
    assert_null(out);
    expect_failure(status, c);
    expect_same(Taken(shim), before);
    assert_int_equal(shim.n_released_busy, 0);
  }
}

// The same with the device closed before, and a model whose weights are not on the device. What remains is the device's
// own, once it is open.
bool open_with_faults(Shim& shim, const Case& c) {
  for (uint64_t n = 1;; ++n) {
    const uint64_t failed = shim.n_failed;
    {
      const Opened o;
      weir_session* session = nullptr;
      shim.fail_at(c.call, n, c.result);
      const weir_status status = o.create(&session);
      shim.fail_at(c.call, 0, VK_SUCCESS);
      if (shim.n_failed != failed) {
        assert_null(session);
        expect_failure(status, c);
      } else {
        assert_ok(status);
        weir_session_destroy(session);
      }
    }
    if (shim.n_open_devices == 0) {
      expect_closed(shim);
    } else {
      assert_int_equal(shim.n_buffers, 1);  // for copies
      assert_int_equal(shim.n_memories, 1);
      assert_int_equal(shim.n_command_buffers, 1);
      assert_int_equal(shim.n_shaders, 0);
      assert_int_equal(shim.n_released_busy, 0);
    }
    if (shim.n_failed == failed) return n > 1;
  }
}

void creating(Shim& shim, uint32_t number) {
  const Case& c = kCases[number];
  assert_true(open_with_faults(shim, c));
  {
    const Opened o;
    weir_session *session = nullptr, *second = nullptr;
    assert_ok(o.create(&session));
    // Every session takes memory and records a step.
    const bool was_hit = create_with_faults(shim, o, c, second);
    if (c.call == Call::vkAllocateMemory || c.call == Call::vkCreateBuffer || c.call == Call::vkAllocateCommandBuffers)
      assert_true(was_hit);
    std::vector<float> one, two;
    use(second, two);
    use(session, one);
    assert_memory_equal(one.data(), two.data(), one.size() * sizeof(float));
    weir_session_destroy(session);
    weir_session_destroy(second);
  }
  expect_works(nullptr);
  assert_int_equal(shim.n_buffers, 1);
  assert_int_equal(shim.n_memories, 1);
  assert_int_equal(shim.n_command_buffers, 1);
  assert_int_equal(shim.n_released_busy, 0);
}

// Prompts make pipelines that steps have not. A prompt that failed can be tried again.
void prompts(Shim& shim, uint32_t number) {
  const Case& c = kCases[number];
  const Opened o;
  weir_session* session = nullptr;
  assert_ok(o.create(&session));
  const Taken before(shim);
  const float* logits = nullptr;
  uint32_t n_failed = 0;
  for (uint64_t n = 1;; ++n) {
    const uint64_t failed = shim.n_failed;
    shim.fail_at(c.call, n, c.result);
    weir_status status = weir_session_prefill(session, kPrompt, std::size(kPrompt), nullptr, nullptr);
    if (status == WEIR_OK) status = weir_session_step(session, 9);
    if (status == WEIR_OK) status = weir_session_logits(session, &logits, nullptr);
    shim.fail_at(c.call, 0, VK_SUCCESS);
    if (shim.n_failed == failed) {
      assert_ok(status);
      break;
    }
    ++n_failed;
    expect_failure(status, c);
    expect_same(Taken(shim), before);
    assert_ok(weir_session_reset(session));
  }
  assert_true(n_failed > 0);
  assert_ok(weir_session_reset(session));
  std::vector<float> got, want;
  use(session, got);
  weir_session_destroy(session);
  assert_ok(o.create(&session, WEIR_DEVICE_CPU));
  use(session, want);
  weir_session_destroy(session);
  const double apart = logits_apart(got.data(), want.data(), static_cast<uint32_t>(got.size()));
  if (!(apart < 0.05)) fail_msg("the logits are %g apart", apart);
  assert_int_equal(shim.n_released_busy, 0);
}

// While the device is opened even work that fails leaves nothing behind, because no session has begun.
void opening(Shim& shim, uint32_t number) {
  constexpr struct {
    Call call;
    VkResult result;
  } kFaults[] = {
      {Call::vkEndCommandBuffer, VK_ERROR_OUT_OF_DEVICE_MEMORY},
      {Call::vkQueueSubmit, VK_ERROR_OUT_OF_HOST_MEMORY},
      {Call::vkQueueSubmit, VK_ERROR_DEVICE_LOST},
      {Call::vkWaitForFences, VK_ERROR_OUT_OF_HOST_MEMORY},
      {Call::vkWaitForFences, VK_ERROR_DEVICE_LOST},
  };
  if (number == std::size(kFaults)) no_more();
  shim.fail_at(kFaults[number].call, 1, kFaults[number].result);
  expect_refused(nullptr, WEIR_ERR_DEVICE_LOST, "VK_ERROR");
  assert_int_equal(shim.n_failed, 1);
  expect_closed(shim);
  shim.is_lost = false;  // a reset GPU can be opened again
  expect_works(nullptr);
}

void failing_calls__creating_sessions(void**) {
  NEED_SHIM();
  for (uint32_t i = 0; i < std::size(kCases); ++i) IN_CHILD(creating, i);
}

void failing_calls__prompts(void**) {
  NEED_SHIM();
  for (uint32_t i = 0; i < std::size(kCases); ++i) {
    const Call call = kCases[i].call;
    if (call == Call::vkCreateShaderModule || call == Call::vkCreateComputePipelines ||
        call == Call::vkBeginCommandBuffer) {
      IN_CHILD(prompts, i);
    }
  }
}

void failing_calls__opening_the_device(void**) {
  NEED_SHIM();
  for (uint32_t i = 0; IN_CHILD(opening, i) != kNoMore; ++i) {
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(failing_calls__creating_sessions),
      cmocka_unit_test(failing_calls__prompts),
      cmocka_unit_test(failing_calls__opening_the_device),
  };
  return cmocka_run_group_tests_name("vulkan_failing_calls", tests, nullptr, nullptr);
}
