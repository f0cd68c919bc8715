"""A folder for Android in an emulated phone: qemu's CPUs, with Debian's arm64 Python and C library
in place of Android's, against the reference. The library for x86-64 runs on this machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mlcc.artifact.folder import Artifact
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_executor
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.helpers.demo_model import DEMO
from tests.helpers.emulators.arm64_python import arm64_python

pytestmark = [
    pytest.mark.long,  # builds an executor by zig, and emulates
    pytest.mark.skipif(platform.machine() != "x86_64", reason="emulates arm64 on x86-64"),
]
ROOT = Path(__file__).parents[3]
PHONE = Path(__file__).parent / "helpers" / "phone.py"
PROMPT = list(range(5, 11))
TOKENS = 8
BOUND = 0.25
"""Bound of logits up to 8: 4-bit weights and 8-bit activations; 0.12 was measured on all CPUs."""
SITE = Path(pytest.__file__).parents[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("phone") / "out"
    row = get_target("android", Choices(abis=("arm64-v8a", "x86_64")))
    return compile_model(
        Checkpoint.open(DEMO / "model"), row, out, Options(context=256), Progress()
    )


@pytest.fixture(scope="module")
def expected(compiled_demo: Callable[[str, str], Path]) -> list[float]:
    """The reference's logits behind the prompt."""
    artifact = Artifact.open(compiled_demo("q4", "reference"))
    executor: Any = open_executor(artifact, EngineArgs(max_batch=1, context=256))
    (row,) = executor.logits(ManualSteps(executor.capacity).step({0: PROMPT})).tolist()
    return [float(value) for value in row]


def check(answer: dict[str, Any], library: str, expected: list[float]) -> list[int]:
    assert answer.get("library") == library, answer
    pairs = zip(answer["logits"], expected, strict=True)
    assert max(abs(a - b) for a, b in pairs) < BOUND
    first = answer["tokens"][0]
    assert expected[first] > max(expected) - BOUND and len(answer["tokens"]) == TOKENS
    return [int(token) for token in answer["tokens"]]


def ask(before: Sequence[object], folder: Path, executors: Path, **variables: str) -> Any:
    words = [*before, PHONE, folder, executors, TOKENS, *PROMPT]
    path = os.pathsep.join([str(ROOT / "runtime"), str(SITE)])
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, **variables},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def named(folder: Path, root: Path) -> Path:
    """A C library under the names that Android's has."""
    folder.mkdir(exist_ok=True)
    for name in ("libc", "libm"):
        (found,) = list(root.rglob(f"{name}.so.6"))[:1]
        if not (folder / f"{name}.so").exists():
            (folder / f"{name}.so").symlink_to(found)
    return folder


def test_the_x86_64_library_runs_on_this_machine(
    folder: Path, expected: list[float], built: None, tmp_path: Path
) -> None:
    libraries = named(tmp_path / "system", Path("/lib/x86_64-linux-gnu"))
    executors = ROOT / "runtime" / "mlcc" / "device" / "lib"
    answer = ask([sys.executable], folder, executors, LD_LIBRARY_PATH=str(libraries))
    check(answer, "model.x86_64.so", expected)


@pytest.mark.needs("qemu")
def test_each_arm64_cpu_takes_its_library_and_answers_alike(
    folder: Path, expected: list[float], build: Any, tmp_path: Path
) -> None:
    root = arm64_python()
    build.build(tmp_path / "lib" / "libmlcc_executor.so", "aarch64")
    libraries = named(tmp_path / "system", root)
    answers = []
    for cpu, library in (("max", "arm64-v8a-dotprod"), ("cortex-a53", "arm64-v8a")):
        emulated = ["qemu-aarch64", "-cpu", cpu, "-L", root, "-E", f"LD_LIBRARY_PATH={libraries}"]
        answer = ask([*emulated, root / "usr/bin/python3.11"], folder, tmp_path / "lib")
        answers.append(check(answer, f"model.{library}.so", expected))
    assert answers[0] == answers[1]
