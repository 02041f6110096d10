// cli: weir eval --text as a user runs it. Mirrors tools/lab/eval_text*.cpp. The built program reads a generated text
// with the embedded tiny reasoner, and what it says is compared with the same numbers computed here by hand, from
// sessions that step alone.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/cli_test.h"
#include "tools/lab/eval_plots.h"
#include "tools/lab/eval_text.h"

using namespace weir_cli;
using namespace weir_cli::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr size_t kPrompt = 48, kForced = 150;
constexpr uint32_t kBudget = 96;

// Sentences of `n` words in all, the same in every run.
std::string sentences(size_t n) {
  static const char* const kWords[] = {"river", "weir",  "water", "stone", "gate",  "mill", "keeper", "boat",
                                       "light", "field", "stood", "ran",   "under", "over", "beside", "while"};
  std::string text;
  uint32_t state = 12345;
  for (size_t i = 0; i < n; ++i) {
    state = state * 1103515245 + 12345;
    text += kWords[state >> 28];
    text += i % 7 == 6 ? ".\n" : " ";
  }
  return text;
}

std::vector<std::string> small(const std::string& text, const std::string& out,
                               const std::vector<std::string>& more = {}, const std::string& model = kModel) {
  std::vector<std::string> arguments = {"-m", model, "--text", text, "--out", (g_folder / out).string()};
  const auto add = [&](const std::string& flag, const std::string& value) {
    if (std::find(more.begin(), more.end(), flag) == more.end()) arguments.insert(arguments.end(), {flag, value});
  };
  add("--prompt-tokens", std::to_string(kPrompt));
  add("--forced-tokens", std::to_string(kForced));
  add("--windows", "0");
  add("--policies", "dense,raas@mine");
  add("--budgets", std::to_string(kBudget));
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// The one line of --json.
json line_of(const Output& o) {
  assert_works(o);
  assert_int_equal(std::count(o.out.begin(), o.out.end(), '\n'), 1);
  assert_true(o.out.back() == '\n');
  return json::parse(o.out);
}

void assert_near(double value, double expected) {
  if (!(std::abs(value - expected) <= 1e-9 * std::abs(expected))) print_error("%.17g, not %.17g\n", value, expected);
  assert_true(std::abs(value - expected) <= 1e-9 * std::abs(expected));
}

// --- by hand: one session at a time, straight over the C API -----------------------------------------------

std::vector<double> log_probabilities(weir_session* session) {
  const float* logits = nullptr;
  uint32_t n = 0;
  assert_int_equal(weir_session_logits(session, &logits, &n), WEIR_OK);
  double sum = 0;
  for (uint32_t i = 0; i < n; ++i) sum += std::exp(double{logits[i]});
  std::vector<double> log_p;
  for (uint32_t i = 0; i < n; ++i) log_p.push_back(logits[i] - std::log(sum));
  return log_p;
}

// What a session predicts before each of tokens[n_prompt ...].
std::vector<std::vector<double>> predictions(weir_model* model, const char* policy, uint32_t budget,
                                             const std::vector<weir_token>& tokens, size_t n_prompt) {
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.policy = policy;
  options.budget_tokens = budget;
  options.context_tokens = static_cast<uint32_t>((tokens.size() + 15) / 16 * 16);
  options.max_prompt_tokens = static_cast<uint32_t>(n_prompt);
  const SessionPtr session = create_session(model, options);
  assert_int_equal(weir_session_prefill(session.get(), tokens.data(), n_prompt, nullptr, nullptr), WEIR_OK);
  std::vector<std::vector<double>> log_p = {log_probabilities(session.get())};
  for (size_t i = n_prompt; i + 1 < tokens.size(); ++i) {
    assert_int_equal(weir_session_step(session.get(), tokens[i]), WEIR_OK);
    log_p.push_back(log_probabilities(session.get()));
  }
  return log_p;
}

double nll(const std::vector<std::vector<double>>& log_p, const std::vector<weir_token>& tokens) {
  double sum = 0;
  const size_t n_prompt = tokens.size() - log_p.size();
  for (size_t i = 0; i < log_p.size(); ++i) sum -= log_p[i][static_cast<size_t>(tokens[n_prompt + i])];
  return sum;
}

size_t best(const std::vector<double>& log_p) {
  return static_cast<size_t>(std::max_element(log_p.begin(), log_p.end()) - log_p.begin());
}

// A copy of the model whose vocabulary asks for BOS.
std::string model_with_bos(weir_token* bos) {
  std::string bytes = read_file(kModel);
  const std::string key = "tokenizer.ggml.add_bos_token";
  const size_t at = bytes.find(key) + key.size() + 4;  // behind the value's type
  assert_int_equal(bytes[at], 0);
  bytes[at] = 1;
  const std::string path = write_file("bos.gguf", bytes);
  const RuntimePtr runtime = create_runtime(1);
  const ModelPtr model = open_model(runtime.get(), path, WEIR_MODEL_VOCAB_ONLY);
  const TextTokens text = text_tokens(model.get(), "stone <|im_end|> gate");
  *bos = text.bos;
  assert_true(text.bos >= 0);
  // Nothing is put before the text as such, and what looks like a control token is none.
  for (weir_token token : text.tokens) {
    weir_token_info info = WEIR_TOKEN_INFO_INIT;
    assert_int_equal(weir_token_get_info(model.get(), token, &info), WEIR_OK);
    assert_int_equal(info.flags & WEIR_TOKEN_CONTROL, 0);
  }
  return path;
}

// Perplexity over `n_windows` windows, one session for each.
double perplexity_by_hand(weir_model* model, const std::vector<weir_token>& tokens, size_t n_windows, weir_token bos) {
  double sum = 0;
  for (size_t w = 0; w < n_windows; ++w) {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(w * 1024);
    std::vector<weir_token> window(first, first + 1024);
    if (bos >= 0) window[0] = bos;
    sum += nll(predictions(model, "dense", 0, window, 512), window);
  }
  return std::exp(sum / (512.0 * static_cast<double>(n_windows)));
}

// --- tests ---------------------------------------------------------------------------------------------------

void text__json_is_one_line_with_a_row_for_each_point(void**) {
  const std::string text = write_file("shape.txt", sentences(300));
  const json j = line_of(
      eval(small(text, "shape",
                 {"--json", "--policies", "dense,raas@mine,sink,arkvale", "--budgets", "96,4096", "--threads", "2"})));
  assert_true(j["perplexity"].is_null());
  assert_int_equal(j["n_windows"].get<int>(), 0);
  assert_int_equal(j["prompt_tokens"].get<int>(), kPrompt);
  assert_int_equal(j["forced_tokens"].get<int>(), kForced);
  assert_true(j["text"] == "shape.txt");
  std::vector<std::pair<std::string, int>> points;
  for (const json& row : j["rows"]) {
    points.emplace_back(row["policy"].get<std::string>(), row["budget"].get<int>());
    for (const char* key : {"kl_mean", "kl_p99", "top1", "perplexity", "pages", "recalls", "kv_bytes"})
      assert_true(row[key].is_number());
    assert_int_equal(row["recalls"] > 0.0, row["policy"] == "arkvale" && row["budget"] == 96);
    if (row["budget"] == 96) {  // pages left
      assert_true(row["kl_mean"] > 1e-6 && row["kl_p99"] > row["kl_mean"]);
      continue;
    }
    // The whole history, or a budget that holds it: exactly the same numbers.
    assert_true(row["kl_mean"] == 0.0 && row["kl_p99"] == 0.0 && row["top1"] == 1.0);
    assert_true(row["perplexity"] == j["rows"][0]["perplexity"]);
  }
  assert_true(points == (std::vector<std::pair<std::string, int>>{{"dense", 0},
                                                                  {"mine", 96},
                                                                  {"mine", 4096},
                                                                  {"sink", 96},
                                                                  {"sink", 4096},
                                                                  {"arkvale", 96},
                                                                  {"arkvale", 4096}}));
}

void text__numbers_are_those_of_sessions_alone(void**) {
  const std::string content = sentences(300), text = write_file("hand.txt", content);
  const json j = line_of(eval(small(text, "hand", {"--json"})));
  const RuntimePtr runtime = create_runtime(1);
  const ModelPtr model = open_model(runtime.get(), kModel);
  std::vector<weir_token> tokens = tokenize(model.get(), content, 0);
  tokens.resize(kPrompt + kForced);
  const auto whole = predictions(model.get(), "dense", 0, tokens, kPrompt);
  const auto own = predictions(model.get(), "raas", kBudget, tokens, kPrompt);
  assert_int_equal(whole.size(), kForced);
  std::vector<double> kl;
  size_t n_same = 0;
  for (size_t i = 0; i < kForced; ++i) {
    double sum = 0;
    for (size_t v = 0; v < whole[i].size(); ++v) sum += std::exp(whole[i][v]) * (whole[i][v] - own[i][v]);
    kl.push_back(sum);
    n_same += best(whole[i]) == best(own[i]) ? 1 : 0;
  }
  const json& row = j["rows"][1];
  double sum = 0;
  for (double value : kl) sum += value;
  assert_near(row["kl_mean"], sum / kForced);
  std::sort(kl.begin(), kl.end());
  assert_near(row["kl_p99"], kl[kForced - 1 - kForced / 100]);
  assert_true(row["top1"] == static_cast<double>(n_same) / kForced);
  assert_true(n_same < kForced);
  assert_near(row["perplexity"], std::exp(nll(own, tokens) / kForced));
  assert_near(j["rows"][0]["perplexity"], std::exp(nll(whole, tokens) / kForced));
  size_t n_pages = 0;  // in the table when a token has been appended, after all of the prompt but the last one
  for (size_t n = kPrompt + 1; n < kPrompt + kForced; ++n) n_pages += (n + 15) / 16;
  assert_near(j["rows"][0]["pages"], static_cast<double>(n_pages) / (kForced - 1));
  assert_true(row["pages"] <= kBudget / 16);
}

void text__perplexity_is_that_of_the_windows_second_halves(void**) {
  const std::string content = sentences(800), text = write_file("windows.txt", content);
  const RuntimePtr runtime = create_runtime(1);
  weir_token bos = -1;
  const std::string with_bos = model_with_bos(&bos);
  const ModelPtr model = open_model(runtime.get(), kModel);
  const std::vector<weir_token> tokens = tokenize(model.get(), content, 0);
  assert_in_range(tokens.size(), 2 * 1024 + 1, 3 * 1024 - 1);
#ifdef WEIR_INTERNAL_SANITIZED
  const size_t n_windows = 1;
#else
  const size_t n_windows = 2;  // what is left is no window
#endif
  const std::vector<std::string> more = {"--windows", std::to_string(n_windows), "--policies", "dense", "--json"};
  const json j = line_of(eval(small(text, "windows", more)));
  assert_int_equal(j["n_windows"].get<size_t>(), n_windows);
  assert_int_equal(j["text_tokens"].get<size_t>(), tokens.size());
  assert_near(j["perplexity"], perplexity_by_hand(model.get(), tokens, n_windows, -1));

  // BOS takes the place of each window's first token, and of the prompt's.
  const json k = line_of(eval(small(text, "bos", more, with_bos)));
  assert_int_equal(k["text_tokens"].get<size_t>(), tokens.size());
  assert_near(k["perplexity"], perplexity_by_hand(model.get(), tokens, n_windows, bos));
  assert_true(k["perplexity"] != j["perplexity"]);
  std::vector<weir_token> start(tokens.begin(), tokens.begin() + kPrompt + kForced);
  start[0] = bos;
  assert_near(k["rows"][0]["perplexity"],
              std::exp(nll(predictions(model.get(), "dense", 0, start, kPrompt), start) / kForced));
}

// All of the text's windows; what a stopped evaluation has is not computed again, and more may be asked for.
void text__runs_that_are_there_are_not_repeated(void**) {
#ifdef WEIR_INTERNAL_SANITIZED
  skip();  // the test before has one window
#endif
  const std::string text = write_file("resume.txt", sentences(800));
  const json first = line_of(eval(small(text, "resume", {"--json", "--windows", "1"})));
  assert_int_equal(first["n_windows"].get<int>(), 1);
  std::vector<std::string> arguments = small(text, "resume", {"--json", "--budgets", "80,96", "--windows", "9"});
  const Output more = eval(arguments);
  assert_true(contains(more.err, std::to_string(512 + kForced) + " of " + std::to_string(512 + kForced) + "  100%"));
  const json second = line_of(more);
  assert_int_equal(second["n_windows"].get<int>(), 2);
  assert_int_equal(second["rows"].size(), 3);
  assert_true(second["rows"][2] == first["rows"][1]);
  const Output again = eval(arguments);
  assert_string_equal(again.err.c_str(), "");
  assert_true(line_of(again) == second);
  // Without model and text: what the folder has.
  const std::string folder = (g_folder / "resume").string();
  const json shown = line_of(eval({"--text", text, "--plot-only", "--json", "--out", folder}));
  assert_true(shown["perplexity"] == second["perplexity"]);
  assert_int_equal(shown["rows"].size(), 3);
  assert_int_equal(
      line_of(eval({"--text", text, "--plot-only", "--json", "--out", folder, "--policies", "raas@mine"}))["rows"]
          .size(),
      2);

  write_file("resume.txt", sentences(801));
  assert_fails(eval(arguments), 1, {"text.jsonl", "text_bytes"});
  arguments[3] = write_file("same_size.txt", "R" + sentences(800).substr(1));
  assert_fails(eval(arguments), 1, {"text.jsonl", "made with text"});
}

void text__tables_and_files_tell_the_same(void**) {
  const std::string text = write_file("tables.txt", sentences(300));
  const Output o = eval(small(text, "tables", {"--policies", "dense,raas@mine,random", "--budgets", "32,96"}));
  assert_works(o);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(g_folder / "tables")) names.insert(entry.path().filename().string());
  assert_true(names == (std::set<std::string>{"text.jsonl", "text.csv", "text-kl.svg", "text-kl-bytes.svg"}));
  for (const char* part : {"KL divergence, nats per token\n", "Its 99th percentile\n", "Same most probable token, %\n",
                           "Perplexity\n", "dense   0.0000", "  32: 1 of 1\n", "refused: mine, 32 tokens: cannot "})
    assert_true(contains(o.out, part));
  const std::string csv = read_file(g_folder / "tables" / "text.csv");
  assert_true(csv.starts_with(
      "family,policy,budget,n,refused,kl_mean,kl_p99,top1,perplexity,pages,recalls,kv_bytes,n_positions\n"));
  assert_true(contains(csv, "\ntext,dense,0,1,0,0,0,1,"));
  assert_true(contains(csv, "\ntext,mine,32,1,1,,,,,,,,\n"));
  const std::string svg = read_file(g_folder / "tables" / "text-kl.svg");
  assert_true(contains(svg, ">weir-tiny-reasoner-q8_0.gguf, tables.txt</text>"));
  assert_true(contains(svg, ">mine</text>") && !contains(svg, ">dense</text>"));
  assert_false(contains(svg, "nan") || contains(svg, "inf"));
}

