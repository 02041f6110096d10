/* api: sessions whose attention learns from its past. Plans count the tables; tracing is refused by name;
 * a rewind forgets the tokens that are gone, and a prompt begins anew what was learned; a cancel teaches nothing. */
#include <pthread.h>
#include <time.h>

#include "api_test.h"
#include "weir/experimental.h"

enum { kContext = 512 };

static weir_session_options options_of(const weir_key_value *options, uint32_t n, uint32_t budget_tokens) {
    weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
    o.policy = "lfps";
    o.policy_options = options;
    o.n_policy_options = n;
    o.budget_tokens = budget_tokens;
    o.context_tokens = kContext;
    o.batch_tokens = 64;
    return o;
}

static weir_session *session_with(weir_model *model, const weir_session_options *options) {
    weir_session *session = NULL;
    assert_ok(weir_session_create(model, options, &session));
    return session;
}

static weir_session *new_session(weir_model *model) {
    static const weir_key_value kSome[] = {{"skip_layers", "1"}, {"eta", "0.8"}};
    const weir_session_options options = options_of(kSome, 2, 32);
    return session_with(model, &options);
}

static weir_token token(uint32_t i) { return (weir_token)(i * 2654435761u % 199 + 20); }

static void prefill(weir_session *session, uint32_t first, uint32_t n) {
    weir_token tokens[kContext];
    for (uint32_t i = 0; i < n; ++i) tokens[i] = token(first + i);
    assert_ok(weir_session_prefill(session, tokens, n, NULL, NULL));
}

static void steps(weir_session *session, uint32_t first, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) assert_ok(weir_session_step(session, token(first + i)));
}

static int same_logits(weir_session *a, weir_session *b) {
    const float *x = NULL, *y = NULL;
    uint32_t n = 0;
    assert_ok(weir_session_logits(a, &x, &n));
    assert_ok(weir_session_logits(b, &y, &n));
    return memcmp(x, y, n * sizeof(*x)) == 0;
}

static void go_on_alike(weir_session *a, weir_session *b, uint32_t n, const char *when) {
    for (uint32_t i = 0; i < n; ++i) {
        if (!same_logits(a, b)) fail_msg("%s: logits differ after %u steps", when, i);
        steps(a, 9000 + i, 1);
        steps(b, 9000 + i, 1);
    }
}

static weir_plan_info plan_of(const fixture *f, const weir_session_options *options) {
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    assert_ok(weir_plan(f->model, options, &plan));
    return plan;
}

/* Two floats for every token and query head of each layer that has tables, lists and sums besides, and nothing else is
 * counted as digests; and a session takes these bytes. */
static void lfps__plan_counts_the_tables(void **state) {
    const fixture *f = *state;
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    assert_ok(weir_model_get_info(f->model, &info));
    enum { kLong = 8192 }; /* far more than are listed */
    uint64_t by_layers[3];
    for (uint32_t i = 0; i < 3; ++i) {
        char skip[16];
        snprintf(skip, sizeof(skip), "%u", i == 2 ? info.n_layers : i);
        const weir_key_value kSkip[] = {{"skip_layers", skip}};
        weir_session_options options = options_of(kSkip, 1, 32);
        options.context_tokens = kLong;
        by_layers[i] = plan_of(f, &options).digest_bytes;
    }
    /* The arrays of a session begin at multiples of 64. */
    const uint64_t layer = by_layers[0] - by_layers[1], mean = by_layers[0] / info.n_layers, align = 64 * 8;
    const uint64_t entries = 8ull * info.n_heads * kLong;
    assert_int_equal(by_layers[2], 0);
    assert_true(mean <= layer + align && layer <= mean + align);
    assert_true(layer > entries && layer < entries + entries / 2);
    /* With thresholds lists may hold all. */
    static const weir_key_value kThreshold[] = {{"candidates", "threshold"}, {"skip_layers", "0"}};
    weir_session_options options = options_of(kThreshold, 2, 32);
    options.context_tokens = kLong;
    assert_true(plan_of(f, &options).digest_bytes >= info.n_layers * 2 * entries);
    for (uint32_t i = 0; i < 2; ++i) {
        weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
        weir_session *session = session_with(f->model, &options);
        prefill(session, 0, 100);
        steps(session, 100, 50);
        assert_ok(weir_session_memory(session, &memory));
        assert_int_equal(memory.plan_bytes, plan_of(f, &options).total_bytes);
        assert_int_equal(memory.bytes, memory.plan_bytes);
        assert_int_equal(memory.peak_bytes, memory.plan_bytes);
        assert_int_equal(memory.allocs_while_decoding, 0);
        weir_session_destroy(session);
        options.n_policy_options = 0;
    }
}

