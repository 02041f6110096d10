/* api: random conversations under every policy: several turns, pins, cancels. Calls may fail only in the expected ways,
 * and pages never exceed the plan. */
#include "api_test.h"
#include "../policy/every_policy.h"

#ifdef WEIR_INTERNAL_SANITIZED /* some ten times slower */
#define N_SEEDS 2
#else
#define N_SEEDS 12
#endif

static uint32_t random_state;

static uint32_t draw(uint32_t below) {
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

typedef struct choice {
    const char *policy;
    weir_key_value options[3];
    uint32_t n_options;
} choice;

static const choice choices[] = {
    {"dense", {{0, 0}}, 0},
    {"sink", {{0, 0}}, 0},
    {"sink", {{"positions", "abs"}}, 1},
    {"sink", {{"positions", "abs"}, {"prompt", "snapkv"}, {"prompt_budget", "64"}}, 3},
    {"h2o", {{"skip_layers", "0"}}, 1},
    {"h2o", {{"skip_layers", "1"}, {"score", "norm_sum"}, {"init", "window"}}, 3},
    {"h2o", {{"init", "zero"}, {"recent", "96"}}, 2},
    {"tova", {{"skip_layers", "0"}}, 1},
    {"tova", {{"scope", "stream"}, {"prompt", "snapkv"}}, 2},
    {"tova", {{"skip_layers", "0"}, {"decide", "token"}}, 2},
    {"quest", {{"skip_layers", "0"}}, 1},
    {"quest", {{"skip_layers", "0"}, {"agg", "qhead"}, {"digest", "mean_std"}}, 3},
    {"quest", {{"skip_layers", "1"}, {"agg", "sum_prob"}, {"prompt", "snapkv"}}, 3},
    {"quest", {{"skip_layers", "0"}, {"digest", "sketch"}}, 2},
    {"quest", {{"skip_layers", "0"}, {"unit", "token"}, {"candidates", "1"}}, 3},
    {"raas", {{0, 0}}, 0},
    {"raas", {{"r", "0.5"}, {"protect_recent", "0"}}, 2},
    {"raas", {{"pin_prompt", "false"}, {"digest", "cuboid_mean"}}, 2},
    {"raas", {{"overflow", "hybrid"}}, 1},
    {"raas", {{"overflow", "extend"}}, 1},
    {"raas", {{"decide", "gap"}, {"alpha", "0.1"}}, 2},
    {"raas", {{"min_decode_pages", "2"}, {"prompt_window", "16"}, {"prompt", "snapkv"}}, 3},
    {"raas", {{"prompt", "pyramid"}, {"prompt_beta", "4"}, {"prompt_window", "16"}}, 3},
    {"raas", {{"prompt", "ada"}, {"prompt_window", "16"}}, 2},
    {"hybrid", {{"skip_layers", "0"}}, 1},
    {"hybrid", {{"skip_layers", "0"}, {"prompt", "snapkv"}}, 2},
    {"random", {{0, 0}}, 0},
    {"random", {{"pin_prompt", "false"}, {"seed", "3"}}, 2},
    {"keyformer", {{"skip_layers", "0"}, {"tau_tokens", "100"}}, 2},
    {"scissorhands", {{"skip_layers", "0"}, {"window", "20"}}, 2},
    {"arkvale", {{0, 0}}, 0},
    {"arkvale", {{"recall_from", "3"}, {"protect_recent", "2"}, {"recall_pages", "1"}}, 3},
    {"arkvale", {{"recall_from", "4"}, {"recall_pages", "0"}, {"attend", "top"}}, 3},
    {"psa", {{"skip_layers", "0"}}, 1},
    {"psa", {{"skip_layers", "0"}, {"eps", "0.7"}, {"mb", "2"}}, 3},
    {"lfps", {{0, 0}}, 0},
    {"lfps", {{"skip_layers", "1"}, {"eta", "0.5"}, {"rows", "7"}}, 3},
    {"lfps", {{"candidates", "threshold"}, {"gamma", "0.5"}, {"lambda", "0.5"}}, 3},
    {"raas", {{"recall", "on"}}, 1},
    {"raas", {{"recall", "on"}, {"recall_from", "3"}, {"recall_pages", "0"}}, 3},
    {"hybrid", {{"recall", "on"}, {"recall_from", "4"}, {"rho", "0.4"}}, 3},
};

static weir_status stop_later(void *user, const weir_progress_info *info) {
    (void)info;
    return --*(int *)user < 0 ? WEIR_ERR_CANCELLED : WEIR_OK;
}

/* What may happen to a call here; everything else is a defect. */
static void assert_expected(weir_status status, const choice *c, const char *call) {
    if (status == WEIR_OK || status == WEIR_ERR_BUDGET || status == WEIR_ERR_CONTEXT_FULL ||
        status == WEIR_ERR_CANCELLED)
        return;
    if (status == WEIR_ERR_UNSUPPORTED && strcmp(call, "pin") == 0) return;   /* sink with positions=incache */
    if (status == WEIR_ERR_NOT_FOUND && strstr(call, "pin") != NULL) return;  /* all these pages have left */
    fail_msg("%s under %s: %s: %s", call, c->policy, weir_status_name(status), weir_last_error());
}

static void one_turn(weir_session *session, const choice *c, const weir_token *tokens) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    int n_calls = (int)draw(4);
    uint32_t n;
    assert_ok(weir_session_get_stats(session, &stats));
    switch (draw(6)) {
    case 0:
        if (stats.n_tokens > 0) {
            uint32_t first = draw(stats.n_tokens), end = first + 1 + draw(stats.n_tokens - first);
            assert_expected(weir_session_pin(session, first, end), c, "pin");
        }
        break;
    case 1:
        if (stats.n_tokens > 0) {
            uint32_t first = draw(stats.n_tokens);
            assert_expected(weir_session_unpin(session, first, stats.n_tokens), c, "unpin");
        }
        break;
    case 2:
        assert_expected(weir_session_prefill(session, tokens, 1 + draw(200), stop_later, &n_calls), c,
                        "cancelled prefill");
        break;
    default:
        assert_expected(weir_session_prefill(session, tokens, 1 + draw(draw(2) ? 400 : 40), NULL, NULL), c, "prefill");
        n = draw(60);
        for (uint32_t i = 0; i < n; ++i) assert_expected(weir_session_step(session, tokens[i]), c, "step");
    }
}

