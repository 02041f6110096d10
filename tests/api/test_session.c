/* api: plan, prefill, step, generate, policies at a budget that holds everything, and every refusal of a session. */
#include "api_test.h"
#include "../policy/every_policy.h"

#define N_SAME 96 /* steps */
#ifdef WEIR_INTERNAL_SANITIZED /* some ten times slower; pages leave all the same */
#define N_LONG 150
#else
#define N_LONG 600
#endif

typedef struct collected {
    char text[65536];
    size_t n;
    weir_token tokens[8192];
    size_t n_tokens;
} collected;

static weir_status collect(void *user, const weir_token_event *event) {
    collected *c = user;
    assert_true(c->n + event->text_bytes < sizeof(c->text));
    memcpy(c->text + c->n, event->text, event->text_bytes + 1);
    c->n += event->text_bytes;
    if (event->token >= 0) c->tokens[c->n_tokens++] = event->token;
    return WEIR_OK;
}

static weir_session *new_session(const fixture *f, const char *policy, uint32_t budget) {
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.policy = policy;
    options.budget_tokens = budget;
    assert_ok(weir_session_create(f->model, &options, &session));
    return session;
}

static void generate(weir_session *session, collected *out, uint32_t max_tokens, int32_t stop) {
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    memset(out, 0, sizeof(*out));
    options.flags = WEIR_GENERATE_SPECIAL_TEXT;
    options.max_tokens = max_tokens;
    options.on_token = collect;
    options.user = out;
    assert_ok(weir_session_generate(session, &options, &result));
    assert_int_equal(result.stop, stop);
    assert_int_equal(result.n_tokens, out->n_tokens);
}

static void session__solves_a_problem(void **state) {
    const fixture *f = *state;
    static collected out;
    weir_session *session = new_session(f, NULL, 0);
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    prefill_text(f->model, session, RULE_PROMPT);
    generate(session, &out, 0, WEIR_STOP_EOS);
    /* x3 = 97-60 = 37, 57-37 = 20, 60-20 = 40, 37-40 = -3, 20-97 = -77 -> 23, 40-23 = 17, 97-17 = 80, 23-80 -> 43,
     * 17-43 -> 74, 80-74 = 6, 43-6 = 37 */
    assert_non_null(strstr(out.text, "x3 = x0 - x2 = 97 - 60 = 37.\n"));
    assert_non_null(strstr(out.text, "</think>\nx13 = 37."));
    assert_ok(weir_session_memory(session, &memory));
    assert_int_equal(memory.allocs_while_decoding, 0);
    assert_int_equal(memory.peak_bytes, memory.plan_bytes);
    assert_int_equal(memory.bytes, memory.plan_bytes);
    assert_ok(weir_session_get_stats(session, &stats));
    assert_int_equal(stats.n_tokens, stats.n_prompt + stats.n_decode);
    assert_int_equal(stats.n_decode, out.n_tokens);
    assert_int_equal(stats.pages_evicted, 0);
    weir_session_destroy(session);
}

