/* api: what an application shows and offers: pages of a conversation, names, what tokens stand for, options that fit
 * into given memory; and structs that begin as zero bytes. */
#include "api_test.h"

static weir_session *session_with(const fixture *f, weir_session_options options) {
    weir_session *session = NULL;
    options.device = WEIR_DEVICE_CPU;
    assert_ok(weir_session_create(f->model, &options, &session));
    return session;
}

static uint32_t n_streams_of(const fixture *f) {
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    assert_ok(weir_plan(f->model, NULL, &plan));
    return plan.n_streams;
}

static void feed(weir_session *session, uint32_t n_prompt, uint32_t n_steps) {
    weir_token tokens[512];
    for (uint32_t i = 0; i < n_prompt; ++i) tokens[i] = (weir_token)(20 + i * 7 % 60);
    assert_ok(weir_session_prefill(session, tokens, n_prompt, NULL, NULL));
    for (uint32_t i = 0; i < n_steps; ++i) assert_ok(weir_session_step(session, (weir_token)(20 + i * 11 % 60)));
}

/* The sums over pages are those of the counters, and pins are where they were asked for. */
static void showing__pages(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *policy;
        uint64_t spill;
    } rows[] = {{"dense", 0}, {"sink", 0}, {"raas", 0}, {"raas", 1 << 20}, {"arkvale", 0}, {"arkvale", 3 << 19}};
    const uint32_t n_streams = n_streams_of(f);
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); ++r) {
        weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
        weir_page_state pages[64];
        weir_session_stats stats = WEIR_SESSION_STATS_INIT;
        uint32_t n = 99;
        uint64_t resident = 0, cold = 0, lost = 0;
        options.policy = rows[r].policy;
        options.context_tokens = 1024;
        options.budget_tokens = r == 0 ? 0 : 256;
        options.spill_budget_bytes = rows[r].spill;
        const weir_key_value positions = {"positions", "abs"}; /* so that pages can be pinned */
        options.policy_options = r == 1 ? &positions : NULL;
        options.n_policy_options = r == 1 ? 1 : 0;
        weir_session *session = session_with(f, options);
        assert_ok(weir_session_pages(session, NULL, 0, &n));
        assert_int_equal(n, 0);
        feed(session, 50, 500);
        /* So small a pool needs all its room for recall. */
        const weir_status pinned = weir_session_pin(session, 520, 530);
        assert_true(pinned == (r < 4 ? WEIR_OK : WEIR_ERR_BUDGET));
        memset(pages, 0x55, sizeof(pages));
        assert_error(weir_session_pages(session, pages, 34, &n), WEIR_ERR_BUFFER_TOO_SMALL, "35 pages");
        assert_int_equal(n, 35);
        assert_int_equal(pages[0].resident, 0x5555);
        assert_ok(weir_session_pages(session, pages, 64, &n));
        assert_int_equal(n, 35);
        assert_int_equal(pages[35].resident, 0x5555);
        assert_ok(weir_session_get_stats(session, &stats));
        for (uint32_t i = 0; i < n; ++i) {
            assert_int_equal(pages[i].resident + pages[i].cold + pages[i].lost, n_streams);
            resident += pages[i].resident;
            cold += pages[i].cold;
            lost += pages[i].lost;
            const int is_prompt = strcmp(rows[r].policy, "raas") == 0 && i < 4;
            const int is_pinned = is_prompt || (pinned == WEIR_OK && (i == 32 || i == 33));
            assert_int_equal(pages[i].pinned, is_pinned ? n_streams : 0);
        }
        assert_int_equal(resident, stats.pages_resident);
        assert_int_equal(cold, stats.pages_cold);
        assert_int_equal(lost, stats.pages_dropped);
        assert_true(r == 0 ? resident == n * n_streams : resident < n * n_streams);
        assert_true(rows[r].spill == 0 && r != 4 ? cold == 0 : cold != 0);
        assert_true(r == 5 ? lost != 0 : r != 4 || lost == 0);
        assert_ok(weir_session_reset(session));
        assert_ok(weir_session_pages(session, pages, 64, &n));
        assert_int_equal(n, 0);
        weir_session_destroy(session);
    }
    assert_error(weir_session_pages(NULL, NULL, 0, NULL), WEIR_ERR_INVALID_ARG, "session is NULL");
}

