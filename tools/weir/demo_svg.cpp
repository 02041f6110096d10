// The picture of `weir demo`; see demo_svg.h. Sizes are in SVG user units, which are pixels at a scale of one.
#include "demo_svg.h"

#include <algorithm>

#include "options.h"
#include "plot.h"

namespace weir_cli {
namespace {

constexpr double kWidth = 860, kLeft = 24, kBarLeft = 116, kBarRight = 640, kBarHeight = 26, kLaneHeight = 62;
constexpr double kLanesTop = 118, kCell = 13;
constexpr size_t kCellsInRow = 56;

// Contrast of every text to its background is 4.5 at least, in both.
constexpr char kStyle[] =
    "<style>"
    "svg{font:14px sans-serif}"
    ".page{fill:#ffffff}.text{fill:#1f2328}.dim{fill:#59636e}.bar{fill:#2f6f9f}.over{fill:#c4432b}"
    ".mark{stroke:#d1242f;stroke-width:3}.red{fill:#b3202a}.green{fill:#1a7037}"
    ".pool{fill:#2f6f9f}.cell{fill:none;stroke:#8c959f}.back{fill:#bc6a00}.lost{stroke:#b3202a;fill:none}"
    "@media (prefers-color-scheme:dark){"
    ".page{fill:#0d1117}.text{fill:#f0f6fc}.dim{fill:#9198a1}.bar{fill:#4493c9}.over{fill:#f47067}"
    ".mark{stroke:#ff6a69}.red{fill:#ff7b72}.green{fill:#57c46b}"
    ".pool{fill:#4493c9}.cell{stroke:#656c76}.back{fill:#f0a83c}.lost{stroke:#ff7b72}}"
    "</style>\n";

std::string text_at(double x, double y, const char* style, const std::string& text, const char* more = "") {
  return format("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\"%s>", x, y, style, more) + svg_escaped(text) + "</text>\n";
}

std::string box(double x, double y, double width, double height, const char* style, double opacity = 1) {
  return format(
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\" class=\"%s\" fill-opacity=\"%.2f\"/>\n", x,
      y, width, height, style, opacity);
}

std::string lane_row(const DemoPicture::LaneResult& lane, double y, double mark, double per_byte) {
  const double length = static_cast<double>(lane.kv_bytes) * per_byte;
  std::string out = text_at(kLeft, y + 18, "text", lane.name, " font-weight=\"bold\"");
  out += box(kBarLeft, y, std::min(length, mark), kBarHeight, "bar");
  if (length > mark) out += box(kBarLeft + mark, y, length - mark, kBarHeight, "over");
  out += format("<path d=\"M%.1f %.1fv%.1f\" class=\"mark\"/>\n", kBarLeft + mark, y - 6, kBarHeight + 10);
  std::string bytes = human_bytes(lane.kv_bytes);
  if (lane.file_bytes > 0) bytes += " in memory, " + human_bytes(lane.file_bytes) + " on disk";
  bytes += ": " + lane.keeps;
  out += text_at(kBarLeft, y + kBarHeight + 18, "dim", bytes);
  out += text_at(kBarRight + 20, y + 18, "text", lane.answer);
  out += text_at(kBarRight + 130, y + 18, lane.is_right ? "green" : "red", lane.is_right ? "✓ right" : "✗ wrong",
                 " font-weight=\"bold\"");
  return out;
}

std::string page_cell(const PageMark& page, double x, double y) {
  constexpr double kSide = kCell - 3;
  std::string out = box(x, y, kSide, kSide, "cell");
  if (page.in_pool > 0) out += box(x, y, kSide, kSide, page.came_back ? "back" : "pool", 0.25 + 0.75 * page.in_pool);
  if (page.is_lost)
    out += format("<path d=\"M%.1f %.1fl%.1f %.1f\" class=\"lost\"/>\n", x + 2, y + 2, kSide - 4, kSide - 4);
  if (page.is_secret) out += format("<path d=\"M%.1f %.1fl4 6h-8z\" class=\"red\"/>\n", x + kSide / 2, y + kSide + 1);
  return out;
}

std::string legend(double y) {
  std::string out;
  double x = kBarLeft;
  const auto entry = [&](const PageMark& page, const char* text, double width) {
    out += page_cell(page, x, y);
    out += text_at(x + 17, y + 10, "dim", text);
    x += width;
  };
  PageMark page;
  page.in_pool = 1;
  entry(page, "in the pool", 108);
  page.came_back = true;
  entry(page, "just came back", 134);
  entry({}, "outside, kept", 122);
  page = {};
  page.is_lost = true;
  entry(page, "lost", 60);
  page = {};
  page.is_secret = true;
  entry(page, "holds the secret", 120);
  return out;
}

}  // namespace

std::string demo_svg(const DemoPicture& picture) {
  uint64_t most = picture.mark_bytes;
  for (const auto& lane : picture.lanes) most = std::max(most, lane.kv_bytes);
  const double per_byte = (kBarRight - kBarLeft) / static_cast<double>(most);
  const double mark = static_cast<double>(picture.mark_bytes) * per_byte;
  const double pages_top = kLanesTop + kLaneHeight * static_cast<double>(picture.lanes.size()) + 8;
  const double rows = static_cast<double>((picture.pages.size() + kCellsInRow - 1) / kCellsInRow);
  const double legend_top = pages_top + rows * (kCell + 6) + 10, height = legend_top + 58;

  std::string body = box(0, 0, kWidth, height, "page");
  body += text_at(kLeft, 34, "text", picture.headline, " font-size=\"17\" font-weight=\"bold\"");
  body += text_at(kLeft, 60, "dim", picture.told);
  body += text_at(kBarRight + 20, 96, "dim", "the secret was " + picture.secret);
  double y = kLanesTop;
  for (const auto& lane : picture.lanes) {
    body += lane_row(lane, y, mark, per_byte);
    y += kLaneHeight;
  }
  body += text_at(kBarLeft + mark, kLanesTop - 14, "red", "budget " + human_bytes(picture.mark_bytes),
                  " text-anchor=\"middle\"");
  body += text_at(kLeft, pages_top + 10, "text", "pages");
  for (size_t i = 0; i < picture.pages.size(); ++i) {
    body += page_cell(picture.pages[i], kBarLeft + kCell * static_cast<double>(i % kCellsInRow),
                      pages_top + (kCell + 6) * static_cast<double>(i / kCellsInRow));
  }
  body += legend(legend_top);
  body += text_at(kLeft, height - 16, "dim", picture.footer, " font-size=\"12\"");
  std::string about = picture.headline;
  for (const auto& lane : picture.lanes)
    about += " " + lane.name + ": " + human_bytes(lane.kv_bytes) + ", " + (lane.is_right ? "right." : "wrong.");
  return format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n", kWidth, height) +
         "<title>" + svg_escaped(about) + "</title>\n" + kStyle + body + "</svg>\n";
}

}  // namespace weir_cli
