/* api: cancel in every phase, from callbacks and from another thread; the state that each leaves. */
#include <pthread.h>
#include <time.h>

#include "api_test.h"

static weir_status stop_at_once(void *user, const weir_progress_info *info) {
    (void)user;
    (void)info;
    return WEIR_ERR_CANCELLED;
}

static weir_status stop_at_half(void *user, const weir_progress_info *info) {
    ++*(int *)user;
    assert_true(info->done <= info->total);
    return info->done * 2 >= info->total ? WEIR_ERR_CANCELLED : WEIR_OK;
}

static weir_status stop_after_five(void *user, const weir_token_event *event) {
    (void)user;
    return event->index == 4 ? WEIR_ERR_CANCELLED : WEIR_OK;
}

static uint32_t position(const weir_session *session) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    return stats.n_tokens;
}

static void cancel__open(void **state) {
    const fixture *f = *state;
    weir_model *model = NULL;
    weir_memory_counters before = WEIR_MEMORY_COUNTERS_INIT, after = WEIR_MEMORY_COUNTERS_INIT;
    weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
    int n_calls = 0;
    assert_ok(weir_runtime_memory(f->runtime, &before));
    options.progress = stop_at_once;
    assert_error(weir_model_open(f->runtime, TINY_MODEL, &options, &model), WEIR_ERR_CANCELLED, "cancelled");
    assert_null(model);
    options.progress = stop_at_half;
    options.progress_user = &n_calls;
    options.flags = WEIR_MODEL_PREFETCH;
    assert_error(weir_model_open(f->runtime, TINY_MODEL, &options, &model), WEIR_ERR_CANCELLED, "cancelled");
    assert_null(model);
    assert_true(n_calls >= 2);
    assert_ok(weir_runtime_memory(f->runtime, &after));
    assert_int_equal(before.bytes, after.bytes);
}

/* A cancelled prefill leaves the conversation as it was: the answer after it is that of a session that never saw the
 * cancelled tokens. */
static void cancel__prefill_changes_nothing(void **state) {
    const fixture *f = *state;
    static const char *const policies[] = {"dense", "raas"};
    for (size_t p = 0; p < 2; ++p) {
        weir_session *session = NULL, *other = NULL;
        weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
        weir_token tokens[400];
        const float *want = NULL, *got = NULL;
        int n_calls = 0;
        weir_key_value source = {"stamp_source", "digest"};
        options.policy = policies[p];
        options.batch_tokens = 64;
        options.budget_tokens = 1024;
        if (p == 1) {
            options.policy_options = &source;
            options.n_policy_options = 1;
        }
        for (int i = 0; i < 400; ++i) tokens[i] = 7 + i * 3 % (LONG_RUN_VOCAB - 10);
        assert_ok(weir_session_create(f->model, &options, &session));
        assert_ok(weir_session_create(f->model, &options, &other));
        assert_ok(weir_session_prefill(session, tokens, 37, NULL, NULL));
        assert_ok(weir_session_prefill(other, tokens, 37, NULL, NULL));
        assert_ok(weir_session_step(session, 5));
        assert_ok(weir_session_step(other, 5));
        assert_error(weir_session_prefill(session, tokens, 400, stop_at_half, &n_calls), WEIR_ERR_CANCELLED,
                     "cancelled");
        assert_true(n_calls > 2);
        assert_int_equal(position(session), 38);
        weir_session_cancel(session); /* nothing runs: it ends the next call */
        assert_error(weir_session_prefill(session, tokens, 5, NULL, NULL), WEIR_ERR_CANCELLED, "cancelled");
        assert_int_equal(position(session), 38);
        assert_ok(weir_session_prefill(session, tokens + 100, 30, NULL, NULL));
        assert_ok(weir_session_prefill(other, tokens + 100, 30, NULL, NULL));
        for (int i = 0; i < 40; ++i) {
            assert_ok(weir_session_step(session, 9 + i));
            assert_ok(weir_session_step(other, 9 + i));
        }
        assert_ok(weir_session_logits(session, &got, NULL));
        assert_ok(weir_session_logits(other, &want, NULL));
        assert_memory_equal(got, want, LONG_RUN_VOCAB * sizeof(float));
        weir_session_destroy(session);
        weir_session_destroy(other);
    }
}

