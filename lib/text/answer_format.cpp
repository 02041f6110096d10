// The tags of models' answers; see answer_format.h.
#include "text/answer_format.h"

#include <algorithm>
#include <memory_resource>
#include <vector>

namespace weir {
namespace {

using std::string_view;

constexpr uint8_t bit(AnswerPlace place) { return static_cast<uint8_t>(1u << static_cast<uint8_t>(place)); }
constexpr uint8_t kInAnswer = bit(AnswerPlace::kAnswer), kInThought = bit(AnswerPlace::kThought),
                  kInCall = bit(AnswerPlace::kCall), kInHeader = bit(AnswerPlace::kHeader);
constexpr uint8_t kAnywhere = kInAnswer | kInThought | kInCall | kInHeader;
constexpr uint8_t kToAnswer = static_cast<uint8_t>(AnswerPlace::kAnswer),
                  kToThought = static_cast<uint8_t>(AnswerPlace::kThought),
                  kToCall = static_cast<uint8_t>(AnswerPlace::kCall),
                  kToHeader = static_cast<uint8_t>(AnswerPlace::kHeader);

struct Thoughts {
  const char* marker;  // in templates of models that have them
  const char *begin, *end;
};
// The first whose marker a template has.
constexpr Thoughts kThoughts[] = {
    {"[BEGIN FINAL RESPONSE]", "Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"},
    {"Here is my response:", "Here is my thought process:", "Here is my response:"},
    {"</mm:think>", "<mm:think>", "</mm:think>"},
    {"</think{}>", "<think:opensource>", "</think:opensource>"},
    {"</seed:think>", "<seed:think>", "</seed:think>"},
    {"[/THINK]", "[THINK]", "[/THINK]"},
    {"◁/think▷", "◁think▷", "◁/think▷"},
    {"<|END_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|inner_suffix|>", "<|inner_prefix|>", "<|inner_suffix|>"},
    {"</think>", "<think>", "</think>"},
    {"</thinking>", "<thinking>", "</thinking>"},
};

struct Calls {
  const char* name;
  const char* marker;       // in templates of models that have them
  const char *begin, *end;  // no end: that of the answer
  CallForm form;
};
// The first whose marker a template has.
constexpr Calls kCalls[] = {
    {"gemma4", "<|tool_call>", "<|tool_call>", "<tool_call|>", CallForm::kGemma},
    {"minimax-m3", "]<]minimax[>[", "]<]minimax[>[<tool_call>", "]<]minimax[>[</tool_call>", CallForm::kNested},
    {"minimax", "<minimax:tool_call>", "<minimax:tool_call>", "</minimax:tool_call>", CallForm::kByLook},
    {"deepseek-dsml", "｜DSML｜", "<｜DSML｜function_calls>", "</｜DSML｜function_calls>", CallForm::kByLook},
    {"kimi", "<|tool_calls_section_begin|>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
     CallForm::kFields},
    {"deepseek", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", CallForm::kFields},
    {"solar", "<|tool_calls|>", "<|tool_calls|>", "<|calls|>", CallForm::kFields},
    {"lfm2", "<|tool_call_start|>", "<|tool_call_start|>", "<|tool_call_end|>", CallForm::kPython},
    {"mistral", "[TOOL_CALLS]", "[TOOL_CALLS]", "", CallForm::kMistral},
    {"nemotron", "<TOOLCALL>", "<TOOLCALL>", "</TOOLCALL>", CallForm::kByLook},
    {"hunyuan", "<tool_calls{}>", "<tool_calls:opensource>", "</tool_calls:opensource>", CallForm::kByLook},
    {"apriel", "<tool_calls>[", "<tool_calls>", "</tool_calls>", CallForm::kByLook},
    {"seed", "<seed:tool_call>", "<seed:tool_call>", "</seed:tool_call>", CallForm::kByLook},
    {"command", "<|START_ACTION|>", "<|START_ACTION|>", "<|END_ACTION|>", CallForm::kByLook},
    {"granite", "<|tool_call|>", "<|tool_call|>", "<|/tool_call|>", CallForm::kByLook},
    {"qwen3-coder", "<function=", "<tool_call>", "</tool_call>", CallForm::kByLook},
    {"glm", "<arg_key>", "<tool_call>", "</tool_call>", CallForm::kByLook},
    {"hermes", "<tool_call>", "<tool_call>", "</tool_call>", CallForm::kByLook},
    {"minicpm", "<function name=", "<function name=", "</function>", CallForm::kByLook},
    {"gigachat", "<|function_call|>", "<|function_call|>", "", CallForm::kByLook},
    {"firefunction", "functools[", "functools[", "", CallForm::kByLook},
    {"llama3", "dictionary of argument name and its value", "<|python_tag|>", "", CallForm::kLlama},
};

struct Builder {
  AnswerFormat& f;

  AnswerTag& add(const char* text, uint8_t from, uint8_t to) {
    AnswerTag& tag = f.tag[f.n_tags++];
    tag.text = text;
    tag.from = from;
    tag.to = to;
    return tag;
  }
  void thoughts(const char* begin, const char* end, const char* close) {
    f.thought_begin = begin;
    f.thought_end = end;
    f.thought_close = close;
  }
  void thoughts(const Thoughts& t) {
    thoughts(t.begin, t.end, t.end);
    add(t.begin, kInAnswer | kInHeader, kToThought);
    add(t.end, kInThought | kInAnswer, kToAnswer);
  }
  void call(const char* begin, const char* end, uint8_t number, bool is_kept) {
    const bool is_repeated = f.form == CallForm::kMistral;
    AnswerTag& first = add(begin, is_repeated ? kInAnswer | kInCall : kInAnswer | kInHeader, kToCall);
    first.call = number;
    first.is_kept = is_kept;
    if (*end == '\0') return;
    AnswerTag& last = add(end, is_kept ? kInCall : kInCall | kInAnswer, kToAnswer);
    last.call = number;
    last.is_kept = is_kept;
    last.ends_call = true;
  }
  void calls(const Calls& c) {
    f.tool_format = c.name;
    f.form = c.form;
    const string_view name = c.name;
    f.bare_calls = name == "llama3";
    call(c.begin, c.end, 1, name == "minicpm" || name == "firefunction");
    if (name == "qwen3-coder") call("<function=", "</function>", 2, true);  // its models often leave the outer tags out
  }
  // <|start|>ROLE<|channel|>CHANNEL to=NAME<|message|>TEXT<|end|>
  void harmony() {
    thoughts("<|channel|>analysis<|message|>", "<|end|>", "<|end|><|start|>assistant<|channel|>final<|message|>");
    f.tool_format = "harmony";
    f.form = CallForm::kHarmony;
    add("<|start|>", kAnywhere, kToHeader);
    add("<|channel|>", kAnywhere, kToHeader);
    add("<|message|>", kInHeader, AnswerTag::kByHeader);
    add("<|end|>", kAnywhere, kToAnswer);
    add("<|call|>", kAnywhere, kToAnswer);
  }
  // <|begin|>ROLE<|think|>TEXT<|end|>, and <|content|> and <|tool_calls|> likewise
  void solar() {
    thoughts("<|think|>", "<|end|>", "<|end|><|begin|>assistant<|content|>");
    add("<|begin|>", kAnywhere, kToHeader);
    add("<|think|>", kInAnswer | kInHeader, kToThought);
    add("<|content|>", kInAnswer | kInHeader, kToAnswer);
    add("<|end|>", kInAnswer | kInThought | kInHeader, kToAnswer);
  }
  // <|channel>thought LINE END TEXT<channel|>
  void gemma() {
    thoughts("<|channel>thought\n", "<channel|>", "<channel|>");
    add("<|channel>", kInAnswer, kToHeader);
    add("\n", kInHeader, kToThought);
    add("<channel|>", kInThought | kInAnswer | kInHeader, kToAnswer);
  }
};

// `has` says whether a text of the tables is there.
template <class Has>
void find_thoughts(AnswerFormat& f, Has&& has) {
  Builder b{f};
  if (has("<|channel|>") && has("<|message|>")) return b.harmony();
  if (has("<channel|>")) return b.gemma();
  if (has("<|think|>") && has("<|content|>")) return b.solar();
  for (const Thoughts& t : kThoughts) {
    if (!has(t.marker)) continue;
    b.thoughts(t);
    break;
  }
  // What models that have thoughts write around the answer.
  if (f.n_tags == 0 || f.thought_end == string_view("</mm:think>")) return;
  for (const char* around : {"<response>", "</response>", "[END FINAL RESPONSE]"}) {
    if (has(around)) b.add(around, kInAnswer, kToAnswer);
  }
}

template <class Has>
void find_calls(AnswerFormat& f, Has&& has) {
  const auto calls = std::find_if(std::begin(kCalls), std::end(kCalls), [&](const Calls& c) { return has(c.marker); });
  if (calls != std::end(kCalls)) Builder{f}.calls(*calls);
}

}  // namespace

AnswerFormat answer_format_of(string_view template_text, const Tokenizer* tokenizer) {
  const auto in_template = [&](const char* text) { return template_text.find(text) != string_view::npos; };
  const auto in_vocab = [&](const char* text) { return tokenizer->find_mark(text) >= 0; };
  AnswerFormat format;
  find_thoughts(format, in_template);
  if (format.n_tags == 0 && tokenizer != nullptr) find_thoughts(format, in_vocab);
  if (format.form == CallForm::kNone) find_calls(format, in_template);
  if (format.form == CallForm::kNone && tokenizer != nullptr) find_calls(format, in_vocab);
  return format;
}

Status find_answer_tokens(const Tokenizer& tokenizer, std::pmr::memory_resource* memory, AnswerFormat& format) {
  for (uint32_t i = 0; i < format.n_tags; ++i) format.tag[i].token = tokenizer.find_mark(format.tag[i].text);
  if (*format.thought_close == '\0') return {};
  std::pmr::vector<weir_token> ids(memory);
  WEIR_TRY(tokenizer.encode(format.thought_close, WEIR_TOKENIZE_SPECIAL, ids));
  if (ids.empty() || ids.size() > AnswerFormat::kMaxEndTokens) return {};  // no thought of it can be ended
  std::copy(ids.begin(), ids.end(), format.end_tokens);
  format.n_end_tokens = static_cast<uint32_t>(ids.size());
  return {};
}

}  // namespace weir
