// Written by `python -m tools.api_types` from runtime/mlcc/api: change that and run it again.

/// low = few tokens: without tiles, or of fewer pixels.
public struct Detail: RawRepresentable, Codable, Hashable, Sendable {
    /// The word in JSON; a later version may have others than these.
    public let rawValue: String

    /// The value of a word.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `auto`
    public static let auto = Detail(rawValue: "auto")
    /// `low`
    public static let low = Detail(rawValue: "low")
    /// `high`
    public static let high = Detail(rawValue: "high")
    /// `original`
    public static let original = Detail(rawValue: "original")
}

/// An image.
public enum ImageReference: Codable, Equatable, Sendable {
    /// One text.
    case text(String)
    /// An image with its detail.
    case object(ImageURL)

    /// Reads the first type that fits.
    public init(from decoder: any Decoder) throws {
        let box = try decoder.singleValueContainer()
        if let value = try? box.decode(String.self) {
            self = .text(value)
            return
        }
        if let value = try? box.decode(ImageURL.self) {
            self = .object(value)
            return
        }
        throw DecodingError.dataCorruptedError(
            in: box, debugDescription: "no type of ImageReference fits the JSON")
    }

    /// Writes the value alone, without the case.
    public func encode(to encoder: any Encoder) throws {
        var box = encoder.singleValueContainer()
        switch self {
        case .text(let value): try box.encode(value)
        case .object(let value): try box.encode(value)
        }
    }
}

extension ImageReference: ExpressibleByStringLiteral {
    /// A text.
    public init(stringLiteral value: String) { self = .text(value) }
}

/// What the file is; its first bytes decide. Ogg and mp3 need the extra `audio`, those from m4a
/// on the extra `av`.
public struct Format: RawRepresentable, Codable, Hashable, Sendable {
    /// The word in JSON; a later version may have others than these.
    public let rawValue: String

    /// The value of a word.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `wav`
    public static let wav = Format(rawValue: "wav")
    /// `flac`
    public static let flac = Format(rawValue: "flac")
    /// `mp3`
    public static let mp3 = Format(rawValue: "mp3")
    /// `ogg`
    public static let ogg = Format(rawValue: "ogg")
    /// `m4a`
    public static let m4a = Format(rawValue: "m4a")
    /// `aac`
    public static let aac = Format(rawValue: "aac")
    /// `webm`
    public static let webm = Format(rawValue: "webm")
    /// `caf`
    public static let caf = Format(rawValue: "caf")
    /// `amr`
    public static let amr = Format(rawValue: "amr")
    /// `aiff`
    public static let aiff = Format(rawValue: "aiff")
}

/// Whether a tool must be called.
public struct Mode: RawRepresentable, Codable, Hashable, Sendable {
    /// The word in JSON; a later version may have others than these.
    public let rawValue: String

    /// The value of a word.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `auto`
    public static let auto = Mode(rawValue: "auto")
    /// `required`
    public static let required = Mode(rawValue: "required")
}

/// Author; developer is another name of system, function an older one of tool.
public struct Role: RawRepresentable, Codable, Hashable, Sendable {
    /// The word in JSON; a later version may have others than these.
    public let rawValue: String

    /// The value of a word.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `system`
    public static let system = Role(rawValue: "system")
    /// `developer`
    public static let developer = Role(rawValue: "developer")
    /// `user`
    public static let user = Role(rawValue: "user")
    /// `assistant`
    public static let assistant = Role(rawValue: "assistant")
    /// `tool`
    public static let tool = Role(rawValue: "tool")
    /// `function`
    public static let function = Role(rawValue: "function")
}

/// A text, or parts that are joined: texts, images for a model that sees, and sounds for one
/// that hears. May be null in an assistant's or a tool's message. A model that reads text only
/// leaves images and sounds out of a tool's message, and refuses others.
public enum ContentPart: Codable, Equatable, Sendable {
    /// A text.
    case text(TextPart)
    /// An image, for a model that sees.
    case image(ImagePart)
    /// A sound, for a model that hears.
    case audio(AudioPart)
    /// Words in which the assistant refused.
    case refusal(RefusalPart)

    /// Reads the first type that fits.
    public init(from decoder: any Decoder) throws {
        let box = try decoder.singleValueContainer()
        if let value = try? box.decode(TextPart.self) {
            self = .text(value)
            return
        }
        if let value = try? box.decode(ImagePart.self) {
            self = .image(value)
            return
        }
        if let value = try? box.decode(AudioPart.self) {
            self = .audio(value)
            return
        }
        if let value = try? box.decode(RefusalPart.self) {
            self = .refusal(value)
            return
        }
        throw DecodingError.dataCorruptedError(
            in: box, debugDescription: "no type of ContentPart fits the JSON")
    }

    /// Writes the value alone, without the case.
    public func encode(to encoder: any Encoder) throws {
        var box = encoder.singleValueContainer()
        switch self {
        case .text(let value): try box.encode(value)
        case .image(let value): try box.encode(value)
        case .audio(let value): try box.encode(value)
        case .refusal(let value): try box.encode(value)
        }
    }
}

/// A text, or parts that are joined: texts, images for a model that sees, and sounds for one
/// that hears. May be null in an assistant's or a tool's message. A model that reads text only
/// leaves images and sounds out of a tool's message, and refuses others.
public enum Content: Codable, Equatable, Sendable {
    /// One text.
    case text(String)
    /// A text in parts, images and sounds.
    case parts([ContentPart])

    /// Reads the first type that fits.
    public init(from decoder: any Decoder) throws {
        let box = try decoder.singleValueContainer()
        if let value = try? box.decode(String.self) {
            self = .text(value)
            return
        }
        if let value = try? box.decode([ContentPart].self) {
            self = .parts(value)
            return
        }
        throw DecodingError.dataCorruptedError(
            in: box, debugDescription: "no type of Content fits the JSON")
    }

    /// Writes the value alone, without the case.
    public func encode(to encoder: any Encoder) throws {
        var box = encoder.singleValueContainer()
        switch self {
        case .text(let value): try box.encode(value)
        case .parts(let value): try box.encode(value)
        }
    }
}

extension Content: ExpressibleByStringLiteral {
    /// A text.
    public init(stringLiteral value: String) { self = .text(value) }
}

/// The text, or texts that are joined.
public enum TextContent: Codable, Equatable, Sendable {
    /// One text.
    case text(String)
    /// A text in parts.
    case parts([TextPart])

    /// Reads the first type that fits.
    public init(from decoder: any Decoder) throws {
        let box = try decoder.singleValueContainer()
        if let value = try? box.decode(String.self) {
            self = .text(value)
            return
        }
        if let value = try? box.decode([TextPart].self) {
            self = .parts(value)
            return
        }
        throw DecodingError.dataCorruptedError(
            in: box, debugDescription: "no type of TextContent fits the JSON")
    }

    /// Writes the value alone, without the case.
    public func encode(to encoder: any Encoder) throws {
        var box = encoder.singleValueContainer()
        switch self {
        case .text(let value): try box.encode(value)
        case .parts(let value): try box.encode(value)
        }
    }
}

extension TextContent: ExpressibleByStringLiteral {
    /// A text.
    public init(stringLiteral value: String) { self = .text(value) }
}

/// Type of the answer.
public struct ResponseType: RawRepresentable, Codable, Hashable, Sendable {
    /// The word in JSON; a later version may have others than these.
    public let rawValue: String

    /// The value of a word.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `text`
    public static let text = ResponseType(rawValue: "text")
    /// `json_object`
    public static let jsonObject = ResponseType(rawValue: "json_object")
    /// `json_schema`
    public static let jsonSchema = ResponseType(rawValue: "json_schema")
}

/// The answer ends before the first of these in its text; reasoning and calls may hold them.
public enum Stop: Codable, Equatable, Sendable {
    /// One text.
    case text(String)
    /// Several texts.
    case texts([String])

    /// Reads the first type that fits.
    public init(from decoder: any Decoder) throws {
        let box = try decoder.singleValueContainer()
        if let value = try? box.decode(String.self) {
            self = .text(value)
            return
        }
        if let value = try? box.decode([String].self) {
            self = .texts(value)
            return
        }
        throw DecodingError.dataCorruptedError(
            in: box, debugDescription: "no type of Stop fits the JSON")
    }

    /// Writes the value alone, without the case.
    public func encode(to encoder: any Encoder) throws {
        var box = encoder.singleValueContainer()
        switch self {
        case .text(let value): try box.encode(value)
        case .texts(let value): try box.encode(value)
        }
    }
}

extension Stop: ExpressibleByStringLiteral {
    /// A text.
    public init(stringLiteral value: String) { self = .text(value) }
}

/// auto = the model decides; none; required = at least one call; or a named function.
public struct ToolChoiceMode: RawRepresentable, Codable, Hashable, Sendable {
    /// The word in JSON; a later version may have others than these.
    public let rawValue: String

    /// The value of a word.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `auto`
    public static let auto = ToolChoiceMode(rawValue: "auto")
    /// `none`
    public static let none = ToolChoiceMode(rawValue: "none")
    /// `required`
    public static let required = ToolChoiceMode(rawValue: "required")
}

/// auto = the model decides; none; required = at least one call; or a named function.
public enum ToolChoice: Codable, Equatable, Sendable {
    /// Whether a tool is called.
    case mode(ToolChoiceMode)
    /// The tool of this name.
    case named(NamedTool)
    /// Some of the tools.
    case allowed(AllowedTools)

    /// Reads the first type that fits.
    public init(from decoder: any Decoder) throws {
        let box = try decoder.singleValueContainer()
        if let value = try? box.decode(ToolChoiceMode.self) {
            self = .mode(value)
            return
        }
        if let value = try? box.decode(NamedTool.self) {
            self = .named(value)
            return
        }
        if let value = try? box.decode(AllowedTools.self) {
            self = .allowed(value)
            return
        }
        throw DecodingError.dataCorruptedError(
            in: box, debugDescription: "no type of ToolChoice fits the JSON")
    }

    /// Writes the value alone, without the case.
    public func encode(to encoder: any Encoder) throws {
        var box = encoder.singleValueContainer()
        switch self {
        case .mode(let value): try box.encode(value)
        case .named(let value): try box.encode(value)
        case .allowed(let value): try box.encode(value)
        }
    }
}

/// Reasoning effort, if the chat template supports it; none = no reasoning.
public struct ReasoningEffort: RawRepresentable, Codable, Hashable, Sendable {
    /// The word in JSON; a later version may have others than these.
    public let rawValue: String

    /// The value of a word.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `none`
    public static let none = ReasoningEffort(rawValue: "none")
    /// `minimal`
    public static let minimal = ReasoningEffort(rawValue: "minimal")
    /// `low`
    public static let low = ReasoningEffort(rawValue: "low")
    /// `medium`
    public static let medium = ReasoningEffort(rawValue: "medium")
    /// `high`
    public static let high = ReasoningEffort(rawValue: "high")
    /// `xhigh`
    public static let xhigh = ReasoningEffort(rawValue: "xhigh")
    /// `max`
    public static let max = ReasoningEffort(rawValue: "max")
}

/// One prompt or several; each gets an answer.
public enum Prompt: Codable, Equatable, Sendable {
    /// One text.
    case text(String)
    /// Several texts.
    case texts([String])
    /// Ids of tokens.
    case tokens([Int])
    /// Several lists of ids of tokens.
    case tokenLists([[Int]])

    /// Reads the first type that fits.
    public init(from decoder: any Decoder) throws {
        let box = try decoder.singleValueContainer()
        if let value = try? box.decode(String.self) {
            self = .text(value)
            return
        }
        if let value = try? box.decode([String].self) {
            self = .texts(value)
            return
        }
        if let value = try? box.decode([Int].self) {
            self = .tokens(value)
            return
        }
        if let value = try? box.decode([[Int]].self) {
            self = .tokenLists(value)
            return
        }
        throw DecodingError.dataCorruptedError(
            in: box, debugDescription: "no type of Prompt fits the JSON")
    }

    /// Writes the value alone, without the case.
    public func encode(to encoder: any Encoder) throws {
        var box = encoder.singleValueContainer()
        switch self {
        case .text(let value): try box.encode(value)
        case .texts(let value): try box.encode(value)
        case .tokens(let value): try box.encode(value)
        case .tokenLists(let value): try box.encode(value)
        }
    }
}

extension Prompt: ExpressibleByStringLiteral {
    /// A text.
    public init(stringLiteral value: String) { self = .text(value) }
}

/// One text or several; each becomes an embedding.
public enum Input: Codable, Equatable, Sendable {
    /// One text.
    case text(String)
    /// Several texts.
    case texts([String])
    /// Ids of tokens.
    case tokens([Int])
    /// Several lists of ids of tokens.
    case tokenLists([[Int]])

    /// Reads the first type that fits.
    public init(from decoder: any Decoder) throws {
        let box = try decoder.singleValueContainer()
        if let value = try? box.decode(String.self) {
            self = .text(value)
            return
        }
        if let value = try? box.decode([String].self) {
            self = .texts(value)
            return
        }
        if let value = try? box.decode([Int].self) {
            self = .tokens(value)
            return
        }
        if let value = try? box.decode([[Int]].self) {
            self = .tokenLists(value)
            return
        }
        throw DecodingError.dataCorruptedError(
            in: box, debugDescription: "no type of Input fits the JSON")
    }

    /// Writes the value alone, without the case.
    public func encode(to encoder: any Encoder) throws {
        var box = encoder.singleValueContainer()
        switch self {
        case .text(let value): try box.encode(value)
        case .texts(let value): try box.encode(value)
        case .tokens(let value): try box.encode(value)
        case .tokenLists(let value): try box.encode(value)
        }
    }
}

extension Input: ExpressibleByStringLiteral {
    /// A text.
    public init(stringLiteral value: String) { self = .text(value) }
}

/// Format of the numbers.
public struct EncodingFormat: RawRepresentable, Codable, Hashable, Sendable {
    /// The word in JSON; a later version may have others than these.
    public let rawValue: String

    /// The value of a word.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `float`
    public static let float = EncodingFormat(rawValue: "float")
    /// `base64`
    public static let base64 = EncodingFormat(rawValue: "base64")
}

/// First texts of the pairs.
public enum Texts: Codable, Equatable, Sendable {
    /// One text.
    case text(String)
    /// Several texts.
    case texts([String])

    /// Reads the first type that fits.
    public init(from decoder: any Decoder) throws {
        let box = try decoder.singleValueContainer()
        if let value = try? box.decode(String.self) {
            self = .text(value)
            return
        }
        if let value = try? box.decode([String].self) {
            self = .texts(value)
            return
        }
        throw DecodingError.dataCorruptedError(
            in: box, debugDescription: "no type of Texts fits the JSON")
    }

    /// Writes the value alone, without the case.
    public func encode(to encoder: any Encoder) throws {
        var box = encoder.singleValueContainer()
        switch self {
        case .text(let value): try box.encode(value)
        case .texts(let value): try box.encode(value)
        }
    }
}

extension Texts: ExpressibleByStringLiteral {
    /// A text.
    public init(stringLiteral value: String) { self = .text(value) }
}

/// The documents.
public enum Document: Codable, Equatable, Sendable {
    /// One text.
    case text(String)
    /// An object with a text.
    case document(RerankDocument)

    /// Reads the first type that fits.
    public init(from decoder: any Decoder) throws {
        let box = try decoder.singleValueContainer()
        if let value = try? box.decode(String.self) {
            self = .text(value)
            return
        }
        if let value = try? box.decode(RerankDocument.self) {
            self = .document(value)
            return
        }
        throw DecodingError.dataCorruptedError(
            in: box, debugDescription: "no type of Document fits the JSON")
    }

    /// Writes the value alone, without the case.
    public func encode(to encoder: any Encoder) throws {
        var box = encoder.singleValueContainer()
        switch self {
        case .text(let value): try box.encode(value)
        case .document(let value): try box.encode(value)
        }
    }
}

extension Document: ExpressibleByStringLiteral {
    /// A text.
    public init(stringLiteral value: String) { self = .text(value) }
}

