// What the tests of sessions that recall pages share: a session, and what must hold for its tables.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "api/handles.h"
#include "kv/spill_store.h"
#include "tests/device/device_test.h"

namespace recall_session {

inline constexpr uint32_t kContext = 1536;

struct Close {
  void operator()(weir_session* session) const { weir_session_destroy(session); }
};
using Session = std::unique_ptr<weir_session, Close>;
using Options = std::vector<weir_key_value>;

inline const Options kTop = {{"attend", "top"},    {"recall_pages", "0"}, {"recall_from", "7"},
                             {"digest", "minmax"}, {"agg", "max_raw"},    {"protect_recent", "1"}};
inline const Options kQuest = {{"skip_layers", "0"}, {"sink_pages", "1"}, {"digest", "minmax"}, {"agg", "max_raw"}};

struct Setup {
  const char* policy;
  const Options& options;
  uint32_t budget;
  uint64_t spill_bytes = 0;
  uint32_t batch = 64;
  int32_t device = test_device();
  uint32_t spill_flags = 0;
  uint32_t context = kContext;
};

inline Session open_session(const fixture& f, const Setup& s) {
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = s.device;
  options.policy = s.policy;
  options.policy_options = s.options.empty() ? nullptr : s.options.data();
  options.n_policy_options = static_cast<uint32_t>(s.options.size());
  options.budget_tokens = s.budget;
  options.context_tokens = s.context;
  options.batch_tokens = s.batch;
  options.spill_budget_bytes = s.spill_bytes;
  options.spill_flags = s.spill_flags;
  weir_session* session = nullptr;
  assert_ok(weir_session_create(f.model, &options, &session));
  return Session(session);
}

inline weir_token token(uint32_t i) { return static_cast<weir_token>(i * 2654435761u % 199 + 20); }

inline void prefill(const Session& session, uint32_t first, uint32_t n) {
  std::vector<weir_token> tokens;
  for (uint32_t i = first; i < first + n; ++i) tokens.push_back(token(i));
  assert_ok(weir_session_prefill(session.get(), tokens.data(), n, nullptr, nullptr));
}

inline weir_session_stats stats_of(const Session& session) {
  weir_session_stats stats = WEIR_SESSION_STATS_INIT;
  assert_ok(weir_session_get_stats(session.get(), &stats));
  return stats;
}

inline std::vector<float> logits_of(const Session& session) {
  const float* logits = nullptr;
  uint32_t n = 0;
  assert_ok(weir_session_logits(session.get(), &logits, &n));
  return {logits, logits + n};
}

// Checks what must hold for any table, and that the counters say what is in the tables.
inline void check_tables(const Session& session) {
  assert_true(session->host_tables().ok());
  const weir::KvCache& kv = session->kv();
  std::set<uint32_t> used;
  uint64_t n_cold = 0;
  for (uint32_t i = 0; i < kv.shape().n_streams(); ++i) {
    const weir::StreamView s = kv.stream(i);
    uint32_t n_resident = 0;
    assert_int_equal(s.n_pages, weir::whole_pages(kv.n_tokens()));
    for (uint32_t row = 0; row < s.n_pages; ++row) {
      assert_int_equal(s.first_pos[row], row * weir::kPageTokens);
      assert_int_equal(s.len[row], std::min(weir::kPageTokens, kv.n_tokens() - s.first_pos[row]));
      assert_true(s.stamp[row] <= kv.n_tokens());
      if (s.slots[row] == weir::kNoSlot) {
        n_cold += s.copies[row] != weir::kNoCopy ? 1 : 0;
        continue;
      }
      ++n_resident;
      assert_true(s.slots[row] / s.n_slots == i);
      assert_true(used.insert(s.slots[row]).second);
    }
    assert_int_equal(n_resident, s.n_resident);
    assert_true(n_resident <= s.n_slots);
    // The open page is in the pool; a full one may be cold after a rewind.
    assert_true(kv.n_tokens() % weir::kPageTokens == 0 || s.slots[s.n_pages - 1] != weir::kNoSlot);
  }
  const weir_session_stats stats = stats_of(session);
  assert_int_equal(stats.pages_resident, used.size());
  assert_int_equal(stats.pages_cold, n_cold);
}

}  // namespace recall_session
