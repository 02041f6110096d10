// Version, status names, last error, experimental functions.
#include "weir/base.h"

#include <cstring>

#include "api/handles.h"
#include "runtime/bench.h"
#include "weir/experimental.h"

namespace {

// weir/experimental.h documents these.
weir_status bench_fill(weir_session* session, uint32_t n_tokens) {
  WEIR_API_REQUIRE(session);
  return weir::api::guard([&] { return weir::fill_with_noise(*session, n_tokens); });
}

weir_status session_trace(weir_session* session, weir_trace_fn fn, void* user) {
  WEIR_API_REQUIRE(session);
  return weir::api::guard([&] { return session->set_trace(fn, user); });
}

weir_status session_page_events(weir_session* session, weir_page_event* events, uint32_t capacity, uint32_t* n_events,
                                uint64_t* n_lost) {
  WEIR_API_REQUIRE(session);
  WEIR_API_REQUIRE(n_events);
  if (capacity != 0) {
    WEIR_API_REQUIRE(events);
  }
  return weir::api::guard([&]() -> weir::Status {
    uint64_t lost = 0;
    WEIR_TRY(session->page_events(events, capacity, *n_events, n_lost == nullptr ? lost : *n_lost));
    return {};
  });
}

weir_status bench_device(weir_runtime* runtime, int32_t device, weir_bench_device* out) {
  WEIR_API_REQUIRE(runtime);
  return weir::api::guard([&]() -> weir::Status {
    WEIR_TRY(weir::api::check_out_struct(out, "weir_bench_device"));
    if (device != WEIR_DEVICE_CUDA && device != WEIR_DEVICE_VULKAN)
      return weir::fail(WEIR_ERR_UNSUPPORTED, "weir_bench_device: device %d cannot be measured", device);
    weir_bench_device value = {};
    WEIR_TRY(runtime->devices.measure(device, value));
    weir::api::write_struct(value, out);
    return {};
  });
}

weir_status bench_profile(weir_session* session, weir_token token, double* seconds) {
  WEIR_API_REQUIRE(session);
  WEIR_API_REQUIRE(seconds);
  return weir::api::guard([&] { return weir::profile_step(*session, token, seconds); });
}

struct Experimental {
  const char* name;
  weir_function function;
};

const Experimental kExperimental[] = {
    {"weir_bench_device", reinterpret_cast<weir_function>(bench_device)},
    {"weir_bench_profile", reinterpret_cast<weir_function>(bench_profile)},
    {"weir_bench_fill", reinterpret_cast<weir_function>(bench_fill)},
    {"weir_session_page_events", reinterpret_cast<weir_function>(session_page_events)},
    {"weir_session_trace", reinterpret_cast<weir_function>(session_trace)},
};

}  // namespace

uint32_t weir_version(void) { return (WEIR_VERSION_MAJOR << 16) | (WEIR_VERSION_MINOR << 8) | WEIR_VERSION_PATCH; }

#define WEIR_INTERNAL_TEXT2(x) #x
#define WEIR_INTERNAL_TEXT(x) WEIR_INTERNAL_TEXT2(x)
const char* weir_version_string(void) {
  return WEIR_INTERNAL_TEXT(WEIR_VERSION_MAJOR) "." WEIR_INTERNAL_TEXT(WEIR_VERSION_MINOR) "." WEIR_INTERNAL_TEXT(
      WEIR_VERSION_PATCH);
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

const char* weir_last_error(void) { return weir::Call::published_error_text(); }

weir_function weir_get_experimental(const char* name) {
  for (const Experimental& entry : kExperimental) {
    if (name != nullptr && std::strcmp(name, entry.name) == 0) return entry.function;
  }
  return nullptr;
}
