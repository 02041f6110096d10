/* api: answers that are pulled, one event a call, and the texts that end answers. What is pulled is what
 * weir_session_generate makes; an answer can be left at any event and loses no token. */
#include "api_test.h"
#include "weir/experimental.h"

enum { kMaxText = 1 << 14, kMaxTokens = 600 };

typedef struct answer {
    char text[kMaxText];
    size_t n_text;
    weir_token tokens[kMaxTokens];
    uint32_t n_tokens;
    int32_t stop, stop_index;
    weir_token ended_by;
} answer;

static void add(answer *a, weir_token token, const char *text, uint64_t bytes) {
    assert_true(a->n_text + bytes < kMaxText && a->n_tokens < kMaxTokens);
    assert_int_equal(text[bytes], 0);
    memcpy(a->text + a->n_text, text, bytes + 1);
    a->n_text += bytes;
    if (token >= 0) a->tokens[a->n_tokens++] = token;
}

static weir_status take(void *user, const weir_token_event *event) {
    add(user, event->token, event->text, event->text_bytes);
    return WEIR_OK;
}

static weir_session *prompted_with(const fixture *f, const char *policy, uint32_t flags) {
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.flags = flags;
    weir_token tokens[256];
    uint64_t n = 0;
    options.device = WEIR_DEVICE_CPU;
    options.policy = policy;
    options.context_tokens = 1024;
    options.budget_tokens = strcmp(policy, "dense") == 0 ? 0 : 256;
    assert_ok(weir_session_create(f->model, &options, &session));
    assert_ok(weir_tokenize(f->model, RULE_PROMPT, strlen(RULE_PROMPT), WEIR_TOKENIZE_SPECIAL, tokens, 256, &n));
    assert_ok(weir_session_prefill(session, tokens, n, NULL, NULL));
    return session;
}

static weir_session *prompted(const fixture *f, const char *policy) { return prompted_with(f, policy, 0); }

static uint32_t position(const weir_session *session) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    return stats.n_tokens;
}

static void generate(weir_session *session, weir_generate_options options, answer *a) {
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    memset(a, 0, sizeof(*a));
    options.on_token = take;
    options.user = a;
    assert_ok(weir_session_generate(session, &options, &result));
    a->stop = result.stop;
    a->stop_index = result.stop_index;
    a->ended_by = result.stop == WEIR_STOP_EOS ? result.last_token : -1;
    assert_int_equal(a->n_tokens, result.n_tokens);
}

/* Pulls at most `n_max` events; whether the end was among them. */
static int pull(weir_session *session, answer *a, uint32_t n_max) {
    for (uint32_t i = 0; i < n_max; ++i) {
        weir_event event = WEIR_EVENT_INIT;
        const uint32_t before = position(session);
        assert_ok(weir_session_next(session, &event));
        assert_int_equal(event.struct_size, sizeof(event));
        assert_int_equal(event.n_tokens, position(session));
        assert_int_equal(position(session), before + (event.kind == WEIR_EVENT_TOKEN ? 1u : 0u));
        add(a, event.kind == WEIR_EVENT_TOKEN ? event.token : -1, event.text, event.text_bytes);
        if (event.kind == WEIR_EVENT_TOKEN) {
            assert_int_equal(event.index + 1, a->n_tokens);
        } else {
            assert_int_equal(event.index, a->n_tokens);
        }
        if (event.kind != WEIR_EVENT_END) continue;
        assert_int_equal(event.text_bytes, 0);
        a->stop = event.stop;
        a->stop_index = event.stop_index;
        a->ended_by = event.token;
        return 1;
    }
    return 0;
}

static void assert_same(const answer *got, const answer *want) {
    assert_string_equal(got->text, want->text);
    assert_int_equal(got->n_tokens, want->n_tokens);
    assert_memory_equal(got->tokens, want->tokens, want->n_tokens * sizeof(weir_token));
    assert_int_equal(got->stop, want->stop);
    assert_int_equal(got->stop_index, want->stop_index);
    assert_int_equal(got->ended_by, want->ended_by);
}

