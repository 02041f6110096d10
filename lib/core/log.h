// Log lines to the embedder's hook; without a hook nothing is formatted.
#pragma once

#include "weir/runtime.h"

namespace weir {

class Log {
 public:
  Log(weir_log_fn hook, void* user, int32_t level) : hook_(hook), user_(user), level_(level) {}
  void write(int32_t level, const char* format, ...) const __attribute__((format(printf, 3, 4)));

 private:
  weir_log_fn hook_;
  void* user_;
  int32_t level_;
};

}  // namespace weir
