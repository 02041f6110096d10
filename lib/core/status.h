// Status of an internal call, and the calling thread's error texts. A Status is one number; the text lives in a fixed
// buffer, so that reporting an error allocates nothing. What fails inside a public call stores its text with that call
// (core/call.h); only when the call as a whole fails does it become the text of weir_last_error.
#pragma once

#include <cstddef>

#include "weir/base.h"

namespace weir {

inline constexpr size_t kErrorBytes = 1024;  // the limit that weir_last_error documents, with its NUL

class [[nodiscard]] Status {
 public:
  constexpr Status() = default;
  constexpr explicit Status(weir_status code) : code_(code) {}
  constexpr bool ok() const { return code_ == WEIR_OK; }
  constexpr weir_status code() const { return code_; }

 private:
  weir_status code_ = WEIR_OK;
};

// Stores the formatted text as that of the latest failure and returns `code` as a Status. Arguments may be any bytes,
// also the latest failure's text: what is stored is one line of UTF-8 (core/plain_text.h), cut between characters where
// it is too long.
Status fail(weir_status code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The text of the latest failure inside the public call that the thread is in; outside of any, the thread's last error.
// "" when there was none.
const char* last_error_text();

}  // namespace weir

// Returns from the calling function when `expr` is not ok.
#define WEIR_TRY(expr)                                   \
  do {                                                   \
    ::weir::Status weir_try_status_ = (expr);            \
    if (!weir_try_status_.ok()) return weir_try_status_; \
  } while (0)
