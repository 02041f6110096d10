// Formatting of error texts.
#include "core/status.h"

#include <cstdarg>

#include "core/call.h"
#include "core/plain_text.h"

namespace weir {

Status fail(weir_status code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  (void)plain_format(Call::error_text(), kErrorBytes, format, args);
  va_end(args);
  return Status(code);
}

const char* last_error_text() { return Call::error_text(); }

}  // namespace weir
