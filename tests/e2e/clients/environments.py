"""Environments of the clients that are not in .venv, in build/clients: one of `requirements.txt`,
one of `lm_eval.txt`, and the packages of `package.json`. Made once, and again if these files
change."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FOLDER = ROOT / "build" / "clients"
PROGRAMS = HERE / "programs"


def python(name: str = "requirements", *, beside: bool = False) -> Path:
    """The interpreter that has the packages of `name`.txt. beside: those of this interpreter, such
    as torch, can be imported too."""
    wanted, folder = HERE / f"{name}.txt", FOLDER / ("python" if name == "requirements" else name)
    interpreter = folder / "bin" / "python"
    if not _is_made(folder, wanted):
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        pip = (str(interpreter), "-m", "pip", "--disable-pip-version-check")
        _run(*pip, "install", "--quiet", "--no-compile", "--no-deps", "-r", str(wanted))
        if beside:
            own = next(folder.glob("lib/python*/site-packages"))
            (own / "beside.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        _note(folder, wanted)
    return interpreter


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
