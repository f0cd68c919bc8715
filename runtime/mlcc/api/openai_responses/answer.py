"""Translates chunks of chat.completions into events of /v1/responses, and into a whole answer.

A whole answer is assembled by the same steps as a stream, so the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from mlcc.api.errors import CancelledError
from mlcc.api.openai_responses.output import Event, ItemOptions, Output
from mlcc.api.openai_responses.request import ENCRYPTED, ResponsesRequest
from mlcc.api.openai_responses.shapes import ResponsesAnswer, ResponsesUsage
from mlcc.errors import MlccError

KNOWN_CODES = ("rate_limit_exceeded", "invalid_prompt")
"""Error codes that OpenAI's clients know, besides server_error."""


class ResponseEvents:
    """The events of one answer: `start`, then `chunk` for each chunk, then `end` or `fail`.

    defaults: the model's sampling defaults; clock: returns seconds since 1970.
    """

    def __init__(
        self,
        asked: ResponsesRequest,
        made_id: str,
        model: str,
        created: int,
        defaults: Mapping[str, Any],
        clock: Callable[[], int],
    ) -> None:
        options = ItemOptions(asked.names, asked.summarizes, asked.includes(ENCRYPTED))
        answer: Any = {
            "id": f"resp_{made_id}",
            "object": "response",
            "created_at": created,
            "completed_at": None,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": model,
            "output": [],
            "usage": None,
            **_repeated(asked, defaults),
        }
        self.answer: ResponsesAnswer = answer
        self._output = Output(made_id, options)
        self._logprobs = asked.tells_logprobs
        self._clock = clock
        self._reason: str | None = None
        self._number = 0

    def start(self) -> Iterator[Event]:
        """The first events, sent as soon as the engine has accepted the request."""
        yield from self._numbered(self._status_event("created"))
        yield from self._numbered(self._status_event("in_progress"))

    def chunk(self, chunk: Mapping[str, Any]) -> Iterator[Event]:
        """Translate one chunk into events."""
        if chunk.get("usage"):
            self.answer["usage"] = _usage(chunk["usage"])
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if thought := delta.get("reasoning_content"):
                yield from self._numbered(self._output.reasoning(thought))
            logprobs = _logprobs(choice) if self._logprobs else []
            if (text := delta.get("content")) or logprobs:
                yield from self._numbered(self._output.text(text or "", logprobs))
            for call in delta.get("tool_calls") or ():
                yield from self._numbered(self._output.call(call))
            self._reason = choice.get("finish_reason") or self._reason

    def end(self, matched: str | None = None) -> Iterator[Event]:
        """The end of a complete answer."""
        cut = self._reason == "length"
        status = "incomplete" if cut else "completed"
        yield from self._numbered(self._output.close_all(status))
        answer = self.answer
        answer["status"] = "incomplete" if cut else "completed"
        answer["incomplete_details"] = {"reason": "max_output_tokens"} if cut else None
        answer["completed_at"] = None if cut else self._clock()
        yield from self._numbered(self._status_event(status))

    def fail(self, error: MlccError) -> Iterator[Event]:
        """The end of an answer that failed."""
        code = error.code if error.code in KNOWN_CODES else "server_error"
        yield from self._numbered(self._output.close("incomplete"))
        if isinstance(error, CancelledError):
            self.answer["status"] = "cancelled"
        else:
            self.answer["status"] = "failed"
            self.answer["error"] = {"code": str(code), "message": error.message}
            details = {"code": error.code, "message": error.message, "param": error.param}
            yield from self._numbered([{"type": "error", **details}])
        yield from self._numbered(self._status_event("failed"))

    def snapshot(self) -> ResponsesAnswer:
        """The answer as it is now."""
        made: Any = {**self.answer, "output": [*self._output.items]}
        return cast(ResponsesAnswer, made)

    def _status_event(self, what: str) -> list[Event]:
        self.answer = self.snapshot()
        return [{"type": f"response.{what}", "response": self.snapshot()}]

    def _numbered(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            yield {**event, "sequence_number": self._number}
            self._number += 1


def _repeated(asked: ResponsesRequest, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the request that an answer repeats."""
    fields, body = asked.fields, asked.body
    reasoning = fields.get("reasoning") or {}
    text = body.get("text") or {}
    return {
        "previous_response_id": asked.previous,
        "instructions": fields.get("instructions"),
        "max_output_tokens": fields.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "temperature": fields.get("temperature", defaults.get("temperature", 1.0)),
        "top_p": fields.get("top_p", defaults.get("top_p", 1.0)),
        "top_logprobs": fields.get("top_logprobs", 0),
        "presence_penalty": fields.get("presence_penalty", 0.0),
        "frequency_penalty": fields.get("frequency_penalty", 0.0),
        "parallel_tool_calls": fields.get("parallel_tool_calls", True),
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": [_tool(tool) for tool in body.get("tools") or ()],
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "text": {"format": text.get("format") or {"type": "text"}, "verbosity": "medium"},
        "truncation": "disabled",
        "store": asked.store,
        "background": False,
        "service_tier": "default",
        "metadata": fields.get("metadata", {}),
        "user": body.get("user"),
        "safety_identifier": body.get("safety_identifier"),
        "prompt_cache_key": body.get("prompt_cache_key"),
    }


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A function with null for absent fields, as OpenAI's types require."""
    if tool.get("type") != "function":
        return dict(tool)
    return {"description": None, "parameters": None, "strict": False, **tool}


def _usage(usage: Mapping[str, Any]) -> ResponsesUsage:
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens", 0)
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": usage["total_tokens"],
    }


def _logprobs(choice: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Log-probabilities of a chat, without bytes where they are not known."""
    tokens = (choice.get("logprobs") or {}).get("content") or []
    return [
        {**_known(token), "top_logprobs": [*map(_known, token["top_logprobs"])]} for token in tokens
    ]


def _known(token: Mapping[str, Any]) -> dict[str, Any]:
    return {**token, "bytes": token["bytes"] or []}
