// llama.cpp's grammar format. What calls no rule, or only rules that are not recursive, becomes one automaton where it
// stays small; the rest follows the text.
#include <algorithm>

#include "core/utf8.h"
#include "text/constraint/constraint.h"

namespace weir::constraint {

namespace {

using std::string_view;

constexpr uint32_t kMaxNesting = 200;  // of groups, and of rules that are looked into
constexpr uint32_t kMaxRepeats = 5000;
constexpr uint32_t kMaxFlat = 4000;  // pieces of one automaton
constexpr uint32_t kMaxFlatStates = 2000;
constexpr uint32_t kMaxTextBytes = 4u << 20;

struct Piece {
  enum Kind : uint8_t { kText, kClass, kRule, kAll, kAny, kRepeat };  // kAll: one after the other; kAny: one of them
  Kind kind;
  uint32_t first, n;  // bytes, ranges, a rule, or children; kRepeat: one child
  uint32_t min, max;
  // Its automaton, once it is made: the terminal, and whether it has the empty text.
  enum Made : uint8_t { kNotYet, kMade, kTooLarge };
  Made made = kNotYet;
  bool is_nullable = false;
  uint32_t terminal = UINT32_MAX;  // none: there is no other text
};

struct NamedRule {
  string_view name;
  uint32_t line = 0;
  uint32_t body = UINT32_MAX;
  uint32_t size = 0;  // pieces with those of the rules that it calls; kUnknown, kOpen
  uint32_t number = UINT32_MAX;
};
constexpr uint32_t kUnknown = 0, kOpen = UINT32_MAX, kNotFlat = UINT32_MAX - 1;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class Gbnf {
 public:
  Gbnf(string_view text, GrammarBuilder& builder, std::pmr::memory_resource* memory)
      : text_(text),
        b_(builder),
        memory_(memory),
        pieces_(memory),
        children_(memory),
        ranges_(memory),
        bytes_(memory),
        rules_(memory),
        names_(memory),
        pending_(memory) {}

  Status run() {
    WEIR_TRY(read());
    uint32_t root = 0;
    WEIR_TRY(rule_named("root", root));
    if (rules_[root].body == UINT32_MAX) return fail(WEIR_ERR_INVALID_ARG, "the grammar has no rule \"root\"");
    number_of(root);
    for (uint32_t i = 0; i < rules_.size(); ++i) {
      if (rules_[i].body == UINT32_MAX) {
        return fail(WEIR_ERR_INVALID_ARG, "grammar, line %u: there is no rule \"%.*s\"", rules_[i].line, name_bytes(i),
                    rules_[i].name.data());
      }
      if (size_of_rule(i, 0) == kNotFlat) number_of(i);
    }
    for (uint32_t i = 0; i < pending_.size() && !b_.is_full(); ++i) {
      const uint32_t number = rules_[pending_[i]].number;
      emit(rules_[pending_[i]].body, b_.start(number), b_.end(number));
    }
    return finish();
  }

 private:
  int name_bytes(uint32_t rule) const { return static_cast<int>(std::min<size_t>(rules_[rule].name.size(), 100)); }

  // Reading.
  Status wrong(weir_status code, const char* why) const { return fail(code, "grammar, line %u: %s", line_, why); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool skip(string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  // White space and comments; over line ends only inside of groups and behind what must go on.
  void skip_spaces(bool over_lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || (over_lines && (c == '\n' || c == '\r'))) {
        if (c == '\n') ++line_;
        ++at_;
      } else {
        return;
      }
    }
  }
  string_view read_name() {
    const size_t first = at_;
    while (is_name(peek())) ++at_;
    return text_.substr(first, at_ - first);
  }
  // The index of a rule; it is made where there is none of the name.
  Status rule_named(string_view name, uint32_t& rule) {
    PodVector<uint32_t> key(memory_);
    for (const char c : name) key.push_back(static_cast<uint8_t>(c));
    rule = names_.find_or_add(key.data(), key.size());
    if (rule < rules_.size()) return {};
    if (rules_.size() == kMaxNames) return wrong(WEIR_ERR_UNSUPPORTED, "too many rules");
    NamedRule made;
    made.name = name;
    made.line = line_;
    rules_.push_back(made);
    return {};
  }

  Status read() {
    if (text_.size() > kMaxTextBytes)
      return fail(WEIR_ERR_UNSUPPORTED, "a grammar of %zu bytes; it may have %u", text_.size(), kMaxTextBytes);
    for (skip_spaces(true); at_ < text_.size(); skip_spaces(true)) {
      const string_view name = read_name();
      if (name.empty()) return wrong(WEIR_ERR_INVALID_ARG, "the name of a rule was expected");
      uint32_t rule = 0;
      WEIR_TRY(rule_named(name, rule));
      if (rules_[rule].body != UINT32_MAX) return wrong(WEIR_ERR_INVALID_ARG, "a rule that is there already");
      rules_[rule].line = line_;
      skip_spaces(false);
      if (!skip("::=")) return wrong(WEIR_ERR_INVALID_ARG, "\"::=\" was expected");
      skip_spaces(true);
      uint32_t body = 0;
      WEIR_TRY(read_choice(0, body));
      rules_[rule].body = body;
      if (at_ < text_.size() && peek() != '\n' && peek() != '\r')
        return wrong(WEIR_ERR_INVALID_ARG, peek() == ')' ? "a ')' closes nothing" : "something that has no meaning");
    }
    return {};
  }

  uint32_t add(Piece::Kind kind, uint32_t first, uint32_t n) {
    pieces_.push_back({kind, first, n, 1, 1});
    return pieces_.size() - 1;
  }
  uint32_t add_list(Piece::Kind kind, const PodVector<uint32_t>& list) {
    if (list.size() == 1) return list[0];
    const uint32_t first = children_.size();
    children_.append(list.data(), list.size());
    return add(kind, first, list.size());
  }

  Status read_choice(uint32_t depth, uint32_t& out) {
    if (depth > kMaxNesting) return wrong(WEIR_ERR_UNSUPPORTED, "groups are nested too deeply");
    PodVector<uint32_t> ways(memory_), parts(memory_);
    do {
      if (!ways.empty()) skip_spaces(true);
      parts.clear();
      while (true) {
        uint32_t part = 0;
        bool found = false;
        WEIR_TRY(read_part(depth, part, found));
        if (!found) break;
        parts.push_back(part);
      }
      ways.push_back(add_list(Piece::kAll, parts));
    } while (skip("|"));
    out = add_list(Piece::kAny, ways);
    return {};
  }

  Status read_part(uint32_t depth, uint32_t& out, bool& found) {
    found = true;
    const char c = peek();
    if (c == '"') {
      WEIR_TRY(read_text(out));
    } else if (c == '[') {
      WEIR_TRY(read_class(out));
    } else if (skip(".")) {
      out = add(Piece::kClass, ranges_.size(), 1);
      ranges_.push_back({0, 0x10FFFF});
    } else if (skip("(")) {
      skip_spaces(true);
      WEIR_TRY(read_choice(depth + 1, out));
      if (!skip(")")) return wrong(WEIR_ERR_INVALID_ARG, "a ')' is missing");
    } else if (is_name(c)) {
      uint32_t rule = 0;
      WEIR_TRY(rule_named(read_name(), rule));
      out = add(Piece::kRule, rule, 1);
    } else if (c == '<' || c == '!') {
      return wrong(WEIR_ERR_UNSUPPORTED, "tokens in a grammar are not supported");
    } else {
      found = false;
      return {};
    }
    skip_spaces(depth > 0);
    while (true) {
      bool again = false;
      WEIR_TRY(read_times(depth, out, again));
      if (!again) return {};
    }
  }

  Status read_times(uint32_t depth, uint32_t& part, bool& found) {
    uint32_t min = 0, max = kNoLimit;
    found = true;
    if (skip("+")) {
      min = 1;
    } else if (skip("?")) {
      max = 1;
    } else if (skip("{")) {
      skip_spaces(true);
      if (!read_number(min)) return wrong(WEIR_ERR_INVALID_ARG, "a number of times was expected");
      skip_spaces(true);
      max = min;
      if (skip(",")) {
        skip_spaces(true);
        if (!read_number(max)) max = kNoLimit;
        skip_spaces(true);
      }
      if (!skip("}")) return wrong(WEIR_ERR_INVALID_ARG, "a '}' is missing");
      if (max < min) return wrong(WEIR_ERR_INVALID_ARG, "a repetition with a maximum below its minimum");
      if (min > kMaxRepeats || (max != kNoLimit && max > kMaxRepeats))
        return wrong(WEIR_ERR_UNSUPPORTED, "a repetition of more than 5000 times");
    } else if (!skip("*")) {
      found = false;
      return {};
    }
    const uint32_t first = children_.size();
    children_.push_back(part);
    part = add(Piece::kRepeat, first, 1);
    pieces_[part].min = min;
    pieces_[part].max = max;
    skip_spaces(depth > 0);
    return {};
  }
  bool read_number(uint32_t& out) {
    const size_t first = at_;
    out = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_)
      out = std::min(out * 10 + static_cast<uint32_t>(peek() - '0'), 99999u);
    return at_ > first;
  }

