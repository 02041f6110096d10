// A grammar over bytes: rules that are graphs, whose edges read a terminal or call a rule. Terminals are what needs no
// stack: literal bytes, automata, and automata repeated so many times. Immutable once it is compiled.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string_view>

#include "core/pod_vector.h"
#include "core/status.h"
#include "text/constraint/automaton.h"
#include "text/constraint/word_sets.h"

namespace weir::constraint {

inline constexpr uint32_t kMaxRules = 100000, kMaxNodes = 200000;
inline constexpr uint32_t kMaxTableBytes = 64u << 20;  // of all automata

struct Terminal {
  enum Kind : uint8_t { kLiteral, kDfa, kCounted };
  static constexpr uint32_t kDead = UINT32_MAX;
  static constexpr uint32_t kDone = UINT32_MAX - 1;  // kCounted: behind the tail
  static constexpr int32_t kNoTail = -1;
  Kind kind;
  uint32_t bytes;  // kLiteral: where its bytes are; else where the classes of bytes are
  uint32_t n;      // kLiteral: bytes; else states
  uint32_t next, flags, n_classes;
  // kCounted: times; no text of the automaton is the beginning of another one. Where there is a tail, it is a byte that
  // follows, with which none of them begins.
  uint32_t min, max;
  int32_t tail;
};

struct Edge {
  enum Kind : uint8_t { kEmpty, kTerminal, kCall };
  Kind kind;
  uint32_t what;  // terminal or rule
  uint32_t from, to;
};

struct Rule {
  uint32_t start, end;
  uint32_t where;  // for messages: the front end's own number
};

class Grammar {
 public:
  explicit Grammar(std::pmr::memory_resource* memory)
      : terminals_(memory),
        edges_(memory),
        first_edge_(memory),
        rules_(memory),
        bytes_(memory),
        tables_(memory),
        nullable_(memory),
        ends_(memory),
        order_(memory) {}

  std::pmr::memory_resource* memory() const { return terminals_.memory(); }
  uint32_t root() const { return 0; }
  uint32_t n_rules() const { return rules_.size(); }
  uint32_t n_edges() const { return edges_.size(); }
  uint32_t n_terminals() const { return terminals_.size(); }
  const Rule& rule(uint32_t i) const { return rules_[i]; }
  const Edge& edge(uint32_t i) const { return edges_[i]; }
  const Terminal& terminal(uint32_t i) const { return terminals_[i]; }
  uint32_t first_edge(uint32_t node) const { return first_edge_[node]; }
  bool is_end(uint32_t node) const { return (ends_[node] & 1) != 0; }
  bool is_tail(uint32_t node) const { return ends_[node] == 3; }  // an end that nothing follows
  bool is_nullable(uint32_t rule) const { return nullable_[rule] != 0; }
  uint32_t order(uint32_t rule) const { return order_[rule]; }  // a rule comes behind those that can begin with it

  // Terminal::kDead, or the state after the byte. 0 is a literal's first state, and the start of the others.
  uint32_t step(const Terminal& t, uint32_t state, uint8_t byte) const {
    if (t.kind == Terminal::kLiteral)
      return static_cast<uint8_t>(bytes_[t.bytes + state]) == byte ? state + 1 : Terminal::kDead;
    return t.kind == Terminal::kDfa ? step_dfa(t, state, byte) : step_counted(t, state, byte);
  }
  bool accepts(const Terminal& t, uint32_t state) const {
    if (t.kind == Terminal::kLiteral) return state == t.n;
    if (t.kind == Terminal::kDfa) return (flag(t, state) & Dfa::kAccepts) != 0;
    return t.tail == Terminal::kNoTail ? state % t.n == 0 && state / t.n >= t.min : state == Terminal::kDone;
  }
  bool goes_on(const Terminal& t, uint32_t state) const {
    if (t.kind == Terminal::kLiteral) return state < t.n;
    if (t.kind == Terminal::kDfa) return (flag(t, state) & Dfa::kGoesOn) != 0;
    if (state == Terminal::kDone) return false;
    return state % t.n != 0 || t.tail != Terminal::kNoTail || t.max == kNoLimit || state / t.n < t.max;
  }
  // The parts of a kDfa for a walk of many steps: states [n_states, n_classes], 0 dead; 0 does not stand for the start.
  const uint16_t* table(const Terminal& t) const { return tables_.data() + t.next; }
  const char* classes(const Terminal& t) const { return bytes_.data() + t.bytes; }
  const char* state_flags(const Terminal& t) const { return bytes_.data() + t.flags; }
  std::string_view literal(const Terminal& t) const { return {bytes_.data() + t.bytes, t.n}; }
  // kCounted: the state in one of the automaton's texts, 0 between them.
  uint32_t step_unit(const Terminal& t, uint32_t in_unit, uint8_t byte) const {
    const uint32_t to = step_dfa(t, in_unit, byte);
    return to != Terminal::kDead && (flag(t, to) & Dfa::kAccepts) != 0 ? 0 : to;
  }
  uint64_t bytes() const;

