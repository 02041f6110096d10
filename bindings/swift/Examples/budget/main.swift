// Long reasoning in a fixed footprint: the KV memory gets a byte budget before the first token and never exceeds it.
//
//   budget MODEL.gguf [BUDGET_TOKENS]
//
// Plans a session, checks the plan against what the application can spare, creates the session, lets the model think
// for far longer than the budget holds, and compares the plan with what was really used.
import Foundation
import Weir

let spareBytes = 64 << 20  // what this application is willing to give to one conversation
let nStart = 12, nSteps = 120

// A chain problem whose answer takes some two thousand tokens of thought.
let numbers = (0..<nStart).map { "x\($0) = \((37 * $0 + 11) % 100)" }.joined(separator: ", ")
let problem = "Start: \(numbers). Rule: x[n] = x[n-\(nStart)] + x[n-5]. Work modulo 100. Find x\(nStart + nSteps - 1)."

func complain(_ text: String) { FileHandle.standardError.write(Data("\(text)\n".utf8)) }

let arguments = CommandLine.arguments
guard arguments.count > 1 else {
    complain("usage: budget MODEL.gguf [BUDGET_TOKENS]")
    exit(2)
}
do {
    let model = try await Model.open(arguments[1], runtime: Runtime())

    // RaaS keeps the prompt and the pages that the reasoning still looks at; the stalest page makes room.
    let budget = arguments.count > 2 ? Int(arguments[2]) ?? 0 : 1024
    let options = SessionOptions(budgetTokens: budget, policy: "raas")

    // The plan allocates nothing. Its total is what the session will take, to the byte, however long it thinks.
    let plan = try model.plan(options)
    print("plan: \(plan.totalBytes) bytes, \(plan.kvBytes) of them KV pages for \(plan.budgetTokens) tokens a stream")
    if plan.totalBytes > spareBytes {
        complain("that is more than the \(spareBytes) bytes to spare")
        exit(1)
    }

    let session = try await model.session(options)
    print("question: \(problem)")
    try await session.prompt([.user(problem)])
    var answer = ""
    for try await event in try await session.events() { answer += event.text }
    print("answer: \(answer.split(separator: "\n", omittingEmptySubsequences: false).last ?? "")")

    let stats = try session.stats(), memory = try session.memory()
    print("thought for \(stats.nDecode) tokens; \(stats.pagesEvicted) pages left the KV memory, "
          + "at most \(stats.pagesResidentMax) were in it")
    print("peak: \(memory.peakBytes) bytes; allocations while decoding: \(memory.allocsWhileDecoding)")
    exit(memory.peakBytes == plan.totalBytes && memory.allocsWhileDecoding == 0 ? 0 : 1)
} catch {
    complain("\(error)")
    exit(1)
}
