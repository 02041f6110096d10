// api: sessions of a model whose layers have a recurrent state: how a prompt is cut into chunks, going back, forks,
// saved sessions, cancels and failed steps, turns of a conversation, and what all of that costs in tokens read again.
// Longer than 600 lines because all of them compare with the same conversations, made by the same helpers.
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ops/delta_net.h"
#include "tests/api/save_test.h"
#include "weir/experimental.h"

namespace weir::cpu {
Status delta_net(OpContext&, const DeltaNetArgs&);
}  // namespace weir::cpu

namespace {

// The n-th call of the operation fails, or cancels the session after it.
struct Trap {
  int n = 0, fail_at = -1, cancel_at = -1;
  weir_session* session = nullptr;
} g_trap;

}  // namespace

// What the library's table of operations has in place of it (tests/CMakeLists.txt).
extern "C" {
weir::Status __real__ZN4weir3cpu9delta_netERNS_9OpContextERKNS_12DeltaNetArgsE(weir::OpContext&,
                                                                               const weir::DeltaNetArgs&);
weir::Status __wrap__ZN4weir3cpu9delta_netERNS_9OpContextERKNS_12DeltaNetArgsE(weir::OpContext& cx,
                                                                               const weir::DeltaNetArgs& a) {
  const int n = g_trap.n++;
  if (n == g_trap.fail_at) return weir::fail(WEIR_ERR_INTERNAL, "the operation was told to fail");
  const weir::Status status = __real__ZN4weir3cpu9delta_netERNS_9OpContextERKNS_12DeltaNetArgsE(cx, a);
  if (n == g_trap.cancel_at) weir_session_cancel(g_trap.session);
  return status;
}
}  // extern "C"

