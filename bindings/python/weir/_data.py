"""Enums, errors, results and options. Longer than 600 lines because generate.py writes it from include/weir."""
from ctypes import pointer, sizeof
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type

from ._convert import (Path, Text, address_at, biases, bytes_at, c_text, callback, decoded, hook, integer, json_text,
                       key_values, log_callback, offset_of, path_text, real, sized_text, str_at, texts)
from ._native import (
    weir_alloc_fn, weir_chat_info, weir_chat_message, weir_chat_options, weir_device_info, weir_event, weir_free_fn,
    weir_generate_options, weir_generate_result, weir_log_fn, weir_log_info, weir_logprob, weir_memory_counters,
    weir_memory_info, weir_model_info, weir_model_options, weir_page_state, weir_plan_info, weir_progress_fn,
    weir_progress_info, weir_prompt_options, weir_prompt_report, weir_runtime_options, weir_sampling_options,
    weir_session_options, weir_session_stats, weir_span, weir_special_tokens, weir_tensor_info, weir_token_event,
    weir_token_fn, weir_token_info, weir_tokenize_options
)


class Open(IntEnum):
    """An enum of which a newer library may have more values."""

    @classmethod
    def _missing_(cls, value: object) -> "Open":
        assert isinstance(value, int)
        new = int.__new__(cls, value)
        new._name_, new._value_ = f"UNKNOWN_{value}", value
        return new


class Status(Open):
    """Values of enum weir_status_code."""

    OK = 0
    #: An argument is None, out of range or contradicts another.
    INVALID_ARG = -1
    #: An allocator refused, or the machine has less than one allocation asks for.
    OUT_OF_MEMORY = -2
    #: A file could not be opened, read or mapped.
    IO = -3
    #: A file or a text breaks its format.
    FORMAT = -4
    #: Well-formed, but this build cannot do it.
    UNSUPPORTED = -5
    #: No policy, option, key or token of that name.
    NOT_FOUND = -6
    #: The position limit of the session is reached.
    CONTEXT_FULL = -7
    #: The KV budget is too small for the request; the message says what fits.
    BUDGET = -8
    #: Another thread is inside this session.
    BUSY = -9
    #: Stopped by weir_session_cancel or by a callback.
    CANCELLED = -10
    #: Not possible in the object's present state (no logits yet, for example).
    STATE = -11
    #: The caller's buffer is too small; the needed size was stored.
    BUFFER_TOO_SMALL = -12
    #: The device failed; the session is unusable, destroy it.
    DEVICE_LOST = -13
    #: A defect of Weir; please report it with the message.
    INTERNAL = -14


class MemoryKind(Open):
    """Kinds of memory that the allocator hooks are asked for."""

    #: Ordinary memory of the process.
    HOST = 0
    #: Memory of an accelerator, which only the device hooks are asked for; the pointer is a device pointer.
    DEVICE = 1


class LogLevel(Open):
    """Severity of a log line."""

    ERROR = 0
    WARNING = 1
    INFO = 2
    DEBUG = 3


class DeviceType(Open):
    """Devices that a session can run on."""

    #: The first of these that can run the session: CUDA's device; of Vulkan's devices the discrete GPU with the most
    #: memory, then an integrated GPU; the CPU. A device is passed over whose memory cannot hold the model, which lacks
    #: what the session needs (its policy and options, device memory from hooks), or if the model's weights are already
    #: on another. If weir_runtime_options.vulkan_device names a device, no other one of Vulkan's is looked at. Never a
    #: Vulkan driver that computes on the processor, and a virtual device only if it is named.
    AUTO = 0
    #: This machine's processor cores.
    CPU = 1
    #: The first NVIDIA GPU that the driver shows.
    CUDA = 2
    #: A device with Vulkan 1.3, see weir_runtime_options.vulkan_device.
    VULKAN = 3


class DeviceKind(Open):
    """Kinds of devices, see weir_device_info."""

    #: A GPU with memory of its own.
    DISCRETE = 0
    #: A GPU that shares the processor's memory.
    INTEGRATED = 1
    #: A GPU of a virtual machine, or what the driver calls by no other kind.
    VIRTUAL = 2
    #: The processor, also one that a Vulkan driver computes on.
    CPU = 3


class ModelFlags(IntFlag):
    """Bits of weir_model_options.flags."""

    #: Load the tokenizer only; files without weights are accepted, sessions and plans are refused (WEIR_ERR_STATE).
    VOCAB_ONLY = 1
    #: Read the whole file at once, so that the first tokens do not wait for the disk.
    PREFETCH = 2
    #: Read the file into memory from the allocator hooks instead of mapping it: as many bytes as the file has, in the
    #: runtime's counters. Once the call has returned, the file may change.
    COPY = 4
    #: Read only what the file says about itself, keys and tensors, of any GGUF file, also of one that is no model.
    #: Every call that needs more fails with WEIR_ERR_STATE: sessions, plans and all of weir/text.h. Of a model in
    #: several files, the part at the path, as with WEIR_MODEL_VOCAB_ONLY.
    DESCRIBE_ONLY = 8


class TokenizeFlags(IntFlag):
    """Bits of weir_tokenize flags."""

    #: Text such as "<|im_end|>" becomes the control token of that name. Off: it is plain text. Not for text of others:
    #: see weir_chat_tokenize.
    SPECIAL = 1
    #: Add the begin/end tokens that the model's file asks for.
    BOS_EOS = 2


class DetokenizeFlags(IntFlag):
    """Bits of weir_detokenize and weir_detokenizer_create flags."""

    #: Control tokens appear as their text. Off: they vanish.
    SPECIAL = 1


class TokenFlags(IntFlag):
    """Bits of weir_token_info.flags."""

    #: A control token such as BOS.
    CONTROL = 1
    #: One raw byte (byte fallback).
    BYTE = 2
    #: Added by the model's makers, ordinary text.
    USER_DEFINED = 4
    #: Stands for text that the vocabulary lacks.
    UNKNOWN = 8
    #: Ends an answer (EOS, end of turn): the file names it as an end, or it is a control token of a text that ends
    #: turns.
    END_OF_GENERATION = 16


class ChatFlags(IntFlag):
    """Bits of weir_chat_options.flags and of weir_chat_render flags."""

    #: End with the opening of an assistant turn, so that the model answers.
    ADD_ASSISTANT = 1
    #: The session already holds a conversation that ends in an answer of the model without its end-of-turn token:
    #: close that turn first, then render `messages` only.
    CONTINUE = 2
    #: Accepted, without any effect: every template is run itself.
    ACCEPT_RESEMBLING = 4
    #: The last message is the beginning of an answer: leave its turn open, so that the model goes on with it. Needs an
    #: "assistant" message at the end that the template writes as it is, but for white space around it.
    CONTINUE_LAST = 8


class ChatAbilities(IntFlag):
    """Bits of weir_chat_info.can."""

    #: System messages.
    SYSTEM = 1
    #: weir_chat_options.tools_json.
    TOOLS = 2
    #: Messages of the role "tool".
    TOOL_RESULTS = 4
    #: The model's thoughts are between tags.
    THOUGHTS = 8
    #: A variable of the template switches them off.
    SKIP_THOUGHTS = 16


