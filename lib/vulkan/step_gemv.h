// The GEMVs of decode steps in integers. With one input the norm, the matrices and what follows are one dispatch; with
// several, one makes integers of the inputs, and each matrix is read once for all of them.
#pragma once

#include "core/status.h"
#include "device/kernels.h"

namespace weir {
struct ModelWeights;
}  // namespace weir

namespace weir::vulkan {

// Whether the device and these matrices allow them. It depends on no other session, and on a's columns only by their
// addresses' alignment.
bool has_step_gemv(const device::GemvArgs& a);
// Whether most bytes of the matrices of a model's layers, experts apart, have them.
bool most_have_step_gemv(const ModelWeights& weights);
// `packed` [packed_bytes(a's columns)] is used if there are several inputs. A result does not depend on the others.
Status step_gemv(const device::GemvArgs& a, std::byte* packed);
// Bytes for kMaxColumns packed inputs with n_cols columns.
uint64_t packed_bytes(uint32_t n_cols);

}  // namespace weir::vulkan
