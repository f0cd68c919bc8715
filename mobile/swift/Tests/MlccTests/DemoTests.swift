import Foundation
import XCTest

@testable import Mlcc

/// The demo model in this process: Swift, the C library, Python's engine and compiled kernels. Runs
/// if MLCC_DEMO names the compiled model; MLCC_PYTHON_PATH must have Hugging Face's `tokenizers`.
final class DemoTests: XCTestCase {
    private static let shared = Locked<Engine?>(nil)

    private func demo() throws -> URL {
        guard let path = ProcessInfo.processInfo.environment["MLCC_DEMO"] else {
            throw XCTSkip("MLCC_DEMO names no model")
        }
        return URL(fileURLWithPath: path)
    }

    private func engine() async throws -> Engine {
        if let shared = Self.shared.withLock({ $0 }) { return shared }
        let made = try await Engine.load(demo())
        Self.shared.withLock { $0 = made }
        return made
    }

    private func ask(_ text: String, tokens: Int? = nil) -> ChatCompletionRequest {
        var request = ChatCompletionRequest(messages: [Message(.user, text)])
        (request.temperature, request.maxTokens) = (0, tokens)
        return request
    }

    private var long: ChatCompletionRequest {
        var request = ask("Count up from one.", tokens: 400)
        request.ignoreEos = true
        return request
    }

    private func isIdle(_ engine: Engine) async throws -> Bool {
        let counters = try await engine.counters()["engine"]
        let running = try XCTUnwrap(counters?["running"]?.int)
        return running + (counters?["waiting"]?.int ?? 0) == 0
    }

    private func becomesIdle(_ engine: Engine, _ wanted: Bool = true) async throws {
        for _ in 0..<30_000 {
            if try await isIdle(engine) == wanted { return }
            try await Task.sleep(nanoseconds: 1_000_000)
        }
        XCTFail("the engine is still \(wanted ? "busy" : "idle")")
    }

    func testItAnswers() async throws {
        let engine = try await engine()
        let answer = try await engine.chat.completions.create(ask("What is 17 + 25?"))
        XCTAssertEqual(answer.text, "17 + 25 = 42")
        XCTAssertEqual(answer.choices[0].finishReason, .stop)
        XCTAssertEqual(answer.model, engine.info.model)
    }

    func testAStreamHasTheSameTextAndItsUsage() async throws {
        let engine = try await engine()
        var text = ""
        var usage: Usage?
        let stream = engine.chat.completions.create(
            messages: [Message(.user, "What is 17 + 25?")],
            streamOptions: StreamOptions(includeUsage: true), temperature: 0)
        for try await chunk in stream {
            text += chunk.text
            usage = chunk.usage ?? usage
        }
        let whole = try await engine.chat.completions.create(ask("What is 17 + 25?"))
        XCTAssertEqual(text, whole.text)
        XCTAssertEqual(usage?.totalTokens, whole.usage.totalTokens)
    }

    func testResponsesAnswerAndAreStored() async throws {
        let engine = try await engine()
        var request = ResponsesRequest(input: "What is 17 + 25?")
        request.temperature = 0
        let answer = try await engine.responses.create(request)
        XCTAssertEqual(answer.outputText, "17 + 25 = 42")
        XCTAssertEqual(answer.status, .completed)
        var text = ""
        var last: ResponsesEvent?
        for try await event in engine.responses.stream(request) {
            text += event.text
            last = event
        }
        XCTAssertEqual(text, "17 + 25 = 42")
        XCTAssertEqual(last?.response?.outputText, text)
        let stored = try await engine.responses.retrieve(answer.id)
        XCTAssertEqual(stored.outputText, text)
        _ = try await engine.responses.delete(answer.id)
        do {
            _ = try await engine.responses.retrieve(answer.id)
            XCTFail("it was deleted")
        } catch MlccError.api(let status, _) { XCTAssertEqual(status, 404) }
    }

    func testModelsAreListed() async throws {
        let engine = try await engine()
        let list = try await engine.models.list()
        XCTAssertEqual(list.data.map(\.id), [engine.info.model])
        let model = try await engine.models.retrieve(engine.info.model)
        XCTAssertEqual(model.id, engine.info.model)
        do {
            _ = try await engine.models.retrieve("none/such ü")
            XCTFail("there is none")
        } catch MlccError.api(let status, _) { XCTAssertEqual(status, 404) }
    }