/// Reasoning effort, if the chat template supports it; none = no reasoning.
public struct Effort: RawRepresentable, Codable, Hashable, Sendable {
    /// The word in JSON; a later version may have others than these.
    public let rawValue: String

    /// The value of a word.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `none`
    public static let none = Effort(rawValue: "none")
    /// `minimal`
    public static let minimal = Effort(rawValue: "minimal")
    /// `low`
    public static let low = Effort(rawValue: "low")
    /// `medium`
    public static let medium = Effort(rawValue: "medium")
    /// `high`
    public static let high = Effort(rawValue: "high")
    /// `xhigh`
    public static let xhigh = Effort(rawValue: "xhigh")
    /// `max`
    public static let max = Effort(rawValue: "max")
}

/// Send reasoning as its summary; it is not summarized.
public struct Summary: RawRepresentable, Codable, Hashable, Sendable {
    /// The word in JSON; a later version may have others than these.
    public let rawValue: String

    /// The value of a word.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `auto`
    public static let auto = Summary(rawValue: "auto")
    /// `concise`
    public static let concise = Summary(rawValue: "concise")
    /// `detailed`
    public static let detailed = Summary(rawValue: "detailed")
}

/// The user's text, or a list of items.
public enum ResponsesInput: Codable, Equatable, Sendable {
    /// One text.
    case text(String)
    /// Items of a conversation: messages, calls, their outputs.
    case items([JSONValue])

    /// Reads the first type that fits.
    public init(from decoder: any Decoder) throws {
        let box = try decoder.singleValueContainer()
        if let value = try? box.decode(String.self) {
            self = .text(value)
            return
        }
        if let value = try? box.decode([JSONValue].self) {
            self = .items(value)
            return
        }
        throw DecodingError.dataCorruptedError(
            in: box, debugDescription: "no type of ResponsesInput fits the JSON")
    }

    /// Writes the value alone, without the case.
    public func encode(to encoder: any Encoder) throws {
        var box = encoder.singleValueContainer()
        switch self {
        case .text(let value): try box.encode(value)
        case .items(let value): try box.encode(value)
        }
    }
}

extension ResponsesInput: ExpressibleByStringLiteral {
    /// A text.
    public init(stringLiteral value: String) { self = .text(value) }
}

/// Additional fields of the answer.
public struct Include: RawRepresentable, Codable, Hashable, Sendable {
    /// The word in JSON; a later version may have others than these.
    public let rawValue: String

    /// The value of a word.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `reasoning.encrypted_content`
    public static let reasoningEncryptedContent = Include(rawValue: "reasoning.encrypted_content")
    /// `message.output_text.logprobs`
    public static let messageOutputTextLogprobs = Include(rawValue: "message.output_text.logprobs")
    /// `file_search_call.results`
    public static let fileSearchCallResults = Include(rawValue: "file_search_call.results")
    /// `web_search_call.results`
    public static let webSearchCallResults = Include(rawValue: "web_search_call.results")
    /// `web_search_call.action.sources`
    public static let webSearchCallActionSources = Include(rawValue: "web_search_call.action.sources")
    /// `message.input_image.image_url`
    public static let messageInputImageImageUrl = Include(rawValue: "message.input_image.image_url")
    /// `computer_call_output.output.image_url`
    public static let computerCallOutputOutputImageUrl = Include(rawValue: "computer_call_output.output.image_url")
    /// `code_interpreter_call.outputs`
    public static let codeInterpreterCallOutputs = Include(rawValue: "code_interpreter_call.outputs")
}

/// A part of a message.
public struct TextPart: Codable, Equatable, Sendable {
    /// `type`.
    public var type: String
    /// `text`.
    public var text: String

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: String = "text",
        text: String
    ) {
        self.type = type
        self.text = text
    }

    enum CodingKeys: String, CodingKey {
        case type
        case text
    }
}

/// An image, and how closely the model looks at it.
public struct ImageURL: Codable, Equatable, Sendable {
    /// The image as a data URL: data:image/png;base64,...
    public var url: String
    /// low = few tokens: without tiles, or of fewer pixels.
    public var detail: Detail?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        url: String,
        detail: Detail? = nil
    ) {
        self.url = url
        self.detail = detail
    }

    enum CodingKeys: String, CodingKey {
        case url
        case detail
    }
}

/// A part of a message: an image, for a model that sees.
public struct ImagePart: Codable, Equatable, Sendable {
    /// `type`.
    public var type: String
    /// An image.
    public var imageUrl: ImageReference

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: String = "image_url",
        imageUrl: ImageReference
    ) {
        self.type = type
        self.imageUrl = imageUrl
    }

    enum CodingKeys: String, CodingKey {
        case type
        case imageUrl = "image_url"
    }
}

/// A sound in the bytes of its file.
public struct InputAudio: Codable, Equatable, Sendable {
    /// The file as base64.
    public var data: String
    /// What the file is; its first bytes decide. Ogg and mp3 need the extra `audio`, those from
    /// m4a on the extra `av`.
    public var format: Format?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        data: String,
        format: Format? = nil
    ) {
        self.data = data
        self.format = format
    }

    enum CodingKeys: String, CodingKey {
        case data
        case format
    }
}

/// A part of a message: a sound, for a model that hears.
public struct AudioPart: Codable, Equatable, Sendable {
    /// `type`.
    public var type: String
    /// A sound.
    public var inputAudio: InputAudio

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: String = "input_audio",
        inputAudio: InputAudio
    ) {
        self.type = type
        self.inputAudio = inputAudio
    }

    enum CodingKeys: String, CodingKey {
        case type
        case inputAudio = "input_audio"
    }
}

/// A part of an assistant's message: words in which it refused.
public struct RefusalPart: Codable, Equatable, Sendable {
    /// `type`.
    public var type: String
    /// `refusal`.
    public var refusal: String

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: String = "refusal",
        refusal: String
    ) {
        self.type = type
        self.refusal = refusal
    }

    enum CodingKeys: String, CodingKey {
        case type
        case refusal
    }
}

/// The function of a call.
public struct CalledFunction: Codable, Equatable, Sendable {
    /// The tool's name.
    public var name: String
    /// As JSON's text.
    public var arguments: String?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        name: String,
        arguments: String? = nil
    ) {
        self.name = name
        self.arguments = arguments
    }

    enum CodingKeys: String, CodingKey {
        case name
        case arguments
    }
}

/// A tool call in an assistant's message.
public struct MessageToolCall: Codable, Equatable, Sendable {
    /// The called function.
    public var function: CalledFunction
    /// The id that the tool's message refers to.
    public var id: String?
    /// `type`.
    public var type: String?
    /// Accepted; never affects an answer.
    public var index: JSONValue?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        function: CalledFunction,
        id: String? = nil,
        type: String? = nil,
        index: JSONValue? = nil
    ) {
        self.function = function
        self.id = id
        self.type = type
        self.index = index
    }

    enum CodingKeys: String, CodingKey {
        case function
        case id
        case type
        case index
    }
}

/// A function that the model may call.
public struct ToolFunction: Codable, Equatable, Sendable {
    /// The tool's name.
    public var name: String
    /// The tool's purpose, for the model.
    public var description: String?
    /// The schema of its arguments; without, it takes none.
    public var parameters: JSONValue?
    /// Refuse a schema that cannot be enforced in full, instead of enforcing a part of it.
    public var strict: Bool?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        name: String,
        description: String? = nil,
        parameters: JSONValue? = nil,
        strict: Bool? = nil
    ) {
        self.name = name
        self.description = description
        self.parameters = parameters
        self.strict = strict
    }

    enum CodingKeys: String, CodingKey {
        case name
        case description
        case parameters
        case strict
    }
}

/// A tool that the model may call.
public struct Tool: Codable, Equatable, Sendable {
    /// `type`.
    public var type: String
    /// The function.
    public var function: ToolFunction

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: String = "function",
        function: ToolFunction
    ) {
        self.type = type
        self.function = function
    }

    enum CodingKeys: String, CodingKey {
        case type
        case function
    }
}

/// A function of `tools`, by its name.
public struct NamedFunction: Codable, Equatable, Sendable {
    /// `name`.
    public var name: String

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        name: String
    ) {
        self.name = name
    }

    enum CodingKeys: String, CodingKey {
        case name
    }
}

/// The tool to call.
public struct NamedTool: Codable, Equatable, Sendable {
    /// `type`.
    public var type: String
    /// The function to call.
    public var function: NamedFunction

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: String = "function",
        function: NamedFunction
    ) {
        self.type = type
        self.function = function
    }

    enum CodingKeys: String, CodingKey {
        case type
        case function
    }
}

/// The allowed ones of `tools`.
public struct AllowedToolsList: Codable, Equatable, Sendable {
    /// Whether a tool must be called.
    public var mode: Mode
    /// The allowed tools, from `tools`.
    public var tools: [NamedTool]

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        mode: Mode,
        tools: [NamedTool]
    ) {
        self.mode = mode
        self.tools = tools
    }

    enum CodingKeys: String, CodingKey {
        case mode
        case tools
    }
}

/// A choice among some of `tools`.
public struct AllowedTools: Codable, Equatable, Sendable {
    /// `type`.
    public var type: String
    /// The tools that may be called.
    public var allowedTools: AllowedToolsList

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: String = "allowed_tools",
        allowedTools: AllowedToolsList
    ) {
        self.type = type
        self.allowedTools = allowedTools
    }

    enum CodingKeys: String, CodingKey {
        case type
        case allowedTools = "allowed_tools"
    }
}

/// Whether and how long the model reasons.
public struct ThinkingSwitch: Codable, Equatable, Sendable {
    /// Whether the model reasons; adaptive = the model decides.
    public var type: String
    /// Another name of `thinking_budget`.
    public var budgetTokens: Int?
    /// Accepted; never affects an answer.
    public var display: JSONValue?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: String,
        budgetTokens: Int? = nil,
        display: JSONValue? = nil
    ) {
        self.type = type
        self.budgetTokens = budgetTokens
        self.display = display
    }

    enum CodingKeys: String, CodingKey {
        case type
        case budgetTokens = "budget_tokens"
        case display
    }
}

/// One message of a conversation. Not built yet, so not here: `audio`.
public struct Message: Codable, Equatable, Sendable {
    /// Author; developer is another name of system, function an older one of tool.
    public var role: Role
    /// A text, or parts that are joined: texts, images for a model that sees, and sounds for
    /// one that hears. May be null in an assistant's or a tool's message. A model that reads
    /// text only leaves images and sounds out of a tool's message, and refuses others.
    public var content: Content?
    /// Name of the author, for templates that support names.
    public var name: String?
    /// An assistant's tool calls.
    public var toolCalls: [MessageToolCall]?
    /// The call that a tool's message answers.
    public var toolCallId: String?
    /// The older form of one tool call.
    public var functionCall: CalledFunction?
    /// The assistant's reasoning before this text.
    public var reasoningContent: String?
    /// Another name of `reasoning_content`.
    public var reasoning: String?
    /// Of an assistant's last message: the answer continues this text and begins with it.
    public var prefix: Bool?
    /// Words in which the assistant refused, read as its text.
    public var refusal: String?
    /// Accepted; never affects an answer.
    public var annotations: JSONValue?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        role: Role,
        content: Content? = nil,
        name: String? = nil,
        toolCalls: [MessageToolCall]? = nil,
        toolCallId: String? = nil,
        functionCall: CalledFunction? = nil,
        reasoningContent: String? = nil,
        reasoning: String? = nil,
        prefix: Bool? = nil,
        refusal: String? = nil,
        annotations: JSONValue? = nil
    ) {
        self.role = role
        self.content = content
        self.name = name
        self.toolCalls = toolCalls
        self.toolCallId = toolCallId
        self.functionCall = functionCall
        self.reasoningContent = reasoningContent
        self.reasoning = reasoning
        self.prefix = prefix
        self.refusal = refusal
        self.annotations = annotations
    }

    enum CodingKeys: String, CodingKey {
        case role
        case content
        case name
        case toolCalls = "tool_calls"
        case toolCallId = "tool_call_id"
        case functionCall = "function_call"
        case reasoningContent = "reasoning_content"
        case reasoning
        case prefix
        case refusal
        case annotations
    }
}

/// Options of a stream. Not built yet, so not here: `include_obfuscation`.
public struct StreamOptions: Codable, Equatable, Sendable {
    /// End the stream with a chunk of token counts.
    public var includeUsage: Bool?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        includeUsage: Bool? = nil
    ) {
        self.includeUsage = includeUsage
    }

    enum CodingKeys: String, CodingKey {
        case includeUsage = "include_usage"
    }
}

/// Predicted content of an answer.
public struct Prediction: Codable, Equatable, Sendable {
    /// Always `content`.
    public var type: String
    /// The text, or texts that are joined.
    public var content: TextContent

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: String = "content",
        content: TextContent
    ) {
        self.type = type
        self.content = content
    }

    enum CodingKeys: String, CodingKey {
        case type
        case content
    }
}

/// A JSON Schema, in OpenAI's form.
public struct JsonSchemaFormat: Codable, Equatable, Sendable {
    /// The schema of the answer.
    public var schema: JSONValue
    /// Accepted; never affects an answer.
    public var name: JSONValue?
    /// Accepted; never affects an answer.
    public var description: JSONValue?
    /// Refuse a schema that cannot be enforced in full, instead of enforcing a part of it.
    public var strict: Bool?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        schema: JSONValue,
        name: JSONValue? = nil,
        description: JSONValue? = nil,
        strict: Bool? = nil
    ) {
        self.schema = schema
        self.name = name
        self.description = description
        self.strict = strict
    }

    enum CodingKeys: String, CodingKey {
        case schema
        case name
        case description
        case strict
    }
}

/// Format of an answer.
public struct ResponseFormat: Codable, Equatable, Sendable {
    /// Type of the answer.
    public var type: ResponseType
    /// Only with the type `json_schema`.
    public var jsonSchema: JsonSchemaFormat?
    /// llama.cpp's place of a schema, with either JSON type.
    public var schema: JSONValue?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: ResponseType,
        jsonSchema: JsonSchemaFormat? = nil,
        schema: JSONValue? = nil
    ) {
        self.type = type
        self.jsonSchema = jsonSchema
        self.schema = schema
    }

    enum CodingKeys: String, CodingKey {
        case type
        case jsonSchema = "json_schema"
        case schema
    }
}

/// Constraints on an answer in vLLM's form: one of these. Not built yet, so not here:
/// `structural_tag`, `whitespace_pattern`, `disable_any_whitespace`,
/// `disable_additional_properties`.
public struct StructuredOutputs: Codable, Equatable, Sendable {
    /// A JSON Schema.
    public var json: JSONValue?
    /// Any JSON object.
    public var jsonObject: Bool?
    /// A regular expression for the whole answer.
    public var regex: String?
    /// The answer is one of these.
    public var choice: [String]?
    /// A grammar, in GBNF or Lark.
    public var grammar: String?
    /// Accepted; never affects an answer.
    public var disableFallback: JSONValue?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        json: JSONValue? = nil,
        jsonObject: Bool? = nil,
        regex: String? = nil,
        choice: [String]? = nil,
        grammar: String? = nil,
        disableFallback: JSONValue? = nil
    ) {
        self.json = json
        self.jsonObject = jsonObject
        self.regex = regex
        self.choice = choice
        self.grammar = grammar
        self.disableFallback = disableFallback
    }

    enum CodingKeys: String, CodingKey {
        case json
        case jsonObject = "json_object"
        case regex
        case choice
        case grammar
        case disableFallback = "disable_fallback"
    }
}

