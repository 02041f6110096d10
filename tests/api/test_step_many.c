/* api: weir_step_many. Every session must end up as if weir_session_step had been called for it alone, and after an
 * error as before the call. */
#include "api_test.h"
#include "../policy/every_policy.h"
#include "weir/experimental.h"

#define VOCAB LONG_RUN_VOCAB
#define MOST 20

typedef struct choice {
    const char *policy;
    weir_key_value options[2];
    uint32_t n_options;
} choice;

/* Small budgets, so that pages leave within 200 tokens; every way to score, select and observe. */
static const choice choices[] = {
    {"raas", {{0, 0}}, 0},
    {"dense", {{0, 0}}, 0},
    {"sink", {{0, 0}}, 0},
    {"h2o", {{"skip_layers", "0"}}, 1},
    {"tova", {{"skip_layers", "0"}}, 1},
    {"quest", {{"skip_layers", "0"}}, 1},
    {"hybrid", {{"skip_layers", "0"}}, 1},
    {"random", {{0, 0}}, 0},
    {"keyformer", {{"skip_layers", "0"}}, 1},
    {"scissorhands", {{"skip_layers", "0"}}, 1},
    {"sink", {{"positions", "abs"}}, 1},
    {"arkvale", {{"recall_from", "4"}}, 1},
    {"raas", {{"recall", "on"}, {"recall_from", "4"}}, 2},
    {"psa", {{"skip_layers", "0"}, {"eps", "0.8"}}, 2},
    {"psa", {{"recall", "on"}, {"eps", "0.8"}}, 2},
    {"lfps", {{"skip_layers", "1"}, {"eta", "0.7"}}, 2},
};
#define N_CHOICES (sizeof(choices) / sizeof(choices[0]))

static int runs_on_cpu(const fixture *f) {
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    assert_ok(weir_plan(f->model, NULL, &plan));
    return plan.device == WEIR_DEVICE_CPU;
}

static int recalls(const choice *c) {
    return strcmp(c->policy, "arkvale") == 0 || (c->n_options != 0 && strcmp(c->options[0].key, "recall") == 0);
}

/* A session of its own policy, budget and depth for each i. On a device those that recall have a pool in which all
 * pages stay, and those that it cannot run are left out. */
static weir_session *new_session(const fixture *f, uint32_t i, uint32_t batch_tokens) {
    const choice *c = &choices[i % N_CHOICES];
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_token prompt[64];
    const uint32_t n_prompt = 5 + i * 7 % 59;
    options.policy = c->policy;
    const int has_kernel = strcmp(c->policy, "lfps") != 0 && (strcmp(c->policy, "psa") != 0 || !recalls(c));
    if (!has_kernel && !runs_on_cpu(f)) return new_session(f, i + 1, batch_tokens);
    options.policy_options = c->n_options != 0 ? c->options : NULL;
    options.n_policy_options = c->n_options;
    options.context_tokens = 1024;
    options.batch_tokens = batch_tokens;
    const int keeps_all = strcmp(c->policy, "dense") == 0 || (recalls(c) && !runs_on_cpu(f));
    if (!keeps_all) options.budget_tokens = 128 + i % 3 * 16;
    for (uint32_t t = 0; t < n_prompt; ++t) prompt[t] = (weir_token)(10 + (t * 37 + i * 101) % (VOCAB - 64));
    assert_ok(weir_session_create(f->model, &options, &session));
    assert_ok(weir_session_prefill(session, prompt, n_prompt, NULL, NULL));
    return session;
}

static weir_token token_of(uint32_t i, uint32_t step) {
    return (weir_token)(7 + (step * 61 + i * 29 + step * step) % (VOCAB - 14));
}

static const float *logits_of(weir_session *session) {
    const float *logits = NULL;
    uint32_t n = 0;
    assert_ok(weir_session_logits(session, &logits, &n));
    assert_int_equal(n, VOCAB);
    return logits;
}

