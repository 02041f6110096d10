// The module's entry point: the table that the library gets. Every call holds the context's mutex, except while it
// reads or writes a file.
#include <algorithm>
#include <cstdio>

#include "core/clock.h"
#include "device/module.h"
#include "device_interface.h"
#include "ops/table.h"
#include "vulkan/context.h"
#include "vulkan/gemm.h"
#include "vulkan/ops.h"
#include "vulkan/session.h"
#include "vulkan/steps.h"
#include "weir/runtime.h"

namespace weir::vulkan {
namespace {

// `call(context)` under the lock.
template <class Call>
Status locked(const Call& call) {
  Context& c = context();
  const std::lock_guard lock(c.mutex);
  return call(c);
}

Status choose(const char* wanted, uint32_t& which) {
  return locked([&](Context& c) -> Status {
    if (c.is_open && (wanted == nullptr || wanted[0] == '\0')) {
      which = c.device.index;
      return {};
    }
    WEIR_TRY(open_instance(kLoader, c.device));
    DeviceTraits devices[kMaxDevices];
    uint32_t n = 0;
    WEIR_TRY(list_devices(c.device, devices, n));
    return choose_device(devices, n, wanted, which);
  });
}

Status list(ListedDevice* out, uint32_t& n) {
  return locked([&](Context& c) -> Status {
    n = 0;
    WEIR_TRY(open_instance(kLoader, c.device));
    DeviceTraits devices[kMaxDevices];
    WEIR_TRY(list_devices(c.device, devices, n));
    for (uint32_t i = 0; i < n; ++i) {
      const DeviceTraits& t = devices[i];
      out[i] = {};
      std::snprintf(out[i].name, sizeof(out[i].name), "%.255s", t.name);
      std::snprintf(out[i].driver, sizeof(out[i].driver), "%.63s", t.driver);
      out[i].total_bytes = t.memory_bytes;
      out[i].kind = t.kind;
      if (!c.check(i, t).ok()) std::snprintf(out[i].why_not, sizeof(out[i].why_not), "%.511s", last_error_text());
    }
    return n != 0 ? Status() : fail(WEIR_ERR_UNSUPPORTED, "Vulkan: there is no device");
  });
}

Status open(uint32_t which) {
  return locked([&](Context& c) { return c.open(which); });
}

// Files are read and written without the lock: other threads' steps go on meanwhile.
void use_cache(const char* folder) {
  CacheFile file;
  bool reads = false;
  (void)locked([&](Context& c) -> Status {
    reads = c.begin_use_cache(folder, file);
    return {};
  });
  if (!reads) return;
  const Status read = file.read();
  (void)locked([&](Context& c) -> Status {
    c.end_use_cache(file, read);
    return {};
  });
}
// Again as long as pipelines were made meanwhile, whose threads found the file busy.
Status keep_cache() {
  CacheFile file;
  for (bool writes = true; writes;) {
    (void)locked([&](Context& c) -> Status {
      writes = c.begin_keep_cache(file);
      return {};
    });
    if (!writes) break;
    const Status written = file.write();
    (void)locked([&](Context& c) -> Status {
      c.cache.end_keep(file, written);
      return {};
    });
  }
  return locked([&](Context& c) { return c.cache.tell(); });
}

Status info(DeviceInfo& out) {
  return locked([&](Context& c) -> Status {
    WEIR_TRY(c.recorder.refuse_lost());
    const DeviceTraits& t = c.device.traits;
    std::snprintf(out.name, sizeof(out.name), "%.127s", t.name);
    std::snprintf(out.arch, sizeof(out.arch), "Vulkan %u.%u", VK_API_VERSION_MAJOR(t.version),
                  VK_API_VERSION_MINOR(t.version));
    std::snprintf(out.driver, sizeof(out.driver), "%.63s", t.driver);
    out.total_bytes = t.memory_bytes;
    out.free_bytes = free_bytes(c.device);
    out.max_bytes = c.device.max_allocated();
    out.max_staging_bytes = c.device.max_bytes;
    out.n_processors = 0;  // Vulkan does not tell
    out.index = c.device.index;
    out.kind = t.kind;
    return {};
  });
}

Status allocate(uint64_t bytes, void** out) {
  return locked([&](Context& c) -> Status {
    *out = nullptr;
    WEIR_TRY(c.recorder.refuse_lost());
    return c.memory.allocate(c.device, bytes, out);
  });
}

Status release(void* device) {
  return locked([&](Context& c) { return c.release(device); });
}

// Mapped by the driver: it cannot use memory that a hook gave.
Status allocate_staging(std::pmr::memory_resource&, uint64_t bytes, void** out) {
  return locked([&](Context& c) -> Status {
    *out = nullptr;
    WEIR_TRY(c.recorder.refuse_lost());
    return c.memory.allocate_staging(c.device, bytes, kStagingAlignment, out);
  });
}
Status release_staging(std::pmr::memory_resource&, void* staging, uint64_t) {
  return locked([&](Context& c) { return c.release_staging(staging); });
}

Status copy_in(void* to, const void* host, uint64_t bytes) {
  return locked([&](Context& c) -> Status {
    WEIR_TRY(c.copy_in(to, host, bytes));
    return c.recorder.wait(c.device);
  });
}

Status copy_out(void* host, const void* from, uint64_t bytes) {
  return locked([&](Context& c) -> Status {
    WEIR_TRY(c.copy_out(host, from, bytes));
    return c.recorder.wait(c.device);
  });
}

Status copy(void* to, const void* from, uint64_t bytes) {
  return locked([&](Context& c) -> Status {
    WEIR_TRY(c.recorder.copy(c.device, c.memory, to, from, bytes));
    return c.recorder.wait(c.device);
  });
}

Status enqueue_copy_in(void* to, const void* host, uint64_t bytes) {
  return locked([&](Context& c) { return c.copy_in(to, host, bytes); });
}

Status enqueue_copy_out(void* host, const void* from, uint64_t bytes) {
  return locked([&](Context& c) -> Status {
    WEIR_TRY(c.copy_out(host, from, bytes));
    return c.recorder.start(c.device);
  });
}

Status wait() {
  return locked([](Context& c) { return c.recorder.wait(c.device); });
}

Status fill(void* to, uint8_t value, uint64_t bytes) {
  return locked([&](Context& c) -> Status {
    WEIR_TRY(c.recorder.fill(c.device, c.memory, to, value, bytes));
    return c.recorder.wait(c.device);
  });
}

// There is one queue; not null, so that the library sees a stream.
void* stream() { return &context(); }

// By a kernel: copies of NVIDIA's driver reach a fifth of what kernels read.
Status copy_rate(void* from, void* to, uint64_t bytes, double* rate) {
  return locked([&](Context& c) -> Status {
    uint64_t best = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      WEIR_TRY(c.recorder.wait(c.device));
      const uint64_t start = now_ns();
      WEIR_TRY(copy_memory(to, from, bytes));
      WEIR_TRY(c.recorder.wait(c.device));
      const uint64_t ns = now_ns() - start;
      if (i > 0 && (best == 0 || ns < best)) best = ns;  // the first one warms up
    }
    *rate = best > 0 ? 2.0 * static_cast<double>(bytes) / (static_cast<double>(best) * 1e-9) : 0.0;
    return {};
  });
}

uint64_t scratch_bytes(const OpShapes& shapes) {
  return std::max({gemm_scratch_bytes(shapes), experts_scratch_bytes(shapes), attn_scratch_bytes(shapes)});
}
const char* target() { return context().target; }

template <class Args, Status (*op)(OpContext&, const Args&)>
Status locked_op(OpContext& cx, const Args& a) {
  return locked([&](Context&) { return op(cx, a); });
}

constexpr OpTable missing_ops() {
  OpTable t;
#define WEIR_OP(name, Args) \
  t.name = [](OpContext&, const Args&) { return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: there is no " #name); };
#include "ops/ops.inc"
#undef WEIR_OP
  return t;
}

// For the library, which knows of no lock.
constexpr OpTable locked_ops() {
  OpTable t = missing_ops();
#define WEIR_OP(name, Args) t.name = locked_op<Args, name>;
#include "vulkan/ops.inc"
#undef WEIR_OP
  return t;
}

// For sessions, which hold it.
constexpr OpTable plain_ops() {
  OpTable t = missing_ops();
#define WEIR_OP(name, Args) t.name = name;
#include "vulkan/ops.inc"
#undef WEIR_OP
  return t;
}
constexpr OpTable kPlainOps = plain_ops();

constexpr Backend kBackend = {
    "vulkan",
    WEIR_DEVICE_VULKAN,
    locked_ops(),
    scratch_bytes,
    target,
    TraitSet(Trait::kQkvBias, Trait::kOutBias, Trait::kGluBias, Trait::kInnerNorm, Trait::kQkNorm, Trait::kQkRowNorm,
             Trait::kPostNorm, Trait::kNoNorm, Trait::kGeluGate, Trait::kClampedGate, Trait::kReluGate,
             Trait::kEmbeddingScale, Trait::kWindow, Trait::kLayerRope, Trait::kAttnSoftCap, Trait::kLogitSoftCap,
             Trait::kTemperature, Trait::kAttnSinks, Trait::kExperts, Trait::kHeadGate, Trait::kDeltaNet,
             Trait::kMamba2, Trait::kShortConv),
    RuleSet::all(),
    format_bit(KvFormat::kBf16),
};

const DeviceModule kModule = {
    .interface = kDeviceInterface,
    .session_bytes = session_bytes(),
    .backend = &kBackend,
    .open = open,
    .info = info,
    .last_error = last_error_text,
    .allocate = allocate,
    .release = release,
    .allocate_staging = allocate_staging,
    .release_staging = release_staging,
    .own_staging = true,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy = copy,
    .enqueue_copy_in = enqueue_copy_in,
    .enqueue_copy_out = enqueue_copy_out,
    .wait = wait,
    .fill = fill,
    .stream = stream,
    .copy_rate = copy_rate,
    .check_weight = check_weight,
    .check_session = check_session,
    .session_device_bytes = session_device_bytes,
    .create_session = create_session,
    .prepare_many = prepare_many,
    .step_many = step_many,
    .choose = choose,
    .list = list,
    .use_cache = use_cache,
    .keep_cache = keep_cache,
};

}  // namespace

const OpTable& op_table() { return kPlainOps; }

}  // namespace weir::vulkan

extern "C" __attribute__((visibility("default"))) const weir::DeviceModule* weir_device_module(uint32_t version) {
  return version == weir::kDeviceInterface ? &weir::vulkan::kModule : nullptr;
}
