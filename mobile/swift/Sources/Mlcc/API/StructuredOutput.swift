import Foundation

extension ResponseFormat {
    /// Answers are JSON of a type.
    ///
    /// - Throws: ``MlccError/unsupported(message:code:)`` for a type without a schema: see
    ///   ``JSONSchema``.
    public static func json<Value: Decodable>(of type: Value.Type) throws -> ResponseFormat {
        let name = "\(type)".filter { $0.isASCII && ($0.isLetter || $0.isNumber || $0 == "_") }
        let format = JsonSchemaFormat(schema: try JSONSchema.of(type), name: .string(name), strict: true)
        return ResponseFormat(type: .jsonSchema, jsonSchema: format)
    }
}

extension Completions where Request == ChatCompletionRequest, Answer == ChatCompletion {
    /// The answer as a value of a type: the answer's JSON can only be that of the type's schema.
    /// `responseFormat` of the request is ignored.
    ///
    /// - Throws: ``MlccError/api(status:error:)`` if the request is refused;
    ///   ``MlccError/capacity(message:code:)`` if the answer was cut before its JSON ended.
    public func create<Value: Decodable & Sendable>(
        _ request: ChatCompletionRequest, as type: Value.Type
    ) async throws -> Value {
        var request = request
        request.responseFormat = try .json(of: type)
        let answer = try await create(request)
        if answer.choices.first?.finishReason == .length {
            throw MlccError.capacity(
                message: "the answer was cut before its JSON ended; allow more with maxTokens",
                code: "length")
        }
        return try JSON.answer(type, Data(answer.text.utf8))
    }
}

extension Tool {
    /// A function that the model may call, with the fields of a type as its arguments.
    ///
    /// - Throws: ``MlccError/unsupported(message:code:)`` for a type without a schema: see
    ///   ``JSONSchema``.
    public init<Arguments: Decodable>(
        _ name: String, _ description: String? = nil, arguments: Arguments.Type
    ) throws {
        let schema = try JSONSchema.of(arguments)
        self.init(
            function: ToolFunction(
                name: name, description: description, parameters: schema, strict: true))
    }
}

extension ToolCall {
    /// The arguments as a value of a type. Throws ``MlccError/bug(message:code:)`` if they are
    /// none.
    public func arguments<Arguments: Decodable>(as type: Arguments.Type) throws -> Arguments {
        try JSON.answer(type, Data(function.arguments.utf8))
    }
}

extension Message {
    /// The model's message, to go on with the conversation after its tool calls.
    public init(_ message: AssistantMessage) {
        let calls = message.toolCalls?.map { call in
            MessageToolCall(
                function: CalledFunction(
                    name: call.function.name, arguments: call.function.arguments), id: call.id)
        }
        self.init(
            role: .assistant, content: message.content.map { .text($0) }, toolCalls: calls)
    }

    /// The result of a tool call.
    public init(_ result: String, of call: ToolCall) {
        self.init(role: .tool, content: .text(result), toolCallId: call.id)
    }
}
