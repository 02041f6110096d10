// How probable a token and the best ones were, by the logits alone: all of them, or what a device tells of them.
#pragma once

#include <cmath>
#include <cstdint>

#include "kv/step_state.h"
#include "weir/session.h"

namespace weir {

LogitPart logit_part(const float* logits, uint32_t n);

struct LogProbs {
  static constexpr uint32_t kMax = 64;

  // Computes those of `token` and of the n best, n at most kMax; NaN counts as -inf.
  void compute(const float* logits, uint32_t vocab_size, weir_token token, uint32_t n);
  // The same from less: the n best logits of all in order, the parts of all, and the token's logit.
  void compute(const int32_t* ids, const float* logits, uint32_t n, const LogitPart* parts, float logit);
  // What an event of that token tells; where nothing was computed: NaN and none.
  template <class Event>
  void tell(Event& event) const {
    event.logprob = logprob;
    event.n_top = n_top;
    event.top = n_top == 0 ? nullptr : top;
  }

  float logprob = NAN;
  uint32_t n_top = 0;
  weir_logprob top[kMax];  // [n_top], descending, the lower id first of equals
};

}  // namespace weir
