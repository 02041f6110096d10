// The `weir` program: parses the command line and runs one subcommand. Everything it does, it does through the public C
// API. Exit status: 0 done; 2 wrong usage; 1 anything else. Both failures leave one line on stderr that says what and
// where.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include "commands.h"
#include "options.h"

namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

// A message from deeper down may hold line breaks (a file name can); the promise is one line.
int complain(std::string message, int status) {
  std::replace_if(
      message.begin(), message.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  std::fprintf(stderr, "weir: %s\n", message.c_str());
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

int run(int argc, char** argv) {
  CLI::App program(
      "Long reasoning in a fixed memory footprint: run, measure and inspect language models in GGUF files.", "weir");
  program.require_subcommand(0, 1);  // none at all is told below, so that an unknown one is told by its name
  program.set_version_flag("--version", std::string("weir ") + weir_version_string());
  program.get_formatter()->column_width(30);

  weir_cli::Action action;
  weir_cli::add_run(program, action);
  weir_cli::add_chat(program, action);
  weir_cli::add_demo(program, action);
  weir_cli::add_bench(program, action);
  weir_cli::add_eval(program, action);
  weir_cli::add_plan(program, action);
  weir_cli::add_info(program, action);
  weir_cli::add_tokenize(program, action);

  try {
    program.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(help_text(program).c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return program.exit(e);  // --version
    return complain(std::string(e.what()) + " (see " + chosen_command(program) + " --help)", kWrongUsage);
  }
  if (!action) return complain("expected a subcommand (see weir --help)", kWrongUsage);
  const int status = action();
  // A full disk shows only here: what was printed may still be in the buffer.
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    return complain(std::string("standard output: ") + std::strerror(errno), kFailed);
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
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
