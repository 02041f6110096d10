// The activations of a pass, and where prompts that recall pages are staged. All belong to a session; lay_out_rows()
// and lay_out_attention() (decoder.h) place them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/history.h"

namespace weir {

class Arena;
class PageFetcher;

// Where the pages of a prompt's unit of attention lie while some of them are cold, and what attention carries from one
// unit to the next.
struct StagingWindow {
  uint16_t* pages = nullptr;  // [n_kv_heads, kSplitPages, KvView::page_elements()]; null without recall
  uint32_t* slots = nullptr;  // this and the next two: [n_kv_heads, kSplitPages]
  uint32_t* first_pos = nullptr;
  uint32_t* len = nullptr;
  uint32_t* n_pages = nullptr;            // [n_kv_heads]
  float *high = nullptr, *sum = nullptr;  // [max_tok, n_heads]; see AttnCarry
  void lay_out(uint32_t n_kv_heads, uint64_t page_bytes, uint32_t n_heads, uint32_t max_tok, Arena& arena);
};

// Activations, laid out once per session for `max_tok` rows.
struct StepBuffers {
  uint32_t max_tok = 0;
  float* x = nullptr;       // [max_tok, d_model] residual stream
  float* h = nullptr;       // [max_tok, d_model] normalised
  float* q = nullptr;       // [max_tok, n_heads, head_dim]
  float* q_sink = nullptr;  // the same, for sink pages; null unless the policy needs it
  float* k = nullptr;       // [max_tok, n_kv_heads, head_dim]
  float* v = nullptr;       // [max_tok, n_kv_heads, head_dim]
  float* o = nullptr;       // [max_tok, n_heads, head_dim] attention output
  float* g = nullptr;       // [max_tok, d_ff]
  float* r = nullptr;       // [max_tok, d_model] result of a stage that has a norm after it; null when none has
  float* q_gate = nullptr;  // [max_tok, n_heads, 2, head_dim] where attention's output has gates
  float* mix_in = nullptr;  // this and the next four: Row (layer.h); null where no layer is recurrent
  float *mix_gate = nullptr, *beta = nullptr, *alpha = nullptr, *mix_out = nullptr;
  uint32_t first_rotation = 0;    // RopeTable::first_rotation
  float* cos_sin = nullptr;       // [rotations of the model, max_tok, rope_dim / 2, 2]
  float* cos_sin_sink = nullptr;  // the same, for q_sink
  float* page_mass = nullptr;     // [n_heads, most pages of a stream]; null unless policy or trace need it
  float* page_score = nullptr;    // the same shape; null without digests
  uint32_t* select = nullptr;     // [n_lists, most pages of a stream]; null unless the policy selects pages
  uint32_t* n_select = nullptr;   // [n_lists], or with PolicyNeeds::history [n_kv_heads] keys read
  float* lse = nullptr;           // [max_tok, n_heads]; null unless the policy observes prompts or streams compensate
  // [layers that learn, prompt_rows, n_heads, head_dim] with PolicyNeeds::history: the last queries of a prompt
  float* learn_q = nullptr;
  float* token_mass = nullptr;  // [n_kv_heads, most pages of a stream * kPageTokens]; null unless it observes prompts
  float* logits = nullptr;      // [vocab_size] after the last token
  StagingWindow staging;
  PageFetcher* fetcher = nullptr;  // with PolicyNeeds::fetch_pages
  HistoryAhead ahead;              // with PolicyNeeds::history, if a device computes while the host attends

  // Where a rotation begins in cos_sin and cos_sin_sink.
  size_t rotation(uint32_t number, uint32_t rope_dim) const { return size_t{number} * max_tok * rope_dim; }
  uint64_t plain_bytes = 0;  // of the workspace, from its beginning: they hold numbers, and nothing between two passes
};

}  // namespace weir
