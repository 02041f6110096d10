// Pages as pictures show them; see demo_pages.h.
#include "demo_pages.h"

#include <algorithm>

namespace weir_cli {

void PageStrip::look(const DemoLane& lane) {
  std::vector<weir_page_state> now = lane.pages();
  const weir_plan_info& plan = lane.plan();
  const uint32_t n_streams = plan.n_streams;
  pages_.assign(now.size(), {});
  secret_places_ = secret_in_pool_ = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    PageMark& mark = pages_[i];
    mark.in_pool = static_cast<double>(now[i].resident) / n_streams;
    mark.is_lost = now[i].resident == 0 && now[i].cold == 0;
    mark.is_secret = i >= first_ / plan.page_tokens && i <= (end_ - 1) / plan.page_tokens;
    // A page that was not there before has not come back, it is new.
    const uint32_t n_back =
        i < before_.size() && now[i].resident > before_[i].resident ? now[i].resident - before_[i].resident : 0u;
    const bool is_new = i + 1 >= before_.size();
    mark.came_back = !is_new && n_back >= (mark.is_secret ? 1 : std::max(1u, n_streams / 8));
    if (!mark.is_secret) continue;
    secret_places_ += n_streams;
    secret_in_pool_ += now[i].resident;
    secret_returns_ += n_back;
  }
  before_ = std::move(now);
}

std::vector<PageMark> PageStrip::in(size_t n) const {
  if (pages_.size() <= n || n == 0) return pages_;
  std::vector<PageMark> marks(n);
  for (size_t k = 0; k < n; ++k) {
    const size_t first = k * pages_.size() / n, end = (k + 1) * pages_.size() / n;
    marks[k].is_lost = true;
    for (size_t i = first; i < end; ++i) {
      marks[k].in_pool += pages_[i].in_pool / static_cast<double>(end - first);
      marks[k].is_lost &= pages_[i].is_lost;
      marks[k].came_back |= pages_[i].came_back;
      marks[k].is_secret |= pages_[i].is_secret;
    }
  }
  return marks;
}

}  // namespace weir_cli
