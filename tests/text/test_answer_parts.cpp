// text: the parts of an answer, in every format, whatever way the text is cut into pieces and whether its tags are
// tokens or text.
#include "text/answer_parts.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/text/text_test.h"

#include "tests/cmocka_cpp.h"

using namespace weir;
using namespace weir_test;

namespace {

constexpr char kSegments[] = "ATCM";  // answer, thought, call, mark

struct Row {
  const char* name;
  const char* markers;  // that a template has
  const char* tool_format;
  std::string text;
  std::string want;  // A:..|T:..|C:..|M:..
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"think", "<think></think><tool_call>", "hermes", "<think>\na < b</think>\n\n4 </b>",
       "M:<think>|T:\na < b|M:</think>|A:\n\n4 </b>"},
      {"no thought", "</think>", "", "Hello </think>x<thin", "A:Hello |M:</think>|A:x<thin"},
      {"thought without an end", "</think>", "", "<think>so </thin", "M:<think>|T:so </thin"},
      {"hermes", "</think><tool_call>", "hermes",
       "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
       "\"</tool_call>\\\"\"}}\n</tool_call>\n<tool_call>\n{}"
       "</tool_call>.",
       "A:I look.\n|M:<tool_call>|C:\n{\"name\": \"f\", \"arguments\": {\"a\": "
       "\"</tool_call>\\\"\"}}\n|M:</tool_call>|A:\n|"
       "M:<tool_call>|C:\n{}|M:</tool_call>|A:."},
      {"a call in a thought is thought", "</think><tool_call>", "hermes", "<think><tool_call></think><tool_call>x",
       "M:<think>|T:<tool_call>|M:</think><tool_call>|C:x"},
      {"qwen3-coder", "<tool_call>\n<function=", "qwen3-coder",
       "<tool_call>\n<function=f>\n<parameter=a>\n1 < 2\n</parameter>\n</function>\n</tool_call>",
       "M:<tool_call>|C:\n<function=f>\n<parameter=a>\n1 < 2\n</parameter>\n</function>\n|M:</tool_call>"},
      {"qwen3-coder without the outer tag", "<tool_call>\n<function=", "qwen3-coder",
       "Well <function=f>\n</function>\n</tool_call> and",
       "A:Well |C:<function=f>\n</function>|A:\n|M:</tool_call>|A: and"},
      {"glm", "<arg_key></think>", "glm",
       "<think></think><tool_call>f<arg_key>a</arg_key><arg_value>\"</arg_value></tool_call>",
       "M:<think></think><tool_call>|C:f<arg_key>a</arg_key><arg_value>\"</arg_value>|M:</tool_call>"},
      {"hunyuan", "</think{}><tool_calls{}>", "hunyuan",
       "<think:opensource>t</think:opensource><tool_calls:opensource>\nx",
       "M:<think:opensource>|T:t|M:</think:opensource><tool_calls:opensource>|C:\nx"},
      {"mistral", "[/THINK][TOOL_CALLS]", "mistral",
       "[THINK]t[/THINK]a[TOOL_CALLS]f[ARGS]{\"x\": 1}[TOOL_CALLS]g[ARGS]{}",
       "M:[THINK]|T:t|M:[/THINK]|A:a|M:[TOOL_CALLS]|C:f[ARGS]{\"x\": 1}|M:[TOOL_CALLS]|C:g[ARGS]{}"},
      {"minimax-m3", "</mm:think>]<]minimax[>[", "minimax-m3",
       "</mm:think>x]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke "
       "name=\"f\">]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
       "M:</mm:think>|A:x|M:]<]minimax[>[<tool_call>|C:\n]<]minimax[>[<invoke name=\"f\">]<]minimax[>[</invoke>\n|"
       "M:]<]minimax[>[</tool_call>"},
      {"minimax", "<minimax:tool_call></think>", "minimax", "<minimax:tool_call>\n<invoke></minimax:tool_call>",
       "M:<minimax:tool_call>|C:\n<invoke>|M:</minimax:tool_call>"},
      {"kimi", "<|tool_calls_section_begin|></think>", "kimi",
       "<think>t</think>a<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
       "<|tool_call_end|><|tool_calls_section_end|>",
       "M:<think>|T:t|M:</think>|A:a|M:<|tool_calls_section_begin|>|C:<|tool_call_begin|>functions.f:0"
       "<|tool_call_argument_begin|>{}<|tool_call_end|>|M:<|tool_calls_section_end|>"},
      {"deepseek", "<｜tool▁calls▁begin｜></think>", "deepseek",
       "t</think>a<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "A:t|M:</think>|A:a|M:<｜tool▁calls▁begin｜>|C:<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>|"
       "M:<｜tool▁calls▁end｜>"},
      {"lfm2", "<|tool_call_start|></think>", "lfm2", "<|tool_call_start|>[f(a='<|tool_call_end|>')]<|tool_call_end|>x",
       "M:<|tool_call_start|>|C:[f(a='<|tool_call_end|>')]|M:<|tool_call_end|>|A:x"},
      {"gemma4", "<channel|><|tool_call>call:", "gemma4",
       "<|channel>thought\nhm\n<channel|>yes<|tool_call>call:f{a:<|\"|>x<|\"|>}<tool_call|>",
       "M:<|channel>thought\n|T:hm\n|M:<channel|>|A:yes|M:<|tool_call>|C:call:f{a:<|\"|>x<|\"|>}|M:<tool_call|>"},
      {"harmony", "<|channel|>analysis<|message|>", "harmony",
       "<|channel|>analysis<|message|>We<|end|><|start|>assistant<|channel|>commentary to=functions.f "
       "<|constrain|>json<|message|>{\"a\": 1}<|call|>",
       "M:<|channel|>analysis<|message|>|T:We|M:<|end|><|start|>assistant<|channel|>commentary to=functions.f "
       "<|constrain|>json<|message|>|C:{\"a\": 1}|M:<|call|>"},
      {"harmony's answer", "<|channel|>analysis<|message|>", "harmony",
       "<|channel|>commentary<|message|>I look<|end|><|start|>assistant<|channel|>final<|message|>Hi",
       "M:<|channel|>commentary<|message|>|A:I look|M:<|end|><|start|>assistant<|channel|>final<|message|>|A:Hi"},
      {"harmony's name before the channel", "<|channel|>analysis<|message|>", "harmony",
       "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
       "M:<|start|>assistant to=functions.f<|channel|>commentary json<|message|>|C:{}|M:<|call|>"},
      {"solar", "<|think|><|content|><|tool_calls|>", "solar",
       "<|think|>t<|end|><|begin|>assistant<|content|>a<|end|><|begin|>assistant<|tool_calls|>"
       "<|tool_call:begin|>x<|tool_call:end|><|calls|>",
       "M:<|think|>|T:t|M:<|end|><|begin|>assistant<|content|>|A:a|M:<|end|><|begin|>assistant<|tool_calls|>|"
       "C:<|tool_call:begin|>x<|tool_call:end|>|M:<|calls|>"},
      {"nemotron", "</think><TOOLCALL>", "nemotron", "<TOOLCALL>[{}]</TOOLCALL>", "M:<TOOLCALL>|C:[{}]|M:</TOOLCALL>"},
      {"apriel", "[BEGIN FINAL RESPONSE][END FINAL RESPONSE]<tool_calls>[", "apriel",
       "Here are my reasoning steps:\nt\n[BEGIN FINAL RESPONSE]\na\n[END FINAL "
       "RESPONSE]\n<tool_calls>[{}]</tool_calls>",
       "M:Here are my reasoning steps:\n|T:t\n|M:[BEGIN FINAL RESPONSE]|A:\na\n|M:[END FINAL RESPONSE]|A:\n|"
       "M:<tool_calls>|C:[{}]|M:</tool_calls>"},
      {"granite", "Here is my response:<|tool_call|>", "granite",
       "Here is my thought process: t Here is my response: a<|tool_call|>[{}]",
       "M:Here is my thought process:|T: t |M:Here is my response:|A: a|M:<|tool_call|>|C:[{}]"},
      {"granite's other tags", "</think><response></response><|tool_call|>", "granite",
       "<think>t</think><response>a</response>", "M:<think>|T:t|M:</think><response>|A:a|M:</response>"},
      {"minicpm", "</think><function name=", "minicpm", "x<function name=\"f\"><param name=\"a\">1</param></function>y",
       "A:x|C:<function name=\"f\"><param name=\"a\">1</param></function>|A:y"},
      {"gigachat", "<|function_call|>", "gigachat", "<|function_call|>{\"name\": \"f\"}",
       "M:<|function_call|>|C:{\"name\": \"f\"}"},
      {"firefunction", " functools[", "firefunction", "a functools[{}]", "A:a |C:functools[{}]"},
      {"llama3", "dictionary of argument name and its value", "llama3", "<|python_tag|>print('<|python_tag|>')",
       "M:<|python_tag|>|C:print('<|python_tag|>')"},
      {"llama3's bare call", "dictionary of argument name and its value", "llama3",
       " {\"name\": \"f\", \"parameters\": {\"a\": \"}\"}}; {\"type\": \"function\", \"name\": \"g\"} so",
       "A: |C:{\"name\": \"f\", \"parameters\": {\"a\": \"}\"}}|A:; |C:{\"type\": \"function\", \"name\": \"g\"}|A: "
       "so"},
      {"llama3's object", "dictionary of argument name and its value", "llama3", "{\"nam\": 1}", "A:{\"nam\": 1}"},
      {"llama3's half object", "dictionary of argument name and its value", "llama3", "{\"na", "A:{\"na"},
      {"llama3's code", "dictionary of argument name and its value", "llama3", "so {\"name\": 1}",
       "A:so {\"name\": 1}"},
      {"no tags", "", "", "<think>a</think>", "A:<think>a</think>"},
  };
  return all;
}

