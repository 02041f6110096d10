// Budgets by layer. The line is that of PyramidKV (Cai et al., arXiv:2406.02069) as kvpress computes it: a layer's
// value is the total with the window.
#include "kv/stream_pages.h"

#include <algorithm>

namespace weir {

LayerPages pyramid_line(uint32_t n_layers, uint32_t mean_tokens, uint32_t prompt_tokens, float beta, uint32_t window) {
  LayerPages line;
  line.n_layers = n_layers;
  line.first_tokens = line.last_tokens = mean_tokens;
  const auto low = static_cast<int64_t>(static_cast<float>(mean_tokens) / beta);
  const int64_t most = int64_t{prompt_tokens} - window;
  const int64_t high = std::min(2 * int64_t{mean_tokens} - low, most), least = 2 * int64_t{mean_tokens} - high;
  if (n_layers < 2 || high < least || least < window || prompt_tokens < high) return line;
  line.first_tokens = static_cast<uint32_t>(high);
  line.last_tokens = static_cast<uint32_t>(least);
  return line;
}

LayerPages pyramid_pages(uint32_t n_layers, uint32_t mean_pages, uint32_t prompt_tokens, float beta, uint32_t window) {
  LayerPages line = pyramid_line(n_layers, mean_pages * kPageTokens, prompt_tokens, beta, window);
  // A last layer whose whole pages do not hold the window keeps the mean, and so do all.
  if (n_layers == 0 || line.prompt_pages(n_layers - 1) * kPageTokens < window)
    line.first_tokens = line.last_tokens = mean_pages * kPageTokens;
  uint64_t sum = 0;
  for (uint32_t number = 0; number < n_layers; ++number) sum += line.prompt_pages(number);
  line.extra = static_cast<uint32_t>(uint64_t{n_layers} * mean_pages - sum);
  return line;
}

}  // namespace weir
