// The device half of a session, as the module's table offers it. Implemented in session.cpp, session_many.cpp,
// cuda_session.h and, the table of ops, module.cpp.
#pragma once

#include "device/module.h"

namespace weir::cuda {

// Host memory of the object.
constexpr size_t session_bytes() { return 2048; }

// Device memory for the session's own use, DeviceBuffers::module.
uint64_t session_device_bytes(const OpShapes& shapes);

// The ops of the module's backend.
const OpTable& op_table();

Status create_session(void* place, const DeviceSessionArgs& args, DeviceSession*& out);

// DeviceModule::prepare_many and step_many.
Status prepare_many(DeviceSession* const* sessions, uint32_t n);
Status step_many(DeviceSession* const* sessions, const int32_t* tokens, uint32_t n);

}  // namespace weir::cuda
