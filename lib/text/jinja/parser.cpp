// Parses templates, by the grammar of Jinja 3.1.
#include "text/jinja/lexer.h"

namespace weir::jinja {

using std::string_view;

// The first error stays, and all tokens behind it are the end: whoever waits for something sees that and returns.
class Parser {
 public:
  Parser(Template& to, const std::pmr::vector<Token>& tokens) : to_(to), tokens_(tokens) {}

  Status run() {
    Node* all = make(NodeKind::kWith);
    statements(all->list, {});
    to_.body_ = all;
    return status_;
  }

 private:
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
  // Reads items with commas between them up to this sign, which is skipped.
  template <class Read>
  void items_until(const char* end, const Read& read) {
    for (bool goes_on = true; goes_on && !is_end() && !is(end); goes_on = skip(",")) read();
    expect(end);
  }

  // ---- nodes ----

  Node* make(NodeKind kind, const Node* a = nullptr) {
    Node* node = to_.heap_.make<Node>(kind, token().line, &to_.heap_);
    node->a = a;
    if (depth_ > kMaxNesting) error("brackets or blocks are nested too deeply");
    return node;
  }
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
    const Within nest(depth_, depth_ + 1);
    const Node* expr = operation(0);
    while (token().is_name("if")) {
      Node* node = make(NodeKind::kCondition, expr);
      next();
      node->b = operation(0);
      if (skip_name("else")) node->c = expression();
      expr = node;
    }
    return expr;
  }

  // Operators between two operands that bind at least as tightly as this level, and `not`.
  const Node* operation(int level) {
    if (level > kPowerLevel) return filters_and_tests(unary());
    if (level == kNotLevel && token().is_name("not")) {
      const Within nest(depth_, depth_ + 1);
      Node* node = make(NodeKind::kNot);
      next();
      node->a = operation(level);
      return node;
    }
    const Node *first = operation(level + 1), *left = first;
    while (const size_t index = operator_here(level)) {
      const bool is_binary = level > kNotLevel;
      Node* node = make(is_binary ? NodeKind::kBinary : level == 0 ? NodeKind::kOr : NodeKind::kAnd, left);
      node->op = is_binary ? static_cast<Op>(index - 1) : Op::kAdd;
      node->is_chained = level == kCompareLevel && left != first;
      if (next().text == "not") next();  // not in
      node->b = operation(level + 1);
      left = node;
    }
    return left;
  }

  // One more than the index of the operator of this level at the current token, or 0.
  size_t operator_here(int level) const {
    const bool is_word = token().kind == TokenKind::kName, is_out = token().is_name("not") && token(1).is_name("in");
    for (size_t i = 0; i < std::size(kSigns) && (is_word || token().kind == TokenKind::kSign); ++i) {
      if (kLevels[i] == level && kSigns[i] == (is_out ? "not in" : token().text)) return i + 1;
    }
    return 0;
  }

  const Node* unary() {
    if (!is("-") && !is("+")) return postfix(primary());
    const Within nest(depth_, depth_ + 1);
    Node* node = make(NodeKind::kSign);
    if (next().text == "-") node->op = Op::kSub;
    node->a = unary();
    return postfix(node);
  }

  const Node* primary() {
    if (token().kind == TokenKind::kName) return name();
    if (token().kind == TokenKind::kNumber) return constant(next().number);
    if (token().kind == TokenKind::kString) {
      std::pmr::string text(&to_.heap_);
      while (token().kind == TokenKind::kString) text += next().text;
      return constant(literal(text));
    }
    const Within nest(depth_, depth_ + 1);
    if (skip("(")) {
      const Node* inner = tuple(Items::kAll, true);
      expect(")");
      return inner;
    }
    Node* node = make(is("{") ? NodeKind::kDict : NodeKind::kList);
    const auto item = [&] { node->list.push_back(expression()); };
    if (skip("[")) {
      items_until("]", item);
    } else if (skip("{")) {
      items_until("}", [&] {
        item();
        expect(":");
        item();
      });
    } else {
      unexpected("an expression");
    }
    return node;
  }

  const Node* name() {
    constexpr string_view kWords[] = {"true", "True", "false", "False", "none", "None"};
    Node* node = make(NodeKind::kName);
    node->text = next().text;
    const auto word = std::find(std::begin(kWords), std::end(kWords), node->text) - std::begin(kWords);
    if (word < 6) return constant(word < 4 ? Value::boolean(word < 2) : Value::none());
    reads_varargs_ = reads_varargs_ || node->text == "varargs";
    reads_kwargs_ = reads_kwargs_ || node->text == "kwargs";
    node->name = name_id(node->text);
    return node;
  }

