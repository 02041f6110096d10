/* api: weir_session_fork. Parent and fork go on as two sessions that had the same history from the beginning, under
 * every policy, whatever the other does. */
#include "api_test.h"
#include "../policy/every_policy.h"
#include "weir/experimental.h"

#define WINDOW_MODEL WEIR_SOURCE_DIR "/tests/golden/models/gemma3_f32.gguf"
#define SPILL_FILE "fork_test_spill.tmp" /* it has no name once it is open */
enum { kContext = 512 };

typedef struct variant {
    const char *policy;
    const weir_key_value *options;
    uint32_t n_options;
    uint32_t budget_tokens;
    uint64_t spill_bytes;
    uint64_t file_bytes;
} variant;

#define OPTIONS(array) array, sizeof(array) / sizeof((array)[0])
static const weir_key_value kTop[] = {{"attend", "top"}, {"recall_pages", "0"}};
static const weir_key_value kOnePool[] = {{"recall", "on"}, {"pool", "unified"}};
static const weir_key_value kRecall[] = {{"recall", "on"}};
static const weir_key_value kThreshold[] = {{"candidates", "threshold"}, {"eta", "0.7"}};
static const weir_key_value kGap[] = {{"decide", "gap"}, {"alpha", "0.1"}};
static const weir_key_value kSnap[] = {{"prompt", "snapkv"}, {"prompt_budget", "96"}, {"prompt_window", "16"}};

static weir_session_options options_of(const variant *v) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.policy = v->policy;
    options.policy_options = v->options;
    options.n_policy_options = v->n_options;
    options.budget_tokens = v->budget_tokens;
    options.spill_budget_bytes = v->spill_bytes;
    options.spill_file_bytes = v->file_bytes;
    if (v->file_bytes != 0) options.spill_path = SPILL_FILE;
    options.context_tokens = kContext;
    options.batch_tokens = 16;
    if (strcmp(v->policy, "arkvale") == 0) options.device = WEIR_DEVICE_CPU;
    return options;
}

static weir_session *session_of(weir_model *model, const variant *v) {
    weir_session *session = NULL;
    const weir_session_options options = options_of(v);
    assert_ok(weir_session_create(model, &options, &session));
    return session;
}

static weir_session *fork_of(weir_session *session) {
    weir_session *fork = NULL;
    assert_ok(weir_session_fork(session, &fork));
    assert_non_null(fork);
    return fork;
}

static weir_token token(uint32_t i) {
    return (weir_token)(i * 2654435761u % 199 + 20);
}

static weir_session_stats stats_of(const weir_session *session) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    return stats;
}

static void prefill(weir_session *session, uint32_t first, uint32_t n) {
    weir_token tokens[kContext];
    for (uint32_t i = 0; i < n; ++i) tokens[i] = token(first + i);
    assert_ok(weir_session_prefill(session, tokens, n, NULL, NULL));
}

static void steps(weir_session *session, uint32_t first, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) assert_ok(weir_session_step(session, token(first + i)));
}

static void assert_equal_sessions(weir_session *a, weir_session *b) {
    const float *x = NULL, *y = NULL;
    const weir_token *s = NULL, *t = NULL;
    uint32_t n = 0, n_other = 0;
    assert_ok(weir_session_logits(a, &x, &n));
    assert_ok(weir_session_logits(b, &y, &n));
    if (memcmp(x, y, n * sizeof(*x)) != 0) fail_msg("logits differ at %u tokens", stats_of(a).n_tokens);
    assert_ok(weir_session_tokens(a, &s, &n));
    assert_ok(weir_session_tokens(b, &t, &n_other));
    assert_int_equal(n, n_other);
    assert_memory_equal(s, t, n * sizeof(*s));
}