/* Every name is one that the library takes, and there is no other. */
static void showing__names(void **state) {
    const fixture *f = *state;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    uint32_t n = 0, has_type = 0;
    options.context_tokens = 512;
    options.device = WEIR_DEVICE_CPU;
    for (; weir_policy_name(n) != NULL; ++n) {
        options.policy = weir_policy_name(n);
        assert_ok(weir_plan(f->model, &options, &plan));
    }
    options.policy = "none such";
    assert_int_equal(weir_plan(f->model, &options, &plan), WEIR_ERR_NOT_FOUND);
    uint32_t n_listed = 0; /* the message lists them all */
    for (const char *at = strchr(weir_last_error(), ':'); at != NULL && *at != '\0'; ++at) n_listed += *at == ' ';
    assert_int_equal(n_listed, n);
    for (n = 0; weir_preset_name(n) != NULL; ++n) assert_ok(weir_session_options_preset(weir_preset_name(n), &options));
    assert_int_equal(weir_session_options_preset("none such", &options), WEIR_ERR_NOT_FOUND);
    n_listed = 0;
    for (const char *at = strchr(weir_last_error(), ':'); at != NULL && *at != '\0'; ++at) n_listed += *at == ' ';
    assert_int_equal(n_listed, n);
    assert_ok(weir_model_get_info(f->model, &info));
    for (n = 0; weir_weight_type_name(n) != NULL; ++n) {
        has_type += strcmp(weir_weight_type_name(n), info.weight_type) == 0;
    }
    assert_int_equal(has_type, 1);
    assert_true(n > 10 && weir_weight_type_name(UINT32_MAX) == NULL);
    assert_true(weir_policy_name(UINT32_MAX) == NULL && weir_preset_name(UINT32_MAX) == NULL);
}

/* What the tokens of a text stand for is the text. */
static void showing__token_bytes(void **state) {
    const fixture *f = *state;
    const char *const text = "The rule: x[n] = x[n-3] - x[n-1]; na\xC3\xAFve \xE4\xBD\xA0\xF0\x9F\x98\x80\n";
    char joined[256];
    uint64_t n = 0, n_bytes = 0;
    weir_token *tokens = tokens_of(f->model, text, &n);
    int has_space = 0;
    for (uint64_t i = 0; i < n; ++i) {
        weir_token_info info = WEIR_TOKEN_INFO_INIT;
        assert_ok(weir_token_get_info(f->model, tokens[i], &info));
        assert_true(n_bytes + info.n_bytes < sizeof(joined));
        memcpy(joined + n_bytes, info.bytes, info.n_bytes);
        n_bytes += info.n_bytes;
        has_space |= info.bytes[0] == ' ' && info.text[0] != ' ';
    }
    assert_int_equal(n_bytes, strlen(text));
    assert_memory_equal(joined, text, n_bytes);
    assert_true(has_space);
    free(tokens);
    weir_special_tokens special = WEIR_SPECIAL_TOKENS_INIT;
    weir_token_info info = WEIR_TOKEN_INFO_INIT;
    assert_ok(weir_model_special_tokens(f->model, &special));
    assert_ok(weir_token_get_info(f->model, special.eos, &info));
    assert_int_equal(info.n_bytes, info.text_bytes);
    assert_memory_equal(info.bytes, info.text, info.n_bytes);
    struct {
        weir_token_info info;
    } old; /* a program that was built with 1.0 */
    memset(&old, 0x33, sizeof(old));
    old.info.struct_size = (uint32_t)offsetof(weir_token_info, bytes);
    assert_ok(weir_token_get_info(f->model, special.eos, &old.info));
    assert_int_equal(old.info.n_bytes, 0x3333333333333333u);
}

static uint64_t total_of(const fixture *f, const weir_session_options *options, weir_plan_info *plan) {
    *plan = (weir_plan_info)WEIR_PLAN_INFO_INIT;
    assert_ok(weir_plan(f->model, options, plan));
    return plan->total_bytes;
}

