// Formatting that does not depend on the host program's locale: a number has a decimal point, never a comma. Whatever
// prints %e, %f or %g goes through here.
#pragma once

#include <cstdarg>
#include <cstddef>

namespace weir {

// Like std::vsnprintf and std::snprintf.
int c_vformat(char* out, size_t capacity, const char* format, va_list args) __attribute__((format(printf, 3, 0)));
int c_format(char* out, size_t capacity, const char* format, ...) __attribute__((format(printf, 3, 4)));

}  // namespace weir
