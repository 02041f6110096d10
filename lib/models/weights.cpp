// The tensor table: every tensor that the model needs with the shape it must have, and an error for any that the file has and nobody used
// (ignoring one would give wrong answers in silence).
#include <cstdio>

#include "models/model.h"

namespace weir {
namespace {

// Finds tensors by name, checks shape and type, and remembers how many were taken.
class TensorReader {
 public:
  explicit TensorReader(const GgufFile& file) : file_(file) {}
  void set_layer(uint32_t layer) { std::snprintf(prefix_, sizeof(prefix_), "blk.%u.", layer); }
  uint32_t n_taken() const { return n_taken_; }

  // A matrix [n_rows, n_cols] of any type that Weir computes with. Not `required` and absent: `out` stays empty.
  Status matrix(const char* name, uint32_t n_rows, uint32_t n_cols, Weight& out, bool required = true) {
    const GgufTensor* tensor = nullptr;
    WEIR_TRY(find(name, required, tensor));
    if (tensor == nullptr) return {};
    if (tensor->n_dims != 2 || tensor->dims[0] != n_rows || tensor->dims[1] != n_cols) {
      return fail(WEIR_ERR_FORMAT, "%s: expected [%u, %u], file has %s", name_, n_rows, n_cols, shape_text(*tensor));
    }
    if (!weight_type_from_gguf(tensor->type_id, out.type)) {
      return fail(WEIR_ERR_UNSUPPORTED, "%s: type %s cannot be computed with", name_, tensor->type_name);
    }
    out.data = tensor->data;
    out.n_rows = n_rows;
    out.n_cols = n_cols;
    out.row_bytes = weight_row_bytes(out.type, n_cols);
    return {};
  }

  // A vector [n] of f32.
  Status vector(const char* name, uint32_t n, const float*& out, bool required = true) {
    const GgufTensor* tensor = nullptr;
    WEIR_TRY(find(name, required, tensor));
    if (tensor == nullptr) return {};
    if (tensor->n_dims != 1 || tensor->dims[0] != n) {
      return fail(WEIR_ERR_FORMAT, "%s: expected [%u], file has %s", name_, n, shape_text(*tensor));
    }
    if (tensor->type_id != weight_type_info(WeightType::kF32).gguf_id) {
      return fail(WEIR_ERR_UNSUPPORTED, "%s: expected f32, file has %s", name_, tensor->type_name);
    }
    if (reinterpret_cast<uintptr_t>(tensor->data) % alignof(float) != 0) {
      return fail(WEIR_ERR_FORMAT, "%s: offset %llu is not aligned for f32", name_,
                  static_cast<unsigned long long>(tensor->file_offset));
    }
    out = reinterpret_cast<const float*>(tensor->data);
    return {};
  }

 private:
  Status find(const char* name, bool required, const GgufTensor*& out) {
    std::snprintf(name_, sizeof(name_), "%s%s", prefix_, name);
    out = file_.find_tensor(name_);
    if (out != nullptr) ++n_taken_;
    if (out == nullptr && required) return fail(WEIR_ERR_FORMAT, "%s: the file has no such tensor", name_);
    return {};
  }

  const char* shape_text(const GgufTensor& tensor) {
    size_t used = 0;
    for (uint32_t i = 0; i < tensor.n_dims; ++i) {
      used += static_cast<size_t>(std::snprintf(shape_ + used, sizeof(shape_) - used, "%s%llu", i == 0 ? "[" : ", ",
                                                static_cast<unsigned long long>(tensor.dims[i])));
    }
    std::snprintf(shape_ + used, sizeof(shape_) - used, "]");
    return shape_;
  }

