"""Translates a body of /v1/responses to one of /v1/chat/completions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.api.openai.message_merging import MessageMerger, content_of, joined_parts
from mlcc.api.openai_responses.fields import OWN_NAMES, table_of
from mlcc.api.openai_responses.item_fields import TEXT_PARTS, item_of, known
from mlcc.api.openai_responses.tools import (
    ToolNames,
    chat_tools,
    custom_arguments,
    flat_name,
    tool_names,
)
from mlcc.api.parsers.opaque_reasoning import unpacked
from mlcc.api.schema.audio_fields import audio_part
from mlcc.api.schema.chat_fields import (
    SAMPLING,
)
from mlcc.api.schema.field_names import FieldNames
from mlcc.api.schema.image_fields import left_out, url_part
from mlcc.api.schema.modalities import TEXT_ONLY, Modalities
from mlcc.api.schema.schema import Json, Tagged, Text
from mlcc.errors import InvalidRequestError, printable
from mlcc.util.fast_dataclass import fast_dataclass

Item = dict[str, Any]
ENCRYPTED, LOGPROBS = "reasoning.encrypted_content", "message.output_text.logprobs"


@fast_dataclass(frozen=True)
class ResponsesRequest:
    """A parsed request; `chat` makes the body once the earlier items are known."""

    fields: Mapping[str, Any]
    """The checked fields."""
    body: Mapping[str, Any]
    """The fields as sent, which the answer repeats."""
    names: ToolNames
    reads: Modalities = TEXT_ONLY
    """What the model reads beside text."""

    @property
    def stream(self) -> bool:
        return bool(self.fields.get("stream", False))

    @property
    def store(self) -> bool:
        return bool(self.fields.get("store", True))

    @property
    def previous(self) -> str | None:
        return self.fields.get("previous_response_id")

    @property
    def summarizes(self) -> bool:
        """Whether reasoning is sent as a summary."""
        return bool((self.fields.get("reasoning") or {}).get("summary"))

    def includes(self, what: str) -> bool:
        """Whether `include` names `what`."""
        return what in self.fields.get("include", ())

    @property
    def tells_logprobs(self) -> bool:
        return self.includes(LOGPROBS) or bool(self.fields.get("top_logprobs"))

    @property
    def chat_names(self) -> FieldNames:
        """Names of the chat's fields in the request."""
        tools = {}
        for number, place in enumerate(self.names.places):
            tools[f"tools[{number}].function"] = place
        return FieldNames(
            {
                "messages": "input",
                "max_tokens": "max_output_tokens",
                "reasoning_effort": "reasoning.effort",
                "response_format.json_schema": "text.format",
                "response_format": "text.format",
                **tools,
            }
        )

    def items(self) -> list[Item]:
        """The input as items that can be stored, each with its type and known fields alone."""
        given = self.body.get("input") or []
        if isinstance(given, str):
            given = [{"role": "user", "content": [{"type": "input_text", "text": given}]}]
        return [known(self._item, item) for item in given]

    @property
    def _item(self) -> Tagged:
        return item_of(self.reads)

    def chat(self, items: Sequence[Json]) -> dict[str, Any]:
        """The body for /v1/chat/completions, always of a stream with its usage. Raises
        InvalidRequestError."""
        fields = self.fields
        merger = MessageMerger()
        merger.system(fields.get("instructions", ""))
        for number, item in enumerate(items):
            where = f"input[{number}]"
            _say(merger, self._item.check(item, where), where, self.reads)
        if not merger.messages:
            raise InvalidRequestError(
                "'input' is missing; it must be a text or an array of items",
                param="input",
                code="missing_required_parameter",
            )
        chat: dict[str, Any] = {"messages": merger.messages}
        for name in ("model", *(row.name for row in SAMPLING if row.name not in OWN_NAMES)):
            if name in fields:
                chat[name] = fields[name]
        if "max_output_tokens" in fields:
            chat["max_tokens"] = fields["max_output_tokens"]
        if self.tells_logprobs:
            chat |= {"logprobs": True, "top_logprobs": fields.get("top_logprobs", 0)}
        if effort := (fields.get("reasoning") or {}).get("effort"):
            chat["reasoning_effort"] = effort
        chat |= {**chat_tools(self.names, fields), **_format(fields)}
        return {**chat, "stream": True, "stream_options": {"include_usage": True}}


