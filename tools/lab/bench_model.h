// Model files with the shapes of well-known models and random weights, for measuring speed without a download. Speed
// does not depend on the values, so one stretch of random blocks is written again and again; the file and its pages are
// as large as the real ones. Files are kept in a folder and used again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weir_cli {

struct ModelShape {
  const char* name;
  const char* architecture;
  uint32_t n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, vocab_size, context_tokens;
  bool tied;  // the embedding is the output matrix too
  float rope_base;
  uint32_t n_experts = 0, n_experts_used = 0;  // of d_ff rows each; 0: one feed-forward network
  // Recurrent layers: one layer in `attention_every` has attention, or those of `attention_layers` have; n_taps of the
  // convolution; and of a delta net heads of q and k, heads, and their size. `rope_dim`: 0 is head_dim.
  uint32_t attention_every = 0, n_taps = 0, n_key_heads = 0, n_state_heads = 0, state_dim = 0, rope_dim = 0;
  std::vector<uint32_t> attention_layers = {};
};

const std::vector<ModelShape>& model_shapes();
// Throws std::runtime_error listing the names.
const ModelShape& model_shape(const std::string& name);

// The path of the file in `cache_dir`, written first when it is not there. `type` is a weight type's name. What has the
// file's name and is not the user's own file is replaced, and no link is followed. Throws std::runtime_error when other
// users can change files of the folder, when the disk has no room, or when writing fails.
std::string bench_model_file(const ModelShape& shape, const std::string& type, const std::string& cache_dir);

}  // namespace weir_cli
