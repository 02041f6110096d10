/* api: a conversation that was saved and restored goes on with the logits and tokens of one that never stopped. */
#include <unistd.h>

#include "save_test.h"

#ifdef WEIR_INTERNAL_SANITIZED
enum { kSteps = 40 };
#else
enum { kSteps = 120 };
#endif

static const weir_sampling_options kSeeded = {
    sizeof(weir_sampling_options), 20, 0.8f, 0.95f, 0.01f, 1.2f, 100, 0, 12345, 0, 0, NULL, 0, 0};

/* A conversation with prompts, steps and pins, cut in the middle of a page. */
static void converse(weir_session *session) {
    prefill(session, 0, 150);
    for (uint32_t i = 0; i < kSteps; ++i) assert_ok(weir_session_step(session, token(i * 7)));
    /* These pages may have left, or the policy has no room for pins. */
    const weir_status pinned = weir_session_pin(session, 3, 20);
    if (pinned != WEIR_OK && pinned != WEIR_ERR_NOT_FOUND && pinned != WEIR_ERR_UNSUPPORTED &&
        pinned != WEIR_ERR_BUDGET)
        fail_msg("%s", weir_last_error());
    prefill(session, 500, 33);
    for (uint32_t i = 0; i < 12; ++i) assert_ok(weir_session_step(session, token(i * 11)));
}

static void assert_same_files(const file *a, const file *b, const char *when) {
    uint64_t i = 0;
    if (a->n != b->n) fail_msg("files of %zu and %zu bytes: %s", (size_t)a->n, (size_t)b->n, when);
    while (i < a->n && a->bytes[i] == b->bytes[i]) ++i;
    if (i < a->n) fail_msg("files differ at byte %zu of %zu: %s", (size_t)i, (size_t)a->n, when);
}

static void round_trip(weir_model *model, weir_model *other, const choice *c, const weir_sampling_options *sampling) {
    char when[64];
    weir_session *whole = session_of(model, c), *resumed = session_of(other, c);
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    uint64_t n_allocs;
    snprintf(when, sizeof(when), "%s, choice %zu, %s", c->policy, (size_t)(c - choices),
             sampling == NULL ? "greedy" : "seeded");
    assert_ok(weir_session_memory(resumed, &memory));
    n_allocs = memory.n_allocs;
    assert_ok(weir_session_set_sampling(whole, sampling));
    converse(whole);
    for (int i = 0; i < 3; ++i) { /* the random numbers are not at their beginning */
        weir_token drawn = -1;
        assert_ok(weir_session_sample(whole, &drawn));
    }
    file first = saved(whole), second = saved(whole);
    assert_same_files(&first, &second, when);
    prefill(resumed, 7, 90); /* what it had is replaced */
    first.most = 1000;
    assert_ok(restore_from(resumed, &first));
    assert_int_equal(first.at, first.n);
    const weir_session_stats a = stats_of(whole), b = stats_of(resumed);
    assert_int_equal(a.n_tokens, b.n_tokens);
    assert_int_equal(a.pages_resident, b.pages_resident);
    assert_int_equal(a.pages_cold, b.pages_cold);
    file third = saved(resumed);
    assert_same_files(&first, &third, when);
    assert_same_steps(whole, resumed, kSteps, when);
    prefill(whole, 800, 77);
    prefill(resumed, 800, 77);
    assert_same_steps(whole, resumed, 20, when);
    file fourth = saved(whole), fifth = saved(resumed);
    assert_same_files(&fourth, &fifth, when);
    assert_ok(weir_session_memory(resumed, &memory));
    assert_int_equal(memory.n_allocs, n_allocs);
    assert_int_equal(memory.allocs_while_decoding, 0);
    assert_int_equal(memory.peak_bytes, memory.plan_bytes);
    file *files[] = {&first, &second, &third, &fourth, &fifth};
    for (size_t i = 0; i < 5; ++i) free(files[i]->bytes);
    weir_session_destroy(whole);
    weir_session_destroy(resumed);
}

