/* api: version, status names, last error, structs of other versions, NULL everywhere. */
#include "api_test.h"

static void base__version_matches_headers(void **state) {
    char text[32];
    (void)state;
    snprintf(text, sizeof(text), "%d.%d.%d", WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH);
    assert_string_equal(weir_version_string(), text);
    assert_int_equal(weir_version(), (WEIR_VERSION_MAJOR << 16) | (WEIR_VERSION_MINOR << 8) | WEIR_VERSION_PATCH);
}

static void base__status_names(void **state) {
    (void)state;
    assert_string_equal(weir_status_name(WEIR_OK), "WEIR_OK");
    assert_string_equal(weir_status_name(WEIR_ERR_BUDGET), "WEIR_ERR_BUDGET");
    assert_string_equal(weir_status_name(WEIR_ERR_INTERNAL), "WEIR_ERR_INTERNAL");
    assert_string_equal(weir_status_name(-9999), "WEIR_ERR_UNKNOWN");
    assert_string_equal(weir_status_name(1), "WEIR_ERR_UNKNOWN");
}

static void base__null_handles_are_errors_or_ignored(void **state) {
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_session *session = NULL;
    weir_detokenizer *detokenizer = NULL;
    uint64_t n;
    const char *text;
    (void)state;
    weir_runtime_destroy(NULL);
    weir_model_close(NULL);
    weir_session_destroy(NULL);
    weir_detokenizer_destroy(NULL);
    weir_session_cancel(NULL);
    assert_int_equal(weir_runtime_thread_count(NULL), 0);
    assert_int_equal(weir_model_metadata_count(NULL), 0);
    assert_string_equal(weir_runtime_cpu_target(NULL), "");
    assert_null(weir_get_experimental(NULL));
    assert_null(weir_get_experimental("no_such_function"));
    assert_error(weir_runtime_create(NULL, NULL), WEIR_ERR_INVALID_ARG, "out is NULL");
    assert_error(weir_model_open(NULL, "x", NULL, &model), WEIR_ERR_INVALID_ARG, "runtime is NULL");
    assert_error(weir_session_create(NULL, NULL, &session), WEIR_ERR_INVALID_ARG, "model is NULL");
    assert_error(weir_session_step(NULL, 0), WEIR_ERR_INVALID_ARG, "session is NULL");
    assert_error(weir_session_generate(NULL, NULL, NULL), WEIR_ERR_INVALID_ARG, "session is NULL");
    assert_error(weir_session_prefill(NULL, NULL, 1, NULL, NULL), WEIR_ERR_INVALID_ARG, "session is NULL");
    assert_error(weir_session_reset(NULL), WEIR_ERR_INVALID_ARG, "session is NULL");
    assert_error(weir_tokenize(NULL, "", 0, 0, NULL, 0, &n), WEIR_ERR_INVALID_ARG, "model is NULL");
    assert_error(weir_detokenizer_create(NULL, 0, &detokenizer), WEIR_ERR_INVALID_ARG, "model is NULL");
    assert_error(weir_detokenizer_flush(NULL, &text, &n), WEIR_ERR_INVALID_ARG, "detokenizer is NULL");
    assert_error(weir_plan(NULL, NULL, NULL), WEIR_ERR_INVALID_ARG, "model is NULL");
    assert_ok(weir_runtime_create(NULL, &runtime));
    assert_error(weir_model_open(runtime, NULL, NULL, &model), WEIR_ERR_INVALID_ARG, "path is NULL");
    assert_error(weir_model_open(runtime, "/no/such/file.gguf", NULL, &model), WEIR_ERR_IO, "/no/such/file.gguf");
    assert_null(model);
    weir_runtime_destroy(runtime);
}

