// runtime: callbacks that throw. An exception is that callback's refusal: the same status, the same state afterwards,
// "the callback threw" in the message.
#include <dirent.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "api/handles.h"
#include "tests/cmocka_cpp.h"
#include "weir/experimental.h"

namespace {

constexpr char kModel[] = WEIR_SOURCE_DIR "/samples/models/weir-tiny-reasoner-q8_0.gguf";

void assert_ok(weir_status status) {
  if (status != WEIR_OK) fail_msg("%s: %s", weir_status_name(status), weir_last_error());
}

void assert_threw(weir_status status, weir_status expected, const char* text) {
  const std::string message = weir_last_error();
  if (status == expected && message.find(text) != message.npos && message.find("the callback threw") != message.npos)
    return;
  fail_msg("%s \"%s\", expected %s with \"%s\" and \"the callback threw\"", weir_status_name(status), message.c_str(),
           weir_status_name(expected), text);
}

struct Fixture {
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  weir_session_trace_fn set_trace =
      reinterpret_cast<weir_session_trace_fn>(weir_get_experimental("weir_session_trace"));
  Fixture() {
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    options.n_threads = 2;
    assert_ok(weir_runtime_create(&options, &runtime));
    assert_ok(weir_model_open(runtime, kModel, nullptr, &model));
  }
  ~Fixture() {
    weir_model_close(model);
    weir_runtime_destroy(runtime);
  }
};

struct Session {
  weir_session* handle = nullptr;
  Session(const Fixture& f, const char* policy, uint32_t budget, uint32_t batch = 0,
          const weir_key_value* option = nullptr, uint32_t context = 4096) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.flags = WEIR_SESSION_TRACE;
    options.device = WEIR_DEVICE_CPU;
    options.policy = policy;
    options.context_tokens = context;
    options.budget_tokens = budget;
    options.batch_tokens = batch;
    options.policy_options = option;
    options.n_policy_options = option != nullptr ? 1 : 0;
    assert_ok(weir_session_create(f.model, &options, &handle));
  }
  ~Session() { weir_session_destroy(handle); }
  operator weir_session*() const { return handle; }

  weir_session_stats stats() const {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(handle, &stats));
    return stats;
  }
  std::vector<float> logits() const {
    const float* view = nullptr;
    uint32_t n = 0;
    assert_ok(weir_session_logits(handle, &view, &n));
    return {view, view + n};
  }
  // In every stream the open page has only the conversation's tokens, none of a step that failed.
  void check_open_pages() const {
    const weir::KvCache& kv = handle->kv();
    for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) {
      const weir::StreamView stream = kv.stream(s);
      if (stream.n_pages == 0) continue;
      assert_int_equal(stream.first_pos[stream.n_pages - 1] + stream.len[stream.n_pages - 1], kv.n_tokens());
      for (uint32_t row = 0; row < stream.n_pages; ++row) assert_true(stream.len[row] <= weir::kPageTokens);
    }
  }
};

std::vector<weir_token> tokens_of(uint32_t n, uint32_t first = 0) {
  std::vector<weir_token> tokens(n);
  for (uint32_t i = 0; i < n; ++i) tokens[i] = static_cast<weir_token>(7 + (first + i) * 37 % 900);
  return tokens;
}

void prefill(weir_session* session, uint32_t n, uint32_t first = 0) {
  assert_ok(weir_session_prefill(session, tokens_of(n, first).data(), n, nullptr, nullptr));
}

void assert_same_after_steps(const Session& a, const Session& b) {
  prefill(a, 40, 9);
  prefill(b, 40, 9);
  for (int i = 0; i < 20; ++i) {
    assert_ok(weir_session_step(a, 11 + i));
    assert_ok(weir_session_step(b, 11 + i));
  }
  assert_true(a.logits() == b.logits());
  assert_int_equal(a.stats().pages_resident, b.stats().pages_resident);
}

weir_status throw_third(void* user, const weir_progress_info*) {
  if (++*static_cast<int*>(user) == 3) throw std::runtime_error("out of patience");
  return WEIR_OK;
}

