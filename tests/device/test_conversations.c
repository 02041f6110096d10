/* device: random conversations under every policy, on the CPU and on the GPU side by side: several turns, pins,
 * cancels. Every call ends with the same status on both and keeps the same number of pages. For policies without scores
 * the logits are equal except for rounding. */
#include "device_test.h"
#include "../policy/every_policy.h"

/* Largest difference of logits in units of their root mean square, for random prompts: the GPU's prefill multiplies in
 * f16. Measured: 0.026. */
#define MAX_APART 0.05
/* The same for pages that leave at random, and with them what the model has come to rely on, which makes it sensitive
 * to rounding. Measured: 0.142. Two CPU sessions, one with these weights in Q8_0 and one with the same numbers in F32,
 * are up to 0.088 apart in 40 such conversations (0.033 if the first page is pinned), and up to 0.092 in 40 dense ones.
 */
#define MAX_APART_AT_RANDOM 0.2
/* The same for real prompts, where attention picks single tokens and single logits may move far: the mean and the
 * largest. Measured: 0.0037 and 0.24 for dense, 0.0075 and 0.61 for sink. */
#define MAX_MEAN_APART 0.02
#define MAX_REAL_APART 0.5

static uint32_t random_state;

static uint32_t draw(uint32_t below) {
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

typedef struct choice {
    variant v;
    double apart; /* limit of the logits' distance, for policies without scores; 0: near ties may change pages */
} choice;

static const choice choices[] = {
    {{"dense", {{0, 0}}, 0}, MAX_APART},
    {{"sink", {{0, 0}}, 0}, MAX_APART},
    {{"sink", {{"positions", "abs"}}, 1}, MAX_APART},
    {{"sink", {{"positions", "abs"}, {"prompt", "snapkv"}, {"prompt_budget", "64"}}, 3}, 0},
    {{"h2o", {{"skip_layers", "0"}}, 1}, 0},
    {{"h2o", {{"skip_layers", "1"}, {"score", "norm_sum"}, {"init", "window"}}, 3}, 0},
    {{"h2o", {{"init", "zero"}, {"recent", "96"}}, 2}, 0},
    {{"tova", {{"skip_layers", "0"}}, 1}, 0},
    {{"tova", {{"scope", "stream"}, {"prompt", "snapkv"}}, 2}, 0},
    {{"tova", {{"skip_layers", "0"}, {"decide", "token"}}, 2}, 0},
    {{"quest", {{"skip_layers", "0"}}, 1}, 0},
    {{"quest", {{"skip_layers", "0"}, {"agg", "qhead"}, {"digest", "mean_std"}}, 3}, 0},
    {{"quest", {{"skip_layers", "1"}, {"agg", "max_z"}, {"prompt", "snapkv"}}, 3}, 0},
    {{"quest", {{"skip_layers", "0"}, {"digest", "minmax"}}, 2}, 0},
    {{"raas", {{0, 0}}, 0}, 0},
    {{"raas", {{"r", "0.5"}, {"protect_recent", "0"}}, 2}, 0},
    {{"raas", {{"pin_prompt", "false"}, {"digest", "cuboid_mean"}}, 2}, 0},
    {{"raas", {{"overflow", "hybrid"}}, 1}, 0},
    {{"raas", {{"overflow", "extend"}}, 1}, 0},
    {{"raas", {{"min_decode_pages", "2"}, {"prompt_window", "16"}, {"prompt", "snapkv"}}, 3}, 0},
    {{"hybrid", {{"skip_layers", "0"}}, 1}, 0},
    {{"hybrid", {{"skip_layers", "0"}, {"prompt", "snapkv"}}, 2}, 0},
    {{"psa", {{"skip_layers", "0"}, {"mb", "2"}}, 2}, 0},
    {{"psa", {{"skip_layers", "1"}, {"eps", "0.9"}, {"prompt", "snapkv"}}, 3}, 0},
    {{"random", {{0, 0}}, 0}, MAX_APART_AT_RANDOM},
    {{"random", {{"pin_prompt", "false"}, {"seed", "3"}}, 2}, MAX_APART_AT_RANDOM},
    {{"keyformer", {{"skip_layers", "0"}}, 1}, 0},
    {{"scissorhands", {{"skip_layers", "0"}}, 1}, 0},
};

static weir_status stop_later(void *user, const weir_progress_info *info) {
    (void)info;
    return --*(int *)user < 0 ? WEIR_ERR_CANCELLED : WEIR_OK;
}

static void assert_alike(const weir_status *status, const choice *c, const char *call) {
    if (status[0] == status[1]) return;
    fail_msg("%s under %s: %s on the CPU, %s on the GPU: %s", call, describe(&c->v), weir_status_name(status[0]),
             weir_status_name(status[1]), weir_last_error());
}

/* Makes the same call on the CPU's session, then on the GPU's. */
#define ON_BOTH(name, call)                               \
    do {                                                  \
        weir_status status_[2];                           \
        for (int i_ = 0; i_ < 2; ++i_) {                  \
            weir_session *session = sessions[i_];         \
            status_[i_] = (call);                         \
        }                                                 \
        assert_alike(status_, c, name);                   \
    } while (0)

static void one_turn(weir_session **sessions, const choice *c, const weir_token *tokens) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    int stop = (int)draw(4), n_calls;
    uint32_t n, first, end;
    assert_ok(weir_session_get_stats(sessions[0], &stats));
    switch (draw(7)) {
    case 0:
        if (stats.n_tokens == 0) break;
        first = draw(stats.n_tokens);
        end = first + 1 + draw(stats.n_tokens - first);
        if (c->apart > 0) ON_BOTH("pin", weir_session_pin(session, first, end));
        break;
    case 1:
        if (stats.n_tokens == 0) break;
        first = draw(stats.n_tokens);
        if (c->apart > 0) ON_BOTH("unpin", weir_session_unpin(session, first, stats.n_tokens));
        break;
    case 2:
        n = 1 + draw(200);
        ON_BOTH("cancelled prefill", (n_calls = stop, weir_session_prefill(session, tokens, n, stop_later, &n_calls)));
        break;
    case 3:
        if (draw(3) == 0) ON_BOTH("reset", weir_session_reset(session));
        break;
    default:
        n = 1 + draw(draw(2) ? 400 : 40);
        ON_BOTH("prefill", weir_session_prefill(session, tokens, n, NULL, NULL));
        n = draw(60);
        for (uint32_t i = 0; i < n; ++i) ON_BOTH("step", weir_session_step(session, tokens[i]));
    }
}