/* Every policy with a budget for the whole context gives the logits of dense, bit for bit. */
static void session__full_budget_equals_dense(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *policy;
        weir_key_value option;
    } rows[] = {{"sink", {"positions", "incache"}},
                {"sink", {"positions", "abs"}},
                {"sink", {"exact_mask", "true"}},
                {"raas", {"stamp_source", "exact_mass"}},
                {"raas", {"stamp_source", "digest"}},
                {"raas", {"stamp_rule", "alpha"}},
                {"raas", {"prompt", "snapkv"}},
                {"h2o", {"score", "sum"}},
                {"h2o", {"score", "norm_sum"}},
                {"h2o", {"skip_layers", "0"}},
                {"h2o", {"init", "window"}},
                {"tova", {"scope", "layer"}},
                {"tova", {"scope", "stream"}},
                {"quest", {"digest", "minmax"}},
                {"quest", {"digest", "mean_std"}},
                {"quest", {"agg", "qhead"}},
                {"quest", {"skip_layers", "0"}},
                {"quest", {"prompt", "snapkv"}},
                {"hybrid", {"rho", "0.5"}},
                {"hybrid", {"stamp_source", "digest"}},
                {"random", {"seed", "2"}},
                {"keyformer", {"seed", "2"}},
                {"scissorhands", {"drop", "1"}},
                {"arkvale", {"recall_pages", "0"}},
                {"arkvale", {"attend", "top"}},
                {"psa", {"eps", "1"}},
                {"raas", {"recall", "on"}},
                {"hybrid", {"recall", "on"}},
                {"dense", {"prompt", "snapkv"}}};
    static float want[N_SAME][LONG_RUN_VOCAB];
    uint64_t n;
    weir_token *tokens = tokens_of(f->model, RULE_PROMPT, &n);
    weir_session *dense = new_session(f, "dense", 0);
    /* lfps sums in another order: tests/policy/test_lfps.cpp */
    ASSERT_EVERY_POLICY_EXCEPT("lfps", rows, policy);
    assert_ok(weir_session_prefill(dense, tokens, n, NULL, NULL));
    for (int i = 0; i < N_SAME; ++i) {
        const float *logits = NULL;
        weir_token token;
        assert_ok(weir_session_logits(dense, &logits, NULL));
        memcpy(want[i], logits, sizeof(want[i]));
        assert_ok(weir_session_sample(dense, &token));
        assert_ok(weir_session_step(dense, token));
    }
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); ++r) {
        weir_session *session = NULL;
        weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
        options.policy = rows[r].policy;
        options.policy_options = &rows[r].option;
        options.n_policy_options = 1;
        options.context_tokens = 1024;
        options.budget_tokens = 1024;
        assert_ok(weir_session_create(f->model, &options, &session));
        assert_ok(weir_session_prefill(session, tokens, n, NULL, NULL));
        for (int i = 0; i < N_SAME; ++i) {
            const float *logits = NULL;
            weir_token token;
            assert_ok(weir_session_logits(session, &logits, NULL));
            assert_memory_equal(logits, want[i], sizeof(want[i]));
            assert_ok(weir_session_sample(session, &token));
            assert_ok(weir_session_step(session, token));
        }
        weir_session_destroy(session);
    }
    weir_session_destroy(dense);
    free(tokens);
}

static void session__reset_gives_the_same_answer(void **state) {
    const fixture *f = *state;
    static collected first, second;
    weir_session *session = new_session(f, "raas", 128);
    prefill_text(f->model, session, RULE_PROMPT);
    generate(session, &first, 300, WEIR_STOP_EOS);
    assert_ok(weir_session_reset(session));
    prefill_text(f->model, session, RULE_PROMPT);
    generate(session, &second, 300, WEIR_STOP_EOS);
    assert_int_equal(first.n_tokens, second.n_tokens);
    assert_memory_equal(first.tokens, second.tokens, first.n_tokens * sizeof(weir_token));
    weir_session_destroy(session);
}

static void session__pages_never_exceed_the_budget(void **state) {
    const fixture *f = *state;
    static const char *const policies[] = {"sink", "raas", "reason-fixed", "h2o-fixed", "tova-fixed", "stream"};
    for (size_t p = 0; p < sizeof(policies) / sizeof(policies[0]); ++p) {
        static collected out;
        weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
        weir_session_stats stats = WEIR_SESSION_STATS_INIT;
        weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
        weir_session *session = NULL;
        if (p < 2) {
            session = new_session(f, policies[p], 160);
        } else {
            weir_session_options preset = WEIR_SESSION_OPTIONS_INIT;
            preset.budget_tokens = 160;
            assert_ok(weir_session_options_preset(policies[p], &preset));
            assert_int_equal(preset.budget_tokens, 160);
            assert_ok(weir_session_create(f->model, &preset, &session));
        }
        prefill_text(f->model, session, RULE_PROMPT);
        options.flags = WEIR_GENERATE_IGNORE_EOS;
        options.max_tokens = N_LONG;
        options.on_token = collect;
        options.user = &out;
        memset(&out, 0, sizeof(out));
        assert_ok(weir_session_generate(session, &options, NULL));
        assert_ok(weir_session_get_stats(session, &stats));
        assert_ok(weir_session_memory(session, &memory));
        assert_int_equal(stats.pages_resident_max, 16 * 10); /* 16 streams of 10 pages */
        assert_true(stats.pages_evicted > 0);
        assert_int_equal(stats.pages_dropped, stats.pages_evicted);
        assert_true(memory.kv_peak_bytes <= memory.kv_budget_bytes);
        assert_int_equal(memory.peak_bytes, memory.plan_bytes);
        assert_int_equal(memory.allocs_while_decoding, 0);
        weir_session_destroy(session);
    }
}

