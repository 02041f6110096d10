// Cuts the stream of an answer's text into its parts: what is said, what is thought, calls of tools, and the tags
// between them. Whatever its pieces, the parts are the same: text that may become a tag is held back until that is
// clear. Fixed size, allocates nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "text/answer_format.h"
#include "text/tokenizer.h"
#include "weir/session.h"

namespace weir {

// Follows brackets and quotes, of JSON or, with both kinds of quotes, of Python.
class BracketState {
 public:
  // Where a text begins with no bracket there are none to follow, or with `late` they begin with the first brace.
  void reset(bool both_quotes, bool late);
  void push(char c);
  bool in_quotes() const { return quote_ != 0; }
  bool is_closed() const { return has_any_ && depth_ == 0; }

 private:
  bool both_quotes_ = false, late_ = false;
  bool begun_ = false, has_any_ = false, escaped_ = false;
  char quote_ = 0;
  uint32_t depth_ = 0;
};

class AnswerParts {
 public:
  static constexpr size_t kMaxHidden = 1500, kMaxWaiting = 320;

  // All that decides what the next text is.
  struct State {
    AnswerPlace place = AnswerPlace::kAnswer;
    uint8_t call = 0;      // in a call: which of the format's; 0: that of a header, or one without tags
    bool is_bare = false;  // it has no tags and ends with its last bracket
    bool at_start = true;  // there was nothing but white space
    uint8_t n_held = 0;    // bytes that were given at the end of an answer, and may be the beginning of a tag
    uint8_t n_header = 0;
    BracketState brackets;
    char held[AnswerFormat::kMaxTagBytes];
    char header[48];  // how it begins
  };

  // Begins an answer in this state.
  void begin(const AnswerFormat& format, const State& state);
  // Begins one behind a prompt, which may have opened a thought or a header.
  void begin_behind(const AnswerFormat& format, const Tokenizer& tokenizer, std::span<const weir_token> prompt);
  const State& state() const { return state_; }

  // The next token: its text that is shown, as the detokenizer gives it, or of a control token that is not shown its
  // text. Of the texts that were pushed before at most kMaxWaiting bytes have not been allowed.
  void push(weir_token token, std::string_view shown, std::string_view hidden);
  // The end, at least for now: no tag comes of what was held back. `rest` belongs to the text that is shown.
  void finish(std::string_view rest);

  struct Piece {
    int32_t segment = 0;    // weir_segment
    bool is_shown = false;  // else it is of a control token
    bool opens_call = false;
    std::string_view text;  // NUL-terminated, valid until the next call
  };
  // So many more bytes of what is shown may be given.
  void allow(size_t n_bytes) { n_allowed_ += static_cast<uint32_t>(n_bytes); }
  // The next piece, as soon as it is clear what it is. False: there is none.
  bool take(Piece& piece);
  // With the two what was taken since can be taken again, as long as nothing was pushed.
  void mark() { marked_first_ = first_, marked_allowed_ = n_allowed_; }
  void take_back() { first_ = marked_first_, n_allowed_ = marked_allowed_; }
  // Instead of taking them.
  void leave_out();

  // What the next token belongs to unless it is a tag: weir_segment.
  int32_t segment() const { return static_cast<int32_t>(state_.place); }
  bool in_thought() const { return state_.place == AnswerPlace::kThought; }
  // Whether an answer that ends here has a whole call, and whether it should end before this token: there is one, and
  // the token is no part of it nor of another one.
  bool has_call() const { return n_calls_ != 0 || (state_.place == AnswerPlace::kCall && !has_end_tag()); }
  bool ends_calls(weir_token token, std::string_view text) const;

 private:
  bool is_tag(const AnswerTag& tag) const;
  bool has_end_tag() const;
  const AnswerTag* tag_of(weir_token token) const;
  void append(std::string_view text, uint8_t attribute);
  void classify(bool is_end);
  enum class Bare { kNo, kYes, kUnclear };
  Bare bare_call(std::string_view text) const;
  size_t find_tag(std::string_view text, const AnswerTag& tag) const;
  size_t may_become_tag(std::string_view text) const;
  void mark_text(size_t n);
  void mark_bare_call();
  void enter(const AnswerTag& tag, size_t n);
  void leave_call();

  static constexpr uint8_t kHidden = 128, kOdd = 64, kOpensCall = 32, kTag = 16;
  const AnswerFormat* format_ = nullptr;
  State state_;
  uint32_t n_calls_ = 0;                                          // that are over
  bool only_space_ = true;                                        // since the latest of them
  uint8_t odd_ = 0;                                               // kOdd of the latest tag
  uint32_t first_ = 0, n_done_ = 0, n_text_ = 0, n_allowed_ = 0;  // [first, n_done): what is clear and not given
  uint32_t marked_first_ = 0, marked_allowed_ = 0;
  char text_[kMaxHidden + kMaxWaiting + Detokenizer::kMaxBytes];
  uint8_t attributes_[sizeof(
      text_)];  // of each byte, once it is clear: weir_segment; kHidden; of every other tag kOdd; kOpensCall
  char given_[sizeof(text_) + 1];
};

}  // namespace weir
