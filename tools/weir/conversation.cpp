// Reading conversations and solving them; see conversation.h.
#include "conversation.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>

#include "output.h"

namespace weir_cli {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

const std::string& string_field(const ordered_json& object, const char* key) {
  const auto field = object.find(key);
  if (field == object.end()) throw std::runtime_error(std::string("\"") + key + "\" is missing");
  if (!field->is_string()) throw std::runtime_error(std::string("\"") + key + "\" is not a string");
  return field->get_ref<const std::string&>();
}

// Fields that are not known would change the answer if they were; so they are no small matter.
void check_fields(const ordered_json& object, const std::string& of_what, const std::vector<const char*>& known) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string names;
    for (const char* name : known) names += std::string(names.empty() ? "\"" : ", \"") + name + "\"";
    throw std::runtime_error("\"" + key + "\" is no field of " + of_what + "; it has " + names);
  }
}

uint32_t max_tokens_field(const ordered_json& line) {
  const auto field = line.find("max_tokens");
  if (field == line.end()) return 0;
  if (field->is_number_unsigned()) {
    const auto value = field->get<uint64_t>();
    if (value > 0 && value <= UINT32_MAX) return static_cast<uint32_t>(value);
  }
  throw std::runtime_error("\"max_tokens\" is not a whole number from 1 to " + std::to_string(UINT32_MAX));
}

// A text or a list of texts.
std::optional<std::vector<std::string>> stop_field(const ordered_json& line) {
  const auto field = line.find("stop");
  if (field == line.end()) return std::nullopt;
  const ordered_json list = field->is_string() ? ordered_json::array({*field}) : *field;
  const bool are_texts = list.is_array() && std::all_of(list.begin(), list.end(),
                                                        [](const ordered_json& stop) { return stop.is_string(); });
  if (!are_texts) throw std::runtime_error("\"stop\" is neither a text nor a list of texts");
  auto stops = list.get<std::vector<std::string>>();
  const std::string wrong = wrong_with_stops(stops);
  if (!wrong.empty()) throw std::runtime_error("\"stop\": " + wrong);
  return stops;
}

// The fields that change the answers: null is none, whatever the command says.
void read_tool_fields(const ordered_json& line, Conversation& conversation) {
  if (const auto field = line.find("tools"); field != line.end())
    conversation.tools = field->is_null() ? ToolList() : parse_tools(field->dump(), "\"tools\": ");
  if (line.contains("tool_choice")) conversation.tool_choice = string_field(line, "tool_choice");
  if (const auto field = line.find("variables"); field != line.end()) {
    if (!field->is_object() && !field->is_null()) throw std::runtime_error("\"variables\" is not an object");
    conversation.variables = field->is_null() || field->empty() ? "" : field->dump();
  }
  if (const auto field = line.find("json_schema"); field != line.end())
    conversation.constraint = ConstraintText{WEIR_CONSTRAINT_JSON_SCHEMA, field->dump()};
}

// A text, or as OpenAI's API has it, too, a list of parts that are texts.
std::string content_field(const ordered_json& item) {
  const auto field = item.find("content");
  if (field == item.end() || !field->is_array()) return string_field(item, "content");
  std::string all;
  for (const ordered_json& part : *field) {
    if (!part.is_object()) throw std::runtime_error("\"content\" holds a part that is not an object");
    check_fields(part, "a part of \"content\"", {"type", "text"});
    if (string_field(part, "type") != "text")
      throw std::runtime_error("\"content\" holds a part of the type " + part["type"].dump() +
                               "; there is only \"text\"");
    all += string_field(part, "text");
  }
  return all;
}

Message parse_message(const ordered_json& item) {
  if (!item.is_object()) throw std::runtime_error("\"messages\" holds something that is not an object");
  Message m{string_field(item, "role"), ""};
  const char* const roles[] = {"system", "user", "assistant", "tool", "developer"};
  if (std::find(std::begin(roles), std::end(roles), m.role) == std::end(roles))
    throw std::runtime_error("role \"" + m.role + "\" is not system, user, assistant, tool or developer");
  std::vector<const char*> fields = {"role", "content"};
  if (m.role == "assistant") fields.push_back("tool_calls");
  if (m.role == "tool") fields.insert(fields.end(), {"tool_call_id", "name"});
  check_fields(item, "a message of the role " + m.role, fields);
  const auto calls = item.find("tool_calls"), content = item.find("content");
  if (calls != item.end() && !calls->is_null()) {
    if (!calls->is_array()) throw std::runtime_error("\"tool_calls\" is not a list of calls");
    m.tool_calls = calls->dump();
  }
  const bool may_lack_content = !m.tool_calls.empty() && (content == item.end() || content->is_null());
  if (!may_lack_content) m.content = content_field(item);
  if (item.contains("tool_call_id")) m.tool_call_id = string_field(item, "tool_call_id");
  if (item.contains("name")) m.name = string_field(item, "name");
  return m;
}

