// Random model files; see bench_model.h.
#include "bench_model.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "gguf_write.h"
#include "options.h"
#include "out_file.h"
#include "terminal.h"

namespace weir_cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPoolBytes =
    16 << 20;  // of the stretch that is repeated; larger than what the writer asks for at once

// xorshift64*: fast, and good enough for weights that nobody looks at.
struct Random {
  uint64_t state = 0x9e3779b97f4a7c15u;
  uint64_t next() {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1du;
  }
};

void put_u16(uint8_t* at, uint16_t bits) { std::memcpy(at, &bits, sizeof(bits)); }

// Makes a block of random bytes a block of weights around 0.02 in size: scales are f16 bit patterns, the rest stays
// random.
void make_sane(const std::string& type, uint8_t* block, Random& random) {
  const auto sign = static_cast<uint16_t>((random.next() >> 48) & 0x8000);
  const auto bits = static_cast<uint16_t>(random.next() >> 48);
  if (type == "q8_0") {
    put_u16(block, 0x0c6d);  // 2.7e-4
  } else if (type == "q4_0") {
    put_u16(block, 0x1c67);  // 4.3e-3
  } else if (type == "q4_1") {
    put_u16(block, 0x1c67), put_u16(block + 2, 0xa821);  // 4.3e-3 and -7.5 times it
  } else if (type == "q5_0") {
    put_u16(block, 0x186e);  // 2.2e-3
  } else if (type == "q5_1") {
    put_u16(block, 0x1870), put_u16(block + 2, 0xa84c);  // 2.2e-03 and -15.5 times it
  } else if (type == "iq4_nl") {
    put_u16(block, 0x0cdc);  // 3.0e-04
  } else if (type == "mxfp4") {
    block[0] = 120;  // 2 to the power -7
  } else if (type == "nvfp4") {
    std::memset(block, 4, 4);  // 7.8e-3
  } else if (type == "iq2_xxs") {
    put_u16(block, 0x0e24);  // 3.7e-4
  } else if (type == "iq2_xs" || type == "iq2_s") {
    put_u16(block, 0x0dd0);  // 3.5e-4
  } else if (type == "iq3_xxs" || type == "iq3_s") {
    put_u16(block, 0x08ac);  // 1.4e-4
  } else if (type == "q2_k") {
    put_u16(block + 80, 0x15e8), put_u16(block + 82, 0x186e);  // 1.4e-03 and 1.5 times it
  } else if (type == "q3_k") {
    put_u16(block + 108, 0x0f90);  // 4.6e-04
  } else if (type == "iq4_xs") {
    put_u16(block, 0x010d);  // 1.6e-05
  } else if (type == "q4_k") {
    put_u16(block, 0x053e), put_u16(block + 2, 0x10ea);  // 8.0e-5 and 7.5 times it
  } else if (type == "q5_k") {
    put_u16(block, 0x0410), put_u16(block + 2, 0x13e0);  // 6.2e-5 and 15.5 times it
  } else if (type == "q6_k") {
    put_u16(block + 208, 0x0410);
    for (int i = 192; i < 208; ++i) block[i] = static_cast<uint8_t>((block[i] & 31) - 16);
  } else if (type == "f16") {
    put_u16(block, static_cast<uint16_t>(sign | (8 << 10) | (bits & 0x7ff)));  // 2^-7 .. 2^-5
  } else if (type == "bf16") {
    put_u16(block, static_cast<uint16_t>(sign | (120 << 7) | (bits & 0xff)));
  } else if (type == "f32") {
    put_u16(block + 2, static_cast<uint16_t>(sign | (120 << 7) | (bits & 0xff)));
  } else {
    throw std::logic_error("weights of type " + type + " have no random blocks");
  }
}

