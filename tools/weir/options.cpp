// Shared flags; see options.h.
#include "options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

namespace weir_cli {
namespace {

const std::vector<std::string> kDevices = {"auto", "cpu", "cuda", "vulkan"};  // in the order of WEIR_DEVICE_*
const std::vector<std::string> kKvFormats = {"bf16", "q8", "k8v4", "k4v4"};   // in the order of WEIR_KV_*

std::pair<std::string, std::string> split_option(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) throw UsageError("--opt " + text + ": expected key=value");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

// The power of 2 that "k", "mib" and the like stand for; -1 when it is no unit.
int unit_shift(const std::string& unit) {
  if (unit.empty() || unit == "b") return 0;
  const size_t power = std::string("kmgt").find(unit[0]);
  const std::string rest = unit.substr(1);
  if (power == std::string::npos || (!rest.empty() && rest != "b" && rest != "i" && rest != "ib")) return -1;
  return 10 * (static_cast<int>(power) + 1);
}

uint64_t random_seed() {
  std::random_device source;
  return (uint64_t{source()} << 32) | source();
}

// A whole number, or the name of one that is another each time.
CLI::Validator seed_number() {
  const auto check = [](std::string& text) -> std::string {
    uint64_t value = 0;
    const bool is_random = text == "random" || text == "-1";
    if (!is_random && !parse_whole(text, value))
      return text + " is not a whole number from 0 to " + std::to_string(UINT64_MAX) + ", nor -1 or random";
    text = std::to_string(is_random ? random_seed() : value);
    return "";
  };
  return CLI::Validator(check, "");
}

// The library names its presets where one is not found.
std::string preset_names() {
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  if (weir_session_options_preset("?", &options) == WEIR_OK) return "";
  const std::string message = weir_last_error(), mark = "there are: ";
  const size_t at = message.find(mark);
  return at == std::string::npos ? "" : ": " + message.substr(at + mark.size());
}

}  // namespace

const std::string& device_name(int32_t device) { return kDevices.at(static_cast<size_t>(device)); }

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool parse_whole(const std::string& text, uint64_t& value) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end;
}

bool parse_finite(const std::string& text, double& value) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end && std::isfinite(value);
}

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> kNames = {"dense", "sink",      "h2o",         "tova",    "quest",
                                                  "raas",  "hybrid",    "random",      "arkvale", "psa",
                                                  "lfps",  "keyformer", "scissorhands"};
  return kNames;
}

std::string SessionFlags::option(const std::string& key) const {
  std::string value;
  for (const std::string& text : policy_options) {
    const auto [k, v] = split_option(text);
    if (k == key) value = v;
  }
  return value;
}

bool SessionFlags::extends_for_prompt() const {
  const std::string overflow = option("overflow");
  return policy == "hybrid" || (policy == "raas" && (overflow == "extend" || overflow == "hybrid"));
}

void apply_preset(SessionFlags& flags, bool policy_given) {
  const bool chooses_none = !policy_given && flags.budget == 0 && flags.budget_bytes == 0;
  if (flags.preset.empty() && chooses_none) flags.preset = flags.usual_preset;
  if (flags.preset.empty()) return;
  if (policy_given) throw UsageError("--preset and --policy both choose a policy; give one");
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.budget_tokens = flags.budget;
  options.budget_bytes = flags.budget_bytes;
  if (weir_session_options_preset(flags.preset.c_str(), &options) != WEIR_OK) {
    throw UsageError("--preset " + flags.preset + ": " + weir_last_error());
  }
  flags.policy = options.policy;
  flags.budget = options.budget_tokens;
  flags.spill_flags |= options.spill_flags;
  for (uint32_t i = 0; i < options.n_policy_options; ++i) {
    const std::string key = options.policy_options[i].key;
    if (flags.option(key).empty()) flags.policy_options.push_back(key + "=" + options.policy_options[i].value);
  }
}

