"""Vectors through the C library on an emulated arm64: qemu, with Debian's Python 3.11 embedded.

All of mlcc's code is compiled for it by zig. A vector takes minutes there: MLCC_ARM64_VECTORS is
the number of vectors of each topic [1], or "all".
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.e2e.conformance.conftest import running
from tests.e2e.conformance.runner import Runner
from tests.e2e.conformance.vectors import Vector, load
from tests.helpers.demo_model import CONTEXT, DEMO
from tests.helpers.emulators.arm64_python import arm64_python
from tests.helpers.mobile.c_bridge import bridge
from tests.helpers.mobile.c_library import ROOT, SOURCE, Library

pytestmark = [
    pytest.mark.long,  # compiles everything by zig, and emulates
    pytest.mark.needs("qemu"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="emulates arm64 on x86-64"),
]


def chosen() -> list[Vector]:
    """The first of each topic, or as many as were asked for."""
    found = [vector for vector in load() if vector.fits("c")]
    asked = os.environ.get("MLCC_ARM64_VECTORS", "1")
    if asked == "all":
        return found
    seen: Counter[str] = Counter()
    few = []
    for vector in found:
        topic = vector.id.partition("/")[0]
        seen[topic] += 1
        if seen[topic] <= int(asked):
            few.append(vector)
    return few


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """libmlcc, its parts and the tests' program, for arm64."""
    folder, root = tmp_path_factory.mktemp("arm64"), arm64_python()
    build: Any = [sys.executable, SOURCE / "build.py", "--arch", "aarch64", "--python", root]
    done = subprocess.run([*build, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(ROOT / "runtime" / "native"))
    try:
        import build_executor
    finally:
        sys.path.remove(str(ROOT / "runtime" / "native"))
    made, (words, _) = Library(folder), build_executor.toolchain("aarch64")
    os.environ.update(build_executor.zig_cache())
    source = Path(__file__).parents[1] / "mobile" / "host.cc"
    made.compile(source, "host", *words, "-std=c++17", "-O1", "-Wl,--allow-shlib-undefined")
    return made


@pytest.fixture(scope="module")
def runner(
    request: pytest.FixtureRequest, library: Library, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runner]:
    row = get_target("cpu", Choices(cpu="arm-dotprod"))
    out = tmp_path_factory.mktemp("arm64-model") / "out"
    options = Options(quant="f32", context=CONTEXT)
    model = compile_model(Checkpoint.open(DEMO / "model"), row, out, options, Progress())
    emulated = ["qemu-aarch64", "-cpu", "max", "-L", str(arm64_python())]
    with (
        bridge([*emulated, str(library.program)], model) as url,
        running(request, url) as started,
    ):
        yield started


@pytest.mark.parametrize("vector", chosen(), ids=lambda v: v.id)
def test_on_arm64(runner: Runner, vector: Vector) -> None:
    runner.result(vector)