  // What is assigned to.
  const Node* target() {
    if (skip("(")) {
      const Node* several = tuple(Items::kTargets);
      expect(")");
      return several;
    }
    const Node* word = token().kind == TokenKind::kName ? name() : nullptr;
    if (word == nullptr || word->kind != NodeKind::kName) unexpected("a name");
    if (!skip(".")) return word;
    Node* node = make(NodeKind::kNamespaceRef);
    node->name = word->name;
    node->text = expect_name();
    return node;
  }

  // Expressions with commas between them; a single one stands for itself. Those before an `if` that belongs to a loop
  // have no condition of their own.
  enum class Items : uint8_t { kAll, kUnconditional, kTargets };
  const Node* tuple(Items what = Items::kAll, bool may_be_empty = false) {
    const Within nest(depth_, depth_ + 1);
    Node* node = make(NodeKind::kTuple);
    auto& list = node->list;
    bool has_comma = false;
    const char* end = what == Items::kTargets ? "in" : what == Items::kUnconditional ? "recursive" : "";
    while (!is_end() && !is("}}") && !is("%}") && !is(")") && !token().is_name(end)) {
      list.push_back(what == Items::kTargets ? target() : what == Items::kUnconditional ? operation(0) : expression());
      if (!skip(",")) break;
      has_comma = true;
    }
    if (list.empty() && !may_be_empty) unexpected("an expression");
    return list.size() == 1 && !has_comma ? list[0] : node;
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
    Node* node = make(NodeKind::kItem, of);
    auto& parts = node->list;
    parts.assign(3, nullptr);
    next();
    for (size_t i = 0; i < 3; ++i) {
      if (!is(":") && !is("]")) parts[i] = expression();
      if (i == 2 || !skip(":")) break;
      node->kind = NodeKind::kSlice;
    }
    if (node->kind == NodeKind::kItem && parts[0] == nullptr) unexpected("an expression");
    expect("]");
    node->b = parts[0];
    return node;
  }

  void arguments(Node& to) {
    expect("(");
    items_until(")", [&] {
      if (skip("**")) {
        to.c = expression();
      } else if (skip("*")) {
        to.b = expression();
      } else if (token().kind == TokenKind::kName && token(1).is("=")) {
        const string_view key = next().text;
        next();
        to.named.push_back({key, expression()});
      } else {
        if (!to.named.empty() || to.b != nullptr || to.c != nullptr) error("a positional argument follows a named one");
        to.list.push_back(expression());
      }
    });
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
    node->function = find_function(Table::kFilters, node->text);
    if (is("(")) arguments(*node);
    return node;
  }

  // A chain of filters for what a block holds.
  void block_filters(Node& block) {
    block.b = filter(make(NodeKind::kCaptured));
    while (skip("|")) block.b = filter(block.b);
  }

  const Node* test(const Node* of) {
    Node* node = make(NodeKind::kTest, of);
    next();
    const bool is_negated = skip_name("not");
    node->text = expect_name("a test's name");
    node->function = find_function(Table::kTests, node->text);
    const Token& behind = token();
    const bool is_word = behind.kind == TokenKind::kName && behind.text != "else" && behind.text != "or" &&
                         behind.text != "and" && behind.text != "if";
    if (behind.is_name("is")) error("tests cannot be chained with is");
    if (is("(")) {
      arguments(*node);
    } else if (is_word || behind.kind == TokenKind::kString || behind.kind == TokenKind::kNumber || is("[") ||
               is("{")) {
      node->list.push_back(postfix(primary()));
    }
    return is_negated ? make(NodeKind::kNot, node) : node;
  }

  // ---- statements ----

