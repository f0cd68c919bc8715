"""Controls `tests/e2e/mobile/host.cc`, a program with the C library, over its pipes.

The library is never loaded into the test's own process, which has a Python interpreter already.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import IO, Any

from mlcc.embedded.c.codes import Code, Kind

HEAD = struct.Struct("=IIQQiiI")
NULL = "\1"
ABI = 1


class Name(IntEnum):
    """Names of frames, as in host.cc."""

    START, CREATE, REQUEST, CANCEL, POLL, STATS, TRIM, BACKGROUND, CLOSE = range(1, 10)
    ARM, LET_GO, TOKENS, OWN_PYTHON, MEMORY = range(10, 15)
    EVENT, ASK, RELEASED, LOG = range(100, 104)


class Act(IntEnum):
    """The action of the next callback of events."""

    NOTHING, CANCEL, CLOSE, END_THREAD, WAIT, STATS, ANOTHER = range(7)


@dataclass(frozen=True)
class Frame:
    name: int
    id: int = 0
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    texts: tuple[bytes, ...] = ()

    @property
    def error(self) -> Any:
        """{"message", "type", "param", "code"} of a failure; None if there is none."""
        return json.loads(self.texts[0])["error"] if self.texts[0] else None


@dataclass(frozen=True)
class Event:
    batch: int
    kind: int
    status: int
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)


@dataclass
class Call:
    """A request and its events."""

    number: int
    events: SimpleQueue[Event] = field(default_factory=SimpleQueue)

    def each(self, timeout: float = 60) -> Iterator[Event]:
        """The events until END, which is the last."""
        while True:
            event = self.events.get(timeout=timeout)
            yield event
            if event.kind == Kind.END:
                return

    def answer(self) -> tuple[int, bytes]:
        """(HTTP's status, body) of one that is answered whole."""
        head, *body, end = list(self.each())
        assert head.kind == Kind.HEAD and end.status == Code.OK, (head, end)
        return head.status, b"".join(event.data for event in body)

    def end(self) -> Event:
        """The last event."""
        return list(self.each())[-1]


Tokenizer = Callable[[int, int, bytes], tuple[int, bytes]]
"""(function: 0 encode, 1 decode, 2 special tokens, 3 images; special; text, or an image's type, a
zero and its file) -> (0 = success, bytes)."""


class Host:
    """A running program. `close` leaves none behind."""

    def __init__(
        self,
        program: Path | Sequence[str],
        tokenizer: Tokenizer | None = None,
        stderr: IO[bytes] | None = None,
    ) -> None:
        """program: host.cc's, or a command with arguments that understands the same frames."""
        self.log: list[str] = []
        self.released: SimpleQueue[None] = SimpleQueue()
        self.own: SimpleQueue[Event] = SimpleQueue()
        """Events of engines, not of calls; and results of actions in a callback, as kind -1."""
        self._tokenizer = tokenizer
        self._calls: dict[int, Call] = {}
        self._waiting: dict[int, Future[Frame]] = {}
        self._lock = Lock()
        self._last = 0
        self._process = subprocess.Popen(
            [program] if isinstance(program, Path) else program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def order(self, name: Name, *texts: str | bytes, timeout: float = 120, **numbers: int) -> Frame:
        """Send a command and wait for its reply."""
        return self.begin(name, *texts, **numbers).result(timeout)

    def begin(self, name: Name, *texts: str | bytes, **numbers: int) -> Future[Frame]:
        """Send a command, which the program runs in a thread; returns the reply."""
        reply: Future[Frame] = Future()
        with self._lock:
            self._last += 1
            number = self._last
            self._waiting[number] = reply
        self._write(Frame(name, number, texts=_bytes(texts), **numbers))
        return reply

    def start(
        self, zip: str | Path = NULL, home: str | Path = NULL, path: str = NULL, abi: int = 0
    ) -> Frame:
        """mlcc_start."""
        return self.order(Name.START, str(zip), str(home), path, d=abi)

    def create(self, callbacks: int = 1, abi: int = 0, **options: Any) -> int:
        """An engine that begins to load. callbacks: 1 events, 2 tokenizer, 8 images."""
        reply = self.order(Name.CREATE, json.dumps(options), c=callbacks, d=abi)
        assert reply.c == Code.OK, reply
        return reply.a

    def ready(self) -> Any:
        """Wait for READY; returns its data."""
        event = self.state()
        assert event.kind == Kind.READY, event
        return event.json

    def state(self) -> Event:
        """The next event of an engine but PROGRESS."""
        while (event := self.own.get(timeout=60)).kind == Kind.PROGRESS:
            pass
        return event

    def ask(
        self,
        engine: int,
        path: str,
        body: Any = None,
        method: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Call:
        """mlcc_request, which must succeed."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body)
        header_text = NULL if headers is None else json.dumps(headers)
        verb = method or ("GET" if body is None else "POST")
        reply = self.order(Name.REQUEST, verb, path, header_text, data, a=engine)
        assert reply.c == Code.OK, reply
        return self.call(reply.b)

    def call(self, number: int) -> Call:
        """The call of a number; its events may have come before."""
        with self._lock:
            return self._calls.setdefault(number, Call(number))

    def stats(self, engine: int) -> Any:
        """mlcc_stats."""
        reply = self.order(Name.STATS, a=engine)
        assert reply.c == Code.OK, reply
        return json.loads(reply.texts[1])

    def memory(self) -> int:
        """Resident bytes of the program."""
        return self.order(Name.MEMORY).a

    def close(self) -> None:
        """End the program. Raises AssertionError if it did not end well."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            assert self._process.wait(30) == 0, self._process.returncode
        finally:
            self._process.kill()
            self._reader.join(10)
            self._process.stdout.close()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, frame: Frame) -> None:
        numbers = (frame.name, frame.id, frame.a, frame.b, frame.c, frame.d, len(frame.texts))
        parts = [HEAD.pack(*numbers)]
        for text in frame.texts:
            parts += [struct.pack("=I", len(text)), text]
        assert self._process.stdin
        with self._lock:
            self._process.stdin.write(b"".join(parts))
            self._process.stdin.flush()

    def _read(self) -> None:
        while (frame := self._next()) is not None:
            if frame.name == Name.EVENT:
                self._event(frame)
            elif frame.name == Name.ASK:
                assert self._tokenizer
                status, text = self._tokenizer(frame.c, frame.d, frame.texts[0])
                self._write(Frame(Name.TOKENS, frame.id, c=status, texts=(text,)))
            elif frame.name == Name.RELEASED:
                self.released.put(None)
            elif frame.name == Name.LOG:
                self.log.append(frame.texts[0].decode())
                print(self.log[-1], file=sys.stderr)
            else:
                self._waiting.pop(frame.id).set_result(frame)
        for reply in self._waiting.values():
            reply.set_exception(EOFError("the program ended"))

    def _event(self, frame: Frame) -> None:
        event = Event(frame.id, frame.c, frame.d, frame.texts[0])
        if frame.b == 0 or frame.c == -1:
            self.own.put(event)
            return
        self.call(frame.b).events.put(event)

    def _next(self) -> Frame | None:
        if not (head := self._bytes(HEAD.size)):
            return None
        *numbers, count = HEAD.unpack(head)
        texts = []
        for _ in range(count):
            (size,) = struct.unpack("=I", self._bytes(4))
            texts.append(self._bytes(size))
        return Frame(*numbers, texts=tuple(texts))

    def _bytes(self, size: int) -> bytes:
        assert self._process.stdout
        return self._process.stdout.read(size)


def _bytes(texts: tuple[str | bytes, ...]) -> tuple[bytes, ...]:
    return tuple(text.encode() if isinstance(text, str) else text for text in texts)
