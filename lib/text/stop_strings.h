// Texts that end an answer, found in a stream of text whatever its pieces. What may become one of them is held back
// until it is clear.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/status.h"
#include "text/tokenizer.h"

namespace weir {

class StopStrings {
 public:
  static constexpr uint32_t kMax = 16;        // what chat services allow is 4; a request of more is a mistake
  static constexpr uint32_t kMaxBytes = 256;  // of one; as many bytes may be held back

  // Whether these can be used: not too many, none empty or too long, all UTF-8. The message names one that cannot.
  static Status check(std::span<const std::string_view> stops);
  // Begins a text. They are copied, and have been checked.
  void begin(std::span<const std::string_view> stops);

  struct Piece {
    std::string_view text;  // that is part of no stop string; NUL-terminated, valid until the next call
    int32_t found = -1;     // the stop string that followed it; nothing is held back then
  };
  // The stop string that is complete first counts, of those that end together the longest, and of equal
  // ones the first. `text` is whole UTF-8, of at most as many bytes as a detokenizer gives.
  Piece push(std::string_view text);
  // The end of the text: what was held back, and `rest` behind it.
  std::string_view finish(std::string_view rest);

  // Begins a text with the same ones.
  void restart() { held_.n_bytes = n_text_ = 0; }

  // With the two a piece can be taken back: what is held back is again what it was at the mark, without what has been
  // shown since, n_shown bytes.
  void mark() { marked_ = held_; }
  void take_back(size_t n_shown);
  uint32_t n_held() const { return held_.n_bytes; }

 private:
  struct Held {
    uint32_t n_bytes = 0;
    char bytes[kMaxBytes];
  };
  uint32_t may_become_one() const;
  std::string_view stop(uint32_t i) const { return {bytes_[i], n_bytes_[i]}; }
  std::string_view shown(size_t n_bytes);

  uint32_t n_ = 0, n_text_ = 0;
  uint32_t n_bytes_[kMax] = {};
  char bytes_[kMax][kMaxBytes];
  Held held_, marked_;
  char text_[kMaxBytes + Detokenizer::kMaxBytes + 1];  // what was held back, and the piece
};

}  // namespace weir
