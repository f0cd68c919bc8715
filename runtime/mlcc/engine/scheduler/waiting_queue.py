"""Who is served next: the order of waiting requests, and the rank that each keeps while it runs.

Between tenants, the one for which the fewest tokens were computed comes first: a virtual counter
each, as in VTC (Sheng et al., 2024, Fairness in Serving Large Language Models). Who comes back from
having nothing to do starts where the least served of the others is: idling saves up no claim.

Among a tenant's own requests priority decides, and it ages: a level is worth LEVEL tokens of work.
A request of priority p stands where one of priority 0 would that came p * LEVEL tokens later, so a
rank never changes and whoever comes late enough comes after it, whatever its priority. There is no
clock: time is the tokens that the engine has computed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from mlcc.engine.sequence import TokenSequence

LEVEL = 4096
"""Tokens of work that one step of priority is worth: about a second of a small model on a CPU."""

_rank = attrgetter("rank")


class WaitingQueue:
    """The waiting sequences, and what tenants with live requests were given so far."""

    def __init__(self) -> None:
        self._lines: dict[str, list[TokenSequence]] = {}
        """Of each tenant that waits, the best rank first."""
        self._live: dict[str, int] = {}
        """Requests of each tenant, waiting or running."""
        self._served: dict[str, int] = {}
        """Tokens of each live tenant, and of those that left ahead of the least served."""
        self._work = 0
        """Tokens of all."""

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[TokenSequence]:
        for line in self._lines.values():
            yield from line

    def enter(self, seq: TokenSequence) -> None:
        """A new request: it gets its rank."""
        seq.rank = self._work + LEVEL * seq.request.priority, seq.arrival
        tenant = seq.request.tenant
        if tenant not in self._live:
            self._open(tenant)
        self._live[tenant] = self._live.get(tenant, 0) + 1
        self.put(seq)

    def leave(self, seq: TokenSequence) -> None:
        """A request has ended."""
        tenant = seq.request.tenant
        self._live[tenant] -= 1
        if not self._live[tenant]:
            del self._live[tenant]

    def put(self, seq: TokenSequence) -> None:
        """It waits, for the first time or again."""
        insort(self._lines.setdefault(seq.request.tenant, []), seq, key=_rank)

    def remove(self, seq: TokenSequence) -> None:
        """It waits no more. Raises KeyError or IndexError if it did not."""
        line = self._lines[seq.request.tenant]
        del line[bisect_left(line, seq.rank, key=_rank)]
        if not line:
            del self._lines[seq.request.tenant]

    def first(self, fits: Callable[[TokenSequence], bool]) -> TokenSequence | None:
        """Who is next of those that may start."""
        lines = self._lines.values()
        heads = (seq for line in lines if (seq := _head(line, fits)) is not None)
        return min(
            heads, key=lambda seq: (self._served[seq.request.tenant], seq.rank), default=None
        )

    def charge(self, chunks: Iterable[tuple[TokenSequence, int]]) -> None:
        """So many tokens are computed of each."""
        served = self._served
        for seq, count in chunks:
            served[seq.request.tenant] += count
            self._work += count

    def _open(self, tenant: str) -> None:
        """A tenant has something to do: it stands no better than the least served. Of the idle
        those are remembered that are ahead of it."""
        floor = min((self._served[other] for other in self._live), default=None)
        if floor is None:  # nobody is owed anything
            self._served.clear()
        else:
            keep = {t: n for t, n in self._served.items() if t in self._live or n > floor}
            self._served = keep
        self._served.setdefault(tenant, floor or 0)

    def check_integrity(self, running: Iterable[TokenSequence]) -> None:
        """Raise AssertionError if order or counts disagree with the sequences."""
        counts: dict[str, int] = {}
        for seq in (*running, *self):
            counts[seq.request.tenant] = counts.get(seq.request.tenant, 0) + 1
        if counts != self._live:
            raise AssertionError(f"tenants have {counts} live requests, not {self._live}")
        if not self._served.keys() >= counts.keys() or not all(self._lines.values()):
            raise AssertionError("a tenant is not counted, or an empty line is kept")
        for line in self._lines.values():
            if line != sorted(line, key=_rank):
                raise AssertionError(f"a line is out of order: {[seq.rank for seq in line]}")


def _head(
    line: Iterable[TokenSequence], fits: Callable[[TokenSequence], bool]
) -> TokenSequence | None:
    return next((seq for seq in line if seq.may_start and fits(seq)), None)
