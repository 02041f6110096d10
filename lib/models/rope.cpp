// Frequencies of rotary position embedding.
#include "models/rope.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numbers>

#include "models/keys.h"

namespace weir {

// What the keys <prefix>.rope.scaling.* say.
struct RopeTable::Scaling {
  std::string_view type;
  float factor = 1.0f;
  uint32_t original_tokens = 0;
  float ext_factor = 1.0f, attn_factor = 1.0f;
  float log_multiplier = 0.0f;                // of the part of YaRN's magnitude that is taken back
  float beta_fast = 32.0f, beta_slow = 1.0f;  // the paper's values for Llama models
  bool rounds = true;                         // the dimensions between which YaRN blends
  Status read(const GgufFile& file, std::string_view prefix, uint32_t trained_tokens);
};

// An optional tensor [rope_dim / 2] f32 that divides the angles.
struct RopeTable::Divisors {
  const uint8_t* data = nullptr;  // null: all are 1
  Status read(const GgufFile& file, const char* name, uint32_t rope_dim);
  float at(uint32_t i) const {
    float divisor = 1.0f;
    if (data != nullptr) std::memcpy(&divisor, data + size_t{i} * sizeof(float), sizeof(float));
    return divisor;
  }
};

namespace {

Status check_base(std::string_view key, float base) {
  if (std::isfinite(base) && base > 1.0f) return {};
  return fail(WEIR_ERR_FORMAT, "%.*s: %g is not a number above 1", static_cast<int>(key.size()), key.data(),
              static_cast<double>(base));
}

// Dimension index at which `turns` full turns fit into the original context (YaRN, sec. 3.2).
double yarn_dim(double turns, double rope_dim, double base, double original_tokens) {
  return rope_dim * std::log(original_tokens / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(base));
}

}  // namespace

Status RopeTable::Scaling::read(const GgufFile& file, std::string_view prefix, uint32_t trained_tokens) {
  Scaling& s = *this;
  float legacy = 0.0f;
  WEIR_TRY(file.get_string(Key(prefix, "rope.scaling.type"), s.type, ""));
  WEIR_TRY(file.get_f32(Key(prefix, "rope.scaling.factor"), s.factor, 0.0f));
  WEIR_TRY(file.get_f32(Key(prefix, "rope.scale_linear"), legacy, 0.0f));  // what files of 2023 call it
  if (s.factor == 0.0f) s.factor = legacy;
  if (s.factor == 0.0f) s.factor = 1.0f;
  if (s.type.empty()) s.type = "linear";  // a factor without a type stretches linearly; without a factor that is none
  if (!(std::isfinite(s.factor) && s.factor > 0.0f)) {
    return fail(WEIR_ERR_FORMAT, "%s: %g is not a positive number", Key(prefix, "rope.scaling.factor").text,
                static_cast<double>(s.factor));
  }
  WEIR_TRY(file.get_u32(Key(prefix, "rope.scaling.original_context_length"), s.original_tokens, trained_tokens));
  WEIR_TRY(file.get_f32(Key(prefix, "rope.scaling.attn_factor"), s.attn_factor, 1.0f));
  WEIR_TRY(file.get_f32(Key(prefix, "rope.scaling.yarn_ext_factor"), s.ext_factor, 1.0f));
  WEIR_TRY(file.get_f32(Key(prefix, "rope.scaling.yarn_attn_factor"), s.attn_factor, s.attn_factor));
  WEIR_TRY(file.get_f32(Key(prefix, "rope.scaling.yarn_beta_fast"), s.beta_fast, s.beta_fast));
  WEIR_TRY(file.get_f32(Key(prefix, "rope.scaling.yarn_beta_slow"), s.beta_slow, s.beta_slow));
  WEIR_TRY(file.get_f32(Key(prefix, "rope.scaling.yarn_log_multiplier"), s.log_multiplier, 0.0f));
  const float numbers[] = {s.attn_factor, s.ext_factor, s.beta_fast, s.beta_slow, s.log_multiplier};
  for (float number : numbers) {
    if (!std::isfinite(number) || number < 0.0f)
      return fail(WEIR_ERR_FORMAT, "%.*s.rope.scaling.*: a value is negative or not finite",
                  static_cast<int>(prefix.size()), prefix.data());
  }
  return {};
}

Status RopeTable::Divisors::read(const GgufFile& file, const char* name, uint32_t rope_dim) {
  const GgufTensor* tensor = file.find_tensor(name);
  if (tensor == nullptr) return {};
  if (tensor->type_id != 0 || tensor->n_weights != rope_dim / 2) {
    return fail(WEIR_ERR_FORMAT, "%s: expected [%u] f32, file has [%llu] %s", name, rope_dim / 2,
                static_cast<unsigned long long>(tensor->n_weights), tensor->type_name);
  }
  data = tensor->data;
  for (uint32_t i = 0; i < rope_dim / 2; ++i) {
    if (!std::isfinite(at(i)) || at(i) == 0.0f)
      return fail(WEIR_ERR_FORMAT, "%s: element %u is %g", name, i, static_cast<double>(at(i)));
  }
  return {};
}

Status RopeTable::read(const GgufFile& file, std::string_view prefix, uint32_t head_dim, uint32_t trained_tokens,
                       const Usual& usual, bool yarn_rounds) {
  uint32_t dim = 0;
  float base = 0.0f;
  Scaling s;
  const Key base_key = known_as(file, prefix, "rope.freq_base", "rope.global.freq_base");
  WEIR_TRY(file.get_u32(Key(prefix, "rope.dimension_count"), dim, usual.dim == 0 ? head_dim : usual.dim));
  WEIR_TRY(file.get_f32(base_key, base, usual.base));
  if (dim == 0 || dim % 2 != 0 || dim > head_dim) {
    return fail(WEIR_ERR_FORMAT, "%s: %u is not an even number from 2 to the head size %u",
                Key(prefix, "rope.dimension_count").text, dim, head_dim);
  }
  WEIR_TRY(check_base(base_key, base));
  WEIR_TRY(s.read(file, prefix, trained_tokens));
  s.rounds = yarn_rounds;
  Divisors divisors[3];  // of kTensors
  for (uint32_t i = 0; i < 3; ++i) WEIR_TRY(divisors[i].read(file, kTensors[i], dim));
  const auto& [all, of_short, of_long] = divisors;
  if ((of_short.data == nullptr) != (of_long.data == nullptr)) {
    return fail(WEIR_ERR_FORMAT, "%s: the file has no such tensor, but %s", kTensors[of_short.data == nullptr ? 1 : 2],
                kTensors[of_short.data == nullptr ? 2 : 1]);
  }
  const bool yarn = s.type == "yarn", long_rope = of_long.data != nullptr;
  if (s.type != "none" && s.type != "linear" && !yarn && !(long_rope && s.type == "longrope")) {
    return fail(WEIR_ERR_UNSUPPORTED, "%s: frequency scaling \"%.*s\" is not known; there are none, linear and yarn",
                Key(prefix, "rope.scaling.type").text, static_cast<int>(std::min<size_t>(s.type.size(), 64)),
                s.type.data());
  }
  if ((yarn || long_rope) && s.original_tokens == 0)
    return fail(WEIR_ERR_FORMAT, "%s: 0", Key(prefix, "rope.scaling.original_context_length").text);

  rope_dim_ = dim;
  if (long_rope) short_tokens_ = s.original_tokens;
  if (s.type == "longrope") s.factor = 1.0f;  // it is in the divisors
  add_scaled(base, s, long_rope ? of_short : all);
  if (long_rope) add_scaled(base, s, of_long);
  return {};
}

void RopeTable::add_scaled(double base, const Scaling& s, const Divisors& divisors) {
  const uint32_t dim = rope_dim_;
  const bool yarn = s.type == "yarn";
  double low = yarn ? yarn_dim(s.beta_fast, dim, base, s.original_tokens) : 0.0;
  double high = yarn ? yarn_dim(s.beta_slow, dim, base, s.original_tokens) : 0.0;
  low = std::max(0.0, s.rounds ? std::floor(low) : low);
  high = std::min(dim - 1.0, s.rounds ? std::ceil(high) : high);
  const bool stretches = yarn && s.ext_factor != 0.0f && s.factor > 1.0f;
  const double log = stretches ? 0.1 * std::log(s.factor) : 0.0;
  magnitude_[n_rotations()] = s.attn_factor * ((1.0 + log) / (1.0 + s.log_multiplier * log));
  for (uint32_t i = 0; i < dim / 2; ++i) {
    const double angle = std::pow(base, -2.0 * i / dim) / divisors.at(i);
    const double stretched = s.type == "none" ? angle : angle / s.factor;
    if (yarn) {
      // Fast dimensions keep their angle, slow ones are stretched, those between are mixed.
      const double ramp = std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0);
      const double keep = (1.0 - ramp) * s.ext_factor;
      angle_.push_back(stretched * (1.0 - keep) + angle * keep);
    } else {
      angle_.push_back(stretched);
    }
  }
}