static void run_random(const fixture *f, const choice *c, uint32_t seed) {
    static const uint32_t budgets[] = {112, 128, 160, 256, 512};
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    weir_session *session = NULL;
    weir_token tokens[400];
    weir_status status;
    random_state = seed;
    for (int i = 0; i < 400; ++i) tokens[i] = (weir_token)draw(200);
    options.policy = c->policy;
    options.policy_options = c->n_options == 0 ? NULL : c->options;
    options.n_policy_options = c->n_options;
    options.budget_tokens = budgets[draw(5)];
    options.context_tokens = 1024 + draw(3) * 200;
    options.max_prompt_tokens = draw(3) == 0 ? 0 : 40 + draw(500);
    options.batch_tokens = 16u << draw(6);
    status = weir_session_create(f->model, &options, &session);
    /* Some choices are refused, such as overflow=hybrid without max_prompt_tokens. */
    if (status == WEIR_ERR_BUDGET || status == WEIR_ERR_INVALID_ARG) return;
    assert_ok(status);
    assert_ok(weir_plan(f->model, &options, &plan));
    for (int turn = 0; turn < 12; ++turn) one_turn(session, c, tokens);
    assert_ok(weir_session_get_stats(session, &stats));
    assert_ok(weir_session_memory(session, &memory));
    assert_true(stats.pages_resident_max * plan.page_bytes <= plan.kv_bytes);
    assert_int_equal(memory.peak_bytes, plan.total_bytes);
    assert_int_equal(memory.allocs_while_decoding, 0);
    weir_session_destroy(session);
}

static void policies__random_conversations(void **state) {
    ASSERT_EVERY_POLICY(choices, policy);
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); ++i) {
        for (uint32_t seed = 1; seed <= N_SEEDS; ++seed) run_random(*state, &choices[i], seed * 7919u + (uint32_t)i);
    }
}

/* The second and third prompt of a conversation that outgrew its budget. */
static void policies__later_prompts_are_made_to_fit(void **state) {
    const fixture *f = *state;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    weir_session *session = NULL;
    weir_token tokens[440];
    for (int i = 0; i < 440; ++i) tokens[i] = 7 + i % 100;
    options.budget_tokens = 512;
    options.context_tokens = 4096;
    assert_ok(weir_session_options_preset("reason-fixed", &options));
    assert_ok(weir_session_create(f->model, &options, &session));
    assert_ok(weir_session_prefill(session, tokens, 440, NULL, NULL));
    for (int turn = 0; turn < 4; ++turn) {
        for (int i = 0; i < 20 + turn * 7; ++i) assert_ok(weir_session_step(session, tokens[i]));
        assert_ok(weir_session_prefill(session, tokens, 100, NULL, NULL));
    }
    assert_ok(weir_session_get_stats(session, &stats));
    assert_true(stats.pages_evicted > 0);
    weir_session_destroy(session);
}

/* Stamps decide which pages stay: a hybrid session stamps in the same way with and without max_prompt_tokens. */
static void policies__hybrid_stamps_without_max_prompt(void **state) {
    const fixture *f = *state;
    static float logits[2][8192];
    for (int with = 0; with < 2; ++with) {
        weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
        weir_key_value some[] = {{"alpha", "0.01"}, {"protect_recent", "0"}};
        weir_session *session = NULL;
        weir_token tokens[100];
        const float *row = NULL;
        uint32_t n = 0;
        for (int i = 0; i < 100; ++i) tokens[i] = 7 + i * 3 % 150;
        options.policy = "hybrid";
        options.budget_tokens = 256;
        options.context_tokens = 2048;
        options.max_prompt_tokens = with ? 100 : 0;
        options.policy_options = some;
        options.n_policy_options = 2;
        assert_ok(weir_session_create(f->model, &options, &session));
        assert_ok(weir_session_prefill(session, tokens, 100, NULL, NULL));
        for (int i = 0; i < 400; ++i) assert_ok(weir_session_step(session, 5 + i * 7 % 150));
        assert_ok(weir_session_logits(session, &row, &n));
        assert_true(n <= 8192);
        memcpy(logits[with], row, n * sizeof(float));
        weir_session_destroy(session);
    }
    assert_memory_equal(logits[0], logits[1], sizeof(logits[0]));
}

/* A model of a few layers with random weights is enough, and quick. */
static int open_small(void **state) {
    static fixture f;
    if (weir_runtime_create(NULL, &f.runtime) != WEIR_OK ||
        weir_model_open(f.runtime, WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf", NULL, &f.model) != WEIR_OK) {
        fprintf(stderr, "%s\n", weir_last_error());
        return -1;
    }
    *state = &f;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies__random_conversations),
        cmocka_unit_test(policies__later_prompts_are_made_to_fit),
        cmocka_unit_test(policies__hybrid_stamps_without_max_prompt),
    };
    return cmocka_run_group_tests_name("api_policies", tests, open_small, close_fixture);
}
