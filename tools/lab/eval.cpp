// weir eval: how often answers are right, and what they cost, by policy and budget. Everything that is known of a run
// is in the results file; tables and plots are made from it alone, so they can be made again later.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "commands.h"
#include "conversation.h"
#include "eval_forced.h"
#include "eval_plots.h"
#include "eval_results.h"
#include "eval_run.h"
#include "eval_settings.h"
#include "eval_table.h"
#include "eval_text_command.h"
#include "eval_trace_command.h"
#include "eval_work.h"
#include "output.h"
#include "terminal.h"

namespace weir_cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct EvalFlags {
  std::string model;
  bool chooses_policies = false;  // --policies is given
  std::vector<std::string> policies = policy_names();
  EvalSettings settings;
  uint32_t threads = 0, together = 1;
  std::string out;  // "": default_folder()
  bool plot_only = false;
  bool forced = false;
  bool chooses_budgets = false;  // --budgets is given
  bool chooses_text = false;     // --text is given
  TraceFlags trace;
  TextFlags text;
};

// What differs between the two modes that fill a results file.
struct Mode {
  std::string name;  // in the header
  std::string file;  // stem of results, and of the CSV
  std::string csv;
  std::vector<std::string> plots;
};
const Mode kAccuracy = {"accuracy", "results.jsonl", "table.csv", {"accuracy.svg", "length.svg", "memory.svg"}};
const Mode kForced = {"forced", "forced.jsonl", "forced.csv", {"agreement.svg", "kl.svg", "recall.svg"}};

void write_out(const fs::path& path, const std::string& text) { write_text_file(path.string(), text); }

void show_accuracy(const Summary& summary, const Results& results, const fs::path& out) {
  const std::string what = " (" + run_text(results.header) + ")";
  const Measure strict = {"Right answers without a wrong line, %", "strict", 100, 1, true};
  const Measure right = {"Right answers, whatever the lines before, %", "right", 100, 1, true};
  const Measure length = {"Tokens of the answer", "n_decode", 1, 0};
  std::string text = table_text(summary, strict) + "\n" + table_text(summary, right);
  const std::string smallest = smallest_budgets_text(summary);
  if (!smallest.empty()) text += "\n" + smallest;
  put(plain_text(text));  // labels of a results file
  write_out(out / kAccuracy.csv,
            table_csv(summary,
                      {"wrong_lines", "n_prompt", "n_decode", "n_expected", "kv_peak_bytes", "plan_bytes",
                       "pages_evicted", "prefill_s", "decode_s", "allocs_while_decoding"},
                      true));
  write_out(out / "accuracy.svg",
            budget_plot_svg(summary, {"Right answers without a wrong line, against the budget" + what,
                                      "right without a wrong line, %", strict, true}));
  write_out(out / "length.svg", budget_plot_svg(summary, {"Length of the answer against the budget" + what,
                                                          "tokens of the answer", length, false}));
  write_out(out / "memory.svg", memory_plot_svg(summary, results.lines));
}

void show_forced(const Summary& summary, const Results& results, const fs::path& out) {
  const std::string what = " (" + run_text(results.header) + ")";
  const Measure agreement = {"Most probable token as with the whole history, %", "agreement", 100, 2};
  const Measure kl = {"KL divergence from the whole history, nats per token", "kl", 1, 4};
  const Measure recall = {"Recall of the true top pages, %", "recall", 100, 1};
  put(plain_text(table_text(summary, agreement) + "\n" + table_text(summary, kl) + "\n" + table_text(summary, recall)));
  write_out(out / kForced.csv, table_csv(summary, {"agreement", "kl", "recall", "n_positions"}, false));
  write_out(out / "agreement.svg", budget_plot_svg(summary, {"Top-1 agreement with the whole history" + what,
                                                             "same most probable token, %", agreement, true}));
  write_out(out / "kl.svg",
            budget_plot_svg(summary, {"KL divergence from the whole history" + what, "nats per token", kl, false}));
  write_out(out / "recall.svg",
            budget_plot_svg(summary, {"Recall of the true top pages" + what, "recall, %", recall, true}));
}

