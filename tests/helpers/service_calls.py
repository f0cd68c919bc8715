"""Requests to the real service and engine of a model in this process, as JSON, in all protocols."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from mlcc import Engine
from mlcc.local.caller import Caller, _request
from mlcc.model.model import Model
from mlcc.service.http.types import Whole


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: Any
    """The JSON body, or the events of a stream."""


class Calls:
    """Sends requests to one model."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def post(self, path: str, body: Mapping[str, Any]) -> Response:
        return self._caller.start(self._post(path, body)).result(60)

    def get(self, path: str) -> Response:
        return self._caller.start(self._get(path)).result(60)

    async def _get(self, path: str) -> Response:
        response = await self._caller._service.answer(_request("GET", path, None))
        assert isinstance(response.body, str)
        return Response(response.status, response.headers, json.loads(response.body))

    async def _post(self, path: str, body: Mapping[str, Any]) -> Response:
        response = await self._caller._service.answer(_request("POST", path, body))
        if isinstance(response.body, Whole):
            return Response(response.status, response.headers, json.loads(str(response.body)))
        lines = [line async for line in response.body]
        texts = [line.partition("data: ")[2] or line for line in lines]
        events = [json.loads(text) for text in texts if text.strip() not in ("[DONE]", "")]
        return Response(response.status, response.headers, events)


@contextmanager
def calls_to(model: Model) -> Iterator[Calls]:
    with Engine.of(lambda: model) as engine:
        yield Calls(engine._caller)


class AnswerParts(NamedTuple):
    """An answer, whatever the protocol."""

    content: str
    thought: str = ""
    calls: tuple[str, ...] = ()
    """The arguments of each call."""
    reason: str = ""
    reasoning_tokens: int = 0


CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
OLLAMA_CHAT = "/api/chat"
PROTOCOLS = (CHAT, RESPONSES, MESSAGES, OLLAMA_CHAT)


def chat_body(
    path: str,
    text: str,
    *,
    stop: list[str] | None = None,
    tools: list[Any] | None = None,
    limit: int = 300,
    stream: bool = False,
) -> dict[str, Any]:
    """The request of a protocol for this message."""
    messages = [{"role": "user", "content": text}]
    body: dict[str, Any] = {"messages": messages, "stream": stream, "model": "scripted"}
    functions = [tool["function"] for tool in tools or ()]
    if path == CHAT:
        body |= {"max_tokens": limit, "stop": stop or [], "tools": tools or []}
        if stream:
            body["stream_options"] = {"include_usage": True}
    elif path == OLLAMA_CHAT:
        body |= {"tools": tools or [], "options": {"num_predict": limit, "stop": stop or []}}
    elif path == MESSAGES:
        schemas = [{"name": f["name"], "input_schema": f["parameters"]} for f in functions]
        body |= {"max_tokens": limit, "stop_sequences": stop or [], "tools": schemas}
        body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    else:
        flat = [{"type": "function", **function} for function in functions]
        body = {"input": text, "stream": stream, "tools": flat, "max_output_tokens": limit}
        body |= {"stop": stop} if stop else {}
    return body


def answer_in(path: str, response: Response) -> AnswerParts:
    """The answer in a response, whole or streamed."""
    assert response.status == 200, response.body
    events = response.body if isinstance(response.body, list) else None
    readers = {CHAT: _chat, RESPONSES: _responses, MESSAGES: _messages, OLLAMA_CHAT: _ollama}
    return readers[path](response.body, events)


def _chat(body: Any, events: list[Any] | None) -> AnswerParts:
    content, thought, reason = "", "", ""
    arguments: list[str] = []
    for event in events or [body]:
        for choice in event["choices"]:
            delta = choice["delta"] if events else choice["message"]
            content += delta.get("content") or ""
            thought += delta.get("reasoning_content") or ""
            arguments += [call["function"]["arguments"] for call in delta.get("tool_calls") or ()]
            reason = choice["finish_reason"] or reason
    usage = (events[-1] if events else body)["usage"].get("completion_tokens_details", {})
    return AnswerParts(content, thought, (*arguments,), reason, usage.get("reasoning_tokens", 0))


def _responses(body: Any, events: list[Any] | None) -> AnswerParts:
    final = events[-1]["response"] if events else body
    parts: dict[str, str] = {"message": "", "reasoning": ""}
    for item in final["output"]:
        if item["type"] in parts:
            parts[item["type"]] += "".join(part["text"] for part in item["content"])
    if events:
        streamed = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
        assert "".join(streamed) == parts["message"]
    made = tuple(i["arguments"] for i in final["output"] if i["type"] == "function_call")
    counted = final["usage"]["output_tokens_details"]["reasoning_tokens"]
    return AnswerParts(parts["message"], parts["reasoning"], made, final["status"], counted)


def _messages(body: Any, events: list[Any] | None) -> AnswerParts:
    if events is None:
        kinds = {"text": "", "thinking": ""}
        for block in body["content"]:
            if block["type"] in kinds:
                kinds[block["type"]] += block[block["type"]]
        inputs = [json.dumps(b["input"]) for b in body["content"] if b["type"] == "tool_use"]
        reason, usage = body["stop_reason"], body["usage"]
    else:
        kinds, inputs = {"text": "", "thinking": ""}, []
        for event in events:
            if event["type"] == "content_block_start":
                inputs += [""] * (event["content_block"]["type"] == "tool_use")
            delta = event.get("delta", {})
            for kind in kinds:
                kinds[kind] += delta.get(kind, "")
            if "partial_json" in delta:
                inputs[-1] += delta["partial_json"]
        last = next(event for event in events if event["type"] == "message_delta")
        reason, usage = last["delta"]["stop_reason"], last["usage"]
    counted = usage.get("output_tokens_details", {}).get("thinking_tokens", 0)
    return AnswerParts(kinds["text"], kinds["thinking"], (*inputs,), reason, counted)


def _ollama(body: Any, events: list[Any] | None) -> AnswerParts:
    content, thought = "", ""
    arguments: list[str] = []
    for event in events or [body]:
        content += event["message"].get("content") or ""
        thought += event["message"].get("thinking") or ""
        for call in event["message"].get("tool_calls") or ():
            arguments.append(json.dumps(call["function"]["arguments"]))
    return AnswerParts(
        content, thought, (*arguments,), (events[-1] if events else body)["done_reason"]
    )
