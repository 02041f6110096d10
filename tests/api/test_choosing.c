/* api: what decides which token is drawn, and what an answer tells about it: bias, presence and frequency penalty, the
 * least number of tokens, log-probabilities. */
#include "api_test.h"

#include <math.h>

#include "weir/save.h"

enum { kMax = 64 };

typedef struct answer {
    weir_token tokens[kMax];
    float logprobs[kMax];
    weir_logprob top[kMax][64];
    uint32_t n_top[kMax];
    uint32_t n;
    int32_t stop;
} answer;

static weir_session *prompted_on(const fixture *f, const char *policy) {
    weir_session *session = NULL;
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = WEIR_DEVICE_CPU;
    options.policy = policy;
    options.context_tokens = 1024;
    options.budget_tokens = strcmp(policy, "dense") == 0 ? 0 : 256;
    assert_ok(weir_session_create(f->model, &options, &session));
    prefill_text(f->model, session, RULE_PROMPT);
    return session;
}

static weir_session *prompted(const fixture *f) { return prompted_on(f, "dense"); }

static uint32_t vocab_of(const fixture *f) {
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    assert_ok(weir_model_get_info(f->model, &info));
    return info.vocab_size;
}

static int ends_of(const weir_model *model, weir_token token) {
    weir_token_info info = WEIR_TOKEN_INFO_INIT;
    assert_ok(weir_token_get_info(model, token, &info));
    return (info.flags & WEIR_TOKEN_END_OF_GENERATION) != 0;
}

static int ends(const fixture *f, weir_token token) { return ends_of(f->model, token); }

static weir_status take(void *user, const weir_token_event *event) {
    answer *a = user;
    assert_int_equal(event->struct_size, sizeof(*event));
    if (event->token < 0) {
        assert_true(isnan(event->logprob) && event->n_top == 0 && event->top == NULL);
        return WEIR_OK;
    }
    assert_true(a->n < kMax);
    a->tokens[a->n] = event->token;
    a->logprobs[a->n] = event->logprob;
    a->n_top[a->n] = event->n_top;
    if (event->n_top != 0) memcpy(a->top[a->n], event->top, event->n_top * sizeof(weir_logprob));
    a->n++;
    return WEIR_OK;
}

static void generate(weir_session *session, weir_generate_options options, answer *a) {
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    memset(a, 0, sizeof(*a));
    options.on_token = take;
    options.user = a;
    if (options.max_tokens == 0) options.max_tokens = kMax;
    assert_ok(weir_session_generate(session, &options, &result));
    assert_int_equal(a->n, result.n_tokens);
    a->stop = result.stop;
}

static void assert_same_tokens(const answer *a, const answer *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->tokens, b->tokens, a->n * sizeof(weir_token));
}

/* The logarithm of the softmax, in the plainest way. */
static double log_softmax(const float *logits, uint32_t n, weir_token token) {
    double most = logits[0], sum = 0;
    for (uint32_t i = 1; i < n; ++i) most = logits[i] > most ? logits[i] : most;
    for (uint32_t i = 0; i < n; ++i) sum += exp(logits[i] - most);
    return logits[token] - most - log(sum);
}

/* They are of the logits as the model gives them, however the token is drawn, and the same pushed and pulled. */
static void choosing__logprobs(void **state) {
    const fixture *f = *state;
    static answer got;
    const uint32_t vocab = vocab_of(f);
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    const weir_token_bias bias[] = {{30, 3.0f}, {31, -100.0f}};
    sampling.temperature = 1.5f;
    sampling.repeat_penalty = 1.3f;
    sampling.presence_penalty = 0.5f;
    sampling.bias = bias;
    sampling.n_bias = 2;
    sampling.seed = 5;
    for (uint32_t n_top = 1; n_top <= 64; n_top += 21) {
        weir_session *pushed = prompted(f), *pulled = prompted(f), *plain = prompted(f);
        weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
        weir_event event = WEIR_EVENT_INIT;
        assert_ok(weir_session_set_sampling(pushed, &sampling));
        assert_ok(weir_session_set_sampling(pulled, &sampling));
        options.n_top = n_top;
        options.max_tokens = 24;
        options.flags = WEIR_GENERATE_IGNORE_EOS;
        generate(pushed, options, &got);
        assert_int_equal(got.n, 24);
        assert_ok(weir_session_begin(pulled, &options));
        for (uint32_t i = 0; i < got.n; ++i) {
            const float *logits = NULL;
            assert_ok(weir_session_logits(plain, &logits, NULL));
            assert_float_equal(got.logprobs[i], log_softmax(logits, vocab, got.tokens[i]), 1e-5);
            assert_int_equal(got.n_top[i], n_top);
            for (uint32_t k = 0; k < n_top; ++k) {
                const weir_logprob *best = &got.top[i][k];
                uint32_t n_better = 0; /* in the order that the header says */
                for (uint32_t t = 0; t < vocab; ++t) {
                    n_better += logits[t] > logits[best->token] ||
                                (logits[t] == logits[best->token] && (weir_token)t < best->token);
                }
                assert_int_equal(n_better, k);
                assert_float_equal(best->logprob, log_softmax(logits, vocab, best->token), 1e-5);
            }
            assert_ok(weir_session_next(pulled, &event));
            assert_int_equal(event.token, got.tokens[i]);
            assert_int_equal(event.n_top, n_top);
            assert_memory_equal(&event.logprob, &got.logprobs[i], sizeof(float));
            assert_memory_equal(event.top, got.top[i], n_top * sizeof(weir_logprob));
            assert_ok(weir_session_step(plain, got.tokens[i]));
        }
        assert_ok(weir_session_next(pulled, &event));
        assert_int_equal(event.kind, WEIR_EVENT_END);
        assert_true(isnan(event.logprob) && event.n_top == 0 && event.top == NULL);
        weir_session_destroy(pushed);
        weir_session_destroy(pulled);
        weir_session_destroy(plain);
    }
}