/* They fit, nothing that was set has changed, and a little more context or budget would not fit. */
static void showing__options_fit(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *policy;
        uint32_t context, budget;
    } rows[] = {{NULL, 0, 0},       {"sink", 4096, 0}, {"raas", 0, 0},     {"quest", 0, 0},
                {"arkvale", 0, 0},  {"raas", 2048, 0}, {"raas", 0, 1024},  {"arkvale", 8192, 0},
                {"arkvale", 0, 512}};
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); ++r) {
        weir_session_options given = WEIR_SESSION_OPTIONS_INIT, fitted;
        weir_plan_info plan, other;
        given.device = WEIR_DEVICE_CPU;
        given.policy = rows[r].policy;
        given.context_tokens = rows[r].context;
        given.budget_tokens = rows[r].budget;
        const uint64_t whole = total_of(f, &given, &plan);
        uint64_t before = 0;
        for (uint64_t parts = 9; parts <= 20; ++parts) {
            const uint64_t bytes = whole / 20 * parts + (parts == 20 ? 20 : 0);
            fitted = given;
            const weir_status status = weir_session_options_fit(f->model, bytes, &fitted);
            if (status != WEIR_OK) {
                assert_int_equal(status, WEIR_ERR_BUDGET);
                assert_memory_equal(&fitted, &given, sizeof(given));
                assert_int_equal(before, 0);
                continue;
            }
            const uint64_t total = total_of(f, &fitted, &plan);
            assert_true(total <= bytes && total >= before);
            before = total;
            assert_true(rows[r].context == 0 || plan.context_tokens == rows[r].context);
            assert_true(rows[r].budget == 0 || fitted.budget_tokens == rows[r].budget);
            if (fitted.budget_tokens != 0 && rows[r].budget == 0 && plan.spill_bytes == 0) {
                weir_session_options more = fitted;
                more.budget_tokens += 16;
                assert_true(total_of(f, &more, &other) > bytes);
            } else if (fitted.context_tokens != rows[r].context && plan.spill_bytes == 0) {
                weir_session_options more = fitted;
                more.context_tokens += 16;
                other = (weir_plan_info)WEIR_PLAN_INFO_INIT;
                if (weir_plan(f->model, &more, &other) == WEIR_OK) assert_true(other.total_bytes > bytes);
            } else if (plan.spill_bytes != 0 && parts < 20) {
                assert_true(total * 10 > bytes * 9); /* the store has what the pool leaves */
            }
        }
        assert_true(before != 0);
        if (before == whole) { /* options that fit stay as they are */
            assert_memory_equal(&fitted, &given, sizeof(given));
        }
    }
}

/* The message names the least, and that does. */
static void showing__options_that_cannot_fit(void **state) {
    const fixture *f = *state;
    static const char *const policies[] = {NULL, "sink", "raas", "arkvale", "quest"};
    for (size_t p = 0; p < sizeof(policies) / sizeof(policies[0]); ++p) {
        for (uint32_t context = 0; context <= 2048; context += 2048) {
            weir_session_options options = WEIR_SESSION_OPTIONS_INIT, given;
            weir_plan_info plan;
            options.device = WEIR_DEVICE_CPU;
            options.policy = policies[p];
            options.context_tokens = context;
            given = options;
            assert_error(weir_session_options_fit(f->model, 1000, &options), WEIR_ERR_BUDGET, "1000 bytes are too few");
            assert_memory_equal(&options, &given, sizeof(given));
            const char *const take = strstr(weir_last_error(), "these options take ");
            assert_non_null(take);
            const uint64_t least = strtoull(take + strlen("these options take "), NULL, 10);
            assert_int_equal(weir_session_options_fit(f->model, least - 1, &options), WEIR_ERR_BUDGET);
            assert_ok(weir_session_options_fit(f->model, least, &options));
            assert_true(total_of(f, &options, &plan) <= least);
        }
    }
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.struct_size = 16;
    assert_error(weir_session_options_fit(f->model, 1 << 30, &options), WEIR_ERR_INVALID_ARG, "struct_size 16");
    assert_error(weir_session_options_fit(f->model, 1 << 30, NULL), WEIR_ERR_INVALID_ARG, "options is NULL");
    options.struct_size = sizeof(options);
    options.policy = "none such";
    assert_error(weir_session_options_fit(f->model, 1000, &options), WEIR_ERR_NOT_FOUND, "none such");
}