static void base__struct_size_rules(void **state) {
    struct {
        weir_runtime_options known;
        unsigned char tail[16];
    } longer;
    weir_runtime *runtime = NULL;
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    (void)state;
    options.struct_size = 0;
    assert_error(weir_runtime_create(&options, &runtime), WEIR_ERR_INVALID_ARG, "struct_size is 0");
    assert_null(runtime);

    /* An older caller: only the first fields exist, the rest is garbage that must not be read. */
    memset(&options, 0xff, sizeof(options));
    options.struct_size = 8;
    options.n_threads = 1;
    assert_ok(weir_runtime_create(&options, &runtime));
    assert_int_equal(weir_runtime_thread_count(runtime), 1);
    weir_runtime_destroy(runtime);

    /* A newer caller: fine while what this version does not know is zero. */
    memset(&longer, 0, sizeof(longer));
    longer.known.struct_size = sizeof(longer);
    assert_ok(weir_runtime_create(&longer.known, &runtime));
    weir_runtime_destroy(runtime);
    longer.tail[15] = 1;
    assert_error(weir_runtime_create(&longer.known, &runtime), WEIR_ERR_UNSUPPORTED, "knows only");
    assert_null(runtime);
}

/* Info structs: filled as far as the caller's has room, whose struct_size stays what it says. */
static void base__an_info_struct_keeps_its_size(void **state) {
    struct {
        weir_memory_counters known;
        unsigned char tail[16];
    } info;
    unsigned char garbage[sizeof(info)];
    weir_runtime *runtime = NULL;
    (void)state;
    memset(garbage, 0xaa, sizeof(garbage));
    assert_ok(weir_runtime_create(NULL, &runtime));
    memcpy(&info, garbage, sizeof(info));
    info.known.struct_size = 16; /* an older caller */
    assert_ok(weir_runtime_memory(runtime, &info.known));
    assert_int_equal(info.known.struct_size, 16);
    assert_memory_equal((unsigned char *)&info + 16, garbage, sizeof(info) - 16);
    memcpy(&info, garbage, sizeof(info));
    info.known.struct_size = sizeof(info); /* a newer one */
    assert_ok(weir_runtime_memory(runtime, &info.known));
    assert_int_equal(info.known.struct_size, sizeof(info));
    assert_memory_equal(info.tail, garbage, sizeof(info.tail));
    assert_true(info.known.bytes > 0 && info.known.n_allocs > 0 && info.known.n_allocs < 1000000);
    weir_runtime_destroy(runtime);
}

/* Room for a value is its length and one byte more. */
static void base__metadata_values_end_with_a_nul(void **state) {
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    (void)state;
    assert_ok(weir_runtime_create(NULL, &runtime));
    assert_ok(weir_model_open(runtime, TINY_MODEL, NULL, &model));
    assert_true(weir_model_metadata_count(model) > 10);
    for (uint32_t i = 0; i < weir_model_metadata_count(model); ++i) {
        const char *key = NULL;
        uint64_t n = 0, n_again = 0;
        char *value;
        assert_error(weir_model_metadata(model, i, &key, NULL, 0, &n), WEIR_ERR_BUFFER_TOO_SMALL, "with its NUL");
        value = malloc(n + 2);
        assert_non_null(value);
        memset(value, '#', n + 2);
        assert_error(weir_model_metadata(model, i, &key, value, n, &n_again), WEIR_ERR_BUFFER_TOO_SMALL, key);
        assert_int_equal(n_again, n);
        assert_int_equal(value[n], '#');
        assert_ok(weir_model_metadata(model, i, &key, value, n + 1, &n_again));
        assert_int_equal(n_again, n);
        assert_int_equal(strlen(value), n);
        assert_int_equal(value[n + 1], '#');
        free(value);
    }
    weir_model_close(model);
    weir_runtime_destroy(runtime);
}

