"""Responses of /v1/completions and /v1/chat/completions in OpenAI's shapes (`shapes.py`), whole and
in chunks, with reasoning, tool calls and log-probabilities (`logprobs.py`).

Ids and times come from the caller: nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypedDict

from mlcc.api.openai.logprobs import chat_logprobs, completion_logprobs, without_control
from mlcc.api.openai.shapes import (
    AssistantMessage,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    ChatLogprobs,
    Completion,
    CompletionChunk,
    CompletionLogprobs,
    CompletionTokensDetails,
    FinishReason,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from mlcc.api.parsers.deltas import CallDelta, ContentDelta, Delta, OutputParser, ReasoningDelta
from mlcc.api.parsers.output_format import AnswerReader
from mlcc.engine.events import Finished, TextDelta
from mlcc.engine.request import FinishReason as EngineReason
from mlcc.engine.text.logprobs import TokenLogprob
from mlcc.util.fast_dataclass import fast_dataclass

FINISH_REASONS: dict[EngineReason, FinishReason] = {"stop": "stop", "length": "length"}
"""Finish reasons in OpenAI's API; the engine's others are errors."""


class _Model(TypedDict):
    model: str


class ByModel(_Model, total=False):
    """The fields that name the model in every response."""

    system_fingerprint: str


@fast_dataclass(frozen=True)
class Head:
    """The fields common to all messages about one request."""

    id: str
    created: int
    """Seconds since 1970."""
    model: str
    logprobs: bool = False
    """Whether answers report log-probabilities."""
    per_prompt: int = 1
    """Answers generated for each prompt."""
    echoes: Sequence[str] = ()
    """Text sent before each answer; empty = none."""
    fingerprint: str = ""
    """Fingerprint of the artifact; "" = it has none."""
    image_tokens: int = 0
    """Tokens of the prompts that stand for images."""
    audio_tokens: int = 0
    """Tokens of the prompts that stand for sound."""

    @property
    def media_tokens(self) -> tuple[int, int]:
        """Of images, and of sound."""
        return self.image_tokens, self.audio_tokens

    @property
    def model_fields(self) -> ByModel:
        """The model's name and fingerprint."""
        if not self.fingerprint:
            return {"model": self.model}
        return {"model": self.model, "system_fingerprint": self.fingerprint}


@fast_dataclass(frozen=True)
class Answer:
    """One finished answer."""

    text: str
    finished: Finished
    logprobs: Sequence[TokenLogprob] = ()
    """Log-probabilities of its tokens."""
    prompt: Sequence[TokenLogprob] = ()
    """Log-probabilities of the prompt, if they were requested."""
    likelihood: float = 0.0
    """Mean log-probability of the answer's tokens."""
    pieces: Sequence[tuple[str, int]] = ()
    """Its text as it was made, each piece with the number of its tokens."""

    @property
    def finish_reason(self) -> FinishReason:
        return FINISH_REASONS[self.finished.reason]


def usage(
    answers: Sequence[Finished],
    per_prompt: int,
    reasoning: int = 0,
    images: int = 0,
    audio: int = 0,
) -> Usage:
    """Token counts of all answers generated together; a prompt counts once. reasoning: tokens of
    their reasoning; images, audio: tokens of the prompts that stand for images and sound."""
    prompts = answers[::per_prompt]
    prompt = sum(answer.prompt_tokens for answer in prompts)
    completion = sum(answer.completion_tokens for answer in answers)
    counts: Usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(first.cached_tokens for first in prompts)},
    }
    if images:
        counts["prompt_tokens_details"]["image_tokens"] = images
    if audio:
        counts["prompt_tokens_details"]["audio_tokens"] = audio
    details: CompletionTokensDetails = {}
    if reasoning:
        details["reasoning_tokens"] = reasoning
    if drafted := sum(answer.drafted_tokens for answer in answers):
        accepted = sum(answer.accepted_tokens for answer in answers)
        details["accepted_prediction_tokens"] = accepted
        details["rejected_prediction_tokens"] = drafted - accepted
    if details:
        counts["completion_tokens_details"] = details
    return counts


