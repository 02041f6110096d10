/* Answers that a program can read: whatever the model would say, the answer is JSON of this schema.
 *
 *   05_json MODEL.gguf [QUESTION]
 *
 * A constraint is compiled once and can serve any number of sessions. Before each token is drawn it leaves only those
 * that the schema allows next, so nothing has to be repaired or asked again. What the model thinks stays free. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

static const char schema[] =
    "{\"type\": \"object\","
    " \"properties\": {"
    "   \"answer\": {\"type\": \"string\", \"maxLength\": 80},"
    "   \"kind\": {\"enum\": [\"number\", \"name\", \"other\"]},"
    "   \"confidence\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 100}},"
    " \"required\": [\"answer\", \"kind\", \"confidence\"],"
    " \"additionalProperties\": false}";

static void check(weir_status status, const char *what) {
    if (status == WEIR_OK) return;
    fprintf(stderr, "%s: %s: %s\n", what, weir_status_name(status), weir_last_error());
    exit(1);
}

int main(int argc, char **argv) {
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_session *session = NULL;
    weir_constraint *constraint = NULL;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_event event = WEIR_EVENT_INIT;
    const char *question = argc > 2 ? argv[2] : "What is the capital of France? Answer in JSON.";
    weir_chat_message message = {.role = "user", .content = question, .content_bytes = strlen(question)};

    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL.gguf [QUESTION]\n", argv[0]);
        return 2;
    }
    check(weir_runtime_create(NULL, &runtime), "create a runtime");
    check(weir_model_open(runtime, argv[1], NULL, &model), "open the model");
    check(weir_session_create(model, NULL, &session), "create a session");
    /* A schema with a keyword that is not supported, or one that contradicts itself, fails here and says where. */
    check(weir_constraint_create(model, WEIR_CONSTRAINT_JSON_SCHEMA, schema, strlen(schema), &constraint),
          "compile the schema");
    check(weir_session_set_constraint(session, constraint, 0), "constrain the answers");

    check(weir_session_prompt(session, &message, 1, NULL, NULL, NULL), "read the question");
    options.max_tokens = 2048;
    check(weir_session_begin(session, &options), "begin an answer");
    do {
        check(weir_session_next(session, &event), "answer");
        if (event.segment == WEIR_SEGMENT_ANSWER) fwrite(event.text, 1, event.text_bytes, stdout);
        fflush(stdout);
    } while (event.kind != WEIR_EVENT_END);
    printf("\n");

    weir_constraint_destroy(constraint); /* the session keeps what it needs */
    weir_session_destroy(session);
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    /* Complete, unless the model thought for too long or the context ended. */
    return event.stop == WEIR_STOP_EOS || event.stop == WEIR_STOP_CONSTRAINT ? 0 : 1;
}
