/* device: a session on the GPU by itself: a budget that holds everything equals dense bit for bit; greedy tokens,
 * cancels, resets, refusals. */
#include "device_test.h"
#include "../policy/every_policy.h"

#define N_LOGITS 1664
#define N_STEPS 96

static weir_session *new_session(const fixture *f, const weir_session_options *options) {
    weir_session *session = NULL;
    assert_ok(weir_session_create(f->model, options, &session));
    return session;
}

static const float *logits_of(weir_session *session) {
    const float *logits = NULL;
    uint32_t n = 0;
    assert_ok(weir_session_logits(session, &logits, &n));
    assert_int_equal(n, N_LOGITS);
    return logits;
}

/* Every policy, with a budget for the whole context, gives the logits of dense bit for bit. */
static void session__full_budget_equals_dense(void **state) {
    static const variant rows[] = {
        {"sink", {{"positions", "incache"}}, 1}, {"sink", {{"positions", "abs"}}, 1},
        {"sink", {{"exact_mask", "true"}}, 1}, {"raas", {{"stamp_source", "exact_mass"}}, 1},
        {"raas", {{"stamp_source", "digest"}}, 1}, {"raas", {{"stamp_rule", "top_r"}}, 1},
        {"raas", {{"prompt", "snapkv"}}, 1}, {"h2o", {{"score", "sum"}}, 1},
        {"h2o", {{"score", "norm_sum"}}, 1}, {"h2o", {{"skip_layers", "0"}}, 1},
        {"h2o", {{"init", "window"}}, 1}, {"tova", {{"scope", "layer"}}, 1},
        {"tova", {{"scope", "stream"}}, 1}, {"quest", {{"digest", "minmax"}}, 1},
        {"quest", {{"digest", "cuboid_mean"}}, 1}, {"quest", {{"digest", "sphere_mean"}}, 1},
        {"quest", {{"digest", "centroid"}}, 1}, {"quest", {{"digest", "mean_std"}}, 1},
        {"quest", {{"digest", "sketch"}}, 1}, {"arkvale", {{"digest", "minmax"}}, 1},
        {"quest", {{"agg", "qhead"}}, 1}, {"quest", {{"skip_layers", "0"}}, 1},
        {"quest", {{"prompt", "snapkv"}}, 1}, {"hybrid", {{"rho", "0.5"}}, 1},
        {"hybrid", {{"stamp_source", "digest"}}, 1}, {"random", {{"seed", "2"}}, 1},
        {"keyformer", {{"skip_layers", "0"}}, 1}, {"scissorhands", {{"skip_layers", "0"}}, 1},
        {"dense", {{"prompt", "snapkv"}}, 1},
        {"raas", {{"recall", "on"}}, 1}, {"hybrid", {{"recall", "on"}}, 1},
        {"arkvale", {{"recall_pages", "0"}}, 1}, {"arkvale", {{"attend", "top"}}, 1},
        {"psa", {{"eps", "1"}}, 1}};
    static const variant plain = {"dense", {{0, 0}}, 0};
    static float want[N_STEPS][N_LOGITS];
    weir_session_options options = options_of(&plain, test_device(), 0, 1024);
    weir_session *dense;
    weir_token tokens[N_STEPS];
    fixture f;
    int n_bad = 0;
    (void)state;
    ASSERT_EVERY_POLICY_EXCEPT("lfps", rows, policy); /* it has no kernel */
    NEED_GPU();
    open_gpu_fixture(&f);
    dense = new_session(&f, &options);
    prefill_text(f.model, dense, RULE_PROMPT);
    for (int i = 0; i < N_STEPS; ++i) {
        memcpy(want[i], logits_of(dense), sizeof(want[i]));
        assert_ok(weir_session_sample(dense, &tokens[i]));
        assert_ok(weir_session_step(dense, tokens[i]));
    }
    weir_session_destroy(dense);
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); ++r) {
        weir_session *session;
        int i = 0;
        options = options_of(&rows[r], test_device(), 1024, 1024);
        session = new_session(&f, &options);
        prefill_text(f.model, session, RULE_PROMPT);
        while (i < N_STEPS && memcmp(logits_of(session), want[i], sizeof(want[i])) == 0)
            assert_ok(weir_session_step(session, tokens[i++]));
        if (i < N_STEPS) {
            print_message("%s: not the logits of dense after %d steps, they are %.3g apart\n", describe(&rows[r]), i,
                          logits_apart(logits_of(session), want[i], N_LOGITS));
            ++n_bad;
        }
        weir_session_destroy(session);
    }
    close_gpu_fixture(&f);
    assert_int_equal(n_bad, 0);
}

