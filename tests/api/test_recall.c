/* Recall: pages that left the pool come back in the step that wants them. Whatever the pool, the store's sizes and the
 * number of threads, what a step attends is what a policy with all pages at hand would attend, bit for bit. */
#include "api_test.h"

#ifdef WEIR_INTERNAL_SANITIZED
enum { kSteps = 220, kLongPrompt = 324 };
#else
enum { kSteps = 300, kLongPrompt = 900 };
#endif
enum { kContext = 1024, kPrompt = 40 };

typedef struct variant {
    const char *policy;
    const weir_key_value *options;
    uint32_t n_options;
    uint32_t budget_tokens;
    uint32_t batch_tokens;
    uint64_t spill_bytes;
} variant;

#define OPTIONS(array) array, sizeof(array) / sizeof((array)[0])

static weir_session_options options_of(const variant *v) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = WEIR_DEVICE_CPU;
    options.context_tokens = kContext;
    options.policy = v->policy;
    options.policy_options = v->options;
    options.n_policy_options = v->n_options;
    options.budget_tokens = v->budget_tokens;
    options.batch_tokens = v->batch_tokens;
    options.spill_budget_bytes = v->spill_bytes;
    return options;
}

static weir_session *session_of(weir_model *model, const variant *v) {
    const weir_session_options options = options_of(v);
    weir_session *session = NULL;
    assert_ok(weir_session_create(model, &options, &session));
    return session;
}

static weir_token token(uint32_t i) { return (weir_token)(i * 2654435761u % 199 + 20); }

static void prefill(weir_session *session, uint32_t first, uint32_t n) {
    weir_token tokens[kLongPrompt];
    for (uint32_t i = 0; i < n; ++i) tokens[i] = token(first + i);
    assert_ok(weir_session_prefill(session, tokens, n, NULL, NULL));
}

static const float *logits_of(weir_session *session, uint32_t *n) {
    const float *logits = NULL;
    assert_ok(weir_session_logits(session, &logits, n));
    return logits;
}

static void assert_same_logits(weir_session *a, weir_session *b, uint32_t position) {
    uint32_t n = 0;
    const float *x = logits_of(a, &n);
    if (memcmp(x, logits_of(b, &n), n * sizeof(float)) != 0) fail_msg("logits differ at position %u", position);
}

static weir_session_stats stats_of(const weir_session *session) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    return stats;
}

static const weir_key_value kQuest[] = {
    {"skip_layers", "0"}, {"sink_pages", "1"}, {"digest", "minmax"}, {"agg", "max_raw"}};
static const weir_key_value kTop[] = {{"attend", "top"},    {"recall_pages", "0"}, {"recall_from", "7"},
                                      {"digest", "minmax"}, {"agg", "max_raw"},    {"protect_recent", "1"}};
static const weir_key_value kTopOfRaas[] = {{"recall", "on"},     {"attend", "top"},    {"recall_pages", "0"},
                                            {"recall_from", "7"}, {"digest", "minmax"}, {"agg", "max_raw"},
                                            {"protect_recent", "1"}};

/* With all wanted pages brought back and only those attended, recall is quest, which never lets a page go, whatever the
 * stamps by which pages do. */
static void recall__of_all_wanted_pages_is_quest(void **state) {
    const fixture *f = *state;
    static const struct {
        uint32_t budget;
        uint64_t spill_bytes;
        int is_raas;
    } pools[] = {{9 * 16, 0, 0}, {12 * 16, 0, 0}, {30 * 16, 0, 0}, {9 * 16, 40 << 20, 0}, {10 * 16, 0, 1}};
    const variant quest = {"quest", OPTIONS(kQuest), 8 * 16, 64, 0};
    for (size_t p = 0; p < sizeof(pools) / sizeof(pools[0]); ++p) {
        const variant arkvale = {"arkvale", OPTIONS(kTop), pools[p].budget, 64, pools[p].spill_bytes};
        const variant raas = {"raas", OPTIONS(kTopOfRaas), pools[p].budget, 64, pools[p].spill_bytes};
        const variant v = pools[p].is_raas ? raas : arkvale;
        weir_session *want = session_of(f->model, &quest), *got = session_of(f->model, &v);
        prefill(want, 0, kPrompt);
        prefill(got, 0, kPrompt);
        for (uint32_t i = kPrompt; i < kPrompt + kSteps; ++i) {
            assert_same_logits(got, want, i);
            assert_ok(weir_session_step(want, token(i)));
            assert_ok(weir_session_step(got, token(i)));
        }
        assert_same_logits(got, want, kPrompt + kSteps);
        const weir_session_stats stats = stats_of(got);
        if (pools[p].budget == 9 * 16) assert_true(stats.pages_recalled > 0);
        assert_int_equal(stats.pages_dropped, 0);
        assert_int_equal(stats.pages_spilled, stats.pages_evicted);
        assert_true(stats.pages_resident_max <= 16u * pools[p].budget / 16);
        weir_session_destroy(want);
        weir_session_destroy(got);
    }
}