static weir_session_stats stats_of(const weir_session *session) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    return stats;
}

static void assert_no_allocations(const weir_session *session) {
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    assert_ok(weir_session_memory(session, &memory));
    assert_int_equal(memory.allocs_while_decoding, 0);
}

/* Everything that steps leave behind, except times. */
static void assert_same_state(weir_session *got, weir_session *want) {
    const weir_session_stats a = stats_of(got), b = stats_of(want);
    weir_token drawn = -1, wanted = -2;
    assert_memory_equal(logits_of(got), logits_of(want), VOCAB * sizeof(float));
    assert_int_equal(a.n_tokens, b.n_tokens);
    assert_int_equal(a.n_decode, b.n_decode);
    assert_int_equal(a.pages_resident, b.pages_resident);
    assert_int_equal(a.pages_evicted, b.pages_evicted);
    assert_int_equal(a.pages_attended, b.pages_attended);
    assert_ok(weir_session_sample(got, &drawn));
    assert_ok(weir_session_sample(want, &wanted));
    assert_int_equal(drawn, wanted);
}

typedef struct said {
    char text[256];
    size_t n;
} said;

static weir_status listen(void *user, const weir_token_event *event) {
    said *s = user;
    if (s->n + event->text_bytes >= sizeof(s->text)) return WEIR_ERR_CANCELLED;
    memcpy(s->text + s->n, event->text, event->text_bytes);
    s->n += event->text_bytes;
    return WEIR_OK;
}

static said say(weir_session *session, uint32_t n_tokens) {
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    said answer = {"", 0};
    options.flags = WEIR_GENERATE_IGNORE_EOS | WEIR_GENERATE_SPECIAL_TEXT;
    options.max_tokens = n_tokens;
    options.on_token = listen;
    options.user = &answer;
    assert_ok(weir_session_generate(session, &options, NULL));
    return answer;
}

/* The samplers have seen the same tokens, and a step ends a character that was begun: both say the same afterwards. */
static void assert_same_speech(weir_session *got, weir_session *want) {
    weir_session *both[] = {got, want};
    const weir_token token = 40;
    int n_tries = 0;
    for (int i = 0; i < 2; ++i) {
        weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
        sampling.temperature = 20;
        sampling.repeat_penalty = 1.5f;
        sampling.seed = 5;
        assert_ok(weir_session_set_sampling(both[i], &sampling));
    }
    for (;; ++n_tries) {
        const said a = say(got, 1), b = say(want, 1);
        assert_string_equal(a.text, b.text);
        if (a.n == 0) break; /* the first byte of a character */
        assert_true(n_tries < 200);
    }
    assert_ok(weir_step_many(&got, &token, 1));
    assert_ok(weir_session_step(want, token));
    assert_string_equal(say(got, 6).text, say(want, 6).text);
}

/* `n` sessions, the first one with choice `first`. */
static void equals_alone(const fixture *f, uint32_t first, uint32_t n, uint32_t n_steps) {
    weir_session *together[8], *alone[8];
    weir_memory_counters before = WEIR_MEMORY_COUNTERS_INIT, after = WEIR_MEMORY_COUNTERS_INIT;
    uint64_t n_evicted = 0;
    for (uint32_t i = 0; i < n; ++i) {
        together[i] = new_session(f, first + i, 0);
        alone[i] = new_session(f, first + i, 0);
    }
    assert_ok(weir_runtime_memory(f->runtime, &before));
    for (uint32_t step = 0; step < n_steps; ++step) {
        weir_token tokens[8];
        for (uint32_t i = 0; i < n; ++i) {
            tokens[i] = token_of(i, step);
            assert_ok(weir_session_step(alone[i], tokens[i]));
        }
        assert_ok(weir_step_many(together, tokens, n));
        for (uint32_t i = 0; i < n; ++i) assert_same_state(together[i], alone[i]);
    }
    assert_ok(weir_runtime_memory(f->runtime, &after));
    assert_int_equal(after.n_allocs, before.n_allocs);
    for (uint32_t i = 0; i < n; ++i) {
        n_evicted += stats_of(together[i]).pages_evicted;
        assert_true(stats_of(together[i]).decode_ns > 0);
        assert_same_speech(together[i], alone[i]);
        assert_no_allocations(together[i]);
        weir_session_destroy(together[i]);
        weir_session_destroy(alone[i]);
    }
    assert_true(n_evicted > 0);
}

