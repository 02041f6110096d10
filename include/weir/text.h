/* Weir: text in and out of a model: tokens, incremental detokenizing, chat rendering. */
#ifndef WEIR_TEXT_H
#define WEIR_TEXT_H

#include "weir/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Bits of weir_tokenize flags. */
enum weir_tokenize_flag_bits {
    WEIR_TOKENIZE_SPECIAL = 1, /**< Text such as "<|im_end|>" becomes the control token of that name. Off: it is plain
                                    text. Not for text of others: see weir_chat_tokenize. */
    WEIR_TOKENIZE_BOS_EOS = 2  /**< Add the begin/end tokens that the model's file asks for. */
};

/** Bits of weir_detokenize and weir_detokenizer_create flags. */
enum weir_detokenize_flag_bits {
    WEIR_DETOKENIZE_SPECIAL = 1 /**< Control tokens appear as their text. Off: they vanish. */
};

/** Bits of weir_token_info.flags. */
enum weir_token_flag_bits {
    WEIR_TOKEN_CONTROL = 1,         /**< A control token such as BOS. */
    WEIR_TOKEN_BYTE = 2,            /**< One raw byte (byte fallback). */
    WEIR_TOKEN_USER_DEFINED = 4,    /**< Added by the model's makers, ordinary text. */
    WEIR_TOKEN_UNKNOWN = 8,         /**< Stands for text that the vocabulary lacks. */
    WEIR_TOKEN_END_OF_GENERATION = 16 /**< Ends an answer (EOS, end of turn): the file names it as an end, or it is a
                                           control token of a text that ends turns. */
};

/** One token of a vocabulary.
 *  @since 1.0 */
typedef struct weir_token_info {
    uint32_t struct_size; /**< sizeof this struct in the caller's build. Required. */
    uint32_t flags;       /**< WEIR_TOKEN_*. */
    const char *text;     /**< As stored in the file, UTF-8, NUL-terminated; lives as long as the model. */
    uint64_t text_bytes;  /**< Length without the NUL. */
    float score;          /**< Score of SentencePiece vocabularies, else 0. */
    uint32_t reserved;    /**< 0. */
    const char *bytes;    /**< What the token stands for in running text, a space where the text above has a sign for
                               one. Any bytes, perhaps part of a UTF-8 sequence, and no NUL after them. Of control and
                               unknown tokens their text. Lives as long as the model. @since 1.1 */
    uint64_t n_bytes;     /**< Its length. @since 1.1 */
} weir_token_info;

/** Static initialiser of weir_token_info. */
#define WEIR_TOKEN_INFO_INIT { (uint32_t)sizeof(weir_token_info), 0, 0, 0, 0, 0, 0, 0 }

/** Tokens with a special meaning, -1 where the model has none.
 *  @since 1.0 */
typedef struct weir_special_tokens {
    uint32_t struct_size; /**< sizeof this struct in the caller's build. Required. */
    weir_token bos;       /**< Begin of text. */
    weir_token eos;       /**< End of text or turn. */
    weir_token eot;       /**< End of turn, when it differs from eos. */
    weir_token unk;       /**< Unknown. */
    weir_token pad;       /**< Padding. */
    int32_t add_bos;      /**< 1 when WEIR_TOKENIZE_BOS_EOS adds bos, else 0. */
    int32_t add_eos;      /**< 1 when WEIR_TOKENIZE_BOS_EOS adds eos, else 0. */
} weir_special_tokens;

/** Static initialiser of weir_special_tokens. */
#define WEIR_SPECIAL_TOKENS_INIT { (uint32_t)sizeof(weir_special_tokens), -1, -1, -1, -1, -1, 0, 0 }

/** Turns tokens into text piece by piece; never splits a UTF-8 sequence. */
typedef struct weir_detokenizer weir_detokenizer;

/** One message of a conversation. It may grow in later versions; callers of weir_chat_tokenize and weir_session_prompt
 *  say how large theirs are (weir_chat_options.message_bytes).
 *  @since 1.0 */
