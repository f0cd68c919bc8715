"""The Swift package, built once per test run."""

from __future__ import annotations

import runpy
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

ROOT = Path(__file__).parents[3]
SWIFT = ROOT / "mobile" / "swift"
BUILD: Any = runpy.run_path(str(SWIFT / "build.py"))
SECONDS = 900
"""Bounds a build: a whole one takes half a minute of CPU time."""


@dataclass(frozen=True)
class Package:
    """The package, built over the C library of build/mobile/c."""

    def swift(
        self,
        action: str,
        *words: str,
        folders: Sequence[Path] = (),
        scratch: Path = BUILD["SCRATCH"],
        **more: str,
    ) -> str:
        """The output of `swift ACTION`, which must succeed. folders: further ones that it sees;
        more: variables."""
        command = BUILD["package"](action, *words, scratch=scratch, folders=folders)
        return run(command, BUILD["environment"](**more))

    def program(
        self, name: str, *words: str, folders: Sequence[Path] = (), configuration: str = "debug"
    ) -> list[str]:
        """The command of a built program."""
        path = str(BUILD["SCRATCH"] / configuration / name)
        found: list[str] = BUILD["command"]([path, *words], folders)
        return found


def run(command: Sequence[str], environment: dict[str, str]) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def built() -> Package:
    """Built in build/mobile, where a later run compiles only what has changed. Several processes
    may ask."""
    package, scratch = Package(), BUILD["SCRATCH"]
    scratch.mkdir(parents=True, exist_ok=True)
    with FileLock(scratch / "tests.lock"):
        BUILD["build_library"]()
        output = package.swift("build")
    assert "warning:" not in output, output
    return package
