/* api: answers that obey: a constraint, or a function that masks tokens. What comes out is whole by the schema however
 * tokens are drawn, and the end of an answer says why it ended. */
#include "api_test.h"

enum { kMaxText = 1 << 14 };

typedef struct answer {
    char text[kMaxText];
    size_t n_text;
    uint32_t n_tokens;
    int32_t stop;
    weir_token last;
} answer;

static const char kSchema[] =
    "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 6},"
    " \"age\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 120}, \"ok\": {\"type\": \"boolean\"}},"
    " \"required\": [\"name\", \"age\", \"ok\"], \"additionalProperties\": false}";

static weir_status take(void *user, const weir_token_event *event) {
    answer *a = user;
    assert_true(a->n_text + event->text_bytes < kMaxText);
    memcpy(a->text + a->n_text, event->text, event->text_bytes + 1);
    a->n_text += event->text_bytes;
    if (event->token >= 0) ++a->n_tokens;
    return WEIR_OK;
}

/* Without thoughts, unless they are wanted: a bias forbids the token that opens one. */
static void set_sampling(const fixture *f, weir_session *session, weir_sampling_options sampling) {
    uint64_t n = 0;
    weir_token_bias bias = {-1, -100.0f};
    assert_ok(weir_tokenize(f->model, "<think>", 7, WEIR_TOKENIZE_SPECIAL, &bias.token, 1, &n));
    sampling.bias = &bias;
    sampling.n_bias = 1;
    assert_ok(weir_session_set_sampling(session, &sampling));
}

static weir_session *prompted(const fixture *f) {
    const weir_sampling_options greedy = WEIR_SAMPLING_OPTIONS_INIT;
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = WEIR_DEVICE_CPU;
    options.context_tokens = 1024;
    assert_ok(weir_session_create(f->model, &options, &session));
    set_sampling(f, session, greedy);
    prefill_text(f->model, session, RULE_PROMPT);
    return session;
}

static weir_constraint *compiled(const fixture *f, int32_t kind, const char *text) {
    weir_constraint *constraint = NULL;
    assert_ok(weir_constraint_create(f->model, kind, text, text == NULL ? 0 : strlen(text), &constraint));
    return constraint;
}

static void generate(weir_session *session, uint32_t max_tokens, uint32_t flags, answer *a) {
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    memset(a, 0, sizeof(*a));
    options.max_tokens = max_tokens;
    options.flags = flags;
    options.on_token = take;
    options.user = a;
    assert_ok(weir_session_generate(session, &options, &result));
    assert_int_equal(a->n_tokens, result.n_tokens);
    a->stop = result.stop;
    a->last = result.last_token;
}

static uint32_t position(const weir_session *session) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    return stats.n_tokens;
}

static const char *skip_spaces(const char *at) { return at + strspn(at, " \t\r\n"); }

static const char *expect(const char *at, const char *word) {
    at = skip_spaces(at);
    if (strncmp(at, word, strlen(word)) != 0) fail_msg("'%s' expected at '%s'", word, at);
    return at + strlen(word);
}

/* A document of kSchema; white space only between its marks. */
static void check_document(const char *text) {
    const char *at = expect(text, "{");
    unsigned long age = 0;
    uint32_t n_chars = 0;
    assert_int_equal(text[0], '{');
    at = expect(at, "\"name\"");
    at = expect(at, ":");
    at = expect(at, "\"");
    for (; *at != '"'; ++n_chars) {
        assert_true((unsigned char)*at >= 0x20);
        if (*at == '\\') {
            at += at[1] == 'u' ? 6 : 2;
        } else {
            for (++at; ((unsigned char)*at & 0xC0) == 0x80;) ++at;
        }
    }
    assert_in_range(n_chars, 0, 6);
    at = expect(at + 1, ",");
    at = expect(at, "\"age\"");
    at = expect(at, ":");
    at = skip_spaces(at);
    assert_true(*at >= '0' && *at <= '9');
    assert_false(*at == '0' && at[1] >= '0' && at[1] <= '9');
    for (; *at >= '0' && *at <= '9'; ++at) age = age * 10 + (unsigned long)(*at - '0');
    assert_in_range(age, 0, 120);
    at = expect(at, ",");
    at = expect(at, "\"ok\"");
    at = expect(at, ":");
    at = skip_spaces(at);
    at += strncmp(at, "true", 4) == 0 ? 4 : 0;
    at += strncmp(at, "false", 5) == 0 ? 5 : 0;
    at = expect(at, "}");
    assert_int_equal(*at, '\0');
}

