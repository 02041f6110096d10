// The embedded model of the demos: where it is, and whether a model is it.
#pragma once

#include <string>

#include "weir_cpp.h"

namespace weir_cli {

// In the source tree, found from the folder one is in, from the program's own folder upwards (a build folder lies
// inside the tree), or at the place that the build told; where it was installed with the program; or next to it.
// Throws std::runtime_error.
std::string find_reasoner();

// Only a model that was trained on the problems can solve them. Throws std::runtime_error, which ends with `way_out`.
void require_reasoner(const weir_model* model, const std::string& way_out);

}  // namespace weir_cli
