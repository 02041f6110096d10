/* The conversations of this folder's files, for who writes them and for who reads them. Of the interface only what the
 * first version had. */
#ifndef WEIR_GOLDEN_SESSIONS_H
#define WEIR_GOLDEN_SESSIONS_H

#include "weir/weir.h"

#define N_NEXT 24 /* steps after the file that are compared */

typedef struct conversation {
    const char *name, *policy;
    weir_key_value options[4]; /* as they were given when the file was written */
    uint32_t n_options;
    uint32_t n_later; /* and behind them, what must be given since then: defaults that changed */
    uint32_t budget_tokens, max_prompt_tokens;
    uint64_t spill_bytes;
    uint32_t n_prompt, n_steps;
} conversation;

static const conversation conversations[] = {
    {"dense", "dense", {{0, 0}}, 0, 0, 0, 0, 0, 40, 13},
    {"sink", "sink", {{0, 0}}, 0, 0, 64, 0, 0, 90, 30},
    {"tova", "tova", {{"skip_layers", "0"}}, 1, 0, 64, 0, 64 << 10, 70, 20},
    {"quest", "quest", {{"skip_layers", "0"}, {"digest", "minmax"}, {"sink_pages", "0"}}, 1, 2, 64, 0, 0, 70, 20},
    {"raas", "raas", {{0, 0}}, 0, 0, 128, 64, 0, 60, 90},
    {"raas-recall",
     "raas",
     {{"recall", "on"}, {"digest", "minmax"}, {"stamp_source", "exact_mass"}, {"sink_pages", "0"}},
     1,
     3,
     64,
     0,
     64 << 10,
     50,
     40},
    {"arkvale", "arkvale", {{"digest", "minmax"}, {"sink_pages", "0"}}, 0, 2, 64, 0, 64 << 10, 70, 20},
    {"psa-recall",
     "psa",
     {{"recall", "on"}, {"mb", "1"}, {"digest", "minmax"}, {"sink_pages", "0"}},
     2,
     2,
     64,
     0,
     64 << 10,
     70,
     20},
};
#define N_CONVERSATIONS (sizeof(conversations) / sizeof(conversations[0]))

/* `later`: with what must be given since. */
static inline weir_session_options options_of_conversation(const conversation *c, int later) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = WEIR_DEVICE_CPU;
    options.context_tokens = 512;
    options.batch_tokens = 64;
    options.policy = c->policy;
    options.policy_options = c->options;
    options.n_policy_options = c->n_options + (later ? c->n_later : 0);
    options.budget_tokens = c->budget_tokens;
    options.max_prompt_tokens = c->max_prompt_tokens;
    options.spill_budget_bytes = c->spill_bytes;
    return options;
}

static inline weir_token said(uint32_t i) { return (weir_token)(i * 2654435761u % 199 + 20); }

static inline weir_status have_conversation(weir_session *session, const conversation *c) {
    weir_token tokens[256];
    weir_status status;
    for (uint32_t i = 0; i < c->n_prompt; ++i) tokens[i] = said(i);
    status = weir_session_prefill(session, tokens, c->n_prompt, NULL, NULL);
    for (uint32_t i = 0; i < c->n_steps && status == WEIR_OK; ++i)
        status = weir_session_step(session, said(c->n_prompt + i));
    return status;
}

/* The likeliest token after step number `step` behind the conversation, and how far it is ahead of the second. */
static inline weir_status best_next(weir_session *session, const conversation *c, uint32_t step, weir_token *best,
                                    float *ahead) {
    const float *logits = NULL;
    uint32_t n = 0;
    float first = -1e30f, second = -1e30f;
    weir_status status = weir_session_step(session, said(c->n_prompt + c->n_steps + step));
    if (status == WEIR_OK) status = weir_session_logits(session, &logits, &n);
    for (uint32_t i = 0; i < n && status == WEIR_OK; ++i) {
        if (logits[i] > first) {
            second = first;
            first = logits[i];
            *best = (weir_token)i;
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    *ahead = first - second;
    return status;
}

#endif
