"""The engine as asyncio sees it: requests go in, their events go to the jobs that own them.

`EngineClient` tracks requests in flight, the space left in the queue, and whether the engine is
alive. Subclasses know where the engine runs: in another process (`mlcc.worker.client`) or in this
event loop (`mlcc.embedded.engine`). A `Job` is one API request: one engine request for each answer,
and their events as one stream.

An `Observer` (`observer.py`) sees finished requests, never the text of a request or an answer.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.api.errors import (
    BusyError,
    CancelledError,
    NotFoundError,
    RequestTimeoutError,
    SleepingError,
)
from mlcc.api.openai.responses import FINISH_REASONS, Answer
from mlcc.api.schema.field_names import AS_SENT, FieldNames
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.events import Event, Finished, TextDelta
from mlcc.engine.request import FinishReason, Request
from mlcc.errors import InvalidRequestError, MlccError, UnsupportedError
from mlcc.service.adapters import AdapterEntry
from mlcc.service.observer import FinishedRequest, Observer, ObserverGroup

Forget = Callable[[str, bool], None]
"""Called once per request id, with whether the request finished."""


class Job:
    """Belongs to the event loop. `close` must be called; it cancels unfinished requests."""

    def __init__(
        self, ids: Sequence[str], forget: Forget, timeout_s: float | None, tenant: str = ""
    ) -> None:
        self.tenant = tenant
        self.finished: dict[int, Finished] = {}
        self.failure: MlccError | None = None
        """The error that ended a stream."""
        self.prompt_field = "prompt"
        """The request's field that errors about a prompt name."""
        self.names: FieldNames = AS_SENT
        """Names of the fields that were sent."""
        self._index = {request_id: index for index, request_id in enumerate(ids)}
        self._forget = forget
        self.direct: Callable[[Event], bool] | None = None
        """Takes an event at once, if it can, while the reader of `events` waits for one: the
        reader's task need not run for each token. Returns whether it did."""
        self._queue: deque[Event | Exception | None] = deque()
        """None = the engine accepted one more request."""
        self._reader: asyncio.Future[None] | None = None
        """Awaited while the queue is empty."""
        self._timer = self._start_timer(timeout_s) if timeout_s is not None else None

    @property
    def size(self) -> int:
        """Number of answers."""
        return len(self._index)

    def accept(self) -> None:
        """Record that the engine accepted one of the requests."""
        self._put(None)

    def put(self, event: Event) -> None:
        """Queue an event, unless `direct` takes it."""
        if self.direct is not None and self._reader is not None and not self._reader.done():
            try:
                if self.direct(event):
                    return
            except Exception as error:  # raised where the event would have been read
                return self._put(error)
        self._put(event)

    def fail(self, error: MlccError) -> None:
        """Fail the job: its requests are cancelled at once, whether or not a reader is waiting."""
        self._put(error)
        self._forget_all()

    async def accepted(self) -> None:
        """Wait until the engine has accepted every request. Raises its refusal."""
        missing = len(self._index)
        early: list[Event] = []
        while missing:
            event = await self._next()
            if event is None:
                missing -= 1
            else:
                early.append(event)
        self._queue.extendleft(reversed(early))

    async def events(self) -> AsyncIterator[tuple[int, Event]]:
        """Events with the index of their answer, until every answer is complete.

        Raises MlccError if an answer will not be completed: timeout, cancelled, engine gone.
        """
        while len(self.finished) < len(self._index):
            event = await self._next()
            if event is None:
                continue
            index = self.index_of(event)
            if isinstance(event, Finished):
                _check(event)
                self.finished[index] = event
                self._forget(event.request_id, True)
            yield index, event

    def index_of(self, event: Event) -> int:
        """The index of an event's answer."""
        return self._index[event.request_id]

    async def answers(self) -> list[Answer]:
        """All answers, complete, in the order of the requests."""
        return self.joined(await self.deltas())

    async def deltas(self) -> list[list[TextDelta]]:
        """The parts of all answers, once they are complete, in the order of the requests."""
        deltas: list[list[TextDelta]] = [[] for _ in self._index]
        async for index, event in self.events():
            if isinstance(event, TextDelta):
                deltas[index].append(event)
        return deltas

    def joined(self, deltas: Sequence[Sequence[TextDelta]]) -> list[Answer]:
        """The answers of which `deltas` returned the parts."""
        return [
            Answer(
                "".join(delta.text for delta in mine),
                self.finished[index],
                [token for delta in mine for token in delta.token_logprobs],
                [token for delta in mine for token in delta.prompt_logprobs],
                _mean([logprob for delta in mine for logprob in delta.logprobs]),
                [(delta.text, len(delta.token_ids)) for delta in mine],
            )
            for index, mine in enumerate(deltas)
        ]

    def usage(self) -> list[Finished]:
        """The `Finished` events of all answers, in the order of the requests."""
        return [self.finished[index] for index in sorted(self.finished)]

    def close(self) -> None:
        """Cancel unfinished requests. Idempotent."""
        self.direct = None  # which has the reader, and that this job
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
        while not self._queue:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        message = self._queue.popleft()
        try:
            if isinstance(message, MlccError):
                raise self.names.renamed(with_param(self.prompt_field, message))
            if isinstance(message, Exception):
                raise message
            return message
        finally:
            del message  # an error's traceback has this frame

    def _put(self, message: Event | Exception | None) -> None:
        self._queue.append(message)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


