// cli: the parts of weir eval that need no model: policy entries, points, sums and tables, charts, divergence,
// recordings and their pictures. Mirrors
// tools/lab/{eval_settings,eval_table,plot,eval_forced,eval_trace,eval_waterfall}.cpp.
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/cli_test.h"
#include "tools/lab/eval_forced.h"
#include "tools/lab/eval_plots.h"
#include "tools/lab/eval_prediction.h"
#include "tools/lab/eval_settings.h"
#include "tools/lab/eval_table.h"
#include "tools/lab/eval_waterfall.h"
#include "tools/lab/plot.h"
#include "tools/lab/png_write.h"

using namespace weir_cli;
using namespace weir_cli::test;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

bool refuses(const std::function<void()>& call, const std::string& part) {
  try {
    call();
  } catch (const std::exception& e) {
    if (!contains(e.what(), part)) print_error("expected \"%s\" in: %s\n", part.c_str(), e.what());
    return contains(e.what(), part);
  }
  return false;
}

void settings__policy_entry_has_options_and_a_label(void**) {
  const PolicyEntry entry = parse_policy_entry("raas:r=0.2+protect_recent=0@short");
  assert_string_equal(entry.name.c_str(), "raas");
  assert_true(entry.options == (std::vector<std::string>{"r=0.2", "protect_recent=0"}));
  assert_string_equal(entry.label.c_str(), "short");
  assert_string_equal(entry.spec().c_str(), "raas:r=0.2+protect_recent=0");
  assert_string_equal(parse_policy_entry("raas:r=0.2").label.c_str(), "raas:r=0.2");
  assert_true(parse_policy_entry("dense").is_dense());
  for (const char* wrong : {"", ":r=1", "raas:", "raas:r", "raas:=1", "raas:r=1+", "raas@"}) {
    assert_true(refuses([&] { parse_policy_entry(wrong); }, "--policies " + std::string(wrong)));
  }
}

void settings__points_are_all_pairs_and_dense_runs_once(void**) {
  EvalSettings s;
  s.families = {"rule", "base"};
  s.policies = {parse_policy_entry("dense"), parse_policy_entry("sink")};
  s.budgets = {64, 128};
  s.n_problems = 3;
  const std::vector<EvalPoint> points = eval_points(s);
  assert_int_equal(points.size(), 3 * 2 * (1 + 2));
  std::set<std::string> ids;
  for (const EvalPoint& p : points) {
    assert_true(p.budget == 0 ? p.policy == 0 : p.policy == 1);
    ids.insert(eval_problem(s, p.family, p.problem).id);
  }
  assert_int_equal(ids.size(), 6);
  for (const auto& group : forced_groups(points)) {
    for (const EvalPoint& p : group) {
      assert_true(p.family == group[0].family && p.problem == group[0].problem);
    }
  }
  const SessionFlags flags = point_session(s.policies[1], 64, 70, 31);
  assert_int_equal(flags.context, 112);
  assert_int_equal(flags.max_prompt, 70);
  assert_int_equal(flags.budget, 64);
  assert_int_equal(point_session(s.policies[1], 64, 70, 31, 100).context, 112);
  assert_int_equal(point_session(s.policies[1], 64, 70, 31, 5000).context, 5008);
}

void settings__a_preset_is_a_policy_with_the_budget_of_the_point(void**) {
  const SessionFlags flags = point_session(parse_policy_entry("reason-recall:recall_pages=3"), 512, 70, 31);
  assert_string_equal(flags.policy.c_str(), "arkvale");
  assert_int_equal(flags.budget, 512);
  assert_int_equal(flags.spill_flags, WEIR_SPILL_HALF);
  assert_string_equal(flags.option("recall_pages").c_str(), "3");
}

void problems__question_is_the_end_of_the_prompt(void**) {
  for (const std::string& family : problem_families()) {
    ProblemOptions o;
    o.family = family;
    o.steps = 20;
    const Problem p = make_problem(o);
    const std::string question = p.prompt.substr(p.question_at);
    const std::string wanted = family == "passkey" ? "\nWhat is the pass key?"
                               : family == "early"
                                   ? " Find x" + std::to_string(p.target) + " and x" + std::to_string(p.early) + "."
                                   : " Find x" + std::to_string(p.target) + ".";
    assert_string_equal(question.c_str(), wanted.c_str());
  }
}

