/* Weir: status codes, version, last error and the few types that every other header uses.
 *
 * Conventions of the whole API (docs/architecture.md has the reasons):
 *  - Handles are opaque. `_create` and `_open` take the out pointer last; `_destroy` and `_close` accept NULL.
 *  - Option and info structs start with `struct_size`, set by the caller to sizeof of the struct it was compiled with
 *    (the `_init` functions and `_INIT` macros do so). Fields beyond the caller's size take their defaults. If an
 *    options struct is longer than the library knows, the bytes beyond must be zero, or the call fails with
 *    WEIR_ERR_UNSUPPORTED. The unknown bytes of a longer info struct are left alone.
 *  - A struct whose bytes are all zero but for struct_size is valid wherever the caller makes one: options are then all
 *    defaults, and every function that fills an info struct takes it. Bindings need no `_INIT` macro.
 *  - 0 in a field means its default, unless the field says otherwise.
 *  - Enums have names for bindings and debuggers (`enum weir_stop_reason`). Fields and arguments stay int32_t, and
 *    uint32_t for bits.
 *  - After a failed call the state is as before it, unless its documentation says otherwise, and weir_last_error()
 *    names the cause.
 *  - After @threads stands one of: `immutable` (any number of threads), `one thread at a time`, `any thread`.
 *  - Callbacks (progress, token, trace, log, allocator hooks) return or throw; they do not longjmp out of the call and
 *    do not end their thread. An exception never crosses the library: it counts as a refusal by that callback, and the
 *    message says "the callback threw". Exceptions of log and free hooks are dropped.
 *  - A call computes in the default floating-point environment and restores the calling thread's own at its end and
 *    during callbacks. Results do not depend on the thread's environment.
 *  - pthread_cancel of the deferred type, the default, takes effect when the call ends or later, not before, and not in
 *    its callbacks either. A thread of the asynchronous type may not call.
 *  - A thread that calls needs a stack of 128 KiB. What callbacks need comes on top, and on a GPU what the driver
 *    needs.
 *  - After fork() the child may call exec or _exit, but nothing of this library, not even to free: the threads stayed
 *    with the parent, and its handles are unusable in the child. */
#ifndef WEIR_BASE_H
#define WEIR_BASE_H

#include <stdint.h>

#if defined(WEIR_STATIC) /* a program that is linked with libweir.a */
#define WEIR_API
#elif defined(_WIN32) && defined(WEIR_BUILDING)
#define WEIR_API __declspec(dllexport)
#elif defined(_WIN32)
#define WEIR_API __declspec(dllimport)
#elif defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#else
#define WEIR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_VERSION_MAJOR 1 /**< Changes only when the ABI breaks. */
#define WEIR_VERSION_MINOR 1 /**< Grows with additions. */
#define WEIR_VERSION_PATCH 0 /**< Grows with fixes. */

/** Result of a call, an enum weir_status_code: 0 is success, negative values are errors. Numbers are never reused. */
typedef int32_t weir_status;

enum weir_status_code {
    WEIR_OK = 0,
    WEIR_ERR_INVALID_ARG = -1,      /**< An argument is NULL, out of range or contradicts another. */
    WEIR_ERR_OUT_OF_MEMORY = -2,    /**< An allocator refused, or the machine has less than one allocation asks for. */
    WEIR_ERR_IO = -3,               /**< A file could not be opened, read or mapped. */
    WEIR_ERR_FORMAT = -4,           /**< A file or a text breaks its format. */
    WEIR_ERR_UNSUPPORTED = -5,      /**< Well-formed, but this build cannot do it. */
    WEIR_ERR_NOT_FOUND = -6,        /**< No policy, option, key or token of that name. */
    WEIR_ERR_CONTEXT_FULL = -7,     /**< The position limit of the session is reached. */
    WEIR_ERR_BUDGET = -8,           /**< The KV budget is too small for the request; the message says what fits. */
    WEIR_ERR_BUSY = -9,             /**< Another thread is inside this session. */
    WEIR_ERR_CANCELLED = -10,       /**< Stopped by weir_session_cancel or by a callback. */
    WEIR_ERR_STATE = -11,           /**< Not possible in the object's present state (no logits yet, for example). */
    WEIR_ERR_BUFFER_TOO_SMALL = -12, /**< The caller's buffer is too small; the needed size was stored. */
    WEIR_ERR_DEVICE_LOST = -13,     /**< The device failed; the session is unusable, destroy it. */
    WEIR_ERR_INTERNAL = -14         /**< A defect of Weir; please report it with the message. */
};

/** A token id, 0 .. vocab_size - 1 of its model. Negative means "none". */
typedef int32_t weir_token;

