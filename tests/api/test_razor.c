/* api: sessions with compensation tokens (heads=razor). The plan is exact, a fork and a restored session go on bit by
 * bit, a rewind leaves no sums of tokens that are gone, and a saved session with sums that cannot be is refused. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "save_test.h"

#define HEAD_FILE "razor_test.tsv"
enum { kContext = 400, kRecent = 50 };

/* All scores are equal: which heads stream follows from the shares alone. */
static void write_scores(const weir_model *model, uint32_t sinks) {
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    assert_ok(weir_model_get_info(model, &info));
    FILE *f = fopen(HEAD_FILE, "wb");
    assert_non_null(f);
    fprintf(f, "weir-heads\t2\nlayers\t%u\nkv_heads\t%u\nhead_dim\t%u\nsinks\t%u\nrecent\t%u\n", info.n_layers,
            info.n_kv_heads, info.head_dim, sinks, kRecent);
    const char *tables[] = {"", "echo\n", "induction\n"};
    for (int table = 0; table < 3; ++table) {
        fputs(tables[table], f);
        for (uint32_t i = 0; i < info.n_layers * info.n_kv_heads; ++i)
            fprintf(f, "0.5%c", (i + 1) % info.n_kv_heads == 0 ? '\n' : '\t');
    }
    assert_int_equal(fclose(f), 0);
}

/* Half of the heads stream, or all. */
static weir_key_value half[] = {{"heads", "razor"},
                                {"heads_file", HEAD_FILE},
                                {"heads_echo", "0"},
                                {"heads_context_part", "0"},
                                {"heads_compensate", "on"},
                                {"heads_induction", "0.5"}};
static weir_key_value all[] = {{"heads", "razor"},
                               {"heads_file", HEAD_FILE},
                               {"heads_echo", "0"},
                               {"heads_context_part", "0"},
                               {"heads_compensate", "on"},
                               {"heads_induction", "0"}};
enum { kOptions = 6, kCompensate = 4 };

static weir_session_options options_with(const char *policy, weir_key_value *heads, uint32_t budget) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = WEIR_DEVICE_CPU;
    options.policy = policy;
    options.policy_options = heads;
    options.n_policy_options = kOptions;
    options.budget_tokens = budget;
    options.context_tokens = kContext;
    options.batch_tokens = 32;
    return options;
}

static void steps(weir_session *session, uint32_t first, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) assert_ok(weir_session_step(session, token(first + i)));
}

static uint64_t rounded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Beside what duo has: per stream two numbers and the sums, one more of these, and log-sum-exps of a chunk's rows. */
static void razor__the_plan_is_exact(void **state) {
    const fixture *f = *state;
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    assert_ok(weir_model_get_info(f->model, &info));
    const uint64_t n_heads = info.n_layers * info.n_kv_heads / 2, sums = 2 * info.head_dim * sizeof(float);
    write_scores(f->model, 20);
    const char *policies[] = {"dense", "raas", "h2o"};
    for (int i = 0; i < 3; ++i) {
        const weir_session_options options = options_with(policies[i], half, i == 0 ? 0 : 160);
        weir_plan_info plan = WEIR_PLAN_INFO_INIT, without = WEIR_PLAN_INFO_INIT;
        weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
        half[kCompensate].value = "off";
        assert_ok(weir_plan(f->model, &options, &without));
        half[kCompensate].value = "on";
        assert_ok(weir_plan(f->model, &options, &plan));
        assert_int_equal(plan.n_head_streams, n_heads);
        assert_int_equal(plan.kv_bytes, without.kv_bytes);
        assert_int_equal(plan.table_bytes - without.table_bytes,
                         rounded(n_heads * 8) + rounded(n_heads * sums) + rounded(sums));
        /* The other two look at prompts, and have them anyway. */
        assert_int_equal(plan.workspace_bytes - without.workspace_bytes,
                         i == 0 ? rounded(32 * info.n_heads * sizeof(float)) : 0);
        assert_int_equal(plan.total_bytes - without.total_bytes,
                         plan.table_bytes - without.table_bytes + plan.workspace_bytes - without.workspace_bytes);
        weir_session *session = session_with(f->model, &options);
        prefill(session, 0, 200);
        steps(session, 200, 60);
        assert_ok(weir_session_memory(session, &memory));
        assert_int_equal(memory.peak_bytes, plan.total_bytes);
        assert_int_equal(memory.allocs_while_decoding, 0);
        weir_session_destroy(session);
    }
}

