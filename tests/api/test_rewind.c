/* api: weir_session_rewind. A session that went further and came back goes on with the bits of one that never went, and
 * where it cannot, it says so and nothing changes. */
#include "api_test.h"
#include "weir/experimental.h"

#define WINDOW_MODEL WEIR_SOURCE_DIR "/tests/golden/models/gemma3_f32.gguf"
enum { kContext = 512, kWindow = 20 };

typedef struct variant {
    const char *policy;
    const weir_key_value *options;
    uint32_t n_options;
    uint32_t budget_tokens;
    uint64_t spill_bytes;
} variant;

#define OPTIONS(array) array, sizeof(array) / sizeof((array)[0])
static const weir_key_value kQuest[] = {{"skip_layers", "0"}, {"sink_pages", "0"}, {"digest", "minmax"}};
static const weir_key_value kMeans[] = {{"skip_layers", "0"}, {"digest", "cuboid_mean"}};
static const weir_key_value kTop[] = {{"attend", "top"}, {"recall_pages", "0"}};
static const weir_key_value kTopMinMax[] = {{"attend", "top"}, {"recall_pages", "0"}, {"digest", "minmax"}};
static const weir_key_value kPsaOnePool[] = {{"recall", "on"}, {"pool", "unified"}, {"mb", "3"}, {"eps", "0.95"}};
static const weir_key_value kPsa[] = {{"recall", "on"}, {"mb", "3"}, {"eps", "0.95"}};

