// Fuzzes lib/text/answer_parts and lib/text/tool_calls: answers of any text, in any format, cut anywhere. Input: the
// number of a format, how the text is cut, then the text.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "core/memory.h"
#include "core/utf8.h"
#include "text/answer_message.h"
#include "text/jinja/jinja.h"
#include "text/json_values.h"

using namespace weir;

namespace {

// Pieces of templates, by which each format is found.
constexpr std::string_view kMarks[] = {"</think><tool_call>",
                                       "</think><tool_call>\n<function=",
                                       "dictionary of argument name and its value",
                                       "[/THINK][TOOL_CALLS]",
                                       "<|channel|>analysis<|message|>",
                                       "<channel|><|tool_call>call:",
                                       "</think><arg_key>",
                                       "</think{}><tool_calls{}>",
                                       "</think><｜tool▁calls▁begin｜>",
                                       "</think>｜DSML｜",
                                       "</think><|tool_call_start|>",
                                       "</think><|tool_calls_section_begin|>",
                                       "</mm:think>]<]minimax[>[",
                                       "<|think|><|content|><|tool_calls|>",
                                       "[BEGIN FINAL RESPONSE][END FINAL RESPONSE]<tool_calls>[",
                                       "</think><function name=",
                                       " functools["};

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

struct Message {
  std::string content, thought, calls;
  bool is_malformed = false;
  size_t n_bytes = 0;  // of all pieces
  bool operator==(const Message&) const = default;
};

Message read(const AnswerFormat& format, std::string_view text, size_t cut, HostMemory& memory) {
  AnswerMessage message(&memory, format.form, 1);
  auto parts = std::make_unique<AnswerParts>();
  AnswerParts::Piece piece;
  Message out;
  const auto take = [&] {
    while (parts->take(piece)) {
      require(piece.segment >= WEIR_SEGMENT_ANSWER && piece.segment <= WEIR_SEGMENT_MARK, "a piece has a segment");
      out.n_bytes += piece.text.size();
      message.add(piece);
    }
  };
  parts->begin(format, {});
  while (!text.empty()) {
    const std::string_view part = text.substr(0, cut);
    parts->push(-1, part, "");
    parts->allow(part.size());
    take();
    text.remove_prefix(part.size());
  }
  parts->finish("");
  take();
  message.finish();
  out.content = message.content();
  out.thought = message.thought();
  out.calls = message.calls() == nullptr ? "" : message.calls();
  out.is_malformed = message.is_malformed();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const AnswerFormat format = answer_format_of(kMarks[data[0] % std::size(kMarks)], nullptr);
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  HostMemory memory({});
  {
    const Message whole = read(format, text, 1000, memory), cut = read(format, text, 1 + data[1] % 40, memory);
    require(whole == cut, "the message does not depend on how the text is cut");
    require(whole.n_bytes == text.size(), "every byte is in a piece");
    jinja::Heap heap(&memory);
    jinja::Value calls;
    if (!whole.calls.empty() && utf8_valid_prefix(text) == text.size())
      require(jinja::read_json(heap, whole.calls, "calls", calls).ok() && calls.is_sequence(), "calls are JSON");
  }
  require(memory.bytes() == 0, "all memory went back");
  return 0;
}
