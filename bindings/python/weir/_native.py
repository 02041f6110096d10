"""The C functions and structures of libweir, by ctypes. Longer than 600 lines because generate.py
writes it from include/weir."""
import ctypes
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_float, c_int32, c_int64, c_uint16,
                    c_uint32, c_uint64, c_void_p)
from typing import Any, Callable, Dict, List, Optional, Tuple

Bytes = bytes  # which is the name of a field, too
VERSION = "1.1.0"


class Int32:
    """An argument; ctypes itself would cut a number off that does not fit."""

    @staticmethod
    def from_param(value: int) -> Any:
        if not -2147483648 <= value <= 2147483647:
            raise ValueError(f"{value} is no int32_t")
        return c_int32(value)


class UInt32:
    """An argument; ctypes itself would cut a number off that does not fit."""

    @staticmethod
    def from_param(value: int) -> Any:
        if not 0 <= value <= 4294967295:
            raise ValueError(f"{value} is no uint32_t")
        return c_uint32(value)


class Int64:
    """An argument; ctypes itself would cut a number off that does not fit."""

    @staticmethod
    def from_param(value: int) -> Any:
        if not -9223372036854775808 <= value <= 9223372036854775807:
            raise ValueError(f"{value} is no int64_t")
        return c_int64(value)


class UInt64:
    """An argument; ctypes itself would cut a number off that does not fit."""

    @staticmethod
    def from_param(value: int) -> Any:
        if not 0 <= value <= 18446744073709551615:
            raise ValueError(f"{value} is no uint64_t")
        return c_uint64(value)


weir_status = c_int32
weir_token = c_int32
WEIR_VERSION_MAJOR = 1
WEIR_VERSION_MINOR = 1
WEIR_VERSION_PATCH = 0

WEIR_OK = 0
WEIR_ERR_INVALID_ARG = -1
WEIR_ERR_OUT_OF_MEMORY = -2
WEIR_ERR_IO = -3
WEIR_ERR_FORMAT = -4
WEIR_ERR_UNSUPPORTED = -5
WEIR_ERR_NOT_FOUND = -6
WEIR_ERR_CONTEXT_FULL = -7
WEIR_ERR_BUDGET = -8
WEIR_ERR_BUSY = -9
WEIR_ERR_CANCELLED = -10
WEIR_ERR_STATE = -11
WEIR_ERR_BUFFER_TOO_SMALL = -12
WEIR_ERR_DEVICE_LOST = -13
WEIR_ERR_INTERNAL = -14

WEIR_MEMORY_HOST = 0
WEIR_MEMORY_DEVICE = 1

WEIR_LOG_ERROR = 0
WEIR_LOG_WARNING = 1
WEIR_LOG_INFO = 2
WEIR_LOG_DEBUG = 3

WEIR_DEVICE_AUTO = 0
WEIR_DEVICE_CPU = 1
WEIR_DEVICE_CUDA = 2
WEIR_DEVICE_VULKAN = 3

WEIR_DEVICE_KIND_DISCRETE = 0
WEIR_DEVICE_KIND_INTEGRATED = 1
WEIR_DEVICE_KIND_VIRTUAL = 2
WEIR_DEVICE_KIND_CPU = 3

WEIR_MODEL_VOCAB_ONLY = 1
WEIR_MODEL_PREFETCH = 2
WEIR_MODEL_COPY = 4
WEIR_MODEL_DESCRIBE_ONLY = 8

WEIR_TOKENIZE_SPECIAL = 1
WEIR_TOKENIZE_BOS_EOS = 2

WEIR_DETOKENIZE_SPECIAL = 1

WEIR_TOKEN_CONTROL = 1
WEIR_TOKEN_BYTE = 2
WEIR_TOKEN_USER_DEFINED = 4
WEIR_TOKEN_UNKNOWN = 8
WEIR_TOKEN_END_OF_GENERATION = 16

WEIR_CHAT_ADD_ASSISTANT = 1
WEIR_CHAT_CONTINUE = 2
WEIR_CHAT_ACCEPT_RESEMBLING = 4
WEIR_CHAT_CONTINUE_LAST = 8

WEIR_CHAT_CAN_SYSTEM = 1
WEIR_CHAT_CAN_TOOLS = 2
WEIR_CHAT_CAN_TOOL_RESULTS = 4
WEIR_CHAT_CAN_THOUGHTS = 8
WEIR_CHAT_CAN_SKIP_THOUGHTS = 16

WEIR_SESSION_TRACE = 1
WEIR_SESSION_HOST_ATTENTION = 2

WEIR_SPILL_STRICT = 1
WEIR_SPILL_NO_RAW = 2
WEIR_SPILL_HALF = 4

WEIR_KV_BF16 = 0
WEIR_KV_Q8 = 1
WEIR_KV_K8V4 = 2
WEIR_KV_K4V4 = 3

