// Answers that a program can read: whatever the model would say, the answer is JSON of this schema.
//
//   json MODEL.gguf [QUESTION]
//
// A constraint is compiled once and can serve any number of sessions. Before each token is drawn it leaves only those
// that the schema allows next, so nothing has to be repaired or asked again. What the model thinks stays free.
import Foundation
import Weir

let schema = """
    {"type": "object",
     "properties": {
       "answer": {"type": "string", "maxLength": 80},
       "kind": {"enum": ["number", "name", "other"]},
       "confidence": {"type": "integer", "minimum": 0, "maximum": 100}},
     "required": ["answer", "kind", "confidence"],
     "additionalProperties": false}
    """

let arguments = CommandLine.arguments
guard arguments.count > 1 else {
    FileHandle.standardError.write(Data("usage: json MODEL.gguf [QUESTION]\n".utf8))
    exit(2)
}
do {
    let model = try await Model.open(arguments[1], runtime: Runtime())
    let session = try await model.session()
    // A schema with a keyword that is not supported, or one that contradicts itself, fails here and says where.
    try await session.setConstraint(Constraint(.jsonSchema, schema, model: model))

    try await session.prompt([.user(arguments.count > 2 ? arguments[2]
                                        : "What is the capital of France? Answer in JSON.")])
    var stop = StopReason.none
    for try await event in try await session.events(GenerateOptions(maxTokens: 2048)) {
        if event.segment == .answer { print(event.text, terminator: "") }
        fflush(nil)
        stop = event.stop
    }
    print()
    // Complete, unless the model thought for too long or the context ended.
    exit(stop == .eos || stop == .constraint ? 0 : 1)
} catch {
    FileHandle.standardError.write(Data("\(error)\n".utf8))
    exit(1)
}