std::vector<Message> parse_messages(const ordered_json& list) {
  if (!list.is_array() || list.empty()) throw std::runtime_error("\"messages\" is not a list of messages");
  std::vector<Message> messages;
  for (const ordered_json& item : list) messages.push_back(parse_message(item));
  if (messages.back().role != "user" && messages.back().role != "tool")
    throw std::runtime_error("the last message is neither a user's nor a tool's, so there is nothing to answer");
  return messages;
}

const char* stop_name(int32_t stop) {
  switch (stop) {
    case WEIR_STOP_EOS:
      return "eos";
    case WEIR_STOP_LENGTH:
      return "length";
    case WEIR_STOP_CONTEXT:
      return "context";
    case WEIR_STOP_CANCELLED:
      return "cancelled";
    case WEIR_STOP_STRING:
      return "stop";
    case WEIR_STOP_CONSTRAINT:
      return "constraint";
    case WEIR_STOP_TOOL_CALL:
      return "tool_call";
    default:
      return "error";
  }
}

json token_json(const weir_model* model, weir_token token, float logprob) {
  weir_token_info info = WEIR_TOKEN_INFO_INIT;
  check(weir_token_get_info(model, token, &info), "cannot describe a token");
  return {{"id", token}, {"text", std::string(info.bytes, info.n_bytes)}, {"logprob", logprob}};
}

// Answers one turn; the text goes to `solution` as it comes, so that it is there even when a later call fails.
// `must_call`: the answer is made to be a call of a tool.
void answer_turn(const weir_model* model, weir_session* session, const std::vector<weir_token>& prompt,
                 const AnswerOptions& options, bool must_call, const SolveHooks& hooks, Solution& solution) {
  try {
    prefill(session, prompt, hooks.on_prefill);
  } catch (const Error& e) {
    if (e.status() != WEIR_ERR_CANCELLED) throw;
    solution.stop = "cancelled";
    return;
  }
  std::string& text = solution.texts.emplace_back();
  if (options.n_top != 0) solution.logprobs.push_back(json::array());
  const auto on_token = [&](const weir_token_event& event) {
    text.append(event.text, event.text_bytes);
    if (options.n_top != 0 && event.token >= 0) {
      json& told = solution.logprobs.back().emplace_back(token_json(model, event.token, event.logprob));
      json& top = told["top"] = json::array();
      for (uint32_t i = 0; i < event.n_top; ++i)
        top.push_back(token_json(model, event.top[i].token, event.top[i].logprob));
    }
    return !hooks.on_token || hooks.on_token(event, session);
  };
  const weir_generate_result result = generate(session, options, on_token);
  solution.stop = stop_name(result.stop);
  solution.stop_string = result.stop_index >= 0 ? options.stops[static_cast<size_t>(result.stop_index)] : "";
  if (!solution.has_tools) return;
  size_t n_before = 0;
  for (const ordered_json& calls : solution.calls) n_before += calls.size();
  bool is_malformed = false;
  solution.calls.push_back(calls_of_answer(session, must_call, n_before, is_malformed));
  solution.has_malformed_call |= is_malformed;
  if (must_call && result.stop == WEIR_STOP_CONSTRAINT) solution.stop = stop_name(WEIR_STOP_TOOL_CALL);
}

// What holds for a conversation: what it says itself, else what the command says.
struct Settings {
  ChatSettings chat;
  AnswerOptions answer;
  std::optional<ConstraintText> constraint;
  bool has_tools = false, must_call = false;
};

// `what` names where the tools are from.
void require_place_for_tools(const weir_model* model, const std::string& chat_template, const std::string& tools,
                             const char* what) {
  if (try_chat_settings(model, {chat_template, tools, ""}) == WEIR_ERR_UNSUPPORTED)
    throw std::runtime_error(std::string(what) + ": " + weir_last_error() + "; --template gives another one");
}