WEIR_STOP_NONE = 0
WEIR_STOP_EOS = 1
WEIR_STOP_LENGTH = 2
WEIR_STOP_CONTEXT = 3
WEIR_STOP_CANCELLED = 4
WEIR_STOP_ERROR = 5
WEIR_STOP_STRING = 6
WEIR_STOP_TOOL_CALL = 7
WEIR_STOP_CONSTRAINT = 8

WEIR_GENERATE_SPECIAL_TEXT = 1
WEIR_GENERATE_IGNORE_EOS = 2
WEIR_GENERATE_STOP_AT_CALL = 4

WEIR_SEGMENT_ANSWER = 0
WEIR_SEGMENT_THOUGHT = 1
WEIR_SEGMENT_TOOL_CALL = 2
WEIR_SEGMENT_MARK = 3

WEIR_EVENT_TOKEN = 0
WEIR_EVENT_TEXT = 1
WEIR_EVENT_END = 2

WEIR_REWIND_LOSSY = 1

WEIR_PROMPT_MEASURE = 1
WEIR_PROMPT_EXACT = 2
WEIR_PROMPT_DROP_OLDEST = 4

WEIR_CONSTRAINT_JSON = 0
WEIR_CONSTRAINT_JSON_SCHEMA = 1
WEIR_CONSTRAINT_GBNF = 2
WEIR_CONSTRAINT_TOOLS = 3


class weir_key_value(Structure):
    key: Optional[Bytes]
    value: Optional[Bytes]
    _fields_ = [
        ("key", c_char_p),
        ("value", c_char_p),
    ]


weir_function = CFUNCTYPE(None)


class weir_alloc_info(Structure):
    struct_size: int
    kind: int
    bytes: int
    alignment: int
    ptr: Optional[int]
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("bytes", c_uint64),
        ("alignment", c_uint64),
        ("ptr", c_void_p),
    ]


class weir_log_info(Structure):
    struct_size: int
    level: int
    message: Optional[Bytes]
    message_bytes: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("level", c_int32),
        ("message", c_char_p),
        ("message_bytes", c_uint64),
    ]


class weir_memory_counters(Structure):
    struct_size: int
    reserved: int
    bytes: int
    peak_bytes: int
    n_allocs: int
    n_frees: int
    device_bytes: int
    device_peak_bytes: int
    n_device_allocs: int
    n_device_frees: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("bytes", c_uint64),
        ("peak_bytes", c_uint64),
        ("n_allocs", c_uint64),
        ("n_frees", c_uint64),
        ("device_bytes", c_uint64),
        ("device_peak_bytes", c_uint64),
        ("n_device_allocs", c_uint64),
        ("n_device_frees", c_uint64),
    ]


class weir_device_info(Structure):
    struct_size: int
    index: int
    backend: int
    kind: int
    is_usable: int
    reserved: int
    memory_bytes: int
    name: Bytes
    driver: Bytes
    why_not: Bytes
    _fields_ = [
        ("struct_size", c_uint32),
        ("index", c_uint32),
        ("backend", c_int32),
        ("kind", c_int32),
        ("is_usable", c_uint32),
        ("reserved", c_uint32),
        ("memory_bytes", c_uint64),
        ("name", c_char * 256),
        ("driver", c_char * 128),
        ("why_not", c_char * 512),
    ]


weir_alloc_fn = CFUNCTYPE(weir_status, c_void_p, POINTER(weir_alloc_info), POINTER(c_void_p))


weir_free_fn = CFUNCTYPE(weir_status, c_void_p, POINTER(weir_alloc_info))


weir_log_fn = CFUNCTYPE(weir_status, c_void_p, POINTER(weir_log_info))


class weir_runtime_options(Structure):
    struct_size: int
    n_threads: int
    alloc: Any
    free: Any
    alloc_user: Optional[int]
    log: Any
    log_user: Optional[int]
    log_level: int
    reserved: int
    backend_dir: Optional[Bytes]
    device_alloc: Any
    device_free: Any
    device_alloc_user: Optional[int]
    vulkan_device: Optional[Bytes]
    cache_dir: Optional[Bytes]
    _fields_ = [
        ("struct_size", c_uint32),
        ("n_threads", c_uint32),
        ("alloc", weir_alloc_fn),
        ("free", weir_free_fn),
        ("alloc_user", c_void_p),
        ("log", weir_log_fn),
        ("log_user", c_void_p),
        ("log_level", c_int32),
        ("reserved", c_uint32),
        ("backend_dir", c_char_p),
        ("device_alloc", weir_alloc_fn),
        ("device_free", weir_free_fn),
        ("device_alloc_user", c_void_p),
        ("vulkan_device", c_char_p),
        ("cache_dir", c_char_p),
    ]


class weir_progress_info(Structure):
    struct_size: int
    reserved: int
    done: int
    total: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("done", c_uint64),
        ("total", c_uint64),
    ]