/* Zero bytes and struct_size: every getter takes such a struct, and every options struct is all defaults. */
static void showing__zero_bytes_are_valid(void **state) {
    const fixture *f = *state;
    weir_session *session = NULL;
    weir_runtime *runtime = NULL;
    weir_model *model = NULL;
    uint32_t n = 0;
#define ZEROED(type, name) \
    type name;             \
    memset(&name, 0, sizeof(name)); \
    name.struct_size = (uint32_t)sizeof(name)
    ZEROED(weir_runtime_options, runtime_options);
    ZEROED(weir_model_options, model_options);
    ZEROED(weir_session_options, session_options);
    ZEROED(weir_sampling_options, sampling);
    ZEROED(weir_generate_options, generate);
    ZEROED(weir_prompt_options, prompt_options);
    ZEROED(weir_chat_options, chat);
    ZEROED(weir_tokenize_options, tokenize);
    ZEROED(weir_memory_counters, counters);
    ZEROED(weir_model_info, model_info);
    ZEROED(weir_tensor_info, tensor);
    ZEROED(weir_token_info, token_info);
    ZEROED(weir_special_tokens, special);
    ZEROED(weir_plan_info, plan);
    ZEROED(weir_session_stats, stats);
    ZEROED(weir_memory_info, memory);
    ZEROED(weir_generate_result, result);
    ZEROED(weir_event, event);
    ZEROED(weir_prompt_report, report);
    weir_device_info devices[32];
    weir_token tokens[64];
    uint64_t n_tokens = 0;
    memset(devices, 0, sizeof(devices));
    devices[0].struct_size = sizeof(devices[0]);
    assert_ok(weir_runtime_create(&runtime_options, &runtime));
    assert_ok(weir_runtime_devices(runtime, devices, 32, &n));
    assert_ok(weir_runtime_memory(runtime, &counters));
    assert_ok(weir_model_open(runtime, LONG_RUN_MODEL, &model_options, &model));
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    assert_ok(weir_model_get_info(f->model, &model_info));
    assert_ok(weir_model_tensor_info(f->model, 0, &tensor));
    assert_ok(weir_model_special_tokens(f->model, &special));
    assert_ok(weir_token_get_info(f->model, special.eos, &token_info));
    assert_ok(weir_plan(f->model, &session_options, &plan));
    assert_ok(weir_session_create(f->model, &session_options, &session));
    assert_ok(weir_session_set_sampling(session, &sampling));
    const weir_chat_message message = {.role = "user", .content = "Find x4.", .content_bytes = 8};
    assert_ok(weir_chat_tokenize(f->model, &message, 1, &chat, tokens, 64, &n_tokens));
    tokenize.flags = 0;
    assert_ok(weir_tokenize_with(f->model, "Find x4.", 8, &tokenize, tokens, 64, &n_tokens));
    assert_ok(weir_session_prompt_tokens(session, tokens, n_tokens, &prompt_options, &report));
    generate.max_tokens = 3;
    generate.flags = WEIR_GENERATE_IGNORE_EOS;
    assert_ok(weir_session_generate(session, &generate, &result));
    assert_int_equal(result.n_tokens, 3);
    assert_ok(weir_session_begin(session, &generate));
    assert_ok(weir_session_next(session, &event));
    assert_int_equal(event.kind, WEIR_EVENT_TOKEN);
    assert_ok(weir_session_get_stats(session, &stats));
    assert_ok(weir_session_memory(session, &memory));
    assert_int_equal(stats.n_tokens, report.n_tokens + 4);
    weir_session_destroy(session);
#undef ZEROED
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(showing__pages),       cmocka_unit_test(showing__names),
        cmocka_unit_test(showing__token_bytes), cmocka_unit_test(showing__options_fit),
        cmocka_unit_test(showing__options_that_cannot_fit),
        cmocka_unit_test(showing__zero_bytes_are_valid),
    };
    return cmocka_run_group_tests_name("api/showing", tests, open_fixture, close_fixture);
}
