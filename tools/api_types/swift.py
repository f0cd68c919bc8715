"""The API's types as Swift, with Codable: `Api.swift` of the package `Mlcc`.

Swift's types contain only what a program can use: requests lack fields that are not built yet, and
answers lack constant fields. An enumeration is a struct around its word, so that a word that a
later version adds is kept and is no error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from textwrap import wrap
from typing import Any, NamedTuple

from mlcc.api.schema.json_types import (
    Anything,
    ByToken,
    Custom,
    Either,
    Flag,
    Integer,
    Many,
    Number,
    Text,
)
from mlcc.api.schema.schema import Field, Object
from tools.api_types.kotlin import alternatives, camel, class_name, default, members, unbuilt, used
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
    "[ContentPart]": ("parts", "A text in parts, and images."),
    "[Int]": ("tokens", "Ids of tokens."),
    "[[Int]]": ("tokenLists", "Several lists of ids of tokens."),
    "TextPart": ("text", "A text."),
    "ImagePart": ("image", "An image, for a model that sees."),
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
    tables = [*PARTS, *BODIES, *ENCODERS]
    blocks = [*named_types(table for table, _ in tables)]
    blocks += [request(table, about) for table, about in tables]
    shapes = list(answers())
    blocks += [answer(shape, shapes) for shape in shapes if not shape.name.startswith("_")]
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
        if len(kind.shapes) > 1:
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
        f"{comment(f'`{word}`', '    ')}    public static let {safe(camel(word))} = "
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
        f"{comment(about)}public enum {name}: Codable, Hashable, Sendable {{\n{rows}\n"
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
        f"{comment(about)}public struct {name}: Codable, Hashable, Sendable {{\n{fields}\n"
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
    if isinstance(kind, Either):
        return TEXT_CONTENT if "[TextPart]" in shapes_of(kind, field) else type_name(field.name)
    if isinstance(kind, Custom):
        only = len(kind.shapes) == 1
        return swift(kind.shapes[0], field) if only else union_name(field.name)
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
        assert isinstance(shape.type, ast.Subscript), shape.name
        return enumeration(shape.name, shape.about, choices(shape.type))
    shared = [item for base in shapes if base.name in shape.bases for item in members(base)]
    rows = []
    for item in (*members(shape), *shared):
        node, absent = item.type, item.optional
        if isinstance(node, ast.BinOp):  # with None
            node, absent = node.left, True
        type_ = optional(annotation(node), absent)
        rows.append((item.name, type_, "nil" * absent, item.about))
    return structure(shape.name, shape.about, rows)


def annotation(node: ast.expr) -> str:
    """A Python type as Swift's."""
    if isinstance(node, ast.BinOp):  # with None
        return annotation(node.left) + "?"
    if isinstance(node, ast.Subscript):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return f"[{': '.join(map(annotation, inner))}]"
    word = ast.unparse(node)
    return WORDS.get(word, word)


def safe(name: str) -> str:
    """A name, in backquotes if it is a keyword."""
    return f"`{name}`" if name in KEYWORDS else name
