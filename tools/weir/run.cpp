// weir run: answers one prompt, or every line of a prompts file, each in a session of its own.
// Text is streamed to stdout as it comes; with --json one line per conversation tells the text and what it cost.
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>

#include "commands.h"
#include "conversation.h"
#include "input.h"
#include "json_input.h"
#include "output.h"
#include "terminal.h"

namespace weir_cli {
namespace {

struct RunFlags {
  std::string model;
  std::string prompt;
  std::string prompts_file;
  std::string system;
  std::string schema, grammar;  // of --json-schema and --grammar
  std::string tools;
  std::vector<std::string> variables;
  bool raw = false;
  bool json = false;
  SolveOptions solve;
  SavedFlags saved;
};

struct Line {
  size_t number;  // 1-based
  std::string text;
};

std::vector<Line> read_lines(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    if (!file) throw std::runtime_error("cannot open prompts file " + path);
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::vector<Line> lines;
  std::string text;
  for (size_t number = 1; std::getline(in, text); ++number) {
    if (number == 1) drop_byte_order_mark(text);
    if (text.find_first_not_of(" \t\r") != std::string::npos) lines.push_back({number, text});
  }
  if (in.bad()) throw std::runtime_error("cannot read prompts file " + path);
  return lines;
}

// Runs conversations one after the other and prints what comes of them.
class Runner {
 public:
  explicit Runner(RunFlags& flags)
      : flags_(flags), runtime_(create_runtime(flags.solve.session.threads, flags.solve.session.device)) {
    model_ = open_model(runtime_.get(), flags.model);
    if (!flags.raw && flags.solve.chat_template.empty()) require_chat_template(model_.get(), flags.model);
    require_chat_abilities(model_.get(), flags.solve);
    // Options that no prompt can make right are told before the first one is read.
    SessionOptions options(flags.solve.session);
    if (flags.solve.session.extends_for_prompt() && options.get().max_prompt_tokens == 0) {
      options.get().max_prompt_tokens = 1;  // each prompt plans for its own length
    }
    checked_plan(model_.get(), options.get());
  }

  Solution run(const Conversation& conversation, const std::string& progress_prefix) {
    const bool stream = !flags_.json;
    const bool show_progress = !(stream && stdout_is_terminal());  // streamed text is progress enough
    const auto start = std::chrono::steady_clock::now();
    SolveHooks hooks;
    hooks.on_prefill = [&](uint64_t done, uint64_t total) {
      if (done < total) {
        progress_.update([&] {
          return progress_prefix + "reading the prompt: " + grouped(done) + " of " + grouped(total) + " tokens";
        });
      }
      return interrupt_count() == 0;
    };
    hooks.on_token = [&](const weir_token_event& event, const weir_session*) {
      if (stream) {
        if (!show_progress) progress_.clear();
        if (event.index == 0) start_answer();
        stream_answer({event.text, static_cast<size_t>(event.text_bytes)});
      }
      if (show_progress) {
        progress_.update([&] {
          const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
          return progress_prefix + grouped(event.index + 1u) + " tokens, " +
                 format("%.0f", event.index / elapsed.count()) + " a second";
        });
      }
      return interrupt_count() == 0;
    };
    Solution solution = solve(model_.get(), flags_.solve, conversation, hooks);
    progress_.clear();
    if (stream) start_answer();  // ends the last line
    return solution;
  }

 private:
  // Each answer starts at the beginning of a line.
  void start_answer() {
    if (!at_line_start_) stream_answer("\n");
  }

  void stream_answer(std::string_view text) {
    put_answer(text);
    flush_output();
    if (!text.empty()) at_line_start_ = text.back() == '\n';
  }

