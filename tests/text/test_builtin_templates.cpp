// text: the built-in chat templates, each with its rendering of one conversation, written out, and continued behind an
// answer that is open.
#include "text/builtin_templates.h"

#include "tests/chat_message.h"
#include "tests/text/text_test.h"
#include "text/chat_jinja.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

using namespace weir;
using namespace weir_test;

namespace {

struct Case {
  const char *name, *text;
  const char* behind;  // an open answer: its end, another question, and the opening of the next
};
constexpr Case kCases[] = {
    {"chatml",
     "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n"
     "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n",
     "<|im_end|>\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n"},
    {"llama3",
     "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
     "2 + 2?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n4<|eot_id|><|start_header_id|>user"
     "<|end_header_id|>\n\nSure?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nSure?<|eot_id|><|start_header_id|>assistant"
     "<|end_header_id|>\n\n"},
    {"mistral", "<s>[INST] Be brief.\n\n2 + 2?[/INST] 4</s>[INST] Sure?[/INST]", "</s>[INST] Sure?[/INST]"},
    {"gemma",
     "<s><start_of_turn>user\nBe brief.\n\n2 + 2?<end_of_turn>\n<start_of_turn>model\n4<end_of_turn>\n<start_of_turn>"
     "user\nSure?<end_of_turn>\n<start_of_turn>model\n",
     "<end_of_turn>\n<start_of_turn>user\nSure?<end_of_turn>\n<start_of_turn>model\n"},
    {"granite",
     "<|start_of_role|>system<|end_of_role|>Be brief.<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>2 + 2?"
     "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>4<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>"
     "Sure?<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
     "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Sure?<|end_of_text|>\n<|start_of_role|>assistant"
     "<|end_of_role|>"},
    {"glm4", "[gMASK]<sop><|system|>\nBe brief.<|user|>\n2 + 2?<|assistant|>\n4<|user|>\nSure?<|assistant|>\n",
     "<|user|>\nSure?<|assistant|>\n"},
    {"harmony",
     "<|start|>system<|message|>You are a helpful assistant.\nCurrent date: 2026-11-26\n\nReasoning: medium\n\n# Valid "
     "channels: analysis, commentary, final. Channel must be included for every message.<|end|><|start|>developer"
     "<|message|># Instructions\n\nBe brief.<|end|><|start|>user<|message|>2 + 2?<|end|><|start|>assistant<|channel|>"
     "final<|message|>4<|end|><|start|>user<|message|>Sure?<|end|><|start|>assistant",
     "<|end|><|start|>user<|message|>Sure?<|end|><|start|>assistant"},
};

std::string rendered(const char* name, std::span<const weir_chat_message> messages, uint32_t flags) {
  RenderedChat out(std::pmr::get_default_resource());
  ChatRequest request;
  request.messages = messages;
  request.flags = WEIR_CHAT_ADD_ASSISTANT | flags;
  request.template_text = builtin_template(name);
  request.bos = "<s>";
  request.eos = "</s>";
  request.unix_time = 1795694400;  // 2026-11-26
  if (!chat_render_jinja(request, out).ok()) fail_msg("%s: %s", name, last_error_text());
  return std::string(out.text);
}

void builtin_templates__render(void**) {
  const weir_chat_message messages[] = {chat_message("system", "Be brief."), chat_message("user", "2 + 2?"),
                                        chat_message("assistant", "4"), chat_message("user", "Sure?")};
  for (const Case& c : kCases) {
    assert_string_equal(rendered(c.name, messages, 0).c_str(), c.text);
    assert_string_equal(rendered(c.name, {&messages[3], 1}, WEIR_CHAT_CONTINUE).c_str(), c.behind);
  }
}

void builtin_templates__by_name(void**) {
  assert_true(builtin_template("Chatml").empty() && builtin_template("").empty());
  assert_true(template_or_builtin("chatml") == builtin_template("chatml"));
  assert_true(template_or_builtin("{{ x }}") == "{{ x }}");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(builtin_templates__render),
      cmocka_unit_test(builtin_templates__by_name),
  };
  return cmocka_run_group_tests_name("text/builtin_templates", tests, nullptr, nullptr);
}