/* Asking for them changes no token; without that there are none. */
static void choosing__logprobs_only_when_asked(void **state) {
    const fixture *f = *state;
    static answer with, without;
    weir_session *a = prompted(f), *b = prompted(f);
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_event event = WEIR_EVENT_INIT;
    generate(a, options, &without);
    options.n_top = 64;
    generate(b, options, &with);
    assert_same_tokens(&with, &without);
    for (uint32_t i = 0; i < without.n; ++i) {
        assert_true(isnan(without.logprobs[i]) && without.n_top[i] == 0);
        assert_int_equal(with.top[i][0].token, with.tokens[i]);
    }
    options.n_top = 0;
    assert_ok(weir_session_begin(b, &options)); /* nothing is left of the answer before */
    assert_ok(weir_session_next(b, &event));
    assert_true(isnan(event.logprob) && event.n_top == 0 && event.top == NULL);
    options.n_top = 65;
    assert_error(weir_session_begin(a, &options), WEIR_ERR_INVALID_ARG, "n_top is 65");
    assert_error(weir_session_generate(a, &options, NULL), WEIR_ERR_INVALID_ARG, "n_top is 65");
    weir_session_destroy(a);
    weir_session_destroy(b);
}

static void choosing__bias(void **state) {
    const fixture *f = *state;
    static answer plain, got, again;
    weir_session *a = prompted(f), *b = prompted(f), *c = NULL;
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    options.max_tokens = 20;
    generate(a, options, &plain);
    const weir_token first = plain.tokens[0];
    weir_token_bias bias[3] = {{first, -100.0f}, {first, 100.0f}, {plain.tokens[1], 0.0f}};
    sampling.bias = bias;
    sampling.n_bias = 3;
    assert_ok(weir_session_set_sampling(b, &sampling));
    memset(bias, 0x7f, sizeof(bias)); /* it was copied */
    assert_ok(weir_session_fork(b, &c));
    options.n_top = 1;
    generate(b, options, &got);
    assert_int_equal(got.top[0][0].token, first); /* the model's own, although it is forbidden */
    for (uint32_t i = 0; i < got.n; ++i) assert_int_not_equal(got.tokens[i], first);
    generate(c, options, &again); /* a fork has a copy */
    assert_same_tokens(&again, &got);
    assert_ok(weir_session_reset(b)); /* which keeps sampling options */
    prefill_text(f->model, b, RULE_PROMPT);
    generate(b, options, &again);
    assert_same_tokens(&again, &got);
    /* what is raised is drawn from wherever it was */
    bias[0] = (weir_token_bias){40, 100.0f};
    sampling.n_bias = 1;
    sampling.temperature = 0.5f;
    sampling.top_k = 1;
    assert_ok(weir_session_set_sampling(b, &sampling));
    generate(b, options, &again);
    for (uint32_t i = 0; i < again.n; ++i) assert_int_equal(again.tokens[i], 40);
    weir_session_destroy(a);
    weir_session_destroy(b);
    weir_session_destroy(c);
}

