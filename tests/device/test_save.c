/* device: a conversation that was saved on a GPU goes on there with the same tokens and logits, and on the processor
 * with logits that differ by rounding; and the other way round. */
#include "device_test.h"

typedef struct file {
    unsigned char *bytes;
    uint64_t n, room, at;
} file;

static weir_status write_file(void *user, const weir_write_info *info) {
    file *f = (file *)user;
    while (f->n + info->n_bytes > f->room) {
        f->room = f->room == 0 ? 1 << 20 : 2 * f->room;
        f->bytes = (unsigned char *)realloc(f->bytes, f->room);
        assert_non_null(f->bytes);
    }
    memcpy(f->bytes + f->n, info->data, info->n_bytes);
    f->n += info->n_bytes;
    return WEIR_OK;
}

static weir_status read_file(void *user, const weir_read_info *info, uint64_t *n_read) {
    file *f = (file *)user;
    *n_read = info->n_bytes < f->n - f->at ? info->n_bytes : f->n - f->at;
    memcpy(info->data, f->bytes + f->at, *n_read);
    f->at += *n_read;
    return WEIR_OK;
}

static const variant kVariants[] = {
    {"dense", {{0, 0}}, 0},
    {"sink", {{0, 0}}, 0},
    {"h2o", {{"skip_layers", "0"}}, 1},
    {"quest", {{"skip_layers", "0"}}, 1},
    {"quest", {{"skip_layers", "0"}, {"digest", "mean_std"}}, 2},
    {"raas", {{"pin_prompt", "false"}}, 1},
};

static weir_session *session_on(const fixture *f, const variant *v, int32_t device) {
    /* With dense a budget limits the context. */
    const uint32_t budget = strcmp(v->policy, "dense") == 0 ? 0 : 256;
    const weir_session_options options = options_of(v, device, budget, 2048);
    weir_session *session = NULL;
    assert_ok(weir_session_create(f->model, &options, &session));
    return session;
}

static void converse(weir_session *session) {
    weir_token tokens[300];
    for (int i = 0; i < 300; ++i) tokens[i] = 20 + i * 37 % 200;
    assert_ok(weir_session_prefill(session, tokens, 300, NULL, NULL));
    for (int i = 0; i < 100; ++i) assert_ok(weir_session_step(session, 20 + i * 11 % 200));
}

/* most: largest distance of the first step's logits; 0: equal bits in all steps; below 0: any, since near ties may make
 * other pages leave. */
static void go_on(weir_session *a, weir_session *b, double most, const char *what) {
    for (int i = 0; i < 40; ++i) {
        const float *x = NULL, *y = NULL;
        uint32_t n = 0;
        assert_ok(weir_session_step(a, 20 + i * 13 % 200));
        assert_ok(weir_session_step(b, 20 + i * 13 % 200));
        assert_ok(weir_session_logits(a, &x, &n));
        assert_ok(weir_session_logits(b, &y, &n));
        if (most == 0 && memcmp(x, y, n * sizeof(*x)) != 0) fail_msg("%s: step %d differs", what, i);
        if (most > 0 && i == 0 && logits_apart(x, y, n) > most)
            fail_msg("%s: %g apart", what, logits_apart(x, y, n));
    }
}

static void save__goes_on_on_either_device(void **state) {
    const int32_t devices[] = {test_device(), WEIR_DEVICE_CPU};
    fixture f;
    (void)state;
    NEED_GPU();
    open_gpu_fixture(&f);
    for (size_t i = 0; i < sizeof(kVariants) / sizeof(kVariants[0]); ++i) {
        for (int from = 0; from < 2; ++from) {
            for (int to = 0; to < 2; ++to) {
                char what[300];
                file saved = {0};
                weir_session *whole = session_on(&f, &kVariants[i], devices[from]);
                weir_session *resumed = session_on(&f, &kVariants[i], devices[to]);
                snprintf(what, sizeof(what), "%s, from %d to %d", describe(&kVariants[i]), from, to);
                converse(whole);
                assert_ok(weir_session_save(whole, write_file, &saved));
                assert_ok(weir_session_restore(resumed, read_file, &saved));
                assert_int_equal(saved.at, saved.n);
                go_on(whole, resumed, from == to ? 0 : i < 2 ? 0.05 : -1, what); /* dense and sink have no scores */
                free(saved.bytes);
                weir_session_destroy(whole);
                weir_session_destroy(resumed);
            }
        }
    }
    close_gpu_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(save__goes_on_on_either_device)};
    return cmocka_run_group_tests_name("device/save", tests, NULL, NULL);
}
