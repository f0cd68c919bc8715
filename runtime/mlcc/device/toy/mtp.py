"""The toy's multi-token-prediction layer: exact where it is given the right hidden state.

The hidden state of a token is what the query at it sees, in each cache group. The layer adds the
next token to that and so predicts what the toy itself will sample; from another state it predicts
something else. Its cache has the positions that it has computed, each of which a later one reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.device.check_batch import Span, require, slot_of
from mlcc.device.toy.caches import chain_of, words
from mlcc.engine.batch.batch import Batch, Capacity, PageList
from mlcc.engine.batch.tables import CacheGroup

Views = list[list[int]]
"""What a query sees, group after group; then its adapter's hash, if it has one."""


class ToyMtp:
    """The layer's cache, in the slots of the first group that keeps all tokens, and the hidden
    states of the last step."""

    def __init__(self, capacity: Capacity) -> None:
        self._groups = capacity.groups
        self._group = next(
            (g for g, group in enumerate(self._groups) if group.kind == "paged"), None
        )
        self._positions: dict[int, int] = {}
        """Slot -> position that the layer wrote there."""
        self._hidden: list[Views] = []

    def keep(self, views: Sequence[Sequence[list[list[int]]]]) -> None:
        """Keep the states of a step: of each sequence, by group, what each token sees."""
        self._hidden = [list(map(list, one)) for seq in views for one in zip(*seq, strict=True)]

    def copy(self, group: int, source: int, to: int) -> None:
        """As the step's copies."""
        if group == self._group:
            size = self._groups[group].page_size
            for i in range(size):
                self._positions[to * size + i] = self._positions.get(source * size + i, -1)

    def run(self, batch: Batch, spans: Sequence[Span], tokens: Sequence[int]) -> list[list[Views]]:
        """The views of a step of the layer, as `keep` takes them."""
        rows = [int(row) for row in batch.column(batch.layout.tokens, "hidden_row")]
        require(all(-1 <= row < len(self._hidden) for row in rows), f"hidden states of {rows}")
        views = []
        for span in spans:
            self._check(span)
            own = range(span.first, span.first + span.count)
            seen = [self._after(rows[i], tokens[i], span.start + i - span.first) for i in own]
            most = max(map(len, seen))  # a state that is gone has no adapter
            seen = [[*one, *([[0]] * (most - len(one)))] for one in seen]
            views.append([list(each) for each in zip(*seen, strict=True)])
        return views

    def _check(self, span: Span) -> None:
        assert self._group is not None
        cache, size = span.caches[self._group], self._groups[self._group].page_size
        assert isinstance(cache, PageList)
        for position in range(span.start, span.end):
            self._positions[slot_of(cache, position, size)] = position
        for position in range(span.start):
            held = self._positions.get(slot_of(cache, position, size), -1)
            require(held == position, f"the layer reads position {position}, and finds {held}")

    def _after(self, row: int, token: int, position: int) -> Views:
        """What is seen after `token`, from the state at its position."""
        if row < 0:
            return [[-position, token] for _ in self._groups]
        state = self._hidden[row]
        own = zip(state, self._groups, strict=False)
        return [*(_grown(seen, group, token, position) for seen, group in own),
                *state[len(self._groups) :]]  # fmt: skip


def _grown(seen: list[int], group: CacheGroup, token: int, position: int) -> list[int]:
    if group.kind == "state":
        hashed = 0
        for word in seen:
            hashed = hashed << 16 | word
        return words(chain_of(hashed, position + 1, token))
    return [*seen, token] if group.window is None else [*seen, token][-group.window :]
