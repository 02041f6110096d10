/* api: a cancel that outlives what it stops and may serve several sessions. */
#include <pthread.h>

#include "api_test.h"

static weir_session *prompted(const fixture *f) {
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = WEIR_DEVICE_CPU;
    options.context_tokens = 2048;
    assert_ok(weir_session_create(f->model, &options, &session));
    prefill_text(f->model, session, RULE_PROMPT);
    return session;
}

static uint32_t position(const weir_session *session) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    return stats.n_tokens;
}

/* Set, it ends every call of all its sessions until it is cleared; nothing else clears it. */
static void shared_cancel__stays_until_cleared(void **state) {
    const fixture *f = *state;
    weir_session *sessions[2] = {prompted(f), prompted(f)}, *fork = NULL;
    const weir_token tokens[2] = {40, 41};
    weir_cancel *cancel = NULL;
    weir_event event = WEIR_EVENT_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    assert_ok(weir_cancel_create(&cancel));
    const uint32_t before = position(sessions[0]);
    for (int i = 0; i < 2; ++i) assert_ok(weir_session_set_cancel(sessions[i], cancel));
    assert_ok(weir_session_fork(sessions[0], &fork));
    assert_ok(weir_step_many(sessions, tokens, 2));
    weir_cancel_set(cancel);
    for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < 2; ++i) {
            weir_session *session = sessions[i];
            assert_error(weir_session_step(session, 50), WEIR_ERR_CANCELLED, "cancelled");
            assert_error(weir_session_prefill(session, tokens, 2, NULL, NULL), WEIR_ERR_CANCELLED, "cancelled");
            assert_error(weir_session_generate(session, NULL, &result), WEIR_ERR_CANCELLED, "after 0 tokens");
            assert_int_equal(result.stop, WEIR_STOP_CANCELLED);
            assert_ok(weir_session_begin(session, NULL));
            assert_ok(weir_session_next(session, &event));
            assert_int_equal(event.kind, WEIR_EVENT_END);
            assert_int_equal(event.stop, WEIR_STOP_CANCELLED);
            weir_session_clear_cancel(session); /* that is another one */
            assert_int_equal(position(session), before + 1);
        }
        assert_error(weir_step_many(sessions, tokens, 2), WEIR_ERR_CANCELLED, "sessions[0] was cancelled");
    }
    assert_ok(weir_session_step(fork, 50)); /* a fork does not look at it */
    assert_ok(weir_session_reset(sessions[1]));
    assert_error(weir_session_prefill(sessions[1], tokens, 2, NULL, NULL), WEIR_ERR_CANCELLED, "cancelled");
    weir_cancel_clear(cancel);
    assert_ok(weir_session_prefill(sessions[1], tokens, 2, NULL, NULL));
    assert_ok(weir_session_step(sessions[0], 50));
    weir_session_cancel(sessions[0]); /* a session's own cancel is still its own, and used up */
    assert_ok(weir_session_step(sessions[1], 50));
    assert_error(weir_session_step(sessions[0], 50), WEIR_ERR_CANCELLED, "cancelled");
    assert_ok(weir_session_step(sessions[0], 50));
    weir_cancel_set(cancel);
    assert_ok(weir_session_set_cancel(sessions[0], NULL));
    assert_ok(weir_session_step(sessions[0], 50));
    assert_error(weir_session_step(sessions[1], 50), WEIR_ERR_CANCELLED, "cancelled");
    for (int i = 0; i < 2; ++i) weir_session_destroy(sessions[i]);
    weir_session_destroy(fork);
    weir_cancel_release(cancel);
}

/* A token that was drawn and shown is appended all the same. */
static void shared_cancel__loses_no_token(void **state) {
    const fixture *f = *state;
    weir_session *session = prompted(f);
    weir_cancel *cancel = NULL;
    weir_token token = -1;
    assert_ok(weir_cancel_create(&cancel));
    assert_ok(weir_session_set_cancel(session, cancel));
    const uint32_t before = position(session);
    assert_ok(weir_session_sample(session, &token));
    weir_cancel_set(cancel);
    assert_ok(weir_session_step(session, token));
    assert_int_equal(position(session), before + 1);
    assert_error(weir_session_sample(session, &token), WEIR_ERR_CANCELLED, "sampling was cancelled");
    weir_session_destroy(session);
    weir_cancel_release(cancel);
}

