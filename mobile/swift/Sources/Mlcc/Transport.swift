import Foundation

/// Carries requests of the API to a model: an ``Engine`` in this process, or a ``RemoteServer``.
///
/// A request and its answer are those of OpenAI's HTTP API. The endpoints (`chat`, `completions`,
/// `embeddings`, `responses`, `models`) are the same for every transport.
public protocol Transport: Sendable {
    /// Sends a request and waits for the head of its answer, of any status. The body arrives as it
    /// is made. Cancelling the task cancels the request.
    func send(_ request: APIRequest) async throws -> APIResponse
}

/// A request of the API, as HTTP has it.
public struct APIRequest: Sendable {
    /// `GET`, `POST` or `DELETE`.
    public var method: String
    /// The path with its query, such as `/v1/models`.
    public var path: String
    /// Values by lower-case names.
    public var headers: [String: String]
    /// The bytes of the body.
    public var body: Data

    /// With its fields; the body of a POST is usually JSON.
    public init(
        _ method: String, _ path: String,
        headers: [String: String] = ["content-type": "application/json"], body: Data = Data()
    ) {
        (self.method, self.path, self.headers, self.body) = (method, path, headers, body)
    }
}

/// The answer to an ``APIRequest``.
public struct APIResponse: Sendable {
    /// HTTP's status.
    public let status: Int
    /// Values by lower-case names.
    public let headers: [String: String]
    /// The body in pieces as they arrive, read once. To stop reading cancels the request.
    public let body: APIBody
}

/// A body in pieces, as they arrive. To leave the loop, or to drop the body, cancels the request.
public struct APIBody: AsyncSequence, Sendable {
    let reader: Reader

    /// Cancels the request with the last reference.
    final class Reader: Sendable {
        let mailbox: Mailbox
        let translate: @Sendable (any Error) -> any Error

        init(_ mailbox: Mailbox, _ translate: @escaping @Sendable (any Error) -> any Error) {
            (self.mailbox, self.translate) = (mailbox, translate)
        }

        deinit { mailbox.cancel() }
    }

    /// translate: makes errors of the mailbox those of the reader.
    init(
        _ mailbox: Mailbox, _ translate: @escaping @Sendable (any Error) -> any Error = { $0 }
    ) {
        reader = Reader(mailbox, translate)
    }

    /// The pieces that are not read yet.
    public func makeAsyncIterator() -> Iterator { Iterator(reader: reader) }

    /// Reads the pieces.
    public struct Iterator: AsyncIteratorProtocol {
        let reader: Reader

        /// The next piece; nil at the end. Throws ``MlccError`` or `CancellationError`.
        public mutating func next() async throws -> Data? {
            do {
                return try await reader.mailbox.next()
            } catch {
                throw reader.translate(error)
            }
        }
    }

    /// The rest of the body. Throws ``MlccError`` or `CancellationError`.
    public func whole() async throws -> Data {
        var data = Data()
        for try await piece in self { data.append(piece) }
        return data
    }
}

extension Transport {
    /// Chat completions.
    public var chat: Chat { Chat(transport: self) }

    /// Text completions.
    public var completions: Completions<CompletionRequest, Completion, CompletionChunk> {
        Completions(transport: self, path: "/v1/completions")
    }

    /// Transcripts of recordings, by a model such as Whisper.
    public var audio: Audio { Audio(transport: self) }

    /// Embeddings, of a model that is an encoder.
    public var embeddings: Embeddings { Embeddings(transport: self) }

    /// OpenAI's newer API.
    public var responses: Responses { Responses(transport: self) }

    /// The models that the transport reaches.
    public var models: Models { Models(transport: self) }

    /// The JSON of a whole answer. Throws ``MlccError/api(status:error:)`` if the status is not
    /// 200.
    func json<Answer: Decodable>(
        _ method: String, _ path: String, body: Data = Data(), as type: Answer.Type
    ) async throws -> Answer {
        let response = try await send(APIRequest(method, path, body: body))
        let data = try await response.body.whole()
        guard response.status == 200 else { throw MlccError.ofAnswer(response.status, data) }
        return try JSON.answer(type, data)
    }
}
