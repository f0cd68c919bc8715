"""The API's types as Swift, with Codable: `Api.swift` of the package `Mlcc`.

Swift's types contain only what a program can use: requests lack fields that are not built yet, and
answers lack constant fields. An enumeration is a struct around its word, so that a word that a
later version adds is kept and is no error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from textwrap import wrap
from typing import Any, NamedTuple

from mlcc.api.openai_responses import shapes as responses
from mlcc.api.openai_responses.fields import REASONING, RESPONSES, TEXT_CONFIG
from mlcc.api.schema.schema import (
    Anything,
    ByToken,
    Custom,
    Either,
    Field,
    Flag,
    Integer,
    Many,
    Number,
    Object,
    Tagged,
    Text,
)
from tools.api_types.kotlin import (
    alternatives,
    camel,
    class_name,
    constant,
    default,
    members,
    unbuilt,
    used,
)
from tools.api_types.schema import (
    BODIES,
    ENCODERS,
    PARTS,
    ROOT,
    Alias,
    Answer,
    answers,
    choices,
    field_about,
)

OUT = ROOT / "mobile/swift/Sources/Mlcc/API/Api.swift"
HEADER = """\
// Written by `python -m tools.api_types` from runtime/mlcc/api: change that and run it again.

"""
RESPONSES_API = (
    (REASONING, "Whether and how much the model reasons."),
    (TEXT_CONFIG, "Format of the answer."),
    (RESPONSES, "The body of POST /v1/responses."),
)
LATER = ("ResponsesEvent",)
"""Answers whose fields depend on their type: `Responses.swift` reads them."""
RENAMED = {"Status": "ResponsesStatus"}
WORDS = {"str": "String", "int": "Int", "float": "Double", "bool": "Bool", "Any": "JSONValue"}
KEYWORDS = {"default", "in", "is", "as", "self", "func", "import", "case", "protocol", "repeat"}
TYPE_NAMES = {
    "type": "ResponseType",
    "tool_choice": "ToolChoiceMode",
    "text_1": "Texts",
    "text_2": "Texts",
}
"""Names of types by field, where Swift reserves the usual one or a union has it."""
UNION_NAMES = {"content": "ContentPart", "image_url": "ImageReference", "documents": "Document"}
"""Names of unions by field, where the usual one is another type's."""
MEMBER_UNIONS = {"list[float] | str": "EmbeddingVector"}
"""Names of unions of answers."""
TEXT_CONTENT = "TextContent"
"""A text or its parts, without images."""
COMMENT_WIDTH = 96


class Case(NamedTuple):
    """One type of a union."""

    name: str
    about: str
    type: str


CASES = {
    "String": ("text", "One text."),
    "[String]": ("texts", "Several texts."),
    "[TextPart]": ("parts", "A text in parts."),
    "[ContentPart]": ("parts", "A text in parts, images and sounds."),
    "[JSONValue]": ("items", "Items of a conversation: messages, calls, their outputs."),
    "[Double]": ("numbers", "Numbers."),
    "[Int]": ("tokens", "Ids of tokens."),
    "[[Int]]": ("tokenLists", "Several lists of ids of tokens."),
    "TextPart": ("text", "A text."),
    "ImagePart": ("image", "An image, for a model that sees."),
    "AudioPart": ("audio", "A sound, for a model that hears."),
    "RefusalPart": ("refusal", "Words in which the assistant refused."),
    "ImageURL": ("object", "An image with its detail."),
    "ToolChoiceMode": ("mode", "Whether a tool is called."),
    "NamedTool": ("named", "The tool of this name."),
    "AllowedTools": ("allowed", "Some of the tools."),
    "RerankDocument": ("document", "An object with a text."),
}
"""Names and descriptions of a union's cases, by type."""


def render() -> str:
    """The whole file."""
    tables = [*PARTS, *BODIES, *ENCODERS, *RESPONSES_API]
    blocks = [*named_types(table for table, _ in tables)]
    blocks += [request(table, about) for table, about in tables]
    for shapes in (list(answers()), list(answers(responses))):
        public = [one for one in shapes if one.name[0] != "_" and one.name not in LATER]
        blocks += unions_of_members(public)
        blocks += [answer(shape, shapes) for shape in public]
    return HEADER + "\n".join(blocks)


