// Kernels of decode steps: not computed by the test module so far, so sessions on it have no decode steps.
#include "tests/runtime/host_queue.h"
namespace weir::host_module {
#define NONE(name, Args) \
  Status name(OpContext&, const Args&) { return fail(WEIR_ERR_UNSUPPORTED, "no kernel " #name); }
NONE(step_begin, StepBeginArgs)
NONE(rope_append_at, RopeAppendAtArgs)
NONE(page_stamp_at, PageStampAtArgs)
NONE(page_softmax, PageSoftmaxArgs)
NONE(page_score_step, PageScoreStepArgs)
NONE(attn_decode, AttnDecodeArgs)
NONE(sparse_layer, SparseLayerArgs)
NONE(page_recall, PageRecallArgs)
}  // namespace weir::host_module
