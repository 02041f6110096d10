// Reading requests; see request.h.
#include "server/request.h"

#include <algorithm>
#include <random>

#include "conversation.h"
#include "server/limits.h"

namespace weir_server {
namespace {

using weir_cli::Error;
using weir_cli::Message;

// What every kind of answer has.
struct Wish {
  Task task;
  weir_cli::ChatSettings settings;
  uint32_t flags = WEIR_CHAT_ADD_ASSISTANT;
  std::string constraint_text;
  std::optional<int32_t> constraint_kind;
};

[[noreturn]] void refuse_as(const Error& error, const std::string& param) {
  const bool is_clients = error.status() == WEIR_ERR_INVALID_ARG || error.status() == WEIR_ERR_UNSUPPORTED ||
                          error.status() == WEIR_ERR_NOT_FOUND || error.status() == WEIR_ERR_FORMAT;
  // The library names the message that is at fault.
  const std::string what = error.what();
  const size_t at = what.find("messages["), end = what.find("]: ", at);
  const bool names_it = param == "messages" && at != std::string::npos && end != std::string::npos;
  throw RequestError(is_clients ? 400 : 500, what, !is_clients ? "" : names_it ? what.substr(at, end + 1 - at) : param);
}

void read_model(const Context& context, Fields& fields) {
  const auto name = fields.text("model");
  if (name && *name != context.id)
    throw RequestError(404, "there is no model \"" + name->substr(0, 100) + "\" here, but \"" + context.id + "\"",
                       "model", "model_not_found");
}

// Reads content: a text, or parts that are texts.
std::string read_text(const Json& content, const std::string& name, const std::vector<std::string>& types) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) throw RequestError(400, name + " is neither a text nor a list of parts", name);
  std::string all;
  for (size_t i = 0; i < content.size(); ++i) {
    Fields part(content[i], name + "[" + std::to_string(i) + "]");
    const auto type = part.text("type");
    if (!type || std::find(types.begin(), types.end(), *type) == types.end())
      part.wrong("type", "is not served; there is " + weir_cli::joined(types));
    const Json& text = part.need(*type == "refusal" ? "refusal" : "text");
    if (!text.is_string()) part.wrong("text", "is not a text");
    part.ignore({"annotations", "logprobs"});
    part.end();
    all += text.get<std::string>();
  }
  return all;
}

Message read_message(const Json& item, const std::string& name) {
  Fields fields(item, name);
  Message m;
  const auto role = fields.one_of("role", {"system", "user", "assistant", "tool", "developer"});
  if (!role) fields.wrong("role", "is missing");
  m.role = *role;
  const Json* const content = fields.find("content");
  if (m.role == "assistant") {
    // What answers of this and other servers have, to be sent back as they came.
    if (const Json* calls = fields.find("tool_calls")) {
      if (!calls->is_array()) fields.wrong("tool_calls", "is not a list of calls");
      if (!calls->empty()) m.tool_calls = json_text(*calls);
    }
    if (const auto thought = fields.text("reasoning_content")) m.thought = *thought;
    fields.refuse("audio", "is not served: there is only text");
    fields.refuse("function_call", "is not served any more; use tool_calls");
    fields.refuse("refusal", "is not served");
    fields.ignore({"annotations"});
  }
  if (content != nullptr)
    m.content = read_text(*content, fields.name_of("content"), {"text"});
  else if (m.tool_calls.empty())
    fields.wrong("content", "is missing");
  if (m.role == "tool") {
    const auto id = fields.text("tool_call_id");
    if (!id) fields.wrong("tool_call_id", "is missing");
    m.tool_call_id = *id;
    m.name = fields.text("name").value_or("");
    if (m.tool_call_id.find('\0') != std::string::npos) fields.wrong("tool_call_id", "has a NUL");
    if (m.name.find('\0') != std::string::npos) fields.wrong("name", "has a NUL");
  } else {
    fields.ignore({"name"});  // of a participant, which templates do not write
  }
  fields.end();
  return m;
}

