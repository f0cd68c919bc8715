"""Writes `web/src/api.ts`: the API's requests and answers as TypeScript, from the one schema.

    python web/tools/api_types.py

Requests come from the tables of `mlcc.api.fields`, answers from the classes of `mlcc.api.shapes`.
Types are as exact as TypeScript allows; bounds of numbers stay in comments and are checked by the
engine. Not called types.py: beside a script of that name Python's own module would not be found.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any

from mlcc.api import shapes
from mlcc.api.fields import CHAT, COMPLETION, MESSAGE, STREAM_OPTIONS, TEXT_PART
from mlcc.api.schema import Field, Object, Use
from mlcc.api.types import Anything, Custom, Either, Flag, Integer, Many, Number, Text

OUT = Path(__file__).parents[1] / "src" / "api.ts"
HEADER = """\
// Written by web/tools/api_types.py from runtime/mlcc/api: change those and run it again.

/**
 * Requests and answers of the API: what `fetch('/v1/...')` takes and gives, in a tab or elsewhere.
 *
 * Not OpenAI's whole API: a field that is not built yet accepts only what changes nothing.
 */
"""
NOT_BUILT = "Not built yet: accepted only with a value that changes nothing."
METADATA = "Accepted; never changes an answer."
COMMENT_WIDTH = 96
WORDS = {"str": "string", "int": "number", "float": "number", "bool": "boolean", "None": "null"}


def render() -> str:
    """The whole file."""
    blocks = [HEADER]
    blocks += [interface(table) for table in (TEXT_PART, MESSAGE, STREAM_OPTIONS)]
    for table in (CHAT, COMPLETION):
        blocks += [interface(table), *overloads(table.name)]
    return "\n".join([*blocks, *answers()])


def interface(table: Object) -> str:
    """A request's object."""
    names = {
        CHAT.name: "The body of POST /v1/chat/completions.",
        COMPLETION.name: "The body of POST /v1/completions.",
        MESSAGE.name: "One message of a conversation.",
        TEXT_PART.name: "A part of a message.",
        STREAM_OPTIONS.name: "How a stream is sent.",
    }
    members = "".join(member(field) for field in table.fields)
    return f"{comment(names[table.name])}export interface {table.name} {{\n{members}}}\n"


def overloads(name: str) -> Iterator[str]:
    """The same request, known to be streamed or known not to be: for overloads of a function."""
    for suffix, stream in (
        ("Streaming", "stream: true"),
        ("NonStreaming", "stream?: false | null"),
    ):
        yield f"export interface {name}{suffix} extends {name} {{\n  {stream};\n}}\n"


def member(field: Field) -> str:
    """A field of a request, with what it means. `null` always means absent."""
    if field.use is Use.HONOURED:
        text, type_ = f"{field.about} {bounds(field.type)}".strip(), typescript(field.type)
    elif field.use is Use.METADATA:
        text, type_ = METADATA, "unknown"
    else:
        text, type_ = NOT_BUILT, " | ".join(literal(value) for value in field.neutral)
    if not field.required:
        type_ = type_ if type_ == "unknown" else " | ".join(filter(None, (type_, "null")))
    mark = "" if field.required else "?"
    return comment(text, "  ") + f"  {field.name}{mark}: {type_};\n"


def typescript(kind: Any) -> str:
    """The type of what a JsonType accepts."""
    if isinstance(kind, (Number, Integer)):
        return "number"
    if isinstance(kind, Flag):
        return "boolean"
    if isinstance(kind, Text):
        return " | ".join(map(literal, kind.choices)) or "string"
    if isinstance(kind, Many):
        item = typescript(kind.item)
        return f"readonly ({item})[]" if " " in item else f"readonly {item}[]"
    if isinstance(kind, Either):
        return f"{typescript(kind.plain)} | {typescript(kind.array)}"
    if isinstance(kind, Custom):
        return " | ".join(map(typescript, kind.shapes))
    if isinstance(kind, Object):
        return kind.name
    assert isinstance(kind, Anything), kind
    return "unknown"


def bounds(kind: Any) -> str:
    """Those of a number, if they are ones to know."""
    if not isinstance(kind, (Number, Integer)) or not -math.inf < kind.low <= kind.high < 1000:
        return ""
    return f"From {kind.low:g} to {kind.high:g}."


def literal(value: Any) -> str:
    """The type that has this one value."""
    if isinstance(value, dict):
        inner = "; ".join(f"{key}: {literal(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "Record<string, never>"
    if isinstance(value, list):
        return f"readonly [{', '.join(map(literal, value))}]"
    return f"'{value}'" if isinstance(value, str) else json.dumps(value)


def answers() -> Iterator[str]:
    """The classes and aliases of `shapes`, in their order, read from its source."""
    body = ast.parse(Path(shapes.__file__).read_text(encoding="utf-8")).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef):
            yield answer(node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            alias = f"export type {node.target.id} = {annotation(node.value)};\n"
            yield comment(docstring(after)) + alias


def answer(node: ast.ClassDef) -> str:
    """One TypedDict; a name with _ is shared by others and not exported."""
    partial = any(word.arg == "total" for word in node.keywords)
    export = "" if node.name.startswith("_") else "export "
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    extends = "".join(f" extends {base.lstrip('_')}" for base in bases if base != "TypedDict")
    members = []
    for item, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            mark = "?" if partial else ""
            type_ = annotation(item.annotation)
            members.append(
                comment(docstring(after), "  ") + f"  {item.target.id}{mark}: {type_};\n"
            )
    head = comment(ast.get_docstring(node) or "")
    return f"{head}{export}interface {node.name.lstrip('_')}{extends} {{\n{''.join(members)}}}\n"


def annotation(node: ast.expr) -> str:
    """A Python type as TypeScript's."""
    if isinstance(node, ast.BinOp):
        return f"{annotation(node.left)} | {annotation(node.right)}"
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        if node.value.id == "list":
            return f"{annotation(node.slice)}[]"
        assert node.value.id == "Literal", ast.dump(node)
        choices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return " | ".join(literal(ast.literal_eval(choice)) for choice in choices)
    word = ast.unparse(node)
    return WORDS.get(word, word)


def docstring(node: ast.stmt | None) -> str:
    """The text, if the statement is one."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return ""


def comment(text: str, indent: str = "") -> str:
    """A doc comment on lines of its own; "" for no text."""
    words = " ".join(text.split())
    if not words:
        return ""
    if len(lines := wrap(words, COMMENT_WIDTH - len(indent) - 4)) == 1:
        return f"{indent}/** {lines[0]} */\n"
    middle = "".join(f"{indent} * {line}\n" for line in lines)
    return f"{indent}/**\n{middle}{indent} */\n"


if __name__ == "__main__":
    OUT.write_text(render(), encoding="utf-8")
    print(f"wrote {OUT}")
