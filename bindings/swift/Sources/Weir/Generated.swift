// Written by generate.py from the C headers; do not edit.
// Longer than 600 lines because the headers are.
import CWeir

/// Result of a call: success, or which kind of error.
public struct Status: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public var rawValue: Int32
    public init(rawValue: Int32) { self.rawValue = rawValue }
    public static let ok = Status(rawValue: 0)
    /// An argument is nil, out of range or contradicts another.
    public static let invalidArg = Status(rawValue: -1)
    /// An allocator refused, or the machine has less than one allocation asks for.
    public static let outOfMemory = Status(rawValue: -2)
    /// A file could not be opened, read or mapped.
    public static let io = Status(rawValue: -3)
    /// A file or a text breaks its format.
    public static let format = Status(rawValue: -4)
    /// Well-formed, but this build cannot do it.
    public static let unsupported = Status(rawValue: -5)
    /// No policy, option, key or token of that name.
    public static let notFound = Status(rawValue: -6)
    /// The position limit of the session is reached.
    public static let contextFull = Status(rawValue: -7)
    /// The KV budget is too small for the request; the message says what fits.
    public static let budget = Status(rawValue: -8)
    /// Another thread is inside this session.
    public static let busy = Status(rawValue: -9)
    /// Stopped by `weir_session_cancel` or by a callback.
    public static let cancelled = Status(rawValue: -10)
    /// Not possible in the object's present state (no logits yet, for example).
    public static let state = Status(rawValue: -11)
    /// The caller's buffer is too small; the needed size was stored.
    public static let bufferTooSmall = Status(rawValue: -12)
    /// The device failed; the session is unusable, destroy it.
    public static let deviceLost = Status(rawValue: -13)
    /// A defect of Weir; please report it with the message.
    public static let internalError = Status(rawValue: -14)
    /// The name, or of a value that this version does not know the number.
    public var description: String {
        switch rawValue {
        case 0: "ok"
        case -1: "invalidArg"
        case -2: "outOfMemory"
        case -3: "io"
        case -4: "format"
        case -5: "unsupported"
        case -6: "notFound"
        case -7: "contextFull"
        case -8: "budget"
        case -9: "busy"
        case -10: "cancelled"
        case -11: "state"
        case -12: "bufferTooSmall"
        case -13: "deviceLost"
        case -14: "internalError"
        default: "\(rawValue)"
        }
    }
}

/// Kinds of memory that the allocator hooks are asked for.
public struct MemoryKind: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public var rawValue: Int32
    public init(rawValue: Int32) { self.rawValue = rawValue }
    /// Ordinary memory of the process.
    public static let host = MemoryKind(rawValue: 0)
    /// Memory of an accelerator, which only the device hooks are asked for; the pointer is a device pointer.
    public static let device = MemoryKind(rawValue: 1)
    /// The name, or of a value that this version does not know the number.
    public var description: String {
        switch rawValue {
        case 0: "host"
        case 1: "device"
        default: "\(rawValue)"
        }
    }
}

/// Severity of a log line.
public struct LogLevel: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public var rawValue: Int32
    public init(rawValue: Int32) { self.rawValue = rawValue }
    public static let error = LogLevel(rawValue: 0)
    public static let warning = LogLevel(rawValue: 1)
    public static let info = LogLevel(rawValue: 2)
    public static let debug = LogLevel(rawValue: 3)
    /// The name, or of a value that this version does not know the number.
    public var description: String {
        switch rawValue {
        case 0: "error"
        case 1: "warning"
        case 2: "info"
        case 3: "debug"
        default: "\(rawValue)"
        }
    }
}

/// Devices that a session can run on.
public struct Device: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public var rawValue: Int32
    public init(rawValue: Int32) { self.rawValue = rawValue }
    /// The first of these that can run the session: CUDA's device; of Vulkan's devices the discrete GPU with the most
    /// memory, then an integrated GPU; the CPU. A device is passed over whose memory cannot hold the model, which lacks
    /// what the session needs (its policy and options, device memory from hooks), or if the model's weights are already
    /// on another. If `weir_runtime_options.vulkan_device` names a device, no other one of Vulkan's is looked at. Never
    /// a Vulkan driver that computes on the processor, and a virtual device only if it is named.
    public static let auto = Device(rawValue: 0)
    /// This machine's processor cores.
    public static let cpu = Device(rawValue: 1)
    /// The first NVIDIA GPU that the driver shows.
    public static let cuda = Device(rawValue: 2)
    /// A device with Vulkan 1.3, see `weir_runtime_options.vulkan_device`.
    public static let vulkan = Device(rawValue: 3)
    /// The name, or of a value that this version does not know the number.
    public var description: String {
        switch rawValue {
        case 0: "auto"
        case 1: "cpu"
        case 2: "cuda"
        case 3: "vulkan"
        default: "\(rawValue)"
        }
    }
}

/// Kinds of devices, see `weir_device_info`.
public struct DeviceKind: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public var rawValue: Int32
    public init(rawValue: Int32) { self.rawValue = rawValue }
    /// A GPU with memory of its own.
    public static let discrete = DeviceKind(rawValue: 0)
    /// A GPU that shares the processor's memory.
    public static let integrated = DeviceKind(rawValue: 1)
    /// A GPU of a virtual machine, or what the driver calls by no other kind.
    public static let virtual = DeviceKind(rawValue: 2)
    /// The processor, also one that a Vulkan driver computes on.
    public static let cpu = DeviceKind(rawValue: 3)
    /// The name, or of a value that this version does not know the number.
    public var description: String {
        switch rawValue {
        case 0: "discrete"
        case 1: "integrated"
        case 2: "virtual"
        case 3: "cpu"
        default: "\(rawValue)"
        }
    }
}

/// Bits of `weir_model_options.flags`.
public struct ModelFlags: OptionSet, Sendable {
    public var rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// Load the tokenizer only; files without weights are accepted, sessions and plans are refused (`Status.state`).
    public static let vocabOnly = ModelFlags(rawValue: 1)
    /// Read the whole file at once, so that the first tokens do not wait for the disk.
    public static let prefetch = ModelFlags(rawValue: 2)
    /// Read the file into memory from the allocator hooks instead of mapping it: as many bytes as the file has, in the
    /// runtime's counters. Once the call has returned, the file may change.
    public static let copy = ModelFlags(rawValue: 4)
    /// Read only what the file says about itself, keys and tensors, of any GGUF file, also of one that is no model.
    /// Every call that needs more fails with `Status.state`: sessions, plans and all of weir/text.h. Of a model in
    /// several files, the part at the path, as with `ModelFlags.vocabOnly`. Since 1.1.
    public static let describeOnly = ModelFlags(rawValue: 8)
}

/// Bits of `weir_tokenize` flags.
public struct TokenizeFlags: OptionSet, Sendable {
    public var rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// Text such as "<|im_end|>" becomes the control token of that name. Off: it is plain text. Not for text of others:
    /// see `weir_chat_tokenize`.
    public static let special = TokenizeFlags(rawValue: 1)
    /// Add the begin/end tokens that the model's file asks for.
    public static let bosEos = TokenizeFlags(rawValue: 2)
}

/// Bits of `weir_detokenize` and `weir_detokenizer_create` flags.
public struct DetokenizeFlags: OptionSet, Sendable {
    public var rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// Control tokens appear as their text. Off: they vanish.
    public static let special = DetokenizeFlags(rawValue: 1)
}

/// Bits of `weir_token_info.flags`.
public struct TokenFlags: OptionSet, Sendable {
    public var rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// A control token such as BOS.
    public static let control = TokenFlags(rawValue: 1)
    /// One raw byte (byte fallback).
    public static let byte = TokenFlags(rawValue: 2)
    /// Added by the model's makers, ordinary text.
    public static let userDefined = TokenFlags(rawValue: 4)
    /// Stands for text that the vocabulary lacks.
    public static let unknown = TokenFlags(rawValue: 8)
    /// Ends an answer (EOS, end of turn): the file names it as an end, or it is a control token of a text that ends
    /// turns.
    public static let endOfGeneration = TokenFlags(rawValue: 16)
}

/// Bits of `weir_chat_options.flags` and of `weir_chat_render` flags.
public struct ChatFlags: OptionSet, Sendable {
    public var rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// End with the opening of an assistant turn, so that the model answers.
    public static let addAssistant = ChatFlags(rawValue: 1)
    /// The session already holds a conversation that ends in an answer of the model without its end-of-turn token:
    /// close that turn first, then render `messages` only.
    public static let continueAnswer = ChatFlags(rawValue: 2)
    /// Accepted, without any effect: every template is run itself.
    public static let acceptResembling = ChatFlags(rawValue: 4)
    /// The last message is the beginning of an answer: leave its turn open, so that the model goes on with it. Needs an
    /// "assistant" message at the end that the template writes as it is, but for white space around it. Since 1.1.
    public static let continueLast = ChatFlags(rawValue: 8)
}

/// Bits of `weir_chat_info.can`.
public struct ChatAbilities: OptionSet, Sendable {
    public var rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// System messages.
    public static let system = ChatAbilities(rawValue: 1)
    /// `weir_chat_options.tools_json`.
    public static let tools = ChatAbilities(rawValue: 2)
    /// Messages of the role "tool".
    public static let toolResults = ChatAbilities(rawValue: 4)
    /// The model's thoughts are between tags.
    public static let thoughts = ChatAbilities(rawValue: 8)
    /// A variable of the template switches them off.
    public static let skipThoughts = ChatAbilities(rawValue: 16)
}

