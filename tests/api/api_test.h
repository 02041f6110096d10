/* What the C API tests share: cmocka, the tiny model's path, and short helpers that fail the test with the library's
 * message. */
#ifndef WEIR_TESTS_API_TEST_H
#define WEIR_TESTS_API_TEST_H

#ifdef __cplusplus
#include "tests/cmocka_cpp.h"
#else
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir/weir.h"

/* WEIR_TEST_FILTER=<pattern with *> runs the tests whose names match, in every program that includes this. */
__attribute__((constructor)) static void take_test_filter(void) {
    const char *filter = getenv("WEIR_TEST_FILTER");
    if (filter != NULL) cmocka_set_test_filter(filter);
}

#define TINY_MODEL WEIR_SOURCE_DIR "/samples/models/weir-tiny-reasoner-q8_0.gguf"

/* A prompt for the tiny model; session__solves_a_problem has the answer. */
#define RULE_PROMPT                                                                                                    \
    "<|im_start|>user\nStart: x0 = 97, x1 = 57, x2 = 60. Rule: x[n] = x[n-3] - x[n-1]. Work modulo 100. Find x13."     \
    "<|im_end|>\n<|im_start|>assistant\n"

#define assert_ok(call)                                                                             \
    do {                                                                                            \
        const weir_status assert_ok_status = (call);                                                \
        if (assert_ok_status != WEIR_OK) {                                                          \
            fail_msg("%s: %s: %s", #call, weir_status_name(assert_ok_status), weir_last_error());   \
        }                                                                                           \
    } while (0)

/* The call fails with `status`, and the message contains `text`. */
#define assert_error(call, status, text)                                                                               \
    do {                                                                                                               \
        const weir_status assert_error_status = (call);                                                                \
        if (assert_error_status != (status) || strstr(weir_last_error(), (text)) == NULL) {                            \
            fail_msg("%s: got %s \"%s\", expected %s with \"%s\"", #call, weir_status_name(assert_error_status),       \
                     weir_last_error(), weir_status_name(status), (text));                                             \
        }                                                                                                              \
    } while (0)

typedef struct fixture {
    weir_runtime *runtime;
    weir_model *model;
} fixture;

/* A message with nothing but a text. */
#define CHAT_MESSAGE(role_, text, n_bytes) { .role = (role_), .content = (text), .content_bytes = (n_bytes) }

/* Group set-up and tear-down: a runtime with two threads and a model, mostly the tiny one. */
static inline int open_fixture_of(const char *path, void **state) {
    static fixture f;
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    options.n_threads = 2;
    if (weir_runtime_create(&options, &f.runtime) != WEIR_OK ||
        weir_model_open(f.runtime, path, NULL, &f.model) != WEIR_OK) {
        fprintf(stderr, "%s\n", weir_last_error());
        return -1;
    }
    *state = &f;
    return 0;
}

static inline int open_fixture(void **state) { return open_fixture_of(TINY_MODEL, state); }

/* The same for tests that take hundreds of steps in which any weights will do: a model of two small layers with random
 * weights. */
#define LONG_RUN_MODEL WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf"
#define LONG_RUN_VOCAB 272

static inline int open_long_run_fixture(void **state) {
    return open_fixture_of(LONG_RUN_MODEL, state);
}

static inline int close_fixture(void **state) {
    fixture *f = (fixture *)*state;
    weir_model_close(f->model);
    weir_runtime_destroy(f->runtime);
    return 0;
}

/* Tokens of `text`, control tokens recognised; the caller frees them. */
static inline weir_token *tokens_of(const weir_model *model, const char *text, uint64_t *n) {
    weir_token *tokens;
    *n = 0;
    assert_int_equal(weir_tokenize(model, text, strlen(text), WEIR_TOKENIZE_SPECIAL, NULL, 0, n),
                     WEIR_ERR_BUFFER_TOO_SMALL);
    tokens = (weir_token *)malloc(*n * sizeof(*tokens));
    assert_non_null(tokens);
    assert_ok(weir_tokenize(model, text, strlen(text), WEIR_TOKENIZE_SPECIAL, tokens, *n, n));
    return tokens;
}

static inline void prefill_text(const weir_model *model, weir_session *session, const char *text) {
    uint64_t n;
    weir_token *tokens = tokens_of(model, text, &n);
    assert_ok(weir_session_prefill(session, tokens, n, NULL, NULL));
    free(tokens);
}

#endif