class SessionFlags(IntFlag):
    """Bits of weir_session_options.flags."""

    #: Keep the attention masses of every step for the experimental weir_session_trace (weir/experimental.h); costs
    #: some speed and memory.
    TRACE = 1
    #: On a device: keys and values stay in host memory and the processor computes the attention of steps; the device
    #: has the weights and computes everything else, also most attention of prompts, over pages that pass through it.
    #: For contexts whose keys and values the device has no room for. Every policy and option works as on the CPU.
    #: Models with recurrent layers are refused; WEIR_DEVICE_AUTO takes the CPU for them. lfps does it without this
    #: flag, and psa with recall=on and a budget below the context. On the CPU it changes nothing.
    HOST_ATTENTION = 2


class SpillFlags(IntFlag):
    """Bits of weir_session_options.spill_flags."""

    #: No page is dropped in silence. A call that would append tokens fails, and appends none, with WEIR_ERR_BUDGET
    #: when the pages that they fill have no room; with WEIR_ERR_IO when a page is lost with the spill file, and with
    #: WEIR_ERR_FORMAT when one proves to be damaged, and so do all later ones until weir_session_reset.
    STRICT = 1
    #: All spilled pages are compressed at once.
    NO_RAW = 2
    #: On the CPU and with spill_budget_bytes 0, the store gets what makes the session take half of the memory that
    #: policy dense would take for the same context. The pages that were wanted the longest ago are dropped for good
    #: when it is full. Where the store would then be smaller than the pool, the pool holds the whole context instead,
    #: and nothing is stored. Attention on the host counts as the CPU; with attention on a device it changes nothing.
    HALF = 4


class KvFormat(Open):
    """Formats of the keys and values in the KV pages. What they cost in accuracy is measured in docs/results/formats.
    Formats but WEIR_KV_BF16 need heads of a multiple of 32 elements. Vulkan has no attention over them: it needs
    WEIR_SESSION_HOST_ATTENTION, and WEIR_DEVICE_AUTO takes another device or the CPU.
    """

    #: 16 bits an element.
    BF16 = 0
    #: 8.5 bits: signed bytes, and a scale for every 32 elements of a token.
    Q8 = 1
    #: 6.5 bits: keys as in WEIR_KV_Q8; values in 4.5 bits, after a rotation by a Hadamard matrix that is taken back
    #: behind attention.
    K8V4 = 2
    #: 5.25 bits: keys in 4 bits, with the range of every channel over the 16 tokens of a page; values as in
    #: WEIR_KV_K8V4. Attended on the processor only, also beside a device (WEIR_SESSION_HOST_ATTENTION).
    K4V4 = 3


class StopReason(Open):
    """Why an answer ended."""

    #: It failed before the first token.
    NONE = 0
    #: The model ended its answer.
    EOS = 1
    #: max_tokens were generated.
    LENGTH = 2
    #: The context is full.
    CONTEXT = 3
    #: weir_session_cancel or the callback.
    CANCELLED = 4
    #: The call failed; its status says why.
    ERROR = 5
    #: One of the texts of weir_generate_options.stop came.
    STRING = 6
    #: With WEIR_GENERATE_STOP_AT_CALL: one or more whole calls of tools came.
    TOOL_CALL = 7
    #: The constraint lets no further token follow: the text is complete by it; or a mask allows none
    #: (weir/constraint.h).
    CONSTRAINT = 8


class GenerateFlags(IntFlag):
    """Bits of weir_generate_options.flags."""

    #: Control tokens appear in the events' text.
    SPECIAL_TEXT = 1
    #: Go on after tokens that end an answer.
    IGNORE_EOS = 2
    #: After calls of tools, end before the first token that is no part of them, which is not appended, or with the
    #: token that ends the answer: WEIR_STOP_TOOL_CALL. WEIR_ERR_UNSUPPORTED where the model's way of writing calls is
    #: not known (weir_chat_info.tool_format).
    STOP_AT_CALL = 4


class Segment(Open):
    """What the text of an event is part of, by the tags of the model's chat template, or if it has none of its
    vocabulary.
    """

    #: What the model says. All of it where the model has no tags.
    ANSWER = 0
    #: A thought, also one that the prompt has opened.
    THOUGHT = 1
    #: A call of a tool as the model writes it, with the text of control tokens.
    TOOL_CALL = 2
    #: A tag that begins or ends one of these, or what names it. Its text is given with WEIR_GENERATE_SPECIAL_TEXT
    #: alone.
    MARK = 3


class EventKind(Open):
    """What an event of an answer is."""

    #: A token, and the text that is complete with it, perhaps none.
    TOKEN = 0
    #: Text without a token: it was held back for a stop string or because it could have become a tag, belongs to
    #: another segment than the text before it, or no token completes it.
    TEXT = 1
    #: The answer has ended.
    END = 2


class RewindFlags(IntFlag):
    """Bits of the flags of weir_session_rewind."""

    #: Go back although pages of the tokens that stay are lost.
    LOSSY = 1


class PromptFlags(IntFlag):
    """Bits of weir_prompt_options.flags."""

    #: Change nothing, only fill the report.
    MEASURE = 1
    #: Where going back needs pages that are lost, forget the conversation, with its pins and unread page events, and
    #: read all of it again. Without this bit the session goes back without them, and the report counts them. Layers
    #: with a sliding window lose what has left it, under every policy; there this bit is for all who want no
    #: difference.
    EXACT = 2
    #: weir_session_prompt only: where the conversation does not fit, leave out its oldest turns, but neither system
    #: messages at its beginning nor the last turn.
    DROP_OLDEST = 4


class ConstraintKind(Open):
    """What a constraint is written in."""

    #: Any JSON value; no text.
    JSON = 0
    #: A JSON schema.
    JSON_SCHEMA = 1
    #: A grammar in llama.cpp's format.
    GBNF = 2
    #: A list of tools as OpenAI's API has it; the answer is a call of one of them, {"name": ..., "arguments": {...}}.
    TOOLS = 3


class WeirError(Exception):
    """A call of the library failed; str() is the library's text, which names the cause."""

    status: Status = Status.INTERNAL


class InvalidArgError(WeirError):
    """An argument is None, out of range or contradicts another."""
    status = Status.INVALID_ARG


class OutOfMemoryError(WeirError):
    """An allocator refused, or the machine has less than one allocation asks for."""
    status = Status.OUT_OF_MEMORY


class IoError(WeirError):
    """A file could not be opened, read or mapped."""
    status = Status.IO


class FormatError(WeirError):
    """A file or a text breaks its format."""
    status = Status.FORMAT


class UnsupportedError(WeirError):
    """Well-formed, but this build cannot do it."""
    status = Status.UNSUPPORTED


class NotFoundError(WeirError):
    """No policy, option, key or token of that name."""
    status = Status.NOT_FOUND


class ContextFullError(WeirError):
    """The position limit of the session is reached."""
    status = Status.CONTEXT_FULL


class BudgetError(WeirError):
    """The KV budget is too small for the request; the message says what fits."""
    status = Status.BUDGET


class BusyError(WeirError):
    """Another thread is inside this session."""
    status = Status.BUSY


class CancelledError(WeirError):
    """Stopped by weir_session_cancel or by a callback."""
    status = Status.CANCELLED


