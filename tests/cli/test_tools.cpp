// cli: tools, variables of the chat template and limits of thoughts, of weir run and of lines of --prompts. Mirrors
// tools/weir/tools.cpp. It starts the built program; the model is the embedded tiny reasoner with a template that has
// tools.
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/cli_test.h"

using nlohmann::json;
using namespace weir_cli::test;

namespace {

// Thoughts and calls are text with these tags, so that the tiny model can be made to write both.
constexpr char kTemplate[] =
    "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if thinks %}<mm:think>{% endif %}{% endif %}{# </mm:think> #}";
constexpr char kTools[] =
    R"([{"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties":
    {"zone": {"enum": ["UTC", "local"]}}, "required": ["zone"], "additionalProperties": false}}},
    {"name": "add", "parameters": {"type": "object", "properties": {"b": {"type": "integer", "minimum": 0,
    "maximum": 9}, "a": {"const": 7}}, "required": ["b", "a"], "additionalProperties": false}}])";

std::string g_model;

int make_model(void** state) {
  if (make_folder(state) != 0) return -1;
  g_model = model_with_template("tools.gguf", kTemplate);
  return 0;
}

Output run(const std::vector<std::string>& more, const std::string& input = "") {
  std::vector<std::string> all = {"run", "-m", g_model};
  all.insert(all.end(), more.begin(), more.end());
  return weir(all, input);
}

// With a prompt.
Output ask(std::vector<std::string> more) {
  more.insert(more.end(), {"-p", "Hello"});
  return run(more);
}

json one(const Output& o) {
  assert_works(o);
  return json::parse(o.out);
}

std::vector<json> lines_of(const Output& o) {
  std::vector<json> all;
  std::istringstream in(o.out);
  for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
  return all;
}

// The model is free, and its calls come parsed; here they are what it is made to think last.
void tools__calls_are_parsed(void**) {
  const auto called = [](const std::string& text) {
    return one(ask({"--json", "--tools", kTools, "--var", "thinks=true", "--thinking-budget", "3", "--thinking-close",
                    "</mm:think>Well." + text, "-n", "200"}));
  };
  const json good = called(R"(<tool_call>{"name": "add", "arguments": {"b": 1, "a": "x"}}</tool_call>)"
                           R"(<tool_call>{"name": "get_time", "arguments": {}}</tool_call>)");
  assert_string_equal(good["stop"].get<std::string>().c_str(), "tool_call");
  assert_int_equal(good["calls"].size(), 1);  // of one answer
  const json& calls = good["calls"][0];
  assert_int_equal(calls.size(), 2);
  assert_true(calls[0]["name"] == "add" && calls[1]["name"] == "get_time" && calls[0]["id"] != calls[1]["id"]);
  assert_true(calls[0]["arguments"] == json({{"a", "x"}, {"b", 1}}) && calls[1]["arguments"] == json::object());
  assert_false(good.contains("malformed_call"));
  const json bad = called("<tool_call>{oops</tool_call>");
  assert_true(bad["malformed_call"] == true && bad["calls"] == json::array({json::array()}));
  const Output text = ask({"--tools", kTools, "--var", "thinks=true", "--thinking-budget", "3", "--thinking-close",
                           "</mm:think><tool_call>{oops</tool_call>", "-n", "60"});
  assert_works(text);
  assert_true(contains(text.err, "a call of a tool that cannot be read"));
  const json none = one(ask({"--json", "--tools", kTools, "-n", "3"}));
  assert_true(none["calls"] == json::array({json::array()}) && none["stop"] == "length");
}

void tools__an_answer_can_be_made_a_call(void**) {
  const json any = one(ask({"--json", "--tools", kTools, "--tool-choice", "required"}));
  assert_string_equal(any["stop"].get<std::string>().c_str(), "tool_call");
  assert_int_equal(any["calls"][0].size(), 1);
  const json add = one(ask({"--json", "--tools", kTools, "--tool-choice", "add"}))["calls"][0][0];
  assert_string_equal(add["name"].get<std::string>().c_str(), "add");
  assert_true(add["arguments"]["a"] == 7 && add["arguments"]["b"].is_number_integer() && add["id"].is_string());
  // One that the tools do not let end is no call.
  const json cut = one(ask({"--json", "--tools", kTools, "--tool-choice", "add", "-n", "3"}));
  assert_true(cut["calls"] == json::array({json::array()}) && cut["stop"] == "length");
  // The template has the tools, unless there is none to be called.
  const json shown = one(ask({"--json", "--tools", kTools, "-n", "1"})),
             hidden = one(ask({"--json", "--tools", kTools, "--tool-choice", "none", "-n", "1"})),
             without = one(ask({"--json", "-n", "1"}));
  assert_true(shown["n_prompt"] > without["n_prompt"] && hidden["n_prompt"] == without["n_prompt"]);
  assert_false(hidden.contains("calls"));
  const std::string file = write_file("tools.json", std::string("\xef\xbb\xbf") + kTools);
  assert_true(one(ask({"--json", "--tools", file, "-n", "1"}))["n_prompt"] == shown["n_prompt"]);
}

