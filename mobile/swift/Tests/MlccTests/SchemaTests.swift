import Foundation
import Testing

@testable import Mlcc

private enum Colour: String, Codable, CaseIterable { case red, green }

private struct Part: Codable {
    var name: String
    var colour: Colour?
}

private struct Order: Codable {
    var id: Int
    var price: Double
    var isPaid: Bool
    var parts: [Part]
    var counts: [String: Int]
    var note: String?
    var anything: JSONValue

    enum CodingKeys: String, CodingKey {
        case id, price, parts, counts, note, anything
        case isPaid = "is_paid"
    }
}

private struct Tree: Codable { var children: [Tree] }

private struct Own: JSONSchemaConvertible {
    static let jsonSchema: JSONValue = ["type": "string", "pattern": "a+"]
    init(from decoder: any Decoder) throws {}
}

private struct Holder: Decodable { var own: Own }

/// JSON Schemas of Codable types; no library runs.
@Suite struct SchemaTests {
    @Test func aStructHasAnObject() throws {
        let part: JSONValue = [
            "type": "object", "additionalProperties": false, "required": ["name"],
            "properties": [
                "name": ["type": "string"], "colour": ["type": "string", "enum": ["red", "green"]],
            ],
        ]
        let schema = try JSONSchema.of(Order.self)
        #expect(schema["properties"]?["parts"] == ["type": "array", "items": part])
        #expect(schema["properties"]?["id"] == ["type": "integer"])
        #expect(schema["properties"]?["is_paid"] == ["type": "boolean"])
        #expect(schema["properties"]?["price"] == ["type": "number"])
        #expect(schema["properties"]?["anything"] == [:])
        let counts: JSONValue = ["type": "object", "additionalProperties": ["type": "integer"]]
        #expect(schema["properties"]?["counts"] == counts)
        #expect(
            schema["required"] == ["anything", "counts", "id", "is_paid", "parts", "price"])
    }

    @Test func aTypeMayHaveItsOwn() throws {
        #expect(try JSONSchema.of(Own.self) == Own.jsonSchema)
        #expect(try JSONSchema.of(Holder.self)["properties"]?["own"] == Own.jsonSchema)
    }

    @Test func aTypeThatContainsItselfIsRefused() {
        #expect(throws: MlccError.self) { try JSONSchema.of(Tree.self) }
        do {
            _ = try JSONSchema.of(Tree.self)
        } catch {
            #expect("\(error)".contains("contains itself") && "\(error)".contains("Tree"))
        }
    }

    @Test func aDateIsRefusedByName() {
        #expect(throws: MlccError.self) { try JSONSchema.of(URL.self) }
    }

    @Test func aToolTakesAType() throws {
        let tool = try Tool("order", "Orders parts.", arguments: Part.self)
        #expect(tool.function.name == "order" && tool.function.strict == true)
        #expect(tool.function.parameters?["properties"]?["name"] == ["type": "string"])
        let call = ToolCall(
            id: "1", function: FunctionCall(name: "order", arguments: #"{"name":"bolt"}"#))
        #expect(try call.arguments(as: Part.self).name == "bolt")
        #expect(throws: MlccError.self) { try call.arguments(as: Order.self) }
        let result = Message("done", of: call)
        #expect(result.role == .tool && result.toolCallId == "1")
    }

    @Test func aFormatTakesAType() throws {
        let format = try ResponseFormat.json(of: [Part].self)
        #expect(format.type == .jsonSchema && format.jsonSchema?.strict == true)
    }
}
