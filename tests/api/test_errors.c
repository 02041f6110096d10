/* api: weir_last_error and log lines: which call's text they have, and that it is one line of UTF-8 whatever paths,
 * names and files contain. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api_test.h"

/* One line of well-formed UTF-8 without control characters. */
static int is_plain(const char *text) {
    const unsigned char *p = (const unsigned char *)text;
    while (*p != 0) {
        const int n = *p < 0x80 ? 1 : *p < 0xC2 ? 0 : *p < 0xE0 ? 2 : *p < 0xF0 ? 3 : *p < 0xF5 ? 4 : 0;
        if (n == 0 || *p < 0x20 || *p == 0x7F || (*p == 0xC2 && p[1] < 0xA0)) return 0;
        for (int i = 1; i < n; ++i) {
            if ((p[i] & 0xC0) != 0x80) return 0;
        }
        p += n;
    }
    return 1;
}

#define assert_plain(text)                                                                        \
    do {                                                                                          \
        if (!is_plain(text) || strlen(text) > 1023) fail_msg("not plain text: \"%s\"", (text));   \
    } while (0)

/* `times` copies of `part`. */
static const char *repeated(const char *part, size_t times) {
    static char text[200000];
    const size_t n = strlen(part);
    assert_true(n * times < sizeof(text));
    for (size_t i = 0; i < times; ++i) memcpy(text + i * n, part, n);
    text[n * times] = '\0';
    return text;
}

static void errors__quote_anything_as_plain_text(void **state) {
    const fixture *f = *state;
    static const char *const parts[] = {"\x1b[31m", "\xff", "\xC3\xA9", "\xE2\x82\xAC",
                                        "\n",       "x",    "\xC2\x9B", "\x80\xC3"};
    static const size_t times[] = {1, 21, 22, 33, 64, 100, 399, 400, 401, 1000, 30000};
    for (size_t p = 0; p < sizeof(parts) / sizeof(parts[0]); ++p) {
        for (size_t t = 0; t < sizeof(times) / sizeof(times[0]); ++t) {
            const char *text = repeated(parts[p], times[t]);
            weir_model *model = NULL;
            weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
            weir_plan_info plan = WEIR_PLAN_INFO_INIT;
            weir_key_value option = {text, "1"};
            const weir_chat_message message = CHAT_MESSAGE(text, "x", 1);
            uint64_t n = 0;
            assert_int_equal(weir_model_open(f->runtime, text, NULL, &model), WEIR_ERR_IO);
            assert_plain(weir_last_error());
            assert_true(strstr(weir_last_error(), ": cannot be opened: ") !=
                        NULL); /* however long the path, the reason is there */
            options.policy = text;
            assert_int_equal(weir_plan(f->model, &options, &plan), WEIR_ERR_NOT_FOUND);
            assert_plain(weir_last_error());
            assert_non_null(strstr(weir_last_error(), "; there are: dense"));
            options.policy = "raas";
            options.policy_options = &option;
            options.n_policy_options = 1;
            assert_int_equal(weir_plan(f->model, &options, &plan), WEIR_ERR_NOT_FOUND);
            assert_plain(weir_last_error());
            option.key = "r";
            option.value = text;
            assert_int_equal(weir_plan(f->model, &options, &plan), WEIR_ERR_INVALID_ARG);
            assert_plain(weir_last_error());
            assert_int_equal(weir_session_options_preset(text, &options), WEIR_ERR_NOT_FOUND);
            assert_plain(weir_last_error());
            assert_int_equal(weir_chat_render(f->model, &message, 1, 0, NULL, 0, &n), WEIR_ERR_INVALID_ARG);
            assert_plain(weir_last_error());
        }
    }
}

/* Writes the embedded model, with the text of `key`'s value beginning with bytes that are neither UTF-8 nor harmless,
 * to a new file, whose name takes the place of the X in `path`: another run of this program may be in the same folder.
 * Returns 0 when there is no such value. */
static int write_spoiled(char *path, const char *key) {
    static char bytes[64 << 20];
    const int handle = mkstemp(path);
    FILE *from = fopen(TINY_MODEL, "rb"), *to = handle < 0 ? NULL : fdopen(handle, "wb");
    size_t n, found = 0;
    assert_non_null(from);
    assert_non_null(to);
    n = fread(bytes, 1, sizeof(bytes), from);
    for (size_t i = 0; i + strlen(key) + 20 < n && !found; ++i) {
        if (memcmp(bytes + i, key, strlen(key)) != 0) continue;
        memcpy(bytes + i + strlen(key) + 4 + 8, "\xff\x1b[3", 4); /* type, length, text */
        found = 1;
    }
    assert_int_equal(fwrite(bytes, 1, n, to), n);
    fclose(from);
    fclose(to);
    return (int)found;
}

