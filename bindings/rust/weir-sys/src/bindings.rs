// Written by generate.py from include/weir/*.h; not to be edited.
// Longer than 600 lines because it has the headers' documentation.

constants! {
    /// Changes only when the ABI breaks.
    WEIR_VERSION_MAJOR: u32 = 1;
    /// Grows with additions.
    WEIR_VERSION_MINOR: u32 = 1;
    /// Grows with fixes.
    WEIR_VERSION_PATCH: u32 = 0;
}

enumerations! {
    /// `weir_status_code`.
    weir_status_code: i32 {
        /// `WEIR_OK`.
        WEIR_OK as OK = 0;
        /// An argument is NULL, out of range or contradicts another.
        WEIR_ERR_INVALID_ARG as INVALID_ARG = -1;
        /// An allocator refused, or the machine has less than one allocation asks for.
        WEIR_ERR_OUT_OF_MEMORY as OUT_OF_MEMORY = -2;
        /// A file could not be opened, read or mapped.
        WEIR_ERR_IO as IO = -3;
        /// A file or a text breaks its format.
        WEIR_ERR_FORMAT as FORMAT = -4;
        /// Well-formed, but this build cannot do it.
        WEIR_ERR_UNSUPPORTED as UNSUPPORTED = -5;
        /// No policy, option, key or token of that name.
        WEIR_ERR_NOT_FOUND as NOT_FOUND = -6;
        /// The position limit of the session is reached.
        WEIR_ERR_CONTEXT_FULL as CONTEXT_FULL = -7;
        /// The KV budget is too small for the request; the message says what fits.
        WEIR_ERR_BUDGET as BUDGET = -8;
        /// Another thread is inside this session.
        WEIR_ERR_BUSY as BUSY = -9;
        /// Stopped by [`weir_session_cancel`] or by a callback.
        WEIR_ERR_CANCELLED as CANCELLED = -10;
        /// Not possible in the object's present state (no logits yet, for example).
        WEIR_ERR_STATE as STATE = -11;
        /// The caller's buffer is too small; the needed size was stored.
        WEIR_ERR_BUFFER_TOO_SMALL as BUFFER_TOO_SMALL = -12;
        /// The device failed; the session is unusable, destroy it.
        WEIR_ERR_DEVICE_LOST as DEVICE_LOST = -13;
        /// A defect of Weir; please report it with the message.
        WEIR_ERR_INTERNAL as INTERNAL = -14;
    }

    /// Kinds of memory that the allocator hooks are asked for.
    weir_memory_kind: i32 {
        /// Ordinary memory of the process.
        WEIR_MEMORY_HOST as HOST = 0;
        /// Memory of an accelerator, which only the device hooks are asked for; the pointer is a device pointer.
        WEIR_MEMORY_DEVICE as DEVICE = 1;
    }

    /// Severity of a log line.
    weir_log_level: i32 {
        /// `WEIR_LOG_ERROR`.
        WEIR_LOG_ERROR as ERROR = 0;
        /// `WEIR_LOG_WARNING`.
        WEIR_LOG_WARNING as WARNING = 1;
        /// `WEIR_LOG_INFO`.
        WEIR_LOG_INFO as INFO = 2;
        /// `WEIR_LOG_DEBUG`.
        WEIR_LOG_DEBUG as DEBUG = 3;
    }

    /// Devices that a session can run on.
    weir_device_type: i32 {
        /// The first of these that can run the session: CUDA's device; of Vulkan's devices the discrete GPU with the
        /// most memory, then an integrated GPU; the CPU. A device is passed over whose memory cannot hold the model,
        /// which lacks what the session needs (its policy and options, device memory from hooks), or if the model's
        /// weights are already on another. If `weir_runtime_options.vulkan_device` names a device, no other one of
        /// Vulkan's is looked at. Never a Vulkan driver that computes on the processor, and a virtual device only if it
        /// is named.
        WEIR_DEVICE_AUTO as AUTO = 0;
        /// This machine's processor cores.
        WEIR_DEVICE_CPU as CPU = 1;
        /// The first NVIDIA GPU that the driver shows.
        WEIR_DEVICE_CUDA as CUDA = 2;
        /// A device with Vulkan 1.3, see `weir_runtime_options.vulkan_device`.
        WEIR_DEVICE_VULKAN as VULKAN = 3;
    }

    /// Kinds of devices, see [`weir_device_info`].
    weir_device_kind: i32 {
        /// A GPU with memory of its own.
        WEIR_DEVICE_KIND_DISCRETE as DISCRETE = 0;
        /// A GPU that shares the processor's memory.
        WEIR_DEVICE_KIND_INTEGRATED as INTEGRATED = 1;
        /// A GPU of a virtual machine, or what the driver calls by no other kind.
        WEIR_DEVICE_KIND_VIRTUAL as VIRTUAL = 2;
        /// The processor, also one that a Vulkan driver computes on.
        WEIR_DEVICE_KIND_CPU as CPU = 3;
    }

    /// Bits of `weir_model_options.flags`.
    weir_model_flag_bits: u32 {
        /// Load the tokenizer only; files without weights are accepted, sessions and plans are refused
        /// ([`WEIR_ERR_STATE`]).
        WEIR_MODEL_VOCAB_ONLY as VOCAB_ONLY = 1;
        /// Read the whole file at once, so that the first tokens do not wait for the disk.
        WEIR_MODEL_PREFETCH as PREFETCH = 2;
        /// Read the file into memory from the allocator hooks instead of mapping it: as many bytes as the file has, in
        /// the runtime's counters. Once the call has returned, the file may change. Since 1.0.
        WEIR_MODEL_COPY as COPY = 4;
        /// Read only what the file says about itself, keys and tensors, of any GGUF file, also of one that is no model.
        /// Every call that needs more fails with [`WEIR_ERR_STATE`]: sessions, plans and all of weir/text.h. Of a model
        /// in several files, the part at the path, as with [`WEIR_MODEL_VOCAB_ONLY`]. Since 1.1.
        WEIR_MODEL_DESCRIBE_ONLY as DESCRIBE_ONLY = 8;
    }

    /// Bits of [`weir_tokenize`] flags.
    weir_tokenize_flag_bits: u32 {
        /// Text such as "\<|`im_end`|\>" becomes the control token of that name. Off: it is plain text. Not for text of
        /// others: see [`weir_chat_tokenize`].
        WEIR_TOKENIZE_SPECIAL as SPECIAL = 1;
        /// Add the begin/end tokens that the model's file asks for.
        WEIR_TOKENIZE_BOS_EOS as BOS_EOS = 2;
    }

    /// Bits of [`weir_detokenize`] and [`weir_detokenizer_create`] flags.
    weir_detokenize_flag_bits: u32 {
        /// Control tokens appear as their text. Off: they vanish.
        WEIR_DETOKENIZE_SPECIAL as SPECIAL = 1;
    }

    /// Bits of `weir_token_info.flags`.
    weir_token_flag_bits: u32 {
        /// A control token such as BOS.
        WEIR_TOKEN_CONTROL as CONTROL = 1;
        /// One raw byte (byte fallback).
        WEIR_TOKEN_BYTE as BYTE = 2;
        /// Added by the model's makers, ordinary text.
        WEIR_TOKEN_USER_DEFINED as USER_DEFINED = 4;
        /// Stands for text that the vocabulary lacks.
        WEIR_TOKEN_UNKNOWN as UNKNOWN = 8;
        /// Ends an answer (EOS, end of turn): the file names it as an end, or it is a control token of a text that ends
        /// turns.
        WEIR_TOKEN_END_OF_GENERATION as END_OF_GENERATION = 16;
    }

    /// Bits of `weir_chat_options.flags` and of [`weir_chat_render`] flags.
    weir_chat_flag_bits: u32 {
        /// End with the opening of an assistant turn, so that the model answers.
        WEIR_CHAT_ADD_ASSISTANT as ADD_ASSISTANT = 1;
        /// The session already holds a conversation that ends in an answer of the model without its end-of-turn token:
        /// close that turn first, then render `messages` only.
        WEIR_CHAT_CONTINUE as CONTINUE = 2;
        /// Accepted, without any effect: every template is run itself.
        WEIR_CHAT_ACCEPT_RESEMBLING as ACCEPT_RESEMBLING = 4;
        /// The last message is the beginning of an answer: leave its turn open, so that the model goes on with it.
        /// Needs an "assistant" message at the end that the template writes as it is, but for white space around it.
        /// Since 1.1.
        WEIR_CHAT_CONTINUE_LAST as CONTINUE_LAST = 8;
    }

    /// Bits of `weir_chat_info.can`.
    weir_chat_ability_bits: u32 {
        /// System messages.
        WEIR_CHAT_CAN_SYSTEM as SYSTEM = 1;
        /// `weir_chat_options.tools_json`.
        WEIR_CHAT_CAN_TOOLS as TOOLS = 2;
        /// Messages of the role "tool".
        WEIR_CHAT_CAN_TOOL_RESULTS as TOOL_RESULTS = 4;
        /// The model's thoughts are between tags.
        WEIR_CHAT_CAN_THOUGHTS as THOUGHTS = 8;
        /// A variable of the template switches them off.
        WEIR_CHAT_CAN_SKIP_THOUGHTS as SKIP_THOUGHTS = 16;
    }

    /// Bits of `weir_session_options.flags`.
    weir_session_flag_bits: u32 {
        /// Keep the attention masses of every step for the experimental `weir_session_trace` (weir/experimental.h);
        /// costs some speed and memory.
        WEIR_SESSION_TRACE as TRACE = 1;
        /// On a device: keys and values stay in host memory and the processor computes the attention of steps; the
        /// device has the weights and computes everything else, also most attention of prompts, over pages that pass
        /// through it. For contexts whose keys and values the device has no room for. Every policy and option works as
        /// on the CPU. Models with recurrent layers are refused; [`WEIR_DEVICE_AUTO`] takes the CPU for them. lfps does
        /// it without this flag, and psa with recall=on and a budget below the context. On the CPU it changes nothing.
        /// Since 1.1.
        WEIR_SESSION_HOST_ATTENTION as HOST_ATTENTION = 2;
    }

    /// Bits of `weir_session_options.spill_flags`.
    weir_spill_flag_bits: u32 {
        /// No page is dropped in silence. A call that would append tokens fails, and appends none, with
        /// [`WEIR_ERR_BUDGET`] when the pages that they fill have no room; with [`WEIR_ERR_IO`] when a page is lost
        /// with the spill file, and with [`WEIR_ERR_FORMAT`] when one proves to be damaged, and so do all later ones
        /// until [`weir_session_reset`].
        WEIR_SPILL_STRICT as STRICT = 1;
        /// All spilled pages are compressed at once.
        WEIR_SPILL_NO_RAW as NO_RAW = 2;
        /// On the CPU and with `spill_budget_bytes` 0, the store gets what makes the session take half of the memory
        /// that policy dense would take for the same context. The pages that were wanted the longest ago are dropped
        /// for good when it is full. Where the store would then be smaller than the pool, the pool holds the whole
        /// context instead, and nothing is stored. Attention on the host counts as the CPU; with attention on a device
        /// it changes nothing. Since 1.1.
        WEIR_SPILL_HALF as HALF = 4;
    }

    /// Formats of the keys and values in the KV pages. What they cost in accuracy is measured in docs/results/formats.
    /// Formats but [`WEIR_KV_BF16`] need heads of a multiple of 32 elements. Vulkan has no attention over them: it
    /// needs [`WEIR_SESSION_HOST_ATTENTION`], and [`WEIR_DEVICE_AUTO`] takes another device or the CPU.
    weir_kv_format: i32 {
        /// 16 bits an element.
        WEIR_KV_BF16 as BF16 = 0;
        /// 8.5 bits: signed bytes, and a scale for every 32 elements of a token.
        WEIR_KV_Q8 as Q8 = 1;
        /// 6.5 bits: keys as in [`WEIR_KV_Q8`]; values in 4.5 bits, after a rotation by a Hadamard matrix that is taken
        /// back behind attention.
        WEIR_KV_K8V4 as K8V4 = 2;
        /// 5.25 bits: keys in 4 bits, with the range of every channel over the 16 tokens of a page; values as in
        /// [`WEIR_KV_K8V4`]. Attended on the processor only, also beside a device ([`WEIR_SESSION_HOST_ATTENTION`]).
        WEIR_KV_K4V4 as K4V4 = 3;
    }

    /// Why an answer ended.
    weir_stop_reason: i32 {
        /// It failed before the first token.
        WEIR_STOP_NONE as NONE = 0;
        /// The model ended its answer.
        WEIR_STOP_EOS as EOS = 1;
        /// `max_tokens` were generated.
        WEIR_STOP_LENGTH as LENGTH = 2;
        /// The context is full.
        WEIR_STOP_CONTEXT as CONTEXT = 3;
        /// [`weir_session_cancel`] or the callback.
        WEIR_STOP_CANCELLED as CANCELLED = 4;
        /// The call failed; its status says why.
        WEIR_STOP_ERROR as ERROR = 5;
        /// One of the texts of `weir_generate_options.stop` came. Since 1.1.
        WEIR_STOP_STRING as STRING = 6;
        /// With [`WEIR_GENERATE_STOP_AT_CALL`]: one or more whole calls of tools came. Since 1.1.
        WEIR_STOP_TOOL_CALL as TOOL_CALL = 7;
        /// The constraint lets no further token follow: the text is complete by it; or a mask allows none
        /// (weir/constraint.h). Since 1.1.
        WEIR_STOP_CONSTRAINT as CONSTRAINT = 8;
    }

    /// Bits of `weir_generate_options.flags`.
    weir_generate_flag_bits: u32 {
        /// Control tokens appear in the events' text.
        WEIR_GENERATE_SPECIAL_TEXT as SPECIAL_TEXT = 1;
        /// Go on after tokens that end an answer.
        WEIR_GENERATE_IGNORE_EOS as IGNORE_EOS = 2;
        /// After calls of tools, end before the first token that is no part of them, which is not appended, or with the
        /// token that ends the answer: [`WEIR_STOP_TOOL_CALL`]. [`WEIR_ERR_UNSUPPORTED`] where the model's way of
        /// writing calls is not known (`weir_chat_info.tool_format`). Since 1.1.
        WEIR_GENERATE_STOP_AT_CALL as STOP_AT_CALL = 4;
    }

    /// What the text of an event is part of, by the tags of the model's chat template, or if it has none of its
    /// vocabulary.
    weir_segment: i32 {
        /// What the model says. All of it where the model has no tags.
        WEIR_SEGMENT_ANSWER as ANSWER = 0;
        /// A thought, also one that the prompt has opened.
        WEIR_SEGMENT_THOUGHT as THOUGHT = 1;
        /// A call of a tool as the model writes it, with the text of control tokens.
        WEIR_SEGMENT_TOOL_CALL as TOOL_CALL = 2;
        /// A tag that begins or ends one of these, or what names it. Its text is given with
        /// [`WEIR_GENERATE_SPECIAL_TEXT`] alone.
        WEIR_SEGMENT_MARK as MARK = 3;
    }

    /// What an event of an answer is.
    weir_event_kind: i32 {
        /// A token, and the text that is complete with it, perhaps none.
        WEIR_EVENT_TOKEN as TOKEN = 0;
        /// Text without a token: it was held back for a stop string or because it could have become a tag, belongs to
        /// another segment than the text before it, or no token completes it.
        WEIR_EVENT_TEXT as TEXT = 1;
        /// The answer has ended.
        WEIR_EVENT_END as END = 2;
    }

    /// Bits of the flags of [`weir_session_rewind`].
    weir_rewind_flag_bits: u32 {
        /// Go back although pages of the tokens that stay are lost.
        WEIR_REWIND_LOSSY as LOSSY = 1;
    }

    /// Bits of `weir_prompt_options.flags`.
    weir_prompt_flag_bits: u32 {
        /// Change nothing, only fill the report.
        WEIR_PROMPT_MEASURE as MEASURE = 1;
        /// Where going back needs pages that are lost, forget the conversation, with its pins and unread page events,
        /// and read all of it again. Without this bit the session goes back without them, and the report counts them.
        /// Layers with a sliding window lose what has left it, under every policy; there this bit is for all who want
        /// no difference.
        WEIR_PROMPT_EXACT as EXACT = 2;
        /// [`weir_session_prompt`] only: where the conversation does not fit, leave out its oldest turns, but neither
        /// system messages at its beginning nor the last turn.
        WEIR_PROMPT_DROP_OLDEST as DROP_OLDEST = 4;
    }

    /// What a constraint is written in.
    weir_constraint_kind: i32 {
        /// Any JSON value; no text.
        WEIR_CONSTRAINT_JSON as JSON = 0;
        /// A JSON schema.
        WEIR_CONSTRAINT_JSON_SCHEMA as JSON_SCHEMA = 1;
        /// A grammar in llama.cpp's format.
        WEIR_CONSTRAINT_GBNF as GBNF = 2;
        /// A list of tools as OpenAI's API has it; the answer is a call of one of them, {"name": ..., "arguments":
        /// {...}}.
        WEIR_CONSTRAINT_TOOLS as TOOLS = 3;
    }
}

/// Result of a call, an enum [`weir_status_code`]: 0 is success, negative values are errors. Numbers are never reused.
pub type weir_status = i32;

/// A token id, 0 .. `vocab_size` - 1 of its model. Negative means "none".
pub type weir_token = i32;

