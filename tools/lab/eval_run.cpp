// One run; see eval_run.h.
#include "eval_run.h"

#include <algorithm>
#include <chrono>
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

// `second`: the answer to the follow-up question, if the problem has one.
void judge(const Problem& problem, const std::string& text, const std::string& second, RunRecord& record) {
  record.is_right = answer_is_right(problem, text, &record.n_wrong_lines);
  record.is_whole_text = text == problem.answer && second == problem.follow_up.answer;
  if (problem.follow_up.index >= 0) record.is_right = record.is_right && follow_up_is_right(problem.follow_up, second);
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

// What all runs of a problem have in common.
struct Task {
  Task(const weir_model* model, const EvalSettings& settings, const std::string& family, int index)
      : problem(eval_problem(settings, family, index)),
        prompt(prompt_tokens(model, problem, settings.question_as_decode)),
        n_expected(answer_tokens(model, problem).size()),
        n_max(longest(settings, n_expected)) {
    if (problem.follow_up.index < 0) return;
    constexpr uint32_t kFlags = WEIR_CHAT_ADD_ASSISTANT | WEIR_CHAT_CONTINUE;
    second_prompt = tokenize_chat(model, {{"user", problem.follow_up.question}}, kFlags);
    n_second = tokenize(model, problem.follow_up.answer, WEIR_TOKENIZE_SPECIAL).size();
  }
  static size_t longest(const EvalSettings& settings, size_t n) {
    return static_cast<size_t>(std::ceil(settings.max_factor * static_cast<double>(n))) + kSpareTokens;
  }
  bool has_second() const { return !second_prompt.empty(); }
  // A second prompt may begin and end inside a page of answers.
  size_t n_prompt_in_pages() const {
    return prompt.prefill.size() + (has_second() ? second_prompt.size() + 2 * size_t{kPageTokens} : 0);
  }

  Problem problem;
  PromptTokens prompt;
  size_t n_expected, n_max;               // tokens of the right answer, and of the longest that is waited for
  std::vector<weir_token> second_prompt;  // of the follow-up question
  size_t n_second = 0;                    // tokens of the right answer to it
};

// The session of a point, and what is known of its run by then.
Started start(const Task& task, weir_model* model, const EvalSettings& settings, const EvalPoint& point,
              RunRecord& record, const SessionHook& on_prefilled, uint32_t session_flags) {
  const PolicyEntry& policy = settings.policies[point.policy];
  record.family = point.family;
  record.id = task.problem.id;
  record.label = policy.label;
  record.spec = policy.spec();
  record.budget = point.budget;
  record.n_prompt = task.prompt.prefill.size() + task.prompt.question.size() + task.second_prompt.size();
  record.n_question = task.prompt.question.size();
  record.n_expected = task.n_expected + task.n_second;
  const size_t n_answers = task.n_max + (task.has_second() ? Task::longest(settings, task.n_second) : 0);
  const SessionFlags flags = point_session(policy, point.budget, task.n_prompt_in_pages(),
                                           task.prompt.question.size() + n_answers, settings.context);
  Started started = start_session(model, flags, session_flags, task.prompt, on_prefilled);
  record.is_refused = !started.session;
  record.message = started.refused;
  return started;
}

// A run among those that step together.
struct Lane {
  size_t index;  // of its point
  SessionPtr session;
  std::vector<weir_token> tokens;  // of the answer
  double decode_s;
  std::vector<weir_token> first;  // of the first answer, while the second is written
  bool is_second = false;
};

std::vector<Lane*> pointers_to(std::vector<Lane>& lanes) {
  std::vector<Lane*> pointers;
  for (Lane& lane : lanes) pointers.push_back(&lane);
  return pointers;
}

// The next token of the answer. False when the answer has ended, and the record says how; generate() ends it alike, but
// for stop_at_error.
bool draw(const weir_model* model, const Task& task, const EvalSettings& settings, Lane& lane, RunRecord& record) {
  record.stop = "error";
  const std::string& wanted = lane.is_second ? task.problem.follow_up.answer : task.problem.answer;
  if (settings.stop_at_error && !wanted.starts_with(detokenize(model, lane.tokens, WEIR_DETOKENIZE_SPECIAL)))
    return false;
  record.stop = stop_name(WEIR_STOP_LENGTH);
  if (lane.tokens.size() == (lane.is_second ? Task::longest(settings, task.n_second) : task.n_max)) return false;
  weir_token token = 0;
  weir_token_info info = WEIR_TOKEN_INFO_INIT;
  check(weir_session_sample(lane.session.get(), &token), "cannot draw a token");
  check(weir_token_get_info(model, token, &info), "cannot describe a token");
  record.stop = stop_name(WEIR_STOP_EOS);
  if ((info.flags & WEIR_TOKEN_END_OF_GENERATION) != 0) {
    if (lane.is_second || !task.has_second()) return false;
    lane.first.swap(lane.tokens);
    lane.is_second = true;
    prefill(lane.session.get(), task.second_prompt);
    return draw(model, task, settings, lane, record);
  }
  lane.tokens.push_back(token);
  return true;
}

// The answer so far; false when it has not ended by itself.
bool generate_answer(weir_session* session, size_t n_max, std::string& text, RunRecord& record) {
  const auto on_token = [&](const weir_token_event& event) {
    text.append(event.text, event.text_bytes);
    return interrupt_count() == 0;
  };
  // Files may class <think> as a control token; what the model thinks is part of what it says.
  const weir_generate_result result =
      generate(session, static_cast<uint32_t>(n_max), WEIR_GENERATE_SPECIAL_TEXT, on_token);
  if (result.stop == WEIR_STOP_CANCELLED) throw Interrupted();
  record.stop = stop_name(result.stop);
  record.n_decode += result.n_tokens;
  return result.stop == WEIR_STOP_EOS;
}

void step_together(const std::vector<Lane*>& lanes) {
  if (lanes.empty()) return;
  std::vector<weir_session*> sessions;
  std::vector<weir_token> tokens;
  for (const Lane* lane : lanes) {
    sessions.push_back(lane->session.get());
    tokens.push_back(lane->tokens.back());
  }
  const auto start = std::chrono::steady_clock::now();
  check(weir_step_many(sessions.data(), tokens.data(), static_cast<uint32_t>(sessions.size())), "cannot step");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  for (Lane* lane : lanes) lane->decode_s += seconds.count() / static_cast<double>(lanes.size());
}

}  // namespace

