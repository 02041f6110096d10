/* A chat window that runs a language model in its own process: GTK 4 and Weir, both through their C interfaces.
 *
 *   weir-desktop [--preset NAME] [--budget TOKENS] MODEL.gguf
 *
 * Enter sends a question, Escape stops the answer, Ctrl+Q and closing the window end the program. This file is the
 * window alone; what has to do with the model is behind engine.h. */
#define GDK_VERSION_MIN_REQUIRED GDK_VERSION_4_8 /* no warnings for what later versions do in another way */
#include <glib-unix.h>
#include <gtk/gtk.h>
#include <math.h>
#include <signal.h>

#include "engine.h"

typedef struct app {
    GtkWidget *window, *status, *bar, *bar_text, *progress, *view, *entry, *send, *stop, *gauge, *kv_text, *dense_text;
    GtkTextBuffer *buffer;
    engine_settings settings;
    engine *engine;      /* NULL before it is opened and after its end */
    gboolean is_at_end;  /* of the talk: it is scrolled so far */
    gboolean is_closing; /* the window is gone when the engine has ended */
    engine_news now;     /* the numbers of the latest news; its pointers are gone */
} app;

static const char style[] =
    "textview { font-size: 15px; }"
    ".talk { background: @theme_base_color; }"
    ".bottom { padding: 12px 18px; border-top: 1px solid alpha(currentColor, 0.14); font-size: 13px; }"
    ".bottom entry { min-height: 36px; font-size: 15px; }"
    ".bar { background: #a4262c; color: #ffffff; padding: 10px 18px; } .faint { opacity: 0.62; }";

/* --- The talk --- */

static void append(app *a, const char *text, const char *tag) {
    GtkTextIter end;
    gtk_text_buffer_get_end_iter(a->buffer, &end);
    if (text[0] == '\n' && gtk_text_iter_starts_line(&end)) ++text; /* no empty lines around thoughts */
    gtk_text_buffer_insert_with_tags_by_name(a->buffer, &end, text, -1, tag, NULL);
}

/* The end stays in sight as the text grows; whoever has scrolled up to read is left there. */
static void on_scroll(GtkAdjustment *scroll, app *a) {
    const double end = gtk_adjustment_get_upper(scroll) - gtk_adjustment_get_page_size(scroll);
    a->is_at_end = gtk_adjustment_get_value(scroll) > end - 20.0;
}

static gboolean go_to_end(GtkWidget *view, GdkFrameClock *clock, gpointer scroll) {
    (void)view, (void)clock;
    gtk_adjustment_set_value(scroll, gtk_adjustment_get_upper(scroll));
    return G_SOURCE_REMOVE;
}

/* Comes while places are given out, when none may be asked for: it waits for the next frame. */
static void on_grow(GtkAdjustment *scroll, app *a) {
    if (a->is_at_end) gtk_widget_add_tick_callback(a->view, go_to_end, scroll, NULL);
}

static void show_error(app *a, const char *message) {
    if (message != NULL) gtk_label_set_text(GTK_LABEL(a->bar_text), message);
    gtk_revealer_set_reveal_child(GTK_REVEALER(a->bar), message != NULL);
}

static void on_send(app *a) {
    const char *question = gtk_editable_get_text(GTK_EDITABLE(a->entry));
    if (a->now.state != ENGINE_READY || question[0] == '\0') return;
    show_error(a, NULL);
    if (gtk_text_buffer_get_char_count(a->buffer) > 0) append(a, "\n\n", "answer");
    append(a, question, "question");
    append(a, "\n", "question");
    a->is_at_end = TRUE;
    a->now.state = ENGINE_READING; /* no second question before the first news of this one */
    engine_ask(a->engine, question);
    gtk_editable_set_text(GTK_EDITABLE(a->entry), "");
}

static void on_stop(app *a) { engine_stop(a->engine); }

/* --- The gauge: two bars, and the red mark that the upper one never passes --- */

static void draw_bar(cairo_t *cr, double y, double width, double height, double share) {
    cairo_rectangle(cr, 0.0, y, round(width * share), height);
    cairo_fill(cr);
}