static void assert_equal_counters(const weir_session *a, const weir_session *b) {
    const weir_session_stats x = stats_of(a), y = stats_of(b);
    assert_int_equal(x.n_prompt, y.n_prompt);
    assert_int_equal(x.n_decode, y.n_decode);
    assert_int_equal(x.pages_resident, y.pages_resident);
    assert_int_equal(x.pages_resident_max, y.pages_resident_max);
    assert_int_equal(x.pages_evicted, y.pages_evicted);
    assert_int_equal(x.pages_recalled, y.pages_recalled);
    assert_int_equal(x.pages_dropped, y.pages_dropped);
    assert_int_equal(x.pages_cold, y.pages_cold);
    assert_int_equal(x.pages_attended, y.pages_attended);
}

static void assert_as_planned(const weir_session *session) {
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    assert_ok(weir_session_memory(session, &memory));
    assert_int_equal(memory.bytes, memory.plan_bytes);
    assert_int_equal(memory.peak_bytes, memory.plan_bytes);
    assert_int_equal(memory.allocs_while_decoding, 0);
}

/* A history, a fork, and two ways on, beside two sessions that never forked. */
static void check_fork(weir_model *model, const variant *v, uint32_t n_prompt, uint32_t n_steps, uint32_t n_on) {
    weir_session *parent = session_of(model, v), *first = session_of(model, v), *second = session_of(model, v);
    weir_session *const all[] = {parent, first, second};
    for (size_t i = 0; i < 3; ++i) {
        prefill(all[i], 0, n_prompt);
        steps(all[i], 1000, n_steps);
    }
    weir_session *fork = fork_of(parent);
    assert_equal_sessions(fork, second);
    assert_equal_counters(fork, second);
    assert_equal_counters(parent, first);
    for (uint32_t i = 0; i < n_on; ++i) {
        steps(parent, 2000 + i, 1);
        steps(first, 2000 + i, 1);
        assert_equal_sessions(parent, first);
        steps(fork, 3000 + i, 1);
        steps(second, 3000 + i, 1);
        assert_equal_sessions(fork, second);
    }
    assert_equal_counters(fork, second);
    assert_equal_counters(parent, first);
    assert_as_planned(parent);
    assert_as_planned(fork);
    weir_session_destroy(parent);
    prefill(fork, 4000, 30);
    prefill(second, 4000, 30);
    assert_equal_sessions(fork, second);
    for (uint32_t i = 0; i < n_on / 2; ++i) {
        steps(fork, 5000 + i, 1);
        steps(second, 5000 + i, 1);
        assert_equal_sessions(fork, second);
    }
    assert_equal_counters(fork, second);
    weir_session_destroy(fork);
    weir_session_destroy(first);
    weir_session_destroy(second);
}

#ifdef WEIR_INTERNAL_SANITIZED
enum { kOn = 20 };
#else
enum { kOn = 60 };
#endif

static void fork__goes_on_like_a_session_of_that_history(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *name;
        uint32_t budget;
    } rows[] = {{"dense", 0},    {"sink", 128}, {"h2o", 128},    {"tova", 128},   {"quest", 96},
                {"raas", 192},   {"hybrid", 192}, {"random", 192}, {"arkvale", 128},
                {"psa", 0},    {"lfps", 32},   {"keyformer", 96}, {"scissorhands", 96}};
    ASSERT_EVERY_POLICY(rows, name);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        const variant v = {rows[i].name, NULL, 0, rows[i].budget, 0, 0};
        check_fork(f->model, &v, 70, 75, kOn);
    }
    const variant top = {"arkvale", OPTIONS(kTop), 112, 0, 0}, snap = {"raas", OPTIONS(kSnap), 256, 0, 0};
    check_fork(f->model, &top, 100, 80, kOn);
    check_fork(f->model, &snap, 150, 60, kOn);
    const variant gap = {"raas", OPTIONS(kGap), 128, 0, 0};
    check_fork(f->model, &gap, 70, 75, kOn);
    const variant by_threshold = {"lfps", OPTIONS(kThreshold), 48, 0, 0};
    check_fork(f->model, &by_threshold, 100, 75, kOn);
    const variant psa = {"psa", OPTIONS(kRecall), 144, 0, 0};
    check_fork(f->model, &psa, 100, 75, kOn);
    const variant one_pool = {"psa", OPTIONS(kOnePool), 144, 0, 0};
    check_fork(f->model, &one_pool, 100, 75, kOn);
    const variant raas = {"raas", OPTIONS(kRecall), 128, 0, 0}, hybrid = {"hybrid", OPTIONS(kRecall), 160, 0, 0};
    check_fork(f->model, &raas, 70, 75, kOn);
    check_fork(f->model, &hybrid, 150, 75, kOn);
    /* A store without recall is copied too. */
    const variant stored = {"raas", NULL, 0, 192, 24 << 20, 0}, little = {"sink", NULL, 0, 128, 1 << 19, 0};
    check_fork(f->model, &stored, 70, 75, kOn);
    check_fork(f->model, &little, 70, 75, kOn);
}

