// Conversations rendered by the template of the model's own file.
#include "text/chat_jinja.h"

#include <algorithm>
#include <cstdio>

#include "text/chat_text.h"
#include "text/jinja/jinja.h"
#include "text/json_values.h"

namespace weir {
namespace {

using jinja::Value;
using std::string_view;

// The answer before a conversation that is continued, or the end of one that is left open: a word that templates
// neither trim nor find anything in, and no message has.
constexpr string_view kOpenAnswer = "0pen-4nswer-7c1e55a90b3f";
constexpr string_view kOpenQuestion = "?";  // before it

// Whether the template has the word as a text of its own or as an attribute.
bool mentions(string_view source, string_view word) {
  const auto is_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (size_t at = source.find(word); at != string_view::npos; at = source.find(word, at + 1)) {
    const char before = at == 0 ? ' ' : source[at - 1];
    const size_t end = at + word.size();
    const bool ends = end == source.size() || !is_name(source[end]);
    if (ends && (before == '.' || before == '\'' || before == '"')) return true;
  }
  return false;
}

// The field of a message that holds its thought, "" when the template reads none.
string_view thought_field(string_view source) {
  for (const string_view name : {"reasoning_content", "reasoning", "thinking", "thought"}) {
    if (mentions(source, name)) return name;
  }
  return {};
}

Status wrong_json(const char* what, const char* wanted) {
  return fail(WEIR_ERR_INVALID_ARG, "%s is no JSON %s", what, wanted);
}

// Messages as the template sees them.
class Messages {
 public:
  Messages(jinja::Heap& heap, string_view source, bool calls_as_text)
      : heap_(heap),
        thought_field_(thought_field(source)),
        thinks_in_content_(source.find(kThinkEnd) != string_view::npos),
        calls_as_text_(calls_as_text),
        list_(heap.make<jinja::Seq>(&heap, jinja::SeqKind::kList)) {
    value = list_;
  }

  jinja::Dict* add(string_view role, const Value& content) {
    auto* message = heap_.make<jinja::Dict>(&heap_);
    list_->items.push_back(message);
    set(message, "role", role, false);
    message->set(jinja::make_text(heap_, "content", false), content);
    return message;
  }

  // `ending` is appended to the content.
  Status add(const weir_chat_message& message, size_t index, string_view ending) {
    jinja::Dict* made = add(message.role, content_of(message, ending));
    if (message.thought != nullptr && !thought_field_.empty())
      set(made, thought_field_, {message.thought, message.thought_bytes}, true);
    if (message.tool_call_id != nullptr) set(made, "tool_call_id", message.tool_call_id, true);
    if (message.name != nullptr) set(made, "name", message.name, true);
    return message.tool_calls_json == nullptr ? Status() : add_calls(made, message.tool_calls_json, index);
  }

  bool has_calls() const { return has_calls_; }

  Value value;

 private:
  void set(jinja::Dict* dict, string_view name, string_view text, bool is_said) {
    dict->set(jinja::make_text(heap_, name, false), jinja::make_text(heap_, text, is_said));
  }

  Value content_of(const weir_chat_message& message, string_view ending) {
    jinja::Str* text = heap_.make<jinja::Str>(&heap_);
    const Value kept = text;
    string_view said(message.content, message.content_bytes);
    const bool is_answer = string_view(message.role) == "assistant";
    if (is_answer && message.thought != nullptr && thought_field_.empty() && thinks_in_content_) {
      text->append(kThinkBegin, false);
      text->append("\n", false);
      text->append({message.thought, message.thought_bytes}, true);
      text->append("\n", false);
      text->append(kThinkEnd, false);
      text->append("\n\n", false);
    } else if (is_answer && said.starts_with(kThinkBegin)) {
      text->append(kThinkBegin, false);
      said.remove_prefix(kThinkBegin.size());
      const size_t end = said.find(kThinkEnd);
      text->append(said.substr(0, end), true);
      said.remove_prefix(std::min(end, said.size()));
      if (end != string_view::npos) {
        text->append(kThinkEnd, false);
        said.remove_prefix(kThinkEnd.size());
      }
    }
    text->append(said, true);
    text->append(ending, true);
    return kept;
  }

