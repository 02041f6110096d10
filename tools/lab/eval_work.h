// Runs independent pieces of work on several threads, each with a runtime and a model of its own: sessions of one
// runtime take turns step by step, whatever its number of threads. The weights are mapped, so all models share them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "weir_cpp.h"

namespace weir_cli {

// Does unit 0 .. n_units - 1, in ascending order of their starts, and tells the progress on stderr: a bar on a
// terminal, otherwise a line every tenth. The first exception stops the rest and is thrown again. n_threads 0: all
// cores.
using UnitFn = std::function<void(weir_model* model, size_t unit)>;
void run_units(const std::string& model_path, uint32_t n_threads, size_t n_units, const UnitFn& fn);

}  // namespace weir_cli