std::vector<uint8_t> random_blocks(const WeightType& type) {
  Random random;
  const uint64_t n_blocks = kPoolBytes / type.block_bytes;
  std::vector<uint8_t> bytes(n_blocks * type.block_bytes);
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const uint64_t value = random.next();
    std::memcpy(&bytes[i], &value, 8);
  }
  for (uint64_t b = 0; b < n_blocks; ++b) make_sane(type.name, &bytes[b * type.block_bytes], random);
  return bytes;
}

// UTF-8 of the character that byte-level BPE writes for a byte: printable ones stand for themselves, others start at
// U+0100.
std::string byte_text(int byte, int& n_others) {
  const bool printable =
      (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
  const int c = printable ? byte : 256 + n_others++;
  if (c < 0x80) return std::string(1, static_cast<char>(c));
  return {static_cast<char>(0xc0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3f))};
}

// 256 bytes, one merge, two control tokens, and fillers up to vocab_size: enough for any text.
void add_tokenizer(GgufWriter& file, const ModelShape& shape) {
  std::vector<std::string> tokens;
  int n_others = 0;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(byte_text(byte, n_others));
  std::vector<int32_t> types(256, 1);  // normal
  tokens.push_back("th");
  types.push_back(1);
  const auto end_of_text = static_cast<uint32_t>(tokens.size());
  for (const char* name : {"<|endoftext|>", "<|im_end|>"}) {
    tokens.push_back(name);
    types.push_back(3);  // control
  }
  while (tokens.size() < shape.vocab_size) {
    tokens.push_back("w" + std::to_string(tokens.size()));
    types.push_back(1);
  }
  file.add_string("tokenizer.ggml.model", "gpt2");
  file.add_string("tokenizer.ggml.pre", std::string(shape.architecture) == "llama" ? "llama-bpe" : "qwen2");
  file.add_strings("tokenizer.ggml.tokens", tokens);
  file.add_i32s("tokenizer.ggml.token_type", types);
  file.add_strings("tokenizer.ggml.merges", {"t h"});
  file.add_u32("tokenizer.ggml.bos_token_id", end_of_text);
  file.add_u32("tokenizer.ggml.eos_token_id", end_of_text);
  file.add_bool("tokenizer.ggml.add_bos_token", false);
}

// The letter of a layer (ModelShape::layers).
char layer_kind(const ModelShape& s, uint32_t layer) { return s.layers.empty() ? 'a' : s.layers[layer]; }
bool has(const ModelShape& s, char kind) { return s.layers.find(kind) != std::string::npos; }
// Channels of the convolution: of a delta net q, k and v; of Mamba-2 x, B and C.
uint64_t conv_channels(const ModelShape& s) { return 2 * uint64_t{s.n_groups} * s.state_dim + s.inner; }

// One number for each layer: `value` for those of a kind, 0 for others.
std::vector<int32_t> where(const ModelShape& s, char kind, uint32_t value) {
  std::vector<int32_t> numbers;
  for (uint32_t i = 0; i < s.n_layers; ++i)
    numbers.push_back(layer_kind(s, i) == kind ? static_cast<int32_t>(value) : 0);
  return numbers;
}

void add_recurrent_metadata(GgufWriter& file, const ModelShape& s) {
  const std::string a = s.architecture;
  if (has(s, 'd')) {
    file.add_u32(a + ".attention.head_count_kv", s.n_kv_heads);
    file.add_u32(a + ".full_attention_interval", static_cast<uint32_t>(s.layers.find('a') + 1));
    const auto n_pairs = static_cast<int32_t>(s.rope_dim / 2), third = n_pairs / 3;
    file.add_i32s(a + ".rope.dimension_sections", {n_pairs - 2 * third, third, third, 0});
  } else {
    file.add_i32s(a + ".attention.head_count_kv", where(s, 'a', s.n_kv_heads));
  }
  if (has(s, 'c')) {
    file.add_u32(a + ".shortconv.l_cache", s.n_taps);
    return;
  }
  file.add_u32(a + ".ssm.conv_kernel", s.n_taps);
  file.add_u32(a + ".ssm.state_size", s.state_dim);
  file.add_u32(a + ".ssm.group_count", s.n_groups);
  file.add_u32(a + ".ssm.time_step_rank", s.n_state_heads);
  file.add_u32(a + ".ssm.inner_size", s.inner);
}

