// A conversation at the keyboard: all messages are kept here, and the session is made to hold them before each answer.
//
//   chat MODEL.gguf [SYSTEM]
//
// A line is a question. "/again" asks for another answer to the last one, "/undo" takes the last question and its
// answer back, and the end of the input ends the program. Ctrl-C stops an answer, and what was said of it stays.
import Foundation
import Weir

func complain(_ text: String) { FileHandle.standardError.write(Data("\(text)\n".utf8)) }

/// Prints the answer and returns it as a message.
func answer(of session: Session) async throws -> Message {
    var said = ""
    // Marks such as <think> belong to what was said.
    for try await event in try await session.events(GenerateOptions(flags: .specialText, maxTokens: 2048)) {
        said += event.text
        print(event.text, terminator: "")
        if event.kind == .end { print(event.stop == .eos ? "" : " [stopped]") }
        fflush(nil)
    }
    return .assistant(said)
}

let arguments = CommandLine.arguments
guard arguments.count > 1 else {
    complain("usage: chat MODEL.gguf [SYSTEM]")
    exit(2)
}
do {
    let model = try await Model.open(arguments[1], runtime: Runtime())
    let session = try await model.session()
    // Another seed for other answers.
    try await session.setSampling(SamplingOptions(temperature: 0.8, minP: 0.05, seed: 1))

    signal(SIGINT, SIG_IGN)
    let interrupts = DispatchSource.makeSignalSource(signal: SIGINT, queue: .global())
    interrupts.setEventHandler { session.cancel() }
    interrupts.resume()

    let system: [Message] = arguments.count > 2 ? [.system(arguments[2])] : []
    var messages = system
    // When the context is full the oldest turns make room.
    let options = PromptOptions(flags: .dropOldest, reserveTokens: 64)
    while true {
        print("> ", terminator: "")
        fflush(nil)
        guard let line = readLine() else { break }
        if line == "/undo" {
            messages.removeLast(min(2, messages.count - system.count))
            continue
        }
        if line == "/again" {
            if messages.count == system.count { continue }
            messages.removeLast()
        } else {
            messages.append(.user(line))
        }
        session.clearCancel()  // what was meant for the turn before
        do {
            try await session.prompt(messages, options)
        } catch {
            complain("\(error)")
            messages.removeLast()
            continue
        }
        messages.append(try await answer(of: session))
    }
    print()
} catch {
    complain("\(error)")
    exit(1)
}
