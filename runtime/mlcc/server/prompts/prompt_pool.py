"""Prompt pool: implements the port `Prompts` with worker processes. A prompt that takes too much
time or memory costs its process only, and other requests do not wait for it."""

from __future__ import annotations

import asyncio
import multiprocessing
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import Any

from mlcc.api.errors import BusyError, RequestTimeoutError
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import MlccError
from mlcc.multimodal.header import read_headers
from mlcc.multimodal.placeholders import PromptMedia
from mlcc.multimodal.prompt import Prompt
from mlcc.server.prompts import chunked_pickle
from mlcc.server.prompts.prompt_worker import (
    CODES,
    OpenText,
    PromptJob,
    Reply,
    prompt_main,
    too_costly_error,
)
from mlcc.service.served_model import NO_VARIABLES
from mlcc.util.child_processes import await_first_message, child_process

WORKERS = 2
LARGE = 64 << 10
"""Characters. Larger prompts are processed one at a time, so that a worker stays free for
others."""
PIXELS_OF_A_CHARACTER = 64
"""So many pixels count as one: images of more than 4 million are large."""
BYTES_OF_A_CHARACTER = 16
"""Of sound: more than a megabyte is large."""
MANY = 256
"""Messages. Longer conversations are measured in a thread."""
MEMORY_BYTES = 1 << 30
STARTS = 3
"""Attempts to start a process: what ended one may end the next while it starts."""
ATTEMPTS = 3
"""Number of processes that a job may lose: an out-of-memory killer may take two in a row."""
LONGEST_S = 30.0
STRUCTURE_S = 10.0
"""Time limit for a grammar or schema; typical ones take milliseconds."""
KNOWN = 256
"""Number of checked grammars that are remembered."""


class PromptWorker:
    """One worker process, started on first use and after each kill. Blocking."""

    def __init__(self, open_text: OpenText, memory_bytes: int) -> None:
        self._arguments = (open_text, memory_bytes)
        self._process: Any = None
        self._start_lock = Lock()
        self._closed = False

    def open(self) -> None:
        """Start the process if there is none. Raises MlccError if it fails to start."""
        with self._start_lock:
            reply: Reply | None = None
            for _ in range(STARTS):
                if self._process is not None or self._closed:
                    return
                with suppress(OSError):  # one may die while it is started, or there is no pipe left
                    self._start()
                    reply = self._receive(starts=True)
                if reply is not None:
                    break
            if reply is None:
                reply = BusyError(
                    "the process that reads prompts died while it started; try again later, and "
                    "see whether this machine has too little memory",
                    code="prompt_process_died",
                )
            if isinstance(reply, MlccError):
                self._discard()
                raise reply

    def _start(self) -> None:
        self._connection, child = multiprocessing.Pipe()
        process = child_process("mlcc-prompts", prompt_main, child, *self._arguments)
        process.start()
        self._process = process  # only now: a process that has not started cannot be killed
        child.close()
        if self._closed:  # closed while it started
            process.kill()

    def ask(self, job: PromptJob, longest_s: float | None = None) -> Reply:
        """Run a job; one that takes longer than `longest_s` is ended with its process. The time
        of starting a process does not count. If the process dies by itself, the job is run
        again: something else may have ended it. One that ends `ATTEMPTS` has used too much."""
        for _ in range(ATTEMPTS):
            self.open()
            if self._closed:
                break
            try:
                self._connection.send_bytes(chunked_pickle.dumps(job))
                if not self._connection.poll(longest_s):
                    self._discard()
                    return too_costly_error(job, f"more than {longest_s:g} seconds")
            except OSError:
                self._discard()
                continue
            if (reply := self._receive()) is not None:
                return reply
        return too_costly_error(job, "so much that its process had to be ended")

    def close(self) -> None:
        """Kill the process for good: a pending `ask` returns. Idempotent."""
        self._closed = True
        if (process := self._process) is not None:
            process.kill()

    def _receive(self, starts: bool = False) -> Reply | None:
        """Return the next reply; None = the process died. starts: it is the first one."""
        try:
            if starts:
                await_first_message(self._connection, self._process)
            reply: Reply = self._connection.recv()
        except (EOFError, OSError):
            self._discard()
            return None
        return reply

    def _discard(self) -> None:
        if (process := self._process) is not None:
            process.kill()
            process.join()
            self._process = None