// Taken back as a whole: tokens, counters, pages and logits are those from before.
void callbacks__progress_throws(void**) {
  const Fixture f;
  const weir_key_value digest = {"stamp_source", "digest"};
  for (const char* policy : {"dense", "quest", "raas"}) {
    const weir_key_value* option = std::strcmp(policy, "raas") == 0 ? &digest : nullptr;
    const Session session(f, policy, 1024, 16, option), other(f, policy, 1024, 16, option);
    for (const Session* s : {&session, &other}) prefill(*s, 50);
    const std::vector<float> before = session.logits();
    int n_calls = 0;
    assert_threw(weir_session_prefill(session, tokens_of(100).data(), 100, throw_third, &n_calls), WEIR_ERR_CANCELLED,
                 "prefill was cancelled by its progress callback after 32 of 100 tokens");
    assert_int_equal(n_calls, 3);
    assert_int_equal(session.stats().n_tokens, 50);
    assert_int_equal(session.stats().n_prompt, 50);
    assert_true(session.logits() == before);
    session.check_open_pages();
    assert_same_after_steps(session, other);
  }
}

// Where prompt pages had to leave, whole chunks stay and are counted, and there are no logits of another position.
void callbacks__progress_throws_where_pages_left(void**) {
  const Fixture f;
  const Session session(f, "sink", 128, 16);
  prefill(session, 100);
  int n_calls = -17;
  assert_threw(weir_session_prefill(session, tokens_of(1000).data(), 1000, throw_third, &n_calls), WEIR_ERR_CANCELLED,
               "of 1000 tokens");
  const weir_session_stats stats = session.stats();
  assert_true(stats.n_tokens > 100 && stats.n_tokens < 1100);
  assert_int_equal(stats.n_prompt, stats.n_tokens);
  const float* logits = nullptr;
  assert_int_equal(weir_session_logits(session, &logits, nullptr), WEIR_ERR_STATE);
  session.check_open_pages();
  assert_ok(weir_session_step(session, 5));
  assert_ok(weir_session_logits(session, &logits, nullptr));
}

// What stays of a cancelled prompt is a prompt like any other: its pages have no marks, and the stamps of their ends.
void callbacks__a_cut_prompt_ends_like_any_other(void**) {
  const Fixture f;
  const weir_key_value by_token = {"decide", "token"}, zero = {"init", "zero"};
  for (const auto& [policy, option] : {std::pair{"tova", &by_token}, std::pair{"h2o", &zero}}) {
    const Session cut(f, policy, 256, 64, option), whole(f, policy, 256, 64, option);
    int n_calls = -6;
    assert_threw(weir_session_prefill(cut, tokens_of(1000).data(), 1000, throw_third, &n_calls), WEIR_ERR_CANCELLED,
                 "of 1000 tokens");
    const uint32_t n_kept = static_cast<uint32_t>(cut.stats().n_tokens);
    assert_true(n_kept > 256 && n_kept < 1000);
    prefill(whole, n_kept);
    const weir::KvCache &a = cut.handle->kv(), &b = whole.handle->kv();
    for (uint32_t i = 0; i < a.shape().n_streams(); ++i) {
      const weir::StreamView x = a.stream(i), y = b.stream(i);
      assert_int_equal(x.n_pages, y.n_pages);
      assert_memory_equal(x.first_pos, y.first_pos, x.n_pages * sizeof(uint32_t));
      assert_memory_equal(x.stamp, y.stamp, x.n_pages * sizeof(uint32_t));
      assert_memory_equal(x.flags, y.flags, x.n_pages * sizeof(uint32_t));
    }
  }
}

// The tokens that were shown stay, including the one whose callback threw.
void callbacks__token_throws(void**) {
  const Fixture f;
  const Session session(f, "raas", 128), other(f, "raas", 128);
  for (const Session* s : {&session, &other}) prefill(*s, 50);
  weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
  weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
  std::vector<weir_token> shown;
  options.flags = WEIR_GENERATE_IGNORE_EOS;
  options.user = &shown;
  options.on_token = [](void* user, const weir_token_event* event) -> weir_status {
    static_cast<std::vector<weir_token>*>(user)->push_back(event->token);
    if (event->index == 4) throw 5;
    return WEIR_OK;
  };
  assert_threw(weir_session_generate(session, &options, &result), WEIR_ERR_CANCELLED,
               "generation was cancelled after 5 tokens");
  assert_int_equal(result.stop, WEIR_STOP_CANCELLED);
  assert_int_equal(result.n_tokens, 5);
  assert_int_equal(shown.size(), 5);
  assert_int_equal(session.stats().n_tokens, 55);
  for (weir_token token : shown) assert_ok(weir_session_step(other, token));
  assert_same_after_steps(session, other);
}

