"""Every architecture compiles for every target for which no other test that always runs proves it:
a tiny random model of each.

Results are tested in `test_architectures*.py` and `tests/e2e/web`; for combinations of others'
parts only with --long, so all are compiled here. A graph is compiled for each, and a kernel once
for each generator of device code, however many graphs have it. Vulkan has WebGPU's generator, and
its graphs differ in the code of the host alone, so they are compiled with --long.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tvm_ffi

from mlcc_compiler.ir._tvm import ir, tirx
from mlcc_compiler.kernels import kernel_set_for
from mlcc_compiler.models.registry import ARCHITECTURES
from mlcc_compiler.pipeline import LoweringConfig, build, lower
from mlcc_targets import Choices, get_target
from tests.compiler.models.helpers.checkpoints import CASES, REPEATED, proves
from tests.compiler.models.helpers.mixed import bounds_of, planned
from tests.helpers import needs

TARGETS = ("cpu", "webgpu")
NOT_ELSEWHERE = {
    **dict.fromkeys(
        ("deepseek_v2", "gemma3n", "mamba2", "lfm2", "falcon_h1", "qwen3_moe"), ("webgpu",)
    ),
    **dict.fromkeys(("cohere2", "nemotron"), ("webgpu", "cuda", "metal")),
    "glm4_moe": ("cuda", "metal"),
}
"""Architectures that always run on other targets: on these targets with --long only."""
OTHER_NAMES = {
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
    "gemma3_text": "gemma3",
    "gemma3n_text": "gemma3n",
    "gemma4_text": "gemma4",
    "kimi_k2": "deepseek_v3",
    "mimo": "qwen2",
    "qwen2_5_omni": "qwen2",
    "qwen2_5_omni_text": "qwen2",
    "qwen2_5_omni_thinker": "qwen2",
    "qwen2_audio": "qwen2",
    "voxtral": "llama",
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_moe",
}
"""Types that are read as another's."""


def test_each_has_a_case() -> None:
    cases = {case.partition("-")[0] for case in CASES}
    assert {OTHER_NAMES.get(kind, kind) for kind in ARCHITECTURES} == cases


def shown(case: str, targets: tuple[str, ...] = TARGETS) -> Any:
    return pytest.param(case, targets, marks=proves(case, *targets, how="compiles"), id=case)


def on_vulkan(case: str) -> Any:
    marks = [pytest.mark.long, *proves(case, "vulkan", how="compiles")]
    return pytest.param(case, ("vulkan",), marks=marks, id=f"{case}-vulkan")


COMPILED = [
    *(shown(case) for case in sorted(REPEATED)),
    *(on_vulkan(case) for case in sorted(REPEATED)),
    *(shown(case, targets) for case, targets in NOT_ELSEWHERE.items()),
]


@pytest.fixture(scope="module")
def compiled() -> dict[tuple[str, int], list[tirx.PrimFunc]]:
    """The kernels that were compiled, by generator (Vulkan and WebGPU share one) and hash."""
    return {}


def leave_new(module: ir.IRModule, generator: str, compiled: dict[Any, Any]) -> int:
    """Take out of a module the kernels that were compiled, but one: a library has some. The graph
    calls them by name. How many are left."""
    old = []
    for variable, function in module.functions.items():
        if isinstance(function, tirx.PrimFunc):
            kernel = function.without_attr("global_symbol")
            equals = compiled.setdefault((generator, tvm_ffi.structural_hash(kernel)), [])
            if any(tvm_ffi.structural_equal(kernel, other) for other in equals):
                old.append(variable)
            else:
                equals.append(kernel)
    for variable in old[1:]:
        del module[variable]
    return sum(isinstance(function, tirx.PrimFunc) for function in module.functions.values())


@pytest.mark.parametrize(("case", "targets"), COMPILED)
def test_it_compiles(
    case: str, targets: tuple[str, ...], compiled: dict[Any, Any], tmp_path: Path
) -> None:
    _, plan = planned(case, tmp_path)
    for name in targets:
        needs.require_target(name)
        target = get_target(name, Choices(archs=("sm_90",) if name == "cuda" else ()))
        own, library = plan.for_target(target), tmp_path / target.library
        kernels, bounds = kernel_set_for(target), bounds_of(own)
        vocab = own.config.vocab_size
        lowered = lower(own.traced, LoweringConfig(target, kernels, own.caches, bounds, vocab))
        kernels_left = leave_new(lowered.module, target.generator or name, compiled)
        build(lowered, own.target, library)
        assert (
            "forward" in lowered.functions and library.stat().st_size > 10_000 + 1000 * kernels_left
        )
        library.unlink()
