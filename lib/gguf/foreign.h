// Files that people take for models and that are not GGUF.
#pragma once

#include <cstdint>
#include <span>

namespace weir {

// What a file that begins so is, and what to do, for the end of a message: "a zip archive, ...". Null when it is
// nothing that is known here.
const char* foreign_file(std::span<const uint8_t> begin);

}  // namespace weir
