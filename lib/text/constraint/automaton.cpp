// Automata: Thompson's construction, subsets, products.
#include "text/constraint/automaton.h"

#include <algorithm>
#include <cstring>

#include "text/constraint/word_sets.h"

namespace weir::constraint {

namespace {

constexpr uint32_t kMaxNfaStates = 400000;

struct NfaState {
  enum Kind : uint8_t { kSplit, kRange, kEnd, kDead };
  Kind kind;
  uint8_t first, last;
  uint32_t a, b;  // where it leads; kRange: a alone
};

// Built from the end to the start, so each piece knows where it leads.
class Nfa {
 public:
  Nfa(const Exprs& exprs, std::pmr::memory_resource* memory) : exprs_(exprs), states_(memory) {}

  uint32_t add(const NfaState& state) {
    if (states_.size() >= kMaxNfaStates) {
      is_full_ = true;
      return 0;
    }
    states_.push_back(state);
    return states_.size() - 1;
  }
  bool is_full() const { return is_full_; }
  uint32_t size() const { return states_.size(); }
  const NfaState& operator[](uint32_t i) const { return states_[i]; }

  uint32_t build(ExprId id, uint32_t to) {
    if (is_full_) return 0;
    const Expr e = exprs_[id];
    switch (e.kind) {
      case Expr::kEmpty:
        return to;
      case Expr::kNever:
        return add({NfaState::kDead, 0, 0, 0, 0});
      case Expr::kBytes:
        return add({NfaState::kRange, e.first, e.last, to, 0});
      case Expr::kText: {
        const std::string_view text = exprs_.text_of(e);
        for (size_t i = text.size(); i-- > 0;) {
          const auto byte = static_cast<uint8_t>(text[i]);
          to = add({NfaState::kRange, byte, byte, to, 0});
        }
        return to;
      }
      case Expr::kCat:
        return build(e.a, build(e.b, to));
      case Expr::kAlt: {
        const uint32_t a = build(e.a, to);
        return add({NfaState::kSplit, 0, 0, a, build(e.b, to)});
      }
      case Expr::kRepeat:
        return repeat(e, to);
    }
    return to;
  }

 private:
  uint32_t repeat(const Expr& e, uint32_t to) {
    uint32_t at = to;
    if (e.max == kNoLimit) {
      at = add({NfaState::kSplit, 0, 0, to, to});
      const uint32_t body = build(e.a, at);
      if (is_full_) return 0;
      states_[at].a = body;
    } else {
      for (uint32_t i = e.min; i < e.max && !is_full_; ++i) {
        const uint32_t body = build(e.a, at);
        at = add({NfaState::kSplit, 0, 0, body, to});
      }
    }
    for (uint32_t i = 0; i < e.min && !is_full_; ++i) at = build(e.a, at);
    return at;
  }

  const Exprs& exprs_;
  PodVector<NfaState> states_;
  bool is_full_ = false;
};

// Bytes that no part of an automaton tells apart are one class.
void make_classes(const bool* is_border, Dfa& dfa) {
  uint32_t n = 0;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (byte != 0 && is_border[byte]) ++n;
    dfa.classes[byte] = static_cast<uint8_t>(n);
  }
  dfa.n_classes = n + 1;
}

class Subsets {
 public:
  Subsets(const Nfa& nfa, std::pmr::memory_resource* memory)
      : nfa_(nfa), sets_(memory), seen_(memory), work_(memory), set_(memory) {
    seen_.resize(nfa.size(), 0);
  }

  bool run(uint32_t start, uint32_t max_states, Dfa& out) {
    bool is_border[257] = {};
    for (uint32_t i = 0; i < nfa_.size(); ++i) {
      if (nfa_[i].kind == NfaState::kRange) is_border[nfa_[i].first] = is_border[nfa_[i].last + 1] = true;
    }
    make_classes(is_border, out);
    out.flags.clear();
    out.next.clear();
    begin();
    find();  // the empty set: dead
    begin();
    reach(start);
    find();
    for (uint32_t state = 0; state < sets_.size(); ++state) {
      if (state >= max_states) return false;
      expand(state, out);
    }
    return true;
  }

