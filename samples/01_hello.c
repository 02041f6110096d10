/* The shortest whole program: open a model, ask one question, print the answer.
 *
 *   01_hello MODEL.gguf [QUESTION]
 *
 * Every call that can fail returns a weir_status; weir_last_error() tells what went wrong in words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

/* Ends the program when a call has failed. A real application would hand the text to its user instead. */
static void check(weir_status status, const char *what) {
    if (status == WEIR_OK) return;
    fprintf(stderr, "%s: %s: %s\n", what, weir_status_name(status), weir_last_error());
    exit(1);
}

/* Called for every token of the answer. */
static weir_status print_token(void *user, const weir_token_event *event) {
    (void)user;
    fwrite(event->text, 1, event->text_bytes, stdout);
    fflush(stdout);
    return WEIR_OK; /* anything else would stop the answer */
}

int main(int argc, char **argv) {
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_session *session = NULL;
    weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
    const char *question = argc > 2 ? argv[2] : "Who are you?";
    weir_chat_message message = {.role = "user", .content = question, .content_bytes = strlen(question)};

    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL.gguf [QUESTION]\n", argv[0]);
        return 2;
    }
    /* NULL options mean the defaults everywhere: all cores, greedy decoding, the model's whole context. */
    check(weir_runtime_create(NULL, &runtime), "create a runtime");
    check(weir_model_open(runtime, argv[1], NULL, &model), "open the model");
    check(weir_session_create(model, NULL, &session), "create a session");

    /* The session then holds the question as the model was trained to see it. Whatever it says, it stays the text of
     * one message. */
    check(weir_session_prompt(session, &message, 1, NULL, NULL, NULL), "read the question");

    generate.max_tokens = 512;
    generate.flags = WEIR_GENERATE_SPECIAL_TEXT; /* show marks such as <think> too */
    generate.on_token = print_token;
    check(weir_session_generate(session, &generate, NULL), "answer");
    printf("\n");

    weir_session_destroy(session);
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    return 0;
}