  // As templates know calls: [{"id", "type": "function", "function": {"name", "arguments"}}].
  Status add_calls(jinja::Dict* message, const char* json, size_t index) {
    char what[64];
    std::snprintf(what, sizeof what, "messages[%zu].tool_calls_json", index);
    Value given;
    WEIR_TRY(jinja::read_json(heap_, json, what, given));
    if (!given.is_sequence()) return wrong_json(what, "list");
    auto* calls = heap_.make<jinja::Seq>(&heap_, jinja::SeqKind::kList);
    message->set(jinja::make_text(heap_, "tool_calls", false), calls);
    for (const Value& item : given.sequence().items) {
      if (!item.is_dict()) return wrong_json(what, "list of objects");
      const Value* inner = item.dict().find("function");
      const jinja::Dict& from = inner != nullptr && inner->is_dict() ? inner->dict() : item.dict();
      const Value *name = from.find("name"), *arguments = from.find("arguments"), *id = item.dict().find("id");
      if (name == nullptr || !name->is_string()) {
        return fail(WEIR_ERR_INVALID_ARG, "%s: a call has no \"name\" that is a text", what);
      }
      auto* function = heap_.make<jinja::Dict>(&heap_);
      const Value kept = function;
      function->set(jinja::make_text(heap_, "name", false), *name);
      Value filled;
      WEIR_TRY(arguments_of(arguments, what, filled));
      function->set(jinja::make_text(heap_, "arguments", false), filled);
      auto* call = heap_.make<jinja::Dict>(&heap_);
      calls->items.push_back(call);
      if (id != nullptr) call->set(jinja::make_text(heap_, "id", false), *id);
      set(call, "type", "function", false);
      call->set(jinja::make_text(heap_, "function", false), kept);
    }
    has_calls_ = true;
    return {};
  }

  // Callers give an object, or its text as OpenAI's API has it.
  Status arguments_of(const Value* given, const char* what, Value& out) {
    if (given == nullptr) {
      out = heap_.make<jinja::Dict>(&heap_);
    } else if (given->is_string()) {
      WEIR_TRY(jinja::read_json(heap_, given->view(), what, out));
    } else {
      out = *given;
    }
    if (!out.is_dict()) return fail(WEIR_ERR_INVALID_ARG, "%s: the \"arguments\" of a call are no object", what);
    if (!calls_as_text_) return {};
    jinja::Template writes(&heap_);
    WEIR_TRY(writes.parse("{{ value | tojson }}"));
    const jinja::Variable variable = {"value", out};
    jinja::RenderedText text(&heap_);
    WEIR_TRY(jinja::render(writes, heap_, {&variable, 1}, 0, text));
    out = jinja::make_text(heap_, text.text, true);
    return {};
  }

