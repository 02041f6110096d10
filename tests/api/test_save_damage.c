/* api: saved sessions that are cut, changed, or made to harm with checksums that fit: an error that says what is wrong,
 * and a session as after a reset. */
#include "saved_layout.h"

#ifdef WEIR_INTERNAL_SANITIZED
enum { kFlips = 150, kCalls = 40 };
#else
enum { kFlips = 1500, kCalls = 400 };
#endif

static const choice kDense = {"dense", {{0, 0}}, 0, 0, 0, 0};
static const choice kRecall = {"arkvale", {{0, 0}}, 0, 128, 0, 0};
/* Stores without recall, the second one full. */
static const choice kStored = {"raas", {{"pin_prompt", "false"}}, 1, 128, 0, 600 << 10},
                    kFull = {"h2o", {{"skip_layers", "1"}}, 1, 128, 0, 60 << 10};

static void damage__a_file_that_is_cut(void **state) {
    const fixture *f = *state;
    for (size_t i = 0; i < N_CHOICES; ++i) {
        weir_session *session = session_of(f->model, &choices[i]), *fresh = session_of(f->model, &choices[i]);
        file whole = conversation(session);
        for (uint64_t part = 0; part < 64; ++part) {
            file cut = copy_of(&whole, whole.n * part / 64);
            char message[64];
            snprintf(message, sizeof(message), "ends at byte %llu", (unsigned long long)cut.n);
            assert_error(restore_from(session, &cut), WEIR_ERR_FORMAT, message);
            assert_reset(session, part % 16 == 0 ? fresh : NULL, message);
            free(cut.bytes);
        }
        whole.n -= 1;
        assert_error(restore_from(session, &whole), WEIR_ERR_FORMAT, "ends at byte");
        whole.n += 1;
        assert_ok(restore_from(session, &whole));
        free(whole.bytes);
        weir_session_destroy(session);
        weir_session_destroy(fresh);
    }
}

static void damage__every_byte_before_the_pages(void **state) {
    const fixture *f = *state;
    weir_session *session = session_of(f->model, &kRecall), *fresh = session_of(f->model, &kRecall);
    file whole = conversation(session);
    const layout l = layout_of(&whole);
    const uint64_t end = l.begin[kTokn] + 100;
    for (uint64_t at = 0; at < end; ++at) {
        for (int bit = 0; bit < 8; bit += at < kHeader ? 1 : 5) {
            whole.bytes[at] ^= (unsigned char)(1 << bit);
            const weir_status status = restore_from(session, &whole);
            if (status != WEIR_ERR_FORMAT)
                fail_msg("byte %zu, bit %d: %s", (size_t)at, bit, weir_status_name(status));
            assert_reset(session, NULL, "flipped bit");
            whole.bytes[at] ^= (unsigned char)(1 << bit);
        }
    }
    assert_reset(session, fresh, "flipped bits");
    free(whole.bytes);
    weir_session_destroy(session);
    weir_session_destroy(fresh);
}

static void damage__bits_all_over(void **state) {
    const fixture *f = *state;
    static const choice *const some[] = {&kDense, &kRecall, &choices[3], &choices[11], &kStored, &kFull};
    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); ++i) {
        weir_session *session = session_of(f->model, some[i]), *fresh = session_of(f->model, some[i]);
        file whole = conversation(session);
        uint32_t random = 1;
        for (int flip = 0; flip < kFlips; ++flip) {
            random = random * 1664525u + 1013904223u;
            const uint64_t at = whole.n * (uint64_t)flip / kFlips + random / 65536 % (whole.n / kFlips);
            const unsigned char bit = (unsigned char)(1 << (random >> 8 & 7));
            whole.bytes[at] ^= bit;
            const weir_status status = restore_from(session, &whole);
            if (status != WEIR_ERR_FORMAT) fail_msg("byte %zu: %s", (size_t)at, weir_status_name(status));
            assert_reset(session, flip % 100 == 0 ? fresh : NULL, "flipped bit");
            whole.bytes[at] ^= bit;
        }
        assert_ok(restore_from(session, &whole));
        free(whole.bytes);
        weir_session_destroy(session);
        weir_session_destroy(fresh);
    }
}