static void errors__quote_files_as_plain_text(void **state) {
    static const char *const keys[] = {"general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre"};
    const fixture *f = *state;
    for (int i = 0; i < 3; ++i) {
        char path[] = "weir-spoiled-XXXXXX";
        weir_model *model = NULL;
        assert_true(write_spoiled(path, keys[i]));
        assert_int_equal(weir_model_open(f->runtime, path, NULL, &model), WEIR_ERR_UNSUPPORTED);
        assert_plain(weir_last_error());
        assert_non_null(strstr(weir_last_error(), keys[i]));
        unlink(path);
    }
}

/* The name in the info struct is plain text, too. */
static void errors__names_of_models_are_plain_text(void **state) {
    char path[] = "weir-spoiled-XXXXXX";
    const fixture *f = *state;
    weir_model *model = NULL;
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    assert_true(write_spoiled(path, "general.name"));
    assert_ok(weir_model_open(f->runtime, path, NULL, &model));
    assert_ok(weir_model_get_info(model, &info));
    assert_plain(info.name);
    assert_ptr_equal(strstr(info.name, "\xEF\xBF\xBD\\x1b[3"), info.name);
    weir_model_close(model);
    unlink(path);
}

typedef struct lines {
    int n;
    int n_wrong;
    size_t longest;
} lines;

static weir_status check_line(void *user, const weir_log_info *info) {
    lines *l = user;
    ++l->n;
    l->n_wrong += !is_plain(info->message) || strlen(info->message) != info->message_bytes;
    if (info->message_bytes > l->longest) l->longest = info->message_bytes;
    return WEIR_OK;
}

/* Paths of two-byte characters, of even and odd length before them, longer than a line; one with a control byte. */
static void errors__log_lines_are_plain_text(void **state) {
    lines l = {0, 0, 0};
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    weir_runtime *runtime = NULL;
    char *target = realpath(TINY_MODEL, NULL); /* a link's target counts from the link's folder */
    (void)state;
    assert_non_null(target);
    options.log = check_line;
    options.log_user = &l;
    options.log_level = WEIR_LOG_DEBUG;
    assert_ok(weir_runtime_create(&options, &runtime));
    for (int i = 0; i < 3; ++i) {
        char path[4096] = "weir-log-XXXXXX";
        weir_model *model = NULL;
        assert_non_null(mkdtemp(path));
        for (int depth = 0; depth < 3; ++depth) {
            strcat(path, depth == 0 && i == 1 ? "/x" : depth == 0 && i == 2 ? "/\x1b\n" : "/");
            strcat(path, repeated("\xC3\xA9", 110));
            assert_int_equal(mkdir(path, 0700), 0);
        }
        strcat(path, "/m.gguf");
        assert_int_equal(symlink(target, path), 0);
        assert_ok(weir_model_open(runtime, path, NULL, &model));
        weir_model_close(model);
        for (char *slash; (slash = strrchr(path, '/')) != NULL; *slash = '\0') (void)remove(path);
        (void)remove(path);
    }
    free(target);
    weir_runtime_destroy(runtime);
    assert_true(l.n >= 4);
    assert_int_equal(l.n_wrong, 0);
    assert_true(l.longest >= 500 && l.longest <= 511);
}

/* A folder that does not exist is made when there is something to keep; one that cannot be named is refused. */
static void errors__of_a_cache_folder(void **state) {
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    weir_runtime *runtime = NULL;
    char path[1100];
    (void)state;
    memset(path, 'x', sizeof(path) - 1);
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    options.cache_dir = path;
    assert_error(weir_runtime_create(&options, &runtime), WEIR_ERR_INVALID_ARG, "cache_dir");
    assert_null(runtime);
    options.cache_dir = "/no/such/folder";
    assert_ok(weir_runtime_create(&options, &runtime));
    weir_runtime_destroy(runtime);
    options.cache_dir = "";
    assert_ok(weir_runtime_create(&options, &runtime));
    weir_runtime_destroy(runtime);
}

static weir_status count_lines(void *user, const weir_log_info *info) {
    if (info->level == WEIR_LOG_WARNING && strstr(info->message, "cache_dir") != NULL) ++*(int *)user;
    return WEIR_OK;
}

