// The chat families: how each is recognised and what it renders. One struct per family, named in chat_families.inc.
#include "text/chat_families.h"

#include "text/chat_text.h"

namespace weir {
namespace {

using std::string_view;

// ---- checks ----

Status check_system_first(const Chat& c) {
  for (size_t i = 0; i < c.size(); ++i) {
    if (c.role(i) == Role::kSystem && (i > 0 || c.continues)) {
      return fail(WEIR_ERR_INVALID_ARG, "messages[%zu]: with this model a system message can only begin a conversation",
                  i);
    }
  }
  return {};
}

// An optional system message, then questions and answers in turn.
Status check_turns(const Chat& c) {
  WEIR_TRY(check_system_first(c));
  const size_t first = c.starts_with_system() ? 1 : 0;
  for (size_t i = first; i < c.size(); ++i) {
    const Role wanted = (i - first) % 2 == 0 ? Role::kUser : Role::kAssistant;
    if (c.role(i) != wanted) {
      return fail(WEIR_ERR_INVALID_ARG,
                  "messages[%zu]: with this model user and assistant take turns, user first; the role is %s", i,
                  c.messages[i].role);
    }
  }
  if (first == 1 && c.size() == 1)
    return fail(WEIR_ERR_INVALID_ARG, "with this model a system message needs a user message after it");
  return {};
}

// ---- ChatML and its relatives ----

template <class Content>  // template text or Said
void chatml_turn(const Chat& c, string_view role, const Content& content) {
  c.put("<|im_start|>", role, "\n", content, "<|im_end|>\n");
}

bool is_chatml(const TemplateText& t) {
  return t.has("<|im_start|>") && t.has("<|im_end|>") && !t.has("<|im_sep|>") && !t.has("<|im_middle|>") &&
         !t.has("<end_of_utterance>");
}

Status render_chatml(const Chat& c, string_view bos, string_view default_system) {
  if (c.continues) {
    c.put("<|im_end|>\n");
  } else {
    c.put(bos);
    if (!default_system.empty() && !c.starts_with_system()) chatml_turn(c, "system", default_system);
  }
  for (size_t i = 0; i < c.size(); ++i) chatml_turn(c, c.role_name(i), c.content(i));
  if (c.asks) c.put("<|im_start|>assistant\n");
  return {};
}

struct ChatMl {
  static bool matches(const TemplateText& t) { return is_chatml(t); }
  static Status render(const Chat& c) { return render_chatml(c, {}, {}); }
};

struct ChatMlBos {
  static bool matches(const TemplateText& t) { return is_chatml(t) && t.has("bos_token"); }
  static Status render(const Chat& c) { return render_chatml(c, c.bos, {}); }
};

// ChatML with a default system message, `text` as rendered and `source` as in the template.
template <const string_view& text, const string_view& source = text>
struct ChatMlWith {
  static bool matches(const TemplateText& t) {
    if (!is_chatml(t)) return false;
    for (size_t at = t.text.find(source); at != string_view::npos; at = t.text.find(source, at + 1)) {
      const string_view before = t.text.substr(0, at), behind = t.text.substr(at + source.size());
      const bool begins = before.ends_with("<|im_start|>system\\n") || before.ends_with("<|im_start|>system\n");
      if (begins && behind.starts_with("<|im_end|>")) return true;
    }
    return false;
  }
  static Status render(const Chat& c) { return render_chatml(c, {}, text); }
};

constexpr string_view kQwen25System = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
constexpr string_view kQwen25MathSystem = "Please reason step by step, and put your final answer within \\boxed{}.";
constexpr string_view kQwen25MathSource = "Please reason step by step, and put your final answer within \\\\boxed{}.";
constexpr string_view kQwen2System = "You are a helpful assistant.";
constexpr string_view kQwen15System = "You are a helpful assistant";
constexpr string_view kSmolLm2System = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
using Qwen25 = ChatMlWith<kQwen25System>;
using Qwen25Math = ChatMlWith<kQwen25MathSystem, kQwen25MathSource>;
using Qwen2 = ChatMlWith<kQwen2System>;
using Qwen15 = ChatMlWith<kQwen15System>;
using SmolLm2 = ChatMlWith<kSmolLm2System>;

struct Qwen3 {
  static bool matches(const TemplateText& t) { return is_chatml(t) && t.has("last_query_index") && t.has(kThinkEnd); }