/// Bits of `weir_session_options.flags`.
public struct SessionFlags: OptionSet, Sendable {
    public var rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// Keep the attention masses of every step for the experimental `weir_session_trace` (weir/experimental.h); costs
    /// some speed and memory.
    public static let trace = SessionFlags(rawValue: 1)
    /// On a device: keys and values stay in host memory and the processor computes the attention of steps; the device
    /// has the weights and computes everything else, also most attention of prompts, over pages that pass through it.
    /// For contexts whose keys and values the device has no room for. Every policy and option works as on the CPU.
    /// Models with recurrent layers are refused; `Device.auto` takes the CPU for them. lfps does it without this flag,
    /// and psa with recall=on and a budget below the context. On the CPU it changes nothing. Since 1.1.
    public static let hostAttention = SessionFlags(rawValue: 2)
}

/// Bits of `weir_session_options.spill_flags`.
public struct SpillFlags: OptionSet, Sendable {
    public var rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// No page is dropped in silence. A call that would append tokens fails, and appends none, with `Status.budget`
    /// when the pages that they fill have no room; with `Status.io` when a page is lost with the spill file, and with
    /// `Status.format` when one proves to be damaged, and so do all later ones until `weir_session_reset`.
    public static let strict = SpillFlags(rawValue: 1)
    /// All spilled pages are compressed at once.
    public static let noRaw = SpillFlags(rawValue: 2)
    /// On the CPU and with `spillBudgetBytes` 0, the store gets what makes the session take half of the memory that
    /// policy dense would take for the same context. The pages that were wanted the longest ago are dropped for good
    /// when it is full. Where the store would then be smaller than the pool, the pool holds the whole context instead,
    /// and nothing is stored. Attention on the host counts as the CPU; with attention on a device it changes nothing.
    /// Since 1.1.
    public static let half = SpillFlags(rawValue: 4)
}

/// Formats of the keys and values in the KV pages. What they cost in accuracy is measured in docs/results/formats.
/// Formats but `KvFormat.bf16` need heads of a multiple of 32 elements. Vulkan has no attention over them: it needs
/// `SessionFlags.hostAttention`, and `Device.auto` takes another device or the CPU.
public struct KvFormat: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public var rawValue: Int32
    public init(rawValue: Int32) { self.rawValue = rawValue }
    /// 16 bits an element.
    public static let bf16 = KvFormat(rawValue: 0)
    /// 8.5 bits: signed bytes, and a scale for every 32 elements of a token.
    public static let q8 = KvFormat(rawValue: 1)
    /// 6.5 bits: keys as in `KvFormat.q8`; values in 4.5 bits, after a rotation by a Hadamard matrix that is taken back
    /// behind attention.
    public static let k8v4 = KvFormat(rawValue: 2)
    /// 5.25 bits: keys in 4 bits, with the range of every channel over the 16 tokens of a page; values as in
    /// `KvFormat.k8v4`. Attended on the processor only, also beside a device (`SessionFlags.hostAttention`).
    public static let k4v4 = KvFormat(rawValue: 3)
    /// The name, or of a value that this version does not know the number.
    public var description: String {
        switch rawValue {
        case 0: "bf16"
        case 1: "q8"
        case 2: "k8v4"
        case 3: "k4v4"
        default: "\(rawValue)"
        }
    }
}

/// Why an answer ended.
public struct StopReason: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public var rawValue: Int32
    public init(rawValue: Int32) { self.rawValue = rawValue }
    /// It failed before the first token.
    public static let none = StopReason(rawValue: 0)
    /// The model ended its answer.
    public static let eos = StopReason(rawValue: 1)
    /// `maxTokens` were generated.
    public static let length = StopReason(rawValue: 2)
    /// The context is full.
    public static let context = StopReason(rawValue: 3)
    /// `weir_session_cancel` or the callback.
    public static let cancelled = StopReason(rawValue: 4)
    /// The call failed; its status says why.
    public static let error = StopReason(rawValue: 5)
    /// One of the texts of `weir_generate_options.stop` came. Since 1.1.
    public static let string = StopReason(rawValue: 6)
    /// With `GenerateFlags.stopAtCall`: one or more whole calls of tools came. Since 1.1.
    public static let toolCall = StopReason(rawValue: 7)
    /// The constraint lets no further token follow: the text is complete by it; or a mask allows none
    /// (weir/constraint.h). Since 1.1.
    public static let constraint = StopReason(rawValue: 8)
    /// The name, or of a value that this version does not know the number.
    public var description: String {
        switch rawValue {
        case 0: "none"
        case 1: "eos"
        case 2: "length"
        case 3: "context"
        case 4: "cancelled"
        case 5: "error"
        case 6: "string"
        case 7: "toolCall"
        case 8: "constraint"
        default: "\(rawValue)"
        }
    }
}

/// Bits of `weir_generate_options.flags`.
public struct GenerateFlags: OptionSet, Sendable {
    public var rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// Control tokens appear in the events' text.
    public static let specialText = GenerateFlags(rawValue: 1)
    /// Go on after tokens that end an answer.
    public static let ignoreEos = GenerateFlags(rawValue: 2)
    /// After calls of tools, end before the first token that is no part of them, which is not appended, or with the
    /// token that ends the answer: `StopReason.toolCall`. `Status.unsupported` where the model's way of writing calls
    /// is not known (`weir_chat_info.tool_format`). Since 1.1.
    public static let stopAtCall = GenerateFlags(rawValue: 4)
}

/// What the text of an event is part of, by the tags of the model's chat template, or if it has none of its vocabulary.
public struct Segment: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public var rawValue: Int32
    public init(rawValue: Int32) { self.rawValue = rawValue }
    /// What the model says. All of it where the model has no tags.
    public static let answer = Segment(rawValue: 0)
    /// A thought, also one that the prompt has opened.
    public static let thought = Segment(rawValue: 1)
    /// A call of a tool as the model writes it, with the text of control tokens.
    public static let toolCall = Segment(rawValue: 2)
    /// A tag that begins or ends one of these, or what names it. Its text is given with `GenerateFlags.specialText`
    /// alone.
    public static let mark = Segment(rawValue: 3)
    /// The name, or of a value that this version does not know the number.
    public var description: String {
        switch rawValue {
        case 0: "answer"
        case 1: "thought"
        case 2: "toolCall"
        case 3: "mark"
        default: "\(rawValue)"
        }
    }
}

/// What an event of an answer is.
public struct EventKind: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public var rawValue: Int32
    public init(rawValue: Int32) { self.rawValue = rawValue }
    /// A token, and the text that is complete with it, perhaps none.
    public static let token = EventKind(rawValue: 0)
    /// Text without a token: it was held back for a stop string or because it could have become a tag, belongs to
    /// another segment than the text before it, or no token completes it.
    public static let text = EventKind(rawValue: 1)
    /// The answer has ended.
    public static let end = EventKind(rawValue: 2)
    /// The name, or of a value that this version does not know the number.
    public var description: String {
        switch rawValue {
        case 0: "token"
        case 1: "text"
        case 2: "end"
        default: "\(rawValue)"
        }
    }
}

/// Bits of the flags of `weir_session_rewind`.
public struct RewindFlags: OptionSet, Sendable {
    public var rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// Go back although pages of the tokens that stay are lost.
    public static let lossy = RewindFlags(rawValue: 1)
}

/// Bits of `weir_prompt_options.flags`.
public struct PromptFlags: OptionSet, Sendable {
    public var rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// Change nothing, only fill the report.
    public static let measure = PromptFlags(rawValue: 1)
    /// Where going back needs pages that are lost, forget the conversation, with its pins and unread page events, and
    /// read all of it again. Without this bit the session goes back without them, and the report counts them. Layers
    /// with a sliding window lose what has left it, under every policy; there this bit is for all who want no
    /// difference.
    public static let exact = PromptFlags(rawValue: 2)
    /// `weir_session_prompt` only: where the conversation does not fit, leave out its oldest turns, but neither system
    /// messages at its beginning nor the last turn.
    public static let dropOldest = PromptFlags(rawValue: 4)
}

/// What a constraint is written in.
public struct ConstraintKind: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public var rawValue: Int32
    public init(rawValue: Int32) { self.rawValue = rawValue }
    /// Any JSON value; no text.
    public static let json = ConstraintKind(rawValue: 0)
    /// A JSON schema.
    public static let jsonSchema = ConstraintKind(rawValue: 1)
    /// A grammar in llama.cpp's format.
    public static let gbnf = ConstraintKind(rawValue: 2)
    /// A list of tools as OpenAI's API has it; the answer is a call of one of them, {"name": ..., "arguments": {...}}.
    public static let tools = ConstraintKind(rawValue: 3)
    /// The name, or of a value that this version does not know the number.
    public var description: String {
        switch rawValue {
        case 0: "json"
        case 1: "jsonSchema"
        case 2: "gbnf"
        case 3: "tools"
        default: "\(rawValue)"
        }
    }
}

/// One request to an allocator hook.
public struct AllocationRequest: Sendable {
    /// `MemoryKind`.
    public let kind: MemoryKind
    /// Size, at least 1.
    public let bytes: Int
    /// A power of two, at most 4096.
    public let alignment: Int
    /// nil in alloc; in free the pointer that alloc gave.
    public nonisolated(unsafe) let ptr: UnsafeMutableRawPointer?
    init(_ raw: weir_alloc_info) {
        kind = MemoryKind(rawValue: raw.kind)
        bytes = Int(raw.bytes)
        alignment = Int(raw.alignment)
        ptr = raw.ptr
    }
}

/// One log line.
public struct LogLine: Sendable {
    /// `LogLevel`.
    public let level: LogLevel
    /// One line of UTF-8, at most 511 bytes. Escaped like the text of `weir_last_error`.
    public let message: String
    init(_ raw: weir_log_info) {
        level = LogLevel(rawValue: raw.level)
        message = textOf(raw.message, raw.message_bytes)
    }
}