class weir_model_info(Structure):
    struct_size: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_model: int
    d_ff: int
    vocab_size: int
    context_tokens: int
    n_tensors: int
    n_params: int
    weights_bytes: int
    file_bytes: int
    fingerprint: int
    architecture: Optional[Bytes]
    name: Optional[Bytes]
    weight_type: Optional[Bytes]
    chat_template: Optional[Bytes]
    tokenizer: Optional[Bytes]
    copied_bytes: int
    chat_resembles: Optional[Bytes]
    n_parts: int
    reserved: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("n_layers", c_uint32),
        ("n_heads", c_uint32),
        ("n_kv_heads", c_uint32),
        ("head_dim", c_uint32),
        ("d_model", c_uint32),
        ("d_ff", c_uint32),
        ("vocab_size", c_uint32),
        ("context_tokens", c_uint32),
        ("n_tensors", c_uint32),
        ("n_params", c_uint64),
        ("weights_bytes", c_uint64),
        ("file_bytes", c_uint64),
        ("fingerprint", c_uint64),
        ("architecture", c_char_p),
        ("name", c_char_p),
        ("weight_type", c_char_p),
        ("chat_template", c_char_p),
        ("tokenizer", c_char_p),
        ("copied_bytes", c_uint64),
        ("chat_resembles", c_char_p),
        ("n_parts", c_uint32),
        ("reserved", c_uint32),
    ]


class weir_tensor_info(Structure):
    struct_size: int
    n_dims: int
    dims: Any
    bytes: int
    file_offset: int
    name: Optional[Bytes]
    type: Optional[Bytes]
    part: int
    reserved: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("n_dims", c_uint32),
        ("dims", c_uint64 * 4),
        ("bytes", c_uint64),
        ("file_offset", c_uint64),
        ("name", c_char_p),
        ("type", c_char_p),
        ("part", c_uint32),
        ("reserved", c_uint32),
    ]


weir_progress_fn = CFUNCTYPE(weir_status, c_void_p, POINTER(weir_progress_info))


class weir_model_options(Structure):
    struct_size: int
    flags: int
    progress: Any
    progress_user: Optional[int]
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("progress", weir_progress_fn),
        ("progress_user", c_void_p),
    ]


class weir_token_info(Structure):
    struct_size: int
    flags: int
    text: Optional[Bytes]
    text_bytes: int
    score: float
    reserved: int
    bytes: Optional[Bytes]
    n_bytes: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("text", c_char_p),
        ("text_bytes", c_uint64),
        ("score", c_float),
        ("reserved", c_uint32),
        ("bytes", c_char_p),
        ("n_bytes", c_uint64),
    ]


class weir_special_tokens(Structure):
    struct_size: int
    bos: int
    eos: int
    eot: int
    unk: int
    pad: int
    add_bos: int
    add_eos: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("bos", weir_token),
        ("eos", weir_token),
        ("eot", weir_token),
        ("unk", weir_token),
        ("pad", weir_token),
        ("add_bos", c_int32),
        ("add_eos", c_int32),
    ]


class weir_chat_message(Structure):
    role: Optional[Bytes]
    content: Optional[Bytes]
    content_bytes: int
    thought: Optional[Bytes]
    thought_bytes: int
    tool_calls_json: Optional[Bytes]
    tool_call_id: Optional[Bytes]
    name: Optional[Bytes]
    _fields_ = [
        ("role", c_char_p),
        ("content", c_char_p),
        ("content_bytes", c_uint64),
        ("thought", c_char_p),
        ("thought_bytes", c_uint64),
        ("tool_calls_json", c_char_p),
        ("tool_call_id", c_char_p),
        ("name", c_char_p),
    ]


class weir_chat_options(Structure):
    struct_size: int
    flags: int
    message_bytes: int
    reserved: int
    progress: Any
    progress_user: Optional[int]
    template_text: Optional[Bytes]
    tools_json: Optional[Bytes]
    variables_json: Optional[Bytes]
    unix_time: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("message_bytes", c_uint32),
        ("reserved", c_uint32),
        ("progress", weir_progress_fn),
        ("progress_user", c_void_p),
        ("template_text", c_char_p),
        ("tools_json", c_char_p),
        ("variables_json", c_char_p),
        ("unix_time", c_int64),
    ]


class weir_tokenize_options(Structure):
    struct_size: int
    flags: int
    progress: Any
    progress_user: Optional[int]
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("progress", weir_progress_fn),
        ("progress_user", c_void_p),
    ]


class weir_chat_info(Structure):
    struct_size: int
    can: int
    thought_begin: Optional[Bytes]
    thought_end: Optional[Bytes]
    tool_format: Optional[Bytes]
    _fields_ = [
        ("struct_size", c_uint32),
        ("can", c_uint32),
        ("thought_begin", c_char_p),
        ("thought_end", c_char_p),
        ("tool_format", c_char_p),
    ]


