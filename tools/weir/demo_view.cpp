// Drawing the lanes of `weir demo`; see demo_view.h.
#include "demo_view.h"

#include <algorithm>
#include <thread>

#include "options.h"
#include "output.h"

namespace weir_cli {
namespace {

constexpr int kNameColumns = 11, kBytesColumns = 10, kNoteColumns = 22;
constexpr int kMinRows = 15, kMinStripRows = 9;  // below these a lane's text is left out, and the strip
constexpr auto kMoment = std::chrono::milliseconds(110);

int columns() { return terminal_size().columns - 1; }
int bar_columns() { return std::clamp(columns() - kNameColumns - kBytesColumns - kNoteColumns, 8, 60); }

// The last line of an answer that has anything in it.
std::string last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  const size_t end = text.rfind('\n');
  return plain_line(end == std::string_view::npos ? text : text.substr(end + 1));
}

// A page by how much of it is in the pool.
const char* page_sign(const PageMark& page) {
  static const char* const kSigns[] = {"·", "░", "▒", "▓", "█"};
  static const char* const kAscii[] = {".", "-", "=", "%", "#"};
  const bool utf8 = locale_is_utf8();
  if (page.is_lost) return utf8 ? "×" : "x";
  const int level = page.in_pool <= 0     ? 0
                    : page.in_pool < 0.34 ? 1
                    : page.in_pool < 0.67 ? 2
                    : page.in_pool < 1    ? 3
                                          : 4;
  return (utf8 ? kSigns : kAscii)[level];
}

}  // namespace

DemoView::DemoView(const DemoScale& scale, uint32_t lines_every, bool live)
    : scale_(scale), lines_every_(lines_every), live_(live), style_(live) {}

void DemoView::frame(const std::string& doing, const DemoLanes& lanes, const PageStrip& strip,
                     const std::function<void()>& look) {
  if (live_) {
    if (!throttle_.due()) return;
    look();
    draw(doing, lanes, strip, nullptr);
    return;
  }
  const std::vector<DemoLane>& all = lanes.all();
  if (!line_is_due(all.back().state().n_tokens, lines_every_)) return;
  std::string line = format("%-9s %7s tokens", doing.c_str(), grouped(all.back().state().n_tokens).c_str());
  for (const DemoLane& lane : all)
    line += format("   %s %s", lane.name().c_str(), human_bytes(lane.state().kv_bytes).c_str());
  put_line(line);
  flush_output();
}

void DemoView::slow_frame(const std::string& doing, const DemoLanes& lanes, const PageStrip& strip,
                          const Question* question) {
  if (!live_) return;
  draw(doing, lanes, strip, question);
  std::this_thread::sleep_for(kMoment);
}

bool DemoView::line_is_due(uint32_t n_tokens, uint32_t every) {
  if (n_tokens < next_line_) return false;
  next_line_ = (n_tokens / every + 1) * every;
  return true;
}

std::string DemoView::marked_bar(double bytes, const DemoScale& scale, int columns) const {
  const bool utf8 = locale_is_utf8();
  const auto most = static_cast<double>(std::max<uint64_t>(scale.max_bytes, 1));
  const int mark =
      std::clamp(static_cast<int>(static_cast<double>(scale.mark_bytes) / most * columns + 0.5), 1, columns);
  const int n_full = std::clamp(static_cast<int>(bytes / most * columns + 0.5), bytes > 0 ? 1 : 0, columns);
  std::string text = style_.green;
  for (int i = 0; i < columns; ++i) {
    if (i == mark) text += std::string(style_.red) + (utf8 ? "┃" : "|");
    text += i < n_full ? (utf8 ? "█" : "#") : " ";
  }
  return text + style_.reset;
}

std::string DemoView::lane_line(const DemoLane& lane) const {
  const DemoLaneState state = lane.state();
  const auto used = static_cast<double>(state.kv_bytes);
  std::string note;
  if (state.kv_bytes > scale_.mark_bytes)
    note = style_.red + format("%.1fx the budget", used / static_cast<double>(scale_.mark_bytes)) + style_.reset;
  else if (state.file_bytes > 0)
    note = "+ " + human_bytes(state.file_bytes) + " on disk";
  return style_.bold + format("%-*s", kNameColumns, lane.name().c_str()) + style_.reset +
         format("%*s ", kBytesColumns - 1, human_bytes(state.kv_bytes).c_str()) +
         marked_bar(used, scale_, bar_columns()) + " " + note;
}

