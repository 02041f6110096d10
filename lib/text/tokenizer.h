// Text to tokens and back. Two kinds: byte-level BPE ("gpt2") with a named pre-tokenizer, and SentencePiece-style BPE
// ("llama"). Immutable after build; encode may be called from many threads at once.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

#include "core/notes.h"
#include "core/progress.h"
#include "core/status.h"
#include "gguf/gguf.h"
#include "weir/text.h"

namespace weir {

struct TokenizerImpl;

// Most bytes that one token of any vocabulary may have; build refuses longer ones, so that streaming needs no
// allocation.
inline constexpr size_t kMaxTokenBytes = 1024;

// A stretch of a text, in bytes.
struct TextRange {
  size_t begin, end;
};

class Tokenizer {
 public:
  explicit Tokenizer(std::pmr::memory_resource* memory) : memory_(memory) {}
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Reads tokenizer.ggml.* of `file`, which must outlive this object. Unknown models and pre-tokenizers are
  // WEIR_ERR_UNSUPPORTED naming them.
  Status build(const GgufFile& file);
  // The same with progress; WEIR_ERR_CANCELLED when the callback refuses. `usual_pre` (may be null): the pre-tokenizer
  // of a file that does not name one. `notes` hears of what was taken for granted.
  Status build(const GgufFile& file, const char* usual_pre, OpenProgress& progress, Notes& notes);

  uint32_t vocab_size() const;
  const char* kind() const;             // "gpt2/llama-bpe", "llama/default"
  weir_special_tokens special() const;  // struct_size is that of this build
  bool is_end_of_generation(weir_token token) const;
  std::span<const weir_token> ends() const;                        // all of these tokens
  void token_info(weir_token token, weir_token_info& info) const;  // text is NUL-terminated; `token` in range
  // Whether it may mean more than its text (Vocab::is_mark); `token` in range. And the one of such a text, -1: none.
  bool is_mark(weir_token token) const;
  weir_token find_mark(std::string_view text) const;
  uint64_t hash() const;  // of token texts, types and merges; part of the model's fingerprint

  // Appends the ids of `text` to `out` (allocating from out's resource). flags: WEIR_TOKENIZE_*.
  // WEIR_ERR_CANCELLED: `progress`, which hears of the text's bytes, wants no more.
  Status encode(std::string_view text, uint32_t flags, std::pmr::vector<weir_token>& out,
                OpenProgress progress = {}) const;
  // The same for a rendered conversation. Special tokens are recognised as with WEIR_TOKENIZE_SPECIAL, but only if none
  // of their bytes is in `said` (ascending, disjoint, inside the text). In `said` only user-defined tokens of letters,
  // digits and white space are recognised, such as runs of spaces, except those that the text outside of `said` uses as
  // a mark; of these SentencePiece's merging may still give some. All other text is split into words as if there were
  // no borders.
  Status encode_chat(std::string_view text, std::span<const TextRange> said, std::pmr::vector<weir_token>& out,
                     OpenProgress progress = {}) const;

  // The bytes of one token, a view into the tokenizer, as they appear in running text. Control and unknown tokens give
  // their text when `special`, else nothing. `first`: the token starts a text (SentencePiece drops one leading space
  // there when the model adds one).
  std::string_view decode(weir_token token, bool special, bool first) const;
  // Whether the token after `token` starts a text, in the sense of decode: encode puts a space before text that follows
  // a token which it matched as a whole, so decode removes it there.
  bool starts_text_after(weir_token token) const;

 private:
  std::pmr::memory_resource* memory_;
  TokenizerImpl* impl_ = nullptr;
};

// Turns a stream of tokens into whole UTF-8 sequences; fixed size, never allocates. Each maximal stretch of bytes that
// cannot be part of a sequence becomes one U+FFFD, as usual.
class Detokenizer {
 public:
  static constexpr size_t kMaxBytes = 3 * (kMaxTokenBytes + 4);  // of a text; worst case: every byte becomes U+FFFD

  // All that earlier tokens have left for the next one.
  struct Held {
    uint32_t n_bytes = 0;  // of an incomplete sequence, at most 3
    char bytes[4] = {};
    bool first = true;  // the next token starts a text
  };

  // `first`: the next token starts a text, in the sense of Tokenizer::decode.
  void reset(const Tokenizer* tokenizer, bool special, bool first = true);
  // Whether control tokens appear from now on; held bytes stay.
  void set_special(bool special) { special_ = special; }
  // View of the text that is complete after `token`, NUL-terminated, valid until the next call.
  std::string_view push(weir_token token);
  // What is still incomplete, as U+FFFD; the next push starts a text.
  std::string_view flush();
  // With the two a token can be taken back: as if it had not been pushed.
  const Held& held() const { return held_; }
  void restore(const Held& held) { held_ = held; }

 private:
  const Tokenizer* tokenizer_ = nullptr;
  Held held_;
  bool special_ = false;
  char text_[kMaxBytes + 1] = {};
};

}  // namespace weir