def comment(text: str, indent: str = "") -> str:
    """A documentation comment; "" for no text."""
    lines = wrap(" ".join(text.split()), COMMENT_WIDTH - len(indent) - 4)
    return "".join(f"{indent}/// {line}\n" for line in lines)


def named_types(tables: Iterator[Object]) -> list[str]:
    """Enumerations and unions of the tables' fields, each once."""
    found: dict[str, str] = {}
    for field in (field for table in tables for field in used(table)):
        for name, kind in unnamed(field.type, field):
            is_text = isinstance(kind, Text)
            text = (enumeration if is_text else union)(name, field.about, shapes_of(kind, field))
            assert found.setdefault(name, text).split("{", 1)[1] == text.split("{", 1)[1], name
    return list(found.values())


def unnamed(kind: Any, field: Field) -> Iterator[tuple[str, Any]]:
    """The types within a field that Swift needs a name for, the inner ones first."""
    if isinstance(kind, Many):
        yield from unnamed(kind.item, field)
    elif isinstance(kind, Either):
        for part in alternatives(kind):  # a Custom of arrays is flat here
            yield from unnamed(part, field)
        yield swift(kind, field), kind
    elif isinstance(kind, Custom):
        for part in kind.shapes:
            yield from unnamed(part, field)
        if len(kind.shapes) > 1 and swift(kind, field) != "JSONValue":
            yield swift(kind, field), kind
    elif isinstance(kind, Text) and len(kind.choices) > 1:
        yield swift(kind, field), kind


def shapes_of(kind: Any, field: Field) -> Any:
    """The words of an enumeration, or the types of a union in the order in which JSON is tried."""
    if isinstance(kind, Text):
        return kind.choices
    parts = alternatives(kind) if isinstance(kind, Either) else kind.shapes
    return [swift(part, field) for part in parts]


def enumeration(name: str, about: str, values: Any) -> str:
    """A struct around a word."""
    rows = "".join(
        f"{comment(f'`{word}`', '    ')}    public static let {constant_name(word)} = "
        f'{name}(rawValue: "{word}")\n'
        for word in map(str, values)
    )
    return (
        f"{comment(about)}public struct {name}: RawRepresentable, Codable, Hashable, Sendable {{\n"
        f"    /// The word in JSON; a later version may have others than these.\n"
        f"    public let rawValue: String\n\n"
        f"    /// The value of a word.\n"
        f"    public init(rawValue: String) {{ self.rawValue = rawValue }}\n\n{rows}}}\n"
    )


def union(name: str, about: str, types: list[str]) -> str:
    """An enumeration of types: in JSON the first that fits."""
    cases = [Case(*CASES[type_], type_) for type_ in types]
    rows = "".join(f"{comment(c.about, '    ')}    case {c.name}({c.type})\n" for c in cases)
    reads = "".join(
        f"        if let value = try? box.decode({c.type}.self) {{\n"
        f"            self = .{c.name}(value)\n            return\n        }}\n"
        for c in cases
    )
    writes = "".join(f"        case .{c.name}(let value): try box.encode(value)\n" for c in cases)
    literal = (
        f"\nextension {name}: ExpressibleByStringLiteral {{\n"
        f"    /// A text.\n"
        f"    public init(stringLiteral value: String) {{ self = .text(value) }}\n}}\n"
    )
    return (
        f"{comment(about)}public enum {name}: Codable, Equatable, Sendable {{\n{rows}\n"
        f"    /// Reads the first type that fits.\n"
        f"    public init(from decoder: any Decoder) throws {{\n"
        f"        let box = try decoder.singleValueContainer()\n{reads}"
        f"        throw DecodingError.dataCorruptedError(\n"
        f'            in: box, debugDescription: "no type of {name} fits the JSON")\n    }}\n\n'
        f"    /// Writes the value alone, without the case.\n"
        f"    public func encode(to encoder: any Encoder) throws {{\n"
        f"        var box = encoder.singleValueContainer()\n        switch self {{\n{writes}"
        f"        }}\n    }}\n}}\n{literal * ('String' in types)}"
    )


