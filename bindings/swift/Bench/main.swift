// What the binding costs a token: the same answer by C's functions and by the binding's, in turns, in one process.
//
//   swift run -c release weir-bench MODEL.gguf [TOKENS [ROUNDS]]
//
// Prints microseconds a token beyond C, the median of the rounds' differences, one line for each way.
import CWeir
import Weir

let arguments = CommandLine.arguments
guard arguments.count > 1 else { fatalError("usage: weir-bench MODEL.gguf [TOKENS [ROUNDS]]") }
let nTokens = arguments.count > 2 ? Int(arguments[2])! : 2000
let nRounds = arguments.count > 3 ? Int(arguments[3])! : 5
let options = GenerateOptions(flags: .ignoreEos, maxTokens: nTokens)
let question: [Message] = [.user("Who are you?")]

/// A session of C alone.
struct Plain {
    nonisolated(unsafe) var session: OpaquePointer?
    init() {
        var (runtime, model): (OpaquePointer?, OpaquePointer?)
        check(weir_runtime_create(nil, &runtime))
        check(weir_model_open(runtime, arguments[1], nil, &model))
        check(weir_session_create(model, nil, &session))
        weir_model_close(model)
        weir_runtime_destroy(runtime)
    }
    func check(_ status: weir_status) { if status != 0 { fatalError(String(cString: weir_last_error())) } }

    func answer() -> (nanoseconds: Int, nEvents: Int) {
        let content = Array(question[0].content.utf8CString)
        content.withUnsafeBufferPointer { text in
            "user".withCString { role in
                var message = weir_chat_message()
                (message.role, message.content) = (role, text.baseAddress)
                message.content_bytes = UInt64(text.count - 1)
                check(weir_session_prompt(session, &message, 1, nil, nil, nil))
            }
        }
        var given = weir_generate_options()
        given.struct_size = UInt32(MemoryLayout<weir_generate_options>.size)
        given.flags = GenerateFlags.ignoreEos.rawValue
        given.max_tokens = UInt32(nTokens)
        check(weir_session_begin(session, &given))
        var event = weir_event(), n = 0
        event.struct_size = UInt32(MemoryLayout<weir_event>.size)
        let start = ContinuousClock.now
        repeat {
            check(weir_session_next(session, &event))
            n += 1
        } while event.kind != EventKind.end.rawValue
        return (nanoseconds(since: start), n)
    }
}

func nanoseconds(since start: ContinuousClock.Instant) -> Int {
    let passed = ContinuousClock.now - start
    return Int(passed.components.seconds) * 1_000_000_000 + Int(passed.components.attoseconds / 1_000_000_000)
}

/// One way to an answer with the binding.
typealias Way = @Sendable (Session) async throws -> Void
let ways: [(String, Way)] = [
    ("generate with a handler", { session in
        try await session.generate(options) { _ = $0.text }
    }),
    ("next in one perform", { session in
        try await session.perform { session in
            try session.begin(options)
            while try session.next().kind != .end {}
        }
    }),
    ("for try await", { session in
        for try await event in try await session.events(options) { _ = event.text }
    }),
    ("for try await, task on the session's thread", { session in
        try await withTaskExecutorPreference(session.executor) {
            for try await event in try await session.events(options) { _ = event.text }
        }
    }),
]

let model = try await Model.open(arguments[1], runtime: Runtime())
let session = try await model.session()
let plain = Plain()
_ = plain.answer()
var beyond = [[Double]](repeating: [], count: ways.count)
var stepMicroseconds: [Double] = []
for _ in 0..<nRounds {
    for (i, way) in ways.enumerated() {
        let c = plain.answer()
        try await session.prompt(question)
        let work = way.1
        let passed = try await Task.detached {
            let start = ContinuousClock.now
            try await work(session)
            return nanoseconds(since: start)
        }.value
        stepMicroseconds.append(Double(c.nanoseconds) / Double(c.nEvents) / 1000)
        beyond[i].append(Double(passed - c.nanoseconds) / Double(c.nEvents) / 1000)
    }
}
func median(_ values: [Double]) -> Double { values.sorted()[values.count / 2] }
func rounded(_ value: Double) -> Double { (value * 10).rounded() / 10 }
print("C: \(rounded(median(stepMicroseconds))) us a token")
for (i, way) in ways.enumerated() {
    print("\(way.0): \(rounded(median(beyond[i]))) us beyond C (\(beyond[i].map(rounded)))")
}
