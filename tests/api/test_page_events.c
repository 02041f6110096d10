/* api: the ring of pages that left. Sessions are on the device that WEIR_DEVICE_AUTO finds, so the same tests run on a
 * GPU. */
#include <pthread.h>

#include "api_test.h"
#include "../policy/every_policy.h"
#include "weir/experimental.h"

#define MOST_EVENTS 4096
#define PROMPT 200 /* tokens; not whole pages */

static weir_session_page_events_fn page_events;

static int open_all(void **state) {
    page_events = (weir_session_page_events_fn)weir_get_experimental("weir_session_page_events");
    if (page_events == NULL) return -1;
    return open_long_run_fixture(state);
}

static weir_session *new_session(const fixture *f, const char *policy, int32_t device) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_session *session = NULL;
    options.policy = policy;
    options.device = device;
    options.budget_tokens = 320;
    options.context_tokens = 4096;
    options.batch_tokens = 64;
    assert_ok(weir_session_create(f->model, &options, &session));
    return session;
}

static uint32_t ring_capacity(const fixture *f) {
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    uint32_t capacity = 1;
    assert_ok(weir_plan(f->model, NULL, &plan));
    while (capacity < 4 * plan.n_streams) capacity *= 2;
    return capacity;
}

static weir_session_stats stats_of(const weir_session *session) {
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session, &stats));
    return stats;
}

static weir_token token_at(uint32_t pos) { return (weir_token)(7 + pos * 37 % (LONG_RUN_VOCAB - 10)); }

static void prefill(weir_session *session, uint32_t n) {
    weir_token tokens[2000];
    const uint32_t first = stats_of(session).n_tokens;
    for (uint32_t i = 0; i < n; ++i) tokens[i] = token_at(first + i);
    assert_ok(weir_session_prefill(session, tokens, n, NULL, NULL));
}

static void decode(weir_session *session, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) assert_ok(weir_session_step(session, token_at(stats_of(session).n_tokens)));
}

/* All events since the last call; returns how many. */
static uint32_t read_all(weir_session *session, weir_page_event *events, uint64_t *n_lost) {
    uint32_t n = 0;
    assert_ok(page_events(session, events, MOST_EVENTS, &n, n_lost));
    assert_true(n < MOST_EVENTS);
    return n;
}

/* What every event must be, whatever the policy. */
static void check_event(const weir_page_event *e, const weir_session *session, uint64_t index, uint32_t n_layers,
                        uint32_t n_kv_heads) {
    assert_int_equal(e->index, index);
    assert_true(e->layer < n_layers && e->kv_head < n_kv_heads);
    assert_int_equal(e->first_pos % 16, 0);
    assert_int_equal(e->n_tokens, 16);
    assert_true(e->first_pos + e->n_tokens <= e->left_at);
    assert_true(e->left_at <= stats_of(session).n_tokens);
    assert_int_equal(e->flags & ~2u, 0);
    if ((e->flags & 2u) != 0) assert_true(e->first_pos < PROMPT);
}

/* Reading often enough brings every page that left, once; the pages that stayed are those that are resident. Pages that
 * come back can leave again, in every step, and then the ring does not hold all. */
