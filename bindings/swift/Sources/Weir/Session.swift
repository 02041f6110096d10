// Sessions. A session is an actor with a thread of its own: a Dispatch queue runs what it does, so that a step or a
// prompt, which compute for a while, take no thread from those that Swift's tasks share.
import CWeir
import Dispatch
import Synchronization

/// Runs the jobs of one session, one after the other, on a Dispatch queue.
public final class SessionExecutor: SerialExecutor, TaskExecutor {
    private let queue = DispatchQueue(label: "weir.session")
    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }
}

/// The C session: what any thread may reach while the actor computes.
final class Handle: Sendable {
    private struct State: @unchecked Sendable {
        var raw: OpaquePointer?
        var users = 0
        var mask: Call?

        func open() throws(WeirError) -> OpaquePointer {
            guard let raw else { throw WeirError(.state, "the session is closed") }
            return raw
        }
    }
    private struct Pointer: @unchecked Sendable { let raw: OpaquePointer }
    private let state: Mutex<State>
    let model: Model

    init(_ make: (UnsafeMutablePointer<OpaquePointer?>) -> weir_status, _ model: Model) throws(WeirError) {
        state = Mutex(State(raw: try made(make)))
        self.model = model
    }
    deinit { state.withLock { weir_session_destroy($0.raw) } }

    /// The pointer for a call of the actor, which alone closes it.
    var raw: OpaquePointer {
        get throws(WeirError) { try state.withLock { state throws(WeirError) in Pointer(raw: try state.open()) }.raw }
    }
    /// Short calls that any thread may make: they are done under the lock, and of a closed session not at all.
    func briefly(_ body: (OpaquePointer) -> Void) { state.withLock { _ = $0.raw.map(body) } }

    func close() throws(WeirError) {
        try state.withLock { state throws(WeirError) in
            if state.users > 0 { throw WeirError(.busy, "the session is in a call with others and cannot be closed") }
            weir_session_destroy(state.raw)
            (state.raw, state.mask) = (nil, nil)
        }
    }
    /// Keeps several sessions from being closed while a call has them all.
    static func together<R>(_ handles: [Handle], _ body: ([OpaquePointer?]) throws -> R) throws -> R {
        var raws: [OpaquePointer?] = []
        defer { for handle in handles[..<raws.count] { handle.state.withLock { $0.users -= 1 } } }
        for handle in handles {
            raws.append(try handle.state.withLock { state throws(WeirError) in
                let pointer = Pointer(raw: try state.open())
                state.users += 1
                return pointer
            }.raw)
        }
        return try body(raws)
    }

    var mask: Call? {
        get { state.withLock { $0.mask } }
        set { state.withLock { $0.mask = newValue } }
    }
}

