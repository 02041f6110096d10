/* The policies of lib/policy/policies.inc, for tests in C and in C++ that are about every policy. Where its name is all
 * that a policy needs, a test walks through every_policy. Where it needs options or bounds of its own, the test has
 * rows written by hand, and ASSERT_EVERY_POLICY names the policies without one: a new line in policies.inc fails the
 * test until its row is there. A header with cmocka comes first. */
#ifndef WEIR_TESTS_POLICY_EVERY_POLICY_H
#define WEIR_TESTS_POLICY_EVERY_POLICY_H

#include <stdio.h>
#include <string.h>

static const char *const every_policy[] = {
#define WEIR_POLICY(name) #name,
#include "../../lib/policy/policies.inc"
#undef WEIR_POLICY
};
#define N_POLICIES (sizeof(every_policy) / sizeof(every_policy[0]))

/* The same as one text, in the order and form in which messages list them. */
static const char every_policy_text[] =
#define WEIR_POLICY(name) " " #name
#include "../../lib/policy/policies.inc"
#undef WEIR_POLICY
    ;

/* Whether `name` is a word of `names`, which may be NULL. */
static inline int is_among(const char *name, const char *names) {
    const size_t n = strlen(name);
    for (const char *at = names == NULL ? NULL : strstr(names, name); at != NULL; at = strstr(at + 1, name)) {
        if ((at == names || at[-1] == ' ') && (at[n] == '\0' || at[n] == ' ')) return 1;
    }
    return 0;
}

/* Rows of `stride` bytes; `first` is where the first one has the name of its policy. */
static inline void assert_policy_rows(const char *rows, const void *first, size_t stride, size_t n_rows,
                                      const char *except) {
    char missing[sizeof(every_policy_text)] = "";
    for (size_t p = 0; p < N_POLICIES; ++p) {
        int found = is_among(every_policy[p], except);
        for (size_t row = 0; row < n_rows; ++row) {
            const char *policy = NULL;
            memcpy(&policy, (const char *)first + row * stride, sizeof(policy));
            found |= strcmp(policy, every_policy[p]) == 0;
        }
        if (!found) strcat(strcat(missing, " "), every_policy[p]);
    }
    if (missing[0] != '\0') fail_msg("%s has no row for:%s", rows, missing);
    (void)every_policy_text;
}

/* Every policy has a row in the array `rows`, whose elements have its name in `member`. */
#define ASSERT_EVERY_POLICY(rows, member) ASSERT_EVERY_POLICY_EXCEPT(NULL, rows, member)
/* The policies `except`, separated by spaces, may be missing; the caller says why. */
#define ASSERT_EVERY_POLICY_EXCEPT(except, rows, member)                                                             \
    assert_policy_rows(#rows, (const void *)&(rows)[0].member, sizeof((rows)[0]), sizeof(rows) / sizeof((rows)[0]), \
                       except)

#endif
