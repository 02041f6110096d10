/* Long reasoning in a fixed footprint: the KV memory gets a byte budget before the first token and never exceeds it.
 *
 *   03_budget MODEL.gguf [BUDGET_TOKENS]
 *
 * Plans a session, checks the plan against what the application can spare, creates the session, lets the model think
 * for far longer than the budget holds, and compares the plan with what was really used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#define SPARE_BYTES (64ull << 20) /* what this application is willing to give to one conversation */
#define N_START 12
#define N_STEPS 120

static void check(weir_status status, const char *what) {
    if (status == WEIR_OK) return;
    fprintf(stderr, "%s: %s: %s\n", what, weir_status_name(status), weir_last_error());
    exit(1);
}

/* A chain problem whose answer takes some two thousand tokens of thought. */
static void write_problem(char *text, size_t capacity) {
    size_t n = (size_t)snprintf(text, capacity, "Start: ");
    int i;
    for (i = 0; i < N_START; i++) {
        const char *end = i + 1 < N_START ? ", " : ". ";
        n += (size_t)snprintf(text + n, capacity - n, "x%d = %d%s", i, (37 * i + 11) % 100, end);
    }
    snprintf(text + n, capacity - n, "Rule: x[n] = x[n-%d] + x[n-5]. Work modulo 100. Find x%d.", N_START,
             N_START + N_STEPS - 1);
}

/* Keeps the end of the text, where the answer is. */
typedef struct tail {
    char text[64];
} tail;

static weir_status keep_tail(void *user, const weir_token_event *event) {
    tail *t = user;
    uint64_t i;
    for (i = 0; i < event->text_bytes; i++) {
        memmove(t->text, t->text + 1, sizeof t->text - 2);
        t->text[sizeof t->text - 2] = event->text[i];
    }
    return WEIR_OK;
}

static const char *last_line(const tail *t) {
    const char *text = t->text, *newline;
    while (*text == '\0' && text < t->text + sizeof t->text - 1) text++;
    newline = strrchr(text, '\n');
    return newline != NULL ? newline + 1 : text;
}

int main(int argc, char **argv) {
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    char question[1024];
    weir_chat_message message = {.role = "user", .content = question};
    tail end;

    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL.gguf [BUDGET_TOKENS]\n", argv[0]);
        return 2;
    }
    memset(&end, 0, sizeof end);
    check(weir_runtime_create(NULL, &runtime), "runtime");
    check(weir_model_open(runtime, argv[1], NULL, &model), "model");

    /* RaaS keeps the prompt and the pages that the reasoning still looks at; the stalest page makes room. */
    options.policy = "raas";
    options.budget_tokens = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1024;

    /* The plan allocates nothing. Its total is what the session will take, to the byte, however long it thinks. */
    check(weir_plan(model, &options, &plan), "plan");
    printf("plan: %llu bytes, %llu of them KV pages for %u tokens a stream\n", (unsigned long long)plan.total_bytes,
           (unsigned long long)plan.kv_bytes, (unsigned)plan.budget_tokens);
    if (plan.total_bytes > SPARE_BYTES) {
        fprintf(stderr, "that is more than the %llu bytes to spare\n", SPARE_BYTES);
        return 1;
    }

    check(weir_session_create(model, &options, &session), "session");
    write_problem(question, sizeof question);
    printf("question: %s\n", question);
    message.content_bytes = strlen(question);
    check(weir_session_prompt(session, &message, 1, NULL, NULL, NULL), "read the question");
    generate.on_token = keep_tail;
    generate.user = &end;
    check(weir_session_generate(session, &generate, &result), "answer");
    printf("answer: %s\n", last_line(&end));

    check(weir_session_get_stats(session, &stats), "stats");
    check(weir_session_memory(session, &memory), "memory");
    printf("thought for %llu tokens; %llu pages left the KV memory, at most %llu were in it\n",
           (unsigned long long)stats.n_decode, (unsigned long long)stats.pages_evicted,
           (unsigned long long)stats.pages_resident_max);
    printf("peak: %llu bytes; allocations while decoding: %llu\n", (unsigned long long)memory.peak_bytes,
           (unsigned long long)memory.allocs_while_decoding);

    weir_session_destroy(session);
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    return memory.peak_bytes == plan.total_bytes && memory.allocs_while_decoding == 0 ? 0 : 1;
}
