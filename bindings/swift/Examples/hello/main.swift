// The shortest whole program: open a model, ask one question, print the answer.
//
//   hello MODEL.gguf [QUESTION]
//
// Every call that can fail throws a WeirError, whose text says what went wrong.
import Foundation
import Weir

let arguments = CommandLine.arguments
guard arguments.count > 1 else {
    FileHandle.standardError.write(Data("usage: hello MODEL.gguf [QUESTION]\n".utf8))
    exit(2)
}
do {
    // Options that are not given have their defaults: all cores, greedy decoding, the model's whole context.
    let model = try await Model.open(arguments[1], runtime: Runtime())
    let session = try await model.session()

    // The session then holds the question as the model was trained to see it. Whatever it says, it stays the text of
    // one message.
    try await session.prompt([.user(arguments.count > 2 ? arguments[2] : "Who are you?")])

    // Show marks such as <think>, too.
    for try await event in try await session.events(GenerateOptions(flags: .specialText, maxTokens: 512)) {
        print(event.text, terminator: "")
        fflush(nil)
    }
    print()
} catch {
    FileHandle.standardError.write(Data("\(error)\n".utf8))
    exit(1)
}
