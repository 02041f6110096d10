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
#include "models/file_kind.h"
#include "models/keys.h"
#include "ops/experts.h"

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
constexpr uint32_t kMaxContext = 1u << 30;

// The pre-tokenizer of an architecture's models, for files that do not name it; null when they differ.
const char* usual_pre(const GgufFile& file, std::string_view arch) {
  const Architecture* known = find_architecture(arch);
  if (known == nullptr || known->pre_vocab == 0) return known == nullptr ? nullptr : known->pre;
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  return tokens != nullptr && tokens->count == known->pre_vocab ? known->pre : nullptr;
}

}  // namespace

// FNV-1a, 64 bits: a fingerprint against mix-ups, not against forgery.
struct Model::Hash {
  uint64_t value = 0xcbf29ce484222325u;
  void add(const void* data, size_t n) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < n; ++i) value = (value ^ bytes[i]) * 0x100000001b3u;
  }
  template <class T>
  void add(const T& number) {
    add(&number, sizeof(number));
  }
  // The first bytes of every tensor tell two trainings of one shape apart.
  void add(const GgufTensor& tensor) {
    add(tensor.name.size());
    add(tensor.name.data(), tensor.name.size());
    add(tensor.type_id);
    for (uint64_t dim : tensor.dims) add(dim);
    add(tensor.data, static_cast<size_t>(std::min<uint64_t>(tensor.bytes, 64)));
  }
};

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
  const bool copy = (flags & WEIR_MODEL_COPY) != 0, describe = (flags & WEIR_MODEL_DESCRIBE_ONLY) != 0;
  const bool vocab_only = (flags & WEIR_MODEL_VOCAB_ONLY) != 0;
  WEIR_TRY(file_.open(path, progress, {.copy = copy, .alone = vocab_only || describe, .any_type = describe}));
  Status status = describe ? read_description(progress) : read(vocab_only, progress);
  // The pages of a mapped file are read when they are first used, unless they are fetched here.
  if (status.ok() && !copy && (flags & WEIR_MODEL_PREFETCH) != 0) status = file_.prefetch(progress);
  if (status.ok()) status = progress.complete();
  return status.ok() ? status : in_file(status, path);
}

// Names and tensors, of whatever file it is.
Status Model::read_description(OpenProgress& progress) {
  WEIR_TRY(names_.build(file_, progress));
  vocab_only_ = true;
  has_text_ = false;
  std::string_view name, arch;
  if (file_.get_string("general.name", name, "").ok()) plain_text(name, model_name_, sizeof(model_name_));
  if (file_.get_string("general.architecture", arch, "").ok()) plain_text(arch, arch_name_, sizeof(arch_name_));
  WEIR_TRY(count_weights(nullptr, progress));
  return progress.repeat();
}

Status Model::read(bool vocab_only, OpenProgress& progress) {
  WEIR_TRY(names_.build(file_, progress));
  vocab_only_ = vocab_only;
  WEIR_TRY(refuse_other_kinds(file_));
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
  has_chat_template_ = !chat.empty();
  answer_format_ = answer_format_of(chat, &tokenizer_);
  WEIR_TRY(find_answer_tokens(tokenizer_, weights_.layers.get_allocator().resource(), answer_format_));
  if (!vocab_only) {
    WEIR_TRY(read_weights());
    // There may be more than notes are kept, and they rarely matter: after all others.
    WEIR_TRY(note_unknown_keys(file_, *config_.arch, progress, notes_));
  } else {
    config_.vocab_size = tokenizer_.vocab_size();
  }
  WEIR_TRY(read_fingerprint(progress));
  return progress.repeat();
}