def with_param(field: str, error: MlccError) -> MlccError:
    """The error about a prompt, with the name of the request's field that holds it."""
    if error.param == "prompt":
        error.param = field
    return error


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _check(event: Finished) -> None:
    """Raise an error for an end that has no finish reason in OpenAI's API."""
    if event.error is not None:
        raise event.error
    if event.reason in FINISH_REASONS:
        return
    raise CancelledError("the request was cancelled")  # a failed device fails the job itself


@dataclass(slots=True, eq=False)
class RequestState:
    """A request in the engine, or on the way there. Times are of `time.monotonic`."""

    request: Request
    job: Job
    submitted: float
    """When it was submitted."""
    accepted: bool = False
    """Whether the job knows that an engine accepted it."""
    lost: int = 0
    """Number of engines that died while they had it."""
    first: float | None = None
    """Time of its first token."""
    tokens: int = 0
    """Tokens of its answer so far."""
    reported: bool = False
    """Whether the observer has its end."""

    @property
    def started(self) -> bool:
        """Whether a part of its answer may have been sent."""
        return self.first is not None

    def record(self, event: Event, now: float, observer: Observer) -> None:
        """Count an event."""
        if not isinstance(event, TextDelta):
            tokens = None if event.error else event.completion_tokens
            self.end(event.reason, now, observer, tokens, event.cached_tokens)
        elif event.token_ids or event.prompt_logprobs:
            self.tokens += len(event.token_ids)
            if self.first is None:
                self.first = now
                if self.request.background:  # how long it waited says nothing
                    return
                observer.first_token(self.request.tenant, now - self.submitted)

    def end(
        self,
        reason: FinishReason,
        now: float,
        observer: Observer,
        tokens: int | None = None,
        cached: int = 0,
    ) -> None:
        """Report the end to the observer, once."""
        if self.reported:
            return
        self.reported = True
        observer.done(
            FinishedRequest(
                self.request.tenant,
                reason,
                len(self.request.prompt),
                cached,
                self.tokens if tokens is None else tokens,
                None if self.first is None else self.first - self.submitted,
                now - self.submitted,
                self.request.background,
            )
        )


@dataclass(slots=True)
class AnswerTotals:
    """An observer that counts the answers of an engine since it was loaded; seconds are from an
    answer's submission to its end."""

    complete: int = 0
    complete_s: float = 0.0
    failed: int = 0
    """Those that ended as errors, and the cancelled ones."""
    failed_s: float = 0.0
    last_end: float = 0.0
    """Unix time of the last end; 0 = none ended."""

    def first_token(self, tenant: str, seconds: float, /) -> None:
        pass

    def restarted(self) -> None:
        pass

    def done(self, done: FinishedRequest, /) -> None:
        self.last_end = time.time()
        if done.reason in ("error", "cancelled"):
            self.failed, self.failed_s = self.failed + 1, self.failed_s + done.total
        else:
            self.complete, self.complete_s = self.complete + 1, self.complete_s + done.total


