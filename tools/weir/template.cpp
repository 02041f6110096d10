// weir template: renders a chat template, a file's own or one of a text file, for a conversation in JSON on stdin.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "commands.h"
#include "input.h"
#include "json_input.h"
#include "options.h"
#include "output.h"

namespace weir_cli {
namespace {

using Json = nlohmann::ordered_json;

struct TemplateFlags {
  std::string model, path;
};

// The template of a model's file.
std::string template_of(const weir_model* model) {
  for (uint32_t i = 0; i < weir_model_metadata_count(model); ++i) {
    const char* key = nullptr;
    uint64_t n_bytes = 0;
    weir_status status = weir_model_metadata(model, i, &key, nullptr, 0, &n_bytes);
    if (status != WEIR_ERR_BUFFER_TOO_SMALL || std::string_view(key) != "tokenizer.chat_template") continue;
    std::string text(n_bytes + 1, '\0');
    check(weir_model_metadata(model, i, &key, text.data(), text.size(), &n_bytes), "cannot read the template");
    text.resize(n_bytes);
    return text;
  }
  throw std::runtime_error("the file has no chat template; --template gives one");
}

std::string token_text(const weir_model* model, weir_token token) {
  weir_token_info info = WEIR_TOKEN_INFO_INIT;
  if (token < 0) return "";
  check(weir_token_get_info(model, token, &info), "cannot describe a token");
  return {info.text, info.text_bytes};
}

// The variables that a request asks for. What it leaves out comes from the model, if there is one.
Json variables_of(const Json& request, const weir_model* model) {
  constexpr const char* kKeys[] = {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"};
  if (!request.is_object()) throw std::runtime_error("standard input: an object was expected");
  Json variables = {{"messages", Json::array()}, {"add_generation_prompt", true}};
  if (model != nullptr) {
    weir_special_tokens special = WEIR_SPECIAL_TOKENS_INIT;
    check(weir_model_special_tokens(model, &special), "cannot read the special tokens");
    variables["bos_token"] = token_text(model, special.bos);
    variables["eos_token"] = token_text(model, special.eos);
  }
  for (const auto& [key, value] : request.items()) {
    if (std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys)) {
      variables[key] = value;
    } else if (key != "variables" && key != "unix_time") {
      throw std::runtime_error("standard input: the key \"" + key + "\" is not known; variables go into \"variables\"");
    }
  }
  const Json more = request.value("variables", Json::object());
  if (!more.is_object() && !more.is_null()) throw std::runtime_error("standard input: \"variables\" is no object");
  for (const auto& [key, value] : more.items()) variables[key] = value;
  return variables;
}

std::string render(weir_runtime* runtime, const std::string& source, const std::string& variables, int64_t unix_time) {
  std::string text;
  uint64_t n = 0;
  const auto call = [&] {
    return weir_template_render(runtime, source.data(), source.size(), variables.data(), variables.size(), unix_time,
                                text.data(), text.size(), &n);
  };
  weir_status status = call();
  if (status == WEIR_ERR_BUFFER_TOO_SMALL) {
    text.resize(n);
    status = call();
  }
  check(status, "cannot render the template");
  return text;
}

Json read_request() {
  const std::string text = read_stdin();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw std::runtime_error("standard input is empty; it is one JSON object, such as {\"messages\": [...]}");
  try {
    return parse_json(text);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(std::string("standard input: ") + error.what());
  }
}

int run_template(const TemplateFlags& flags) {
  if (flags.model.empty() && flags.path.empty()) throw UsageError("--model or --template is required");
  const RuntimePtr runtime = create_runtime(1);
  ModelPtr model;
  if (!flags.model.empty()) model = open_model(runtime.get(), flags.model, WEIR_MODEL_VOCAB_ONLY);
  const std::string source = flags.path.empty() ? template_of(model.get()) : read_template(flags.path);
  const Json request = read_request();
  const Json variables = variables_of(request, model.get());
  const Json time = request.value("unix_time", Json(0));
  const bool fits = time.is_number_integer() && (!time.is_number_unsigned() || time.get<uint64_t>() <= INT64_MAX);
  if (!fits) throw std::runtime_error("standard input: \"unix_time\" is no whole number of seconds");
  put(render(runtime.get(), source, variables.dump(), time.get<int64_t>()));
  return 0;
}

}  // namespace

void add_template(CLI::App& program, Action& action) {
  auto flags = std::make_shared<TemplateFlags>();
  CLI::App* app = program.add_subcommand("template", "What a chat template makes of a conversation, JSON from stdin");
  add_model_flag(*app, flags->model);
  add_template_flag(*app, flags->path);
  app->footer(
      "Standard input is one object: \"messages\", and perhaps \"tools\", \"variables\", \"add_generation_prompt\"\n"
      "(default true), \"bos_token\", \"eos_token\", \"unix_time\" (what strftime_now sees, as UTC). A template that\n"
      "refuses the conversation ends with exit status 1 and its line and words.");
  app->callback([flags, &action] { action = [flags] { return run_template(*flags); }; });
}

}  // namespace weir_cli
