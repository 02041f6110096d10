/* Weir: sessions. A session is one conversation: its KV memory under a fixed budget, its sparse policy, its sampler.
 * Longer than 600 lines because every function of a session is described here. */
#ifndef WEIR_SESSION_H
#define WEIR_SESSION_H

#include "weir/model.h"
#include "weir/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/** One conversation. One thread at a time, except where a function says `any thread`. */
typedef struct weir_session weir_session;

/** Bits of weir_session_options.flags. */
enum weir_session_flag_bits {
    WEIR_SESSION_TRACE = 1,         /**< Keep the attention masses of every step for the experimental
                                         weir_session_trace (weir/experimental.h); costs some speed and memory. */
    WEIR_SESSION_HOST_ATTENTION = 2 /**< On a device: keys and values stay in host memory and the processor computes
                                         the attention of steps; the device has the weights and computes everything
                                         else, also most attention of prompts, over pages that pass through it. For
                                         contexts whose keys and values the device has no room for. Every policy and
                                         option works as on the CPU. Models with recurrent layers are refused;
                                         WEIR_DEVICE_AUTO takes the CPU for them. lfps does it without this flag, and
                                         psa with recall=on and a budget below the context. On the CPU it changes
                                         nothing. @since 1.1 */
};

/** Bits of weir_session_options.spill_flags. */
enum weir_spill_flag_bits {
    WEIR_SPILL_STRICT = 1, /**< No page is dropped in silence. A call that would append tokens fails, and appends none,
                                with WEIR_ERR_BUDGET when the pages that they fill have no room; with WEIR_ERR_IO when a
                                page is lost with the spill file, and with WEIR_ERR_FORMAT when one proves to be
                                damaged, and so do all later ones until weir_session_reset. */
    WEIR_SPILL_NO_RAW = 2, /**< All spilled pages are compressed at once. */
    WEIR_SPILL_HALF = 4    /**< On the CPU and with spill_budget_bytes 0, the store gets what makes the session take
                                half of the memory that policy dense would take for the same context. The pages that
                                were wanted the longest ago are dropped for good when it is full. Where the store would
                                then be smaller than the pool, the pool holds the whole context instead, and nothing is
                                stored. Attention on the host counts as the CPU; with attention on a device it
                                changes nothing. @since 1.1 */
};

/** Formats of the keys and values in the KV pages. What they cost in accuracy is measured in docs/results/formats.
 *  Formats but WEIR_KV_BF16 need heads of a multiple of 32 elements. Vulkan has no attention over them: it needs
 *  WEIR_SESSION_HOST_ATTENTION, and WEIR_DEVICE_AUTO takes another device or the CPU. */
enum weir_kv_format {
    WEIR_KV_BF16 = 0, /**< 16 bits an element. */
    WEIR_KV_Q8 = 1,   /**< 8.5 bits: signed bytes, and a scale for every 32 elements of a token. */
    WEIR_KV_K8V4 = 2, /**< 6.5 bits: keys as in WEIR_KV_Q8; values in 4.5 bits, after a rotation by a Hadamard matrix
                           that is taken back behind attention. */
    WEIR_KV_K4V4 = 3  /**< 5.25 bits: keys in 4 bits, with the range of every channel over the 16 tokens of a page;
                           values as in WEIR_KV_K8V4. Attended on the processor only, also beside a device
                           (WEIR_SESSION_HOST_ATTENTION). */
};

/** Options of weir_plan and weir_session_create.
 *  @since 1.0 */
typedef struct weir_session_options {
    uint32_t struct_size;                 /**< sizeof this struct in the caller's build. Required. */
    uint32_t flags;                       /**< WEIR_SESSION_*. */
    int32_t device;                       /**< WEIR_DEVICE_*. Default WEIR_DEVICE_AUTO. */
    uint32_t context_tokens;              /**< Most positions the conversation may reach. 0 (default): what the model
                                               was trained for. */
    uint32_t batch_tokens;                /**< Tokens of one prefill chunk, 1..4096. Default 512, less when the context
                                               is smaller. */
    uint32_t page_tokens;                 /**< Tokens of one KV page. Only 16 (default) exists. */
    uint32_t budget_tokens;               /**< KV budget in tokens per (layer, kv head) stream. 0 (default): the whole
                                               context. */
    uint32_t max_prompt_tokens;           /**< Longest prompt to plan for where a policy keeps prompts beyond the
                                               budget. Default 0. */
    uint64_t budget_bytes;                /**< KV budget in bytes for all streams together, instead of budget_tokens: as
                                               many tokens per stream as fit into it. A policy that keeps more than its
                                               budget (quest, hybrid, dense layers of h2o and tova) takes more, as the
                                               plan shows. 0 (default): not used. */
    uint64_t spill_budget_bytes;          /**< Host memory for pages outside the KV pool, at least one page of each
                                               stream that the budget rules. With recall (arkvale, and raas, hybrid
                                               and psa with recall=on) steps bring pages back from it, 0 (default) is
                                               what the whole context needs at worst, and when it is full, pages move
                                               to the spill file. Without one, or when that is full too, those that
                                               were wanted the longest ago are dropped for good. 0 is never more than
                                               half of the memory of the machine, or of the container's limit.
                                               spill_tokens of the plan says what is held for sure. Other policies
                                               that let pages go keep copies there, which no step reads, on the CPU
                                               only, and 0 (default) keeps none. */
    const char *policy;                   /**< "dense" (also NULL, default), "sink", "h2o", "tova", "quest", "raas",
                                               "hybrid", "random", "arkvale", "psa", "lfps",
                                               "keyformer", "scissorhands". Copied. */
    const weir_key_value *policy_options; /**< [n_policy_options] options of the policy, docs/policies.md. Copied; the
                                               file of heads_file is only read in the call. */
    uint32_t n_policy_options;            /**< Count of policy_options. */
    uint32_t reserved;                    /**< 0. */
    uint64_t spill_raw_bytes;             /**< The part of spill_budget_bytes for uncompressed pages, all but
                                               those that were wanted the longest ago. 0 (default): all of it if it
                                               holds the whole context so, else as much as leaves room for the other
                                               pages at four fifths of their bytes, at least a quarter. @since 1.1 */
    const char *spill_path;               /**< Path (UTF-8) of a file of spill_file_bytes for the pages that
                                               spill_budget_bytes have no room for. Nothing may be there: the file is
                                               created, and its name removed at once. Used while the session is
                                               created, and for its forks: a relative one means the folder that is
                                               current in weir_session_create. NULL (default): no file. @since 1.1 */
    uint64_t spill_file_bytes;            /**< Size of that file, reserved on the disk at once. 0 (default): no file.
                                               @since 1.1 */
    uint32_t spill_flags;                 /**< WEIR_SPILL_*. @since 1.1 */
    uint32_t reserved_spill;              /**< 0. @since 1.1 */
    uint64_t snapshot_budget_bytes;       /**< Host memory for snapshots of the state of recurrent layers, at least one
                                               of them (weir_plan_info.snapshot_bytes / n_snapshots). A conversation
                                               goes back to a snapshot, and reads again from there. 0 (default): four.
                                               Not read for models that have attention in every layer. @since 1.1 */
    uint32_t snapshot_tokens;             /**< There is a snapshot at every multiple of so many tokens, 16 or more, and
                                               where prompts begin and end, as many as have room, at most 1,024. Those
                                               of the last prompt stay however long the answer is. With room for one,
                                               that of its end does. 0 (default): 1,024. @since 1.1 */
    int32_t kv_format;                    /**< WEIR_KV_*: what keys and values are stored in. WEIR_KV_BF16 (0) is the
                                               default. Budgets in bytes hold more tokens in smaller formats.
                                               @since 1.1 */
} weir_session_options;