static void damage__numbers_that_lie(void **state) {
    const fixture *f = *state;
    weir_session *session = session_of(f->model, &kDense), *fresh = session_of(f->model, &kDense);
    file truth = conversation(session); /* 240 tokens, of a context of 1,024 */
    const layout l = layout_of(&truth);
    const lie lies[] = {
        {kDesc, 4, 2049, WEIR_ERR_FORMAT, "2049 bytes of description"},
        {kDesc, 4, kAll, WEIR_ERR_FORMAT, "has room for 2048"},
        {kDesc, 0, 0x4E4B4F54, WEIR_ERR_FORMAT, "no section DESC at byte 24"},
        {kTokn, 4, 1025, WEIR_ERR_FORMAT, "1025 tokens"},
        {kTokn, 4, kAll, WEIR_ERR_FORMAT, "tokens in a context of 1024"},
        {kTokn, 4, 0x40000001, WEIR_ERR_FORMAT, "tokens in a context of 1024"}, /* times 4 it is 4 in 32 bits */
        {kTokn, 8, kAll, WEIR_ERR_FORMAT, "token -1 is not in"},
        {kTokn, 12, 272, WEIR_ERR_FORMAT, "token 272 is not in 0..271"},
        {kTokn, 4, 239, WEIR_ERR_FORMAT, ""}, /* all that follows is off by one */
        {kLogt, 4, 273, WEIR_ERR_FORMAT, "273 logits, not 272"},
        {kLogt, 4, kAll, WEIR_ERR_FORMAT, "logits, not 272"},
        {kSamp, 8, kNan, WEIR_ERR_FORMAT, "sampling options"},
        {kSamp, 12, 0x40000000, WEIR_ERR_FORMAT, "sampling options"},
        {kSamp, 24, 4097, WEIR_ERR_FORMAT, "sampling options"},
        {kSamp, 44, 4097, WEIR_ERR_FORMAT, "4097 recent tokens"},
        {kSamp, 44, kAll, WEIR_ERR_FORMAT, "has room for 4096"},
        {kSamp, 48, 272, WEIR_ERR_FORMAT, "token 272"},
        {kText, 4, 4, WEIR_ERR_FORMAT, "beginning of a character"},
        {kText, 4, kAll, WEIR_ERR_FORMAT, "beginning of a character"},
        {kText, 4, 1, WEIR_ERR_FORMAT, "beginning of a character"},
        {kText, 8, 2, WEIR_ERR_FORMAT, "beginning of a character"},
        {kText, 12, 0xC3, WEIR_ERR_FORMAT, "beginning of a character"},
        {kRows, 4, 65, WEIR_ERR_FORMAT, "65 pages of a stream"},
        {kRows, 4, kAll, WEIR_ERR_FORMAT, "has room for 64"},
        {kRows, 4, 0, WEIR_ERR_FORMAT, ""},
        {kRows, 8, 8, WEIR_ERR_FORMAT, "row 0 of stream 0 is at position 8"},
        {kRows, 12, 0, WEIR_ERR_FORMAT, "row 1 of stream 0 is at position 0"},
        {kRows, 8 + 4 * 14, 240, WEIR_ERR_FORMAT, "row 14 of stream 0 is at position 240"},
        {kRows, 8 + 4 * 14, 0xFFFFFFF0, WEIR_ERR_FORMAT, "row 14 of stream 0 is at position 4294967280"},
        {kRows, 8 + 4 * 15, 0x80000010, WEIR_ERR_FORMAT, "row 0 of stream 0 has flags 0x10"},
        {kRows, 8 + 4 * 15, 0xC0000000, WEIR_ERR_FORMAT, "row 0 of stream 0 has flags 0x40000000"},
        {kRows, 8 + 4 * 15, 2, WEIR_ERR_FORMAT, "row 0 of stream 0 has no page"},
        {kPage, 4, 0, WEIR_ERR_FORMAT, "page 0 of stream 0 is of kind 0"},
        {kPage, 4, 2, WEIR_ERR_FORMAT, "page 0 of stream 0 is of kind 2"},
        {kPage, 4, 4, WEIR_ERR_FORMAT, "is of kind 4"},
        {kPage, 4, 5, WEIR_ERR_FORMAT, "is of kind 5"},
        {kPage, 4, kAll, WEIR_ERR_FORMAT, "is of kind 4294967295"},
        {kEnd, 0, 0, WEIR_ERR_FORMAT, "no section END!"},
    };
    assert_int_equal(get(&truth, l.begin[kRows] + 4), 15);
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); ++i) tell(session, fresh, &truth, &l, &lies[i]);
    /* The same without a change is good. */
    file f2 = copy_of(&truth, truth.n);
    sign(&f2, &l);
    assert_ok(restore_from(session, &f2));
    free(f2.bytes);
    free(truth.bytes);
    weir_session_destroy(session);
    weir_session_destroy(fresh);
}

