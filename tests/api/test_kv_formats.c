/* api: sessions whose pages are in other formats than bf16 (weir_session_options.kv_format), under every policy: plans,
 * forks, rewinds, prompts that are taken back, saved sessions, and what is refused. */
#include "save_test.h"
#include "weir/experimental.h"

static const int32_t kFormats[] = {WEIR_KV_Q8, WEIR_KV_K8V4, WEIR_KV_K4V4};
static const char *const kNames[] = {"bf16", "q8", "k8v4", "k4v4"};
#define GOLDEN(name) WEIR_SOURCE_DIR "/tests/golden/models/" name ".gguf"
#define N_FORMATS (int)(sizeof(kFormats) / sizeof(kFormats[0]))

static weir_session_options options_in(const choice *c, int32_t format) {
    weir_session_options options = options_of(c);
    options.kv_format = format;
    return options;
}

static weir_session *session_in(weir_model *model, const choice *c, int32_t format) {
    const weir_session_options options = options_in(c, format);
    return session_with(model, &options);
}

static void step_tokens(weir_session *session, uint32_t first, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) assert_ok(weir_session_step(session, token(first + i)));
}

static void describe(char *text, size_t n, const choice *c, int32_t format, const char *what) {
    snprintf(text, n, "%s with pages of %s, %s", c->policy, kNames[format], what);
}

/* A page of 16 tokens with heads of 64; three pages in bf16 for each stream besides. */
static void plans(void **state) {
    const fixture *f = (const fixture *)*state;
    static const uint64_t kPageBytes[] = {4096, 2176, 1664, 1344};
    weir_plan_info whole = WEIR_PLAN_INFO_INIT;
    weir_session_options options = options_in(&choices[0], WEIR_KV_BF16);
    assert_ok(weir_plan(f->model, &options, &whole));
    for (int32_t format = 0; format <= N_FORMATS; ++format) {
        weir_plan_info plan = WEIR_PLAN_INFO_INIT;
        options.kv_format = format;
        assert_ok(weir_plan(f->model, &options, &plan));
        assert_int_equal(plan.page_bytes, kPageBytes[format]);
        assert_int_equal(plan.pages_per_stream, whole.pages_per_stream);
        assert_int_equal(plan.kv_bytes,
                         plan.n_streams * (plan.pages_per_stream * kPageBytes[format] + (format == 0 ? 0 : 3 * 4096)));
    }
    /* The same bytes hold more tokens. */
    options.budget_bytes = 1 << 20;
    options.policy = "raas";
    uint32_t tokens = 0;
    for (int32_t format = 0; format <= N_FORMATS; ++format) {
        weir_plan_info plan = WEIR_PLAN_INFO_INIT;
        options.kv_format = format;
        assert_ok(weir_plan(f->model, &options, &plan));
        assert_true(plan.kv_bytes <= 1 << 20);
        assert_true(plan.budget_tokens > tokens);
        tokens = plan.budget_tokens;
    }
}

static void go_on_alike(weir_model *model, const choice *c, int32_t format) {
    char when[200];
    weir_session *session = session_in(model, c, format);
    prefill(session, 0, 150);
    step_tokens(session, 150, 45);
    weir_session *fork = NULL;
    assert_ok(weir_session_fork(session, &fork));
    file file_ = saved(session);
    weir_session *restored = session_in(model, c, format), *again = session_in(model, c, format);
    assert_ok(restore_from(restored, &file_));
    assert_ok(restore_from(again, &file_));
    describe(when, sizeof(when), c, format, "after a fork");
    assert_same_steps(session, fork, 20, when);
    describe(when, sizeof(when), c, format, "after being saved");
    assert_same_steps(restored, again, 20, when);
    assert_same_logits(session, restored, when);
    prefill(session, 700, 21);
    prefill(restored, 700, 21);
    assert_same_logits(session, restored, when);
    weir_session_destroy(again);
    weir_session_destroy(restored);
    weir_session_destroy(fork);
    weir_session_destroy(session);
    free(file_.bytes);
}

/* Whatever the policy, a session goes on as its fork does, and as the one that is restored from a file. */
static void forks_and_files(void **state) {
    const fixture *f = (const fixture *)*state;
    for (size_t i = 0; i < N_CHOICES; ++i) {
        for (int k = 0; k < N_FORMATS; ++k) go_on_alike(f->model, &choices[i], kFormats[k]);
    }
}

