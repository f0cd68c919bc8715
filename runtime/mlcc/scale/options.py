"""Options of a deployment: the number of replicas and their resources.

Does not import ray, so that options are checked before ray is imported.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.errors import InvalidRequestError


@dataclass(frozen=True)
class Scale:
    """The scaling options of one model. Raises InvalidRequestError for impossible numbers."""

    replicas: int = 1
    autoscale: tuple[int, int] | None = None
    """(minimum, maximum), in place of `replicas`. A minimum of 0 allows no replicas while there are
    no requests."""
    prefill: int = 0
    """Additional prefill-only replicas; 0 = every replica does prefill and decode."""
    ongoing: float = 8.0
    """Autoscaling target: average number of requests per replica."""
    max_ongoing: int = 256
    """Most requests sent to one replica; further ones wait at the caller."""
    cpus: float = 0.0
    gpus: float = 0.0
    """Ray CPUs and GPUs of each replica."""
    upscale_s: float = 5.0
    downscale_s: float = 60.0
    """Seconds for which more or fewer replicas must be needed before the number changes."""
    lookback_s: float = 30.0
    """Window over which requests are averaged."""
    drain_s: float = 60.0
    """Seconds that running requests have to finish when a replica is removed."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise InvalidRequestError(f"{self.replicas} replicas answer nothing; give at least 1")
        if self.autoscale is not None:
            least, most = self.autoscale
            if not 0 <= least <= most or most < 1:
                raise InvalidRequestError(
                    f"--autoscale {least}:{most}: the first is at least 0, the second at least 1 "
                    "and no less than the first, as in 1:4"
                )

    @property
    def most(self) -> int:
        """Largest possible number of replicas."""
        decode = self.replicas if self.autoscale is None else self.autoscale[1]
        return decode + self.prefill


def read_autoscale(text: str) -> tuple[int, int]:
    """Parse `MIN:MAX`. Raises InvalidRequestError."""
    least, _, most = text.partition(":")
    if not (least.isdecimal() and most.isdecimal()) or len(text) > 9:
        raise InvalidRequestError(f"--autoscale {text[:40]!r}: type MIN:MAX, as in 1:4")
    return int(least), int(most)