SessionOptions::SessionOptions(const SessionFlags& flags) : policy_(flags.policy), spill_file_(flags.spill_file) {
  for (const std::string& text : flags.policy_options) {
    auto [key, value] = split_option(text);
    keys_.push_back(std::move(key));
    values_.push_back(std::move(value));
  }
  for (size_t i = 0; i < keys_.size(); ++i) pairs_.push_back({keys_[i].c_str(), values_[i].c_str()});
  options_.device = device_number(flags.device);
  options_.flags = flags.host_attention ? uint32_t{WEIR_SESSION_HOST_ATTENTION} : 0;
  options_.context_tokens = flags.context;
  options_.batch_tokens = flags.batch;
  options_.budget_tokens = flags.budget;
  options_.budget_bytes = flags.budget_bytes;
  options_.spill_budget_bytes = flags.spill_bytes;
  options_.spill_path = spill_file_.empty() ? nullptr : spill_file_.c_str();
  options_.spill_file_bytes = flags.spill_file_bytes;
  options_.spill_raw_bytes = flags.spill_raw_bytes;
  options_.spill_flags = flags.spill_flags;
  options_.snapshot_budget_bytes = flags.snapshot_bytes;
  options_.snapshot_tokens = flags.snapshot_tokens;
  const auto format = std::find(kKvFormats.begin(), kKvFormats.end(), flags.kv);
  if (format == kKvFormats.end()) throw UsageError("kv=" + flags.kv + ": the formats are bf16, q8, k8v4 and k4v4");
  options_.kv_format = static_cast<int32_t>(format - kKvFormats.begin());
  options_.max_prompt_tokens = flags.max_prompt;
  options_.policy = policy_.c_str();
  options_.policy_options = pairs_.empty() ? nullptr : pairs_.data();
  options_.n_policy_options = static_cast<uint32_t>(pairs_.size());
}

weir_sampling_options SamplingFlags::get() const {
  weir_sampling_options options = WEIR_SAMPLING_OPTIONS_INIT;
  options.temperature = temperature.value_or(talks ? kTalkTemperature : 0);
  const bool samples = talks && options.temperature > 0;
  options.seed = seed.value_or(samples ? random_seed() : 0);
  options.top_k = top_k.value_or(0);
  options.top_p = top_p.value_or(0);
  options.min_p = min_p.value_or(samples ? kTalkMinP : 0);
  options.repeat_penalty = repeat_penalty.value_or(samples ? kTalkRepeatPenalty : 0);
  options.presence_penalty = presence_penalty.value_or(0);
  options.frequency_penalty = frequency_penalty.value_or(0);
  options.bias = bias.empty() ? nullptr : bias.data();
  options.n_bias = static_cast<uint32_t>(bias.size());
  return options;
}

void take_recommended(const weir_model* model, SamplingFlags& flags) {
  if (flags.temperature && *flags.temperature == 0) return;
  bool any = false;
  const auto take = [&](const char* name, std::optional<float>& flag, double low, double high) {
    const std::optional<std::string> text = metadata_value(model, std::string("general.sampling.") + name);
    double value = 0;
    if (!text || !parse_finite(*text, value) || value < low || value > high) return;
    any = true;
    if (!flag) flag = static_cast<float>(value);
  };
  std::optional<float> top_k;
  if (flags.top_k) top_k = 0.0f;
  take("temp", flags.temperature, 0, 100);
  take("top_p", flags.top_p, 0, 1);
  take("min_p", flags.min_p, 0, 0.999999);
  take("penalty_repeat", flags.repeat_penalty, 0, 100);
  take("top_k", top_k, 0, 1 << 24);
  if (!flags.top_k && top_k) flags.top_k = static_cast<uint32_t>(*top_k);
  if (!any) return;
  // Whoever recommends some of them means the others to do nothing.
  if (!flags.min_p) flags.min_p = 0.0f;
  if (!flags.repeat_penalty) flags.repeat_penalty = 1.0f;
}

