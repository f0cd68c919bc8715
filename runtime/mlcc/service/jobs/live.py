"""A request that the engine has or is to get, as the books of `engine.py` have it."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.engine.events import Event, TextDelta
from mlcc.engine.request import FinishReason, Request
from mlcc.service.jobs.job import Job
from mlcc.service.observer import Done, Observer


@dataclass(slots=True, eq=False)
class Live:
    """One entry. Times are of `time.monotonic`."""

    request: Request
    job: Job
    since: float
    """When it was submitted."""
    accepted: bool = False
    """Its job knows that an engine has taken it."""
    lost: int = 0
    """Engines that ended while they had it."""
    first: float | None = None
    """When its first token came."""
    tokens: int = 0
    """Of its answer, so far."""
    told: bool = False
    """The observer knows of its end."""

    @property
    def begun(self) -> bool:
        """Whether somebody may have seen a part of its answer."""
        return self.first is not None

    def see(self, event: Event, now: float, observer: Observer) -> None:
        """Count an event."""
        if not isinstance(event, TextDelta):
            self.end(event.reason, now, observer, event.completion_tokens, event.cached_tokens)
        elif event.token_ids or event.prompt:
            self.tokens += len(event.token_ids)
            if self.first is None:
                self.first = now
                observer.first_token(self.request.tenant, now - self.since)

    def end(
        self,
        reason: FinishReason,
        now: float,
        observer: Observer,
        tokens: int | None = None,
        cached: int = 0,
    ) -> None:
        """Tell the observer that it is over; once."""
        if self.told:
            return
        self.told = True
        observer.done(
            Done(
                self.request.tenant,
                reason,
                len(self.request.prompt),
                cached,
                self.tokens if tokens is None else tokens,
                None if self.first is None else self.first - self.since,
                now - self.since,
            )
        )