static void choosing__penalties(void **state) {
    const fixture *f = *state;
    static answer got;
    const uint32_t vocab = vocab_of(f);
    /* A bias that makes one token by far the best, and penalties that wear it down: presence once, frequency with
     * every time that it is among the recent ones. */
    const weir_token_bias bias = {50, 60.0f};
    for (int i = 0; i < 2; ++i) {
        weir_session *session = prompted(f), *plain = prompted(f);
        weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
        weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
        const float *logits = NULL;
        sampling.bias = &bias;
        sampling.n_bias = 1;
        sampling.presence_penalty = i == 0 ? 1.5f : 0.0f;
        sampling.frequency_penalty = i == 0 ? 0.0f : 2.0f;
        sampling.repeat_last_n = 40;
        assert_ok(weir_session_set_sampling(session, &sampling));
        options.max_tokens = 60;
        options.flags = WEIR_GENERATE_IGNORE_EOS;
        generate(session, options, &got);
        uint32_t n_other = 0;
        for (uint32_t k = 0; k < got.n; ++k) {
            uint32_t best = 0;
            float of_best = -INFINITY;
            assert_ok(weir_session_logits(plain, &logits, NULL));
            const weir_token *tokens = NULL;
            uint32_t n_tokens = 0;
            assert_ok(weir_session_tokens(plain, &tokens, &n_tokens));
            for (uint32_t t = 0; t < vocab; ++t) {
                float logit = logits[t] + (t == 50 ? 60.0f : 0.0f);
                uint32_t count = 0;
                for (uint32_t p = n_tokens - 40; p < n_tokens; ++p) count += tokens[p] == (weir_token)t;
                if (count != 0) logit -= sampling.presence_penalty + sampling.frequency_penalty * (float)count;
                if (logit > of_best) best = t;
                if (logit > of_best) of_best = logit;
            }
            assert_int_equal(got.tokens[k], best);
            n_other += got.tokens[k] != 50;
            assert_ok(weir_session_step(plain, got.tokens[k]));
        }
        assert_true(i == 0 ? n_other == 0 : n_other > 5);
        weir_session_destroy(session);
        weir_session_destroy(plain);
    }
}

static void choosing__min_tokens(void **state) {
    const fixture *f = *state;
    static answer plain, got;
    const uint32_t vocab = vocab_of(f);
    weir_token_bias bias[64];
    uint32_t n_ends = 0;
    for (uint32_t t = 0; t < vocab; ++t) {
        if (ends(f, (weir_token)t)) bias[n_ends++] = (weir_token_bias){(weir_token)t, 60.0f};
    }
    assert_true(n_ends != 0);
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    sampling.bias = bias;
    sampling.n_bias = n_ends;
    for (int i = 0; i < 3; ++i) {
        weir_session *session = prompted(f);
        weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
        options.max_tokens = 30;
        generate(session, options, &plain);
        weir_session_destroy(session);
        session = prompted(f);
        assert_ok(weir_session_set_sampling(session, &sampling));
        options.min_tokens = i == 0 ? 0 : i == 1 ? 11 : 40;
        options.flags = i == 1 ? WEIR_GENERATE_IGNORE_EOS : 0;
        options.max_tokens = i == 1 ? 12 : 30;
        generate(session, options, &got);
        assert_int_equal(got.n, i == 0 ? 0 : i == 1 ? 12 : 30);
        assert_int_equal(got.stop, i == 0 ? WEIR_STOP_EOS : WEIR_STOP_LENGTH);
        for (uint32_t k = 0; k < got.n && k < options.min_tokens; ++k) {
            assert_false(ends(f, got.tokens[k]));
            assert_int_equal(got.tokens[k], plain.tokens[k]); /* nothing else changes */
        }
        if (i == 1) assert_true(ends(f, got.tokens[11]));
        /* of the answer that was begun, not of a token that is drawn by itself */
        weir_token token = -1;
        weir_event event = WEIR_EVENT_INIT;
        options.min_tokens = 5;
        assert_ok(weir_session_begin(session, &options));
        assert_ok(weir_session_next(session, &event));
        assert_false(ends(f, event.token));
        assert_ok(weir_session_sample(session, &token));
        assert_true(ends(f, token));
        weir_session_destroy(session);
    }
}