  // One character of a text or a class, escapes undone.
  Status read_character(uint32_t& code) {
    if (at_ == text_.size() || peek() == '\n') return wrong(WEIR_ERR_INVALID_ARG, "a text or class that does not end");
    if (!skip("\\")) {
      const Utf8Step step = utf8_step(text_.substr(at_));
      if (step.kind != Utf8Kind::kComplete) return wrong(WEIR_ERR_INVALID_ARG, "it is not UTF-8");
      code = utf8_code_point(text_.substr(at_), step.n_bytes);
      at_ += step.n_bytes;
      return {};
    }
    const char c = peek();
    ++at_;
    const uint32_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    code = 0;
    for (uint32_t i = 0; i < n_digits; ++i, ++at_) {
      const char d = peek();
      const int digit = d >= '0' && d <= '9'   ? d - '0'
                        : d >= 'a' && d <= 'f' ? d - 'a' + 10
                        : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                               : -1;
      if (digit < 0) return wrong(WEIR_ERR_INVALID_ARG, "a hexadecimal digit was expected");
      code = code * 16 + static_cast<uint32_t>(digit);
    }
    if (code > 0x10FFFF) return wrong(WEIR_ERR_INVALID_ARG, "a character beyond the last one");
    if (n_digits != 0) return {};
    static constexpr char kNames[] = "tnr\\\"[]", kMeant[] = "\t\n\r\\\"[]";
    for (uint32_t i = 0; i < 7; ++i) {
      if (c == kNames[i]) return code = static_cast<uint8_t>(kMeant[i]), Status();
    }
    return wrong(WEIR_ERR_INVALID_ARG, "an escape that is not known");
  }

