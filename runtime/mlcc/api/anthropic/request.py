"""Translates a body of /v1/messages, or of its count_tokens, to one of /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.api.anthropic.fields import (
    BLOCK,
    COUNT_TOKENS,
    MESSAGES,
    OWN_NAMES,
    TEXT_COUNT_TOKENS,
    TEXT_MESSAGES,
    TEXTS,
)
from mlcc.api.openai.message_merging import (
    Content,
    MessageMerger,
    as_text,
    content_of,
    joined_parts,
    noted_parts,
)
from mlcc.api.parsers.opaque_reasoning import unpacked
from mlcc.api.schema.chat_fields import (
    SAMPLING,
)
from mlcc.api.schema.field_names import AS_SENT, FieldNames
from mlcc.api.schema.image_fields import base64_part, left_out
from mlcc.api.schema.modalities import TEXT_ONLY, Modalities
from mlcc.api.schema.schema import Json
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.util.fast_dataclass import fast_dataclass

BILLING = "x-anthropic-billing-header:"
"""Claude Code begins the system text with this billing line. It differs from request to request, so
that no prompt would be found in the prefix cache."""
_FORMAT_NAME = "answer"


@fast_dataclass(frozen=True)
class MessagesRequest:
    """A translated request, and how to present its answer."""

    chat: dict[str, Any]
    """The body for /v1/chat/completions; always streamed, with usage."""
    stream: bool = False
    thinks: bool = False
    """Whether the answer includes its reasoning."""
    shows: bool = True
    """Whether reasoning is sent as text."""
    names: FieldNames = AS_SENT
    """Names of the chat's fields in the request."""


def parse_messages(body: Json, reads: Modalities = TEXT_ONLY) -> MessagesRequest:
    """Translate a request. reads: what the model reads beside text. Raises InvalidRequestError or
    UnsupportedError naming the field."""
    fields = (MESSAGES if reads.images else TEXT_MESSAGES).check(body, "")
    chat = _prompt(fields, reads)
    last = chat["messages"][-1]
    if last["role"] == "assistant" and not last.get("tool_calls"):
        last["prefix"] = True  # Anthropic's models go on from a last message of theirs
    chat["max_tokens"] = fields["max_tokens"]
    if stops := fields.get("stop_sequences"):
        chat["stop"] = stops
    for row in SAMPLING:
        if row.name in fields and row.name not in OWN_NAMES:
            chat[row.name] = fields[row.name]
    chat |= {"stream": True, "stream_options": {"include_usage": True}}
    thinking = fields.get("thinking") or {"type": "disabled"}
    return MessagesRequest(
        chat,
        fields.get("stream", False),
        thinking["type"] != "disabled",
        thinking.get("display") != "omitted",
        _names(fields),
    )


def _names(fields: Mapping[str, Any]) -> FieldNames:
    format = "output_format" if fields.get("output_format") else "output_config.format"
    custom = [i for i, tool in enumerate(fields.get("tools", ())) if tool["type"] == "custom"]
    return FieldNames(
        {
            "stop": "stop_sequences",
            "thinking_budget": "thinking.budget_tokens",
            "response_format.json_schema": format,
            "response_format": format,
            **{
                f"tools[{n}].function.parameters": f"tools[{i}].input_schema"
                for n, i in enumerate(custom)
            },
            **{f"tools[{n}].function": f"tools[{i}]" for n, i in enumerate(custom)},
        }
    )


def parse_count(body: Json, reads: Modalities = TEXT_ONLY) -> dict[str, Any]:
    """A request to count a prompt, as the body of a chat. Raises as `parse_messages`."""
    return _prompt((COUNT_TOKENS if reads.images else TEXT_COUNT_TOKENS).check(body, ""), reads)


def _prompt(fields: Mapping[str, Any], reads: Modalities) -> dict[str, Any]:
    merger = MessageMerger()
    merger.system(_system(fields.get("system") or ""))
    for number, message in enumerate(fields["messages"]):
        _say(merger, message, f"messages[{number}]", reads)
    if not merger.messages:
        raise InvalidRequestError(
            "'messages' has no text; send a message of the user with content",
            param="messages",
            code="invalid_value",
        )
    chat = {"model": fields["model"], "messages": merger.messages}
    return {**chat, **_tools(fields), **_thinking(fields), **_format(fields)}


def _system(given: str | list[dict[str, Any]]) -> str:
    texts = [given] if isinstance(given, str) else [block["text"] for block in given]
    return joined_parts([text for text in texts if not text.startswith(BILLING)])


