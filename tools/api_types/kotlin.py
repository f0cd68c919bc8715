"""The API's types as Kotlin, with kotlinx.serialization: `mlcc-core`'s `Api.kt`.

Kotlin's types contain only what a program can use. So, unlike TypeScript's, requests lack fields
that are not built yet, and responses lack constant fields (`object`, a `refusal` that is null).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

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
    Text,
    Use,
)
from tools.api_types.schema import (
    BODIES,
    PARTS,
    ROOT,
    Alias,
    Answer,
    Member,
    answers,
    choices,
    comment,
    field_about,
)

OUT = ROOT / "mobile/android/mlcc-core/src/main/kotlin/dev/mlcc/Api.kt"
HEADER = """\
// Written by `python -m tools.api_types` from runtime/mlcc/api: change that and run it again.

package dev.mlcc

import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.json.JsonElement
"""
WORDS = {"str": "String", "int": "Long", "float": "Double", "bool": "Boolean"}


class Variant(NamedTuple):
    """One type of a union."""

    name: str
    about: str


VARIANTS = {
    "String": Variant("Text", "One text."),
    "List<String>": Variant("Texts", "Several texts."),
    "List<ContentPart>": Variant("Parts", "A text in parts, images and sounds."),
    "List<Int>": Variant("Tokens", "Ids of tokens."),
    "List<List<Int>>": Variant("TokenLists", "Several lists of ids of tokens."),
}
"""Names of a union's types."""
PART, PART_ABOUT = "ContentPart", "A part of a message: a text, an image or a sound."
PART_TYPES = ("TextPart", "ImagePart", "AudioPart", "RefusalPart")
"""What a message may have; predictions have texts alone."""
INT = 2**31


def render() -> str:
    """The whole file."""
    tables = [*PARTS, *BODIES]
    shared: dict[str, str] = {}
    for table, _ in tables:
        for name, block in named_types(table):
            shared.setdefault(name, block)
    blocks = [HEADER, *shared.values(), part_interface()]
    blocks += [request(table, about, (table, about) in BODIES) for table, about in tables]
    shapes = list(answers())
    blocks += [answer(shape, shapes) for shape in shapes if not shape.name.startswith("_")]
    return "\n".join(blocks)


def named_types(table: Object) -> Iterator[tuple[str, str]]:
    """Enumerations and unions of a table's fields, by name: Kotlin has no anonymous ones."""
    for field in used(table):
        name = class_name(field.name)
        if isinstance(field.type, Text) and len(field.type.choices) > 1:
            yield name, enumeration(name, field.about, field.type.choices)
        elif isinstance(field.type, Either):
            yield name, union(name, field, field.type)


def used(table: Object) -> list[Field]:
    """The fields that a program can set, required ones first."""
    fields = [field for field in table.fields if field.use is not Use.NOT_BUILT]
    return sorted(fields, key=lambda field: not field.required)


def enumeration(name: str, about: str, values: Any) -> str:
    """An enumeration of words."""
    rows = "".join(
        f'{comment(f"`{value}`", "    ")}    @SerialName("{value}")\n    {value.upper()},\n\n'
        for value in values
    )
    body = rows.rstrip() + "\n"
    return f"{comment(about)}@Serializable\npublic enum class {name} {{\n{body}}}\n"


def union(name: str, field: Field, kind: Either) -> str:
    """A union of types."""
    types = [kotlin(part, field) for part in alternatives(kind)]
    classes = "\n".join(
        f"{comment(VARIANTS[type_].about, '    ')}"
        f"    public data class {VARIANTS[type_].name}(val value: {type_}) : {name}\n"
        for type_ in types
    )
    rows = "".join(
        f"    variant<{name}, {made}, {type_}>({name}::{made.split('.')[1]}, {made}::value),\n"
        for type_, made in ((type_, f"{name}.{VARIANTS[type_].name}") for type_ in types)
    )
    return (
        f"{comment(field.about)}@Serializable({name}Serializer::class)\n"
        f"public sealed interface {name} {{\n{classes}}}\n\n"
        f"internal object {name}Serializer : "
        f'UnionSerializer<{name}>(\n    "dev.mlcc.{name}",\n{rows})\n'
    )


def part_interface() -> str:
    """The interface that all types of parts implement, and its serializer."""
    rows = "".join(
        f"    variant<{PART}, {name}, {name}>({{ it }}, {{ it }}),\n" for name in PART_TYPES
    )
    return (
        f"{comment(PART_ABOUT)}@Serializable({PART}Serializer::class)\n"
        f"public sealed interface {PART}\n\n"
        f"internal object {PART}Serializer : "
        f'UnionSerializer<{PART}>(\n    "dev.mlcc.{PART}",\n{rows})\n'
    )


def alternatives(kind: Either) -> Iterator[Any]:
    """The types of a union, in the order in which JSON is tried."""
    for part in (kind.plain, kind.array):
        yield from part.shapes if isinstance(part, Custom) else [part]


def request(table: Object, about: str, built: bool) -> str:
    """A request's object; `built`: with a builder for Java."""
    fields = used(table)
    parameters = "".join(
        parameter(field.name, field_type(field), default(field), field_about(field))
        for field in fields
    )
    extra = [shorter_constructor(fields), builder(table.name, fields) if built else ""]
    inside = "\n".join(filter(None, extra))
    body = f" : {PART}" if table.name in PART_TYPES else ""
    body += f" {{\n{inside}}}" if inside else ""
    head = f"{comment(about + unbuilt(table))}@Serializable\npublic data class {table.name}"
    return f"{head}(\n{parameters}){body}\n"


