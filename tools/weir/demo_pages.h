// The pages of a lane as pictures show them: how much of each is in the pool, what just came back, what is lost, and
// which hold the secret.
#pragma once

#include <cstdint>
#include <vector>

#include "demo_lanes.h"

namespace weir_cli {

struct PageMark {
  double in_pool = 0;      // part of the streams that have it in the pool, 0..1
  bool is_lost = false;    // in no stream's pool and in no store
  bool came_back = false;  // since the last look, in an eighth of the streams at least; of the secret in any
  bool is_secret = false;
};

class PageStrip {
 public:
  // The tokens of the secret, from `first` to before `end`.
  PageStrip(uint32_t first, uint32_t end) : first_(first), end_(end) {}

  void look(const DemoLane& lane);
  const std::vector<PageMark>& pages() const { return pages_; }
  // Streams, of all that could, that have a page of the secret in the pool, and that ever got one back between two
  // looks since count_from_here().
  uint32_t secret_places() const { return secret_places_; }
  uint32_t secret_places_in_pool() const { return secret_in_pool_; }
  uint32_t secret_returns() const { return secret_returns_; }
  void count_from_here() { secret_returns_ = 0; }

  // The same in `n` marks, each of some pages that follow one another; as it is where there are no more than `n`.
  std::vector<PageMark> in(size_t n) const;

 private:
  uint32_t first_, end_;
  std::vector<weir_page_state> before_;
  std::vector<PageMark> pages_;
  uint32_t secret_places_ = 0, secret_in_pool_ = 0, secret_returns_ = 0;
};

}  // namespace weir_cli