 private:
  friend class GrammarBuilder;
  // The state 0 of an automaton is dead, and no terminal is in it: here it stands for the start.
  uint32_t step_dfa(const Terminal& t, uint32_t state, uint8_t byte) const {
    const uint32_t from = state == 0 ? Dfa::kStart : state;
    const uint32_t to = tables_[t.next + from * t.n_classes + static_cast<uint8_t>(bytes_[t.bytes + byte])];
    return to == 0 ? Terminal::kDead : to;
  }
  uint32_t step_counted(const Terminal& t, uint32_t state, uint8_t byte) const;
  uint8_t flag(const Terminal& t, uint32_t state) const {
    return static_cast<uint8_t>(bytes_[t.flags + (state == 0 ? Dfa::kStart : state)]);
  }

  PodVector<Terminal> terminals_;
  PodVector<Edge> edges_;
  PodVector<uint32_t> first_edge_;  // [nodes + 1]
  PodVector<Rule> rules_;
  PodVector<char> bytes_;
  PodVector<uint16_t> tables_;
  PodVector<uint8_t> nullable_, ends_;
  PodVector<uint32_t> order_;
};

// Takes rules and edges in any order. Rule 0 is the root.
class GrammarBuilder {
 public:
  explicit GrammarBuilder(Grammar& grammar, std::pmr::memory_resource* memory)
      : g_(grammar), memory_(memory), literals_(memory), dfas_(memory), literal_ids_(memory), dfa_ids_(memory) {}

  // 0 and is_full() when there are too many; so all can be built first and be asked for once.
  uint32_t add_rule(uint32_t where);
  uint32_t add_node();
  bool is_full() const { return is_full_; }
  uint32_t start(uint32_t rule) const { return g_.rules_[rule].start; }
  uint32_t end(uint32_t rule) const { return g_.rules_[rule].end; }
  uint32_t where(uint32_t rule) const { return g_.rules_[rule].where; }

  uint32_t add_literal(std::string_view text);  // not empty
  uint32_t add_dfa(const Dfa& dfa);             // not empty; equal ones are one
  // `unit` times min..max; no text of `unit` is empty or the beginning of another one.
  uint32_t add_counted(const Dfa& unit, uint32_t min, uint32_t max, int32_t tail);

  void empty(uint32_t from, uint32_t to) { add_edge({Edge::kEmpty, 0, from, to}); }
  void call(uint32_t from, uint32_t rule, uint32_t to) { add_edge({Edge::kCall, rule, from, to}); }
  void terminal(uint32_t from, uint32_t terminal, uint32_t to) { add_edge({Edge::kTerminal, terminal, from, to}); }
  void literal(uint32_t from, std::string_view text, uint32_t to);
  void dfa(uint32_t from, const Dfa& dfa, uint32_t to);  // the empty text, too, where it accepts it
  void counted(uint32_t from, const Dfa& unit, uint32_t min, uint32_t max, uint32_t to);
  void counted(uint32_t from, const Dfa& unit, uint32_t min, uint32_t max, char tail, uint32_t to);

  enum class Flaw : uint8_t { kNone, kTooLarge, kNoText, kLeftRecursion };
  // Completes the grammar. What is found wrong with it, and the rule's number: kNoText: the
  // root has none. kLeftRecursion: the rule can begin with itself.
  Flaw finish(uint32_t& rule);
  bool has_text(uint32_t rule) const { return productive_[rule] != 0; }  // after finish

 private:
  void add_edge(const Edge& edge);
  uint32_t add_table(const Dfa& dfa, Terminal& terminal);
  void walk_back(bool through_terminals, PodVector<uint8_t>& nodes, PodVector<uint8_t>& rules);
  void prune(const PodVector<uint8_t>& alive);
  void sort_edges();
  Flaw order_rules(uint32_t& rule);

  Grammar& g_;
  std::pmr::memory_resource* memory_;
  uint32_t n_nodes_ = 0;
  bool is_full_ = false;
  WordSets literals_, dfas_;
  PodVector<uint32_t> literal_ids_, dfa_ids_;  // terminals
  PodVector<uint32_t> plain_ids_{memory_};     // of an automaton by itself
  PodVector<uint8_t> productive_{memory_};
};

}  // namespace weir::constraint