/// Options of `weir_runtime_create`.
public struct RuntimeOptions: Options, Sendable {
    /// Threads that compute, the caller's included; 1..256. 0 (default): the cores that this process may use, at most
    /// the whole ones in its container's limit (at least 1).
    public var nThreads: Int
    /// Allocator hook; nil (default) for the system's. Set both hooks or neither.
    public var allocator: (any Allocator)?
    /// Log hook; nil (default) for none.
    public var log: LogHandler?
    /// Most detailed `LogLevel` level wanted. Default `LogLevel.error`.
    public var logLevel: LogLevel
    /// Folder of the backend modules (libweir_cuda.so). nil (default): that of the library itself. A relative one means
    /// the folder that is current now. It is copied, and shorter than 1024 bytes, with the current folder if it is
    /// relative.
    public var backendDir: String?
    /// Hook for device memory (`MemoryKind.device`, aligned to 256); nil (default): the backend's own. Set both hooks
    /// or neither.
    public var deviceAllocator: (any Allocator)?
    /// Which device `Device.vulkan` is: its index (`weir_device_info`), or a part of its name, in any case of letters.
    /// nil (default): a discrete GPU before an integrated one before a virtual one before a driver that computes on the
    /// processor, of equals the one with most memory. It is copied, and shorter than 256 bytes. A session on it fails
    /// with `Status.notFound` if there is no such device, and `Status.invalidArg` if several have the name. Both list
    /// the devices. A process uses one device: a session on a second one fails with `Status.unsupported`, which names
    /// both. Since 1.1.
    public var vulkanDevice: String?
    /// Folder (UTF-8) for what drivers compiled, so that the first session of the next process need not wait for it:
    /// Vulkan's pipelines, one file for each device, up to 128 MiB. It is made when it is needed. It and the files must
    /// belong to the user and be writable by nobody else, and a link to the folder must be the user's own too. What is
    /// damaged or of another driver is written anew, and what cannot be read or written costs time and a log line,
    /// never a session. So does a relative folder where the current one is gone. nil (default): nothing is kept. It is
    /// copied, made absolute, and shorter than 1024 bytes. Since 1.1.
    public var cacheDir: String?
    /// All defaults but for what is given.
    public init(nThreads: Int = 0, allocator: (any Allocator)? = nil, log: LogHandler? = nil,
        logLevel: LogLevel = .error, backendDir: String? = nil, deviceAllocator: (any Allocator)? = nil,
        vulkanDevice: String? = nil, cacheDir: String? = nil) {
        self.nThreads = nThreads
        self.allocator = allocator
        self.log = log
        self.logLevel = logLevel
        self.backendDir = backendDir
        self.deviceAllocator = deviceAllocator
        self.vulkanDevice = vulkanDevice
        self.cacheDir = cacheDir
    }
    func raw(_ call: Call) throws(WeirError) -> weir_runtime_options {
        var raw = weir_runtime_options()
        raw.struct_size = UInt32(MemoryLayout<weir_runtime_options>.size)
        raw.n_threads = try call.number(nThreads, "nThreads")
        if let allocator {
            call.allocator = allocator
            (raw.alloc, raw.free, raw.alloc_user) = (allocHook, freeHook, call.user)
        }
        if let log { (call.log, raw.log, raw.log_user) = (log, logHook, call.user) }
        raw.log_level = logLevel.rawValue
        raw.backend_dir = try call.text(backendDir, "backendDir")
        if let deviceAllocator {
            call.deviceAllocator = deviceAllocator
            (raw.device_alloc, raw.device_free, raw.device_alloc_user) = (allocHook, freeHook, call.user)
        }
        raw.vulkan_device = try call.text(vulkanDevice, "vulkanDevice")
        raw.cache_dir = try call.text(cacheDir, "cacheDir")
        return raw
    }
}

/// What a runtime holds, see `weir_runtime_memory`.
public struct MemoryCounters: Sendable {
    /// Bytes now allocated through the host hooks.
    public let bytes: Int
    /// Highest value of bytes so far.
    public let peakBytes: Int
    /// Allocations made so far.
    public let nAllocs: Int
    /// Frees made so far.
    public let nFrees: Int
    /// Device memory now allocated: weights and sessions.
    public let deviceBytes: Int
    /// Highest value of `deviceBytes` so far.
    public let devicePeakBytes: Int
    /// Allocations of device memory made so far.
    public let nDeviceAllocs: Int
    /// Frees of device memory made so far.
    public let nDeviceFrees: Int
    init(_ raw: weir_memory_counters) {
        bytes = Int(raw.bytes)
        peakBytes = Int(raw.peak_bytes)
        nAllocs = Int(raw.n_allocs)
        nFrees = Int(raw.n_frees)
        deviceBytes = Int(raw.device_bytes)
        devicePeakBytes = Int(raw.device_peak_bytes)
        nDeviceAllocs = Int(raw.n_device_allocs)
        nDeviceFrees = Int(raw.n_device_frees)
    }
    init(_ fill: Fill<weir_memory_counters>) throws(WeirError) { self.init(try .filled(fill)) }
}

/// A device of this machine, see `weir_runtime_devices`.
public struct DeviceInfo: Sendable {
    /// Among the devices of its backend; `weir_runtime_options.vulkan_device` takes it.
    public let index: Int
    /// `Device`, never `Device.auto`: which backend has it. A GPU that two of them have is listed twice.
    public let backend: Device
    /// `DeviceKind`.
    public let kind: DeviceKind
    /// 1: sessions of this runtime may run on it, as far as can be told without opening it. 0: not, see `why_not`.
    public let isUsable: Bool
    /// All of its memory; of a processor the machine's, or what the container may use of it.
    public let memoryBytes: Int
    /// One line of UTF-8.
    public let name: String
    /// Likewise: the driver and its version; of the CPU the instruction set in use.
    public let driver: String
    /// Likewise: what it lacks; "" if it is usable.
    public let whyNot: String
    init(_ raw: weir_device_info) {
        index = Int(raw.index)
        backend = Device(rawValue: raw.backend)
        kind = DeviceKind(rawValue: raw.kind)
        isUsable = raw.is_usable != 0
        memoryBytes = Int(raw.memory_bytes)
        name = textIn(raw.name)
        driver = textIn(raw.driver)
        whyNot = textIn(raw.why_not)
    }
}

/// Progress of a long call.
public struct Progress: Sendable {
    /// Units done, 0..total: bytes in `weir_model_open` and where text becomes tokens, tokens in
    /// `weir_session_prefill`.
    public let done: Int
    /// Units in all.
    public let total: Int
    init(_ raw: weir_progress_info) {
        done = Int(raw.done)
        total = Int(raw.total)
    }
}

/// Options of `weir_model_open`.
public struct ModelOptions: Options, Sendable {
    /// `ModelFlags`. Default 0.
    public var flags: ModelFlags
    /// Progress and cancel, see `weir_model_open`; nil (default) for none.
    public var progress: ProgressHandler?
    /// All defaults but for what is given.
    public init(flags: ModelFlags = [], progress: ProgressHandler? = nil) {
        self.flags = flags
        self.progress = progress
    }
    func raw(_ call: Call) throws(WeirError) -> weir_model_options {
        var raw = weir_model_options()
        raw.struct_size = UInt32(MemoryLayout<weir_model_options>.size)
        raw.flags = flags.rawValue
        if let progress { (call.progress, raw.progress, raw.progress_user) = (progress, progressHook, call.user) }
        return raw
    }
}

/// Facts about a model. Sizes are 0 for what a vocabulary-only file does not say.
public struct ModelInfo: Sendable {
    /// Transformer layers.
    public let nLayers: Int
    /// Query heads of a layer.
    public let nHeads: Int
    /// KV heads of a layer.
    public let nKvHeads: Int
    /// Elements of a head.
    public let headDim: Int
    /// Width of the residual stream.
    public let dModel: Int
    /// Inner width of the feed-forward part.
    public let dFf: Int
    /// Tokens of the vocabulary.
    public let vocabSize: Int
    /// Positions the model was trained for.
    public let contextTokens: Int
    /// Tensors in the file.
    public let nTensors: Int
    /// Weights in all tensors.
    public let nParams: Int
    /// Bytes of all tensors in the file; used where they lie in it, mapped or copied.
    public let weightsBytes: Int
    /// Size of the file, or of all its parts together.
    public let fileBytes: Int
    /// Hash of hyper-parameters, tensor table and vocabulary; 0 with `ModelFlags.vocabOnly`.
    public let fingerprint: UInt64
    /// general.architecture: "llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3", "granite", "olmo2",
    /// "glm4", "qwen3vl", "mistral3", "qwen35", "lfm2", "nemotron_h", "granitehybrid", "qwen2moe", "qwen3moe",
    /// "qwen3vlmoe", "gpt-oss", "glm4moe", "granitemoe", "qwen35moe", "qwen3next", "lfm2moe" or "nemotron_h_moe".
    public let architecture: String
    /// general.name as one line of UTF-8, or "".
    public let name: String
    /// Type of most weights, such as "q8_0".
    public let weightType: String
    /// "jinja" when the file has a chat template, which is run; "" when there is none.
    public let chatTemplate: String
    /// Tokenizer kind and pre-tokenizer, such as "gpt2/llama-bpe".
    public let tokenizer: String
    /// Bytes of the file in memory of the allocator hooks: all of them with `ModelFlags.copy`, 0 when it is mapped.
    public let copiedBytes: Int
    /// Always "": every template is run itself.
    public let chatResembles: String
    /// Files that the model is in, at least 1; see `weir_model_open`. Since 1.1.
    public let nParts: Int
    init(_ raw: weir_model_info) {
        nLayers = Int(raw.n_layers)
        nHeads = Int(raw.n_heads)
        nKvHeads = Int(raw.n_kv_heads)
        headDim = Int(raw.head_dim)
        dModel = Int(raw.d_model)
        dFf = Int(raw.d_ff)
        vocabSize = Int(raw.vocab_size)
        contextTokens = Int(raw.context_tokens)
        nTensors = Int(raw.n_tensors)
        nParams = Int(raw.n_params)
        weightsBytes = Int(raw.weights_bytes)
        fileBytes = Int(raw.file_bytes)
        fingerprint = raw.fingerprint
        architecture = raw.architecture.map { String(cString: $0) } ?? ""
        name = raw.name.map { String(cString: $0) } ?? ""
        weightType = raw.weight_type.map { String(cString: $0) } ?? ""
        chatTemplate = raw.chat_template.map { String(cString: $0) } ?? ""
        tokenizer = raw.tokenizer.map { String(cString: $0) } ?? ""
        copiedBytes = Int(raw.copied_bytes)
        chatResembles = raw.chat_resembles.map { String(cString: $0) } ?? ""
        nParts = Int(raw.n_parts)
    }
    init(_ fill: Fill<weir_model_info>) throws(WeirError) { self.init(try .filled(fill)) }
}

