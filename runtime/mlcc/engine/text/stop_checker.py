"""Stop strings: finds them in output text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopChecker:
    """Lets text through up to the first stop string and holds back what may be the start of one.

    The first match is the one that is complete first (among those, the longest), so the answer does
    not depend on how the text was cut into pieces.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.matched: str | None = None
        self._stops = tuple(stops)
        self._held = ""

    @property
    def held(self) -> int:
        """Characters held back."""
        return len(self._held)

    def push(self, text: str) -> str:
        """Add text; returns what is certain to be part of the answer. "" after a match."""
        if not self._stops:
            return text
        if self.matched is not None or not text:
            return ""
        text = self._held + text
        found = [(at + len(s), at, s) for s in self._stops if (at := text.find(s)) >= 0]
        if found:
            _, cut, self.matched = min(found)
            self._held = ""
            return text[:cut]
        cut = len(text) - self._possible_start(text)
        self._held = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        """The held text, once it is known that no more will come."""
        held, self._held = self._held, ""
        return held

    def _possible_start(self, text: str) -> int:
        """Length of the longest end of `text` that is the start of a stop string."""
        longest = min(len(text), max(map(len, self._stops)) - 1)
        for length in range(longest, 0, -1):
            tail = text[-length:]
            if any(s.startswith(tail) for s in self._stops):
                return length
        return 0