/* The same model under a runtime with one thread. */
typedef struct second_runtime {
    weir_runtime *runtime;
    weir_model *model;
} second_runtime;

static second_runtime with_one_thread(const char *path) {
    second_runtime other = {NULL, NULL};
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    options.n_threads = 1;
    assert_ok(weir_runtime_create(&options, &other.runtime));
    assert_ok(weir_model_open(other.runtime, path, NULL, &other.model));
    return other;
}

static void close_second(second_runtime *other) {
    weir_model_close(other->model);
    weir_runtime_destroy(other->runtime);
}

static void save__every_policy_goes_on_as_if_it_had_never_stopped(void **state) {
    const fixture *f = *state;
    second_runtime other = with_one_thread(SMALL_MODEL);
    ASSERT_EVERY_POLICY(choices, policy);
    for (size_t i = 0; i < N_CHOICES; ++i) {
        round_trip(f->model, other.model, &choices[i], NULL);
        round_trip(f->model, other.model, &choices[i], &kSeeded);
    }
    close_second(&other);
}

/* Threads, chunk size and the store's size may be others; so may pages in the window of a local layer. */
static void save__batch_and_spill_sizes_may_differ(void **state) {
    const fixture *f = *state;
    static const char *const models[] = {SMALL_MODEL, WINDOW_MODEL};
    static const uint32_t batches[] = {16, 512};
    for (size_t m = 0; m < 2; ++m) {
        second_runtime other = with_one_thread(models[m]);
        weir_model *model = NULL;
        assert_ok(weir_model_open(f->runtime, models[m], NULL, &model));
        for (size_t i = 0; i < N_CHOICES; ++i) {
            for (size_t b = 0; b < 2; ++b) {
                weir_session_options options = options_of(&choices[i]);
                weir_session *whole = session_with(model, &options), *resumed = NULL;
                options.batch_tokens = batches[b];
                if (options.spill_budget_bytes != 0) options.spill_budget_bytes = b == 0 ? 1 << 20 : 64 << 20;
                resumed = session_with(other.model, &options);
                converse(whole);
                prefill(whole, 900, 64); /* a window's pages leave before the next step */
                file first = saved(whole);
                assert_ok(restore_from(resumed, &first));
                assert_same_steps(whole, resumed, kSteps / 2, choices[i].policy);
                free(first.bytes);
                weir_session_destroy(whole);
                weir_session_destroy(resumed);
            }
        }
        weir_model_close(model);
        close_second(&other);
    }
}

static const choice kRecall = {"arkvale", {{0, 0}}, 0, 128, 0, 0};

/* Room for some 12 pages a stream. */
static weir_session_options full_store(const weir_model *model, uint32_t pages) {
    weir_session_options options = options_of(&kRecall);
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    assert_ok(weir_plan(model, &options, &plan));
    options.spill_budget_bytes = (uint64_t)plan.n_streams * pages * (plan.page_bytes + 512);
    return options;
}

/* What a full store drops depends on what is in it, and where: it is restored as it was. */
static void save__a_full_store_drops_the_same_pages_afterwards(void **state) {
    const fixture *f = *state;
    const weir_session_options options = full_store(f->model, 12);
    weir_session *whole = session_with(f->model, &options), *resumed = session_with(f->model, &options);
    uint64_t recalled, dropped;
    converse(whole);
    converse(whole);
    recalled = stats_of(whole).pages_recalled;
    dropped = stats_of(whole).pages_dropped;
    assert_true(dropped > 0 && recalled > 0 && stats_of(whole).pages_cold > 0);
    file first = saved(whole);
    assert_ok(restore_from(resumed, &first));
    /* What was lost counts as dropped. */
    assert_int_equal(stats_of(resumed).pages_dropped, dropped);
    file second = saved(resumed);
    assert_same_files(&first, &second, "full store");
    assert_same_steps(whole, resumed, 2 * kSteps, "full store");
    assert_true(stats_of(whole).pages_dropped > dropped);
    assert_int_equal(stats_of(resumed).pages_dropped, stats_of(whole).pages_dropped);
    assert_int_equal(stats_of(resumed).pages_recalled, stats_of(whole).pages_recalled - recalled);
    free(first.bytes);
    free(second.bytes);
    weir_session_destroy(whole);
    weir_session_destroy(resumed);
}

