/* api: what a call changes in its thread and puts back. Hosts with unmasked floating-point traps, another rounding mode
 * or flushed subnormal numbers get the default's results and keep their own environment, which callbacks see; a
 * cancelled thread finishes its call first. */
#define _GNU_SOURCE /* feenableexcept */
#include <fenv.h>
#include <pthread.h>
#include <time.h>

#include "api_test.h"
#include "../policy/every_policy.h"

#if defined(__x86_64__)
#include <immintrin.h>
static uint32_t control_word(void) { return _mm_getcsr(); }
static void flush_subnormals(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }
#else
static uint32_t control_word(void) { return (uint32_t)fegetround(); }
static void flush_subnormals(void) {}
#endif

#define VOCAB LONG_RUN_VOCAB
#define N_PROMPT 100
#define N_STEPS 20

static const int kTraps = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW;

enum { kDefault, kUpward, kTowardZero, kFlushed, kTrapping, kModes };

static void set_mode(int mode) {
    assert_int_equal(fesetenv(FE_DFL_ENV), 0);
    if (mode == kUpward) assert_int_equal(fesetround(FE_UPWARD), 0);
    if (mode == kTowardZero) assert_int_equal(fesetround(FE_TOWARDZERO), 0);
    if (mode == kFlushed) flush_subnormals();
    if (mode == kTrapping) (void)feenableexcept(kTraps); /* -1 where the processor has no traps */
}

/* Everything that computes: opening, all policies, drawing with every option. */
static void whole_life(uint32_t n_threads, float *logits, weir_token *drawn) {
    weir_runtime_options runtime_options = WEIR_RUNTIME_OPTIONS_INIT;
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_token tokens[N_PROMPT];
    runtime_options.n_threads = n_threads;
    for (int i = 0; i < N_PROMPT; ++i) tokens[i] = 20 + i;
    assert_ok(weir_runtime_create(&runtime_options, &runtime));
    assert_ok(weir_model_open(runtime, LONG_RUN_MODEL, NULL, &model));
    sampling.temperature = 0.7f;
    sampling.top_p = 0.9f;
    sampling.min_p = 0.05f;
    sampling.repeat_penalty = 1.2f;
    for (size_t p = 0; p < N_POLICIES; ++p) {
        weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
        weir_session *session = NULL;
        const float *view = NULL;
        options.device = WEIR_DEVICE_CPU;
        options.policy = every_policy[p];
        options.context_tokens = 512;
        options.budget_tokens = strcmp(every_policy[p], "dense") == 0 ? 0 : 128;
        assert_ok(weir_session_create(model, &options, &session));
        assert_ok(weir_session_set_sampling(session, &sampling));
        assert_ok(weir_session_prefill(session, tokens, N_PROMPT, NULL, NULL));
        for (int i = 0; i < N_STEPS; ++i) assert_ok(weir_session_step(session, 30 + i));
        assert_ok(weir_session_sample(session, &drawn[p]));
        assert_ok(weir_session_logits(session, &view, NULL));
        memcpy(logits + p * VOCAB, view, VOCAB * sizeof(float));
        weir_session_destroy(session);
    }
    weir_model_close(model);
    weir_runtime_destroy(runtime);
}

static void environment__does_not_reach_results(void **state) {
    static float want[N_POLICIES * VOCAB], got[N_POLICIES * VOCAB];
    weir_token want_drawn[N_POLICIES], got_drawn[N_POLICIES];
    (void)state;
    set_mode(kDefault);
    whole_life(1, want, want_drawn);
    for (int mode = 0; mode < kModes; ++mode) {
        for (uint32_t n_threads = 1; n_threads <= 3; n_threads += 2) {
            uint32_t before;
            int rounding, traps;
            set_mode(mode);
            before = control_word();
            rounding = fegetround();
            traps = fegetexcept();
            whole_life(n_threads, got, got_drawn);
            assert_int_equal(control_word(), before); /* with its flags: the caller sees none of what happened */
            assert_int_equal(fegetround(), rounding);
            assert_int_equal(fegetexcept(), traps);
            assert_int_equal(fetestexcept(FE_ALL_EXCEPT), 0);
            set_mode(kDefault);
            assert_memory_equal(got, want, sizeof(want));
            assert_memory_equal(got_drawn, want_drawn, sizeof(want_drawn));
        }
    }
}

/* A failed call restores the environment, too, and flags that were raised before stay raised. */
static void environment__is_put_back_by_failures(void **state) {
    const fixture *f = *state;
    weir_session *session = NULL;
    uint32_t before;
    assert_ok(weir_session_create(f->model, NULL, &session));
    set_mode(kUpward);
    assert_int_equal(feraiseexcept(FE_INEXACT), 0);
    before = control_word();
    assert_error(weir_session_step(session, -1), WEIR_ERR_INVALID_ARG, "token -1");
    assert_error(weir_session_step(NULL, 1), WEIR_ERR_INVALID_ARG, "session is NULL");
    assert_int_equal(control_word(), before);
    assert_int_equal(fetestexcept(FE_ALL_EXCEPT), FE_INEXACT);
    weir_session_destroy(session);
    assert_int_equal(control_word(), before);
    set_mode(kDefault);
}

typedef struct seen {
    int n_progress, n_tokens, n_allocs, n_frees, n_lines;
    int n_wrong; /* calls in another environment than the caller's */
} seen;

static void look(seen *s, int *count) {
    ++*count;
    s->n_wrong += fegetround() != FE_UPWARD || fegetexcept() != 0;
}

