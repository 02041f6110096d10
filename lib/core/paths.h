// Absolute paths, so that a later change of the current folder changes nothing. No allocations.
#pragma once

#include <cstddef>

#include "core/status.h"

namespace weir {

// `path` as it is if it is absolute, else behind the current folder; `what` names it in messages. Links and ".." stay
// as they are, and nothing need be there. WEIR_ERR_INVALID_ARG: it is too long for `out`; WEIR_ERR_IO: there is no
// current folder any more.
Status absolute_path(const char* what, const char* path, char* out, size_t size);

// The folder of the file that the code at `address` was loaded from, with its slash at the end. A library that was
// loaded by a relative path is found wherever the process is now. WEIR_ERR_UNSUPPORTED: that folder is not known.
Status folder_of_code(const void* address, char* out, size_t size);

}  // namespace weir
