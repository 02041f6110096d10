// weir demo: one long chain problem solved twice by the tiny reasoner, with the whole KV history and with a small
// budget. The point to see: the answer and the speed stay, the memory does not grow. On a terminal the KV memory and
// the chain are shown live; otherwise a line tells the progress every thousand tokens.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "commands.h"
#include "conversation.h"
#include "out_file.h"
#include "output.h"
#include "problems.h"
#include "terminal.h"

namespace weir_cli {
namespace {

namespace fs = std::filesystem;

constexpr char kModelName[] = "weir-tiny-reasoner-q8_0.gguf";
constexpr int kLag = 12;
constexpr int kLineTokens = 19;    // of a chain line, at most about
constexpr int kFrameTokens = 700;  // prompt, answer, and some to spare
constexpr uint32_t kReportTokens = 1000;
constexpr int kChainLines = 3;        // of the live view
constexpr uint32_t kCsvTokens = 100;  // between two rows of --csv

struct DemoFlags {
  std::string model;
  uint64_t seed = 1;
  int steps = 380;
  uint32_t budget = 1024;
  uint32_t threads = 0;
  std::string csv;
};

struct Run {
  std::string name;
  Solution solution;
  bool is_right = false;
  int n_wrong_lines = 0;
};

// The model: in the source tree, found from the folder one is in, from the program's own folder upwards (a build folder
// lies inside the tree), or at the place that the build told; where it was installed with the program; or next to it.
std::string find_model() {
  const fs::path in_tree = fs::path("samples") / "models" / kModelName;
  std::vector<fs::path> places = {in_tree};
#ifdef WEIR_SOURCE_DIR
  places.push_back(WEIR_SOURCE_DIR / in_tree);
#endif
  std::error_code error;
  const fs::path folder_of_program = fs::read_symlink("/proc/self/exe", error).parent_path();
  fs::path folder = folder_of_program;
  places.push_back(folder / kModelName);
  places.push_back(folder / WEIR_MODEL_FOLDER / kModelName);
  for (; folder.has_relative_path(); folder = folder.parent_path()) places.push_back(folder / in_tree);
  for (const fs::path& place : places) {
    if (fs::exists(place, error)) return place.string();
  }
  throw std::runtime_error(std::string("cannot find ") + kModelName + ", which is installed with the program to " +
                           (folder_of_program / WEIR_MODEL_FOLDER).lexically_normal().string() +
                           " and lies in samples/models of Weir's source; -m FILE names it elsewhere");
}

// Shows one solution as it grows.
class View {
 public:
  View(std::string name, OutFile* csv) : name_(std::move(name)), csv_(csv), live_(stdout_is_terminal()) {}

  void on_token(const weir_token_event& event, const weir_session* session) {
    for (char c : std::string_view(event.text, static_cast<size_t>(event.text_bytes))) {
      if (c == '\n') {
        lines_.erase(lines_.begin());
        lines_.emplace_back();
      } else {
        lines_.back() += c;
      }
    }
    n_tokens_ = event.index + 1;
    if (csv_ != nullptr && n_tokens_ % kCsvTokens == 0) write_row(session);
    if (live_) {
      if (throttle_.due()) draw(session);
    } else if (n_tokens_ % kReportTokens == 0) {
      put_format("%s\n", status(session, 0).c_str());
      flush_output();
    }
  }

  void finish(const weir_session* session) {
    if (!live_) return;
    draw(session);
    block_.finish();
  }

 private:
  std::string status(const weir_session* session, int bar_columns) const {
    const weir_memory_info memory = session_memory(session);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    const double used =
        static_cast<double>(memory.kv_bytes) / static_cast<double>(std::max<uint64_t>(memory.kv_budget_bytes, 1));
    std::string text = format("%-15s %6s tokens  %4.0f tok/s  KV %8s of %8s", name_.c_str(), grouped(n_tokens_).c_str(),
                              n_tokens_ / elapsed.count(), human_bytes(memory.kv_bytes).c_str(),
                              human_bytes(memory.kv_budget_bytes).c_str());
    if (bar_columns > 0) text += " " + bar(used, bar_columns);
    return text;
  }

  void draw(const weir_session* session) {
    std::vector<std::string> block = {status(session, 12)};
    for (const std::string& line : lines_) block.push_back("  " + plain_line(line));
    block_.draw(block);
  }

  // Where one stands: KV bytes in use, and the rate since the row before.
  void write_row(const weir_session* session) {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> elapsed = now - row_start_;
    row_start_ = now;
    csv_->write(format("%s,%u,%llu,%.1f\n", name_.c_str(), n_tokens_,
                       static_cast<unsigned long long>(session_memory(session).kv_bytes),
                       kCsvTokens / elapsed.count()));
  }