class weir_session_options(Structure):
    struct_size: int
    flags: int
    device: int
    context_tokens: int
    batch_tokens: int
    page_tokens: int
    budget_tokens: int
    max_prompt_tokens: int
    budget_bytes: int
    spill_budget_bytes: int
    policy: Optional[Bytes]
    policy_options: Any
    n_policy_options: int
    reserved: int
    spill_raw_bytes: int
    spill_path: Optional[Bytes]
    spill_file_bytes: int
    spill_flags: int
    reserved_spill: int
    snapshot_budget_bytes: int
    snapshot_tokens: int
    kv_format: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("device", c_int32),
        ("context_tokens", c_uint32),
        ("batch_tokens", c_uint32),
        ("page_tokens", c_uint32),
        ("budget_tokens", c_uint32),
        ("max_prompt_tokens", c_uint32),
        ("budget_bytes", c_uint64),
        ("spill_budget_bytes", c_uint64),
        ("policy", c_char_p),
        ("policy_options", POINTER(weir_key_value)),
        ("n_policy_options", c_uint32),
        ("reserved", c_uint32),
        ("spill_raw_bytes", c_uint64),
        ("spill_path", c_char_p),
        ("spill_file_bytes", c_uint64),
        ("spill_flags", c_uint32),
        ("reserved_spill", c_uint32),
        ("snapshot_budget_bytes", c_uint64),
        ("snapshot_tokens", c_uint32),
        ("kv_format", c_int32),
    ]


class weir_plan_info(Structure):
    struct_size: int
    context_tokens: int
    budget_tokens: int
    page_tokens: int
    pages_per_stream: int
    n_streams: int
    page_bytes: int
    weights_bytes: int
    kv_bytes: int
    digest_bytes: int
    table_bytes: int
    workspace_bytes: int
    sampler_bytes: int
    session_bytes: int
    staging_bytes: int
    spill_bytes: int
    library_bytes: int
    total_bytes: int
    device_bytes: int
    device_weights_bytes: int
    device: int
    reserved: int
    n_window_streams: int
    window_pages_per_stream: int
    window_kv_bytes: int
    spill_file_bytes: int
    n_head_streams: int
    head_pages_per_stream: int
    head_kv_bytes: int
    spill_raw_bytes: int
    spill_compressed_bytes: int
    spill_tokens: int
    reserved_spill: int
    recurrent_bytes: int
    snapshot_bytes: int
    n_snapshots: int
    snapshot_tokens: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("context_tokens", c_uint32),
        ("budget_tokens", c_uint32),
        ("page_tokens", c_uint32),
        ("pages_per_stream", c_uint32),
        ("n_streams", c_uint32),
        ("page_bytes", c_uint64),
        ("weights_bytes", c_uint64),
        ("kv_bytes", c_uint64),
        ("digest_bytes", c_uint64),
        ("table_bytes", c_uint64),
        ("workspace_bytes", c_uint64),
        ("sampler_bytes", c_uint64),
        ("session_bytes", c_uint64),
        ("staging_bytes", c_uint64),
        ("spill_bytes", c_uint64),
        ("library_bytes", c_uint64),
        ("total_bytes", c_uint64),
        ("device_bytes", c_uint64),
        ("device_weights_bytes", c_uint64),
        ("device", c_int32),
        ("reserved", c_uint32),
        ("n_window_streams", c_uint32),
        ("window_pages_per_stream", c_uint32),
        ("window_kv_bytes", c_uint64),
        ("spill_file_bytes", c_uint64),
        ("n_head_streams", c_uint32),
        ("head_pages_per_stream", c_uint32),
        ("head_kv_bytes", c_uint64),
        ("spill_raw_bytes", c_uint64),
        ("spill_compressed_bytes", c_uint64),
        ("spill_tokens", c_uint32),
        ("reserved_spill", c_uint32),
        ("recurrent_bytes", c_uint64),
        ("snapshot_bytes", c_uint64),
        ("n_snapshots", c_uint32),
        ("snapshot_tokens", c_uint32),
    ]


class weir_memory_info(Structure):
    struct_size: int
    reserved: int
    plan_bytes: int
    bytes: int
    peak_bytes: int
    kv_budget_bytes: int
    kv_bytes: int
    kv_peak_bytes: int
    n_allocs: int
    allocs_while_decoding: int
    device_bytes: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("plan_bytes", c_uint64),
        ("bytes", c_uint64),
        ("peak_bytes", c_uint64),
        ("kv_budget_bytes", c_uint64),
        ("kv_bytes", c_uint64),
        ("kv_peak_bytes", c_uint64),
        ("n_allocs", c_uint64),
        ("allocs_while_decoding", c_uint64),
        ("device_bytes", c_uint64),
    ]


class weir_session_stats(Structure):
    struct_size: int
    n_tokens: int
    n_prompt: int
    n_decode: int
    pages_resident: int
    pages_resident_max: int
    pages_evicted: int
    pages_spilled: int
    pages_recalled: int
    pages_dropped: int
    prefill_ns: int
    decode_ns: int
    pages_attended: int
    pages_cold: int
    spill_stored_bytes: int
    recall_ns: int
    spill_waits: int
    spill_errors: int
    spill_pages_raw: int
    spill_restored: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("n_tokens", c_uint32),
        ("n_prompt", c_uint64),
        ("n_decode", c_uint64),
        ("pages_resident", c_uint64),
        ("pages_resident_max", c_uint64),
        ("pages_evicted", c_uint64),
        ("pages_spilled", c_uint64),
        ("pages_recalled", c_uint64),
        ("pages_dropped", c_uint64),
        ("prefill_ns", c_uint64),
        ("decode_ns", c_uint64),
        ("pages_attended", c_uint64),
        ("pages_cold", c_uint64),
        ("spill_stored_bytes", c_uint64),
        ("recall_ns", c_uint64),
        ("spill_waits", c_uint64),
        ("spill_errors", c_uint64),
        ("spill_pages_raw", c_uint64),
        ("spill_restored", c_uint64),
    ]