void read_weir(const Context& context, Fields& body, Wish& wish, Request& request) {
  const Json* const given = body.find("weir");
  if (given == nullptr) return;
  Fields fields(*given, "weir");
  if (const auto name = fields.text("conversation")) {
    if (name->size() > kMaxConversationBytes)
      fields.wrong("conversation", "is longer than " + std::to_string(kMaxConversationBytes) + " bytes");
    wish.task.conversation = request.conversation = *name;
  }
  if (fields.yes_or_no("continue").value_or(false)) wish.flags = WEIR_CHAT_CONTINUE_LAST;
  if (const auto n = fields.whole("thinking_budget", 0, UINT32_MAX)) {
    if (*n > 0 && context.chat.thought_end[0] == '\0') fields.wrong("thinking_budget", "needs a model with thoughts");
    wish.task.answer.thinking_budget = static_cast<uint32_t>(*n);
  }
  weir_cli::SamplingFlags& sampling = wish.task.sampling;
  if (const auto x = fields.number("min_p", 0, 0.999999)) sampling.min_p = static_cast<float>(*x);
  if (const auto n = fields.whole("top_k", 0, UINT32_MAX)) sampling.top_k = static_cast<uint32_t>(*n);
  if (const auto x = fields.number("repeat_penalty", 0, 100)) {
    if (static_cast<float>(*x) == 0) fields.wrong("repeat_penalty", "is not above 0; 1 is none");
    sampling.repeat_penalty = static_cast<float>(*x);
  }
  fields.end();
}

void read_sampling(const Context& context, Fields& fields, Wish& wish) {
  weir_cli::SamplingFlags& sampling = wish.task.sampling;
  sampling = context.sampling;
  if (const auto x = fields.number("temperature", 0, 2)) sampling.temperature = static_cast<float>(*x);
  // 0 is the most probable token alone; to the library it is no limit.
  if (const auto x = fields.number("top_p", 0, 1)) sampling.top_p = std::max(static_cast<float>(*x), 1e-6f);
}

// Reads the penalties that the two older endpoints have.
void read_penalties(const Context& context, Fields& fields, Wish& wish) {
  weir_cli::SamplingFlags& sampling = wish.task.sampling;
  if (const auto x = fields.number("presence_penalty", -2, 2)) sampling.presence_penalty = static_cast<float>(*x);
  if (const auto x = fields.number("frequency_penalty", -2, 2)) sampling.frequency_penalty = static_cast<float>(*x);
  if (const Json* seed = fields.find("seed")) {
    if (!seed->is_number_integer()) fields.wrong("seed", "is not a whole number");
    sampling.seed = seed->is_number_unsigned() ? seed->get<uint64_t>() : static_cast<uint64_t>(seed->get<int64_t>());
  }
  if (const Json* bias = fields.find("logit_bias")) {
    if (!bias->is_object() || bias->size() > 1024)
      fields.wrong("logit_bias", "is not an object of at most 1024 entries, from ids of tokens to numbers");
    for (const auto& [key, value] : bias->items()) {
      uint64_t token = 0;
      if (!weir_cli::parse_whole(key, token) || token >= context.info.vocab_size)
        fields.wrong("logit_bias", "has \"" + key.substr(0, 40) + "\", which is no token of this model");
      const double x = value.is_number() ? value.get<double>() : 1000;
      if (!(x >= -100 && x <= 100)) fields.wrong("logit_bias", "has a value that is not a number from -100 to 100");
      sampling.bias.push_back({static_cast<weir_token>(token), static_cast<float>(x)});
    }
  }
  if (const Json* stop = fields.find("stop")) {
    const Json list = stop->is_string() ? Json::array({*stop}) : *stop;
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), [](const Json& s) { return s.is_string(); }))
      fields.wrong("stop", "is neither a text nor a list of texts");
    auto stops = list.get<std::vector<std::string>>();
    const std::string wrong = weir_cli::wrong_with_stops(stops);
    if (!wrong.empty()) throw RequestError(400, "stop: " + wrong, "stop");
    wish.task.answer.stops = std::move(stops);
  }
}