typedef struct weir_chat_message {
    const char *role;       /**< "system", "user" or "assistant", NUL-terminated. Also "tool" and "developer" where the
                                 template has words for them. */
    const char *content;    /**< UTF-8. NULL with content_bytes 0: empty. */
    uint64_t content_bytes; /**< Length of content. */
    const char *thought;    /**< What the model thought before an answer, UTF-8 without tags; NULL: nothing. The
                                 template decides whether it is kept: most leave out those of earlier turns. @since 1.1
                                 */
    uint64_t thought_bytes; /**< Length of thought. @since 1.1 */
    const char *tool_calls_json; /**< The calls in an answer, NUL-terminated JSON, a list of objects with "name",
                                      "arguments" (an object) and perhaps "id", or as in OpenAI's API, with these two in
                                      "function". NULL: none. @since 1.1 */
    const char *tool_call_id; /**< The call that a tool's result answers, NUL-terminated; NULL: not said.
                                   @since 1.1 */
    const char *name;       /**< The tool that a result is of; else who speaks; NUL-terminated; NULL: not said.
                                 @since 1.1 */
} weir_chat_message;

/** Static initialiser of weir_chat_message. */
#define WEIR_CHAT_MESSAGE_INIT { 0, 0, 0, 0, 0, 0, 0, 0 }

/** Bits of weir_chat_options.flags and of weir_chat_render flags. */
enum weir_chat_flag_bits {
    WEIR_CHAT_ADD_ASSISTANT = 1, /**< End with the opening of an assistant turn, so that the model answers. */
    WEIR_CHAT_CONTINUE = 2,      /**< The session already holds a conversation that ends in an answer of the model
                                      without its end-of-turn token: close that turn first, then render @p messages
                                      only. */
    WEIR_CHAT_ACCEPT_RESEMBLING = 4, /**< Accepted, without any effect: every template is run itself. */
    WEIR_CHAT_CONTINUE_LAST = 8  /**< The last message is the beginning of an answer: leave its turn open, so that the
                                      model goes on with it. Needs an "assistant" message at the end that the template
                                      writes as it is, but for white space around it. @since 1.1 */
};

/** Options of weir_chat_tokenize and weir_session_prompt.
 *  @since 1.0 */
typedef struct weir_chat_options {
    uint32_t struct_size;   /**< sizeof this struct in the caller's build. Required. */
    uint32_t flags;         /**< WEIR_CHAT_*. Default 0. */
    uint32_t message_bytes; /**< sizeof(weir_chat_message) in the caller's build, the distance of two messages. 0
                                 (default, also after weir_chat_options_init): that of the version whose options have
                                 struct_size, or 24, as in 1.0, where options is NULL. Fields beyond the caller's size
                                 take their defaults. Fields of a message that the library does not know must be 0. */
    uint32_t reserved;      /**< 0. */
    weir_progress_fn progress; /**< Progress in bytes of the rendered text, and cancel, as in weir_tokenize_with; NULL
                                    (default) for none. @since 1.1 */
    void *progress_user;       /**< Passed to progress. @since 1.1 */
    const char *template_text; /**< A chat template (Jinja) to use instead of the file's, NUL-terminated, at most 2^18
                                    bytes, or the name of a built-in one: "chatml", "llama3", "mistral", "gemma",
                                    "granite", "glm4" or "harmony". NULL (default): the file's. @since 1.1 */
    const char *tools_json;    /**< The tools that the model may call: a JSON list as in OpenAI's API, NUL-terminated.
                                    NULL (default): none. WEIR_ERR_UNSUPPORTED where the template has no place for
                                    them. @since 1.1 */
    const char *variables_json; /**< More variables of the template: a JSON object, such as {"enable_thinking": false},
                                     NUL-terminated. NULL (default): none. One that the template never reads is
                                     WEIR_ERR_NOT_FOUND, so that nothing is switched off in vain. @since 1.1 */
    int64_t unix_time;         /**< What strftime_now sees, in seconds since 1970, as UTC; 0 (default): the time of the
                                    call. @since 1.1 */
} weir_chat_options;

