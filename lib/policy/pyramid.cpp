// PyramidKV: SnapKV with a budget per layer that falls in a straight line from the first layer to the last. The sum is
// that of equal layers to the page, and so are the session's bytes.
// Paper: Cai et al., "PyramidKV: Dynamic KV Cache Compression based on Pyramidal Information Funneling",
// arXiv:2406.02069, sec. 4; docs/algorithms.md, "PyramidKV".
// Differs from the paper: budgets are whole pages, and the pages that rounding leaves over go to the first layers; a
// layer's budget counts its window, as in kvpress; the line does not depend on the prompt's length, but on
// max_prompt_tokens, so that it is known when the session is planned; and every table has the same room for the answer.
#include "policy/snapkv.h"

namespace weir {

Status make_pyramid(const PolicyConfig& config, PolicyStorage& storage, Policy& next, Policy*& out) {
  SnapKvOptions o;
  PolicyNeeds needs;
  OptionReader options("pyramid", config.options, OptionReader::kPromptPolicy);
  float beta = 20.0f;  // as in the paper
  WEIR_TRY(options.get_f32("prompt_beta", beta, 1.0f, 1000.0f));
  WEIR_TRY(read_snapkv("pyramid", config, next, options, o, needs));
  o.n_kv_heads = config.n_kv_heads;
  o.global_every = config.global_every;
  o.n_wide_layers = needs.n_wide_layers;
  const uint32_t every = config.global_every == 0 ? 1 : config.global_every;
  const uint32_t n_layers = config.n_layers / every - needs.n_wide_layers / every;
  const uint32_t longest = config.max_prompt_tokens != 0 ? config.max_prompt_tokens : needs.context_tokens;
  o.by_layer = pyramid_pages(n_layers, o.pages, longest, beta, o.window);
  if (o.by_layer.first_tokens == o.by_layer.last_tokens) o.by_layer = {};  // SnapKV
  const bool holds_all = uint64_t{needs.pages_per_stream} * kPageTokens >= needs.context_tokens;
  if (!holds_all && o.by_layer.differ()) {
    o.by_layer.rest = needs.pages_per_stream - o.pages;
    needs.layer_pages = o.by_layer;
  }
  out = put_snapkv(config, storage, next, needs, o);
  return {};
}

}  // namespace weir
