"""How many replicas, and what each may take. Knows no ray, so that options are checked before it is
imported."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.errors import InvalidRequestError


@dataclass(frozen=True)
class Scale:
    """Of one model. Raises InvalidRequestError for numbers that cannot be."""

    replicas: int = 1
    autoscale: tuple[int, int] | None = None
    """(fewest, most); 0 = none while nobody asks. In place of `replicas`."""
    prefill: int = 0
    """Further replicas, which compute prompts alone; 0 = all do both."""
    ongoing: float = 8.0
    """Requests that one replica should have, on the average, where their number follows that."""
    max_ongoing: int = 256
    """Requests that one may have at all: the others wait at who asks."""
    cpus: float = 0.0
    gpus: float = 0.0
    """Of Ray's, for each replica: where it starts it."""
    upscale_s: float = 5.0
    downscale_s: float = 60.0
    """How long more or fewer must be wanted before there are."""
    lookback_s: float = 30.0
    """Requests are counted on the average of so long."""
    drain_s: float = 60.0
    """How long answers may take to finish where a replica is not wanted any more."""

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
        """Replicas that there may be."""
        decode = self.replicas if self.autoscale is None else self.autoscale[1]
        return decode + self.prefill


def read_autoscale(text: str) -> tuple[int, int]:
    """`MIN:MAX`. Raises InvalidRequestError."""
    least, _, most = text.partition(":")
    if not (least.isdecimal() and most.isdecimal()) or len(text) > 9:
        raise InvalidRequestError(f"--autoscale {text[:40]!r}: type MIN:MAX, as in 1:4")
    return int(least), int(most)
