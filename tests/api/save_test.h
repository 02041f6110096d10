/* What the tests of saved sessions share: a file in memory, and sessions of every kind. */
#ifndef WEIR_TESTS_SAVE_TEST_H
#define WEIR_TESTS_SAVE_TEST_H

#include "api_test.h"
#include "../policy/every_policy.h"

/* A few small layers with random weights are enough, and quick. */
#define SMALL_MODEL WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf"
/* Two of its three layers have a sliding window. */
#define WINDOW_MODEL WEIR_SOURCE_DIR "/tests/golden/models/gemma3_f32.gguf"

typedef struct file {
    unsigned char *bytes;
    uint64_t n, room;
    uint64_t at;        /* where reading is */
    uint64_t n_calls;
    uint64_t fail_at;   /* number of the call that is refused, from 1; 0: none */
    uint64_t most;      /* most bytes of one read; 0: any */
    uint64_t too_many;  /* claimed beyond what was asked for */
} file;

static inline weir_status write_file(void *user, const weir_write_info *info) {
    file *f = (file *)user;
    assert_int_equal(info->struct_size, sizeof(weir_write_info));
    assert_int_equal(info->offset, f->n);
    assert_true(info->n_bytes > 0);
    if (++f->n_calls == f->fail_at) return WEIR_ERR_IO;
    while (f->n + info->n_bytes > f->room) {
        f->room = f->room == 0 ? 1 << 16 : 2 * f->room;
        f->bytes = (unsigned char *)realloc(f->bytes, f->room);
        assert_non_null(f->bytes);
    }
    memcpy(f->bytes + f->n, info->data, info->n_bytes);
    f->n += info->n_bytes;
    return WEIR_OK;
}

static inline weir_status read_file(void *user, const weir_read_info *info, uint64_t *n_read) {
    file *f = (file *)user;
    uint64_t n = info->n_bytes;
    assert_int_equal(info->struct_size, sizeof(weir_read_info));
    assert_int_equal(info->offset, f->at);
    assert_true(n > 0);
    if (++f->n_calls == f->fail_at) return WEIR_ERR_IO;
    if (n > f->n - f->at) n = f->n - f->at;
    if (f->most != 0 && n > f->most) n = f->most;
    memcpy(info->data, f->bytes + f->at, n);
    f->at += n;
    *n_read = n == 0 ? 0 : n + f->too_many;
    return WEIR_OK;
}

static inline file saved(weir_session *session) {
    file f;
    memset(&f, 0, sizeof(f));
    assert_ok(weir_session_save(session, write_file, &f));
    return f;
}

static inline weir_status restore_from(weir_session *session, file *f) {
    f->at = 0;
    f->n_calls = 0;
    return weir_session_restore(session, read_file, f);
}

typedef struct choice {
    const char *policy;
    weir_key_value options[4];
    uint32_t n_options;
    uint32_t budget_tokens;
    uint32_t max_prompt_tokens;
    uint64_t spill_bytes; /* without recall: of a store for what leaves; 0: none */
} choice;

