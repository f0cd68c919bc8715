"""Streamed answers as server-sent events. The chunks are made by `mlcc.api.openai.responses`, the
events of other protocols by their own modules of `mlcc.api`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from mlcc.api.errors import error_body
from mlcc.api.openai.responses import Chunk
from mlcc.api.openai.shapes import ErrorBody
from mlcc.errors import MlccError
from mlcc.service.generate import Generation
from mlcc.service.http.json_pieces import to_json_by_pieces
from mlcc.service.http.types import Attach, to_json

DONE = "data: [DONE]\n\n"
MANY_TOKENS = 64
"""Tokens whose log-probabilities are written in the event loop; a chunk with more is an echoed
prompt's."""
Event = Mapping[str, Any]


async def lines(generation: Generation) -> AsyncIterator[str]:
    """Each event followed by an empty line; a failure is the last event."""
    try:
        async for chunk in generation.stream():
            is_long = _tokens(chunk) > MANY_TOKENS
            yield await asyncio.to_thread(_long_line, chunk) if is_long else _line(chunk)
        yield DONE
    except MlccError as error:
        generation.job.failure = error
        yield _line(error_body(error))


def sends_lines(generation: Generation) -> Attach:
    """`ApiResponse.attach` for `lines`."""
    return partial(generation.send_to, line=_line)


def _line(message: Chunk | ErrorBody) -> str:
    return f"data: {to_json(message)}\n\n"


def _long_line(message: Chunk) -> str:
    return f"data: {to_json_by_pieces(message)}\n\n"


def _tokens(chunk: Mapping[str, Any]) -> int:
    """The number of tokens whose log-probabilities a chunk of /v1/completions reports."""
    logprobs = chunk["choices"][0].get("logprobs") if chunk["choices"] else None
    return len(logprobs.get("tokens", ())) if logprobs else 0


class Events(Protocol):
    """A protocol whose events have a `type`; translates chunks into events."""

    def start(self) -> Iterable[Event]:
        """Events before the first chunk."""
        ...

    def chunk(self, chunk: Mapping[str, Any]) -> Iterable[Event]:
        """Events for a chunk."""
        ...

    def end(self, matched: str | None) -> Iterable[Event]:
        """Events at the end of a complete answer; matched: the stop string that ended it."""
        ...

    def fail(self, error: MlccError) -> Iterable[Event]:
        """Events at the end of an answer that failed."""
        ...


async def _nothing() -> None:
    return None


async def event_lines(
    generation: Generation, events: Events, before_end: Callable[[], Awaitable[None]] = _nothing
) -> AsyncIterator[str]:
    """Each event with its name, followed by an empty line. `before_end` is awaited once the answer
    has ended or failed, before the last events are sent."""
    try:
        for event in events.start():
            yield _named(event)
        async for chunk in generation.stream():
            for event in events.chunk(chunk):
                yield _named(event)
        last = [*events.end(generation.matched)]
    except MlccError as error:
        generation.job.failure = error
        last = [*events.fail(error)]
    await before_end()
    for event in last:
        yield _named(event)


def sends_event_lines(generation: Generation, events: Events) -> Attach:
    """`ApiResponse.attach` for `event_lines`."""

    def line(chunk: Chunk) -> str:
        return "".join(map(_named, events.chunk(chunk)))

    return partial(generation.send_to, line=line)


async def run_through(generation: Generation, events: Events) -> None:
    """Translate a whole answer and drop its events; the protocol object accumulates the result.
    Raises MlccError. Cancelling the task cancels the answer."""
    try:
        for _ in events.start():
            pass
        async for chunk in generation.stream():
            for _ in events.chunk(chunk):
                pass
        for _ in events.end(generation.matched):
            pass
    finally:
        generation.job.close()


def _named(event: Event) -> str:
    return f"event: {event['type']}\ndata: {to_json(event)}\n\n"