 private:
  void begin() {
    ++stamp_;
    set_.clear();
  }
  void reach(uint32_t from) {
    work_.push_back(from);
    while (!work_.empty()) {
      const uint32_t at = work_.back();
      work_.pop_back();
      if (seen_[at] == stamp_) continue;
      seen_[at] = stamp_;
      const NfaState& s = nfa_[at];
      if (s.kind == NfaState::kSplit) {
        work_.push_back(s.b);
        work_.push_back(s.a);
      } else if (s.kind != NfaState::kDead) {
        set_.push_back(at);
      }
    }
  }
  uint32_t find() {
    std::sort(set_.begin(), set_.end());
    return sets_.find_or_add(set_.data(), set_.size());
  }
  void expand(uint32_t state, Dfa& out) {
    uint8_t flags = 0;
    for (const uint32_t at : sets_[state]) {
      if (nfa_[at].kind == NfaState::kEnd) flags |= Dfa::kAccepts;
    }
    out.flags.push_back(flags);
    uint8_t byte_of[256];
    for (uint32_t byte = 256; byte-- > 0;) byte_of[out.classes[byte]] = static_cast<uint8_t>(byte);
    for (uint32_t c = 0; c < out.n_classes; ++c) {
      begin();
      for (const uint32_t at : sets_[state]) {
        const NfaState& s = nfa_[at];
        if (s.kind == NfaState::kRange && s.first <= byte_of[c] && byte_of[c] <= s.last) reach(s.a);
      }
      out.next.push_back(static_cast<uint16_t>(find()));
    }
  }

  const Nfa& nfa_;
  WordSets sets_;
  PodVector<uint32_t> seen_, work_, set_;
  uint32_t stamp_ = 0;
};

// Whether each state leads to the end of a text.
void find_live(const Dfa& dfa, PodVector<uint8_t>& live) {
  const uint32_t n = dfa.n_states();
  live.resize(n, 0);
  for (uint32_t i = 0; i < n; ++i) live[i] = dfa.accepts(i) ? 1 : 0;
  for (bool again = true; again;) {
    again = false;
    for (uint32_t i = n; i-- > 0;) {
      for (uint32_t c = 0; c < dfa.n_classes && live[i] == 0; ++c) {
        if (live[dfa.next[i * dfa.n_classes + c]] == 0) continue;
        live[i] = 1;
        again = true;
      }
    }
  }
}

constexpr uint32_t kFewStates = 512;  // refinement takes as many rounds as there are states, at worst

// The number of each state's class of equal states. Moore's refinement.
void find_equal(const Dfa& dfa, PodVector<uint32_t>& part, std::pmr::memory_resource* memory) {
  const uint32_t n = dfa.n_states();
  part.resize(n, 0);
  for (uint32_t i = 0; i < n; ++i) part[i] = n > kFewStates ? i : dfa.flags[i];
  if (n > kFewStates) return;
  PodVector<uint32_t> signature(memory), refined(memory);
  refined.resize(n, 0);
  for (uint32_t n_parts = 0;;) {
    WordSets found(memory);
    for (uint32_t i = 0; i < n; ++i) {
      signature.clear();
      signature.push_back(part[i]);
      for (uint32_t c = 0; c < dfa.n_classes; ++c) signature.push_back(part[dfa.next[i * dfa.n_classes + c]]);
      refined[i] = found.find_or_add(signature.data(), signature.size());
    }
    std::copy(refined.begin(), refined.end(), part.begin());
    if (found.size() == n_parts) return;
    n_parts = found.size();
  }
}

}  // namespace

bool Dfa::matches(std::string_view text) const {
  if (is_empty()) return false;
  uint32_t state = kStart;
  for (const char c : text) state = step(state, static_cast<uint8_t>(c));
  return accepts(state);
}

void Dfa::take(Dfa& other) {
  std::swap(n_classes, other.n_classes);
  std::swap_ranges(classes, classes + 256, other.classes);
  next.swap(other.next);
  flags.swap(other.flags);
}

void Dfa::copy(const Dfa& other) {
  n_classes = other.n_classes;
  std::copy_n(other.classes, 256, classes);
  next.clear();
  next.append(other.next.data(), other.next.size());
  flags.clear();
  flags.append(other.flags.data(), other.flags.size());
}

