// Opening a model: hyper-parameters with their ranges, then tokenizer, then weights; and the facts for
// weir_model_get_info.
#include "models/model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "core/plain_text.h"
#include "kv/checksum.h"

namespace weir {

#define WEIR_ARCH(name) extern const Architecture kArch_##name;
#include "models/models.inc"
#undef WEIR_ARCH

namespace {

constexpr const Architecture* kArchitectures[] = {
#define WEIR_ARCH(name) &kArch_##name,
#include "models/models.inc"
#undef WEIR_ARCH
};

// Ranges far above every published model, low enough that sizes computed from them stay well inside 64 bits.
constexpr uint32_t kMaxLayers = 1024;
constexpr uint32_t kMaxHeads = 1024;
constexpr uint32_t kMaxHeadDim = 1024;
constexpr uint32_t kMaxWidth = 1u << 20;
constexpr uint32_t kMaxContext = 1u << 30;

struct Key {
  char text[128];
  Key(const char* prefix, const char* rest) { std::snprintf(text, sizeof(text), "%s.%s", prefix, rest); }
  operator std::string_view() const { return text; }
};

Status get_ranged(const GgufFile& file, const Key& key, uint32_t low, uint32_t high, uint32_t& out) {
  WEIR_TRY(file.get_u32(key, out));
  if (out < low || out > high) return fail(WEIR_ERR_FORMAT, "%s: %u is not in %u..%u", key.text, out, low, high);
  return {};
}

// The pre-tokenizer of an architecture's models, for files that do not name it; null when they differ.
const char* usual_pre(const GgufFile& file, std::string_view arch) {
  const Architecture* known = find_architecture(arch);
  if (known == nullptr || known->pre_vocab == 0) return known == nullptr ? nullptr : known->pre;
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  return tokens != nullptr && tokens->count == known->pre_vocab ? known->pre : nullptr;
}

// FNV-1a, 64 bits: a fingerprint against mix-ups, not against forgery.
struct Hash {
  uint64_t value = 0xcbf29ce484222325u;
  void add(const void* data, size_t n) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < n; ++i) value = (value ^ bytes[i]) * 0x100000001b3u;
  }
  template <class T>
  void add(const T& number) {
    add(&number, sizeof(number));
  }
};

}  // namespace

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture* arch : kArchitectures) {
    if (name == arch->name) return arch;
  }
  return nullptr;
}

Status NameTable::build(const GgufFile& file, OpenProgress& progress) {
  n_keys_ = file.values().size();
  size_t bytes = 0;
  for (const GgufValue& value : file.values()) bytes += value.key.size() + 1;
  for (const GgufTensor& tensor : file.tensors()) bytes += tensor.name.size() + 1;
  text_.reserve(bytes);
  at_.reserve(n_keys_ + file.tensors().size());
  const auto add = [&](std::string_view name) {
    at_.push_back(text_.size());
    text_.append(name);
    text_.push_back('\0');
    return progress.step();
  };
  for (const GgufValue& value : file.values()) WEIR_TRY(add(value.key));
  for (const GgufTensor& tensor : file.tensors()) WEIR_TRY(add(tensor.name));
  return {};
}

Status Model::open(const char* path, uint32_t flags, weir_progress_fn fn, void* user) {
  OpenProgress progress(fn, user);
  const bool copy = (flags & WEIR_MODEL_COPY) != 0;
  WEIR_TRY(copy ? file_.open_copy(path, progress) : file_.open(path, progress));
  Status status = read((flags & WEIR_MODEL_VOCAB_ONLY) != 0, progress);
  // The pages of a mapped file are read when they are first used, unless they are fetched here.
  if (status.ok() && !copy && (flags & WEIR_MODEL_PREFETCH) != 0) status = file_.prefetch(progress);
  if (status.ok()) status = progress.complete();
  return status.ok() ? status : in_file(status, path);
}

Status Model::read(bool vocab_only, OpenProgress& progress) {
  WEIR_TRY(names_.build(file_, progress));
  vocab_only_ = vocab_only;
  std::string_view name;
  WEIR_TRY(file_.get_string("general.name", name, ""));
  plain_text(name, model_name_, sizeof(model_name_));
  std::string_view arch;
  WEIR_TRY(file_.get_string("general.architecture", arch));
  plain_text(arch, arch_name_, sizeof(arch_name_));
  if (!vocab_only) WEIR_TRY(read_config(arch));
  WEIR_TRY(tokenizer_.build(file_, usual_pre(file_, arch), progress, notes_));
  std::string_view chat;
  WEIR_TRY(file_.get_string("tokenizer.chat_template", chat, ""));
  chat_template_ = chat_template_of(chat);
  if (!vocab_only) {
    WEIR_TRY(read_weights());
  } else {
    config_.vocab_size = tokenizer_.vocab_size();
  }
  WEIR_TRY(read_fingerprint(progress));
  return progress.repeat();
}