static const choice choices[] = {
    {"dense", {{0, 0}}, 0, 0, 0, 0},
    {"sink", {{0, 0}}, 0, 128, 0, 0},
    {"sink", {{"positions", "abs"}, {"prompt", "snapkv"}, {"prompt_budget", "64"}}, 3, 128, 0, 0},
    {"h2o", {{"skip_layers", "1"}}, 1, 128, 0, 0},
    {"h2o", {{"skip_layers", "0"}, {"score", "norm_sum"}, {"init", "window"}}, 3, 128, 0, 0},
    {"tova", {{"skip_layers", "0"}}, 1, 128, 0, 0},
    {"tova", {{"skip_layers", "1"}, {"decide", "token"}}, 2, 128, 0, 0},
    {"quest", {{"skip_layers", "0"}}, 1, 96, 0, 0},
    {"quest", {{"skip_layers", "1"}, {"agg", "qhead"}, {"digest", "mean_std"}}, 3, 96, 0, 0},
    {"quest", {{"skip_layers", "0"}, {"unit", "token"}, {"candidates", "2"}}, 3, 96, 0, 0},
    {"raas", {{0, 0}}, 0, 128, 200, 0},
    {"raas", {{"pin_prompt", "false"}, {"digest", "cuboid_mean"}}, 2, 128, 0, 0},
    {"raas", {{"decide", "gap"}, {"alpha", "0.1"}}, 2, 128, 0, 0},
    {"raas", {{"prompt", "pyramid"}, {"prompt_budget", "64"}, {"prompt_beta", "4"}, {"prompt_window", "16"}}, 4, 128,
     200, 0},
    {"raas", {{"prompt", "ada"}, {"prompt_budget", "64"}, {"prompt_window", "16"}}, 3, 128, 200, 0},
    {"hybrid", {{"skip_layers", "0"}, {"prompt", "snapkv"}}, 2, 128, 200, 0},
    {"random", {{"pin_prompt", "false"}, {"seed", "3"}}, 2, 128, 0, 0},
    {"keyformer", {{"skip_layers", "0"}, {"tau_tokens", "100"}}, 2, 128, 0, 0},
    {"scissorhands", {{"skip_layers", "1"}, {"window", "20"}}, 2, 128, 0, 0},
    {"arkvale", {{0, 0}}, 0, 128, 0, 0},
    {"psa", {{0, 0}}, 0, 0, 0, 0},
    {"arkvale", {{"recall_from", "4"}, {"recall_pages", "0"}, {"attend", "top"}}, 3, 128, 0, 0},
    {"arkvale", {{"digest", "cuboid_mean"}, {"agg", "max_raw"}}, 2, 1024, 0, 0},
    {"arkvale", {{"digest", "sketch"}, {"agg", "sum_prob"}}, 2, 128, 0, 0},
    {"raas", {{"recall", "on"}}, 1, 128, 0, 0},
    {"hybrid", {{"recall", "on"}}, 1, 128, 0, 0},
    {"psa", {{"recall", "on"}, {"mb", "2"}}, 2, 128, 0, 0},
    {"psa", {{"recall", "on"}, {"pool", "unified"}}, 2, 160, 0, 0},
    {"raas", {{"pin_prompt", "false"}}, 1, 128, 0, 600 << 10},
    {"h2o", {{"skip_layers", "1"}}, 1, 128, 0, 60 << 10}, /* full soon */
    {"sink", {{"positions", "abs"}, {"prompt", "snapkv"}, {"prompt_budget", "64"}}, 3, 128, 0, 600 << 10},
    {"lfps", {{"skip_layers", "0"}}, 1, 32, 0, 0},
    {"lfps", {{"candidates", "threshold"}, {"position_share", "1"}, {"skip_layers", "1"}}, 3, 32, 0, 0},
};
#define N_CHOICES (sizeof(choices) / sizeof(choices[0]))

static inline int recalls(const choice *c) {
    return strcmp(c->policy, "arkvale") == 0 || (c->n_options > 0 && strcmp(c->options[0].key, "recall") == 0);
}

static inline weir_session_options options_of(const choice *c) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = WEIR_DEVICE_CPU;
    options.context_tokens = 1024;
    options.batch_tokens = 64;
    options.policy = c->policy;
    options.policy_options = c->options;
    options.n_policy_options = c->n_options;
    options.budget_tokens = c->budget_tokens;
    options.max_prompt_tokens = c->max_prompt_tokens;
    /* A fourth of it holds the latest pages as they are, the rest older ones, compressed. */
    options.spill_budget_bytes = recalls(c) ? 600 << 10 : c->spill_bytes;
    return options;
}

static inline weir_session *session_with(weir_model *model, const weir_session_options *options) {
    weir_session *session = NULL;
    assert_ok(weir_session_create(model, options, &session));
    return session;
}

static inline weir_session *session_of(weir_model *model, const choice *c) {
    const weir_session_options options = options_of(c);
    return session_with(model, &options);
}

static inline weir_token token(uint32_t i) { return (weir_token)(i * 2654435761u % 199 + 20); }

static inline void prefill(weir_session *session, uint32_t first, uint32_t n) {
    weir_token tokens[512];
    assert_true(n <= 512);
    for (uint32_t i = 0; i < n; ++i) tokens[i] = token(first + i);
    assert_ok(weir_session_prefill(session, tokens, n, NULL, NULL));
}

static inline weir_session_stats stats_of(const weir_session *session) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    return stats;
}

static inline void assert_same_logits(weir_session *a, weir_session *b, const char *when) {
    const float *x = NULL, *y = NULL;
    uint32_t n = 0;
    assert_ok(weir_session_logits(a, &x, &n));
    assert_ok(weir_session_logits(b, &y, &n));
    if (memcmp(x, y, n * sizeof(float)) != 0) fail_msg("logits differ: %s", when);
}

/* Both draw the same tokens and compute the same logits, n steps long. */
static inline void assert_same_steps(weir_session *a, weir_session *b, uint32_t n, const char *when) {
    for (uint32_t i = 0; i < n; ++i) {
        weir_token x = -1, y = -1;
        assert_same_logits(a, b, when);
        assert_ok(weir_session_sample(a, &x));
        assert_ok(weir_session_sample(b, &y));
        if (x != y) fail_msg("step %u draws %d and %d: %s", i, x, y, when);
        assert_ok(weir_session_step(a, x));
        assert_ok(weir_session_step(b, y));
    }
    assert_same_logits(a, b, when);
}

#endif