/// The body of POST /v1/chat/completions. Not built yet, so not here:
/// `guided_whitespace_pattern`, `samplers`, `functions`, `function_call`, `use_beam_search`,
/// `allowed_token_ids`, `truncate_prompt_tokens`, `skip_special_tokens`, `add_special_tokens`,
/// `chat_template`, `documents`, `verbosity`, `echo`, `prompt_logprobs`, `modalities`, `audio`,
/// `web_search_options`, `moderation`.
public struct ChatCompletionRequest: Codable, Equatable, Sendable {
    /// The conversation so far.
    public var messages: [Message]
    /// The model's name; optional if there is only one.
    public var model: String?
    /// Send the answer as it is made, as server-sent events.
    public var stream: Bool?
    /// Only with `stream`.
    public var streamOptions: StreamOptions?
    /// Answers to each prompt, which is computed once; each gets a seed derived from `seed`.
    /// From 1 to 128.
    public var n: Int?
    /// Requests share the prefix cache only with requests of the same salt.
    public var cacheSalt: String?
    /// Lower is answered first among the requests of an API key; waiting requests gain priority
    /// with time. From -100 to 100.
    public var priority: Int?
    /// Time limit of the answer in seconds, within the server's own.
    public var timeout: Double?
    /// Accepted; never affects an answer.
    public var user: JSONValue?
    /// Accepted; never affects an answer.
    public var metadata: JSONValue?
    /// Accepted; never affects an answer.
    public var store: JSONValue?
    /// The answer is JSON.
    public var responseFormat: ResponseFormat?
    /// One constraint on the answer.
    public var structuredOutputs: StructuredOutputs?
    /// vLLM's older name of a JSON Schema.
    public var guidedJson: JSONValue?
    /// vLLM's older name of a regular expression.
    public var guidedRegex: String?
    /// vLLM's older name of a list of answers.
    public var guidedChoice: [String]?
    /// vLLM's older name of a grammar.
    public var guidedGrammar: String?
    /// Accepted; never affects an answer.
    public var guidedDecodingBackend: JSONValue?
    /// llama.cpp's name of a grammar in GBNF.
    public var grammar: String?
    /// llama.cpp's name of a JSON Schema.
    public var jsonSchema: JSONValue?
    /// Divides the logits; 0 always samples the likeliest token. From 0 to 2.
    public var temperature: Double?
    /// Keep the smallest set of the likeliest tokens with at least this mass; 1 keeps all. From
    /// 0 to 1.
    public var topP: Double?
    /// Keep this many of the likeliest tokens; 0 and -1 keep all.
    public var topK: Int?
    /// Drop tokens less likely than this share of the likeliest one's. From 0 to 1.
    public var minP: Double?
    /// The same seed and prompt give the same answer.
    public var seed: Int?
    /// The answer ends before the first of these in its text; reasoning and calls may hold
    /// them.
    public var stop: Stop?
    /// The answer ends behind the string of `stop` instead.
    public var includeStopStrInOutput: Bool?
    /// Longest answer in tokens; -1 = as long as the context allows.
    public var maxTokens: Int?
    /// Ignore end-of-sequence tokens, for benchmarks.
    public var ignoreEos: Bool?
    /// Suppress end-of-sequence tokens before this many tokens.
    public var minTokens: Int?
    /// Tokens that end the answer, in addition to the model's own.
    public var stopTokenIds: [Int]?
    /// Lowers a token's logit for each time it is in the answer; below 0, raises it. From -2 to
    /// 2.
    public var frequencyPenalty: Double?
    /// Lowers the logits of tokens in the answer; below 0, raises them. From -2 to 2.
    public var presencePenalty: Double?
    /// Above 1, makes tokens of prompt and answer less likely. From 0.01 to 10.
    public var repetitionPenalty: Double?
    /// llama.cpp's name of `repetition_penalty`. From 0.01 to 10.
    public var repeatPenalty: Double?
    /// Window of these three penalties in tokens; -1 = all.
    public var repeatLastN: Int?
    /// Added to the logits of tokens, by id.
    public var logitBias: [Int: Double]?
    /// Words that the answer must not contain, as token sequences, with and without a space.
    public var badWords: [String]?
    /// Keep logits within this many standard deviations of the largest; 0 and below keep all.
    public var topNSigma: Double?
    /// Keep this mass of the tokens whose surprise is nearest to the entropy; 1 keeps all. From
    /// 0 to 1.
    public var typicalP: Double?
    /// Drop tokens below this probability. From 0 to 1.
    public var epsilonCutoff: Double?
    /// Drop tokens below this probability; the threshold falls with the entropy. From 0 to 1.
    public var etaCutoff: Double?
    /// How often all tokens from `xtc_threshold` on are excluded but the least likely of them.
    /// From 0 to 1.
    public var xtcProbability: Double?
    /// The least probability of a top choice. From 0 to 1.
    public var xtcThreshold: Double?
    /// Range of the temperature: lower at low entropy, higher at high entropy. From 0 to 100.
    public var dynatempRange: Double?
    /// Exponent of the map from entropy to that range. From 0 to 100.
    public var dynatempExponent: Double?
    /// 2 keeps the surprise of the answer near `mirostat_tau`, instead of other filters.
    public var mirostat: Int?
    /// Target surprise of a token, in bits. From 0 to 100.
    public var mirostatTau: Double?
    /// Learning rate of mirostat. From 0 to 1.
    public var mirostatEta: Double?
    /// Above 0, penalizes a token that would extend a repetition, more for a longer one. From 0
    /// to 100.
    public var dryMultiplier: Double?
    /// Growth of the penalty with the repetition's length. From 1 to 100.
    public var dryBase: Double?
    /// Longest repetition without a penalty.
    public var dryAllowedLength: Int?
    /// Window of the penalty in tokens; -1 = all.
    public var dryPenaltyLastN: Int?
    /// A repetition does not extend over a token that contains one of these.
    public var drySequenceBreakers: [String]?
    /// The newer name of `max_tokens`.
    public var maxCompletionTokens: Int?
    /// Report the log-probability of each token of the answer.
    public var logprobs: Bool?
    /// With `logprobs`: report this many of the likeliest tokens at each position, too. From 0
    /// to 20.
    public var topLogprobs: Int?
    /// Functions that the model may call.
    public var tools: [Tool]?
    /// auto = the model decides; none; required = at least one call; or a named function.
    public var toolChoice: ToolChoice?
    /// false: one call at most in an answer.
    public var parallelToolCalls: Bool?
    /// Reasoning effort, if the chat template supports it; none = no reasoning.
    public var reasoningEffort: ReasoningEffort?
    /// Whether the model reasons, if its template supports it.
    public var enableThinking: Bool?
    /// Most tokens of reasoning; the answer begins after them.
    public var thinkingBudget: Int?
    /// Switch and budget in the form of Anthropic and others.
    public var thinking: ThinkingSwitch?
    /// Variables of the model's chat template.
    public var chatTemplateKwargs: JSONValue?
    /// The answer continues the last message, an assistant's, as with its `prefix`.
    public var continueFinalMessage: Bool?
    /// false: the prompt ends with the last message, and the model may go on with any role.
    public var addGenerationPrompt: Bool?
    /// Predicted text of the answer, such as the file being edited: faster, with the same
    /// answer.
    public var prediction: Prediction?
    /// Accepted; never affects an answer.
    public var promptCacheKey: JSONValue?
    /// Accepted; never affects an answer.
    public var promptCacheOptions: JSONValue?
    /// Accepted; never affects an answer.
    public var promptCacheRetention: JSONValue?
    /// Accepted; never affects an answer.
    public var safetyIdentifier: JSONValue?
    /// Accepted; never affects an answer.
    public var serviceTier: JSONValue?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        messages: [Message],
        model: String? = nil,
        stream: Bool? = nil,
        streamOptions: StreamOptions? = nil,
        n: Int? = nil,
        cacheSalt: String? = nil,
        priority: Int? = nil,
        timeout: Double? = nil,
        user: JSONValue? = nil,
        metadata: JSONValue? = nil,
        store: JSONValue? = nil,
        responseFormat: ResponseFormat? = nil,
        structuredOutputs: StructuredOutputs? = nil,
        guidedJson: JSONValue? = nil,
        guidedRegex: String? = nil,
        guidedChoice: [String]? = nil,
        guidedGrammar: String? = nil,
        guidedDecodingBackend: JSONValue? = nil,
        grammar: String? = nil,
        jsonSchema: JSONValue? = nil,
        temperature: Double? = nil,
        topP: Double? = nil,
        topK: Int? = nil,
        minP: Double? = nil,
        seed: Int? = nil,
        stop: Stop? = nil,
        includeStopStrInOutput: Bool? = nil,
        maxTokens: Int? = nil,
        ignoreEos: Bool? = nil,
        minTokens: Int? = nil,
        stopTokenIds: [Int]? = nil,
        frequencyPenalty: Double? = nil,
        presencePenalty: Double? = nil,
        repetitionPenalty: Double? = nil,
        repeatPenalty: Double? = nil,
        repeatLastN: Int? = nil,
        logitBias: [Int: Double]? = nil,
        badWords: [String]? = nil,
        topNSigma: Double? = nil,
        typicalP: Double? = nil,
        epsilonCutoff: Double? = nil,
        etaCutoff: Double? = nil,
        xtcProbability: Double? = nil,
        xtcThreshold: Double? = nil,
        dynatempRange: Double? = nil,
        dynatempExponent: Double? = nil,
        mirostat: Int? = nil,
        mirostatTau: Double? = nil,
        mirostatEta: Double? = nil,
        dryMultiplier: Double? = nil,
        dryBase: Double? = nil,
        dryAllowedLength: Int? = nil,
        dryPenaltyLastN: Int? = nil,
        drySequenceBreakers: [String]? = nil,
        maxCompletionTokens: Int? = nil,
        logprobs: Bool? = nil,
        topLogprobs: Int? = nil,
        tools: [Tool]? = nil,
        toolChoice: ToolChoice? = nil,
        parallelToolCalls: Bool? = nil,
        reasoningEffort: ReasoningEffort? = nil,
        enableThinking: Bool? = nil,
        thinkingBudget: Int? = nil,
        thinking: ThinkingSwitch? = nil,
        chatTemplateKwargs: JSONValue? = nil,
        continueFinalMessage: Bool? = nil,
        addGenerationPrompt: Bool? = nil,
        prediction: Prediction? = nil,
        promptCacheKey: JSONValue? = nil,
        promptCacheOptions: JSONValue? = nil,
        promptCacheRetention: JSONValue? = nil,
        safetyIdentifier: JSONValue? = nil,
        serviceTier: JSONValue? = nil
    ) {
        self.messages = messages
        self.model = model
        self.stream = stream
        self.streamOptions = streamOptions
        self.n = n
        self.cacheSalt = cacheSalt
        self.priority = priority
        self.timeout = timeout
        self.user = user
        self.metadata = metadata
        self.store = store
        self.responseFormat = responseFormat
        self.structuredOutputs = structuredOutputs
        self.guidedJson = guidedJson
        self.guidedRegex = guidedRegex
        self.guidedChoice = guidedChoice
        self.guidedGrammar = guidedGrammar
        self.guidedDecodingBackend = guidedDecodingBackend
        self.grammar = grammar
        self.jsonSchema = jsonSchema
        self.temperature = temperature
        self.topP = topP
        self.topK = topK
        self.minP = minP
        self.seed = seed
        self.stop = stop
        self.includeStopStrInOutput = includeStopStrInOutput
        self.maxTokens = maxTokens
        self.ignoreEos = ignoreEos
        self.minTokens = minTokens
        self.stopTokenIds = stopTokenIds
        self.frequencyPenalty = frequencyPenalty
        self.presencePenalty = presencePenalty
        self.repetitionPenalty = repetitionPenalty
        self.repeatPenalty = repeatPenalty
        self.repeatLastN = repeatLastN
        self.logitBias = logitBias
        self.badWords = badWords
        self.topNSigma = topNSigma
        self.typicalP = typicalP
        self.epsilonCutoff = epsilonCutoff
        self.etaCutoff = etaCutoff
        self.xtcProbability = xtcProbability
        self.xtcThreshold = xtcThreshold
        self.dynatempRange = dynatempRange
        self.dynatempExponent = dynatempExponent
        self.mirostat = mirostat
        self.mirostatTau = mirostatTau
        self.mirostatEta = mirostatEta
        self.dryMultiplier = dryMultiplier
        self.dryBase = dryBase
        self.dryAllowedLength = dryAllowedLength
        self.dryPenaltyLastN = dryPenaltyLastN
        self.drySequenceBreakers = drySequenceBreakers
        self.maxCompletionTokens = maxCompletionTokens
        self.logprobs = logprobs
        self.topLogprobs = topLogprobs
        self.tools = tools
        self.toolChoice = toolChoice
        self.parallelToolCalls = parallelToolCalls
        self.reasoningEffort = reasoningEffort
        self.enableThinking = enableThinking
        self.thinkingBudget = thinkingBudget
        self.thinking = thinking
        self.chatTemplateKwargs = chatTemplateKwargs
        self.continueFinalMessage = continueFinalMessage
        self.addGenerationPrompt = addGenerationPrompt
        self.prediction = prediction
        self.promptCacheKey = promptCacheKey
        self.promptCacheOptions = promptCacheOptions
        self.promptCacheRetention = promptCacheRetention
        self.safetyIdentifier = safetyIdentifier
        self.serviceTier = serviceTier
    }

    enum CodingKeys: String, CodingKey {
        case messages
        case model
        case stream
        case streamOptions = "stream_options"
        case n
        case cacheSalt = "cache_salt"
        case priority
        case timeout
        case user
        case metadata
        case store
        case responseFormat = "response_format"
        case structuredOutputs = "structured_outputs"
        case guidedJson = "guided_json"
        case guidedRegex = "guided_regex"
        case guidedChoice = "guided_choice"
        case guidedGrammar = "guided_grammar"
        case guidedDecodingBackend = "guided_decoding_backend"
        case grammar
        case jsonSchema = "json_schema"
        case temperature
        case topP = "top_p"
        case topK = "top_k"
        case minP = "min_p"
        case seed
        case stop
        case includeStopStrInOutput = "include_stop_str_in_output"
        case maxTokens = "max_tokens"
        case ignoreEos = "ignore_eos"
        case minTokens = "min_tokens"
        case stopTokenIds = "stop_token_ids"
        case frequencyPenalty = "frequency_penalty"
        case presencePenalty = "presence_penalty"
        case repetitionPenalty = "repetition_penalty"
        case repeatPenalty = "repeat_penalty"
        case repeatLastN = "repeat_last_n"
        case logitBias = "logit_bias"
        case badWords = "bad_words"
        case topNSigma = "top_n_sigma"
        case typicalP = "typical_p"
        case epsilonCutoff = "epsilon_cutoff"
        case etaCutoff = "eta_cutoff"
        case xtcProbability = "xtc_probability"
        case xtcThreshold = "xtc_threshold"
        case dynatempRange = "dynatemp_range"
        case dynatempExponent = "dynatemp_exponent"
        case mirostat
        case mirostatTau = "mirostat_tau"
        case mirostatEta = "mirostat_eta"
        case dryMultiplier = "dry_multiplier"
        case dryBase = "dry_base"
        case dryAllowedLength = "dry_allowed_length"
        case dryPenaltyLastN = "dry_penalty_last_n"
        case drySequenceBreakers = "dry_sequence_breakers"
        case maxCompletionTokens = "max_completion_tokens"
        case logprobs
        case topLogprobs = "top_logprobs"
        case tools
        case toolChoice = "tool_choice"
        case parallelToolCalls = "parallel_tool_calls"
        case reasoningEffort = "reasoning_effort"
        case enableThinking = "enable_thinking"
        case thinkingBudget = "thinking_budget"
        case thinking
        case chatTemplateKwargs = "chat_template_kwargs"
        case continueFinalMessage = "continue_final_message"
        case addGenerationPrompt = "add_generation_prompt"
        case prediction
        case promptCacheKey = "prompt_cache_key"
        case promptCacheOptions = "prompt_cache_options"
        case promptCacheRetention = "prompt_cache_retention"
        case safetyIdentifier = "safety_identifier"
        case serviceTier = "service_tier"
    }
}