    func testAModelThatGeneratesIsNoEncoder() async throws {
        do {
            _ = try await engine().embeddings.create(EmbeddingRequest(input: "hi"))
            XCTFail("it is no encoder")
        } catch MlccError.api(let status, _) { XCTAssertTrue((400...404).contains(status)) }
    }

    func testLettersOfAllAlphabetsCross() async throws {
        let engine = try await engine()
        let text = "Grüße, γειά, привет, שלום, سلام, नमस्ते, สวัสดี, 你好, こんにちは, 안녕 🦊 \0 🦊"
        var request = CompletionRequest(prompt: .text(text))
        (request.maxTokens, request.temperature, request.echo) = (1, 0, true)
        let answer = try await engine.completions.create(request)
        XCTAssertTrue(answer.text.hasPrefix(text), answer.text)
    }

    func testAnAnswerIsAValueOfAType() async throws {
        struct Sum: Codable, Sendable { var sum: Int }
        let engine = try await engine()
        let sum = try await engine.chat.completions.create(ask("What is 17 + 25?"), as: Sum.self)
        XCTAssertNotNil(sum.sum)
        do {
            let request = ask("What is 17 + 25?", tokens: 1)
            _ = try await engine.chat.completions.create(request, as: Sum.self)
            XCTFail("it was cut")
        } catch MlccError.capacity(_, let code) { XCTAssertEqual(code, "length") }
    }

    func testARequiredToolIsCalledWithAType() async throws {
        struct Numbers: Codable { var a, b: Int }
        let engine = try await engine()
        var request = ask("What is 17 + 25?")
        request.tools = [try Tool("add", "Adds two numbers.", arguments: Numbers.self)]
        request.toolChoice = .required
        request.maxTokens = 200
        let answer = try await engine.chat.completions.create(request)
        let call = try XCTUnwrap(answer.choices[0].message.toolCalls?.first)
        XCTAssertEqual(call.function.name, "add")
        _ = try call.arguments(as: Numbers.self)
        request.messages.append(Message(answer.choices[0].message))
        request.messages.append(Message("42", of: call))
        request.toolChoice = ToolChoice.none
        let end = try await engine.chat.completions.create(request)
        XCTAssertNil(end.choices[0].message.toolCalls)
    }

    func testLeavingTheLoopCancels() async throws {
        let engine = try await engine()
        var seen = 0
        for try await _ in engine.chat.completions.stream(long) {
            seen += 1
            if seen == 3 { break }
        }
        try await becomesIdle(engine)
    }

    func testDroppingAStreamCancels() async throws {
        let engine = try await engine()
        do {
            let stream = engine.chat.completions.create(
                messages: long.messages, maxTokens: 400, temperature: 0)
            for try await _ in stream { break }
        }
        try await becomesIdle(engine)
    }

    func testACancelledTaskCancels() async throws {
        let engine = try await engine()
        let request = long
        let work = Task { try await engine.chat.completions.create(request) }
        try await becomesIdle(engine, false)
        work.cancel()
        do {
            _ = try await work.value
            XCTFail("a cancelled task has no answer")
        } catch is CancellationError {}
        try await becomesIdle(engine)
        let reading = Task { for try await _ in engine.chat.completions.stream(request) {} }
        try await becomesIdle(engine, false)
        reading.cancel()
        try await becomesIdle(engine)
        do {
            try await reading.value
            XCTFail("a cancelled loop throws")
        } catch is CancellationError {}
    }

    /// After a cancel the step that runs may end, and no other begins: one more piece at most. A
    /// thread that the system holds up may deliver earlier pieces later, so the median counts.
    func testACancelReachesTheEngineWithinOneStep() async throws {
        let engine = try await engine()
        var request = long
        request.stream = true
        let body = try JSON.encode(request)
        var late: [Int] = []
        for _ in 0..<21 {
            let response = try await engine.send(
                APIRequest("POST", "/v1/chat/completions", body: body))
            var iterator = response.body.makeAsyncIterator()
            for _ in 0..<5 { _ = try await iterator.next() }
            response.body.reader.mailbox.cancel()
            try await becomesIdle(engine)
            late.append(response.body.reader.mailbox.piecesAfterEnd)
        }
        late.sort()
        XCTAssertLessThanOrEqual(late[10], 1, "pieces after each cancel: \(late)")
    }