class StateError(WeirError):
    """Not possible in the object's present state (no logits yet, for example)."""
    status = Status.STATE


class BufferTooSmallError(WeirError):
    """The caller's buffer is too small; the needed size was stored."""
    status = Status.BUFFER_TOO_SMALL


class DeviceLostError(WeirError):
    """The device failed; the session is unusable, destroy it."""
    status = Status.DEVICE_LOST


class InternalError(WeirError):
    """A defect of Weir; please report it with the message."""
    status = Status.INTERNAL


ERRORS: Dict[int, Type[WeirError]] = {
    -1: InvalidArgError,
    -2: OutOfMemoryError,
    -3: IoError,
    -4: FormatError,
    -5: UnsupportedError,
    -6: NotFoundError,
    -7: ContextFullError,
    -8: BudgetError,
    -9: BusyError,
    -10: CancelledError,
    -11: StateError,
    -12: BufferTooSmallError,
    -13: DeviceLostError,
    -14: InternalError,
}


def _members(of: Any) -> List[Any]:
    """By number, those of newer libraries too, as a list is faster than a call of the class."""
    return [of(value) for value in range(64)]


_LOGLEVEL = _members(LogLevel)
_DEVICETYPE = _members(DeviceType)
_DEVICEKIND = _members(DeviceKind)
_STOPREASON = _members(StopReason)
_SEGMENT = _members(Segment)
_EVENTKIND = _members(EventKind)


class Logprob(NamedTuple):
    """A token and how probable it was."""

    #: The token.
    token: int
    #: Natural logarithm of its probability by the model's logits alone: before bias, penalties, temperature and cuts.
    logprob: float


def logprob_of(s: weir_logprob) -> Logprob:
    return tuple.__new__(Logprob, (s.token, s.logprob,))


class LogLine(NamedTuple):
    """One log line."""

    #: WEIR_LOG_*.
    level: LogLevel
    #: One line of UTF-8, at most 511 bytes. Escaped like the text of weir_last_error.
    message: str


_LOGLINE_MESSAGE = offset_of(weir_log_info, "message")


def log_line_of(s: weir_log_info) -> LogLine:
    message = s.message or b""
    if len(message) != s.message_bytes:
        message = bytes_at(address_at(s, _LOGLINE_MESSAGE), s.message_bytes)
    return tuple.__new__(LogLine, (_LOGLEVEL[s.level], message.decode(),))


class MemoryCounters(NamedTuple):
    """What a runtime holds, see weir_runtime_memory."""

    #: Bytes now allocated through the host hooks.
    bytes: int
    #: Highest value of bytes so far.
    peak_bytes: int
    #: Allocations made so far.
    n_allocs: int
    #: Frees made so far.
    n_frees: int
    #: Device memory now allocated: weights and sessions.
    device_bytes: int
    #: Highest value of device_bytes so far.
    device_peak_bytes: int
    #: Allocations of device memory made so far.
    n_device_allocs: int
    #: Frees of device memory made so far.
    n_device_frees: int


def memory_counters_of(s: weir_memory_counters) -> MemoryCounters:
    return tuple.__new__(MemoryCounters, (s.bytes, s.peak_bytes, s.n_allocs, s.n_frees, s.device_bytes,
            s.device_peak_bytes, s.n_device_allocs, s.n_device_frees,))


class DeviceInfo(NamedTuple):
    """A device of this machine, see weir_runtime_devices."""

    #: Among the devices of its backend; weir_runtime_options.vulkan_device takes it.
    index: int  # type: ignore[assignment]
    #: WEIR_DEVICE_*, never WEIR_DEVICE_AUTO: which backend has it. A GPU that two of them have is listed twice.
    backend: DeviceType
    #: WEIR_DEVICE_KIND_*.
    kind: DeviceKind
    #: 1: sessions of this runtime may run on it, as far as can be told without opening it. 0: not, see `why_not`.
    is_usable: bool
    #: All of its memory; of a processor the machine's, or what the container may use of it.
    memory_bytes: int
    #: One line of UTF-8.
    name: str
    #: Likewise: the driver and its version; of the CPU the instruction set in use.
    driver: str
    #: Likewise: what it lacks; "" if it is usable.
    why_not: str


def device_info_of(s: weir_device_info) -> DeviceInfo:
    return tuple.__new__(DeviceInfo, (s.index, _DEVICETYPE[s.backend], _DEVICEKIND[s.kind], bool(s.is_usable),
            s.memory_bytes, decoded(s.name), decoded(s.driver), decoded(s.why_not),))


class Progress(NamedTuple):
    """Progress of a long call."""

    #: Units done, 0..total: bytes in weir_model_open and where text becomes tokens, tokens in weir_session_prefill.
    done: int
    #: Units in all.
    total: int


def progress_of(s: weir_progress_info) -> Progress:
    return tuple.__new__(Progress, (s.done, s.total,))


class ModelInfo(NamedTuple):
    """Facts about a model. Sizes are 0 for what a vocabulary-only file does not say."""

    #: Transformer layers.
    n_layers: int
    #: Query heads of a layer.
    n_heads: int
    #: KV heads of a layer.
    n_kv_heads: int
    #: Elements of a head.
    head_dim: int
    #: Width of the residual stream.
    d_model: int
    #: Inner width of the feed-forward part.
    d_ff: int
    #: Tokens of the vocabulary.
    vocab_size: int
    #: Positions the model was trained for.
    context_tokens: int
    #: Tensors in the file.
    n_tensors: int
    #: Weights in all tensors.
    n_params: int
    #: Bytes of all tensors in the file; used where they lie in it, mapped or copied.
    weights_bytes: int
    #: Size of the file, or of all its parts together.
    file_bytes: int
    #: Hash of hyper-parameters, tensor table and vocabulary; 0 with WEIR_MODEL_VOCAB_ONLY.
    fingerprint: int
    #: general.architecture: "llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3", "granite", "olmo2",
    #: "glm4", "qwen3vl", "mistral3", "qwen35", "lfm2", "nemotron_h", "granitehybrid", "qwen2moe", "qwen3moe",
    #: "qwen3vlmoe", "gpt-oss", "glm4moe", "granitemoe", "qwen35moe", "qwen3next", "lfm2moe" or "nemotron_h_moe".
    architecture: str
    #: general.name as one line of UTF-8, or "".
    name: str
    #: Type of most weights, such as "q8_0".
    weight_type: str
    #: "jinja" when the file has a chat template, which is run; "" when there is none.
    chat_template: str
    #: Tokenizer kind and pre-tokenizer, such as "gpt2/llama-bpe".
    tokenizer: str
    #: Bytes of the file in memory of the allocator hooks: all of them with WEIR_MODEL_COPY, 0 when it is mapped.
    copied_bytes: int
    #: Always "": every template is run itself.
    chat_resembles: str
    #: Files that the model is in, at least 1; see weir_model_open.
    n_parts: int


def model_info_of(s: weir_model_info) -> ModelInfo:
    return tuple.__new__(ModelInfo, (s.n_layers, s.n_heads, s.n_kv_heads, s.head_dim, s.d_model, s.d_ff,
            s.vocab_size, s.context_tokens, s.n_tensors, s.n_params, s.weights_bytes, s.file_bytes, s.fingerprint,
            decoded(s.architecture), decoded(s.name), decoded(s.weight_type), decoded(s.chat_template),
            decoded(s.tokenizer), s.copied_bytes, decoded(s.chat_resembles), s.n_parts,))


