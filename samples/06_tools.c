/* A model that calls a tool: it asks for the time, this program tells it, and it answers.
 *
 *   06_tools MODEL.gguf [QUESTION]
 *
 * The model's chat template shows it the tools in the way that it was trained with, and calls come back parsed,
 * whatever way the model writes them. A model whose template has no place for tools gets them in a system message here,
 * and a constraint makes its answer a call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weir/weir.h>

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_time\", \"description\": \"The time of the day.\","
    " \"parameters\": {\"type\": \"object\", \"properties\": {\"zone\": {\"enum\": [\"UTC\", \"local\"]}},"
    " \"required\": [\"zone\"], \"additionalProperties\": false}}}]";

static weir_model *model;
static weir_session *session;

static void check(weir_status status, const char *what) {
    if (status == WEIR_OK) return;
    fprintf(stderr, "%s: %s: %s\n", what, weir_status_name(status), weir_last_error());
    exit(1);
}

static weir_chat_message say(const char *role, const char *text) {
    weir_chat_message message = WEIR_CHAT_MESSAGE_INIT;
    message.role = role;
    message.content = text;
    message.content_bytes = strlen(text);
    return message;
}

/* Prints an answer to these messages as it comes. */
static void answer(const weir_chat_message *messages, uint64_t n_messages, const weir_chat_options *chat,
                   uint32_t flags) {
    weir_prompt_options prompt = WEIR_PROMPT_OPTIONS_INIT;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_event event = WEIR_EVENT_INIT;
    prompt.chat = chat;
    check(weir_session_prompt(session, messages, n_messages, &prompt, NULL, NULL), "read the messages");
    options.flags = flags;
    options.max_tokens = 1024;
    check(weir_session_begin(session, &options), "begin an answer");
    do {
        check(weir_session_next(session, &event), "answer");
        fwrite(event.text, 1, event.text_bytes, stdout);
        fflush(stdout);
    } while (event.kind != WEIR_EVENT_END);
    printf("\n");
}

/* A tool of a real program would read the arguments. */
static const char *get_time(void) {
    static char text[64];
    const time_t now = time(NULL);
    strftime(text, sizeof text, "{\"time\": \"%H:%M\"}", gmtime(&now));
    return text;
}

static void with_template(const char *question) {
    weir_chat_options chat = WEIR_CHAT_OPTIONS_INIT;
    weir_chat_message messages[3], answered;
    uint32_t is_malformed = 0;
    char *calls;
    chat.flags = WEIR_CHAT_ADD_ASSISTANT;
    chat.tools_json = tools;
    messages[0] = say("user", question);
    answer(messages, 1, &chat, WEIR_GENERATE_STOP_AT_CALL);
    check(weir_session_answer(session, &answered, sizeof answered, &is_malformed), "read the answer");
    if (answered.tool_calls_json == NULL) {
        printf("[no call%s]\n", is_malformed ? " that can be read" : "");
        return;
    }
    printf("[calls: %s]\n", answered.tool_calls_json);
    /* The answer's texts are the session's until its next call. */
    calls = malloc(strlen(answered.tool_calls_json) + 1);
    if (calls == NULL) exit(1);
    strcpy(calls, answered.tool_calls_json);
    messages[1] = say("assistant", "");
    messages[1].tool_calls_json = calls;
    messages[2] = say("tool", get_time());
    messages[2].name = "get_time";
    answer(messages, 3, &chat, 0);
    free(calls);
}

static void with_constraint(const char *question) {
    weir_constraint *constraint = NULL;
    weir_chat_message messages[2];
    char system[1024];
    snprintf(system, sizeof system, "Answer with a call of a tool, as {\"name\", \"arguments\"}: %s", tools);
    messages[0] = say("system", system);
    messages[1] = say("user", question);
    check(weir_constraint_create(model, WEIR_CONSTRAINT_TOOLS, tools, strlen(tools), &constraint),
          "compile the tools");
    check(weir_session_set_constraint(session, constraint, 0), "constrain the answers");
    answer(messages, 2, NULL, 0);
    weir_constraint_destroy(constraint);
}

int main(int argc, char **argv) {
    weir_runtime *runtime = NULL;
    weir_chat_info info = WEIR_CHAT_INFO_INIT;
    const char *question = argc > 2 ? argv[2] : "What time is it? Use the tool.";
    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL.gguf [QUESTION]\n", argv[0]);
        return 2;
    }
    check(weir_runtime_create(NULL, &runtime), "create a runtime");
    check(weir_model_open(runtime, argv[1], NULL, &model), "open the model");
    check(weir_session_create(model, NULL, &session), "create a session");
    check(weir_model_chat_info(model, &info), "look at the chat template");
    if ((info.can & WEIR_CHAT_CAN_TOOLS) != 0 && info.tool_format[0] != '\0')
        with_template(question);
    else
        with_constraint(question);
    weir_session_destroy(session);
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    return 0;
}