def parse_responses(
    body: Json, counted: bool = False, reads: Modalities = TEXT_ONLY
) -> ResponsesRequest:
    """Parse a request, as by `table_of`. Raises InvalidRequestError or UnsupportedError naming the
    field."""
    fields = table_of(counted, reads).check(body, "")
    _check_sendable(body)
    if fields.get("stream_options") is not None and not fields.get("stream"):
        raise InvalidRequestError(
            "'stream_options' is only allowed with 'stream': true",
            param="stream_options",
            code="invalid_value",
        )
    return ResponsesRequest(fields, body, tool_names(fields.get("tools", ())), reads)


def _say(merger: MessageMerger, item: Mapping[str, Any], where: str, reads: Modalities) -> None:
    kind = item["type"]
    if kind == "message":
        role, parts = item["role"], _parts(item["content"], f"{where}.content")
        if role == "assistant":
            merger.assistant("".join(parts))
        elif role == "user":
            merger.user(content_of(parts, reads))
        else:
            merger.system(joined_parts(parts))
    elif kind == "reasoning":
        merger.reasoning(_reasoning(item))
    elif kind == "function_call":
        name = flat_name(item["name"], item.get("namespace", ""))
        merger.call(item["call_id"], name, item.get("arguments", "{}"))
    elif kind == "custom_tool_call":
        name = flat_name(item["name"], item.get("namespace", ""))
        merger.call(item["call_id"], name, custom_arguments(item["input"]))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        parts = _parts(item["output"], f"{where}.output")
        merger.result(item["call_id"], content_of(parts, reads))
    elif kind == "item_reference":
        raise InvalidRequestError(
            f"no item with id '{item['id'][:80]}' is kept; send the item itself, or with 'store': "
            "false the whole conversation",
            param="input",
            code="item_not_found",
        )


def _parts(content: str | list[dict[str, Any]], where: str) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [_part(part, f"{where}[{number}]") for number, part in enumerate(content)]


def _part(part: Mapping[str, Any], where: str) -> str:
    kind = part["type"]
    if kind == "input_image" and "image_url" in part:
        return url_part(kind, part["image_url"], f"{where}.image_url", part.get("detail", ""))
    if kind == "input_audio" and "input_audio" in part:
        return audio_part(part, where)
    if kind not in TEXT_PARTS:  # of a tool's output
        return left_out(kind)
    return str(part.get("text") or part.get("refusal", ""))


def _reasoning(item: Mapping[str, Any]) -> str:
    """The text of a reasoning item, in full if it is there."""
    full = "".join(part["text"] for part in item.get("content", ()))
    carried = unpacked(item.get("encrypted_content", ""))
    return full or carried or "\n\n".join(part["text"] for part in item.get("summary", ()))


def _format(fields: Mapping[str, Any]) -> dict[str, Any]:
    wanted = (fields.get("text") or {}).get("format") or {"type": "text"}
    if wanted["type"] == "text":
        return {}
    if wanted["type"] == "json_object":
        return {"response_format": {"type": "json_object"}}
    schema = {"schema": wanted["schema"], "strict": wanted.get("strict", False)}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _check_sendable(value: Json) -> None:
    """Check that the body can be sent back as it came: what Python reads of JSON may be more than
    UTF-8 and JSON can write. Raises InvalidRequestError, which names the place, for half of a
    surrogate pair, in keys too, and for a number too large for JSON's readers (1e999)."""
    left: list[tuple[Json, str]] = [(value, "")]
    while left:
        this, where = left.pop()
        if isinstance(this, str):
            Text().check(this, where)
        elif isinstance(this, float) and not math.isfinite(this):
            raise InvalidRequestError(
                f"'{where}' is too large a number; send a smaller one",
                param=where,
                code="invalid_value",
            )
        elif isinstance(this, list):
            left += [(entry, f"{where}[{i}]") for i, entry in enumerate(this)]
        elif isinstance(this, dict):
            for key, entry in this.items():
                place = f"{where}.{printable(key[:40])}" if where else printable(key[:40])
                Text().check(key, place)
                left.append((entry, place))
