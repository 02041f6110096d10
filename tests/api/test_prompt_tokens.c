/* api: a session is made to hold exactly some tokens: what it keeps, what it reads, and that it then is what a session
 * is that was fed these tokens. */
#include "api_test.h"

enum { kContext = 1024, kMax = 900 };

static weir_session *new_session(const fixture *f, const char *policy, uint32_t budget) {
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = WEIR_DEVICE_CPU;
    options.policy = policy;
    options.context_tokens = kContext;
    options.budget_tokens = budget;
    assert_ok(weir_session_create(f->model, &options, &session));
    return session;
}

static weir_token token(uint32_t i) { return (weir_token)(i * 2654435761u % 150 + 40); }

static void fill(weir_token *tokens, uint32_t first, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) tokens[i] = token(first + i);
}

static weir_session_stats stats_of(const weir_session *session) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    return stats;
}

static void assert_same_state(weir_session *a, weir_session *b) {
    const weir_token *of_a = NULL, *of_b = NULL;
    uint32_t n_a = 0, n_b = 0;
    assert_ok(weir_session_tokens(a, &of_a, &n_a));
    assert_ok(weir_session_tokens(b, &of_b, &n_b));
    assert_int_equal(n_a, n_b);
    assert_memory_equal(of_a, of_b, n_a * sizeof(weir_token));
    for (int i = 0; i < 3; ++i) {
        const float *x = NULL, *y = NULL;
        uint32_t n = 0;
        assert_ok(weir_session_logits(a, &x, &n));
        assert_ok(weir_session_logits(b, &y, NULL));
        assert_memory_equal(x, y, n * sizeof(float));
        assert_ok(weir_session_step(a, token(700)));
        assert_ok(weir_session_step(b, token(700)));
    }
}

static void assert_report(const weir_prompt_report *r, uint32_t n_kept, uint32_t n_read, uint32_t n_forgotten) {
    assert_int_equal(r->n_kept, n_kept);
    assert_int_equal(r->n_read, n_read);
    assert_int_equal(r->n_tokens, n_kept + n_read);
    assert_int_equal(r->n_forgotten, n_forgotten);
}

/* A first prompt, the next turn, an edit, the same again, and another answer, each beside a session that is fed by
 * hand what then has to be read. */
static void prompt__a_conversation(void **state) {
    const fixture *f = *state;
    static const char *const policies[] = {"dense", "quest", "arkvale"};
    for (size_t p = 0; p < 3; ++p) {
        weir_token tokens[kMax];
        weir_prompt_report r = WEIR_PROMPT_REPORT_INIT;
        weir_session *session = new_session(f, policies[p], p == 0 ? 0 : 512), *other = NULL;
        fill(tokens, 0, 300);
        assert_ok(weir_session_prompt_tokens(session, tokens, 100, NULL, &r));
        assert_report(&r, 0, 100, 0);
        assert_ok(weir_session_prompt_tokens(session, tokens, 170, NULL, &r));
        assert_report(&r, 100, 70, 0);
        assert_ok(weir_session_prompt_tokens(session, tokens, 170, NULL, &r)); /* nothing to do */
        assert_report(&r, 170, 0, 0);
        assert_int_equal(stats_of(session).n_prompt, 170);
        assert_int_equal(stats_of(session).n_decode, 0);
        other = new_session(f, policies[p], p == 0 ? 0 : 512);
        assert_ok(weir_session_prefill(other, tokens, 100, NULL, NULL));
        assert_ok(weir_session_prefill(other, tokens + 100, 70, NULL, NULL));
        assert_same_state(session, other);
        weir_session_destroy(other);
        /* an edit, behind which nothing stays */
        tokens[60] = token(999);
        assert_int_not_equal(tokens[60], token(60));
        assert_ok(weir_session_prompt_tokens(session, tokens, 180, NULL, &r));
        assert_report(&r, 60, 120, 113);
        assert_int_equal(r.pages_missing, 0);
        other = new_session(f, policies[p], p == 0 ? 0 : 512);
        assert_ok(weir_session_prefill(other, tokens, 60, NULL, NULL));
        assert_ok(weir_session_prefill(other, tokens + 60, 120, NULL, NULL));
        assert_same_state(session, other);
        weir_session_destroy(other);
        /* another answer to the same: the last token is stepped again for its logits */
        assert_ok(weir_session_prompt_tokens(session, tokens, 180, NULL, &r));
        assert_report(&r, 179, 1, 4);
        other = new_session(f, policies[p], p == 0 ? 0 : 512);
        assert_ok(weir_session_prefill(other, tokens, 60, NULL, NULL));
        assert_ok(weir_session_prefill(other, tokens + 60, 119, NULL, NULL));
        assert_ok(weir_session_step(other, tokens[179]));
        assert_same_state(session, other);
        weir_session_destroy(other);
        /* and to the very first token */
        assert_ok(weir_session_prompt_tokens(session, tokens, 1, NULL, &r));
        assert_report(&r, 0, 1, 183);
        tokens[0] = token(998);
        assert_ok(weir_session_prompt_tokens(session, tokens, 40, NULL, &r));
        assert_report(&r, 0, 40, 1);
        weir_session_destroy(session);
    }
}