static void step_many__equals_stepping_alone(void **state) {
    ASSERT_EVERY_POLICY(choices, policy);
    equals_alone(*state, 0, 1, 150);
    equals_alone(*state, 7, 2, 200);
    equals_alone(*state, 0, 3, 200);
    equals_alone(*state, 0, 7, 200);
    equals_alone(*state, 0, 8, 100);
    if (runs_on_cpu(*state)) equals_alone(*state, 9, 2, 200); /* pages leave and come back */
    equals_alone(*state, 8, 3, 200);
}

/* Sessions with room for few rows make small groups; the results are the same. */
static void step_many__groups_by_the_first_ones_room(void **state) {
    static const uint32_t rows[] = {2, 1, 1, 3, 512, 1, 1};
    weir_session *together[7], *alone[7];
    for (uint32_t i = 0; i < 7; ++i) {
        together[i] = new_session(*state, i, rows[i]);
        alone[i] = new_session(*state, i, rows[i]);
    }
    for (uint32_t step = 0; step < 40; ++step) {
        weir_token tokens[7];
        for (uint32_t i = 0; i < 7; ++i) {
            tokens[i] = token_of(i, step);
            assert_ok(weir_session_step(alone[i], tokens[i]));
        }
        assert_ok(weir_step_many(together, tokens, 7));
        for (uint32_t i = 0; i < 7; ++i) assert_same_state(together[i], alone[i]);
    }
    for (uint32_t i = 0; i < 7; ++i) {
        weir_session_destroy(together[i]);
        weir_session_destroy(alone[i]);
    }
}

/* GEMVs over several rows have kernels of their own for each weight type; biases and head norms come with the
 * architecture. */
static void steps_equal_alone(const fixture *f, const char *name) {
    char path[512];
    weir_model *model = NULL;
    weir_session *together[7], *alone[7];
    snprintf(path, sizeof(path), "%s/tests/golden/models/%s.gguf", WEIR_SOURCE_DIR, name);
    assert_ok(weir_model_open(f->runtime, path, NULL, &model));
    for (uint32_t i = 0; i < 7; ++i) {
        assert_ok(weir_session_create(model, NULL, &together[i]));
        assert_ok(weir_session_create(model, NULL, &alone[i]));
    }
    for (uint32_t step = 0; step < 20; ++step) {
        weir_token tokens[7];
        for (uint32_t i = 0; i < 7; ++i) {
            tokens[i] = (weir_token)((step * 7 + i * 11) % 60);
            assert_ok(weir_session_step(alone[i], tokens[i]));
        }
        assert_ok(weir_step_many(together, tokens, 7));
        for (uint32_t i = 0; i < 7; ++i) {
            const float *got, *want;
            uint32_t n = 0;
            assert_ok(weir_session_logits(together[i], &got, &n));
            assert_ok(weir_session_logits(alone[i], &want, &n));
            if (memcmp(got, want, n * sizeof(float)) != 0)
                fail_msg("%s: other logits in step %u of session %u", name, step, i);
        }
    }
    for (uint32_t i = 0; i < 7; ++i) {
        weir_session_destroy(together[i]);
        weir_session_destroy(alone[i]);
    }
    weir_model_close(model);
}