class weir_token_bias(Structure):
    token: int
    bias: float
    _fields_ = [
        ("token", weir_token),
        ("bias", c_float),
    ]


class weir_page_state(Structure):
    resident: int
    cold: int
    lost: int
    pinned: int
    _fields_ = [
        ("resident", c_uint16),
        ("cold", c_uint16),
        ("lost", c_uint16),
        ("pinned", c_uint16),
    ]


class weir_sampling_options(Structure):
    struct_size: int
    top_k: int
    temperature: float
    top_p: float
    min_p: float
    repeat_penalty: float
    repeat_last_n: int
    reserved: int
    seed: int
    presence_penalty: float
    frequency_penalty: float
    bias: Any
    n_bias: int
    reserved2: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("top_k", c_uint32),
        ("temperature", c_float),
        ("top_p", c_float),
        ("min_p", c_float),
        ("repeat_penalty", c_float),
        ("repeat_last_n", c_uint32),
        ("reserved", c_uint32),
        ("seed", c_uint64),
        ("presence_penalty", c_float),
        ("frequency_penalty", c_float),
        ("bias", POINTER(weir_token_bias)),
        ("n_bias", c_uint32),
        ("reserved2", c_uint32),
    ]


class weir_logprob(Structure):
    token: int
    logprob: float
    _fields_ = [
        ("token", weir_token),
        ("logprob", c_float),
    ]


class weir_token_event(Structure):
    struct_size: int
    token: int
    index: int
    n_tokens: int
    text: Optional[Bytes]
    text_bytes: int
    logprob: float
    n_top: int
    top: Any
    _fields_ = [
        ("struct_size", c_uint32),
        ("token", weir_token),
        ("index", c_uint32),
        ("n_tokens", c_uint32),
        ("text", c_char_p),
        ("text_bytes", c_uint64),
        ("logprob", c_float),
        ("n_top", c_uint32),
        ("top", POINTER(weir_logprob)),
    ]


class weir_text(Structure):
    text: Optional[Bytes]
    bytes: int
    _fields_ = [
        ("text", c_char_p),
        ("bytes", c_uint64),
    ]


class weir_generate_result(Structure):
    struct_size: int
    stop: int
    n_tokens: int
    last_token: int
    stop_index: int
    reserved: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("stop", c_int32),
        ("n_tokens", c_uint32),
        ("last_token", weir_token),
        ("stop_index", c_int32),
        ("reserved", c_uint32),
    ]


class weir_event(Structure):
    struct_size: int
    kind: int
    token: int
    index: int
    n_tokens: int
    stop: int
    stop_index: int
    segment: int
    text: Optional[Bytes]
    text_bytes: int
    logprob: float
    n_top: int
    top: Any
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("token", weir_token),
        ("index", c_uint32),
        ("n_tokens", c_uint32),
        ("stop", c_int32),
        ("stop_index", c_int32),
        ("segment", c_int32),
        ("text", c_char_p),
        ("text_bytes", c_uint64),
        ("logprob", c_float),
        ("n_top", c_uint32),
        ("top", POINTER(weir_logprob)),
    ]


class weir_prompt_options(Structure):
    struct_size: int
    flags: int
    reserve_tokens: int
    reserved: int
    progress: Any
    progress_user: Optional[int]
    chat: Any
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("reserve_tokens", c_uint32),
        ("reserved", c_uint32),
        ("progress", weir_progress_fn),
        ("progress_user", c_void_p),
        ("chat", POINTER(weir_chat_options)),
    ]


class weir_prompt_report(Structure):
    struct_size: int
    n_tokens: int
    n_kept: int
    n_read: int
    n_forgotten: int
    n_messages_dropped: int
    pages_missing: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("n_tokens", c_uint32),
        ("n_kept", c_uint32),
        ("n_read", c_uint32),
        ("n_forgotten", c_uint32),
        ("n_messages_dropped", c_uint32),
        ("pages_missing", c_uint64),
    ]


class weir_span(Structure):
    first: int
    end: int
    _fields_ = [
        ("first", c_uint32),
        ("end", c_uint32),
    ]


weir_token_fn = CFUNCTYPE(weir_status, c_void_p, POINTER(weir_token_event))


