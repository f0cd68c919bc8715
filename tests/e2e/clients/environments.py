"""Environments of the clients that are not in .venv: build/clients, with a Python environment of
`requirements.txt` and the packages of `package.json`. Made once, and again if these files
change."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOLDER = ROOT / "build" / "clients"
PROGRAMS = HERE / "programs"


def python() -> Path:
    """The interpreter that has the Python clients."""
    wanted, folder = HERE / "requirements.txt", FOLDER / "python"
    if not _is_made(folder, wanted):
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        pip = (str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check")
        _run(*pip, "install", "--quiet", "--no-compile", "--no-deps", "-r", str(wanted))
        _note(folder, wanted)
    return folder / "bin" / "python"


def packages() -> Path:
    """The folder whose node_modules has the JavaScript clients and the agents."""
    wanted, folder = HERE / "package.json", FOLDER / "node"
    if not _is_made(folder, wanted):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(wanted, folder)
        _run("npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder))
        _note(folder, wanted)
    for program in PROGRAMS.glob("*.mjs"):  # Node looks for packages beside the program
        shutil.copy(program, folder)
    return folder


def command_of(program: str) -> list[str]:
    """The command that starts a program of `programs/`."""
    if program.endswith(".mjs"):
        return ["node", str(packages() / program)]
    return [str(python()), str(PROGRAMS / program)]


def _is_made(folder: Path, wanted: Path) -> bool:
    stamp = folder / ".installed"
    return stamp.exists() and stamp.read_text() == _hash(wanted)


def _note(folder: Path, wanted: Path) -> None:
    (folder / ".installed").write_text(_hash(wanted))


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=1200)