/// One conversation.
///
/// A session is an actor: calls from several tasks come one after the other. It computes on a thread of its own, so a
/// call that takes long holds up neither the main actor nor other tasks. Between two awaited calls others may come in,
/// as with every actor; ``perform(_:)`` makes several calls one. What stops or watches it is `nonisolated`, and works
/// while it computes: ``cancel()``, ``clearCancel()``, ``finishThinking()``, ``stats``, ``memory``.
///
/// A task that is cancelled stops the prompt, prefill or answer that it waits for: reading prompts throws
/// ``Status/cancelled``, answers end with ``StopReason/cancelled``, and no token is lost.
public actor Session {
    /// The model, which lives as long as the session.
    public nonisolated let model: Model
    nonisolated let handle: Handle
    public nonisolated let executor = SessionExecutor()
    private var answerNumber = 0

    public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// Creates a session, on the calling thread; ``Model/session(_:)`` is for tasks.
    public init(model: Model, options: SessionOptions = SessionOptions()) throws(WeirError) {
        let call = Call()
        var given = try options.raw(call)
        self.init(try Handle({ weir_session_create(model.raw, &given, $0) }, model))
    }
    private init(_ handle: Handle) { (self.handle, model) = (handle, handle.model) }

    /// Creates a second session that goes on where this one is. It has memory of its own, as much as the plan says.
    public func fork() throws(WeirError) -> Session {
        let raw = try self.raw
        let fork = Session(try Handle({ weir_session_fork(raw, $0) }, model))
        if let mask = handle.mask?.mask { try Session.setMask(mask, of: fork.handle) }
        return fork
    }
    /// Frees the memory now, not when the last reference goes. All later calls fail with ``Status/state``.
    public func close() throws(WeirError) { try handle.close() }

    /// Runs several calls as one, without other tasks between them and without changes of threads.
    public func perform<R: Sendable>(_ body: @Sendable (isolated Session) throws -> R) rethrows -> R { try body(self) }

    // MARK: Reading

    /// Makes the session hold exactly these messages: keeps the longest common beginning and reads the rest.
    @discardableResult
    public func prompt(_ messages: [Message], _ options: PromptOptions = PromptOptions()) async throws
        -> (report: PromptReport, spans: [TextSpan]) {
        let call = Call(), list = try call.messages(messages)
        var options = options
        options.chat = options.chat ?? ChatOptions()
        var given = try options.raw(call), report = weir_prompt_report.sized
        var spans = [weir_span](repeating: weir_span(), count: messages.count)
        try await cancellable(call) {
            weir_session_prompt($0, list, UInt64(messages.count), &given, &spans, &report)
        }
        return (PromptReport(report), spans.map(TextSpan.init))
    }
    /// Makes the session hold exactly these tokens, in the same way.
    @discardableResult
    public func prompt(tokens: [Token], _ options: PromptOptions = PromptOptions()) async throws -> PromptReport {
        let call = Call()
        var given = try options.raw(call), report = weir_prompt_report.sized
        try await cancellable(call) {
            weir_session_prompt_tokens($0, tokens, UInt64(tokens.count), &given, &report)
        }
        return PromptReport(report)
    }
    /// Appends prompt tokens.
    public func prefill(_ tokens: [Token], progress: ProgressHandler? = nil) async throws {
        let call = Call()
        call.progress = progress
        try await cancellable(call) {
            weir_session_prefill($0, tokens, UInt64(tokens.count), progressHook, call.user)
        }
    }
    /// Goes back to the first tokens of the conversation.
    public func rewind(to nTokens: Int, flags: RewindFlags = []) throws(WeirError) {
        try WeirError.check(weir_session_rewind(try raw, try Call().number(nTokens, "nTokens"), flags.rawValue))
    }
    /// Forgets the conversation.
    public func reset() throws(WeirError) { try WeirError.check(weir_session_reset(try raw)) }

    // MARK: Answering

    /// How tokens are drawn from now on.
    public func setSampling(_ options: SamplingOptions) throws(WeirError) {
        let call = Call()
        var given = try options.raw(call)
        try WeirError.check(weir_session_set_sampling(try raw, &given))
    }
    /// Begins an answer, and gives its events: `for try await event in try await session.events() { ... }`.
    public func events(_ options: GenerateOptions = GenerateOptions()) throws(WeirError) -> Events {
        try begin(options)
        return Events(session: self, answer: answerNumber)
    }
    /// Begins an answer whose events ``next()`` or ``nextMany(_:)`` give.
    public func begin(_ options: GenerateOptions = GenerateOptions()) throws(WeirError) {
        let call = Call()
        var given = try options.raw(call)
        try WeirError.check(weir_session_begin(try raw, &given))
        answerNumber += 1
    }
    /// The next event of the answer. A token whose event was given is in the conversation.
    public func next() throws -> Event {
        let raw = try self.raw
        let event: weir_event = try drawing([handle], [raw]) { try .filled { weir_session_next(raw, $0) } }
        return Event(event)
    }
    func next(of answer: Int) throws -> Event {
        if answer != answerNumber { throw WeirError(.state, "another answer has begun") }
        return try next()
    }
    /// The next event of each of several sessions of one model, which step together; of those whose answer has ended an
    /// end with ``StopReason/none``. And how many answers go on.
    public static func nextMany(_ sessions: [Session]) async throws -> (events: [Event], nRunning: Int) {
        try await sessions.first?.nextMany(sessions.map(\.handle)) ?? ([], 0)
    }
    private func nextMany(_ handles: [Handle]) throws -> (events: [Event], nRunning: Int) {
        try Handle.together(handles) { raws in
            var events = [weir_event](repeating: .sized, count: raws.count)
            var nRunning: UInt32 = 0
            try drawing(handles, raws) {
                try WeirError.check(weir_next_many(raws, &events, UInt32(raws.count), &nRunning))
            }
            return (events.map(Event.init), Int(nRunning))
        }
    }
    /// Generates an answer at full speed; the handler gets each token on the session's thread and should be quick. Of
    /// the session it may use what is `nonisolated`. A cancel is no error but a ``GenerateResult/stop``.
    @discardableResult
    public func generate(_ options: GenerateOptions = GenerateOptions(), onToken: TokenHandler? = nil) async throws
        -> GenerateResult {
        let call = Call()
        call.onToken = onToken
        var given = try options.raw(call), result = weir_generate_result.sized
        (given.on_token, given.user) = (onToken == nil ? nil : tokenHook, call.user)
        do {
            try await cancellable(call) { weir_session_generate($0, &given, &result) }
        } catch let error as WeirError where error.status == .cancelled {}
        return GenerateResult(result)
    }
    /// The latest answer as a message to keep, and whether it has a call of a tool that could not be read.
    public func answer() throws(WeirError) -> (message: Message, isMalformed: Bool) {
        var (raw, malformed) = (weir_chat_message(), UInt32(0))
        let size = UInt32(MemoryLayout<weir_chat_message>.size)
        try WeirError.check(weir_session_answer(try self.raw, &raw, size, &malformed))
        let text = { (c: UnsafePointer<CChar>?) in c.map { String(cString: $0) } }
        return (Message(role: text(raw.role) ?? "", content: textOf(raw.content, raw.content_bytes),
                        thought: raw.thought.map { textOf($0, raw.thought_bytes) },
                        toolCalls: text(raw.tool_calls_json), toolCallID: text(raw.tool_call_id),
                        name: text(raw.name)), malformed != 0)
    }
    /// Ends the thought that is open: the next token begins its end.
    public nonisolated func finishThinking() { handle.briefly { weir_session_finish_thinking($0) } }

    /// Draws a token from the logits. It is not appended: ``step(_:)`` does that.
    public func sample() throws -> Token {
        let raw = try self.raw
        var token: Token = -1
        try drawing([handle], [raw]) { try WeirError.check(weir_session_sample(raw, &token)) }
        return token
    }
    /// Appends a token and computes the logits after it.
    public func step(_ token: Token) throws(WeirError) { try WeirError.check(weir_session_step(try raw, token)) }
    /// Appends a token to each of several sessions of one model, as one step.
    public static func stepMany(_ steps: [(session: Session, token: Token)]) async throws {
        try await steps.first?.session.stepMany(steps.map(\.session.handle), steps.map(\.token))
    }
    private func stepMany(_ handles: [Handle], _ tokens: [Token]) throws {
        try Handle.together(handles) { try WeirError.check(weir_step_many($0, tokens, UInt32(tokens.count))) }
    }

    /// Lets answers be texts of a constraint; nil: of any kind.
    public func setConstraint(_ constraint: Constraint?, segments: Int = 0) throws(WeirError) {
        let segments: UInt32 = try Call().number(segments, "segments")
        try WeirError.check(weir_session_set_constraint(try raw, constraint?.raw, segments))
    }
    /// Lets a function decide which tokens may be drawn. What it throws comes out of the call that draws.
    public func setTokenMask(_ mask: MaskHandler?) throws(WeirError) { try Session.setMask(mask, of: handle) }
    private static func setMask(_ mask: MaskHandler?, of handle: Handle) throws(WeirError) {
        let call = mask.map { _ in Call() }
        call?.mask = mask
        try WeirError.check(weir_session_set_token_mask(try handle.raw, call == nil ? nil : maskHook, call?.user))
        handle.mask = call
    }

    // MARK: Stopping

    /// Stops the call that runs, or else the next one.
    public nonisolated func cancel() { handle.briefly { weir_session_cancel($0) } }
    /// Takes a cancel back that has stopped nothing yet; for the beginning of a new turn.
    public nonisolated func clearCancel() { handle.briefly { weir_session_clear_cancel($0) } }
    /// Lets calls look at a ``Cancel``, too.
    public func setCancel(_ cancel: Cancel?) throws(WeirError) {
        try WeirError.check(weir_session_set_cancel(try raw, cancel?.raw))
    }

    // MARK: What it holds

    /// The tokens of the conversation; of a very long one perhaps the latest only.
    public var tokens: [Token] {
        get throws(WeirError) {
            var (start, n): (UnsafePointer<Token>?, UInt32) = (nil, 0)
            try WeirError.check(weir_session_tokens(try raw, &start, &n))
            return Array(UnsafeBufferPointer(start: start, count: Int(n)))
        }
    }
    /// The logits after the last token, for the time of the closure.
    public func withLogits<R: Sendable>(_ body: @Sendable (UnsafeBufferPointer<Float>) throws -> R) throws -> R {
        var (start, n): (UnsafePointer<Float>?, UInt32) = (nil, 0)
        try WeirError.check(weir_session_logits(try raw, &start, &n))
        return try body(UnsafeBufferPointer(start: start, count: Int(n)))
    }
    /// Where the conversation's pages are.
    public var pages: [PageState] {
        get throws(WeirError) {
            let raw = try self.raw
            return try listed(weir_page_state(), guess: 256) { weir_session_pages(raw, $0, $1, $2) }.map(PageState.init)
        }
    }
    /// Keeps the pages of these positions.
    public func pin(_ positions: Range<Int>) throws(WeirError) { try pages(positions, weir_session_pin) }
    /// Lets the pages of these positions go.
    public func unpin(_ positions: Range<Int>) throws(WeirError) { try pages(positions, weir_session_unpin) }
    private func pages(_ positions: Range<Int>, _ call: (OpaquePointer, UInt32, UInt32) -> weir_status)
        throws(WeirError) {
        let first: UInt32 = try Call().number(positions.lowerBound, "positions")
        try WeirError.check(call(try raw, first, try Call().number(positions.upperBound, "positions")))
    }
    /// Counters. While another thread computes, values may be of different moments.
    public nonisolated var stats: SessionStats {
        get throws(WeirError) { SessionStats(try facts { weir_session_get_stats($0, $1) }) }
    }
    /// Memory, likewise.
    public nonisolated var memory: SessionMemory {
        get throws(WeirError) { SessionMemory(try facts { weir_session_memory($0, $1) }) }
    }

    // MARK: Saving

    /// Writes the conversation as a stream of bytes, which the closure gets in order.
    public func save(to write: @Sendable (UnsafeRawBufferPointer) throws -> Void) throws {
        try withoutActuallyEscaping(write) { write in
            let call = Call()
            call.write = write
            try call.rethrowing { try WeirError.check(weir_session_save(try raw, writeHook, call.user)) }
            call.write = nil
        }
    }
    /// Replaces the conversation by a saved one; the closure fills a buffer and tells how far, 0 at the end.
    public func restore(from read: @Sendable (UnsafeMutableRawBufferPointer) throws -> Int) throws {
        try withoutActuallyEscaping(read) { read in
            let call = Call()
            call.read = read
            try call.rethrowing { try WeirError.check(weir_session_restore(try raw, readHook, call.user)) }
            call.read = nil
        }
    }

    // MARK: Inside

    private var raw: OpaquePointer { get throws(WeirError) { try handle.raw } }

    private nonisolated func facts<T: SizedStruct>(
        _ read: (OpaquePointer, UnsafeMutablePointer<T>) -> weir_status
    ) throws(WeirError) -> T {
        var (value, code): (T, weir_status?) = (.sized, nil)
        handle.briefly { code = read($0, &value) }
        guard let code else { throw WeirError(.state, "the session is closed") }
        try WeirError.check(code)
        return value
    }
    /// A call that the task's cancellation stops while it runs. If that is too late, the next call must not have it.
    private func cancellable(_ call: Call, _ body: (OpaquePointer) -> weir_status) async throws {
        let raw = try self.raw, handle = handle
        let result = await withTaskCancellationHandler {
            Result { try call.rethrowing { try drawing([handle], []) { try WeirError.check(body(raw)) } } }
        } onCancel: {
            handle.briefly { weir_session_cancel($0) }
        }
        if Task.isCancelled { weir_session_clear_cancel(raw) }
        try result.get()
    }
    /// A call that draws tokens: a cancelled task is a cancel of it, and what a mask threw comes out. It computes one
    /// step at most, so that looking before it is soon enough.
    private func drawing<R>(_ handles: [Handle], _ raws: [OpaquePointer?], _ body: () throws -> R) throws -> R {
        let isCancelled = Task.isCancelled
        if isCancelled { for raw in raws { weir_session_cancel(raw) } }
        defer { if isCancelled { for raw in raws { weir_session_clear_cancel(raw) } } }
        do { return try body() } catch {
            for handle in handles { if let caught = handle.mask?.takeCaught() { throw caught } }
            throw error
        }
    }
}

/// The events of an answer. Each is computed when it is asked for, none ahead: leaving the loop leaves the conversation
/// as the events told it.
public struct Events: AsyncSequence, Sendable {
    let session: Session
    let answer: Int
    public struct AsyncIterator: AsyncIteratorProtocol {
        let session: Session
        let answer: Int
        var isOver = false
        /// The next event, the last of which is the end, then nil.
        public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async throws -> Event? {
            if isOver { return nil }
            let event = try await session.next(of: answer)
            isOver = event.kind == .end
            return event
        }
    }
    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(session: session, answer: answer) }
}