class weir_generate_options(Structure):
    struct_size: int
    flags: int
    max_tokens: int
    reserved: int
    on_token: Any
    user: Optional[int]
    stop: Any
    n_stop: int
    n_top: int
    min_tokens: int
    thinking_budget: int
    thinking_close: Optional[Bytes]
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("max_tokens", c_uint32),
        ("reserved", c_uint32),
        ("on_token", weir_token_fn),
        ("user", c_void_p),
        ("stop", POINTER(weir_text)),
        ("n_stop", c_uint32),
        ("n_top", c_uint32),
        ("min_tokens", c_uint32),
        ("thinking_budget", c_uint32),
        ("thinking_close", c_char_p),
    ]


class weir_mask_info(Structure):
    struct_size: int
    vocab_size: int
    n_tokens: int
    reserved: int
    tokens: Any
    words: Any
    _fields_ = [
        ("struct_size", c_uint32),
        ("vocab_size", c_uint32),
        ("n_tokens", c_uint32),
        ("reserved", c_uint32),
        ("tokens", POINTER(weir_token)),
        ("words", POINTER(c_uint32)),
    ]


weir_mask_fn = CFUNCTYPE(weir_status, c_void_p, POINTER(weir_mask_info))


class weir_write_info(Structure):
    struct_size: int
    reserved: int
    offset: int
    n_bytes: int
    data: Optional[int]
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("offset", c_uint64),
        ("n_bytes", c_uint64),
        ("data", c_void_p),
    ]


class weir_read_info(Structure):
    struct_size: int
    reserved: int
    offset: int
    n_bytes: int
    data: Optional[int]
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("offset", c_uint64),
        ("n_bytes", c_uint64),
        ("data", c_void_p),
    ]


weir_write_fn = CFUNCTYPE(weir_status, c_void_p, POINTER(weir_write_info))


weir_read_fn = CFUNCTYPE(weir_status, c_void_p, POINTER(weir_read_info), POINTER(c_uint64))


