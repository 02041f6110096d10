// Head policies: which KV heads are retrieval heads and which are streaming heads, for any policy. A streaming head's
// stream holds the first tokens and a window of the latest; lib/kv/stream_pages.h says how. The others are the
// policy's. The scores come from a head file (docs/formats/heads.md).
#pragma once

#include "core/status.h"
#include "kv/stream_pages.h"
#include "policy/policy.h"

namespace weir {

// What a head file says, and where its lines of scores begin.
struct HeadFile {
  std::string_view text;
  uint32_t n_layers = 0, n_kv_heads = 0, head_dim = 0, sinks = 0, recent = 0;
  size_t scores_at = 0;
  uint32_t scores_line = 0;
};

// Checks all of a head file. Errors name the line and what was expected there: WEIR_ERR_FORMAT, or WEIR_ERR_UNSUPPORTED
// for a version that this library does not know.
Status read_head_file(std::string_view text, HeadFile& file);

// The file's score of a layer's KV head, 0 to 1. Scores outside count as the nearest of the two.
class HeadScores {
 public:
  explicit HeadScores(const HeadFile& file) : rest_(file.text.substr(file.scores_at)) {}
  float next();  // row by row

 private:
  std::string_view rest_;
};

// Reads the options that begin with "heads". `windows`: the streams of streaming heads; none without these options.
// `next`: what decides in the other streams.
Status read_heads(const PolicyConfig& config, const PolicyNeeds& next, StreamWindows& windows);

}  // namespace weir
