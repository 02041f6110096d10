// Errors, the library itself, and the closures and masks that other files take.
import CWeir

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
}

/// The library that is loaded.
public enum Library {
    /// Its version, such as "1.1.0".
    public static var version: String { String(cString: weir_version_string()) }
    /// Refuses a library that lacks functions of the headers, or has others.
    static func check(_ loaded: UInt32 = weir_version(), _ text: String = version) throws(WeirError) {
        if loaded >> 16 == WEIR_VERSION_MAJOR && (loaded >> 8) & 255 >= WEIR_VERSION_MINOR { return }
        throw WeirError(.unsupported, "the library that is loaded is Weir \(text), and this binding is of version "
                        + "\(bindingVersion): install a library of that version or a later \(WEIR_VERSION_MAJOR).x")
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
public struct TokenMask: ~Copyable {
    let info: weir_mask_info
    /// Tokens of the model.
    public var count: Int { Int(info.vocab_size) }
    /// Tokens of the answer so far.
    public var answer: [Token] { Array(UnsafeBufferPointer(start: info.tokens, count: Int(info.n_tokens))) }
    /// Whether a token may be drawn; at first all that the session's constraint allows.
    public subscript(token: Token) -> Bool {
        get { word(token).pointee & (1 << (token & 31)) != 0 }
        set {
            let bit: UInt32 = 1 << (token & 31), word = word(token)
            word.pointee = newValue ? word.pointee | bit : word.pointee & ~bit
        }
    }
    private func word(_ token: Token) -> UnsafeMutablePointer<UInt32> {
        precondition(token >= 0 && token < info.vocab_size, "\(token) is no token of the model")
        return info.words + Int(token >> 5)
    }
    /// Forbids all tokens but these.
    public mutating func allowOnly(_ tokens: some Sequence<Token>) {
        let allowed = tokens.filter { self[$0] }
        info.words.update(repeating: 0, count: (count + 31) / 32)
        for token in allowed { self[token] = true }
    }
}
