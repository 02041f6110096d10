// What a file says of a mixture of experts: sizes, and how a router chooses and weighs.
#include <algorithm>
#include <cmath>

#include "models/keys.h"
#include "models/model.h"
#include "ops/experts.h"

namespace weir {

// The sizes of a mixture of experts. Files of other architectures may say that they have none.
Status Model::read_experts() {
  ModelConfig& c = config_;
  const char* prefix = c.arch->name;
  const Key count_key(prefix, "expert_count");
  if (!c.arch->experts || c.arch->may_lack_experts) {
    uint32_t n_experts = 0;
    WEIR_TRY(file_.get_u32(count_key, n_experts, 0));
    if (n_experts == 0) return {};
    if (c.arch->experts) return read_mixture();
    return fail(WEIR_ERR_UNSUPPORTED, "%s: %u; architecture %s has no experts here", count_key.text, n_experts, prefix);
  }
  return read_mixture();
}

Status Model::read_mixture() {
  ModelConfig& c = config_;
  const char* prefix = c.arch->name;
  const Key count_key(prefix, "expert_count"), used_key(prefix, "expert_used_count");
  WEIR_TRY(get_ranged(file_, count_key, 1, kMaxExperts, c.n_experts));
  WEIR_TRY(get_ranged(file_, used_key, 1, std::min(c.n_experts, kMaxExpertsUsed), c.n_experts_used));
  const auto get_width = [&](const char* name, uint32_t otherwise, uint32_t& out) -> Status {
    const Key key(prefix, name);
    WEIR_TRY(file_.get_u32(key, out, otherwise));
    if (out == 0 || out > kMaxWidth) return fail(WEIR_ERR_FORMAT, "%s: %u is not in 1..%u", key.text, out, kMaxWidth);
    return {};
  };
  // Files of 2024 lack the two widths.
  WEIR_TRY(
      get_width("expert_feed_forward_length", c.arch->whole_experts ? c.d_ff : c.d_ff / c.n_experts_used, c.expert_ff));
  const Key lead_key(prefix, "leading_dense_block_count");
  WEIR_TRY(file_.get_u32(lead_key, c.n_dense_layers, 0));
  if (c.n_dense_layers > c.n_layers)
    return fail(WEIR_ERR_FORMAT, "%s: %u of %u layers", lead_key.text, c.n_dense_layers, c.n_layers);
  if (c.arch->shared_expert == Architecture::SharedExpert::kGated)
    WEIR_TRY(get_width("expert_shared_feed_forward_length", c.d_ff, c.shared_ff));
  if (c.arch->shared_expert == Architecture::SharedExpert::kPlain) WEIR_TRY(read_plain_shared_expert());
  return read_route();
}

// A shared expert without a gate is described by its width, or as so many experts in one; there may be none.
Status Model::read_plain_shared_expert() {
  ModelConfig& c = config_;
  const Key width_key(c.arch->name, "expert_shared_feed_forward_length"),
      count_key(c.arch->name, "expert_shared_count");
  uint32_t count = 0;
  WEIR_TRY(file_.get_u32(count_key, count, 0));
  if (uint64_t{count} * c.expert_ff > kMaxWidth)
    return fail(WEIR_ERR_FORMAT, "%s: %u experts of %u are wider than %u", count_key.text, count, c.expert_ff,
                kMaxWidth);
  WEIR_TRY(file_.get_u32(width_key, c.shared_ff, count * c.expert_ff));
  if (c.shared_ff > kMaxWidth)
    return fail(WEIR_ERR_FORMAT, "%s: %u is not in 0..%u", width_key.text, c.shared_ff, kMaxWidth);
  return {};
}

// How the router chooses and weighs experts: the architecture's way, unless the file has another.
Status Model::read_route() {
  ModelConfig& c = config_;
  RouteRule& route = c.route;
  const char* prefix = c.arch->name;
  route = c.arch->route;
  enum : uint32_t { kUsual = 0, kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3 };
  uint32_t gating = kUsual;
  const Key gating_key(prefix, "expert_gating_func"), scale_key(prefix, "expert_weights_scale");
  WEIR_TRY(file_.get_u32(gating_key, gating, kUsual));
  if (gating > kSoftmaxOfChosen)
    return fail(WEIR_ERR_UNSUPPORTED, "%s: %u; softmax (1 and 3) and sigmoid (2) are known", gating_key.text, gating);
  if (gating == kSoftmax || gating == kSoftmaxOfChosen) route.score = RouteRule::Score::kSoftmax;
  if (gating == kSigmoid) route.score = RouteRule::Score::kSigmoid;
  WEIR_TRY(file_.get_bool(Key(prefix, "expert_weights_norm"), route.normalise, route.normalise));
  if (gating == kSoftmaxOfChosen) route.normalise = true;  // it comes to the same
  WEIR_TRY(file_.get_f32(scale_key, route.scale, route.scale));
  if (route.scale == 0.0f) route.scale = 1.0f;  // files have 0 for a factor that the model does not use
  if (!std::isfinite(route.scale) || route.scale < 1e-6f || route.scale > 1e6f)
    return fail(WEIR_ERR_FORMAT, "%s: %g is not a factor in 1e-6..1e6", scale_key.text,
                static_cast<double>(route.scale));

  const Key groups_key(prefix, "expert_group_count"), used_key(prefix, "expert_group_used_count");
  WEIR_TRY(file_.get_u32(groups_key, route.n_groups, 1));
  if (route.n_groups <= 1) {  // files have 0 or 1 for no groups
    route.n_groups = route.n_groups_used = 1;
    return {};
  }
  if (route.n_groups > kMaxExpertGroups || c.n_experts % route.n_groups != 0) {
    return fail(WEIR_ERR_FORMAT, "%s: %u experts in %u groups; at most %u that divide them are possible",
                groups_key.text, c.n_experts, route.n_groups, kMaxExpertGroups);
  }
  WEIR_TRY(get_ranged(file_, used_key, 1, route.n_groups, route.n_groups_used));
  const uint32_t n_left = c.n_experts / route.n_groups * route.n_groups_used;
  if (c.n_experts_used <= n_left) return {};
  return fail(WEIR_ERR_FORMAT, "%s: %u of %u groups have %u experts, and a token uses %u", used_key.text,
              route.n_groups_used, route.n_groups, n_left, c.n_experts_used);
}

}  // namespace weir
