"""A compile without a text runs the model ahead for sizes: it works for all families, and finds the
size of each matrix that a product reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlcc_compiler.calibration.activation_stats import activation_statistics
from mlcc_compiler.calibration.dataset import calibration_rows, resolve_calibration, token_rows
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.ir.graph_json import graph_to_json
from mlcc_compiler.options import NOTHING, RANDOM, Options
from mlcc_compiler.plan import Plan, make_plan
from mlcc_targets import get_target
from tests.compiler.models.helpers.checkpoints import CASES, REPEATED, make_checkpoint
from tests.helpers.letter_tokens import letters

SOME = ("gemma3", "qwen3_next", "phi3")


def _case(case: str) -> object:
    marks = [] if case in SOME else [pytest.mark.long]
    return pytest.param(case, marks=marks)


def planned(case: str, folder: Path, target: str = "reference", **options: object) -> Plan:
    vocab = make_checkpoint(case, folder).config.vocab_size  # type: ignore[union-attr]
    (folder / "tokenizer.json").write_text(letters(int(vocab)))  # type: ignore[arg-type]
    given = Options(**{"quant": "q4", "context": 64, **options})  # type: ignore[arg-type]
    return make_plan(Checkpoint.open(folder), get_target(target), given)


@pytest.mark.parametrize("case", [_case(case) for case in CASES if case not in REPEATED])
def test_every_matrix_of_a_product_is_sized(case: str, tmp_path: Path) -> None:
    plan = planned(case, tmp_path)
    chosen = resolve_calibration(plan)
    experts = any(".experts." in name for name in plan.traced.names)
    assert chosen.options.calibrate == (None if experts else RANDOM)
    assert any("experts are too many" in note for note in chosen.notes) == experts
    if experts:
        return
    found = activation_statistics(chosen, calibration_rows(chosen), lambda done, total: None)
    read = {
        node["in"][1][7:]
        for node in json.loads(graph_to_json(plan.traced))["nodes"]
        if node["op"] == "mlcc.linear"
    }
    heads = {"lm_head.weight", "model.embed_tokens.weight"}
    assert set(found) == {plan.sources[name] for name in read - heads}
    shapes = plan.checkpoint.tensors.shapes
    for name, power in found.items():
        assert power.shape == shapes[name][1:] and power.min() > 0
        assert power.mean() == pytest.approx(1, rel=1e-3)


def test_the_model_is_run_no_further_than_asked(tmp_path: Path) -> None:
    plan = resolve_calibration(planned("gemma3", tmp_path))
    first = "model.layers.0.self_attn.q_proj.weight"
    done_counts: list[int] = []

    def progress(done: int, total: int) -> None:
        done_counts.append(done)

    rows = token_rows(plan, RANDOM)
    some = activation_statistics(plan, rows, progress, [first])
    ran, everything = len(done_counts), activation_statistics(plan, rows, progress)
    assert list(some) == [plan.sources[first]] and ran < 20 < len(done_counts)
    np.testing.assert_array_equal(some[plan.sources[first]], everything[plan.sources[first]])


@pytest.mark.parametrize("options", [{"quant": "q8"}, {"quant": "q4_g32"}, {"calibrate": NOTHING}])
def test_what_sizes_do_not_change_is_not_run(options: dict[str, object], tmp_path: Path) -> None:
    plan = resolve_calibration(planned("llama", tmp_path, **options))
    assert plan.options.calibrate is None and calibration_rows(plan) == []


def test_no_input_of_no_size(tmp_path: Path) -> None:
    """A checkpoint of zeros, as for shapes that compile without weights: all inputs count
    equally."""
    plan = resolve_calibration(planned("llama", tmp_path))
    read: Callable[..., np.ndarray] = plan.checkpoint.tensors.read
    kind = type(plan.checkpoint.tensors)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "read", lambda self, name: np.zeros_like(read(name)))
        patch.setattr(
            kind,
            "read_rows",
            lambda self, name, rows: np.zeros(self.shapes[name], np.float32)[rows],
        )
        found = activation_statistics(plan, calibration_rows(plan), lambda done, total: None)
    assert found and all((power == 1).all() for power in found.values())
