"""The C library and a program that links it, built once per test run; what its C++ compiles to is
kept for later runs."""

from __future__ import annotations

import fcntl
import os
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from mlcc.util.executor_library import why_absent
from tests.helpers import needs, shared

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
    def parts(self) -> list[Path]:
        """What `mobile/c/build.py` writes."""
        return [self.zip, *self.folder.glob("lib*.so")]

    @property
    def program(self) -> Path:
        """`tests/e2e/mobile/host.cc`, compiled."""
        return self.folder / "host"

    def compile(self, source: Path, out: str | Path, *flags: str) -> Path:
        """A program over the library, in its folder."""
        made = self.folder / out
        words = [*flags, str(source), "-o", str(made), f"-I{SOURCE / 'include'}"]
        words += [f"-L{self.folder}", "-lmlcc", "-Wl,-rpath,$ORIGIN", "-ldl", "-pthread"]
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
        if not os.access(library.program, os.X_OK):
            _build(library, words)
    return library


def _build(library: Library, words: list[str]) -> None:
    """words: the C++ compiler's command."""
    source = ROOT / "tests" / "e2e" / "mobile" / "host.cc"
    flags = [*words, "-std=c++17", "-Wall", "-Wextra", "-O1"]
    made_of: list[str | bytes] = [(SOURCE / "build.py").read_bytes(), source.read_bytes(), *flags]
    made_of += [*shared.texts(SOURCE / "src", "*"), *shared.texts(SOURCE / "include", "*")]
    made_of += [shared.version_of(words[0]), sys.version, sysconfig.get_path("include")]

    def compile_library(made: Path) -> None:
        command = [sys.executable, str(SOURCE / "build.py"), str(made.parent)]
        env = {**os.environ, "CXX": shlex.join(words)}
        run = subprocess.run(command, capture_output=True, text=True, env=env)
        assert run.returncode == 0, run.stderr

    build = runpy.run_path(str(SOURCE / "build.py"))
    shared.keep(library.folder / build["LIBRARY"], made_of, compile_library)
    build["bundle"](library.zip)
    shutil.copyfile(build["EXECUTOR"], library.folder / build["EXECUTOR"].name)
    shared.keep(library.program, made_of, lambda made: library.compile(source, made, *flags))
    library.program.chmod(0o755)