static void session__stream_policy_outlives_its_context(void **state) {
    const fixture *f = *state;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_generate_options more = WEIR_GENERATE_OPTIONS_INIT;
    weir_session *session = NULL;
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    weir_token *tokens = malloc(3000 * sizeof(*tokens));
    options.policy = "sink";
    options.budget_tokens = 128;
    assert_ok(weir_session_create(f->model, &options, &session));
    for (int i = 0; i < 3000; ++i) tokens[i] = 100 + i % (LONG_RUN_VOCAB - 100);
    assert_ok(weir_session_prefill(session, tokens, 3000, NULL, NULL)); /* far beyond the budget */
    more.flags = WEIR_GENERATE_IGNORE_EOS;
    more.max_tokens = 50;
    assert_ok(weir_session_generate(session, &more, NULL));
    assert_ok(weir_session_get_stats(session, &stats));
    assert_int_equal(stats.n_tokens, 3050);
    assert_true(stats.pages_resident_max <= 16 * 8);
    free(tokens);
    weir_session_destroy(session);
}

static void session__context_full(void **state) {
    const fixture *f = *state;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_generate_options more = WEIR_GENERATE_OPTIONS_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    weir_session *session = NULL;
    weir_token tokens[41] = {0};
    options.context_tokens = 40;
    assert_ok(weir_session_create(f->model, &options, &session));
    assert_error(weir_session_prefill(session, tokens, 41, NULL, NULL), WEIR_ERR_CONTEXT_FULL,
                 "40 of 40 positions are free");
    assert_ok(weir_session_prefill(session, tokens, 30, NULL, NULL));
    assert_error(weir_session_prefill(session, tokens, 11, NULL, NULL), WEIR_ERR_CONTEXT_FULL,
                 "10 of 40 positions are free");
    more.flags = WEIR_GENERATE_IGNORE_EOS;
    assert_ok(weir_session_generate(session, &more, &result));
    assert_int_equal(result.stop, WEIR_STOP_CONTEXT);
    assert_int_equal(result.n_tokens, 10);
    assert_error(weir_session_step(session, 3), WEIR_ERR_CONTEXT_FULL, "40 positions");
    weir_session_destroy(session);
}

static void session__bad_arguments_change_nothing(void **state) {
    const fixture *f = *state;
    weir_session *session = new_session(f, NULL, 0);
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    const float *logits = NULL;
    weir_token token, tokens[3] = {1, 2, 1664};
    assert_error(weir_session_logits(session, &logits, NULL), WEIR_ERR_STATE, "no logits");
    assert_error(weir_session_sample(session, &token), WEIR_ERR_STATE, "no logits");
    assert_error(weir_session_generate(session, NULL, NULL), WEIR_ERR_STATE, "no logits");
    assert_error(weir_session_prefill(session, tokens, 3, NULL, NULL), WEIR_ERR_INVALID_ARG,
                 "token 1664 is not in 0..1663");
    assert_error(weir_session_prefill(session, tokens, 0, NULL, NULL), WEIR_ERR_INVALID_ARG, "n_tokens is 0");
    assert_error(weir_session_step(session, -1), WEIR_ERR_INVALID_ARG, "token -1");
    options.flags = 1u << 30;
    assert_error(weir_session_generate(session, &options, NULL), WEIR_ERR_INVALID_ARG, "flags");
    sampling.temperature = -1;
    assert_error(weir_session_set_sampling(session, &sampling), WEIR_ERR_INVALID_ARG, "temperature");
    sampling.temperature = 1;
    sampling.top_p = 1.5f;
    assert_error(weir_session_set_sampling(session, &sampling), WEIR_ERR_INVALID_ARG, "top_p");
    sampling.top_p = 0;
    sampling.repeat_last_n = 5000;
    assert_error(weir_session_set_sampling(session, &sampling), WEIR_ERR_INVALID_ARG, "repeat_last_n");
    assert_ok(weir_session_get_stats(session, &stats));
    assert_int_equal(stats.n_tokens, 0);
    assert_int_equal(stats.pages_resident, 0);
    weir_session_destroy(session);
}

static void expect_refusal(const fixture *f, const weir_session_options *options, weir_status status,
                           const char *text) {
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    weir_memory_counters before = WEIR_MEMORY_COUNTERS_INIT, after = WEIR_MEMORY_COUNTERS_INIT;
    weir_session *session = (weir_session *)&plan;
    assert_ok(weir_runtime_memory(f->runtime, &before));
    assert_error(weir_plan(f->model, options, &plan), status, text);
    assert_error(weir_session_create(f->model, options, &session), status, text);
    assert_null(session);
    assert_ok(weir_runtime_memory(f->runtime, &after));
    assert_int_equal(before.bytes, after.bytes);
}