/* The second row has no sinks: then pages that are about to leave are saved, too. */
static void razor__forked_and_restored_sessions_go_on(void **state) {
    const fixture *f = *state;
    const struct {
        const char *policy;
        uint32_t budget, sinks;
    } rows[] = {{"dense", 0, 20}, {"dense", 0, 0}, {"raas", 128, 20}, {"quest", 128, 4}, {"psa", 0, 20}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        write_scores(f->model, rows[i].sinks);
        const weir_session_options options = options_with(rows[i].policy, half, rows[i].budget);
        weir_session *session = session_with(f->model, &options), *other = session_with(f->model, &options),
                     *fork = NULL;
        prefill(session, 0, 150);
        steps(session, 150, 43); /* 193: the next step takes a page out of the windows */
        file whole = saved(session);
        assert_ok(weir_session_fork(session, &fork));
        prefill(other, 7, 90); /* what it had before is gone */
        assert_ok(restore_from(other, &whole));
        steps(session, 300, 60);
        steps(fork, 300, 60);
        steps(other, 300, 60);
        assert_same_logits(fork, session, "forked");
        assert_same_logits(other, session, "restored");
        half[kCompensate].value = "off";
        weir_session *stranger = session_with(f->model, &options);
        half[kCompensate].value = "on";
        assert_error(restore_from(stranger, &whole), WEIR_ERR_UNSUPPORTED, "heads_compensate");
        free(whole.bytes);
        weir_session_destroy(stranger);
        weir_session_destroy(session);
        weir_session_destroy(other);
        weir_session_destroy(fork);
    }
}

/* After `prompt` tokens read at once and `n` steps: whether the compensation token makes a difference. */
static int differs(const fixture *f, uint32_t prompt, uint32_t n) {
    const weir_session_options options = options_with("dense", all, 0);
    weir_session *session = session_with(f->model, &options);
    all[kCompensate].value = "off";
    weir_session *without = session_with(f->model, &options);
    all[kCompensate].value = "on";
    const float *x = NULL, *y = NULL;
    uint32_t n_logits = 0;
    prefill(session, 0, prompt);
    prefill(without, 0, prompt);
    steps(session, prompt, n);
    steps(without, prompt, n);
    assert_ok(weir_session_logits(session, &x, &n_logits));
    assert_ok(weir_session_logits(without, &y, &n_logits));
    const int differ = memcmp(x, y, n_logits * sizeof(*x)) != 0;
    weir_session_destroy(session);
    weir_session_destroy(without);
    return differ;
}

/* 16 sinks and a window of 50: position 66 is the first that does not see token 16. */
static void razor__prompts_and_steps_have_the_token(void **state) {
    const fixture *f = *state;
    write_scores(f->model, 16);
    assert_false(differs(f, 66, 0));
    assert_true(differs(f, 67, 0));
    assert_false(differs(f, 40, 26));
    assert_true(differs(f, 40, 27));
}

static void razor__a_reset_session_is_a_new_one(void **state) {
    const fixture *f = *state;
    write_scores(f->model, 20);
    const weir_session_options options = options_with("dense", all, 0);
    weir_session *session = session_with(f->model, &options), *other = session_with(f->model, &options);
    prefill(session, 0, 200);
    assert_ok(weir_session_reset(session));
    prefill(session, 50, 100);
    prefill(other, 50, 100);
    assert_same_logits(session, other, "from the same tokens");
    weir_session_destroy(session);
    weir_session_destroy(other);
}

static void razor__rewind(void **state) {
    const fixture *f = *state;
    write_scores(f->model, 16);
    const weir_session_options options = options_with("dense", half, 0);
    weir_session *session = session_with(f->model, &options), *other = session_with(f->model, &options);
    prefill(session, 0, 160);
    prefill(other, 0, 160);
    steps(session, 160, 10);
    steps(other, 160, 5);
    assert_ok(weir_session_rewind(session, 165, 0));
    steps(session, 300, 40);
    steps(other, 300, 40);
    assert_same_logits(session, other, "from the same tokens");
    assert_error(weir_session_rewind(session, 100, 0), WEIR_ERR_NOT_FOUND, "whose window has moved on");
    weir_session_destroy(session);
    weir_session_destroy(other);
    /* A window of one token needs no page of the past, but the sums hold what would be gone. */
    half[2] = (weir_key_value){"heads_recent", "1"};
    session = session_with(f->model, &options);
    prefill(session, 0, 90);
    assert_error(weir_session_rewind(session, 64, 0), WEIR_ERR_NOT_FOUND, "compensation token");
    half[kCompensate].value = "off";
    other = session_with(f->model, &options);
    prefill(other, 0, 90);
    assert_ok(weir_session_rewind(other, 64, 0));
    half[kCompensate].value = "on";
    half[2] = (weir_key_value){"heads_echo", "0"};
    weir_session_destroy(session);
    weir_session_destroy(other);
}

/* Where the pages that a lossy rewind needs have left, so has what the sums were of: they begin anew. All streams hold
 * their first page, and nothing leaves the new windows, so there is no compensation token at all. */
