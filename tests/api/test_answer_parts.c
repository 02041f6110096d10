/* api: the parts of an answer: its thoughts, what it says and the marks between them, as events show them. The tiny
 * model thinks between tokens that are tags. */
#include "api_test.h"
#include "weir/experimental.h"

enum { kMaxText = 1 << 13 };

typedef struct parts {
    char text[4][kMaxText]; /* of each segment */
    size_t n[4];
    int32_t order[16]; /* the segments as they came */
    uint32_t n_order, n_tokens, n_texts;
    int32_t stop;
} parts;

static weir_session *prompted(const fixture *f, const char *end) {
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = WEIR_DEVICE_CPU;
    options.context_tokens = 1024;
    assert_ok(weir_session_create(f->model, &options, &session));
    prefill_text(f->model, session, RULE_PROMPT);
    if (*end != '\0') prefill_text(f->model, session, end);
    return session;
}

static void add(parts *p, const weir_event *event) {
    const int32_t segment = event->segment;
    assert_in_range(segment, 0, 3);
    assert_true(p->n[segment] + event->text_bytes < kMaxText);
    memcpy(p->text[segment] + p->n[segment], event->text, event->text_bytes + 1);
    p->n[segment] += event->text_bytes;
    if (p->n_order == 0 || p->order[p->n_order - 1] != segment) {
        assert_true(p->n_order < 16);
        p->order[p->n_order++] = segment;
    }
    if (event->kind == WEIR_EVENT_TOKEN) {
        assert_int_equal(event->index, p->n_tokens);
        ++p->n_tokens;
    } else {
        ++p->n_texts;
    }
}

/* All events of the answer, at most n_max. */
static void pull(weir_session *session, uint32_t n_max, parts *p) {
    for (uint32_t i = 0; i < n_max; ++i) {
        weir_event event = WEIR_EVENT_INIT;
        assert_ok(weir_session_next(session, &event));
        if (event.kind == WEIR_EVENT_END) {
            p->stop = event.stop;
            return;
        }
        add(p, &event);
    }
}

static weir_status join(void *user, const weir_token_event *event) {
    parts *p = user;
    memcpy(p->text[0] + p->n[0], event->text, event->text_bytes + 1);
    p->n[0] += event->text_bytes;
    return WEIR_OK;
}

/* The thought, its marks and the answer; the marks' text only on request. */
static void answer_parts__of_the_tiny_model(void **state) {
    const fixture *f = *state;
    static parts p, all;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    for (int special = 0; special < 2; ++special) {
        weir_session *session = prompted(f, ""), *other = prompted(f, "");
        memset(&p, 0, sizeof(p));
        memset(&all, 0, sizeof(all));
        options.flags = special ? WEIR_GENERATE_SPECIAL_TEXT : 0;
        options.on_token = NULL;
        assert_ok(weir_session_begin(session, &options));
        pull(session, 1000, &p);
        assert_int_equal(p.stop, WEIR_STOP_EOS);
        assert_int_equal(p.n_texts, 0);
        static const int32_t order[] = {WEIR_SEGMENT_MARK, WEIR_SEGMENT_THOUGHT, WEIR_SEGMENT_MARK,
                                        WEIR_SEGMENT_ANSWER};
        assert_int_equal(p.n_order, 4);
        assert_memory_equal(p.order, order, sizeof(order));
        assert_string_equal(p.text[WEIR_SEGMENT_MARK], special ? "<think></think>" : "");
        assert_string_equal(p.text[WEIR_SEGMENT_ANSWER], "\nx13 = 37.");
        assert_memory_equal(p.text[WEIR_SEGMENT_THOUGHT], "\nx3 = x0 - x2 = 97 - 60 = 37.\n", 30);
        assert_int_equal(p.n[WEIR_SEGMENT_TOOL_CALL], 0);
        /* weir_session_generate shows the same */
        options.on_token = join;
        options.user = &all;
        assert_ok(weir_session_generate(other, &options, NULL));
        assert_int_equal(all.n[0], p.n[0] + p.n[1] + p.n[3]);
        weir_session_destroy(session);
        weir_session_destroy(other);
    }
}

