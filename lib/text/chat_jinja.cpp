// Conversations rendered by the template of the model's own file.
#include "text/chat_jinja.h"

#include <algorithm>

#include "text/chat_text.h"
#include "text/jinja/jinja.h"

namespace weir {
namespace {

using jinja::Value;
using std::string_view;

// The answer before a conversation that is continued: a word that templates neither trim nor find anything in, and no
// message has.
constexpr string_view kOpenAnswer = "0pen-4nswer-7c1e55a90b3f";
constexpr string_view kOpenQuestion = "?";  // before it

Value content_of(jinja::Heap& heap, const weir_chat_message& message) {
  jinja::Str* text = heap.make<jinja::Str>(&heap);
  const Value kept = text;
  string_view said(message.content, message.content_bytes);
  if (string_view(message.role) == "assistant" && said.starts_with(kThinkBegin)) {
    text->append(kThinkBegin, false);
    said.remove_prefix(kThinkBegin.size());
    const size_t end = said.find(kThinkEnd);
    text->append(said.substr(0, end), true);
    if (end == string_view::npos) return kept;
    text->append(kThinkEnd, false);
    said.remove_prefix(end + kThinkEnd.size());
  }
  text->append(said, true);
  return kept;
}

class Messages {
 public:
  explicit Messages(jinja::Heap& heap) : heap_(heap), list_(heap.make<jinja::Seq>(&heap, jinja::SeqKind::kList)) {
    value = list_;
  }
  void add(string_view role, const Value& content) {
    auto* message = heap_.make<jinja::Dict>(&heap_);
    list_->items.push_back(message);
    message->set(jinja::make_text(heap_, "role", false), jinja::make_text(heap_, role, false));
    message->set(jinja::make_text(heap_, "content", false), content);
  }

  Value value;

 private:
  jinja::Heap& heap_;
  jinja::Seq* list_;
};

// What follows the open answer, which must be there once.
Status cut_behind_answer(const jinja::RenderedText& all, RenderedChat& out) {
  const size_t at = all.text.find(kOpenAnswer), begin = at + kOpenAnswer.size();
  if (at == string_view::npos || all.text.find(kOpenAnswer, begin) != string_view::npos)
    return fail(WEIR_ERR_UNSUPPORTED,
                "the model's chat template does not write answers as they are, so that a conversation cannot be "
                "continued behind an open one");
  out.text.assign(all.text, begin);
  for (const TextRange& range : all.said) {
    // What it writes there of a message would be cut off.
    if (range.begin < at && string_view(all.text).substr(range.begin, range.end - range.begin) != kOpenQuestion)
      return fail(WEIR_ERR_UNSUPPORTED,
                  "the model's chat template writes a message before the answers that came before it, so that a "
                  "conversation cannot be continued with it; render the whole");
    if (range.end > begin) out.said.push_back({std::max(range.begin, begin) - begin, range.end - begin});
  }
  return {};
}

}  // namespace

Status chat_render_jinja(string_view template_text, std::span<const weir_chat_message> messages, uint32_t flags,
                         string_view bos, string_view eos, int64_t unix_time, RenderedChat& out) {
  std::pmr::memory_resource* memory = out.text.get_allocator().resource();
  WEIR_TRY(chat_check(messages, flags));
  jinja::Template parsed(memory);
  WEIR_TRY(parsed.parse(template_text));
  jinja::Heap heap(memory);
  Messages list(heap);
  const bool continues = (flags & WEIR_CHAT_CONTINUE) != 0;
  if (continues) {
    list.add("user", jinja::make_text(heap, kOpenQuestion, true));
    list.add("assistant", jinja::make_text(heap, kOpenAnswer, true));
  }
  for (const weir_chat_message& message : messages) {
    const string_view content(message.content, message.content_bytes);
    if (continues && content.find(kOpenAnswer) != string_view::npos)
      return fail(WEIR_ERR_INVALID_ARG, "a message has a text that stands for an open answer");
    list.add(message.role, content_of(heap, message));
  }
  const jinja::Variable variables[] = {
      {"messages", list.value},
      {"add_generation_prompt", Value::boolean((flags & WEIR_CHAT_ADD_ASSISTANT) != 0)},
      {"bos_token", jinja::make_text(heap, bos, false)},
      {"eos_token", jinja::make_text(heap, eos, false)},
  };
  jinja::RenderedText all(memory);
  WEIR_TRY(jinja::render(parsed, heap, variables, unix_time, all));
  RenderedChat rendered(memory);
  if (continues) {
    WEIR_TRY(cut_behind_answer(all, rendered));
  } else {
    rendered.text.swap(all.text);
    rendered.said.swap(all.said);
  }
  out.text.swap(rendered.text);
  out.said.swap(rendered.said);
  return {};
}

}  // namespace weir
