"""Answers of /v1/chat/completions in OpenAI's shapes, whole and in chunks: text, reasoning and
calls of tools, each in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mlcc.api.openai.logprobs import chat_logprobs
from mlcc.api.openai.responses import FINISH_REASONS, Answer, Chunk, Chunks, Head, usage
from mlcc.api.openai.shapes import (
    AssistantMessage,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    ChatLogprobs,
    FinishReason,
    ToolCall,
    ToolCallDelta,
)
from mlcc.api.parsers.deltas import CallDelta, ContentDelta, Delta, OutputParser, ReasoningDelta
from mlcc.engine.events import TextDelta
from mlcc.engine.request import FinishReason as EngineReason
from mlcc.engine.text.logprobs import TokenLogprob

NewParser = Callable[[], OutputParser | None]
"""Makes what reads one answer; None = it is text and nothing else."""


def chat_completion(
    head: Head, answers: Sequence[Answer], new_parser: NewParser = lambda: None
) -> ChatCompletion:
    """A whole answer, one choice per answer."""
    messages = [message_of(answer.text, new_parser()) for answer in answers]
    return {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        **head.model_fields,
        "choices": [
            {
                "index": index,
                "message": message,
                "logprobs": chat_logprobs(answer.told) if head.logprobs else None,
                "finish_reason": _reason(answer.finished.reason, "tool_calls" in message),
            }
            for index, (answer, message) in enumerate(zip(answers, messages, strict=True))
        ],
        "usage": usage([answer.finished for answer in answers], head.per_prompt),
    }


def message_of(text: str, parser: OutputParser | None) -> AssistantMessage:
    """The message that an answer's text is."""
    if parser is None:
        return {"role": "assistant", "content": text, "refusal": None}
    deltas = [*parser.push(text), *parser.flush()]
    calls = _calls(deltas)
    content = "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))
    said = content or (None if calls else "")
    message: AssistantMessage = {"role": "assistant", "content": said, "refusal": None}
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
    """Chunks of a streamed chat: the first names the role. Log-probabilities go with the next chunk
    that there is: of what is read, some tokens make none."""

    def __init__(
        self, head: Head, include_usage: bool, new_parser: NewParser = lambda: None
    ) -> None:
        super().__init__(head, include_usage)
        self._new_parser = new_parser
        self._parsers: dict[int, OutputParser | None] = {}
        self._told: dict[int, list[TokenLogprob]] = {}
        self._called: set[int] = set()

    def start(self, index: int) -> Chunk:
        """The chunk that names the role."""
        self._parsers[index], self._told[index] = self._new_parser(), []
        return self._chunk(index, {"role": "assistant", "content": ""}, None)

    def text(self, index: int, delta: TextDelta) -> Iterable[Chunk]:
        """More of the answer."""
        parser = self._parsers[index]
        if parser is None:
            return [
                self._chunk(
                    index, {"content": delta.text}, None, self._logprobs(delta.token_logprobs)
                )
            ]
        self._told[index].extend(delta.token_logprobs)
        return self._deltas(index, parser.push(delta.text))

    def end(self, index: int, reason: EngineReason) -> Iterable[Chunk]:
        """The rest, and the chunk that says why the answer ended."""
        parser = self._parsers[index]
        chunks = self._deltas(index, parser.flush()) if parser is not None else []
        said = _reason(reason, index in self._called)
        rest = self._logprobs(self._told[index]) if self._told[index] else None
        return [*chunks, self._chunk(index, {}, said, rest)]

    def _deltas(self, index: int, deltas: Iterable[Delta]) -> list[Chunk]:
        chunks = []
        for delta in deltas:
            if isinstance(delta, CallDelta):
                self._called.add(index)
            told, self._told[index] = self._told[index], []
            chunks.append(self._chunk(index, _delta(delta), None, self._logprobs(told)))
        return chunks

    def _logprobs(self, told: Sequence[TokenLogprob]) -> ChatLogprobs | None:
        return chat_logprobs(told) if self._head.logprobs else None

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
