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
from mlcc.api.parsers.deltas import CallPiece, Content, Piece, Reader, Thought
from mlcc.engine.events import TextDelta
from mlcc.engine.request import FinishReason as EngineReason
from mlcc.engine.text.logprobs import TokenLogprob

NewReader = Callable[[], Reader | None]
"""Makes what reads one answer; None = it is text and nothing else."""


def chat_completion(
    head: Head, answers: Sequence[Answer], new_reader: NewReader = lambda: None
) -> ChatCompletion:
    """A whole answer, one choice per answer."""
    messages = [message_of(answer.text, new_reader()) for answer in answers]
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


def message_of(text: str, reader: Reader | None) -> AssistantMessage:
    """The message that an answer's text is."""
    if reader is None:
        return {"role": "assistant", "content": text, "refusal": None}
    pieces = [*reader.push(text), *reader.flush()]
    calls = _calls(pieces)
    content = "".join(piece.text for piece in pieces if isinstance(piece, Content))
    said = content or (None if calls else "")
    message: AssistantMessage = {"role": "assistant", "content": said, "refusal": None}
    if thought := "".join(piece.text for piece in pieces if isinstance(piece, Thought)):
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    return message


def _calls(pieces: Iterable[Piece]) -> list[ToolCall]:
    made: dict[int, ToolCall] = {}
    for piece in pieces:
        if not isinstance(piece, CallPiece):
            continue
        if piece.index in made:
            made[piece.index]["function"]["arguments"] += piece.arguments
            continue
        function = {"name": piece.name, "arguments": piece.arguments}
        made[piece.index] = {"id": piece.id, "type": "function", "function": function}  # type: ignore[typeddict-item]
    return [*made.values()]


def _reason(reason: EngineReason, called: bool) -> FinishReason:
    return "tool_calls" if called and reason == "stop" else FINISH_REASONS[reason]


class ChatChunks(Chunks):
    """Chunks of a streamed chat: the first names the role. Log-probabilities go with the next chunk
    that there is: of what is read, some tokens make none."""

    def __init__(
        self, head: Head, include_usage: bool, new_reader: NewReader = lambda: None
    ) -> None:
        super().__init__(head, include_usage)
        self._new_reader = new_reader
        self._readers: dict[int, Reader | None] = {}
        self._told: dict[int, list[TokenLogprob]] = {}
        self._called: set[int] = set()

    def start(self, index: int) -> Chunk:
        """The chunk that names the role."""
        self._readers[index], self._told[index] = self._new_reader(), []
        return self._chunk(index, {"role": "assistant", "content": ""}, None)

    def text(self, index: int, delta: TextDelta) -> Iterable[Chunk]:
        """More of the answer."""
        reader = self._readers[index]
        if reader is None:
            return [
                self._chunk(
                    index, {"content": delta.text}, None, self._logprobs(delta.token_logprobs)
                )
            ]
        self._told[index].extend(delta.token_logprobs)
        return self._pieces(index, reader.push(delta.text))

    def end(self, index: int, reason: EngineReason) -> Iterable[Chunk]:
        """The rest, and the chunk that says why the answer ended."""
        reader = self._readers[index]
        chunks = self._pieces(index, reader.flush()) if reader is not None else []
        said = _reason(reason, index in self._called)
        rest = self._logprobs(self._told[index]) if self._told[index] else None
        return [*chunks, self._chunk(index, {}, said, rest)]

    def _pieces(self, index: int, pieces: Iterable[Piece]) -> list[Chunk]:
        chunks = []
        for piece in pieces:
            if isinstance(piece, CallPiece):
                self._called.add(index)
            told, self._told[index] = self._told[index], []
            chunks.append(self._chunk(index, _delta(piece), None, self._logprobs(told)))
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


def _delta(piece: Piece) -> ChatDelta:
    if isinstance(piece, Content):
        return {"content": piece.text}
    if isinstance(piece, Thought):
        return {"reasoning_content": piece.text}
    call: ToolCallDelta = {"index": piece.index, "function": {"arguments": piece.arguments}}
    if piece.id:
        call = {"index": piece.index, "id": piece.id, "type": "function",
                "function": {"name": piece.name, "arguments": piece.arguments}}  # fmt: skip
    return {"tool_calls": [call]}
