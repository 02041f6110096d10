// Reads JSON into values of the template language. Strict: one value of RFC 8259, UTF-8 without a byte order mark,
// nothing behind it.
#pragma once

#include <string_view>

#include "core/status.h"
#include "text/jinja/value.h"

namespace weir::jinja {

// All texts and numbers count as data. `what` begins the message of a failure, WEIR_ERR_INVALID_ARG with the place.
// Where an object has a name twice the last value counts.
Status read_json(Heap& heap, std::string_view text, const char* what, Value& out);

}  // namespace weir::jinja
