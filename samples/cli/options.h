// Flags that several subcommands share, and how they become the option structs of the library. Ranges that never depend
// on the model are checked here (wrong usage, exit status 2); the rest is the library's to judge.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "weir_cpp.h"

// Of CLI11, which takes a compiler seconds; only files that add flags include it.
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
  uint64_t spill_raw_bytes = 0;             // 0: a quarter of the memory
  uint32_t spill_flags = 0;                 // WEIR_SPILL_*
  bool host_attention = false;              // WEIR_SESSION_HOST_ATTENTION
  uint32_t max_prompt = 0;                  // tokens to plan for where a policy pins prompts beyond the budget
  std::vector<std::string> policy_options;  // "key=value"

  std::string preset;  // already applied to the fields above when a subcommand runs

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

struct SamplingFlags {
  float temperature = 0;
  uint64_t seed = 0;
  uint32_t top_k = 0;
  float top_p = 0;
  float min_p = 0;
  float repeat_penalty = 0;
  bool given = false;  // any of them

  weir_sampling_options get() const;
};

// Sets policy, budget and options by the preset that flags name, if any; options and a budget that were given win over
// the preset's. Throws UsageError.
void apply_preset(SessionFlags& flags, bool policy_given);

// A check whose help text stays short. The range check of the parser would print both limits next to every flag.
CLI::Validator in_range(double low, double high);
CLI::Validator at_least_one();
CLI::Validator one_of(const std::vector<std::string>& names);

CLI::Option* add_model_flag(CLI::App& app, std::string& path);
void add_template_flag(CLI::App& app, bool& accept_resembling);
CLI::Option* add_device_flag(CLI::App& app, std::string& device);
void add_threads_flag(CLI::App& app, SessionFlags& flags);
void add_session_flags(CLI::App& app, SessionFlags& flags);
void add_sampling_flags(CLI::App& app, SamplingFlags& flags);

// WEIR_DEVICE_* of a --device; throws UsageError.
int32_t device_number(const std::string& name);

// The plan of a session; a policy or an option that does not exist is wrong usage.
weir_plan_info checked_plan(const weir_model* model, const weir_session_options& options);

// Pages in the spill store: the full ones of the streams that the budget rules, less those that were dropped.
uint64_t stored_pages(const weir_plan_info& plan, const weir_session_stats& stats);

// "4.0 MiB", "812 B".
std::string human_bytes(uint64_t bytes);
// "12,345".
std::string grouped(uint64_t number);
// printf into a string, for numbers in tables.
std::string format(const char* form, ...) __attribute__((format(printf, 1, 2)));

}  // namespace weir_cli
