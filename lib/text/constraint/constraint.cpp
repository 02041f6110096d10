// Constraints: the front ends by kind, and those that are schemas.
#include "text/constraint/constraint.h"

#include "text/constraint/json_strings.h"
#include "text/constraint/schema.h"

namespace weir::constraint {

namespace {

// Writes the rules of a schema compiler whose root is written, and looks for flaws.
Status finish(SchemaCompiler& schemas, GrammarBuilder& builder) {
  WEIR_TRY(schemas.compile());
  uint32_t rule = 0;
  const GrammarBuilder::Flaw flaw = builder.finish(rule);
  using Flaw = GrammarBuilder::Flaw;
  if (flaw == Flaw::kNone || flaw == Flaw::kNoText) WEIR_TRY(schemas.check_values());
  return flaw == Flaw::kNone ? Status() : schemas.flawed(rule, flaw);
}

}  // namespace

Status compile_schema(std::string_view text, GrammarBuilder& builder, std::pmr::memory_resource* memory) {
  JsonText json(memory);
  WEIR_TRY(json.read(text, "the schema"));
  SchemaCompiler schemas(json, builder, memory);
  schemas.add_document(0);
  const uint32_t root = builder.add_rule(0);
  schemas.value(builder.start(root), 0, builder.end(root));
  return finish(schemas, builder);
}

// One alternative of `root`: a call of this tool.
void emit_tool(std::string_view name, JsonText::Id parameters, uint32_t root, SchemaCompiler& schemas,
               GrammarBuilder& builder, std::pmr::memory_resource* memory) {
  uint32_t node = builder.start(root);
  const auto step = [&] {
    const uint32_t next = builder.add_node();
    node = next;
    return next;
  };
  const auto literal = [&](std::string_view part) {
    const uint32_t from = node;
    builder.literal(from, part, step());
  };
  const auto mark = [&](char c, SchemaCompiler::Spaces spaces) {
    const uint32_t from = node;
    schemas.mark(from, c, spaces, step());
  };
  PodVector<char> quoted(memory);
  append_quoted(name, quoted);
  mark('{', SchemaCompiler::kBehind);
  literal("\"name\"");
  mark(':', SchemaCompiler::kAround);
  literal({quoted.data(), quoted.size()});
  mark(',', SchemaCompiler::kAround);
  literal("\"arguments\"");
  mark(':', SchemaCompiler::kAround);
  if (parameters == JsonText::kNone) {
    mark('{', SchemaCompiler::kBehind);
    mark('}', SchemaCompiler::kNone);
  } else {
    schemas.add_document(parameters);
    const uint32_t from = node;
    schemas.value(from, parameters, step());
  }
  schemas.mark(node, '}', SchemaCompiler::kBefore, builder.end(root));
}

// {"name": ..., "arguments": ...}, one alternative for each tool.
Status compile_tools(std::string_view text, GrammarBuilder& builder, std::pmr::memory_resource* memory) {
  using Id = JsonText::Id;
  JsonText json(memory);
  WEIR_TRY(json.read(text, "the tools"));
  if (json.kind(0) != JsonText::kArray || json.size(0) == 0)
    return fail(WEIR_ERR_INVALID_ARG, "the tools: not a list of one or more tools");
  SchemaCompiler schemas(json, builder, memory);
  const uint32_t root = builder.add_rule(0);
  for (Id tool = json.first(0); tool != JsonText::kNone; tool = json.next(tool)) {
    Id function = json.find(tool, "function");
    if (function == JsonText::kNone) function = tool;
    const Id name = json.find(function, "name"), parameters = json.find(function, "parameters");
    char path[300];
    if (name == JsonText::kNone || json.kind(name) != JsonText::kString)
      return fail(WEIR_ERR_INVALID_ARG, "%s: a tool is an object with a string \"name\", or has it in \"function\"",
                  json.path(function, path, sizeof(path)));
    emit_tool(json.text(name), parameters, root, schemas, builder, memory);
  }
  return finish(schemas, builder);
}

Status Constraint::compile(int32_t kind, std::string_view text) {
  std::pmr::memory_resource* memory = grammar_.memory();
  GrammarBuilder builder(grammar_, memory);
  switch (kind) {
    case WEIR_CONSTRAINT_JSON:
      if (!text.empty()) return fail(WEIR_ERR_INVALID_ARG, "WEIR_CONSTRAINT_JSON takes no text");
      WEIR_TRY(compile_schema("true", builder, memory));
      break;
    case WEIR_CONSTRAINT_JSON_SCHEMA:
      WEIR_TRY(compile_schema(text, builder, memory));
      break;
    case WEIR_CONSTRAINT_GBNF:
      WEIR_TRY(compile_gbnf(text, builder, memory));
      break;
    case WEIR_CONSTRAINT_TOOLS:
      WEIR_TRY(compile_tools(text, builder, memory));
      break;
    default:
      return fail(WEIR_ERR_INVALID_ARG, "constraint kind %d is not known", kind);
  }
  cache_.start(grammar_, trie_);
  cache_.warm();
  return {};
}

void Constraint::mask(Matcher& matcher, uint32_t* words) {
  const std::lock_guard lock(cache_.lock());
  matcher.mask(trie_, cache_, words);
}

}  // namespace weir::constraint
