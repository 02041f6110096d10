// cli: weir eval as a user runs it. Mirrors tools/lab/eval*.cpp. It starts the built program on small problems of the
// embedded tiny reasoner and reads the files that it makes.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/cli_test.h"
#include "tools/lab/eval_trace.h"
#include "tools/lab/png_write.h"

using namespace weir_cli::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// A step takes some ten times as long under a sanitizer. There, runs that step together still end at different times,
// by their end and by their length.
#ifdef WEIR_INTERNAL_SANITIZED
constexpr char kSteps[] = "3", kTogetherSteps[] = "4", kTogetherPolicies[] = "dense,raas,quest:skip_layers=0@quest",
               kTogetherBudgets[] = "128";
constexpr int kTogetherRuns = 2 * (1 + 2);
#else
constexpr char kSteps[] = "6", kTogetherSteps[] = "12",
               kTogetherPolicies[] = "dense,raas,random,quest:skip_layers=0@quest", kTogetherBudgets[] = "128,1024";
constexpr int kTogetherRuns = 2 * (1 + 3 * 2);
#endif

// Two problems, two policies, two budgets: dense runs once a problem, so 2 x (1 + 2) runs.
std::vector<std::string> small(const fs::path& out, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"-m",   kModel,    "--families", "base",  "-n",         "2",         "--steps",
                                        kSteps, "--every", "5",          "--out", out.string(), "--threads", "2"};
  const auto is_given = [&](const char* flag) { return std::find(more.begin(), more.end(), flag) != more.end(); };
  if (!is_given("--policies")) arguments.insert(arguments.end(), {"--policies", "dense,raas:r=0.2@mine"});
  if (!is_given("--budgets")) arguments.insert(arguments.end(), {"--budgets", "128,1024"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::istringstream in(read_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

// Whether every element is closed in order, attributes are quoted, and one element holds all the rest.
bool is_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  int n_roots = 0;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at)) {
    const size_t end = xml.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    at = end;
    if (tag.empty() || contains(tag, "<") || std::count(tag.begin(), tag.end(), '"') % 2 != 0) return false;
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else {
      n_roots += open.empty() ? 1 : 0;
      if (tag.back() != '/') open.push_back(name);
    }
  }
  return open.empty() && n_roots == 1;
}

void assert_svg(const fs::path& path) {
  const std::string svg = read_file(path);
  assert_true(contains(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\""));
  assert_false(contains(svg, "nan"));
  assert_true(is_well_formed(svg));
}

void eval__two_problems_give_exactly_these_files(void**) {
  const fs::path out = g_folder / "small";
  const Output o = eval(small(out));
  assert_works(o);
  assert_true(names_in(out) ==
              (std::set<std::string>{"results.jsonl", "table.csv", "accuracy.svg", "length.svg", "memory.svg"}));
  for (const char* name : {"accuracy.svg", "length.svg", "memory.svg"}) assert_svg(out / name);

  const std::vector<std::string> lines = lines_of(out / "results.jsonl");
  assert_int_equal(lines.size(), 7);
  const json header = json::parse(lines[0]);
  assert_int_equal(header["model_bytes"].get<uint64_t>(), fs::file_size(kModel));
  assert_string_equal(header["model"].get<std::string>().c_str(), "weir-tiny-reasoner-q8_0.gguf");
  for (size_t i = 1; i < lines.size(); ++i) {
    const json run = json::parse(lines[i]);
    assert_false(run["refused"].get<bool>());
    assert_true(run["n_decode"].get<int>() > 0);
    assert_true(run["kv_peak_bytes"].get<uint64_t>() > 0);
    assert_int_equal(run["allocs_while_decoding"].get<int>(), 0);
    if (run["policy"] == "dense" || run["budget"] == 1024) {  // the budget holds everything
      assert_true(run["right"].get<bool>());
      assert_true(run["whole_text"].get<bool>());
      assert_int_equal(run["wrong_lines"].get<int>(), 0);
      assert_true(run["n_decode"] == run["n_expected"]);
    }
  }
  const std::vector<std::string> csv = lines_of(out / "table.csv");
  assert_int_equal(csv.size(), 4);
  assert_true(
      csv[0].starts_with("family,policy,budget,n,refused,strict,strict_accuracy,chance,right,accuracy,whole_text,"));
  assert_true(csv[1].starts_with("base,dense,0,2,0,2,1,0.01,2,1,2,"));
  assert_true(csv[3].starts_with("base,mine,1024,2,0,2,1,0.01,2,1,2,"));
  assert_true(contains(o.out, "Right answers without a wrong line, %\n\nbase, n=2, by chance 1\n"));
  assert_true(contains(o.out, "without a wrong line\nbase (dense 100.0%)\n  mine"));
  assert_true(contains(read_file(out / "accuracy.svg"), "(weir-tiny-reasoner-q8_0.gguf, seed 1)"));
}

