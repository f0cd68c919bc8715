"""One request's share of the engine: one engine request per answer, their events as one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from mlcc.api.errors import CancelledError, RequestTimeoutError
from mlcc.api.openai.responses import FINISH_REASONS, Answer
from mlcc.engine.events import Event, Finished, TextDelta
from mlcc.errors import MlccError

Forget = Callable[[str, bool], None]
"""Called once per request id, with whether it came to its end."""


class Job:
    """Lives in the event loop. `close` must be called; it cancels what has not ended."""

    def __init__(
        self, ids: Sequence[str], forget: Forget, timeout_s: float | None, tenant: str = ""
    ) -> None:
        self.tenant = tenant
        self.finished: dict[int, Finished] = {}
        self.failure: MlccError | None = None
        """Why a stream of it ended early."""
        self.prompt_field = "prompt"
        """The request's field that a refusal of a prompt names."""
        self._index = {request_id: index for index, request_id in enumerate(ids)}
        self._forget = forget
        self._early: deque[Event] = deque()
        """Came while `accepted` waited: before all that is in the queue."""
        self._queue: asyncio.Queue[Event | MlccError | None] = asyncio.Queue()
        """None = the engine has taken one more request."""
        self._timer = self._start_timer(timeout_s) if timeout_s is not None else None

    @property
    def size(self) -> int:
        """How many answers it wants."""
        return len(self._index)

    def accept(self) -> None:
        """The engine has taken one of the requests."""
        self._queue.put_nowait(None)

    def put(self, event: Event) -> None:
        """Something happened."""
        self._queue.put_nowait(event)

    def fail(self, error: MlccError) -> None:
        """Nothing good will come any more: nothing more is worked for it from now on, whether or
        not whoever is to hear of it listens."""
        self._queue.put_nowait(error)
        self._forget_all()

    async def accepted(self) -> None:
        """Wait until the engine has taken every request. Raises its refusal."""
        missing = len(self._index)
        early: list[Event] = []
        while missing:
            event = await self._next()
            if event is None:
                missing -= 1
            else:
                early.append(event)
        self._early.extend(early)

    async def events(self) -> AsyncIterator[tuple[int, Event]]:
        """Events with the index of their answer, until every answer is complete.

        Raises MlccError if an answer will never be: timeout, cancelled, engine gone.
        """
        while len(self.finished) < len(self._index):
            event = await self._next()
            if event is None:
                continue
            index = self._index[event.request_id]
            if isinstance(event, Finished):
                _check(event)
                self.finished[index] = event
                self._forget(event.request_id, True)
            yield index, event

    async def answers(self) -> list[Answer]:
        """All answers, complete, in the order of the requests."""
        deltas: list[list[TextDelta]] = [[] for _ in self._index]
        async for index, event in self.events():
            if isinstance(event, TextDelta):
                deltas[index].append(event)
        return [
            Answer(
                "".join(delta.text for delta in mine),
                self.finished[index],
                [token for delta in mine for token in delta.token_logprobs],
                [token for delta in mine for token in delta.prompt_logprobs],
                _mean([logprob for delta in mine for logprob in delta.logprobs]),
            )
            for index, mine in enumerate(deltas)
        ]

    def usage(self) -> list[Finished]:
        """The ends of all answers, in the order of the requests."""
        return [self.finished[index] for index in sorted(self.finished)]

    def close(self) -> None:
        """Cancel what has not ended. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        self._forget_all()

    def _forget_all(self) -> None:
        for request_id in self._index:
            self._forget(request_id, False)

    def _start_timer(self, timeout_s: float) -> asyncio.TimerHandle:
        error = RequestTimeoutError(
            "no complete answer within the time that a request may take; ask for fewer tokens or "
            "allow more time ('timeout' of the request, --timeout of `mlcc serve`)",
            code="timeout",
        )
        return asyncio.get_running_loop().call_later(timeout_s, self.fail, error)

    async def _next(self) -> Event | None:
        message = self._early.popleft() if self._early else await self._queue.get()
        if isinstance(message, MlccError):
            raise with_param(self.prompt_field, message)
        return message


def with_param(field: str, error: MlccError) -> MlccError:
    """What is wrong with a prompt, named as the field of the request that it came in."""
    if error.param == "prompt":
        error.param = field
    return error


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _check(event: Finished) -> None:
    """An answer that ended in a way that OpenAI has no word for is an error."""
    if event.reason in FINISH_REASONS:
        return
    raise CancelledError("the request was cancelled")  # a failed device fails the job itself
