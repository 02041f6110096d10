// Regular sets of byte strings: expressions, and the deterministic automata that are made of them. Characters are code
// points in UTF-8; bytes that are no UTF-8 are in no set of characters.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string_view>

#include "core/pod_vector.h"
#include "core/status.h"

namespace weir::constraint {

inline constexpr uint32_t kNoLimit = UINT32_MAX;
inline constexpr uint32_t kMaxDfaStates = 20000;  // of one automaton

struct CodeRange {
  uint32_t first, last;
};

// Ranges as a set: sorted and merged.
class CodeSet {
 public:
  explicit CodeSet(std::pmr::memory_resource* memory) : ranges_(memory) {}
  void add(uint32_t first, uint32_t last) { ranges_.push_back({first, last}); }
  void add(std::span<const CodeRange> ranges) { ranges_.append(ranges.data(), static_cast<uint32_t>(ranges.size())); }
  void normalise();
  void invert();  // in all code points; normalises
  bool has(uint32_t code) const;
  void remove(uint32_t code);  // of a normalised set
  std::span<const CodeRange> ranges() const { return {ranges_.data(), ranges_.size()}; }
  void clear() { ranges_.clear(); }

 private:
  PodVector<CodeRange> ranges_;
};

// Expressions, by number.
using ExprId = uint32_t;

struct Expr {
  enum Kind : uint8_t { kEmpty, kNever, kBytes, kText, kCat, kAlt, kRepeat };
  Kind kind;
  uint8_t first, last;  // kBytes: one byte of the range
  uint32_t a, b;        // operands; kText: place and length in the texts
  uint32_t min, max;    // kRepeat
};

class Exprs {
 public:
  explicit Exprs(std::pmr::memory_resource* memory) : nodes_(memory), texts_(memory), memory_(memory) {}

  ExprId empty() { return add({Expr::kEmpty, 0, 0, 0, 0, 0, 0}); }
  ExprId never() { return add({Expr::kNever, 0, 0, 0, 0, 0, 0}); }
  ExprId bytes(uint8_t first, uint8_t last) { return add({Expr::kBytes, first, last, 0, 0, 0, 0}); }
  ExprId text(std::string_view text);
  ExprId cat(ExprId a, ExprId b) { return add({Expr::kCat, 0, 0, a, b, 0, 0}); }
  ExprId alt(ExprId a, ExprId b) { return add({Expr::kAlt, 0, 0, a, b, 0, 0}); }
  // The same for lists, as balanced trees.
  ExprId cat(std::span<const ExprId> all) { return fold(Expr::kCat, all); }
  ExprId alt(std::span<const ExprId> all) { return fold(Expr::kAlt, all); }
  ExprId repeat(ExprId a, uint32_t min, uint32_t max) { return add({Expr::kRepeat, 0, 0, a, 0, min, max}); }
  ExprId optional(ExprId a) { return repeat(a, 0, 1); }
  // One character of the set, which is normalised.
  ExprId characters(std::span<const CodeRange> ranges);

  const Expr& operator[](ExprId id) const { return nodes_[id]; }
  std::string_view text_of(const Expr& e) const { return {texts_.data() + e.a, e.b}; }
  std::pmr::memory_resource* memory() const { return memory_; }

 private:
  ExprId add(const Expr& e);
  ExprId fold(Expr::Kind kind, std::span<const ExprId> all);
  void add_utf8(uint32_t first, uint32_t last, PodVector<ExprId>& out);

  PodVector<Expr> nodes_;
  PodVector<char> texts_;
  std::pmr::memory_resource* memory_;
};

// A deterministic automaton. Every state but 0, which is dead, leads to the end of some text. Numbered from the start,
// 1, in order of bytes, so equal sets of few states have equal automata.
struct Dfa {
  static constexpr uint8_t kAccepts = 1, kGoesOn = 2;
  static constexpr uint32_t kStart = 1;
  explicit Dfa(std::pmr::memory_resource* memory) : next(memory), flags(memory) {}

  uint32_t n_states() const { return flags.size(); }
  bool is_empty() const { return n_states() < 2; }
  uint32_t step(uint32_t state, uint8_t byte) const { return next[state * n_classes + classes[byte]]; }
  bool accepts(uint32_t state) const { return (flags[state] & kAccepts) != 0; }
  bool matches(std::string_view text) const;
  void take(Dfa& other);  // which is something else afterwards
  void copy(const Dfa& other);

  uint32_t n_classes = 0;
  uint8_t classes[256] = {};
  PodVector<uint16_t> next;  // [n_states, n_classes]
  PodVector<uint8_t> flags;  // [n_states]
};

// Makes the automaton of an expression. False: it would have more than `max_states`.
bool make_dfa(const Exprs& exprs, ExprId expr, uint32_t max_states, Dfa& out);
// Texts of `a` that are also in `b`, or that are not.
bool intersect(const Dfa& a, const Dfa& b, bool not_in_b, uint32_t max_states, Dfa& out);
// Renames bytes after the fact: where `byte` leads nowhere, it leads from the start where `first` did, from elsewhere
// where `later` did.
void rename_borders(Dfa& dfa, uint8_t first, uint8_t later, uint8_t byte);
// Takes out states that lead nowhere, merges equal ones where there are few, and numbers the rest.
void tidy(Dfa& dfa);

}  // namespace weir::constraint
