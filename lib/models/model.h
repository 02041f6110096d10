// A model: hyper-parameters, tokenizer, and weights as views into the file's bytes (mapped or copied). Immutable once
// opened. docs/contributing.md says how to add an architecture.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory.h"
#include "core/notes.h"
#include "core/progress.h"
#include "core/status.h"
#include "gguf/gguf.h"
#include "models/layer.h"
#include "models/rope.h"
#include "ops/recurrent.h"
#include "ops/router.h"
#include "ops/temper.h"
#include "ops/types.h"
#include "text/answer_format.h"
#include "text/tokenizer.h"
#include "weir/model.h"

namespace weir {

// An architecture's row: how its layers differ from plain Llama layers. describe_layer (layer.cpp) turns it into
// stages.
struct Architecture {
  const char* name;  // general.architecture and the prefix of its keys
  // The pre-tokenizer of its models, if all have one: of vocabularies of `pre_vocab` tokens, or 0 of any.
  const char* pre = nullptr;
  uint32_t pre_vocab = 0;
  RopeLayout rope_layout;  // of the weights as GGUF files hold them
  bool qkv_bias = false;   // q, k and v must have biases; false: they may have them
  enum class QkNorm : uint8_t { kNone, kHeads, kHeadsIfThere, kRows };
  QkNorm qk_norm = QkNorm::kNone;  // q and k are RMS-normalised: each head, or all heads of a row together
  bool pre_norms = true;           // attention and feed-forward take the residual stream RMS-normalised
  bool post_norms = false;         // what they add to it is RMS-normalised
  bool fused = false;              // q, k and v are one tensor, and so are gate and up
  bool fused_glu = false;          // only gate and up are
  bool multipliers = false;        // the file has factors of embeddings, residuals, attention and logits
  bool soft_caps = false;          // the file has caps of logits
  float usual_attn_cap = 0.0f, usual_logit_cap = 0.0f;  // of files that lack the keys
  // For files without the key: what the models' own configuration takes where it says nothing, since converters leave
  // the key out then. 0: 10,000.
  float usual_rope_base = 0.0f;
  bool rope_base_optional = false;  // such files are common
  uint32_t rope_part = 0;         // files say how much of a head rotates; without the key, one in so many. 0: all does
  bool attn_output_bias = false;  // it must have one; false: it may have it
  bool attn_sinks = false;
  bool head_gate = false;  // attn_q has a gate of the output beside each head's query
  // Layers that have no attention. Which those are says a key: that one layer in so many has it (kInterval), or that
  // the others have no KV heads (kHeads). With kBlocks a layer is a mixer or a feed-forward network, not both.
  Mixer recurrent = Mixer::kNone;
  enum class Which : uint8_t { kInterval, kHeads, kBlocks };
  Which which = Which::kInterval;
  bool fused_gates = false;                        // delta net: beta and alpha are one matrix, by key head
  bool grouped_heads = false;                      // delta net: heads that share a key head are neighbours
  const char* output_norm = "output_norm.weight";  // tensor of the norm before the output
  Gate gate = Gate::kSilu;                         // not read with no_gate
  const char* ffn_norm = "ffn_norm.weight";        // tensor of the norm before the feed-forward network
  // The feed-forward network is a mixture of experts.
  bool experts = false;
  bool whole_experts = false;     // each is as wide as feed_forward_length says, where files have no key of their own
  bool may_lack_experts = false;  // and then has a plain one: files of dense models say that there are no experts
  // One more expert that every token goes through: its result is added times a sigmoid, or as it is.
  enum class SharedExpert : uint8_t { kNone, kGated, kPlain };
  SharedExpert shared_expert = SharedExpert::kNone;
  bool choice_bias = false;  // scores must have a bias when experts are chosen; false: they may have it
  bool no_gate = false;      // feed-forward networks have no gate; the activation is the squared ReLU
  bool ffn_bias = false;     // of the router and of the experts' matrices
  RouteRule route = {};      // of files without the keys
  // One layer in `global_every` sees all positions, the others the last attention.sliding_window; 0: all see all.
  uint32_t global_every = 0;
  static constexpr uint32_t kNeverGlobal = UINT32_MAX;  // with a window every layer has it
  float local_rope_base = 0.0f;             // of layers with a window, unscaled; 0: they rotate as the others
  uint32_t no_rope_every = 0;               // one layer in so many does not rotate; 0: all do
  bool rope_if_trained = false;             // layers rotate if the key rope.scaling.finetuned says so
  bool temperature = false;                 // the file says how queries grow with the position
  bool yarn_rounds = true;                  // YaRN blends from and to whole dimensions
  void (*adapt)(ModelConfig& c) = nullptr;  // sets what no key of the file says, after the keys were read
};

struct ModelConfig {
  const Architecture* arch = nullptr;
  uint32_t n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  uint32_t d_model = 0, d_ff = 0, vocab_size = 0;
  uint32_t context_tokens = 0;  // trained
  float norm_eps = 0.0f;
  float attn_scale = 0.0f;
  float embedding_scale = 1.0f;  // of the residual stream's first value
  float logit_scale = 1.0f;      // of the output logits; it is in ModelWeights::output_norm
  float attn_soft_cap = 0.0f;    // attention logits become cap * tanh(logit / cap); 0: as they are
  float logit_soft_cap = 0.0f;   // the same for output logits
  Temperature temperature;
  uint32_t window = 0;        // of local layers
  uint32_t global_every = 0;  // as Architecture's, or as the file has it
  uint32_t n_experts = 0, n_experts_used = 0;
  uint32_t expert_ff = 0;       // rows of an expert's gate
  uint32_t shared_ff = 0;       // rows of the shared expert's gate; 0: there is none
  uint32_t n_dense_layers = 0;  // the first so many layers have a feed-forward network in place of experts
  RouteRule route;              // of the experts
  float inner_norm_eps = 0.0f;  // of norms inside recurrent layers
  bool no_rope = false;         // no layer rotates
  uint32_t n_next_blocks = 0;   // behind the layers; they predict tokens after the next one and are not used
  uint32_t n_kv_layers = 0;     // with attention: what pages, streams and policies call layers
  RecurrentShape recurrent;     // of the others, if there are any
  TraitSet traits;              // what a backend must be able to compute
  bool is_local(uint32_t layer) const { return window != 0 && (layer + 1) % global_every != 0; }
  // Columns of the widest matrix.
  uint32_t max_cols() const {
    return std::max({d_model, d_ff, n_heads * head_dim, expert_ff, shared_ff, recurrent.width});
  }
};

struct ModelWeights {
  explicit ModelWeights(std::pmr::memory_resource* memory) : scaled_norm(memory), layers(memory), kv_layers(memory) {}
  Weight token_embd;                    // [vocab_size, d_model]
  const float* output_norm = nullptr;   // [d_model]
  std::pmr::vector<float> scaled_norm;  // what output_norm points to if logits have a factor
  Weight output;                        // [vocab_size, d_model]; the embedding table when tied
  std::pmr::vector<Layer> layers;
  std::pmr::vector<uint32_t> kv_layers;  // [n_kv_layers] the layers that have attention

