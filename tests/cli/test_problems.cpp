// cli: problems. Mirrors tools/lab/problems.cpp. The golden texts are in the formats that tools/tiny_reasoner
// trains on.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../tools/lab/problems.h"

using namespace weir_cli;

namespace {

ProblemOptions options_of(const std::string& family, int steps, uint64_t seed) {
  ProblemOptions o;
  o.family = family;
  o.steps = steps;
  o.seed = seed;
  return o;
}

std::string replaced(std::string text, const std::string& old_part, const std::string& new_part) {
  const size_t at = text.rfind(old_part);
  assert_true(at != std::string::npos);
  return text.replace(at, old_part.size(), new_part);
}

Problem golden_base() { return base_problem({89, 57, 34, 92}, 4, '+', 5, 6); }

void problems__base_golden(void**) {
  const Problem p = golden_base();
  assert_string_equal(p.prompt.c_str(),
                      "Start: x0 = 89, x1 = 57, x2 = 34, x3 = 92. Rule: x[n] = x[n-4] + x[k], with k the last "
                      "multiple of 5 before n. Work modulo 100. Find x6.");
  assert_string_equal(p.answer.c_str(),
                      "<think>\n"
                      "x4 = x0 + x0 = 89 + 89 = 78.\n"
                      "x5 = x1 + x0 = 57 + 89 = 46.\n"
                      "x6 = x2 + x5 = 34 + 46 = 80.\n"
                      "</think>\n"
                      "x6 = 80.");
  assert_string_equal(p.final_answer.c_str(), "x6 = 80.");
}

void problems__rule_golden(void**) {
  const Problem p = rule_problem({97, 57, 60}, 3, '-', 1, 13, 6);
  assert_string_equal(p.prompt.c_str(),
                      "Start: x0 = 97, x1 = 57, x2 = 60. Rule: x[n] = x[n-3] - x[n-1]. Work modulo 100. "
                      "Find x13 and x6.");
  assert_string_equal(p.answer.c_str(),
                      "<think>\n"
                      "x3 = x0 - x2 = 97 - 60 = 37.\n"
                      "x4 = x1 - x3 = 57 - 37 = 20.\n"
                      "x5 = x2 - x4 = 60 - 20 = 40.\n"
                      "x6 = x3 - x5 = 37 - 40 = 97.\n"
                      "x7 = x4 - x6 = 20 - 97 = 23.\n"
                      "x8 = x5 - x7 = 40 - 23 = 17.\n"
                      "x9 = x6 - x8 = 97 - 17 = 80.\n"
                      "x10 = x7 - x9 = 23 - 80 = 43.\n"
                      "x11 = x8 - x10 = 17 - 43 = 74.\n"
                      "x12 = x9 - x11 = 80 - 74 = 6.\n"
                      "x13 = x10 - x12 = 43 - 6 = 37.\n"
                      "</think>\n"
                      "x13 = 37, x6 = 97.");
}

void problems__facts_golden(void**) {
  std::vector<ChainStep> steps(5);
  steps[0].value = 57;
  steps[1].value = 34;
  steps[2] = {0, 0, '-', 0};
  steps[3] = {2, 2, '*', 0};
  steps[4] = {0, 1, '*', 0};
  const Problem p = facts_problem(steps, {3, 1, 4, 0, 2}, 4);
  assert_string_equal(p.prompt.c_str(),
                      "Facts: x3 = x2 * x2; x1 = 34; x4 = x0 * x1; x0 = 57; x2 = x0 - x0. Work modulo 100. Find x4.");
  assert_string_equal(p.answer.c_str(),
                      "<think>\n"
                      "x0 = 57.\n"
                      "x1 = 34.\n"
                      "x2 = x0 - x0 = 57 - 57 = 0.\n"
                      "x3 = x2 * x2 = 0 * 0 = 0.\n"
                      "x4 = x0 * x1 = 57 * 34 = 38.\n"
                      "</think>\n"
                      "x4 = 38.");
}

void problems__chain_line_with_two_operands_golden(void**) {
  std::vector<ChainStep> steps(39);
  steps[3].value = 34;
  steps[21].value = 17;
  steps[35].value = 42;
  steps[38] = {35, 21, '+', 0};
  std::vector<int> order(39);
  std::iota(order.begin(), order.end(), 0);
  const Problem p = facts_problem(steps, order, 38);
  assert_true(p.answer.find("\nx38 = x35 + x21 = 42 + 17 = 59.\n</think>\n") != std::string::npos);
  assert_true(p.answer.find("\nx3 = 34.\n") != std::string::npos);
}

void problems__passkey_has_the_form(void**) {
  ProblemOptions o = options_of("passkey", 0, 5);
  o.passkey_tokens = 200;
  o.passkey_depth = 0.5;
  const Problem p = make_problem(o);
  assert_int_equal(p.passkey.size(), 5);
  const std::string head = "A pass key is hidden in this long text. Find it and keep it in mind.\n";
  const std::string key = "\nThe pass key is " + p.passkey + ". Remember it. " + p.passkey + " is the pass key.\n";
  const std::string tail = "\nWhat is the pass key?";
  assert_int_equal(p.prompt.compare(0, head.size(), head), 0);
  assert_true(p.prompt.find(key) != std::string::npos);
  assert_int_equal(p.prompt.compare(p.prompt.size() - tail.size(), tail.size(), tail), 0);
  assert_string_equal(p.answer.c_str(), ("The pass key is " + p.passkey + ".").c_str());
  // Half of the filler, to within a round of five sentences, is on either side.
  const size_t at = p.prompt.find(key);
  const size_t before = at - head.size();
  const size_t after = p.prompt.size() - tail.size() - at - key.size();
  assert_true(before + 120 > after && after + 120 > before);
}

void problems__passkey_grows_with_the_tokens_asked_for(void**) {
  ProblemOptions o = options_of("passkey", 0, 5);
  o.passkey_tokens = 1000;
  const size_t small = make_problem(o).prompt.size();
  o.passkey_tokens = 10000;
  const size_t large = make_problem(o).prompt.size();
  assert_true(large > 9 * small && large < 12 * small);
}

// The numbers must never change: results are compared between releases and between machines.
void problems__a_seed_gives_the_same_problem_everywhere(void**) {
  ProblemOptions o = options_of("rule", 3, 1);
  o.lag = 4;
  assert_string_equal(make_problem(o).prompt.c_str(),
                      "Start: x0 = 88, x1 = 28, x2 = 12, x3 = 79. Rule: x[n] = x[n-4] - x[n-3]. Work modulo 100. "
                      "Find x6.");
  o = options_of("base", 3, 1);
  assert_string_equal(make_problem(o).prompt.c_str(),
                      "Start: x0 = 77. Rule: x[n] = x[n-1] + x[k], with k the last multiple of 50 before n. Work "
                      "modulo 100. Find x3.");
  assert_string_equal(make_problem(options_of("facts", 6, 1)).prompt.c_str(),
                      "Facts: x2 = x0 + x1; x5 = x1 + x1; x0 = 85; x3 = x2 + x1; x4 = x2 - x0; x1 = 79. Work "
                      "modulo 100. Find x5.");
  assert_string_equal(make_problem(options_of("hubs", 6, 1)).prompt.c_str(),
                      "Facts: x3 = x2 + x0; x1 = 24; x0 = 76; x5 = x3 * x1; x2 = x0 - x0; x4 = x2 * x1. Work "
                      "modulo 100. Find x5.");
  o = options_of("passkey", 0, 1);
  o.passkey_tokens = 100;
  assert_string_equal(make_problem(o).prompt.c_str(),
                      "A pass key is hidden in this long text. Find it and keep it in mind.\nThe sky is blue. The "
                      "road is long. Birds fly south. There and back again. Here we go.\nThe pass key is 35335. "
                      "Remember it. 35335 is the pass key.\nThe sky is blue. The road is long. Birds fly south. "
                      "There and back again. Here we go.\nWhat is the pass key?");
}

void problems__seeds_and_families_differ(void**) {
  std::set<std::string> prompts;
  for (const std::string& family : problem_families()) {
    for (uint64_t seed = 0; seed < 20; ++seed) prompts.insert(make_problem(options_of(family, 30, seed)).prompt);
  }
  assert_int_equal(prompts.size(), 20 * problem_families().size());
}

void problems__lag_and_every_are_obeyed(void**) {
  ProblemOptions o = options_of("rule", 120, 3);
  o.lag = 12;
  Problem p = make_problem(o);
  assert_int_equal(p.first_line, 12);
  assert_int_equal(p.target, 131);
  assert_true(p.prompt.find("x11 = ") != std::string::npos && p.prompt.find("x12 = ") == std::string::npos);
  assert_true(p.prompt.find("x[n] = x[n-12] ") != std::string::npos);
  o = options_of("base", 50, 3);
  o.lag = 2;
  o.every = 7;  // not one of the drawn distances
  p = make_problem(o);
  assert_true(p.prompt.find("the last multiple of 7 before n.") != std::string::npos);
  assert_int_equal(p.steps[14].right, 7);  // a milestone still uses the one before it
  assert_int_equal(p.steps[15].right, 14);
  assert_int_equal(p.steps[15].left, 13);
}

void problems__drawn_problems_are_well_formed(void**) {
  for (const std::string& family : problem_families()) {
    if (family == "passkey") continue;
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const Problem p = make_problem(options_of(family, 200, seed));
      assert_true(p.target <= kMaxIndex);
      assert_int_equal(p.target - p.first_line + 1, 200);
      assert_int_equal(std::count(p.answer.begin(), p.answer.end(), '\n'), 200 + 2);
      assert_true((family == "early") == (p.early >= 0));
      if (p.early >= 0) assert_true(p.early >= p.first_line && p.early < p.target);
      for (int i = 0; i <= p.target; ++i) {
        const ChainStep& s = p.steps[static_cast<size_t>(i)];
        assert_true(s.value >= 0 && s.value < kModulus && s.left < i && s.right < i);
      }
      int n_wrong = -1;
      assert_true(answer_is_right(p, p.answer, &n_wrong));
      assert_int_equal(n_wrong, 0);
    }
  }
}

