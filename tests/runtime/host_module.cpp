// A backend module whose device is the processor. With it tests see, without a device, what lib/device enqueues
// (host_session.h, host_queue.h), what the library itself does in sessions on a device (saving, restoring, rewinding,
// forking), and sessions whose attention alone is computed on the host. It is built as the module of CUDA and as that
// of Vulkan (WEIR_HOST_MODULE_DEVICE), and shows the devices that a test wants.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <span>
#include <vector>

#include "cpu/backend.h"
#include "device/module.h"
#include "device_interface.h"
#include "policy/policy.h"
#include "tests/runtime/host_session.h"

namespace weir {
namespace {

using host_module::count_call;

constexpr uint64_t kMaxStaging = 8 << 20;  // at once

Status computes_nothing() { return fail(WEIR_ERR_UNSUPPORTED, "this module computes nothing"); }

// What the driver shows, and which of them is open.
std::vector<ListedDevice> g_devices = {{"processor", "none", "", uint64_t{1} << 33, DeviceKind::kCpu}};
uint32_t g_open = 0;
bool g_refuses = false;  // every session

Status open(uint32_t which) {
  if (which >= g_devices.size()) return fail(WEIR_ERR_UNSUPPORTED, "there is no processor %u", which);
  g_open = which;
  return {};
}
Status info(DeviceInfo& info) {
  const ListedDevice& d = g_devices[g_open];
  info = {};
  info.total_bytes = info.free_bytes = info.max_bytes = d.total_bytes;
  info.max_staging_bytes = UINT64_MAX;
  info.index = g_open;
  info.kind = d.kind;
  std::strcpy(info.arch, "any");
  std::strcpy(info.driver, d.driver);
  return {};
}
Status list(ListedDevice* devices, uint32_t& n) {
  n = static_cast<uint32_t>(std::copy(g_devices.begin(), g_devices.end(), devices) - devices);
  return n != 0 ? Status() : fail(WEIR_ERR_UNSUPPORTED, "there is no processor");
}
// By its whole name; empty: the first one.
Status choose(const char* wanted, uint32_t& which) {
  const auto has_name = [&](const ListedDevice& d) { return wanted[0] == '\0' || std::strcmp(d.name, wanted) == 0; };
  const auto found = std::find_if(g_devices.begin(), g_devices.end(), has_name);
  if (found == g_devices.end()) return fail(WEIR_ERR_NOT_FOUND, "there is no processor %s", wanted);
  which = static_cast<uint32_t>(found - g_devices.begin());
  return {};
}
PolicyNeeds g_asked;  // of the latest session
Status check_session(const ModelConfig&, const PolicyNeeds& needs, const StepRules&) {
  g_asked = needs;
  return g_refuses ? fail(WEIR_ERR_UNSUPPORTED, "the host module refuses all, as it was told") : Status();
}
std::mutex g_mutex;
uint32_t g_calls_until_failure = 0;                // 0: never
std::vector<std::span<const std::byte>> g_memory;  // of the device
size_t g_staged = 0;                               // blocks of staging memory

}  // namespace

Status host_module::count_call(const char* what) {
  const std::lock_guard lock(g_mutex);
  if (g_calls_until_failure == 0 || --g_calls_until_failure != 0) return {};
  return fail(WEIR_ERR_DEVICE_LOST, "the host module fails in %s, as it was told", what);
}

namespace {

// Memory that is fresh holds anything.
Status allocate(uint64_t bytes, void** out) {
  WEIR_TRY(count_call("allocating"));
  const std::lock_guard lock(g_mutex);
  *out = std::aligned_alloc(256, align_up(bytes, 256));
  if (*out == nullptr) return Status(WEIR_ERR_OUT_OF_MEMORY);
  std::memset(*out, 0xFF, bytes);
  g_memory.emplace_back(static_cast<const std::byte*>(*out), bytes);
  return {};
}
Status release(void* device) {
  const std::lock_guard lock(g_mutex);
  std::erase_if(g_memory, [&](const auto& memory) { return memory.data() == device; });
  std::free(device);
  return {};
}
Status allocate_staging(std::pmr::memory_resource& memory, uint64_t bytes, void** out) {
  if (bytes > kMaxStaging) return fail(WEIR_ERR_OUT_OF_MEMORY, "more than %zu bytes", size_t{kMaxStaging});
  WEIR_TRY(count_call("allocating staging memory"));
  *out = memory.allocate(bytes, kStagingAlignment);
  const std::lock_guard lock(g_mutex);
  ++g_staged;
  return {};
}
Status release_staging(std::pmr::memory_resource& memory, void* staging, uint64_t bytes) {
  memory.deallocate(staging, bytes, kStagingAlignment);
  const std::lock_guard lock(g_mutex);
  --g_staged;
  return {};
}
Status copy_in(void* device, const void* host, uint64_t bytes) {
  std::memcpy(device, host, bytes);
  return {};
}
Status fill(void* device, uint8_t value, uint64_t bytes) {
  std::memset(device, value, bytes);
  return {};
}
// Copies take what is there when they are asked for. What goes to the host arrives when that waits, no earlier, and is
// spoilt when waiting fails. What comes from there must still be the same then.
struct Copy {
  void* to;
  const void* from;
  std::vector<std::byte> bytes;
  bool is_in;
};
std::vector<Copy> g_copies;

// Whether these bytes are the device's.
bool is_ours(const void* device, uint64_t bytes) {
  const auto* at = static_cast<const std::byte*>(device);
  return std::any_of(g_memory.begin(), g_memory.end(), [&](const auto& memory) {
    return at >= memory.data() && at + bytes <= memory.data() + memory.size();
  });
}

Status enqueue_copy(void* to, const void* from, uint64_t bytes, bool is_in) {
  WEIR_TRY(count_call("a copy"));
  const std::lock_guard lock(g_mutex);
  if (!is_ours(is_in ? to : from, bytes) || is_ours(is_in ? from : to, bytes))
    return fail(WEIR_ERR_INTERNAL, "a copy in the wrong direction");
  const auto* begin = static_cast<const std::byte*>(from);
  if (is_in) std::memcpy(to, from, bytes);
  g_copies.push_back({to, from, {begin, begin + bytes}, is_in});
  return {};
}
Status enqueue_copy_in(void* to, const void* host, uint64_t bytes) { return enqueue_copy(to, host, bytes, true); }
Status enqueue_copy_out(void* host, const void* from, uint64_t bytes) { return enqueue_copy(host, from, bytes, false); }

Status wait() {
  const Status status = count_call("waiting");
  const std::lock_guard lock(g_mutex);
  bool is_same = true;
  for (const Copy& copy : g_copies) {
    if (copy.is_in) {
      is_same = is_same && std::memcmp(copy.from, copy.bytes.data(), copy.bytes.size()) == 0;
    } else if (status.ok()) {
      std::memcpy(copy.to, copy.bytes.data(), copy.bytes.size());
    } else {
      std::memset(copy.to, 0xFF, copy.bytes.size());
    }
  }
  g_copies.clear();
  WEIR_TRY(status);
  return is_same ? Status() : fail(WEIR_ERR_INTERNAL, "host memory has changed while it was copied from");
}

void* stream() { return nullptr; }
Status copy_rate(void*, void*, uint64_t, double*) { return computes_nothing(); }
Status check_weight(const Weight&) { return {}; }
uint64_t session_device_bytes(const OpShapes&) { return host_module::kModuleBytes; }
Status prepare_many(DeviceSession* const* sessions, uint32_t n) {
  const auto group = host_module::HostSession::together(sessions, n);
  return static_cast<host_module::HostSession*>(sessions[0])->prepare_together(group);
}
Status step_many(DeviceSession* const* sessions, const int32_t* tokens, uint32_t n) {
  const auto group = host_module::HostSession::together(sessions, n);
  return static_cast<host_module::HostSession*>(sessions[0])->step_together(group, tokens);
}

// An op of the processor: at once, or in a session's queue. It may fail when it is told to.
template <auto kOp, class Args>
Status host_op(OpContext& cx, const Args& a) {
  const auto op = cpu_backend().ops.*kOp;
  if (cx.stream != nullptr) return static_cast<host_module::HostQueue*>(cx.stream)->keep("an op", a, op);
  WEIR_TRY(count_call("an op"));
  return op(cx, a);
}

const Backend& backend() {
  static const Backend backend = {"host",
                                  WEIR_HOST_MODULE_DEVICE,
                                  {
#define WEIR_OP(name, Args) host_op<&OpTable::name, Args>,
#include "ops/ops.inc"
#undef WEIR_OP
                                  },
                                  cpu_backend().scratch_bytes,
                                  [] { return "none"; },
                                  cpu_backend().traits,
                                  cpu_backend().rules,
                                  kAllKvFormats & ~format_bit(KvFormat::kK4V4)};
  return backend;
}

Status create_session(void* place, const DeviceSessionArgs& args, DeviceSession*& out) {
  auto* session = new (place) host_module::HostSession(args, backend().ops);
  if (const Status status = session->create(); !status.ok()) {
    session->~HostSession();
    return status;
  }
  out = session;
  return {};
}

const DeviceModule& module() {
  static const DeviceModule module = {kDeviceInterface,
                                      static_cast<uint32_t>(align_up(sizeof(host_module::HostSession), 64)),
                                      &backend(),
                                      open,
                                      info,
                                      last_error_text,
                                      allocate,
                                      release,
                                      allocate_staging,
                                      release_staging,
                                      false,  // own_staging
                                      copy_in,
                                      copy_in,
                                      copy_in,
                                      enqueue_copy_in,
                                      enqueue_copy_out,
                                      wait,
                                      fill,
                                      stream,
                                      copy_rate,
                                      check_weight,
                                      check_session,
                                      session_device_bytes,
                                      create_session,
                                      prepare_many,
                                      step_many,
                                      WEIR_HOST_MODULE_DEVICE == WEIR_DEVICE_VULKAN ? choose : nullptr,
                                      list,
                                      nullptr,   // use_cache
                                      nullptr};  // keep_cache
  return module;
}

}  // namespace
}  // namespace weir

