// Several sessions at once. One thread is inside all of them meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"
#include "weir/session.h"

namespace weir {

class Session;

inline constexpr uint32_t kMaxTogetherSessions = 4096;

// Sessions by index, in whatever array the caller holds them.
struct SessionList {
  const void* handles = nullptr;
  Session& (*at)(const void* handles, uint32_t i) = nullptr;
  Session& operator[](uint32_t i) const { return at(handles, i); }
};

// Events of a caller, each of `stride` bytes.
struct EventList {
  std::byte* bytes;
  uint32_t stride;
};

// One step of each session, all or none: tokens[i] for sessions[i]; n is at least 1.
Status step_many(const SessionList& sessions, const weir_token* tokens, uint32_t n);
// The next event of each answer that runs, with one step for all.
Status next_many(const SessionList& sessions, uint32_t n, const EventList& events, uint32_t& n_running);

}  // namespace weir
