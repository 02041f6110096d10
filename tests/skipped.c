/* A test program in which every test was skipped has tested nothing: it exits with 77, which CTest and tests/gpu/run
 * count as skipped and not as passed. Linked into every test program with --wrap, so that tests need not know it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { EXIT_SKIPPED = 77 };

static size_t n_skipped; /* in all groups of the program */

void __real__skip(const char *file, int line);
void __wrap__skip(const char *file, int line);
int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
                                   CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
                                   CMFixtureFunction teardown);

void __wrap__skip(const char *file, int line) {
    ++n_skipped;
    __real__skip(file, line);
}

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
                                   CMFixtureFunction teardown) {
    const size_t before = n_skipped;
    const int n_failed = __real__cmocka_run_group_tests(name, tests, n, setup, teardown);
    return n_failed == 0 && n > 0 && n_skipped - before == n ? EXIT_SKIPPED : n_failed;
}
