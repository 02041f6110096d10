// See picture.h.
#include "server/picture.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace weir_server {

std::string picture_of(weir_session* session, size_t max_pages, const std::string& before) {
  std::vector<weir_page_state> pages(max_pages);
  uint32_t n_pages = 0;
  const weir_status status = weir_session_pages(session, pages.data(), static_cast<uint32_t>(pages.size()), &n_pages);
  pages.resize(status == WEIR_OK ? n_pages : 0);
  const auto was_resident = [&](size_t i) { return i < before.size() && (before[i] == '#' || before[i] == '*'); };
  std::string picture;
  std::vector<size_t> resident;
  uint64_t n_resident = 0, n_streams = 1;
  for (size_t i = 0; i < pages.size(); ++i) {
    const weir_page_state& p = pages[i];
    picture += p.lost > p.cold + p.resident ? 'x' : '.';
    n_resident += p.resident;
    n_streams = std::max<uint64_t>(n_streams, p.resident + p.cold + p.lost);
    if (p.resident > 0) resident.push_back(i);
  }
  const size_t n = std::min<size_t>(resident.size(), (n_resident + n_streams - 1) / n_streams);
  const auto place = [&](size_t i) { return std::tuple(pages[i].resident, was_resident(i), i); };
  std::partial_sort(resident.begin(), resident.begin() + static_cast<std::ptrdiff_t>(n), resident.end(),
                    [&](size_t a, size_t b) { return place(a) > place(b); });
  for (size_t k = 0; k < n; ++k) {
    const size_t i = resident[k];
    picture[i] = i < before.size() && !was_resident(i) ? '*' : '#';
  }
  return picture;
}

}  // namespace weir_server
