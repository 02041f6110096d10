// weir eval --trace and --draw.
#pragma once

#include <string>

#include "eval_settings.h"

namespace weir_cli {

struct TraceFlags {
  std::string file;  // --trace: where to record
  std::string draw;  // --draw: a recording
  int layer = -1;    // -1: the middle one
  int head = 0;
};

// Records one run: the first problem of the one family, under the one policy and budget that `settings` hold. Then
// draws it. Throws UsageError when there are more.
int record_trace_command(const TraceFlags& flags, const std::string& model_path, const EvalSettings& settings);

// Draws a recording to its name with .svg and .png after it.
int draw_trace_command(const TraceFlags& flags);

}  // namespace weir_cli
