// A session's half on the device; session.cpp and cuda_session.h.
#pragma once

#include "runtime/device_module.h"

namespace weir::cuda {

// Host memory of the object.
constexpr size_t session_bytes() { return 2048; }

// Device memory for the session's own use, DeviceBuffers::module.
uint64_t session_device_bytes(const OpShapes& shapes);

Status create_session(void* place, const DeviceSessionArgs& args, DeviceSession*& out);

}  // namespace weir::cuda
