// The command of eval_text.h; see eval_text_command.h. As in the other modes a stopped evaluation goes on where it
// ended: text.jsonl has a line for each window, and one for each policy and budget.
#include "eval_text_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "conversation.h"
#include "eval_plots.h"
#include "eval_results.h"
#include "eval_table.h"
#include "output.h"

namespace weir_cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr char kMode[] = "text", kFile[] = "text.jsonl", kCsv[] = "text.csv", kPlot[] = "text-kl.svg",
               kBytesPlot[] = "text-kl-bytes.svg";

// FNV-1a, 64 bits: tells texts apart, no more.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

ordered_json text_header(const TextSettings& settings, const std::string& model_path, uint64_t model_bytes,
                         const std::string& text, size_t n_tokens) {
  ordered_json header = run_header(kMode, model_path, model_bytes);
  header["text"] = fs::path(settings.file).filename().string();
  header["text_bytes"] = text.size();
  header["text_hash"] = format("%016llx", static_cast<unsigned long long>(hash_of(text)));
  header["text_tokens"] = n_tokens;
  header["prompt_tokens"] = settings.n_prompt;
  header["forced_tokens"] = settings.n_forced;
  header["device"] = settings.device;
  return header;
}

std::string point_key(const EvalSettings& settings, const EvalPoint& point) {
  return run_key(kTextFamily, settings.policies[point.policy].label, point.budget);
}

std::string window_key(size_t index) { return run_key(window_id(index), "dense", 0); }

// What is to be run, without what the results have.
struct Work {
  std::vector<std::vector<size_t>> windows;
  std::vector<std::vector<EvalPoint>> groups;
  size_t n_units = 0;  // predictions
};

Work work_left(const EvalSettings& settings, const TextSettings& text, size_t n_windows, const ResultsFile& results) {
  Work work;
  for (size_t i = 0; i < n_windows; ++i) {
    if (results.has(window_key(i))) continue;
    if (work.windows.empty() || work.windows.back().size() == kMaxTogether) work.windows.emplace_back();
    work.windows.back().push_back(i);
    work.n_units += kScoredTokens;
  }
  std::vector<EvalPoint> points = eval_points(settings);
  std::erase_if(points, [&](const EvalPoint& point) { return results.has(point_key(settings, point)); });
  work.groups = point_groups(points, kMaxTextPoints);
  work.n_units += points.size() * text.n_forced;
  return work;
}

void run(weir_model* model, const EvalSettings& settings, const TextSettings& text_settings, const TextTokens& text,
         const Work& work, ResultsFile& results) {
  if (work.n_units == 0) return;
  Progress progress(work.n_units);
  for (const std::vector<size_t>& indices : work.windows) {
    for (const WindowRecord& record : score_windows(model, text_settings, text, indices, progress))
      results.append(to_json(record));
  }
  for (const std::vector<EvalPoint>& group : work.groups) {
    for (const TextRecord& record : run_text_group(model, settings, text_settings, text, group, progress))
      results.append(to_json(record));
  }
}

// Without --policies the command takes about as long as --seconds says: some windows, then every policy with one
// budget and with the next one, as many as fit. What a part takes is known from the one before; the first is measured
// beforehand.
class BoundedRun {
 public:
  BoundedRun(weir_model* model, const EvalSettings& settings, const TextSettings& text_settings, const TextTokens& text,
             uint32_t seconds, ResultsFile& results)
      : model_(model),
        settings_(settings),
        text_settings_(text_settings),
        text_(text),
        seconds_(seconds),
        window_seconds_(seconds_ / 4),
        results_(results) {}

  void run(const std::vector<size_t>& windows, std::vector<EvalPoint> points) {
    measure_a_step();
    run_windows(windows);
    std::stable_sort(points.begin(), points.end(),
                     [](const EvalPoint& a, const EvalPoint& b) { return rank(a.budget) < rank(b.budget); });
    run_points(points);
  }