/* Where psa stops, sums are compared that rounding changes, and then a microbatch more or less is attended. */
static void compare_attended(uint64_t gpu, uint64_t cpu, int stops) {
    const uint64_t apart = gpu > cpu ? gpu - cpu : cpu - gpu;
    if (apart > (stops ? 8 + cpu / 10 : 0))
        fail_msg("%llu pages attended, not %llu", (unsigned long long)gpu, (unsigned long long)cpu);
}

/* Returns the distance of the two sessions' logits, 0 if there are none. */
static double compare(weir_session **sessions, int stops) {
    weir_session_stats stats[2] = {WEIR_SESSION_STATS_INIT, WEIR_SESSION_STATS_INIT};
    const float *logits[2] = {NULL, NULL};
    weir_status status[2];
    uint32_t n = 0;
    for (int i = 0; i < 2; ++i) {
        assert_ok(weir_session_get_stats(sessions[i], &stats[i]));
        status[i] = weir_session_logits(sessions[i], &logits[i], &n);
    }
    assert_int_equal(stats[0].n_tokens, stats[1].n_tokens);
    assert_int_equal(stats[0].n_prompt, stats[1].n_prompt);
    assert_int_equal(stats[0].n_decode, stats[1].n_decode);
    assert_int_equal(stats[0].pages_resident, stats[1].pages_resident);
    assert_int_equal(stats[0].pages_resident_max, stats[1].pages_resident_max);
    assert_int_equal(stats[0].pages_evicted, stats[1].pages_evicted);
    compare_attended(stats[1].pages_attended, stats[0].pages_attended, stops);
    assert_int_equal(status[0], status[1]);
    return status[0] == WEIR_OK ? logits_apart(logits[1], logits[0], n) : 0.0;
}

static double run_random(const fixture *f, const choice *c, uint32_t seed) {
    static const uint32_t budgets[] = {112, 128, 160, 256, 512};
    weir_session *sessions[2] = {NULL, NULL};
    weir_status status[2];
    weir_token tokens[400];
    weir_session_options options = options_of(&c->v, 0, 0, 0);
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    double worst = 0.0;
    random_state = seed;
    for (int i = 0; i < 400; ++i) tokens[i] = (weir_token)draw(600);
    options.budget_tokens = budgets[draw(5)];
    options.context_tokens = 1024 + draw(3) * 200;
    options.max_prompt_tokens = draw(3) == 0 ? 0 : 40 + draw(500);
    options.batch_tokens = 16u << draw(6);
    for (int i = 0; i < 2; ++i) {
        options.device = i == 0 ? WEIR_DEVICE_CPU : test_device();
        status[i] = weir_session_create(f->model, &options, &sessions[i]);
    }
    assert_alike(status, c, "create");
    if (status[0] != WEIR_OK) return 0.0;
    for (int turn = 0; turn < 10; ++turn) {
        double apart;
        one_turn(sessions, c, tokens);
        apart = compare(sessions, strcmp(c->v.policy, "psa") == 0);
        if (apart > worst) worst = apart;
        if (c->apart > 0 && apart > c->apart)
            fail_msg("%s, seed %u, turn %d: logits are %.3g apart", describe(&c->v), seed, turn, apart);
    }
    assert_ok(weir_session_memory(sessions[1], &memory));
    assert_int_equal(memory.peak_bytes, memory.plan_bytes);
    assert_int_equal(memory.allocs_while_decoding, 0);
    for (int i = 0; i < 2; ++i) weir_session_destroy(sessions[i]);
    return worst;
}

