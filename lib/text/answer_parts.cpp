// The parts of an answer; see answer_parts.h.
#include "text/answer_parts.h"

#include <algorithm>
#include <cstring>

namespace weir {
namespace {

using std::string_view;

static_assert(static_cast<int32_t>(AnswerPlace::kAnswer) == WEIR_SEGMENT_ANSWER &&
              static_cast<int32_t>(AnswerPlace::kThought) == WEIR_SEGMENT_THOUGHT &&
              static_cast<int32_t>(AnswerPlace::kCall) == WEIR_SEGMENT_TOOL_CALL &&
              static_cast<int32_t>(AnswerPlace::kHeader) == WEIR_SEGMENT_MARK);

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

string_view without_space(string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return text;
}

string_view without_space_behind(string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

void BracketState::reset(bool both_quotes, bool late) {
  *this = {};
  both_quotes_ = both_quotes;
  late_ = late;
}

void BracketState::push(char c) {
  if (quote_ != 0) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == quote_) {
      quote_ = 0;
    }
    return;
  }
  const bool opens = c == '{' || c == '[';
  if (!has_any_) {
    if (is_space(c)) return;
    has_any_ = opens && (!begun_ || (late_ && c == '{'));
    begun_ = true;
    if (!has_any_) return;
  }
  if (opens) ++depth_;
  if ((c == '}' || c == ']') && depth_ != 0) --depth_;
  if (c == '"' || (both_quotes_ && c == '\'')) quote_ = c;
}

void AnswerParts::begin(const AnswerFormat& format, const State& state) {
  format_ = &format;
  state_ = state;
  n_calls_ = 0;
  only_space_ = true;
  first_ = n_done_ = n_text_ = n_allowed_ = 0;
  append({state_.held, state_.n_held}, kHidden);  // given already
  state_.n_held = 0;
}

// A mark that is no tag begins a turn. User's text has no marks, so nothing of it counts.
void AnswerParts::begin_behind(const AnswerFormat& format, const Tokenizer& tokenizer,
                               std::span<const weir_token> prompt) {
  begin(format, {});
  if (format.n_tags == 0) return;
  size_t first = prompt.size();
  for (bool is_behind = true; is_behind && first > 0;) {
    const weir_token token = prompt[first - 1];
    const auto same = [&](const AnswerTag& tag) { return tag.token == token; };
    const auto tags = format.tags();
    const auto tag = std::find_if(tags.begin(), tags.end(), same);
    if (tag == tags.end() && tokenizer.is_mark(token)) break;
    is_behind = tag == tags.end() || static_cast<AnswerPlace>(tag->to) != AnswerPlace::kHeader;
    --first;
  }
  for (const weir_token token : prompt.subspan(first)) {
    const bool in_header = state_.place == AnswerPlace::kHeader;
    if (in_header || tag_of(token) != nullptr) push(token, "", tokenizer.decode(token, true, false));
    leave_out();
  }
  if (format.tag[0].token >= 0 || *format.thought_begin == '\0') return;
  // Tags that are text count at the very end alone.
  const string_view begin = without_space_behind(format.thought_begin);
  char text[2 * AnswerFormat::kMaxTagBytes];
  size_t n = 0;
  for (size_t i = prompt.size(); i > 0 && n < sizeof(text); --i) {
    string_view bytes = tokenizer.decode(prompt[i - 1], true, false);
    if (n == 0) bytes = without_space_behind(bytes);
    const size_t n_bytes = std::min(bytes.size(), sizeof(text) - n);
    bytes.substr(bytes.size() - n_bytes).copy(text + sizeof(text) - n - n_bytes, n_bytes);
    n += n_bytes;
  }
  if (string_view(text + sizeof(text) - n, n).ends_with(begin)) state_.place = AnswerPlace::kThought;
}

bool AnswerParts::is_tag(const AnswerTag& tag) const {
  if (((tag.from >> static_cast<uint32_t>(state_.place)) & 1u) == 0) return false;
  return state_.place != AnswerPlace::kCall || tag.call == 0 || tag.call == state_.call;
}

// Whether the call that is open has a tag that ends it.
bool AnswerParts::has_end_tag() const {
  const auto tags = format_->tags();
  return state_.call != 0 && std::any_of(tags.begin(), tags.end(), [&](const AnswerTag& tag) {
           return tag.ends_call && tag.call == state_.call;
         });
}

const AnswerTag* AnswerParts::tag_of(weir_token token) const {
  for (const AnswerTag& tag : format_->tags()) {
    if (tag.token == token && is_tag(tag)) return &tag;
  }
  return nullptr;
}

void AnswerParts::append(string_view text, uint8_t attribute) {
  // Hidden text has no end where stop strings hold back what is before it; tags that count are short.
  const size_t room = attribute == 0 ? sizeof(text_) - n_text_ : kMaxHidden - std::min<size_t>(kMaxHidden, n_text_);
  if (text.size() > room) return;
  text.copy(text_ + n_text_, text.size());  // which may have no address
  std::memset(attributes_ + n_text_, attribute, text.size());
  n_text_ += static_cast<uint32_t>(text.size());
}

void AnswerParts::push(weir_token token, string_view shown, string_view hidden) {
  if (first_ != 0) {
    std::memmove(text_, text_ + first_, n_text_ - first_);
    std::memmove(attributes_, attributes_ + first_, n_text_ - first_);
    n_text_ -= first_;
    n_done_ -= first_;
    first_ = 0;
  }
  const AnswerTag* tag = token < 0 ? nullptr : tag_of(token);
  if (tag == nullptr) {
    append(shown, 0);
    append(hidden, kHidden);
    return classify(false);
  }
  // What the bytes of earlier tokens had left open may come out before the tag.
  const bool is_shown = shown.ends_with(tag->text);
  append(is_shown ? shown.substr(0, shown.size() - tag->text.size()) : shown, 0);
  classify(true);
  if (tag = tag_of(token); tag == nullptr) return;  // that ended a call without tags
  const uint32_t before = n_text_;
  append(is_shown ? tag->text : hidden, is_shown ? 0 : kHidden);
  enter(*tag, n_text_ - before);
}

void AnswerParts::finish(string_view rest) {
  append(rest, 0);
  classify(false);
  const size_t n = std::min<size_t>(n_text_ - n_done_, sizeof(state_.held));
  char held[sizeof(state_.held)];
  std::memcpy(held, text_ + (n_text_ - n), n);
  State before = state_;
  classify(true);
  // The next answer may go on in the middle of a tag.
  if (n == 0) return;
  state_ = before;
  state_.n_held = static_cast<uint8_t>(n);
  std::memcpy(state_.held, held, n);
}

void AnswerParts::leave_out() {
  first_ = n_done_;
  n_allowed_ = 0;
}

bool AnswerParts::take(Piece& piece) {
  if (first_ == n_done_) return false;
  const uint8_t attribute = attributes_[first_];
  piece.is_shown = (attribute & kHidden) == 0;
  piece.opens_call = (attribute & kOpensCall) != 0;
  piece.segment = attribute & (kTag - 1);
  uint32_t n = 1;
  while (first_ + n < n_done_ && attributes_[first_ + n] == attribute) ++n;
  if (piece.is_shown) {
    n = std::min(n, n_allowed_);
    if (n == 0) return false;
    n_allowed_ -= n;
  }
  std::memcpy(given_, text_ + first_, n);
  given_[n] = '\0';
  piece.text = {given_, n};
  first_ += n;
  return true;
}

// Whether an answer that begins so calls a function without any tag: {"name" or, in other orders, its like.
AnswerParts::Bare AnswerParts::bare_call(string_view text) const {
  if (text.empty() || text.front() != '{') return Bare::kNo;
  const string_view key = without_space(text.substr(1));
  bool is_unclear = false;
  for (const string_view name : {"\"name\"", "\"type\"", "\"function\"", "\"parameters\""}) {
    if (key.starts_with(name)) return Bare::kYes;
    is_unclear = is_unclear || name.starts_with(key);
  }
  return is_unclear && text.size() < AnswerFormat::kMaxTagBytes ? Bare::kUnclear : Bare::kNo;
}

// Where the tag begins; in the text of a call that is JSON not inside of a string.
size_t AnswerParts::find_tag(string_view text, const AnswerTag& tag) const {
  size_t at = text.find(tag.text);
  if (state_.place != AnswerPlace::kCall) return at;
  BracketState brackets = state_.brackets;
  for (size_t i = 0; at != string_view::npos; at = text.find(tag.text, at + 1)) {
    for (; i < at; ++i) brackets.push(text[i]);
    if (!brackets.in_quotes()) break;
  }
  return at;
}

// Bytes at the end of the text that are the beginning of a tag.
size_t AnswerParts::may_become_tag(string_view text) const {
  size_t most = 0;
  for (const AnswerTag& tag : format_->tags()) {
    if (tag.token >= 0 || !is_tag(tag)) continue;
    size_t n = std::min(text.size(), tag.text.size() - 1);
    while (n > most && !tag.text.starts_with(text.substr(text.size() - n))) --n;
    most = std::max(most, n);
  }
  return most;
}

void AnswerParts::classify(bool is_end) {
  while (n_done_ < n_text_) {
    const string_view text(text_ + n_done_, n_text_ - n_done_);
    if (state_.place == AnswerPlace::kCall && state_.is_bare) {
      mark_bare_call();
      continue;
    }
    if (state_.place == AnswerPlace::kAnswer && format_->bare_calls && state_.at_start) {
      size_t n = 0;
      while (n < text.size() && (is_space(text[n]) || (n_calls_ != 0 && (text[n] == ';' || text[n] == ',')))) ++n;
      mark_text(n);
      const Bare bare = bare_call(text.substr(n));
      if (bare == Bare::kUnclear && !is_end) return;
      state_.at_start = n == text.size() || bare == Bare::kYes;
      if (bare == Bare::kYes) {
        state_.place = AnswerPlace::kCall;
        state_.call = 0;
        state_.is_bare = true;
        state_.brackets.reset(false, false);
      }
      continue;
    }
    const AnswerTag* next = nullptr;
    size_t at = string_view::npos;
    for (const AnswerTag& tag : format_->tags()) {
      if (tag.token >= 0 || !is_tag(tag)) continue;
      const size_t found = find_tag(text, tag);
      if (found >= at) continue;
      at = found;
      next = &tag;
    }
    if (next == nullptr) return mark_text(text.size() - (is_end ? 0 : may_become_tag(text)));
    mark_text(at);
    enter(*next, next->text.size());
  }
}

// The next n bytes belong where the answer is.
void AnswerParts::mark_text(size_t n) {
  for (size_t i = n_done_; i < n_done_ + n; ++i) {
    const char c = text_[i];
    attributes_[i] = static_cast<uint8_t>((attributes_[i] & kHidden) | static_cast<uint8_t>(state_.place));
    if (state_.place == AnswerPlace::kCall) {
      state_.brackets.push(c);
    } else if (state_.place == AnswerPlace::kHeader) {
      if (state_.n_header < sizeof(state_.header)) state_.header[state_.n_header++] = c;
    } else if (state_.place == AnswerPlace::kAnswer && !is_space(c)) {
      only_space_ = false;
      if (!format_->bare_calls) state_.at_start = false;
    }
  }
  n_done_ += static_cast<uint32_t>(n);
}

void AnswerParts::mark_bare_call() {
  while (n_done_ < n_text_ && !state_.brackets.is_closed()) mark_text(1);
  if (state_.brackets.is_closed()) leave_call();
}

void AnswerParts::leave_call() {
  ++n_calls_;
  only_space_ = true;
  state_.place = AnswerPlace::kAnswer;
  state_.is_bare = false;
}

// The next n bytes are a tag.
void AnswerParts::enter(const AnswerTag& tag, size_t n) {
  const bool was_header = state_.place == AnswerPlace::kHeader;
  if (state_.place == AnswerPlace::kCall) leave_call();
  state_.place = static_cast<AnswerPlace>(tag.to);
  if (tag.to == AnswerTag::kByHeader) {
    const string_view header(state_.header, state_.n_header);
    const bool is_call = header.find("to=") != string_view::npos;
    const bool is_thought = header.find("analysis") != string_view::npos;
    state_.place = is_call ? AnswerPlace::kCall : is_thought ? AnswerPlace::kThought : AnswerPlace::kAnswer;
  }
  odd_ ^= kOdd;
  const bool opens_call = state_.place == AnswerPlace::kCall;
  const int attribute =
      tag.is_kept ? WEIR_SEGMENT_TOOL_CALL : WEIR_SEGMENT_MARK | kTag | odd_ | (opens_call ? kOpensCall : 0);
  for (size_t i = 0; i < n; ++i, ++n_done_)
    attributes_[n_done_] = static_cast<uint8_t>((attributes_[n_done_] & kHidden) | attribute);
  if (state_.place == AnswerPlace::kHeader) {
    if (!was_header) state_.n_header = 0;
    if (was_header && state_.n_header < sizeof(state_.header)) state_.header[state_.n_header++] = ' ';
  }
  if (opens_call) {
    state_.call = tag.call;
    state_.at_start = false;
    state_.brackets.reset(format_->form == CallForm::kPython, format_->form == CallForm::kMistral);
    if (tag.is_kept && tag.text.ends_with('[')) state_.brackets.push('[');
  }
}

bool AnswerParts::ends_calls(weir_token token, string_view text) const {
  const bool is_open = state_.place == AnswerPlace::kCall;
  if (is_open ? has_end_tag() || !state_.brackets.is_closed()
              : n_calls_ == 0 || !only_space_ || state_.place != AnswerPlace::kAnswer)
    return false;
  if (const AnswerTag* tag = tag_of(token); tag != nullptr)
    return static_cast<AnswerPlace>(tag->to) == AnswerPlace::kThought;
  // With what is held back it may become a tag yet.
  char joined[2 * AnswerFormat::kMaxTagBytes];
  size_t n = std::min<size_t>(n_text_ - n_done_, sizeof(joined) / 2);
  std::memcpy(joined, text_ + (n_text_ - n), n);
  n += text.copy(joined + n, sizeof(joined) - n);
  const string_view next = without_space(string_view(joined, n));
  if (next.empty()) return false;
  if (format_->bare_calls && (next.front() == '{' || next.front() == ';' || next.front() == ',')) return false;
  for (const AnswerTag& tag : format_->tags()) {
    if (tag.token >= 0 || !is_tag(tag)) continue;
    if (next.starts_with(tag.text) || tag.text.starts_with(next)) return false;
  }
  return true;
}

}  // namespace weir
