"""The waiting queue: order of waiting requests, and the rank that each keeps while it runs.

Between tenants, the one with the fewest computed tokens is first: a virtual counter each, as in VTC
(Sheng et al., 2024, Fairness in Serving Large Language Models). A tenant that was idle starts at
the count of the least served tenant, so idle time earns no credit.

Within a tenant, requests are ordered by priority, and they age: one level is worth LEVEL tokens of
work. A request of priority p ranks like one of priority 0 that arrived p * LEVEL tokens later. So a
rank never changes, and no priority can overtake forever. There is no clock: time is the number of
tokens that the engine has computed.
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


class WaitingQueue:
    """The waiting sequences, and the tokens computed for each tenant with unfinished requests."""

    def __init__(self) -> None:
        self._queues: dict[str, list[TokenSequence]] = {}
        """Waiting sequences of each tenant, by rank."""
        self._num_requests: dict[str, int] = {}
        """Unfinished requests of each tenant."""
        self._served: dict[str, int] = {}
        """Tokens computed for each tenant with requests, and for idle tenants that are ahead of the
        least served."""
        self._work = 0
        """Tokens of all tenants."""

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __iter__(self) -> Iterator[TokenSequence]:
        return chain.from_iterable(self._queues.values())

    def enter(self, seq: TokenSequence) -> None:
        """Add a new request and give it its rank."""
        seq.rank = self._work + LEVEL * seq.request.priority, seq.arrival
        tenant = seq.request.tenant
        if tenant not in self._num_requests:
            self._open(tenant)
        self._num_requests[tenant] = self._num_requests.get(tenant, 0) + 1
        self.put(seq)

    def leave(self, seq: TokenSequence) -> None:
        """A request has ended."""
        tenant = seq.request.tenant
        self._num_requests[tenant] -= 1
        if not self._num_requests[tenant]:
            del self._num_requests[tenant]

    def rebuild(self, seqs: Iterable[TokenSequence]) -> None:
        """All these unfinished requests wait, whatever the state was. Ranks and counts of computed
        tokens stay."""
        self._queues.clear()
        self._num_requests.clear()
        for seq in seqs:
            tenant = seq.request.tenant
            self._num_requests[tenant] = self._num_requests.get(tenant, 0) + 1
            self._served.setdefault(tenant, 0)
            self.put(seq)

    def put(self, seq: TokenSequence) -> None:
        """Add a sequence, new or preempted."""
        insort(self._queues.setdefault(seq.request.tenant, []), seq, key=_rank)

    def remove(self, seq: TokenSequence) -> None:
        """Remove a sequence. Raises KeyError or IndexError if it is not waiting."""
        queue = self._queues[seq.request.tenant]
        del queue[bisect_left(queue, seq.rank, key=_rank)]
        if not queue:
            del self._queues[seq.request.tenant]

    def first(self, eligible: Callable[[TokenSequence], bool]) -> TokenSequence | None:
        """The next sequence, among those that may start and are `eligible`."""
        queues = self._queues.values()
        heads = (seq for queue in queues if (seq := _head(queue, eligible)) is not None)
        return min(
            heads, key=lambda seq: (self._served[seq.request.tenant], seq.rank), default=None
        )

    def charge(self, chunks: Iterable[tuple[TokenSequence, int]]) -> None:
        """Count computed tokens."""
        served = self._served
        for seq, count in chunks:
            served[seq.request.tenant] += count
            self._work += count

    def _open(self, tenant: str) -> None:
        """A tenant becomes active, at the count of the least served one. Idle tenants are
        remembered only if they are ahead of that."""
        floor = min((self._served[other] for other in self._num_requests), default=None)
        if floor is None:  # no tenant is active
            self._served.clear()
        else:
            keep = {t: n for t, n in self._served.items() if t in self._num_requests or n > floor}
            self._served = keep
        self._served.setdefault(tenant, floor or 0)

    def check_integrity(self, running: Iterable[TokenSequence]) -> None:
        """Raise AssertionError if order or counts disagree with the sequences."""
        counts: dict[str, int] = {}
        for seq in (*running, *self):
            counts[seq.request.tenant] = counts.get(seq.request.tenant, 0) + 1
        if counts != self._num_requests:
            raise AssertionError(f"tenants have {counts} live requests, not {self._num_requests}")
        if not self._served.keys() >= counts.keys() or not all(self._queues.values()):
            raise AssertionError("a tenant is not counted, or an empty queue is kept")
        for queue in self._queues.values():
            if queue != sorted(queue, key=_rank):
                raise AssertionError(f"a queue is out of order: {[seq.rank for seq in queue]}")


def _head(
    queue: Iterable[TokenSequence], eligible: Callable[[TokenSequence], bool]
) -> TokenSequence | None:
    return next((seq for seq in queue if seq.may_start and eligible(seq)), None)
