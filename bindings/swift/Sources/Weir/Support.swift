// What every other file uses: errors, and the memory and closures of one call of the C API.
import CWeir
import Dispatch

/// A token id of a model; negative means none.
public typealias Token = weir_token

/// A call of Weir that failed.
public struct WeirError: Error, Sendable, CustomStringConvertible {
    /// Which kind of error.
    public let status: Status
    /// What went wrong, in one line that names the thing at fault.
    public let message: String
    /// Both, such as `WEIR_ERR_NOT_FOUND: there is no policy "x"`.
    public var description: String { "\(String(cString: weir_status_name(status.rawValue))): \(message)" }

    init(_ status: Status, _ message: String) { (self.status, self.message) = (status, message) }

    /// Throws what has failed. The text is the calling thread's, so nothing may be awaited between call and check.
    static func check(_ code: weir_status) throws(WeirError) {
        if code != 0 { throw WeirError(Status(rawValue: code), String(cString: weir_last_error())) }
    }
}

/// The library that is loaded.
public enum Library {
    /// Its version, such as "1.1.0".
    public static var version: String { String(cString: weir_version_string()) }
    /// What ``SessionOptions/policy`` can be.
    public static var policies: [String] { names(weir_policy_name) }
    /// What ``SessionOptions/init(preset:)`` takes.
    public static var presets: [String] { names(weir_preset_name) }
    /// Types of weights that it computes with.
    public static var weightTypes: [String] { names(weir_weight_type_name) }

    private static func names(_ name: (UInt32) -> UnsafePointer<CChar>?) -> [String] {
        var found: [String] = []
        while let next = name(UInt32(found.count)) { found.append(String(cString: next)) }
        return found
    }

    /// Refuses a library that lacks functions of the headers, or has others.
    static func check(_ loaded: UInt32 = weir_version(), _ text: String = version) throws(WeirError) {
        if loaded >> 16 == WEIR_VERSION_MAJOR && (loaded >> 8) & 255 >= WEIR_VERSION_MINOR { return }
        throw WeirError(.unsupported, "the library that is loaded is Weir \(text), and this binding is of version "
                        + "\(bindingVersion): install a library of that version or a later 1.x, or rebuild")
    }
}

/// Receives progress; what it throws stops the call and comes out of it.
public typealias ProgressHandler = @Sendable (Progress) throws -> Void
/// Receives log lines, on the thread of the call that writes them.
public typealias LogHandler = @Sendable (LogLine) -> Void
/// Receives each token of ``Session/generate(_:onToken:)``; what it throws stops the answer and comes out of the call.
public typealias TokenHandler = @Sendable (TokenEvent) throws -> Void
/// Decides which tokens may be drawn next; what it throws ends the call that draws and comes out of it.
public typealias MaskHandler = @Sendable (inout TokenMask) throws -> Void

/// Gives Weir its memory, on any thread. The rules are those of `weir_alloc_fn`.
public protocol Allocator: Sendable {
    /// Memory as it is asked for; nil or an error refuses it.
    func allocate(_ request: AllocationRequest) throws -> UnsafeMutableRawPointer?
    /// Takes `request.ptr` back.
    func free(_ request: AllocationRequest)
}

/// Which tokens may be drawn next, for a ``MaskHandler``.
public struct TokenMask {
    let info: weir_mask_info
    /// Tokens of the model.
    public var count: Int { Int(info.vocab_size) }
    /// Tokens of the answer so far.
    public var answer: [Token] { Array(UnsafeBufferPointer(start: info.tokens, count: Int(info.n_tokens))) }
    /// Whether a token may be drawn; at first all that the session's constraint allows.
    public subscript(token: Token) -> Bool {
        get { info.words[Int(token) >> 5] & (1 << UInt32(token & 31)) != 0 }
        set {
            precondition(token >= 0 && token < info.vocab_size, "no token of the model")
            if newValue { info.words[Int(token) >> 5] |= 1 << UInt32(token & 31) }
            else { info.words[Int(token) >> 5] &= ~(1 << UInt32(token & 31)) }
        }
    }
    /// Forbids all tokens but these.
    public mutating func allowOnly(_ tokens: some Sequence<Token>) {
        let allowed = tokens.filter { self[$0] }
        info.words.update(repeating: 0, count: (count + 31) / 32)
        for token in allowed { self[token] = true }
    }
}

