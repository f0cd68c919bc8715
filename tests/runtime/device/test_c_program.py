"""A C program over the executor's C API: equal tokens with Python, on this machine and, built by
zig, on arm64 under qemu."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mlcc.artifact.folder import Artifact
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from mlcc_targets.linking.linker import run_zig
from tests.helpers.demo_model import DEMO
from tests.runtime.device.conftest import NATIVE
from tests.runtime.device.helpers.demo import capacity_of, cpu_executor
from tests.runtime.device.helpers.records import source

HERE = Path(__file__).parent
TOKENS = 12
ZIG_CACHE = Path(
    os.environ.get("ZIG_GLOBAL_CACHE_DIR")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zig"
)
"""Zig's own, where the executor's build left most of the C library: 14 s of CPU."""
LIMITS = {"max_batch": 1, "max_step_tokens": 64, "context": 128}


def program(folder: Path, artifact: Artifact, executor: Path, arch: str) -> Path:
    """greedy.c for a model: after a prompt, each step takes the token that the one before gave."""
    capacity = capacity_of(artifact.folder, **LIMITS)
    steps = ManualSteps(capacity)
    batches = [steps.step({0: range(5, 30)})]
    batches += [steps.step({0: [-1]}) for _ in range(TOKENS - 1)]
    records = folder / "records.h"
    records.write_text(source(artifact, capacity, batches), encoding="utf-8")
    made = folder / "greedy"
    words = ["cc", "-target", f"{arch}-linux-gnu.2.17", "-std=c11", "-Wall", "-Werror"]
    words += ["-O2", "-fno-sanitize=all", f"-I{NATIVE / 'include'}", f'-DRECORDS="{records}"']
    # The system's compiler may have built the executor, for a newer glibc
    words += ["-Wl,--allow-shlib-undefined", f"-Wl,-rpath,{executor.parent}"]
    words += [str(HERE / "helpers" / "greedy.c"), str(executor)]
    run_zig([*words, "-o", str(made)], made, ZIG_CACHE)
    return made


def run(made: Path, artifact: Artifact, *before: str) -> str:
    weights = artifact.folder / artifact.manifest.weights.shards[0]
    command = [*before, str(made), str(artifact.library_path), str(weights), str(TOKENS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def expected(demo: Path) -> str:
    executor = cpu_executor(demo, **LIMITS)
    steps = ManualSteps(executor.capacity)
    tokens, found = list(range(5, 30)), []
    for _ in range(TOKENS):
        found += executor.collect(executor.submit(steps.step({0: tokens}))).tokens
        tokens = [-1]
    executor.close()
    return " ".join(map(str, found)) + " \n"


def test_its_tokens_are_those_of_python(demo: Path, build: Any, tmp_path: Path) -> None:
    artifact = Artifact.open(demo)
    made = program(tmp_path, artifact, build.LIBRARY, platform.machine())
    assert run(made, artifact) == expected(demo)


@pytest.mark.long
@pytest.mark.needs("qemu", "an arm64 compiler")
@pytest.mark.skipif(platform.machine() == "aarch64", reason="this machine runs arm64 itself")
def test_on_arm64_too(demo: Path, build: Any, tmp_path: Path) -> None:
    """Equal quantized weights in other machine code: the most likely tokens are equal."""
    executor = build.build(tmp_path / "libmlcc_executor.so", "aarch64")
    options = Options(quant="q4", context=1024)
    row = get_target("cpu", Choices(cpu="arm-dotprod"))
    out = compile_model(Checkpoint.open(DEMO / "model"), row, tmp_path / "out", options, Progress())
    artifact = Artifact.open(out, host=False)
    made = program(tmp_path, artifact, executor, "aarch64")
    emulated = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
    assert run(made, artifact, *emulated) == expected(demo)
    here = Artifact.open(demo)
    refusal = run(made, here, *emulated)
    assert refusal.startswith("status 2: ") and "library for x86_64" in refusal
