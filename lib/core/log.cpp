// Log lines.
#include "core/log.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace weir {

void Log::write(int32_t level, const char* format, ...) const {
  if (hook_ == nullptr || level > level_) return;
  char text[512];
  va_list args;
  va_start(args, format);
  const int n = std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  if (n < 0) return;
  const weir_log_info info = {sizeof(weir_log_info), level, text,
                              std::min<uint64_t>(static_cast<uint64_t>(n), sizeof(text) - 1)};
  (void)hook_(user_, &info);
}

}  // namespace weir
