"""Grammars of new requests, read in a thread beside the engine's, which goes on with its steps."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from mlcc.api.errors import internal_error
from mlcc.engine.request import Request
from mlcc.engine.sampling.grammar import Grammar, Grammars
from mlcc.errors import MlccError


class GrammarThread:
    """Belongs to the engine's thread; the one beside it starts with the first grammar."""

    def __init__(self, grammars: Grammars | None) -> None:
        self._grammars = grammars
        self._thread = ThreadPoolExecutor(1, "grammars")
        self._pending: dict[str, tuple[Request, Future[Grammar]]] = {}

    @property
    def available(self) -> bool:
        """Whether there is anything that reads grammars."""
        return self._grammars is not None

    @property
    def busy(self) -> bool:
        """Whether `completed` has something to give, now or soon."""
        return bool(self._pending)

    def open(self, request: Request) -> None:
        """Read the grammar of a request, which waits for it."""
        assert self._grammars is not None and request.structure is not None
        future = self._thread.submit(self._grammars.open, request.structure)
        self._pending[request.id] = request, future

    def completed(self) -> Iterator[tuple[Request, Grammar | MlccError]]:
        """Those that are ready, or were refused."""
        for request, future in [*self._pending.values()]:
            if future.done():
                del self._pending[request.id]
                yield request, _outcome(future)

    def cancel(self, request_id: str) -> None:
        """Nobody waits for it any more. What is being read is read to its end."""
        if entry := self._pending.pop(request_id, None):
            entry[1].cancel()

    def close(self) -> None:
        """Read no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _outcome(future: Future[Grammar]) -> Grammar | MlccError:
    try:
        return future.result()
    except MlccError as error:
        return error
    except Exception:
        traceback.print_exc()
        return internal_error()
