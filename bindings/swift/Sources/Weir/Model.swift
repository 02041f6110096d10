// Runtime and model, which any number of threads share, and what is made of a model besides sessions.
import CWeir
import Synchronization

/// Worker threads, backends and hooks. One per process is usual. It lives as long as anything that was made from it.
public final class Runtime: Sendable {
    nonisolated(unsafe) let raw: OpaquePointer
    private let hooks: Call

    /// Starts it. Fails with both versions in the message where the library is not of the version of this package.
    public init(_ options: RuntimeOptions = RuntimeOptions()) throws(WeirError) {
        try Library.check()
        hooks = Call()
        var given = try options.raw(hooks)
        raw = try made { weir_runtime_create(&given, $0) }
    }
    deinit { weir_runtime_destroy(raw) }

    /// What it and everything made from it have allocated.
    public var memory: MemoryCounters {
        get throws(WeirError) { MemoryCounters(try .filled { weir_runtime_memory(raw, $0) }) }
    }
    /// Threads that compute, the caller's included.
    public var threadCount: Int { Int(weir_runtime_thread_count(raw)) }
    /// The CPU instruction set in use, such as "AVX3_DL".
    public var cpuTarget: String { String(cString: weir_runtime_cpu_target(raw)) }
    /// The devices of this machine, usable or not.
    public var devices: [DeviceInfo] {
        get throws(WeirError) {
            try listed(weir_device_info.sized) { weir_runtime_devices(raw, $0, $1, $2) }.map(DeviceInfo.init)
        }
    }
    /// Renders a chat template (Jinja, or the name of a built-in one) with a JSON object of variables.
    public func render(template: String, variables: String = "{}", unixTime: Int = 0) throws(WeirError) -> String {
        let call = Call(), text = call.copy(template), values = call.copy(variables)
        return String(decoding: try listedBytes { (out, n, nOut) in
            weir_template_render(raw, text.text, text.bytes, values.text, values.bytes, Int64(unixTime), out, n, nOut)
        }, as: UTF8.self)
    }
}

/// Stops the calls of all sessions that it is given to (``Session/setCancel(_:)``), at any time, from any thread.
public final class Cancel: Sendable {
    nonisolated(unsafe) let raw: OpaquePointer
    public init() throws(WeirError) {
        try Library.check()
        raw = try made { weir_cancel_create($0) }
    }
    deinit { weir_cancel_release(raw) }
    /// Stops the calls that run and all later ones, until ``clear()``.
    public func set() { weir_cancel_set(raw) }
    /// Lets them go on.
    public func clear() { weir_cancel_clear(raw) }
}

/// One message of a conversation.
public struct Message: Sendable, Hashable {
    /// "system", "user" or "assistant"; also "tool" and "developer" where the template has words for them.
    public var role: String
    public var content: String
    /// Of an answer: what the model thought before it, without tags.
    public var thought: String?
    /// Of an answer: the calls of tools in it, a JSON list.
    public var toolCalls: String?
    /// Of a tool's result: the call that it answers.
    public var toolCallID: String?
    /// Of a tool's result: the tool; else of who speaks.
    public var name: String?

    public init(role: String, content: String, thought: String? = nil, toolCalls: String? = nil,
                toolCallID: String? = nil, name: String? = nil) {
        (self.role, self.content, self.thought) = (role, content, thought)
        (self.toolCalls, self.toolCallID, self.name) = (toolCalls, toolCallID, name)
    }
    public static func system(_ content: String) -> Message { Message(role: "system", content: content) }
    public static func user(_ content: String) -> Message { Message(role: "user", content: content) }
    public static func assistant(_ content: String) -> Message { Message(role: "assistant", content: content) }
    public static func tool(_ content: String, name: String? = nil, callID: String? = nil) -> Message {
        Message(role: "tool", content: content, toolCallID: callID, name: name)
    }
}

/// Weights and tokenizer of one GGUF file. Immutable: any number of sessions and threads share it.
public final class Model: Sendable {
    nonisolated(unsafe) let raw: OpaquePointer
    /// What it was opened with.
    public let runtime: Runtime
    /// Facts about it.
    public let info: ModelInfo