class Reader {
 public:
  explicit Reader(const AnswerFormat& format, const AnswerParts::State& state = {}) { parts_.begin(format, state); }
  void push(weir_token token, std::string_view shown, std::string_view hidden = "") {
    parts_.push(token, shown, hidden);
    parts_.allow(shown.size());
    drain();
  }
  std::string finish() {
    parts_.finish("");
    drain();
    return text_;
  }
  AnswerParts& parts() { return parts_; }

 private:
  void drain() {
    for (AnswerParts::Piece piece; parts_.take(piece);) {
      assert_int_equal(piece.text.data()[piece.text.size()], 0);
      assert_false(piece.text.empty());
      if (piece.segment != segment_) {
        text_ += text_.empty() ? "" : "|";
        text_ += kSegments[piece.segment];
        text_ += ':';
      }
      segment_ = piece.segment;
      text_ += piece.text;
    }
  }
  AnswerParts parts_;
  std::string text_;
  int segment_ = -1;
};

// The format of a row, whose tags have tokens if is_token says so.
template <class F>
AnswerFormat format_of(const Row& row, F&& is_token) {
  AnswerFormat format = answer_format_of(row.markers, nullptr);
  for (uint32_t i = 0; i < format.n_tags; ++i) {
    const bool is_word = format.tag[i].text != "\n" && format.tag[i].text.find("minimax[>[") == std::string_view::npos;
    format.tag[i].token = is_word && is_token(i) ? static_cast<weir_token>(1000 + i) : -1;
  }
  return format;
}

