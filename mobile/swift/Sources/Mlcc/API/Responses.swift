import Foundation

/// `engine.responses`: OpenAI's newer API, with stored answers and conversations that go on.
public struct Responses: Sendable {
    let transport: any Transport
    private static let path = "/v1/responses"

    init(transport: any Transport) { self.transport = transport }

    /// The whole answer. Cancelling the task cancels the request. `stream` of the request is
    /// ignored.
    ///
    /// - Throws: ``MlccError/api(status:error:)`` if the request is refused.
    public func create(_ request: ResponsesRequest) async throws -> ResponsesAnswer {
        var request = request
        request.stream = nil
        return try await transport.json(
            "POST", Self.path, body: try JSON.encode(request), as: ResponsesAnswer.self)
    }

    /// The answer as events, as they are made. To leave the loop, or to cancel its task, cancels
    /// the request.
    public func stream(_ request: ResponsesRequest) -> ChunkStream<ResponsesEvent> {
        var request = request
        request.stream = true
        return ChunkStream(transport: transport, path: Self.path, request: request)
    }

    /// A stored answer. Throws ``MlccError/api(status:error:)`` with 404 if there is none.
    public func retrieve(_ id: String) async throws -> ResponsesAnswer {
        try await transport.json("GET", "\(Self.path)/\(escaped(id))", as: ResponsesAnswer.self)
    }

    /// Delete a stored answer.
    public func delete(_ id: String) async throws -> ResponsesDeleted {
        try await transport.json("DELETE", "\(Self.path)/\(escaped(id))", as: ResponsesDeleted.self)
    }
}

/// An event of a streamed answer of ``Responses``. Its fields depend on its type.
public struct ResponsesEvent: Codable, Sendable, Hashable {
    /// All fields.
    public let fields: JSONValue

    /// Such as `response.output_text.delta` or `response.completed`.
    public var type: String { fields["type"]?.text ?? "" }

    /// From 0, without gaps.
    public var sequenceNumber: Int { fields["sequence_number"]?.int ?? 0 }

    /// The text that an event of the type `response.output_text.delta` adds; "" of another type.
    public var text: String {
        type == "response.output_text.delta" ? fields["delta"]?.text ?? "" : ""
    }

    /// The answer as far as it is made, in events that begin or end it.
    public var response: ResponsesAnswer? {
        guard let answer = fields["response"] else { return nil }
        return try? JSON.decode(ResponsesAnswer.self, JSON.encode(answer))
    }

    /// Reads any event; one of the type `error` is thrown.
    public init(from decoder: any Decoder) throws {
        fields = try JSONValue(from: decoder)
        if type == "error" || fields["error"] != nil && fields["type"] == nil {
            throw DecodingError.dataCorrupted(
                .init(codingPath: [], debugDescription: "the stream ended with an error"))
        }
    }

    /// Writes all fields.
    public func encode(to encoder: any Encoder) throws { try fields.encode(to: encoder) }
}

extension ResponsesAnswer {
    /// The text of the answer's messages.
    public var outputText: String {
        let messages = output.compactMap { item -> ResponsesOutputMessage? in
            if case .message(let message) = item { message } else { nil }
        }
        return messages.flatMap(\.content).map(\.text).joined()
    }
}

/// A part of a path.
func escaped(_ name: String) -> String {
    let allowed = CharacterSet.alphanumerics.union(CharacterSet(charactersIn: "-._~"))
    return name.addingPercentEncoding(withAllowedCharacters: allowed) ?? name
}
