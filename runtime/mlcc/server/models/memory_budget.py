"""The memory that the models of one device share: who has how much, who may have more, and who
goes first. Numbers only; `pool.py` loads and unloads.
"""

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
    """A model that has memory."""

    name: str
    granted: int
    used: float
    """When it was last asked for."""
    idle: bool
    """Nobody asks it and nothing of it is being answered: it may go."""


@dataclass(frozen=True)
class Grant:
    """So many bytes are there for what is to be loaded; None = nobody knows how many there are."""

    bytes: int | None


@dataclass(frozen=True)
class Evict:
    """This model goes first."""

    name: str


@dataclass(frozen=True)
class Wait:
    """All that could go is answering."""

    names: tuple[str, ...]


def budgets(sources: Sequence[Source], share: float | None) -> dict[str, int | None]:
    """The bytes of each device that its models may have together: a share of what is free now;
    None = nobody knows. Raises MlccError if a device is not there, or CapacityError if a share of
    an unknown number was asked for."""
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
    """What a GPU's driver takes for an answer is given back with the process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work).result()


AT_ONCE = 3
"""So many models find room beside each other, unless they are larger than that."""


def decide(
    total: int | None, models: int, source: Source, holdings: Sequence[Allocation]
) -> Grant | Evict | Wait:
    """The next thing to do so that `source` gets its memory, of `total` for so many models.

    It claims what its requests need, and no more than its share where it can do with that; for that
    the least recently used go. If nothing more can go, it does with fewer pages. Memory for a
    prefix cache costs nobody else's place. Raises CapacityError if all of `total` is too little.
    """
    if total is None:
        return Grant(None)
    free = total - sum(holding.granted for holding in holdings)
    share = total // max(1, min(models, AT_ONCE))
    claim = source.needs.full
    if claim > share and _fits(source.fits, share):
        claim = share
    if claim <= free:
        return Grant(max(claim, min(source.needs.spare, free, share)))
    if idle := [holding for holding in holdings if holding.idle]:
        return Evict(min(idle, key=lambda holding: holding.used).name)
    if _fits(source.fits, free):
        return Grant(free)
    if source.streams is None or _fits(source.fits, total):
        source.fits(total)  # raises, if waiting would not help either
    elif _fits(source.streams, free):  # experts from their file: alone it would do no better
        return Grant(free)
    else:
        source.streams(total)
    return Wait(tuple(holding.name for holding in holdings))


def _fits(check: Callable[[int], None], room: int) -> bool:
    try:
        check(room)
    except CapacityError:
        return False
    return True
