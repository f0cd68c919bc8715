"""Weights are packed while calibration runs the model: each is read once, at the sizes of its
products, in any order of requests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc_compiler.calibration.activation_stats import activation_statistics
from mlcc_compiler.calibration.dataset import calibration_rows, resolve_calibration
from mlcc_compiler.calibration.pipelined import pipelined_packing
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.safetensors import TensorFolder
from mlcc_compiler.ir.layout import WeightPlan
from mlcc_compiler.options import Options
from mlcc_compiler.plan import Plan, make_plan
from mlcc_compiler.weights.convert import arrays_of, pack_stream
from mlcc_targets import get_target
from tests.compiler.calibration.test_sizes import SOME, planned
from tests.compiler.models.helpers.mixed import stored
from tests.runtime.commands.tiny_checkpoint import write_checkpoint


def silent(done: int, total: int = 0) -> None:
    """A progress callback that does nothing."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: Any) -> tuple[Plan, list[WeightPlan]]:
    folder = write_checkpoint(tmp_path_factory.mktemp("tiny") / "model")
    options = Options(quant="q4", context=64, max_batch=8)
    plan = resolve_calibration(make_plan(Checkpoint.open(folder), get_target("cpu"), options))
    return plan, stored(plan)


@pytest.mark.parametrize("case", SOME)
def test_weights_are_those_of_the_sizes_alone(case: str, tmp_path: Path) -> None:
    """Products of merged matrices give the same bits as those of each: so all targets get the same
    codes."""
    plan = resolve_calibration(planned(case, tmp_path, "cpu", max_batch=8))
    plans, rows = stored(plan), calibration_rows(plan)
    with pipelined_packing(plan, plans, rows) as pack:
        found = list(pack_stream(plans, pack, silent))
    tensors, sizes = plan.checkpoint.tensors, activation_statistics(plan, rows, silent)
    expected = list(arrays_of(plans, tensors, plan.sources, silent, sizes))
    plain = list(arrays_of(plans, tensors, plan.sources, silent))
    assert _equal_bytes(found, expected) == 1
    assert _equal_bytes(plain, expected) < 0.99


def _equal_bytes(some: list[Any], others: list[Any]) -> float:
    pairs = zip(some, others, strict=True)
    same = [np.ravel(a.view(np.uint8) == b.view(np.uint8)) for a, b in pairs]
    return float(np.concatenate(same).mean())


def test_what_products_read_is_read_once(
    tiny: tuple[Plan, list[WeightPlan]], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, plans = tiny
    read: Counter[str] = Counter()
    own = TensorFolder.read_rows

    def counted(self: TensorFolder, name: str, rows: slice) -> Any:
        found = own(self, name, rows)
        read[name] += found.size
        return found

    monkeypatch.setattr(TensorFolder, "read_rows", counted)
    with pipelined_packing(plan, plans, calibration_rows(plan)) as pack:
        made = list(pack_stream(plans, pack, silent))
    assert len(made) == sum(len(each.layout.tensors) for each in plans)
    table = "model.embed_tokens.weight"
    shapes = plan.checkpoint.tensors.shapes
    assert read[table] > np.prod(shapes[table]), "rows of tokens, and all of it"
    del read[table]
    assert len(read) == 14 and all(read[name] == np.prod(shapes[name]) for name in read)


def test_the_order_of_asking_changes_nothing(tiny: tuple[Plan, list[WeightPlan]]) -> None:
    plan, plans = tiny
    found = []
    for order in (plans, plans[::-1]):
        with pipelined_packing(plan, plans, calibration_rows(plan)) as pack:
            made = {each.name: pack(each, silent) for each in order}
        found.append([array for each in plans for array in made[each.name]])
    assert _equal_bytes(*found) == 1


def test_progress_never_goes_back(tiny: tuple[Plan, list[WeightPlan]]) -> None:
    plan, plans = tiny
    progress: list[int] = []
    with pipelined_packing(plan, plans, calibration_rows(plan)) as pack:
        list(pack_stream(plans, pack, lambda done, total: progress.append(done)))
    assert progress == sorted(progress) and progress[-1] == sum(
        np.prod(each.shape) for each in plans
    )
