// Tokens to text, one by one and as a stream.
#include <cstring>

#include "core/utf8.h"
#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"

namespace weir {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

std::string_view Tokenizer::decode(weir_token token, bool special, bool first) const {
  const TokenizerImpl& t = *impl_;
  if (static_cast<size_t>(token) >= t.token_flags.size()) return {};
  if (!special && (t.token_flags[static_cast<size_t>(token)] & (WEIR_TOKEN_CONTROL | WEIR_TOKEN_UNKNOWN)) != 0)
    return {};
  std::string_view bytes = t.vocab.bytes(token);
  if (first && t.space_prefix && bytes.substr(0, 1) == " ") bytes.remove_prefix(1);
  return bytes;
}

bool Tokenizer::starts_text_after(weir_token token) const {
  if (static_cast<size_t>(token) >= impl_->token_flags.size()) return false;
  return (impl_->token_flags[static_cast<size_t>(token)] &
          (WEIR_TOKEN_CONTROL | WEIR_TOKEN_UNKNOWN | WEIR_TOKEN_USER_DEFINED)) != 0;
}

void Detokenizer::reset(const Tokenizer* tokenizer, bool special, bool first) {
  tokenizer_ = tokenizer;
  special_ = special;
  held_ = {};
  held_.first = first;
}

std::string_view Detokenizer::push(weir_token token) {
  const std::string_view bytes = tokenizer_->decode(token, special_, held_.first);
  held_.first = tokenizer_->starts_text_after(token);
  char joined[sizeof(held_.bytes) + kMaxTokenBytes];
  std::memcpy(joined, held_.bytes, held_.n_bytes);
  bytes.copy(joined + held_.n_bytes, bytes.size());
  std::string_view left(joined, held_.n_bytes + bytes.size());
  held_.n_bytes = 0;
  size_t n = 0;
  while (!left.empty()) {
    const Utf8Step step = utf8_step(left);
    if (step.kind == Utf8Kind::kIncomplete) {
      held_.n_bytes = static_cast<uint32_t>(left.copy(held_.bytes, sizeof(held_.bytes)));
      break;
    }
    const std::string_view shown = step.kind == Utf8Kind::kComplete ? left.substr(0, step.n_bytes) : kReplacement;
    n += shown.copy(text_ + n, shown.size());
    left.remove_prefix(step.n_bytes);
  }
  text_[n] = '\0';
  return {text_, n};
}

std::string_view Detokenizer::flush() {
  const size_t n = held_.n_bytes == 0 ? 0 : kReplacement.copy(text_, kReplacement.size());
  held_ = {};
  text_[n] = '\0';
  return {text_, n};
}

}  // namespace weir