static void draw_gauge(GtkDrawingArea *area, cairo_t *cr, int width, int height, gpointer user) {
    const engine_news *news = &((app *)user)->now;
    const double scale = MAX((double)news->kv_budget_bytes * 1.3 + 1.0, (double)news->dense_bytes * 1.02);
    const gboolean is_open = news->kv_budget_bytes > 0;
    const double row = height / 2.0, bar = round(row * 0.5), gap = round((row - bar) / 2.0);
    GdkRGBA ink;
    gtk_style_context_get_color(gtk_widget_get_style_context(GTK_WIDGET(area)), &ink);
    ink.alpha = 0.09f;
    gdk_cairo_set_source_rgba(cr, &ink);
    draw_bar(cr, gap, width, bar, 1.0);
    draw_bar(cr, row + gap, width, bar, 1.0);
    cairo_set_source_rgb(cr, 0.10, 0.56, 0.50);
    draw_bar(cr, gap, width, bar, (double)news->kv_bytes / scale);
    ink.alpha = 0.38f;
    gdk_cairo_set_source_rgba(cr, &ink);
    draw_bar(cr, row + gap, width, bar, (double)news->dense_bytes / scale);
    cairo_set_source_rgb(cr, 0.85, 0.11, 0.14);
    cairo_rectangle(cr, round(width * (double)news->kv_budget_bytes / scale), 0.0, is_open ? 2.0 : 0.0, height);
    cairo_fill(cr);
}

static void show_gauge(app *a) {
    const engine_news *news = &a->now;
    g_autofree char *kv = g_format_size_full(news->kv_bytes, G_FORMAT_SIZE_IEC_UNITS);
    g_autofree char *budget = g_format_size_full(news->kv_budget_bytes, G_FORMAT_SIZE_IEC_UNITS);
    g_autofree char *dense = g_format_size_full(news->dense_bytes, G_FORMAT_SIZE_IEC_UNITS);
    g_autofree char *text = g_strdup_printf("%s <span color=\"#d81c24\">of %s</span>", kv, budget);
    gtk_label_set_markup(GTK_LABEL(a->kv_text), text);
    gtk_label_set_text(GTK_LABEL(a->dense_text), dense);
    gtk_accessible_update_property(GTK_ACCESSIBLE(a->gauge), GTK_ACCESSIBLE_PROPERTY_VALUE_NOW, (double)news->kv_bytes,
                                   GTK_ACCESSIBLE_PROPERTY_VALUE_MAX, (double)news->kv_budget_bytes,
                                   GTK_ACCESSIBLE_PROPERTY_VALUE_TEXT, kv, -1);
    gtk_widget_queue_draw(a->gauge);
}

/* --- News of the engine --- */

static void show_state(app *a, const engine_news *news) {
    static const char *const words[] = {"opening the model", "ready", "reading the question", "answering",
                                        "no model", "no model"};
    const gboolean is_busy = news->state == ENGINE_READING || news->state == ENGINE_ANSWERING;
    g_autofree char *text = g_strdup_printf("%s \302\267 %u tokens \302\267 %.0f tokens/s", words[news->state],
                                            news->n_tokens, news->tokens_per_second);
    if (news->name != NULL) gtk_window_set_title(GTK_WINDOW(a->window), news->name);
    gtk_label_set_text(GTK_LABEL(a->status), news->n_tokens == 0 ? words[news->state] : text);
    gtk_progress_bar_set_fraction(GTK_PROGRESS_BAR(a->progress), CLAMP(news->progress, 0.0, 1.0));
    gtk_widget_set_opacity(a->progress, news->state == ENGINE_OPENING || news->state == ENGINE_READING ? 1.0 : 0.0);
    gtk_widget_set_visible(a->send, !is_busy);
    gtk_widget_set_visible(a->stop, is_busy);
    gtk_widget_set_sensitive(a->send, news->state == ENGINE_READY);
    gtk_editable_set_editable(GTK_EDITABLE(a->entry), news->state != ENGINE_BROKEN);
}

static void on_news(gpointer user, const engine_news *news) {
    app *a = user;
    const engine_text *texts = &g_array_index(news->texts, engine_text, 0);
    for (guint i = 0; i < news->texts->len; ++i)
        append(a, texts[i].text->str, texts[i].is_thought ? "thought" : "answer");
    a->now = *news;
    show_state(a, news);
    if (news->kv_budget_bytes > 0) show_gauge(a);
    if (news->error != NULL) show_error(a, news->error);
    if (news->state == ENGINE_ENDED) {
        a->engine = NULL;
        gtk_window_destroy(GTK_WINDOW(a->window)); /* the last one: the application ends */
    }
}