// Models whose calls have no tags of their own, as Llama's.
void tools__calls_without_tags(void**) {
  const std::string model =
      model_with_template("llama.gguf", std::string(kTemplate) + "{# dictionary of argument name and its value #}");
  const json r = one(weir({"run", "-m", model, "-p", "Hello", "--json", "--tools", kTools, "--tool-choice", "add"}));
  assert_string_equal(r["stop"].get<std::string>().c_str(), "tool_call");
  assert_true(r["calls"][0][0]["name"] == "add" && r["calls"][0][0]["arguments"]["a"] == 7);
}

void tools__that_are_wrong(void**) {
  const auto fails = [](const std::string& tools, const std::vector<std::string>& parts) {
    assert_fails(ask({"--tools", tools}), 2, parts);
  };
  fails((g_folder / "none.json").string(), {"--tools", "none.json"});
  fails(g_folder.string(), {"cannot read"});
  fails(write_file("bad.json", "[\n {\"name\": \"x\",}\n]"), {"bad.json", "line 2, column 15"});
  fails(write_file("object.json", R"({"type": "function", "function": {"name": "x"}})"),
        {"object.json", "not a list of tools"});
  fails(write_file("text.json", "\"x\""), {"text.json", "not a list of tools"});
  fails(write_file("empty.json", ""), {"empty.json", "line 1, column 1"});
  fails(write_file("large.json", "[" + std::string(10 << 20, ' ') + "]"), {"large.json", "1.0 MiB"});
  fails(write_file("deep.json", std::string(1 << 19, '[')), {"deep.json", "nested"});
  fails(write_file("utf8.json", "[{\"name\": \"\xff\"}]"), {"utf8.json", "UTF-8"});
  fails("", {"--tools", "empty"});
  fails("[]", {"empty"});
  fails(R"( {"name": "a"})", {"not a list of tools"});
  fails("[1]", {"tool 1 is not an object"});
  fails(R"([{"name": "a"}, {"nam": "b"}])", {"tool 2 has no \"name\""});
  fails(R"([{"name": "a"}, {"name": "a"}])", {"two tools", "\"a\""});
  fails(R"([{"name": "a", "parameters": "x"}])", {"parameters"});
  fails(R"([{"type": "web_search", "function": {"name": "a"}}])", {"web_search"});
  assert_fails(ask({"--tools", kTools, "--tool-choice", "ad"}), 2, {"\"ad\"", "get_time, add"});
  assert_fails(ask({"--tool-choice", "required"}), 2, {"no tools"});
  assert_fails(ask({"--tools", kTools, "--json-schema", "{}"}), 2, {"exclude each other"});
  assert_fails(ask({"--tools", kTools, "--raw"}), 2, {"--raw"});
  assert_fails(ask({"--tools", kTools, "--resume", "x"}), 2, {"--resume"});
  assert_fails(ask({"--tools", R"([{"name": "a", "parameters": {"uniqueItems": true}}])", "--tool-choice", "a"}), 1,
               {"#/0/parameters", "uniqueItems"});
  assert_fails(weir({"run", "-m", kModel, "-p", "x", "--tools", kTools}), 1, {"no place for tools", "--template"});
  // A template alone does not tell how the model calls.
  const std::string mute = write_file("mute.jinja", "{{ tools | tojson }}{{ messages[0].content }}");
  const std::vector<std::string> line = {"run", "-m", kModel, "-p", "x", "--tools", kTools, "--template", mute};
  assert_fails(weir(line), 1, {"--tool-choice required"});
  std::vector<std::string> must = line;
  must.insert(must.end(), {"--json", "--tool-choice", "add"});
  assert_string_equal(one(weir(must))["calls"][0][0]["name"].get<std::string>().c_str(), "add");
}