static void damage__numbers_that_lie_about_cold_pages(void **state) {
    const fixture *f = *state;
    weir_session_options options = options_of(&kRecall);
    options.spill_flags |= WEIR_SPILL_NO_RAW;
    weir_session *session = session_with(f->model, &options), *fresh = session_with(f->model, &options);
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    assert_ok(weir_plan(f->model, &options, &plan));
    prefill(session, 0, 150);
    for (uint32_t i = 0; i < 85; ++i) assert_ok(weir_session_step(session, token(i * 7)));
    file truth = saved(session); /* 235 tokens: 15 pages a stream, of which 8 are in the pool */
    const layout l = layout_of(&truth);
    const uint32_t flags = 8 + 4 * 15;
    uint32_t cold = 0, first_cold = 15, first_resident = 15; /* behind the first page, which never leaves */
    assert_true(get(&truth, l.begin[kRows] + flags) >> 31 == 1);
    for (uint32_t row = 14; row > 0; --row) {
        if ((get(&truth, l.begin[kRows] + flags + 4 * row) >> 31) == 0) {
            ++cold;
            first_cold = row;
        } else {
            first_resident = row;
        }
    }
    assert_int_equal(cold, 7);
    assert_true(first_cold == 1 || first_resident == 1);
    const uint32_t kind = get(&truth, l.begin[kPage] + 4), stored = get(&truth, l.begin[kPage] + 16);
    assert_true(kind == 3 && stored > 0 && stored < plan.page_bytes); /* compressed */
    const lie lies[] = {
        {kRows, 4, 14, WEIR_ERR_FORMAT, ""},
        {kRows, 4, 65, WEIR_ERR_FORMAT, "65 pages of a stream"},
        {kRows, flags + 4 * first_cold, 0x80000000, WEIR_ERR_FORMAT, "stream 0 has 9 pages for 8 slots"},
        {kRows, flags + 4 * 14, 0, WEIR_ERR_FORMAT, "stream 0 has no page for its last tokens"},
        {kRows, flags + 4 * first_resident, 0x80000004, WEIR_ERR_FORMAT, "stream 0 has 1 pinned pages for 8 slots"},
        {kRows, flags + 4 * first_cold, 1, WEIR_ERR_FORMAT, "stream 0 has 1 pinned pages for 8 slots"},
        {kPage, 4, 1, WEIR_ERR_FORMAT, ""},
        {kPage, 4, 5, WEIR_ERR_FORMAT, "is of kind 5"},
        {kPage, 8, 7, WEIR_ERR_FORMAT, "page 0 of stream 0 does not have its checksum"},
        {kPage, 16, (uint32_t)plan.page_bytes + 1, WEIR_ERR_FORMAT, "bytes of a page"},
        {kPage, 16, kAll, WEIR_ERR_FORMAT, "4294967295 bytes of a page"},
        {kPage, 16, 0, WEIR_ERR_FORMAT, "does not have its checksum"},
        {kPage, 16, stored - 1, WEIR_ERR_FORMAT, "does not have its checksum"},
        {kPage, 16, (uint32_t)plan.page_bytes, WEIR_ERR_FORMAT, "does not have its checksum"},
        {kPage, 20, kAll, WEIR_ERR_FORMAT, "does not have its checksum"},
    };
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); ++i) tell(session, fresh, &truth, &l, &lies[i]);
    free(truth.bytes);
    weir_session_destroy(session);
    weir_session_destroy(fresh);
}

