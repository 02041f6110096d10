#include "vulkan/hazards.h"

namespace weir::vulkan {

bool Hazards::meets(const Range* ranges, size_t n) const {
  for (size_t i = 0; i < n; ++i) {
    const Range& a = ranges[i];
    for (size_t k = 0; k < n_; ++k) {
      const Range& b = ranges_[k];
      if (!a.written && !b.written) continue;
      if (a.address < b.address + b.bytes && b.address < a.address + a.bytes) return true;
    }
  }
  return false;
}

bool Hazards::add(const Range* ranges, size_t n) {
  const bool barrier = n_ + n > kMax || meets(ranges, n);
  if (barrier) clear();
  for (size_t i = 0; i < n; ++i) {
    if (ranges[i].bytes != 0) ranges_[n_++] = ranges[i];
  }
  return barrier;
}

}  // namespace weir::vulkan
