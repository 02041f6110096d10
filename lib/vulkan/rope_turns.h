// Rotations as step_begin takes them: devices need not have numbers of 64 bits, and positions times angles have to be
// exact to more than 32.
#pragma once

#include <cstdint>
#include <span>

namespace weir::vulkan {

// out [radians.size()]: the angles in parts of 2^64 of a turn, whole turns dropped, negative ones from the other side.
// As words in memory the low one comes first.
void turns_of(std::span<const double> radians, uint64_t* out);

}  // namespace weir::vulkan