/* The text of a token for each of its bytes is that of the word: what was drawn so stays. */
static void prompt__keeps_drawn_tokens(void **state) {
    const fixture *f = *state;
    static const char *const kText = "Start: x0 = 97, x1 = 57.\nWork modulo 100.";
    weir_token wanted[256], drawn[256], mark = -1;
    weir_special_tokens special = WEIR_SPECIAL_TOKENS_INIT;
    uint64_t n_wanted = 0, n_drawn = 0, n = 0;
    assert_ok(weir_model_special_tokens(f->model, &special));
    mark = special.eos;
    assert_true(mark >= 0);
    wanted[0] = drawn[0] = mark;
    assert_ok(weir_tokenize(f->model, kText, strlen(kText), 0, wanted + 1, 200, &n_wanted));
    for (const char *c = kText; *c != '\0'; ++c) {
        assert_ok(weir_tokenize(f->model, c, 1, 0, drawn + 1 + n_drawn, 4, &n));
        n_drawn += n;
    }
    assert_true(n_drawn > n_wanted);
    wanted[1 + n_wanted] = drawn[1 + n_drawn] = mark;
    const uint32_t n_all = (uint32_t)n_drawn + 2;
    weir_session *session = new_session(f, "dense", 0);
    weir_prompt_report r = WEIR_PROMPT_REPORT_INIT;
    assert_ok(weir_session_prefill(session, drawn, n_all, NULL, NULL));
    wanted[2 + n_wanted] = token(5);
    assert_ok(weir_session_prompt_tokens(session, wanted, n_wanted + 3, NULL, &r));
    assert_report(&r, n_all, 1, 0);
    const weir_token *tokens = NULL;
    uint32_t n_tokens = 0;
    assert_ok(weir_session_tokens(session, &tokens, &n_tokens));
    assert_int_equal(n_tokens, n_all + 1);
    assert_memory_equal(tokens, drawn, n_all * sizeof(weir_token));
    /* text that is not the same to its end stays up to a border that both have */
    wanted[n_wanted] = mark;
    assert_ok(weir_session_prompt_tokens(session, wanted, n_wanted + 1, NULL, &r));
    assert_true(r.n_kept > n_wanted && r.n_kept < n_all - 1);
    assert_true(r.n_read >= 1 && r.n_read <= 2);
    weir_session_destroy(session);
}

/* Where pages have left: without them and counted, or all anew. */
static void prompt__over_lost_pages(void **state) {
    const fixture *f = *state;
    static const char *const policies[] = {"sink", "raas", "h2o"};
    for (size_t p = 0; p < 3; ++p) {
        weir_token tokens[kMax];
        weir_prompt_report r = WEIR_PROMPT_REPORT_INIT, measured = WEIR_PROMPT_REPORT_INIT;
        weir_prompt_options options = WEIR_PROMPT_OPTIONS_INIT;
        weir_session *session = new_session(f, policies[p], 192), *fresh = new_session(f, policies[p], 192);
        fill(tokens, 0, 120);
        assert_ok(weir_session_prefill(session, tokens, 90, NULL, NULL));
        for (uint32_t i = 90; i < 600; ++i) assert_ok(weir_session_step(session, token(i)));
        assert_true(stats_of(session).pages_evicted > 0);
        /* what goes on needs nothing that was lost */
        fill(tokens, 0, 610);
        options.flags = WEIR_PROMPT_EXACT;
        assert_ok(weir_session_prompt_tokens(session, tokens, 610, &options, &r));
        assert_report(&r, 600, 10, 0);
        for (uint32_t i = 450; i < 500; ++i) tokens[i] = token(2000 + i);
        options.flags = WEIR_PROMPT_MEASURE;
        assert_ok(weir_session_prompt_tokens(session, tokens, 500, &options, &measured));
        assert_report(&measured, 450, 50, 160);
        assert_true(measured.pages_missing > 0);
        assert_int_equal(stats_of(session).n_tokens, 610);
        assert_ok(weir_session_prompt_tokens(session, tokens, 500, NULL, &r));
        /* the page that is cut was read again where it was lost */
        assert_true(r.pages_missing <= measured.pages_missing && r.pages_missing + 40 > measured.pages_missing);
        measured.pages_missing = r.pages_missing;
        assert_memory_equal(&r, &measured, sizeof(r));
        assert_int_equal(stats_of(session).n_tokens, 500);
        /* exactly: as a new session */
        tokens[100] = token(3000);
        options.flags = WEIR_PROMPT_EXACT | WEIR_PROMPT_MEASURE;
        assert_ok(weir_session_prompt_tokens(session, tokens, 120, &options, &measured));
        assert_report(&measured, 0, 120, 500);
        options.flags = WEIR_PROMPT_EXACT;
        assert_ok(weir_session_prompt_tokens(session, tokens, 120, &options, &r));
        assert_report(&r, 0, 120, 500);
        assert_int_equal(r.pages_missing, 0);
        assert_ok(weir_session_prefill(fresh, tokens, 120, NULL, NULL));
        assert_same_state(session, fresh);
        weir_session_destroy(session);
        weir_session_destroy(fresh);
    }
}