static void lfps__traces_are_refused(void **state) {
    const fixture *f = *state;
    weir_session *session = NULL;
    weir_session_options options = options_of(NULL, 0, 0);
    options.flags = WEIR_SESSION_TRACE;
    assert_error(weir_session_create(f->model, &options, &session), WEIR_ERR_UNSUPPORTED, "policy lfps");
    assert_non_null(strstr(weir_last_error(), "WEIR_SESSION_TRACE"));
    assert_null(session);
}

/* A prompt after a rewind begins the tables anew: the session goes on with the bits of one that never went further. */
static void lfps__a_prompt_after_a_rewind(void **state) {
    const fixture *f = *state;
    static const uint32_t kCuts[] = {0, 3, 5, 16, 97, 120, 139};
    weir_session *moved = new_session(f->model);
    for (size_t c = 0; c < sizeof(kCuts) / sizeof(kCuts[0]); ++c) {
        weir_session *stayed = new_session(f->model);
        assert_ok(weir_session_rewind(moved, 0, 0));
        for (uint32_t i = 0; i < 2; ++i) {
            weir_session *session = i == 0 ? moved : stayed;
            if (kCuts[c] != 0) prefill(session, 0, kCuts[c] < 100 ? kCuts[c] : 100);
            if (kCuts[c] > 100) steps(session, 100, kCuts[c] - 100);
        }
        prefill(moved, 300, 70);
        steps(moved, 400, 40);
        assert_ok(weir_session_rewind(moved, kCuts[c], 0));
        prefill(moved, 500, 50);
        prefill(stayed, 500, 50);
        char when[64];
        snprintf(when, sizeof(when), "a prompt after a rewind to %u", kCuts[c]);
        go_on_alike(moved, stayed, 30, when);
        weir_session_destroy(stayed);
    }
    weir_session_destroy(moved);
}

/* Without one, what was learned about the tokens that are left stays, so that the bits differ from those of a session
 * that learned less; where no token is left that anything was learned about, nothing stays; and where all tokens are
 * attended it does not matter. */
static void lfps__steps_after_a_rewind(void **state) {
    const fixture *f = *state;
    static const uint32_t kCuts[] = {0, 4, 160};
    static const weir_key_value kAll[] = {{"eta", "1"}, {"skip_layers", "0"}},
                                kFew[] = {{"eta", "1"}, {"skip_layers", "0"}, {"quota", "64"}};
    for (size_t c = 0; c < 3; ++c) {
        /* Candidates are a part of the tokens that are left. */
        const weir_session_options few = options_of(kFew, 3, 32);
        weir_session *moved = session_with(f->model, &few), *stayed = session_with(f->model, &few);
        for (uint32_t i = 0; i < 2; ++i) steps(i == 0 ? moved : stayed, 0, kCuts[c]);
        prefill(moved, 300, 80);
        steps(moved, 400, 40);
        assert_ok(weir_session_rewind(moved, kCuts[c], 0));
        steps(moved, 9000, 1);
        steps(stayed, 9000, 1);
        if (kCuts[c] <= 4) {
            go_on_alike(moved, stayed, 100, "nothing is left");
        } else {
            int same = 1;
            for (uint32_t i = 0; i < 40; ++i) {
                same &= same_logits(moved, stayed);
                steps(moved, 7000 + i, 1);
                steps(stayed, 7000 + i, 1);
            }
            assert_false(same);
        }
        weir_session_destroy(moved);
        weir_session_destroy(stayed);
        const weir_session_options all = options_of(kAll, 2, kContext);
        moved = session_with(f->model, &all);
        stayed = session_with(f->model, &all);
        steps(moved, 0, kCuts[c]);
        steps(stayed, 0, kCuts[c]);
        prefill(moved, 300, 80);
        assert_ok(weir_session_rewind(moved, kCuts[c], 0));
        steps(moved, 9000, 1);
        steps(stayed, 9000, 1);
        go_on_alike(moved, stayed, 30, "all is attended");
        weir_session_destroy(moved);
        weir_session_destroy(stayed);
    }
}