 private:
  using Clock = std::chrono::steady_clock;
  // The whole history, then a budget at which policies differ.
  static uint32_t rank(uint32_t budget) { return budget == 0 || budget == 256 ? 0 : budget; }

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  // Seconds of a prediction, beside others that take the same step: what more steps take than few.
  void measure_a_step() {
    constexpr uint32_t kPrompt = 64, kFew = 4, kMore = 20;
    const auto seconds_of = [&](uint32_t n_steps) {
      TextSettings settings = text_settings_;
      settings.n_prompt = kPrompt;
      settings.n_forced = n_steps;
      const auto first = Clock::now();
      Progress none(n_steps, true);
      (void)run_text_group(model_, settings_, settings, text_, {first_point()}, none);
      return std::chrono::duration<double>(Clock::now() - first).count();
    };
    if (text_.tokens.size() < kPrompt + kMore) return;  // a text that takes no time
    const double few = seconds_of(kFew), more = seconds_of(kMore);
    prediction_s_ = std::max((more - few) / (2 * (kMore - kFew)), 1e-6);
  }

  // Any point but the whole history itself.
  EvalPoint first_point() const {
    for (const EvalPoint& point : eval_points(settings_)) {
      if (point.budget != 0) return point;
    }
    return eval_points(settings_).front();
  }

  void run_windows(const std::vector<size_t>& windows) {
    // A token that is prefilled takes less than a step.
    size_t n = static_cast<size_t>(window_seconds_ / (prediction_s_ * static_cast<double>(kWindowTokens)));
    for (size_t at = 0; at < windows.size() && n > 0;) {
      n = std::min({n, kMaxTogether, windows.size() - at});
      const auto part = windows.begin() + static_cast<std::ptrdiff_t>(at);
      const auto first = Clock::now();
      Progress progress(n * kScoredTokens);
      for (const WindowRecord& record :
           score_windows(model_, text_settings_, text_, {part, part + static_cast<std::ptrdiff_t>(n)}, progress))
        results_.append(to_json(record));
      at += n;
      const double window_s = std::chrono::duration<double>(Clock::now() - first).count() / static_cast<double>(n);
      n = elapsed() < window_seconds_ ? static_cast<size_t>((window_seconds_ - elapsed()) / window_s) : 0;
    }
  }

  void run_points(const std::vector<EvalPoint>& points) {
    const double forced = static_cast<double>(text_settings_.n_forced);
    double lane_s = prediction_s_ * (forced + text_settings_.n_prompt);  // of a point, the whole history beside it
    for (size_t at = 0; at < points.size();) {
      // The whole history takes a lane of each group.
      const double n_fit = (seconds_ - elapsed()) / lane_s - 1;
      if (n_fit < 1) return;
      const size_t n = std::min({static_cast<size_t>(n_fit), kMaxTextPoints, points.size() - at});
      const auto part = points.begin() + static_cast<std::ptrdiff_t>(at);
      const auto first = Clock::now();
      Progress progress(n * text_settings_.n_forced);
      for (const TextRecord& record : run_text_group(model_, settings_, text_settings_, text_,
                                                     {part, part + static_cast<std::ptrdiff_t>(n)}, progress))
        results_.append(to_json(record));
      at += n;
      lane_s = std::chrono::duration<double>(Clock::now() - first).count() / static_cast<double>(n + 1);
    }
  }

  weir_model* model_;
  const EvalSettings& settings_;
  const TextSettings& text_settings_;
  const TextTokens& text_;
  double seconds_, window_seconds_;  // in all, and of them for windows
  ResultsFile& results_;
  Clock::time_point start_ = Clock::now();
  double prediction_s_ = 1e-6;
};

