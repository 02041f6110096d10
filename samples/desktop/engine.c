#include "engine.h"

#include <string.h>
#include <weir/weir.h>

#define GAUGE_MICROSECONDS 30000 /* between two looks at the memory */

struct engine {
    GThread *thread;
    GAsyncQueue *questions; /* of char *; an empty one wakes the thread to end */
    weir_cancel *cancel;    /* what Stop sets; it outlives the session */
    gint is_closing;        /* atomic; set once */
    engine_news_fn on_news; /* main thread */
    gpointer user;
    GMutex lock; /* of the two below */
    engine_news news;
    gboolean is_told; /* an idle call is on its way */

    /* What only the thread uses. */
    engine_settings settings;
    weir_runtime *runtime;
    weir_model *model;
    weir_session *session;
    weir_plan_info dense; /* the plan of the same session if it kept everything */
    GArray *messages;     /* of weir_chat_message, whose texts are ours */
    gint64 looked_at, began_at; /* microseconds */
};

/* --- News, from the thread of the model to the main thread --- */

static void clear_text(gpointer text) { g_string_free(((engine_text *)text)->text, TRUE); }

static GArray *new_texts(void) {
    GArray *texts = g_array_new(FALSE, FALSE, sizeof(engine_text));
    g_array_set_clear_func(texts, clear_text);
    return texts;
}

static gboolean deliver(gpointer user) {
    engine *e = user;
    g_mutex_lock(&e->lock);
    engine_news news = e->news;
    e->news.texts = new_texts();
    e->news.error = NULL;
    e->is_told = FALSE;
    g_mutex_unlock(&e->lock);
    e->on_news(e->user, &news);
    g_array_unref(news.texts);
    g_free(news.error);
    if (news.state != ENGINE_ENDED) return G_SOURCE_REMOVE;
    g_thread_join(e->thread); /* it has told us that it ends */
    g_async_queue_unref(e->questions);
    weir_cancel_release(e->cancel);
    g_array_unref(e->news.texts);
    g_free(e->news.name);
    g_mutex_clear(&e->lock);
    g_free(e);
    return G_SOURCE_REMOVE;
}

/* Ends a change of the news, under the lock. Behind drawing in priority: the window stays quick. */
static void tell(engine *e) {
    if (!e->is_told) g_idle_add(deliver, e);
    e->is_told = TRUE;
    g_mutex_unlock(&e->lock);
}

static void tell_state(engine *e, engine_state state, double progress) {
    g_mutex_lock(&e->lock);
    e->news.state = state;
    e->news.progress = progress;
    tell(e);
}

/* Call it on the thread whose call failed: the message is that of the thread. */
static void tell_error(engine *e, const char *what) {
    g_mutex_lock(&e->lock);
    g_free(e->news.error);
    e->news.error = g_strdup_printf("%s: %s", what, weir_last_error());
    tell(e);
}

static void tell_text(engine *e, const weir_event *event) {
    const gboolean is_thought = event->segment == WEIR_SEGMENT_THOUGHT;
    if (event->text_bytes == 0) return;
    g_mutex_lock(&e->lock);
    GArray *texts = e->news.texts;
    if (texts->len == 0 || g_array_index(texts, engine_text, texts->len - 1).is_thought != is_thought) {
        const engine_text text = {is_thought, g_string_new(NULL)};
        g_array_append_val(texts, text);
    }
    g_string_append_len(g_array_index(texts, engine_text, texts->len - 1).text, event->text, (gssize)event->text_bytes);
    tell(e);
}

/* Layers that have a sliding window of their own hold no more than that, dense or not. */
static guint64 dense_bytes(const weir_plan_info *plan, uint32_t n_tokens) {
    const uint64_t pages = (n_tokens + plan->page_tokens - 1) / plan->page_tokens;
    return ((plan->n_streams - plan->n_window_streams) * pages +
            plan->n_window_streams * MIN(pages, plan->window_pages_per_stream)) * plan->page_bytes;
}

static void tell_gauge(engine *e, uint32_t n_answered) {
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    const gint64 now = e->looked_at = g_get_monotonic_time();
    weir_session_memory(e->session, &memory); /* neither fails for a session */
    weir_session_get_stats(e->session, &stats);
    g_mutex_lock(&e->lock);
    e->news.kv_bytes = memory.kv_bytes;
    e->news.kv_budget_bytes = memory.kv_budget_bytes;
    e->news.dense_bytes = dense_bytes(&e->dense, stats.n_tokens);
    e->news.n_tokens = stats.n_tokens;
    if (n_answered > 0) e->news.tokens_per_second = n_answered * 1e6 / (double)MAX(now - e->began_at, 1);
    tell(e);
}

/* --- The thread of the model --- */

/* Progress of opening the file, and of each question. The cancel is the session's: what is before one ends here. */
static weir_status on_progress(void *user, const weir_progress_info *info) {
    engine *e = user;
    const engine_state state = e->session == NULL ? ENGINE_OPENING : ENGINE_READING;
    tell_state(e, state, (double)info->done / (double)MAX(info->total, 1));
    return g_atomic_int_get(&e->is_closing) ? WEIR_ERR_CANCELLED : WEIR_OK;
}

static gboolean open_session(engine *e) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT, dense = WEIR_SESSION_OPTIONS_INIT;
    options.budget_tokens = (uint32_t)e->settings.budget_tokens;
    e->dense = (weir_plan_info)WEIR_PLAN_INFO_INIT;
    return weir_session_options_preset(e->settings.preset, &options) == WEIR_OK &&
           weir_session_create(e->model, &options, &e->session) == WEIR_OK &&
           weir_session_set_cancel(e->session, e->cancel) == WEIR_OK &&
           weir_plan(e->model, &dense, &e->dense) == WEIR_OK;
}

