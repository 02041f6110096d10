/* Weir: models. A model is an immutable view of a GGUF file that many sessions and threads share. */
#ifndef WEIR_MODEL_H
#define WEIR_MODEL_H

#include "weir/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Weights, hyper-parameters and tokenizer of one GGUF file. Immutable. */
typedef struct weir_model weir_model;

/** Progress of a long call.
 *  @since 1.0 */
typedef struct weir_progress_info {
    uint32_t struct_size; /**< sizeof this struct in the library's build. */
    uint32_t reserved;    /**< 0. */
    uint64_t done;        /**< Units done, 0..total: bytes in weir_model_open and where text becomes tokens, tokens in
                               weir_session_prefill. */
    uint64_t total;       /**< Units in all. */
} weir_progress_info;

/** Receives progress. Any status but WEIR_OK, or an exception, stops the call with WEIR_ERR_CANCELLED. Called on the
 *  thread that made the call. */
typedef weir_status (*weir_progress_fn)(void *user, const weir_progress_info *info);

/** Bits of weir_model_options.flags. */
enum weir_model_flag_bits {
    WEIR_MODEL_VOCAB_ONLY = 1, /**< Load the tokenizer only; files without weights are accepted, sessions and plans are
                                    refused (WEIR_ERR_STATE). */
    WEIR_MODEL_PREFETCH = 2,   /**< Read the whole file at once, so that the first tokens do not wait for the disk. */
    WEIR_MODEL_COPY = 4,       /**< Read the file into memory from the allocator hooks instead of mapping it: as many
                                    bytes as the file has, in the runtime's counters. Once the call has returned, the
                                    file may change. @since 1.0 */
    WEIR_MODEL_DESCRIBE_ONLY = 8 /**< Read only what the file says about itself, keys and tensors, of any GGUF file,
                                      also of one that is no model. Every call that needs more fails with
                                      WEIR_ERR_STATE: sessions, plans and all of weir/text.h. Of a model in several
                                      files, the part at the path, as with WEIR_MODEL_VOCAB_ONLY. @since 1.1 */
};

/** Options of weir_model_open.
 *  @since 1.0 */
typedef struct weir_model_options {
    uint32_t struct_size;      /**< sizeof this struct in the caller's build. Required. */
    uint32_t flags;            /**< WEIR_MODEL_*. Default 0. */
    weir_progress_fn progress; /**< Progress and cancel, see weir_model_open; NULL (default) for none. */
    void *progress_user;       /**< Passed to progress. */
} weir_model_options;

/** Static initialiser of weir_model_options. */
#define WEIR_MODEL_OPTIONS_INIT { (uint32_t)sizeof(weir_model_options), 0, 0, 0 }

/** Facts about a model. Sizes are 0 for what a vocabulary-only file does not say.
 *  @since 1.0 */
