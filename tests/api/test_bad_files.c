/* api: weir_model_open refuses every file of tests/golden/bad_gguf and of its folder model. expected.txt of each folder
 * has one line per file: name, status, and a text that weir_last_error must contain. make_bad.py says what is wrong. */
#include "api_test.h"

#define FOLDER WEIR_SOURCE_DIR "/tests/golden/bad_gguf/"

static weir_runtime *g_runtime;

static int create_runtime(void **state) {
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    (void)state;
    options.n_threads = 1;
    return weir_runtime_create(&options, &g_runtime) == WEIR_OK ? 0 : -1;
}

static int destroy_runtime(void **state) {
    (void)state;
    weir_runtime_destroy(g_runtime);
    return 0;
}

static uint64_t bytes_in_use(void) {
    weir_memory_counters counters = WEIR_MEMORY_COUNTERS_INIT;
    assert_ok(weir_runtime_memory(g_runtime, &counters));
    return counters.bytes;
}

/* Opens `folder``file` and compares. Returns 0 when all is as expected; else it has printed what is not. */
static int check_file(const char *folder, const char *file, const char *status, const char *part) {
    char path[1024];
    weir_model *model = (weir_model *)&path; /* must not stay */
    const uint64_t before = bytes_in_use();
    weir_status got;
    int wrong = 0;
    snprintf(path, sizeof(path), "%s%s", folder, file);
    got = weir_model_open(g_runtime, path, NULL, &model);
    if (strcmp(weir_status_name(got), status) != 0 || (got != WEIR_OK && strstr(weir_last_error(), part) == NULL)) {
        print_error("%s: %s \"%s\"; expected %s with \"%s\"\n", file, weir_status_name(got),
                    got == WEIR_OK ? "" : weir_last_error(), status, part);
        wrong = 1;
    }
    if (got != WEIR_OK && model != NULL) {
        print_error("%s: the handle is not NULL\n", file);
        return 1;
    }
    weir_model_close(model);
    if (bytes_in_use() != before) {
        print_error("%s: %llu bytes before, %llu after\n", file, (unsigned long long)before,
                    (unsigned long long)bytes_in_use());
        wrong = 1;
    }
    return wrong;
}

/* Checks the whole list, so that one run shows every difference. */
static void check_folder(const char *folder, int min_files) {
    char line[512], file[256], status[64];
    int n_files = 0, n_wrong = 0, at = 0;
    FILE *list;
    snprintf(line, sizeof(line), "%sexpected.txt", folder);
    list = fopen(line, "r");
    assert_non_null(list);
    while (fgets(line, sizeof(line), list) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        assert_int_equal(sscanf(line, "%255s %63s %n", file, status, &at), 2);
        n_wrong += check_file(folder, file, status, line + at);
        ++n_files;
    }
    fclose(list);
    assert_int_equal(n_wrong, 0);
    assert_true(n_files >= min_files);
}

static void bad_files__containers(void **state) {
    (void)state;
    check_folder(FOLDER, 100);
}

/* Among these are two good files: the bad ones differ from them in one thing each. */
static void bad_files__models(void **state) {
    (void)state;
    check_folder(FOLDER "model/", 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_files__containers),
        cmocka_unit_test(bad_files__models),
    };
    return cmocka_run_group_tests(tests, create_runtime, destroy_runtime);
}