// An answer of random tokens, most of which are parts of characters, until the context is full. The last event, without
// a token, brings what is incomplete then; its refusal counts as any other's. Nothing is lost by it.
struct LastEvent {
  bool throws = false;
  uint32_t n_last = 0;

  static weir_status call(void* user, const weir_token_event* event) {
    auto& self = *static_cast<LastEvent*>(user);
    if (event->token >= 0) return WEIR_OK;
    ++self.n_last;
    if (self.throws) throw 5;
    return WEIR_ERR_STATE;
  }
};

void callbacks__token_throws_in_the_last_event(void**) {
  const Fixture f;
  uint32_t n_found = 0;
  for (uint32_t seed = 0; seed < 400 && n_found < 4; ++seed) {
    Session session(f, "dense", 0, 0, nullptr, 24);
    prefill(session, 4);
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    sampling.temperature = 100;
    sampling.seed = seed;
    assert_ok(weir_session_set_sampling(session, &sampling));
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    LastEvent last;
    last.throws = n_found % 2 == 0;
    options.flags = WEIR_GENERATE_IGNORE_EOS;
    options.user = &last;
    options.on_token = LastEvent::call;
    const weir_status status = weir_session_generate(session, &options, &result);
    assert_int_equal(session.stats().n_tokens, 24);
    assert_int_equal(result.n_tokens, 20);
    if (last.n_last == 0) {
      assert_ok(status);
      assert_int_equal(result.stop, WEIR_STOP_CONTEXT);
      continue;
    }
    ++n_found;
    assert_int_equal(last.n_last, 1);
    assert_int_equal(status, WEIR_ERR_CANCELLED);
    assert_non_null(std::strstr(weir_last_error(), "generation was cancelled after 20 tokens"));
    assert_true((std::strstr(weir_last_error(), "the callback threw") != nullptr) == last.throws);
    assert_int_equal(result.stop, WEIR_STOP_CANCELLED);
    assert_ok(weir_session_generate(session, &options, &result));  // the rest has been shown
    assert_int_equal(last.n_last, 1);
    assert_int_equal(result.stop, WEIR_STOP_CONTEXT);
  }
  assert_int_equal(n_found, 4);
}

weir_status throw_in_layer(void* user, const weir_trace_layer* layer) {
  if (layer->layer == *static_cast<uint32_t*>(user)) throw "layer";
  return WEIR_OK;
}

// The step fails, however often, and leaves nothing: neither tokens nor pages nor lengths.
void callbacks__trace_throws(void**) {
  const Fixture f;
  const weir_key_value snapkv = {"prompt", "snapkv"};
  uint32_t layer = 3;
  const Session dense(f, "dense", 0), dense_other(f, "dense", 0), raas(f, "raas", 256, 0, &snapkv);
  for (const Session* session : {&dense, &dense_other, &raas}) prefill(*session, 47);
  for (const Session* session : {&dense, &raas}) {
    const std::vector<float> before = session->logits();
    const uint64_t pages = session->stats().pages_resident;
    assert_ok(f.set_trace(*session, throw_in_layer, &layer));
    for (int i = 0; i < 100; ++i) {
      assert_threw(weir_session_step(*session, 3), WEIR_ERR_CANCELLED,
                   "the trace callback stopped the step in layer 3");
      session->check_open_pages();
    }
    assert_int_equal(session->stats().n_tokens, 47);
    assert_int_equal(session->stats().pages_resident, pages);
    assert_true(session->logits() == before);
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    assert_threw(weir_session_generate(*session, nullptr, &result), WEIR_ERR_CANCELLED, "layer 3");
    assert_int_equal(result.n_tokens, 0);
    assert_ok(f.set_trace(*session, nullptr, nullptr));
  }
  assert_same_after_steps(dense, dense_other);
  prefill(raas, 400);
  for (int i = 0; i < 100; ++i) assert_ok(weir_session_step(raas, 5 + i));
  raas.check_open_pages();
}

