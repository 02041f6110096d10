#include "vulkan/steps.h"

namespace weir::vulkan {

#define WEIR_MISSING(name, Args) \
  Status name(const Args&) { return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: there is no " #name); }
WEIR_MISSING(step_end, StepEndArgs)
WEIR_MISSING(page_stamp_at, PageStampAtArgs)
WEIR_MISSING(page_softmax, PageSoftmaxArgs)
WEIR_MISSING(page_recall, PageRecallArgs)
WEIR_MISSING(top_logits, TopLogitsArgs)
WEIR_MISSING(spoil_lost, SpoilLostArgs)
WEIR_MISSING(mark_resident, MarkResidentArgs)
WEIR_MISSING(copy_row_out, CopyRowOutArgs)
WEIR_MISSING(copy_pages, CopyPagesArgs)
WEIR_MISSING(load_unit, LoadUnitArgs)
WEIR_MISSING(fill_row, FillRowArgs)
WEIR_MISSING(rebuild_last_minmax, KvView)
WEIR_MISSING(fill_noise, FillNoiseArgs)

}  // namespace weir::vulkan
#include "vulkan/rope_turns.h"
namespace weir::vulkan {
uint64_t top_logits_scratch_bytes() { return 65536; }
}