class TensorInfo(NamedTuple):
    """One tensor of a model."""

    #: 1..4.
    n_dims: int
    #: Slowest axis first; unused ones are 1.
    dims: Tuple[int, ...]
    #: Size in the file.
    bytes: int
    #: Where its bytes start in the file.
    file_offset: int
    #: Its name in the file.
    name: str
    #: Such as "q8_0".
    type: str
    #: Which of the model's files it is in, 0 .. n_parts - 1.
    part: int


def tensor_info_of(s: weir_tensor_info) -> TensorInfo:
    return tuple.__new__(TensorInfo, (s.n_dims, tuple(s.dims), s.bytes, s.file_offset, decoded(s.name),
            decoded(s.type), s.part,))


class TokenInfo(NamedTuple):
    """One token of a vocabulary."""

    #: WEIR_TOKEN_*.
    flags: TokenFlags
    #: As stored in the file, UTF-8.
    text: str
    #: Score of SentencePiece vocabularies, else 0.
    score: float
    #: What the token stands for in running text, a space where the text above has a sign for one. Any bytes, perhaps
    #: part of a UTF-8 sequence. Of control and unknown tokens their text.
    bytes: bytes


_TOKENINFO_TEXT = offset_of(weir_token_info, "text")
_TOKENINFO_BYTES = offset_of(weir_token_info, "bytes")


def token_info_of(s: weir_token_info) -> TokenInfo:
    return tuple.__new__(TokenInfo, (TokenFlags(s.flags), str_at(address_at(s, _TOKENINFO_TEXT), s.text_bytes),
            s.score, bytes_at(address_at(s, _TOKENINFO_BYTES), s.n_bytes),))


class SpecialTokens(NamedTuple):
    """Tokens with a special meaning, -1 where the model has none."""

    #: Begin of text.
    bos: int
    #: End of text or turn.
    eos: int
    #: End of turn, when it differs from eos.
    eot: int
    #: Unknown.
    unk: int
    #: Padding.
    pad: int
    #: 1 when WEIR_TOKENIZE_BOS_EOS adds bos, else 0.
    add_bos: int
    #: 1 when WEIR_TOKENIZE_BOS_EOS adds eos, else 0.
    add_eos: int


def special_tokens_of(s: weir_special_tokens) -> SpecialTokens:
    return tuple.__new__(SpecialTokens, (s.bos, s.eos, s.eot, s.unk, s.pad, s.add_bos, s.add_eos,))


class ChatInfo(NamedTuple):
    """What a model's chat template can do, and how the parts of its answers are told apart."""

    #: WEIR_CHAT_CAN_*.
    can: ChatAbilities
    #: Text that begins a thought, "" when the model has no tags.
    thought_begin: str
    #: Text that ends it, "" likewise.
    thought_end: str
    #: Name of the model's way of writing calls of tools, "hermes", "llama3", "mistral", "harmony" and so on, or ""
    #: when none is known.
    tool_format: str


def chat_info_of(s: weir_chat_info) -> ChatInfo:
    return tuple.__new__(ChatInfo, (ChatAbilities(s.can), decoded(s.thought_begin), decoded(s.thought_end),
            decoded(s.tool_format),))


class Plan(NamedTuple):
    """The exact bytes of every pool of a session, known before anything is allocated."""

    #: Most positions.
    context_tokens: int
    #: Tokens of one stream that fit: pages_per_stream * page_tokens.
    budget_tokens: int
    #: Tokens of a page.
    page_tokens: int
    #: Pages a stream can hold; streams of layers that a policy leaves dense hold the context.
    pages_per_stream: int
    #: Layers with attention times KV heads.
    n_streams: int
    #: Bytes of one page.
    page_bytes: int
    #: Weights in the file, mapped and shared by all sessions; not in total_bytes.
    weights_bytes: int
    #: Resident KV pages.
    kv_bytes: int
    #: Page digests.
    digest_bytes: int
    #: Page tables, stamps, scores, free lists; on the CPU also the ring of page events.
    table_bytes: int
    #: Activations, logits, partial results of attention.
    workspace_bytes: int
    #: Sampler state, and the tokens of the conversation that are kept (weir_session_tokens).
    sampler_bytes: int
    #: The session object itself.
    session_bytes: int
    #: Host memory that a device copies from and to: the host's page tables and the ring of page events, or with
    #: attention on the host activations, and two parts of a layer's pages on their way. 0 on the CPU. A Vulkan driver
    #: gives it, not the host hooks, and it is counted like theirs.
    staging_bytes: int
    #: Host memory of the store of pages outside the KV pool: its pages, the queue to its compression and all that this
    #: needs. Else 0. A Vulkan driver gives the part for uncompressed pages, as it gives staging_bytes.
    spill_bytes: int
    #: What vendor libraries reserve; 0, as no backend of this version uses one.
    library_bytes: int
    #: All of the session's own memory: the sum of the fields from kv_bytes to library_bytes, recurrent_bytes and
    #: snapshot_bytes.
    total_bytes: int
    #: The part of total_bytes on the device: pages, digests, tables, workspace and recurrent_bytes. With attention on
    #: the host, part of workspace_bytes. 0 on the CPU.
    device_bytes: int
    #: Device memory of the weights, shared by all sessions of the model there; not in total_bytes.
    device_weights_bytes: int
    #: WEIR_DEVICE_* that the session will run on.
    device: DeviceType
    #: Those of the n_streams in layers with a sliding window of their own.
    n_window_streams: int
    #: Pages that such a stream can hold instead of pages_per_stream, whatever the policy and the budget: those of the
    #: window and of a prompt chunk of batch_tokens.
    window_pages_per_stream: int
    #: The part of kv_bytes for pages of such streams.
    window_kv_bytes: int
    #: Size of the spill file; not in total_bytes.
    spill_file_bytes: int
    #: Those of the n_streams whose KV heads the option heads makes hold the first tokens and a window.
    n_head_streams: int
    #: Pages that such a stream can hold, whatever the policy and the budget: those of the first tokens, of the window
    #: and of a prompt chunk of batch_tokens.
    head_pages_per_stream: int
    #: The part of kv_bytes for pages of such streams.
    head_kv_bytes: int
    #: The part of spill_bytes for pages as they are.
    spill_raw_bytes: int
    #: The part of spill_bytes for compressed pages.
    spill_compressed_bytes: int
    #: Positions whose pages the store and its file hold whatever is in them. With fewer than context_tokens, pages may
    #: be dropped for good, those first that were wanted the longest ago. 0 without a store.
    spill_tokens: int
    #: State of recurrent layers, twice: of now, and what the next step writes. It does not grow with the conversation.
    recurrent_bytes: int
    #: Host memory of n_snapshots copies of that state.
    snapshot_bytes: int
    #: How many places of the conversation are kept to go back to, besides its beginning. 0 where every layer has
    #: attention.
    n_snapshots: int
    #: weir_session_options.snapshot_tokens, or its default. 0 where every layer has attention.
    snapshot_tokens: int