static Status read_epsilon(const GgufFile& file, const char* prefix, float& eps) {
  const Key key = known_as(file, prefix, "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon");
  WEIR_TRY(file.get_f32(key, eps));
  if (const GgufValue* value = file.find(key); value->type != GgufType::kF32 && value->type != GgufType::kF64)
    return fail(WEIR_ERR_FORMAT, "%s: expected a float, file has %s", key.text, gguf_type_name(value->type));
  if (std::isfinite(eps) && eps >= 0.0f && eps < 1.0f) return {};
  return fail(WEIR_ERR_FORMAT, "%s: %g is not in [0, 1)", key.text, static_cast<double>(eps));
}

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
  WEIR_TRY(read_next_blocks());
  WEIR_TRY(get_ranged(file_, Key(prefix, "embedding_length"), 1, kMaxWidth, c.d_model));
  const Getter of_layers = c.arch->recurrent == Mixer::kNone ? &GgufFile::get_of_layers : &GgufFile::get_of_some_layers;
  const Key ff_key(prefix, "feed_forward_length");
  // Where all layers have experts, files may lack it.
  if (!c.arch->experts || file_.find(ff_key) != nullptr)
    WEIR_TRY(get_ranged(file_, ff_key, 1, kMaxWidth, c.d_ff, of_layers));
  WEIR_TRY(get_ranged(file_, Key(prefix, "attention.head_count"), 1, kMaxHeads, c.n_heads, &GgufFile::get_of_layers));
  WEIR_TRY(get_ranged(file_, Key(prefix, "context_length"), 1, kMaxContext, c.context_tokens));
  WEIR_TRY(read_heads(of_layers));
  WEIR_TRY(read_layer_kinds());
  WEIR_TRY(read_experts());
  WEIR_TRY(refuse_unread_keys(file_, *c.arch));
  WEIR_TRY(read_epsilon(file_, prefix, c.norm_eps));
  c.inner_norm_eps = c.norm_eps;
  c.attn_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  if (c.arch->soft_caps) WEIR_TRY(read_soft_caps());
  if (c.arch->multipliers) WEIR_TRY(read_multipliers());
  if (c.arch->temperature) WEIR_TRY(read_temperature());
  WEIR_TRY(read_rope());
  WEIR_TRY(read_windows());
  if (c.arch->rope_if_trained) {
    bool rotates = false;
    WEIR_TRY(file_.get_bool(Key(prefix, "rope.scaling.finetuned"), rotates, false));
    c.no_rope = !rotates;
  }
  if (c.no_rope || c.arch->no_rope_every != 0) WEIR_TRY(rope_.add_none());
  if (c.arch->adapt != nullptr) c.arch->adapt(c);
  return {};
}

// How many KV heads there are, and the elements of a head.
Status Model::read_heads(Getter of_layers) {
  ModelConfig& c = config_;
  const char* prefix = c.arch->name;
  const Key kv_key(prefix, "attention.head_count_kv");
  c.n_kv_heads = c.n_heads;
  if (file_.find(kv_key) != nullptr) WEIR_TRY((file_.*of_layers)(kv_key, c.n_kv_heads));
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
  return {};
}

// Blocks behind the layers predict tokens after the next one. block_count counts them, unless the last ones of those
// that it counts are plain layers.
Status Model::read_next_blocks() {
  ModelConfig& c = config_;
  const Key key(c.arch->name, "nextn_predict_layers");
  uint32_t n = 0;
  WEIR_TRY(file_.get_u32(key, n, 0));
  if (n >= c.n_layers) return fail(WEIR_ERR_FORMAT, "%s: %u of %u blocks", key.text, n, c.n_layers);
  c.n_next_blocks = n;
  const auto has = [&](const char* name) {
    char text[64];
    std::snprintf(text, sizeof(text), "blk.%u.%s", c.n_layers - 1, name);
    return file_.find_tensor(text) != nullptr;
  };
  for (; n > 0 && (has("nextn.eh_proj.weight") || !has("attn_norm.weight")); --n) --c.n_layers;
  return {};
}

// A number that writers of this architecture's files write.
void Model::note_usual(const char* key, float taken) {
  notes_.warn("%s: the file has no such key; %.7g is taken, and if the model has another, answers are wrong", key,
              static_cast<double>(taken));
}

