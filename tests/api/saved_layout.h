/* Where the sections of a saved session lie, and how to change numbers in it so that all checksums fit. */
#ifndef WEIR_TESTS_SAVED_LAYOUT_H
#define WEIR_TESTS_SAVED_LAYOUT_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "save_test.h"

/* Where the sections of a file begin and where their checksums are; the last one is the end. */
enum { kDesc, kTokn, kLogt, kSamp, kText, kRows, kDigs, kPage, kHist, kEnd, kSections };
static const char kNames[kSections][5] = {"DESC", "TOKN", "LOGT", "SAMP", "TEXT",
                                          "ROWS", "DIGS", "PAGE", "HIST", "END!"};
enum { kHeader = 24 };

typedef struct layout {
    uint64_t begin[kSections], sum[kSections]; /* 0: the file has no such section */
} layout;

static inline uint32_t get(const file *f, uint64_t at) {
    uint32_t value = 0;
    assert_true(at + 4 <= f->n);
    memcpy(&value, f->bytes + at, 4);
    return value;
}

static inline void set(file *f, uint64_t at, uint32_t value) {
    assert_true(at + 4 <= f->n);
    memcpy(f->bytes + at, &value, 4);
}

/* Sections have no lengths, but a name stands right behind the checksum of what comes before it. */
static inline int begins_at(const file *f, uint64_t at, const char *name, uint64_t before) {
    if (memcmp(f->bytes + at, name, 4) != 0) return 0;
    if (before == 0) return 1;
    const uint64_t sum = XXH3_64bits(f->bytes + before, at - 8 - before);
    return memcmp(&sum, f->bytes + at - 8, 8) == 0;
}

static inline layout layout_of(const file *f) {
    layout l = {{0}, {0}};
    uint64_t at = kHeader;
    for (int s = 0, last = -1; s < kSections; ++s) {
        const uint64_t before = last < 0 ? 0 : l.begin[last];
        int is_next = 0;
        for (;; ++at) {
            assert_true(at + 4 <= f->n);
            is_next = begins_at(f, at, kNames[s], before);
            if (is_next || (s == kHist && begins_at(f, at, kNames[kEnd], before))) break;
        }
        if (!is_next) continue;
        l.begin[s] = at;
        if (last >= 0) l.sum[last] = at - 8;
        last = s;
        at += 4;
    }
    l.sum[kEnd] = l.begin[kEnd] + 4;
    assert_int_equal(l.sum[kEnd] + 8, f->n);
    return l;
}

/* Makes all checksums fit what the file says. */
static inline void sign(file *f, const layout *l) {
    uint64_t sum = XXH3_64bits(f->bytes, 16);
    memcpy(f->bytes + 16, &sum, 8);
    for (int s = 0; s < kEnd; ++s) {
        if (l->begin[s] == 0) continue;
        sum = XXH3_64bits(f->bytes + l->begin[s], l->sum[s] - l->begin[s]);
        memcpy(f->bytes + l->sum[s], &sum, 8);
    }
    sum = XXH3_64bits(f->bytes, l->sum[kEnd]);
    memcpy(f->bytes + l->sum[kEnd], &sum, 8);
}

static inline file copy_of(const file *f, uint64_t n) {
    file copy = {0};
    copy.bytes = (unsigned char *)malloc(n == 0 ? 1 : n); /* exactly n, so that a sanitizer sees the end */
    assert_non_null(copy.bytes);
    memcpy(copy.bytes, f->bytes, n);
    copy.n = copy.room = n;
    return copy;
}

static inline file conversation(weir_session *session) {
    prefill(session, 0, 150);
    for (uint32_t i = 0; i < 90; ++i) assert_ok(weir_session_step(session, token(i * 7)));
    return saved(session);
}

/* A session as it is after a reset, and what the first steps of a conversation in it must be. */
static inline void assert_reset(weir_session *session, weir_session *fresh, const char *when) {
    weir_token drawn = -1;
    const weir_session_stats stats = stats_of(session);
    if (stats.n_tokens != 0 || stats.pages_resident != 0 || stats.pages_cold != 0)
        fail_msg("%u tokens, %zu pages, %zu cold: %s", stats.n_tokens, (size_t)stats.pages_resident,
                 (size_t)stats.pages_cold, when);
    assert_int_equal(stats.spill_stored_bytes, 0);
    assert_error(weir_session_sample(session, &drawn), WEIR_ERR_STATE, "no logits");
    if (fresh == NULL) return;
    assert_ok(weir_session_reset(fresh));
    prefill(fresh, 11, 40);
    prefill(session, 11, 40);
    assert_same_steps(fresh, session, 3, when);
}

/* A number in the contents of a section, at an offset from its name, that is not what it should be. */
typedef struct lie {
    int section;
    uint32_t offset;
    uint32_t value;
    weir_status status;
    const char *text;
} lie;

static inline void tell(weir_session *session, weir_session *fresh, const file *truth, const layout *l,
                        const lie *lie) {
    char when[96];
    file f = copy_of(truth, truth->n);
    snprintf(when, sizeof(when), "%s + %u = %u", kNames[lie->section], lie->offset, lie->value);
    set(&f, l->begin[lie->section] + lie->offset, lie->value);
    sign(&f, l);
    const weir_status status = restore_from(session, &f);
    if (status != lie->status || strstr(weir_last_error(), lie->text) == NULL)
        fail_msg("%s: %s \"%s\", not \"%s\"", when, weir_status_name(status), weir_last_error(), lie->text);
    assert_reset(session, fresh, when);
    free(f.bytes);
}

static const uint32_t kNan = 0x7FC00000u, kAll = 0xFFFFFFFFu;

#endif
