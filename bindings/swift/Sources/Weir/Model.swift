// Runtime and model, which any number of threads share, and what is made of a model besides sessions.
import CWeir
import Synchronization

/// Worker threads, backends and hooks. One per process is usual. It lives as long as anything that was made from it.
public final class Runtime: Sendable {
    nonisolated(unsafe) let raw: OpaquePointer
    private let hooks = Call()

    /// Starts it. Fails with both versions in the message where the library is not of the version of this package.
    public init(_ options: RuntimeOptions = .init()) throws(WeirError) {
        try Library.check()
        var given = try options.raw(hooks)
        raw = try made { weir_runtime_create(&given, $0) }
    }
    deinit { weir_runtime_destroy(raw) }

    /// The devices of this machine, usable or not.
    public func devices() throws(WeirError) -> [DeviceInfo] {
        try listed(weir_device_info.sized) { weir_runtime_devices(raw, $0, $1, $2) }.map(DeviceInfo.init)
    }
    /// Renders a chat template (Jinja, or the name of a built-in one) with a JSON object of variables.
    public func render(template: String, variables: String = "{}", unixTime: Int = 0) throws(WeirError) -> String {
        let call = Call(), text = call.copy(template), values = call.copy(variables), time = Int64(unixTime)
        defer { withExtendedLifetime(call) {} }
        return try listedText {
            weir_template_render(raw, text.text, text.bytes, values.text, values.bytes, time, $0, $1, $2)
        }
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
}

extension Message {
    public static func system(_ content: String) -> Message { Message(role: "system", content: content) }
    public static func user(_ content: String) -> Message { Message(role: "user", content: content) }
    public static func assistant(_ content: String) -> Message { Message(role: "assistant", content: content) }
}

/// Weights and tokenizer of one GGUF file. Immutable: any number of sessions and threads share it.
public final class Model: Sendable {
    nonisolated(unsafe) let raw: OpaquePointer
    /// What it was opened with.
    public let runtime: Runtime
    /// Facts about it.
    public let info: ModelInfo

    /// Opens a file, on the calling thread; ``open(_:runtime:options:)`` is for tasks.
    public init(_ path: String, runtime: Runtime, options: ModelOptions = .init()) throws {
        let raw = try options.passClosures { given, call throws(WeirError) in
            let path = try call.text(path, "path")
            return try made { weir_model_open(runtime.raw, path, given, $0) }
        }
        (self.raw, self.runtime, info) = (raw, runtime, try ModelInfo { weir_model_get_info(raw, $0) })
    }
    /// Opens a file on a thread that no other task needs. Cancelling the task stops it.
    public static func open(_ path: String, runtime: Runtime, options: ModelOptions = .init()) async throws -> Model {
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
        return try TensorInfo { weir_model_tensor_info(raw, index, $0) }
    }
    /// The keys of the file and their values as text.
    public func metadata() throws(WeirError) -> [(key: String, value: String)] {
        try (0..<weir_model_metadata_count(raw)).map { i throws(WeirError) in
            var key: UnsafePointer<CChar>?
            let value = try listedText { weir_model_metadata(raw, i, &key, $0, $1, $2) }
            return (String(cString: key!), value)
        }
    }
    /// One token of the vocabulary.
    public func token(_ id: Token) throws(WeirError) -> TokenInfo { try .init { weir_token_get_info(raw, id, $0) } }

