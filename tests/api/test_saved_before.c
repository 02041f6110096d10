/* api: conversations that an earlier version saved (tests/golden/sessions) are restored and go on, with the tokens that
 * this version says after the same conversation, and that the earlier one said. Where a default changed since, the
 * option must be given, and the message says which. */
#include <stdio.h>

#include "save_test.h"
#include "../golden/sessions/conversations.h"

#define FOLDER WEIR_SOURCE_DIR "/tests/golden/sessions/"
#define CLOSE_CALL 0.1f /* a token that is ahead by less may be another one on another processor */

typedef struct opened {
    weir_runtime *runtime;
    weir_model *model;
} opened;

static file read_session(const char *name) {
    char path[512];
    file f = {0};
    FILE *in;
    snprintf(path, sizeof(path), FOLDER "%s.session", name);
    in = fopen(path, "rb");
    assert_non_null(in);
    f.room = 1 << 20;
    f.bytes = (unsigned char *)malloc(f.room);
    assert_non_null(f.bytes);
    f.n = fread(f.bytes, 1, f.room, in);
    fclose(in);
    assert_true(f.n > 1000 && f.n < f.room);
    return f;
}

static void saved_before__goes_on(void **state) {
    const opened *f = (const opened *)*state;
    uint32_t n_clear = 0;
    for (size_t i = 0; i < N_CONVERSATIONS; ++i) {
        const conversation *c = &conversations[i];
        const weir_session_options options = options_of_conversation(c, 1);
        weir_session *restored = session_with(f->model, &options), *never_saved = session_with(f->model, &options);
        file saved_then = read_session(c->name), saved_now;
        char path[512];
        FILE *next;
        if (restore_from(restored, &saved_then) != WEIR_OK) fail_msg("%s: %s", c->name, weir_last_error());
        assert_int_equal(stats_of(restored).n_tokens, c->n_prompt + c->n_steps);
        assert_ok(have_conversation(never_saved, c));
        assert_int_equal(stats_of(restored).pages_resident, stats_of(never_saved).pages_resident);
        assert_int_equal(stats_of(restored).pages_cold, stats_of(never_saved).pages_cold);
        snprintf(path, sizeof(path), FOLDER "%s.next", c->name);
        next = fopen(path, "r");
        assert_non_null(next);
        for (uint32_t step = 0; step < N_NEXT; ++step) {
            weir_token here = -1, there = -1;
            int then = -1;
            float ahead = 0, ahead_there = 0, ahead_then = 0;
            assert_int_equal(fscanf(next, "%d %f", &then, &ahead_then), 2);
            assert_ok(best_next(restored, c, step, &here, &ahead));
            assert_ok(best_next(never_saved, c, step, &there, &ahead_there));
            if (ahead_then < CLOSE_CALL) continue;
            ++n_clear;
            if (here != there || here != then)
                fail_msg("%s, step %u: restored %d, never saved %d, earlier %d", c->name, step, here, there, then);
        }
        fclose(next);
        /* And is saved again, as this version does. */
        saved_now = saved(restored);
        assert_ok(restore_from(never_saved, &saved_now));
        free(saved_now.bytes);
        free(saved_then.bytes);
        weir_session_destroy(restored);
        weir_session_destroy(never_saved);
    }
    assert_true(n_clear > N_CONVERSATIONS * N_NEXT * 3 / 4);
}

/* Without what must be given since: refused, by name, and the session is as it was. */
static void saved_before__says_what_must_be_given(void **state) {
    const opened *f = (const opened *)*state;
    uint32_t n_refused = 0;
    for (size_t i = 0; i < N_CONVERSATIONS; ++i) {
        const conversation *c = &conversations[i];
        const weir_session_options options = options_of_conversation(c, 0);
        weir_session *session = session_with(f->model, &options);
        file saved_then = read_session(c->name);
        if (c->n_later == 0) {
            assert_ok(restore_from(session, &saved_then));
        } else {
            ++n_refused;
            assert_error(restore_from(session, &saved_then), WEIR_ERR_UNSUPPORTED, c->options[c->n_options].key);
            assert_int_equal(stats_of(session).n_tokens, 0);
        }
        free(saved_then.bytes);
        weir_session_destroy(session);
    }
    assert_true(n_refused >= 3);
}

static int open_model(void **state) {
    static opened f;
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    options.n_threads = 1;
    assert_ok(weir_runtime_create(&options, &f.runtime));
    assert_ok(weir_model_open(f.runtime, WEIR_SOURCE_DIR "/tests/golden/models/llama_mqa.gguf", NULL, &f.model));
    *state = &f;
    return 0;
}

static int close_model(void **state) {
    opened *f = (opened *)*state;
    weir_model_close(f->model);
    weir_runtime_destroy(f->runtime);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_before__goes_on),
        cmocka_unit_test(saved_before__says_what_must_be_given),
    };
    return cmocka_run_group_tests_name("api/saved_before", tests, open_model, close_model);
}