ordered_json run(const std::string& id, const std::string& label, uint32_t budget, bool right) {
  return {{"family", "base"}, {"id", id},       {"policy", label},     {"budget", budget},
          {"refused", false}, {"right", right}, {"whole_text", right}, {"n_decode", right ? 100 : 160}};
}

ordered_json refused_run(const std::string& id, const std::string& label, uint32_t budget) {
  return {{"family", "base"}, {"id", id}, {"policy", label}, {"budget", budget}, {"refused", true}, {"message", "no"}};
}

std::vector<ordered_json> some_runs() {
  std::vector<ordered_json> lines;
  for (int i = 0; i < 100; ++i) {
    const std::string id = "p" + std::to_string(i);
    lines.push_back(run(id, "dense", 0, i >= 1));    // 99 %
    lines.push_back(run(id, "small", 64, i >= 4));   // 96 %: three points below
    lines.push_back(run(id, "small", 128, i >= 3));  // 97 %: two points below
    lines.push_back(i < 50 ? refused_run(id, "strict", 64) : run(id, "strict", 64, true));
    lines.push_back(run(id, "strict", 128, i >= 50));
    lines.push_back(refused_run(id, "never", 64));
  }
  return lines;
}

void table__smallest_budget_is_within_two_points_and_refuses_nothing(void**) {
  const Summary s = summarize(some_runs(), {"base"}, {"small", "strict"});
  assert_true(s.labels == (std::vector<std::string>{"small", "strict", "dense", "never"}));
  assert_true(s.budgets == (std::vector<uint32_t>{64, 128}));
  const std::string text = smallest_budgets_text(s);
  assert_string_equal(text.c_str(),
                      "Smallest budget within 2 points of the whole history, by answers without a wrong line\n"
                      "base (dense 99.0%)\n"
                      "  small      128\n  strict    none\n  never     none\n");
}

void table__refused_runs_have_their_own_column(void**) {
  const Summary s = summarize(some_runs(), {}, {});
  const std::string text = table_text(s, {"Right answers, %", "right", 100, 1});
  assert_true(contains(text, "base, n=100"));
  assert_true(contains(text, "dense     99.0\n"));  // the reference comes first and has no budget
  assert_true(contains(text, "never                -          64: 100 of 100\n"));
  assert_true(contains(text, "strict           100.0    50.0  64: 50 of 100\n"));
  const std::string csv = table_csv(s, {"n_decode"}, true);
  assert_true(contains(csv, "\nbase,small,128,100,0,97,0.97,0.01,97,0.97,97,101.8\n"));
  assert_true(contains(csv, "\nbase,never,64,100,100,0,,0.01,0,,0,\n"));
}

// An answer that is right although a line before it is wrong counts as right but not as strictly right; the smallest
// budgets are those for strictly right answers.
void table__strict_answers_have_no_wrong_line(void**) {
  std::vector<ordered_json> lines;
  for (int i = 0; i < 10; ++i) {
    const std::string id = "p" + std::to_string(i);
    lines.push_back(run(id, "dense", 0, true));
    ordered_json lucky = run(id, "lucky", 64, true), wrong = run(id, "lucky", 128, i < 5);
    lucky["wrong_lines"] = i < 7 ? 3 : 0;
    wrong["wrong_lines"] = 0;  // every line as expected, and then another answer
    lines.push_back(lucky);
    lines.push_back(wrong);
  }
  const Summary s = summarize(lines, {}, {});
  const Cell& cell = *s.find("base", "lucky", 64);
  assert_int_equal(cell.n_right(), 10);
  assert_int_equal(cell.n_strict(), 3);
  assert_int_equal(s.find("base", "lucky", 128)->n_strict(), 5);
  assert_true(contains(table_text(s, {"", "strict", 100, 0, true}), "base, n=10, by chance 1\n"));
  assert_true(contains(table_text(s, {"", "strict", 100, 0}), "lucky               30      50\n"));
  assert_true(contains(table_text(s, {"", "right", 100, 0}), "lucky              100      50\n"));
  assert_true(contains(table_csv(s, {}, true),
                       "policy,budget,n,refused,strict,strict_accuracy,chance,right,accuracy,whole_text\n"));
  assert_true(contains(table_csv(s, {}, true), "\nbase,lucky,64,10,0,3,0.3,0.01,10,1,10\n"));
  assert_true(contains(smallest_budgets_text(s), "lucky     none"));
  const std::string svg = budget_plot_svg(s, {"", "", {"", "strict", 100, 0, true}, true});
  assert_true(contains(svg, ">base, by chance 1</text>"));
  assert_true(contains(svg, "stroke-dasharray=\"1 4\""));
  assert_false(contains(budget_plot_svg(s, {"", "", {"", "strict", 100, 0}, true}), "stroke-dasharray=\"1 4\""));
}

