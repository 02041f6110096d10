// The tokens of a conversation: all of them, or where it may become far longer than what its pages hold, the first and
// the latest ones, as many as something may ask for again. Which of them are there depends on how many there were, not
// on how they came. The record does not know where the conversation ends; what is behind its end is of no meaning.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/memory.h"
#include "kv/part.h"
#include "weir/base.h"

namespace weir {

class TokenRecord final : public Part {
 public:
  struct Shape {
    uint32_t context = 0;
    uint32_t front = 0;   // first tokens that are kept besides
    uint32_t latest = 0;  // latest tokens that are kept, at most twice as many are; 0: all, and no others
    uint32_t vocab_size = 0;
  };
  void set_shape(const Shape& shape) { shape_ = shape; }  // before lay_out()
  const Shape& shape() const { return shape_; }
  const char* name() const override { return "the record of tokens"; }
  void lay_out(Arenas& arenas) override {
    tokens_ = arenas.state.take<weir_token>(shape_.latest == 0 ? shape_.context : uint64_t{4} * shape_.latest);
    front_ = arenas.state.take<weir_token>(shape_.front);
  }
  void reset() override { first_ = 0; }
  // Position of the first token of view().
  uint32_t first() const { return first_; }
  // The latest of n_tokens.
  std::span<const weir_token> view(uint32_t n_tokens) const { return {tokens_, n_tokens - first_}; }
  // The first of n_tokens, as far as view() may lack them.
  std::span<const weir_token> front(uint32_t n_tokens) const { return {front_, std::min(shape_.front, n_tokens)}; }
  // A token at or after first().
  weir_token at(uint32_t pos) const { return tokens_[pos - first_]; }

  // The tokens from position `pos` on, which is at most the end of the conversation. They may be part of view().
  void put(uint32_t pos, const weir_token* tokens, uint32_t n);
  // Whether the conversation may go on after n_tokens; and before it does.
  bool goes_on_after(uint32_t n_tokens) const { return n_tokens >= first_ || n_tokens <= shape_.front; }
  // Whether the tokens from `first` on, before `end`, are there.
  bool holds(uint32_t first, uint32_t end) const { return first >= first_ || end <= shape_.front; }
  void cut(uint32_t n_tokens) override;
  // Also where the tokens from the last page's beginning on have to be read again.
  Status can_cut(uint32_t n_tokens, bool lossy) const override;
  void roll_back(uint32_t /*n_tokens*/) override {}  // a prompt's tokens come when it is complete
  // The section TOKN, of which the version of the format depends on what is there.
  Status io(Io& io) override;
  uint32_t version() const { return first_ == 0 ? kWholeVersion : kSessionVersion; }

  // Instead of put(), of n_tokens of which the ones from `first` on are known: makes room() for them and the front.
  // False: no record of this shape is like that.
  bool begin(uint32_t n_tokens, uint32_t first);
  std::span<weir_token> room(uint32_t n_tokens) { return {tokens_, n_tokens - first_}; }
  std::span<weir_token> front_room(uint32_t n_tokens) { return {front_, std::min(shape_.front, n_tokens)}; }

  void copy_from(const Part& part, uint32_t n_tokens) override {
    const auto& other = static_cast<const TokenRecord&>(part);
    first_ = other.first_;
    std::copy_n(other.tokens_, n_tokens - first_, tokens_);
    std::copy_n(other.front_, std::min(shape_.front, n_tokens), front_);
  }

 private:
  Status whole_io(Io& io);
  // Where view() begins once there were n_tokens.
  uint32_t first_of(uint32_t n_tokens) const {
    return shape_.latest == 0 || n_tokens < 2 * shape_.latest ? 0 : (n_tokens / shape_.latest - 1) * shape_.latest;
  }

  Shape shape_;
  weir_token* tokens_ = nullptr;  // [context], or [4 latest]: twice what view() has at most, so that put() has room
  weir_token* front_ = nullptr;   // [front]
  uint32_t first_ = 0;
};

// WEIR_ERR_FORMAT: one of these, which a file has, is no token of the vocabulary.
Status check_tokens(const Io& io, std::span<const weir_token> tokens, uint32_t vocab_size);

}  // namespace weir