static void session__bad_options(void **state) {
    const fixture *f = *state;
    weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
    weir_key_value option = {"top_q", "1"};
    o.policy = "nosuch";
    expect_refusal(f, &o, WEIR_ERR_NOT_FOUND, every_policy_text);
    o.policy = "raas";
    o.policy_options = &option;
    o.n_policy_options = 1;
    expect_refusal(f, &o, WEIR_ERR_NOT_FOUND, "has no option \"top_q\"; it has: stamp_rule r alpha");
    option.key = "r";
    option.value = "1.5";
    expect_refusal(f, &o, WEIR_ERR_INVALID_ARG, "r=1.5 is not a number from 0 to 1");
    option.value = "0.5x";
    expect_refusal(f, &o, WEIR_ERR_INVALID_ARG, "r=0.5x");
    option.key = "overflow";
    option.value = "hybrid";
    expect_refusal(f, &o, WEIR_ERR_INVALID_ARG, "max_prompt_tokens must say");
    option.value = "sometimes";
    expect_refusal(f, &o, WEIR_ERR_INVALID_ARG, "is none of: auto error extend compress hybrid");
    o.policy_options = NULL;
    expect_refusal(f, &o, WEIR_ERR_INVALID_ARG, "policy_options is NULL");
    o.n_policy_options = 0;
    o.budget_tokens = 31;
    expect_refusal(f, &o, WEIR_ERR_BUDGET, "below two pages, 32 tokens");
    o.budget_tokens = 32;
    expect_refusal(f, &o, WEIR_ERR_BUDGET, "at least 80 tokens");
    o.policy = "sink";
    expect_refusal(f, &o, WEIR_ERR_BUDGET, "at least 48 tokens");
    o.budget_bytes = 1;
    expect_refusal(f, &o, WEIR_ERR_INVALID_ARG, "both set");
    o.budget_tokens = 0;
    expect_refusal(f, &o, WEIR_ERR_BUDGET, "131072 bytes");
    o.budget_bytes = 0;
    o.device = WEIR_DEVICE_CUDA; /* tests/device has the machines with a GPU */
    o.budget_tokens = 256;
    o.spill_budget_bytes = 1 << 20;
    expect_refusal(f, &o, WEIR_ERR_UNSUPPORTED, "device cuda: spill_budget_bytes");
    o.device = WEIR_DEVICE_VULKAN;
    expect_refusal(f, &o, WEIR_ERR_UNSUPPORTED, "device vulkan: spill_budget_bytes");
    o.budget_tokens = 0;
    o.spill_budget_bytes = 0;
    o.device = 77;
    expect_refusal(f, &o, WEIR_ERR_INVALID_ARG, "device");
    o.device = 0;
    o.spill_budget_bytes = 1;
    o.policy = "quest";
    expect_refusal(f, &o, WEIR_ERR_INVALID_ARG, "spill_budget_bytes is set, but policy quest lets no pages go");
    o.policy = "arkvale";
    o.context_tokens = 4096;
    o.budget_tokens = 256;
    expect_refusal(f, &o, WEIR_ERR_BUDGET, "spill_budget_bytes 1 are too few for one page of each of 16 streams");
    o.policy = "sink";
    o.context_tokens = o.budget_tokens = 0;
    o.spill_budget_bytes = 0;
    o.page_tokens = 32;
    expect_refusal(f, &o, WEIR_ERR_UNSUPPORTED, "page_tokens");
    o.page_tokens = 0;
    o.batch_tokens = 5000;
    expect_refusal(f, &o, WEIR_ERR_INVALID_ARG, "batch_tokens");
    o.batch_tokens = 0;
    o.flags = 4;
    expect_refusal(f, &o, WEIR_ERR_UNSUPPORTED, "flags");
}