    /// Turns text into tokens.
    public func tokenize(_ text: String, _ options: TokenizeOptions = .init()) throws -> [Token] {
        try tokenize(bytes: Array(text.utf8), options)
    }
    /// The same of bytes, which need not be valid UTF-8.
    public func tokenize(bytes: [UInt8], _ options: TokenizeOptions = .init()) throws -> [Token] {
        try options.passClosures { given, call throws(WeirError) in
            let text = call.list(bytes.map { CChar(bitPattern: $0) }), n = UInt64(bytes.count)
            return try listed(Token(0), guess: bytes.count + 2) {
                weir_tokenize_with(raw, text, n, given, $0, $1, $2)
            }
        }
    }
    /// The bytes that tokens stand for; `String(decoding:as:)` makes them text. Of one token after the other, see
    /// ``Detokenizer``.
    public func detokenize(_ tokens: [Token], flags: DetokenizeFlags = []) throws(WeirError) -> [UInt8] {
        let n = UInt64(tokens.count)
        return try listedBytes(guess: tokens.count * 8) { weir_detokenize(raw, tokens, n, flags.rawValue, $0, $1, $2) }
    }
    /// Turns a conversation into tokens by the model's chat template.
    public func chatTokens(_ messages: [Message], _ options: ChatOptions = .init()) throws -> [Token] {
        try options.passClosures { given, call throws(WeirError) in
            let list = try call.messages(messages), n = UInt64(messages.count)
            return try listed(Token(0), guess: 4096) { weir_chat_tokenize(raw, list, n, given, $0, $1, $2) }
        }
    }
    /// Renders a conversation as text to look at; ``chatTokens(_:_:)`` is for sessions.
    public func chatText(_ messages: [Message], _ options: ChatOptions = .init()) throws(WeirError) -> String {
        try options.pass { given, call throws(WeirError) in
            let list = try call.messages(messages), n = UInt64(messages.count)
            return try listedText { weir_chat_render_with(raw, list, n, given, $0, $1, $2) }
        }
    }

    /// The exact bytes of a session with these options. Allocates nothing.
    public func plan(_ options: SessionOptions = .init()) throws(WeirError) -> Plan {
        try options.pass { given, _ throws(WeirError) in try Plan { weir_plan(raw, given, $0) } }
    }
    /// Chooses what is 0 of context, budget and spill memory, so that the plan takes at most `bytes`.
    public func fit(_ options: SessionOptions, bytes: Int) throws(WeirError) -> SessionOptions {
        try options.pass { given, call throws(WeirError) in
            try check(weir_session_options_fit(raw, try call.number(bytes, "bytes"), given))
            return SessionOptions(given.pointee)
        }
    }
    /// Creates a session on a thread that no other task needs; `Session(model:options:)` does it on the caller's.
    public func session(_ options: SessionOptions = .init()) async throws -> Session {
        try await onOwnThread { try Session(model: self, options: options) }
    }
}

extension SessionOptions {
    /// Policy, budget and policy options of a preset, one of ``Library/presets``.
    public init(preset: String) throws(WeirError) {
        self = try SessionOptions().pass { given, call throws(WeirError) in
            try check(weir_session_options_preset(try call.text(preset, "preset"), given))
            return SessionOptions(given.pointee)
        }
    }
}

/// A compiled constraint, for any number of sessions of its model (``Session/setConstraint(_:segments:)``).
public final class Constraint: Sendable {
    nonisolated(unsafe) let raw: OpaquePointer
    private let model: Model
    /// Compiles it; `text` is a schema, a grammar or a list of tools, as the kind says.
    public init(_ kind: ConstraintKind, _ text: String = "", model: Model) throws(WeirError) {
        let call = Call(), text = text.isEmpty ? weir_text() : call.copy(text)
        defer { withExtendedLifetime(call) {} }
        (raw, self.model) = (
            try made { weir_constraint_create(model.raw, kind.rawValue, text.text, text.bytes, $0) }, model)
    }
    deinit { weir_constraint_destroy(raw) }
}

/// Turns tokens into text piece by piece, never splitting a character. Not for two threads at once.
public final class Detokenizer {
    private let raw: OpaquePointer
    private let model: Model
    public init(_ model: Model, flags: DetokenizeFlags = []) throws(WeirError) {
        (raw, self.model) = (try made { weir_detokenizer_create(model.raw, flags.rawValue, $0) }, model)
    }
    deinit { weir_detokenizer_destroy(raw) }
    /// The text that is complete with this token.
    public func push(_ id: Token) throws(WeirError) -> String { try text { weir_detokenizer_push(raw, id, $0, $1) } }
    /// Ends the text: what is incomplete comes out as U+FFFD.
    public func flush() throws(WeirError) -> String { try text { weir_detokenizer_flush(raw, $0, $1) } }
    private func text(
        _ next: (UnsafeMutablePointer<UnsafePointer<CChar>?>, UnsafeMutablePointer<UInt64>) -> weir_status
    ) throws(WeirError) -> String { String(decoding: UnsafeRawBufferPointer(try lent(next)), as: UTF8.self) }
}