static weir_status stop_second(void *user, const weir_progress_info *info) {
    (void)info;
    return ++*(int *)user == 2 ? WEIR_ERR_CANCELLED : WEIR_OK;
}

static void prompt__cancelled(void **state) {
    const fixture *f = *state;
    weir_token tokens[kMax];
    weir_prompt_report r = WEIR_PROMPT_REPORT_INIT;
    weir_prompt_options options = WEIR_PROMPT_OPTIONS_INIT;
    weir_session *session = NULL, *other = new_session(f, "dense", 0);
    weir_session_options small = WEIR_SESSION_OPTIONS_INIT;
    int n_calls = 0;
    small.device = WEIR_DEVICE_CPU;
    small.context_tokens = kContext;
    small.batch_tokens = 64;
    assert_ok(weir_session_create(f->model, &small, &session));
    fill(tokens, 0, 400);
    assert_ok(weir_session_prefill(session, tokens, 64, NULL, NULL));
    options.progress = stop_second;
    options.progress_user = &n_calls;
    assert_error(weir_session_prompt_tokens(session, tokens, 400, &options, &r), WEIR_ERR_CANCELLED, "progress");
    assert_int_equal(stats_of(session).n_tokens, 64);
    options.progress = NULL;
    weir_session_cancel(session);
    assert_error(weir_session_prompt_tokens(session, tokens, 400, &options, &r), WEIR_ERR_CANCELLED, "cancelled");
    assert_int_equal(stats_of(session).n_tokens, 64);
    assert_ok(weir_session_prompt_tokens(session, tokens, 128, &options, &r));
    assert_report(&r, 64, 64, 0);
    assert_ok(weir_session_prefill(other, tokens, 64, NULL, NULL));
    assert_ok(weir_session_prefill(other, tokens + 64, 64, NULL, NULL));
    assert_same_state(session, other);
    weir_session_destroy(session);
    weir_session_destroy(other);
}

/* A cancel that comes before all is read again is not lost with what is forgotten. */
static void prompt__cancelled_while_all_is_read_again(void **state) {
    const fixture *f = *state;
    weir_token tokens[kMax];
    weir_prompt_options options = WEIR_PROMPT_OPTIONS_INIT;
    weir_session *session = new_session(f, "sink", 192);
    fill(tokens, 0, 600);
    assert_ok(weir_session_prefill(session, tokens, 600, NULL, NULL));
    assert_true(stats_of(session).pages_evicted > 0);
    tokens[300] = token(3000);
    options.flags = WEIR_PROMPT_EXACT;
    weir_session_cancel(session);
    assert_error(weir_session_prompt_tokens(session, tokens, 400, &options, NULL), WEIR_ERR_CANCELLED, "cancelled");
    assert_int_equal(stats_of(session).n_tokens, 0);
    assert_ok(weir_session_prompt_tokens(session, tokens, 400, &options, NULL));
    weir_session_destroy(session);
}

