// What the tests of sessions with a spill store share: options, a folder for spill files, and a session.
#pragma once

#include <unistd.h>

#include <string>
#include <vector>

#include "api/handles.h"
#include "tests/api/api_test.h"

namespace spill_session {

#ifdef WEIR_INTERNAL_SANITIZED
inline constexpr uint32_t kSteps = 220;
#else
inline constexpr uint32_t kSteps = 300;
#endif
inline constexpr uint32_t kContext = 1024, kPrompt = 40;

using Options = std::vector<weir_key_value>;

// With all wanted pages brought back and only those attended, arkvale is quest, which never lets a page go.
inline const Options kQuest = {{"skip_layers", "0"}, {"sink_pages", "1"}, {"digest", "minmax"}, {"agg", "max_raw"}};
inline const Options kTop = {{"attend", "top"},    {"recall_pages", "0"}, {"recall_from", "7"},
                             {"digest", "minmax"}, {"agg", "max_raw"},    {"protect_recent", "1"}};
// psa with all pages in the pool, and with pages that come back as attention asks for them.
inline const Options kPsa = {{"eps", "0.9"}, {"mb", "3"}, {"max_pages", "64"}, {"skip_layers", "0"}};
inline const Options kPsaRecall = {
    {"recall", "on"}, {"eps", "0.9"}, {"mb", "3"}, {"max_pages", "64"}, {"skip_layers", "0"}};
inline const Options kPsaOnePool = {{"recall", "on"}, {"pool", "unified"}, {"eps", "0.9"},
                                    {"mb", "3"},      {"max_pages", "64"}, {"skip_layers", "0"}};

inline weir_session_options options_of(const char* policy, const Options& list, uint32_t budget_tokens) {
  weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
  o.device = WEIR_DEVICE_CPU;
  o.context_tokens = kContext;
  o.batch_tokens = 64;
  o.policy = policy;
  o.policy_options = list.data();
  o.n_policy_options = static_cast<uint32_t>(list.size());
  o.budget_tokens = budget_tokens;
  return o;
}

inline weir_token token(uint32_t i) { return static_cast<weir_token>(i * 2654435761u % 199 + 20); }

// A folder for spill files; at the end nothing is left in it.
class Folder {
 public:
  Folder() { assert_non_null(mkdtemp(path_)); }
  ~Folder() { assert_int_equal(rmdir(path_), 0); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file() const { return std::string(path_) + "/spill"; }

 private:
  char path_[32] = "/tmp/weir-spill-XXXXXX";
};

class Session {
 public:
  Session(weir_model* model, const weir_session_options& options) {
    assert_ok(weir_session_create(model, &options, &handle_));
  }
  ~Session() { weir_session_destroy(handle_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  operator weir_session*() const { return handle_; }

  void prefill(uint32_t first, uint32_t n) { assert_ok(try_prefill(first, n)); }
  weir_status try_prefill(uint32_t first, uint32_t n) {
    std::vector<weir_token> tokens;
    for (uint32_t i = 0; i < n; ++i) tokens.push_back(token(first + i));
    return weir_session_prefill(handle_, tokens.data(), n, nullptr, nullptr);
  }
  std::vector<float> logits() {
    const float* logits = nullptr;
    uint32_t n = 0;
    assert_ok(weir_session_logits(handle_, &logits, &n));
    return {logits, logits + n};
  }
  weir_session_stats stats() const {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(handle_, &stats));
    return stats;
  }
  weir::SpillStats store() const { return handle_->store().stats(); }

 private:
  weir_session* handle_ = nullptr;
};

inline weir_plan_info plan_of(weir_model* model, const weir_session_options& o) {
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  assert_ok(weir_plan(model, &o, &plan));
  return plan;
}

// Bytes of cells for n pages a stream, whatever is in them.
inline uint64_t cells_for(const weir_plan_info& plan, uint32_t n_pages) {
  return weir::spill_worst_bytes(static_cast<uint32_t>(plan.page_bytes), uint64_t{n_pages} * plan.n_streams);
}

}  // namespace spill_session
