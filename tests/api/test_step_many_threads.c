/* api: weir_step_many in two threads, with lists that share a session and lists that do not. A call fails at once if a
 * session is in use, and no conversation changes. The model has a few kilobytes, so that calls meet often and
 * ThreadSanitizer takes seconds. */
#include <pthread.h>
#include <time.h>

#include "api_test.h"

#define N_STEPS 200

static weir_session *new_session(const fixture *f, uint32_t i) {
    static const char *const policies[] = {"raas", "dense", "sink", "quest"};
    const weir_token prompt[4] = {1, 2, 3, (weir_token)i};
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.policy = policies[i % 4];
    options.context_tokens = 512;
    if (i % 4 != 1) options.budget_tokens = 80;
    assert_ok(weir_session_create(f->model, &options, &session));
    assert_ok(weir_session_prefill(session, prompt, 4, NULL, NULL));
    return session;
}

static weir_token token_of(uint32_t i, uint32_t step) { return (weir_token)((step * 61 + i * 29 + step * step) % 60); }

static weir_session_stats stats_of(const weir_session *session) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    return stats;
}

/* Steps a list until `n_done` calls went through; assertions of cmocka belong to the main thread. */
typedef struct walker {
    weir_session *list[2];
    uint32_t numbers[2];
    uint32_t n_done, n_busy;
    weir_status status;
} walker;

static void *walk(void *user) {
    const struct timespec pause = {0, 300000};
    walker *w = user;
    while (w->n_done < N_STEPS) {
        const weir_token tokens[2] = {token_of(w->numbers[0], w->n_done), token_of(w->numbers[1], w->n_done)};
        w->status = weir_step_many(w->list, tokens, 2);
        if (w->status == WEIR_ERR_BUSY) {
            ++w->n_busy;
            nanosleep(&pause, NULL);
        } else if (w->status == WEIR_OK) {
            ++w->n_done;
        } else {
            break;
        }
    }
    return NULL;
}

static void walk_both(walker *walkers) {
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) assert_int_equal(pthread_create(&threads[i], NULL, walk, &walkers[i]), 0);
    for (int i = 0; i < 2; ++i) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(walkers[i].status, WEIR_OK);
        assert_int_equal(walkers[i].n_done, N_STEPS);
    }
}

static void assert_walked_alone(const fixture *f, weir_session *session, uint32_t number) {
    weir_session *alone = new_session(f, number);
    const float *got = NULL, *want = NULL;
    uint32_t n = 0;
    for (uint32_t step = 0; step < N_STEPS; ++step) assert_ok(weir_session_step(alone, token_of(number, step)));
    assert_ok(weir_session_logits(session, &got, &n));
    assert_ok(weir_session_logits(alone, &want, &n));
    assert_memory_equal(got, want, n * sizeof(float));
    assert_int_equal(stats_of(session).n_tokens, stats_of(alone).n_tokens);
    assert_int_equal(stats_of(session).pages_evicted, stats_of(alone).pages_evicted);
    weir_session_destroy(alone);
}

static void step_many_threads__with_lists_of_their_own(void **state) {
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    weir_session *sessions[4];
    static walker walkers[2];
    memset(walkers, 0, sizeof(walkers));
    for (uint32_t i = 0; i < 4; ++i) {
        sessions[i] = new_session(*state, i);
        walkers[i / 2].list[i % 2] = sessions[i];
        walkers[i / 2].numbers[i % 2] = i;
    }
    walk_both(walkers);
    for (uint32_t i = 0; i < 4; ++i) {
        assert_walked_alone(*state, sessions[i], i);
        assert_ok(weir_session_memory(sessions[i], &memory));
        assert_int_equal(memory.allocs_while_decoding, 0);
        weir_session_destroy(sessions[i]);
    }
    assert_int_equal(walkers[0].n_busy + walkers[1].n_busy, 0);
}

/* Sessions 0 and 2 belong to one thread each, session 1 to both, at different indices of their lists. */
static void step_many_threads__with_overlapping_lists_never_wait(void **state) {
    weir_session *sessions[3];
    static walker walkers[2];
    memset(walkers, 0, sizeof(walkers));
    for (uint32_t i = 0; i < 3; ++i) sessions[i] = new_session(*state, i);
    for (uint32_t i = 0; i < 2; ++i) {
        walkers[i].list[i] = sessions[i == 0 ? 0 : 2];
        walkers[i].numbers[i] = i == 0 ? 0 : 2;
        walkers[i].list[1 - i] = sessions[1];
        walkers[i].numbers[1 - i] = 1;
    }
    const uint32_t before = stats_of(sessions[1]).n_tokens;
    walk_both(walkers);
    print_message("%u calls were refused\n", walkers[0].n_busy + walkers[1].n_busy);
    assert_int_equal(stats_of(sessions[1]).n_tokens, before + 2 * N_STEPS);
    assert_int_equal(stats_of(sessions[1]).n_decode, 2 * N_STEPS);
    assert_walked_alone(*state, sessions[0], 0);
    assert_walked_alone(*state, sessions[2], 2);
    for (int i = 0; i < 3; ++i) weir_session_destroy(sessions[i]);
}

static int open_small_model(void **state) {
    static fixture f;
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    options.n_threads = 2;
    *state = &f;
    if (weir_runtime_create(&options, &f.runtime) != WEIR_OK ||
        weir_model_open(f.runtime, WEIR_SOURCE_DIR "/tests/golden/models/llama_q8_0.gguf", NULL, &f.model) != WEIR_OK) {
        fprintf(stderr, "%s\n", weir_last_error());
        return -1;
    }
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_many_threads__with_lists_of_their_own),
        cmocka_unit_test(step_many_threads__with_overlapping_lists_never_wait),
    };
    return cmocka_run_group_tests_name("api_step_many_threads", tests, open_small_model, close_fixture);
}
