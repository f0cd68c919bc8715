"""A loaded model: its engine process, its prompt processes and its client. `pool.py` decides when
to load and unload."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from threading import Thread
from typing import Any, TypeVar

from mlcc.model.model import ModelText
from mlcc.server.prompts.prompt_pool import PromptPool
from mlcc.server.prompts.prompt_worker import OpenText
from mlcc.service.response_store.conversations import Conversations
from mlcc.service.served_model import ServedModel, ServiceBounds
from mlcc.worker.client import WorkerClient
from mlcc.worker.process import EngineProcess
from mlcc.worker.worker import OpenModel

T = TypeVar("T")
PROMPT_WORKERS = 1
"""Prompt processes per model: long prompts of one model do not delay other models."""


class LoadedModel:
    """`load` in the event loop; then `core` answers, until `close`."""

    def __init__(
        self,
        open_model: OpenModel,
        open_text: OpenText,
        bounds: ServiceBounds,
        max_queue: int,
        conversations: Conversations,
        on_progress: Callable[[int, int], None],
    ) -> None:
        """`on_progress` gets the bytes that have been read, and all, in another thread."""
        self._on_progress = on_progress
        self._open_model, self._open_text = open_model, open_text
        self._bounds, self._max_queue = bounds, max_queue
        self._conversations = conversations
        self._stack = ExitStack()
        self._client: WorkerClient | None = None
        self.notes: tuple[str, ...] = ()

    async def load(self, name: str, aliases: Sequence[str]) -> None:
        """Start the processes; the model answers to these names. If cancelled, it leaves none
        behind.

        Raises MlccError.
        """
        loading = _in_thread(self._start)
        try:
            text, process = await asyncio.shield(loading)
            prompts = PromptPool(self._open_text, workers=PROMPT_WORKERS)
            self._stack.enter_context(closing(prompts))
        except BaseException:
            await self._clean_up_cancelled(loading)
            raise
        self._client = WorkerClient(process, self._max_queue)
        text = replace(text, name=name)
        conversations = self._conversations
        self.served = ServedModel(self._client, text, self._bounds, prompts, conversations, aliases)
        self.notes = process.notes
        self._client.start()
        prompts.start()

    async def close(self, why: str) -> None:
        """End the processes and fail waiting requests. Idempotent."""
        if self._client is not None:
            self._client.stop(why)
        await _in_thread(self._stack.close)

    def _start(self) -> tuple[ModelText, EngineProcess]:
        """Open the model. Blocking; another thread may close the process meanwhile."""
        text = self._open_text()
        return text, EngineProcess(self._open_model, self._on_created, self._on_progress)

    def _on_created(self, process: EngineProcess) -> None:
        self._stack.callback(process.close)

    async def _clean_up_cancelled(self, loading: asyncio.Future[Any]) -> None:
        """Close everything that has started or still starts, until the loading thread is done."""
        while not loading.done():
            await _in_thread(self._stack.close)
            await asyncio.wait([loading], timeout=0.05)
        loading.exception()  # mark it as retrieved
        await _in_thread(self._stack.close)


def _in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run in a new thread: the loop's own threads may all be busy with loads that this call should
    end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_settle, future, result, error)

    Thread(target=run, name="model-pool", daemon=True).start()
    return future


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