void read_stream(Fields& fields, Request& request) {
  request.streams = fields.yes_or_no("stream").value_or(false);
  if (const Json* options = fields.find("stream_options")) {
    if (!request.streams) fields.wrong("stream_options", "needs stream");
    Fields inner(*options, "stream_options");
    request.includes_usage = inner.yes_or_no("include_usage").value_or(false);
    inner.ignore({"include_obfuscation"});
    inner.end();
  }
}

// A schema, or what else an answer has to be.
void constrain(Wish& wish, int32_t kind, std::string text) {
  wish.constraint_kind = kind;
  wish.constraint_text = std::move(text);
}

// `format`: of chat completions {"type", "json_schema": {"schema"}}, of responses {"type", "schema"}.
void read_format(const Json& format, const std::string& name, bool is_flat, Wish& wish) {
  Fields fields(format, name);
  const auto type = fields.one_of("type", {"text", "json_object", "json_schema"});
  if (!type) fields.wrong("type", "is missing");
  if (*type == "json_object") constrain(wish, WEIR_CONSTRAINT_JSON_SCHEMA, R"({"type": "object"})");
  const auto read_schema = [&](Fields& of) {
    const Json& schema = of.need("schema");
    if (!schema.is_object()) of.wrong("schema", "is not an object");
    of.ignore({"name", "description", "strict"});  // every schema is kept to
    constrain(wish, WEIR_CONSTRAINT_JSON_SCHEMA, json_text(schema));
  };
  if (*type == "json_schema" && is_flat) read_schema(fields);
  if (*type == "json_schema" && !is_flat) {
    Fields inner(fields.need("json_schema"), fields.name_of("json_schema"));
    read_schema(inner);
    inner.end();
  }
  fields.end();
}

void read_tools(const Context& context, Fields& fields, Wish& wish, Request& request) {
  request.is_parallel = fields.yes_or_no("parallel_tool_calls").value_or(true);
  const Json* const list = fields.find("tools");
  const Json* const choice = fields.find("tool_choice");
  std::string chosen = weir_cli::kToolsFree;
  if (choice != nullptr && choice->is_string()) {
    chosen = choice->get<std::string>();
    if (chosen != weir_cli::kToolsFree && chosen != weir_cli::kToolsNone && chosen != weir_cli::kToolsRequired)
      fields.wrong("tool_choice", "is none of auto, none and required, nor an object");
  } else if (choice != nullptr) {
    Fields one(*choice, "tool_choice");
    (void)one.one_of("type", {"function"});
    Fields function(one.need("function"), "tool_choice.function");
    chosen = function.text("name").value_or("");
    function.end();
    one.end();
    if (chosen == weir_cli::kToolsFree || chosen == weir_cli::kToolsNone || chosen == weir_cli::kToolsRequired)
      chosen += "?";  // a tool cannot have such a name here
  }
  if (list == nullptr || (list->is_array() && list->empty())) {
    if (choice != nullptr && chosen != weir_cli::kToolsNone && chosen != weir_cli::kToolsFree)
      fields.wrong("tool_choice", "needs tools");
    return;
  }
  weir_cli::ToolList tools;
  try {
    tools = weir_cli::parse_tools(json_text(*list), "");
  } catch (const std::runtime_error& e) {
    fields.wrong("tools", std::string("cannot be taken: ") + e.what());
  }
  const std::string wrong = weir_cli::wrong_with_choice(chosen, tools);
  if (!wrong.empty()) throw RequestError(400, "tool_choice: " + wrong, "tool_choice");
  if (chosen == weir_cli::kToolsNone) return;
  request.has_tools = true;
  request.must_call = chosen != weir_cli::kToolsFree;
  wish.settings.tools = tools.json;
  if (weir_cli::try_chat_settings(context.model.get(), {wish.settings.chat_template, tools.json, ""}) ==
      WEIR_ERR_UNSUPPORTED)
    fields.wrong("tools", std::string("cannot be served: ") + weir_last_error());
  if (wish.constraint_kind) throw RequestError(400, weir_cli::kToolsOrConstraint, "response_format");
  if (request.must_call) {
    constrain(wish, WEIR_CONSTRAINT_TOOLS, weir_cli::tools_to_call(tools, chosen));
    return;
  }
  if (context.chat.tool_format[0] == '\0')
    fields.wrong("tools",
                 "cannot be served with tool_choice auto: how this model writes calls is not known; required "
                 "makes each answer a call");
  wish.task.answer.flags |= WEIR_GENERATE_STOP_AT_CALL;
}