static void step_many__of_every_weight_type(void **state) {
    static const char *const names[] = {"llama_f32", "llama_f16", "llama_bf16", "llama_q8_0", "llama_q4_0",
                                        "llama_q4_1", "llama_q5_0", "llama_q5_1", "llama_iq4_nl", "llama_mxfp4",
                                        "llama_q2_k", "llama_q3_k", "llama_iq4_xs", "llama_q4_k", "llama_q5_k",
                                        "llama_nvfp4", "llama_iq2_xxs", "llama_iq2_xs", "llama_iq2_s",
                                        "llama_iq3_xxs", "llama_iq3_s",
                                        "llama_q6_k", "qwen2_q8_0", "qwen3_f32", "gemma3_f32", "qwen3moe_q8_0",
                                        "qwen2moe_f32", "gpt_oss_f32", "gpt_oss_mxfp4", "gemma2_f32", "phi3_long",
                                        "smollm3_f32", "granite_f32", "olmo2_f32", "glm4_f32", "llama_q4_k_m_mix",
                                        "qwen35_f32", "lfm2_f32", "nemotron_h_f32", "granitehybrid_f32",
                                        "qwen35moe_f32", "qwen3next_f32", "lfm2moe_f32", "nemotron_h_moe_f32",
                                        "glm4moe_f32", "glm4moe_q8_0", "granitemoe_q8_0", "qwen3vl_f32",
                                        "qwen3vlmoe_q8_0", "mistral3_f32"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) steps_equal_alone(*state, names[i]);
}

static weir_token best_of(const float *logits) {
    weir_token best = 0;
    for (weir_token t = 1; t < VOCAB; ++t) best = logits[t] > logits[best] ? t : best;
    return best;
}

/* With more than eight rows the CPU uses its GEMM, which sums in another order. A device works in groups of eight, and
 * nothing differs. After one step the squared error is below 1e-6 of the logits' squares. After many steps it is up to
 * 3e-4, when a page was selected in place of another. Greedy tokens stay the same, except for near ties. */
static void step_many__of_many_sessions_is_close(void **state) {
    const fixture *f = *state;
    weir_session *together[MOST], *alone[MOST];
    weir_token tokens[MOST];
    double worst = 0, worst_first = 0;
    uint32_t n_other = 0;
    for (uint32_t i = 0; i < MOST; ++i) {
        together[i] = new_session(f, i, 10); /* two groups */
        alone[i] = new_session(f, i, 10);
        tokens[i] = best_of(logits_of(alone[i]));
    }
    for (uint32_t step = 0; step < 60; ++step) {
        assert_ok(weir_step_many(together, tokens, MOST));
        for (uint32_t i = 0; i < MOST; ++i) {
            const float *got, *want;
            double difference = 0, size = 0;
            assert_ok(weir_session_step(alone[i], tokens[i]));
            got = logits_of(together[i]);
            want = logits_of(alone[i]);
            for (uint32_t t = 0; t < VOCAB; ++t) {
                difference += ((double)got[t] - want[t]) * ((double)got[t] - want[t]);
                size += (double)want[t] * want[t];
            }
            worst = difference / size > worst ? difference / size : worst;
            tokens[i] = best_of(want);
            n_other += best_of(got) != tokens[i];
        }
        if (step == 0) worst_first = worst;
    }
    print_message("largest NMSE of the logits: %.2g, after one step %.2g; other tokens: %u of %u\n", worst, worst_first,
                  n_other, MOST * 60);
    assert_true(runs_on_cpu(f) ? worst_first > 0 : worst_first == 0); /* the CPU used its GEMM */
    assert_true(worst_first < 1e-5);
    assert_true(worst < 1e-2);
    assert_true(n_other <= 3);
    for (uint32_t i = 0; i < MOST; ++i) {
        assert_int_equal(stats_of(together[i]).n_tokens, stats_of(alone[i]).n_tokens);
        weir_session_destroy(together[i]);
        weir_session_destroy(alone[i]);
    }
}

