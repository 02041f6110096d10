// Log lines.
#include "core/log.h"

#include <cstdarg>

#include "core/callback.h"
#include "core/plain_text.h"

namespace weir {

void Log::write(int32_t level, const char* format, ...) const {
  if (hook_ == nullptr || level > level_) return;
  char text[512];
  va_list args;
  va_start(args, format);
  const size_t n = plain_format(text, sizeof(text), format, args);
  va_end(args);
  const weir_log_info info = {sizeof(weir_log_info), level, text, n};
  (void)call_back([&] { return hook_(user_, &info); });  // a line that could not be written is no reason to fail
}

}  // namespace weir
