// Calls of tools; see tool_calls.h. One small reader for each way of writing them, and one writer.
//
//   JSON       {"name": "f", "arguments": {"a": 1}}, one or a list; "parameters", "function", "tool_name", "id" and
//              their like; arguments that are a text of JSON
//   tags       <function=f><parameter=a>1</parameter></function>, <invoke name="f"><parameter name="a">1</parameter>
//              </invoke> and their like
//   pairs      f<arg_key>a</arg_key><arg_value>1</arg_value>
//   mistral    f[ARGS]{"a": 1}, also with [CALL_ID], or a list in JSON
//   fields     <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|> and their like
//   gemma      call:f{a:1}
//   python     [f(a=1)]; of Llama 3 also f.call(a=1), and code for the tool "python"
//   nested     ]<]minimax[>[<invoke name="f">]<]minimax[>[<a>1]<]minimax[>[</a>]<]minimax[>[</invoke>
//   harmony    the name is in the header, the text is JSON
//
// What tags and pairs hold has no type of its own: an object, a list, a number, true, false and null are taken for what
// they look like, anything else for text.
#include "text/tool_calls/tool_calls.h"

#include <algorithm>

#include "core/memory.h"
#include "text/tool_calls/transcode.h"

namespace weir {
namespace {

using std::string_view;

constexpr string_view kNested = "]<]minimax[>[";

// Calls as they are read.
class CallList {
 public:
  CallList(std::pmr::string& json, uint64_t& next_id, uint32_t& n_calls)
      : json_(json), next_id_(next_id), n_calls_(n_calls), arguments(json.get_allocator()) {}

  bool add(string_view name, string_view id) {
    std::pmr::string text(json_.get_allocator());
    if (name.empty()) return false;
    append_json_text(name, text);
    return add_json(text, id.empty() ? string_view() : id, false);
  }

  // name is JSON; so is the id if is_json.
  bool add_json(string_view name, string_view id, bool is_json) {
    if (n_calls_ >= ToolCalls::kMaxCalls) return false;
    json_.append(n_calls_++ == 0 ? "[{\"id\": " : ", {\"id\": ");
    if (id.empty()) {
      add_own_id();
    } else if (is_json) {
      json_.append(id);
    } else {
      append_json_text(id, json_);
    }
    json_.append(", \"name\": ").append(name).append(", \"arguments\": ");
    json_.append(arguments.empty() ? string_view("{}") : string_view(arguments)).push_back('}');
    arguments.clear();
    return true;
  }

  // An argument whose type is what it looks like.
  void add_argument(string_view key, string_view value, bool is_text) {
    begin_argument(key);
    add_value(value, is_text, arguments);
  }
  void begin_argument(string_view key) {
    arguments.append(arguments.empty() ? "{" : ", ");
    append_json_text(key, arguments);
    arguments.append(": ");
  }
  void end_arguments() {
    if (!arguments.empty()) arguments.push_back('}');
  }

  static void add_value(string_view value, bool is_text, std::pmr::string& out) {
    const size_t before = out.size();
    CallReader reader(value);
    reader.skip_space();
    const bool may_be = !is_text && !reader.left.empty() && reader.left.front() != '"';
    const string_view word = without_space_around(value);
    const bool is_word = word == "True" || word == "False" || word == "None";
    if (may_be && reader.take_value(is_word ? ValueStyle::kPython : ValueStyle::kJson, out) && reader.is_at_end())
      return;
    out.resize(before);
    append_json_text(value, out);
  }

 private:
  void add_own_id() {
    constexpr string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
    char digits[6] = "00000";
    uint64_t left = next_id_++;
    for (size_t i = 5; i > 0; left /= 36) digits[--i] = kDigits[left % 36];
    json_.append("\"call").append(digits).push_back('"');
  }

  std::pmr::string& json_;
  uint64_t& next_id_;
  uint32_t& n_calls_;

