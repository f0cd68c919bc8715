"""`tools/bytecode.py`: checkouts with equal packages share these packages' bytecode."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools import bytecode

INFO = "some-1.0.dist-info"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes the site-packages of a checkout by its name, all with one package, as uv does."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def make(checkout: str, installed_s: int = 10**9) -> Path:
        found = tmp_path / checkout / "site-packages"
        files = {"some.py": "VALUE = 1\n", f"{INFO}/METADATA": "", f"{INFO}/INSTALLER": "uv"}
        for path, text in files.items():
            (found / path).parent.mkdir(parents=True, exist_ok=True)
            (found / path).write_text(text)
            os.utime(found / path, (installed_s, installed_s))
        return found

    return make


def compiled(prefix: Path, site: Path) -> str:
    """Import the package with bytecode below `prefix`; the files that Python compiled for it."""
    command = [sys.executable, "-v", "-c", "import some; assert some.VALUE == 1"]
    variables = {"PYTHONPYCACHEPREFIX": str(prefix), "PYTHONPATH": str(site)}
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, env=kept | variables, capture_output=True, text=True, check=True)
    return "\n".join(re.findall(r"# created '(.*some.*)'", done.stderr))


def test_a_second_checkout_compiles_no_package(tmp_path: Path, site: Any) -> None:
    folders = [site(name) for name in ("one", "two", "three")]
    for number, folder in enumerate(folders):
        prefix = tmp_path / f"bytecode-{number}"
        bytecode.share(prefix, folder)
        bytecode.share(prefix, folder)  # the link stays
        assert bool(compiled(prefix, folder)) == (number == 0)
    (folders[2] / "some.py").write_text("VALUE = 1  # changed\n")
    assert compiled(tmp_path / "bytecode-2", folders[2])


def test_packages_of_other_times_do_not_share(tmp_path: Path, site: Any) -> None:
    """Else each of two checkouts would replace the other's. A few sets stay, the last used."""
    links = []
    for number in range(bytecode.KEPT + 2):
        folder = site(f"at-{number}", 10**9 + number)
        prefix = tmp_path / f"bytecode-{number}"
        bytecode.share(prefix, folder)
        assert compiled(prefix, folder)
        links.append(prefix.joinpath(*folder.parts[1:]))
        os.utime(links[-1], (number, number))
    assert [link.exists() for link in links] == [False] * 2 + [True] * bytecode.KEPT


def test_a_checkout_without_a_cache_keeps_its_own(
    tmp_path: Path, site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = site("one")
    (folder / INFO / "INSTALLER").write_text("pip\n")
    bytecode.share(tmp_path / "pips", folder)
    assert not (tmp_path / "pips").exists()
    (folder / INFO / "INSTALLER").write_text("uv")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    bytecode.share(tmp_path / "own", folder)
    assert compiled(tmp_path / "own", folder)
