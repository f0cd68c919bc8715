"""Translates Ollama's requests, checked by `fields.py`, to bodies in OpenAI's shape for
`mlcc.service.generate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from mlcc.api.openai.message_merging import Content, as_text
from mlcc.api.schema.chat_fields import (
    SAMPLING,
)
from mlcc.api.schema.field_names import FieldNames
from mlcc.api.schema.image_fields import base64_part, left_out
from mlcc.api.schema.schema import NOT_EMPTY
from mlcc.errors import InvalidRequestError, UnsupportedError

STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
"""Every request is streamed, as Ollama's answers report when the first piece came."""
LATEST = ":latest"
_NAMES = {
    **{row.name: f"options.{row.name}" for row in SAMPLING},
    "max_tokens": "options.num_predict",
    "reasoning_effort": "think",
    "response_format.json_schema.schema": "format",
    "response_format": "format",
}
CHAT_NAMES = FieldNames(_NAMES)
"""Names of a chat's fields in a request of /api/chat."""
GENERATE_NAMES = FieldNames({**_NAMES, "messages": "prompt"})
"""Names of its fields, or of a completion's, in a request of /api/generate."""


def model_name(asked: str, loaded: str) -> str:
    """The requested model: `name:latest` is `name`, and an empty name is the loaded model."""
    if not asked or asked == loaded:
        return loaded
    return asked.removesuffix(LATEST)


def chat_body(fields: Mapping[str, Any], sees: bool = False) -> dict[str, Any]:
    """Body for /api/chat, without the model. sees: whether the model reads images."""
    turns = messages(fields["messages"], sees)
    body = {"messages": turns, **_common(fields), **_thinking(fields)}
    if tools := fields.get("tools"):
        body["tools"] = tools
    if fields.get("logprobs"):
        body |= {"logprobs": True, "top_logprobs": fields.get("top_logprobs", 0)}
    return body


def is_chat(fields: Mapping[str, Any]) -> bool:
    """Whether /api/generate puts the prompt into the chat template. Raises InvalidRequestError."""
    raw, suffix = fields.get("raw", False), fields.get("suffix", "")
    for name in ("system", "think", "images"):
        if fields.get(name) and (raw or suffix):
            raise InvalidRequestError(
                f"'{name}' belongs to the chat template, which 'raw' and 'suffix' leave out; send "
                "one or the other",
                param=name,
                code="invalid_value",
            )
    return not raw and not suffix


def generate_chat_body(fields: Mapping[str, Any], sees: bool = False) -> dict[str, Any]:
    """Body for /api/generate through the chat template."""
    system = [{"role": "system", "content": text}] if (text := fields.get("system")) else []
    asked: dict[str, Any] = {"role": "user", "content": fields.get("prompt", "")}
    if images := fields.get("images"):
        pictures = [base64_part("image", data, f"images[{i}]") for i, data in enumerate(images)]
        asked["content"] = [*pictures, {"type": "text", "text": fields.get("prompt", "")}]
    body = chat_body({**fields, "messages": system}, sees)
    body["messages"].append(asked)
    return body


def generate_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Body for /api/generate without the template, optionally with a gap before a suffix."""
    body: dict[str, Any] = {"prompt": fields["prompt"], "max_tokens": -1, **_common(fields)}
    if suffix := fields.get("suffix"):
        body["suffix"] = suffix
    if fields.get("logprobs"):
        body["logprobs"] = fields.get("top_logprobs", 0)
    return body


def messages(given: Sequence[Mapping[str, Any]], sees: bool = False) -> list[dict[str, Any]]:
    """Ollama names results by function, OpenAI by call id: each result gets the id of the oldest
    unanswered call of its function."""
    made: list[dict[str, Any]] = []
    waiting: list[tuple[str, str]] = []
    for number, message in enumerate(given):
        translated: dict[str, Any] = {"role": message["role"]}
        translated["content"] = _content(message, f"messages[{number}].images", sees)
        if thinking := message.get("thinking"):
            translated["reasoning_content"] = thinking
        if calls := message.get("tool_calls"):
            translated["tool_calls"] = [
                _call(call, f"call_{len(made)}_{place}") for place, call in enumerate(calls)
            ]
            waiting += [(c["id"], c["function"]["name"]) for c in translated["tool_calls"]]
        if message["role"] == "tool":
            translated["tool_call_id"] = _answered(message, waiting)
            if name := message.get("tool_name"):
                translated["name"] = name
        made.append(translated)
    return made


def _content(message: Mapping[str, Any], images: str, sees: bool) -> Content:
    """The text of a message behind its images; of a model that reads text only, with a note in
    place of each image of a tool's result."""
    given, text = message.get("images", ()), message.get("content", "")
    if sees and given:
        places = [f"{images}[{number}]" for number in range(len(given))]
        data = map(NOT_EMPTY.check, given, places)
        return [*map(partial(base64_part, "image"), data, places), {"type": "text", "text": text}]
    count = len(given)
    if count and message["role"] != "tool":
        raise UnsupportedError(
            f"'{images}' is not built yet, and this value would change the answer; send text only",
            param=images,
            code="unsupported_parameter",
        )
    return "\n".join(filter(None, (text, *[left_out("image")] * count)))


def _call(call: Mapping[str, Any], name: str) -> dict[str, Any]:
    function = call["function"]
    return {
        "id": call.get("id") or name,
        "type": "function",
        "function": {"name": function["name"], "arguments": as_text(function.get("arguments"))},
    }


def _answered(message: Mapping[str, Any], waiting: list[tuple[str, str]]) -> str:
    """The id of the call that this result answers; the call is removed from `waiting`."""
    wanted, name = message.get("tool_call_id") or None, message.get("tool_name") or None
    for call in waiting:
        if wanted == call[0] or (wanted is None and name in (None, call[1])):
            waiting.remove(call)
            return call[0]
    return str(wanted or f"call_{name or 'unknown'}")


def _common(fields: Mapping[str, Any]) -> dict[str, Any]:
    options = dict(fields.get("options", {}))
    longest = options.pop("num_predict", 0)
    body: dict[str, Any] = {**plain_sampling(options), **STREAMED}
    if longest > 0:
        body["max_tokens"] = longest
    if wanted := fields.get("format"):
        body["response_format"] = _response_format(wanted)
    return body


def plain_sampling(options: Mapping[str, Any]) -> dict[str, Any]:
    """Checked sampling fields as JSON; a seed of -1 means none (llama.cpp, Ollama)."""
    found = dict(options)
    if found.get("seed") in (-1, 2**32 - 1):
        del found["seed"]
    if bias := found.get("logit_bias"):
        found["logit_bias"] = {str(token): value for token, value in bias.items()}
    return found


def _response_format(wanted: Any) -> dict[str, Any]:
    if wanted == "json":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": wanted}}


def _thinking(fields: Mapping[str, Any]) -> dict[str, Any]:
    think = fields.get("think")
    if think is None:
        return {}
    if isinstance(think, bool):
        return {"chat_template_kwargs": {"enable_thinking": think}}
    return {"reasoning_effort": think}