/* The pages of a window follow each other, to the last position: copies of them are found by that. */
static void damage__windows_with_gaps(void **state) {
    const fixture *f = *state;
    weir_model *model = NULL;
    assert_ok(weir_model_open(f->runtime, WINDOW_MODEL, NULL, &model));
    for (uint32_t whole = 0; whole < 2; ++whole) { /* the last page is not full, or it is */
        weir_session *session = session_of(model, &kRecall), *fresh = session_of(model, &kRecall);
        prefill(session, 0, 150);
        for (uint32_t i = 0; i < 85u - 11u * whole; ++i) assert_ok(weir_session_step(session, token(i * 7)));
        file truth = saved(session);
        const layout l = layout_of(&truth);
        const uint32_t n = get(&truth, l.begin[kRows] + 4), first = get(&truth, l.begin[kRows] + 8), last = 14u - whole;
        assert_true(n > 1 && n < last && first > 16); /* stream 0 is one with a window */
        assert_int_equal(get(&truth, l.begin[kRows] + 8 + 4 * (n - 1)), 16 * last);
        const lie lies[] = {
            {kRows, 8, first - 16, WEIR_ERR_FORMAT, "row 1 of stream 0 is at position"},
            {kRows, 8 + 4 * (n - 1), 16 * (last - 1), WEIR_ERR_FORMAT, "of stream 0 is at position"},
            {kRows, 4, n - 1, WEIR_ERR_FORMAT, ""},
        };
        for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); ++i) tell(session, fresh, &truth, &l, &lies[i]);
        /* The whole window a page earlier, without one for the last position. */
        file early = copy_of(&truth, truth.n);
        for (uint32_t row = 0; row < n; ++row)
            set(&early, l.begin[kRows] + 8 + 4 * row, get(&early, l.begin[kRows] + 8 + 4 * row) - 16);
        sign(&early, &l);
        assert_error(restore_from(session, &early), WEIR_ERR_FORMAT, "stream 0 has no page for ");
        assert_reset(session, fresh, "a window that ends early");
        free(early.bytes);
        assert_ok(restore_from(session, &truth));
        free(truth.bytes);
        weir_session_destroy(session);
        weir_session_destroy(fresh);
    }
    weir_model_close(model);
}