/* A window that has moved on is told, also under dense, and EXACT reads all again. */
static void prompt__over_windows(void **state) {
    const fixture *f = *state;
    weir_token tokens[kMax];
    weir_prompt_report r = WEIR_PROMPT_REPORT_INIT;
    weir_prompt_options options = WEIR_PROMPT_OPTIONS_INIT;
    weir_session *session = new_session(f, "dense", 0), *fresh = new_session(f, "dense", 0);
    for (uint32_t i = 0; i < 400; ++i) tokens[i] = (weir_token)(token(i) % 120 + 4);
    assert_ok(weir_session_prefill(session, tokens, 400, NULL, NULL));
    options.flags = WEIR_PROMPT_MEASURE;
    assert_ok(weir_session_prompt_tokens(session, tokens, 100, &options, &r));
    assert_report(&r, 99, 1, 301);
    assert_true(r.pages_missing > 0);
    options.flags = WEIR_PROMPT_EXACT;
    assert_ok(weir_session_prompt_tokens(session, tokens, 100, &options, &r));
    assert_report(&r, 0, 100, 400);
    assert_ok(weir_session_prefill(fresh, tokens, 100, NULL, NULL));
    const float *x = NULL, *y = NULL;
    uint32_t n = 0;
    assert_ok(weir_session_logits(session, &x, &n));
    assert_ok(weir_session_logits(fresh, &y, NULL));
    assert_memory_equal(x, y, n * sizeof(float));
    weir_session_destroy(session);
    weir_session_destroy(fresh);
}

static int open_windows(void **state) {
    return open_fixture_of(WEIR_SOURCE_DIR "/tests/golden/models/gemma3_f32.gguf", state);
}

static void prompt__bad_calls(void **state) {
    const fixture *f = *state;
    weir_token tokens[kMax + 200];
    weir_prompt_report r = WEIR_PROMPT_REPORT_INIT;
    weir_prompt_options options = WEIR_PROMPT_OPTIONS_INIT;
    weir_session *session = new_session(f, "dense", 0), *other = new_session(f, "dense", 0);
    fill(tokens, 0, kMax + 200);
    assert_ok(weir_session_prefill(session, tokens, 50, NULL, NULL));
    assert_ok(weir_session_prefill(other, tokens, 50, NULL, NULL));
    assert_error(weir_session_prompt_tokens(NULL, tokens, 5, NULL, NULL), WEIR_ERR_INVALID_ARG, "session is NULL");
    assert_error(weir_session_prompt_tokens(session, NULL, 5, NULL, NULL), WEIR_ERR_INVALID_ARG, "tokens is NULL");
    assert_error(weir_session_prompt_tokens(session, tokens, 0, NULL, NULL), WEIR_ERR_INVALID_ARG, "n_tokens is 0");
    options.flags = 64;
    assert_error(weir_session_prompt_tokens(session, tokens, 5, &options, NULL), WEIR_ERR_INVALID_ARG, "flags 0x40");
    options.flags = 0;
    options.reserved = 1;
    assert_error(weir_session_prompt_tokens(session, tokens, 5, &options, NULL), WEIR_ERR_INVALID_ARG, "reserved");
    options.reserved = 0;
    r.struct_size = 1;
    assert_error(weir_session_prompt_tokens(session, tokens, 5, &options, &r), WEIR_ERR_INVALID_ARG, "report");
    r.struct_size = sizeof(r);
    assert_error(weir_session_prompt_tokens(session, tokens, kContext + 1, &options, &r), WEIR_ERR_CONTEXT_FULL,
                 "1024");
    options.reserve_tokens = kContext - 59;
    assert_error(weir_session_prompt_tokens(session, tokens, 60, &options, &r), WEIR_ERR_CONTEXT_FULL, "60 tokens");
    options.reserve_tokens = UINT32_MAX;
    assert_error(weir_session_prompt_tokens(session, tokens, 60, &options, &r), WEIR_ERR_CONTEXT_FULL, "4294967295");
    tokens[20] = 1 << 30;
    assert_error(weir_session_prompt_tokens(session, tokens, 60, NULL, NULL), WEIR_ERR_INVALID_ARG, "1073741824");
    assert_same_state(session, other);
    weir_session_destroy(session);
    weir_session_destroy(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompt__a_conversation), cmocka_unit_test(prompt__keeps_drawn_tokens),
        cmocka_unit_test(prompt__over_lost_pages), cmocka_unit_test(prompt__cancelled),
        cmocka_unit_test(prompt__cancelled_while_all_is_read_again),
        cmocka_unit_test(prompt__bad_calls),
    };
    const struct CMUnitTest of_windows[] = {
        cmocka_unit_test(prompt__over_windows),
    };
    return cmocka_run_group_tests_name("api/prompt_tokens", tests, open_fixture, close_fixture) +
           cmocka_run_group_tests_name("api/prompt_tokens, windows", of_windows, open_windows, close_fixture);
}
