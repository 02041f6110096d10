/* api: weir_session_tokens returns the tokens of the conversation, whoever appended them and whatever left the pool. */
#include "api_test.h"
#include "weir/experimental.h"

#define WINDOW_MODEL WEIR_SOURCE_DIR "/tests/golden/models/gemma3_f32.gguf"
enum { kContext = 512 };

/* What the conversation should be. */
typedef struct history {
    weir_token tokens[kContext];
    uint32_t n;
} history;

static weir_token token(uint32_t i) {
    return (weir_token)(i * 2654435761u % 199 + 20);
}

static weir_session *session_of(weir_model *model, const char *policy, uint32_t flags) {
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.policy = policy;
    options.context_tokens = kContext;
    options.budget_tokens = strcmp(policy, "dense") == 0 ? 0 : 192;
    options.batch_tokens = 16;
    options.flags = flags;
    if (flags != 0 || strcmp(policy, "arkvale") == 0) options.device = WEIR_DEVICE_CPU;
    assert_ok(weir_session_create(model, &options, &session));
    return session;
}

static void assert_tokens(weir_session *session, const history *want) {
    const weir_token *tokens = NULL;
    uint32_t n = 0;
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_tokens(session, &tokens, &n));
    assert_ok(weir_session_get_stats(session, &stats));
    assert_int_equal(n, stats.n_tokens);
    assert_int_equal(n, want->n);
    if (memcmp(tokens, want->tokens, n * sizeof(*tokens)) != 0) fail_msg("other tokens after %u", n);
}

static void prefill(weir_session *session, history *h, uint32_t first, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) h->tokens[h->n + i] = token(first + i);
    assert_ok(weir_session_prefill(session, h->tokens + h->n, n, NULL, NULL));
    h->n += n;
}

static void step(weir_session *session, history *h, weir_token next) {
    assert_ok(weir_session_step(session, next));
    h->tokens[h->n++] = next;
}

static weir_status append(void *user, const weir_token_event *event) {
    history *h = (history *)user;
    if (event->token >= 0) h->tokens[h->n++] = event->token;
    return event->index == 11 ? WEIR_ERR_CANCELLED : WEIR_OK;
}

static void tokens__are_those_of_every_call(void **state) {
    const fixture *f = *state;
    static const char *const policies[] = {"dense", "raas", "arkvale"};
    for (size_t p = 0; p < sizeof(policies) / sizeof(policies[0]); ++p) {
        weir_session *session = session_of(f->model, policies[p], 0), *other = session_of(f->model, policies[p], 0);
        history h = {{0}, 0}, others = {{0}, 0};
        assert_tokens(session, &h);
        prefill(session, &h, 0, 37);
        assert_tokens(session, &h);
        for (uint32_t i = 0; i < 40; ++i) step(session, &h, token(50 + i));
        assert_tokens(session, &h);
        weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
        options.flags = WEIR_GENERATE_IGNORE_EOS;
        options.on_token = append;
        options.user = &h;
        assert_error(weir_session_generate(session, &options, NULL), WEIR_ERR_CANCELLED, "");
        assert_int_equal(h.n, 37 + 40 + 12);
        assert_tokens(session, &h);
        prefill(session, &h, 100, 100);
        prefill(other, &others, 7, 9);
        for (uint32_t i = 0; i < 20; ++i) {
            weir_session *const both[] = {session, other};
            const weir_token next[] = {token(i), token(i + 1)};
            assert_ok(weir_step_many(both, next, 2));
            h.tokens[h.n++] = next[0];
            others.tokens[others.n++] = next[1];
        }
        assert_tokens(session, &h);
        assert_tokens(other, &others);
        weir_session_destroy(session);
        weir_session_destroy(other);
    }
}

static weir_status stop_at_32(void *user, const weir_progress_info *info) {
    (void)user;
    return info->done >= 32 ? WEIR_ERR_CANCELLED : WEIR_OK;
}

static weir_status refuse(void *user, const weir_trace_layer *layer) {
    (void)user;
    (void)layer;
    return WEIR_ERR_CANCELLED;
}

static void tokens__of_calls_that_failed_are_not_there(void **state) {
    const fixture *f = *state;
    weir_session *session = session_of(f->model, "dense", WEIR_SESSION_TRACE);
    history h = {{0}, 0}, taken = {{0}, 0};
    const weir_session_trace_fn set_trace = (weir_session_trace_fn)weir_get_experimental("weir_session_trace");
    weir_token tokens[120];
    for (uint32_t i = 0; i < 120; ++i) tokens[i] = token(300 + i);
    prefill(session, &h, 0, 5);
    assert_error(weir_session_prefill(session, tokens, 100, stop_at_32, NULL), WEIR_ERR_CANCELLED, "");
    assert_tokens(session, &h);
    weir_session_cancel(session);
    assert_error(weir_session_step(session, token(9)), WEIR_ERR_CANCELLED, "");
    assert_error(weir_session_step(session, -1), WEIR_ERR_INVALID_ARG, "token");
    assert_tokens(session, &h);
    assert_ok(set_trace(session, refuse, NULL));
    assert_error(weir_session_step(session, token(9)), WEIR_ERR_CANCELLED, "trace");
    assert_ok(set_trace(session, NULL, NULL));
    assert_tokens(session, &h);
    step(session, &h, token(10));
    assert_tokens(session, &h);
    assert_ok(weir_session_reset(session));
    assert_tokens(session, &taken);
    weir_session_destroy(session);
}