/* Whoever holds a reference may use it, whatever has ended meanwhile: sessions, the model, the runtime. */
static void shared_cancel__outlives_all(void **state) {
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_session *session = NULL;
    weir_cancel *cancel = NULL, *other = NULL, *third = NULL;
    weir_memory_counters before = WEIR_MEMORY_COUNTERS_INIT, after = WEIR_MEMORY_COUNTERS_INIT;
    const weir_token tokens[] = {1, 2, 3};
    (void)state;
    assert_ok(weir_runtime_create(NULL, &runtime));
    assert_ok(weir_model_open(runtime, LONG_RUN_MODEL, NULL, &model));
    assert_ok(weir_session_create(model, NULL, &session));
    assert_ok(weir_runtime_memory(runtime, &before));
    assert_ok(weir_cancel_create(&cancel));
    assert_ok(weir_cancel_create(&other));
    assert_ptr_equal(weir_cancel_retain(cancel), cancel);
    assert_ok(weir_session_set_cancel(session, cancel));
    assert_ok(weir_session_set_cancel(session, cancel));
    weir_cancel_release(cancel);
    assert_ok(weir_session_set_cancel(session, other));
    weir_cancel_release(other); /* the session's reference is the last */
    assert_ok(weir_cancel_create(&third));
    assert_ptr_not_equal(third, other); /* whose memory is still taken */
    weir_cancel_release(third);
    weir_cancel_set(other);
    assert_error(weir_session_prefill(session, tokens, 3, NULL, NULL), WEIR_ERR_CANCELLED, "cancelled");
    assert_ok(weir_session_set_cancel(session, cancel));
    assert_ok(weir_runtime_memory(runtime, &after));
    assert_int_equal(after.n_allocs, before.n_allocs); /* of no runtime */
    weir_session_destroy(session);
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    weir_cancel_set(cancel);
    weir_cancel_clear(cancel);
    weir_cancel_release(cancel);
    weir_cancel_set(NULL);
    weir_cancel_clear(NULL);
    weir_cancel_release(NULL);
    assert_null(weir_cancel_retain(NULL));
    assert_error(weir_cancel_create(NULL), WEIR_ERR_INVALID_ARG, "out is NULL");
    assert_error(weir_session_set_cancel(NULL, NULL), WEIR_ERR_INVALID_ARG, "session is NULL");
}

static weir_status set_at_half(void *user, const weir_progress_info *info) {
    if (info->done * 2 >= info->total) weir_cancel_set(user);
    return WEIR_OK;
}

static weir_status set_at_five(void *user, const weir_token_event *event) {
    if (event->index == 4) weir_cancel_set(user);
    return WEIR_OK;
}

static void *set_now(void *user) {
    weir_cancel_set(user);
    return NULL;
}

/* It stops a call that runs, from callbacks and other threads, and that changes no more than weir_session_cancel. */
static void shared_cancel__of_a_running_call(void **state) {
    const fixture *f = *state;
    weir_session *session = NULL;
    weir_cancel *cancel = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_generate_options answer = WEIR_GENERATE_OPTIONS_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    static weir_token tokens[1500];
    pthread_t thread;
    for (int i = 0; i < 1500; ++i) tokens[i] = 20 + i % 60;
    options.device = WEIR_DEVICE_CPU;
    options.context_tokens = 2048;
    options.batch_tokens = 64;
    assert_ok(weir_session_create(f->model, &options, &session));
    assert_ok(weir_cancel_create(&cancel));
    assert_ok(weir_session_set_cancel(session, cancel));
    assert_error(weir_session_prefill(session, tokens, 1500, set_at_half, cancel), WEIR_ERR_CANCELLED,
                 "prefill was cancelled");
    assert_int_equal(position(session), 0);
    weir_cancel_clear(cancel);
    assert_ok(weir_session_prefill(session, tokens, 100, NULL, NULL));
    answer.on_token = set_at_five;
    answer.user = cancel;
    answer.flags = WEIR_GENERATE_IGNORE_EOS;
    assert_error(weir_session_generate(session, &answer, &result), WEIR_ERR_CANCELLED, "after 5 tokens");
    assert_int_equal(position(session), 105);
    weir_cancel_clear(cancel);
    for (int i = 0; i < 20; ++i) {
        assert_int_equal(pthread_create(&thread, NULL, set_now, cancel), 0);
        const weir_status status = weir_session_prefill(session, tokens, 1500, NULL, NULL);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(status == WEIR_OK || status == WEIR_ERR_CANCELLED);
        assert_int_equal(position(session), status == WEIR_OK ? 1605 : 105);
        weir_cancel_clear(cancel);
        if (status == WEIR_OK) assert_ok(weir_session_rewind(session, 105, 0));
    }
    weir_session_destroy(session);
    weir_cancel_release(cancel);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_cancel__stays_until_cleared),
        cmocka_unit_test(shared_cancel__loses_no_token),
        cmocka_unit_test(shared_cancel__outlives_all),
        cmocka_unit_test(shared_cancel__of_a_running_call),
    };
    return cmocka_run_group_tests_name("api/shared_cancel", tests, open_fixture, close_fixture);
}
