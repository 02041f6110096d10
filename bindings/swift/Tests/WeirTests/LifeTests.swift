// Lives, threads, errors, and every other function of the library.
import Foundation
import Testing
@testable import Weir

/// One test after the other: some measure the memory of the process, which others would change meanwhile.
@Suite(.serialized) struct All {}

extension All {
    @Suite struct Lives {
        @Test func aSessionKeepsItsModelAndRuntimeAlive() async throws {
            func make() async throws -> Session {
                try await Model.open(modelPath, runtime: Runtime(RuntimeOptions(nThreads: 1))).session(small)
            }
            let session = try await make()
            try await session.prompt(question)
            #expect(text(try await all(session)).isEmpty == false)
            #expect(session.model.info.name.isEmpty == false)
        }

        @Test func fiftySessionsLeaveNothing() async throws {
            let runtime = try Runtime(RuntimeOptions(nThreads: 1))
            let model = try await Model.open(modelPath, runtime: runtime)
            let bytes = try runtime.memory().bytes
            func one() async throws {
                let session = try await model.session(small)
                try await session.setTokenMask { _ in }
                try await session.prompt(question)
                _ = try await all(session, GenerateOptions(maxTokens: 2))
            }
            // The heaps of the threads that may get a session's jobs grow first.
            for _ in 0..<40 { try await one() }
            // A thread that is new may take a heap of its own in one round; what sessions left, they would in each.
            var least = Int.max
            for _ in 0..<3 {
                let resident = residentBytes()
                for _ in 0..<50 { try await one() }
                // The thread that has made the last one may let go a moment later.
                try await wait { (try? runtime.memory().bytes) == bytes }
                least = min(least, residentBytes() - resident)
            }
            #expect(least < 1 << 20)
        }
        /// Resident memory of this process.
        func residentBytes() -> Int {
            let fields = try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8).split(separator: " ")
            return fields.map { Int($0[1])! * Int(sysconf(Int32(_SC_PAGESIZE))) } ?? 0
        }

        @Test func closedSessionsFailEverywhere() async throws {
            let session = try await model.session(small)
            try await session.prompt(question)
            let events = try await session.events()
            try await session.close()
            #expect(await status { _ = try await session.next() } == .state)
            #expect(await status { for try await _ in events {} } == .state)
            #expect(await status { try await session.prompt(question) } == .state)
            #expect(await status { try await session.generate() } == .state)
            #expect(await status { _ = try await session.tokens } == .state)
            #expect(await status { _ = try await session.fork() } == .state)
            #expect(await status { _ = try session.stats() } == .state)
            #expect(await status { _ = try session.memory() } == .state)
            #expect(await status { _ = try await Session.nextMany([session]) } == .state)
            let error = await failure { try await session.reset() }
            #expect("\(error!)" == "WEIR_ERR_STATE: the session is closed")
            session.cancel()
            session.clearCancel()
            session.finishThinking()
            try await session.close()
        }

        @Test func twoTasksWithASessionEach() async throws {
            func answers(_ name: String) async throws -> String {
                let session = try await model.session(small)
                var said = ""
                for round in 0..<4 {
                    try await session.prompt([.user("\(name) \(round)")])
                    said += text(try await all(session, GenerateOptions(maxTokens: 24)))
                }
                return said
            }
            let alone = [try await answers("a"), try await answers("b")]
            async let a = answers("a")
            async let b = answers("b")
            #expect(try await [a, b] == alone)
        }

