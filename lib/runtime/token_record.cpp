// Tokens that come and go; see token_record.h.
#include "runtime/token_record.h"

#include <iterator>

#include "ops/ops.h"

namespace weir {

void TokenRecord::put(uint32_t pos, const weir_token* tokens, uint32_t n) {
  if (n == 0) return;  // and there may be no address
  if (pos < shape_.front) std::copy_n(tokens, std::min(n, shape_.front - pos), front_ + pos);
  const uint32_t first = std::max(first_, first_of(pos + n));
  if (first >= pos) {
    std::copy_n(tokens + (first - pos), pos + n - first, tokens_);
  } else {
    // Before anything moves, because the new tokens may be among the old ones.
    std::memmove(tokens_ + (pos - first_), tokens, n * sizeof(weir_token));
    if (first != first_) std::memmove(tokens_, tokens_ + (first - first_), (pos + n - first) * sizeof(weir_token));
  }
  first_ = first;
}

void TokenRecord::cut(uint32_t n_tokens) {
  if (n_tokens >= first_) return;
  std::copy_n(front_, n_tokens, tokens_);
  first_ = 0;
}

bool TokenRecord::begin(uint32_t n_tokens, uint32_t first) {
  if (first > n_tokens || (first != 0 && (shape_.latest == 0 || first % shape_.latest != 0))) return false;
  if (first < first_of(n_tokens)) return false;
  first_ = first;
  return true;
}

Status TokenRecord::can_cut(uint32_t n_tokens, bool /*lossy*/) const {
  if (goes_on_after(n_tokens) && goes_on_after(n_tokens - n_tokens % kPageTokens)) return {};
  return fail(WEIR_ERR_NOT_FOUND,
              "a rewind to %u tokens: of the first %u only %u are held; a session of at most 1048576 context_tokens"
              " holds all",
              n_tokens, first_, shape_.front);
}

Status TokenRecord::io(Io& io) {
  WEIR_TRY(io.section("TOKN"));
  WEIR_TRY(io.value(io.n_tokens));
  const uint32_t n = io.n_tokens;
  if (n > shape_.context) return io.damaged("%u tokens in a context of %u", n, shape_.context);
  if (io.version() == kWholeVersion) return whole_io(io);
  uint32_t first = first_, n_front = static_cast<uint32_t>(front(n).size());
  WEIR_TRY(io.value(first));
  WEIR_TRY(io.value(n_front));
  if (first == 0 || n_front != front(n).size() || !begin(n, first))
    return io.damaged("tokens from %u on and the first %u, of %u", first, n_front, n);
  for (const std::span<weir_token> tokens : {front_room(n), room(n)}) {
    WEIR_TRY(io.array(tokens));
    WEIR_TRY(check_tokens(io, tokens, shape_.vocab_size));
  }
  return {};
}

// A record that will not hold all of them takes them as they come.
Status TokenRecord::whole_io(Io& io) {
  if (io.saves()) return io.array(room(io.n_tokens));
  weir_token part[256];
  for (uint32_t n = 0, n_part = 0; n < io.n_tokens; n += n_part) {
    n_part = std::min<uint32_t>(io.n_tokens - n, std::size(part));
    const std::span<weir_token> tokens = std::span<weir_token>(part).first(n_part);
    WEIR_TRY(io.array(tokens));
    WEIR_TRY(check_tokens(io, tokens, shape_.vocab_size));
    put(n, part, n_part);
  }
  return {};
}

Status check_tokens(const Io& io, std::span<const weir_token> tokens, uint32_t vocab_size) {
  for (const weir_token token : tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= vocab_size)
      return io.damaged("token %d is not in 0..%u", token, vocab_size - 1);
  }
  return {};
}

}  // namespace weir
