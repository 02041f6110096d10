// Which commands of a recording must wait for which: the ranges of memory that were read and written since the last
// barrier. Knows nothing of Vulkan.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir::vulkan {

// Device memory that a command touches. Without bytes it is none.
struct Range {
  uint64_t address = 0, bytes = 0;
  bool written = false;
};

// The most ranges of a command.
inline constexpr size_t kMaxRanges = 32;

class Hazards {
 public:
  // Adds a command. True: a barrier must come before it, because it reads what a command since the last barrier writes,
  // or writes what one touches. The barrier is then the last one.
  bool add(const Range* ranges, size_t n);
  // What was added before is finished.
  void clear() { n_ = 0; }

 private:
  bool meets(const Range* ranges, size_t n) const;

  // More than a layer has between barriers; when they are full, a barrier makes room.
  static constexpr size_t kMax = 256;
  static_assert(kMax >= kMaxRanges);
  Range ranges_[kMax];
  size_t n_ = 0;
};

}  // namespace weir::vulkan
