/* device: plans are exact on a device too, nothing is allocated while decoding, and all memory is returned. */
#include "device_test.h"
#include "../policy/every_policy.h"

static const variant variants[] = {
    {"dense", {{0, 0}}, 0},
    {"sink", {{0, 0}}, 0},
    {"h2o", {{"skip_layers", "0"}}, 1},
    {"tova", {{0, 0}}, 0},
    {"quest", {{0, 0}}, 0},
    {"raas", {{0, 0}}, 0},
    {"raas", {{"stamp_source", "digest"}, {"prompt", "snapkv"}}, 2},
    {"hybrid", {{0, 0}}, 0},
    {"random", {{0, 0}}, 0},
    {"keyformer", {{0, 0}}, 0},
    {"scissorhands", {{0, 0}}, 0},
    {"arkvale", {{0, 0}}, 0},
    {"psa", {{0, 0}}, 0},
    {"psa", {{"eps", "1"}}, 1}, /* never stops */
};
#define N_VARIANTS (sizeof(variants) / sizeof(variants[0]))

typedef struct hooks {
    uint64_t n_allocs, n_live, bytes_live;
} hooks;

static weir_status hook_alloc(void *user, const weir_alloc_info *info, void **out) {
    hooks *h = user;
    void *ptr = NULL;
    assert_int_equal(info->kind, WEIR_MEMORY_HOST);
    if (posix_memalign(&ptr, info->alignment < sizeof(void *) ? sizeof(void *) : info->alignment, info->bytes) != 0)
        return WEIR_ERR_OUT_OF_MEMORY;
    memset(ptr, 0xcd, info->bytes);
    ++h->n_allocs;
    ++h->n_live;
    h->bytes_live += info->bytes;
    *out = ptr;
    return WEIR_OK;
}

static weir_status hook_free(void *user, const weir_alloc_info *info) {
    hooks *h = user;
    --h->n_live;
    h->bytes_live -= info->bytes;
    free(info->ptr);
    return WEIR_OK;
}

static void open_with_hooks(fixture *f, hooks *h) {
    weir_runtime_options options = gpu_runtime_options();
    memset(h, 0, sizeof(*h));
    options.alloc = hook_alloc;
    options.free = hook_free;
    options.alloc_user = h;
    assert_ok(weir_runtime_create(&options, &f->runtime));
    assert_ok(weir_model_open(f->runtime, TINY_MODEL, NULL, &f->model));
}

static weir_memory_counters counters_of(const fixture *f) {
    weir_memory_counters counters = WEIR_MEMORY_COUNTERS_INIT;
    assert_ok(weir_runtime_memory(f->runtime, &counters));
    return counters;
}

/* The session takes what the plan says, of the host and of the device, at any time of its life. */
static void memory__plan_is_exact(void **state) {
    hooks h;
    fixture f;
    weir_memory_counters counters;
    (void)state;
    ASSERT_EVERY_POLICY_EXCEPT("lfps", variants, policy); /* it has no kernel */
    NEED_GPU();
    open_with_hooks(&f, &h);
    for (size_t i = 0; i < N_VARIANTS; ++i) {
        const weir_session_options options = options_of(&variants[i], test_device(), i == 0 ? 0 : 256, 2048);
        weir_plan_info plan = WEIR_PLAN_INFO_INIT;
        weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
        weir_session *session = NULL;
        uint64_t bytes, counted, of_driver;
        assert_ok(weir_plan(f.model, &options, &plan));
        assert_int_equal(plan.device, test_device());
        assert_int_equal(plan.device_bytes,
                         plan.kv_bytes + plan.digest_bytes + plan.table_bytes + plan.workspace_bytes);
        assert_int_equal(plan.total_bytes,
                         plan.device_bytes + plan.sampler_bytes + plan.session_bytes + plan.staging_bytes +
                             plan.spill_bytes);
        assert_true(plan.device_weights_bytes > 0);
        bytes = h.bytes_live;
        counters = counters_of(&f);
        counted = counters.bytes;
        assert_ok(weir_session_create(f.model, &options, &session));
        counters = counters_of(&f);
        /* The first session also uploads the weights, whose table belongs to the model. Vulkan's driver gives the
         * staging memory, and the pages of a store that are not compressed. */
        if (i > 0) {
            assert_int_equal(counters.bytes - counted, plan.total_bytes - plan.device_bytes);
            of_driver = plan.total_bytes - plan.device_bytes - (h.bytes_live - bytes);
            if (test_device() != WEIR_DEVICE_VULKAN) {
                assert_int_equal(of_driver, 0);
            } else if (plan.spill_bytes == 0) {
                assert_int_equal(of_driver, plan.staging_bytes);
            } else {
                assert_true(of_driver > plan.staging_bytes && of_driver < plan.staging_bytes + plan.spill_bytes);
                assert_int_equal((of_driver - plan.staging_bytes) % plan.page_bytes, 0);
            }
        }
        assert_int_equal(counters.device_bytes, plan.device_bytes + plan.device_weights_bytes);
        prefill_text(f.model, session, RULE_PROMPT);
        for (int step = 0; step < 300; ++step) assert_ok(weir_session_step(session, 100 + step));
        assert_ok(weir_session_memory(session, &memory));
        assert_int_equal(memory.plan_bytes, plan.total_bytes);
        assert_int_equal(memory.bytes, plan.total_bytes);
        assert_int_equal(memory.peak_bytes, plan.total_bytes);
        assert_int_equal(memory.device_bytes, plan.device_bytes);
        assert_int_equal(memory.kv_budget_bytes, plan.kv_bytes);
        assert_true(memory.kv_peak_bytes <= plan.kv_bytes);
        assert_int_equal(memory.allocs_while_decoding, 0);
        weir_session_destroy(session);
        counters = counters_of(&f);
        assert_int_equal(counters.device_bytes, plan.device_weights_bytes);
        if (i > 0) assert_int_equal(h.bytes_live, bytes);
    }
    counters = counters_of(&f);
    assert_int_equal(counters.n_device_allocs, N_VARIANTS + 1);
    assert_int_equal(counters.n_device_frees, N_VARIANTS);
    weir_model_close(f.model);
    counters = counters_of(&f);
    assert_int_equal(counters.device_bytes, 0);
    assert_int_equal(counters.n_device_frees, counters.n_device_allocs);
    weir_runtime_destroy(f.runtime);
    assert_int_equal(h.n_live, 0);
    assert_int_equal(h.bytes_live, 0);
}