static void assert_same_logits(weir_session *a, weir_session *b) {
    const float *of_a = NULL, *of_b = NULL;
    uint32_t n = 0;
    assert_ok(weir_session_logits(a, &of_a, &n));
    assert_ok(weir_session_logits(b, &of_b, NULL));
    assert_memory_equal(of_a, of_b, n * sizeof(float));
}

static weir_text text_of(const char *text) { return (weir_text){text, strlen(text)}; }

/* The same tokens, text, end and state, whatever ends them. */
static void answer__pulled_is_generated(void **state) {
    const fixture *f = *state;
    const weir_text stops[] = {text_of("x9"), text_of("\nx7 ="), text_of("no such text")};
    static const struct {
        const char *policy;
        uint32_t flags, max_tokens, n_stop;
        int32_t stop;
    } rows[] = {
        {"dense", 0, 0, 0, WEIR_STOP_EOS},
        {"raas", 0, 37, 0, WEIR_STOP_LENGTH},
        {"dense", WEIR_GENERATE_IGNORE_EOS, 0, 0, WEIR_STOP_CONTEXT},
        {"raas", WEIR_GENERATE_SPECIAL_TEXT, 0, 3, WEIR_STOP_STRING},
        {"dense", 0, 0, 1, WEIR_STOP_STRING},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        static answer want, got;
        weir_session *a = prompted(f, rows[i].policy), *b = prompted(f, rows[i].policy);
        weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
        options.flags = rows[i].flags;
        options.max_tokens = rows[i].stop == WEIR_STOP_CONTEXT ? 0 : rows[i].max_tokens;
        options.stop = stops;
        options.n_stop = rows[i].n_stop;
        if (rows[i].stop == WEIR_STOP_CONTEXT) { /* near its end, so that it takes few steps */
            weir_token filler[480];
            for (int k = 0; k < 480; ++k) filler[k] = 20 + k % 50;
            assert_ok(weir_session_prefill(a, filler, 480, NULL, NULL));
            assert_ok(weir_session_prefill(b, filler, 480, NULL, NULL));
        }
        generate(a, options, &want);
        assert_int_equal(want.stop, rows[i].stop);
        memset(&got, 0, sizeof(got));
        assert_ok(weir_session_begin(b, &options));
        assert_true(pull(b, &got, 2 * kMaxTokens));
        assert_same(&got, &want);
        assert_int_equal(position(a), position(b));
        if (rows[i].stop != WEIR_STOP_CONTEXT) {
            assert_ok(weir_session_step(a, 30));
            assert_ok(weir_session_step(b, 30));
        }
        assert_same_logits(a, b);
        weir_session_destroy(a);
        weir_session_destroy(b);
    }
}

/* A stop string is not shown, and its tokens are in the conversation; without it the same answer goes on. */
static void answer__a_stop_string_cuts_the_text(void **state) {
    const fixture *f = *state;
    static answer whole, cut;
    weir_session *session = prompted(f, "dense");
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    generate(session, options, &whole);
    weir_session_destroy(session);
    assert_true(whole.n_text > 40);
    for (size_t at = 1; at + 3 < whole.n_text; at += 7) {
        char stop[4];
        memcpy(stop, whole.text + at, 3);
        stop[3] = '\0';
        const size_t first = (size_t)(strstr(whole.text, stop) - whole.text);
        const weir_text text = text_of(stop);
        session = prompted(f, "dense");
        options.stop = &text;
        options.n_stop = 1;
        generate(session, options, &cut);
        assert_int_equal(cut.stop, WEIR_STOP_STRING);
        assert_int_equal(cut.stop_index, 0);
        assert_int_equal(cut.n_text, first);
        assert_memory_equal(cut.text, whole.text, first);
        assert_memory_equal(cut.tokens, whole.tokens, cut.n_tokens * sizeof(weir_token));
        weir_session_destroy(session);
    }
    /* of sixteen that are beginnings of each other the shortest is the first that is complete; more are refused */
    weir_text many[17];
    const weir_text *const shortest = &many[9];
    for (uint32_t i = 0; i < 17; ++i) many[i] = (weir_text){whole.text + 4, 4 + (i + 7) % 16};
    session = prompted(f, "dense");
    options.stop = many;
    options.n_stop = 17;
    {
        weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
        const uint32_t before = position(session);
        assert_error(weir_session_generate(session, &options, &result), WEIR_ERR_INVALID_ARG, "n_stop is 17");
        assert_error(weir_session_begin(session, &options), WEIR_ERR_INVALID_ARG, "n_stop is 17");
        assert_int_equal(position(session), before);
    }
    options.n_stop = 16;
    generate(session, options, &cut);
    assert_int_equal(cut.stop, WEIR_STOP_STRING);
    assert_int_equal(cut.stop_index, shortest - many);
    assert_int_equal(shortest->bytes, 4);
    {
        char text[5] = {0};
        memcpy(text, shortest->text, 4);
        assert_int_equal(cut.n_text, strstr(whole.text, text) - whole.text);
    }
    weir_session_destroy(session);
    options.n_stop = 1;
    /* what is held back at another end is shown */
    const weir_text never = {whole.text, whole.n_text < 200 ? whole.n_text : 200};
    char longer[256];
    memcpy(longer, never.text, never.bytes);
    longer[never.bytes] = '#';
    const weir_text almost = {longer, never.bytes + 1};
    session = prompted(f, "dense");
    options.stop = &almost;
    options.max_tokens = 12;
    generate(session, options, &cut);
    assert_int_equal(cut.stop, WEIR_STOP_LENGTH);
    static answer plain;
    weir_session *other = prompted(f, "dense");
    options.n_stop = 0;
    generate(other, options, &plain);
    weir_session_destroy(other);
    assert_string_equal(cut.text, plain.text);
    weir_session_destroy(session);
}