/** Static initialiser of weir_chat_options. */
#define WEIR_CHAT_OPTIONS_INIT \
    { (uint32_t)sizeof(weir_chat_options), 0, (uint32_t)sizeof(weir_chat_message), 0, 0, 0, 0, 0, 0, 0 }

/** Options of weir_tokenize_with.
 *  @since 1.1 */
typedef struct weir_tokenize_options {
    uint32_t struct_size;      /**< sizeof this struct in the caller's build. Required. */
    uint32_t flags;            /**< WEIR_TOKENIZE_*. Default 0. */
    weir_progress_fn progress; /**< Progress and cancel, see weir_tokenize_with; NULL (default) for none. */
    void *progress_user;       /**< Passed to progress. */
} weir_tokenize_options;

/** Static initialiser of weir_tokenize_options. */
#define WEIR_TOKENIZE_OPTIONS_INIT { (uint32_t)sizeof(weir_tokenize_options), 0, 0, 0 }

/** Turn text into tokens.
 *
 *  While it runs, the call takes 2 to 7 bytes of memory for a byte of most texts and never more than 10, however long
 *  its words are. Only a vocabulary that is made for the purpose, in which a token depends on text far behind it, can
 *  make that some 75 for a long word.
 *
 *  What a vocabulary has no token for becomes its unknown token, unless that is a control token or ends an answer: text
 *  never becomes one of those. Such a byte is then left out, or, by a SentencePiece vocabulary, the text refused.
 *
 *  @param model    in
 *  @param text     in, [text_bytes] UTF-8; bytes that are not valid UTF-8 are tokenized as bytes if the vocabulary can
 *  @param text_bytes 0 .. 2^31 - 1
 *  @param flags    WEIR_TOKENIZE_*
 *  @param tokens   out, [capacity] ids; may be NULL when @p capacity is 0
 *  @param capacity room at @p tokens
 *  @param n_tokens out, number of ids of the whole text, also when they did not fit
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG       NULL pointer, unknown flag, text too long
 *          WEIR_ERR_BUFFER_TOO_SMALL  @p n_tokens is set, @p tokens untouched
 *          WEIR_ERR_FORMAT            the vocabulary has no token for a part of the text and no unknown token for it
 *          WEIR_ERR_OUT_OF_MEMORY     an allocation was refused
 *          WEIR_ERR_STATE             the model was opened with WEIR_MODEL_DESCRIBE_ONLY
 *  @threads immutable
 *  @owner the caller owns the buffers
 *  @since 1.0 */
WEIR_API weir_status weir_tokenize(const weir_model *model, const char *text, uint64_t text_bytes, uint32_t flags,
                                   weir_token *tokens, uint64_t capacity, uint64_t *n_tokens);

/** Fill @p options with the defaults of the library that is loaded.
 *
 *  @param options     out; its first @p struct_size bytes are written
 *  @param struct_size sizeof(weir_tokenize_options) in the caller's build
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL, or a size below 8; nothing written
 *  @threads any thread
 *  @owner the caller
 *  @since 1.1 */
WEIR_API weir_status weir_tokenize_options_init(weir_tokenize_options *options, uint32_t struct_size);

/** Turn text into tokens, as weir_tokenize does, and tell how far it is.
 *
 *  The progress callback is called with 0 bytes done, about every 64 KiB of work, and when all is done. It may be told
 *  the same number again, where a long word is looked at more than once. Any status but WEIR_OK stops the call.
 *
 *  @param model      in
 *  @param text       in, [text_bytes] UTF-8, as in weir_tokenize
 *  @param text_bytes 0 .. 2^31 - 1
 *  @param options    in, NULL for all defaults
 *  @param tokens     out, [capacity] ids; may be NULL when @p capacity is 0
 *  @param capacity   room at @p tokens
 *  @param n_tokens   out, number of ids of the whole text, also when they did not fit
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG       NULL pointer, bad struct_size, unknown flag, text too long
 *          WEIR_ERR_BUFFER_TOO_SMALL  @p n_tokens is set, @p tokens untouched
 *          WEIR_ERR_FORMAT            the vocabulary has no token for a part of the text and no unknown token
 *          WEIR_ERR_OUT_OF_MEMORY     an allocation was refused
 *          WEIR_ERR_CANCELLED         the callback refused or threw; nothing written
 *          WEIR_ERR_STATE             the model was opened with WEIR_MODEL_DESCRIBE_ONLY
 *  @threads immutable
 *  @owner the caller owns the buffers
 *  @since 1.1 */
