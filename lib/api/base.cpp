// Version, status names, last error, experimental functions.
#include "weir/base.h"

#include <cstring>

#include "api/handles.h"

namespace {

// Experimental: weir_status weir_bench_fill(weir_session *session, uint32_t n_tokens). Fills the KV memory with pseudo-random tokens.
weir_status bench_fill(weir_session* session, uint32_t n_tokens) {
  WEIR_API_REQUIRE(session);
  return weir::api::guard([&] { return session->fill(n_tokens); });
}

}  // namespace

uint32_t weir_version(void) { return (WEIR_VERSION_MAJOR << 16) | (WEIR_VERSION_MINOR << 8) | WEIR_VERSION_PATCH; }

#define WEIR_INTERNAL_TEXT2(x) #x
#define WEIR_INTERNAL_TEXT(x) WEIR_INTERNAL_TEXT2(x)
const char* weir_version_string(void) {
  return WEIR_INTERNAL_TEXT(WEIR_VERSION_MAJOR) "." WEIR_INTERNAL_TEXT(WEIR_VERSION_MINOR) "." WEIR_INTERNAL_TEXT(WEIR_VERSION_PATCH);
}

const char* weir_status_name(weir_status status) {
  switch (status) {
#define WEIR_INTERNAL_CASE(name) \
  case name:                     \
    return #name;
    WEIR_INTERNAL_CASE(WEIR_OK)
    WEIR_INTERNAL_CASE(WEIR_ERR_INVALID_ARG)
    WEIR_INTERNAL_CASE(WEIR_ERR_OUT_OF_MEMORY)
    WEIR_INTERNAL_CASE(WEIR_ERR_IO)
    WEIR_INTERNAL_CASE(WEIR_ERR_FORMAT)
    WEIR_INTERNAL_CASE(WEIR_ERR_UNSUPPORTED)
    WEIR_INTERNAL_CASE(WEIR_ERR_NOT_FOUND)
    WEIR_INTERNAL_CASE(WEIR_ERR_CONTEXT_FULL)
    WEIR_INTERNAL_CASE(WEIR_ERR_BUDGET)
    WEIR_INTERNAL_CASE(WEIR_ERR_BUSY)
    WEIR_INTERNAL_CASE(WEIR_ERR_CANCELLED)
    WEIR_INTERNAL_CASE(WEIR_ERR_STATE)
    WEIR_INTERNAL_CASE(WEIR_ERR_BUFFER_TOO_SMALL)
    WEIR_INTERNAL_CASE(WEIR_ERR_DEVICE_LOST)
    WEIR_INTERNAL_CASE(WEIR_ERR_INTERNAL)
#undef WEIR_INTERNAL_CASE
    default:
      return "WEIR_ERR_UNKNOWN";
  }
}

const char* weir_last_error(void) { return weir::last_error_text(); }

weir_function weir_get_experimental(const char* name) {
  if (name == nullptr || std::strcmp(name, "weir_bench_fill") != 0) return nullptr;
  return reinterpret_cast<weir_function>(bench_fill);
}