/* A thought that the prompt opened, and one that a new answer goes on with. */
static void answer_parts__begin_in_a_thought(void **state) {
    const fixture *f = *state;
    static parts p;
    static const int32_t order[] = {WEIR_SEGMENT_THOUGHT, WEIR_SEGMENT_MARK, WEIR_SEGMENT_ANSWER};
    weir_session *session = prompted(f, "<think>\n");
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    memset(&p, 0, sizeof(p));
    assert_ok(weir_session_begin(session, NULL));
    pull(session, 1000, &p);
    assert_int_equal(p.n_order, 3);
    assert_memory_equal(p.order, order, sizeof(order));
    weir_session_destroy(session);
    for (int again = 0; again < 3; ++again) {
        session = prompted(f, "");
        memset(&p, 0, sizeof(p));
        options.max_tokens = 10;
        if (again == 0) { /* left */
            assert_ok(weir_session_begin(session, NULL));
            pull(session, 10, &p);
        } else if (again == 1) { /* ended by its length */
            assert_ok(weir_session_begin(session, &options));
            pull(session, 1000, &p);
            assert_int_equal(p.stop, WEIR_STOP_LENGTH);
        } else {
            assert_ok(weir_session_generate(session, &options, NULL));
        }
        memset(&p, 0, sizeof(p));
        assert_ok(weir_session_begin(session, NULL));
        pull(session, 1000, &p);
        assert_int_equal(p.n_order, 3);
        assert_memory_equal(p.order, order, sizeof(order));
        weir_session_destroy(session);
    }
    /* a closed one is closed, and one of an earlier turn does not count */
    static const char *const ends[] = {"<think>\nx\n</think>\n", "<think><|im_end|>\n<|im_start|>assistant\nx13 ="};
    for (int i = 0; i < 2; ++i) {
        weir_event event = WEIR_EVENT_INIT;
        session = prompted(f, ends[i]);
        assert_ok(weir_session_begin(session, NULL));
        assert_ok(weir_session_next(session, &event));
        assert_int_equal(event.segment, WEIR_SEGMENT_ANSWER);
        weir_session_destroy(session);
    }
}

/* The answer that options make of the tiny model's, pulled or generated. */
static void run(const fixture *f, weir_generate_options options, int pulled, parts *p) {
    weir_session *session = prompted(f, "");
    memset(p, 0, sizeof(*p));
    if (pulled) {
        assert_ok(weir_session_begin(session, &options));
        pull(session, 2000, p);
    } else {
        weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
        options.on_token = join;
        options.user = p;
        assert_ok(weir_session_generate(session, &options, &result));
        p->n_tokens = result.n_tokens;
        p->stop = result.stop;
    }
    weir_session_destroy(session);
}