  static Status render(const Chat& c) {
    if (c.continues) c.put("<|im_end|>\n");
    const size_t last_question = last_question_of(c);
    for (size_t i = 0; i < c.size(); ++i) {
      if (c.role(i) == Role::kAssistant) {
        answer(c, i, i > last_question);
      } else {
        chatml_turn(c, c.role_name(i), c.content(i));
      }
    }
    if (c.asks) c.put("<|im_start|>assistant\n");
    return {};
  }

 private:
  // The last message of the user that is not a tool's result; without one, the last message.
  static size_t last_question_of(const Chat& c) {
    for (size_t i = c.size(); i-- > 0;) {
      const string_view text = c.content(i).text;
      const bool tool_result = text.starts_with("<tool_response>") && text.ends_with("</tool_response>");
      if (c.role(i) == Role::kUser && !tool_result) return i;
    }
    return c.size();
  }

  static void answer(const Chat& c, size_t i, bool after_question) {
    const bool has_thoughts = c.content(i).text.find(kThinkEnd) != string_view::npos;
    const Said text = has_thoughts ? trim_front(after_thoughts(c.content(i)), '\n') : c.content(i);
    const Said thought = thoughts(c.content(i));
    c.put("<|im_start|>assistant\n");
    if (after_question && (i + 1 == c.size() || !thought.text.empty())) {
      c.put("<think>\n", trim_back(trim_front(thought, '\n'), '\n'), "\n</think>\n\n", trim_front(text, '\n'));
    } else {
      c.put(text);
    }
    c.put("<|im_end|>\n");
  }
};

struct Qwq {
  static bool matches(const TemplateText& t) {
    return is_chatml(t) && !t.has("last_query_index") && t.has_lines("<|im_start|>assistant", kThinkBegin);
  }

