// cli: weir template. Mirrors tools/weir/template.cpp.
#include <string>
#include <vector>

#include "tests/cli/cli_test.h"

using namespace weir_cli::test;

namespace {

void assert_text(const Output& o, const std::string& text) {
  assert_works(o);
  assert_string_equal(o.out.c_str(), text.c_str());
}

void template__renders_all_that_a_request_has(void**) {
  const std::string file = write_file(
      "x.jinja",
      "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ m.calls | tojson if m.calls }}{% endfor %}"
      "{{ tools | tojson }} {{ x }} {{ eos_token }} {{ strftime_now('%Y-%m-%d') }}{{ '!' if add_generation_prompt "
      "}}\n");
  assert_text(weir({"template", "--template", file},
                   R"({"messages": [{"role": "user", "content": "é"}, {"role": "a", "calls": [{"b": 1.0, "a": 2}]}],
                       "tools": [1], "variables": {"x": "y"}, "bos_token": "<s>", "eos_token": "</s>",
                       "unix_time": 1795694400})"),
              "<s><user>é<a>[{\"b\": 1.0, \"a\": 2}][1] y </s> 2026-11-26!");
  assert_text(weir({"template", "--template", file},
                   R"({"messages": [], "tools": null, "add_generation_prompt": false, "unix_time": 86400})"),
              "null   1970-01-02");
}

void template__takes_the_tokens_of_a_model(void**) {
  const std::string file = write_file("x.jinja", "{{ bos_token }}|{{ eos_token }}|{{ messages | length }}");
  const Output own = weir({"template", "-m", kModel}, R"({"messages": [{"role": "user", "content": "Hello"}]})");
  assert_works(own);
  assert_true(contains(own.out, "Hello"));
  const Output with = weir({"template", "-m", kModel, "--template", file}, R"({"messages": []})");
  assert_works(with);
  assert_true(with.out.size() > std::string("||0").size() && with.out.ends_with("|0"));
}

void template__refuses_with_line_and_words(void**) {
  const std::string file = write_file(
      "x.jinja", "{% if not messages %}\n{{ raise_exception('say ' ~ 'something') }}\n{% endif %}\n{{ a.b.c }}");
  const std::vector<std::string> line = {"template", "--template", file};
  assert_fails(weir(line, R"({"messages": []})"), 1, {"line 2", "say something"});
  assert_fails(weir(line, R"({"messages": [1]})"), 1, {"line 4", "'a' is undefined"});
  const std::string broken = write_file("broken.jinja", "\n\n{% if %}");
  assert_fails(weir({"template", "--template", broken}, "{}"), 1, {"line 3", "expected"});
  const std::string endless = write_file("endless.jinja", "{% macro m() %}{{ m() }}{% endmacro %}\n{{ m() }}");
  assert_fails(weir({"template", "--template", endless}, "{}"), 1, {"nested too deeply"});
}

void template__refuses_bad_requests(void**) {
  const std::string file = write_file("x.jinja", "x");
  const std::vector<std::string> line = {"template", "--template", file};
  assert_fails(weir(line, "no"), 1, {"standard input: not valid JSON: parse error at line 1, column 2"});
  assert_fails(weir(line, "\n"), 1, {"standard input is empty"});
  assert_fails(weir(line, R"({"tools": )" + std::string(100000, '[') + std::string(100000, ']') + "}"), 1, {"nested"});
  assert_fails(weir(line, R"({"unix_time": 1e300})"), 1, {"unix_time"});
  assert_fails(weir(line, R"({"unix_time": 18446744073709551615})"), 1, {"unix_time"});
  assert_fails(weir(line, "[1]"), 1, {"an object"});
  assert_fails(weir(line, R"({"message": []})"), 1, {"\"message\" is not known"});
  assert_fails(weir(line, R"({"variables": [1]})"), 1, {"\"variables\" is no object"});
  assert_fails(weir(line, R"({"unix_time": "now"})"), 1, {"unix_time"});
  assert_fails(weir({"template"}, "{}"), 2, {"--template"});
  assert_fails(weir({"template", "--template", (g_folder / "none").string()}, "{}"), 1, {"/none", "chatml, llama3"});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(template__renders_all_that_a_request_has),
      cmocka_unit_test(template__takes_the_tokens_of_a_model),
      cmocka_unit_test(template__refuses_with_line_and_words),
      cmocka_unit_test(template__refuses_bad_requests),
  };
  return cmocka_run_group_tests_name("cli/template", tests, make_folder, remove_folder);
}
