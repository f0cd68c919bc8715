"""The engine of encoders: texts in, steps of whole texts out, one row per text back.

Sans-IO like `engine.py`, and much smaller: a text takes one step, nothing of it is cached, and
there is no next token. Pages are used within their step only, so each step numbers them from the
first. Tenants take turns, one text each. Within a tenant requests are ordered by priority and age
as in `waiting_queue.py`. If a text does not fit into a step, shorter ones after it may run; its
tenant begins the next step. Background requests get what the others leave of a step.

One thread at a time may call it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple, Protocol

from mlcc.engine.batch.batch import Batch, BatchWriter, Capacity, PageList, check_capacity, int32
from mlcc.engine.events import AnswerTimes, Event, Finished, Stats
from mlcc.engine.request import FinishReason, Request
from mlcc.engine.sampling.grammar import Grammar
from mlcc.engine.scheduler.waiting_queue import LEVEL
from mlcc.errors import DeviceError, InvalidRequestError

LOOKED_THROUGH = 256
"""Texts after one that does not fit that are searched for a shorter one."""


_Owner = tuple[bool, str]
"""Whether requests are background requests, and their tenant."""
_is_background = itemgetter(0)


class Rows(Protocol):
    """Result of a step: float32, one row per text."""

    def tobytes(self) -> bytes: ...


class _Waiting(NamedTuple):
    """A text in its owner's queue, ordered by rank."""

    rank: int
    """Order in the queue: tokens computed before its arrival, shifted by its priority."""
    arrival: int
    request: Request


