/* api: the parts of an answer: its thoughts, what it says and the marks between them, as events show them. The tiny
 * model thinks between tokens that are tags. */
#include "api_test.h"

enum { kMostText = 1 << 13 };

typedef struct parts {
    char text[4][kMostText]; /* of each segment */
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
    assert_true(p->n[segment] + event->text_bytes < kMostText);
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

/* All events of the answer, at most n_most. */
static void pull(weir_session *session, uint32_t n_most, parts *p) {
    for (uint32_t i = 0; i < n_most; ++i) {
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answer_parts__of_the_tiny_model),
        cmocka_unit_test(answer_parts__begin_in_a_thought),
    };
    return cmocka_run_group_tests_name("api/answer_parts", tests, open_fixture, close_fixture);
}
