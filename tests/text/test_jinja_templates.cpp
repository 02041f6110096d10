// text: whole templates, and small ones of one construct each. Every case of tests/golden/templates, and of a folder
// templates beside the project where there is one, gives what Python's jinja2 made of it, or is refused as it is there.
#include <filesystem>
#include <map>
#include <sstream>

#include "tests/text/text_test.h"
#include "text/jinja/jinja.h"
#include "text/json_values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

using namespace weir;
using namespace weir_test;

namespace {

constexpr int64_t kNoon = 1795694400;  // 2026-11-26 12:00

// One line of cases.jsonl: "template", "case", "messages", perhaps "tools", "variables" and "add_generation_prompt",
// then "text", or "error" where the template refuses the messages.
struct Case {
  explicit Case(std::string_view line) : heap(std::pmr::get_default_resource()) {
    assert_true(jinja::read_json(heap, line, "case", object).ok());
    variables = {{"bos_token", jinja::make_text(heap, "<s>", false)},
                 {"eos_token", jinja::make_text(heap, "</s>", false)},
                 {"add_generation_prompt", jinja::Value::boolean(true)}};
    for (const char* name : {"messages", "tools", "add_generation_prompt"}) {
      if (find(name) != nullptr) variables.push_back({name, *find(name)});
    }
    const jinja::Value* more = find("variables");
    if (more == nullptr || !more->is_dict()) return;
    for (const auto& entry : more->dict().entries) variables.push_back({entry.key.view(), entry.value});
  }
  const jinja::Value* find(std::string_view name) const { return object.dict().find(name); }

  jinja::Heap heap;
  jinja::Value object;
  std::vector<jinja::Variable> variables;
};

// How many cases of the folder are right, of how many.
std::pair<int, int> right_cases(const std::string& folder) {
  struct Parsed {
    jinja::Template text{std::pmr::get_default_resource()};
    Status status;
  };
  std::map<std::string, std::unique_ptr<Parsed>> templates;
  std::istringstream lines(read_file(folder + "/cases.jsonl"));
  int n_right = 0, n_cases = 0;
  for (std::string line; std::getline(lines, line); ++n_cases) {
    Case given(line);
    const std::string name(given.find("template")->view());
    auto& parsed = templates[name];
    if (parsed == nullptr) {
      parsed = std::make_unique<Parsed>();
      parsed->status = parsed->text.parse(read_file(folder + "/" + name));
    }
    jinja::RenderedText out(std::pmr::get_default_resource());
    const Status status =
        parsed->status.ok() ? jinja::render(parsed->text, given.heap, given.variables, kNoon, out) : parsed->status;
    const jinja::Value* wanted = given.find("text");
    const bool is_right = status.ok() ? wanted != nullptr && out.text == wanted->view()
                                      : wanted == nullptr && strstr(last_error_text(), ", line ") != nullptr;
    n_right += is_right ? 1 : 0;
    if (!is_right)
      print_message("%s, %s: %s\n", name.c_str(), std::string(given.find("case")->view()).c_str(),
                    status.ok() ? out.text.c_str() : last_error_text());
  }
  print_message("%s: %d of %d\n", folder.c_str(), n_right, n_cases);
  return {n_right, n_cases};
}

void jinja_templates__golden(void**) {
  const auto [n_right, n_cases] = right_cases(WEIR_SOURCE_DIR "/tests/golden/templates");
  assert_true(n_cases >= 40);
  assert_int_equal(n_right, n_cases);
}

// Lines of small.jsonl: the variables, then "source" and "text", or "error" and the "line" of the template.
void jinja_templates__small(void**) {
  std::istringstream lines(read_file(WEIR_SOURCE_DIR "/tests/golden/templates/small.jsonl"));
  std::string variables;
  std::getline(lines, variables);
  int n_wrong = 0, n_cases = 0;
  for (std::string line; std::getline(lines, line); ++n_cases) {
    jinja::Heap heap(std::pmr::get_default_resource());
    jinja::Value given, values;
    assert_true(jinja::read_json(heap, variables, "variables", values).ok());
    assert_true(jinja::read_json(heap, line, "case", given).ok());
    std::vector<jinja::Variable> list;
    for (const auto& entry : values.dict().find("variables")->dict().entries)
      list.push_back({entry.key.view(), entry.value});
    const jinja::Value *text = given.dict().find("text"), *place = given.dict().find("line");
    const std::string source(given.dict().find("source")->view());
    jinja::Template parsed(std::pmr::get_default_resource());
    jinja::RenderedText out(std::pmr::get_default_resource());
    Status status = parsed.parse(source);
    if (status.ok()) status = jinja::render(parsed, heap, list, kNoon, out);
    const std::string wanted = place != nullptr ? "line " + std::to_string(place->integer()) + ":" : "";
    const bool is_right = status.ok() ? text != nullptr && out.text == text->view()
                                      : place != nullptr && strstr(last_error_text(), wanted.c_str()) != nullptr;
    n_wrong += is_right ? 0 : 1;
    if (!is_right) print_message("%s: %s\n", source.c_str(), status.ok() ? out.text.c_str() : last_error_text());
  }
  assert_true(n_cases >= 900);
  assert_int_equal(n_wrong, 0);
}

void jinja_templates__beside_the_project(void**) {
  for (const char* folder : {WEIR_SOURCE_DIR "/../shared/templates", WEIR_SOURCE_DIR "/../../shared/templates"}) {
    if (!std::filesystem::exists(std::string(folder) + "/cases.jsonl")) continue;
    const auto [n_right, n_cases] = right_cases(folder);
    assert_int_equal(n_right, n_cases);
    return;
  }
  skip();
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(jinja_templates__golden),
      cmocka_unit_test(jinja_templates__small),
      cmocka_unit_test(jinja_templates__beside_the_project),
  };
  return cmocka_run_group_tests_name("text/jinja_templates", tests, nullptr, nullptr);
}
