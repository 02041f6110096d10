/* api: what attention learned from its past in a saved session (the section HIST, docs/formats/session.md): numbers
 * that no session has are refused, sums may be any bits, and other sessions have no such section. */
#include "saved_layout.h"

/* Lists of some 130 entries. */
static const choice kLearns = {"lfps", {{"skip_layers", "0"}, {"quota", "64"}}, 2, 32, 0, 0};

/* Offsets from the section's name, in the first KV head: n, tokens in the sums, length of lists, sums; then in its
 * first query head. */
enum { kKnown = 4, kSummed = 8, kFill = 12, kSums = 16 };
/* From the end of the sums: scale, spread, the first table's sums, floor, and entries. Of an f64 the upper half says
 * what it is. */
enum { kScale = 4, kSpread = 12, kTableSum = 20, kFloor = 40, kEntries = 44 };
static const uint32_t kMinusOne = 0xBF800000u, kInfinite = 0x7F800000u;

static uint32_t head_dim_of(const weir_model *model) {
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    assert_ok(weir_model_get_info(model, &info));
    return info.head_dim;
}

static void history__numbers_that_lie(void **state) {
    const fixture *f = *state;
    weir_session *session = session_of(f->model, &kLearns), *fresh = session_of(f->model, &kLearns);
    file truth = conversation(session);
    const layout l = layout_of(&truth);
    const uint32_t n = get(&truth, l.begin[kHist] + kKnown), head = kSums + 16 * head_dim_of(f->model);
    assert_true(n > 150);
    const lie lies[] = {
        {kHist, 0, 0x54534948 + 1, WEIR_ERR_FORMAT, "no section HIST"},
        {kHist, kKnown, n + 1, WEIR_ERR_FORMAT, ""},
        {kHist, kKnown, n - 1, WEIR_ERR_FORMAT, ""},
        {kHist, kKnown, 1000, WEIR_ERR_FORMAT, "KV head 0 knows 1000 and"},
        {kHist, kKnown, kAll, WEIR_ERR_FORMAT, "KV head 0 knows 4294967295 and"},
        {kHist, kSummed, 241, WEIR_ERR_FORMAT, "and 241 tokens of 240"},
        {kHist, kSummed, kAll, WEIR_ERR_FORMAT, "and 4294967295 tokens"},
        {kHist, kFill, kNan, WEIR_ERR_FORMAT, "KV head 0 has lists of another length"},
        {kHist, kFill, 0, WEIR_ERR_FORMAT, "has lists of another length"},
        {kHist, kFill, 0x42C80000, WEIR_ERR_FORMAT, "has lists of another length"},
        {kHist, head + kScale, 0x7FF80000, WEIR_ERR_FORMAT, "head 0 has no scale"},
        {kHist, head + kScale, 0x40000000, WEIR_ERR_FORMAT, "head 0 has no scale"},
        {kHist, head + kScale, 0, WEIR_ERR_FORMAT, "head 0 has no scale"},
        {kHist, head + kSpread, 0x7FF80000, WEIR_ERR_FORMAT, "head 0 has no scale"},
        {kHist, head + kSpread, 0xBFF00000, WEIR_ERR_FORMAT, "head 0 has no scale"},
        {kHist, head + kTableSum, 0x7FF00000, WEIR_ERR_FORMAT, "head 0 has weights that are none"},
        {kHist, head + kFloor, kNan, WEIR_ERR_FORMAT, "head 0 has weights that are none"},
        {kHist, head + kFloor, kMinusOne, WEIR_ERR_FORMAT, "head 0 has weights that are none"},
        {kHist, head + kFloor, 0, WEIR_ERR_FORMAT, "head 0 has more weights than a list takes"},
        {kHist, head + kEntries, kNan, WEIR_ERR_FORMAT, "head 0 has weights that are none"},
        {kHist, head + kEntries, kMinusOne, WEIR_ERR_FORMAT, "head 0 has weights that are none"},
        {kHist, head + kEntries + 4 * (n - 1), kInfinite, WEIR_ERR_FORMAT, "head 0 has weights that are none"},
    };
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); ++i) tell(session, fresh, &truth, &l, &lies[i]);
    free(truth.bytes);
    weir_session_destroy(session);
    weir_session_destroy(fresh);
}

/* The session goes on, and nothing is read or written where it must not be. */
static void history__sums_and_weights_may_be_anything(void **state) {
    const fixture *f = *state;
    weir_session *session = session_of(f->model, &kLearns);
    file any = conversation(session);
    const layout l = layout_of(&any);
    const uint32_t head = kSums + 16 * head_dim_of(f->model), n = get(&any, l.begin[kHist] + kKnown);
    for (uint32_t at = kSums; at + 4 <= head; at += 4) set(&any, l.begin[kHist] + at, kAll - at % 3);
    for (uint32_t i = 0; i < n; ++i) set(&any, l.begin[kHist] + head + kEntries + 4 * i, i % 7 == 0 ? 0x7F7FFFFF : 0);
    sign(&any, &l);
    assert_ok(restore_from(session, &any));
    for (uint32_t step = 0; step < 60; ++step) assert_ok(weir_session_step(session, token(step)));
    prefill(session, 0, 7);
    for (uint32_t step = 0; step < 60; ++step) assert_ok(weir_session_step(session, token(step)));
    assert_ok(weir_session_rewind(session, 100, 0));
    for (uint32_t step = 0; step < 20; ++step) assert_ok(weir_session_step(session, token(step)));
    free(any.bytes);
    weir_session_destroy(session);
}

/* After a rewind nothing is summed, and after a reset nothing is known. */
static void history__after_a_rewind(void **state) {
    const fixture *f = *state;
    static const uint32_t kCuts[] = {239, 200, 17, 4, 3, 0};
    for (size_t i = 0; i < sizeof(kCuts) / sizeof(kCuts[0]); ++i) {
        weir_session *session = session_of(f->model, &kLearns), *other = session_of(f->model, &kLearns);
        file whole = conversation(session);
        assert_ok(weir_session_rewind(session, kCuts[i], 0));
        file cut = saved(session);
        assert_ok(restore_from(other, &cut));
        file again = saved(other);
        assert_int_equal(again.n, cut.n);
        assert_memory_equal(again.bytes, cut.bytes, cut.n);
        assert_ok(weir_session_step(session, 30));
        assert_ok(weir_session_step(other, 30));
        assert_same_steps(session, other, 30, "rewound");
        free(whole.bytes);
        free(cut.bytes);
        free(again.bytes);
        weir_session_destroy(session);
        weir_session_destroy(other);
    }
}

static void history__others_have_none(void **state) {
    const fixture *f = *state;
    static const choice kDense = {"dense", {{0, 0}}, 0, 0, 0, 0};
    weir_session *dense = session_of(f->model, &kDense), *learns = session_of(f->model, &kLearns);
    file plain = conversation(dense);
    assert_int_equal(layout_of(&plain).begin[kHist], 0);
    assert_error(restore_from(learns, &plain), WEIR_ERR_UNSUPPORTED, "policy");
    free(plain.bytes);
    weir_session_destroy(dense);
    weir_session_destroy(learns);
}

static int open_small(void **state) { return open_fixture_of(SMALL_MODEL, state); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(history__numbers_that_lie),
        cmocka_unit_test(history__sums_and_weights_may_be_anything),
        cmocka_unit_test(history__after_a_rewind),
        cmocka_unit_test(history__others_have_none),
    };
    return cmocka_run_group_tests_name("api_save_history", tests, open_small, close_fixture);
}
