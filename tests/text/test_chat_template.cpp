// text: chat families. Each has a template that resembles it and its rendering of one conversation, written out; which
// templates are known exactly, and that any other is refused.
#include <set>
#include <string>
#include <vector>

#include "text/chat_families.h"
#include "text/chat_template.h"

#include "tests/chat_message.h"
#include "text/sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
extern "C" {
#include <cmocka.h>
}

using namespace weir;

namespace {

struct Message {
  const char* role;
  std::string content;
};
using Messages = std::vector<Message>;

// A family, as if the template were known exactly.
ChatTemplate exactly(ChatFamily family) { return {family, true}; }

Status render(const ChatTemplate& chat_template, const Messages& messages, uint32_t flags, RenderedChat& out,
              const char* bos = "<s>", const char* eos = "</s>") {
  std::vector<weir_chat_message> list;
  for (const Message& m : messages) list.push_back(weir_test::chat_message(m.role, m.content));
  return chat_render(chat_template, list, flags, bos, eos, out);
}

std::string rendered(const ChatTemplate& chat_template, const Messages& messages, uint32_t flags) {
  RenderedChat out(std::pmr::get_default_resource());
  const Status status = render(chat_template, messages, flags, out);
  if (!status.ok()) fail_msg("%s: %s", chat_family_name(chat_template.family), last_error_text());
  return std::string(out.text);
}

std::string rendered(ChatFamily family, const Messages& messages, uint32_t flags) {
  return rendered(exactly(family), messages, flags);
}

const Messages kConversation = {{"system", "Be brief."},
                                {"user", " What is 2 + 2?\n"},
                                {"assistant", "<think>\nEasy.\n</think>\n\n4"},
                                {"user", "Thanks"}};
const Messages kQuestion = {{"user", " What is 2 + 2?\n"}};

struct Golden {
  const char* family;
  const char* template_text;
  const char* conversation;  // kConversation, asking for an answer
  const char* question;      // kQuestion, asking for an answer
  const char* next;          // kQuestion behind a conversation whose last answer is open, asking for an answer
};

#define CHATML_TURNS "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
#define CHATML_LONG                                                                          \
  "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n What is 2 + 2?\n<|im_end|>\n" \
  "<|im_start|>assistant\n<think>\nEasy.\n</"                                                \
  "think>\n\n4<|im_end|>\n<|im_start|>user\nThanks<|im_end|>\n<|im_start|>assistant\n"
#define CHATML_SHORT "<|im_start|>user\n What is 2 + 2?\n<|im_end|>\n<|im_start|>assistant\n"

const Golden kGoldens[] = {
    {"chatml", "{% for message in messages %}" CHATML_TURNS "{% endfor %}", CHATML_LONG, CHATML_SHORT,
     "<|im_end|>\n" CHATML_SHORT},
    {"chatml", "{{ bos_token }}{% for message in messages %}" CHATML_TURNS "{% endfor %}", "<s>" CHATML_LONG,
     "<s>" CHATML_SHORT, "<|im_end|>\n" CHATML_SHORT},
    {"qwen2.5",
     "{{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' "
     "}}" CHATML_TURNS,
     CHATML_LONG,
     "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
     "assistant.<|im_end|>\n" CHATML_SHORT,
     "<|im_end|>\n" CHATML_SHORT},
    {"qwen2.5-math",
     "{{- '<|im_start|>system\\nPlease reason step by step, and put your final answer within "
     "\\\\boxed{}.<|im_end|>\\n' }}" CHATML_TURNS,
     CHATML_LONG,
     "<|im_start|>system\nPlease reason step by step, and put your final answer within "
     "\\boxed{}.<|im_end|>\n" CHATML_SHORT,
     "<|im_end|>\n" CHATML_SHORT},
    {"qwen2", "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}" CHATML_TURNS, CHATML_LONG,
     "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" CHATML_SHORT, "<|im_end|>\n" CHATML_SHORT},
    {"qwen1.5", "{{ '<|im_start|>system\nYou are a helpful assistant<|im_end|>\n' }}" CHATML_TURNS, CHATML_LONG,
     "<|im_start|>system\nYou are a helpful assistant<|im_end|>\n" CHATML_SHORT, "<|im_end|>\n" CHATML_SHORT},
    {"smollm2",
     "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' "
     "}}" CHATML_TURNS,
     CHATML_LONG,
     "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
     "Face<|im_end|>\n" CHATML_SHORT,
     "<|im_end|>\n" CHATML_SHORT},
    {"qwen3", "{%- set ns = namespace(last_query_index=0) %}{%- if '</think>' in message.content %}" CHATML_TURNS,
     "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n What is 2 + "
     "2?\n<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n"
     "<|im_start|>user\nThanks<|im_end|>\n<|im_start|>assistant\n",
     CHATML_SHORT, "<|im_end|>\n" CHATML_SHORT},
    {"qwq", CHATML_TURNS "{{- '<|im_start|>assistant\\n<think>\\n' }}",
     "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n What is 2 + "
     "2?\n<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n"
     "<|im_start|>user\nThanks<|im_end|>\n<|im_start|>assistant\n<think>\n",
     CHATML_SHORT "<think>\n", "<|im_end|>\n" CHATML_SHORT "<think>\n"},
    {"llama3",
     "{{ bos_token + '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + "
     "'<|eot_id|>' }}",
     "<s><|start_header_id|>system<|end_header_id|>\n\nBe "
     "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWhat is 2 + 2?<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n<think>\nEasy.\n</think>\n\n4<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nThanks<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     "<s><|start_header_id|>user<|end_header_id|>\n\nWhat is 2 + "
     "2?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWhat is 2 + "
     "2?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"llama3.1",
     "{%- set date_string = \"26 Jul 2024\" %}{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}"
     "{{- \"Cutting Knowledge Date: December 2023\\n\" }}{{- \"Today Date: \" + date_string + \"\\n\\n\" }}{{- "
     "\"<|eot_id|>\" }}",
     "<s><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul "
     "2024\n\nBe brief.<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nWhat is 2 + 2?<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n<think>\nEasy.\n</think>\n\n4<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nThanks<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     "<s><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul "
     "2024\n\n<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nWhat is 2 + "
     "2?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWhat is 2 + "
     "2?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"llama2",
     "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' %}{{ bos_token + '[INST] ' + "
     "content.strip() + ' [/INST]' }}"
     "{{ ' ' + content.strip() + ' ' + eos_token }}",
     "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n What is 2 + 2? [/INST] <think>\nEasy.\n</think>\n\n4 </s><s>[INST] "
     "Thanks [/INST]",
     "<s>[INST] What is 2 + 2? [/INST]", " </s><s>[INST] What is 2 + 2? [/INST]"},
    {"mistral", "{{ bos_token }}{{ '[INST] ' + message['content'] + ' [/INST]' }}{{ message['content'] + eos_token}}",
     "<s>[INST] Be brief.\n\n What is 2 + 2?\n [/INST]<think>\nEasy.\n</think>\n\n4</s>[INST] Thanks [/INST]",
     "<s>[INST]  What is 2 + 2?\n [/INST]", "</s>[INST]  What is 2 + 2?\n [/INST]"},
    {"mistral",
     "{{ bos_token }}{{ '[INST] ' + message['content'] + ' [/INST]' }}{{ message['content'] + eos_token + ' ' }}",
     "<s>[INST] Be brief.\n\n What is 2 + 2?\n [/INST]<think>\nEasy.\n</think>\n\n4</s> [INST] Thanks [/INST]",
     "<s>[INST]  What is 2 + 2?\n [/INST]", "</s> [INST]  What is 2 + 2?\n [/INST]"},
    {"mistral-v1", "{{- bos_token }}{{- ' [INST] ' + system_message + '\\n\\n' + message['content'] + ' [/INST]' }}",
     "<s> [INST] Be brief.\n\n What is 2 + 2?\n [/INST] <think>\nEasy.\n</think>\n\n4</s> [INST] Thanks [/INST]",
     "<s> [INST]  What is 2 + 2?\n [/INST]", "</s> [INST]  What is 2 + 2?\n [/INST]"},
    {"mistral-v3", "{{- \"[AVAILABLE_TOOLS] [\" }}{{- \"[INST] \" + message[\"content\"] + \"[/INST]\" }}",
     "<s>[INST]  What is 2 + 2?\n[/INST] <think>\nEasy.\n</think>\n\n4</s>[INST] Be brief.\n\nThanks[/INST]",
     "<s>[INST]  What is 2 + 2?\n[/INST]", "</s>[INST]  What is 2 + 2?\n[/INST]"},
    {"mistral-v3-tekken", "{{- \"[AVAILABLE_TOOLS][\" }}{{- \"[INST]\" + message[\"content\"] + \"[/INST]\" }}",
     "<s>[INST] What is 2 + 2?\n[/INST]<think>\nEasy.\n</think>\n\n4</s>[INST]Be brief.\n\nThanks[/INST]",
     "<s>[INST] What is 2 + 2?\n[/INST]", "</s>[INST] What is 2 + 2?\n[/INST]"},
    {"mistral-v7",
     "{{ '[SYSTEM_PROMPT] ' + message['content'] + '[/SYSTEM_PROMPT]' }}{{ '[INST] ' + message['content'] + '[/INST]' "
     "}}",
     "<s>[SYSTEM_PROMPT] Be brief.[/SYSTEM_PROMPT][INST]  What is 2 + 2?\n[/INST] "
     "<think>\nEasy.\n</think>\n\n4</s>[INST] Thanks[/INST]",
     "<s>[INST]  What is 2 + 2?\n[/INST]", "</s>[INST]  What is 2 + 2?\n[/INST]"},
    {"mistral-v7-tekken",
     "{{ '[SYSTEM_PROMPT]' + message['content'] + '[/SYSTEM_PROMPT]' }}{{ '[INST]' + message['content'] + '[/INST]' }}",
     "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST] What is 2 + "
     "2?\n[/INST]<think>\nEasy.\n</think>\n\n4</s>[INST]Thanks[/INST]",
     "<s>[INST] What is 2 + 2?\n[/INST]", "</s>[INST] What is 2 + 2?\n[/INST]"},
    {"deepseek-r1", "{{'<｜User｜>' + message['content']}}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}",
     "<s>Be brief.<｜User｜> What is 2 + 2?\n<｜Assistant｜>\n\n4<｜end▁of▁sentence｜><｜User｜>Thanks<｜Assistant｜>",
     "<s><｜User｜> What is 2 + 2?\n<｜Assistant｜>",
     "<｜end▁of▁sentence｜><｜User｜> What is 2 + 2?\n<｜Assistant｜>"},
    {"deepseek-r1",
     "{{'<｜User｜>' + message['content']}}{{'<｜Assistant｜>' + content + "
     "'<｜end▁of▁sentence｜>'}}{{'<｜Assistant｜><think>\\n'}}",
     "<s>Be brief.<｜User｜> What is 2 + "
     "2?\n<｜Assistant｜>\n\n4<｜end▁of▁sentence｜><｜User｜>Thanks<｜Assistant｜><think>\n",
     "<s><｜User｜> What is 2 + 2?\n<｜Assistant｜><think>\n",
     "<｜end▁of▁sentence｜><｜User｜> What is 2 + 2?\n<｜Assistant｜><think>\n"},
    {"deepseek-r1",
     "{%- set ns = namespace(is_last_user=false) %}{{'<｜User｜>' + content + '<｜Assistant｜>'}}{{content + "
     "'<｜end▁of▁sentence｜>'}}",
     "<s>Be brief.<｜User｜> What is 2 + 2?\n<｜Assistant｜>\n\n4<｜end▁of▁sentence｜><｜User｜>Thanks<｜Assistant｜>",
     "<s><｜User｜> What is 2 + 2?\n<｜Assistant｜>",
     "<｜end▁of▁sentence｜><｜User｜> What is 2 + 2?\n<｜Assistant｜>"},
    {"deepseek-llm", "{{ 'User: ' + message['content'] + '\n\n' }}{{ 'Assistant: ' + message['content'] + eos_token }}",
     "<s>Be brief.\n\nUser:  What is 2 + 2?\n\n\nAssistant: <think>\nEasy.\n</think>\n\n4</s>User: "
     "Thanks\n\nAssistant:",
     "<s>User:  What is 2 + 2?\n\n\nAssistant:", "</s>User:  What is 2 + 2?\n\n\nAssistant:"},
    {"phi3", "{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{{ '<|assistant|>\n' }}",
     "<|system|>\nBe brief.<|end|>\n<|user|>\n What is 2 + "
     "2?\n<|end|>\n<|assistant|>\n<think>\nEasy.\n</think>\n\n4<|end|>\n"
     "<|user|>\nThanks<|end|>\n<|assistant|>\n",
     "<|user|>\n What is 2 + 2?\n<|end|>\n<|assistant|>\n",
     "<|end|>\n<|user|>\n What is 2 + 2?\n<|end|>\n<|assistant|>\n"},
    {"phi3", "{{ bos_token }}{{'<|user|>' + '\n' + message['content'] + '<|end|>' + '\n' + '<|assistant|>' + '\n'}}",
     "<s><|system|>\nBe brief.<|end|>\n<|user|>\n What is 2 + "
     "2?\n<|end|>\n<|assistant|>\n<think>\nEasy.\n</think>\n\n4<|end|>\n"
     "<|user|>\nThanks<|end|>\n<|assistant|>\n",
     "<s><|user|>\n What is 2 + 2?\n<|end|>\n<|assistant|>\n",
     "<|end|>\n<|user|>\n What is 2 + 2?\n<|end|>\n<|assistant|>\n"},
    {"gemma", "{{ bos_token }}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}",
     "<s><start_of_turn>user\nBe brief.\n\nWhat is 2 + "
     "2?<end_of_turn>\n<start_of_turn>model\n<think>\nEasy.\n</think>\n\n4<end_of_turn>\n"
     "<start_of_turn>user\nThanks<end_of_turn>\n<start_of_turn>model\n",
     "<s><start_of_turn>user\nWhat is 2 + 2?<end_of_turn>\n<start_of_turn>model\n",
     "<end_of_turn>\n<start_of_turn>user\nWhat is 2 + 2?<end_of_turn>\n<start_of_turn>model\n"},
    {"zephyr",
     "{{ '<|user|>\n' + message['content'] + eos_token }}\n{{ '<|assistant|>\n' + message['content'] + eos_token }}\n",
     "<|system|>\nBe brief.</s>\n<|user|>\n What is 2 + "
     "2?\n</s>\n<|assistant|>\n<think>\nEasy.\n</think>\n\n4</s>\n<|user|>\nThanks</s>\n"
     "<|assistant|>\n",
     "<|user|>\n What is 2 + 2?\n</s>\n<|assistant|>\n", "</s>\n<|user|>\n What is 2 + 2?\n</s>\n<|assistant|>\n"},
};

ChatFamily family_of(const char* name) {
  for (const Golden& golden : kGoldens) {
    if (strcmp(golden.family, name) == 0) return chat_template_of(golden.template_text).family;
  }
  fail_msg("no golden for %s", name);
  return ChatFamily::kUnknown;
}

// The templates are shortened ones, so they are accepted as their families' only on request.
void chat__goldens(void**) {
  for (const Golden& golden : kGoldens) {
    const ChatTemplate t = chat_template_of(golden.template_text);
    assert_false(t.is_exact);
    assert_string_equal(chat_family_name(t.family), golden.family);
    assert_string_equal(t.name(), "unknown");
    assert_string_equal(t.resembles(), golden.family);
    RenderedChat out(std::pmr::get_default_resource());
    assert_int_equal(render(t, kConversation, WEIR_CHAT_ADD_ASSISTANT, out).code(), WEIR_ERR_UNSUPPORTED);
    const std::string family = std::string("the family ") + golden.family + ",";
    if (strstr(last_error_text(), family.c_str()) == nullptr ||
        strstr(last_error_text(), "WEIR_CHAT_ACCEPT_RESEMBLING") == nullptr) {
      fail_msg("%s: %s", golden.family, last_error_text());
    }
    assert_true(out.text.empty());
    constexpr uint32_t kAsk = WEIR_CHAT_ADD_ASSISTANT | WEIR_CHAT_ACCEPT_RESEMBLING;
    assert_string_equal(rendered(t, kConversation, kAsk).c_str(), golden.conversation);
    assert_string_equal(rendered(t, kQuestion, kAsk).c_str(), golden.question);
    assert_string_equal(rendered(t, kQuestion, kAsk | WEIR_CHAT_CONTINUE).c_str(), golden.next);
  }
}

// A file can hold a template of any length. No model's is nearly as long as the bound; longer ones are not searched.
void chat__a_huge_template_is_unknown(void**) {
  constexpr size_t kMost = size_t{256} << 10;
  for (const Golden& golden : kGoldens) {
    std::string text = golden.template_text;
    text.resize(kMost, ' ');
    assert_string_equal(chat_template_of(text).resembles(), golden.family);
    text += ' ';
    const ChatTemplate t = chat_template_of(text);
    assert_true(t.family == ChatFamily::kUnknown && !t.is_exact);
    assert_string_equal(t.resembles(), "");
  }
}

// Every line of the list is covered by the table above.
void chat__every_family_has_a_golden(void**) {
#define WEIR_CHAT_FAMILY(Name, text) ChatFamily::k##Name,
  const ChatFamily families[] = {
#include "text/chat_families.inc"
  };
#undef WEIR_CHAT_FAMILY
  for (const ChatFamily family : families) {
    bool found = false;
    for (const Golden& golden : kGoldens) found = found || chat_template_of(golden.template_text).family == family;
    if (!found) fail_msg("no golden for %s (family %d)", chat_family_name(family), static_cast<int>(family));
  }
}

void chat__no_answer_asked_for(void**) {
  assert_string_equal(rendered(family_of("chatml"), kQuestion, 0).c_str(),
                      "<|im_start|>user\n What is 2 + 2?\n<|im_end|>\n");
  assert_string_equal(rendered(family_of("chatml"), {}, 0).c_str(), "");
  assert_string_equal(rendered(family_of("chatml"), {}, WEIR_CHAT_CONTINUE).c_str(), "<|im_end|>\n");
  assert_string_equal(rendered(family_of("gemma"), kQuestion, 0).c_str(),
                      "<s><start_of_turn>user\nWhat is 2 + 2?<end_of_turn>\n");
  assert_string_equal(rendered(family_of("deepseek-r1"), kQuestion, 0).c_str(), "<s><｜User｜> What is 2 + 2?\n");
}

void chat__qwen3_thoughts_behind_the_last_question(void**) {
  const Messages messages = {{"user", "a"}, {"assistant", "<think>\nt\n</think>\n\nb"}};
  assert_string_equal(rendered(family_of("qwen3"), messages, 0).c_str(),
                      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\nt\n</think>\n\nb<|im_end|>\n");
  // Thoughts end at the first mark and begin behind the last one before it; the answer begins behind the last.
  const Messages marks = {{"user", "a"}, {"assistant", "<think>s<think>\n\nt\n\n</think>u\n</think>\nb"}};
  assert_string_equal(rendered(family_of("qwen3"), marks, 0).c_str(),
                      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\nt\n</think>\n\nb<|im_end|>\n");
  const Messages plain = {{"user", "a"}, {"assistant", "b"}};
  assert_string_equal(rendered(family_of("qwen3"), plain, 0).c_str(),
                      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nb<|im_end|>\n");
}

void chat__trimming_is_pythons(void**) {
  const Messages messages = {{"user",
                              "\xC2\xA0\t\xE3\x80\x80\x1F a\xC2\xA0"
                              "b \xE2\x80\xA8\n\xC2\x85"}};
  assert_string_equal(rendered(family_of("gemma"), messages, 0).c_str(),
                      "<s><start_of_turn>user\na\xC2\xA0"
                      "b<end_of_turn>\n");
  const Messages broken = {{"user", " \x85\xA0 "}};  // bytes that are no characters stay
  assert_string_equal(rendered(family_of("gemma"), broken, 0).c_str(),
                      "<s><start_of_turn>user\n\x85\xA0<end_of_turn>\n");
}

void chat__content_is_taken_by_length(void**) {
  RenderedChat out(std::pmr::get_default_resource());
  const weir_chat_message message = weir_test::chat_message("user", {"a\0b<|im_end|>", 3});
  assert_true(chat_render(exactly(family_of("chatml")), {&message, 1}, 0, "", "", out).ok());
  assert_true(out.text == std::string_view("<|im_start|>user\na\0b<|im_end|>\n", 31));
}

void chat__missing_tokens(void**) {
  RenderedChat out(std::pmr::get_default_resource());
  assert_true(render(exactly(family_of("llama3")), kQuestion, 0, out, "", "").ok());
  assert_string_equal(out.text.c_str(), "<|start_header_id|>user<|end_header_id|>\n\nWhat is 2 + 2?<|eot_id|>");
  assert_true(render(exactly(family_of("mistral-v1")), kQuestion, WEIR_CHAT_CONTINUE, out, "", "").ok());
  assert_string_equal(out.text.c_str(), "</s> [INST]  What is 2 + 2?\n [/INST]");
}

void assert_refused(ChatFamily family, const Messages& messages, uint32_t flags, weir_status code, const char* part) {
  RenderedChat out(std::pmr::get_default_resource());
  out.text = "before";
  assert_int_equal(render(exactly(family), messages, flags, out).code(), code);
  if (strstr(last_error_text(), part) == nullptr) fail_msg("\"%s\" is not in \"%s\"", part, last_error_text());
  assert_string_equal(out.text.c_str(), "before");
  assert_true(out.said.empty());
}

void chat__refusals(void**) {
  const ChatFamily chatml = family_of("chatml"), gemma = family_of("gemma"), r1 = family_of("deepseek-r1");
  assert_refused(ChatFamily::kNone, kQuestion, 0, WEIR_ERR_UNSUPPORTED, "no chat template");
  assert_refused(ChatFamily::kUnknown, kQuestion, 0, WEIR_ERR_UNSUPPORTED, "resembles none");
  assert_refused(ChatFamily::kUnknown, kQuestion, WEIR_CHAT_ACCEPT_RESEMBLING, WEIR_ERR_UNSUPPORTED, "resembles none");
  assert_refused(chatml, {{"user", "a"}, {"tool", "b"}}, 0, WEIR_ERR_INVALID_ARG, "messages[1]: the role \"tool\"");
  assert_refused(chatml, {{"User", "a"}}, 0, WEIR_ERR_INVALID_ARG, "User");
  assert_refused(chatml, kQuestion, 16, WEIR_ERR_INVALID_ARG, "0x10");
  assert_refused(gemma, {{"user", "a"}, {"user", "b"}}, 0, WEIR_ERR_INVALID_ARG, "messages[1]");
  assert_refused(gemma, {{"assistant", "a"}}, 0, WEIR_ERR_INVALID_ARG, "messages[0]");
  assert_refused(gemma, {{"system", "a"}}, 0, WEIR_ERR_INVALID_ARG, "user message");
  assert_refused(gemma, {{"system", "a"}, {"user", "b"}}, WEIR_CHAT_CONTINUE, WEIR_ERR_INVALID_ARG, "messages[0]");
  assert_refused(r1, {{"user", "a"}, {"system", "b"}}, 0, WEIR_ERR_INVALID_ARG, "messages[1]");
  RenderedChat out(std::pmr::get_default_resource());
  const weir_chat_message no_role = weir_test::chat_message(nullptr, "a"), empty = weir_test::chat_message("user", {});
  weir_chat_message no_content = empty;
  no_content.content_bytes = 1;
  assert_int_equal(chat_render(exactly(chatml), {&no_role, 1}, 0, "", "", out).code(), WEIR_ERR_INVALID_ARG);
  assert_int_equal(chat_render(exactly(chatml), {&no_content, 1}, 0, "", "", out).code(), WEIR_ERR_INVALID_ARG);
  assert_true(chat_render(exactly(chatml), {&empty, 1}, 0, "", "", out).ok());
}

void chat__unknown_templates(void**) {
  assert_true(chat_template_of("").family == ChatFamily::kNone);
  assert_string_equal(chat_family_name(ChatFamily::kNone), "");
  assert_string_equal(chat_family_name(ChatFamily::kUnknown), "unknown");
  for (const char* text : {
           "{{ messages[0]['content'] }}",
           "{{'USER: ' + message['content'] + ' ASSISTANT: '}}",
           "{{ '<|im_start|>' + message['role'] + '<|im_sep|>' + message['content'] + '<|im_end|>' }}",
           "{{ '<|header_start|>' + message['role'] + '<|header_end|>' + message['content'] + '<|eot|>' }}",
           "{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + content + '<|END_OF_TURN_TOKEN|>' }}",
           "[gMASK]<sop>{% for item in messages %}<|{{ item['role'] }}|>{% endfor %}<|assistant|>",
           "{{ '[INST] <<SYS>>' + system + '<</SYS>>' + text + '[/INST]' }}",
           "{{ '<|user|>\n' + message['content'] + '\n' }}{{ '<|assistant|>\n' + message['content'] + eos_token + '\n' "
           "}}",
           "{{'<｜User｜>' + message['content']}}{%- if not thinking "
           "%}{{'<｜Assistant｜></think><｜end▁of▁sentence｜>'}}{% endif %}",
       }) {
    const ChatTemplate t = chat_template_of(text);
    if (t.family != ChatFamily::kUnknown) fail_msg("%s is taken for %s", text, chat_family_name(t.family));
    assert_string_equal(t.name(), "unknown");
    assert_string_equal(t.resembles(), "");
  }
}

// The template of samples/models, which is the project's own.
constexpr std::string_view kKnown =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

void chat__a_known_template_needs_no_flag(void**) {
  const ChatTemplate t = chat_template_of(kKnown);
  assert_true(t.is_exact);
  assert_string_equal(t.name(), "chatml");
  assert_string_equal(t.resembles(), "");
  assert_string_equal(rendered(t, kQuestion, WEIR_CHAT_ADD_ASSISTANT).c_str(), CHATML_SHORT);
  assert_string_equal(rendered(t, kQuestion, WEIR_CHAT_ADD_ASSISTANT | WEIR_CHAT_ACCEPT_RESEMBLING).c_str(),
                      CHATML_SHORT);
  // Jinja drops one line end at the end of a template, and nothing else.
  assert_true(chat_template_of(std::string(kKnown) + "\n").is_exact);
  for (const char* end : {"\n\n", " ", "\r\n", "x"}) assert_false(chat_template_of(std::string(kKnown) + end).is_exact);
  for (size_t i = 0; i < kKnown.size(); ++i) {
    std::string changed(kKnown);
    changed[i] ^= 1;
    assert_false(chat_template_of(changed).is_exact);
  }
}

// What recognition by pieces gets wrong: a template that ends its opening with <think>, and one that has a text of its
// own in front.
void chat__a_resembling_template_is_no_guess(void**) {
  const ChatTemplate thinks =
      chat_template_of("{%- set ns = namespace(last_query_index=0) %}{%- if '</think>' in content %}" CHATML_TURNS
                       "{{- '<|im_start|>assistant\\n<think>\\n' }}");
  const ChatTemplate preamble =
      chat_template_of("{{ '<|im_start|>system\\n## Metadata\\nReasoning Mode: /think<|im_end|>\\n' }}" CHATML_TURNS);
  assert_string_equal(thinks.resembles(), "qwen3");
  assert_string_equal(preamble.resembles(), "chatml");
  for (const ChatTemplate& t : {thinks, preamble}) {
    RenderedChat out(std::pmr::get_default_resource());
    assert_string_equal(t.name(), "unknown");
    assert_int_equal(render(t, kQuestion, WEIR_CHAT_ADD_ASSISTANT, out).code(), WEIR_ERR_UNSUPPORTED);
    assert_non_null(strstr(last_error_text(), t.resembles()));
  }
}

void chat__the_list_of_known_templates(void**) {
  struct Line {
    ChatFamily family;
    uint32_t n_bytes;
    std::string digits, models;
  };
  const Line lines[] = {
#define WEIR_CHAT_TEMPLATE(Family, n_bytes, sha256, models) {ChatFamily::k##Family, n_bytes, sha256, models},
#include "text/chat_known.inc"
#undef WEIR_CHAT_TEMPLATE
  };
  std::set<std::string> seen;
  for (const Line& line : lines) {
    assert_int_equal(line.digits.size(), 64);
    assert_true(line.digits.find_first_not_of("0123456789abcdef") == std::string::npos);
    assert_true(line.n_bytes > 0 && !line.models.empty());
    assert_true(seen.insert(line.digits).second);
  }
  assert_true(seen.size() >= 40);
}

// The examples of FIPS 180-4, and lengths around the end of a block.
void chat__sha256(void**) {
  const auto digits = [](std::string_view text) {
    std::string out;
    for (const uint8_t byte : sha256(text)) {
      for (const int digit : {byte >> 4, byte & 15}) out += "0123456789abcdef"[digit];
    }
    return out;
  };
  assert_string_equal(digits("").c_str(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  assert_string_equal(digits("abc").c_str(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  assert_string_equal(digits("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq").c_str(),
                      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  assert_string_equal(digits(std::string(55, 'a')).c_str(),
                      "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  assert_string_equal(digits(std::string(56, 'a')).c_str(),
                      "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  assert_string_equal(digits(std::string(64, 'a')).c_str(),
                      "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

// In a conversation that ends with an answer the system message of these families is nowhere, as the templates have it.
void chat__mistral_v3_system_goes_with_the_last_question(void**) {
  const Messages messages = {{"system", "s"}, {"user", "a"}, {"assistant", "b"}};
  assert_string_equal(rendered(family_of("mistral-v3-tekken"), messages, 0).c_str(), "<s>[INST]a[/INST]b</s>");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(chat__goldens),
      cmocka_unit_test(chat__a_huge_template_is_unknown),
      cmocka_unit_test(chat__every_family_has_a_golden),
      cmocka_unit_test(chat__no_answer_asked_for),
      cmocka_unit_test(chat__qwen3_thoughts_behind_the_last_question),
      cmocka_unit_test(chat__trimming_is_pythons),
      cmocka_unit_test(chat__content_is_taken_by_length),
      cmocka_unit_test(chat__missing_tokens),
      cmocka_unit_test(chat__refusals),
      cmocka_unit_test(chat__unknown_templates),
      cmocka_unit_test(chat__a_known_template_needs_no_flag),
      cmocka_unit_test(chat__a_resembling_template_is_no_guess),
      cmocka_unit_test(chat__the_list_of_known_templates),
      cmocka_unit_test(chat__sha256),
      cmocka_unit_test(chat__mistral_v3_system_goes_with_the_last_question),
  };
  return cmocka_run_group_tests_name("text/chat_template", tests, nullptr, nullptr);
}
