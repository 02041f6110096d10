/* api: turning text into tokens tells how far it is and can be stopped, in ordinary text, in one long word and in a
 * conversation of many messages; what it gives is what it gives without. */
#include "api_test.h"

#define TEXT_BYTES (1u << 20)
#define N_MESSAGES 20000
#define MOST_BETWEEN (256u << 10) /* bytes between two calls, of which four are announced */

typedef struct listener {
    uint64_t n_calls, last, total, stop_at; /* stop_at: number of the call that is refused; 0: none */
    uint64_t max_between;
} listener;

static weir_status listen(void *user, const weir_progress_info *info) {
    listener *l = user;
    assert_true(info->struct_size >= sizeof(*info));
    if (l->n_calls == 0) {
        l->total = info->total;
        assert_int_equal(info->done, 0);
    }
    assert_int_equal(info->total, l->total);
    assert_true(info->done >= l->last && info->done - l->last <= l->max_between && info->done <= info->total);
    l->last = info->done;
    return ++l->n_calls == l->stop_at ? WEIR_ERR_INTERNAL : WEIR_OK;
}

typedef enum kind { WORDS, ONE_WORD, CHAT } kind;

static char text[TEXT_BYTES];
static weir_chat_message messages[N_MESSAGES];

static void write_input(kind k) {
    static const char words[] = "What is the hat of 12 men? A ";
    for (size_t i = 0; i < TEXT_BYTES; ++i) text[i] = k == ONE_WORD ? (char)('a' + i % 7) : words[i % 29];
    for (size_t i = 0; i < N_MESSAGES; ++i) {
        messages[i].role = i % 2 == 0 ? "user" : "assistant";
        messages[i].content = text + i * 29;
        messages[i].content_bytes = 29;
    }
}

static weir_status tokenize(const weir_model *model, kind k, listener *l, weir_token *tokens, uint64_t capacity,
                            uint64_t *n) {
    if (k == CHAT) {
        weir_chat_options options = WEIR_CHAT_OPTIONS_INIT;
        if (l != NULL) options.progress = listen;
        options.progress_user = l;
        return weir_chat_tokenize(model, messages, N_MESSAGES, &options, tokens, capacity, n);
    }
    if (l == NULL) return weir_tokenize(model, text, TEXT_BYTES, 0, tokens, capacity, n);
    weir_tokenize_options options = WEIR_TOKENIZE_OPTIONS_INIT;
    options.progress = listen;
    options.progress_user = l;
    return weir_tokenize_with(model, text, TEXT_BYTES, &options, tokens, capacity, n);
}

static void tokenize__tells_and_can_be_stopped(void **state) {
    const fixture *f = *state;
    static weir_token want[TEXT_BYTES * 2], got[TEXT_BYTES * 2];
    for (kind k = WORDS; k <= CHAT; ++k) {
        uint64_t n_want = 0, n_got = 0;
        listener all = {0, 0, 0, 0, k == ONE_WORD ? TEXT_BYTES : MOST_BETWEEN}; /* a word counts when it is done */
        weir_memory_counters before = WEIR_MEMORY_COUNTERS_INIT, after = WEIR_MEMORY_COUNTERS_INIT;
        write_input(k);
        assert_ok(tokenize(f->model, k, NULL, want, TEXT_BYTES * 2, &n_want));
        assert_ok(weir_runtime_memory(f->runtime, &before));
        assert_ok(tokenize(f->model, k, &all, got, TEXT_BYTES * 2, &n_got));
        assert_int_equal(n_got, n_want);
        assert_memory_equal(got, want, n_want * sizeof(*want));
        assert_int_equal(all.last, all.total);
        assert_true(all.total >= N_MESSAGES * 29);
        assert_true(all.n_calls >= all.total / MOST_BETWEEN);
        for (uint64_t stop_at = 1; stop_at <= all.n_calls; stop_at += stop_at < 4 ? 1 : all.n_calls / 5) {
            listener some = {0, 0, 0, 0, all.max_between};
            some.stop_at = stop_at;
            got[0] = -9;
            n_got = 77;
            assert_error(tokenize(f->model, k, &some, got, TEXT_BYTES * 2, &n_got), WEIR_ERR_CANCELLED,
                         "tokenizing was cancelled by its progress callback");
            assert_int_equal(some.n_calls, stop_at);
            assert_int_equal(got[0], -9);
            assert_int_equal(n_got, 77);
        }
        assert_ok(weir_runtime_memory(f->runtime, &after));
        assert_int_equal(after.bytes, before.bytes);
    }
}

static void tokenize__options(void **state) {
    const fixture *f = *state;
    weir_tokenize_options options;
    uint64_t n = 0;
    weir_token tokens[64];
    assert_int_equal(weir_tokenize_options_init(NULL, sizeof(options)), WEIR_ERR_INVALID_ARG);
    assert_int_equal(weir_tokenize_options_init(&options, 4), WEIR_ERR_INVALID_ARG);
    assert_ok(weir_tokenize_options_init(&options, sizeof(options)));
    assert_int_equal(options.flags, 0);
    assert_true(options.progress == NULL);
    assert_ok(weir_tokenize_with(f->model, "hat", 3, NULL, tokens, 64, &n));
    assert_ok(weir_tokenize_with(f->model, "hat", 3, &options, tokens, 64, &n));
    options.flags = 1u << 20;
    assert_error(weir_tokenize_with(f->model, "hat", 3, &options, tokens, 64, &n), WEIR_ERR_INVALID_ARG,
                 "weir_tokenize_with: flags");
    options.flags = 0;
    options.struct_size = 3;
    assert_int_equal(weir_tokenize_with(f->model, "hat", 3, &options, tokens, 64, &n), WEIR_ERR_INVALID_ARG);
    assert_error(weir_tokenize_with(NULL, "hat", 3, NULL, tokens, 64, &n), WEIR_ERR_INVALID_ARG, "model is NULL");
    assert_error(weir_tokenize_with(f->model, NULL, 3, NULL, tokens, 64, &n), WEIR_ERR_INVALID_ARG, "text is NULL");
    assert_error(weir_tokenize_with(f->model, "hat", 3, NULL, tokens, 64, NULL), WEIR_ERR_INVALID_ARG, "n_tokens");
    assert_error(weir_tokenize_with(f->model, "hat", 3, NULL, NULL, 64, &n), WEIR_ERR_INVALID_ARG, "tokens is NULL");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokenize__tells_and_can_be_stopped),
        cmocka_unit_test(tokenize__options),
    };
    return cmocka_run_group_tests_name("api_tokenize", tests, open_fixture, close_fixture);
}
