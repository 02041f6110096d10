/* api: what a trace callback may do: use other sessions of the same runtime in the middle of a step. If a callback
 * waits for ever, alarm() ends the test. */
#include <unistd.h>

#include "api_test.h"
#include "weir/experimental.h"

#define VOCAB 1664
#define SECONDS 60 /* far beyond any step's time */

static weir_session_trace_fn set_trace;

static int find_function(void **state) {
    set_trace = (weir_session_trace_fn)weir_get_experimental("weir_session_trace");
    (void)state;
    return set_trace == NULL ? -1 : 0;
}

static weir_session *new_session(const weir_model *model, const char *policy) {
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.flags = WEIR_SESSION_TRACE;
    options.policy = policy;
    options.context_tokens = 1024;
    options.budget_tokens = 128;
    assert_ok(weir_session_create((weir_model *)model, &options, &session));
    return session;
}

static void prefill(weir_session *session, uint32_t n) {
    weir_token tokens[256];
    for (uint32_t i = 0; i < n; ++i) tokens[i] = (weir_token)(7 + i * 37 % 900);
    assert_ok(weir_session_prefill(session, tokens, n, NULL, NULL));
}

static void assert_same_logits(weir_session *a, weir_session *b) {
    const float *x = NULL, *y = NULL;
    assert_ok(weir_session_logits(a, &x, NULL));
    assert_ok(weir_session_logits(b, &y, NULL));
    assert_memory_equal(x, y, VOCAB * sizeof(float));
}

typedef struct guest {
    weir_model *model;
    weir_session *own, *other; /* the traced session, and one of the same runtime */
    int n_calls;
    weir_status own_status;
} guest;

static weir_status use_the_other(void *user, const weir_trace_layer *layer) {
    guest *g = user;
    weir_token tokens[64];
    uint64_t n = 0;
    ++g->n_calls;
    g->own_status = weir_session_step(g->own, 1); /* forbidden, and refused */
    if (layer->layer % 3 == 0) return weir_session_step(g->other, (weir_token)(5 + layer->layer));
    if (layer->layer % 3 == 1) { /* allocates, which is not the step's doing */
        weir_session *session = NULL;
        weir_status status = weir_session_create(g->model, NULL, &session);
        if (status == WEIR_OK) status = weir_session_step(session, 3);
        weir_session_destroy(session);
        return status;
    }
    return weir_tokenize(g->model, "a word", 6, 0, tokens, 64, &n);
}

static void trace__callback_may_step_other_sessions(void **state) {
    (void)state;
    for (uint32_t n_threads = 1; n_threads <= 2; ++n_threads) {
        weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
        weir_runtime *runtime = NULL;
        weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
        weir_session_stats stats = WEIR_SESSION_STATS_INIT;
        guest g = {NULL, NULL, NULL, 0, WEIR_OK};
        weir_session *alone[2];
        options.n_threads = n_threads;
        assert_ok(weir_runtime_create(&options, &runtime));
        assert_ok(weir_model_open(runtime, TINY_MODEL, NULL, &g.model));
        g.own = new_session(g.model, "raas");
        g.other = new_session(g.model, "quest");
        alone[0] = new_session(g.model, "raas");
        alone[1] = new_session(g.model, "quest");
        prefill(g.own, 47);
        prefill(alone[0], 47);
        prefill(g.other, 90);
        prefill(alone[1], 90);
        assert_ok(set_trace(g.own, use_the_other, &g));
        alarm(SECONDS);
        for (int i = 0; i < 5; ++i) assert_ok(weir_session_step(g.own, 9 + i));
        assert_ok(weir_step_many(&g.own, (const weir_token[]){14}, 1));
        alarm(0);
        assert_int_equal(g.own_status, WEIR_ERR_BUSY);
        for (int i = 0; i < 6; ++i) {
            assert_ok(weir_session_step(alone[0], 9 + i));
            for (int layer = 0; layer < g.n_calls / 6; layer += 3) assert_ok(weir_session_step(alone[1], 5 + layer));
        }
        assert_same_logits(g.own, alone[0]);
        assert_same_logits(g.other, alone[1]);
        assert_ok(weir_session_memory(g.own, &memory));
        assert_int_equal(memory.allocs_while_decoding, 0);
        assert_ok(weir_session_get_stats(g.own, &stats));
        assert_int_equal(stats.n_tokens, 53);
        weir_session_destroy(alone[0]);
        weir_session_destroy(alone[1]);
        weir_session_destroy(g.own);
        weir_session_destroy(g.other);
        weir_model_close(g.model);
        weir_runtime_destroy(runtime);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace__callback_may_step_other_sessions),
    };
    return cmocka_run_group_tests_name("api_trace", tests, find_function, NULL);
}