CLI::Validator whole_number(uint64_t low, uint64_t high) {
  const auto check = [low, high](std::string& text) -> std::string {
    uint64_t value = 0;
    if (parse_whole(text, value) && value >= low && value <= high) {
      text = std::to_string(value);  // the parser would take a leading zero for base 8
      return "";
    }
    return text + " is not a whole number from " + std::to_string(low) + " to " + std::to_string(high);
  };
  return CLI::Validator(check, "");
}

CLI::Validator number(double low, double high) {
  const auto check = [low, high](std::string& text) -> std::string {
    double value = 0;
    if (parse_finite(text, value) && value >= low && value <= high) return "";
    return text + format(" is not a number from %g to %g", low, high);
  };
  return CLI::Validator(check, "");
}

CLI::Validator byte_count() {
  const auto check = [](std::string& text) -> std::string {
    constexpr uint64_t kMax = INT64_MAX;
    const size_t n_digits = std::min(text.find_first_not_of("0123456789"), text.size());
    std::string unit;
    for (char c : text.substr(n_digits)) unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    uint64_t value = 0;
    const int shift = unit_shift(unit);
    if (parse_whole(text.substr(0, n_digits), value) && shift >= 0 && value > 0 && value <= kMax >> shift) {
      text = std::to_string(value << shift);
      return "";
    }
    return text + " is not a number of bytes from 1 to " + std::to_string(kMax) + ", such as 4194304 or 4MiB";
  };
  return CLI::Validator(check, "");
}

CLI::Validator some_path() {
  return CLI::Validator([](std::string& text) { return std::string(text.empty() ? "the path is empty" : ""); }, "");
}

CLI::Validator one_of(const std::vector<std::string>& names) {
  const auto check = [names](std::string& text) -> std::string {
    std::string known;
    for (const std::string& name : names) {
      if (name == text) return "";
      known += " " + name;
    }
    return text + " is none of" + known;
  };
  return CLI::Validator(check, "");
}

CLI::Option* add_model_flag(CLI::App& app, std::string& path) {
  return app.add_option("-m,--model,MODEL", path, "Model file (GGUF)")->type_name("FILE");
}

void add_template_flag(CLI::App& app, std::string& name_or_path) {
  app.add_option(
         "--template", name_or_path,
         "Chat template instead of the model's own: a file, or chatml, llama3, mistral, gemma, granite, glm4 or "
         "harmony")
      ->type_name("NAME|FILE");
}

std::string read_template(const std::string& name_or_path) {
  static const std::vector<std::string> kBuiltin = {"chatml",  "llama3", "mistral", "gemma",
                                                    "granite", "glm4",   "harmony"};
  if (name_or_path.empty()) return "";
  if (std::find(std::begin(kBuiltin), std::end(kBuiltin), name_or_path) != std::end(kBuiltin)) return name_or_path;
  std::ifstream file(name_or_path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) {
    throw std::runtime_error("cannot read the chat template " + name_or_path +
                             ": it is no file, nor one of the built-in ones: " + joined(kBuiltin));
  }
  if (text.empty()) throw std::runtime_error("the chat template " + name_or_path + " is empty");
  return text;
}

void add_variable_flag(CLI::App& app, std::vector<std::string>& texts) {
  app.add_option("--var", texts,
                 "A variable of the chat template, such as enable_thinking=false: VALUE is JSON, or else a text; each "
                 "with a --var of its own")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
}

