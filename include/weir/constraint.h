/* Weir: what an answer may be. A constraint, such as a JSON schema or a grammar, or a function of the application
 * decides before each draw which tokens may come next. */
#ifndef WEIR_CONSTRAINT_H
#define WEIR_CONSTRAINT_H

#include "weir/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Which tokens may be drawn: bit i % 32 of words[i / 32] is that of token i. All bits are set when the function is
 *  called, those of tokens that the session's constraint forbids are not; bits that it clears are not drawn.
 *  @since 1.1 */
typedef struct weir_mask_info {
    uint32_t struct_size;     /**< sizeof this struct in the library that is loaded. */
    uint32_t vocab_size;      /**< Tokens of the model. */
    uint32_t n_tokens;        /**< Tokens of the answer so far. */
    uint32_t reserved;        /**< 0. */
    const weir_token *tokens; /**< [n_tokens] Those tokens. */
    uint32_t *words;          /**< [(vocab_size + 31) / 32] In and out. Bits behind the last token are ignored. */
} weir_mask_info;

/** Called before each draw. WEIR_OK lets the answer go on; anything else, and a C++ exception, ends it with
 *  WEIR_ERR_CANCELLED, the conversation as it was. It must not call functions of its session.
 *  @since 1.1 */
typedef weir_status (*weir_mask_fn)(void *user, const weir_mask_info *info);

/** What a constraint is written in.
 *  @since 1.1 */
enum weir_constraint_kind {
    WEIR_CONSTRAINT_JSON = 0,        /**< Any JSON value; no text. */
    WEIR_CONSTRAINT_JSON_SCHEMA = 1, /**< A JSON schema. */
    WEIR_CONSTRAINT_GBNF = 2,        /**< A grammar in llama.cpp's format. */
    WEIR_CONSTRAINT_TOOLS = 3        /**< A list of tools as OpenAI's API has it; the answer is a call of one of them,
                                          {"name": ..., "arguments": {...}}. */
};

/** A compiled constraint: for any number of sessions of its model, in any number of threads.
 *  @since 1.1 */
typedef struct weir_constraint weir_constraint;

/** Let a function decide which tokens may be drawn by weir_session_generate, weir_session_next and weir_session_sample.
 *
 *  It is asked after the session's constraint, if there is one. What is drawn is what the sampling options draw from
 *  the tokens that are left. Where none is left, an answer ends with WEIR_STOP_CONSTRAINT and nothing is appended;
 *  weir_session_sample fails with WEIR_ERR_STATE. A session on a device sends the mask there when it has changed, and
 *  gets the best of the tokens that are left, as it gets the best of all without a mask. A fork has the function, too;
 *  weir_session_reset keeps it; a saved session does not hold it. Takes memory beside the plan's: a bit for each token.
 *
 *  @param session in/out
 *  @param fn      in, NULL: none
 *  @param user    in, handed to @p fn
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG    NULL session
 *          WEIR_ERR_BUSY           another thread is inside the session; nothing changed
 *          WEIR_ERR_OUT_OF_MEMORY  nothing changed
 *  @threads one thread at a time; @p fn is called by the thread that is inside the session
 *  @owner @p user must live as long as the session may call @p fn
 *  @since 1.1 */
WEIR_API weir_status weir_session_set_token_mask(weir_session *session, weir_mask_fn fn, void *user);