// How much a model thinks, where it does: by a variable of its template, or by the most tokens of a thought.
void read_effort(const Context& context, const std::optional<std::string>& effort, const std::string& name,
                 Wish& wish) {
  if (!effort) return;
  const auto takes = [&](const Json& variables) {
    weir_cli::ChatSettings settings = wish.settings;
    Json all = settings.variables.empty() ? Json::object() : Json::parse(settings.variables);
    all.update(variables);
    settings.variables = json_text(all);
    if (weir_cli::try_chat_settings(context.model.get(), settings) != WEIR_OK) return false;
    wish.settings.variables = settings.variables;
    return true;
  };
  const bool has_thoughts = context.chat.thought_end[0] != '\0';
  if (takes({{"reasoning_effort", *effort}})) return;
  if (*effort == "none" || *effort == "minimal") {
    if (!has_thoughts || takes({{"enable_thinking", false}})) return;
    throw RequestError(400, name + " " + *effort + " is not served: the thoughts of this model have no switch", name);
  }
  if (!has_thoughts) throw RequestError(400, name + " is not served: this model has no thoughts", name);
  if (*effort == "low") wish.task.answer.thinking_budget = 512;
  if (*effort == "medium") wish.task.answer.thinking_budget = 4096;
  if (*effort == "high") wish.task.answer.thinking_budget = 0;
}

const std::vector<std::string> kEfforts = {"none", "minimal", "low", "medium", "high"};

// What changes no answer here.
void ignore_notes(Fields& fields) {
  fields.ignore({"user", "metadata", "safety_identifier", "prompt_cache_key"});
  if (fields.yes_or_no("store").value_or(false)) fields.wrong("store", "is not served: nothing is kept");
  (void)fields.one_of("service_tier", {"auto", "default"});
}

// What all kinds of requests have.
void begin(const Context& context, Fields& fields, Wish& wish) {
  wish.settings = context.settings;
  wish.task.answer.thinking_budget = context.thinking_budget;
  wish.task.answer.thinking_close = context.chat.thought_end[0] != '\0' ? context.thinking_close : "";
  wish.task.answer.max_tokens = weir_cli::answer_limit(context.model.get());
  read_model(context, fields);
  read_sampling(context, fields, wish);
}

void compile(const Context& context, Wish& wish, const std::string& param) {
  if (!wish.constraint_kind) return;
  try {
    wish.task.constraint = std::shared_ptr<weir_constraint>(
        weir_cli::create_constraint(context.model.get(), *wish.constraint_kind, wish.constraint_text).release(),
        weir_constraint_destroy);
  } catch (const Error& e) {
    refuse_as(e, param);
  }
}

void check_room(const Context& context, size_t n_tokens, const std::string& param) {
  const uint32_t room = context.pool->plan().context_tokens;
  if (n_tokens < room) return;
  throw RequestError(400,
                     "the prompt has " + std::to_string(n_tokens) + " tokens; the context has room for " +
                         std::to_string(room) + ", the answer included",
                     param, "context_length_exceeded");
}

