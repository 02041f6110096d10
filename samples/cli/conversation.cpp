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

const std::string& string_field(const json& object, const char* key) {
  const auto field = object.find(key);
  if (field == object.end()) throw std::runtime_error(std::string("\"") + key + "\" is missing");
  if (!field->is_string()) throw std::runtime_error(std::string("\"") + key + "\" is not a string");
  return field->get_ref<const std::string&>();
}

// Fields that are not known would change the answer if they were; so they are no small matter.
void check_fields(const json& object, const char* of_what, std::initializer_list<const char*> known) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string names;
    for (const char* name : known) names += std::string(names.empty() ? "\"" : ", \"") + name + "\"";
    throw std::runtime_error("\"" + key + "\" is no field of " + of_what + "; it has " + names);
  }
}

uint32_t max_tokens_field(const json& line) {
  const auto field = line.find("max_tokens");
  if (field == line.end()) return 0;
  if (field->is_number_unsigned()) {
    const auto value = field->get<uint64_t>();
    if (value > 0 && value <= UINT32_MAX) return static_cast<uint32_t>(value);
  }
  throw std::runtime_error("\"max_tokens\" is not a whole number from 1 to " + std::to_string(UINT32_MAX));
}

// A text or a list of texts.
std::optional<std::vector<std::string>> stop_field(const json& line) {
  const auto field = line.find("stop");
  if (field == line.end()) return std::nullopt;
  const json list = field->is_string() ? json::array({*field}) : *field;
  const bool are_texts =
      list.is_array() && std::all_of(list.begin(), list.end(), [](const json& stop) { return stop.is_string(); });
  if (!are_texts) throw std::runtime_error("\"stop\" is neither a text nor a list of texts");
  auto stops = list.get<std::vector<std::string>>();
  const std::string wrong = wrong_with_stops(stops);
  if (!wrong.empty()) throw std::runtime_error("\"stop\": " + wrong);
  return stops;
}

std::vector<Message> parse_messages(const json& list) {
  if (!list.is_array() || list.empty()) throw std::runtime_error("\"messages\" is not a list of messages");
  std::vector<Message> messages;
  for (const json& item : list) {
    if (!item.is_object()) throw std::runtime_error("\"messages\" holds something that is not an object");
    check_fields(item, "a message", {"role", "content"});
    Message m{string_field(item, "role"), string_field(item, "content")};
    if (m.role != "system" && m.role != "user" && m.role != "assistant") {
      throw std::runtime_error("role \"" + m.role + "\" is not system, user or assistant");
    }
    messages.push_back(std::move(m));
  }
  if (messages.back().role != "user")
    throw std::runtime_error("the last message is not a user's, so there is nothing to answer");
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
void answer_turn(const weir_model* model, weir_session* session, const SolveOptions& options,
                 const std::vector<weir_token>& prompt, uint32_t max_tokens, const std::vector<std::string>& stops,
                 const SolveHooks& hooks, Solution& solution) {
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
  // Files may class <think> as a control token; what the model thinks is part of what it says.
  const weir_generate_result result =
      generate(session, max_tokens, WEIR_GENERATE_SPECIAL_TEXT, on_token, stops, options.min_tokens, options.n_top);
  solution.stop = stop_name(result.stop);
  solution.stop_string = result.stop_index >= 0 ? stops[static_cast<size_t>(result.stop_index)] : "";
}

}  // namespace

Conversation parse_conversation(const json& line, const std::string& system, bool raw) {
  if (!line.is_object()) throw std::runtime_error("not a JSON object");
  Conversation conversation;
  check_fields(line, "a line", {"id", "prompt", "messages", "max_tokens", "stop", "json_schema"});
  conversation.id = line.value("id", json());
  conversation.max_tokens = max_tokens_field(line);
  conversation.stops = stop_field(line);
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
                                                  bool add_bos, const std::string& chat_template, bool continues) {
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
    const bool is_last = i + 1 == conversation.messages.size();
    if (pending.back().role != "user" || (!is_last && conversation.messages[i + 1].role == "assistant")) continue;
    const bool is_first = turns.empty() && !continues;
    const uint32_t flags = WEIR_CHAT_ADD_ASSISTANT | (is_first ? 0u : static_cast<uint32_t>(WEIR_CHAT_CONTINUE));
    turns.push_back(tokenize_chat(model, pending, flags, chat_template));
    pending.clear();
  }
  return turns;
}

std::optional<ConstraintText> schema_of_line(const std::string& text) {
  const nlohmann::ordered_json line = nlohmann::ordered_json::parse(text);
  const auto field = line.find("json_schema");
  if (field == line.end()) return std::nullopt;
  return ConstraintText{WEIR_CONSTRAINT_JSON_SCHEMA, field->dump()};
}

std::string wrong_with_stops(const std::vector<std::string>& stops) {
  constexpr size_t kMost = 16, kMostBytes = 256;  // as of weir_generate_options
  if (stops.size() > kMost)
    return std::to_string(stops.size()) + " stop strings; there may be " + std::to_string(kMost);
  for (const std::string& stop : stops) {
    if (stop.empty()) return "a stop string is empty";
    if (stop.size() > kMostBytes) {
      return "a stop string has " + std::to_string(stop.size()) + " bytes; it may have " + std::to_string(kMostBytes);
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

void require_chat_template(const weir_model* model, const std::string& path) {
  if (model_info(model).chat_template[0] == '\0')
    throw std::runtime_error(
        path + ": the file has no chat template: --template gives one, weir run --raw takes whole prompts");
}

uint32_t pinned_prompt_tokens(const std::vector<std::vector<weir_token>>& turns) {
  constexpr size_t kPageTokens = 16;
  size_t n = 0;
  for (const auto& turn : turns) n += turn.size() + (n == 0 ? 0 : 2 * kPageTokens);
  return static_cast<uint32_t>(std::min<size_t>(n, UINT32_MAX));
}

uint32_t answer_limit(const weir_model* model) { return model_info(model).context_tokens; }

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
    const bool resumes = !options.resume.empty();
    const bool add_bos = conversation.is_raw && options.add_bos.value_or(!resumes && wants_bos(model));
    const auto turns = render_turns(model, conversation, add_bos, options.chat_template, resumes);
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
    const auto& constrained = conversation.constraint.has_value() ? conversation.constraint : options.constraint;
    if (constrained.has_value()) {
      const ConstraintPtr constraint = create_constraint(model, constrained->kind, constrained->text);
      check(weir_session_set_constraint(session.get(), constraint.get(), 0), "cannot constrain the answers");
    }
    const uint32_t asked = conversation.max_tokens != 0 ? conversation.max_tokens : options.max_tokens;
    solution.max_tokens = asked;
    const uint32_t max_tokens = asked != 0 ? asked : answer_limit(model);
    for (const auto& turn : turns) {
      answer_turn(model, session.get(), options, turn, max_tokens, conversation.stops.value_or(options.stops), hooks,
                  solution);
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

nlohmann::ordered_json to_json(const Solution& s) {
  nlohmann::ordered_json out;
  out["id"] = s.id;
  if (!s.error.empty()) out["error"] = s.error;
  out["text"] = joined_texts(s);
  out["texts"] = s.texts;
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

std::string dump_json(const nlohmann::ordered_json& json, int indent) {
  return plain_json(json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace weir_cli
