/* What the tests of sessions on a device share: which backend is tested and whether it has a device here, policies with
 * options, token prompts, and comparison of logits. */
#ifndef WEIR_TESTS_DEVICE_TEST_H
#define WEIR_TESTS_DEVICE_TEST_H

#include <math.h>
#include <unistd.h>

#include "../api/api_test.h"

/* Number of decode steps of a long test: at most WEIR_TEST_STEPS=<n>, for tools that slow each step down by a hundred
 * times. */
static inline uint32_t steps_at_most(uint32_t n) {
    const char *most = getenv("WEIR_TEST_STEPS");
    const long steps = most == NULL ? 0 : strtol(most, NULL, 10);
    return steps > 0 && steps < (long)n ? (uint32_t)steps : n;
}

/* For a test that needs a minimum number of steps: skips it if fewer were taken. */
#define NEED_STEPS(taken, needed)                                   \
    do {                                                            \
        if ((taken) < (needed)) {                                   \
            print_message("skipped: WEIR_TEST_STEPS is too low\n"); \
            skip();                                                 \
        }                                                           \
    } while (0)

/* Gap between the two best logits below which rounding decides which one is larger; the logits' root mean square is
 * about 5. */
#define NEXT_TO_EQUAL 0.05f

/* The backend that this run tests, WEIR_TEST_DEVICE=<name>, by default cuda. Its module is libweir_<name>.so. */
static inline const char *device_name(void) {
    const char *name = getenv("WEIR_TEST_DEVICE");
    return name == NULL || name[0] == '\0' ? "cuda" : name;
}

static inline int32_t test_device(void) {
    if (strcmp(device_name(), "vulkan") == 0) return WEIR_DEVICE_VULKAN;
    if (strcmp(device_name(), "cuda") != 0) fail_msg("WEIR_TEST_DEVICE=%s: there is no such backend", device_name());
    return WEIR_DEVICE_CUDA;
}

/* Whether the device is Mesa's driver for the processor, for tests that have to leave cases out there. */
static inline int on_llvmpipe(void) {
    const char *driver = getenv("WEIR_TEST_VULKAN_DEVICE");
    return test_device() == WEIR_DEVICE_VULKAN && driver != NULL && strcmp(driver, "llvmpipe") == 0;
}

/* Whether matrices of prompts may be multiplied in f16: on CUDA, and on Vulkan where a device has cooperative matrices,
 * which a driver for the processor has not. */
static inline int rounds_prompts_to_f16(void) { return !on_llvmpipe(); }

/* The folder with the module, for programs that are linked with the library's objects: lib/ beside one of the
 * folders above the program; "" if there is none. */
static inline const char *module_folder(void) {
    static char folder[4096 + 64];
    static int found = 0;
    char path[4096];
    ssize_t n;
    if (found) return folder;  /* the main thread asks first, in NEED_GPU() */
    found = 1;
    n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n <= 0) return folder;
    path[n] = '\0';
    for (int level = 0; level < 4; ++level) {
        char *slash = strrchr(path, '/');
        if (slash == NULL) break;
        *slash = '\0';
        snprintf(folder, sizeof(folder), "%s/lib/libweir_%.16s.so", path, device_name());
        if (access(folder, R_OK) == 0) {
            *strrchr(folder, '/') = '\0';
            return folder;
        }
    }
    folder[0] = '\0';
    return folder;
}

/* A C test finds the module as an application does, beside libweir.so. A C++ test is linked with the library's objects
 * and must give the module's folder. */
static inline weir_runtime_options gpu_runtime_options(void) {
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    options.n_threads = 2;
    options.vulkan_device = getenv("WEIR_TEST_VULKAN_DEVICE");
    options.cache_dir = getenv("WEIR_TEST_CACHE"); /* of all tests together */
#ifdef __cplusplus
    if (module_folder()[0] != '\0') options.backend_dir = module_folder();
#endif
    return options;
}

/* Opens a runtime and the tiny model. */
static inline void open_gpu_fixture(fixture *f) {
    const weir_runtime_options options = gpu_runtime_options();
    assert_ok(weir_runtime_create(&options, &f->runtime));
    assert_ok(weir_model_open(f->runtime, TINY_MODEL, NULL, &f->model));
}

static inline void close_gpu_fixture(fixture *f) {
    weir_model_close(f->model);
    weir_runtime_destroy(f->runtime);
}

/* Why no session can be made on a GPU here, "" if it can. If WEIR_TEST_BACKEND demands a GPU, its absence fails. */
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
        options.device = test_device();
        if (options.device == WEIR_DEVICE_VULKAN) options.flags = WEIR_SESSION_HOST_ATTENTION;
        if (weir_plan(f.model, &options, &plan) != WEIR_OK) snprintf(why, sizeof(why), "%s", weir_last_error());
        close_gpu_fixture(&f);
        if (why[0] != '\0' && wanted != NULL && strcmp(wanted, device_name()) == 0)
            fail_msg("WEIR_TEST_BACKEND=%s, but %s", wanted, why);
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

/* Whether WEIR_DEVICE_AUTO may take the device that Vulkan's sessions are on: a GPU; a virtual one if it is named. */
static inline int is_auto_vulkan(const fixture *f) {
    weir_device_info devices[32];
    uint32_t n = 0;
    devices[0].struct_size = sizeof(devices[0]);
    assert_ok(weir_runtime_devices(f->runtime, devices, 32, &n));
    for (uint32_t i = 0; i < n; ++i) {
        if (devices[i].backend != WEIR_DEVICE_VULKAN || !devices[i].is_usable) continue;
        return devices[i].kind != WEIR_DEVICE_KIND_CPU &&
               (devices[i].kind != WEIR_DEVICE_KIND_VIRTUAL || gpu_runtime_options().vulkan_device != NULL);
    }
    return 0;
}

/* The device that WEIR_DEVICE_AUTO takes for such a session, if the model has no weights on one: CUDA's, Vulkan's or
 * the CPU, the first that can run it. */
static inline int32_t auto_device(const fixture *f, weir_session_options options) {
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    options.device = WEIR_DEVICE_CUDA;
    if (weir_plan(f->model, &options, &plan) == WEIR_OK) return WEIR_DEVICE_CUDA;
    options.device = WEIR_DEVICE_VULKAN;
    if (weir_plan(f->model, &options, &plan) == WEIR_OK && is_auto_vulkan(f)) return WEIR_DEVICE_VULKAN;
    return WEIR_DEVICE_CPU;
}

/* A policy with options. */
typedef struct variant {
    const char *policy;
    weir_key_value options[4];
    uint32_t n_options;
} variant;

/* The returned options point into `v`. */
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

/* The token with the largest logit, the lowest id among equals, and the gap to the next one. */
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

/* Largest difference between two rows of logits, in units of the second row's root mean square. Infinite if one of them
 * has a NaN. */
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