static void page_events__are_the_pages_that_left(void **state) {
    const fixture *f = *state;
    static weir_page_event events[MOST_EVENTS];
    static unsigned char left[64][256]; /* [stream][page] */
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    assert_ok(weir_model_get_info(f->model, &info));
    assert_true(info.n_layers * info.n_kv_heads <= 64);
    for (size_t p = 0; p < N_POLICIES; ++p) {
        const int is_dense = strcmp(every_policy[p], "dense") == 0;
        /* These attend a part of all pages. */
        const int selects = is_among(every_policy[p], "quest psa lfps");
        const int leave = !is_dense && !selects;
        const int recalls = strcmp(every_policy[p], "arkvale") == 0;
        weir_session *session = new_session(f, every_policy[p], WEIR_DEVICE_AUTO);
        weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
        uint64_t n_seen = 0, n_prompt = 0;
        memset(left, 0, sizeof(left));
        prefill(session, PROMPT);
        for (int round = 0; round < (is_dense ? 1 : 12); ++round) {
            uint64_t n_lost = 99;
            const uint32_t n = read_all(session, events, &n_lost);
            if (!recalls) assert_int_equal(n_lost, 0);
            n_seen += n_lost;
            for (uint32_t i = 0; i < n; ++i) {
                unsigned char *times = &left[events[i].layer * info.n_kv_heads + events[i].kv_head]
                                            [events[i].first_pos / 16];
                check_event(&events[i], session, n_seen++, info.n_layers, info.n_kv_heads);
                if (!recalls) assert_int_equal(*times, 0);
                ++*times;
                n_prompt += events[i].flags / 2;
            }
            assert_int_equal(n_seen, stats_of(session).pages_evicted);
            assert_int_equal(stats_of(session).pages_resident + n_seen - stats_of(session).pages_recalled,
                             (uint64_t)info.n_layers * info.n_kv_heads * ((stats_of(session).n_tokens + 15) / 16));
            if (!is_dense) decode(session, 64); /* whose budget is the context */
        }
        if ((n_seen > 0) != leave) fail_msg("%s: %llu pages left", every_policy[p], (unsigned long long)n_seen);
        if (strcmp(every_policy[p], "raas") == 0) assert_int_equal(n_prompt, 0); /* it pins the prompt */
        assert_ok(weir_session_memory(session, &memory));
        assert_int_equal(memory.peak_bytes, memory.plan_bytes);
        assert_int_equal(memory.allocs_while_decoding, 0);
        weir_session_destroy(session);
    }
}

/* Events that were not read are overwritten: the newest are there, the others are counted. */
static void page_events__the_newest_stay(void **state) {
    const fixture *f = *state;
    static weir_page_event events[MOST_EVENTS];
    const uint32_t capacity = ring_capacity(f);
    weir_session *session = new_session(f, "sink", WEIR_DEVICE_AUTO);
    uint64_t n_lost = 0, n_left;
    uint32_t n;
    assert_true(capacity < MOST_EVENTS);
    prefill(session, PROMPT);
    decode(session, 600);
    n_left = stats_of(session).pages_evicted;
    assert_true(n_left > capacity);
    n = read_all(session, events, &n_lost);
    assert_int_equal(n, capacity);
    assert_int_equal(n_lost, n_left - capacity);
    for (uint32_t i = 0; i < n; ++i) assert_int_equal(events[i].index, n_left - capacity + i);
    assert_int_equal(read_all(session, events, &n_lost), 0);
    assert_int_equal(n_lost, 0);
    prefill(session, 1500); /* more than the ring holds again, around a prompt */
    n_left = stats_of(session).pages_evicted - n_left;
    assert_true(n_left > capacity);
    assert_int_equal(read_all(session, events, &n_lost) + n_lost, n_left);
    weir_session_destroy(session);
}

/* A conversation of 320 pinned tokens and 280 others in a window of 320. After unpinning, 17 pages of every stream
 * leave in one step, more than the ring holds: it has as many events as there is room for, each once, and the others
 * are counted. `n_more` steps follow before the events are read. */
static void unpinned_at_once(const fixture *f, uint32_t n_more) {
    static weir_page_event events[MOST_EVENTS];
    static unsigned char left[64][64]; /* [stream][page] */
    const weir_key_value choice[] = {{"positions", "abs"}, {"window", "320"}};
    const uint32_t capacity = ring_capacity(f);
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    weir_session *session = NULL;
    uint64_t n_lost = 99, n_before, n_left;
    uint32_t n;
    memset(left, 0, sizeof(left));
    assert_ok(weir_model_get_info(f->model, &info));
    assert_true(info.n_layers * info.n_kv_heads <= 64);
    options.policy = "sink";
    options.policy_options = choice;
    options.n_policy_options = 2;
    options.budget_tokens = 640;
    options.context_tokens = 1024;
    options.batch_tokens = 64;
    assert_ok(weir_session_create(f->model, &options, &session));
    prefill(session, 320);
    assert_ok(weir_session_pin(session, 0, 320));
    prefill(session, 279);
    decode(session, 1);
    assert_int_equal(read_all(session, events, &n_lost), 0); /* nothing has left */
    assert_int_equal(n_lost, 0);
    n_before = stats_of(session).pages_evicted;
    assert_int_equal(n_before, 0);
    assert_ok(weir_session_unpin(session, 0, 320));
    decode(session, 1);
    n_left = stats_of(session).pages_evicted;
    assert_true(n_left >= info.n_layers * info.n_kv_heads * UINT64_C(16));
    assert_true(n_left > capacity);
    decode(session, n_more);
    n_left = stats_of(session).pages_evicted;
    n = read_all(session, events, &n_lost);
    assert_int_equal(n, capacity);
    assert_int_equal(n_lost, n_left - n);
    for (uint32_t i = 0; i < n; ++i) {
        const weir_page_event *e = &events[i];
        assert_true(e->index < n_left);
        assert_true(i == 0 || e->index > events[i - 1].index);
        assert_true(e->layer < info.n_layers && e->kv_head < info.n_kv_heads);
        assert_int_equal(e->first_pos % 16, 0);
        assert_int_equal(e->n_tokens, 16);
        /* Outside the window, and no sink. */
        assert_true(e->first_pos >= 16 && e->first_pos + 16 + 320 <= e->left_at + 1);
        assert_true(e->left_at >= 600 && e->left_at < stats_of(session).n_tokens);
        assert_int_equal(left[e->layer * info.n_kv_heads + e->kv_head][e->first_pos / 16]++, 0);
    }
    if (n_more != 0) assert_int_equal(events[n - 1].index, n_left - 1);
    assert_int_equal(read_all(session, events, &n_lost), 0);
    assert_int_equal(n_lost, 0);
    weir_session_destroy(session);
}

