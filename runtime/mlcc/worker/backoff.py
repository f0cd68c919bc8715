"""How long to wait before what ended is started again. Starts nothing itself."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_S, LONGEST_S = 1.0, 60.0
HEALTHY_S = 60.0
"""What lived for so long did not end because of how it began."""


class Backoff:
    """At once the first time, then twice as long each time, up to LONGEST_S; from the start again
    for what was healthy."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._pause = 0.0

    def began(self) -> None:
        """It lives."""
        self._began = self._clock()

    def pause(self) -> float:
        """Seconds to wait, now that it has ended or did not begin."""
        if self._clock() - self._began >= HEALTHY_S:
            self._pause = 0.0
        found = self._pause
        self._pause = min(max(FIRST_S, 2 * found), LONGEST_S)
        self._began = self._clock() + found  # until it begins, it has not lived
        return found
