// Rotary position embedding: the angle per position of every pair of a head, with the frequency scalings that GGUF
// files describe.
// Papers: Su et al., "RoFormer", arXiv:2104.09864, sec. 3.2; Peng et al., "YaRN", arXiv:2309.00071, sec. 3; linear
// scaling: Chen et al., arXiv:2306.15595, sec. 2.3. Llama 3's scaling arrives as per-frequency factors in the file, and
// so does LongRoPE's: Ding et al., arXiv:2402.13753, sec. 3.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "gguf/gguf.h"
#include "ops/types.h"

namespace weir {

// The rotations of a model's layers: one, or one for each kind of layer, at most kMaxRotations. All rotate the same
// number of elements of a head.
class RopeTable {
 public:
  explicit RopeTable(std::pmr::memory_resource* memory) : angle_(memory) {}

  // The tensors that read() takes, where a file has them: divisors of the angles, [rope_dim / 2] f32.
  static constexpr const char* kTensors[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                             "rope_factors_long.weight"};

  // What files have that lack the key.
  struct Usual {
    float base = 10000.0f;
    uint32_t dim = 0;  // elements of a head that rotate; 0: all
  };

  // Rotation 0: reads <prefix>.rope.* and the optional tensor rope_freqs.weight. With rope_factors_short.weight and
  // rope_factors_long.weight (LongRoPE) rotation 0 is for short contexts and rotation 1 for long ones. `yarn_rounds`:
  // the range of dimensions that YaRN blends ends at whole ones.
  Status read(const GgufFile& file, std::string_view prefix, uint32_t head_dim, uint32_t trained_tokens,
              const Usual& usual, bool yarn_rounds = true);
  // The next rotation, of that base and unscaled; `key` is what messages call the base.
  Status add(std::string_view key, float base);
  // The next rotation leaves everything as it is.
  Status add_none();

  // Which of the rotations is that of number 0 in a session of `context_tokens`.
  uint32_t first_rotation(uint32_t context_tokens) const { return context_tokens > short_tokens_ ? 1 : 0; }

  uint32_t rope_dim() const { return rope_dim_; }
  uint32_t n_rotations() const { return static_cast<uint32_t>(angle_.size() / (rope_dim_ / 2)); }
  // [n_rotations, rope_dim / 2] radians per position. With the magnitudes, what distinguishes this table from others;
  // for fingerprints.
  const std::pmr::vector<double>& angles() const { return angle_; }
  double magnitude(uint32_t rotation) const { return magnitude_[rotation]; }
  // cos_sin: out [rope_dim / 2, 2]; angles in double, so that positions of 2^30 are still exact to 1e-7.
  void fill(uint32_t rotation, uint64_t pos, float* cos_sin) const;

 private:
  struct Scaling;
  struct Divisors;
  void add_scaled(double base, const Scaling& scaling, const Divisors& divisors);

  uint32_t rope_dim_ = 2;
  uint32_t short_tokens_ = UINT32_MAX;            // contexts of up to so many use rotation 0
  std::pmr::vector<double> angle_;                // as angles()
  double magnitude_[kMaxRotations] = {1.0, 1.0};  // YaRN's attention factor, on cos and sin alike
};

}  // namespace weir
