#pragma once
#include <cstdint>
#include <span>
namespace weir::vulkan {
void turns_of(std::span<const double> radians, uint64_t* turns);
uint64_t top_logits_scratch_bytes();
}
