// Attention weights in f64 straight from the simulator's inputs, for tests that recompute what a policy observed:
// no pages, no ops.
#pragma once

#include "tests/policy/session_sim.h"

namespace weir::test {

class ExactAttention {
 public:
  explicit ExactAttention(const Inputs& inputs) : inputs_(inputs) {
    const SimShape& s = inputs.shape;
    for (uint32_t layer = 0; layer < s.n_layers; ++layer) {
      keys_.emplace_back(size_t{inputs.n_tokens} * s.n_kv_heads * s.head_dim);
      for (uint32_t i = 0; i < inputs.n_tokens * s.n_kv_heads; ++i) {
        const size_t at = size_t{i} * s.head_dim;
        rotate(inputs.k(layer, 0) + at, i / s.n_kv_heads, true, &keys_.back()[at]);
      }
    }
  }

  // Softmax weights of one query head at position t over `positions`, ascending and none after t.
  std::vector<double> weights(uint32_t layer, uint32_t head, uint32_t t, const std::vector<uint32_t>& positions) const {
    const SimShape& s = inputs_.shape;
    std::vector<double> q(s.head_dim);
    rotate(inputs_.q(layer, t) + size_t{head} * s.head_dim, t, false, q.data());
    std::vector<double> w;
    for (uint32_t pos : positions) {
      const double* k = &keys_[layer][(size_t{pos} * s.n_kv_heads + head / s.group) * s.head_dim];
      double dot = 0.0;
      for (size_t i = 0; i < s.head_dim; ++i) dot += q[i] * k[i];
      w.push_back(dot * double{s.scale()});
    }
    const double high = *std::max_element(w.begin(), w.end());
    double sum = 0.0;
    for (double& x : w) sum += x = std::exp(x - high);
    for (double& x : w) x /= sum;
    return w;
  }

  // Output of that attention, [head_dim].
  std::vector<double> output(uint32_t layer, uint32_t head, uint32_t t, const std::vector<uint32_t>& positions) const {
    const SimShape& s = inputs_.shape;
    const std::vector<double> w = weights(layer, head, t, positions);
    std::vector<double> o(s.head_dim);
    for (size_t j = 0; j < positions.size(); ++j) {
      const float* v = inputs_.v(layer, positions[j]) + size_t{head / s.group} * s.head_dim;
      for (size_t i = 0; i < o.size(); ++i) o[i] += w[j] * double{bf16_to_f32(f32_to_bf16(v[i]))};
    }
    return o;
  }

  // Weights over everything up to t.
  std::vector<double> causal(uint32_t layer, uint32_t head, uint32_t t) const {
    std::vector<uint32_t> all(t + 1);
    for (uint32_t i = 0; i <= t; ++i) all[i] = i;
    return weights(layer, head, t, all);
  }

  // A key as it is stored, and a query at its position.
  const double* key(uint32_t layer, uint32_t kv_head, uint32_t pos) const {
    const SimShape& s = inputs_.shape;
    return &keys_[layer][(size_t{pos} * s.n_kv_heads + kv_head) * s.head_dim];
  }
  std::vector<double> query(uint32_t layer, uint32_t head, uint32_t pos) const {
    std::vector<double> q(inputs_.shape.head_dim);
    rotate(inputs_.q(layer, pos) + size_t{head} * inputs_.shape.head_dim, pos, false, q.data());
    return q;
  }

 private:
  // A head's vector rotated to its position; keys as they are stored.
  void rotate(const float* x, uint32_t pos, bool as_key, double* y) const {
    const uint32_t d = inputs_.shape.head_dim, half = d / 2;
    std::vector<float> cos_sin(d);
    fill_rotation(inputs_.shape, pos, cos_sin.data());
    for (uint32_t i = 0; i < half; ++i) {
      const float cos = cos_sin[2 * i], sin = cos_sin[2 * i + 1];
      const float first = x[i] * cos - x[i + half] * sin, second = x[i] * sin + x[i + half] * cos;
      y[i] = double{as_key ? bf16_to_f32(f32_to_bf16(first)) : first};
      y[i + half] = double{as_key ? bf16_to_f32(f32_to_bf16(second)) : second};
    }
  }

  const Inputs& inputs_;
  std::vector<std::vector<double>> keys_;  // [n_layers][n_tokens, n_kv_heads, head_dim]
};

}  // namespace weir::test
