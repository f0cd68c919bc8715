"""The source distribution, built by pip where there is no wheel and no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.helpers import local_index

pytestmark = [
    pytest.mark.long,  # installs TVM and zig, and compiles the executor where it is not cached
    pytest.mark.skipif(sys.platform != "linux", reason="builds a wheel for Linux"),
]


def test_pip_builds_it_and_says_what(tmp_path: Path) -> None:
    tree = local_index.copy_of_the_clone(tmp_path / "tree")
    hatch = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(hatch, cwd=tree, check=True, capture_output=True)
    (archive,) = tmp_path.glob("mlcc-*.tar.gz")
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CXX")}
    pip = [str(programs / "python"), "-m", "pip", "wheel", "-v", "--no-deps", "-w", str(tmp_path)]
    done = subprocess.run(
        [*pip, str(archive)],
        env={**kept, "PATH": str(programs)},  # no compiler of the system
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "mlcc: compiling the executor for Linux on " in done.stderr
    (wheel,) = tmp_path.glob("mlcc-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "mlcc/device/lib/libmlcc_executor.so" in names
    assert "mlcc/device/lib/absent.txt" not in names