/** A function of any type, as weir_get_experimental returns it; cast it to the documented type. */
typedef void (*weir_function)(void);

/** Stops calls, and outlives what it stops. */
typedef struct weir_cancel weir_cancel;

/** One `key`, `value` pair of text options.
 *  @since 1.0 */
typedef struct weir_key_value {
    const char *key;   /**< NUL-terminated UTF-8. */
    const char *value; /**< NUL-terminated UTF-8. */
} weir_key_value;

/** Version of the library that is loaded, (major << 16) | (minor << 8) | patch.
 *
 *  Compare it with the WEIR_VERSION_* macros of the headers that you compiled with.
 *
 *  @return the number, never an error
 *  @threads any thread
 *  @owner nothing is owned
 *  @since 1.0 */
WEIR_API uint32_t weir_version(void);

/** Version of the library that is loaded, as text such as "1.0.0".
 *
 *  @return a static NUL-terminated string
 *  @threads any thread
 *  @owner the library; valid until it is unloaded
 *  @since 1.0 */
WEIR_API const char *weir_version_string(void);

/** Name of a status, such as "WEIR_ERR_BUDGET".
 *
 *  @param status any value
 *  @return a static string; "WEIR_ERR_UNKNOWN" for a number that this version does not know
 *  @threads any thread
 *  @owner the library; valid until it is unloaded
 *  @since 1.0 */
WEIR_API const char *weir_status_name(weir_status status);

/** What went wrong in the last failed call of the calling thread.
 *
 *  The text names the tensor, key, option, file offset or byte count at fault. A call that succeeds leaves it as it
 *  was. It is one line, whatever names, paths and values it quotes: their control characters are shown as \x1b or
 *  \u2028, and what is not UTF-8 as U+FFFD.
 *
 *  @return NUL-terminated UTF-8, at most 1023 bytes; "" when nothing has failed on this thread
 *  @threads any thread; each has its own text
 *  @owner the library; valid until the next failed call on the same thread
 *  @since 1.0 */
WEIR_API const char *weir_last_error(void);

/** Create a cancel: a flag that stops the calls of all sessions it is given to (weir_session_set_cancel).
 *
 *  It belongs to no session, model or runtime and may outlive all of them, so that whoever holds it may set it at any
 *  time. It is counted: each who holds it has a reference of his own. Its few bytes come from malloc, not from the
 *  allocator hooks of a runtime.
 *
 *  @param out out, the handle; NULL after a failure
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG    NULL
 *          WEIR_ERR_OUT_OF_MEMORY  there is none
 *  @threads any thread
 *  @owner the caller has a reference; weir_cancel_release
 *  @since 1.1 */
WEIR_API weir_status weir_cancel_create(weir_cancel **out);

/** Take another reference.
 *
 *  @param cancel in, NULL is allowed
 *  @return @p cancel
 *  @threads any thread
 *  @owner the caller has one reference more; weir_cancel_release
 *  @since 1.1 */
WEIR_API weir_cancel *weir_cancel_retain(weir_cancel *cancel);

/** Give up a reference. The last one ends the cancel.
 *
 *  @param cancel in, NULL is allowed
 *  @return nothing
 *  @threads any thread, once per reference
 *  @owner ends the caller's ownership
 *  @since 1.1 */
WEIR_API void weir_cancel_release(weir_cancel *cancel);

/** Stop the calls of the sessions that look at it, as weir_session_cancel stops them, those that run and all later ones
 *  until weir_cancel_clear: a call that ends because of it does not clear it, as it may serve several sessions.
 *
 *  @param cancel in, NULL is allowed
 *  @return nothing
 *  @threads any thread, also in a signal handler
 *  @owner nothing changes
 *  @since 1.1 */
WEIR_API void weir_cancel_set(weir_cancel *cancel);

/** Let the calls of these sessions go on. As with weir_session_clear_cancel, whoever takes the clicks on a Stop button
 *  calls it when a new turn begins, before the thread that computes gets the turn.
 *
 *  @param cancel in, NULL is allowed
 *  @return nothing
 *  @threads any thread, also in a signal handler
 *  @owner nothing changes
 *  @since 1.1 */
WEIR_API void weir_cancel_clear(weir_cancel *cancel);

/** Find an experimental function by name. Such functions may change or vanish in any release.
 *
 *  @param name in, NUL-terminated
 *  @return the function, or NULL when this build has none of that name (or @p name is NULL)
 *  @threads any thread
 *  @owner nothing is owned
 *  @since 1.0 */
WEIR_API weir_function weir_get_experimental(const char *name);

#ifdef __cplusplus
}
#endif
#endif /* WEIR_BASE_H */
