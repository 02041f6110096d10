// A backend module whose device is the processor: memory, copies, page tables and single ops work, and whole steps do
// not. With it tests see what the library itself does in sessions on a device (saving, restoring, rewinding, forking),
// and in sessions whose attention alone is computed on the host.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <span>
#include <vector>

#include "runtime/device_module.h"

namespace weir {
namespace {

constexpr uint64_t kMostStaging = 8 << 20;  // at once

Status computes_nothing() { return fail(WEIR_ERR_UNSUPPORTED, "this module computes nothing"); }

class HostSession final : public DeviceSession {
 public:
  explicit HostSession(const DeviceSessionArgs& args) : a_(args), kv_(const_cast<KvCache&>(*args.kv)) {}

  bool is_lost() const override { return false; }
  Status put_tables(bool) override {
    std::memcpy(a_.device.tables, a_.host.tables, a_.device.table_bytes);
    *a_.device.state = *a_.host.state;
    if (a_.recall == nullptr) return {};
    std::copy_n(a_.host.recall.raw_index, a_.host.recall.n_rows, a_.device.raw_index);
    spoil_lost();
    return {};
  }
  Status get_tables() override {
    std::memcpy(a_.host.tables, a_.device.tables, a_.device.table_bytes);
    *a_.host.state = *a_.device.state;
    return {};
  }
  Status copy_pages(uint32_t n, bool in) override {
    const size_t page_bytes = kv_.shape().page_bytes();
    for (uint32_t i = 0; i < n; ++i) {
      void* const slot = kv_.page_data(a_.host.recall.page_slots[i]);
      std::byte* const page = a_.host.recall.pages + i * page_bytes;
      in ? std::memcpy(slot, page, page_bytes) : std::memcpy(page, slot, page_bytes);
    }
    return {};
  }
  Status rebuild_last_digests() override {
    for (uint32_t s = 0; s < kv_.shape().n_streams(); ++s) {
      const StreamView v = kv_.stream(s);
      if (kv_.shape().digest == DigestKind::kNone || v.n_pages == 0 || v.slots[v.n_pages - 1] == kNoSlot) continue;
      kv_.rebuild_digest(s, v.n_pages - 1);
    }
    return {};
  }
  Status run_chunk(const DeviceChunk&) override { return computes_nothing(); }
  Status token_mass(uint32_t, const TokenMassArgs&) override { return computes_nothing(); }
  Status step(int32_t) override { return computes_nothing(); }
  Status copy_row_out(uint32_t) override { return computes_nothing(); }
  Status fill_row(uint32_t, uint64_t) override { return computes_nothing(); }
  Status get_logits() override { return computes_nothing(); }
  Status top_logits(uint32_t) override { return computes_nothing(); }
  Status fill_noise(uint64_t) override { return computes_nothing(); }
  Status profile_step(int32_t, double*) override { return computes_nothing(); }

 private:
  // The digests of pages with neither a slot nor a copy.
  void spoil_lost() {
    const size_t n = digest_elements(kv_.shape().digest, kv_.shape().head_dim);
    for (uint32_t s = 0; s < kv_.shape().n_streams(); ++s) {
      const StreamView v = kv_.stream(s);
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        const size_t i = kv_.row_index(s, row);
        if (v.slots[row] == kNoSlot && a_.device.raw_index[i] == kNoRaw)
          std::fill_n(kv_.digest_data(i), n, uint16_t{0x7fc0});
      }
    }
  }

