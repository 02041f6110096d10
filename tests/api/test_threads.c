/* api: sessions of one model, and forks of a session, in several threads, with queries and cancels from another; the
 * answers are those of one thread alone. */
#include <pthread.h>

#include "api_test.h"
#include "../policy/every_policy.h"

#define N_TOKENS 60

typedef struct job {
    const fixture *f;
    weir_session *session;
    weir_token tokens[N_TOKENS];
    uint32_t n;
} job;

static weir_status keep(void *user, const weir_token_event *event) {
    job *j = user;
    if (event->token >= 0 && j->n < N_TOKENS) j->tokens[j->n++] = event->token;
    return WEIR_OK;
}

/* Assertions of cmocka belong to the main thread; this one returns its status. */
static void *run_job(void *user) {
    job *j = user;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_token tokens[256];
    uint64_t n = 0;
    weir_status status =
        weir_tokenize(j->f->model, RULE_PROMPT, strlen(RULE_PROMPT), WEIR_TOKENIZE_SPECIAL, tokens, 256, &n);
    options.flags = WEIR_GENERATE_IGNORE_EOS;
    options.max_tokens = N_TOKENS;
    options.on_token = keep;
    options.user = j;
    if (status == WEIR_OK) status = weir_session_prefill(j->session, tokens, n, NULL, NULL);
    if (status == WEIR_OK) status = weir_session_generate(j->session, &options, NULL);
    return status == WEIR_OK ? NULL : (void *)weir_status_name(status);
}

static weir_session *new_session(const fixture *f, const char *policy) {
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.policy = policy;
    options.budget_tokens = 128;
    assert_ok(weir_session_create(f->model, &options, &session));
    return session;
}

static void threads__two_sessions_at_once(void **state) {
    const fixture *f = *state;
    static job alone[2], together[2];
    pthread_t threads[2];
    static const char *const policies[] = {"raas", "sink"};
    for (int i = 0; i < 2; ++i) {
        alone[i].f = together[i].f = f;
        alone[i].session = new_session(f, policies[i]);
        together[i].session = new_session(f, policies[i]);
        assert_null(run_job(&alone[i]));
    }
    for (int i = 0; i < 2; ++i) assert_int_equal(pthread_create(&threads[i], NULL, run_job, &together[i]), 0);
    for (int i = 0; i < 2000; ++i) {
        weir_session_stats stats = WEIR_SESSION_STATS_INIT;
        weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
        weir_memory_counters counters = WEIR_MEMORY_COUNTERS_INIT;
        assert_ok(weir_session_get_stats(together[i % 2].session, &stats));
        assert_ok(weir_session_memory(together[i % 2].session, &memory));
        assert_ok(weir_runtime_memory(f->runtime, &counters));
    }
    for (int i = 0; i < 2; ++i) {
        void *error = NULL;
        assert_int_equal(pthread_join(threads[i], &error), 0);
        assert_null(error);
        assert_int_equal(together[i].n, N_TOKENS);
        assert_memory_equal(together[i].tokens, alone[i].tokens, sizeof(alone[i].tokens));
        weir_session_destroy(alone[i].session);
        weir_session_destroy(together[i].session);
    }
}

static void threads__cancel_while_the_other_decodes(void **state) {
    const fixture *f = *state;
    static job jobs[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) {
        jobs[i].f = f;
        jobs[i].session = new_session(f, "raas");
        assert_int_equal(pthread_create(&threads[i], NULL, run_job, &jobs[i]), 0);
    }
    weir_session_cancel(jobs[0].session);
    for (int i = 0; i < 2; ++i) {
        void *error = NULL;
        assert_int_equal(pthread_join(threads[i], &error), 0);
        if (i == 0) {
            assert_non_null(error);
            assert_string_equal(error, "WEIR_ERR_CANCELLED");
        } else {
            assert_null(error);
        }
        weir_session_destroy(jobs[i].session);
    }
}

enum { kForks = 3 };

/* A session with pages in memory and in a file, or so little memory that it drops some. */
static weir_session *session_with_history(const fixture *f, int with_file) {
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    weir_token tokens[250];
    options.policy = "arkvale";
    options.device = WEIR_DEVICE_CPU;
    options.budget_tokens = 128;
    options.context_tokens = 512;
    assert_ok(weir_plan(f->model, &options, &plan));
    options.spill_budget_bytes = plan.n_streams * (with_file ? 4 : 12) * (plan.page_bytes + 512);
    if (with_file) {
        options.spill_path = "threads_test_spill.tmp"; /* it has no name once it is open */
        options.spill_file_bytes = 32 << 20;
    }
    assert_ok(weir_session_create(f->model, &options, &session));
    for (uint32_t i = 0; i < 250; ++i) tokens[i] = (weir_token)(i * 2654435761u % 199 + 20);
    assert_ok(weir_session_prefill(session, tokens, 250, NULL, NULL));
    return session;
}

static void fork_for(job *j, const fixture *f, weir_session *parent, uint64_t seed) {
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    sampling.temperature = 6.0f; /* the model is sure of itself */
    sampling.seed = seed;
    j->f = f;
    j->n = 0;
    assert_ok(weir_session_fork(parent, &j->session));
    assert_ok(weir_session_set_sampling(j->session, &sampling));
}