/* --- Opening and closing --- */

/* The window goes at once, the process when the model has come to the end of its step. */
static gboolean on_close(app *a) {
    if (a->engine == NULL) return FALSE;
    if (!a->is_closing) engine_close(a->engine);
    a->is_closing = TRUE;
    gtk_widget_set_visible(a->window, FALSE);
    return TRUE;
}

static gboolean on_signal(gpointer user) {
    gtk_window_close(GTK_WINDOW(((app *)user)->window));
    return G_SOURCE_CONTINUE;
}

static gboolean on_key(GtkEventControllerKey *keys, guint key, guint code, GdkModifierType held, app *a) {
    (void)keys, (void)code;
    if (key == GDK_KEY_Escape) {
        on_stop(a);
    } else if ((held & GDK_CONTROL_MASK) != 0 && (key == GDK_KEY_q || key == GDK_KEY_w)) {
        gtk_window_close(GTK_WINDOW(a->window));
    } else {
        return GDK_EVENT_PROPAGATE;
    }
    return GDK_EVENT_STOP;
}

/* --- The widgets --- */

/* Puts a child at the end of a box. */
static GtkWidget *add(GtkWidget *box, GtkWidget *child, const char *css_class) {
    gtk_widget_add_css_class(child, css_class);
    gtk_box_append(GTK_BOX(box), child);
    return child;
}

static GtkWidget *new_button(const char *text, const char *tip, void (*on_click)(app *), app *a) {
    GtkWidget *button = g_object_new(GTK_TYPE_BUTTON, "label", text, "tooltip-text", tip, NULL);
    g_signal_connect_swapped(button, "clicked", G_CALLBACK(on_click), a);
    return button;
}

static void add_talk(app *a, GtkWidget *box) {
    a->bar_text = g_object_new(GTK_TYPE_LABEL, "wrap", TRUE, "selectable", TRUE, "xalign", 0.0, NULL);
    gtk_widget_add_css_class(a->bar_text, "bar");
    a->bar = add(box, g_object_new(GTK_TYPE_REVEALER, "child", a->bar_text, NULL), "error");
    a->view = g_object_new(GTK_TYPE_TEXT_VIEW, "editable", FALSE, "cursor-visible", FALSE, "wrap-mode",
                           GTK_WRAP_WORD_CHAR, "pixels-below-lines", 3, "left-margin", 18, "right-margin", 18,
                           "top-margin", 14, "bottom-margin", 14, NULL);
    add(box, g_object_new(GTK_TYPE_SCROLLED_WINDOW, "child", a->view, "vexpand", TRUE, NULL), "talk");
    a->buffer = gtk_text_view_get_buffer(GTK_TEXT_VIEW(a->view));
    GtkAdjustment *scroll = gtk_scrollable_get_vadjustment(GTK_SCROLLABLE(a->view));
    g_signal_connect(scroll, "value-changed", G_CALLBACK(on_scroll), a);
    g_signal_connect(scroll, "changed", G_CALLBACK(on_grow), a);
    gtk_text_buffer_create_tag(a->buffer, "question", "weight", PANGO_WEIGHT_BOLD, "pixels-below-lines", 8, NULL);
    gtk_text_buffer_create_tag(a->buffer, "thought", "foreground", "#6f747c", "left-margin", 36, NULL);
    gtk_text_buffer_create_tag(a->buffer, "answer", NULL);
}

static void add_gauge(app *a, GtkWidget *box) {
    static const char *const names[] = {"KV memory", "All kept would take"};
    GtkGrid *grid = g_object_new(GTK_TYPE_GRID, "column-spacing", 14, "row-spacing", 2, NULL);
    GtkWidget **const numbers[] = {&a->kv_text, &a->dense_text};
    for (int i = 0; i < 2; ++i) {
        *numbers[i] = g_object_new(GTK_TYPE_LABEL, "xalign", 0.0, "width-chars", 18, NULL);
        gtk_grid_attach(grid, g_object_new(GTK_TYPE_LABEL, "xalign", 0.0, "label", names[i], NULL), 0, i, 1, 1);
        gtk_grid_attach(grid, *numbers[i], 2, i, 1, 1);
    }
    a->gauge = g_object_new(GTK_TYPE_DRAWING_AREA, "accessible-role", GTK_ACCESSIBLE_ROLE_METER, "hexpand", TRUE, NULL);
    gtk_accessible_update_property(GTK_ACCESSIBLE(a->gauge), GTK_ACCESSIBLE_PROPERTY_LABEL, names[0], -1);
    gtk_drawing_area_set_draw_func(GTK_DRAWING_AREA(a->gauge), draw_gauge, a, NULL);
    gtk_grid_attach(grid, a->gauge, 1, 0, 1, 2);
    gtk_box_append(GTK_BOX(box), GTK_WIDGET(grid));
}

