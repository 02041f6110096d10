// Special tokens: begin, end, end of turn, unknown, padding; which tokens end an answer; and the flags of every token.
#include <algorithm>
#include <cstdint>
#include <iterator>

#include "text/token_ids.h"
#include "text/tokenizer_impl.h"

namespace weir {
namespace {

using std::string_view;

// Control tokens of these texts end an answer in the models that have them, beyond the ends that the file names. A
// token of another class is text, whatever it looks like: </s> is an HTML tag to Gemma.
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

// The token of an id in a file; -1: none. Writers say so by -1 or by the number behind the last token, others by a
// number that means nothing, which is worth a warning.
weir_token token_of(string_view key, int64_t id, uint32_t vocab_size, Notes& notes) {
  if (id >= 0 && id < vocab_size) return static_cast<weir_token>(id);
  if (id != -1 && id != INT64_MAX && id != UINT32_MAX && id != vocab_size) {
    notes.warn("%.*s: %lld is not a token of a vocabulary of %u; taken as none", static_cast<int>(key.size()),
               key.data(), static_cast<long long>(id), vocab_size);
  }
  return -1;
}

// An id key; `id` keeps its value when the file has no such key.
Status read_id(const GgufFile& file, string_view key, uint32_t vocab_size, weir_token& id, Notes& notes) {
  if (file.find(key) == nullptr) return {};
  int64_t value = 0;
  WEIR_TRY(file.get_i64(key, value));
  id = token_of(key, value, vocab_size, notes);
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

// How much of a model's name is searched. A file can hold one of any length, and that could not be stopped.
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

// The tokens that the file names, and what ends an answer.
Status TokenizerImpl::read_ids(const GgufFile& file, Notes& notes) {
  const uint32_t n = vocab.size();
  // SentencePiece's own numbers, for files that do not name them, if their classes agree.
  const auto usual = [&](string_view key, weir_token id, weir_token& out) {
    if (!is_spm || file.find(key) != nullptr || static_cast<uint32_t>(id) >= n) return;
    const TokenType type = vocab.type(id);
    if (type != TokenType::kControl && type != TokenType::kUnknown) return;
    out = id;
    notes.take_default("%.*s: the file has no such key; it is %d, as in SentencePiece", static_cast<int>(key.size()),
                       key.data(), id);
  };
  usual("tokenizer.ggml.unknown_token_id", 0, special.unk);
  usual("tokenizer.ggml.bos_token_id", 1, special.bos);
  usual(kEosIdKey, 2, special.eos);
  WEIR_TRY(read_id(file, "tokenizer.ggml.bos_token_id", n, special.bos, notes));
  WEIR_TRY(read_id(file, "tokenizer.ggml.unknown_token_id", n, special.unk, notes));
  WEIR_TRY(read_id(file, "tokenizer.ggml.padding_token_id", n, special.pad, notes));
  bool has_eos = false;
  string_view noted;  // one line for a key, however many ids it has
  return each_end_id(file, [&](string_view key, int64_t id) {
    const uint64_t n_notes = notes.n_all();
    const bool is_token = id >= 0 && id < n;
    const weir_token token = !is_token && key == noted ? -1 : token_of(key, id, n, notes);
    if (notes.n_all() != n_notes) noted = key;
    if (key == kEosIdKey && !has_eos) {
      special.eos = token;
      has_eos = true;
    }
    if (key == kEotIdKey) special.eot = token;
    if (token >= 0) token_flags[static_cast<size_t>(token)] |= WEIR_TOKEN_END_OF_GENERATION;
  });
}

// Whether begin and end are added. A file's word counts; without it the usual one of the kind of tokenizer.
Status TokenizerImpl::read_adds(const GgufFile& file, Notes& notes) {
  constexpr const char* kAddBos = "tokenizer.ggml.add_bos_token";
  const bool adds_bos = is_spm || (pre.flags() & kPreAddBos) != 0;
  WEIR_TRY(read_add(file, kAddBos, adds_bos, special.bos, special.add_bos));
  WEIR_TRY(read_add(file, "tokenizer.ggml.add_eos_token", false, special.eos, special.add_eos));
  if (file.find(kAddBos) != nullptr || special.bos < 0) return {};
  const char* const taken = special.add_bos != 0 ? "added" : "not added";
  if (is_spm) {
    notes.warn("%s: the file has no such key; the begin token is %s, as with most SentencePiece models", kAddBos,
               taken);
  } else {
    notes.take_default("%s: the file has no such key; the begin token is %s, as with the pre-tokenizer %s", kAddBos,
                       taken, pre.name());
  }
  return {};
}

// The control token of this text, -1 when there is none.
weir_token TokenizerImpl::control_token(string_view text) const {
  const weir_token token = added.find(text);
  return token >= 0 && vocab.type(token) == TokenType::kControl ? token : -1;
}

void TokenizerImpl::find_ends(Notes& notes) {
  const auto end = [this](weir_token token) {
    if (token >= 0) token_flags[static_cast<size_t>(token)] |= WEIR_TOKEN_END_OF_GENERATION;
  };
  // Where answers are several messages, <|end|> ends one of them and not the answer.
  const bool has_messages = control_token("<|channel|>") >= 0 && control_token("<|message|>") >= 0;
  const auto ends_message = [has_messages](string_view text) { return has_messages && text == "<|end|>"; };
  for (const string_view text : kTurnEndTexts) {
    if (special.eot < 0 && !ends_message(text)) special.eot = control_token(text);
  }
  end(special.eos);
  end(special.eot);
  for (const string_view text : kEndTexts) {
    if (!ends_message(text)) end(control_token(text));
  }
  for (const string_view text : {"<|return|>", "<|call|>"}) {
    if (has_messages) end(control_token(text));
  }
  if (special.eot < 0) {
    for (const string_view text : kTurnEndTexts) {
      const weir_token token = added.find(text);
      if (token < 0 || (token_flags[static_cast<size_t>(token)] & WEIR_TOKEN_END_OF_GENERATION) != 0) continue;
      notes.warn("token %d, %.*s, is text by its type (tokenizer.ggml.token_type) and ends no answer", token,
                 static_cast<int>(text.size()), text.data());
    }
  }
  if (special.eot == special.eos) special.eot = -1;  // reported only when it differs
  for (size_t i = 0; i < token_flags.size(); ++i) {
    if ((token_flags[i] & WEIR_TOKEN_END_OF_GENERATION) != 0) ends.push_back(static_cast<weir_token>(i));
  }
  if (ends.empty())
    notes.warn("%.*s: the file names no end, and no control token looks like one; answers end by their length only",
               static_cast<int>(kEosIdKey.size()), kEosIdKey.data());
}

Status TokenizerImpl::read_special(const GgufFile& file, Notes& notes) {
  const uint32_t n = vocab.size();
  token_flags.resize(n);
  for (uint32_t i = 0; i < n; ++i) token_flags[i] = flags_of(vocab.type(static_cast<weir_token>(i)));
  WEIR_TRY(read_ids(file, notes));
  WEIR_TRY(read_adds(file, notes));
  if (is_spm && is_phi3(file)) {
    for (uint32_t i = 0; i < n; ++i) {
      const bool matched = (token_flags[i] & (WEIR_TOKEN_CONTROL | WEIR_TOKEN_USER_DEFINED | WEIR_TOKEN_UNKNOWN)) != 0;
      if (matched && !keeps_space_after(vocab.text(static_cast<weir_token>(i)))) token_flags[i] |= kTokenRstrip;
    }
  }
  find_ends(notes);
  // A token that means something cannot stand for text that the vocabulary lacks.
  constexpr uint8_t kMeans = WEIR_TOKEN_CONTROL | WEIR_TOKEN_END_OF_GENERATION;
  if (special.unk >= 0 && special.unk != special.bos && (token_flags[static_cast<size_t>(special.unk)] & kMeans) == 0)
    stand_in = special.unk;
  return {};
}

}  // namespace weir
