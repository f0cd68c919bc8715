"""Locked requirements: what `dev.py` installs, each file by its hash.

requirements/NAME.lock names a version and the hashes of all its files for every package, for every
Python and platform. `dev.py lock` writes them from pyproject.toml with uv; installing takes uv too,
which is several times as fast as pip, or pip where uv cannot be had. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
USED = ("--extra=compile", "--extra=serve", "--extra=vision", "--extra=vulkan")
ALIKE = "--constraints=requirements/develop.lock"
LOCKS: dict[str, tuple[str, ...]] = {
    "develop": ("pyproject.toml", "requirements/build.in", "--extra=all", "--extra=dev"),
    "use": ("pyproject.toml", "requirements/build.in", ALIKE, *USED),
    "real": ("pyproject.toml", "--extra=real", ALIKE),
    "fast": ("requirements/fast.in", ALIKE),
    "node": ("requirements/node.in",),
    "uv": ("requirements/uv.in",),
}
"""Name -> what uv resolves, relative to the project."""
OLDEST_PYTHON = "3.10"
HEADER = "# Written by `python3 dev.py lock`. Do not edit.\n"


def path(name: str) -> Path:
    """The file of a lock."""
    return FOLDER / f"{name}.lock"


def count(name: str) -> int:
    """The packages that a lock names; some are for other systems."""
    return sum("==" in line for line in path(name).read_text(encoding="utf-8").splitlines())


def install(python: Path, name: str) -> int:
    """Install a lock's packages into the environment of `python`. Returns the exit code."""
    command = [*_installer(python), "--require-hashes", "-r", str(path(name))]
    if not (code := _run(command)) or command[0] == str(python):
        return code
    return _run([*_pip(python), "--require-hashes", "-r", str(path(name))])  # perhaps pip can


def install_project(python: Path) -> int:
    """Install the project, editable and without its C++; what builds it is in the lock. Returns the
    exit code."""
    options = ("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    return _run([*_pip(python), *options], MLCC_NO_NATIVE="1")


def write() -> int:
    """Write all locks anew. Returns the exit code of the first that fails."""
    uv = shutil.which("uv")
    if uv is None:
        print("dev.py: there is no uv; type: pip install uv", file=sys.stderr)
        return 2
    options = ("--universal", "--generate-hashes", "--upgrade", "--quiet", "--no-header",
               "--no-annotate", f"--python-version={OLDEST_PYTHON}")  # fmt: skip
    for name, inputs in LOCKS.items():
        code = _run([uv, "pip", "compile", *inputs, *options, "-o", str(path(name))])
        if code:
            return code
        path(name).write_text(HEADER + path(name).read_text(encoding="utf-8"), encoding="utf-8")
    return 0


def _installer(python: Path) -> list[str]:
    """The command that installs into the environment of `python`: uv's, or pip's without it."""
    if (uv := shutil.which("uv") or _own_uv(python)) is None:
        return _pip(python)
    return [uv, "pip", "install", "--quiet", "--python", str(python)]


def _own_uv(python: Path) -> str | None:
    """uv, from the environment itself; installed there if it can be."""
    program = python.with_name("uv")
    if not program.exists():
        _run([*_pip(python), "--require-hashes", "-r", str(path("uv"))])
    return str(program) if program.exists() else None


def _pip(python: Path) -> list[str]:
    # not compiled ahead: of what torch and TVM bring, the most is never imported
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile")
    return [str(python), *pip]


def _run(command: list[str], **variables: str) -> int:
    environment = _environment() | variables
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def _environment() -> dict[str, str]:
    """pip's own settings hold for uv as well."""
    found = dict(os.environ)
    for pip, uv in (
        ("PIP_INDEX_URL", "UV_DEFAULT_INDEX"),
        ("PIP_CERT", "SSL_CERT_FILE"),
        ("PIP_DEFAULT_TIMEOUT", "UV_HTTP_TIMEOUT"),
    ):
        if pip in found:
            found.setdefault(uv, found[pip])
    return found