  jinja::Heap& heap_;
  string_view thought_field_;
  bool thinks_in_content_, calls_as_text_;
  bool has_calls_ = false;
  jinja::Seq* list_;
};

// The place behind the open answer, which must be there once.
Status find_open_answer(const jinja::RenderedText& all, size_t& begin, size_t& end) {
  begin = all.text.find(kOpenAnswer);
  end = begin + kOpenAnswer.size();
  if (begin != string_view::npos && all.text.find(kOpenAnswer, end) == string_view::npos) return {};
  return fail(WEIR_ERR_UNSUPPORTED,
              "the model's chat template does not write answers as they are, so that a conversation cannot be "
              "continued behind an open one");
}

// `head`: what the template writes without the messages of the continuation.
Status cut_behind_answer(const jinja::RenderedText& all, const jinja::RenderedText& head, RenderedChat& out) {
  size_t at = 0, begin = 0;
  WEIR_TRY(find_open_answer(all, at, begin));
  if (string_view(head.text).substr(0, begin) != string_view(all.text).substr(0, begin))
    return fail(WEIR_ERR_UNSUPPORTED,
                "the model's chat template writes a message before the answers that came before it, so that a "
                "conversation cannot be continued with it; render the whole");
  out.text.assign(all.text, begin);
  for (const TextRange& range : all.said) {
    if (range.end > begin) out.said.push_back({std::max(range.begin, begin) - begin, range.end - begin});
  }
  return {};
}

Status cut_in_answer(const jinja::RenderedText& all, RenderedChat& out) {
  size_t end = 0, behind = 0;
  WEIR_TRY(find_open_answer(all, end, behind));
  out.text.assign(all.text, 0, end);
  for (const TextRange& range : all.said) {
    if (range.begin < end) out.said.push_back({range.begin, std::min(range.end, end)});
  }
  return {};
}

// What the template must have for what is asked of it.
Status check_template(const ChatRequest& request, const jinja::Template& parsed) {
  const string_view source = request.template_text;
  for (size_t i = 0; i < request.messages.size(); ++i) {
    const string_view role = request.messages[i].role;
    if ((role == "tool" || role == "developer") && !mentions(source, role)) {
      return fail(WEIR_ERR_UNSUPPORTED, "messages[%zu]: the chat template has no place for the role \"%s\"", i,
                  request.messages[i].role);
    }
    if (request.messages[i].tool_calls_json != nullptr && !mentions(source, "tool_calls"))
      return fail(WEIR_ERR_UNSUPPORTED, "messages[%zu]: the chat template has no place for calls of tools", i);
  }
  if (request.tools_json != nullptr && !parsed.reads("tools"))
    return fail(WEIR_ERR_UNSUPPORTED, "the chat template has no place for tools");
  return {};
}

Status read_object(jinja::Heap& heap, const char* json, const char* what, Value& out) {
  WEIR_TRY(jinja::read_json(heap, json, what, out));
  return out.is_dict() ? Status() : wrong_json(what, "object");
}

// The caller's own variables.
Status add_variables(const ChatRequest& request, const jinja::Template& parsed, const Value& object,
                     std::pmr::vector<jinja::Variable>& out) {
  if (request.variables_json == nullptr) return {};
  for (const auto& entry : object.dict().entries) {
    const string_view name = entry.key.view();
    for (const string_view own : {"messages", "tools", "add_generation_prompt"}) {
      if (name != own) continue;
      return fail(WEIR_ERR_INVALID_ARG, "variables_json: \"%.*s\" is set by the call itself",
                  static_cast<int>(name.size()), name.data());
    }
    if (!parsed.reads(name)) {
      return fail(WEIR_ERR_NOT_FOUND, "variables_json: the chat template never reads \"%.*s\"",
                  static_cast<int>(std::min<size_t>(name.size(), 128)), name.data());
    }
    out.push_back({name, entry.value});
  }
  return {};
}

class Rendering {
 public:
  Rendering(const ChatRequest& request, std::pmr::memory_resource* memory)
      : request_(request), memory_(memory), parsed_(memory) {}

  Status run(jinja::RenderedText& all) {
    WEIR_TRY(chat_check(request_.messages, request_.flags));
    WEIR_TRY(parsed_.parse(request_.template_text));
    WEIR_TRY(check_template(request_, parsed_));
    bool has_calls = false;
    const Status status = render(false, has_calls, all);
    if (!has_calls || status.code() != WEIR_ERR_FORMAT) return status;
    // Some templates take arguments for texts.
    const bool text_works = render(true, has_calls, all).ok();
    return text_works ? Status() : render(false, has_calls, all);  // the first failure says more
  }

 private:
  Status render(bool calls_as_text, bool& has_calls, jinja::RenderedText& all) {
    jinja::Heap heap(memory_);
    Messages list(heap, request_.template_text, calls_as_text);
    WEIR_TRY(add_messages(heap, list));
    has_calls = list.has_calls();
    std::pmr::vector<jinja::Variable> variables(memory_);
    variables.push_back({"messages", list.value});
    variables.push_back({"add_generation_prompt", Value::boolean((request_.flags & WEIR_CHAT_ADD_ASSISTANT) != 0)});
    variables.push_back({"bos_token", jinja::make_text(heap, request_.bos, false)});
    variables.push_back({"eos_token", jinja::make_text(heap, request_.eos, false)});
    Value tools, own;
    if (request_.tools_json != nullptr) {
      WEIR_TRY(jinja::read_json(heap, request_.tools_json, "tools_json", tools));
      if (!tools.is_sequence()) return wrong_json("tools_json", "list");
      if (!tools.sequence().items.empty()) variables.push_back({"tools", tools});
    }
    if (request_.variables_json != nullptr) WEIR_TRY(read_object(heap, request_.variables_json, "variables_json", own));
    WEIR_TRY(add_variables(request_, parsed_, own, variables));
    return jinja::render(parsed_, heap, variables, request_.unix_time, all);
  }