namespace {

#define RECURRENT_MODEL WEIR_SOURCE_DIR "/tests/golden/models/qwen35_f32.gguf"
// One for each kind of recurrent layer, and one with quantised weights.
#define GOLDEN(name) WEIR_SOURCE_DIR "/tests/golden/models/" name ".gguf"
constexpr const char* kModels[] = {RECURRENT_MODEL, GOLDEN("qwen35_q8_0"), GOLDEN("lfm2_f32"), GOLDEN("nemotron_h_f32"),
                                   GOLDEN("granitehybrid_f32")};
constexpr uint32_t kRecurrentLayers = 3;  // of four

using Tokens = std::vector<weir_token>;
using Logits = std::vector<float>;

struct Model {
  explicit Model(const char* path, uint32_t n_threads = 2) {
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    options.n_threads = n_threads;
    assert_ok(weir_runtime_create(&options, &runtime));
    assert_ok(weir_model_open(runtime, path, nullptr, &handle));
  }
  ~Model() {
    weir_model_close(handle);
    weir_runtime_destroy(runtime);
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  weir_runtime* runtime = nullptr;
  weir_model* handle = nullptr;
};

// The four policies that differ most in what they do with pages, and budgets that their conversations exceed.
const choice kChoices[] = {
    {"dense", {{nullptr, nullptr}}, 0, 0, 0, 0},
    {"raas", {{nullptr, nullptr}}, 0, 128, 200, 0},
    {"quest", {{"skip_layers", "0"}}, 1, 96, 0, 0},
    {"arkvale", {{nullptr, nullptr}}, 0, 128, 0, 0},
};

// Every kind of session for a model of which one layer has attention, so that none of these can be skipped.
std::vector<choice> all_choices() {
  std::vector<choice> all(std::begin(choices), std::end(choices));
  for (choice& c : all) {
    for (uint32_t i = 0; i < c.n_options; ++i) {
      if (std::string(c.options[i].key) == "skip_layers") c.options[i].value = "0";
    }
  }
  return all;
}

// The same with room for all pages of a conversation: what differs then has other reasons than what left.
choice with_room(choice c) {
  if (c.budget_tokens != 0) c.budget_tokens = 512;
  return c;
}

weir_session* new_session(const Model& model, const choice& c, uint32_t snapshot_tokens, uint32_t n_snapshots = 0) {
  weir_session_options options = options_of(&c);
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  assert_ok(weir_plan(model.handle, &options, &plan));
  options.snapshot_tokens = snapshot_tokens;
  options.snapshot_budget_bytes = n_snapshots * (plan.snapshot_bytes / plan.n_snapshots);
  return session_with(model.handle, &options);
}

Tokens some(uint32_t first, uint32_t n) {
  Tokens tokens;
  for (uint32_t i = 0; i < n; ++i) tokens.push_back(token(first + i));
  return tokens;
}

Tokens tokens_in(weir_session* session) {
  const weir_token* tokens = nullptr;
  uint32_t n = 0;
  assert_ok(weir_session_tokens(session, &tokens, &n));
  return {tokens, tokens + n};
}

Logits logits_in(weir_session* session) {
  const float* logits = nullptr;
  uint32_t n = 0;
  assert_ok(weir_session_logits(session, &logits, &n));
  return {logits, logits + n};
}

void read_in(weir_session* session, const Tokens& tokens, uint32_t chunk) {
  for (uint32_t at = 0; at < tokens.size(); at += chunk) {
    const auto n = static_cast<uint32_t>(std::min<size_t>(chunk, tokens.size() - at));
    assert_ok(weir_session_prefill(session, tokens.data() + at, n, nullptr, nullptr));
  }
}

void step_over(weir_session* session, const Tokens& tokens) {
  for (const weir_token t : tokens) assert_ok(weir_session_step(session, t));
}

double apart(const Logits& want, const Logits& got) {
  double worst = 0, scale = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = std::fabs(double{want[i]} - double{got[i]});
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
    scale = std::max(scale, std::fabs(double{want[i]}));
  }
  return worst / scale;
}

// Both have the same tokens and go on with the same logits, to the bit.
void assert_alike(weir_session* a, weir_session* b, const std::string& when) {
  if (tokens_in(a) != tokens_in(b)) fail_msg("other tokens: %s", when.c_str());
  for (uint32_t i = 0; i < 12; ++i) {
    for (weir_session* s : {a, b}) assert_ok(weir_session_step(s, token(900 + i * 7)));
    if (logits_in(a) != logits_in(b)) fail_msg("step %u differs: %s", i, when.c_str());
  }
}

weir_prompt_report prompt_with(weir_session* session, const Tokens& tokens, uint32_t flags = 0) {
  weir_prompt_options options = WEIR_PROMPT_OPTIONS_INIT;
  weir_prompt_report report = WEIR_PROMPT_REPORT_INIT;
  options.flags = flags;
  assert_ok(weir_session_prompt_tokens(session, tokens.data(), tokens.size(), &options, &report));
  return report;
}

// Where the session would go back to for its first n tokens.
uint32_t place_before(weir_session* session, uint32_t n) {
  Tokens tokens = tokens_in(session);
  tokens.resize(n);
  tokens.push_back(token(5000) == tokens_in(session)[n] ? token(5001) : token(5000));
  return prompt_with(session, tokens, WEIR_PROMPT_MEASURE).n_kept;
}

// --- prompts -------------------------------------------------------------------------------------------------------

// While nothing has to leave, a conversation ends with the same logits however it is cut into chunks and steps.
// Policies and chunks change nothing but the order of sums: the bounds are those of test_golden.cpp.
void recurrent__chunks(void**) {
  for (const char* path : kModels) {
    const Model model(path);
    const double most = path == kModels[1] ? 6e-3 : 2e-3;
    const Tokens tokens = some(0, 90);
    for (const choice& given : kChoices) {
      const choice c = with_room(given);
      weir_session* whole = new_session(model, c, 0);
      read_in(whole, tokens, 90);
      const Logits want = logits_in(whole);
      Logits of_ones;
      for (const uint32_t chunk : {1u, 7u, 64u, 65u, 0u}) {
        weir_session* session = new_session(model, c, 0);
        if (chunk == 0) step_over(session, tokens);
        if (chunk != 0) read_in(session, tokens, chunk);
        assert_int_equal(stats_of(session).pages_evicted, 0);
        const double d = apart(want, logits_in(session));
        if (d > most) fail_msg("%s: chunks of %u: %.2e", c.policy, chunk, d);
        // The whole prompt is in chunks of 64 itself, and a step is a chunk of one.
        if (chunk == 64 && d != 0) fail_msg("%s: chunks of 64 are others", c.policy);
        if (chunk == 1) of_ones = logits_in(session);
        if (chunk == 0 && logits_in(session) != of_ones) fail_msg("%s: steps are no chunks of one", c.policy);
        weir_session_destroy(session);
      }
      weir_session_destroy(whole);
    }
  }
}

// Where a snapshot is due a chunk ends, so a prompt with snapshots is one that is given in such pieces.
void recurrent__snapshots_end_chunks(void**) {
  const Model model(RECURRENT_MODEL);
  const Tokens tokens = some(0, 130);
  weir_session *session = new_session(model, kChoices[0], 48), *twin = new_session(model, kChoices[0], 0);
  read_in(session, tokens, 130);
  read_in(twin, tokens, 48);
  assert_alike(session, twin, "chunks of 48");
  weir_session_destroy(session);
  weir_session_destroy(twin);
}

// --- going back ----------------------------------------------------------------------------------------------------

// To any place, and then on: as a session that read the same in the same pieces and never was anywhere else.
void recurrent__rewinds(void**) {
  for (const char* path : kModels) {
    const Model model(path);
    for (const choice& given : kChoices) {
      const choice c = with_room(given);
      for (const uint32_t n : {0u, 1u, 15u, 16u, 47u, 48u, 63u, 64u, 65u, 99u, 100u, 101u, 127u, 128u, 135u, 159u}) {
        weir_session *session = new_session(model, c, 32, 12), *twin = new_session(model, c, 32, 12);
        const Tokens text = some(0, 100), answer = some(300, 60);
        read_in(session, text, 100);
        step_over(session, answer);
        const uint32_t at = place_before(session, n);
        // Policies that look at a prompt's last tokens have them in one chunk, raas 64.
        if (at > n || n - at > (std::string(c.policy) == "raas" ? 96u : 32u))
          fail_msg("%s: %u for %u tokens", c.policy, at, n);
        assert_ok(weir_session_rewind(session, n, 0));
        Tokens all = text;
        all.insert(all.end(), answer.begin(), answer.end());
        // The same pieces: the prompt as far as it was read, then steps, then what was read again.
        const Tokens again(all.begin() + at, all.begin() + n);
        read_in(twin, Tokens(all.begin(), all.begin() + std::min(at, 100u)), 100);
        if (at > 100) step_over(twin, Tokens(all.begin() + 100, all.begin() + at));
        if (!again.empty()) read_in(twin, again, 1000);
        assert_alike(session, twin, std::string(c.policy) + ": a rewind to " + std::to_string(n));
        weir_session_destroy(session);
        weir_session_destroy(twin);
      }
    }
  }
}

// A rewind that is cancelled, or fails, while it reads again ends at the snapshot.
void recurrent__rewinds_that_end(void**) {
  const Model model(RECURRENT_MODEL);
  for (const bool cancels : {true, false}) {
    for (const int at : {0, 2, 4}) {
      weir_session *session = new_session(model, kChoices[0], 32), *twin = new_session(model, kChoices[0], 32);
      read_in(session, some(0, 100), 100);
      read_in(twin, some(0, 64), 64);
      g_trap = {};
      g_trap.session = session;
      (cancels ? g_trap.cancel_at : g_trap.fail_at) = at % static_cast<int>(kRecurrentLayers);
      const weir_status status = weir_session_rewind(session, 90, 0);
      g_trap = {};
      assert_int_equal(status, cancels ? WEIR_ERR_CANCELLED : WEIR_ERR_INTERNAL);
      assert_int_equal(stats_of(session).n_tokens, 64);
      assert_alike(session, twin, "after a rewind that ended early");
      weir_session_destroy(session);
      weir_session_destroy(twin);
    }
  }
}

// A lossy rewind looks for the snapshot that it can end at before it changes anything. Where the page of the nearest
// one has left, this is an earlier one, whose tokens a conversation without end may hold no more.
void recurrent__lossy_rewinds_beyond_what_is_held(void**) {
  const Model model(RECURRENT_MODEL);
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = WEIR_DEVICE_CPU;
  options.policy = "sink";
  options.budget_tokens = 96;
  options.batch_tokens = 64;
  options.snapshot_tokens = 1 << 20;  // at the ends of prompts alone
  weir_session* session = session_with(model.handle, &options);
  read_in(session, some(0, 37), 37);
  // A conversation without end holds all of up to 8,416 tokens here, and then the latest alone.
  const Tokens long_text = some(100, 12000), answer = some(20000, 120);
  assert_ok(weir_session_prefill(session, long_text.data(), long_text.size(), nullptr, nullptr));
  step_over(session, answer);
  const uint32_t n = stats_of(session).n_tokens;
  assert_int_equal(n, 37 + 12000 + 120);
  // Behind the end of the long text, whose page has left.
  assert_int_equal(weir_session_rewind(session, 12040, WEIR_REWIND_LOSSY), WEIR_ERR_NOT_FOUND);
  assert_non_null(std::strstr(weir_last_error(), "are not held any more"));
  assert_int_equal(stats_of(session).n_tokens, n);
  step_over(session, some(7, 3));
  weir_session_destroy(session);
}

// What is behind a rewind has left no trace, however often it is done.
void recurrent__many_rewinds(void**) {
  const Model model(RECURRENT_MODEL);
  weir_session *session = new_session(model, kChoices[0], 16), *twin = new_session(model, kChoices[0], 16);
  for (weir_session* s : {session, twin}) read_in(s, some(0, 64), 64);
  for (uint32_t i = 0; i < 20; ++i) {
    step_over(session, some(i * 31, 3 + i));
    assert_ok(weir_session_rewind(session, 64, 0));
  }
  assert_alike(session, twin, "20 rewinds");
  weir_session_destroy(session);
  weir_session_destroy(twin);
}

// --- copies --------------------------------------------------------------------------------------------------------

void talk(weir_session* session) {
  read_in(session, some(0, 70), 70);
  step_over(session, some(400, 45));
  read_in(session, some(500, 33), 33);
  step_over(session, some(600, 25));
}

void recurrent__forks(void**) {
  for (const char* path : kModels) {
    const Model model(path);
    for (const choice& c : kChoices) {
      weir_session *session = new_session(model, c, 16), *twin = new_session(model, c, 16), *fork = nullptr;
      for (weir_session* s : {session, twin}) talk(s);
      assert_ok(weir_session_fork(session, &fork));
      step_over(session, some(700, 20));  // which the fork does not see
      assert_int_equal(place_before(fork, 148), place_before(twin, 148));
      assert_alike(fork, twin, std::string(c.policy) + ": a fork");
      for (weir_session* s : {fork, twin}) assert_ok(weir_session_rewind(s, 148, WEIR_REWIND_LOSSY));
      assert_alike(fork, twin, std::string(c.policy) + ": a fork that goes back");
      weir_session_destroy(session);
      weir_session_destroy(fork);
      weir_session_destroy(twin);
    }
  }
}

void recurrent__saved(void**) {
  for (const char* path : kModels) {
    for (const choice& c : kChoices) {
      file f = {};
      {
        const Model model(path);
        weir_session *session = new_session(model, c, 16), *other = new_session(model, c, 16);
        talk(session);
        f = saved(session);
        read_in(other, some(9, 40), 40);
        assert_ok(restore_from(other, &f));
        file again = saved(other);
        assert_int_equal(f.n, again.n);
        assert_memory_equal(f.bytes, again.bytes, f.n);
        free(again.bytes);
        assert_alike(session, other, std::string(c.policy) + ": restored");
        weir_session_destroy(session);
        weir_session_destroy(other);
      }
      const Model model(path);  // nothing of the one before is there
      weir_session *session = new_session(model, c, 16), *twin = new_session(model, c, 16);
      talk(twin);
      assert_ok(restore_from(session, &f));
      assert_int_equal(place_before(session, 140), place_before(twin, 140));
      for (weir_session* s : {session, twin}) assert_ok(weir_session_rewind(s, 148, WEIR_REWIND_LOSSY));
      assert_alike(session, twin, std::string(c.policy) + ": restored, gone back");
      weir_session_destroy(session);
      weir_session_destroy(twin);
      free(f.bytes);
    }
  }
}

// A saved session is restored where as many snapshots have room, and otherwise it is said what differs.
void recurrent__saved_with_other_snapshots(void**) {
  const Model model(RECURRENT_MODEL);
  weir_session *session = new_session(model, kChoices[0], 16, 3), *other = new_session(model, kChoices[0], 16, 5);
  weir_session* fresh = new_session(model, kChoices[0], 16, 5);
  talk(session);
  talk(other);
  file f = saved(session);
  assert_error(restore_from(other, &f), WEIR_ERR_UNSUPPORTED, "snapshots");
  assert_non_null(strstr(weir_last_error(), "3"));
  assert_non_null(strstr(weir_last_error(), "5"));
  assert_int_equal(stats_of(other).n_tokens, 0);
  for (weir_session* s : {other, fresh}) read_in(s, some(0, 40), 40);
  assert_alike(other, fresh, "after a restore that was refused");
  for (weir_session* s : {session, other, fresh}) weir_session_destroy(s);
  free(f.bytes);
}

// --- failures ------------------------------------------------------------------------------------------------------

weir_status refuse_after(void* user, const weir_progress_info*) {
  auto* left = static_cast<uint32_t*>(user);
  return (*left)-- == 0 ? WEIR_ERR_STATE : WEIR_OK;
}

// A prompt that is cancelled before it, between chunks or in a layer, and one whose layer fails, was never there.
void recurrent__prompts_that_end(void**) {
  const Model model(RECURRENT_MODEL);
  for (const choice& given : kChoices) {
    const choice c = with_room(given);
    // Chunks end at multiples of 32, if more than the tokens are left that the policy looks at.
    for (const uint32_t before : {0u, 32u, 45u}) {
      for (int way = 0; way < 9; ++way) {
        weir_session *session = new_session(model, c, 32), *twin = new_session(model, c, 32);
        for (weir_session* s : {session, twin}) {
          if (before != 0) read_in(s, some(0, before), before);
          if (before == 45) step_over(s, some(50, 5));
        }
        const Tokens text = some(100, 130);
        g_trap = {};
        g_trap.session = session;
        weir_status status = WEIR_OK;
        const bool fails = way >= 6;
        if (way < 3) {  // before, and between chunks
          uint32_t left = static_cast<uint32_t>(way);
          status = weir_session_prefill(session, text.data(), text.size(), refuse_after, &left);
        } else {
          const int at = (way % 3) * 4;  // in layers of the first, second and third chunk
          if (fails) g_trap.fail_at = at;
          if (!fails) g_trap.cancel_at = at;
          status = weir_session_prefill(session, text.data(), text.size(), nullptr, nullptr);
        }
        g_trap = {};
        const std::string when =
            std::string(c.policy) + ", " + std::to_string(before) + " tokens before, way " + std::to_string(way);
        if (status != (fails ? WEIR_ERR_INTERNAL : WEIR_ERR_CANCELLED))
          fail_msg("%s: %s", when.c_str(), weir_status_name(status));
        if (before != 0 && !fails) {
          if (logits_in(session) != logits_in(twin)) fail_msg("%s: other logits", when.c_str());
        }
        assert_alike(session, twin, when);
        for (weir_session* s : {session, twin}) read_in(s, text, 1000);
        assert_alike(session, twin, when + ", then read");
        weir_session_destroy(session);
        weir_session_destroy(twin);
      }
    }
  }
}

// A step that fails in a recurrent layer is none.
void recurrent__steps_that_fail(void**) {
  const Model model(RECURRENT_MODEL);
  for (const choice& c : kChoices) {
    weir_session *session = new_session(model, c, 16), *twin = new_session(model, c, 16), *third = nullptr;
    for (weir_session* s : {session, twin}) read_in(s, some(0, 47), 47);
    assert_ok(weir_session_fork(twin, &third));
    for (int layer = 0; layer < static_cast<int>(kRecurrentLayers); ++layer) {
      g_trap = {};
      g_trap.fail_at = layer;
      assert_error(weir_session_step(session, token(5)), WEIR_ERR_INTERNAL, "told to fail");
      g_trap = {};
      g_trap.fail_at = layer;
      weir_session* both[] = {session, third};
      const weir_token tokens[] = {token(6), token(7)};
      assert_int_equal(weir_step_many(both, tokens, 2), WEIR_ERR_INTERNAL);
      g_trap = {};
      assert_true(logits_in(session) == logits_in(twin));
    }
    assert_alike(session, twin, std::string(c.policy) + ": after steps that failed");
    for (weir_session* s : {session, twin, third}) weir_session_destroy(s);
  }
}

// --- turns ---------------------------------------------------------------------------------------------------------

// Under every policy: the next turn with and without the answer's thoughts, another answer, an edited message. What is
// read is what is new and at most one stretch between snapshots, and what follows is a conversation like any other.
void recurrent__turns(void**) {
  const Model model(RECURRENT_MODEL);
  constexpr uint32_t kEvery = 64, kMessage = 90, kAnswer = 500, kNew = 20;
  for (const choice& c : all_choices()) {
    for (const uint32_t n_snapshots : {2u, 0u}) {  // 0: the default, four
      const auto assert_read = [&](const weir_prompt_report& r, uint32_t n_new, uint32_t n_forgotten,
                                   const char* what) {
        if (r.n_read > n_new + kEvery) fail_msg("%s, %s: %u tokens are read", c.policy, what, r.n_read);
        if (r.n_forgotten != n_forgotten) fail_msg("%s, %s: %u are forgotten", c.policy, what, r.n_forgotten);
        assert_int_equal(r.n_kept + r.n_read, r.n_tokens);
      };
      weir_session* session = new_session(model, c, kEvery, n_snapshots);
      weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
      weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
      generate.max_tokens = kAnswer;
      generate.flags = WEIR_GENERATE_IGNORE_EOS;
      const Tokens message = some(0, kMessage);
      Tokens next = message;
      const Tokens more = some(1000, kNew);
      assert_read(prompt_with(session, message), kMessage, 0, "first");
      assert_ok(weir_session_generate(session, &generate, &result));
      // Another answer.
      assert_read(prompt_with(session, message), 0, result.n_tokens + 1, "another answer");
      assert_ok(weir_session_generate(session, &generate, &result));
      // The next turn, without what was thought.
      next.insert(next.end(), more.begin(), more.end());
      assert_read(prompt_with(session, next), kNew, result.n_tokens, "without thoughts");
      generate.max_tokens = kAnswer / 2;
      assert_ok(weir_session_generate(session, &generate, &result));
      // And with the answer.
      next = tokens_in(session);
      next.insert(next.end(), more.begin(), more.end());
      weir_prompt_report r = prompt_with(session, next);
      assert_int_equal(r.n_read, kNew);
      assert_int_equal(r.n_forgotten, 0);
      // The last message is another one.
      const auto n_before = static_cast<uint32_t>(next.size() - kNew);
      assert_ok(weir_session_generate(session, &generate, &result));
      next.resize(n_before);
      next.insert(next.end(), message.begin(), message.begin() + 30);
      const bool lost = stats_of(session).pages_dropped != 0;
      r = prompt_with(session, next);
      // Without the page in which the message begins it goes back further.
      if (!lost && r.n_read > 30 + kEvery) fail_msg("%s, an edit: %u tokens are read", c.policy, r.n_read);
      assert_true(tokens_in(session) == next || c.spill_bytes != 0);
      assert_ok(weir_session_step(session, token(1)));
      for (const float x : logits_in(session)) assert_true(std::isfinite(x));
      weir_session_destroy(session);
    }
  }
}

// What a prompt makes of a conversation is what a session has that read the same from the snapshot on.
void recurrent__turns_are_exact(void**) {
  const Model model(RECURRENT_MODEL);
  weir_session *session = new_session(model, kChoices[0], 1024), *twin = new_session(model, kChoices[0], 1024);
  Tokens next = some(0, 90);
  (void)prompt_with(session, next);
  step_over(session, some(200, 100));
  const Tokens more = some(1000, 20);
  next.insert(next.end(), more.begin(), more.end());
  const weir_prompt_report r = prompt_with(session, next);
  assert_int_equal(r.n_kept, 80);  // where the last page of the message begins
  assert_int_equal(r.n_read, 30);
  assert_int_equal(r.n_forgotten, 100);
  read_in(twin, some(0, 80), 80);
  read_in(twin, Tokens(next.begin() + 80, next.begin() + 96), 16);
  read_in(twin, Tokens(next.begin() + 96, next.end()), 14);
  assert_true(logits_in(session) == logits_in(twin));
  assert_alike(session, twin, "the second turn");
  // With nothing new, the last token is stepped or read again for its logits.
  next = tokens_in(session);
  assert_ok(weir_session_rewind(session, static_cast<uint32_t>(next.size()), 0));
  assert_true(prompt_with(session, next).n_read >= 1);
  assert_true(apart(logits_in(twin), logits_in(session)) < 2e-3);
  weir_session_destroy(session);
  weir_session_destroy(twin);
}

// --- many, none, and what is left ----------------------------------------------------------------------------------

void recurrent__step_many(void**) {
  const Model model(RECURRENT_MODEL);
  for (const choice& c : kChoices) {
    weir_session *together[5], *alone[5];
    for (uint32_t i = 0; i < 5; ++i) {
      together[i] = new_session(model, c, 16);
      alone[i] = new_session(model, c, 16);
      for (weir_session* s : {together[i], alone[i]}) read_in(s, some(i * 10, 3 + i * 17), 100);
    }
    for (uint32_t k = 0; k < 40; ++k) {
      weir_token tokens[5];
      for (uint32_t i = 0; i < 5; ++i) tokens[i] = token(k * 5 + i);
      assert_ok(weir_step_many(together, tokens, 5));
      for (uint32_t i = 0; i < 5; ++i) assert_ok(weir_session_step(alone[i], tokens[i]));
      for (uint32_t i = 0; i < 5; ++i) {
        if (logits_in(together[i]) != logits_in(alone[i])) fail_msg("%s: step %u of session %u", c.policy, k, i);
      }
    }
    for (uint32_t i = 0; i < 5; ++i) {
      const uint32_t n = stats_of(alone[i]).n_tokens;
      assert_int_equal(place_before(together[i], n - 1), place_before(alone[i], n - 1));
      assert_alike(together[i], alone[i], "afterwards");
      weir_session_destroy(together[i]);
      weir_session_destroy(alone[i]);
    }
  }
}

void recurrent__resets(void**) {
  const Model model(RECURRENT_MODEL);
  for (const choice& c : kChoices) {
    weir_session *session = new_session(model, c, 16), *fresh = new_session(model, c, 16);
    talk(session);
    assert_ok(weir_session_reset(session));
    for (weir_session* s : {session, fresh}) read_in(s, some(33, 61), 61);
    assert_true(logits_in(session) == logits_in(fresh));
    assert_alike(session, fresh, std::string(c.policy) + ": after a reset");
    weir_session_destroy(session);
    weir_session_destroy(fresh);
  }
}

void recurrent__threads_change_no_bit(void**) {
  Logits want[std::size(kModels)];
  for (uint32_t n_threads = 1; n_threads <= 4; ++n_threads) {
    for (size_t m = 0; m < std::size(kModels); ++m) {
      const Model model(kModels[m], n_threads);
      weir_session* session = new_session(model, kChoices[0], 32);
      talk(session);
      const Logits got = logits_in(session);
      if (n_threads == 1) want[m] = got;
      assert_true(got == want[m]);
      weir_session_destroy(session);
    }
  }
}

// --- memory --------------------------------------------------------------------------------------------------------

void recurrent__plan(void**) {
  const Model model(RECURRENT_MODEL);
  // Three rows of 128 channels and four heads of 16 times 16, in three layers.
  const uint64_t one = uint64_t{kRecurrentLayers} * (3 * 128 + 4 * 16 * 16) * sizeof(float);
  for (const choice& c : all_choices()) {
    weir_session_options options = options_of(&c);
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    assert_ok(weir_plan(model.handle, &options, &plan));
    assert_int_equal(plan.recurrent_bytes, 2 * one);
    assert_int_equal(plan.n_snapshots, 4);
    assert_int_equal(plan.snapshot_tokens, 1024);
    assert_int_equal(plan.snapshot_bytes, 4 * one);
    assert_int_equal(plan.n_streams, 2);  // one layer of four has attention, and two KV heads
    assert_int_equal(plan.total_bytes, plan.kv_bytes + plan.digest_bytes + plan.table_bytes + plan.workspace_bytes +
                                           plan.sampler_bytes + plan.session_bytes + plan.staging_bytes +
                                           plan.spill_bytes + plan.library_bytes + plan.recurrent_bytes +
                                           plan.snapshot_bytes);
    options.snapshot_budget_bytes = 7 * one - 1;
    options.snapshot_tokens = 16;
    assert_ok(weir_plan(model.handle, &options, &plan));
    assert_int_equal(plan.n_snapshots, 6);
    assert_int_equal(plan.snapshot_bytes, 6 * one);
    assert_int_equal(plan.snapshot_tokens, 16);
    weir_session* session = session_with(model.handle, &options);
    read_in(session, some(0, 100), 100);
    step_over(session, some(100, 200));
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    assert_ok(weir_session_memory(session, &memory));
    assert_int_equal(memory.plan_bytes, plan.total_bytes);
    assert_int_equal(memory.bytes, plan.total_bytes);
    assert_int_equal(memory.allocs_while_decoding, 0);
    weir_session_destroy(session);
  }
}

// Options that cannot be: the message names them and what can be.
void recurrent__bad_options(void**) {
  const Model model(RECURRENT_MODEL);
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  weir_session* session = nullptr;
  assert_ok(weir_plan(model.handle, &options, &plan));
  options.snapshot_budget_bytes = plan.snapshot_bytes / plan.n_snapshots - 1;
  assert_error(weir_plan(model.handle, &options, &plan), WEIR_ERR_BUDGET, "snapshot_budget_bytes");
  assert_non_null(strstr(weir_last_error(), std::to_string(options.snapshot_budget_bytes + 1).c_str()));
  assert_error(weir_session_create(model.handle, &options, &session), WEIR_ERR_BUDGET, "snapshot_budget_bytes");
  assert_null(session);
  options.snapshot_budget_bytes += 1;
  assert_ok(weir_plan(model.handle, &options, &plan));
  assert_int_equal(plan.n_snapshots, 1);
  options.snapshot_budget_bytes = UINT64_MAX;  // more than anybody needs
  assert_ok(weir_plan(model.handle, &options, &plan));
  assert_true(plan.n_snapshots >= 1 && plan.n_snapshots <= 1024);
  options.snapshot_budget_bytes = 0;
  for (const uint32_t n : {1u, 15u, 0x40000001u, UINT32_MAX}) {
    options.snapshot_tokens = n;
    assert_error(weir_plan(model.handle, &options, &plan), WEIR_ERR_INVALID_ARG, "snapshot_tokens");
  }
  options.snapshot_tokens = 0;
  // Without such layers they say nothing.
  const Model plain(SMALL_MODEL);
  options.snapshot_budget_bytes = 1;
  assert_ok(weir_plan(plain.handle, &options, &plan));
  assert_int_equal(plan.n_snapshots, 0);
  assert_int_equal(plan.recurrent_bytes, 0);
  assert_int_equal(plan.snapshot_bytes, 0);
}

// --- what is shown -------------------------------------------------------------------------------------------------

weir_status see_layer(void* user, const weir_trace_layer* layer) {
  static_cast<Tokens*>(user)->push_back(static_cast<weir_token>(layer->layer));
  assert_int_equal(layer->n_kv_heads, 2);
  return WEIR_OK;
}

// Streams, pins and traces are of the layers with attention, which are counted by themselves.
void recurrent__pages_and_traces(void**) {
  const Model model(RECURRENT_MODEL);
  const auto trace = reinterpret_cast<weir_session_trace_fn>(weir_get_experimental("weir_session_trace"));
  assert_non_null(trace);
  for (const choice& c : kChoices) {
    weir_session_options options = options_of(&c);
    options.flags = WEIR_SESSION_TRACE;
    weir_session* session = session_with(model.handle, &options);
    read_in(session, some(0, 60), 60);
    Tokens layers;
    assert_ok(trace(session, see_layer, &layers));
    step_over(session, some(60, 3));
    assert_ok(trace(session, nullptr, nullptr));
    assert_true(layers == Tokens({0, 0, 0}));
    assert_ok(weir_session_pin(session, 0, 16));
    weir_page_state pages[8];
    uint32_t n = 0;
    assert_ok(weir_session_pages(session, pages, 8, &n));
    assert_int_equal(n, 4);
    for (uint32_t i = 0; i < n; ++i) assert_int_equal(pages[i].resident + pages[i].cold + pages[i].lost, 2);
    assert_int_equal(pages[0].pinned, 2);
    weir_session_destroy(session);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(recurrent__chunks),
      cmocka_unit_test(recurrent__snapshots_end_chunks),
      cmocka_unit_test(recurrent__rewinds),
      cmocka_unit_test(recurrent__rewinds_that_end),
      cmocka_unit_test(recurrent__lossy_rewinds_beyond_what_is_held),
      cmocka_unit_test(recurrent__many_rewinds),
      cmocka_unit_test(recurrent__forks),
      cmocka_unit_test(recurrent__saved),
      cmocka_unit_test(recurrent__saved_with_other_snapshots),
      cmocka_unit_test(recurrent__prompts_that_end),
      cmocka_unit_test(recurrent__steps_that_fail),
      cmocka_unit_test(recurrent__turns),
      cmocka_unit_test(recurrent__turns_are_exact),
      cmocka_unit_test(recurrent__step_many),
      cmocka_unit_test(recurrent__resets),
      cmocka_unit_test(recurrent__threads_change_no_bit),
      cmocka_unit_test(recurrent__plan),
      cmocka_unit_test(recurrent__bad_options),
      cmocka_unit_test(recurrent__pages_and_traces),
  };
  return cmocka_run_group_tests_name("recurrent", tests, nullptr, nullptr);
}
