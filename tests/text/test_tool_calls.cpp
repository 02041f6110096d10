// text: answers as messages. Every line of tests/golden/calls gives its content, thought and calls, whatever way the
// text is cut; so do the calls that chat templates of models write, where their folder is beside the project.
#include <filesystem>
#include <map>
#include <random>
#include <sstream>

#include "tests/text/text_test.h"
#include "text/answer_message.h"
#include "text/jinja/jinja.h"
#include "text/json_values.h"
#include "text/tool_calls/transcode.h"

#include "tests/cmocka_cpp.h"

using namespace weir;
using namespace weir_test;

namespace {

using jinja::Value;

// The JSON of a value, in one way of writing it.
std::string written(jinja::Heap& heap, const Value& value) {
  jinja::Template writes(std::pmr::get_default_resource());
  assert_true(writes.parse("{{ value | tojson }}").ok());
  const jinja::Variable variable = {"value", value};
  jinja::RenderedText text(std::pmr::get_default_resource());
  assert_true(jinja::render(writes, heap, {&variable, 1}, 0, text).ok());
  return std::string(text.text);
}

Value parsed(jinja::Heap& heap, std::string_view json) {
  Value value;
  if (!jinja::read_json(heap, json, "calls", value).ok()) print_error("%.*s\n", int(json.size()), json.data());
  assert_true(jinja::read_json(heap, json, "calls", value).ok());
  return value;
}

// An answer in pieces, as the parts of a message.
std::unique_ptr<AnswerMessage> read(const AnswerFormat& format, const std::vector<std::string_view>& pieces) {
  auto message = std::make_unique<AnswerMessage>(std::pmr::get_default_resource(), format.form, 36);
  auto parts = std::make_unique<AnswerParts>();
  AnswerParts::Piece piece;
  parts->begin(format, {});
  for (const std::string_view text : pieces) {
    parts->push(-1, text, "");
    parts->allow(text.size());
    while (parts->take(piece)) message->add(piece);
  }
  parts->finish("");
  while (parts->take(piece)) message->add(piece);
  message->finish();
  return message;
}

std::vector<std::string_view> cut(std::string_view text, uint32_t most, std::mt19937& random) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t n = std::min<size_t>(text.size(), 1 + random() % most);
    pieces.push_back(text.substr(0, n));
    text.remove_prefix(n);
  }
  return pieces;
}

// Whether the calls are the wanted ones; ids only where those have some.
bool same_calls(const char* json, const Value* wanted) {
  if (json == nullptr || wanted == nullptr) return json == nullptr && wanted == nullptr;
  jinja::Heap heap(std::pmr::get_default_resource());
  const Value got = parsed(heap, json);
  if (got.sequence().items.size() != wanted->sequence().items.size()) return false;
  for (size_t i = 0; i < got.sequence().items.size(); ++i) {
    const jinja::Dict &a = got.sequence().items[i].dict(), &b = wanted->sequence().items[i].dict();
    const Value* id = b.find("id");
    if (a.find("id")->view().empty() || (id != nullptr && a.find("id")->view() != id->view())) return false;
    if (id == nullptr && a.find("id")->view() != "call0001" + std::string(1, static_cast<char>('0' + i))) return false;
    if (a.find("name")->view() != b.find("name")->view()) return false;
    if (written(heap, *a.find("arguments")) != written(heap, *b.find("arguments"))) return false;
  }
  return true;
}

std::string_view text_of(const jinja::Dict& dict, std::string_view name) {
  const Value* value = dict.find(name);
  return value == nullptr ? std::string_view() : value->view();
}

bool is_right(const AnswerMessage& got, const jinja::Dict& wanted) {
  return got.content() == text_of(wanted, "content") && got.thought() == text_of(wanted, "thought") &&
         got.is_malformed() == (wanted.find("malformed") != nullptr) && same_calls(got.calls(), wanted.find("calls"));
}

void tool_calls__golden(void**) {
  std::istringstream lines(read_file(WEIR_SOURCE_DIR "/tests/golden/calls/calls.jsonl"));
  std::mt19937 random(3);
  std::map<std::string, std::pair<int, int>> table;
  for (std::string line; std::getline(lines, line);) {
    jinja::Heap heap(std::pmr::get_default_resource());
    const Value object = parsed(heap, line);
    const std::string name(text_of(object.dict(), "format"));
    const AnswerFormat format = answer_format_of(text_of(object.dict(), "marks"), nullptr);
    assert_string_equal(format.tool_format, name.c_str());
    const std::string_view answer = text_of(object.dict(), "answer");
    const jinja::Dict& wanted = object.dict().find("message")->dict();
    bool right = is_right(*read(format, {answer}), wanted);
    for (const uint32_t most : {1u, 2u, 3u, 7u, 20u, 20u, 60u})
      right = right && is_right(*read(format, cut(answer, most, random)), wanted);
    for (size_t at = 0; at < answer.size() && answer.size() < 400; ++at)
      right = right && is_right(*read(format, {answer.substr(0, at), answer.substr(at)}), wanted);
    auto& [n_right, n_all] = table[name];
    n_right += right ? 1 : 0;
    ++n_all;
    if (right) continue;
    const auto got = read(format, {answer});
    print_error("%s\n  content [%s] thought [%s] calls %s%s\n", line.c_str(), std::string(got->content()).c_str(),
                std::string(got->thought()).c_str(), got->calls() == nullptr ? "none" : got->calls(),
                got->is_malformed() ? ", malformed" : "");
  }
  assert_true(table.size() >= 22);
  for (const auto& [name, counts] : table) {
    print_message("%-14s %d of %d\n", name.c_str(), counts.first, counts.second);
    assert_int_equal(counts.first, counts.second);
  }
}

