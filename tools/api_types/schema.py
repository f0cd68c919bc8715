"""What every language's types are printed from, and how their comments are written.

Requests are the tables of `mlcc.api.schema.chat_fields`; answers are the classes of
`mlcc.api.openai.shapes`, read from their source, because the comments there are those of the types.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from mlcc.api.openai import shapes
from mlcc.api.openai.embeddings import EMBEDDING, RERANK, RERANK_DOCUMENT, SCORE
from mlcc.api.schema.chat_fields import (
    CHAT,
    COMPLETION,
    MESSAGE,
    PREDICTION_CONTENT,
    STREAM_OPTIONS,
    TEXT_PART,
    THINKING_SWITCH,
)
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
    (RERANK_DOCUMENT, "A document that is ranked."),
    (RERANK, "The body of POST /v1/rerank."),
)
"""What encoders are asked, which a tab and a server answer."""
PARTS = (
    (TEXT_PART, "A part of a message."),
    (CALLED_FUNCTION, "What a message's call calls."),
    (TOOL_CALL, "A call of a tool that an assistant's message made."),
    (TOOL_FUNCTION, "A function that the model may call."),
    (TOOL, "A tool that the model may call."),
    (NAMED_FUNCTION, "A function of `tools`, by its name."),
    (NAMED_TOOL, "The tool to call."),
    (ALLOWED, "Which of `tools` may be called."),
    (ALLOWED_TOOLS, "A choice among some of `tools`."),
    (THINKING_SWITCH, "Whether and how long the model thinks."),
    (MESSAGE, "One message of a conversation."),
    (STREAM_OPTIONS, "How a stream is sent."),
    (PREDICTION_CONTENT, "What an answer is foretold to be."),
    (JSON_SCHEMA_FORMAT, "A schema of JSON, as OpenAI's API has it."),
    (RESPONSE_FORMAT, "What kind of text an answer is."),
    (STRUCTURED_OUTPUTS, "What an answer must be, as vLLM's API has it: one of these."),
)
NOT_BUILT = "Not built yet: accepted only with a value that changes nothing."
METADATA = "Accepted; never changes an answer."
COMMENT_WIDTH = 96


@dataclass(frozen=True)
class Member:
    """A field of an answer. `type` is Python's annotation."""

    name: str
    type: ast.expr
    about: str
    optional: bool


@dataclass(frozen=True)
class Answer:
    """A class of `shapes`. A name with _ is shared by others and not for users."""

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
    """What a field of a request means, with the bounds of a number."""
    if field.use is Use.HONOURED:
        return f"{field.about} {bounds(field.type)}".strip()
    return METADATA if field.use is Use.METADATA else NOT_BUILT


def bounds(kind: Any) -> str:
    """Those of a number, if they are ones to know."""
    if not isinstance(kind, (Number, Integer)) or not -math.inf < kind.low <= kind.high < 1000:
        return ""
    return f"From {kind.low:g} to {kind.high:g}."


def answers() -> Iterator[Answer | Alias]:
    """The classes and aliases of `shapes`, in their order."""
    for node, about in documented(
        ast.parse(Path(shapes.__file__).read_text(encoding="utf-8")).body
    ):
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
    """Each statement with the text that follows it."""
    for node, after in zip(body, [*body[1:], None], strict=True):
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        yield node, str(after.value.value) if is_text else ""  # type: ignore[union-attr]


def choices(node: ast.Subscript) -> list[Any]:
    """The values of a Literal."""
    values = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return [ast.literal_eval(value) for value in values]


def comment(text: str, indent: str = "") -> str:
    """A doc comment on lines of its own; "" for no text."""
    words = " ".join(text.split())
    if not words:
        return ""
    if len(lines := wrap(words, COMMENT_WIDTH - len(indent) - 4)) == 1:
        return f"{indent}/** {lines[0]} */\n"
    middle = "".join(f"{indent} * {line}\n" for line in lines)
    return f"{indent}/**\n{middle}{indent} */\n"
