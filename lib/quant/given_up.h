// Weight types that GGUF files had and must no longer have, so that a message can say what a file has and what to get.
#pragma once

#include <cstdint>

namespace weir {

struct GivenUpType {
  uint32_t gguf_id;
  const char* name;
  uint32_t instead_id;  // of the type that the same model is made as today
};

inline constexpr GivenUpType kGivenUp[] = {
    {4, "q4_2", 2},      {5, "q4_3", 3},         {31, "q4_0_4_4", 2},    {32, "q4_0_4_8", 2},
    {33, "q4_0_8_8", 2}, {36, "iq4_nl_4_4", 20}, {37, "iq4_nl_4_8", 20}, {38, "iq4_nl_8_8", 20},
};

}  // namespace weir