/* The streaming policy cannot take back what pushed other pages out: whole chunks stay, and the session goes on. */
static void cancel__prefill_of_sink_keeps_whole_chunks(void **state) {
    const fixture *f = *state;
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_token tokens[1000];
    const float *logits = NULL;
    int n_calls = 0;
    options.policy = "sink";
    options.budget_tokens = 128;
    for (int i = 0; i < 1000; ++i) tokens[i] = 7 + i % (LONG_RUN_VOCAB - 10);
    assert_ok(weir_session_create(f->model, &options, &session));
    assert_error(weir_session_prefill(session, tokens, 1000, stop_at_half, &n_calls), WEIR_ERR_CANCELLED, "cancelled");
    assert_true(position(session) >= 500 && position(session) < 1000);
    assert_error(weir_session_logits(session, &logits, NULL), WEIR_ERR_STATE, "no logits");
    assert_ok(weir_session_prefill(session, tokens + position(session), 1000 - position(session), NULL, NULL));
    assert_int_equal(position(session), 1000);
    weir_session_destroy(session);
}

/* Logits are those of the last token, or there are none: whole chunks that stay make the old logits stale, and a prompt
 * that is taken back leaves them. */
static void cancel__prefill_never_leaves_stale_logits(void **state) {
    const fixture *f = *state;
    static const char *const policies[] = {"sink", "dense"};
    for (int p = 0; p < 2; ++p) {
        weir_session *session = NULL;
        weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
        weir_token tokens[500], token = 0;
        static float before[LONG_RUN_VOCAB];
        const float *logits = NULL;
        uint32_t n_before;
        int n_calls = 0;
        options.policy = policies[p];
        options.budget_tokens = p == 0 ? 128 : 0;
        options.batch_tokens = 32;
        options.context_tokens = 1024;
        for (int i = 0; i < 500; ++i) tokens[i] = 7 + i % (LONG_RUN_VOCAB - 10);
        assert_ok(weir_session_create(f->model, &options, &session));
        assert_ok(weir_session_prefill(session, tokens, 100, NULL, NULL));
        assert_ok(weir_session_step(session, 5));
        assert_ok(weir_session_logits(session, &logits, NULL));
        memcpy(before, logits, sizeof(before));
        n_before = position(session);
        assert_error(weir_session_prefill(session, tokens, 500, stop_at_half, &n_calls), WEIR_ERR_CANCELLED,
                     "cancelled");
        if (p == 0) {
            assert_true(position(session) > n_before);
            assert_error(weir_session_logits(session, &logits, NULL), WEIR_ERR_STATE, "no logits");
            assert_error(weir_session_sample(session, &token), WEIR_ERR_STATE, "no logits");
            assert_error(weir_session_generate(session, NULL, NULL), WEIR_ERR_STATE, "no logits");
        } else {
            assert_int_equal(position(session), n_before);
            assert_ok(weir_session_logits(session, &logits, NULL));
            assert_memory_equal(logits, before, sizeof(before));
        }
        assert_ok(weir_session_step(session, 6));
        assert_ok(weir_session_logits(session, &logits, NULL));
        weir_session_destroy(session);
    }
}

static void cancel__generate_keeps_what_was_shown(void **state) {
    const fixture *f = *state;
    weir_session *session = NULL;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    uint32_t before;
    assert_ok(weir_session_create(f->model, NULL, &session));
    prefill_text(f->model, session, RULE_PROMPT);
    before = position(session);
    options.on_token = stop_after_five;
    assert_error(weir_session_generate(session, &options, &result), WEIR_ERR_CANCELLED, "after 5 tokens");
    assert_int_equal(result.stop, WEIR_STOP_CANCELLED);
    assert_int_equal(result.n_tokens, 5);
    assert_int_equal(position(session), before + 5);
    weir_session_cancel(session);
    assert_error(weir_session_generate(session, &options, &result), WEIR_ERR_CANCELLED, "after 0 tokens");
    weir_session_cancel(session);
    assert_error(weir_session_step(session, 1), WEIR_ERR_CANCELLED, "step");
    assert_int_equal(position(session), before + 5);
    weir_session_cancel(session);
    assert_ok(weir_session_reset(session)); /* clears a pending cancel */
    prefill_text(f->model, session, RULE_PROMPT);
    weir_session_destroy(session);
}

