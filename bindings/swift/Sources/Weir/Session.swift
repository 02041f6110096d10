// Sessions. A session is an actor with an executor of its own: a Dispatch queue runs what it does, so that a step or a
// prompt, which compute for a while, take no thread from those that Swift's tasks share.
import CWeir
import Dispatch
import Synchronization

/// Runs what takes long outside of the threads that Swift's tasks share.
func onOwnThread<T: Sendable>(_ body: @escaping @Sendable () throws -> T) async throws -> T {
    try await withCheckedThrowingContinuation { waiting in
        DispatchQueue.global().async { waiting.resume(with: Result { try body() }) }
    }
}

/// Runs the jobs of one session, one after the other, on a Dispatch queue.
final class SessionExecutor: SerialExecutor {
    private let queue = DispatchQueue(label: "weir.session")
    private let nJobs = Atomic(0), latestStep = Atomic(UInt64.max)

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        nJobs.add(1, ordering: .relaxed)
        queue.async {
            job.runSynchronously(on: self.asUnownedSerialExecutor())
            self.nJobs.subtract(1, ordering: .relaxed)
        }
    }
    /// Takes the time of a step.
    func step<R>(_ body: () throws -> R) rethrows -> R {
        let start = DispatchTime.now().uptimeNanoseconds
        defer { latestStep.store(DispatchTime.now().uptimeNanoseconds - start, ordering: .relaxed) }
        return try body()
    }
    /// Runs a step in its turn, but on the calling thread, if steps are short and nothing else waits for the session:
    /// two changes of threads would cost more than is lost. Otherwise nil.
    func shortStep<R>(_ body: () throws -> R) rethrows -> R? {
        if nJobs.load(ordering: .relaxed) > 0 || latestStep.load(ordering: .relaxed) > 2_000_000 { return nil }
        return try queue.sync { try step(body) }
    }
}

/// The C session: what any thread may reach while the actor computes. One call at a time is inside it, until what it
/// gave is copied. Those of the actor come one after the other; calls of several sessions, which the actor of the first
/// makes, may meet them.
final class Handle: Sendable {
    private struct State: @unchecked Sendable {
        var raw: OpaquePointer?
        /// The actor whose call it is.
        var inside: Handle?
        var mask: Call?
    }
    private static let closed = WeirError(.state, "the session is closed")
    private static let busy = WeirError(.busy, "another call is inside this session")
    private let state: Mutex<State>
    let model: Model
    /// How many answers have begun.
    let nAnswers = Atomic(0)
    var answer: Int { nAnswers.load(ordering: .relaxed) }

    init(_ make: Making, _ model: Model) throws(WeirError) {
        self.model = model
        state = Mutex(State(raw: try made(make)))
    }
    deinit { try? close() }
    func close() throws(WeirError) {
        let old = try state.withLock { state throws(WeirError) in
            if state.inside != nil { throw Handle.busy }
            defer { (state.raw, state.mask) = (nil, nil) }
            return state
        }
        weir_session_destroy(old.raw) // not under the lock: it calls hooks of the application
    }
    /// Short calls that any thread may make: they are done under the lock, and of a closed session not at all.
    func briefly(_ body: (OpaquePointer) -> Void) { state.withLock { _ = $0.raw.map(body) } }
    func read<T: SizedStruct & Sendable>(_ read: Reading<T>) throws(WeirError) -> T {
        try state.withLock { state throws(WeirError) in
            guard let raw = state.raw else { throw Handle.closed }
            return try .filled { read(raw, $0) }
        }
    }
    private func enter(_ actor: Handle) throws(WeirError) -> OpaquePointer {
        try state.withLock { state throws(WeirError) in
            if state.raw == nil { throw Handle.closed }
            if let other = state.inside, other !== actor { throw Handle.busy }
            state.inside = actor
            return state
        }.raw!
    }
    private func leave(_ actor: Handle) { state.withLock { if $0.inside === actor { $0.inside = nil } } }
    /// A call of the actor.
    func inside<R>(_ body: (OpaquePointer) throws(WeirError) -> R) throws(WeirError) -> R {
        let raw = try enter(self)
        defer { leave(self) }
        return try body(raw)
    }
    /// A call of the first one's actor. One that is there twice is for the library to name.
    static func inside<R>(_ handles: [Handle], _ body: ([OpaquePointer?]) throws -> R) throws -> R {
        var raws: [OpaquePointer?] = []
        defer { for handle in handles[..<raws.count] { handle.leave(handles[0]) } }
        for handle in handles { raws.append(try handle.enter(handles[0])) }
        return try body(raws)
    }
    /// A call that draws tokens: a cancelled task is a cancel of it, and what a mask threw comes out. It computes one
    /// step at most, so that looking before it is soon enough.
    static func drawing<R>(_ handles: [Handle], _ body: ([OpaquePointer?]) throws -> R) throws -> R {
        try inside(handles) { raws in
            let isCancelled = Task.isCancelled
            if isCancelled { for raw in raws { weir_session_cancel(raw) } }
            defer { if isCancelled { for raw in raws { weir_session_clear_cancel(raw) } } }
            do { return try body(raws) } catch {
                throw handles.compactMap { $0.mask?.takeCaught() }.first ?? error
            }
        }
    }
    /// The next event of the answer, which is of this number.
    func next(_ answer: Int) throws -> Event {
        if answer != self.answer { throw WeirError(.state, "another answer has begun") }
        return try Handle.drawing([self]) { raws in try Event { weir_session_next(raws[0], $0) } }
    }
    var mask: Call? { state.withLock { $0.mask } }
    func setMask(_ mask: MaskHandler?) throws(WeirError) {
        let call = mask.map { mask in Call { $0.mask = mask } }
        try check(inside { weir_session_set_token_mask($0, call.map { _ in maskHook }, call?.user) })
        _ = state.withLock { state in defer { state.mask = call }; return state }
    }
}