  Status read_text(uint32_t& out) {
    ++at_;
    const uint32_t first = bytes_.size();
    while (!skip("\"")) {
      uint32_t code = 0;
      WEIR_TRY(read_character(code));
      char bytes[4];
      const uint32_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
      for (uint32_t i = n; i-- > 1; code >>= 6) bytes[i] = static_cast<char>(0x80 | (code & 0x3F));
      bytes[0] = static_cast<char>(n == 1 ? code : ((0xF00u >> n) | code));
      bytes_.append(bytes, n);
    }
    out = add(Piece::kText, first, bytes_.size() - first);
    return {};
  }

  Status read_class(uint32_t& out) {
    ++at_;
    const bool is_inverted = skip("^");
    CodeSet set(memory_);
    while (!skip("]")) {
      uint32_t from = 0, to = 0;
      WEIR_TRY(read_character(from));
      to = from;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        WEIR_TRY(read_character(to));
      }
      if (to < from) return wrong(WEIR_ERR_INVALID_ARG, "a range that ends before it begins");
      set.add(from, to);
    }
    set.normalise();
    if (is_inverted) set.invert();
    const uint32_t first = ranges_.size();
    ranges_.append(set.ranges().data(), static_cast<uint32_t>(set.ranges().size()));
    out = add(Piece::kClass, first, ranges_.size() - first);
    return {};
  }

