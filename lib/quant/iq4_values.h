// The 16 values that the 4-bit numbers of IQ4_NL and IQ4_XS stand for. They are denser around 0, as weights are.
#pragma once

#include <cstdint>

namespace weir {

inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

}  // namespace weir
