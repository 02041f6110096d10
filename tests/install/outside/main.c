/* Uses an installed Weir: opens the model that is given, feeds it a prompt and decodes a few tokens. Exit status 0 when
 * all of that worked. */
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

static int failed(const char *what, weir_status status) {
    if (status == WEIR_OK) return 0;
    fprintf(stderr, "%s: %s: %s\n", what, weir_status_name(status), weir_last_error());
    return 1;
}

static int decode(weir_model *model, weir_session *session) {
    static const char prompt[] = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n";
    weir_token tokens[64];
    uint64_t n_tokens = 0;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    options.max_tokens = 8;
    if (failed("tokenize", weir_tokenize(model, prompt, strlen(prompt), WEIR_TOKENIZE_SPECIAL, tokens, 64, &n_tokens)))
        return 1;
    if (failed("prefill", weir_session_prefill(session, tokens, n_tokens, NULL, NULL))) return 1;
    if (failed("generate", weir_session_generate(session, &options, &result))) return 1;
    printf("libweir %s: %u prompt tokens, %u decoded\n", weir_version_string(), (unsigned)n_tokens,
           (unsigned)result.n_tokens);
    return result.n_tokens == 0;
}

int main(int argc, char **argv) {
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    int wrong = 1;
    options.context_tokens = 256;
    if (argc == 2 && !failed("runtime", weir_runtime_create(NULL, &runtime)) &&
        !failed("model", weir_model_open(runtime, argv[1], NULL, &model)) &&
        !failed("session", weir_session_create(model, &options, &session))) {
        wrong = decode(model, session);
    }
    weir_session_destroy(session);
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    return wrong;
}
