"""The wheel for Windows, installed by pip there, and the zip that needs no Python: under wine.

pip finds mlcc in an index as a release has it, and what mlcc needs where pip is set up to look.
"""

from __future__ import annotations

import subprocess
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mlcc.util.machine import machine
from mlcc.version import __version__
from tests.e2e.windows.conftest import run, served
from tests.helpers import local_index
from tools import bill, windows_python, windows_zip
from tools.windows_python import windows_path

pytestmark = [
    pytest.mark.long,  # bundles the chat page, and installs thirty packages
    pytest.mark.needs("wine"),
    pytest.mark.skipif(machine() != "x86_64", reason="wine runs this machine's programs alone"),
]
QUESTION, ANSWER = "What is 17 + 25?", "17 + 25 = 42"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    environment = {**windows_python.environment(), "MLCC_WHEEL_SYSTEM": "windows"}
    return local_index.make(tmp_path_factory.mktemp("wheel"), environment)


@contextmanager
def only_packages_of(folder: Path) -> Iterator[None]:
    """Windows' Python finds nothing else, as in an environment of its own."""
    paths = windows_python.folder() / "python313._pth"
    before = paths.read_text(encoding="utf-8")
    windows_python.use(folder, own=False)
    try:
        yield
    finally:
        paths.write_text(before, encoding="utf-8")


def test_the_wheel_has_the_executor_and_the_page_and_nothing_of_other_systems(
    wheel: Path,
) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    built = {name for name in names if name.startswith("mlcc/device/lib/")}
    assert {Path(name).suffix for name in built} == {".pyd", ".sha256"}
    assert "mlcc/server/page/index.html" in names


def test_pip_installs_it_and_it_serves(wheel: Path, windows_demo: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    index = f"file:///{windows_path(wheel.parent)}/simple".replace("\\", "/")
    words = ("install", "-q", "--target", windows_path(site), "--extra-index-url", index)
    run("-m", "pip", *words, f"mlcc[serve]=={__version__}", seconds=600)
    assert (site / "mlcc" / "device" / "lib" / "libmlcc_executor.pyd").exists()
    with only_packages_of(site):
        assert f"version {__version__}" in run("-m", "mlcc", "--version")
        answer = run("-m", "mlcc", "run", windows_path(windows_demo), QUESTION)
        assert ANSWER in answer.splitlines()
        with served(windows_demo) as (url, _), urllib.request.urlopen(url) as page:
            assert b"<title>" in page.read()


def test_the_zip_answers_without_a_python(wheel: Path, windows_demo: Path, tmp_path: Path) -> None:
    archive = windows_zip.make(wheel, tmp_path / "mlcc.zip")
    again = windows_zip.make(wheel, tmp_path / "again.zip")
    assert archive.read_bytes() == again.read_bytes()
    parts = {part.name: part for part in bill.of_windows(archive)}
    assert {"cpython", "tokenizers", "starlette", "wgpu"} <= set(parts) and "mlcc" not in parts
    assert all(part.terms for part in parts.values()), parts
    folder = tmp_path / "ein Gerät"
    with zipfile.ZipFile(archive) as file:
        assert not [name for name in file.namelist() if not name.startswith("mlcc/")]
        file.extractall(folder)
    program = folder / "mlcc" / "mlcc.exe"
    windows_python.make_it_run_in_wine(program.parent)

    def mlcc(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [str(windows_python.wine()), str(program), *words],
            env=windows_python.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )

    assert f"version {__version__}" in mlcc("--version").stdout.decode()
    assert mlcc("nonsense").returncode == 2
    answer = mlcc("run", windows_path(windows_demo), QUESTION)
    assert ANSWER in answer.stdout.decode().splitlines(), answer