/* Three sessions, and their state when the picture was taken. */
typedef struct trio {
    weir_session *sessions[3];
    weir_session_stats stats[3];
    float logits[3][VOCAB];
} trio;

static void take_picture(trio *t) {
    for (int i = 0; i < 3; ++i) {
        t->stats[i] = stats_of(t->sessions[i]);
        memcpy(t->logits[i], logits_of(t->sessions[i]), sizeof(t->logits[i]));
    }
}

static void assert_as_before(const trio *t) {
    for (int i = 0; i < 3; ++i) {
        weir_session_stats now = stats_of(t->sessions[i]);
        now.pages_resident_max = t->stats[i].pages_resident_max; /* a page may have been open meanwhile */
        assert_memory_equal(&now, &t->stats[i], sizeof(now));
        assert_memory_equal(logits_of(t->sessions[i]), t->logits[i], sizeof(t->logits[i]));
    }
}

static void open_trio(const fixture *f, trio *t) {
    for (uint32_t i = 0; i < 3; ++i) t->sessions[i] = new_session(f, i, 0);
    take_picture(t);
}

static void close_trio(trio *t) {
    for (int i = 0; i < 3; ++i) weir_session_destroy(t->sessions[i]);
}

static void step_many__refuses_arguments(void **state) {
    const fixture *f = *state;
    static trio t;
    weir_token tokens[3] = {1, 2, 3};
    char message[64];
    weir_session *list[3];
    weir_model *model = NULL;
    fixture other = *f;
    open_trio(f, &t);
    assert_error(weir_step_many(NULL, tokens, 3), WEIR_ERR_INVALID_ARG, "sessions is NULL");
    assert_error(weir_step_many(t.sessions, NULL, 3), WEIR_ERR_INVALID_ARG, "tokens is NULL");
    assert_error(weir_step_many(t.sessions, tokens, 0), WEIR_ERR_INVALID_ARG, "n_sessions is 0");
    assert_error(weir_step_many(t.sessions, tokens, 4097), WEIR_ERR_INVALID_ARG, "n_sessions is 4097");
    memcpy(list, t.sessions, sizeof(list));
    list[1] = NULL;
    assert_error(weir_step_many(list, tokens, 3), WEIR_ERR_INVALID_ARG, "sessions[1] is NULL");
    list[1] = t.sessions[1];
    list[2] = t.sessions[0];
    assert_error(weir_step_many(list, tokens, 3), WEIR_ERR_INVALID_ARG, "sessions[0] and sessions[2] are the same");
    tokens[2] = 9999;
    snprintf(message, sizeof(message), "tokens[2] = 9999 is not in 0..%d", VOCAB - 1);
    assert_error(weir_step_many(t.sessions, tokens, 3), WEIR_ERR_INVALID_ARG, message);
    tokens[2] = 3;
    tokens[0] = -1;
    assert_error(weir_step_many(t.sessions, tokens, 3), WEIR_ERR_INVALID_ARG, "tokens[0] = -1 is not in");
    tokens[0] = 1;
    assert_ok(weir_model_open(f->runtime, LONG_RUN_MODEL, NULL, &model));
    other.model = model;
    list[2] = new_session(&other, 0, 0);
    assert_error(weir_step_many(list, tokens, 3), WEIR_ERR_INVALID_ARG,
                 "sessions[0] and sessions[2] are of different models");
    weir_session_destroy(list[2]);
    weir_model_close(model);
    assert_as_before(&t);
    assert_ok(weir_step_many(t.sessions, tokens, 3)); /* none of them is left locked */
    close_trio(&t);
}