/* Layers with windows, sinks in the softmax, heads of 32, 96 and 256, recurrent layers between those with attention. */
static void other_models(void **state) {
    static const char *const kPaths[] = {GOLDEN("gemma3_f32"), GOLDEN("gpt_oss_f32"), GOLDEN("llama_f32"),
                                         GOLDEN("phi3_f32"), GOLDEN("llama_hd256"), GOLDEN("qwen35_f32")};
    weir_runtime *runtime = NULL;
    (void)state;
    assert_ok(weir_runtime_create(NULL, &runtime));
    for (size_t m = 0; m < sizeof(kPaths) / sizeof(kPaths[0]); ++m) {
        weir_model *model = NULL;
        assert_ok(weir_model_open(runtime, kPaths[m], NULL, &model));
        for (int k = 0; k < N_FORMATS; ++k) {
            for (size_t i = 0; i < N_CHOICES; ++i) {
                const choice *c = &choices[i];
                if (strcmp(c->policy, "dense") == 0 || strcmp(c->policy, "arkvale") == 0)
                    go_on_alike(model, c, kFormats[k]);
            }
        }
        weir_model_close(model);
    }
    weir_runtime_destroy(runtime);
}

/* Back to where the last page still is as it was, or to the end of a page, nothing has happened. Further back the page
 * that is cut is what it was rounded to; its tokens are the same, and nothing else is. */
static void rewinds(void **state) {
    const fixture *f = (const fixture *)*state;
    static const struct {
        uint32_t from, to;
    } kExact[] = {{105, 98}, {112, 100}, {111, 96}, {125, 112}, {119, 105}, {200, 96}, {147, 97 + 48 - 1}};
    for (int k = 0; k < N_FORMATS; ++k) {
        for (size_t i = 0; i < sizeof(kExact) / sizeof(kExact[0]); ++i) {
            weir_session *a = session_in(f->model, &choices[0], kFormats[k]);
            weir_session *b = session_in(f->model, &choices[0], kFormats[k]);
            prefill(a, 0, 90);
            prefill(b, 0, 90);
            step_tokens(a, 90, kExact[i].from - 90);
            step_tokens(b, 90, kExact[i].to - 90);
            assert_ok(weir_session_rewind(a, kExact[i].to, 0));
            assert_ok(weir_session_step(a, 30));
            assert_ok(weir_session_step(b, 30));
            assert_same_steps(a, b, 20, "after a rewind");
            weir_session_destroy(a);
            weir_session_destroy(b);
        }
        for (size_t i = 0; i < N_CHOICES; ++i) {
            char when[200];
            weir_session *a = session_in(f->model, &choices[i], kFormats[k]);
            prefill(a, 0, 90);
            step_tokens(a, 90, 60);
            describe(when, sizeof(when), &choices[i], kFormats[k], "a rewind");
            /* What a policy has let go cannot come back. */
            if (weir_session_rewind(a, 101, 0) == WEIR_OK) {
                weir_session *fork = NULL;
                assert_int_equal(stats_of(a).n_tokens, 101);
                assert_ok(weir_session_step(a, 30));
                assert_ok(weir_session_fork(a, &fork));
                assert_same_steps(a, fork, 20, when);
                weir_session_destroy(fork);
            }
            weir_session_destroy(a);
        }
    }
}

/* What the open page held before a rewind is nothing once its place in the conversation has been written anew. */
static void rewinds_over_older_rows(void **state) {
    const fixture *f = (const fixture *)*state;
    for (int k = 0; k < N_FORMATS; ++k) {
        weir_session *a = session_in(f->model, &choices[0], kFormats[k]);
        weir_session *b = session_in(f->model, &choices[0], kFormats[k]);
        prefill(a, 0, 96);
        prefill(b, 0, 96);
        step_tokens(a, 96, 30);
        assert_ok(weir_session_rewind(a, 96, 0));
        assert_ok(weir_session_step(a, 30));
        assert_ok(weir_session_step(b, 30));
        prefill(a, 600, 30);
        prefill(b, 600, 30);
        assert_ok(weir_session_rewind(a, 104, 0));
        assert_ok(weir_session_rewind(b, 104, 0));
        assert_ok(weir_session_step(a, 30));
        assert_ok(weir_session_step(b, 30));
        assert_same_steps(a, b, 20, "after a rewind over older rows");
        weir_session_destroy(a);
        weir_session_destroy(b);
    }
}

