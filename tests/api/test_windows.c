/* api: layers with a sliding window hold the pages of their window and no more, under every policy; the budget rules
 * the others. The model has two such layers (window 20) and one that sees all positions. */
#include <math.h>

#include "api_test.h"

#define WINDOW_MODEL WEIR_SOURCE_DIR "/tests/golden/models/gemma3_f32.gguf"
enum { kWindow = 20, kLocal = 2, kGlobal = 1, kVocab = 272, kTokens = 300, kPage = 16 };

static int open_windows(void **state) {
    return open_fixture_of(WINDOW_MODEL, state);
}

static weir_token token(int i) {
    return 3 + i * 37 % (kVocab - 10);
}

static weir_session *session_of(const fixture *f, const char *policy, uint32_t budget, uint32_t batch) {
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.policy = policy;
    options.budget_tokens = budget;
    options.batch_tokens = batch;
    options.context_tokens = 400;
    assert_ok(weir_session_create(f->model, &options, &session));
    return session;
}

static weir_session_stats stats_of(const weir_session *session) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    return stats;
}

static void prefill(weir_session *session, int first, int n) {
    weir_token tokens[kTokens];
    for (int i = 0; i < n; ++i) tokens[i] = token(first + i);
    assert_ok(weir_session_prefill(session, tokens, (uint64_t)n, NULL, NULL));
}

static void copy_logits(weir_session *session, float *out) {
    const float *logits = NULL;
    uint32_t n = 0;
    assert_ok(weir_session_logits(session, &logits, &n));
    assert_int_equal(n, kVocab);
    memcpy(out, logits, kVocab * sizeof(*out));
}

/* The largest difference of two rows of logits, which are up to 6. On the CPU chunks are 0 and steps 2.4e-4 apart; on a
 * GPU chunks are computed in f16. A window that loses its first four positions is 0.12 apart. */
static float distance(const float *got, const float *want) {
    float most = 0.0f;
    for (int i = 0; i < kVocab; ++i) most = fmaxf(most, fabsf(got[i] - want[i]));
    print_message("logits %.2g apart\n", (double)most);
    return most;
}

/* One chunk that holds the whole text has every page, and the window is only a mask. With chunks of 16 tokens, and with
 * steps, pages leave. All compute the same. */
static void windows__pages_that_left_were_not_needed(void **state) {
    const fixture *f = *state;
    float want[kVocab], got[kVocab];
    weir_session *whole = session_of(f, "dense", 0, 400), *chunks = session_of(f, "dense", 0, 16);
    weir_session *steps = session_of(f, "dense", 0, 16);
    prefill(whole, 0, kTokens);
    copy_logits(whole, want);
    prefill(chunks, 0, kTokens);
    copy_logits(chunks, got);
    assert_true(distance(got, want) < 2e-2f);
    prefill(steps, 0, 1);
    for (int i = 1; i < kTokens; ++i) assert_ok(weir_session_step(steps, token(i)));
    copy_logits(steps, got);
    assert_true(distance(got, want) < 2e-2f);
    /* 300 tokens are 19 pages of the global layer; the window of 20 positions before position 300 begins at 281. */
    assert_int_equal(stats_of(steps).pages_resident, 19 * kGlobal + 2 * kLocal);
    assert_int_equal(stats_of(chunks).pages_resident, 19 * kGlobal + 2 * kLocal);
    assert_int_equal(stats_of(whole).pages_resident, 19 * kGlobal + 2 * kLocal);
    assert_int_equal(stats_of(steps).pages_evicted, 0);
    weir_session_destroy(whole);
    weir_session_destroy(chunks);
    weir_session_destroy(steps);
}

/* Whatever the policy and its budget, a local layer has its window; and no policy fails where the last of its pages
 * leave. */
static void windows__are_full_under_every_policy(void **state) {
    const fixture *f = *state;
    static const char *const policies[] = {"dense", "sink", "h2o", "tova", "quest", "raas", "hybrid", "random"};
    for (size_t p = 0; p < sizeof(policies) / sizeof(policies[0]); ++p) {
        const uint32_t budget = p == 0 ? 0 : 160;
        weir_session *session = session_of(f, policies[p], budget, 64);
        prefill(session, 0, 100);
        for (int i = 100; i < kTokens; ++i) {
            assert_ok(weir_session_step(session, token(i)));
            const weir_session_stats stats = stats_of(session);
            /* Pages from the one that holds position n - window to that of position n - 1. */
            const uint32_t first = stats.n_tokens - kWindow, local = (stats.n_tokens - 1) / kPage - first / kPage + 1;
            const uint32_t global = (stats.n_tokens + kPage - 1) / kPage;
            assert_true(stats.pages_resident >= kLocal * (local - 1));
            assert_true(stats.pages_resident <= kLocal * (local + 1) + global);
            assert_int_equal(stats.pages_resident_max >= stats.pages_resident, 1);
        }
        weir_session_destroy(session);
    }
}

