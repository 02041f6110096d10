// Rotary position embedding: the angle per position of every pair of a head, with the frequency scalings that GGUF
// files describe.
// Papers: Su et al., "RoFormer", arXiv:2104.09864, sec. 3.2; Peng et al., "YaRN", arXiv:2309.00071, sec. 3; linear
// scaling: Chen et al., arXiv:2306.15595, sec. 2.3. Llama 3's scaling arrives as per-frequency factors in the file.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "gguf/gguf.h"
#include "ops/ops.h"

namespace weir {

// The rotations of a model's layers: one, or one for each kind of layer, at most kMostRotations. All rotate the same
// number of elements of a head.
class RopeTable {
 public:
  explicit RopeTable(std::pmr::memory_resource* memory) : angle_(memory) {}

  // Rotation 0: reads <prefix>.rope.* and the optional tensor rope_freqs.weight.
  Status read(const GgufFile& file, std::string_view prefix, uint32_t head_dim, uint32_t trained_tokens);
  // The next rotation, of that base and unscaled; `key` is what messages call the base.
  Status add(std::string_view key, float base);

  uint32_t rope_dim() const { return rope_dim_; }
  uint32_t n_rotations() const { return static_cast<uint32_t>(angle_.size() / (rope_dim_ / 2)); }
  // [n_rotations, rope_dim / 2] radians per position. With the magnitudes, what distinguishes this table from others;
  // for fingerprints.
  const std::pmr::vector<double>& angles() const { return angle_; }
  double magnitude(uint32_t rotation) const { return magnitude_[rotation]; }
  // cos_sin: out [rope_dim / 2, 2]; angles in double, so that positions of 2^30 are still exact to 1e-7.
  void fill(uint32_t rotation, uint64_t pos, float* cos_sin) const;

 private:
  uint32_t rope_dim_ = 2;
  std::pmr::vector<double> angle_;                 // as angles()
  double magnitude_[kMostRotations] = {1.0, 1.0};  // YaRN's attention factor, on cos and sin alike
};

}  // namespace weir