/* Nothing may be drawn: a status that says so, and the conversation stays. */
static void choosing__all_forbidden(void **state) {
    const fixture *f = *state;
    weir_token_bias bias[LONG_RUN_VOCAB];
    weir_model *model = NULL;
    weir_session *session = NULL;
    weir_token prompt[] = {1, 2, 3};
    uint32_t n_ends = 0;
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    weir_session_stats before = WEIR_SESSION_STATS_INIT, after = WEIR_SESSION_STATS_INIT;
    weir_token token = -1;
    assert_ok(weir_model_open(f->runtime, LONG_RUN_MODEL, NULL, &model));
    assert_ok(weir_session_create(model, NULL, &session));
    assert_ok(weir_session_prefill(session, prompt, 3, NULL, NULL));
    for (uint32_t t = 0; t < LONG_RUN_VOCAB; ++t) bias[t] = (weir_token_bias){(weir_token)t, -100.0f};
    sampling.bias = bias;
    sampling.n_bias = LONG_RUN_VOCAB;
    assert_ok(weir_session_get_stats(session, &before));
    for (int i = 0; i < 2; ++i) {
        sampling.temperature = (float)i;
        assert_ok(weir_session_set_sampling(session, &sampling));
        assert_error(weir_session_sample(session, &token), WEIR_ERR_STATE, "bias forbids");
        assert_error(weir_session_generate(session, NULL, NULL), WEIR_ERR_STATE, "bias forbids");
    }
    for (uint32_t t = 0; t < LONG_RUN_VOCAB; ++t) {
        if (!ends_of(model, (weir_token)t)) continue;
        bias[t].bias = 1.0f;
        ++n_ends;
    }
    assert_true(n_ends != 0);
    assert_ok(weir_session_set_sampling(session, &sampling));
    options.min_tokens = 1;
    assert_error(weir_session_generate(session, &options, NULL), WEIR_ERR_STATE, "min_tokens");
    assert_ok(weir_session_generate(session, NULL, NULL));
    assert_ok(weir_session_get_stats(session, &after));
    assert_int_equal(after.n_tokens, before.n_tokens);
    assert_int_equal(token, -1);
    weir_session_destroy(session);
    weir_model_close(model);
}

static void choosing__bad_options(void **state) {
    const fixture *f = *state;
    static answer want, got;
    weir_session *session = prompted(f), *other = prompted(f);
    weir_token_bias bias[] = {{1, 0.5f}, {40, 100.0f}};
    const weir_sampling_options plain = WEIR_SAMPLING_OPTIONS_INIT;
    weir_sampling_options bad = plain;
    char last[64];
    bad.bias = &bias[1];
    bad.n_bias = 1;
    bad.seed = 3;
    assert_ok(weir_session_set_sampling(session, &bad));
    assert_ok(weir_session_set_sampling(other, &bad));
    const float values[] = {NAN, INFINITY, -INFINITY, 2.01f, -2.01f};
    for (int i = 0; i < 5; ++i) {
        bad = plain;
        bad.presence_penalty = values[i];
        assert_error(weir_session_set_sampling(session, &bad), WEIR_ERR_INVALID_ARG, "presence_penalty: ");
        bad = plain;
        bad.frequency_penalty = values[i];
        assert_error(weir_session_set_sampling(session, &bad), WEIR_ERR_INVALID_ARG, "frequency_penalty: ");
    }
    bad = plain;
    bad.temperature = NAN;
    assert_error(weir_session_set_sampling(session, &bad), WEIR_ERR_INVALID_ARG, "temperature: ");
    bad = plain;
    bad.n_bias = 2;
    assert_error(weir_session_set_sampling(session, &bad), WEIR_ERR_INVALID_ARG, "bias is NULL, n_bias is 2");
    bad.bias = bias;
    bad.n_bias = 1025;
    assert_error(weir_session_set_sampling(session, &bad), WEIR_ERR_INVALID_ARG, "n_bias: 1025 is above 1024");
    bad.n_bias = 2;
    const float biases[] = {NAN, INFINITY, 100.5f, -101.0f};
    for (int i = 0; i < 4; ++i) {
        bias[1].bias = biases[i];
        assert_error(weir_session_set_sampling(session, &bad), WEIR_ERR_INVALID_ARG, "token 40 is not in -100..100");
    }
    bias[1] = (weir_token_bias){-1, 0.0f};
    assert_error(weir_session_set_sampling(session, &bad), WEIR_ERR_INVALID_ARG, "bias[1]: token -1 is not in 0..");
    bias[1].token = (weir_token)vocab_of(f);
    snprintf(last, sizeof(last), "bias[1]: token %d is not", bias[1].token);
    assert_error(weir_session_set_sampling(session, &bad), WEIR_ERR_INVALID_ARG, last);
    bad = plain;
    bad.reserved2 = 1;
    assert_error(weir_session_set_sampling(session, &bad), WEIR_ERR_UNSUPPORTED, "reserved is 1");
    /* none of this has changed anything, the random state neither */
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    options.max_tokens = 8;
    generate(session, options, &got);
    generate(other, options, &want);
    assert_same_tokens(&got, &want);
    assert_int_equal(got.tokens[7], 40);
    /* a program that was built with 1.0 has none of the new fields */
    bias[1] = (weir_token_bias){41, 100.0f};
    bad = plain;
    bad.struct_size = (uint32_t)offsetof(weir_sampling_options, presence_penalty);
    bad.presence_penalty = NAN;
    bad.bias = bias;
    bad.n_bias = 2;
    assert_ok(weir_session_set_sampling(session, &bad));
    assert_ok(weir_session_set_sampling(other, NULL));
    generate(session, options, &got);
    generate(other, options, &want);
    assert_same_tokens(&got, &want);
    assert_int_not_equal(got.tokens[0], 41);
    weir_session_destroy(session);
    weir_session_destroy(other);
}

