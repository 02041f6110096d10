// Fuzzes lib/text/jinja: parsing any template and rendering it with any variables. Input: the template, a NUL byte,
// then the variables as a JSON object; without one those of a small conversation.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/memory.h"
#include "text/jinja/jinja.h"
#include "text/json_values.h"

using namespace weir;

namespace {

constexpr std::string_view kConversation =
    R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hé <|end|> llo"},)"
    R"( {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments":)"
    R"( {"a": [1, 2.5, true]}}}]}, {"role": "user", "content": [{"type": "text", "text": "x"}]}],)"
    R"( "tools": [{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "array"}}}}}],)"
    R"( "add_generation_prompt": true})";

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

bool is_refusal(Status status) {
  return status.code() == WEIR_ERR_FORMAT || status.code() == WEIR_ERR_INVALID_ARG ||
         status.code() == WEIR_ERR_UNSUPPORTED;
}

void check_said(const jinja::RenderedText& out) {
  size_t end = 0;
  for (const TextRange& range : out.said) {
    require((range.begin > end || range.begin == 0) && range.end > range.begin,
            "stretches are in order, none touching");
    end = range.end;
  }
  require(end <= out.text.size(), "stretches lie in the text");
}

void run(std::string_view source, std::string_view variables, HostMemory& memory) {
  jinja::Template parsed(&memory);
  const Status status = parsed.parse(source);
  if (!status.ok()) return require(is_refusal(status), "a template is parsed or refused");
  jinja::Heap heap(&memory);
  jinja::Value object;
  if (!jinja::read_json(heap, variables, "variables", object).ok() || !object.is_dict()) return;
  std::vector<jinja::Variable> list;
  for (const auto& entry : object.dict().entries) list.push_back({entry.key.view(), entry.value});
  jinja::RenderedText out(&memory), again(&memory);
  out.text = "before";
  const Status rendered = jinja::render(parsed, heap, list, 0, out);
  if (!rendered.ok()) {
    require(is_refusal(rendered) && out.text == "before" && out.said.empty(), "a refusal changes nothing");
    return;
  }
  check_said(out);
  require(jinja::render(parsed, heap, list, 0, again).ok() && out.text == again.text, "the same comes again");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t end = all.find('\0');
  HostMemory memory({});
  run(all.substr(0, end), end == std::string_view::npos ? kConversation : all.substr(end + 1), memory);
  require(memory.bytes() == 0, "all memory went back");
  return 0;
}
