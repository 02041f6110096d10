// Writes small models with random weights, for shapes that no model of the repository has. The runtime maps the file,
// and the caller removes it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "api/handles.h"
#include "tests/device/device_test.h"
#include "tools/lab/gguf_write.cpp"

namespace weir::test {

using weir_cli::GgufWriter;

inline constexpr uint32_t kVocab = 387;  // not a multiple of anything

struct RandomModel {
  const char* architecture;
  uint32_t n_heads, n_kv_heads, head_dim;
  const char* type;
  uint32_t n_layers = 2;
  uint32_t context_tokens = 4096;
  bool equal_keys = false;   // of all tokens and positions: only qwen2's bias, not rotated
  bool equal_heads = false;  // all query heads have the same query; not for qwen2, whose biases differ
  // What no file of these architectures can say; bend() adds it to the opened model.
  bool sinks = false;  // of attention
  float soft_cap = 0.0f, logit_soft_cap = 0.0f;
  uint32_t vocab_size = kVocab;
};

// For the names of tests.
inline std::string name_of(const RandomModel& m) {
  std::string name = m.architecture;
  for (uint32_t n : {m.n_heads, m.n_kv_heads, m.head_dim}) name += "_" + std::to_string(n);
  name += std::string("_") + m.type;
  if (m.n_layers != 2) name += "_layers_" + std::to_string(m.n_layers);
  if (m.equal_keys) name += "_equal_keys";
  if (m.equal_heads) name += "_equal_heads";
  if (m.sinks) name += "_sinks";
  if (m.soft_cap != 0.0f) name += "_soft_cap";
  if (m.logit_soft_cap != 0.0f) name += "_logit_soft_cap";
  return name;
}

// Two control tokens, one merge, and fillers.
inline void add_tokenizer(GgufWriter& file, uint32_t vocab_size) {
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_end|>", "t", "h", "th"};
  std::vector<int32_t> types = {3, 3, 1, 1, 1};
  while (tokens.size() < vocab_size) {
    tokens.push_back("w" + std::to_string(tokens.size()));
    types.push_back(1);
  }
  file.add_string("tokenizer.ggml.model", "gpt2");
  file.add_string("tokenizer.ggml.pre", "llama-bpe");
  file.add_strings("tokenizer.ggml.tokens", tokens);
  file.add_i32s("tokenizer.ggml.token_type", types);
  file.add_strings("tokenizer.ggml.merges", {"t h"});
  file.add_u32("tokenizer.ggml.bos_token_id", 0);
  file.add_u32("tokenizer.ggml.eos_token_id", 0);
}

inline void add_metadata(GgufWriter& file, const RandomModel& s) {
  const std::string a = s.architecture;
  file.add_string("general.architecture", a);
  file.add_u32(a + ".context_length", s.context_tokens);
  file.add_u32(a + ".embedding_length", s.n_heads * s.head_dim);
  file.add_u32(a + ".block_count", s.n_layers);
  file.add_u32(a + ".feed_forward_length", 768);
  file.add_u32(a + ".attention.head_count", s.n_heads);
  file.add_u32(a + ".attention.head_count_kv", s.n_kv_heads);
  file.add_u32(a + ".attention.key_length", s.head_dim);
  file.add_u32(a + ".attention.value_length", s.head_dim);
  file.add_u32(a + ".rope.dimension_count", s.head_dim);
  file.add_f32(a + ".rope.freq_base", 10000.0f);
  file.add_f32(a + ".attention.layer_norm_rms_epsilon", 1e-5f);
  file.add_u32(a + ".vocab_size", s.vocab_size);
  if (!s.equal_keys) return;
  file.add_string(a + ".rope.scaling.type", "linear");
  file.add_f32(a + ".rope.scaling.factor", 1e30f);
}

inline void add_tensors(GgufWriter& file, const RandomModel& s) {
  const weir_cli::WeightType &type = weir_cli::weight_type(s.type), &f32 = weir_cli::weight_type("f32");
  const uint64_t q = uint64_t{s.n_heads} * s.head_dim, kv = uint64_t{s.n_kv_heads} * s.head_dim, d = q;
  const std::string a = s.architecture;
  file.add_tensor("token_embd.weight", {s.vocab_size, d}, type);
  file.add_tensor("output_norm.weight", {d}, f32);
  file.add_tensor("output.weight", {s.vocab_size, d}, type);
  for (uint32_t i = 0; i < s.n_layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    file.add_tensor(layer + "attn_norm.weight", {d}, f32);
    file.add_tensor(layer + "attn_q.weight", {q, d}, type);
    file.add_tensor(layer + "attn_k.weight", {kv, d}, type);
    file.add_tensor(layer + "attn_v.weight", {kv, d}, type);
    if (a == "qwen2") {
      file.add_tensor(layer + "attn_q.bias", {q}, f32);
      file.add_tensor(layer + "attn_k.bias", {kv}, f32);
      file.add_tensor(layer + "attn_v.bias", {kv}, f32);
    }
    if (a == "qwen3") {
      file.add_tensor(layer + "attn_q_norm.weight", {s.head_dim}, f32);
      file.add_tensor(layer + "attn_k_norm.weight", {s.head_dim}, f32);
    }
    file.add_tensor(layer + "attn_output.weight", {d, q}, type);
    file.add_tensor(layer + "ffn_norm.weight", {d}, f32);
    file.add_tensor(layer + "ffn_gate.weight", {768, d}, type);
    file.add_tensor(layer + "ffn_up.weight", {768, d}, type);
    file.add_tensor(layer + "ffn_down.weight", {d, 768}, type);
  }
}

inline uint64_t next_random(uint64_t& state) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545f4914f6cdd1du;
}