static void save__a_smaller_store_drops_pages_and_counts_them(void **state) {
    const fixture *f = *state;
    const weir_session_options large = options_of(&kRecall), small = full_store(f->model, 12);
    weir_session *whole = session_with(f->model, &large), *resumed = session_with(f->model, &small);
    converse(whole);
    converse(whole);
    assert_int_equal(stats_of(whole).pages_dropped, 0);
    file first = saved(whole);
    assert_ok(restore_from(resumed, &first));
    const weir_session_stats stats = stats_of(resumed);
    assert_true(stats.pages_dropped > 0);
    assert_true(stats.pages_cold > 0);
    assert_int_equal(stats.pages_cold + stats.pages_dropped, stats_of(whole).pages_cold);
    for (uint32_t i = 0; i < kSteps; ++i) assert_ok(weir_session_step(resumed, token(i)));
    free(first.bytes);
    weir_session_destroy(whole);
    weir_session_destroy(resumed);
}

/* A folder for the file of a store; at the end nothing is left in it. */
typedef struct folder {
    char path[32], file[48];
} folder;

static folder make_folder(void) {
    folder f = {"weir-save-XXXXXX", ""};
    assert_non_null(mkdtemp(f.path));
    snprintf(f.file, sizeof(f.file), "%s/spill", f.path);
    return f;
}

/* Between stores in memory and stores with a file, and with nothing as it was. */
static void save__recall_goes_on_with_a_file(void **state) {
    const fixture *f = *state;
    const folder at = make_folder();
    weir_session_options memory = options_of(&kRecall), with_file = full_store(f->model, 4);
    memory.spill_budget_bytes = 4 << 20;
    with_file.spill_path = at.file;
    with_file.spill_file_bytes = 4 << 20;
    const weir_session_options *const options[] = {&memory, &with_file};
    for (size_t from = 0; from < 2; ++from) {
        weir_session *whole = session_with(f->model, options[from]);
        converse(whole);
        converse(whole);
        assert_true(stats_of(whole).pages_cold > 0 && stats_of(whole).pages_dropped == 0);
        file first = saved(whole);
        for (size_t to = 0; to < 2; ++to) {
            weir_session *resumed = session_with(f->model, options[to]);
            assert_ok(restore_from(resumed, &first));
            assert_int_equal(stats_of(resumed).pages_cold, stats_of(whole).pages_cold);
            assert_int_equal(stats_of(resumed).pages_dropped, 0);
            file again = saved(resumed);
            if (from == to) assert_same_files(&first, &again, "file");
            weir_session *fork = NULL;
            assert_ok(weir_session_fork(whole, &fork));
            assert_same_steps(fork, resumed, 2 * kSteps, "file");
            assert_int_equal(stats_of(resumed).pages_dropped + stats_of(fork).pages_dropped, 0);
            free(again.bytes);
            weir_session_destroy(fork);
            weir_session_destroy(resumed);
        }
        free(first.bytes);
        weir_session_destroy(whole);
    }
    assert_int_equal(rmdir(at.path), 0);
}

/* A strict store takes a conversation that it has room for. It refuses another, and takes no more tokens after one that
 * had lost pages, until a rewind to before them. */
