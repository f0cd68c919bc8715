"""Bit allocation by a text's sensitivities: the estimated loss of each matrix equals the measured
loss of a model with that matrix rounded, and no other choice of as many bits loses less."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mlcc.errors import UnsupportedError
from mlcc_compiler.calibration import sensitivity as sensitivity_module
from mlcc_compiler.calibration.bit_allocation import allocate, allocate_bits, rounding_error
from mlcc_compiler.calibration.calibrate import CalibratedTensors, calibrate
from mlcc_compiler.calibration.dataset import resolve_calibration
from mlcc_compiler.calibration.forward import make_forward
from mlcc_compiler.calibration.sensitivity import SKIPPED_TOKENS, measure_divergences
from mlcc_compiler.calibration.weights import Weights
from mlcc_compiler.quantization import dequantize, scheme
from tests.compiler.calibration.test_sizes import planned

CANDIDATES = ("k4_g64", "k5_g64", "k6_g32")
Floats = npt.NDArray[np.float32]


def _bits(chosen: dict[str, str], shapes: dict[str, tuple[int, int]]) -> float:
    return sum(n * k * scheme(chosen[name]).bits_per_weight(k) for name, (n, k) in shapes.items())


def test_no_other_choice_of_so_many_bits_loses_less() -> None:
    shapes = {"a": (64, 256), "b": (64, 256), "c": (64, 256), "d": (64, 256)}
    divergences = {"a": 0.5, "b": 0.05, "c": 0.004, "d": 0.3}

    def loss(chosen: dict[str, str]) -> float:
        return sum(divergences[name] * rounding_error(how) for name, how in chosen.items())

    every = [dict(zip(shapes, row, strict=True)) for row in product(CANDIDATES, repeat=len(shapes))]
    for budget in sorted({_bits(chosen, shapes) for chosen in every}):
        found = allocate(divergences, shapes, CANDIDATES, budget)
        spent = _bits(found, shapes)
        assert spent <= budget
        assert loss(found) <= min(loss(c) for c in every if _bits(c, shapes) <= spent) * (1 + 1e-9)


def test_errors_of_schemes_are_those_that_were_measured() -> None:
    """On all gates of Gemma 3 270M at once, as KL divergence (docs/quantization.md)."""
    beside = {name: rounding_error(name) / rounding_error("k4_g32") for name in CANDIDATES}
    assert beside == pytest.approx({"k4_g64": 1.33, "k5_g64": 0.36, "k6_g32": 0.092}, rel=0.15)


@pytest.mark.parametrize("case", ["gemma3", "qwen3_next", "gemma3n"])
def test_losses_are_those_of_one_rounded_matrix(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(case, tmp_path / "model", context=64)
    monkeypatch.setattr(sensitivity_module, "TOP_TOKENS", plan.config.vocab_size)
    rng = np.random.default_rng(2)
    rows = [rng.integers(3, plan.config.vocab_size, 48).tolist() for _ in range(3)]
    names = [n for n in plan.traced.names if n.endswith(("0.mlp.up_proj.weight", "o_proj.weight"))]
    (tmp_path / "kept").mkdir()
    found = CalibratedTensors(plan.checkpoint.tensors, tmp_path / "kept")
    how = dict.fromkeys(names, scheme("k3_g64" if case == "gemma3" else "int4_g32"))
    divergences = measure_divergences(plan, rows, how, found, lambda done, total: None)
    assert set(divergences) == set(names) and min(divergences.values()) > 0

    def chances(rounded: str | None) -> Floats:
        weights = Weights(plan)

        def linear(name: str, source: str, x: Floats) -> Floats:
            own = dequantize(found.quantized(plan.sources[name])) if name == rounded else None
            return np.asarray(x @ (weights.read(name) if own is None else own).T)

        forward = make_forward(plan, [rows[1]], weights, linear)  # the middle one is held out
        forward.values["logit_rows"] = np.arange(48, dtype=np.int32)
        forward.run(lambda done, total: None, until="")
        logits = forward.values[forward.graph["output"]].astype(np.float64)[SKIPPED_TOKENS:]
        return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))

    own = chances(None)
    for name in names[:3]:
        other = chances(name)
        assert divergences[name] == pytest.approx(
            (np.exp(own) * (own - other)).sum(1).mean(), rel=1e-2
        )


def test_a_recipe_keeps_its_bits_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    plan = planned("gemma3", tmp_path / "model", context=64)
    rng = np.random.default_rng(3)
    rows = [rng.integers(3, plan.config.vocab_size, 48).tolist() for _ in range(3)]
    (tmp_path / "kept").mkdir()
    found = CalibratedTensors(plan.checkpoint.tensors, tmp_path / "kept")
    spent = allocate_bits(plan, rows, found, lambda done, total: None)
    before, after = plan.bits(tables=False), spent.bits(tables=False)
    assert before is not None and after is not None and before - 0.2 < after <= before
    assert spent.schemes["lm_head.weight"] == plan.schemes["lm_head.weight"]
    measured = dict(found.schemes)
    assert set(measured.values()) == {"t4_g32"}
    calibrate(spent, rows, found, lambda done, total: None)
    for name, how in spent.options.rules:
        if scheme(how).bits < 8:
            assert found.schemes[spent.sources[name]] == how


def test_as_many_bits_as_asked_for(tmp_path: Path) -> None:
    options: dict[str, Any] = {"context": 64, "calibrate": "default"}
    plan = resolve_calibration(planned("gemma3", tmp_path / "model", **options, bits=3.9))
    rows = [[3, *range(5, 52)]] * 3
    found = CalibratedTensors(plan.checkpoint.tensors, tmp_path)
    spent = allocate_bits(plan, rows, found, lambda done, total: None)
    assert 3.7 < (spent.bits(tables=False) or 0) <= 3.9
    few = planned("gemma3", tmp_path / "again", **options, bits=3.1)
    rows = []  # nothing is measured before it is known
    with pytest.raises(
        UnsupportedError, match=r"--bits 3.1: t3_g32 has the fewest.* 3\.\d\d or more"
    ):
        allocate_bits(few, rows, found, lambda done, total: None)


def test_bits_want_a_text_and_a_mixed_recipe(tmp_path: Path) -> None:
    for asked in (None, "random", "none"):
        plan = planned("gemma3", tmp_path / "model", context=64, bits=4.5, calibrate=asked)
        with pytest.raises(
            UnsupportedError, match=r"--bits 4.5: a text says .* --calibrate default"
        ):
            resolve_calibration(plan)
    plan = planned(
        "gemma3", tmp_path / "m", context=64, bits=4.5, quant="q4_g32", calibrate="default"
    )
    with pytest.raises(
        UnsupportedError, match=r"--bits 4.5 has nothing to give for --quant q4_g32"
    ):
        resolve_calibration(plan)


def test_recipes_of_one_scheme_are_left_as_they_are(tmp_path: Path) -> None:
    plan = planned("gemma3", tmp_path / "model", context=64, quant="q4_g32")
    found = CalibratedTensors(plan.checkpoint.tensors, tmp_path)
    assert allocate_bits(plan, [[3] * 48], found, lambda done, total: None) is plan