def plan_of(s: weir_plan_info) -> Plan:
    return tuple.__new__(Plan, (s.context_tokens, s.budget_tokens, s.page_tokens, s.pages_per_stream, s.n_streams,
            s.page_bytes, s.weights_bytes, s.kv_bytes, s.digest_bytes, s.table_bytes, s.workspace_bytes,
            s.sampler_bytes, s.session_bytes, s.staging_bytes, s.spill_bytes, s.library_bytes, s.total_bytes,
            s.device_bytes, s.device_weights_bytes, _DEVICETYPE[s.device], s.n_window_streams,
            s.window_pages_per_stream, s.window_kv_bytes, s.spill_file_bytes, s.n_head_streams,
            s.head_pages_per_stream, s.head_kv_bytes, s.spill_raw_bytes, s.spill_compressed_bytes, s.spill_tokens,
            s.recurrent_bytes, s.snapshot_bytes, s.n_snapshots, s.snapshot_tokens,))


class MemoryInfo(NamedTuple):
    """Memory of a live session."""

    #: weir_plan_info.total_bytes of this session.
    plan_bytes: int
    #: Allocated now.
    bytes: int
    #: Highest value so far.
    peak_bytes: int
    #: Size of the KV pool.
    kv_budget_bytes: int
    #: Bytes of the pages that hold tokens now.
    kv_bytes: int
    #: Highest value so far.
    kv_peak_bytes: int
    #: Allocations of this session.
    n_allocs: int
    #: Allocations made after create, also of device memory; Weir promises 0.
    allocs_while_decoding: int
    #: The part of bytes that is memory of the device.
    device_bytes: int


def memory_info_of(s: weir_memory_info) -> MemoryInfo:
    return tuple.__new__(MemoryInfo, (s.plan_bytes, s.bytes, s.peak_bytes, s.kv_budget_bytes, s.kv_bytes,
            s.kv_peak_bytes, s.n_allocs, s.allocs_while_decoding, s.device_bytes,))


class Stats(NamedTuple):
    """Counters of a session since its creation (weir_session_reset keeps them)."""

    #: Positions now in the conversation.
    n_tokens: int
    #: Tokens that went through prefill.
    n_prompt: int
    #: Tokens that went through step or generate.
    n_decode: int
    #: Pages that hold tokens now, all streams.
    pages_resident: int
    #: Highest value so far.
    pages_resident_max: int
    #: Pages that left because of the budget, each as often as it left.
    pages_evicted: int
    #: Those of pages_evicted that were kept in host memory and not dropped.
    pages_spilled: int
    #: Times that a page came back from there.
    pages_recalled: int
    #: Pages that are gone for good.
    pages_dropped: int
    #: Time inside prefill.
    prefill_ns: int
    #: Time of decode steps and of drawing tokens in generate, without the callback.
    decode_ns: int
    #: Pages that the latest decode step attended, all streams; a page counts once for each list that contains it.
    pages_attended: int
    #: Pages that are now in host memory alone.
    pages_cold: int
    #: Host memory that spilled pages take now, copies of resident pages included.
    spill_stored_bytes: int
    #: The part of decode_ns in which pages came back.
    recall_ns: int
    #: Times that a page had to wait for the compression of others.
    spill_waits: int
    #: Spilled pages that proved to be damaged, and 1 when the spill file was given up because reading or writing
    #: failed. Such pages count as dropped.
    spill_errors: int
    #: Spilled pages that are uncompressed now, copies of resident pages included.
    spill_pages_raw: int
    #: Times that a compressed page was restored to be read.
    spill_restored: int


def stats_of(s: weir_session_stats) -> Stats:
    return tuple.__new__(Stats, (s.n_tokens, s.n_prompt, s.n_decode, s.pages_resident, s.pages_resident_max,
            s.pages_evicted, s.pages_spilled, s.pages_recalled, s.pages_dropped, s.prefill_ns, s.decode_ns,
            s.pages_attended, s.pages_cold, s.spill_stored_bytes, s.recall_ns, s.spill_waits, s.spill_errors,
            s.spill_pages_raw, s.spill_restored,))


class PageState(NamedTuple):
    """Where a page of a conversation is: in how many of weir_plan_info.n_streams streams."""

    #: In the KV pool.
    resident: int
    #: In host memory or the spill file alone.
    cold: int
    #: Nowhere: dropped, or behind a sliding window. The three make up all streams.
    lost: int
    #: Streams where it may not leave: pinned by the application, or by the policy as a prompt.
    pinned: int


def page_state_of(s: weir_page_state) -> PageState:
    return tuple.__new__(PageState, (s.resident, s.cold, s.lost, s.pinned,))


class TokenEvent(NamedTuple):
    """One generated token, for the callback of weir_session_generate."""

    #: The token; -1 in a last event that only brings text which no token can complete any more.
    token: int
    #: 0 for the first token of this call.
    index: int  # type: ignore[assignment]
    #: Positions in the conversation before this token is appended.
    n_tokens: int
    #: Text that is now complete, whole UTF-8 sequences, perhaps empty.
    text: str
    #: As of weir_event.
    logprob: float
    #: As of weir_event.
    top: Sequence[Logprob]


_TOKENEVENT_TEXT = offset_of(weir_token_event, "text")


def token_event_of(s: weir_token_event) -> TokenEvent:
    text = s.text or b""
    if len(text) != s.text_bytes:
        text = bytes_at(address_at(s, _TOKENEVENT_TEXT), s.text_bytes)
    return tuple.__new__(TokenEvent, (s.token, s.index, s.n_tokens, text.decode(), s.logprob, [logprob_of(item) for
            item in s.top[:s.n_top]] if s.n_top else (),))


class GenerateResult(NamedTuple):
    """Result of weir_session_generate."""

    #: WEIR_STOP_*.
    stop: StopReason
    #: Tokens generated, without the one that ended the answer.
    n_tokens: int
    #: The token that ended the answer, or the last one; -1 when there was none.
    last_token: int
    #: Which of the texts of WEIR_STOP_STRING it was; otherwise -1.
    stop_index: int


def generate_result_of(s: weir_generate_result) -> GenerateResult:
    return tuple.__new__(GenerateResult, (_STOPREASON[s.stop], s.n_tokens, s.last_token, s.stop_index,))


class Event(NamedTuple):
    """One event of an answer, from weir_session_next."""

    #: WEIR_EVENT_*.
    kind: EventKind
    #: The token; of an end the one that ended the answer, which is not appended; else -1.
    token: int
    #: Number of the token in this answer, from 0; of other events how many there were.
    index: int  # type: ignore[assignment]
    #: Positions in the conversation, with this token.
    n_tokens: int
    #: Why the answer ended: WEIR_STOP_*; WEIR_STOP_NONE of other events.
    stop: StopReason
    #: Which of the texts of WEIR_STOP_STRING it was; otherwise -1.
    stop_index: int
    #: WEIR_SEGMENT_*: what the text is part of, or without text what the token is.
    segment: Segment
    #: Whole UTF-8 sequences, perhaps empty.
    text: str
    #: That of weir_logprob. NaN of other events and where n_top of the options is 0.
    logprob: float
    #: [n_top], the most probable first, of equals the lower id; the token itself need not be among them. None where
    #: n_top is 0.
    top: Sequence[Logprob]