/* Whatever is drawn is a document, also with a temperature at which the model alone writes anything. */
static void constraint__an_answer_is_a_document(void **state) {
    const fixture *f = *state;
    weir_constraint *constraint = compiled(f, WEIR_CONSTRAINT_JSON_SCHEMA, kSchema);
    weir_session *session = prompted(f);
    assert_ok(weir_session_set_constraint(session, constraint, 0));
    weir_constraint_destroy(constraint); /* the session has it */
    for (uint64_t seed = 0; seed < 12; ++seed) {
        weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
        answer a;
        sampling.temperature = seed == 0 ? 0.0f : 0.5f * (float)seed;
        sampling.top_k = seed % 3 == 0 ? 40 : 0;
        sampling.repeat_penalty = seed % 2 == 0 ? 1.0f : 1.2f;
        sampling.seed = seed;
        assert_ok(weir_session_rewind(session, 0, 0));
        prefill_text(f->model, session, RULE_PROMPT);
        set_sampling(f, session, sampling);
        generate(session, 0, seed % 4 == 1 ? WEIR_GENERATE_IGNORE_EOS : 0, &a);
        check_document(a.text);
        assert_int_equal(a.stop, WEIR_STOP_CONSTRAINT);
    }
    weir_session_destroy(session);
}

/* The same tokens by weir_session_next, and by drawing and stepping; each answer begins the text anew. */
static const char kShort[] =
    "{\"type\": \"array\", \"items\": {\"type\": \"boolean\"}, \"minItems\": 1, \"maxItems\": 2}";

static void constraint__pulled_and_stepped(void **state) {
    const fixture *f = *state;
    weir_constraint *constraint = compiled(f, WEIR_CONSTRAINT_JSON_SCHEMA, kShort);
    weir_session *session = prompted(f), *stepped = NULL;
    weir_event event = WEIR_EVENT_INIT;
    weir_token_info info = WEIR_TOKEN_INFO_INIT;
    weir_token token = -1;
    answer whole;
    assert_ok(weir_session_set_constraint(session, constraint, 0));
    assert_ok(weir_session_fork(session, &stepped));
    generate(session, 400, 0, &whole);
    assert_int_equal(whole.stop, WEIR_STOP_CONSTRAINT);
    assert_int_equal(whole.text[0], '[');
    assert_int_equal(whole.text[whole.n_text - 1], ']');
    for (uint32_t i = 0; i < whole.n_tokens; ++i) {
        assert_ok(weir_session_sample(stepped, &token));
        assert_ok(weir_session_step(stepped, token));
    }
    assert_int_equal(position(stepped), position(session));
    assert_ok(weir_session_sample(stepped, &token)); /* only an end may follow */
    assert_ok(weir_token_get_info(f->model, token, &info));
    assert_true((info.flags & WEIR_TOKEN_END_OF_GENERATION) != 0);
    assert_ok(weir_session_rewind(session, position(session) - whole.n_tokens - 1, 0));
    assert_ok(weir_session_rewind(stepped, position(session), 0));
    prefill_text(f->model, session, "=");
    prefill_text(f->model, stepped, "=");
    generate(session, 400, 0, &whole);
    assert_ok(weir_session_begin(stepped, NULL));
    for (size_t at = 0; event.kind != WEIR_EVENT_END; at += event.text_bytes) {
        assert_ok(weir_session_next(stepped, &event));
        assert_memory_equal(event.text, whole.text + at, event.text_bytes);
    }
    assert_int_equal(event.stop, WEIR_STOP_CONSTRAINT);
    assert_int_equal(event.index, whole.n_tokens);
    weir_session_destroy(session);
    weir_session_destroy(stepped);
    weir_constraint_destroy(constraint);
}