void check_policies(const weir_model* model, const EvalSettings& settings, size_t n_prompt, size_t n_decode) {
  for (const PolicyEntry& policy : settings.policies) {
    const uint32_t budget = policy.is_dense() || settings.budgets.empty() ? 0 : settings.budgets.back();
    const SessionFlags flags = point_session(policy, budget, n_prompt, n_decode, settings.context);
    SessionOptions options(flags);
    try {
      make_plan(model, options.get());
    } catch (const Error& e) {
      if (e.status() == WEIR_ERR_NOT_FOUND || e.status() == WEIR_ERR_INVALID_ARG) {
        throw UsageError("--policies " + policy.spec() + ": " + e.what());
      }
      if (e.status() != WEIR_ERR_BUDGET && e.status() != WEIR_ERR_UNSUPPORTED) throw;
    }
  }
}

PromptTokens prompt_tokens(const weir_model* model, const Problem& problem, bool question_as_decode) {
  // Whether there is a template was asked once for all (require_chat_template).
  constexpr uint32_t kFlags = WEIR_CHAT_ADD_ASSISTANT;
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
  options.get().flags |= session_flags;
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
  const Task task(model, settings, point.family, point.problem);
  RunRecord record;
  const Started started = start(task, model, settings, point, record, on_prefilled, session_flags);
  if (!started.session) return record;
  std::string text, second;
  if (generate_answer(started.session.get(), task.n_max, text, record) && task.has_second()) {
    prefill(started.session.get(), task.second_prompt);
    generate_answer(started.session.get(), Task::longest(settings, task.n_second), second, record);
  }
  judge(task.problem, text, second, record);
  read_counters(started.session.get(), record);
  return record;
}

std::vector<RunRecord> run_together(weir_model* model, const EvalSettings& settings,
                                    const std::vector<EvalPoint>& points) {
  const Task task(model, settings, points.at(0).family, points[0].problem);
  std::vector<RunRecord> records(points.size());
  std::vector<Lane> lanes;
  for (size_t i = 0; i < points.size(); ++i) {
    Started started = start(task, model, settings, points[i], records[i], nullptr, 0);
    if (started.session) lanes.push_back({i, std::move(started.session), {}, 0, {}});
  }
  for (std::vector<Lane*> live = pointers_to(lanes); !live.empty();) {
    if (interrupt_count() > 0) throw Interrupted();
    std::erase_if(live, [&](Lane* lane) { return !draw(model, task, settings, *lane, records[lane->index]); });
    step_together(live);
  }
  for (const Lane& lane : lanes) {
    RunRecord& record = records[lane.index];
    record.n_decode = lane.first.size() + lane.tokens.size();
    std::string text = detokenize(model, lane.is_second ? lane.first : lane.tokens, WEIR_DETOKENIZE_SPECIAL);
    std::string second = detokenize(model, lane.tokens, WEIR_DETOKENIZE_SPECIAL);
    judge(task.problem, text, lane.is_second ? second : "", record);
    read_counters(lane.session.get(), record);
    record.decode_s = lane.decode_s;
  }
  return records;
}

}  // namespace weir_cli
