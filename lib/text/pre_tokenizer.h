// Splitting text into the pieces inside which byte-level BPE may merge. A pre-tokenizer is an ordered list of regular
// expressions: the first splits the text into its matches and what lies between them, the next splits each of these
// pieces further, and so on. The names are those of tokenizer.ggml.pre; the list is pre_tokenizers.inc. The expressions
// run in PCRE2, as machine code where the process may have that (PCRE2 maps executable pages for it; everything else is
// allocated from the memory resource), else interpreted.
#pragma once

#include <memory_resource>
#include <string>
#include <string_view>

#include "core/status.h"

namespace weir {

inline constexpr size_t kMaxPrePatterns = 6;

// What a pre-tokenizer's name says beyond its expressions.
enum PreTokenizerFlags : uint32_t {
  kPreWholeTokenFirst = 1,  // a piece that is a token is that token, whatever the merges would give
  kPreAddBos = 2,           // BOS is added unless the file says otherwise
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  ~PreTokenizer();
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  // WEIR_ERR_UNSUPPORTED when there is none of this name ("" is "default"). `memory` must outlive this object.
  Status build(std::string_view name, std::pmr::memory_resource* memory);

  const char* name() const { return name_; }
  uint32_t flags() const { return flags_; }

 private:
  friend class PreSplitter;

  const char* name_ = "";
  uint32_t flags_ = 0;
  size_t n_patterns_ = 0;
  void* patterns_[kMaxPrePatterns] = {};  // pcre2_code
  bool jit_[kMaxPrePatterns] = {};
};

// One thread's use of a PreTokenizer.
class PreSplitter {
 public:
  using PieceFn = Status (*)(void* context, std::string_view piece);

  PreSplitter(const PreTokenizer& pre, std::pmr::memory_resource* memory);
  ~PreSplitter();
  PreSplitter(const PreSplitter&) = delete;
  PreSplitter& operator=(const PreSplitter&) = delete;

  // Calls `fn` with the pieces of `text` in order; together they are the text. A byte that is not valid UTF-8 counts as
  // one control character.
  Status split(std::string_view text, PieceFn fn, void* context);

 private:
  Status split_from(size_t pattern, size_t begin, size_t end);
  Status match(size_t pattern, std::string_view subject, size_t from, bool& found, size_t& begin, size_t& end);

  const PreTokenizer& pre_;
  std::pmr::string stand_in_;        // the text with its invalid bytes replaced
  std::string_view text_, subject_;  // what pieces are cut from, and what is matched; of one length
  PieceFn fn_ = nullptr;
  void* context_ = nullptr;
  void* general_ = nullptr;     // pcre2_general_context
  void* limits_ = nullptr;      // pcre2_match_context
  void* match_data_ = nullptr;  // pcre2_match_data
};

}  // namespace weir