 public:
  std::pmr::string arguments;  // of the next call, as JSON
};

bool is_one_of(string_view text, std::initializer_list<string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

// What an object says of a call.
struct JsonCall {
  explicit JsonCall(std::pmr::memory_resource* memory) : name(memory), id(memory), arguments(memory) {}
  std::pmr::string name, id, arguments;  // "": not there
};

bool read_fields(CallReader& reader, JsonCall& call, bool is_inner) {
  reader.skip_space();
  if (!reader.take("{")) return false;
  for (bool is_first = true;; is_first = false) {
    reader.skip_space();
    if (is_first && reader.take("}")) return true;
    std::pmr::string key(call.name.get_allocator()), value(call.name.get_allocator());
    if (!reader.left.starts_with('"') || !reader.take_value(ValueStyle::kJson, key)) return false;
    const string_view field = string_view(key).substr(1, key.size() - 2);
    reader.skip_space();
    if (!reader.take(":")) return false;
    reader.skip_space();
    if (field == "function" && !is_inner && reader.left.starts_with('{')) {
      if (!read_fields(reader, call, true)) return false;
    } else {
      if (!reader.take_value(ValueStyle::kJson, value)) return false;
      if (is_one_of(field, {"name", "tool_name", "function"}) && value.front() == '"') {
        call.name = value;
      } else if (is_one_of(field, {"arguments", "parameters"})) {
        call.arguments = value;
      } else if (is_one_of(field, {"id", "tool_call_id", "call_id"}) && value.front() == '"') {
        call.id = value;
      }
    }
    reader.skip_space();
    if (reader.take(",")) continue;
    return reader.take("}");
  }
}

ToolCalls::Kind read_json_call(CallReader& reader, CallList& calls) {
  std::pmr::memory_resource* memory = calls.arguments.get_allocator().resource();
  JsonCall call(memory);
  if (!read_fields(reader, call, false)) return ToolCalls::Kind::kMalformed;
  if (call.name.size() <= 2 || call.arguments.empty()) return ToolCalls::Kind::kText;
  calls.arguments.clear();
  const string_view given = call.arguments;
  if (given.front() == '"') {  // OpenAI's API has the text of an object
    std::pmr::string text(memory);
    append_plain(given, text);
    CallReader inner(text);
    if (!inner.take_value(ValueStyle::kJson, calls.arguments) || !inner.is_at_end()) return ToolCalls::Kind::kMalformed;
  } else if (given != "null") {
    calls.arguments = given;
  }
  if (!calls.arguments.empty() && calls.arguments.front() != '{') return ToolCalls::Kind::kMalformed;
  const string_view id = call.id.size() > 2 ? string_view(call.id) : string_view();
  return calls.add_json(call.name, id, true) ? ToolCalls::Kind::kCalls : ToolCalls::Kind::kMalformed;
}

// One object, several, or a list of them.
ToolCalls::Kind read_json(string_view text, CallList& calls) {
  CallReader reader(text);
  const bool is_list = reader.take("[");
  ToolCalls::Kind kind = ToolCalls::Kind::kMalformed;
  for (;;) {
    reader.skip_space();
    if (is_list && reader.take("]")) return reader.is_at_end() ? kind : ToolCalls::Kind::kMalformed;
    if (!is_list && reader.left.empty()) return kind;
    kind = read_json_call(reader, calls);
    if (kind != ToolCalls::Kind::kCalls) return kind;
    reader.skip_space();
    if (!reader.take(",")) reader.take(";");
  }
}

struct Tags {
  const char *function, *parameter, *parameter_end, *function_end;
};
constexpr Tags kTags[] = {
    {"<function=", "<parameter=", "</parameter>", "</function>"},
    {"<invoke name=", "<parameter name=", "</parameter>", "</invoke>"},
    {"<function name=", "<param name=", "</param>", "</function>"},
    {"<｜DSML｜invoke name=", "<｜DSML｜parameter name=", "</｜DSML｜parameter>", "</｜DSML｜invoke>"},
};

// What follows the beginning of a tag: a name, perhaps in quotes, and perhaps attributes.
bool take_head(CallReader& reader, string_view& name, string_view& attributes) {
  const bool is_quoted = reader.take("\"");
  if (!reader.take_until(is_quoted ? "\"" : ">", name)) return false;
  name = without_space_around(name);
  return !name.empty() && (!is_quoted || reader.take_until(">", attributes));
}

// The value up to the end of its parameter: the first one behind which the next parameter or the end of the call comes.
bool take_parameter(CallReader& reader, const Tags& tags, string_view& value) {
  const string_view end = tags.parameter_end;
  for (size_t at = reader.left.find(end); at != string_view::npos; at = reader.left.find(end, at + 1)) {
    CallReader next(reader.left.substr(at + end.size()));
    next.skip_space();
    if (!next.left.starts_with(tags.parameter) && !next.left.starts_with(tags.function_end)) continue;
    value = reader.left.substr(0, at);
    reader.left = next.left;
    return true;
  }
  return false;
}

bool read_tags(string_view text, const Tags& tags, CallList& calls) {
  CallReader reader(text);
  while (!reader.is_at_end()) {
    string_view name, key, value, attributes;
    if (!reader.take(tags.function) || !take_head(reader, name, attributes)) return false;
    for (;;) {
      reader.skip_space();
      if (reader.take(tags.function_end)) break;
      attributes = {};
      if (!reader.take(tags.parameter) || !take_head(reader, key, attributes) || !take_parameter(reader, tags, value))
        return false;
      const string_view inside = without_space_around(value);
      bool is_text = attributes.find("string=\"true\"") != string_view::npos;
      if (inside.starts_with("<![CDATA[") && inside.ends_with("]]>")) {
        value = inside.substr(9, inside.size() - 12);
        is_text = true;
      } else if (value.starts_with('\n')) {  // templates put texts on lines of their own
        value.remove_prefix(1);
        if (value.ends_with('\n')) value.remove_suffix(1);
      }
      calls.add_argument(key, value, is_text);
    }
    calls.end_arguments();
    if (!calls.add(name, {})) return false;
  }
  return true;
}

// A tag whose name ends with `suffix`; and what comes before one.
bool take_tag(CallReader& reader, string_view begin, string_view suffix) {
  CallReader next = reader;
  if (!next.take(begin) || !next.take(suffix) || !next.take(">")) return false;
  reader = next;
  return true;
}

bool take_until_tag(CallReader& reader, string_view begin, string_view suffix, string_view& before) {
  const string_view all = reader.left;
  for (size_t at = all.find(begin); at != string_view::npos; at = all.find(begin, at + 1)) {
    before = all.substr(0, at);
    reader.left = all.substr(at);
    if (take_tag(reader, begin, suffix)) return true;
  }
  return false;
}

// NAME, then pairs.
bool read_pairs(CallReader& reader, string_view suffix, CallList& calls) {
  string_view name, key, value;
  reader.skip_space();
  if (!reader.take_name(name)) return false;
  if (!suffix.empty() && !take_tag(reader, "<tool_sep", suffix)) return false;
  for (;;) {
    reader.skip_space();
    if (!take_tag(reader, "<arg_key", suffix)) break;
    if (!take_until_tag(reader, "</arg_key", suffix, key)) return false;
    reader.skip_space();
    if (!take_tag(reader, "<arg_value", suffix) || !take_until_tag(reader, "</arg_value", suffix, value)) return false;
    calls.add_argument(without_space_around(key), value, false);
  }
  calls.end_arguments();
  return calls.add(name, {});
}

bool read_hunyuan(string_view text, CallList& calls) {
  CallReader reader(text);
  while (!reader.is_at_end()) {
    string_view suffix;
    if (!reader.take("<tool_call") || !reader.take_until(">", suffix)) return false;
    if (!read_pairs(reader, suffix, calls)) return false;
    reader.skip_space();
    if (!take_tag(reader, "</tool_call", suffix)) return false;
  }
  return true;
}

bool take_arguments(CallReader& reader, ValueStyle style, CallList& calls) {
  reader.skip_space();
  return reader.left.starts_with('{') && reader.take_value(style, calls.arguments);
}

bool read_mistral(string_view text, CallList& calls) {
  CallReader reader(text);
  string_view name, id;
  if (!reader.take_name(name)) return false;
  if (reader.take("[CALL_ID]") && !reader.take_name(id)) return false;
  reader.take("[ARGS]");
  return take_arguments(reader, ValueStyle::kJson, calls) && reader.is_at_end() && calls.add(name, id);
}

bool read_fields_form(string_view text, CallList& calls) {
  CallReader reader(text);
  while (!reader.is_at_end()) {
    string_view name, id;
    const char* end = nullptr;
    bool is_fenced = false;
    if (reader.take("<|tool_call_begin|>")) {
      if (!reader.take_until("<|tool_call_argument_begin|>", id)) return false;
      id = without_space_around(id);
      name = id.substr(0, id.rfind(':'));
      if (name.starts_with("functions.")) name.remove_prefix(10);
      end = "<|tool_call_end|>";
    } else if (reader.take("<｜tool▁call▁begin｜>")) {
      if (!reader.take_until("<｜tool▁sep｜>", name)) return false;
      is_fenced = name == "function";
      if (is_fenced && !reader.take_until("```json", name)) return false;
      name = without_space_around(name);
      end = "<｜tool▁call▁end｜>";
    } else if (reader.take("<|tool_call:begin|>")) {
      if (!reader.take_until("<|tool_call:name|>", id) || !reader.take_until("<|tool_call:args|>", name)) return false;
      end = "<|tool_call:end|>";
    } else {
      return false;
    }
    if (!take_arguments(reader, ValueStyle::kJson, calls)) return false;
    reader.skip_space();
    if (is_fenced && !reader.take("```")) return false;
    reader.skip_space();
    if (!reader.take(end) || !calls.add(name, id)) return false;
  }
  return true;
}

bool read_gemma(string_view text, CallList& calls) {
  CallReader reader(text);
  while (!reader.is_at_end()) {
    string_view name;
    if (!reader.take("call:") || !reader.take_name(name)) return false;
    if (!take_arguments(reader, ValueStyle::kGemma, calls) || !calls.add(name, {})) return false;
  }
  return true;
}

// f(a=1), also in a list.
bool read_python(string_view text, CallList& calls) {
  CallReader reader(text);
  const bool is_list = reader.take("[");
  for (;;) {
    string_view name, key;
    reader.skip_space();
    if (is_list && reader.take("]")) return reader.is_at_end();
    if (!reader.take_name(name) || !reader.take("(")) return false;
    if (!is_list && name.ends_with(".call")) name.remove_suffix(5);
    for (;;) {
      reader.skip_space();
      if (reader.take(")")) break;
      if (!reader.take_name(key)) return false;
      reader.skip_space();
      if (!reader.take("=")) return false;
      calls.begin_argument(key);
      if (!reader.take_value(ValueStyle::kPython, calls.arguments)) return false;
      reader.skip_space();
      if (reader.take(",")) continue;
      if (!reader.take(")")) return false;
      break;
    }
    calls.end_arguments();
    if (!is_list && !reader.is_at_end()) return false;
    if (!calls.add(name, {})) return false;
    if (!is_list) return true;
    reader.skip_space();
    reader.take(",");
  }
}

void read_code(string_view code, CallList& calls) {
  calls.arguments.clear();
  calls.add_argument("code", code, true);
  calls.end_arguments();
  calls.add("python", {});
}

// A text, or elements up to the end of the one that they are in.
bool take_nested(CallReader& reader, std::pmr::string& out, int depth) {
  constexpr int kMaxDepth = 32;
  if (depth > kMaxDepth) return false;
  string_view text;
  if (!reader.take_until(kNested, text)) return false;
  if (reader.left.starts_with("</")) {
    CallList::add_value(text, false, out);
    return true;
  }
  const size_t begin = out.size();
  out.push_back('{');
  bool is_list = false;
  for (bool is_first = true; !reader.left.starts_with("</"); is_first = false) {
    string_view key, end;
    if (!reader.take("<") || !reader.take_until(">", key)) return false;
    if (is_first) is_list = key == "item";
    if (is_list != (key == "item")) return false;
    if (!is_first) out.append(", ");
    if (!is_list) {
      append_json_text(key, out);
      out.append(": ");
    }
    if (!take_nested(reader, out, depth + 1)) return false;
    if (!reader.take("</") || !reader.take_until(">", end) || end != key) return false;
    reader.skip_space();
    if (!reader.take(kNested)) return false;
  }
  out[begin] = is_list ? '[' : '{';
  out.push_back(is_list ? ']' : '}');
  return true;
}

bool read_nested(string_view text, CallList& calls) {
  CallReader reader(text);
  while (!reader.is_at_end()) {
    string_view name, key, end;
    if (!reader.take(kNested)) return false;
    if (reader.is_at_end()) return true;  // of the tag behind the calls
    if (!reader.take("<invoke name=\"") || !reader.take_until("\">", name)) return false;
    for (;;) {
      reader.skip_space();
      if (!reader.take(kNested)) return false;
      if (reader.take("</invoke>")) break;
      if (!reader.take("<") || !reader.take_until(">", key)) return false;
      calls.begin_argument(key);
      if (!take_nested(reader, calls.arguments, 0)) return false;
      if (!reader.take("</") || !reader.take_until(">", end) || end != key) return false;
    }
    calls.end_arguments();
    if (!calls.add(name, {})) return false;
  }
  return true;
}

// "assistant<|channel|>commentary to=functions.NAME <|constrain|>json"
bool read_harmony(string_view header, string_view text, CallList& calls) {
  const size_t at = header.rfind("to=");
  if (at == string_view::npos) return false;
  CallReader reader(header.substr(at + 3));
  string_view name;
  if (!reader.take_name(name)) return false;
  if (name.starts_with("functions.")) name.remove_prefix(10);
  CallReader arguments(text);
  if (name == "python" && !text.starts_with('{')) {
    read_code(text, calls);
    return true;
  }
  return take_arguments(arguments, ValueStyle::kJson, calls) && arguments.is_at_end() && calls.add(name, {});
}

ToolCalls::Kind kind_of(bool is_read) { return is_read ? ToolCalls::Kind::kCalls : ToolCalls::Kind::kMalformed; }

ToolCalls::Kind read_by_look(string_view text, CallList& calls) {
  if (text.starts_with("functools")) text.remove_prefix(9);
  if (text.starts_with('{') || text.starts_with('[')) return read_json(text, calls);
  for (const Tags& tags : kTags) {
    if (text.starts_with(tags.function)) return kind_of(read_tags(text, tags, calls));
  }
  if (text.starts_with("<tool_call")) return kind_of(read_hunyuan(text, calls));
  CallReader reader(text);
  return kind_of(read_pairs(reader, {}, calls) && reader.is_at_end());
}

ToolCalls::Kind read(CallForm form, string_view header, string_view text, CallList& calls) {
  const bool is_object = text.starts_with('{');
  const bool is_json = is_object || (text.starts_with('[') && without_space_around(text.substr(1)).starts_with('{'));
  switch (form) {
    case CallForm::kHarmony:
      return kind_of(read_harmony(header, text, calls));
    case CallForm::kMistral:
      return is_json ? read_json(text, calls) : kind_of(read_mistral(text, calls));
    case CallForm::kFields:
      return kind_of(read_fields_form(text, calls));
    case CallForm::kGemma:
      return kind_of(read_gemma(text, calls));
    case CallForm::kPython:
      return is_json ? read_json(text, calls) : kind_of(read_python(text, calls));
    case CallForm::kLlama:
      if (is_object) return read_json(text, calls);
      if (text.find(".call(") != string_view::npos && read_python(text, calls)) return ToolCalls::Kind::kCalls;
      read_code(text, calls);
      return ToolCalls::Kind::kCalls;
    case CallForm::kNested:
      return kind_of(read_nested(text, calls));
    default:
      return read_by_look(text, calls);
  }
}

}  // namespace

ToolCalls::Kind ToolCalls::add(CallForm form, string_view header, string_view text) {
  const size_t before = json_.size();
  const uint64_t id = next_id_;
  const uint32_t n_calls = n_calls_;
  CallList calls(json_, next_id_, n_calls_);
  text = without_space_around(text);
  if (n_calls_ != 0) json_.pop_back();
  Kind kind = text.empty() || text.size() > kMaxBytes ? Kind::kMalformed : read(form, header, text, calls);
  // Between tags there must be a call.
  if ((kind == Kind::kCalls && n_calls_ == n_calls) || (kind == Kind::kText && form != CallForm::kLlama))
    kind = Kind::kMalformed;
  if (kind == Kind::kCalls) {
    json_.push_back(']');
    return kind;
  }
  json_.resize(before == 0 ? 0 : before - 1);
  if (n_calls != 0) json_.push_back(']');
  next_id_ = id;
  n_calls_ = n_calls;
  return kind;
}

void ToolCalls::wipe() {
  weir::wipe(json_.data(), json_.size());
  json_.clear();
  n_calls_ = 0;
}

}  // namespace weir