// What templates of models write of a call is read as that call.
void tool_calls__of_templates_beside_the_project(void**) {
  std::string folder;
  for (const char* path : {WEIR_SOURCE_DIR "/../shared/templates", WEIR_SOURCE_DIR "/../../shared/templates"}) {
    if (std::filesystem::exists(std::string(path) + "/cases.jsonl")) folder = path;
  }
  if (folder.empty()) skip();
  std::istringstream lines(read_file(folder + "/cases.jsonl"));
  int n_right = 0, n_cases = 0;
  for (std::string line; std::getline(lines, line);) {
    jinja::Heap heap(std::pmr::get_default_resource());
    const Value object = parsed(heap, line);
    const std::string_view text = text_of(object.dict(), "text");
    const Value* calls = nullptr;
    for (const Value& message : object.dict().find("messages")->sequence().items) {
      const Value* its = message.dict().find("tool_calls");
      if (its != nullptr) calls = its;
    }
    const std::string name(text_of(object.dict(), "template"));
    const AnswerFormat format = answer_format_of(read_file(folder + "/" + name), nullptr);
    if (calls == nullptr || format.form == CallForm::kNone) continue;
    const auto tags = format.tags();
    const auto begin = std::find_if(tags.begin(), tags.end(), [](const AnswerTag& tag) { return tag.call == 1; });
    assert_true(begin != tags.end());
    const std::string_view mark = format.bare_calls ? "{\"name\": \"get_weather\", \"parameters\"" : begin->text;
    const size_t at = text.rfind(mark);
    if (at == std::string_view::npos) continue;  // it leaves calls out, or refuses them
    const auto end = std::find_if(tags.begin(), tags.end(), [](const AnswerTag& tag) { return tag.ends_call; });
    std::string_view answer = text.substr(at);
    for (const std::string_view over : {std::string_view("</s>"), std::string_view("<|eot_id|>"),
                                        std::string_view("<|message_sep|>"), end == tags.end() ? "</s>" : end->text}) {
      const size_t n = answer.find(over);
      const bool is_tag = end != tags.end() && over == end->text;
      if (n != std::string_view::npos) answer = answer.substr(0, n + (is_tag ? over.size() : 0));
    }
    const auto got = read(format, {answer});
    jinja::Heap others(std::pmr::get_default_resource());
    const Value wanted =
        parsed(others, "[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"unit\": \"c\"}}]");
    bool right = got->calls() != nullptr && !got->is_malformed();
    if (right) {
      const Value read_calls = parsed(others, got->calls());
      const jinja::Dict &a = read_calls.sequence().items[0].dict(), &b = wanted.sequence().items[0].dict();
      right = read_calls.sequence().items.size() == 1 && a.find("name")->view() == b.find("name")->view() &&
              written(others, *a.find("arguments")) == written(others, *b.find("arguments"));
    }
    n_right += right ? 1 : 0;
    ++n_cases;
    if (!right)
      print_error("%s: %s: %s\n", name.c_str(), std::string(answer).c_str(), got->calls() ? got->calls() : "none");
  }
  print_message("%d of %d\n", n_right, n_cases);
  assert_true(n_cases >= 60);
  assert_int_equal(n_right, n_cases);
}

// A call of many bytes and an answer of many calls: limits, and time in proportion to the length.
void tool_calls__limits(void**) {
  const AnswerFormat format = answer_format_of("<tool_call>", nullptr);
  std::mt19937 random(9);
  std::string large = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"";
  const size_t n_around = large.size() + 4;
  large += std::string(ToolCalls::kMaxBytes - n_around + std::strlen("<tool_call>") + 1, 'x') + "\"}}";
  std::string larger = large;
  larger.insert(larger.size() - 4, "x");
  assert_false(read(format, cut(large + "</tool_call>", 9, random))->is_malformed());
  assert_true(read(format, cut(larger + "</tool_call>", 9, random))->is_malformed());
  std::string many;
  for (uint32_t i = 0; i < ToolCalls::kMaxCalls; ++i)
    many += "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  assert_false(read(format, cut(many, 9, random))->is_malformed());
  many += "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  const auto message = read(format, cut(many, 9, random));
  assert_true(message->is_malformed());
  jinja::Heap heap(std::pmr::get_default_resource());
  assert_int_equal(parsed(heap, message->calls()).sequence().items.size(), ToolCalls::kMaxCalls);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(tool_calls__golden),
      cmocka_unit_test(tool_calls__of_templates_beside_the_project),
      cmocka_unit_test(tool_calls__limits),
  };
  return cmocka_run_group_tests_name("text/tool_calls", tests, nullptr, nullptr);
}