bool is_gpt_oss(const ModelShape& s) { return std::string(s.architecture) == "gpt-oss"; }

void add_metadata(GgufWriter& file, const ModelShape& s) {
  const std::string a = s.architecture;
  file.add_string("general.architecture", a);
  file.add_string("general.name", std::string("random ") + s.name);
  file.add_u32(a + ".context_length", s.context_tokens);
  file.add_u32(a + ".embedding_length", s.d_model);
  file.add_u32(a + ".block_count", s.n_layers);
  if (has(s, 'f')) {
    file.add_i32s(a + ".feed_forward_length", where(s, 'f', s.d_ff));
  } else {
    file.add_u32(a + ".feed_forward_length", s.d_ff);
  }
  file.add_u32(a + ".attention.head_count", s.n_heads);
  if (s.layers.empty()) file.add_u32(a + ".attention.head_count_kv", s.n_kv_heads);
  if (!s.layers.empty()) add_recurrent_metadata(file, s);
  file.add_u32(a + ".attention.key_length", s.head_dim);
  file.add_u32(a + ".attention.value_length", s.head_dim);
  file.add_u32(a + ".rope.dimension_count", s.rope_dim != 0 ? s.rope_dim : s.head_dim);
  file.add_f32(a + ".rope.freq_base", s.rope_base);
  file.add_f32(a + ".attention.layer_norm_rms_epsilon", 1e-5f);
  if (has(s, 'm')) file.add_f32(a + ".attention.layer_norm_epsilon", 1e-5f);
  file.add_u32(a + ".vocab_size", s.vocab_size);
  if (s.n_experts == 0) return;
  file.add_u32(a + ".expert_count", s.n_experts);
  file.add_u32(a + ".expert_used_count", s.n_experts_used);
  file.add_u32(a + ".expert_feed_forward_length", s.d_ff);
  if (s.shared_ff != 0) file.add_u32(a + ".expert_shared_feed_forward_length", s.shared_ff);
  if (has(s, 'm')) {
    file.add_u32(a + ".expert_shared_count", 1);
    file.add_u32(a + ".expert_group_count", 1);
    file.add_u32(a + ".expert_group_used_count", 1);
    file.add_bool(a + ".expert_weights_norm", true);
    file.add_f32(a + ".expert_weights_scale", 2.5f);
  }
  if (!is_gpt_oss(s)) return;
  file.add_u32(a + ".attention.sliding_window", 128);
  file.add_string(a + ".rope.scaling.type", "yarn");
  file.add_f32(a + ".rope.scaling.factor", 32.0f);
  file.add_u32(a + ".rope.scaling.original_context_length", 4096);
}

void add_experts(GgufWriter& file, const ModelShape& s, const std::string& layer, const WeightType& type) {
  const WeightType& f32 = weight_type("f32");
  file.add_tensor(layer + "ffn_gate_inp.weight", {s.n_experts, s.d_model}, f32);
  if (is_gpt_oss(s)) file.add_tensor(layer + "ffn_gate_inp.bias", {s.n_experts}, f32);
  if (has(s, 'f')) file.add_tensor(layer + "exp_probs_b.bias", {s.n_experts}, f32);
  for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
    if (has(s, 'f') && std::string(name) == "ffn_gate") continue;
    const bool down = std::string(name) == "ffn_down";
    const auto stack = [&](uint64_t ff) -> std::vector<uint64_t> {
      return {down ? s.d_model : ff, down ? ff : s.d_model};
    };
    const std::vector<uint64_t> of = stack(s.d_ff);
    file.add_tensor(layer + name + "_exps.weight", {s.n_experts, of[0], of[1]}, type);
    if (is_gpt_oss(s)) file.add_tensor(layer + name + "_exps.bias", {s.n_experts, of[0]}, f32);
    if (s.shared_ff != 0) file.add_tensor(layer + name + "_shexp.weight", stack(s.shared_ff), type);
  }
  if (s.shared_ff != 0 && has(s, 'd')) file.add_tensor(layer + "ffn_gate_inp_shexp.weight", {s.d_model}, f32);
}

