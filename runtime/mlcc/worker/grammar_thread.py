"""Compiles the grammars of new requests in a thread, while the engine thread continues stepping."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from mlcc.api.errors import internal_error
from mlcc.engine.request import Request
from mlcc.engine.sampling.grammar import Grammar, Grammars
from mlcc.errors import MlccError


class GrammarThread:
    """Owned by the engine thread; the grammar thread starts with the first grammar."""

    def __init__(self, grammars: Grammars | None) -> None:
        self._grammars = grammars
        self._thread = ThreadPoolExecutor(1, "grammars")
        self._pending: dict[str, tuple[Request, Future[Grammar]]] = {}

    @property
    def available(self) -> bool:
        """Whether there is a grammar backend."""
        return self._grammars is not None

    @property
    def busy(self) -> bool:
        """Whether grammars are being compiled or wait in `completed`."""
        return bool(self._pending)

    def open(self, request: Request) -> None:
        """Start compiling the grammar of a request."""
        assert self._grammars is not None and request.structure is not None
        future = self._thread.submit(self._grammars.open, request.structure)
        self._pending[request.id] = request, future

    def completed(self) -> Iterator[tuple[Request, Grammar | MlccError]]:
        """Yield the requests whose grammar is ready or was refused."""
        for request, future in [*self._pending.values()]:
            if future.done():
                del self._pending[request.id]
                yield request, _outcome(future)

    def cancel(self, request_id: str) -> None:
        """Drop a request. A compilation that has started runs to its end."""
        if entry := self._pending.pop(request_id, None):
            entry[1].cancel()

    def close(self) -> None:
        """Stop compiling."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _outcome(future: Future[Grammar]) -> Grammar | MlccError:
    try:
        return future.result()
    except MlccError as error:
        return error
    except Exception:
        traceback.print_exc()
        return internal_error()