// The choices of one prompt. Each has a seed of its own.
void add_jobs(Request& request, Task task, uint32_t n) {
  const bool draws = task.sampling.get().temperature > 0;
  if (!task.sampling.seed && draws) {
    std::random_device source;
    task.sampling.seed = (uint64_t{source()} << 32) | source();
  }
  for (uint32_t i = 0; i < n; ++i) {
    request.prompt_tokens.push_back(static_cast<uint32_t>(task.prompt.size()));
    request.jobs.push_back(std::make_shared<Job>(task, request.signal));
    if (task.sampling.seed) ++*task.sampling.seed;
  }
}

std::vector<weir_token> tokens_of(const Context& context, std::vector<Message> messages, const Wish& wish,
                                  const std::string& param) {
  if (!context.has_template)
    throw RequestError(400, "this model has no chat template; /v1/completions takes whole prompts", param);
  std::vector<weir_token> tokens;
  const auto tokenize = [&] {
    return weir_cli::tokenize_chat(context.model.get(), messages, wish.flags, wish.settings);
  };
  try {
    tokens = tokenize();
  } catch (const Error& e) {
    // Few templates have a word for developers; to OpenAI's models they are what system messages were.
    size_t n_changed = 0;
    for (Message& m : messages) {
      if (m.role == "developer") m.role = "system", ++n_changed;
    }
    if (e.status() != WEIR_ERR_UNSUPPORTED || n_changed == 0) refuse_as(e, param);
    try {
      tokens = tokenize();
    } catch (const Error& again) {
      refuse_as(again, param);
    }
  }
  if (tokens.empty()) throw RequestError(400, param + " are no text", param);
  check_room(context, tokens.size(), param);
  return tokens;
}

void read_logprobs(Fields& fields, Wish& wish, Request& request) {
  request.wants_logprobs = fields.yes_or_no("logprobs").value_or(false);
  if (const auto n = fields.whole("top_logprobs", 0, 20)) {
    if (!request.wants_logprobs) fields.wrong("top_logprobs", "needs logprobs");
    request.n_top = static_cast<uint32_t>(*n);
  }
  if (request.wants_logprobs) wish.task.answer.n_top = std::max<uint32_t>(request.n_top, 1);
}

}  // namespace

Request read_chat(const Context& context, const Json& body) {
  Request request;
  Wish wish;
  Fields fields(body, "");
  begin(context, fields, wish);
  read_penalties(context, fields, wish);
  read_stream(fields, request);
  read_logprobs(fields, wish, request);
  if (const Json* format = fields.find("response_format")) read_format(*format, "response_format", false, wish);
  read_tools(context, fields, wish, request);
  read_effort(context, fields.one_of("reasoning_effort", kEfforts), "reasoning_effort", wish);
  read_weir(context, fields, wish, request);
  const auto n = fields.whole("n", 1, kMaxChoices);
  request.n_choices = static_cast<uint32_t>(n.value_or(1));
  auto most = fields.whole("max_tokens", 1, UINT32_MAX);
  if (const auto newer = fields.whole("max_completion_tokens", 1, UINT32_MAX)) most = newer;
  if (most) wish.task.answer.max_tokens = static_cast<uint32_t>(*most);
  ignore_notes(fields);
  if (const Json* modalities = fields.find("modalities")) {
    if (*modalities != Json::array({"text"})) fields.wrong("modalities", "is not served: there is only text");
  }
  for (const char* key : {"audio", "prediction", "web_search_options", "verbosity", "moderation"})
    fields.refuse(key, "is not served");
  for (const char* key : {"functions", "function_call"}) fields.refuse(key, "is not served any more; use tools");
  const Json& list = fields.need("messages");
  if (!list.is_array() || list.empty()) fields.wrong("messages", "is not a list of messages");
  fields.end();
  std::vector<Message> messages;
  for (const Json& item : list)
    messages.push_back(read_message(item, "messages[" + std::to_string(messages.size()) + "]"));
  const bool goes_on = wish.flags == WEIR_CHAT_CONTINUE_LAST;
  if (goes_on != (messages.back().role == "assistant")) {
    throw RequestError(400,
                       goes_on ? "weir.continue needs an assistant message at the end"
                               : "the last message is an answer, so there is nothing to answer; weir.continue "
                                 "goes on with it",
                       goes_on ? "weir.continue" : "messages");
  }
  wish.task.prompt = tokens_of(context, messages, wish, "messages");
  compile(context, wish, request.must_call ? "tools" : "response_format");
  add_jobs(request, std::move(wish.task), request.n_choices);
  return request;
}