void tidy(Dfa& dfa) {
  std::pmr::memory_resource* memory = dfa.next.memory();
  PodVector<uint8_t> live(memory);
  find_live(dfa, live);
  for (uint16_t& to : dfa.next) {
    if (live[to] == 0) to = 0;
  }
  const uint32_t k = dfa.n_classes;
  for (uint32_t i = 0; i < dfa.n_states(); ++i) {
    const bool goes_on = std::any_of(&dfa.next[i * k], &dfa.next[i * k] + k, [](uint16_t to) { return to != 0; });
    dfa.flags[i] = static_cast<uint8_t>((dfa.flags[i] & Dfa::kAccepts) | (goes_on ? Dfa::kGoesOn : 0));
  }
  if (dfa.n_states() < 2 || live[Dfa::kStart] == 0) {
    dfa.flags.resize(1);
    dfa.next.resize(k);
    dfa.flags[0] = 0;
    std::fill(dfa.next.begin(), dfa.next.end(), uint16_t{0});
    return;
  }
  PodVector<uint32_t> part(memory);
  find_equal(dfa, part, memory);
  PodVector<uint32_t> number(memory), order(memory);  // of a part; states in the order of their numbers
  number.resize(dfa.n_states(), UINT32_MAX);          // parts are fewer
  const auto visit = [&](uint32_t state) {
    if (number[part[state]] != UINT32_MAX) return;
    number[part[state]] = order.size();
    order.push_back(state);
  };
  visit(0);
  visit(Dfa::kStart);
  for (uint32_t i = 1; i < order.size(); ++i) {
    for (uint32_t c = 0; c < k; ++c) visit(dfa.next[order[i] * k + c]);
  }
  PodVector<uint16_t> next(memory);
  PodVector<uint8_t> flags(memory);
  for (const uint32_t state : order) {
    flags.push_back(dfa.flags[state]);
    for (uint32_t c = 0; c < k; ++c) next.push_back(static_cast<uint16_t>(number[part[dfa.next[state * k + c]]]));
  }
  dfa.next.swap(next);
  dfa.flags.swap(flags);
}

bool make_dfa(const Exprs& exprs, ExprId expr, uint32_t max_states, Dfa& out) {
  Nfa nfa(exprs, exprs.memory());
  const uint32_t start = nfa.build(expr, nfa.add({NfaState::kEnd, 0, 0, 0, 0}));
  if (nfa.is_full() || !Subsets(nfa, exprs.memory()).run(start, std::min<uint32_t>(max_states, UINT16_MAX), out))
    return false;
  tidy(out);
  return true;
}

bool intersect(const Dfa& a, const Dfa& b, bool not_in_b, uint32_t max_states, Dfa& out) {
  std::pmr::memory_resource* memory = out.next.memory();
  bool is_border[257] = {};
  for (uint32_t byte = 1; byte < 256; ++byte)
    is_border[byte] = a.classes[byte] != a.classes[byte - 1] || b.classes[byte] != b.classes[byte - 1];
  make_classes(is_border, out);
  out.flags.clear();
  out.next.clear();
  uint8_t byte_of[256];
  for (uint32_t byte = 256; byte-- > 0;) byte_of[out.classes[byte]] = static_cast<uint8_t>(byte);
  WordSets pairs(memory);
  const auto find = [&](uint32_t in_a, uint32_t in_b) {
    if (in_a == 0 || (!not_in_b && in_b == 0)) in_a = in_b = 0;
    const uint32_t pair[2] = {in_a, in_b};
    return pairs.find_or_add(pair, 2);
  };
  find(0, 0);
  if (a.is_empty() || (b.is_empty() && !not_in_b)) {
    out.flags.push_back(0);
    out.next.resize(out.n_classes, 0);
    return true;
  }
  find(Dfa::kStart, b.is_empty() ? 0 : Dfa::kStart);
  for (uint32_t state = 0; state < pairs.size(); ++state) {
    if (state >= std::min<uint32_t>(max_states, UINT16_MAX)) return false;
    const uint32_t in_a = pairs[state][0], in_b = pairs[state][1];
    out.flags.push_back(a.accepts(in_a) && b.accepts(in_b) != not_in_b ? Dfa::kAccepts : 0);
    for (uint32_t c = 0; c < out.n_classes; ++c)
      out.next.push_back(static_cast<uint16_t>(find(a.step(in_a, byte_of[c]), b.step(in_b, byte_of[c]))));
  }
  tidy(out);
  return true;
}

void rename_borders(Dfa& dfa, uint8_t first, uint8_t later, uint8_t byte) {
  const uint32_t k = dfa.n_classes;
  PodVector<uint16_t> next(dfa.next.memory());
  for (uint32_t i = 0; i < dfa.n_states(); ++i) {
    for (uint32_t c = 0; c < k; ++c) next.push_back(dfa.next[i * k + c]);
    const uint32_t own = dfa.step(i, byte);  // behind a backslash
    const uint32_t border = dfa.step(i, i == Dfa::kStart ? first : later);
    next.push_back(static_cast<uint16_t>(own != 0 ? own : border));
  }
  for (uint32_t i = 0; i < dfa.n_states(); ++i) {
    for (const uint8_t old : {first, later}) next[i * (k + 1) + dfa.classes[old]] = 0;
  }
  dfa.classes[byte] = static_cast<uint8_t>(k);
  dfa.n_classes = k + 1;
  dfa.next.swap(next);
  tidy(dfa);
}

}  // namespace weir::constraint