namespace {

// Numbers that change what a model computes and that nothing here reads; 0 leaves them out, and so does a factor of 1.
// An architecture that has one of them reads it and takes it off this list.
Status refuse_unread_numbers(const GgufFile& file, const Architecture& arch) {
  const char* prefix = arch.name;
  const struct {
    const char* key;
    bool is_factor;
    bool is_read;
  } numbers[] = {
      {"attn_logit_softcapping", false, arch.soft_caps}, {"final_logit_softcapping", false, arch.soft_caps},
      {"attention.scale", false, arch.multipliers},      {"attention.clamp_kqv", false, false},
      {"attention.max_alibi_bias", false, false},        {"attention.temperature_scale", false, false},
      {"embedding_scale", true, arch.multipliers},       {"residual_scale", true, arch.multipliers},
      {"logit_scale", true, arch.multipliers},           {"expert_weights_scale", true, false},
  };
  for (const auto& entry : numbers) {
    if (entry.is_read) continue;
    const Key key(prefix, entry.key);
    float number = 0.0f;
    WEIR_TRY(file.get_f32(key, number, 0.0f));
    if (number == 0.0f || (entry.is_factor && number == 1.0f)) continue;
    return fail(WEIR_ERR_UNSUPPORTED, "%s: %g; architecture %s does not compute with it", key.text,
                static_cast<double>(number), prefix);
  }
  return {};
}

}  // namespace

Status Model::read_config(std::string_view arch) {
  ModelConfig& c = config_;
  c.arch = find_architecture(arch);
  if (c.arch == nullptr) {
    char names[24 * std::size(kArchitectures)] = "";
    size_t used = 0;
    for (const Architecture* known : kArchitectures)
      used += static_cast<size_t>(std::snprintf(names + used, sizeof(names) - used, " %.22s", known->name));
    return fail(WEIR_ERR_UNSUPPORTED, "general.architecture: \"%s\" is not known; there are:%s", arch_name_, names);
  }
  const char* prefix = c.arch->name;
  WEIR_TRY(get_ranged(file_, Key(prefix, "block_count"), 1, kMaxLayers, c.n_layers));
  WEIR_TRY(get_ranged(file_, Key(prefix, "embedding_length"), 1, kMaxWidth, c.d_model));
  WEIR_TRY(get_ranged(file_, Key(prefix, "feed_forward_length"), 1, kMaxWidth, c.d_ff));
  WEIR_TRY(get_ranged(file_, Key(prefix, "attention.head_count"), 1, kMaxHeads, c.n_heads));
  WEIR_TRY(get_ranged(file_, Key(prefix, "context_length"), 1, kMaxContext, c.context_tokens));
  const Key kv_key(prefix, "attention.head_count_kv");
  WEIR_TRY(file_.get_u32(kv_key, c.n_kv_heads, c.n_heads));
  if (c.n_kv_heads == 0 || c.n_kv_heads > c.n_heads || c.n_heads % c.n_kv_heads != 0) {
    return fail(WEIR_ERR_FORMAT, "%s: %u does not divide the %u query heads", kv_key.text, c.n_kv_heads, c.n_heads);
  }
  const Key dim_key(prefix, "attention.key_length");
  WEIR_TRY(file_.get_u32(dim_key, c.head_dim, c.d_model / c.n_heads));
  if (c.head_dim < 8 || c.head_dim > kMaxHeadDim || c.head_dim % 8 != 0) {
    return fail(WEIR_ERR_FORMAT, "%s: a head of %u elements; a multiple of 8 from 8 to %u is needed", dim_key.text,
                c.head_dim, kMaxHeadDim);
  }
  uint32_t value_dim = 0;
  const Key value_key(prefix, "attention.value_length");
  WEIR_TRY(file_.get_u32(value_key, value_dim, c.head_dim));
  if (value_dim != c.head_dim)
    return fail(WEIR_ERR_UNSUPPORTED, "%s: %u differs from the key size %u", value_key.text, value_dim, c.head_dim);
  WEIR_TRY(read_experts());
  WEIR_TRY(refuse_unread_numbers(file_, *c.arch));
  const Key eps_key(prefix, "attention.layer_norm_rms_epsilon");
  WEIR_TRY(file_.get_f32(eps_key, c.norm_eps));
  if (!(std::isfinite(c.norm_eps) && c.norm_eps >= 0.0f && c.norm_eps < 1.0f)) {
    return fail(WEIR_ERR_FORMAT, "%s: %g is not in [0, 1)", eps_key.text, static_cast<double>(c.norm_eps));
  }
  c.attn_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  if (c.arch->soft_caps) WEIR_TRY(read_soft_caps());
  if (c.arch->multipliers) WEIR_TRY(read_multipliers());
  WEIR_TRY(rope_.read(file_, prefix, c.head_dim, c.context_tokens, c.arch->yarn_rounds));
  WEIR_TRY(read_windows());
  if (c.arch->no_rope_every != 0) WEIR_TRY(rope_.add_none());
  if (c.arch->adapt != nullptr) c.arch->adapt(c);
  return {};
}