/* Paths that are relative to a folder which is gone. */
static void errors__of_folders_without_a_current_one(void **state) {
    char gone[] = "/tmp/weir-errors-XXXXXX", before[4096];
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    weir_runtime *runtime = NULL;
    weir_status of_cache, of_backends, of_absolute;
    int n_lines = 0;
    (void)state;
    options.log = count_lines;
    options.log_user = &n_lines;
    options.log_level = WEIR_LOG_WARNING;
    assert_non_null(getcwd(before, sizeof(before)));
    assert_non_null(mkdtemp(gone));
    assert_int_equal(chdir(gone), 0);
    assert_int_equal(rmdir(gone), 0);
    options.cache_dir = "cache";
    of_cache = weir_runtime_create(&options, &runtime);
    weir_runtime_destroy(runtime);
    options.cache_dir = NULL;
    options.backend_dir = "backends";
    of_backends = weir_runtime_create(&options, &runtime);
    assert_null(runtime);
    assert_non_null(strstr(weir_last_error(), "backend_dir"));
    options.backend_dir = "/no/such/folder";
    options.cache_dir = "/no/such/folder";
    of_absolute = weir_runtime_create(&options, &runtime);
    weir_runtime_destroy(runtime);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(of_cache, WEIR_OK);
    assert_int_equal(n_lines, 1);
    assert_int_equal(of_backends, WEIR_ERR_IO);
    assert_int_equal(of_absolute, WEIR_OK);
}

/* When a session runs on the CPU because there is no module for a GPU, nothing has failed. */
static void errors__stay_over_calls_that_succeed(void **state) {
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_session *session = NULL;
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    const weir_token tokens[4] = {1, 2, 3, 4};
    (void)state;
    options.backend_dir = "/no/such/folder";
    assert_int_equal(weir_session_reset(NULL), WEIR_ERR_INVALID_ARG);
    assert_string_equal(weir_last_error(), "weir_session_reset: session is NULL");
    assert_ok(weir_runtime_create(&options, &runtime));
    assert_ok(weir_model_open(runtime, TINY_MODEL, NULL, &model));
    assert_ok(weir_plan(model, NULL, &plan));
    assert_ok(weir_session_create(model, NULL, &session));
    assert_ok(weir_session_prefill(session, tokens, 4, NULL, NULL));
    assert_ok(weir_session_generate(
        session, &(weir_generate_options){.struct_size = sizeof(weir_generate_options), .max_tokens = 3}, NULL));
    assert_string_equal(weir_last_error(), "weir_session_reset: session is NULL");
    weir_session_destroy(session);
    weir_model_close(model);
    weir_runtime_destroy(runtime);
}

static weir_status fail_inside(void *user, const weir_token_event *event) {
    (void)event;
    assert_error(weir_session_step(user, 1), WEIR_ERR_BUSY, "another thread is inside this session");
    return WEIR_OK;
}

static weir_status fail_and_free(void *user, const weir_alloc_info *info) {
    (void)user;
    (void)weir_session_reset(NULL); /* a hook whose own calls fail */
    (void)weir_session_step(NULL, 1);
    free(info->ptr);
    return WEIR_OK;
}

static weir_status plain_alloc(void *user, const weir_alloc_info *info, void **out) {
    (void)user;
    return posix_memalign(out, info->alignment < sizeof(void *) ? sizeof(void *) : info->alignment, info->bytes) == 0
               ? WEIR_OK
               : WEIR_ERR_OUT_OF_MEMORY;
}

/* Calls that callbacks make have texts of their own: a call that fails reports its own reason, one that succeeds leaves
 * the text alone. */
static void errors__of_callbacks_calls_are_their_own(void **state) {
    const fixture *f = *state;
    weir_session *session = NULL;
    weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    assert_ok(weir_session_create(f->model, NULL, &session));
    prefill_text(f->model, session, RULE_PROMPT);
    generate.max_tokens = 2;
    generate.on_token = fail_inside;
    generate.user = session;
    assert_ok(weir_session_generate(session, &generate, NULL));
    assert_string_equal(weir_last_error(), "another thread is inside this session");
    weir_session_destroy(session);
    options.alloc = plain_alloc;
    options.free = fail_and_free;
    assert_ok(weir_runtime_create(&options, &runtime));
    assert_error(weir_model_open(runtime, WEIR_SOURCE_DIR "/tests/golden/bad_gguf/expected.txt", NULL, &model),
                 WEIR_ERR_FORMAT, "not a GGUF file");
    weir_runtime_destroy(runtime);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors__quote_anything_as_plain_text),
        cmocka_unit_test(errors__quote_files_as_plain_text),
        cmocka_unit_test(errors__names_of_models_are_plain_text),
        cmocka_unit_test(errors__log_lines_are_plain_text),
        cmocka_unit_test(errors__of_a_cache_folder),
        cmocka_unit_test(errors__of_folders_without_a_current_one),
        cmocka_unit_test(errors__stay_over_calls_that_succeed),
        cmocka_unit_test(errors__of_callbacks_calls_are_their_own),
    };
    return cmocka_run_group_tests_name("api_errors", tests, open_fixture, close_fixture);
}
