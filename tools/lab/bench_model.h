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
  uint32_t shared_ff = 0;                      // of the shared expert; 0: none
  // A letter for each layer: (a)ttention, (d)elta net, (m)amba2, short (c)onvolution; or (f), a feed-forward network
  // alone, and then no other layer has one. Empty: all attend.
  std::string layers = {};
  uint32_t n_taps = 0;  // of the convolution
  // A delta net's heads of q and k, or Mamba-2's groups of B and C; heads; size of a head of q and k, or numbers of the
  // state for each channel; all heads' channels.
  uint32_t n_groups = 0, n_state_heads = 0, state_dim = 0, inner = 0;
  uint32_t rope_dim = 0;  // 0: head_dim
};

const std::vector<ModelShape>& model_shapes();
// Throws std::runtime_error listing the names.
const ModelShape& model_shape(const std::string& name);

// The path of the file in `cache_dir`, written first when it is not there. `type` is a weight type's name. What has the
// file's name and is not the user's own file is replaced, and no link is followed. Throws std::runtime_error when other
// users can change files of the folder, when the disk has no room, or when writing fails.
std::string bench_model_file(const ModelShape& shape, const std::string& type, const std::string& cache_dir);

}  // namespace weir_cli