// A line is told what helps: another template where this one has no place for tools, which a choice would not help; the
// choice where the model's way of calling is not known.
void prompts__are_told_what_helps(void**) {
  const auto error_of = [](const std::string& fields, const std::vector<std::string>& more) {
    const std::string line = R"({"prompt": "x", "tools": [{"name": "stop"}])" + fields + "}\n";
    std::vector<std::string> all = {"run", "-m", kModel, "--prompts", write_file("told.jsonl", line), "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const json r = lines_of(weir(all)).at(0);
    return r.contains("error") ? r["error"].get<std::string>() : r["calls"][0][0]["name"].get<std::string>();
  };
  for (const char* choice : {"", R"(, "tool_choice": "required")", R"(, "tool_choice": "stop")"}) {
    const std::string error = error_of(choice, {});
    assert_true(contains(error, "tools: the chat template has no place for tools; --template gives another one"));
    assert_false(contains(error, "required"));
  }
  const std::string mute = write_file("mute.jinja", "{{ tools | tojson }}{{ messages[0].content }}");
  assert_true(contains(error_of("", {"--template", mute}), R"("tool_choice": "required" in a line)"));
  assert_string_equal(error_of(R"(, "tool_choice": "required")", {"--template", mute}).c_str(), "stop");
}

void variables__reach_the_template(void**) {
  const std::string file = write_file("x.jinja", "{{ x is string }}{{ x }}{{ y }}|{{ messages[0].content }}");
  const auto n_prompt = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"run", "-m", kModel, "--template", file, "-p", "Hello", "--json", "-n", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return one(weir(all))["n_prompt"].get<int>();
  };
  const auto n_of = [&](const std::string& text) {  // of tokens
    return one(weir({"run", "-m", kModel, "--raw", "-p", text + "|Hello", "--json", "-n", "1"}))["n_prompt"].get<int>();
  };
  assert_int_equal(n_prompt({"--var", "x=10"}), n_of("False10"));
  assert_int_equal(n_prompt({"--var", "x=ten=10 and more"}), n_of("Trueten=10 and more"));
  assert_int_equal(n_prompt({"--var", "x=\"10\"", "--var", "y=[1, 2]"}), n_of("True10[1, 2]"));
  assert_int_equal(n_prompt({"--var", "x="}), n_of("True"));
  const auto fails = [&](const std::vector<std::string>& more, int status, const std::vector<std::string>& parts) {
    std::vector<std::string> all = {"run", "-m", kModel, "--template", file, "-p", "Hello"};
    all.insert(all.end(), more.begin(), more.end());
    assert_fails(weir(all), status, parts);
    all[0] = "chat";
    all.erase(all.begin() + 5, all.begin() + 7);
    assert_fails(weir(all), status, parts);
  };
  fails({"--var", "z=1"}, 1, {"--var: the chat template never reads \"z\""});
  fails({"--var", "x"}, 2, {"--var x", "KEY=VALUE"});
  fails({"--var", "=1"}, 2, {"KEY=VALUE"});
  fails({"--var", "x=1", "--var", "x=2"}, 2, {"--var x=2", "before"});
  fails({"--var", "x=False"}, 2, {"as JSON it is false"});
  fails({"--var", "x={a: 1}"}, 2, {"not valid JSON"});
  fails({"--var", "x=\xff"}, 2, {"UTF-8"});
  fails({"--var", "messages=[]"}, 2, {"messages"});
  assert_fails(ask({"--raw", "--var", "x=1"}), 2, {"--raw"});
}

void thoughts__have_a_budget(void**) {
  const std::string problem = short_problem().prompt;
  const auto answer = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"run", "-m", kModel, "-p", problem, "--json", "-n", "60", "--thinking-budget"};
    all.insert(all.end(), more.begin(), more.end());
    return one(weir(all))["text"].get<std::string>();
  };
  const std::string cut = answer({"5"}), told = answer({"5", "--thinking-close", " Time is up."});
  assert_true(cut.starts_with("<think>") && cut.find("</think>") < 40);
  assert_true(told.find(" Time is up.</think>") < 60);
  const auto fails = [](const std::vector<std::string>& more, int status, const std::string& part) {
    std::vector<std::string> all = {"run", "-m", kModel, "-p", "x"};
    all.insert(all.end(), more.begin(), more.end());
    assert_fails(weir(all), status, {part});
  };
  fails({"--thinking-budget", "0"}, 2, "--thinking-budget");
  fails({"--thinking-close", "x"}, 2, "--thinking-budget");
  // A model that has no thoughts: neither its template nor its tokens have a tag.
  std::string bytes = read_file(kModel);
  for (const std::string& tag : {std::string("<think>"), std::string("</think>")})
    bytes.replace(bytes.find(tag), tag.size(), std::string(tag.size(), '~'));
  const std::string dull = write_file("dull.gguf", bytes);
  for (const char* command : {"run", "chat"}) {
    const Output o = weir({command, "-m", dull, "--thinking-budget", "5"}, "Hello\n");
    assert_fails(o, 1, {"--thinking-budget", "WEIR_ERR_UNSUPPORTED"});
  }
}

