"""Isolation: finds the request that makes steps fail, by running halves of the suspects alone.

A step that fails does not say which of its requests is the cause. After a failure the engine
recomputes its requests as after preemption, and until the cause is found a step holds only one
group of suspects. A group that fails is halved; a group whose requests all have one more token is
cleared (group testing by binary splitting, Dorfman, 1943). So n requests need about 2 log2(n)
failed steps, a failure that does not come again ends no request, and every round makes progress.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from mlcc.engine.sequence import TokenSequence


class Isolation:
    """The suspects of one engine."""

    def __init__(self) -> None:
        self.active = False
        """Whether suspects are left."""
        self._groups: deque[list[TokenSequence]] = deque()
        """Groups to run, one after another; the first one runs now."""
        self._lengths: dict[TokenSequence, int] = {}
        """Tokens of each sequence of the first group when it began; empty = it has not begun."""

    def may_run(self, seq: TokenSequence) -> bool:
        """Whether the sequence may be in the next step."""
        return not self.active or seq in self._lengths

    def failed(self, suspects: Sequence[TokenSequence]) -> TokenSequence | None:
        """A step failed; outside of an isolation any of `suspects` may be the cause. Returns the
        cause once it is known."""
        group = [*suspects]
        if self._groups:
            group = [*self._lengths] or self._groups[0]
            self._groups.popleft()
        self._lengths = {}
        group = [seq for seq in group if not seq.finished]
        if len(group) <= 1:
            self.active = bool(self._groups)
            return group[0] if group else None
        middle = len(group) // 2
        self._groups.extendleft((group[middle:], group[:middle]))
        self.active = True
        return None

    def advance(self) -> bool:
        """Clear the groups that have passed. Returns whether another group begins. Call it only
        while no step is in flight."""
        if self._lengths and not all(
            seq.finished or len(seq.tokens) > length for seq, length in self._lengths.items()
        ):
            return False
        if self._lengths:
            self._groups.popleft()
        self._lengths = {}
        while self._groups and not self._lengths:
            live = [seq for seq in self._groups[0] if not seq.finished]
            self._lengths = {seq: len(seq.tokens) for seq in live}
            if not live:
                self._groups.popleft()
        self.active = bool(self._groups)
        return self.active

    def clear(self) -> None:
        """No request is a suspect any more."""
        self._groups.clear()
        self._lengths = {}
        self.active = False