static void recall__into_a_pool_of_the_whole_context_is_dense(void **state) {
    const fixture *f = *state;
    const variant dense = {"dense", NULL, 0, 0, 64, 0}, v = {"arkvale", NULL, 0, kContext, 64, 0};
    weir_session *want = session_of(f->model, &dense), *got = session_of(f->model, &v);
    prefill(want, 0, kPrompt);
    prefill(got, 0, kPrompt);
    for (uint32_t i = kPrompt; i < kPrompt + kSteps; ++i) {
        assert_ok(weir_session_step(want, token(i)));
        assert_ok(weir_session_step(got, token(i)));
        assert_same_logits(got, want, i);
    }
    weir_session_destroy(want);
    weir_session_destroy(got);
}

/* A prompt that is much longer than the pool attends its cold pages, too. */
static void recall__a_prompt_beyond_the_pool_has_the_bits_of_dense(void **state) {
    const fixture *f = *state;
    const variant dense = {"dense", NULL, 0, 0, 64, 0};
    static const uint32_t budgets[] = {128, 192, 512};
    for (size_t b = 0; b < sizeof(budgets) / sizeof(budgets[0]); ++b) {
        const variant v = {"arkvale", NULL, 0, budgets[b], 64, 0};
        weir_session *want = session_of(f->model, &dense), *got = session_of(f->model, &v);
        /* Two prompts, the second beginning inside a page. No chunk has less than nine tokens: matrices multiply those
         * in another way. */
        prefill(want, 0, kLongPrompt - 48);
        prefill(got, 0, kLongPrompt - 48);
        assert_same_logits(got, want, kLongPrompt - 48);
        prefill(want, kLongPrompt - 48, 28);
        prefill(got, kLongPrompt - 48, 28);
        assert_same_logits(got, want, kLongPrompt - 20);
        if (budgets[b] < kLongPrompt - 48) assert_true(stats_of(got).pages_spilled > 0);
        weir_session_destroy(want);
        weir_session_destroy(got);
    }
}

/* A store that is too small loses pages, and the session goes on. What it loses depends on the tokens alone. */
static void recall__a_full_store_drops_pages_and_counts_them(void **state) {
    const fixture *f = *state;
    weir_runtime *other_runtime = NULL;
    weir_model *other_model = NULL;
    weir_runtime_options one_thread = WEIR_RUNTIME_OPTIONS_INIT;
    one_thread.n_threads = 1;
    assert_ok(weir_runtime_create(&one_thread, &other_runtime));
    assert_ok(weir_model_open(other_runtime, TINY_MODEL, NULL, &other_model));
    variant v = {"arkvale", NULL, 0, 128, 64, 0};
    const weir_session_options options = options_of(&v);
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    assert_ok(weir_plan(f->model, &options, &plan));
    /* Room for some 12 pages a stream of the 20 that the conversation has. */
    v.spill_bytes = plan.n_streams * 12 * (plan.page_bytes + 512);
    weir_session *a = session_of(f->model, &v), *b = session_of(other_model, &v);
    prefill(a, 0, kPrompt);
    prefill(b, 0, kPrompt);
    for (uint32_t i = kPrompt; i < kPrompt + 300; ++i) {
        assert_ok(weir_session_step(a, token(i)));
        assert_ok(weir_session_step(b, token(i)));
        assert_same_logits(a, b, i);
    }
    const weir_session_stats x = stats_of(a), y = stats_of(b);
    assert_true(x.pages_dropped > 0);
    assert_int_equal(x.pages_dropped, y.pages_dropped);
    assert_int_equal(x.pages_recalled, y.pages_recalled);
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    assert_ok(weir_session_memory(a, &memory));
    assert_int_equal(memory.bytes, memory.plan_bytes);
    assert_int_equal(memory.peak_bytes, memory.plan_bytes);
    assert_int_equal(memory.allocs_while_decoding, 0);
    assert_ok(weir_session_reset(a));
    prefill(a, 0, kPrompt);
    weir_session_destroy(a);
    weir_session_destroy(b);
    weir_model_close(other_model);
    weir_runtime_destroy(other_runtime);
}

