import Foundation

/// JSON of the API's types. Fields that are nil are left out; unknown fields of answers are
/// ignored.
enum JSON {
    static func encode(_ value: some Encodable) throws -> Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.withoutEscapingSlashes, .sortedKeys]  // equal requests are equal
        return try encoder.encode(value)
    }

    static func decode<Value: Decodable>(_ type: Value.Type, _ data: Data) throws -> Value {
        try JSONDecoder().decode(type, from: data)
    }

    /// The value of an answer. Throws `MlccError.bug` if the JSON has another shape.
    static func answer<Value: Decodable>(_ type: Value.Type, _ data: Data) throws -> Value {
        do {
            return try decode(type, data)
        } catch {
            let text = String(decoding: data.prefix(300), as: UTF8.self)
            let message = "the answer is no \(type): \(text) (\(error))"
            throw MlccError.bug(message: message, code: "bug")
        }
    }
}
