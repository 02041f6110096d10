// Merging by score.
#include "text/spm.h"

#include <bit>

#include "core/utf8.h"

namespace weir {
namespace {

// Position of the first space mark that follows another character, or npos.
size_t next_word(std::string_view text) {
  size_t at = 0;
  while (text.substr(at, kSpaceMarkBytes) == kSpaceMark) at += kSpaceMarkBytes;
  return text.find(kSpaceMark, at);
}

// Ascending numbers for descending scores.
uint32_t priority_of(float score) {
  const auto bits = std::bit_cast<uint32_t>(score == 0.0f ? 0.0f : score);  // -0 is 0
  const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

}  // namespace

Status SpmMerges::build(const Vocab& vocab, OpenProgress& progress) {
  vocab_ = &vocab;
  words_are_apart_ = true;
  for (uint32_t i = 0; i < vocab.size() && words_are_apart_; ++i) {
    const auto token = static_cast<weir_token>(i);
    const std::string_view text = vocab.text(token);
    words_are_apart_ = next_word(text) == std::string_view::npos || vocab.find(text) < 0;
    WEIR_TRY(progress.step());
  }
  return {};
}

size_t SpmMerges::word_bytes(std::string_view text) const {
  const size_t next = words_are_apart_ ? next_word(text) : std::string_view::npos;
  return next == std::string_view::npos ? text.size() : next;
}

void SpmMerges::apply(std::string_view piece, MergeList& list) const {
  list.clear();
  for (size_t at = 0; at < piece.size();) {
    const Utf8Step step = utf8_step(piece.substr(at));
    const size_t n = step.kind == Utf8Kind::kComplete ? step.n_bytes : 1;
    list.add(static_cast<uint32_t>(at), static_cast<uint32_t>(n), vocab_->find(piece.substr(at, n)));
    at += n;
  }
  list.run([this, piece](const Symbol& left, const Symbol& right, uint32_t& priority) {
    const weir_token merged = vocab_->find(piece.substr(left.begin, left.n_bytes + right.n_bytes));
    if (merged >= 0) priority = priority_of(vocab_->score(merged));
    return merged;
  });
}

}  // namespace weir