static weir_status stop_at_half(void *user, const weir_progress_info *info) {
    (void)user;
    return info->done * 2 > info->total ? WEIR_ERR_CANCELLED : WEIR_OK;
}

/* A prompt that is refused half-way is taken back whole, although its pages and older ones have gone and come. */
static void recall__takes_a_cancelled_prompt_back(void **state) {
    const fixture *f = *state;
    const variant v = {"arkvale", OPTIONS(kTop), 9 * 16, 64, 0};
    weir_session *want = session_of(f->model, &v), *got = session_of(f->model, &v);
    prefill(want, 0, 300 - 7);
    prefill(got, 0, 300 - 7);
    weir_token tokens[280];
    for (uint32_t i = 0; i < 280; ++i) tokens[i] = token(1000 + i);
    assert_error(weir_session_prefill(got, tokens, 280, stop_at_half, NULL), WEIR_ERR_CANCELLED, "");
    assert_int_equal(stats_of(got).n_tokens, 300 - 7);
    for (uint32_t i = 0; i < 60; ++i) {
        assert_ok(weir_session_step(want, token(i)));
        assert_ok(weir_session_step(got, token(i)));
        assert_same_logits(got, want, i);
    }
    weir_session_destroy(want);
    weir_session_destroy(got);
}

/* A store for what a policy lets go changes neither logits nor tables, keeps all of it, and is part of the plan. */
static void recall__a_store_without_recall_changes_nothing(void **state) {
    const fixture *f = *state;
    static const char *const policies[] = {"raas", "sink", "h2o", "tova", "hybrid", "random"};
    static const weir_key_value bounded[] = {{"skip_layers", "0"}};
    for (size_t p = 0; p < sizeof(policies) / sizeof(policies[0]); ++p) {
        const int selects = strchr("hth", policies[p][0]) != NULL;
        const variant without = {policies[p], selects ? bounded : NULL, selects ? 1 : 0, 128, 64, 0};
        variant with = without;
        with.spill_bytes = 24 << 20;
        weir_session *want = session_of(f->model, &without), *got = session_of(f->model, &with);
        weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
        for (int round = 0; round < 2; ++round) {
            prefill(want, 0, kPrompt);
            prefill(got, 0, kPrompt);
            for (uint32_t i = kPrompt; i < kPrompt + kSteps / 2; ++i) {
                assert_same_logits(got, want, i);
                assert_ok(weir_session_step(want, token(i)));
                assert_ok(weir_session_step(got, token(i)));
            }
            const weir_session_stats a = stats_of(want), b = stats_of(got);
            assert_int_equal(a.pages_evicted, b.pages_evicted);
            assert_true(a.pages_dropped == a.pages_evicted && a.pages_cold == 0);
            assert_true(b.pages_dropped == 0 && b.pages_spilled == b.pages_evicted && b.pages_recalled == 0);
            if (round == 0) assert_int_equal(b.pages_cold, b.pages_evicted);
            assert_true(b.pages_evicted > 0 && b.spill_stored_bytes > 0);
            weir_token refused[200];
            for (uint32_t i = 0; i < 200; ++i) refused[i] = token(500 + i);
            weir_session_stats before = stats_of(want);
            assert_error(weir_session_prefill(want, refused, 100, stop_at_half, NULL), WEIR_ERR_CANCELLED, "");
            assert_error(weir_session_prefill(got, refused, 100, stop_at_half, NULL), WEIR_ERR_CANCELLED, "");
            assert_int_equal(stats_of(want).n_tokens, stats_of(got).n_tokens);
            assert_true(stats_of(want).n_tokens >= before.n_tokens);
            assert_ok(weir_session_step(want, 33));
            assert_ok(weir_session_step(got, 33));
            assert_same_logits(got, want, before.n_tokens);
            assert_ok(weir_session_memory(got, &memory));
            assert_int_equal(memory.bytes, memory.plan_bytes);
            assert_int_equal(memory.allocs_while_decoding, 0);
            assert_ok(weir_session_reset(want));
            assert_ok(weir_session_reset(got));
        }
        assert_int_equal(stats_of(got).spill_stored_bytes, 0);
        weir_session_destroy(want);
        weir_session_destroy(got);
    }
}

