"""Answers in OpenAI's shapes, whole and in chunks, from plain values.

Ids and times come from the caller: nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.engine.events import Finished
from mlcc.engine.request import FinishReason

FINISH_REASONS: dict[FinishReason, str] = {"stop": "stop", "length": "length"}
"""The engine's reasons that OpenAI has; the others are errors, not answers."""


@dataclass(frozen=True)
class Head:
    """What is the same in every message about one request."""

    id: str
    created: int
    """Seconds since 1970."""
    model: str

    def of(self, kind: str) -> dict[str, Any]:
        """The beginning of a message."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


@dataclass(frozen=True)
class Answer:
    """One finished answer."""

    text: str
    finished: Finished

    @property
    def finish_reason(self) -> str:
        return FINISH_REASONS[self.finished.reason]


def usage(answers: Sequence[Finished]) -> dict[str, int]:
    """Tokens of all answers of a request together."""
    prompt = sum(answer.prompt_tokens for answer in answers)
    completion = sum(answer.completion_tokens for answer in answers)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def chat_completion(head: Head, answer: Answer) -> dict[str, Any]:
    """A whole answer of /v1/chat/completions."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": answer.text, "refusal": None},
        "logprobs": None,
        "finish_reason": answer.finish_reason,
    }
    return {
        **head.of("chat.completion"),
        "choices": [choice],
        "usage": usage([answer.finished]),
    }


def completion(head: Head, answers: Sequence[Answer]) -> dict[str, Any]:
    """A whole answer of /v1/completions, one choice per prompt."""
    choices = [
        {
            "index": index,
            "text": answer.text,
            "logprobs": None,
            "finish_reason": answer.finish_reason,
        }
        for index, answer in enumerate(answers)
    ]
    return {
        **head.of("text_completion"),
        "choices": choices,
        "usage": usage([answer.finished for answer in answers]),
    }


class Chunks:
    """The chunks of a streamed answer. `index` is the choice: the number of the prompt."""

    kind = ""

    def __init__(self, head: Head, include_usage: bool) -> None:
        self._base = head.of(self.kind)
        self._usage: dict[str, Any] = {"usage": None} if include_usage else {}

    def start(self, index: int) -> dict[str, Any] | None:
        """The opening chunk, if there is one."""
        return None

    def text(self, index: int, text: str) -> dict[str, Any]:
        """More of the answer."""
        return self._chunk(index, text, None)

    def end(self, index: int, reason: FinishReason) -> dict[str, Any]:
        """The chunk that says why the answer ended."""
        return self._chunk(index, "", FINISH_REASONS[reason])

    def usage(self, answers: Sequence[Finished]) -> dict[str, Any] | None:
        """The last chunk, if usage was asked for."""
        return {**self._base, "choices": [], "usage": usage(answers)} if self._usage else None

    def _chunk(self, index: int, text: str, reason: str | None) -> dict[str, Any]:
        choice = {
            "index": index,
            **self._content(text),
            "logprobs": None,
            "finish_reason": reason,
        }
        return {**self._base, "choices": [choice], **self._usage}

    def _content(self, text: str) -> dict[str, Any]:
        raise NotImplementedError


class ChatChunks(Chunks):
    """Chunks of /v1/chat/completions: the first names the role."""

    kind = "chat.completion.chunk"

    def start(self, index: int) -> dict[str, Any] | None:
        """The chunk that names the role."""
        chunk = self._chunk(index, "", None)
        chunk["choices"][0]["delta"] = {"role": "assistant", "content": ""}
        return chunk

    def _content(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text} if text else {}}


class CompletionChunks(Chunks):
    """Chunks of /v1/completions; those of several prompts are mixed."""

    kind = "text_completion"

    def _content(self, text: str) -> dict[str, Any]:
        return {"text": text}


def models(names: Sequence[str], created: int) -> dict[str, Any]:
    """The answer of /v1/models."""
    return {"object": "list", "data": [model(name, created) for name in names]}


def model(name: str, created: int) -> dict[str, Any]:
    """One entry of /v1/models."""
    return {"id": name, "object": "model", "created": created, "owned_by": "mlcc"}