WEIR_API weir_status weir_tokenize_with(const weir_model *model, const char *text, uint64_t text_bytes,
                                        const weir_tokenize_options *options, weir_token *tokens, uint64_t capacity,
                                        uint64_t *n_tokens);

/** Turn tokens into the bytes they stand for.
 *
 *  Token by token the result can be cut inside a UTF-8 sequence; use a weir_detokenizer for streaming.
 *
 *  @param model      in
 *  @param tokens     in, [n_tokens] ids in [0, vocab_size)
 *  @param n_tokens   any number
 *  @param flags      WEIR_DETOKENIZE_*
 *  @param text       out, [capacity] bytes, no NUL is added; may be NULL when @p capacity is 0
 *  @param capacity   room at @p text
 *  @param text_bytes out, bytes of the whole text, also when it did not fit
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG       NULL pointer, unknown flag, id out of range
 *          WEIR_ERR_BUFFER_TOO_SMALL  @p text_bytes is set
 *          WEIR_ERR_STATE             the model was opened with WEIR_MODEL_DESCRIBE_ONLY
 *  @threads immutable
 *  @owner the caller owns the buffers
 *  @since 1.0 */
WEIR_API weir_status weir_detokenize(const weir_model *model, const weir_token *tokens, uint64_t n_tokens,
                                     uint32_t flags, char *text, uint64_t capacity, uint64_t *text_bytes);

/** Create a streaming detokenizer.
 *
 *  @param model in
 *  @param flags WEIR_DETOKENIZE_*
 *  @param out   out, the handle; NULL after a failure
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG    NULL pointer or unknown flag
 *          WEIR_ERR_OUT_OF_MEMORY  an allocation was refused
 *          WEIR_ERR_STATE          the model was opened with WEIR_MODEL_DESCRIBE_ONLY
 *  @threads any thread
 *  @owner the caller; weir_detokenizer_destroy. It keeps @p model alive.
 *  @since 1.0 */
WEIR_API weir_status weir_detokenizer_create(weir_model *model, uint32_t flags, weir_detokenizer **out);

/** Feed one token and get the text that is now complete, always whole UTF-8 sequences, perhaps none. Allocates nothing.
 *
 *  A byte that can no longer become valid UTF-8 comes out as U+FFFD.
 *
 *  @param detokenizer in/out
 *  @param token       in, id in [0, vocab_size)
 *  @param text        out, view of the new text, NUL-terminated
 *  @param text_bytes  out, its length
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL pointer or id out of range; nothing changed
 *  @threads one thread at a time
 *  @owner the view belongs to @p detokenizer and is valid until its next call
 *  @since 1.0 */
WEIR_API weir_status weir_detokenizer_push(weir_detokenizer *detokenizer, weir_token token, const char **text,
                                           uint64_t *text_bytes);

/** End the text: what is still incomplete comes out as U+FFFD, and the detokenizer starts anew.
 *
 *  @param detokenizer in/out
 *  @param text        out, view, NUL-terminated
 *  @param text_bytes  out, its length
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL pointer
 *  @threads one thread at a time
 *  @owner the view belongs to @p detokenizer and is valid until its next call
 *  @since 1.0 */
WEIR_API weir_status weir_detokenizer_flush(weir_detokenizer *detokenizer, const char **text, uint64_t *text_bytes);

/** Destroy a detokenizer.
 *
 *  @param detokenizer in, NULL is allowed
 *  @return nothing
 *  @threads any thread, once
 *  @owner ends the caller's ownership
 *  @since 1.0 */
WEIR_API void weir_detokenizer_destroy(weir_detokenizer *detokenizer);

