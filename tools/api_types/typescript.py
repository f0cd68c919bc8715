"""The API's types as TypeScript: `web/src/api.ts`.

Types are as exact as TypeScript allows; bounds of numbers stay in comments and are checked by the
engine.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any

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
    ENCODERS,
    PARTS,
    ROOT,
    Alias,
    Answer,
    answers,
    choices,
    comment,
    field_about,
)

OUT = ROOT / "web" / "src" / "api.ts"
HEADER = """\
// Written by `python -m tools.api_types` from runtime/mlcc/api: change that and run it again.

/**
 * Requests and answers of the API: bodies of `fetch('/v1/...')`, in a tab or elsewhere.
 *
 * Not OpenAI's whole API: a field that is not built yet accepts only values without an effect.
 */
"""
WORDS = {"str": "string", "int": "number", "float": "number", "bool": "boolean", "None": "null"}


def render() -> str:
    """The whole file."""
    blocks = [HEADER, *(interface(table, about) for table, about in PARTS)]
    for table, about in BODIES:
        blocks += [interface(table, about), *overloads(table.name)]
    blocks += [interface(table, about) for table, about in ENCODERS]
    return "\n".join([*blocks, *map(answer, answers())])


def interface(table: Object, about: str) -> str:
    """A request's object."""
    members = "".join(member(field) for field in table.fields)
    return f"{comment(about)}export interface {table.name} {{\n{members}}}\n"


def overloads(name: str) -> Iterator[str]:
    """The request with a fixed `stream`: for overloads of a function."""
    for suffix, stream in (
        ("Streaming", "stream: true"),
        ("NonStreaming", "stream?: false | null"),
    ):
        yield f"export interface {name}{suffix} extends {name} {{\n  {stream};\n}}\n"


def member(field: Field) -> str:
    """A field of a request with its description. `null` always means absent."""
    if field.use is Use.HONOURED:
        type_ = typescript(field.type)
    elif field.use is Use.METADATA:
        type_ = "unknown"
    else:
        type_ = " | ".join(literal(value) for value in field.neutral)
    if not field.required:
        type_ = type_ if type_ == "unknown" else " | ".join(filter(None, (type_, "null")))
    mark = "" if field.required else "?"
    return comment(field_about(field), "  ") + f"  {field.name}{mark}: {type_};\n"


def typescript(kind: Any) -> str:
    """The TypeScript type of a JsonType."""
    if isinstance(kind, (Number, Integer)):
        return "number"
    if isinstance(kind, Flag):
        return "boolean"
    if isinstance(kind, Text):
        return " | ".join(map(literal, kind.choices)) or "string"
    if isinstance(kind, Many):
        item = typescript(kind.item)
        return f"readonly ({item})[]" if " " in item else f"readonly {item}[]"
    if isinstance(kind, ByToken):
        return f"Readonly<Record<number, {typescript(kind.item)}>>"
    if isinstance(kind, Either):
        return f"{typescript(kind.plain)} | {typescript(kind.array)}"
    if isinstance(kind, Custom):
        return " | ".join(map(typescript, kind.shapes))
    if isinstance(kind, Object):
        return kind.name
    assert isinstance(kind, Anything), kind
    return "unknown"


def literal(value: Any) -> str:
    """The type with this single value."""
    if isinstance(value, dict):
        inner = "; ".join(f"{key}: {literal(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "Record<string, never>"
    if isinstance(value, list):
        return f"readonly [{', '.join(map(literal, value))}]"
    return f"'{value}'" if isinstance(value, str) else json.dumps(value)


def answer(shape: Answer | Alias) -> str:
    """One type of `shapes`."""
    if isinstance(shape, Alias):
        return f"{comment(shape.about)}export type {shape.name} = {annotation(shape.type)};\n"
    export = "" if shape.name.startswith("_") else "export "
    extends = "".join(f" extends {base.lstrip('_')}" for base in shape.bases)
    members = "".join(
        f"{comment(item.about, '  ')}  {item.name}{'?' * item.optional}: {annotation(item.type)};\n"
        for item in shape.members
    )
    head = f"{comment(shape.about)}{export}interface {shape.name.lstrip('_')}"
    return f"{head}{extends} {{\n{members}}}\n"


def annotation(node: ast.expr) -> str:
    """A Python type as TypeScript's."""
    if isinstance(node, ast.BinOp):
        return f"{annotation(node.left)} | {annotation(node.right)}"
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        if node.value.id == "list":
            item = annotation(node.slice)
            return f"({item})[]" if " | " in item else f"{item}[]"
        if node.value.id == "dict":
            assert isinstance(node.slice, ast.Tuple), ast.dump(node)
            return f"Record<{', '.join(map(annotation, node.slice.elts))}>"
        assert node.value.id == "Literal", ast.dump(node)
        return " | ".join(map(literal, choices(node)))
    word = ast.unparse(node)
    return WORDS.get(word, word)