  RunFlags& flags_;
  ProgressLine progress_;
  bool at_line_start_ = true;
  RuntimePtr runtime_;
  ModelPtr model_;
};

// Says that an answer was cut, and returns the exit status. `max_tokens`: what was asked for, 0 for nothing.
int tell_cut(const Solution& solution, uint32_t max_tokens, const std::string& where) {
  if (solution.stop != "length" && solution.stop != "context") return 0;
  tell(where + "the answer was cut: " +
       (solution.stop == "context" ? "the context of " + grouped(solution.plan.context_tokens) + " tokens is full"
                                   : "it has " + grouped(solution.stats.n_decode) + " tokens"));
  return solution.stop == "context" || max_tokens == 0 ? kCutAnswer : 0;
}

void tell_malformed_call(const RunFlags& flags, const Solution& solution, const std::string& where) {
  if (!flags.json && solution.has_malformed_call) tell(where + "the answer has a call of a tool that cannot be read");
}

int run_prompt(RunFlags& flags) {
  const std::unique_ptr<OutFile> save = open_save_file(flags.saved);
  flags.solve.save = save.get();
  flags.solve.resume = flags.saved.resume;
  Runner runner(flags);
  const nlohmann::ordered_json line = {{"id", nullptr}, {"prompt", flags.prompt}};
  const Solution solution = runner.run(parse_conversation(line, flags.system, flags.raw), "");
  if (flags.json) put_line(dump_json(to_json(solution)));
  if (!solution.error.empty()) throw std::runtime_error(solution.error);
  if (solution.stop == "cancelled") throw std::runtime_error("cancelled");
  tell_malformed_call(flags, solution, "");
  const int status = flags.json ? 0 : tell_cut(solution, solution.max_tokens, "");
  if (!flags.json && stderr_is_terminal()) {
    const Style style(true);
    std::fprintf(stderr, "%s[%s + %s tokens, %.1f tok/s, %s, KV %s of %s]%s\n", style.dim,
                 grouped(solution.stats.n_prompt).c_str(), grouped(solution.stats.n_decode).c_str(),
                 solution.tokens_per_second(), solution.stop.c_str(),
                 human_bytes(solution.memory.kv_peak_bytes).c_str(),
                 human_bytes(solution.memory.kv_budget_bytes).c_str(), style.reset);
  }
  return status;
}

// A line that cannot be run becomes a solution that says why.
Solution run_line(Runner& runner, const RunFlags& flags, const Line& line, const std::string& progress_prefix) {
  Solution failed;
  failed.policy = flags.solve.session.policy;
  try {
    const nlohmann::ordered_json json = parse_json(line.text);
    if (json.is_object()) failed.id = json.value("id", nlohmann::ordered_json(line.number));
    Conversation conversation = parse_conversation(json, flags.system, flags.raw);
    conversation.id = failed.id;
    failed = runner.run(conversation, progress_prefix);
    if (failed.error.empty()) return failed;
  } catch (const std::runtime_error& e) {
    failed.error = e.what();
  }
  failed.error = flags.prompts_file + ":" + std::to_string(line.number) + ": " + failed.error;
  return failed;
}

int run_file(RunFlags& flags) {
  const std::vector<Line> lines = read_lines(flags.prompts_file);
  Runner runner(flags);
  size_t n_failed = 0;
  int status = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string position = "[" + std::to_string(i + 1) + "/" + std::to_string(lines.size()) + "] ";
    const Solution solution = run_line(runner, flags, lines[i], position);
    if (flags.json) {
      put_line(dump_json(to_json(solution)));
      flush_output();
    } else if (!solution.error.empty()) {
      tell(solution.error);
    }
    const std::string where = flags.prompts_file + ":" + std::to_string(lines[i].number) + ": ";
    tell_malformed_call(flags, solution, where);
    if (!flags.json) status = std::max(status, tell_cut(solution, solution.max_tokens, where));
    n_failed += solution.error.empty() ? 0 : 1;
    if (solution.stop == "cancelled")
      throw std::runtime_error("cancelled at line " + std::to_string(lines[i].number) + " of " + flags.prompts_file);
  }
  if (n_failed == 0) return status;
  throw std::runtime_error(std::to_string(n_failed) + " of the " + std::to_string(lines.size()) + " prompts in " +
                           flags.prompts_file + " failed");
}

// The prompt of the command line, or standard input where that was asked for or nothing else was given. One line end at
// its end is the shell's.
std::string read_prompt(const CLI::Option& option, const std::string& given) {
  if (!option.empty() && given != "-") return given;
  if (option.empty() && isatty(STDIN_FILENO) != 0) {
    throw UsageError("run: expected -p TEXT, a prompt on standard input, or --prompts FILE");
  }
  std::string text = read_stdin();
  if (text.ends_with('\n')) text.pop_back();
  if (text.empty() && option.empty()) {
    throw UsageError("run: expected -p TEXT, a prompt on standard input, or --prompts FILE; standard input is empty");
  }
  if (text.empty()) throw std::runtime_error("run: -p -: standard input is empty");
  return text;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw std::runtime_error("cannot read " + path);
  return text;
}

// --json-schema takes a schema or a file that holds one, and a schema begins with a brace.
void read_constraint(RunFlags& flags) {
  const std::string& schema = flags.schema;
  if (!schema.empty()) {
    const bool is_text = schema[schema.find_first_not_of(" \t\r\n") % schema.size()] == '{';
    flags.solve.constraint = ConstraintText{WEIR_CONSTRAINT_JSON_SCHEMA, is_text ? schema : read_file(schema)};
  }
  if (!flags.grammar.empty()) flags.solve.constraint = ConstraintText{WEIR_CONSTRAINT_GBNF, read_file(flags.grammar)};
}

// --tools, --tool-choice and --var.
void read_chat_settings(RunFlags& flags, bool has_file) {
  SolveOptions& solve = flags.solve;
  if (flags.raw && (!flags.tools.empty() || !flags.variables.empty()))
    throw UsageError("run: --tools and --var are for the chat template, --raw uses none");
  solve.tools = read_tools(flags.tools);
  solve.variables = variables_of_flags(flags.variables);
  const bool lines_may_have_tools = has_file && solve.tools.names.empty();
  const std::string wrong = lines_may_have_tools ? "" : wrong_with_choice(solve.tool_choice, solve.tools);
  if (!wrong.empty()) throw UsageError("run: --tool-choice: " + wrong);
  if (solve.tools.names.empty()) return;
  if (solve.tool_choice != kToolsNone && solve.constraint.has_value())
    throw UsageError(std::string("run: --tools with --json-schema or --grammar: ") + kToolsOrConstraint);
  if (!flags.saved.resume.empty())
    throw UsageError("run: --tools: the conversation that --resume goes on with has begun already, without them");
}

void check_saved(const RunFlags& flags, bool has_file) {
  const SavedFlags& saved = flags.saved;
  if (saved.save.empty() && saved.resume.empty()) return;
  if (has_file) throw UsageError("run: --save and --resume are for one conversation, not for --prompts");
  check_saved_flags(saved, flags.system);
  // Otherwise each prompt plans for its own length.
  if (flags.solve.session.extends_for_prompt() && flags.solve.session.max_prompt == 0) {
    throw UsageError(
        "run: --save and --resume need --max-prompt with this policy: it sets the size of page tables, which must be "
        "the same in both runs");
  }
}

}  // namespace

