// SentencePiece-style BPE: characters merge into whatever is a token, best score first. There is no list of merges and
// no pre-tokenizer.
#pragma once

#include <string_view>

#include "core/progress.h"
#include "core/status.h"
#include "text/merge_list.h"
#include "text/vocab.h"

namespace weir {

class SpmMerges {
 public:
  // `vocab` must outlive this object.
  Status build(const Vocab& vocab, OpenProgress& progress);

  // Leaves the tokens of `piece` (spaces already marked) in `list`; a character that is not a token stays a symbol with
  // token -1.
  void apply(std::string_view piece, MergeList& list) const;

  // Bytes of `text` (not empty) that can be tokenized on their own: up to the next word where no token of the
  // vocabulary reaches over the start of a word, else all. Words keep lists short, which makes long texts fast.
  size_t word_bytes(std::string_view text) const;

 private:
  const Vocab* vocab_ = nullptr;
  bool words_are_apart_ = false;
};

}  // namespace weir