void add_feed_forward(GgufWriter& file, const ModelShape& s, const std::string& layer, const WeightType& type) {
  if (!has(s, 'f')) {  // there a feed-forward network is a layer, whose norm is called attn_norm
    const bool after_attention = is_gpt_oss(s) || has(s, 'd');
    file.add_tensor(layer + (after_attention ? "post_attention_norm.weight" : "ffn_norm.weight"), {s.d_model},
                    weight_type("f32"));
  }
  if (s.n_experts != 0) {
    add_experts(file, s, layer, type);
    return;
  }
  file.add_tensor(layer + "ffn_gate.weight", {s.d_ff, s.d_model}, type);
  file.add_tensor(layer + "ffn_up.weight", {s.d_ff, s.d_model}, type);
  file.add_tensor(layer + "ffn_down.weight", {s.d_model, s.d_ff}, type);
}

void add_delta_net(GgufWriter& file, const ModelShape& s, const std::string& layer, const WeightType& type) {
  const WeightType& f32 = weight_type("f32");
  file.add_tensor(layer + "attn_qkv.weight", {conv_channels(s), s.d_model}, type);
  file.add_tensor(layer + "attn_gate.weight", {s.inner, s.d_model}, type);
  file.add_tensor(layer + "ssm_beta.weight", {s.n_state_heads, s.d_model}, type);
  file.add_tensor(layer + "ssm_alpha.weight", {s.n_state_heads, s.d_model}, type);
  file.add_tensor(layer + "ssm_a", {s.n_state_heads}, f32);
  file.add_tensor(layer + "ssm_dt.bias", {s.n_state_heads}, f32);
  file.add_tensor(layer + "ssm_conv1d.weight", {conv_channels(s), s.n_taps}, f32);
  file.add_tensor(layer + "ssm_norm.weight", {s.state_dim}, f32);
  file.add_tensor(layer + "ssm_out.weight", {s.d_model, s.inner}, type);
}

void add_mamba2(GgufWriter& file, const ModelShape& s, const std::string& layer, const WeightType& type) {
  const WeightType& f32 = weight_type("f32");
  file.add_tensor(layer + "ssm_in.weight", {s.inner + conv_channels(s) + s.n_state_heads, s.d_model}, type);
  file.add_tensor(layer + "ssm_conv1d.weight", {conv_channels(s), s.n_taps}, f32);
  file.add_tensor(layer + "ssm_conv1d.bias", {conv_channels(s)}, f32);
  file.add_tensor(layer + "ssm_dt.bias", {s.n_state_heads}, f32);
  file.add_tensor(layer + "ssm_a", {s.n_state_heads, 1}, f32);
  file.add_tensor(layer + "ssm_d", {s.n_state_heads, 1}, f32);
  file.add_tensor(layer + "ssm_norm.weight", {s.n_groups, s.inner / s.n_groups}, f32);
  file.add_tensor(layer + "ssm_out.weight", {s.d_model, s.inner}, type);
}

void add_short_conv(GgufWriter& file, const ModelShape& s, const std::string& layer, const WeightType& type) {
  file.add_tensor(layer + "shortconv.in_proj.weight", {uint64_t{3} * s.d_model, s.d_model}, type);
  file.add_tensor(layer + "shortconv.conv.weight", {s.d_model, s.n_taps}, weight_type("f32"));
  file.add_tensor(layer + "shortconv.out_proj.weight", {s.d_model, s.d_model}, type);
}