class EngineClient(ABC):
    """The client of one model's engine. Belongs to one event loop."""

    def __init__(self, max_in_flight: int) -> None:
        self.dead: MlccError | None = None
        """The error of all requests: for good, or until the engine is restarted."""
        self.asleep: SleepingError | None = None
        """The error of all requests while the model is out of memory; None = it is not."""
        self.totals = AnswerTotals()
        self._observer: Observer = self.totals
        self._limit = max_in_flight
        self._owners: dict[str, RequestState] = {}
        self._background = 0
        """Background requests in flight: no other request finds the queue full of them."""

    @property
    def observer(self) -> Observer:
        """Notified of first tokens and finished requests, as `totals` always is."""
        return self._observer

    @observer.setter
    def observer(self, observer: Observer) -> None:
        self._observer = ObserverGroup(self.totals, observer)

    @property
    def in_flight(self) -> int:
        """Number of requests waiting or running."""
        return len(self._owners)

    @property
    def queue_space(self) -> int:
        """Number of further requests that the queue takes, of any tenant."""
        return max(self._limit - self._queued, 0)

    @property
    def ready(self) -> bool:
        """Whether a new request would be processed at once."""
        return self.dead is None and self.asleep is None

    @property
    def adapters(self) -> Mapping[str, AdapterEntry]:
        """Adapters that requests may use, by name."""
        return {}

    async def load_adapter(self, entry: AdapterEntry, in_place: bool = False) -> None:
        """Load an adapter; returns when requests may use it. Raises UnsupportedError where there
        are no adapters, and errors about the folder."""
        raise UnsupportedError(
            "adapters are loaded by `mlcc serve` and by Python's Engine alone; merge this one into "
            "the weights with `mlcc compile --merge-lora`",
            code="no_adapters",
        )

    async def unload_adapter(self, name: str) -> None:
        """Refuse an adapter to new requests; running ones finish with it. Raises NotFoundError."""
        raise NotFoundError(
            f"no adapter '{name[:80]}' is loaded here", param="lora_name", code="model_not_found"
        )

    async def sleep(self, wait: bool) -> None:
        """Free the model's memory until `wake`; returns when it is free. wait: let running requests
        finish first, else they fail. Raises UnsupportedError where the engine cannot."""
        raise UnsupportedError(
            "the model sleeps in `mlcc serve` of one machine alone; end this program instead",
            code="no_sleep",
        )

    async def wake(self) -> None:
        """Load the model again; returns when requests are answered. Raises what loading raises."""
        assert self.asleep is None  # this engine never sleeps

    def check_alive(self) -> None:
        """Raise `dead`, if it is, or `asleep`."""
        if self.dead:
            raise self.dead.with_traceback(None)  # else each raise would extend it
        if self.asleep:
            raise self.asleep.with_traceback(None)

    def check_queue(self, count: int, tenant: str = "") -> None:
        """Raise BusyError or `dead` if `count` more requests cannot be queued now,
        InvalidRequestError if they never can be. A tenant without requests in flight may queue one
        even if others fill the queue."""
        self.check_alive()
        if count > self._limit:
            raise InvalidRequestError(
                f"the request wants {count} answers and {self._limit} are taken at most; send "
                "fewer prompts, a smaller 'n', or allow more (--max-queue of `mlcc serve`)",
                param="prompt",
                code="too_many_prompts",
            )
        if self._queued + count > self._limit and (count > 1 or self._has_in_flight(tenant)):
            raise BusyError(
                f"{self._queued} requests are live and the limit is {self._limit}; try again "
                "later or allow more (--max-queue of `mlcc serve`)",
                code="queue_full",
            )

    def submit(self, requests: Sequence[Request], timeout_s: float | None) -> Job:
        """Queue all answers of one API request. Raises as `check_queue`."""
        tenant, background = requests[0].tenant, requests[0].background
        if background:
            self.check_alive()
        else:
            self.check_queue(len(requests), tenant)
        job = Job([request.id for request in requests], self._forget, timeout_s, tenant)
        now = time.monotonic()
        for request in requests:
            self._owners[request.id] = RequestState(request, job, now)
            self._background += background
        try:
            for request in requests:
                self._add(request)
        except BaseException:
            job.close()
            raise
        return job

    @property
    def _queued(self) -> int:
        """Requests in flight that the limit bounds."""
        return self.in_flight - self._background

    def _has_in_flight(self, tenant: str) -> bool:
        return any(
            state.job.tenant == tenant and not state.request.background
            for state in self._owners.values()
        )

    @property
    @abstractmethod
    def capacity(self) -> Capacity:
        """The executor's capacity."""

    @abstractmethod
    async def counters(self) -> dict[str, Any]:
        """Counters for /health: `engine` is None during a long step. Raises `dead`."""

    @abstractmethod
    def _add(self, request: Request) -> None:
        """Send a request to the engine, which calls `_accept` or `_refuse` now or later."""

    @abstractmethod
    def _cancel(self, request_id: str) -> None:
        """Cancel a request in the engine."""

    def _accept(self, request_id: str) -> None:
        state = self._owners.get(request_id)
        if state is not None and not state.accepted:
            state.accepted = True
            state.job.accept()

    def _refuse(self, request_id: str, error: MlccError) -> None:
        if state := self._owners.get(request_id):
            state.job.fail(error)

    def _deliver(self, events: Iterable[Event]) -> None:
        now = time.monotonic()
        for event in events:
            if state := self._owners.get(event.request_id):
                state.job.put(event)
                state.record(event, now, self.observer)

    def fail_all(self, error: MlccError) -> None:
        """Cancel all requests in flight, which get this error."""
        self._fail(error)

    def _fail(self, error: MlccError) -> None:
        """Fail all requests in flight."""
        self._fail_jobs({state.job for state in self._owners.values()}, error)

    def _fail_jobs(self, jobs: Iterable[Job], error: MlccError) -> None:
        """Fail the jobs; each of their requests ends as an error."""
        now, doomed = time.monotonic(), set(jobs)
        for state in [state for state in self._owners.values() if state.job in doomed]:
            state.end("error", now, self.observer)
        for job in doomed:
            job.fail(error)

    def _die(self, error: MlccError) -> None:
        """Fail all requests, now and later. The first error is kept."""
        if self.dead is None:
            self.dead = error
            self._fail(error)

    def _forget(self, request_id: str, finished: bool) -> None:
        """Remove a request of a closed job."""
        state = self._owners.pop(request_id, None)
        if state is not None:
            self._background -= state.request.background
        if state is not None and not finished:
            state.end("cancelled", time.monotonic(), self.observer)
            if not self.dead:
                self._cancel(request_id)