/* What lfps learns chooses between tokens only where weights make them differ. */
static void fork__knows_what_its_parent_learned(void **state) {
    const fixture *f = *state;
    const variant by_quota = {"lfps", NULL, 0, 32, 0, 0}, by_threshold = {"lfps", OPTIONS(kThreshold), 48, 0, 0};
    check_fork(f->model, &by_quota, 70, 75, 20);
    check_fork(f->model, &by_threshold, 100, 75, 20);
}

/* Also while the store drops pages, and with blocks in all of its places. */
static void fork__of_a_full_store(void **state) {
    const fixture *f = *state;
    static const uint32_t kPages[] = {6, 9, 12};
    for (size_t i = 0; i < 3; ++i) {
        variant v = {"arkvale", NULL, 0, 128, 0, 0};
        const weir_session_options options = options_of(&v);
        weir_plan_info plan = WEIR_PLAN_INFO_INIT;
        assert_ok(weir_plan(f->model, &options, &plan));
        v.spill_bytes = plan.n_streams * kPages[i] * (plan.page_bytes + 512);
        check_fork(f->model, &v, 100, 131 + 16 * (uint32_t)i, kOn);
        weir_session *session = session_of(f->model, &v);
        prefill(session, 0, 100);
        steps(session, 1000, 200);
        weir_session *fork = fork_of(session);
        const uint64_t dropped = stats_of(session).pages_dropped;
        assert_true(dropped > 0);
        steps(fork, 0, 40);
        assert_true(stats_of(fork).pages_dropped > dropped);
        assert_int_equal(stats_of(session).pages_dropped, dropped);
        weir_session_destroy(session);
        weir_session_destroy(fork);
    }
}

/* The fork has a file of its own. Where something has taken the path meanwhile, there is no fork. */
static void fork__of_a_session_with_a_file(void **state) {
    const fixture *f = *state;
    variant v = {"arkvale", NULL, 0, 128, 0, 32 << 20};
    const weir_session_options options = options_of(&v);
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    assert_ok(weir_plan(f->model, &options, &plan));
    v.spill_bytes = plan.n_streams * 4 * (plan.page_bytes + 512);
    check_fork(f->model, &v, 100, 131, kOn);
    weir_session *session = session_of(f->model, &v), *other = session_of(f->model, &v), *fork = NULL;
    weir_session *const both[] = {session, other};
    for (size_t i = 0; i < 2; ++i) {
        prefill(both[i], 0, 100);
        steps(both[i], 1000, 80);
    }
    FILE *file = fopen(SPILL_FILE, "w");
    assert_non_null(file);
    fclose(file);
    assert_error(weir_session_fork(session, &fork), WEIR_ERR_IO, SPILL_FILE);
    assert_null(fork);
    assert_int_equal(remove(SPILL_FILE), 0);
    for (uint32_t i = 0; i < 20; ++i) {
        steps(session, 2000 + i, 1);
        steps(other, 2000 + i, 1);
        assert_equal_sessions(session, other);
    }
    assert_equal_counters(session, other);
    assert_int_equal(stats_of(session).pages_dropped, 0);
    weir_session_destroy(session);
    weir_session_destroy(other);
}