/* Left at any event, and gone on with otherwise: every token whose event was given is in the conversation. */
static void answer__can_be_left(void **state) {
    const fixture *f = *state;
    static answer whole, got;
    weir_session *session = prompted(f, "raas");
    const uint32_t begin = position(session);
    const weir_token *prompt = NULL;
    uint32_t n_prompt = 0;
    assert_ok(weir_session_tokens(session, &prompt, &n_prompt));
    const weir_token last = prompt[begin - 1];
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    generate(session, options, &whole);
    assert_true(whole.n_tokens > 60);
    for (uint32_t n = 1; n < whole.n_tokens; n += 5) {
        const weir_token *tokens = NULL;
        uint32_t n_tokens = 0;
        assert_ok(weir_session_rewind(session, begin - 1, WEIR_REWIND_LOSSY));
        assert_ok(weir_session_step(session, last));
        memset(&got, 0, sizeof(got));
        assert_ok(weir_session_begin(session, NULL));
        assert_false(pull(session, &got, n));
        assert_ok(weir_session_tokens(session, &tokens, &n_tokens));
        assert_int_equal(n_tokens, begin + n);
        assert_memory_equal(tokens + begin, got.tokens, n * sizeof(weir_token));
        weir_event event = WEIR_EVENT_INIT;
        assert_ok(weir_session_step(session, 50));
        assert_error(weir_session_next(session, &event), WEIR_ERR_STATE, "conversation has");
        assert_ok(weir_session_rewind(session, begin + n, WEIR_REWIND_LOSSY));
        assert_error(weir_session_next(session, &event), WEIR_ERR_STATE, "no answer runs");
    }
    weir_session_destroy(session);
}

/* A cancel is an end, at once, and the next answer goes on. */
static void answer__cancelled(void **state) {
    const fixture *f = *state;
    static answer got, want;
    weir_session *session = prompted(f, "dense"), *other = prompted(f, "dense");
    weir_event event = WEIR_EVENT_INIT;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    memset(&got, 0, sizeof(got));
    assert_ok(weir_session_begin(session, NULL));
    assert_false(pull(session, &got, 9));
    weir_session_cancel(session);
    assert_true(pull(session, &got, 1));
    assert_int_equal(got.stop, WEIR_STOP_CANCELLED);
    assert_error(weir_session_next(session, &event), WEIR_ERR_STATE, "no answer runs");
    options.max_tokens = 9;
    generate(other, options, &want);
    assert_memory_equal(got.tokens, want.tokens, 9 * sizeof(weir_token));
    assert_ok(weir_session_begin(session, NULL));
    memset(&got, 0, sizeof(got));
    assert_true(pull(session, &got, kMaxTokens));
    assert_int_equal(got.stop, WEIR_STOP_EOS);
    weir_session_destroy(session);
    weir_session_destroy(other);
}