def request(table: Object, about: str) -> str:
    """A request's object."""
    rows = [
        (field.name, optional(swift(field.type, field), not field.required), given(field), text)
        for field, text in ((field, field_about(field)) for field in used(table))
    ]
    return structure(table.name, about + unbuilt(table), rows)


def given(field: Field) -> str:
    """The default of a parameter; "" if it is required."""
    return default(field).replace("null", "nil")


def optional(type_: str, is_optional: bool) -> str:
    """A type, with `?` if it may be absent."""
    return type_ + "?" * is_optional


def structure(name: str, about: str, rows: list[tuple[str, str, str, str]]) -> str:
    """A struct with a public memberwise initialiser, which Swift does not make by itself. rows:
    JSON's name, type, default and description of each field."""
    fields = "".join(
        f"{comment(text or f'`{n}`.', '    ')}    public var {safe(camel(n))}: {kind}\n"
        for n, kind, _, text in rows
    )
    parameters = ",\n".join(
        f"        {safe(camel(n))}: {kind}" + f" = {value}" * bool(value)
        for n, kind, value, _ in rows
    )
    sets = "".join(f"        self.{camel(n)} = {safe(camel(n))}\n" for n, _, _, _ in rows)
    keys = "".join(
        f"        case {safe(camel(n))}" + f' = "{n}"' * (camel(n) != n) + "\n"
        for n, _, _, _ in rows
    )
    return (
        f"{comment(about)}public struct {name}: Codable, Equatable, Sendable {{\n{fields}\n"
        f"    /// With its fields; those that are nil are left out of the JSON.\n"
        f"    public init(\n{parameters}\n    ) {{\n{sets}    }}\n\n"
        f"    enum CodingKeys: String, CodingKey {{\n{keys}    }}\n}}\n"
    )


def swift(kind: Any, field: Field) -> str:
    """The type of what a JsonType of this field accepts."""
    plain = {Number: "Double", Integer: "Int", Flag: "Bool", Anything: "JSONValue"}
    if type(kind) in plain:
        return plain[type(kind)]  # Int has 64 bits on every system that mlcc supports
    if isinstance(kind, Text):
        return type_name(field.name) if len(kind.choices) > 1 else "String"
    if isinstance(kind, Many):
        return f"[{swift(kind.item, field)}]"
    if isinstance(kind, ByToken):
        return f"[Int: {swift(kind.item, field)}]"
    if isinstance(kind, Tagged) or (isinstance(kind, Object) and not used(kind)):
        return "JSONValue"
    if isinstance(kind, Either) and isinstance(getattr(kind.array, "item", None), Tagged):
        return "ResponsesInput"
    if isinstance(kind, Either):
        return TEXT_CONTENT if "[TextPart]" in shapes_of(kind, field) else type_name(field.name)
    if isinstance(kind, Custom):
        types = shapes_of(kind, field)
        if "JSONValue" in types:
            return "JSONValue"
        return types[0] if len(types) == 1 else union_name(field.name)
    assert isinstance(kind, Object), kind
    return kind.name


def type_name(field: str) -> str:
    """`max_tokens` as `MaxTokens`."""
    return TYPE_NAMES.get(field) or class_name(field)


def union_name(field: str) -> str:
    """The name of a union of objects and words."""
    return UNION_NAMES.get(field) or class_name(field)


def answer(shape: Answer | Alias, shapes: list[Answer | Alias]) -> str:
    """One type of `shapes`, with the fields that it inherits."""
    if isinstance(shape, Alias):
        name = RENAMED.get(shape.name, shape.name)
        if isinstance(shape.type, ast.Subscript):
            return enumeration(name, shape.about, choices(shape.type))
        return tagged_union(name, parts_of(shape), shapes)
    shared = [item for base in shapes if base.name in shape.bases for item in members(base)]
    rows = []
    if any(shape.name in parts_of(other) for other in shapes):
        rows.append(("type", "String", f'"{tag(shape)}"', "The type in a union."))
    varying = [*members(shape), *shared]
    for item in varying or shape.members:  # a shape of constants alone keeps them
        node, absent = item.type, item.optional
        if isinstance(node, ast.BinOp) and ast.unparse(node.right) == "None":
            node, absent = node.left, True
        type_ = optional(annotation(node), absent)
        rows.append((item.name, type_, "nil" * absent, item.about))
    return structure(shape.name, shape.about, rows)