/* After so many tokens a thought ends with the text that was asked for, as if the model had written it. */
static void answer_parts__thinking_budget(void **state) {
    const fixture *f = *state;
    static parts p, whole, all;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    run(f, options, 1, &whole);
    uint64_t n_close = 0;
    free(tokens_of(f->model, " So be it.", &n_close));
    for (uint32_t budget = 1; budget < 60; budget += 13) {
        for (int i = 0; i < 2; ++i) {
            options.thinking_budget = budget;
            options.thinking_close = i == 0 ? NULL : " So be it.";
            run(f, options, 1, &p);
            assert_int_equal(p.n_order, 4);
            const size_t n_end = i == 0 ? 0 : strlen(" So be it.");
            const size_t n_thought = p.n[WEIR_SEGMENT_THOUGHT] - n_end;
            assert_string_equal(p.text[WEIR_SEGMENT_THOUGHT] + n_thought, i == 0 ? "" : " So be it.");
            assert_memory_equal(p.text[WEIR_SEGMENT_THOUGHT], whole.text[WEIR_SEGMENT_THOUGHT], n_thought);
            assert_true(p.n[WEIR_SEGMENT_ANSWER] > 0);
            options.flags = WEIR_GENERATE_SPECIAL_TEXT;
            run(f, options, 0, &all);
            options.flags = 0;
            assert_int_equal(all.n_tokens, p.n_tokens);
            assert_int_equal(all.n[0], p.n[0] + p.n[1] + strlen("<think></think>"));
            assert_int_equal(all.stop, p.stop);
        }
    }
    /* the budget is of tokens */
    weir_session *session = prompted(f, "<think>");
    weir_event event = WEIR_EVENT_INIT;
    options.thinking_budget = 5;
    options.thinking_close = NULL;
    assert_ok(weir_session_begin(session, &options));
    for (uint32_t i = 0; i < 6; ++i) {
        assert_ok(weir_session_next(session, &event));
        assert_int_equal(event.segment, i < 5 ? WEIR_SEGMENT_THOUGHT : WEIR_SEGMENT_MARK);
    }
    weir_session_destroy(session);
    /* none is over: the model ends its thought itself */
    options.thinking_budget = 900;
    run(f, options, 1, &p);
    assert_string_equal(p.text[WEIR_SEGMENT_THOUGHT], whole.text[WEIR_SEGMENT_THOUGHT]);
    assert_string_equal(p.text[WEIR_SEGMENT_ANSWER], whole.text[WEIR_SEGMENT_ANSWER]);
}

/* Asked for while the answer runs, in a thought or not. */
static void answer_parts__finish_thinking(void **state) {
    const fixture *f = *state;
    static parts p;
    weir_session_finish_thinking(NULL);
    for (int i = 0; i < 3; ++i) {
        weir_session *session = prompted(f, "");
        memset(&p, 0, sizeof(p));
        weir_session_finish_thinking(session); /* before the answer: nothing */
        assert_ok(weir_session_begin(session, NULL));
        if (i == 1) weir_session_finish_thinking(session); /* no thought is open yet */
        pull(session, 11, &p);
        assert_int_equal(p.n_order, 2);
        if (i == 2) weir_session_finish_thinking(session);
        pull(session, 1000, &p);
        assert_int_equal(p.n_order, 4);
        assert_true(i == 2 ? p.n_tokens < 40 : p.n_tokens > 200);
        assert_int_equal(p.stop, WEIR_STOP_EOS);
        weir_session_destroy(session);
    }
}

/* The answer as far as it is, behind it, and what a caller's struct may be. */
static void answer_parts__as_a_message(void **state) {
    const fixture *f = *state;
    static parts p;
    weir_chat_message message = WEIR_CHAT_MESSAGE_INIT;
    uint32_t malformed = 7;
    weir_session *session = prompted(f, "");
    assert_error(weir_session_answer(session, &message, sizeof(message), NULL), WEIR_ERR_STATE, "no answer");
    memset(&p, 0, sizeof(p));
    assert_ok(weir_session_begin(session, NULL));
    pull(session, 20, &p);
    assert_ok(weir_session_answer(session, &message, sizeof(message), &malformed));
    assert_string_equal(message.role, "assistant");
    assert_int_equal(malformed, 0);
    assert_int_equal(message.content_bytes, 0);
    assert_int_equal(message.thought_bytes, strlen(message.thought));
    assert_non_null(strstr(p.text[WEIR_SEGMENT_THOUGHT], message.thought));
    pull(session, 1000, &p);
    assert_ok(weir_session_answer(session, &message, sizeof(message), &malformed));
    assert_string_equal(message.content, "x13 = 37.");
    assert_int_equal(message.content_bytes, 9);
    assert_null(message.tool_calls_json);
    /* the next turn leaves it, going back before its end does not */
    prefill_text(f->model, session, "<|im_end|>\n<|im_start|>user\n");
    assert_ok(weir_session_answer(session, &message, sizeof(message), NULL));
    assert_string_equal(message.content, "x13 = 37.");
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    assert_ok(weir_session_rewind(session, stats.n_tokens - 20, 0));
    assert_error(weir_session_answer(session, &message, sizeof(message), NULL), WEIR_ERR_STATE, "went back");
    weir_session_destroy(session);
    /* one of 24 bytes, and bad calls */
    session = prompted(f, "");
    assert_ok(weir_session_generate(session, NULL, NULL));
    message.name = "kept";
    assert_ok(weir_session_answer(session, &message, 24, NULL));
    assert_string_equal(message.name, "kept");
    assert_error(weir_session_answer(session, &message, 16, NULL), WEIR_ERR_INVALID_ARG, "message_bytes is 16");
    assert_error(weir_session_answer(session, NULL, 24, NULL), WEIR_ERR_INVALID_ARG, "message is NULL");
    weir_session_destroy(session);
}