/** Describe one token.
 *
 *  @param model in
 *  @param token id in [0, vocab_size)
 *  @param info  in/out, struct_size set by the caller
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL, a bad struct_size, id out of range; nothing written
 *          WEIR_ERR_STATE        the model was opened with WEIR_MODEL_DESCRIBE_ONLY
 *  @threads immutable
 *  @owner the text belongs to the model
 *  @since 1.0 */
WEIR_API weir_status weir_token_get_info(const weir_model *model, weir_token token, weir_token_info *info);

/** The special tokens of a model.
 *
 *  @param model   in
 *  @param special in/out, struct_size set by the caller
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL or a bad struct_size; nothing written
 *          WEIR_ERR_STATE        the model was opened with WEIR_MODEL_DESCRIBE_ONLY
 *  @threads immutable
 *  @owner the caller owns @p special
 *  @since 1.0 */
WEIR_API weir_status weir_model_special_tokens(const weir_model *model, weir_special_tokens *special);

/** Bits of weir_chat_info.can.
 *  @since 1.1 */
enum weir_chat_ability_bits {
    WEIR_CHAT_CAN_SYSTEM = 1,         /**< System messages. */
    WEIR_CHAT_CAN_TOOLS = 2,          /**< weir_chat_options.tools_json. */
    WEIR_CHAT_CAN_TOOL_RESULTS = 4,   /**< Messages of the role "tool". */
    WEIR_CHAT_CAN_THOUGHTS = 8,       /**< The model's thoughts are between tags. */
    WEIR_CHAT_CAN_SKIP_THOUGHTS = 16  /**< A variable of the template switches them off. */
};

/** What a model's chat template can do, and how the parts of its answers are told apart.
 *  @since 1.1 */
typedef struct weir_chat_info {
    uint32_t struct_size;      /**< sizeof this struct in the caller's build. Required. */
    uint32_t can;              /**< WEIR_CHAT_CAN_*. */
    const char *thought_begin; /**< Text that begins a thought, "" when the model has no tags. */
    const char *thought_end;   /**< Text that ends it, "" likewise. */
    const char *tool_format;   /**< Name of the model's way of writing calls of tools, "hermes", "llama3", "mistral",
                                    "harmony" and so on, or "" when none is known. */
} weir_chat_info;

/** Static initialiser of weir_chat_info. */
#define WEIR_CHAT_INFO_INIT { (uint32_t)sizeof(weir_chat_info), 0, 0, 0, 0 }

/** What the chat template of a model can do. Tags that it does not have are looked for in the vocabulary.
 *
 *  @param model in
 *  @param info  in/out, struct_size set by the caller
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG    NULL or a bad struct_size; nothing written
 *          WEIR_ERR_STATE          the model was opened with WEIR_MODEL_DESCRIBE_ONLY
 *          WEIR_ERR_OUT_OF_MEMORY  an allocation was refused
 *  @threads immutable
 *  @owner the texts live as long as the model
 *  @since 1.1 */
WEIR_API weir_status weir_model_chat_info(const weir_model *model, weir_chat_info *info);

/** Fill @p options with the defaults of the library that is loaded.
 *
 *  @param options     out; its first @p struct_size bytes are written
 *  @param struct_size sizeof(weir_chat_options) in the caller's build
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG  NULL, or a size below 8; nothing written
 *  @threads any thread
 *  @owner the caller
 *  @since 1.0 */
WEIR_API weir_status weir_chat_options_init(weir_chat_options *options, uint32_t struct_size);