class PromptPool:
    """Several workers. The first one's process starts now, each further one once more prompts come
    at a time than workers have started, or a large one: most servers read one prompt at a time, and
    each process takes a third of a second and has a tokenizer of its own. Call `start` in the event
    loop; it does not wait for a process."""

    def __init__(
        self,
        open_text: OpenText,
        *,
        workers: int = WORKERS,
        memory_bytes: int = MEMORY_BYTES,
        longest_s: float = LONGEST_S,
    ) -> None:
        self._workers = [PromptWorker(open_text, memory_bytes) for _ in range(workers)]
        self._longest_s = longest_s
        self._known: OrderedDict[Structure, None] = OrderedDict()
        self._threads = ThreadPoolExecutor(workers, "prompts")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._started = self._jobs = 0
        self._threads.submit(self._workers[0].open)

    def start(self) -> None:
        """Begin to accept prompts."""
        self._idle: asyncio.Queue[PromptWorker] = asyncio.Queue()
        self._large = asyncio.Lock()
        self._start_workers(1)

    def _start_workers(self, wanted: int) -> None:
        """Start workers until as many have started, or all; does not wait for them."""
        for worker in self._workers[self._started : wanted]:
            self._keep(self._prepare(worker))
            self._started += 1

    def close(self) -> None:
        """End all processes. Idempotent."""
        for worker in self._workers:
            worker.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        context: int,
        seconds: float | None,
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> array[int]:
        """Return the token ids of a conversation."""
        size = await _size(messages, variables)
        return await self._ids(PromptJob(messages, context, variables), size, seconds)

    async def text(
        self, prompt: str, context: int, seconds: float | None, add_special: bool = True
    ) -> array[int]:
        """Return the token ids of a raw prompt, with the model's start token or without."""
        job = PromptJob(prompt, context, add_special=add_special)
        return await self._ids(job, len(prompt), seconds)

    async def chat_with_media(
        self,
        messages: Sequence[Mapping[str, Any]],
        media: PromptMedia,
        context: int,
        seconds: float | None,
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> Prompt:
        """Return the prompt of a conversation with images."""
        return await self._prompt(PromptJob(messages, context, variables, media=media), seconds)

    async def text_with_media(
        self, prompt: str, media: PromptMedia, context: int, seconds: float | None
    ) -> Prompt:
        """Return the prompt of a raw text with images."""
        return await self._prompt(PromptJob(str(prompt), context, media=media), seconds)

    async def written(
        self,
        messages: Sequence[Mapping[str, Any]],
        seconds: float | None,
        variables: Mapping[str, Any] = NO_VARIABLES,
        media: PromptMedia | None = None,
    ) -> str:
        """Return the rendered text of a conversation."""
        job = PromptJob(messages, variables=variables, written=True, media=media)
        codes = await self._ids(job, await _size(messages, variables), seconds)
        return await asyncio.to_thread(lambda: codes.tobytes().decode(CODES, "surrogatepass"))

    async def structure(self, structure: Structure, seconds: float | None) -> None:
        """Check that answers can be constrained to a structure: raises MlccError if not."""
        if structure not in self._known:
            await self._ids(PromptJob(structure), len(structure.text), seconds)
            self._known[structure] = None
            if len(self._known) > KNOWN:
                self._known.popitem(last=False)
        self._known.move_to_end(structure)

    async def _ids(self, job: PromptJob, size: int, seconds: float | None) -> array[int]:
        reply = await self._reply(job, size, seconds)
        assert isinstance(reply, array), "a job without images"
        return reply

    async def _prompt(self, job: PromptJob, seconds: float | None) -> Prompt:
        assert job.media is not None
        pixels = sum(head.width * head.height for head in read_headers(job.media.images))
        heard = sum(len(sound.data) for sound in job.media.sounds)
        size = pixels // PIXELS_OF_A_CHARACTER + heard // BYTES_OF_A_CHARACTER
        reply = await self._reply(job, size, seconds)
        assert isinstance(reply, Prompt), "a job with images"
        return reply

    async def _reply(self, job: PromptJob, size: int, seconds: float | None) -> array[int] | Prompt:
        try:
            reply = await asyncio.wait_for(self._turn(job, size), seconds)
        except asyncio.TimeoutError:
            raise RequestTimeoutError(
                f"the prompt was not read within {seconds:.2g} seconds; shorten it or allow "
                "more time ('timeout' of the request, --timeout of `mlcc serve`)",
                code="timeout",
            ) from None
        if not isinstance(reply, MlccError):
            return reply
        try:
            raise reply
        finally:
            del reply  # else the error, its frames and the prompt wait for a collection

    async def _turn(self, job: PromptJob, size: int) -> Reply:
        """Wait for a free worker and run the job. It continues, up to its time limit, if the caller
        stops waiting: restarting a process would cost the others more."""
        if is_large := size > LARGE:
            await self._large.acquire()
        self._jobs += 1
        self._start_workers(self._jobs + is_large)  # a large one leaves a worker to the others
        try:
            worker = await self._idle.get()
        except BaseException:
            self._jobs -= 1
            if is_large:
                self._large.release()
            raise
        longest = STRUCTURE_S if isinstance(job.what, Structure) else self._longest_s
        asking = self._keep(self._ask(worker, job, longest))
        if is_large:
            asking.add_done_callback(lambda done: self._large.release())
        return await asyncio.shield(asking)

    async def _ask(self, worker: PromptWorker, job: PromptJob, longest_s: float) -> Reply:
        """Run the job to its end: afterwards the worker is free, or a new one is starting."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, worker.ask, job, longest_s)
        except MlccError as error:  # it did not start
            return error
        finally:
            self._jobs -= 1
            self._keep(self._prepare(worker))

    async def _prepare(self, worker: PromptWorker) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._threads, worker.open)
        except MlccError:
            pass  # the next `ask` reports it
        finally:
            self._idle.put_nowait(worker)

    def _keep(self, work: Any) -> asyncio.Task[Any]:
        """Create a task and hold a reference while it runs."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _size(messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> int:
    """Characters of a conversation, about; counted in a thread if there are many messages."""

    def count() -> int:
        texts = (text for message in messages for text in map(str, message.values()))
        return sum(map(len, texts)) + len(str(variables))

    return await asyncio.to_thread(count) if len(messages) > MANY else count()
