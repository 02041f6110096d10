// Notes, as lines of plain text.
#include "core/notes.h"

#include <algorithm>
#include <cstdarg>
#include <iterator>

#include "core/plain_text.h"

namespace weir {

void Notes::warn(const char* format, ...) {
  va_list args;
  va_start(args, format);
  add(Kind::kWarning, format, args);
  va_end(args);
}

void Notes::take_default(const char* format, ...) {
  va_list args;
  va_start(args, format);
  add(Kind::kDefault, format, args);
  va_end(args);
}

void Notes::leave(const char* format, ...) {
  va_list args;
  va_start(args, format);
  add(Kind::kUnused, format, args);
  va_end(args);
}

void Notes::add(Kind kind, const char* format, va_list args) {
  if (notes_.size() == kMax) {
    ++n_left_out_;
    const auto is_default = [](const Note& note) { return note.kind == Kind::kDefault; };
    const auto last = std::find_if(notes_.rbegin(), notes_.rend(), is_default);
    if (kind != Kind::kWarning || last == notes_.rend()) return;
    notes_.erase(std::next(last).base());
  }
  char line[480];  // with the file's name before it, a line of the log
  const size_t n = plain_format(line, sizeof(line), format, args);
  notes_.push_back({kind, static_cast<uint32_t>(text_.size())});
  text_.append(line, n + 1);
}

}  // namespace weir
