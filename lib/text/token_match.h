// Which of a conversation's tokens can stay when it is to have others.
#pragma once

#include <cstdint>
#include <span>

#include "text/tokenizer.h"

namespace weir {

struct TokenMatch {
  uint32_t n_held = 0;    // first tokens of the conversation that can stay
  uint32_t n_wanted = 0;  // first ones of the wanted tokens that they stand for
};

// The longest beginning that is the same: token by token, or where the same text is cut into other tokens, as what a
// model drew often is. Control and user-defined tokens are only equal to themselves. Allocates nothing.
TokenMatch match_tokens(const Tokenizer& tokenizer, std::span<const weir_token> held,
                        std::span<const weir_token> wanted);

}  // namespace weir
