"""The methods `create` of `Engine` and `AsyncEngine`, typed by `mlcc.types`, and their streams."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

from mlcc.local.caller import Caller, Chunks

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from mlcc.types import (
        ChatCompletion,
        ChatCompletionChunk,
        ChatCompletionRequest,
        Completion,
        CompletionChunk,
        CompletionRequest,
        EmbeddingList,
        EmbeddingRequest,
        Ranking,
        RerankRequest,
    )

T = TypeVar("T")
Piece = TypeVar("Piece")


class _Pieces(Generic[Piece]):
    """Pieces of one answer, which is cancelled when this is closed or garbage-collected."""

    def __init__(self, caller: Caller, chunks: Chunks) -> None:
        self._caller, self._chunks = caller, chunks

    def __del__(self) -> None:
        self._chunks.close()


class Stream(_Pieces[Piece]):
    """An iterator over pieces, for one thread."""

    def close(self) -> None:
        """Cancel the answer. Idempotent."""
        self._chunks.close()

    def __iter__(self) -> Stream[Piece]:
        return self

    def __next__(self) -> Piece:
        chunk = wait(self._caller, self._chunks.next())
        if chunk is None:
            raise StopIteration
        return cast("Piece", chunk)

    def __enter__(self) -> Stream[Piece]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncStream(_Pieces[Piece]):
    """An iterator over pieces, for one task."""

    async def close(self) -> None:
        """Cancel the answer. Idempotent."""
        self._chunks.close()

    def __aiter__(self) -> AsyncStream[Piece]:
        return self

    async def __anext__(self) -> Piece:
        chunk = await wait_async(self._caller, self._chunks.next())
        if chunk is None:
            raise StopAsyncIteration
        return cast("Piece", chunk)

    async def __aenter__(self) -> AsyncStream[Piece]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Answers:
    def __init__(self, caller: Caller, path: str) -> None:
        self._caller, self._path = caller, path

    def _create(self, **fields: Any) -> Any:
        """An answer, or with `stream=True` a `Stream`. Fields are those of OpenAI's API."""
        if fields.get("stream"):
            chunks = wait(self._caller, self._caller.stream(self._path, fields))
            return Stream(self._caller, chunks)
        return wait(self._caller, self._caller.ask("POST", self._path, fields))

    if not TYPE_CHECKING:  # the classes below declare its types
        create = _create


class _AsyncAnswers:
    def __init__(self, caller: Caller, path: str) -> None:
        self._caller, self._path = caller, path

    async def _create(self, **fields: Any) -> Any:
        """An answer, or with `stream=True` an `AsyncStream`. Fields are those of OpenAI's API."""
        if fields.get("stream"):
            chunks = await wait_async(self._caller, self._caller.stream(self._path, fields))
            return AsyncStream(self._caller, chunks)
        return await wait_async(self._caller, self._caller.ask("POST", self._path, fields))

    if not TYPE_CHECKING:  # as above
        create = _create


class ChatCompletions(_Answers):
    """`create` of chats; its fields are those of `mlcc.types.ChatCompletionRequest`."""

    if TYPE_CHECKING:

        @overload
        def create(
            self, *, stream: Literal[False] | None = None, **fields: Unpack[ChatCompletionRequest]
        ) -> ChatCompletion: ...
        @overload
        def create(
            self, *, stream: Literal[True], **fields: Unpack[ChatCompletionRequest]
        ) -> Stream[ChatCompletionChunk]: ...
        @overload
        def create(
            self, *, stream: bool, **fields: Unpack[ChatCompletionRequest]
        ) -> ChatCompletion | Stream[ChatCompletionChunk]: ...
        def create(self, **fields: Any) -> Any: ...


class Completions(_Answers):
    """`create` of continued text; its fields are those of `mlcc.types.CompletionRequest`."""

    if TYPE_CHECKING:

        @overload
        def create(
            self, *, stream: Literal[False] | None = None, **fields: Unpack[CompletionRequest]
        ) -> Completion: ...
        @overload
        def create(
            self, *, stream: Literal[True], **fields: Unpack[CompletionRequest]
        ) -> Stream[CompletionChunk]: ...
        @overload
        def create(
            self, *, stream: bool, **fields: Unpack[CompletionRequest]
        ) -> Completion | Stream[CompletionChunk]: ...
        def create(self, **fields: Any) -> Any: ...


class Embeddings(_Answers):
    """`create` of embeddings; its fields are those of `mlcc.types.EmbeddingRequest`."""

    if TYPE_CHECKING:

        def create(self, **fields: Unpack[EmbeddingRequest]) -> EmbeddingList: ...


File = str | Path | bytes | IO[bytes]
"""A recording: its path, its bytes, or a file that is open."""


