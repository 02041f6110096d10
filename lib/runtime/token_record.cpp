// Tokens that come and go; see token_record.h.
#include "runtime/token_record.h"

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

}  // namespace weir
