// Cuts a template into tokens, as Jinja does with trim_blocks and lstrip_blocks: a line end behind a block tag or a
// comment is dropped, and so is white space before one on its line.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace weir::jinja {

enum class TokenKind : uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,  // {{
  kPrintEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  uint32_t line;          // from 1
  std::string_view text;  // of a string what it stands for; of others what stands in the template
  int64_t integer = 0;
  double real = 0;

  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool is_operator(std::string_view name) const { return kind == TokenKind::kOperator && text == name; }
};

// The tokens of `source`, whose line ends are \n and which lives as long as they, with one of kEnd at the end. Strings
// with escapes are kept in `arena`.
Status cut_tokens(std::string_view source, std::pmr::memory_resource& arena, std::pmr::vector<Token>& out);

// How all messages about a template begin, and the code of those that are not about one conversation.
#define WEIR_TEMPLATE_LINE "chat template, line %u: "
inline constexpr weir_status kBadTemplate = WEIR_ERR_FORMAT;

}  // namespace weir::jinja