  // Building.
  static uint32_t sum(uint64_t size) { return size > kMaxFlat ? kNotFlat : static_cast<uint32_t>(size); }

  // Pieces of the automaton that this would be, or kNotFlat.
  uint32_t size_of(uint32_t id, uint32_t depth) {
    const Piece piece = pieces_[id];
    switch (piece.kind) {
      case Piece::kText:
        return sum(uint64_t{piece.n} + 1);
      case Piece::kClass:
        return sum(uint64_t{piece.n} + 1);
      case Piece::kRule:
        return size_of_rule(piece.first, depth);
      default:
        break;
    }
    uint64_t size = 1;
    for (uint32_t i = 0; i < piece.n && size < kNotFlat; ++i) size += size_of(children_[piece.first + i], depth);
    if (piece.kind == Piece::kRepeat) size *= std::max(piece.max == kNoLimit ? piece.min + 1 : piece.max, 1u);
    return sum(size);
  }
  uint32_t size_of_rule(uint32_t rule, uint32_t depth) {
    if (rules_[rule].size == kOpen || rules_[rule].body == UINT32_MAX || depth > kMaxNesting) return kNotFlat;
    if (rules_[rule].size != kUnknown) return rules_[rule].size;
    rules_[rule].size = kOpen;
    const uint32_t size = size_of(rules_[rule].body, depth + 1);
    rules_[rule].size = size;
    return size;
  }

  ExprId expression(Exprs& x, uint32_t id) {
    const Piece piece = pieces_[id];
    switch (piece.kind) {
      case Piece::kText:
        return x.text({bytes_.data() + piece.first, piece.n});
      case Piece::kClass:
        return x.characters(ranges_.part(piece.first, piece.n));
      case Piece::kRule:
        return expression(x, rules_[piece.first].body);
      case Piece::kRepeat:
        return x.repeat(expression(x, children_[piece.first]), piece.min, piece.max);
      default:
        break;
    }
    PodVector<ExprId> parts(memory_);
    for (uint32_t i = 0; i < piece.n; ++i) parts.push_back(expression(x, children_[piece.first + i]));
    const std::span<const ExprId> all(parts.data(), parts.size());
    return piece.kind == Piece::kAll ? x.cat(all) : x.alt(all);
  }

  uint32_t number_of(uint32_t rule) {
    if (rules_[rule].number == UINT32_MAX) {
      rules_[rule].number = b_.add_rule(rule);
      pending_.push_back(rule);
    }
    return rules_[rule].number;
  }

  bool emit_flat(uint32_t id, uint32_t from, uint32_t to) {
    if (pieces_[id].made == Piece::kNotYet) {
      Exprs x(memory_);
      Dfa dfa(memory_);
      pieces_[id].made = Piece::kTooLarge;
      if (size_of(id, 0) == kNotFlat || !make_dfa(x, expression(x, id), kMaxFlatStates, dfa)) return false;
      pieces_[id].made = Piece::kMade;
      if (!dfa.is_empty() && (dfa.flags[Dfa::kStart] & Dfa::kGoesOn) != 0) pieces_[id].terminal = b_.add_dfa(dfa);
      pieces_[id].is_nullable = !dfa.is_empty() && dfa.accepts(Dfa::kStart);
    }
    const Piece& piece = pieces_[id];
    if (piece.made == Piece::kTooLarge) return false;
    if (piece.is_nullable) b_.empty(from, to);
    if (piece.terminal != UINT32_MAX) b_.terminal(from, piece.terminal, to);
    return true;
  }