/// One tensor of a model.
public struct TensorInfo: Sendable {
    /// 1..4.
    public let nDims: Int
    /// Slowest axis first; unused ones are 1.
    public let dims: [Int]
    /// Size in the file.
    public let bytes: Int
    /// Where its bytes start in the file.
    public let fileOffset: Int
    /// Its name in the file.
    public let name: String
    /// Such as "q8_0".
    public let type: String
    /// Which of the model's files it is in, 0 .. `nParts` - 1. Since 1.1.
    public let part: Int
    init(_ raw: weir_tensor_info) {
        nDims = Int(raw.n_dims)
        dims = [Int(raw.dims.0), Int(raw.dims.1), Int(raw.dims.2), Int(raw.dims.3)]
        bytes = Int(raw.bytes)
        fileOffset = Int(raw.file_offset)
        name = raw.name.map { String(cString: $0) } ?? ""
        type = raw.type.map { String(cString: $0) } ?? ""
        part = Int(raw.part)
    }
    init(_ fill: Fill<weir_tensor_info>) throws(WeirError) { self.init(try .filled(fill)) }
}

/// One token of a vocabulary.
public struct TokenInfo: Sendable {
    /// `TokenFlags`.
    public let flags: TokenFlags
    /// As stored in the file, UTF-8.
    public let text: String
    /// Score of SentencePiece vocabularies, else 0.
    public let score: Float
    /// What the token stands for in running text, a space where the text above has a sign for one. Any bytes, perhaps
    /// part of a UTF-8 sequence. Of control and unknown tokens their text. Since 1.1.
    public let bytes: [UInt8]
    init(_ raw: weir_token_info) {
        flags = TokenFlags(rawValue: raw.flags)
        text = textOf(raw.text, raw.text_bytes)
        score = raw.score
        bytes = bytesOf(raw.bytes, raw.n_bytes)
    }
    init(_ fill: Fill<weir_token_info>) throws(WeirError) { self.init(try .filled(fill)) }
}

/// Tokens with a special meaning, -1 where the model has none.
public struct SpecialTokens: Sendable {
    /// Begin of text.
    public let bos: Token
    /// End of text or turn.
    public let eos: Token
    /// End of turn, when it differs from eos.
    public let eot: Token
    /// Unknown.
    public let unk: Token
    /// Padding.
    public let pad: Token
    /// 1 when `TokenizeFlags.bosEos` adds bos, else 0.
    public let addBos: Bool
    /// 1 when `TokenizeFlags.bosEos` adds eos, else 0.
    public let addEos: Bool
    init(_ raw: weir_special_tokens) {
        bos = raw.bos
        eos = raw.eos
        eot = raw.eot
        unk = raw.unk
        pad = raw.pad
        addBos = raw.add_bos != 0
        addEos = raw.add_eos != 0
    }
    init(_ fill: Fill<weir_special_tokens>) throws(WeirError) { self.init(try .filled(fill)) }
}

/// One message of a conversation.
public struct Message: Hashable, Sendable {
    /// "system", "user" or "assistant". Also "tool" and "developer" where the template has words for them.
    public var role: String
    /// UTF-8. nil with `contentBytes` 0: empty.
    public var content: String
    /// What the model thought before an answer, UTF-8 without tags; nil: nothing. The template decides whether it is
    /// kept: most leave out those of earlier turns. Since 1.1.
    public var thought: String?
    /// The calls in an answer, JSON, a list of objects with "name", "arguments" (an object) and perhaps "id", or as in
    /// OpenAI's API, with these two in "function". nil: none. Since 1.1.
    public var toolCallsJson: String?
    /// The call that a tool's result answers; nil: not said. Since 1.1.
    public var toolCallId: String?
    /// The tool that a result is of; else who speaks; nil: not said. Since 1.1.
    public var name: String?
    public init(role: String, content: String, thought: String? = nil, toolCallsJson: String? = nil,
        toolCallId: String? = nil, name: String? = nil) {
        self.role = role
        self.content = content
        self.thought = thought
        self.toolCallsJson = toolCallsJson
        self.toolCallId = toolCallId
        self.name = name
    }
    init(_ raw: weir_chat_message) {
        role = raw.role.map { String(cString: $0) } ?? ""
        content = textOf(raw.content, raw.content_bytes)
        thought = raw.thought.map { _ in textOf(raw.thought, raw.thought_bytes) }
        toolCallsJson = raw.tool_calls_json.map { String(cString: $0) }
        toolCallId = raw.tool_call_id.map { String(cString: $0) }
        name = raw.name.map { String(cString: $0) }
    }
    func raw(_ call: Call) throws(WeirError) -> weir_chat_message {
        var raw = weir_chat_message()
        raw.role = try call.text(role, "role")
        let contentCopy = call.copy(content)
        raw.content = contentCopy.text
        raw.content_bytes = contentCopy.bytes
        let thoughtCopy = thought.map(call.copy)
        raw.thought = thoughtCopy?.text
        raw.thought_bytes = thoughtCopy?.bytes ?? 0
        raw.tool_calls_json = try call.text(toolCallsJson, "toolCallsJson")
        raw.tool_call_id = try call.text(toolCallId, "toolCallId")
        raw.name = try call.text(name, "name")
        return raw
    }
}

/// Options of `weir_chat_tokenize` and `weir_session_prompt`.
public struct ChatOptions: Options, Sendable {
    /// `ChatFlags`. Default 0. Here the default is `ChatFlags.addAssistant`.
    public var flags: ChatFlags
    /// Progress in bytes of the rendered text, and cancel, as in `weir_tokenize_with`; nil (default) for none. Since
    /// 1.1.
    public var progress: ProgressHandler?
    /// A chat template (Jinja) to use instead of the file's, at most 2^18 bytes, or the name of a built-in one:
    /// "chatml", "llama3", "mistral", "gemma", "granite", "glm4" or "harmony". nil (default): the file's. Since 1.1.
    public var templateText: String?
    /// The tools that the model may call: a JSON list as in OpenAI's API. nil (default): none. `Status.unsupported`
    /// where the template has no place for them. Since 1.1.
    public var toolsJson: String?
    /// More variables of the template: a JSON object, such as {"enable_thinking": false}. nil (default): none. One that
    /// the template never reads is `Status.notFound`, so that nothing is switched off in vain. Since 1.1.
    public var variablesJson: String?
    /// What strftime_now sees, in seconds since 1970, as UTC; 0 (default): the time of the call. Since 1.1.
    public var unixTime: Int
    /// All defaults but for what is given.
    public init(flags: ChatFlags = .addAssistant, progress: ProgressHandler? = nil, templateText: String? = nil,
        toolsJson: String? = nil, variablesJson: String? = nil, unixTime: Int = 0) {
        self.flags = flags
        self.progress = progress
        self.templateText = templateText
        self.toolsJson = toolsJson
        self.variablesJson = variablesJson
        self.unixTime = unixTime
    }
    func raw(_ call: Call) throws(WeirError) -> weir_chat_options {
        var raw = weir_chat_options()
        raw.struct_size = UInt32(MemoryLayout<weir_chat_options>.size)
        raw.flags = flags.rawValue
        raw.message_bytes = UInt32(MemoryLayout<weir_chat_message>.size)
        if let progress { (call.progress, raw.progress, raw.progress_user) = (progress, progressHook, call.user) }
        raw.template_text = try call.text(templateText, "templateText")
        raw.tools_json = try call.text(toolsJson, "toolsJson")
        raw.variables_json = try call.text(variablesJson, "variablesJson")
        raw.unix_time = try call.number(unixTime, "unixTime")
        return raw
    }
}

/// Options of `weir_tokenize_with`.
public struct TokenizeOptions: Options, Sendable {
    /// `TokenizeFlags`. Default 0.
    public var flags: TokenizeFlags
    /// Progress and cancel, see `weir_tokenize_with`; nil (default) for none.
    public var progress: ProgressHandler?
    /// All defaults but for what is given.
    public init(flags: TokenizeFlags = [], progress: ProgressHandler? = nil) {
        self.flags = flags
        self.progress = progress
    }
    func raw(_ call: Call) throws(WeirError) -> weir_tokenize_options {
        var raw = weir_tokenize_options()
        raw.struct_size = UInt32(MemoryLayout<weir_tokenize_options>.size)
        raw.flags = flags.rawValue
        if let progress { (call.progress, raw.progress, raw.progress_user) = (progress, progressHook, call.user) }
        return raw
    }
}

