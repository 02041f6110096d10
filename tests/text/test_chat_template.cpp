// text: chat families. Each has a template that it is recognised by and its rendering of one conversation, written out.
#include <string>
#include <vector>

#include "text/chat_template.h"

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

Status render(ChatFamily family, const Messages& messages, uint32_t flags, std::pmr::string& out,
              const char* bos = "<s>", const char* eos = "</s>") {
  std::vector<weir_chat_message> list;
  for (const Message& m : messages) list.push_back({m.role, m.content.data(), m.content.size()});
  return chat_render(family, list, flags, bos, eos, out);
}

std::string rendered(ChatFamily family, const Messages& messages, uint32_t flags) {
  std::pmr::string out;
  const Status status = render(family, messages, flags, out);
  if (!status.ok()) fail_msg("%s: %s", chat_family_name(family), last_error_text());
  return std::string(out);
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
    if (strcmp(golden.family, name) == 0) return chat_family_of(golden.template_text);
  }
  fail_msg("no golden for %s", name);
  return ChatFamily::kUnknown;
}

void chat__goldens(void**) {
  for (const Golden& golden : kGoldens) {
    const ChatFamily family = chat_family_of(golden.template_text);
    assert_string_equal(chat_family_name(family), golden.family);
    assert_string_equal(rendered(family, kConversation, WEIR_CHAT_ADD_ASSISTANT).c_str(), golden.conversation);
    assert_string_equal(rendered(family, kQuestion, WEIR_CHAT_ADD_ASSISTANT).c_str(), golden.question);
    assert_string_equal(rendered(family, kQuestion, WEIR_CHAT_ADD_ASSISTANT | WEIR_CHAT_CONTINUE).c_str(), golden.next);
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
    for (const Golden& golden : kGoldens) found = found || chat_family_of(golden.template_text) == family;
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
  std::pmr::string out;
  const weir_chat_message message = {"user", "a\0b<|im_end|>", 3};
  assert_true(chat_render(family_of("chatml"), {&message, 1}, 0, "", "", out).ok());
  assert_true(out == std::string_view("<|im_start|>user\na\0b<|im_end|>\n", 31));
}

void chat__missing_tokens(void**) {
  std::pmr::string out;
  assert_true(render(family_of("llama3"), kQuestion, 0, out, "", "").ok());
  assert_string_equal(out.c_str(), "<|start_header_id|>user<|end_header_id|>\n\nWhat is 2 + 2?<|eot_id|>");
  out.clear();
  assert_true(render(family_of("mistral-v1"), kQuestion, WEIR_CHAT_CONTINUE, out, "", "").ok());
  assert_string_equal(out.c_str(), "</s> [INST]  What is 2 + 2?\n [/INST]");
}

void assert_refused(ChatFamily family, const Messages& messages, uint32_t flags, weir_status code, const char* part) {
  std::pmr::string out = "before";
  assert_int_equal(render(family, messages, flags, out).code(), code);
  if (strstr(last_error_text(), part) == nullptr) fail_msg("\"%s\" is not in \"%s\"", part, last_error_text());
  assert_string_equal(out.c_str(), "before");
}

void chat__refusals(void**) {
  const ChatFamily chatml = family_of("chatml"), gemma = family_of("gemma"), r1 = family_of("deepseek-r1");
  assert_refused(ChatFamily::kNone, kQuestion, 0, WEIR_ERR_UNSUPPORTED, "no chat template");
  assert_refused(ChatFamily::kUnknown, kQuestion, 0, WEIR_ERR_UNSUPPORTED, "no family");
  assert_refused(chatml, {{"user", "a"}, {"tool", "b"}}, 0, WEIR_ERR_INVALID_ARG, "messages[1]: the role \"tool\"");
  assert_refused(chatml, {{"User", "a"}}, 0, WEIR_ERR_INVALID_ARG, "User");
  assert_refused(chatml, kQuestion, 4, WEIR_ERR_INVALID_ARG, "0x4");
  assert_refused(gemma, {{"user", "a"}, {"user", "b"}}, 0, WEIR_ERR_INVALID_ARG, "messages[1]");
  assert_refused(gemma, {{"assistant", "a"}}, 0, WEIR_ERR_INVALID_ARG, "messages[0]");
  assert_refused(gemma, {{"system", "a"}}, 0, WEIR_ERR_INVALID_ARG, "user message");
  assert_refused(gemma, {{"system", "a"}, {"user", "b"}}, WEIR_CHAT_CONTINUE, WEIR_ERR_INVALID_ARG, "messages[0]");
  assert_refused(r1, {{"user", "a"}, {"system", "b"}}, 0, WEIR_ERR_INVALID_ARG, "messages[1]");
  std::pmr::string out;
  const weir_chat_message no_role = {nullptr, "a", 1}, no_content = {"user", nullptr, 1}, empty = {"user", nullptr, 0};
  assert_int_equal(chat_render(chatml, {&no_role, 1}, 0, "", "", out).code(), WEIR_ERR_INVALID_ARG);
  assert_int_equal(chat_render(chatml, {&no_content, 1}, 0, "", "", out).code(), WEIR_ERR_INVALID_ARG);
  assert_true(chat_render(chatml, {&empty, 1}, 0, "", "", out).ok());
}

void chat__unknown_templates(void**) {
  assert_true(chat_family_of("") == ChatFamily::kNone);
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
    if (chat_family_of(text) != ChatFamily::kUnknown)
      fail_msg("%s is taken for %s", text, chat_family_name(chat_family_of(text)));
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(chat__goldens),
      cmocka_unit_test(chat__every_family_has_a_golden),
      cmocka_unit_test(chat__no_answer_asked_for),
      cmocka_unit_test(chat__qwen3_thoughts_behind_the_last_question),
      cmocka_unit_test(chat__trimming_is_pythons),
      cmocka_unit_test(chat__content_is_taken_by_length),
      cmocka_unit_test(chat__missing_tokens),
      cmocka_unit_test(chat__refusals),
      cmocka_unit_test(chat__unknown_templates),
  };
  return cmocka_run_group_tests_name("text/chat_template", tests, nullptr, nullptr);
}
