// Parses templates, by the grammar of Jinja 3.1.
#include <algorithm>

#include "text/jinja/expressions.h"

namespace weir::jinja {

using std::string_view;

class Parser final : ExpressionParser {
 public:
  Parser(Template& to, const std::pmr::vector<Token>& tokens)
      : ExpressionParser(to.arena_, to.heap_, to.names_, tokens), to_(to) {}

  Status run() {
    to_.body_ = statements({});
    return status_;
  }

 private:
  // Up to a tag of one of the names `ends`, which is left as the current token.
  Node::List statements(std::initializer_list<string_view> ends) {
    const Nest nest(*this);
    Nodes list = nodes();
    while (!is_end()) {
      Node* node = make(NodeKind::kData);
      const Token& first = next();
      if (first.kind == TokenKind::kData) {
        node->value = literal(first.text);
      } else if (first.kind == TokenKind::kPrintBegin) {
        node->kind = NodeKind::kPrint;
        node->a = tuple();
        expect(TokenKind::kPrintEnd, "}}");
      } else {
        if (std::any_of(ends.begin(), ends.end(), [&](string_view end) { return token().is_name(end); }))
          return keep(list);
        statement(*node, list);
        expect(TokenKind::kBlockEnd, "%}");
        if (node->kind == NodeKind::kData) continue;  // it put others into the list
      }
      list.push_back(node);
    }
    if (ends.size() > 0 && status_.ok()) unexpected(ends.begin()[ends.size() - 1].data());
    return keep(list);
  }

  // What follows the current %} up to the end tag, whose name is skipped.
  Node::List block(std::initializer_list<string_view> ends) {
    expect(TokenKind::kBlockEnd, "%}");
    const Node::List body = statements(ends);
    next();
    return body;
  }

  void statement(Node& node, Nodes& list) {
    const string_view tag = expect_name("a tag's name");
    if (tag == "set") return set(node);
    if (tag == "if") return branch(node);
    if (tag == "for") return loop(node);
    if (tag == "macro") return macro(node);
    if (tag == "call") return call_block(node);
    if (tag == "with") return with(node);
    if (tag == "break" || tag == "continue") {
      node.kind = tag == "break" ? NodeKind::kBreak : NodeKind::kContinue;
      if (n_loops_ == 0) error("break or continue stands outside of a loop");
    } else if (tag == "filter") {
      node.kind = NodeKind::kFilterBlock;
      node.b = block_filters();
      node.list = block({"endfilter"});
    } else if (tag == "generation") {
      node.kind = NodeKind::kWith;
      node.list = block({"endgeneration"});
    } else if (tag == "print") {
      while (!is_end() && token().kind != TokenKind::kBlockEnd) {
        Node* print = make(NodeKind::kPrint);
        print->a = expression();
        list.push_back(print);
        if (token().kind != TokenKind::kBlockEnd) expect_operator(",");
      }
    } else if (status_.ok()) {
      status_ = fail(kBadTemplate, WEIR_TEMPLATE_LINE "the tag '%.*s' is not known here", node.line,
                     static_cast<int>(std::min<size_t>(tag.size(), 40)), tag.data());
      at_ = tokens_.size() - 1;
    }
  }

  void set(Node& node) {
    node.a = tuple(true);
    if (skip_operator("=")) {
      node.kind = NodeKind::kSet;
      node.b = tuple();
      return;
    }
    node.kind = NodeKind::kSetBlock;
    if (skip_operator("|")) node.b = block_filters();
    node.list = block({"endset"});
  }

  void branch(Node& node) {
    node.kind = NodeKind::kIf;
    Node* last = &node;
    while (true) {
      last->a = plain_tuple();
      expect(TokenKind::kBlockEnd, "%}");
      last->list = statements({"elif", "else", "endif"});
      if (!token().is_name("elif")) break;
      next();
      Node* more = make(NodeKind::kIf);
      Nodes list = nodes();
      list.push_back(more);
      last->others = keep(list);
      last = more;
    }
    if (skip_name("else")) {
      last->others = block({"endif"});
    } else {
      next();
    }
  }