// The answer is never written in the prompt. (One value in twenty is given, so without care some of these would be.)
void problems__the_value_asked_for_is_never_given(void**) {
  for (const char* family : {"facts", "hubs"}) {
    for (int steps : {3, 40}) {
      int n_given = 0;
      for (uint64_t seed = 0; seed < 300; ++seed) {
        const Problem p = make_problem(options_of(family, steps, seed));
        const ChainStep& asked = p.steps[static_cast<size_t>(p.target)];
        assert_true(asked.left >= 0 && asked.right >= 0);
        const std::string given = "x" + std::to_string(p.target) + " = " + std::to_string(asked.value);
        assert_true(p.prompt.find(given + ";") == std::string::npos && p.prompt.find(given + ".") == std::string::npos);
        for (const ChainStep& s : p.steps) n_given += s.left < 0 ? 1 : 0;
      }
      if (steps == 40) assert_true(n_given > 300 * 3 && n_given < 300 * 5);  // two, and a twentieth of 37
    }
  }
}

// What guesses reach: counted over drawn values, for the families whose values are even.
void problems__chance_is_that_of_guessing(void**) {
  for (const std::string& family : problem_families()) {
    const double want = family == "passkey" ? 1.0 / 90000 : family == "early" || family == "followup" ? 1e-4 : 0.01;
    assert_true(std::fabs(chance_level(family) - want) < 1e-12);
  }
  int n_right = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    const Problem p = make_problem(options_of("rule", 4, seed));
    n_right += p.steps[static_cast<size_t>(p.target)].value == static_cast<int>(seed % 100) ? 1 : 0;
  }
  assert_true(n_right > 140 && n_right < 260);
}