/// Stops calls, and outlives what it stops.
#[repr(C)]
pub struct weir_cancel {
    _opaque: Opaque,
}

/// Worker threads, backends and hooks. One per process is usual; several are independent of each other.
#[repr(C)]
pub struct weir_runtime {
    _opaque: Opaque,
}

/// Weights, hyper-parameters and tokenizer of one GGUF file. Immutable.
#[repr(C)]
pub struct weir_model {
    _opaque: Opaque,
}

/// Turns tokens into text piece by piece; never splits a UTF-8 sequence.
#[repr(C)]
pub struct weir_detokenizer {
    _opaque: Opaque,
}

/// One conversation. One thread at a time, except where a function says `any thread`.
#[repr(C)]
pub struct weir_session {
    _opaque: Opaque,
}

/// A compiled constraint: for any number of sessions of its model, in any number of threads.
#[repr(C)]
pub struct weir_constraint {
    _opaque: Opaque,
}

/// A function of any type, as [`weir_get_experimental`] returns it; cast it to the documented type.
pub type weir_function =
    Option<unsafe extern "C" fn()>;

/// Hook that allocates. Store the pointer in `out` and return [`WEIR_OK`]; to refuse, return any error or throw: the
/// call that needed the memory fails with [`WEIR_ERR_OUT_OF_MEMORY`]. Memory that is not aligned as asked goes back to
/// the free hook at once and counts as a refusal. Called on any thread. While the weights of a model are copied to a
/// device, the hooks run under a lock of that model: there they may not create another of its sessions, nor wait for a
/// thread that does.
pub type weir_alloc_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, info: *const weir_alloc_info, out: *mut *mut c_void) -> weir_status>;

/// Hook that frees `info->ptr`; bytes, alignment and kind are those of the allocation. Its status is ignored, an
/// exception dropped. Called on any thread.
pub type weir_free_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, info: *const weir_alloc_info) -> weir_status>;

/// Hook that receives log lines; its status is ignored, an exception dropped. Called on the thread that made the API
/// call.
pub type weir_log_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, info: *const weir_log_info) -> weir_status>;

/// Receives progress. Any status but [`WEIR_OK`], or an exception, stops the call with [`WEIR_ERR_CANCELLED`]. Called
/// on the thread that made the call.
pub type weir_progress_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, info: *const weir_progress_info) -> weir_status>;

/// Receives each generated token. Any status but [`WEIR_OK`], or an exception, stops the call with
/// [`WEIR_ERR_CANCELLED`] after that token, also in the last event. A token whose step then fails (a trace callback
/// refuses it, the device is lost, or a spilled page with [`WEIR_SPILL_STRICT`]) was shown, but is not part of the
/// conversation and not counted. Called on the thread that called [`weir_session_generate`]; of the session it may read
/// stats, memory and, on that thread, the experimental `weir_session_page_events`, and it may cancel; nothing else.
pub type weir_token_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, event: *const weir_token_event) -> weir_status>;

/// Called before each draw. [`WEIR_OK`] lets the answer go on; anything else, and a C++ exception, ends it with
/// [`WEIR_ERR_CANCELLED`], the conversation as it was. It must not call functions of its session.
pub type weir_mask_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, info: *const weir_mask_info) -> weir_status>;

/// Takes the next bytes of a saved session, all of them. Any status but [`WEIR_OK`], or an exception, ends the call
/// with [`WEIR_ERR_IO`]. Called on the thread that called [`weir_session_save`]; of the session it may read stats and
/// memory, nothing else.
pub type weir_write_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, info: *const weir_write_info) -> weir_status>;

/// Gives the next bytes of a saved session and stores their number at `n_read`. They may be fewer than wanted; 0 means
/// that there are no more. Any status but [`WEIR_OK`], or an exception, ends the call with [`WEIR_ERR_IO`]. Called on
/// the thread that called [`weir_session_restore`]; of the session it may read stats and memory, nothing else.
pub type weir_read_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, info: *const weir_read_info, n_read: *mut u64) -> weir_status>;