static void conversations__as_on_the_cpu(void **state) {
    fixture f;
    (void)state;
    /* Where pages come back a near tie changes all that follows; see device/test_recall. lfps attends on the host. */
    ASSERT_EVERY_POLICY_EXCEPT("arkvale lfps", choices, v.policy);
    NEED_GPU();
    open_gpu_fixture(&f);
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); ++i) {
        double worst = 0.0;
        for (uint32_t seed = 1; seed <= 3; ++seed) {
            const double apart = run_random(&f, &choices[i], seed * 7919u + (uint32_t)i);
            if (apart > worst) worst = apart;
        }
        print_message("%-64s logits at most %.3g of their rms apart\n", describe(&choices[i].v), worst);
    }
    close_gpu_fixture(&f);
}

/* A second question after a long answer; pages are pinned and unpinned in between. */
static void conversations__second_turn(void **state) {
    static const choice rows[] = {
        {{"dense", {{0, 0}}, 0}, MAX_APART},
        {{"sink", {{"positions", "abs"}}, 1}, MAX_APART},
    };
    static const char second[] = "<|im_end|>\n<|im_start|>user\nWhat was x7?<|im_end|>\n<|im_start|>assistant\n";
    fixture f;
    (void)state;
    NEED_GPU();
    open_gpu_fixture(&f);
    for (size_t r = 0; r < 2; ++r) {
        const choice *c = &rows[r];
        weir_session *sessions[2] = {NULL, NULL};
        weir_session_options options = options_of(&c->v, 0, r == 0 ? 0 : 192, 2048);
        weir_token token[2] = {0, 0};
        double worst = 0.0, sum = 0.0;
        int n_bad = 0;
        for (int i = 0; i < 2; ++i) {
            options.device = i == 0 ? WEIR_DEVICE_CPU : test_device();
            assert_ok(weir_session_create(f.model, &options, &sessions[i]));
        }
        for (int turn = 0; turn < 3; ++turn) {
            for (int i = 0; i < 2; ++i) prefill_text(f.model, sessions[i], turn == 0 ? RULE_PROMPT : second);
            for (int step = 0; step < 150; ++step) {
                const float *logits[2];
                double apart;
                float gap[2];
                uint32_t n;
                if (step > 0) ON_BOTH("step", weir_session_step(session, token[0]));
                for (int i = 0; i < 2; ++i) {
                    assert_ok(weir_session_logits(sessions[i], &logits[i], &n));
                    token[i] = best_of(logits[i], n, &gap[i]);
                }
                apart = logits_apart(logits[1], logits[0], n);
                sum += apart;
                if (apart > worst) worst = apart;
                if (token[0] == token[1]) continue;
                print_message("%s, turn %d, step %d: the two best logits are %.3g apart on the CPU, %.3g on the GPU\n",
                              describe(&c->v), turn, step, (double)gap[0], (double)gap[1]);
                if (gap[0] >= NEXT_TO_EQUAL || gap[1] >= NEXT_TO_EQUAL) ++n_bad;
            }
            ON_BOTH("pin", weir_session_pin(session, 20, 40));
            if (turn == 1) ON_BOTH("unpin", weir_session_unpin(session, 0, 100));
        }
        print_message("%s, three turns: logits %.3g of their rms apart, at most %.3g\n", describe(&c->v), sum / 450,
                      worst);
        assert_true(sum / 450 <= MAX_MEAN_APART);
        /* Under a budget the model has lost the question and guesses, with many logits almost equal. */
        if (r == 0) assert_true(n_bad == 0 && worst <= MAX_REAL_APART);
        for (int i = 0; i < 2; ++i) weir_session_destroy(sessions[i]);
    }
    close_gpu_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations__as_on_the_cpu),
        cmocka_unit_test(conversations__second_turn),
    };
    return cmocka_run_group_tests_name("device/conversations", tests, NULL, NULL);
}