typedef struct stopper {
    uint64_t at, n_seen; /* tokens */
} stopper;

static weir_status stop_at(void *user, const weir_progress_info *info) {
    stopper *s = (stopper *)user;
    s->n_seen = info->done;
    return info->done >= s->at ? WEIR_ERR_CANCELLED : WEIR_OK;
}

/* A prompt that is cancelled after some chunks leaves the page that was open as it was, wherever it and the last pages
 * of the chunks lie. */
static void prompts_that_are_taken_back(void **state) {
    const fixture *f = (const fixture *)*state;
    weir_token tokens[80];
    for (uint32_t j = 0; j < 80; ++j) tokens[j] = token(500 + j);
    for (int k = 0; k < N_FORMATS; ++k) {
        for (uint32_t begin = 97; begin < 129; begin += 5) {
            for (uint32_t chunks = 1; chunks <= 4; ++chunks) {
                weir_session_options options = options_in(&choices[0], kFormats[k]);
                options.batch_tokens = 16;
                weir_session *a = session_with(f->model, &options), *b = session_with(f->model, &options);
                prefill(a, 0, begin - 3);
                prefill(b, 0, begin - 3);
                step_tokens(a, 10, 3);
                step_tokens(b, 10, 3);
                stopper s = {16 * chunks, 0};
                assert_int_equal(weir_session_prefill(a, tokens, 80, stop_at, &s), WEIR_ERR_CANCELLED);
                assert_true(s.n_seen >= 16 * chunks);
                assert_int_equal(stats_of(a).n_tokens, begin);
                assert_ok(weir_session_step(a, 30));
                assert_ok(weir_session_step(b, 30));
                assert_same_steps(a, b, 3, "after a prompt that was cancelled");
                weir_session_destroy(a);
                weir_session_destroy(b);
            }
        }
    }
}

/* Noise of a benchmark is no part of a page that a rewind goes back to. */
static void rewinds_behind_noise(void **state) {
    const fixture *f = (const fixture *)*state;
    const weir_bench_fill_fn fill = (weir_bench_fill_fn)weir_get_experimental("weir_bench_fill");
    for (int k = 0; k < N_FORMATS; ++k) {
        weir_session *a = session_in(f->model, &choices[0], kFormats[k]);
        weir_session *b = session_in(f->model, &choices[0], kFormats[k]);
        step_tokens(a, 0, 32);
        step_tokens(b, 0, 32);
        assert_ok(fill(a, 32));
        step_tokens(b, 100, 32);
        /* Page 1 was open where page 3 has been since. */
        assert_ok(weir_session_rewind(a, 26, 0));
        assert_ok(weir_session_rewind(b, 26, 0));
        step_tokens(a, 200, 1);
        step_tokens(b, 200, 1);
        assert_same_steps(a, b, 3, "after a rewind behind noise");
        weir_session_destroy(a);
        weir_session_destroy(b);
    }
}

/* A budget that holds everything is dense, bit for bit, and threads change nothing. */
static void all_within_the_budget(void **state) {
    const fixture *f = (const fixture *)*state;
    static const char *const kPolicies[] = {"raas", "quest", "arkvale", "sink", "h2o", "tova"};
    for (int k = 0; k < N_FORMATS; ++k) {
        for (size_t i = 0; i < sizeof(kPolicies) / sizeof(kPolicies[0]); ++i) {
            weir_session_options options = options_in(&choices[0], kFormats[k]);
            weir_session *dense = session_with(f->model, &options);
            options.policy = kPolicies[i];
            options.budget_tokens = 1024;
            weir_session *session = session_with(f->model, &options);
            prefill(dense, 0, 200);
            prefill(session, 0, 200);
            assert_same_steps(dense, session, 20, kPolicies[i]);
            weir_session_destroy(dense);
            weir_session_destroy(session);
        }
    }
}

