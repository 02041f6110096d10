#include "vulkan/context.h"

#include <cstdio>

#include "models/layer.h"
#include "vulkan/self_test.h"

namespace weir::vulkan {

Context& context() {
  static Context the;
  return the;
}

Status Context::release(void* allocated) {
  const Status waited = recorder.wait(device), released = memory.release(device, allocated);
  return waited.ok() ? released : waited;
}

Status Context::release_staging(void* host) {
  const Status waited = recorder.wait(device), released = memory.release_staging(device, host);
  return waited.ok() ? released : waited;
}

Status Context::self_test() {
  uint32_t words[kSelfTestWords * kInvocations] = {};
  void* out = nullptr;
  WEIR_TRY(memory.allocate(device, sizeof(words), &out));
  Touches touches;
  const SelfTestPush push = {touches.writes(out, sizeof(words))};
  Status status = dispatch(Kernel::kSelfTest, WeightType::kF32, {1}, push, touches, {});
  if (status.ok()) status = copy_out(words, out, sizeof(words));
  if (status.ok()) status = recorder.wait(device);
  if (status.ok()) status = check_self_test(words, device.traits.name);
  if (status.ok() && device.has_dot) status = self_test_dot(out);
  if (status.ok() && device.matrices.are_there()) status = self_test_matrices();
  const Status released = release(out);
  return status.ok() ? released : status;
}

// Wrong ones are not used.
Status Context::self_test_dot(void* out) {
  uint32_t words[kInvocations] = {};
  Touches touches;
  const SelfTestDotPush push = {touches.writes(out, sizeof(words))};
  WEIR_TRY(dispatch(Kernel::kSelfTestDot, WeightType::kF32, {1}, push, touches, {}));
  WEIR_TRY(copy_out(words, out, sizeof(words)));
  WEIR_TRY(recorder.wait(device));
  device.has_dot = check_self_test_dot(words);
  return {};
}

// Wrong ones are not used.
Status Context::self_test_matrices() {
  static MatrixTest test;  // 30 KiB; one thread at a time
  fill_matrix_test(test);
  void* memory_of_test = nullptr;
  WEIR_TRY(memory.allocate(device, sizeof(test), &memory_of_test));
  auto* const at = static_cast<MatrixTest*>(memory_of_test);
  const uint32_t n_tok = kMatrixTestTokens, n_rows = kMatrixTestRows, n_cols = kMatrixTestCols;
  Touches touches;
  GemmPush push = {};
  push.y = touches.writes(at->y, sizeof(test.y));
  push.x = touches.reads(at->x, sizeof(test.x));
  push.w = touches.reads(at->w, sizeof(test.w));
  push.scales = touches.reads(at->scales, sizeof(test.scales));
  push.n_cols = n_cols;
  push.n_rows = push.stride = n_rows;
  push.n_tok = n_tok;
  const Variant variant = {.invocations = device.tiles[0].invocations};
  Status status = copy_in(memory_of_test, &test, sizeof(test));
  if (status.ok()) status = dispatch(Kernel::kGemmCoop, WeightType::kF32, variant, push, touches, {});
  if (status.ok()) status = copy_out(&test, memory_of_test, sizeof(test));
  if (status.ok()) status = recorder.wait(device);
  if (!check_matrix_test(test)) device.matrices = {};
  const Status released = release(memory_of_test);
  return status.ok() ? released : status;
}

Status Context::prepare() {
  WEIR_TRY(pipelines.open(device));
  cache.load(device, 0);  // under the lock: nobody has a session yet
  pipelines.use(cache.handle());
  WEIR_TRY(recorder.open(device));
  return self_test();
}

void Context::close() {
  if (device.device == nullptr) return;
  recorder.close(device);
  pipelines.close(device);
  cache.close(device);
  close_device(device);
}

bool Context::begin_use_cache(const char* folder, CacheFile& file) {
  cache.use(folder);
  return is_open && recorder.refuse_lost().ok() && cache.begin_load(device, pipelines.n_made(), file);
}

void Context::end_use_cache(const CacheFile& file, const Status& read) {
  cache.end_load(device, file, read);
  pipelines.use(cache.handle());
}

bool Context::begin_keep_cache(CacheFile& file) {
  return is_open && recorder.refuse_lost().ok() && cache.begin_keep(device, pipelines.n_made(), file);
}

Status Context::check(uint32_t which, const DeviceTraits& traits) {
  if (!is_open) return check_traits(traits);
  if (which == device.index) return recorder.refuse_lost();
  return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: device %u (%.100s); this process uses %u (%.100s) already", which,
              traits.name, device.index, device.traits.name);
}

Status Context::open(uint32_t which) {
  if (is_open) {
    if (which == device.index) return {};
    DeviceTraits devices[kMaxDevices];
    uint32_t n = 0;
    WEIR_TRY(list_devices(device, devices, n));
    return check(which, which < n ? devices[which] : DeviceTraits{.name = "there is none"});
  }
  WEIR_TRY(open_instance(kLoader, device));
  Status status = open_device(device, which);
  if (status.ok()) status = prepare();
  if (!status.ok()) {
    close();
    return status;
  }
  const uint32_t v = device.traits.version;
  std::snprintf(target, sizeof(target), "%.100s, Vulkan %u.%u, %.60s%s", device.traits.name, VK_API_VERSION_MAJOR(v),
                VK_API_VERSION_MINOR(v), device.traits.driver, device.matrices.are_there() ? kMatricesText : "");
  is_open = true;
  return {};
}

}  // namespace weir::vulkan
