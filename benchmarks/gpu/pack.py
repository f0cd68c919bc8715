"""Builds the folder of a GPU day: sources, runtime-only packages, compiled libraries, recorded
kernel calls. Needs the compiler and no GPU; what it writes needs neither compiler nor network.

    FOLDER/pack.json      commit, Python, what is in the folder
    FOLDER/benchmarks     these scripts; mlcc and mlcc_targets beside them, with libmlcc_executor
    FOLDER/site           TVM's runtime, wgpu-native, CUDA's runtime (packages.py)
    FOLDER/kernels        kernel calls recorded on the emulated device, and their library
    FOLDER/TARGET         the demo model, and libraries of published shapes without weights
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu import libraries
from benchmarks.gpu.packages import copy_packages
from mlcc.util import executor_library
from mlcc.util.sizes import size

ROOT = Path(__file__).resolve().parents[2]
TREES = {"benchmarks/gpu": "benchmarks/gpu", "mlcc": "runtime/mlcc"}
TREES |= {"mlcc_targets": "targets/mlcc_targets"}
"""Where folders of sources go, from where."""
_LEFT_OUT = ("__pycache__", "lib", "page")
TESTS = "tests/targets/cuda/test_emulated_kernels.py"
TESTS_OF = {"sm_90a": "tests/targets/cuda/test_warp_groups.py"}
"""Tests of kernels that one architecture alone has."""
CHOSEN = "ascending and not left_out"
"""Not those whose kernels are wrong on purpose."""


def pack(given: argparse.Namespace) -> int:
    """Fill the folder. Returns the exit code."""
    if given.folder.exists():
        sys.exit(f"{given.folder} is there already; name another folder")
    if reason := executor_library.why_absent():
        sys.exit(reason)
    given.folder.mkdir(parents=True)
    try:
        python = write_runtime(given.folder, given.packages_from, numpy=given.numpy)
    except FileNotFoundError as error:
        sys.exit(str(error))
    for name in given.targets:
        archs = given.arch if name == "cuda" else ""
        libraries.prepare(given.folder / name, name, given.shapes, given.quants, archs)
        if archs in TESTS_OF:  # the last shape without the kernels of this architecture alone
            plain, shapes = archs[:-1], given.shapes[-1:]
            out = given.folder / f"{name}_{plain}"
            libraries.prepare(out, name, shapes, given.quants[:1], plain, prompts=0)
    if "cuda" in given.targets and not given.no_kernels:
        record_kernels(given.folder / "kernels", given.arch)
    describe(given.folder, python, {"targets": given.targets, "arch": given.arch})
    return 0


def write_runtime(folder: Path, source: Path | None = None, *, numpy: bool = False) -> str:
    """The sources and packages. Returns the Python that they are for. Raises FileNotFoundError."""
    for name, path in TREES.items():
        shutil.copytree(ROOT / path, folder / name, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    (folder / "benchmarks" / "__init__.py").touch()
    executor = folder / "mlcc" / "device" / "lib" / executor_library.LIBRARY.name
    executor.parent.mkdir()
    shutil.copyfile(executor_library.LIBRARY, executor)
    return copy_packages(folder / "site", source, numpy=numpy)


def record_kernels(folder: Path, arch: str) -> None:
    """Run the tests of the emulated device with the recorder, in a process of their own."""
    tests = [TESTS, *([TESTS_OF[arch]] if arch in TESTS_OF else [])]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "benchmarks.gpu.recorder", *tests]
    options = {"MLCC_GPU_CALLS": str(folder.absolute()), "MLCC_GPU_ARCH": arch}
    done = subprocess.run([*command, "-k", CHOSEN], cwd=ROOT, env=os.environ | options, check=False)
    if done.returncode:
        libraries.say(f"kernels: pytest ended with {done.returncode}; calls of passed tests remain")


def describe(folder: Path, python: str, more: dict[str, Any]) -> None:
    """Write pack.json, and print what is in the folder."""
    parts = {path.name: bytes_of(path) for path in sorted(folder.iterdir())}
    row = {"date": time.strftime("%Y-%m-%d"), "commit": _commit(), "python": python}
    (folder / "pack.json").write_text(json.dumps(row | more | {"bytes": parts}, indent=1) + "\n")
    libraries.say(", ".join(f"{name} {size(count)}" for name, count in parts.items()))
    libraries.say(f"{folder}: {size(sum(parts.values()))}, for Python {python}; there, type")
    libraries.say(f"    cd {folder.name}; python{python} -m benchmarks.gpu run .")


def bytes_of(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    files: Sequence[Path] = [path] if path.is_file() else [*path.rglob("*")]
    return sum(file.stat().st_size for file in files if file.is_file())


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()
