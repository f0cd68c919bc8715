"""The Swift package, built once per test run; its programs are kept for later runs."""

from __future__ import annotations

import io
import runpy
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from tests.helpers import shared
from tests.helpers.mobile.c_library import Library

ROOT = Path(__file__).parents[3]
SWIFT = ROOT / "mobile" / "swift"
BUILD: Any = runpy.run_path(str(SWIFT / "build.py"))
PROGRAMS = BUILD["SCRATCH"].with_name("swift-programs")
KEPT = ("mlcc-chat", "mlcc-relay")
"""Programs that tests start without `--long`."""
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
        """The command of a built program, over the C library of this checkout: one that was kept
        names that of the checkout in which it was built."""
        built = PROGRAMS if configuration == "debug" else BUILD["SCRATCH"] / configuration
        start = ["env", f"LD_LIBRARY_PATH={BUILD['LIBRARIES']}", str(built / name)]
        found: list[str] = BUILD["command"]([*start, *words], folders)
        return found


def run(command: Sequence[str], environment: dict[str, str]) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def built(library: Library) -> Package:
    """The package over a copy of the C library, in build/mobile; its programs are built if their
    sources changed. Several processes may ask."""
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    with FileLock(PROGRAMS / "tests.lock"):
        BUILD["LIBRARIES"].mkdir(exist_ok=True)
        for path in library.parts:
            shutil.copyfile(path, BUILD["LIBRARIES"] / path.name)
        made_of = _sources()
        kept = shared.load("swift-programs.zip", made_of)
        if kept is None:
            shared.store("swift-programs.zip", made_of, kept := _compiled())
        with zipfile.ZipFile(io.BytesIO(kept)) as archive:
            archive.extractall(PROGRAMS)
        for name in KEPT:
            (PROGRAMS / name).chmod(0o755)
    return Package()


def _sources() -> list[str | bytes]:
    """All that the programs are made of: the files of the package, by their places, the header of
    the C library, and Swift."""
    folders = ("Sources", "Tests/Relay", "Tests/Measure")
    found = [path for folder in folders for path in (SWIFT / folder).rglob("*") if path.is_file()]
    version = run(BUILD["command"](["swiftc", "--version"]), BUILD["environment"]())
    parts: list[str | bytes] = [version, *shared.texts(ROOT / "mobile" / "c" / "include", "*")]
    for path in sorted([*found, SWIFT / "Package.swift", SWIFT / "build.py"]):
        parts += [path.relative_to(SWIFT).as_posix(), path.read_bytes()]
    return parts


def _compiled() -> bytes:
    """An archive of the programs, by SwiftPM in build/mobile/swift, where a later run compiles only
    what has changed."""
    output = Package().swift("build")
    assert "warning:" not in output, output
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in KEPT:
            archive.write(BUILD["SCRATCH"] / "debug" / name, name)
    return data.getvalue()