/// The body of POST /v1/completions. Not built yet, so not here: `guided_whitespace_pattern`,
/// `samplers`, `prompt_logprobs`, `use_beam_search`, `allowed_token_ids`,
/// `truncate_prompt_tokens`, `skip_special_tokens`, `add_special_tokens`.
public struct CompletionRequest: Codable, Equatable, Sendable {
    /// One prompt or several; each gets an answer.
    public var prompt: Prompt
    /// The model's name; optional if there is only one.
    public var model: String?
    /// Send the answer as it is made, as server-sent events.
    public var stream: Bool?
    /// Only with `stream`.
    public var streamOptions: StreamOptions?
    /// Answers to each prompt, which is computed once; each gets a seed derived from `seed`.
    /// From 1 to 128.
    public var n: Int?
    /// Requests share the prefix cache only with requests of the same salt.
    public var cacheSalt: String?
    /// Lower is answered first among the requests of an API key; waiting requests gain priority
    /// with time. From -100 to 100.
    public var priority: Int?
    /// Time limit of the answer in seconds, within the server's own.
    public var timeout: Double?
    /// Accepted; never affects an answer.
    public var user: JSONValue?
    /// Accepted; never affects an answer.
    public var metadata: JSONValue?
    /// Accepted; never affects an answer.
    public var store: JSONValue?
    /// The answer is JSON.
    public var responseFormat: ResponseFormat?
    /// One constraint on the answer.
    public var structuredOutputs: StructuredOutputs?
    /// vLLM's older name of a JSON Schema.
    public var guidedJson: JSONValue?
    /// vLLM's older name of a regular expression.
    public var guidedRegex: String?
    /// vLLM's older name of a list of answers.
    public var guidedChoice: [String]?
    /// vLLM's older name of a grammar.
    public var guidedGrammar: String?
    /// Accepted; never affects an answer.
    public var guidedDecodingBackend: JSONValue?
    /// llama.cpp's name of a grammar in GBNF.
    public var grammar: String?
    /// llama.cpp's name of a JSON Schema.
    public var jsonSchema: JSONValue?
    /// Divides the logits; 0 always samples the likeliest token. From 0 to 2.
    public var temperature: Double?
    /// Keep the smallest set of the likeliest tokens with at least this mass; 1 keeps all. From
    /// 0 to 1.
    public var topP: Double?
    /// Keep this many of the likeliest tokens; 0 and -1 keep all.
    public var topK: Int?
    /// Drop tokens less likely than this share of the likeliest one's. From 0 to 1.
    public var minP: Double?
    /// The same seed and prompt give the same answer.
    public var seed: Int?
    /// The answer ends before the first of these in its text; reasoning and calls may hold
    /// them.
    public var stop: Stop?
    /// The answer ends behind the string of `stop` instead.
    public var includeStopStrInOutput: Bool?
    /// Ignore end-of-sequence tokens, for benchmarks.
    public var ignoreEos: Bool?
    /// Suppress end-of-sequence tokens before this many tokens.
    public var minTokens: Int?
    /// Tokens that end the answer, in addition to the model's own.
    public var stopTokenIds: [Int]?
    /// Lowers a token's logit for each time it is in the answer; below 0, raises it. From -2 to
    /// 2.
    public var frequencyPenalty: Double?
    /// Lowers the logits of tokens in the answer; below 0, raises them. From -2 to 2.
    public var presencePenalty: Double?
    /// Above 1, makes tokens of prompt and answer less likely. From 0.01 to 10.
    public var repetitionPenalty: Double?
    /// llama.cpp's name of `repetition_penalty`. From 0.01 to 10.
    public var repeatPenalty: Double?
    /// Window of these three penalties in tokens; -1 = all.
    public var repeatLastN: Int?
    /// Added to the logits of tokens, by id.
    public var logitBias: [Int: Double]?
    /// Words that the answer must not contain, as token sequences, with and without a space.
    public var badWords: [String]?
    /// Keep logits within this many standard deviations of the largest; 0 and below keep all.
    public var topNSigma: Double?
    /// Keep this mass of the tokens whose surprise is nearest to the entropy; 1 keeps all. From
    /// 0 to 1.
    public var typicalP: Double?
    /// Drop tokens below this probability. From 0 to 1.
    public var epsilonCutoff: Double?
    /// Drop tokens below this probability; the threshold falls with the entropy. From 0 to 1.
    public var etaCutoff: Double?
    /// How often all tokens from `xtc_threshold` on are excluded but the least likely of them.
    /// From 0 to 1.
    public var xtcProbability: Double?
    /// The least probability of a top choice. From 0 to 1.
    public var xtcThreshold: Double?
    /// Range of the temperature: lower at low entropy, higher at high entropy. From 0 to 100.
    public var dynatempRange: Double?
    /// Exponent of the map from entropy to that range. From 0 to 100.
    public var dynatempExponent: Double?
    /// 2 keeps the surprise of the answer near `mirostat_tau`, instead of other filters.
    public var mirostat: Int?
    /// Target surprise of a token, in bits. From 0 to 100.
    public var mirostatTau: Double?
    /// Learning rate of mirostat. From 0 to 1.
    public var mirostatEta: Double?
    /// Above 0, penalizes a token that would extend a repetition, more for a longer one. From 0
    /// to 100.
    public var dryMultiplier: Double?
    /// Growth of the penalty with the repetition's length. From 1 to 100.
    public var dryBase: Double?
    /// Longest repetition without a penalty.
    public var dryAllowedLength: Int?
    /// Window of the penalty in tokens; -1 = all.
    public var dryPenaltyLastN: Int?
    /// A repetition does not extend over a token that contains one of these.
    public var drySequenceBreakers: [String]?
    /// Longest answer in tokens; -1 = as long as the context allows, 0 = none: the prompt alone
    /// is computed.
    public var maxTokens: Int?
    /// Send the prompt before the answer, and its `logprobs`.
    public var echo: Bool?
    /// Generate this many answers and send the `n` likeliest, by mean log-probability; with
    /// `stream` it must equal `n`. From 1 to 128.
    public var bestOf: Int?
    /// Text after the gap to fill; for models that were trained for it.
    public var suffix: String?
    /// Report the log-probability of each token of the answer, and of this many of the
    /// likeliest at its position. From 0 to 20.
    public var logprobs: Int?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        prompt: Prompt,
        model: String? = nil,
        stream: Bool? = nil,
        streamOptions: StreamOptions? = nil,
        n: Int? = nil,
        cacheSalt: String? = nil,
        priority: Int? = nil,
        timeout: Double? = nil,
        user: JSONValue? = nil,
        metadata: JSONValue? = nil,
        store: JSONValue? = nil,
        responseFormat: ResponseFormat? = nil,
        structuredOutputs: StructuredOutputs? = nil,
        guidedJson: JSONValue? = nil,
        guidedRegex: String? = nil,
        guidedChoice: [String]? = nil,
        guidedGrammar: String? = nil,
        guidedDecodingBackend: JSONValue? = nil,
        grammar: String? = nil,
        jsonSchema: JSONValue? = nil,
        temperature: Double? = nil,
        topP: Double? = nil,
        topK: Int? = nil,
        minP: Double? = nil,
        seed: Int? = nil,
        stop: Stop? = nil,
        includeStopStrInOutput: Bool? = nil,
        ignoreEos: Bool? = nil,
        minTokens: Int? = nil,
        stopTokenIds: [Int]? = nil,
        frequencyPenalty: Double? = nil,
        presencePenalty: Double? = nil,
        repetitionPenalty: Double? = nil,
        repeatPenalty: Double? = nil,
        repeatLastN: Int? = nil,
        logitBias: [Int: Double]? = nil,
        badWords: [String]? = nil,
        topNSigma: Double? = nil,
        typicalP: Double? = nil,
        epsilonCutoff: Double? = nil,
        etaCutoff: Double? = nil,
        xtcProbability: Double? = nil,
        xtcThreshold: Double? = nil,
        dynatempRange: Double? = nil,
        dynatempExponent: Double? = nil,
        mirostat: Int? = nil,
        mirostatTau: Double? = nil,
        mirostatEta: Double? = nil,
        dryMultiplier: Double? = nil,
        dryBase: Double? = nil,
        dryAllowedLength: Int? = nil,
        dryPenaltyLastN: Int? = nil,
        drySequenceBreakers: [String]? = nil,
        maxTokens: Int? = nil,
        echo: Bool? = nil,
        bestOf: Int? = nil,
        suffix: String? = nil,
        logprobs: Int? = nil
    ) {
        self.prompt = prompt
        self.model = model
        self.stream = stream
        self.streamOptions = streamOptions
        self.n = n
        self.cacheSalt = cacheSalt
        self.priority = priority
        self.timeout = timeout
        self.user = user
        self.metadata = metadata
        self.store = store
        self.responseFormat = responseFormat
        self.structuredOutputs = structuredOutputs
        self.guidedJson = guidedJson
        self.guidedRegex = guidedRegex
        self.guidedChoice = guidedChoice
        self.guidedGrammar = guidedGrammar
        self.guidedDecodingBackend = guidedDecodingBackend
        self.grammar = grammar
        self.jsonSchema = jsonSchema
        self.temperature = temperature
        self.topP = topP
        self.topK = topK
        self.minP = minP
        self.seed = seed
        self.stop = stop
        self.includeStopStrInOutput = includeStopStrInOutput
        self.ignoreEos = ignoreEos
        self.minTokens = minTokens
        self.stopTokenIds = stopTokenIds
        self.frequencyPenalty = frequencyPenalty
        self.presencePenalty = presencePenalty
        self.repetitionPenalty = repetitionPenalty
        self.repeatPenalty = repeatPenalty
        self.repeatLastN = repeatLastN
        self.logitBias = logitBias
        self.badWords = badWords
        self.topNSigma = topNSigma
        self.typicalP = typicalP
        self.epsilonCutoff = epsilonCutoff
        self.etaCutoff = etaCutoff
        self.xtcProbability = xtcProbability
        self.xtcThreshold = xtcThreshold
        self.dynatempRange = dynatempRange
        self.dynatempExponent = dynatempExponent
        self.mirostat = mirostat
        self.mirostatTau = mirostatTau
        self.mirostatEta = mirostatEta
        self.dryMultiplier = dryMultiplier
        self.dryBase = dryBase
        self.dryAllowedLength = dryAllowedLength
        self.dryPenaltyLastN = dryPenaltyLastN
        self.drySequenceBreakers = drySequenceBreakers
        self.maxTokens = maxTokens
        self.echo = echo
        self.bestOf = bestOf
        self.suffix = suffix
        self.logprobs = logprobs
    }

    enum CodingKeys: String, CodingKey {
        case prompt
        case model
        case stream
        case streamOptions = "stream_options"
        case n
        case cacheSalt = "cache_salt"
        case priority
        case timeout
        case user
        case metadata
        case store
        case responseFormat = "response_format"
        case structuredOutputs = "structured_outputs"
        case guidedJson = "guided_json"
        case guidedRegex = "guided_regex"
        case guidedChoice = "guided_choice"
        case guidedGrammar = "guided_grammar"
        case guidedDecodingBackend = "guided_decoding_backend"
        case grammar
        case jsonSchema = "json_schema"
        case temperature
        case topP = "top_p"
        case topK = "top_k"
        case minP = "min_p"
        case seed
        case stop
        case includeStopStrInOutput = "include_stop_str_in_output"
        case ignoreEos = "ignore_eos"
        case minTokens = "min_tokens"
        case stopTokenIds = "stop_token_ids"
        case frequencyPenalty = "frequency_penalty"
        case presencePenalty = "presence_penalty"
        case repetitionPenalty = "repetition_penalty"
        case repeatPenalty = "repeat_penalty"
        case repeatLastN = "repeat_last_n"
        case logitBias = "logit_bias"
        case badWords = "bad_words"
        case topNSigma = "top_n_sigma"
        case typicalP = "typical_p"
        case epsilonCutoff = "epsilon_cutoff"
        case etaCutoff = "eta_cutoff"
        case xtcProbability = "xtc_probability"
        case xtcThreshold = "xtc_threshold"
        case dynatempRange = "dynatemp_range"
        case dynatempExponent = "dynatemp_exponent"
        case mirostat
        case mirostatTau = "mirostat_tau"
        case mirostatEta = "mirostat_eta"
        case dryMultiplier = "dry_multiplier"
        case dryBase = "dry_base"
        case dryAllowedLength = "dry_allowed_length"
        case dryPenaltyLastN = "dry_penalty_last_n"
        case drySequenceBreakers = "dry_sequence_breakers"
        case maxTokens = "max_tokens"
        case echo
        case bestOf = "best_of"
        case suffix
        case logprobs
    }
}

/// The body of POST /v1/embeddings.
public struct EmbeddingRequest: Codable, Equatable, Sendable {
    /// One text or several; each becomes an embedding.
    public var input: Input
    /// Format of the numbers.
    public var encodingFormat: EncodingFormat?
    /// Keep the first numbers of each embedding, normalized to length 1 again; useful for
    /// models that were trained for it (Matryoshka).
    public var dimensions: Int?
    /// Name of the model's prompt that is put before each text.
    public var promptName: String?
    /// The model's name.
    public var model: String?
    /// Cut longer texts to this many tokens, -1 = the most that the model takes. Otherwise a
    /// longer text is an error.
    public var truncatePromptTokens: Int?
    /// Time limit of the whole request in seconds.
    public var timeout: Double?
    /// Lower is served first. From -100 to 100.
    public var priority: Int?
    /// Accepted; never affects an answer.
    public var user: JSONValue?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        input: Input,
        encodingFormat: EncodingFormat? = nil,
        dimensions: Int? = nil,
        promptName: String? = nil,
        model: String? = nil,
        truncatePromptTokens: Int? = nil,
        timeout: Double? = nil,
        priority: Int? = nil,
        user: JSONValue? = nil
    ) {
        self.input = input
        self.encodingFormat = encodingFormat
        self.dimensions = dimensions
        self.promptName = promptName
        self.model = model
        self.truncatePromptTokens = truncatePromptTokens
        self.timeout = timeout
        self.priority = priority
        self.user = user
    }

    enum CodingKeys: String, CodingKey {
        case input
        case encodingFormat = "encoding_format"
        case dimensions
        case promptName = "prompt_name"
        case model
        case truncatePromptTokens = "truncate_prompt_tokens"
        case timeout
        case priority
        case user
    }
}

/// The body of POST /v1/score.
public struct ScoreRequest: Codable, Equatable, Sendable {
    /// First texts of the pairs.
    public var text1: Texts?
    /// Second texts of the pairs.
    public var text2: Texts?
    /// The model's name.
    public var model: String?
    /// Cut longer texts to this many tokens, -1 = the most that the model takes. Otherwise a
    /// longer text is an error.
    public var truncatePromptTokens: Int?
    /// Time limit of the whole request in seconds.
    public var timeout: Double?
    /// Lower is served first. From -100 to 100.
    public var priority: Int?
    /// Accepted; never affects an answer.
    public var user: JSONValue?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        text1: Texts? = nil,
        text2: Texts? = nil,
        model: String? = nil,
        truncatePromptTokens: Int? = nil,
        timeout: Double? = nil,
        priority: Int? = nil,
        user: JSONValue? = nil
    ) {
        self.text1 = text1
        self.text2 = text2
        self.model = model
        self.truncatePromptTokens = truncatePromptTokens
        self.timeout = timeout
        self.priority = priority
        self.user = user
    }

    enum CodingKeys: String, CodingKey {
        case text1 = "text_1"
        case text2 = "text_2"
        case model
        case truncatePromptTokens = "truncate_prompt_tokens"
        case timeout
        case priority
        case user
    }
}

/// The body of POST /classify.
public struct ClassifyRequest: Codable, Equatable, Sendable {
    /// One text or several; each gets a class.
    public var input: Input
    /// false: logits, not probabilities; true by default.
    public var useActivation: Bool?
    /// vLLM's older name of `use_activation`.
    public var activation: Bool?
    /// The model's name.
    public var model: String?
    /// Cut longer texts to this many tokens, -1 = the most that the model takes. Otherwise a
    /// longer text is an error.
    public var truncatePromptTokens: Int?
    /// Time limit of the whole request in seconds.
    public var timeout: Double?
    /// Lower is served first. From -100 to 100.
    public var priority: Int?
    /// Accepted; never affects an answer.
    public var user: JSONValue?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        input: Input,
        useActivation: Bool? = nil,
        activation: Bool? = nil,
        model: String? = nil,
        truncatePromptTokens: Int? = nil,
        timeout: Double? = nil,
        priority: Int? = nil,
        user: JSONValue? = nil
    ) {
        self.input = input
        self.useActivation = useActivation
        self.activation = activation
        self.model = model
        self.truncatePromptTokens = truncatePromptTokens
        self.timeout = timeout
        self.priority = priority
        self.user = user
    }

    enum CodingKeys: String, CodingKey {
        case input
        case useActivation = "use_activation"
        case activation
        case model
        case truncatePromptTokens = "truncate_prompt_tokens"
        case timeout
        case priority
        case user
    }
}

