"""Every architecture compiles for the CPU, Vulkan and a tab: a tiny random model of each.

That it computes what it should is shown beside (`test_architectures*.py`, `tests/web`), of those
that only put others' parts together in the long tail; so all of it is compiled here, every time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import needs
import pytest

from mlcc_compiler.ir_dump import IrDump
from mlcc_compiler.kernels import kernel_set_for
from mlcc_compiler.models.registry import ARCHITECTURES
from mlcc_compiler.pipeline import build, lower
from mlcc_targets import get_target
from models.checkpoints import CASES, REPEATED, proves
from models.mixed import bounds_of, planned

TARGETS = ("cpu", "vulkan", "webgpu")
ONLY_IN_A_TAB = ("deepseek_v2", "mamba2", "lfm2", "falcon_h1")
"""Elsewhere they run every time."""
OTHER_NAMES = {
    "gemma3_text": "gemma3",
    "gemma3n_text": "gemma3n",
    "gemma4_text": "gemma4",
    "kimi_k2": "deepseek_v3",
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_moe",
}
"""Types that are read as another's."""


def test_each_has_a_case() -> None:
    cases = {case.partition("-")[0] for case in CASES}
    assert {OTHER_NAMES.get(kind, kind) for kind in ARCHITECTURES} == cases


def shown(case: str, targets: tuple[str, ...] = TARGETS) -> Any:
    return pytest.param(case, targets, marks=proves(case, *targets, how="compiles"), id=case)


COMPILED = [
    *(shown(case) for case in sorted(REPEATED)),
    *(shown(case, ("webgpu",)) for case in ONLY_IN_A_TAB),
]


@pytest.mark.parametrize(("case", "targets"), COMPILED)
def test_it_compiles(case: str, targets: tuple[str, ...], tmp_path: Path) -> None:
    _, plan = planned(case, tmp_path)
    for name in targets:
        needs.require_target(name)
        target = get_target(name)
        own, library = plan.on(target), tmp_path / target.library
        kernels, bounds = kernel_set_for(target), bounds_of(own)
        vocab = own.config.vocab_size
        lowered = lower(own.traced, kernels, own.caches, bounds, vocab, target, IrDump(None))
        build(lowered, own.target, library)
        assert "forward" in lowered.functions and library.stat().st_size > 10_000
        library.unlink()