class Transcriptions:
    """`create` of transcripts, or of translations into English."""

    def __init__(self, caller: Caller, path: str) -> None:
        self._caller, self._path = caller, path

    def create(
        self,
        *,
        file: File,
        language: str | None = None,
        prompt: str | None = None,
        response_format: str = "json",
        temperature: float | Sequence[float] = 0.0,
        condition_on_previous_text: bool = False,
        compression_ratio_threshold: float = 2.4,
        logprob_threshold: float = -1.0,
        no_speech_threshold: float | None = None,
        timestamp_granularities: Sequence[str] = (),
    ) -> Any:
        """The transcript of a recording; in the formats text, srt and vtt it is a text. Of several
        temperatures the next is tried where a window is no good by the thresholds. With the
        granularity word verbose_json has `words`, and a title of srt and vtt is one. Raises
        MlccError."""
        temperatures = [temperature] if isinstance(temperature, int | float) else temperature
        fields = {
            "language": language or "",
            "prompt": prompt or "",
            "response_format": response_format,
            "temperature": ",".join(map(str, temperatures)),
            "condition_on_previous_text": str(condition_on_previous_text).lower(),
            "compression_ratio_threshold": str(compression_ratio_threshold),
            "logprob_threshold": str(logprob_threshold),
            "timestamp_granularities": ",".join(timestamp_granularities),
            "no_speech_threshold": "" if no_speech_threshold is None else str(no_speech_threshold),
        }
        return wait(self._caller, self._caller.send(self._path, fields, read_file(file)))


class Audio:
    """Transcripts, and translations into English."""

    def __init__(self, caller: Caller) -> None:
        self.transcriptions = Transcriptions(caller, "/v1/audio/transcriptions")
        self.translations = Transcriptions(caller, "/v1/audio/translations")


def read_file(file: File) -> bytes:
    """The bytes of a recording."""
    if isinstance(file, bytes):
        return file
    return Path(file).read_bytes() if isinstance(file, str | Path) else file.read()


class Rerank(_Answers):
    """`create` of rankings; its fields are those of `mlcc.types.RerankRequest`."""

    if TYPE_CHECKING:

        def create(self, **fields: Unpack[RerankRequest]) -> Ranking: ...


class AsyncChatCompletions(_AsyncAnswers):
    """`create` of chats; its fields are those of `mlcc.types.ChatCompletionRequest`."""

    if TYPE_CHECKING:

        @overload
        async def create(
            self, *, stream: Literal[False] | None = None, **fields: Unpack[ChatCompletionRequest]
        ) -> ChatCompletion: ...
        @overload
        async def create(
            self, *, stream: Literal[True], **fields: Unpack[ChatCompletionRequest]
        ) -> AsyncStream[ChatCompletionChunk]: ...
        @overload
        async def create(
            self, *, stream: bool, **fields: Unpack[ChatCompletionRequest]
        ) -> ChatCompletion | AsyncStream[ChatCompletionChunk]: ...
        async def create(self, **fields: Any) -> Any: ...


class AsyncCompletions(_AsyncAnswers):
    """`create` of continued text; its fields are those of `mlcc.types.CompletionRequest`."""

    if TYPE_CHECKING:

        @overload
        async def create(
            self, *, stream: Literal[False] | None = None, **fields: Unpack[CompletionRequest]
        ) -> Completion: ...
        @overload
        async def create(
            self, *, stream: Literal[True], **fields: Unpack[CompletionRequest]
        ) -> AsyncStream[CompletionChunk]: ...
        @overload
        async def create(
            self, *, stream: bool, **fields: Unpack[CompletionRequest]
        ) -> Completion | AsyncStream[CompletionChunk]: ...
        async def create(self, **fields: Any) -> Any: ...


class AsyncEmbeddings(_AsyncAnswers):
    """`create` of embeddings; its fields are those of `mlcc.types.EmbeddingRequest`."""

    if TYPE_CHECKING:

        async def create(self, **fields: Unpack[EmbeddingRequest]) -> EmbeddingList: ...


class AsyncRerank(_AsyncAnswers):
    """`create` of rankings; its fields are those of `mlcc.types.RerankRequest`."""

    if TYPE_CHECKING:

        async def create(self, **fields: Unpack[RerankRequest]) -> Ranking: ...


class Chat(Generic[T]):
    """`chat.completions`, as in OpenAI's client."""

    def __init__(self, completions: T) -> None:
        self.completions = completions


def wait(caller: Caller, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, waited for in this thread; Ctrl-C cancels it."""
    future = caller.start(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def wait_async(caller: Caller, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, awaited in a task; cancelling the task cancels it."""
    return await asyncio.wrap_future(caller.start(work))
