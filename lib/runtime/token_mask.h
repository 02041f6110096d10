// Which tokens a session may draw: those that its constraint lets pass, then those that the application's function
// leaves. Knows how much of the answer the constraint has seen; the tokens come from the session's record.
#pragma once

#include <cstdint>
#include <span>

#include "core/memory.h"
#include "core/status.h"
#include "models/model.h"
#include "runtime/call_outs.h"
#include "runtime/token_record.h"
#include "text/constraint/shared_constraint.h"
#include "weir/constraint.h"

namespace weir {

class TokenMask {
 public:
  explicit TokenMask(HostMemory& memory) : memory_(memory) {}
  ~TokenMask() { drop_constraint(); }
  TokenMask(const TokenMask&) = delete;
  TokenMask& operator=(const TokenMask&) = delete;

  // Both take their memory, or throw std::bad_alloc and change nothing.
  void set_function(weir_mask_fn fn, void* user, uint32_t vocab_size);
  void set_constraint(constraint::SharedConstraint* constraint, uint32_t vocab_size);  // null: none
  void copy_from(const TokenMask& other);
  bool is_on() const { return fn_ != nullptr || matcher_ != nullptr; }

  // The answer, or what is read of it, begins anew.
  void restart();
  // Shows the constraint the answer's tokens that it has not seen.
  Status follow(const Tokenizer& tokenizer, std::span<const weir_token> answer);
  // Whether the constraint lets nothing follow but an end.
  bool is_over() const { return matcher_ != nullptr && !matcher_->goes_on(); }
  // Fills words(). Tokens that end a generation are left out where they may not be drawn.
  Status fill(bool with_ends);
  void fill_all();  // with all tokens
  void allow(weir_token token) {
    words_[static_cast<uint32_t>(token) / 32] |= 1u << (static_cast<uint32_t>(token) % 32);
  }
  bool has_constraint() const { return constraint_ != nullptr; }
  weir_mask_fn function() const { return fn_; }
  void* user() const { return user_; }
  uint32_t* words() { return words_.data(); }
  bool allows_any() const;
  uint32_t n_allowed() const;

 private:
  void drop_constraint();
  uint32_t last_word() const;  // without what lies behind the vocabulary

  HostMemory& memory_;
  weir_mask_fn fn_ = nullptr;
  void* user_ = nullptr;
  constraint::SharedConstraint* constraint_ = nullptr;
  constraint::Matcher* matcher_ = nullptr;
  uint32_t n_seen_ = 0, vocab_size_ = 0;
  PodVector<uint32_t> words_{&memory_};
};

class Answering;

// Where a session is when it is about to draw a token.
struct MaskRequest {
  const Model& model;
  const TokenRecord& record;
  uint32_t n_tokens;           // of the conversation
  const Answering* answering;  // null: the token is drawn outside of answers
  CallOuts& calls;
};

// The mask of the next token of an answer. Its constraint rules the answer's text alone: thoughts and calls are free.
class AnswerMask {
 public:
  explicit AnswerMask(HostMemory& memory) : mask_(memory) {}
  TokenMask& tokens() { return mask_; }
  bool has_constraint() const { return mask_.has_constraint(); }
  void copy_from(const AnswerMask& other);

  // The answer begins when the conversation has n_tokens; with kNext, where it ends by then.
  static constexpr uint32_t kNext = UINT32_MAX;
  void begin(uint32_t n_tokens);
  // The same answer is read from its beginning, because tokens were taken back.
  void restart() { mask_.restart(); }
  // The next token belongs to a part that is free, or ends one: what the constraint rules begins behind it.
  void free_next(uint32_t n_tokens);
  // What may be drawn. Null at `mask`: everything. `is_over`: nothing may, or the answer's text is complete and may not
  // go on.
  Status find(const MaskRequest& request, TokenMask*& mask, bool& is_over);

 private:
  using Tokens = std::span<const weir_token>;
  void allow_thought(const Model& model);
  bool is_in_ruled_text(const MaskRequest& request) const;
  Status find_tokens(const MaskRequest& request, Tokens& out, Tokens& ruled);
  Status ask_function(const MaskRequest& request, Tokens answer);

  TokenMask mask_;
  // Where the answer begins, and where in it the part that the constraint rules; both may be behind the end of the
  // conversation, which they mean then.
  uint32_t from_ = 0, rules_from_ = 0;
};

}  // namespace weir
