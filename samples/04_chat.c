/* A conversation at the keyboard: all messages are kept here, and the session is made to hold them before each answer.
 *
 *   04_chat MODEL.gguf [SYSTEM]
 *
 * A line is a question. "/again" asks for another answer to the last one, "/undo" takes the last question and its
 * answer back, and the end of the input ends the program. Ctrl-C stops an answer, and what was said of it stays. The
 * answer is pulled, one event a call, so that the loop is this program's own. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#define MAX_MESSAGES 256
#define MAX_LINE 8192

static weir_session *session;

static void on_interrupt(int number) {
    (void)number;
    weir_session_cancel(session); /* allowed in a signal handler */
}

static void check(weir_status status, const char *what) {
    if (status == WEIR_OK) return;
    fprintf(stderr, "%s: %s: %s\n", what, weir_status_name(status), weir_last_error());
    exit(1);
}

/* Appends to a text on the heap. */
static void append(char **text, uint64_t *n_bytes, const char *more, uint64_t n_more) {
    char *grown = realloc(*text, *n_bytes + n_more + 1);
    if (grown == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    memcpy(grown + *n_bytes, more, n_more);
    *n_bytes += n_more;
    grown[*n_bytes] = '\0';
    *text = grown;
}

static weir_chat_message message(const char *role, const char *text) {
    weir_chat_message m = WEIR_CHAT_MESSAGE_INIT;
    char *copy = NULL;
    append(&copy, &m.content_bytes, text, strlen(text));
    m.role = role;
    m.content = copy;
    return m;
}

static void forget_last(weir_chat_message *messages, uint64_t *n) { free((void *)messages[--*n].content); }

/* Prints the answer and returns it as a message. */
static weir_chat_message answer(void) {
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_event event = WEIR_EVENT_INIT;
    char *text = NULL;
    weir_chat_message m = WEIR_CHAT_MESSAGE_INIT;
    options.flags = WEIR_GENERATE_SPECIAL_TEXT; /* marks such as <think> belong to what was said */
    options.max_tokens = 2048;
    check(weir_session_begin(session, &options), "begin an answer");
    do {
        check(weir_session_next(session, &event), "answer");
        append(&text, &m.content_bytes, event.text, event.text_bytes);
        fwrite(event.text, 1, event.text_bytes, stdout);
        fflush(stdout);
    } while (event.kind != WEIR_EVENT_END);
    printf(event.stop == WEIR_STOP_EOS ? "\n" : " [stopped]\n");
    m.role = "assistant";
    m.content = text;
    return m;
}

int main(int argc, char **argv) {
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    weir_prompt_options prompt = WEIR_PROMPT_OPTIONS_INIT;
    weir_chat_message messages[MAX_MESSAGES];
    uint64_t n = 0, n_system;
    char line[MAX_LINE];

    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL.gguf [SYSTEM]\n", argv[0]);
        return 2;
    }
    check(weir_runtime_create(NULL, &runtime), "create a runtime");
    check(weir_model_open(runtime, argv[1], NULL, &model), "open the model");
    check(weir_session_create(model, NULL, &session), "create a session");
    sampling.temperature = 0.8f;
    sampling.min_p = 0.05f;
    sampling.seed = 1; /* another one for other answers */
    check(weir_session_set_sampling(session, &sampling), "set the sampling");
    signal(SIGINT, on_interrupt);
    if (argc > 2) messages[n++] = message("system", argv[2]);
    n_system = n;
    /* When the context is full the oldest turns make room. */
    prompt.flags = WEIR_PROMPT_DROP_OLDEST;
    prompt.reserve_tokens = 64;

    while (n + 2 <= MAX_MESSAGES && printf("> ") > 0 && fflush(stdout) == 0 &&
           fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        if (strcmp(line, "/undo") == 0) {
            for (int i = 0; i < 2 && n > n_system; ++i) forget_last(messages, &n);
            continue;
        }
        if (strcmp(line, "/again") == 0) {
            if (n == n_system) continue;
            forget_last(messages, &n);
        } else {
            messages[n++] = message("user", line);
        }
        weir_session_clear_cancel(session); /* what was meant for the turn before */
        if (weir_session_prompt(session, messages, n, &prompt, NULL, NULL) != WEIR_OK) {
            fprintf(stderr, "read the messages: %s\n", weir_last_error());
            forget_last(messages, &n);
            continue;
        }
        messages[n++] = answer();
    }
    printf("\n");
    while (n > 0) forget_last(messages, &n);
    weir_session_destroy(session);
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    return 0;
}