/* Copies of what left, without recall: in the saved session, and in one that has no store for them. */
static void damage__numbers_that_lie_about_what_left(void **state) {
    const fixture *f = *state;
    const choice with = {"raas", {{"pin_prompt", "false"}}, 1, 128, 0, 600 << 10};
    choice without = with;
    without.spill_bytes = 0;
    weir_session *session = session_of(f->model, &with), *fresh = session_of(f->model, &with),
                 *plain = session_of(f->model, &without), *fresh_plain = session_of(f->model, &without);
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    const weir_session_options options = options_of(&with);
    assert_ok(weir_plan(f->model, &options, &plan));
    prefill(session, 0, 150);
    for (uint32_t i = 0; i < 85; ++i) assert_ok(weir_session_step(session, token(i * 7)));
    file truth = saved(session); /* 235 tokens: 15 pages a stream, of which 8 are in the pool */
    const layout l = layout_of(&truth);
    uint64_t at = l.begin[kRows] + 4;
    for (uint32_t s = 0; s < plan.n_streams; ++s) {
        assert_int_equal(get(&truth, at), 8);
        at += 4 + 8 * 16;
    }
    const uint32_t n_kept = (uint32_t)(at - l.begin[kRows]);
    assert_int_equal(get(&truth, at), 14);
    assert_int_equal(at + 4 + 14, l.sum[kRows]);
    assert_true(get(&truth, l.begin[kRows] + 8) > 0); /* page 0 has left stream 0 */
    const uint32_t kind = get(&truth, l.begin[kPage] + 4), stored = get(&truth, l.begin[kPage] + 16);
    assert_true(kind == 3 && stored > 0 && stored < plan.page_bytes); /* compressed */
    const lie lies[] = {
        {kRows, n_kept, 13, WEIR_ERR_FORMAT, "13 pages with copies, not 14"},
        {kRows, n_kept, kAll, WEIR_ERR_FORMAT, "4294967295 pages with copies, not 14"},
        {kRows, n_kept, 0, WEIR_ERR_FORMAT, ""}, /* the flags are then its checksum */
        {kRows, n_kept + 4, 0x02020204, WEIR_ERR_FORMAT, "page 0 had flags 0x4"},
        {kRows, n_kept + 4 + 10, 0x01020202, WEIR_ERR_FORMAT, "page 13 had flags 0x1"},
        {kPage, 4, 1, WEIR_ERR_FORMAT, "page 0 of stream 0, which left, is of kind 1"},
        {kPage, 4, 5, WEIR_ERR_FORMAT, "page 0 of stream 0, which left, is of kind 5"},
        {kPage, 4, 0, WEIR_ERR_FORMAT, ""},
        {kPage, 16, (uint32_t)plan.page_bytes + 1, WEIR_ERR_FORMAT, "bytes of a page"},
        {kPage, 16, kAll, WEIR_ERR_FORMAT, "4294967295 bytes of a page"},
        {kPage, 16, stored - 1, WEIR_ERR_FORMAT, ""},
    };
    /* Only who stores the page looks into it. */
    const lie within[] = {
        {kPage, 8, 7, WEIR_ERR_FORMAT, "page 0 of stream 0 does not have its checksum"},
        {kPage, 16, 0, WEIR_ERR_FORMAT, "page 0 of stream 0 does not have its checksum"},
        {kPage, 20, kAll, WEIR_ERR_FORMAT, "page 0 of stream 0 does not have its checksum"},
    };
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); ++i) {
        tell(session, fresh, &truth, &l, &lies[i]);
        tell(plain, fresh_plain, &truth, &l, &lies[i]);
    }
    for (size_t i = 0; i < sizeof(within) / sizeof(within[0]); ++i) tell(session, fresh, &truth, &l, &within[i]);
    /* A policy that lets nothing go has no copies. */
    weir_session *dense = session_of(f->model, &kDense), *fresh_dense = session_of(f->model, &kDense);
    prefill(dense, 0, 40);
    file none = saved(dense);
    const layout m = layout_of(&none);
    const lie one = {kRows, (uint32_t)(m.sum[kRows] - 4 - m.begin[kRows]), 2, WEIR_ERR_FORMAT,
                     "2 pages with copies, not 0"};
    tell(dense, fresh_dense, &none, &m, &one);
    free(truth.bytes);
    free(none.bytes);
    weir_session *const all[] = {session, fresh, plain, fresh_plain, dense, fresh_dense};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) weir_session_destroy(all[i]);
}

/* Stamps, scores, digests, logits and pages may be any bits: the session goes on, and nothing is read or written where
 * it must not be. */
