/* api: every allocation of runtime, open, tokenize, render, create and prefill refused in turn: a status, nothing
 * leaked, and the next try works. */
#include "api_test.h"
#include "../policy/every_policy.h"

#ifdef WEIR_INTERNAL_SANITIZED /* lives take some ten times as long */
#define TURNS 4 /* each allocation is refused under one of four policies, not under all */
#define STRIDE 5
#define N_TOKENS 120
#else
#define TURNS 1
#define STRIDE 1
#define N_TOKENS 300
#endif

typedef struct hooks {
    uint64_t n_allocs, n_live, bytes_live;
    uint64_t fail_at; /* 1-based number of the allocation that is refused; 0: none */
    int misaligned;   /* that one is not refused but gets misaligned memory */
    void *shifted;    /* the misaligned memory */
    uint64_t n_shifted_frees;
} hooks;

static weir_status hook_alloc(void *user, const weir_alloc_info *info, void **out) {
    hooks *h = user;
    void *ptr = NULL;
    assert_int_equal(info->kind, WEIR_MEMORY_HOST);
    assert_true(info->alignment != 0 && (info->alignment & (info->alignment - 1)) == 0 && info->alignment <= 4096);
    if (++h->n_allocs == h->fail_at && !h->misaligned) return WEIR_ERR_OUT_OF_MEMORY;
    if (h->n_allocs == h->fail_at && info->alignment > 1) {
        const uint64_t wrong = info->alignment / 2;
        assert_int_equal(posix_memalign(&ptr, info->alignment < sizeof(void *) ? sizeof(void *) : info->alignment,
                                        info->bytes + wrong),
                         0);
        ++h->n_live;
        h->bytes_live += info->bytes;
        *out = h->shifted = (char *)ptr + wrong;
        return WEIR_OK;
    }
    if (posix_memalign(&ptr, info->alignment < sizeof(void *) ? sizeof(void *) : info->alignment, info->bytes) != 0)
        return WEIR_ERR_OUT_OF_MEMORY;
    memset(ptr, 0xcd, info->bytes); /* fresh memory is not zero */
    ++h->n_live;
    h->bytes_live += info->bytes;
    *out = ptr;
    return WEIR_OK;
}

static weir_status hook_free(void *user, const weir_alloc_info *info) {
    hooks *h = user;
    assert_non_null(info->ptr);
    assert_true(h->n_live > 0 && h->bytes_live >= info->bytes);
    --h->n_live;
    h->bytes_live -= info->bytes;
    if (info->ptr == h->shifted) {
        ++h->n_shifted_frees;
        free((char *)info->ptr - info->alignment / 2);
        h->shifted = NULL;
    } else {
        free(info->ptr);
    }
    return WEIR_OK;
}

static weir_runtime_options with_hooks(hooks *h) {
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    options.n_threads = 2;
    options.alloc = hook_alloc;
    options.free = hook_free;
    options.alloc_user = h;
    return options;
}

/* Everything that allocates, in order; returns the first error. */
static weir_status whole_life(const weir_runtime_options *options, const char *policy) {
    static const char text[] = RULE_PROMPT;
    static const weir_chat_message message = CHAT_MESSAGE("user", "Hello", 5);
    char rendered[256];
    weir_token tokens[256];
    uint64_t n = 0, bytes = 0;
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_session *session = NULL;
    weir_detokenizer *detokenizer = NULL;
    weir_session_options session_options = WEIR_SESSION_OPTIONS_INIT;
    weir_status status = weir_runtime_create(options, &runtime);
    session_options.policy = policy;
    session_options.budget_tokens = 256;
    session_options.context_tokens = 1024; /* the hook fills what it gives */
    if (status == WEIR_OK) status = weir_model_open(runtime, TINY_MODEL, NULL, &model);
    if (status == WEIR_OK)
        status = weir_tokenize(model, text, sizeof(text) - 1, WEIR_TOKENIZE_SPECIAL, tokens, 256, &n);
    if (status == WEIR_OK)
        status = weir_chat_render(model, &message, 1, WEIR_CHAT_ADD_ASSISTANT, rendered, sizeof(rendered), &bytes);
    if (status == WEIR_OK) status = weir_chat_tokenize(model, &message, 1, NULL, tokens + 200, 56, &bytes);
    if (status == WEIR_OK) status = weir_detokenizer_create(model, 0, &detokenizer);
    if (status == WEIR_OK) status = weir_session_create(model, &session_options, &session);
    if (status == WEIR_OK) status = weir_session_prefill(session, tokens, n, NULL, NULL);
    if (status == WEIR_OK) status = weir_session_step(session, 100);
    weir_session_destroy(session);
    weir_detokenizer_destroy(detokenizer);
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    return status;
}

static void faults__each_allocation_refused(void **state) {
    static const char *const policies[] = {"dense", "sink", "raas", "arkvale"};
    (void)state;
    for (size_t p = 0; p < sizeof(policies) / sizeof(policies[0]); ++p) {
        hooks clean = {0};
        weir_runtime_options options = with_hooks(&clean);
        weir_status status;
        int n_optional = 0;
        assert_ok(whole_life(&options, policies[p]));
        assert_int_equal(clean.n_live, 0);
        assert_int_equal(clean.bytes_live, 0);
        assert_true(clean.n_allocs > 10);
        for (uint64_t n = 1 + p % TURNS; n <= clean.n_allocs; n += TURNS) {
            hooks h = {.fail_at = n};
            options = with_hooks(&h);
            status = whole_life(&options, policies[p]);
            /* PCRE2's just-in-time step may fail: the patterns are interpreted then. Nothing else can do without its
             * memory. */
            if (status == WEIR_OK) {
                ++n_optional;
            } else {
                assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
                assert_true(weir_last_error()[0] != '\0');
            }
            assert_int_equal(h.n_live, 0);
            assert_int_equal(h.bytes_live, 0);
        }
        assert_true(n_optional <= 12);
    }
}