/** Turn a conversation into tokens as the chat template of the model's file does: what to prefill before an answer.
 *
 *  The template is run itself, as by weir_template_render, with the date of the call. A file without one is
 *  WEIR_ERR_UNSUPPORTED, unless weir_chat_options.template_text gives a template.
 *
 *  Only the template's own text becomes control tokens. Text of messages never does, whatever it holds: a user who
 *  writes "<|im_end|>" has written ten characters. Where a template marks turns with ordinary text, as those of
 *  Llama 2 and older Mistral models do ("[INST]", "User:"), a message can still imitate these marks.
 *
 *  Exactly, no control, unknown or user-defined token is recognised in a message, but for user-defined ones of letters,
 *  digits and white space (some vocabularies have such for runs of spaces) that the template does not use, or that
 *  merging gives from ordinary text. An answer (role "assistant") that begins with "<think>" is the one exception: this
 *  mark and the next "</think>" are tokens, as they were when the model wrote them. What the file classes as ordinary
 *  text is ordinary text everywhere.
 *
 *  For messages without such texts the ids are those of weir_chat_render and weir_tokenize with WEIR_TOKENIZE_SPECIAL.
 *
 *  @param model      in
 *  @param messages   in, [n_messages]
 *  @param n_messages 0 .. 65535
 *  @param options    in, NULL for all defaults
 *  @param tokens     out, [capacity] ids; may be NULL when @p capacity is 0
 *  @param capacity   room at @p tokens
 *  @param n_tokens   out, number of ids of the whole conversation, also when they did not fit
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG       NULL pointer, bad struct_size, message_bytes or flags, unknown role, an order of
 *                                     roles that the template cannot have, JSON that is none, fields of a message that
 *                                     its role does not have, or 2^31 bytes of text and more
 *          WEIR_ERR_UNSUPPORTED       the file has no chat template, or one that cannot be run within the limits of
 *                                     weir_template_render; one without tools, or without the role of a message; or
 *                                     with WEIR_CHAT_CONTINUE and WEIR_CHAT_CONTINUE_LAST one that does not write
 *                                     answers as they are. Or a field of the options or of a message is set that this
 *                                     version does not know
 *          WEIR_ERR_NOT_FOUND         the template never reads a variable of variables_json: the message names it
 *          WEIR_ERR_BUFFER_TOO_SMALL  @p n_tokens is set, @p tokens untouched
 *          WEIR_ERR_FORMAT            the vocabulary has no token for a part of the text and no unknown token; or the
 *                                     file's template is wrong, or goes wrong with these messages: the message has its
 *                                     line
 *          WEIR_ERR_OUT_OF_MEMORY     an allocation was refused
 *          WEIR_ERR_CANCELLED         the progress callback refused or threw; nothing written
 *          WEIR_ERR_STATE             the model was opened with WEIR_MODEL_DESCRIBE_ONLY
 *  @threads immutable
 *  @owner the caller owns the buffers
 *  @since 1.0 */
WEIR_API weir_status weir_chat_tokenize(const weir_model *model, const weir_chat_message *messages, uint64_t n_messages,
                                        const weir_chat_options *options, weir_token *tokens, uint64_t capacity,
                                        uint64_t *n_tokens);

/** Render a conversation as the chat template of the model's file does, as text to look at.
 *
 *  Use weir_chat_tokenize to feed a session. Rendering and then tokenizing with WEIR_TOKENIZE_SPECIAL lets anybody
 *  whose text is in a message forge turns: "<|im_end|>" in it ends the turn, and what follows can be a system message
 *  of his own.
 *
 *  @param model      in
 *  @param messages   in, [n_messages]
 *  @param n_messages 0 .. 65535
 *  @param options    in, as of weir_chat_tokenize, NULL for all defaults; progress is not called
 *  @param text       out, [capacity] bytes, no NUL is added; may be NULL when @p capacity is 0
 *  @param capacity   room at @p text
 *  @param text_bytes out, bytes of the whole text, also when it did not fit
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG, WEIR_ERR_UNSUPPORTED, WEIR_ERR_NOT_FOUND
 *                                     as of weir_chat_tokenize
 *          WEIR_ERR_FORMAT            the template is wrong, or goes wrong with these messages: the message has the
 *                                     line
 *          WEIR_ERR_BUFFER_TOO_SMALL  @p text_bytes is set
 *          WEIR_ERR_OUT_OF_MEMORY     an allocation was refused
 *          WEIR_ERR_STATE             the model was opened with WEIR_MODEL_DESCRIBE_ONLY
 *  @threads immutable
 *  @owner the caller owns the buffers
 *  @since 1.1 */
