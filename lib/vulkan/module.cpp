// The module's entry point: the table that the library gets. Every call holds the context's mutex.
#include <cstdio>

#include "core/clock.h"
#include "runtime/device_module.h"
#include "vulkan/context.h"
#include "vulkan/ops.h"
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

Status is_lost() { return fail(WEIR_ERR_DEVICE_LOST, "Vulkan: the device was lost"); }

Status choose(const char* wanted, uint32_t& which) {
  return locked([&](Context& c) -> Status {
    if (c.is_open && (wanted == nullptr || wanted[0] == '\0')) {
      which = c.device.index;
      return {};
    }
    WEIR_TRY(open_instance(kLoader, c.device));
    DeviceTraits devices[kMostDevices];
    uint32_t n = 0;
    WEIR_TRY(list_devices(c.device, devices, n));
    return choose_device(devices, n, wanted, which);
  });
}

Status open(uint32_t which) {
  return locked([&](Context& c) { return c.open(which); });
}

Status info(DeviceInfo& out) {
  return locked([&](Context& c) -> Status {
    if (c.recorder.is_lost()) return is_lost();
    const DeviceTraits& t = c.device.traits;
    std::snprintf(out.name, sizeof(out.name), "%.127s", t.name);
    std::snprintf(out.arch, sizeof(out.arch), "Vulkan %u.%u", VK_API_VERSION_MAJOR(t.version),
                  VK_API_VERSION_MINOR(t.version));
    std::snprintf(out.driver, sizeof(out.driver), "%.63s", c.device.driver);
    out.total_bytes = t.memory_bytes;
    out.free_bytes = free_bytes(c.device);
    out.n_processors = 0;  // Vulkan does not tell
    out.index = c.device.index;
    out.kind = t.kind;
    return {};
  });
}

Status allocate(uint64_t bytes, void** out) {
  return locked([&](Context& c) {
    *out = nullptr;
    return c.recorder.is_lost() ? is_lost() : c.memory.allocate(c.device, bytes, out);
  });
}

// What is recorded may use it. Of a lost device everything is given back, too.
Status release(void* device) {
  return locked([&](Context& c) {
    const Status waited = c.recorder.wait(c.device), released = c.memory.release(c.device, device);
    return waited.ok() ? released : waited;
  });
}

// Copies pass through mapped memory of the module's own, so any host memory will do.
Status allocate_staging(std::pmr::memory_resource& memory, uint64_t bytes, void** out) {
  *out = nullptr;
  *out = memory.allocate(bytes, kStagingAlignment);
  return {};
}
Status release_staging(std::pmr::memory_resource& memory, void* staging, uint64_t bytes) {
  memory.deallocate(staging, bytes, kStagingAlignment);
  return {};
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

Status enqueue_copy(void* to, const void* from, uint64_t bytes) {
  return locked([&](Context& c) -> Status {
    const bool is_in = c.memory.find(reinterpret_cast<uint64_t>(to), bytes) != nullptr;
    return is_in ? c.copy_in(to, from, bytes) : c.copy_out(to, from, bytes);
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

Status copy_rate(void* from, void* to, uint64_t bytes, double* rate) {
  return locked([&](Context& c) -> Status {
    uint64_t best = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      WEIR_TRY(c.recorder.wait(c.device));
      const uint64_t start = now_ns();
      WEIR_TRY(c.recorder.copy(c.device, c.memory, to, from, bytes));
      WEIR_TRY(c.recorder.wait(c.device));
      const uint64_t ns = now_ns() - start;
      if (i > 0 && (best == 0 || ns < best)) best = ns;  // the first one warms up
    }
    *rate = best > 0 ? 2.0 * static_cast<double>(bytes) / (static_cast<double>(best) * 1e-9) : 0.0;
    return {};
  });
}

Status check_session(const ModelConfig&, const PolicyNeeds& needs, const StepRules&) {
  if (needs.pages_per_stream == 0) return {};
  return fail(WEIR_ERR_UNSUPPORTED,
              "Vulkan: attention runs on the processor; WEIR_SESSION_HOST_ATTENTION (--host-attention) says so");
}

Status no_session() { return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: there are no sessions with attention on the device"); }

uint64_t session_device_bytes(const OpShapes&) { return 0; }
Status create_session(void*, const DeviceSessionArgs&, DeviceSession*&) { return no_session(); }
Status prepare_many(DeviceSession* const*, uint32_t) { return no_session(); }
Status step_many(DeviceSession* const*, const int32_t*, uint32_t) { return no_session(); }

uint64_t scratch_bytes(const OpShapes& shapes) { return experts_scratch_bytes(shapes); }
const char* target() { return context().target; }

template <class Args, Status (*op)(OpContext&, const Args&)>
Status locked_op(OpContext& cx, const Args& a) {
  return locked([&](Context&) { return op(cx, a); });
}

constexpr OpTable ops() {
  OpTable t;
#define WEIR_OP(name, Args) \
  t.name = [](OpContext&, const Args&) { return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: there is no " #name); };
#include "ops/ops.inc"
#undef WEIR_OP
  t.embed = locked_op<EmbedArgs, embed>;
  t.rms_norm = locked_op<RmsNormArgs, rms_norm>;
  t.matmul = locked_op<MatmulArgs, matmul>;
  t.glu_matmul = locked_op<GluMatmulArgs, glu_matmul>;
  t.experts = locked_op<ExpertsArgs, experts>;
  t.rope_append = locked_op<RopeAppendArgs, rope_append>;
  t.soft_cap = locked_op<SoftCapArgs, soft_cap>;
  t.attn_paged = nullptr;  // the library attends prompts on the processor
  return t;
}

constexpr Backend kBackend = {
    "vulkan",
    WEIR_DEVICE_VULKAN,
    ops(),
    scratch_bytes,
    target,
    // What attention has is computed on the processor.
    TraitSet(Trait::kQkvBias, Trait::kOutBias, Trait::kGluBias, Trait::kInnerNorm, Trait::kQkNorm, Trait::kQkRowNorm,
             Trait::kPostNorm, Trait::kNoNorm, Trait::kGeluGate, Trait::kClampedGate, Trait::kEmbeddingScale,
             Trait::kWindow, Trait::kLayerRope, Trait::kAttnSoftCap, Trait::kLogitSoftCap, Trait::kAttnSinks,
             Trait::kExperts),
};

constexpr uint32_t kSessionBytes = 64;  // of an object that is never made

constexpr DeviceModule kModule = {
    kDeviceInterface,
    kSessionBytes,
    &kBackend,
    open,
    info,
    last_error_text,
    allocate,
    release,
    allocate_staging,
    release_staging,
    copy_in,
    copy_out,
    copy,
    enqueue_copy,
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
    choose,
};

}  // namespace
}  // namespace weir::vulkan

extern "C" __attribute__((visibility("default"))) const weir::DeviceModule* weir_device_module(uint32_t version) {
  return version == weir::kDeviceInterface ? &weir::vulkan::kModule : nullptr;
}
