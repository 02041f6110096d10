// Mixture of experts on the GPU.
#include "cuda/ops.h"

namespace weir::cuda {

Status experts(OpContext&, const ExpertsArgs&) { return fail(WEIR_ERR_UNSUPPORTED, "experts: no kernel yet"); }

}  // namespace weir::cuda
