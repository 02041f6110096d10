// The picture of `weir demo`: three lanes with their memory, the budget, right and wrong, and the pages of the last
// lane. It is drawn for light and for dark pages, by what the reader's browser prefers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "demo_pages.h"

namespace weir_cli {

inline constexpr size_t kPicturePages = 224;

struct DemoPicture {
  struct LaneResult {
    std::string name, keeps, answer;
    uint64_t kv_bytes = 0, file_bytes = 0;
    bool is_right = false;
  };
  std::string headline, told, secret;
  uint64_t mark_bytes = 0;
  std::vector<LaneResult> lanes;
  std::vector<PageMark> pages;  // of the last lane while it was asked, at most kPicturePages marks
  std::string footer;
};

// A whole SVG document.
std::string demo_svg(const DemoPicture& picture);

}  // namespace weir_cli