// What a command in bounded time has not run, for people: "3 of 17 windows; 256 tokens: lfps; 128 tokens: sink, h2o".
std::string left_out(const EvalSettings& settings, size_t n_windows, const ResultsFile& results) {
  std::set<std::string> there;
  for (const ordered_json& line : results.lines()) there.insert(run_key(line));
  size_t n_missing = 0;
  for (size_t i = 0; i < n_windows; ++i) n_missing += there.count(window_key(i)) == 0 ? 1 : 0;
  std::map<uint32_t, std::string> policies;
  for (const EvalPoint& point : eval_points(settings)) {
    if (there.count(point_key(settings, point)) != 0) continue;
    std::string& names = policies[point.budget];
    names += (names.empty() ? "" : ", ") + settings.policies[point.policy].label;
  }
  std::string text;
  if (n_missing > 0) text = grouped(n_missing) + " of " + grouped(n_windows) + " windows";
  for (const auto& [budget, names] : policies)
    text += (text.empty() ? "" : "; ") + (budget == 0 ? "" : grouped(budget) + " tokens: ") + names;
  return text;
}

// The lines of `results` that this command asks for, in its order; the windows first.
std::vector<ordered_json> asked_for(const ResultsFile& results, const EvalSettings& settings, size_t n_windows) {
  std::map<std::string, const ordered_json*> by_key;
  for (const ordered_json& line : results.lines()) by_key[run_key(line)] = &line;
  std::vector<ordered_json> lines;
  const auto take = [&](const std::string& key) {
    const auto line = by_key.find(key);
    if (line != by_key.end()) lines.push_back(*line->second);
  };
  for (size_t i = 0; i < n_windows; ++i) take(window_key(i));
  for (const EvalPoint& point : eval_points(settings)) take(point_key(settings, point));
  return lines;
}

void run_bounded(weir_model* model, const EvalSettings& settings, const TextSettings& text_settings,
                 const TextTokens& text, const Work& work, uint32_t seconds, ResultsFile& results) {
  if (work.n_units == 0) return;
  std::vector<size_t> windows;
  for (const std::vector<size_t>& group : work.windows) windows.insert(windows.end(), group.begin(), group.end());
  std::vector<EvalPoint> points;
  for (const std::vector<EvalPoint>& group : work.groups) points.insert(points.end(), group.begin(), group.end());
  BoundedRun(model, settings, text_settings, text, seconds, results).run(windows, points);
}

// What is shown: perplexity of all windows, and the lines of the policies.
struct Shown {
  size_t n_windows = 0;
  double nll = 0;  // of all their scored tokens
  std::vector<ordered_json> rows;

  explicit Shown(const std::vector<ordered_json>& lines) {
    for (const ordered_json& line : lines) {
      if (line.at("family") == kTextFamily) rows.push_back(line);
      if (line.at("family") != kWindowFamily) continue;
      ++n_windows;
      nll += line.at("nll").get<double>();
    }
  }
  double perplexity() const { return std::exp(nll / static_cast<double>(n_windows * kScoredTokens)); }

