// weir demo reason; see demo_reason.h. Each problem is solved under each policy in turn, in sessions of their own, so
// that speeds are those of one session. It ends when its time is over: a problem that is then being solved is not
// counted.
#include "demo_reason.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "conversation.h"
#include "demo_model.h"
#include "options.h"
#include "output.h"
#include "problems.h"
#include "terminal.h"

namespace weir_cli {
namespace {

constexpr int kReasonLineTokens = 19;     // of a chain line, at most about
constexpr int kReasonFrameTokens = 700;   // prompt, answers, and some to spare
constexpr int kReasonAnswerTokens = 100;  // beside the chain
constexpr int kColumnWidth = 21;

struct ReasonFlags {
  std::string model;
  uint64_t seed = 1;
  uint32_t budget = 1024, threads = 0, seconds = 0;
  int most = 800;
  bool fast = false;
};

struct ReasonCell {
  int n_right = 0, n = 0;
  uint64_t kv_peak_bytes = 0, stored_bytes = 0;
  uint64_t n_tokens = 0, decode_ns = 0;
};

struct ReasonRow {
  int steps = 0;
  std::vector<ReasonCell> cells;  // one a policy
};

struct PolicyColumn {
  std::string name, policy;
};

// The window's name is that of what it does.
const std::vector<PolicyColumn>& policies() {
  static const std::vector<PolicyColumn> kColumns = {
      {"everything", "dense"}, {"window", "sink"}, {"raas", "raas"}, {"arkvale", "arkvale"}};
  return kColumns;
}
constexpr size_t kWindowColumn = 1, kArkvaleColumn = 3;

class Reason {
 public:
  explicit Reason(ReasonFlags flags)
      : flags_(std::move(flags)), is_live_(stdout_is_terminal()), style_(is_live_), end_(Clock::now()) {}

  int run();

 private:
  using Clock = std::chrono::steady_clock;

  void solve_all(const std::string& family, ReasonRow& row);
  std::optional<ReasonCell> solve_one(const Problem& problem, const std::string& policy);
  SolveOptions options(const Problem& problem, const std::string& policy) const;
  std::string cell_text(const ReasonCell& cell) const;
  std::string row_text(const ReasonRow& row) const;
  void draw();
  bool is_over() const { return Clock::now() >= end_; }