  const GgufFile& file_;
  char prefix_[32] = "";
  char name_[128] = "";
  char shape_[128] = "";
  uint32_t n_taken_ = 0;
};

Status read_layer(TensorReader& in, const ModelConfig& c, LayerWeights& w) {
  const uint32_t q_rows = c.n_heads * c.head_dim, kv_rows = c.n_kv_heads * c.head_dim;
  WEIR_TRY(in.vector("attn_norm.weight", c.d_model, w.attn_norm));
  WEIR_TRY(in.matrix("attn_q.weight", q_rows, c.d_model, w.wq));
  WEIR_TRY(in.matrix("attn_k.weight", kv_rows, c.d_model, w.wk));
  WEIR_TRY(in.matrix("attn_v.weight", kv_rows, c.d_model, w.wv));
  WEIR_TRY(in.vector("attn_q.bias", q_rows, w.bq, c.arch->qkv_bias));
  WEIR_TRY(in.vector("attn_k.bias", kv_rows, w.bk, c.arch->qkv_bias));
  WEIR_TRY(in.vector("attn_v.bias", kv_rows, w.bv, c.arch->qkv_bias));
  if (c.arch->qk_norm) {
    WEIR_TRY(in.vector("attn_q_norm.weight", c.head_dim, w.q_norm));
    WEIR_TRY(in.vector("attn_k_norm.weight", c.head_dim, w.k_norm));
  }
  WEIR_TRY(in.matrix("attn_output.weight", c.d_model, q_rows, w.wo));
  WEIR_TRY(in.vector("ffn_norm.weight", c.d_model, w.ffn_norm));
  WEIR_TRY(in.matrix("ffn_gate.weight", c.d_ff, c.d_model, w.gate));
  WEIR_TRY(in.matrix("ffn_up.weight", c.d_ff, c.d_model, w.up));
  return in.matrix("ffn_down.weight", c.d_model, c.d_ff, w.down);
}

// Names the first tensor that lies inside the layers or at the top and belongs to none of the places above.
Status report_unused(const GgufFile& file, const ModelConfig& c) {
  static constexpr const char* kLayerNames[] = {"attn_norm.weight", "attn_q.weight",      "attn_k.weight",
                                                "attn_v.weight",    "attn_q.bias",        "attn_k.bias",
                                                "attn_v.bias",      "attn_output.weight", "ffn_norm.weight",
                                                "ffn_gate.weight",  "ffn_up.weight",      "ffn_down.weight"};
  for (const GgufTensor& tensor : file.tensors()) {
    bool used = tensor.name == "token_embd.weight" || tensor.name == "output_norm.weight" ||
                tensor.name == "output.weight" || tensor.name == "rope_freqs.weight";
    unsigned layer = 0;
    int at = 0;
    char name[128];
    std::snprintf(name, sizeof(name), "%.*s", static_cast<int>(tensor.name.size()), tensor.name.data());
    if (!used && std::sscanf(name, "blk.%9u.%n", &layer, &at) == 1 && at > 0 && layer < c.n_layers) {
      for (const char* known : kLayerNames) used = used || tensor.name.substr(static_cast<size_t>(at)) == known;
      if (c.arch->qk_norm)
        used = used || std::string_view(name + at) == "attn_q_norm.weight" ||
               std::string_view(name + at) == "attn_k_norm.weight";
    }
    if (!used) {
      return fail(WEIR_ERR_UNSUPPORTED,
                  "%s: architecture %s has no use for this tensor, so the answers would be wrong without it", name,
                  c.arch->name);
    }
  }
  return fail(WEIR_ERR_INTERNAL, "the count of used tensors is wrong");
}

}  // namespace

Status Model::read_weights() {
  const GgufTensor* embd = file_.find_tensor("token_embd.weight");
  if (embd == nullptr) return fail(WEIR_ERR_FORMAT, "token_embd.weight: the file has no such tensor");
  config_.vocab_size = tokenizer_.vocab_size();
  TensorReader in(file_);
  WEIR_TRY(in.matrix("token_embd.weight", config_.vocab_size, config_.d_model, weights_.token_embd));
  WEIR_TRY(in.vector("output_norm.weight", config_.d_model, weights_.output_norm));
  WEIR_TRY(in.matrix("output.weight", config_.vocab_size, config_.d_model, weights_.output, false));
  if (weights_.output.data == nullptr) weights_.output = weights_.token_embd;  // tied
  // Each layer has at least nine tensors, so a block_count that the file cannot hold is found before anything of its size is allocated.
  if (uint64_t{config_.n_layers} * 9 > file_.tensors().size()) {
    return fail(WEIR_ERR_FORMAT, "%s.block_count: %u layers, but the file has only %zu tensors", config_.arch->name,
                config_.n_layers, file_.tensors().size());
  }
  weights_.layers.resize(config_.n_layers);
  for (uint32_t i = 0; i < config_.n_layers; ++i) {
    in.set_layer(i);
    WEIR_TRY(read_layer(in, config_, weights_.layers[i]));
  }
  const uint32_t n_rope = file_.find_tensor("rope_freqs.weight") != nullptr ? 1 : 0;
  return in.n_taken() + n_rope == file_.tensors().size() ? Status() : report_unused(file_, config_);
}

}  // namespace weir