void add_run(CLI::App& program, Action& action) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* app = program.add_subcommand("run", "Answer a prompt, or every line of a prompts file");
  add_model_flag(*app, flags->model)->required();
  auto* prompt = app->add_option("-p,--prompt", flags->prompt,
                                 "The prompt; - or none: what standard input holds, which may be a mere -")
                     ->type_name("TEXT");
  auto* prompts =
      app->add_option("--prompts", flags->prompts_file,
                      "JSON lines {\"id\", \"prompt\"} or {\"id\", \"messages\"}, perhaps with \"max_tokens\", "
                      "\"stop\", \"json_schema\", \"tools\", \"tool_choice\" and \"variables\"; - reads stdin. A line "
                      "that fails does not end the run, but its exit status is then 1")
          ->type_name("FILE");
  prompts->excludes(prompt);
  app->add_option("--system", flags->system, "System message in front of conversations that have none")
      ->type_name("TEXT");
  add_template_flag(*app, flags->solve.chat_template);
  add_variable_flag(*app, flags->variables);
  app->add_option(
         "--tools", flags->tools,
         "Tools that the model may call, a JSON list as in OpenAI's API: a file, or a text that begins with [. "
         "--json has the calls of an answer as \"calls\"")
      ->check(some_path())
      ->type_name("FILE|TEXT");
  app->add_option("--tool-choice", flags->solve.tool_choice,
                  "auto (default): the model calls or answers; required: each answer is a call; NAME: of this tool; "
                  "none: it is shown no tools")
      ->type_name("auto|required|none|NAME");
  app->add_flag("--raw", flags->raw,
                "Use no chat template: the prompt is the text, special tokens such as <|im_start|> included");
  app->add_flag_callback(
      "--bos", [flags] { flags->solve.add_bos = true; },
      "With --raw: start with the model's begin-of-text token, if the prompt does not; default: as the file asks");
  app->add_flag_callback(
         "--no-bos", [flags] { flags->solve.add_bos = false; }, "With --raw: add no begin-of-text token")
      ->excludes("--bos");
  app->add_option("-n", flags->solve.max_tokens, "Most tokens of an answer; default: what the model was trained for")
      ->transform(whole_number(1, kMaxTokens))
      ->type_name("MAX");
  app->add_option("--stop", flags->solve.stops,
                  "A text that ends an answer and is not shown; up to 16, each with a --stop of its own")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  app->add_option("--min-tokens", flags->solve.min_tokens, "Tokens before which the model cannot end an answer")
      ->transform(whole_number(0, kMaxTokens))
      ->type_name("MIN");
  app->add_option("--logprobs", flags->solve.n_top,
                  "With --json: the log-probability of each token, and of the N most probable ones in its place")
      ->transform(whole_number(1, 64))
      ->type_name("N");
  add_thinking_flags(*app, flags->solve.thinking_budget, flags->solve.thinking_close);
  auto* schema = app->add_option("--json-schema", flags->schema,
                                 "Answers are JSON that satisfies this schema: a file, or a text that begins with {")
                     ->type_name("FILE|TEXT");
  app->add_option("--grammar", flags->grammar, "Answers are texts of this grammar, in llama.cpp's format (GBNF)")
      ->type_name("FILE")
      ->excludes(schema);
  app->add_flag("--json", flags->json, "One JSON line per conversation instead of the text");
  add_saved_flags(*app, flags->saved);
  add_sampling_flags(*app, flags->solve.sampling);
  add_session_flags(*app, flags->solve.session);
  app->callback([flags, prompt, prompts, &action] {
    action = [flags, prompt, prompts] {
      if (flags->raw && !flags->system.empty())
        throw UsageError("run: --system needs the chat template, --raw uses none");
      if (flags->raw && !flags->solve.chat_template.empty())
        throw UsageError("run: --template gives a chat template, --raw uses none");
      flags->solve.chat_template = read_template(flags->solve.chat_template);
      if (!flags->raw && flags->solve.add_bos)
        throw UsageError("run: --bos and --no-bos are for --raw; a chat template has its own begin");
      check_saved(*flags, !prompts->empty());
      if (flags->solve.n_top != 0 && !flags->json) throw UsageError("run: --logprobs needs --json");
      const std::string wrong = wrong_with_stops(flags->solve.stops);
      if (!wrong.empty()) throw UsageError("run: --stop: " + wrong);
      read_constraint(*flags);
      read_chat_settings(*flags, !prompts->empty());
      if (prompts->empty()) flags->prompt = read_prompt(*prompt, flags->prompt);
      catch_interrupts();
      return prompts->empty() ? run_prompt(*flags) : run_file(*flags);
    };
  });
}

}  // namespace weir_cli