// Against bytes, budgets are where their bytes are: a factor of two has the same width everywhere.
void text__plot_by_bytes(void**) {
  std::vector<nlohmann::ordered_json> lines;
  for (size_t i = 0; i < 4; ++i) {
    lines.push_back({{"family", "text"},
                     {"id", "text"},
                     {"policy", i == 3 ? "whole" : "a"},
                     {"budget", i == 3 ? 0u : 64u << i},
                     {"refused", false},
                     {"kl_mean", 0.01},
                     {"kv_bytes", i == 3 ? 32 << 20 : 2 << (20 + i)}});
  }
  BudgetPlot plot = {"", "", {"", "kl_mean", 1, 4}, false, true, "", {"", "kv_bytes", 1.0 / (1 << 20), 2}, "MiB"};
  const std::string svg = budget_plot_svg(summarize(lines, {}, {}), plot);
  assert_true(contains(svg, ">MiB</text>") && contains(svg, ">32</text>"));
  const size_t path = svg.rfind("<path d=\"M", svg.rfind("stroke-width=\"1.8\""));  // the last line: a
  double x[3], y[3];
  assert_int_equal(
      std::sscanf(svg.c_str() + path, "<path d=\"M%lf %lfL%lf %lfL%lf %lf\"", &x[0], &y[0], &x[1], &y[1], &x[2], &y[2]),
      6);
  assert_true(std::abs(x[2] - x[1] - (x[1] - x[0])) < 0.2 && x[1] - x[0] > 30);  // 2, 4 and 8 of 2 to 32 MiB
}

