// One run of an evaluation: a problem decoded greedily in a session of its own, judged, with what it cost.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "eval_settings.h"
#include "weir_cpp.h"

namespace weir_cli {

// What is fed before the answer. The question is empty unless it is to be decoded.
struct PromptTokens {
  std::vector<weir_token> prefill;
  std::vector<weir_token> question;  // fed one by one, as if decoded
};
PromptTokens prompt_tokens(const weir_model* model, const Problem& problem, bool question_as_decode);

// The expected answer, without the token that ends it.
std::vector<weir_token> answer_tokens(const weir_model* model, const Problem& problem);

// Tells wrong names and options of policies before the first run, as UsageError. The largest budget, with a prompt and
// an answer of these lengths, is the least likely to be refused for its size; what is refused all the same is a result
// of its own.
void check_policies(const weir_model* model, const EvalSettings& settings, size_t n_prompt, size_t n_decode);

// A session for the point with the prompt in it, the question included. When the library refuses the session, or the
// prompt does not fit its budget, there is no session and `refused` says why; any other failure is thrown.
struct Started {
  SessionPtr session;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  std::string refused;
};
using SessionHook = std::function<void(weir_session*)>;
// `session_flags`: WEIR_SESSION_*. `on_prefilled`, when there is one, is called between the prefill and the question.
Started start_session(weir_model* model, const SessionFlags& flags, uint32_t session_flags, const PromptTokens& prompt,
                      const SessionHook& on_prefilled = nullptr);

// What a line of each mode starts with: what was run, and whether it could be.
struct PointRecord {
  std::string family, id;   // of the problem or the text
  std::string label, spec;  // of the policy
  uint32_t budget = 0;      // tokens; 0: the whole history
  bool is_refused = false;  // then `message` says why, and nothing was measured
  std::string message;
};

// A line of results.jsonl.
struct RunRecord : PointRecord {
  bool is_right = false;
  bool is_whole_text = false;  // every character as expected
  int n_wrong_lines = 0;
  uint64_t n_prompt = 0;    // tokens, question included
  uint64_t n_question = 0;  // of these, fed as if decoded
  uint64_t n_decode = 0;    // tokens of the answer
  uint64_t n_expected = 0;  // tokens of the right answer
  std::string stop;         // "eos", "length" or "context"; "error" with stop_at_error
  uint64_t kv_peak_bytes = 0;
  uint64_t plan_bytes = 0;
  uint64_t pages_evicted = 0;
  uint64_t allocs_while_decoding = 0;
  double prefill_s = 0, decode_s = 0;
};

// Runs one point. Throws Interrupted on Ctrl-C.
RunRecord run_point(weir_model* model, const EvalSettings& settings, const EvalPoint& point,
                    const SessionHook& on_prefilled = nullptr, uint32_t session_flags = 0);

// Runs points of one problem whose sessions take their steps together: logits, and so answers, are those of sessions
// alone while there are at most kMaxTogether, and the weights are read once a step. decode_s is a run's part of the
// steps' time. With settings.stop_at_error an answer ends where it leaves the right one.
inline constexpr size_t kMaxTogether = 8;
std::vector<RunRecord> run_together(weir_model* model, const EvalSettings& settings,
                                    const std::vector<EvalPoint>& points);

class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted; the same command goes on from here") {}
};

}  // namespace weir_cli