/** Static initialiser of weir_session_options. */
#define WEIR_SESSION_OPTIONS_INIT \
    { (uint32_t)sizeof(weir_session_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** The exact bytes of every pool of a session, known before anything is allocated.
 *  @since 1.0 */
typedef struct weir_plan_info {
    uint32_t struct_size;        /**< sizeof this struct in the caller's build. Required. */
    uint32_t context_tokens;     /**< Most positions. */
    uint32_t budget_tokens;      /**< Tokens of one stream that fit: pages_per_stream * page_tokens. */
    uint32_t page_tokens;        /**< Tokens of a page. */
    uint32_t pages_per_stream;   /**< Pages a stream can hold; streams of layers that a policy leaves dense hold the
                                      context. */
    uint32_t n_streams;          /**< Layers with attention times KV heads. */
    uint64_t page_bytes;         /**< Bytes of one page. */
    uint64_t weights_bytes;      /**< Weights in the file, mapped and shared by all sessions; not in total_bytes. */
    uint64_t kv_bytes;           /**< Resident KV pages. */
    uint64_t digest_bytes;       /**< Page digests. */
    uint64_t table_bytes;        /**< Page tables, stamps, scores, free lists; on the CPU also the ring of page
                                      events. */
    uint64_t workspace_bytes;    /**< Activations, logits, partial results of attention. */
    uint64_t sampler_bytes;      /**< Sampler state, and the tokens of the conversation that are kept
                                      (weir_session_tokens). */
    uint64_t session_bytes;      /**< The session object itself. */
    uint64_t staging_bytes;      /**< Host memory that a device copies from and to: the host's page tables and the ring
                                      of page events, or with attention on the host activations, and two parts of a
                                      layer's pages on their way. 0 on the CPU. A Vulkan driver gives it, not the host
                                      hooks, and it is counted like theirs. */
    uint64_t spill_bytes;        /**< Host memory of the store of pages outside the KV pool: its pages, the queue to
                                      its compression and all that this needs. Else 0. A Vulkan driver gives the part
                                      for uncompressed pages, as it gives staging_bytes. */
    uint64_t library_bytes;      /**< What vendor libraries reserve; 0, as no backend of this version uses one. */
    uint64_t total_bytes;        /**< All of the session's own memory: the sum of the fields from kv_bytes to
                                      library_bytes, recurrent_bytes and snapshot_bytes. */
    uint64_t device_bytes;       /**< The part of total_bytes on the device: pages, digests, tables, workspace and
                                      recurrent_bytes. With attention on the host, part of workspace_bytes. 0 on the
                                      CPU. @since 1.0 */
    uint64_t device_weights_bytes; /**< Device memory of the weights, shared by all sessions of the model there; not in
                                        total_bytes. @since 1.0 */
    int32_t device;              /**< WEIR_DEVICE_* that the session will run on. @since 1.0 */
    uint32_t reserved;           /**< 0. */
    uint32_t n_window_streams;   /**< Those of the n_streams in layers with a sliding window of their own. @since 1.0 */
    uint32_t window_pages_per_stream; /**< Pages that such a stream can hold instead of pages_per_stream, whatever the
                                           policy and the budget: those of the window and of a prompt chunk of
                                           batch_tokens. @since 1.0 */
    uint64_t window_kv_bytes;    /**< The part of kv_bytes for pages of such streams. @since 1.0 */
    uint64_t spill_file_bytes;   /**< Size of the spill file; not in total_bytes. @since 1.1 */
    uint32_t n_head_streams;     /**< Those of the n_streams whose KV heads the option heads makes hold the first tokens
                                      and a window. @since 1.1 */
    uint32_t head_pages_per_stream; /**< Pages that such a stream can hold, whatever the policy and the budget: those of
                                         the first tokens, of the window and of a prompt chunk of batch_tokens.
                                         @since 1.1 */
    uint64_t head_kv_bytes;      /**< The part of kv_bytes for pages of such streams. @since 1.1 */
    uint64_t spill_raw_bytes;    /**< The part of spill_bytes for pages as they are. @since 1.1 */
    uint64_t spill_compressed_bytes; /**< The part of spill_bytes for compressed pages. @since 1.1 */
    uint32_t spill_tokens;       /**< Positions whose pages the store and its file hold whatever is in them. With fewer
                                      than context_tokens, pages may be dropped for good, those first that were wanted
                                      the longest ago. 0 without a store. @since 1.1 */
    uint32_t reserved_spill;     /**< 0. @since 1.1 */
    uint64_t recurrent_bytes;    /**< State of recurrent layers, twice: of now, and what the next step writes. It does
                                      not grow with the conversation. @since 1.1 */
    uint64_t snapshot_bytes;     /**< Host memory of n_snapshots copies of that state. @since 1.1 */
    uint32_t n_snapshots;        /**< How many places of the conversation are kept to go back to, besides its
                                      beginning. 0 where every layer has attention. @since 1.1 */
    uint32_t snapshot_tokens;    /**< weir_session_options.snapshot_tokens, or its default. 0 where every layer has
                                      attention. @since 1.1 */
} weir_plan_info;

/** Static initialiser of weir_plan_info. */
#define WEIR_PLAN_INFO_INIT \
    { (uint32_t)sizeof(weir_plan_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
      0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Memory of a live session.
 *  @since 1.0 */
typedef struct weir_memory_info {
    uint32_t struct_size;           /**< sizeof this struct in the caller's build. Required. */
    uint32_t reserved;              /**< 0. */
    uint64_t plan_bytes;            /**< weir_plan_info.total_bytes of this session. */
    uint64_t bytes;                 /**< Allocated now. */
    uint64_t peak_bytes;            /**< Highest value so far. */
    uint64_t kv_budget_bytes;       /**< Size of the KV pool. */
    uint64_t kv_bytes;              /**< Bytes of the pages that hold tokens now. */
    uint64_t kv_peak_bytes;         /**< Highest value so far. */
    uint64_t n_allocs;              /**< Allocations of this session. */
    uint64_t allocs_while_decoding; /**< Allocations made after create, also of device memory; Weir promises 0. */
    uint64_t device_bytes;          /**< The part of bytes that is memory of the device. @since 1.0 */
} weir_memory_info;

/** Static initialiser of weir_memory_info. */
#define WEIR_MEMORY_INFO_INIT { (uint32_t)sizeof(weir_memory_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Counters of a session since its creation (weir_session_reset keeps them).
 *  @since 1.0 */
typedef struct weir_session_stats {
    uint32_t struct_size;      /**< sizeof this struct in the caller's build. Required. */
    uint32_t n_tokens;         /**< Positions now in the conversation. */
    uint64_t n_prompt;         /**< Tokens that went through prefill. */
    uint64_t n_decode;         /**< Tokens that went through step or generate. */
    uint64_t pages_resident;   /**< Pages that hold tokens now, all streams. */
    uint64_t pages_resident_max; /**< Highest value so far. */
    uint64_t pages_evicted;    /**< Pages that left because of the budget, each as often as it left. */
    uint64_t pages_spilled;    /**< Those of pages_evicted that were kept in host memory and not dropped. */
    uint64_t pages_recalled;   /**< Times that a page came back from there. */
    uint64_t pages_dropped;    /**< Pages that are gone for good. */
    uint64_t prefill_ns;       /**< Time inside prefill. */
    uint64_t decode_ns;        /**< Time of decode steps and of drawing tokens in generate, without the callback. */
    uint64_t pages_attended;   /**< Pages that the latest decode step attended, all streams; a page counts once for each
                                    list that contains it. @since 1.0 */
    uint64_t pages_cold;       /**< Pages that are now in host memory alone. @since 1.0 */
    uint64_t spill_stored_bytes; /**< Host memory that spilled pages take now, copies of resident pages included.
                                      @since 1.0 */
    uint64_t recall_ns;        /**< The part of decode_ns in which pages came back. @since 1.0 */
    uint64_t spill_waits;      /**< Times that a page had to wait for the compression of others. @since 1.0 */
    uint64_t spill_errors;     /**< Spilled pages that proved to be damaged, and 1 when the spill file was given up
                                    because reading or writing failed. Such pages count as dropped. @since 1.0 */
    uint64_t spill_pages_raw;  /**< Spilled pages that are uncompressed now, copies of resident pages included.
                                    @since 1.1 */
    uint64_t spill_restored;   /**< Times that a compressed page was restored to be read. @since 1.1 */
} weir_session_stats;

/** Static initialiser of weir_session_stats. */
#define WEIR_SESSION_STATS_INIT \
    { (uint32_t)sizeof(weir_session_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** What is added to the logit of a token before anything else looks at it.
 *  @since 1.1 */
typedef struct weir_token_bias {
    weir_token token; /**< An id of the model. */
    float bias;       /**< -100..100; -100 forbids the token. Of several for one token the sum is added. */
} weir_token_bias;

/** Where a page of a conversation is: in how many of weir_plan_info.n_streams streams.
 *  @since 1.1 */
typedef struct weir_page_state {
    uint16_t resident; /**< In the KV pool. */
    uint16_t cold;     /**< In host memory or the spill file alone. */
    uint16_t lost;     /**< Nowhere: dropped, or behind a sliding window. The three make up all streams. */
    uint16_t pinned;   /**< Streams where it may not leave: pinned by the application, or by the policy as a
                            prompt. */
} weir_page_state;

/** How the next token is drawn. Applied in this order: bias, repetition penalty, frequency and presence penalty,
 *  temperature, top-k, top-p, min-p.
 *  @since 1.0 */
typedef struct weir_sampling_options {
    uint32_t struct_size;   /**< sizeof this struct in the caller's build. Required. */
    uint32_t top_k;         /**< Keep the k most probable tokens; 0 (default): all. */
    float temperature;      /**< 0 (default): greedy, the most probable token, the lowest id on a tie. At most 100. */
    float top_p;            /**< Keep the smallest set with this probability; (0, 1]; 0 (default) means 1, off. */
    float min_p;            /**< Drop tokens less probable than this fraction of the best; [0, 1). Default 0, off. */
    float repeat_penalty;   /**< Divides positive logits (multiplies negative ones) of recent tokens; 0 (default) means
                                 1, off. At most 100. */
    uint32_t repeat_last_n; /**< Recent tokens that the penalty looks at, at most 4096; 0 (default): 64. */
    uint32_t reserved;      /**< 0. */
    uint64_t seed;          /**< Same seed, same options, same logits: same tokens. Default 0. */
    float presence_penalty;  /**< Taken from the logits of the recent tokens, of those that repeat_last_n says; -2..2,
                                  below 0 they become likelier. Default 0. @since 1.1 */
    float frequency_penalty; /**< The same, as often as each is among them. Default 0. @since 1.1 */
    const weir_token_bias *bias; /**< [n_bias], copied. NULL (default): none. @since 1.1 */
    uint32_t n_bias;         /**< At most 1024. @since 1.1 */
    uint32_t reserved2;      /**< 0. @since 1.1 */
} weir_sampling_options;

/** Static initialiser of weir_sampling_options. */
#define WEIR_SAMPLING_OPTIONS_INIT { (uint32_t)sizeof(weir_sampling_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Why an answer ended. */
enum weir_stop_reason {
    WEIR_STOP_NONE = 0,     /**< It failed before the first token. */
    WEIR_STOP_EOS = 1,      /**< The model ended its answer. */
    WEIR_STOP_LENGTH = 2,   /**< max_tokens were generated. */
    WEIR_STOP_CONTEXT = 3,  /**< The context is full. */
    WEIR_STOP_CANCELLED = 4, /**< weir_session_cancel or the callback. */
    WEIR_STOP_ERROR = 5,     /**< The call failed; its status says why. */
    WEIR_STOP_STRING = 6,    /**< One of the texts of weir_generate_options.stop came. @since 1.1 */
    WEIR_STOP_TOOL_CALL = 7, /**< With WEIR_GENERATE_STOP_AT_CALL: one or more whole calls of tools came. @since 1.1 */
    WEIR_STOP_CONSTRAINT = 8 /**< The constraint lets no further token follow: the text is complete by it; or a mask
                                  allows none (weir/constraint.h). @since 1.1 */
};

/** A token and how probable it was.
 *  @since 1.1 */
typedef struct weir_logprob {
    weir_token token; /**< The token. */
    float logprob;    /**< Natural logarithm of its probability by the model's logits alone: before bias, penalties,
                           temperature and cuts. */
} weir_logprob;

/** One generated token, for the callback of weir_session_generate.
 *  @since 1.0 */
typedef struct weir_token_event {
    uint32_t struct_size; /**< sizeof this struct in the library's build. */
    weir_token token;     /**< The token; -1 in a last event that only brings text which no token can complete any
                               more. */
    uint32_t index;       /**< 0 for the first token of this call. */
    uint32_t n_tokens;    /**< Positions in the conversation before this token is appended. */
    const char *text;     /**< Text that is now complete, whole UTF-8 sequences, NUL-terminated, perhaps empty; valid
                               during the call. */
    uint64_t text_bytes;  /**< Its length. */
    float logprob;           /**< As of weir_event. @since 1.1 */
    uint32_t n_top;          /**< As of weir_event. @since 1.1 */
    const weir_logprob *top; /**< As of weir_event; valid during the call. @since 1.1 */
} weir_token_event;

/** Receives each generated token. Any status but WEIR_OK, or an exception, stops the call with WEIR_ERR_CANCELLED after
 *  that token, also in the last event. A token whose step then fails (a trace callback refuses it, the device is lost,
 *  or a spilled page with WEIR_SPILL_STRICT) was shown, but is not part of the conversation and not counted. Called on
 *  the thread that called weir_session_generate; of the session it may read stats, memory and, on that thread, the
 *  experimental weir_session_page_events, and it may cancel; nothing else. */
typedef weir_status (*weir_token_fn)(void *user, const weir_token_event *event);

/** Bits of weir_generate_options.flags. */
enum weir_generate_flag_bits {
    WEIR_GENERATE_SPECIAL_TEXT = 1, /**< Control tokens appear in the events' text. */
    WEIR_GENERATE_IGNORE_EOS = 2,   /**< Go on after tokens that end an answer. */
    WEIR_GENERATE_STOP_AT_CALL = 4  /**< After calls of tools, end before the first token that is no part of them, which
                                         is not appended, or with the token that ends the answer: WEIR_STOP_TOOL_CALL.
                                         WEIR_ERR_UNSUPPORTED where the model's way of writing calls is not known
                                         (weir_chat_info.tool_format). @since 1.1 */
};

/** A text with its length; need not end with NUL.
 *  @since 1.1 */
typedef struct weir_text {
    const char *text; /**< UTF-8. */
    uint64_t bytes;   /**< Its length. */
} weir_text;

/** Options of weir_session_generate and weir_session_begin.
 *  @since 1.0 */
typedef struct weir_generate_options {
    uint32_t struct_size;   /**< sizeof this struct in the caller's build. Required. */
    uint32_t flags;         /**< WEIR_GENERATE_*. */
    uint32_t max_tokens;    /**< Most tokens of this call; 0 (default): as many as the context holds. */
    uint32_t reserved;      /**< 0. */
    weir_token_fn on_token; /**< NULL (default): none. */
    void *user;             /**< Passed to on_token. */
    const weir_text *stop;  /**< [n_stop] texts of 1 to 256 bytes. The first that is complete ends the answer, wherever
                                 its tokens begin and end: its text is not shown, its tokens stay in the conversation,
                                 and text that may be the beginning of one is shown later, at the latest with the end
                                 of the call or answer. Only text counts that would be shown, and of one call or one
                                 begun answer: for pieces of an answer use weir_session_next. NULL (default): none.
                                 @since 1.1 */
    uint32_t n_stop;        /**< At most 16. @since 1.1 */
    uint32_t n_top;         /**< Events tell the log-probability of their token, and this many of the most probable
                                 tokens, 0..64. 0 (default): neither. A GPU sends these and sums, not all logits.
                                 @since 1.1 */
    uint32_t min_tokens;    /**< Before there are so many tokens, none is drawn that ends an answer
                                 (WEIR_TOKEN_END_OF_GENERATION), also with WEIR_GENERATE_IGNORE_EOS. Stop strings,
                                 max_tokens and the context end it all the same. Default 0. @since 1.1 */
    uint32_t thinking_budget; /**< After so many tokens of thought its end is appended as if it had been drawn:
                                   thinking_close, then the tag. 0 (default): no limit. WEIR_ERR_UNSUPPORTED where the
                                   model has no tags of thoughts (weir_chat_info.thought_end). @since 1.1 */
    const char *thinking_close; /**< Text that is appended before the tag where a thought is ended early, also by
                                     weir_session_finish_thinking: at most 1,024 bytes of UTF-8, NUL-terminated. Copied.
                                     Models often go on thinking aloud without one. NULL (default): none.
                                     WEIR_ERR_UNSUPPORTED as above. @since 1.1 */
} weir_generate_options;

/** Static initialiser of weir_generate_options. */
#define WEIR_GENERATE_OPTIONS_INIT { (uint32_t)sizeof(weir_generate_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Result of weir_session_generate.
 *  @since 1.0 */
typedef struct weir_generate_result {
    uint32_t struct_size;  /**< sizeof this struct in the caller's build. Required. */
    int32_t stop;          /**< WEIR_STOP_*. */
    uint32_t n_tokens;     /**< Tokens generated, without the one that ended the answer. */
    weir_token last_token; /**< The token that ended the answer, or the last one; -1 when there was none. */
    int32_t stop_index;    /**< Which of the texts of WEIR_STOP_STRING it was; otherwise -1. @since 1.1 */
    uint32_t reserved;     /**< 0. */
} weir_generate_result;

/** Static initialiser of weir_generate_result. */
#define WEIR_GENERATE_RESULT_INIT { (uint32_t)sizeof(weir_generate_result), 0, 0, -1, -1, 0 }

/** What the text of an event is part of, by the tags of the model's chat template, or if it has none of its vocabulary.
 *  @since 1.1 */
enum weir_segment {
    WEIR_SEGMENT_ANSWER = 0,    /**< What the model says. All of it where the model has no tags. */
    WEIR_SEGMENT_THOUGHT = 1,   /**< A thought, also one that the prompt has opened. */
    WEIR_SEGMENT_TOOL_CALL = 2, /**< A call of a tool as the model writes it, with the text of control tokens. */
    WEIR_SEGMENT_MARK = 3       /**< A tag that begins or ends one of these, or what names it. Its text is given with
                                     WEIR_GENERATE_SPECIAL_TEXT alone. */
};

/** What an event of an answer is. */
enum weir_event_kind {
    WEIR_EVENT_TOKEN = 0, /**< A token, and the text that is complete with it, perhaps none. */
    WEIR_EVENT_TEXT = 1,  /**< Text without a token: it was held back for a stop string or because it could have become
                               a tag, belongs to another segment than the text before it, or no token completes it. */
    WEIR_EVENT_END = 2    /**< The answer has ended. */
};

/** One event of an answer, from weir_session_next.
 *  @since 1.1 */
typedef struct weir_event {
    uint32_t struct_size; /**< sizeof this struct in the caller's build. Required. */
    int32_t kind;         /**< WEIR_EVENT_*. */
    weir_token token;     /**< The token; of an end the one that ended the answer, which is not appended; else -1. */
    uint32_t index;       /**< Number of the token in this answer, from 0; of other events how many there were. */
    uint32_t n_tokens;    /**< Positions in the conversation, with this token. */
    int32_t stop;         /**< Why the answer ended: WEIR_STOP_*; WEIR_STOP_NONE of other events. */
    int32_t stop_index;   /**< Which of the texts of WEIR_STOP_STRING it was; otherwise -1. */
    int32_t segment;      /**< WEIR_SEGMENT_*: what the text is part of, or without text what the token is. */
    const char *text;     /**< Whole UTF-8 sequences, NUL-terminated, perhaps empty; valid until the session's next
                               call. */
    uint64_t text_bytes;  /**< Its length. */
    float logprob;        /**< That of weir_logprob. NaN of other events and where n_top of the options
                               is 0. */
    uint32_t n_top;       /**< Entries at top: n_top of the options, or all tokens if these are fewer; of other events
                               0. */
    const weir_logprob *top; /**< [n_top], the most probable first, of equals the lower id; the token itself need not be
                                  among them. NULL where n_top is 0. Valid until the session's next call. */
} weir_event;

/** Static initialiser of weir_event. */
#define WEIR_EVENT_INIT { (uint32_t)sizeof(weir_event), 0, -1, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0 }

/** Fill @p options with the defaults of the library that is loaded.
 *
 *  @param options     out; its first @p struct_size bytes are written
 *  @param struct_size sizeof(weir_session_options) in the caller's build
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL, or a size below 8; nothing written
 *  @threads any thread
 *  @owner the caller
 *  @since 1.0 */
WEIR_API weir_status weir_session_options_init(weir_session_options *options, uint32_t struct_size);

/** Choose policy, budget and policy options by the name of a preset (docs/policies.md).
 *
 *  Sets policy, policy_options and n_policy_options; also budget_tokens, unless a budget is set already, and
 *  WEIR_SPILL_HALF of spill_flags. Other fields stay.
 *
 *  @param name    in, such as "reason-fixed"
 *  @param options in/out, struct_size set by the caller and large enough for n_policy_options
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL or a bad struct_size; nothing changed
 *          WEIR_ERR_NOT_FOUND    no such preset; the message lists the valid ones; nothing changed
 *          WEIR_ERR_UNSUPPORTED  the preset needs a method that this version lacks; nothing changed
 *  @threads any thread
 *  @owner the texts that the options then point to are static
 *  @since 1.0 */
WEIR_API weir_status weir_session_options_preset(const char *name, weir_session_options *options);

/** Fill @p options with the defaults of the library that is loaded.
 *
 *  @param options     out; its first @p struct_size bytes are written
 *  @param struct_size sizeof(weir_sampling_options) in the caller's build
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL, or a size below 8; nothing written
 *  @threads any thread
 *  @owner the caller
 *  @since 1.0 */
WEIR_API weir_status weir_sampling_options_init(weir_sampling_options *options, uint32_t struct_size);

/** Fill @p options with the defaults of the library that is loaded.
 *
 *  @param options     out; its first @p struct_size bytes are written
 *  @param struct_size sizeof(weir_generate_options) in the caller's build
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL, or a size below 8; nothing written
 *  @threads any thread
 *  @owner the caller
 *  @since 1.0 */
WEIR_API weir_status weir_generate_options_init(weir_generate_options *options, uint32_t struct_size);

/** Compute the exact number of bytes that a session with these options takes. Allocates nothing from the hooks.
 *
 *  @param model   in
 *  @param options in, NULL for all defaults
 *  @param plan    in/out, struct_size set by the caller
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL, a bad struct_size, an option out of range or contradicting another; or several
 *                                devices have the name that vulkan_device is, the message lists all
 *          WEIR_ERR_NOT_FOUND    no such policy or policy option, or no device that vulkan_device names; the message
 *                                lists the valid ones
 *          WEIR_ERR_BUDGET       the budget is below what the policy needs; the message names the minimum
 *          WEIR_ERR_UNSUPPORTED  a device or feature that this build or this machine lacks, or a second Vulkan device
 *                                in the process, the message names both
 *          WEIR_ERR_STATE        the model was opened without its weights, WEIR_MODEL_VOCAB_ONLY or
 *                                WEIR_MODEL_DESCRIBE_ONLY
 *          WEIR_ERR_DEVICE_LOST  the device failed earlier in this process
 *  @threads immutable
 *  @owner the caller owns @p plan
 *  @since 1.0 */
WEIR_API weir_status weir_plan(const weir_model *model, const weir_session_options *options, weir_plan_info *plan);

/** Choose what is 0 of context_tokens, the budget and spill_budget_bytes, so that the plan takes at most @p bytes; what
 *  is set stays.
 *
 *  Options that fit as they are stay so. Otherwise the whole context comes first, as long as the budget holds 256
 *  tokens, or what the policy needs if that is more; with recall the pool then gets up to half of the bytes and the
 *  store the rest. Where even that is too much, the context gets shorter, down to 512 tokens, with as much budget as
 *  then fits. Not counted are the model's weights, as in weir_plan_info.total_bytes.
 *
 *  @param model   in
 *  @param bytes   the most that weir_plan_info.total_bytes of the result may be
 *  @param options in/out, struct_size set by the caller and large enough for spill_budget_bytes; policy and its options
 *                 are set before, also by weir_session_options_preset
 *  @return WEIR_OK
 *          WEIR_ERR_BUDGET  the least is more than @p bytes, the message names it; nothing changed
 *          Other errors as of weir_plan; nothing changed
 *  @threads immutable
 *  @owner the caller owns @p options
 *  @since 1.1 */
WEIR_API weir_status weir_session_options_fit(const weir_model *model, uint64_t bytes, weir_session_options *options);

/** Name of policy number @p index, such as "raas": the values of weir_session_options.policy.
 *
 *  @param index from 0
 *  @return a static string, NULL behind the last
 *  @threads any thread
 *  @owner the library; valid until it is unloaded
 *  @since 1.1 */
WEIR_API const char *weir_policy_name(uint32_t index);

/** Name of preset number @p index, such as "reason-fixed": the names that weir_session_options_preset takes.
 *
 *  @param index from 0
 *  @return a static string, NULL behind the last
 *  @threads any thread
 *  @owner the library; valid until it is unloaded
 *  @since 1.1 */
WEIR_API const char *weir_preset_name(uint32_t index);

/** Create a session. Allocates exactly the bytes that weir_plan computes, or fails.
 *
 *  @param model   in
 *  @param options in, NULL for all defaults
 *  @param out     out, the handle; NULL after a failure
 *  @return WEIR_OK, the errors of weir_plan, or
 *          WEIR_ERR_OUT_OF_MEMORY  the message names the bytes; nothing stays allocated, except the model's weights on
 *                                  a device if they did fit
 *          WEIR_ERR_IO             the spill file cannot be created, or its bytes not reserved; the message names path
 *                                  and bytes; no file is left behind
 *  @threads any thread
 *  @owner the caller; weir_session_destroy. The session keeps @p model alive.
 *  @since 1.0 */
WEIR_API weir_status weir_session_create(weir_model *model, const weir_session_options *options, weir_session **out);

/** Create a second session that goes on where this one is.
 *
 *  The fork has the options, the device and the conversation of @p session: pages in the pool and outside of it,
 *  logits, tokens, sampling options, the sampler's random state, text that is not complete yet, pins, counters, unread
 *  page events. From then on each computes what a session of that history computes, whatever the other does, also after
 *  the other was destroyed. A trace callback, a pending cancel and an answer that runs stay with @p session.
 *
 *  The fork takes what weir_plan says for the options, for itself: its own pool, its own spill memory of the same size,
 *  and if the session has a spill file a new one at the same path. What is in the pool is copied. Pages outside of it
 *  count in both sessions, each within its own limits, but their bytes are there once: they are copied to a fork's own
 *  memory or file when the session that has them needs their room, or is destroyed. So creating a fork is fast, its
 *  spill memory becomes resident as it is used, and destroying a session copies what its forks still share with it.
 *  Where a spill file fails, a session may lose pages that it shares, as it loses those in its own file. Afterwards
 *  neither session allocates.
 *
 *  @param session in; it waits until pages that are being compressed are, and does not change otherwise
 *  @param out     out, the handle; NULL after a failure
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG    NULL
 *          WEIR_ERR_BUSY           another thread is inside the session
 *          WEIR_ERR_OUT_OF_MEMORY  the message names the bytes; nothing stays allocated
 *          WEIR_ERR_IO             a spill file could not be created, read or written
 *          WEIR_ERR_DEVICE_LOST    the device failed; destroy the session
 *  @threads one thread at a time for @p session; the fork is a session of its own
 *  @owner the caller; weir_session_destroy. The fork keeps the model alive.
 *  @since 1.1 */
WEIR_API weir_status weir_session_fork(weir_session *session, weir_session **out);

/** Destroy a session. No other call may be inside it.
 *
 *  The host memory that held the conversation is wiped before it goes back to the allocator: tokens, text, logits, what
 *  steps and prompts computed with, pages and their copies. Not wiped are memory of a device, and the blocks of a spill
 *  file, which has no name and ends with the session.
 *
 *  @param session in, NULL is allowed
 *  @return nothing
 *  @threads one thread at a time
 *  @owner ends the caller's ownership
 *  @since 1.0 */
WEIR_API void weir_session_destroy(weir_session *session);

/** Forget the conversation: all pages are free, position 0, the sampler's random state starts anew, a pending cancel is
 *  cleared. Sampling options and counters stay.
 *
 *  The session then does what a new one does, and nothing of the conversation can come into the next one. The host
 *  memory of tokens, text, logits, pages and their copies is wiped, as by weir_session_restore; that of a page that
 *  leaves the pool, as soon as it leaves. Memory that a device copies from and to is wiped by weir_session_destroy.
 *
 *  @param session in/out
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL
 *          WEIR_ERR_BUSY         another thread is inside the session; nothing changed
 *  @threads one thread at a time
 *  @owner nothing changes
 *  @since 1.0 */
WEIR_API weir_status weir_session_reset(weir_session *session);

/** Append prompt tokens, many at a time, and compute the logits after the last.
 *
 *  Tokens fed here are prompt for the policy, in any turn of the conversation. Allocates nothing.
 *
 *  @param session       in/out
 *  @param tokens        in, [n_tokens] ids in [0, vocab_size)
 *  @param n_tokens      at least 1
 *  @param progress      progress in tokens, and cancel; NULL for none
 *  @param progress_user passed to @p progress
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG   NULL, no tokens, an id out of range; nothing changed
 *          WEIR_ERR_CONTEXT_FULL  more tokens than the context has room for; nothing changed; the message says how many
 *                                 would fit
 *          WEIR_ERR_BUDGET        more tokens than the policy can hold; nothing changed; the message says how many
 *                                 would fit. With WEIR_SPILL_STRICT also: the spill store is full
 *          WEIR_ERR_IO            with WEIR_SPILL_STRICT: the spill file failed. Or it failed while tokens were taken
 *                                 back, and a page that had to come back is lost: the conversation before the prompt
 *                                 ends at an earlier page, as n_tokens of the stats tells, or lacks a page as after a
 *                                 lossy rewind; there are no logits
 *          WEIR_ERR_FORMAT        with WEIR_SPILL_STRICT: a spilled page is damaged. After these three tokens are taken
 *                                 back as after a cancel; other pages may be in the pool than before
 *          WEIR_ERR_BUSY          another thread is inside the session; nothing changed
 *          WEIR_ERR_CANCELLED     weir_session_cancel, or @p progress refused or threw. n_tokens of the stats is as
 *                                 before, and so are the logits, unless a long prompt made the policy drop prompt
 *                                 pages, or pages left the window of a sliding-window layer or cannot be read: then
 *                                 whole chunks stay, n_tokens says how many tokens, and there are no logits before the
 *                                 next prefill or step. Pages of answers that were evicted to make
 *                                 room stay gone and count in pages_evicted. What h2o and tova observed of the
 *                                 cancelled tokens stays in their scores
 *  @threads one thread at a time
 *  @owner the caller owns @p tokens
 *  @since 1.0 */
WEIR_API weir_status weir_session_prefill(weir_session *session, const weir_token *tokens, uint64_t n_tokens,
                                          weir_progress_fn progress, void *progress_user);

/** Bits of the flags of weir_session_rewind. */
enum weir_rewind_flag_bits {
    WEIR_REWIND_LOSSY = 1 /**< Go back although pages of the tokens that stay are lost. */
};

/** Go back to the first @p n_tokens of the conversation, as if the tokens after them had never come.
 *
 *  The next prompt or step continues there. Where no page has been evicted, and under arkvale also where evicted pages
 *  can come back, dense, quest and arkvale with attend=top and recall_pages=0 then compute the bits of a session that
 *  never went further. With a kv_format but WEIR_KV_BF16, tokens of the last page may be what they were rounded to
 *  (docs/algorithms.md, "Formats of pages"). Other policies keep what they observed: scores stay, and no stamp is newer
 *  than the new end.
 *
 *  There are no logits until the next prefill or step, also where @p n_tokens is the length already. The repetition
 *  penalty looks at the tokens that are left, the sampler's random state goes on, and the text of the next token
 *  begins anew. Pins of pages that stay, counters, a pending cancel and the list of evicted pages are as before.
 *
 *  Layers with a sliding window need the pages of the window before @p n_tokens. As long as the window has not moved
 *  past them, they are there. With recall they are kept outside of the pool, too, and come back; a full store drops
 *  them before any other page.
 *
 *  Recurrent layers cannot forget single tokens: they go back to the last snapshot (snapshot_tokens of the options) at
 *  or before @p n_tokens, and the tokens from there on are read again as a prompt, which takes its time. There is a
 *  snapshot where the last prompt began and where it ended, and at multiples of snapshot_tokens as far as they have
 *  room. A cancel that is pending, or comes meanwhile, ends that reading at the snapshot. The bits are those of a
 *  session that read the same tokens in the same pieces from the snapshot on; pages of an answer count as a prompt's
 *  then.
 *
 *  With WEIR_REWIND_LOSSY lost pages are missing and steps do not attend them, as after an eviction. If the page with
 *  the last token is lost in any stream, its tokens, at most 15, are read again as decode steps over the pages that are
 *  left. Layers with a sliding window then see nothing of what left it: go back further, by the window's length, and
 *  prefill these tokens again.
 *
 *  @param session  in/out
 *  @param n_tokens tokens that stay, at most n_tokens of the stats
 *  @param flags    WEIR_REWIND_*
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL, more tokens than the conversation has, or an unknown flag; nothing changed
 *          WEIR_ERR_NOT_FOUND    pages that the remaining tokens need are lost, and WEIR_REWIND_LOSSY is not set; the
 *                                message names the first. Or the session does not hold all tokens
 *                                (weir_session_tokens), and not those before n_tokens. Nothing changed
 *          WEIR_ERR_IO           the spill file failed in the middle: the conversation ends at an earlier page, as
 *                                n_tokens of the stats tells, or lacks a page as with WEIR_REWIND_LOSSY
 *          WEIR_ERR_CANCELLED    with WEIR_REWIND_LOSSY: the trace callback refused a step that reads tokens again; or,
 *                                with recurrent layers, the reading was cancelled; n_tokens of the stats tells how many
 *                                are there
 *          WEIR_ERR_BUDGET       with recurrent layers: the tokens to be read again are a longer prompt than the policy
 *                                or pinned pages leave room for; n_tokens of the stats tells how many are there
 *          WEIR_ERR_BUSY         another thread is inside the session; nothing changed
 *          WEIR_ERR_DEVICE_LOST  the device failed; destroy the session
 *  @threads one thread at a time
 *  @owner nothing changes
 *  @since 1.1 */
WEIR_API weir_status weir_session_rewind(weir_session *session, uint32_t n_tokens, uint32_t flags);

/** Bits of weir_prompt_options.flags.
 *  @since 1.1 */
enum weir_prompt_flag_bits {
    WEIR_PROMPT_MEASURE = 1, /**< Change nothing, only fill the report. */
    WEIR_PROMPT_EXACT = 2,   /**< Where going back needs pages that are lost, forget the conversation, with its pins and
                                  unread page events, and read all of it again. Without this bit the session goes back
                                  without them, and the report counts them. Layers with a sliding window lose what has
                                  left it, under every policy; there this bit is for all who want no difference. */
    WEIR_PROMPT_DROP_OLDEST = 4 /**< weir_session_prompt only: where the conversation does not fit, leave out its oldest
                                     turns, but neither system messages at its beginning nor the last turn. */
};

/** Options of weir_session_prompt and weir_session_prompt_tokens.
 *  @since 1.1 */
typedef struct weir_prompt_options {
    uint32_t struct_size;      /**< sizeof this struct in the caller's build. Required. */
    uint32_t flags;            /**< WEIR_PROMPT_*. */
    uint32_t reserve_tokens;   /**< Positions to leave free for what follows. Default 0. */
    uint32_t reserved;         /**< 0. */
    weir_progress_fn progress; /**< Progress in the tokens that are read, and cancel; NULL (default): none. */
    void *progress_user;       /**< Passed to progress. */
    const weir_chat_options *chat; /**< weir_session_prompt only: how messages are rendered; its progress must be NULL.
                                        NULL (default): WEIR_CHAT_ADD_ASSISTANT. */
} weir_prompt_options;

/** Static initialiser of weir_prompt_options. */
#define WEIR_PROMPT_OPTIONS_INIT { (uint32_t)sizeof(weir_prompt_options), 0, 0, 0, 0, 0, 0 }

/** What weir_session_prompt or weir_session_prompt_tokens did.
 *  @since 1.1 */
typedef struct weir_prompt_report {
    uint32_t struct_size;   /**< sizeof this struct in the caller's build. Required. */
    uint32_t n_tokens;      /**< Tokens of the conversation now. */
    uint32_t n_kept;        /**< Those of the n_tokens that were there and stayed. */
    uint32_t n_read;        /**< The others. */
    uint32_t n_forgotten;   /**< Tokens that were in the session and are no more: thoughts, edited turns. */
    uint32_t n_messages_dropped; /**< Messages left out by WEIR_PROMPT_DROP_OLDEST, those behind the system messages. */
    uint64_t pages_missing; /**< Pages of the kept tokens that the next one would attend and the session has lost,
                                 summed over its streams: dropped by the policy, or behind a sliding window that has
                                 moved on. With WEIR_PROMPT_MEASURE those that are lost already. */
} weir_prompt_report;

/** Static initialiser of weir_prompt_report. */
#define WEIR_PROMPT_REPORT_INIT { (uint32_t)sizeof(weir_prompt_report), 0, 0, 0, 0, 0, 0 }

/** Make the conversation exactly these tokens: keep the longest common beginning, go back to it, read the rest.
 *
 *  A new turn, an edited message, a dropped thought, another answer to the same question and a server that has another
 *  conversation with the same system message are all this call. Afterwards there are logits. Where nothing has to be
 *  read but the session goes back, the last token is stepped again for them.
 *
 *  Text is compared where tokens differ: an answer that was drawn keeps its tokens although the tokenizer would cut its
 *  text otherwise, so the conversation may have other tokens than @p tokens, with the same text. Control tokens and
 *  user-defined ones, which mark turns in some models, equal only themselves.
 *
 *  Going back is as by weir_session_rewind, what is read as by weir_session_prefill. With recurrent layers the snapshot
 *  of a prompt's end is where its last page begins, so that another answer to it reads at most 16 tokens again (more,
 *  if the policy looks at a prompt's last ones): n_read of the report counts them. Allocates nothing. Of a
 *  conversation whose middle is not recorded any more (weir_session_tokens), the middle counts as the same where no
 *  step can attend it and the tokens before and after it are; otherwise, and with WEIR_PROMPT_EXACT, only the
 *  beginning stays. A token that is stepped again is a step for the policy, not prompt; no cancel stops that.
 *
 *  @param session  in/out
 *  @param tokens   in, [n_tokens] ids in [0, vocab_size), the whole conversation; not a view of weir_session_tokens
 *  @param n_tokens at least 1
 *  @param options  in, NULL for all defaults
 *  @param report   in/out, struct_size set by the caller; may be NULL. Written where the status is WEIR_OK
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG   NULL, no tokens, an id out of range, bad struct_size or flags; nothing changed
 *          WEIR_ERR_CONTEXT_FULL  the conversation and reserve_tokens are more than the context; nothing changed
 *          WEIR_ERR_NOT_FOUND     a session with more than 1,048,576 context_tokens holds too few of its tokens to go
 *                                 back there; nothing changed
 *          WEIR_ERR_BUSY          another thread is inside the session; nothing changed
 *          WEIR_ERR_BUDGET, WEIR_ERR_IO, WEIR_ERR_FORMAT, WEIR_ERR_CANCELLED, WEIR_ERR_DEVICE_LOST
 *                                 as of weir_session_rewind and weir_session_prefill. The session may have gone back
 *                                 already, or with WEIR_PROMPT_EXACT have forgotten all, as n_tokens of the stats
 *                                 tells, and may have no logits: the same call with other options or tokens goes on
 *                                 from there
 *  @threads one thread at a time
 *  @owner the caller owns @p tokens and @p report
 *  @since 1.1 */
WEIR_API weir_status weir_session_prompt_tokens(weir_session *session, const weir_token *tokens, uint64_t n_tokens,
                                                const weir_prompt_options *options, weir_prompt_report *report);

/** Positions of a message's text in a conversation.
 *  @since 1.1 */
typedef struct weir_span {
    uint32_t first; /**< Position of the first token with text of the message. */
    uint32_t end;   /**< One past the last one; equal to first where the template leaves the text out, or writes it in
                         another way. */
} weir_span;

/** Make the session hold exactly these messages: render all with the model's chat template, keep the longest common
 *  beginning of what the session holds, go back to it, and read the rest.
 *
 *  The next turn, an edited message, another answer, going on after a restore and a server that gets the whole
 *  conversation with every request are all this call; the same messages again are no work. It is weir_chat_tokenize, by
 *  whose rules no text of a message becomes a control token, and weir_session_prompt_tokens, which says what stays and
 *  what is read. An answer of this session is recognised by its text and keeps the tokens that were drawn.
 *
 *  @param session    in/out
 *  @param messages   in, [n_messages], chat->message_bytes apart; 64 bytes, which is the weir_chat_message of 1.1, when
 *                    chat is NULL
 *  @param n_messages 1 .. 65535
 *  @param options    in, NULL for all defaults
 *  @param spans      out, [n_messages] where each message's text is; {0, 0} for messages that were dropped. NULL: not
 *                    wanted. Written where the status is WEIR_OK
 *  @param report     in/out, struct_size set by the caller; may be NULL. Written where the status is WEIR_OK
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG, WEIR_ERR_UNSUPPORTED, WEIR_ERR_NOT_FOUND, WEIR_ERR_FORMAT
 *                                 as of weir_chat_tokenize; nothing changed. Also for WEIR_CHAT_CONTINUE, which this
 *                                 call replaces
 *          WEIR_ERR_CONTEXT_FULL  the conversation, without what may be dropped, and reserve_tokens are more than the
 *                                 context; nothing changed
 *          WEIR_ERR_OUT_OF_MEMORY an allocation was refused; nothing changed
 *          WEIR_ERR_STATE         the model was opened with WEIR_MODEL_DESCRIBE_ONLY
 *          WEIR_ERR_BUSY          another thread is inside the session; nothing changed
 *          WEIR_ERR_BUDGET, WEIR_ERR_IO, WEIR_ERR_CANCELLED, WEIR_ERR_DEVICE_LOST
 *                                 as of weir_session_prompt_tokens, after which the same call goes on
 *  @threads one thread at a time
 *  @owner the caller owns all arguments
 *  @since 1.1 */
WEIR_API weir_status weir_session_prompt(weir_session *session, const weir_chat_message *messages, uint64_t n_messages,
                                         const weir_prompt_options *options, weir_span *spans,
                                         weir_prompt_report *report);

/** Append one token as a decode step and compute the logits after it. Allocates nothing.
 *
 *  @param session in/out
 *  @param token   in, id in [0, vocab_size)
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG   NULL or an id out of range; nothing changed
 *          WEIR_ERR_CONTEXT_FULL  the context is full; nothing changed
 *          WEIR_ERR_BUDGET        with WEIR_SPILL_STRICT: the token fills pages for which the spill store has no room;
 *                                 nothing changed
 *          WEIR_ERR_IO            with WEIR_SPILL_STRICT: the spill file failed
 *          WEIR_ERR_FORMAT        with WEIR_SPILL_STRICT: a spilled page is damaged. After these two nothing is
 *                                 appended and the logits stay; other pages may be in the pool than before
 *          WEIR_ERR_BUSY          another thread is inside the session; nothing changed
 *          WEIR_ERR_CANCELLED     weir_session_cancel before the call; nothing changed. A token that was shown already
 *                                 can be stepped again: the cancel has been used up. But the token that
 *                                 weir_session_sample just drew is appended all the same, and the cancel ends the next
 *                                 weir_session_sample or other call. Or a trace callback: nothing appended, the logits
 *                                 stay (on a device they go). Pages that made room stay gone, count in pages_evicted,
 *                                 and what the policy observed stays in its scores
 *  @threads one thread at a time
 *  @owner nothing changes
 *  @since 1.0 */
WEIR_API weir_status weir_session_step(weir_session *session, weir_token token);

/** Append one token to each of several conversations of one model as one decode step, and compute the logits after
 *  each. Allocates nothing through the hooks.
 *
 *  Most of a step's time goes into reading the model's weights. Here they are read once for each group of sessions
 *  (below). Each session attends its own pages under its own policy and budget, at its own depth. All sessions append
 *  their token or none does. Afterwards each is as after weir_session_step: logits, counters, text state. n_decode
 *  grows by 1, and decode_ns by the time of the whole call, all groups.
 *
 *  Sessions go through the layers in groups, in the order of the list. On the CPU a group has at most 256 sessions, and
 *  at most batch_tokens of its first session, whose prefill buffers the group uses. In groups of up to 8 sessions the
 *  logits are exactly those of weir_session_step. In larger groups matrix multiplications sum in another order: after
 *  one step logits differ by 1e-4 to 1e-3 of their size, as they do between prefill and steps.
 *
 *  With attention on the host they go through the layers as on the CPU, in groups of at most 8, each matrix for all of
 *  a group. On a GPU a group has at most 8 sessions. With CUDA a matrix is read more than once if it is so wide that
 *  the sessions' inputs do not fit into an SM's shared memory together. With Vulkan weights of types without integer
 *  GEMVs (docs/vulkan.md) are read once for each session, and the sessions of a group of which one recalls pages step
 *  one after the other. A group's step is recorded, with CUDA as a graph: before any group steps, when these sessions
 *  were not a group in this order before, or not lately, and when one of them begins to select pages. The driver
 *  allocates memory for the recording, which neither passes through the hooks nor is counted.
 *
 *  @param sessions   in, [n_sessions] different sessions of one model, all on one device
 *  @param tokens     in, [n_sessions] ids in [0, vocab_size): tokens[i] goes to sessions[i]
 *  @param n_sessions 1..4096
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG   NULL, also in the list; n_sessions or an id out of range; a session twice, two models
 *                                 or two devices, or only some with attention on the host: the message names the
 *                                 entries of the list; nothing changed
 *          WEIR_ERR_CONTEXT_FULL  the context of a session is full, the message names it; nothing changed
 *          WEIR_ERR_BUDGET, WEIR_ERR_IO, WEIR_ERR_FORMAT
 *                                 as of weir_session_step for any of the sessions; nothing appended anywhere, all
 *                                 logits stay
 *          WEIR_ERR_BUSY          another thread is inside a session, the message names it; nothing changed. Never
 *                                 waits: of two threads whose lists overlap, one or both get this
 *          WEIR_ERR_CANCELLED     weir_session_cancel for any of the sessions, before the call, on the CPU also
 *                                 meanwhile: the message names the first, and cancels of others are still pending. As
 *                                 in weir_session_step, not for sessions whose token weir_session_sample drew. Or a
 *                                 trace callback. Nothing appended anywhere, all logits stay. Pages that made room stay
 *                                 gone, and what h2o and tova observed stays in their scores
 *          WEIR_ERR_OUT_OF_MEMORY on a GPU: the driver has no memory to record a step, the message names the sessions;
 *                                 nothing changed
 *          WEIR_ERR_INTERNAL      on a GPU: a step could not be recorded, the message names the sessions; nothing
 *                                 changed
 *          WEIR_ERR_DEVICE_LOST   the device failed; the message names the sessions whose step it was running. Some
 *                                 sessions of the list may have appended their token, as their counters show. Destroy
 *                                 all of them
 *  @threads one thread at a time for each session; calls with different sessions take turns
 *  @owner the caller owns @p sessions and @p tokens
 *  @since 1.0 */
WEIR_API weir_status weir_step_many(weir_session *const *sessions, const weir_token *tokens, uint32_t n_sessions);

/** The logits after the last token.
 *
 *  @param session  in
 *  @param logits   out, view of [vocab_size] f32, before softmax
 *  @param n_logits out, vocab_size; may be NULL
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL
 *          WEIR_ERR_STATE        nothing was prefilled yet, or a prefill failed and the logits of the last token are
 *                                gone, or weir_session_rewind was called. To have them again, rewind by one token more
 *                                and step that token
 *          WEIR_ERR_BUSY         another thread is inside the session
 *  @threads one thread at a time
 *  @owner the view belongs to the session and is valid until its next prefill, prompt, step, generate, next, rewind,
 *         reset, restore or destroy
 *  @since 1.0 */
WEIR_API weir_status weir_session_logits(weir_session *session, const float **logits, uint32_t *n_logits);

/** The tokens of the conversation, in order: what was prefilled, and what was appended by steps.
 *
 *  Pages may have left and tokens stay. A prompt or step that was taken back is not among them.
 *
 *  A session whose context_tokens are above 1,048,576, and of whose context the pool holds only a part, keeps the
 *  latest ones: at least as many as the pool holds tokens, and 4,112 more. The first token of the view is then at
 *  position n_tokens of the stats minus @p n_tokens, which is above 0 once the conversation is longer than twice that.
 *  A rewind cannot go back to before the view, except to as many first tokens as the pool holds.
 *
 *  @param session  in
 *  @param tokens   out, view of [n_tokens] ids
 *  @param n_tokens out, n_tokens of the stats, or fewer as said above
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL
 *          WEIR_ERR_BUSY         another thread is inside the session
 *  @threads one thread at a time
 *  @owner the view belongs to the session and is valid until its next prefill, prompt, step, generate, next, rewind,
 *         reset, restore or destroy; a view of all tokens may be the argument of a prefill that
 *         follows a rewind (a reset wipes them)
 *  @since 1.1 */
WEIR_API weir_status weir_session_tokens(weir_session *session, const weir_token **tokens, uint32_t *n_tokens);

/** Set how tokens are drawn, and restart the random state from the seed. The recent tokens that the penalties look at
 *  are kept.
 *
 *  @param session in/out
 *  @param options in, NULL for greedy
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL session, bad struct_size, a value or an id out of its range, or no number;
 *                                nothing changed
 *          WEIR_ERR_BUSY         another thread is inside the session; nothing changed
 *  @threads one thread at a time
 *  @owner options are copied, bias too
 *  @since 1.0 */
WEIR_API weir_status weir_session_set_sampling(weir_session *session, const weir_sampling_options *options);

/** Draw the next token from the logits; it is not appended. Allocates nothing.
 *
 *  In a loop that draws a token, shows it and steps it, a weir_session_cancel ends this call, never the step, so that
 *  whatever was shown is in the conversation.
 *
 *  @param session in/out, the random state moves on
 *  @param token   out
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL
 *          WEIR_ERR_STATE        no logits yet, or none of the last token; see weir_session_logits. Or bias forbids all
 *                                tokens
 *          WEIR_ERR_CANCELLED    weir_session_cancel, where the last token was drawn by this function and stepped;
 *                                nothing drawn
 *          WEIR_ERR_FORMAT       none of the logits is a number: the model's weights are broken
 *          WEIR_ERR_BUSY         another thread is inside the session
 *  @threads one thread at a time
 *  @owner nothing changes
 *  @since 1.0 */
WEIR_API weir_status weir_session_sample(weir_session *session, weir_token *token);

/** Generate an answer: draw a token, show it to the callback and append it, until the answer ends. Allocates nothing.
 *
 *  The token that ends an answer is neither shown nor appended; WEIR_CHAT_CONTINUE renders it with the next turn.
 *
 *  @param session in/out
 *  @param options in, NULL for all defaults
 *  @param result  in/out, struct_size set by the caller; may be NULL. Written whatever the status, once the arguments
 *                 are valid.
 *  @return WEIR_OK                stopped by eos, length, a stop string or a full context
 *          WEIR_ERR_INVALID_ARG   NULL session, bad struct_size or flags, n_top above 64, or stop strings that are too
 *                                 many, empty, too long or not UTF-8; nothing changed
 *          WEIR_ERR_STATE         nothing was prefilled yet; nothing changed. Or bias, perhaps with min_tokens, forbids
 *                                 all tokens; the tokens shown so far stay
 *          WEIR_ERR_BUSY          another thread is inside the session; nothing changed
 *          WEIR_ERR_CANCELLED     weir_session_cancel, or the callback refused or threw: the tokens shown so far stay.
 *                                 Or a trace callback: all of them but the last
 *          WEIR_ERR_FORMAT        none of the logits is a number; the tokens shown so far stay
 *  @threads one thread at a time
 *  @owner the caller owns @p result
 *  @since 1.0 */
WEIR_API weir_status weir_session_generate(weir_session *session, const weir_generate_options *options,
                                           weir_generate_result *result);

/** Begin an answer that is then pulled, one event a call, by weir_session_next. An answer that was begun before ends.
 *
 *  @param session in/out
 *  @param options in, NULL for all defaults; on_token must be NULL
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  as of weir_session_generate, or on_token is set; nothing changed
 *          WEIR_ERR_STATE        there are no logits, as weir_session_logits says; nothing changed
 *          WEIR_ERR_BUSY         another thread is inside the session; nothing changed
 *  @threads one thread at a time
 *  @owner options and their texts are copied
 *  @since 1.1 */
WEIR_API weir_status weir_session_begin(weir_session *session, const weir_generate_options *options);

/** The next event of the answer that weir_session_begin began. It computes at most one step and allocates nothing.
 *
 *  A token whose event was given is in the conversation, whatever comes next, so that an answer can be left at any
 *  event: by a prefill, a rewind, a save, or by not calling again; text that is held back for a stop string or a tag
 *  then is not given. A weir_session_cancel is no failure but an end with
 *  WEIR_STOP_CANCELLED, and loses no token. Text that was held back comes before the end.
 *
 *  The text of an event is of one segment. Where that of a token is of two, the rest follows in events of their own. An
 *  answer that goes on where the one before ended, with no other token between, is still in its segment.
 *
 *  @param session in/out
 *  @param event   in/out, struct_size set by the caller
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL or a bad struct_size; nothing changed
 *          WEIR_ERR_STATE        no answer was begun, its end was given, or another call has changed the conversation
 *                                since, or a step failed after which there are no logits, or bias, perhaps with
 *                                min_tokens, forbids all tokens; nothing changed
 *          WEIR_ERR_BUSY         another thread is inside the session; nothing changed
 *          WEIR_ERR_CANCELLED    a trace callback refused the step; no token was appended. This and the following do
 *                                not end the answer: the next call draws again
 *          WEIR_ERR_FORMAT       none of the logits is a number; no token was appended
 *          WEIR_ERR_BUDGET, WEIR_ERR_IO, WEIR_ERR_DEVICE_LOST
 *                                as of weir_session_step; no token was appended
 *  @threads one thread at a time
 *  @owner the caller owns @p event; its text is the session's
 *  @since 1.1 */
WEIR_API weir_status weir_session_next(weir_session *session, weir_event *event);

/** The next event of each session whose answer runs, the steps of all together as by weir_step_many. Allocates nothing
 *  through the hooks.
 *
 *  The events are those of weir_session_next, with its promises. A session whose answer does not run, as the end of it
 *  was given, gets WEIR_EVENT_END with WEIR_STOP_NONE. In groups of more than 8 sessions logits differ from those of
 *  single steps, as weir_step_many says, and so may the tokens.
 *
 *  @param sessions   in, [n_sessions] different sessions of one model, all on one device
 *  @param events     in/out, [n_sessions] events[i] of sessions[i]; struct_size is set by the caller in each
 *  @param n_sessions 1..4096
 *  @param n_running  out, answers of which more events come; may be NULL
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  as of weir_step_many, or a bad struct_size; nothing changed
 *          WEIR_ERR_STATE        as of weir_session_next for one of the sessions, the message names it; nothing changed
 *          WEIR_ERR_BUSY, WEIR_ERR_CANCELLED, WEIR_ERR_FORMAT, WEIR_ERR_BUDGET, WEIR_ERR_IO, WEIR_ERR_OUT_OF_MEMORY,
 *          WEIR_ERR_INTERNAL, WEIR_ERR_DEVICE_LOST
 *                                as of weir_step_many and weir_session_sample for one of the sessions: no token was
 *                                appended anywhere but for a lost device, no event is given and none is lost; the next
 *                                call draws again
 *  @threads one thread at a time for each session; calls with different sessions take turns
 *  @owner the caller owns the lists; the text of an event is its session's
 *  @since 1.1 */
WEIR_API weir_status weir_next_many(weir_session *const *sessions, weir_event *events, uint32_t n_sessions,
                                    uint32_t *n_running);

/** End the thought that is open: the next token of the answer begins its end, as weir_generate_options.thinking_budget
 *  does. Nothing happens where no thought is open when that token comes, or no answer has begun.
 *
 *  @param session in, NULL is allowed
 *  @return nothing
 *  @threads any thread, also in a signal handler
 *  @owner nothing changes
 *  @since 1.1 */
WEIR_API void weir_session_finish_thinking(weir_session *session);

/** The latest answer as a message to keep: role "assistant", content, thought and tool_calls_json.
 *
 *  It is the answer that weir_session_begin or weir_session_generate began, as far as it is. Without special tokens'
 *  text: what its events show, cut at its tags, without white space around thoughts and calls. Later turns may follow
 *  it in the session; it is lost when the session goes back, is reset or restored, or once its tokens are not held any
 *  more (weir_session_tokens).
 *
 *  Calls become [{"id", "name", "arguments"}], the arguments as an object. Where the model gives no id, one of 9
 *  letters and digits is made. What is written as tags alone has no type of its own: an object, a list, a number, true,
 *  false and null are taken for what they look like, anything else for text. A call that cannot be read, is longer than
 *  1 MiB or is one of more than 256 stays in the content as it was written, with its tags.
 *
 *  @param session       in/out
 *  @param message       out, its first @p message_bytes bytes are written
 *  @param message_bytes sizeof(weir_chat_message) in the caller's build, at least 24
 *  @param is_malformed  out, 1 when there was a call that could not be read, else 0; may be NULL
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG   NULL or a bad message_bytes; nothing written
 *          WEIR_ERR_STATE         there was no answer, or it is lost; nothing written
 *          WEIR_ERR_BUSY          another thread is inside the session; nothing written
 *          WEIR_ERR_OUT_OF_MEMORY an allocation was refused, of memory of the runtime; nothing written
 *  @threads one thread at a time
 *  @owner the texts are the session's and valid until its next call
 *  @since 1.1 */
WEIR_API weir_status weir_session_answer(weir_session *session, weir_chat_message *message, uint32_t message_bytes,
                                         uint32_t *is_malformed);

/** Pin positions: the pages that hold any of [first, end) never leave, and every step attends them.
 *
 *  Pages have 16 tokens and are pinned whole. Where some streams have dropped a page already, it stays pinned in the
 *  others.
 *
 *  @param session in/out
 *  @param first   first position
 *  @param end     one past the last position
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL, an empty range, or positions that the conversation does not have; nothing
 *                                changed
 *          WEIR_ERR_NOT_FOUND    every such page has left
 *          WEIR_ERR_BUDGET       too few pages that may be evicted would be left; nothing changed
 *          WEIR_ERR_UNSUPPORTED  sink with positions=incache cannot keep pages between sinks and window; nothing
 *                                changed
 *          WEIR_ERR_BUSY         another thread is inside the session; nothing changed
 *  @threads one thread at a time
 *  @owner nothing changes
 *  @since 1.0 */
WEIR_API weir_status weir_session_pin(weir_session *session, uint32_t first, uint32_t end);

/** Unpin all pages that hold any of [first, end). Takes back the pins of weir_session_pin and also those that policies
 *  give to prompts, so that old turns may leave.
 *
 *  @param session in/out
 *  @param first   first position
 *  @param end     one past the last position
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL, an empty range, or positions that the conversation does not have; nothing
 *                                changed
 *          WEIR_ERR_NOT_FOUND    every such page has left
 *          WEIR_ERR_BUSY         another thread is inside the session; nothing changed
 *  @threads one thread at a time
 *  @owner nothing changes
 *  @since 1.0 */
WEIR_API weir_status weir_session_unpin(weir_session *session, uint32_t first, uint32_t end);

/** Stop the call that runs in this session, or else the next one: a prefill, prompt, step, generate or next, or a
 *  weir_step_many that has the session in its list. In a loop of weir_session_sample and steps of what it drew it is
 *  the next sample.
 *
 *  A prefill ends before its next chunk (batch_tokens), on the CPU and with attention on the host also between two
 *  layers of one; a GPU alone mostly finishes the chunk that it was given. A generate ends before its next token.
 *
 *  The cancel stays until a call has ended with WEIR_ERR_CANCELLED because of it, or weir_session_next has given the
 *  end of an answer for it, or weir_session_clear_cancel or
 *  weir_session_reset takes it back. A call that fails for another reason, is stopped by its callback, or finishes
 *  because the cancel came too late, leaves it pending.
 *
 *  For a Stop button that never hits the next turn: the thread that takes the clicks calls weir_session_clear_cancel
 *  when a new turn begins (the calls of the turn before have returned), and then hands the turn to the thread that
 *  computes. So a click that came after the end of the old turn has no effect. A click during the new turn counts,
 *  whichever of its calls is running, and also between two of them.
 *
 *  @param session in, NULL is allowed
 *  @return nothing
 *  @threads any thread, also in a signal handler
 *  @owner nothing changes
 *  @since 1.0 */
WEIR_API void weir_session_cancel(weir_session *session);

/** Take a pending weir_session_cancel back; nothing happens when there is none.
 *
 *  @param session in, NULL is allowed
 *  @return nothing
 *  @threads any thread, also in a signal handler
 *  @owner nothing changes
 *  @since 1.0 */
WEIR_API void weir_session_clear_cancel(weir_session *session);

/** Let the session's calls look at @p cancel as well as at weir_session_cancel. weir_session_reset and
 *  weir_session_restore do not clear it, and a fork does not look at it.
 *
 *  @param session in/out
 *  @param cancel  in, instead of the one before; NULL: none
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL session
 *          WEIR_ERR_BUSY         another thread is inside the session; nothing changed
 *  @threads one thread at a time
 *  @owner the session has a reference of its own to @p cancel until it gets another or is destroyed
 *  @since 1.1 */
WEIR_API weir_status weir_session_set_cancel(weir_session *session, weir_cancel *cancel);

/** Where the conversation's pages are, for a picture of it: page i holds the positions from 16 * i on.
 *
 *  Allocates nothing and takes the time to read the page tables, so that it can be called once a frame. On a GPU the
 *  tables are copied to the host if steps have changed them.
 *
 *  @param session  in
 *  @param pages    out, [capacity]; may be NULL when @p capacity is 0
 *  @param capacity entries at @p pages
 *  @param n_pages  out, number of pages, also when they did not fit
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG       NULL; nothing written
 *          WEIR_ERR_BUFFER_TOO_SMALL  @p n_pages is set, @p pages untouched
 *          WEIR_ERR_BUSY              another thread is inside the session; nothing written
 *          WEIR_ERR_DEVICE_LOST       the device failed; destroy the session
 *  @threads one thread at a time
 *  @owner the caller owns the buffer
 *  @since 1.1 */
WEIR_API weir_status weir_session_pages(weir_session *session, weir_page_state *pages, uint32_t capacity,
                                        uint32_t *n_pages);

/** Counters of the session.
 *
 *  @param session in
 *  @param stats   in/out, struct_size set by the caller
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL or a bad struct_size; nothing written
 *  @threads any thread; values may be of different moments while another thread decodes
 *  @owner the caller owns @p stats
 *  @since 1.0 */
WEIR_API weir_status weir_session_get_stats(const weir_session *session, weir_session_stats *stats);

/** Memory of the session.
 *
 *  @param session in
 *  @param info    in/out, struct_size set by the caller
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL or a bad struct_size; nothing written
 *  @threads any thread; values may be of different moments while another thread decodes
 *  @owner the caller owns @p info
 *  @since 1.0 */
WEIR_API weir_status weir_session_memory(const weir_session *session, weir_memory_info *info);

#ifdef __cplusplus
}
#endif
#endif /* WEIR_SESSION_H */
