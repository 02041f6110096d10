/* Weir: experimental functions, which weir_get_experimental finds by name, and their types. They are not part of the
 * stable ABI: a later release may change or drop any of them, so an application checks for NULL and struct_size. */
#ifndef WEIR_EXPERIMENTAL_H
#define WEIR_EXPERIMENTAL_H

#include "weir/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What one decode step did in one layer. Every array belongs to the library and is valid during the call. A stream is
 *  the history of one KV head; its table lists the resident pages in ascending position.
 *  @since 1.0 */
typedef struct weir_trace_layer {
    uint32_t struct_size;      /**< sizeof this struct in the library's build. */
    uint32_t layer;            /**< 0 .. layers - 1, ascending within a step. Layers without attention are not counted,
                                    here and wherever a layer has a stream. */
    uint32_t n_tokens;         /**< Positions, the step's token included. */
    uint32_t n_heads;          /**< Query heads. */
    uint32_t n_kv_heads;       /**< Streams of the layer. */
    uint32_t n_lists;          /**< n_kv_heads, or n_heads when every query head attends pages of its own. */
    uint32_t capacity;         /**< Row stride of the arrays below. */
    uint32_t reserved;         /**< 0. */
    const uint32_t *n_pages;   /**< [n_kv_heads] resident pages. */
    const uint32_t *first_pos; /**< [n_kv_heads, capacity] position of a page's first token. */
    const uint32_t *flags;     /**< [n_kv_heads, capacity] 1: never leaves; 2: holds prompt tokens; 4: pinned by the
                                    application, 8: of the conversation's first prompt, which stays pinned. */
    const uint32_t *stamp;     /**< [n_kv_heads, capacity] what the policy remembers of the page. Steps are counted in
                                    positions, their tokens included. raas, hybrid: the last step at which the page
                                    mattered. h2o: the first step whose attention is in its score. tova with
                                    decide=token: first_pos + 1 + the page's marks. Else the step, or the end of the
                                    prompt chunk, that opened the page. */
    const float *score;        /**< [n_kv_heads, capacity] the policy's latest score of the page. */
    const uint32_t *n_listed;  /**< [n_lists] pages that were attended. */
    const uint32_t *listed;    /**< [n_lists, capacity] their table rows, ascending; NULL: all resident pages. */
    const float *mass;         /**< [n_heads, capacity] exact attention mass of each attended page, in list order: its
                                    share of the softmax, in which a model's attention sinks have their part, too. */
} weir_trace_layer;

/** Receives every layer of every decode step, after the step's attention in that layer. Any status but WEIR_OK, or an
 *  exception, makes the step fail with WEIR_ERR_CANCELLED; the token is not appended then, and the logits stay. Pages
 *  that made room for it stay gone and count as evicted, and layers before this one have observed it. On a device all
 *  layers are shown, and have observed it, when the step is done, and the logits before it are gone. Called on the
 *  thread that decodes, its time counts as decoding. It may use everything but the sessions of that step; other
 *  sessions of the same runtime can be stepped, created, destroyed. */
typedef weir_status (*weir_trace_fn)(void *user, const weir_trace_layer *layer);

/** "weir_session_trace": begins or (with NULL) ends tracing of a session that was created with WEIR_SESSION_TRACE;
 *  WEIR_ERR_STATE without. */
typedef weir_status (*weir_session_trace_fn)(weir_session *session, weir_trace_fn fn, void *user);

/** A page that left a stream because of the budget. A stream is the history of one KV head of one layer.
 *  @since 1.0 */
typedef struct weir_page_event {
    uint64_t index;     /**< Number of pages that had left before, all streams of the session; never reset. */
    uint32_t layer;     /**< Layer of the stream. */
    uint32_t kv_head;   /**< KV head of the stream. */
    uint32_t first_pos; /**< Position of the page's first token. */
    uint32_t n_tokens;  /**< Tokens of the page. */
    uint32_t flags;     /**< As in weir_trace_layer; 2: it held prompt tokens. */
    uint32_t left_at;   /**< Positions in the conversation when it left, without those that it made room for. */
} weir_page_event;