std::string variables_of_flags(const std::vector<std::string>& texts) {
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  for (const std::string& text : texts) {
    const auto wrong = [&](const std::string& why) { return UsageError("--var " + text + ": " + why); };
    const size_t at = text.find('=');
    if (at == std::string::npos || at == 0) throw wrong("expected KEY=VALUE");
    const std::string key = text.substr(0, at), value = text.substr(at + 1);
    if (key == "messages" || key == "tools" || key == "add_generation_prompt")
      throw wrong("the template gets " + key + " from the command itself");
    if (variables.contains(key)) throw wrong("it was given before");
    // To a template a text is true, whatever it says.
    if (value == "True" || value == "False" || value == "None")
      throw wrong("as JSON it is " +
                  std::string(value == "True"    ? "true"
                              : value == "False" ? "false"
                                                 : "null") +
                  "; for the text write \"" + value + "\" with the quotes");
    nlohmann::ordered_json parsed = nlohmann::ordered_json::parse(value, nullptr, false);
    const bool begins_as_json = !value.empty() && std::string("{[\"").find(value[0]) != std::string::npos;
    if (parsed.is_discarded() && begins_as_json)
      throw wrong("it begins as JSON does and is not valid JSON; the shell may have taken its quotes");
    variables[key] = parsed.is_discarded() ? nlohmann::ordered_json(value) : std::move(parsed);
  }
  try {
    return variables.empty() ? "" : variables.dump();
  } catch (const nlohmann::ordered_json::exception&) {
    throw UsageError("--var: it is not UTF-8");
  }
}

void add_thinking_flags(CLI::App& app, uint32_t& budget, std::string& close) {
  auto* option = app.add_option("--thinking-budget", budget,
                                "Tokens of a thought, after which its end is forced; default: no limit");
  option->transform(whole_number(1, kMaxTokens))->type_name("N");
  app.add_option("--thinking-close", close,
                 "With it: what the model is made to say before the end, such as \"Time is up.\"")
      ->needs(option)
      ->type_name("TEXT");
}

void add_threads_flag(CLI::App& app, SessionFlags& flags) {
  app.add_option("--threads", flags.threads, "Threads that compute; 0 (default): all cores")
      ->transform(whole_number(0, 256))
      ->type_name("N")
      ->group("Machine");
}