void expect(const Row& row, const std::string& got) {
  if (got != row.want) print_error("%s\n  want %s\n  got  %s\n", row.name, row.want.c_str(), got.c_str());
  assert_string_equal(got.c_str(), row.want.c_str());
}

void answer_parts__tags_that_are_text(void**) {
  std::mt19937 random(5);
  for (const Row& row : rows()) {
    const AnswerFormat format = format_of(row, [](uint32_t) { return false; });
    assert_string_equal(format.tool_format, row.tool_format);
    const std::string_view text = row.text;
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      Reader reader(format);
      reader.push(-1, text.substr(0, cut));
      reader.push(-1, text.substr(cut));
      expect(row, reader.finish());
    }
    for (size_t most = 1; most < 40; most += most < 4 ? 1 : 5) {
      Reader reader(format);
      for (size_t at = 0; at < text.size();) {
        const size_t n = std::min<size_t>(text.size() - at, 1 + random() % most);
        reader.push(7, text.substr(at, n));
        at += n;
      }
      expect(row, reader.finish());
    }
  }
}

// All tags are tokens, or any of them; such a token is shown or not.
void answer_parts__tags_that_are_tokens(void**) {
  std::mt19937 random(6);
  for (const Row& row : rows()) {
    for (int round = 0; round < 60; ++round) {
      const uint32_t which = round < 2 ? UINT32_MAX : random();
      const bool is_shown = round % 2 == 0;
      const AnswerFormat format = format_of(row, [&](uint32_t i) { return (which >> i & 1u) != 0; });
      Reader reader(format);
      const std::string_view text = row.text;
      for (size_t at = 0; at < text.size();) {
        // The tags that a model writes are those of the row; what only looks like one is in quotes there.
        const AnswerTag* tag = nullptr;
        const bool is_quoted = at > 0 && (text[at - 1] == '"' || text[at - 1] == '\'');
        for (const AnswerTag& t : format.tags()) {
          if (t.token >= 0 && !is_quoted && text.substr(at).starts_with(t.text)) tag = &t;
        }
        if (tag != nullptr) {
          reader.push(tag->token, is_shown ? tag->text : "", is_shown ? "" : tag->text);
          at += tag->text.size();
          continue;
        }
        size_t end = at + 1;
        const auto begins_tag = [&](size_t i) {
          return std::any_of(format.tags().begin(), format.tags().end(),
                             [&](const AnswerTag& t) { return t.token >= 0 && text.substr(i).starts_with(t.text); });
        };
        while (end < text.size() && random() % 4 != 0 && !begins_tag(end)) ++end;
        reader.push(8, text.substr(at, end - at));
        at = end;
      }
      expect(row, reader.finish());
    }
  }
}