static void page_events__of_a_step_after_unpin(void **state) {
    unpinned_at_once(*state, 0);
    unpinned_at_once(*state, 40);
}

/* Pieces of any size are the same events as all at once. */
static void page_events__in_pieces(void **state) {
    const fixture *f = *state;
    static weir_page_event all[MOST_EVENTS];
    weir_page_event piece[7];
    weir_session *session[2];
    uint32_t n_all, n = 0, at = 0;
    uint64_t n_lost = 0;
    for (int i = 0; i < 2; ++i) {
        session[i] = new_session(f, "sink", WEIR_DEVICE_CPU);
        prefill(session[i], PROMPT);
        decode(session[i], 200);
    }
    n_all = read_all(session[0], all, NULL);
    assert_true(n_all > 20); /* several pieces of 7 */
    assert_ok(page_events(session[1], NULL, 0, &n, NULL));
    assert_int_equal(n, 0);
    do {
        assert_ok(page_events(session[1], piece, 7, &n, &n_lost));
        assert_true(n <= 7 && at + n <= n_all);
        assert_memory_equal(piece, all + at, n * sizeof(piece[0]));
        at += n;
    } while (n != 0);
    assert_int_equal(at, n_all);
    weir_session_destroy(session[0]);
    weir_session_destroy(session[1]);
}

static void page_events__reset_forgets_what_was_not_read(void **state) {
    const fixture *f = *state;
    static weir_page_event events[MOST_EVENTS];
    weir_session *session = new_session(f, "sink", WEIR_DEVICE_AUTO);
    uint64_t n_lost = 99, n_before;
    prefill(session, PROMPT);
    decode(session, 300);
    n_before = stats_of(session).pages_evicted;
    assert_true(n_before > 0);
    assert_ok(weir_session_reset(session));
    assert_int_equal(read_all(session, events, &n_lost), 0);
    assert_int_equal(n_lost, 0);
    prefill(session, PROMPT);
    decode(session, 180);
    assert_true(stats_of(session).pages_evicted > n_before);
    assert_int_equal(read_all(session, events, &n_lost), stats_of(session).pages_evicted - n_before);
    assert_int_equal(n_lost, 0);
    assert_int_equal(events[0].index, n_before);
    weir_session_destroy(session);
}

static weir_status stop_after_a_chunk(void *user, const weir_progress_info *info) {
    (void)user;
    return info->done != 0 ? WEIR_ERR_CANCELLED : WEIR_OK;
}

/* Pages that made room for a prompt that was cancelled stay gone, and have their events; the prompt's own pages are
 * just taken back. */
