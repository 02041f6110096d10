// What the binding costs a token: the same answer by C's functions and by the binding's, in turns, in one process.
//
//   swift run -c release weir-bench MODEL.gguf [TOKENS [ROUNDS [THREADS]]]
//
// Prints microseconds a token outside of what the library computes (decode_ns of the stats), of C and of each way to an
// answer with the binding: of each round the whole answer, of the rounds the median, and of processor time the best.
import CWeir
import Foundation
import Weir

let arguments = CommandLine.arguments
guard arguments.count > 1 else { fatalError("usage: weir-bench MODEL.gguf [TOKENS [ROUNDS [THREADS]]]") }
let numbers = arguments.dropFirst(2).map { Int($0)! }
let nTokens = numbers.first ?? 2000
let nRounds = numbers.count > 1 ? numbers[1] : 5
let nThreads = numbers.count > 2 ? numbers[2] : 0
let options = GenerateOptions(flags: .ignoreEos, maxTokens: nTokens)
let question = "Who are you?"

/// Answers of one way, of each what a token took outside of the library's own clock.
final class Times: @unchecked Sendable {
    private var (n, first, last): (Int, UInt64, UInt64) = (0, 0, 0)
    private var (before, used): (UInt64, UInt64) = (0, 0)
    private var (outside, processors): ([Double], [Double]) = ([], [])
    func start() { (n, first, before) = (0, now(CLOCK_MONOTONIC), now(CLOCK_PROCESS_CPUTIME_ID)) }
    func stamp() {
        n += 1
        if n == nTokens { (last, used) = (now(CLOCK_MONOTONIC), now(CLOCK_PROCESS_CPUTIME_ID) - before) }
    }
    /// Ends an answer's measurement; `decoded`: nanoseconds that steps and draws took.
    func end(decoded: Int) {
        precondition(n >= nTokens, "the answer has \(n) of \(nTokens) tokens")
        outside.append((Double(last - first) - Double(decoded)) / Double(nTokens) / 1000)
        processors.append(Double(used) / Double(nTokens) / 1000)
    }
    private func now(_ clock: clockid_t) -> UInt64 {
        var time = timespec()
        clock_gettime(clock, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
    /// Microseconds a token.
    var median: Double { outside.sorted()[outside.count / 2] }
    var processor: Double { processors.min()! }
}

/// A session of C alone.
struct Plain {
    nonisolated(unsafe) var session: OpaquePointer?
    init() {
        var (runtime, model): (OpaquePointer?, OpaquePointer?)
        var given = weir_runtime_options()
        given.struct_size = UInt32(MemoryLayout<weir_runtime_options>.size)
        given.n_threads = UInt32(nThreads)
        check(weir_runtime_create(&given, &runtime))
        check(weir_model_open(runtime, arguments[1], nil, &model))
        check(weir_session_create(model, nil, &session))
        weir_model_close(model)
        weir_runtime_destroy(runtime)
    }
    var decodeNs: Int {
        var stats = weir_session_stats()
        stats.struct_size = UInt32(MemoryLayout<weir_session_stats>.size)
        check(weir_session_get_stats(session, &stats))
        return Int(stats.decode_ns)
    }
    func check(_ status: weir_status) { if status != 0 { fatalError(String(cString: weir_last_error())) } }

    func prompt() {
        question.withCString { text in
            "user".withCString { role in
                var message = weir_chat_message()
                (message.role, message.content, message.content_bytes) = (role, text, UInt64(question.utf8.count))
                check(weir_session_prompt(session, &message, 1, nil, nil, nil))
            }
        }
    }
    func pull(_ times: Times) {
        var given = weir_generate_options()
        given.struct_size = UInt32(MemoryLayout<weir_generate_options>.size)
        given.flags = GenerateFlags.ignoreEos.rawValue
        given.max_tokens = UInt32(nTokens)
        check(weir_session_begin(session, &given))
        var event = weir_event()
        event.struct_size = UInt32(MemoryLayout<weir_event>.size)
        times.start()
        repeat {
            check(weir_session_next(session, &event))
            times.stamp()
        } while event.kind != EventKind.end.rawValue
    }
}

/// One way to an answer with the binding.
typealias Way = @Sendable (Session, Times) async throws -> Void
let ways: [(String, Way)] = [
    ("generate with a handler", { session, times in
        times.start()
        try await session.generate(options) { _ in times.stamp() }
    }),
    ("next in one perform", { session, times in
        try await session.perform { session in
            try session.begin(options)
            times.start()
            while try session.next().kind != .end { times.stamp() }
        }
    }),
    ("for try await", { session, times in
        times.start()
        for try await _ in try await session.events(options) { times.stamp() }
    }),
    ("for try await on the main actor", { session, times in
        try await Task { @MainActor in
            times.start()
            for try await _ in try await session.events(options) { times.stamp() }
        }.value
    }),
]

let model = try await Model.open(arguments[1], runtime: Runtime(RuntimeOptions(nThreads: nThreads)))
let session = try await model.session()
let plain = Plain(), plainTimes = Times(), times = ways.map { _ in Times() }
for _ in 0..<nRounds {
    plain.prompt()
    let before = plain.decodeNs
    plain.pull(plainTimes)
    plainTimes.end(decoded: plain.decodeNs - before)
    for (way, times) in zip(ways, times) {
        try await session.prompt([.user(question)])
        let work = way.1, before = try session.stats().decodeNs
        try await Task.detached { try await work(session, times) }.value
        times.end(decoded: try session.stats().decodeNs - before)
    }
}
func rounded(_ value: Double) -> Double { (value * 10).rounded() / 10 }
print("C: \(rounded(plainTimes.median)) us a token outside of the model, \(rounded(plainTimes.processor)) us of "
      + "processor time with it")
for (way, times) in zip(ways, times) {
    print("\(way.0): \(rounded(times.median - plainTimes.median)) us beyond C, "
          + "\(rounded(times.processor - plainTimes.processor)) us of processor time")
}