// A tag that is a token is nothing else: the same text is just that.
void answer_parts__only_the_token_counts(void**) {
  const Row row = {"", "</think><tool_call>", "", "", ""};
  const AnswerFormat format = format_of(row, [](uint32_t) { return true; });
  Reader reader(format);
  reader.push(1000, "", "<think>");
  reader.push(5, "write </think>");
  assert_true(reader.parts().in_thought());
  reader.push(1001, "\xEF\xBF\xBD</think>");
  assert_false(reader.parts().in_thought());
  reader.push(6, "<think>");
  assert_string_equal(reader.finish().c_str(), "M:<think>|T:write </think>\xEF\xBF\xBD|M:</think>|A:<think>");
}

// What is left goes on in the next answer, also in the middle of a tag.
void answer_parts__goes_on(void**) {
  for (const Row& row : rows()) {
    const AnswerFormat format = format_of(row, [](uint32_t) { return false; });
    const std::string_view text = row.text;
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      Reader whole(format), first(format);
      whole.push(-1, text);
      whole.finish();
      first.push(-1, text.substr(0, cut));
      first.finish();
      Reader second(format, first.parts().state());
      second.push(-1, text.substr(cut));
      second.finish();
      assert_int_equal(second.parts().segment(), whole.parts().segment());
    }
  }
}