static gboolean open_all(engine *e) {
    weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    options.flags = WEIR_MODEL_PREFETCH; /* the wait is shown here, not at the first question */
    options.progress = on_progress;
    options.progress_user = e;
    if (weir_runtime_create(NULL, &e->runtime) != WEIR_OK ||
        weir_model_open(e->runtime, e->settings.path, &options, &e->model) != WEIR_OK || !open_session(e) ||
        weir_model_get_info(e->model, &info) != WEIR_OK) {
        if (!g_atomic_int_get(&e->is_closing)) tell_error(e, "The model cannot be opened");
        return FALSE;
    }
    g_mutex_lock(&e->lock);
    e->news.name = info.name[0] != '\0' ? g_strdup(info.name) : g_path_get_basename(e->settings.path);
    g_mutex_unlock(&e->lock);
    tell_gauge(e, 0);
    return TRUE;
}

static void clear_message(gpointer message) {
    g_free((gpointer)((weir_chat_message *)message)->content);
    g_free((gpointer)((weir_chat_message *)message)->thought);
}

/* The texts of weir_session_answer are the session's; ours stay. */
static void keep_answer(engine *e) {
    weir_chat_message m = WEIR_CHAT_MESSAGE_INIT;
    if (weir_session_answer(e->session, &m, sizeof m, NULL) != WEIR_OK || m.content_bytes + m.thought_bytes == 0) {
        g_array_set_size(e->messages, e->messages->len - 1); /* stopped before the first word: no turn at all */
        return;
    }
    m.role = "assistant";
    m.content = g_strndup(m.content, (gsize)m.content_bytes);
    m.thought = g_strndup(m.thought, (gsize)m.thought_bytes);
    m.tool_calls_json = NULL; /* this application has no tools */
    g_array_append_val(e->messages, m);
}

static void pull_answer(engine *e) {
    weir_event event = WEIR_EVENT_INIT;
    weir_status status = WEIR_OK;
    e->began_at = g_get_monotonic_time();
    tell_state(e, ENGINE_ANSWERING, 1.0);
    while (event.kind != WEIR_EVENT_END && (status = weir_session_next(e->session, &event)) == WEIR_OK) {
        tell_text(e, &event);
        if (g_get_monotonic_time() - e->looked_at > GAUGE_MICROSECONDS) tell_gauge(e, event.index + 1);
    }
    if (status != WEIR_OK) tell_error(e, "The answer failed");
    tell_gauge(e, event.index);
    keep_answer(e);
}

static void answer(engine *e, const char *question) {
    weir_prompt_options prompt = WEIR_PROMPT_OPTIONS_INIT;
    weir_chat_message m = WEIR_CHAT_MESSAGE_INIT;
    m.role = "user";
    m.content = g_strdup(question);
    m.content_bytes = strlen(question);
    g_array_append_val(e->messages, m);
    prompt.flags = WEIR_PROMPT_DROP_OLDEST; /* when the context is full the oldest turns make room */
    prompt.reserve_tokens = 64;
    prompt.progress = on_progress;
    prompt.progress_user = e;
    tell_state(e, ENGINE_READING, 0.0);
    const weir_chat_message *messages = &g_array_index(e->messages, weir_chat_message, 0);
    weir_status status = weir_session_prompt(e->session, messages, e->messages->len, &prompt, NULL, NULL);
    if (status == WEIR_OK) status = weir_session_begin(e->session, NULL);
    if (status == WEIR_OK) {
        pull_answer(e);
    } else {
        if (status != WEIR_ERR_CANCELLED) tell_error(e, "The question cannot be read");
        g_array_set_size(e->messages, e->messages->len - 1);
    }
}

static gpointer run(gpointer user) {
    engine *e = user;
    const gboolean is_open = open_all(e);
    tell_state(e, is_open ? ENGINE_READY : ENGINE_BROKEN, 1.0);
    while (!g_atomic_int_get(&e->is_closing)) {
        char *question = g_async_queue_pop(e->questions);
        if (is_open && question[0] != '\0' && !g_atomic_int_get(&e->is_closing)) {
            answer(e, question);
            tell_state(e, ENGINE_READY, 1.0);
        }
        g_free(question);
    }
    g_array_unref(e->messages);
    weir_session_destroy(e->session);
    weir_model_close(e->model);
    weir_runtime_destroy(e->runtime);
    tell_state(e, ENGINE_ENDED, 1.0); /* the last thing that touches e here */
    return NULL;
}

/* --- The main thread --- */

engine *engine_open(const engine_settings *settings, engine_news_fn on_news, gpointer user) {
    engine *e = g_new0(engine, 1);
    g_mutex_init(&e->lock);
    e->news.texts = new_texts();
    e->questions = g_async_queue_new_full(g_free);
    e->on_news = on_news;
    e->user = user;
    e->settings = *settings;
    e->messages = g_array_new(FALSE, FALSE, sizeof(weir_chat_message));
    g_array_set_clear_func(e->messages, clear_message);
    if (weir_cancel_create(&e->cancel) != WEIR_OK) g_error("%s", weir_last_error()); /* as GLib does without memory */
    e->thread = g_thread_new("model", run, e);
    return e;
}

void engine_ask(engine *e, const char *question) {
    weir_cancel_clear(e->cancel); /* a click on Stop that came after the end of the last turn is no click on this one */
    g_async_queue_push(e->questions, g_strdup(question));
}

void engine_stop(engine *e) { weir_cancel_set(e->cancel); }

void engine_close(engine *e) {
    g_atomic_int_set(&e->is_closing, 1);
    weir_cancel_set(e->cancel);
    g_async_queue_push(e->questions, g_strdup(""));
}