static weir_session *session_of(weir_model *model, const variant *v) {
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.policy = v->policy;
    options.policy_options = v->options;
    options.n_policy_options = v->n_options;
    options.budget_tokens = v->budget_tokens;
    options.spill_budget_bytes = v->spill_bytes;
    options.context_tokens = kContext;
    options.batch_tokens = 16;
    /* Compared are bits, and a store without recall is for the CPU only. */
    options.device = WEIR_DEVICE_CPU;
    assert_ok(weir_session_create(model, &options, &session));
    return session;
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

/* The conversation: prompts and answers in turn, up to n tokens. */
static void advance(weir_session *session, uint32_t n) {
    static const uint32_t kTurns[] = {37, 100, 153, 200, 260};
    uint32_t at = stats_of(session).n_tokens;
    for (size_t turn = 0; turn < sizeof(kTurns) / sizeof(kTurns[0]); ++turn) {
        const uint32_t end = n < kTurns[turn] ? n : kTurns[turn];
        if (at < end && turn % 2 == 0) prefill(session, at, end - at);
        for (uint32_t i = at; i < end && turn % 2 == 1; ++i) assert_ok(weir_session_step(session, token(i)));
        if (at < end) at = end;
    }
}

static void assert_same_logits(weir_session *a, weir_session *b, uint32_t n_tokens) {
    const float *x = NULL, *y = NULL;
    uint32_t n = 0;
    assert_ok(weir_session_logits(a, &x, &n));
    assert_ok(weir_session_logits(b, &y, &n));
    if (memcmp(x, y, n * sizeof(*x)) != 0) fail_msg("logits differ after a rewind to %u tokens", n_tokens);
}

/* Other tokens than those of the conversation. */
static void detour(weir_session *session, uint32_t n_steps, uint32_t n_prompt) {
    for (uint32_t i = 0; i < n_steps; ++i) assert_ok(weir_session_step(session, token(3000 + 7 * i)));
    if (n_prompt != 0) prefill(session, 5000, n_prompt);
}

static void go_on_together(weir_session *a, weir_session *b, uint32_t n_tokens, uint32_t n_steps) {
    for (uint32_t i = 0; i < n_steps; ++i) {
        assert_ok(weir_session_step(a, token(9000 + i)));
        assert_ok(weir_session_step(b, token(9000 + i)));
        assert_same_logits(a, b, n_tokens);
    }
    prefill(a, 9500, 21);
    prefill(b, 9500, 21);
    assert_same_logits(a, b, n_tokens);
    for (uint32_t i = 0; i < 10; ++i) {
        assert_ok(weir_session_step(a, token(9900 + i)));
        assert_ok(weir_session_step(b, token(9900 + i)));
        assert_same_logits(a, b, n_tokens);
    }
}

static void assert_at(weir_session *session, uint32_t n_tokens) {
    const float *logits = NULL;
    const weir_token *tokens = NULL;
    weir_token next = 0;
    uint32_t n = 0;
    assert_int_equal(stats_of(session).n_tokens, n_tokens);
    assert_ok(weir_session_tokens(session, &tokens, &n));
    assert_int_equal(n, n_tokens);
    for (uint32_t i = 0; i < n; ++i) assert_int_equal(tokens[i], token(i));
    assert_error(weir_session_logits(session, &logits, &n), WEIR_ERR_STATE, "no logits");
    if (n_tokens != 0) assert_non_null(strstr(weir_last_error(), "or rewind to "));
    assert_error(weir_session_sample(session, &next), WEIR_ERR_STATE, "no logits");
    assert_error(weir_session_generate(session, NULL, NULL), WEIR_ERR_STATE, "no logits");
}

static void rewind__has_the_bits_of_never_having_gone(void **state) {
    const fixture *f = *state;
    const variant variants[] = {
        {"dense", NULL, 0, 0, 0},
        {"quest", OPTIONS(kQuest), 96, 0},
        {"quest", OPTIONS(kMeans), 96, 0},
        {"arkvale", OPTIONS(kTop), 112, 0},
        {"arkvale", OPTIONS(kTopMinMax), 160, 0},
        {"psa", OPTIONS(kPsa), 128, 0},
        {"psa", OPTIONS(kPsaOnePool), 128, 0},
        {"sink", NULL, 0, 128, 24 << 20},
    };
#ifdef WEIR_INTERNAL_SANITIZED
    static const uint32_t kCuts[] = {0, 37, 96, 161};
#else
    static const uint32_t kCuts[] = {0, 1, 16, 17, 37, 97, 153, 160, 199};
#endif
    for (size_t p = 0; p < sizeof(variants) / sizeof(variants[0]); ++p) {
        weir_session *moved = session_of(f->model, &variants[p]);
        uint64_t recalled = 0;
        for (size_t c = 0; c < sizeof(kCuts) / sizeof(kCuts[0]); ++c) {
            weir_session *stayed = session_of(f->model, &variants[p]);
            advance(stayed, kCuts[c]);
            assert_ok(weir_session_rewind(moved, 0, 0));
            advance(moved, kCuts[c]);
            detour(moved, 40 + (uint32_t)c, 50);
            const weir_session_stats before = stats_of(moved);
            assert_ok(weir_session_rewind(moved, kCuts[c], 0));
            assert_at(moved, kCuts[c]);
            const weir_session_stats after = stats_of(moved);
            assert_int_equal(after.n_decode, before.n_decode);
            assert_int_equal(after.n_prompt, before.n_prompt);
            assert_int_equal(after.pages_evicted, before.pages_evicted);
            assert_int_equal(after.pages_dropped, 0);
            go_on_together(stayed, moved, kCuts[c], 18);
            assert_ok(weir_session_rewind(moved, kCuts[c], 0)); /* a second time */
            assert_at(moved, kCuts[c]);
            recalled = after.pages_recalled;
            weir_session_destroy(stayed);
        }
        if (strcmp(variants[p].policy, "arkvale") == 0 || strcmp(variants[p].policy, "psa") == 0)
            assert_true(recalled > 0);
        weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
        assert_ok(weir_session_memory(moved, &memory));
        assert_int_equal(memory.allocs_while_decoding, 0);
        assert_int_equal(memory.bytes, memory.plan_bytes);
        weir_session_destroy(moved);
    }
}

/* Also where the tokens that are gone were only some of the last page's, or none. */
static void rewind__by_a_few_tokens(void **state) {
    const fixture *f = *state;
    const variant quest = {"quest", OPTIONS(kQuest), 96, 0};
    for (uint32_t back = 0; back < 20; back += 3) {
        weir_session *moved = session_of(f->model, &quest), *stayed = session_of(f->model, &quest);
        advance(moved, 170);
        advance(stayed, 170 - back);
        assert_ok(weir_session_rewind(moved, 170 - back, 0));
        assert_at(moved, 170 - back);
        /* These tokens were read in one prompt; a shorter one has the same bits. */
        go_on_together(stayed, moved, 170 - back, 20);
        weir_session_destroy(moved);
        weir_session_destroy(stayed);
    }
}

static void rewind__refuses(void **state) {
    const fixture *f = *state;
    const variant raas = {"raas", NULL, 0, 128, 0};
    weir_session *session = session_of(f->model, &raas), *other = session_of(f->model, &raas);
    assert_error(weir_session_rewind(NULL, 0, 0), WEIR_ERR_INVALID_ARG, "session");
    assert_error(weir_session_rewind(session, 1, 0), WEIR_ERR_INVALID_ARG, "there are only 0");
    assert_ok(weir_session_rewind(session, 0, 0));
    prefill(session, 0, 30);
    prefill(other, 0, 30);
    assert_error(weir_session_rewind(session, 31, 0), WEIR_ERR_INVALID_ARG, "there are only 30");
    assert_error(weir_session_rewind(session, 3, 2), WEIR_ERR_INVALID_ARG, "flags 0x2");
    for (uint32_t i = 0; i < 160; ++i) {
        assert_ok(weir_session_step(session, token(i)));
        assert_ok(weir_session_step(other, token(i)));
    }
    assert_true(stats_of(session).pages_evicted > 0);
    assert_error(weir_session_rewind(session, 180, 0), WEIR_ERR_NOT_FOUND, "is lost in layer");
    assert_error(weir_session_rewind(session, 100, 0), WEIR_ERR_NOT_FOUND, "to 100 tokens: the page of positions");
    assert_same_logits(session, other, 190);
    go_on_together(session, other, 190, 20); /* nothing has changed */
    assert_ok(weir_session_rewind(session, 16, 0)); /* the prompt is pinned, and nothing of it has left */
    weir_session_destroy(session);
    weir_session_destroy(other);
}

/* With a store, pages that left are not lost: a rewind finds them, and the tables hold the newest of them again. */
static void rewind__with_a_store_finds_what_left(void **state) {
    const fixture *f = *state;
    static const char *const policies[] = {"raas", "sink", "random", "h2o"};
    for (size_t p = 0; p < sizeof(policies) / sizeof(policies[0]); ++p) {
        const variant with = {policies[p], NULL, 0, 128, 24 << 20}, without = {policies[p], NULL, 0, 128, 0};
        weir_session *session = session_of(f->model, &with), *other = session_of(f->model, &without);
        weir_session *all[] = {session, other};
        for (size_t i = 0; i < 2; ++i) {
            prefill(all[i], 0, 30);
            for (uint32_t t = 30; t < 260; ++t) assert_ok(weir_session_step(all[i], token(t)));
        }
        assert_same_logits(session, other, 260);
        assert_error(weir_session_rewind(other, 100, 0), WEIR_ERR_NOT_FOUND, "is lost in layer");
        const weir_session_stats before = stats_of(session);
        assert_true(before.pages_cold > 0 && before.pages_dropped == 0);
        assert_ok(weir_session_rewind(session, 121, 0));
        assert_at(session, 121);
        const weir_session_stats after = stats_of(session);
        assert_int_equal(after.pages_resident + after.pages_cold, 16 * 8); /* 8 pages hold 121 tokens */
        assert_int_equal(after.pages_dropped, 0);
        assert_int_equal(after.pages_cold, 0);
        /* All 121 tokens are attended again, as a session does that never let one go. */
        const variant dense = {"dense", NULL, 0, 0, 0};
        weir_session *whole = session_of(f->model, &dense);
        if (strcmp(policies[p], "sink") != 0) { /* whose window shows less */
            prefill(whole, 0, 30);
            for (uint32_t t = 30; t < 121; ++t) assert_ok(weir_session_step(whole, token(t)));
            assert_ok(weir_session_step(whole, token(7)));
            assert_ok(weir_session_step(session, token(7)));
            assert_same_logits(session, whole, 121);
        }
        for (uint32_t t = 0; t < 120; ++t) assert_ok(weir_session_step(session, token(7000 + t)));
        assert_ok(weir_session_rewind(session, 0, 0));
        assert_int_equal(stats_of(session).spill_stored_bytes, 0);
        weir_session_destroy(session);
        weir_session_destroy(other);
        weir_session_destroy(whole);
    }
}

static weir_status rewind_inside(void *user, const weir_token_event *event) {
    (void)event;
    assert_error(weir_session_rewind((weir_session *)user, 0, 0), WEIR_ERR_BUSY, "inside");
    return WEIR_OK;
}

static void rewind__a_busy_session_and_a_pending_cancel(void **state) {
    const fixture *f = *state;
    const variant dense = {"dense", NULL, 0, 0, 0};
    weir_session *session = session_of(f->model, &dense);
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    prefill(session, 0, 30);
    options.max_tokens = 2;
    options.on_token = rewind_inside;
    options.user = session;
    assert_ok(weir_session_generate(session, &options, NULL));
    weir_session_cancel(session);
    assert_ok(weir_session_rewind(session, 20, 0));
    assert_at(session, 20);
    assert_error(weir_session_step(session, 5), WEIR_ERR_CANCELLED, "");
    assert_at(session, 20);
    weir_session_destroy(session);
}

/* Under any policy, from any state: the tokens are those that were asked for, and the session goes on. */
static void check_lossy(const fixture *f, const char *policy) {
    const variant v = {policy, NULL, 0, 192, strcmp(policy, "arkvale") == 0 ? 400000 : 0};
    weir_session *session = session_of(f->model, &v), *other = session_of(f->model, &v);
    static const uint32_t kCuts[] = {200, 176, 131, 64, 17, 0};
    for (size_t c = 0; c < sizeof(kCuts) / sizeof(kCuts[0]); ++c) {
        weir_session *const both[] = {session, other};
        for (size_t i = 0; i < 2; ++i) {
            if (c == 0) advance(both[i], 200);
            detour(both[i], 70, 0);
            assert_ok(weir_session_rewind(both[i], kCuts[c], WEIR_REWIND_LOSSY));
            assert_at(both[i], kCuts[c]);
        }
        assert_int_equal(stats_of(session).pages_resident, stats_of(other).pages_resident);
    }
    go_on_together(session, other, 0, 100);
    const weir_session_stats stats = stats_of(session);
    assert_true(stats.pages_evicted > 0);
    weir_session_destroy(session);
    weir_session_destroy(other);
}

static void rewind__lossy_always_can(void **state) {
    static const char *const policies[] = {"sink", "h2o", "tova", "raas", "hybrid", "random", "arkvale"};
    for (size_t p = 0; p < sizeof(policies) / sizeof(policies[0]); ++p) check_lossy(*state, policies[p]);
}

/* Streams whose pages differ, as they do with real weights: a cut page is in the pool for some of them only. */
static void rewind__lossy_where_streams_differ(void **state) {
    check_lossy(*state, "tova");
    check_lossy(*state, "arkvale");
}

/* Pages that a full store has dropped are lost. */
static void rewind__into_dropped_pages(void **state) {
    const fixture *f = *state;
    variant v = {"arkvale", NULL, 0, 128, 0};
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    options.policy = v.policy;
    options.budget_tokens = v.budget_tokens;
    options.context_tokens = kContext;
    assert_ok(weir_plan(f->model, &options, &plan));
    v.spill_bytes = plan.n_streams * 12 * (plan.page_bytes + 512);
    weir_session *session = session_of(f->model, &v), *other = session_of(f->model, &v);
    weir_session *const both[] = {session, other};
    for (size_t i = 0; i < 2; ++i) {
        advance(both[i], 150);
        detour(both[i], 200, 0);
    }
    const weir_session_stats before = stats_of(session);
    assert_true(before.pages_dropped > 0);
    assert_error(weir_session_rewind(session, 345, 0), WEIR_ERR_NOT_FOUND, "is lost in layer");
    const weir_session_stats after = stats_of(session);
    assert_int_equal(after.pages_dropped, before.pages_dropped);
    assert_int_equal(after.pages_resident, before.pages_resident);
    go_on_together(session, other, 345, 10);
    assert_ok(weir_session_rewind(session, 145, WEIR_REWIND_LOSSY));
    assert_at(session, 145);
    detour(session, 100, 30);
    weir_session_destroy(session);
    weir_session_destroy(other);
}

/* The window's pages are there as long as the window has not moved past them. */
static void rewind__windows(void **state) {
    const fixture *f = *state;
    weir_model *model = NULL;
    assert_ok(weir_model_open(f->runtime, WINDOW_MODEL, NULL, &model));
    const variant variants[] = {{"dense", NULL, 0, 0, 0}, {"quest", OPTIONS(kQuest), 64, 0}};
    for (size_t p = 0; p < 2; ++p) {
        static const uint32_t kCuts[] = {3, 20, 36, 37, 51, 99, 131, 150};
        for (size_t c = 0; c < sizeof(kCuts) / sizeof(kCuts[0]); ++c) {
            const uint32_t cut = kCuts[c];
            /* Pages leave when a token that does not see them is appended, and at the end of a prompt. */
            const uint32_t first = cut < kWindow ? 0 : (cut + 1 - kWindow) / 16;
            const uint32_t most = (first + 1) * 16 + kWindow - 1;
            weir_session *moved = session_of(model, &variants[p]), *stayed = session_of(model, &variants[p]);
            advance(stayed, cut);
            advance(moved, cut);
            detour(moved, 0, most - 1 - cut);
            assert_ok(weir_session_rewind(moved, cut, 0));
            go_on_together(stayed, moved, cut, 20);
            weir_session_destroy(stayed);
            stayed = session_of(model, &variants[p]);
            advance(stayed, cut);
            assert_ok(weir_session_rewind(moved, 0, 0));
            advance(moved, cut);
            detour(moved, most - cut, 0);
            assert_ok(weir_session_rewind(moved, cut, 0));
            assert_at(moved, cut);
            go_on_together(stayed, moved, cut, 20);
            weir_session_destroy(stayed);
            stayed = session_of(model, &variants[p]);
            advance(stayed, cut);
            assert_ok(weir_session_rewind(moved, 0, 0));
            advance(moved, cut);
            detour(moved, most - cut + 1, 0);
            detour(stayed, most - cut + 1, 0);
            assert_error(weir_session_rewind(moved, cut, 0), WEIR_ERR_NOT_FOUND, "whose window has moved on");
            go_on_together(stayed, moved, cut, 5);
            assert_ok(weir_session_rewind(moved, cut, WEIR_REWIND_LOSSY));
            assert_at(moved, cut);
            detour(moved, 40, 30);
            weir_session_destroy(stayed);
            weir_session_destroy(moved);
        }
    }
    weir_model_close(model);
}

/* With recall the pages of the windows are kept too, and come back however far the windows have moved on. */
static void rewind__windows_with_recall(void **state) {
    const fixture *f = *state;
    weir_model *model = NULL;
    assert_ok(weir_model_open(f->runtime, WINDOW_MODEL, NULL, &model));
    const variant v = {"arkvale", OPTIONS(kTop), 112, 0};
    static const uint32_t kCuts[] = {1, 16, 20, 36, 51, 99, 112, 150, 200};
    weir_session *moved = session_of(model, &v);
    for (size_t c = 0; c < sizeof(kCuts) / sizeof(kCuts[0]); ++c) {
        weir_session *stayed = session_of(model, &v), *fork = NULL;
        assert_ok(weir_session_rewind(moved, 0, 0));
        advance(stayed, kCuts[c]);
        advance(moved, kCuts[c]);
        detour(moved, 61, 90);
        assert_ok(weir_session_fork(moved, &fork));
        assert_ok(weir_session_rewind(moved, kCuts[c], 0));
        assert_at(moved, kCuts[c]);
        go_on_together(stayed, moved, kCuts[c], 30);
        assert_ok(weir_session_rewind(stayed, kCuts[c] - 1, 0));
        assert_ok(weir_session_rewind(fork, kCuts[c] - 1, 0));
        go_on_together(stayed, fork, kCuts[c] - 1, 10);
        weir_session_destroy(stayed);
        weir_session_destroy(fork);
    }
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    assert_ok(weir_session_memory(moved, &memory));
    assert_int_equal(memory.bytes, memory.plan_bytes);
    weir_session_destroy(moved);
    weir_model_close(model);
}

static weir_status stop_at_64(void *user, const weir_progress_info *info) {
    (void)user;
    return info->done >= 64 ? WEIR_ERR_CANCELLED : WEIR_OK;
}

/* Such a prompt is taken back whole, although pages have left the windows. */
static void rewind__of_a_cancelled_prompt(void **state) {
    const fixture *f = *state;
    weir_model *model = NULL;
    weir_token tokens[100];
    assert_ok(weir_model_open(f->runtime, WINDOW_MODEL, NULL, &model));
    const variant v = {"arkvale", OPTIONS(kTop), 112, 0};
    weir_session *moved = session_of(model, &v), *stayed = session_of(model, &v);
    advance(moved, 140);
    advance(stayed, 140);
    for (uint32_t i = 0; i < 100; ++i) tokens[i] = token(700 + i);
    assert_error(weir_session_prefill(moved, tokens, 100, stop_at_64, NULL), WEIR_ERR_CANCELLED, "");
    assert_int_equal(stats_of(moved).n_tokens, 140);
    assert_same_logits(moved, stayed, 140);
    go_on_together(moved, stayed, 140, 30);
    weir_session_destroy(moved);
    weir_session_destroy(stayed);
    weir_model_close(model);
}

/* They are the first that a full store drops: what steps attend is that of a store without them. */
static void rewind__windows_of_a_full_store(void **state) {
    const fixture *f = *state;
    weir_model *model = NULL;
    assert_ok(weir_model_open(f->runtime, WINDOW_MODEL, NULL, &model));
    variant v = {"arkvale", OPTIONS(kTop), 112, 0};
    weir_session *whole = session_of(model, &v);
    v.spill_bytes = 24 * (4096 + 512); /* all pages of the layer that sees everything, and a few others */
    weir_session *session = session_of(model, &v);
    for (uint32_t i = 0; i < 300; ++i) {
        assert_ok(weir_session_step(session, token(i)));
        assert_ok(weir_session_step(whole, token(i)));
        assert_same_logits(session, whole, i);
    }
    assert_int_equal(stats_of(session).pages_dropped, 0);
    assert_error(weir_session_rewind(session, 60, 0), WEIR_ERR_NOT_FOUND, "whose window has moved on");
    assert_ok(weir_session_rewind(session, 240, 0));
    assert_ok(weir_session_rewind(whole, 240, 0));
    go_on_together(session, whole, 240, 30);
    assert_ok(weir_session_rewind(session, 60, WEIR_REWIND_LOSSY));
    assert_at(session, 60);
    detour(session, 50, 50);
    weir_session_destroy(session);
    weir_session_destroy(whole);
    weir_model_close(model);
}

static weir_status look_at_stamps(void *user, const weir_trace_layer *layer) {
    for (uint32_t i = 0; i < layer->n_kv_heads; ++i) {
        for (uint32_t row = 0; row < layer->n_pages[i]; ++row)
            assert_true(layer->stamp[i * layer->capacity + row] <= layer->n_tokens);
    }
    ++*(uint32_t *)user;
    return WEIR_OK;
}

/* A page that was wanted by a step that is gone must not look as if it were wanted by one that is still to come. */
static void rewind__stamps_are_not_of_the_future(void **state) {
    const fixture *f = *state;
    static const char *const policies[] = {"raas", "arkvale"};
    const weir_session_trace_fn set_trace = (weir_session_trace_fn)weir_get_experimental("weir_session_trace");
    for (size_t p = 0; p < 2; ++p) {
        weir_session *session = NULL;
        weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
        uint32_t n_calls = 0;
        options.device = WEIR_DEVICE_CPU;
        options.flags = WEIR_SESSION_TRACE;
        options.policy = policies[p];
        options.budget_tokens = 256;
        options.context_tokens = kContext;
        assert_ok(weir_session_create(f->model, &options, &session));
        advance(session, 150);
        detour(session, 60, 0);
        assert_ok(weir_session_rewind(session, 140, WEIR_REWIND_LOSSY));
        assert_ok(set_trace(session, look_at_stamps, &n_calls));
        detour(session, 2, 0);
        assert_true(n_calls > 2);
        weir_session_destroy(session);
    }
}

typedef struct answer {
    char text[512];
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

/* Penalties look at the tokens that are left, and the text begins anew. */
static void rewind__sampler_and_text(void **state) {
    const fixture *f = *state;
    const variant dense = {"dense", NULL, 0, 0, 0};
    weir_session *moved = session_of(f->model, &dense), *stayed = session_of(f->model, &dense);
    weir_session *const both[] = {moved, stayed};
    answer answers[2] = {{{0}, 0}, {{0}, 0}};
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    sampling.temperature = 1.5f;
    sampling.repeat_penalty = 3.0f;
    sampling.repeat_last_n = 40;
    sampling.seed = 7;
    for (size_t i = 0; i < 2; ++i) {
        assert_ok(weir_session_set_sampling(both[i], &sampling));
        prefill(both[i], 0, 60);
    }
    detour(moved, 25, 0);
    assert_ok(weir_session_rewind(moved, 60, 0));
    for (size_t i = 0; i < 2; ++i) {
        weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
        assert_ok(weir_session_step(both[i], token(60)));
        options.flags = WEIR_GENERATE_IGNORE_EOS;
        options.max_tokens = 40;
        options.on_token = take_text;
        options.user = &answers[i];
        assert_ok(weir_session_generate(both[i], &options, NULL));
    }
    assert_true(answers[0].n > 10);
    assert_memory_equal(&answers[0], &answers[1], sizeof(answers[0]));
    /* The random state goes on: the same rewind gives another answer. */
    answers[1] = (answer){{0}, 0};
    assert_ok(weir_session_rewind(moved, 60, 0));
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    assert_ok(weir_session_step(moved, token(60)));
    options.flags = WEIR_GENERATE_IGNORE_EOS;
    options.max_tokens = 40;
    options.on_token = take_text;
    options.user = &answers[1];
    assert_ok(weir_session_generate(moved, &options, NULL));
    assert_memory_not_equal(answers[0].text, answers[1].text, 20);
    weir_session_destroy(moved);
    weir_session_destroy(stayed);
}

int main(void) {
    /* what these tests expect depends on the weights */
    const struct CMUnitTest of_a_real_model[] = {
        cmocka_unit_test(rewind__with_a_store_finds_what_left),
        cmocka_unit_test(rewind__lossy_where_streams_differ),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rewind__has_the_bits_of_never_having_gone),
        cmocka_unit_test(rewind__by_a_few_tokens),
        cmocka_unit_test(rewind__refuses),
        cmocka_unit_test(rewind__a_busy_session_and_a_pending_cancel),
        cmocka_unit_test(rewind__lossy_always_can),
        cmocka_unit_test(rewind__into_dropped_pages),
        cmocka_unit_test(rewind__windows),
        cmocka_unit_test(rewind__windows_with_recall),
        cmocka_unit_test(rewind__of_a_cancelled_prompt),
        cmocka_unit_test(rewind__windows_of_a_full_store),
        cmocka_unit_test(rewind__stamps_are_not_of_the_future),
        cmocka_unit_test(rewind__sampler_and_text),
    };
    return cmocka_run_group_tests_name("api/rewind", tests, open_long_run_fixture, close_fixture) +
           cmocka_run_group_tests_name("api/rewind, real weights", of_a_real_model, open_fixture, close_fixture);
}
