"""Bounds on the code of a CPU library, as LLVM instructions: a compile's time follows them, and a
count does not depend on what else the machine does. `benchmarks/kernels/compile_time.py` has both.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kernels.compile_time import Kernel, measured
from mlcc_compiler import pipeline
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target

DEMO = Path(__file__).parents[3] / "examples" / "demo" / "model"


MOST = {"x86-64": 22_500, "avx512-amx": 38_500}
"""Instructions of the demo in q4 for the level with the least code, and for that with the most."""


@pytest.mark.parametrize("level", MOST)
def test_the_demo_in_q4(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that needs more says in the commit what it gains; one that needs less lowers it."""
    kernels: list[Kernel] = []
    monkeypatch.setattr(pipeline, "compile_kernels", measured(kernels))
    options = Options(quant="q4", calibrate="none")
    target = get_target("cpu", Choices(cpu=level))
    compile_model(Checkpoint.open(DEMO), target, tmp_path / "out", options, Progress())
    found = sum(kernel.instructions for kernel in kernels)
    largest = max(kernels, key=lambda kernel: kernel.instructions)
    assert 0.9 * MOST[level] < found <= MOST[level], f"{found}, the largest: {largest}"