static void session__prompt_longer_than_the_policy_holds(void **state) {
    const fixture *f = *state;
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_key_value extend = {"overflow", "extend"};
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    weir_token tokens[300] = {0};
    weir_key_value refuse = {"overflow", "error"};
    weir_session *session;
    options.policy = "raas";
    options.budget_tokens = 256;
    options.policy_options = &refuse;
    options.n_policy_options = 1;
    assert_ok(weir_session_create(f->model, &options, &session));
    assert_error(weir_session_prefill(session, tokens, 300, NULL, NULL), WEIR_ERR_BUDGET, "192 would");
    assert_ok(weir_session_get_stats(session, &stats));
    assert_int_equal(stats.n_tokens, 0);
    assert_ok(weir_session_prefill(session, tokens, 192, NULL, NULL));
    weir_session_destroy(session);

    options.policy = "raas";
    options.budget_tokens = 256;
    options.policy_options = &extend;
    options.n_policy_options = 1;
    options.max_prompt_tokens = 300;
    assert_ok(weir_plan(f->model, &options, &plan));
    assert_int_equal(plan.pages_per_stream, 19 + 4); /* ceil(300 / 16) pinned and min_decode_pages */
    assert_ok(weir_session_create(f->model, &options, &session));
    assert_ok(weir_session_prefill(session, tokens, 300, NULL, NULL));
    for (int i = 0; i < 200; ++i) assert_ok(weir_session_step(session, 1));
    assert_ok(weir_session_get_stats(session, &stats));
    assert_int_equal(stats.pages_resident_max, 16 * 23);
    assert_error(weir_session_prefill(session, tokens, 100, NULL, NULL), WEIR_ERR_BUDGET, "max_prompt_tokens");
    weir_session_destroy(session);
}

/* The number that a refusal names is right: that many tokens are admitted, one more is not. */
static void session__refusal_says_how_many_tokens_fit(void **state) {
    const fixture *f = *state;
    static const weir_token tokens[400];
    for (uint32_t n_first = 16; n_first <= 40; n_first += 8) {
        for (uint32_t n_steps = 0; n_steps <= 20; n_steps += 5) {
            weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
            weir_key_value refuse = {"overflow", "error"};
            weir_session *session = NULL;
            unsigned fits = 0;
            const char *at;
            options.policy = "raas";
            options.budget_tokens = 112;
            options.policy_options = &refuse;
            options.n_policy_options = 1;
            assert_ok(weir_session_create(f->model, &options, &session));
            for (int round = 0; round < 2; ++round) {
                assert_ok(weir_session_reset(session));
                assert_ok(weir_session_prefill(session, tokens, n_first, NULL, NULL));
                for (uint32_t i = 0; i < n_steps; ++i) assert_ok(weir_session_step(session, 3));
                if (round == 0) {
                    assert_int_equal(weir_session_prefill(session, tokens, 400, NULL, NULL), WEIR_ERR_BUDGET);
                    at = strstr(weir_last_error(), "for decoding, ");
                    assert_non_null(at);
                    assert_int_equal(sscanf(at, "for decoding, %u would", &fits), 1);
                } else {
                    assert_error(weir_session_prefill(session, tokens, fits + 1, NULL, NULL), WEIR_ERR_BUDGET, "would");
                    if (fits > 0) assert_ok(weir_session_prefill(session, tokens, fits, NULL, NULL));
                }
            }
            weir_session_destroy(session);
        }
    }
}

/* Generating the whole text in slices of one token gives the same bytes as one call. */
static void session__sliced_generation_gives_the_same_text(void **state) {
    const fixture *f = *state;
    static collected whole, sliced;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_session *session = new_session(f, NULL, 0);
    prefill_text(f->model, session, RULE_PROMPT);
    generate(session, &whole, 60, WEIR_STOP_LENGTH);
    assert_ok(weir_session_reset(session));
    prefill_text(f->model, session, RULE_PROMPT);
    memset(&sliced, 0, sizeof(sliced));
    options.flags = WEIR_GENERATE_SPECIAL_TEXT;
    options.max_tokens = 1;
    options.on_token = collect;
    options.user = &sliced;
    for (int i = 0; i < 60; ++i) assert_ok(weir_session_generate(session, &options, NULL));
    assert_string_equal(sliced.text, whole.text);
    weir_session_destroy(session);
}

static weir_status step_inside(void *user, const weir_token_event *event) {
    weir_session *session = user;
    (void)event;
    assert_error(weir_session_step(session, 1), WEIR_ERR_BUSY, "inside this session");
    assert_error(weir_session_reset(session), WEIR_ERR_BUSY, "inside this session");
    return WEIR_OK;
}

static void session__second_entry_is_busy(void **state) {
    const fixture *f = *state;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_session *session = new_session(f, NULL, 0);
    prefill_text(f->model, session, RULE_PROMPT);
    options.max_tokens = 2;
    options.on_token = step_inside;
    options.user = session;
    assert_ok(weir_session_generate(session, &options, NULL));
    weir_session_destroy(session);
}