static void page_events__of_a_cancelled_prompt(void **state) {
    const fixture *f = *state;
    static weir_page_event events[MOST_EVENTS];
    weir_session *session = new_session(f, "raas", WEIR_DEVICE_AUTO);
    weir_token tokens[120];
    uint64_t n_lost = 99, n_before;
    uint32_t n, n_tokens;
    for (uint32_t i = 0; i < 120; ++i) tokens[i] = token_at(i);
    prefill(session, 100);
    decode(session, 500);
    (void)read_all(session, events, NULL);
    n_before = stats_of(session).pages_evicted;
    n_tokens = stats_of(session).n_tokens;
    assert_error(weir_session_prefill(session, tokens, 120, stop_after_a_chunk, NULL), WEIR_ERR_CANCELLED, "cancelled");
    assert_int_equal(stats_of(session).n_tokens, n_tokens);
    assert_true(stats_of(session).pages_evicted > n_before);
    n = read_all(session, events, &n_lost);
    assert_int_equal(n, stats_of(session).pages_evicted - n_before);
    assert_int_equal(n_lost, 0);
    for (uint32_t i = 0; i < n; ++i) {
        assert_int_equal(events[i].index, n_before + i);
        assert_true(events[i].first_pos + events[i].n_tokens <= n_tokens);
        assert_int_equal(events[i].left_at, n_tokens);
    }
    decode(session, 100);
    n_before = stats_of(session).pages_evicted - n_before;
    assert_true(read_all(session, events, &n_lost) + n == n_before && n_lost == 0);
    weir_session_destroy(session);
}

/* The events of each stream are the same on every device, where pages leave by their positions alone. */
static void page_events__the_same_on_every_device(void **state) {
    const fixture *f = *state;
    static weir_page_event events[2][MOST_EVENTS];
    weir_session *session[2] = {new_session(f, "sink", WEIR_DEVICE_CPU), new_session(f, "sink", WEIR_DEVICE_AUTO)};
    uint64_t n_compared = 0;
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    assert_ok(weir_model_get_info(f->model, &info));
    for (int i = 0; i < 2; ++i) prefill(session[i], PROMPT);
    for (int round = 0; round < 10; ++round) {
        uint32_t n[2];
        for (int i = 0; i < 2; ++i) {
            uint64_t n_lost = 99;
            if (round % 2 == 1) prefill(session[i], 23);
            decode(session[i], 37);
            n[i] = read_all(session[i], events[i], &n_lost);
            assert_int_equal(n_lost, 0);
        }
        assert_int_equal(n[0], n[1]);
        for (uint32_t stream = 0; stream < info.n_layers * info.n_kv_heads; ++stream) {
            uint32_t at[2] = {0, 0};
            for (;;) {
                for (int i = 0; i < 2; ++i) {
                    while (at[i] < n[i] &&
                           events[i][at[i]].layer * info.n_kv_heads + events[i][at[i]].kv_head != stream)
                        ++at[i];
                }
                assert_int_equal(at[0] == n[0], at[1] == n[1]);
                if (at[0] == n[0]) break;
                assert_memory_equal(&events[0][at[0]].layer, &events[1][at[1]].layer,
                                    sizeof(weir_page_event) - offsetof(weir_page_event, layer));
                ++at[0], ++at[1], ++n_compared;
            }
        }
    }
    assert_int_equal(n_compared, stats_of(session[0]).pages_evicted);
    assert_true(n_compared > 0);
    weir_session_destroy(session[0]);
    weir_session_destroy(session[1]);
}

static weir_status ask_inside(void *user, const weir_progress_info *info) {
    weir_page_event events[4];
    uint32_t n = 77;
    (void)info;
    assert_error(page_events(user, events, 4, &n, NULL), WEIR_ERR_BUSY, "another thread");
    assert_int_equal(n, 77);
    return WEIR_OK;
}

/* raas keeps prompts for good; unpinned, their pages leave like others. */
static void page_events__of_unpinned_prompts(void **state) {
    const fixture *f = *state;
    static weir_page_event events[MOST_EVENTS];
    for (int unpinned = 0; unpinned < 2; ++unpinned) {
        weir_session *session = new_session(f, "raas", WEIR_DEVICE_AUTO);
        uint32_t n_prompt_pages = 0, n;
        prefill(session, PROMPT);
        if (unpinned) assert_ok(weir_session_unpin(session, 0, PROMPT));
        for (int i = 0; i < 4; ++i) {
            decode(session, 64);
            n = read_all(session, events, NULL);
            for (uint32_t k = 0; k < n; ++k) n_prompt_pages += (events[k].flags & 2u) != 0;
        }
        assert_true(stats_of(session).pages_evicted > 0);
        assert_int_equal(n_prompt_pages > 0, unpinned);
        weir_session_destroy(session);
    }
}

typedef struct reader {
    weir_session *session;
    uint64_t n_events, n_lost;
    uint32_t n_tokens;
    weir_status elsewhere; /* what another thread got that tried meanwhile */
} reader;