static void save__recall_into_a_strict_store(void **state) {
    const fixture *f = *state;
    weir_session_options strict = options_of(&kRecall), small = full_store(f->model, 12), loose = small;
    strict.spill_flags = small.spill_flags = WEIR_SPILL_STRICT;
    weir_session *whole = session_with(f->model, &strict), *resumed = session_with(f->model, &strict),
                 *refuses = session_with(f->model, &small), *lossy = session_with(f->model, &loose);
    const weir_token one = token(3);
    const char *at = NULL;
    unsigned position = 0;
    converse(whole);
    converse(whole);
    file first = saved(whole);
    assert_ok(restore_from(resumed, &first));
    assert_same_steps(whole, resumed, kSteps, "strict");
    prefill(refuses, 0, 40);
    assert_error(restore_from(refuses, &first), WEIR_ERR_BUDGET, "the spill store is full");
    assert_int_equal(stats_of(refuses).n_tokens + stats_of(refuses).pages_resident + stats_of(refuses).pages_cold, 0);
    assert_int_equal(stats_of(refuses).spill_stored_bytes, 0);
    prefill(refuses, 0, 40);
    converse(lossy);
    converse(lossy);
    assert_true(stats_of(lossy).pages_dropped > 0);
    file second = saved(lossy);
    assert_ok(restore_from(resumed, &second));
    assert_int_equal(stats_of(resumed).n_tokens, stats_of(lossy).n_tokens);
    assert_same_logits(lossy, resumed, "strict, with lost pages");
    assert_error(weir_session_step(resumed, one), WEIR_ERR_IO, "lost since before the conversation was saved");
    assert_int_equal(weir_session_prefill(resumed, &one, 1, NULL, NULL), WEIR_ERR_IO);
    assert_int_equal(stats_of(resumed).n_tokens, stats_of(lossy).n_tokens);
    at = strstr(weir_last_error(), "from position ");
    assert_true(at != NULL && sscanf(at, "from position %u", &position) == 1 && position % 16 == 0);
    assert_ok(weir_session_rewind(resumed, position, 0));
    assert_ok(weir_session_step(resumed, one));
    assert_ok(restore_from(resumed, &first)); /* what was lost is forgotten */
    assert_ok(weir_session_step(resumed, one));
    free(first.bytes);
    free(second.bytes);
    weir_session_destroy(whole);
    weir_session_destroy(resumed);
    weir_session_destroy(refuses);
    weir_session_destroy(lossy);
}

/* --- a store for what leaves without recall */

static const char *const kLeaving[] = {"sink", "h2o", "tova", "raas", "hybrid", "random"};
enum { kLeavings = sizeof(kLeaving) / sizeof(kLeaving[0]) };
static const uint32_t kCuts[] = {180, 160, 77, 16, 3};
enum { kAllCuts = sizeof(kCuts) / sizeof(kCuts[0]) };

/* Long enough for pages to leave, whatever is pinned. */
static void converse_long(weir_session *session) {
    converse(session);
    for (uint32_t i = 0; i < 150; ++i) assert_ok(weir_session_step(session, token(i * 5)));
}

static choice leaving(size_t i, uint64_t spill_bytes) {
    const choice c = {kLeaving[i], {{0, 0}}, 0, 128, 0, spill_bytes};
    return c;
}

static void assert_same_pages(weir_session *a, weir_session *b, const char *when) {
    const weir_session_stats x = stats_of(a), y = stats_of(b);
    if (x.pages_resident != y.pages_resident || x.pages_cold != y.pages_cold)
        fail_msg("%zu and %zu pages, %zu and %zu cold: %s", (size_t)x.pages_resident, (size_t)y.pages_resident,
                 (size_t)x.pages_cold, (size_t)y.pages_cold, when);
}

/* `resumed` goes back like a fork of `whole`, and on from there. */
static void assert_same_rewind(weir_session *whole, weir_session *resumed, uint32_t cut, const char *policy) {
    char when[64];
    weir_session *fork = NULL;
    snprintf(when, sizeof(when), "%s, back to %u", policy, cut);
    assert_ok(weir_session_fork(whole, &fork));
    assert_ok(weir_session_rewind(fork, cut, 0));
    assert_ok(weir_session_rewind(resumed, cut, 0));
    assert_same_pages(fork, resumed, when);
    prefill(fork, 33, 40);
    prefill(resumed, 33, 40);
    assert_same_steps(fork, resumed, 20, when);
    assert_same_pages(fork, resumed, when);
    weir_session_destroy(fork);
}