static void recall__refuses_what_it_cannot_do(void **state) {
    const fixture *f = *state;
    static const weir_key_value many[] = {{"recall_from", "8"}, {"protect_recent", "2"}};
    static const weir_key_value heads[] = {{"agg", "qhead"}};
    static const weir_key_value prompt[] = {{"prompt", "snapkv"}};
    static const weir_key_value pinned[] = {{"recall", "on"}, {"pin_prompt", "true"}};
    static const weir_key_value overflow[] = {{"overflow", "compress"}, {"recall", "on"}};
    static const weir_key_value on[] = {{"recall", "on"}};
    const struct {
        variant v;
        int32_t device;
        weir_status status;
        const char *text;
    } cases[] = {
        {{"arkvale", OPTIONS(many), 160, 0, 0}, WEIR_DEVICE_CPU, WEIR_ERR_BUDGET, "at least 176 tokens, not 160"},
        {{"arkvale", OPTIONS(heads), 160, 0, 0}, WEIR_DEVICE_CPU, WEIR_ERR_INVALID_ARG, "agg=qhead"},
        {{"arkvale", OPTIONS(prompt), 160, 0, 0}, WEIR_DEVICE_CPU, WEIR_ERR_INVALID_ARG, "prompt=snapkv"},
        {{"arkvale", NULL, 0, 160, 0, 1000}, WEIR_DEVICE_CPU, WEIR_ERR_BUDGET, "spill_budget_bytes 1000"},
        {{"raas", OPTIONS(pinned), 160, 0, 0}, WEIR_DEVICE_CPU, WEIR_ERR_INVALID_ARG,
         "option pin_prompt contradicts recall=on"},
        {{"hybrid", OPTIONS(overflow), 160, 0, 0}, WEIR_DEVICE_CPU, WEIR_ERR_INVALID_ARG,
         "option overflow contradicts recall=on"},
        {{"raas", OPTIONS(on), 160, 0, 1000}, WEIR_DEVICE_CPU, WEIR_ERR_BUDGET, "spill_budget_bytes 1000"},
        {{"raas", NULL, 0, 160, 0, 1000}, WEIR_DEVICE_CPU, WEIR_ERR_BUDGET, "spill_budget_bytes 1000"},
        {{"raas", NULL, 0, 160, 0, 1 << 20}, WEIR_DEVICE_CUDA, WEIR_ERR_UNSUPPORTED, "processor only"},
        {{"quest", NULL, 0, 160, 0, 1 << 20}, WEIR_DEVICE_CPU, WEIR_ERR_INVALID_ARG, "policy quest lets no pages go"},
        {{NULL, NULL, 0, 0, 0, 1 << 20}, WEIR_DEVICE_CPU, WEIR_ERR_INVALID_ARG, "policy dense lets no pages go"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        weir_session_options options = options_of(&cases[i].v);
        weir_plan_info plan = WEIR_PLAN_INFO_INIT;
        weir_session *session = NULL;
        options.device = cases[i].device;
        assert_error(weir_plan(f->model, &options, &plan), cases[i].status, cases[i].text);
        assert_error(weir_session_create(f->model, &options, &session), cases[i].status, cases[i].text);
        assert_null(session);
    }
}

int main(void) {
    /* what these tests expect depends on the weights */
    const struct CMUnitTest of_a_real_model[] = {
        cmocka_unit_test(recall__a_full_store_drops_pages_and_counts_them),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recall__of_all_wanted_pages_is_quest),
        cmocka_unit_test(recall__into_a_pool_of_the_whole_context_is_dense),
        cmocka_unit_test(recall__a_prompt_beyond_the_pool_has_the_bits_of_dense),
        cmocka_unit_test(recall__takes_a_cancelled_prompt_back),
        cmocka_unit_test(recall__a_store_without_recall_changes_nothing),
        cmocka_unit_test(recall__refuses_what_it_cannot_do),
    };
    return cmocka_run_group_tests_name("recall", tests, open_long_run_fixture, close_fixture) +
           cmocka_run_group_tests_name("recall, real weights", of_a_real_model, open_fixture, close_fixture);
}
