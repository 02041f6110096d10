// Special tokens: begin, end, end of turn, unknown, padding; which tokens end an answer; and the flags of every token.
#include <algorithm>
#include <iterator>

#include "text/tokenizer_impl.h"

namespace weir {
namespace {

using std::string_view;

// Texts that end an answer in the models that have them, beyond the end token that the file names.
constexpr string_view kEndTexts[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "</s>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_turn>",
    "<eos>",
    "<EOT>",
    "<|EOT|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|eot|>",
    "<|end_of_turn|>",
};

// Texts of an end of turn, the likelier first.
constexpr string_view kTurnEndTexts[] = {"<|eot_id|>",    "<|im_end|>",      "<|end|>",
                                         "<end_of_turn>", "<|eot|>",         "<|EOT|>",
                                         "<EOT>",         "<|end_of_turn|>", "<|END_OF_TURN_TOKEN|>"};

// An id key; `id` keeps its value when the file has no such key.
Status read_id(const GgufFile& file, string_view key, uint32_t vocab_size, weir_token& id) {
  if (file.find(key) == nullptr) return {};
  uint32_t value = 0;
  WEIR_TRY(file.get_u32(key, value));
  if (value >= vocab_size) {
    return fail(WEIR_ERR_FORMAT, "%.*s: %u is not a token of a vocabulary of %u", static_cast<int>(key.size()),
                key.data(), value, vocab_size);
  }
  id = static_cast<weir_token>(value);
  return {};
}

// A yes/no key that needs a token: asking for a token that the file does not name is an error, the default is then no.
Status read_add(const GgufFile& file, const char* key, bool fallback, weir_token token, int32_t& out) {
  bool add = false;
  WEIR_TRY(file.get_bool(key, add, fallback && token >= 0));
  if (add && token < 0) return fail(WEIR_ERR_FORMAT, "%s is true, but the file names no such token", key);
  out = add ? 1 : 0;
  return {};
}

bool contains_lower(string_view text, string_view word) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  return std::search(text.begin(), text.end(), word.begin(), word.end(), same) != text.end();
}

// Of a model's name. A file can hold one of any length, and searching that could not be stopped.
constexpr size_t kSearchedNameBytes = 4096;

// Phi-3's added tokens take the white space behind them, except these three.
bool is_phi3(const GgufFile& file) {
  string_view name, arch;
  if (!file.get_string("general.name", name, "").ok() || !file.get_string("general.architecture", arch, "").ok())
    return false;
  name = name.substr(0, kSearchedNameBytes);
  return arch == "phi3" || contains_lower(name, "phi-3") || contains_lower(name, "phi3");
}
bool keeps_space_after(string_view text) { return text == "<unk>" || text == "<s>" || text == "<|endoftext|>"; }

uint8_t flags_of(TokenType type) {
  switch (type) {
    case TokenType::kControl:
      return WEIR_TOKEN_CONTROL;
    case TokenType::kByte:
      return WEIR_TOKEN_BYTE;
    case TokenType::kUserDefined:
      return WEIR_TOKEN_USER_DEFINED;
    case TokenType::kUnknown:
      return WEIR_TOKEN_UNKNOWN;
    default:
      return 0;
  }
}

}  // namespace

Status TokenizerImpl::read_special(const GgufFile& file) {
  const uint32_t n = vocab.size();
  if (is_spm && n > 2) {  // SentencePiece's own numbers, for files that do not name them
    special.unk = 0;
    special.bos = 1;
    special.eos = 2;
  }
  WEIR_TRY(read_id(file, "tokenizer.ggml.bos_token_id", n, special.bos));
  WEIR_TRY(read_id(file, "tokenizer.ggml.eos_token_id", n, special.eos));
  WEIR_TRY(read_id(file, "tokenizer.ggml.eot_token_id", n, special.eot));
  WEIR_TRY(read_id(file, "tokenizer.ggml.unknown_token_id", n, special.unk));
  WEIR_TRY(read_id(file, "tokenizer.ggml.padding_token_id", n, special.pad));
  WEIR_TRY(read_add(file, "tokenizer.ggml.add_bos_token", is_spm || (pre.flags() & kPreAddBos) != 0, special.bos,
                    special.add_bos));
  WEIR_TRY(read_add(file, "tokenizer.ggml.add_eos_token", false, special.eos, special.add_eos));

  token_flags.resize(n);
  for (uint32_t i = 0; i < n; ++i) token_flags[i] = flags_of(vocab.type(static_cast<weir_token>(i)));
  if (is_spm && is_phi3(file)) {
    for (uint32_t i = 0; i < n; ++i) {
      const bool matched = (token_flags[i] & (WEIR_TOKEN_CONTROL | WEIR_TOKEN_USER_DEFINED | WEIR_TOKEN_UNKNOWN)) != 0;
      if (matched && !keeps_space_after(vocab.text(static_cast<weir_token>(i)))) token_flags[i] |= kTokenRstrip;
    }
  }
  if (special.eot < 0) {
    for (const string_view text : kTurnEndTexts) {
      special.eot = added.find(text);
      if (special.eot >= 0) break;
    }
  }
  const auto end = [this](weir_token token) {
    if (token >= 0) token_flags[static_cast<size_t>(token)] |= WEIR_TOKEN_END_OF_GENERATION;
  };
  end(special.eos);
  end(special.eot);
  for (const string_view text : kEndTexts) end(added.find(text));
  if (special.eot == special.eos) special.eot = -1;  // reported only when it differs
  return {};
}

}  // namespace weir
