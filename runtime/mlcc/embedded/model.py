"""One model in one host: requests come in from JavaScript, responses go out as they are made."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from mlcc.api.errors import internal_error
from mlcc.artifact.manifest import Manifest
from mlcc.embedded.bridge import to_bytes, to_python
from mlcc.embedded.engine import LoopClient
from mlcc.embedded.executor import JsExecutor
from mlcc.embedded.planning import capacity_of
from mlcc.embedded.tokenizer import JsTokenizer
from mlcc.model.model import ModelText, read_text
from mlcc.service.endpoints import Service, ServiceBounds
from mlcc.service.exchange import ApiRequest, ApiResponse

_log = logging.getLogger(__name__)

MAX_QUEUE = 64
"""Requests that may wait, as on the server."""
BOUNDS = ServiceBounds(timeout_s=None)
"""The page that asks can also stop."""


class Call:
    """A request being answered."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def cancel(self) -> None:
        """Stop working on it: nothing more is written. Idempotent."""
        self._task.cancel()


class EmbeddedModel:
    """The API of one model. Needs a running event loop, in which all of it runs."""

    def __init__(
        self,
        manifest: Any,
        plan: str,
        texts: Any,
        tokenizer: Any,
        executor: Any,
        parse_special: bool = False,
    ) -> None:
        """`texts` are the plan's text files by path, but for tokenizer.json. `parse_special`: as
        `ModelText.with_special`.

        Raises ArtifactError, which `entry.check` tells before weights are fetched.
        """
        text = read_texts(manifest, texts, tokenizer)
        if parse_special:
            text = text.with_special()
        capacity = capacity_of(Manifest.from_bytes(to_bytes(manifest)), json.loads(plan))
        engine = text.new_engine(capacity)
        self._engine = LoopClient(engine, JsExecutor(executor), MAX_QUEUE)
        self._service = Service(self._engine, text, BOUNDS)
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, method: str, path: str, headers: str, body: Any, reply: Any) -> Call:
        """Answer a request: `reply.start(status, headers)` once, `reply.write(text)` as often as
        there is something; last, in any case, `reply.end()`, also when it was cancelled before, or
        `reply.fail(message)` if there is a bug.

        `path` as in a URL; `headers` a JSON object with lower-case names; `body` text or bytes.
        """

        async def read() -> bytes:
            return to_bytes(body)

        request = ApiRequest(method, _decoded(path), json.loads(headers), read)
        task = asyncio.get_running_loop().create_task(self._answer(request, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: _end(done, reply))
        return Call(task)

    def stats(self) -> str:
        """The engine's and the driver's counters, whatever state they are in."""
        return json.dumps(self._engine.look())

    def close(self) -> None:
        """Fail what is being answered, and everything from now on. Idempotent."""
        self._engine.close()

    async def _answer(self, request: ApiRequest, reply: Any) -> None:
        response = await self._service.answer(request)
        try:
            await _write(response, reply)
        finally:
            response.close()


def read_texts(manifest: Any, texts: Any, tokenizer: Any) -> ModelText:
    """The text side of a model, from what JavaScript has read. Raises ArtifactError."""
    read = to_python(texts).__getitem__
    return read_text(Manifest.from_bytes(to_bytes(manifest)), read, JsTokenizer(tokenizer))


def _end(done: asyncio.Task[None], reply: Any) -> None:
    if done.cancelled() or (error := done.exception()) is None:
        reply.end()
        return
    _log.error("a bug ended an answer", exc_info=error)
    reply.fail(internal_error().message)


async def _write(response: ApiResponse, reply: Any) -> None:
    reply.start(response.status, json.dumps(dict(response.headers)))
    if isinstance(response.body, str):
        reply.write(response.body)
        return
    async for line in response.body:
        reply.write(line)


def _decoded(path: str) -> str:
    """The path as servers see it: no query, and %41 for A undone."""
    path = path.partition("?")[0]
    if "%" in path:
        from urllib.parse import unquote

        path = unquote(path)
    return path