void require_readable_calls(const weir_model* model) {
  weir_chat_info info = WEIR_CHAT_INFO_INIT;
  check(weir_model_chat_info(model, &info), "cannot look at the chat template");
  if (info.tool_format[0] == '\0') {
    throw std::runtime_error(
        "tools: how this model writes calls is not known, as neither its own chat template nor its vocabulary has "
        "marks for them; --tool-choice required, or \"tool_choice\": \"required\" in a line of --prompts, makes each "
        "answer a call");
  }
}

Settings settings_of(const weir_model* model, const SolveOptions& options, const Conversation& conversation) {
  const ToolList& tools = conversation.tools.has_value() ? *conversation.tools : options.tools;
  const std::string choice = conversation.tool_choice.value_or(options.tool_choice);
  Settings s;
  const std::string wrong = wrong_with_choice(choice, tools);
  if (!wrong.empty()) throw std::runtime_error("tool choice: " + wrong);
  s.has_tools = !tools.names.empty() && choice != kToolsNone;
  s.must_call = s.has_tools && choice != kToolsFree;
  s.chat = {options.chat_template, s.has_tools ? tools.json : "", conversation.variables.value_or(options.variables)};
  s.constraint = conversation.constraint.has_value() ? conversation.constraint : options.constraint;
  if (conversation.is_raw && (s.has_tools || !s.chat.variables.empty()))
    throw std::runtime_error("\"tools\" and \"variables\" are for the chat template, and --raw uses none");
  if (s.has_tools && s.constraint.has_value()) throw std::runtime_error(kToolsOrConstraint);
  if (s.must_call) s.constraint = ConstraintText{WEIR_CONSTRAINT_TOOLS, tools_to_call(tools, choice)};
  if (s.has_tools) require_place_for_tools(model, options.chat_template, tools.json, "tools");
  if (s.has_tools && !s.must_call) require_readable_calls(model);
  // Files may class <think> as a control token; what the model thinks is part of what it says.
  s.answer.flags = WEIR_GENERATE_SPECIAL_TEXT;
  if (s.has_tools && !s.must_call) s.answer.flags |= WEIR_GENERATE_STOP_AT_CALL;
  s.answer.max_tokens = conversation.max_tokens != 0 ? conversation.max_tokens : options.max_tokens;
  s.answer.stops = conversation.stops.value_or(options.stops);
  s.answer.min_tokens = options.min_tokens;
  s.answer.n_top = options.n_top;
  s.answer.thinking_budget = options.thinking_budget;
  s.answer.thinking_close = options.thinking_close;
  return s;
}

}  // namespace

Conversation parse_conversation(const ordered_json& line, const std::string& system, bool raw) {
  if (!line.is_object()) throw std::runtime_error("not a JSON object");
  Conversation conversation;
  check_fields(line, "a line",
               {"id", "prompt", "messages", "max_tokens", "stop", "json_schema", "tools", "tool_choice", "variables"});
  conversation.id = line.value("id", ordered_json());
  conversation.max_tokens = max_tokens_field(line);
  conversation.stops = stop_field(line);
  read_tool_fields(line, conversation);
  conversation.is_raw = raw;
  const bool has_messages = line.contains("messages");
  if (line.contains("prompt") == has_messages) throw std::runtime_error("expected either \"prompt\" or \"messages\"");
  if (raw) {
    if (has_messages) throw std::runtime_error("\"messages\" need the chat template; --raw takes \"prompt\"");
    conversation.raw_text = string_field(line, "prompt");
    return conversation;
  }
  if (has_messages)
    conversation.messages = parse_messages(line.at("messages"));
  else
    conversation.messages = {{"user", string_field(line, "prompt")}};
  if (!system.empty() && conversation.messages.front().role != "system") {
    conversation.messages.insert(conversation.messages.begin(), {"system", system});
  }
  return conversation;
}

