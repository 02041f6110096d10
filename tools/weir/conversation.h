// A conversation as the program is given it, and its solution: every turn answered in one fresh session, with what that
// cost. A new session per conversation makes the plan, the peaks and the counters those of this conversation alone.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "options.h"
#include "session_file.h"
#include "tools.h"
#include "weir_cpp.h"

namespace weir_cli {

// What answers may be: enum weir_constraint_kind, and its text.
struct ConstraintText {
  int32_t kind;
  std::string text;
};

struct Conversation {
  nlohmann::json id;              // as given, of any type
  std::vector<Message> messages;  // used unless is_raw
  std::string raw_text;           // the whole prompt as it is, without a chat template
  bool is_raw = false;
  // Fields below that are not set, or 0, mean what the command says.
  uint32_t max_tokens = 0;                        // of each answer
  std::optional<std::vector<std::string>> stops;  // that end an answer
  std::optional<ConstraintText> constraint;
  std::optional<ToolList> tools;
  std::optional<std::string> tool_choice;  // kToolsFree and so on, or the name of a tool
  std::optional<std::string> variables;    // of the chat template, a JSON object, or ""
};

// One line of a prompts file. `system` ("" for none) goes in front of messages that do not start with a system message.
// Throws std::runtime_error saying what is wrong with the line; a field that is not known is wrong, too.
Conversation parse_conversation(const nlohmann::ordered_json& line, const std::string& system, bool raw);

// What to feed before each answer, one entry per answer. A user message is answered by the model, and so are the
// results of tools, unless an assistant message follows: that is history, taken as said. `continues`: the first turn
// follows an answer of the session. `add_bos`: raw text begins with the begin-of-text token, once where the text has it
// already.
// Throws Error, or std::runtime_error for messages in an impossible order.
std::vector<std::vector<weir_token>> render_turns(const weir_model* model, const Conversation& conversation,
                                                  bool add_bos, const ChatSettings& settings = {},
                                                  bool continues = false);

// Before any work: what is wrong with these stop strings, or "".
std::string wrong_with_stops(const std::vector<std::string>& stops);

// Whether the file asks for a begin-of-text token before a text.
bool wants_bos(const weir_model* model);

// A renderer of turns needs a chat template, the file's or a given one. Throws std::runtime_error naming the file and
// what helps, of a command that asks problems in the file's own the commands that take another one.
void require_chat_template(const weir_model* model, const std::string& path, bool takes_another = true);

// Most tokens of an answer when the user gave no number: what the model was trained for. A policy may have no end of
// its context, and a model that has lost its thread may never end its answer.
uint32_t answer_limit(const weir_model* model);

// Prompt tokens to plan for when the policy pins prompts: a later turn can start and end inside pages, which are pinned
// whole.
uint32_t pinned_prompt_tokens(const std::vector<std::vector<weir_token>>& turns);

struct SolveOptions {
  SessionFlags session;
  SamplingFlags sampling;
  uint32_t max_tokens = 0;         // of each answer; 0: answer_limit()
  std::vector<std::string> stops;  // texts that end an answer
  uint32_t min_tokens = 0;         // of each answer
  uint32_t n_top = 0;              // of each token, so many of the most probable go to Solution::logprobs
  uint32_t thinking_budget = 0;    // tokens of a thought; 0: no limit
  std::string thinking_close;      // said where that ends it
  std::optional<ConstraintText> constraint;
  ToolList tools;
  std::string tool_choice = kToolsFree;
  std::string variables;        // of the chat template, as variables_of_flags() gives them
  std::optional<bool> add_bos;  // to raw text; none: as the file asks
  std::string chat_template;    // instead of the model's own, as read_template() gives it
  std::string resume;           // the file of --resume, or ""
  OutFile* save = nullptr;      // where the conversation goes at the end, if anywhere
};

// How solve() shows what happens; each may be empty. Returning false cancels.
struct SolveHooks {
  PrefillFn on_prefill;
  std::function<bool(const weir_token_event&, const weir_session*)> on_token;
  std::function<void(const weir_session*)> on_end;  // after the last token, unless something failed
};

struct Solution {
  nlohmann::json id;
  std::vector<std::string> texts;        // one per answer
  std::vector<nlohmann::json> logprobs;  // one list per answer, where they were asked for
  bool has_tools = false;
  std::vector<nlohmann::ordered_json> calls;  // then one list per answer, of id, name and arguments
  bool has_malformed_call = false;            // one that cannot be read, in any answer
  std::string stop = "error";                 // "eos", "length", "context", "stop", "constraint", "tool_call",
                                              // "cancelled" or "error"
  std::string stop_string;                    // of "stop": which it was
  std::string error;                          // set when stop is "error"
  std::string policy;
  uint32_t max_tokens = 0;  // of each answer, as asked for; 0: it was not
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
  weir_session_stats stats = WEIR_SESSION_STATS_INIT;

  double tokens_per_second() const;
};

// What no prompt can make right: variables that the template never reads, tools that it has no place for, a model whose
// calls cannot be read or that has no thoughts to limit. Throws std::runtime_error naming the flag.
void require_chat_abilities(const weir_model* model, const SolveOptions& options);
void require_thoughts(const weir_model* model);

// Why one answer cannot have both.
inline constexpr char kToolsOrConstraint[] =
    "tools and a schema or grammar exclude each other: every answer is a text of the latter, so that none could call a "
    "tool";

// Never throws for what a model, a budget or a prompt can do wrong: that is Solution::error.
Solution solve(weir_model* model, const SolveOptions& options, const Conversation& conversation,
               const SolveHooks& hooks);

// The answers of a conversation as one text, answers separated by a newline.
std::string joined_texts(const Solution& solution);
nlohmann::ordered_json to_json(const Solution& solution);

// One line; text that is not UTF-8 (a broken input file's id) is replaced instead of refused.
std::string dump_json(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace weir_cli
