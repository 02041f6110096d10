// Lists of tools and calls of them; see tools.h.
#include "tools.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "input.h"
#include "json_input.h"
#include "options.h"

namespace weir_cli {
namespace {

using nlohmann::ordered_json;

// The part of a tool that has its name and parameters: OpenAI's API wraps it.
const ordered_json& function_of(const ordered_json& tool) {
  const auto function = tool.find("function");
  return function != tool.end() ? *function : tool;
}

std::string name_of(const ordered_json& tool, const std::string& which) {
  if (!tool.is_object()) throw std::runtime_error(which + " is not an object");
  const auto type = tool.find("type");
  if (type != tool.end() && *type != "function" && tool.contains("function"))
    throw std::runtime_error(which + " has the type " + type->dump() + "; tools are functions, \"function\"");
  const ordered_json& function = function_of(tool);
  if (!function.is_object()) throw std::runtime_error(which + " has a \"function\" that is not an object");
  const auto name = function.find("name");
  if (name == function.end() || !name->is_string() || name->get_ref<const std::string&>().empty())
    throw std::runtime_error(which + " has no \"name\"");
  const auto parameters = function.find("parameters");
  if (parameters != function.end() && !parameters->is_object())
    throw std::runtime_error(which + " has \"parameters\" that are no schema, which is an object");
  return *name;
}

// What a text costs to read. The parser compares each name of an object with all before, and at the end of an object
// looks at all that is beside it, so that a few megabytes could keep it for hours; and each value takes some 50 bytes,
// however short it is written.
class JsonSize {
 public:
  void add(int depth, ordered_json::parse_event_t event) {
    using Event = ordered_json::parse_event_t;
    if (depth > kMaxDepth)
      throw std::runtime_error("not valid JSON: it is nested more than " + std::to_string(kMaxDepth) + " levels deep");
    if (event == Event::object_end || event == Event::array_end) counts_.pop_back();
    const size_t beside = counts_.empty() ? 0 : counts_.back();
    if (event == Event::key || event == Event::object_end) n_looks_ += beside;
    if (event == Event::value || event == Event::object_start || event == Event::array_start) {
      if (!counts_.empty()) ++counts_.back();
      ++n_values_;
    }
    if (event == Event::object_start || event == Event::array_start) counts_.push_back(0);
    if (n_values_ > kMaxValues)
      throw std::runtime_error("JSON with more than " + std::to_string(kMaxValues) + " values");
    if (n_looks_ > kMaxLooks)
      throw std::runtime_error(event == Event::key ? "JSON with too many names in an object"
                                                   : "JSON with too many objects in a list");
  }

 private:
  static constexpr int kMaxDepth = 250;  // the library's is 200, of a part of what is read here
  static constexpr size_t kMaxValues = 500000;
  static constexpr uint64_t kMaxLooks = 100000000;  // a list of some 14,000 objects, or an object of as many names
  std::vector<size_t> counts_;                      // values in each of the lists and objects that are open
  size_t n_values_ = 0;
  uint64_t n_looks_ = 0;
};

}  // namespace

ordered_json parse_json(std::string_view text) {
  JsonSize size;
  try {
    return ordered_json::parse(text, [&](int depth, ordered_json::parse_event_t event, const ordered_json&) {
      size.add(depth, event);
      return true;
    });
  } catch (const ordered_json::exception& e) {
    const std::string what = e.what();  // starts with "[json.exception.parse_error.101] "
    const size_t mark = what.find("] ");
    throw std::runtime_error("not valid JSON: " + what.substr(mark == std::string::npos ? 0 : mark + 2));
  }
}

ToolList parse_tools(std::string_view text, const std::string& what) {
  const auto wrong = [&](const std::string& why) { return std::runtime_error(what + why); };
  if (text.size() > kMaxToolBytes)
    throw wrong("it has " + human_bytes(text.size()) + "; a list of tools may have " + human_bytes(kMaxToolBytes));
  try {
    const ordered_json list = parse_json(text);
    if (list.is_object()) throw std::runtime_error("it is an object, not a list of tools; write [ and ] around it");
    if (!list.is_array()) throw std::runtime_error("it is not a list of tools");
    if (list.empty()) throw std::runtime_error("the list of tools is empty");
    ToolList tools;
    for (const ordered_json& tool : list) {
      std::string name = name_of(tool, "tool " + std::to_string(tools.names.size() + 1));
      if (std::find(tools.names.begin(), tools.names.end(), name) != tools.names.end())
        throw std::runtime_error("two tools have the name \"" + name + "\"");
      tools.names.push_back(std::move(name));
    }
    tools.json = text;
    return tools;
  } catch (const std::runtime_error& e) {
    throw wrong(e.what());
  }
}

ToolList read_tools(const std::string& file_or_text) {
  if (file_or_text.empty()) return {};
  try {
    const char first = file_or_text[file_or_text.find_first_not_of(" \t\r\n") % file_or_text.size()];
    if (first == '[' || first == '{') return parse_tools(file_or_text, "--tools: ");
    std::ifstream file(file_or_text, std::ios::binary);
    std::string text(kMaxToolBytes + sizeof(kByteOrderMark), '\0');  // a device has no end
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!file.is_open() || file.bad() || (file.gcount() == 0 && !file.eof()))
      throw std::runtime_error("--tools: cannot read " + file_or_text);
    text.resize(static_cast<size_t>(file.gcount()));
    drop_byte_order_mark(text);
    if (text.size() > kMaxToolBytes) {
      throw std::runtime_error("--tools " + file_or_text + ": a list of tools may have " + human_bytes(kMaxToolBytes) +
                               ", and it has more");
    }
    return parse_tools(text, "--tools " + file_or_text + ": ");
  } catch (const std::runtime_error& e) {
    throw UsageError(std::string("run: ") + e.what());
  }
}

std::string wrong_with_choice(const std::string& choice, const ToolList& tools) {
  if (choice == kToolsFree || choice == kToolsNone) return "";
  if (tools.names.empty()) return "there are no tools to choose from";
  if (choice == kToolsRequired || std::find(tools.names.begin(), tools.names.end(), choice) != tools.names.end())
    return "";
  return "\"" + choice + "\" is neither auto, required or none nor the name of a tool; there are " +
         joined(tools.names);
}

std::string tools_to_call(const ToolList& tools, const std::string& choice) {
  if (choice == kToolsRequired) return tools.json;
  const auto at = std::find(tools.names.begin(), tools.names.end(), choice) - tools.names.begin();
  return ordered_json::array({parse_json(tools.json).at(static_cast<size_t>(at))}).dump();
}

ordered_json calls_of_answer(weir_session* session, bool must_call, size_t n_before, bool& is_malformed) {
  weir_chat_message answer = WEIR_CHAT_MESSAGE_INIT;
  uint32_t malformed = 0;
  check(weir_session_answer(session, &answer, sizeof(answer), &malformed), "cannot read the answer's calls");
  is_malformed = malformed != 0;
  if (answer.tool_calls_json != nullptr) return parse_json(answer.tool_calls_json);
  ordered_json calls = ordered_json::array();
  if (!must_call) return calls;
  // What it was made to be is no way of calling that the library knows. It is whole unless it was cut.
  const std::string_view content(answer.content, answer.content_bytes);
  const ordered_json call = ordered_json::parse(content, nullptr, false);
  if (call.is_object() && call.contains("name") && call.contains("arguments")) {
    calls.push_back(
        {{"id", format("call%05zu", n_before + 1)}, {"name", call["name"]}, {"arguments", call["arguments"]}});
  }
  return calls;
}

}  // namespace weir_cli