/* A fork in the middle of an answer goes on as its parent does; a reset keeps the constraint; NULL takes it away. */
static void constraint__forks_and_resets(void **state) {
    const fixture *f = *state;
    weir_constraint *constraint = compiled(f, WEIR_CONSTRAINT_JSON, NULL);
    weir_session *session = prompted(f), *fork = NULL;
    answer a;
    assert_ok(weir_session_set_constraint(session, constraint, 0));
    weir_constraint_destroy(constraint);
    for (uint32_t i = 0; i < 3; ++i) {
        weir_token token = -1, other = -1;
        assert_ok(weir_session_sample(session, &token));
        assert_ok(weir_session_step(session, token));
        if (i == 1) assert_ok(weir_session_fork(session, &fork));
        if (i != 2) continue;
        assert_ok(weir_session_sample(fork, &other));
        assert_int_equal(token, other);
    }
    weir_session_destroy(session);
    assert_ok(weir_session_reset(fork));
    prefill_text(f->model, fork, RULE_PROMPT);
    generate(fork, 1, 0, &a);
    assert_non_null(strchr("{[\"-0123456789tfn", a.text[0]));
    assert_ok(weir_session_set_constraint(fork, NULL, 0));
    weir_session_destroy(fork);
}

/* What the model thinks is free, what it says obeys. */
static void constraint__thoughts_are_free(void **state) {
    const fixture *f = *state;
    weir_constraint *constraint = compiled(f, WEIR_CONSTRAINT_JSON_SCHEMA, kSchema);
    weir_session *session = prompted(f);
    weir_event event = WEIR_EVENT_INIT;
    answer said;
    size_t n_thought = 0;
    memset(&said, 0, sizeof(said));
    assert_ok(weir_session_set_sampling(session, NULL));
    assert_ok(weir_session_set_constraint(session, constraint, 0));
    assert_ok(weir_session_begin(session, NULL));
    while (event.kind != WEIR_EVENT_END) {
        assert_ok(weir_session_next(session, &event));
        n_thought += event.segment == WEIR_SEGMENT_THOUGHT ? event.text_bytes : 0;
        if (event.segment != WEIR_SEGMENT_ANSWER) continue;
        memcpy(said.text + said.n_text, event.text, event.text_bytes);
        said.n_text += event.text_bytes;
    }
    assert_true(n_thought > 100);
    assert_int_equal(event.stop, WEIR_STOP_CONSTRAINT);
    check_document(said.text);
    weir_session_destroy(session);
    weir_constraint_destroy(constraint);
}

typedef struct masker {
    weir_token only;
    uint32_t n_calls, fail_at, n_tokens;
} masker;

static weir_status mask_all_but(void *user, const weir_mask_info *info) {
    masker *m = user;
    const uint32_t n_words = (info->vocab_size + 31) / 32;
    assert_int_equal(info->struct_size, sizeof(*info));
    m->n_tokens = info->n_tokens;
    for (uint32_t i = 0; i < info->n_tokens; ++i) assert_int_equal(info->tokens[i], m->only);
    assert_int_equal(info->words[0] & 1u, 1u);
    if (++m->n_calls == m->fail_at) return WEIR_ERR_STATE;
    memset(info->words, 0, n_words * sizeof(uint32_t));
    if (m->only < 0) {
        info->words[n_words - 1] = info->vocab_size % 32 == 0 ? 0 : 0x80000000u; /* behind the last token */
    } else {
        info->words[m->only / 32] = 1u << (m->only % 32);
    }
    return WEIR_OK;
}