/* Models of a template with tags that are text, for their own vocabulary has other ones. */
static weir_model *open_tagged(const fixture *f, const char *template_text) {
    static const char path[] = "tagged_answer_parts.gguf";
    weir_model *model = NULL;
    FILE *in = fopen(TINY_MODEL, "rb"), *out = fopen(path, "wb");
    assert_true(in != NULL && out != NULL);
    fseek(in, 0, SEEK_END);
    const size_t n = (size_t)ftell(in);
    char *bytes = malloc(n);
    rewind(in);
    assert_int_equal(fread(bytes, 1, n, in), n);
    size_t at = 0;
    while (memcmp(bytes + at, "{% for message in messages %}", 29) != 0) ++at;
    uint64_t n_template = 0;
    memcpy(&n_template, bytes + at - 8, sizeof(n_template));
    assert_true(strlen(template_text) <= n_template);
    memset(bytes + at, ' ', n_template);
    memcpy(bytes + at, template_text, strlen(template_text));
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    free(bytes);
    fclose(in);
    fclose(out);
    const weir_status opened = weir_model_open(f->runtime, path, NULL, &model);
    remove(path); /* the mapping stays */
    assert_ok(opened);
    return model;
}

/* What a constraint has begun to say it rules to its end, though the model's own calls begin alike: with Llama's an
 * object whose first key is "name". */
static void answer_parts__constrained_text_is_no_call(void **state) {
    static const char *const grammars[] = {"root ::= \"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 7}}\"",
                                           "root ::= \"<tool_call>{}</tool_call> <think>\""};
    static const char *const texts[] = {"{\"name\": \"f\", \"arguments\": {\"a\": 7}}", "{}"};
    static const char *const templates[] = {"{# dictionary of argument name and its value #}", "{# <tool_call> #}"};
    const fixture *f = *state;
    static parts p;
    for (int i = 0; i < 2; ++i) {
        weir_model *model = open_tagged(f, templates[i]);
        weir_constraint *constraint = NULL;
        weir_chat_message message = WEIR_CHAT_MESSAGE_INIT;
        fixture own = *f;
        own.model = model;
        weir_session *session = prompted(&own, "");
        weir_sampling_options no_thought = WEIR_SAMPLING_OPTIONS_INIT;
        weir_token_bias bias = {-1, -100.0f};
        uint64_t n = 0;
        assert_ok(weir_tokenize(model, "<think>", 7, WEIR_TOKENIZE_SPECIAL, &bias.token, 1, &n));
        no_thought.bias = &bias;
        no_thought.n_bias = 1;
        assert_ok(weir_session_set_sampling(session, &no_thought));
        assert_ok(weir_constraint_create(model, WEIR_CONSTRAINT_GBNF, grammars[i], strlen(grammars[i]), &constraint));
        assert_ok(weir_session_set_constraint(session, constraint, 0));
        assert_ok(weir_session_begin(session, NULL));
        memset(&p, 0, sizeof(p));
        pull(session, 1000, &p);
        assert_int_equal(p.stop, WEIR_STOP_CONSTRAINT);
        assert_string_equal(p.text[WEIR_SEGMENT_TOOL_CALL], texts[i]);
        assert_ok(weir_session_answer(session, &message, sizeof(message), NULL));
        if (i == 0) {
            assert_non_null(message.tool_calls_json);
            assert_non_null(strstr(message.tool_calls_json, "\"name\": \"f\", \"arguments\": {\"a\""));
        }
        weir_constraint_destroy(constraint);
        weir_session_destroy(session);
        weir_model_close(model);
    }
}