Status RopeTable::add(std::string_view key, float base) {
  WEIR_TRY(check_base(key, base));
  if (n_rotations() == kMaxRotations)
    return fail(WEIR_ERR_INTERNAL, "%.*s: a model of more than %u rotations", static_cast<int>(key.size()), key.data(),
                kMaxRotations);
  for (uint32_t i = 0; i < rope_dim_ / 2; ++i)
    angle_.push_back(std::pow(static_cast<double>(base), -2.0 * i / rope_dim_));
  return {};
}

Status RopeTable::add_none() {
  if (n_rotations() == kMaxRotations)
    return fail(WEIR_ERR_INTERNAL, "a model of more than %u rotations", kMaxRotations);
  angle_.resize(angle_.size() + rope_dim_ / 2, 0.0);
  return {};
}

void RopeTable::fill(uint32_t rotation, uint64_t pos, float* cos_sin) const {
  const double* angles = angle_.data() + size_t{rotation} * (rope_dim_ / 2);
  for (size_t i = 0; i < rope_dim_ / 2; ++i) {
    const double angle = static_cast<double>(pos) * angles[i];
    cos_sin[2 * i] = static_cast<float>(std::cos(angle) * magnitude_[rotation]);
    cos_sin[2 * i + 1] = static_cast<float>(std::sin(angle) * magnitude_[rotation]);
  }
}

}  // namespace weir