void add_attention(GgufWriter& file, const ModelShape& s, const std::string& layer, const WeightType& type) {
  const WeightType& f32 = weight_type("f32");
  const uint64_t q_width = uint64_t{s.n_heads} * s.head_dim, kv_width = uint64_t{s.n_kv_heads} * s.head_dim;
  file.add_tensor(layer + "attn_q.weight", {has(s, 'd') ? 2 * q_width : q_width, s.d_model}, type);
  file.add_tensor(layer + "attn_k.weight", {kv_width, s.d_model}, type);
  file.add_tensor(layer + "attn_v.weight", {kv_width, s.d_model}, type);
  if (std::string(s.architecture) == "qwen2" || is_gpt_oss(s)) {
    file.add_tensor(layer + "attn_q.bias", {q_width}, f32);
    file.add_tensor(layer + "attn_k.bias", {kv_width}, f32);
    file.add_tensor(layer + "attn_v.bias", {kv_width}, f32);
  }
  file.add_tensor(layer + "attn_output.weight", {s.d_model, q_width}, type);
  if (is_gpt_oss(s)) {
    file.add_tensor(layer + "attn_output.bias", {s.d_model}, f32);
    file.add_tensor(layer + "attn_sinks.weight", {s.n_heads}, f32);
  }
  if (std::string(s.architecture) == "qwen3moe" || has(s, 'd') || has(s, 'c')) {
    file.add_tensor(layer + "attn_q_norm.weight", {s.head_dim}, f32);
    file.add_tensor(layer + "attn_k_norm.weight", {s.head_dim}, f32);
  }
}

void add_tensors(GgufWriter& file, const ModelShape& s, const WeightType& type) {
  const WeightType& f32 = weight_type("f32");
  file.add_tensor("token_embd.weight", {s.vocab_size, s.d_model}, type);
  const bool is_lfm2 = std::string(s.architecture) == "lfm2";
  file.add_tensor(is_lfm2 ? "token_embd_norm.weight" : "output_norm.weight", {s.d_model}, f32);
  if (!s.tied) file.add_tensor("output.weight", {s.vocab_size, s.d_model}, type);
  for (uint32_t i = 0; i < s.n_layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    const char kind = layer_kind(s, i);
    file.add_tensor(layer + "attn_norm.weight", {s.d_model}, f32);
    if (kind == 'a') add_attention(file, s, layer, type);
    if (kind == 'd') add_delta_net(file, s, layer, type);
    if (kind == 'm') add_mamba2(file, s, layer, type);
    if (kind == 'c') add_short_conv(file, s, layer, type);
    if (!has(s, 'f') || kind == 'f') add_feed_forward(file, s, layer, type);
  }
}

void check_disk(const std::string& folder, uint64_t bytes) {
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return;  // then writing will tell
  const uint64_t free_bytes = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (free_bytes < bytes + bytes / 20) {
    throw std::runtime_error(folder + ": a model file of " + human_bytes(bytes) + " does not fit, " +
                             human_bytes(free_bytes) + " are free; --cache-dir picks another folder");
  }
}