// MARK: - Inside

protocol SizedStruct { init(); var struct_size: UInt32 { get set } }
extension SizedStruct {
    static var sized: Self {
        var value = Self()
        value.struct_size = UInt32(MemoryLayout<Self>.size)
        return value
    }
    /// What a function of C fills.
    static func filled(_ fill: (UnsafeMutablePointer<Self>) -> weir_status) throws(WeirError) -> Self {
        var value = sized
        try WeirError.check(fill(&value))
        return value
    }
}

/// A list whose length the library knows. `guess` is what the first call has room for.
func listed<T, N: FixedWidthInteger>(
    _ blank: T, guess: Int = 0, _ fill: (UnsafeMutablePointer<T>?, N, UnsafeMutablePointer<N>) -> weir_status
) throws(WeirError) -> [T] {
    var (capacity, n) = (N(guess), N(0))
    while true {
        var items = [T](repeating: blank, count: Int(capacity))
        let code = items.withUnsafeMutableBufferPointer { fill($0.isEmpty ? nil : $0.baseAddress, capacity, &n) }
        if code == Status.bufferTooSmall.rawValue && n >= capacity { capacity = n + 1; continue }
        try WeirError.check(code)
        items.removeLast(items.count - Int(n))
        return items
    }
}

/// The same of bytes.
func listedBytes(
    guess: Int = 4096, _ fill: (UnsafeMutablePointer<CChar>?, UInt64, UnsafeMutablePointer<UInt64>) -> weir_status
) throws(WeirError) -> [UInt8] {
    try listed(CChar(0), guess: guess, fill).map { UInt8(bitPattern: $0) }
}

func made(_ make: (UnsafeMutablePointer<OpaquePointer?>) -> weir_status) throws(WeirError) -> OpaquePointer {
    var out: OpaquePointer?
    try WeirError.check(make(&out))
    return out!
}

func bytesOf(_ start: UnsafePointer<CChar>?, _ n: UInt64) -> [UInt8] {
    Array(UnsafeRawBufferPointer(start: start, count: Int(n)))
}
func textOf(_ start: UnsafePointer<CChar>?, _ n: UInt64) -> String {
    String(decoding: UnsafeRawBufferPointer(start: start, count: Int(n)), as: UTF8.self)
}
func textIn<T>(_ array: T) -> String {
    withUnsafeBytes(of: array) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
}

/// Runs what takes long outside of the threads that Swift's tasks share.
func onOwnThread<T: Sendable>(_ body: @escaping @Sendable () throws -> T) async throws -> T {
    try await withCheckedThrowingContinuation { waiting in
        DispatchQueue.global().async { waiting.resume(with: Result { try body() }) }
    }
}

/// What one call of the C API needs while it runs: copies of texts and lists, the closures that it calls back, and what
/// they threw. Hooks that outlive a call have one of their own.
final class Call: @unchecked Sendable {
    var progress: ProgressHandler?
    var log: LogHandler?
    var onToken: TokenHandler?
    var mask: MaskHandler?
    var write: ((UnsafeRawBufferPointer) throws -> Void)?
    var read: ((UnsafeMutableRawBufferPointer) throws -> Int)?
    var allocator, deviceAllocator: (any Allocator)?
    private var caught: (any Error)?
    private var memory: [UnsafeMutableRawPointer] = []

    deinit { for block in memory { block.deallocate() } }

