"""Observers of an engine's answers: what is counted of each as it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mlcc.engine.request import FinishReason


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A finished engine request, one for each answer. Times are in seconds."""

    tenant: str
    reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    """Cached tokens of the prompt; 0 for a cancelled request, for which they are unknown."""
    completion_tokens: int
    to_first: float | None
    """Time to the first token since submission; None = there was none."""
    total: float
    """Time to the end since submission."""
    background: bool = False
    """Whether it was a line of a batch."""

    @property
    def per_token(self) -> float | None:
        """Mean time between tokens; None with fewer than two."""
        if self.to_first is None or self.completion_tokens < 2:
            return None
        return (self.total - self.to_first) / (self.completion_tokens - 1)


class Observer(Protocol):
    """Called in the event loop between other work: must return quickly."""

    def first_token(self, tenant: str, seconds: float, /) -> None:
        """The first token of a request, `seconds` after its submission."""
        ...

    def done(self, done: FinishedRequest, /) -> None:
        """The end of a request: complete, cancelled, or lost."""
        ...

    def restarted(self) -> None:
        """The engine's process ended and was restarted."""
        ...


class NullObserver:
    """Ignores all notifications."""

    def first_token(self, tenant: str, seconds: float, /) -> None:
        pass

    def done(self, done: FinishedRequest, /) -> None:
        pass

    def restarted(self) -> None:
        pass


class ObserverGroup:
    """Notifies several observers in order."""

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