def unbuilt(table: Object) -> str:
    """The sentence of a request's comment on its fields that are not built yet; "" if none."""
    names = [f"`{field.name}`" for field in table.fields if field.use is Use.NOT_BUILT]
    return f" Not built yet, so not here: {', '.join(names)}." if names else ""


def field_type(field: Field) -> str:
    """The type of a field, with `?` unless it is required."""
    return kotlin(field.type, field) + "?" * (not field.required)


def default(field: Field) -> str:
    """The default of a parameter; "" if it is required."""
    kind = field.type.shapes[0] if isinstance(field.type, Custom) else field.type
    if field.required and isinstance(kind, Text) and len(kind.choices) == 1:
        return f'"{kind.choices[0]}"'
    return "" if field.required else "null"


def parameter(name: str, type_: str, value: str, about: str) -> str:
    """A property of a data class."""
    renamed = f'    @SerialName("{name}")\n' if camel(name) != name else ""
    given = f" = {value}" if value else ""
    return f"{comment(about, '    ')}{renamed}    val {camel(name)}: {type_}{given},\n"


def shorter_constructor(fields: list[Field]) -> str:
    """A constructor with a plain text for a union field that is required, or for a message's
    content."""
    for field in fields:
        if isinstance(field.type, Either) and (field.required or field.name == "content"):
            union_name = class_name(field.name)
            required = [other for other in fields if other.required or other is field]
            given = ", ".join(
                f"{camel(other.name)}: {'String' if other is field else field_type(other)}"
                for other in required
            )
            passed = ", ".join(
                f"{union_name}.Text({camel(other.name)})" if other is field else camel(other.name)
                for other in required
            )
            about = comment(f"With a plain text as {camel(field.name)}.", "    ")
            return f"{about}    public constructor({given}) : this({passed})\n"
    return ""


def builder(name: str, fields: list[Field]) -> str:
    """A builder for Java, which has no named arguments."""
    required = [field for field in fields if field.required]
    given = ", ".join(f"{camel(field.name)}: {field_type(field)}" for field in required)
    passed = ", ".join(camel(field.name) for field in required)
    setters = "\n".join(
        f"{comment(field_about(field), ' ' * 8)}        public fun {camel(field.name)}"
        f"(value: {field_type(field)}): Builder =\n"
        f"            apply {{ made = made.copy({camel(field.name)} = value) }}\n"
        for field in fields
        if not field.required
    )
    return (
        f"    /** Sets one field after another, for Java. */\n"
        f"    public class Builder({given}) {{\n"
        f"        private var made = {name}({passed})\n\n{setters}\n"
        f"        /** The request. */\n"
        f"        public fun build(): {name} = made\n    }}\n"
    )


def kotlin(kind: Any, field: Field) -> str:
    """The type of what a JsonType of this field accepts."""
    if isinstance(kind, Number):
        return "Double"
    if isinstance(kind, Integer):
        return "Int" if -INT <= kind.low <= kind.high < INT else "Long"
    if isinstance(kind, Flag):
        return "Boolean"
    if isinstance(kind, Text):
        return class_name(field.name) if len(kind.choices) > 1 else "String"
    if isinstance(kind, Many):
        item = kind.item
        parts = isinstance(item, Custom) and all(isinstance(one, Object) for one in item.shapes)
        return f"List<{PART if parts else kotlin(item, field)}>"
    if isinstance(kind, ByToken):
        return f"Map<Int, {kotlin(kind.item, field)}>"
    if isinstance(kind, Custom):
        return kotlin(kind.shapes[0], field) if len(kind.shapes) == 1 else "JsonElement"
    if isinstance(kind, Either):
        return class_name(field.name)
    if isinstance(kind, Object):
        return kind.name
    assert isinstance(kind, Anything), kind
    return "JsonElement"


def answer(shape: Answer | Alias, shapes: list[Answer | Alias]) -> str:
    """One type of `shapes`, with the fields that it inherits."""
    if isinstance(shape, Alias):
        assert isinstance(shape.type, ast.Subscript), shape.name
        return enumeration(shape.name, shape.about, choices(shape.type))
    shared = [item for base in shapes if base.name in shape.bases for item in members(base)]
    fields = "".join(
        parameter(item.name, nullable(item), "null" * nullable(item).endswith("?"), item.about)
        for item in (*members(shape), *shared)
    )
    return f"{comment(shape.about)}@Serializable\npublic data class {shape.name}(\n{fields})\n"


def members(shape: Answer | Alias) -> Iterator[Member]:
    """Members with more than one possible value."""
    assert isinstance(shape, Answer)
    return (item for item in shape.members if not constant(item.type))


def constant(node: ast.expr) -> bool:
    """Whether only one value has this type."""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
        return len(choices(node)) == 1
    return ast.unparse(node) == "None"


def nullable(member: Member) -> str:
    """The type of a member, with `?` if it may be absent or null."""
    node, absent = member.type, member.optional
    if isinstance(node, ast.BinOp):
        node, absent = node.left, True
    return annotation(node) + "?" * absent


def annotation(node: ast.expr) -> str:
    """A Python type as Kotlin's."""
    if isinstance(node, ast.BinOp):  # with None
        return annotation(node.left) + "?"
    if isinstance(node, ast.Subscript):
        kind = {"list": "List", "dict": "Map"}[ast.unparse(node.value)]
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return f"{kind}<{', '.join(map(annotation, inner))}>"
    word = ast.unparse(node)
    return WORDS.get(word, word)


def camel(name: str) -> str:
    """`max_tokens` as `maxTokens`."""
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def class_name(name: str) -> str:
    """`max_tokens` as `MaxTokens`."""
    return name[0].upper() + camel(name)[1:]
