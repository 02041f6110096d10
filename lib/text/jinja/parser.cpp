// Parses templates, by the grammar of Jinja 3.1.
#include "text/jinja/lexer.h"

namespace weir::jinja {

using std::string_view;

// The first error stays, and all tokens behind it are the end: whoever waits for something sees that and returns.
class Parser {
 public:
  Parser(Template& to, const std::pmr::vector<Token>& tokens) : to_(to), tokens_(tokens) {}

  Status run() {
    to_.body_ = statements({});
    return status_;
  }

 private:
  using Nodes = std::pmr::vector<const Node*>;

  struct Nest {
    explicit Nest(Parser& of) : parser(of) {
      if (++parser.depth_ > kMaxNesting) parser.error("brackets or blocks are nested too deeply");
    }
    ~Nest() { --parser.depth_; }
    Parser& parser;
  };

  // ---- tokens ----

  const Token& token(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  bool is(string_view sign) const { return token().is(sign); }
  bool is_end() const { return token().kind == TokenKind::kEnd; }
  const Token& next() { return tokens_[is_end() ? at_ : at_++]; }
  bool skip_name(string_view name) { return token().is_name(name) && (next(), true); }
  bool skip(string_view sign) { return is(sign) && (next(), true); }
  void error(const char* what, string_view which = "", const char* behind = "") {
    const std::pmr::string name(which.substr(0, 40), &to_.heap_);
    if (status_.ok())
      status_ = fail(kBadTemplate, WEIR_TEMPLATE_LINE "%s%s%s", token().line, what, name.c_str(), behind);
    at_ = tokens_.size() - 1;
  }
  void expect(const char* sign) {
    if (!skip(sign)) unexpected(sign);
  }
  void unexpected(const char* wanted) {
    error(std::pmr::string("expected ", &to_.heap_).append(wanted).append(", got '").c_str(), token().text, "'");
  }
  string_view expect_name(const char* wanted = "a name") {
    if (token().kind != TokenKind::kName) unexpected(wanted);
    return next().text;
  }

  // ---- nodes ----

  Node* make(NodeKind kind, const Node* a = nullptr) {
    Node* node = to_.heap_.make<Node>();
    node->kind = kind;
    node->line = token().line;
    node->a = a;
    return node;
  }
  Node* make_list(NodeKind kind, const Nodes& list, uint32_t line, const Node* a = nullptr) {
    Node* node = make(kind, a);
    node->line = line;
    node->list = keep(list);
    return node;
  }
  template <class T>
  std::span<const T> keep(const std::pmr::vector<T>& items) {
    return *to_.heap_.make<std::pmr::vector<T>>(items, &to_.heap_);
  }
  Nodes nodes() { return Nodes(&to_.heap_); }
  Value literal(string_view text) { return make_text(to_.heap_, text, false); }
  const Node* constant(Value value) {
    Node* node = make(NodeKind::kConst);
    node->value = value;
    return node;
  }
  uint32_t name_id(string_view name) {
    return to_.names_.try_emplace(name, static_cast<uint32_t>(to_.names_.size())).first->second;
  }

  // ---- expressions ----

  const Node* expression() {
    const Nest nest(*this);
    const Node* expr = infix(0);
    while (token().is_name("if")) {
      Node* node = make(NodeKind::kCondition, expr);
      next();
      node->b = infix(0);
      if (skip_name("else")) node->c = expression();
      expr = node;
    }
    return expr;
  }

  // Operators between two operands, by how tightly they bind; `not` and comparisons stand at kNotLevel.
  static constexpr int kNotLevel = 2, kUnaryLevel = 7;
  struct Infix {
    int level;
    string_view text;
    NodeKind kind;
    Op op;
  };
  const Node* infix(int level) {
    static constexpr Infix kInfix[] = {
        {0, "or", NodeKind::kOr, Op::kAdd},       {1, "and", NodeKind::kAnd, Op::kAdd},
        {3, "+", NodeKind::kBinary, Op::kAdd},    {3, "-", NodeKind::kBinary, Op::kSub},
        {4, "~", NodeKind::kBinary, Op::kConcat}, {5, "*", NodeKind::kBinary, Op::kMul},
        {5, "/", NodeKind::kBinary, Op::kDiv},    {5, "//", NodeKind::kBinary, Op::kFloorDiv},
        {5, "%", NodeKind::kBinary, Op::kMod},    {6, "**", NodeKind::kBinary, Op::kPow},
    };
    if (level == kNotLevel) return negation();
    if (level == kUnaryLevel) return filters_and_tests(unary());
    const Node* left = infix(level + 1);
    while (true) {
      const auto* found = std::find_if(std::begin(kInfix), std::end(kInfix), [&](const Infix& one) {
        return one.level == level && (level < kNotLevel ? token().is_name(one.text) : is(one.text));
      });
      if (found == std::end(kInfix)) return left;
      Node* node = make(found->kind, left);
      next();
      node->op = found->op;
      node->b = infix(level + 1);
      left = node;
    }
  }

  const Node* negation() {
    if (!token().is_name("not")) return comparison();
    const Nest nest(*this);
    Node* node = make(NodeKind::kNot);
    next();
    node->a = negation();
    return node;
  }

  bool skip_comparison(Op& op) {
    constexpr std::pair<string_view, Op> kOps[] = {{"==", Op::kEq}, {"!=", Op::kNe}, {"<", Op::kLt},
                                                   {"<=", Op::kLe}, {">", Op::kGt},  {">=", Op::kGe}};
    for (const auto& [sign, meant] : kOps) {
      if (skip(sign)) return op = meant, true;
    }
    op = token().is_name("not") && token(1).is_name("in") ? Op::kNotIn : Op::kIn;
    if (op == Op::kNotIn) next();
    return skip_name("in");
  }

  const Node* comparison() {
    const Node* first = infix(kNotLevel + 1);
    Nodes list = nodes();
    Op op = Op::kEq;
    const uint32_t line = token().line;
    while (skip_comparison(op)) {
      Node* operand = make(NodeKind::kCompare);
      operand->op = op;
      operand->a = infix(kNotLevel + 1);
      list.push_back(operand);
    }
    return list.empty() ? first : make_list(NodeKind::kCompare, list, line, first);
  }

  const Node* unary() {
    if (!is("-") && !is("+")) return postfix(primary());
    const Nest nest(*this);
    Node* node = make(NodeKind::kSign);
    if (next().text == "-") node->op = Op::kSub;
    node->a = unary();
    return postfix(node);
  }

  const Node* primary(bool is_target = false) {
    if (token().kind == TokenKind::kName) return name(is_target);
    if (token().kind == TokenKind::kNumber) return constant(next().number);
    if (token().kind == TokenKind::kString) {
      std::pmr::string text(&to_.heap_);
      while (token().kind == TokenKind::kString) text += next().text;
      return constant(literal(text));
    }
    if (!is_target && is("[")) return display(NodeKind::kList, "]");
    if (!is_target && is("{")) return display(NodeKind::kDict, "}");
    if (!skip("(")) {
      unexpected("an expression");
      return constant(Value::none());
    }
    const Node* node = tuple(is_target, true);
    expect(")");
    return node;
  }

  const Node* name(bool is_target) {
    Node* node = make(NodeKind::kName);
    const string_view text = next().text;
    if (text == "true" || text == "True") return constant(Value::boolean(true));
    if (text == "false" || text == "False") return constant(Value::boolean(false));
    if (text == "none" || text == "None") return constant(Value::none());
    if (text == "varargs" || text == "kwargs") error("there are no varargs and kwargs here");
    node->name = name_id(text);
    node->text = text;
    if (is_target && skip(".")) {
      node->kind = NodeKind::kNamespaceRef;
      node->text = expect_name();
    }
    return node;
  }

  // Expressions with commas between them; a single one stands for itself. `is_target`: names only, up to `in`;
  // `is_plain`: without `if`, which would belong to the loop.
  const Node* tuple(bool is_target = false, bool in_brackets = false, bool is_plain = false) {
    const Nest nest(*this);
    const uint32_t line = token().line;
    Nodes list = nodes();
    bool has_comma = false;
    while (!is_end() && !is("}}") && !is("%}") && !is(")") &&
           !token().is_name(is_plain    ? "recursive"
                            : is_target ? "in"
                                        : "")) {
      list.push_back(is_target ? primary(true) : is_plain ? infix(0) : expression());
      if (!skip(",")) break;
      has_comma = true;
    }
    if (list.empty() && !in_brackets) unexpected("an expression");
    return list.size() == 1 && !has_comma ? list[0] : make_list(NodeKind::kTuple, list, line);
  }

  const Node* display(NodeKind kind, const char* end) {
    const Nest nest(*this);
    const uint32_t line = next().line;
    Nodes list = nodes();
    while (!is_end() && !is(end)) {
      list.push_back(expression());
      if (kind == NodeKind::kDict) {
        expect(":");
        list.push_back(expression());
      }
      if (!skip(",")) break;
    }
    expect(end);
    return make_list(kind, list, line);
  }

  const Node* postfix(const Node* node) {
    while (is(".") || is("[") || is("(")) node = is(".") ? attribute(node) : is("[") ? subscript(node) : call(node);
    return node;
  }

  const Node* attribute(const Node* of) {
    Node* node = make(NodeKind::kAttribute, of);
    next();
    if (token().kind == TokenKind::kNumber) {
      node->kind = NodeKind::kItem;
      node->b = constant(next().number);
    } else {
      node->text = expect_name("a name or number");
    }
    return node;
  }

  const Node* subscript(const Node* of) {
    const uint32_t line = next().line;
    Nodes parts(3, nullptr, &to_.heap_);
    bool is_slice = false;
    for (size_t i = 0; i < 3; ++i) {
      if (!is(":") && !is("]")) parts[i] = expression();
      if (i == 2 || !skip(":")) break;
      is_slice = true;
    }
    if (!is_slice && parts[0] == nullptr) unexpected("an expression");
    expect("]");
    Node* node = make_list(is_slice ? NodeKind::kSlice : NodeKind::kItem, parts, line, of);
    node->b = parts[0];
    return node;
  }

  void arguments(Node& to) {
    expect("(");
    Nodes list = nodes();
    std::pmr::vector<Node::Named> named(&to_.heap_);
    while (!is_end() && !is(")")) {
      if (skip("**")) {
        to.c = expression();
      } else if (skip("*")) {
        to.b = expression();
      } else if (token().kind == TokenKind::kName && token(1).is("=")) {
        const string_view key = next().text;
        next();
        named.push_back({key, expression()});
      } else {
        if (!named.empty() || to.b != nullptr || to.c != nullptr) error("a positional argument follows a named one");
        list.push_back(expression());
      }
      if (!is(")")) expect(",");
    }
    expect(")");
    to.list = keep(list);
    to.named = keep(named);
  }

  const Node* call(const Node* of) {
    Node* node = make(NodeKind::kCall, of);
    arguments(*node);
    return node;
  }

  const Node* filters_and_tests(const Node* node) {
    while (is("|") || token().is_name("is") || is("("))
      node = skip("|") ? filter(node) : is("(") ? call(node) : test(node);
    return node;
  }

  const Node* filter(const Node* of) {
    Node* node = make(NodeKind::kFilter, of);
    node->text = expect_name("a filter's name");
    node->name = find_function(functions(Table::kFilters), node->text);
    if (is("(")) arguments(*node);
    return node;
  }

  // A chain of filters for what a block holds.
  const Node* block_filters() {
    const Node* node = filter(nullptr);
    while (skip("|")) node = filter(node);
    return node;
  }

  const Node* test(const Node* of) {
    Node* node = make(NodeKind::kTest, of);
    next();
    const bool is_negated = skip_name("not");
    node->text = expect_name("a test's name");
    node->name = find_function(functions(Table::kTests), node->text);
    const Token& behind = token();
    const bool is_word = behind.kind == TokenKind::kName && behind.text != "else" && behind.text != "or" &&
                         behind.text != "and" && behind.text != "if";
    if (behind.is_name("is")) error("tests cannot be chained with is");
    if (is("(")) {
      arguments(*node);
    } else if (is_word || behind.kind == TokenKind::kString || behind.kind == TokenKind::kNumber || is("[") ||
               is("{")) {
      node->list = keep(Nodes({postfix(primary())}, &to_.heap_));
    }
    return is_negated ? make(NodeKind::kNot, node) : node;
  }

  // ---- statements ----

  // Up to a tag of one of the names `ends`, which is left as the current token.
  Node::List statements(std::initializer_list<const char*> ends) {
    const Nest nest(*this);
    Nodes list = nodes();
    while (!is_end()) {
      Node* node = make(NodeKind::kData);
      const Token& first = next();
      const auto is_here = [&](const char* end) { return token().is_name(end); };
      if (first.is("{%") && std::any_of(ends.begin(), ends.end(), is_here)) return keep(list);
      list.push_back(node);
      if (first.kind == TokenKind::kData) {
        node->value = literal(first.text);
      } else if (first.is("{{")) {
        node->kind = NodeKind::kPrint;
        node->a = tuple();
        expect("}}");
      } else {
        statement(*node);
        expect("%}");
      }
    }
    if (ends.size() > 0 && status_.ok()) unexpected(ends.begin()[ends.size() - 1]);
    return keep(list);
  }

  // What follows the current %} up to the end tag, whose name is skipped.
  Node::List block(const char* end) {
    expect("%}");
    const Node::List body = statements({end});
    next();
    return body;
  }

  void statement(Node& node) {
    const string_view tag = expect_name("a tag's name");
    if (tag == "set") return set(node);
    if (tag == "if") return branch(node);
    if (tag == "for") return loop(node);
    if (tag == "macro" || tag == "call") return macro(node, tag == "macro");
    if (tag == "with") return with(node);
    if (tag == "break" || tag == "continue") {
      node.kind = tag == "break" ? NodeKind::kBreak : NodeKind::kContinue;
      if (n_loops_ == 0) error("break or continue stands outside of a loop");
    } else if (tag == "filter") {
      node.kind = NodeKind::kFilterBlock;
      node.b = block_filters();
      node.list = block("endfilter");
    } else if (tag == "generation") {
      node.kind = NodeKind::kWith;
      node.list = block("endgeneration");
    } else {
      error("the tag '", tag, "' is not known here");
    }
  }

  void set(Node& node) {
    node.a = tuple(true);
    node.kind = skip("=") ? NodeKind::kSet : NodeKind::kSetBlock;
    if (node.kind == NodeKind::kSet) return void(node.b = tuple());
    if (skip("|")) node.b = block_filters();
    node.list = block("endset");
  }

  void branch(Node& node) {
    node.kind = NodeKind::kIf;
    node.a = tuple(false, false, true);
    expect("%}");
    node.list = statements({"elif", "else", "endif"});
    if (token().is_name("elif")) {
      const Nest nest(*this);
      Node* more = make(NodeKind::kIf);
      next();
      branch(*more);
      node.others = keep(Nodes({more}, &to_.heap_));
    } else if (next().text == "else") {
      node.others = block("endif");
    }
  }

  void loop(Node& node) {
    node.kind = NodeKind::kFor;
    node.a = tuple(true);
    if (!skip_name("in")) unexpected("in");
    node.b = tuple(false, false, true);
    if (skip_name("if")) node.c = expression();
    node.is_recursive = skip_name("recursive");
    expect("%}");
    ++n_loops_;
    node.list = statements({"else", "endfor"});
    --n_loops_;
    if (next().text == "else") node.others = block("endfor");
  }

  void macro(Node& node, bool is_macro) {
    node.kind = is_macro ? NodeKind::kMacro : NodeKind::kCallBlock;
    node.text = is_macro ? expect_name() : "caller";
    node.name = name_id(node.text);
    if (is_macro || is("(")) parameters(node);
    if (!is_macro) node.a = expression();
    if (!is_macro && node.a->kind != NodeKind::kCall) error("{% call %} needs a call");
    const uint32_t outer_loops = std::exchange(n_loops_, 0u);
    node.list = block(is_macro ? "endmacro" : "endcall");
    n_loops_ = outer_loops;
  }

  // Names with values: of a macro's parameters, where the first ones need none, or of {% with %}.
  void parameters(Node& node) {
    Nodes params = nodes(), defaults = nodes();
    const bool is_macro = skip("(");
    while (!is_end() && !is(is_macro ? ")" : "%}")) {
      if (!params.empty()) expect(",");
      params.push_back(primary(true));
      if (params.back()->kind != NodeKind::kName) unexpected("a name");
      if (skip("=")) {
        defaults.push_back(expression());
      } else if (!defaults.empty() || !is_macro) {
        unexpected("=");
      }
    }
    if (is_macro) expect(")");
    node.params = keep(params);
    node.defaults = keep(defaults);
  }

  void with(Node& node) {
    node.kind = NodeKind::kWith;
    parameters(node);
    node.list = block("endwith");
  }

  Template& to_;
  const std::pmr::vector<Token>& tokens_;
  size_t at_ = 0;
  uint32_t depth_ = 0, n_loops_ = 0;
  Status status_;
};

Status Template::parse(string_view source) {
  if (source.size() > kMaxTemplateBytes)
    return fail(WEIR_ERR_UNSUPPORTED, "the chat template has %zu bytes; %zu is the most", source.size(),
                kMaxTemplateBytes);
  Str& text = *make_text(heap_, "", false);
  for (size_t i = 0; i < source.size(); ++i) {  // all line ends become \n
    if (!source.substr(i).starts_with("\r\n")) text.text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.text.ends_with('\n')) text.text.pop_back();
  std::pmr::vector<Token> tokens(&heap_);
  WEIR_TRY(Lexer(text.text, heap_, tokens).run());
  return Parser(*this, tokens).run();
}

}  // namespace weir::jinja