structures! {
    /// One `key`, `value` pair of text options.
    weir_key_value {
        /// NUL-terminated UTF-8.
        key: *const c_char,
        /// NUL-terminated UTF-8.
        value: *const c_char,
    }

    /// One request to an allocator hook.
    weir_alloc_info with struct_size {
        /// sizeof this struct in the library's build.
        struct_size: u32,
        /// `WEIR_MEMORY_*`.
        kind: i32,
        /// Size, at least 1.
        bytes: u64,
        /// A power of two, at most 4096.
        alignment: u64,
        /// NULL in alloc; in free the pointer that alloc gave.
        ptr: *mut c_void,
    }

    /// One log line.
    weir_log_info with struct_size {
        /// sizeof this struct in the library's build.
        struct_size: u32,
        /// `WEIR_LOG_*`.
        level: i32,
        /// One line of UTF-8, NUL-terminated, at most 511 bytes; valid during the call. Escaped like the text of
        /// [`weir_last_error`].
        message: *const c_char,
        /// Length of `message` without the NUL.
        message_bytes: u64,
    }

    /// Options of [`weir_runtime_create`].
    weir_runtime_options with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// Threads that compute, the caller's included; 1..256. 0 (default): the cores that this process may use, at
        /// most the whole ones in its container's limit (at least 1).
        n_threads: u32,
        /// Allocator hook; NULL (default) for the system's. Set both hooks or neither.
        alloc: weir_alloc_fn,
        /// Its counterpart.
        free: weir_free_fn,
        /// Passed to both hooks.
        alloc_user: *mut c_void,
        /// Log hook; NULL (default) for none.
        log: weir_log_fn,
        /// Passed to the log hook.
        log_user: *mut c_void,
        /// Most detailed `WEIR_LOG_*` level wanted. Default [`WEIR_LOG_ERROR`].
        log_level: i32,
        /// 0.
        reserved: u32,
        /// Folder of the backend modules (`libweir_cuda.so`). NULL (default): that of the library itself. A relative
        /// one means the folder that is current now. It is copied, and shorter than 1024 bytes, with the current folder
        /// if it is relative. Since 1.0.
        backend_dir: *const c_char,
        /// Hook for device memory ([`WEIR_MEMORY_DEVICE`], aligned to 256); NULL (default): the backend's own. Set both
        /// hooks or neither. Since 1.0.
        device_alloc: weir_alloc_fn,
        /// Its counterpart. Since 1.0.
        device_free: weir_free_fn,
        /// Passed to both device hooks. Since 1.0.
        device_alloc_user: *mut c_void,
        /// Which device [`WEIR_DEVICE_VULKAN`] is: its index ([`weir_device_info`]), or a part of its name, in any case
        /// of letters. NULL (default): a discrete GPU before an integrated one before a virtual one before a driver
        /// that computes on the processor, of equals the one with most memory. It is copied, and shorter than 256
        /// bytes. A session on it fails with [`WEIR_ERR_NOT_FOUND`] if there is no such device, and
        /// [`WEIR_ERR_INVALID_ARG`] if several have the name. Both list the devices. A process uses one device: a
        /// session on a second one fails with [`WEIR_ERR_UNSUPPORTED`], which names both. Since 1.1.
        vulkan_device: *const c_char,
        /// Folder (UTF-8) for what drivers compiled, so that the first session of the next process need not wait for
        /// it: Vulkan's pipelines, one file for each device, up to 128 MiB. It is made when it is needed. It and the
        /// files must belong to the user and be writable by nobody else, and a link to the folder must be the user's
        /// own too. What is damaged or of another driver is written anew, and what cannot be read or written costs time
        /// and a log line, never a session. So does a relative folder where the current one is gone. NULL (default):
        /// nothing is kept. It is copied, made absolute, and shorter than 1024 bytes. Since 1.1.
        cache_dir: *const c_char,
    }

    /// What a runtime holds, see [`weir_runtime_memory`].
    weir_memory_counters with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// 0.
        reserved: u32,
        /// Bytes now allocated through the host hooks.
        bytes: u64,
        /// Highest value of bytes so far.
        peak_bytes: u64,
        /// Allocations made so far.
        n_allocs: u64,
        /// Frees made so far.
        n_frees: u64,
        /// Device memory now allocated: weights and sessions. Since 1.0.
        device_bytes: u64,
        /// Highest value of `device_bytes` so far. Since 1.0.
        device_peak_bytes: u64,
        /// Allocations of device memory made so far. Since 1.0.
        n_device_allocs: u64,
        /// Frees of device memory made so far. Since 1.0.
        n_device_frees: u64,
    }

    /// A device of this machine, see [`weir_runtime_devices`].
    weir_device_info with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// Among the devices of its backend; `weir_runtime_options.vulkan_device` takes it.
        index: u32,
        /// `WEIR_DEVICE_*`, never [`WEIR_DEVICE_AUTO`]: which backend has it. A GPU that two of them have is listed
        /// twice.
        backend: i32,
        /// `WEIR_DEVICE_KIND_*`.
        kind: i32,
        /// 1: sessions of this runtime may run on it, as far as can be told without opening it. 0: not, see `why_not`.
        is_usable: u32,
        /// 0.
        reserved: u32,
        /// All of its memory; of a processor the machine's, or what the container may use of it.
        memory_bytes: u64,
        /// One line of UTF-8, NUL-terminated.
        name: [c_char; 256],
        /// Likewise: the driver and its version; of the CPU the instruction set in use.
        driver: [c_char; 128],
        /// Likewise: what it lacks; "" if it is usable.
        why_not: [c_char; 512],
    }

    /// Progress of a long call.
    weir_progress_info with struct_size {
        /// sizeof this struct in the library's build.
        struct_size: u32,
        /// 0.
        reserved: u32,
        /// Units done, 0..total: bytes in [`weir_model_open`] and where text becomes tokens, tokens in
        /// [`weir_session_prefill`].
        done: u64,
        /// Units in all.
        total: u64,
    }

    /// Options of [`weir_model_open`].
    weir_model_options with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// `WEIR_MODEL_*`. Default 0.
        flags: u32,
        /// Progress and cancel, see [`weir_model_open`]; NULL (default) for none.
        progress: weir_progress_fn,
        /// Passed to progress.
        progress_user: *mut c_void,
    }

    /// Facts about a model. Sizes are 0 for what a vocabulary-only file does not say.
    weir_model_info with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// Transformer layers.
        n_layers: u32,
        /// Query heads of a layer.
        n_heads: u32,
        /// KV heads of a layer.
        n_kv_heads: u32,
        /// Elements of a head.
        head_dim: u32,
        /// Width of the residual stream.
        d_model: u32,
        /// Inner width of the feed-forward part.
        d_ff: u32,
        /// Tokens of the vocabulary.
        vocab_size: u32,
        /// Positions the model was trained for.
        context_tokens: u32,
        /// Tensors in the file.
        n_tensors: u32,
        /// Weights in all tensors.
        n_params: u64,
        /// Bytes of all tensors in the file; used where they lie in it, mapped or copied.
        weights_bytes: u64,
        /// Size of the file, or of all its parts together.
        file_bytes: u64,
        /// Hash of hyper-parameters, tensor table and vocabulary; 0 with [`WEIR_MODEL_VOCAB_ONLY`].
        fingerprint: u64,
        /// general.architecture: "llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3", "granite", "olmo2",
        /// "glm4", "qwen3vl", "mistral3", "qwen35", "lfm2", "`nemotron_h`", "granitehybrid", "qwen2moe", "qwen3moe",
        /// "qwen3vlmoe", "gpt-oss", "glm4moe", "granitemoe", "qwen35moe", "qwen3next", "lfm2moe" or "`nemotron_h_moe`".
        /// Lives as long as the model.
        architecture: *const c_char,
        /// general.name as one line of UTF-8, or ""; lives as long as the model.
        name: *const c_char,
        /// Type of most weights, such as "`q8_0`"; static.
        weight_type: *const c_char,
        /// "jinja" when the file has a chat template, which is run; "" when there is none. Static.
        chat_template: *const c_char,
        /// Tokenizer kind and pre-tokenizer, such as "gpt2/llama-bpe"; lives as long as the model.
        tokenizer: *const c_char,
        /// Bytes of the file in memory of the allocator hooks: all of them with [`WEIR_MODEL_COPY`], 0 when it is
        /// mapped. Since 1.0.
        copied_bytes: u64,
        /// Always "": every template is run itself. Static.
        chat_resembles: *const c_char,
        /// Files that the model is in, at least 1; see [`weir_model_open`]. Since 1.1.
        n_parts: u32,
        /// 0. Since 1.1.
        reserved: u32,
    }

    /// One tensor of a model.
    weir_tensor_info with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// 1..4.
        n_dims: u32,
        /// Slowest axis first; unused ones are 1.
        dims: [u64; 4],
        /// Size in the file.
        bytes: u64,
        /// Where its bytes start in the file.
        file_offset: u64,
        /// Its name in the file, NUL-terminated; lives as long as the model.
        name: *const c_char,
        /// Such as "`q8_0`"; static.
        r#type: *const c_char,
        /// Which of the model's files it is in, 0 .. `n_parts` - 1. Since 1.1.
        part: u32,
        /// 0. Since 1.1.
        reserved: u32,
    }

    /// One token of a vocabulary.
    weir_token_info with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// `WEIR_TOKEN_*`.
        flags: u32,
        /// As stored in the file, UTF-8, NUL-terminated; lives as long as the model.
        text: *const c_char,
        /// Length without the NUL.
        text_bytes: u64,
        /// Score of SentencePiece vocabularies, else 0.
        score: f32,
        /// 0.
        reserved: u32,
        /// What the token stands for in running text, a space where the text above has a sign for one. Any bytes,
        /// perhaps part of a UTF-8 sequence, and no NUL after them. Of control and unknown tokens their text. Lives as
        /// long as the model. Since 1.1.
        bytes: *const c_char,
        /// Its length. Since 1.1.
        n_bytes: u64,
    }

    /// Tokens with a special meaning, -1 where the model has none.
    weir_special_tokens with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// Begin of text.
        bos: weir_token,
        /// End of text or turn.
        eos: weir_token,
        /// End of turn, when it differs from eos.
        eot: weir_token,
        /// Unknown.
        unk: weir_token,
        /// Padding.
        pad: weir_token,
        /// 1 when [`WEIR_TOKENIZE_BOS_EOS`] adds bos, else 0.
        add_bos: i32,
        /// 1 when [`WEIR_TOKENIZE_BOS_EOS`] adds eos, else 0.
        add_eos: i32,
    }

    /// One message of a conversation. It may grow in later versions; callers of [`weir_chat_tokenize`] and
    /// [`weir_session_prompt`] say how large theirs are (`weir_chat_options.message_bytes`).
    weir_chat_message {
        /// "system", "user" or "assistant", NUL-terminated. Also "tool" and "developer" where the template has words
        /// for them.
        role: *const c_char,
        /// UTF-8. NULL with `content_bytes` 0: empty.
        content: *const c_char,
        /// Length of content.
        content_bytes: u64,
        /// What the model thought before an answer, UTF-8 without tags; NULL: nothing. The template decides whether it
        /// is kept: most leave out those of earlier turns. Since 1.1.
        thought: *const c_char,
        /// Length of thought. Since 1.1.
        thought_bytes: u64,
        /// The calls in an answer, NUL-terminated JSON, a list of objects with "name", "arguments" (an object) and
        /// perhaps "id", or as in OpenAI's API, with these two in "function". NULL: none. Since 1.1.
        tool_calls_json: *const c_char,
        /// The call that a tool's result answers, NUL-terminated; NULL: not said. Since 1.1.
        tool_call_id: *const c_char,
        /// The tool that a result is of; else who speaks; NUL-terminated; NULL: not said. Since 1.1.
        name: *const c_char,
    }

    /// Options of [`weir_chat_tokenize`] and [`weir_session_prompt`].
    weir_chat_options with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// `WEIR_CHAT_*`. Default 0.
        flags: u32,
        /// sizeof([`weir_chat_message`]) in the caller's build, the distance of two messages. 0 (default, also after
        /// [`weir_chat_options_init`]): that of the version whose options have `struct_size`, or 24, as in 1.0, where
        /// options is NULL. Fields beyond the caller's size take their defaults. Fields of a message that the library
        /// does not know must be 0.
        message_bytes: u32,
        /// 0.
        reserved: u32,
        /// Progress in bytes of the rendered text, and cancel, as in [`weir_tokenize_with`]; NULL (default) for none.
        /// Since 1.1.
        progress: weir_progress_fn,
        /// Passed to progress. Since 1.1.
        progress_user: *mut c_void,
        /// A chat template (Jinja) to use instead of the file's, NUL-terminated, at most 2^18 bytes, or the name of a
        /// built-in one: "chatml", "llama3", "mistral", "gemma", "granite", "glm4" or "harmony". NULL (default): the
        /// file's. Since 1.1.
        template_text: *const c_char,
        /// The tools that the model may call: a JSON list as in OpenAI's API, NUL-terminated. NULL (default): none.
        /// [`WEIR_ERR_UNSUPPORTED`] where the template has no place for them. Since 1.1.
        tools_json: *const c_char,
        /// More variables of the template: a JSON object, such as {"`enable_thinking`": false}, NUL-terminated. NULL
        /// (default): none. One that the template never reads is [`WEIR_ERR_NOT_FOUND`], so that nothing is switched
        /// off in vain. Since 1.1.
        variables_json: *const c_char,
        /// What `strftime_now` sees, in seconds since 1970, as UTC; 0 (default): the time of the call. Since 1.1.
        unix_time: i64,
    }

    /// Options of [`weir_tokenize_with`].
    weir_tokenize_options with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// `WEIR_TOKENIZE_*`. Default 0.
        flags: u32,
        /// Progress and cancel, see [`weir_tokenize_with`]; NULL (default) for none.
        progress: weir_progress_fn,
        /// Passed to progress.
        progress_user: *mut c_void,
    }

    /// What a model's chat template can do, and how the parts of its answers are told apart.
    weir_chat_info with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// `WEIR_CHAT_CAN_*`.
        can: u32,
        /// Text that begins a thought, "" when the model has no tags.
        thought_begin: *const c_char,
        /// Text that ends it, "" likewise.
        thought_end: *const c_char,
        /// Name of the model's way of writing calls of tools, "hermes", "llama3", "mistral", "harmony" and so on, or ""
        /// when none is known.
        tool_format: *const c_char,
    }

    /// Options of [`weir_plan`] and [`weir_session_create`].
    weir_session_options with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// `WEIR_SESSION_*`.
        flags: u32,
        /// `WEIR_DEVICE_*`. Default [`WEIR_DEVICE_AUTO`].
        device: i32,
        /// Most positions the conversation may reach. 0 (default): what the model was trained for.
        context_tokens: u32,
        /// Tokens of one prefill chunk, 1..4096. Default 512, less when the context is smaller.
        batch_tokens: u32,
        /// Tokens of one KV page. Only 16 (default) exists.
        page_tokens: u32,
        /// KV budget in tokens per (layer, kv head) stream. 0 (default): the whole context.
        budget_tokens: u32,
        /// Longest prompt to plan for where a policy keeps prompts beyond the budget. Default 0.
        max_prompt_tokens: u32,
        /// KV budget in bytes for all streams together, instead of `budget_tokens`: as many tokens per stream as fit
        /// into it. A policy that keeps more than its budget (quest, hybrid, dense layers of h2o and tova) takes more,
        /// as the plan shows. 0 (default): not used.
        budget_bytes: u64,
        /// Host memory for pages outside the KV pool, at least one page of each stream that the budget rules. With
        /// recall (arkvale, and raas, hybrid and psa with recall=on) steps bring pages back from it, 0 (default) is
        /// what the whole context needs at worst, and when it is full, pages move to the spill file. Without one, or
        /// when that is full too, those that were wanted the longest ago are dropped for good. 0 is never more than
        /// half of the memory of the machine, or of the container's limit. `spill_tokens` of the plan says what is held
        /// for sure. Other policies that let pages go keep copies there, which no step reads, on the CPU only, and 0
        /// (default) keeps none.
        spill_budget_bytes: u64,
        /// "dense" (also NULL, default), "sink", "h2o", "tova", "quest", "raas", "hybrid", "random", "arkvale", "psa",
        /// "lfps", "keyformer", "scissorhands". Copied.
        policy: *const c_char,
        /// \[`n_policy_options`\] options of the policy, docs/policies.md. Copied; the file of `heads_file` is only
        /// read in the call.
        policy_options: *const weir_key_value,
        /// Count of `policy_options`.
        n_policy_options: u32,
        /// 0.
        reserved: u32,
        /// The part of `spill_budget_bytes` for uncompressed pages, all but those that were wanted the longest ago. 0
        /// (default): all of it if it holds the whole context so, else as much as leaves room for the other pages at
        /// four fifths of their bytes, at least a quarter. Since 1.1.
        spill_raw_bytes: u64,
        /// Path (UTF-8) of a file of `spill_file_bytes` for the pages that `spill_budget_bytes` have no room for.
        /// Nothing may be there: the file is created, and its name removed at once. Used while the session is created,
        /// and for its forks: a relative one means the folder that is current in [`weir_session_create`]. NULL
        /// (default): no file. Since 1.1.
        spill_path: *const c_char,
        /// Size of that file, reserved on the disk at once. 0 (default): no file. Since 1.1.
        spill_file_bytes: u64,
        /// `WEIR_SPILL_*`. Since 1.1.
        spill_flags: u32,
        /// 0. Since 1.1.
        reserved_spill: u32,
        /// Host memory for snapshots of the state of recurrent layers, at least one of them
        /// (`weir_plan_info.snapshot_bytes` / `n_snapshots`). A conversation goes back to a snapshot, and reads again
        /// from there. 0 (default): four. Not read for models that have attention in every layer. Since 1.1.
        snapshot_budget_bytes: u64,
        /// There is a snapshot at every multiple of so many tokens, 16 or more, and where prompts begin and end, as
        /// many as have room, at most 1,024. Those of the last prompt stay however long the answer is. With room for
        /// one, that of its end does. 0 (default): 1,024. Since 1.1.
        snapshot_tokens: u32,
        /// `WEIR_KV_*`: what keys and values are stored in. [`WEIR_KV_BF16`] (0) is the default. Budgets in bytes hold
        /// more tokens in smaller formats. Since 1.1.
        kv_format: i32,
    }

    /// The exact bytes of every pool of a session, known before anything is allocated.
    weir_plan_info with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// Most positions.
        context_tokens: u32,
        /// Tokens of one stream that fit: `pages_per_stream` \* `page_tokens`.
        budget_tokens: u32,
        /// Tokens of a page.
        page_tokens: u32,
        /// Pages a stream can hold; streams of layers that a policy leaves dense hold the context.
        pages_per_stream: u32,
        /// Layers with attention times KV heads.
        n_streams: u32,
        /// Bytes of one page.
        page_bytes: u64,
        /// Weights in the file, mapped and shared by all sessions; not in `total_bytes`.
        weights_bytes: u64,
        /// Resident KV pages.
        kv_bytes: u64,
        /// Page digests.
        digest_bytes: u64,
        /// Page tables, stamps, scores, free lists; on the CPU also the ring of page events.
        table_bytes: u64,
        /// Activations, logits, partial results of attention.
        workspace_bytes: u64,
        /// Sampler state, and the tokens of the conversation that are kept ([`weir_session_tokens`]).
        sampler_bytes: u64,
        /// The session object itself.
        session_bytes: u64,
        /// Host memory that a device copies from and to: the host's page tables and the ring of page events, or with
        /// attention on the host activations, and two parts of a layer's pages on their way. 0 on the CPU. A Vulkan
        /// driver gives it, not the host hooks, and it is counted like theirs.
        staging_bytes: u64,
        /// Host memory of the store of pages outside the KV pool: its pages, the queue to its compression and all that
        /// this needs. Else 0. A Vulkan driver gives the part for uncompressed pages, as it gives `staging_bytes`.
        spill_bytes: u64,
        /// What vendor libraries reserve; 0, as no backend of this version uses one.
        library_bytes: u64,
        /// All of the session's own memory: the sum of the fields from `kv_bytes` to `library_bytes`, `recurrent_bytes`
        /// and `snapshot_bytes`.
        total_bytes: u64,
        /// The part of `total_bytes` on the device: pages, digests, tables, workspace and `recurrent_bytes`. With
        /// attention on the host, part of `workspace_bytes`. 0 on the CPU. Since 1.0.
        device_bytes: u64,
        /// Device memory of the weights, shared by all sessions of the model there; not in `total_bytes`. Since 1.0.
        device_weights_bytes: u64,
        /// `WEIR_DEVICE_*` that the session will run on. Since 1.0.
        device: i32,
        /// 0.
        reserved: u32,
        /// Those of the `n_streams` in layers with a sliding window of their own. Since 1.0.
        n_window_streams: u32,
        /// Pages that such a stream can hold instead of `pages_per_stream`, whatever the policy and the budget: those
        /// of the window and of a prompt chunk of `batch_tokens`. Since 1.0.
        window_pages_per_stream: u32,
        /// The part of `kv_bytes` for pages of such streams. Since 1.0.
        window_kv_bytes: u64,
        /// Size of the spill file; not in `total_bytes`. Since 1.1.
        spill_file_bytes: u64,
        /// Those of the `n_streams` whose KV heads the option heads makes hold the first tokens and a window. Since
        /// 1.1.
        n_head_streams: u32,
        /// Pages that such a stream can hold, whatever the policy and the budget: those of the first tokens, of the
        /// window and of a prompt chunk of `batch_tokens`. Since 1.1.
        head_pages_per_stream: u32,
        /// The part of `kv_bytes` for pages of such streams. Since 1.1.
        head_kv_bytes: u64,
        /// The part of `spill_bytes` for pages as they are. Since 1.1.
        spill_raw_bytes: u64,
        /// The part of `spill_bytes` for compressed pages. Since 1.1.
        spill_compressed_bytes: u64,
        /// Positions whose pages the store and its file hold whatever is in them. With fewer than `context_tokens`,
        /// pages may be dropped for good, those first that were wanted the longest ago. 0 without a store. Since 1.1.
        spill_tokens: u32,
        /// 0. Since 1.1.
        reserved_spill: u32,
        /// State of recurrent layers, twice: of now, and what the next step writes. It does not grow with the
        /// conversation. Since 1.1.
        recurrent_bytes: u64,
        /// Host memory of `n_snapshots` copies of that state. Since 1.1.
        snapshot_bytes: u64,
        /// How many places of the conversation are kept to go back to, besides its beginning. 0 where every layer has
        /// attention. Since 1.1.
        n_snapshots: u32,
        /// `weir_session_options.snapshot_tokens`, or its default. 0 where every layer has attention. Since 1.1.
        snapshot_tokens: u32,
    }

    /// Memory of a live session.
    weir_memory_info with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// 0.
        reserved: u32,
        /// `weir_plan_info.total_bytes` of this session.
        plan_bytes: u64,
        /// Allocated now.
        bytes: u64,
        /// Highest value so far.
        peak_bytes: u64,
        /// Size of the KV pool.
        kv_budget_bytes: u64,
        /// Bytes of the pages that hold tokens now.
        kv_bytes: u64,
        /// Highest value so far.
        kv_peak_bytes: u64,
        /// Allocations of this session.
        n_allocs: u64,
        /// Allocations made after create, also of device memory; Weir promises 0.
        allocs_while_decoding: u64,
        /// The part of bytes that is memory of the device. Since 1.0.
        device_bytes: u64,
    }

    /// Counters of a session since its creation ([`weir_session_reset`] keeps them).
    weir_session_stats with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// Positions now in the conversation.
        n_tokens: u32,
        /// Tokens that went through prefill.
        n_prompt: u64,
        /// Tokens that went through step or generate.
        n_decode: u64,
        /// Pages that hold tokens now, all streams.
        pages_resident: u64,
        /// Highest value so far.
        pages_resident_max: u64,
        /// Pages that left because of the budget, each as often as it left.
        pages_evicted: u64,
        /// Those of `pages_evicted` that were kept in host memory and not dropped.
        pages_spilled: u64,
        /// Times that a page came back from there.
        pages_recalled: u64,
        /// Pages that are gone for good.
        pages_dropped: u64,
        /// Time inside prefill.
        prefill_ns: u64,
        /// Time of decode steps and of drawing tokens in generate, without the callback.
        decode_ns: u64,
        /// Pages that the latest decode step attended, all streams; a page counts once for each list that contains it.
        /// Since 1.0.
        pages_attended: u64,
        /// Pages that are now in host memory alone. Since 1.0.
        pages_cold: u64,
        /// Host memory that spilled pages take now, copies of resident pages included. Since 1.0.
        spill_stored_bytes: u64,
        /// The part of `decode_ns` in which pages came back. Since 1.0.
        recall_ns: u64,
        /// Times that a page had to wait for the compression of others. Since 1.0.
        spill_waits: u64,
        /// Spilled pages that proved to be damaged, and 1 when the spill file was given up because reading or writing
        /// failed. Such pages count as dropped. Since 1.0.
        spill_errors: u64,
        /// Spilled pages that are uncompressed now, copies of resident pages included. Since 1.1.
        spill_pages_raw: u64,
        /// Times that a compressed page was restored to be read. Since 1.1.
        spill_restored: u64,
    }

    /// What is added to the logit of a token before anything else looks at it.
    weir_token_bias {
        /// An id of the model.
        token: weir_token,
        /// -100..100; -100 forbids the token. Of several for one token the sum is added.
        bias: f32,
    }

    /// Where a page of a conversation is: in how many of `weir_plan_info.n_streams` streams.
    weir_page_state {
        /// In the KV pool.
        resident: u16,
        /// In host memory or the spill file alone.
        cold: u16,
        /// Nowhere: dropped, or behind a sliding window. The three make up all streams.
        lost: u16,
        /// Streams where it may not leave: pinned by the application, or by the policy as a prompt.
        pinned: u16,
    }

    /// How the next token is drawn. Applied in this order: bias, repetition penalty, frequency and presence penalty,
    /// temperature, top-k, top-p, min-p.
    weir_sampling_options with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// Keep the k most probable tokens; 0 (default): all.
        top_k: u32,
        /// 0 (default): greedy, the most probable token, the lowest id on a tie. At most 100.
        temperature: f32,
        /// Keep the smallest set with this probability; (0, 1\]; 0 (default) means 1, off.
        top_p: f32,
        /// Drop tokens less probable than this fraction of the best; \[0, 1). Default 0, off.
        min_p: f32,
        /// Divides positive logits (multiplies negative ones) of recent tokens; 0 (default) means 1, off. At most 100.
        repeat_penalty: f32,
        /// Recent tokens that the penalty looks at, at most 4096; 0 (default): 64.
        repeat_last_n: u32,
        /// 0.
        reserved: u32,
        /// Same seed, same options, same logits: same tokens. Default 0.
        seed: u64,
        /// Taken from the logits of the recent tokens, of those that `repeat_last_n` says; -2..2, below 0 they become
        /// likelier. Default 0. Since 1.1.
        presence_penalty: f32,
        /// The same, as often as each is among them. Default 0. Since 1.1.
        frequency_penalty: f32,
        /// \[`n_bias`\], copied. NULL (default): none. Since 1.1.
        bias: *const weir_token_bias,
        /// At most 1024. Since 1.1.
        n_bias: u32,
        /// 0. Since 1.1.
        reserved2: u32,
    }

    /// A token and how probable it was.
    weir_logprob {
        /// The token.
        token: weir_token,
        /// Natural logarithm of its probability by the model's logits alone: before bias, penalties, temperature and
        /// cuts.
        logprob: f32,
    }

    /// One generated token, for the callback of [`weir_session_generate`].
    weir_token_event with struct_size {
        /// sizeof this struct in the library's build.
        struct_size: u32,
        /// The token; -1 in a last event that only brings text which no token can complete any more.
        token: weir_token,
        /// 0 for the first token of this call.
        index: u32,
        /// Positions in the conversation before this token is appended.
        n_tokens: u32,
        /// Text that is now complete, whole UTF-8 sequences, NUL-terminated, perhaps empty; valid during the call.
        text: *const c_char,
        /// Its length.
        text_bytes: u64,
        /// As of [`weir_event`]. Since 1.1.
        logprob: f32,
        /// As of [`weir_event`]. Since 1.1.
        n_top: u32,
        /// As of [`weir_event`]; valid during the call. Since 1.1.
        top: *const weir_logprob,
    }

    /// A text with its length; need not end with NUL.
    weir_text {
        /// UTF-8.
        text: *const c_char,
        /// Its length.
        bytes: u64,
    }

    /// Options of [`weir_session_generate`] and [`weir_session_begin`].
    weir_generate_options with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// `WEIR_GENERATE_*`.
        flags: u32,
        /// Most tokens of this call; 0 (default): as many as the context holds.
        max_tokens: u32,
        /// 0.
        reserved: u32,
        /// NULL (default): none.
        on_token: weir_token_fn,
        /// Passed to `on_token`.
        user: *mut c_void,
        /// \[`n_stop`\] texts of 1 to 256 bytes. The first that is complete ends the answer, wherever its tokens begin
        /// and end: its text is not shown, its tokens stay in the conversation, and text that may be the beginning of
        /// one is shown later, at the latest with the end of the call or answer. Only text counts that would be shown,
        /// and of one call or one begun answer: for pieces of an answer use [`weir_session_next`]. NULL (default):
        /// none. Since 1.1.
        stop: *const weir_text,
        /// At most 16. Since 1.1.
        n_stop: u32,
        /// Events tell the log-probability of their token, and this many of the most probable tokens, 0..64. 0
        /// (default): neither. A GPU sends these and sums, not all logits. Since 1.1.
        n_top: u32,
        /// Before there are so many tokens, none is drawn that ends an answer ([`WEIR_TOKEN_END_OF_GENERATION`]), also
        /// with [`WEIR_GENERATE_IGNORE_EOS`]. Stop strings, `max_tokens` and the context end it all the same. Default
        /// 0. Since 1.1.
        min_tokens: u32,
        /// After so many tokens of thought its end is appended as if it had been drawn: `thinking_close`, then the tag.
        /// 0 (default): no limit. [`WEIR_ERR_UNSUPPORTED`] where the model has no tags of thoughts
        /// (`weir_chat_info.thought_end`). Since 1.1.
        thinking_budget: u32,
        /// Text that is appended before the tag where a thought is ended early, also by
        /// [`weir_session_finish_thinking`]: at most 1,024 bytes of UTF-8, NUL-terminated. Copied. Models often go on
        /// thinking aloud without one. NULL (default): none. [`WEIR_ERR_UNSUPPORTED`] as above. Since 1.1.
        thinking_close: *const c_char,
    }

    /// Result of [`weir_session_generate`].
    weir_generate_result with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// `WEIR_STOP_*`.
        stop: i32,
        /// Tokens generated, without the one that ended the answer.
        n_tokens: u32,
        /// The token that ended the answer, or the last one; -1 when there was none.
        last_token: weir_token,
        /// Which of the texts of [`WEIR_STOP_STRING`] it was; otherwise -1. Since 1.1.
        stop_index: i32,
        /// 0.
        reserved: u32,
    }

    /// One event of an answer, from [`weir_session_next`].
    weir_event with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// `WEIR_EVENT_*`.
        kind: i32,
        /// The token; of an end the one that ended the answer, which is not appended; else -1.
        token: weir_token,
        /// Number of the token in this answer, from 0; of other events how many there were.
        index: u32,
        /// Positions in the conversation, with this token.
        n_tokens: u32,
        /// Why the answer ended: `WEIR_STOP_*`; [`WEIR_STOP_NONE`] of other events.
        stop: i32,
        /// Which of the texts of [`WEIR_STOP_STRING`] it was; otherwise -1.
        stop_index: i32,
        /// `WEIR_SEGMENT_*`: what the text is part of, or without text what the token is.
        segment: i32,
        /// Whole UTF-8 sequences, NUL-terminated, perhaps empty; valid until the session's next call.
        text: *const c_char,
        /// Its length.
        text_bytes: u64,
        /// That of [`weir_logprob`]. NaN of other events and where `n_top` of the options is 0.
        logprob: f32,
        /// Entries at top: `n_top` of the options, or all tokens if these are fewer; of other events 0.
        n_top: u32,
        /// \[`n_top`\], the most probable first, of equals the lower id; the token itself need not be among them. NULL
        /// where `n_top` is 0. Valid until the session's next call.
        top: *const weir_logprob,
    }

    /// Options of [`weir_session_prompt`] and [`weir_session_prompt_tokens`].
    weir_prompt_options with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// `WEIR_PROMPT_*`.
        flags: u32,
        /// Positions to leave free for what follows. Default 0.
        reserve_tokens: u32,
        /// 0.
        reserved: u32,
        /// Progress in the tokens that are read, and cancel; NULL (default): none.
        progress: weir_progress_fn,
        /// Passed to progress.
        progress_user: *mut c_void,
        /// [`weir_session_prompt`] only: how messages are rendered; its progress must be NULL. NULL (default):
        /// [`WEIR_CHAT_ADD_ASSISTANT`].
        chat: *const weir_chat_options,
    }

    /// What [`weir_session_prompt`] or [`weir_session_prompt_tokens`] did.
    weir_prompt_report with struct_size {
        /// sizeof this struct in the caller's build. Required.
        struct_size: u32,
        /// Tokens of the conversation now.
        n_tokens: u32,
        /// Those of the `n_tokens` that were there and stayed.
        n_kept: u32,
        /// The others.
        n_read: u32,
        /// Tokens that were in the session and are no more: thoughts, edited turns.
        n_forgotten: u32,
        /// Messages left out by [`WEIR_PROMPT_DROP_OLDEST`], those behind the system messages.
        n_messages_dropped: u32,
        /// Pages of the kept tokens that the next one would attend and the session has lost, summed over its streams:
        /// dropped by the policy, or behind a sliding window that has moved on. With [`WEIR_PROMPT_MEASURE`] those that
        /// are lost already.
        pages_missing: u64,
    }

    /// Positions of a message's text in a conversation.
    weir_span {
        /// Position of the first token with text of the message.
        first: u32,
        /// One past the last one; equal to first where the template leaves the text out, or writes it in another way.
        end: u32,
    }

    /// Which tokens may be drawn: bit i % 32 of words\[i / 32\] is that of token i. All bits are set when the function
    /// is called, those of tokens that the session's constraint forbids are not; bits that it clears are not drawn.
    weir_mask_info with struct_size {
        /// sizeof this struct in the library that is loaded.
        struct_size: u32,
        /// Tokens of the model.
        vocab_size: u32,
        /// Tokens of the answer so far.
        n_tokens: u32,
        /// 0.
        reserved: u32,
        /// \[`n_tokens`\] Those tokens.
        tokens: *const weir_token,
        /// \[(`vocab_size` + 31) / 32\] In and out. Bits behind the last token are ignored.
        words: *mut u32,
    }

    /// Bytes of a saved session, for the callback of [`weir_session_save`].
    weir_write_info with struct_size {
        /// sizeof this struct in the library's build.
        struct_size: u32,
        /// 0.
        reserved: u32,
        /// Bytes that earlier calls have taken.
        offset: u64,
        /// Bytes to take, at least 1.
        n_bytes: u64,
        /// \[`n_bytes`\], valid during the call.
        data: *const c_void,
    }

    /// What [`weir_session_restore`] wants next, for its callback.
    weir_read_info with struct_size {
        /// sizeof this struct in the library's build.
        struct_size: u32,
        /// 0.
        reserved: u32,
        /// Bytes that earlier calls have given.
        offset: u64,
        /// Bytes wanted, at least 1. Never more than the saved session has from here on.
        n_bytes: u64,
        /// \[`n_bytes`\] where they go.
        data: *mut c_void,
    }
}

