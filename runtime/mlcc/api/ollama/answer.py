"""Translates chunks of OpenAI's chat and completions into Ollama's answers. Times come from the
caller.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mlcc.errors import MlccError
from mlcc.util.fast_dataclass import fast_dataclass

Line = dict[str, Any]


@fast_dataclass(frozen=True)
class Durations:
    """Times of one answer, in nanoseconds."""

    total: int
    prompt: int
    """Until the first piece of the answer; includes the time in the queue."""

    def fields(self) -> Line:
        """The fields of the last line; loading takes no time, as the model is loaded already."""
        return {
            "total_duration": self.total,
            "load_duration": 0,
            "prompt_eval_duration": self.prompt,
            "eval_duration": self.total - self.prompt,
        }


class Lines:
    """The lines of one answer. `chat`: for /api/chat, else for /api/generate."""

    def __init__(self, model: str, created: str, chat: bool) -> None:
        self._head = {"model": model, "created_at": created}
        self._chat = chat
        self._calls: dict[int, dict[str, Any]] = {}
        self._reason = "stop"
        self._usage: Mapping[str, Any] = {}

    def take(self, chunk: Mapping[str, Any]) -> Iterator[Line]:
        """Translate one chunk; tool calls are held back until `end`."""
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk["choices"]:
            delta = choice.get("delta", {})
            for call in delta.get("tool_calls") or ():
                self._add_call(call)
            text = delta.get("content") or choice.get("text") or ""
            thinking = delta.get("reasoning_content") or delta.get("reasoning") or ""
            logprobs = _logprobs(choice.get("logprobs"))
            if text or thinking or logprobs:
                more = {"logprobs": logprobs} if logprobs else {}
                yield {**self._head, **self._message(text, thinking), "done": False, **more}
            if reason := choice.get("finish_reason"):
                self._reason = "length" if reason == "length" else "stop"

    def end(self, durations: Durations) -> Iterator[Line]:
        """The tool calls, which are sent whole, and the last line."""
        if self._calls:
            line = self._message("", "")
            line["message"]["tool_calls"] = [
                {"function": {"index": index, "name": call["name"], "arguments": _arguments(call)}}
                for index, call in sorted(self._calls.items())
            ]
            yield {**self._head, **line, "done": False}
        yield {
            **self._head,
            **self._message("", ""),
            "done": True,
            "done_reason": self._reason,
            **durations.fields(),
            "prompt_eval_count": self._usage.get("prompt_tokens", 0),
            "eval_count": self._usage.get("completion_tokens", 0),
        }

    def nothing(self, reason: str) -> Line:
        """The line for a request without a prompt."""
        return {**self._head, **self._message("", ""), "done": True, "done_reason": reason}

    def _message(self, text: str, thinking: str) -> Line:
        more = {"thinking": thinking} if thinking else {}
        if self._chat:
            return {"message": {"role": "assistant", "content": text, **more}}
        return {"response": text, **more}

    def _add_call(self, call: Mapping[str, Any]) -> None:
        found = self._calls.setdefault(call.get("index", 0), {"name": "", "arguments": ""})
        for name, text in call.get("function", {}).items():
            if name in found and text:
                found[name] += text


def whole(lines: Iterable[Line]) -> Line:
    """All lines of an answer merged into one."""
    lines = list(lines)
    last = dict(lines[-1])
    messages = [line.get("message", line) for line in lines]
    key = "content" if "message" in last else "response"
    joined: Line = {key: "".join(one[key] for one in messages)}
    if thinking := "".join(one.get("thinking", "") for one in messages):
        joined["thinking"] = thinking
    if calls := [call for one in messages for call in one.get("tool_calls", ())]:
        joined["tool_calls"] = calls
    if logprobs := [entry for line in lines for entry in line.get("logprobs", ())]:
        last["logprobs"] = logprobs
    if "message" in last:
        return {**last, "message": {"role": "assistant", **joined}}
    return {**last, **joined}


def error_line(error: MlccError) -> Line:
    """Ollama's shape of an error."""
    return {"error": error.message}


def _arguments(call: Mapping[str, str]) -> Any:
    """Arguments as an object; text that is no JSON object goes under a key of its own."""
    try:
        arguments = json.loads(call["arguments"] or "{}")
    except (ValueError, RecursionError):
        arguments = call["arguments"]
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def _logprobs(logprobs: Mapping[str, Any] | None) -> list[Line]:
    """Log-probabilities of chat or completions, token by token."""
    if not logprobs:
        return []
    if "content" in logprobs:
        return list(logprobs["content"] or ())
    columns = (logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"])
    return [
        {
            "token": token,
            "logprob": logprob,
            "top_logprobs": [{"token": t, "logprob": p} for t, p in (top or {}).items()],
        }
        for token, logprob, top in zip(*columns, strict=True)
    ]
