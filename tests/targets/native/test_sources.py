"""The plugin's C++: it builds, is clean under clang-tidy and the sanitizers, and compiles against
Dawn's header too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlcc_targets.native import build

HERE = Path(__file__).parent
DAWN = "MLCC_DAWN_HEADERS"
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize=vptr", "-O0", "-g1")


def test_the_plugin_is_built_from_these_sources(plugin: None) -> None:
    assert build.is_current(), "stale; run: python -m mlcc_targets.native.build"


def test_files_are_short() -> None:
    for path in build.SOURCES.rglob("*.*"):
        assert len(path.read_text(encoding="utf-8").splitlines()) < 300, path.name


def checked(*command: str, **environment: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


@pytest.mark.long
@pytest.mark.needs("clang-tidy")
def test_clang_tidy_is_clean() -> None:
    *arguments, last = build.translation_unit()
    checked("clang-tidy", "--quiet", last, "--", "-std=c++20", *arguments)


@pytest.mark.skipif(not os.environ.get(DAWN), reason=f"{DAWN} names no folder with webgpu.h")
@pytest.mark.parametrize("linked", [[], ["-DMLCC_WEBGPU_LINKED"]])
def test_it_compiles_against_dawn(linked: list[str]) -> None:
    """npm pack react-native-webgpu; cpp/webgpu holds the header (and nothing of wgpu-native)."""
    unit = build.translation_unit(webgpu_headers=Path(os.environ[DAWN]))
    checked(*build.compiler(), *build.FLAGS, *linked, "-Werror", "-fsyntax-only", *unit)


RUN = """
import sys
from pathlib import Path
from mlcc_targets import native
native._LIBRARY = Path({library!r})
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", {tests!r} + "/test_kernels.py",
                      {tests!r} + "/test_tensors.py", {tests!r} + "/test_reads.py", "-k",
                      "not equals_numpy and not large_grid and not its_size and not behind_it"]))
"""


def compiler_library(name: str) -> str:
    command = [*build.compiler(), f"-print-file-name={name}"]
    path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(path).is_absolute():
        pytest.skip(f"the compiler has no {name}")
    return path


@pytest.mark.long
def test_the_sanitizers_find_nothing(device: Any, tmp_path: Path) -> None:
    # libstdc++ too: else the sanitizer finds no __cxa_throw to pass exceptions on to.
    preload = [compiler_library(name) for name in ("libasan.so", "libstdc++.so.6")]
    library = build.build(tmp_path / build.LIBRARY.name, [*build.FLAGS, *SANITIZE])
    checked(
        sys.executable,
        "-c",
        RUN.format(library=str(library), tests=str(HERE)),
        LD_PRELOAD=" ".join(preload),
        ASAN_OPTIONS="detect_leaks=0",  # Python and the drivers leave theirs to the exit
        UBSAN_OPTIONS="halt_on_error=1",
        TVM_USE_RUNTIME_LIB="1",
    )