static void base__init_functions_equal_macros(void **state) {
    weir_runtime_options a = WEIR_RUNTIME_OPTIONS_INIT, b;
    weir_session_options c = WEIR_SESSION_OPTIONS_INIT, d;
    weir_sampling_options e = WEIR_SAMPLING_OPTIONS_INIT, f;
    weir_generate_options g = WEIR_GENERATE_OPTIONS_INIT, h;
    weir_model_options i = WEIR_MODEL_OPTIONS_INIT, j;
    (void)state;
    assert_ok(weir_runtime_options_init(&b, sizeof(b)));
    assert_memory_equal(&a, &b, sizeof(a));
    assert_ok(weir_session_options_init(&d, sizeof(d)));
    assert_memory_equal(&c, &d, sizeof(c));
    assert_ok(weir_sampling_options_init(&f, sizeof(f)));
    assert_memory_equal(&e, &f, sizeof(e));
    assert_ok(weir_generate_options_init(&h, sizeof(h)));
    assert_memory_equal(&g, &h, sizeof(g));
    assert_ok(weir_model_options_init(&j, sizeof(j)));
    assert_memory_equal(&i, &j, sizeof(i));
    assert_error(weir_session_options_init(NULL, 8), WEIR_ERR_INVALID_ARG, "weir_session_options_init");
    assert_error(weir_session_options_init(&d, 4), WEIR_ERR_INVALID_ARG, "struct_size is 4");
}

static void base__runtime_options_out_of_range(void **state) {
    weir_runtime *runtime = NULL;
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    (void)state;
    options.n_threads = 257;
    assert_error(weir_runtime_create(&options, &runtime), WEIR_ERR_INVALID_ARG, "257");
    options.n_threads = 1;
    options.log_level = 9;
    assert_error(weir_runtime_create(&options, &runtime), WEIR_ERR_INVALID_ARG, "log_level");
    options.log_level = 0;
    options.alloc = (weir_alloc_fn)1;
    assert_error(weir_runtime_create(&options, &runtime), WEIR_ERR_INVALID_ARG, "both hooks");
}

static weir_status count_lines(void *user, const weir_log_info *info) {
    assert_int_equal(info->message[info->message_bytes], 0);
    assert_int_equal(strlen(info->message), info->message_bytes);
    ++*(int *)user;
    return WEIR_OK;
}

static void base__log_lines_reach_the_hook(void **state) {
    int n_lines = 0;
    weir_runtime *runtime = NULL;
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    (void)state;
    options.log = count_lines;
    options.log_user = &n_lines;
    options.log_level = WEIR_LOG_ERROR;
    assert_ok(weir_runtime_create(&options, &runtime));
    assert_int_equal(n_lines, 0);
    weir_runtime_destroy(runtime);
    options.log_level = WEIR_LOG_INFO;
    assert_ok(weir_runtime_create(&options, &runtime));
    assert_int_equal(n_lines, 1);
    weir_runtime_destroy(runtime);
}

static void base__children_keep_parents_alive(void **state) {
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_session *session = NULL;
    weir_token token = 5;
    (void)state;
    assert_ok(weir_runtime_create(NULL, &runtime));
    assert_ok(weir_model_open(runtime, TINY_MODEL, NULL, &model));
    weir_runtime_destroy(runtime);
    assert_ok(weir_session_create(model, NULL, &session));
    weir_model_close(model);
    assert_ok(weir_session_prefill(session, &token, 1, NULL, NULL));
    assert_ok(weir_session_step(session, 7));
    weir_session_destroy(session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base__version_matches_headers),       cmocka_unit_test(base__status_names),
        cmocka_unit_test(base__null_handles_are_errors_or_ignored), cmocka_unit_test(base__struct_size_rules),
        cmocka_unit_test(base__an_info_struct_keeps_its_size), cmocka_unit_test(base__metadata_values_end_with_a_nul),
        cmocka_unit_test(base__init_functions_equal_macros),   cmocka_unit_test(base__runtime_options_out_of_range),
        cmocka_unit_test(base__log_lines_reach_the_hook),      cmocka_unit_test(base__children_keep_parents_alive),
    };
    return cmocka_run_group_tests_name("api_base", tests, NULL, NULL);
}
