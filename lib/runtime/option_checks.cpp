// The checks; see option_checks.h.
#include "runtime/option_checks.h"

namespace weir {
namespace {

constexpr uint32_t kMaxBatch = 4096;

}  // namespace

Status check_numbers(const weir_session_options& o) {
  if ((o.flags & ~(uint32_t{WEIR_SESSION_TRACE} | uint32_t{WEIR_SESSION_HOST_ATTENTION})) != 0)
    return fail(WEIR_ERR_UNSUPPORTED, "session options: flags 0x%x are not known", o.flags);
  if (o.reserved != 0) return fail(WEIR_ERR_UNSUPPORTED, "session options: reserved is %u, not 0", o.reserved);
  if (o.snapshot_tokens != 0 && (o.snapshot_tokens < kPageTokens || o.snapshot_tokens > kMaxTokens))
    return fail(WEIR_ERR_INVALID_ARG, "snapshot_tokens: %u is not in %u..%u", o.snapshot_tokens, kPageTokens,
                kMaxTokens);
  if (o.device < WEIR_DEVICE_AUTO || o.device > WEIR_DEVICE_VULKAN)
    return fail(WEIR_ERR_INVALID_ARG, "device: %d is not a WEIR_DEVICE_* value", o.device);
  if (o.context_tokens > kMaxTokens)
    return fail(WEIR_ERR_INVALID_ARG, "context_tokens: %u is above %u", o.context_tokens, kMaxTokens);
  if (o.batch_tokens > kMaxBatch)
    return fail(WEIR_ERR_INVALID_ARG, "batch_tokens: %u is above %u", o.batch_tokens, kMaxBatch);
  if (o.page_tokens != 0 && o.page_tokens != kPageTokens)
    return fail(WEIR_ERR_UNSUPPORTED, "page_tokens: %u; only %u exists", o.page_tokens, kPageTokens);
  if (o.budget_tokens > kMaxTokens)
    return fail(WEIR_ERR_INVALID_ARG, "budget_tokens: %u is above %u", o.budget_tokens, kMaxTokens);
  if (o.max_prompt_tokens > kMaxTokens)
    return fail(WEIR_ERR_INVALID_ARG, "max_prompt_tokens: %u is above %u", o.max_prompt_tokens, kMaxTokens);
  if (o.budget_tokens != 0 && o.budget_bytes != 0)
    return fail(WEIR_ERR_INVALID_ARG, "budget_tokens and budget_bytes are both set; give one");
  if (o.n_policy_options != 0 && o.policy_options == nullptr)
    return fail(WEIR_ERR_INVALID_ARG, "policy_options is NULL, n_policy_options is %u", o.n_policy_options);
  for (uint32_t i = 0; i < o.n_policy_options; ++i) {
    if (o.policy_options[i].key == nullptr || o.policy_options[i].value == nullptr) {
      return fail(WEIR_ERR_INVALID_ARG, "policy_options[%u]: key or value is NULL", i);
    }
  }
  return {};
}

Status check_format(const weir_session_options& o, const ModelConfig& c) {
  if (o.kv_format < 0 || o.kv_format >= kKvFormats)
    return fail(WEIR_ERR_INVALID_ARG, "kv_format: %d is not a WEIR_KV_* value", o.kv_format);
  if (o.kv_format == WEIR_KV_BF16 || c.head_dim % kScaleElements == 0) return {};
  return fail(WEIR_ERR_UNSUPPORTED,
              "kv_format: %s needs heads of a multiple of %u elements, and the model's have %u; WEIR_KV_BF16 fits all",
              kv_format_name(format_of(o)), kScaleElements, c.head_dim);
}

}  // namespace weir