# Result and arguments of each function.
FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "weir_version": (c_uint32, []),
    "weir_version_string": (c_char_p, []),
    "weir_status_name": (c_char_p, [weir_status]),
    "weir_last_error": (c_char_p, []),
    "weir_cancel_create": (weir_status, [POINTER(c_void_p)]),
    "weir_cancel_retain": (c_void_p, [c_void_p]),
    "weir_cancel_release": (None, [c_void_p]),
    "weir_cancel_set": (None, [c_void_p]),
    "weir_cancel_clear": (None, [c_void_p]),
    "weir_get_experimental": (weir_function, [c_char_p]),
    "weir_runtime_options_init": (weir_status, [POINTER(weir_runtime_options), UInt32]),
    "weir_runtime_create": (weir_status, [POINTER(weir_runtime_options), POINTER(c_void_p)]),
    "weir_runtime_destroy": (None, [c_void_p]),
    "weir_runtime_memory": (weir_status, [c_void_p, POINTER(weir_memory_counters)]),
    "weir_runtime_thread_count": (c_uint32, [c_void_p]),
    "weir_runtime_cpu_target": (c_char_p, [c_void_p]),
    "weir_runtime_devices": (weir_status, [c_void_p, POINTER(weir_device_info), UInt32, POINTER(c_uint32)]),
    "weir_model_options_init": (weir_status, [POINTER(weir_model_options), UInt32]),
    "weir_model_open": (weir_status, [c_void_p, c_char_p, POINTER(weir_model_options), POINTER(c_void_p)]),
    "weir_model_close": (None, [c_void_p]),
    "weir_model_get_info": (weir_status, [c_void_p, POINTER(weir_model_info)]),
    "weir_model_tensor_info": (weir_status, [c_void_p, UInt32, POINTER(weir_tensor_info)]),
    "weir_model_metadata_count": (c_uint32, [c_void_p]),
    "weir_model_metadata": (weir_status, [c_void_p, UInt32, POINTER(c_char_p), POINTER(c_char), UInt64,
            POINTER(c_uint64)]),
    "weir_weight_type_name": (c_char_p, [UInt32]),
    "weir_tokenize": (weir_status, [c_void_p, c_char_p, UInt64, UInt32, POINTER(weir_token), UInt64,
            POINTER(c_uint64)]),
    "weir_tokenize_options_init": (weir_status, [POINTER(weir_tokenize_options), UInt32]),
    "weir_tokenize_with": (weir_status, [c_void_p, c_char_p, UInt64, POINTER(weir_tokenize_options),
            POINTER(weir_token), UInt64, POINTER(c_uint64)]),
    "weir_detokenize": (weir_status, [c_void_p, POINTER(weir_token), UInt64, UInt32, POINTER(c_char), UInt64,
            POINTER(c_uint64)]),
    "weir_detokenizer_create": (weir_status, [c_void_p, UInt32, POINTER(c_void_p)]),
    "weir_detokenizer_push": (weir_status, [c_void_p, Int32, POINTER(c_char_p), POINTER(c_uint64)]),
    "weir_detokenizer_flush": (weir_status, [c_void_p, POINTER(c_char_p), POINTER(c_uint64)]),
    "weir_detokenizer_destroy": (None, [c_void_p]),
    "weir_token_get_info": (weir_status, [c_void_p, Int32, POINTER(weir_token_info)]),
    "weir_model_special_tokens": (weir_status, [c_void_p, POINTER(weir_special_tokens)]),
    "weir_model_chat_info": (weir_status, [c_void_p, POINTER(weir_chat_info)]),
    "weir_chat_options_init": (weir_status, [POINTER(weir_chat_options), UInt32]),
    "weir_chat_tokenize": (weir_status, [c_void_p, POINTER(weir_chat_message), UInt64, POINTER(weir_chat_options),
            POINTER(weir_token), UInt64, POINTER(c_uint64)]),
    "weir_chat_render_with": (weir_status, [c_void_p, POINTER(weir_chat_message), UInt64,
            POINTER(weir_chat_options), POINTER(c_char), UInt64, POINTER(c_uint64)]),
    "weir_chat_render": (weir_status, [c_void_p, POINTER(weir_chat_message), UInt64, UInt32, POINTER(c_char),
            UInt64, POINTER(c_uint64)]),
    "weir_template_render": (weir_status, [c_void_p, c_char_p, UInt64, c_char_p, UInt64, Int64, POINTER(c_char),
            UInt64, POINTER(c_uint64)]),
    "weir_session_options_init": (weir_status, [POINTER(weir_session_options), UInt32]),
    "weir_session_options_preset": (weir_status, [c_char_p, POINTER(weir_session_options)]),
    "weir_sampling_options_init": (weir_status, [POINTER(weir_sampling_options), UInt32]),
    "weir_generate_options_init": (weir_status, [POINTER(weir_generate_options), UInt32]),
    "weir_plan": (weir_status, [c_void_p, POINTER(weir_session_options), POINTER(weir_plan_info)]),
    "weir_session_options_fit": (weir_status, [c_void_p, UInt64, POINTER(weir_session_options)]),
    "weir_policy_name": (c_char_p, [UInt32]),
    "weir_preset_name": (c_char_p, [UInt32]),
    "weir_session_create": (weir_status, [c_void_p, POINTER(weir_session_options), POINTER(c_void_p)]),
    "weir_session_fork": (weir_status, [c_void_p, POINTER(c_void_p)]),
    "weir_session_destroy": (None, [c_void_p]),
    "weir_session_reset": (weir_status, [c_void_p]),
    "weir_session_prefill": (weir_status, [c_void_p, POINTER(weir_token), UInt64, weir_progress_fn, c_void_p]),
    "weir_session_rewind": (weir_status, [c_void_p, UInt32, UInt32]),
    "weir_session_prompt_tokens": (weir_status, [c_void_p, POINTER(weir_token), UInt64,
            POINTER(weir_prompt_options), POINTER(weir_prompt_report)]),
    "weir_session_prompt": (weir_status, [c_void_p, POINTER(weir_chat_message), UInt64,
            POINTER(weir_prompt_options), POINTER(weir_span), POINTER(weir_prompt_report)]),
    "weir_session_step": (weir_status, [c_void_p, Int32]),
    "weir_step_many": (weir_status, [POINTER(c_void_p), POINTER(weir_token), UInt32]),
    "weir_session_logits": (weir_status, [c_void_p, POINTER(POINTER(c_float)), POINTER(c_uint32)]),
    "weir_session_tokens": (weir_status, [c_void_p, POINTER(POINTER(weir_token)), POINTER(c_uint32)]),
    "weir_session_set_sampling": (weir_status, [c_void_p, POINTER(weir_sampling_options)]),
    "weir_session_sample": (weir_status, [c_void_p, POINTER(weir_token)]),
    "weir_session_generate": (weir_status, [c_void_p, POINTER(weir_generate_options),
            POINTER(weir_generate_result)]),
    "weir_session_begin": (weir_status, [c_void_p, POINTER(weir_generate_options)]),
    "weir_session_next": (weir_status, [c_void_p, POINTER(weir_event)]),
    "weir_next_many": (weir_status, [POINTER(c_void_p), POINTER(weir_event), UInt32, POINTER(c_uint32)]),
    "weir_session_finish_thinking": (None, [c_void_p]),
    "weir_session_answer": (weir_status, [c_void_p, POINTER(weir_chat_message), UInt32, POINTER(c_uint32)]),
    "weir_session_pin": (weir_status, [c_void_p, UInt32, UInt32]),
    "weir_session_unpin": (weir_status, [c_void_p, UInt32, UInt32]),
    "weir_session_cancel": (None, [c_void_p]),
    "weir_session_clear_cancel": (None, [c_void_p]),
    "weir_session_set_cancel": (weir_status, [c_void_p, c_void_p]),
    "weir_session_pages": (weir_status, [c_void_p, POINTER(weir_page_state), UInt32, POINTER(c_uint32)]),
    "weir_session_get_stats": (weir_status, [c_void_p, POINTER(weir_session_stats)]),
    "weir_session_memory": (weir_status, [c_void_p, POINTER(weir_memory_info)]),
    "weir_session_set_token_mask": (weir_status, [c_void_p, weir_mask_fn, c_void_p]),
    "weir_constraint_create": (weir_status, [c_void_p, Int32, c_char_p, UInt64, POINTER(c_void_p)]),
    "weir_constraint_destroy": (None, [c_void_p]),
    "weir_session_set_constraint": (weir_status, [c_void_p, c_void_p, UInt32]),
    "weir_session_save": (weir_status, [c_void_p, weir_write_fn, c_void_p]),
    "weir_session_restore": (weir_status, [c_void_p, weir_read_fn, c_void_p]),
}