CLI::Option* add_device_flag(CLI::App& app, std::string& device) {
  const auto check = [](std::string& text) -> std::string {
    try {
      (void)device_number(text);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  return app
      .add_option("--device", device,
                  "auto (default), cpu, cuda or vulkan; vulkan:NAME has NAME as its index or in its name")
      ->check(CLI::Validator(check, ""))
      ->type_name("NAME")
      ->group("Machine");
}

void add_session_flags(CLI::App& app, SessionFlags& flags) {
  add_device_flag(app, flags.device);
  app.add_flag("--host-attention", flags.host_attention,
               "On a device: keep keys and values in host memory and attend on the processor")
      ->group("Machine");
  add_threads_flag(app, flags);
  app.add_option("--context", flags.context,
                 "Most positions of a conversation; default: what the model was trained for")
      ->transform(whole_number(0, kMaxTokens))
      ->type_name("TOKENS")
      ->group("Memory");
  app.add_option("--batch", flags.batch, "Tokens of one prefill chunk, up to 4096; default 512")
      ->transform(whole_number(1, 4096))
      ->type_name("TOKENS")
      ->group("Memory");
  auto* policy = app.add_option("--policy", flags.policy,
                                "What stays in the KV memory; default dense, of " + joined(policy_names()));
  policy->type_name("NAME")->group("Memory");
  app.add_option("--preset", flags.preset, "Policy, budget and options by one name" + preset_names())
      ->type_name("NAME")
      ->group("Memory");
  app.parse_complete_callback([&flags, policy] { apply_preset(flags, policy->count() > 0); });
  auto* budget = app.add_option("--budget", flags.budget, "KV budget in tokens per stream; default: the whole context");
  budget->transform(whole_number(1, kMaxTokens))->type_name("TOKENS")->group("Memory");
  app.add_option("--budget-bytes", flags.budget_bytes, "KV budget in bytes of all streams, such as 4194304 or 4MiB")
      ->transform(byte_count())
      ->excludes(budget)
      ->type_name("N")
      ->group("Memory");
  app.add_option("--kv", flags.kv,
                 "What keys and values are stored in: bf16 (default), q8, k8v4 (keys in 8 bits, values in 4) or k4v4")
      ->check(CLI::IsMember(kKvFormats))
      ->type_name("FORMAT")
      ->group("Memory");
  app.add_option("--spill-bytes", flags.spill_bytes,
                 "Host memory for pages outside the pool (recall), such as 64MiB; default: for the whole context, "
                 "at most half of the memory of the machine")
      ->transform(byte_count())
      ->type_name("N")
      ->group("Memory");
  auto* raw = app.add_option("--spill-raw-bytes", flags.spill_raw_bytes,
                             "Of that memory, what holds pages uncompressed; default: all if it holds the whole "
                             "context so, else what leaves room for the others compressed");
  raw->transform(byte_count())->type_name("N")->group("Memory");
  app.add_flag_callback(
         "--spill-no-raw", [&flags] { flags.spill_flags |= WEIR_SPILL_NO_RAW; }, "All of these pages are compressed")
      ->excludes(raw)
      ->group("Memory");
  auto* file = app.add_option("--spill-file", flags.spill_file,
                              "A new file, nameless while it is used, for pages that --spill-bytes has no room for");
  file->check(some_path())->type_name("FILE")->group("Memory");
  auto* file_bytes = app.add_option("--spill-file-bytes", flags.spill_file_bytes, "Size of that file, such as 4GiB");
  file_bytes->transform(byte_count())->needs(file)->type_name("N")->group("Memory");
  file->needs(file_bytes);
  app.add_option(
         "--snapshot-bytes", flags.snapshot_bytes,
         "Host memory for states of recurrent layers, which a conversation goes back to, such as 1GiB; default: "
         "for four")
      ->transform(byte_count())
      ->type_name("N")
      ->group("Memory");
  app.add_option("--snapshot-tokens", flags.snapshot_tokens,
                 "One such state after so many tokens, besides where messages begin and end; default 1024")
      ->transform(whole_number(16, kMaxTokens))
      ->type_name("TOKENS")
      ->group("Memory");
  app.add_option("--max-prompt", flags.max_prompt,
                 "Longest prompt to plan for where a policy keeps prompts beyond the budget")
      ->transform(whole_number(0, kMaxTokens))
      ->type_name("TOKENS")
      ->group("Memory");
  app.add_option("--opt", flags.policy_options, "An option of the policy; may be given again")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE")
      ->group("Memory");
}

// ID=B; false: not one.
static bool parse_bias(const std::string& text, weir_token_bias& bias) {
  const size_t at = text.find('=');
  uint64_t token = 0;
  double value = 0;
  if (at == std::string::npos || !parse_whole(text.substr(0, at), token) || token > INT32_MAX) return false;
  if (!parse_finite(text.substr(at + 1), value) || value < -100 || value > 100) return false;
  bias = {static_cast<weir_token>(token), static_cast<float>(value)};
  return true;
}

static std::string check_bias(const std::string& text) {
  weir_token_bias bias;
  return parse_bias(text, bias) ? "" : "\"" + text + "\" is not the id of a token, =, and a number from -100 to 100";
}

void add_sampling_flags(CLI::App& app, SamplingFlags& flags) {
  const bool talks = flags.talks;
  const auto default_of = [talks](float value, const char* otherwise) {
    return talks ? format("%g, with --temp 0 ", value) + otherwise : std::string(otherwise);
  };
  app.add_option("--temp", flags.temperature,
                 "Temperature; " + (talks ? format("default %g; 0", kTalkTemperature) : std::string("0 (default)")) +
                     ": the most probable token")
      ->check(number(0, 100))
      ->type_name("T")
      ->group("Sampling");
  app.add_option("--seed", flags.seed,
                 std::string("Seed of the random numbers; -1 or random: another each time; default ") +
                     (talks ? "random" : "0"))
      ->transform(seed_number())
      ->type_name("S")
      ->group("Sampling");
  app.add_option("--top-k", flags.top_k, "Keep the K most probable tokens; 0 (default): all")
      ->transform(whole_number(0, UINT32_MAX))
      ->type_name("K")
      ->group("Sampling");
  app.add_option("--top-p", flags.top_p, "Keep the smallest set with probability P; default 1")
      ->check(number(0, 1))
      ->type_name("P")
      ->group("Sampling");
  app.add_option("--min-p", flags.min_p,
                 "Drop tokens less probable than P times the best; default " + default_of(kTalkMinP, "0"))
      ->check(number(0, 0.999999))
      ->type_name("P")
      ->group("Sampling");
  app.add_option("--repeat-penalty", flags.repeat_penalty,
                 "Penalty on recent tokens; default " + default_of(kTalkRepeatPenalty, "1, none"))
      ->check(number(0, 100))
      ->type_name("R")
      ->group("Sampling");
  app.add_option("--presence-penalty", flags.presence_penalty,
                 "Taken from the logits of recent tokens, -2 to 2; default 0")
      ->check(number(-2, 2))
      ->type_name("P")
      ->group("Sampling");
  app.add_option("--frequency-penalty", flags.frequency_penalty, "The same, as often as each is among them; default 0")
      ->check(number(-2, 2))
      ->type_name("F")
      ->group("Sampling");
  app.add_option(
         "--logit-bias", flags.bias_texts,
         "Added to the logit of the token ID, -100 to 100; -100 forbids it; each with a --logit-bias of its own")
      ->allow_extra_args(false)
      ->check(check_bias)
      ->each([&flags](const std::string& text) { (void)parse_bias(text, flags.bias.emplace_back()); })
      ->type_name("ID=B")
      ->group("Sampling");
}

int32_t device_number(const std::string& name) {
  if (name.starts_with("vulkan:") && name.size() > std::string("vulkan:").size()) return WEIR_DEVICE_VULKAN;
  for (size_t i = 0; i < kDevices.size(); ++i) {
    if (kDevices[i] == name) return static_cast<int32_t>(i);
  }
  throw UsageError("--device " + name + ": expected auto, cpu, cuda, vulkan or vulkan:NAME");
}

weir_plan_info checked_plan(const weir_model* model, const weir_session_options& options) {
  try {
    return make_plan(model, options);
  } catch (const Error& e) {
    if (e.status() == WEIR_ERR_NOT_FOUND || e.status() == WEIR_ERR_INVALID_ARG) throw UsageError(e.what());
    throw;
  }
}

std::string with_way_out(const Error& error) {
  const std::string message = error.what();
  const bool needs_it = error.status() == WEIR_ERR_OUT_OF_MEMORY && message.find("--context") == std::string::npos;
  return message + (needs_it ? kWayOutOfMemory : "");
}

uint64_t stored_pages(const weir_plan_info& plan, const weir_session_stats& stats) {
  if (stats.spill_stored_bytes == 0) return 0;
  const uint64_t full = uint64_t{plan.n_streams - plan.n_window_streams} * (stats.n_tokens / plan.page_tokens);
  return full - std::min(full, stats.pages_dropped);
}

std::string human_bytes(uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  static const char* const kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1023.95 && unit < 3; ++unit) value /= 1024;
  return format("%.1f %s", value, kUnits[unit]);
}

std::string grouped(uint64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string format(const char* form, ...) {
  char buffer[512];
  va_list args;
  va_start(args, form);
  const int n = std::vsnprintf(buffer, sizeof(buffer), form, args);
  va_end(args);
  return n > 0 ? std::string(buffer, std::min(static_cast<size_t>(n), sizeof(buffer) - 1)) : std::string();
}

}  // namespace weir_cli
