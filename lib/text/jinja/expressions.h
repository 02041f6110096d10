// Parses expressions, by the grammar of Jinja 3.1. Part of parser.cpp, which has the statements.
#pragma once

#include <algorithm>
#include <new>

#include "text/jinja/ast.h"
#include "text/jinja/functions.h"
#include "text/jinja/jinja.h"
#include "text/jinja/lexer.h"
#include "text/jinja/limits.h"

namespace weir::jinja {

using Nodes = std::pmr::vector<const Node*>;

// The first error stays, and all tokens behind it are the end: whoever waits for something sees that and returns.
class ExpressionParser {
 protected:
  using string_view = std::string_view;

  ExpressionParser(std::pmr::memory_resource& arena, Heap& heap, Template::Names& names,
                   const std::pmr::vector<Token>& tokens)
      : arena_(arena), heap_(heap), names_(names), tokens_(tokens) {}

  struct Nest {
    explicit Nest(ExpressionParser& of) : parser(of) {
      if (++parser.depth_ > kMaxNesting) parser.error("brackets or blocks are nested too deeply");
    }
    ~Nest() { --parser.depth_; }
    ExpressionParser& parser;
  };

  // ---- tokens ----

  const Token& token(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  bool is_end() const { return token().kind == TokenKind::kEnd; }
  const Token& next() {
    const Token& taken = token();
    if (!is_end()) ++at_;
    return taken;
  }
  bool skip_name(string_view name) {
    if (!token().is_name(name)) return false;
    next();
    return true;
  }
  bool skip_operator(string_view name) {
    if (!token().is_operator(name)) return false;
    next();
    return true;
  }
  void error(const char* what) {
    if (status_.ok()) status_ = fail(kBadTemplate, WEIR_TEMPLATE_LINE "%s", token().line, what);
    at_ = tokens_.size() - 1;
  }
  void unexpected(const char* wanted) {
    const string_view text = token().text.substr(0, 40);
    if (status_.ok())
      status_ = fail(kBadTemplate, WEIR_TEMPLATE_LINE "expected %s, got '%.*s'", token().line, wanted,
                     static_cast<int>(text.size()), text.data());
    at_ = tokens_.size() - 1;
  }
  void expect(TokenKind kind, const char* wanted) {
    if (token().kind != kind) return unexpected(wanted);
    next();
  }
  void expect_operator(const char* name) {
    if (!skip_operator(name)) unexpected(name);
  }
  string_view expect_name(const char* wanted = "a name") {
    const string_view text = token().text;
    expect(TokenKind::kName, wanted);
    return text;
  }

  // ---- nodes ----

  Node* make(NodeKind kind, uint32_t line) {
    void* place = arena_.allocate(sizeof(Node), alignof(Node));
    Node* node = new (place) Node();
    node->kind = kind;
    node->line = line;
    return node;
  }
  Node* make(NodeKind kind) { return make(kind, token().line); }
  template <class T>
  std::span<const T> keep(const std::pmr::vector<T>& items) {
    auto* kept = static_cast<T*>(arena_.allocate(items.size() * sizeof(T) + 1, alignof(T)));
    std::copy(items.begin(), items.end(), kept);
    return {kept, items.size()};
  }
  Value literal(string_view text) {
    Str* made = make_text(heap_, text, false);
    made->n_refs = Object::kForever;
    return made;
  }
  uint32_t name_id(string_view name) {
    return names_.try_emplace(name, static_cast<uint32_t>(names_.size())).first->second;
  }
  Nodes nodes() { return Nodes(&arena_); }

  // ---- expressions ----

  const Node* expression() {
    const Nest nest(*this);
    const Node* expr = either();
    while (token().is_name("if")) {
      Node* node = make(NodeKind::kCondition);
      next();
      node->a = expr;
      node->b = either();
      if (skip_name("else")) node->c = expression();
      expr = node;
    }
    return expr;
  }

  const Node* either() {
    const Node* left = both();
    while (token().is_name("or")) left = pair(NodeKind::kOr, left, &ExpressionParser::both);
    return left;
  }
  const Node* both() {
    const Node* left = negation();
    while (token().is_name("and")) left = pair(NodeKind::kAnd, left, &ExpressionParser::negation);
    return left;
  }
  // `left` null: of one operand.
  const Node* pair(NodeKind kind, const Node* left, const Node* (ExpressionParser::*right)()) {
    Node* node = make(kind);
    next();
    node->a = left;
    (left != nullptr ? node->b : node->a) = (this->*right)();
    return node;
  }
  const Node* negation() {
    if (!token().is_name("not")) return comparison();
    const Nest nest(*this);
    return pair(NodeKind::kNot, nullptr, &ExpressionParser::negation);
  }

  Op comparison_op() {
    constexpr std::pair<string_view, Op> kOps[] = {{"==", Op::kEq}, {"!=", Op::kNe}, {"<", Op::kLt},
                                                   {"<=", Op::kLe}, {">", Op::kGt},  {">=", Op::kGe}};
    for (const auto& [name, op] : kOps) {
      if (skip_operator(name)) return op;
    }
    if (skip_name("in")) return Op::kIn;
    if (!token().is_name("not") || !token(1).is_name("in")) return Op::kNone;
    next();
    next();
    return Op::kNotIn;
  }

  const Node* comparison() {
    const Node* first = sum();
    Nodes list = nodes();
    while (true) {
      const uint32_t line = token().line;
      const Op op = comparison_op();
      if (op == Op::kNone) break;
      Node* operand = make(NodeKind::kOperand, line);
      operand->op = op;
      operand->a = sum();
      list.push_back(operand);
    }
    if (list.empty()) return first;
    Node* node = make(NodeKind::kCompare, list[0]->line);
    node->a = first;
    node->list = keep(list);
    return node;
  }

  const Node* binary(Op op, const Node* left, const Node* (ExpressionParser::*right)()) {
    Node* node = make(NodeKind::kBinary);
    next();
    node->op = op;
    node->a = left;
    node->b = (this->*right)();
    return node;
  }
  const Node* sum() {
    const Node* left = concatenation();
    while (token().is_operator("+") || token().is_operator("-"))
      left = binary(token().text == "+" ? Op::kAdd : Op::kSub, left, &ExpressionParser::concatenation);
    return left;
  }
  const Node* concatenation() {
    Nodes list = nodes();
    const uint32_t line = token().line;
    list.push_back(product());
    while (skip_operator("~")) list.push_back(product());
    if (list.size() == 1) return list[0];
    Node* node = make(NodeKind::kConcat, line);
    node->list = keep(list);
    return node;
  }
  const Node* product() {
    const Node* left = power();
    while (true) {
      const Token& sign = token();
      const Op op = sign.is_operator("*")    ? Op::kMul
                    : sign.is_operator("/")  ? Op::kDiv
                    : sign.is_operator("//") ? Op::kFloorDiv
                    : sign.is_operator("%")  ? Op::kMod
                                             : Op::kNone;
      if (op == Op::kNone) return left;
      left = binary(op, left, &ExpressionParser::power);
    }
  }
  const Node* power() {
    const Node* left = filtered_unary();
    while (token().is_operator("**")) left = binary(Op::kPow, left, &ExpressionParser::filtered_unary);
    return left;
  }
  const Node* filtered_unary() { return filters_and_tests(unary()); }
  const Node* unary() {
    const bool is_minus = token().is_operator("-");
    if (!is_minus && !token().is_operator("+")) return postfix(primary());
    const Nest nest(*this);
    return postfix(pair(is_minus ? NodeKind::kNeg : NodeKind::kPos, nullptr, &ExpressionParser::unary));
  }

  const Node* constant(Value value) {
    Node* node = make(NodeKind::kConst);
    node->value = std::move(value);
    return node;
  }

  const Node* primary(bool is_target = false) {
    const Token& first = token();
    switch (first.kind) {
      case TokenKind::kName:
        return name(is_target);
      case TokenKind::kString: {
        std::pmr::string text(next().text, &arena_);
        while (token().kind == TokenKind::kString) text += next().text;
        return constant(literal(text));
      }
      case TokenKind::kInteger:
        next();
        return constant(Value::integer(first.integer));
      case TokenKind::kFloat:
        next();
        return constant(Value::real(first.real));
      default:
        break;
    }
    if (first.is_operator("(")) {
      next();
      const Node* node = tuple(is_target, true);
      expect_operator(")");
      return node;
    }
    if (!is_target && first.is_operator("[")) return list();
    if (!is_target && first.is_operator("{")) return dict();
    unexpected("an expression");
    return constant(Value::none());
  }

  const Node* name(bool is_target) {
    const Token& first = next();
    if (first.text == "true" || first.text == "True" || first.text == "false" || first.text == "False")
      return constant(Value::boolean(first.text[0] == 't' || first.text[0] == 'T'));
    if (first.text == "none" || first.text == "None") return constant(Value::none());
    const bool is_reference = is_target && token().is_operator(".");
    Node* node = make(is_reference ? NodeKind::kNamespaceRef : NodeKind::kName, first.line);
    node->name = name_id(first.text);
    node->text = first.text;
    if (is_reference) {
      next();
      node->text = expect_name();
    }
    reads_caller_ = reads_caller_ || first.text == "caller";
    reads_named_ = reads_named_ || first.text == "kwargs";
    reads_more_ = reads_more_ || first.text == "varargs";
    return node;
  }

  bool is_tuple_end() const {
    return token().kind == TokenKind::kPrintEnd || token().kind == TokenKind::kBlockEnd || token().is_operator(")");
  }

  // Expressions with commas between them; a single one stands for itself. `is_target`: names only, up to `in`.
  const Node* tuple(bool is_target = false, bool in_brackets = false) {
    const Nest nest(*this);
    const uint32_t line = token().line;
    Nodes list = nodes();
    bool is_tuple = false;
    while (!is_end()) {
      if (!list.empty()) expect_operator(",");
      if (is_tuple_end() || (is_target && token().is_name("in"))) break;
      list.push_back(is_target ? primary(true) : expression());
      if (!token().is_operator(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && !list.empty()) return list[0];
    if (!is_tuple && !in_brackets) unexpected("an expression");
    Node* node = make(NodeKind::kTuple, line);
    node->list = keep(list);
    return node;
  }

  const Node* list() {
    const Nest nest(*this);
    Node* node = make(NodeKind::kList);
    next();
    Nodes list = nodes();
    while (!is_end() && !token().is_operator("]")) {
      if (!list.empty()) expect_operator(",");
      if (token().is_operator("]")) break;
      list.push_back(expression());
    }
    expect_operator("]");
    node->list = keep(list);
    return node;
  }

  const Node* dict() {
    const Nest nest(*this);
    Node* node = make(NodeKind::kDict);
    next();
    Nodes list = nodes();
    while (!is_end() && !token().is_operator("}")) {
      if (!list.empty()) expect_operator(",");
      if (token().is_operator("}")) break;
      list.push_back(expression());
      expect_operator(":");
      list.push_back(expression());
    }
    expect_operator("}");
    node->list = keep(list);
    return node;
  }

  const Node* postfix(const Node* node) {
    while (true) {
      if (token().is_operator(".")) {
        node = attribute(node);
      } else if (token().is_operator("[")) {
        node = subscript(node);
      } else if (token().is_operator("(")) {
        node = call(node);
      } else {
        return node;
      }
    }
  }

  const Node* attribute(const Node* of) {
    Node* node = make(NodeKind::kAttribute);
    next();
    node->a = of;
    if (token().kind == TokenKind::kInteger) {
      node->kind = NodeKind::kItem;
      node->b = constant(Value::integer(token().integer));
      next();
    } else {
      node->text = expect_name("a name or number");
      node->value = literal(node->text);
    }
    return node;
  }

  const Node* subscript(const Node* of) {
    Node* node = make(NodeKind::kItem);
    next();
    node->a = of;
    const Node* parts[3] = {};
    bool is_slice = false;
    for (size_t i = 0; i < 3; ++i) {
      if (!token().is_operator(":") && !token().is_operator("]")) parts[i] = expression();
      if (i == 2 || !skip_operator(":")) break;
      is_slice = true;
    }
    expect_operator("]");
    if (is_slice) {
      node->kind = NodeKind::kSlice;
      Nodes list(parts, parts + 3, &arena_);
      node->list = keep(list);
    } else if (parts[0] == nullptr) {
      unexpected("an expression");
    }
    node->b = is_slice ? nullptr : parts[0];
    return node;
  }

  void arguments(Node& to) {
    expect_operator("(");
    Nodes list = nodes();
    std::pmr::vector<Node::Named> named(&arena_);
    while (!is_end() && !token().is_operator(")")) {
      if (skip_operator("**")) {
        to.c = expression();
      } else if (skip_operator("*")) {
        to.b = expression();
      } else if (token().kind == TokenKind::kName && token(1).is_operator("=")) {
        const string_view key = next().text;
        next();
        named.push_back({key, expression()});
      } else {
        if (!named.empty() || to.b != nullptr || to.c != nullptr) error("a positional argument follows a named one");
        list.push_back(expression());
      }
      if (!token().is_operator(")")) expect_operator(",");
    }
    expect_operator(")");
    to.list = keep(list);
    to.named = keep(named);
  }

  const Node* call(const Node* of) {
    Node* node = make(NodeKind::kCall);
    node->a = of;
    arguments(*node);
    return node;
  }

  const Node* filters_and_tests(const Node* node) {
    while (true) {
      if (token().is_operator("|")) {
        next();
        node = filter(node);
      } else if (token().is_name("is")) {
        node = test(node);
      } else if (token().is_operator("(")) {
        node = call(node);
      } else {
        return node;
      }
    }
  }

  const Node* filter(const Node* of) {
    Node* node = make(NodeKind::kFilter);
    node->a = of;
    node->text = expect_name("a filter's name");
    node->name = find_filter(node->text);
    if (token().is_operator("(")) arguments(*node);
    return node;
  }

  // A chain of filters for what a block holds.
  const Node* block_filters() {
    const Node* node = filter(nullptr);
    while (skip_operator("|")) node = filter(node);
    return node;
  }

  const Node* test(const Node* of) {
    Node* node = make(NodeKind::kTest);
    next();
    const bool is_negated = skip_name("not");
    node->a = of;
    node->text = expect_name("a test's name");
    node->name = find_test(node->text);
    const Token& behind = token();
    const bool has_operand =
        behind.kind == TokenKind::kString || behind.kind == TokenKind::kInteger || behind.kind == TokenKind::kFloat ||
        behind.is_operator("[") || behind.is_operator("{") ||
        (behind.kind == TokenKind::kName && behind.text != "else" && behind.text != "or" && behind.text != "and");
    if (behind.is_operator("(")) {
      arguments(*node);
    } else if (behind.is_name("is")) {
      error("tests cannot be chained with is");
    } else if (has_operand) {
      Nodes list = nodes();
      list.push_back(postfix(primary()));
      node->list = keep(list);
    }
    if (!is_negated) return node;
    Node* negated = make(NodeKind::kNot, node->line);
    negated->a = node;
    return negated;
  }

  std::pmr::memory_resource& arena_;
  Heap& heap_;
  Template::Names& names_;
  const std::pmr::vector<Token>& tokens_;
  size_t at_ = 0;
  uint32_t depth_ = 0;
  bool reads_caller_ = false, reads_named_ = false, reads_more_ = false;
  Status status_;
};

}  // namespace weir::jinja
