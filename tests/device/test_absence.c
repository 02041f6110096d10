/* device: machines without a GPU, and modules that are missing or foreign. A session on the device reports what is
 * missing, WEIR_DEVICE_AUTO falls back to the CPU. Runs everywhere: the program hides the device of a machine that has
 * one. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <sys/stat.h>

#include "device_test.h"

/* The file name of the module. */
static const char *module_name(void) {
    static char name[64];
    snprintf(name, sizeof(name), "libweir_%.16s.so", device_name());
    return name;
}

static const char *temporary_folder(void) {
    static char path[64];
    snprintf(path, sizeof(path), "/tmp/weir_absence_XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

static void remove_folder(const char *folder) {
    char path[2048];
    snprintf(path, sizeof(path), "%s/%s", folder, module_name());
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

/* Sessions of a runtime with this module folder run on the CPU only, and the error contains one of `texts`. */
static void expect_absent(const char *folder, const char *const *texts, size_t n_texts) {
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    weir_session_options device = WEIR_SESSION_OPTIONS_INIT, any = WEIR_SESSION_OPTIONS_INIT;
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    weir_memory_counters before = WEIR_MEMORY_COUNTERS_INIT, after = WEIR_MEMORY_COUNTERS_INIT;
    weir_session *session = (weir_session *)&plan;
    char prefix[64];
    fixture f;
    snprintf(prefix, sizeof(prefix), "device %.16s: ", device_name());
    options.n_threads = 2;
    options.backend_dir = folder;
    assert_ok(weir_runtime_create(&options, &f.runtime));
    assert_ok(weir_model_open(f.runtime, TINY_MODEL, NULL, &f.model));
    assert_ok(weir_runtime_memory(f.runtime, &before));
    device.device = test_device();
    for (int round = 0; round < 2; ++round) {  /* every time, not only the first time */
        int found = 0;
        assert_error(weir_plan(f.model, &device, &plan), WEIR_ERR_UNSUPPORTED, prefix);
        for (size_t i = 0; i < n_texts; ++i) found = found || strstr(weir_last_error(), texts[i]) != NULL;
        if (!found) fail_msg("\"%s\" does not say \"%s\"", weir_last_error(), texts[0]);
        assert_error(weir_session_create(f.model, &device, &session), WEIR_ERR_UNSUPPORTED, prefix);
        assert_null(session);
    }
    assert_ok(weir_runtime_memory(f.runtime, &after));
    assert_int_equal(after.bytes, before.bytes);
    assert_int_equal(after.n_device_allocs, 0);

    assert_int_equal(any.device, WEIR_DEVICE_AUTO);
    assert_ok(weir_plan(f.model, &any, &plan));
    assert_int_equal(plan.device, WEIR_DEVICE_CPU);
    assert_int_equal(plan.device_bytes, 0);
    assert_int_equal(plan.device_weights_bytes, 0);
    assert_ok(weir_session_create(f.model, &any, &session));
    prefill_text(f.model, session, RULE_PROMPT);
    assert_ok(weir_session_step(session, 100));
    weir_session_destroy(session);
    weir_model_close(f.model);
    weir_runtime_destroy(f.runtime);
}

static void absence__no_module(void **state) {
    const char *const text = module_name();
    const char *folder = temporary_folder();
    (void)state;
    expect_absent(folder, &text, 1);
    remove_folder(folder);
}

static void absence__no_such_folder(void **state) {
    static const char *const text = "no backend module";
    (void)state;
    expect_absent("/nowhere/at all", &text, 1);
}

static void absence__module_is_a_text_file(void **state) {
    const char *const text = module_name();
    const char *folder = temporary_folder();
    char path[128];
    FILE *file;
    (void)state;
    snprintf(path, sizeof(path), "%s/%s", folder, module_name());
    file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 1000; ++i) fprintf(file, "This is no shared library.\n");
    assert_int_equal(fclose(file), 0);
    expect_absent(folder, &text, 1);
    remove_folder(folder);
}

/* Puts a shared library there that is not a module: libweir.so itself. */
static void put_other_library(const char *folder) {
    Dl_info info;
    char path[128], *target;
    assert_true(dladdr((void *)(uintptr_t)&weir_version, &info) != 0);
    target = realpath(info.dli_fname, NULL);
    assert_non_null(target);
    snprintf(path, sizeof(path), "%s/%s", folder, module_name());
    assert_int_equal(symlink(target, path), 0);
    free(target);
}

static void absence__module_is_another_library(void **state) {
    char name_and_text[128];
    const char *const text = name_and_text;
    const char *folder = temporary_folder();
    (void)state;
    snprintf(name_and_text, sizeof(name_and_text), "%s is not a backend module of this build", module_name());
    put_other_library(folder);
    expect_absent(folder, &text, 1);
    remove_folder(folder);
}

/* A path of the maximum length is used whole. */
static void absence__long_folder(void **state) {
    static const char *const text = "is not a backend module of this build";
    const char *folder = temporary_folder();
    char path[1025];
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    weir_runtime *runtime = (weir_runtime *)path;
    size_t n = strlen(folder);
    (void)state;
    put_other_library(folder);
    memcpy(path, folder, n);
    while (n + 2 <= 1023) {
        memcpy(path + n, "/.", 2);
        n += 2;
    }
    while (n < 1023) path[n++] = '/';
    path[n] = '\0';
    expect_absent(path, &text, 1);
    path[n++] = '/';
    path[n] = '\0';
    options.backend_dir = path;
    assert_error(weir_runtime_create(&options, &runtime), WEIR_ERR_INVALID_ARG,
                 "backend_dir: 1024 bytes, at most 1023");
    assert_null(runtime);
    remove_folder(folder);
}

/* This build's module, if there is one, on a machine without driver or device. */
static void absence__no_device(void **state) {
    static const char *const texts[] = {"there is no device", "there is no NVIDIA driver", "the driver knows CUDA",
                                        "there is no driver", "there is no loader",        "no backend module"};
    (void)state;
    expect_absent(NULL, texts, sizeof(texts) / sizeof(texts[0]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absence__no_module),
        cmocka_unit_test(absence__no_such_folder),
        cmocka_unit_test(absence__module_is_a_text_file),
        cmocka_unit_test(absence__module_is_another_library),
        cmocka_unit_test(absence__long_folder),
        cmocka_unit_test(absence__no_device),
    };
    if (setenv("CUDA_VISIBLE_DEVICES", "", 1) != 0 || setenv("VK_DRIVER_FILES", "/nowhere", 1) != 0) return 1;
    return cmocka_run_group_tests_name("device/absence", tests, NULL, NULL);
}