typedef struct weir_model_info {
    uint32_t struct_size;      /**< sizeof this struct in the caller's build. Required. */
    uint32_t n_layers;         /**< Transformer layers. */
    uint32_t n_heads;          /**< Query heads of a layer. */
    uint32_t n_kv_heads;       /**< KV heads of a layer. */
    uint32_t head_dim;         /**< Elements of a head. */
    uint32_t d_model;          /**< Width of the residual stream. */
    uint32_t d_ff;             /**< Inner width of the feed-forward part. */
    uint32_t vocab_size;       /**< Tokens of the vocabulary. */
    uint32_t context_tokens;   /**< Positions the model was trained for. */
    uint32_t n_tensors;        /**< Tensors in the file. */
    uint64_t n_params;         /**< Weights in all tensors. */
    uint64_t weights_bytes;    /**< Bytes of all tensors in the file; used where they lie in it, mapped or copied. */
    uint64_t file_bytes;       /**< Size of the file, or of all its parts together. */
    uint64_t fingerprint;      /**< Hash of hyper-parameters, tensor table and vocabulary; 0 with
                                    WEIR_MODEL_VOCAB_ONLY. */
    const char *architecture;  /**< general.architecture: "llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3",
                                    "smollm3", "granite", "olmo2", "glm4", "qwen3vl", "mistral3", "qwen35",
                                    "lfm2", "nemotron_h", "granitehybrid", "qwen2moe", "qwen3moe",
                                    "qwen3vlmoe", "gpt-oss", "glm4moe", "granitemoe", "qwen35moe", "qwen3next",
                                    "lfm2moe" or "nemotron_h_moe". Lives as long as the model. */
    const char *name;          /**< general.name as one line of UTF-8, or ""; lives as long as the model. */
    const char *weight_type;   /**< Type of most weights, such as "q8_0"; static. */
    const char *chat_template; /**< "jinja" when the file has a chat template, which is run; "" when there is none.
                                    Static. */
    const char *tokenizer;     /**< Tokenizer kind and pre-tokenizer, such as "gpt2/llama-bpe"; lives as long as the
                                    model. */
    uint64_t copied_bytes;      /**< Bytes of the file in memory of the allocator hooks: all of them with
                                     WEIR_MODEL_COPY, 0 when it is mapped. @since 1.0 */
    const char *chat_resembles; /**< Always "": every template is run itself. Static. */
    uint32_t n_parts;           /**< Files that the model is in, at least 1; see weir_model_open. @since 1.1 */
    uint32_t reserved;          /**< 0. @since 1.1 */
} weir_model_info;