static void add_bottom(app *a, GtkWidget *box) {
    GtkWidget *row = add(box, gtk_box_new(GTK_ORIENTATION_HORIZONTAL, 8), "row");
    a->entry = g_object_new(GTK_TYPE_ENTRY, "placeholder-text", "Ask the model", "hexpand", TRUE, NULL);
    g_signal_connect_swapped(add(row, a->entry, "question"), "activate", G_CALLBACK(on_send), a);
    a->send = add(row, new_button("Send", "Enter", on_send, a), "suggested-action");
    a->stop = add(row, new_button("Stop", "Escape", on_stop, a), "destructive-action");
    a->progress = add(box, gtk_progress_bar_new(), "progress");
    add_gauge(a, box);
    a->status = add(box, g_object_new(GTK_TYPE_LABEL, "xalign", 0.0, NULL), "faint");
}

static void on_activate(GtkApplication *application, app *a) {
    GtkWidget *box = gtk_box_new(GTK_ORIENTATION_VERTICAL, 0);
    GtkEventController *keys = gtk_event_controller_key_new();
    g_autoptr(GtkCssProvider) css = gtk_css_provider_new();
    gtk_css_provider_load_from_data(css, style, -1);
    gtk_style_context_add_provider_for_display(gdk_display_get_default(), GTK_STYLE_PROVIDER(css),
                                               GTK_STYLE_PROVIDER_PRIORITY_APPLICATION);
    a->window = g_object_new(GTK_TYPE_APPLICATION_WINDOW, "application", application, "title", "Weir", "child", box,
                             "default-width", 820, "default-height", 640, "titlebar", gtk_header_bar_new(), NULL);
    gtk_event_controller_set_propagation_phase(keys, GTK_PHASE_CAPTURE);
    gtk_widget_add_controller(a->window, keys);
    g_signal_connect(keys, "key-pressed", G_CALLBACK(on_key), a);
    g_signal_connect_swapped(a->window, "close-request", G_CALLBACK(on_close), a);
    add_talk(a, box);
    add_bottom(a, add(box, gtk_box_new(GTK_ORIENTATION_VERTICAL, 8), "bottom"));
    a->engine = engine_open(&a->settings, on_news, a);
    show_state(a, &a->now);
    gtk_widget_grab_focus(a->entry);
    gtk_window_present(GTK_WINDOW(a->window));
    g_unix_signal_add(SIGTERM, on_signal, a); /* the end of the user's session */
}

int main(int argc, char **argv) {
    app a = {.settings = {.preset = "chat"}, .is_at_end = TRUE};
    const GOptionEntry entries[] = {
        {"preset", 0, 0, G_OPTION_ARG_STRING, &a.settings.preset, "Policy and budget by name", "NAME"},
        {"budget", 0, 0, G_OPTION_ARG_INT, &a.settings.budget_tokens, "Tokens that stay in the KV memory", "TOKENS"},
        {NULL, 0, 0, 0, NULL, NULL, NULL}};
    g_autoptr(GOptionContext) options = g_option_context_new("MODEL.gguf");
    GError *error = NULL;
    g_option_context_add_main_entries(options, entries, NULL);
    if (!g_option_context_parse(options, &argc, &argv, &error) || argc != 2) {
        g_printerr("%s; --help tells the usage\n", error != NULL ? error->message : "MODEL.gguf is missing");
        return 2;
    }
    a.settings.path = argv[1];
    g_autoptr(GtkApplication) application = gtk_application_new(NULL, G_APPLICATION_NON_UNIQUE);
    g_signal_connect(application, "activate", G_CALLBACK(on_activate), &a);
    return g_application_run(G_APPLICATION(application), 1, argv);
}
