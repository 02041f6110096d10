// A device backend for the op tests: its table takes host pointers, as the CPU's does. Every call copies the arrays
// that its arguments name to the device, runs the module's op there and copies back what the op may write. So the same
// cases run on a GPU without knowing it.
//
// A shape that the device's kernels do not support (WEIR_ERR_UNSUPPORTED) is computed by the reference instead and
// counted. A test with only such calls is reported as skipped, and an op that never ran on the device fails its
// program.
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace weir::test {

// The modules that there may be.
inline constexpr const char* kStagedModules[] = {"cuda", "vulkan"};

// The backend of the module libweir_<module>.so, which has its name, or null if the module is not beside the tests (in
// a folder lib/ next to one above the program's) or finds no device. The first call prints which of these it is.
const Backend* staged_backend(const char* module);

struct StagedCalls {
  uint64_t on_device = 0;
  uint64_t unsupported = 0;  // left to the reference
};

// Calls of all ops on all modules since the program started.
StagedCalls staged_calls();

// Prints the calls of each op, such as "on cuda: <op>: <n> calls, <n> unsupported". False if the op that `group`
// ("ops/<op>...") tests was called on a device that ran none of the calls.
bool report_staged_calls(const char* group);

}  // namespace weir::test