// Where a page had to leave to make room for the step, it stays gone and is counted; the next step finds the room.
void callbacks__trace_throws_where_a_page_left(void**) {
  const Fixture f;
  uint32_t layer = 0;
  const Session session(f, "raas", 128);
  prefill(session, 40);
  while (session.stats().n_tokens < 128) assert_ok(weir_session_step(session, 5));
  const weir_session_stats before = session.stats();
  const std::vector<float> logits = session.logits();
  assert_int_equal(before.pages_evicted, 0);
  assert_ok(f.set_trace(session, throw_in_layer, &layer));
  for (int i = 0; i < 3; ++i) {
    assert_threw(weir_session_step(session, 5), WEIR_ERR_CANCELLED, "the trace callback stopped the step");
    const weir_session_stats after = session.stats();
    assert_int_equal(after.n_tokens, 128);
    assert_true(after.pages_evicted > 0);
    assert_int_equal(after.pages_resident, before.pages_resident - after.pages_evicted);
    assert_true(session.logits() == logits);
  }
  const uint64_t evicted = session.stats().pages_evicted;
  assert_ok(f.set_trace(session, nullptr, nullptr));
  assert_ok(weir_session_step(session, 5));
  assert_int_equal(session.stats().pages_evicted, evicted);
}

// Tokens of which text is held, and what comes behind them, are drawn at random; one of them is refused by the trace.
struct Refusal {
  bool behind = false;  // refuse the token behind one whose text is held, not that token itself
  bool armed = false;   // the latest token's step is refused
  bool was_held = false;
  uint32_t n_shown = 0;

  static weir_status on_token(void* user, const weir_token_event* event) {
    auto& self = *static_cast<Refusal*>(user);
    const bool held = event->text_bytes == 0;
    self.armed = self.behind ? self.was_held : held;
    self.was_held = held;
    ++self.n_shown;
    return WEIR_OK;
  }
  static weir_status on_layer(void* user, const weir_trace_layer*) {
    return static_cast<Refusal*>(user)->armed ? WEIR_ERR_CANCELLED : WEIR_OK;
  }
};

// A token whose step is refused was shown, but is not part of the conversation: the text that follows is that of a
// session which never saw it, also in the bytes that are held.
void callbacks__trace_refuses_a_shown_token(void**) {
#ifdef WEIR_INTERNAL_SANITIZED
  constexpr uint32_t kWanted = 4;  // answers take some ten times as long
#else
  constexpr uint32_t kWanted = 20;
#endif
  const Fixture f;
  const auto next_text = [&](const Session& session) {
    std::string text;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    options.flags = WEIR_GENERATE_IGNORE_EOS | WEIR_GENERATE_SPECIAL_TEXT;
    options.max_tokens = 8;
    options.user = &text;
    options.on_token = [](void* user, const weir_token_event* event) -> weir_status {
      static_cast<std::string*>(user)->append(event->text, event->text_bytes);
      return WEIR_OK;
    };
    assert_ok(weir_session_set_sampling(session, nullptr));
    assert_ok(weir_session_generate(session, &options, nullptr));
    return text;
  };
  for (const bool behind : {false, true}) {
    uint32_t n_refused = 0;
    for (uint32_t seed = 0; seed < 200 && n_refused < kWanted; ++seed) {
      const Session session(f, "dense", 0), other(f, "dense", 0);
      weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
      sampling.temperature = 100;
      sampling.seed = seed;
      for (const Session* s : {&session, &other}) {
        prefill(*s, 4);
        assert_ok(weir_session_set_sampling(*s, &sampling));
      }
      weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
      weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
      Refusal refusal;
      refusal.behind = behind;
      options.flags = WEIR_GENERATE_IGNORE_EOS | WEIR_GENERATE_SPECIAL_TEXT;
      options.max_tokens = 20;
      options.user = &refusal;
      options.on_token = Refusal::on_token;
      assert_ok(f.set_trace(session, Refusal::on_layer, &refusal));
      const weir_status status = weir_session_generate(session, &options, &result);
      assert_ok(f.set_trace(session, nullptr, nullptr));
      if (status == WEIR_OK || result.n_tokens == 0) continue;
      ++n_refused;
      assert_int_equal(status, WEIR_ERR_CANCELLED);
      assert_int_equal(result.n_tokens, refusal.n_shown - 1);
      assert_int_equal(session.stats().n_tokens, 4 + result.n_tokens);
      options.on_token = nullptr;
      options.max_tokens = result.n_tokens;
      assert_ok(weir_session_generate(other, &options, nullptr));
      assert_true(session.logits() == other.logits());
      assert_string_equal(next_text(session).c_str(), next_text(other).c_str());
    }
    assert_true(n_refused == kWanted);
  }
}

