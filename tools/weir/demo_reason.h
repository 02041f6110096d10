// weir demo reason: problems of rising length under several policies, as a table of right answers, memory and speed.
#pragma once

#include "commands.h"

namespace weir_cli {

// Adds the subcommand to that of the demo, and returns it.
CLI::App* add_demo_reason(CLI::App& demo, Action& action);

}  // namespace weir_cli