WEIR_API weir_status weir_chat_render_with(const weir_model *model, const weir_chat_message *messages,
                                           uint64_t n_messages, const weir_chat_options *options, char *text,
                                           uint64_t capacity, uint64_t *text_bytes);

/** The same with flags only.
 *
 *  The function in the library takes messages of 24 bytes, as they were in 1.0, in every version. In sources the name
 *  stands for a call of weir_chat_render_with that says how large messages are.
 *
 *  @param model      in
 *  @param messages   in, [n_messages]
 *  @param n_messages 0 .. 65535
 *  @param flags      WEIR_CHAT_*
 *  @param text       out, [capacity] bytes, no NUL is added; may be NULL when @p capacity is 0
 *  @param capacity   room at @p text
 *  @param text_bytes out, bytes of the whole text, also when it did not fit
 *  @return as of weir_chat_render_with
 *  @threads immutable
 *  @owner the caller owns the buffers
 *  @since 1.0 */
WEIR_API weir_status weir_chat_render(const weir_model *model, const weir_chat_message *messages, uint64_t n_messages,
                                      uint32_t flags, char *text, uint64_t capacity, uint64_t *text_bytes);
#ifndef WEIR_BUILDING
static inline weir_status weir_chat_render_in_source(const weir_model *model, const weir_chat_message *messages,
                                                     uint64_t n_messages, uint32_t flags, char *text,
                                                     uint64_t capacity, uint64_t *text_bytes) {
    weir_chat_options options = WEIR_CHAT_OPTIONS_INIT;
    options.flags = flags;
    return weir_chat_render_with(model, messages, n_messages, &options, text, capacity, text_bytes);
}
#define weir_chat_render weir_chat_render_in_source
#endif

/** Render a chat template, given as text, with any variables: to look at, and to try out templates.
 *
 *  Templates are Jinja, as Python's jinja2 runs it for chat templates: trim_blocks, lstrip_blocks, loop controls, an
 *  immutable sandbox, raise_exception, strftime_now, tojson without HTML escapes, {% generation %}. Usual variables are
 *  "messages", "tools", "add_generation_prompt", "bos_token" and "eos_token". As with weir_chat_render, text of a
 *  message may look like control tokens in the result.
 *
 *  A template cannot run for ever: beyond fixed limits of steps, depth, memory and text it is refused.
 *
 *  @param runtime        in, whose memory the call uses
 *  @param template_text  in, [template_bytes] UTF-8; or the name of a built-in template, as in weir_chat_options
 *  @param template_bytes 0 .. 2^18
 *  @param variables_json in, [variables_bytes] a JSON object whose entries are the template's variables
 *  @param variables_bytes length of @p variables_json
 *  @param unix_time      what strftime_now sees, in seconds since 1970, as UTC; 0: the time of the call
 *  @param text           out, [capacity] bytes, no NUL is added; may be NULL when @p capacity is 0
 *  @param capacity       room at @p text
 *  @param text_bytes     out, bytes of the whole text, also when it did not fit
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG       NULL pointer, @p variables_json is no JSON object, or the template refuses these
 *                                     variables (raise_exception): the message has its line and words
 *          WEIR_ERR_FORMAT            the template is wrong, or goes wrong with these variables; the message has its
 *                                     line
 *          WEIR_ERR_UNSUPPORTED       it goes beyond a limit; the message has the line
 *          WEIR_ERR_BUFFER_TOO_SMALL  @p text_bytes is set
 *          WEIR_ERR_OUT_OF_MEMORY     an allocation was refused
 *  @threads any thread
 *  @owner the caller owns the buffers
 *  @since 1.1 */
WEIR_API weir_status weir_template_render(weir_runtime *runtime, const char *template_text, uint64_t template_bytes,
                                          const char *variables_json, uint64_t variables_bytes, int64_t unix_time,
                                          char *text, uint64_t capacity, uint64_t *text_bytes);

#ifdef __cplusplus
}
#endif
#endif /* WEIR_TEXT_H */
