// SHA-256 (FIPS 180-4), to find out whether a chat template is one that was checked. Its values can be compared with
// those of any other program.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace weir {

using Sha256 = std::array<uint8_t, 32>;

Sha256 sha256(std::string_view bytes);

}  // namespace weir
