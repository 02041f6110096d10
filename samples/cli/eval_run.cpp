// One run; see eval_run.h.
#include "eval_run.h"

#include <algorithm>
#include <cmath>

#include "terminal.h"

namespace weir_cli {
namespace {

constexpr size_t kSpareTokens = 32;  // an answer that differs in a word or two may end even when max_factor is 1

// What the library refuses for its size or its place in the budget. Anything else is a failure of the evaluation.
bool is_refusal(weir_status status) {
  return status == WEIR_ERR_BUDGET || status == WEIR_ERR_INVALID_ARG || status == WEIR_ERR_UNSUPPORTED ||
         status == WEIR_ERR_CONTEXT_FULL;
}

const char* stop_name(int32_t stop) {
  return stop == WEIR_STOP_EOS ? "eos" : stop == WEIR_STOP_CONTEXT ? "context" : "length";
}

void judge(const Problem& problem, const std::string& text, RunRecord& record) {
  record.is_right = answer_is_right(problem, text, &record.n_wrong_lines);
  record.is_whole_text = text == problem.answer;
}

void read_counters(const weir_session* session, RunRecord& record) {
  const weir_session_stats stats = session_stats(session);
  const weir_memory_info memory = session_memory(session);
  record.kv_peak_bytes = memory.kv_peak_bytes;
  record.plan_bytes = memory.plan_bytes;
  record.allocs_while_decoding = memory.allocs_while_decoding;
  record.pages_evicted = stats.pages_evicted;
  record.prefill_s = static_cast<double>(stats.prefill_ns) * 1e-9;
  record.decode_s = static_cast<double>(stats.decode_ns) * 1e-9;
}

}  // namespace

PromptTokens prompt_tokens(const weir_model* model, const Problem& problem, bool question_as_decode) {
  // Whether the template is known, or one that resembles it accepted, was asked once for all (require_chat_template).
  constexpr uint32_t kFlags = WEIR_CHAT_ADD_ASSISTANT | WEIR_CHAT_ACCEPT_RESEMBLING;
  PromptTokens prompt;
  prompt.prefill = tokenize_chat(model, {{"user", problem.prompt}}, kFlags);
  if (!question_as_decode) return prompt;
  const std::string text = render_chat(model, {{"user", problem.prompt}}, kFlags);
  const std::string question = problem.prompt.substr(problem.question_at);
  const size_t at = text.rfind(question);
  if (question.empty() || at == std::string::npos || at == 0) {
    throw std::runtime_error(problem.id + ": the question is not in the rendered prompt, so it cannot be decoded");
  }
  // Where the tokens of the text before the question leave those of the whole prompt; a token may span the border.
  const std::vector<weir_token> before = tokenize(model, text.substr(0, at), WEIR_TOKENIZE_SPECIAL);
  const auto border = std::mismatch(prompt.prefill.begin(), prompt.prefill.end(), before.begin(), before.end()).first;
  prompt.question.assign(border, prompt.prefill.end());
  prompt.prefill.erase(border, prompt.prefill.end());
  return prompt;
}

std::vector<weir_token> answer_tokens(const weir_model* model, const Problem& problem) {
  return tokenize(model, problem.answer, WEIR_TOKENIZE_SPECIAL);
}

Started start_session(weir_model* model, const SessionFlags& flags, uint32_t session_flags, const PromptTokens& prompt,
                      const SessionHook& on_prefilled) {
  Started started;
  SessionOptions options(flags);
  options.get().flags = session_flags;
  try {
    started.plan = make_plan(model, options.get());
    started.session = create_session(model, options.get());
    prefill(started.session.get(), prompt.prefill);
    if (on_prefilled) on_prefilled(started.session.get());
    for (weir_token token : prompt.question) {
      check(weir_session_step(started.session.get(), token), "cannot decode the question");
    }
  } catch (const Error& e) {
    if (!is_refusal(e.status())) throw;
    started.session.reset();
    started.refused = e.what();
  }
  return started;
}

RunRecord run_point(weir_model* model, const EvalSettings& settings, const EvalPoint& point,
                    const SessionHook& on_prefilled, uint32_t session_flags) {
  const Problem problem = eval_problem(settings, point.family, point.problem);
  const PolicyEntry& policy = settings.policies[point.policy];
  const PromptTokens prompt = prompt_tokens(model, problem, settings.question_as_decode);
  RunRecord record;
  record.family = point.family;
  record.id = problem.id;
  record.label = policy.label;
  record.spec = policy.spec();
  record.budget = point.budget;
  record.n_prompt = prompt.prefill.size() + prompt.question.size();
  record.n_question = prompt.question.size();
  record.n_expected = answer_tokens(model, problem).size();
  const size_t n_most =
      static_cast<size_t>(std::ceil(settings.max_factor * static_cast<double>(record.n_expected))) + kSpareTokens;

  const SessionFlags flags =
      point_session(policy, point.budget, prompt.prefill.size(), prompt.question.size() + n_most);
  const Started started = start_session(model, flags, session_flags, prompt, on_prefilled);
  if (!started.session) {
    record.is_refused = true;
    record.message = started.refused;
    return record;
  }
  std::string text;
  const auto on_token = [&](const weir_token_event& event) {
    text.append(event.text, event.text_bytes);
    return interrupt_count() == 0;
  };
  // Files may class <think> as a control token; what the model thinks is part of what it says.
  const weir_generate_result result =
      generate(started.session.get(), static_cast<uint32_t>(n_most), WEIR_GENERATE_SPECIAL_TEXT, on_token);
  if (result.stop == WEIR_STOP_CANCELLED) throw Interrupted();
  record.stop = stop_name(result.stop);
  record.n_decode = result.n_tokens;
  judge(problem, text, record);
  read_counters(started.session.get(), record);
  return record;
}

}  // namespace weir_cli
