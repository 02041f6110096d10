// GGUF files that belong to a model and are none.
#pragma once

#include "core/status.h"
#include "gguf/gguf.h"

namespace weir {

// WEIR_ERR_UNSUPPORTED that says what the file is and what to do, unless it may be a model.
Status refuse_other_kinds(const GgufFile& file);

}  // namespace weir
