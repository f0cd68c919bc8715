"""Every architecture's logits against `transformers`, through the native library and the reference.

f32, small random checkpoints whose logits have a standard deviation of at least 1, oracle in
float64; prefill at once, in chunks, and step by step, in mixed batches on shuffled pages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlcc_compiler.plan import Plan
from tests.compiler.models.helpers.checkpoints import CASES, REPEATED, proves
from tests.compiler.models.helpers.mixed import capacity_of, native, planned, reference, run_mixed

BOUND = 1e-4


ROPES = {
    "llama-llama3-rope", "llama-yarn", "llama-dynamic", "llama-linear", "phi3-longrope-short",
}  # fmt: skip
"""With --long only on the CPU: only frequencies differ, which the reference reads too."""
VARIANTS = {
    "mamba2-plain", "granitemoehybrid-rope", "falcon_h1-plain", "falcon_h1-norm",
    "deepseek_v2-groups", "gemma4", "qwen3_next", "granitemoehybrid", "qwen3_moe-first",
}  # fmt: skip
"""With --long only: switches of parts that another case of the family covers, and variants without
experts of cases with them."""
ALWAYS = {
    "mistral",
    "qwen2",
    "qwen3",
    "phi3",
    "glm4",
    "granite",
    "granitemoehybrid",
    "deepseek_v3",
    "kimi_linear",
}
"""Combinations of others' parts, which always run on the CPU."""


def shown(case: str, target: str) -> Any:
    rare = case in ROPES | VARIANTS or case.partition("-")[0] in REPEATED - ALWAYS
    long = [pytest.mark.long] if target == "cpu" and rare else []
    return pytest.param(case, marks=[*proves(case, target), *long])


@pytest.fixture(scope="module")
def model(request: Any, tmp_path_factory: Any) -> tuple[Any, Plan, Path]:
    """(transformers' model, the plan of a compile, a folder to build in)."""
    folder = tmp_path_factory.mktemp(request.param)
    return *planned(request.param, folder), folder


@pytest.mark.parametrize("model", [shown(c, "cpu") for c in CASES], indirect=True)
def test_native_equals_transformers(model: tuple[Any, Plan, Path], record_property: Any) -> None:
    oracle, plan, folder = model
    executor = native(plan, folder, capacity_of(plan))
    error = run_mixed(executor, oracle, plan.limits.context)
    record_property("max_abs_error", error)
    assert error < BOUND


@pytest.mark.parametrize("model", [shown(c, "reference") for c in CASES], indirect=True)
def test_reference_equals_transformers(model: tuple[Any, Plan, Path]) -> None:
    oracle, plan, _ = model
    # transformers computes rope angles in float32 even in a float64 run; the rest is exact.
    executor = reference(plan, capacity_of(plan))
    assert run_mixed(executor, oracle, plan.limits.context) < 2e-5