static void razor__a_lossy_rewind_leaves_no_sums_behind(void **state) {
    const fixture *f = *state;
    write_scores(f->model, 16);
    const weir_session_options options = options_with("dense", all, 0);
    weir_session *session = session_with(f->model, &options);
    all[kCompensate].value = "off";
    weir_session *without = session_with(f->model, &options);
    all[kCompensate].value = "on";
    weir_session *both[] = {session, without};
    for (int i = 0; i < 2; ++i) {
        prefill(both[i], 0, 300);
        assert_ok(weir_session_rewind(both[i], 96, WEIR_REWIND_LOSSY));
        steps(both[i], 500, 40);
    }
    assert_same_logits(session, without, "nothing has left the windows");
    weir_session_destroy(session);
    weir_session_destroy(without);
}

/* Where a section begins whose name stands behind a checksum of the section before it. */
static uint64_t section_at(const file *f, const char *name, uint64_t before) {
    for (uint64_t at = before + 12; at + 4 <= f->n; ++at) {
        if (memcmp(f->bytes + at, name, 4) != 0) continue;
        const uint64_t sum = XXH3_64bits(f->bytes + before, at - 8 - before);
        if (memcmp(&sum, f->bytes + at - 8, 8) == 0) return at;
    }
    fail_msg("no section %s", name);
    return 0;
}

/* Sums with checksums that fit. */
static void razor__sums_that_cannot_be_are_refused(void **state) {
    const fixture *f = *state;
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    assert_ok(weir_model_get_info(f->model, &info));
    write_scores(f->model, 16);
    const weir_session_options options = options_with("dense", all, 0);
    weir_session *session = session_with(f->model, &options);
    prefill(session, 0, 200); /* pages 1 to 8 have left: position 191 sees from 142 on */
    steps(session, 200, 1);
    file whole = saved(session);
    const char *names[] = {"DESC", "TOKN", "LOGT", "SAMP", "TEXT", "ROWS", "DIGS"};
    uint64_t at = 24, rows = 0;
    for (int i = 1; i < 7; ++i) {
        rows = at;
        at = section_at(&whole, names[i], at);
    }
    const uint64_t end_at = whole.n - 8, digs = at, last = digs - 8 - 4 - 2 * info.head_dim * 4 - 8;
    uint32_t n = 0, end = 0;
    memcpy(&n, whole.bytes + last, 4);
    memcpy(&end, whole.bytes + last + 4, 4);
    assert_int_equal(n, end - 16);
    assert_true(end >= 128);
    const uint32_t nan = 0x7fc00000;
    const struct {
        uint64_t offset;
        uint32_t value;
    } lies[] = {{0, n + 16},   {0, n - 1}, {0, 0},   {4, end + 16},
                {4, end - 1}, {4, 0},     {8, nan}, {4 + 8 * info.head_dim, nan}};
    for (size_t i = 0; i <= sizeof(lies) / sizeof(lies[0]); ++i) {
        file lie = {0};
        lie.bytes = (unsigned char *)malloc(whole.n);
        assert_non_null(lie.bytes);
        memcpy(lie.bytes, whole.bytes, whole.n);
        lie.n = whole.n;
        if (i > 0) memcpy(lie.bytes + last + lies[i - 1].offset, &lies[i - 1].value, 4);
        uint64_t sum = XXH3_64bits(lie.bytes + rows, digs - 8 - rows);
        memcpy(lie.bytes + digs - 8, &sum, 8);
        sum = XXH3_64bits(lie.bytes, end_at);
        memcpy(lie.bytes + end_at, &sum, 8);
        if (i == 0) {
            assert_ok(restore_from(session, &lie));
        } else {
            assert_error(restore_from(session, &lie), WEIR_ERR_FORMAT, "has sums of");
            assert_int_equal(stats_of(session).n_tokens, 0);
        }
        free(lie.bytes);
    }
    free(whole.bytes);
    weir_session_destroy(session);
}

static void razor__a_device_refuses_it(void **state) {
    const fixture *f = *state;
    write_scores(f->model, 16);
    weir_session_options options = options_with("dense", half, 0);
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    options.device = WEIR_DEVICE_AUTO;
    assert_ok(weir_plan(f->model, &options, &plan));
    options.device = WEIR_DEVICE_CPU;
    options.spill_budget_bytes = 1 << 20;
    options.policy = "raas";
    options.budget_tokens = 128;
    assert_error(weir_plan(f->model, &options, &plan), WEIR_ERR_UNSUPPORTED, "spill_budget_bytes");
}

static int open_small(void **state) { return open_fixture_of(SMALL_MODEL, state); }

static int close_small(void **state) {
    (void)remove(HEAD_FILE);
    return close_fixture(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(razor__the_plan_is_exact),
        cmocka_unit_test(razor__forked_and_restored_sessions_go_on),
        cmocka_unit_test(razor__prompts_and_steps_have_the_token),
        cmocka_unit_test(razor__a_reset_session_is_a_new_one),
        cmocka_unit_test(razor__rewind),
        cmocka_unit_test(razor__a_lossy_rewind_leaves_no_sums_behind),
        cmocka_unit_test(razor__sums_that_cannot_be_are_refused),
        cmocka_unit_test(razor__a_device_refuses_it),
    };
    return cmocka_run_group_tests_name("api_razor", tests, open_small, close_small);
}
