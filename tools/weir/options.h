// Flags that several subcommands share, and how they become the option structs of the library. Ranges that never depend
// on the model are checked here (wrong usage, exit status 2); the rest is the library's to judge.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "weir_cpp.h"

// CLI11 takes a compiler seconds; only files that add flags include it.
namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace weir_cli {

// Wrong usage that the command line parser cannot see; exit status 2.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Everything that makes a session except the model. Its weir_session_options points into it, so it must outlive its
// use.
struct SessionFlags {
  std::string device = "auto";
  uint32_t threads = 0;  // of the runtime; 0: all cores
  uint32_t context = 0;  // tokens; 0: what the model was trained for
  uint32_t batch = 0;    // tokens of a prefill chunk; 0: the library's default
  std::string policy = "dense";
  uint32_t budget = 0;        // tokens per stream; 0: the whole context
  uint64_t budget_bytes = 0;  // instead of budget
  uint64_t spill_bytes = 0;   // host memory for pages outside the pool; 0: for the whole context
  std::string spill_file;     // a new file behind that memory, of spill_file_bytes; "": none
  uint64_t spill_file_bytes = 0;
  uint64_t spill_raw_bytes = 0;             // 0: what holds the whole context, or leaves room for the others
  uint32_t spill_flags = 0;                 // WEIR_SPILL_*
  uint64_t snapshot_bytes = 0;              // for states of recurrent layers to go back to; 0: the library's default
  uint32_t snapshot_tokens = 0;             // one at every multiple; 0: the library's default
  std::string kv = "bf16";                  // of kv_formats()
  bool host_attention = false;              // WEIR_SESSION_HOST_ATTENTION
  uint32_t max_prompt = 0;                  // tokens to plan for where a policy pins prompts beyond the budget
  std::vector<std::string> policy_options;  // "key=value"

  std::string usual_preset;  // where neither a policy nor a preset nor a budget is given; "": none
  std::string preset;        // already applied to the fields above when a subcommand runs

  // True when the policy keeps prompts beyond the budget, so that the session must be told the prompt's length.
  bool extends_for_prompt() const;
  std::string option(const std::string& key) const;  // "" when not given
};

// The library's view of SessionFlags. Keeps the strings that the struct points to.
class SessionOptions {
 public:
  // Throws UsageError when an --opt is not key=value.
  explicit SessionOptions(const SessionFlags& flags);
  SessionOptions(const SessionOptions&) = delete;
  SessionOptions& operator=(const SessionOptions&) = delete;

  weir_session_options& get() { return options_; }

 private:
  std::string policy_, spill_file_;
  std::vector<std::string> keys_, values_;
  std::vector<weir_key_value> pairs_;
  weir_session_options options_ = WEIR_SESSION_OPTIONS_INIT;
};

// What was given; the rest is the library's default, or that of a conversation with people.
struct SamplingFlags {
  std::optional<float> temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<uint64_t> seed;
  std::optional<uint32_t> top_k;
  std::vector<std::string> bias_texts;  // ID=B, as given
  std::vector<weir_token_bias> bias;    // the same
  bool talks = false;                   // samples where no temperature of 0 is given, with another seed each time

  bool given() const {
    return temperature || top_p || min_p || repeat_penalty || presence_penalty || frequency_penalty || seed || top_k ||
           !bias.empty();
  }
  weir_sampling_options get() const;  // its bias is that of the flags
};
// What the model's makers recommend in the file (general.sampling.*), where nothing else was given and the flags have
// no temperature of 0. A key out of its range is left out.
void take_recommended(const weir_model* model, SamplingFlags& flags);

// Sampling where `talks`: the most probable token each time makes small models repeat themselves.
inline constexpr float kTalkTemperature = 0.8f, kTalkMinP = 0.05f, kTalkRepeatPenalty = 1.1f;

// Sets policy, budget and options by the preset that flags name, if any; options and a budget that were given win over
// the preset's. Throws UsageError.
void apply_preset(SessionFlags& flags, bool policy_given);

// A number as command lines have it, all of the text: digits alone, of a value that fits; or a finite decimal one.
bool parse_whole(const std::string& text, uint64_t& value);
bool parse_finite(const std::string& text, double& value);

// Checks of the numbers of a command line; every option with a number has one. A whole number is digits alone: no sign,
// no space, no other base, no exponent; leading zeros mean nothing. A number is a finite decimal one. What is refused
// is told with the range.
CLI::Validator whole_number(uint64_t low, uint64_t high);
CLI::Validator number(double low, double high);
// A whole number above 0, perhaps with a unit of 1024s: 4194304, 4096k, 4MiB.
CLI::Validator byte_count();
inline constexpr uint64_t kMaxTokens = UINT32_MAX;  // of options that count tokens
// The path of a file or folder to write: "" would be no file at all, in silence.
CLI::Validator some_path();
CLI::Validator one_of(const std::vector<std::string>& names);

// The policies of the library, in the order of docs/policies.md.
const std::vector<std::string>& policy_names();

// The model is also the argument without a name.
CLI::Option* add_model_flag(CLI::App& app, std::string& path);
// --template: the name of a built-in template, or a file.
void add_template_flag(CLI::App& app, std::string& name_or_path);
// What weir_chat_options.template_text takes: the name itself, or what the file holds; "" for "". Throws
// std::runtime_error.
std::string read_template(const std::string& name_or_path);
// The name of an enum weir_device_type, as --device takes it.
const std::string& device_name(int32_t device);
// Names with commas between them, for messages.
std::string joined(const std::vector<std::string>& names);
// --var KEY=VALUE, again and again.
void add_variable_flag(CLI::App& app, std::vector<std::string>& texts);
// The JSON object of these, "" for none. A value is JSON where it is some, else a text. Throws UsageError.
std::string variables_of_flags(const std::vector<std::string>& texts);
// --thinking-budget and --thinking-close, of weir_generate_options.
void add_thinking_flags(CLI::App& app, uint32_t& budget, std::string& close);
CLI::Option* add_device_flag(CLI::App& app, std::string& device);
void add_threads_flag(CLI::App& app, SessionFlags& flags);
void add_session_flags(CLI::App& app, SessionFlags& flags);
void add_sampling_flags(CLI::App& app, SamplingFlags& flags);

// WEIR_DEVICE_* of a --device; throws UsageError.
int32_t device_number(const std::string& name);

// The plan of a session; a policy or an option that does not exist is wrong usage.
weir_plan_info checked_plan(const weir_model* model, const weir_session_options& options);

// The message of a failed call; where memory was short, with what makes a session smaller.
std::string with_way_out(const Error& error);
inline constexpr char kWayOutOfMemory[] = "; a smaller --context or --budget takes less memory";

// Pages in the spill store: the full ones of the streams that the budget rules, less those that were dropped.
uint64_t stored_pages(const weir_plan_info& plan, const weir_session_stats& stats);

// "4.0 MiB", "812 B".
std::string human_bytes(uint64_t bytes);
// "12,345".
std::string grouped(uint64_t number);
// printf into a string, for numbers in tables.
std::string format(const char* form, ...) __attribute__((format(printf, 1, 2)));

}  // namespace weir_cli