void eval__runs_that_are_there_are_not_repeated(void**) {
  const fs::path out = g_folder / "resume";
  assert_works(eval(small(out)));
  // A changed line that stays shows that its run was not made again; a torn one is dropped and made again.
  std::vector<std::string> lines = lines_of(out / "results.jsonl");
  json changed = json::parse(lines[1]);
  changed["wrong_lines"] = 777;
  std::string text = lines[0] + "\n" + changed.dump() + "\n";
  for (size_t i = 2; i + 1 < lines.size(); ++i) text += lines[i] + "\n";
  write_file(out / "results.jsonl", text + lines.back().substr(0, lines.back().size() / 2));
  const Output o = eval(small(out));
  assert_works(o);
  assert_true(contains(o.err, "1 of 1  100%"));
  const std::vector<std::string> after = lines_of(out / "results.jsonl");
  assert_int_equal(after.size(), 7);
  assert_string_equal(after[1].c_str(), changed.dump().c_str());
  assert_true(json::parse(after.back())["id"] == json::parse(lines.back())["id"]);

  const Output again = eval(small(out));
  assert_works(again);
  assert_string_equal(again.err.c_str(), "");
  assert_string_equal(again.out.c_str(), o.out.c_str());
  const Output drawn = eval({"--plot-only", "--out", out.string()});
  assert_works(drawn);
  assert_string_equal(drawn.out.c_str(), o.out.c_str());
  // Some of the labels, in the order asked for.
  const Output some = eval({"--plot-only", "--out", out.string(), "--policies", "mine"});
  assert_works(some);
  assert_true(contains(some.out, "mine") && !contains(some.out, "dense"));
  assert_false(contains(read_file(out / "table.csv"), "dense"));
  assert_fails(eval({"--plot-only", "--out", out.string(), "--policies", "yours"}), 1, {"no such runs"});
}

// Runs that step together have the same answers; only their times are others.
void eval__together_is_the_same(void**) {
  const auto runs_of = [&](const std::string& together, const std::string& max_factor) {
    const fs::path out = g_folder / ("together" + together + "x" + max_factor);
    assert_works(eval({"-m",           kModel,           "--families", "base",       "-n",         "2",
                       "--steps",      kTogetherSteps,   "--every",    "5",          "--policies", kTogetherPolicies,
                       "--budgets",    kTogetherBudgets, "--out",      out.string(), "--together", together,
                       "--max-factor", max_factor}));
    std::map<std::string, json> runs;
    for (const std::string& line : lines_of(out / "results.jsonl")) {
      json run = json::parse(line);
      if (!run.contains("id")) continue;
      if (!run["refused"].get<bool>()) assert_true(run["decode_s"].get<double>() > 0);
      for (const char* time : {"decode_s", "prefill_s"}) run.erase(time);
      runs[run["id"].get<std::string>() + run["policy"].get<std::string>() + run["budget"].dump()] = run;
    }
    return runs;
  };
  const auto alone = runs_of("1", "1.5"), cut = runs_of("1", "0.2");
  assert_int_equal(alone.size(), kTogetherRuns);
  const auto any = [](const auto& runs, const auto& is_so) { return std::any_of(runs.begin(), runs.end(), is_so); };
  assert_true(any(alone, [](const auto& run) { return run.second["wrong_lines"] != 0; }));
  assert_true(any(alone, [](const auto& run) { return run.second["stop"] == "eos"; }));
  assert_true(any(cut, [](const auto& run) { return run.second["stop"] == "length"; }));
  assert_true(alone == runs_of("8", "1.5"));
  assert_true(alone == runs_of("3", "1.5"));
  assert_true(cut == runs_of("8", "0.2"));
  assert_fails(eval(small(g_folder / "nine", {"--together", "9"})), 2, {"--together"});
}

