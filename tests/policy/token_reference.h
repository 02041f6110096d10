// The token forms of H2O, TOVA and RaaS, written from their descriptions (docs/algorithms.md) and not from the library:
// one stream, lists of tokens, f64. The library's policies over pages of one token must keep the same tokens.
// Weights are handed in per query head, in the order of the residents.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir::test {

using HeadWeights = std::vector<std::vector<float>>;  // [group][residents]

inline double sum_of_heads(const HeadWeights& w, size_t i) {
  double sum = 0.0;
  for (const auto& head : w) sum += double{head[i]};
  return sum;
}

inline double max_of_heads(const HeadWeights& w, size_t i) {
  float max = w[0][i];
  for (const auto& head : w) max = std::max(max, head[i]);
  return double{max};
}

// The `heavy` tokens with the largest sums outside the last `recent` stay; a step ends by evicting the
// others.
class TokenH2o {
 public:
  TokenH2o(uint32_t heavy, uint32_t recent) : heavy_(heavy), recent_(recent) {}

  void append(uint32_t pos) {
    position.push_back(pos);
    sum.push_back(0.0);
  }
  void attend(const HeadWeights& w) {
    for (size_t i = 0; i < position.size(); ++i) sum[i] += sum_of_heads(w, i);
  }
  void end_step() {
    while (position.size() > heavy_ + recent_) {
      const auto end = sum.end() - static_cast<std::ptrdiff_t>(recent_);
      const auto at = std::min_element(sum.begin(), end) - sum.begin();  // of equals the older
      position.erase(position.begin() + at);
      sum.erase(sum.begin() + at);
    }
  }

  std::vector<uint32_t> position;
  std::vector<double> sum;

 private:
  size_t heavy_, recent_;
};

// The token to which the current query gives the least weight leaves, but never the current token.
class TokenTova {
 public:
  explicit TokenTova(uint32_t limit) : limit_(limit) {}

  void append(uint32_t pos) { position.push_back(pos); }
  void attend(const HeadWeights& w) {
    weight.clear();
    for (size_t i = 0; i < position.size(); ++i) weight.push_back(sum_of_heads(w, i) / static_cast<double>(w.size()));
  }
  void end_step() {
    if (position.size() <= limit_) return;
    position.erase(position.begin() + (std::min_element(weight.begin(), weight.end() - 1) - weight.begin()));
  }

  std::vector<uint32_t> position;
  std::vector<double> weight;

 private:
  size_t limit_;
};

struct TokenRaasRule {
  bool alpha_rule = false;
  float alpha = 1e-4f, r = 0.5f;
  bool rank_all = false;
};

// The unpinned token with the oldest stamp leaves before the next one comes, ties by the lower last weight, then the
// older token. The token of the step that just ended is no candidate unless it is alone.
class TokenRaas {
 public:
  struct Token {
    uint32_t position, stamp;
    double last;
    bool pinned;
  };
  TokenRaas(uint32_t limit, const TokenRaasRule& rule) : limit_(limit), rule_(rule) {}

  void prompt(uint32_t n_tok) {
    for (uint32_t i = 0; i < n_tok; ++i) tokens.push_back({i, n_tok, 0.0, true});
  }
  void append(uint32_t pos, uint32_t now) {
    if (tokens.size() == limit_) tokens.erase(tokens.begin() + victim());
    tokens.push_back({pos, now, 0.0, false});
  }
  void attend(const HeadWeights& w, uint32_t now) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i].last = rule_.alpha_rule ? max_of_heads(w, i) : sum_of_heads(w, i) / static_cast<double>(w.size());
    }
    rule_.alpha_rule ? stamp_above(now) : stamp_best(now);
    tokens.back().stamp = now;
  }
  std::vector<uint32_t> positions() const {
    std::vector<uint32_t> list;
    for (const Token& t : tokens) list.push_back(t.position);
    return list;
  }

  std::vector<Token> tokens;

 private:
  std::ptrdiff_t victim() const {
    std::vector<size_t> free;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!tokens[i].pinned) free.push_back(i);
    }
    if (free.size() > 1) free.pop_back();
    return static_cast<std::ptrdiff_t>(*std::min_element(free.begin(), free.end(), [&](size_t a, size_t b) {
      const Token &x = tokens[a], &y = tokens[b];
      return x.stamp != y.stamp ? x.stamp < y.stamp : x.last != y.last ? x.last < y.last : a < b;
    }));
  }
  void stamp_above(uint32_t now) {
    for (Token& t : tokens) {
      if (t.last > double{rule_.alpha}) t.stamp = now;
    }
  }
  void stamp_best(uint32_t now) {
    std::vector<Token*> ranked;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (rule_.rank_all || (!tokens[i].pinned && i + 1 < tokens.size())) ranked.push_back(&tokens[i]);
    }
    std::stable_sort(ranked.begin(), ranked.end(), [](const Token* a, const Token* b) { return a->last > b->last; });
    const auto n_best = static_cast<size_t>(std::ceil(double{rule_.r} * static_cast<double>(ranked.size()) - 1e-6));
    for (size_t i = 0; i < n_best; ++i) ranked[i]->stamp = now;
  }

  size_t limit_;
  TokenRaasRule rule_;
};

}  // namespace weir::test