// A decade has the same height everywhere, and 0 is not on the axis.
void text__plot_is_logarithmic(void**) {
  std::vector<nlohmann::ordered_json> lines;
  const double values[] = {0.002, 0.02, 0.2, 0};
  for (size_t i = 0; i < 4; ++i) {
    lines.push_back({{"family", "text"},
                     {"id", "text"},
                     {"policy", "a"},
                     {"budget", 64u << i},
                     {"refused", false},
                     {"kl_mean", values[i]}});
  }
  const Summary summary = summarize(lines, {}, {});
  const std::string svg = budget_plot_svg(summary, {"", "", {"", "kl_mean", 1, 4}, false, true});
  for (const char* tick : {">0.001</text>", ">0.01</text>", ">0.1</text>", ">1</text>"})
    assert_true(contains(svg, tick));
  // y of the three points: 220 units for three decades, so they are 73.3 apart; the fourth is left out.
  const size_t at = svg.find("stroke-width=\"1.8\"");
  const size_t path = svg.rfind("<path d=\"M", at);
  double x[3], y[3];
  assert_int_equal(
      std::sscanf(svg.c_str() + path, "<path d=\"M%lf %lfL%lf %lfL%lf %lf\"", &x[0], &y[0], &x[1], &y[1], &x[2], &y[2]),
      6);
  assert_true(std::abs(y[0] - y[1] - 220 / 3.0) < 0.2 && std::abs(y[1] - y[2] - 220 / 3.0) < 0.2);
  assert_false(contains(svg, "nan") || contains(svg, "inf"));
  lines.erase(lines.begin(), lines.begin() + 3);  // nothing that the axis can show
  const std::string empty = budget_plot_svg(summarize(lines, {}, {}), {"", "", {"", "kl_mean", 1, 4}, false, true});
  assert_false(contains(empty, "nan") || contains(empty, "inf"));
}

