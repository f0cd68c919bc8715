"""Lines that go from the engine's events to the connection at once are those that the response's
task would send, in the same order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import h11
import pytest

from mlcc.api.openai.responses import ChatChunks, Chunks, CompletionChunks, Head
from mlcc.engine.events import Event, Finished, TextDelta
from mlcc.server import asgi
from mlcc.server.http.connection import StrictH11
from mlcc.server.observability.request_log import RequestLog, RequestRecord
from mlcc.service.engine_client import Job
from mlcc.service.generate import Generation
from mlcc.service.http.sse import Events, event_lines, lines, sends_event_lines, sends_lines
from mlcc.service.http.types import events_response

HEAD = Head("cmpl-1", 1, "m")
TOKENS = [TextDelta(name, text, (i,)) for i, text in enumerate("ab\n ü") for name in ("x", "y")]
EVENTS: list[Event] = [*TOKENS * 4, Finished("y", "stop", 1, 1), Finished("x", "length", 1, 1)]


class _Echo:
    """Events of another protocol: each chunk counted."""

    count = 0

    def start(self) -> list[dict[str, Any]]:
        return [{"type": "start"}]

    def chunk(self, chunk: Any) -> list[dict[str, Any]]:
        self.count += 1
        return [{"type": "piece", "number": self.count, "chunk": chunk["choices"]}]

    def end(self, matched: str | None) -> list[dict[str, Any]]:
        return [{"type": "end", "count": self.count}]

    def fail(self, error: Exception) -> list[dict[str, Any]]:
        return [{"type": "fail"}]


class _Writer:
    """A `BodyWriter` into a list, ready as `rng` decides."""

    def __init__(self, out: list[bytes], rng: random.Random) -> None:
        self.out, self.sent, self._rng = out, 0, rng

    def ready(self) -> bool:
        return self._rng.random() < 0.7

    def write(self, data: bytes) -> None:
        self.sent += len(data)
        self.out.append(data)


def chat_chunks() -> Chunks:
    return ChatChunks(HEAD, True, lambda: None)


def completion_chunks() -> Chunks:
    return CompletionChunks(HEAD, True)


async def sent(chunks: Chunks, events: Events | None, seed: int | None) -> tuple[bytes, int]:
    """The body of a stream, and how much of it was written at once. seed: None = nothing."""
    rng, out = random.Random(seed), list[bytes]()
    job = Job(["x", "y"], lambda name, finished: None, None)
    made = Generation(HEAD, job, chunks, lambda answers: {})  # type: ignore[arg-type, return-value]
    body = lines(made) if events is None else event_lines(made, events)
    attach = sends_lines(made) if events is None else sends_event_lines(made, events)

    async def send(message: Any) -> None:
        if rng.random() < 0.3:
            await asyncio.sleep(0)  # a client that does not read
        out.append(message.get("body", b""))

    writer = None if seed is None else _Writer(out, rng)
    response = events_response(body, job.close, lambda: None, {}, attach)
    sending = asyncio.create_task(asgi._send(response, send, 60, writer))
    for event in EVENTS:
        for _ in range(rng.randrange(6)):
            await asyncio.sleep(0)
        job.put(event)
    await sending
    return b"".join(out), writer.sent if writer else 0


@pytest.mark.parametrize("new_chunks", [chat_chunks, completion_chunks])
@pytest.mark.parametrize("new_events", [lambda: None, _Echo])
def test_the_stream_is_the_same(
    new_chunks: Callable[[], Chunks], new_events: Callable[[], Events | None]
) -> None:
    whole, _ = asyncio.run(sent(new_chunks(), new_events(), None))
    direct = 0
    for seed in range(20):
        body, at_once = asyncio.run(sent(new_chunks(), new_events(), seed))
        assert body == whole
        direct += at_once
    assert direct > 5 * len(whole), "most was sent by the task"


@pytest.mark.parametrize("request_line", ["POST / HTTP/1.1", "HEAD / HTTP/1.1", "GET / HTTP/1.0"])
@pytest.mark.parametrize("headers", [[], [(b"content-length", b"7")]])
def test_chunks_are_framed_as_h11_frames_them(request_line: str, headers: list[Any]) -> None:
    def written(connection: h11.Connection) -> list[bytes]:
        connection.receive_data(f"{request_line}\r\nHost: a\r\n\r\n".encode())
        assert isinstance(connection.next_event(), h11.Request)
        connection.next_event()
        pieces = [] if request_line.startswith("HEAD") else [b"abc", b"", b"de\r\n"]
        data = [h11.Data(data=piece) for piece in pieces]
        response = h11.Response(status_code=200, headers=headers)
        return [connection.send(e) or b"" for e in (response, *data, h11.EndOfMessage())]

    own, plain = StrictH11(h11.SERVER), h11.Connection(h11.SERVER)
    assert written(own) == written(plain)
    if own.our_state is h11.DONE:  # the connection's next request
        own.start_next_cycle()
        plain.start_next_cycle()
        assert written(own) == written(plain)


def test_the_log_counts_what_was_written_at_once() -> None:
    records: list[RequestRecord] = []

    class Listener:
        def began(self, record: RequestRecord, scope: Any) -> None: ...

        def ended(self, record: RequestRecord) -> None:
            records.append(record)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["state"][asgi.WRITER].write(b"12345")
        await send({"type": "http.response.body", "body": b"678"})

    async def ignore(message: Any) -> None: ...

    writer = _Writer([], random.Random(1))
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    scope["state"] = {asgi.WRITER: writer}
    asyncio.run(RequestLog(app, [Listener()])(scope, ignore, ignore))  # type: ignore[arg-type]
    assert records[0].sent == 8
