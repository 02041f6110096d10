/* api: what is saved of a fork is what is saved of its parent, byte for byte, and what was saved can be rewound. */
#include "save_test.h"

#ifdef WEIR_INTERNAL_SANITIZED
enum { kSteps = 40 };
#else
enum { kSteps = 90 };
#endif

static void assert_same_files(weir_session *a, weir_session *b, const char *when) {
    file x = saved(a), y = saved(b);
    if (x.n != y.n || memcmp(x.bytes, y.bytes, x.n) != 0) fail_msg("the saved sessions differ: %s", when);
    free(x.bytes);
    free(y.bytes);
}

static void fork_saved__is_the_file_of_the_parent(void **state) {
    const fixture *f = *state;
    for (size_t i = 0; i < N_CHOICES; ++i) {
        const choice *c = &choices[i];
        weir_session *parent = session_of(f->model, c), *whole = session_of(f->model, c), *fork = NULL;
        weir_session *const both[] = {parent, whole};
        for (size_t s = 0; s < 2; ++s) {
            prefill(both[s], 0, 100);
            for (uint32_t n = 0; n < kSteps; ++n) assert_ok(weir_session_step(both[s], token(500 + n)));
        }
        assert_ok(weir_session_fork(parent, &fork));
        assert_same_files(parent, fork, c->policy);
        for (uint32_t n = 0; n < kSteps; ++n) {
            assert_ok(weir_session_step(parent, token(900 + n)));
            assert_ok(weir_session_step(fork, token(700 + n)));
            assert_ok(weir_session_step(whole, token(700 + n)));
        }
        assert_same_files(fork, whole, c->policy);
        file kept = saved(fork);
        weir_session *resumed = session_of(f->model, c);
        assert_ok(restore_from(resumed, &kept));
        assert_same_steps(fork, resumed, 20, c->policy);
        free(kept.bytes);
        weir_session_destroy(parent);
        weir_session_destroy(whole);
        weir_session_destroy(fork);
        weir_session_destroy(resumed);
    }
}

/* A session that was restored goes back like the one that was saved, and is then saved like it. */
static void fork_saved__can_be_rewound(void **state) {
    const fixture *f = *state;
    static const choice kept[] = {
        {"dense", {{0, 0}}, 0, 0, 0, 0},
        {"quest", {{"skip_layers", "0"}}, 1, 96, 0, 0},
        {"arkvale", {{"attend", "top"}, {"recall_pages", "0"}}, 2, 160, 0, 0},
    };
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); ++i) {
        const weir_session_options options = options_of(&kept[i]);
        weir_session *whole = session_with(f->model, &options), *resumed = session_with(f->model, &options);
        prefill(whole, 0, 100);
        for (uint32_t n = 0; n < 80; ++n) assert_ok(weir_session_step(whole, token(500 + n)));
        file bytes = saved(whole);
        static const uint32_t kCuts[] = {170, 112, 55};
        for (size_t c = 0; c < 3; ++c) {
            assert_ok(restore_from(whole, &bytes));
            assert_ok(restore_from(resumed, &bytes));
            for (uint32_t n = 0; n < 30; ++n) assert_ok(weir_session_step(whole, token(800 + n)));
            assert_ok(weir_session_rewind(whole, kCuts[c], 0));
            assert_ok(weir_session_rewind(resumed, kCuts[c], 0));
            prefill(whole, 33, 40);
            prefill(resumed, 33, 40);
            assert_same_steps(whole, resumed, 30, kept[i].policy);
        }
        free(bytes.bytes);
        weir_session_destroy(whole);
        weir_session_destroy(resumed);
    }
}

static int open_small(void **state) { return open_fixture_of(SMALL_MODEL, state); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fork_saved__is_the_file_of_the_parent),
        cmocka_unit_test(fork_saved__can_be_rewound),
    };
    return cmocka_run_group_tests_name("api/fork_saved", tests, open_small, close_fixture);
}
