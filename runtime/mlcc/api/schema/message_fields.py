"""The fields of one message of a conversation, and what templates get of it."""

from __future__ import annotations

from typing import Any

from mlcc.api.schema.schema import Object, honoured, metadata, not_built
from mlcc.api.schema.tool_fields import MESSAGE_TOOLS
from mlcc.api.schema.types import Custom, Either, Flag, Json, Many, Text
from mlcc.errors import InvalidRequestError, UnsupportedError

NOT_EMPTY = Text(allow_empty=False)
ROLES = ("system", "developer", "user", "assistant", "tool")


def _content_part(value: Json, where: str) -> str:
    """The text of one content part; a part that is not text is refused by name."""
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in ("text", ""):
        raise UnsupportedError(
            f"'{where}' is of type {kind[:40]!a}, and only 'text' is built; send text parts only",
            param=f"{where}.type",
            code="unsupported_content_part",
        )
    return str(TEXT_PART.check(value, where)["text"])


TEXT_PART = Object(
    "TextPart",
    (honoured("type", Text(("text",)), required=True), honoured("text", Text(), required=True)),
)
TEXT_CONTENT = Either(Text(), Many(Custom("a text part", _content_part, (TEXT_PART,)), 1))
MESSAGE = Object(
    "Message",
    (
        honoured(
            "role",
            Text(ROLES),
            "Who says it; developer is another name of system.",
            required=True,
        ),
        honoured(
            "content",
            TEXT_CONTENT,
            "What is said: a text, or texts that are joined. May be null beside `tool_calls`.",
        ),
        honoured("name", NOT_EMPTY, "Who of several speaks, for templates that know names."),
        *MESSAGE_TOOLS,
        honoured("reasoning_content", Text(), "What an assistant thought before it said this."),
        honoured("reasoning", Text(), "Another name of `reasoning_content`."),
        honoured(
            "prefix",
            Flag(),
            "Of a last message of the assistant's: the answer begins with it, and goes on where it "
            "ends.",
        ),
        not_built("audio"),
        not_built("refusal", ""),
        metadata("annotations"),
    ),
)


def message_of(fields: dict[str, Any], where: str) -> dict[str, Any]:
    """A message as templates want it, of checked fields: text content; 'developer' is the newer
    name of 'system'. Raises InvalidRequestError for what its role does not have."""
    role, calls = fields["role"], fields.get("tool_calls")
    if calls and role != "assistant":
        raise _wrong(f"{where}.tool_calls", "belongs to messages of the role 'assistant'")
    if role == "tool" and not fields.get("tool_call_id"):
        raise InvalidRequestError(
            f"'{where}.tool_call_id' is missing; it must name the call that is answered",
            param=f"{where}.tool_call_id",
            code="missing_required_parameter",
        )
    content = fields.get("content")
    thought = fields.get("reasoning_content") or fields.get("reasoning")
    if content is None and not (role == "assistant" and (calls or thought)):
        raise InvalidRequestError(
            f"'{where}.content' is missing; it must be {_CONTENT_WANTS}",
            param=f"{where}.content",
            code="missing_required_parameter",
        )
    text = content if isinstance(content, str) else "".join(content or ())
    made: dict[str, Any] = {"role": "system" if role == "developer" else role, "content": text}
    if fields.get("prefix"):
        if role != "assistant" or calls:
            raise _wrong(f"{where}.prefix", "belongs to text of the role 'assistant'")
        made["prefix"] = True
    made |= {name: fields[name] for name in ("name", "tool_call_id") if name in fields}
    if thought and role == "assistant":
        made["reasoning_content"] = thought
    if calls:
        made["tool_calls"] = [{"type": "function", **call} for call in calls]
    return made


def _wrong(where: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"'{where}' {what}", param=where, code="invalid_value")


_CONTENT_WANTS = next(field.type.wants for field in MESSAGE.fields if field.name == "content")