// A line has its own tools, variables and messages of tools; what is wrong is told with the line, which alone fails.
void prompts__have_tools_and_variables(void**) {
  const std::string tool = R"("tools": [{"name": "stop"}])";
  const std::vector<std::string> lines = {
      R"({"id": 0, "prompt": "x", )" + tool + R"(, "tool_choice": "required"})",
      R"({"id": 1, "prompt": "x", "tool_choice": "add"})",
      R"({"id": 2, "prompt": "x", "tools": null, "json_schema": {"const": 5}})",
      R"({"id": 3, "prompt": "x", "variables": {"thinks": true}, "max_tokens": 1})",
      R"({"id": 4, "prompt": "x", "max_tokens": 1})",
      R"({"id": 5, "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": null, "tool_calls":
          [{"id": "call00001", "type": "function", "function": {"name": "stop", "arguments": "{}"}}]}, {"role": "tool",
          "tool_call_id": "call00001", "content": "done"}], "max_tokens": 1})",
      R"({"id": 6, "prompt": "x", "json_schema": {"const": 5}})",
      R"({"id": 7, "prompt": "x", "tool_choice": "no such"})",
      R"({"id": 8, "prompt": "x", "tools": {"name": "stop"}})",
      R"({"id": 9, "prompt": "x", "variables": {"thinkss": true}})",
      R"({"id": 10, "prompt": "x", "variables": [1]})",
      R"({"id": 11, "prompt": "x", "tool": []})",
      R"({"id": 12, "messages": [{"role": "user", "content": "x", "tool_calls": [{"name": "stop"}]}]})",
      R"({"id": 13, "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": {}}]})",
      R"({"id": 14, "prompt": "x", "json_schema": )" + std::string(100000, '[') + "}",
  };
  std::string text;
  for (const std::string& line : lines) {
    std::string flat = line;
    for (char& c : flat) c = c == '\n' ? ' ' : c;
    text += flat + "\n";
  }
  const Output o = run({"--prompts", write_file("lines.jsonl", text), "--json", "--tools", kTools});
  assert_status(o, 1);
  const std::vector<json> r = lines_of(o);
  assert_int_equal(r.size(), lines.size());
  for (size_t i = 0; i < 6; ++i) assert_false(r[i].contains("error"));
  assert_string_equal(r[0]["calls"][0][0]["name"].get<std::string>().c_str(), "stop");
  assert_string_equal(r[1]["calls"][0][0]["name"].get<std::string>().c_str(), "add");
  assert_true(r[2]["text"] == "5" && !r[2].contains("calls"));
  assert_true(r[3]["n_prompt"] > r[4]["n_prompt"] && r[5]["n_prompt"] > r[4]["n_prompt"]);
  const std::vector<std::vector<std::string>> wrong = {{"exclude each other"},
                                                       {"\"no such\"", "get_time, add"},
                                                       {"\"tools\"", "not a list"},
                                                       {"\"thinkss\""},
                                                       {"\"variables\""},
                                                       {"\"tool\" is no field"},
                                                       {"\"tool_calls\" is no field of a message of the role user"},
                                                       {"\"tool_calls\""},
                                                       {"nested"}};
  for (size_t i = 0; i < wrong.size(); ++i) {
    const std::string error = r[6 + i]["error"].get<std::string>();
    if (!contains(error, "lines.jsonl:" + std::to_string(7 + i) + ": ")) fail_msg("no line: %s", error.c_str());
    for (const std::string& part : wrong[i]) {
      if (!contains(error, part)) fail_msg("\"%s\" is not in: %s", part.c_str(), error.c_str());
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(tools__calls_are_parsed),       cmocka_unit_test(tools__an_answer_can_be_made_a_call),
      cmocka_unit_test(tools__calls_without_tags),     cmocka_unit_test(tools__that_are_wrong),
      cmocka_unit_test(variables__reach_the_template), cmocka_unit_test(thoughts__have_a_budget),
      cmocka_unit_test(prompts__are_told_what_helps),  cmocka_unit_test(prompts__have_tools_and_variables),
  };
  return cmocka_run_group_tests_name("cli/tools", tests, make_model, remove_folder);
}