void plot__svg_has_a_panel_for_each_and_escapes_text(void**) {
  PlotFigure figure;
  figure.title = "a < b & \"c\"";
  figure.legend = {"one", "two"};
  for (int i = 0; i < 4; ++i) {
    PlotPanel panel;
    panel.title = "panel " + std::to_string(i);
    panel.x.is_log2 = true;
    panel.x.ticks = {64, 128, 256};
    panel.lines.push_back({"end", 1, 1, false, true, {{64, 1}, {128, NAN}, {256, 3}}});
    figure.panels.push_back(panel);
  }
  figure.panels.push_back({});  // without lines
  const std::string svg = plot_svg(figure);
  assert_true(contains(svg, "a &lt; b &amp; &quot;c&quot;"));
  assert_true(contains(svg, "panel 3"));
  assert_false(contains(svg, "nan"));
  assert_false(contains(svg, "inf"));
  // On a logarithmic axis the middle of 64..256 is 128, so the three ticks are evenly apart.
  assert_true(contains(svg, "<text x=\"58.0\"") && contains(svg, "<text x=\"208.0\"") &&
              contains(svg, "<text x=\"358.0\""));
  // The gap leaves two points without a line between them.
  assert_true(contains(svg, "M58.0 ") && contains(svg, "M358.0 "));
}

void forced__divergence_is_that_of_the_definition(void**) {
  const float p[] = {std::log(0.5f), std::log(0.25f), std::log(0.25f)};
  const float q[] = {1 + std::log(0.25f), 1 + std::log(0.5f), 1 + std::log(0.25f)};  // softmax ignores the 1
  const Prediction of_p = prediction(p, 3), of_q = prediction(q, 3);
  assert_int_equal(of_p.best, 0);
  assert_int_equal(of_q.best, 1);
  assert_true(std::abs(of_p.log_p[0] - std::log(0.5)) < 1e-6);
  assert_true(std::abs(of_q.p[1] - 0.5) < 1e-6);
  assert_true(std::abs(kl_divergence(of_p, of_q) - 0.25 * std::log(2.0)) < 1e-6);
  assert_true(kl_divergence(of_p, of_p) == 0.0);
}

void put(std::string& bytes, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(value >> shift);
}

// One layer, two query heads on one KV head, in the format of docs/eval.md. Step 0: pages at 0 and 16, both attended.
// Step 1: the page at 0 has left, pages at 16 and 32, only the second attended.
std::string recording() {
  std::string file("WEIRTRC\0", 8);
  for (uint32_t value : {1u, 1u, 2u, 1u, 16u, 5u, 3u}) put(file, value);
  file += "abc";
  const uint32_t half = 0x3f000000, quarter = 0x3e800000, whole = 0x3f800000;
  const std::vector<std::vector<uint32_t>> blocks = {
      {0, 0, 17, 1, 2, 0, 16, 2, 0, 0, 0, 0, 0, 0, 0xffffffffu, half, half, quarter, quarter},
      {1, 0, 33, 1, 2, 16, 32, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, whole, half}};
  for (const auto& block : blocks) {
    put(file, static_cast<uint32_t>(block.size() * 4));
    for (uint32_t value : block) put(file, value);
  }
  return file;
}

void waterfall__cells_are_those_of_the_recording(void**) {
  const Waterfall w = read_waterfall(write_file("two.trace", recording()), -1, 1);
  assert_int_equal(w.n_steps, 2);
  assert_int_equal(w.n_pages, 3);
  assert_int_equal(w.n_prompt_pages, 1);
  assert_string_equal(w.title.c_str(), "abc, layer 0, head 1");
  assert_true(w.cell(0, 0) == 0.25f && w.cell(1, 0) == 0.25f && w.cell(2, 0) == Waterfall::kAbsent);
  assert_true(w.cell(0, 1) == Waterfall::kAbsent && w.cell(1, 1) == Waterfall::kNotAttended && w.cell(2, 1) == 0.5f);
  assert_true(w.evictions == (std::vector<std::pair<int, int>>{{1, 0}}));
  const PixelImage image = waterfall_pixels(w);
  assert_int_equal(image.width % 2, 0);
  assert_int_equal(image.height % 3, 0);
  assert_int_equal(image.rgb.size(), image.width * image.height * 3);
  const uint8_t* evicted = &image.rgb[(image.width - 1) * 3];  // page 0 in step 1
  assert_true(evicted[0] > 200 && evicted[1] < 50);
}