def unions_of_members(shapes: list[Answer | Alias]) -> Iterator[str]:
    """The unions of types, other than with None, that members of answers have."""
    for shape in shapes:
        for item in shape.members if isinstance(shape, Answer) else ():
            if ast.unparse(item.type) in MEMBER_UNIONS:
                assert isinstance(item.type, ast.BinOp)
                parts = [annotation(part) for part in (item.type.left, item.type.right)]
                yield union(annotation(item.type), item.about, parts)


def parts_of(shape: Answer | Alias) -> list[str]:
    """The names of a union's types; [] for another shape."""
    if not isinstance(shape, Alias) or not isinstance(shape.type, ast.BinOp):
        return []
    return [node.id for node in ast.walk(shape.type) if isinstance(node, ast.Name)]


def tag(shape: Answer) -> str:
    """The constant `type` of a union's part."""
    (member,) = (item for item in shape.members if item.name == "type")
    assert isinstance(member.type, ast.Subscript) and constant(member.type), shape.name
    return str(choices(member.type)[0])


def tagged_union(name: str, parts: list[str], shapes: list[Answer | Alias]) -> str:
    """An enumeration of types that `type` tells apart; a later version may have others."""
    found = [(shape, tag(shape)) for shape in shapes if shape.name in parts]
    cases = "".join(
        f"{comment(shape.about, '    ')}    case {camel(word)}({shape.name})\n"
        for shape, word in found
    )
    reads = "".join(
        f'        case "{word}": self = .{camel(word)}(try box.decode({shape.name}.self))\n'
        for shape, word in found
    )
    writes = "".join(
        f"        case .{camel(word)}(let value): try box.encode(value)\n"
        for word in (*(word for _, word in found), "other")
    )
    return (
        f"/// One of several types, by its field `type`.\n"
        f"public enum {name}: Codable, Equatable, Sendable {{\n{cases}"
        f"    /// A type that this version does not know.\n    case other(JSONValue)\n\n"
        f"    private enum Tag: String, CodingKey {{ case type }}\n\n"
        f"    /// Reads the type that `type` names.\n"
        f"    public init(from decoder: any Decoder) throws {{\n"
        f"        let box = try decoder.singleValueContainer()\n"
        f"        switch try decoder.container(keyedBy: Tag.self).decode("
        f"String.self, forKey: .type) {{\n{reads}"
        f"        default: self = .other(try box.decode(JSONValue.self))\n        }}\n    }}\n\n"
        f"    /// Writes the value alone, without the case.\n"
        f"    public func encode(to encoder: any Encoder) throws {{\n"
        f"        var box = encoder.singleValueContainer()\n        switch self {{\n{writes}"
        f"        }}\n    }}\n}}\n"
    )


def annotation(node: ast.expr) -> str:
    """A Python type as Swift's."""
    if isinstance(node, ast.BinOp):
        of_none = ast.unparse(node.right) == "None"
        return annotation(node.left) + "?" if of_none else MEMBER_UNIONS[ast.unparse(node)]
    if isinstance(node, ast.Subscript):
        if ast.unparse(node.value) == "Literal":
            return "String"
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return f"[{': '.join(map(annotation, inner))}]"
    word = ast.unparse(node)
    return WORDS.get(word) or RENAMED.get(word, word)


def constant_name(word: str) -> str:
    """`a_b.c` as `aBC`."""
    return safe(camel(re.sub(r"\W", "_", word)))


def safe(name: str) -> str:
    """A name, in backquotes if it is a keyword."""
    return f"`{name}`" if name in KEYWORDS else name
