"""Linking with the system's C compiler, so that the result depends on the inputs alone."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from mlcc_targets.target import TargetError

# No start files and no build id: two links of the same objects are equal to the byte.
_SHARED = ["-shared", "-fPIC", "-nostartfiles", "-Wl,--build-id=none", "-Wl,-z,noexecstack"]


def link_shared(objects: Sequence[Path], library: Path) -> None:
    """Link objects into a shared library of this machine. Raises TargetError."""
    command = [*c_compiler(), *_SHARED, "-o", str(library), *map(str, objects), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise TargetError(f"linking {library.name} failed: {reason}")


def c_compiler() -> list[str]:
    """$CC, or the first of cc, gcc, clang on the path. Raises TargetError."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise TargetError("no C compiler found (tried $CC, cc, gcc, clang); apt install gcc")