/// A document that is ranked.
public struct RerankDocument: Codable, Equatable, Sendable {
    /// The document's text.
    public var text: String

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        text: String
    ) {
        self.text = text
    }

    enum CodingKeys: String, CodingKey {
        case text
    }
}

/// The body of POST /v1/rerank.
public struct RerankRequest: Codable, Equatable, Sendable {
    /// The query that documents are ranked by.
    public var query: String
    /// The documents.
    public var documents: [Document]
    /// Return the best ones only; all by default.
    public var topN: Int?
    /// Repeat the documents; true by default.
    public var returnDocuments: Bool?
    /// The model's name.
    public var model: String?
    /// Cut longer texts to this many tokens, -1 = the most that the model takes. Otherwise a
    /// longer text is an error.
    public var truncatePromptTokens: Int?
    /// Time limit of the whole request in seconds.
    public var timeout: Double?
    /// Lower is served first. From -100 to 100.
    public var priority: Int?
    /// Accepted; never affects an answer.
    public var user: JSONValue?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        query: String,
        documents: [Document],
        topN: Int? = nil,
        returnDocuments: Bool? = nil,
        model: String? = nil,
        truncatePromptTokens: Int? = nil,
        timeout: Double? = nil,
        priority: Int? = nil,
        user: JSONValue? = nil
    ) {
        self.query = query
        self.documents = documents
        self.topN = topN
        self.returnDocuments = returnDocuments
        self.model = model
        self.truncatePromptTokens = truncatePromptTokens
        self.timeout = timeout
        self.priority = priority
        self.user = user
    }

    enum CodingKeys: String, CodingKey {
        case query
        case documents
        case topN = "top_n"
        case returnDocuments = "return_documents"
        case model
        case truncatePromptTokens = "truncate_prompt_tokens"
        case timeout
        case priority
        case user
    }
}

/// Whether and how much the model reasons.
public struct ResponsesReasoning: Codable, Equatable, Sendable {
    /// Reasoning effort, if the chat template supports it; none = no reasoning.
    public var effort: Effort?
    /// Send reasoning as its summary; it is not summarized.
    public var summary: Summary?
    /// Accepted; never affects an answer.
    public var generateSummary: JSONValue?
    /// Accepted; never affects an answer.
    public var context: JSONValue?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        effort: Effort? = nil,
        summary: Summary? = nil,
        generateSummary: JSONValue? = nil,
        context: JSONValue? = nil
    ) {
        self.effort = effort
        self.summary = summary
        self.generateSummary = generateSummary
        self.context = context
    }

    enum CodingKeys: String, CodingKey {
        case effort
        case summary
        case generateSummary = "generate_summary"
        case context
    }
}

/// Format of the answer.
public struct ResponsesTextConfig: Codable, Equatable, Sendable {
    /// Format of the answer.
    public var format: JSONValue?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        format: JSONValue? = nil
    ) {
        self.format = format
    }

    enum CodingKeys: String, CodingKey {
        case format
    }
}

/// The body of POST /v1/responses. Not built yet, so not here: `truncation`, `conversation`,
/// `context_management`, `prompt`, `samplers`, `background`, `moderation`.
public struct ResponsesRequest: Codable, Equatable, Sendable {
    /// Must be the model that is loaded, if it is given.
    public var model: String?
    /// The user's text, or a list of items.
    public var input: ResponsesInput?
    /// The system prompt.
    public var instructions: String?
    /// The stored answer whose conversation goes before the input.
    public var previousResponseId: String?
    /// Functions that the model may call.
    public var tools: [JSONValue]?
    /// Which tool must be called, if any.
    public var toolChoice: JSONValue?
    /// false: one call at most in an answer.
    public var parallelToolCalls: Bool?
    /// Whether and how much the model reasons.
    public var reasoning: ResponsesReasoning?
    /// Format of the answer.
    public var text: ResponsesTextConfig?
    /// Longest answer in tokens, reasoning included.
    public var maxOutputTokens: Int?
    /// Send the answer as it is made, as server-sent events.
    public var stream: Bool?
    /// Only with `stream`.
    public var streamOptions: JSONValue?
    /// Store the answer for `previous_response_id` and retrieval; true by default.
    public var store: Bool?
    /// Stored with the answer.
    public var metadata: JSONValue?
    /// Additional fields of the answer.
    public var include: [Include]?
    /// Report this many of the likeliest tokens at each position, with log-probabilities. From
    /// 0 to 20.
    public var topLogprobs: Int?
    /// Divides the logits; 0 always samples the likeliest token. From 0 to 2.
    public var temperature: Double?
    /// Keep the smallest set of the likeliest tokens with at least this mass; 1 keeps all. From
    /// 0 to 1.
    public var topP: Double?
    /// Keep this many of the likeliest tokens; 0 and -1 keep all.
    public var topK: Int?
    /// Drop tokens less likely than this share of the likeliest one's. From 0 to 1.
    public var minP: Double?
    /// The same seed and prompt give the same answer.
    public var seed: Int?
    /// The answer ends before the first of these in its text; reasoning and calls may hold
    /// them.
    public var stop: Stop?
    /// The answer ends behind the string of `stop` instead.
    public var includeStopStrInOutput: Bool?
    /// Ignore end-of-sequence tokens, for benchmarks.
    public var ignoreEos: Bool?
    /// Suppress end-of-sequence tokens before this many tokens.
    public var minTokens: Int?
    /// Tokens that end the answer, in addition to the model's own.
    public var stopTokenIds: [Int]?
    /// Lowers a token's logit for each time it is in the answer; below 0, raises it. From -2 to
    /// 2.
    public var frequencyPenalty: Double?
    /// Lowers the logits of tokens in the answer; below 0, raises them. From -2 to 2.
    public var presencePenalty: Double?
    /// Above 1, makes tokens of prompt and answer less likely. From 0.01 to 10.
    public var repetitionPenalty: Double?
    /// llama.cpp's name of `repetition_penalty`. From 0.01 to 10.
    public var repeatPenalty: Double?
    /// Window of these three penalties in tokens; -1 = all.
    public var repeatLastN: Int?
    /// Added to the logits of tokens, by id.
    public var logitBias: [Int: Double]?
    /// Words that the answer must not contain, as token sequences, with and without a space.
    public var badWords: [String]?
    /// Keep logits within this many standard deviations of the largest; 0 and below keep all.
    public var topNSigma: Double?
    /// Keep this mass of the tokens whose surprise is nearest to the entropy; 1 keeps all. From
    /// 0 to 1.
    public var typicalP: Double?
    /// Drop tokens below this probability. From 0 to 1.
    public var epsilonCutoff: Double?
    /// Drop tokens below this probability; the threshold falls with the entropy. From 0 to 1.
    public var etaCutoff: Double?
    /// How often all tokens from `xtc_threshold` on are excluded but the least likely of them.
    /// From 0 to 1.
    public var xtcProbability: Double?
    /// The least probability of a top choice. From 0 to 1.
    public var xtcThreshold: Double?
    /// Range of the temperature: lower at low entropy, higher at high entropy. From 0 to 100.
    public var dynatempRange: Double?
    /// Exponent of the map from entropy to that range. From 0 to 100.
    public var dynatempExponent: Double?
    /// 2 keeps the surprise of the answer near `mirostat_tau`, instead of other filters.
    public var mirostat: Int?
    /// Target surprise of a token, in bits. From 0 to 100.
    public var mirostatTau: Double?
    /// Learning rate of mirostat. From 0 to 1.
    public var mirostatEta: Double?
    /// Above 0, penalizes a token that would extend a repetition, more for a longer one. From 0
    /// to 100.
    public var dryMultiplier: Double?
    /// Growth of the penalty with the repetition's length. From 1 to 100.
    public var dryBase: Double?
    /// Longest repetition without a penalty.
    public var dryAllowedLength: Int?
    /// Window of the penalty in tokens; -1 = all.
    public var dryPenaltyLastN: Int?
    /// A repetition does not extend over a token that contains one of these.
    public var drySequenceBreakers: [String]?
    /// Accepted; never affects an answer.
    public var maxToolCalls: JSONValue?
    /// Accepted; never affects an answer.
    public var user: JSONValue?
    /// Accepted; never affects an answer.
    public var safetyIdentifier: JSONValue?
    /// Accepted; never affects an answer.
    public var serviceTier: JSONValue?
    /// Accepted; never affects an answer.
    public var promptCacheKey: JSONValue?
    /// Accepted; never affects an answer.
    public var promptCacheOptions: JSONValue?
    /// Accepted; never affects an answer.
    public var promptCacheRetention: JSONValue?
    /// Accepted; never affects an answer.
    public var clientMetadata: JSONValue?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        model: String? = nil,
        input: ResponsesInput? = nil,
        instructions: String? = nil,
        previousResponseId: String? = nil,
        tools: [JSONValue]? = nil,
        toolChoice: JSONValue? = nil,
        parallelToolCalls: Bool? = nil,
        reasoning: ResponsesReasoning? = nil,
        text: ResponsesTextConfig? = nil,
        maxOutputTokens: Int? = nil,
        stream: Bool? = nil,
        streamOptions: JSONValue? = nil,
        store: Bool? = nil,
        metadata: JSONValue? = nil,
        include: [Include]? = nil,
        topLogprobs: Int? = nil,
        temperature: Double? = nil,
        topP: Double? = nil,
        topK: Int? = nil,
        minP: Double? = nil,
        seed: Int? = nil,
        stop: Stop? = nil,
        includeStopStrInOutput: Bool? = nil,
        ignoreEos: Bool? = nil,
        minTokens: Int? = nil,
        stopTokenIds: [Int]? = nil,
        frequencyPenalty: Double? = nil,
        presencePenalty: Double? = nil,
        repetitionPenalty: Double? = nil,
        repeatPenalty: Double? = nil,
        repeatLastN: Int? = nil,
        logitBias: [Int: Double]? = nil,
        badWords: [String]? = nil,
        topNSigma: Double? = nil,
        typicalP: Double? = nil,
        epsilonCutoff: Double? = nil,
        etaCutoff: Double? = nil,
        xtcProbability: Double? = nil,
        xtcThreshold: Double? = nil,
        dynatempRange: Double? = nil,
        dynatempExponent: Double? = nil,
        mirostat: Int? = nil,
        mirostatTau: Double? = nil,
        mirostatEta: Double? = nil,
        dryMultiplier: Double? = nil,
        dryBase: Double? = nil,
        dryAllowedLength: Int? = nil,
        dryPenaltyLastN: Int? = nil,
        drySequenceBreakers: [String]? = nil,
        maxToolCalls: JSONValue? = nil,
        user: JSONValue? = nil,
        safetyIdentifier: JSONValue? = nil,
        serviceTier: JSONValue? = nil,
        promptCacheKey: JSONValue? = nil,
        promptCacheOptions: JSONValue? = nil,
        promptCacheRetention: JSONValue? = nil,
        clientMetadata: JSONValue? = nil
    ) {
        self.model = model
        self.input = input
        self.instructions = instructions
        self.previousResponseId = previousResponseId
        self.tools = tools
        self.toolChoice = toolChoice
        self.parallelToolCalls = parallelToolCalls
        self.reasoning = reasoning
        self.text = text
        self.maxOutputTokens = maxOutputTokens
        self.stream = stream
        self.streamOptions = streamOptions
        self.store = store
        self.metadata = metadata
        self.include = include
        self.topLogprobs = topLogprobs
        self.temperature = temperature
        self.topP = topP
        self.topK = topK
        self.minP = minP
        self.seed = seed
        self.stop = stop
        self.includeStopStrInOutput = includeStopStrInOutput
        self.ignoreEos = ignoreEos
        self.minTokens = minTokens
        self.stopTokenIds = stopTokenIds
        self.frequencyPenalty = frequencyPenalty
        self.presencePenalty = presencePenalty
        self.repetitionPenalty = repetitionPenalty
        self.repeatPenalty = repeatPenalty
        self.repeatLastN = repeatLastN
        self.logitBias = logitBias
        self.badWords = badWords
        self.topNSigma = topNSigma
        self.typicalP = typicalP
        self.epsilonCutoff = epsilonCutoff
        self.etaCutoff = etaCutoff
        self.xtcProbability = xtcProbability
        self.xtcThreshold = xtcThreshold
        self.dynatempRange = dynatempRange
        self.dynatempExponent = dynatempExponent
        self.mirostat = mirostat
        self.mirostatTau = mirostatTau
        self.mirostatEta = mirostatEta
        self.dryMultiplier = dryMultiplier
        self.dryBase = dryBase
        self.dryAllowedLength = dryAllowedLength
        self.dryPenaltyLastN = dryPenaltyLastN
        self.drySequenceBreakers = drySequenceBreakers
        self.maxToolCalls = maxToolCalls
        self.user = user
        self.safetyIdentifier = safetyIdentifier
        self.serviceTier = serviceTier
        self.promptCacheKey = promptCacheKey
        self.promptCacheOptions = promptCacheOptions
        self.promptCacheRetention = promptCacheRetention
        self.clientMetadata = clientMetadata
    }

    enum CodingKeys: String, CodingKey {
        case model
        case input
        case instructions
        case previousResponseId = "previous_response_id"
        case tools
        case toolChoice = "tool_choice"
        case parallelToolCalls = "parallel_tool_calls"
        case reasoning
        case text
        case maxOutputTokens = "max_output_tokens"
        case stream
        case streamOptions = "stream_options"
        case store
        case metadata
        case include
        case topLogprobs = "top_logprobs"
        case temperature
        case topP = "top_p"
        case topK = "top_k"
        case minP = "min_p"
        case seed
        case stop
        case includeStopStrInOutput = "include_stop_str_in_output"
        case ignoreEos = "ignore_eos"
        case minTokens = "min_tokens"
        case stopTokenIds = "stop_token_ids"
        case frequencyPenalty = "frequency_penalty"
        case presencePenalty = "presence_penalty"
        case repetitionPenalty = "repetition_penalty"
        case repeatPenalty = "repeat_penalty"
        case repeatLastN = "repeat_last_n"
        case logitBias = "logit_bias"
        case badWords = "bad_words"
        case topNSigma = "top_n_sigma"
        case typicalP = "typical_p"
        case epsilonCutoff = "epsilon_cutoff"
        case etaCutoff = "eta_cutoff"
        case xtcProbability = "xtc_probability"
        case xtcThreshold = "xtc_threshold"
        case dynatempRange = "dynatemp_range"
        case dynatempExponent = "dynatemp_exponent"
        case mirostat
        case mirostatTau = "mirostat_tau"
        case mirostatEta = "mirostat_eta"
        case dryMultiplier = "dry_multiplier"
        case dryBase = "dry_base"
        case dryAllowedLength = "dry_allowed_length"
        case dryPenaltyLastN = "dry_penalty_last_n"
        case drySequenceBreakers = "dry_sequence_breakers"
        case maxToolCalls = "max_tool_calls"
        case user
        case safetyIdentifier = "safety_identifier"
        case serviceTier = "service_tier"
        case promptCacheKey = "prompt_cache_key"
        case promptCacheOptions = "prompt_cache_options"
        case promptCacheRetention = "prompt_cache_retention"
        case clientMetadata = "client_metadata"
    }
}

/// Numbers, or base64 of little-endian float32, by `encoding_format`.
public enum EmbeddingVector: Codable, Equatable, Sendable {
    /// Numbers.
    case numbers([Double])
    /// One text.
    case text(String)