void text__what_cannot_be_read_is_told(void**) {
  const std::string text = write_file("short.txt", sentences(100)), missing = (g_folder / "missing.txt").string();
  assert_fails(eval(small(missing, "x")), 1, {"missing.txt: cannot open: No such file"});
  assert_fails(eval(small(g_folder.string(), "x")), 1, {"cannot read: Is a directory"});
  assert_fails(eval(small("", "x")), 1, {"cannot open"});
  assert_fails(eval(small(write_file("latin.txt", "na\xefve"), "x")), 1, {"latin.txt: not UTF-8 at byte 2"});
  assert_fails(eval(small(text, "x", {"--windows", "3"})), 1, {"short.txt: the text is too short: it has ", "1024"});
  assert_fails(eval(small(text, "x", {"--forced-tokens", "5000"})), 1, {"at least 5048 are needed"});
  assert_fails(eval(small(write_file("empty.txt", ""), "x")), 1, {"it has 0 tokens"});
  assert_fails(eval(small(text, "x", {}, missing)), 1, {"cannot open model"});
  assert_false(fs::exists(g_folder / "x"));
}

// Without --policies all of them, while the time lasts; what is left out is told, and the next command goes on with it.
// The folder has the names of the model and the text.
void text__without_policies_the_time_is_bounded(void**) {
  const std::string text = write_file("bounded.txt", sentences(9000));
  const auto run = [&](const std::vector<std::string>& more) {
    std::string command = "cd " + shell_word(g_folder.string()) + " && " + shell_word(WEIR_PROGRAM) + " eval -m " +
                          shell_word(kModel) + " --text " + shell_word(text) + " --json";
    for (const std::string& word : more) command += " " + word;
    const std::string out = (g_folder / "bounded.out").string(), err = (g_folder / "bounded.err").string();
    const int status = std::system((command + " >" + shell_word(out) + " 2>" + shell_word(err)).c_str());
    return Output{WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
  };
  const std::vector<std::string> little = {"--windows", "0", "--prompt-tokens", "48", "--forced-tokens", "24"};
  const json all = line_of(run(little));
  assert_int_equal(all["rows"].size(), 1 + 12 * 4);  // dense has no budget
  assert_false(all.contains("left_out"));
  const fs::path folder = g_folder / "eval-weir-tiny-reasoner-q8_0-bounded";
  assert_true(fs::exists(folder / "text.jsonl"));
  fs::remove_all(folder);
  const std::vector<std::string> much = {"--seconds", "1", "--prompt-tokens", "48", "--forced-tokens", "9000"};
  const auto start = std::chrono::steady_clock::now();
  const Output cut = run(much);
  assert_true(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
  if (cut.status == 0) {
    const json line = json::parse(cut.out);
    assert_true(line["rows"].size() < 49 && contains(line["left_out"].get<std::string>(), "quest"));
    assert_true(contains(cut.err, "left out after 1 seconds"));
  } else {  // a slow machine
    assert_true(contains(cut.err, "nothing fits in 1 seconds"));
  }
  std::vector<std::string> both = much;
  both.insert(both.end(), {"--policies", "dense"});
  assert_status(run(both), 2);
}

void text__wrong_usage_is_told(void**) {
  const std::string text = write_file("usage.txt", sentences(300));
  assert_fails(eval(small(text, "x", {"--policies", "rass"})), 2, {"--policies rass", "raas"});
  assert_fails(eval(small(text, "x", {"--policies", "raas:alpa=1"})), 2, {"alpa", "alpha"});
  assert_fails(eval(small(text, "x", {"--forced"})), 2, {"--forced is for problems, not for --text"});
  assert_fails(eval(small(text, "x", {"--families", "base"})), 2, {"--families is for problems"});
  assert_fails(eval(small(text, "x", {"--forced-tokens", "0"})), 2, {"--forced-tokens"});
  assert_fails(eval({"-m", kModel, "--windows", "1"}), 2, {"--windows requires --text"});
  assert_fails(eval({"-m", kModel, "--json"}), 2, {"--json requires --text"});
  assert_fails(eval({"--text", text}), 2, {"--model is required"});
  // A budget that every policy refuses is no wrong usage, but nothing was measured.
  assert_fails(eval(small(text, "refused", {"--policies", "raas,random", "--budgets", "32"})), 1,
               {"every policy was refused; the first, raas with 32 tokens: "});
  assert_fails(eval(small(text, "device", {"--device", "vulkan:no such device"})), 1, {"vulkan"});
}

void text__parts(void**) {
  for (const char* valid : {"", "a\n", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xef\xbf\xbf",
                            "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    assert_true(first_invalid_utf8(valid) == std::string::npos);
  for (const char* invalid : {"\x80", "\xc1\xbf", "\xc2", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe1\x80",
                              "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc2\xc2"}) {
    assert_int_equal(first_invalid_utf8(invalid), 0);
    assert_int_equal(first_invalid_utf8(std::string("ok ") + invalid), 3);
  }
  std::vector<double> values;
  for (int i = 250; i > 0; --i) values.push_back(i);
  assert_true(percentile_99(values) == 248);  // two of 250 are larger
  assert_true(percentile_99({3}) == 3);
  const TextTokens with = {{1, 2, 3, 4}, 9}, without = {{1, 2, 3, 4}};
  assert_true(with.context(1, 2) == (std::vector<weir_token>{9, 3}));
  assert_true(without.context(1, 2) == (std::vector<weir_token>{2, 3}));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(text__json_is_one_line_with_a_row_for_each_point),
      cmocka_unit_test(text__numbers_are_those_of_sessions_alone),
      cmocka_unit_test(text__perplexity_is_that_of_the_windows_second_halves),
      cmocka_unit_test(text__runs_that_are_there_are_not_repeated),
      cmocka_unit_test(text__tables_and_files_tell_the_same),
      cmocka_unit_test(text__plot_is_logarithmic),
      cmocka_unit_test(text__plot_by_bytes),
      cmocka_unit_test(text__what_cannot_be_read_is_told),
      cmocka_unit_test(text__without_policies_the_time_is_bounded),
      cmocka_unit_test(text__wrong_usage_is_told),
      cmocka_unit_test(text__parts),
  };
  return cmocka_run_group_tests_name("eval_text", tests, make_folder, remove_folder);
}