// The table of the results; families and labels come in the order of `settings`, what else there is after them.
void show(const Mode& mode, const Results& results, const EvalSettings& settings, const fs::path& out) {
  if (results.lines.empty()) throw std::runtime_error((out / mode.file).string() + ": holds no such runs");
  const Summary summary = summarize(results.lines, settings.families, policy_labels(settings));
  if (mode.name == kForced.name) {
    show_forced(summary, results, out);
  } else {
    show_accuracy(summary, results, out);
  }
}

std::string point_id(const EvalSettings& settings, const EvalPoint& point) {
  return eval_problem(settings, point.family, point.problem).id;
}

std::string point_key(const EvalSettings& settings, const EvalPoint& point) {
  return run_key(point_id(settings, point), settings.policies[point.policy].label, point.budget);
}

void run_accuracy(const EvalFlags& flags, const std::vector<EvalPoint>& points, ResultsFile& results) {
  const std::vector<std::vector<EvalPoint>> groups = point_groups(points, flags.together);
  run_units(flags.model, flags.threads, groups.size(), [&](weir_model* model, size_t unit) {
    if (flags.together == 1 && !flags.settings.stop_at_error) {
      results.append(to_json(run_point(model, flags.settings, groups[unit][0])));
      return;
    }
    for (const RunRecord& record : run_together(model, flags.settings, groups[unit])) results.append(to_json(record));
  });
}

void run_forced(const EvalFlags& flags, const std::vector<EvalPoint>& points, ResultsFile& results) {
  const std::vector<std::vector<EvalPoint>> groups = forced_groups(points);
  run_units(flags.model, flags.threads, groups.size(), [&](weir_model* model, size_t unit) {
    for (const ForcedRecord& record : run_forced_group(model, flags.settings, groups[unit])) {
      results.append(to_json(record));
    }
  });
}

// The lines of the points, in their order.
std::vector<ordered_json> asked_for(const ResultsFile& results, const EvalSettings& settings) {
  std::map<std::string, const ordered_json*> by_key;
  for (const ordered_json& line : results.lines()) by_key[run_key(line)] = &line;
  std::vector<ordered_json> lines;
  for (const EvalPoint& point : eval_points(settings)) {
    const auto line = by_key.find(point_key(settings, point));
    if (line != by_key.end()) lines.push_back(*line->second);
  }
  return lines;
}

void prepare(EvalFlags& flags) {
  EvalSettings& s = flags.settings;
  for (const std::string& text : flags.policies) s.policies.push_back(parse_policy_entry(text));
  std::sort(s.budgets.begin(), s.budgets.end());
  s.budgets.erase(std::unique(s.budgets.begin(), s.budgets.end()), s.budgets.end());
  check_settings(s);
}

// Checks the model and the policies, and returns the file's size.
uint64_t check_model(const EvalFlags& flags) {
  const RuntimePtr runtime = create_runtime(1);
  const ModelPtr model = open_model(runtime.get(), flags.model);
  require_chat_template(model.get(), flags.model, false);
  constexpr size_t kPrompt = 64, kAnswer = 4096;
  check_policies(model.get(), flags.settings, kPrompt, kAnswer);
  return model_info(model.get()).file_bytes;
}

// --plot-only: what is in the folder, with --policies only the runs with these labels.
void show_again(const Mode& mode, const EvalFlags& flags) {
  const fs::path out = flags.out;
  Results results = read_results((out / mode.file).string(), mode.name);
  EvalSettings settings;
  settings.families = problem_families();
  if (flags.chooses_policies) {
    for (const std::string& text : flags.policies) settings.policies.push_back(parse_policy_entry(text));
    const std::vector<std::string> labels = policy_labels(settings);
    std::erase_if(results.lines, [&](const ordered_json& line) {
      return std::find(labels.begin(), labels.end(), line.at("policy").get<std::string>()) == labels.end();
    });
  }
  show(mode, results, settings, out);
}

