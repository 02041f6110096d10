/* abi: backend modules come from the library's own folder, or from the one that the runtime was created with, wherever
 * the process goes afterwards. The library is loaded by a relative path; in the folder that is current later, and in
 * that path from there, somebody else has put libraries with the modules' names. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weir/weir.h"

#define N_MODULES 2
static const char *const modules[N_MODULES] = {"libweir_cuda.so", "libweir_vulkan.so"};

/* <root>/lib has the library and the right modules; <root>/bad and <root>/bad/lib have planted ones. */
static char root[4096];

static void path_to(char *out, size_t size, const char *folder, const char *name) {
    assert_true(snprintf(out, size, "%s/%s/%s", root, folder, name) < (int)size);
}

static void copy_file(const char *from, const char *folder, const char *name) {
    char path[8192], bytes[65536];
    size_t n;
    FILE *in = fopen(from, "rb"), *out;
    path_to(path, sizeof(path), folder, name);
    out = fopen(path, "wb");
    assert_non_null(in);
    assert_non_null(out);
    while ((n = fread(bytes, 1, sizeof(bytes), in)) > 0) assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static const char *const folders[] = {"lib", "bad", "bad/lib"};
#define N_FOLDERS (sizeof(folders) / sizeof(folders[0]))

static int make_folders(void **state) {
    char made[] = "/tmp/weir-folder-XXXXXX", path[8192];
    (void)state;
    if (mkdtemp(made) == NULL || realpath(made, root) == NULL) return -1;
    for (size_t f = 0; f < N_FOLDERS; ++f) {
        path_to(path, sizeof(path), folders[f], "");
        if (mkdir(path, 0700) != 0) return -1;
        for (int m = 0; m < N_MODULES; ++m) copy_file(WEIR_PLANTED, folders[f], modules[m]);
    }
    copy_file(WEIR_LIBRARY, "lib", "libweir.so");
    return 0;
}

static int remove_folders(void **state) {
    char path[8192];
    (void)state;
    path_to(path, sizeof(path), "lib", "libweir.so");
    unlink(path);
    for (size_t f = N_FOLDERS; f-- > 0;) {
        for (int m = 0; m < N_MODULES; ++m) {
            path_to(path, sizeof(path), folders[f], modules[m]);
            unlink(path);
        }
        path_to(path, sizeof(path), folders[f], "");
        if (rmdir(path) != 0) return -1;
    }
    return rmdir(root);
}

static void go_to(const char *folder) {
    char path[8192];
    path_to(path, sizeof(path), folder, "");
    assert_int_equal(chdir(path), 0);
}

/* A function of the library; ISO C has no conversion for it, POSIX promises that the bytes are the same. */
#define FUNCTION(name)          \
    __typeof__(&name) p_##name; \
    *(void **)(&p_##name) = dlsym(library, #name)

/* Loads the library by `path` from `from`, creates a runtime in `create_in`, and looks for devices in "bad". */
static void look_for_devices(const char *from, const char *path, const char *create_in, const char *backend_dir) {
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    weir_device_info devices[256];
    weir_runtime *runtime = NULL;
    uint32_t n = 0;
    void *library;
    go_to(from);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fail_msg("%s", dlerror());
    FUNCTION(weir_runtime_create);
    FUNCTION(weir_runtime_destroy);
    FUNCTION(weir_runtime_devices);
    go_to(create_in);
    options.n_threads = 1;
    options.backend_dir = backend_dir;
    assert_int_equal(p_weir_runtime_create(&options, &runtime), WEIR_OK);
    go_to("bad");
    unsetenv("WEIR_TEST_LOADED");
    devices[0].struct_size = sizeof(devices[0]);
    assert_int_equal(p_weir_runtime_devices(runtime, devices, 256, &n), WEIR_OK);
    assert_int_equal(n, 1); /* the processor */
    p_weir_runtime_destroy(runtime);
    dlclose(library);
}

static void assert_right_modules_loaded(void) {
    char expected[16384];
    const char *loaded = getenv("WEIR_TEST_LOADED");
    assert_true(snprintf(expected, sizeof(expected), "%s/lib/%s;%s/lib/%s;", root, modules[0], root, modules[1]) <
                (int)sizeof(expected));
    assert_string_equal(loaded == NULL ? "nothing" : loaded, expected);
}

static void folder__of_the_library(void **state) {
    (void)state;
    look_for_devices("", "lib/libweir.so", "bad", NULL);
    assert_right_modules_loaded();
    look_for_devices("lib", "./libweir.so", "bad", "");
    assert_right_modules_loaded();
}

static void folder__of_the_runtime(void **state) {
    char nowhere[8192];
    (void)state;
    look_for_devices("", "lib/libweir.so", "", "lib");
    assert_right_modules_loaded();
    look_for_devices("bad", "../lib/libweir.so", "bad", "../lib/../lib");
    assert_non_null(strstr(getenv("WEIR_TEST_LOADED"), "/lib/../lib/libweir_cuda.so;"));
    path_to(nowhere, sizeof(nowhere), "bad", "lib/none");
    look_for_devices("", "lib/libweir.so", "bad", nowhere);
    assert_null(getenv("WEIR_TEST_LOADED"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folder__of_the_library),
        cmocka_unit_test(folder__of_the_runtime),
    };
    return cmocka_run_group_tests_name("abi_folder", tests, make_folders, remove_folders);
}
