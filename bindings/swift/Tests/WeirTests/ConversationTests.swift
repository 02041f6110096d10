// Answers: streams and cancels, conversations, what closures throw.
import Foundation
import Testing
@testable import Weir

extension All {
    @Suite struct Conversations {
        @Test func streamAndCancelFromAnotherTaskLosesNoToken() async throws {
            let session = try await model.session()
            let cancel = try Cancel()
            try await session.setCancel(cancel)
            for round in 0..<100 {
                try await session.prompt(question)
                let before = try await session.tokens
                let nSeen = Shared(0)
                let reading = Task {
                    var events: [Event] = []
                    for try await event in try await session.events(endless) {
                        events.append(event)
                        nSeen.change { $0 += 1 }
                    }
                    return events
                }
                let canceller = Task.detached {
                    try await wait { nSeen.value >= round % 7 }
                    if round % 4 == 3 { try await Task.sleep(for: .microseconds(round * 37 % 900)) }
                    switch round % 3 {
                    case 0: reading.cancel()
                    case 1: session.cancel()
                    default: cancel.set()
                    }
                }
                let events = try await reading.value
                try await canceller.value
                cancel.clear()
                session.clearCancel()
                #expect(events.last?.kind == .end && events.last?.stop == .cancelled)
                #expect(tokens(events).count >= round % 7 - 1)
                #expect(try await session.tokens == before + tokens(events))
            }
        }

