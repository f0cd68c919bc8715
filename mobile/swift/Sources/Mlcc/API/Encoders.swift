import Foundation

/// `engine.embeddings`: vectors of texts, from a model that is an encoder.
public struct Embeddings: Sendable {
    let transport: any Transport

    /// One vector for each text, in their order.
    ///
    /// - Throws: ``MlccError/api(status:error:)`` if the model is no encoder or refuses a text.
    public func create(_ request: EmbeddingRequest) async throws -> EmbeddingList {
        try await transport.json(
            "POST", "/v1/embeddings", body: try JSON.encode(request), as: EmbeddingList.self)
    }

    /// Similarities of pairs of texts.
    public func score(_ request: ScoreRequest) async throws -> ScoreList {
        try await transport.json(
            "POST", "/v1/score", body: try JSON.encode(request), as: ScoreList.self)
    }

    /// Documents by their relevance to a query, the most relevant first.
    public func rerank(_ request: RerankRequest) async throws -> Ranking {
        try await transport.json(
            "POST", "/v1/rerank", body: try JSON.encode(request), as: Ranking.self)
    }
}

extension Embedding {
    /// The numbers, also of an embedding that was sent as base64.
    public var vector: [Double] {
        switch embedding {
        case .numbers(let numbers): return numbers
        case .text(let base64):
            let data = Data(base64Encoded: base64) ?? Data()
            return data.withUnsafeBytes { bytes in
                stride(from: 0, to: bytes.count - 3, by: 4).map { at in
                    let bits = bytes.loadUnaligned(fromByteOffset: at, as: UInt32.self)
                    return Double(Float(bitPattern: UInt32(littleEndian: bits)))
                }
            }
        }
    }
}

/// `engine.models`: an engine has one model and its LoRA adapters.
public struct Models: Sendable {
    let transport: any Transport

    /// All models.
    public func list() async throws -> ModelList {
        try await transport.json("GET", "/v1/models", as: ModelList.self)
    }

    /// The model of this name. Throws ``MlccError/api(status:error:)`` with 404 if there is none.
    public func retrieve(_ name: String) async throws -> Model {
        try await transport.json("GET", "/v1/models/\(escaped(name))", as: Model.self)
    }
}
