import Foundation
import XCTest

@testable import Mlcc

/// Models that are encoders. Runs if MLCC_ENCODER and MLCC_RERANKER name the compiled encoders of
/// the conformance vectors.
final class EncoderTests: XCTestCase {
    private func engine(_ variable: String) async throws -> Engine {
        guard let path = ProcessInfo.processInfo.environment[variable] else {
            throw XCTSkip("\(variable) names no model")
        }
        return try await Engine.load(URL(fileURLWithPath: path))
    }

    func testTextsHaveVectors() async throws {
        let engine = try await engine("MLCC_ENCODER")
        let texts = ["hello world, this is a text", "a", "two dogs!"]
        let request = EmbeddingRequest(input: .texts(texts), dimensions: 4)
        let list = try await engine.embeddings.create(request)
        XCTAssertEqual(list.data.map(\.index), [0, 1, 2])
        let expected = [-0.1303539, -0.02881214, -0.1422964, 0.98078]  // of transformers
        var request64 = request
        request64.encodingFormat = .base64
        let list64 = try await engine.embeddings.create(request64)
        for vector in [list.data[0].vector, list64.data[0].vector] {
            XCTAssertEqual(vector.count, 4)
            for (found, number) in zip(vector, expected) {
                XCTAssertEqual(found, number, accuracy: 1e-4)
            }
        }
        let scores = try await engine.embeddings.score(ScoreRequest(text1: "a", text2: .texts(["a", "b"])))
        XCTAssertEqual(scores.data[0].score, 1, accuracy: 1e-4)
        XCTAssertLessThan(scores.data[1].score, 0.9999)
        await engine.close()
    }

    func testDocumentsAreRanked() async throws {
        let engine = try await engine("MLCC_RERANKER")
        let documents: [Document] = ["a dog", .document(RerankDocument(text: "two dogs!")), "a text"]
        let request = RerankRequest(query: "dogs", documents: documents)
        let ranking = try await engine.embeddings.rerank(request)
        XCTAssertEqual(Set(ranking.results.map(\.index)), [0, 1, 2])
        let scores = ranking.results.map(\.relevanceScore)
        XCTAssertEqual(scores, scores.sorted(by: >))
        await engine.close()
    }
}
