"""The waiting queue: order of waiting requests, and the rank that each keeps while it runs.

Between tenants, the one with the fewest computed tokens is first: a virtual counter each, as in VTC
(Sheng et al., 2024, Fairness in Serving Large Language Models). A tenant that was idle starts at
the count of the least served tenant, so idle time earns no credit.

Within a tenant, requests are ordered by priority, and they age: one level is worth LEVEL tokens of
work. A request of priority p ranks like one of priority 0 that arrived p * LEVEL tokens later. So a
rank never changes, and no priority can overtake forever. There is no clock: time is the number of
tokens that the engine has computed.

Background requests come after all others. Among themselves they are ordered alike, with counters of
their own: what a batch computes takes nothing from its tenant's share of the rest.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import attrgetter

from mlcc.engine.sequence import TokenSequence

LEVEL = 4096
"""Tokens of work that one priority level is worth: about a second of a small model on a CPU."""

_rank = attrgetter("rank")
_Owner = tuple[bool, str]
"""Whether requests are background requests, and their tenant."""


class WaitingQueue:
    """The waiting sequences, and the tokens computed for each tenant with unfinished requests."""

    def __init__(self) -> None:
        self._queues: dict[_Owner, list[TokenSequence]] = {}
        """Waiting sequences of each owner, by rank."""
        self._num_requests: dict[_Owner, int] = {}
        """Unfinished requests of each owner."""
        self._served: dict[_Owner, int] = {}
        """Tokens computed for each owner with requests, and for idle ones that are ahead of the
        least served."""
        self._work = 0
        """Tokens of all tenants."""

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __iter__(self) -> Iterator[TokenSequence]:
        return chain.from_iterable(self._queues.values())

    @property
    def has_foreground(self) -> bool:
        """Whether a request waits that is no background request."""
        return any(not background for background, _ in self._queues)

    def enter(self, seq: TokenSequence) -> None:
        """Add a new request and give it its rank."""
        request, owner = seq.request, _owner(seq)
        seq.rank = request.background, self._work + LEVEL * request.priority, seq.arrival
        if owner not in self._num_requests:
            self._open(owner)
        self._num_requests[owner] = self._num_requests.get(owner, 0) + 1
        self.put(seq)

    def leave(self, seq: TokenSequence) -> None:
        """A request has ended."""
        owner = _owner(seq)
        self._num_requests[owner] -= 1
        if not self._num_requests[owner]:
            del self._num_requests[owner]

    def rebuild(self, seqs: Iterable[TokenSequence]) -> None:
        """All these unfinished requests wait, whatever the state was. Ranks and counts of computed
        tokens stay."""
        self._queues.clear()
        self._num_requests.clear()
        for seq in seqs:
            owner = _owner(seq)
            self._num_requests[owner] = self._num_requests.get(owner, 0) + 1
            self._served.setdefault(owner, 0)
            self.put(seq)

    def put(self, seq: TokenSequence) -> None:
        """Add a sequence, new or preempted."""
        insort(self._queues.setdefault(_owner(seq), []), seq, key=_rank)

    def remove(self, seq: TokenSequence) -> None:
        """Remove a sequence. Raises KeyError or IndexError if it is not waiting."""
        queue = self._queues[_owner(seq)]
        del queue[bisect_left(queue, seq.rank, key=_rank)]
        if not queue:
            del self._queues[_owner(seq)]

    def first(self, eligible: Callable[[TokenSequence], bool]) -> TokenSequence | None:
        """The next sequence, among those that may start and are `eligible`."""
        queues = self._queues.values()
        heads = (seq for queue in queues if (seq := _head(queue, eligible)) is not None)
        return min(heads, key=self._order, default=None)

    def charge(self, chunks: Iterable[tuple[TokenSequence, int]]) -> None:
        """Count computed tokens."""
        served = self._served
        for seq, count in chunks:
            served[_owner(seq)] += count
            self._work += count

    def _order(self, seq: TokenSequence) -> tuple[bool, int, tuple[bool, int, int]]:
        return seq.request.background, self._served[_owner(seq)], seq.rank

    def _open(self, owner: _Owner) -> None:
        """An owner becomes active, at the count of the least served one of its kind. Idle owners
        are remembered only if they are ahead of that."""
        active = (self._served[other] for other in self._num_requests if other[0] == owner[0])
        floor = min(active, default=None)

        def is_kept(other: _Owner, count: int) -> bool:
            if other in self._num_requests or other[0] != owner[0]:
                return True
            return floor is not None and count > floor

        self._served = {o: n for o, n in self._served.items() if is_kept(o, n)}
        self._served.setdefault(owner, floor or 0)

    def check_integrity(self, running: Iterable[TokenSequence]) -> None:
        """Raise AssertionError if order or counts disagree with the sequences."""
        counts: dict[_Owner, int] = {}
        for seq in (*running, *self):
            counts[_owner(seq)] = counts.get(_owner(seq), 0) + 1
        if counts != self._num_requests:
            raise AssertionError(f"tenants have {counts} live requests, not {self._num_requests}")
        if not self._served.keys() >= counts.keys() or not all(self._queues.values()):
            raise AssertionError("a tenant is not counted, or an empty queue is kept")
        for queue in self._queues.values():
            if queue != sorted(queue, key=_rank):
                raise AssertionError(f"a queue is out of order: {[seq.rank for seq in queue]}")


def _owner(seq: TokenSequence) -> _Owner:
    return seq.request.background, seq.request.tenant


def _head(
    queue: Iterable[TokenSequence], eligible: Callable[[TokenSequence], bool]
) -> TokenSequence | None:
    return next((seq for seq in queue if seq.may_start and eligible(seq)), None)