static void fork__of_windows(void **state) {
    const fixture *f = *state;
    weir_model *model = NULL;
    assert_ok(weir_model_open(f->runtime, WINDOW_MODEL, NULL, &model));
    static const char *const policies[] = {"dense", "quest", "raas", "arkvale"};
    for (size_t p = 0; p < 4; ++p) {
        const variant v = {policies[p], NULL, 0, p == 0 ? 0u : 160u, 0, 0};
        check_fork(model, &v, 90, 75, kOn);
    }
    weir_model_close(model);
}

/* Forks of an empty session, of forks, and back to the beginning. */
static void fork__of_forks(void **state) {
    const fixture *f = *state;
    const variant v = {"arkvale", NULL, 0, 128, 0, 0};
    weir_session *sessions[5] = {session_of(f->model, &v)};
    for (int i = 1; i < 5; ++i) {
        const float *logits = NULL;
        uint32_t n = 0;
        sessions[i] = fork_of(sessions[i - 1]);
        if (i == 1) assert_error(weir_session_logits(sessions[1], &logits, &n), WEIR_ERR_STATE, "no logits");
        prefill(sessions[i], 100 * (uint32_t)i, 70);
    }
    weir_session *whole = session_of(f->model, &v);
    for (uint32_t i = 1; i < 5; ++i) {
        prefill(whole, 100 * i, 70);
        assert_equal_sessions(whole, sessions[i]);
    }
    assert_ok(weir_session_reset(sessions[4]));
    assert_ok(weir_session_reset(whole));
    prefill(sessions[4], 7, 90);
    prefill(whole, 7, 90);
    assert_equal_sessions(whole, sessions[4]);
    assert_ok(weir_session_rewind(sessions[3], 100, 0));
    weir_session *const both[] = {sessions[3], sessions[2]};
    const weir_token next[] = {5, 6};
    assert_ok(weir_step_many(both, next, 2));
    for (int i = 0; i < 5; ++i) weir_session_destroy(sessions[i]);
    weir_session_destroy(whole);
}

typedef struct answer {
    char text[1024];
    size_t n;
} answer;

static weir_status take_text(void *user, const weir_token_event *event) {
    answer *a = (answer *)user;
    if (a->n + event->text_bytes < sizeof(a->text)) {
        memcpy(a->text + a->n, event->text, event->text_bytes);
        a->n += event->text_bytes;
    }
    return WEIR_OK;
}

/* Sampling options, random state, penalties and text that is not complete go along. */
static void fork__draws_what_the_parent_draws(void **state) {
    const fixture *f = *state;
    const variant v = {"dense", NULL, 0, 0, 0, 0};
    weir_session *parent = session_of(f->model, &v);
    answer first = {{0}, 0}, answers[2] = {{{0}, 0}, {{0}, 0}};
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    sampling.temperature = 2.0f;
    sampling.repeat_penalty = 2.0f;
    sampling.seed = 11;
    assert_ok(weir_session_set_sampling(parent, &sampling));
    prefill(parent, 0, 30);
    options.flags = WEIR_GENERATE_IGNORE_EOS;
    options.on_token = take_text;
    options.max_tokens = 17;
    options.user = &first;
    assert_ok(weir_session_generate(parent, &options, NULL));
    weir_session *fork = fork_of(parent);
    options.max_tokens = 60;
    options.user = &answers[0];
    assert_ok(weir_session_generate(parent, &options, NULL));
    options.user = &answers[1];
    assert_ok(weir_session_generate(fork, &options, NULL));
    assert_true(answers[0].n > 20);
    assert_memory_equal(&answers[0], &answers[1], sizeof(answer));
    weir_session_destroy(parent);
    weir_session_destroy(fork);
}

