/* The model behind the window: everything of Weir in this application, on a thread of its own.
 *
 * The window calls the functions below on the main thread, none of which waits. What happens comes back as news, on the
 * main thread too: the thread of the model gathers it and asks for one idle call of the main loop, however many tokens
 * come before that call. So a window that is slow to draw never holds back the model, nor the model the window. */
#ifndef WEIR_DESKTOP_ENGINE_H
#define WEIR_DESKTOP_ENGINE_H

#include <glib.h>

typedef struct engine engine;

typedef struct engine_settings {
    const char *path;   /* of the model */
    const char *preset; /* policy and budget by name, see docs/policies.md */
    int budget_tokens;  /* instead of the preset's; 0: the preset's */
} engine_settings;

typedef enum engine_state {
    ENGINE_OPENING,   /* the model's file is read */
    ENGINE_READY,     /* for a question */
    ENGINE_READING,   /* the question is read */
    ENGINE_ANSWERING, /* text comes */
    ENGINE_BROKEN,    /* the model could not be opened; only engine_close is left */
    ENGINE_ENDED      /* the thread has ended, and the engine is gone after this call */
} engine_state;

typedef struct engine_text {
    gboolean is_thought;
    GString *text;
} engine_text;

typedef struct engine_news {
    engine_state state;
    double progress;          /* of OPENING and READING: 0..1 */
    GArray *texts;            /* of engine_text: what came of the answer since the last news */
    char *error;              /* what failed since then, as the library says it; or NULL */
    char *name;               /* of the model, or NULL before it is open */
    guint64 kv_bytes;         /* of keys and values now */
    guint64 kv_budget_bytes;  /* the most that they will ever take */
    guint64 dense_bytes;      /* what they would take now if all were kept */
    guint n_tokens;           /* in the conversation */
    double tokens_per_second; /* of the answer */
} engine_news;

typedef void (*engine_news_fn)(gpointer user, const engine_news *news);

/* Begins to open the model. The texts of the settings live longer than the engine. */
engine *engine_open(const engine_settings *settings, engine_news_fn on_news, gpointer user);

/* The next turn of the conversation; only when READY. */
void engine_ask(engine *e, const char *question);

/* Ends the answer within one step of the model. What was said stays. */
void engine_stop(engine *e);

/* Stops whatever runs. Returns at once; the last news has the state ENDED, and after it the engine is no more. */
void engine_close(engine *e);

#endif
