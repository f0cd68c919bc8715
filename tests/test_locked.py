"""requirements/*.lock: every package that pyproject.toml asks for, in a version that it allows,
with hashes, and from no named host."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import locked

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT: dict[str, Any] = tomllib.loads((locked.ROOT / "pyproject.toml").read_text("utf-8"))
ENTRY = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^ ;]+)", re.MULTILINE)


def versions(name: str) -> dict[str, set[str]]:
    """Package -> its versions in a lock; several where Pythons need different ones."""
    found: dict[str, set[str]] = {}
    for package, version in ENTRY.findall(locked.path(name).read_text("utf-8")):
        found.setdefault(package, set()).add(version)
    return found


def asked(extras: set[str]) -> list[Requirement]:
    """The requirements of the project with these extras, and of the extras that they name."""
    found = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
    left, seen = [*extras], set[str]()
    while left:
        extra = left.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for line in PROJECT["project"]["optional-dependencies"][extra]:
            requirement = Requirement(line)
            if requirement.name == "mlcc":
                left += requirement.extras
            else:
                found.append(requirement)
    return found


@pytest.mark.parametrize("name", ["develop", "use", "real"])
def test_a_lock_has_what_the_project_asks_for(name: str) -> None:
    extras = {word.removeprefix("--extra=") for word in locked.LOCKS[name] if "--extra=" in word}
    found = versions(name)
    for requirement in asked(extras):
        held = found.get(canonicalize_name(requirement.name), set())
        assert held, f"{requirement} is not in {name}.lock; type: python3 dev.py lock"
        assert all(requirement.specifier.contains(v, prereleases=True) for v in held), (
            f"{requirement} is {held} in {name}.lock; type: python3 dev.py lock"
        )


@pytest.mark.parametrize("name", locked.LOCKS)
def test_each_package_has_hashes_and_none_a_host(name: str) -> None:
    text = locked.path(name).read_text("utf-8")
    entries = ENTRY.split(text)[3::3]
    assert entries and all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in text and "index" not in text and "find-links" not in text


@pytest.mark.parametrize("name", ["use", "real", "fast"])
def test_locks_agree(name: str) -> None:
    develop = versions("develop")
    for package, held in versions(name).items():
        assert package not in develop or held <= develop[package], package


def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with other bytes than those that were locked is not installed."""
    source = tmp_path / "small"
    source.mkdir()
    (source / "small.py").write_text("x = 1\n")
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "small"\nversion = "1"\n'
    )
    build = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation")
    subprocess.run([*build, "-w", str(tmp_path), str(source)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    monkeypatch.setattr(locked, "FOLDER", tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(locked, "_own_uv", lambda python: None)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    good = (
        subprocess.run(
            [sys.executable, "-m", "pip", "hash", str(wheel)],
            capture_output=True,
            text=True,
            check=True,
        )
        .stdout.partition("--hash=")[2]
        .strip()
    )
    for hash_, installs in ((f"sha256:{'0' * 64}", False), (good, True)):
        (tmp_path / "it.lock").write_text(f"small==1 --hash={hash_}\n")
        assert (locked.install(python, "it") == 0) is installs