  static Status render(const Chat& c) {
    if (c.continues) c.put("<|im_end|>\n");
    for (size_t i = 0; i < c.size(); ++i) {
      const bool shorten = c.role(i) == Role::kAssistant && i + 1 < c.size();
      chatml_turn(c, c.role_name(i), shorten ? trim_front(after_thoughts(c.content(i)), '\n') : c.content(i));
    }
    if (c.asks) c.put("<|im_start|>assistant\n<think>\n");
    return {};
  }
};

// ---- Llama ----

bool is_llama3(const TemplateText& t) {
  return t.has("<|start_header_id|>") && t.has("<|end_header_id|>") && t.has("<|eot_id|>");
}

Status render_llama3(const Chat& c, bool dated) {
  const auto header = [&c](string_view role) { c.put("<|start_header_id|>", role, "<|end_header_id|>\n\n"); };
  c.put(c.continues ? string_view("<|eot_id|>") : c.bos);
  size_t i = 0;
  if (dated && !c.continues) {
    header("system");
    c.put("Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
    if (c.starts_with_system()) c.put(trim(c.content(i++)));
    c.put("<|eot_id|>");
  }
  for (; i < c.size(); ++i) {
    header(c.role_name(i));
    c.put(trim(c.content(i)), "<|eot_id|>");
  }
  if (c.asks) header("assistant");
  return {};
}

struct Llama3 {
  static bool matches(const TemplateText& t) { return is_llama3(t); }
  static Status render(const Chat& c) { return render_llama3(c, false); }
};

struct Llama31 {
  static bool matches(const TemplateText& t) {
    return is_llama3(t) && t.has("Cutting Knowledge Date: December 2023") && t.has("Today Date: ") &&
           t.has("26 Jul 2024");
  }
  static Status render(const Chat& c) { return render_llama3(c, true); }
};

struct Llama2 {
  static bool matches(const TemplateText& t) {
    return t.has("<<SYS>>") && t.has("bos_token + '[INST] '") && t.has("content.strip()");
  }

  static Status render(const Chat& c) {
    WEIR_TRY(check_turns(c));
    if (c.continues) c.put(" ", c.eos);
    for (size_t i = c.starts_with_system() ? 1 : 0; i < c.size(); ++i) {
      if (c.role(i) == Role::kAssistant) {
        c.put(" ", trim(c.content(i)), " ", c.eos);
      } else if (i == 1 && c.starts_with_system()) {
        // The whole is trimmed at both ends; it begins with a marker, so only its end can change.
        const Said text = trim_end(c.content(i));
        c.put(c.bos, "[INST] <<SYS>>\n", c.content(0), text.text.empty() ? "\n<</SYS>>" : "\n<</SYS>>\n\n", text,
              " [/INST]");
      } else {
        c.put(c.bos, "[INST] ", trim(c.content(i)), " [/INST]");
      }
    }
    return {};
  }
};

// ---- Mistral ----

struct MistralStyle {
  enum class System : uint8_t { kFirstQuestion, kLastQuestion, kOwnTurn };
  string_view open, close;  // around a question
  string_view answer_begin;
  string_view answer_end;  // behind EOS
  bool trim_answer;
  System system;
  string_view system_open;  // of kOwnTurn
};

Status render_mistral(const Chat& c, const MistralStyle& style) {
  using System = MistralStyle::System;
  WEIR_TRY(check_turns(c));
  if (c.continues) {
    c.put(c.eos, style.answer_end);
  } else {
    c.put(c.bos);
  }
  const size_t first = c.starts_with_system() ? 1 : 0;
  // kLastQuestion: in a conversation that ends with an answer the system message is left out.
  const size_t with_system = style.system == System::kLastQuestion ? c.size() - 1 : first;
  if (first == 1 && style.system == System::kOwnTurn) c.put(style.system_open, c.content(0), "[/SYSTEM_PROMPT]");
  for (size_t i = first; i < c.size(); ++i) {
    if (c.role(i) == Role::kAssistant) {
      c.put(style.answer_begin, style.trim_answer ? trim(c.content(i)) : c.content(i), c.eos, style.answer_end);
      continue;
    }
    c.put(style.open);
    if (first == 1 && i == with_system && style.system != System::kOwnTurn) c.put(c.content(0), "\n\n");
    c.put(c.content(i), style.close);
  }
  return {};
}

bool is_mistral(const TemplateText& t) { return t.has("[INST]") && t.has("[/INST]"); }

struct MistralV7 {
  static bool matches(const TemplateText& t) { return is_mistral(t) && t.has("[SYSTEM_PROMPT] "); }
  static Status render(const Chat& c) {
    return render_mistral(c,
                          {"[INST] ", "[/INST]", " ", "", false, MistralStyle::System::kOwnTurn, "[SYSTEM_PROMPT] "});
  }
};

struct MistralV7Tekken {
  static bool matches(const TemplateText& t) { return is_mistral(t) && t.has("[SYSTEM_PROMPT]"); }
  static Status render(const Chat& c) {
    return render_mistral(c, {"[INST]", "[/INST]", "", "", false, MistralStyle::System::kOwnTurn, "[SYSTEM_PROMPT]"});
  }
};

struct MistralV1 {
  static bool matches(const TemplateText& t) { return is_mistral(t) && t.has("' [INST] '"); }
  static Status render(const Chat& c) {
    return render_mistral(c, {" [INST] ", " [/INST]", " ", "", false, MistralStyle::System::kFirstQuestion, ""});
  }
};

struct MistralV3Tekken {
  static bool matches(const TemplateText& t) {
    return is_mistral(t) && t.has("[AVAILABLE_TOOLS]") && t.has("\"[INST]\"");
  }
  static Status render(const Chat& c) {
    return render_mistral(c, {"[INST]", "[/INST]", "", "", false, MistralStyle::System::kLastQuestion, ""});
  }
};

struct MistralV3 {
  static bool matches(const TemplateText& t) {
    return is_mistral(t) && t.has("[AVAILABLE_TOOLS]") && t.has("\"[INST] \"");
  }
  static Status render(const Chat& c) {
    return render_mistral(c, {"[INST] ", "[/INST]", " ", "", true, MistralStyle::System::kLastQuestion, ""});
  }
};

bool is_old_mistral(const TemplateText& t) {
  return is_mistral(t) && !t.has("<<SYS>>") && t.has("'[INST] ' + message['content'] + ' [/INST]'");
}

struct Mistral {
  static bool matches(const TemplateText& t) { return is_old_mistral(t); }
  static Status render(const Chat& c) {
    return render_mistral(c, {"[INST] ", " [/INST]", "", "", false, MistralStyle::System::kFirstQuestion, ""});
  }
};

// The first release puts a space behind EOS.
struct MistralSpaced {
  static bool matches(const TemplateText& t) { return is_old_mistral(t) && t.has("eos_token + ' '"); }
  static Status render(const Chat& c) {
    return render_mistral(c, {"[INST] ", " [/INST]", "", " ", false, MistralStyle::System::kFirstQuestion, ""});
  }
};

// ---- DeepSeek ----

constexpr string_view kDeepSeekUser = "<｜User｜>", kDeepSeekAssistant = "<｜Assistant｜>",
                      kDeepSeekEnd = "<｜end▁of▁sentence｜>";

bool is_deepseek_r1(const TemplateText& t) {
  // Hybrid models write </think> behind the marker of an answer, which is another family.
  return t.has(kDeepSeekUser) && t.has(kDeepSeekAssistant) && t.has(kDeepSeekEnd) &&
         !t.has("<｜Assistant｜></think>") && !t.has("not thinking");
}

Status render_deepseek_r1(const Chat& c, string_view answer_begin) {
  WEIR_TRY(check_system_first(c));
  c.put(c.continues ? kDeepSeekEnd : c.bos);
  for (size_t i = 0; i < c.size(); ++i) {
    switch (c.role(i)) {
      case Role::kSystem:
        c.put(c.content(i));
        break;
      case Role::kUser:
        c.put(kDeepSeekUser, c.content(i));
        break;
      case Role::kAssistant:
        c.put(kDeepSeekAssistant, after_thoughts(c.content(i)), kDeepSeekEnd);
        break;
    }
  }
  if (c.asks) c.put(kDeepSeekAssistant, answer_begin);
  return {};
}

struct DeepSeekR1 {
  static bool matches(const TemplateText& t) { return is_deepseek_r1(t); }
  static Status render(const Chat& c) { return render_deepseek_r1(c, ""); }
};

struct DeepSeekR1Think {
  static bool matches(const TemplateText& t) { return is_deepseek_r1(t) && t.has("<｜Assistant｜><think>"); }
  static Status render(const Chat& c) { return render_deepseek_r1(c, "<think>\n"); }
};

// Later templates open the answer together with the question before it, so that other orders come out differently.
struct DeepSeekR1Turns {
  static bool matches(const TemplateText& t) { return is_deepseek_r1(t) && t.has("is_last_user"); }
  static Status render(const Chat& c) {
    WEIR_TRY(check_turns(c));
    return render_deepseek_r1(c, "");
  }
};

struct DeepSeekLlm {
  static bool matches(const TemplateText& t) {
    return t.has("'User: ' + message['content']") && t.has("'Assistant: ' + message['content'] + eos_token");
  }

  static Status render(const Chat& c) {
    c.put(c.continues ? c.eos : c.bos);
    for (size_t i = 0; i < c.size(); ++i) {
      switch (c.role(i)) {
        case Role::kSystem:
          c.put(c.content(i), "\n\n");
          break;
        case Role::kUser:
          c.put("User: ", c.content(i), "\n\n");
          break;
        case Role::kAssistant:
          c.put("Assistant: ", c.content(i), c.eos);
          break;
      }
    }
    if (c.asks) c.put("Assistant:");
    return {};
  }
};

// ---- others ----

// <|ROLE|>\nTEXT and an end.
Status render_bars(const Chat& c, string_view bos, string_view end) {
  if (c.continues) {
    c.put(end, "\n");
  } else {
    c.put(bos);
  }
  for (size_t i = 0; i < c.size(); ++i) c.put("<|", c.role_name(i), "|>\n", c.content(i), end, "\n");
  if (c.asks) c.put("<|assistant|>\n");
  return {};
}

struct Phi3 {
  static bool matches(const TemplateText& t) {
    return t.has("<|assistant|>") && t.has("<|end|>") && !t.has("<|tool|>") && !t.has("<|im_start|>");
  }
  static Status render(const Chat& c) { return render_bars(c, {}, "<|end|>"); }
};

struct Phi3Bos {
  static bool matches(const TemplateText& t) { return Phi3::matches(t) && t.has("bos_token"); }
  static Status render(const Chat& c) { return render_bars(c, c.bos, "<|end|>"); }
};

struct Zephyr {
  static bool matches(const TemplateText& t) {
    return t.has_lines("'<|user|>", "' + message['content'] + eos_token") && t.has("<|assistant|>") &&
           (t.has("eos_token }}\n") || t.has_lines("eos_token + '", "'"));
  }
  static Status render(const Chat& c) { return render_bars(c, {}, c.eos); }
};

struct Gemma {
  static bool matches(const TemplateText& t) { return t.has("<start_of_turn>") && t.has("<end_of_turn>"); }

  static Status render(const Chat& c) {
    WEIR_TRY(check_turns(c));
    c.put(c.continues ? string_view("<end_of_turn>\n") : c.bos);
    for (size_t i = c.starts_with_system() ? 1 : 0; i < c.size(); ++i) {
      c.put("<start_of_turn>", c.role(i) == Role::kUser ? "user" : "model", "\n");
      if (i == 1 && c.starts_with_system()) c.put(c.content(0), "\n\n");
      c.put(trim(c.content(i)), "<end_of_turn>\n");
    }
    if (c.asks) c.put("<start_of_turn>model\n");
    return {};
  }
};

constexpr ChatFamilyEntry kFamilies[] = {
#define WEIR_CHAT_FAMILY(Name, text) {text, Name::matches, Name::render},
#include "text/chat_families.inc"
#undef WEIR_CHAT_FAMILY
};

}  // namespace

void Chat::append(const Said& said) const {
  if (said.text.empty()) return;
  if (said.may_think && said.text.starts_with(kThinkBegin)) {
    const string_view rest = said.text.substr(kThinkBegin.size());
    const size_t end = rest.find(kThinkEnd);
    append(kThinkBegin);
    append(Said{rest.substr(0, end)});
    if (end == string_view::npos) return;
    append(kThinkEnd);
    append(Said{rest.substr(end + kThinkEnd.size())});
    return;
  }
  out.said.push_back({out.text.size(), out.text.size() + said.text.size()});
  out.text.append(said.text);
}

bool TemplateText::has_lines(string_view before, string_view after) const {
  for (size_t at = text.find(before); at != string_view::npos; at = text.find(before, at + 1)) {
    string_view rest = text.substr(at + before.size());
    if (rest.starts_with("\\n")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with("\n")) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (rest.starts_with(after)) return true;
  }
  return false;
}

std::span<const ChatFamilyEntry> chat_families() { return kFamilies; }

}  // namespace weir
