#include "vulkan/steps.h"

namespace weir::vulkan {

#define WEIR_MISSING(name, Args) \
  Status name(const Args&) { return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: there is no " #name); }
WEIR_MISSING(page_recall, PageRecallArgs)
WEIR_MISSING(spoil_lost, SpoilLostArgs)
WEIR_MISSING(mark_resident, MarkResidentArgs)
WEIR_MISSING(copy_row_out, CopyRowOutArgs)
WEIR_MISSING(copy_pages, CopyPagesArgs)
WEIR_MISSING(load_unit, LoadUnitArgs)
WEIR_MISSING(fill_row, FillRowArgs)

}  // namespace weir::vulkan
