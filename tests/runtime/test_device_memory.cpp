// runtime: the memory of sessions on a device, without a device (host_module.cpp): the application's hooks see all of
// it, in the sizes of the plan, and whatever is refused, nothing stays.
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/api/api_test.h"

namespace {

constexpr char kModel[] = WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf";
constexpr uint64_t kStaging = 4096;  // alignment of staging memory, and of no other

struct Hooks {
  struct Block {
    void* ptr;
    uint64_t bytes, alignment;
  };
  std::vector<Block> live;
  uint64_t n_allocs = 0, fail_at = 0;  // the number, from 1, of the allocation that is refused

  static weir_status alloc(void* user, const weir_alloc_info* info, void** out) {
    auto& h = *static_cast<Hooks*>(user);
    if (++h.n_allocs == h.fail_at) return WEIR_ERR_OUT_OF_MEMORY;
    const uint64_t alignment = info->alignment < sizeof(void*) ? sizeof(void*) : info->alignment;
    if (posix_memalign(out, alignment, info->bytes) != 0) return WEIR_ERR_OUT_OF_MEMORY;
    std::memset(*out, 0xCD, info->bytes);
    h.live.push_back({*out, info->bytes, info->alignment});
    return WEIR_OK;
  }
  static weir_status free(void* user, const weir_alloc_info* info) {
    auto& h = *static_cast<Hooks*>(user);
    const size_t n = std::erase_if(h.live, [&](const Block& b) {
      return b.ptr == info->ptr && b.bytes == info->bytes && b.alignment == info->alignment;
    });
    std::free(info->ptr);
    return n == 1 ? WEIR_OK : WEIR_ERR_INTERNAL;
  }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const Block& b : live) sum += b.bytes;
    return sum;
  }
  uint64_t staging_bytes() const {
    uint64_t sum = 0;
    for (const Block& b : live) sum += b.alignment == kStaging ? b.bytes : 0;
    return sum;
  }
};

struct Models {
  explicit Models(Hooks& hooks) {
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    options.n_threads = 1;
    options.backend_dir = WEIR_HOST_MODULE;
    options.alloc = Hooks::alloc;
    options.free = Hooks::free;
    options.alloc_user = &hooks;
    assert_ok(weir_runtime_create(&options, &runtime));
    assert_ok(weir_model_open(runtime, kModel, nullptr, &model));
  }
  ~Models() {
    weir_model_close(model);
    weir_runtime_destroy(runtime);
  }
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
};

weir_session_options options_of(const char* policy, uint32_t budget) {
  weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
  o.device = WEIR_DEVICE_CUDA;
  o.context_tokens = 1024;
  o.policy = policy;
  o.budget_tokens = budget;
  return o;
}

// Staging memory is the hooks', of the size that the plan says; with recall the store's raw pages are, too.
void device_memory__hooks_see_staging(void**) {
  for (const auto& [policy, budget] : {std::pair{"dense", 0u}, {"quest", 128u}, {"arkvale", 128u}}) {
    Hooks hooks;
    {
      const Models m(hooks);
      const weir_session_options o = options_of(policy, budget);
      weir_plan_info plan = WEIR_PLAN_INFO_INIT;
      weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
      weir_session *first = nullptr, *session = nullptr;
      assert_ok(weir_plan(m.model, &o, &plan));
      assert_true(plan.staging_bytes > 0 && plan.staging_bytes % kStaging == 0);
      assert_ok(weir_session_create(m.model, &o, &first));  // and with it what sessions share
      const uint64_t before = hooks.bytes(), staging = hooks.staging_bytes();
      assert_ok(weir_session_create(m.model, &o, &session));
      const uint64_t more = hooks.staging_bytes() - staging;
      if (std::strcmp(policy, "arkvale") == 0) {
        assert_true(more > plan.staging_bytes);
      } else {
        assert_int_equal(more, plan.staging_bytes);
      }
      assert_ok(weir_session_memory(session, &memory));
      assert_int_equal(memory.bytes, plan.total_bytes);
      assert_int_equal(memory.peak_bytes, plan.total_bytes);
      assert_int_equal(hooks.bytes() - before, plan.total_bytes - plan.device_bytes);
      weir_session_destroy(session);
      assert_int_equal(hooks.staging_bytes(), staging);
      assert_int_equal(hooks.bytes(), before);
      weir_session_destroy(first);
      assert_int_equal(hooks.staging_bytes(), 0);
    }
    assert_int_equal(hooks.live.size(), 0);
  }
}

void device_memory__each_refusal_leaves_nothing(void**) {
  Hooks hooks;
  {
    const Models m(hooks);
    const weir_session_options o = options_of("arkvale", 128);
    weir_session *first = nullptr, *session = nullptr;
    assert_ok(weir_session_create(m.model, &o, &first));
    const uint64_t before = hooks.bytes();
    uint64_t n_refused = 0;
    for (uint64_t n = 1; session == nullptr; ++n) {
      hooks.fail_at = hooks.n_allocs + n;
      const weir_status status = weir_session_create(m.model, &o, &session);
      if (status == WEIR_OK) break;
      ++n_refused;
      assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
      assert_null(session);
      assert_int_equal(hooks.bytes(), before);
    }
    assert_true(n_refused >= 4);  // the object, staging, what the device does not see, the store
    weir_session_destroy(session);
    weir_session_destroy(first);
  }
  assert_int_equal(hooks.live.size(), 0);
}

// The module cannot map as much (kMaxStaging).
void device_memory__the_module_refuses(void**) {
  Hooks hooks;
  {
    const Models m(hooks);
    weir_session_options o = options_of("arkvale", 128);
    weir_session *first = nullptr, *session = nullptr;
    assert_ok(weir_session_create(m.model, &o, &first));
    const uint64_t before = hooks.bytes();
    o.context_tokens = 1 << 20;
    o.spill_budget_bytes = 1 << 20;
    assert_error(weir_session_create(m.model, &o, &session), WEIR_ERR_OUT_OF_MEMORY,
                 "bytes of staging memory could not be mapped: more than 8388608 bytes");
    assert_null(session);
    assert_int_equal(hooks.bytes(), before);
    o.context_tokens = 1 << 15;
    o.spill_budget_bytes = 64 << 20;
    o.spill_raw_bytes = 16 << 20;
    assert_error(weir_session_create(m.model, &o, &session), WEIR_ERR_OUT_OF_MEMORY,
                 "the spill store's latest pages could not be mapped: more than 8388608 bytes");
    assert_null(session);
    assert_int_equal(hooks.bytes(), before);
    weir_session_destroy(first);
  }
  assert_int_equal(hooks.live.size(), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(device_memory__hooks_see_staging),
      cmocka_unit_test(device_memory__each_refusal_leaves_nothing),
      cmocka_unit_test(device_memory__the_module_refuses),
  };
  return cmocka_run_group_tests_name("runtime/device_memory", tests, nullptr, nullptr);
}
