// The texts of a vocabulary's tokens as a tree of bytes, in the order of a walk through it: what is behind a byte that
// does not fit is left out in one step. Immutable once built; one for each model.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>

#include "core/pod_vector.h"
#include "text/tokenizer.h"

namespace weir::constraint {

class TokenTrie {
 public:
  struct Node {
    uint32_t end;          // the first node behind those below this one
    uint32_t first_token;  // of tokens(); those of the node end where those of the next one begin
    uint16_t depth;        // of node 0, which has no byte: 0
    uint8_t byte;
  };

  explicit TokenTrie(std::pmr::memory_resource* memory) : nodes_(memory), tokens_(memory), ends_(memory) {}
  // Takes in tokens that stand for text: no control tokens, no ends of generation, no marks of the vocabulary.
  void build(const Tokenizer& tokenizer);

  uint32_t n_nodes() const { return nodes_.size() - 1; }
  const Node& node(uint32_t i) const { return nodes_[i]; }
  std::span<const weir_token> tokens(uint32_t node) const {
    return tokens_.part(nodes_[node].first_token, nodes_[node + 1].first_token - nodes_[node].first_token);
  }
  std::span<const weir_token> ends_of_generation() const { return {ends_.data(), ends_.size()}; }
  uint32_t vocab_size() const { return vocab_size_; }
  uint32_t n_words() const { return (vocab_size_ + 31) / 32; }
  uint32_t longest() const { return longest_; }  // bytes

 private:
  PodVector<Node> nodes_;  // and one behind the last
  PodVector<weir_token> tokens_, ends_;
  uint32_t vocab_size_ = 0, longest_ = 0;
};

// Whether a token stands for nothing but its text.
bool is_plain_token(const Tokenizer& tokenizer, weir_token token);

}  // namespace weir::constraint