_EVENT_TEXT = offset_of(weir_event, "text")


def event_of(s: weir_event) -> Event:
    text = s.text or b""
    if len(text) != s.text_bytes:
        text = bytes_at(address_at(s, _EVENT_TEXT), s.text_bytes)
    return tuple.__new__(Event, (_EVENTKIND[s.kind], s.token, s.index, s.n_tokens, _STOPREASON[s.stop],
            s.stop_index, _SEGMENT[s.segment], text.decode(), s.logprob, [logprob_of(item) for item in
            s.top[:s.n_top]] if s.n_top else (),))


class PromptReport(NamedTuple):
    """What weir_session_prompt or weir_session_prompt_tokens did."""

    #: Tokens of the conversation now.
    n_tokens: int
    #: Those of the n_tokens that were there and stayed.
    n_kept: int
    #: The others.
    n_read: int
    #: Tokens that were in the session and are no more: thoughts, edited turns.
    n_forgotten: int
    #: Messages left out by WEIR_PROMPT_DROP_OLDEST, those behind the system messages.
    n_messages_dropped: int
    #: Pages of the kept tokens that the next one would attend and the session has lost, summed over its streams:
    #: dropped by the policy, or behind a sliding window that has moved on. With WEIR_PROMPT_MEASURE those that are
    #: lost already.
    pages_missing: int


def prompt_report_of(s: weir_prompt_report) -> PromptReport:
    return tuple.__new__(PromptReport, (s.n_tokens, s.n_kept, s.n_read, s.n_forgotten, s.n_messages_dropped,
            s.pages_missing,))


class Span(NamedTuple):
    """Positions of a message's text in a conversation."""

    #: Position of the first token with text of the message.
    first: int
    #: One past the last one; equal to first where the template leaves the text out, or writes it in another way.
    end: int


def span_of(s: weir_span) -> Span:
    return tuple.__new__(Span, (s.first, s.end,))


@dataclass
class RuntimeOptions:
    """Options of weir_runtime_create."""

    #: Threads that compute, the caller's included; 1..256. 0 (default): the cores that this process may use, at most
    #: the whole ones in its container's limit (at least 1).
    n_threads: int = 0
    #: Allocator hook; None (default) for the system's. Set both hooks or neither.
    alloc: Any = None
    #: Its counterpart.
    free: Any = None
    #: Log hook; None (default) for none.
    log: Optional[Callable[[LogLine], None]] = None
    #: Most detailed WEIR_LOG_* level wanted. Default WEIR_LOG_ERROR.
    log_level: int = LogLevel.ERROR
    #: Folder of the backend modules (libweir_cuda.so). None (default): that of the library itself. A relative one
    #: means the folder that is current now. It is copied, and shorter than 1024 bytes, with the current folder if it
    #: is relative.
    backend_dir: Optional[Path] = None
    #: Hook for device memory (WEIR_MEMORY_DEVICE, aligned to 256); None (default): the backend's own. Set both hooks
    #: or neither.
    device_alloc: Any = None
    #: Its counterpart.
    device_free: Any = None
    #: Which device WEIR_DEVICE_VULKAN is: its index (weir_device_info), or a part of its name, in any case of letters.
    #: None (default): a discrete GPU before an integrated one before a virtual one before a driver that computes on
    #: the processor, of equals the one with most memory. It is copied, and shorter than 256 bytes. A session on it
    #: fails with WEIR_ERR_NOT_FOUND if there is no such device, and WEIR_ERR_INVALID_ARG if several have the name.
    #: Both list the devices. A process uses one device: a session on a second one fails with WEIR_ERR_UNSUPPORTED,
    #: which names both.
    vulkan_device: Optional[Text] = None
    #: Folder (UTF-8) for what drivers compiled, so that the first session of the next process need not wait for it:
    #: Vulkan's pipelines, one file for each device, up to 128 MiB. It is made when it is needed. It and the files must
    #: belong to the user and be writable by nobody else, and a link to the folder must be the user's own too. What is
    #: damaged or of another driver is written anew, and what cannot be read or written costs time and a log line,
    #: never a session. So does a relative folder where the current one is gone. None (default): nothing is kept. It is
    #: copied, made absolute, and shorter than 1024 bytes.
    cache_dir: Optional[Path] = None

    def to_native(self) -> weir_runtime_options:
        s = weir_runtime_options()
        s.struct_size = sizeof(s)
        s.n_threads = integer("n_threads", self.n_threads, True)
        s.alloc = hook(weir_alloc_fn, self.alloc)
        s.free = hook(weir_free_fn, self.free)
        s.log = log_callback(weir_log_fn, self.log, log_line_of)
        s.log_level = integer("log_level", self.log_level, False)
        s.backend_dir = path_text("backend_dir", self.backend_dir)
        s.device_alloc = hook(weir_alloc_fn, self.device_alloc)
        s.device_free = hook(weir_free_fn, self.device_free)
        s.vulkan_device = c_text("vulkan_device", self.vulkan_device)
        s.cache_dir = path_text("cache_dir", self.cache_dir)
        return s


@dataclass
class ModelOptions:
    """Options of weir_model_open."""

    #: WEIR_MODEL_*. Default 0.
    flags: int = ModelFlags(0)
    #: Progress and cancel, see weir_model_open; None (default) for none.
    progress: Optional[Callable[[Progress], Optional[bool]]] = None

    def to_native(self) -> weir_model_options:
        s = weir_model_options()
        s.struct_size = sizeof(s)
        s.flags = integer("flags", self.flags, True)
        s.progress, s.progress_user = callback(s, weir_progress_fn, self.progress, progress_of)
        return s


@dataclass
class Message:
    """One message of a conversation. It may grow in later versions; callers of weir_chat_tokenize and
    weir_session_prompt say how large theirs are (weir_chat_options.message_bytes).
    """

    #: "system", "user" or "assistant". Also "tool" and "developer" where the template has words for them.
    role: str
    #: UTF-8. None with content_bytes 0: empty.
    content: Text = ""
    #: What the model thought before an answer, UTF-8 without tags; None: nothing. The template decides whether it is
    #: kept: most leave out those of earlier turns.
    thought: Optional[Text] = None
    #: The calls in an answer, JSON, a list of objects with "name", "arguments" (an object) and perhaps "id", or as in
    #: OpenAI's API, with these two in "function". None: none.
    tool_calls: Any = None
    #: The call that a tool's result answers; None: not said.
    tool_call_id: Optional[Text] = None
    #: The tool that a result is of; else who speaks; None: not said.
    name: Optional[Text] = None

    def to_native(self) -> weir_chat_message:
        s = weir_chat_message()
        s.role = c_text("role", self.role)
        s.content, s.content_bytes = sized_text(self.content)
        s.thought, s.thought_bytes = sized_text(self.thought)
        s.tool_calls_json = json_text("tool_calls", self.tool_calls)
        s.tool_call_id = c_text("tool_call_id", self.tool_call_id)
        s.name = c_text("name", self.name)
        return s