static void lfps__reset_forgets(void **state) {
    const fixture *f = *state;
    weir_session *used = new_session(f->model), *fresh = new_session(f->model);
    prefill(used, 200, 120);
    steps(used, 500, 60);
    assert_ok(weir_session_reset(used));
    for (uint32_t i = 0; i < 2; ++i) steps(i == 0 ? used : fresh, 700, 90); /* no prompt that would begin anew */
    go_on_alike(used, fresh, 30, "after a reset");
    weir_session_destroy(used);
    weir_session_destroy(fresh);
}

static weir_status stop_at_half(void *user, const weir_progress_info *info) {
    (void)user;
    return info->done * 2 >= info->total ? WEIR_ERR_CANCELLED : WEIR_OK;
}

/* A prompt that is cancelled between two chunks has taught nothing. */
static void lfps__cancelled_between_chunks(void **state) {
    const fixture *f = *state;
    weir_session *session = new_session(f->model), *other = new_session(f->model);
    weir_token tokens[250];
    for (uint32_t i = 0; i < 250; ++i) tokens[i] = token(800 + i);
    prefill(session, 0, 120);
    prefill(other, 0, 120);
    steps(session, 500, 10);
    steps(other, 500, 10);
    assert_error(weir_session_prefill(session, tokens, 250, stop_at_half, NULL), WEIR_ERR_CANCELLED, "cancelled");
    steps(session, 600, 1);
    steps(other, 600, 1);
    go_on_alike(session, other, 40, "after a cancel between chunks");
    weir_session_destroy(session);
    weir_session_destroy(other);
}

typedef struct canceller {
    weir_session *session;
    long wait_us;
} canceller;

static void *cancel_later(void *user) {
    const canceller *c = user;
    const struct timespec wait = {0, c->wait_us * 1000};
    nanosleep(&wait, NULL);
    weir_session_cancel(c->session);
    return NULL;
}

/* Wherever a cancel comes: a prompt that was cancelled has taught no layer anything. */
static void lfps__cancelled_prompts_teach_nothing(void **state) {
    const fixture *f = *state;
    static const weir_key_value kSome[] = {{"skip_layers", "0"}, {"eta", "1"}};
    weir_session_options options = options_of(kSome, 2, 32);
    weir_token tokens[256];
    options.batch_tokens = 256; /* one chunk */
    for (uint32_t i = 0; i < 256; ++i) tokens[i] = token(800 + i);
    for (uint32_t trial = 0; trial < 12; ++trial) {
        weir_session *session = session_with(f->model, &options), *other = session_with(f->model, &options);
        prefill(session, 0, 120);
        prefill(other, 0, 120);
        canceller c = {session, 500 + 1500 * (long)trial};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, cancel_later, &c), 0);
        const weir_status status = weir_session_prefill(session, tokens, 256, NULL, NULL);
        assert_int_equal(pthread_join(thread, NULL), 0);
        if (status == WEIR_ERR_CANCELLED) {
            steps(session, 600, 1);
            steps(other, 600, 1);
            go_on_alike(session, other, 20, "after a cancel");
        } else {
            assert_int_equal(status, WEIR_OK); /* it ends the next call */
            assert_error(weir_session_step(session, 30), WEIR_ERR_CANCELLED, "cancelled");
        }
        weir_session_destroy(session);
        weir_session_destroy(other);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lfps__plan_counts_the_tables),  cmocka_unit_test(lfps__traces_are_refused),
        cmocka_unit_test(lfps__a_prompt_after_a_rewind), cmocka_unit_test(lfps__steps_after_a_rewind),
        cmocka_unit_test(lfps__reset_forgets),           cmocka_unit_test(lfps__cancelled_between_chunks),
        cmocka_unit_test(lfps__cancelled_prompts_teach_nothing),
    };
    return cmocka_run_group_tests_name("api/lfps", tests, open_fixture, close_fixture);
}