/// What a model's chat template can do, and how the parts of its answers are told apart.
public struct ChatInfo: Sendable {
    /// `ChatAbilities`.
    public let can: ChatAbilities
    /// Text that begins a thought, "" when the model has no tags.
    public let thoughtBegin: String
    /// Text that ends it, "" likewise.
    public let thoughtEnd: String
    /// Name of the model's way of writing calls of tools, "hermes", "llama3", "mistral", "harmony" and so on, or ""
    /// when none is known.
    public let toolFormat: String
    init(_ raw: weir_chat_info) {
        can = ChatAbilities(rawValue: raw.can)
        thoughtBegin = raw.thought_begin.map { String(cString: $0) } ?? ""
        thoughtEnd = raw.thought_end.map { String(cString: $0) } ?? ""
        toolFormat = raw.tool_format.map { String(cString: $0) } ?? ""
    }
    init(_ fill: Fill<weir_chat_info>) throws(WeirError) { self.init(try .filled(fill)) }
}

/// Options of `weir_plan` and `weir_session_create`.
public struct SessionOptions: Options, Sendable {
    /// `SessionFlags`.
    public var flags: SessionFlags
    /// `Device`. Default `Device.auto`.
    public var device: Device
    /// Most positions the conversation may reach. 0 (default): what the model was trained for.
    public var contextTokens: Int
    /// Tokens of one prefill chunk, 1..4096. Default 512, less when the context is smaller.
    public var batchTokens: Int
    /// Tokens of one KV page. Only 16 (default) exists.
    public var pageTokens: Int
    /// KV budget in tokens per (layer, kv head) stream. 0 (default): the whole context.
    public var budgetTokens: Int
    /// Longest prompt to plan for where a policy keeps prompts beyond the budget. Default 0.
    public var maxPromptTokens: Int
    /// KV budget in bytes for all streams together, instead of `budgetTokens`: as many tokens per stream as fit into
    /// it. A policy that keeps more than its budget (quest, hybrid, dense layers of h2o and tova) takes more, as the
    /// plan shows. 0 (default): not used.
    public var budgetBytes: Int
    /// Host memory for pages outside the KV pool, at least one page of each stream that the budget rules. With recall
    /// (arkvale, and raas, hybrid and psa with recall=on) steps bring pages back from it, 0 (default) is what the whole
    /// context needs at worst, and when it is full, pages move to the spill file. Without one, or when that is full
    /// too, those that were wanted the longest ago are dropped for good. 0 is never more than half of the memory of the
    /// machine, or of the container's limit. `spillTokens` of the plan says what is held for sure. Other policies that
    /// let pages go keep copies there, which no step reads, on the CPU only, and 0 (default) keeps none.
    public var spillBudgetBytes: Int
    /// "dense" (also nil, default), "sink", "h2o", "tova", "quest", "raas", "hybrid", "random", "arkvale", "psa",
    /// "lfps", "keyformer", "scissorhands". Copied.
    public var policy: String?
    /// [`nPolicyOptions`] options of the policy, docs/policies.md. Copied; the file of heads_file is only read in the
    /// call.
    public var policyOptions: [String: String]
    /// The part of `spillBudgetBytes` for uncompressed pages, all but those that were wanted the longest ago. 0
    /// (default): all of it if it holds the whole context so, else as much as leaves room for the other pages at four
    /// fifths of their bytes, at least a quarter. Since 1.1.
    public var spillRawBytes: Int
    /// Path (UTF-8) of a file of `spillFileBytes` for the pages that `spillBudgetBytes` have no room for. Nothing may
    /// be there: the file is created, and its name removed at once. Used while the session is created, and for its
    /// forks: a relative one means the folder that is current in `weir_session_create`. nil (default): no file. Since
    /// 1.1.
    public var spillPath: String?
    /// Size of that file, reserved on the disk at once. 0 (default): no file. Since 1.1.
    public var spillFileBytes: Int
    /// `SpillFlags`. Since 1.1.
    public var spillFlags: SpillFlags
    /// Host memory for snapshots of the state of recurrent layers, at least one of them
    /// (`weir_plan_info.snapshot_bytes` / `nSnapshots`). A conversation goes back to a snapshot, and reads again from
    /// there. 0 (default): four. Not read for models that have attention in every layer. Since 1.1.
    public var snapshotBudgetBytes: Int
    /// There is a snapshot at every multiple of so many tokens, 16 or more, and where prompts begin and end, as many as
    /// have room, at most 1,024. Those of the last prompt stay however long the answer is. With room for one, that of
    /// its end does. 0 (default): 1,024. Since 1.1.
    public var snapshotTokens: Int
    /// `KvFormat`: what keys and values are stored in. `KvFormat.bf16` (0) is the default. Budgets in bytes hold more
    /// tokens in smaller formats. Since 1.1.
    public var kvFormat: KvFormat
    /// All defaults but for what is given.
    public init(flags: SessionFlags = [], device: Device = .auto, contextTokens: Int = 0, batchTokens: Int = 0,
        pageTokens: Int = 0, budgetTokens: Int = 0, maxPromptTokens: Int = 0, budgetBytes: Int = 0,
        spillBudgetBytes: Int = 0, policy: String? = nil, policyOptions: [String: String] = [:],
        spillRawBytes: Int = 0, spillPath: String? = nil, spillFileBytes: Int = 0, spillFlags: SpillFlags = [],
        snapshotBudgetBytes: Int = 0, snapshotTokens: Int = 0, kvFormat: KvFormat = .bf16) {
        self.flags = flags
        self.device = device
        self.contextTokens = contextTokens
        self.batchTokens = batchTokens
        self.pageTokens = pageTokens
        self.budgetTokens = budgetTokens
        self.maxPromptTokens = maxPromptTokens
        self.budgetBytes = budgetBytes
        self.spillBudgetBytes = spillBudgetBytes
        self.policy = policy
        self.policyOptions = policyOptions
        self.spillRawBytes = spillRawBytes
        self.spillPath = spillPath
        self.spillFileBytes = spillFileBytes
        self.spillFlags = spillFlags
        self.snapshotBudgetBytes = snapshotBudgetBytes
        self.snapshotTokens = snapshotTokens
        self.kvFormat = kvFormat
    }
    func raw(_ call: Call) throws(WeirError) -> weir_session_options {
        var raw = weir_session_options()
        raw.struct_size = UInt32(MemoryLayout<weir_session_options>.size)
        raw.flags = flags.rawValue
        raw.device = device.rawValue
        raw.context_tokens = try call.number(contextTokens, "contextTokens")
        raw.batch_tokens = try call.number(batchTokens, "batchTokens")
        raw.page_tokens = try call.number(pageTokens, "pageTokens")
        raw.budget_tokens = try call.number(budgetTokens, "budgetTokens")
        raw.max_prompt_tokens = try call.number(maxPromptTokens, "maxPromptTokens")
        raw.budget_bytes = try call.number(budgetBytes, "budgetBytes")
        raw.spill_budget_bytes = try call.number(spillBudgetBytes, "spillBudgetBytes")
        raw.policy = try call.text(policy, "policy")
        var pairs: [weir_key_value] = []
        for (key, value) in policyOptions.sorted(by: { $0.key < $1.key }) {
            let key = try call.text(key, "policyOptions")
            pairs.append(weir_key_value(key: key, value: try call.text(value, "policyOptions")))
        }
        raw.policy_options = call.list(pairs)
        raw.n_policy_options = UInt32(pairs.count)
        raw.spill_raw_bytes = try call.number(spillRawBytes, "spillRawBytes")
        raw.spill_path = try call.text(spillPath, "spillPath")
        raw.spill_file_bytes = try call.number(spillFileBytes, "spillFileBytes")
        raw.spill_flags = spillFlags.rawValue
        raw.snapshot_budget_bytes = try call.number(snapshotBudgetBytes, "snapshotBudgetBytes")
        raw.snapshot_tokens = try call.number(snapshotTokens, "snapshotTokens")
        raw.kv_format = kvFormat.rawValue
        return raw
    }
    init(_ raw: weir_session_options) {
        flags = SessionFlags(rawValue: raw.flags)
        device = Device(rawValue: raw.device)
        contextTokens = Int(raw.context_tokens)
        batchTokens = Int(raw.batch_tokens)
        pageTokens = Int(raw.page_tokens)
        budgetTokens = Int(raw.budget_tokens)
        maxPromptTokens = Int(raw.max_prompt_tokens)
        budgetBytes = Int(raw.budget_bytes)
        spillBudgetBytes = Int(raw.spill_budget_bytes)
        policy = raw.policy.map { String(cString: $0) }
        spillRawBytes = Int(raw.spill_raw_bytes)
        spillPath = raw.spill_path.map { String(cString: $0) }
        spillFileBytes = Int(raw.spill_file_bytes)
        spillFlags = SpillFlags(rawValue: raw.spill_flags)
        snapshotBudgetBytes = Int(raw.snapshot_budget_bytes)
        snapshotTokens = Int(raw.snapshot_tokens)
        kvFormat = KvFormat(rawValue: raw.kv_format)
        policyOptions = [:]
        for i in 0..<Int(raw.n_policy_options) {
            policyOptions[String(cString: raw.policy_options[i].key)] = String(cString: raw.policy_options[i].value)
        }
    }
}

