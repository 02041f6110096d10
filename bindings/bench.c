/* What a token costs in C: which bench.py compiles and starts beside the program of a language.
 *
 *   bench MODEL TOKENS
 *
 * Prints, of an answer that is pushed and of one that is pulled, nanoseconds a token in all and outside of what the
 * library computes, weir_session_stats.decode_ns. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weir/weir.h>

static void check(weir_status status, const char *what) {
    if (status == WEIR_OK) return;
    fprintf(stderr, "%s: %s: %s\n", what, weir_status_name(status), weir_last_error());
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static uint64_t n_bytes; /* so that the texts are looked at */

static weir_status take(void *user, const weir_token_event *event) {
    (void)user;
    n_bytes += event->text_bytes;
    return WEIR_OK;
}

static double decode_ns(const weir_session *session) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    check(weir_session_get_stats(session, &stats), "stats");
    return (double)stats.decode_ns;
}

int main(int argc, char **argv) {
    weir_runtime *runtime;
    weir_model *model;
    weir_session *session;
    weir_runtime_options threads = WEIR_RUNTIME_OPTIONS_INIT;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
    weir_event event = WEIR_EVENT_INIT;
    const char *question = "Who are you?";
    weir_chat_message message = {.role = "user", .content = question, .content_bytes = strlen(question)};
    uint32_t n_tokens;
    double started, pushed, pulled, pushed_inside, pulled_inside;

    if (argc != 3) return 2;
    n_tokens = (uint32_t)strtoul(argv[2], NULL, 10);
    threads.n_threads = 1;
    options.context_tokens = n_tokens + 64;
    options.policy = "sink";
    options.budget_tokens = 64;
    options.batch_tokens = 16;
    generate.max_tokens = n_tokens;
    generate.flags = WEIR_GENERATE_IGNORE_EOS;
    check(weir_runtime_create(&threads, &runtime), "runtime");
    check(weir_model_open(runtime, argv[1], NULL, &model), "model");
    check(weir_session_create(model, &options, &session), "session");

    check(weir_session_prompt(session, &message, 1, NULL, NULL, NULL), "prompt");
    generate.on_token = take;
    pushed_inside = decode_ns(session);
    started = now();
    check(weir_session_generate(session, &generate, NULL), "generate");
    pushed = now() - started;
    pushed_inside = decode_ns(session) - pushed_inside;

    check(weir_session_reset(session), "reset");
    check(weir_session_prompt(session, &message, 1, NULL, NULL, NULL), "prompt");
    generate.on_token = NULL;
    pulled_inside = decode_ns(session);
    started = now();
    check(weir_session_begin(session, &generate), "begin");
    do {
        check(weir_session_next(session, &event), "next");
        n_bytes += event.text_bytes;
    } while (event.kind != WEIR_EVENT_END);
    pulled = now() - started;
    pulled_inside = decode_ns(session) - pulled_inside;

    printf("%.0f %.0f %.0f %.0f\n", pushed / n_tokens, (pushed - pushed_inside) / n_tokens, pulled / n_tokens,
           (pulled - pulled_inside) / n_tokens);
    weir_session_destroy(session);
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    return n_bytes > 0 ? 0 : 1;
}