static void *run_and_destroy(void *user) {
    job *j = user;
    void *error = run_job(j);
    weir_session_destroy(j->session);
    return error;
}

/* Forks share stored pages: each goes on as it does alone, while others go on, end, and their parent ends. */
static void threads__forks_at_once(void **state) {
    const fixture *f = *state;
    static job alone[kForks], together[kForks];
    for (int with_file = 0; with_file < 2; ++with_file) {
        pthread_t threads[kForks];
        weir_session *parent = session_with_history(f, with_file);
        for (int i = 0; i < kForks; ++i) {
            fork_for(&alone[i], f, parent, 7 + (uint64_t)i);
            assert_null(run_and_destroy(&alone[i]));
        }
        for (int i = 0; i < kForks; ++i) fork_for(&together[i], f, parent, 7 + (uint64_t)i);
        for (int i = 0; i < kForks; ++i)
            assert_int_equal(pthread_create(&threads[i], NULL, run_and_destroy, &together[i]), 0);
        weir_session_destroy(parent);
        for (int i = 0; i < kForks; ++i) {
            void *error = NULL;
            assert_int_equal(pthread_join(threads[i], &error), 0);
            assert_null(error);
            assert_int_equal(together[i].n, N_TOKENS);
            assert_memory_equal(together[i].tokens, alone[i].tokens, sizeof(alone[i].tokens));
        }
        assert_memory_not_equal(together[0].tokens, together[1].tokens, sizeof(together[0].tokens));
    }
}

/* A model may be opened and closed while another one of the same runtime decodes. */
static void threads__open_beside_decoding(void **state) {
    const fixture *f = *state;
    static job decoding;
    pthread_t thread;
    void *error = NULL;
    decoding.f = f;
    decoding.session = new_session(f, "raas");
    assert_int_equal(pthread_create(&thread, NULL, run_job, &decoding), 0);
    for (int i = 0; i < 5; ++i) {
        weir_model *model = NULL;
        assert_ok(weir_model_open(f->runtime, TINY_MODEL, NULL, &model));
        weir_model_close(model);
    }
    assert_int_equal(pthread_join(thread, &error), 0);
    assert_null(error);
    weir_session_destroy(decoding.session);
}

#ifndef WEIR_INTERNAL_SANITIZED /* instrumented code takes several times as much */

/* Everything that an application calls, on a thread with the smallest stack that the headers allow. */
static void *whole_life(void *user) {
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    weir_model_options model_options = WEIR_MODEL_OPTIONS_INIT;
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    uint64_t n = 0;
    static char text[20000];
    static weir_token tokens[20000];
    weir_status status;
    (void)user;
    memset(text, 'a', sizeof(text));
    options.n_threads = 2;
    model_options.flags = WEIR_MODEL_COPY;
    sampling.temperature = 0.8f;
    sampling.top_p = 0.9f;
    generate.flags = WEIR_GENERATE_IGNORE_EOS;
    generate.max_tokens = 10;
    status = weir_runtime_create(&options, &runtime);
    if (status == WEIR_OK) status = weir_model_open(runtime, TINY_MODEL, &model_options, &model);
    if (status == WEIR_OK) status = weir_tokenize(model, text, sizeof(text), WEIR_TOKENIZE_SPECIAL, tokens, 20000, &n);
    for (size_t p = 0; p < N_POLICIES && status == WEIR_OK; ++p) {
        weir_session *session = NULL;
        weir_session_options session_options = WEIR_SESSION_OPTIONS_INIT;
        session_options.device = WEIR_DEVICE_CPU;
        session_options.policy = every_policy[p];
        session_options.budget_tokens = strcmp(every_policy[p], "dense") == 0 ? 0 : 256;
        status = weir_session_create(model, &session_options, &session);
        if (status == WEIR_OK) status = weir_session_set_sampling(session, &sampling);
        if (status == WEIR_OK) status = weir_session_prefill(session, tokens, 100, NULL, NULL);
        if (status == WEIR_OK) status = weir_session_generate(session, &generate, NULL);
        if (status == WEIR_OK) status = weir_step_many(&session, tokens, 1);
        weir_session_destroy(session);
    }
    weir_model_close(model);
    if (status == WEIR_OK && weir_model_open(runtime, "/no/such/file", NULL, &model) != WEIR_ERR_IO)
        status = WEIR_ERR_INTERNAL;
    weir_runtime_destroy(runtime);
    return status == WEIR_OK ? NULL : (void *)weir_status_name(status);
}

static void threads__of_128_kib_are_enough(void **state) {
    pthread_attr_t attributes;
    pthread_t thread;
    void *error = NULL;
    (void)state;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, 128 << 10), 0);
    assert_int_equal(pthread_create(&thread, &attributes, whole_life, NULL), 0);
    assert_int_equal(pthread_join(thread, &error), 0);
    assert_null(error);
    pthread_attr_destroy(&attributes);
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads__two_sessions_at_once),
        cmocka_unit_test(threads__cancel_while_the_other_decodes),
        cmocka_unit_test(threads__forks_at_once),
        cmocka_unit_test(threads__open_beside_decoding),
#ifndef WEIR_INTERNAL_SANITIZED
        cmocka_unit_test(threads__of_128_kib_are_enough),
#endif
    };
    return cmocka_run_group_tests_name("api_threads", tests, open_fixture, close_fixture);
}
