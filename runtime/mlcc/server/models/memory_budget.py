"""Divides a device's memory among models: decides whether a model may load, and which one is
evicted first. Arithmetic only; `pool.py` loads and unloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from mlcc.errors import CapacityError
from mlcc.model.memory.page_budget import SHARE
from mlcc.server.models.sources import MEMORY, Source


@dataclass(frozen=True)
class Allocation:
    """The memory of a loaded model."""

    name: str
    granted: int
    used: float
    """Time of its last request."""
    idle: bool
    """Whether it has no requests and may be evicted."""


@dataclass(frozen=True)
class Grant:
    """The model may load with so many bytes; None = the device's memory is unknown."""

    bytes: int | None


@dataclass(frozen=True)
class Evict:
    """Unload this model first."""

    name: str


@dataclass(frozen=True)
class Wait:
    """All models that could be evicted are busy."""

    names: tuple[str, ...]


def budgets(sources: Sequence[Source], share: float | None) -> dict[str, int | None]:
    """Return the bytes of each device for all of its models: a share of the memory that is free
    now; None = unknown. Raises MlccError if a device does not exist, or CapacityError if a share of
    unknown memory was requested."""
    found = {}
    for source in sources:
        if source.device not in found:
            free = source.room() if source.device == MEMORY else _in_child(source.room)
            if free is None and share is not None:
                raise CapacityError(
                    "--memory is a share of the memory that is free, which the device of "
                    f"'{source.name}' does not tell; leave it out"
                )
            found[source.device] = None if free is None else int((share or SHARE) * free)
    return found


def _in_child(work: Callable[[], int | None]) -> int | None:
    """Run in a child process, so that memory taken by a GPU driver is released with it."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work).result()


AT_ONCE = 3
"""Number of models that should fit side by side, unless they are larger."""


def decide(
    total: int | None, models: int, source: Source, allocations: Sequence[Allocation]
) -> Grant | Evict | Wait:
    """Return the next step towards loading `source` on a device with `total` bytes and so many
    models.

    The model claims what a full batch needs, but no more than its share if it can run within that;
    the least recently used models are evicted for it. If nothing more can be evicted, it runs with
    fewer pages. Extra pages for the prefix cache never evict a model. Raises CapacityError if
    `total` is too small.
    """
    if total is None:
        return Grant(None)
    free = total - sum(allocation.granted for allocation in allocations)
    share = total // max(1, min(models, AT_ONCE))
    claim = source.needs.full
    if claim > share and _fits(source.fits, share):
        claim = share
    if claim <= free:
        return Grant(max(claim, min(source.needs.spare, free, share)))
    if idle := [allocation for allocation in allocations if allocation.idle]:
        return Evict(min(idle, key=lambda allocation: allocation.used).name)
    if _fits(source.fits, free):
        return Grant(free)
    if source.streams is None or _fits(source.fits, total):
        source.fits(total)  # raises if waiting would not help either
    elif _fits(source.streams, free):  # with offloaded experts, more free memory would not help
        return Grant(free)
    else:
        source.streams(total)
    return Wait(tuple(allocation.name for allocation in allocations))


def _fits(check: Callable[[int], None], room: int) -> bool:
    try:
        check(room)
    except CapacityError:
        return False
    return True