/* The same when every token is a decode step. */
static void session__full_budget_equals_dense_by_steps(void **state) {
    static const variant rows[] = {
        {"dense", {{0, 0}}, 0},
        {"sink", {{"positions", "incache"}}, 1},
        {"sink", {{"positions", "abs"}}, 1},
        {"sink", {{"exact_mask", "true"}}, 1},
        {"raas", {{0, 0}}, 0},
        {"raas", {{"stamp_source", "digest"}}, 1},
        {"h2o", {{"skip_layers", "0"}}, 1},
        {"tova", {{"scope", "stream"}}, 1},
        {"quest", {{"skip_layers", "0"}}, 1},
        {"hybrid", {{"skip_layers", "0"}}, 1},
        {"random", {{0, 0}}, 0},
        {"keyformer", {{"skip_layers", "0"}}, 1},
        {"scissorhands", {{"skip_layers", "0"}}, 1},
        {"arkvale", {{0, 0}}, 0},
        {"arkvale", {{"attend", "top"}}, 1},
        {"psa", {{"eps", "1"}}, 1},
    };
    static float want[N_STEPS][N_LOGITS];
    fixture f;
    int n_bad = 0;
    (void)state;
    ASSERT_EVERY_POLICY_EXCEPT("lfps", rows, policy); /* it has no kernel */
    NEED_GPU();
    open_gpu_fixture(&f);
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); ++r) {
        const weir_session_options options = options_of(&rows[r], test_device(), r == 0 ? 0 : 512, 512);
        weir_session *session = new_session(&f, &options);
        const weir_token first = 5;
        assert_ok(weir_session_prefill(session, &first, 1, NULL, NULL));
        for (int i = 0; i < N_STEPS; ++i) {
            assert_ok(weir_session_step(session, 20 + i * 13 % 700));
            if (r == 0) memcpy(want[i], logits_of(session), sizeof(want[i]));
            if (memcmp(logits_of(session), want[i], sizeof(want[i])) == 0) continue;
            print_message("%s: not the logits of dense after %d steps, they are %.3g apart\n", describe(&rows[r]),
                          i + 1, logits_apart(logits_of(session), want[i], N_LOGITS));
            ++n_bad;
            break;
        }
        weir_session_destroy(session);
    }
    close_gpu_fixture(&f);
    assert_int_equal(n_bad, 0);
}

/* WEIR_DEVICE_AUTO takes the device that it must. */
static void assert_auto(const fixture *f, weir_session_options options) {
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    options.device = WEIR_DEVICE_AUTO;
    assert_ok(weir_plan(f->model, &options, &plan));
    assert_int_equal(plan.device, auto_device(f, options));
}

/* A session that recalls pages runs on the device, if it is not too large for that; where the library chooses the
 * device a larger one takes another. A budget for the whole context needs no store. */