  // Labels of the policies, in the order of their first rows.
  std::vector<std::string> labels() const {
    std::vector<std::string> names;
    for (const ordered_json& row : rows) {
      const std::string name = row.at("policy");
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    return names;
  }
};

ordered_json json_of(const ordered_json& header, const Shown& shown) {
  ordered_json json;
  for (const char* key : {"model", "text", "text_tokens", "device", "prompt_tokens", "forced_tokens"})
    json[key] = header.value(key, ordered_json());
  json["perplexity"] = shown.n_windows > 0 ? ordered_json(shown.perplexity()) : ordered_json();
  json["n_windows"] = shown.n_windows;
  json["rows"] = ordered_json::array();
  for (const ordered_json& line : shown.rows) {
    ordered_json row;
    for (const char* key :
         {"policy", "budget", "kl_mean", "kl_p99", "top1", "perplexity", "pages", "recalls", "kv_bytes"})
      row[key] = line.value(key, ordered_json());
    if (line.at("refused").get<bool>()) row["refused"] = line.value("message", "");
    json["rows"].push_back(row);
  }
  return json;
}

std::string tables(const ordered_json& header, const Shown& shown, const Summary& summary) {
  std::string text;
  if (shown.n_windows > 0) {
    text += format("Perplexity %.4f, second halves of %zu windows of %zu tokens\n\n", shown.perplexity(),
                   shown.n_windows, kWindowTokens);
  }
  text += format("%u tokens after a prompt of %u, against the whole history\n\n", header.value("forced_tokens", 0u),
                 header.value("prompt_tokens", 0u));
  const Measure measures[] = {{"KL divergence, nats per token", "kl_mean", 1, 4},
                              {"Its 99th percentile", "kl_p99", 1, 3},
                              {"Same most probable token, %", "top1", 100, 2},
                              {"Perplexity", "perplexity", 1, 3},
                              {"Pages attended in a step, mean of the streams", "pages", 1, 1},
                              {"Pages that came back in a step, mean of the streams", "recalls", 1, 2}};
  const bool has_recalls = std::any_of(shown.rows.begin(), shown.rows.end(), [](const ordered_json& row) {
    return row.contains("recalls") && row["recalls"] > 0.0;
  });
  for (const Measure& measure : measures) {
    if (has_recalls || measure.field != "recalls") text += table_text(summary, measure) + "\n";
  }
  for (const ordered_json& row : shown.rows) {
    if (!row.at("refused").get<bool>()) continue;
    text += "refused: " + row.value("policy", "") + format(", %u tokens: ", row.value("budget", 0u)) +
            row.value("message", "") + "\n";
  }
  return text;
}

// Against the budget, or against the bytes of the pages. The whole history in bf16 has no divergence, so it is no line
// of the picture; in other formats it is a point where there are bytes.
std::string plot_of(const ordered_json& header, const Shown& shown, bool by_bytes) {
  std::vector<ordered_json> lines = shown.rows;
  std::erase_if(lines, [&](const ordered_json& row) {
    return row.at("budget") == 0u && (!by_bytes || row.value("kl_mean", 0.0) == 0.0);
  });
  BudgetPlot plot;
  if (by_bytes) {
    plot.x = {"", "kv_bytes", 1.0 / (1 << 20), 2};
    plot.x_label = "pages of keys and values, MiB";
  }
  plot.title = "Divergence from the whole history";
  plot.panel = header.value("model", "") + ", " + header.value("text", "");
  plot.y_label = "KL divergence, nats per token";
  plot.measure = {"", "kl_mean", 1, 4};
  plot.is_log = true;
  return budget_plot_svg(summarize(lines, {kTextFamily}, shown.labels()), plot);
}

// The files and the output. Fails when nothing was measured.
void show(const Results& results, const fs::path& out, bool json, const std::string& missing = "") {
  const Shown shown(results.lines);
  const auto was_measured = [](const ordered_json& row) { return !row.at("refused").get<bool>(); };
  if (!shown.rows.empty() && std::none_of(shown.rows.begin(), shown.rows.end(), was_measured)) {
    throw std::runtime_error("every policy was refused; the first, " + shown.rows[0].value("policy", "") + " with " +
                             std::to_string(shown.rows[0].value("budget", 0u)) +
                             " tokens: " + shown.rows[0].value("message", ""));
  }
  const Summary summary = summarize(shown.rows, {kTextFamily}, shown.labels());
  write_text_file(
      (out / kCsv).string(),
      table_csv(summary, {"kl_mean", "kl_p99", "top1", "perplexity", "pages", "recalls", "kv_bytes", "n_positions"},
                false));
  write_text_file((out / kPlot).string(), plot_of(results.header, shown, false));
  write_text_file((out / kBytesPlot).string(), plot_of(results.header, shown, true));
  if (json) {
    ordered_json line = json_of(results.header, shown);
    if (!missing.empty()) line["left_out"] = missing;
    put_line(dump_json(line));
  } else {
    put(plain_text(tables(results.header, shown, summary)));
  }
}

// --plot-only: what is in the folder; with --policies the windows, and of the policies those with these labels.
void show_again(const TextFlags& flags, const TextCommand& command) {
  Results results = read_results((fs::path(command.out) / kFile).string(), kMode);
  if (command.chooses_policies) {
    const std::vector<std::string> labels = policy_labels(command.settings);
    std::erase_if(results.lines, [&](const ordered_json& line) {
      return line.at("family") == kTextFamily &&
             std::find(labels.begin(), labels.end(), line.at("policy").get<std::string>()) == labels.end();
    });
  }
  if (results.lines.empty()) throw std::runtime_error(command.out + "/" + kFile + ": holds no such runs");
  show(results, command.out, flags.json);
}

}  // namespace

