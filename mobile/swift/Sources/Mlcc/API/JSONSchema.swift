import Foundation

/// A type that has its own JSON Schema, where the derived one is not wanted.
public protocol JSONSchemaConvertible: Decodable {
    /// The schema.
    static var jsonSchema: JSONValue { get }
}

/// JSON Schemas of `Codable` types.
public enum JSONSchema {
    /// The schema of a type: structs and classes, arrays, dictionaries with texts as names,
    /// optionals, texts, numbers, and enumerations of texts that are `CaseIterable`. Fields that
    /// are not optional are required. Names are those of JSON (`CodingKeys`).
    ///
    /// - Throws: ``MlccError/unsupported(message:code:)`` for another type, which needs
    ///   ``JSONSchemaConvertible``.
    public static func of<Value: Decodable>(_ type: Value.Type) throws -> JSONValue {
        try probe(type, within: []).schema
    }

    /// The schema of a type, and a value of it. A type is asked to decode itself, and what it asks
    /// for is recorded; every field gets a value that makes it go on.
    static func probe<Value: Decodable>(
        _ type: Value.Type, within outer: [String]
    ) throws -> (schema: JSONValue, value: Value) {
        if let (schema, value) = try known(type, outer), let value = value as? Value {
            return (schema, value)
        }
        let name = String(reflecting: type)
        if outer.contains(name) {
            throw unsupported(name, "contains itself")
        }
        let recorder = SchemaRecorder(path: outer + [name])
        do {
            let value = try Value(from: recorder)
            let own = (type as? any JSONSchemaConvertible.Type)?.jsonSchema
            return (own ?? recorder.schema, value)
        } catch let error as MlccError {
            throw error
        } catch {
            throw unsupported(name, "decodes itself in a way of its own")
        }
    }

    /// Types that are not made of fields.
    private static func known(_ type: Any.Type, _ outer: [String]) throws -> (JSONValue, Any)? {
        if let (word, value) = primitive(type) { return (["type": .string(word)], value) }
        if type == JSONValue.self { return ([:], JSONValue.null) }
        if let type = type as? any CaseIterable.Type, let found = try words(type) { return found }
        if let type = type as? any SchemaContainer.Type { return try type.probe(within: outer) }
        return nil
    }

    private static func primitive(_ type: Any.Type) -> (String, Any)? {
        switch type {
        case is String.Type: ("string", "")
        case is Bool.Type: ("boolean", false)
        case is Double.Type: ("number", 0.0)
        case is Float.Type: ("number", Float(0))
        case let type as any FixedWidthInteger.Type: ("integer", type.init())
        default: nil
        }
    }

    /// An enumeration of texts.
    private static func words<Value: CaseIterable>(_ type: Value.Type) throws -> (JSONValue, Any)? {
        let words = type.allCases.compactMap { ($0 as? any RawRepresentable)?.rawValue as? String }
        guard words.count == type.allCases.count, let first = type.allCases.first else { return nil }
        return (["type": "string", "enum": .array(words.map { .string($0) })], first)
    }

    static func unsupported(_ type: String, _ reason: String) -> MlccError {
        .unsupported(
            message: "\(type) has no derived JSON Schema, because it \(reason); give it one with "
                + "JSONSchemaConvertible", code: "json_schema")
    }
}

/// Types of Swift's library that contain others.
private protocol SchemaContainer {
    static func probe(within outer: [String]) throws -> (JSONValue, Any)
}

extension Array: SchemaContainer where Element: Decodable {
    fileprivate static func probe(within outer: [String]) throws -> (JSONValue, Any) {
        let (items, _) = try JSONSchema.probe(Element.self, within: outer)
        return (["type": "array", "items": items], [Element]())
    }
}

extension Dictionary: SchemaContainer where Key == String, Value: Decodable {
    fileprivate static func probe(within outer: [String]) throws -> (JSONValue, Any) {
        let (values, _) = try JSONSchema.probe(Value.self, within: outer)
        return (["type": "object", "additionalProperties": values], [String: Value]())
    }
}

extension Optional: SchemaContainer where Wrapped: Decodable {
    fileprivate static func probe(within outer: [String]) throws -> (JSONValue, Any) {
        let (schema, value) = try JSONSchema.probe(Wrapped.self, within: outer)
        return (["anyOf": [schema, ["type": "null"]]], Optional.some(value) as Any)
    }
}

/// A decoder that records the fields that a type decodes.
private final class SchemaRecorder: Decoder {
    let path: [String]
    var codingPath: [any CodingKey] = []
    var userInfo: [CodingUserInfoKey: Any] = [:]
    private var properties: [String: JSONValue] = [:]
    var optional: Set<String> = []
    private var single: JSONValue?

    init(path: [String]) { self.path = path }

    private var required: [String] { properties.keys.filter { !optional.contains($0) }.sorted() }

    var schema: JSONValue {
        single ?? [
            "type": "object", "properties": .object(properties),
            "required": .array(required.map { .string($0) }), "additionalProperties": false,
        ]
    }

    func field<Value: Decodable>(_ key: any CodingKey, _ type: Value.Type) throws -> Value {
        let (schema, value) = try JSONSchema.probe(type, within: path)
        properties[key.stringValue] = schema
        return value
    }

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedDecodingContainer<Key> {
        KeyedDecodingContainer(Fields<Key>(recorder: self))
    }

    func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
        throw JSONSchema.unsupported(path.last ?? "", "decodes a list by itself")
    }

    func singleValueContainer() -> any SingleValueDecodingContainer { Single(recorder: self) }

    struct Fields<Key: CodingKey>: KeyedDecodingContainerProtocol {
        let recorder: SchemaRecorder
        var codingPath: [any CodingKey] { [] }
        var allKeys: [Key] { [] }

        func contains(_ key: Key) -> Bool { true }

        /// `decodeIfPresent` asks this before it decodes: the field is optional.
        func decodeNil(forKey key: Key) -> Bool {
            recorder.optional.insert(key.stringValue)
            return false
        }

        func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value {
            try recorder.field(key, type)
        }

        func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type, forKey key: Key) throws
            -> KeyedDecodingContainer<Nested>
        {
            throw JSONSchema.unsupported(recorder.path.last ?? "", "nests containers")
        }

        func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
            throw JSONSchema.unsupported(recorder.path.last ?? "", "nests containers")
        }

        func superDecoder() -> any Decoder { recorder }

        func superDecoder(forKey key: Key) -> any Decoder { recorder }
    }

    struct Single: SingleValueDecodingContainer {
        let recorder: SchemaRecorder
        var codingPath: [any CodingKey] { [] }

        func decodeNil() -> Bool { false }

        func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
            let (schema, value) = try JSONSchema.probe(type, within: recorder.path)
            recorder.single = schema
            return value
        }
    }
}