static void answer_parts__calls_that_are_text(void **state) {
    const fixture *f = *state;
    static parts p, all;
    weir_model *model = open_tagged(f, "{% if tools %}<tool_call>{% endif %}"
                                       "{% for m in messages %}{{ m.content }}{% endfor %}</mm:think>");
    weir_chat_info info = WEIR_CHAT_INFO_INIT;
    assert_ok(weir_model_chat_info(model, &info));
    assert_string_equal(info.thought_begin, "<mm:think>");
    assert_string_equal(info.thought_end, "</mm:think>");
    assert_string_equal(info.tool_format, "hermes");
    assert_int_equal(info.can, WEIR_CHAT_CAN_SYSTEM | WEIR_CHAT_CAN_TOOLS | WEIR_CHAT_CAN_THOUGHTS);
    fixture own = *f;
    own.model = model;
    /* what is appended at the end of a thought may be more: calls, which the tiny model never makes */
    static const char text[] = " I call.</mm:think>One moment.<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, "
                               "\"b\"]}}</tool_call><tool_call>{oops</tool_call><mm:think>";
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    options.thinking_budget = 4;
    options.thinking_close = text;
    for (int stops = 0; stops < 2; ++stops) {
        weir_chat_message message = WEIR_CHAT_MESSAGE_INIT;
        uint32_t malformed = 0;
        weir_session *session = prompted(&own, "<mm:think>"), *other = prompted(&own, "<mm:think>");
        options.flags = stops ? WEIR_GENERATE_STOP_AT_CALL : 0;
        options.max_tokens = 400;
        memset(&p, 0, sizeof(p));
        memset(&all, 0, sizeof(all));
        assert_ok(weir_session_begin(session, &options));
        pull(session, 2000, &p);
        assert_string_equal(p.text[WEIR_SEGMENT_TOOL_CALL],
                            "{\"name\": \"f\", \"arguments\": {\"a\": [1, \"b\"]}}{oops");
        assert_memory_equal(p.text[WEIR_SEGMENT_ANSWER], "One moment.", 11);
        assert_string_equal(p.text[WEIR_SEGMENT_MARK], "");
        assert_ok(weir_session_answer(session, &message, sizeof(message), &malformed));
        assert_int_equal(malformed, 1);
        assert_non_null(message.tool_calls_json);
        assert_non_null(strstr(message.tool_calls_json, "\"name\": \"f\", \"arguments\": {\"a\": [1, \"b\"]}}]"));
        assert_memory_equal(message.content, "One moment.<tool_call>{oops</tool_call>", 39);
        assert_non_null(strstr(message.thought, "I call."));
        if (stops) assert_int_equal(p.stop, WEIR_STOP_TOOL_CALL);
        if (stops) assert_int_equal(p.n[WEIR_SEGMENT_ANSWER], 11);
        /* text tags stay visible in what is generated */
        options.on_token = join;
        options.user = &all;
        assert_ok(weir_session_generate(other, &options, NULL));
        options.on_token = NULL;
        assert_non_null(strstr(all.text[0], "</mm:think>One moment.<tool_call>{\"name\""));
        weir_session_destroy(session);
        weir_session_destroy(other);
    }
    weir_model_close(model);
}