  std::string name_;
  OutFile* csv_;
  bool live_;
  std::chrono::steady_clock::time_point row_start_ = std::chrono::steady_clock::now();
  LiveBlock block_;
  Throttle throttle_{10};
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  uint32_t n_tokens_ = 0;
  std::vector<std::string> lines_ = std::vector<std::string>(kChainLines);
};

Run solve_once(weir_model* model, const Problem& problem, const std::string& name, const SolveOptions& options,
               OutFile* csv) {
  Conversation conversation;
  conversation.messages = {{"user", problem.prompt}};
  View view(name, csv);
  SolveHooks hooks;
  hooks.on_token = [&](const weir_token_event& event, const weir_session* session) {
    view.on_token(event, session);
    return interrupt_count() == 0;
  };
  hooks.on_end = [&](const weir_session* session) { view.finish(session); };
  Run run;
  run.name = name;
  run.solution = solve(model, options, conversation, hooks);
  if (!run.solution.error.empty()) throw std::runtime_error(name + ": " + run.solution.error);
  if (run.solution.stop == "cancelled") throw std::runtime_error("cancelled");
  run.is_right = answer_is_right(problem, run.solution.texts.front(), &run.n_wrong_lines);
  return run;
}

void print_table(const std::vector<Run>& runs) {
  const Style style(stdout_is_terminal());
  put_format("\n%-15s %7s %12s %8s %10s %7s %14s\n", "", "answer", "wrong lines", "tokens", "KV peak", "tok/s",
             "pages evicted");
  for (const Run& run : runs) {
    const Solution& s = run.solution;
    put_format("%-15s %s%7s%s %12d %8s %10s %7.0f %14s\n", run.name.c_str(), run.is_right ? style.green : style.red,
               run.is_right ? "right" : "wrong", style.reset, run.n_wrong_lines, grouped(s.stats.n_decode).c_str(),
               human_bytes(s.memory.kv_peak_bytes).c_str(), s.tokens_per_second(),
               grouped(s.stats.pages_evicted).c_str());
  }
}

int run_demo(DemoFlags& flags) {
  if (flags.model.empty()) flags.model = find_model();
  ProblemOptions problem_options;
  problem_options.lag = kLag;
  problem_options.steps = flags.steps;
  problem_options.seed = flags.seed;
  if (const std::string wrong = check_problem_options(problem_options); !wrong.empty())
    throw UsageError("demo: " + wrong);
  const Problem problem = make_problem(problem_options);

  const std::unique_ptr<OutFile> csv = flags.csv.empty() ? nullptr : std::make_unique<OutFile>(flags.csv);
  if (csv != nullptr) csv->write("run,tokens,kv_bytes,tok_per_s\n");
  const RuntimePtr runtime = create_runtime(flags.threads);
  const ModelPtr model = open_model(runtime.get(), flags.model);
  require_chat_template(model.get(), flags.model, false);
  const weir_model_info info = model_info(model.get());
  SolveOptions dense;
  dense.session.context =
      std::min(info.context_tokens, static_cast<uint32_t>(kLineTokens * flags.steps + kFrameTokens));
  SolveOptions bounded = dense;
  bounded.session.policy = "raas";
  bounded.session.budget = flags.budget;

  const Style style(stdout_is_terminal());
  put_format("%sOne problem of %d steps, solved twice by %s (%s)%s\n", style.bold, flags.steps,
             plain_line(info.name).c_str(), human_bytes(info.file_bytes).c_str(), style.reset);
  put_format("%s%s%s\n\n", style.dim, problem.prompt.c_str(), style.reset);
  flush_output();
  std::vector<Run> runs;
  runs.push_back(solve_once(model.get(), problem, "dense", dense, csv.get()));
  runs.push_back(solve_once(model.get(), problem, "raas " + std::to_string(flags.budget), bounded, csv.get()));
  print_table(runs);
  if (csv != nullptr) csv->commit();
  return 0;
}

}  // namespace

void add_demo(CLI::App& program, Action& action) {
  auto flags = std::make_shared<DemoFlags>();
  CLI::App* app =
      program.add_subcommand("demo", "A long chain of thought with the whole KV history and with a small budget");
  add_model_flag(*app, flags->model);
  app->add_option("--seed", flags->seed, "Which problem; default 1")
      ->transform(whole_number(0, UINT64_MAX))
      ->type_name("S");
  app->add_option("--steps", flags->steps, "Steps of the problem, about 18 tokens each; default 380")
      ->transform(whole_number(20, 800))
      ->type_name("N");
  app->add_option("--budget", flags->budget, "KV budget of the second run in tokens per stream; default 1024")
      ->transform(whole_number(1, kMostTokens))
      ->type_name("TOKENS");
  app->add_option("--threads", flags->threads, "Threads that compute; 0 (default): all cores")
      ->transform(whole_number(0, 256))
      ->type_name("N");
  app->add_option("--csv", flags->csv, "Also write memory and speed every 100 tokens to this file")
      ->check(some_path())
      ->type_name("FILE");
  app->callback([flags, &action] {
    action = [flags] {
      catch_interrupts();
      return run_demo(*flags);
    };
  });
}

}  // namespace weir_cli