/* Leaves what the constraint lets pass of one token. */
static weir_status mask_and_only(void *user, const weir_mask_info *info) {
    const masker *m = user;
    const uint32_t left = info->words[m->only / 32] & (1u << (m->only % 32));
    memset(info->words, 0, (info->vocab_size + 31) / 32 * sizeof(uint32_t));
    info->words[m->only / 32] = left;
    return WEIR_OK;
}

static void constraint__a_function_masks(void **state) {
    const fixture *f = *state;
    weir_session *session = prompted(f);
    weir_token *x, token = -7;
    uint64_t n = 0;
    masker m = {0, 0, 0, 0};
    answer a;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    const uint32_t before = position(session);
    x = tokens_of(f->model, "7", &n);
    m.only = x[0];
    free(x);
    assert_ok(weir_session_set_token_mask(session, mask_all_but, &m));
    generate(session, 5, 0, &a);
    assert_int_equal(m.n_calls, 5);
    assert_int_equal(m.n_tokens, 4);
    assert_int_equal(a.n_tokens, 5);
    m = (masker){m.only, 0, 3, 0};
    assert_ok(weir_session_rewind(session, before - 1, 0));
    prefill_text(f->model, session, "=");
    options.max_tokens = 5;
    assert_error(weir_session_generate(session, &options, &result), WEIR_ERR_CANCELLED, "masks tokens");
    assert_int_equal(result.n_tokens, 2);
    assert_int_equal(result.stop, WEIR_STOP_CANCELLED);
    m = (masker){-1, 0, 0, 0};
    {
        const uint32_t here = position(session);
        generate(session, 5, 0, &a);
        assert_int_equal(a.stop, WEIR_STOP_CONSTRAINT);
        assert_int_equal(a.n_tokens, 0);
        assert_int_equal(position(session), here);
    }
    prefill_text(f->model, session, "=");
    assert_error(weir_session_sample(session, &token), WEIR_ERR_STATE, "none follow");
    assert_int_equal(token, -7);
    assert_ok(weir_session_set_token_mask(session, NULL, NULL));
    assert_ok(weir_session_sample(session, &token));
    weir_session_destroy(session);
}

/* A constraint and a function that have no token in common: the answer ends with nothing appended, and drawing by
 * itself is an error. */
static void constraint__nothing_may_follow(void **state) {
    const fixture *f = *state;
    weir_constraint *constraint = compiled(f, WEIR_CONSTRAINT_GBNF, "root ::= \"7\"");
    weir_session *sessions[2] = {prompted(f), prompted(f)};
    weir_event events[2] = {WEIR_EVENT_INIT, WEIR_EVENT_INIT};
    weir_token *x, token = -7;
    uint64_t n = 0;
    uint32_t n_running = 9;
    masker m = {0, 0, 0, 0};
    const uint32_t before = position(sessions[0]);
    x = tokens_of(f->model, "8", &n);
    m.only = x[0];
    free(x);
    for (uint32_t i = 0; i < 2; ++i) {
        assert_ok(weir_session_set_constraint(sessions[i], constraint, 0));
        assert_ok(weir_session_set_token_mask(sessions[i], mask_and_only, &m));
    }
    assert_error(weir_session_sample(sessions[0], &token), WEIR_ERR_STATE, "none follow");
    assert_int_equal(token, -7);
    assert_ok(weir_session_begin(sessions[0], NULL));
    assert_ok(weir_session_next(sessions[0], &events[0]));
    assert_int_equal(events[0].kind, WEIR_EVENT_END);
    assert_int_equal(events[0].stop, WEIR_STOP_CONSTRAINT);
    for (uint32_t i = 0; i < 2; ++i) assert_ok(weir_session_begin(sessions[i], NULL));
    assert_ok(weir_next_many(sessions, events, 2, &n_running));
    assert_int_equal(n_running, 0);
    for (uint32_t i = 0; i < 2; ++i) {
        assert_int_equal(events[i].kind, WEIR_EVENT_END);
        assert_int_equal(events[i].stop, WEIR_STOP_CONSTRAINT);
        assert_int_equal(position(sessions[i]), before);
        weir_session_destroy(sessions[i]);
    }
    weir_constraint_destroy(constraint);
}