static uint64_t bytes_for(const weir_model *model, const weir_session_options *options, uint32_t pages) {
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    assert_ok(weir_plan(model, options, &plan));
    return (uint64_t)plan.n_streams * pages * (plan.page_bytes + 512);
}

/* What left is stored again, so that going back works as before the save, whatever the store's parts are. */
static void save__what_left_can_be_gone_back_to(void **state) {
    const fixture *f = *state;
    const folder at = make_folder();
    for (size_t i = 0; i < kLeavings; ++i) {
        const choice c = leaving(i, 4 << 20);
        weir_session_options few_raw = options_of(&c);
        few_raw.spill_raw_bytes = bytes_for(f->model, &few_raw, 3);
        weir_session *whole = session_with(f->model, &few_raw), *back = session_with(f->model, &few_raw);
        converse_long(whole);
        assert_true(stats_of(whole).pages_cold > 0 && stats_of(whole).pages_dropped == 0);
        file first = saved(whole);
        for (size_t store = 0; store < 3; ++store) {
            weir_session_options options = store == 0 ? few_raw : options_of(&c);
            if (store == 1) options.spill_flags = WEIR_SPILL_NO_RAW;
            if (store == 2) {
                options.spill_budget_bytes = bytes_for(f->model, &options, 2);
                options.spill_path = at.file;
                options.spill_file_bytes = 4 << 20;
            }
            weir_session *resumed = session_with(f->model, &options);
            prefill(resumed, 7, 290);
            for (size_t cut = 0; cut < kAllCuts; ++cut) {
                assert_ok(restore_from(resumed, &first));
                assert_same_pages(whole, resumed, c.policy);
                assert_int_equal(stats_of(resumed).pages_dropped, 0);
                assert_same_rewind(whole, resumed, kCuts[cut], c.policy);
            }
            assert_ok(restore_from(resumed, &first));
            file again = saved(resumed);
            if (store == 0) assert_same_files(&first, &again, c.policy);
            assert_ok(restore_from(back, &again));
            assert_same_rewind(whole, back, kCuts[2], c.policy);
            free(again.bytes);
            weir_session_destroy(resumed);
        }
        /* What lay raw was the newest and is gone; the copies that stay are compressed, and come back as they are. */
        assert_ok(weir_session_rewind(whole, kCuts[0], 0));
        file cut = saved(whole);
        assert_ok(restore_from(back, &cut));
        file again = saved(back);
        assert_same_files(&cut, &again, c.policy);
        free(again.bytes);
        free(cut.bytes);
        free(first.bytes);
        weir_session_destroy(whole);
        weir_session_destroy(back);
    }
    assert_int_equal(rmdir(at.path), 0);
}

/* The session goes on in the same way; only the pages that left are lost. A session that gets a store keeps copies from
 * then on, of the pages that were in the pool too. */
static void save__a_store_without_recall_may_come_and_go(void **state) {
    const fixture *f = *state;
    for (size_t i = 0; i < kLeavings; ++i) {
        const choice with = leaving(i, 4 << 20), without = leaving(i, 0);
        weir_session *whole = session_of(f->model, &with), *plain = session_of(f->model, &without),
                     *back = session_of(f->model, &with);
        weir_session_stats stats;
        converse_long(whole);
        file first = saved(whole);
        assert_ok(restore_from(plain, &first));
        assert_int_equal(first.at, first.n);
        assert_int_equal(stats_of(plain).pages_resident, stats_of(whole).pages_resident);
        assert_int_equal(stats_of(plain).pages_cold, 0);
        assert_int_equal(stats_of(plain).spill_stored_bytes, 0);
        assert_error(weir_session_rewind(plain, kCuts[0], 0), WEIR_ERR_NOT_FOUND, "is lost in layer");
        file second = saved(plain);
        assert_true(second.n < first.n);
        assert_ok(restore_from(back, &second));
        stats = stats_of(back);
        assert_true(stats.pages_cold == 0 && stats.spill_stored_bytes > 0);
        assert_error(weir_session_rewind(back, kCuts[0], 0), WEIR_ERR_NOT_FOUND, "is lost in layer");
        assert_same_steps(whole, plain, kSteps, with.policy);
        assert_ok(restore_from(plain, &second));
        assert_same_steps(back, plain, kSteps, with.policy);
        assert_true(stats_of(back).pages_cold > 0 && stats_of(back).pages_dropped == 0);
        free(first.bytes);
        free(second.bytes);
        weir_session_destroy(whole);
        weir_session_destroy(plain);
        weir_session_destroy(back);
    }
}