/** Compile a constraint.
 *
 *  A schema may use type (also a list), properties, patternProperties (of at most 4 patterns), required,
 *  additionalProperties, minProperties, maxProperties, items, prefixItems, minItems, maxItems, enum, const, anyOf,
 *  allOf, oneOf of alternatives that cannot overlap, $defs and $ref to places in the same schema (with recursion),
 *  minLength, maxLength, pattern (without references back and looking around), format (date, time, date-time, duration,
 *  uuid, email, hostname, uri, ipv4, ipv6), minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf (of at
 *  most 9 digits, and some thousand states: 0.01 and 86400, not 99991). Notes, such as title or default, change
 *  nothing. Any other keyword is an error: what is not checked is not ignored. The answer is one value without white
 *  space around it, with at most 64 bytes of white space before and behind each of its marks; properties come in the
 *  order of the schema, then others that it allows. Integers are written without fraction and exponent, numbers with
 *  bounds or multipleOf without exponent; strings with pattern, format, enum or const, and names of properties beside
 *  patternProperties, in their usual spelling; names that the schema has only plainly, however it spells them itself.
 *
 *  A grammar has a rule `root`, names of letters, digits and `-`, `::=`, texts, classes of characters, `.`, groups,
 *  `|`, `*`, `+`, `?`, `{m,n}` and comments behind `#`. A rule that begins with itself is an error.
 *
 *  The first constraint of a model makes a list of the texts of its tokens, which the model keeps.
 *
 *  @param model      in
 *  @param kind       enum weir_constraint_kind
 *  @param text       in, UTF-8, [text_bytes]; NULL for WEIR_CONSTRAINT_JSON
 *  @param text_bytes its length
 *  @param out        out, the handle; NULL after a failure
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG    NULL, an unknown kind, a text that breaks its format or contradicts itself; the
 *                                  message has the line or the path
 *          WEIR_ERR_UNSUPPORTED    a keyword or construct that is not supported, with its path or line; a constraint
 *                                  that is too large
 *          WEIR_ERR_OUT_OF_MEMORY  nothing stays allocated
 *  @threads any thread
 *  @owner the caller; weir_constraint_destroy. The constraint keeps @p model alive.
 *  @since 1.1 */
WEIR_API weir_status weir_constraint_create(weir_model *model, int32_t kind, const char *text, uint64_t text_bytes,
                                            weir_constraint **out);

/** Give a constraint back. Sessions that have it keep it alive.
 *
 *  @param constraint in, NULL is allowed
 *  @return nothing
 *  @threads any thread
 *  @owner ends the caller's ownership
 *  @since 1.1 */
WEIR_API void weir_constraint_destroy(weir_constraint *constraint);

/** Let answers of a session be texts of a constraint, from their first token on. Each answer begins it anew:
 *  weir_session_begin and weir_session_generate; for weir_session_sample a prefill, a prompt or this call does.
 *
 *  An answer ends when its text is complete: tokens that end a generation can be drawn exactly then, and where
 *  nothing else may follow, the answer ends with WEIR_STOP_CONSTRAINT, without another draw. weir_session_sample draws
 *  a token that ends a generation there. Control tokens are never drawn, but that a thought stays free: where the model
 *  has tags of thoughts (enum weir_segment), the constraint rules what is said, anew behind a thought, and an answer
 *  may begin with the token that opens one; it does not end in a thought. What an answer has begun to say is ruled to
 *  its end, also where it looks like a call of a tool in the model's own format. A text that needs more states than
 *  there is room for, as one that is nested some thousand levels deep, ends the call with WEIR_ERR_UNSUPPORTED.
 *
 *  A fork has the constraint, too; weir_session_reset keeps it; a saved session does not hold it. A session takes some
 *  2.6 MB for it, beside the plan's bytes. Otherwise as weir_session_set_token_mask.
 *
 *  @param session    in/out
 *  @param constraint in, of the session's model; NULL: none
 *  @param segments   which parts of an answer it rules: 0, the answer itself
 *  @return WEIR_OK
 *          WEIR_ERR_INVALID_ARG    NULL session, a constraint of another model
 *          WEIR_ERR_UNSUPPORTED    @p segments is not 0
 *          WEIR_ERR_BUSY           another thread is inside the session; nothing changed
 *          WEIR_ERR_OUT_OF_MEMORY  nothing changed
 *  @threads one thread at a time
 *  @owner the session keeps the constraint alive
 *  @since 1.1 */
WEIR_API weir_status weir_session_set_constraint(weir_session *session, weir_constraint *constraint, uint32_t segments);

#ifdef __cplusplus
}
#endif
#endif /* WEIR_CONSTRAINT_H */