@dataclass
class ChatOptions:
    """Options of weir_chat_tokenize and weir_session_prompt."""

    #: WEIR_CHAT_*. Default 0.
    flags: int = ChatFlags(0)
    #: Progress in bytes of the rendered text, and cancel, as in weir_tokenize_with; None (default) for none.
    progress: Optional[Callable[[Progress], Optional[bool]]] = None
    #: A chat template (Jinja) to use instead of the file's, at most 2^18 bytes, or the name of a built-in one:
    #: "chatml", "llama3", "mistral", "gemma", "granite", "glm4" or "harmony". None (default): the file's.
    template_text: Optional[Text] = None
    #: The tools that the model may call: a JSON list as in OpenAI's API. None (default): none. WEIR_ERR_UNSUPPORTED
    #: where the template has no place for them.
    tools: Any = None
    #: More variables of the template: a JSON object, such as {"enable_thinking": false}. None (default): none. One
    #: that the template never reads is WEIR_ERR_NOT_FOUND, so that nothing is switched off in vain.
    variables: Any = None
    #: What strftime_now sees, in seconds since 1970, as UTC; 0 (default): the time of the call.
    unix_time: int = 0

    def to_native(self) -> weir_chat_options:
        s = weir_chat_options()
        s.struct_size = sizeof(s)
        s.message_bytes = sizeof(weir_chat_message)
        s.flags = integer("flags", self.flags, True)
        s.progress, s.progress_user = callback(s, weir_progress_fn, self.progress, progress_of)
        s.template_text = c_text("template_text", self.template_text)
        s.tools_json = json_text("tools", self.tools)
        s.variables_json = json_text("variables", self.variables)
        s.unix_time = integer("unix_time", self.unix_time, False, 64)
        return s


@dataclass
class TokenizeOptions:
    """Options of weir_tokenize_with."""

    #: WEIR_TOKENIZE_*. Default 0.
    flags: int = TokenizeFlags(0)
    #: Progress and cancel, see weir_tokenize_with; None (default) for none.
    progress: Optional[Callable[[Progress], Optional[bool]]] = None

    def to_native(self) -> weir_tokenize_options:
        s = weir_tokenize_options()
        s.struct_size = sizeof(s)
        s.flags = integer("flags", self.flags, True)
        s.progress, s.progress_user = callback(s, weir_progress_fn, self.progress, progress_of)
        return s


@dataclass
class SessionOptions:
    """Options of weir_plan and weir_session_create."""

    #: WEIR_SESSION_*.
    flags: int = SessionFlags(0)
    #: WEIR_DEVICE_*. Default WEIR_DEVICE_AUTO.
    device: int = DeviceType.AUTO
    #: Most positions the conversation may reach. 0 (default): what the model was trained for.
    context_tokens: int = 0
    #: Tokens of one prefill chunk, 1..4096. Default 512, less when the context is smaller.
    batch_tokens: int = 0
    #: Tokens of one KV page. Only 16 (default) exists.
    page_tokens: int = 0
    #: KV budget in tokens per (layer, kv head) stream. 0 (default): the whole context.
    budget_tokens: int = 0
    #: Longest prompt to plan for where a policy keeps prompts beyond the budget. Default 0.
    max_prompt_tokens: int = 0
    #: KV budget in bytes for all streams together, instead of budget_tokens: as many tokens per stream as fit into it.
    #: A policy that keeps more than its budget (quest, hybrid, dense layers of h2o and tova) takes more, as the plan
    #: shows. 0 (default): not used.
    budget_bytes: int = 0
    #: Host memory for pages outside the KV pool, at least one page of each stream that the budget rules. With recall
    #: (arkvale, and raas, hybrid and psa with recall=on) steps bring pages back from it, 0 (default) is what the whole
    #: context needs at worst, and when it is full, pages move to the spill file. Without one, or when that is full
    #: too, those that were wanted the longest ago are dropped for good. 0 is never more than half of the memory of the
    #: machine, or of the container's limit. spill_tokens of the plan says what is held for sure. Other policies that
    #: let pages go keep copies there, which no step reads, on the CPU only, and 0 (default) keeps none.
    spill_budget_bytes: int = 0
    #: "dense" (also None, default), "sink", "h2o", "tova", "quest", "raas", "hybrid", "random", "arkvale", "psa",
    #: "lfps", "keyformer", "scissorhands". Copied.
    policy: Optional[Text] = None
    #: [n_policy_options] options of the policy, docs/policies.md. Copied; the file of heads_file is only read in the
    #: call.
    policy_options: Mapping[str, str] = field(default_factory=dict)
    #: The part of spill_budget_bytes for uncompressed pages, all but those that were wanted the longest ago. 0
    #: (default): all of it if it holds the whole context so, else as much as leaves room for the other pages at four
    #: fifths of their bytes, at least a quarter.
    spill_raw_bytes: int = 0
    #: Path (UTF-8) of a file of spill_file_bytes for the pages that spill_budget_bytes have no room for. Nothing may
    #: be there: the file is created, and its name removed at once. Used while the session is created, and for its
    #: forks: a relative one means the folder that is current in weir_session_create. None (default): no file.
    spill_path: Optional[Path] = None
    #: Size of that file, reserved on the disk at once. 0 (default): no file.
    spill_file_bytes: int = 0
    #: WEIR_SPILL_*.
    spill_flags: int = SpillFlags(0)
    #: Host memory for snapshots of the state of recurrent layers, at least one of them (weir_plan_info.snapshot_bytes
    #: / n_snapshots). A conversation goes back to a snapshot, and reads again from there. 0 (default): four. Not read
    #: for models that have attention in every layer.
    snapshot_budget_bytes: int = 0
    #: There is a snapshot at every multiple of so many tokens, 16 or more, and where prompts begin and end, as many as
    #: have room, at most 1,024. Those of the last prompt stay however long the answer is. With room for one, that of
    #: its end does. 0 (default): 1,024.
    snapshot_tokens: int = 0
    #: WEIR_KV_*: what keys and values are stored in. WEIR_KV_BF16 (0) is the default. Budgets in bytes hold more
    #: tokens in smaller formats.
    kv_format: int = KvFormat.BF16

    def to_native(self) -> weir_session_options:
        s = weir_session_options()
        s.struct_size = sizeof(s)
        s.flags = integer("flags", self.flags, True)
        s.device = integer("device", self.device, False)
        s.context_tokens = integer("context_tokens", self.context_tokens, True)
        s.batch_tokens = integer("batch_tokens", self.batch_tokens, True)
        s.page_tokens = integer("page_tokens", self.page_tokens, True)
        s.budget_tokens = integer("budget_tokens", self.budget_tokens, True)
        s.max_prompt_tokens = integer("max_prompt_tokens", self.max_prompt_tokens, True)
        s.budget_bytes = integer("budget_bytes", self.budget_bytes, True, 64)
        s.spill_budget_bytes = integer("spill_budget_bytes", self.spill_budget_bytes, True, 64)
        s.policy = c_text("policy", self.policy)
        s.policy_options, s.n_policy_options = key_values(self.policy_options)
        s.spill_raw_bytes = integer("spill_raw_bytes", self.spill_raw_bytes, True, 64)
        s.spill_path = path_text("spill_path", self.spill_path)
        s.spill_file_bytes = integer("spill_file_bytes", self.spill_file_bytes, True, 64)
        s.spill_flags = integer("spill_flags", self.spill_flags, True)
        s.snapshot_budget_bytes = integer("snapshot_budget_bytes", self.snapshot_budget_bytes, True, 64)
        s.snapshot_tokens = integer("snapshot_tokens", self.snapshot_tokens, True)
        s.kv_format = integer("kv_format", self.kv_format, False)
        return s


