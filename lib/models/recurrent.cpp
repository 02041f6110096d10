// Which layers of a model have no attention, and the sizes of what they have instead.
#include <algorithm>

#include "models/keys.h"
#include "models/model.h"

namespace weir {
namespace {

constexpr uint32_t kMinTaps = 2;           // one tap convolves nothing, and a layer of it alone would have no state
constexpr uint32_t kMaxStateHeads = 1024;  // with the largest heads, no size below overflows

}  // namespace

// Attention in every layer, unless the architecture has others.
Status Model::read_layer_kinds() {
  ModelConfig& c = config_;
  kinds_.assign(c.n_layers, LayerKind{});
  if (c.arch->recurrent != Mixer::kNone)
    WEIR_TRY(c.arch->which == Architecture::Which::kInterval ? read_kinds_by_interval() : read_kinds_by_heads());
  uint32_t n_recurrent = 0;
  for (LayerKind& kind : kinds_) {
    if (kind.mixer == Mixer::kNone) continue;
    kind.number = kind.mixer == Mixer::kAttention ? c.n_kv_layers++ : n_recurrent++;
  }
  if (c.n_kv_layers == 0)
    return fail(WEIR_ERR_UNSUPPORTED, "general.architecture: none of the %u layers of this %s has attention",
                c.n_layers, c.arch->name);
  c.recurrent.n_layers = n_recurrent;
  return n_recurrent == 0 ? Status() : read_recurrent();
}

// One layer in so many has attention, or the file says for each whether it is recurrent.
Status Model::read_kinds_by_interval() {
  const ModelConfig& c = config_;
  const Key flags(c.arch->name, "attention.recurrent_layers"), every(c.arch->name, "full_attention_interval");
  if (file_.find(flags) != nullptr) {
    const GgufValue* value = nullptr;
    WEIR_TRY(file_.get_array(flags, GgufArray::kFlags, true, value));
    if (value->count < c.n_layers)
      return fail(WEIR_ERR_FORMAT, "%s: %llu elements for %u layers", flags.text,
                  static_cast<unsigned long long>(value->count), c.n_layers);
    for (uint32_t i = 0; i < c.n_layers; ++i) {
      if (gguf_integer(*value, i) != 0) kinds_[i].mixer = c.arch->recurrent;
    }
    return {};
  }
  uint32_t interval = 0;
  WEIR_TRY(get_ranged(file_, every, 1, c.n_layers, interval));
  for (uint32_t i = 0; i < c.n_layers; ++i) {
    if ((i + 1) % interval != 0) kinds_[i].mixer = c.arch->recurrent;
  }
  return {};
}

// Layers without KV heads are recurrent, or, where they have rows of it, a feed-forward network alone.
Status Model::read_kinds_by_heads() {
  const ModelConfig& c = config_;
  const auto of_layer = [&](const char* name, bool& is_array, const GgufValue*& value) -> Status {
    const Key key(c.arch->name, name);
    value = file_.find(key);
    is_array = value != nullptr && value->type == GgufType::kArray;
    if (!is_array) return {};
    WEIR_TRY(file_.get_array(key, GgufArray::kIntegers, true, value));
    if (value->count >= c.n_layers) return {};
    return fail(WEIR_ERR_FORMAT, "%s: %llu elements for %u layers", key.text,
                static_cast<unsigned long long>(value->count), c.n_layers);
  };
  bool has_heads = false, has_rows = false;
  const GgufValue *heads = nullptr, *rows = nullptr;
  WEIR_TRY(of_layer("attention.head_count_kv", has_heads, heads));
  WEIR_TRY(of_layer("feed_forward_length", has_rows, rows));
  const bool in_blocks = c.arch->which == Architecture::Which::kBlocks;
  for (uint32_t i = 0; i < c.n_layers; ++i) {
    LayerKind& kind = kinds_[i];
    if (has_heads && gguf_integer(*heads, i) == 0) kind.mixer = c.arch->recurrent;
    if (!in_blocks) continue;
    kind.feed_forward = has_rows && gguf_integer(*rows, i) != 0;
    if (kind.feed_forward) kind.mixer = Mixer::kNone;
  }
  return {};
}

Status Model::read_recurrent() {
  switch (config_.arch->recurrent) {
    case Mixer::kDeltaNet:
      return read_delta_net();
    case Mixer::kMamba2:
      return read_mamba2();
    case Mixer::kShortConv:
      return read_short_conv();
    case Mixer::kNone:
    case Mixer::kAttention:
      break;
  }
  return {};
}

// What delta nets and Mamba-2 have in common: the convolution, and the heads of their sums. `width` is of all heads.
Status Model::read_state_heads() {
  RecurrentShape& r = config_.recurrent;
  const char* prefix = config_.arch->name;
  const Key groups(prefix, "ssm.group_count"), heads(prefix, "ssm.time_step_rank"), inner(prefix, "ssm.inner_size");
  WEIR_TRY(get_ranged(file_, Key(prefix, "ssm.conv_kernel"), kMinTaps, kMaxTaps, r.n_taps));
  WEIR_TRY(get_ranged(file_, Key(prefix, "ssm.state_size"), 1, kMaxKeyDim, r.key_dim));
  WEIR_TRY(get_ranged(file_, groups, 1, kMaxStateHeads, r.n_key_heads));
  WEIR_TRY(get_ranged(file_, heads, 1, kMaxStateHeads, r.n_heads));
  WEIR_TRY(get_ranged(file_, inner, 1, kMaxStateHeads * kMaxValueDim, r.width));
  if (r.n_heads % r.n_key_heads != 0)
    return fail(WEIR_ERR_FORMAT, "%s: %u does not divide the %u heads of %s", groups.text, r.n_key_heads, r.n_heads,
                heads.text);
  r.value_dim = r.width / r.n_heads;
  if (r.width % r.n_heads != 0 || r.value_dim > kMaxValueDim)
    return fail(WEIR_ERR_FORMAT, "%s: %u is not that of %u heads of at most %u elements", inner.text, r.width,
                r.n_heads, kMaxValueDim);
  return {};
}

Status Model::read_delta_net() {
  WEIR_TRY(read_state_heads());
  RecurrentShape& r = config_.recurrent;
  if (r.value_dim != r.key_dim)
    return fail(WEIR_ERR_FORMAT, "%s.ssm.inner_size: %u is not ssm.state_size, %u, times the %u heads",
                config_.arch->name, r.width, r.key_dim, r.n_heads);
  r.n_channels = r.in_width = 2 * r.n_key_heads * r.key_dim + r.width;
  r.gate_width = config_.arch->fused_gates ? 2 * r.n_heads : r.n_heads;
  return {};
}

Status Model::read_mamba2() {
  WEIR_TRY(read_state_heads());
  RecurrentShape& r = config_.recurrent;
  r.n_channels = r.width + 2 * r.n_key_heads * r.key_dim;
  r.in_width = r.width + r.n_channels + r.n_heads;
  return {};
}

Status Model::read_short_conv() {
  RecurrentShape& r = config_.recurrent;
  WEIR_TRY(get_ranged(file_, Key(config_.arch->name, "shortconv.l_cache"), kMinTaps, kMaxTaps, r.n_taps));
  r.n_channels = r.width = config_.d_model;
  r.in_width = 3 * config_.d_model;
  return {};
}

}  // namespace weir
