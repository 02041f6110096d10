/* abi: loading the library, using it and unloading it again leaves nothing in the process. The program is not linked
 * with the library, nor with anything that the library needs, so that all of it goes. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir/weir.h"

#define MODEL WEIR_SOURCE_DIR "/samples/models/weir-tiny-reasoner-q8_0.gguf"
#define WARM_UP 5 /* the C library's own memory is taken by then */
#define ROUNDS 40
#define MOST_GROWTH (256u << 10) /* of all mappings together; a leak of 64 KiB a round would be ten times as much */

/* Bytes that the process has mapped, those of executable memory that is no file's apart. */
static uint64_t mapped_bytes(uint64_t *executable) {
    char line[4096];
    uint64_t all = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    *executable = 0;
    while (fgets(line, sizeof(line), maps) != NULL) {
        unsigned long first = 0, end = 0, inode = 0;
        char permissions[8] = "";
        if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &first, &end, permissions, &inode) != 4) continue;
        all += end - first;
        if (permissions[2] == 'x' && inode == 0 && strchr(line, '[') == NULL) *executable += end - first;
    }
    fclose(maps);
    return all;
}

/* A function of the library that was just loaded. ISO C has no conversion for it; POSIX promises that the bytes are the
 * same. */
#define FUNCTION(name)               \
    __typeof__(&name) p_##name;      \
    *(void **)(&p_##name) = dlsym(library, #name)

/* tests/install/self_contained.sh names another. */
static const char *library_path(void) {
    const char *other = getenv("WEIR_TEST_LIBRARY");
    return other != NULL ? other : WEIR_LIBRARY;
}

static void load_use_unload(void) {
    void *library = dlopen(library_path(), RTLD_NOW | RTLD_LOCAL);
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_session *session = NULL;
    const weir_token tokens[3] = {1, 2, 3};
    uint64_t n = 0;
    if (library == NULL) fail_msg("%s", dlerror());
    FUNCTION(weir_runtime_create);
    FUNCTION(weir_runtime_destroy);
    FUNCTION(weir_model_open);
    FUNCTION(weir_model_close);
    FUNCTION(weir_tokenize);
    FUNCTION(weir_session_create);
    FUNCTION(weir_session_prefill);
    FUNCTION(weir_session_destroy);
    options.n_threads = 2;
    options.backend_dir = "/no/such/folder"; /* a driver of a device would stay */
    assert_int_equal(p_weir_runtime_create(&options, &runtime), WEIR_OK);
    assert_int_equal(p_weir_model_open(runtime, MODEL, NULL, &model),
                     WEIR_OK); /* its pre-tokenizer is compiled expressions */
    assert_int_equal(p_weir_tokenize(model, "hello there", 11, 0, NULL, 0, &n), WEIR_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(p_weir_session_create(model, NULL, &session), WEIR_OK);
    assert_int_equal(p_weir_session_prefill(session, tokens, 3, NULL, NULL), WEIR_OK);
    p_weir_session_destroy(session);
    p_weir_model_close(model);
    p_weir_runtime_destroy(runtime);
    assert_int_equal(dlclose(library), 0);
    assert_null(dlopen(library_path(), RTLD_NOW | RTLD_NOLOAD));
    assert_null(dlopen("libpcre2-8.so.0", RTLD_NOW | RTLD_NOLOAD));
}

static void unload__leaves_nothing(void **state) {
    uint64_t executable = 0, executable_before = 0, before = 0, after;
    (void)state;
    for (int round = 0; round < WARM_UP + ROUNDS; ++round) {
        if (round == WARM_UP) before = mapped_bytes(&executable_before);
        load_use_unload();
    }
    after = mapped_bytes(&executable);
    assert_int_equal(executable, executable_before);
    if (after > before + MOST_GROWTH)
        fail_msg("%d rounds: %llu bytes mapped before, %llu after", ROUNDS, (unsigned long long)before,
                 (unsigned long long)after);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unload__leaves_nothing),
    };
    return cmocka_run_group_tests_name("abi_unload", tests, NULL, NULL);
}
