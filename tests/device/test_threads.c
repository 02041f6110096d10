/* device: sessions of several threads and runtimes on one GPU; each gives the tokens that it gives alone. */
#include <pthread.h>

#include "device_test.h"

#define MOST_TOKENS 400
#define N_THREADS 4

static const variant variants[N_THREADS] = {
    {"raas", {{0, 0}}, 0},
    {"sink", {{0, 0}}, 0},
    {"quest", {{"skip_layers", "0"}}, 1},
    {"h2o", {{"skip_layers", "0"}}, 1}};

typedef struct job {
    const variant *v;
    weir_runtime *runtime;  /* null: the job makes its own */
    weir_model *model;  /* null: the job makes its own */
    weir_token tokens[MOST_TOKENS];
    uint32_t n;
    weir_status status;
    char message[512];
} job;

static weir_status keep(void *user, const weir_token_event *event) {
    job *j = user;
    if (event->token >= 0 && j->n < MOST_TOKENS) j->tokens[j->n++] = event->token;
    return WEIR_OK;
}

/* Only the main thread may use cmocka's assertions, so this keeps its status. */
static void *run_job(void *user) {
    job *j = user;
    const weir_runtime_options runtime_options = gpu_runtime_options();
    const weir_session_options options = options_of(j->v, test_device(), 128, 1024);
    weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
    weir_runtime *runtime = j->runtime;
    weir_model *model = j->model;
    weir_session *session = NULL;
    weir_token prompt[256];
    uint64_t n = 0;
    weir_status status = WEIR_OK;
    generate.flags = WEIR_GENERATE_IGNORE_EOS;
    generate.max_tokens = steps_at_most(MOST_TOKENS);
    generate.on_token = keep;
    generate.user = j;
    j->n = 0;
    if (runtime == NULL) status = weir_runtime_create(&runtime_options, &runtime);
    if (status == WEIR_OK && model == NULL) status = weir_model_open(runtime, TINY_MODEL, NULL, &model);
    if (status == WEIR_OK)
        status = weir_tokenize(model, RULE_PROMPT, strlen(RULE_PROMPT), WEIR_TOKENIZE_SPECIAL, prompt, 256, &n);
    if (status == WEIR_OK) status = weir_session_create(model, &options, &session);
    if (status == WEIR_OK) status = weir_session_prefill(session, prompt, n, NULL, NULL);
    if (status == WEIR_OK) status = weir_session_generate(session, &generate, NULL);
    if (status != WEIR_OK) snprintf(j->message, sizeof(j->message), "%s", weir_last_error());
    weir_session_destroy(session);
    if (j->model == NULL) weir_model_close(model);
    if (j->runtime == NULL) weir_runtime_destroy(runtime);
    j->status = status;
    return NULL;
}

static void run_together(job *jobs) {
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; ++i) assert_int_equal(pthread_create(&threads[i], NULL, run_job, &jobs[i]), 0);
    for (int i = 0; i < N_THREADS; ++i) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void assert_same_answers(const job *got, const job *want) {
    for (int i = 0; i < N_THREADS; ++i) {
        if (got[i].status != WEIR_OK) fail_msg("%s: %s", describe(got[i].v), got[i].message);
        assert_int_equal(got[i].n, steps_at_most(MOST_TOKENS));
        assert_memory_equal(got[i].tokens, want[i].tokens, sizeof(got[i].tokens));
    }
}

static job alone[N_THREADS], together[N_THREADS];

static void set_jobs(job *jobs, weir_runtime *runtime, weir_model *model) {
    memset(jobs, 0, N_THREADS * sizeof(*jobs));
    for (int i = 0; i < N_THREADS; ++i) {
        jobs[i].v = &variants[i];
        jobs[i].runtime = runtime;
        jobs[i].model = model;
    }
}

/* The first test: no runtime has opened the device yet, and four do so at once. */
static void threads__runtimes_look_for_the_device_at_once(void **state) {
    (void)state;
    set_jobs(together, NULL, NULL);
    run_together(together);
    NEED_GPU();
    set_jobs(alone, NULL, NULL);
    for (int i = 0; i < N_THREADS; ++i) (void)run_job(&alone[i]);
    assert_same_answers(alone, alone);
    assert_same_answers(together, alone);
}

static void threads__sessions_of_one_model(void **state) {
    fixture f;
    (void)state;
    NEED_GPU();
    open_gpu_fixture(&f);
    set_jobs(together, f.runtime, f.model);
    for (int round = 0; round < 3; ++round) {
        run_together(together);
        assert_same_answers(together, alone);
    }
    close_gpu_fixture(&f);
}

/* Sessions are created and destroyed while another one decodes. */
static void threads__create_and_destroy_beside_decoding(void **state) {
    fixture f;
    pthread_t thread;
    (void)state;
    NEED_GPU();
    open_gpu_fixture(&f);
    set_jobs(together, f.runtime, f.model);
    for (int i = 0; i < N_THREADS; ++i) {
        assert_int_equal(pthread_create(&thread, NULL, run_job, &together[i]), 0);
        for (int n = 0; n < 5; ++n) {
            const weir_session_options options = options_of(&variants[n % N_THREADS], test_device(), 256, 1024);
            weir_session *session = NULL;
            assert_ok(weir_session_create(f.model, &options, &session));
            prefill_text(f.model, session, RULE_PROMPT);
            assert_ok(weir_session_step(session, 100));
            weir_session_destroy(session);
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    assert_same_answers(together, alone);
    close_gpu_fixture(&f);
}

static void *cancel_soon(void *session) {
    (void)usleep(20000);
    weir_session_cancel(session);
    return NULL;
}

/* A cancel from another thread ends a long generation; the session works afterwards. */
static void threads__cancel(void **state) {
    const weir_session_options options = options_of(&variants[0], test_device(), 128, 1u << 20);
    weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    weir_session *session = NULL;
    pthread_t thread;
    fixture f;
    (void)state;
    NEED_GPU();
    open_gpu_fixture(&f);
    assert_ok(weir_session_create(f.model, &options, &session));
    prefill_text(f.model, session, RULE_PROMPT);
    generate.flags = WEIR_GENERATE_IGNORE_EOS;
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, session), 0);
    assert_error(weir_session_generate(session, &generate, &result), WEIR_ERR_CANCELLED, "cancelled");
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(result.stop, WEIR_STOP_CANCELLED);
    assert_ok(weir_session_step(session, 100));
    weir_session_destroy(session);
    close_gpu_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads__runtimes_look_for_the_device_at_once),
        cmocka_unit_test(threads__sessions_of_one_model),
        cmocka_unit_test(threads__create_and_destroy_beside_decoding),
        cmocka_unit_test(threads__cancel),
    };
    return cmocka_run_group_tests_name("device/threads", tests, NULL, NULL);
}