    /// Reads the first type that fits.
    public init(from decoder: any Decoder) throws {
        let box = try decoder.singleValueContainer()
        if let value = try? box.decode([Double].self) {
            self = .numbers(value)
            return
        }
        if let value = try? box.decode(String.self) {
            self = .text(value)
            return
        }
        throw DecodingError.dataCorruptedError(
            in: box, debugDescription: "no type of EmbeddingVector fits the JSON")
    }

    /// Writes the value alone, without the case.
    public func encode(to encoder: any Encoder) throws {
        var box = encoder.singleValueContainer()
        switch self {
        case .numbers(let value): try box.encode(value)
        case .text(let value): try box.encode(value)
        }
    }
}

extension EmbeddingVector: ExpressibleByStringLiteral {
    /// A text.
    public init(stringLiteral value: String) { self = .text(value) }
}

/// stop = the model ended its answer, or a stop string matched; length = the token limit or the
/// context was reached; tool_calls = it ended with tool calls.
public struct FinishReason: RawRepresentable, Codable, Hashable, Sendable {
    /// The word in JSON; a later version may have others than these.
    public let rawValue: String

    /// The value of a word.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `stop`
    public static let stop = FinishReason(rawValue: "stop")
    /// `length`
    public static let length = FinishReason(rawValue: "length")
    /// `tool_calls`
    public static let toolCalls = FinishReason(rawValue: "tool_calls")
}

/// Breakdown of the prompts' tokens.
public struct PromptTokensDetails: Codable, Equatable, Sendable {
    /// Tokens that the prefix cache had.
    public var cachedTokens: Int
    /// Tokens that stand for images, which `prompt_tokens` counts; present if there are any.
    public var imageTokens: Int?
    /// The same of sound.
    public var audioTokens: Int?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        cachedTokens: Int,
        imageTokens: Int? = nil,
        audioTokens: Int? = nil
    ) {
        self.cachedTokens = cachedTokens
        self.imageTokens = imageTokens
        self.audioTokens = audioTokens
    }

    enum CodingKeys: String, CodingKey {
        case cachedTokens = "cached_tokens"
        case imageTokens = "image_tokens"
        case audioTokens = "audio_tokens"
    }
}

/// Tokens of the reasoning, and draft tokens (`--speculate`, `prediction`); what there was.
public struct CompletionTokensDetails: Codable, Equatable, Sendable {
    /// Tokens between the marks of the reasoning.
    public var reasoningTokens: Int?
    /// Draft tokens that became a part of the answers.
    public var acceptedPredictionTokens: Int?
    /// Rejected draft tokens; they are not in `completion_tokens`.
    public var rejectedPredictionTokens: Int?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        reasoningTokens: Int? = nil,
        acceptedPredictionTokens: Int? = nil,
        rejectedPredictionTokens: Int? = nil
    ) {
        self.reasoningTokens = reasoningTokens
        self.acceptedPredictionTokens = acceptedPredictionTokens
        self.rejectedPredictionTokens = rejectedPredictionTokens
    }

    enum CodingKeys: String, CodingKey {
        case reasoningTokens = "reasoning_tokens"
        case acceptedPredictionTokens = "accepted_prediction_tokens"
        case rejectedPredictionTokens = "rejected_prediction_tokens"
    }
}

/// Token counts of all answers of a request together.
public struct Usage: Codable, Equatable, Sendable {
    /// `prompt_tokens`.
    public var promptTokens: Int
    /// `completion_tokens`.
    public var completionTokens: Int
    /// `total_tokens`.
    public var totalTokens: Int
    /// `prompt_tokens_details`.
    public var promptTokensDetails: PromptTokensDetails
    /// Present if there was reasoning, or tokens were drafted.
    public var completionTokensDetails: CompletionTokensDetails?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        promptTokens: Int,
        completionTokens: Int,
        totalTokens: Int,
        promptTokensDetails: PromptTokensDetails,
        completionTokensDetails: CompletionTokensDetails? = nil
    ) {
        self.promptTokens = promptTokens
        self.completionTokens = completionTokens
        self.totalTokens = totalTokens
        self.promptTokensDetails = promptTokensDetails
        self.completionTokensDetails = completionTokensDetails
    }

    enum CodingKeys: String, CodingKey {
        case promptTokens = "prompt_tokens"
        case completionTokens = "completion_tokens"
        case totalTokens = "total_tokens"
        case promptTokensDetails = "prompt_tokens_details"
        case completionTokensDetails = "completion_tokens_details"
    }
}

/// Name and arguments of a call.
public struct FunctionCall: Codable, Equatable, Sendable {
    /// `name`.
    public var name: String
    /// JSON text of an object.
    public var arguments: String

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        name: String,
        arguments: String
    ) {
        self.name = name
        self.arguments = arguments
    }

    enum CodingKeys: String, CodingKey {
        case name
        case arguments
    }
}

/// A tool call by the model.
public struct ToolCall: Codable, Equatable, Sendable {
    /// The id that the tool's message refers to.
    public var id: String
    /// `function`.
    public var function: FunctionCall

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        id: String,
        function: FunctionCall
    ) {
        self.id = id
        self.function = function
    }

    enum CodingKeys: String, CodingKey {
        case id
        case function
    }
}

/// The answer of a chat.
public struct AssistantMessage: Codable, Equatable, Sendable {
    /// null beside `tool_calls` if there is no text.
    public var content: String?
    /// The model's reasoning, if it was separated from the answer.
    public var reasoningContent: String?
    /// Tool calls, if there are any.
    public var toolCalls: [ToolCall]?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        content: String? = nil,
        reasoningContent: String? = nil,
        toolCalls: [ToolCall]? = nil
    ) {
        self.content = content
        self.reasoningContent = reasoningContent
        self.toolCalls = toolCalls
    }

    enum CodingKeys: String, CodingKey {
        case content
        case reasoningContent = "reasoning_content"
        case toolCalls = "tool_calls"
    }
}

/// A token and its log-probability, from the logits after penalties and biases, before
/// temperature and filters.
public struct ChatToken: Codable, Equatable, Sendable {
    /// Its text, with U+FFFD for a part of a character.
    public var token: String
    /// Natural logarithm; -9999 is the minimum.
    public var logprob: Double
    /// UTF-8 bytes of its text, or of its part of a character; null if they are not known.
    public var bytes: [Int]?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        token: String,
        logprob: Double,
        bytes: [Int]? = nil
    ) {
        self.token = token
        self.logprob = logprob
        self.bytes = bytes
    }

    enum CodingKeys: String, CodingKey {
        case token
        case logprob
        case bytes
    }
}

/// A token of an answer.
public struct ChatTokenLogprob: Codable, Equatable, Sendable {
    /// The likeliest tokens at its position, likeliest first, without control tokens.
    public var topLogprobs: [ChatToken]
    /// Its text, with U+FFFD for a part of a character.
    public var token: String
    /// Natural logarithm; -9999 is the minimum.
    public var logprob: Double
    /// UTF-8 bytes of its text, or of its part of a character; null if they are not known.
    public var bytes: [Int]?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        topLogprobs: [ChatToken],
        token: String,
        logprob: Double,
        bytes: [Int]? = nil
    ) {
        self.topLogprobs = topLogprobs
        self.token = token
        self.logprob = logprob
        self.bytes = bytes
    }

    enum CodingKeys: String, CodingKey {
        case topLogprobs = "top_logprobs"
        case token
        case logprob
        case bytes
    }
}

/// Log-probabilities of the tokens of the text beside it, without what stop strings cut off.
public struct ChatLogprobs: Codable, Equatable, Sendable {
    /// `content`.
    public var content: [ChatTokenLogprob]

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        content: [ChatTokenLogprob]
    ) {
        self.content = content
    }

    enum CodingKeys: String, CodingKey {
        case content
    }
}

/// One answer of a chat completion.
public struct ChatChoice: Codable, Equatable, Sendable {
    /// `index`.
    public var index: Int
    /// `message`.
    public var message: AssistantMessage
    /// If the request has `logprobs`.
    public var logprobs: ChatLogprobs?
    /// `finish_reason`.
    public var finishReason: FinishReason

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        index: Int,
        message: AssistantMessage,
        logprobs: ChatLogprobs? = nil,
        finishReason: FinishReason
    ) {
        self.index = index
        self.message = message
        self.logprobs = logprobs
        self.finishReason = finishReason
    }

    enum CodingKeys: String, CodingKey {
        case index
        case message
        case logprobs
        case finishReason = "finish_reason"
    }
}

/// A whole answer of /v1/chat/completions.
public struct ChatCompletion: Codable, Equatable, Sendable {
    /// `id`.
    public var id: String
    /// Seconds since 1970.
    public var created: Int
    /// `model`.
    public var model: String
    /// `choices`.
    public var choices: [ChatChoice]
    /// `usage`.
    public var usage: Usage
    /// Identifies the artifact: it changes only if its files change.
    public var systemFingerprint: String?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        id: String,
        created: Int,
        model: String,
        choices: [ChatChoice],
        usage: Usage,
        systemFingerprint: String? = nil
    ) {
        self.id = id
        self.created = created
        self.model = model
        self.choices = choices
        self.usage = usage
        self.systemFingerprint = systemFingerprint
    }

    enum CodingKeys: String, CodingKey {
        case id
        case created
        case model
        case choices
        case usage
        case systemFingerprint = "system_fingerprint"
    }
}

/// Parts of a name and of arguments that a chunk adds.
public struct FunctionDelta: Codable, Equatable, Sendable {
    /// `name`.
    public var name: String?
    /// `arguments`.
    public var arguments: String?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        name: String? = nil,
        arguments: String? = nil
    ) {
        self.name = name
        self.arguments = arguments
    }

    enum CodingKeys: String, CodingKey {
        case name
        case arguments
    }
}

/// What a chunk adds to a call: first its id and name, then its arguments.
public struct ToolCallDelta: Codable, Equatable, Sendable {
    /// Number of the call in the answer.
    public var index: Int
    /// `function`.
    public var function: FunctionDelta
    /// `id`.
    public var id: String?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        index: Int,
        function: FunctionDelta,
        id: String? = nil
    ) {
        self.index = index
        self.function = function
        self.id = id
    }

    enum CodingKeys: String, CodingKey {
        case index
        case function
        case id
    }
}

/// What a chunk adds to the answer; the first one names the role, the last one is empty.
public struct ChatDelta: Codable, Equatable, Sendable {
    /// `content`.
    public var content: String?
    /// `reasoning_content`.
    public var reasoningContent: String?
    /// `tool_calls`.
    public var toolCalls: [ToolCallDelta]?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        content: String? = nil,
        reasoningContent: String? = nil,
        toolCalls: [ToolCallDelta]? = nil
    ) {
        self.content = content
        self.reasoningContent = reasoningContent
        self.toolCalls = toolCalls
    }

    enum CodingKeys: String, CodingKey {
        case content
        case reasoningContent = "reasoning_content"
        case toolCalls = "tool_calls"
    }
}

/// A piece of one answer of a chat completion.
public struct ChatChunkChoice: Codable, Equatable, Sendable {
    /// `index`.
    public var index: Int
    /// `delta`.
    public var delta: ChatDelta
    /// If the request has `logprobs`, beside text.
    public var logprobs: ChatLogprobs?
    /// Why the answer ended, in its last chunk.
    public var finishReason: FinishReason?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        index: Int,
        delta: ChatDelta,
        logprobs: ChatLogprobs? = nil,
        finishReason: FinishReason? = nil
    ) {
        self.index = index
        self.delta = delta
        self.logprobs = logprobs
        self.finishReason = finishReason
    }

    enum CodingKeys: String, CodingKey {
        case index
        case delta
        case logprobs
        case finishReason = "finish_reason"
    }
}

/// A server-sent event of /v1/chat/completions.
public struct ChatCompletionChunk: Codable, Equatable, Sendable {
    /// `id`.
    public var id: String
    /// `created`.
    public var created: Int
    /// `model`.
    public var model: String
    /// `choices`.
    public var choices: [ChatChunkChoice]
    /// Identifies the artifact: it changes only if its files change.
    public var systemFingerprint: String?
    /// With `stream_options.include_usage`: in a last chunk without choices, null before.
    public var usage: Usage?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        id: String,
        created: Int,
        model: String,
        choices: [ChatChunkChoice],
        systemFingerprint: String? = nil,
        usage: Usage? = nil
    ) {
        self.id = id
        self.created = created
        self.model = model
        self.choices = choices
        self.systemFingerprint = systemFingerprint
        self.usage = usage
    }

    enum CodingKeys: String, CodingKey {
        case id
        case created
        case model
        case choices
        case systemFingerprint = "system_fingerprint"
        case usage
    }
}

/// Log-probabilities of the tokens of the text beside it, with `echo` those of the prompt
/// before them; what stop strings cut off is left out.
public struct CompletionLogprobs: Codable, Equatable, Sendable {
    /// Texts of the tokens; a part of a character is written `bytes:\xe2`.
    public var tokens: [String]
    /// Natural logarithms, from the logits after penalties and biases, before temperature and
    /// filters. -9999 is the minimum; null for a prompt's first token.
    public var tokenLogprobs: [Double?]
    /// The likeliest tokens at each position by their texts, and the token itself.
    public var topLogprobs: [[String: Double]?]
    /// Where each token begins: number of code points of text before it.
    public var textOffset: [Int]

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        tokens: [String],
        tokenLogprobs: [Double?],
        topLogprobs: [[String: Double]?],
        textOffset: [Int]
    ) {
        self.tokens = tokens
        self.tokenLogprobs = tokenLogprobs
        self.topLogprobs = topLogprobs
        self.textOffset = textOffset
    }

    enum CodingKeys: String, CodingKey {
        case tokens
        case tokenLogprobs = "token_logprobs"
        case topLogprobs = "top_logprobs"
        case textOffset = "text_offset"
    }
}

/// The answer to one prompt; `index` is the prompt's number.
public struct CompletionChoice: Codable, Equatable, Sendable {
    /// `index`.
    public var index: Int
    /// `text`.
    public var text: String
    /// If the request has `logprobs`.
    public var logprobs: CompletionLogprobs?
    /// `finish_reason`.
    public var finishReason: FinishReason

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        index: Int,
        text: String,
        logprobs: CompletionLogprobs? = nil,
        finishReason: FinishReason
    ) {
        self.index = index
        self.text = text
        self.logprobs = logprobs
        self.finishReason = finishReason
    }

    enum CodingKeys: String, CodingKey {
        case index
        case text
        case logprobs
        case finishReason = "finish_reason"
    }
}

/// A whole answer of /v1/completions, one choice per prompt.
public struct Completion: Codable, Equatable, Sendable {
    /// `id`.
    public var id: String
    /// Seconds since 1970.
    public var created: Int
    /// `model`.
    public var model: String
    /// `choices`.
    public var choices: [CompletionChoice]
    /// `usage`.
    public var usage: Usage
    /// Identifies the artifact: it changes only if its files change.
    public var systemFingerprint: String?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        id: String,
        created: Int,
        model: String,
        choices: [CompletionChoice],
        usage: Usage,
        systemFingerprint: String? = nil
    ) {
        self.id = id
        self.created = created
        self.model = model
        self.choices = choices
        self.usage = usage
        self.systemFingerprint = systemFingerprint
    }

    enum CodingKeys: String, CodingKey {
        case id
        case created
        case model
        case choices
        case usage
        case systemFingerprint = "system_fingerprint"
    }
}

/// A piece of the answer to one prompt.
public struct CompletionChunkChoice: Codable, Equatable, Sendable {
    /// `index`.
    public var index: Int
    /// `text`.
    public var text: String
    /// If the request has `logprobs`.
    public var logprobs: CompletionLogprobs?
    /// Why the answer ended, in its last chunk.
    public var finishReason: FinishReason?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        index: Int,
        text: String,
        logprobs: CompletionLogprobs? = nil,
        finishReason: FinishReason? = nil
    ) {
        self.index = index
        self.text = text
        self.logprobs = logprobs
        self.finishReason = finishReason
    }

    enum CodingKeys: String, CodingKey {
        case index
        case text
        case logprobs
        case finishReason = "finish_reason"
    }
}