    /// An answer that is not read is held as one piece, and the engine goes on meanwhile.
    func testASlowReaderHoldsOnePiece() async throws {
        let engine = try await engine()
        var request = long
        request.stream = true
        let sent = APIRequest("POST", "/v1/chat/completions", body: try JSON.encode(request))
        let response = try await engine.send(sent)
        _ = try await engine.chat.completions.create(ask("What is 17 + 25?"))
        while !response.body.reader.mailbox.isOver { try await Task.sleep(nanoseconds: 1_000_000) }
        var pieces: [Data] = []
        for try await piece in response.body { pieces.append(piece) }
        XCTAssertEqual(pieces.count, 1)
        var lines = EventLines()
        lines.add(pieces[0])
        var chunks = 0
        while lines.next() != nil { chunks += 1 }
        XCTAssertGreaterThan(chunks, 100)
    }

    func testManyAskAtOnceAndEachGetsItsOwnAnswer() async throws {
        let engine = try await engine()
        let pairs = [(2, 3), (10, 4), (7, 7), (30, 12), (1, 1), (20, 5), (9, 8), (15, 15), (6, 50)]
        var alone: [String] = []
        for (a, b) in pairs {
            alone.append(try await engine.chat.completions.create(ask("What is \(a) + \(b)?")).text)
        }
        let together = try await withThrowingTaskGroup(of: (Int, String).self) { group in
            for (i, (a, b)) in pairs.enumerated() {
                let request = ask("What is \(a) + \(b)?")
                group.addTask {
                    var text = ""
                    for try await chunk in engine.chat.completions.stream(request) {
                        text += chunk.text
                    }
                    return (i, text)
                }
            }
            var found = [String](repeating: "", count: pairs.count)
            for try await (i, text) in group { found[i] = text }
            return found
        }
        XCTAssertEqual(alone, together)
    }

    func testARefusalIsAnErrorWithItsField() async throws {
        let engine = try await engine()
        var request = ask("hi")
        request.temperature = 99
        do {
            _ = try await engine.chat.completions.create(request)
            XCTFail("99 is no temperature")
        } catch MlccError.api(let status, let error) {
            XCTAssertEqual(status, 400)
            XCTAssertEqual(error.param, "temperature")
        }
        do {
            for try await _ in engine.chat.completions.stream(request) { XCTFail("no chunk") }
            XCTFail("a stream of it throws, too")
        } catch MlccError.api(let status, _) { XCTAssertEqual(status, 400) }
    }

    func testAFolderWithoutAModelIsNamed() async throws {
        _ = try await engine()
        do {
            _ = try await Engine.load(URL(fileURLWithPath: "/nowhere"))
            XCTFail("there is none")
        } catch MlccError.artifact(let message, _) { XCTAssertTrue(message.contains("/nowhere")) }
    }

    func testAClosedEngineEndsItsCalls() async throws {
        let second = try await Engine.load(demo())
        let request = long
        let work = Task { try await second.chat.completions.create(request) }
        try await becomesIdle(second, false)
        await second.close()
        await second.close()
        do {
            _ = try await work.value
            XCTFail("it was closed")
        } catch MlccError.closed {}
        do {
            _ = try await second.chat.completions.create(request)
            XCTFail("it is closed")
        } catch MlccError.closed {}
    }

    func testAShortageOfMemoryRefusesRequests() async throws {
        let engine = try await engine()
        engine.trim(.refuse)
        do {
            _ = try await engine.chat.completions.create(ask("hi"))
            XCTFail("it refuses")
        } catch let error as MlccError { XCTAssertEqual(error.code, "low_memory") }
        engine.trim(.none)
        _ = try await engine.chat.completions.create(ask("hi", tokens: 2))
    }
}
