"""The source of all printed types, and the format of their comments.

Requests are the tables of `mlcc.api.schema.chat_fields`; responses are the classes of
`mlcc.api.openai.shapes`, parsed from their source, because its docstrings become comments.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from types import ModuleType
from typing import Any

from mlcc.api.openai import shapes
from mlcc.api.openai.embeddings import CLASSIFY, EMBEDDING, RERANK, RERANK_DOCUMENT, SCORE
from mlcc.api.schema.audio_fields import AUDIO_PART, INPUT_AUDIO
from mlcc.api.schema.chat_fields import (
    CHAT,
    COMPLETION,
    PREDICTION_CONTENT,
    STREAM_OPTIONS,
    THINKING_SWITCH,
)
from mlcc.api.schema.image_fields import IMAGE_PART, IMAGE_URL
from mlcc.api.schema.message_fields import MESSAGE, REFUSAL_PART, TEXT_PART
from mlcc.api.schema.schema import Field, Integer, Number, Use
from mlcc.api.schema.structured_output import (
    JSON_SCHEMA_FORMAT,
    RESPONSE_FORMAT,
    STRUCTURED_OUTPUTS,
)
from mlcc.api.schema.tool_fields import (
    ALLOWED,
    ALLOWED_TOOLS,
    CALLED_FUNCTION,
    NAMED_FUNCTION,
    NAMED_TOOL,
    TOOL,
    TOOL_CALL,
    TOOL_FUNCTION,
)

ROOT = Path(__file__).parents[2]
BODIES = (
    (CHAT, "The body of POST /v1/chat/completions."),
    (COMPLETION, "The body of POST /v1/completions."),
)
ENCODERS = (
    (EMBEDDING, "The body of POST /v1/embeddings."),
    (SCORE, "The body of POST /v1/score."),
    (CLASSIFY, "The body of POST /classify."),
    (RERANK_DOCUMENT, "A document that is ranked."),
    (RERANK, "The body of POST /v1/rerank."),
)
"""Requests of encoders, for tabs and servers."""
PARTS = (
    (TEXT_PART, "A part of a message."),
    (IMAGE_URL, "An image, and how closely the model looks at it."),
    (IMAGE_PART, "A part of a message: an image, for a model that sees."),
    (INPUT_AUDIO, "A sound in the bytes of its file."),
    (AUDIO_PART, "A part of a message: a sound, for a model that hears."),
    (REFUSAL_PART, "A part of an assistant's message: words in which it refused."),
    (CALLED_FUNCTION, "The function of a call."),
    (TOOL_CALL, "A tool call in an assistant's message."),
    (TOOL_FUNCTION, "A function that the model may call."),
    (TOOL, "A tool that the model may call."),
    (NAMED_FUNCTION, "A function of `tools`, by its name."),
    (NAMED_TOOL, "The tool to call."),
    (ALLOWED, "The allowed ones of `tools`."),
    (ALLOWED_TOOLS, "A choice among some of `tools`."),
    (THINKING_SWITCH, "Whether and how long the model reasons."),
    (MESSAGE, "One message of a conversation."),
    (STREAM_OPTIONS, "Options of a stream."),
    (PREDICTION_CONTENT, "Predicted content of an answer."),
    (JSON_SCHEMA_FORMAT, "A JSON Schema, in OpenAI's form."),
    (RESPONSE_FORMAT, "Format of an answer."),
    (STRUCTURED_OUTPUTS, "Constraints on an answer in vLLM's form: one of these."),
)
NOT_BUILT = "Not built yet: accepted only with a value that has no effect."
METADATA = "Accepted; never affects an answer."
COMMENT_WIDTH = 96


@dataclass(frozen=True)
class Member:
    """A field of a response. `type` is Python's annotation."""

    name: str
    type: ast.expr
    about: str
    optional: bool


@dataclass(frozen=True)
class Answer:
    """A class of `shapes`. A name with _ is a base of others and not public."""

    name: str
    about: str
    bases: tuple[str, ...]
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Alias:
    """A name of `shapes` for a type."""

    name: str
    about: str
    type: ast.expr


def field_about(field: Field) -> str:
    """The description of a request field, with the bounds of a number."""
    if field.use is Use.HONOURED:
        return f"{field.about} {bounds(field.type)}".strip()
    return METADATA if field.use is Use.METADATA else NOT_BUILT


def bounds(kind: Any) -> str:
    """The bounds of a number, if they matter to users."""
    if not isinstance(kind, (Number, Integer)) or not -math.inf < kind.low <= kind.high < 1000:
        return ""
    return f"From {kind.low:g} to {kind.high:g}."


def answers(module: ModuleType = shapes) -> Iterator[Answer | Alias]:
    """The classes and aliases of a module of response types, in their order."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    for node, about in documented(ast.parse(source).body):
        if isinstance(node, ast.ClassDef):
            yield answer(node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield Alias(node.target.id, about, node.value)


def answer(node: ast.ClassDef) -> Answer:
    """One TypedDict."""
    partial = any(word.arg == "total" for word in node.keywords)
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    return Answer(
        node.name,
        ast.get_docstring(node) or "",
        tuple(base for base in bases if base != "TypedDict"),
        tuple(
            Member(item.target.id, item.annotation, about, partial)
            for item, about in documented(node.body)
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        ),
    )


def documented(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Each statement with the docstring that follows it."""
    for node, after in zip(body, [*body[1:], None], strict=True):
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        yield node, str(after.value.value) if is_text else ""  # type: ignore[union-attr]


def choices(node: ast.Subscript) -> list[Any]:
    """The values of a Literal."""
    values = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return [ast.literal_eval(value) for value in values]


def comment(text: str, indent: str = "") -> str:
    """A doc comment on its own lines; "" for no text."""
    words = " ".join(text.split())
    if not words:
        return ""
    if len(lines := wrap(words, COMMENT_WIDTH - len(indent) - 4)) == 1:
        return f"{indent}/** {lines[0]} */\n"
    middle = "".join(f"{indent} * {line}\n" for line in lines)
    return f"{indent}/**\n{middle}{indent} */\n"
