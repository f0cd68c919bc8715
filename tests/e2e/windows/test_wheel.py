"""The wheel for Windows, installed by pip there, and the zip that needs no Python: under wine.

pip finds mlcc in an index as a release has it, and what mlcc needs where pip is set up to look.
"""

from __future__ import annotations

import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mlcc.util.machine import machine
from mlcc.version import __version__
from tests.e2e.windows.conftest import ROOT, run, served
from tools import package_managers, windows_python, windows_zip
from tools.windows_python import windows_path

pytestmark = [
    pytest.mark.long,  # bundles the chat page, and installs thirty packages
    pytest.mark.needs("wine"),
    pytest.mark.skipif(machine() != "x86_64", reason="wine runs this machine's programs alone"),
]
QUESTION, ANSWER = "What is 17 + 25?", "17 + 25 = 42"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel for Windows and an index, as `dev.py release` writes them."""
    folder = tmp_path_factory.mktemp("release")
    tree = tmp_path_factory.mktemp("tree")
    files = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT)
    archive = ["tar", "--null", "-T", "-", "-c", "--ignore-failed-read"]
    packed = subprocess.run(archive, cwd=ROOT, input=files, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(tree)], input=packed.stdout, check=True)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    environment = {**windows_python.environment(), "MLCC_WHEEL_SYSTEM": "windows"}
    subprocess.run([*pip, "-w", folder, tree], env=environment, check=True)
    package_managers.write_index(folder, [path.name for path in folder.glob("*.whl")])
    return folder


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


def wheel(release: Path) -> Path:
    (made,) = release.glob(f"mlcc-{__version__}-py3-none-win_amd64.whl")
    return made


def test_the_wheel_has_the_executor_and_the_page_and_nothing_of_other_systems(
    release: Path,
) -> None:
    names = zipfile.ZipFile(wheel(release)).namelist()
    built = {name for name in names if name.startswith("mlcc/device/lib/")}
    assert {Path(name).suffix for name in built} == {".pyd", ".sha256"}
    assert "mlcc/server/page/index.html" in names


def test_pip_installs_it_and_it_serves(release: Path, windows_demo: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    index = f"file:///{windows_path(release)}/simple".replace("\\", "/")
    words = ("install", "-q", "--target", windows_path(site), "--extra-index-url", index)
    run("-m", "pip", *words, f"mlcc[serve]=={__version__}", seconds=600)
    assert (site / "mlcc" / "device" / "lib" / "libmlcc_executor.pyd").exists()
    with only_packages_of(site):
        assert f"version {__version__}" in run("-m", "mlcc", "--version")
        answer = run("-m", "mlcc", "run", windows_path(windows_demo), QUESTION)
        assert ANSWER in answer.splitlines()
        with served(windows_demo) as (url, _), urllib.request.urlopen(url) as page:
            assert b"<title>" in page.read()


def test_the_zip_answers_without_a_python(
    release: Path, windows_demo: Path, tmp_path: Path
) -> None:
    archive = windows_zip.make(wheel(release), tmp_path / "mlcc.zip")
    again = windows_zip.make(wheel(release), tmp_path / "again.zip")
    assert archive.read_bytes() == again.read_bytes()
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