static void windows__the_plan_is_exact(void **state) {
    const fixture *f = *state;
    const struct {
        uint32_t context, budget, batch, pages, window_pages;
    } cases[] = {
        {400, 0, 512, 25, 25},  /* a chunk of the whole context */
        {400, 0, 16, 25, 4},    /* 35 positions, wherever they begin */
        {400, 160, 16, 10, 4},  /* the budget is that of the global layer */
        {400, 0, 1, 25, 3},
        {16, 0, 16, 1, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
        weir_plan_info plan = WEIR_PLAN_INFO_INIT;
        weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
        weir_session *session = NULL;
        options.policy = cases[i].budget == 0 ? "dense" : "raas";
        options.context_tokens = cases[i].context;
        options.budget_tokens = cases[i].budget;
        options.batch_tokens = cases[i].batch;
        assert_ok(weir_plan(f->model, &options, &plan));
        assert_int_equal(plan.n_streams, kLocal + kGlobal);
        assert_int_equal(plan.n_window_streams, kLocal);
        assert_int_equal(plan.pages_per_stream, cases[i].pages);
        assert_int_equal(plan.window_pages_per_stream, cases[i].window_pages);
        assert_int_equal(plan.window_kv_bytes, kLocal * cases[i].window_pages * plan.page_bytes);
        assert_int_equal(plan.kv_bytes, kGlobal * cases[i].pages * plan.page_bytes + plan.window_kv_bytes);
        assert_ok(weir_session_create(f->model, &options, &session));
        prefill(session, 0, 10);
        for (int k = 10; k < 16; ++k) assert_ok(weir_session_step(session, token(k)));
        assert_ok(weir_session_memory(session, &memory));
        assert_int_equal(memory.peak_bytes, plan.total_bytes);
        assert_int_equal(memory.allocs_while_decoding, 0);
        weir_session_destroy(session);
    }
}

/* A budget in bytes pays for the windows first. */
static void windows__count_in_a_budget_of_bytes(void **state) {
    const fixture *f = *state;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    options.policy = "raas";
    options.context_tokens = 400;
    options.batch_tokens = 16;
    options.budget_bytes = 1;
    assert_error(weir_plan(f->model, &options, &plan), WEIR_ERR_BUDGET, "and the windows of the others");
    options.budget_bytes = 20 * 4096;
    assert_ok(weir_plan(f->model, &options, &plan));
    assert_int_equal(plan.page_bytes, 4096);
    assert_int_equal(plan.kv_bytes, 20 * 4096);
    assert_int_equal(plan.pages_per_stream, 20 - kLocal * 4);
    /* A context that is shorter than a window and a chunk: no more than its 6 pages are paid for. */
    options.context_tokens = 96;
    options.batch_tokens = 0;
    options.budget_bytes = 17 * 4096;
    assert_ok(weir_plan(f->model, &options, &plan));
    assert_int_equal(plan.window_pages_per_stream, 6);
    assert_int_equal(plan.pages_per_stream, 17 - kLocal * 6);
    assert_int_equal(plan.kv_bytes, 17 * 4096);
}

/* Pages that left a window do not come back: a cancelled prompt keeps its whole chunks then, and only then. */
typedef struct stop {
    uint64_t at;
} stop;

static weir_status stop_at(void *user, const weir_progress_info *info) {
    return info->done >= ((const stop *)user)->at ? WEIR_ERR_CANCELLED : WEIR_OK;
}

static void windows__a_cancelled_prompt_keeps_chunks_that_slid(void **state) {
    const fixture *f = *state;
    weir_token tokens[kTokens];
    float want[kVocab], got[kVocab];
    for (int i = 0; i < kTokens; ++i) tokens[i] = token(i);
    weir_session *session = session_of(f, "dense", 0, 16), *other = session_of(f, "dense", 0, 16);
    stop stops[] = {{32}, {160}};
    assert_error(weir_session_prefill(session, tokens, 200, stop_at, &stops[0]), WEIR_ERR_CANCELLED, "after 32 of 200");
    assert_int_equal(stats_of(session).n_tokens, 0);
    assert_error(weir_session_prefill(session, tokens, 200, stop_at, &stops[1]), WEIR_ERR_CANCELLED,
                 "after 160 of 200");
    assert_int_equal(stats_of(session).n_tokens, 160);
    prefill(session, 160, 40);
    copy_logits(session, got);
    prefill(other, 0, 160);
    prefill(other, 160, 40);
    copy_logits(other, want);
    assert_memory_equal(got, want, sizeof(want));
    weir_session_destroy(session);
    weir_session_destroy(other);
}

/* Pins hold pages of the layers that the policy rules. */
static void windows__are_not_pinned(void **state) {
    const fixture *f = *state;
    weir_session *session = session_of(f, "raas", 160, 16);
    prefill(session, 0, 40);
    assert_ok(weir_session_pin(session, 0, 16));
    for (int i = 40; i < kTokens; ++i) assert_ok(weir_session_step(session, token(i)));
    assert_ok(weir_session_unpin(session, 0, 16)); /* the global layer still has it */
    assert_int_equal(stats_of(session).pages_resident, 10 * kGlobal + 2 * kLocal);
    weir_session_destroy(session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows__pages_that_left_were_not_needed),
        cmocka_unit_test(windows__are_full_under_every_policy),
        cmocka_unit_test(windows__the_plan_is_exact),
        cmocka_unit_test(windows__count_in_a_budget_of_bytes),
        cmocka_unit_test(windows__a_cancelled_prompt_keeps_chunks_that_slid),
        cmocka_unit_test(windows__are_not_pinned),
    };
    return cmocka_run_group_tests_name("api/windows", tests, open_windows, close_fixture);
}