static void session__recall(void **state) {
    static const variant arkvale = {"arkvale", {{0, 0}}, 0};
    /* CUDA keeps the table of a pool in shared memory; Vulkan has a limit of the whole context. */
    const int is_vulkan = test_device() == WEIR_DEVICE_VULKAN;
    const uint32_t large = is_vulkan ? 256 : 140000, context = is_vulkan ? 1048577 : 200000;
    const char *limit = is_vulkan ? "recall over 1048592 tokens; 1048576 are the most" : "bytes of shared memory";
    weir_session_options options = options_of(&arkvale, test_device(), 256, 2048);
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    weir_session *session = NULL;
    fixture f;
    (void)state;
    NEED_GPU();
    open_gpu_fixture(&f);
    assert_ok(weir_plan(f.model, &options, &plan));
    assert_int_equal(plan.device, test_device());
    assert_true(plan.spill_bytes > 0);
    assert_auto(&f, options);
    options = options_of(&arkvale, test_device(), large, context);
    assert_error(weir_plan(f.model, &options, &plan), WEIR_ERR_UNSUPPORTED, limit);
    assert_error(weir_session_create(f.model, &options, &session), WEIR_ERR_UNSUPPORTED, limit);
    assert_null(session);
    assert_int_not_equal(auto_device(&f, options), test_device());
    assert_auto(&f, options);
    if (is_vulkan) { /* the largest */
        options.context_tokens = context - 1;
        assert_ok(weir_plan(f.model, &options, &plan));
        assert_int_equal(plan.device, test_device());
    }
    options = options_of(&arkvale, test_device(), 1024, 1024);
    assert_ok(weir_plan(f.model, &options, &plan));
    assert_int_equal(plan.device, test_device());
    assert_int_equal(plan.spill_bytes, 0);
    close_gpu_fixture(&f);
}

/* The device's greedy token is the argmax of its logits. With a temperature the host samples. */
static void session__greedy_is_the_largest_logit(void **state) {
    static const variant raas = {"raas", {{0, 0}}, 0};
    const weir_session_options options = options_of(&raas, test_device(), 128, 2048);
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    weir_session *session;
    fixture f;
    (void)state;
    NEED_GPU();
    open_gpu_fixture(&f);
    session = new_session(&f, &options);
    prefill_text(f.model, session, RULE_PROMPT);
    for (int i = 0; i < 300; ++i) {
        weir_token token = -1;
        float gap;
        assert_ok(weir_session_sample(session, &token));
        assert_int_equal(token, best_of(logits_of(session), N_LOGITS, &gap));
        assert_ok(weir_session_step(session, token));
    }
    sampling.temperature = 100;
    sampling.seed = 3;
    assert_ok(weir_session_set_sampling(session, &sampling));
    {
        int n_others = 0;
        for (int i = 0; i < 50; ++i) {
            weir_token token = -1;
            float gap;
            assert_ok(weir_session_sample(session, &token));
            n_others += token != best_of(logits_of(session), N_LOGITS, &gap);
            assert_ok(weir_session_step(session, token));
        }
        assert_true(n_others > 25);
    }
    weir_session_destroy(session);
    close_gpu_fixture(&f);
}

static weir_status stop_later(void *user, const weir_progress_info *info) {
    (void)info;
    return --*(int *)user < 0 ? WEIR_ERR_CANCELLED : WEIR_OK;
}

/* A prefill that is stopped by its callback leaves a session as it was, also in the middle of a page. */
static void session__cancelled_prefill_changes_nothing(void **state) {
    static const variant rows[] = {{"dense", {{0, 0}}, 0},
                                   {"raas", {{0, 0}}, 0},
                                   {"raas", {{"stamp_source", "digest"}}, 1},
                                   {"quest", {{"skip_layers", "0"}}, 1},
                                   {"quest", {{"skip_layers", "0"}, {"digest", "centroid"}}, 2},
                                   {"hybrid", {{"skip_layers", "0"}}, 1}};
    weir_token tokens[256];
    fixture f;
    (void)state;
    NEED_GPU();
    for (int i = 0; i < 256; ++i) tokens[i] = 20 + i * 7 % 600;
    open_gpu_fixture(&f);
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); ++r) {
        weir_session_options options = options_of(&rows[r], test_device(), 512, 1024);
        weir_session *one, *other;
        int n_calls = 2;
        options.batch_tokens = 32;
        one = new_session(&f, &options);
        other = new_session(&f, &options);
        for (int i = 0; i < 2; ++i) {
            weir_session *s = i == 0 ? one : other;
            assert_ok(weir_session_prefill(s, tokens, 75, NULL, NULL));
            for (int step = 0; step < 10; ++step) assert_ok(weir_session_step(s, tokens[step]));
        }
        assert_error(weir_session_prefill(one, tokens + 100, 150, stop_later, &n_calls), WEIR_ERR_CANCELLED,
                     "cancelled");
        for (int i = 0; i < 40; ++i) {
            assert_memory_equal(logits_of(one), logits_of(other), N_LOGITS * sizeof(float));
            assert_ok(weir_session_step(one, tokens[i]));
            assert_ok(weir_session_step(other, tokens[i]));
        }
        assert_ok(weir_session_prefill(one, tokens, 90, NULL, NULL));
        assert_ok(weir_session_prefill(other, tokens, 90, NULL, NULL));
        assert_memory_equal(logits_of(one), logits_of(other), N_LOGITS * sizeof(float));
        weir_session_destroy(one);
        weir_session_destroy(other);
    }
    close_gpu_fixture(&f);
}