/** "weir_session_page_events": pages that left since the last call, oldest first, at most @p capacity; the next call
 *  goes on with the rest.
 *
 *  Every page that leaves is recorded in a ring of events (a device records by itself, without waiting). The ring is
 *  part of the plan; its size is the smallest power of two that gives at least four events to each stream, with a
 *  policy that recalls pages as many as its pool has pages, with one that lets several pages leave at once four and as
 *  many, but at most 2^20. While decoding a stream mostly loses one page in 16 tokens, so a call in every 64 tokens
 *  misses none; where pages come back, a call in every token. More pages may leave at once because of a long prompt, or
 *  in a step after weir_session_unpin. They may overwrite events that nobody has read; if they are more than the ring
 *  holds, the newest are kept, but of one step of a device the first. Events of one stream are in the order in which
 *  its pages left. When several streams lose pages in the same step, their events are in the order of the streams on
 *  the CPU, with recall first those that make room and then those that others replace, and in no order on a device.
 *
 *  Pages that go because tokens are taken back (reset, a prefill that failed or was cancelled) have no events: they did
 *  not leave because of the budget. Pages that were evicted to make room for such a prefill stay gone and have events.
 *  weir_session_reset forgets the events that were not read; they do not count as lost.
 *
 *  @p events [capacity] may be NULL when capacity is 0; @p n_events: how many were written; @p n_lost (may be NULL):
 *  how many before or between them the ring had not kept. WEIR_ERR_INVALID_ARG: NULL; WEIR_ERR_BUSY: another thread is
 *  inside the session; nothing is read then. One thread at a time. It may also be called inside on_token of a
 *  weir_session_generate of this session, on the thread that is in it; called there for every 64th token, it misses
 *  none of a long answer. Allocates nothing. */
typedef weir_status (*weir_session_page_events_fn)(weir_session *session, weir_page_event *events, uint32_t capacity,
                                                   uint32_t *n_events, uint64_t *n_lost);

/** "weir_bench_fill": fills the KV memory with pseudo-random tokens as if they had been decoded, so that a benchmark
 *  reaches a depth at once. On a device the pages of earlier tokens become noise too. */
typedef weir_status (*weir_bench_fill_fn)(weir_session *session, uint32_t n_tokens);

/** What a runtime's device is, and how fast its memory copies; see weir_bench_device_fn.
 *  @since 1.0 */
typedef struct weir_bench_device {
    uint32_t struct_size;   /**< sizeof this struct in the caller's build. Required. */
    int32_t device;         /**< WEIR_DEVICE_*. */
    char name[192];         /**< Name, architecture and driver. */
    double copy_gbps;       /**< Rate of a copy from device memory to device memory, bytes read and written, in units of
                                 10^9 bytes per second, the best of a few. */
    uint64_t free_bytes;    /**< Free device memory at the call. */
    uint64_t library_bytes; /**< Device memory in use that is not the runtime's: the driver's context, and other
                                 processes. */
} weir_bench_device;

/** "weir_bench_device": measures a device. @p device is WEIR_DEVICE_CUDA or WEIR_DEVICE_VULKAN; takes 2 GiB of
 *  device memory meanwhile. */
typedef weir_status (*weir_bench_device_fn)(weir_runtime *runtime, int32_t device, weir_bench_device *out);

/** "weir_bench_profile": seconds that the parts of one decode step take on a device, over all layers: [0] GEMVs, [1]
 *  page scoring, [2] page selection, [3] attention; [4] is 0. Each part is measured alone; the step may take less than
 *  their sum, as parts overlap. A part without a kernel of its own is 0; a kernel that scores, selects and attends
 *  counts as attention. The token and a few more are appended. With attention on the host: of one step, [3] what that
 *  takes and [0] everything else. */
typedef weir_status (*weir_bench_profile_fn)(weir_session *session, weir_token token, double seconds[5]);

#ifdef __cplusplus
}
#endif
#endif /* WEIR_EXPERIMENTAL_H */
