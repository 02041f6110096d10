// Kernels that the module does not have. check_session refuses what needs them: recall.
#include "vulkan/steps.h"

namespace weir::vulkan {

#define WEIR_MISSING(name, Args) \
  Status name(const Args&) { return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: there is no " #name); }
WEIR_MISSING(fill_row, FillRowArgs)

}  // namespace weir::vulkan