// Results of another model or text would be refused, so that each has a folder of its own.
std::string default_folder(const EvalFlags& flags) {
  std::string name = "eval";
  if (!flags.model.empty()) name += "-" + fs::path(flags.model).stem().string();
  if (flags.chooses_text) name += "-" + fs::path(flags.text.settings.file).stem().string();
  return name;
}

// The command of --text with what it shares with the others.
int run_text(EvalFlags& flags) {
  if (flags.model.empty() && !flags.plot_only) throw UsageError("eval: --model is required");
  if (!flags.chooses_budgets) flags.settings.budgets = {128, 256, 512, 1024};
  prepare(flags);
  return text_command(flags.text, {flags.model, flags.out, flags.threads, flags.plot_only, flags.chooses_policies,
                                   flags.chooses_budgets, flags.settings});
}

int run_eval(EvalFlags& flags) {
  if (flags.out.empty()) flags.out = default_folder(flags);
  if (flags.chooses_text) return run_text(flags);
  const Mode& mode = flags.forced ? kForced : kAccuracy;
  const fs::path out = flags.out;
  if (flags.plot_only) {
    show_again(mode, flags);
    return 0;
  }
  if (!flags.trace.draw.empty()) return draw_trace_command(flags.trace);
  if (flags.model.empty()) throw UsageError("eval: --model is required");
  prepare(flags);
  const std::vector<std::string>& families = flags.settings.families;
  const bool feeds_one_answer = flags.forced || !flags.trace.file.empty();
  if (feeds_one_answer && std::find(families.begin(), families.end(), "followup") != families.end())
    throw UsageError("eval: --forced and --trace see one answer, and a problem of followup has two");
  const uint64_t model_bytes = check_model(flags);
  if (!flags.trace.file.empty()) return record_trace_command(flags.trace, flags.model, flags.settings);

  fs::create_directories(out);
  try_out_file((out / mode.csv).string());
  for (const std::string& plot : mode.plots) try_out_file((out / plot).string());
  const std::string path = (out / mode.file).string();
  const ordered_json header = results_header(flags.settings, mode.name, flags.model, model_bytes);
  ResultsFile results(path, header);
  check_specs(results, flags.settings, path);
  std::vector<EvalPoint> points = eval_points(flags.settings);
  points.erase(std::remove_if(points.begin(), points.end(),
                              [&](const EvalPoint& point) { return results.has(point_key(flags.settings, point)); }),
               points.end());
  catch_interrupts();
  (flags.forced ? run_forced : run_accuracy)(flags, points, results);
  show(mode, {header, asked_for(results, flags.settings)}, flags.settings, out);
  return 0;
}

void add_problem_flags(CLI::App& app, EvalSettings& s) {
  app.add_option("--families", s.families,
                 "Problem families: rule, base, facts, hubs, passkey, early, followup; default all but followup")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAMES")
      ->group("Problems");
  app.add_option("-n", s.n_problems, "Problems of each family; default 50")
      ->transform(whole_number(1, 999999))
      ->type_name("N")
      ->group("Problems");
  app.add_option("--seed", s.seed, "Which problems; default 1")
      ->transform(whole_number(0, 1000000000000))  // a million problems each
      ->type_name("S")
      ->group("Problems");
  app.add_option("--steps", s.steps, "Chain lines; default 60 for base, otherwise 40")
      ->transform(whole_number(2, 990))
      ->type_name("N")
      ->group("Problems");
  app.add_option("--lag", s.lag,
                 "The larger lag of rule, early and followup, default 12; the lag of base, default drawn")
      ->transform(whole_number(1, 40))
      ->type_name("N")
      ->group("Problems");
  app.add_option("--every", s.every, "Distance of the milestones of base; default drawn")
      ->transform(whole_number(2, 500))
      ->type_name("M")
      ->group("Problems");
  app.add_option("--passkey-tokens", s.passkey_tokens, "Length of pass key prompts; default 1000")
      ->transform(whole_number(100, 1000000))
      ->type_name("N")
      ->group("Problems");
  app.add_flag("--question-as-decode", s.question_as_decode,
               "Feed the question token by token as if decoded, after everything before it was prefilled")
      ->group("Problems");
  app.add_flag("--stop-at-error", s.stop_at_error,
               "End an answer where it leaves the right one: strict accuracy alone, in less time")
      ->group("Problems");
  app.add_option("--context", s.context,
                 "Context of the sessions, which limits some policies and their stores; default what a problem needs")
      ->transform(whole_number(1, UINT32_MAX))
      ->type_name("N")
      ->group("Problems");
  app.add_option("--max-factor", s.max_factor, "Longest answer, in lengths of the right one; default 1.5")
      ->check(number(0.1, 100))
      ->type_name("F")
      ->group("Problems");
}