namespace {

// Prompts of /v1/completions: texts, or lists of tokens.
std::vector<std::vector<weir_token>> read_prompts(const Context& context, Fields& fields, Request& request) {
  weir_model* const model = context.model.get();
  const Json& given = fields.need("prompt");
  const bool is_one = given.is_string() || (given.is_array() && !given.empty() && given[0].is_number());
  const Json list = is_one ? Json::array({given}) : given;
  if (!list.is_array() || list.empty() || list.size() > kMaxChoices)
    fields.wrong("prompt", "is neither a text nor a list of at most " + std::to_string(kMaxChoices) +
                               " texts or of "
                               "tokens");
  std::vector<std::vector<weir_token>> prompts;
  for (const Json& item : list) {
    std::vector<weir_token>& tokens = prompts.emplace_back();
    if (item.is_string()) {
      weir_cli::Conversation raw;
      raw.is_raw = true;
      raw.raw_text = item.get<std::string>();
      try {
        tokens = weir_cli::render_turns(model, raw, weir_cli::wants_bos(model)).front();
      } catch (const Error& e) {
        refuse_as(e, "prompt");
      } catch (const std::runtime_error& e) {
        throw RequestError(400, e.what(), "prompt");
      }
      request.echoes.push_back(raw.raw_text);
    } else {
      if (!item.is_array() || item.empty()) fields.wrong("prompt", "has something that is neither a text nor tokens");
      for (const Json& token : item) {
        if (!token.is_number_unsigned() || token.get<uint64_t>() >= context.info.vocab_size)
          fields.wrong("prompt", "has something that is no token of this model");
        tokens.push_back(token.get<weir_token>());
      }
      request.echoes.push_back(weir_cli::detokenize(model, tokens, WEIR_DETOKENIZE_SPECIAL));
    }
    check_room(context, tokens.size(), "prompt");
  }
  return prompts;
}

}  // namespace

Request read_completion(const Context& context, const Json& body) {
  Request request;
  Wish wish;
  Fields fields(body, "");
  begin(context, fields, wish);
  read_penalties(context, fields, wish);
  read_stream(fields, request);
  request.is_plain = true;
  read_weir(context, fields, wish, request);
  if (wish.flags == WEIR_CHAT_CONTINUE_LAST)
    throw RequestError(400, "weir.continue is for messages; a prompt is always gone on with", "weir.continue");
  if (const auto n = fields.whole("logprobs", 0, 5)) {
    request.wants_logprobs = true;
    request.n_top = static_cast<uint32_t>(*n);
    wish.task.answer.n_top = std::max<uint32_t>(request.n_top, 1);
  }
  request.n_choices = static_cast<uint32_t>(fields.whole("n", 1, kMaxChoices).value_or(1));
  wish.task.answer.max_tokens = static_cast<uint32_t>(fields.whole("max_tokens", 1, UINT32_MAX).value_or(16));
  const bool echoes = fields.yes_or_no("echo").value_or(false);
  if (echoes && request.wants_logprobs)
    fields.wrong("echo", "is not served with logprobs: those of a prompt are not computed");
  fields.refuse("suffix", "is not served: text is only gone on with");
  if (fields.whole("best_of", 1, kMaxChoices).value_or(request.n_choices) != request.n_choices)
    fields.wrong("best_of", "is not served: every choice is an answer");
  ignore_notes(fields);
  const auto prompts = read_prompts(context, fields, request);
  if (!echoes) request.echoes.clear();
  fields.end();
  if (prompts.size() * request.n_choices > kMaxChoices)
    throw RequestError(400, "n times the prompts are more than " + std::to_string(kMaxChoices) + " answers", "n");
  for (const auto& prompt : prompts) {
    Task task = wish.task;
    task.prompt = prompt;
    add_jobs(request, std::move(task), request.n_choices);
  }
  return request;
}