static weir_status see_alloc(void *user, const weir_alloc_info *info, void **out) {
    look(user, &((seen *)user)->n_allocs);
    return posix_memalign(out, info->alignment < sizeof(void *) ? sizeof(void *) : info->alignment, info->bytes) == 0
               ? WEIR_OK
               : WEIR_ERR_OUT_OF_MEMORY;
}

static weir_status see_free(void *user, const weir_alloc_info *info) {
    look(user, &((seen *)user)->n_frees);
    free(info->ptr);
    return WEIR_OK;
}

static weir_status see_line(void *user, const weir_log_info *info) {
    (void)info;
    look(user, &((seen *)user)->n_lines);
    return WEIR_OK;
}

static weir_status see_progress(void *user, const weir_progress_info *info) {
    (void)info;
    look(user, &((seen *)user)->n_progress);
    return WEIR_OK;
}

static weir_status see_token(void *user, const weir_token_event *event) {
    look(user, &((seen *)user)->n_tokens);
    if (event->index == 4) (void)fesetround(FE_DOWNWARD); /* the caller's to change */
    return event->index == 4 ? WEIR_ERR_CANCELLED : WEIR_OK;
}

static void environment__of_callbacks_is_the_callers(void **state) {
    seen s = {0, 0, 0, 0, 0, 0};
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    weir_model_options model_options = WEIR_MODEL_OPTIONS_INIT;
    weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_session *session = NULL;
    const weir_token tokens[4] = {1, 2, 3, 4};
    (void)state;
    set_mode(kUpward);
    options.n_threads = 2;
    options.alloc = see_alloc;
    options.free = see_free;
    options.log = see_line;
    options.alloc_user = options.log_user = &s;
    options.log_level = WEIR_LOG_DEBUG;
    assert_ok(weir_runtime_create(&options, &runtime));
    model_options.progress = see_progress;
    model_options.progress_user = &s;
    model_options.flags = WEIR_MODEL_PREFETCH;
    assert_ok(weir_model_open(runtime, TINY_MODEL, &model_options, &model));
    assert_ok(weir_session_create(model, NULL, &session));
    assert_ok(weir_session_prefill(session, tokens, 4, see_progress, &s));
    generate.flags = WEIR_GENERATE_IGNORE_EOS;
    generate.on_token = see_token;
    generate.user = &s;
    assert_int_equal(weir_session_generate(session, &generate, NULL), WEIR_ERR_CANCELLED);
    assert_int_equal(fegetround(), FE_DOWNWARD);
    assert_int_equal(fesetround(FE_UPWARD), 0);
    weir_session_destroy(session);
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    assert_int_equal(fegetround(), FE_UPWARD);
    set_mode(kDefault);
    assert_true(s.n_progress >= 3 && s.n_tokens == 5 && s.n_allocs > 10 && s.n_frees == s.n_allocs && s.n_lines >= 3);
    assert_int_equal(s.n_wrong, 0);
}

#ifndef WEIR_INTERNAL_SANITIZED /* AddressSanitizer reports the unwinding of a cancelled thread as a stack defect */

typedef struct worker {
    weir_session *session;
    pthread_mutex_t lock;
    pthread_cond_t reached;
    int is_inside; /* of the callback */
    uint32_t n_tokens;
    weir_status status; /* of the call that the cancelled thread finished */
} worker;

static weir_status wait_to_be_cancelled(void *user, const weir_token_event *event) {
    worker *w = user;
    const struct timespec wait = {0, 20000000};
    w->n_tokens = event->index + 1;
    pthread_mutex_lock(&w->lock);
    w->is_inside = 1;
    pthread_cond_signal(&w->reached);
    pthread_mutex_unlock(&w->lock);
    nanosleep(&wait, NULL); /* where a thread that is cancelled ends */
    pthread_testcancel();
    return WEIR_OK;
}

static void *generate_ten(void *user) {
    worker *w = user;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    options.flags = WEIR_GENERATE_IGNORE_EOS;
    options.max_tokens = 10;
    options.on_token = wait_to_be_cancelled;
    options.user = w;
    w->status = weir_session_generate(w->session, &options, NULL);
    pthread_testcancel();
    return NULL;
}

static void environment__a_cancelled_thread_ends_after_its_call(void **state) {
    const fixture *f = *state;
    worker w = {NULL, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, WEIR_ERR_INTERNAL};
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    pthread_t thread;
    void *result = NULL;
    uint32_t n_prompt;
    assert_ok(weir_session_create(f->model, NULL, &w.session));
    prefill_text(f->model, w.session, RULE_PROMPT);
    assert_ok(weir_session_get_stats(w.session, &stats));
    n_prompt = stats.n_tokens;
    assert_int_equal(pthread_create(&thread, NULL, generate_ten, &w), 0);
    pthread_mutex_lock(&w.lock);
    while (!w.is_inside) pthread_cond_wait(&w.reached, &w.lock);
    pthread_mutex_unlock(&w.lock);
    assert_int_equal(pthread_cancel(thread), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_int_equal(w.status, WEIR_OK);
    assert_int_equal(w.n_tokens, 10);
    assert_ok(weir_session_get_stats(w.session, &stats));
    assert_int_equal(stats.n_tokens, n_prompt + 10);
    assert_ok(weir_session_step(w.session, 1)); /* nobody is inside any more */
    weir_session_destroy(w.session);
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(environment__does_not_reach_results),
        cmocka_unit_test(environment__is_put_back_by_failures),
        cmocka_unit_test(environment__of_callbacks_is_the_callers),
#ifndef WEIR_INTERNAL_SANITIZED
        cmocka_unit_test(environment__a_cancelled_thread_ends_after_its_call),
#endif
    };
    return cmocka_run_group_tests_name("api_environment", tests, open_fixture, close_fixture);
}