/* Two sessions share the weights. */
static void memory__weights_are_there_once(void **state) {
    fixture f;
    weir_session *sessions[2] = {NULL, NULL};
    const weir_session_options options = options_of(&variants[1], test_device(), 256, 2048);
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    weir_memory_counters counters;
    (void)state;
    NEED_GPU();
    open_gpu_fixture(&f);
    assert_ok(weir_plan(f.model, &options, &plan));
    for (int i = 0; i < 2; ++i) assert_ok(weir_session_create(f.model, &options, &sessions[i]));
    counters = counters_of(&f);
    assert_int_equal(counters.device_bytes, 2 * plan.device_bytes + plan.device_weights_bytes);
    weir_session_destroy(sessions[0]);
    assert_ok(weir_session_prefill(sessions[1], (const weir_token[]){1, 2, 3}, 3, NULL, NULL));
    /* The session keeps the model alive, and with it the weights. */
    weir_model_close(f.model);
    counters = counters_of(&f);
    assert_int_equal(counters.device_bytes, plan.device_bytes + plan.device_weights_bytes);
    assert_ok(weir_session_step(sessions[1], 4));
    weir_session_destroy(sessions[1]);
    counters = counters_of(&f);
    assert_int_equal(counters.device_bytes, 0);
    weir_runtime_destroy(f.runtime);
}

/* Decodes n_steps tokens with the variant and checks that no allocator hook is called meanwhile. */
static void decode_without_allocating(fixture *f, size_t variant, uint32_t budget_tokens, uint32_t n_steps) {
    const weir_session_options options =
        options_of(&variants[variant], test_device(), budget_tokens, n_steps + 1000);
    weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    weir_memory_counters before, after;
    weir_session *session = NULL;
    uint64_t n;
    weir_token *tokens = tokens_of(f->model, RULE_PROMPT, &n);
    assert_ok(weir_session_create(f->model, &options, &session));
    before = counters_of(f);
    assert_ok(weir_session_prefill(session, tokens, n, NULL, NULL));
    generate.flags = WEIR_GENERATE_IGNORE_EOS;
    generate.max_tokens = n_steps;
    assert_ok(weir_session_generate(session, &generate, &result));
    assert_int_equal(result.n_tokens, n_steps);
    after = counters_of(f);
    assert_int_equal(after.n_allocs, before.n_allocs);
    assert_int_equal(after.n_device_allocs, before.n_device_allocs);
    assert_ok(weir_session_memory(session, &memory));
    assert_int_equal(memory.allocs_while_decoding, 0);
    assert_int_equal(memory.peak_bytes, memory.plan_bytes);
    weir_session_destroy(session);
    free(tokens);
}

static void memory__nothing_is_allocated_in_5000_steps(void **state) {
    hooks h;
    fixture f;
    (void)state;
    NEED_GPU();
    open_with_hooks(&f, &h);
    for (size_t i = 0; i < N_VARIANTS; ++i) decode_without_allocating(&f, i, i == 0 ? 0 : 256, 5000);
    weir_model_close(f.model);
    weir_runtime_destroy(f.runtime);
    assert_int_equal(h.n_live, 0);
}

/* What Weir is for: a hundred thousand tokens in memory that is fixed before the first. */
static void memory__nothing_is_allocated_in_100000_steps(void **state) {
    fixture f;
    size_t raas = 0;
    (void)state;
    NEED_GPU();
    while (raas < N_VARIANTS && strcmp(variants[raas].policy, "raas") != 0) ++raas;
    assert_true(raas < N_VARIANTS);
    open_gpu_fixture(&f);
    decode_without_allocating(&f, raas, 512, 100000);
    close_gpu_fixture(&f);
}

static void memory__sessions_come_and_go(void **state) {
    fixture f;
    weir_memory_counters before = {0}, after;
    (void)state;
    NEED_GPU();
    open_gpu_fixture(&f);
    for (int i = 0; i < 20; ++i) {
        const weir_session_options options = options_of(&variants[(size_t)i % N_VARIANTS], test_device(), 256, 2048);
        weir_session *session = NULL;
        assert_ok(weir_session_create(f.model, &options, &session));
        prefill_text(f.model, session, RULE_PROMPT);
        for (int step = 0; step < 20; ++step) assert_ok(weir_session_step(session, 100 + step));
        weir_session_destroy(session);
        if (i == 0) before = counters_of(&f);
    }
    after = counters_of(&f);
    assert_int_equal(after.device_bytes, before.device_bytes);
    assert_int_equal(after.bytes, before.bytes);
    close_gpu_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory__plan_is_exact),
        cmocka_unit_test(memory__weights_are_there_once),
        cmocka_unit_test(memory__nothing_is_allocated_in_5000_steps),
        cmocka_unit_test(memory__nothing_is_allocated_in_100000_steps),
        cmocka_unit_test(memory__sessions_come_and_go),
    };
    return cmocka_run_group_tests_name("device/memory", tests, NULL, NULL);
}
