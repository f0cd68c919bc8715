"""Answers in OpenAI's shapes (`shapes.py`), whole and in chunks, from plain values; those of chats
are in `chat_answers.py`.

Ids and times come from the caller: nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypedDict

from mlcc.api.openai.logprobs import completion_logprobs
from mlcc.api.openai.shapes import (
    ChatCompletionChunk,
    Completion,
    CompletionChunk,
    CompletionLogprobs,
    FinishReason,
    Model,
    ModelState,
    Usage,
)
from mlcc.engine.events import Finished, TextDelta
from mlcc.engine.request import FinishReason as EngineReason
from mlcc.engine.text.logprobs import TokenLogprob
from mlcc.util.fast_dataclass import fast_dataclass

FINISH_REASONS: dict[EngineReason, FinishReason] = {"stop": "stop", "length": "length"}
"""The engine's reasons that OpenAI has; the others are errors, not answers."""


class _Model(TypedDict):
    model: str


class ByModel(_Model, total=False):
    """What every answer says of who made it."""

    system_fingerprint: str


@fast_dataclass(frozen=True)
class Head:
    """What is the same in every message about one request."""

    id: str
    created: int
    """Seconds since 1970."""
    model: str
    logprobs: bool = False
    """Whether answers tell them."""
    per_prompt: int = 1
    """Answers that are made to each prompt."""
    echoes: Sequence[str] = ()
    """What is sent before each answer; nothing = nothing."""
    fingerprint: str = ""
    """Of what answers: the artifact's; "" = it has none."""

    @property
    def model_fields(self) -> ByModel:
        """Which model answers."""
        if not self.fingerprint:
            return {"model": self.model}
        return {"model": self.model, "system_fingerprint": self.fingerprint}


@fast_dataclass(frozen=True)
class Answer:
    """One finished answer."""

    text: str
    finished: Finished
    told: Sequence[TokenLogprob] = ()
    """Log-probabilities of its tokens."""
    prompt: Sequence[TokenLogprob] = ()
    """Those of the prompt, if they are told."""
    likelihood: float = 0.0
    """The mean of those."""

    @property
    def finish_reason(self) -> FinishReason:
        return FINISH_REASONS[self.finished.reason]


def usage(answers: Sequence[Finished], per_prompt: int) -> Usage:
    """Tokens of all answers that were made together; a prompt counts once."""
    prompts = answers[::per_prompt]
    prompt = sum(answer.prompt_tokens for answer in prompts)
    completion = sum(answer.completion_tokens for answer in answers)
    told: Usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(first.cached_tokens for first in prompts)},
    }
    if drafted := sum(answer.drafted_tokens for answer in answers):
        accepted = sum(answer.accepted_tokens for answer in answers)
        told["completion_tokens_details"] = {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": drafted - accepted,
        }
    return told


def best(answers: Sequence[Answer], n: int, per_prompt: int) -> Iterator[Answer]:
    """The n likeliest answers to each prompt, the likeliest first; all of them as they came."""
    for start in range(0, len(answers), per_prompt):
        made = answers[start : start + per_prompt]
        if n < per_prompt:
            made = sorted(made, key=lambda answer: -answer.likelihood)
        yield from made[:n]


def completion(head: Head, made: Sequence[Answer], n: int) -> Completion:
    """A whole answer of /v1/completions: n choices per prompt, the best of those that were made."""
    per_prompt = head.per_prompt
    answers = [*best(made, n, per_prompt)]
    echoes = [head.echoes[index // n] if head.echoes else "" for index in range(len(answers))]
    return {
        "id": head.id,
        "object": "text_completion",
        "created": head.created,
        **head.model_fields,
        "choices": [
            {
                "index": index,
                "text": echo + answer.text,
                "logprobs": completion_logprobs(answer.told, answer.prompt, echo)
                if head.logprobs
                else None,
                "finish_reason": answer.finish_reason,
            }
            for index, (echo, answer) in enumerate(zip(echoes, answers, strict=True))
        ],
        "usage": usage([answer.finished for answer in made], per_prompt),
    }


Chunk = ChatCompletionChunk | CompletionChunk


class Chunks:
    """The chunks of a streamed answer. `index` is the choice: all of a prompt follow each other."""

    def __init__(self, head: Head, include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage

    def start(self, index: int) -> Chunk | None:
        """The opening chunk, if there is one."""
        raise NotImplementedError

    def text(self, index: int, delta: TextDelta) -> Iterable[Chunk]:
        """More of the answer."""
        raise NotImplementedError

    def end(self, index: int, reason: EngineReason) -> Iterable[Chunk]:
        """The rest, and the chunk that says why the answer ended."""
        raise NotImplementedError

    def usage(self, answers: Sequence[Finished]) -> Chunk | None:
        """The last chunk, if usage was asked for."""
        if not self._include_usage:
            return None
        chunk = self._empty()
        chunk["usage"] = usage(answers, self._head.per_prompt)
        return chunk

    def _empty(self) -> Chunk:
        raise NotImplementedError


class CompletionChunks(Chunks):
    """Chunks of /v1/completions; those of several prompts are mixed."""

    def start(self, index: int) -> Chunk | None:
        """The prompt, if it was asked for without log-probabilities: those are not known yet."""
        if not self._head.echoes or self._head.logprobs:
            return None
        return self._chunk(index, self._echo(index), None)

    def text(self, index: int, delta: TextDelta) -> Iterable[Chunk]:
        """More of the answer, or the prompt."""
        echo = self._echo(index)
        if delta.prompt_logprobs:
            return [self._chunk(index, echo, None, completion_logprobs((), delta.prompt_logprobs))]
        told = self._head.logprobs
        logprobs = completion_logprobs(delta.token_logprobs, echo=echo) if told else None
        return [self._chunk(index, delta.text, None, logprobs)]

    def _echo(self, index: int) -> str:
        head = self._head
        return head.echoes[index // head.per_prompt] if head.echoes else ""

    def end(self, index: int, reason: EngineReason) -> Iterable[Chunk]:
        """The chunk that says why the answer ended."""
        return [self._chunk(index, "", FINISH_REASONS[reason])]

    def _chunk(
        self,
        index: int,
        text: str,
        reason: FinishReason | None,
        logprobs: CompletionLogprobs | None = None,
    ) -> Chunk:
        chunk = self._empty()
        chunk["choices"].append(
            {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
        )
        return chunk

    def _empty(self) -> CompletionChunk:
        chunk: CompletionChunk = {
            "id": self._head.id,
            "object": "text_completion",
            "created": self._head.created,
            "model": self._head.model,
            "choices": [],
        }
        if self._head.fingerprint:
            chunk["system_fingerprint"] = self._head.fingerprint
        if self._include_usage:
            chunk["usage"] = None
        return chunk


def model(
    name: str,
    created: int,
    *,
    state: ModelState,
    context: int,
    aliases: Sequence[str] = (),
    memory_bytes: int | None = None,
    requests: int = 0,
    parent: str | None = None,
) -> Model:
    """One entry of /v1/models."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "mlcc",
        "state": state,
        "context_length": context,
        "aliases": list(aliases),
        "memory_bytes": memory_bytes,
        "requests": requests,
        "max_model_len": context,
        "parent": parent,
    }