// What may not be given yet waits, and what is hidden does not run over.
void answer_parts__waits_for_what_may_be_shown(void**) {
  const Row row = {"", "</think>", "", "", ""};
  const AnswerFormat format = format_of(row, [](uint32_t i) { return i == 0; });
  AnswerParts parts;
  AnswerParts::Piece piece;
  parts.begin(format, {});
  parts.push(1, "abcd", "");
  for (int i = 0; i < 100; ++i) parts.push(2, "", std::string(900, 'h'));
  parts.push(1000, "", "<think>");
  parts.push(3, std::string(Detokenizer::kMaxBytes, 'x'), "");
  assert_false(parts.take(piece));
  parts.allow(2);
  assert_true(parts.take(piece));
  assert_true(piece.is_shown && piece.text == "ab" && piece.segment == WEIR_SEGMENT_ANSWER);
  assert_false(parts.take(piece));
  parts.allow(2 + Detokenizer::kMaxBytes);
  size_t n_shown = 0;
  while (parts.take(piece)) {
    n_shown += piece.is_shown ? piece.text.size() : 0;
    if (piece.is_shown && piece.text.front() == 'x') assert_int_equal(piece.segment, WEIR_SEGMENT_THOUGHT);
  }
  assert_int_equal(n_shown, 2 + Detokenizer::kMaxBytes);
}

// Which tokens may follow a call that is over.
void answer_parts__knows_when_calls_are_over(void**) {
  const Row hermes = {"", "</think><tool_call>", "", "", ""}, mistral = {"", "[TOOL_CALLS]", "", "", ""},
            llama = {"", "dictionary of argument name and its value", "", "", ""};
  const AnswerFormat f = format_of(hermes, [](uint32_t) { return false; });
  Reader a(f);
  a.push(1, "x");
  assert_false(a.parts().ends_calls(2, "y"));
  a.push(1, "<tool_call>{}");
  assert_false(a.parts().has_call());
  assert_false(a.parts().ends_calls(2, "y"));
  a.push(1, "</tool_call>");
  assert_true(a.parts().has_call());
  for (const char* goes_on : {"\n", "", "\n<", "<tool_call>", " <tool_call>{"})
    assert_false(a.parts().ends_calls(2, goes_on));
  for (const char* ends : {"y", "\n<b", "<tool_calls", "{"}) assert_true(a.parts().ends_calls(2, ends));
  a.push(1, "\n<to");
  assert_false(a.parts().ends_calls(2, "ol_"));
  assert_true(a.parts().ends_calls(2, "ys>"));
  const AnswerFormat g = format_of(mistral, [](uint32_t) { return true; });
  Reader b(g);
  b.push(1000, "", "[TOOL_CALLS]");
  b.push(1, "f[ARGS]{\"a\": [1");
  assert_false(b.parts().ends_calls(2, "y"));
  b.push(1, "]}");
  assert_true(b.parts().ends_calls(2, "y"));
  assert_false(b.parts().ends_calls(1000, "[TOOL_CALLS]"));
  assert_true(b.parts().has_call());
  const AnswerFormat h = format_of(llama, [](uint32_t) { return true; });
  Reader c(h);
  c.push(1, "{\"name\": \"f\"}");
  assert_true(c.parts().has_call());
  assert_true(c.parts().ends_calls(2, " ok"));
  assert_false(c.parts().ends_calls(2, "; {"));
}

// A vocabulary of bytes and these marks.
struct Marked {
  explicit Marked(const std::vector<std::string>& marks) {
    for (int b = 0; b < 256; ++b) parts.add(byte_letter(static_cast<uint8_t>(b)));
    for (const std::string& mark : marks) parts.add(mark, 3);
    opened = std::make_unique<Opened>(parts.file());
    assert_true(opened->status().ok());
  }
  const Tokenizer& text() const { return **opened; }
  Ids encode(std::string_view said) const {
    return weir_test::encode(text(), std::string(said), WEIR_TOKENIZE_SPECIAL);
  }
  VocabParts parts;
  std::unique_ptr<Opened> opened;
};

