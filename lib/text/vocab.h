// The tokens of a file: texts, types, scores, the bytes that each stands for in running text, and look-up by text.
// Built once, then read only. Everything lies in a few flat arrays; texts are copied so that they end with a NUL.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "core/notes.h"
#include "core/progress.h"
#include "core/status.h"
#include "gguf/gguf.h"
#include "text/keyed_hash.h"
#include "text/tokenizer.h"
#include "weir/text.h"

namespace weir {

// As in tokenizer.ggml.token_type.
enum class TokenType : uint8_t { kUndefined, kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

// How token texts become bytes.
enum class TokenSpelling : uint8_t {
  kByteLevel,      // one of 256 chosen characters per byte (GPT-2)
  kSentencePiece,  // U+2581 for a space, <0xXX> for a byte
};

inline constexpr size_t kMaxTextBytes =
    2 * kMaxTokenBytes;                       // as stored; byte-level spelling takes up to two bytes for one
inline constexpr size_t kSpaceMarkBytes = 3;  // of U+2581
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

class Vocab {
 public:
  explicit Vocab(std::pmr::memory_resource* memory)
      : text_(memory),
        text_at_(memory),
        bytes_(memory),
        bytes_at_(memory),
        types_(memory),
        scores_(memory),
        slots_(memory) {}

  // Reads tokens and types, and for SentencePiece also scores, which are required there. `key` is the look-up table's
  // hash key.
  Status read(const GgufFile& file, TokenSpelling spelling, const HashKey& key, OpenProgress& progress, Notes& notes);

  uint32_t size() const { return static_cast<uint32_t>(types_.size()); }
  TokenType type(weir_token token) const { return types_[static_cast<size_t>(token)]; }
  float score(weir_token token) const { return scores_.empty() ? 0.0f : scores_[static_cast<size_t>(token)]; }
  // As stored; a NUL follows.
  std::string_view text(weir_token token) const { return view(text_, text_at_, token, 1); }
  // What the token stands for.
  std::string_view bytes(weir_token token) const { return view(bytes_, bytes_at_, token, 0); }

  // Whether the token may have a meaning beyond its text: a control or unknown token, or a user-defined one that is not
  // of letters, digits and white space alone. Files give the marks of turns, thoughts and tools either type; the other
  // user-defined tokens are runs of spaces and characters that were added late.
  bool is_mark(weir_token token) const;

  // The token that ordinary text may become, by its stored text; -1 when there is none. The first of equal texts wins.
  // Marks are never found. Byte-level vocabularies leave out all user-defined tokens: their texts are not spelled byte
  // by byte.
  weir_token find(std::string_view text) const;
  // The token of one raw byte, -1 when there is none.
  weir_token find_byte(uint8_t byte) const { return byte_tokens_[byte]; }
  // Occupied slots that were passed by while the look-up table was filled: what collisions cost.
  uint64_t n_collisions() const { return n_collisions_; }

 private:
  struct Slot {
    uint32_t hash;
    weir_token token;  // -1: free
  };

  static std::string_view view(const std::pmr::vector<char>& block, const std::pmr::vector<uint32_t>& at,
                               weir_token token, uint32_t gap) {
    const auto i = static_cast<size_t>(token);
    return {block.data() + at[i], at[i + 1] - at[i] - gap};
  }
  Status read_texts(const GgufValue& tokens, OpenProgress& progress);
  Status read_types(const GgufFile& file, TokenSpelling spelling, Notes& notes);
  Status take_ends(const GgufFile& file, Notes& notes);
  Status read_scores(const GgufFile& file);
  Status spell(TokenSpelling spelling, OpenProgress& progress);
  Status index(TokenSpelling spelling, OpenProgress& progress);
  void find_bytes(TokenSpelling spelling);

  std::pmr::vector<char> text_;
  std::pmr::vector<uint32_t> text_at_;  // [size + 1]
  std::pmr::vector<char> bytes_;
  std::pmr::vector<uint32_t> bytes_at_;  // [size + 1]
  std::pmr::vector<TokenType> types_;
  std::pmr::vector<float> scores_;
  std::pmr::vector<Slot> slots_;  // open addressing, a power of two
  HashKey key_;
  uint64_t n_collisions_ = 0;
  weir_token byte_tokens_[256] = {};
};

// Appends `bytes` in the spelling of byte-level vocabularies; at most twice as long.
void append_byte_level(std::string_view bytes, std::pmr::string& out);

}  // namespace weir