        @Test func leavingALoopLosesNoToken() async throws {
            let session = try await model.session(small)
            try await session.prompt(question)
            let before = try await session.tokens
            var seen: [Token] = []
            for try await event in try await session.events(endless) {
                if event.kind == .token { seen.append(event.token) }
                if seen.count == 5 { break }
            }
            #expect(try await session.tokens == before + seen)
            // A loop of an answer before is over.
            let old = try await session.events(endless).makeAsyncIterator()
            let new = try await session.events(endless)
            #expect(await status { var old = old; _ = try await old.next() } == .state)
            for try await event in new { #expect(event.kind == .token); break }
        }

        @Test func cancellingATaskStopsAPromptAndNothingLater() async throws {
            let session = try await model.session()
            let long = [Token](repeating: 65, count: 4000)
            let reading = Task {
                try await session.prefill(long) { progress in
                    if progress.done > 0 { withUnsafeCurrentTask { $0?.cancel() } }
                }
            }
            #expect(await status { try await reading.value } == .cancelled)
            #expect(try session.stats().nTokens < 4000)
            // A task that was cancelled before the call.
            let late = Task {
                try await wait { Task.isCancelled }
                try await session.prompt(question)
            }
            late.cancel()
            #expect(await status { try await late.value } == .cancelled)
            // One that is cancelled after its answer has ended.
            let done = Task { () -> StopReason in
                try await session.prompt(question)
                let result = try await session.generate(GenerateOptions(maxTokens: 3)) { event in
                    if event.index == 2 { withUnsafeCurrentTask { $0?.cancel() } }
                }
                return result.stop
            }
            #expect(try await done.value == .length)
            try await session.prompt(question)
            #expect(try await all(session).last?.stop == .eos)
        }

        @Test func generateIsCancelledWhileItRuns() async throws {
            let session = try await model.session()
            for round in 0..<6 {
                try await session.prompt(question)
                let before = try await session.tokens
                let shown = Shared<[Token]>([])
                let generating = Task {
                    try await session.generate(endless) { event in
                        if event.token >= 0 { shown.change { $0.append(event.token) } }
                    }
                }
                try await wait { shown.value.count >= 3 }
                if round % 2 == 0 { generating.cancel() } else { session.cancel() }
                let result = try await generating.value
                #expect(result.stop == .cancelled && result.nTokens == shown.value.count)
                #expect(try await session.tokens == before + shown.value)
            }
        }

        @Test func allWaysToAnAnswerAreTheSame() async throws {
            let session = try await model.session(small)
            try await session.prompt(question)
            let events = try await all(session)
            let generated = Shared("")
            try await session.prompt(question)
            let result = try await session.generate { event in generated.change { $0 += event.text } }
            #expect(result.stop == .eos && generated.value == text(events) && result.nTokens == tokens(events).count)
            try await session.prompt(question)
            let pulled = try await session.perform { session in
                try session.begin()
                var pulled = ""
                while true {
                    let event = try session.next()
                    pulled += event.text
                    if event.kind == .end { return pulled }
                }
            }
            #expect(pulled == text(events))
            try await session.prompt(question)
            let main = try await onMainActor(session)
            #expect(text(main) == text(events) && tokens(main) == tokens(events))
            try await session.prompt(question)
            var drawn: [Token] = []
            while drawn.count < tokens(events).count {
                drawn.append(try await session.sample())
                try await session.step(drawn.last!)
            }
            #expect(drawn == tokens(events))
            #expect(String(decoding: try model.detokenize(drawn), as: UTF8.self) == text(events))
        }

        @Test func promptEditAndRegenerate() async throws {
            let session = try await model.session(small)
            var messages: [Message] = [.system("Be brief."), .user("Who are you?")]
            let first = try await session.prompt(messages)
            #expect(first.report.nKept == 0 && first.spans.count == 2 && first.spans[0].end <= first.spans[1].first)
            let said = text(try await all(session))
            let answer = try await session.answer()
            #expect(answer.message.role == "assistant" && !answer.isMalformed)
            #expect(answer.message.content.isEmpty == false && said.contains(answer.message.content))
            // The next turn keeps everything, the answer's tokens included.
            messages += [answer.message, .user("And then?")]
            let held = try session.stats().nTokens
            let second = try await session.prompt(messages).report
            #expect(second.nKept >= held - 1 && second.nForgotten <= 1)
            // Another answer to the first question, drawn in the same way, is the same.
            messages.removeLast(2)
            let third = try await session.prompt(messages).report
            #expect(third.nForgotten > 0 && third.nTokens == first.report.nTokens)
            #expect(text(try await all(session)) == said)
            // An edit keeps what was before it. Measuring changes nothing.
            messages[1].content = "Who is there?"
            let nTokens = try session.stats().nTokens
            let measured = try await session.prompt(messages, PromptOptions(flags: .measure)).report
            #expect(try session.stats().nTokens == nTokens)
            let edited = try await session.prompt(messages).report
            #expect(edited.nKept >= first.spans[0].end && edited.nKept == measured.nKept)
            #expect(try await session.tokens == model.chatTokens(messages))
        }

        @Test func whatClosuresThrowComesOutOfTheCall() async throws {
            let session = try await model.session(small)
            try await session.prompt(question)
            let before = try await session.tokens.count
            #expect(await failure {
                try await session.generate { if $0.index == 2 { throw Refused(number: 7) } }
            } as? Refused == Refused(number: 7))
            #expect(try await session.tokens.count == before + 3)
            #expect(await failure { try await session.prefill([65]) { _ in throw Refused() } } is Refused)
            #expect(await failure {
                try await session.prompt(question + question, PromptOptions(flags: .exact, progress: { _ in
                    throw Refused()
                }))
            } is Refused)
            #expect(await failure {
                _ = try model.tokenize("text", TokenizeOptions(progress: { _ in throw Refused() }))
            } is Refused)
            #expect(await failure {
                _ = try model.chatTokens(question, ChatOptions(progress: { _ in throw Refused() }))
            } is Refused)
            #expect(await failure {
                let options = ModelOptions(progress: { _ in throw Refused() })
                _ = try Model(modelPath, runtime: model.runtime, options: options)
            } is Refused)
            #expect(await failure { try await session.save { _ in throw Refused() } } is Refused)
            #expect(await failure { try await session.restore { _ in throw Refused() } } is Refused)
            #expect(await status { try await session.restore { $0.count + 1 } } == .invalidArg)
        }

        @Test func whatAMaskThrowsComesOutOfTheCall() async throws {
            let session = try await model.session(small), other = try await model.session(small)
            let isOn = Shared(true)
            try await session.setTokenMask { _ in if isOn.value { throw Refused() } }
            for one in [session, other] { try await one.prompt(question) }
            #expect(await failure { _ = try await session.sample() } is Refused)
            #expect(await failure { try await session.generate() } is Refused)
            let fork = try await session.fork()
            for one in [session, other, fork] { try await one.begin() }
            #expect(await failure { _ = try await session.next() } is Refused)
            #expect(await failure { _ = try await fork.next() } is Refused)
            #expect(await failure { _ = try await Session.nextMany([other, session]) } is Refused)
            // Another failure is itself again.
            isOn.change { $0 = false }
            #expect(try await session.next().kind == .token)
            #expect(await status { try await session.rewind(to: 100_000) } == .invalidArg)
            try await session.setTokenMask(nil)
            isOn.change { $0 = true }
            try await session.prompt(question)
            #expect(try await all(session).last?.stop == .eos)
        }

        @Test func anAnswerIsWhatAMaskAllows() async throws {
            let session = try await model.session(small)
            let info = try model.chatInfo()
            let script = try model.tokenize("<think>abc</think>hello", TokenizeOptions(flags: .special))
            #expect(info.thoughtBegin == "<think>" && info.can.contains(.thoughts))
            try await session.setTokenMask(saying(script))
            try await session.prompt(question)
            let events = try await all(session)
            #expect(tokens(events) == script && events.last?.stop == .constraint)
            #expect(events.filter { $0.segment == .thought }.map(\.text).joined() == "abc")
            let answer = try await session.answer().message
            #expect(answer.thought == "abc" && answer.content == "hello")
            // A thought that is ended from outside.
            let open = try model.tokenize("<think>abcabcabcabcabc", TokenizeOptions(flags: .special))
            try await session.setTokenMask { mask in
                if mask.answer.count < open.count { mask.allowOnly([open[mask.answer.count]]) }
            }
            try await session.prompt(question)
            try await session.begin(GenerateOptions(flags: .specialText, maxTokens: open.count + 8))
            for _ in 0..<3 { _ = try await session.next() }
            session.finishThinking()
            var said = ""
            while true {
                let event = try await session.next()
                said += event.text
                if event.kind == .end { break }
            }
            #expect(said.hasPrefix("</think>") || said.contains("</think>"))
        }

        @Test func jsonBySchema() async throws {
            let session = try await model.session(small)
            let schema = """
                {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 5},
                 "kind": {"enum": ["a", "b"]}}, "required": ["n", "kind"], "additionalProperties": false}
                """
            try await session.setConstraint(Constraint(.jsonSchema, schema, model: model))
            for _ in 0..<2 {
                try await session.prompt(question)
                let events = try await all(session)
                let stop = events.last!.stop
                #expect(stop == .eos || stop == .constraint)
                let said = Data(answer(events).utf8)
                let object = try JSONSerialization.jsonObject(with: said) as! [String: Any]
                #expect((3...5).contains(object["n"] as! Int) && ["a", "b"].contains(object["kind"] as! String))
            }
            let grammar = try Constraint(.gbnf, "root ::= \"yes\" | \"no\"", model: model)
            try await session.setConstraint(grammar)
            try await session.prompt(question)
            #expect(["yes", "no"].contains(answer(try await all(session))))
            try await session.setConstraint(nil)
            #expect(await status { _ = try Constraint(.jsonSchema, "{\"type\": 3}", model: model) } == .invalidArg)
            _ = try Constraint(.json, model: model)
        }

        @Test func samplingBiasAndLogprobs() async throws {
            let session = try await model.session(small)
            try await session.prompt(question)
            let greedy = try await all(session, GenerateOptions(maxTokens: 1, nTop: 3))
            #expect(greedy[0].top.count == 3 && greedy[0].top[0].token == greedy[0].token)
            #expect(greedy[0].logprob == greedy[0].top[0].logprob && greedy[0].logprob <= 0)
            #expect(greedy.last!.logprob.isNaN)
            try await session.prompt(question)
            let best = try await session.withLogits { logits in
                (count: logits.count, best: Token(logits.indices.max { logits[$0] < logits[$1] }!))
            }
            #expect(best.count == model.info.vocabSize && best.best == greedy[0].token)
            try await session.setSampling(SamplingOptions(bias: [greedy[0].token: -100]))
            #expect(try await session.sample() != greedy[0].token)
            #expect(await status { try await session.setSampling(SamplingOptions(topP: 2)) } == .invalidArg)
            // Stop strings, and text of two segments.
            try await session.setSampling(SamplingOptions())
            try await session.prompt(question)
            let full = text(try await all(session))
            let word = String(full.split(separator: " ")[2])
            try await session.prompt(question)
            let stopped = try await all(session, GenerateOptions(stop: ["no such text", word]))
            #expect(stopped.last?.stop == .string && stopped.last?.stopIndex == 1)
            #expect(full.hasPrefix(text(stopped) + word))
        }
    }
}
