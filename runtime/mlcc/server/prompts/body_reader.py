"""Processes that parse large JSON bodies, so that the event loop never does.

A body of at most `SMALL` bytes is parsed and checked at once: in 64 KiB there is nothing that takes
tens of milliseconds. A larger one is parsed in a process with bounded memory, and what checks and
translates the value runs in a thread; the loop gets its turn every few milliseconds meanwhile.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from mlcc.errors import CapacityError, MlccError
from mlcc.server.prompts import chunked_pickle
from mlcc.server.prompts.prompt_worker import bound_memory
from mlcc.service.http.json_body import parse_json
from mlcc.util.freed_memory import LARGE_BYTES, give_back_freed_memory

SMALL = 64 << 10
WORKERS = 2
MEMORY_BYTES = 1 << 30
T = TypeVar("T")


class BodyReader:
    """Parses the bodies of all requests. Its processes start with the first large body."""

    def __init__(self, workers: int = WORKERS) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._alone = asyncio.Semaphore(1)
        """Bounds the processes that read one body each."""

    async def parse(self, body: bytes) -> Any:
        """The value of a large body. Raises InvalidRequestError, or CapacityError if it takes too
        much memory."""
        reply = await asyncio.to_thread(chunked_pickle.loads, await self._read(body))
        if not isinstance(reply, MlccError):
            return reply
        try:
            raise reply
        finally:
            del reply  # else the error, this frame and the body wait for a collection

    async def _read(self, body: bytes) -> bytes:
        """The reply of a process. One that dies takes the bodies that others read with it: each is
        tried once more, and then in a process of its own, so that no body is refused for another's
        fault."""
        for _ in range(2):
            pool = self._opened()
            try:
                return await _in_pool(pool, body)
            except (BrokenProcessPool, OSError):  # one may die while it is started, too
                self._discard(pool)
        async with self._alone:
            pool = _new_pool(1)
            try:
                return await _in_pool(pool, body)
            except (BrokenProcessPool, OSError):
                raise CapacityError(
                    "the process that parsed the body was ended three times, perhaps because this "
                    "machine has too little memory; send fewer values, or try again later",
                    code="body_too_costly",
                ) from None
            finally:
                pool.shutdown(wait=False)

    def close(self) -> None:
        """End all processes. Idempotent."""
        if self._pool is not None:
            self._discard(self._pool)

    def _opened(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = _new_pool(self._workers)
        return self._pool

    def _discard(self, pool: ProcessPoolExecutor) -> None:
        if pool is self._pool:
            self._pool = None
        pool.shutdown(wait=False)  # other bodies of a broken pool must see that, to be tried again


class BodyOffload:
    """The `Offload` of one request."""

    def __init__(self, reader: BodyReader) -> None:
        self._reader = reader
        self._is_large = False

    async def parse(self, body: bytes) -> Any:
        """The value of the body. Raises MlccError."""
        self._is_large = len(body) > SMALL
        return await self._reader.parse(body) if self._is_large else parse_json(body)

    async def check(self, function: Callable[[], T]) -> T:
        """The function's result, computed in a thread if the body was large."""
        return await asyncio.to_thread(function) if self._is_large else function()


def _new_pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _prepare)


async def _in_pool(pool: ProcessPoolExecutor, body: bytes) -> bytes:
    return await asyncio.get_running_loop().run_in_executor(pool, _parse, body)


def _prepare() -> None:
    """Called first in each process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    bound_memory(MEMORY_BYTES)


def _parse(body: bytes) -> bytes:
    """The value in pieces, or the error as a value: errors with fields cannot be unpickled by
    themselves."""
    try:
        return chunked_pickle.dumps(parse_json(body))
    except MlccError as error:
        return chunked_pickle.dumps(error)
    except MemoryError:
        return chunked_pickle.dumps(_too_large())
    finally:
        if len(body) > LARGE_BYTES:
            give_back_freed_memory()


def _too_large() -> CapacityError:
    return CapacityError(
        f"parsing the body took more than {MEMORY_BYTES >> 20} MiB of memory; send fewer values",
        code="body_too_costly",
    )
