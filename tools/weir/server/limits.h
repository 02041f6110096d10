// What a client may take of the server: sizes, counts and times. What goes beyond is refused with a message, or ends
// the connection.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir_server {

inline constexpr size_t kMaxBodyBytes = size_t{8} << 20;           // of a request
inline constexpr size_t kMaxBodyBytesTogether = size_t{32} << 20;  // of all requests that are read or answered
inline constexpr size_t kMaxHeaderBytes = size_t{64} << 10;        // of a request, its first line included
inline constexpr size_t kMaxPathBytes = 512;                       // with the query
inline constexpr size_t kMaxConnections = 128;
inline constexpr int kHeaderSeconds = 10;  // for all lines of a request's head
inline constexpr int kBodySeconds = 60;    // for all of its body
inline constexpr int kIdleSeconds = 60;    // between two requests of a connection
inline constexpr int kCrowdedSeconds = 2;  // the same where half of the connections are taken
inline constexpr size_t kMaxRequestsOfConnection = 1000;
inline constexpr uint32_t kMaxChoices = 16;          // n of a request, and its prompts times n
inline constexpr size_t kMaxConversationBytes = 64;  // of the name that a client gives its conversation
inline constexpr int kProgressMs = 250;              // between two comments while a prompt is read
inline constexpr int kStateMs = 100;                 // between two states of a session
inline constexpr int kPingMs = 5000;                 // of the stream of events

}  // namespace weir_server