/* A full store is full afterwards, and a smaller one keeps the newest positions. */
static void save__a_smaller_store_without_recall_drops_the_oldest(void **state) {
    const fixture *f = *state;
    for (size_t i = 0; i < kLeavings; ++i) {
        const choice c = leaving(i, 4 << 20);
        weir_session_options options = options_of(&c);
        options.spill_budget_bytes = bytes_for(f->model, &options, 6);
        weir_session *large = session_of(f->model, &c), *small = session_with(f->model, &options),
                     *resumed = session_with(f->model, &options);
        converse_long(large);
        converse_long(small);
        assert_true(stats_of(small).pages_dropped > 0);
        file first = saved(large), second = saved(small);
        assert_ok(restore_from(resumed, &second));
        assert_same_pages(small, resumed, c.policy);
        assert_int_equal(stats_of(resumed).pages_dropped, stats_of(small).pages_dropped);
        file again = saved(resumed);
        assert_same_files(&second, &again, c.policy);
        assert_same_steps(small, resumed, kSteps, c.policy);
        assert_same_pages(small, resumed, c.policy);
        free(again.bytes);
        weir_session_destroy(resumed);
        resumed = session_with(f->model, &options);
        assert_ok(restore_from(resumed, &first));
        const weir_session_stats got = stats_of(resumed);
        assert_true(got.pages_dropped > 0 && got.pages_cold > 0);
        assert_int_equal(got.pages_cold + got.pages_dropped, stats_of(large).pages_cold);
        assert_error(weir_session_rewind(resumed, kCuts[0], 0), WEIR_ERR_NOT_FOUND, "is lost in layer");
        assert_same_steps(large, resumed, kSteps, c.policy);
        free(first.bytes);
        free(second.bytes);
        weir_session_destroy(large);
        weir_session_destroy(small);
        weir_session_destroy(resumed);
    }
}

static void save__a_session_without_tokens(void **state) {
    const fixture *f = *state;
    for (size_t i = 0; i < N_CHOICES; ++i) {
        weir_session *empty = session_of(f->model, &choices[i]), *resumed = session_of(f->model, &choices[i]);
        file first = saved(empty);
        prefill(resumed, 0, 40);
        assert_ok(restore_from(resumed, &first));
        assert_int_equal(stats_of(resumed).n_tokens, 0);
        weir_token drawn = -1;
        assert_error(weir_session_sample(resumed, &drawn), WEIR_ERR_STATE, "no logits");
        prefill(empty, 3, 50);
        prefill(resumed, 3, 50);
        assert_same_steps(empty, resumed, 5, choices[i].policy);
        free(first.bytes);
        weir_session_destroy(empty);
        weir_session_destroy(resumed);
    }
}

typedef struct text {
    char bytes[4096];
    uint64_t n;
} text;

static weir_status add_text(void *user, const weir_token_event *event) {
    text *t = (text *)user;
    assert_true(t->n + event->text_bytes < sizeof(t->bytes));
    memcpy(t->bytes + t->n, event->text, event->text_bytes);
    t->n += event->text_bytes;
    return WEIR_OK;
}