    /// Opens a file, on the calling thread; ``open(_:runtime:options:)`` is for tasks.
    public init(_ path: String, runtime: Runtime, options: ModelOptions = ModelOptions()) throws {
        let call = Call()
        var given = try options.raw(call)
        let cPath = try call.text(path, "path")
        raw = try call.rethrowing { try made { weir_model_open(runtime.raw, cPath, &given, $0) } }
        self.runtime = runtime
        info = ModelInfo(try .filled { [raw] in weir_model_get_info(raw, $0) })
    }
    /// Opens a file on a thread that no other task needs. Cancelling the task stops it.
    public static func open(_ path: String, runtime: Runtime, options: ModelOptions = ModelOptions()) async throws
        -> Model {
        let isCancelled = Mutex(false)
        var options = options
        options.progress = { [progress = options.progress] now in
            if isCancelled.withLock({ $0 }) { throw CancellationError() }
            try progress?(now)
        }
        return try await withTaskCancellationHandler { [options] in
            try await onOwnThread { try Model(path, runtime: runtime, options: options) }
        } onCancel: {
            isCancelled.withLock { $0 = true }
        }
    }
    deinit { weir_model_close(raw) }

    /// Tensor number `index` in the order of the file.
    public func tensor(_ index: Int) throws(WeirError) -> TensorInfo {
        let index: UInt32 = try Call().number(index, "index")
        return TensorInfo(try .filled { weir_model_tensor_info(raw, index, $0) })
    }
    /// The keys of the file and their values as text.
    public var metadata: [(key: String, value: String)] {
        get throws(WeirError) {
            var entries: [(key: String, value: String)] = []
            for i in 0..<weir_model_metadata_count(raw) {
                var key: UnsafePointer<CChar>?
                let value = try listedBytes { weir_model_metadata(raw, i, &key, $0, $1, $2) }
                entries.append((String(cString: key!), String(decoding: value, as: UTF8.self)))
            }
            return entries
        }
    }
    /// Tokens with a special meaning.
    public var specialTokens: SpecialTokens {
        get throws(WeirError) { SpecialTokens(try .filled { weir_model_special_tokens(raw, $0) }) }
    }
    /// What the chat template can do.
    public var chatInfo: ChatInfo {
        get throws(WeirError) { ChatInfo(try .filled { weir_model_chat_info(raw, $0) }) }
    }
    /// One token of the vocabulary.
    public func token(_ token: Token) throws(WeirError) -> TokenInfo {
        TokenInfo(try .filled { weir_token_get_info(raw, token, $0) })
    }

    /// Turns text into tokens.
    public func tokenize(_ text: String, _ options: TokenizeOptions = TokenizeOptions()) throws -> [Token] {
        try tokenize(bytes: Array(text.utf8), options)
    }
    /// The same of bytes, which need not be valid UTF-8.
    public func tokenize(bytes: [UInt8], _ options: TokenizeOptions = TokenizeOptions()) throws -> [Token] {
        let call = Call()
        var given = try options.raw(call)
        return try call.rethrowing {
            try bytes.withUnsafeBytes { text in
                try listed(Token(0), guess: text.count + 2) { (out, n: UInt64, nOut) in
                    weir_tokenize_with(raw, text.baseAddress?.assumingMemoryBound(to: CChar.self), UInt64(text.count),
                                       &given, out, n, nOut)
                }
            }
        }
    }
    /// The bytes that tokens stand for; `String(decoding:as:)` makes them text. Of one token after the other, see
    /// ``Detokenizer``.
    public func detokenize(_ tokens: [Token], flags: DetokenizeFlags = []) throws(WeirError) -> [UInt8] {
        try listedBytes(guess: tokens.count * 8) {
            weir_detokenize(raw, tokens, UInt64(tokens.count), flags.rawValue, $0, $1, $2)
        }
    }
    /// Turns a conversation into tokens by the model's chat template.
    public func chatTokens(_ messages: [Message], _ options: ChatOptions = ChatOptions()) throws -> [Token] {
        let call = Call(), list = try call.messages(messages)
        var given = try options.raw(call)
        return try call.rethrowing {
            try listed(Token(0), guess: 4096) { (out, n: UInt64, nOut) in
                weir_chat_tokenize(raw, list, UInt64(messages.count), &given, out, n, nOut)
            }
        }
    }
    /// Renders a conversation as text to look at; ``chatTokens(_:_:)`` is for sessions.
    public func chatText(_ messages: [Message], _ options: ChatOptions = ChatOptions()) throws(WeirError) -> String {
        let call = Call(), list = try call.messages(messages)
        var given = try options.raw(call)
        return String(decoding: try listedBytes { (out, n, nOut) in
            weir_chat_render_with(raw, list, UInt64(messages.count), &given, out, n, nOut)
        }, as: UTF8.self)
    }