/* Where pages have left a window, whole chunks of a cancelled prompt stay. */
static void tokens__of_a_prompt_that_stays_in_part(void **state) {
    const fixture *f = *state;
    weir_model *model = NULL;
    assert_ok(weir_model_open(f->runtime, WINDOW_MODEL, NULL, &model));
    weir_session *session = session_of(model, "dense", 0);
    history h = {{0}, 0};
    weir_token tokens[120];
    for (uint32_t i = 0; i < 120; ++i) tokens[i] = token(300 + i);
    prefill(session, &h, 0, 60);
    assert_error(weir_session_prefill(session, tokens, 120, stop_at_32, NULL), WEIR_ERR_CANCELLED, "");
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    assert_true(stats.n_tokens >= 92 && stats.n_tokens < 180);
    memcpy(h.tokens + 60, tokens, sizeof(tokens));
    h.n = stats.n_tokens;
    assert_tokens(session, &h);
    weir_session_destroy(session);
    weir_model_close(model);
}

/* The view itself can be read again as a prompt. */
static void tokens__can_be_prefilled_after_a_rewind(void **state) {
    const fixture *f = *state;
    weir_session *session = session_of(f->model, "dense", 0);
    history h = {{0}, 0}, rest = {{0}, 0};
    const weir_token *tokens = NULL;
    uint32_t n = 0;
    prefill(session, &h, 0, 70);
    assert_ok(weir_session_tokens(session, &tokens, &n));
    assert_ok(weir_session_rewind(session, 0, 0));
    assert_ok(weir_session_prefill(session, tokens + 3, n - 3, NULL, NULL));
    rest.n = n - 3;
    memcpy(rest.tokens, h.tokens + 3, (n - 3) * sizeof(*tokens));
    assert_tokens(session, &rest);
    weir_session *other = session_of(f->model, "dense", 0);
    const float *want = NULL, *got = NULL;
    assert_ok(weir_session_prefill(other, h.tokens + 3, n - 3, NULL, NULL));
    assert_ok(weir_session_logits(session, &got, &n));
    assert_ok(weir_session_logits(other, &want, &n));
    assert_memory_equal(got, want, n * sizeof(*want));
    weir_session_destroy(session);
    weir_session_destroy(other);
}

static void tokens__of_noise_are_ids(void **state) {
    const fixture *f = *state;
    weir_session *session = session_of(f->model, "raas", 0);
    const weir_bench_fill_fn fill = (weir_bench_fill_fn)weir_get_experimental("weir_bench_fill");
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    const weir_token *tokens = NULL;
    uint32_t n = 0, n_different = 0;
    assert_ok(weir_model_get_info(f->model, &info));
    assert_ok(weir_session_step(session, 5));
    assert_ok(fill(session, 300));
    assert_ok(weir_session_tokens(session, &tokens, &n));
    assert_int_equal(n, 301);
    assert_int_equal(tokens[0], 5);
    for (uint32_t i = 1; i < n; ++i) {
        assert_true(tokens[i] >= 0 && (uint32_t)tokens[i] < info.vocab_size);
        n_different += tokens[i] != tokens[i - 1];
    }
    assert_true(n_different > 250);
    weir_session_destroy(session);
}

static void tokens__are_in_the_plan(void **state) {
    const fixture *f = *state;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_plan_info small = WEIR_PLAN_INFO_INIT, large = WEIR_PLAN_INFO_INIT;
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    weir_session *session = NULL;
    options.policy = "raas";
    options.budget_tokens = 128;
    options.context_tokens = 1024;
    assert_ok(weir_plan(f->model, &options, &small));
    options.context_tokens = 4096;
    assert_ok(weir_plan(f->model, &options, &large));
    assert_int_equal(large.sampler_bytes - small.sampler_bytes, (4096 - 1024) * sizeof(weir_token));
    assert_ok(weir_session_create(f->model, &options, &session));
    assert_ok(weir_session_memory(session, &memory));
    assert_int_equal(memory.bytes, large.total_bytes);
    weir_session_destroy(session);
}

static weir_status ask(void *user, const weir_token_event *event) {
    const weir_token *tokens = NULL;
    uint32_t n = 0;
    (void)event;
    assert_error(weir_session_tokens((weir_session *)user, &tokens, &n), WEIR_ERR_BUSY, "inside");
    assert_null(tokens);
    return WEIR_OK;
}

static void tokens__refuses_null_and_a_busy_session(void **state) {
    const fixture *f = *state;
    weir_session *session = session_of(f->model, "dense", 0);
    history h = {{0}, 0};
    const weir_token *tokens = NULL;
    uint32_t n = 0;
    assert_error(weir_session_tokens(NULL, &tokens, &n), WEIR_ERR_INVALID_ARG, "session");
    assert_error(weir_session_tokens(session, NULL, &n), WEIR_ERR_INVALID_ARG, "tokens");
    assert_error(weir_session_tokens(session, &tokens, NULL), WEIR_ERR_INVALID_ARG, "n_tokens");
    prefill(session, &h, 0, 5);
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    options.max_tokens = 2;
    options.on_token = ask;
    options.user = session;
    assert_ok(weir_session_generate(session, &options, NULL));
    weir_session_destroy(session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens__are_those_of_every_call),
        cmocka_unit_test(tokens__of_calls_that_failed_are_not_there),
        cmocka_unit_test(tokens__of_a_prompt_that_stays_in_part),
        cmocka_unit_test(tokens__can_be_prefilled_after_a_rewind),
        cmocka_unit_test(tokens__of_noise_are_ids),
        cmocka_unit_test(tokens__are_in_the_plan),
        cmocka_unit_test(tokens__refuses_null_and_a_busy_session),
    };
    return cmocka_run_group_tests_name("api/tokens", tests, open_fixture, close_fixture);
}
