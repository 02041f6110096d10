// weir eval --forced: the right answer's tokens are fed to a session with the whole history and to one under a policy,
// and what they predict and attend is compared token by token. No decoding luck: both always see the same text.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "eval_run.h"

namespace weir_cli {

// A line of forced.jsonl.
struct ForcedRecord : PointRecord {
  uint64_t n_positions = 0;      // predictions compared: after the prompt, and after each token of the answer
  double agreement = 0;          // part of them with the same most probable token
  double kl = 0;                 // mean KL(whole history || policy), nats
  std::optional<double> recall;  // of the true top pages, 0..1; none when the library cannot trace
};
nlohmann::ordered_json to_json(const ForcedRecord& record);

// Points of one problem that are compared with one run of the whole history: point_groups of as many sessions as may be
// alive together.
std::vector<std::vector<EvalPoint>> forced_groups(const std::vector<EvalPoint>& points);

// One record for each point of a group. Throws Interrupted on Ctrl-C.
std::vector<ForcedRecord> run_forced_group(weir_model* model, const EvalSettings& settings,
                                           const std::vector<EvalPoint>& group);

}  // namespace weir_cli
