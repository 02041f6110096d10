// Finds and loads device backends (lib/device/module.h).
#pragma once

#include <cstdint>

#include "core/status.h"
#include "device/module.h"

namespace weir {

// Opens lib<name>.so in `folder` (null: the folder that the library itself lies in) and its device `which`, or the one
// that `wanted` names (DeviceModule::choose); once per process and name, and a module stays loaded.
// WEIR_ERR_UNSUPPORTED: there is none, it is of another build, or it finds no driver or device.
Status load_device_module(const char* folder, const char* name, uint32_t which, const DeviceModule*& out);
Status load_device_module(const char* folder, const char* name, const char* wanted, const DeviceModule*& out);

// The same, without opening a device.
Status find_device_module(const char* folder, const char* name, const DeviceModule*& out);

// Turns a module's failure into one of the library's own, with the module's message.
Status from_module(const DeviceModule& module, Status status);

}  // namespace weir