/// A server-sent event of /v1/completions; those of several prompts are interleaved.
public struct CompletionChunk: Codable, Equatable, Sendable {
    /// `id`.
    public var id: String
    /// `created`.
    public var created: Int
    /// `model`.
    public var model: String
    /// `choices`.
    public var choices: [CompletionChunkChoice]
    /// Identifies the artifact: it changes only if its files change.
    public var systemFingerprint: String?
    /// With `stream_options.include_usage`: in a last chunk without choices, null before.
    public var usage: Usage?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        id: String,
        created: Int,
        model: String,
        choices: [CompletionChunkChoice],
        systemFingerprint: String? = nil,
        usage: Usage? = nil
    ) {
        self.id = id
        self.created = created
        self.model = model
        self.choices = choices
        self.systemFingerprint = systemFingerprint
        self.usage = usage
    }

    enum CodingKeys: String, CodingKey {
        case id
        case created
        case model
        case choices
        case systemFingerprint = "system_fingerprint"
        case usage
    }
}

/// loaded = ready; loading = requests wait for it; unloaded = the next request loads it;
/// sleeping = out of memory until /wake_up.
public struct ModelState: RawRepresentable, Codable, Hashable, Sendable {
    /// The word in JSON; a later version may have others than these.
    public let rawValue: String

    /// The value of a word.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `loaded`
    public static let loaded = ModelState(rawValue: "loaded")
    /// `loading`
    public static let loading = ModelState(rawValue: "loading")
    /// `unloaded`
    public static let unloaded = ModelState(rawValue: "unloaded")
    /// `sleeping`
    public static let sleeping = ModelState(rawValue: "sleeping")
}

/// Bounds in pixels: a model reads nothing more of an image that is larger than any of them.
public struct ImageSize: Codable, Equatable, Sendable {
    /// `longest_edge`.
    public var longestEdge: Int?
    /// `shortest_edge`.
    public var shortestEdge: Int?
    /// Width times height.
    public var maxPixels: Int?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        longestEdge: Int? = nil,
        shortestEdge: Int? = nil,
        maxPixels: Int? = nil
    ) {
        self.longestEdge = longestEdge
        self.shortestEdge = shortestEdge
        self.maxPixels = maxPixels
    }

    enum CodingKeys: String, CodingKey {
        case longestEdge = "longest_edge"
        case shortestEdge = "shortest_edge"
        case maxPixels = "max_pixels"
    }
}

/// Permissions that clients of vLLM read, as OpenAI's API listed them: equal for all models.
public struct ModelPermission: Codable, Equatable, Sendable {
    /// `id`.
    public var id: String
    /// `created`.
    public var created: Int
    /// `allow_create_engine`.
    public var allowCreateEngine: Bool
    /// `allow_sampling`.
    public var allowSampling: Bool
    /// `allow_logprobs`.
    public var allowLogprobs: Bool
    /// `allow_search_indices`.
    public var allowSearchIndices: Bool
    /// `allow_view`.
    public var allowView: Bool
    /// `allow_fine_tuning`.
    public var allowFineTuning: Bool
    /// `organization`.
    public var organization: String
    /// `group`.
    public var group: String?
    /// `is_blocking`.
    public var isBlocking: Bool

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        id: String,
        created: Int,
        allowCreateEngine: Bool,
        allowSampling: Bool,
        allowLogprobs: Bool,
        allowSearchIndices: Bool,
        allowView: Bool,
        allowFineTuning: Bool,
        organization: String,
        group: String? = nil,
        isBlocking: Bool
    ) {
        self.id = id
        self.created = created
        self.allowCreateEngine = allowCreateEngine
        self.allowSampling = allowSampling
        self.allowLogprobs = allowLogprobs
        self.allowSearchIndices = allowSearchIndices
        self.allowView = allowView
        self.allowFineTuning = allowFineTuning
        self.organization = organization
        self.group = group
        self.isBlocking = isBlocking
    }

    enum CodingKeys: String, CodingKey {
        case id
        case created
        case allowCreateEngine = "allow_create_engine"
        case allowSampling = "allow_sampling"
        case allowLogprobs = "allow_logprobs"
        case allowSearchIndices = "allow_search_indices"
        case allowView = "allow_view"
        case allowFineTuning = "allow_fine_tuning"
        case organization
        case group
        case isBlocking = "is_blocking"
    }
}

/// One entry of /v1/models.
public struct Model: Codable, Equatable, Sendable {
    /// `id`.
    public var id: String
    /// `created`.
    public var created: Int
    /// A model that is not loaded is loaded on demand.
    public var state: ModelState
    /// Longest prompt and answer together, in tokens.
    public var contextLength: Int
    /// The same number under vLLM's name.
    public var maxModelLen: Int
    /// Other names of the model.
    public var aliases: [String]
    /// Planned memory while it is loaded; null if there is no plan.
    public var memoryBytes: Int?
    /// Requests waiting or being answered.
    public var requests: Int
    /// The base model of an adapter (LoRA).
    public var parent: String?
    /// The model that computes the answers: itself, or an adapter's base model.
    public var root: String
    /// `permission`.
    public var permission: [ModelPermission]
    /// Share of the model's bytes that have been read, 0 to 1; null unless it is being loaded.
    public var progress: Double?
    /// Values of a request without its own: temperature, top_p, ...; empty for an encoder.
    public var defaultSampling: [String: Double]
    /// Of a model that sees or hears: text, and image or audio.
    public var inputModalities: [String]?
    /// Of a model that sees: clients may scale larger images down to it.
    public var imageSize: ImageSize?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        id: String,
        created: Int,
        state: ModelState,
        contextLength: Int,
        maxModelLen: Int,
        aliases: [String],
        memoryBytes: Int? = nil,
        requests: Int,
        parent: String? = nil,
        root: String,
        permission: [ModelPermission],
        progress: Double? = nil,
        defaultSampling: [String: Double],
        inputModalities: [String]? = nil,
        imageSize: ImageSize? = nil
    ) {
        self.id = id
        self.created = created
        self.state = state
        self.contextLength = contextLength
        self.maxModelLen = maxModelLen
        self.aliases = aliases
        self.memoryBytes = memoryBytes
        self.requests = requests
        self.parent = parent
        self.root = root
        self.permission = permission
        self.progress = progress
        self.defaultSampling = defaultSampling
        self.inputModalities = inputModalities
        self.imageSize = imageSize
    }

    enum CodingKeys: String, CodingKey {
        case id
        case created
        case state
        case contextLength = "context_length"
        case maxModelLen = "max_model_len"
        case aliases
        case memoryBytes = "memory_bytes"
        case requests
        case parent
        case root
        case permission
        case progress
        case defaultSampling = "default_sampling"
        case inputModalities = "input_modalities"
        case imageSize = "image_size"
    }
}

/// The answer of /v1/models.
public struct ModelList: Codable, Equatable, Sendable {
    /// `data`.
    public var data: [Model]

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        data: [Model]
    ) {
        self.data = data
    }

    enum CodingKeys: String, CodingKey {
        case data
    }
}

/// Token counts of all texts of a request together.
public struct EncoderUsage: Codable, Equatable, Sendable {
    /// `prompt_tokens`.
    public var promptTokens: Int
    /// `total_tokens`.
    public var totalTokens: Int

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        promptTokens: Int,
        totalTokens: Int
    ) {
        self.promptTokens = promptTokens
        self.totalTokens = totalTokens
    }

    enum CodingKeys: String, CodingKey {
        case promptTokens = "prompt_tokens"
        case totalTokens = "total_tokens"
    }
}

/// The embedding of one text.
public struct Embedding: Codable, Equatable, Sendable {
    /// `index`.
    public var index: Int
    /// Numbers, or base64 of little-endian float32, by `encoding_format`.
    public var embedding: EmbeddingVector

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        index: Int,
        embedding: EmbeddingVector
    ) {
        self.index = index
        self.embedding = embedding
    }

    enum CodingKeys: String, CodingKey {
        case index
        case embedding
    }
}

/// The answer of /v1/embeddings, in the order of the texts.
public struct EmbeddingList: Codable, Equatable, Sendable {
    /// `data`.
    public var data: [Embedding]
    /// `model`.
    public var model: String
    /// `usage`.
    public var usage: EncoderUsage

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        data: [Embedding],
        model: String,
        usage: EncoderUsage
    ) {
        self.data = data
        self.model = model
        self.usage = usage
    }

    enum CodingKeys: String, CodingKey {
        case data
        case model
        case usage
    }
}

/// What is counted of a recording.
public struct AudioUsage: Codable, Equatable, Sendable {
    /// `seconds`.
    public var seconds: Int

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        seconds: Int
    ) {
        self.seconds = seconds
    }

    enum CodingKeys: String, CodingKey {
        case seconds
    }
}

/// A part of a transcript between two of the model's timestamps; times are in seconds.
public struct TranscriptionSegment: Codable, Equatable, Sendable {
    /// `id`.
    public var id: Int
    /// The frame, of 10 ms, at which its window begins.
    public var seek: Int
    /// `start`.
    public var start: Double
    /// `end`.
    public var end: Double
    /// `text`.
    public var text: String
    /// `tokens`.
    public var tokens: [Int]
    /// The mean of its window's tokens.
    public var avgLogprob: Double
    /// `compression_ratio`.
    public var compressionRatio: Double
    /// At which its window was transcribed.
    public var temperature: Double

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        id: Int,
        seek: Int,
        start: Double,
        end: Double,
        text: String,
        tokens: [Int],
        avgLogprob: Double,
        compressionRatio: Double,
        temperature: Double
    ) {
        self.id = id
        self.seek = seek
        self.start = start
        self.end = end
        self.text = text
        self.tokens = tokens
        self.avgLogprob = avgLogprob
        self.compressionRatio = compressionRatio
        self.temperature = temperature
    }

    enum CodingKeys: String, CodingKey {
        case id
        case seek
        case start
        case end
        case text
        case tokens
        case avgLogprob = "avg_logprob"
        case compressionRatio = "compression_ratio"
        case temperature
    }
}

/// A word of a transcript, with its times in seconds.
public struct TranscriptionWord: Codable, Equatable, Sendable {
    /// `word`.
    public var word: String
    /// `start`.
    public var start: Double
    /// `end`.
    public var end: Double

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        word: String,
        start: Double,
        end: Double
    ) {
        self.word = word
        self.start = start
        self.end = end
    }

    enum CodingKeys: String, CodingKey {
        case word
        case start
        case end
    }
}

/// The answer of /v1/audio/transcriptions and /translations in the formats json and
/// verbose_json.
public struct Transcription: Codable, Equatable, Sendable {
    /// `text`.
    public var text: String
    /// `usage`.
    public var usage: AudioUsage
    /// transcribe or translate, as all below in the format verbose_json.
    public var task: String?
    /// `language`.
    public var language: String?
    /// Seconds of the recording.
    public var duration: Double?
    /// `segments`.
    public var segments: [TranscriptionSegment]?
    /// If `timestamp_granularities` asks for them.
    public var words: [TranscriptionWord]?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        text: String,
        usage: AudioUsage,
        task: String? = nil,
        language: String? = nil,
        duration: Double? = nil,
        segments: [TranscriptionSegment]? = nil,
        words: [TranscriptionWord]? = nil
    ) {
        self.text = text
        self.usage = usage
        self.task = task
        self.language = language
        self.duration = duration
        self.segments = segments
        self.words = words
    }

    enum CodingKeys: String, CodingKey {
        case text
        case usage
        case task
        case language
        case duration
        case segments
        case words
    }
}

/// A server-sent event of a transcript.
public struct TranscriptEvent: Codable, Equatable, Sendable {
    /// transcript.text.delta, or transcript.text.done at the end.
    public var type: String
    /// A part of the text, in transcript.text.delta.
    public var delta: String?
    /// All of it, in transcript.text.done.
    public var text: String?
    /// `usage`.
    public var usage: AudioUsage?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: String,
        delta: String? = nil,
        text: String? = nil,
        usage: AudioUsage? = nil
    ) {
        self.type = type
        self.delta = delta
        self.text = text
        self.usage = usage
    }

    enum CodingKeys: String, CodingKey {
        case type
        case delta
        case text
        case usage
    }
}

/// The score of one pair of texts.
public struct Score: Codable, Equatable, Sendable {
    /// `index`.
    public var index: Int
    /// `score`.
    public var score: Double

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        index: Int,
        score: Double
    ) {
        self.index = index
        self.score = score
    }

    enum CodingKeys: String, CodingKey {
        case index
        case score
    }
}

/// The answer of /v1/score.
public struct ScoreList: Codable, Equatable, Sendable {
    /// `id`.
    public var id: String
    /// `created`.
    public var created: Int
    /// `model`.
    public var model: String
    /// `data`.
    public var data: [Score]
    /// `usage`.
    public var usage: EncoderUsage

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        id: String,
        created: Int,
        model: String,
        data: [Score],
        usage: EncoderUsage
    ) {
        self.id = id
        self.created = created
        self.model = model
        self.data = data
        self.usage = usage
    }

    enum CodingKeys: String, CodingKey {
        case id
        case created
        case model
        case data
        case usage
    }
}

/// The class of one text.
public struct Classified: Codable, Equatable, Sendable {
    /// `index`.
    public var index: Int
    /// The likeliest class.
    public var label: String
    /// The probability of each class, in the model's order.
    public var probs: [Double]
    /// `num_classes`.
    public var numClasses: Int

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        index: Int,
        label: String,
        probs: [Double],
        numClasses: Int
    ) {
        self.index = index
        self.label = label
        self.probs = probs
        self.numClasses = numClasses
    }

    enum CodingKeys: String, CodingKey {
        case index
        case label
        case probs
        case numClasses = "num_classes"
    }
}

/// The answer of /classify.
public struct ClassList: Codable, Equatable, Sendable {
    /// `id`.
    public var id: String
    /// `created`.
    public var created: Int
    /// `model`.
    public var model: String
    /// `data`.
    public var data: [Classified]
    /// `usage`.
    public var usage: EncoderUsage

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        id: String,
        created: Int,
        model: String,
        data: [Classified],
        usage: EncoderUsage
    ) {
        self.id = id
        self.created = created
        self.model = model
        self.data = data
        self.usage = usage
    }

    enum CodingKeys: String, CodingKey {
        case id
        case created
        case model
        case data
        case usage
    }
}

/// A document, as it was sent.
public struct RankedText: Codable, Equatable, Sendable {
    /// `text`.
    public var text: String

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        text: String
    ) {
        self.text = text
    }

    enum CodingKeys: String, CodingKey {
        case text
    }
}

/// Rank of one document.
public struct Ranked: Codable, Equatable, Sendable {
    /// Index among the documents of the request.
    public var index: Int
    /// `relevance_score`.
    public var relevanceScore: Double
    /// Unless `return_documents` was false.
    public var document: RankedText?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        index: Int,
        relevanceScore: Double,
        document: RankedText? = nil
    ) {
        self.index = index
        self.relevanceScore = relevanceScore
        self.document = document
    }

    enum CodingKeys: String, CodingKey {
        case index
        case relevanceScore = "relevance_score"
        case document
    }
}

/// The answer of /v1/rerank: the best document first.
public struct Ranking: Codable, Equatable, Sendable {
    /// `id`.
    public var id: String
    /// `model`.
    public var model: String
    /// `usage`.
    public var usage: EncoderUsage
    /// `results`.
    public var results: [Ranked]

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        id: String,
        model: String,
        usage: EncoderUsage,
        results: [Ranked]
    ) {
        self.id = id
        self.model = model
        self.usage = usage
        self.results = results
    }

    enum CodingKeys: String, CodingKey {
        case id
        case model
        case usage
        case results
    }
}

/// Message, type, field and code of an error.
public struct ErrorObject: Codable, Equatable, Sendable {
    /// What happened, why, and what to do next.
    public var message: String
    /// invalid_request_error, or server_error.
    public var type: String
    /// The field of the request that is wrong.
    public var param: String?
    /// Stable, for programs: context_length_exceeded, queue_full, device_lost, ...
    public var code: String?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        message: String,
        type: String,
        param: String? = nil,
        code: String? = nil
    ) {
        self.message = message
        self.type = type
        self.param = param
        self.code = code
    }

    enum CodingKeys: String, CodingKey {
        case message
        case type
        case param
        case code
    }
}