static weir_status refuse_once(void *user, const weir_trace_layer *layer) {
    (void)layer;
    return ++*(int *)user == 40 ? WEIR_ERR_CANCELLED : WEIR_OK;
}

/* A step that fails appends nothing, and the answer goes on with the next call. */
static void answer__after_a_failed_step(void **state) {
    const fixture *f = *state;
    static answer got, want;
    weir_session *session = prompted_with(f, "dense", WEIR_SESSION_TRACE), *other = prompted(f, "dense");
    const weir_text stop = text_of("x11 = ");
    const weir_session_trace_fn set_trace = (weir_session_trace_fn)weir_get_experimental("weir_session_trace");
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    options.stop = &stop;
    options.n_stop = 1;
    int n_calls = 0, n_failed = 0;
    generate(other, options, &want);
    assert_ok(set_trace(session, refuse_once, &n_calls));
    memset(&got, 0, sizeof(got));
    assert_ok(weir_session_begin(session, &options));
    for (int i = 0; i < kMaxTokens; ++i) {
        weir_event event = WEIR_EVENT_INIT;
        const uint32_t before = position(session);
        const weir_status status = weir_session_next(session, &event);
        if (status != WEIR_OK) {
            assert_int_equal(status, WEIR_ERR_CANCELLED);
            assert_int_equal(position(session), before);
            ++n_failed;
            continue;
        }
        if (event.kind == WEIR_EVENT_END) {
            assert_int_equal(event.stop, WEIR_STOP_STRING);
            break;
        }
        add(&got, event.kind == WEIR_EVENT_TOKEN ? event.token : -1, event.text, event.text_bytes);
    }
    assert_int_equal(n_failed, 1);
    assert_string_equal(got.text, want.text);
    weir_session_destroy(session);
    weir_session_destroy(other);
}

/* When a token's step fails, nothing is held back for the next, and what was held back before it is shown once:
 * with a stop string that all of the text may become, and with one that each line end may begin. */
static void answer__a_failed_step_leaves_no_text(void **state) {
    const fixture *f = *state;
    static answer whole, got, want;
    weir_session *other = prompted(f, "dense");
    const weir_session_trace_fn set_trace = (weir_session_trace_fn)weir_get_experimental("weir_session_trace");
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    generate(other, options, &whole);
    weir_session_destroy(other);
    char longer[256];
    memcpy(longer, whole.text, 200);
    longer[200] = '#';
    const weir_text all = {longer, 201}, line = text_of("\n#");
    for (int n_refused = 3; n_refused < 120; n_refused += 9) {
        for (int i = 0; i < 2; ++i) {
            weir_session *session = prompted_with(f, "dense", WEIR_SESSION_TRACE);
            const uint32_t begin = position(session);
            weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
            int n_calls = 40 - n_refused; /* refuse_once refuses the 40th call */
            assert_ok(set_trace(session, refuse_once, &n_calls));
            memset(&got, 0, sizeof(got));
            options.stop = i == 0 ? &all : &line;
            options.n_stop = 1;
            options.on_token = take;
            options.user = &got;
            assert_int_equal(weir_session_generate(session, &options, &result), WEIR_ERR_CANCELLED);
            const uint32_t n = position(session) - begin;
            assert_int_equal(result.n_tokens, n);
            memset(&want, 0, sizeof(want));
            other = prompted(f, "dense");
            assert_ok(weir_session_begin(other, NULL));
            assert_false(pull(other, &want, n));
            weir_event event = WEIR_EVENT_INIT;
            assert_ok(weir_session_next(other, &event)); /* the token that failed here, which was perhaps shown */
            const size_t n_shown = got.n_text;
            assert_true(n_shown == want.n_text || n_shown == want.n_text + event.text_bytes);
            assert_memory_equal(got.text, whole.text, n_shown);
            assert_true(i == 1 || n_shown == want.n_text);
            weir_session_destroy(session);
            weir_session_destroy(other);
        }
    }
}

