// What a Tokenizer holds. Not for other folders.
#pragma once

#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/merge_list.h"
#include "text/pre_tokenizer.h"
#include "text/spm.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

namespace weir {

// Bits of a token beyond WEIR_TOKEN_*.
inline constexpr uint8_t kTokenRstrip = 0x20;  // white space after the token in the text belongs to it

inline constexpr uint8_t kTokenInfoMask = 0x1F;
static_assert((WEIR_TOKEN_CONTROL | WEIR_TOKEN_BYTE | WEIR_TOKEN_USER_DEFINED | WEIR_TOKEN_UNKNOWN |
               WEIR_TOKEN_END_OF_GENERATION) == kTokenInfoMask);

// One call of encode: its output, and buffers that are reused for every piece.
struct EncodeCall {
  EncodeCall(const PreTokenizer* pre, std::pmr::vector<weir_token>& tokens, std::pmr::memory_resource* memory,
             OpenProgress& listener)
      : out(tokens), list(memory), spelled(memory), progress(listener) {
    if (pre != nullptr) splitter.emplace(*pre, memory);
  }

  std::pmr::vector<weir_token>& out;
  MergeList list;
  std::pmr::string spelled;
  OpenProgress& progress;
  std::optional<PreSplitter> splitter;  // of byte-level BPE
};

struct TokenizerImpl {
  explicit TokenizerImpl(std::pmr::memory_resource* memory)
      : vocab(memory), added(memory), merges(memory), token_flags(memory), ends(memory), whole(memory) {}

  // Each reads its keys; in this order.
  Status read_model(const GgufFile& file, const char* usual_pre, std::pmr::memory_resource* memory,
                    OpenProgress& progress, Notes& notes);
  Status read_special(const GgufFile& file, Notes& notes);  // special_tokens.cpp, as are its parts
  Status read_ids(const GgufFile& file, Notes& notes);
  Status read_adds(const GgufFile& file, Notes& notes);
  void find_ends(Notes& notes);
  weir_token control_token(std::string_view text) const;
  void read_hash(const GgufFile& file);

  // Encode text in which added tokens are still to be found, and text without any.
  Status encode_mixed(std::string_view text, AddedTokens::Which which, std::span<const weir_token> except,
                      EncodeCall& call) const;
  Status encode_plain(std::string_view text, EncodeCall& call) const;
  Status encode_bpe(std::string_view text, EncodeCall& call) const;
  Status encode_spm(std::string_view text, EncodeCall& call) const;
  Status find_marks(std::string_view text, std::span<const TextRange> said, std::pmr::vector<AddedTokens::Match>& marks,
                    std::pmr::vector<weir_token>& written, OpenProgress& progress) const;
  // Bytes of `text` that belong to the added token in front of it.
  size_t taken_behind(weir_token token, std::string_view text) const;
  Status encode_piece(std::string_view piece, std::string_view spelled, EncodeCall& call) const;
  Status encode_long(std::string_view piece, EncodeCall& call) const;
  Status encode_symbol(const Symbol& symbol, std::string_view text, EncodeCall& call) const;
  void merge(std::string_view piece, MergeList& list) const;
  Status encode_bytes(std::string_view text, EncodeCall& call) const;

  bool is_spm = false;
  bool space_prefix = false;  // a space is put before text at the start and after a token that was matched as a whole
  Vocab vocab;
  AddedTokens added;
  PreTokenizer pre;  // byte-level BPE only, as is the next
  BpeMerges merges;
  SpmMerges spm;
  std::pmr::vector<uint8_t> token_flags;  // WEIR_TOKEN_* and kToken*
  std::pmr::vector<weir_token> ends;      // those that end an answer
  // Whether merging the text of a token gives that token: 0 not known yet, 1 yes, 2 no. A cache filled by encode,
  // through atomic_ref; all threads write the same answers.
  mutable std::pmr::vector<uint8_t> whole;
  weir_special_tokens special = WEIR_SPECIAL_TOKENS_INIT;
  weir_token stand_in = -1;  // the unknown token, if it may stand for text
  uint64_t hash = 0;
  char kind[64] = "";
};

}  // namespace weir
