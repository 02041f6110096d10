// The ops of recurrent layers, and the gates of attention's output. None of them has a kernel yet: models with such
// layers are refused by the names of their traits.
#include "cuda/ops.h"
#include "ops/delta_net.h"
#include "ops/head_gate.h"
#include "ops/mamba2.h"
#include "ops/short_conv.h"

namespace weir::cuda {

Status head_gate(OpContext&, const HeadGateArgs&) { return fail(WEIR_ERR_UNSUPPORTED, "CUDA: no op head_gate"); }
Status delta_net(OpContext&, const DeltaNetArgs&) { return fail(WEIR_ERR_UNSUPPORTED, "CUDA: no op delta_net"); }
Status mamba2(OpContext&, const Mamba2Args&) { return fail(WEIR_ERR_UNSUPPORTED, "CUDA: no op mamba2"); }
Status short_conv(OpContext&, const ShortConvArgs&) { return fail(WEIR_ERR_UNSUPPORTED, "CUDA: no op short_conv"); }

}  // namespace weir::cuda
