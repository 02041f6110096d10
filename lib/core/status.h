// Status of an internal call, and the calling thread's error text.
// A Status is one number; the text lives in a fixed thread-local buffer, so that reporting an error allocates nothing.
#pragma once

#include "weir/base.h"

namespace weir {

class [[nodiscard]] Status {
 public:
  constexpr Status() = default;
  constexpr explicit Status(weir_status code) : code_(code) {}
  constexpr bool ok() const { return code_ == WEIR_OK; }
  constexpr weir_status code() const { return code_; }

 private:
  weir_status code_ = WEIR_OK;
};

// Stores the formatted text as the thread's last error and returns `code` as a Status.
Status fail(weir_status code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The text of the thread's last failure, "" when there was none.
const char* last_error_text();

}  // namespace weir

// Returns from the calling function when `expr` is not ok.
#define WEIR_TRY(expr)                                   \
  do {                                                   \
    ::weir::Status weir_try_status_ = (expr);            \
    if (!weir_try_status_.ok()) return weir_try_status_; \
  } while (0)