void problems__hubs_serve_many_lines(void**) {
  const Problem p = make_problem(options_of("hubs", 200, 9));
  std::vector<int> uses(200, 0);
  for (const ChainStep& s : p.steps) {
    if (s.right >= 0) ++uses[static_cast<size_t>(s.right)];
  }
  assert_true(*std::max_element(uses.begin(), uses.end()) >= 10);
}

void problems__wrong_final_answer_is_seen(void**) {
  const Problem p = golden_base();
  int n_wrong = -1;
  assert_false(answer_is_right(p, replaced(p.answer, "x6 = 80.", "x6 = 81."), &n_wrong));
  assert_int_equal(n_wrong, 0);
  assert_false(answer_is_right(p, replaced(p.answer, "x6 = 80.", "x6 = 8."), nullptr));
  assert_false(answer_is_right(p, replaced(p.answer, "x6 = 80.", "x6 = 800."), nullptr));
  assert_false(answer_is_right(p, replaced(p.answer, "x6 = 80.", "x6 = 80. x6 = 81."), nullptr));
  assert_false(answer_is_right(p, replaced(p.answer, "x6 = 80.", "x5 = 80."), nullptr));
  assert_true(answer_is_right(p, p.answer + "<|im_end|>\n", nullptr));
}

void problems__unfinished_answer_is_wrong(void**) {
  const Problem p = golden_base();
  int n_wrong = -1;
  assert_false(answer_is_right(p, p.answer.substr(0, p.answer.find("</think>")), &n_wrong));
  assert_int_equal(n_wrong, 0);
  assert_false(answer_is_right(p, "", &n_wrong));
  assert_int_equal(n_wrong, 3);
}