static void *read_elsewhere(void *user) {
    reader *r = user;
    uint32_t n = 0;
    r->elsewhere = page_events(r->session, NULL, 0, &n, NULL);
    return NULL;
}

static weir_status read_inside(void *user, const weir_token_event *event) {
    static weir_page_event events[MOST_EVENTS];
    reader *r = user;
    uint64_t n_lost = 0;
    pthread_t thread;
    uint32_t n = 0;
    (void)event;
    if (++r->n_tokens % 64 != 0) return WEIR_OK;
    assert_ok(page_events(r->session, events, MOST_EVENTS, &n, &n_lost));
    for (uint32_t i = 0; i < n; ++i) assert_int_equal(events[i].index, r->n_events + i);
    r->n_events += n;
    r->n_lost += n_lost;
    if (r->n_tokens == 128) {
        assert_int_equal(pthread_create(&thread, NULL, read_elsewhere, r), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_error(weir_session_step(r->session, 1), WEIR_ERR_BUSY, "inside this session"); /* nothing else */
    }
    return WEIR_OK;
}

/* One call of generate for a long answer: reading in its callback misses nothing. */
static void page_events__inside_on_token_miss_none(void **state) {
    static const char *const policies[] = {"sink", "raas"};
    const fixture *f = *state;
    static weir_page_event events[MOST_EVENTS];
    for (int p = 0; p < 2; ++p) {
        weir_session *session = new_session(f, policies[p], WEIR_DEVICE_AUTO);
        weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
        weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
        reader r = {session, 0, 0, 0, WEIR_OK};
        uint64_t n_lost = 0;
        uint32_t n;
        prefill(session, PROMPT);
        options.flags = WEIR_GENERATE_IGNORE_EOS;
        options.max_tokens = 400;
        options.on_token = read_inside;
        options.user = &r;
        assert_ok(weir_session_generate(session, &options, NULL));
        n = read_all(session, events, &n_lost);
        assert_int_equal(r.n_lost + n_lost, 0);
        assert_int_equal(r.n_events + n, stats_of(session).pages_evicted);
        assert_true(r.n_events > ring_capacity(f)); /* reading once at the end would not have been enough */
        assert_int_equal(r.elsewhere, WEIR_ERR_BUSY);
        assert_ok(weir_session_memory(session, &memory));
        assert_int_equal(memory.allocs_while_decoding, 0);
        weir_session_destroy(session);
    }
}

static void page_events__bad_arguments(void **state) {
    const fixture *f = *state;
    weir_session *session = new_session(f, "sink", WEIR_DEVICE_AUTO);
    const weir_token token = 7;
    weir_page_event events[4];
    uint32_t n = 77;
    uint64_t n_lost = 0;
    assert_error(page_events(NULL, events, 4, &n, &n_lost), WEIR_ERR_INVALID_ARG, "session is NULL");
    assert_error(page_events(session, NULL, 4, &n, &n_lost), WEIR_ERR_INVALID_ARG, "events is NULL");
    assert_error(page_events(session, events, 4, NULL, &n_lost), WEIR_ERR_INVALID_ARG, "n_events is NULL");
    assert_ok(page_events(session, events, 4, &n, NULL));
    assert_int_equal(n, 0);
    assert_ok(
        weir_session_prefill(session, &token, 1, ask_inside, session)); /* on_token may, other callbacks may not */
    weir_session_destroy(session);
}

static int open_all_real(void **state) {
    return page_events == NULL ? -1 : open_fixture(state);
}

int main(void) {
    /* of a model with more streams, which have more events */
    const struct CMUnitTest of_many_streams[] = {
        cmocka_unit_test(page_events__in_pieces),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_events__are_the_pages_that_left),
        cmocka_unit_test(page_events__the_newest_stay),
        cmocka_unit_test(page_events__of_a_step_after_unpin),
        cmocka_unit_test(page_events__reset_forgets_what_was_not_read),
        cmocka_unit_test(page_events__of_a_cancelled_prompt),
        cmocka_unit_test(page_events__the_same_on_every_device),
        cmocka_unit_test(page_events__of_unpinned_prompts),
        cmocka_unit_test(page_events__inside_on_token_miss_none),
        cmocka_unit_test(page_events__bad_arguments),
    };
    return cmocka_run_group_tests_name("api_page_events", tests, open_all, close_fixture) +
           cmocka_run_group_tests_name("api_page_events, many streams", of_many_streams, open_all_real, close_fixture);
}