@dataclass
class SamplingOptions:
    """How the next token is drawn. Applied in this order: bias, repetition penalty, frequency and presence penalty,
    temperature, top-k, top-p, min-p.
    """

    #: Keep the k most probable tokens; 0 (default): all.
    top_k: int = 0
    #: 0 (default): greedy, the most probable token, the lowest id on a tie. At most 100.
    temperature: float = 0.0
    #: Keep the smallest set with this probability; (0, 1]; 0 (default) means 1, off.
    top_p: float = 0.0
    #: Drop tokens less probable than this fraction of the best; [0, 1). Default 0, off.
    min_p: float = 0.0
    #: Divides positive logits (multiplies negative ones) of recent tokens; 0 (default) means 1, off. At most 100.
    repeat_penalty: float = 0.0
    #: Recent tokens that the penalty looks at, at most 4096; 0 (default): 64.
    repeat_last_n: int = 0
    #: Same seed, same options, same logits: same tokens. Default 0.
    seed: int = 0
    #: Taken from the logits of the recent tokens, of those that repeat_last_n says; -2..2, below 0 they become
    #: likelier. Default 0.
    presence_penalty: float = 0.0
    #: The same, as often as each is among them. Default 0.
    frequency_penalty: float = 0.0
    #: [n_bias], copied. None (default): none.
    bias: Mapping[int, float] = field(default_factory=dict)

    def to_native(self) -> weir_sampling_options:
        s = weir_sampling_options()
        s.struct_size = sizeof(s)
        s.top_k = integer("top_k", self.top_k, True)
        s.temperature = real("temperature", self.temperature)
        s.top_p = real("top_p", self.top_p)
        s.min_p = real("min_p", self.min_p)
        s.repeat_penalty = real("repeat_penalty", self.repeat_penalty)
        s.repeat_last_n = integer("repeat_last_n", self.repeat_last_n, True)
        s.seed = integer("seed", self.seed, True, 64)
        s.presence_penalty = real("presence_penalty", self.presence_penalty)
        s.frequency_penalty = real("frequency_penalty", self.frequency_penalty)
        s.bias, s.n_bias = biases(self.bias)
        return s


@dataclass
class GenerateOptions:
    """Options of weir_session_generate and weir_session_begin."""

    #: WEIR_GENERATE_*.
    flags: int = GenerateFlags(0)
    #: Most tokens of this call; 0 (default): as many as the context holds.
    max_tokens: int = 0
    #: None (default): none.
    on_token: Optional[Callable[[TokenEvent], Optional[bool]]] = None
    #: [n_stop] texts of 1 to 256 bytes. The first that is complete ends the answer, wherever its tokens begin and end:
    #: its text is not shown, its tokens stay in the conversation, and text that may be the beginning of one is shown
    #: later, at the latest with the end of the call or answer. Only text counts that would be shown, and of one call
    #: or one begun answer: for pieces of an answer use weir_session_next. None (default): none.
    stop: Sequence[Text] = ()
    #: Events tell the log-probability of their token, and this many of the most probable tokens, 0..64. 0 (default):
    #: neither. A GPU sends these and sums, not all logits.
    n_top: int = 0
    #: Before there are so many tokens, none is drawn that ends an answer (WEIR_TOKEN_END_OF_GENERATION), also with
    #: WEIR_GENERATE_IGNORE_EOS. Stop strings, max_tokens and the context end it all the same. Default 0.
    min_tokens: int = 0
    #: After so many tokens of thought its end is appended as if it had been drawn: thinking_close, then the tag. 0
    #: (default): no limit. WEIR_ERR_UNSUPPORTED where the model has no tags of thoughts (weir_chat_info.thought_end).
    thinking_budget: int = 0
    #: Text that is appended before the tag where a thought is ended early, also by weir_session_finish_thinking: at
    #: most 1,024 bytes of UTF-8. Copied. Models often go on thinking aloud without one. None (default): none.
    #: WEIR_ERR_UNSUPPORTED as above.
    thinking_close: Optional[Text] = None

    def to_native(self) -> weir_generate_options:
        s = weir_generate_options()
        s.struct_size = sizeof(s)
        s.flags = integer("flags", self.flags, True)
        s.max_tokens = integer("max_tokens", self.max_tokens, True)
        s.on_token, s.user = callback(s, weir_token_fn, self.on_token, token_event_of)
        s.stop, s.n_stop = texts(self.stop)
        s.n_top = integer("n_top", self.n_top, True)
        s.min_tokens = integer("min_tokens", self.min_tokens, True)
        s.thinking_budget = integer("thinking_budget", self.thinking_budget, True)
        s.thinking_close = c_text("thinking_close", self.thinking_close)
        return s


@dataclass
class PromptOptions:
    """Options of weir_session_prompt and weir_session_prompt_tokens."""

    #: WEIR_PROMPT_*.
    flags: int = PromptFlags(0)
    #: Positions to leave free for what follows. Default 0.
    reserve_tokens: int = 0
    #: Progress in the tokens that are read, and cancel; None (default): none.
    progress: Optional[Callable[[Progress], Optional[bool]]] = None
    #: weir_session_prompt only: how messages are rendered; its progress must be None. None (default):
    #: WEIR_CHAT_ADD_ASSISTANT.
    chat: Optional[ChatOptions] = None

    def to_native(self) -> weir_prompt_options:
        s = weir_prompt_options()
        s.struct_size = sizeof(s)
        s.flags = integer("flags", self.flags, True)
        s.reserve_tokens = integer("reserve_tokens", self.reserve_tokens, True)
        s.progress, s.progress_user = callback(s, weir_progress_fn, self.progress, progress_of)
        s.chat = None if self.chat is None else pointer(self.chat.to_native())
        return s


__all__ = [
    "BudgetError", "BufferTooSmallError", "BusyError", "CancelledError", "ChatAbilities", "ChatFlags", "ChatInfo",
    "ChatOptions", "ConstraintKind", "ContextFullError", "DetokenizeFlags", "DeviceInfo", "DeviceKind",
    "DeviceLostError", "DeviceType", "Event", "EventKind", "FormatError", "GenerateFlags", "GenerateOptions",
    "GenerateResult", "InternalError", "InvalidArgError", "IoError", "KvFormat", "LogLevel", "LogLine", "Logprob",
    "MemoryCounters", "MemoryInfo", "MemoryKind", "Message", "ModelFlags", "ModelInfo", "ModelOptions",
    "NotFoundError", "OutOfMemoryError", "PageState", "Plan", "Progress", "PromptFlags", "PromptOptions",
    "PromptReport", "RewindFlags", "RuntimeOptions", "SamplingOptions", "Segment", "SessionFlags", "SessionOptions",
    "Span", "SpecialTokens", "SpillFlags", "StateError", "Stats", "Status", "StopReason", "TensorInfo",
    "TokenEvent", "TokenFlags", "TokenInfo", "TokenizeFlags", "TokenizeOptions", "UnsupportedError", "WeirError",
]
