"""Finding and running linkers, so that the result depends on the inputs alone."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcc_targets.target import TargetError

# No start files and no build id: two links of the same objects are equal to the byte.
_SHARED = ["-shared", "-fPIC", "-nostartfiles", "-Wl,--build-id=none", "-Wl,-z,noexecstack"]

_PACKAGES = {
    "ld.lld": "lld",
    "ld64.lld": "lld",
    "llvm-libtool-darwin": "llvm",
    "emcc": "emscripten",
}
"""Tool -> its package, of the same name in Debian and Homebrew."""
_VERSIONS = range(40, 13, -1)
"""LLVM's, newest first; Debian names some tools by version only, as in ld64.lld-14."""


def link_shared(objects: Sequence[Path], library: Path) -> None:
    """Link objects into a shared library of this machine. Raises TargetError."""
    run([*c_compiler(), *_SHARED, "-o", str(library), *map(str, objects), "-lm"], library)


def run(command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run what writes `output`. Raises TargetError with the first error it told, or its last word.

    environment: the whole of it, if not this process's.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        reason = next((line for line in lines if "error: " in line), lines[-1])
        raise TargetError(f"making {output.name} failed: {reason}")


def output_of(command: Sequence[str]) -> str:
    """What a program prints. Raises TargetError if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise TargetError(f"{' '.join(command)} failed: {reason}")
    return done.stdout


def c_compiler() -> list[str]:
    """$CC, or the first of cc, gcc, clang on the path. Raises TargetError."""
    if os.environ.get("CC"):
        command = shlex.split(os.environ["CC"])
        if shutil.which(command[0]) is None:
            raise TargetError(f"$CC names '{command[0]}', which is not there; unset or install it")
        return command
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    install = "xcode-select --install" if sys.platform == "darwin" else "apt install gcc"
    raise TargetError(f"no C compiler found (tried $CC, cc, gcc, clang); {install}")


def find_tool(name: str) -> str:
    """Path of a row's tool, by its plain or its versioned name. Raises TargetError.

    'cc' is the C compiler, which `c_compiler` finds.
    """
    if name == "cc":
        return c_compiler()[0]
    for candidate in (name, *(f"{name}-{version}" for version in _VERSIONS)):
        if path := shutil.which(candidate):
            return path
    manager = "brew" if sys.platform == "darwin" else "apt"
    raise TargetError(f"'{name}' is not on the path; {manager} install {_PACKAGES.get(name, name)}")