/// The exact bytes of every pool of a session, known before anything is allocated.
public struct Plan: Sendable {
    /// Most positions.
    public let contextTokens: Int
    /// Tokens of one stream that fit: `pagesPerStream` * `pageTokens`.
    public let budgetTokens: Int
    /// Tokens of a page.
    public let pageTokens: Int
    /// Pages a stream can hold; streams of layers that a policy leaves dense hold the context.
    public let pagesPerStream: Int
    /// Layers with attention times KV heads.
    public let nStreams: Int
    /// Bytes of one page.
    public let pageBytes: Int
    /// Weights in the file, mapped and shared by all sessions; not in `totalBytes`.
    public let weightsBytes: Int
    /// Resident KV pages.
    public let kvBytes: Int
    /// Page digests.
    public let digestBytes: Int
    /// Page tables, stamps, scores, free lists; on the CPU also the ring of page events.
    public let tableBytes: Int
    /// Activations, logits, partial results of attention.
    public let workspaceBytes: Int
    /// Sampler state, and the tokens of the conversation that are kept (`weir_session_tokens`).
    public let samplerBytes: Int
    /// The session object itself.
    public let sessionBytes: Int
    /// Host memory that a device copies from and to: the host's page tables and the ring of page events, or with
    /// attention on the host activations, and two parts of a layer's pages on their way. 0 on the CPU. A Vulkan driver
    /// gives it, not the host hooks, and it is counted like theirs.
    public let stagingBytes: Int
    /// Host memory of the store of pages outside the KV pool: its pages, the queue to its compression and all that this
    /// needs. Else 0. A Vulkan driver gives the part for uncompressed pages, as it gives `stagingBytes`.
    public let spillBytes: Int
    /// What vendor libraries reserve; 0, as no backend of this version uses one.
    public let libraryBytes: Int
    /// All of the session's own memory: the sum of the fields from `kvBytes` to `libraryBytes`, `recurrentBytes` and
    /// `snapshotBytes`.
    public let totalBytes: Int
    /// The part of `totalBytes` on the device: pages, digests, tables, workspace and `recurrentBytes`. With attention
    /// on the host, part of `workspaceBytes`. 0 on the CPU.
    public let deviceBytes: Int
    /// Device memory of the weights, shared by all sessions of the model there; not in `totalBytes`.
    public let deviceWeightsBytes: Int
    /// `Device` that the session will run on.
    public let device: Device
    /// Those of the `nStreams` in layers with a sliding window of their own.
    public let nWindowStreams: Int
    /// Pages that such a stream can hold instead of `pagesPerStream`, whatever the policy and the budget: those of the
    /// window and of a prompt chunk of `batchTokens`.
    public let windowPagesPerStream: Int
    /// The part of `kvBytes` for pages of such streams.
    public let windowKvBytes: Int
    /// Size of the spill file; not in `totalBytes`. Since 1.1.
    public let spillFileBytes: Int
    /// Those of the `nStreams` whose KV heads the option heads makes hold the first tokens and a window. Since 1.1.
    public let nHeadStreams: Int
    /// Pages that such a stream can hold, whatever the policy and the budget: those of the first tokens, of the window
    /// and of a prompt chunk of `batchTokens`. Since 1.1.
    public let headPagesPerStream: Int
    /// The part of `kvBytes` for pages of such streams. Since 1.1.
    public let headKvBytes: Int
    /// The part of `spillBytes` for pages as they are. Since 1.1.
    public let spillRawBytes: Int
    /// The part of `spillBytes` for compressed pages. Since 1.1.
    public let spillCompressedBytes: Int
    /// Positions whose pages the store and its file hold whatever is in them. With fewer than `contextTokens`, pages
    /// may be dropped for good, those first that were wanted the longest ago. 0 without a store. Since 1.1.
    public let spillTokens: Int
    /// State of recurrent layers, twice: of now, and what the next step writes. It does not grow with the conversation.
    /// Since 1.1.
    public let recurrentBytes: Int
    /// Host memory of `nSnapshots` copies of that state. Since 1.1.
    public let snapshotBytes: Int
    /// How many places of the conversation are kept to go back to, besides its beginning. 0 where every layer has
    /// attention. Since 1.1.
    public let nSnapshots: Int
    /// `weir_session_options.snapshot_tokens`, or its default. 0 where every layer has attention. Since 1.1.
    public let snapshotTokens: Int
    init(_ raw: weir_plan_info) {
        contextTokens = Int(raw.context_tokens)
        budgetTokens = Int(raw.budget_tokens)
        pageTokens = Int(raw.page_tokens)
        pagesPerStream = Int(raw.pages_per_stream)
        nStreams = Int(raw.n_streams)
        pageBytes = Int(raw.page_bytes)
        weightsBytes = Int(raw.weights_bytes)
        kvBytes = Int(raw.kv_bytes)
        digestBytes = Int(raw.digest_bytes)
        tableBytes = Int(raw.table_bytes)
        workspaceBytes = Int(raw.workspace_bytes)
        samplerBytes = Int(raw.sampler_bytes)
        sessionBytes = Int(raw.session_bytes)
        stagingBytes = Int(raw.staging_bytes)
        spillBytes = Int(raw.spill_bytes)
        libraryBytes = Int(raw.library_bytes)
        totalBytes = Int(raw.total_bytes)
        deviceBytes = Int(raw.device_bytes)
        deviceWeightsBytes = Int(raw.device_weights_bytes)
        device = Device(rawValue: raw.device)
        nWindowStreams = Int(raw.n_window_streams)
        windowPagesPerStream = Int(raw.window_pages_per_stream)
        windowKvBytes = Int(raw.window_kv_bytes)
        spillFileBytes = Int(raw.spill_file_bytes)
        nHeadStreams = Int(raw.n_head_streams)
        headPagesPerStream = Int(raw.head_pages_per_stream)
        headKvBytes = Int(raw.head_kv_bytes)
        spillRawBytes = Int(raw.spill_raw_bytes)
        spillCompressedBytes = Int(raw.spill_compressed_bytes)
        spillTokens = Int(raw.spill_tokens)
        recurrentBytes = Int(raw.recurrent_bytes)
        snapshotBytes = Int(raw.snapshot_bytes)
        nSnapshots = Int(raw.n_snapshots)
        snapshotTokens = Int(raw.snapshot_tokens)
    }
    init(_ fill: Fill<weir_plan_info>) throws(WeirError) { self.init(try .filled(fill)) }
}

/// Memory of a live session.
public struct SessionMemory: Sendable {
    /// `weir_plan_info.total_bytes` of this session.
    public let planBytes: Int
    /// Allocated now.
    public let bytes: Int
    /// Highest value so far.
    public let peakBytes: Int
    /// Size of the KV pool.
    public let kvBudgetBytes: Int
    /// Bytes of the pages that hold tokens now.
    public let kvBytes: Int
    /// Highest value so far.
    public let kvPeakBytes: Int
    /// Allocations of this session.
    public let nAllocs: Int
    /// Allocations made after create, also of device memory; Weir promises 0.
    public let allocsWhileDecoding: Int
    /// The part of bytes that is memory of the device.
    public let deviceBytes: Int
    init(_ raw: weir_memory_info) {
        planBytes = Int(raw.plan_bytes)
        bytes = Int(raw.bytes)
        peakBytes = Int(raw.peak_bytes)
        kvBudgetBytes = Int(raw.kv_budget_bytes)
        kvBytes = Int(raw.kv_bytes)
        kvPeakBytes = Int(raw.kv_peak_bytes)
        nAllocs = Int(raw.n_allocs)
        allocsWhileDecoding = Int(raw.allocs_while_decoding)
        deviceBytes = Int(raw.device_bytes)
    }
}

/// Counters of a session since its creation (`weir_session_reset` keeps them).
public struct SessionStats: Sendable {
    /// Positions now in the conversation.
    public let nTokens: Int
    /// Tokens that went through prefill.
    public let nPrompt: Int
    /// Tokens that went through step or generate.
    public let nDecode: Int
    /// Pages that hold tokens now, all streams.
    public let pagesResident: Int
    /// Highest value so far.
    public let pagesResidentMax: Int
    /// Pages that left because of the budget, each as often as it left.
    public let pagesEvicted: Int
    /// Those of `pagesEvicted` that were kept in host memory and not dropped.
    public let pagesSpilled: Int
    /// Times that a page came back from there.
    public let pagesRecalled: Int
    /// Pages that are gone for good.
    public let pagesDropped: Int
    /// Time inside prefill.
    public let prefillNs: Int
    /// Time of decode steps and of drawing tokens in generate, without the callback.
    public let decodeNs: Int
    /// Pages that the latest decode step attended, all streams; a page counts once for each list that contains it.
    public let pagesAttended: Int
    /// Pages that are now in host memory alone.
    public let pagesCold: Int
    /// Host memory that spilled pages take now, copies of resident pages included.
    public let spillStoredBytes: Int
    /// The part of `decodeNs` in which pages came back.
    public let recallNs: Int
    /// Times that a page had to wait for the compression of others.
    public let spillWaits: Int
    /// Spilled pages that proved to be damaged, and 1 when the spill file was given up because reading or writing
    /// failed. Such pages count as dropped.
    public let spillErrors: Int
    /// Spilled pages that are uncompressed now, copies of resident pages included. Since 1.1.
    public let spillPagesRaw: Int
    /// Times that a compressed page was restored to be read. Since 1.1.
    public let spillRestored: Int
    init(_ raw: weir_session_stats) {
        nTokens = Int(raw.n_tokens)
        nPrompt = Int(raw.n_prompt)
        nDecode = Int(raw.n_decode)
        pagesResident = Int(raw.pages_resident)
        pagesResidentMax = Int(raw.pages_resident_max)
        pagesEvicted = Int(raw.pages_evicted)
        pagesSpilled = Int(raw.pages_spilled)
        pagesRecalled = Int(raw.pages_recalled)
        pagesDropped = Int(raw.pages_dropped)
        prefillNs = Int(raw.prefill_ns)
        decodeNs = Int(raw.decode_ns)
        pagesAttended = Int(raw.pages_attended)
        pagesCold = Int(raw.pages_cold)
        spillStoredBytes = Int(raw.spill_stored_bytes)
        recallNs = Int(raw.recall_ns)
        spillWaits = Int(raw.spill_waits)
        spillErrors = Int(raw.spill_errors)
        spillPagesRaw = Int(raw.spill_pages_raw)
        spillRestored = Int(raw.spill_restored)
    }
}