std::vector<std::string> DemoView::strip_lines(const PageStrip& strip) const {
  const auto width = static_cast<size_t>(std::max(columns() - 10, 10));
  std::string cells = "  pages   ", marks = "          ";
  for (const PageMark& page : strip.in(width)) {
    if (page.came_back) cells += std::string(page.is_secret ? style_.bold : "") + style_.cyan;
    cells += page_sign(page);
    if (page.came_back) cells += style_.reset;
    marks += page.is_secret ? (locale_is_utf8() ? "▲" : "^") : " ";
  }
  while (!marks.empty() && marks.back() == ' ') marks.pop_back();
  marks += format(" the secret: %u of its %u places in the pool", strip.secret_places_in_pool(), strip.secret_places());
  const bool utf8 = locale_is_utf8();
  const std::string legend = std::string("  ") +
                             (utf8 ? "█ in the pool  ░ partly  · outside, not lost  × lost  "
                                   : "# in the pool  - partly  . outside, not lost  x lost  ") +
                             style_.cyan + "just came back" + style_.reset;
  return {cells, marks, legend};
}

void DemoView::draw(const std::string& doing, const DemoLanes& lanes, const PageStrip& strip,
                    const Question* question) {
  const std::vector<DemoLane>& all = lanes.all();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const uint32_t n_tokens = all.back().state().n_tokens;
  std::vector<std::string> block = {format("%s   %s tokens, %.0f a second in each lane; ", doing.c_str(),
                                           grouped(n_tokens).c_str(), n_tokens / elapsed.count()) +
                                    style_.red + (locale_is_utf8() ? "┃" : "|") + style_.reset + " the budget"};
  const bool has_room = terminal_size().rows >= kMinRows;
  for (const DemoLane& lane : all) {
    block.push_back(lane_line(lane));
    if (!has_room) continue;
    std::string said = "  " + last_line(lane.text());
    if (question != nullptr && lane.has_ended() && !lane.text().empty()) {
      const bool right = is_right(*question, lane.text());
      said += std::string("   ") + (right ? style_.green : style_.red) + (right ? "right" : "wrong") + style_.reset;
    }
    block.push_back(said);
  }
  if (terminal_size().rows >= kMinStripRows) {
    for (const std::string& line : strip_lines(strip)) block.push_back(line);
  }
  block_.draw(block);
}

void DemoView::going_on(const DemoLanes& lanes, uint32_t target, uint64_t dense_bytes_of_target) {
  const DemoLane& lane = lanes.all().back();
  const DemoLaneState state = lane.state();
  const double dense = static_cast<double>(dense_bytes_of_target) * state.n_tokens / target;
  if (live_) {
    if (!throttle_.due() && state.n_tokens < target) return;
    if (n_at_start_ == 0) n_at_start_ = state.n_tokens;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    const DemoScale scale = {scale_.mark_bytes, dense_bytes_of_target};
    block_.draw(
        {format("going on   %s of %s tokens, %.0f a second; Ctrl-C ends it", grouped(state.n_tokens).c_str(),
                grouped(target).c_str(), (state.n_tokens - n_at_start_) / elapsed.count()),
         format("%-*s%*s ", kNameColumns, "everything", kBytesColumns - 1,
                human_bytes(static_cast<uint64_t>(dense)).c_str()) +
             marked_bar(dense, scale, bar_columns()) + " it would take",
         format("%-*s%*s ", kNameColumns, lane.name().c_str(), kBytesColumns - 1, human_bytes(state.kv_bytes).c_str()) +
             marked_bar(static_cast<double>(state.kv_bytes), scale, bar_columns()) +
             format(" + %s on disk", human_bytes(state.file_bytes).c_str()),
         format("allocations while decoding %llu", static_cast<unsigned long long>(lanes.allocs_while_decoding()))});
    return;
  }
  if (!line_is_due(state.n_tokens, std::max(target / 10, lines_every_)) && state.n_tokens < target) return;
  put_format("going on  %7s tokens   %s %s   everything would take %s   allocations while decoding %llu\n",
             grouped(state.n_tokens).c_str(), lane.name().c_str(), human_bytes(state.kv_bytes).c_str(),
             human_bytes(static_cast<uint64_t>(dense)).c_str(),
             static_cast<unsigned long long>(lanes.allocs_while_decoding()));
  flush_output();
}

void DemoView::finish() {
  block_.finish();
  start_ = std::chrono::steady_clock::now();
}

}  // namespace weir_cli