/* A token with the first bytes of a character may be the parent's last. */
static void fork__knows_the_bytes_of_a_character(void **state) {
    const fixture *f = *state;
    const variant v = {"dense", NULL, 0, 0, 0, 0};
    weir_session *parent = session_of(f->model, &v);
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    int n_forks = 0;
    sampling.temperature = 100.0f; /* any token */
    sampling.seed = 3;
    assert_ok(weir_session_set_sampling(parent, &sampling));
    prefill(parent, 0, 3);
    options.flags = WEIR_GENERATE_IGNORE_EOS | WEIR_GENERATE_SPECIAL_TEXT;
    options.on_token = take_text;
    options.max_tokens = 1;
    while (n_forks < 12 && stats_of(parent).n_tokens + 2 < kContext) {
        answer one = {{0}, 0}, other = {{0}, 0};
        options.user = &one;
        assert_ok(weir_session_generate(parent, &options, NULL));
        if (one.n != 0) continue; /* only a token without text leaves bytes */
        weir_session *fork = fork_of(parent);
        options.user = &one;
        assert_ok(weir_session_generate(parent, &options, NULL));
        options.user = &other;
        assert_ok(weir_session_generate(fork, &options, NULL));
        assert_memory_equal(&one, &other, sizeof(one));
        weir_session_destroy(fork);
        ++n_forks;
    }
    assert_true(n_forks > 0);
    weir_session_destroy(parent);
}

/* Unread page events are the fork's too; a cancel that waits is not. */
static void fork__events_and_cancels(void **state) {
    const fixture *f = *state;
    const variant v = {"raas", NULL, 0, 128, 0, 0};
    weir_session *parent = session_of(f->model, &v);
    const weir_session_page_events_fn events =
        (weir_session_page_events_fn)weir_get_experimental("weir_session_page_events");
    static weir_page_event of_parent[4096], of_fork[4096];
    uint32_t n = 0, n_fork = 0;
    uint64_t lost = 0;
    prefill(parent, 0, 20);
    steps(parent, 100, 150);
    assert_ok(events(parent, of_parent, 10, &n, &lost));
    assert_int_equal(n, 10);
    weir_session_cancel(parent);
    weir_session *fork = fork_of(parent);
    assert_ok(weir_session_step(fork, 5));
    assert_error(weir_session_step(parent, 5), WEIR_ERR_CANCELLED, "");
    assert_ok(weir_session_step(parent, 5));
    assert_ok(events(parent, of_parent, 4096, &n, &lost));
    assert_ok(events(fork, of_fork, 4096, &n_fork, &lost));
    assert_true(n > 0);
    assert_int_equal(n, n_fork);
    assert_memory_equal(of_parent, of_fork, n * sizeof(of_parent[0]));
    weir_session_destroy(parent);
    weir_session_destroy(fork);
}

static weir_status fork_inside(void *user, const weir_token_event *event) {
    weir_session *fork = (weir_session *)user;
    (void)event;
    assert_error(weir_session_fork((weir_session *)user, &fork), WEIR_ERR_BUSY, "inside");
    assert_null(fork);
    return WEIR_OK;
}

static void fork__refuses(void **state) {
    const fixture *f = *state;
    const variant v = {"dense", NULL, 0, 0, 0, 0};
    weir_session *session = session_of(f->model, &v), *fork = session;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    assert_error(weir_session_fork(NULL, &fork), WEIR_ERR_INVALID_ARG, "session");
    assert_null(fork);
    assert_error(weir_session_fork(session, NULL), WEIR_ERR_INVALID_ARG, "out");
    prefill(session, 0, 5);
    options.max_tokens = 2;
    options.on_token = fork_inside;
    options.user = session;
    assert_ok(weir_session_generate(session, &options, NULL));
    weir_session_destroy(session);
}

typedef struct hooks {
    uint64_t n_allocs, n_live, fail_at; /* fail_at: 1-based, 0: none */
} hooks;