        @Test func oneSessionInManyTasksIsServedInTurn() async throws {
            let session = try await model.session(small), nInside = Shared(0), nStarted = Shared(0)
            // An answer to a prompt of its own, in calls between which no other task comes in.
            @Sendable func said(_ number: Int) async throws -> [Token] {
                try await session.perform { session in
                    nInside.change { $0 += 1 }
                    defer { nInside.change { $0 -= 1 } }
                    try session.reset()
                    for token in 0..<4 { try session.step(Token(65 + number + token)) }
                    try session.begin(GenerateOptions(flags: .ignoreEos, maxTokens: 6))
                    var seen: [Token] = []
                    while true {
                        #expect(nInside.value == 1)
                        let event = try session.next()
                        if event.kind == .end { break }
                        seen.append(event.token)
                    }
                    #expect(try session.tokens.count == 4 + seen.count)
                    return seen
                }
            }
            let alone = try await (0..<8).asyncMap { try await said($0) }
            #expect(Set(alone).count > 4 && alone.allSatisfy { $0.count == 6 })
            let together = try await withThrowingTaskGroup(of: (Int, [Token]).self) { group in
                for i in 0..<32 {
                    group.addTask {
                        nStarted.change { $0 += 1 }
                        try await wait { nStarted.value >= 2 }
                        return (i, try await said(i % 8))
                    }
                }
                return try await group.reduce(into: [[Token]](repeating: [], count: 32)) { $0[$1.0] = $1.1 }
            }
            #expect(together == (0..<32).map { alone[$0 % 8] })
            // Calls by themselves come one after the other, too.
            try await session.reset()
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<4 { group.addTask { for _ in 0..<25 { try await session.step(65) } } }
                try await group.waitForAll()
            }
            #expect(try await session.tokens == [Token](repeating: 65, count: 100))
        }

        @Test func sessionsTakeNoThreadFromOtherTasks() async throws {
            // More prompts at once than Swift has threads, none of which ends before another task has run.
            let gate = DispatchSemaphore(value: 0), nWaiting = Shared(0)
            let n = ProcessInfo.processInfo.activeProcessorCount + 2
            let reading = try await (0..<n).asyncMap { _ in try await model.session(small) }.map { session in
                Task.detached {
                    try await session.prefill([65]) { progress in
                        if progress.done > 0 { return }
                        nWaiting.change { $0 += 1 }
                        if gate.wait(timeout: .now() + 20) == .timedOut { throw Refused() }
                    }
                }
            }
            try await wait { nWaiting.value >= n }
            await Task.detached {}.value
            for _ in 0..<n { gate.signal() }
            for task in reading { try await task.value }
        }

        @Test func sessionsThatComputeTogetherAreBusyForOthers() async throws {
            let (a, b) = (try await model.session(small), try await model.session(small))
            for one in [a, b] { try await one.prompt(question) }
            let alone = try await all(a)
            for one in [a, b] { try await one.prompt(question) }
            let isDrawing = Shared(false), gate = DispatchSemaphore(value: 0)
            try await a.setTokenMask { mask in
                if !mask.answer.isEmpty { return }
                isDrawing.change { $0 = true }
                if gate.wait(timeout: .now() + 60) == .timedOut { throw Refused() }
            }
            for one in [a, b] { try await one.begin() }
            let together = Task { try await Session.nextMany([a, b]) }
            try await wait { isDrawing.value }
            for (name, body) in [
                ("next", { _ = try await b.next() }), ("begin", { try await b.begin() }),
                ("tokens", { _ = try await b.tokens }), ("fork", { _ = try await b.fork() }),
                ("prompt", { try await b.prompt(question) }), ("generate", { try await b.generate() }),
                ("logits", { try await b.withLogits { _ in } }), ("answer", { _ = try await b.answer() }),
                ("mask", { try await b.setTokenMask(nil) }), ("pages", { _ = try await b.pages() }),
                ("nextMany", { _ = try await Session.nextMany([b, a]) }), ("close", { try await b.close() }),
            ] as [(String, () async throws -> Void)] {
                let error = await failure(body) as? WeirError
                #expect(error?.status == .busy && error?.message == "another call is inside this session", "\(name)")
            }
            #expect(try b.stats().nTokens > 0 && b.memory().bytes > 0)
            gate.signal()
            var seen = [try await together.value.events[1]]
            while seen.last?.kind != .end { seen.append(try await b.next()) }
            #expect(tokens(seen) == tokens(alone))
            try await b.close()
        }

        @Test func whatASessionLendsStaysWhileItIsRead() async throws {
            let (a, b) = (try await model.session(small), try await model.session(small))
            for one in [a, b] {
                try await one.prompt(question)
                try await one.begin()
            }
            let isReading = Shared(false), gate = DispatchSemaphore(value: 0)
            let reading = Task {
                try await b.withLogits { logits in
                    let before = Array(logits)
                    isReading.change { $0 = true }
                    if gate.wait(timeout: .now() + 60) == .timedOut { throw Refused() }
                    return before == Array(logits)
                }
            }
            try await wait { isReading.value }
            #expect(await status { _ = try await Session.nextMany([a, b]) } == .busy)
            #expect(await status { try await Session.stepMany([(a, 65), (b, 65)]) } == .busy)
            gate.signal()
            #expect(try await reading.value)
            #expect(try await Session.nextMany([a, b]).nRunning == 2)
        }

        @Test func hooksMayLookAtASessionThatIsFreed() async throws {
            final class Looking: Allocator {
                let session = Shared<Session?>(nil), nFreed = Shared(0)
                func allocate(_ request: AllocationRequest) throws -> UnsafeMutableRawPointer? {
                    .allocate(byteCount: request.bytes, alignment: request.alignment)
                }
                func free(_ request: AllocationRequest) {
                    if let session = session.value, (try? session.stats()) == nil { nFreed.change { $0 += 1 } }
                    request.ptr?.deallocate()
                }
            }
            final class Mark: Sendable {
                let session: Session, isFree: Shared<Bool>
                init(_ session: Session, _ isFree: Shared<Bool>) { (self.session, self.isFree) = (session, isFree) }
                deinit { isFree.change { $0 = (try? session.stats()) != nil } }
            }
            let allocator = Looking(), isFree = Shared(false)
            let runtime = try Runtime(RuntimeOptions(allocator: allocator))
            let session = try await Model.open(modelPath, runtime: runtime).session(small)
            allocator.session.change { $0 = session }
            try await session.setTokenMask { [mark = Mark(session, isFree)] _ in _ = mark }
            try await session.setTokenMask(nil)
            #expect(isFree.value)
            try await session.close()
            #expect(allocator.nFreed.value > 0)
            allocator.session.change { $0 = nil }
        }
    }

    @Suite struct Errors {
        @Test func sayWhatIsWrong() async throws {
            let path = "/no/such.gguf"
            let error = await failure { _ = try await Model.open(path, runtime: model.runtime) } as? WeirError
            #expect(error?.status == .io && error!.message.contains(path))
            #expect("\(error!)".hasPrefix("WEIR_ERR_IO: "))
            let policy = await failure { _ = try await model.session(SessionOptions(policy: "best")) } as? WeirError
            #expect(policy?.status == .notFound && policy!.message.contains("raas"))
            #expect(Status.contextFull.description == "contextFull" && Status(rawValue: -99).description == "-99")
        }

        @Test func textsWithNulAndNumbersOutOfRange() async throws {
            for (name, body) in [
                ("path", { _ = try Model("a\0b", runtime: model.runtime) }),
                ("policy", { _ = try model.plan(SessionOptions(policy: "ra\0as")) }),
                ("policyOptions", { _ = try model.plan(SessionOptions(policyOptions: ["a": "\0"])) }),
                ("role", { _ = try model.chatTokens([Message(role: "us\0er", content: "")]) }),
                ("templateText", { _ = try model.chatText(question, ChatOptions(templateText: "\0")) }),
                ("backendDir", { _ = try Runtime(RuntimeOptions(backendDir: "x\0")) }),
                ("contextTokens", { _ = try model.plan(SessionOptions(contextTokens: -1)) }),
                ("budgetBytes", { _ = try model.plan(SessionOptions(budgetBytes: -5)) }),
                ("nThreads", { _ = try Runtime(RuntimeOptions(nThreads: 1 << 40)) }),
            ] as [(String, () throws -> Void)] {
                let error = await failure { try body() } as? WeirError
                #expect(error?.status == .invalidArg && error!.message.hasPrefix("\(name): "))
            }
            // In the text of a message it is a character like others.
            #expect(try model.chatText([.user("a\0b")]).contains("a\0b"))
            #expect(try model.detokenize(model.tokenize(bytes: [97, 0xff, 98])) == [97, 0xff, 98])
        }

        @Test func versions() async throws {
            #expect(Library.version == Library.bindingVersion)
            for (number, text) in [(2 << 16, "2.0.0"), (1 << 16, "1.0.0"), (0, "0.0.0")] as [(UInt32, String)] {
                let error = await failure { try Library.check(number, text) } as? WeirError
                #expect(error?.status == .unsupported && error!.message.contains(text))
                #expect(error!.message.contains(Library.bindingVersion))
            }
            try Library.check(1 << 16 | 200 << 8, "1.200.0")
        }

        @Test func anAllocatorThatRefuses() async throws {
            final class Counting: Allocator {
                let live = Shared(0), isFull = Shared(false)
                func allocate(_ request: AllocationRequest) throws -> UnsafeMutableRawPointer? {
                    if isFull.value { throw Refused() }
                    live.change { $0 += request.bytes }
                    return .allocate(byteCount: request.bytes, alignment: request.alignment)
                }
                func free(_ request: AllocationRequest) {
                    live.change { $0 -= request.bytes }
                    request.ptr?.deallocate()
                }
            }
            let allocator = Counting(), lines = Shared<[String]>([])
            func use() async throws {
                let runtime = try Runtime(RuntimeOptions(allocator: allocator, log: { line in
                    lines.change { $0.append("\(line.level): \(line.message)") }
                }, logLevel: .info))
                let model = try await Model.open(modelPath, runtime: runtime)
                let session = try await model.session(small)
                // The runtime itself is not in its own count.
                let beside = allocator.live.value - (try runtime.memory().bytes)
                #expect((0..<(64 << 10)).contains(beside))
                #expect(try session.memory().bytes == model.plan(small).totalBytes)
                allocator.isFull.change { $0 = true }
                #expect(await status { _ = try await model.session(small) } == .outOfMemory)
            }
            try await use()
            // A thread that has resumed this task may let go a moment later.
            try await wait { allocator.live.value == 0 }
            #expect(lines.value.contains { $0.hasPrefix("info: session: policy dense") })
        }

        @Test func cancellingATaskStopsOpening() async throws {
            let opening = Task {
                try await wait { Task.isCancelled }
                return try await Model.open(modelPath, runtime: model.runtime, options: ModelOptions(flags: .copy))
            }
            opening.cancel()
            #expect(await failure { _ = try await opening.value } is CancellationError)
        }
    }

    @Suite struct Everything {
        @Test func runtimeAndModel() async throws {
            let runtime = model.runtime
            #expect(runtime.threadCount >= 1 && runtime.cpuTarget.isEmpty == false)
            let devices = try runtime.devices()
            #expect(devices[0].backend == .cpu && devices[0].isUsable && devices[0].name.isEmpty == false)
            #expect(Library.policies.contains("raas") && Library.presets.contains("reason-fixed"))
            #expect(Library.weightTypes.contains("q8_0"))
            #expect(try runtime.render(template: "{{ a + 1 }}!", variables: "{\"a\": 41}") == "42!")
            let info = model.info
            #expect(info.architecture == "llama" && info.vocabSize > 0 && info.fingerprint != 0)
            let tensor = try model.tensor(0)
            #expect(tensor.dims.count == 4 && tensor.name.isEmpty == false && tensor.bytes > 0)
            #expect(await status { _ = try model.tensor(info.nTensors) } == .invalidArg)
            let metadata = try model.metadata()
            #expect(metadata.first { $0.key == "general.architecture" }?.value == "llama")
            #expect(try model.specialTokens().eos >= 0)
        }

        @Test func text() throws {
            let words = "Größe: 10 µm, 水"
            let ids = try model.tokenize(words)
            #expect(String(decoding: try model.detokenize(ids), as: UTF8.self) == words)
            let detokenizer = try Detokenizer(model)
            #expect(try ids.map(detokenizer.push).joined() + detokenizer.flush() == words)
            #expect(try ids.flatMap { try model.token($0).bytes } == Array(words.utf8))
            let eos = try model.token(model.specialTokens().eos)
            #expect(eos.flags.contains(.endOfGeneration) && eos.flags.contains(.control))
            let forged = try model.chatTokens([.user(eos.text)])
            #expect(forged.filter { $0 == (try? model.specialTokens().eos) }.count
                    == (try model.chatTokens([.user("x")])).filter { $0 == (try? model.specialTokens().eos) }.count)
            #expect(try model.chatText([.user("x")], ChatOptions(templateText: "chatml"))
                    == "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n")
        }

        @Test func planIsWhatTheProgramSays() async throws {
            guard let program = environment["WEIR_PROGRAM"] else { return }
            for (options, arguments) in [
                (SessionOptions(), []),
                (SessionOptions(contextTokens: 4096, budgetTokens: 512, policy: "raas"),
                 ["--context", "4096", "--budget", "512", "--policy", "raas"]),
                (try SessionOptions(preset: "reason-recall"), ["--preset", "reason-recall"]),
            ] as [(SessionOptions, [String])] {
                let printed = try output(of: program, ["plan", "--json", modelPath] + arguments)
                let wanted = try JSONSerialization.jsonObject(with: printed) as! [String: Any]
                var nCompared = 0
                for field in Mirror(reflecting: try model.plan(options)).children {
                    let name = field.label!.replacing(/[A-Z]/) { "_" + $0.output.lowercased() }
                    if let number = field.value as? Int, let said = wanted[name] as? Int {
                        #expect(number == said, "\(name)")
                        nCompared += 1
                    }
                }
                #expect(nCompared >= 20)
            }
        }

        @Test func budgets() async throws {
            let options = try model.fit(SessionOptions(preset: "reason-fixed"), bytes: 12 << 20)
            #expect(try model.plan(options).totalBytes <= 12 << 20 && options.policy == "raas")
            #expect(await status { _ = try model.fit(SessionOptions(), bytes: 1000) } == .budget)
            #expect(await status { _ = try SessionOptions(preset: "none") } == .notFound)
            let session = try await model.session(options)
            #expect(try session.memory().planBytes == model.plan(options).totalBytes)
        }

        @Test func saveRestoreForkAndRewind() async throws {
            let session = try await model.session(small)
            try await session.prompt(question)
            let nPrompt = try session.stats().nTokens
            _ = try await all(session, GenerateOptions(maxTokens: 4))
            let saved = Shared<[UInt8]>([])
            try await session.save { bytes in saved.change { $0.append(contentsOf: bytes) } }
            let other = try await model.session(small), at = Shared(0)
            try await other.restore { buffer in
                let part = saved.value[at.value...].prefix(buffer.count)
                buffer.copyBytes(from: part)
                at.change { $0 += part.count }
                return part.count
            }
            let fork = try await session.fork()
            let rest = try await all(session)
            #expect(tokens(rest).isEmpty == false)
            #expect(tokens(try await all(other)) == tokens(rest))
            #expect(tokens(try await all(fork)) == tokens(rest))
            try await session.rewind(to: nPrompt)
            #expect(try await session.tokens.count == nPrompt)
            #expect(await status { _ = try await session.sample() } == .state)
            #expect(await status { try await other.restore { _ in 0 } } == .format)
            try await session.reset()
            #expect(try session.stats().nTokens == 0)
        }

        @Test func pagesAndPins() async throws {
            let session = try await model.session(SessionOptions(contextTokens: 2048, budgetTokens: 256, policy: "h2o"))
            try await session.prompt(tokens: try model.tokenize(String(repeating: "a b ", count: 60)))
            let nStreams = try model.plan().nStreams
            let pages = try await session.pages()
            #expect(pages.count == (try session.stats().nTokens + 15) / 16)
            #expect(pages.allSatisfy { $0.resident + $0.cold + $0.lost == nStreams })
            try await session.pin(0..<16)
            #expect(try await session.pages()[0].pinned == nStreams)
            try await session.unpin(0..<16)
            #expect(await status { try await session.pin(0..<5000) } == .invalidArg)
        }

        @Test func manySessionsInOneStep() async throws {
            let sessions = try await (0..<3).asyncMap { _ in try await model.session(small) }
            var alone: [[Token]] = [], together = [[Token]](repeating: [], count: 3)
            for (i, session) in sessions.enumerated() {
                try await session.prompt([.user("Question \(i)")])
                alone.append(tokens(try await all(session, GenerateOptions(maxTokens: 6 + i))))
                try await session.prompt([.user("Question \(i)")])
                try await session.begin(GenerateOptions(maxTokens: 6 + i))
            }
            while true {
                let (events, nRunning) = try await Session.nextMany(sessions)
                for (i, event) in events.enumerated() where event.kind == .token { together[i].append(event.token) }
                if nRunning == 0 { break }
            }
            #expect(together == alone)
            let before = try sessions.map { try $0.stats().nTokens }
            try await Session.stepMany(sessions.map { ($0, 65) })
            #expect(try sessions.map { try $0.stats().nTokens } == before.map { $0 + 1 })
            #expect(await status { try await Session.stepMany([(sessions[0], 65), (sessions[0], 65)]) } == .invalidArg)
            #expect(try await Session.nextMany([]).nRunning == 0)
        }
    }
}

extension Sequence where Self: Sendable {
    func asyncMap<T>(_ body: (Element) async throws -> T) async rethrows -> [T] {
        var results: [T] = []
        for element in self { results.append(try await body(element)) }
        return results
    }
}
