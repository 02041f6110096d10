// Between C and Swift, for Generated.swift and the files that use it: statuses, lists, texts, the memory of a call, and
// the C functions that call closures. Nothing here is public.
import CWeir

/// Throws what has failed. The text is the calling thread's, so nothing may be awaited between call and check.
func check(_ code: weir_status) throws(WeirError) {
    if code != 0 { throw WeirError(Status(rawValue: code), String(cString: weir_last_error())) }
}
/// A handle that a function of C makes.
typealias Making = (UnsafeMutablePointer<OpaquePointer?>) throws(WeirError) -> weir_status
func made(_ make: Making) throws(WeirError) -> OpaquePointer {
    var out: OpaquePointer?
    try check(try make(&out))
    return out!
}
/// A list whose length the library knows. `guess` is what the first call has room for.
func listed<T, N: FixedWidthInteger>(
    _ blank: T, guess: Int = 0, _ fill: (UnsafeMutablePointer<T>?, N, UnsafeMutablePointer<N>) -> weir_status
) throws(WeirError) -> [T] {
    var (capacity, n) = (N(guess), N(0))
    while true {
        var items = [T](repeating: blank, count: Int(capacity))
        let code = items.withUnsafeMutableBufferPointer { fill($0.isEmpty ? nil : $0.baseAddress, capacity, &n) }
        if code == Status.bufferTooSmall.rawValue && n >= capacity {
            capacity = n + 1
        } else {
            try check(code)
            return Array(items.prefix(Int(n)))
        }
    }
}
typealias Bytes = (UnsafeMutablePointer<CChar>?, UInt64, UnsafeMutablePointer<UInt64>) -> weir_status
func listedBytes(guess: Int = 4096, _ fill: Bytes) throws(WeirError) -> [UInt8] {
    try listed(CChar(0), guess: guess, fill).map { UInt8(bitPattern: $0) }
}
func listedText(_ fill: Bytes) throws(WeirError) -> String { String(decoding: try listedBytes(fill), as: UTF8.self) }

/// What the library lends until the next call of the same object.
func lent<T, N: FixedWidthInteger>(
    _ read: (UnsafeMutablePointer<UnsafePointer<T>?>, UnsafeMutablePointer<N>) -> weir_status
) throws(WeirError) -> UnsafeBufferPointer<T> {
    var (start, n): (UnsafePointer<T>?, N) = (nil, 0)
    try check(read(&start, &n))
    return UnsafeBufferPointer(start: start, count: Int(n))
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

typealias Fill<T> = (UnsafeMutablePointer<T>) -> weir_status
typealias Reading<T> = (OpaquePointer, UnsafeMutablePointer<T>) -> weir_status
protocol SizedStruct { init(); var struct_size: UInt32 { get set } }
extension SizedStruct {
    static var sized: Self {
        var value = Self()
        value.struct_size = UInt32(MemoryLayout<Self>.size)
        return value
    }
    static func filled(_ fill: Fill<Self>) throws(WeirError) -> Self {
        var value = sized
        try check(fill(&value))
        return value
    }
}

protocol Options { associatedtype Raw; func raw(_ call: Call) throws(WeirError) -> Raw }
extension Options {
    /// Makes one call with these options.
    func pass<R>(
        to call: Call = Call(), _ body: (UnsafeMutablePointer<Raw>, Call) throws(WeirError) -> R
    ) throws(WeirError) -> R {
        defer { withExtendedLifetime(call) {} }
        var given = try raw(call)
        return try body(&given, call)
    }
    /// The same, if closures are among them: what they throw comes out.
    func passClosures<R>(_ body: (UnsafeMutablePointer<Raw>, Call) throws(WeirError) -> R) throws -> R {
        let call = Call()
        return try call.rethrowing { () throws(WeirError) in try pass(to: call, body) }
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

    init(_ set: (Call) -> Void = { _ in }) { set(self) }
    deinit { for block in memory { block.deallocate() } }

    var user: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }
    static func of(_ user: UnsafeMutableRawPointer?) -> Call { Unmanaged.fromOpaque(user!).takeUnretainedValue() }

    /// For C functions: runs a closure of the application, and keeps what it throws.
    static func back(_ user: UnsafeMutableRawPointer?, _ body: (Call) throws -> Void) -> weir_status {
        let call = of(user)
        do { try body(call) } catch { call.caught = error }
        return call.caught == nil ? 0 : Status.cancelled.rawValue
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
    func messages(_ messages: [Message]) throws(WeirError) -> UnsafePointer<weir_chat_message>? {
        list(try messages.map { message throws(WeirError) in try message.raw(self) })
    }
    func number<T: FixedWidthInteger>(_ value: Int, _ name: StaticString) throws(WeirError) -> T {
        guard let exact = T(exactly: value) else { throw WeirError(.invalidArg, "\(name): \(value) is out of range") }
        return exact
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
    let room = UnsafeMutableRawBufferPointer(start: info!.pointee.data, count: Int(info!.pointee.n_bytes))
    return Call.back(user) { call in
        let n = try call.read?(room) ?? 0
        if n < 0 || n > room.count { throw WeirError(.invalidArg, "\(n) bytes were read where \(room.count) fit") }
        nRead!.pointee = UInt64(n)
    }
}
let allocHook: weir_alloc_fn = { user, info, out in
    let request = AllocationRequest(info!.pointee)
    out!.pointee = try? Call.of(user).allocator(for: request)?.allocate(request)
    return out!.pointee == nil ? Status.outOfMemory.rawValue : 0
}
let freeHook: weir_free_fn = { user, info in
    let request = AllocationRequest(info!.pointee)
    Call.of(user).allocator(for: request)?.free(request)
    return 0
}