static void damage__floats_may_be_anything(void **state) {
    const fixture *f = *state;
    for (size_t i = 0; i < N_CHOICES; ++i) {
        weir_session *session = session_of(f->model, &choices[i]);
        file any = conversation(session);
        const layout l = layout_of(&any);
        uint64_t at = l.begin[kRows] + 4;
        const uint32_t n = get(&any, at);
        for (uint32_t row = 0; row < n; ++row) set(&any, at + 4 + 4 * (2 * n + row), kAll - row % 3); /* stamps */
        for (uint32_t row = 0; row < n; ++row) set(&any, at + 4 + 4 * (3 * n + row), kNan + row % 2); /* scores */
        for (at = l.begin[kDigs] + 4; at + 4 <= l.sum[kDigs]; at += 12) set(&any, at, kAll);
        sign(&any, &l);
        assert_ok(restore_from(session, &any));
        for (uint32_t step = 0; step < 60; ++step) assert_ok(weir_session_step(session, token(step)));
        prefill(session, 0, 100);
        for (uint32_t step = 0; step < 20; ++step) assert_ok(weir_session_step(session, token(step)));
        free(any.bytes);
        weir_session_destroy(session);
    }
}

/* What the file says of the sampler is not taken from a file that is damaged behind it. */
static void damage__sampling_stays(void **state) {
    const fixture *f = *state;
    weir_session *session = session_of(f->model, &kDense), *fresh = session_of(f->model, &kDense);
    weir_session *greedy = session_of(f->model, &kDense);
    file whole = conversation(greedy);
    weir_sampling_options options = WEIR_SAMPLING_OPTIONS_INIT;
    options.temperature = 20.0f;
    options.seed = 7;
    assert_ok(weir_session_set_sampling(session, &options));
    assert_ok(weir_session_set_sampling(fresh, &options));
    whole.n -= 1;
    assert_error(restore_from(session, &whole), WEIR_ERR_FORMAT, "ends at byte");
    whole.n += 1;
    prefill(session, 0, 20);
    prefill(fresh, 0, 20);
    assert_same_steps(session, fresh, 20, "after a damaged file"); /* of what each draws */
    free(whole.bytes);
    weir_session_destroy(session);
    weir_session_destroy(fresh);
    weir_session_destroy(greedy);
}