static void generate(weir_session *session, uint32_t n, text *out) {
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    options.max_tokens = n;
    options.flags = WEIR_GENERATE_IGNORE_EOS;
    options.on_token = add_text;
    options.user = out;
    assert_ok(weir_session_generate(session, &options, NULL));
}

/* Bytes of a character that is not complete, as the file has them. */
static uint32_t n_held(const file *f) {
    uint64_t i = 0;
    uint32_t n = 0;
    while (memcmp(f->bytes + i, "TEXT", 4) != 0) ++i;
    memcpy(&n, f->bytes + i + 4, 4);
    return n;
}

/* Random tokens are often bytes that begin a character. Saved there, the character appears whole. */
static void save__in_the_middle_of_a_character(void **state) {
    const fixture *f = *state;
    const choice dense = {"dense", {{0, 0}}, 0, 0, 0, 0};
    static const weir_sampling_options wild = {
        sizeof(weir_sampling_options), 0, 100.0f, 0.0f, 0.0f, 0.0f, 0, 0, 7, 0, 0, NULL, 0, 0};
    weir_session *whole = session_of(f->model, &dense), *resumed = session_of(f->model, &dense);
    uint32_t n_found = 0;
    prefill(whole, 0, 20);
    assert_ok(weir_session_set_sampling(whole, &wild));
    for (uint32_t i = 0; i < 400 && n_found < 5; ++i) {
        text before = {{0}, 0}, a = {{0}, 0}, b = {{0}, 0};
        generate(whole, 1, &before);
        file first = saved(whole);
        if (n_held(&first) != 0) {
            ++n_found;
            assert_ok(restore_from(resumed, &first));
            generate(whole, 6, &a);
            generate(resumed, 6, &b);
            assert_int_equal(a.n, b.n);
            assert_memory_equal(a.bytes, b.bytes, a.n);
        }
        free(first.bytes);
    }
    assert_true(n_found >= 5);
    weir_session_destroy(whole);
    weir_session_destroy(resumed);
}

/* The tokens come back too, and so does what sampling options were set. */
static void save__keeps_the_tokens(void **state) {
    const fixture *f = *state;
    weir_session *whole = session_of(f->model, &kRecall), *resumed = session_of(f->model, &kRecall);
    const weir_token *a = NULL, *b = NULL;
    uint32_t n_a = 0, n_b = 0;
    converse(whole);
    file first = saved(whole);
    assert_ok(restore_from(resumed, &first));
    assert_ok(weir_session_tokens(whole, &a, &n_a));
    assert_ok(weir_session_tokens(resumed, &b, &n_b));
    assert_int_equal(n_a, n_b);
    assert_int_equal(n_a, stats_of(whole).n_tokens);
    assert_memory_equal(a, b, n_a * sizeof(*a));
    free(first.bytes);
    weir_session_destroy(whole);
    weir_session_destroy(resumed);
}

static int open_small(void **state) {
    return open_fixture_of(SMALL_MODEL, state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(save__every_policy_goes_on_as_if_it_had_never_stopped),
        cmocka_unit_test(save__batch_and_spill_sizes_may_differ),
        cmocka_unit_test(save__a_full_store_drops_the_same_pages_afterwards),
        cmocka_unit_test(save__a_smaller_store_drops_pages_and_counts_them),
        cmocka_unit_test(save__recall_goes_on_with_a_file),
        cmocka_unit_test(save__recall_into_a_strict_store),
        cmocka_unit_test(save__what_left_can_be_gone_back_to),
        cmocka_unit_test(save__a_store_without_recall_may_come_and_go),
        cmocka_unit_test(save__a_smaller_store_without_recall_drops_the_oldest),
        cmocka_unit_test(save__a_session_without_tokens),
        cmocka_unit_test(save__in_the_middle_of_a_character),
        cmocka_unit_test(save__keeps_the_tokens),
    };
    return cmocka_run_group_tests_name("save", tests, open_small, close_fixture);
}
