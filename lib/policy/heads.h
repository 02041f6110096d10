// Head policies: which KV heads are retrieval heads and which are streaming heads, for any policy. A streaming head's
// stream holds the first tokens and a window of the latest; lib/kv/stream_pages.h says how. The others are the
// policy's. The scores come from a head file (docs/formats/heads.md).
#pragma once

#include "core/status.h"
#include "kv/stream_pages.h"
#include "policy/policy.h"

namespace weir {

// What a head file says, and where its tables of scores begin.
struct HeadFile {
  std::string_view text;
  uint32_t n_layers = 0, n_kv_heads = 0, head_dim = 0, sinks = 0, recent = 0;
  size_t scores_at = 0;
  size_t echo_at = 0, induction_at = 0;  // 0: a file of version 1, which has only the first table
};

// Checks all of a head file. Errors name the line and what was expected there: WEIR_ERR_FORMAT, or WEIR_ERR_UNSUPPORTED
// for a version that this library does not know.
Status read_head_file(std::string_view text, HeadFile& file);

// The scores of each layer's KV heads in one of the tables, 0 to 1. Scores outside count as the nearest of the two.
class HeadScores {
 public:
  HeadScores(const HeadFile& file, size_t at) : rest_(file.text.substr(at)) {}
  float next();  // row by row

 private:
  std::string_view rest_;
};

// Reads the options that begin with "heads". `windows`: the streams of streaming heads; none without these options.
// `next`: what decides in the other streams.
Status read_heads(const PolicyConfig& config, const PolicyNeeds& next, StreamWindows& windows);

}  // namespace weir