  ReasonFlags flags_;
  bool is_live_;
  Style style_;
  ModelPtr model_;
  uint32_t context_ = 0;
  Clock::time_point end_;
  std::vector<ReasonRow> rows_;
  std::string doing_;
  LiveBlock block_;
  Throttle throttle_{5};
};

SolveOptions Reason::options(const Problem& problem, const std::string& policy) const {
  SolveOptions options;
  const int n_lines = problem.target - problem.first_line + 1;
  options.session.device = "cpu";
  options.session.context = std::min(context_, static_cast<uint32_t>(kReasonLineTokens * n_lines + kReasonFrameTokens));
  options.session.policy = policy;
  if (policy != "dense") options.session.budget = flags_.budget;
  options.max_tokens = static_cast<uint32_t>(kReasonLineTokens * n_lines + kReasonAnswerTokens);
  return options;
}

// Nothing when the time is over.
std::optional<ReasonCell> Reason::solve_one(const Problem& problem, const std::string& policy) {
  Conversation conversation;
  conversation.messages = {{"user", problem.prompt}};
  if (problem.follow_up.index >= 0) conversation.messages.push_back({"user", problem.follow_up.question});
  uint64_t stored_bytes = 0;
  SolveHooks hooks;
  hooks.on_token = [&](const weir_token_event&, const weir_session*) {
    draw();
    return interrupt_count() == 0 && !is_over();
  };
  hooks.on_end = [&](const weir_session* session) { stored_bytes = session_stats(session).spill_stored_bytes; };
  const Solution solution = solve(model_.get(), options(problem, policy), conversation, hooks);
  if (interrupt_count() > 0) throw std::runtime_error("cancelled");
  if (solution.stop == "cancelled" || is_over()) return std::nullopt;
  if (!solution.error.empty()) throw std::runtime_error(policy + ": " + solution.error);
  ReasonCell cell;
  cell.n = 1;
  cell.n_right = answer_is_right(problem, solution.texts.front());
  if (problem.follow_up.index >= 0)
    cell.n_right &= solution.texts.size() > 1 && follow_up_is_right(problem.follow_up, solution.texts[1]);
  cell.kv_peak_bytes = solution.memory.kv_peak_bytes;
  cell.stored_bytes = stored_bytes;
  cell.n_tokens = solution.stats.n_decode;
  cell.decode_ns = solution.stats.decode_ns;
  return cell;
}

// One problem under all policies; counted when all have solved it.
void Reason::solve_all(const std::string& family, ReasonRow& row) {
  ProblemOptions problem_options;
  problem_options.family = family;
  problem_options.steps = row.steps;
  problem_options.seed = flags_.seed;
  const Problem problem = make_problem(problem_options);
  std::vector<ReasonCell> cells;
  for (const PolicyColumn& column : policies()) {
    doing_ = family + " of " + std::to_string(row.steps) + " steps, " + column.name;
    const std::optional<ReasonCell> cell = solve_one(problem, column.policy);
    if (!cell) return;
    cells.push_back(*cell);
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    ReasonCell& sum = row.cells[i];
    sum.n += cells[i].n;
    sum.n_right += cells[i].n_right;
    sum.kv_peak_bytes = std::max(sum.kv_peak_bytes, cells[i].kv_peak_bytes);
    sum.stored_bytes = std::max(sum.stored_bytes, cells[i].stored_bytes);
    sum.n_tokens += cells[i].n_tokens;
    sum.decode_ns += cells[i].decode_ns;
  }
  if (is_live_) return;
  put_line(row_text(row) + "  " + family);
  flush_output();
}

std::string Reason::cell_text(const ReasonCell& cell) const {
  if (cell.n == 0) return format("%*s", kColumnWidth, "");
  const double speed =
      cell.decode_ns > 0 ? 1e9 * static_cast<double>(cell.n_tokens) / static_cast<double>(cell.decode_ns) : 0;
  return format("%4d/%d ", cell.n_right, cell.n) + (cell.n_right == cell.n ? style_.green : style_.red) +
         (cell.n_right == cell.n ? "right" : "wrong") + style_.reset +
         format("%9s", human_bytes(cell.kv_peak_bytes).c_str()) + format("%6.0f", speed);
}

std::string Reason::row_text(const ReasonRow& row) const {
  std::string text = format("%5d", row.steps);
  for (const ReasonCell& cell : row.cells) text += cell_text(cell);
  return text;
}

void Reason::draw() {
  if (!is_live_ || !throttle_.due()) return;
  std::vector<std::string> lines;
  for (const ReasonRow& row : rows_) lines.push_back(row_text(row));
  const auto left = std::chrono::duration_cast<std::chrono::seconds>(end_ - Clock::now()).count();
  lines.push_back(std::string(style_.dim) + doing_ + format("; %lld s left", static_cast<long long>(left)) +
                  style_.reset);
  block_.draw(lines);
}

int Reason::run() {
  const RuntimePtr runtime = create_runtime(flags_.threads);
  model_ = open_model(runtime.get(), flags_.model);
  require_chat_template(model_.get(), flags_.model, false);
  require_reasoner(model_.get(), "weir eval measures other models on texts");
  context_ = model_info(model_.get()).context_tokens;
  const std::vector<int> lengths =
      flags_.fast ? std::vector<int>{25, 60, 120} : std::vector<int>{25, 50, 100, 200, 400, 800};
  const std::vector<std::string> families =
      flags_.fast ? std::vector<std::string>{"early"} : std::vector<std::string>{"early", "rule", "followup", "base"};
  for (int steps : lengths)
    if (steps <= flags_.most) rows_.push_back({steps, std::vector<ReasonCell>(policies().size())});
  put_format("%sProblems of rising length; the policies have %u tokens a stream.%s\n%5s", style_.bold, flags_.budget,
             style_.reset, "steps");
  for (const PolicyColumn& column : policies()) put_format("%*s", kColumnWidth + 4, column.name.c_str());
  put_line("");
  flush_output();
  end_ = Clock::now() + std::chrono::seconds(flags_.seconds);
  for (const std::string& family : families) {
    for (ReasonRow& row : rows_) {
      if (!is_over()) solve_all(family, row);
    }
  }
  throttle_ = Throttle(5);
  doing_ = is_over() ? "the time is over" : "done";
  draw();
  block_.finish();
  int n_window = 0, n_arkvale = 0, n = 0;
  uint64_t stored = 0;
  for (const ReasonRow& row : rows_) {
    n += row.cells[kArkvaleColumn].n;
    n_window += row.cells[kWindowColumn].n_right;
    n_arkvale += row.cells[kArkvaleColumn].n_right;
    stored = std::max(stored, row.cells[kArkvaleColumn].stored_bytes);
  }
  put_format(
      "%d problems%s: the window has %d right, arkvale %d. arkvale has up to %s outside of its pool, for pages to "
      "come back.\n",
      n, is_over() ? " in the time" : "", n_window, n_arkvale, human_bytes(stored).c_str());
  if (n_arkvale <= n_window) {
    flush_output();
    throw std::runtime_error("demo reason: arkvale is not right more often than the window");
  }
  return 0;
}

}  // namespace

CLI::App* add_demo_reason(CLI::App& demo, Action& action) {
  auto flags = std::make_shared<ReasonFlags>();
  CLI::App* app = demo.add_subcommand("reason", "Problems of rising length under several policies, as a table");
  add_model_flag(*app, flags->model);
  app->add_flag("--fast", flags->fast, "Fewer and shorter problems");
  app->add_option("--seconds", flags->seconds, "It ends after this time; default 300, with --fast 60")
      ->transform(whole_number(1, 86400))
      ->type_name("N");
  app->add_option("--most", flags->most, "Steps of the longest problems; default 800")
      ->transform(whole_number(25, 800))
      ->type_name("N");
  app->add_option("--budget", flags->budget, "KV budget of all policies but dense in tokens per stream; default 1024")
      ->transform(whole_number(64, kMaxTokens))
      ->type_name("TOKENS");
  app->add_option("--seed", flags->seed, "Which problems; default 1")
      ->transform(whole_number(0, UINT64_MAX))
      ->type_name("S");
  app->add_option("--threads", flags->threads, "Threads that compute; 0 (default): all cores")
      ->transform(whole_number(0, 256))
      ->type_name("N");
  app->callback([flags, &action] {
    action = [flags] {
      if (flags->seconds == 0) flags->seconds = flags->fast ? 60 : 300;
      if (flags->model.empty()) flags->model = find_reasoner();
      catch_interrupts();
      return Reason(*flags).run();
    };
  });
  return app;
}

}  // namespace weir_cli