/** Static initialiser of weir_model_info. */
#define WEIR_MODEL_INFO_INIT \
    { (uint32_t)sizeof(weir_model_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** One tensor of a model.
 *  @since 1.0 */
typedef struct weir_tensor_info {
    uint32_t struct_size;  /**< sizeof this struct in the caller's build. Required. */
    uint32_t n_dims;       /**< 1..4. */
    uint64_t dims[4];      /**< Slowest axis first; unused ones are 1. */
    uint64_t bytes;        /**< Size in the file. */
    uint64_t file_offset;  /**< Where its bytes start in the file. */
    const char *name;      /**< Its name in the file, NUL-terminated; lives as long as the model. */
    const char *type;      /**< Such as "q8_0"; static. */
    uint32_t part;         /**< Which of the model's files it is in, 0 .. n_parts - 1. @since 1.1 */
    uint32_t reserved;     /**< 0. @since 1.1 */
} weir_tensor_info;

/** Static initialiser of weir_tensor_info. */
#define WEIR_TENSOR_INFO_INIT { (uint32_t)sizeof(weir_tensor_info), 0, { 0, 0, 0, 0 }, 0, 0, 0, 0, 0, 0 }

/** Fill @p options with the defaults of the library that is loaded.
 *
 *  @param options     out; its first @p struct_size bytes are written
 *  @param struct_size sizeof(weir_model_options) in the caller's build
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL, or a size below 8; nothing written
 *  @threads any thread
 *  @owner the caller
 *  @since 1.0 */
WEIR_API weir_status weir_model_options_init(weir_model_options *options, uint32_t struct_size);

/** Open a GGUF file (version 2 or 3): map it, check every number in it, build the tokenizer.
 *
 *  Whatever the file contains, the process survives it. A mapped file must not be changed or truncated while the model
 *  lives: where it became shorter, the system ends the process with SIGBUS, now or in a later call. Where that cannot
 *  be ruled out, WEIR_MODEL_COPY reads the file into memory instead.
 *
 *  The progress callback counts bytes: done is 0 while the description of the file and its vocabulary are read, then
 *  the number of bytes that WEIR_MODEL_PREFETCH has read, and total (the size of the file) in the last call. With
 *  WEIR_MODEL_COPY the bytes are read first, and done stays at total from then on. The callback is called before
 *  anything is read and again after every few thousand keys, tokens, merges and tensors, so opening can be stopped at
 *  any time, however large or hostile the file is. A C++ exception stops opening as any status but WEIR_OK does.
 *
 *  A model in several files, "NAME-00001-of-00003.gguf" and so on with the key split.count, is opened by the path of
 *  any of them; all must lie in one folder. Sizes and progress are those of all parts together.
 *
 *  What is taken for granted is logged, each thing once: as a warning where a key is missing or unknown that may change
 *  answers, as information where it is usual to leave the key out.
 *
 *  @param runtime in
 *  @param path    in, NUL-terminated UTF-8
 *  @param options in, NULL for all defaults
 *  @param out     out, the handle; NULL after a failure
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG    NULL pointer, bad struct_size or flags
 *          WEIR_ERR_IO             the file cannot be opened, mapped or read, or a part of the model is missing; with
 *                                  WEIR_MODEL_COPY also: its size changed while it was read
 *          WEIR_ERR_FORMAT         the file breaks the format; the message names key, tensor or offset
 *          WEIR_ERR_UNSUPPORTED    architecture, tensor type, tokenizer or pre-tokenizer that this version does not
 *                                  have; a key that changes answers and that the architecture does not compute with; a
 *                                  file that is no model, such as a LoRA adapter, an mmproj or an importance matrix
 *          WEIR_ERR_CANCELLED      the progress callback refused or threw
 *          WEIR_ERR_OUT_OF_MEMORY  an allocation was refused
 *  @threads any thread
 *  @owner the caller; weir_model_close. The model keeps @p runtime alive.
 *  @since 1.0 */
WEIR_API weir_status weir_model_open(weir_runtime *runtime, const char *path, const weir_model_options *options,
                                     weir_model **out);

/** Give up the caller's reference. Sessions keep the model alive until they are gone.
 *
 *  @param model in, NULL is allowed
 *  @return nothing
 *  @threads any thread, once per handle
 *  @owner ends the caller's ownership
 *  @since 1.0 */
WEIR_API void weir_model_close(weir_model *model);

/** Facts about the model.
 *
 *  @param model in
 *  @param info  in/out, struct_size set by the caller
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL or a bad struct_size; nothing written
 *  @threads immutable
 *  @owner strings belong to the model
 *  @since 1.0 */
WEIR_API weir_status weir_model_get_info(const weir_model *model, weir_model_info *info);

/** Describe tensor number @p index in file order.
 *
 *  @param model in
 *  @param index 0 .. n_tensors - 1
 *  @param info  in/out, struct_size set by the caller
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL, a bad struct_size or index; nothing written
 *  @threads immutable
 *  @owner strings belong to the model
 *  @since 1.0 */
WEIR_API weir_status weir_model_tensor_info(const weir_model *model, uint32_t index, weir_tensor_info *info);

/** Number of metadata keys in the file.
 *
 *  @param model in
 *  @return the count, 0 when @p model is NULL
 *  @threads immutable
 *  @owner nothing is owned
 *  @since 1.0 */
WEIR_API uint32_t weir_model_metadata_count(const weir_model *model);

/** Metadata key and value number @p index. The value is given as text: an array as "[type; count]", a string with the
 *  bytes that the file has.
 *
 *  @param model       in
 *  @param index       0 .. weir_model_metadata_count - 1
 *  @param key         out, NUL-terminated; lives as long as the model
 *  @param value       out, [capacity] bytes, NUL-terminated; may be NULL when @p capacity is 0
 *  @param capacity    bytes at @p value
 *  @param value_bytes out, length without the NUL; may be NULL
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG       NULL or an index out of range; nothing written
 *          WEIR_ERR_BUFFER_TOO_SMALL  @p key and @p value_bytes are set, @p value is not
 *  @threads immutable
 *  @owner the key belongs to the model, the value to the caller
 *  @since 1.0 */
WEIR_API weir_status weir_model_metadata(const weir_model *model, uint32_t index, const char **key, char *value,
                                         uint64_t capacity, uint64_t *value_bytes);

/** Name of weight type number @p index, such as "q8_0": the types of tensors that this build computes with.
 *
 *  @param index from 0
 *  @return a static string, NULL behind the last
 *  @threads any thread
 *  @owner the library; valid until it is unloaded
 *  @since 1.1 */
WEIR_API const char *weir_weight_type_name(uint32_t index);

#ifdef __cplusplus
}
#endif
#endif /* WEIR_MODEL_H */