// A second turn asks for an early value: right are answers to both, alone and together.
void eval__follow_ups_are_second_turns(void**) {
  const auto runs_of = [&](const std::string& folder, const std::vector<std::string>& more) {
    const fs::path out = g_folder / folder;
    std::vector<std::string> arguments = {"-m",        kModel,     "--families", "followup",   "-n",
                                          "2",         "--steps",  "14",         "--policies", "dense,raas",
                                          "--budgets", "128,1024", "--out",      out.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    assert_works(eval(arguments));
    std::map<std::string, json> runs;
    for (const std::string& line : lines_of(out / "results.jsonl")) {
      json run = json::parse(line);
      if (!run.contains("id")) continue;
      for (const char* time : {"decode_s", "prefill_s"}) run.erase(time);
      runs[run["id"].get<std::string>() + run["policy"].get<std::string>() + run["budget"].dump()] = run;
    }
    return runs;
  };
  const auto alone = runs_of("follow1", {});
  assert_int_equal(alone.size(), 6);
  for (const auto& [key, run] : alone) {
    if (run["policy"] != "dense" && run["budget"] != 1024) {
      assert_false(run["right"].get<bool>() && run["whole_text"].get<bool>());
      continue;
    }
    assert_true(run["right"].get<bool>() && run["whole_text"].get<bool>());
    assert_true(run["n_decode"] == run["n_expected"] && run["stop"] == "eos");
  }
  assert_true(alone == runs_of("follow8", {"--together", "8"}));
  const auto cut = runs_of("follow-cut", {"--stop-at-error"});
  for (const auto& [key, run] : alone) {
    const json& other = cut.at(key);
    assert_true((run["right"] == true && run["wrong_lines"] == 0) ==
                (other["right"] == true && other["wrong_lines"] == 0));
  }
  assert_fails(eval({"-m", kModel, "--families", "followup", "--forced", "--out", (g_folder / "f").string()}), 2,
               {"--forced", "followup"});
}

// With --stop-at-error the strictly right answers are the same, and the others end where they go wrong.
void eval__stopping_at_errors_tells_strict_accuracy(void**) {
  const fs::path whole = g_folder / "whole", cut = g_folder / "cut";
  const std::vector<std::string> more = {"--policies", "dense,raas,random", "--budgets", "128,1024", "--together", "8"};
  assert_works(eval(small(whole, more)));
  std::vector<std::string> arguments = small(cut, more);
  arguments.push_back("--stop-at-error");
  assert_works(eval(arguments));
  std::map<std::string, json> runs[2];
  for (const fs::path& out : {whole, cut}) {
    for (const std::string& line : lines_of(out / "results.jsonl")) {
      const json run = json::parse(line);
      if (run.contains("id"))
        runs[out == cut ? 1 : 0]
            [run["id"].get<std::string>() + run["policy"].get<std::string>() + run["budget"].dump()] = run;
    }
  }
  assert_int_equal(runs[0].size(), runs[1].size());
  int n_cut = 0;
  for (const auto& [key, run] : runs[0]) {
    const json& other = runs[1].at(key);
    const bool strict = run["right"].get<bool>() && run["wrong_lines"] == 0;
    assert_int_equal(other["right"].get<bool>(), strict);
    assert_int_equal(other["stop"] == "error", !strict);
    if (strict) assert_true(other["n_decode"] == run["n_decode"]);
    if (!strict) assert_true(other["n_decode"] <= run["n_decode"]);
    n_cut += strict ? 0 : 1;
  }
  assert_true(n_cut > 0);
  assert_fails(eval(small(cut, more)), 1, {"stop_at_error true", "has false"});
}

void eval__other_header_or_options_are_errors_that_name_them(void**) {
  const fs::path out = g_folder / "header";
  assert_works(eval(small(out)));
  const std::string before = read_file(out / "results.jsonl");
  assert_fails(eval(small(out, {"--seed", "2"})), 1, {"results.jsonl", "seed 1", "has 2"});
  assert_fails(eval(small(out, {"--question-as-decode"})), 1, {"question_as_decode false", "has true"});
  assert_fails(eval(small(out, {"--policies", "dense,raas:r=0.4@mine"})), 1, {"\"mine\"", "raas:r=0.2", "raas:r=0.4"});
  assert_string_equal(read_file(out / "results.jsonl").c_str(), before.c_str());
  // Results of before the problems changed are not mixed with those of now.
  json old = json::parse(lines_of(out / "results.jsonl")[0]);
  old["weir_eval"] = 1;
  write_file(out / "results.jsonl", old.dump() + "\n");
  assert_fails(eval(small(out)), 1, {"weir_eval 1", "has 2"});
  write_file(out / "results.jsonl", "{\"no\":\"header\"}\n");
  assert_fails(eval(small(out)), 1, {"not a results file"});
  write_file(out / "results.jsonl", before + "{\"id\":3}\n");
  assert_fails(eval(small(out)), 1, {"results.jsonl:8: a run needs"});
  assert_fails(eval({"--plot-only", "--out", (g_folder / "nowhere").string()}), 1, {"nowhere"});
}

void eval__unknown_names_are_wrong_usage_and_listed(void**) {
  const fs::path out = g_folder / "usage";
  assert_fails(eval({"-m", kModel, "--families", "bass", "--out", out.string()}), 2,
               {"\"bass\"", "rule, base, facts, hubs, passkey, early"});
  assert_fails(eval(small(out, {"--policies", "dense,ras"})), 2, {"ras", "dense", "sink", "raas"});
  assert_fails(eval(small(out, {"--policies", "raas:rr=1"})), 2, {"raas:rr=1"});
  assert_fails(eval(small(out, {"--policies", "raas:r"})), 2, {"\"r\" is not key=value"});
  assert_fails(eval(small(out, {"--policies", "raas,raas"})), 2, {"label \"raas\""});
  assert_fails(eval({"--families", "base"}), 2, {"--model is required"});
  assert_false(fs::exists(out));
}

void eval__refused_runs_are_not_wrong_ones(void**) {
  const fs::path out = g_folder / "refused";
  // Prompts are pinned, and these do not fit.
  const Output o = eval({"-m", kModel, "--families", "passkey", "--passkey-tokens", "300", "-n", "2", "--policies",
                         "raas:overflow=error@pinned", "--budgets", "128", "--out", out.string()});
  assert_works(o);
  for (const std::string& line : {lines_of(out / "results.jsonl")[1], lines_of(out / "results.jsonl")[2]}) {
    const json run = json::parse(line);
    assert_true(run["refused"].get<bool>());
    assert_true(contains(run["message"], "WEIR_ERR_BUDGET"));
    assert_false(run.contains("right"));
  }
  assert_true(contains(o.out, "-  128: 2 of 2"));
  assert_string_equal(lines_of(out / "table.csv")[1].substr(0, 27).c_str(), "passkey,pinned,128,2,2,0,,1");
}

void eval__question_can_be_decoded(void**) {
  const fs::path out = g_folder / "question";
  const Output o = eval(small(out, {"--policies", "dense", "--question-as-decode"}));
  assert_works(o);
  const json run = json::parse(lines_of(out / "results.jsonl")[1]);
  const uint64_t n_question = run["n_question"].get<uint64_t>();
  assert_true(n_question >= 4 && n_question < run["n_prompt"].get<uint64_t>());
  assert_true(run["right"].get<bool>());  // where a token is fed makes no difference to the whole history
}

void eval__forced_is_exact_when_the_budget_holds_everything(void**) {
  const fs::path out = g_folder / "forced";
  assert_works(eval(small(out, {"--forced", "--policies", "dense,sink,raas", "--budgets", "64,1024"})));
  assert_true(names_in(out) ==
              (std::set<std::string>{"forced.jsonl", "forced.csv", "agreement.svg", "kl.svg", "recall.svg"}));
  for (const char* name : {"agreement.svg", "kl.svg", "recall.svg"}) assert_svg(out / name);
  int n_exact = 0, n_lossy = 0;
  const std::vector<std::string> lines = lines_of(out / "forced.jsonl");
  for (size_t i = 1; i < lines.size(); ++i) {
    const json run = json::parse(lines[i]);
    if (run["refused"].get<bool>()) continue;
    if (run["budget"] == 64) {
      ++n_lossy;
      assert_true(run["kl"].get<double>() > 0.01);
      assert_true(run["recall"].is_null() || run["recall"].get<double>() < 1);
    } else {
      ++n_exact;
      assert_true(run["agreement"] == 1.0);
      assert_true(run["kl"] == 0.0);
      assert_true(run["recall"].is_null() ? !weir_cli::can_trace() : run["recall"] == 1.0);
    }
  }
  assert_int_equal(n_exact, 6);
  assert_true(n_lossy >= 2);
}

uint32_t big_endian(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes.at(at + i));
  return value;
}

