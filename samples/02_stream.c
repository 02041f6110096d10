/* A conversation of two turns, streamed, that another thread or the callback can stop.
 *
 *   02_stream MODEL.gguf [MAX_TOKENS]
 *
 * The session keeps the history: the second turn feeds only the new message, which WEIR_CHAT_CONTINUE puts behind the
 * end of the answer before it. The callback stops an answer at MAX_TOKENS by returning a status that is not
 * WEIR_OK; weir_session_cancel does the same from any other thread. Such a cancel stays until it has ended a call, so
 * the thread that takes the clicks of a Stop button calls weir_session_clear_cancel when a new turn begins: as ask()
 * does here, where one thread is both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#define MAX_PROMPT_TOKENS 4096

typedef struct answer {
    uint32_t n_tokens;   /* shown so far */
    uint32_t max_tokens; /* stop there */
} answer;

static int failed(weir_status status, const char *what) {
    if (status == WEIR_OK) return 0;
    fprintf(stderr, "%s: %s: %s\n", what, weir_status_name(status), weir_last_error());
    return 1;
}

/* The text of an event is always whole UTF-8 characters, perhaps none. The callback runs on the thread that called
 * generate; it should be quick, because the next token waits for it. */
static weir_status on_token(void *user, const weir_token_event *event) {
    answer *a = user;
    fwrite(event->text, 1, event->text_bytes, stdout);
    fflush(stdout);
    a->n_tokens++;
    return a->n_tokens < a->max_tokens ? WEIR_OK : WEIR_ERR_CANCELLED;
}

/* Long prompts take a while; this is the place to move a progress bar, or to give up. */
static weir_status on_progress(void *user, const weir_progress_info *info) {
    (void)user;
    fprintf(stderr, "reading %llu of %llu tokens\n", (unsigned long long)info->done, (unsigned long long)info->total);
    return WEIR_OK;
}

/* Adds one user turn to the session. */
static int feed(const weir_model *model, weir_session *session, const char *question, int is_first) {
    weir_chat_message message = {.role = "user", .content = question, .content_bytes = strlen(question)};
    weir_chat_options options = WEIR_CHAT_OPTIONS_INIT;
    static weir_token tokens[MAX_PROMPT_TOKENS];
    uint64_t n_tokens = 0;
    weir_status status;

    options.flags = WEIR_CHAT_ADD_ASSISTANT | (is_first ? 0 : WEIR_CHAT_CONTINUE);
    status = weir_chat_tokenize(model, &message, 1, &options, tokens, MAX_PROMPT_TOKENS, &n_tokens);
    if (failed(status, "tokenize the question")) return 1;
    return failed(weir_session_prefill(session, tokens, n_tokens, on_progress, NULL), "read the question");
}

static int ask(const weir_model *model, weir_session *session, const char *question, int is_first,
               uint32_t max_tokens) {
    answer a = {0, 0};
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    weir_status status;

    a.max_tokens = max_tokens;
    options.flags = WEIR_GENERATE_SPECIAL_TEXT;
    options.on_token = on_token;
    options.user = &a;
    weir_session_clear_cancel(session); /* what was meant for the turn before */
    printf("\n> %s\n", question);
    if (feed(model, session, question, is_first)) return 1;
    status = weir_session_generate(session, &options, &result);
    /* A stopped answer is no failure: what was shown stays in the session, and the conversation can go on. */
    if (status != WEIR_ERR_CANCELLED && failed(status, "answer")) return 1;
    printf("\n[%u tokens, %s]\n", (unsigned)result.n_tokens, result.stop == WEIR_STOP_EOS ? "complete" : "stopped");
    return 0;
}

int main(int argc, char **argv) {
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_session *session = NULL;
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    uint32_t max_tokens = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1000;
    int wrong = 1;

    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL.gguf [MAX_TOKENS]\n", argv[0]);
        return 2;
    }
    sampling.temperature = 0.0f; /* greedy; try 0.8 and another seed with a large model */
    sampling.seed = 1;
    if (!failed(weir_runtime_create(NULL, &runtime), "runtime") &&
        !failed(weir_model_open(runtime, argv[1], NULL, &model), "model") &&
        !failed(weir_session_create(model, NULL, &session), "session") &&
        !failed(weir_session_set_sampling(session, &sampling), "sampling")) {
        wrong = ask(model, session,
                    "Start: x0 = 7, x1 = 5. Rule: x[n] = x[n-2] + x[n-1]. Work modulo 100. Find x12.", 1, max_tokens) ||
                ask(model, session, "What was x7?", 0, max_tokens);
    }
    /* Destroy functions accept NULL, so one path serves success and failure. */
    weir_session_destroy(session);
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    return wrong;
}