  void loop(Node& node) {
    node.kind = NodeKind::kFor;
    node.a = tuple(true);
    if (!skip_name("in")) unexpected("in");
    node.b = plain_tuple();
    if (skip_name("if")) node.c = expression();
    node.is_recursive = skip_name("recursive");
    ++n_loops_;
    expect(TokenKind::kBlockEnd, "%}");
    node.list = statements({"else", "endfor"});
    --n_loops_;
    if (skip_name("else")) {
      node.others = block({"endfor"});
    } else {
      next();
    }
  }

  // A tuple whose expressions have no `if`: it would belong to the loop.
  const Node* plain_tuple() {
    const uint32_t line = token().line;
    Nodes list = nodes();
    bool is_tuple = false;
    while (!is_end()) {
      if (token().kind == TokenKind::kBlockEnd || token().is_name("recursive")) break;
      list.push_back(either());
      if (!skip_operator(",")) break;
      is_tuple = true;
    }
    if (list.empty()) unexpected("an expression");
    if (!is_tuple && !list.empty()) return list[0];
    Node* node = make(NodeKind::kTuple, line);
    node->list = keep(list);
    return node;
  }

  void parameters(Node& node) {
    expect_operator("(");
    Nodes params = nodes(), defaults = nodes();
    while (!is_end() && !token().is_operator(")")) {
      if (!params.empty()) expect_operator(",");
      Node* param = make(NodeKind::kName);
      param->text = expect_name();
      param->name = name_id(param->text);
      params.push_back(param);
      if (skip_operator("=")) {
        defaults.push_back(expression());
      } else if (!defaults.empty()) {
        error("a parameter without a default follows one with a default");
      }
    }
    expect_operator(")");
    node.params = keep(params);
    node.defaults = keep(defaults);
  }

  void macro_body(Node& node, string_view end) {
    const bool outer[3] = {reads_caller_, reads_named_, reads_more_};
    const uint32_t outer_loops = std::exchange(n_loops_, 0u);
    reads_caller_ = reads_named_ = reads_more_ = false;
    node.list = block({end});
    node.reads_caller = reads_caller_;
    node.reads_named = reads_named_;
    node.reads_more = reads_more_;
    reads_caller_ = reads_caller_ || outer[0];
    reads_named_ = reads_named_ || outer[1];
    reads_more_ = reads_more_ || outer[2];
    n_loops_ = outer_loops;
  }

  void macro(Node& node) {
    node.kind = NodeKind::kMacro;
    node.text = expect_name();
    node.name = name_id(node.text);
    parameters(node);
    macro_body(node, "endmacro");
  }

  void call_block(Node& node) {
    node.kind = NodeKind::kCallBlock;
    if (token().is_operator("(")) parameters(node);
    node.text = "caller";
    node.a = expression();
    if (node.a->kind != NodeKind::kCall) error("{% call %} needs a call");
    macro_body(node, "endcall");
  }

  void with(Node& node) {
    node.kind = NodeKind::kWith;
    Nodes targets = nodes(), values = nodes();
    while (!is_end() && token().kind != TokenKind::kBlockEnd) {
      if (!targets.empty()) expect_operator(",");
      targets.push_back(primary(true));
      expect_operator("=");
      values.push_back(expression());
    }
    node.params = keep(targets);
    node.defaults = keep(values);
    node.list = block({"endwith"});
  }

  Template& to_;
  uint32_t n_loops_ = 0;
};

Status Template::parse(string_view source) {
  if (source.size() > kMaxTemplateBytes)
    return fail(WEIR_ERR_UNSUPPORTED, "the chat template has %zu bytes; %zu is the most", source.size(),
                kMaxTemplateBytes);
  auto* text = static_cast<char*>(arena_.allocate(source.size() + 1, 1));
  size_t n = 0;
  for (size_t i = 0; i < source.size(); ++i) {  // all line ends become \n
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text[n++] = source[i] == '\r' ? '\n' : source[i];
  }
  if (n > 0 && text[n - 1] == '\n') --n;
  std::pmr::vector<Token> tokens(arena_.upstream_resource());
  WEIR_TRY(cut_tokens({text, n}, arena_, tokens));
  return Parser(*this, tokens).run();
}

}  // namespace weir::jinja
