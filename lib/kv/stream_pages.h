// How many pages a stream holds where that differs by layer or by KV head. By layer: a straight line from the first
// layer down to the last, in whole pages, whose sum is that of equal layers to the page. By head: streams that hold a
// window and nothing else. Both are numbers and not tables in memory of their own, so that plans and caches can have
// copies of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "ops/types.h"

namespace weir {

// Pages that a chunk of n_tok tokens and the window of `window` tokens before its first one's end touch, wherever they
// begin, but no more than the whole context has.
inline uint32_t pages_of_window(uint32_t window, uint32_t n_tok, uint32_t context_tokens) {
  const auto touched = static_cast<uint32_t>((uint64_t{window} + n_tok + 2 * kPageTokens - 3) / kPageTokens);
  return std::min(touched, (context_tokens + kPageTokens - 1) / kPageTokens);
}

// The streams that hold the first `sinks` tokens and the latest `window` of them, and no others.
struct StreamWindows {
  static constexpr uint32_t kMaxStreams = 4096;
  uint32_t sinks = 0, window = 0;  // window 0: there are no such streams
  uint32_t n_streams = 0;          // how many there are
  bool compensates = false;        // what leaves them is added up; see left_sums.h
  uint32_t bits[kMaxStreams / 32] = {};

  bool any() const { return window != 0; }
  bool has(uint32_t stream) const { return window != 0 && (bits[stream / 32] >> stream % 32 & 1) != 0; }
  void add(uint32_t stream) {
    bits[stream / 32] |= 1u << stream % 32;
    ++n_streams;
  }
  // The number of a stream among them.
  uint32_t rank(uint32_t stream) const {
    int n = std::popcount(bits[stream / 32] & ((1u << stream % 32) - 1));
    for (uint32_t i = 0; i < stream / 32; ++i) n += std::popcount(bits[i]);
    return static_cast<uint32_t>(n);
  }
  uint32_t sink_pages() const { return (sinks + kPageTokens - 1) / kPageTokens; }
  // Pages of such a stream while chunks have at most n_tok tokens.
  uint32_t pages(uint32_t n_tok, uint32_t context_tokens) const {
    const uint32_t whole = (context_tokens + kPageTokens - 1) / kPageTokens;
    return any() ? std::min(whole, sink_pages() + pages_of_window(window, n_tok, context_tokens)) : 0;
  }
};

struct LayerPages {
  uint32_t n_layers = 0;      // 0: all layers have the same
  uint32_t first_tokens = 0;  // what of a prompt stays in the first layer
  uint32_t last_tokens = 0;   // and in the last; not more
  uint32_t extra = 0;         // this many of the first layers have a page more, so that the sum is exact
  uint32_t rest = 0;          // pages of every layer beside those of the prompt

  bool differ() const { return n_layers != 0; }
  // Prompt tokens of a layer on the line, rounded to whole ones.
  uint32_t tokens(uint32_t number) const {
    const uint64_t steps = n_layers > 1 ? n_layers - 1 : 1;
    return static_cast<uint32_t>((line(number) + steps / 2) / steps);
  }
  uint32_t prompt_pages(uint32_t number) const {
    const uint64_t steps = n_layers > 1 ? n_layers - 1 : 1;
    return static_cast<uint32_t>(line(number) / (steps * kPageTokens)) + (number < extra ? 1u : 0u);
  }
  uint32_t pages(uint32_t number) const { return prompt_pages(number) + rest; }

 private:
  // Tokens times (n_layers - 1).
  uint64_t line(uint32_t number) const {
    if (n_layers <= 1) return first_tokens;
    return uint64_t{first_tokens} * (n_layers - 1) - uint64_t{number} * (first_tokens - last_tokens);
  }
};

// PyramidKV's allocation (docs/algorithms.md, "PyramidKV") of `mean_pages` prompt pages per layer: the last layer keeps
// a beta-th part of the mean, the first one what makes up for it, but not more than prompt_tokens less the window. All
// layers keep the mean if that is not possible with `window` tokens in every layer, and with beta = 1.
LayerPages pyramid_pages(uint32_t n_layers, uint32_t mean_pages, uint32_t prompt_tokens, float beta, uint32_t window);
// The line of the same in tokens, before it is rounded to pages.
LayerPages pyramid_line(uint32_t n_layers, uint32_t mean_tokens, uint32_t prompt_tokens, float beta, uint32_t window);

}  // namespace weir