  Status add_messages(jinja::Heap& heap, Messages& list) const {
    const bool goes_on = (request_.flags & WEIR_CHAT_CONTINUE) != 0;
    const bool stays_open = (request_.flags & WEIR_CHAT_CONTINUE_LAST) != 0;
    if (goes_on) {
      list.add("user", jinja::make_text(heap, kOpenQuestion, true));
      list.add("assistant", jinja::make_text(heap, kOpenAnswer, true));
    }
    const size_t n = request_.messages.size();
    for (size_t i = 0; i < n; ++i) {
      const weir_chat_message& message = request_.messages[i];
      const string_view content(message.content, message.content_bytes);
      if ((goes_on || stays_open) && content.find(kOpenAnswer) != string_view::npos)
        return fail(WEIR_ERR_INVALID_ARG, "messages[%zu] has a text that stands for an open answer", i);
      WEIR_TRY(list.add(message, i, stays_open && i + 1 == n ? kOpenAnswer : string_view()));
    }
    return {};
  }

  const ChatRequest& request_;
  std::pmr::memory_resource* memory_;
  jinja::Template parsed_;
};

}  // namespace

Status chat_abilities(string_view template_text, std::pmr::memory_resource* memory, uint32_t& can) {
  jinja::Template parsed(memory);
  if (!parsed.parse(template_text).ok()) return {};
  if (parsed.reads("tools")) can |= WEIR_CHAT_CAN_TOOLS;
  if (mentions(template_text, "tool")) can |= WEIR_CHAT_CAN_TOOL_RESULTS;
  for (const string_view name : {"enable_thinking", "thinking", "thinking_mode"}) {
    if (parsed.reads(name)) can |= WEIR_CHAT_CAN_SKIP_THOUGHTS;
  }
  return {};
}

Status chat_render_jinja(const ChatRequest& request, RenderedChat& out) {
  std::pmr::memory_resource* memory = out.text.get_allocator().resource();
  jinja::RenderedText all(memory);
  WEIR_TRY(Rendering(request, memory).run(all));
  RenderedChat rendered(memory);
  if ((request.flags & WEIR_CHAT_CONTINUE) != 0) {
    ChatRequest before = request;
    before.messages = {};
    before.flags &= ~static_cast<uint32_t>(WEIR_CHAT_ADD_ASSISTANT);
    jinja::RenderedText head(memory);
    WEIR_TRY(Rendering(before, memory).run(head));
    WEIR_TRY(cut_behind_answer(all, head, rendered));
  } else if ((request.flags & WEIR_CHAT_CONTINUE_LAST) != 0) {
    WEIR_TRY(cut_in_answer(all, rendered));
  } else {
    rendered.text.swap(all.text);
    rendered.said.swap(all.said);
  }
  out.text.swap(rendered.text);
  out.said.swap(rendered.said);
  return {};
}

void find_messages(std::span<const weir_chat_message> messages, const RenderedChat& rendered,
                   std::pmr::vector<TextRange>& out) {
  const string_view text = rendered.text;
  size_t range = 0, at = 0;                           // what was found last ends there
  size_t left = 8 * text.size() + (size_t{1} << 20);  // bytes that may be looked at in vain
  for (const weir_chat_message& message : messages) {
    string_view wanted(message.content, message.content_bytes);
    if (string_view(message.role) == "assistant") wanted = after_thoughts(wanted);
    wanted = trim(wanted);
    TextRange found = {at, at};
    for (size_t r = range; !wanted.empty() && r < rendered.said.size(); ++r) {
      const size_t begin = std::max(rendered.said[r].begin, at),
                   n = rendered.said[r].end - std::min(begin, rendered.said[r].end);
      if (n > left) break;
      const size_t place = text.substr(begin, n).find(wanted);
      if (place != string_view::npos) {
        range = r;
        at = begin + place + wanted.size();
        found = {at - wanted.size(), at};
        break;
      }
      left -= n;
    }
    out.push_back(found);
  }
}

}  // namespace weir