/* The formats are near bf16, and q8 is the nearest: largest difference of two logits of the next token. */
static void near_bf16(void **state) {
    const fixture *f = (const fixture *)*state;
    const float *want = NULL, *got = NULL;
    uint32_t n = 0;
    weir_session *whole = session_in(f->model, &choices[0], WEIR_KV_BF16);
    prefill_text(f->model, whole, RULE_PROMPT);
    assert_ok(weir_session_logits(whole, &want, &n));
    float off[N_FORMATS] = {0};
    for (int k = 0; k < N_FORMATS; ++k) {
        weir_session *session = session_in(f->model, &choices[0], kFormats[k]);
        prefill_text(f->model, session, RULE_PROMPT);
        assert_ok(weir_session_step(session, 30));
        if (k == 0) assert_ok(weir_session_step(whole, 30));
        assert_ok(weir_session_logits(whole, &want, &n));
        assert_ok(weir_session_logits(session, &got, &n));
        for (uint32_t i = 0; i < n; ++i) {
            const float d = got[i] > want[i] ? got[i] - want[i] : want[i] - got[i];
            if (d > off[k]) off[k] = d;
        }
        weir_session_destroy(session);
    }
    assert_true(off[0] > 0.0f && off[0] < 0.25f);
    assert_true(off[1] > off[0] && off[1] < 1.0f);
    assert_true(off[2] > off[1] && off[2] < 2.0f);
    weir_session_destroy(whole);
}

static void refusals(void **state) {
    const fixture *f = (const fixture *)*state;
    weir_session *session = NULL;
    weir_session_options options = options_in(&choices[0], 17);
    assert_error(weir_session_create(f->model, &options, &session), WEIR_ERR_INVALID_ARG,
                 "kv_format: 17 is not a WEIR_KV_* value");
    options.kv_format = -1;
    assert_error(weir_session_create(f->model, &options, &session), WEIR_ERR_INVALID_ARG,
                 "kv_format: -1 is not a WEIR_KV_* value");
    assert_null(session);
    /* Saved with one format, restored with another. */
    weir_session *q8 = session_in(f->model, &choices[0], WEIR_KV_Q8);
    weir_session *k8v4 = session_in(f->model, &choices[0], WEIR_KV_K8V4);
    weir_session *bf16 = session_in(f->model, &choices[0], WEIR_KV_BF16);
    prefill(q8, 0, 40);
    file saved_q8 = saved(q8);
    assert_error(restore_from(k8v4, &saved_q8), WEIR_ERR_UNSUPPORTED, "kv_format");
    assert_error(restore_from(bf16, &saved_q8), WEIR_ERR_UNSUPPORTED, "kv_format");
    prefill(bf16, 0, 40);
    file saved_bf16 = saved(bf16);
    assert_error(restore_from(q8, &saved_bf16), WEIR_ERR_UNSUPPORTED, "kv_format");
    free(saved_q8.bytes);
    free(saved_bf16.bytes);
    weir_session_destroy(q8);
    weir_session_destroy(k8v4);
    weir_session_destroy(bf16);
}

/* Heads of 80 elements are no whole blocks of 32. */
static void small_heads(void **state) {
    (void)state;
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_session *session = NULL;
    assert_ok(weir_runtime_create(NULL, &runtime));
    assert_ok(weir_model_open(runtime, GOLDEN("llama_hd80"), NULL, &model));
    weir_session_options options = options_in(&choices[0], WEIR_KV_Q8);
    assert_error(weir_session_create(model, &options, &session), WEIR_ERR_UNSUPPORTED,
                 "q8 needs heads of a multiple of 32 elements");
    weir_model_close(model);
    weir_runtime_destroy(runtime);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans),
        cmocka_unit_test(forks_and_files),
        cmocka_unit_test(other_models),
        cmocka_unit_test(rewinds),
        cmocka_unit_test(rewinds_over_older_rows),
        cmocka_unit_test(prompts_that_are_taken_back),
        cmocka_unit_test(rewinds_behind_noise),
        cmocka_unit_test(all_within_the_budget),
        cmocka_unit_test(near_bf16),
        cmocka_unit_test(refusals),
        cmocka_unit_test(small_heads),
    };
    return cmocka_run_group_tests_name("api/kv_formats", tests, open_fixture, close_fixture);
}
