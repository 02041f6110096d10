// The texts of a vocabulary's tokens as a tree of bytes, in the order of a walk through it: what is behind a byte that
// does not fit is left out in one step, and what has only bytes that fit is taken in one. Immutable once built; one for
// each model.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>

#include "core/pod_vector.h"
#include "text/constraint/byte_kinds.h"
#include "text/tokenizer.h"

namespace weir::constraint {

class TokenTrie {
 public:
  static constexpr uint32_t kLevels = 5;  // of lengths: up to 4, 8, 16, 32 bytes, and more

  struct Node {
    uint32_t end;          // the first node behind those below this one
    uint32_t first_token;  // of tokens(); those of the node end where those of the next one begin
    uint32_t kinds;        // of its byte and of those below it; byte_kinds.h
    uint16_t depth;        // of node 0, which has no byte: 0
    uint8_t byte;
    uint8_t level;  // of the longest text from its byte on
  };

  explicit TokenTrie(std::pmr::memory_resource* memory)
      : nodes_(memory), tokens_(memory), ends_(memory), n_characters_(memory) {}
  // Takes in tokens that stand for text: no control tokens, no ends of generation, no marks of the vocabulary.
  void build(const Tokenizer& tokenizer);

  uint32_t n_nodes() const { return nodes_.size() - 1; }
  const Node& node(uint32_t i) const { return nodes_[i]; }
  std::span<const weir_token> tokens(uint32_t node) const {
    return tokens_.part(nodes_[node].first_token, nodes_[node + 1].first_token - nodes_[node].first_token);
  }
  // The tokens of the node and of all below it; and how many bytes of each begin a character.
  std::span<const weir_token> tokens_from(uint32_t node) const {
    return tokens_.part(nodes_[node].first_token, nodes_[nodes_[node].end].first_token - nodes_[node].first_token);
  }
  const uint8_t* n_characters_from(uint32_t node) const { return n_characters_.data() + nodes_[node].first_token; }
  // The node behind a byte, or 0.
  uint32_t find_below(uint32_t node, uint8_t byte) const;
  std::span<const weir_token> ends_of_generation() const { return {ends_.data(), ends_.size()}; }
  uint32_t vocab_size() const { return vocab_size_; }
  uint32_t n_inner() const { return n_inner_; }  // nodes with others below
  uint32_t n_words() const { return (vocab_size_ + 31) / 32; }
  uint32_t longest() const { return longest_; }  // bytes

 private:
  void add_kinds();

  PodVector<Node> nodes_;  // and one behind the last
  PodVector<weir_token> tokens_, ends_;
  PodVector<uint8_t> n_characters_;  // as tokens_
  uint32_t below_root_[256] = {};    // nodes, or 0
  uint32_t vocab_size_ = 0, longest_ = 0, n_inner_ = 0;
};

// Whether a token stands for nothing but its text.
bool is_plain_token(const Tokenizer& tokenizer, weir_token token);

}  // namespace weir::constraint