Status Model::read_soft_caps() {
  const struct {
    const char* key;
    float& cap;
    float usual;
  } caps[] = {{"attn_logit_softcapping", config_.attn_soft_cap, config_.arch->usual_attn_cap},
              {"final_logit_softcapping", config_.logit_soft_cap, config_.arch->usual_logit_cap}};
  for (const auto& entry : caps) {
    const Key key(config_.arch->name, entry.key);
    WEIR_TRY(file_.get_f32(key, entry.cap, entry.usual));
    if (file_.find(key) == nullptr) note_usual(key.text, entry.usual);
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
    if (file_.find(key) == nullptr) note_usual(key.text, entry.factor);
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

Status Model::read_temperature() {
  Temperature& t = config_.temperature;
  const Key beta_key(config_.arch->name, "attention.temperature_scale");
  const Key tokens_key(config_.arch->name, "rope.scaling.original_context_length");
  WEIR_TRY(file_.get_f32(beta_key, t.beta, 0.0f));
  if (!std::isfinite(t.beta) || t.beta < 0.0f || t.beta > 1e6f)
    return fail(WEIR_ERR_FORMAT, "%s: %g is not in 0..1e6", beta_key.text, static_cast<double>(t.beta));
  WEIR_TRY(file_.get_u32(tokens_key, t.n_tokens, config_.context_tokens));
  return t.n_tokens != 0 ? Status() : fail(WEIR_ERR_FORMAT, "%s: 0", tokens_key.text);
}

// Rotation, and what of it is taken for granted: the base, and the part of a head where only a part rotates.
Status Model::read_rope() {
  const ModelConfig& c = config_;
  const char* prefix = c.arch->name;
  RopeTable::Usual usual;
  if (c.arch->usual_rope_base != 0.0f) usual.base = c.arch->usual_rope_base;
  usual.dim = c.arch->rope_part == 0 ? c.head_dim : c.head_dim / c.arch->rope_part;
  const Key base_key = known_as(file_, prefix, "rope.freq_base", "rope.global.freq_base");
  const bool is_optional = c.arch->rope_base_optional && usual_pre(file_, prefix) == nullptr;
  if (file_.find(base_key) == nullptr) {
    if (is_optional) {
      notes_.take_default("%s: the file has no such key; it is %.7g", base_key.text, static_cast<double>(usual.base));
    } else {
      note_usual(base_key.text, usual.base);
    }
  }
  if (const Key key(prefix, "rope.dimension_count"); c.arch->rope_part != 0 && file_.find(key) == nullptr)
    note_usual(key.text, static_cast<float>(usual.dim));
  WEIR_TRY(rope_.read(file_, prefix, c.head_dim, c.context_tokens, usual, c.arch->yarn_rounds));
  std::string_view scaling;
  WEIR_TRY(file_.get_string(Key(prefix, "rope.scaling.type"), scaling, ""));
  const auto note = [&](const char* name, float taken) {
    if (const Key key(prefix, name); file_.find(key) == nullptr) note_usual(key.text, taken);
  };
  if (scaling == "yarn") note("rope.scaling.original_context_length", static_cast<float>(c.context_tokens));
  if ((scaling == "yarn" || scaling == "linear") && file_.find(Key(prefix, "rope.scale_linear")) == nullptr)
    note("rope.scaling.factor", 1.0f);
  // Layers with a window that rotate as the others: a base of their own would be a rotation of its own.
  const Key local_key = known_as(file_, prefix, "rope.freq_base_swa", "rope.local.freq_base");
  if (c.arch->local_rope_base != 0.0f || file_.find(local_key) == nullptr) return {};
  float base = 0.0f, local = 0.0f;
  WEIR_TRY(file_.get_f32(base_key, base, usual.base));
  WEIR_TRY(file_.get_f32(local_key, local));
  if (local == base) return {};
  return fail(WEIR_ERR_UNSUPPORTED, "%s: %g differs from the other layers' base %g; architecture %s rotates all alike",
              local_key.text, static_cast<double>(local), static_cast<double>(base), prefix);
}

// Every how many layers one sees all: a number, or for each layer whether it has the window.
Status Model::read_window_pattern() {
  ModelConfig& c = config_;
  const Key key(c.arch->name, "attention.sliding_window_pattern");
  const GgufValue* value = file_.find(key);
  if (value == nullptr || value->type != GgufType::kArray) {
    WEIR_TRY(file_.get_u32(key, c.global_every, c.arch->global_every));
    return c.global_every != 0 ? Status() : fail(WEIR_ERR_FORMAT, "%s: 0", key.text);
  }
  WEIR_TRY(file_.get_array(key, GgufArray::kFlags, true, value));
  if (value->count < c.n_layers) {
    return fail(WEIR_ERR_FORMAT, "%s: %llu elements for %u layers", key.text,
                static_cast<unsigned long long>(value->count), c.n_layers);
  }
  c.global_every = Architecture::kNeverGlobal;
  for (uint32_t i = 0; i < c.n_layers && c.global_every == Architecture::kNeverGlobal; ++i) {
    if (gguf_integer(*value, i) == 0) c.global_every = i + 1;
  }
  for (uint32_t i = 0; i < c.n_layers; ++i) {
    if ((gguf_integer(*value, i) != 0) == ((i + 1) % c.global_every != 0)) continue;
    return fail(WEIR_ERR_UNSUPPORTED, "%s: layer %u; only one layer in every so many can see all", key.text, i);
  }
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
  WEIR_TRY(read_window_pattern());
  if (c.global_every == 1) {  // none has a window
    c.window = 0;
    return {};
  }
  if (c.arch->local_rope_base == 0.0f) return {};
  const Key base_key = known_as(file_, c.arch->name, "rope.freq_base_swa", "rope.local.freq_base");
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
  WEIR_TRY(count_weights(&hash, progress));
  hash.add(tokenizer_.hash());
  hash.add(rope_.angles().data(), rope_.angles().size() * sizeof(double));
  for (uint32_t i = 0; i < rope_.n_rotations(); ++i) hash.add(rope_.magnitude(i));
  if (config_.window != 0) hash.add(config_.window);
  for (float number : {config_.embedding_scale, config_.logit_scale, config_.attn_soft_cap, config_.logit_soft_cap})
    hash.add(number);
  hash.add(config_.attn_scale);
  if (config_.temperature.beta != 0.0f) {
    hash.add(config_.temperature.beta);
    hash.add(config_.temperature.n_tokens);
  }
  if (const RouteRule& route = config_.route, &usual = config_.arch != nullptr ? config_.arch->route : route;
      route.score != usual.score || route.normalise != usual.normalise || route.scale != usual.scale ||
      route.n_groups != 1 || config_.n_dense_layers != 0) {
    for (uint32_t number : {static_cast<uint32_t>(route.score), uint32_t{route.normalise}, route.n_groups,
                            route.n_groups_used, config_.n_dense_layers})
      hash.add(number);
    hash.add(route.scale);
  }
  fingerprint_ = vocab_only_ ? 0 : hash.value;
  return {};
}

// What the tensors are, into `hash` (may be null) and the facts about the model.
Status Model::count_weights(Hash* hash, OpenProgress& progress) {
  uint64_t bytes_of[256] = {};
  for (const GgufTensor& tensor : file_.tensors()) {
    if (hash != nullptr) hash->add(tensor);
    n_params_ += tensor.n_weights;
    weights_bytes_ += tensor.bytes;
    if (tensor.type_id < 256 && tensor.n_dims > 1) bytes_of[tensor.type_id] += tensor.bytes;
    WEIR_TRY(progress.step());
  }
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
  info.n_parts = file_.n_parts();
  info.copied_bytes = file_.copied_bytes();
  info.fingerprint = fingerprint_;
  info.architecture = arch_name_;
  info.name = model_name_;
  info.weight_type = main_type_;
  info.chat_template = has_chat_template_ ? "jinja" : "";
  info.chat_resembles = "";
  info.tokenizer = has_text_ ? tokenizer_.kind() : "";
}

}  // namespace weir