void problems__wrong_lines_are_counted(void**) {
  const Problem p = golden_base();
  const std::string line = "x5 = x1 + x0 = 57 + 89 = 46.\n";
  const auto wrong_lines = [&](const std::string& text) {
    int n_wrong = -1;
    assert_true(answer_is_right(p, text, &n_wrong));  // the end is right all the same
    return n_wrong;
  };
  assert_int_equal(wrong_lines(replaced(p.answer, line, "x5 = x1 + x0 = 57 + 89 = 47.\n")), 1);
  assert_int_equal(wrong_lines(replaced(p.answer, line, "x5 = x2 + x0 = 57 + 89 = 46.\n")), 1);
  assert_int_equal(wrong_lines(replaced(p.answer, line, "")), 1);
  assert_int_equal(wrong_lines(replaced(p.answer, line, line + line)), 1);
  assert_int_equal(wrong_lines(replaced(p.answer, line, line + "x7 = 1.\nwell\n")), 2);
  assert_int_equal(wrong_lines(replaced(p.answer, line, "x99999999999999999999 = 1.\n")), 2);
}

void problems__early_value_must_be_right_too(void**) {
  const Problem p = rule_problem({97, 57, 60}, 3, '-', 1, 13, 6);
  assert_true(answer_is_right(p, p.answer, nullptr));
  assert_false(answer_is_right(p, replaced(p.answer, ", x6 = 97", ""), nullptr));
  assert_false(answer_is_right(p, replaced(p.answer, ", x6 = 97", ", x6 = 79"), nullptr));
}

void problems__passkey_verdict(void**) {
  ProblemOptions o = options_of("passkey", 0, 2);
  o.passkey_tokens = 100;
  const Problem p = make_problem(o);
  int n_wrong = -1;
  assert_true(answer_is_right(p, p.answer, &n_wrong));
  assert_int_equal(n_wrong, 0);
  assert_true(answer_is_right(p, "It is " + p.passkey, nullptr));
  assert_true(answer_is_right(p, "<think>\n1, 2, 3\n</think>\n" + p.passkey, nullptr));
  assert_false(answer_is_right(p, p.passkey + " or 12345", nullptr));
  assert_false(answer_is_right(p, p.passkey.substr(0, 4), nullptr));
  assert_false(answer_is_right(p, "The pass key is lost.", nullptr));
}

