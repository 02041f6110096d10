import Foundation
import Testing
@testable import Weir

let environment = ProcessInfo.processInfo.environment
let modelPath = environment["WEIR_MODEL"] ?? "../../samples/models/weir-tiny-reasoner-q8_0.gguf"
/// Opened once for all tests that do not look at the life of models.
let model = try! Model(modelPath, runtime: Runtime())

let small = SessionOptions(contextTokens: 2048)
let endless = GenerateOptions(flags: .ignoreEos)
let question: [Message] = [.user("Who are you?")]

struct Refused: Error, Equatable { var number = 0 }

/// A value that closures on other threads change.
final class Shared<Value: Sendable>: @unchecked Sendable {
    private let lock = NSLock()
    private var held: Value
    init(_ value: Value) { held = value }
    var value: Value { lock.withLock { held } }
    func change(_ body: (inout Value) -> Void) { lock.withLock { body(&held) } }
}

struct TooLate: Error {}
/// Waits for what another task or thread does.
func wait(until isDone: () -> Bool) async throws {
    let end = ContinuousClock.now + .seconds(60)
    while !isDone() {
        if ContinuousClock.now > end { throw TooLate() }
        try? await Task.sleep(for: .microseconds(50))
    }
}

/// All events of an answer.
func all(_ session: Session, _ options: GenerateOptions = GenerateOptions()) async throws -> [Event] {
    var events: [Event] = []
    for try await event in try await session.events(options) { events.append(event) }
    return events
}
@MainActor func onMainActor(_ session: Session) async throws -> [Event] {
    var events: [Event] = []
    for try await event in try await session.events() { events.append(event) }
    return events
}
func text(_ events: [Event]) -> String { events.map(\.text).joined() }
func answer(_ events: [Event]) -> String { text(events.filter { $0.segment == .answer }) }
func tokens(_ events: [Event]) -> [Token] { events.filter { $0.kind == .token }.map(\.token) }

/// The error that a call ends with.
func failure(_ body: () async throws -> Void) async -> (any Error)? {
    do { try await body() } catch { return error }
    return nil
}
func status(_ body: () async throws -> Void) async -> Status? { (await failure(body) as? WeirError)?.status }

/// A mask that lets a session say these tokens, then nothing.
func saying(_ tokens: [Token]) -> MaskHandler {
    { mask in mask.allowOnly(mask.answer.count < tokens.count ? [tokens[mask.answer.count]] : []) }
}

/// What a program prints.
func output(of program: String, _ arguments: [String]) throws -> Data {
    let process = Process(), pipe = Pipe()
    process.executableURL = URL(fileURLWithPath: program)
    process.arguments = arguments
    process.standardOutput = pipe
    try process.run()
    let data = pipe.fileHandleForReading.readDataToEndOfFile()
    process.waitUntilExit()
    return data
}