void add_text_flags(CLI::App& app, TextFlags& flags) {
  TextSettings& s = flags.settings;
  auto* text = app.add_option("--text", s.file,
                              "Instead of problems: perplexity of this text, and how far policies are from the whole "
                              "history on it");
  text->type_name("FILE")->group("Text");
  const auto add = [&](CLI::Option* option) { option->needs(text)->group("Text"); };
  auto* windows = app.add_option("--windows", s.n_windows,
                                 "Windows of 1024 tokens whose second half is scored, at most; 0: none; default all");
  add(windows->transform(whole_number(0, UINT32_MAX))->type_name("N"));
  auto* prompt = app.add_option("--prompt-tokens", s.n_prompt, "Tokens that are prefilled; default 256");
  add(prompt->transform(whole_number(1, 1000000))->type_name("N"));
  auto* forced = app.add_option("--forced-tokens", s.n_forced, "Tokens after them that are compared; default 1200");
  add(forced->transform(whole_number(1, 1000000))->type_name("N"));
  auto* seconds = app.add_option("--seconds", flags.seconds,
                                 "Without --policies: about how long it may take, with what fits; default 120");
  add(seconds->transform(whole_number(1, 1000000))->type_name("N"));
  seconds->excludes(app.get_option("--policies"));
  add_device_flag(app, s.device)->needs(text);
  add(app.add_flag("--json", flags.json, "Instead of tables one line of JSON"));
}

void check_text_flags(const CLI::App& app) {
  for (const char* other :
       {"--forced", "--trace", "--draw", "--families", "-n", "--seed", "--steps", "--lag", "--every",
        "--passkey-tokens", "--question-as-decode", "--stop-at-error", "--context", "--max-factor", "--together"}) {
    if (app.count("--text") > 0 && app.count(other) > 0)
      throw UsageError(std::string(other) + " is for problems, not for --text");
  }
}

int text_command(const TextFlags& flags, TextCommand command) {
  if (command.plot_only) {
    show_again(flags, command);
    return 0;
  }
  const TextSettings& settings = flags.settings;
  command.settings.families = {kTextFamily};
  command.settings.n_problems = 1;
  const std::string text = read_text_file(settings.file);
  const RuntimePtr runtime = create_runtime(command.threads, settings.device);
  const ModelPtr model = open_model(runtime.get(), command.model);
  check_policies(model.get(), command.settings, settings.n_prompt, settings.n_forced);
  const TextTokens tokens = text_tokens(model.get(), text);
  const size_t n_windows = check_text(tokens, settings);

  fs::create_directories(command.out);
  for (const char* file : {kCsv, kPlot, kBytesPlot}) try_out_file((fs::path(command.out) / file).string());
  const std::string path = (fs::path(command.out) / kFile).string();
  const ordered_json header =
      text_header(settings, command.model, model_info(model.get()).file_bytes, text, tokens.tokens.size());
  ResultsFile results(path, header);
  check_specs(results, command.settings, path);
  catch_interrupts();
  const Work work = work_left(command.settings, settings, n_windows, results);
  std::string missing;
  if (command.chooses_policies) {
    run(model.get(), command.settings, settings, tokens, work, results);
  } else {
    run_bounded(model.get(), command.settings, settings, tokens, work, flags.seconds, results);
    missing = left_out(command.settings, n_windows, results);
    if (asked_for(results, command.settings, n_windows).empty())
      throw std::runtime_error(
          format("nothing fits in %u seconds; --seconds gives more, --policies runs what it names", flags.seconds));
  }
  show({header, asked_for(results, command.settings, n_windows)}, command.out, flags.json, missing);
  if (!missing.empty())
    tell(format("left out after %u seconds (--seconds): ", flags.seconds) + missing +
         ". The same command goes on with it; --policies runs all that it names");
  return 0;
}

}  // namespace weir_cli