static void answer__bad_calls(void **state) {
    const fixture *f = *state;
    weir_session *session = prompted(f, "dense"), *empty = NULL;
    weir_session_options plain = WEIR_SESSION_OPTIONS_INIT;
    weir_event event = WEIR_EVENT_INIT;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_text stops[17];
    for (int i = 0; i < 17; ++i) stops[i] = text_of("stop");
    assert_error(weir_session_begin(NULL, NULL), WEIR_ERR_INVALID_ARG, "session is NULL");
    assert_error(weir_session_next(session, NULL), WEIR_ERR_INVALID_ARG, "weir_event is NULL");
    assert_error(weir_session_next(session, &event), WEIR_ERR_STATE, "weir_session_begin");
    event.struct_size = 4;
    assert_error(weir_session_next(session, &event), WEIR_ERR_INVALID_ARG, "weir_event");
    options.on_token = take;
    assert_error(weir_session_begin(session, &options), WEIR_ERR_INVALID_ARG, "on_token");
    options.on_token = NULL;
    options.flags = 128;
    assert_error(weir_session_begin(session, &options), WEIR_ERR_INVALID_ARG, "flags 0x80");
    options.flags = 0;
    options.reserved = 1;
    assert_error(weir_session_begin(session, &options), WEIR_ERR_INVALID_ARG, "reserved");
    options.reserved = 0;
    options.n_stop = 17;
    options.stop = stops;
    assert_error(weir_session_begin(session, &options), WEIR_ERR_INVALID_ARG, "n_stop is 17");
    options.n_stop = 2;
    options.stop = NULL;
    assert_error(weir_session_generate(session, &options, NULL), WEIR_ERR_INVALID_ARG, "stop[0] is NULL");
    options.stop = stops;
    stops[1].bytes = 0;
    assert_error(weir_session_generate(session, &options, NULL), WEIR_ERR_INVALID_ARG, "stop[1] is empty");
    stops[1] = text_of("\xFF");
    assert_error(weir_session_begin(session, &options), WEIR_ERR_INVALID_ARG, "stop[1] is not UTF-8");
    assert_ok(weir_session_create(f->model, &plain, &empty));
    assert_error(weir_session_begin(empty, NULL), WEIR_ERR_STATE, "");
    weir_session_destroy(empty);
    /* nothing of this has begun an answer; a reset ends one */
    event.struct_size = sizeof(event);
    assert_error(weir_session_next(session, &event), WEIR_ERR_STATE, "no answer runs");
    assert_ok(weir_session_begin(session, NULL));
    assert_ok(weir_session_reset(session));
    assert_error(weir_session_next(session, &event), WEIR_ERR_STATE, "no answer runs");
    weir_session_destroy(session);
}

/* Options and results of programs that were built before there were stop strings. */
static void answer__older_structs(void **state) {
    const fixture *f = *state;
    static answer got;
    weir_session *session = prompted(f, "dense");
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    struct {
        weir_generate_result result;
    } r = {WEIR_GENERATE_RESULT_INIT};
    memset(&got, 0, sizeof(got));
    options.struct_size = (uint32_t)offsetof(weir_generate_options, stop);
    options.max_tokens = 5;
    options.on_token = take;
    options.user = &got;
    options.n_stop = 99; /* behind what such a program has */
    r.result.struct_size = (uint32_t)offsetof(weir_generate_result, stop_index);
    r.result.stop_index = 77;
    assert_ok(weir_session_generate(session, &options, &r.result));
    assert_int_equal(r.result.n_tokens, 5);
    assert_int_equal(r.result.stop_index, 77);
    weir_session_destroy(session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answer__pulled_is_generated), cmocka_unit_test(answer__a_stop_string_cuts_the_text),
        cmocka_unit_test(answer__can_be_left),         cmocka_unit_test(answer__cancelled),
        cmocka_unit_test(answer__after_a_failed_step), cmocka_unit_test(answer__a_failed_step_leaves_no_text),
        cmocka_unit_test(answer__bad_calls),
        cmocka_unit_test(answer__older_structs),
    };
    return cmocka_run_group_tests_name("api/answer", tests, open_fixture, close_fixture);
}