void add_trace_flags(CLI::App& app, TraceFlags& trace) {
  auto* record = app.add_option("--trace", trace.file, "Record what one run attends to this file, and draw it")
                     ->check(some_path())
                     ->type_name("FILE");
  auto* draw = app.add_option("--draw", trace.draw, "Draw a recording: FILE.svg and FILE.png")
                   ->check(some_path())
                   ->type_name("FILE");
  for (const char* other : {"--draw", "--forced", "--plot-only"}) record->excludes(app.get_option(other));
  draw->excludes(app.get_option("--forced"))->excludes(app.get_option("--plot-only"));
  record->group("Trace");
  draw->group("Trace");
  app.add_option("--layer", trace.layer, "Layer to draw; default the middle one")
      ->transform(whole_number(0, 65535))
      ->type_name("L")
      ->group("Trace");
  app.add_option("--head", trace.head, "Query head to draw; default 0")
      ->transform(whole_number(0, 65535))
      ->type_name("H")
      ->group("Trace");
}

}  // namespace

void add_eval(CLI::App& program, Action& action) {
  auto flags = std::make_shared<EvalFlags>();
  flags->settings.families = {"base", "hubs", "rule", "facts", "early", "passkey"};
  flags->settings.budgets = {64, 128, 256, 512, 1024, 2048};
  CLI::App* app = program.add_subcommand("eval", "Right answers and their cost by policy and budget; tables and plots");
  add_model_flag(*app, flags->model)->description("Model file (GGUF); required but for --plot-only and --draw");
  app->add_option("--policies", flags->policies,
                  "Entries name[:key=value[+key=value...]][@label], the name of a policy or a preset; default: every "
                  "policy, with --text what fits in two minutes")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  app->add_option("--budgets", flags->settings.budgets,
                  "KV budgets in tokens per stream; default 64,128,256,512,1024,2048, with --text 128,256,512,1024")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(whole_number(1, kMaxTokens))
      ->type_name("LIST");
  app->add_option("--threads", flags->threads,
                  "Problems that run at a time, or threads that compute (--text); 0 (default): one per core")
      ->transform(whole_number(0, 256))
      ->type_name("N");
  app->add_option("--together", flags->together,
                  "Runs of a problem that take their steps together: the same answers in less time; default 1")
      ->transform(whole_number(1, kMaxTogether))
      ->type_name("N");
  app->add_option("--out", flags->out,
                  "Folder of results, tables and plots; runs that are in it are not repeated; default eval-MODEL, with "
                  "--text eval-MODEL-TEXT")
      ->check(some_path())
      ->type_name("DIR");
  app->add_flag("--plot-only", flags->plot_only,
                "Only tables and plots, of all runs in the folder; with --policies of those labels");
  app->add_flag("--forced", flags->forced,
                "Instead of answers: agreement, KL divergence and page recall over the right answer's tokens");
  add_problem_flags(*app, flags->settings);
  add_trace_flags(*app, flags->trace);
  add_text_flags(*app, flags->text);
  app->callback([flags, app, &action] {
    flags->chooses_policies = app->count("--policies") > 0;
    flags->chooses_budgets = app->count("--budgets") > 0;
    flags->chooses_text = app->count("--text") > 0;
    check_text_flags(*app);
    action = [flags] { return run_eval(*flags); };
  });
}

}  // namespace weir_cli