  // A layer's attention, by its number among the layers that have one.
  const Attention& attention(uint32_t kv_layer) const { return layers[kv_layers[kv_layer]].attention; }
};

// NUL-terminated copies of the file's keys and tensor names, for the C API.
class NameTable {
 public:
  explicit NameTable(std::pmr::memory_resource* memory) : text_(memory), at_(memory) {}
  Status build(const GgufFile& file, OpenProgress& progress);
  const char* key(uint32_t index) const { return text_.data() + at_[index]; }
  const char* tensor(uint32_t index) const { return text_.data() + at_[n_keys_ + index]; }

 private:
  std::pmr::string text_;
  std::pmr::vector<uint64_t> at_;  // start of each name in text_: keys, then tensors
  size_t n_keys_ = 0;
};

class Model {
 public:
  explicit Model(std::pmr::memory_resource* memory)
      : file_(memory),
        names_(memory),
        tokenizer_(memory),
        kinds_(memory),
        weights_(memory),
        rope_(memory),
        notes_(memory) {}

  // flags: WEIR_MODEL_*.
  Status open(const char* path, uint32_t flags, weir_progress_fn progress, void* user);

  bool vocab_only() const { return vocab_only_; }
  // Whether there is a tokenizer; without one nothing may be asked of it.
  bool has_text() const { return has_text_; }
  const ModelConfig& config() const { return config_; }
  const ModelWeights& weights() const { return weights_; }
  const RopeTable& rope() const { return rope_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const GgufFile& file() const { return file_; }
  const NameTable& names() const { return names_; }
  const AnswerFormat& answer_format() const { return answer_format_; }
  const Notes& notes() const { return notes_; }
  // With vocab_only 0; see weir_model_info. Two trainings of one shape differ in it if they do in the first bytes of
  // any tensor.
  uint64_t fingerprint() const { return fingerprint_; }
  // The hash of samples of every tensor's bytes. Reads them from the file.
  uint64_t sampled_weights() const;
  uint64_t weights_bytes() const { return weights_bytes_; }
  void get_info(weir_model_info& info) const;

 private:
  Status read(bool vocab_only, OpenProgress& progress);
  Status read_config(std::string_view arch);
  Status read_heads(Status (GgufFile::*of_layers)(std::string_view key, uint32_t& out) const);
  Status read_rope();
  Status read_windows();
  Status read_window_pattern();
  void note_usual(const char* key, float taken);
  Status read_multipliers();
  Status read_temperature();
  Status read_soft_caps();
  Status read_next_blocks();
  Status read_experts();  // this and the next three: mixture.cpp
  Status read_mixture();
  Status read_plain_shared_expert();
  Status read_route();
  Status read_layer_kinds();  // this and the next seven: recurrent.cpp
  Status read_kinds_by_interval();
  Status read_kinds_by_heads();
  Status read_recurrent();
  Status read_state_heads();
  Status read_delta_net();
  Status read_mamba2();
  Status read_short_conv();
  Status read_weights();
  Status read_fingerprint(OpenProgress& progress);
  Status read_description(OpenProgress& progress);
  struct Hash;
  Status count_weights(Hash* hash, OpenProgress& progress);

  GgufFile file_;
  NameTable names_;
  Tokenizer tokenizer_;
  ModelConfig config_;
  std::pmr::vector<LayerKind> kinds_;  // [n_layers]
  ModelWeights weights_;
  RopeTable rope_;
  bool has_chat_template_ = false;
  AnswerFormat answer_format_;
  Notes notes_;
  bool vocab_only_ = false, has_text_ = true;
  uint64_t weights_bytes_ = 0;
  uint64_t n_params_ = 0;
  uint64_t fingerprint_ = 0;
  const char* main_type_ = "";
  char arch_name_[64] = "";  // NUL-terminated copies for the C API
  char model_name_[256] = "";
};

// The pre-tokenizer of Qwen's models.
extern const char kQwenPre[];

// The architecture called `name`, or null.
const Architecture* find_architecture(std::string_view name);

}  // namespace weir
