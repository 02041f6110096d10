// weir eval --text as a command: its flags, its results file, tables, CSV, plot, and the line of --json.
#pragma once

#include <string>

#include "eval_settings.h"
#include "eval_text.h"

namespace CLI {
class App;
}

namespace weir_cli {

struct TextFlags {
  TextSettings settings;
  uint32_t seconds = 120;  // without --policies, about
  bool json = false;
};

void add_text_flags(CLI::App& app, TextFlags& flags);
// Throws UsageError when --text came with a flag of problems or traces.
void check_text_flags(const CLI::App& app);

// What the command shares with the other modes.
struct TextCommand {
  std::string model;
  std::string out;  // folder
  uint32_t threads = 0;
  bool plot_only = false;
  bool chooses_policies = false;  // --policies is given; without it --seconds counts
  bool chooses_budgets = false;
  EvalSettings settings;  // policies and budgets, checked
};
int text_command(const TextFlags& flags, TextCommand command);

}  // namespace weir_cli
