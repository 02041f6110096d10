/* A program's own versions of what libweir.a has inside: the linker finds no second definition, and Weir uses its own.
 * Linked with outside/main.c. */
#include <stdlib.h>

void *ZSTD_initStaticCCtx(void *workspace, size_t bytes);
void *ZSTD_initStaticCCtx(void *workspace, size_t bytes) {
    (void)workspace;
    (void)bytes;
    abort();
}

int pcre2_jit_match_8(void);
int pcre2_jit_match_8(void) { abort(); }

long long _ZN3hwy16SupportedTargetsEv(void);
long long _ZN3hwy16SupportedTargetsEv(void) { abort(); }

void *_Znwm(size_t bytes);
void *_Znwm(size_t bytes) {
    (void)bytes;
    abort();
}

void *__cxa_begin_catch(void *exception);
void *__cxa_begin_catch(void *exception) {
    (void)exception;
    abort();
}
