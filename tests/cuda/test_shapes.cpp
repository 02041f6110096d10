// cuda: models of other shapes than the tiny reasoner's. Groups of one to sixteen query heads, both head sizes, both rotations, head norms and biases,
// with random weights written here: the GPU is fed the CPU's tokens and must give its logits. Policies go by positions alone, so that no near tie of
// scores can part the two.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "samples/cli/gguf_write.cpp"
#include "tests/cuda/cuda_test.h"

namespace {

using weir_cli::GgufWriter;

constexpr uint32_t kVocab = 384, kPrompt = 70, kSteps = 60;

struct Shape {
  const char* architecture;
  uint32_t n_heads, n_kv_heads, head_dim;
  const char* type;
};

const Shape kShapes[] = {
    {"llama", 4, 4, 64, "f16"},   {"qwen2", 5, 1, 64, "q8_0"}, {"llama", 12, 2, 128, "q8_0"},
    {"qwen2", 7, 1, 128, "f16"},  {"qwen3", 8, 1, 64, "bf16"}, {"llama", 16, 1, 64, "q8_0"},
    {"qwen3", 14, 2, 128, "f32"},
};

// Two control tokens, one merge, and fillers.
void add_tokenizer(GgufWriter& file) {
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_end|>", "t", "h", "th"};
  std::vector<int32_t> types = {3, 3, 1, 1, 1};
  while (tokens.size() < kVocab) {
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

void add_metadata(GgufWriter& file, const Shape& s) {
  const std::string a = s.architecture;
  file.add_string("general.architecture", a);
  file.add_u32(a + ".context_length", 4096);
  file.add_u32(a + ".embedding_length", s.n_heads * s.head_dim);
  file.add_u32(a + ".block_count", 2);
  file.add_u32(a + ".feed_forward_length", 768);
  file.add_u32(a + ".attention.head_count", s.n_heads);
  file.add_u32(a + ".attention.head_count_kv", s.n_kv_heads);
  file.add_u32(a + ".attention.key_length", s.head_dim);
  file.add_u32(a + ".attention.value_length", s.head_dim);
  file.add_u32(a + ".rope.dimension_count", s.head_dim);
  file.add_f32(a + ".rope.freq_base", 10000.0f);
  file.add_f32(a + ".attention.layer_norm_rms_epsilon", 1e-5f);
  file.add_u32(a + ".vocab_size", kVocab);
}

void add_tensors(GgufWriter& file, const Shape& s) {
  const weir_cli::WeightType &type = weir_cli::weight_type(s.type), &f32 = weir_cli::weight_type("f32");
  const uint64_t q = uint64_t{s.n_heads} * s.head_dim, kv = uint64_t{s.n_kv_heads} * s.head_dim, d = q;
  const std::string a = s.architecture;
  file.add_tensor("token_embd.weight", {kVocab, d}, type);
  file.add_tensor("output_norm.weight", {d}, f32);
  file.add_tensor("output.weight", {kVocab, d}, type);
  for (uint32_t i = 0; i < 2; ++i) {
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

uint64_t next_random(uint64_t& state) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545f4914f6cdd1du;
}

// Weights of about 0.05, and vectors around 1.
std::vector<uint8_t> random_bytes(const GgufWriter::Tensor& tensor, uint64_t& state) {
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
    } else if (type == "f16") {  // 2^-7 to 2^-4 of both signs
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

std::string write_model(const Shape& s) {
  GgufWriter file;
  add_metadata(file, s);
  add_tokenizer(file);
  add_tensors(file, s);
  char path[] = "/tmp/weir-shape-XXXXXX";
  const int descriptor = mkstemp(path);
  assert_true(descriptor >= 0);
  close(descriptor);
  uint64_t state = 88172645463325252u;
  std::vector<uint8_t> bytes;
  std::string name;
  file.write(
      path,
      [&](const GgufWriter::Tensor& tensor, uint64_t offset, uint64_t) {
        if (tensor.name != name) bytes = random_bytes(tensor, state);
        name = tensor.name;
        return bytes.data() + offset;
      },
      [](uint64_t, uint64_t) {});
  return path;
}

std::vector<float> logits_of(weir_session* session) {
  const float* view = nullptr;
  uint32_t n = 0;
  assert_ok(weir_session_logits(session, &view, &n));
  return {view, view + n};
}

// Root mean square of the difference over that of the values.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, square = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
    square += double{a[i]} * double{a[i]};
  }
  return std::sqrt(difference / square);
}

void compare(weir_model* model, const Shape& shape, const char* policy, uint32_t budget) {
  weir_session* sessions[2];
  for (int i = 0; i < 2; ++i) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = i == 0 ? WEIR_DEVICE_CPU : WEIR_DEVICE_CUDA;
    options.context_tokens = 512;
    options.policy = policy;
    options.budget_tokens = budget;
    assert_ok(weir_session_create(model, &options, &sessions[i]));
  }
  uint64_t state = 7;
  std::vector<weir_token> tokens(kPrompt + kSteps);
  for (weir_token& token : tokens) token = static_cast<weir_token>(2 + next_random(state) % (kVocab - 2));
  for (weir_session* session : sessions)
    assert_ok(weir_session_prefill(session, tokens.data(), kPrompt, nullptr, nullptr));
  double worst = distance(logits_of(sessions[0]), logits_of(sessions[1]));
  for (uint32_t i = kPrompt; i < tokens.size(); ++i) {
    for (weir_session* session : sessions) assert_ok(weir_session_step(session, tokens[i]));
    const double d = distance(logits_of(sessions[0]), logits_of(sessions[1]));
    if (!(d <= worst)) worst = d;  // NaN too
  }
  std::printf("cuda: %s %u/%u heads of %u, %s, %s: logits at most %.4f of their rms apart\n", shape.architecture,
              shape.n_heads, shape.n_kv_heads, shape.head_dim, shape.type, policy, worst);
  // Keys and values are rounded to 8 bits on both sides, of numbers that differ in the 11th (f16 products of the prompt) or the 15th.
  assert_true(worst < 0.05);
  for (weir_session* session : sessions) weir_session_destroy(session);
}

void shapes__logits_are_the_cpus(void**) {
  NEED_GPU();
  for (const Shape& shape : kShapes) {
    const std::string path = write_model(shape);
    const weir_runtime_options options = gpu_runtime_options();
    weir_runtime* runtime = nullptr;
    weir_model* model = nullptr;
    assert_ok(weir_runtime_create(&options, &runtime));
    assert_ok(weir_model_open(runtime, path.c_str(), nullptr, &model));
    compare(model, shape, "dense", 0);
    compare(model, shape, "sink", 64);  // leaves tokens behind, so that the sinks' query is another one
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    std::remove(path.c_str());
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(shapes__logits_are_the_cpus)};
  return cmocka_run_group_tests_name("cuda/shapes", tests, nullptr, nullptr);
}