static void answer_parts__bad_calls(void **state) {
    const fixture *f = *state;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_chat_info info = WEIR_CHAT_INFO_INIT;
    static char large[1100];
    weir_session *session = prompted(f, "");
    assert_ok(weir_model_chat_info(f->model, &info));
    assert_string_equal(info.thought_end, "</think>");
    assert_string_equal(info.tool_format, "");
    assert_int_equal(info.can, WEIR_CHAT_CAN_SYSTEM | WEIR_CHAT_CAN_THOUGHTS);
    assert_error(weir_model_chat_info(f->model, NULL), WEIR_ERR_INVALID_ARG, "weir_chat_info is NULL");
    options.flags = WEIR_GENERATE_STOP_AT_CALL;
    assert_error(weir_session_begin(session, &options), WEIR_ERR_UNSUPPORTED, "writing calls");
    options.flags = 0;
    options.thinking_close = "\xff";
    assert_error(weir_session_begin(session, &options), WEIR_ERR_INVALID_ARG, "thinking_close");
    memset(large, 'x', sizeof(large) - 1);
    options.thinking_close = large;
    assert_error(weir_session_generate(session, &options, NULL), WEIR_ERR_INVALID_ARG, "thinking_close");
    weir_session_destroy(session);
    /* without tags nothing is promised */
    fixture other = *f;
    assert_ok(weir_model_open(f->runtime, LONG_RUN_MODEL, NULL, &other.model));
    weir_session_options small = WEIR_SESSION_OPTIONS_INIT;
    small.device = WEIR_DEVICE_CPU;
    small.context_tokens = 64;
    const weir_token tokens[] = {5, 6, 7};
    assert_ok(weir_session_create(other.model, &small, &session));
    assert_ok(weir_session_prefill(session, tokens, 3, NULL, NULL));
    options.thinking_close = "x";
    assert_error(weir_session_begin(session, &options), WEIR_ERR_UNSUPPORTED, "thinking_close");
    options.thinking_close = NULL;
    options.thinking_budget = 1;
    assert_error(weir_session_generate(session, &options, NULL), WEIR_ERR_UNSUPPORTED, "thinking_budget");
    weir_session_destroy(session);
    weir_model_close(other.model);
}

enum { kMany = 5 };

static void assert_same_event(const weir_event *got, const weir_event *want, const char *text) {
    assert_int_equal(got->kind, want->kind);
    assert_int_equal(got->segment, want->segment);
    assert_int_equal(got->token, want->token);
    assert_int_equal(got->index, want->index);
    assert_int_equal(got->n_tokens, want->n_tokens);
    assert_int_equal(got->stop, want->stop);
    assert_int_equal(got->stop_index, want->stop_index);
    assert_int_equal(got->text_bytes, want->text_bytes);
    assert_string_equal(got->text, text);
}

static weir_status refuse(void *user, const weir_trace_layer *layer) {
    (void)layer;
    return --*(int *)user == 0 ? WEIR_ERR_CANCELLED : WEIR_OK;
}

