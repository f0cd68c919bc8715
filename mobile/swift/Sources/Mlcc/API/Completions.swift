import Foundation

/// A request whose answer can be streamed.
public protocol Streamable: Codable, Sendable {
    /// Set by ``Completions/create(_:)`` and ``Completions/stream(_:)``.
    var stream: Bool? { get set }
    /// Options of a stream.
    var streamOptions: StreamOptions? { get set }
}

extension ChatCompletionRequest: Streamable {}
extension CompletionRequest: Streamable {}

/// `engine.chat`, as OpenAI's clients have it.
public struct Chat: Sendable {
    let transport: any Transport

    /// Chat completions.
    public var completions: Completions<ChatCompletionRequest, ChatCompletion, ChatCompletionChunk> {
        Completions(transport: transport, path: "/v1/chat/completions")
    }
}

/// Chat completions or text completions. Any task may send requests; several are answered at once.
public struct Completions<
    Request: Streamable, Answer: Codable & Sendable, Chunk: Codable & Sendable
>: Sendable {
    let transport: any Transport
    let path: String

    /// The whole answer. Cancelling the task cancels the request. `stream` of the request is
    /// ignored.
    ///
    /// - Throws: ``MlccError/api(status:error:)`` if the request is refused.
    public func create(_ request: Request) async throws -> Answer {
        var request = request
        (request.stream, request.streamOptions) = (nil, nil)
        return try await transport.json(
            "POST", path, body: try JSON.encode(request), as: Answer.self)
    }

    /// The answer in chunks as they are made; chunks of several answers are interleaved.
    ///
    /// Each loop over it sends its own request. To leave the loop, or to cancel its task, cancels
    /// the request. The loop throws what ``create(_:)`` throws.
    public func stream(_ request: Request) -> ChunkStream<Chunk> {
        var request = request
        request.stream = true
        return ChunkStream(transport: transport, path: path, request: request)
    }
}

extension Completions where Request == ChatCompletionRequest, Chunk == ChatCompletionChunk {
    /// The answer to a conversation, in chunks: the call as MLC LLM's Swift package has it.
    ///
    ///     for try await chunk in engine.chat.completions.create(messages: messages) { ... }
    ///
    /// The request is sent by the first read. To drop the stream cancels it.
    public func create(
        messages: [Message],
        model: String? = nil,
        frequencyPenalty: Double? = nil,
        presencePenalty: Double? = nil,
        maxTokens: Int? = nil,
        seed: Int? = nil,
        stop: Stop? = nil,
        streamOptions: StreamOptions? = nil,
        temperature: Double? = nil,
        topP: Double? = nil,
        tools: [Tool]? = nil,
        responseFormat: ResponseFormat? = nil
    ) -> AsyncThrowingStream<ChatCompletionChunk, any Error> {
        var request = ChatCompletionRequest(messages: messages)
        (request.model, request.maxTokens, request.seed) = (model, maxTokens, seed)
        request.frequencyPenalty = frequencyPenalty
        request.presencePenalty = presencePenalty
        (request.stop, request.streamOptions) = (stop, streamOptions)
        (request.temperature, request.topP) = (temperature, topP)
        (request.tools, request.responseFormat) = (tools, responseFormat)
        return stream(request).asAsyncThrowingStream()
    }
}

extension Message {
    /// A message with a plain text.
    public init(_ role: Role, _ text: String) { self.init(role: role, content: .text(text)) }
}

extension ToolChoice {
    /// The model decides.
    public static let auto = ToolChoice.mode(.auto)
    /// No tool is called.
    public static let none = ToolChoice.mode(.none)
    /// A tool must be called.
    public static let required = ToolChoice.mode(.required)
}

extension ChatCompletion {
    /// The text of the answer; "" if it only calls tools.
    public var text: String { choices.first?.message.content ?? "" }
}

extension ChatCompletionChunk {
    /// The text of the chunk; "" in the first and the last chunk.
    public var text: String { choices.first?.delta.content ?? "" }
}

extension Completion {
    /// The text of the answer.
    public var text: String { choices.first?.text ?? "" }
}

extension CompletionChunk {
    /// The text of the chunk.
    public var text: String { choices.first?.text ?? "" }
}