void problems__follow_up_asks_for_a_value_of_the_first_half(void**) {
  const Problem p = make_problem(options_of("rule", 100, 4));
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const FollowUp f = make_follow_up(p, seed);
    assert_true(f.index >= p.first_line && f.index < p.first_line + 50);
    const std::string name = "x" + std::to_string(f.index);
    const std::string value = std::to_string(p.steps[static_cast<size_t>(f.index)].value);
    assert_string_equal(f.question.c_str(), ("What was " + name + "?").c_str());
    assert_string_equal(f.answer.c_str(), (name + " = " + value + ".").c_str());
    assert_true(follow_up_is_right(f, f.answer));
    assert_false(follow_up_is_right(f, name + " = 1" + value + "."));
  }
  assert_int_equal(make_follow_up(make_problem(options_of("passkey", 0, 1)), 1).index, -1);
  for (const std::string& family : problem_families()) {
    const Problem p = make_problem(options_of(family, 40, 5));
    assert_int_equal(p.follow_up.index >= 0, family == "followup");
    if (family != "followup") continue;
    assert_true(p.follow_up.index >= p.first_line && p.follow_up.index < p.first_line + 20);
    assert_true(follow_up_is_right(p.follow_up, p.follow_up.answer));
    assert_true(p.id.starts_with("followup-s40-l") && p.early < 0);
  }
}

void problems__bad_options_are_named(void**) {
  struct Row {
    const char* field;
    ProblemOptions options;
  };
  std::vector<Row> rows(11);
  rows[0] = {"family", options_of("riddle", 10, 1)};
  rows[1] = {"steps", options_of("rule", 1, 1)};
  rows[2] = {"steps", options_of("facts", 991, 1)};
  for (int lag : {1, 41}) {
    Row& row = rows[lag == 1 ? 3 : 4];
    row = {"lag", options_of("rule", 10, 1)};
    row.options.lag = lag;
  }
  rows[5] = {"lag", options_of("base", 10, 1)};
  rows[5].options.lag = 5;
  rows[6] = {"every", options_of("base", 10, 1)};
  rows[6].options.every = 1;
  rows[7] = {"passkey_tokens", options_of("passkey", 10, 1)};
  rows[7].options.passkey_tokens = 99;
  rows[8] = {"passkey_depth", options_of("passkey", 10, 1)};
  rows[8].options.passkey_depth = std::nan("");
  rows[9] = {"steps is 2, must be 3", options_of("facts", 2, 1)};
  rows[10] = {"steps is 2, must be 3", options_of("hubs", 2, 1)};
  for (const Row& row : rows) {
    const std::string said = check_problem_options(row.options);
    assert_int_equal(said.compare(0, std::string(row.field).size(), row.field), 0);
    bool thrown = false;
    try {
      make_problem(row.options);
    } catch (const std::invalid_argument& e) {
      thrown = said == e.what();
    }
    assert_true(thrown);
  }
  ProblemOptions longest = options_of("rule", 980, 1);
  longest.lag = 20;
  assert_int_equal(make_problem(longest).target, kMaxIndex);
  longest.lag = 21;
  assert_false(check_problem_options(longest).empty());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(problems__base_golden),
      cmocka_unit_test(problems__rule_golden),
      cmocka_unit_test(problems__facts_golden),
      cmocka_unit_test(problems__chain_line_with_two_operands_golden),
      cmocka_unit_test(problems__passkey_has_the_form),
      cmocka_unit_test(problems__passkey_grows_with_the_tokens_asked_for),
      cmocka_unit_test(problems__a_seed_gives_the_same_problem_everywhere),
      cmocka_unit_test(problems__seeds_and_families_differ),
      cmocka_unit_test(problems__lag_and_every_are_obeyed),
      cmocka_unit_test(problems__drawn_problems_are_well_formed),
      cmocka_unit_test(problems__the_value_asked_for_is_never_given),
      cmocka_unit_test(problems__chance_is_that_of_guessing),
      cmocka_unit_test(problems__hubs_serve_many_lines),
      cmocka_unit_test(problems__wrong_final_answer_is_seen),
      cmocka_unit_test(problems__unfinished_answer_is_wrong),
      cmocka_unit_test(problems__wrong_lines_are_counted),
      cmocka_unit_test(problems__early_value_must_be_right_too),
      cmocka_unit_test(problems__passkey_verdict),
      cmocka_unit_test(problems__follow_up_asks_for_a_value_of_the_first_half),
      cmocka_unit_test(problems__bad_options_are_named),
  };
  return cmocka_run_group_tests_name("cli problems", tests, nullptr, nullptr);
}