static weir_status cancel_at_the_third(void *user, const weir_token_event *event) {
    if (event->index == 2) weir_session_cancel(user);
    return WEIR_OK;
}

/* A cancel that comes with the last token finds nothing to stop. It stays for the next call, which may belong to the
 * same turn for all that the library knows. */
static void cancel__that_comes_too_late_stays(void **state) {
    const fixture *f = *state;
    weir_session *session = NULL;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    assert_ok(weir_session_create(f->model, NULL, &session));
    prefill_text(f->model, session, RULE_PROMPT);
    options.max_tokens = 3;
    options.on_token = cancel_at_the_third;
    options.user = session;
    assert_ok(weir_session_generate(session, &options, &result));
    assert_int_equal(result.stop, WEIR_STOP_LENGTH);
    assert_error(weir_session_step(session, 1), WEIR_ERR_CANCELLED, "the step was cancelled");
    assert_ok(weir_session_step(session, 1)); /* used up */
    weir_session_destroy(session);
}

typedef struct clicks {
    weir_session *session;
    volatile int is_over;
    long wait_us;
} clicks;

static void *click_once(void *user) {
    clicks *c = user;
    const struct timespec wait = {0, c->wait_us * 1000};
    nanosleep(&wait, NULL);
    weir_session_cancel(c->session);
    return NULL;
}

#define MOST_PULLED 2000

