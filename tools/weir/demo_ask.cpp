// Asking for a secret; see demo_ask.h.
#include "demo_ask.h"

#include <chrono>
#include <stdexcept>

#include "demo_story.h"
#include "line_buffer.h"
#include "options.h"
#include "output.h"

namespace weir_cli {

std::string ask_secret(const std::string& usual, int seconds, const Style& style) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  LineBuffer line;
  LiveBlock block;
  std::string wrong;
  for (bool has_typed = false;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (!has_typed && left <= 0) return usual;
    std::string text = std::string(style.bold) + "Your secret, six digits" + style.reset;
    if (!has_typed) text += format(" (or %s, in %d s)", usual.c_str(), static_cast<int>((left + 999) / 1000));
    block.draw({text + ": " + plain_line(line.text()) + wrong});
    switch (wait_for_keys(has_typed ? -1 : static_cast<int>(left % 1000 + 1))) {
      case KeyWait::kInterrupted:
        throw std::runtime_error("cancelled");
      case KeyWait::kEnd:
        throw std::runtime_error("the terminal has ended");
      default:
        break;
    }
    for (char key; next_key(key);) {
      has_typed = true;
      wrong.clear();
      const LineBuffer::Key what = line.feed(key);
      if (what == LineBuffer::Key::kText) continue;
      const std::string typed = line.text().empty() ? usual : line.text();
      if (parse_secret(typed)) {
        block.draw({text.substr(0, text.find(" (or")) + ": " + plain_line(typed)});
        return typed;
      }
      wrong = "   six digits, such as " + usual;
      line.clear();
    }
  }
}

}  // namespace weir_cli
