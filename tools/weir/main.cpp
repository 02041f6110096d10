// The `weir` program: parses the command line and runs one subcommand. Everything it does, it does through the public C
// API. Exit status: 0 done; 2 wrong usage; 3 done, but an answer was cut (commands.h); 1 anything else. All but the
// first leave one line on stderr that says what and where.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "options.h"
#include "output.h"

namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

// One line, whatever a message from deeper down holds (a file name may have line breaks).
int complain(const std::string& message, int status) {
  weir_cli::tell(message);
  return status;
}

// The help text without the runs of empty lines that CLI11 puts between groups.
std::string help_text(const CLI::App& program) {
  std::string text = program.help();
  for (size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
  while (text.size() > 1 && text[text.size() - 2] == '\n') text.pop_back();
  return text;
}

std::string chosen_command(const CLI::App& program) {
  const auto chosen = program.get_subcommands();
  return chosen.empty() ? "weir" : "weir " + chosen.front()->get_name();
}

// Changes of one letter that turn one word into the other.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({change, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

// "; did you mean --model?", or nothing when no name is near.
std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  std::string best;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& name : names) {
    const size_t changes = distance(word, name);
    if (changes >= least) continue;
    least = changes;
    best = name;
  }
  return best.empty() ? "" : "; did you mean " + best + "?";
}

// What is wrong with a word that the parser could not place, or "". It may be a misspelt option, which then seems to be
// missing; so this is told first.
std::string misplaced(const CLI::App& program) {
  const auto chosen = program.get_subcommands();
  std::vector<std::string> commands, options;
  for (const CLI::App* command : program.get_subcommands(nullptr)) commands.push_back(command->get_name());
  for (const CLI::Option* option : (chosen.empty() ? &program : chosen.front())->get_options()) {
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  }
  for (const std::string& word : program.remaining(true)) {
    const std::string name = word.substr(0, word.find('='));
    if (chosen.empty() && name[0] != '-') return "there is no subcommand " + name + suggestion(name, commands);
    if (name.size() > 1 && name[0] == '-') return "there is no option " + name + suggestion(name, options);
  }
  return "";
}

int run(int argc, char** argv) {
  CLI::App program(
      "Long reasoning in a fixed memory footprint: run, measure and inspect language models in GGUF files.", "weir");
  program.require_subcommand(0, 1);  // none at all is told below, so that an unknown one is told by its name
  program.set_version_flag("--version", std::string("weir ") + weir_version_string());
  program.get_formatter()->column_width(30);
  program.footer(
      "Exit status: 0 done, 1 failed, 2 wrong usage, 3 an answer was cut by the context or, without -n, by the length\n"
      "that it has at most. With --json a cut answer is status 0, its \"stop\" tells.");

  weir_cli::Action action;
  weir_cli::add_run(program, action);
  weir_cli::add_chat(program, action);
  weir_cli::add_serve(program, action);
  weir_cli::add_demo(program, action);
  weir_cli::add_bench(program, action);
  weir_cli::add_eval(program, action);
  weir_cli::add_calibrate(program, action);
  weir_cli::add_plan(program, action);
  weir_cli::add_devices(program, action);
  weir_cli::add_info(program, action);
  weir_cli::add_tokenize(program, action);
  weir_cli::add_template(program, action);

  try {
    program.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    weir_cli::put(help_text(program));
    weir_cli::flush_output();
    return 0;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {  // --version
      weir_cli::put_line(e.what());
      weir_cli::flush_output();
      return 0;
    }
    const std::string wrong = misplaced(program);
    return complain((wrong.empty() ? e.what() : wrong) + " (see " + chosen_command(program) + " --help)", kWrongUsage);
  }
  if (!action) return complain("expected a subcommand (see weir --help)", kWrongUsage);
  const CLI::App* chosen = program.get_subcommands().front();
  const bool has_way_out = chosen->get_option_no_throw("--context") != nullptr;
  try {
    const int status = action();
    weir_cli::flush_output();  // a full disk may show only here
    return status;
  } catch (const weir_cli::Error& e) {
    return complain(has_way_out ? weir_cli::with_way_out(e) : e.what(), kFailed);
  } catch (const std::bad_alloc&) {
    return complain(std::string("out of memory") + (has_way_out ? weir_cli::kWayOutOfMemory : ""), kFailed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of its write
  try {
    return run(argc, argv);
  } catch (const weir_cli::UsageError& e) {
    return complain(e.what(), kWrongUsage);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kFailed);
  } catch (const std::exception& e) {
    return complain(e.what(), kFailed);
  }
}