/* Draws, shows and steps until a call ends the loop; returns which status. */
static weir_status pull(weir_session *session, weir_token *shown, uint32_t *n, uint32_t most) {
    for (*n = 0; *n < most;) {
        weir_token token = -1;
        weir_status status = weir_session_sample(session, &token);
        if (status != WEIR_OK) return status;
        shown[(*n)++] = token;
        status = weir_session_step(session, token);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* Whenever a cancel comes, what a loop of sample and step has shown is in the conversation, which goes on as one that
 * nobody cancelled. */
static void cancel__a_pull_loop_loses_no_token(void **state) {
    const fixture *f = *state;
    static weir_token shown[MOST_PULLED], again[MOST_PULLED];
    int n_cancelled = 0;
    for (int trial = 0; trial < 10; ++trial) {
        weir_session *session = NULL, *twin = NULL;
        weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
        weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
        const weir_token *tokens = NULL;
        const float *got = NULL, *want = NULL;
        clicks c = {NULL, 0, 700 + 3100 * (long)trial};
        uint32_t n = 0, n_twin = 0, n_all = 0, before;
        weir_status status;
        pthread_t thread;
        options.context_tokens = MOST_PULLED + 100;
        sampling.temperature = 0.9f;
        sampling.seed = 5 + (uint64_t)trial;
        assert_ok(weir_session_create(f->model, &options, &session));
        assert_ok(weir_session_create(f->model, &options, &twin));
        assert_ok(weir_session_set_sampling(session, &sampling));
        assert_ok(weir_session_set_sampling(twin, &sampling));
        for (int i = 0; i < 40; ++i) shown[i] = 20 + i;
        assert_ok(weir_session_prefill(session, shown, 40, NULL, NULL));
        assert_ok(weir_session_prefill(twin, shown, 40, NULL, NULL));
        before = position(session);
        c.session = session;
        assert_int_equal(pthread_create(&thread, NULL, click_once, &c), 0);
        status = pull(session, shown, &n, MOST_PULLED);
        assert_int_equal(pthread_join(thread, NULL), 0);
        n_cancelled += status == WEIR_ERR_CANCELLED;
        weir_session_clear_cancel(session);
        assert_ok(weir_session_tokens(session, &tokens, &n_all));
        assert_int_equal(n_all, before + n);
        assert_memory_equal(tokens + before, shown, n * sizeof(*tokens));
        assert_ok(pull(twin, again, &n_twin, n));
        assert_memory_equal(again, shown, n * sizeof(*shown));
        assert_ok(weir_session_logits(session, &got, NULL));
        assert_ok(weir_session_logits(twin, &want, NULL));
        assert_memory_equal(got, want, LONG_RUN_VOCAB * sizeof(float));
        assert_ok(pull(session, shown, &n, 5));
        assert_ok(pull(twin, again, &n_twin, 5));
        assert_memory_equal(again, shown, 5 * sizeof(*shown));
        weir_session_destroy(session);
        weir_session_destroy(twin);
    }
    assert_true(n_cancelled >= 8);
}

/* At each place of the loop, alone and together with others. */
static void cancel__of_a_drawn_token_ends_the_next_draw(void **state) {
    const fixture *f = *state;
    for (int together = 0; together < 2; ++together) {
        weir_session *s[2] = {NULL, NULL};
        weir_token drawn[2], token = -1;
        for (int i = 0; i < 2; ++i) {
            assert_ok(weir_session_create(f->model, NULL, &s[i]));
            prefill_text(f->model, s[i], RULE_PROMPT);
            assert_ok(weir_session_sample(s[i], &drawn[i]));
        }
        const uint32_t before = position(s[0]);
        weir_session_cancel(s[0]);
        if (together)
            assert_ok(weir_step_many(s, drawn, 2));
        else
            assert_ok(weir_session_step(s[0], drawn[0]));
        assert_int_equal(position(s[0]), before + 1);
        token = -7;
        assert_error(weir_session_sample(s[0], &token), WEIR_ERR_CANCELLED, "in the conversation");
        assert_int_equal(token, -7);
        assert_ok(weir_session_sample(s[0], &drawn[0])); /* used up */
        weir_session_cancel(s[0]);
        /* Another token than the one that was drawn is refused, and so is the drawn one at another position. */
        token = drawn[0] == 3 ? 4 : 3;
        assert_error(weir_session_step(s[0], token), WEIR_ERR_CANCELLED, "the step was cancelled");
        assert_ok(weir_session_step(s[0], token));
        weir_session_cancel(s[0]);
        assert_error(weir_session_step(s[0], drawn[0]), WEIR_ERR_CANCELLED, "the step was cancelled");
        assert_int_equal(position(s[0]), before + 2);
        weir_session_cancel(s[0]);
        assert_ok(weir_session_sample(s[0], &token)); /* the last token was not drawn */
        assert_error(weir_session_prefill(s[0], drawn, 1, NULL, NULL), WEIR_ERR_CANCELLED, "cancelled");
        weir_session_destroy(s[0]);
        weir_session_destroy(s[1]);
    }
}

static weir_status refuse_and_count(void *user, const weir_progress_info *info) {
    (void)info;
    ++*(int *)user;
    return WEIR_ERR_INTERNAL;
}

static weir_status refuse_token(void *user, const weir_token_event *event) {
    (void)event;
    weir_session_cancel(user);
    return WEIR_ERR_INTERNAL;
}

/* Only a call that ends because of the cancel takes it. */
static void cancel__is_not_used_up_by_another_failure(void **state) {
    const fixture *f = *state;
    static weir_token tokens[20000];
    weir_session *session = NULL;
    weir_session_options small = WEIR_SESSION_OPTIONS_INIT;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    const float *logits = NULL;
    weir_token token = 0;
    int n_calls = 0;
    small.context_tokens = 64;
    assert_ok(weir_session_create(f->model, &small, &session));
    weir_session_cancel(session);
    assert_error(weir_session_generate(session, NULL, NULL), WEIR_ERR_STATE, "no logits");
    assert_error(weir_session_prefill(session, tokens, 65, NULL, NULL), WEIR_ERR_CONTEXT_FULL, "64");
    tokens[3] = -1;
    assert_error(weir_session_prefill(session, tokens, 5, NULL, NULL), WEIR_ERR_INVALID_ARG, "token -1");
    tokens[3] = 0;
    assert_error(weir_session_step(session, -1), WEIR_ERR_INVALID_ARG, "token -1");
    assert_error(weir_session_prefill(session, tokens, 5, refuse_and_count, &n_calls), WEIR_ERR_CANCELLED,
                 "by its progress callback");
    assert_int_equal(n_calls, 1);
    assert_error(weir_session_prefill(session, tokens, 5, NULL, NULL), WEIR_ERR_CANCELLED,
                 "prefill was cancelled after 0 of 5");
    assert_ok(weir_session_prefill(session, tokens, 5, NULL, NULL));
    weir_session_cancel(session);
    options.flags = 1u << 30;
    assert_error(weir_session_generate(session, &options, NULL), WEIR_ERR_INVALID_ARG, "flags");
    assert_ok(weir_session_logits(session, &logits, NULL)); /* calls that are not cancelled leave it alone as well */
    assert_ok(weir_session_sample(session, &token));
    assert_ok(weir_session_set_sampling(session, NULL));
    assert_error(weir_session_step(session, 1), WEIR_ERR_CANCELLED, "the step was cancelled");
    options.flags = WEIR_GENERATE_IGNORE_EOS;
    options.on_token = refuse_token; /* cancels, but it is the callback that ends the call */
    options.user = session;
    assert_error(weir_session_generate(session, &options, NULL), WEIR_ERR_CANCELLED, "after 1 tokens");
    assert_error(weir_session_step(session, 1), WEIR_ERR_CANCELLED, "the step was cancelled");
    assert_ok(weir_session_step(session, 1));
    weir_session_destroy(session);
}

/* The protocol of a Stop button, from the thread that takes the clicks: clear, hand the turn over. */
static void cancel__of_an_old_turn_never_hits_the_next(void **state) {
    const fixture *f = *state;
    weir_session *session = NULL;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    const weir_token turn[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    weir_session_clear_cancel(NULL);
    assert_ok(weir_session_create(f->model, NULL, &session));
    options.flags = WEIR_GENERATE_IGNORE_EOS;
    options.max_tokens = 5;
    for (int click = 0; click < 4; ++click) { /* after the turn, before its prefill, between its two calls, never */
        const weir_status prefilled = click == 1 ? WEIR_ERR_CANCELLED : WEIR_OK,
                          generated = click == 2 ? WEIR_ERR_CANCELLED : WEIR_OK;
        weir_session_clear_cancel(session);
        if (click == 1) weir_session_cancel(session);
        assert_int_equal(weir_session_prefill(session, turn, 8, NULL, NULL), prefilled);
        if (click == 2) weir_session_cancel(session);
        if (prefilled == WEIR_OK) assert_int_equal(weir_session_generate(session, &options, NULL), generated);
        if (click == 0) weir_session_cancel(session);
    }
    weir_session_destroy(session);
}

/* A chunk that takes far longer than cancel_later() waits, on any machine. */
#define LONG_PROMPT 4000

static void *cancel_later(void *session) {
    const struct timespec wait = {0, 30000000};
    nanosleep(&wait, NULL);
    weir_session_cancel(session);
    return NULL;
}

static void cancel__from_another_thread(void **state) {
    const fixture *f = *state;
    weir_session *session = NULL;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    pthread_t thread;
    assert_ok(weir_session_create(f->model, NULL, &session));
    prefill_text(f->model, session, RULE_PROMPT);
    options.flags = WEIR_GENERATE_IGNORE_EOS;
    assert_int_equal(pthread_create(&thread, NULL, cancel_later, session), 0);
    assert_error(weir_session_generate(session, &options, &result), WEIR_ERR_CANCELLED, "cancelled");
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(result.stop, WEIR_STOP_CANCELLED);
    weir_session_destroy(session);
}

/* On the CPU the flag is also checked between two layers of a chunk; the call that ends there uses the cancel up. */
static void cancel__inside_a_chunk(void **state) {
    const fixture *f = *state;
    static weir_token tokens[LONG_PROMPT];
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    int n_hits = 0;
    options.device = WEIR_DEVICE_CPU; /* a GPU mostly finishes the chunk that it was given */
    options.batch_tokens = LONG_PROMPT;
    options.context_tokens = 4096;
    for (int i = 0; i < LONG_PROMPT; ++i) tokens[i] = 7 + i % (LONG_RUN_VOCAB - 10);
    assert_ok(weir_session_create(f->model, &options, &session));
    for (int i = 0; i < 20 && n_hits == 0; ++i) {
        pthread_t thread;
        weir_status status;
        assert_int_equal(pthread_create(&thread, NULL, cancel_later, session), 0);
        status = weir_session_prefill(session, tokens, LONG_PROMPT, NULL, NULL);
        n_hits += status == WEIR_ERR_CANCELLED && strstr(weir_last_error(), "in layer") != NULL;
        assert_int_equal(pthread_join(thread, NULL), 0);
        if (n_hits == 0) assert_ok(weir_session_reset(session)); /* too early or too late */
    }
    assert_int_equal(n_hits, 1);
    assert_int_equal(position(session), 0);
    assert_ok(weir_session_prefill(session, tokens, 10, NULL, NULL));
    weir_session_destroy(session);
}

static weir_status cancel_in_the_third_chunk(void *user, const weir_progress_info *info) {
    if (info->done == 128) weir_session_cancel(user);
    return WEIR_OK;
}

/* On every device a prefill ends before the next chunk, as the last thing that it does because of the cancel. */
static void cancel__between_two_chunks(void **state) {
    const fixture *f = *state;
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_token tokens[300];
    options.batch_tokens = 64;
    for (int i = 0; i < 300; ++i) tokens[i] = 7 + i % (LONG_RUN_VOCAB - 10);
    assert_ok(weir_session_create(f->model, &options, &session));
    assert_error(weir_session_prefill(session, tokens, 300, cancel_in_the_third_chunk, session), WEIR_ERR_CANCELLED,
                 "prefill was cancelled after 128 of 300 tokens");
    assert_int_equal(position(session), 0);
    assert_ok(weir_session_prefill(session, tokens, 300, NULL, NULL));
    weir_session_destroy(session);
}

typedef struct cancel_after {
    weir_session *session;
    long wait_ns;
} cancel_after;

static void *cancel_after_a_while(void *user) {
    const cancel_after *c = user;
    const struct timespec wait = {0, c->wait_ns};
    nanosleep(&wait, NULL);
    weir_session_cancel(c->session);
    return NULL;
}

/* A cancel at any time of a prefill of one chunk: it ends the call, and the prompt is taken back, or it came too late,
 * the prompt is there, and it ends the next call. On every device. */
static void cancel__at_any_time_of_a_chunk(void **state) {
    const fixture *f = *state;
    static weir_token tokens[LONG_PROMPT];
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    int n_ended = 0, n_late = 0;
    options.batch_tokens = LONG_PROMPT;
    options.context_tokens = 4096;
    for (int i = 0; i < LONG_PROMPT; ++i) tokens[i] = 7 + i % (LONG_RUN_VOCAB - 10);
    assert_ok(weir_session_create(f->model, &options, &session));
    for (long wait_us = 0; wait_us < 20000; wait_us = wait_us * 2 + 20) {
        cancel_after c = {session, wait_us * 1000};
        pthread_t thread;
        weir_status status;
        assert_int_equal(pthread_create(&thread, NULL, cancel_after_a_while, &c), 0);
        status = weir_session_prefill(session, tokens, LONG_PROMPT, NULL, NULL);
        assert_int_equal(pthread_join(thread, NULL), 0);
        if (status == WEIR_OK) {
            ++n_late;
            assert_int_equal(position(session), LONG_PROMPT);
            assert_error(weir_session_step(session, 1), WEIR_ERR_CANCELLED, "the step was cancelled");
        } else {
            ++n_ended;
            assert_error(status, WEIR_ERR_CANCELLED, "cancelled");
            assert_int_equal(position(session), 0);
        }
        assert_ok(weir_session_step(session, 1)); /* used up */
        assert_ok(weir_session_reset(session));
    }
    print_message("%d of %d cancels ended the prefill\n", n_ended, n_ended + n_late);
    weir_session_destroy(session);
}

int main(void) {
    /* What another thread cancels has to take long enough. */
    const struct CMUnitTest slow[] = {
        cmocka_unit_test(cancel__open),
        cmocka_unit_test(cancel__from_another_thread),
        cmocka_unit_test(cancel__inside_a_chunk),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancel__prefill_changes_nothing),
        cmocka_unit_test(cancel__prefill_of_sink_keeps_whole_chunks),
        cmocka_unit_test(cancel__prefill_never_leaves_stale_logits),
        cmocka_unit_test(cancel__generate_keeps_what_was_shown),
        cmocka_unit_test(cancel__that_comes_too_late_stays),
        cmocka_unit_test(cancel__a_pull_loop_loses_no_token),
        cmocka_unit_test(cancel__of_a_drawn_token_ends_the_next_draw),
        cmocka_unit_test(cancel__is_not_used_up_by_another_failure),
        cmocka_unit_test(cancel__of_an_old_turn_never_hits_the_next),
        cmocka_unit_test(cancel__between_two_chunks),
        cmocka_unit_test(cancel__at_any_time_of_a_chunk),
    };
    return cmocka_run_group_tests_name("api_cancel_slow", slow, open_fixture, close_fixture) +
           cmocka_run_group_tests_name("api_cancel", tests, open_long_run_fixture, close_fixture);
}
