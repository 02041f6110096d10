// Choice and requirements of a device.
#include "vulkan/choice.h"

#include <vulkan/vulkan_core.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "shaders/shared.h"

namespace weir::vulkan {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool has_part(const char* name, const char* part) {
  for (; *name != '\0'; ++name) {
    size_t i = 0;
    while (part[i] != '\0' && lower(name[i]) == lower(part[i])) ++i;
    if (part[i] == '\0') return true;
  }
  return false;
}

// Whether `text` is a number; those beyond any index become the largest.
bool is_number(const char* text, uint32_t& number) {
  uint64_t value = 0;
  const char* c = text;
  for (; *c >= '0' && *c <= '9'; ++c)
    value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(*c - '0'), UINT32_MAX);
  number = static_cast<uint32_t>(value);
  return c != text && *c == '\0';
}

// "0: name, 1: name"
struct List {
  char text[512] = "";
  List(const DeviceTraits* devices, uint32_t n) {
    size_t at = 0;
    for (uint32_t i = 0; i < n && at + 1 < sizeof(text); ++i) {
      const int written =
          std::snprintf(text + at, sizeof(text) - at, "%s%u: %.100s", i == 0 ? "" : ", ", i, devices[i].name);
      if (written > 0) at += static_cast<size_t>(written);
    }
  }
};

int rank_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kDiscrete:
      return 3;
    case DeviceKind::kIntegrated:
      return 2;
    case DeviceKind::kVirtual:
      return 1;
    case DeviceKind::kCpu:
      break;
  }
  return 0;
}

bool is_better(const DeviceTraits& a, const DeviceTraits& b) {
  if (rank_of(a.kind) != rank_of(b.kind)) return rank_of(a.kind) > rank_of(b.kind);
  return a.memory_bytes > b.memory_bytes;
}

}  // namespace

Status check_traits(const DeviceTraits& t) {
  const uint32_t major = VK_API_VERSION_MAJOR(t.version), minor = VK_API_VERSION_MINOR(t.version);
  if (major < 1 || (major == 1 && minor < 3))
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %s has Vulkan %u.%u, 1.3 is needed", t.name, major, minor);
  if (t.min_lanes < kMinLanes)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %s has subgroups of %u lanes, at least %u are needed", t.name,
                t.min_lanes, kMinLanes);
  if (!t.in_compute || !t.shuffle || !t.arithmetic) {
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %s has no subgroup %s", t.name,
                !t.in_compute ? "operations in compute shaders"
                : !t.shuffle  ? "shuffles"
                              : "arithmetic");
  }
  if (t.invocations < kInvocations)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %s has workgroups of %u invocations, %u are needed", t.name,
                t.invocations, kInvocations);
  if (t.shared_bytes < kMinShared)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %s has %u bytes of shared memory, %u are needed", t.name, t.shared_bytes,
                kMinShared);
  if (t.push_bytes < kMinPush)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %s has %u bytes of push constants, %u are needed", t.name, t.push_bytes,
                kMinPush);
  if (!t.addresses) return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %s has no bufferDeviceAddress", t.name);
  if (!t.full_subgroups) return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %s has no computeFullSubgroups", t.name);
  if (!t.compute_queue) return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %s has no queue that computes", t.name);
  return {};
}

Status choose_device(const DeviceTraits* devices, uint32_t n, const char* wanted, uint32_t& which) {
  if (n == 0) return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: there is no device");
  if (wanted == nullptr || wanted[0] == '\0') {
    uint32_t best = n;
    Status why;
    for (uint32_t i = 0; i < n; ++i) {
      const Status status = check_traits(devices[i]);
      if (!status.ok()) {
        why = status;
      } else if (best == n || is_better(devices[i], devices[best])) {
        best = i;
      }
    }
    if (best == n) return why;  // the message is that of the last one
    which = best;
    return {};
  }
  uint32_t number = 0;
  if (is_number(wanted, number)) {
    which = number;
    if (number < n) return {};
    return fail(WEIR_ERR_NOT_FOUND, "Vulkan: there is no device %.32s; there are %s", wanted, List(devices, n).text);
  }
  uint32_t n_found = 0;
  for (uint32_t i = n; i-- > 0;) {
    if (!has_part(devices[i].name, wanted)) continue;
    which = i;
    ++n_found;
  }
  if (n_found == 1) return {};
  return fail(n_found == 0 ? WEIR_ERR_NOT_FOUND : WEIR_ERR_INVALID_ARG,
              "Vulkan: %s has \"%.64s\" in its name; there are %s", n_found == 0 ? "no device" : "more than one device",
              wanted, List(devices, n).text);
}

}  // namespace weir::vulkan