// Never a control token.
inline weir_token random_token(uint64_t& state) {
  return static_cast<weir_token>(2 + next_random(state) % (kVocab - 2));
}

// Weights of about 0.05, and vectors of about 1.
inline std::vector<uint8_t> random_bytes(const GgufWriter::Tensor& tensor, uint64_t& state) {
  std::vector<uint8_t> bytes(tensor.bytes);
  const std::string type = tensor.type->name;
  const bool is_vector = tensor.dims.size() == 1;
  for (uint64_t at = 0; at < bytes.size(); at += tensor.type->block_bytes) {
    const double x = static_cast<double>(next_random(state) >> 11) * 0x1p-53 - 0.5;
    const auto value = static_cast<float>(is_vector ? 1.0 + x : 0.2 * x);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    if (type == "f32") {
      std::memcpy(&bytes[at], &bits, 4);
    } else if (type == "bf16") {
      const auto high = static_cast<uint16_t>(bits >> 16);
      std::memcpy(&bytes[at], &high, 2);
    } else if (type == "f16") {  // 2^-7 to 2^-4, both signs
      const auto half =
          static_cast<uint16_t>((next_random(state) & 0x8000u) | (8u << 10) | (next_random(state) % 3072u));
      std::memcpy(&bytes[at], &half, 2);
    } else {                          // q8_0: one scale and 32 bytes
      const uint16_t scale = 0x1000;  // 4.9e-4
      std::memcpy(&bytes[at], &scale, 2);
      for (uint32_t i = 2; i < 34; ++i) bytes[at + i] = static_cast<uint8_t>(next_random(state) >> 40);
    }
  }
  return bytes;
}

// Changes a tensor as the model's flags say.
inline void make_equal(const RandomModel& s, const std::string& name, std::vector<uint8_t>& bytes) {
  if (s.equal_keys && name.ends_with("attn_k.weight")) std::fill(bytes.begin(), bytes.end(), uint8_t{0});
  if (!s.equal_heads || !name.ends_with("attn_q.weight")) return;
  const size_t head_bytes = bytes.size() / s.n_heads;
  for (uint32_t head = 1; head < s.n_heads; ++head) std::memcpy(&bytes[head * head_bytes], bytes.data(), head_bytes);
}

inline std::string write_random_model(const RandomModel& s) {
  GgufWriter file;
  add_metadata(file, s);
  add_tokenizer(file, s.vocab_size);
  add_tensors(file, s);
  std::string path = (std::filesystem::temp_directory_path() / "weir-shape-XXXXXX").string();
  const int descriptor = mkstemp(path.data());
  assert_true(descriptor >= 0);
  close(descriptor);
  uint64_t state = 88172645463325252u;
  std::vector<uint8_t> bytes;
  std::string name;
  file.write(
      path,
      [&](const GgufWriter::Tensor& tensor, uint64_t offset, uint64_t) {
        if (tensor.name != name) {
          bytes = random_bytes(tensor, state);
          make_equal(s, tensor.name, bytes);
        }
        name = tensor.name;
        return bytes.data() + offset;
      },
      [](uint64_t, uint64_t) {});
  return path;
}

// Gives an opened model, of which there is no session yet, the sinks and soft caps of `s`. The sinks take from next to
// nothing to most of the softmax over some hundred tokens.
inline void bend(weir_model* opened, const RandomModel& s) {
  static constexpr float kSinks[] = {3.0f, 6.0f, -2.0f, 4.5f, 5.0f, 0.0f, 7.0f, 4.0f,  2.5f, 5.5f, 3.5f,
                                     6.5f, 1.0f, 5.0f,  4.0f, 6.0f, 1.5f, 6.5f, -1.0f, 3.5f, 4.0f, 0.5f,
                                     5.0f, 2.0f, 7.0f,  3.0f, 2.5f, 5.5f, 0.0f, 4.5f,  6.0f, 1.0f};
  assert_true(!s.sinks || s.n_heads <= std::size(kSinks));
  auto& weights = const_cast<ModelWeights&>(opened->model.weights());
  auto& config = const_cast<ModelConfig&>(opened->model.config());
  for (Layer& layer : weights.layers) {
    layer.attention.sinks = s.sinks ? kSinks : nullptr;
    layer.attention.soft_cap = s.soft_cap;
  }
  config.attn_soft_cap = s.soft_cap;
  config.logit_soft_cap = s.logit_soft_cap;
  config.traits = traits_of(config, weights.layers);
}

inline std::vector<float> logits_of(weir_session* session) {
  const float* view = nullptr;
  uint32_t n = 0;
  assert_ok(weir_session_logits(session, &view, &n));
  return {view, view + n};
}

// Root mean square of the difference, divided by that of the values.
inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, square = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
    square += double{a[i]} * double{a[i]};
  }
  return std::sqrt(difference / square);
}

}  // namespace weir::test
