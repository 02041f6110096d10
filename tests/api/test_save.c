/* api: a conversation that was saved and restored goes on with the logits and tokens of one that never stopped. */
#include "save_test.h"

#ifdef WEIR_INTERNAL_SANITIZED
enum { kSteps = 40 };
#else
enum { kSteps = 120 };
#endif

static const weir_sampling_options kSeeded = {
    sizeof(weir_sampling_options), 20, 0.8f, 0.95f, 0.01f, 1.2f, 100, 0, 12345};

/* A conversation with prompts, steps and pins, cut in the middle of a page. */
static void converse(weir_session *session) {
    prefill(session, 0, 150);
    for (uint32_t i = 0; i < kSteps; ++i) assert_ok(weir_session_step(session, token(i * 7)));
    /* These pages may have left, or the policy has no room for pins. */
    const weir_status pinned = weir_session_pin(session, 3, 20);
    if (pinned != WEIR_OK && pinned != WEIR_ERR_NOT_FOUND && pinned != WEIR_ERR_UNSUPPORTED &&
        pinned != WEIR_ERR_BUDGET)
        fail_msg("%s", weir_last_error());
    prefill(session, 500, 33);
    for (uint32_t i = 0; i < 12; ++i) assert_ok(weir_session_step(session, token(i * 11)));
}

static void assert_same_files(const file *a, const file *b, const char *when) {
    uint64_t i = 0;
    if (a->n != b->n) fail_msg("files of %zu and %zu bytes: %s", (size_t)a->n, (size_t)b->n, when);
    while (i < a->n && a->bytes[i] == b->bytes[i]) ++i;
    if (i < a->n) fail_msg("files differ at byte %zu of %zu: %s", (size_t)i, (size_t)a->n, when);
}

static void round_trip(weir_model *model, weir_model *other, const choice *c, const weir_sampling_options *sampling) {
    char when[64];
    weir_session *whole = session_of(model, c), *resumed = session_of(other, c);
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    uint64_t n_allocs;
    snprintf(when, sizeof(when), "%s, choice %zu, %s", c->policy, (size_t)(c - choices),
             sampling == NULL ? "greedy" : "seeded");
    assert_ok(weir_session_memory(resumed, &memory));
    n_allocs = memory.n_allocs;
    assert_ok(weir_session_set_sampling(whole, sampling));
    converse(whole);
    file first = saved(whole), second = saved(whole);
    assert_same_files(&first, &second, when);
    prefill(resumed, 7, 90); /* what it had is replaced */
    first.most = 1000;
    assert_ok(restore_from(resumed, &first));
    assert_int_equal(first.at, first.n);
    const weir_session_stats a = stats_of(whole), b = stats_of(resumed);
    assert_int_equal(a.n_tokens, b.n_tokens);
    assert_int_equal(a.pages_resident, b.pages_resident);
    assert_int_equal(a.pages_cold, b.pages_cold);
    file third = saved(resumed);
    assert_same_files(&first, &third, when);
    assert_same_steps(whole, resumed, kSteps, when);
    prefill(whole, 800, 77);
    prefill(resumed, 800, 77);
    assert_same_steps(whole, resumed, 20, when);
    file fourth = saved(whole), fifth = saved(resumed);
    assert_same_files(&fourth, &fifth, when);
    assert_ok(weir_session_memory(resumed, &memory));
    assert_int_equal(memory.n_allocs, n_allocs);
    assert_int_equal(memory.allocs_while_decoding, 0);
    assert_int_equal(memory.peak_bytes, memory.plan_bytes);
    file *files[] = {&first, &second, &third, &fourth, &fifth};
    for (size_t i = 0; i < 5; ++i) free(files[i]->bytes);
    weir_session_destroy(whole);
    weir_session_destroy(resumed);
}

/* The same model under a runtime with one thread. */
typedef struct second_runtime {
    weir_runtime *runtime;
    weir_model *model;
} second_runtime;

static second_runtime with_one_thread(const char *path) {
    second_runtime other = {NULL, NULL};
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    options.n_threads = 1;
    assert_ok(weir_runtime_create(&options, &other.runtime));
    assert_ok(weir_model_open(other.runtime, path, NULL, &other.model));
    return other;
}

static void close_second(second_runtime *other) {
    weir_model_close(other->model);
    weir_runtime_destroy(other->runtime);
}

static void save__every_policy_goes_on_as_if_it_had_never_stopped(void **state) {
    const fixture *f = *state;
    second_runtime other = with_one_thread(SMALL_MODEL);
    ASSERT_EVERY_POLICY(choices, policy);
    for (size_t i = 0; i < N_CHOICES; ++i) {
        round_trip(f->model, other.model, &choices[i], NULL);
        round_trip(f->model, other.model, &choices[i], &kSeeded);
    }
    close_second(&other);
}

static int open_small(void **state) {
    return open_fixture_of(SMALL_MODEL, state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(save__every_policy_goes_on_as_if_it_had_never_stopped),
    };
    return cmocka_run_group_tests_name("save", tests, open_small, close_fixture);
}
