/* Weir: saved sessions. A conversation leaves a session as a stream of bytes, and goes on in another one. */
#ifndef WEIR_SAVE_H
#define WEIR_SAVE_H

#include "weir/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of a saved session, for the callback of weir_session_save.
 *  @since 1.1 */
typedef struct weir_write_info {
    uint32_t struct_size; /**< sizeof this struct in the library's build. */
    uint32_t reserved;    /**< 0. */
    uint64_t offset;      /**< Bytes that earlier calls have taken. */
    uint64_t n_bytes;     /**< Bytes to take, at least 1. */
    const void *data;     /**< [n_bytes], valid during the call. */
} weir_write_info;

/** Takes the next bytes of a saved session, all of them. Any status but WEIR_OK, or an exception, ends the call with
 *  WEIR_ERR_IO. Called on the thread that called weir_session_save; of the session it may read stats and memory,
 *  nothing else. */
typedef weir_status (*weir_write_fn)(void *user, const weir_write_info *info);

/** What weir_session_restore wants next, for its callback.
 *  @since 1.1 */
typedef struct weir_read_info {
    uint32_t struct_size; /**< sizeof this struct in the library's build. */
    uint32_t reserved;    /**< 0. */
    uint64_t offset;      /**< Bytes that earlier calls have given. */
    uint64_t n_bytes;     /**< Bytes wanted, at least 1. Never more than the saved session has from here on. */
    void *data;           /**< [n_bytes] where they go. */
} weir_read_info;

/** Gives the next bytes of a saved session and stores their number at @p n_read. They may be fewer than wanted; 0 means
 *  that there are no more. Any status but WEIR_OK, or an exception, ends the call with WEIR_ERR_IO. Called on the
 *  thread that called weir_session_restore; of the session it may read stats and memory, nothing else. */
typedef weir_status (*weir_read_fn)(void *user, const weir_read_info *info, uint64_t *n_read);

/** Save the conversation as a stream of bytes: tokens, pages with what the policy knows of them, the last logits, the
 *  sampler's options (all but bias, presence and frequency penalty), recent tokens and random state, and the beginning
 *  of a character that generate has not shown.
 *  docs/formats/session.md describes every byte.
 *
 *  The session does not change, and nothing is allocated. The bytes are about as many as the pool's and the spill
 *  store's pages in use, and do not depend on time and threads. Whoever can read them can read the conversation.
 *
 *  @param session in
 *  @param write   takes the bytes, in order
 *  @param user    passed to @p write
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL
 *          WEIR_ERR_IO           @p write refused or threw; the message says at which byte
 *          WEIR_ERR_DEVICE_LOST  the device failed
 *          WEIR_ERR_BUSY         another thread is inside the session
 *  @threads one thread at a time
 *  @owner nothing changes
 *  @since 1.1 */
WEIR_API weir_status weir_session_save(weir_session *session, weir_write_fn write, void *user);

/** Replace the conversation by one that weir_session_save wrote. It goes on as if it had never stopped, also with the
 *  sampling options that were saved; on the device and with the backend of this session, whose results may differ in
 *  rounding. Bias, presence and frequency penalty are not in the file: they stay what weir_session_set_sampling made
 *  them in this session.
 *
 *  Model, policy, its options, context and budget must be those of the saved session; device, threads, batch_tokens,
 *  flags and the sizes of the spill store need not. Where that store is smaller, pages are dropped in the same order as
 *  when it is full, and counted; with WEIR_SPILL_STRICT nothing is restored then. Without recall there need not be a
 *  store: pages that were in the saved session's alone are lost. A conversation that had lost pages takes no tokens in
 *  a strict store (WEIR_ERR_IO) before a rewind to before them. Counters go on from where this session's are; pages
 *  that the saved session had lost count as dropped. In layers with a sliding window, weir_session_rewind cannot go
 *  back to before pages that had left the window. A pending cancel is cleared. Nothing is allocated, and the bytes are
 *  not trusted. Of the conversation that is replaced nothing is left, as after weir_session_reset.
 *
 *  @param session in/out; after an error other than WEIR_ERR_INVALID_ARG and WEIR_ERR_BUSY it is as after
 *                 weir_session_reset
 *  @param read    gives the bytes, in order
 *  @param user    passed to @p read
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL; nothing changed
 *          WEIR_ERR_FORMAT       the bytes are no saved session, or are damaged or incomplete
 *          WEIR_ERR_UNSUPPORTED  a newer format, another model, policy, option, context or budget: the message names
 *                                what differs, with both values
 *          WEIR_ERR_BUDGET       WEIR_SPILL_STRICT, and the spill store has no room for all pages
 *          WEIR_ERR_IO           @p read refused or threw
 *          WEIR_ERR_DEVICE_LOST  the device failed
 *          WEIR_ERR_BUSY         another thread is inside the session; nothing changed
 *  @threads one thread at a time
 *  @owner nothing changes
 *  @since 1.1 */
WEIR_API weir_status weir_session_restore(weir_session *session, weir_read_fn read, void *user);

#ifdef __cplusplus
}
#endif
#endif /* WEIR_SAVE_H */
