"""Observers of finished requests: a port for metrics and rate limits.

Observers never see the text of a request or an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mlcc.engine.request import FinishReason


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A request of the engine's that has ended, one of each answer. Times are in seconds."""

    tenant: str
    reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    """Of the prompt's; 0 too for one that was cancelled, of which nobody told."""
    completion_tokens: int
    to_first: float | None
    """From its submission to its first token; None = none came."""
    total: float
    """From its submission to its end."""

    @property
    def per_token(self) -> float | None:
        """Between tokens, on average; None where there are not two."""
        if self.to_first is None or self.completion_tokens < 2:
            return None
        return (self.total - self.to_first) / (self.completion_tokens - 1)


class Observer(Protocol):
    """Called in the event loop, between other work: counts and returns."""

    def first_token(self, tenant: str, seconds: float, /) -> None:
        """A request's first token came, so long after it was submitted."""
        ...

    def done(self, done: FinishedRequest, /) -> None:
        """A request ended: complete, cancelled, or lost."""
        ...

    def restarted(self) -> None:
        """The engine's process ended and was started again."""
        ...


class NullObserver:
    """Tells nobody."""

    def first_token(self, tenant: str, seconds: float, /) -> None:
        pass

    def done(self, done: FinishedRequest, /) -> None:
        pass

    def restarted(self) -> None:
        pass


class ObserverGroup:
    """Tells each of some, in turn."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def first_token(self, tenant: str, seconds: float, /) -> None:
        for observer in self._observers:
            observer.first_token(tenant, seconds)

    def done(self, done: FinishedRequest, /) -> None:
        for observer in self._observers:
            observer.done(done)

    def restarted(self) -> None:
        for observer in self._observers:
            observer.restarted()