/* The events of several answers are those of each alone, also around steps that fail. */
static void answer_parts__next_many(void **state) {
    const fixture *f = *state;
    const weir_session_trace_fn set_trace = (weir_session_trace_fn)weir_get_experimental("weir_session_trace");
    weir_session *many[kMany], *single[kMany];
    weir_event events[kMany], event = WEIR_EVENT_INIT;
    const weir_text stops[] = {{"x9 =", 4}, {"\nx1", 3}};
    int n_left = 300; /* calls of the trace until it refuses one */
    for (uint32_t i = 0; i < kMany; ++i) {
        for (int k = 0; k < 2; ++k) {
            weir_session_options plain = WEIR_SESSION_OPTIONS_INIT;
            weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
            weir_session **session = k == 0 ? &many[i] : &single[i];
            plain.device = WEIR_DEVICE_CPU;
            plain.context_tokens = 1024;
            plain.flags = WEIR_SESSION_TRACE;
            assert_ok(weir_session_create(f->model, &plain, session));
            prefill_text(f->model, *session, RULE_PROMPT);
            if (i == 1) options.thinking_budget = 30, options.thinking_close = "\nWell.\n";
            if (i == 2) options.stop = stops, options.n_stop = 2;
            if (i == 3) options.max_tokens = 50, options.flags = WEIR_GENERATE_SPECIAL_TEXT;
            if (i != 4) assert_ok(weir_session_begin(*session, &options));
        }
    }
    assert_ok(set_trace(many[0], refuse, &n_left));
    uint32_t n_running = kMany, n_failed = 0;
    int ended[kMany] = {0, 0, 0, 0, 1};
    while (n_running != 0) {
        for (uint32_t i = 0; i < kMany; ++i) events[i] = event;
        uint32_t before[kMany];
        weir_session_stats stats = WEIR_SESSION_STATS_INIT;
        for (uint32_t i = 0; i < kMany; ++i) {
            assert_ok(weir_session_get_stats(many[i], &stats));
            before[i] = stats.n_tokens;
        }
        const weir_status status = weir_next_many(many, events, kMany, &n_running);
        if (status != WEIR_OK) {
            assert_int_equal(status, WEIR_ERR_CANCELLED);
            ++n_failed;
            for (uint32_t i = 0; i < kMany; ++i) {
                assert_ok(weir_session_get_stats(many[i], &stats));
                assert_int_equal(stats.n_tokens, before[i]);
            }
            continue;
        }
        uint32_t n = 0;
        for (uint32_t i = 0; i < kMany; ++i) {
            assert_int_equal(events[i].struct_size, sizeof(weir_event));
            if (ended[i]) {
                assert_int_equal(events[i].kind, WEIR_EVENT_END);
                assert_int_equal(events[i].stop, WEIR_STOP_NONE);
                continue;
            }
            weir_event want = WEIR_EVENT_INIT;
            assert_ok(weir_session_next(single[i], &want));
            assert_same_event(&events[i], &want, want.text);
            ended[i] = want.kind == WEIR_EVENT_END;
            n += ended[i] ? 0 : 1;
        }
        assert_int_equal(n_running, n);
    }
    assert_int_equal(n_failed, 1);
    events[1].struct_size = 16;
    assert_error(weir_next_many(many, events, kMany, NULL), WEIR_ERR_INVALID_ARG, "events[1].struct_size is 16");
    events[1].struct_size = sizeof(weir_event);
    weir_session *const third = many[3];
    many[3] = many[0];
    assert_error(weir_next_many(many, events, kMany, NULL), WEIR_ERR_INVALID_ARG, "the same session");
    many[3] = NULL;
    assert_error(weir_next_many(many, events, kMany, NULL), WEIR_ERR_INVALID_ARG, "sessions[3] is NULL");
    assert_error(weir_next_many(many, events, 0, NULL), WEIR_ERR_INVALID_ARG, "n_sessions is 0");
    many[3] = third;
    for (uint32_t i = 0; i < kMany; ++i) {
        weir_session_destroy(single[i]);
        weir_session_destroy(many[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answer_parts__of_the_tiny_model), cmocka_unit_test(answer_parts__begin_in_a_thought),
        cmocka_unit_test(answer_parts__thinking_budget),   cmocka_unit_test(answer_parts__finish_thinking),
        cmocka_unit_test(answer_parts__as_a_message),      cmocka_unit_test(answer_parts__calls_that_are_text),
        cmocka_unit_test(answer_parts__constrained_text_is_no_call),
        cmocka_unit_test(answer_parts__bad_calls),         cmocka_unit_test(answer_parts__next_many),
    };
    return cmocka_run_group_tests_name("api/answer_parts", tests, open_fixture, close_fixture);
}