static void step_many__with_one_full_context_changes_nothing(void **state) {
    const fixture *f = *state;
    static trio t;
    const weir_token tokens[3] = {1, 2, 3}, prompt[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    open_trio(f, &t);
    weir_session_destroy(t.sessions[2]);
    options.context_tokens = 9;
    assert_ok(weir_session_create(f->model, &options, &t.sessions[2]));
    assert_ok(weir_session_prefill(t.sessions[2], prompt, 8, NULL, NULL));
    assert_ok(weir_step_many(t.sessions, tokens, 3));
    take_picture(&t);
    weir_session_cancel(t.sessions[0]); /* not used up by a call that changes nothing */
    assert_error(weir_step_many(t.sessions, tokens, 3), WEIR_ERR_CONTEXT_FULL,
                 "all 9 positions of the context of sessions[2]");
    assert_error(weir_step_many(t.sessions, tokens, 2), WEIR_ERR_CANCELLED, "sessions[0]");
    assert_as_before(&t);
    assert_ok(weir_step_many(t.sessions, tokens, 2));
    close_trio(&t);
}

static void step_many__cancelled_before_changes_nothing(void **state) {
    static trio t;
    const weir_token tokens[3] = {1, 2, 3};
    open_trio(*state, &t);
    weir_session_cancel(t.sessions[1]);
    assert_error(weir_step_many(t.sessions, tokens, 3), WEIR_ERR_CANCELLED, "sessions[1] was cancelled");
    assert_as_before(&t);
    assert_ok(weir_step_many(t.sessions, tokens, 3)); /* the cancel is used up */
    assert_int_equal(stats_of(t.sessions[0]).n_tokens, t.stats[0].n_tokens + 1);
    close_trio(&t);
}

/* Each cancel ends one call, which names its session. None is lost in a call that another one ended, and a cleared one
 * ends none. */
static void step_many__cancels_are_told_one_by_one(void **state) {
    static trio t;
    const weir_token tokens[3] = {1, 2, 3};
    open_trio(*state, &t);
    for (int i = 0; i < 3; ++i) weir_session_cancel(t.sessions[i]);
    weir_session_clear_cancel(t.sessions[1]);
    assert_error(weir_step_many(t.sessions, tokens, 3), WEIR_ERR_CANCELLED, "sessions[0] was cancelled");
    assert_error(weir_step_many(t.sessions, tokens, 3), WEIR_ERR_CANCELLED, "sessions[2] was cancelled");
    assert_as_before(&t);
    weir_session_cancel(t.sessions[2]);
    assert_ok(weir_step_many(t.sessions, tokens, 2)); /* not in the list: its cancel waits */
    assert_error(weir_session_step(t.sessions[2], 3), WEIR_ERR_CANCELLED, "cancelled");
    assert_ok(weir_session_step(t.sessions[2], 3));
    close_trio(&t);
}

typedef struct trap {
    weir_session *victim; /* cancelled in layer `layer`; NULL: the callback itself stops the step */
    uint32_t layer;
} trap;

static weir_status spring(void *user, const weir_trace_layer *layer) {
    const trap *t = user;
    if (layer->layer != t->layer) return WEIR_OK;
    if (t->victim == NULL) return WEIR_ERR_CANCELLED;
    weir_session_cancel(t->victim);
    return WEIR_OK;
}

/* Session 0 is a group of its own and has gone through all layers when a callback in session 1 acts: it cancels session
 * 0, then session 2, then stops the step itself. */
static void step_many__cancelled_meanwhile_appends_nothing(void **state) {
    const fixture *f = *state;
    const weir_session_trace_fn set_trace = (weir_session_trace_fn)weir_get_experimental("weir_session_trace");
    static const char *const messages[] = {"sessions[0] was cancelled", "sessions[2] was cancelled",
                                           "trace callback stopped the step in layer 1"};
    const weir_token tokens[3] = {1, 2, 3}, prompt[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    static trio t;
    weir_session *alone[3];
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    trap traps[3] = {{NULL, 0}, {NULL, 0}, {NULL, 1}};
    assert_non_null(set_trace);
    options.flags = WEIR_SESSION_TRACE;
    options.device = WEIR_DEVICE_CPU; /* on a device a traced session steps alone */
    for (uint32_t i = 0; i < 3; ++i) { /* in the middle of a page, one before its end, at its end */
        options.batch_tokens = i == 0 ? 1 : 0;
        options.policy = i == 1 ? "quest" : "dense";
        assert_ok(weir_session_create(f->model, &options, &t.sessions[i]));
        assert_ok(weir_session_create(f->model, &options, &alone[i]));
        assert_ok(weir_session_prefill(t.sessions[i], prompt, 14 + i, NULL, NULL));
        assert_ok(weir_session_prefill(alone[i], prompt, 14 + i, NULL, NULL));
    }
    take_picture(&t);
    traps[0].victim = t.sessions[0];
    traps[1].victim = t.sessions[2];
    for (int i = 0; i < 3; ++i) {
        assert_ok(set_trace(t.sessions[1], spring, &traps[i]));
        assert_error(weir_step_many(t.sessions, tokens, 3), WEIR_ERR_CANCELLED, messages[i]);
        assert_as_before(&t);
    }
    assert_ok(set_trace(t.sessions[1], NULL, NULL));
    assert_ok(weir_step_many(t.sessions, tokens, 3));
    for (int i = 0; i < 3; ++i) {
        assert_ok(weir_session_step(alone[i], tokens[i]));
        assert_same_state(t.sessions[i], alone[i]);
        weir_session_destroy(alone[i]);
    }
    close_trio(&t);
}

typedef struct inside {
    trio *t;
    weir_status status;
    char message[256];
} inside;

static weir_status step_from_inside(void *user, const weir_token_event *event) {
    inside *in = user;
    const weir_token tokens[3] = {1, 2, 3};
    (void)event;
    in->status = weir_step_many(in->t->sessions, tokens, 3);
    snprintf(in->message, sizeof(in->message), "%s", weir_last_error());
    return WEIR_ERR_CANCELLED;
}

static void step_many__of_a_busy_session_changes_nothing(void **state) {
    static trio t;
    inside in = {&t, WEIR_OK, ""};
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    const weir_token tokens[3] = {1, 2, 3};
    open_trio(*state, &t);
    options.flags = WEIR_GENERATE_IGNORE_EOS;
    options.on_token = step_from_inside;
    options.user = &in;
    assert_error(weir_session_generate(t.sessions[1], &options, NULL), WEIR_ERR_CANCELLED, "after 1 token");
    assert_int_equal(in.status, WEIR_ERR_BUSY);
    assert_non_null(strstr(in.message, "inside sessions[1]"));
    for (int i = 0; i < 3; ++i) assert_int_equal(stats_of(t.sessions[i]).n_tokens, t.stats[i].n_tokens + (i == 1));
    assert_memory_equal(logits_of(t.sessions[0]), t.logits[0], sizeof(t.logits[0]));
    assert_memory_equal(logits_of(t.sessions[2]), t.logits[2], sizeof(t.logits[2]));
    assert_ok(weir_step_many(t.sessions, tokens, 3));
    close_trio(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_many__equals_stepping_alone),
        cmocka_unit_test(step_many__groups_by_the_first_ones_room),
        cmocka_unit_test(step_many__of_every_weight_type),
        cmocka_unit_test(step_many__of_many_sessions_is_close),
        cmocka_unit_test(step_many__refuses_arguments),
        cmocka_unit_test(step_many__with_one_full_context_changes_nothing),
        cmocka_unit_test(step_many__cancelled_before_changes_nothing),
        cmocka_unit_test(step_many__cancels_are_told_one_by_one),
        cmocka_unit_test(step_many__cancelled_meanwhile_appends_nothing),
        cmocka_unit_test(step_many__of_a_busy_session_changes_nothing),
    };
    return cmocka_run_group_tests_name("api_step_many", tests, open_long_run_fixture, close_fixture);
}