static void session__reset_gives_the_same_logits(void **state) {
    static const variant rows[] = {{"raas", {{0, 0}}, 0}, {"h2o", {{"skip_layers", "0"}}, 1}, {"quest", {{0, 0}}, 0}};
    fixture f;
    (void)state;
    NEED_GPU();
    open_gpu_fixture(&f);
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); ++r) {
        static float first[N_LOGITS];
        const weir_session_options options = options_of(&rows[r], test_device(), 128, 1024);
        weir_session *session = new_session(&f, &options);
        for (int round = 0; round < 3; ++round) {
            prefill_text(f.model, session, RULE_PROMPT);
            for (int i = 0; i < 200; ++i) assert_ok(weir_session_step(session, 30 + i * 11 % 700));
            if (round == 0) memcpy(first, logits_of(session), sizeof(first));
            assert_memory_equal(logits_of(session), first, sizeof(first));
            assert_ok(weir_session_reset(session));
        }
        weir_session_destroy(session);
    }
    close_gpu_fixture(&f);
}

/* What the GPU cannot do is refused with a message. */
static void session__refusals(void **state) {
    static const variant dense = {"dense", {{0, 0}}, 0};
    weir_session_options options = options_of(&dense, test_device(), 0, 1024);
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    char text[64];
    fixture f, narrow;
    (void)state;
    NEED_GPU();
    open_gpu_fixture(&f);
    options.spill_budget_bytes = 1 << 20;
    options.budget_tokens = 256;
    options.policy = "sink";
    snprintf(text, sizeof(text), "device %.16s: spill_budget_bytes", device_name());
    assert_error(weir_plan(f.model, &options, &plan), WEIR_ERR_UNSUPPORTED, text);
    options.device = WEIR_DEVICE_AUTO;
    assert_ok(weir_plan(f.model, &options, &plan));
    assert_int_equal(plan.device, WEIR_DEVICE_CPU);
    options.spill_budget_bytes = 0;
    options.budget_tokens = 0;
    options.policy = "dense";
    assert_auto(&f, options);
    narrow = f;
    assert_ok(weir_model_open(f.runtime, WEIR_SOURCE_DIR "/tests/golden/models/llama_hd80.gguf", NULL, &narrow.model));
    options.context_tokens = 64;
    assert_int_not_equal(auto_device(&narrow, options), test_device());
    assert_auto(&narrow, options);
    options.device = test_device();
    assert_error(weir_plan(narrow.model, &options, &plan), WEIR_ERR_UNSUPPORTED,
                 test_device() == WEIR_DEVICE_CUDA ? "device cuda: CUDA: sizes 48 and "
                                                   : "a matrix of 48 columns: this device needs a multiple of 32");
    weir_model_close(narrow.model);
    close_gpu_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(session__full_budget_equals_dense),
        cmocka_unit_test(session__full_budget_equals_dense_by_steps),
        cmocka_unit_test(session__recall),
        cmocka_unit_test(session__greedy_is_the_largest_logit),
        cmocka_unit_test(session__cancelled_prefill_changes_nothing),
        cmocka_unit_test(session__reset_gives_the_same_logits),
        cmocka_unit_test(session__refusals),
    };
    return cmocka_run_group_tests_name("device/session", tests, NULL, NULL);
}