std::vector<std::vector<weir_token>> render_turns(const weir_model* model, const Conversation& conversation,
                                                  bool add_bos, const ChatSettings& settings, bool continues) {
  if (conversation.is_raw) {
    std::vector<weir_token> tokens = tokenize(model, conversation.raw_text, WEIR_TOKENIZE_SPECIAL);
    weir_special_tokens special = WEIR_SPECIAL_TOKENS_INIT;
    check(weir_model_special_tokens(model, &special), "cannot read the special tokens");
    const bool has_bos = !tokens.empty() && tokens.front() == special.bos;
    if (add_bos && special.bos >= 0 && !has_bos) tokens.insert(tokens.begin(), special.bos);
    if (tokens.empty()) throw std::runtime_error("the prompt is empty");
    return {tokens};
  }
  std::vector<std::vector<weir_token>> turns;
  std::vector<Message> pending;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    pending.push_back(conversation.messages[i]);
    const std::string role = pending.back().role;
    const std::string next = i + 1 == conversation.messages.size() ? "" : conversation.messages[i + 1].role;
    const bool is_answered = role == "user" || (role == "tool" && next != "tool");
    if (!is_answered || next == "assistant") continue;
    const bool is_first = turns.empty() && !continues;
    const uint32_t flags = WEIR_CHAT_ADD_ASSISTANT | (is_first ? 0u : static_cast<uint32_t>(WEIR_CHAT_CONTINUE));
    turns.push_back(tokenize_chat(model, pending, flags, settings));
    pending.clear();
  }
  return turns;
}

std::string wrong_with_stops(const std::vector<std::string>& stops) {
  constexpr size_t kMax = 16, kMaxBytes = 256;  // as of weir_generate_options
  if (stops.size() > kMax) return std::to_string(stops.size()) + " stop strings; there may be " + std::to_string(kMax);
  for (const std::string& stop : stops) {
    if (stop.empty()) return "a stop string is empty";
    if (stop.size() > kMaxBytes) {
      return "a stop string has " + std::to_string(stop.size()) + " bytes; it may have " + std::to_string(kMaxBytes);
    }
  }
  return "";
}

bool wants_bos(const weir_model* model) {
  weir_special_tokens special = WEIR_SPECIAL_TOKENS_INIT;
  check(weir_model_special_tokens(model, &special), "cannot read the special tokens");
  const std::vector<weir_token> tokens = tokenize(model, "a", WEIR_TOKENIZE_BOS_EOS);
  return special.bos >= 0 && !tokens.empty() && tokens.front() == special.bos;
}

void require_chat_template(const weir_model* model, const std::string& path, bool takes_another) {
  if (model_info(model).chat_template[0] != '\0') return;
  throw std::runtime_error(path + ": the file has no chat template: " +
                           (takes_another ? "--template gives one, weir run --raw takes whole prompts"
                                          : "problems are asked in the file's own; weir run and weir chat take one by "
                                            "--template, weir run --raw takes whole prompts"));
}

uint32_t pinned_prompt_tokens(const std::vector<std::vector<weir_token>>& turns) {
  constexpr size_t kPageTokens = 16;
  size_t n = 0;
  for (const auto& turn : turns) n += turn.size() + (n == 0 ? 0 : 2 * kPageTokens);
  return static_cast<uint32_t>(std::min<size_t>(n, UINT32_MAX));
}

uint32_t answer_limit(const weir_model* model) { return model_info(model).context_tokens; }

void require_chat_abilities(const weir_model* model, const SolveOptions& options) {
  if (options.thinking_budget != 0) require_thoughts(model);
  const bool has_tools = !options.tools.names.empty() && options.tool_choice != kToolsNone;
  ChatSettings settings = {options.chat_template, "", options.variables};
  if (!options.variables.empty() && try_chat_settings(model, settings) == WEIR_ERR_NOT_FOUND) {
    const std::string message = weir_last_error(), field = "variables_json: ";
    throw std::runtime_error("--var: " + message.substr(message.starts_with(field) ? field.size() : 0));
  }
  if (!has_tools) return;
  require_place_for_tools(model, options.chat_template, options.tools.json, "--tools");
  if (options.tool_choice == kToolsFree) require_readable_calls(model);
}

void require_thoughts(const weir_model* model) {
  weir_chat_info info = WEIR_CHAT_INFO_INIT;
  check(weir_model_chat_info(model, &info), "cannot look at the chat template");
  if (info.thought_end[0] == '\0') {
    throw std::runtime_error(
        "--thinking-budget: this model has no thoughts to end, as neither its chat template nor its vocabulary has "
        "marks for them (WEIR_ERR_UNSUPPORTED)");
  }
}

double Solution::tokens_per_second() const {
  return stats.decode_ns == 0 ? 0 : static_cast<double>(stats.n_decode) * 1e9 / static_cast<double>(stats.decode_ns);
}