// Lets the n-th allocation, op, kernel, queued copy or wait from now on fail; 0: none. Returns the blocks of staging
// memory.
extern "C" __attribute__((visibility("default"))) size_t weir_host_module_fail_at(uint32_t n) {
  const std::lock_guard lock(weir::g_mutex);
  weir::g_calls_until_failure = n;
  return weir::g_staged;
}

// How many bytes sessions copied between host and device, and got in answers about logits, up to now.
extern "C" __attribute__((visibility("default"))) uint64_t weir_host_module_bytes() {
  return weir::host_module::g_bytes;
}

// Whether sessions that are created from now on have the kernels that join others. At first they do.
extern "C" __attribute__((visibility("default"))) void weir_host_module_join_kernels(bool joins) {
  weir::host_module::g_settings.joins_kernels = joins;
}

// What the driver shows from now on; at first one device on the processor, with 8 GiB.
extern "C" __attribute__((visibility("default"))) void weir_host_module_show(const weir::ListedDevice* devices,
                                                                             uint32_t n) {
  weir::g_devices.assign(devices, devices + n);
}

// Whether every session is refused from now on.
extern "C" __attribute__((visibility("default"))) void weir_host_module_refuse(bool refuses) {
  weir::g_refuses = refuses;
}

// What the latest session needed that it asked about.
extern "C" __attribute__((visibility("default"))) const weir::PolicyNeeds* weir_host_module_asked() {
  return &weir::g_asked;
}

extern "C" __attribute__((visibility("default"))) const weir::DeviceModule* weir_device_module(uint32_t version) {
  return version == weir::kDeviceInterface ? &weir::module() : nullptr;
}