Request read_response(const Context& context, const Json& body) {
  Request request;
  Wish wish;
  Fields fields(body, "");
  begin(context, fields, wish);
  request.streams = fields.yes_or_no("stream").value_or(false);
  if (const Json* options = fields.find("stream_options")) {
    Fields inner(*options, "stream_options");
    inner.ignore({"include_obfuscation"});
    inner.end();
  }
  read_weir(context, fields, wish, request);
  if (const auto most = fields.whole("max_output_tokens", 1, UINT32_MAX))
    wish.task.answer.max_tokens = static_cast<uint32_t>(*most);
  if (const Json* text = fields.find("text")) {
    Fields inner(*text, "text");
    if (const Json* format = inner.find("format")) read_format(*format, "text.format", true, wish);
    inner.refuse("verbosity", "is not served");
    inner.end();
    request.repeated["text"] = *text;
  }
  if (const Json* reasoning = fields.find("reasoning")) {
    Fields inner(*reasoning, "reasoning");
    read_effort(context, inner.one_of("effort", kEfforts), "reasoning.effort", wish);
    inner.refuse("summary", "is not served: thoughts are given as they are");
    inner.refuse("generate_summary", "is not served: thoughts are given as they are");
    inner.end();
    request.repeated["reasoning"] = *reasoning;
  }
  ignore_notes(fields);
  fields.ignore({"prompt_cache_retention"});
  if (fields.one_of("truncation", {"auto", "disabled"}).value_or("disabled") == "auto")
    fields.wrong("truncation", "auto is not served: what does not fit is an error");
  if (fields.yes_or_no("background").value_or(false)) fields.wrong("background", "is not served");
  for (const char* key : {"tools", "tool_choice", "include"}) {
    const Json* const list = fields.find(key);
    const bool is_none = list == nullptr || (list->is_array() && list->empty()) || *list == "auto" || *list == "none";
    if (!is_none) fields.wrong(key, "is not served here; /v1/chat/completions has tools");
  }
  (void)fields.yes_or_no("parallel_tool_calls");
  for (const char* key :
       {"previous_response_id", "conversation", "prompt", "max_tool_calls", "top_logprobs", "context_management"})
    fields.refuse(key, "is not served: nothing is kept between requests but what the prompt begins with");
  std::vector<Message> messages;
  if (const auto instructions = fields.text("instructions")) {
    messages.push_back({"system", *instructions});
    request.repeated["instructions"] = *instructions;
  }
  const Json& input = fields.need("input");
  if (!input.is_string() && (!input.is_array() || input.empty()))
    fields.wrong("input", "is neither a text nor a list of messages");
  fields.end();
  if (input.is_string()) {
    messages.push_back({"user", input.get<std::string>()});
  } else {
    for (size_t i = 0; i < input.size(); ++i) {
      Fields item(input[i], "input[" + std::to_string(i) + "]");
      if (item.one_of("type", {"message", "reasoning"}).value_or("message") == "reasoning") continue;
      const auto role = item.one_of("role", {"user", "assistant", "system", "developer"});
      if (!role) item.wrong("role", "is missing");
      const std::string name = item.name_of("content");
      messages.push_back({*role, read_text(item.need("content"), name, {"input_text", "output_text", "refusal"})});
      item.ignore({"id", "status", "phase"});
      item.end();
    }
  }
  if (messages.empty() || messages.back().role == "assistant")
    throw RequestError(400, "input ends with an answer, so there is nothing to answer", "input");
  for (const char* key : {"temperature", "top_p", "max_output_tokens", "metadata"}) {
    if (body.contains(key)) request.repeated[key] = body[key];
  }
  wish.task.prompt = tokens_of(context, messages, wish, "input");
  compile(context, wish, "text.format");
  add_jobs(request, std::move(wish.task), 1);
  return request;
}

}  // namespace weir_server
