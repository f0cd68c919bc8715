"""The memory budget of several models: decisions about the next one, by numbers alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlcc.commands.serve.models import on_devices
from mlcc.errors import CapacityError, DeviceError, InvalidRequestError, UnsupportedError
from mlcc.server.models.memory_budget import (
    SHARE,
    Allocation,
    Evict,
    Grant,
    Wait,
    budgets,
    decide,
)
from mlcc.server.models.sources import MEMORY, Needs, Source, _clip_context, with_names

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


def test_shares_of_memory_that_a_device_does_not_tell() -> None:
    unknown = replace(model(50, 90), device="gpu:0", room=no_memory)
    known = replace(model(50, 90), device=MEMORY, room=lambda: 1000)
    assert budgets([known, unknown], None) == {MEMORY: int(1000 * SHARE), "gpu:0": None}
    with pytest.raises(CapacityError, match="which the device of 'new' does not tell"):
        budgets([known, unknown], 0.5)
    assert budgets([known, known], 0.25) == {MEMORY: 250}


def no_memory() -> int | None:
    return None


def streams(room: int) -> None:
    if room < 10:
        raise CapacityError(f"{room} are too few even for streams")


def test_experts_are_read_from_the_file_where_they_do_not_fit() -> None:
    """Waiting for more memory would not help: all of it is too little."""
    source = replace(model(50, 90), streams=streams)
    assert decide(19, 1, source, []) == Grant(19)
    assert decide(19, 1, source, [held("a", 12, 1, False)]) == Wait(("a",))
    assert decide(25, 1, source, [held("a", 10, 1, False)]) == Wait(("a",)), "it would fit alone"
    with pytest.raises(CapacityError, match="9 are too few even for streams"):
        decide(9, 1, source, [])


def test_one_model_takes_an_alias_without_its_name() -> None:
    one = {"/m/new": model(1, 1)}
    assert with_names(one, [("a", None)])[0].names == ("new", "a")
    two = {**one, "/m/other": replace(model(1, 1), name="other")}
    with pytest.raises(InvalidRequestError, match="type --alias a=MODEL"):
        with_names(two, [("a", None)])
    assert [each.names for each in with_names(two, [("a", "other")])] == [("new",), ("other", "a")]


def test_a_context_for_several_models_is_clipped_to_each() -> None:
    assert [_clip_context(context, 64) for context in (None, 32, 64, 65)] == [None, 32, 64, 64]