    var user: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }

    static func of(_ user: UnsafeMutableRawPointer?) -> Call {
        Unmanaged<Call>.fromOpaque(user!).takeUnretainedValue()
    }
    /// For C functions: runs a closure of the application, and keeps what it throws.
    static func back(_ user: UnsafeMutableRawPointer?, _ body: (Call) throws -> Void) -> weir_status {
        let call = of(user)
        do { try body(call) } catch {
            call.caught = error
            return Status.cancelled.rawValue
        }
        return 0
    }
    /// What a closure has thrown since the last time.
    func takeCaught() -> (any Error)? {
        defer { caught = nil }
        return caught
    }
    /// Throws what a closure threw rather than what the library says about it.
    func rethrowing<R>(_ body: () throws -> R) throws -> R {
        do { return try body() } catch { throw takeCaught() ?? error }
    }

    func allocator(for request: AllocationRequest) -> (any Allocator)? {
        request.kind == .device ? deviceAllocator : allocator
    }
    func list<T>(_ items: [T]) -> UnsafePointer<T>? {
        if items.isEmpty { return nil }
        let block = UnsafeMutablePointer<T>.allocate(capacity: items.count)
        block.initialize(from: items, count: items.count)
        memory.append(block)
        return UnsafePointer(block)
    }
    /// A copy with its length, and NUL behind it.
    func copy(_ text: String) -> weir_text {
        let bytes = text.utf8.map { CChar(bitPattern: $0) }
        return weir_text(text: list(bytes + [0]), bytes: UInt64(bytes.count))
    }
    /// A copy that ends with NUL, in which there is no other.
    func text(_ text: String?, _ name: StaticString) throws(WeirError) -> UnsafePointer<CChar>? {
        guard let text else { return nil }
        if text.utf8.contains(0) { throw WeirError(.invalidArg, "\(name): a text with a NUL character inside") }
        return copy(text).text
    }
    func number<T: FixedWidthInteger>(_ value: Int, _ name: StaticString) throws(WeirError) -> T {
        guard let exact = T(exactly: value) else { throw WeirError(.invalidArg, "\(name): \(value) is out of range") }
        return exact
    }
    func texts(_ texts: [String]) -> (UnsafePointer<weir_text>?, UInt32) {
        (list(texts.map(copy)), UInt32(texts.count))
    }
    func biases(_ biases: [Token: Float]) -> (UnsafePointer<weir_token_bias>?, UInt32) {
        (list(biases.map { weir_token_bias(token: $0, bias: $1) }), UInt32(biases.count))
    }
    func pairs(_ pairs: [String: String]) throws(WeirError) -> (UnsafePointer<weir_key_value>?, UInt32) {
        var items: [weir_key_value] = []
        for (key, value) in pairs.sorted(by: { $0.key < $1.key }) {
            items.append(weir_key_value(key: try text(key, "policyOptions"), value: try text(value, "policyOptions")))
        }
        return (list(items), UInt32(items.count))
    }
    func messages(_ messages: [Message]) throws(WeirError) -> UnsafePointer<weir_chat_message>? {
        var items: [weir_chat_message] = []
        for message in messages {
            let content = copy(message.content), thought = message.thought.map(copy)
            items.append(weir_chat_message(
                role: try text(message.role, "role"), content: content.text, content_bytes: content.bytes,
                thought: thought?.text, thought_bytes: thought?.bytes ?? 0,
                tool_calls_json: try text(message.toolCalls, "toolCalls"),
                tool_call_id: try text(message.toolCallID, "toolCallID"), name: try text(message.name, "name")))
        }
        return list(items)
    }
}

let progressHook: weir_progress_fn = { user, info in Call.back(user) { try $0.progress?(Progress(info!.pointee)) } }
let logHook: weir_log_fn = { user, info in Call.back(user) { $0.log?(LogLine(info!.pointee)) } }
let tokenHook: weir_token_fn = { user, info in Call.back(user) { try $0.onToken?(TokenEvent(info!.pointee)) } }
let maskHook: weir_mask_fn = { user, info in
    Call.back(user) { call in
        var mask = TokenMask(info: info!.pointee)
        try call.mask?(&mask)
    }
}
let writeHook: weir_write_fn = { user, info in
    let bytes = UnsafeRawBufferPointer(start: info!.pointee.data, count: Int(info!.pointee.n_bytes))
    return Call.back(user) { try $0.write?(bytes) }
}
let readHook: weir_read_fn = { user, info, nRead in
    Call.back(user) { call in
        let room = UnsafeMutableRawBufferPointer(start: info!.pointee.data, count: Int(info!.pointee.n_bytes))
        let n = try call.read?(room) ?? 0
        if n < 0 || n > room.count { throw WeirError(.invalidArg, "\(n) bytes were read where \(room.count) fit") }
        nRead!.pointee = UInt64(n)
    }
}
let allocHook: weir_alloc_fn = { user, info, out in
    let request = AllocationRequest(info!.pointee)
    guard let memory = try? Call.of(user).allocator(for: request)?.allocate(request) else {
        return Status.outOfMemory.rawValue
    }
    out!.pointee = memory
    return 0
}
let freeHook: weir_free_fn = { user, info in
    let request = AllocationRequest(info!.pointee)
    Call.of(user).allocator(for: request)?.free(request)
    return 0
}