functions! {
    /// Version of the library that is loaded, (major \<\< 16) | (minor \<\< 8) | patch.
    ///
    /// Compare it with the `WEIR_VERSION_*` macros of the headers that you compiled with.
    ///
    /// # Returns
    ///
    /// ```text
    /// the number, never an error
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: nothing is owned. Since 1.0.
    fn weir_version() -> u32;

    /// Version of the library that is loaded, as text such as "1.0.0".
    ///
    /// # Returns
    ///
    /// ```text
    /// a static NUL-terminated string
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the library; valid until it is unloaded. Since 1.0.
    fn weir_version_string() -> *const c_char;

    /// Name of a status, such as "[`WEIR_ERR_BUDGET`]".
    ///
    /// # Parameters
    ///
    /// - `status`: any value
    ///
    /// # Returns
    ///
    /// ```text
    /// a static string; "WEIR_ERR_UNKNOWN" for a number that this version does not know
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the library; valid until it is unloaded. Since 1.0.
    fn weir_status_name(status: weir_status) -> *const c_char;

    /// What went wrong in the last failed call of the calling thread.
    ///
    /// The text names the tensor, key, option, file offset or byte count at fault. A call that succeeds leaves it as it
    /// was. It is one line, whatever names, paths and values it quotes: their control characters are shown as \\x1b or
    /// \\u2028, and what is not UTF-8 as U+FFFD.
    ///
    /// # Returns
    ///
    /// ```text
    /// NUL-terminated UTF-8, at most 1023 bytes; "" when nothing has failed on this thread
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread; each has its own text. Ownership: the library; valid until the next failed call on the same
    /// thread. Since 1.0.
    fn weir_last_error() -> *const c_char;

    /// Create a cancel: a flag that stops the calls of all sessions it is given to ([`weir_session_set_cancel`]).
    ///
    /// It belongs to no session, model or runtime and may outlive all of them, so that whoever holds it may set it at
    /// any time. It is counted: each who holds it has a reference of his own. Its few bytes come from malloc, not from
    /// the allocator hooks of a runtime.
    ///
    /// # Parameters
    ///
    /// - `out`: out, the handle; NULL after a failure
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG    NULL
    /// WEIR_ERR_OUT_OF_MEMORY  there is none
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller has a reference; [`weir_cancel_release`]. Since 1.1.
    fn weir_cancel_create(out: *mut *mut weir_cancel) -> weir_status;

    /// Take another reference.
    ///
    /// # Parameters
    ///
    /// - `cancel`: in, NULL is allowed
    ///
    /// # Returns
    ///
    /// ```text
    /// cancel
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller has one reference more; [`weir_cancel_release`]. Since 1.1.
    fn weir_cancel_retain(cancel: *mut weir_cancel) -> *mut weir_cancel;

    /// Give up a reference. The last one ends the cancel.
    ///
    /// # Parameters
    ///
    /// - `cancel`: in, NULL is allowed
    ///
    /// # Returns
    ///
    /// ```text
    /// nothing
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread, once per reference. Ownership: ends the caller's ownership. Since 1.1.
    fn weir_cancel_release(cancel: *mut weir_cancel);

    /// Stop the calls of the sessions that look at it, as [`weir_session_cancel`] stops them, those that run and all
    /// later ones until [`weir_cancel_clear`]: a call that ends because of it does not clear it, as it may serve
    /// several sessions.
    ///
    /// # Parameters
    ///
    /// - `cancel`: in, NULL is allowed
    ///
    /// # Returns
    ///
    /// ```text
    /// nothing
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread, also in a signal handler. Ownership: nothing changes. Since 1.1.
    fn weir_cancel_set(cancel: *mut weir_cancel);

    /// Let the calls of these sessions go on. As with [`weir_session_clear_cancel`], whoever takes the clicks on a Stop
    /// button calls it when a new turn begins, before the thread that computes gets the turn.
    ///
    /// # Parameters
    ///
    /// - `cancel`: in, NULL is allowed
    ///
    /// # Returns
    ///
    /// ```text
    /// nothing
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread, also in a signal handler. Ownership: nothing changes. Since 1.1.
    fn weir_cancel_clear(cancel: *mut weir_cancel);

    /// Find an experimental function by name. Such functions may change or vanish in any release.
    ///
    /// # Parameters
    ///
    /// - `name`: in, NUL-terminated
    ///
    /// # Returns
    ///
    /// ```text
    /// the function, or NULL when this build has none of that name (or name is NULL)
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: nothing is owned. Since 1.0.
    fn weir_get_experimental(name: *const c_char) -> weir_function;

    /// Fill `options` with the defaults of the library that is loaded.
    ///
    /// # Parameters
    ///
    /// - `options`: out; its first `struct_size` bytes are written
    /// - `struct_size`: sizeof([`weir_runtime_options`]) in the caller's build
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL, or a size below 8; nothing written
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller. Since 1.0.
    fn weir_runtime_options_init(options: *mut weir_runtime_options, struct_size: u32) -> weir_status;

    /// Create a runtime and start its worker threads. The module of a device backend is loaded later, when a plan or a
    /// session first needs it.
    ///
    /// # Parameters
    ///
    /// - `options`: in, NULL for all defaults
    /// - `out`: out, the handle; NULL after a failure
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG    NULL out, a bad struct_size, n_threads above 256, an unknown log_level, a
    ///                         backend_dir, cache_dir or vulkan_device that is too long, an alloc hook without its
    ///                         free hook or vice versa
    /// WEIR_ERR_IO             a relative backend_dir, and the current folder is gone
    /// WEIR_ERR_UNSUPPORTED    options has fields that this version does not know, or reserved is not 0
    /// WEIR_ERR_OUT_OF_MEMORY  memory or threads could not be had
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller; [`weir_runtime_destroy`]. Since 1.0.
    fn weir_runtime_create(options: *const weir_runtime_options, out: *mut *mut weir_runtime) -> weir_status;

    /// Give up the caller's reference. Models and sessions of the runtime keep it alive until they are gone.
    ///
    /// # Parameters
    ///
    /// - `runtime`: in, NULL is allowed
    ///
    /// # Returns
    ///
    /// ```text
    /// nothing
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread, once per handle. Ownership: ends the caller's ownership. Since 1.0.
    fn weir_runtime_destroy(runtime: *mut weir_runtime);

    /// Memory that the runtime and everything made from it have allocated, on the host and on devices. Mapped model
    /// files are not included, copied ones are.
    ///
    /// # Parameters
    ///
    /// - `runtime`: in
    /// - `counters`: in/out, `struct_size` set by the caller
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL or a bad struct_size; nothing written
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller owns `counters`. Since 1.0.
    fn weir_runtime_memory(runtime: *const weir_runtime, counters: *mut weir_memory_counters) -> weir_status;

    /// Number of threads that compute, the caller's included.
    ///
    /// # Parameters
    ///
    /// - `runtime`: in
    ///
    /// # Returns
    ///
    /// ```text
    /// 1..256, or 0 when runtime is NULL
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: nothing is owned. Since 1.0.
    fn weir_runtime_thread_count(runtime: *const weir_runtime) -> u32;

    /// Name of the CPU instruction set in use, such as "`AVX3_DL`" or "NEON".
    ///
    /// # Parameters
    ///
    /// - `runtime`: in
    ///
    /// # Returns
    ///
    /// ```text
    /// a static string; "" when runtime is NULL
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the library; valid until it is unloaded. Since 1.0.
    fn weir_runtime_cpu_target(runtime: *const weir_runtime) -> *const c_char;

    /// The devices of this machine, usable or not: the CPU, then those of CUDA and of Vulkan, by index. Opens none. The
    /// modules of both backends are loaded; the devices of one that is missing or finds no driver are not in the list,
    /// and an information line of the log says why.
    ///
    /// # Parameters
    ///
    /// - `runtime`: in
    /// - `devices`: in/out, \[capacity\]; may be NULL when `capacity` is 0. The caller sets `struct_size` of the first,
    ///   which all have; the library sets it in the others
    /// - `capacity`: entries at `devices`
    /// - `n_devices`: out, length of the list, also when it did not fit
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG       NULL, or a struct_size that is bad or no multiple of 8; nothing written
    /// WEIR_ERR_BUFFER_TOO_SMALL  n_devices is set, devices untouched
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller owns the buffer. Since 1.1.
    fn weir_runtime_devices(
        runtime: *const weir_runtime,
        devices: *mut weir_device_info,
        capacity: u32,
        n_devices: *mut u32
    ) -> weir_status;

    /// Fill `options` with the defaults of the library that is loaded.
    ///
    /// # Parameters
    ///
    /// - `options`: out; its first `struct_size` bytes are written
    /// - `struct_size`: sizeof([`weir_model_options`]) in the caller's build
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL, or a size below 8; nothing written
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller. Since 1.0.
    fn weir_model_options_init(options: *mut weir_model_options, struct_size: u32) -> weir_status;

    /// Open a GGUF file (version 2 or 3): map it, check every number in it, build the tokenizer.
    ///
    /// Whatever the file contains, the process survives it. A mapped file must not be changed or truncated while the
    /// model lives: where it became shorter, the system ends the process with SIGBUS, now or in a later call. Where
    /// that cannot be ruled out, [`WEIR_MODEL_COPY`] reads the file into memory instead.
    ///
    /// The progress callback counts bytes: done is 0 while the description of the file and its vocabulary are read,
    /// then the number of bytes that [`WEIR_MODEL_PREFETCH`] has read, and total (the size of the file) in the last
    /// call. With [`WEIR_MODEL_COPY`] the bytes are read first, and done stays at total from then on. The callback is
    /// called before anything is read and again after every few thousand keys, tokens, merges and tensors, so opening
    /// can be stopped at any time, however large or hostile the file is. A C++ exception stops opening as any status
    /// but [`WEIR_OK`] does.
    ///
    /// A model in several files, "NAME-00001-of-00003.gguf" and so on with the key split.count, is opened by the path
    /// of any of them; all must lie in one folder. Sizes and progress are those of all parts together.
    ///
    /// What is taken for granted is logged, each thing once: as a warning where a key is missing or unknown that may
    /// change answers, as information where it is usual to leave the key out.
    ///
    /// # Parameters
    ///
    /// - `runtime`: in
    /// - `path`: in, NUL-terminated UTF-8
    /// - `options`: in, NULL for all defaults
    /// - `out`: out, the handle; NULL after a failure
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG    NULL pointer, bad struct_size or flags
    /// WEIR_ERR_IO             the file cannot be opened, mapped or read, or a part of the model is missing; with
    ///                         WEIR_MODEL_COPY also: its size changed while it was read
    /// WEIR_ERR_FORMAT         the file breaks the format; the message names key, tensor or offset
    /// WEIR_ERR_UNSUPPORTED    architecture, tensor type, tokenizer or pre-tokenizer that this version does not
    ///                         have; a key that changes answers and that the architecture does not compute with; a
    ///                         file that is no model, such as a LoRA adapter, an mmproj or an importance matrix
    /// WEIR_ERR_CANCELLED      the progress callback refused or threw
    /// WEIR_ERR_OUT_OF_MEMORY  an allocation was refused
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller; [`weir_model_close`]. The model keeps `runtime` alive.. Since 1.0.
    fn weir_model_open(
        runtime: *mut weir_runtime,
        path: *const c_char,
        options: *const weir_model_options,
        out: *mut *mut weir_model
    ) -> weir_status;

    /// Give up the caller's reference. Sessions keep the model alive until they are gone.
    ///
    /// # Parameters
    ///
    /// - `model`: in, NULL is allowed
    ///
    /// # Returns
    ///
    /// ```text
    /// nothing
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread, once per handle. Ownership: ends the caller's ownership. Since 1.0.
    fn weir_model_close(model: *mut weir_model);

    /// Facts about the model.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `info`: in/out, `struct_size` set by the caller
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL or a bad struct_size; nothing written
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: immutable. Ownership: strings belong to the model. Since 1.0.
    fn weir_model_get_info(model: *const weir_model, info: *mut weir_model_info) -> weir_status;

    /// Describe tensor number `index` in file order.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `index`: 0 .. `n_tensors` - 1
    /// - `info`: in/out, `struct_size` set by the caller
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL, a bad struct_size or index; nothing written
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: immutable. Ownership: strings belong to the model. Since 1.0.
    fn weir_model_tensor_info(model: *const weir_model, index: u32, info: *mut weir_tensor_info) -> weir_status;

    /// Number of metadata keys in the file.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    ///
    /// # Returns
    ///
    /// ```text
    /// the count, 0 when model is NULL
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: immutable. Ownership: nothing is owned. Since 1.0.
    fn weir_model_metadata_count(model: *const weir_model) -> u32;

    /// Metadata key and value number `index`. The value is given as text: an array as "\[type; count\]", a string with
    /// the bytes that the file has.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `index`: 0 .. [`weir_model_metadata_count`] - 1
    /// - `key`: out, NUL-terminated; lives as long as the model
    /// - `value`: out, \[capacity\] bytes, NUL-terminated; may be NULL when `capacity` is 0
    /// - `capacity`: bytes at `value`
    /// - `value_bytes`: out, length without the NUL; may be NULL
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG       NULL or an index out of range; nothing written
    /// WEIR_ERR_BUFFER_TOO_SMALL  key and value_bytes are set, value is not
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: immutable. Ownership: the key belongs to the model, the value to the caller. Since 1.0.
    fn weir_model_metadata(
        model: *const weir_model,
        index: u32,
        key: *mut *const c_char,
        value: *mut c_char,
        capacity: u64,
        value_bytes: *mut u64
    ) -> weir_status;

    /// Name of weight type number `index`, such as "`q8_0`": the types of tensors that this build computes with.
    ///
    /// # Parameters
    ///
    /// - `index`: from 0
    ///
    /// # Returns
    ///
    /// ```text
    /// a static string, NULL behind the last
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the library; valid until it is unloaded. Since 1.1.
    fn weir_weight_type_name(index: u32) -> *const c_char;

    /// Turn text into tokens.
    ///
    /// While it runs, the call takes 2 to 7 bytes of memory for a byte of most texts and never more than 10, however
    /// long its words are. Only a vocabulary that is made for the purpose, in which a token depends on text far behind
    /// it, can make that some 75 for a long word.
    ///
    /// What a vocabulary has no token for becomes its unknown token, unless that is a control token or ends an answer:
    /// text never becomes one of those. Such a byte is then left out, or, by a SentencePiece vocabulary, the text
    /// refused.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `text`: in, \[`text_bytes`\] UTF-8; bytes that are not valid UTF-8 are tokenized as bytes if the vocabulary
    ///   can
    /// - `text_bytes`: 0 .. 2^31 - 1
    /// - `flags`: `WEIR_TOKENIZE_*`
    /// - `tokens`: out, \[capacity\] ids; may be NULL when `capacity` is 0
    /// - `capacity`: room at `tokens`
    /// - `n_tokens`: out, number of ids of the whole text, also when they did not fit
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG       NULL pointer, unknown flag, text too long
    /// WEIR_ERR_BUFFER_TOO_SMALL  n_tokens is set, tokens untouched
    /// WEIR_ERR_FORMAT            the vocabulary has no token for a part of the text and no unknown token for it
    /// WEIR_ERR_OUT_OF_MEMORY     an allocation was refused
    /// WEIR_ERR_STATE             the model was opened with WEIR_MODEL_DESCRIBE_ONLY
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: immutable. Ownership: the caller owns the buffers. Since 1.0.
    fn weir_tokenize(
        model: *const weir_model,
        text: *const c_char,
        text_bytes: u64,
        flags: u32,
        tokens: *mut weir_token,
        capacity: u64,
        n_tokens: *mut u64
    ) -> weir_status;

    /// Fill `options` with the defaults of the library that is loaded.
    ///
    /// # Parameters
    ///
    /// - `options`: out; its first `struct_size` bytes are written
    /// - `struct_size`: sizeof([`weir_tokenize_options`]) in the caller's build
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL, or a size below 8; nothing written
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller. Since 1.1.
    fn weir_tokenize_options_init(options: *mut weir_tokenize_options, struct_size: u32) -> weir_status;

    /// Turn text into tokens, as [`weir_tokenize`] does, and tell how far it is.
    ///
    /// The progress callback is called with 0 bytes done, about every 64 KiB of work, and when all is done. It may be
    /// told the same number again, where a long word is looked at more than once. Any status but [`WEIR_OK`] stops the
    /// call.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `text`: in, \[`text_bytes`\] UTF-8, as in [`weir_tokenize`]
    /// - `text_bytes`: 0 .. 2^31 - 1
    /// - `options`: in, NULL for all defaults
    /// - `tokens`: out, \[capacity\] ids; may be NULL when `capacity` is 0
    /// - `capacity`: room at `tokens`
    /// - `n_tokens`: out, number of ids of the whole text, also when they did not fit
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG       NULL pointer, bad struct_size, unknown flag, text too long
    /// WEIR_ERR_BUFFER_TOO_SMALL  n_tokens is set, tokens untouched
    /// WEIR_ERR_FORMAT            the vocabulary has no token for a part of the text and no unknown token
    /// WEIR_ERR_OUT_OF_MEMORY     an allocation was refused
    /// WEIR_ERR_CANCELLED         the callback refused or threw; nothing written
    /// WEIR_ERR_STATE             the model was opened with WEIR_MODEL_DESCRIBE_ONLY
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: immutable. Ownership: the caller owns the buffers. Since 1.1.
    fn weir_tokenize_with(
        model: *const weir_model,
        text: *const c_char,
        text_bytes: u64,
        options: *const weir_tokenize_options,
        tokens: *mut weir_token,
        capacity: u64,
        n_tokens: *mut u64
    ) -> weir_status;

    /// Turn tokens into the bytes they stand for.
    ///
    /// Token by token the result can be cut inside a UTF-8 sequence; use a [`weir_detokenizer`] for streaming.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `tokens`: in, \[`n_tokens`\] ids in \[0, `vocab_size`)
    /// - `n_tokens`: any number
    /// - `flags`: `WEIR_DETOKENIZE_*`
    /// - `text`: out, \[capacity\] bytes, no NUL is added; may be NULL when `capacity` is 0
    /// - `capacity`: room at `text`
    /// - `text_bytes`: out, bytes of the whole text, also when it did not fit
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG       NULL pointer, unknown flag, id out of range
    /// WEIR_ERR_BUFFER_TOO_SMALL  text_bytes is set
    /// WEIR_ERR_STATE             the model was opened with WEIR_MODEL_DESCRIBE_ONLY
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: immutable. Ownership: the caller owns the buffers. Since 1.0.
    fn weir_detokenize(
        model: *const weir_model,
        tokens: *const weir_token,
        n_tokens: u64,
        flags: u32,
        text: *mut c_char,
        capacity: u64,
        text_bytes: *mut u64
    ) -> weir_status;

    /// Create a streaming detokenizer.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `flags`: `WEIR_DETOKENIZE_*`
    /// - `out`: out, the handle; NULL after a failure
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG    NULL pointer or unknown flag
    /// WEIR_ERR_OUT_OF_MEMORY  an allocation was refused
    /// WEIR_ERR_STATE          the model was opened with WEIR_MODEL_DESCRIBE_ONLY
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller; [`weir_detokenizer_destroy`]. It keeps `model` alive.. Since 1.0.
    fn weir_detokenizer_create(model: *mut weir_model, flags: u32, out: *mut *mut weir_detokenizer) -> weir_status;

    /// Feed one token and get the text that is now complete, always whole UTF-8 sequences, perhaps none. Allocates
    /// nothing.
    ///
    /// A byte that can no longer become valid UTF-8 comes out as U+FFFD.
    ///
    /// # Parameters
    ///
    /// - `detokenizer`: in/out
    /// - `token`: in, id in \[0, `vocab_size`)
    /// - `text`: out, view of the new text, NUL-terminated
    /// - `text_bytes`: out, its length
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL pointer or id out of range; nothing changed
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: the view belongs to `detokenizer` and is valid until its next call.
    /// Since 1.0.
    fn weir_detokenizer_push(
        detokenizer: *mut weir_detokenizer,
        token: weir_token,
        text: *mut *const c_char,
        text_bytes: *mut u64
    ) -> weir_status;

    /// End the text: what is still incomplete comes out as U+FFFD, and the detokenizer starts anew.
    ///
    /// # Parameters
    ///
    /// - `detokenizer`: in/out
    /// - `text`: out, view, NUL-terminated
    /// - `text_bytes`: out, its length
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL pointer
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: the view belongs to `detokenizer` and is valid until its next call.
    /// Since 1.0.
    fn weir_detokenizer_flush(
        detokenizer: *mut weir_detokenizer,
        text: *mut *const c_char,
        text_bytes: *mut u64
    ) -> weir_status;

    /// Destroy a detokenizer.
    ///
    /// # Parameters
    ///
    /// - `detokenizer`: in, NULL is allowed
    ///
    /// # Returns
    ///
    /// ```text
    /// nothing
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread, once. Ownership: ends the caller's ownership. Since 1.0.
    fn weir_detokenizer_destroy(detokenizer: *mut weir_detokenizer);

    /// Describe one token.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `token`: id in \[0, `vocab_size`)
    /// - `info`: in/out, `struct_size` set by the caller
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL, a bad struct_size, id out of range; nothing written
    /// WEIR_ERR_STATE        the model was opened with WEIR_MODEL_DESCRIBE_ONLY
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: immutable. Ownership: the text belongs to the model. Since 1.0.
    fn weir_token_get_info(model: *const weir_model, token: weir_token, info: *mut weir_token_info) -> weir_status;

    /// The special tokens of a model.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `special`: in/out, `struct_size` set by the caller
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL or a bad struct_size; nothing written
    /// WEIR_ERR_STATE        the model was opened with WEIR_MODEL_DESCRIBE_ONLY
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: immutable. Ownership: the caller owns `special`. Since 1.0.
    fn weir_model_special_tokens(model: *const weir_model, special: *mut weir_special_tokens) -> weir_status;

    /// What the chat template of a model can do. Tags that it does not have are looked for in the vocabulary.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `info`: in/out, `struct_size` set by the caller
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG    NULL or a bad struct_size; nothing written
    /// WEIR_ERR_STATE          the model was opened with WEIR_MODEL_DESCRIBE_ONLY
    /// WEIR_ERR_OUT_OF_MEMORY  an allocation was refused
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: immutable. Ownership: the texts live as long as the model. Since 1.1.
    fn weir_model_chat_info(model: *const weir_model, info: *mut weir_chat_info) -> weir_status;

    /// Fill `options` with the defaults of the library that is loaded.
    ///
    /// # Parameters
    ///
    /// - `options`: out; its first `struct_size` bytes are written
    /// - `struct_size`: sizeof([`weir_chat_options`]) in the caller's build
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL, or a size below 8; nothing written
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller. Since 1.0.
    fn weir_chat_options_init(options: *mut weir_chat_options, struct_size: u32) -> weir_status;

    /// Turn a conversation into tokens as the chat template of the model's file does: what to prefill before an answer.
    ///
    /// The template is run itself, as by [`weir_template_render`], with the date of the call. A file without one is
    /// [`WEIR_ERR_UNSUPPORTED`], unless `weir_chat_options.template_text` gives a template.
    ///
    /// Only the template's own text becomes control tokens. Text of messages never does, whatever it holds: a user who
    /// writes "\<|`im_end`|\>" has written ten characters. Where a template marks turns with ordinary text, as those of
    /// Llama 2 and older Mistral models do ("\[INST\]", "User:"), a message can still imitate these marks.
    ///
    /// Exactly, no control, unknown or user-defined token is recognised in a message, but for user-defined ones of
    /// letters, digits and white space (some vocabularies have such for runs of spaces) that the template does not use,
    /// or that merging gives from ordinary text. An answer (role "assistant") that begins with "\<think\>" is the one
    /// exception: this mark and the next "\</think\>" are tokens, as they were when the model wrote them. What the file
    /// classes as ordinary text is ordinary text everywhere.
    ///
    /// For messages without such texts the ids are those of [`weir_chat_render`] and [`weir_tokenize`] with
    /// [`WEIR_TOKENIZE_SPECIAL`].
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `messages`: in, \[`n_messages`\]
    /// - `n_messages`: 0 .. 65535
    /// - `options`: in, NULL for all defaults
    /// - `tokens`: out, \[capacity\] ids; may be NULL when `capacity` is 0
    /// - `capacity`: room at `tokens`
    /// - `n_tokens`: out, number of ids of the whole conversation, also when they did not fit
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG       NULL pointer, bad struct_size, message_bytes or flags, unknown role, an order of
    ///                            roles that the template cannot have, JSON that is none, fields of a message that
    ///                            its role does not have, or 2^31 bytes of text and more
    /// WEIR_ERR_UNSUPPORTED       the file has no chat template, or one that cannot be run within the limits of
    ///                            weir_template_render; one without tools, or without the role of a message; or
    ///                            with WEIR_CHAT_CONTINUE and WEIR_CHAT_CONTINUE_LAST one that does not write
    ///                            answers as they are. Or a field of the options or of a message is set that this
    ///                            version does not know
    /// WEIR_ERR_NOT_FOUND         the template never reads a variable of variables_json: the message names it
    /// WEIR_ERR_BUFFER_TOO_SMALL  n_tokens is set, tokens untouched
    /// WEIR_ERR_FORMAT            the vocabulary has no token for a part of the text and no unknown token; or the
    ///                            file's template is wrong, or goes wrong with these messages: the message has its
    ///                            line
    /// WEIR_ERR_OUT_OF_MEMORY     an allocation was refused
    /// WEIR_ERR_CANCELLED         the progress callback refused or threw; nothing written
    /// WEIR_ERR_STATE             the model was opened with WEIR_MODEL_DESCRIBE_ONLY
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: immutable. Ownership: the caller owns the buffers. Since 1.0.
    fn weir_chat_tokenize(
        model: *const weir_model,
        messages: *const weir_chat_message,
        n_messages: u64,
        options: *const weir_chat_options,
        tokens: *mut weir_token,
        capacity: u64,
        n_tokens: *mut u64
    ) -> weir_status;

    /// Render a conversation as the chat template of the model's file does, as text to look at.
    ///
    /// Use [`weir_chat_tokenize`] to feed a session. Rendering and then tokenizing with [`WEIR_TOKENIZE_SPECIAL`] lets
    /// anybody whose text is in a message forge turns: "\<|`im_end`|\>" in it ends the turn, and what follows can be a
    /// system message of his own.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `messages`: in, \[`n_messages`\]
    /// - `n_messages`: 0 .. 65535
    /// - `options`: in, as of [`weir_chat_tokenize`], NULL for all defaults; progress is not called
    /// - `text`: out, \[capacity\] bytes, no NUL is added; may be NULL when `capacity` is 0
    /// - `capacity`: room at `text`
    /// - `text_bytes`: out, bytes of the whole text, also when it did not fit
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG, WEIR_ERR_UNSUPPORTED, WEIR_ERR_NOT_FOUND
    ///                            as of weir_chat_tokenize
    /// WEIR_ERR_FORMAT            the template is wrong, or goes wrong with these messages: the message has the
    ///                            line
    /// WEIR_ERR_BUFFER_TOO_SMALL  text_bytes is set
    /// WEIR_ERR_OUT_OF_MEMORY     an allocation was refused
    /// WEIR_ERR_STATE             the model was opened with WEIR_MODEL_DESCRIBE_ONLY
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: immutable. Ownership: the caller owns the buffers. Since 1.1.
    fn weir_chat_render_with(
        model: *const weir_model,
        messages: *const weir_chat_message,
        n_messages: u64,
        options: *const weir_chat_options,
        text: *mut c_char,
        capacity: u64,
        text_bytes: *mut u64
    ) -> weir_status;

    /// The same with flags only.
    ///
    /// The function in the library takes messages of 24 bytes, as they were in 1.0, in every version. In sources the
    /// name stands for a call of [`weir_chat_render_with`] that says how large messages are.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `messages`: in, \[`n_messages`\]
    /// - `n_messages`: 0 .. 65535
    /// - `flags`: `WEIR_CHAT_*`
    /// - `text`: out, \[capacity\] bytes, no NUL is added; may be NULL when `capacity` is 0
    /// - `capacity`: room at `text`
    /// - `text_bytes`: out, bytes of the whole text, also when it did not fit
    ///
    /// # Returns
    ///
    /// ```text
    /// as of weir_chat_render_with
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: immutable. Ownership: the caller owns the buffers. Since 1.0.
    fn weir_chat_render(
        model: *const weir_model,
        messages: *const weir_chat_message,
        n_messages: u64,
        flags: u32,
        text: *mut c_char,
        capacity: u64,
        text_bytes: *mut u64
    ) -> weir_status;

    /// Render a chat template, given as text, with any variables: to look at, and to try out templates.
    ///
    /// Templates are Jinja, as Python's jinja2 runs it for chat templates: `trim_blocks`, `lstrip_blocks`, loop
    /// controls, an immutable sandbox, `raise_exception`, `strftime_now`, tojson without HTML escapes, {% generation
    /// %}. Usual variables are "messages", "tools", "`add_generation_prompt`", "`bos_token`" and "`eos_token`". As with
    /// [`weir_chat_render`], text of a message may look like control tokens in the result.
    ///
    /// A template cannot run for ever: beyond fixed limits of steps, depth, memory and text it is refused.
    ///
    /// # Parameters
    ///
    /// - `runtime`: in, whose memory the call uses
    /// - `template_text`: in, \[`template_bytes`\] UTF-8; or the name of a built-in template, as in
    ///   [`weir_chat_options`]
    /// - `template_bytes`: 0 .. 2^18
    /// - `variables_json`: in, \[`variables_bytes`\] a JSON object whose entries are the template's variables
    /// - `variables_bytes`: length of `variables_json`
    /// - `unix_time`: what `strftime_now` sees, in seconds since 1970, as UTC; 0: the time of the call
    /// - `text`: out, \[capacity\] bytes, no NUL is added; may be NULL when `capacity` is 0
    /// - `capacity`: room at `text`
    /// - `text_bytes`: out, bytes of the whole text, also when it did not fit
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG       NULL pointer, variables_json is no JSON object, or the template refuses these
    ///                            variables (raise_exception): the message has its line and words
    /// WEIR_ERR_FORMAT            the template is wrong, or goes wrong with these variables; the message has its
    ///                            line
    /// WEIR_ERR_UNSUPPORTED       it goes beyond a limit; the message has the line
    /// WEIR_ERR_BUFFER_TOO_SMALL  text_bytes is set
    /// WEIR_ERR_OUT_OF_MEMORY     an allocation was refused
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller owns the buffers. Since 1.1.
    fn weir_template_render(
        runtime: *mut weir_runtime,
        template_text: *const c_char,
        template_bytes: u64,
        variables_json: *const c_char,
        variables_bytes: u64,
        unix_time: i64,
        text: *mut c_char,
        capacity: u64,
        text_bytes: *mut u64
    ) -> weir_status;

    /// Fill `options` with the defaults of the library that is loaded.
    ///
    /// # Parameters
    ///
    /// - `options`: out; its first `struct_size` bytes are written
    /// - `struct_size`: sizeof([`weir_session_options`]) in the caller's build
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL, or a size below 8; nothing written
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller. Since 1.0.
    fn weir_session_options_init(options: *mut weir_session_options, struct_size: u32) -> weir_status;

    /// Choose policy, budget and policy options by the name of a preset (docs/policies.md).
    ///
    /// Sets policy, `policy_options` and `n_policy_options`; also `budget_tokens`, unless a budget is set already, and
    /// [`WEIR_SPILL_HALF`] of `spill_flags`. Other fields stay.
    ///
    /// # Parameters
    ///
    /// - `name`: in, such as "reason-fixed"
    /// - `options`: in/out, `struct_size` set by the caller and large enough for `n_policy_options`
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL or a bad struct_size; nothing changed
    /// WEIR_ERR_NOT_FOUND    no such preset; the message lists the valid ones; nothing changed
    /// WEIR_ERR_UNSUPPORTED  the preset needs a method that this version lacks; nothing changed
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the texts that the options then point to are static. Since 1.0.
    fn weir_session_options_preset(name: *const c_char, options: *mut weir_session_options) -> weir_status;

    /// Fill `options` with the defaults of the library that is loaded.
    ///
    /// # Parameters
    ///
    /// - `options`: out; its first `struct_size` bytes are written
    /// - `struct_size`: sizeof([`weir_sampling_options`]) in the caller's build
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL, or a size below 8; nothing written
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller. Since 1.0.
    fn weir_sampling_options_init(options: *mut weir_sampling_options, struct_size: u32) -> weir_status;

    /// Fill `options` with the defaults of the library that is loaded.
    ///
    /// # Parameters
    ///
    /// - `options`: out; its first `struct_size` bytes are written
    /// - `struct_size`: sizeof([`weir_generate_options`]) in the caller's build
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL, or a size below 8; nothing written
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller. Since 1.0.
    fn weir_generate_options_init(options: *mut weir_generate_options, struct_size: u32) -> weir_status;

    /// Compute the exact number of bytes that a session with these options takes. Allocates nothing from the hooks.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `options`: in, NULL for all defaults
    /// - `plan`: in/out, `struct_size` set by the caller
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL, a bad struct_size, an option out of range or contradicting another; or several
    ///                       devices have the name that vulkan_device is, the message lists all
    /// WEIR_ERR_NOT_FOUND    no such policy or policy option, or no device that vulkan_device names; the message
    ///                       lists the valid ones
    /// WEIR_ERR_BUDGET       the budget is below what the policy needs; the message names the minimum
    /// WEIR_ERR_UNSUPPORTED  a device or feature that this build or this machine lacks, or a second Vulkan device
    ///                       in the process, the message names both
    /// WEIR_ERR_STATE        the model was opened without its weights, WEIR_MODEL_VOCAB_ONLY or
    ///                       WEIR_MODEL_DESCRIBE_ONLY
    /// WEIR_ERR_DEVICE_LOST  the device failed earlier in this process
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: immutable. Ownership: the caller owns `plan`. Since 1.0.
    fn weir_plan(
        model: *const weir_model,
        options: *const weir_session_options,
        plan: *mut weir_plan_info
    ) -> weir_status;

    /// Choose what is 0 of `context_tokens`, the budget and `spill_budget_bytes`, so that the plan takes at most
    /// `bytes`; what is set stays.
    ///
    /// Options that fit as they are stay so. Otherwise the whole context comes first, as long as the budget holds 256
    /// tokens, or what the policy needs if that is more; with recall the pool then gets up to half of the bytes and the
    /// store the rest. Where even that is too much, the context gets shorter, down to 512 tokens, with as much budget
    /// as then fits. Not counted are the model's weights, as in `weir_plan_info.total_bytes`.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `bytes`: the most that `weir_plan_info.total_bytes` of the result may be
    /// - `options`: in/out, `struct_size` set by the caller and large enough for `spill_budget_bytes`; policy and its
    ///   options are set before, also by [`weir_session_options_preset`]
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_BUDGET  the least is more than bytes, the message names it; nothing changed
    /// Other errors as of weir_plan; nothing changed
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: immutable. Ownership: the caller owns `options`. Since 1.1.
    fn weir_session_options_fit(
        model: *const weir_model,
        bytes: u64,
        options: *mut weir_session_options
    ) -> weir_status;

    /// Name of policy number `index`, such as "raas": the values of `weir_session_options.policy`.
    ///
    /// # Parameters
    ///
    /// - `index`: from 0
    ///
    /// # Returns
    ///
    /// ```text
    /// a static string, NULL behind the last
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the library; valid until it is unloaded. Since 1.1.
    fn weir_policy_name(index: u32) -> *const c_char;

    /// Name of preset number `index`, such as "reason-fixed": the names that [`weir_session_options_preset`] takes.
    ///
    /// # Parameters
    ///
    /// - `index`: from 0
    ///
    /// # Returns
    ///
    /// ```text
    /// a static string, NULL behind the last
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the library; valid until it is unloaded. Since 1.1.
    fn weir_preset_name(index: u32) -> *const c_char;

    /// Create a session. Allocates exactly the bytes that [`weir_plan`] computes, or fails.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `options`: in, NULL for all defaults
    /// - `out`: out, the handle; NULL after a failure
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK, the errors of weir_plan, or
    /// WEIR_ERR_OUT_OF_MEMORY  the message names the bytes; nothing stays allocated, except the model's weights on
    ///                         a device if they did fit
    /// WEIR_ERR_IO             the spill file cannot be created, or its bytes not reserved; the message names path
    ///                         and bytes; no file is left behind
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller; [`weir_session_destroy`]. The session keeps `model` alive.. Since
    /// 1.0.
    fn weir_session_create(
        model: *mut weir_model,
        options: *const weir_session_options,
        out: *mut *mut weir_session
    ) -> weir_status;

    /// Create a second session that goes on where this one is.
    ///
    /// The fork has the options, the device and the conversation of `session`: pages in the pool and outside of it,
    /// logits, tokens, sampling options, the sampler's random state, text that is not complete yet, pins, counters,
    /// unread page events. From then on each computes what a session of that history computes, whatever the other does,
    /// also after the other was destroyed. A trace callback, a pending cancel and an answer that runs stay with
    /// `session`.
    ///
    /// The fork takes what [`weir_plan`] says for the options, for itself: its own pool, its own spill memory of the
    /// same size, and if the session has a spill file a new one at the same path. What is in the pool is copied. Pages
    /// outside of it count in both sessions, each within its own limits, but their bytes are there once: they are
    /// copied to a fork's own memory or file when the session that has them needs their room, or is destroyed. So
    /// creating a fork is fast, its spill memory becomes resident as it is used, and destroying a session copies what
    /// its forks still share with it. Where a spill file fails, a session may lose pages that it shares, as it loses
    /// those in its own file. Afterwards neither session allocates.
    ///
    /// # Parameters
    ///
    /// - `session`: in; it waits until pages that are being compressed are, and does not change otherwise
    /// - `out`: out, the handle; NULL after a failure
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG    NULL
    /// WEIR_ERR_BUSY           another thread is inside the session
    /// WEIR_ERR_OUT_OF_MEMORY  the message names the bytes; nothing stays allocated
    /// WEIR_ERR_IO             a spill file could not be created, read or written
    /// WEIR_ERR_DEVICE_LOST    the device failed; destroy the session
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time for `session`; the fork is a session of its own. Ownership: the caller;
    /// [`weir_session_destroy`]. The fork keeps the model alive.. Since 1.1.
    fn weir_session_fork(session: *mut weir_session, out: *mut *mut weir_session) -> weir_status;

    /// Destroy a session. No other call may be inside it.
    ///
    /// The host memory that held the conversation is wiped before it goes back to the allocator: tokens, text, logits,
    /// what steps and prompts computed with, pages and their copies. Not wiped are memory of a device, and the blocks
    /// of a spill file, which has no name and ends with the session.
    ///
    /// # Parameters
    ///
    /// - `session`: in, NULL is allowed
    ///
    /// # Returns
    ///
    /// ```text
    /// nothing
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: ends the caller's ownership. Since 1.0.
    fn weir_session_destroy(session: *mut weir_session);

    /// Forget the conversation: all pages are free, position 0, the sampler's random state starts anew, a pending
    /// cancel is cleared. Sampling options and counters stay.
    ///
    /// The session then does what a new one does, and nothing of the conversation can come into the next one. The host
    /// memory of tokens, text, logits, pages and their copies is wiped, as by [`weir_session_restore`]; that of a page
    /// that leaves the pool, as soon as it leaves. Memory that a device copies from and to is wiped by
    /// [`weir_session_destroy`].
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL
    /// WEIR_ERR_BUSY         another thread is inside the session; nothing changed
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: nothing changes. Since 1.0.
    fn weir_session_reset(session: *mut weir_session) -> weir_status;

    /// Append prompt tokens, many at a time, and compute the logits after the last.
    ///
    /// Tokens fed here are prompt for the policy, in any turn of the conversation. Allocates nothing.
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    /// - `tokens`: in, \[`n_tokens`\] ids in \[0, `vocab_size`)
    /// - `n_tokens`: at least 1
    /// - `progress`: progress in tokens, and cancel; NULL for none
    /// - `progress_user`: passed to `progress`
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG   NULL, no tokens, an id out of range; nothing changed
    /// WEIR_ERR_CONTEXT_FULL  more tokens than the context has room for; nothing changed; the message says how many
    ///                        would fit
    /// WEIR_ERR_BUDGET        more tokens than the policy can hold; nothing changed; the message says how many
    ///                        would fit. With WEIR_SPILL_STRICT also: the spill store is full
    /// WEIR_ERR_IO            with WEIR_SPILL_STRICT: the spill file failed. Or it failed while tokens were taken
    ///                        back, and a page that had to come back is lost: the conversation before the prompt
    ///                        ends at an earlier page, as n_tokens of the stats tells, or lacks a page as after a
    ///                        lossy rewind; there are no logits
    /// WEIR_ERR_FORMAT        with WEIR_SPILL_STRICT: a spilled page is damaged. After these three tokens are taken
    ///                        back as after a cancel; other pages may be in the pool than before
    /// WEIR_ERR_BUSY          another thread is inside the session; nothing changed
    /// WEIR_ERR_CANCELLED     weir_session_cancel, or progress refused or threw. n_tokens of the stats is as
    ///                        before, and so are the logits, unless a long prompt made the policy drop prompt
    ///                        pages, or pages left the window of a sliding-window layer or cannot be read: then
    ///                        whole chunks stay, n_tokens says how many tokens, and there are no logits before the
    ///                        next prefill or step. Pages of answers that were evicted to make
    ///                        room stay gone and count in pages_evicted. What h2o and tova observed of the
    ///                        cancelled tokens stays in their scores
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: the caller owns `tokens`. Since 1.0.
    fn weir_session_prefill(
        session: *mut weir_session,
        tokens: *const weir_token,
        n_tokens: u64,
        progress: weir_progress_fn,
        progress_user: *mut c_void
    ) -> weir_status;

    /// Go back to the first `n_tokens` of the conversation, as if the tokens after them had never come.
    ///
    /// The next prompt or step continues there. Where no page has been evicted, and under arkvale also where evicted
    /// pages can come back, dense, quest and arkvale with attend=top and `recall_pages`=0 then compute the bits of a
    /// session that never went further. With a `kv_format` but [`WEIR_KV_BF16`], tokens of the last page may be what
    /// they were rounded to (docs/algorithms.md, "Formats of pages"). Other policies keep what they observed: scores
    /// stay, and no stamp is newer than the new end.
    ///
    /// There are no logits until the next prefill or step, also where `n_tokens` is the length already. The repetition
    /// penalty looks at the tokens that are left, the sampler's random state goes on, and the text of the next token
    /// begins anew. Pins of pages that stay, counters, a pending cancel and the list of evicted pages are as before.
    ///
    /// Layers with a sliding window need the pages of the window before `n_tokens`. As long as the window has not moved
    /// past them, they are there. With recall they are kept outside of the pool, too, and come back; a full store drops
    /// them before any other page.
    ///
    /// Recurrent layers cannot forget single tokens: they go back to the last snapshot (`snapshot_tokens` of the
    /// options) at or before `n_tokens`, and the tokens from there on are read again as a prompt, which takes its time.
    /// There is a snapshot where the last prompt began and where it ended, and at multiples of `snapshot_tokens` as far
    /// as they have room. A cancel that is pending, or comes meanwhile, ends that reading at the snapshot. The bits are
    /// those of a session that read the same tokens in the same pieces from the snapshot on; pages of an answer count
    /// as a prompt's then.
    ///
    /// With [`WEIR_REWIND_LOSSY`] lost pages are missing and steps do not attend them, as after an eviction. If the
    /// page with the last token is lost in any stream, its tokens, at most 15, are read again as decode steps over the
    /// pages that are left. Layers with a sliding window then see nothing of what left it: go back further, by the
    /// window's length, and prefill these tokens again.
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    /// - `n_tokens`: tokens that stay, at most `n_tokens` of the stats
    /// - `flags`: `WEIR_REWIND_*`
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL, more tokens than the conversation has, or an unknown flag; nothing changed
    /// WEIR_ERR_NOT_FOUND    pages that the remaining tokens need are lost, and WEIR_REWIND_LOSSY is not set; the
    ///                       message names the first. Or the session does not hold all tokens
    ///                       (weir_session_tokens), and not those before n_tokens. Nothing changed
    /// WEIR_ERR_IO           the spill file failed in the middle: the conversation ends at an earlier page, as
    ///                       n_tokens of the stats tells, or lacks a page as with WEIR_REWIND_LOSSY
    /// WEIR_ERR_CANCELLED    with WEIR_REWIND_LOSSY: the trace callback refused a step that reads tokens again; or,
    ///                       with recurrent layers, the reading was cancelled; n_tokens of the stats tells how many
    ///                       are there
    /// WEIR_ERR_BUDGET       with recurrent layers: the tokens to be read again are a longer prompt than the policy
    ///                       or pinned pages leave room for; n_tokens of the stats tells how many are there
    /// WEIR_ERR_BUSY         another thread is inside the session; nothing changed
    /// WEIR_ERR_DEVICE_LOST  the device failed; destroy the session
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: nothing changes. Since 1.1.
    fn weir_session_rewind(session: *mut weir_session, n_tokens: u32, flags: u32) -> weir_status;

    /// Make the conversation exactly these tokens: keep the longest common beginning, go back to it, read the rest.
    ///
    /// A new turn, an edited message, a dropped thought, another answer to the same question and a server that has
    /// another conversation with the same system message are all this call. Afterwards there are logits. Where nothing
    /// has to be read but the session goes back, the last token is stepped again for them.
    ///
    /// Text is compared where tokens differ: an answer that was drawn keeps its tokens although the tokenizer would cut
    /// its text otherwise, so the conversation may have other tokens than `tokens`, with the same text. Control tokens
    /// and user-defined ones, which mark turns in some models, equal only themselves.
    ///
    /// Going back is as by [`weir_session_rewind`], what is read as by [`weir_session_prefill`]. With recurrent layers
    /// the snapshot of a prompt's end is where its last page begins, so that another answer to it reads at most 16
    /// tokens again (more, if the policy looks at a prompt's last ones): `n_read` of the report counts them. Allocates
    /// nothing. Of a conversation whose middle is not recorded any more ([`weir_session_tokens`]), the middle counts as
    /// the same where no step can attend it and the tokens before and after it are; otherwise, and with
    /// [`WEIR_PROMPT_EXACT`], only the beginning stays. A token that is stepped again is a step for the policy, not
    /// prompt; no cancel stops that.
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    /// - `tokens`: in, \[`n_tokens`\] ids in \[0, `vocab_size`), the whole conversation; not a view of
    ///   [`weir_session_tokens`]
    /// - `n_tokens`: at least 1
    /// - `options`: in, NULL for all defaults
    /// - `report`: in/out, `struct_size` set by the caller; may be NULL. Written where the status is [`WEIR_OK`]
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG   NULL, no tokens, an id out of range, bad struct_size or flags; nothing changed
    /// WEIR_ERR_CONTEXT_FULL  the conversation and reserve_tokens are more than the context; nothing changed
    /// WEIR_ERR_NOT_FOUND     a session with more than 1,048,576 context_tokens holds too few of its tokens to go
    ///                        back there; nothing changed
    /// WEIR_ERR_BUSY          another thread is inside the session; nothing changed
    /// WEIR_ERR_BUDGET, WEIR_ERR_IO, WEIR_ERR_FORMAT, WEIR_ERR_CANCELLED, WEIR_ERR_DEVICE_LOST
    ///                        as of weir_session_rewind and weir_session_prefill. The session may have gone back
    ///                        already, or with WEIR_PROMPT_EXACT have forgotten all, as n_tokens of the stats
    ///                        tells, and may have no logits: the same call with other options or tokens goes on
    ///                        from there
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: the caller owns `tokens` and `report`. Since 1.1.
    fn weir_session_prompt_tokens(
        session: *mut weir_session,
        tokens: *const weir_token,
        n_tokens: u64,
        options: *const weir_prompt_options,
        report: *mut weir_prompt_report
    ) -> weir_status;

    /// Make the session hold exactly these messages: render all with the model's chat template, keep the longest common
    /// beginning of what the session holds, go back to it, and read the rest.
    ///
    /// The next turn, an edited message, another answer, going on after a restore and a server that gets the whole
    /// conversation with every request are all this call; the same messages again are no work. It is
    /// [`weir_chat_tokenize`], by whose rules no text of a message becomes a control token, and
    /// [`weir_session_prompt_tokens`], which says what stays and what is read. An answer of this session is recognised
    /// by its text and keeps the tokens that were drawn.
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    /// - `messages`: in, \[`n_messages`\], chat-\>`message_bytes` apart; 64 bytes, which is the [`weir_chat_message`]
    ///   of 1.1, when chat is NULL
    /// - `n_messages`: 1 .. 65535
    /// - `options`: in, NULL for all defaults
    /// - `spans`: out, \[`n_messages`\] where each message's text is; {0, 0} for messages that were dropped. NULL: not
    ///   wanted. Written where the status is [`WEIR_OK`]
    /// - `report`: in/out, `struct_size` set by the caller; may be NULL. Written where the status is [`WEIR_OK`]
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG, WEIR_ERR_UNSUPPORTED, WEIR_ERR_NOT_FOUND, WEIR_ERR_FORMAT
    ///                        as of weir_chat_tokenize; nothing changed. Also for WEIR_CHAT_CONTINUE, which this
    ///                        call replaces
    /// WEIR_ERR_CONTEXT_FULL  the conversation, without what may be dropped, and reserve_tokens are more than the
    ///                        context; nothing changed
    /// WEIR_ERR_OUT_OF_MEMORY an allocation was refused; nothing changed
    /// WEIR_ERR_STATE         the model was opened with WEIR_MODEL_DESCRIBE_ONLY
    /// WEIR_ERR_BUSY          another thread is inside the session; nothing changed
    /// WEIR_ERR_BUDGET, WEIR_ERR_IO, WEIR_ERR_CANCELLED, WEIR_ERR_DEVICE_LOST
    ///                        as of weir_session_prompt_tokens, after which the same call goes on
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: the caller owns all arguments. Since 1.1.
    fn weir_session_prompt(
        session: *mut weir_session,
        messages: *const weir_chat_message,
        n_messages: u64,
        options: *const weir_prompt_options,
        spans: *mut weir_span,
        report: *mut weir_prompt_report
    ) -> weir_status;

    /// Append one token as a decode step and compute the logits after it. Allocates nothing.
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    /// - `token`: in, id in \[0, `vocab_size`)
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG   NULL or an id out of range; nothing changed
    /// WEIR_ERR_CONTEXT_FULL  the context is full; nothing changed
    /// WEIR_ERR_BUDGET        with WEIR_SPILL_STRICT: the token fills pages for which the spill store has no room;
    ///                        nothing changed
    /// WEIR_ERR_IO            with WEIR_SPILL_STRICT: the spill file failed
    /// WEIR_ERR_FORMAT        with WEIR_SPILL_STRICT: a spilled page is damaged. After these two nothing is
    ///                        appended and the logits stay; other pages may be in the pool than before
    /// WEIR_ERR_BUSY          another thread is inside the session; nothing changed
    /// WEIR_ERR_CANCELLED     weir_session_cancel before the call; nothing changed. A token that was shown already
    ///                        can be stepped again: the cancel has been used up. But the token that
    ///                        weir_session_sample just drew is appended all the same, and the cancel ends the next
    ///                        weir_session_sample or other call. Or a trace callback: nothing appended, the logits
    ///                        stay (on a device they go). Pages that made room stay gone, count in pages_evicted,
    ///                        and what the policy observed stays in its scores
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: nothing changes. Since 1.0.
    fn weir_session_step(session: *mut weir_session, token: weir_token) -> weir_status;

    /// Append one token to each of several conversations of one model as one decode step, and compute the logits after
    /// each. Allocates nothing through the hooks.
    ///
    /// Most of a step's time goes into reading the model's weights. Here they are read once for each group of sessions
    /// (below). Each session attends its own pages under its own policy and budget, at its own depth. All sessions
    /// append their token or none does. Afterwards each is as after [`weir_session_step`]: logits, counters, text
    /// state. `n_decode` grows by 1, and `decode_ns` by the time of the whole call, all groups.
    ///
    /// Sessions go through the layers in groups, in the order of the list. On the CPU a group has at most 256 sessions,
    /// and at most `batch_tokens` of its first session, whose prefill buffers the group uses. In groups of up to 8
    /// sessions the logits are exactly those of [`weir_session_step`]. In larger groups matrix multiplications sum in
    /// another order: after one step logits differ by 1e-4 to 1e-3 of their size, as they do between prefill and steps.
    ///
    /// With attention on the host they go through the layers as on the CPU, in groups of at most 8, each matrix for all
    /// of a group. On a GPU a group has at most 8 sessions. With CUDA a matrix is read more than once if it is so wide
    /// that the sessions' inputs do not fit into an SM's shared memory together. With Vulkan weights of types without
    /// integer GEMVs (docs/vulkan.md) are read once for each session, and the sessions of a group of which one recalls
    /// pages step one after the other. A group's step is recorded, with CUDA as a graph: before any group steps, when
    /// these sessions were not a group in this order before, or not lately, and when one of them begins to select
    /// pages. The driver allocates memory for the recording, which neither passes through the hooks nor is counted.
    ///
    /// # Parameters
    ///
    /// - `sessions`: in, \[`n_sessions`\] different sessions of one model, all on one device
    /// - `tokens`: in, \[`n_sessions`\] ids in \[0, `vocab_size`): tokens\[i\] goes to sessions\[i\]
    /// - `n_sessions`: 1..4096
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG   NULL, also in the list; n_sessions or an id out of range; a session twice, two models
    ///                        or two devices, or only some with attention on the host: the message names the
    ///                        entries of the list; nothing changed
    /// WEIR_ERR_CONTEXT_FULL  the context of a session is full, the message names it; nothing changed
    /// WEIR_ERR_BUDGET, WEIR_ERR_IO, WEIR_ERR_FORMAT
    ///                        as of weir_session_step for any of the sessions; nothing appended anywhere, all
    ///                        logits stay
    /// WEIR_ERR_BUSY          another thread is inside a session, the message names it; nothing changed. Never
    ///                        waits: of two threads whose lists overlap, one or both get this
    /// WEIR_ERR_CANCELLED     weir_session_cancel for any of the sessions, before the call, on the CPU also
    ///                        meanwhile: the message names the first, and cancels of others are still pending. As
    ///                        in weir_session_step, not for sessions whose token weir_session_sample drew. Or a
    ///                        trace callback. Nothing appended anywhere, all logits stay. Pages that made room stay
    ///                        gone, and what h2o and tova observed stays in their scores
    /// WEIR_ERR_OUT_OF_MEMORY on a GPU: the driver has no memory to record a step, the message names the sessions;
    ///                        nothing changed
    /// WEIR_ERR_INTERNAL      on a GPU: a step could not be recorded, the message names the sessions; nothing
    ///                        changed
    /// WEIR_ERR_DEVICE_LOST   the device failed; the message names the sessions whose step it was running. Some
    ///                        sessions of the list may have appended their token, as their counters show. Destroy
    ///                        all of them
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time for each session; calls with different sessions take turns. Ownership: the caller
    /// owns `sessions` and `tokens`. Since 1.0.
    fn weir_step_many(sessions: *const *mut weir_session, tokens: *const weir_token, n_sessions: u32) -> weir_status;

    /// The logits after the last token.
    ///
    /// # Parameters
    ///
    /// - `session`: in
    /// - `logits`: out, view of \[`vocab_size`\] f32, before softmax
    /// - `n_logits`: out, `vocab_size`; may be NULL
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL
    /// WEIR_ERR_STATE        nothing was prefilled yet, or a prefill failed and the logits of the last token are
    ///                       gone, or weir_session_rewind was called. To have them again, rewind by one token more
    ///                       and step that token
    /// WEIR_ERR_BUSY         another thread is inside the session
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: the view belongs to the session and is valid until its next prefill,
    /// prompt, step, generate, next, rewind, reset, restore or destroy. Since 1.0.
    fn weir_session_logits(session: *mut weir_session, logits: *mut *const f32, n_logits: *mut u32) -> weir_status;

    /// The tokens of the conversation, in order: what was prefilled, and what was appended by steps.
    ///
    /// Pages may have left and tokens stay. A prompt or step that was taken back is not among them.
    ///
    /// A session whose `context_tokens` are above 1,048,576, and of whose context the pool holds only a part, keeps the
    /// latest ones: at least as many as the pool holds tokens, and 4,112 more. The first token of the view is then at
    /// position `n_tokens` of the stats minus `n_tokens`, which is above 0 once the conversation is longer than twice
    /// that. A rewind cannot go back to before the view, except to as many first tokens as the pool holds.
    ///
    /// # Parameters
    ///
    /// - `session`: in
    /// - `tokens`: out, view of \[`n_tokens`\] ids
    /// - `n_tokens`: out, `n_tokens` of the stats, or fewer as said above
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL
    /// WEIR_ERR_BUSY         another thread is inside the session
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: the view belongs to the session and is valid until its next prefill,
    /// prompt, step, generate, next, rewind, reset, restore or destroy; a view of all tokens may be the argument of a
    /// prefill that follows a rewind (a reset wipes them). Since 1.1.
    fn weir_session_tokens(
        session: *mut weir_session,
        tokens: *mut *const weir_token,
        n_tokens: *mut u32
    ) -> weir_status;

    /// Set how tokens are drawn, and restart the random state from the seed. The recent tokens that the penalties look
    /// at are kept.
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    /// - `options`: in, NULL for greedy
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL session, bad struct_size, a value or an id out of its range, or no number;
    ///                       nothing changed
    /// WEIR_ERR_BUSY         another thread is inside the session; nothing changed
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: options are copied, bias too. Since 1.0.
    fn weir_session_set_sampling(session: *mut weir_session, options: *const weir_sampling_options) -> weir_status;

    /// Draw the next token from the logits; it is not appended. Allocates nothing.
    ///
    /// In a loop that draws a token, shows it and steps it, a [`weir_session_cancel`] ends this call, never the step,
    /// so that whatever was shown is in the conversation.
    ///
    /// # Parameters
    ///
    /// - `session`: in/out, the random state moves on
    /// - `token`: out
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL
    /// WEIR_ERR_STATE        no logits yet, or none of the last token; see weir_session_logits. Or bias forbids all
    ///                       tokens
    /// WEIR_ERR_CANCELLED    weir_session_cancel, where the last token was drawn by this function and stepped;
    ///                       nothing drawn
    /// WEIR_ERR_FORMAT       none of the logits is a number: the model's weights are broken
    /// WEIR_ERR_BUSY         another thread is inside the session
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: nothing changes. Since 1.0.
    fn weir_session_sample(session: *mut weir_session, token: *mut weir_token) -> weir_status;

    /// Generate an answer: draw a token, show it to the callback and append it, until the answer ends. Allocates
    /// nothing.
    ///
    /// The token that ends an answer is neither shown nor appended; [`WEIR_CHAT_CONTINUE`] renders it with the next
    /// turn.
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    /// - `options`: in, NULL for all defaults
    /// - `result`: in/out, `struct_size` set by the caller; may be NULL. Written whatever the status, once the
    ///   arguments are valid.
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK                stopped by eos, length, a stop string or a full context
    /// WEIR_ERR_INVALID_ARG   NULL session, bad struct_size or flags, n_top above 64, or stop strings that are too
    ///                        many, empty, too long or not UTF-8; nothing changed
    /// WEIR_ERR_STATE         nothing was prefilled yet; nothing changed. Or bias, perhaps with min_tokens, forbids
    ///                        all tokens; the tokens shown so far stay
    /// WEIR_ERR_BUSY          another thread is inside the session; nothing changed
    /// WEIR_ERR_CANCELLED     weir_session_cancel, or the callback refused or threw: the tokens shown so far stay.
    ///                        Or a trace callback: all of them but the last
    /// WEIR_ERR_FORMAT        none of the logits is a number; the tokens shown so far stay
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: the caller owns `result`. Since 1.0.
    fn weir_session_generate(
        session: *mut weir_session,
        options: *const weir_generate_options,
        result: *mut weir_generate_result
    ) -> weir_status;

    /// Begin an answer that is then pulled, one event a call, by [`weir_session_next`]. An answer that was begun before
    /// ends.
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    /// - `options`: in, NULL for all defaults; `on_token` must be NULL
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  as of weir_session_generate, or on_token is set; nothing changed
    /// WEIR_ERR_STATE        there are no logits, as weir_session_logits says; nothing changed
    /// WEIR_ERR_BUSY         another thread is inside the session; nothing changed
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: options and their texts are copied. Since 1.1.
    fn weir_session_begin(session: *mut weir_session, options: *const weir_generate_options) -> weir_status;

    /// The next event of the answer that [`weir_session_begin`] began. It computes at most one step and allocates
    /// nothing.
    ///
    /// A token whose event was given is in the conversation, whatever comes next, so that an answer can be left at any
    /// event: by a prefill, a rewind, a save, or by not calling again; text that is held back for a stop string or a
    /// tag then is not given. A [`weir_session_cancel`] is no failure but an end with [`WEIR_STOP_CANCELLED`], and
    /// loses no token. Text that was held back comes before the end.
    ///
    /// The text of an event is of one segment. Where that of a token is of two, the rest follows in events of their
    /// own. An answer that goes on where the one before ended, with no other token between, is still in its segment.
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    /// - `event`: in/out, `struct_size` set by the caller
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL or a bad struct_size; nothing changed
    /// WEIR_ERR_STATE        no answer was begun, its end was given, or another call has changed the conversation
    ///                       since, or a step failed after which there are no logits, or bias, perhaps with
    ///                       min_tokens, forbids all tokens; nothing changed
    /// WEIR_ERR_BUSY         another thread is inside the session; nothing changed
    /// WEIR_ERR_CANCELLED    a trace callback refused the step; no token was appended. This and the following do
    ///                       not end the answer: the next call draws again
    /// WEIR_ERR_FORMAT       none of the logits is a number; no token was appended
    /// WEIR_ERR_BUDGET, WEIR_ERR_IO, WEIR_ERR_DEVICE_LOST
    ///                       as of weir_session_step; no token was appended
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: the caller owns `event`; its text is the session's. Since 1.1.
    fn weir_session_next(session: *mut weir_session, event: *mut weir_event) -> weir_status;

    /// The next event of each session whose answer runs, the steps of all together as by [`weir_step_many`]. Allocates
    /// nothing through the hooks.
    ///
    /// The events are those of [`weir_session_next`], with its promises. A session whose answer does not run, as the
    /// end of it was given, gets [`WEIR_EVENT_END`] with [`WEIR_STOP_NONE`]. In groups of more than 8 sessions logits
    /// differ from those of single steps, as [`weir_step_many`] says, and so may the tokens.
    ///
    /// # Parameters
    ///
    /// - `sessions`: in, \[`n_sessions`\] different sessions of one model, all on one device
    /// - `events`: in/out, \[`n_sessions`\] events\[i\] of sessions\[i\]; `struct_size` is set by the caller in each
    /// - `n_sessions`: 1..4096
    /// - `n_running`: out, answers of which more events come; may be NULL
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  as of weir_step_many, or a bad struct_size; nothing changed
    /// WEIR_ERR_STATE        as of weir_session_next for one of the sessions, the message names it; nothing changed
    /// WEIR_ERR_BUSY, WEIR_ERR_CANCELLED, WEIR_ERR_FORMAT, WEIR_ERR_BUDGET, WEIR_ERR_IO, WEIR_ERR_OUT_OF_MEMORY,
    /// WEIR_ERR_INTERNAL, WEIR_ERR_DEVICE_LOST
    ///                       as of weir_step_many and weir_session_sample for one of the sessions: no token was
    ///                       appended anywhere but for a lost device, no event is given and none is lost; the next
    ///                       call draws again
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time for each session; calls with different sessions take turns. Ownership: the caller
    /// owns the lists; the text of an event is its session's. Since 1.1.
    fn weir_next_many(
        sessions: *const *mut weir_session,
        events: *mut weir_event,
        n_sessions: u32,
        n_running: *mut u32
    ) -> weir_status;

    /// End the thought that is open: the next token of the answer begins its end, as
    /// `weir_generate_options.thinking_budget` does. Nothing happens where no thought is open when that token comes, or
    /// no answer has begun.
    ///
    /// # Parameters
    ///
    /// - `session`: in, NULL is allowed
    ///
    /// # Returns
    ///
    /// ```text
    /// nothing
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread, also in a signal handler. Ownership: nothing changes. Since 1.1.
    fn weir_session_finish_thinking(session: *mut weir_session);

    /// The latest answer as a message to keep: role "assistant", content, thought and `tool_calls_json`.
    ///
    /// It is the answer that [`weir_session_begin`] or [`weir_session_generate`] began, as far as it is. Without
    /// special tokens' text: what its events show, cut at its tags, without white space around thoughts and calls.
    /// Later turns may follow it in the session; it is lost when the session goes back, is reset or restored, or once
    /// its tokens are not held any more ([`weir_session_tokens`]).
    ///
    /// Calls become \[{"id", "name", "arguments"}\], the arguments as an object. Where the model gives no id, one of 9
    /// letters and digits is made. What is written as tags alone has no type of its own: an object, a list, a number,
    /// true, false and null are taken for what they look like, anything else for text. A call that cannot be read, is
    /// longer than 1 MiB or is one of more than 256 stays in the content as it was written, with its tags.
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    /// - `message`: out, its first `message_bytes` bytes are written
    /// - `message_bytes`: sizeof([`weir_chat_message`]) in the caller's build, at least 24
    /// - `is_malformed`: out, 1 when there was a call that could not be read, else 0; may be NULL
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG   NULL or a bad message_bytes; nothing written
    /// WEIR_ERR_STATE         there was no answer, or it is lost; nothing written
    /// WEIR_ERR_BUSY          another thread is inside the session; nothing written
    /// WEIR_ERR_OUT_OF_MEMORY an allocation was refused, of memory of the runtime; nothing written
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: the texts are the session's and valid until its next call. Since 1.1.
    fn weir_session_answer(
        session: *mut weir_session,
        message: *mut weir_chat_message,
        message_bytes: u32,
        is_malformed: *mut u32
    ) -> weir_status;

    /// Pin positions: the pages that hold any of \[first, end) never leave, and every step attends them.
    ///
    /// Pages have 16 tokens and are pinned whole. Where some streams have dropped a page already, it stays pinned in
    /// the others.
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    /// - `first`: first position
    /// - `end`: one past the last position
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL, an empty range, or positions that the conversation does not have; nothing
    ///                       changed
    /// WEIR_ERR_NOT_FOUND    every such page has left
    /// WEIR_ERR_BUDGET       too few pages that may be evicted would be left; nothing changed
    /// WEIR_ERR_UNSUPPORTED  sink with positions=incache cannot keep pages between sinks and window; nothing
    ///                       changed
    /// WEIR_ERR_BUSY         another thread is inside the session; nothing changed
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: nothing changes. Since 1.0.
    fn weir_session_pin(session: *mut weir_session, first: u32, end: u32) -> weir_status;

    /// Unpin all pages that hold any of \[first, end). Takes back the pins of [`weir_session_pin`] and also those that
    /// policies give to prompts, so that old turns may leave.
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    /// - `first`: first position
    /// - `end`: one past the last position
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL, an empty range, or positions that the conversation does not have; nothing
    ///                       changed
    /// WEIR_ERR_NOT_FOUND    every such page has left
    /// WEIR_ERR_BUSY         another thread is inside the session; nothing changed
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: nothing changes. Since 1.0.
    fn weir_session_unpin(session: *mut weir_session, first: u32, end: u32) -> weir_status;

    /// Stop the call that runs in this session, or else the next one: a prefill, prompt, step, generate or next, or a
    /// [`weir_step_many`] that has the session in its list. In a loop of [`weir_session_sample`] and steps of what it
    /// drew it is the next sample.
    ///
    /// A prefill ends before its next chunk (`batch_tokens`), on the CPU and with attention on the host also between
    /// two layers of one; a GPU alone mostly finishes the chunk that it was given. A generate ends before its next
    /// token.
    ///
    /// The cancel stays until a call has ended with [`WEIR_ERR_CANCELLED`] because of it, or [`weir_session_next`] has
    /// given the end of an answer for it, or [`weir_session_clear_cancel`] or [`weir_session_reset`] takes it back. A
    /// call that fails for another reason, is stopped by its callback, or finishes because the cancel came too late,
    /// leaves it pending.
    ///
    /// For a Stop button that never hits the next turn: the thread that takes the clicks calls
    /// [`weir_session_clear_cancel`] when a new turn begins (the calls of the turn before have returned), and then
    /// hands the turn to the thread that computes. So a click that came after the end of the old turn has no effect. A
    /// click during the new turn counts, whichever of its calls is running, and also between two of them.
    ///
    /// # Parameters
    ///
    /// - `session`: in, NULL is allowed
    ///
    /// # Returns
    ///
    /// ```text
    /// nothing
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread, also in a signal handler. Ownership: nothing changes. Since 1.0.
    fn weir_session_cancel(session: *mut weir_session);

    /// Take a pending [`weir_session_cancel`] back; nothing happens when there is none.
    ///
    /// # Parameters
    ///
    /// - `session`: in, NULL is allowed
    ///
    /// # Returns
    ///
    /// ```text
    /// nothing
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread, also in a signal handler. Ownership: nothing changes. Since 1.0.
    fn weir_session_clear_cancel(session: *mut weir_session);

    /// Let the session's calls look at `cancel` as well as at [`weir_session_cancel`]. [`weir_session_reset`] and
    /// [`weir_session_restore`] do not clear it, and a fork does not look at it.
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    /// - `cancel`: in, instead of the one before; NULL: none
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL session
    /// WEIR_ERR_BUSY         another thread is inside the session; nothing changed
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: the session has a reference of its own to `cancel` until it gets
    /// another or is destroyed. Since 1.1.
    fn weir_session_set_cancel(session: *mut weir_session, cancel: *mut weir_cancel) -> weir_status;

    /// Where the conversation's pages are, for a picture of it: page i holds the positions from 16 \* i on.
    ///
    /// Allocates nothing and takes the time to read the page tables, so that it can be called once a frame. On a GPU
    /// the tables are copied to the host if steps have changed them.
    ///
    /// # Parameters
    ///
    /// - `session`: in
    /// - `pages`: out, \[capacity\]; may be NULL when `capacity` is 0
    /// - `capacity`: entries at `pages`
    /// - `n_pages`: out, number of pages, also when they did not fit
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG       NULL; nothing written
    /// WEIR_ERR_BUFFER_TOO_SMALL  n_pages is set, pages untouched
    /// WEIR_ERR_BUSY              another thread is inside the session; nothing written
    /// WEIR_ERR_DEVICE_LOST       the device failed; destroy the session
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: the caller owns the buffer. Since 1.1.
    fn weir_session_pages(
        session: *mut weir_session,
        pages: *mut weir_page_state,
        capacity: u32,
        n_pages: *mut u32
    ) -> weir_status;

    /// Counters of the session.
    ///
    /// # Parameters
    ///
    /// - `session`: in
    /// - `stats`: in/out, `struct_size` set by the caller
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL or a bad struct_size; nothing written
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread; values may be of different moments while another thread decodes. Ownership: the caller owns
    /// `stats`. Since 1.0.
    fn weir_session_get_stats(session: *const weir_session, stats: *mut weir_session_stats) -> weir_status;

    /// Memory of the session.
    ///
    /// # Parameters
    ///
    /// - `session`: in
    /// - `info`: in/out, `struct_size` set by the caller
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL or a bad struct_size; nothing written
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread; values may be of different moments while another thread decodes. Ownership: the caller owns
    /// `info`. Since 1.0.
    fn weir_session_memory(session: *const weir_session, info: *mut weir_memory_info) -> weir_status;

    /// Let a function decide which tokens may be drawn by [`weir_session_generate`], [`weir_session_next`] and
    /// [`weir_session_sample`].
    ///
    /// It is asked after the session's constraint, if there is one. What is drawn is what the sampling options draw
    /// from the tokens that are left. Where none is left, an answer ends with [`WEIR_STOP_CONSTRAINT`] and nothing is
    /// appended; [`weir_session_sample`] fails with [`WEIR_ERR_STATE`]. A session on a device sends the mask there when
    /// it has changed, and gets the best of the tokens that are left, as it gets the best of all without a mask. A fork
    /// has the function, too; [`weir_session_reset`] keeps it; a saved session does not hold it. Takes memory beside
    /// the plan's: a bit for each token.
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    /// - `fn`: in, NULL: none
    /// - `user`: in, handed to `fn`
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG    NULL session
    /// WEIR_ERR_BUSY           another thread is inside the session; nothing changed
    /// WEIR_ERR_OUT_OF_MEMORY  nothing changed
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time; `fn` is called by the thread that is inside the session. Ownership: `user` must
    /// live as long as the session may call `fn`. Since 1.1.
    fn weir_session_set_token_mask(session: *mut weir_session, r#fn: weir_mask_fn, user: *mut c_void) -> weir_status;

    /// Compile a constraint.
    ///
    /// A schema may use type (also a list), properties, patternProperties (of at most 4 patterns), required,
    /// additionalProperties, minProperties, maxProperties, items, prefixItems, minItems, maxItems, enum, const, anyOf,
    /// allOf, oneOf of alternatives that cannot overlap, $defs and $ref to places in the same schema (with recursion),
    /// minLength, maxLength, pattern (without references back and looking around), format (date, time, date-time,
    /// duration, uuid, email, hostname, uri, ipv4, ipv6), minimum, maximum, exclusiveMinimum, exclusiveMaximum,
    /// multipleOf (of at most 9 digits, and some thousand states: 0.01 and 86400, not 99991). Notes, such as title or
    /// default, change nothing. Any other keyword is an error: what is not checked is not ignored. The answer is one
    /// value without white space around it, with at most 64 bytes of white space before and behind each of its marks;
    /// properties come in the order of the schema, then others that it allows. Integers are written without fraction
    /// and exponent, numbers with bounds or multipleOf without exponent; strings with pattern, format, enum or const,
    /// and names of properties beside patternProperties, in their usual spelling; names that the schema has only
    /// plainly, however it spells them itself.
    ///
    /// A grammar has a rule `root`, names of letters, digits and `-`, `::=`, texts, classes of characters, `.`, groups,
    /// `|`, `*`, `+`, `?`, `{m,n}` and comments behind `#`. A rule that begins with itself is an error.
    ///
    /// The first constraint of a model makes a list of the texts of its tokens, which the model keeps.
    ///
    /// # Parameters
    ///
    /// - `model`: in
    /// - `kind`: enum [`weir_constraint_kind`]
    /// - `text`: in, UTF-8, \[`text_bytes`\]; NULL for [`WEIR_CONSTRAINT_JSON`]
    /// - `text_bytes`: its length
    /// - `out`: out, the handle; NULL after a failure
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG    NULL, an unknown kind, a text that breaks its format or contradicts itself; the
    ///                         message has the line or the path
    /// WEIR_ERR_UNSUPPORTED    a keyword or construct that is not supported, with its path or line; a constraint
    ///                         that is too large
    /// WEIR_ERR_OUT_OF_MEMORY  nothing stays allocated
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: the caller; [`weir_constraint_destroy`]. The constraint keeps `model` alive..
    /// Since 1.1.
    fn weir_constraint_create(
        model: *mut weir_model,
        kind: i32,
        text: *const c_char,
        text_bytes: u64,
        out: *mut *mut weir_constraint
    ) -> weir_status;

    /// Give a constraint back. Sessions that have it keep it alive.
    ///
    /// # Parameters
    ///
    /// - `constraint`: in, NULL is allowed
    ///
    /// # Returns
    ///
    /// ```text
    /// nothing
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: any thread. Ownership: ends the caller's ownership. Since 1.1.
    fn weir_constraint_destroy(constraint: *mut weir_constraint);

    /// Let answers of a session be texts of a constraint, from their first token on. Each answer begins it anew:
    /// [`weir_session_begin`] and [`weir_session_generate`]; for [`weir_session_sample`] a prefill, a prompt or this
    /// call does.
    ///
    /// An answer ends when its text is complete: tokens that end a generation can be drawn exactly then, and where
    /// nothing else may follow, the answer ends with [`WEIR_STOP_CONSTRAINT`], without another draw.
    /// [`weir_session_sample`] draws a token that ends a generation there. Control tokens are never drawn, but that a
    /// thought stays free: where the model has tags of thoughts (enum [`weir_segment`]), the constraint rules what is
    /// said, anew behind a thought, and an answer may begin with the token that opens one; it does not end in a
    /// thought. What an answer has begun to say is ruled to its end, also where it looks like a call of a tool in the
    /// model's own format. A text that needs more states than there is room for, as one that is nested some thousand
    /// levels deep, ends the call with [`WEIR_ERR_UNSUPPORTED`].
    ///
    /// A fork has the constraint, too; [`weir_session_reset`] keeps it; a saved session does not hold it. A session
    /// takes some 2.6 MB for it, beside the plan's bytes. Otherwise as [`weir_session_set_token_mask`].
    ///
    /// # Parameters
    ///
    /// - `session`: in/out
    /// - `constraint`: in, of the session's model; NULL: none
    /// - `segments`: which parts of an answer it rules: 0, the answer itself
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG    NULL session, a constraint of another model
    /// WEIR_ERR_UNSUPPORTED    segments is not 0
    /// WEIR_ERR_BUSY           another thread is inside the session; nothing changed
    /// WEIR_ERR_OUT_OF_MEMORY  nothing changed
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: the session keeps the constraint alive. Since 1.1.
    fn weir_session_set_constraint(
        session: *mut weir_session,
        constraint: *mut weir_constraint,
        segments: u32
    ) -> weir_status;

    /// Save the conversation as a stream of bytes: tokens, pages with what the policy knows of them, the last logits,
    /// the sampler's options (all but bias, presence and frequency penalty), recent tokens and random state, and the
    /// beginning of a character that generate has not shown. docs/formats/session.md describes every byte.
    ///
    /// The session does not change, and nothing is allocated. The bytes are about as many as the pool's and the spill
    /// store's pages in use, and do not depend on time and threads. Whoever can read them can read the conversation.
    ///
    /// # Parameters
    ///
    /// - `session`: in
    /// - `write`: takes the bytes, in order
    /// - `user`: passed to `write`
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL
    /// WEIR_ERR_IO           write refused or threw; the message says at which byte
    /// WEIR_ERR_DEVICE_LOST  the device failed
    /// WEIR_ERR_BUSY         another thread is inside the session
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: nothing changes. Since 1.1.
    fn weir_session_save(session: *mut weir_session, write: weir_write_fn, user: *mut c_void) -> weir_status;

    /// Replace the conversation by one that [`weir_session_save`] wrote. It goes on as if it had never stopped, also
    /// with the sampling options that were saved; on the device and with the backend of this session, whose results may
    /// differ in rounding. Bias, presence and frequency penalty are not in the file: they stay what
    /// [`weir_session_set_sampling`] made them in this session.
    ///
    /// Model, policy, its options, context and budget must be those of the saved session; device, threads,
    /// `batch_tokens`, flags and the sizes of the spill store need not. Where that store is smaller, pages are dropped
    /// in the same order as when it is full, and counted; with [`WEIR_SPILL_STRICT`] nothing is restored then. Without
    /// recall there need not be a store: pages that were in the saved session's alone are lost. A conversation that had
    /// lost pages takes no tokens in a strict store ([`WEIR_ERR_IO`]) before a rewind to before them. Counters go on
    /// from where this session's are; pages that the saved session had lost count as dropped. In layers with a sliding
    /// window, [`weir_session_rewind`] cannot go back to before pages that had left the window. A pending cancel is
    /// cleared. Nothing is allocated, and the bytes are not trusted. Of the conversation that is replaced nothing is
    /// left, as after [`weir_session_reset`].
    ///
    /// # Parameters
    ///
    /// - `session`: in/out; after an error other than [`WEIR_ERR_INVALID_ARG`] and [`WEIR_ERR_BUSY`] it is as after
    ///   [`weir_session_reset`]
    /// - `read`: gives the bytes, in order
    /// - `user`: passed to `read`
    ///
    /// # Returns
    ///
    /// ```text
    /// WEIR_OK
    /// WEIR_ERR_INVALID_ARG  NULL; nothing changed
    /// WEIR_ERR_FORMAT       the bytes are no saved session, or are damaged or incomplete
    /// WEIR_ERR_UNSUPPORTED  a newer format, another model, policy, option, context or budget: the message names
    ///                       what differs, with both values
    /// WEIR_ERR_BUDGET       WEIR_SPILL_STRICT, and the spill store has no room for all pages
    /// WEIR_ERR_IO           read refused or threw
    /// WEIR_ERR_DEVICE_LOST  the device failed
    /// WEIR_ERR_BUSY         another thread is inside the session; nothing changed
    /// ```
    ///
    /// # Safety
    ///
    /// Threads: one thread at a time. Ownership: nothing changes. Since 1.1.
    fn weir_session_restore(session: *mut weir_session, read: weir_read_fn, user: *mut c_void) -> weir_status;
}
