"""One model of every architecture through the GPU's kernels, on the machine's Vulkan device.

In float32 with the CPU's bound; `tests/e2e/demo` and `tests/compiler/kernels` test float16. All
with --long; otherwise those that are not combinations of others' parts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlcc.device.device import DeviceHandle
from mlcc_targets import Choices, get_target
from tests.compiler.models.helpers.checkpoints import REPEATED, long_if_repeated, proves
from tests.compiler.models.helpers.mixed import capacity_of, native, planned, run_mixed

BOUND = 1e-4
MODELS = (
    "llama-head-dim",
    "mistral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "qwen3_next-experts",
    "gemma2",
    "gemma3",
    "gemma3n",
    "gemma4",
    "gemma4-experts",
    "phi3",
    "deepseek_v2",
    "cohere2",
    "nemotron",
    "mamba2",
    "lfm2",
    "falcon_h1",
    "nemotron_h-experts",
    "ministral3-long",
    "glm4_moe",
    "gpt_oss",
    *sorted(REPEATED - {"mistral", "qwen2", "qwen3", "phi3"}),
)


def shown(case: str) -> Any:
    """`gemma4` has nothing that `gemma4-experts` has not."""
    long = [pytest.mark.long] if case == "gemma4" else long_if_repeated(case)
    return pytest.param(case, marks=[*proves(case, "vulkan"), *long])


@pytest.mark.usefixtures("vulkan")
@pytest.mark.parametrize("case", [shown(case) for case in MODELS])
def test_vulkan_equals_transformers(case: str, tmp_path: Path, record_property: Any) -> None:
    oracle, plan = planned(case, tmp_path)
    plan = replace(plan, target=get_target("vulkan", Choices(f16=False)))
    executor = native(plan, tmp_path, capacity_of(plan), DeviceHandle("webgpu"))
    error = run_mixed(executor, oracle, plan.limits.context)
    executor.close()
    record_property("max_abs_error", error)
    assert error < BOUND