void answer_parts__a_prompt_may_open_a_thought(void**) {
  struct Prompt {
    const char* markers;
    std::vector<std::string> marks;
    const char* text;
    char segment;
  };
  const Prompt prompts[] = {
      {"</think>", {"<think>", "</think>", "<|im_start|>"}, "<|im_start|>assistant\n<think>\n", 'T'},
      {"</think>", {"<think>", "</think>", "<|im_start|>"}, "<|im_start|>assistant\n<think>\n\n</think>\n\n", 'A'},
      {"</think>", {"<think>", "</think>", "<|im_start|>"}, "<|im_start|>assistant\n<think>\nI have begun", 'T'},
      {"</think>", {"<think>", "</think>", "<|im_start|>"}, "<think><|im_start|>user\nx", 'A'},
      {"</think>", {"<|im_start|>"}, "<|im_start|>assistant\n<think>\n", 'T'},
      {"</think>", {"<|im_start|>"}, "<|im_start|>assistant\n<think>\n\n</think>\n\n", 'A'},
      {"</think>", {"<|im_start|>"}, "<|im_start|>user\nWhat is <think>?<|im_start|>assistant\n", 'A'},
      {"</think>", {"<|im_start|>"}, "x", 'A'},
      {"[BEGIN FINAL RESPONSE]", {"<|im_start|>"}, "<|im_start|>\nHere are my reasoning steps:\n", 'T'},
      {"<channel|>", {"<|channel>", "<channel|>", "<|turn>"}, "<|turn>model\n<|channel>thought\n<channel|>", 'A'},
      {"<channel|>", {"<|channel>", "<channel|>", "<|turn>"}, "<|turn>model\n<|channel>thought\n", 'T'},
      {"<|channel|><|message|>",
       {"<|start|>", "<|channel|>", "<|message|>", "<|end|>"},
       "<|start|>user<|message|>x<|end|><|start|>assistant",
       'M'},
      {"<|channel|><|message|>",
       {"<|start|>", "<|channel|>", "<|message|>", "<|end|>"},
       "<|start|>user<|message|>x<|end|><|start|>assistant<|channel|>analysis<|message|>",
       'T'},
      {"<|think|><|content|>", {"<|begin|>", "<|think|>", "<|content|>", "<|end|>"}, "<|begin|>assistant", 'M'},
      {"", {}, "<think>\n", 'A'},
  };
  for (const Prompt& prompt : prompts) {
    const Marked vocab(prompt.marks);
    AnswerFormat format = answer_format_of(prompt.markers, nullptr);
    HostMemory memory({});
    assert_true(find_answer_tokens(vocab.text(), &memory, format).ok());
    assert_int_equal(format.has_thoughts(), *prompt.markers != '\0');
    AnswerParts parts;
    parts.begin_behind(format, vocab.text(), vocab.encode(prompt.text));
    if (kSegments[parts.segment()] != prompt.segment) print_error("%s: %s\n", prompt.markers, prompt.text);
    assert_int_equal(kSegments[parts.segment()], prompt.segment);
  }
}

// Where the template does not say the vocabulary does.
void answer_parts__by_the_vocabulary(void**) {
  const Marked think({"<think>", "</think>", "<tool_call>", "</tool_call>"}), none({"<|im_start|>"});
  AnswerFormat format = answer_format_of("{{ messages }}", &think.text());
  assert_string_equal(format.thought_begin, "<think>");
  assert_string_equal(format.thought_end, "</think>");
  assert_string_equal(format.tool_format, "hermes");
  format = answer_format_of("", &none.text());
  assert_string_equal(format.thought_begin, "");
  assert_int_equal(format.n_tags, 0);
  format = answer_format_of("<mm:think></mm:think>", &think.text());
  assert_string_equal(format.thought_begin, "<mm:think>");
  assert_string_equal(format.tool_format, "hermes");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(answer_parts__tags_that_are_text),
      cmocka_unit_test(answer_parts__tags_that_are_tokens),
      cmocka_unit_test(answer_parts__only_the_token_counts),
      cmocka_unit_test(answer_parts__goes_on),
      cmocka_unit_test(answer_parts__waits_for_what_may_be_shown),
      cmocka_unit_test(answer_parts__knows_when_calls_are_over),
      cmocka_unit_test(answer_parts__a_prompt_may_open_a_thought),
      cmocka_unit_test(answer_parts__by_the_vocabulary),
  };
  return cmocka_run_group_tests_name("text/answer_parts", tests, nullptr, nullptr);
}