def best(answers: Sequence[Answer], n: int, per_prompt: int) -> Iterator[Answer]:
    """The n likeliest answers to each prompt, likeliest first; if all are sent, in order."""
    for start in range(0, len(answers), per_prompt):
        made = answers[start : start + per_prompt]
        if n < per_prompt:
            made = sorted(made, key=lambda answer: -answer.likelihood)
        yield from made[:n]


def completion(head: Head, made: Sequence[Answer], n: int) -> Completion:
    """A whole answer of /v1/completions: n choices per prompt, the best of those generated."""
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
                "logprobs": completion_logprobs(answer.logprobs, answer.prompt, echo)
                if head.logprobs
                else None,
                "finish_reason": answer.finish_reason,
            }
            for index, (echo, answer) in enumerate(zip(echoes, answers, strict=True))
        ],
        "usage": usage([one.finished for one in made], per_prompt, 0, *head.media_tokens),
    }


Chunk = ChatCompletionChunk | CompletionChunk


class Chunks:
    """The chunks of a streamed answer. `index`: the choice; a prompt's choices are consecutive."""

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
        """The remaining text, and the chunk with the finish reason."""
        raise NotImplementedError

    def usage(self, answers: Sequence[Finished]) -> Chunk | None:
        """The last chunk, if usage was requested."""
        if not self._include_usage:
            return None
        chunk, head = self._empty(), self._head
        chunk["usage"] = usage(answers, head.per_prompt, self.reasoning_tokens, *head.media_tokens)
        return chunk

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of the reasoning of all answers."""
        return 0

    def _empty(self) -> Chunk:
        raise NotImplementedError


class CompletionChunks(Chunks):
    """Chunks of /v1/completions; chunks of several prompts are interleaved."""

    def start(self, index: int) -> Chunk | None:
        """The prompt, if echoed without log-probabilities: those are not known yet."""
        if not self._head.echoes or self._head.logprobs:
            return None
        return self._chunk(index, self._echo(index), None)

    def text(self, index: int, delta: TextDelta) -> Iterable[Chunk]:
        """More of the answer, or the prompt."""
        echo = self._echo(index)
        if not (delta.text or delta.token_logprobs or delta.prompt_logprobs):
            return []
        if delta.prompt_logprobs:
            return [self._chunk(index, echo, None, completion_logprobs((), delta.prompt_logprobs))]
        with_logprobs = self._head.logprobs
        logprobs = completion_logprobs(delta.token_logprobs, echo=echo) if with_logprobs else None
        return [self._chunk(index, delta.text, None, logprobs)]

    def _echo(self, index: int) -> str:
        head = self._head
        return head.echoes[index // head.per_prompt] if head.echoes else ""

    def end(self, index: int, reason: EngineReason) -> Iterable[Chunk]:
        """The chunk with the finish reason."""
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


NewParser = Callable[[], OutputParser | None]
"""Makes a parser for one answer; None = the answer is plain text."""


def chat_completion(
    head: Head, answers: Sequence[Answer], new_parser: NewParser = lambda: None
) -> ChatCompletion:
    """A whole answer, one choice per answer."""
    readers = [AnswerReader(new_parser()) for _ in answers]
    messages = [message_of(*pair) for pair in zip(answers, readers, strict=True)]
    reasoning = sum(reader.reasoning_tokens for reader in readers)
    return {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        **head.model_fields,
        "choices": [
            {
                "index": index,
                "message": message,
                "logprobs": chat_logprobs(answer.logprobs) if head.logprobs else None,
                "finish_reason": _reason(answer.finished.reason, "tool_calls" in message),
            }
            for index, (answer, message) in enumerate(zip(answers, messages, strict=True))
        ],
        "usage": usage(
            [answer.finished for answer in answers], head.per_prompt, reasoning, *head.media_tokens
        ),
    }


def message_of(answer: Answer, reader: AnswerReader) -> AssistantMessage:
    """The message for an answer."""
    deltas = [delta for piece in answer.pieces for delta in reader.push(*piece)]
    deltas += reader.flush(answer.finished.reason == "length")
    calls = _calls(deltas)
    content = "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))
    content_or_null = content or (None if calls else "")
    message: AssistantMessage = {"role": "assistant", "content": content_or_null, "refusal": None}
    if thought := "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)):
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    return message


def _calls(deltas: Iterable[Delta]) -> list[ToolCall]:
    made: dict[int, ToolCall] = {}
    for delta in deltas:
        if not isinstance(delta, CallDelta):
            continue
        if delta.index in made:
            made[delta.index]["function"]["arguments"] += delta.arguments
            continue
        function = {"name": delta.name, "arguments": delta.arguments}
        made[delta.index] = {"id": delta.id, "type": "function", "function": function}  # type: ignore[typeddict-item]
    return [*made.values()]


def _reason(reason: EngineReason, called: bool) -> FinishReason:
    return "tool_calls" if called and reason == "stop" else FINISH_REASONS[reason]


class ChatChunks(Chunks):
    """Chunks of a streamed chat; the first names the role. Log-probabilities are sent with the next
    chunk: some tokens yield none."""

    def __init__(
        self, head: Head, include_usage: bool, new_parser: NewParser = lambda: None
    ) -> None:
        super().__init__(head, include_usage)
        self._new_parser = new_parser
        self._readers: dict[int, AnswerReader] = {}
        self._pending: dict[int, list[TokenLogprob]] = {}
        self._called: set[int] = set()

    def start(self, index: int) -> Chunk:
        """The chunk that names the role."""
        self._readers[index] = AnswerReader(self._new_parser())
        self._pending[index] = []
        return self._chunk(index, {"role": "assistant", "content": ""}, None)

    def text(self, index: int, delta: TextDelta) -> Iterable[Chunk]:
        """More of the answer."""
        self._pending[index].extend(without_control(delta.token_logprobs))
        return self._deltas(index, self._readers[index].push(delta.text, len(delta.token_ids)))

    def end(self, index: int, reason: EngineReason) -> Iterable[Chunk]:
        """The remaining text, and the chunk with the finish reason."""
        chunks = self._deltas(index, self._readers[index].flush(reason == "length"))
        finish_reason = _reason(reason, index in self._called)
        rest = self._logprobs(self._pending[index]) if self._pending[index] else None
        return [*chunks, self._chunk(index, {}, finish_reason, rest)]

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of the reasoning of all answers."""
        return sum(reader.reasoning_tokens for reader in self._readers.values())

    def _deltas(self, index: int, deltas: Iterable[Delta]) -> list[Chunk]:
        chunks = []
        for delta in deltas:
            if isinstance(delta, CallDelta):
                self._called.add(index)
            pending, self._pending[index] = self._pending[index], []
            chunks.append(self._chunk(index, _delta(delta), None, self._logprobs(pending)))
        return chunks

    def _logprobs(self, tokens: Sequence[TokenLogprob]) -> ChatLogprobs | None:
        return chat_logprobs(tokens) if self._head.logprobs else None

    def _chunk(
        self,
        index: int,
        delta: ChatDelta,
        reason: FinishReason | None,
        logprobs: ChatLogprobs | None = None,
    ) -> Chunk:
        chunk = self._empty()
        chunk["choices"].append(
            {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        )
        return chunk

    def _empty(self) -> ChatCompletionChunk:
        chunk: ChatCompletionChunk = {
            "id": self._head.id,
            "object": "chat.completion.chunk",
            "created": self._head.created,
            "model": self._head.model,
            "choices": [],
        }
        if self._head.fingerprint:
            chunk["system_fingerprint"] = self._head.fingerprint
        if self._include_usage:
            chunk["usage"] = None
        return chunk


def _delta(delta: Delta) -> ChatDelta:
    if isinstance(delta, ContentDelta):
        return {"content": delta.text}
    if isinstance(delta, ReasoningDelta):
        return {"reasoning_content": delta.text}
    call: ToolCallDelta = {"index": delta.index, "function": {"arguments": delta.arguments}}
    if delta.id:
        call = {"index": delta.index, "id": delta.id, "type": "function",
                "function": {"name": delta.name, "arguments": delta.arguments}}  # fmt: skip
    return {"tool_calls": [call]}
