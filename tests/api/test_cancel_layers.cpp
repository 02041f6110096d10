// api: how much a prompt still computes after a cancel, counted in layers, under every policy; and that nothing of the
// conversation has changed then. The cancel comes out of the attention, or the learning, of the n-th layer.
#include <cstring>
#include <vector>

#include "ops/ops.h"
#include "tests/api/api_test.h"
#include "tests/policy/every_policy.h"

namespace weir::cpu {
Status attn_paged(OpContext&, const AttnPagedArgs&);
Status history_begin(OpContext&, const HistoryBeginArgs&);
}  // namespace weir::cpu

namespace {

// Calls of an operation since reset, and after which of them the session is cancelled.
struct Counted {
  int n = 0, cancel_at = -1, n_after = 0;
  bool is_over = false;
  void note(weir_session* session) {
    n_after += is_over;
    if (n++ != cancel_at) return;
    weir_session_cancel(session);
    is_over = true;
  }
} g_attention, g_learning;
weir_session* g_session;

}  // namespace

// What the library's table of operations has in place of these (tests/CMakeLists.txt).
extern "C" {
weir::Status __real__ZN4weir3cpu10attn_pagedERNS_9OpContextERKNS_13AttnPagedArgsE(weir::OpContext&,
                                                                                  const weir::AttnPagedArgs&);
weir::Status __real__ZN4weir3cpu13history_beginERNS_9OpContextERKNS_16HistoryBeginArgsE(weir::OpContext&,
                                                                                        const weir::HistoryBeginArgs&);
weir::Status __wrap__ZN4weir3cpu10attn_pagedERNS_9OpContextERKNS_13AttnPagedArgsE(weir::OpContext& cx,
                                                                                  const weir::AttnPagedArgs& a) {
  const weir::Status status = __real__ZN4weir3cpu10attn_pagedERNS_9OpContextERKNS_13AttnPagedArgsE(cx, a);
  g_attention.note(g_session);
  return status;
}
weir::Status __wrap__ZN4weir3cpu13history_beginERNS_9OpContextERKNS_16HistoryBeginArgsE(
    weir::OpContext& cx, const weir::HistoryBeginArgs& a) {
  const weir::Status status = __real__ZN4weir3cpu13history_beginERNS_9OpContextERKNS_16HistoryBeginArgsE(cx, a);
  g_learning.note(g_session);
  return status;
}
}  // extern "C"

