// The Jinja of chat templates: what Python's jinja2 (3.1) makes of them in an immutable sandbox with trim_blocks,
// lstrip_blocks, loop controls, {% generation %}, and the functions that templates of models expect (raise_exception,
// strftime_now, tojson without HTML escapes). What refers to other templates (include, import, extends, block) is
// refused, and so is what no model's template needs: the filters of web pages (urlize, xmlattr, wordwrap and their
// like), raw blocks, cycler and joiner, numbers such as 0x1F and 1_000, and formats beyond %s, %r, %d, %f, %x with
// widths, and {}. A refusal names the line.
//
// A text that is rendered knows what of it was said, that is came from data: pieces of strings keep their origin
// through concatenation, slicing, split, strip, replace, upper and their like; what is computed from data as a whole,
// such as tojson, counts as data.
//
// Differences from jinja2: integers have 64 bits (larger ones of data can be written but not computed with, what grows
// beyond is refused); upper and lower know one character for another of the common alphabets, but for German ss; and
// printing a generator or a range shows no address and no bounds.
//
// Memory comes from the given resource, whose std::bad_alloc passes through as everywhere in the library; nothing else
// is thrown. Limits (value.h) on depth, steps, memory and output make any template end soon.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/status.h"
#include "text/jinja/value.h"
#include "text/tokenizer.h"

namespace weir::jinja {

// Parsed once, then immutable: any number of threads may render it.
class Template {
 public:
  explicit Template(std::pmr::memory_resource* memory) : heap_(memory), names_(&heap_) {}

  // Once. A failure names the line of the template.
  Status parse(std::string_view source);
  // Whether the template reads a variable of this name anywhere.
  bool reads(std::string_view name) const { return names_.find(name) != names_.end(); }

 private:
  friend class Parser;
  friend class Interpreter;

  Heap heap_;
  std::pmr::unordered_map<std::string_view, uint32_t> names_;
  const Node* body_ = nullptr;
};

struct Variable {
  std::string_view name;
  Value value;
};

struct RenderedText {
  explicit RenderedText(std::pmr::memory_resource* memory) : text(memory), said(memory) {}

  std::pmr::string text;
  std::pmr::vector<TextRange> said;  // what came from data: ascending, none empty
};

// Renders with these variables, made in `heap`; where a name comes twice the last one counts. `unix_time` is what
// strftime_now shows, as UTC. `out` is as before after a failure: WEIR_ERR_INVALID_ARG when the template itself refuses
// these variables (raise_exception), WEIR_ERR_FORMAT for an error of the template with them, WEIR_ERR_UNSUPPORTED
// beyond the limits. Each message names the line.
Status render(const Template& from, Heap& heap, std::span<const Variable> variables, int64_t unix_time,
              RenderedText& out);

}  // namespace weir::jinja