/// Where a page of a conversation is: in how many of `weir_plan_info.n_streams` streams.
public struct PageState: Sendable {
    /// In the KV pool.
    public let resident: Int
    /// In host memory or the spill file alone.
    public let cold: Int
    /// Nowhere: dropped, or behind a sliding window. The three make up all streams.
    public let lost: Int
    /// Streams where it may not leave: pinned by the application, or by the policy as a prompt.
    public let pinned: Int
    init(_ raw: weir_page_state) {
        resident = Int(raw.resident)
        cold = Int(raw.cold)
        lost = Int(raw.lost)
        pinned = Int(raw.pinned)
    }
}

/// How the next token is drawn. Applied in this order: bias, repetition penalty, frequency and presence penalty,
/// temperature, top-k, top-p, min-p.
public struct SamplingOptions: Options, Sendable {
    /// Keep the k most probable tokens; 0 (default): all.
    public var topK: Int
    /// 0 (default): greedy, the most probable token, the lowest id on a tie. At most 100.
    public var temperature: Float
    /// Keep the smallest set with this probability; (0, 1]; 0 (default) means 1, off.
    public var topP: Float
    /// Drop tokens less probable than this fraction of the best; [0, 1). Default 0, off.
    public var minP: Float
    /// Divides positive logits (multiplies negative ones) of recent tokens; 0 (default) means 1, off. At most 100.
    public var repeatPenalty: Float
    /// Recent tokens that the penalty looks at, at most 4096; 0 (default): 64.
    public var repeatLastN: Int
    /// Same seed, same options, same logits: same tokens. Default 0.
    public var seed: UInt64
    /// Taken from the logits of the recent tokens, of those that `repeatLastN` says; -2..2, below 0 they become
    /// likelier. Default 0. Since 1.1.
    public var presencePenalty: Float
    /// The same, as often as each is among them. Default 0. Since 1.1.
    public var frequencyPenalty: Float
    /// [`nBias`], copied. nil (default): none. Since 1.1.
    public var bias: [Token: Float]
    /// All defaults but for what is given.
    public init(topK: Int = 0, temperature: Float = 0, topP: Float = 0, minP: Float = 0, repeatPenalty: Float = 0,
        repeatLastN: Int = 0, seed: UInt64 = 0, presencePenalty: Float = 0, frequencyPenalty: Float = 0,
        bias: [Token: Float] = [:]) {
        self.topK = topK
        self.temperature = temperature
        self.topP = topP
        self.minP = minP
        self.repeatPenalty = repeatPenalty
        self.repeatLastN = repeatLastN
        self.seed = seed
        self.presencePenalty = presencePenalty
        self.frequencyPenalty = frequencyPenalty
        self.bias = bias
    }
    func raw(_ call: Call) throws(WeirError) -> weir_sampling_options {
        var raw = weir_sampling_options()
        raw.struct_size = UInt32(MemoryLayout<weir_sampling_options>.size)
        raw.top_k = try call.number(topK, "topK")
        raw.temperature = temperature
        raw.top_p = topP
        raw.min_p = minP
        raw.repeat_penalty = repeatPenalty
        raw.repeat_last_n = try call.number(repeatLastN, "repeatLastN")
        raw.seed = seed
        raw.presence_penalty = presencePenalty
        raw.frequency_penalty = frequencyPenalty
        raw.bias = call.list(bias.map { weir_token_bias(token: $0.key, bias: $0.value) })
        raw.n_bias = UInt32(bias.count)
        return raw
    }
}

/// A token and how probable it was.
public struct Logprob: Sendable {
    /// The token.
    public let token: Token
    /// Natural logarithm of its probability by the model's logits alone: before bias, penalties, temperature and cuts.
    public let logprob: Float
    init(_ raw: weir_logprob) {
        token = raw.token
        logprob = raw.logprob
    }
}

/// One generated token, for the callback of `weir_session_generate`.
public struct TokenEvent: Sendable {
    /// The token; -1 in a last event that only brings text which no token can complete any more.
    public let token: Token
    /// 0 for the first token of this call.
    public let index: Int
    /// Positions in the conversation before this token is appended.
    public let nTokens: Int
    /// Text that is now complete, whole UTF-8 sequences, perhaps empty.
    public let text: String
    /// As of `weir_event`. Since 1.1.
    public let logprob: Float
    /// As of `weir_event`. Since 1.1.
    public let top: [Logprob]
    init(_ raw: weir_token_event) {
        token = raw.token
        index = Int(raw.index)
        nTokens = Int(raw.n_tokens)
        text = textOf(raw.text, raw.text_bytes)
        logprob = raw.logprob
        top = UnsafeBufferPointer(start: raw.top, count: Int(raw.n_top)).map(Logprob.init)
    }
}

/// Options of `weir_session_generate` and `weir_session_begin`.
public struct GenerateOptions: Options, Sendable {
    /// `GenerateFlags`.
    public var flags: GenerateFlags
    /// Most tokens of this call; 0 (default): as many as the context holds.
    public var maxTokens: Int
    /// [`nStop`] texts of 1 to 256 bytes. The first that is complete ends the answer, wherever its tokens begin and
    /// end: its text is not shown, its tokens stay in the conversation, and text that may be the beginning of one is
    /// shown later, at the latest with the end of the call or answer. Only text counts that would be shown, and of one
    /// call or one begun answer: for pieces of an answer use `weir_session_next`. nil (default): none. Since 1.1.
    public var stop: [String]
    /// Events tell the log-probability of their token, and this many of the most probable tokens, 0..64. 0 (default):
    /// neither. A GPU sends these and sums, not all logits. Since 1.1.
    public var nTop: Int
    /// Before there are so many tokens, none is drawn that ends an answer (`TokenFlags.endOfGeneration`), also with
    /// `GenerateFlags.ignoreEos`. Stop strings, `maxTokens` and the context end it all the same. Default 0. Since 1.1.
    public var minTokens: Int
    /// After so many tokens of thought its end is appended as if it had been drawn: `thinkingClose`, then the tag. 0
    /// (default): no limit. `Status.unsupported` where the model has no tags of thoughts
    /// (`weir_chat_info.thought_end`). Since 1.1.
    public var thinkingBudget: Int
    /// Text that is appended before the tag where a thought is ended early, also by `weir_session_finish_thinking`: at
    /// most 1,024 bytes of UTF-8. Copied. Models often go on thinking aloud without one. nil (default): none.
    /// `Status.unsupported` as above. Since 1.1.
    public var thinkingClose: String?
    /// All defaults but for what is given.
    public init(flags: GenerateFlags = [], maxTokens: Int = 0, stop: [String] = [], nTop: Int = 0,
        minTokens: Int = 0, thinkingBudget: Int = 0, thinkingClose: String? = nil) {
        self.flags = flags
        self.maxTokens = maxTokens
        self.stop = stop
        self.nTop = nTop
        self.minTokens = minTokens
        self.thinkingBudget = thinkingBudget
        self.thinkingClose = thinkingClose
    }
    func raw(_ call: Call) throws(WeirError) -> weir_generate_options {
        var raw = weir_generate_options()
        raw.struct_size = UInt32(MemoryLayout<weir_generate_options>.size)
        raw.flags = flags.rawValue
        raw.max_tokens = try call.number(maxTokens, "maxTokens")
        raw.stop = call.list(stop.map(call.copy))
        raw.n_stop = UInt32(stop.count)
        raw.n_top = try call.number(nTop, "nTop")
        raw.min_tokens = try call.number(minTokens, "minTokens")
        raw.thinking_budget = try call.number(thinkingBudget, "thinkingBudget")
        raw.thinking_close = try call.text(thinkingClose, "thinkingClose")
        return raw
    }
}

/// Result of `weir_session_generate`.
public struct GenerateResult: Sendable {
    /// `StopReason`.
    public let stop: StopReason
    /// Tokens generated, without the one that ended the answer.
    public let nTokens: Int
    /// The token that ended the answer, or the last one; -1 when there was none.
    public let lastToken: Token
    /// Which of the texts of `StopReason.string` it was; otherwise -1. Since 1.1.
    public let stopIndex: Int
    init(_ raw: weir_generate_result) {
        stop = StopReason(rawValue: raw.stop)
        nTokens = Int(raw.n_tokens)
        lastToken = raw.last_token
        stopIndex = Int(raw.stop_index)
    }
}

/// One event of an answer, from `weir_session_next`.
public struct Event: Sendable {
    /// `EventKind`.
    public let kind: EventKind
    /// The token; of an end the one that ended the answer, which is not appended; else -1.
    public let token: Token
    /// Number of the token in this answer, from 0; of other events how many there were.
    public let index: Int
    /// Positions in the conversation, with this token.
    public let nTokens: Int
    /// Why the answer ended: `StopReason`; `StopReason.none` of other events.
    public let stop: StopReason
    /// Which of the texts of `StopReason.string` it was; otherwise -1.
    public let stopIndex: Int
    /// `Segment`: what the text is part of, or without text what the token is.
    public let segment: Segment
    /// Whole UTF-8 sequences, perhaps empty.
    public let text: String
    /// That of `weir_logprob`. NaN of other events and where `nTop` of the options is 0.
    public let logprob: Float
    /// [`nTop`], the most probable first, of equals the lower id; the token itself need not be among them. nil where
    /// `nTop` is 0.
    public let top: [Logprob]
    init(_ raw: weir_event) {
        kind = EventKind(rawValue: raw.kind)
        token = raw.token
        index = Int(raw.index)
        nTokens = Int(raw.n_tokens)
        stop = StopReason(rawValue: raw.stop)
        stopIndex = Int(raw.stop_index)
        segment = Segment(rawValue: raw.segment)
        text = textOf(raw.text, raw.text_bytes)
        logprob = raw.logprob
        top = UnsafeBufferPointer(start: raw.top, count: Int(raw.n_top)).map(Logprob.init)
    }
    init(_ fill: Fill<weir_event>) throws(WeirError) { self.init(try .filled(fill)) }
}

