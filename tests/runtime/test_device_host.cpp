// runtime: finding backend modules, and device memory through the application's hooks: what they refuse, throw or get
// wrong is a refusal, and nothing stays.
#include "runtime/device_host.h"

#include <cstring>

#include "tests/cmocka_cpp.h"

using namespace weir;

namespace {

struct Hooks {
  enum { kGood, kMisaligned, kNull, kRefuses, kThrows } mode = kGood;
  alignas(4096) unsigned char memory[8192];
  int n_allocs = 0, n_frees = 0;
  void* last = nullptr;
};

weir_status hook_alloc(void* user, const weir_alloc_info* info, void** out) {
  Hooks& h = *static_cast<Hooks*>(user);
  assert_int_equal(info->kind, WEIR_MEMORY_DEVICE);
  assert_int_equal(info->alignment, 256);
  assert_null(info->ptr);
  ++h.n_allocs;
  *out = h.memory + (h.mode == Hooks::kMisaligned ? 128 : 0);
  if (h.mode == Hooks::kNull) *out = nullptr;
  h.last = *out;
  if (h.mode == Hooks::kThrows) throw 7;
  return h.mode == Hooks::kRefuses ? WEIR_ERR_INTERNAL : WEIR_OK;
}

weir_status hook_free(void* user, const weir_alloc_info* info) {
  Hooks& h = *static_cast<Hooks*>(user);
  assert_ptr_equal(info->ptr, h.last);
  assert_int_equal(info->bytes, 1000);
  ++h.n_frees;
  throw 8;  // is dropped
}

void device_host__refuses_what_the_hooks_get_wrong(void**) {
  static Hooks hooks;
  const DeviceModule module = {};  // not used where there are hooks
  DeviceHost host;
  host.set_hooks({hook_alloc, hook_free, &hooks});
  void* memory = nullptr;
  assert_true(host.allocate(module, 1000, "a test", &memory).ok());
  assert_int_equal(host.bytes(), 1000);
  host.release(module, memory, 1000);
  assert_int_equal(host.bytes(), 0);
  const struct {
    decltype(hooks.mode) mode;
    const char* message;
    int n_frees;
  } cases[] = {
      {Hooks::kMisaligned, "for a test could not be allocated: the hook gave memory that is not aligned as asked", 1},
      {Hooks::kNull, "1000 bytes of device memory for a test could not be allocated", 0},
      {Hooks::kRefuses, "1000 bytes of device memory for a test could not be allocated", 0},
      {Hooks::kThrows, "for a test could not be allocated: the callback threw", 0},
  };
  for (const auto& c : cases) {
    hooks.mode = c.mode;
    hooks.n_frees = 0;
    memory = &hooks;
    assert_int_equal(host.allocate(module, 1000, "a test", &memory).code(), WEIR_ERR_OUT_OF_MEMORY);
    assert_null(memory);
    assert_non_null(std::strstr(last_error_text(), c.message));
    assert_int_equal(hooks.n_frees, c.n_frees);
    assert_int_equal(host.bytes(), 0);
    assert_int_equal(host.n_allocs(), 1);
    assert_int_equal(host.n_frees(), 1);
  }
}

// The module that stands for CUDA's computes on the processor (host_module.cpp).
void device_host__finds_modules_by_their_devices(void**) {
  DeviceHost host;
  assert_true(host.set_folder(WEIR_HOST_MODULE).ok());
  const DeviceModule *module = nullptr, *again = nullptr;
  assert_true(host.find(WEIR_DEVICE_CUDA, 0, module).ok());
  assert_true(host.find(WEIR_DEVICE_CUDA, 0, again).ok());
  assert_ptr_equal(module, again);
  DeviceInfo info;
  assert_true(module->info(info).ok());
  assert_true(info.kind == DeviceKind::kCpu);
  assert_string_equal(info.arch, "any");
  assert_string_equal(info.driver, "none");
  assert_int_equal(info.index, 0);
  again = nullptr;
  assert_int_equal(host.find(WEIR_DEVICE_CUDA, 1, again).code(), WEIR_ERR_UNSUPPORTED);
  assert_string_equal(last_error_text(), "there is no processor 1");
  assert_int_equal(host.find(WEIR_DEVICE_VULKAN, 0, again).code(), WEIR_ERR_UNSUPPORTED);
  assert_non_null(std::strstr(last_error_text(), "no backend module: "));
  assert_non_null(std::strstr(last_error_text(), "libweir_vulkan.so"));
  for (const int32_t device : {WEIR_DEVICE_AUTO, WEIR_DEVICE_CPU}) {
    assert_int_equal(host.find(device, 0, again).code(), WEIR_ERR_UNSUPPORTED);
    assert_string_equal(last_error_text(), "this build has no such backend");
  }
  assert_null(again);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(device_host__finds_modules_by_their_devices),
      cmocka_unit_test(device_host__refuses_what_the_hooks_get_wrong),
  };
  return cmocka_run_group_tests_name("runtime_device_host", tests, nullptr, nullptr);
}
