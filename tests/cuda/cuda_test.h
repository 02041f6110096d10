/* What the tests of sessions on a GPU share: whether there is one, policies to choose from, prompts that are tokens, and comparing logits. */
#ifndef WEIR_TESTS_CUDA_TEST_H
#define WEIR_TESTS_CUDA_TEST_H

#include <math.h>
#include <unistd.h>

#include "../api/api_test.h"

/* Decode steps of a test that takes many: WEIR_TEST_STEPS=<n> at most, for tools that slow each one down by a hundred times. */
static inline uint32_t steps_at_most(uint32_t n) {
    const char *most = getenv("WEIR_TEST_STEPS");
    const long steps = most == NULL ? 0 : strtol(most, NULL, 10);
    return steps > 0 && steps < (long)n ? (uint32_t)steps : n;
}

/* For a test that fewer steps would break or make worthless. */
#define NEED_STEPS(taken, needed)                                   \
    do {                                                            \
        if ((taken) < (needed)) {                                   \
            print_message("skipped: WEIR_TEST_STEPS is too low\n"); \
            skip();                                                 \
        }                                                           \
    } while (0)

/* Between the two best logits, whose root mean square is some 5: rounding decides which is the larger one. */
#define NEXT_TO_EQUAL 0.05f

/* The folder with libweir_cuda.so for programs that have the library inside: lib/ beside one of the folders above the program. "" when there is none. */
static inline const char *module_folder(void) {
    static char folder[4096 + 32];
    static int found = 0;
    char path[4096];
    ssize_t n;
    if (found) return folder; /* the main thread asks first, in NEED_GPU() */
    found = 1;
    n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n <= 0) return folder;
    path[n] = '\0';
    for (int level = 0; level < 4; ++level) {
        char *slash = strrchr(path, '/');
        if (slash == NULL) break;
        *slash = '\0';
        snprintf(folder, sizeof(folder), "%s/lib/libweir_cuda.so", path);
        if (access(folder, R_OK) == 0) {
            *strrchr(folder, '/') = '\0';
            return folder;
        }
    }
    folder[0] = '\0';
    return folder;
}

/* A C test finds the module as an application does, beside libweir.so; a C++ test is linked with the library's objects and has to say where it is. */
static inline weir_runtime_options gpu_runtime_options(void) {
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    options.n_threads = 2;
#ifdef __cplusplus
    if (module_folder()[0] != '\0') options.backend_dir = module_folder();
#endif
    return options;
}

/* A runtime and the tiny model. */
static inline void open_gpu_fixture(fixture *f) {
    const weir_runtime_options options = gpu_runtime_options();
    assert_ok(weir_runtime_create(&options, &f->runtime));
    assert_ok(weir_model_open(f->runtime, TINY_MODEL, NULL, &f->model));
}

static inline void close_gpu_fixture(fixture *f) {
    weir_model_close(f->model);
    weir_runtime_destroy(f->runtime);
}

/* Why no session can be made on a GPU here, "" when it can. Where WEIR_TEST_BACKEND says that there must be one, its absence is a failure. */
static inline const char *why_no_gpu(void) {
    static char why[1024];
    static int asked = 0;
    if (!asked) {
        fixture f = {NULL, NULL};
        weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
        weir_plan_info plan = WEIR_PLAN_INFO_INIT;
        const char *wanted = getenv("WEIR_TEST_BACKEND");
        asked = 1;
        open_gpu_fixture(&f);
        options.device = WEIR_DEVICE_CUDA;
        if (weir_plan(f.model, &options, &plan) != WEIR_OK) snprintf(why, sizeof(why), "%s", weir_last_error());
        close_gpu_fixture(&f);
        if (why[0] != '\0' && wanted != NULL && strcmp(wanted, "cuda") == 0) fail_msg("WEIR_TEST_BACKEND=cuda, but %s", why);
    }
    return why;
}

#define NEED_GPU()                                       \
    do {                                                 \
        if (why_no_gpu()[0] != '\0') {                   \
            print_message("skipped: %s\n", why_no_gpu()); \
            skip();                                      \
        }                                                \
    } while (0)

/* A policy with options. */
typedef struct variant {
    const char *policy;
    weir_key_value options[4];
    uint32_t n_options;
} variant;

/* The options point into `v`. */
static inline weir_session_options options_of(const variant *v, int32_t device, uint32_t budget, uint32_t context) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = device;
    options.policy = v->policy;
    options.policy_options = v->n_options == 0 ? NULL : v->options;
    options.n_policy_options = v->n_options;
    options.budget_tokens = budget;
    options.context_tokens = context;
    return options;
}

static inline const char *describe(const variant *v) {
    static char text[256];
    int n = snprintf(text, sizeof(text), "%s", v->policy);
    for (uint32_t i = 0; i < v->n_options && n < (int)sizeof(text); ++i) {
        n += snprintf(text + n, sizeof(text) - (size_t)n, " %s=%s", v->options[i].key, v->options[i].value);
    }
    return text;
}

/* The largest logit's token, the lowest id of equals, and how far the next one is below it. */
static inline weir_token best_of(const float *logits, uint32_t n, float *gap) {
    uint32_t best = 0;
    float next = -INFINITY;
    for (uint32_t i = 1; i < n; ++i) {
        if (logits[i] > logits[best]) {
            next = logits[best];
            best = i;
        } else if (logits[i] > next) {
            next = logits[i];
        }
    }
    *gap = logits[best] - next;
    return (weir_token)best;
}

/* Largest difference of two rows of logits, in units of the root mean square of the second. Infinite when one of them is not a number. */
static inline double logits_apart(const float *got, const float *want, uint32_t n) {
    double worst = 0.0, power = 0.0;
    for (uint32_t i = 0; i < n; ++i) {
        const double off = fabs((double)got[i] - (double)want[i]);
        if (!(off <= worst)) worst = isnan(off) ? INFINITY : off;
        power += (double)want[i] * (double)want[i];
    }
    return power > 0.0 ? worst / sqrt(power / n) : worst;
}

#endif