class EncoderEngine:
    """Batches texts for one encoder on one executor.

    pooling: which token's row a text yields, as in the manifest. width: numbers of a row.
    """

    def __init__(self, capacity: Capacity, pooling: str, width: int) -> None:
        check_capacity(capacity)
        self.capacity, self.width = capacity, width
        self._last = pooling == "last"
        self._waiting: dict[_Owner, list[_Waiting]] = {}
        """Waiting texts of each owner, by rank; the owner whose turn is next comes first."""
        self._overdue: dict[_Owner, None] = {}
        """Owners whose first text did not fit into a step, oldest first: they come next."""
        self._live: dict[str, Request] = {}
        self._arrived: dict[str, float] = {}
        """When the live texts arrived, by the clock of `times`."""
        self._planned = 0.0
        """When the last step was planned."""
        self.times = AnswerTimes()
        self._step: list[Request] = []
        """Of the step that is planned and not committed."""
        self._steps = self._requests = self._computed = 0

    @property
    def has_work(self) -> bool:
        """Whether a text waits or is being computed."""
        return bool(self._live or self._step)

    def add(self, request: Request, grammar: Grammar | None = None) -> None:
        """Queue a text. Raises InvalidRequestError if it can never be computed, or has a
        grammar."""
        if grammar is not None:
            raise InvalidRequestError("an encoder writes nothing; leave the grammar out")
        if request.id in self._live:
            raise InvalidRequestError(
                f"request id {request.id!r} is already in use; choose another", param="id"
            )
        self._check(request.prompt)
        self._live[request.id], self._arrived[request.id] = request, self.times.clock()
        rank = self._computed + LEVEL * request.priority
        waits = _Waiting(rank, self._requests, request)
        insort(self._waiting.setdefault(_owner(request), []), waits)
        self._requests += 1

    def cancel(self, request_id: str) -> list[Event]:
        """Drop a text. Returns its last event; none if it is unknown or already ended."""
        request = self._live.pop(request_id, None)
        if request is None:
            return []
        del self._arrived[request_id]
        line = self._waiting.get(_owner(request), [])
        line[:] = [waits for waits in line if waits.request is not request]
        if not line:
            self._waiting.pop(_owner(request), None)
        return [_end(request, "cancelled")]

    def plan(self, into: memoryview | None = None) -> Batch | None:
        """The next step, None if nothing waits or a step is not committed. into: memory for it, as
        `BatchWriter` takes it."""
        if self._step or not self._waiting:
            return None
        self._step, self._planned = self._chosen(), self.times.clock()
        writer = BatchWriter(self.capacity.layout, into)
        given = [0] * len(self.capacity.groups)
        """Pages of each group, so far."""
        for request in self._step:
            caches = []
            for g, group in enumerate(self.capacity.groups):
                count = -(-len(request.prompt) // group.page_size)
                caches.append(PageList(int32(range(given[g], given[g] + count))))
                given[g] += count
            first = writer.sequence(int32(request.prompt), 0, caches)
            writer.row(first + (len(request.prompt) - 1 if self._last else 0))
        batch = writer.finish()
        self._steps += 1
        self._computed += batch.num_tokens
        return batch

    def commit(self, rows: Rows) -> list[Event]:
        """Take the rows of the step. Raises DeviceError, and changes nothing, if they do not fit
        it."""
        size, data = 4 * self.width, rows.tobytes()
        if len(data) != size * len(self._step):
            raise DeviceError(
                f"the device gave {len(data)} bytes for {len(self._step)} rows of {self.width} "
                "numbers; compile the model again"
            )
        events: list[Event] = []
        for i, request in enumerate(self._step):
            if self._live.pop(request.id, None) is not None:
                events.append(_end(request, "stop", data[i * size : (i + 1) * size]))
                self.times.add("stop", self._arrived.pop(request.id), self._planned)
        self._step = []
        return events

    def fail(self) -> list[Event]:
        """The device failed: drop the step and end every text with "error"."""
        ended, self._live, self._step, self._waiting = self._live, {}, [], {}
        self._overdue, self._arrived = {}, {}
        return [_end(request, "error") for request in ended.values()]

    def forget_prefixes(self) -> None:
        """Does nothing: no prefixes are cached."""

    def prefix_digest(self) -> bytes:
        """Empty: no prefixes are cached."""
        return b""

    def stats(self) -> Stats:
        """Counters for metrics and tests."""
        waiting, pages = sum(map(len, self._waiting.values())), sum(self.capacity.pools)
        return Stats(
            waiting=waiting,
            running=len(self._step),
            in_flight=int(bool(self._step)),
            pages=pages,
            pages_free=pages,
            steps=self._steps - bool(self._step),
            requests=self._requests,
            computed_tokens=self._computed,
            sampled_tokens=0,
            preemptions=0,
            cached_tokens=0,
            drafted_tokens=0,
            accepted_tokens=0,
            pages_kept=0,
            answers=self.times.answers,
            queue_s=self.times.queue_s,
            compute_s=self.times.compute_s,
        )

    def _check(self, prompt: Sequence[int]) -> None:
        low, high, vocab = min(prompt), max(prompt), self.capacity.vocab_size
        if low < 0 or high >= vocab:
            raise InvalidRequestError(
                f"the text has token id {low if low < 0 else high}, the vocabulary is 0 .. "
                f"{vocab - 1}; encode it with this model's tokenizer",
                param="prompt",
                code="invalid_value",
            )
        longest = longest_text(self.capacity)
        if len(prompt) > longest:
            raise text_too_long(len(prompt), longest)

    def _chosen(self) -> list[Request]:
        """The texts of a step: of each owner in turn the first that fits, background requests
        last."""
        capacity, chosen = self.capacity, list[Request]()
        tokens = capacity.max_step_tokens
        pages = [*capacity.pools]
        most = min(capacity.max_batch, capacity.max_rows)
        late = [owner for owner in self._overdue if owner in self._waiting]
        self._overdue = dict.fromkeys(late)
        open_lines = [*dict.fromkeys((*late, *self._waiting))]
        while open_lines and tokens and len(chosen) < most:
            owner = min(open_lines, key=_is_background)
            open_lines.remove(owner)
            line = self._waiting[owner]
            place = self._place(line, tokens, pages)
            if place == 0:
                self._overdue.pop(owner, None)
            else:
                self._overdue.setdefault(owner)
            if place is None:
                continue
            request = line.pop(place).request
            chosen.append(request)
            tokens -= len(request.prompt)
            for g, group in enumerate(capacity.groups):
                pages[g] -= -(-len(request.prompt) // group.page_size)
            del self._waiting[owner]  # its next turn is behind the others'
            if line:
                self._waiting[owner] = line
                open_lines.append(owner)
        return chosen

    def _place(self, line: Sequence[_Waiting], tokens: int, pages: list[int]) -> int | None:
        """Which of an owner's texts comes next: the first that fits."""
        for place, waits in enumerate(line):
            count = len(waits.request.prompt)
            needs = (-(-count // g.page_size) for g in self.capacity.groups)
            if count <= tokens and all(n <= p for n, p in zip(needs, pages, strict=True)):
                return place
            if place == LOOKED_THROUGH:
                return None
        return None


def _owner(request: Request) -> _Owner:
    return request.background, request.tenant


def longest_text(capacity: Capacity) -> int:
    """Tokens of the longest text that fits into a step."""
    held = (n * g.page_size for n, g in zip(capacity.pools, capacity.groups, strict=True))
    return min(capacity.context, capacity.max_step_tokens, *held)


def text_too_long(tokens: int, most: int) -> InvalidRequestError:
    """The error for a text that fits into no step."""
    return InvalidRequestError(
        f"this model's maximum context length is {most} tokens and the text has {tokens}; send a "
        f'shorter one, or cut it with "truncate_prompt_tokens": -1',
        param="prompt",
        code="context_length_exceeded",
    )


def _end(request: Request, reason: FinishReason, vector: bytes = b"") -> Finished:
    return Finished(request.id, reason, len(request.prompt), 0, vector=vector)
