// The subcommands of the program. Each function adds one to the command line and sets `action` when the user chose it;
// the action runs after the whole line was parsed and returns the exit status.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace weir_cli {

using Action = std::function<int()>;

// Exit status of run and chat without --json where an answer was cut by a limit that nobody asked for: the context, or
// the length that an answer has at most without -n.
inline constexpr int kCutAnswer = 3;

void add_run(CLI::App& program, Action& action);
void add_chat(CLI::App& program, Action& action);
void add_serve(CLI::App& program, Action& action);  // tools/weir/server
void add_bench(CLI::App& program, Action& action);
void add_plan(CLI::App& program, Action& action);
void add_devices(CLI::App& program, Action& action);
void add_info(CLI::App& program, Action& action);
void add_tokenize(CLI::App& program, Action& action);
void add_template(CLI::App& program, Action& action);
void add_demo(CLI::App& program, Action& action);
void add_eval(CLI::App& program, Action& action);
void add_calibrate(CLI::App& program, Action& action);

}  // namespace weir_cli