  // Up to a tag of one of the names `ends`, which is left as the current token.
  void statements(Node::List& out, std::initializer_list<const char*> ends) {
    const Within nest(depth_, depth_ + 1);
    while (!is_end()) {
      Node* node = make(NodeKind::kData);
      const Token& first = next();
      const auto is_here = [&](const char* end) { return token().is_name(end); };
      if (first.is("{%") && std::any_of(ends.begin(), ends.end(), is_here)) return;
      out.push_back(node);
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
  }

  // What follows the current %} up to one of the end tags, and the name of that.
  string_view block(Node::List& out, std::initializer_list<const char*> ends) {
    expect("%}");
    statements(out, ends);
    return next().text;
  }

  void statement(Node& node) {
    const struct {
      string_view tag;
      NodeKind kind;
      void (Parser::*head)(Node&);  // or null
      const char* end;              // of what the head leaves to be read, or null
    } kStatements[] = {
        {"set", NodeKind::kSet, &Parser::set, nullptr},
        {"if", NodeKind::kIf, &Parser::branch, nullptr},
        {"for", NodeKind::kFor, &Parser::loop, nullptr},
        {"macro", NodeKind::kMacro, &Parser::macro, nullptr},
        {"call", NodeKind::kCallBlock, &Parser::macro, nullptr},
        {"with", NodeKind::kWith, &Parser::parameters, "endwith"},
        {"generation", NodeKind::kWith, nullptr, "endgeneration"},
        {"filter", NodeKind::kFilterBlock, &Parser::block_filters, "endfilter"},
        {"break", NodeKind::kBreak, nullptr, nullptr},
        {"continue", NodeKind::kContinue, nullptr, nullptr},
    };
    const string_view tag = expect_name("a tag's name");
    const auto* found = std::find_if(std::begin(kStatements), std::end(kStatements),
                                     [&](const auto& statement) { return statement.tag == tag; });
    if (found == std::end(kStatements)) return error("the tag '", tag, "' is not known here");
    node.kind = found->kind;
    if (found->head != nullptr) (this->*found->head)(node);
    if (found->end != nullptr) block(node.list, {found->end});
    const bool is_jump = node.kind == NodeKind::kBreak || node.kind == NodeKind::kContinue;
    if (is_jump && n_loops_ == 0) error("break or continue stands outside of a loop");
  }

  void set(Node& node) {
    node.a = tuple(Items::kTargets);
    if (skip("=")) return void(node.b = tuple());
    node.kind = NodeKind::kSetBlock;
    node.b = make(NodeKind::kCaptured);
    if (skip("|")) block_filters(node);
    block(node.list, {"endset"});
  }

  void branch(Node& node) {
    node.a = tuple(Items::kUnconditional);
    const string_view end = block(node.list, {"elif", "else", "endif"});
    if (end == "elif") {
      const Within nest(depth_, depth_ + 1);
      Node* more = make(NodeKind::kIf);
      branch(*more);
      node.others.push_back(more);
    } else if (end == "else") {
      block(node.others, {"endif"});
    }
  }

  void loop(Node& node) {
    node.a = tuple(Items::kTargets);
    if (!skip_name("in")) unexpected("in");
    node.b = tuple(Items::kUnconditional);
    if (skip_name("if")) node.c = expression();
    node.is_recursive = skip_name("recursive");
    const Within inside(n_loops_, n_loops_ + 1);
    const bool has_else = block(node.list, {"else", "endfor"}) == "else";
    n_loops_ = inside.before;
    if (has_else) block(node.others, {"endfor"});
  }

  // A macro, or a call with a block.
  void macro(Node& node) {
    const bool is_macro = node.kind == NodeKind::kMacro;
    node.text = is_macro ? expect_name() : "caller";
    node.name = name_id(node.text);
    if (is_macro || is("(")) parameters(node);
    if (!is_macro) node.a = expression();
    if (!is_macro && node.a->kind != NodeKind::kCall) error("{% call %} needs a call");
    const Within loops(n_loops_, 0u);
    const bool outer_varargs = std::exchange(reads_varargs_, false), outer_kwargs = std::exchange(reads_kwargs_, false);
    block(node.list, {is_macro ? "endmacro" : "endcall"});
    node.reads_varargs = reads_varargs_;
    node.reads_kwargs = reads_kwargs_;
    reads_varargs_ = reads_varargs_ || outer_varargs;
    reads_kwargs_ = reads_kwargs_ || outer_kwargs;
  }

  // Names with values: of a macro's parameters, where the first ones need none, or of {% with %}.
  void parameters(Node& node) {
    const bool is_macro = skip("(");
    const auto parameter = [&] {
      const Node* name = target();
      if (name == nullptr || name->kind != NodeKind::kName) return unexpected("a name");
      const bool needs_value = !is_macro || (!node.named.empty() && node.named.back().value != nullptr);
      if (!is("=") && needs_value) unexpected("=");
      node.named.push_back({name->text, skip("=") ? expression() : nullptr, name});
    };
    if (is_macro) return items_until(")", parameter);
    while (!is_end() && !is("%}")) {
      if (!node.named.empty()) expect(",");
      parameter();
    }
  }

  Template& to_;
  const std::pmr::vector<Token>& tokens_;
  size_t at_ = 0;
  uint32_t depth_ = 0, n_loops_ = 0;
  bool reads_varargs_ = false, reads_kwargs_ = false;  // in the macro that is read
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
