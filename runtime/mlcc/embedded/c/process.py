"""The thread that owns Python: one event loop that executes the host's commands, for all models.

C++ (`mobile/c/src/interpreter.cc`) calls `run` once, and it never returns. Commands arrive as a
name and (engine, call, *bytes); an exception in one of them does not end the loop.
"""

from __future__ import annotations

import asyncio
import io
import sys
import traceback
from pathlib import Path
from typing import Any

from mlcc.embedded.c.codes import Code, Kind, Trim
from mlcc.embedded.c.model import HostedModel
from mlcc.util.executor_library import look_in


class Process:
    """All models of the process; `host` is the module `_mlcc`."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self._hosted: dict[int, HostedModel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def take(self) -> None:
        """Execute all pending commands."""
        for name, engine, call, *texts in self._host.take():
            try:
                getattr(self, name)(engine, call, *texts)
            except Exception:  # a bug in one command
                traceback.print_exc()
                self._bug(name, engine, call)

    def create(self, engine: int, _: int, options: bytes) -> None:
        """Load a model, after the pending commands."""
        hosted = self._hosted[engine] = HostedModel(self._host, engine, options)
        asyncio.get_running_loop().call_soon(hosted.load)

    def request(self, engine: int, call: int, *texts: bytes) -> None:
        """Answer a request."""
        method, path, headers, body = texts
        self._hosted[engine].request(call, method, path, headers, body)

    def cancel(self, engine: int, call: int) -> None:
        """Cancel a request."""
        if hosted := self._hosted.get(engine):
            hosted.cancel(call)

    def trim(self, engine: int, level: int) -> None:
        """Reduce a model's memory."""
        if hosted := self._hosted.get(engine):
            hosted.trim(Trim(level))

    def background(self, engine: int, away: int) -> None:
        """The app went into the background, or came back."""
        if hosted := self._hosted.get(engine):
            hosted.background(bool(away))

    def stats(self, engine: int, question: int) -> None:
        """Return a model's counters."""
        hosted = self._hosted.get(engine)
        self._host.answer(question, hosted.stats() if hosted else "{}")

    def close(self, engine: int, _: int) -> None:
        """Close a model."""
        task = asyncio.get_running_loop().create_task(self._close(engine))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, engine: int) -> None:
        try:
            if hosted := self._hosted.pop(engine, None):
                await hosted.close()
        except Exception:
            traceback.print_exc()
        self._host.closed(engine)

    def _bug(self, name: str, engine: int, call: int) -> None:
        """Answer the waiting call, so that it does not block forever."""
        if name == "stats":
            self._host.answer(call, "{}")
        elif name == "request":
            self._host.put(engine, call, Kind.END, Code.FAILED, b"")
            self._host.flush(engine)


class _Log(io.TextIOBase):
    """stderr, line by line, to the host's log."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self._rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Forward complete lines."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._host.log(line)
        return len(text)


async def _serve(host: Any) -> None:
    process = Process(host)
    asyncio.get_running_loop().add_reader(host.wakes(), process.take)
    process.take()
    await asyncio.Event().wait()


def run() -> None:
    """Run the event loop; never returns."""
    import _mlcc  # type: ignore[import-not-found]

    sys.stderr = sys.stdout = _Log(_mlcc)
    look_in(Path(_mlcc.folder()))
    asyncio.run(_serve(_mlcc))