static weir_status hook_alloc(void *user, const weir_alloc_info *info, void **out) {
    hooks *h = (hooks *)user;
    if (++h->n_allocs == h->fail_at) return WEIR_ERR_OUT_OF_MEMORY;
    if (posix_memalign(out, info->alignment < sizeof(void *) ? sizeof(void *) : info->alignment, info->bytes) != 0)
        return WEIR_ERR_OUT_OF_MEMORY;
    memset(*out, 0xcd, info->bytes < 4096 ? info->bytes : 4096); /* fresh memory is not zero */
    ++h->n_live;
    return WEIR_OK;
}

static weir_status hook_free(void *user, const weir_alloc_info *info) {
    --((hooks *)user)->n_live;
    free(info->ptr);
    return WEIR_OK;
}

static void fork__without_memory_changes_nothing(void **state) {
    (void)state;
    static const char *const policies[] = {"dense", "arkvale"};
    for (size_t p = 0; p < 2; ++p) {
        hooks h = {0, 0, 0};
        weir_runtime *runtime = NULL;
        weir_model *model = NULL;
        weir_session *fork = NULL;
        weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
        options.n_threads = 2;
        options.alloc = hook_alloc;
        options.free = hook_free;
        options.alloc_user = &h;
        const variant v = {policies[p], NULL, 0, p == 0 ? 0u : 128u, 0, 0};
        assert_ok(weir_runtime_create(&options, &runtime));
        assert_ok(weir_model_open(runtime, TINY_MODEL, NULL, &model));
        weir_session *parent = session_of(model, &v), *other = session_of(model, &v);
        weir_session *const both[] = {parent, other};
        for (size_t i = 0; i < 2; ++i) {
            prefill(both[i], 0, 100);
            steps(both[i], 500, 80);
        }
        const uint64_t before = h.n_allocs, live = h.n_live;
        fork = fork_of(parent);
        const uint64_t n_allocs = h.n_allocs - before;
        assert_true(n_allocs >= 2);
        weir_session_destroy(fork);
        assert_int_equal(h.n_live, live);
        for (uint64_t n = 1; n <= n_allocs; ++n) {
            h.fail_at = h.n_allocs + n;
            assert_error(weir_session_fork(parent, &fork), WEIR_ERR_OUT_OF_MEMORY, "bytes");
            assert_null(fork);
            assert_int_equal(h.n_live, live);
        }
        h.fail_at = 0;
        for (uint32_t i = 0; i < 30; ++i) {
            steps(parent, 700 + i, 1);
            steps(other, 700 + i, 1);
            assert_equal_sessions(parent, other);
        }
        assert_as_planned(parent);
        fork = fork_of(parent); /* which outlives parent and model */
        weir_session_destroy(parent);
        weir_session_destroy(other);
        weir_model_close(model);
        weir_runtime_destroy(runtime);
        steps(fork, 0, 5);
        weir_session_destroy(fork);
        assert_int_equal(h.n_live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fork__goes_on_like_a_session_of_that_history),
        cmocka_unit_test(fork__of_a_full_store),
        cmocka_unit_test(fork__of_a_session_with_a_file),
        cmocka_unit_test(fork__of_windows),
        cmocka_unit_test(fork__of_forks),
        cmocka_unit_test(fork__draws_what_the_parent_draws),
        cmocka_unit_test(fork__knows_the_bytes_of_a_character),
        cmocka_unit_test(fork__events_and_cancels),
        cmocka_unit_test(fork__refuses),
        cmocka_unit_test(fork__without_memory_changes_nothing),
    };
    const struct CMUnitTest of_a_real_model[] = {
        cmocka_unit_test(fork__knows_what_its_parent_learned),
    };
    return cmocka_run_group_tests_name("api/fork", tests, open_long_run_fixture, close_fixture) +
           cmocka_run_group_tests_name("api/fork, real weights", of_a_real_model, open_fixture, close_fixture);
}