class Library:
    """The functions of a loaded library. What returns a status goes through `check`, as errcheck of ctypes."""

    weir_version: Callable[..., int]
    weir_version_string: Callable[..., Optional[bytes]]
    weir_status_name: Callable[..., Optional[bytes]]
    weir_last_error: Callable[..., Optional[bytes]]
    weir_cancel_create: Callable[..., int]
    weir_cancel_retain: Callable[..., Optional[int]]
    weir_cancel_release: Callable[..., None]
    weir_cancel_set: Callable[..., None]
    weir_cancel_clear: Callable[..., None]
    weir_get_experimental: Callable[..., Any]
    weir_runtime_options_init: Callable[..., int]
    weir_runtime_create: Callable[..., int]
    weir_runtime_destroy: Callable[..., None]
    weir_runtime_memory: Callable[..., int]
    weir_runtime_thread_count: Callable[..., int]
    weir_runtime_cpu_target: Callable[..., Optional[bytes]]
    weir_runtime_devices: Callable[..., int]
    weir_model_options_init: Callable[..., int]
    weir_model_open: Callable[..., int]
    weir_model_close: Callable[..., None]
    weir_model_get_info: Callable[..., int]
    weir_model_tensor_info: Callable[..., int]
    weir_model_metadata_count: Callable[..., int]
    weir_model_metadata: Callable[..., int]
    weir_weight_type_name: Callable[..., Optional[bytes]]
    weir_tokenize: Callable[..., int]
    weir_tokenize_options_init: Callable[..., int]
    weir_tokenize_with: Callable[..., int]
    weir_detokenize: Callable[..., int]
    weir_detokenizer_create: Callable[..., int]
    weir_detokenizer_push: Callable[..., int]
    weir_detokenizer_flush: Callable[..., int]
    weir_detokenizer_destroy: Callable[..., None]
    weir_token_get_info: Callable[..., int]
    weir_model_special_tokens: Callable[..., int]
    weir_model_chat_info: Callable[..., int]
    weir_chat_options_init: Callable[..., int]
    weir_chat_tokenize: Callable[..., int]
    weir_chat_render_with: Callable[..., int]
    weir_chat_render: Callable[..., int]
    weir_template_render: Callable[..., int]
    weir_session_options_init: Callable[..., int]
    weir_session_options_preset: Callable[..., int]
    weir_sampling_options_init: Callable[..., int]
    weir_generate_options_init: Callable[..., int]
    weir_plan: Callable[..., int]
    weir_session_options_fit: Callable[..., int]
    weir_policy_name: Callable[..., Optional[bytes]]
    weir_preset_name: Callable[..., Optional[bytes]]
    weir_session_create: Callable[..., int]
    weir_session_fork: Callable[..., int]
    weir_session_destroy: Callable[..., None]
    weir_session_reset: Callable[..., int]
    weir_session_prefill: Callable[..., int]
    weir_session_rewind: Callable[..., int]
    weir_session_prompt_tokens: Callable[..., int]
    weir_session_prompt: Callable[..., int]
    weir_session_step: Callable[..., int]
    weir_step_many: Callable[..., int]
    weir_session_logits: Callable[..., int]
    weir_session_tokens: Callable[..., int]
    weir_session_set_sampling: Callable[..., int]
    weir_session_sample: Callable[..., int]
    weir_session_generate: Callable[..., int]
    weir_session_begin: Callable[..., int]
    weir_session_next: Callable[..., int]
    weir_next_many: Callable[..., int]
    weir_session_finish_thinking: Callable[..., None]
    weir_session_answer: Callable[..., int]
    weir_session_pin: Callable[..., int]
    weir_session_unpin: Callable[..., int]
    weir_session_cancel: Callable[..., None]
    weir_session_clear_cancel: Callable[..., None]
    weir_session_set_cancel: Callable[..., int]
    weir_session_pages: Callable[..., int]
    weir_session_get_stats: Callable[..., int]
    weir_session_memory: Callable[..., int]
    weir_session_set_token_mask: Callable[..., int]
    weir_constraint_create: Callable[..., int]
    weir_constraint_destroy: Callable[..., None]
    weir_session_set_constraint: Callable[..., int]
    weir_session_save: Callable[..., int]
    weir_session_restore: Callable[..., int]

    def __init__(self, library: ctypes.CDLL, check: Callable[..., Any]) -> None:
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
            if result is weir_status:
                function.errcheck = check
            setattr(self, name, function)