void eval__trace_is_recorded_and_drawn(void**) {
  const std::string path = (g_folder / "run.trace").string();
  const std::vector<std::string> record = {"-m", kModel,  "--trace", path,         "--families", "rule",      "--steps",
                                           "12", "--lag", "3",       "--policies", "sink",       "--budgets", "96"};
  const Output o = eval(record);
  if (!weir_cli::can_trace()) {
    assert_fails(o, 1, {"no weir_session_trace"});
    return;
  }
  assert_works(o);
  uint32_t n_steps = 0, n_victims = 0, n_pages = 0;
  double least = 2, most = 0;  // sum of the masses of a head
  const auto on_block = [&](const weir_cli::TraceHeader& header, const weir_cli::TraceBlock& block) {
    n_steps = std::max(n_steps, block.step + 1);
    n_pages = std::max(n_pages, (block.n_tokens + header.page_tokens - 1) / header.page_tokens);
    for (const auto& stream : block.streams) n_victims += static_cast<uint32_t>(stream.victims.size());
    for (const auto& mass : block.mass) {
      double sum = 0;
      for (float m : mass) sum += m;
      least = std::min(least, sum);
      most = std::max(most, sum);
    }
  };
  const weir_cli::TraceHeader header = weir_cli::read_trace(path, on_block);
  assert_int_equal(header.page_tokens, 16);
  assert_true(n_steps > 100 && n_victims > 0);
  assert_true(least > 0.99 && most < 1.01);
  assert_svg(path + ".svg");
  assert_true(fs::file_size(path + ".svg") < 1500000);
  if (weir_cli::can_write_png()) {
    const std::string png = read_file(path + ".png");
    assert_true(png.starts_with("\x89PNG\r\n\x1a\n"));
    const uint32_t width = big_endian(png, 16), height = big_endian(png, 20);
    assert_true(width >= n_steps && width % n_steps == 0);
    assert_true(height >= n_pages && height % n_pages == 0);
  } else {
    assert_true(contains(o.err, "no libpng"));
    assert_false(fs::exists(path + ".png"));
  }
  const std::string svg = read_file(path + ".svg");
  assert_works(eval({"--draw", path, "--layer", "0", "--head", "1"}));
  assert_true(read_file(path + ".svg") != svg);
  assert_fails(eval({"--draw", path, "--layer", "99"}), 1, {"run.trace", "layers"});
  assert_fails(eval({"--draw", kModel}), 1, {"not a recording"});
  assert_fails(eval({"-m", kModel, "--trace", path, "--policies", "dense"}), 2, {"--trace records one run"});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(eval__two_problems_give_exactly_these_files),
      cmocka_unit_test(eval__runs_that_are_there_are_not_repeated),
      cmocka_unit_test(eval__together_is_the_same),
      cmocka_unit_test(eval__stopping_at_errors_tells_strict_accuracy),
      cmocka_unit_test(eval__follow_ups_are_second_turns),
      cmocka_unit_test(eval__other_header_or_options_are_errors_that_name_them),
      cmocka_unit_test(eval__unknown_names_are_wrong_usage_and_listed),
      cmocka_unit_test(eval__refused_runs_are_not_wrong_ones),
      cmocka_unit_test(eval__question_can_be_decoded),
      cmocka_unit_test(eval__forced_is_exact_when_the_budget_holds_everything),
      cmocka_unit_test(eval__trace_is_recorded_and_drawn),
  };
  return cmocka_run_group_tests_name("eval", tests, make_folder, remove_folder);
}
