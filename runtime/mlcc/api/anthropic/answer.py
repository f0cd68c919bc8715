"""Translates chunks of chat.completions into events of /v1/messages, and into a whole answer.

A whole answer is assembled by the same steps as a stream, so the two cannot differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mlcc.api.anthropic.errors import anthropic_error
from mlcc.api.anthropic.request import MessagesRequest
from mlcc.api.anthropic.shapes import AnthropicAnswer, AnthropicUsage, StopReason
from mlcc.api.parsers.opaque_reasoning import packed
from mlcc.errors import MlccError

Event = dict[str, Any]
SIGNATURE = "mlcc"
"""Signature of reasoning that is sent as text. It is never verified."""
_STOP_REASONS: dict[str, StopReason] = {"length": "max_tokens", "tool_calls": "tool_use"}
_EMPTY: dict[str, dict[str, Any]] = {
    "text": {"text": "", "citations": None},
    "thinking": {"thinking": "", "signature": ""},
}
_TEXT_DELTAS = {"text": "text_delta", "thinking": "thinking_delta"}


class MessageEvents:
    """The events of one answer: `start`, then `chunk` for each chunk, then `end` or `fail`.

    prompt_tokens: all tokens of the prompt; how many were cached is known only at the end.
    """

    def __init__(
        self, asked: MessagesRequest, made_id: str, model: str, prompt_tokens: int
    ) -> None:
        self._asked = asked
        self._reason: str | None = None
        self._call: int | None = None
        """Index of the tool call in the open block."""
        self._open = False
        self._spaces = ""
        """White space that is sent only if more text follows, as between reasoning and a call."""
        self.message: AnthropicAnswer = {
            "id": f"msg_{made_id}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage({"prompt_tokens": prompt_tokens, "completion_tokens": 0}),
        }

    def start(self) -> Iterator[Event]:
        """The first event, sent as soon as the engine has accepted the request."""
        message = {**self.message, "content": [], "usage": {**self.message["usage"]}}
        yield {"type": "message_start", "message": message}
        yield {"type": "ping"}

    def chunk(self, chunk: Mapping[str, Any]) -> Iterator[Event]:
        """Translate one chunk into events."""
        if chunk.get("usage"):
            self.message["usage"] = _usage(chunk["usage"])
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if (thought := delta.get("reasoning_content")) and self._asked.thinks:
                yield from self._add("thinking", thought)
            if text := delta.get("content"):
                yield from self._text(text)
            for call in delta.get("tool_calls") or ():
                yield from self._add_call(call)
            self._reason = choice.get("finish_reason") or self._reason

    def end(self, matched: str | None = None) -> Iterator[Event]:
        """The end of a complete answer; matched: the stop sequence that ended it."""
        yield from self._close()
        reason: StopReason = _STOP_REASONS.get(self._reason or "", "end_turn")
        if reason == "end_turn" and matched is not None:
            reason = "stop_sequence"
        usage = self.message["usage"]
        if reason == "max_tokens" and usage["output_tokens"] < self._asked.chat["max_tokens"]:
            reason = "model_context_window_exceeded"
        self.message["stop_reason"] = reason
        self.message["stop_sequence"] = matched if reason == "stop_sequence" else None
        delta = {"stop_reason": reason, "stop_sequence": self.message["stop_sequence"]}
        yield {"type": "message_delta", "delta": delta, "usage": {**usage}}
        yield {"type": "message_stop"}

    def fail(self, error: MlccError) -> Iterator[Event]:
        """The end of an answer that failed."""
        yield dict(anthropic_error(error))

    def _text(self, text: str) -> Iterator[Event]:
        if self._block("text") is None:
            text = self._spaces + text
            self._spaces = "" if text.strip() else text
            if self._spaces:
                return
        yield from self._add("text", text)

    def _add(self, kind: str, text: str) -> Iterator[Event]:
        """Append to a text block or a reasoning block."""
        block = self._block(kind)
        if block is None:
            block = yield from self._begin({"type": kind, **_EMPTY[kind]})
        block[kind] += text
        if kind == "text" or self._asked.shows:
            yield self._delta({"type": _TEXT_DELTAS[kind], kind: text})

    def _add_call(self, call: Mapping[str, Any]) -> Iterator[Event]:
        function = call.get("function") or {}
        if self._call != call["index"] or not self._open:
            block = {"type": "tool_use", "id": call["id"], "name": function["name"], "input": ""}
            yield from self._begin(block)
            self._call = call["index"]
        if arguments := function.get("arguments"):
            self._last["input"] += arguments
            yield self._delta({"type": "input_json_delta", "partial_json": arguments})

    def _begin(self, block: dict[str, Any]) -> Any:
        yield from self._close()
        self._open, self._spaces = True, ""
        self.message["content"].append(block)  # type: ignore[arg-type]
        shown = {**block, "input": {}} if block["type"] == "tool_use" else {**block}
        yield {"type": "content_block_start", "index": self._index, "content_block": shown}
        return block

    def _close(self) -> Iterator[Event]:
        """End the block that is open."""
        if not self._open:
            return
        self._open, self._call = False, None
        block = self._last
        if block["type"] == "thinking":
            block["signature"] = SIGNATURE if self._asked.shows else packed(block["thinking"])
            if not self._asked.shows:
                block["thinking"] = ""
            yield self._delta({"type": "signature_delta", "signature": block["signature"]})
        if block["type"] == "tool_use":
            block["input"] = _arguments(block["input"])
        yield {"type": "content_block_stop", "index": self._index}

    def _block(self, kind: str) -> dict[str, Any] | None:
        """The open block, if it is of this kind."""
        return self._last if self._open and self._last["type"] == kind else None

    def _delta(self, delta: dict[str, Any]) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    @property
    def _last(self) -> Any:
        return self.message["content"][-1]

    @property
    def _index(self) -> int:
        return len(self.message["content"]) - 1


def _usage(usage: Mapping[str, Any]) -> AnthropicUsage:
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    counts: AnthropicUsage = {
        "input_tokens": usage["prompt_tokens"] - cached,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage["completion_tokens"],
    }
    if thought := (usage.get("completion_tokens_details") or {}).get("reasoning_tokens"):
        counts["output_tokens_details"] = {"thinking_tokens": thought}
    return counts


def _arguments(text: str) -> dict[str, Any]:
    """Parsed arguments of a call, which may have been cut off."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