Solution solve(weir_model* model, const SolveOptions& options, const Conversation& conversation,
               const SolveHooks& hooks) {
  Solution solution;
  solution.id = conversation.id;
  solution.policy = options.session.policy;
  SessionPtr session;
  try {
    const Settings settings = settings_of(model, options, conversation);
    const bool resumes = !options.resume.empty();
    solution.has_tools = settings.has_tools;
    solution.max_tokens = settings.answer.max_tokens;
    const bool add_bos = conversation.is_raw && options.add_bos.value_or(!resumes && wants_bos(model));
    const auto turns = render_turns(model, conversation, add_bos, settings.chat, resumes);
    SessionOptions session_options(options.session);
    if (options.session.extends_for_prompt() && options.session.max_prompt == 0) {
      session_options.get().max_prompt_tokens = pinned_prompt_tokens(turns);
    }
    solution.plan = make_plan(model, session_options.get());
    session = create_session(model, session_options.get());
    if (resumes) resume_session(session.get(), options.resume);
    const weir_sampling_options sampling = options.sampling.get();
    if (!resumes || options.sampling.given())
      check(weir_session_set_sampling(session.get(), &sampling), "cannot set the sampling");
    if (settings.constraint.has_value()) {
      const ConstraintPtr constraint = create_constraint(model, settings.constraint->kind, settings.constraint->text);
      check(weir_session_set_constraint(session.get(), constraint.get(), 0), "cannot constrain the answers");
    }
    AnswerOptions answer = settings.answer;
    if (answer.max_tokens == 0) answer.max_tokens = answer_limit(model);
    for (const auto& turn : turns) {
      answer_turn(model, session.get(), turn, answer, settings.must_call, hooks, solution);
      if (solution.stop == "context" || solution.stop == "cancelled") break;
    }
    if (options.save != nullptr) save_session(session.get(), *options.save);
    if (hooks.on_end) hooks.on_end(session.get());
  } catch (const Error& e) {
    solution.stop = "error";
    solution.error = with_way_out(e);
  } catch (const std::runtime_error& e) {
    solution.stop = "error";
    solution.error = e.what();
  }
  if (session) {
    solution.memory = session_memory(session.get());
    solution.stats = session_stats(session.get());
  }
  return solution;
}

std::string joined_texts(const Solution& solution) {
  std::string all;
  for (const std::string& text : solution.texts) {
    if (&text != &solution.texts.front()) all += "\n";
    all += text;
  }
  return all;
}

ordered_json to_json(const Solution& s) {
  ordered_json out;
  out["id"] = s.id;
  if (!s.error.empty()) out["error"] = s.error;
  out["text"] = joined_texts(s);
  out["texts"] = s.texts;
  if (s.has_tools) out["calls"] = s.calls;
  if (s.has_malformed_call) out["malformed_call"] = true;
  out["n_prompt"] = s.stats.n_prompt;
  out["n_decode"] = s.stats.n_decode;
  out["stop"] = s.stop;
  if (s.stop == "stop") out["stop_string"] = s.stop_string;
  if (!s.logprobs.empty()) out["logprobs"] = s.logprobs;
  out["policy"] = s.policy;
  out["budget_tokens"] = s.plan.budget_tokens;
  out["memory"] = {{"plan_bytes", s.plan.total_bytes},
                   {"kv_bytes", s.memory.kv_peak_bytes},
                   {"peak_bytes", s.memory.peak_bytes},
                   {"allocs_while_decoding", s.memory.allocs_while_decoding}};
  out["pages"] = {{"resident_max", s.stats.pages_resident_max},
                  {"evicted", s.stats.pages_evicted},
                  {"spilled", s.stats.pages_spilled},
                  {"recalled", s.stats.pages_recalled},
                  {"dropped", s.stats.pages_dropped}};
  out["time"] = {{"prefill_s", static_cast<double>(s.stats.prefill_ns) * 1e-9},
                 {"decode_s", static_cast<double>(s.stats.decode_ns) * 1e-9},
                 {"tok_per_s", s.tokens_per_second()}};
  return out;
}

std::string dump_json(const ordered_json& json, int indent) {
  return plain_json(json.dump(indent, ' ', false, ordered_json::error_handler_t::replace));
}

}  // namespace weir_cli