namespace {

constexpr uint32_t kPrompt = 200, kBatch = 64;

weir_token token(uint32_t i) { return static_cast<weir_token>(i * 2654435761u % 199 + 20); }

weir_session* new_session(weir_model* model, const char* policy) {
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = WEIR_DEVICE_CPU;
  options.policy = policy;
  options.context_tokens = 1024;
  options.batch_tokens = kBatch;
  options.budget_tokens = std::strcmp(policy, "dense") == 0 ? 0 : 128;
  weir_session* session = nullptr;
  assert_ok(weir_session_create(model, &options, &session));
  return session;
}

weir_status prefill(weir_session* session, uint32_t first, uint32_t n) {
  std::vector<weir_token> tokens;
  for (uint32_t i = 0; i < n; ++i) tokens.push_back(token(first + i));
  return weir_session_prefill(session, tokens.data(), n, nullptr, nullptr);
}

weir_session_stats stats_of(const weir_session* session) {
  weir_session_stats stats = WEIR_SESSION_STATS_INIT;
  assert_ok(weir_session_get_stats(session, &stats));
  return stats;
}

void assert_alike(weir_session* a, weir_session* b, const char* what) {
  for (uint32_t i = 0; i < 24; ++i) {
    assert_ok(weir_session_step(a, token(900 + i)));
    assert_ok(weir_session_step(b, token(900 + i)));
    const float *of_a = nullptr, *of_b = nullptr;
    uint32_t n = 0;
    assert_ok(weir_session_logits(a, &of_a, &n));
    assert_ok(weir_session_logits(b, &of_b, nullptr));
    if (std::memcmp(of_a, of_b, n * sizeof(float)) != 0) fail_msg("%s: step %u differs", what, i);
  }
}

void start_counting(weir_session* session) {
  g_session = session;
  g_attention = {};
  g_learning = {};
}

// Calls that a whole prompt of so many tokens makes, after `before` others.
Counted count_prompt(weir_model* model, const char* policy, uint32_t before, uint32_t n, Counted& learning) {
  weir_session* session = new_session(model, policy);
  if (before != 0) assert_ok(prefill(session, 0, before));
  start_counting(session);
  assert_ok(prefill(session, 300, n));
  learning = g_learning;
  const Counted attention = g_attention;
  start_counting(nullptr);
  weir_session_destroy(session);
  return attention;
}

// In the first chunk, in the middle, and in each layer of the last one.
void cancel_layers__no_layer_after_a_cancel(void** state) {
  const auto* f = static_cast<fixture*>(*state);
  weir_model_info info = WEIR_MODEL_INFO_INIT;
  assert_ok(weir_model_get_info(f->model, &info));
  const auto n_layers = static_cast<int>(info.n_layers);
  for (const char* policy : every_policy) {
    Counted learning;
    const int n = count_prompt(f->model, policy, 40, kPrompt, learning).n;
    assert_true(n >= n_layers);
    std::vector<int> moments = {0, n / 2};
    for (int layer = n_layers; layer > 0; --layer) moments.push_back(n - layer);
    for (const int moment : moments) {
      weir_session *session = new_session(f->model, policy), *twin = new_session(f->model, policy);
      for (weir_session* s : {session, twin}) {
        assert_ok(prefill(s, 0, 40));
        assert_ok(weir_session_step(s, token(40)));
      }
      const weir_session_stats before = stats_of(session);
      start_counting(session);
      g_attention.cancel_at = moment;
      assert_error(prefill(session, 300, kPrompt), WEIR_ERR_CANCELLED, "cancelled");
      const Counted attention = g_attention;
      learning = g_learning;
      start_counting(nullptr);
      assert_int_equal(attention.n_after, 0);
      assert_int_equal(learning.n, 0);
      const weir_session_stats after = stats_of(session);
      if (after.pages_evicted == before.pages_evicted) {
        assert_int_equal(after.n_tokens, before.n_tokens);
        assert_alike(session, twin, policy);
      }
      weir_session_destroy(session);
      weir_session_destroy(twin);
    }
  }
}

// A first prompt can be cancelled while layers learn from it; when others have taught something already, the prompt is
// finished and the cancel ends the next call.
void cancel_layers__while_layers_learn(void** state) {
  const auto* f = static_cast<fixture*>(*state);
  for (const uint32_t before : {0u, 40u}) {
    Counted learning;
    (void)count_prompt(f->model, "lfps", before, kPrompt, learning);
    assert_true(learning.n > 2);
    for (const int moment : {0, learning.n / 2, learning.n - 2}) {
      weir_session *session = new_session(f->model, "lfps"), *twin = new_session(f->model, "lfps");
      for (weir_session* s : {session, twin}) {
        if (before != 0) assert_ok(prefill(s, 0, before));
      }
      const auto cancel = [&] {
        start_counting(session);
        g_learning.cancel_at = moment;
        const weir_status status = prefill(session, 300, kPrompt);
        const Counted seen = g_learning;
        start_counting(nullptr);
        if (before == 0) {
          assert_int_equal(status, WEIR_ERR_CANCELLED);
          assert_int_equal(seen.n_after, 0);
          assert_int_equal(stats_of(session).n_tokens, 0);
        } else {
          assert_int_equal(status, WEIR_OK);
          assert_int_equal(seen.n, learning.n);
        }
      };
      cancel();
      if (before == 0) {
        cancel();  // nothing is learned any more, so this prompt can be cancelled, too
      } else {
        assert_error(weir_session_step(session, token(0)), WEIR_ERR_CANCELLED, "cancelled");
        assert_ok(prefill(twin, 300, kPrompt));
      }
      assert_alike(session, twin, before == 0 ? "after a first prompt" : "after a second prompt");
      weir_session_destroy(session);
      weir_session_destroy(twin);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(cancel_layers__no_layer_after_a_cancel),
  };
  const CMUnitTest of_many_layers[] = {
      cmocka_unit_test(cancel_layers__while_layers_learn),
  };
  return cmocka_run_group_tests_name("api/cancel_layers", tests, open_long_run_fixture, close_fixture) +
         cmocka_run_group_tests_name("api/cancel_layers, many layers", of_many_layers, open_fixture, close_fixture);
}
