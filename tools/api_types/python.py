"""The API's types as Python: `mlcc.types`, for type checkers and editors.

Requests are TypedDicts, which `create` takes as keyword arguments. Answers are classes with
attributes, as programs read them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from textwrap import wrap
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
    field_about,
)

OUT = ROOT / "runtime" / "mlcc" / "types.py"
WIDTH = 100
HEADER = '''\
"""Requests and answers of `Engine` and `AsyncEngine`, for type checkers and editors.

Written by `python -m tools.api_types` from mlcc.api: change that and run it again. At run time an
answer is a `View`, and the classes here describe its attributes; an absent one reads as None.
"""

# fmt: off
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from mlcc.local.view import View

if TYPE_CHECKING:
    from typing_extensions import Required
'''
FIXED = "stream"
"""Not in requests: it selects the overload of `create`."""


def render() -> str:
    """The whole file."""
    blocks = [HEADER, *(request(table, about) for table, about in (*PARTS, *BODIES, *ENCODERS))]
    shapes = list(answers())
    named = {shape.name: shape for shape in shapes if isinstance(shape, Answer)}
    for shape in shapes:
        if isinstance(shape, Alias):
            blocks.append(alias(shape))
        elif not shape.name.startswith("_"):
            blocks.append(answer(shape, named))
    return "\n\n".join(block.rstrip() + "\n" for block in blocks)


def request(table: Object, about: str) -> str:
    """A request's object; a field that is not built is left out."""
    fields = (f for f in table.fields if f.use is not Use.NOT_BUILT and f.name != FIXED)
    members = "".join(member(field) for field in fields)
    return f"class {table.name}(TypedDict, total=False):\n{docstring(about)}\n{members}"


def member(field: Field) -> str:
    """A field of a request with its description. None always means absent."""
    type_ = "object" if field.use is Use.METADATA else python(field.type)
    if field.required:
        type_ = f"Required[{type_}]"
    elif type_ != "object":
        type_ = f"{type_} | None"
    return line(field.name, type_) + docstring(field_about(field))


def python(kind: Any) -> str:
    """The type of what a JsonType accepts."""
    if isinstance(kind, Number):
        return "float"
    if isinstance(kind, Integer):
        return "int"
    if isinstance(kind, Flag):
        return "bool"
    if isinstance(kind, Text):
        return f"Literal[{', '.join(map(quoted, kind.choices))}]" if kind.choices else "str"
    if isinstance(kind, Many):
        return f"Sequence[{python(kind.item)}]"
    if isinstance(kind, ByToken):
        return f"Mapping[str, {python(kind.item)}]"
    if isinstance(kind, Either):
        return union(python(kind.plain), python(kind.array))
    if isinstance(kind, Custom):
        return union(*map(python, kind.shapes))
    if isinstance(kind, Object):
        return kind.name
    assert isinstance(kind, Anything), kind
    return "object"


def union(*types: str) -> str:
    """A union, each type once; object alone accepts all."""
    return "object" if "object" in types else " | ".join(dict.fromkeys(types))


def quoted(text: str) -> str:
    return f'"{text}"'


def alias(shape: Alias) -> str:
    """A name of a type."""
    return f"{shape.name} = {annotation(shape.type)}\n{docstring(shape.about, '')}"


def answer(shape: Answer, named: dict[str, Answer]) -> str:
    """A class of an answer, with the fields that it inherits."""
    fields = "".join(
        line(item.name, annotation(item.type) + " | None" * item.optional) + docstring(item.about)
        for item in members(shape, named)
    )
    return f"class {shape.name}(View):\n{docstring(shape.about)}\n{fields}"


def members(shape: Answer, named: dict[str, Answer]) -> Iterator[Any]:
    """The members of a class and of its bases."""
    yield from shape.members
    for base in shape.bases:
        yield from members(named[base], named)


def annotation(node: ast.expr) -> str:
    """A Python type as it is, strings in double quotes."""
    return ast.unparse(node).replace("'", '"')


def line(name: str, type_: str) -> str:
    """A field; a long union or literal is broken after its commas and bars."""
    whole = f"    {name}: {type_}"
    if len(whole) <= WIDTH:
        return whole + "\n"
    words = wrap(type_, WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    inner = "".join(f"        {word}\n" for word in words)
    return f"    {name}: (\n{inner}    )\n"


def docstring(text: str, indent: str = "    ") -> str:
    """A docstring; "" for no text."""
    words = " ".join(text.split()).replace("\\", "\\\\")
    if not words:
        return ""
    if len(indent) + len(words) + 6 <= WIDTH:
        return f'{indent}"""{words}"""\n'
    lines = wrap(words, WIDTH - len(indent) - 3)
    lines[0] = f'"""{lines[0]}'
    if len(indent) + len(lines[-1]) + 3 > WIDTH:
        return "".join(f"{indent}{each}\n" for each in lines) + f'{indent}"""\n'
    return "".join(f"{indent}{each}\n" for each in lines[:-1]) + f'{indent}{lines[-1]}"""\n'
