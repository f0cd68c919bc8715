"""mlcc on a Windows Python under wine: its executor and the demo model's library, built here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.helpers import needs
from tests.helpers.demo_model import DEMO
from tools import windows_python

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "runtime" / "native" / "build_executor.py"
EXECUTOR = "libmlcc_executor.pyd"


@pytest.fixture(scope="session")
def windows_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with mlcc as a wheel for Windows has it."""
    needs.require("wine")
    folder = tmp_path_factory.mktemp("windows")
    for package in ("runtime/mlcc", "targets/mlcc_targets"):
        without = shutil.ignore_patterns("lib", "__pycache__")
        shutil.copytree(ROOT / package, folder / Path(package).name, ignore=without)
    made = folder / "mlcc" / "device" / "lib" / EXECUTOR
    subprocess.run([sys.executable, str(BUILD), "windows", str(made)], check=True)
    windows_python.use(folder)
    return folder


@pytest.fixture(scope="session")
def windows_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model for Windows, in a folder with a space and an umlaut."""
    folder = tmp_path_factory.mktemp("models") / "ein Gerät"
    row = get_target("cpu", Choices(cpu="x86-64", systems=("windows",)))
    checkpoint = Checkpoint.open(DEMO / "model")
    options = Options(quant="q4_g32", context=256)
    return compile_model(checkpoint, row, folder, options, Progress())


def run(*words: str, seconds: float = 120) -> str:
    """What Windows' Python prints. Fails if it ends with an error."""
    done = subprocess.run(
        windows_python.command(words),
        env=windows_python.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
    )
    text = done.stdout.decode(errors="replace")
    assert done.returncode == 0, text
    return text
