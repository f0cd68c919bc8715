"""The memory budget of several models: decisions about the next one, by numbers alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlcc.commands.serve.models import on_devices
from mlcc.errors import CapacityError, DeviceError, UnsupportedError
from mlcc.server.models.memory_budget import Allocation, Evict, Grant, Wait, decide
from mlcc.server.models.sources import MEMORY, Needs, Source

LEAST = 20
"""The memory that the model needs: weights, and pages for a short request."""


def fits(room: int) -> None:
    if room < LEAST:
        raise CapacityError(f"{room} are too few")


def model(full: int, spare: int) -> Source:
    return Source("new", 64, "toy", Needs(full, spare), fits, None, None, lambda: None)  # type: ignore[arg-type]


def held(name: str, granted: int, used: float, idle: bool = True) -> Allocation:
    return Allocation(name, granted, used, idle)


@pytest.mark.parametrize(
    ("total", "models", "needs", "holdings", "expected"),
    [
        (None, 3, (50, 90), [held("a", 80, 1)], Grant(None)),
        (100, 1, (50, 90), [], Grant(90)),  # alone it has its cache
        (90, 3, (25, 80), [], Grant(30)),  # of three no more than its share
        (90, 2, (60, 60), [], Grant(45)),  # with fewer pages it does with its share
        (90, 5, (60, 60), [], Grant(30)),
        (90, 3, (25, 80), [held("a", 30, 2), held("b", 35, 1)], Grant(25)),
        (90, 3, (25, 25), [held("a", 45, 2), held("b", 40, 1)], Evict("b")),
        (90, 3, (25, 25), [held("a", 45, 2, False), held("b", 40, 1, False)], Wait(("a", "b"))),
        (90, 3, (25, 25), [held("a", 69, 2, False)], Grant(21)),  # fewer pages, and no waiting
        (40, 3, (35, 35), [], Grant(35)),  # a share would be too little for it
    ],
)
def test_the_next_step(
    total: int | None,
    models: int,
    needs: tuple[int, int],
    holdings: list[Allocation],
    expected: Grant | Evict | Wait,
) -> None:
    assert decide(total, models, model(*needs), holdings) == expected


def test_all_of_the_memory_is_too_little() -> None:
    with pytest.raises(CapacityError, match="19 are too few"):
        decide(19, 2, model(30, 30), [])


def no_gpu() -> int | None:
    raise DeviceError("no GPU for target 'cuda': no driver")


def test_models_whose_device_is_not_here_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """As in `mlcc serve --models dist`, where a folder is for another machine."""
    here = replace(model(50, 90), device=MEMORY, room=lambda: 1000)
    gpus = [replace(model(50, 90), name=name, device="cuda:0", room=no_gpu) for name in ("a", "b")]
    assert on_devices([gpus[0], here, gpus[1]], 0.5) == ([here], {MEMORY: 500})
    assert capsys.readouterr().err.splitlines() == [
        f"note: {name} is left out: no GPU for target 'cuda': no driver" for name in ("a", "b")
    ]
    with pytest.raises(UnsupportedError, match="none of these models can be loaded here"):
        on_devices(gpus, None)