  DeviceSessionArgs a_;
  KvCache& kv_;  // over the device's memory
};

Status open(uint32_t which) {
  return which == 0 ? Status() : fail(WEIR_ERR_UNSUPPORTED, "there is no processor %u", which);
}
Status info(DeviceInfo& info) {
  info = {};
  info.total_bytes = info.free_bytes = uint64_t{1} << 33;
  info.kind = DeviceKind::kCpu;
  std::strcpy(info.arch, "any");
  std::strcpy(info.driver, "none");
  return {};
}
std::mutex g_mutex;
uint32_t g_calls_until_failure = 0;                // 0: never
std::vector<std::span<const std::byte>> g_memory;  // of the device
size_t g_staged = 0;  // blocks of staging memory

Status count_call(const char* what) {
  if (g_calls_until_failure == 0 || --g_calls_until_failure != 0) return {};
  return fail(WEIR_ERR_DEVICE_LOST, "the host module fails in %s, as it was told", what);
}

// Memory that is fresh holds anything.
Status allocate(uint64_t bytes, void** out) {
  const std::lock_guard lock(g_mutex);
  WEIR_TRY(count_call("allocating"));
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
  if (bytes > kMostStaging) return fail(WEIR_ERR_OUT_OF_MEMORY, "more than %zu bytes", size_t{kMostStaging});
  {
    const std::lock_guard lock(g_mutex);
    WEIR_TRY(count_call("allocating staging memory"));
  }
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

Status enqueue_copy(void* to, const void* from, uint64_t bytes) {
  const std::lock_guard lock(g_mutex);
  WEIR_TRY(count_call("a copy"));
  const auto* begin = static_cast<const std::byte*>(from);
  const bool is_in = std::any_of(g_memory.begin(), g_memory.end(), [&](const auto& memory) {
    return to >= memory.data() && to < memory.data() + memory.size();
  });
  if (is_in) std::memcpy(to, from, bytes);
  g_copies.push_back({to, from, {begin, begin + bytes}, is_in});
  return {};
}

Status wait() {
  const std::lock_guard lock(g_mutex);
  const Status status = count_call("waiting");
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
uint64_t session_device_bytes(const OpShapes&) { return 256; }
Status create_session(void* place, const DeviceSessionArgs& args, DeviceSession*& out) {
  out = new (place) HostSession(args);
  return {};
}
Status prepare_many(DeviceSession* const*, uint32_t) { return computes_nothing(); }
Status step_many(DeviceSession* const*, const int32_t*, uint32_t) { return computes_nothing(); }

// An op of the processor, which may fail when it is told to.
template <auto kOp, class Args>
Status counted_op(OpContext& cx, const Args& a) {
  {
    const std::lock_guard lock(g_mutex);
    WEIR_TRY(count_call("an op"));
  }
  return (cpu_backend().ops.*kOp)(cx, a);
}

const DeviceModule& module() {
  static const Backend backend = {"host",
                                  WEIR_DEVICE_CUDA,
                                  {
#define WEIR_OP(name, Args) counted_op<&OpTable::name, Args>,
#include "ops/ops.inc"
#undef WEIR_OP
                                  },
                                  cpu_backend().scratch_bytes,
                                  [] { return "none"; },
                                  cpu_backend().traits};
  static const DeviceModule module = {kDeviceInterface,
                                      static_cast<uint32_t>(align_up(sizeof(HostSession), 64)),
                                      &backend,
                                      open,
                                      info,
                                      last_error_text,
                                      allocate,
                                      release,
                                      allocate_staging,
                                      release_staging,
                                      copy_in,
                                      copy_in,
                                      copy_in,
                                      enqueue_copy,
                                      wait,
                                      fill,
                                      stream,
                                      copy_rate,
                                      check_weight,
                                      [](const auto&...) { return Status(); },  // check_session
                                      session_device_bytes,
                                      create_session,
                                      prepare_many,
                                      step_many,
                                      nullptr};
  return module;
}

}  // namespace
}  // namespace weir

// Lets the n-th allocation, op, queued copy or wait from now on fail; 0: none. Returns the blocks of staging memory.
extern "C" __attribute__((visibility("default"))) size_t weir_host_module_fail_at(uint32_t n) {
  const std::lock_guard lock(weir::g_mutex);
  weir::g_calls_until_failure = n;
  return weir::g_staged;
}

extern "C" __attribute__((visibility("default"))) const weir::DeviceModule* weir_device_module(uint32_t version) {
  return version == weir::kDeviceInterface ? &weir::module() : nullptr;
}
