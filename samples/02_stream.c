/* A conversation of two turns, streamed, that another thread or the callback can stop.
 *
 *   02_stream MODEL.gguf [MAX_TOKENS]
 *
 * Each turn gives the session all messages; it keeps what it holds of them, the answer that it drew included, and reads
 * only the rest. The callback stops an answer at MAX_TOKENS by returning a status that is not
 * WEIR_OK; weir_session_cancel does the same from any other thread. Such a cancel stays until it has ended a call, so
 * the thread that takes the clicks of a Stop button calls weir_session_clear_cancel when a new turn begins: as reply()
 * does here, where one thread is both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#define MAX_TEXT 65536

typedef struct answer {
    uint32_t n_tokens;   /* shown so far */
    uint32_t max_tokens; /* stop there */
    uint64_t n_bytes;
    char text[MAX_TEXT];
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
    if (event->text_bytes > MAX_TEXT - a->n_bytes) return WEIR_ERR_CANCELLED; /* this sample keeps no more */
    memcpy(a->text + a->n_bytes, event->text, event->text_bytes);
    a->n_bytes += event->text_bytes;
    return a->n_tokens < a->max_tokens ? WEIR_OK : WEIR_ERR_CANCELLED;
}

/* Long prompts take a while; this is the place to move a progress bar, or to give up. */
static weir_status on_progress(void *user, const weir_progress_info *info) {
    (void)user;
    fprintf(stderr, "reading %llu of %llu tokens\n", (unsigned long long)info->done, (unsigned long long)info->total);
    return WEIR_OK;
}

static weir_chat_message message(const char *role, const char *text, uint64_t n_bytes) {
    weir_chat_message m = WEIR_CHAT_MESSAGE_INIT;
    m.role = role;
    m.content = text;
    m.content_bytes = n_bytes;
    return m;
}

/* Answers the last of the messages. */
static int reply(weir_session *session, const weir_chat_message *messages, uint64_t n_messages, answer *a) {
    weir_prompt_options prompt = WEIR_PROMPT_OPTIONS_INIT;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    weir_status status;

    prompt.progress = on_progress;
    options.flags = WEIR_GENERATE_SPECIAL_TEXT; /* marks such as <think> belong to what was said */
    options.on_token = on_token;
    options.user = a;
    weir_session_clear_cancel(session); /* what was meant for the turn before */
    printf("\n> %s\n", messages[n_messages - 1].content);
    if (failed(weir_session_prompt(session, messages, n_messages, &prompt, NULL, NULL), "read the messages")) return 1;
    status = weir_session_generate(session, &options, &result);
    /* A stopped answer is no failure: what was shown stays in the session, and the conversation can go on. */
    if (status != WEIR_ERR_CANCELLED && failed(status, "answer")) return 1;
    printf("\n[%u tokens, %s]\n", (unsigned)result.n_tokens, result.stop == WEIR_STOP_EOS ? "complete" : "stopped");
    return 0;
}

static int talk(weir_session *session, uint32_t max_tokens) {
    static const char question[] = "Start: x0 = 7, x1 = 5. Rule: x[n] = x[n-2] + x[n-1]. Work modulo 100. Find x12.";
    static const char follow_up[] = "What was x7?";
    static answer answers[2];
    weir_chat_message messages[3];
    answers[0].max_tokens = answers[1].max_tokens = max_tokens;
    messages[0] = message("user", question, strlen(question));
    if (reply(session, messages, 1, &answers[0])) return 1;
    messages[1] = message("assistant", answers[0].text, answers[0].n_bytes);
    messages[2] = message("user", follow_up, strlen(follow_up));
    return reply(session, messages, 3, &answers[1]);
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
        wrong = talk(session, max_tokens);
    }
    /* Destroy functions accept NULL, so one path serves success and failure. */
    weir_session_destroy(session);
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    return wrong;
}