/// Options of `weir_session_prompt` and `weir_session_prompt_tokens`.
public struct PromptOptions: Options, Sendable {
    /// `PromptFlags`.
    public var flags: PromptFlags
    /// Positions to leave free for what follows. Default 0.
    public var reserveTokens: Int
    /// Progress in the tokens that are read, and cancel; nil (default): none.
    public var progress: ProgressHandler?
    /// `weir_session_prompt` only: how messages are rendered; its progress must be nil. nil (default):
    /// `ChatFlags.addAssistant`.
    public var chat: ChatOptions?
    /// All defaults but for what is given.
    public init(flags: PromptFlags = [], reserveTokens: Int = 0, progress: ProgressHandler? = nil,
        chat: ChatOptions? = nil) {
        self.flags = flags
        self.reserveTokens = reserveTokens
        self.progress = progress
        self.chat = chat
    }
    func raw(_ call: Call) throws(WeirError) -> weir_prompt_options {
        var raw = weir_prompt_options()
        raw.struct_size = UInt32(MemoryLayout<weir_prompt_options>.size)
        raw.flags = flags.rawValue
        raw.reserve_tokens = try call.number(reserveTokens, "reserveTokens")
        if let progress { (call.progress, raw.progress, raw.progress_user) = (progress, progressHook, call.user) }
        if let chat { raw.chat = call.list([try chat.raw(call)]) }
        return raw
    }
}

/// What `weir_session_prompt` or `weir_session_prompt_tokens` did.
public struct PromptReport: Sendable {
    /// Tokens of the conversation now.
    public let nTokens: Int
    /// Those of the `nTokens` that were there and stayed.
    public let nKept: Int
    /// The others.
    public let nRead: Int
    /// Tokens that were in the session and are no more: thoughts, edited turns.
    public let nForgotten: Int
    /// Messages left out by `PromptFlags.dropOldest`, those behind the system messages.
    public let nMessagesDropped: Int
    /// Pages of the kept tokens that the next one would attend and the session has lost, summed over its streams:
    /// dropped by the policy, or behind a sliding window that has moved on. With `PromptFlags.measure` those that are
    /// lost already.
    public let pagesMissing: Int
    init(_ raw: weir_prompt_report) {
        nTokens = Int(raw.n_tokens)
        nKept = Int(raw.n_kept)
        nRead = Int(raw.n_read)
        nForgotten = Int(raw.n_forgotten)
        nMessagesDropped = Int(raw.n_messages_dropped)
        pagesMissing = Int(raw.pages_missing)
    }
}

/// Positions of a message's text in a conversation.
public struct TextSpan: Sendable {
    /// Position of the first token with text of the message.
    public let first: Int
    /// One past the last one; equal to first where the template leaves the text out, or writes it in another way.
    public let end: Int
    init(_ raw: weir_span) {
        first = Int(raw.first)
        end = Int(raw.end)
    }
}

extension Cancel {
    /// Stop the calls of the sessions that look at it, as `weir_session_cancel` stops them, those that run and all
    /// later ones until `weir_cancel_clear`: a call that ends because of it does not clear it, as it may serve several
    /// sessions.
    public func set() { weir_cancel_set(raw) }
}

extension Cancel {
    /// Let the calls of these sessions go on. As with `weir_session_clear_cancel`, whoever takes the clicks on a Stop
    /// button calls it when a new turn begins, before the thread that computes gets the turn.
    public func clear() { weir_cancel_clear(raw) }
}

extension Runtime {
    /// Memory that the runtime and everything made from it have allocated, on the host and on devices. Mapped model
    /// files are not included, copied ones are.
    public func memory() throws(WeirError) -> MemoryCounters { try .init { weir_runtime_memory(raw, $0) } }
}

extension Runtime {
    /// Number of threads that compute, the caller's included.
    public var threadCount: Int { Int(weir_runtime_thread_count(raw)) }
}

extension Runtime {
    /// Name of the CPU instruction set in use, such as "AVX3_DL" or "NEON".
    public var cpuTarget: String { String(cString: weir_runtime_cpu_target(raw)) }
}

extension Model {
    /// The special tokens of a model.
    public func specialTokens() throws(WeirError) -> SpecialTokens { try .init { weir_model_special_tokens(raw, $0) } }
}

extension Model {
    /// What the chat template of a model can do. Tags that it does not have are looked for in the vocabulary.
    public func chatInfo() throws(WeirError) -> ChatInfo { try .init { weir_model_chat_info(raw, $0) } }
}

extension Session {
    /// Forget the conversation: all pages are free, position 0, the sampler's random state starts anew, a pending
    /// cancel is cleared. Sampling options and counters stay. The session then does what a new one does, and nothing of
    /// the conversation can come into the next one. The host memory of tokens, text, logits, pages and their copies is
    /// wiped, as by `weir_session_restore`; that of a page that leaves the pool, as soon as it leaves. Memory that a
    /// device copies from and to is wiped by `weir_session_destroy`.
    public func reset() throws(WeirError) { try call { weir_session_reset($0) } }
}

extension Session {
    /// Append one token as a decode step and compute the logits after it. Allocates nothing.
    public func step(_ token: Token) throws(WeirError) { try call { weir_session_step($0, token) } }
}

extension Session {
    /// End the thought that is open: the next token of the answer begins its end, as
    /// `weir_generate_options.thinking_budget` does. Nothing happens where no thought is open when that token comes, or
    /// no answer has begun.
    public nonisolated func finishThinking() { handle.briefly { weir_session_finish_thinking($0) } }
}

extension Session {
    /// Stop the call that runs in this session, or else the next one: a prefill, prompt, step, generate or next, or a
    /// `weir_step_many` that has the session in its list. In a loop of `weir_session_sample` and steps of what it drew
    /// it is the next sample. A prefill ends before its next chunk (`batchTokens`), on the CPU and with attention on
    /// the host also between two layers of one; a GPU alone mostly finishes the chunk that it was given. A generate
    /// ends before its next token. The cancel stays until a call has ended with `Status.cancelled` because of it, or
    /// `weir_session_next` has given the end of an answer for it, or `weir_session_clear_cancel` or
    /// `weir_session_reset` takes it back. A call that fails for another reason, is stopped by its callback, or
    /// finishes because the cancel came too late, leaves it pending. For a Stop button that never hits the next turn:
    /// the thread that takes the clicks calls `weir_session_clear_cancel` when a new turn begins (the calls of the turn
    /// before have returned), and then hands the turn to the thread that computes. So a click that came after the end
    /// of the old turn has no effect. A click during the new turn counts, whichever of its calls is running, and also
    /// between two of them.
    public nonisolated func cancel() { handle.briefly { weir_session_cancel($0) } }
}

extension Session {
    /// Take a pending `weir_session_cancel` back; nothing happens when there is none.
    public nonisolated func clearCancel() { handle.briefly { weir_session_clear_cancel($0) } }
}

extension Session {
    /// Counters of the session.
    public nonisolated func stats() throws(WeirError) -> SessionStats { .init(try handle.read(weir_session_get_stats)) }
}

extension Session {
    /// Memory of the session.
    public nonisolated func memory() throws(WeirError) -> SessionMemory { .init(try handle.read(weir_session_memory)) }
}

extension Library {
    /// The names of all weight types, such as "q8_0": the types of tensors that this build computes with.
    public static var weightTypes: [String] {
        Array(sequence(state: UInt32(0)) { index in
            defer { index += 1 }
            return weir_weight_type_name(index).map { String(cString: $0) }
        })
    }
    /// The names of all policies, such as "raas": the values of `weir_session_options.policy`.
    public static var policies: [String] {
        Array(sequence(state: UInt32(0)) { index in
            defer { index += 1 }
            return weir_policy_name(index).map { String(cString: $0) }
        })
    }
    /// The names of all presets, such as "reason-fixed": the names that `weir_session_options_preset` takes.
    public static var presets: [String] {
        Array(sequence(state: UInt32(0)) { index in
            defer { index += 1 }
            return weir_preset_name(index).map { String(cString: $0) }
        })
    }
}

extension weir_alloc_info: SizedStruct {}
extension weir_log_info: SizedStruct {}
extension weir_runtime_options: SizedStruct {}
extension weir_memory_counters: SizedStruct {}
extension weir_device_info: SizedStruct {}
extension weir_progress_info: SizedStruct {}
extension weir_model_options: SizedStruct {}
extension weir_model_info: SizedStruct {}
extension weir_tensor_info: SizedStruct {}
extension weir_token_info: SizedStruct {}
extension weir_special_tokens: SizedStruct {}
extension weir_chat_options: SizedStruct {}
extension weir_tokenize_options: SizedStruct {}
extension weir_chat_info: SizedStruct {}
extension weir_session_options: SizedStruct {}
extension weir_plan_info: SizedStruct {}
extension weir_memory_info: SizedStruct {}
extension weir_session_stats: SizedStruct {}
extension weir_sampling_options: SizedStruct {}
extension weir_token_event: SizedStruct {}
extension weir_generate_options: SizedStruct {}
extension weir_generate_result: SizedStruct {}
extension weir_event: SizedStruct {}
extension weir_prompt_options: SizedStruct {}
extension weir_prompt_report: SizedStruct {}
extension weir_mask_info: SizedStruct {}
extension weir_write_info: SizedStruct {}
extension weir_read_info: SizedStruct {}

extension Library {
    /// Version of this package: that of the headers which it was written from.
    public static let bindingVersion = "1.1.0"
}