/* A cancel in the middle loses no token and no place in the text. */
static void constraint__cancelled(void **state) {
    const fixture *f = *state;
    weir_constraint *constraint = compiled(f, WEIR_CONSTRAINT_JSON_SCHEMA, kSchema);
    weir_session *session = prompted(f);
    weir_event event = WEIR_EVENT_INIT;
    assert_ok(weir_session_set_constraint(session, constraint, 0));
    assert_ok(weir_session_begin(session, NULL));
    assert_ok(weir_session_next(session, &event));
    weir_session_cancel(session);
    do {
        assert_ok(weir_session_next(session, &event));
    } while (event.kind != WEIR_EVENT_END);
    assert_int_equal(event.stop, WEIR_STOP_CANCELLED);
    weir_session_destroy(session);
    weir_constraint_destroy(constraint);
}

static void constraint__bad_calls(void **state) {
    const fixture *f = *state;
    static const struct {
        int32_t kind;
        const char *text;
        weir_status status;
        const char *message;
    } bad[] = {
        {7, "", WEIR_ERR_INVALID_ARG, "kind 7"},
        {WEIR_CONSTRAINT_JSON, "{}", WEIR_ERR_INVALID_ARG, "takes no text"},
        {WEIR_CONSTRAINT_JSON_SCHEMA, "{\"type\": ", WEIR_ERR_INVALID_ARG, "line 1, byte 10"},
        {WEIR_CONSTRAINT_JSON_SCHEMA, "{\"properties\": {\"a\": {\"dependentSchemas\": {}}}}", WEIR_ERR_UNSUPPORTED,
         "#/properties/a: \"dependentSchemas\" is not supported"},
        {WEIR_CONSTRAINT_JSON_SCHEMA, "{\"items\": {\"minimum\": 3, \"maximum\": 2}}", WEIR_ERR_INVALID_ARG,
         "#/items: "},
        {WEIR_CONSTRAINT_JSON_SCHEMA, "{\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"#\"}},"
         " \"required\": [\"a\"]}", WEIR_ERR_INVALID_ARG, "without end"},
    };
    weir_session *session = prompted(f);
    weir_constraint *constraint = (weir_constraint *)1;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        assert_error(weir_constraint_create(f->model, bad[i].kind, bad[i].text, strlen(bad[i].text), &constraint),
                     bad[i].status, bad[i].message);
        assert_null(constraint);
    }
    assert_error(weir_constraint_create(f->model, WEIR_CONSTRAINT_GBNF, NULL, 0, &constraint), WEIR_ERR_INVALID_ARG,
                 "text");
    assert_error(weir_session_set_constraint(session, NULL, 2), WEIR_ERR_UNSUPPORTED, "segments");
    assert_error(weir_session_set_constraint(NULL, NULL, 0), WEIR_ERR_INVALID_ARG, "session");
    assert_error(weir_session_set_token_mask(NULL, NULL, NULL), WEIR_ERR_INVALID_ARG, "session");
    weir_constraint_destroy(NULL);
    weir_session_destroy(session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constraint__an_answer_is_a_document), cmocka_unit_test(constraint__pulled_and_stepped),
        cmocka_unit_test(constraint__forks_and_resets),        cmocka_unit_test(constraint__a_function_masks),
        cmocka_unit_test(constraint__thoughts_are_free),
        cmocka_unit_test(constraint__nothing_may_follow),      cmocka_unit_test(constraint__cancelled),
        cmocka_unit_test(constraint__bad_calls),
    };
    return cmocka_run_group_tests_name("api/constraint", tests, open_fixture, close_fixture);
}
