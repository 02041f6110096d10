/* api: models that are copied into memory (WEIR_MODEL_COPY): the file may shrink, vanish or be written to, and what it
 * costs is counted. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api_test.h"

#define PATH_BYTES 64

typedef struct copied {
    weir_runtime *runtime;
    char path[PATH_BYTES]; /* a file of its own, which tests may spoil */
    off_t bytes;
    uint64_t n_live, max_bytes; /* allocations of the hooks that are not freed, the largest so far */
    uint64_t refuse_from;        /* allocations of this many bytes or more are refused; 0: none */
} copied;

static weir_status hook_alloc(void *user, const weir_alloc_info *info, void **out) {
    copied *c = user;
    const size_t alignment = info->alignment < sizeof(void *) ? sizeof(void *) : info->alignment;
    if (c->refuse_from != 0 && info->bytes >= c->refuse_from) return WEIR_ERR_OUT_OF_MEMORY;
    if (posix_memalign(out, alignment, info->bytes) != 0) return WEIR_ERR_OUT_OF_MEMORY;
    ++c->n_live;
    if (info->bytes > c->max_bytes) c->max_bytes = info->bytes;
    return WEIR_OK;
}

static weir_status hook_free(void *user, const weir_alloc_info *info) {
    --((copied *)user)->n_live;
    free(info->ptr);
    return WEIR_OK;
}

static int set_up(void **state) {
    static copied c;
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    static char bytes[1 << 16];
    ssize_t n;
    int from, to;
    memset(&c, 0, sizeof(c));
    strcpy(c.path, "weir-copied-XXXXXX");
    from = open(TINY_MODEL, O_RDONLY);
    to = mkstemp(c.path);
    if (from < 0 || to < 0) return -1;
    while ((n = read(from, bytes, sizeof(bytes))) > 0) {
        if (write(to, bytes, (size_t)n) != n) return -1;
        c.bytes += n;
    }
    close(from);
    close(to);
    options.n_threads = 2;
    options.alloc = hook_alloc;
    options.free = hook_free;
    options.alloc_user = &c;
    *state = &c;
    return weir_runtime_create(&options, &c.runtime) == WEIR_OK ? 0 : -1;
}

static int tear_down(void **state) {
    copied *c = *state;
    weir_runtime_destroy(c->runtime);
    unlink(c->path);
    return c->n_live == 0 ? 0 : -1;
}

static weir_model *open_copy(const copied *c) {
    weir_model *model = NULL;
    weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
    options.flags = WEIR_MODEL_COPY;
    assert_ok(weir_model_open(c->runtime, c->path, &options, &model));
    return model;
}

static int is_mapped(const char *path) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL) found |= strstr(line, path) != NULL;
    fclose(maps);
    return found;
}

static void logits_after(weir_session *session, const weir_token *tokens, uint32_t n, float *out) {
    const float *logits = NULL;
    uint32_t n_logits = 0;
    for (uint32_t i = 0; i < n; ++i) assert_ok(weir_session_step(session, tokens[i]));
    assert_ok(weir_session_logits(session, &logits, &n_logits));
    memcpy(out, logits, n_logits * sizeof(float));
}

/* The promise: whatever happens to the file, decoding goes on, with the same results. */
static void copy__outlives_its_file(void **state) {
    copied *c = *state;
    static float got[1664], want[1664];
    const weir_token tokens[6] = {9, 8, 7, 6, 5, 4};
    weir_model *mapped = NULL, *copy = open_copy(c);
    weir_session *sessions[2] = {NULL, NULL};
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = WEIR_DEVICE_CPU;
    options.context_tokens = 512;
    assert_ok(weir_model_open(c->runtime, TINY_MODEL, NULL, &mapped));
    assert_ok(weir_session_create(copy, &options, &sessions[0]));
    assert_ok(weir_session_create(mapped, &options, &sessions[1]));
    assert_false(is_mapped(c->path));
    assert_true(is_mapped("weir-tiny-reasoner-q8_0.gguf"));
    assert_int_equal(truncate(c->path, 4096), 0);
    prefill_text(copy, sessions[0], RULE_PROMPT);
    prefill_text(mapped, sessions[1], RULE_PROMPT);
    assert_int_equal(truncate(c->path, 0), 0);
    logits_after(sessions[0], tokens, 6, got);
    logits_after(sessions[1], tokens, 6, want);
    assert_memory_equal(got, want, sizeof(got));
    assert_int_equal(unlink(c->path), 0);
    logits_after(sessions[0], tokens, 6, got);
    logits_after(sessions[1], tokens, 6, want);
    assert_memory_equal(got, want, sizeof(got));
    for (int i = 0; i < 2; ++i) weir_session_destroy(sessions[i]);
    weir_model_close(mapped);
    weir_model_close(copy);
}

