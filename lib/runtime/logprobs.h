// How probable a token and the best ones were, by the logits alone.
#pragma once

#include <cmath>
#include <cstdint>

#include "weir/session.h"

namespace weir {

struct LogProbs {
  static constexpr uint32_t kMost = 64;

  // Of `token`, and of the n best, n at most kMost; of NaN as if it were -inf.
  void compute(const float* logits, uint32_t vocab_size, weir_token token, uint32_t n);
  // What an event of that token tells; where nothing was computed: NaN and none.
  template <class Event>
  void tell(Event& event) const {
    event.logprob = logprob;
    event.n_top = n_top;
    event.top = n_top == 0 ? nullptr : top;
  }

  float logprob = NAN;
  uint32_t n_top = 0;
  weir_logprob top[kMost];  // [n_top], descending, the lower id first of equals
};

}  // namespace weir