void callbacks__trace_throws_in_a_joint_step(void**) {
  const Fixture f;
  const Session a(f, "dense", 0), b(f, "dense", 0), a_alone(f, "dense", 0), b_alone(f, "dense", 0);
  for (const Session* s : {&a, &a_alone}) prefill(*s, 31);
  for (const Session* s : {&b, &b_alone}) prefill(*s, 32);
  weir_session* const sessions[] = {a, b};
  const weir_token tokens[] = {3, 4};
  const std::vector<float> before_a = a.logits(), before_b = b.logits();
  for (uint32_t layer = 0; layer < 4; ++layer) {
    assert_ok(f.set_trace(b, throw_in_layer, &layer));
    assert_threw(weir_step_many(sessions, tokens, 2), WEIR_ERR_CANCELLED, "the trace callback stopped the step");
    assert_int_equal(a.stats().n_tokens, 31);
    assert_int_equal(b.stats().n_tokens, 32);
    assert_true(a.logits() == before_a && b.logits() == before_b);
    a.check_open_pages();
    b.check_open_pages();
  }
  assert_ok(f.set_trace(b, nullptr, nullptr));
  assert_same_after_steps(a, a_alone);
  assert_same_after_steps(b, b_alone);
}

int count_threads() {
  int n = 0;
  DIR* folder = opendir("/proc/self/task");
  assert_non_null(folder);
  while (const dirent* entry = readdir(folder)) n += entry->d_name[0] != '.' ? 1 : 0;
  closedir(folder);
  return n;
}

// Exceptions of the log hook have no effect: everything is created, and no thread stays behind.
void callbacks__log_throws(void**) {
  const int n_threads = count_threads();
  int n_lines = 0;
  weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
  options.n_threads = 3;
  options.log_level = WEIR_LOG_DEBUG;
  options.log_user = &n_lines;
  options.log = [](void* user, const weir_log_info*) -> weir_status {
    ++*static_cast<int*>(user);
    throw std::runtime_error("disk full");
  };
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  weir_session* session = nullptr;
  assert_ok(weir_runtime_create(&options, &runtime));
  assert_ok(weir_model_open(runtime, kModel, nullptr, &model));
  assert_ok(weir_session_create(model, nullptr, &session));
  assert_true(n_lines >= 3);
  assert_ok(weir_session_step(session, 5));
  weir_session_destroy(session);
  weir_model_close(model);
  weir_runtime_destroy(runtime);
  assert_int_equal(count_threads(), n_threads);
}

struct Hooks {
  uint64_t n_allocs = 0, n_live = 0, throw_at = 0;
};

weir_status hook_alloc(void* user, const weir_alloc_info* info, void** out) {
  Hooks& h = *static_cast<Hooks*>(user);
  if (++h.n_allocs == h.throw_at) throw std::bad_alloc();
  if (posix_memalign(out, std::max<size_t>(info->alignment, sizeof(void*)), info->bytes) != 0)
    return WEIR_ERR_OUT_OF_MEMORY;
  ++h.n_live;
  return WEIR_OK;
}