def _say(merger: MessageMerger, message: Mapping[str, Any], where: str, reads: Modalities) -> None:
    role, content = message["role"], message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts: list[str] = []
    for number, block in enumerate(blocks):
        kind, place = block["type"], f"{where}.content[{number}]"
        if kind in TEXTS or (kind == "image" and role == "user"):
            found = _parts(block, place)
            texts += found if role == "user" else [noted_parts(found, reads)]
            continue
        if kind not in BLOCK.kinds and role == "assistant":
            continue
        if kind not in BLOCK.kinds:
            raise UnsupportedError(
                f"'{where}.content[{number}]' is of type {kind[:40]!a}, which is not built; send "
                "its text as a block of the type 'text'",
                param=f"{where}.content[{number}].type",
                code="unsupported_value",
            )
        of_user = kind in ("tool_result", "image")
        if role != ("user" if of_user else "assistant"):
            raise InvalidRequestError(
                f"'{where}.content[{number}]' is of type '{kind}', which messages of the role "
                f"'{role}' do not have; send it in the other's",
                param=f"{where}.content[{number}].type",
                code="invalid_value",
            )
        if texts:
            _say_texts(merger, role, texts, reads)
            texts = []
        if kind == "tool_result":
            merger.result(block["tool_use_id"], _result(block, place, reads))
        elif kind == "tool_use":
            merger.call(block["id"], block["name"], as_text(block.get("input")))
        elif kind == "thinking":
            merger.reasoning(block["thinking"] or unpacked(block.get("signature", "")))
    if texts:
        _say_texts(merger, role, texts, reads)


def _say_texts(merger: MessageMerger, role: str, texts: list[str], reads: Modalities) -> None:
    if role == "assistant":
        merger.assistant("".join(texts))
    elif role == "system":
        merger.system(joined_parts(texts))
    else:
        merger.user(content_of(texts, reads))


def _parts(block: Mapping[str, Any], where: str) -> list[str]:
    """The text of a block, or its image; of a document what is in it, between its tags; of a block
    that a tool's result alone may have, a note."""
    kind = block["type"]
    if kind == "image" and "source" in block:
        return [base64_part(kind, block["source"]["data"], f"{where}.source.data")]
    if kind == "text":
        return [str(block["text"])]
    source = block if kind == "search_result" else block.get("source", {})
    given = source.get("data", source.get("content"))
    if given is None:
        return [left_out(kind)]
    place = f"{where}.content" if kind == "search_result" else f"{where}.source.content"
    blocks = [{"type": "text", "text": given}] if isinstance(given, str) else given
    inner = [part for n, each in enumerate(blocks) for part in _parts(each, f"{place}[{n}]")]
    names = ("title", "context") if kind == "document" else ("source", "title")
    about = [f"{name}: {block[name]}" for name in names if block.get(name)]
    return [joined_parts([f"<{kind}>", *about]), *inner, f"</{kind}>"]


def _result(block: Mapping[str, Any], where: str, reads: Modalities) -> Content:
    given = block.get("content") or ""
    parts = [{"type": "text", "text": given}] if isinstance(given, str) else given
    places = [f"{where}.content[{number}]" for number in range(len(parts))]
    found = [_parts(part, place) for part, place in zip(parts, places, strict=True)]
    content = content_of([text for texts in found for text in texts], reads)
    if not block.get("is_error"):
        return content
    if isinstance(content, str):
        return f"Error: {content}"
    return [{"type": "text", "text": "Error: "}, *content]


def _tools(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The tools that the model may call, and the choice among them."""
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "parameters": tool.get("input_schema"),
                **{name: tool[name] for name in ("description", "strict") if name in tool},
            },
        }
        for tool in fields.get("tools", ())
        if tool["type"] == "custom"
    ]
    choice = fields.get("tool_choice")
    if choice and choice["type"] in ("any", "tool") and not tools:
        raise InvalidRequestError(
            "'tool_choice' wants a tool called, and 'tools' has none that can be",
            param="tool_choice",
            code="invalid_value",
        )
    if not tools:
        return {}
    found: dict[str, Any] = {"tools": tools}
    if choice:
        found["tool_choice"] = {"auto": "auto", "any": "required", "none": "none"}.get(
            choice["type"], {"type": "function", "function": {"name": choice.get("name")}}
        )
        if choice.get("disable_parallel_tool_use"):
            found["parallel_tool_calls"] = False
    return found


def _thinking(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Reasoning is off unless the request turns it on, as with Anthropic's models."""
    thinking = fields.get("thinking") or {"type": "disabled"}
    effort = (fields.get("output_config") or {}).get("effort")
    if thinking["type"] == "disabled":
        return {"enable_thinking": False}
    found: dict[str, Any] = {"enable_thinking": True}
    if "budget_tokens" in thinking:
        found["thinking_budget"] = thinking["budget_tokens"]
    return {**found, "reasoning_effort": effort} if effort else found


def _format(fields: Mapping[str, Any]) -> dict[str, Any]:
    config, older = fields.get("output_config") or {}, fields.get("output_format")
    if config.get("format") and older:
        raise InvalidRequestError(
            "'output_format' is the older name of 'output_config.format'; send one of them",
            param="output_format",
            code="invalid_value",
        )
    if not (wanted := config.get("format") or older):
        return {}
    schema = {"name": _FORMAT_NAME, "schema": wanted["schema"]}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}