static void copy__is_counted(void **state) {
    copied *c = *state;
    weir_memory_counters before = WEIR_MEMORY_COUNTERS_INIT, mapped = WEIR_MEMORY_COUNTERS_INIT,
                         copied = WEIR_MEMORY_COUNTERS_INIT;
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    weir_model *model = NULL;
    const uint64_t bytes = (uint64_t)c->bytes;
    assert_ok(weir_runtime_memory(c->runtime, &before));
    assert_ok(weir_model_open(c->runtime, c->path, NULL, &model));
    assert_ok(weir_runtime_memory(c->runtime, &mapped));
    assert_ok(weir_model_get_info(model, &info));
    assert_int_equal(info.copied_bytes, 0);
    assert_int_equal(info.file_bytes, bytes);
    weir_model_close(model);
    model = open_copy(c);
    assert_ok(weir_runtime_memory(c->runtime, &copied));
    assert_ok(weir_model_get_info(model, &info));
    assert_int_equal(info.copied_bytes, bytes);
    assert_int_equal(info.file_bytes, bytes);
    assert_int_equal(copied.bytes, mapped.bytes + bytes);
    assert_int_equal(c->max_bytes, bytes); /* one block, from the hooks */
    weir_model_close(model);
    assert_ok(weir_runtime_memory(c->runtime, &copied));
    assert_int_equal(copied.bytes, before.bytes);
}

static void copy__without_memory_is_refused(void **state) {
    copied *c = *state;
    weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
    weir_model *model = NULL;
    const uint64_t n_live = c->n_live;
    options.flags = WEIR_MODEL_COPY;
    c->refuse_from = (uint64_t)c->bytes;
    assert_error(weir_model_open(c->runtime, c->path, &options, &model), WEIR_ERR_OUT_OF_MEMORY,
                 "for a copy of the file could not be allocated");
    assert_non_null(strstr(weir_last_error(), c->path));
    assert_null(model);
    assert_int_equal(c->n_live, n_live);
    c->refuse_from = 0;
    weir_model_close(open_copy(c));
}

typedef struct meddler {
    const copied *c;
    uint64_t at;    /* meddles when this many bytes are done */
    off_t new_size; /* -1: refuses instead */
    uint64_t last;
    int n_calls;
} meddler;

static weir_status meddle(void *user, const weir_progress_info *info) {
    meddler *m = user;
    assert_int_equal(info->total, m->c->bytes);
    assert_true(info->done >= m->last);
    m->last = info->done;
    ++m->n_calls;
    if (info->done != m->at) return WEIR_OK;
    if (m->new_size < 0) return WEIR_ERR_INTERNAL;
    return truncate(m->c->path, m->new_size) == 0 ? WEIR_OK : WEIR_ERR_INTERNAL;
}

/* Shorter, longer and gone while it is read: an error, nothing leaked. A callback that refuses cancels. */
static void copy__of_a_file_that_changes_is_an_error(void **state) {
    copied *c = *state;
    weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
    const off_t sizes[] = {4096, 0, c->bytes - 1, c->bytes + 4096};
    static const char *const messages[] = {"ended at byte 4096", "ended at byte 0", "ended at byte",
                                           "size changed from"};
    weir_model *model = NULL;
    const uint64_t n_live = c->n_live;
    meddler m = {c, 0, 0, 0, 0};
    options.flags = WEIR_MODEL_COPY;
    options.progress = meddle;
    options.progress_user = &m;
    for (int i = 0; i < 4; ++i) {
        m.new_size = sizes[i];
        m.last = 0;
        assert_error(weir_model_open(c->runtime, c->path, &options, &model), WEIR_ERR_IO, messages[i]);
        assert_non_null(strstr(weir_last_error(), c->path));
        assert_null(model);
        assert_int_equal(c->n_live, n_live);
        tear_down(state); /* the file anew */
        assert_int_equal(set_up(state), 0);
    }
    m.new_size = -1;
    m.last = 0;
    assert_error(weir_model_open(c->runtime, c->path, &options, &model), WEIR_ERR_CANCELLED,
                 "by its progress callback at byte 0");
    m.at = 1;
    m.n_calls = 0;
    options.flags = WEIR_MODEL_COPY | WEIR_MODEL_PREFETCH | WEIR_MODEL_VOCAB_ONLY; /* nothing is left to fetch */
    assert_ok(weir_model_open(c->runtime, c->path, &options, &model));
    assert_int_equal(m.last, c->bytes);
    assert_true(m.n_calls >= 2);
    weir_model_close(model);
}

static void copy__refuses_what_a_mapping_refuses(void **state) {
    copied *c = *state;
    weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
    weir_model *model = NULL;
    const uint64_t n_live = c->n_live;
    options.flags = WEIR_MODEL_COPY;
    assert_error(weir_model_open(c->runtime, "/no/such/file.gguf", &options, &model), WEIR_ERR_IO,
                 "/no/such/file.gguf: cannot be opened");
    assert_error(weir_model_open(c->runtime, "/", &options, &model), WEIR_ERR_IO, "/: cannot be read: Is a directory");
    assert_error(weir_model_open(c->runtime, "/dev/null", &options, &model), WEIR_ERR_IO, "not a regular file");
    assert_int_equal(truncate(c->path, 0), 0);
    assert_error(weir_model_open(c->runtime, c->path, &options, &model), WEIR_ERR_IO, "the file is empty");
    assert_int_equal(truncate(c->path, 100), 0); /* zeros */
    assert_error(weir_model_open(c->runtime, c->path, &options, &model), WEIR_ERR_FORMAT, "not a GGUF file");
    assert_int_equal(c->n_live, n_live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(copy__outlives_its_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copy__is_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copy__without_memory_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copy__of_a_file_that_changes_is_an_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copy__refuses_what_a_mapping_refuses, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("api_copy", tests, NULL, NULL);
}