/// The body of an error response, and the last event of a stream that failed.
public struct ErrorBody: Codable, Equatable, Sendable {
    /// `error`.
    public var error: ErrorObject

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        error: ErrorObject
    ) {
        self.error = error
    }

    enum CodingKeys: String, CodingKey {
        case error
    }
}

/// State of an item of an answer.
public struct ItemStatus: RawRepresentable, Codable, Hashable, Sendable {
    /// The word in JSON; a later version may have others than these.
    public let rawValue: String

    /// The value of a word.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `in_progress`
    public static let inProgress = ItemStatus(rawValue: "in_progress")
    /// `completed`
    public static let completed = ItemStatus(rawValue: "completed")
    /// `incomplete`
    public static let incomplete = ItemStatus(rawValue: "incomplete")
}

/// State of an answer.
public struct ResponsesStatus: RawRepresentable, Codable, Hashable, Sendable {
    /// The word in JSON; a later version may have others than these.
    public let rawValue: String

    /// The value of a word.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `in_progress`
    public static let inProgress = ResponsesStatus(rawValue: "in_progress")
    /// `completed`
    public static let completed = ResponsesStatus(rawValue: "completed")
    /// `incomplete`
    public static let incomplete = ResponsesStatus(rawValue: "incomplete")
    /// `failed`
    public static let failed = ResponsesStatus(rawValue: "failed")
    /// `cancelled`
    public static let cancelled = ResponsesStatus(rawValue: "cancelled")
}

/// Text of the answer.
public struct ResponsesOutputText: Codable, Equatable, Sendable {
    /// `text`.
    public var text: String
    /// Always empty: there are no citations.
    public var annotations: [JSONValue]
    /// If `include` has `message.output_text.logprobs`.
    public var logprobs: [[String: JSONValue]]

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        text: String,
        annotations: [JSONValue],
        logprobs: [[String: JSONValue]]
    ) {
        self.text = text
        self.annotations = annotations
        self.logprobs = logprobs
    }

    enum CodingKeys: String, CodingKey {
        case text
        case annotations
        case logprobs
    }
}

/// A message of the model.
public struct ResponsesOutputMessage: Codable, Equatable, Sendable {
    /// The type in a union.
    public var type: String
    /// `id`.
    public var id: String
    /// `status`.
    public var status: ItemStatus
    /// `content`.
    public var content: [ResponsesOutputText]

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: String = "message",
        id: String,
        status: ItemStatus,
        content: [ResponsesOutputText]
    ) {
        self.type = type
        self.id = id
        self.status = status
        self.content = content
    }

    enum CodingKeys: String, CodingKey {
        case type
        case id
        case status
        case content
    }
}

/// A function call by the model.
public struct ResponsesOutputCall: Codable, Equatable, Sendable {
    /// The type in a union.
    public var type: String
    /// `id`.
    public var id: String
    /// `call_id`.
    public var callId: String
    /// `name`.
    public var name: String
    /// `arguments`.
    public var arguments: String
    /// `status`.
    public var status: ItemStatus
    /// The tool's namespace, if it has one.
    public var namespace: String?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: String = "function_call",
        id: String,
        callId: String,
        name: String,
        arguments: String,
        status: ItemStatus,
        namespace: String? = nil
    ) {
        self.type = type
        self.id = id
        self.callId = callId
        self.name = name
        self.arguments = arguments
        self.status = status
        self.namespace = namespace
    }

    enum CodingKeys: String, CodingKey {
        case type
        case id
        case callId = "call_id"
        case name
        case arguments
        case status
        case namespace
    }
}

/// A call of a custom tool by the model.
public struct ResponsesOutputCustomCall: Codable, Equatable, Sendable {
    /// The type in a union.
    public var type: String
    /// `id`.
    public var id: String
    /// `call_id`.
    public var callId: String
    /// `name`.
    public var name: String
    /// `input`.
    public var input: String
    /// `status`.
    public var status: ItemStatus
    /// The tool's namespace, if it has one.
    public var namespace: String?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: String = "custom_tool_call",
        id: String,
        callId: String,
        name: String,
        input: String,
        status: ItemStatus,
        namespace: String? = nil
    ) {
        self.type = type
        self.id = id
        self.callId = callId
        self.name = name
        self.input = input
        self.status = status
        self.namespace = namespace
    }

    enum CodingKeys: String, CodingKey {
        case type
        case id
        case callId = "call_id"
        case name
        case input
        case status
        case namespace
    }
}

/// Reasoning of the model.
public struct ResponsesReasoningText: Codable, Equatable, Sendable {
    /// `type`.
    public var type: String
    /// `text`.
    public var text: String

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: String,
        text: String
    ) {
        self.type = type
        self.text = text
    }

    enum CodingKeys: String, CodingKey {
        case type
        case text
    }
}

/// The model's reasoning: in `summary` if the request asks for one, else in `content`.
public struct ResponsesOutputReasoning: Codable, Equatable, Sendable {
    /// The type in a union.
    public var type: String
    /// `id`.
    public var id: String
    /// `summary`.
    public var summary: [ResponsesReasoningText]
    /// `content`.
    public var content: [ResponsesReasoningText]
    /// `status`.
    public var status: ItemStatus
    /// The text as opaque base64, if `include` has it, to be sent back. It is not secret.
    public var encryptedContent: String?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        type: String = "reasoning",
        id: String,
        summary: [ResponsesReasoningText],
        content: [ResponsesReasoningText],
        status: ItemStatus,
        encryptedContent: String? = nil
    ) {
        self.type = type
        self.id = id
        self.summary = summary
        self.content = content
        self.status = status
        self.encryptedContent = encryptedContent
    }

    enum CodingKeys: String, CodingKey {
        case type
        case id
        case summary
        case content
        case status
        case encryptedContent = "encrypted_content"
    }
}

/// One of several types, by its field `type`.
public enum OutputItem: Codable, Equatable, Sendable {
    /// A message of the model.
    case message(ResponsesOutputMessage)
    /// A function call by the model.
    case functionCall(ResponsesOutputCall)
    /// A call of a custom tool by the model.
    case customToolCall(ResponsesOutputCustomCall)
    /// The model's reasoning: in `summary` if the request asks for one, else in `content`.
    case reasoning(ResponsesOutputReasoning)
    /// A type that this version does not know.
    case other(JSONValue)

    private enum Tag: String, CodingKey { case type }

    /// Reads the type that `type` names.
    public init(from decoder: any Decoder) throws {
        let box = try decoder.singleValueContainer()
        switch try decoder.container(keyedBy: Tag.self).decode(String.self, forKey: .type) {
        case "message": self = .message(try box.decode(ResponsesOutputMessage.self))
        case "function_call": self = .functionCall(try box.decode(ResponsesOutputCall.self))
        case "custom_tool_call": self = .customToolCall(try box.decode(ResponsesOutputCustomCall.self))
        case "reasoning": self = .reasoning(try box.decode(ResponsesOutputReasoning.self))
        default: self = .other(try box.decode(JSONValue.self))
        }
    }

    /// Writes the value alone, without the case.
    public func encode(to encoder: any Encoder) throws {
        var box = encoder.singleValueContainer()
        switch self {
        case .message(let value): try box.encode(value)
        case .functionCall(let value): try box.encode(value)
        case .customToolCall(let value): try box.encode(value)
        case .reasoning(let value): try box.encode(value)
        case .other(let value): try box.encode(value)
        }
    }
}

/// Breakdown of the prompt's tokens.
public struct ResponsesCachedTokens: Codable, Equatable, Sendable {
    /// Tokens that the prefix cache had.
    public var cachedTokens: Int
    /// Always 0: the prefix cache needs no request to keep a prompt.
    public var cacheWriteTokens: Int

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        cachedTokens: Int,
        cacheWriteTokens: Int
    ) {
        self.cachedTokens = cachedTokens
        self.cacheWriteTokens = cacheWriteTokens
    }

    enum CodingKeys: String, CodingKey {
        case cachedTokens = "cached_tokens"
        case cacheWriteTokens = "cache_write_tokens"
    }
}

/// Breakdown of the answer's tokens.
public struct ResponsesReasoningTokens: Codable, Equatable, Sendable {
    /// `reasoning_tokens`.
    public var reasoningTokens: Int

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        reasoningTokens: Int
    ) {
        self.reasoningTokens = reasoningTokens
    }

    enum CodingKeys: String, CodingKey {
        case reasoningTokens = "reasoning_tokens"
    }
}

/// Token counts of a request.
public struct ResponsesUsage: Codable, Equatable, Sendable {
    /// `input_tokens`.
    public var inputTokens: Int
    /// `input_tokens_details`.
    public var inputTokensDetails: ResponsesCachedTokens
    /// `output_tokens`.
    public var outputTokens: Int
    /// `output_tokens_details`.
    public var outputTokensDetails: ResponsesReasoningTokens
    /// `total_tokens`.
    public var totalTokens: Int

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        inputTokens: Int,
        inputTokensDetails: ResponsesCachedTokens,
        outputTokens: Int,
        outputTokensDetails: ResponsesReasoningTokens,
        totalTokens: Int
    ) {
        self.inputTokens = inputTokens
        self.inputTokensDetails = inputTokensDetails
        self.outputTokens = outputTokens
        self.outputTokensDetails = outputTokensDetails
        self.totalTokens = totalTokens
    }

    enum CodingKeys: String, CodingKey {
        case inputTokens = "input_tokens"
        case inputTokensDetails = "input_tokens_details"
        case outputTokens = "output_tokens"
        case outputTokensDetails = "output_tokens_details"
        case totalTokens = "total_tokens"
    }
}

/// Why an answer was not completed.
public struct ResponsesErrorObject: Codable, Equatable, Sendable {
    /// `code`.
    public var code: String
    /// `message`.
    public var message: String

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        code: String,
        message: String
    ) {
        self.code = code
        self.message = message
    }

    enum CodingKeys: String, CodingKey {
        case code
        case message
    }
}

/// Why an answer was cut short.
public struct ResponsesIncomplete: Codable, Equatable, Sendable {
    /// `reason`.
    public var reason: String

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        reason: String
    ) {
        self.reason = reason
    }

    enum CodingKeys: String, CodingKey {
        case reason
    }
}

/// An answer of /v1/responses. It repeats the fields of its request.
public struct ResponsesAnswer: Codable, Equatable, Sendable {
    /// `id`.
    public var id: String
    /// Seconds since 1970.
    public var createdAt: Int
    /// `completed_at`.
    public var completedAt: Int?
    /// `status`.
    public var status: ResponsesStatus
    /// `error`.
    public var error: ResponsesErrorObject?
    /// `incomplete_details`.
    public var incompleteDetails: ResponsesIncomplete?
    /// `model`.
    public var model: String
    /// `output`.
    public var output: [OutputItem]
    /// `usage`.
    public var usage: ResponsesUsage?
    /// `previous_response_id`.
    public var previousResponseId: String?
    /// `instructions`.
    public var instructions: String?
    /// `max_output_tokens`.
    public var maxOutputTokens: Int?
    /// `max_tool_calls`.
    public var maxToolCalls: Int?
    /// `temperature`.
    public var temperature: Double
    /// `top_p`.
    public var topP: Double
    /// `top_logprobs`.
    public var topLogprobs: Int
    /// `presence_penalty`.
    public var presencePenalty: Double
    /// `frequency_penalty`.
    public var frequencyPenalty: Double
    /// `parallel_tool_calls`.
    public var parallelToolCalls: Bool
    /// `tool_choice`.
    public var toolChoice: JSONValue
    /// `tools`.
    public var tools: [JSONValue]
    /// `reasoning`.
    public var reasoning: [String: JSONValue]
    /// `text`.
    public var text: [String: JSONValue]
    /// `store`.
    public var store: Bool
    /// `metadata`.
    public var metadata: [String: String]
    /// `user`.
    public var user: String?
    /// `safety_identifier`.
    public var safetyIdentifier: String?
    /// `prompt_cache_key`.
    public var promptCacheKey: String?

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        id: String,
        createdAt: Int,
        completedAt: Int? = nil,
        status: ResponsesStatus,
        error: ResponsesErrorObject? = nil,
        incompleteDetails: ResponsesIncomplete? = nil,
        model: String,
        output: [OutputItem],
        usage: ResponsesUsage? = nil,
        previousResponseId: String? = nil,
        instructions: String? = nil,
        maxOutputTokens: Int? = nil,
        maxToolCalls: Int? = nil,
        temperature: Double,
        topP: Double,
        topLogprobs: Int,
        presencePenalty: Double,
        frequencyPenalty: Double,
        parallelToolCalls: Bool,
        toolChoice: JSONValue,
        tools: [JSONValue],
        reasoning: [String: JSONValue],
        text: [String: JSONValue],
        store: Bool,
        metadata: [String: String],
        user: String? = nil,
        safetyIdentifier: String? = nil,
        promptCacheKey: String? = nil
    ) {
        self.id = id
        self.createdAt = createdAt
        self.completedAt = completedAt
        self.status = status
        self.error = error
        self.incompleteDetails = incompleteDetails
        self.model = model
        self.output = output
        self.usage = usage
        self.previousResponseId = previousResponseId
        self.instructions = instructions
        self.maxOutputTokens = maxOutputTokens
        self.maxToolCalls = maxToolCalls
        self.temperature = temperature
        self.topP = topP
        self.topLogprobs = topLogprobs
        self.presencePenalty = presencePenalty
        self.frequencyPenalty = frequencyPenalty
        self.parallelToolCalls = parallelToolCalls
        self.toolChoice = toolChoice
        self.tools = tools
        self.reasoning = reasoning
        self.text = text
        self.store = store
        self.metadata = metadata
        self.user = user
        self.safetyIdentifier = safetyIdentifier
        self.promptCacheKey = promptCacheKey
    }

    enum CodingKeys: String, CodingKey {
        case id
        case createdAt = "created_at"
        case completedAt = "completed_at"
        case status
        case error
        case incompleteDetails = "incomplete_details"
        case model
        case output
        case usage
        case previousResponseId = "previous_response_id"
        case instructions
        case maxOutputTokens = "max_output_tokens"
        case maxToolCalls = "max_tool_calls"
        case temperature
        case topP = "top_p"
        case topLogprobs = "top_logprobs"
        case presencePenalty = "presence_penalty"
        case frequencyPenalty = "frequency_penalty"
        case parallelToolCalls = "parallel_tool_calls"
        case toolChoice = "tool_choice"
        case tools
        case reasoning
        case text
        case store
        case metadata
        case user
        case safetyIdentifier = "safety_identifier"
        case promptCacheKey = "prompt_cache_key"
    }
}

/// The input items of a stored answer.
public struct ResponsesItemList: Codable, Equatable, Sendable {
    /// `data`.
    public var data: [JSONValue]
    /// `first_id`.
    public var firstId: String?
    /// `last_id`.
    public var lastId: String?
    /// `has_more`.
    public var hasMore: Bool

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        data: [JSONValue],
        firstId: String? = nil,
        lastId: String? = nil,
        hasMore: Bool
    ) {
        self.data = data
        self.firstId = firstId
        self.lastId = lastId
        self.hasMore = hasMore
    }

    enum CodingKeys: String, CodingKey {
        case data
        case firstId = "first_id"
        case lastId = "last_id"
        case hasMore = "has_more"
    }
}

/// A deleted answer.
public struct ResponsesDeleted: Codable, Equatable, Sendable {
    /// `id`.
    public var id: String

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        id: String
    ) {
        self.id = id
    }

    enum CodingKeys: String, CodingKey {
        case id
    }
}

/// The answer of /v1/responses/input_tokens.
public struct ResponsesTokenCount: Codable, Equatable, Sendable {
    /// `input_tokens`.
    public var inputTokens: Int

    /// With its fields; those that are nil are left out of the JSON.
    public init(
        inputTokens: Int
    ) {
        self.inputTokens = inputTokens
    }

    enum CodingKeys: String, CodingKey {
        case inputTokens = "input_tokens"
    }
}