    /// The exact bytes of a session with these options. Allocates nothing.
    public func plan(_ options: SessionOptions = SessionOptions()) throws(WeirError) -> Plan {
        let call = Call()
        var given = try options.raw(call)
        return Plan(try .filled { weir_plan(raw, &given, $0) })
    }
    /// Chooses what is 0 of context, budget and spill memory, so that the plan takes at most `bytes`.
    public func fit(_ options: SessionOptions, bytes: Int) throws(WeirError) -> SessionOptions {
        let call = Call()
        var given = try options.raw(call), fitted = options
        try WeirError.check(weir_session_options_fit(raw, try call.number(bytes, "bytes"), &given))
        fitted.read(given)
        return fitted
    }
    /// Creates a session on a thread that no other task needs; `Session(model:options:)` does it on the caller's.
    public func session(_ options: SessionOptions = SessionOptions()) async throws -> Session {
        try await onOwnThread { try Session(model: self, options: options) }
    }
}

extension SessionOptions {
    /// Policy, budget and policy options of a preset, one of ``Library/presets``.
    public init(preset: String) throws(WeirError) {
        self.init()
        let call = Call()
        var given = try raw(call)
        try WeirError.check(weir_session_options_preset(try call.text(preset, "preset"), &given))
        read(given)
    }
}

/// A compiled constraint, for any number of sessions of its model (``Session/setConstraint(_:segments:)``).
public final class Constraint: Sendable {
    nonisolated(unsafe) let raw: OpaquePointer
    private let model: Model
    /// Compiles it; `text` is a schema, a grammar or a list of tools, as the kind says.
    public init(_ kind: ConstraintKind, _ text: String = "", model: Model) throws(WeirError) {
        let call = Call(), text = text.isEmpty ? weir_text() : call.copy(text)
        self.model = model
        raw = try made { weir_constraint_create(model.raw, kind.rawValue, text.text, text.bytes, $0) }
    }
    deinit { weir_constraint_destroy(raw) }
}

/// Turns tokens into text piece by piece, never splitting a character. Not for two threads at once.
public final class Detokenizer {
    private let raw: OpaquePointer
    private let model: Model
    public init(_ model: Model, flags: DetokenizeFlags = []) throws(WeirError) {
        self.model = model
        raw = try made { weir_detokenizer_create(model.raw, flags.rawValue, $0) }
    }
    deinit { weir_detokenizer_destroy(raw) }
    /// The text that is complete with this token.
    public func push(_ token: Token) throws(WeirError) -> String {
        var (text, n): (UnsafePointer<CChar>?, UInt64) = (nil, 0)
        try WeirError.check(weir_detokenizer_push(raw, token, &text, &n))
        return textOf(text, n)
    }
    /// Ends the text: what is incomplete comes out as U+FFFD.
    public func flush() throws(WeirError) -> String {
        var (text, n): (UnsafePointer<CChar>?, UInt64) = (nil, 0)
        try WeirError.check(weir_detokenizer_flush(raw, &text, &n))
        return textOf(text, n)
    }
}