static void session__sampling_is_deterministic_by_seed(void **state) {
    const fixture *f = *state;
    static collected a, b, c;
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    weir_session *session = new_session(f, NULL, 0);
    collected *outs[] = {&a, &b, &c};
    const uint64_t seeds[] = {7, 7, 8};
    sampling.temperature = 3.0f;
    sampling.top_k = 200;
    sampling.top_p = 0.95f;
    sampling.min_p = 0.001f;
    sampling.repeat_penalty = 1.1f;
    for (int i = 0; i < 3; ++i) {
        weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
        sampling.seed = seeds[i];
        assert_ok(weir_session_reset(session));
        assert_ok(weir_session_set_sampling(session, &sampling));
        prefill_text(f->model, session, RULE_PROMPT);
        memset(outs[i], 0, sizeof(*outs[i]));
        options.flags = WEIR_GENERATE_IGNORE_EOS;
        options.max_tokens = 40;
        options.on_token = collect;
        options.user = outs[i];
        assert_ok(weir_session_generate(session, &options, NULL));
    }
    assert_memory_equal(a.tokens, b.tokens, 40 * sizeof(weir_token));
    assert_memory_not_equal(a.tokens, c.tokens, 40 * sizeof(weir_token));
    weir_session_destroy(session);
}

/* The random state starts anew, and the repetition penalty forgets the tokens of the old conversation. */
static void session__reset_restarts_the_sampler(void **state) {
    const fixture *f = *state;
    static collected first, second;
    weir_session *session = new_session(f, NULL, 0);
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    collected *const outs[] = {&first, &second};
    sampling.temperature = 3.0f;
    sampling.repeat_penalty = 1.5f;
    sampling.seed = 3;
    assert_ok(weir_session_set_sampling(session, &sampling));
    for (int i = 0; i < 2; ++i) {
        weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
        memset(outs[i], 0, sizeof(*outs[i]));
        prefill_text(f->model, session, RULE_PROMPT);
        options.flags = WEIR_GENERATE_IGNORE_EOS;
        options.max_tokens = 60;
        options.on_token = collect;
        options.user = outs[i];
        assert_ok(weir_session_generate(session, &options, NULL));
        assert_ok(weir_session_reset(session));
    }
    assert_memory_equal(first.tokens, second.tokens, 60 * sizeof(weir_token));
    weir_session_destroy(session);
}

static weir_status count_progress(void *user, const weir_progress_info *info) {
    (void)info;
    ++*(int *)user;
    return WEIR_OK;
}

/* A chunk fills the open page and as many more as can make room: here 10 tokens and one page of 16, in one go. */
static void session__chunks_fill_the_open_page(void **state) {
    const fixture *f = *state;
    weir_token prompt[160];
    weir_session *session = new_session(f, "tova", 160);
    int n_calls = 0;
    for (int i = 0; i < 160; ++i) prompt[i] = 7 + i * 3 % 900;
    assert_ok(weir_session_prefill(session, prompt, 134, NULL, NULL));
    assert_ok(weir_session_pin(session, 0, 128)); /* 8 of 10 pages; the open one has 6 tokens */
    assert_ok(weir_session_prefill(session, prompt + 134, 26, count_progress, &n_calls));
    assert_int_equal(n_calls, 1);
    weir_session_destroy(session);
}

int main(void) {
    const struct CMUnitTest any_weights[] = {
        cmocka_unit_test(session__full_budget_equals_dense),
        cmocka_unit_test(session__stream_policy_outlives_its_context),
        cmocka_unit_test(session__refusal_says_how_many_tokens_fit),
        cmocka_unit_test(session__sampling_is_deterministic_by_seed),
        cmocka_unit_test(session__reset_restarts_the_sampler),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(session__solves_a_problem),
        cmocka_unit_test(session__reset_gives_the_same_answer),
        cmocka_unit_test(session__pages_never_exceed_the_budget),
        cmocka_unit_test(session__context_full),
        cmocka_unit_test(session__bad_arguments_change_nothing),
        cmocka_unit_test(session__bad_options),
        cmocka_unit_test(session__prompt_longer_than_the_policy_holds),
        cmocka_unit_test(session__sliced_generation_gives_the_same_text),
        cmocka_unit_test(session__second_entry_is_busy),
        cmocka_unit_test(session__chunks_fill_the_open_page),
    };
    return cmocka_run_group_tests_name("api_session", tests, open_fixture, close_fixture) +
           cmocka_run_group_tests_name("api_session_any_weights", any_weights, open_long_run_fixture, close_fixture);
}
