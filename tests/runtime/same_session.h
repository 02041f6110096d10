// Whether a session on the test module's device is the same as one on the processor, bit by bit.
#pragma once

#include <bit>
#include <string>

#include "api/handles.h"
#include "host_models.h"
#include "tests/api/saved_bytes.h"

namespace same_session {

using host_models::Session;

inline void assert_same_counters(const Session& host, const Session& device, const std::string& what) {
  weir_session_stats a = WEIR_SESSION_STATS_INIT, b = WEIR_SESSION_STATS_INIT;
  assert_ok(weir_session_get_stats(host.get(), &a));
  assert_ok(weir_session_get_stats(device.get(), &b));
  const auto check = [&](const char* name, uint64_t x, uint64_t y) {
    if (x != y)
      fail_msg("%s: %s is %llu, not %llu", what.c_str(), name, static_cast<unsigned long long>(y),
               static_cast<unsigned long long>(x));
  };
  check("n_tokens", a.n_tokens, b.n_tokens);
  check("pages_resident", a.pages_resident, b.pages_resident);
  check("pages_resident_max", a.pages_resident_max, b.pages_resident_max);
  check("pages_evicted", a.pages_evicted, b.pages_evicted);
  check("pages_attended", a.pages_attended, b.pages_attended);
  check("pages_cold", a.pages_cold, b.pages_cold);
  check("pages_recalled", a.pages_recalled, b.pages_recalled);
}

inline bool is_same_row(const weir::StreamView& a, const weir::StreamView& b, uint32_t row) {
  const auto bits = [](const float* scores, uint32_t i) {
    return scores == nullptr ? 0u : std::bit_cast<uint32_t>(scores[i]);
  };
  return (a.slots[row] == weir::kNoSlot) == (b.slots[row] == weir::kNoSlot) && a.first_pos[row] == b.first_pos[row] &&
         a.len[row] == b.len[row] && a.flags[row] == b.flags[row] && a.stamp[row] == b.stamp[row] &&
         bits(a.last_score, row) == bits(b.last_score, row) && bits(a.prompt_score, row) == bits(b.prompt_score, row);
}

inline void assert_same_tables(const Session& host, const Session& device, const std::string& what) {
  assert_true(device->host_tables().ok());
  for (uint32_t i = 0; i < host->kv().shape().n_streams(); ++i) {
    const weir::StreamView a = host->kv().stream(i), b = device->kv().stream(i);
    if (a.n_pages != b.n_pages) fail_msg("%s: stream %u has %u pages, not %u", what.c_str(), i, b.n_pages, a.n_pages);
    for (uint32_t row = 0; row < a.n_pages; ++row) {
      if (!is_same_row(a, b, row)) {
        fail_msg("%s: stream %u, row %u: position %u and %u, stamp %u and %u, score %.9g and %.9g", what.c_str(), i,
                 row, a.first_pos[row], b.first_pos[row], a.stamp[row], b.stamp[row], double{a.last_score[row]},
                 double{b.last_score[row]});
      }
    }
  }
}

// The logits, the greedy token, the counters, the tables, and what is saved: pages and digests among it. With recall
// saved copies depend on how far background threads are; what is in them is seen by later prompts and steps.
inline void assert_same(const Session& host, const Session& device, const std::string& what) {
  const float *a = nullptr, *b = nullptr;
  uint32_t n = 0, n_device = 0;
  weir_token greedy = -1, greedy_device = -1;
  assert_ok(weir_session_sample(host.get(), &greedy));
  assert_ok(weir_session_sample(device.get(), &greedy_device));
  if (greedy != greedy_device) fail_msg("%s: the greedy token is %d, not %d", what.c_str(), greedy_device, greedy);
  assert_ok(weir_session_logits(host.get(), &a, &n));
  assert_ok(weir_session_logits(device.get(), &b, &n_device));
  assert_int_equal(n, n_device);
  uint32_t n_other = 0;
  for (uint32_t i = 0; i < n; ++i) n_other += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) ? 1u : 0u;
  if (n_other != 0) fail_msg("%s: %u of %u logits differ", what.c_str(), n_other, n);
  assert_same_counters(host, device, what);
  assert_same_tables(host, device, what);
  if (host->kv().shape().recalls()) return;
  if (saved_bytes::saved(host) != saved_bytes::saved(device)) fail_msg("%s: other pages", what.c_str());
}

}  // namespace same_session
