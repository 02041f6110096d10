/* A library that stands where a backend module would: it is no module, but it shows that it was loaded, and from where,
 * in the environment. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void show(void) {
    static const char here;
    Dl_info info;
    char text[8192];
    const char *before = getenv("WEIR_TEST_LOADED");
    if (dladdr(&here, &info) == 0) return;
    snprintf(text, sizeof(text), "%s%s;", before == NULL ? "" : before, info.dli_fname);
    setenv("WEIR_TEST_LOADED", text, 1);
}