/// One conversation.
///
/// A session is an actor: calls from several tasks come one after the other. It computes on a thread of its own, so a
/// call that takes long holds up neither the main actor nor other tasks. Between two awaited calls others may come in,
/// as with every actor; ``perform(_:)`` makes several calls one. What stops or watches it is `nonisolated`, and works
/// while it computes: ``cancel()``, ``clearCancel()``, ``finishThinking()``, ``stats()``, ``memory()``.
///
/// A task that is cancelled stops the prompt, prefill or answer that it waits for: reading prompts throws
/// ``Status/cancelled``, answers end with ``StopReason/cancelled``, and no token is lost.
public actor Session {
    /// The model, which lives as long as the session.
    public nonisolated let model: Model
    nonisolated let handle: Handle
    nonisolated let executor = SessionExecutor()
    public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }
    func call(_ body: (OpaquePointer) -> weir_status) throws(WeirError) { try check(handle.inside(body)) }

    /// Creates a session, on the calling thread; ``Model/session(_:)`` is for tasks.
    public init(model: Model, options: SessionOptions = .init()) throws(WeirError) {
        self.init(try options.pass { given, _ throws(WeirError) in
            try Handle({ weir_session_create(model.raw, given, $0) }, model)
        })
    }
    private init(_ handle: Handle) { (self.handle, model) = (handle, handle.model) }

    /// Creates a second session that goes on where this one is. It has memory of its own, as much as the plan says.
    public func fork() throws(WeirError) -> Session {
        let fork = try Handle({ out throws(WeirError) in try handle.inside { weir_session_fork($0, out) } }, model)
        if let mask = handle.mask?.mask { try fork.setMask(mask) }
        return Session(fork)
    }
    /// Frees the memory now, not when the last reference goes. All later calls fail with ``Status/state``.
    public func close() throws(WeirError) { try handle.close() }

    /// Runs several calls as one, without other tasks between them and without changes of threads.
    public func perform<R: Sendable>(_ body: @Sendable (isolated Session) throws -> R) rethrows -> R { try body(self) }

    // MARK: Reading

    /// Makes the session hold exactly these messages: keeps the longest common beginning and reads the rest.
    @discardableResult
    public func prompt(_ messages: [Message], _ options: PromptOptions = .init()) async throws
        -> (report: PromptReport, spans: [TextSpan]) {
        let call = Call(), list = try call.messages(messages), n = UInt64(messages.count)
        var report = weir_prompt_report.sized
        var given = try options.raw(call), spans = [weir_span](repeating: weir_span(), count: messages.count)
        try await cancellable(call) { weir_session_prompt($0, list, n, &given, &spans, &report) }
        return (PromptReport(report), spans.map(TextSpan.init))
    }
    /// Makes the session hold exactly these tokens, in the same way.
    @discardableResult
    public func prompt(tokens: [Token], _ options: PromptOptions = .init()) async throws -> PromptReport {
        let call = Call(), n = UInt64(tokens.count)
        var given = try options.raw(call), report = weir_prompt_report.sized
        try await cancellable(call) { weir_session_prompt_tokens($0, tokens, n, &given, &report) }
        return PromptReport(report)
    }
    /// Appends prompt tokens.
    public func prefill(_ tokens: [Token], progress: ProgressHandler? = nil) async throws {
        let call = Call { $0.progress = progress }, n = UInt64(tokens.count)
        try await cancellable(call) { weir_session_prefill($0, tokens, n, progressHook, call.user) }
    }
    /// Goes back to the first tokens of the conversation.
    public func rewind(to nTokens: Int, flags: RewindFlags = []) throws(WeirError) {
        let n: UInt32 = try Call().number(nTokens, "nTokens")
        try call { weir_session_rewind($0, n, flags.rawValue) }
    }

    // MARK: Answering

    /// How tokens are drawn from now on.
    public func setSampling(_ options: SamplingOptions) throws(WeirError) {
        try options.pass { given, _ throws(WeirError) in try call { weir_session_set_sampling($0, given) } }
    }
    /// Lets answers be texts of a constraint; nil: of any kind.
    public func setConstraint(_ constraint: Constraint?, segments: UInt32 = 0) throws(WeirError) {
        try call { weir_session_set_constraint($0, constraint?.raw, segments) }
    }
    /// Lets a function decide which tokens may be drawn. What it throws comes out of the call that draws.
    public func setTokenMask(_ mask: MaskHandler?) throws(WeirError) { try handle.setMask(mask) }

    /// Begins an answer, and gives its events: `for try await event in try await session.events() { ... }`.
    public func events(_ options: GenerateOptions = .init()) throws(WeirError) -> Events {
        try begin(options)
        return Events(session: self, answer: handle.answer)
    }
    /// Begins an answer whose events ``next()`` or ``nextMany(_:)`` give.
    public func begin(_ options: GenerateOptions = .init()) throws(WeirError) {
        try options.pass { given, _ throws(WeirError) in try call { weir_session_begin($0, given) } }
        handle.nAnswers.add(1, ordering: .relaxed)
    }
    /// The next event of the answer. A token whose event was given is in the conversation.
    public func next() throws -> Event { try next(handle.answer) }
    func next(_ answer: Int) throws -> Event { try executor.step { try handle.next(answer) } }

    /// The next event of each of several sessions of one model, which step together; of those whose answer has ended an
    /// end with ``StopReason/none``. And how many answers go on. Nobody waits for each other here: while it runs, calls
    /// of other tasks in one of the sessions throw ``Status/busy``, and so does this one where it meets such a call.
    public static func nextMany(_ sessions: [Session]) async throws -> (events: [Event], nRunning: Int) {
        let all = sessions.map(\.handle)
        return try await sessions.first?.perform { _ in
            var events = [weir_event](repeating: .sized, count: all.count), nRunning: UInt32 = 0
            return try Handle.drawing(all) { raws in
                try check(weir_next_many(raws, &events, UInt32(raws.count), &nRunning))
                return (events.map { Event($0) }, Int(nRunning))
            }
        } ?? ([], 0)
    }
    /// Generates an answer at full speed; the handler gets each token on the session's thread and should be quick. Of
    /// the session it may use what is `nonisolated`. A cancel is no error but a ``GenerateResult/stop``.
    @discardableResult
    public func generate(_ options: GenerateOptions = .init(), onToken: TokenHandler? = nil) async throws
        -> GenerateResult {
        let call = Call { $0.onToken = onToken }
        var given = try options.raw(call), result = weir_generate_result.sized
        (given.on_token, given.user) = (onToken.map { _ in tokenHook }, call.user)
        do {
            try await cancellable(call) { weir_session_generate($0, &given, &result) }
        } catch let error as WeirError where error.status == .cancelled {}
        return GenerateResult(result)
    }
    /// The latest answer as a message to keep, and whether it has a call of a tool that could not be read.
    public func answer() throws(WeirError) -> (message: Message, isMalformed: Bool) {
        var (message, isMalformed) = (weir_chat_message(), UInt32(0))
        let size = UInt32(MemoryLayout<weir_chat_message>.size)
        return try handle.inside { raw throws(WeirError) in
            try check(weir_session_answer(raw, &message, size, &isMalformed))
            return (Message(message), isMalformed != 0)
        }
    }
    /// Draws a token from the logits. It is not appended: ``step(_:)`` does that.
    public func sample() throws -> Token {
        var token: Token = -1
        try Handle.drawing([handle]) { raws in try check(weir_session_sample(raws[0], &token)) }
        return token
    }
    /// Appends a token to each of several sessions of one model, as one step; alone in all, as ``nextMany(_:)``.
    public static func stepMany(_ steps: [(session: Session, token: Token)]) async throws {
        try await steps.first?.session.stepMany(steps.map(\.session.handle), steps.map(\.token))
    }
    private func stepMany(_ handles: [Handle], _ tokens: [Token]) throws {
        try Handle.inside(handles) { try check(weir_step_many($0, tokens, UInt32(tokens.count))) }
    }

    /// Lets calls look at a ``Cancel``, too.
    public func setCancel(_ cancel: Cancel?) throws(WeirError) { try call { weir_session_set_cancel($0, cancel?.raw) } }

    // MARK: What it holds

    /// The tokens of the conversation; of a very long one perhaps the latest only.
    public var tokens: [Token] { get throws(WeirError) { try lent(weir_session_tokens) { Array($0) } } }
    /// The logits after the last token, for the time of the closure.
    public func withLogits<R: Sendable>(_ body: @Sendable (UnsafeBufferPointer<Float>) throws -> R) throws -> R {
        try lent(weir_session_logits) { logits in Result { try body(logits) } }.get()
    }
    private func lent<T, R>(
        _ read: (OpaquePointer, UnsafeMutablePointer<UnsafePointer<T>?>, UnsafeMutablePointer<UInt32>) -> weir_status,
        _ body: (UnsafeBufferPointer<T>) -> R
    ) throws(WeirError) -> R {
        try handle.inside { raw throws(WeirError) in try body(Weir.lent { read(raw, $0, $1) }) }
    }
    /// Where the conversation's pages are.
    public func pages() throws(WeirError) -> [PageState] {
        try handle.inside { raw throws(WeirError) in
            try listed(weir_page_state(), guess: 256) { weir_session_pages(raw, $0, $1, $2) }.map(PageState.init)
        }
    }
    /// Keeps the pages of these positions.
    public func pin(_ positions: Range<Int>) throws(WeirError) { try pages(positions, weir_session_pin) }
    /// Lets the pages of these positions go.
    public func unpin(_ positions: Range<Int>) throws(WeirError) { try pages(positions, weir_session_unpin) }
    private func pages(_ at: Range<Int>, _ change: (OpaquePointer, UInt32, UInt32) -> weir_status) throws(WeirError) {
        let first: UInt32 = try Call().number(at.lowerBound, "positions")
        let end: UInt32 = try Call().number(at.upperBound, "positions")
        try call { change($0, first, end) }
    }
    /// Writes the conversation as a stream of bytes, which the closure gets in order.
    public func save(to write: @escaping @Sendable (UnsafeRawBufferPointer) throws -> Void) throws {
        let saving = Call { $0.write = write }
        try saving.rethrowing { try call { weir_session_save($0, writeHook, saving.user) } }
    }
    /// Replaces the conversation by a saved one; the closure fills a buffer and tells how far, 0 at the end.
    public func restore(from read: @escaping @Sendable (UnsafeMutableRawBufferPointer) throws -> Int) throws {
        let restoring = Call { $0.read = read }
        try restoring.rethrowing { try call { weir_session_restore($0, readHook, restoring.user) } }
    }

    // MARK: Inside

    /// A call that the task's cancellation stops while it runs. If that is too late, the next call must not have it.
    private func cancellable(_ call: Call, _ body: (OpaquePointer) -> weir_status) async throws {
        let result = await withTaskCancellationHandler {
            // Only a closure that has `self` runs on the session's thread.
            Result { try call.rethrowing { try Handle.drawing([self.handle]) { try check(body($0[0]!)) } } }
        } onCancel: {
            cancel()
        }
        if Task.isCancelled { clearCancel() }
        try result.get()
    }
}

/// The events of an answer. Each is computed when it is asked for, none ahead: leaving the loop leaves the conversation
/// as the events told it.
public struct Events: AsyncSequence, Sendable {
    let session: Session
    let answer: Int
    public struct AsyncIterator: AsyncIteratorProtocol {
        let of: Events
        var isOver = false
        /// The next event, the last of which is the end, then nil.
        public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async throws -> Event? {
            if isOver { return nil }
            let session = of.session, answer = of.answer
            // A task that is on an actor, such as the main one, is never held up.
            var event = actor == nil ? try session.executor.shortStep { try session.handle.next(answer) } : nil
            if event == nil { event = try await session.next(answer) }
            isOver = event?.kind == .end
            return event
        }
    }
    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(of: self) }
}
