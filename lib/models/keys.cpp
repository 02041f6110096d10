// The tables of keys.
#include "models/keys.h"

#include <algorithm>
#include <bit>

#include "models/model.h"

namespace weir {
namespace {

using std::string_view;

// What the rest of lib/models reads.
constexpr string_view kRead[] = {
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.recurrent_layers",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_feed_forward_length",
    "expert_gating_func",
    "expert_group_count",
    "expert_group_used_count",
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "expert_used_count",
    "expert_weights_norm",
    "feed_forward_length",
    "nextn_predict_layers",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.global.freq_base",
    "rope.local.freq_base",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_ext_factor",
    "shortconv.l_cache",
    "ssm.conv_kernel",
    "ssm.group_count",
    "ssm.inner_size",
    "ssm.state_size",
    "ssm.time_step_rank",
};

// What changes nothing that is computed here.
constexpr string_view kHarmless[] = {
    "decoder_start_token_id",  // of models with an encoder
    "embedding_length_out",    // of embedding models, whose output is not asked for
    "deepstack_mapping",       // of layers that images are added to
    "features_length",
    "n_deepstack_layers",
    "pooling_type",
    "rope.dimension_sections",  // of pictures; in text the positions of all sections are equal
    "rope.scaling.finetuned",
    "tensor_data_layout",  // of the file that this one was made from
    "vocab_size",          // the vocabulary has its own
};

// How the names of keys about seeing and hearing begin; tensors of such parts are not used.
constexpr string_view kOtherParts[] = {"vision.", "audio.", "mm.", "image", "classifier."};

// How a value can be without effect.
enum class Idle : uint8_t {
  kZero,    // 0, or false
  kFactor,  // 0, or 1
  kTrue,    // any but false
};

struct Unread {
  const char* key;
  Idle idle;
};
// Numbers that change what a model computes. An architecture that has one of them reads it.
constexpr Unread kUnread[] = {
    {"activation_sparsity_scale", Idle::kZero},
    {"attention.causal", Idle::kTrue},
    {"attention.clamp_kqv", Idle::kZero},
    {"attention.indexer.top_k", Idle::kZero},
    {"attention.kv_lora_rank", Idle::kZero},
    {"attention.max_alibi_bias", Idle::kZero},
    {"attention.output_scale", Idle::kFactor},
    {"attention.q_lora_rank", Idle::kZero},
    {"attention.scale", Idle::kZero},
    {"attention.shared_kv_layers", Idle::kZero},
    {"attention.temperature_length", Idle::kZero},
    {"attention.temperature_scale", Idle::kZero},
    {"attn_logit_softcapping", Idle::kZero},
    {"embedding_length_per_layer_input", Idle::kZero},
    {"embedding_scale", Idle::kFactor},
    {"expert_group_scale", Idle::kFactor},
    {"expert_weights_scale", Idle::kFactor},
    {"final_logit_softcapping", Idle::kZero},
    {"full_attention_interval", Idle::kFactor},
    {"interleave_moe_layer_step", Idle::kFactor},
    {"leading_dense_block_count", Idle::kZero},
    {"logit_scale", Idle::kFactor},
    {"moe_every_n_layers", Idle::kFactor},
    {"moe_latent_size", Idle::kZero},
    {"residual_scale", Idle::kFactor},
    {"rope.scaling.alpha", Idle::kFactor},
    {"rope.scaling.yarn_log_multiplier", Idle::kZero},
    {"router_logit_softcapping", Idle::kZero},
    {"swiglu_clamp_exp", Idle::kZero},
    {"swiglu_clamp_shexp", Idle::kZero},
    {"use_parallel_residual", Idle::kZero},
};

// Sizes of layers with a window, where they may differ.
constexpr const char* kSame[][2] = {{"attention.key_length_swa", "attention.key_length"},
                                    {"attention.value_length_swa", "attention.value_length"},
                                    {"rope.dimension_count_swa", "rope.dimension_count"}};

bool is_read(string_view key, const Architecture& arch) {
  if (key == "attn_logit_softcapping" || key == "final_logit_softcapping") return arch.soft_caps;
  if (key == "attention.scale" || key == "embedding_scale" || key == "residual_scale" || key == "logit_scale")
    return arch.multipliers;
  if (key == "full_attention_interval") return arch.recurrent != Mixer::kNone;
  if (key == "attention.temperature_scale" || key == "rope.scaling.yarn_log_multiplier") return arch.temperature;
  if (key == "expert_weights_scale" || key == "leading_dense_block_count") return arch.experts;
  return false;
}

// What the value is as a number; false for texts and arrays.
bool number_of(const GgufFile& file, string_view key, const GgufValue& value, float& out) {
  if (value.type == GgufType::kBool) {
    out = value.raw != 0 ? 1.0f : 0.0f;
    return true;
  }
  return value.type != GgufType::kString && value.type != GgufType::kArray && file.get_f32(key, out).ok();
}

bool is_idle(Idle idle, float number) {
  if (idle == Idle::kTrue) return number != 0.0f;
  return number == 0.0f || (idle == Idle::kFactor && number == 1.0f);
}

template <size_t n>
bool has(const string_view (&list)[n], string_view key) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

bool is_known(string_view key) {
  const auto is_this = [key](const Unread& entry) { return key == entry.key; };
  const auto begins = [key](string_view part) { return key.starts_with(part); };
  const auto is_size = [key](const auto& pair) { return key == pair[0]; };
  return has(kRead, key) || has(kHarmless, key) || std::any_of(std::begin(kUnread), std::end(kUnread), is_this) ||
         std::any_of(std::begin(kSame), std::end(kSame), is_size) ||
         std::any_of(std::begin(kOtherParts), std::end(kOtherParts), begins);
}

// Zeros turn things off, and a text is rarely a number of the model.
bool may_matter(const GgufFile& file, string_view rest, const GgufValue& value) {
  if (value.type == GgufType::kString) return rest.starts_with("rope.") || rest.starts_with("attention.");
  float number = 1.0f;
  return !number_of(file, value.key, value, number) || number != 0.0f;
}

}  // namespace

Status get_ranged(const GgufFile& file, const Key& key, uint32_t low, uint32_t high, uint32_t& out, Getter get) {
  WEIR_TRY((file.*get)(key, out));
  if (out < low || out > high) return fail(WEIR_ERR_FORMAT, "%s: %u is not in %u..%u", key.text, out, low, high);
  return {};
}

Status refuse_unread_keys(const GgufFile& file, const Architecture& arch) {
  for (const Unread& entry : kUnread) {
    if (is_read(entry.key, arch)) continue;
    const Key key(arch.name, entry.key);
    const GgufValue* value = file.find(key);
    if (value == nullptr) continue;
    float number = 0.0f;
    if (!number_of(file, key, *value, number)) {
      return fail(WEIR_ERR_UNSUPPORTED, "%s: of type %s; architecture %s does not compute with it", key.text,
                  gguf_type_name(value->type), arch.name);
    }
    if (is_idle(entry.idle, number)) continue;
    return fail(WEIR_ERR_UNSUPPORTED, "%s: %g; architecture %s does not compute with it", key.text,
                static_cast<double>(number), arch.name);
  }
  for (const auto& [of_window, of_all] : kSame) {
    const Key key(arch.name, of_window), other(arch.name, of_all);
    if (file.find(key) == nullptr) continue;
    uint32_t number = 0, same = 0;
    WEIR_TRY(file.get_u32(key, number));
    WEIR_TRY(file.get_u32(other, same, number));
    if (number != same)
      return fail(WEIR_ERR_UNSUPPORTED, "%s: %u differs from %s, %u", key.text, number, other.text, same);
  }
  return {};
}

Status note_unknown_keys(const GgufFile& file, const Architecture& arch, OpenProgress& progress, Notes& notes) {
  const string_view prefix = arch.name;
  for (const GgufValue& value : file.values()) {
    WEIR_TRY(progress.step());
    if (!value.key.starts_with(prefix) || value.key.substr(prefix.size(), 1) != ".") continue;
    const string_view rest = value.key.substr(prefix.size() + 1);
    if (is_known(rest) || !may_matter(file, rest, value)) continue;
    notes.warn("%.*s: this version does not know the key; if the model computes with it, answers are wrong",
               static_cast<int>(std::min<size_t>(value.key.size(), 128)), value.key.data());
  }
  return {};
}

}  // namespace weir
