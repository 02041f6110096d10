// Numbers that nobody can foresee: keys of hash tables, salts of checksums. No result may depend on them.
#pragma once

#include <cstdint>

namespace weir {

// From the system's source of randomness; where that gives nothing, made from clocks and addresses. Never fails.
uint64_t random_number();

}  // namespace weir