void write_model(const GgufWriter& file, const WeightType& type, const std::string& path) {
  OutFile out(path, OutFile::kPrivateEntry);
  const std::vector<uint8_t> pool = random_blocks(type);
  const std::vector<uint8_t> f32_pool = random_blocks(weight_type("f32"));  // routers, and biases of experts
  const std::vector<float> ones(1 << 18, 1.0f), minus_ones(1 << 12, -1.0f);
  ProgressLine line;
  const auto source = [&](const GgufWriter::Tensor& tensor, uint64_t offset, uint64_t n_bytes) -> const uint8_t* {
    // Vectors are f32 whatever the type: norms are 1, biases too (their value does not matter).
    // What state decays by is negative, or it would grow.
    if (tensor.name.ends_with("ssm_a")) return reinterpret_cast<const uint8_t*>(minus_ones.data());
    if (tensor.dims.size() == 1) return reinterpret_cast<const uint8_t*>(ones.data());
    const bool is_f32 = tensor.type == &weight_type("f32");
    const std::vector<uint8_t>& from = is_f32 ? f32_pool : pool;
    const uint64_t block_bytes = is_f32 ? sizeof(float) : type.block_bytes;
    const uint64_t n_starts = (from.size() - n_bytes) / block_bytes;  // the last one could reach past the end
    const uint64_t block = offset / block_bytes * 7919 % n_starts;
    return from.data() + block * block_bytes + offset % block_bytes;
  };
  const auto progress = [&](uint64_t done, uint64_t total) {
    line.update([&] { return "writing " + path + ": " + human_bytes(done) + " of " + human_bytes(total); });
  };
  file.write([&](const void* bytes, uint64_t n_bytes) { out.write(bytes, n_bytes); }, source, progress);
  out.commit();
}

// Whether someone else can write what `info` describes. A group of the user's own is the user.
bool others_write(const struct stat& info) {
  return (info.st_mode & S_IWOTH) != 0 || ((info.st_mode & S_IWGRP) != 0 && info.st_gid != ::getegid());
}

// A folder in which nobody else can put a file in the place of one of the user's.
void check_folder(const std::string& folder) {
  struct stat info {};
  const auto refuse = [&](const std::string& why) {
    throw std::runtime_error("cannot keep model files in " + folder + ": " + why +
                             "; --cache-dir names another folder");
  };
  if (::stat(folder.c_str(), &info) != 0) refuse(std::strerror(errno));
  if (!S_ISDIR(info.st_mode)) refuse("it is no folder");
  if (info.st_uid != ::geteuid() && info.st_uid != 0) refuse("it belongs to another user");
  if (others_write(info) && (info.st_mode & S_ISVTX) == 0) refuse("other users can write to it");
}

// Whether `path` is what this program wrote: a file of the user's alone, of the size and with the header of `file`.
// Its weights are not looked at, as nobody else can have changed them.
bool is_own_model(const GgufWriter& file, const std::string& path) {
  const int handle = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (handle < 0) return false;
  const std::string wanted = file.header();
  std::string found(wanted.size(), '\0');
  struct stat info {};
  const bool is_own = ::fstat(handle, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
                      info.st_nlink == 1 && !others_write(info) &&
                      static_cast<uint64_t>(info.st_size) == file.file_bytes();
  size_t n_read = 0;
  for (ssize_t n = 0; is_own && n_read < found.size(); n_read += static_cast<size_t>(n)) {
    n = ::pread(handle, &found[n_read], found.size() - n_read, static_cast<off_t>(n_read));
    if (n <= 0) break;
  }
  ::close(handle);
  return is_own && n_read == found.size() && found == wanted;
}

// A folder of the user's: made for the user alone, with the folders above it as the mask says.
void make_folder(const std::string& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return;
  const fs::path above = fs::path(folder).parent_path();
  if (!above.empty()) fs::create_directories(above);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw std::runtime_error("cannot make the folder " + folder + ": " + std::strerror(errno));
}

}  // namespace

std::string bench_model_file(const ModelShape& shape, const std::string& type_name, const std::string& cache_dir) {
  const WeightType& type = weight_type(type_name);
  if (!shape.layers.empty() && shape.layers.size() != shape.n_layers)
    throw std::logic_error(std::string(shape.name) + " has a letter for another number of layers");
  GgufWriter file;
  add_metadata(file, shape);
  add_tokenizer(file, shape);
  add_tensors(file, shape, type);
  make_folder(cache_dir);
  check_folder(cache_dir);
  const std::string path = (fs::path(cache_dir) / (std::string(shape.name) + "-" + type.name + ".gguf")).string();
  if (is_own_model(file, path)) return path;
  check_disk(cache_dir, file.file_bytes());
  write_model(file, type, path);
  return path;
}

}  // namespace weir_cli