Status Model::read_soft_caps() {
  const struct {
    const char* key;
    float& cap;
  } caps[] = {{"attn_logit_softcapping", config_.attn_soft_cap}, {"final_logit_softcapping", config_.logit_soft_cap}};
  for (const auto& entry : caps) {
    const Key key(config_.arch->name, entry.key);
    WEIR_TRY(file_.get_f32(key, entry.cap, 0.0f));
    if (!std::isfinite(entry.cap) || entry.cap < 0.0f)
      return fail(WEIR_ERR_FORMAT, "%s: %g is not a cap", key.text, static_cast<double>(entry.cap));
  }
  return {};
}

// Factors of the embeddings, of what each layer adds, of the attention logits, and a divisor of the output logits.
// Instead of what is added, the residual stream is scaled: with x = r x', x + r f becomes x' + f, and a norm of x' is
// that of x if its epsilon is divided by r * r. So layers need no factor of their own.
Status Model::read_multipliers() {
  ModelConfig& c = config_;
  float residual = 1.0f, logits = 1.0f, attention = 0.0f;
  const struct {
    const char* key;
    float& factor;
  } factors[] = {{"embedding_scale", c.embedding_scale},
                 {"residual_scale", residual},
                 {"logit_scale", logits},
                 {"attention.scale", attention}};
  for (const auto& entry : factors) {
    const Key key(c.arch->name, entry.key);
    const float otherwise = entry.factor == 0.0f ? c.attn_scale : 1.0f;
    WEIR_TRY(file_.get_f32(key, entry.factor, otherwise));
    if (entry.factor == 0.0f) entry.factor = otherwise;  // files have 0 for a factor that the model does not use
    if (!std::isfinite(entry.factor) || entry.factor < 1e-6f || entry.factor > 1e6f)
      return fail(WEIR_ERR_FORMAT, "%s: %g is not a factor in 1e-6..1e6", key.text, static_cast<double>(entry.factor));
  }
  c.attn_scale = attention;
  c.embedding_scale /= residual;
  c.norm_eps /= residual * residual;
  c.logit_scale = 1.0f / logits;
  return {};
}

// The sizes of a mixture of experts. Files of other architectures may say that they have none.
Status Model::read_experts() {
  ModelConfig& c = config_;
  const char* prefix = c.arch->name;
  const Key count_key(prefix, "expert_count"), used_key(prefix, "expert_used_count");
  if (!c.arch->experts) {
    uint32_t n_experts = 0;
    WEIR_TRY(file_.get_u32(count_key, n_experts, 0));
    if (n_experts == 0) return {};
    return fail(WEIR_ERR_UNSUPPORTED, "%s: %u; architecture %s has no experts here", count_key.text, n_experts, prefix);
  }
  WEIR_TRY(get_ranged(file_, count_key, 1, kMostExperts, c.n_experts));
  WEIR_TRY(get_ranged(file_, used_key, 1, std::min(c.n_experts, kMostExpertsUsed), c.n_experts_used));
  const auto get_width = [&](const char* name, uint32_t otherwise, uint32_t& out) -> Status {
    const Key key(prefix, name);
    WEIR_TRY(file_.get_u32(key, out, otherwise));
    if (out == 0 || out > kMaxWidth) return fail(WEIR_ERR_FORMAT, "%s: %u is not in 1..%u", key.text, out, kMaxWidth);
    return {};
  };
  // Files of 2024 lack the two widths.
  WEIR_TRY(get_width("expert_feed_forward_length", c.d_ff / c.n_experts_used, c.expert_ff));
  if (c.arch->shared_expert) WEIR_TRY(get_width("expert_shared_feed_forward_length", c.d_ff, c.shared_ff));
  // How the router weighs experts is the architecture's, unless the file has another way.
  uint32_t gating = 0, groups = 0;
  const Key gating_key(prefix, "expert_gating_func"), groups_key(prefix, "expert_group_count");
  WEIR_TRY(file_.get_u32(gating_key, gating, 0));
  if (gating > 1) return fail(WEIR_ERR_UNSUPPORTED, "%s: %u; only softmax is known", gating_key.text, gating);
  WEIR_TRY(file_.get_u32(groups_key, groups, 0));
  if (groups > 1) return fail(WEIR_ERR_UNSUPPORTED, "%s: %u", groups_key.text, groups);
  return {};
}