// Frees first, and then throws, as a hook does whose book-keeping fails.
weir_status hook_free(void* user, const weir_alloc_info* info) {
  --static_cast<Hooks*>(user)->n_live;
  std::free(info->ptr);
  throw std::runtime_error("not in the book");
}

weir_status whole_life(Hooks& hooks) {
  weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
  options.n_threads = 2;
  options.alloc = hook_alloc;
  options.free = hook_free;
  options.alloc_user = &hooks;
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  weir_session* session = nullptr;
  weir_token tokens[64];
  uint64_t n = 0;
  weir_model_options model_options = WEIR_MODEL_OPTIONS_INIT;
  model_options.flags = WEIR_MODEL_COPY;
  weir_status status = weir_runtime_create(&options, &runtime);
  if (status == WEIR_OK) status = weir_model_open(runtime, kModel, &model_options, &model);
  if (status == WEIR_OK) status = weir_tokenize(model, "Find x13.", 9, 0, tokens, 64, &n);
  if (status == WEIR_OK) status = weir_session_create(model, nullptr, &session);
  if (status == WEIR_OK) status = weir_session_prefill(session, tokens, n, nullptr, nullptr);
  weir_session_destroy(session);
  weir_model_close(model);
  weir_runtime_destroy(runtime);
  return status;
}

void callbacks__allocator_throws(void**) {
  const int n_threads = count_threads();
  Hooks clean;
  assert_ok(whole_life(clean));
  assert_int_equal(clean.n_live, 0);
  int n_optional = 0;
#ifdef WEIR_INTERNAL_SANITIZED
  constexpr uint64_t kStride = 5;  // lives take some ten times as long
#else
  constexpr uint64_t kStride = 1;
#endif
  for (uint64_t n = 1; n <= clean.n_allocs; n += kStride) {
    Hooks hooks;
    hooks.throw_at = n;
    const weir_status status = whole_life(hooks);
    // PCRE2's just-in-time compiler does without.
    if (status == WEIR_OK) {
      ++n_optional;
    } else {
      assert_threw(status, WEIR_ERR_OUT_OF_MEMORY, "");
    }
    assert_int_equal(hooks.n_live, 0);
  }
  assert_true(n_optional <= 12);
  assert_int_equal(count_threads(), n_threads);
}

void callbacks__open_progress_throws(void**) {
  const Fixture f;
  weir_memory_counters before = WEIR_MEMORY_COUNTERS_INIT, after = WEIR_MEMORY_COUNTERS_INIT;
  assert_ok(weir_runtime_memory(f.runtime, &before));
  for (uint32_t flags : {0u, uint32_t{WEIR_MODEL_PREFETCH}, uint32_t{WEIR_MODEL_COPY}}) {
    for (int n_before : {0, 1}) {  // calls that go well
      weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
      int n_calls = 2 - n_before;
      weir_model* model = nullptr;
      options.flags = flags;
      options.progress = throw_third;
      options.progress_user = &n_calls;
      assert_threw(weir_model_open(f.runtime, kModel, &options, &model), WEIR_ERR_CANCELLED,
                   "weir-tiny-reasoner-q8_0.gguf");
      assert_null(model);
      assert_int_equal(n_calls, 3);
    }
  }
  assert_ok(weir_runtime_memory(f.runtime, &after));
  assert_int_equal(before.bytes, after.bytes);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(callbacks__progress_throws),
      cmocka_unit_test(callbacks__progress_throws_where_pages_left),
      cmocka_unit_test(callbacks__a_cut_prompt_ends_like_any_other),
      cmocka_unit_test(callbacks__token_throws),
      cmocka_unit_test(callbacks__token_throws_in_the_last_event),
      cmocka_unit_test(callbacks__trace_throws),
      cmocka_unit_test(callbacks__trace_throws_where_a_page_left),
      cmocka_unit_test(callbacks__trace_refuses_a_shown_token),
      cmocka_unit_test(callbacks__trace_throws_in_a_joint_step),
      cmocka_unit_test(callbacks__log_throws),
      cmocka_unit_test(callbacks__allocator_throws),
      cmocka_unit_test(callbacks__open_progress_throws),
  };
  return cmocka_run_group_tests_name("runtime_callbacks", tests, nullptr, nullptr);
}
