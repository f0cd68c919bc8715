"""The fields of a message of /v1/chat/completions, and the message that a chat template gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.api.schema.audio_fields import AUDIO_PART, AudioPart, audio_part
from mlcc.api.schema.image_fields import IMAGE_PART, ImagePart, LeftOut, left_out, openai_part
from mlcc.api.schema.schema import (
    NOT_EMPTY,
    Custom,
    Either,
    Flag,
    Json,
    Many,
    Object,
    Text,
    honoured,
    metadata,
    not_built,
    refuse,
)
from mlcc.api.schema.tool_fields import MESSAGE_TOOLS
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.multimodal.placeholders import MediaCollector

ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def _not_text(kind: str, where: str, images: bool = False, sound: bool = False) -> UnsupportedError:
    """images, sound: whether this message may have some."""
    names = ["'text'", *(["'image_url'"] if images else ()), *(["'input_audio'"] if sound else ())]
    built = "'text' is built; send text parts only"
    if len(names) > 1:
        built = f"{', '.join(names[:-1])} and {names[-1]} are built; send parts of these types"
    if kind == "input_audio" and not sound:
        built += ", or load a model that hears, such as Qwen2-Audio"
    return UnsupportedError(
        f"'{where}' is of type {kind[:40]!a}, and only {built}",
        param=f"{where}.type",
        code="unsupported_content_part",
    )


def _content_part(value: Json, where: str) -> str:
    """The text of one content part; a part that is not text is refused by name."""
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in ("text", ""):
        raise _not_text(kind, where)
    return str(TEXT_PART.check(value, where)["text"])


TEXT_PART = Object(
    "TextPart",
    (honoured("type", Text(("text",)), required=True), honoured("text", Text(), required=True)),
)
TEXT_CONTENT = Either(Text(), Many(Custom("a text part", _content_part, (TEXT_PART,)), 1))


class Refused(str):
    """The words of a part in which the assistant refused."""


def _message_part(value: Json, where: str) -> str:
    """The text of one part of a message, an image or a sound; the note for another, which only a
    tool may send."""
    if isinstance(value, ImagePart | AudioPart):  # of another protocol
        return value
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "refusal":
        return Refused(REFUSAL_PART.check(value, where)["refusal"])
    if kind == "image_url":
        return openai_part(value, where)
    if kind == "input_audio":
        return audio_part(value, where)
    if isinstance(kind, str) and kind not in ("text", ""):
        return left_out(kind)
    return _content_part(value, where)


REFUSAL_PART = Object(
    "RefusalPart",
    (
        honoured("type", Text(("refusal",)), required=True),
        honoured("refusal", Text(), required=True),
    ),
)
MESSAGE_CONTENT = Either(
    Text(),
    Many(Custom("a text part", _message_part, (TEXT_PART, IMAGE_PART, AUDIO_PART, REFUSAL_PART))),
)
MESSAGE = Object(
    "Message",
    (
        honoured(
            "role",
            Text(ROLES),
            "Author; developer is another name of system, function an older one of tool.",
            required=True,
        ),
        honoured(
            "content",
            MESSAGE_CONTENT,
            "A text, or parts that are joined: texts, images for a model that sees, and sounds for "
            "one that hears. May be null in an assistant's or a tool's message. A model that "
            "reads text only leaves images and sounds out of a tool's message, and refuses others.",
        ),
        honoured("name", NOT_EMPTY, "Name of the author, for templates that support names."),
        *MESSAGE_TOOLS,
        honoured("reasoning_content", Text(), "The assistant's reasoning before this text."),
        honoured("reasoning", Text(), "Another name of `reasoning_content`."),
        honoured(
            "prefix",
            Flag(),
            "Of an assistant's last message: the answer continues this text and begins with it.",
        ),
        not_built("audio"),
        honoured("refusal", Text(), "Words in which the assistant refused, read as its text."),
        metadata("annotations"),
    ),
)


def messages_of(
    given: Sequence[dict[str, Any]], media: MediaCollector | None = None
) -> tuple[dict[str, Any], ...]:
    """The messages of a conversation for templates, from checked fields. media: takes the images
    and sounds for a model that sees or hears. Raises InvalidRequestError."""
    called: dict[str, str] = {}
    return tuple(
        message_of(_with_tools(message, i, called), f"messages[{i}]", media)
        for i, message in enumerate(given)
    )


def _with_tools(fields: dict[str, Any], number: int, called: dict[str, str]) -> dict[str, Any]:
    """A message with OpenAI's older `function_call`, or of the role `function`, in today's form.
    called: ids of the last call of each function, which has none in the older form."""
    call = fields.get("function_call")
    if call and fields["role"] == "assistant" and not fields.get("tool_calls"):
        called[call["name"]] = new_id = f"call_{number}"
        return {**fields, "tool_calls": [{"id": new_id, "function": call}]}
    if fields["role"] != "function":
        return fields
    if "name" not in fields:
        where = f"messages[{number}].name"
        raise InvalidRequestError(
            f"'{where}' is missing; it must name the function that returned this",
            param=where,
            code="missing_required_parameter",
        )
    known = called.get(fields["name"], f"call_{fields['name']}")
    return {**fields, "role": "tool", "tool_call_id": fields.get("tool_call_id", known)}


def message_of(
    fields: dict[str, Any], where: str, media: MediaCollector | None = None
) -> dict[str, Any]:
    """A message for templates, from checked fields: text content; 'developer' is the newer name of
    'system'. Raises InvalidRequestError for fields that its role does not have."""
    role, calls = fields["role"], fields.get("tool_calls")
    for name in ("tool_calls", "function_call", "refusal"):
        if fields.get(name) and role != "assistant":
            raise _wrong(f"{where}.{name}", "belongs to messages of the role 'assistant'")
    if role == "tool" and "tool_call_id" not in fields:
        raise InvalidRequestError(
            f"'{where}.tool_call_id' is missing; it must name the call that is answered",
            param=f"{where}.tool_call_id",
            code="missing_required_parameter",
        )
    content = _with_refusal(fields)
    thought = fields.get("reasoning_content") or fields.get("reasoning")
    if content is None and role not in ("assistant", "tool"):
        raise InvalidRequestError(
            f"'{where}.content' is missing; it must be {_CONTENT_WANTS}",
            param=f"{where}.content",
            code="missing_required_parameter",
        )
    if content == [] and role != "tool" and not calls:
        raise refuse(TEXT_CONTENT, content, f"{where}.content")
    text = content if isinstance(content, str) else _joined(content or (), role, where, media)
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


def _with_refusal(fields: dict[str, Any]) -> Any:
    """The content, with the words of a refusal, which OpenAI's models send in its place."""
    content, words = fields.get("content"), fields.get("refusal")
    if not words:
        return content
    if isinstance(content, str):
        return "\n".join(filter(None, (content, words)))
    return [*(content or ()), words]


def _joined(parts: Sequence[str], role: str, where: str, media: MediaCollector | None) -> str:
    text, taken = "", media if role != "assistant" else None
    sees, hears = (False, False) if taken is None else (taken.sees, taken.hears)
    for number, part in enumerate(parts):
        if isinstance(part, ImagePart) and taken is not None and sees:
            text += taken.add(part.image())
            continue
        if isinstance(part, AudioPart) and taken is not None and hears:
            text += taken.add(part.sound())
            continue
        if isinstance(part, Refused) and role != "assistant":
            raise _not_text("refusal", f"{where}.content[{number}]", sees, hears)
        if isinstance(part, LeftOut):
            if role != "tool":
                raise _not_text(part.kind, f"{where}.content[{number}]", sees, hears)
            part = ("\n" if text else "") + part.note(sees, hears)
        text += part
    return text


def _wrong(where: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"'{where}' {what}", param=where, code="invalid_value")


_CONTENT_WANTS = next(field.type.wants for field in MESSAGE.fields if field.name == "content")