// Which layers see a window, and how those rotate.
Status Model::read_windows() {
  ModelConfig& c = config_;
  const Key window_key(c.arch->name, "attention.sliding_window");
  if (c.arch->global_every != 0 && c.arch->global_every != Architecture::kNeverGlobal) {
    WEIR_TRY(get_ranged(file_, window_key, 1, kMaxContext, c.window));
  } else {
    uint32_t window = 0;
    WEIR_TRY(file_.get_u32(window_key, window, 0));
    if (window == 0 || window >= c.context_tokens) return {};  // it hides nothing
    if (c.arch->global_every == 0) {
      return fail(WEIR_ERR_UNSUPPORTED, "%s: %u; architecture %s has no sliding-window layers", window_key.text, window,
                  c.arch->name);
    }
    c.window = window;
    c.global_every = Architecture::kNeverGlobal;
    return {};
  }
  const Key every_key(c.arch->name, "attention.sliding_window_pattern");
  WEIR_TRY(file_.get_u32(every_key, c.global_every, c.arch->global_every));
  if (c.global_every == 0) return fail(WEIR_ERR_FORMAT, "%s: 0", every_key.text);
  if (c.arch->local_rope_base == 0.0f) return {};
  const Key base_key(c.arch->name, "rope.freq_base_swa");
  float base = 0.0f;
  WEIR_TRY(file_.get_f32(base_key, base, c.arch->local_rope_base));
  return rope_.add(base_key, base);
}

uint64_t Model::sampled_weights() const {
  constexpr uint64_t kSamples = 16, kBytes = 64;
  Checksum sum;
  for (const GgufTensor& tensor : file_.tensors()) {
    const uint64_t n = std::min(tensor.bytes, kBytes);
    for (uint64_t i = 0; i < kSamples; ++i) sum.add(tensor.data + (tensor.bytes - n) / (kSamples - 1) * i, n);
  }
  return sum.value();
}

Status Model::read_fingerprint(OpenProgress& progress) {
  Hash hash;
  hash.add(arch_name_, std::strlen(arch_name_));
  for (uint32_t number : {config_.n_layers, config_.n_heads, config_.n_kv_heads, config_.head_dim, config_.d_model,
                          config_.d_ff, config_.vocab_size, config_.context_tokens}) {
    hash.add(number);
  }
  hash.add(config_.norm_eps);
  uint64_t bytes_of[256] = {};
  for (const GgufTensor& tensor : file_.tensors()) {
    hash.add(tensor.name.size());
    hash.add(tensor.name.data(), tensor.name.size());
    hash.add(tensor.type_id);
    for (uint64_t dim : tensor.dims) hash.add(dim);
    // The first bytes of every tensor tell two trainings of one shape apart.
    hash.add(tensor.data, static_cast<size_t>(std::min<uint64_t>(tensor.bytes, 64)));
    n_params_ += tensor.n_weights;
    weights_bytes_ += tensor.bytes;
    if (tensor.type_id < 256 && tensor.n_dims > 1) bytes_of[tensor.type_id] += tensor.bytes;
    WEIR_TRY(progress.step());
  }
  hash.add(tokenizer_.hash());
  hash.add(rope_.angles().data(), rope_.angles().size() * sizeof(double));
  for (uint32_t i = 0; i < rope_.n_rotations(); ++i) hash.add(rope_.magnitude(i));
  if (config_.window != 0) hash.add(config_.window);
  for (float number : {config_.embedding_scale, config_.logit_scale, config_.attn_soft_cap, config_.logit_soft_cap})
    hash.add(number);
  hash.add(config_.attn_scale);
  fingerprint_ = vocab_only_ ? 0 : hash.value;
  uint64_t most = 0;
  for (const GgufTensor& tensor : file_.tensors()) {
    if (tensor.type_id >= 256 || bytes_of[tensor.type_id] <= most) continue;
    most = bytes_of[tensor.type_id];
    main_type_ = tensor.type_name;
  }
  return {};
}

void Model::get_info(weir_model_info& info) const {
  info.n_layers = config_.n_layers;
  info.n_heads = config_.n_heads;
  info.n_kv_heads = config_.n_kv_heads;
  info.head_dim = config_.head_dim;
  info.d_model = config_.d_model;
  info.d_ff = config_.d_ff;
  info.vocab_size = config_.vocab_size;
  info.context_tokens = config_.context_tokens;
  info.n_tensors = static_cast<uint32_t>(file_.tensors().size());
  info.n_params = n_params_;
  info.weights_bytes = weights_bytes_;
  info.file_bytes = file_.file_bytes();
  info.copied_bytes = file_.copied_bytes();
  info.fingerprint = fingerprint_;
  info.architecture = arch_name_;
  info.name = model_name_;
  info.weight_type = main_type_;
  info.chat_template = chat_template_.name();
  info.chat_resembles = chat_template_.resembles();
  info.tokenizer = tokenizer_.kind();
}

}  // namespace weir