static void damage__versions_and_byte_orders(void **state) {
    const fixture *f = *state;
    weir_session *session = session_of(f->model, &kDense), *fresh = session_of(f->model, &kDense);
    file truth = conversation(session);
    const layout l = layout_of(&truth);
    const struct {
        uint64_t at;
        uint32_t value;
        weir_status status;
        const char *text;
    } cases[] = {
        {8, 3, WEIR_ERR_UNSUPPORTED, "version 3; this build reads up to 2"},
        {8, kAll, WEIR_ERR_UNSUPPORTED, "version 4294967295"},
        {8, 0, WEIR_ERR_FORMAT, "header"},
        {12, 0x04030201, WEIR_ERR_UNSUPPORTED, "big-endian"},
        {12, 0x01020305, WEIR_ERR_FORMAT, "header"},
        {0, 0x46554747, WEIR_ERR_FORMAT, "no saved session"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        file other = copy_of(&truth, truth.n);
        set(&other, cases[i].at, cases[i].value);
        sign(&other, &l);
        assert_error(restore_from(session, &other), cases[i].status, cases[i].text);
        assert_reset(session, fresh, cases[i].text);
        free(other.bytes);
    }
    free(truth.bytes);
    weir_session_destroy(session);
    weir_session_destroy(fresh);
}

static void damage__other_options(void **state) {
    const fixture *f = *state;
    static const weir_key_value recall_4[] = {{"recall_pages", "4"}}, alpha[] = {{"alpha", "0.3"}},
                                top[] = {{"attend", "top"}}, window[] = {{"prompt_window", "16"}},
                                no_sinks[] = {{"sink_pages", "0"}};
    const choice raas = {"raas", {{0, 0}}, 0, 128, 0, 0}, older = {"arkvale", {{"sink_pages", "0"}}, 1, 128, 0, 0};
    const struct {
        const choice *first;
        const char *policy;
        const weir_key_value *options;
        uint32_t context, budget;
        const char *text;
    } cases[] = {
        {&kRecall, "arkvale", NULL, 512, 128, "context_tokens is 1024 in the saved session, 512 in this one"},
        {&kRecall, "arkvale", NULL, 1024, 256, "budget_tokens is 128 in the saved session, 256 in this one"},
        {&kRecall, "raas", NULL, 1024, 128, "policy is arkvale in the saved session, raas in this one"},
        {&kRecall, "arkvale", recall_4, 1024, 128, "recall_pages is 8 in the saved session, 4 in this one"},
        {&kRecall, "arkvale", top, 1024, 128, "attend is resident in the saved session, top in this one"},
        /* No value is as before there was the option. */
        {&older, "arkvale", NULL, 1024, 128, "sink_pages is 1 in this session, and the saved one has no such value"},
        {&kRecall, "arkvale", no_sinks, 1024, 128, "sink_pages is 1 in the saved session, and this one has no such"},
        {&raas, "raas", alpha, 1024, 128, "alpha is "},
        {&raas, "raas", window, 1024, 128, "prompt_window is "},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        weir_session *first = session_of(f->model, cases[i].first), *second = NULL;
        weir_session_options options = options_of(cases[i].first);
        file truth = conversation(first);
        options.policy = cases[i].policy;
        options.policy_options = cases[i].options;
        options.n_policy_options = cases[i].options == NULL ? 0 : 1;
        options.context_tokens = cases[i].context;
        options.budget_tokens = cases[i].budget;
        options.spill_budget_bytes = 0;
        second = session_with(f->model, &options);
        prefill(second, 0, 50);
        assert_error(restore_from(second, &truth), WEIR_ERR_UNSUPPORTED, cases[i].text);
        assert_reset(second, NULL, cases[i].text);
        free(truth.bytes);
        weir_session_destroy(first);
        weir_session_destroy(second);
    }
}

/* A file of another architecture, of another size, and of the same shape with other weights at the end. */
static void damage__another_model(void **state) {
    const fixture *f = *state;
    char path[] = "/tmp/weir-other-model-XXXXXX";
    const int handle = mkstemp(path);
    FILE *from = fopen(SMALL_MODEL, "rb"), *to = fdopen(handle, "wb");
    assert_true(from != NULL && to != NULL);
    unsigned char *bytes = (unsigned char *)malloc(1 << 24);
    assert_non_null(bytes);
    const size_t n = fread(bytes, 1, 1 << 24, from);
    assert_true(n > 4096 && n < 1 << 24);
    for (size_t i = n - 64; i < n; i += 4) bytes[i] ^= 1;
    assert_int_equal(fwrite(bytes, 1, n, to), n);
    fclose(from);
    fclose(to);
    free(bytes);
    const struct {
        const char *path, *text;
    } models[] = {
        {WEIR_SOURCE_DIR "/tests/golden/models/qwen2_f32.gguf", "architecture is llama in the saved session, qwen2"},
        {WEIR_SOURCE_DIR "/tests/golden/models/llama_f16.gguf", "kv_heads is 2 in the saved session, 1 in this one"},
        {path, "weights is "},
    };
    weir_session *session = session_of(f->model, &kDense);
    file truth = conversation(session);
    for (size_t i = 0; i < 3; ++i) {
        weir_model *model = NULL;
        assert_ok(weir_model_open(f->runtime, models[i].path, NULL, &model));
        weir_session *other = session_of(model, &kDense);
        assert_error(restore_from(other, &truth), WEIR_ERR_UNSUPPORTED, models[i].text);
        weir_session_destroy(other);
        weir_model_close(model);
    }
    remove(path);
    free(truth.bytes);
    weir_session_destroy(session);
}

static void damage__callbacks_that_refuse(void **state) {
    const fixture *f = *state;
    static const choice *const some[] = {&kDense, &kRecall, &kStored};
    for (size_t c = 0; c < sizeof(some) / sizeof(some[0]); ++c) {
        weir_session *session = session_of(f->model, some[c]), *fresh = session_of(f->model, some[c]);
        file truth = conversation(session);
        uint64_t n_calls = truth.n_calls;
        assert_true(n_calls > 10);
        for (uint64_t call = 1; call <= n_calls; call += 1 + n_calls / kCalls) {
            file out = {0};
            out.fail_at = call;
            assert_error(weir_session_save(session, write_file, &out), WEIR_ERR_IO, "the write callback");
            assert_int_equal(out.n_calls, call); /* it is not asked again */
            free(out.bytes);
        }
        file again = saved(session);
        assert_int_equal(again.n, truth.n);
        assert_memory_equal(again.bytes, truth.bytes, truth.n);
        free(again.bytes);
        assert_ok(restore_from(session, &truth));
        n_calls = truth.n_calls;
        for (uint64_t call = 1; call <= n_calls; call += 1 + n_calls / kCalls) {
            truth.fail_at = call;
            assert_error(restore_from(session, &truth), WEIR_ERR_IO, "the read callback");
            assert_int_equal(truth.n_calls, call);
            assert_reset(session, call % 8 == 1 ? fresh : NULL, "refused");
        }
        truth.fail_at = 0;
        truth.too_many = 1;
        assert_error(restore_from(session, &truth), WEIR_ERR_IO, "claims to have given 25 bytes at byte 0");
        assert_reset(session, fresh, "too many");
        truth.too_many = 0;
        truth.most = 1; /* byte by byte */
        assert_ok(restore_from(session, &truth));
        free(truth.bytes);
        weir_session_destroy(session);
        weir_session_destroy(fresh);
    }
}

static void damage__arguments(void **state) {
    const fixture *f = *state;
    weir_session *session = session_of(f->model, &kDense);
    file none = {0};
    assert_error(weir_session_save(NULL, write_file, &none), WEIR_ERR_INVALID_ARG, "session is NULL");
    assert_error(weir_session_save(session, NULL, &none), WEIR_ERR_INVALID_ARG, "write is NULL");
    assert_error(weir_session_restore(NULL, read_file, &none), WEIR_ERR_INVALID_ARG, "session is NULL");
    prefill(session, 0, 20);
    assert_error(weir_session_restore(session, NULL, &none), WEIR_ERR_INVALID_ARG, "read is NULL");
    assert_int_equal(stats_of(session).n_tokens, 20);
    weir_session_destroy(session);
}

static int open_small(void **state) {
    return open_fixture_of(SMALL_MODEL, state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage__a_file_that_is_cut),
        cmocka_unit_test(damage__every_byte_before_the_pages),
        cmocka_unit_test(damage__bits_all_over),
        cmocka_unit_test(damage__numbers_that_lie),
        cmocka_unit_test(damage__numbers_that_lie_about_cold_pages),
        cmocka_unit_test(damage__windows_with_gaps),
        cmocka_unit_test(damage__numbers_that_lie_about_what_left),
        cmocka_unit_test(damage__floats_may_be_anything),
        cmocka_unit_test(damage__sampling_stays),
        cmocka_unit_test(damage__versions_and_byte_orders),
        cmocka_unit_test(damage__other_options),
        cmocka_unit_test(damage__another_model),
        cmocka_unit_test(damage__callbacks_that_refuse),
        cmocka_unit_test(damage__arguments),
    };
    return cmocka_run_group_tests_name("save_damage", tests, open_small, close_fixture);
}
