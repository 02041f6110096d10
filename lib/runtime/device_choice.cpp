// Whether a device can run a session, and which one WEIR_DEVICE_AUTO takes.
#include "runtime/device_choice.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "cpu/backend.h"
#include "ops/table.h"
#include "runtime/option_checks.h"

namespace weir {
namespace {

const char* const kDeviceNames[] = {"auto", "cpu", "cuda", "vulkan"};

// What a device cannot do for a session whose attention it computes.
Status check_device_attention(const weir_session_options& o, const PolicyNeeds& needs, const StepRules& rules) {
  if (o.spill_budget_bytes != 0 && may_keep_copies(needs, rules))
    return fail(WEIR_ERR_UNSUPPORTED, "spill_budget_bytes: what leaves the pool can be stored on the processor only");
  if (rules.attend_tokens != 0) {
    return fail(WEIR_ERR_UNSUPPORTED,
                "policy %s with unit=token is for the processor, WEIR_SESSION_HOST_ATTENTION does it beside a device",
                o.policy);
  }
  // A recorded step selects in all layers or in none, and a stream that need not select then takes what others get.
  if ((needs.layer_pages.differ() || needs.heads_differ) && rules.selects && rules.stop_microbatch == 0 &&
      rules.select_above_pages != rules.select_budget) {
    return fail(WEIR_ERR_UNSUPPORTED,
                "policy %s: prompts whose pages differ by layer or head, and which are attended whole up to %u tokens "
                "and in part beyond, are for the processor only",
                o.policy, rules.select_above_pages * kPageTokens);
  }
  return {};
}

// Whether a device has the ops of everything but attention.
Status check_row_ops(const Backend& backend, const ModelConfig& c) {
  const OpTable& ops = backend.ops;
  const char* missing = ops.embed == nullptr                                  ? "embed"
                        : ops.rms_norm == nullptr                             ? "rms_norm"
                        : ops.matmul == nullptr                               ? "matmul"
                        : ops.glu_matmul == nullptr                           ? "glu_matmul"
                        : ops.experts == nullptr && c.n_experts != 0          ? "experts"
                        : ops.soft_cap == nullptr && c.logit_soft_cap != 0.0f ? "soft_cap"
                                                                              : nullptr;
  return missing == nullptr ? Status() : fail(WEIR_ERR_UNSUPPORTED, "backend %s has no op %s", backend.name, missing);
}

// Because the options say so, or the policy's attention learns from its past, or asks for pages while it computes.
bool attends_on_host(const BackendRequest& r) {
  return (r.options.flags & WEIR_SESSION_HOST_ATTENTION) != 0 || r.needs.history.group != 0 || r.needs.fetch_pages != 0;
}

Status check_cpu(const BackendRequest& r) {
  return check_traits(r.model.config().traits, cpu_backend().traits, cpu_backend().name);
}

// What does not depend on the device.
Status check_any_device(const BackendRequest& r, const StepRules& rules) {
  if (!attends_on_host(r)) return check_device_attention(r.options, r.needs, rules);
  if (r.model.config().recurrent.n_layers != 0)
    return fail(WEIR_ERR_UNSUPPORTED,
                "attention on the host beside a device: recurrent layers run where attention does");
  return check_cpu(r);
}

Status check_format(const BackendRequest& r, const Backend& backend) {
  const KvFormat format = format_of(r.options);
  if (attends_on_host(r) || (backend.kv_formats & format_bit(format)) != 0) return {};
  char names[64] = "";
  for (int32_t i = 0; i < kKvFormats; ++i) {
    const KvFormat other = static_cast<KvFormat>(i);
    if ((backend.kv_formats & format_bit(other)) == 0) continue;
    const size_t n = std::strlen(names);
    std::snprintf(names + n, sizeof(names) - n, "%s%s", n == 0 ? "" : ", ", kv_format_name(other));
  }
  return fail(WEIR_ERR_UNSUPPORTED,
              "kv_format: %s attends pages of %s, not of %s; WEIR_SESSION_HOST_ATTENTION attends on the processor "
              "beside it",
              backend.name, names, kv_format_name(format));
}

// What the session needs besides its policy.
PolicyNeeds session_needs(const BackendRequest& r) {
  PolicyNeeds needs = r.needs;
  needs.page_mass = needs.page_mass || (r.options.flags & WEIR_SESSION_TRACE) != 0;
  needs.head_windows = r.head_windows;
  return needs;
}

// Opens the device and takes it if it can run the session.
Status take(const BackendRequest& r, int32_t device, uint32_t which, SessionSetup& setup) {
  const ModelConfig& c = r.model.config();
  const bool on_host = attends_on_host(r);
  const DeviceModule* module = nullptr;
  WEIR_TRY(r.devices.find(device, which, module));
  WEIR_TRY(check_traits(c.traits, module->backend->traits, module->backend->name));
  WEIR_TRY(check_format(r, *module->backend));
  if (!on_host) WEIR_TRY(check_backend_rules(setup.rules, module->backend->rules, module->backend->name));
  WEIR_TRY(from_module(*module, on_host ? module->check_session(c, PolicyNeeds(), StepRules())
                                        : module->check_session(c, session_needs(r), setup.rules)));
  if (on_host) WEIR_TRY(check_row_ops(*module->backend, c));
  WEIR_TRY(DeviceWeights::check(*module, r.model));
  DeviceInfo info = {};
  WEIR_TRY(from_module(*module, module->info(info)));  // fails if the device was lost
  const uint64_t weights = r.options.device == WEIR_DEVICE_AUTO ? DeviceWeights::bytes_of(r.model) : 0;
  if (weights >= info.total_bytes || weights > info.max_bytes)
    return fail(WEIR_ERR_OUT_OF_MEMORY, "the model is larger than the device's memory, or an allocation of it");
  if (on_host) {
    setup.rows = module;
  } else {
    setup.module = module;
    setup.backend = module->backend;
  }
  return {};
}

// Takes one of Vulkan's devices; false: there is none that fits.
bool take_vulkan(const BackendRequest& r, SessionSetup& setup) {
  ListedDevice devices[kMaxListed];
  uint32_t n = 0, wanted = 0, order[kMaxListed];
  if (!r.devices.list(WEIR_DEVICE_VULKAN, devices, n).ok() || !r.devices.wanted_vulkan(wanted).ok()) return false;
  const uint32_t n_tried = auto_order(devices, n, wanted, DeviceWeights::bytes_of(r.model), order);
  return std::any_of(order, order + n_tried,
                     [&](uint32_t which) { return take(r, WEIR_DEVICE_VULKAN, which, setup).ok(); });
}

Status take_any(const BackendRequest& r, SessionSetup& setup) {
  const DeviceModule* const has_weights = r.weights.module();
  const auto may_take = [&](int32_t device) {
    return has_weights == nullptr || has_weights->backend->device == device;
  };
  if (!check_any_device(r, setup.rules).ok()) return check_cpu(r);
  if (may_take(WEIR_DEVICE_CUDA) && take(r, WEIR_DEVICE_CUDA, DeviceHost::kWanted, setup).ok()) return {};
  if (may_take(WEIR_DEVICE_VULKAN) && take_vulkan(r, setup)) return {};
  return check_cpu(r);
}

}  // namespace

bool lets_pages_go(const StepRules& rules) { return rules.victim != VictimRule::kNever; }

bool may_keep_copies(const PolicyNeeds& needs, const StepRules& rules) {
  // A table may hold the whole context, and let pages of the answer go all the same.
  const bool holds_all = needs.pages_per_stream >= whole_pages(needs.context_tokens) && rules.decode_pages == 0;
  return !needs.may_recall && lets_pages_go(rules) && !holds_all;
}

uint32_t auto_order(const ListedDevice* devices, uint32_t n, uint32_t wanted, uint64_t weight_bytes, uint32_t* out) {
  const auto may_be = [&](uint32_t i) {
    const ListedDevice& d = devices[i];
    if (wanted != DeviceHost::kWanted && i != wanted) return false;
    if (d.kind == DeviceKind::kCpu || (d.kind == DeviceKind::kVirtual && i != wanted)) return false;
    return d.why_not[0] == '\0' && weight_bytes < d.total_bytes;
  };
  uint32_t n_found = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (may_be(i)) out[n_found++] = i;
  }
  std::sort(out, out + n_found, [&](uint32_t a, uint32_t b) {
    const ListedDevice &x = devices[a], &y = devices[b];
    if (x.kind != y.kind) return x.kind < y.kind;  // discrete, integrated
    return x.total_bytes != y.total_bytes ? x.total_bytes > y.total_bytes : a < b;
  });
  return n_found;
}

Status find_backend(const BackendRequest& r, SessionSetup& setup) {
  setup.backend = &cpu_backend();
  setup.module = setup.rows = nullptr;
  const int32_t device = r.options.device;
  if (device == WEIR_DEVICE_CPU) return check_cpu(r);
  if (device == WEIR_DEVICE_AUTO) return take_any(r, setup);
  Status status = check_any_device(r, setup.rules);
  if (status.ok()) status = take(r, device, DeviceHost::kWanted, setup);
  return status.ok() ? status : fail(status.code(), "device %s: %s", kDeviceNames[device], last_error_text());
}

}  // namespace weir
