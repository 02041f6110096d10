// Grammars: terminals, and what is found out about the rules before they are used.
#include "text/constraint/grammar.h"

#include <algorithm>

namespace weir::constraint {

uint32_t Grammar::step_counted(const Terminal& t, uint32_t state, uint8_t byte) const {
  if (state == Terminal::kDone) return Terminal::kDead;
  const uint32_t n = state / t.n, in_unit = state % t.n;
  if (in_unit == 0 && byte == t.tail) return n >= t.min ? Terminal::kDone : Terminal::kDead;
  if (in_unit == 0 && n >= t.max) return Terminal::kDead;
  const uint32_t to = step_unit(t, in_unit, byte);
  if (to == Terminal::kDead) return to;
  const uint32_t counted = to == 0 && (t.max != kNoLimit || n < t.min) ? n + 1 : n;
  return counted * t.n + to;
}

uint64_t Grammar::bytes() const {
  return terminals_.capacity_bytes() + edges_.capacity_bytes() + first_edge_.capacity_bytes() +
         rules_.capacity_bytes() + bytes_.capacity_bytes() + tables_.capacity_bytes() + nullable_.capacity_bytes() +
         ends_.capacity_bytes() + order_.capacity_bytes();
}

uint32_t GrammarBuilder::add_node() {
  if (n_nodes_ >= kMaxNodes) {
    is_full_ = true;
    return 0;
  }
  return n_nodes_++;
}

uint32_t GrammarBuilder::add_rule(uint32_t where) {
  if (g_.rules_.size() >= kMaxRules) {
    is_full_ = true;
    return 0;
  }
  const uint32_t start = add_node(), end = add_node();
  g_.rules_.push_back({start, end, where});
  return g_.rules_.size() - 1;
}

void GrammarBuilder::add_edge(const Edge& edge) {
  if (g_.edges_.size() >= 4 * kMaxNodes) {
    is_full_ = true;
  } else {
    g_.edges_.push_back(edge);
  }
}

uint32_t GrammarBuilder::add_literal(std::string_view text) {
  PodVector<uint32_t> key(memory_);
  for (const char c : text) key.push_back(static_cast<uint8_t>(c));
  const uint32_t found = literals_.find_or_add(key.data(), key.size());
  if (found < literal_ids_.size()) return literal_ids_[found];
  const auto n = static_cast<uint32_t>(text.size());
  g_.terminals_.push_back({.kind = Terminal::kLiteral,
                           .bytes = g_.bytes_.size(),
                           .n = n,
                           .next = 0,
                           .flags = 0,
                           .n_classes = 0,
                           .min = 1,
                           .max = 1,
                           .tail = Terminal::kNoTail});
  g_.bytes_.append(text.data(), n);
  literal_ids_.push_back(g_.terminals_.size() - 1);
  return g_.terminals_.size() - 1;
}

// Puts an automaton into the tables, and returns which one it is. Equal ones have the same place.
uint32_t GrammarBuilder::add_table(const Dfa& dfa, Terminal& t) {
  PodVector<uint32_t> key(memory_);
  for (const uint8_t c : dfa.classes) key.push_back(c);
  for (const uint16_t to : dfa.next) key.push_back(to);
  for (const uint8_t f : dfa.flags) key.push_back(f);
  const uint32_t found = dfas_.find_or_add(key.data(), key.size());
  if (found < dfa_ids_.size()) {
    const Terminal& same = g_.terminals_[dfa_ids_[found]];
    t.bytes = same.bytes;
    t.n = same.n;
    t.next = same.next;
    t.flags = same.flags;
    t.n_classes = same.n_classes;
    return found;
  }
  if (uint64_t{g_.tables_.size()} * 2 + dfa.next.size() * 2 > kMaxTableBytes) is_full_ = true;
  t.bytes = g_.bytes_.size();
  g_.bytes_.append(reinterpret_cast<const char*>(dfa.classes), 256);
  t.flags = g_.bytes_.size();
  g_.bytes_.append(reinterpret_cast<const char*>(dfa.flags.data()), dfa.flags.size());
  t.next = g_.tables_.size();
  if (!is_full_) g_.tables_.append(dfa.next.data(), dfa.next.size());
  t.n = dfa.n_states();
  t.n_classes = dfa.n_classes;
  dfa_ids_.push_back(g_.n_terminals());  // where the caller puts it
  plain_ids_.push_back(UINT32_MAX);
  return found;
}

uint32_t GrammarBuilder::add_dfa(const Dfa& dfa) {
  Terminal t = {.kind = Terminal::kDfa,
                .bytes = 0,
                .n = 0,
                .next = 0,
                .flags = 0,
                .n_classes = 0,
                .min = 1,
                .max = 1,
                .tail = Terminal::kNoTail};
  const uint32_t table = add_table(dfa, t);
  if (plain_ids_[table] != UINT32_MAX) return plain_ids_[table];
  plain_ids_[table] = g_.n_terminals();
  g_.terminals_.push_back(t);
  return plain_ids_[table];
}

uint32_t GrammarBuilder::add_counted(const Dfa& unit, uint32_t min, uint32_t max, int32_t tail) {
  Terminal t = {.kind = Terminal::kCounted,
                .bytes = 0,
                .n = 0,
                .next = 0,
                .flags = 0,
                .n_classes = 0,
                .min = min,
                .max = max,
                .tail = tail};
  add_table(unit, t);
  if ((uint64_t{max == kNoLimit ? min : max} + 2) * t.n >= Terminal::kDone) is_full_ = true;
  g_.terminals_.push_back(t);
  return g_.terminals_.size() - 1;
}

void GrammarBuilder::literal(uint32_t from, std::string_view text, uint32_t to) {
  if (text.empty()) return empty(from, to);
  terminal(from, add_literal(text), to);
}

void GrammarBuilder::dfa(uint32_t from, const Dfa& dfa, uint32_t to) {
  if (dfa.is_empty()) return;
  if (dfa.accepts(Dfa::kStart)) empty(from, to);
  if ((dfa.flags[Dfa::kStart] & Dfa::kGoesOn) != 0) terminal(from, add_dfa(dfa), to);
}

void GrammarBuilder::counted(uint32_t from, const Dfa& unit, uint32_t min, uint32_t max, uint32_t to) {
  if (min == 0) empty(from, to);
  if (max != 0 && !unit.is_empty()) terminal(from, add_counted(unit, min, max, Terminal::kNoTail), to);
}

void GrammarBuilder::counted(uint32_t from, const Dfa& unit, uint32_t min, uint32_t max, char tail, uint32_t to) {
  terminal(from, add_counted(unit, min, max, static_cast<uint8_t>(tail)), to);
}

// Which nodes lead to the end of their rule, without terminals where none may be passed, and which rules so have a text
// at all. From the ends backwards, each node once.
void GrammarBuilder::walk_back(bool through_terminals, PodVector<uint8_t>& nodes, PodVector<uint8_t>& rules) {
  constexpr uint32_t kNone = UINT32_MAX;
  PodVector<uint32_t> edge_to(memory_), next_edge(memory_), caller(memory_), next_caller(memory_), work(memory_);
  PodVector<uint32_t> rule_at(memory_);  // its start
  nodes.resize(n_nodes_, 0);
  rules.resize(g_.n_rules(), 0);
  edge_to.resize(n_nodes_, kNone);
  next_edge.resize(g_.n_edges(), kNone);
  caller.resize(g_.n_rules(), kNone);
  next_caller.resize(g_.n_edges(), kNone);
  rule_at.resize(n_nodes_, kNone);
  for (uint32_t r = 0; r < g_.n_rules(); ++r) rule_at[g_.rules_[r].start] = r;
  for (uint32_t i = 0; i < g_.n_edges(); ++i) {
    const Edge& e = g_.edges_[i];
    if (e.kind == Edge::kTerminal && !through_terminals) continue;
    next_edge[i] = edge_to[e.to];
    edge_to[e.to] = i;
    if (e.kind != Edge::kCall) continue;
    next_caller[i] = caller[e.what];
    caller[e.what] = i;
  }
  const auto wake = [&](uint32_t node) {
    if (nodes[node] != 0) return;
    nodes[node] = 1;
    work.push_back(node);
  };
  for (const Rule& rule : g_.rules_) wake(rule.end);
  while (!work.empty()) {
    const uint32_t node = work.back();
    work.pop_back();
    for (uint32_t i = edge_to[node]; i != kNone; i = next_edge[i]) {
      const Edge& e = g_.edges_[i];
      if (e.kind != Edge::kCall || rules[e.what] != 0) wake(e.from);
    }
    const uint32_t rule = rule_at[node];
    if (rule == kNone || rules[rule] != 0) continue;
    rules[rule] = 1;
    for (uint32_t i = caller[rule]; i != kNone; i = next_caller[i]) {
      if (nodes[g_.edges_[i].to] != 0) wake(g_.edges_[i].from);
    }
  }
}

// Takes out edges that lead nowhere.
void GrammarBuilder::prune(const PodVector<uint8_t>& alive) {
  uint32_t n = 0;
  for (const Edge& e : g_.edges_) {
    if (alive[e.to] == 0 || (e.kind == Edge::kCall && productive_[e.what] == 0)) continue;
    if (e.kind == Edge::kEmpty && e.from == e.to) continue;
    g_.edges_[n++] = e;
  }
  g_.edges_.resize(n);
}

// By the node they leave.
void GrammarBuilder::sort_edges() {
  PodVector<uint32_t>& first = g_.first_edge_;
  first.resize(n_nodes_ + 1, 0);
  for (const Edge& e : g_.edges_) ++first[e.from + 1];
  for (uint32_t i = 0; i < n_nodes_; ++i) first[i + 1] += first[i];
  PodVector<Edge> sorted(g_.edges_.memory());
  sorted.resize(g_.edges_.size());
  PodVector<uint32_t> at(memory_);
  at.append(first.data(), n_nodes_);
  for (const Edge& e : g_.edges_) sorted[at[e.from]++] = e;
  g_.edges_.swap(sorted);
  g_.ends_.resize(n_nodes_, 0);
  for (const Rule& rule : g_.rules_) g_.ends_[rule.end] = first[rule.end] == first[rule.end + 1] ? 3 : 1;
}

// The rules that each rule can begin with, and an order in which a rule comes behind those that can begin with it.
GrammarBuilder::Flaw GrammarBuilder::order_rules(uint32_t& rule) {
  const uint32_t n = g_.n_rules();
  PodVector<uint32_t> calls(memory_), first(memory_), work(memory_), seen(memory_);
  seen.resize(n_nodes_, UINT32_MAX);
  first.push_back(0);
  for (uint32_t r = 0; r < n; ++r) {
    work.push_back(g_.rules_[r].start);
    while (!work.empty()) {
      const uint32_t node = work.back();
      work.pop_back();
      if (seen[node] == r) continue;
      seen[node] = r;
      for (uint32_t i = g_.first_edge_[node]; i < g_.first_edge_[node + 1]; ++i) {
        const Edge& e = g_.edges_[i];
        if (e.kind == Edge::kCall) calls.push_back(e.what);
        if (e.kind == Edge::kEmpty || (e.kind == Edge::kCall && g_.is_nullable(e.what))) work.push_back(e.to);
      }
    }
    first.push_back(calls.size());
  }
  enum : uint8_t { kNew, kOpen, kDone };
  PodVector<uint8_t> state(memory_);
  PodVector<uint32_t> at(memory_);  // the next of its calls to look at
  state.resize(n, kNew);
  at.append(first.data(), n);
  g_.order_.resize(n, 0);
  uint32_t n_left = n;
  for (uint32_t r = 0; r < n; ++r) {
    if (state[r] == kNew) work.push_back(r);
    while (!work.empty()) {
      const uint32_t top = work.back();
      state[top] = kOpen;
      if (at[top] == first[top + 1]) {
        state[top] = kDone;
        g_.order_[top] = --n_left;
        work.pop_back();
        continue;
      }
      const uint32_t next = calls[at[top]++];
      if (state[next] == kOpen) return rule = next, Flaw::kLeftRecursion;
      if (state[next] == kNew) work.push_back(next);
    }
  }
  return Flaw::kNone;
}

GrammarBuilder::Flaw GrammarBuilder::finish(uint32_t& rule) {
  rule = 0;
  if (is_full_) return Flaw::kTooLarge;
  PodVector<uint8_t> alive(memory_), unused(memory_);
  walk_back(true, alive, productive_);
  if (!has_text(0)) return Flaw::kNoText;
  prune(alive);
  sort_edges();
  walk_back(false, unused, g_.nullable_);
  return order_rules(rule);
}

}  // namespace weir::constraint