void waterfall__large_pictures_stay_small_files(void**) {
  Waterfall w;
  w.n_steps = 6000;
  w.n_pages = 500;
  w.cells.resize(3000000);
  uint32_t state = 1;
  for (float& cell : w.cells) {  // no two neighbours alike: nothing to merge
    state = state * 1664525 + 1013904223;
    cell = std::pow(10.0f, -4 * static_cast<float>(state >> 8) / static_cast<float>(1 << 24));
  }
  const std::string svg = waterfall_svg(w);
  assert_true(svg.size() <= 1500000);
  assert_true(svg.ends_with("</svg>\n"));
}

void trace__broken_recordings_are_errors_that_name_the_file(void**) {
  const auto read = [](const std::string& path) { read_trace(path, [](const TraceHeader&, const TraceBlock&) {}); };
  const std::string good = recording();
  const auto changed = [&](size_t at, char value) {
    std::string bytes = good;
    bytes[at] = value;
    return write_file("broken.trace", bytes);
  };
  read(write_file("good.trace", good));
  assert_true(refuses([&] { read(changed(0, 'X')); }, "broken.trace: not a recording"));
  assert_true(refuses([&] { read(changed(8, 9)); }, "format version 9"));
  assert_true(refuses([&] { read(changed(16, 0)); }, "impossible numbers"));             // no query heads
  assert_true(refuses([&] { read(changed(8 + 28 + 3 + 3, 127)); }, "impossible size"));  // of the block
  assert_true(refuses([&] { read(changed(8 + 28 + 3 + 4 + 4, 7)); }, "block 0: layer 7"));
  assert_true(refuses([&] { read(changed(8 + 28 + 3 + 4 + 16, 99)); }, "ends inside a value"));  // pages
  assert_true(refuses([&] { read((g_folder / "none.trace").string()); }, "none.trace"));
  int n_blocks = 0;  // what the end cuts is not there
  read_trace(write_file("torn.trace", good.substr(0, good.size() - 1)),
             [&](const TraceHeader&, const TraceBlock&) { ++n_blocks; });
  assert_int_equal(n_blocks, 1);
}

void png__wrong_sizes_and_folders_are_errors(void**) {
  const std::vector<uint8_t> pixel = {1, 2, 3};
  assert_true(refuses([&] { write_png((g_folder / "no" / "such.png").string(), 1, 1, pixel); }, "such.png"));
  assert_true(refuses([&] { write_png((g_folder / "size.png").string(), 2, 2, pixel); }, "size.png"));
  if (!can_write_png()) return;
  const std::string path = (g_folder / "one.png").string();
  write_png(path, 1, 1, pixel);
  assert_true(fs::file_size(path) > 40);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(settings__policy_entry_has_options_and_a_label),
      cmocka_unit_test(settings__points_are_all_pairs_and_dense_runs_once),
      cmocka_unit_test(settings__a_preset_is_a_policy_with_the_budget_of_the_point),
      cmocka_unit_test(problems__question_is_the_end_of_the_prompt),
      cmocka_unit_test(table__smallest_budget_is_within_two_points_and_refuses_nothing),
      cmocka_unit_test(table__refused_runs_have_their_own_column),
      cmocka_unit_test(table__strict_answers_have_no_wrong_line),
      cmocka_unit_test(plot__svg_has_a_panel_for_each_and_escapes_text),
      cmocka_unit_test(forced__divergence_is_that_of_the_definition),
      cmocka_unit_test(waterfall__cells_are_those_of_the_recording),
      cmocka_unit_test(waterfall__large_pictures_stay_small_files),
      cmocka_unit_test(trace__broken_recordings_are_errors_that_name_the_file),
      cmocka_unit_test(png__wrong_sizes_and_folders_are_errors),
  };
  return cmocka_run_group_tests_name("eval_parts", tests, make_folder, remove_folder);
}
