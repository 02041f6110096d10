// Keys and rows of a line that is being typed; see line_buffer.h.
#include "line_buffer.h"

#include <utility>

#include "terminal.h"

namespace weir_cli {
namespace {

constexpr char kEscape = '\x1b';
constexpr char kPasteEnd[] = "\x1b[201~";
constexpr size_t kLongestSequence = 16;
constexpr int kTabColumns = 4;

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

size_t length_of_character(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 1;
}

constexpr char ctrl(char letter) { return static_cast<char>(letter & 0x1f); }

// A key's escape sequence is complete: CSI and SS3 end with a letter or ~, anything else after one byte.
bool is_complete(const std::string& sequence) {
  if (sequence.size() < 2) return false;
  if (sequence[1] != '[' && sequence[1] != 'O') return true;
  if (sequence.size() == 2) return false;
  const char last = sequence.back();
  return last >= 0x40 && last <= 0x7e;
}

}  // namespace

void LineBuffer::clear() {
  text_.clear();
  cursor_ = 0;
  history_at_ = history_.size();
}

void LineBuffer::set(const std::string& text) {
  text_ = text;
  cursor_ = text_.size();
}

void LineBuffer::remember(const std::string& line) {
  if (history_.empty() || history_.back() != line) history_.push_back(line);
  history_at_ = history_.size();
}

LineBuffer::Key LineBuffer::feed(char byte) {
  if (!sequence_.empty() || byte == kEscape) {
    sequence_ += byte;
    if (sequence_.size() > kLongestSequence) sequence_.clear();
    if (is_complete(sequence_)) escape_sequence();
    return Key::kText;
  }
  if (!character_.empty() && !is_continuation(byte)) character_.clear();  // what was cut off is no text
  const auto code = static_cast<unsigned char>(byte);
  if (code < 0x20 || code == 0x7f) {
    if (!pasting_) return control(byte);
    const bool ends_pair = std::exchange(after_return_, byte == '\r') && byte == '\n';
    if ((byte == '\n' && !ends_pair) || byte == '\r') insert("\n");
    if (byte == '\t') insert("\t");
    return Key::kText;
  }
  after_return_ = false;
  character_ += byte;
  if (character_.size() >= length_of_character(character_[0])) insert(std::exchange(character_, {}));
  return Key::kText;
}

LineBuffer::Key LineBuffer::control(char byte) {
  switch (byte) {
    case '\r':
    case '\n':
      if (cursor_ == text_.size() && text_.ends_with('\\')) {
        text_.back() = '\n';
        return Key::kText;
      }
      cursor_ = text_.size();
      return Key::kEnter;
    case '\t':
      insert("\t");
      break;
    case ctrl('a'):
      cursor_ = 0;
      break;
    case ctrl('e'):
      cursor_ = text_.size();
      break;
    case ctrl('b'):
      cursor_ = before(cursor_);
      break;
    case ctrl('f'):
      cursor_ = after(cursor_);
      break;
    case ctrl('d'):
      if (text_.empty()) return Key::kEnd;
      erase(cursor_, after(cursor_));
      break;
    case ctrl('h'):
    case '\x7f':
      erase(before(cursor_), cursor_);
      break;
    case ctrl('k'):
      erase(cursor_, text_.size());
      break;
    case ctrl('u'):
      erase(0, cursor_);
      break;
    case ctrl('w'):
      erase(word_before(cursor_), cursor_);
      break;
    case ctrl('p'):
      if (history_at_ > 0) recall(history_at_ - 1);
      break;
    case ctrl('n'):
      if (history_at_ < history_.size()) recall(history_at_ + 1);
      break;
    default:
      break;
  }
  return Key::kText;
}

void LineBuffer::escape_sequence() {
  const std::string key = std::exchange(sequence_, {});
  if (pasting_) {
    if (key == kPasteEnd) pasting_ = false;
    return;  // others have no place in a text
  }
  const auto is_one_of = [&](std::initializer_list<const char*> keys) {
    for (const char* name : keys) {
      if (key.compare(1, std::string::npos, name) == 0) return true;
    }
    return false;
  };
  if (is_one_of({"[200~"})) pasting_ = true;
  if (is_one_of({"\r", "\n"})) insert("\n");  // Alt-Enter
  if (is_one_of({"[D", "OD"})) cursor_ = before(cursor_);
  if (is_one_of({"[C", "OC"})) cursor_ = after(cursor_);
  if (is_one_of({"[A", "OA"})) control(ctrl('p'));
  if (is_one_of({"[B", "OB"})) control(ctrl('n'));
  if (is_one_of({"[H", "OH", "[1~", "[7~"})) cursor_ = 0;
  if (is_one_of({"[F", "OF", "[4~", "[8~"})) cursor_ = text_.size();
  if (is_one_of({"[3~"})) erase(cursor_, after(cursor_));
  if (is_one_of({"[1;5D", "[1;3D", "b"})) cursor_ = word_before(cursor_);
  if (is_one_of({"[1;5C", "[1;3C", "f"})) cursor_ = word_after(cursor_);
}

void LineBuffer::insert(std::string_view text) {
  text_.insert(cursor_, text);
  cursor_ += text.size();
}

void LineBuffer::erase(size_t first, size_t end) {
  text_.erase(first, end - first);
  cursor_ = first;
}

void LineBuffer::recall(size_t index) {
  if (history_at_ == history_.size()) unfinished_ = text_;
  history_at_ = index;
  text_ = index == history_.size() ? unfinished_ : history_[index];
  cursor_ = text_.size();
}

size_t LineBuffer::before(size_t at) const {
  if (at > 0) --at;
  while (at > 0 && is_continuation(text_[at])) --at;
  return at;
}

size_t LineBuffer::after(size_t at) const {
  if (at < text_.size()) ++at;
  while (at < text_.size() && is_continuation(text_[at])) ++at;
  return at;
}

size_t LineBuffer::word_before(size_t at) const {
  const auto is_space = [&](size_t i) { return text_[i] == ' ' || text_[i] == '\n' || text_[i] == '\t'; };
  while (at > 0 && is_space(at - 1)) --at;
  while (at > 0 && !is_space(at - 1)) --at;
  return at;
}

size_t LineBuffer::word_after(size_t at) const {
  const auto is_space = [&](size_t i) { return text_[i] == ' ' || text_[i] == '\n' || text_[i] == '\t'; };
  while (at < text_.size() && is_space(at)) ++at;
  while (at < text_.size() && !is_space(at)) ++at;
  return at;
}

LineRows lay_out(std::string_view text, size_t cursor, int columns) {
  LineRows out;
  out.rows.push_back({"> ", ""});
  int column = 2;
  const auto note_cursor = [&](size_t at) {
    if (at != cursor) return;
    out.cursor_row = out.rows.size() - 1;
    out.cursor_column = column;
  };
  for (size_t i = 0; i < text.size();) {
    size_t n = 1;
    while (i + n < text.size() && is_continuation(text[i + n])) ++n;
    const std::string_view character = text.substr(i, n);
    if (character == "\n") {
      note_cursor(i);
      out.rows.push_back({". ", ""});
      column = 2;
    } else {
      const bool is_tab = character == "\t";
      const int width = is_tab ? kTabColumns : display_width(character);
      if (column + width > columns - 1) {  // the last column is left alone: terminals differ in what happens there
        out.rows.push_back({"", ""});
        column = 0;
      }
      note_cursor(i);
      out.rows.back().text += is_tab ? std::string(kTabColumns, ' ') : std::string(character);
      column += width;
    }
    i += n;
  }
  note_cursor(text.size());
  return out;
}

}  // namespace weir_cli
