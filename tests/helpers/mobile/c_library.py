"""The C library and a program that links it, built once per test run."""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from mlcc.util.executor_library import why_absent
from tests.helpers import needs

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "mobile" / "c"
SITE = [sysconfig.get_path("purelib"), str(ROOT)]
"""Module paths of the embedded Python: tokenizers and the tests' helpers; the engine is in the
zip."""


@dataclass(frozen=True)
class Library:
    """The built files."""

    folder: Path

    @property
    def zip(self) -> Path:
        return self.folder / "mlcc.zip"

    @property
    def program(self) -> Path:
        """`tests/e2e/mobile/host.cc`, compiled."""
        return self.folder / "host"

    def compile(self, source: Path, out: str, *flags: str) -> Path:
        """A program over the library."""
        made = self.folder / out
        words = [*flags, str(source), "-o", str(made), f"-I{SOURCE / 'include'}"]
        words += [f"-L{self.folder}", "-lmlcc", f"-Wl,-rpath,{self.folder}", "-ldl", "-pthread"]
        run = subprocess.run([*words], capture_output=True, text=True)
        assert run.returncode == 0, f"{shlex.join(words)}\n{run.stderr}"
        return made


def built(folder: Path, sanitizer: str = "") -> Library:
    """Build it in a folder that several processes may share. sanitizer: the value of -fsanitize."""
    needs.require("g++")
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        needs.absent("this Python has no shared library to embed")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        needs.absent("this Python has no headers (apt install python3-dev)")
    if reason := why_absent():
        needs.absent(reason)
    folder.mkdir(exist_ok=True)
    library = Library(folder)
    words = ["g++", "-g", *([f"-fsanitize={sanitizer}"] if sanitizer else [])]
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.program.exists():
            command = [sys.executable, str(SOURCE / "build.py"), str(folder)]
            env = {**os.environ, "CXX": shlex.join(words)}
            run = subprocess.run(command, capture_output=True, text=True, env=env)
            assert run.returncode == 0, run.stderr
            source = Path(__file__).parents[2] / "e2e" / "mobile" / "host.cc"
            library.compile(source, "host", *words, "-std=c++17", "-Wall", "-Wextra", "-O1")
    return library
