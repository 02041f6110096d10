// Draws tokens from logits: bias, penalties, temperature, top-k, top-p, min-p, in this order. Deterministic by seed;
// all memory is laid out once.
#pragma once

#include <cstdint>
#include <span>

#include "core/memory.h"
#include "core/status.h"
#include "kv/part.h"
#include "kv/step_state.h"
#include "weir/session.h"

namespace weir {

// Whether a mask with a bit for each token allows the token; null: all are allowed.
inline bool is_allowed(const uint32_t* allowed, uint32_t token) {
  return allowed == nullptr || (allowed[token / 32] >> (token % 32) & 1) != 0;
}

// Checks ranges and fills defaults (0 top_p means 1, 0 repeat_penalty means 1, 0 repeat_last_n means 64).
Status check_sampling(weir_sampling_options& options, uint32_t vocab_size);

class Sampler final : public Part {
 public:
  static constexpr uint32_t kMaxRecent = 4096;
  static constexpr uint32_t kMaxBias = 1024;

  void set_vocabulary(uint32_t vocab_size) { vocab_size_ = vocab_size; }  // before lay_out()
  const char* name() const override { return "the sampler"; }
  void lay_out(Arenas& arenas) override;
  // Greedy when `options` is all defaults. Restarts the random state and keeps the recent tokens; options were checked.
  // Copies the bias.
  void set(const weir_sampling_options& options);
  void copy_from(const Part& other, uint32_t n_tokens) override;
  void reset() override;  // random state from the seed, no recent tokens
  // The tokens that are left are told by set_recent().
  void cut(uint32_t /*n_tokens*/) override {}
  // The section SAMP. Restored options hold from then on: whoever gives up the file for what follows restores state().
  Status io(Io& io) override;

  // What a saved session has of what decides what is drawn next, besides the recent tokens. The other options, bias,
  // presence and frequency penalty, stay in restore().
  struct State {
    weir_sampling_options options = WEIR_SAMPLING_OPTIONS_INIT;
    uint64_t random = 0;
    uint32_t n_recent = 0;
  };
  State state() const { return {options_, random_, n_recent_}; }
  void restore(const State& state);

  // Tokens that are not drawn until this is called again; the caller keeps them.
  void forbid(std::span<const weir_token> tokens) { forbidden_ = tokens; }
  // Whether the largest unchanged logit is drawn, which a device can find by itself.
  bool is_greedy() const {
    return options_.temperature == 0.0f && !penalises() && options_.n_bias == 0 && forbidden_.empty();
  }
  // A token went into the conversation.
  void accept(weir_token token);
  // The conversation is now these tokens; the random state stays.
  void set_recent(const weir_token* tokens, uint32_t n_tokens);
  // Draws from logits [vocab_size]. WEIR_ERR_FORMAT when none of them is a number, WEIR_ERR_STATE when all tokens are
  // forbidden. `allowed`: a bit for each token that may be drawn, at least one; null: all may.
  Status sample(const float* logits, weir_token& token, const uint32_t* allowed = nullptr);
  // Tokens that may be drawn, in any order.
  struct Candidates {
    const int32_t* ids = nullptr;
    const float* logits = nullptr;
    uint32_t n = 0;
  };
  static constexpr uint32_t kMaxCandidates = kMaxTopLogits;
  // How many of the best logits decide what sample() draws where n_allowed tokens may be drawn, together with those of
  // asked_tokens(), at most kMaxCandidates; 0: it takes all of them. Best is in the order of sample(): descending, the
  // lower id first of equals, NaN as -inf.
  uint32_t candidates_needed(uint32_t n_allowed) const;
  // The tokens whose logits may rise, into [kMaxCandidates], each once; returns how many. Where candidates are enough.
  uint32_t asked_tokens(int32_t* out) const;
  // Draws the same token as sample(), with the same random state, from candidates_needed() or more of the best tokens
  // that are allowed, or all of them, and from what asked_tokens() lists. -1: nothing was drawn, because it takes all
  // logits after all to decide it or to say why there is nothing to draw.
  weir_token sample_candidates(const Candidates& best, bool are_all, const Candidates& asked, const uint32_t* allowed);

 private:
  Status recent_io(Io& io, uint32_t n);
  weir_token recent(uint32_t i) const;  // of n_recent_, the oldest first
  struct Candidate {
    float logit;
    weir_token token;
  };
  Status greedy(const float* logits, weir_token& token, const uint32_t* allowed) const;
  bool penalises() const {
    return options_.repeat_penalty != 1.0f || options_.presence_penalty != 0.0f || options_.frequency_penalty != 0.0f;
  }
  bool only_lowers() const;
  bool cuts_tail() const;
  bool reaches_tail(float least, uint32_t n) const;
  uint32_t n_looked_at() const;  // by the penalties
  uint32_t n_changed() const;
  template <class Find>
  void change(uint32_t n, const Find& find);
  template <class Find>
  void penalise(uint32_t n, const Find& find);
  Status nothing_to_draw(const float* logits) const;
  static bool is_better(const Candidate& a, const Candidate& b);
  float weight(const Candidate& c) const;
  double mass(uint32_t begin, uint32_t end) const;
  uint32_t keep_top_k(uint32_t n);
  uint32_t keep_mass(uint32_t n, double target, double& sum);
  weir_token draw(uint32_t n);
  double next_uniform();  // [0, 1)

  weir_sampling_options options_ = WEIR_SAMPLING_OPTIONS_INIT;  // without the pointer to the bias
  weir_token_bias bias_[kMaxBias];                              // [options_.n_bias]
  std::span<const weir_token> forbidden_;
  uint32_t vocab_size_ = 0;
  Candidate* candidates_ = nullptr;  // [vocab_size]
  float best_ = 0.0f;                // the largest logit, while draw() runs
  weir_token* recent_ = nullptr;     // [kMaxRecent] ring
  weir_token* looked_at_ = nullptr;  // [kMaxRecent] the recent tokens that a penalty looks at, in order
  uint32_t n_recent_ = 0, recent_at_ = 0;
  uint64_t random_ = 0;
};

}  // namespace weir
