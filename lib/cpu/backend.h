// The table of the CPU backend's ops.
#pragma once

#include "ops/table.h"

namespace weir {

const Backend& cpu_backend();

}  // namespace weir
