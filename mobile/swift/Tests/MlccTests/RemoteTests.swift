import Foundation
import XCTest

@testable import Mlcc

/// The same calls to a server. Runs if MLCC_SERVER is the address of `mlcc serve` with the demo
/// model.
final class RemoteTests: XCTestCase {
    private func server() throws -> RemoteServer {
        guard let address = ProcessInfo.processInfo.environment["MLCC_SERVER"] else {
            throw XCTSkip("MLCC_SERVER names no server")
        }
        return RemoteServer(URL(string: address + "/v1")!)
    }

    private let request: ChatCompletionRequest = {
        var request = ChatCompletionRequest(messages: [Message(.user, "What is 17 + 25?")])
        request.temperature = 0
        return request
    }()

    func testItAnswersWholeAndStreamed() async throws {
        let server = try server()
        let answer = try await server.chat.completions.create(request)
        XCTAssertEqual(answer.text, "17 + 25 = 42")
        var text = ""
        for try await chunk in server.chat.completions.stream(request) { text += chunk.text }
        XCTAssertEqual(text, answer.text)
        let response = try await server.responses.create(ResponsesRequest(input: "What is 17 + 25?"))
        XCTAssertFalse(response.outputText.isEmpty)
        let models = try await server.models.list()
        XCTAssertEqual(models.data.first?.id, answer.model)
    }

    func testARefusalIsTheSameError() async throws {
        var wrong = request
        wrong.temperature = 99
        do {
            _ = try await server().chat.completions.create(wrong)
            XCTFail("99 is no temperature")
        } catch MlccError.api(let status, let error) {
            XCTAssertEqual(status, 400)
            XCTAssertEqual(error.param, "temperature")
        }
    }

    func testLeavingTheLoopCancelsTheRequestThere() async throws {
        let server = try server()
        var long = request
        (long.maxTokens, long.ignoreEos) = (400, true)
        for try await _ in server.chat.completions.stream(long) { break }
        for _ in 0..<5000 {
            let metrics = try await server.send(APIRequest("GET", "/metrics")).body.whole()
            let text = String(decoding: metrics, as: UTF8.self)
            let line = text.split(separator: "\n").first { $0.hasPrefix("mlcc_engine_batch_size") }
            let running = try XCTUnwrap(line?.split(separator: " ").last.flatMap { Double($0) })
            if running == 0 { return }
            try await Task.sleep(nanoseconds: 1_000_000)
        }
        XCTFail("the request still runs")
    }

    func testAServerThatIsNotThereIsNamed() async throws {
        do {
            let unreachable = RemoteServer(URL(string: "http://127.0.0.1:9")!)
            _ = try await unreachable.chat.completions.create(request)
            XCTFail("nothing listens there")
        } catch MlccError.connection(let message, _) { XCTAssertTrue(message.contains("127.0.0.1:9")) }
    }
}
