// What a template is after it was parsed. Nodes live in the template's arena and never change.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "text/jinja/value.h"

namespace weir::jinja {

enum class NodeKind : uint8_t {
  // expressions
  kConst,      // value
  kName,       // name
  kList,       // list
  kTuple,      // list
  kDict,       // list: keys and values in turn
  kNot,        // a
  kNeg,        // a
  kPos,        // a
  kBinary,     // a op b
  kConcat,     // list
  kAnd,        // a, b
  kOr,         // a, b
  kCompare,    // a, then list of kOperand
  kOperand,    // op a
  kCondition,  // a if b else c
  kAttribute,  // a.text
  kItem,       // a[b]
  kSlice,      // a[list], three of which each may be null
  kCall,       // a(list, named, *b, **c)
  kFilter,     // a|text(...) as a call; a is null for what a block holds; name: the filter's number
  kTest,       // a is text(...); name: the test's number
  // statements
  kPrint,         // a
  kData,          // value
  kFor,           // for a in b if c: list else others
  kIf,            // if a: list else others
  kSet,           // set a = b
  kSetBlock,      // set a: list, filtered by b
  kNamespaceRef,  // name.text as a target
  kMacro,         // name(params, defaults): list
  kCallBlock,     // call(params, defaults) a: list
  kFilterBlock,   // filter b: list
  kWith,          // params = defaults: list
  kBreak,
  kContinue,
};

enum class Op : uint8_t {
  kNone,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn,
};

struct Node {
  struct Named {
    std::string_view name;
    const Node* value;
  };
  using List = std::span<const Node* const>;

  NodeKind kind = NodeKind::kConst;
  Op op = Op::kNone;
  bool is_recursive = false;                                           // of a loop
  bool reads_caller = false, reads_named = false, reads_more = false;  // of a macro: caller, kwargs, varargs
  uint32_t line = 0;
  uint32_t name = 0;
  std::string_view text;
  Value value;
  const Node *a = nullptr, *b = nullptr, *c = nullptr;
  List list, others, params, defaults;
  std::span<const Named> named;
};

}  // namespace weir::jinja
