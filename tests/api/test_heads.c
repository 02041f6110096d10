/* api: sessions with a head file. The plan is exact, a fork and a restored session go on alike, a rewind knows what has
 * left, and a file that is missing or wrong is refused with nothing taken. */
#include <stdio.h>

#include "save_test.h"

#define HEAD_FILE "heads_test.tsv"
enum { kVocab = 272, kContext = 400, kTokens = 300, kSinks = 20, kRecent = 50 };

static void write_heads(const char *text) {
    FILE *f = fopen(HEAD_FILE, "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* The model's shape and scores that fall from head to head. */
static void write_scores(const weir_model *model, uint32_t layers) {
    char text[1024];
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    assert_ok(weir_model_get_info(model, &info));
    int n = snprintf(text, sizeof(text),
                     "weir-heads\t1\nlayers\t%u\nkv_heads\t%u\nhead_dim\t%u\nsinks\t%u\nrecent\t%u\n",
                     layers != 0 ? layers : info.n_layers, info.n_kv_heads, info.head_dim, kSinks, kRecent);
    const uint32_t n_scores = info.n_layers * info.n_kv_heads;
    for (uint32_t i = 0; i < n_scores; ++i) {
        n += snprintf(text + n, sizeof(text) - (size_t)n, "%g%c", 1.0 - 0.5 * i / n_scores,
                      (i + 1) % info.n_kv_heads == 0 ? '\n' : '\t');
    }
    write_heads(text);
}

static const weir_key_value kDuo[] = {{"heads", "duo"}, {"heads_file", HEAD_FILE}, {"heads_sparsity", "0.5"}};

static weir_session_options heads_of(const char *policy, uint32_t budget) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = WEIR_DEVICE_CPU;
    options.policy = policy;
    options.policy_options = kDuo;
    options.n_policy_options = 3;
    options.budget_tokens = budget;
    options.context_tokens = kContext;
    options.batch_tokens = 32;
    return options;
}

static weir_session *create(const fixture *f, const weir_session_options *options) {
    weir_session *session = NULL;
    assert_ok(weir_session_create(f->model, options, &session));
    return session;
}

static weir_token token_of(int i) { return 3 + i * 37 % (kVocab - 10); }

static void read_prompt(weir_session *session, int first, int n) {
    weir_token tokens[kTokens];
    for (int i = 0; i < n; ++i) tokens[i] = token_of(first + i);
    assert_ok(weir_session_prefill(session, tokens, (uint64_t)n, NULL, NULL));
}

static void go_on(weir_session *session, int first, int n, float *out) {
    const float *logits = NULL;
    uint32_t n_logits = 0;
    for (int i = 0; i < n; ++i) assert_ok(weir_session_step(session, token_of(first + i)));
    assert_ok(weir_session_logits(session, &logits, &n_logits));
    assert_int_equal(n_logits, kVocab);
    memcpy(out, logits, kVocab * sizeof(*out));
}

/* 2 pages of sinks, and a window of 50 with a chunk of 32: at most 6 pages. */
static void heads__the_plan_is_exact(void **state) {
    const fixture *f = *state;
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    assert_ok(weir_model_get_info(f->model, &info));
    const uint32_t n_streams = info.n_layers * info.n_kv_heads, n_heads = (n_streams + 1) / 2;
    write_scores(f->model, 0);
    const struct {
        const char *policy;
        uint32_t budget, pages;
    } rows[] = {{"dense", 0, 25}, {"raas", 160, 10}, {"raas", 112, 7}, {"random", 96, 6}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        const weir_session_options options = heads_of(rows[i].policy, rows[i].budget);
        weir_plan_info plan = WEIR_PLAN_INFO_INIT;
        weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
        weir_session_stats stats = WEIR_SESSION_STATS_INIT;
        assert_ok(weir_plan(f->model, &options, &plan));
        assert_int_equal(plan.n_streams, n_streams);
        assert_int_equal(plan.n_head_streams, n_heads);
        assert_int_equal(plan.head_pages_per_stream, 2 + 6);
        assert_int_equal(plan.pages_per_stream, rows[i].pages);
        assert_int_equal(plan.head_kv_bytes, n_heads * 8 * plan.page_bytes);
        assert_int_equal(plan.kv_bytes, (n_streams - n_heads) * rows[i].pages * plan.page_bytes + plan.head_kv_bytes);
        weir_session *session = create(f, &options);
        read_prompt(session, 0, 200);
        for (int k = 200; k < kTokens; ++k) assert_ok(weir_session_step(session, token_of(k)));
        assert_ok(weir_session_memory(session, &memory));
        assert_int_equal(memory.peak_bytes, plan.total_bytes);
        assert_int_equal(memory.kv_budget_bytes, plan.kv_bytes);
        assert_int_equal(memory.allocs_while_decoding, 0);
        assert_true(memory.kv_peak_bytes <= plan.kv_bytes);
        /* 300 tokens: the window of the next one begins at 251, in page 15 of 19. */
        assert_ok(weir_session_get_stats(session, &stats));
        const uint32_t ruled = rows[i].budget == 0 ? 19 : rows[i].pages;
        assert_int_equal(stats.pages_resident, (n_streams - n_heads) * ruled + n_heads * (2 + 4));
        weir_session_destroy(session);
    }
}

static void heads__forked_and_restored_sessions_go_on(void **state) {
    const fixture *f = *state;
    write_scores(f->model, 0);
    const char *policies[] = {"dense", "raas", "quest"};
    for (size_t i = 0; i < 3; ++i) {
        const weir_session_options options = heads_of(policies[i], i == 0 ? 0 : 128);
        float want[kVocab], got[kVocab];
        weir_session *session = create(f, &options), *other = create(f, &options), *fork = NULL;
        read_prompt(session, 0, 150);
        go_on(session, 150, 43, got); /* 193: the next step takes a page out of the windows */
        file saved_session = saved(session);
        assert_ok(weir_session_fork(session, &fork));
        go_on(session, 193, 60, want);
        go_on(fork, 193, 60, got);
        assert_memory_equal(got, want, sizeof(want));
        assert_ok(restore_from(other, &saved_session));
        go_on(other, 193, 60, got);
        assert_memory_equal(got, want, sizeof(want));
        /* A session whose other heads stream is another one. */
        weir_key_value more[3] = {kDuo[0], kDuo[1], {"heads_sparsity", "0.25"}};
        weir_session_options changed = options;
        changed.policy_options = more;
        weir_session *stranger = create(f, &changed);
        assert_error(restore_from(stranger, &saved_session), WEIR_ERR_UNSUPPORTED, "heads");
        free(saved_session.bytes);
        weir_session_destroy(stranger);
        weir_session_destroy(session);
        weir_session_destroy(other);
        weir_session_destroy(fork);
    }
}

/* Back to where the window still has its pages, but no further. */
static void heads__rewind(void **state) {
    const fixture *f = *state;
    write_scores(f->model, 0);
    const weir_session_options options = heads_of("dense", 0);
    float want[kVocab], got[kVocab];
    weir_session *session = create(f, &options), *other = create(f, &options);
    read_prompt(session, 0, 160);
    go_on(session, 160, 10, got);
    go_on(other, 0, 165, got);
    assert_ok(weir_session_rewind(session, 165, 0));
    go_on(session, 165, 5, got);
    go_on(other, 165, 5, want);
    assert_error(weir_session_rewind(session, 100, 0), WEIR_ERR_NOT_FOUND, "whose window has moved on");
    weir_session_destroy(session);
    weir_session_destroy(other);
    /* A short conversation has all its pages. */
    session = create(f, &options);
    other = create(f, &options);
    read_prompt(session, 0, 60);
    assert_ok(weir_session_rewind(session, 7, 0));
    read_prompt(session, 7, 20);
    read_prompt(other, 0, 27);
    go_on(session, 27, 1, got);
    go_on(other, 27, 1, want);
    for (int i = 0; i < kVocab; ++i) assert_float_equal(got[i], want[i], 1e-3f);
    weir_session_destroy(session);
    weir_session_destroy(other);
}

static void expect_refusal(const fixture *f, const weir_session_options *options, weir_status status,
                           const char *text) {
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    weir_memory_counters before = WEIR_MEMORY_COUNTERS_INIT, after = WEIR_MEMORY_COUNTERS_INIT;
    weir_session *session = NULL;
    assert_ok(weir_runtime_memory(f->runtime, &before));
    assert_error(weir_plan(f->model, options, &plan), status, text);
    assert_error(weir_session_create(f->model, options, &session), status, text);
    assert_null(session);
    assert_ok(weir_runtime_memory(f->runtime, &after));
    assert_int_equal(after.bytes, before.bytes);
}

static void heads__bad_files_take_nothing(void **state) {
    const fixture *f = *state;
    weir_session_options options = heads_of("dense", 0);
    (void)remove(HEAD_FILE);
    expect_refusal(f, &options, WEIR_ERR_IO, HEAD_FILE);
    write_heads("");
    expect_refusal(f, &options, WEIR_ERR_IO, "empty");
    write_heads("weir-heads\t1\nlayers\t4\nkv_hea");
    expect_refusal(f, &options, WEIR_ERR_FORMAT, "line 3");
    write_heads("weir-heads\t7\n");
    expect_refusal(f, &options, WEIR_ERR_UNSUPPORTED, "version 7");
    write_heads("weir-heads\t1\nlayers\t1\nkv_heads\t2\nhead_dim\t8\nsinks\t4\nrecent\t64\n0.5\tnan\n");
    expect_refusal(f, &options, WEIR_ERR_FORMAT, "line 7: score 2");
    write_heads("weir-heads\t1\nlayers\t1\nkv_heads\t2\nhead_dim\t8\nsinks\t4\nrecent\t64\n0.5\t1\n");
    expect_refusal(f, &options, WEIR_ERR_INVALID_ARG, "for a model of 1 layers");
    write_scores(f->model, 0);
    options.spill_budget_bytes = 1 << 20;
    options.policy = "raas";
    options.budget_tokens = 128;
    expect_refusal(f, &options, WEIR_ERR_UNSUPPORTED, "spill_budget_bytes");
    options.spill_budget_bytes = 0;
    options.device = WEIR_DEVICE_AUTO; /* any device has such streams */
    weir_session *session = create(f, &options);
    weir_session_destroy(session);
}

/* A budget in bytes is for all streams. */
static void heads__a_budget_in_bytes_holds(void **state) {
    const fixture *f = *state;
    write_scores(f->model, 0);
    weir_session_options options = heads_of("raas", 0);
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    for (uint64_t bytes = 1 << 14; bytes <= 1 << 21; bytes += 1234) {
        options.budget_bytes = bytes;
        if (weir_plan(f->model, &options, &plan) == WEIR_OK) {
            assert_true(plan.kv_bytes <= bytes);
        } else {
            assert_non_null(strstr(weir_last_error(), "budget"));
        }
    }
    assert_ok(weir_plan(f->model, &options, &plan)); /* the last one is enough */
}

static int open_small(void **state) { return open_fixture_of(SMALL_MODEL, state); }

static int close_small(void **state) {
    (void)remove(HEAD_FILE);
    return close_fixture(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads__the_plan_is_exact),
        cmocka_unit_test(heads__forked_and_restored_sessions_go_on),
        cmocka_unit_test(heads__rewind),
        cmocka_unit_test(heads__bad_files_take_nothing),
        cmocka_unit_test(heads__a_budget_in_bytes_holds),
    };
    return cmocka_run_group_tests_name("api_heads", tests, open_small, close_small);
}