  void emit(uint32_t id, uint32_t from, uint32_t to) {
    const Piece piece = pieces_[id];
    if (b_.is_full()) return;
    if (piece.kind == Piece::kText) return b_.literal(from, {bytes_.data() + piece.first, piece.n}, to);
    if (emit_flat(id, from, to)) return;
    switch (piece.kind) {
      case Piece::kRule:
        b_.call(from, number_of(piece.first), to);
        break;
      case Piece::kAny:
        for (uint32_t i = 0; i < piece.n; ++i) emit(children_[piece.first + i], from, to);
        break;
      case Piece::kAll:
        for (uint32_t i = 0; i < piece.n; ++i) {
          const uint32_t next = i + 1 == piece.n ? to : b_.add_node();
          emit(children_[piece.first + i], from, next);
          from = next;
        }
        break;
      case Piece::kRepeat:
        emit_repeat(piece, from, to);
        break;
      default:
        break;
    }
  }

  void emit_repeat(const Piece& piece, uint32_t from, uint32_t to) {
    const uint32_t body = children_[piece.first];
    if (pieces_[body].kind == Piece::kClass && piece.max != kNoLimit) {
      Exprs x(memory_);
      Dfa unit(memory_);
      if (make_dfa(x, expression(x, body), kMaxFlatStates, unit))
        return b_.counted(from, unit, piece.min, piece.max, to);
    }
    for (uint32_t i = 0; i < piece.min && !b_.is_full(); ++i) {
      const uint32_t next = b_.add_node();
      emit(body, from, next);
      from = next;
    }
    if (piece.max == kNoLimit) {
      const uint32_t loop = b_.add_node(), end = b_.add_node();
      b_.empty(from, loop);
      emit(body, loop, end);
      b_.empty(end, loop);
      b_.empty(loop, to);
      return;
    }
    for (uint32_t i = piece.min; i < piece.max && !b_.is_full(); ++i) {
      const uint32_t next = b_.add_node();
      b_.empty(from, to);
      emit(body, from, next);
      from = next;
    }
    b_.empty(from, to);
  }

  Status finish() {
    uint32_t number = 0;
    const GrammarBuilder::Flaw flaw = b_.finish(number);
    if (flaw == GrammarBuilder::Flaw::kNone) return {};
    if (flaw == GrammarBuilder::Flaw::kTooLarge) return fail(WEIR_ERR_UNSUPPORTED, "the grammar is too large");
    const uint32_t rule = b_.where(number);
    const char* why = flaw == GrammarBuilder::Flaw::kLeftRecursion
                          ? "begins with itself, which is not supported; write the repetition as ( ... )*"
                          : "has no text: it needs itself without end";
    return fail(flaw == GrammarBuilder::Flaw::kLeftRecursion ? WEIR_ERR_UNSUPPORTED : WEIR_ERR_INVALID_ARG,
                "grammar, line %u: the rule \"%.*s\" %s", rules_[rule].line, name_bytes(rule), rules_[rule].name.data(),
                why);
  }

  static constexpr uint32_t kMaxNames = 10000;

  string_view text_;
  GrammarBuilder& b_;
  std::pmr::memory_resource* memory_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  PodVector<Piece> pieces_;
  PodVector<uint32_t> children_;
  PodVector<CodeRange> ranges_;
  PodVector<char> bytes_;
  PodVector<NamedRule> rules_;
  WordSets names_;  // of rules_
  PodVector<uint32_t> pending_;
};

}  // namespace

Status compile_gbnf(string_view text, GrammarBuilder& builder, std::pmr::memory_resource* memory) {
  return Gbnf(text, builder, memory).run();
}

}  // namespace weir::constraint