typedef struct stream {
    char *bytes;
    uint64_t n, at;
} stream;

static weir_status write_bytes(void *user, const weir_write_info *info) {
    stream *s = user;
    s->bytes = realloc(s->bytes, s->n + info->n_bytes);
    assert_non_null(s->bytes);
    memcpy(s->bytes + s->n, info->data, info->n_bytes);
    s->n += info->n_bytes;
    return WEIR_OK;
}

static weir_status read_bytes(void *user, const weir_read_info *info, uint64_t *n_read) {
    stream *s = user;
    *n_read = info->n_bytes < s->n - s->at ? info->n_bytes : s->n - s->at;
    memcpy(info->data, s->bytes + s->at, *n_read);
    s->at += *n_read;
    return WEIR_OK;
}

/* A saved session has the sampling options of 1.0, and restoring it keeps the others as they are. */
static void choosing__restored(void **state) {
    const fixture *f = *state;
    static answer want, got;
    stream saved = {0};
    weir_session *from = prompted(f), *to = prompted(f), *reference = prompted(f);
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    const weir_token_bias raised = {40, 100.0f}, other = {41, 99.0f};
    sampling.temperature = 0.7f;
    sampling.seed = 9;
    sampling.bias = &raised;
    sampling.n_bias = 1;
    assert_ok(weir_session_set_sampling(from, &sampling));
    assert_ok(weir_session_save(from, write_bytes, &saved));
    sampling.temperature = 0.0f;
    sampling.frequency_penalty = 2.0f;
    sampling.bias = &other;
    assert_ok(weir_session_set_sampling(to, &sampling));
    assert_ok(weir_session_restore(to, read_bytes, &saved));
    sampling.temperature = 0.7f;
    assert_ok(weir_session_set_sampling(reference, &sampling));
    options.max_tokens = 50;
    options.flags = WEIR_GENERATE_IGNORE_EOS;
    generate(to, options, &got);
    generate(reference, options, &want);
    assert_same_tokens(&got, &want);
    assert_int_equal(got.tokens[0], 41);
    weir_session_destroy(from);
    weir_session_destroy(to);
    weir_session_destroy(reference);
    free(saved.bytes);
}

/* Sessions that are prompted anew keep what was set. */
static void choosing__prompted_anew(void **state) {
    const fixture *f = *state;
    static answer got;
    weir_session *session = prompted_on(f, "sink");
    weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
    weir_prompt_options exact = WEIR_PROMPT_OPTIONS_INIT;
    weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
    const weir_token_bias raised = {40, 100.0f};
    uint64_t n = 0;
    weir_token *tokens = tokens_of(f->model, RULE_PROMPT, &n);
    sampling.bias = &raised;
    sampling.n_bias = 1;
    assert_ok(weir_session_set_sampling(session, &sampling));
    options.max_tokens = 60;
    for (int i = 0; i < 5; ++i) generate(session, options, &got); /* pages leave, so that all is read again */
    exact.flags = WEIR_PROMPT_EXACT;
    assert_ok(weir_session_prompt_tokens(session, tokens, n, &exact, NULL));
    options.max_tokens = 3;
    generate(session, options, &got);
    for (uint32_t i = 0; i < 3; ++i) assert_int_equal(got.tokens[i], 40);
    weir_session_destroy(session);
    free(tokens);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choosing__logprobs),        cmocka_unit_test(choosing__logprobs_only_when_asked),
        cmocka_unit_test(choosing__bias),            cmocka_unit_test(choosing__penalties),
        cmocka_unit_test(choosing__min_tokens),      cmocka_unit_test(choosing__all_forbidden),
        cmocka_unit_test(choosing__bad_options),     cmocka_unit_test(choosing__restored),
        cmocka_unit_test(choosing__prompted_anew),
    };
    return cmocka_run_group_tests_name("api/choosing", tests, open_fixture, close_fixture);
}