/* Misaligned memory is never used: it goes back to the hook, and the call is out of memory. */
static void faults__each_allocation_misaligned(void **state) {
    hooks clean = {0};
    weir_runtime_options options = with_hooks(&clean);
    int n_optional = 0, n_refused = 0;
    (void)state;
    assert_ok(whole_life(&options, "quest"));
    for (uint64_t n = 1; n <= clean.n_allocs; n += STRIDE) {
        hooks h = {.fail_at = n, .misaligned = 1};
        weir_status status;
        options = with_hooks(&h);
        status = whole_life(&options, "quest");
        if (h.n_shifted_frees == 0) { /* bytes, which need no alignment */
            assert_ok(status);
        } else if (status == WEIR_OK) { /* PCRE2's machine code, which is not needed */
            ++n_optional;
        } else {
            assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
            assert_non_null(strstr(weir_last_error(), "the hook gave memory that is not aligned as asked"));
            assert_int_equal(h.n_shifted_frees, 1);
            ++n_refused;
        }
        assert_int_equal(h.n_live, 0);
        assert_int_equal(h.bytes_live, 0);
    }
    assert_true(n_optional <= 12 && n_refused > 10 / STRIDE);
}

/* Prefill, decoding, eviction and sampling never reach the allocator. */
static void faults__nothing_is_allocated_while_decoding(void **state) {
    hooks h = {0};
    weir_runtime_options options = with_hooks(&h);
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    uint64_t n = 0;
    weir_token *tokens;
    (void)state;
    assert_ok(weir_runtime_create(&options, &runtime));
    assert_ok(weir_model_open(runtime, TINY_MODEL, NULL, &model));
    tokens = tokens_of(model, RULE_PROMPT, &n);
    for (size_t p = 0; p < N_POLICIES; ++p) {
        weir_session *session = NULL;
        weir_session_options session_options = WEIR_SESSION_OPTIONS_INIT;
        weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
        weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
        weir_plan_info plan = WEIR_PLAN_INFO_INIT;
        weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
        uint64_t allocs, bytes, bytes_of_host;
        session_options.policy = every_policy[p];
        session_options.budget_tokens = strcmp(every_policy[p], "dense") == 0 ? 0 : 160;
        assert_ok(weir_plan(model, &session_options, &plan));
        bytes = h.bytes_live;
        assert_ok(weir_session_create(model, &session_options, &session));
        bytes_of_host = plan.total_bytes - plan.device_bytes;
        if (plan.device == WEIR_DEVICE_VULKAN) { /* whose driver gives staging memory, and of the spill store a part */
            bytes_of_host -= plan.staging_bytes;
            assert_in_range(h.bytes_live - bytes, bytes_of_host - plan.spill_bytes, bytes_of_host);
        } else {
            assert_int_equal(h.bytes_live - bytes, bytes_of_host); /* the plan is exact */
        }
        allocs = h.n_allocs;
        sampling.temperature = 1.0f;
        sampling.top_k = 20;
        assert_ok(weir_session_set_sampling(session, &sampling));
        assert_ok(weir_session_prefill(session, tokens, n, NULL, NULL));
        generate.flags = WEIR_GENERATE_IGNORE_EOS;
        generate.max_tokens = N_TOKENS;
        assert_ok(weir_session_generate(session, &generate, NULL));
        assert_int_equal(h.n_allocs, allocs);
        assert_ok(weir_session_memory(session, &memory));
        assert_int_equal(memory.allocs_while_decoding, 0);
        assert_int_equal(memory.peak_bytes, plan.total_bytes);
        weir_session_destroy(session);
        assert_int_equal(h.bytes_live, bytes);
    }
    free(tokens);
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    assert_int_equal(h.n_live, 0);
}

static void faults__counters_agree_with_the_hooks(void **state) {
    hooks h = {0};
    weir_runtime_options options = with_hooks(&h);
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    weir_memory_counters before = WEIR_MEMORY_COUNTERS_INIT, after = WEIR_MEMORY_COUNTERS_INIT;
    uint64_t bytes;
    (void)state;
    assert_ok(weir_runtime_create(&options, &runtime));
    assert_ok(weir_runtime_memory(runtime, &before));
    bytes = h.bytes_live;
    assert_ok(weir_model_open(runtime, TINY_MODEL, NULL, &model));
    assert_ok(weir_runtime_memory(runtime, &after));
    assert_int_equal(after.bytes - before.bytes, h.bytes_live - bytes);
    weir_model_close(model);
    assert_ok(weir_runtime_memory(runtime, &after));
    assert_int_equal(after.bytes, before.bytes);
    weir_runtime_destroy(runtime);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults__each_allocation_refused),
        cmocka_unit_test(faults__each_allocation_misaligned),
        cmocka_unit_test(faults__nothing_is_allocated_while_decoding),
        cmocka_unit_test(faults__counters_agree_with_the_hooks),
    };
    return cmocka_run_group_tests_name("api_faults", tests, NULL, NULL);
}
